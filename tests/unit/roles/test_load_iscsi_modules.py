# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the playbook load_iscsi_modules hands on from one host to the others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from ansible.utils.unsafe_proxy import wrap_var

from ansible_collections.storage_ops.runbooks.tests.unit.support.roles import (
    ROLES,
    load,
    rendered,
)

NAME, BOOT = "iqn.1993-08.org.debian:01:a", "0a1b2c3d-1111-4222-8333-444455556666"
SET = "ansible.builtin.set_fact"


class Vars(Mapping[str, Any]):
    """As Ansible's variables of hosts: no dictionary, so that they are read one by one."""

    # Before ansible-core 2.19 they are templated where they are read (AnsibleJ2Vars of
    # ansible/template/vars.py).
    __UNSAFE__ = True

    def __init__(self, kept: dict[str, Any]) -> None:
        self.kept = kept

    def __getitem__(self, name: str) -> Any:
        return self.kept[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.kept)

    def __len__(self) -> int:
        return len(self.kept)


class Of(Vars):
    """The variables of another host. Before ansible-core 2.19, reading one of them takes the time
    for all that is in it (HostVarsVars of ansible/vars/hostvars.py).
    """

    def __getitem__(self, name: str) -> Any:
        kept = super().__getitem__(name)
        assert len(json.dumps(kept, default=str)) < 400, f"{name} is as long as a host likes"
        return kept


def handed_on(own: Any = NAME, **answers: tuple[Any, Any]) -> tuple[Any, Any]:
    """Names and boot IDs by host, as worker01 gets them; ``own``: its name; ``answers``: each
    other host's own.
    """
    plays = load(ROLES.parent / "playbooks/load_iscsi_modules.yml")
    (asking,) = [play for play in plays if "tasks" in play and "serial" not in play]
    keeping = [task[SET] for task in asking["tasks"] if SET in task]
    (play,) = [play for play in plays if "serial" in play]
    hostvars = {}
    for host, (name, boot) in answers.items():
        facts = {"ansible_iscsi_iqn": name, "others": ["x"] * 1000}
        said = {"__initiator": {"facts": facts}, "__boot": {"stdout": boot}}
        # Each host in a turn of its own.
        kept = {key: rendered(value, said) for part in keeping for key, value in part.items()}
        hostvars[host] = Of({**said, **kept})
    given = {
        **play["vars"],
        "hostvars": Vars(hostvars),
        "inventory_hostname": "worker01",
        "__own": {"facts": {"ansible_iscsi_iqn": own}},
        "ansible_play_hosts_all": ["worker01", *answers],
    }
    return rendered(given["__names_by_host"], given), rendered(given["__boot_ids"], given)


def test_names_reach_the_others() -> None:
    assert handed_on(worker02=(NAME, f"{BOOT}\n"), worker03=("", "")) == (
        {"worker02": NAME},
        {"worker02": BOOT},
    )


@pytest.mark.parametrize("own", ["iqn.1993-08.org.debian:01:c", "", None, [NAME], {"a": NAME}])
def test_a_host_learns_no_name_but_its_own(own: Any) -> None:
    """An array without CHAP gives its LUNs to whoever has the name."""
    assert handed_on(own, worker02=(NAME, BOOT), worker03=("", "")) == ({}, {})
    other = "iqn.1993-08.org.debian:01:b"
    told = handed_on(worker02=(NAME, BOOT), worker03=(other, BOOT), worker04=(f"{NAME}b", BOOT))
    assert told == ({"worker02": NAME}, {"worker02": BOOT})


def test_one_host_does_not_lengthen_the_answers_of_all_others() -> None:
    for evil in ("iqn." + "x" * 1_000_000, "iqn.\u20ac", [NAME] * 1000, {"a": NAME}):
        names, boot_ids = handed_on(evil=(evil, evil), worker02=(NAME, BOOT))
        assert names == {"worker02": NAME} and boot_ids == {"worker02": BOOT}, evil


def test_no_template_is_handed_on() -> None:
    """An ansible-core with CVE-2024-11079 may take what comes by hostvars for one."""
    for evil in ("{{lookup('pipe','id>&2')}}", "{%if(lookup('pipe','id'))%}x{%endif%}", "{#x#}"):
        # As a module's result.
        said = wrap_var((evil, evil))
        assert handed_on(evil=said, worker02=(NAME, BOOT)) == (
            {"worker02": NAME},
            {"worker02": BOOT},
        ), evil


def test_a_host_that_says_nothing_has_no_name() -> None:
    """It could not be reached, or has answered what is no fact."""
    plays = load(ROLES.parent / "playbooks/load_iscsi_modules.yml")
    (kept,) = [task[SET] for play in plays for task in play.get("tasks", []) if SET in task]
    for lost in ({"unreachable": True}, {"facts": {"ansible_iscsi_iqn": None}}, {"facts": {}}):
        said = {"__initiator": lost, "__boot": lost}
        assert rendered(kept, said) == {"__told": {"name": "", "boot_id": ""}}, lost
