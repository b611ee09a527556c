# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the playbook load_iscsi_modules hands on from one host to the others."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.utils.unsafe_proxy import wrap_var

from ansible_collections.storage_ops.runbooks.tests.unit.support.roles import (
    ROLES,
    load,
    rendered,
)

NAME, BOOT = "iqn.1993-08.org.debian:01:a", "0a1b2c3d-1111-4222-8333-444455556666"


def handed_on(own: Any = NAME, **answers: tuple[Any, Any]) -> tuple[Any, Any]:
    """Names and boot IDs by host, as worker01 gets them; ``own``: its name; ``answers``: each
    other host's own.
    """
    plays = load(ROLES.parent / "playbooks/load_iscsi_modules.yml")
    (play,) = [play for play in plays if "serial" in play]
    hostvars = {
        host: {"__initiator": {"facts": {"ansible_iscsi_iqn": name}}, "__boot": {"stdout": boot}}
        for host, (name, boot) in answers.items()
    }
    given = {
        **play["vars"],
        "hostvars": hostvars,
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
