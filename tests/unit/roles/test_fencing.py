# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the roles node_fence, volume_failover and node_release make of what they are given, as
Ansible computes it.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.storage_ops.runbooks.plugins.action import (
    check_scope,
    conclude,
    on_node,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fencing.runbook import PROOF
from ansible_collections.storage_ops.runbooks.tests.unit.support.roles import (
    ROLES,
    beginning,
    load,
    rendered,
    variable,
)

URI = "ansible.builtin.uri"
FAIL_OVER = ROLES.parent / "playbooks/fail_over_volumes.yml"


def tasks_of(part: Any) -> list[dict[str, Any]]:
    """All tasks of a file, those in blocks too."""
    inside = [one for task in part for key in BLOCKS for one in tasks_of(task.get(key) or [])]
    return [*part, *inside]


BLOCKS = ("block", "rescue", "always")


def role(role_name: str, name: str, **given: Any) -> Any:
    """The role's variable of that name."""
    names = {
        name: name
        if name.startswith(("__", "hostvars", "ansible_", "item"))
        else f"{role_name}_{name}"
        for name in given
    }
    return variable(role_name, name, **{names[name]: value for name, value in given.items()})


def info(*attachments: str, used: bool = False) -> dict[str, Any]:
    """What node_fence_info returned of a node with so many volumes; one that has left the node has
    no attachment.
    """
    told = enumerate(attachments)
    volumes = [
        {"name": f"pv-{number}", "attachment": found, "used": used, "pv": {"number": number}}
        for number, found in told
    ]
    return {"lost": [{"node": "worker01", "ledger": {}, "volumes": volumes}]}


@pytest.mark.parametrize(
    ("planned", "wanted"),
    [
        ({"failed": True, "code": "lease_held", "msg": "another run (x) is at work"}, True),
        ({"failed": True, "code": "lease_held", "msg": "said in another way"}, True),
        ({"failed": True, "code": "node_not_lost", "msg": "another run (x) is at work"}, False),
        ({"failed": True, "msg": "MODULE FAILURE"}, False),
        ({"failed": False, "code": "lease_held"}, False),
    ],
)
def test_another_run_is_waited_for_by_its_code(planned: dict[str, Any], wanted: bool) -> None:
    assert role("node_fence", "busy", __node_fence_planned=planned) is wanted


@pytest.mark.parametrize(
    ("found", "given", "wanted"),
    [
        (info("csi-1", ""), {}, (3, 61.0)),
        (info("csi-1"), {"observations": "5", "observation_seconds": "120.5"}, (5, 120.5)),
        (info("csi-1"), {"observations": "", "observation_seconds": " "}, (3, 61.0)),
        # Nobody is fenced for what has left the node.
        (info("", ""), {}, (1, 0.0)),
        # Kubernetes has detached it by force.
        (info("", used=True), {}, (3, 61.0)),
        (info(), {"observations": "5"}, (1, 0.0)),
        ({"lost": []}, {}, (1, 0.0)),
    ],
)
def test_how_long_it_is_watched(
    found: dict[str, Any], given: dict[str, Any], wanted: tuple[int, float]
) -> None:
    seen = [
        role("node_fence", name, __node_fence_info=found, **given)
        for name in ("observations", "seconds")
    ]
    assert (int(seen[0]), float(seen[1])) == wanted


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, True),
        ({"observation_seconds": "5"}, False),
        ({"observations": "2"}, False),
        ({"accept_short_observation": "true"}, False),
    ],
)
def test_a_short_look_comes_first(given: dict[str, str], wanted: bool) -> None:
    found = info("csi-1")
    assert role("node_fence", "looks_twice", __node_fence_info=found, **given) is wanted
    # Nothing is fenced for what has left the node.
    assert role("node_fence", "looks_twice", __node_fence_info=info("", ""), **given) is False


@pytest.mark.parametrize(
    ("quick", "wanted"),
    [
        ({"skipped": True}, False),
        ({"fence": {}}, False),
        # Refused, or ended before anything was decided.
        ({"fence": {}, "code": "observation_too_short"}, True),
        ({"code": "api_unreachable"}, True),
        ({"msg": "MODULE FAILURE"}, True),
    ],
)
def test_the_long_look_comes_unless_the_short_one_was_enough(
    quick: dict[str, Any], wanted: bool
) -> None:
    assert role("node_fence", "looks_longer", __node_fence_quick=quick) is wanted


@pytest.mark.parametrize(
    ("ready", "silent", "given", "wanted"),
    [
        ("Unknown", 119.0, {}, 1),
        ("Unknown", 120.0, {}, 3),
        ("Unknown", 119.0, {"grace_seconds": "60"}, 3),
        ("True", 0.0, {}, 1),
        ("False", 600.0, {}, 1),
        # Its object was deleted.
        ("", 0.0, {}, 3),
    ],
)
def test_what_is_refused_anyway_is_not_watched_first(
    ready: str, silent: float, given: dict[str, Any], wanted: int
) -> None:
    found = info("csi-1")
    found["lost"][0] |= {"ready": ready, "not_ready_seconds": silent}
    assert int(role("node_fence", "observations", __node_fence_info=found, **given)) == wanted


def said(lost: dict[str, Any] | None, why: str = "cause", check: bool = False) -> str:
    """The paragraph that a failed run ends with."""
    given: dict[str, Any] = {"code": "api_unreachable"} if lost is None else {"lost": [lost]}
    given = {"__node_fence_failed_info": given, "__node_fence_failed_why": why}
    given["ansible_check_mode"] = check
    told = role("node_fence", "failed_said", **given, __node_fence_failed_node="worker01")
    return " ".join(str(told).split())


def lost(phase: str, ready: str = "Unknown", **ledger: Any) -> dict[str, Any]:
    """What node_fence_info returns of a node with three volumes, one of which is still there."""
    kept = {
        **{"phase": phase, "method": "ceph", "volumes": ["pv-a", "pv-b", "pv-c"]},
        **{"entries": [{"entry": "10.0.0.5"}], "network_fences": [], "detached": ["pv-a"]},
        **ledger,
    }
    there = [{"name": "pv-c", "attachment": "csi-1", "used": False}]
    return {"node": "worker01", "ready": ready, "ledger": kept, "volumes": there}


AGAIN = "Next, once that is mended: ansible-playbook storage_ops.runbooks.{} -e target=worker01"


@pytest.mark.parametrize(
    ("found", "texts"),
    [
        (
            None,
            [
                "has not ended: cause.",
                "could not be read (api_unreachable).",
                AGAIN.format("fail_over_volumes"),
            ],
        ),
        (
            {"ready": "Unknown", "ledger": {}, "volumes": []},
            ["worker01 was not fenced: cause.", "nothing was detached"],
        ),
        (
            lost("fenced"),
            [
                "The fail-over of worker01 has not ended: cause. It is fenced, by its ledger, and "
                "stays so: 10.0.0.5. Detached and proven: pv-a. Detached, and not proven to be in "
                "use elsewhere: pv-b. Not detached: pv-c.",
                AGAIN.format("fail_over_volumes"),
            ],
        ),
        (lost("detached"), ["Detached and proven: pv-a, pv-b. Not detached: pv-c."]),
        (lost("fenced", "True"), [AGAIN.format("release_fenced_node")]),
        (
            lost("intended", network_fences=[{"name": "f"}], entries=[], detached=[]),
            [
                "is not proven, so it may be in place or not: NetworkFence f. Detached and proven: "
                "nothing."
            ],
        ),
        (lost("releasing"), ["is being released", AGAIN.format("release_fenced_node")]),
        (lost("fenced", method="none", entries=[]), ["stays so: method none."]),
        (
            lost("fenced", method="power", entries=[], power={"address": "192.0.2.11"}),
            ["stays so: its BMC 192.0.2.11."],
        ),
        (
            lost(
                "fenced",
                method="external",
                entries=[],
                power={"kind": "external", "address": "cloud01"},
            ),
            ["stays so: its external source cloud01."],
        ),
    ],
)
def test_a_failed_run_says_what_is_fenced_and_what_to_do(
    found: dict[str, Any] | None, texts: list[str]
) -> None:
    told = said(found)
    for text in texts:
        assert text in told, told
    assert told.count("cause") == 1
    assert ("was not fenced" in told) is (found is not None and not found["ledger"])


