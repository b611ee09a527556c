# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which variables exist, and what a target is made of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.storage_ops.runbooks.plugins.action.check_scope import (
    Known,
    _check_parts,
    answered,
    options_of,
    refuse,
    split,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.roles import beginning

COLLECTION = Path(__file__).resolve().parents[4]
# The beginning and the end of others, which have the check.
PARTS = {"check_limit", "conclude"}
PLAYBOOKS = sorted(
    path for path in (COLLECTION / "playbooks").glob("*.yml") if path.stem not in PARTS
)
ROLES = {path.name for path in (COLLECTION / "roles").iterdir()}
# Only shows what others found.
CHANGES_NOTHING = {"show_findings"}


def known(*prefixes: str, variables: tuple[str, ...] = ()) -> Known:
    return Known.read(COLLECTION / "roles", variables, prefixes)


def tasks(block: Any) -> Iterator[dict[str, Any]]:
    """Every task below a list of plays or tasks."""
    for entry in block or []:
        yield entry
        for inner in ("pre_tasks", "tasks", "block", "rescue", "always"):
            yield from tasks(entry.get(inner))


def checks(playbook: Path) -> list[dict[str, Any]]:
    """The arguments of each check of the scope in a playbook."""
    name = "storage_ops.runbooks.check_scope"
    return [
        task[name] or {} for task in tasks(yaml.safe_load(playbook.read_text())) if name in task
    ]


def test_nearest_is_named() -> None:
    unknown = known().unknown(
        ["fuse_recovery_path", "residual_paths_map", "ansible_host", "target"], []
    )
    assert unknown == {
        "fuse_recovery_path": ["fuse_recovery_paths"],
        "residual_paths_map": ["residual_paths_maps"],
    }
    with pytest.raises(
        StorageOpsError, match=r"fuse_recovery_path \(did you mean fuse_recovery_paths\?\)"
    ):
        refuse(unknown)


def test_what_is_like_nothing_is_unknown_all_the_same() -> None:
    with pytest.raises(
        StorageOpsError, match="there is no variable node_fence_zzzzzzzzzzzzzzzzzzzzzz$"
    ):
        refuse(known().unknown(["node_fence_zzzzzzzzzzzzzzzzzzzzzz"], []))


def test_all_options_and_results_of_all_roles_exist() -> None:
    """One role's prefix may be another's beginning, and the roles' own results and facts are
    variables too.
    """
    names = {
        "node_fence_node",
        "compliance_report_folder",
        "workload_reattach_scale_down",
        "residual_paths_result",
    }
    names |= {
        "fuse_recovery_containers_result",
        "compliance_report_written",
        "__residual_paths_maps",
        "compliance_level",
    }
    names |= {"node_fence_info"}
    assert known().unknown(names, []) == {}
    # Only a playbook that has such variables claims the prefix.
    assert list(known("compliance_").unknown(names, [])) == ["compliance_level"]
    assert known("compliance_", variables=("compliance_level",)).unknown(names, []) == {}


def test_misspelt_prefix_of_an_extra_variable() -> None:
    given = ["residual_path_maps", "region", "residual_paths_maps"]
    assert known().unknown([], given) == {"residual_path_maps": ["residual_paths_maps"]}
    assert known().unknown(given, []) == {}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("residual_maps", "residual_paths_maps"),
        ("fuse_paths", "fuse_recovery_paths"),
        ("attachment_name", "attachment_repair_names"),
        ("pod_volumes", "pod_mounts_volumes"),
    ],
)
def test_an_extra_variable_without_the_middle_of_its_prefix(given: str, meant: str) -> None:
    """It narrows nothing down, and the run would repair everything."""
    assert known().unknown([], [given]) == {given: [meant]}


def test_a_role_is_not_told_what_its_playbook_knows() -> None:
    """Variables of a playbook, in its own words, may look like those of a role that it runs."""
    asked = {
        name
        for playbook in PLAYBOOKS
        for check in checks(playbook)
        for name in check.get("variables", [])
    }
    assert asked >= {
        "compliance_read_cluster",
        "respond_hosts",
        "replace_hosts",
        "network_fence_class",
        "configure_awx_image",
    }
    strangers = {name for name in asked if not name.startswith(known().prefixes)}
    assert known().unknown([], strangers) == {}