def test_a_failed_rehearsal_names_no_command_that_acts() -> None:
    assert f"{AGAIN.format('fail_over_volumes')} --check (" in said(None, check=True)
    assert "--check" not in said(None)


@pytest.mark.parametrize("name", ["node_fence", "volume_failover", "node_release"])
def test_the_last_task_is_the_one_that_fails(name: str) -> None:
    """And not the Lease, which is given back whatever happens."""
    tasks = yaml.safe_load((ROLES / name / "tasks/main.yml").read_text())
    (place,) = [number for number, task in enumerate(tasks) if "rescue" in task]
    assert "run_lease" in str(tasks[place]["always"]) and "builtin.fail" not in str(tasks[place])
    failed = yaml.safe_load((ROLES / "node_fence/tasks/failed.yml").read_text())
    end = tasks[place + 1]
    assert "ansible.builtin.fail" in (failed[-1] if "failed.yml" in str(end) else end)


def left(severity: str) -> dict[str, Any]:
    """What node_fence says of a volume that is no part of the fence."""
    about = {"kind": "PersistentVolume", "name": "pv-w", "node": "worker01"}
    said = {"verdict": "report", "summary": "pv-w is left out", "reason": "its owner is unknown"}
    return {"object": about, "severity": severity, "repair": [], **said}


def concludes(findings: list[dict[str, Any]]) -> dict[str, Any]:
    return conclude.conclude([conclude.outcome(findings, False, False)], False)


def test_a_volume_that_is_left_out_of_the_fence_fails_the_run() -> None:
    """The others are moved, and the colour of the job tells that not all are."""
    given = {
        "__node_fence_intended": {"findings": [left("major")]},
        "node_fence_result": {"findings": [left("info")]},
        "__node_fence_run_id": "run-1",
    }
    told = variable("volume_failover", "fence_findings", __volume_failover_run_id="run-1", **given)
    assert concludes(list(told))["own"]["left"] == ["PersistentVolume pv-w: its owner is unknown"]
    # What needs no fence is none, and what an earlier run of the role has said is no more so.
    assert not concludes([left("info")])["failing"]
    other = variable("volume_failover", "fence_findings", __volume_failover_run_id="run-2", **given)
    alone = variable("volume_failover", "fence_findings", __volume_failover_run_id="run-2")
    assert list(other) == list(alone) == []


def test_what_is_left_of_a_fence_fails_the_release() -> None:
    """The taint is there, and no ledger that says what else is."""
    begun, stale = {"findings": [left("major")]}, {"findings": [left("minor")]}
    told = variable(
        "node_release",
        "findings",
        __node_release_begun={**begun, "fence": {}},
        node_release_result=stale,
    )
    assert list(told) == begun["findings"] and concludes(list(told))["failing"]
    both = variable(
        "node_release",
        "findings",
        __node_release_begun={**begun, "fence": {"method": "ceph"}},
        node_release_result=stale,
    )
    assert list(both) == begun["findings"] + stale["findings"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("node_fence", "__node_fence_intended.findings + node_fence_result.findings"),
        ("volume_failover", "volume_failover_result.findings + __volume_failover_fence_findings"),
        ("node_release", "__node_release_findings"),
    ],
)
def test_a_role_concludes_over_all_that_it_has_said(name: str, told: str) -> None:
    tasks = yaml.safe_load((ROLES / name / "tasks/main.yml").read_text())
    assert tasks[-1]["storage_ops.runbooks.conclude"] == {"findings": f"{{{{ {told} }}}}"}
    # Before the rest is moved, nothing fails for what is left out.
    assert tasks[-1].get("when") == (
        "__node_fence.own.release_lease" if name == "node_fence" else None
    )


@pytest.mark.parametrize("name", ["node_fence", "volume_failover", "node_release"])
def test_the_end_names_the_task_and_its_code_and_no_reason(name: str) -> None:
    """The task that fails has printed the reason."""
    given = {"ansible_failed_task": {"name": "Fence it"}}
    result: dict[str, Any] = {"msg": "the reason", "code": "fence_missing"}
    failure = role(name, "failure", **given, ansible_failed_result=result)
    assert str(failure).strip() == "task 'Fence it' failed (fence_missing)"
    failure = role(name, "failure", **given, ansible_failed_result={"msg": "the reason"})
    assert str(failure).strip() == "task 'Fence it' failed"


def test_no_task_is_delegated_to_an_empty_name() -> None:
    """Since ansible-core 2.19 a task that is skipped fails by it, too. Without a Ceph host there is
    none.
    """
    playbooks = ROLES.parent / "playbooks"
    for path in [*playbooks.glob("**/*.yml"), *ROLES.glob("*/tasks/*.yml")]:
        text = path.read_text()
        assert not re.search(r"delegate_to: \"\{\{ \w*ceph_host \}\}", text), path


@pytest.mark.parametrize("name", ["node_fence", "volume_failover", "node_release"])
def test_a_host_that_cannot_be_reached_has_a_next_step(name: str) -> None:
    said = re.findall(
        r"cannot be reached((?:.*\n)*?) +quiet: true",
        "\n".join(path.read_text() for path in (ROLES / name / "tasks").glob("*.yml")),
    )
    assert said and all("Next: make ansible" in text for text in said)


def test_every_volume_of_the_node_is_read() -> None:
    assert list(role("node_fence", "volumes", __node_fence_info=info("csi-1", ""))) == [
        {"number": 0},
        {"number": 1},
    ]


def test_the_metadata_servers_are_asked_about_what_is_used_or_attached() -> None:
    """ceph-csi attaches nothing where its CSIDriver says so."""

    def files(driver: str, attachment: str, used: bool) -> list[Any]:
        found = info(attachment, used=used)
        found["lost"][0]["volumes"][0]["driver"] = driver
        return list(role("node_fence", "files", __node_fence_info=found))

    for driver in ("cephfs.csi.ceph.com", "rook.cephfs.csi.ceph.com"):
        assert files(driver, "csi-1", False) == files(driver, "", True) == [{"number": 0}]
        # It has left the node.
        assert files(driver, "", False) == []
    assert files("rbd.csi.ceph.com", "csi-1", False) == []


def test_nothing_is_fenced_that_the_run_has_not_begun_with() -> None:
    """By any method: what is not read before the fence could not be proven after it."""
    assert list(role("node_fence", "names", __node_fence_info=info("csi-1", ""))) == [
        "pv-0",
        "pv-1",
    ]
    for file, state, wanted in (("decide", "intended", 3), ("fence", "fenced", 2)):
        tasks = (ROLES / "node_fence" / "tasks" / f"{file}.yml").read_text()
        named = tasks.count('volumes: "{{ __node_fence_names }}"')
        assert tasks.count(f"state: {state}\n") == named == wanted