def test_extra_variables_of_others() -> None:
    """What AWX, EDA and users give besides is none of ours."""
    theirs = [
        "awx_job_id",
        "tower_user_name",
        "ansible_eda",
        "maps",
        "node",
        "node_name",
        "region_name",
    ]
    assert known().unknown([], theirs) == {}


JOBS = Known.of(COLLECTION / "roles", ["compliance", "merge_compliance_reports"])


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("compliance_ceph_hots", "compliance_ceph_host"),
        ("compliance_report_exception", "compliance_report_exceptions"),
        ("report_exceptions", "compliance_report_exceptions"),
        ("merge_keep_day", "merge_keep_days"),
        ("targets", "target"),
        ("zzz", ""),
    ],
)
def test_what_is_handed_on_is_known_there(given: str, near: str) -> None:
    """Nothing else could use it, so it need not be like one of ours to be refused."""
    assert JOBS.strangers([given]) == {given: [near] if near else []}


def test_what_is_handed_on_may_be_ours_or_ansibles() -> None:
    names = [
        "compliance_ceph_host",
        "compliance_report_exceptions",
        "merge_max_age_minutes",
        "target",
        "ansible_become",
    ]
    assert JOBS.strangers(names) == {}
    # Only the playbooks that are named.
    alone = Known.of(COLLECTION / "roles", ["merge_compliance_reports"])
    assert list(alone.strangers(names)) == ["target"]


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ("node1", ["node1"]),
        ("node1, node2\nnode3\n", ["node1", "node2", "node3"]),
        (["node1", "node2,node3"], ["node1", "node2", "node3"]),
        ("web:!node2:&db", ["web", "!node2", "&db"]),
        ("web[0:3],fd00::1", ["web[0:3]", "fd00::1"]),
        ("", []),
        (" \n", []),
        (None, []),
    ],
)
def test_parts_of_a_target(target: Any, parts: list[str]) -> None:
    assert split(target) == parts


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("wroker1", r"matches wroker1 \(did you mean worker1\?\)$"),
        ("!wroker1", r"matches !wroker1 \(did you mean worker1\?\)$"),
        # As without an inventory.
        ("all", r"matches all: it is a group without hosts. Is the inventory \(-i\) the right"),
        ("other", "matches other$"),
    ],
)
def test_a_part_that_matches_no_host_is_refused(part: str, said: str) -> None:
    with pytest.raises(StorageOpsError, match=said) as raised:
        _check_parts([part], ["all", "ungrouped", "worker1"], lambda _pattern: [])
    assert raised.value.code == "not_found"


@pytest.mark.parametrize("role", sorted(ROLES - CHANGES_NOTHING))
def test_every_role_begins_with_the_check(role: str) -> None:
    first = beginning(role)
    assert first["storage_ops.runbooks.check_scope"]["role"] == role
    assert first["any_errors_fatal"] is True


@pytest.mark.parametrize("role", sorted(ROLES - CHANGES_NOTHING))
def test_roles_read_options_that_exist(role: str) -> None:
    task = beginning(role)["storage_ops.runbooks.check_scope"]
    named = {f"{role}_{name}" for name in [*task.get("own", []), *task.get("unread", [])]}
    assert named <= set(options_of(role))


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda path: path.stem)
def test_every_playbook_begins_with_the_check(playbook: Path) -> None:
    """Or with another playbook that does; before it there is at most a look at the limit."""
    plays = yaml.safe_load(playbook.read_text())
    begins = [play.get("ansible.builtin.import_playbook", playbook.name) for play in plays]
    first, *_others = [name for name in begins if name != "check_limit.yml"]
    assert checks(COLLECTION / "playbooks" / first)


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda path: path.stem)
def test_no_limit_passes_over_a_play_of_the_localhost(playbook: Path) -> None:
    """Which would be a green run that has looked at nothing."""
    plays = yaml.safe_load(playbook.read_text())
    if any(play.get("hosts") == "localhost" for play in plays):
        assert plays[0].get("ansible.builtin.import_playbook") == "check_limit.yml"


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda path: path.stem)
def test_playbook_knows_what_it_uses_and_tells(playbook: Path) -> None:
    """With a prefix of its own, every such name in its text is a variable that it knows; and it
    knows no others.
    """
    text = playbook.read_text()
    for arguments in checks(playbook):
        prefixes = tuple(arguments.get("prefixes", []))
        names = (
            {name for name in re.findall(r"\b[a-z_]+[a-z]\b", text) if name.startswith(prefixes)}
            if prefixes
            else set()
        )
        ours = known(*prefixes, variables=tuple(arguments.get("variables", [])))
        assert (
            set(ours.unknown(names - {path.stem for path in PLAYBOOKS}, [])) - _imported(playbook)
            == set()
        )
        assert set(arguments.get("variables", [])) <= names
        # Those that it hands variables on to are there, and begin with the check themselves.
        assert all(
            checks(playbook.with_name(f"{name}.yml")) for name in arguments.get("playbooks", [])
        )


def _imported(playbook: Path) -> set[str]:
    """Facts that one play keeps for the next."""
    return {
        name
        for task in tasks(yaml.safe_load(playbook.read_text()))
        for name in task.get("ansible.builtin.set_fact", {})
    }


def test_options_of_the_module_and_of_the_role_are_apart() -> None:
    read = answered(
        "residual_paths",
        {"residual_paths_strict": "yes", "residual_paths_maps": "mpatha,mpathb\nmpathc"},
        ["strict"],
        ["vendor"],
    )
    assert read["own"] == {"strict": True}
    assert read["options"]["maps"] == ["mpatha", "mpathb", "mpathc"]
    assert read["options"]["observations"] == 3
    assert not {"vendor", "product", "wwids"} & set(read["options"])


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"deadline": 600, "probe_timeout": ""}, {"deadline": 600}),
        ('{"deadline": 600, "probe_timeout": null}', {"deadline": 600}),
        ("{}", {}),
        ("", {}),
    ],
)
def test_rare_options_are_given_in_one_dictionary(given: Any, wanted: dict[str, Any]) -> None:
    found = {"residual_paths_options": given, "residual_paths_vendor": "NETAPP"}
    read = answered("residual_paths", found, ["strict"], [], ["deadline", "probe_timeout"])
    options = read["options"]
    assert options["vendor"] == "NETAPP"
    assert {name: options[name] for name in ("deadline", "probe_timeout") if name in options} == (
        wanted
    )
    assert "options" not in options


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"deadlines": 9}, r"has 'deadlines' \(did you mean deadline\?\)"),
        # It has a variable of its own, or is the role's to give.
        ({"vendor": "NETAPP"}, "has 'vendor'; it can have deadline, probe_timeout"),
        ({"strict": True}, "has 'strict'"),
        ("[1]", "must be a dictionary"),
    ],
)
def test_no_other_option_is_given_in_that_dictionary(given: Any, said: str) -> None:
    found = {"residual_paths_options": given}
    with pytest.raises(StorageOpsError, match=f"residual_paths_options {said}"):
        answered("residual_paths", found, ["strict"], [], ["deadline", "probe_timeout"])


def test_surveys_ask_only_for_what_exists() -> None:
    templates = yaml.load((COLLECTION / "playbooks/files/awx/templates.yml").read_text(), Unsafe)
    for template in templates["__awx_templates"] + templates["__awx_slicing"]:
        arguments = checks(COLLECTION / "playbooks" / f"{template['playbook']}.yml") or [{}]
        ours = known(
            *arguments[0].get("prefixes", []), variables=tuple(arguments[0].get("variables", []))
        )
        asked = [
            {key: value for part in question for key, value in part.items()}["variable"]
            for question in template["survey"]
        ]
        assert ours.unknown(asked, asked) == {}, template["name"]


class Unsafe(yaml.SafeLoader):
    """YAML with Ansible's tag."""


Unsafe.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))