def test_whose_watch_must_end() -> None:
    """Of a fence in Ceph whoever its entries block, in the task that adds them; else whoever is at
    its addresses.
    """
    fence = {"method": "network_fence", "addresses": ["10.0.0.5"], "volumes": []}
    given = {"__node_fence_intended": {"fence": fence}, "__node_fence_info": {"lost": []}}
    tasks = load(ROLES / "node_fence/tasks/fence.yml")
    (blocks,) = [task for task in tasks if "storage_ops.runbooks.ceph_blocklist" in task]
    (watches,) = [task for task in tasks if "storage_ops.runbooks.rbd_watcher_info" in task]
    asked = watches["storage_ops.runbooks.rbd_watcher_info"]
    watched = role("node_fence", "watch", **given)
    found = role("node_fence", "x", __node_fence_x=asked, __node_fence_watch=watched, **given)
    # Before ansible-core 2.19 a template makes text of a number.
    wanted = {**watched, "gone": ["10.0.0.5"]}
    assert {name: str(value) for name, value in found.items()} == {
        name: str(value) for name, value in wanted.items()
    }
    assert "gone" not in watched
    assert watches["when"][1] == "__node_fence_intended.fence.method != 'ceph'"
    asked = blocks["storage_ops.runbooks.ceph_blocklist"]["watch"]
    assert role("node_fence", "x", __node_fence_x=asked, **given) == watched
    # Nothing was fenced.
    more = {"__node_fence_x": asked, **given}
    assert variable("node_fence", "x", check=True, **more) == "(left out)"


@pytest.mark.parametrize(("method", "wanted"), [("ceph", "there"), ("network_fence", "since")])
def test_which_reading_is_of_after_the_fence(method: str, wanted: str) -> None:
    (note,) = [
        task["ansible.builtin.set_fact"]
        for task in load(ROLES / "node_fence/tasks/fence.yml")
        if "__node_fence_after" in task.get("ansible.builtin.set_fact", {})
    ]
    given = {
        "__node_fence_intended": {"fence": {"method": method}},
        "__node_fence_blocked": {"ceph": "there"},
        "__node_fence_watched": {"ceph": "since"},
    }
    asked = note["__node_fence_after"]
    assert role("node_fence", "x", __node_fence_x=asked, **given) == {"ceph": wanted}


LEAVES = {
    "node_fence_prove": "false",
    "node_fence_release_lease": "false",
    "__node_fence_after": {"ceph": {}},
}


@pytest.mark.parametrize(
    ("given", "check", "wanted"),
    [
        ({}, False, True),
        # Nobody would prove it.
        ({"node_fence_prove": "true"}, False, False),
        ({"node_fence_release_lease": "true"}, False, False),
        # Nothing was added that could be proven, or nothing was read since.
        ({}, True, False),
        ({"__node_fence_after": {}}, False, False),
        *[({"method": method}, False, False) for method in ("network_fence", "power", "external")],
    ],
)
def test_who_proves_an_entry(given: dict[str, Any], check: bool, wanted: bool) -> None:
    intended = {"fence": {"method": given.get("method", "ceph")}}
    more = {**LEAVES, "__node_fence_intended": intended, **given}
    told = variable("node_fence", "leaves_proof", check=check, **more)
    assert told in (wanted, str(wanted))


def test_what_proves_an_entry_is_the_same_whoever_does() -> None:
    """All that the role node_fence would give its module, but what bounds that."""
    found, other = ({"volume": f"pv-{number}", "watchers": []} for number in (0, 9))
    given = {
        **dict.fromkeys(("fence_addresses", "protected_addresses"), ["10.0.0.5"]),
        "other_addresses": ["10.0.0.9"],
        "cluster_id": "f",
        "options": {"lease_seconds": 300, "fence_timeout": 90, "request_timeout": 5},
        "__node_fence_info": info("csi-1", ""),
        "__node_fence_after": {"ceph": {"fsid": "f", "images": [found]}},
        "__node_fence_around": {"ceph": {"images": [other]}},
    }
    told = role("node_fence", "proving", **given)
    assert told["volumes"] == ["pv-0", "pv-1"]
    assert told["ceph"] == {"fsid": "f", "images": [found, other]}
    assert (told["other_addresses"], told["fence_timeout"]) == (["10.0.0.9"], 90)
    # The module takes each of these, and has none that is not given by the role or its user.
    assert set(told) == set(PROOF)


@pytest.mark.parametrize(
    ("run", "node", "wanted"),
    [("run-1", "worker01", {"a": 1}), ("run-2", "worker01", {}), ("run-1", "worker02", {})],
)
def test_only_what_this_run_has_fenced_is_proven(run: str, node: str, wanted: Any) -> None:
    """What an earlier run of the role has left, or one for another node, is none of this one."""
    told = variable(
        "volume_failover",
        "proving",
        volume_failover_node="worker01",
        __volume_failover_run_id="run-1",
        __node_fence_run_id=run,
        __node_fence={"options": {"node": node}},
        __node_fence_to_prove={"a": 1},
    )
    assert told == wanted
    # The role node_fence has no part in this run.
    assert variable("volume_failover", "proving", __volume_failover_run_id="run-1") == {}


def test_what_was_left_to_be_proven_is_forgotten() -> None:
    """When the role node_fence begins again, and once it is proven."""
    for file in ("node_fence/tasks/main.yml", "node_fence/tasks/proven.yml"):
        facts = [task.get("ansible.builtin.set_fact", {}) for task in load(ROLES / file)]
        assert [fact["__node_fence_to_prove"] for fact in facts if len(fact) > 1] == [{}], file


def done(*actions: str, outcome: str = "done") -> dict[str, Any]:
    return {"actions": [{"action": action, "outcome": outcome} for action in actions]}


@pytest.mark.parametrize(
    ("result", "wanted"),
    [
        (done("taint_node"), True),
        (done("record_fence", "taint_node", outcome="failed"), True),
        (done("taint_node", outcome="skipped"), False),
        # The proof was refused, or was all there was to do.
        (done("record_fence"), False),
        (done("record_fence", outcome="failed"), False),
        (done(), False),
        # It was killed, or does not tell all.
        ({"failed": True}, True),
        ({**done("record_fence"), "actions_left_out": 3}, True),
        ({"skipped": True}, False),
        (None, False),
    ],
)
def test_what_was_detached_has_the_fence_read_back(result: Any, wanted: bool) -> None:
    """There is no false alarm where nothing was detached."""
    given = {} if result is None else {"volume_failover_result": {"changed": True, **result}}
    told = variable("volume_failover", "touched", **given)
    assert told in (wanted, str(wanted))


@pytest.mark.parametrize(
    ("kept", "result", "wanted"),
    [
        ("false", {}, True),
        (False, {}, True),
        ("true", {}, False),
        ("", {}, False),
        # After a failure nobody has to wait for the Lease, whoever wanted to keep it.
        ("false", {"failed": True}, False),
        ("false", None, False),
    ],
)
def test_the_lease_is_kept_for_the_next_role_only(kept: Any, result: Any, wanted: bool) -> None:
    given = {} if result is None else {"result": result}
    assert role("node_fence", "keeps_lease", release_lease=kept, **given) in (wanted, str(wanted))


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ({"ceph": {"read_at": "2026-01-01T00:00:01Z"}}, {}, "2026-01-01T00:00:01Z"),
        (
            {"ceph": {"read_at": "2026-01-01T00:00:01Z"}},
            {"ceph": {"read_at": "2026-01-01T00:00:09Z"}},
            "2026-01-01T00:00:09Z",
        ),
        # Left from the role's last run, for another node.
        (
            {"ceph": {"read_at": "2026-01-01T00:00:09Z"}},
            {"ceph": {"read_at": "2026-01-01T00:00:01Z"}},
            "2026-01-01T00:00:09Z",
        ),
        ({"skipped": True}, {"failed": True}, None),
    ],
)
def test_the_newest_reading_of_ceph_counts(
    before: dict[str, Any], after: dict[str, Any], wanted: str | None
) -> None:
    given = {"__volume_failover_before": before, "__volume_failover_after": after}
    assert role("volume_failover", "ceph_now", **given).get("read_at") == wanted


@pytest.mark.parametrize(
    ("ago", "fields", "wanted"),
    [
        (0, {}, True),
        (9, {}, True),
        (11, {}, False),
        # The clock was set back.
        (-60, {}, False),
        (0, {"__volume_failover_run_id": "run-2"}, False),
        (0, {"__node_fence_after": {"skipped": True}}, False),
        (0, {"__node_fence_after": {"unreachable": True}}, False),
    ],
)
def test_what_was_read_a_moment_ago_is_not_read_again(
    ago: float, fields: dict[str, Any], wanted: bool
) -> None:
    """Nothing is detached by what was read longer ago, or by another run."""
    reading = {"read_at": "2026-01-01T00:00:01Z"}
    given = {
        "__node_fence_run_id": "run-1",
        "__volume_failover_run_id": "run-1",
        "__node_fence_after": {"ceph": reading},
        "__node_fence_after_at": str(1000.5 - ago),
        "__volume_failover_now": 1000.5,
        **fields,
    }
    assert role("volume_failover", "is_fresh", **given) is wanted
    skipped = {"ceph_host": "ceph01", "__volume_failover_before": {"skipped": True}}
    if wanted:
        assert role("volume_failover", "seen", **given, **skipped) == {"ceph": reading}
    read = {**skipped, "__volume_failover_before": {"ceph": {}}}
    assert role("volume_failover", "seen", **given, **read) == {"ceph": {}}


def test_what_was_read_again_since_the_fence_counts_alone() -> None:
    """The client that was seen before it is gone."""
    before = {"images": [{"volume": "w", "watchers": ["old"]}, {"volume": "x", "watchers": []}]}
    after = {"images": [{"volume": "w", "watchers": []}], "read_at": "t"}
    given = {"__node_fence_around": {"ceph": before}, "__node_fence_after": {"ceph": after}}
    found = role("node_fence", "proof", **given)
    assert [(one["volume"], one["watchers"]) for one in found["images"]] == [("w", []), ("x", [])]


def test_where_others_are_is_read_for_a_node_that_is_switched_off_too() -> None:
    """They may have its volumes open, and a client that nothing knows refuses the proof."""
    seen, around, _stop = load(ROLES / "node_fence/tasks/look.yml")
    assert "not __node_fence_by_power" in seen["when"]
    assert around["register"] == "__node_fence_around"
    assert "not __node_fence_by_power" not in around["when"]


def test_before_a_fence_the_module_that_detaches_only_reads_its_options() -> None:
    """In check mode state held asks the cluster nothing, and no task of the role has run yet."""
    checks, asks = load(ROLES / "volume_failover/tasks/before.yml")
    assert checks["ansible.builtin.import_tasks"] == "check.yml"
    assert asks["storage_ops.runbooks.volume_failover"]["state"] == "held"
    assert asks["check_mode"] is True and "when" not in asks
    (play,) = [part for part in load(FAIL_OVER) if "roles" in part]
    (first,) = [task for task in play["pre_tasks"] if "ansible.builtin.import_role" in task]
    assert first["ansible.builtin.import_role"]["tasks_from"] == "before.yml"


def test_what_was_rehearsed_with_the_short_look_is_not_rehearsed_again() -> None:
    short, long = {"entries": ["short"]}, {"entries": ["long"]}
    for planned, wanted in (({"skipped": True}, short), (long, long)):
        given = {"__node_fence_quick": short, "__node_fence_planned": planned}
        assert role("node_fence", "rehearsed", **given) == wanted
    (task,) = [
        found
        for found in load(ROLES / "node_fence/tasks/decide.yml")
        if found["name"] == "Rehearse the decision which clients to fence"
    ]
    assert task["when"][1] == "__node_fence_quick is skipped or __node_fence_looks_longer"


def result(code: str, *kinds: str, left: bool = True) -> dict[str, Any]:
    """What volume_failover returned when it failed, with one refused finding of each kind."""
    findings = [{"verdict": "refuse", "code": code, "object": {"kind": kind}} for kind in kinds]
    findings.append({"verdict": "repair", "code": "", "object": {"kind": "Node"}})
    return {"failed": True, "code": code, "findings": findings, **({"left": []} if left else {})}


@pytest.mark.parametrize(
    ("found", "goes_on"),
    [
        (result("not_detached", "PersistentVolume"), True),
        # All that was to leave has not; an earlier run may have left others unproven.
        (result("not_detached", left=False), True),
        (result("daemonset_pod", "PersistentVolume", "PersistentVolume"), True),
        # It ended before its last step, so what has left is not known.
        (result("not_attached", "PersistentVolume", left=False), False),
        (result("node_not_lost", "Node"), False),
        (result("fence_missing", "Node", "PersistentVolume"), False),
        (result("volume_not_fenced", "Node"), False),
        # Of one tenant's pods, or what has no turn in this run.
        (result("claim_would_be_lost", "Pod"), True),
        (result("too_many_deletions", "Node"), True),
        (result("too_many_deletions", "PersistentVolume", "Node"), True),
        (result("too_many_deletions", "Node", left=False), False),
        (result("not_detached"), True),
        (result("repair_unproven"), False),
        ({"failed": True, "msg": "MODULE FAILURE"}, False),
    ],
)
def test_one_volume_that_stays_keeps_no_other_from_the_next_step(
    found: dict[str, Any], goes_on: bool
) -> None:
    assert role("volume_failover", "some_stay", result=found) is goes_on


@pytest.mark.parametrize("name", ["node_fence", "node_release"])
def test_how_the_ceph_host_is_reached(name: str) -> None:
    """As its own variables say, and not as those of a play for localhost."""
    hosts = {
        "ceph01": {},
        "toolbox": {"ansible_python_interpreter": "/usr/bin/python3"},
        "localhost": {},
    }

    def reached(host: str) -> list[str]:
        given = {"ceph_host": host, "hostvars": hosts, "ansible_python_interpreter": "/venv/python"}
        return [
            role(name, f"ceph_{part}", **given) for part in ("delegate", "connection", "python")
        ]

    assert reached("ceph01") == ["ceph01", "ssh", "auto_silent"]
    assert reached(" toolbox ") == ["toolbox", "ssh", "/usr/bin/python3"]
    assert reached("localhost") == ["localhost", "local", "/venv/python"]
    assert role(name, "ceph_delegate") == "localhost"


def test_only_what_is_ours_is_removed() -> None:
    entries = [{"entry": "10.0.0.5", "ours": True}, {"entry": "10.0.0.6", "ours": False}]
    assert list(
        role("node_release", "entries", __node_release_begun={"fence": {"entries": entries}})
    ) == ["10.0.0.5"]
    assert list(role("node_release", "entries", __node_release_begun={"fence": {}})) == []


@pytest.mark.parametrize(
    ("given", "host"), [("", "worker01"), ("w1.example.com", "w1.example.com")]
)
def test_the_node_in_the_inventory(given: str, host: str) -> None:
    assert role("node_release", "host", node="worker01", inventory_host=given) == host


# the BMC of a node

BMCS: dict[str, Any] = {
    "a": {"kind": "redfish", "address": "192.0.2.1:8443"},
    "b": {"kind": "ipmi", "address": "[2001:db8::1]"},
    "c": {"kind": "ipmi", "address": "bmc.example.com:6230"},
    "d": {"kind": "redfish", "address": "192.0.2.1:8443", "system": "2"},
    "e": {"kind": "redfish", "address": "192.0.2.9", "system": "1"},
    "f": {"kind": "redfish", "address": "192.0.2.9", "system": "2"},
}


def bmc(node: str, name: str, **given: Any) -> Any:
    return role("node_fence", name, node=node, bmcs=given.pop("bmcs", BMCS), **given)


@pytest.mark.parametrize(
    ("node", "host", "port", "shared"),
    [
        ("a", "192.0.2.1", 8443, ["d"]),
        ("b", "2001:db8::1", 623, []),
        ("c", "bmc.example.com", 6230, []),
        # The other one has it whole.
        ("d", "192.0.2.1", 8443, ["a"]),
        ("e", "192.0.2.9", 623, []),
        ("f", "192.0.2.9", 623, []),
    ],
)
def test_where_the_bmc_is_and_who_else_has_it(
    node: str, host: str, port: int, shared: list[str]
) -> None:
    # A number is a text in ansible-core 2.16; the modules take both.
    assert (bmc(node, "bmc_host"), int(bmc(node, "bmc_port"))) == (host, port)
    assert list(bmc(node, "bmc_shared")) == shared


@pytest.mark.parametrize(
    ("mine", "other"),
    [
        ({"address": "192.0.2.1"}, {"address": "192.0.2.1:443"}),
        ({"address": "192.0.2.1"}, {"address": "192.0.2.1:623", "kind": "ipmi"}),
        ({"address": "192.0.2.1", "kind": "ipmi"}, {"address": "192.0.2.1:0623", "kind": "ipmi"}),
        ({"address": "192.0.2.1"}, {"address": "[::ffff:192.0.2.1]"}),
        ({"address": "[2001:db8::1]"}, {"address": "[2001:DB8:0:0::0001]:443"}),
        ({"address": "bmc.example.com"}, {"address": "BMC.example.com."}),
        # Of several machines: numbers are texts, too, and an empty one names none.
        ({"address": "b", "system": "1"}, {"address": "B", "system": 1}),
        ({"address": "b", "system": "1"}, {"address": "B", "system": ""}),
        # By IPMI there is one.
        ({"address": "b", "system": "1"}, {"address": "b", "kind": "ipmi", "system": "2"}),
    ],
)
def test_one_bmc_by_two_names(mine: dict[str, Any], other: dict[str, Any]) -> None:
    """A variable with a slip gave both nodes one BMC, and the wrong machine was switched off."""
    bmcs = {"a": {"kind": "redfish", **mine}, "b": {"kind": "redfish", **other}}
    assert list(bmc("a", "bmc_shared", bmcs=bmcs)) == ["b"]
    assert list(bmc("b", "bmc_shared", bmcs=bmcs)) == ["a"]


@pytest.mark.parametrize(
    "address", ["admin:pw@192.0.2.1", "192.0.2.1/x", "a b", "", "a\n", "192.0.2.01", "2001:db8::1"]
)
def test_an_address_that_is_none_is_neither_asked_nor_shown(address: str) -> None:
    given = {"x": {"kind": "redfish", "address": address}}
    found = bmc("x", "power_reading", bmcs=given, __node_fence_power_at="t")
    assert (found["kind"], found["address"]) == ("", "")


@pytest.mark.parametrize("given", [{}, "", "{}", json.dumps(BMCS), {"x": None}])
def test_a_node_without_a_bmc(given: Any) -> None:
    found = bmc("x", "power_reading", bmcs=given, __node_fence_power_at="t")
    assert (found["kind"], found["address"], found["state"]) == ("", "", "")


ONE = {"json": {"Members": [{"@odata.id": "/redfish/v1/Systems/abc"}]}, "status": 200}


MACHINE = "4c4c4544-0034-5210-8051-b7c04f4b1234"


def system_said(system: str) -> dict[str, Any]:
    told = {"Id": system, "PowerState": "Off", "UUID": MACHINE}
    return {"json": told, "status": 200, "msg": "OK"}


@pytest.mark.parametrize(
    ("node", "systems", "answer", "wanted"),
    [
        (
            "a",
            ONE,
            system_said("abc"),
            {"system": "abc", "state": "Off", "uuid": MACHINE, "status": 200},
        ),
        (
            "e",
            {"skipped": True},
            system_said("1"),
            {"system": "1", "state": "Off", "uuid": MACHINE},
        ),
        # What is switched is known by its Id, so it would be another machine.
        (
            "e",
            {"skipped": True},
            system_said("2"),
            {"system": "1", "state": "", "problem": "its system 1 has another Id"},
        ),
        (
            "e",
            {"skipped": True},
            {"status": 401, "msg": "no"},
            {"status": 401, "problem": "it answers with HTTP status 401"},
        ),
        ("a", {"status": -1, "msg": "away"}, {"skipped": True}, {"status": -1, "problem": "away"}),
        (
            "a",
            {"json": {"Members": [{}, {}]}, "status": 200},
            {"skipped": True},
            {"problem": "it has 2 systems: give the Id of the one that is meant (system)"},
        ),
        # Whatever answers there.
        ("e", {"skipped": True}, {"json": [1], "status": 200}, {"state": "", "uuid": ""}),
        ("e", {"skipped": True}, {"json": {"PowerState": None}, "status": 200}, {"state": ""}),
    ],
)
def test_what_a_bmc_says_by_redfish(
    node: str, systems: Any, answer: Any, wanted: dict[str, Any]
) -> None:
    given = {"__node_fence_systems": systems, "__node_fence_system_read": answer}
    found = bmc(node, "power_reading", **given, __node_fence_power_at="2026-01-01T00:00:00Z")
    found = {**found, "status": int(found["status"])}
    assert wanted.items() <= found.items(), found


LOGIN = {"bmc_user": "operator", "bmc_password": "s3cr3t/+ü"}
# As a header has both (RFC 7617), and as programs write them.
SPELLINGS = (
    base64.b64encode(b"operator:s3cr3t/+\xc3\xbc").decode(),
    *("operator", "s3cr3t/+ü", "s3cr3t%2F%2B%C3%BC", "s3cr3t%2f%2b%c3%bc", "s3cr3t/+\\u00fc"),
)


def test_no_login_changes_what_a_bmc_is_known_by() -> None:
    """A mask in its machine's UUID, or in its system's Id, would be one of another machine."""
    look = {
        "__node_fence_bmc_user": "system",
        "__node_fence_bmc_password": "1234",
        "__node_fence_power_at": "t",
    }
    name = "System.Embedded.1"
    said = {"status": 200, "json": {"Id": name, "UUID": MACHINE, "PowerState": "On"}}
    one = {"json": {"Members": [{"@odata.id": f"/redfish/v1/Systems/{name}"}]}, "status": 200}
    given = {**look, "__node_fence_systems": one, "__node_fence_system_read": said}
    found = bmc("a", "power_reading", **given)
    assert (found["uuid"], found["system"], found["state"]) == (MACHINE, name, "On")
    for odd in ("x\n1234", "1234\nx", f"{name}\n", "a b", "x" * 101):
        one["json"]["Members"][0]["@odata.id"] = f"/redfish/v1/Systems/{odd}"
        assert bmc("a", "power_reading", **given)["system"] == ""


@pytest.mark.parametrize("secret", SPELLINGS)
def test_a_bmc_that_repeats_the_password_has_it_shown_nowhere(secret: str) -> None:
    """It knows that of all BMCs. Whoever reads the output of a job does not."""
    look = {**LOGIN, "__node_fence_power_at": "t", "__node_fence_systems": {"skipped": True}}
    lines = [
        {"status": 400, "msg": f"Status code was 400 and not [200]: HTTP Error 400: {secret}"},
        {"status": -1, "msg": f"An unknown error occurred: BadStatusLine('{secret}')"},
        {"status": 200, "json": {**system_said("1")["json"], "PowerState": secret}},
        {"status": 200, "json": {**system_said("1")["json"], "UUID": secret}},
        {
            "status": 200,
            "json": {
                **system_said("1")["json"],
                "Actions": {"#ComputerSystem.Reset": {"target": secret}},
            },
        },
    ]
    for answer in lines:
        found = bmc("e", "power_reading", **look, __node_fence_system_read=answer)
        assert secret not in str(found), found
    one = {"json": {"Members": [{"@odata.id": f"/x/{secret}"}]}, "status": 200}
    given = {**look, "__node_fence_systems": one, "__node_fence_system_read": {"status": 404}}
    assert secret not in str(bmc("a", "power_reading", **given))
    told = bmc("b", "power_reading", **look, __node_fence_ipmi_read={"msg": f"no: {secret}"})
    assert told["problem"] == "no: ***"
    said = by_agent({"rc": 1, "stderr": f"no {secret}"}, login=LOGIN)
    assert said["problem"] == "no ***"
    report = load(ROLES / "node_fence/tasks/power_switch.yml")[-1]["ansible.builtin.debug"]["msg"]
    given = {**LOGIN, "__node_fence_power_to": "off", "__node_fence_x": report}
    for answer in [*lines[:2], {"msg": f"no: {secret}"}]:
        shown = str(bmc("e", "x", **given, item=answer))
        assert "192.0.2.9 was told to switch the machine off" in shown and secret not in shown
    assert shown.endswith("no: ***")
    shown = str(bmc("e", "x", **given, item=lines[0]))
    assert shown.endswith("says: it answers with HTTP status 400")


@pytest.mark.parametrize("state", ["On", "off", "PoweringOff", "Paused"])
def test_a_state_of_redfish(state: str) -> None:
    answer = {"status": 200, "json": {**system_said("1")["json"], "PowerState": state}}
    given = {"__node_fence_systems": {"skipped": True}, "__node_fence_power_at": "t"}
    found = bmc("e", "power_reading", **given, __node_fence_system_read=answer)
    assert found["state"] == state


USUAL = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"
SAID = "it answers with HTTP status 200"


def switched_at(actions: Any) -> tuple[str, dict[str, Any]]:
    """Where the machine of node e is switched, and how its BMC reads, which says this of it."""
    answer = system_said("1")
    answer["json"]["Actions"] = actions
    given = {"__node_fence_system_read": answer, "__node_fence_systems": {"skipped": True}}
    found = bmc("e", "power_reading", **given, __node_fence_power_at="t")
    path = str(bmc("e", "reset_path", **given))
    assert bmc("e", "reset_url", **given) == f"https://192.0.2.9{path}"
    return path, found


@pytest.mark.parametrize(
    "target", [USUAL, "/redfish/v1/Systems/1/Actions/Oem/ComputerSystem.Reset", None, "", 0]
)
def test_where_a_machine_is_switched(target: Any) -> None:
    path, found = switched_at({"#ComputerSystem.Reset": {"target": target}})
    assert (path, found["state"], found["problem"]) == (target or USUAL, "Off", SAID)


@pytest.mark.parametrize("actions", [None, [], "x", {}, {"#ComputerSystem.Reset": None}])
def test_where_a_machine_is_switched_if_its_bmc_does_not_say(actions: Any) -> None:
    assert switched_at(actions)[0] == USUAL


@pytest.mark.parametrize(
    "target",
    [
        f"0{USUAL}",
        f".example.com{USUAL}",
        f"@192.0.2.10{USUAL}",
        f":8443@192.0.2.10{USUAL}",
        f"https://192.0.2.10{USUAL}",
        f"//192.0.2.10{USUAL}",
        f"/{USUAL}",
        f" {USUAL}",
        f"{USUAL}\n",
        f"{USUAL}?a",
        f"{USUAL}#a",
        "/redfish/v1/",
        "/redfish/v1//x",
        "/redfish/v1/../../x",
        "/redfish/v1/Systems/1/..",
        "/redfish/v1/Systems/%2e%2e/x",
        "/redfish/v1/Systems\\x",
        "/redfish/v2/Systems/1",
        {"a": USUAL},
        [USUAL],
        7,
    ],
)
def test_a_bmc_does_not_send_the_controller_to_another_one(target: Any) -> None:
    """Whose machine would be switched off, with the password that is one for all. Before anything
    is changed, the BMC is taken for one that cannot be read.
    """
    path, found = switched_at({"#ComputerSystem.Reset": {"target": target}})
    assert path == "" and found["state"] == ""
    assert found["problem"].startswith("it has its system 1 switched at ")
    assert found["problem"].endswith(", which is no path on it") and len(found["problem"]) < 200


@pytest.mark.parametrize(("state", "wanted"), [("Off", False), ("off", False), ("On", True)])
def test_what_is_off_already_is_not_changed(state: str, wanted: bool, tmp_path: Path) -> None:
    """Redfish writes it with a capital letter, and IPMI without."""
    switch, _ipmi, _agent, report = load(ROLES / "node_fence/tasks/power_switch.yml")
    conditions = [switch["changed_when"][1], report["when"][0]]
    (tmp_path / "x.yml").write_text(json.dumps([f"{{{{ {one} }}}}" for one in conditions]))
    given = {"__node_fence_power": [{"state": state}], "__node_fence_power_to": "off"}
    for template in load(tmp_path / "x.yml"):
        assert str(rendered(template, given)) == str(wanted)


def test_a_bmc_is_asked_at_its_own_address_only() -> None:
    """Every request that has its password, or an answer that is read."""
    files = ROLES.glob("*/tasks/*.yml")
    tasks = {task["name"]: task for file in files for task in tasks_of(load(file))}
    assert not any(URI in task for task in tasks.values())
    # So the answer of each has a limit (plugins/action/on_node.py).
    through = {name: task.get("storage_ops.runbooks.on_node") or {} for name, task in tasks.items()}
    asked = {name: one["arguments"] for name, one in through.items() if one.get("module") == URI}
    assert len(asked) == 4 and URI in on_node.ASKING
    for name, given in asked.items():
        assert given["follow_redirects"] == "none" and given["force_basic_auth"] is True, name
        # Ten megabytes may be ten gigabytes.
        assert given["decompress"] is False and tasks[name]["no_log"] is True, name
        assert re.fullmatch(r"\{\{ __node_fence_(system|redfish|reset)_url \}\}", given["url"]), (
            name
        )
    # It goes where a BMC says.
    assert not any("redfish" in key for task in tasks.values() for key in task)


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        ({"changed": False, "powerstate": "off"}, ("off", "")),
        # In check mode the module says what it would make of it.
        ({"changed": True, "powerstate": "off"}, ("on", "")),
        ({"changed": False, "msg": "timeout"}, ("", "timeout")),
    ],
)
def test_what_a_bmc_says_by_ipmi(answer: Any, wanted: tuple[str, str]) -> None:
    found = bmc("b", "power_reading", __node_fence_ipmi_read=answer, __node_fence_power_at="t")
    assert (found["state"], found["problem"]) == wanted


AGENT = {"kind": "fence_apc", "host": "fencer01", "address": "192.0.2.30", "system": "3"}
DESCRIBED = "".join(f'<action name="{name}"/>' for name in ("on", "off", "status", "reboot"))


def by_agent(status: Any, name: str = "power_reading", **given: Any) -> Any:
    """What the role makes of an agent that has answered this."""
    ran = {"cmd": ["timeout"]}
    metadata = {
        **ran,
        "item": "metadata",
        "rc": 0,
        "stdout": DESCRIBED + '<parameter name="plug"/>',
    }
    answers = {"results": [metadata, {**ran, "item": "status", **status}]}
    given = {"hostvars": {"fencer01": {}}, "__node_fence_agent_answers": answers, **given}
    login = given.pop("login", {"bmc_user": "admin", "bmc_password": "hunter2"})
    login = {**login, "__node_fence_power_at": "t"}
    return bmc("a", name, bmcs={"a": {**AGENT, **given.pop("agent", {})}}, **login, **given)


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        ({"rc": 2, "stdout": "Status: OFF"}, {"state": "off", "status": 0, "problem": ""}),
        ({"rc": 0, "stdout": "Status: ON"}, {"state": "on", "status": 0, "problem": ""}),
        ({"rc": 1, "stderr": "no hunter2"}, {"state": "", "status": 1, "problem": "no ***"}),
        ({"rc": 127, "stderr": "no file"}, {"state": "", "status": 127, "problem": "no file"}),
        (
            {"unreachable": True, "msg": "x"},
            {"status": -1, "problem": "Ansible cannot reach the host of the fence agent"},
        ),
    ],
)
def test_what_a_fence_agent_says(status: Any, wanted: dict[str, Any]) -> None:
    found = by_agent(status)
    found = {**found, "status": int(found["status"])}
    bmc_said = {"kind": "fence_apc", "address": "192.0.2.30", "system": "3", "uuid": ""}
    assert (bmc_said | wanted).items() <= found.items(), found


@pytest.mark.parametrize(
    ("agent", "problem"),
    [
        ({"host": "elsewhere"}, "elsewhere is not a host of the inventory"),
        ({"options": {"action": "on"}}, "the option action is not allowed"),
    ],
)
def test_an_agent_that_cannot_be_called(agent: dict[str, Any], problem: str) -> None:
    """Nothing is asked, whatever an earlier look has shown."""
    found = by_agent({"rc": 2, "stdout": "Status: OFF"}, agent=agent)
    assert (found["state"], int(found["status"])) == ("", 0) and problem in found["problem"]
    for file, task in (("power_read", -2), ("power_switch", -2)):
        asked = load(ROLES / f"node_fence/tasks/{file}.yml")[task]
        assert asked["ansible.builtin.include_tasks"] == "power_agent.yml"
        assert "__node_fence_agent_problem | length == 0" in asked["when"]


def test_a_bmc_is_read_right_before_its_machine_is_switched() -> None:
    """By what was read before the run waited for others, another machine was switched off."""
    read, held, switch, *_rest = load(ROLES / "node_fence/tasks/fence.yml")
    assert read["ansible.builtin.include_tasks"] == "power_read.yml"
    assert switch["ansible.builtin.include_tasks"] == "power_off.yml"
    # With method external nothing is switched here.
    by_power = "__node_fence_intended.fence.method == 'power'"
    assert read["when"] == [by_power, "not __node_fence.check"]
    asked = held["storage_ops.runbooks.node_fence"]
    assert asked["state"] == "held" and "__node_fence_power" in asked["power"]
    read, held, switch, *_rest = load(ROLES / "node_release/tasks/power_on.yml")
    assert read["ansible.builtin.include_role"]["tasks_from"] == "power_read.yml"
    assert held["storage_ops.runbooks.node_release"]["power"] == "{{ __node_fence_power }}"
    assert switch["ansible.builtin.include_role"]["tasks_from"] == "power_switch.yml"


def test_a_fence_agent_is_told_nothing_in_its_arguments() -> None:
    (task,) = load(ROLES / "node_fence/tasks/power_agent.yml")
    given = task["storage_ops.runbooks.on_node"]["arguments"]
    program = ["timeout", "--kill-after=5", "85", "/usr/sbin/fence_apc"]
    assert list(by_agent({}, "x", __node_fence_x=given["argv"])) == program
    said = by_agent({}, "x", __node_fence_x=given["stdin"], item="status")
    assert said == "ip=192.0.2.30\nplug=3\nusername=admin\npassword=hunter2\naction=status"
    assert by_agent({}, "x", __node_fence_x=given["stdin"], item="metadata") == "action=metadata"
    assert task["no_log"] is True


OUTSIDE = {"kind": "external", "host": "cloud01", "command": ["/bin/power-of", "i-0abc", "$x"]}
TOLD = {"node": "a", "state": "off", "provider_id": "aws:///eu/i-0abc", "system_uuid": "u"}


def by_others(answer: Any, name: str = "power_reading", **given: Any) -> Any:
    """What the role makes of a command that has answered this."""
    answers = {"results": [{"cmd": ["timeout"], "item": "status", "rc": 0, **answer}]}
    given = {"hostvars": {"cloud01": {}}, "__node_fence_agent_answers": answers, **given}
    bmcs = {"a": {**OUTSIDE, **given.pop("outside", {})}, "b": {**OUTSIDE, "host": "no host"}}
    login = given.pop("login", {"bmc_user": "admin", "bmc_password": "hunter2"})
    login = {**login, "__node_fence_power_at": "t"}
    return bmc("a", name, bmcs=bmcs, **login, **given)


def test_what_a_command_says_of_a_node_that_others_have_switched_off() -> None:
    found = by_others({"stdout": json.dumps({**TOLD, "since": "2026-01-01T12:00:00Z"})})
    assert {**found, "status": int(found["status"])} == {
        **{"kind": "external", "address": "cloud01", "system": "aws:///eu/i-0abc", "uuid": "u"},
        **{"shared": [], "read_at": "t", "state": "off", "status": 0, "problem": ""},
        **{"node": "a", "since": "2026-01-01T12:00:00Z"},
    }
    found = by_others({"rc": 3, "stderr": "no such instance", "stdout": json.dumps(TOLD)})
    assert (found["state"], int(found["status"]), found["problem"]) == ("", 3, "no such instance")
    # Nothing is asked, whatever an earlier look has shown.
    for outside in ({"command": "power-of i-0abc"}, {"host": "cloud02"}):
        found = by_others({"stdout": json.dumps(TOLD)}, outside=outside)
        assert (found["state"], int(found["status"])) == ("", 0) and found["problem"]
    asked = load(ROLES / "node_fence/tasks/power_read.yml")[-2]
    assert "__node_fence_agent_problem | length == 0" in asked["when"]
    assert "__node_fence_bmc_way in ['agent', 'external']" in asked["when"]
    assert by_others({}, "bmc_way") == "external"
    actions = asked["vars"]["__node_fence_agent_actions"]
    assert list(by_others({}, "x", __node_fence_x=actions)) == ["status"]
    assert list(by_agent({}, "x", __node_fence_x=actions)) == ["metadata", "status"]


def test_a_command_of_others_gets_no_password_and_no_variable_of_the_host() -> None:
    (task,) = load(ROLES / "node_fence/tasks/power_agent.yml")
    given = task["storage_ops.runbooks.on_node"]["arguments"]
    program = ["timeout", "--kill-after=5", "85", *OUTSIDE["command"]]
    assert list(by_others({}, "x", __node_fence_x=given["argv"])) == program
    assert by_others({}, "x", __node_fence_x=given["stdin"], item="status") == ""
    assert given["expand_argument_vars"] is False


def test_what_others_have_switched_off_is_not_switched() -> None:
    """It is read twice all the same, by a run that has the Lease."""
    switch, wait, *reads = load(ROLES / "node_fence/tasks/power_off.yml")
    by_us = "__node_fence_intended.fence.method == 'power'"
    assert switch["when"] == by_us and by_us in wait["when"]
    assert [one.get("when") for one in reads] == [None] * 3
    fence = {task["name"]: task for task in load(ROLES / "node_fence/tasks/fence.yml")}
    held = fence["Make sure that this run still has the Lease, and that the node is still lost"]
    read = fence["Switch the node off, unless others have, and read its power state back"]
    both = "__node_fence_intended.fence.method in {}__node_fence_off_methods"
    assert held["when"] == [both.format("['ceph'] + "), "not __node_fence_is_fresh"]
    assert read["when"] == [both.format(""), "not __node_fence.check"]
    assert role("node_fence", "off_methods") == ["power", "external"]
    assert reads[1]["ansible.builtin.pause"]["seconds"] == "{{ __node_fence_power_apart }}"


@pytest.mark.parametrize(
    ("method", "ago", "wanted"),
    [
        ("ceph", 0, True),
        ("ceph", 4.9, True),
        ("ceph", 5.1, False),
        # The clock was set back.
        ("ceph", -1, False),
        ("power", 0, False),
        ("external", 0, False),
    ],
)
def test_what_was_decided_a_moment_ago_is_not_asked_again(
    method: str, ago: float, wanted: bool
) -> None:
    """Nothing is fenced by what was read longer ago."""
    intended = {"fence": {"method": method}, "alone": True}
    given = {
        "__node_fence_intended": intended,
        "__node_fence_intended_from": str(1000.5 - ago),
        "__node_fence_now": 1000.5,
    }
    assert role("node_fence", "is_fresh", **given) is wanted
    read, skipped = {"alone": False}, {"skipped": True}
    for held, check, newest in (
        (read, False, read),
        (skipped, False, intended),
        (read, True, intended),
    ):
        found = variable("node_fence", "newest", check, **given, __node_fence_held=held)
        assert found == newest
    # Else what the decision has read would seem to be as new as its end.
    names = [task["name"] for task in load(ROLES / "node_fence/tasks/decide.yml")]
    begins = names.index("Note when the decision begins")
    assert names[begins + 1] == "Cordon the node, and record the intended fence in the ledger"
    (entry,) = [
        task["storage_ops.runbooks.ceph_blocklist"]
        for task in load(ROLES / "node_fence/tasks/fence.yml")
        if "storage_ops.runbooks.ceph_blocklist" in task
    ]
    assert entry["accept_gap"] == "{{ __node_fence_newest.alone }}"


@pytest.mark.parametrize(
    ("method", "asked", "wanted"),
    [("power", "2", 2), ("power", "2.5", 3), ("external", "2", 30), ("external", "45", 45)],
)
def test_what_others_switch_is_looked_at_for_longer(method: str, asked: str, wanted: int) -> None:
    intended = {"fence": {"method": method}}
    given = {"power_seconds": asked, "__node_fence_intended": intended}
    assert int(role("node_fence", "power_apart", **given)) == wanted


@pytest.mark.parametrize(
    ("check", "actions", "wanted"),
    [
        (True, ["metadata", "status"], False),
        (True, ["status"], False),
        (True, ["off"], True),
        (True, ["on"], True),
        (True, ["status", "off"], True),
        (False, ["off"], False),
    ],
)
def test_in_check_mode_an_agent_switches_nothing(
    check: bool, actions: list[str], wanted: bool
) -> None:
    (task,) = load(ROLES / "node_fence/tasks/power_agent.yml")
    given = {"ansible_check_mode": check, "__node_fence_agent_actions": actions}
    assert str(rendered(task["check_mode"], given)) == str(wanted)


@pytest.mark.parametrize(
    ("method", "ledger", "wanted"),
    [
        ("power", {}, True),
        ("auto", {}, False),
        ("auto", {"method": "power", "phase": "fenced"}, True),
        ("auto", {"method": "power", "phase": "releasing"}, False),
        ("ceph", {"method": "power", "phase": "fenced"}, False),
        ("external", {}, True),
        ("auto", {"method": "external", "phase": "intended"}, True),
    ],
)
def test_when_the_bmc_is_asked(method: str, ledger: dict[str, Any], wanted: bool) -> None:
    found = {"lost": [{"ledger": ledger}]}
    assert role("node_fence", "by_power", method=method, __node_fence_info=found) is wanted


@pytest.mark.parametrize(
    ("fence", "check", "wanted"),
    [
        ({"method": "power"}, False, True),
        ({"method": "power"}, True, False),
        ({"method": "external"}, False, True),
        ({"method": "ceph"}, False, False),
        # Run alone, without what node_fence returned.
        ({}, False, True),
    ],
)
def test_when_the_bmc_is_asked_before_a_detach(
    fence: dict[str, Any], check: bool, wanted: bool
) -> None:
    given = {"volume_failover_node": "a", "volume_failover_fence": fence}
    for bmcs in (BMCS, json.dumps(BMCS)):
        told = variable("volume_failover", "by_power", check, **given, volume_failover_bmcs=bmcs)
        assert told is wanted
    assert variable("volume_failover", "by_power", check, **given) is False


@pytest.mark.parametrize("name", ["node_fence", "volume_failover", "node_release"])
def test_no_result_has_what_is_said_to_a_bmc(name: str) -> None:
    given = {f"{name}_bmc_user": "admin", f"{name}_bmc_password": "hunter2", f"{name}_node": "a"}
    map_ = {"a": {"kind": "ipmi", "address": "x", "password": "hunter2"}}
    task = beginning(name)["storage_ops.runbooks.check_scope"]
    read = check_scope.answered(
        name,
        {**given, f"{name}_bmcs": map_},
        *(task.get(part, []) for part in ("own", "unread", "rare")),
    )
    assert "hunter2" not in str(read) and "admin" not in str(read)
