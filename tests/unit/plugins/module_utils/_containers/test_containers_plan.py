# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which containers are restarted for a dead mount, how, and which are not."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._containers.plan import (
    Container,
    ContainerOptions,
    ContainerState,
    Copy,
    HostMount,
    Known,
    Runtime,
    not_applicable,
    plan,
    pods_to_restart,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import Finding
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.probes import (
    DEAD,
    ERROR,
    HUNG,
    OK,
    Answer,
)

UID = "5b9ba8a1-4f1b-4c7e-9d2b-1f2f5d0f3c11"
GONE = Answer(DEAD, "listing", "ENOTCONN", "Transport endpoint is not connected")
HOST = HostMount(
    f"/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~csi/pv-1/mount", "pv-1", "0:60", Answer(OK)
)
COPY = Copy("/data", "0:50", GONE, HOST)
KNOWN = Known(
    UID, "/data", "main", "a" * 64, "shop", "web-0", "pv-1", "data", restart_policy="Always"
)
CRICTL = Runtime(("/usr/bin/crictl", "--timeout", "10s"))
NO_CRICTL = Runtime(problem="crictl is not on this node (option crictl)")


def container(
    *copies: Copy,
    known: Known | None = KNOWN,
    known_by: tuple[Known, ...] = (),
    number: int = 0,
    **changes: Any,
) -> Container:
    """``known_by``: in place of ``known``, where more than one entry is about it."""
    said = known_by or ((known,) if known else ())
    mounts = copies or (COPY,)
    names = "main", "shop", "web-0"
    made = Container(f"{number:064x}", UID, 100 + number, "web", mounts, *names, known=said)
    return replace(made, **changes)


def judged(*containers: Container, runtime: Runtime = CRICTL, **options: Any) -> list[Finding]:
    return plan(
        ContainerState("node1", containers or (container(),), runtime),
        ContainerOptions(**{"accept_majority": True, **options}),
    ).findings


def only(*containers: Container, runtime: Runtime = CRICTL, **options: Any) -> Finding:
    (finding,) = judged(*containers, runtime=runtime, **options)
    return finding


def pods(*containers: Container, runtime: Runtime = CRICTL, **options: Any) -> list[dict[str, Any]]:
    return pods_to_restart(
        ContainerState("node1", containers, runtime),
        ContainerOptions(**{"accept_majority": True, **options}),
    )


def test_fuse_controls_of_containers_without_fuse() -> None:
    """One whose mounts cannot be read may have such mounts."""
    assert list(not_applicable(ContainerState("node1", ()))) == ["STOR-05", "STOR-06"]
    for one in (container(), replace(container(), copies=(), problem="no answer")):
        assert not_applicable(ContainerState("node1", (one,))) == {}


def test_a_container_whose_mount_is_dead_is_stopped_by_the_runtime() -> None:
    finding = only(stop_timeout=7)
    assert (finding.control, finding.verdict, finding.namespace, finding.name) == (
        "STOR-05",
        "repair",
        "shop",
        "web-0/main",
    )
    (action,) = finding.repair
    assert action.verb == "stop_container"
    assert action.command == [
        "/usr/bin/crictl",
        "--timeout",
        "10s",
        "stop",
        "--timeout",
        "7",
        "0" * 64,
    ]
    (mount,) = finding.evidence["mounts"]
    assert (mount["device"], mount["host_device"], mount["volume"]) == ("0:50", "0:60", "pv-1")
    assert (mount["answer"], mount["host_answer"]) == (GONE.text, OK)
    assert pods(container()) == []


@pytest.mark.parametrize(
    ("grace", "given", "seconds"),
    [(30, None, "30"), (7, None, "7"), (1, None, "2"), (0, None, "2"), (1, 9, "9"), (30, 0, "0")],
)
def test_a_container_ends_as_by_its_kubelet(grace: int, given: int | None, seconds: str) -> None:
    (action,) = only(container(grace_period=grace), stop_timeout=given).repair
    assert action.command[-3:] == ["--timeout", seconds, "0" * 64]


def test_who_takes_longer_to_end_than_there_is_time() -> None:
    slow = container(grace_period=300)
    finding = only(slow)
    assert finding.verdict == "refuse"
    assert "it may take 300 s to end, and the deadline is 300 s" in finding.reason
    assert pods(slow) == []
    assert only(slow, deadline=301).verdict == only(slow, stop_timeout=299).verdict == "repair"
    # The kubelet has no deadline.
    probed = replace(slow, known=(replace(KNOWN, probe=True),))
    assert only(probed).verdict == "repair"


def test_a_mount_that_answers_is_no_finding_whatever_else_is_wrong() -> None:
    well = replace(COPY, answer=Answer(OK), host=HostMount(problem="unknown"))
    assert judged(container(well, known=None), runtime=NO_CRICTL) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {
                "copies": (
                    replace(
                        COPY, answer=Answer(ERROR, "listing", text="no answer before the deadline")
                    ),
                )
            },
            "no answer before",
        ),
        (
            {"copies": (), "problem": "/proc/7/mountinfo was different each time"},
            "was different each",
        ),
    ],
)
def test_what_could_not_be_asked_is_told(changes: dict[str, Any], reason: str) -> None:
    """It looked as if all was well, however many mounts were dead."""
    finding = only(replace(container(), **changes))
    assert (finding.control, finding.severity, finding.verdict) == ("STOR-05", "minor", "report")
    assert reason in finding.reason


def test_an_error_of_the_file_system_itself_is_an_answer() -> None:
    assert (
        judged(container(replace(COPY, answer=Answer(ERROR, "listing", "EACCES", "denied")))) == []
    )


def test_a_liveness_probe_that_covers_the_mount_comes_first() -> None:
    covered = container(known=replace(KNOWN, probe=True))
    assert [action.verb for action in only(covered).repair] == ["await_liveness_probe"]
    # It can do without the runtime.
    assert [action.verb for action in only(covered, runtime=NO_CRICTL).repair] == [
        "await_liveness_probe"
    ]
    assert [action.verb for action in only(covered, method="cri").repair] == ["stop_container"]
    assert [action.verb for action in only(covered, liveness_timeout=0).repair] == [
        "stop_container"
    ]
    elsewhere = container(known=replace(KNOWN, probe=True, mount_path="/other"))
    assert [action.verb for action in only(elsewhere).repair] == ["stop_container"]
    # A restart is good for all of its mounts, so one that is covered is enough.
    other = replace(KNOWN, mount_path="/other")
    two = COPY, replace(COPY, point="/other")
    both = replace(covered, copies=two, known=(other, *covered.known))
    assert [action.verb for action in only(both).repair] == ["await_liveness_probe"]


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        (
            HostMount(problem="by the runtime it is none of the container's volumes"),
            "none of the container's volumes",
        ),
        (replace(HOST, device=""), "no FUSE file system is mounted at"),
        (replace(HOST, answer=GONE), r"does not answer either \(dead\): repair it first"),
        (replace(HOST, answer=Answer(HUNG)), r"does not answer either \(hung\)"),
        (replace(HOST, answer=None), "not asked"),
        (replace(HOST, device="0:50"), "the node has the same file system 0:50"),
    ],
)
def test_the_node_comes_first_and_what_is_not_known_is_left_alone(
    host: HostMount, reason: str
) -> None:
    broken = container(replace(COPY, host=host))
    finding = only(broken)
    assert (finding.verdict, finding.repair) == ("refuse", [])
    assert finding.reason.startswith("/data: ")
    assert re.search(reason, finding.reason)
    # To restart the pod would not help, or is not known to.
    assert pods(broken) == []


def test_what_is_planned_for_the_node_counts_as_done() -> None:
    broken = container(replace(COPY, host=replace(HOST, device="0:50", answer=GONE)))
    assert only(broken).verdict == "refuse"
    planned = only(broken, planned_paths=(HOST.path,))
    assert planned.verdict == "repair"
    assert "what is planned for the node's mount comes first" in planned.reason
    unknown = container(replace(COPY, host=replace(HOST, problem="it is a link")))
    assert only(unknown, planned_paths=(HOST.path,)).verdict == "refuse"


def test_one_mount_that_is_not_ready_keeps_the_container_from_being_restarted() -> None:
    other = Copy("/other", "0:51", GONE, replace(HOST, device=""))
    assert only(container(COPY, other)).verdict == "refuse"


def test_who_mounts_for_others_is_left_alone() -> None:
    driver = container(serves=True)
    assert "a restart would end their mounts" in only(driver).reason
    assert only(driver).code == "serves_others"
    assert pods(driver) == []


@pytest.mark.parametrize("policy", ["OnFailure", "Never"])
def test_what_would_not_be_started_again_is_not_stopped(policy: str) -> None:
    once = container(known=replace(KNOWN, restart_policy=policy, probe=True))
    finding = only(once)
    assert finding.verdict == "refuse"
    assert f"its restart policy is {policy}" in finding.reason
    assert finding.reason.endswith("so its pod must be restarted")
    assert finding.code == "pod_restart_needed"
    (pod,) = pods(once)
    assert (pod["uid"], pod["namespace"], pod["name"], pod["claims"]) == (
        UID,
        "shop",
        "web-0",
        ["data"],
    )


def test_a_restart_policy_that_is_not_known_is_no_evidence() -> None:
    for known in (None, replace(KNOWN, restart_policy="")):
        assert "its restart policy is not known" in only(container(known=known)).reason
        assert pods(container(known=known)) == []


def test_restart_policies_that_disagree_are_no_evidence() -> None:
    """Whoever is right: where it is not Always, a container that is ended stays so."""
    once = replace(KNOWN, restart_policy="Never")
    for known in ((KNOWN, once), (once, KNOWN)):
        finding = only(container(known_by=known))
        assert "its restart policy is not known" in finding.reason
        assert finding.verdict == "refuse"
    unsaid = replace(KNOWN, restart_policy="")
    assert only(container(known_by=(unsaid, KNOWN))).verdict == "repair"


def test_a_pod_is_not_restarted_while_something_else_is_in_the_way() -> None:
    """Its new containers would get a dead mount again, or others lose what it serves."""
    once = replace(KNOWN, restart_policy="Never")
    for blocked in (
        container(known=once, serves=True),
        container(replace(COPY, host=replace(HOST, device="")), known=once),
    ):
        assert only(blocked).verdict == "refuse"
        assert pods(blocked) == []


def test_claims_of_a_pod_are_those_of_its_dead_mounts() -> None:
    """What answers is no reason to restart it, and what has no claim no name to tell."""
    once = replace(KNOWN, restart_policy="Never")
    known = (
        once,
        replace(once, mount_path="/well", claim="well"),
        replace(once, mount_path="/plain", claim=""),
    )
    mounts = COPY, replace(COPY, point="/well", answer=Answer(OK)), replace(COPY, point="/plain")
    (pod,) = pods(container(*mounts, known_by=known))
    assert pod["claims"] == ["data"]


@pytest.mark.parametrize(
    ("probe", "options", "reason"),
    [
        (False, {}, "no liveness probe covers the mount, and the container runtime"),
        (False, {"method": "probe"}, "no liveness probe covers the mount, so"),
        (True, {"method": "cri"}, "the container runtime cannot be asked: crictl"),
        (
            True,
            {"liveness_timeout": 0},
            "liveness_timeout is 0, and the container runtime cannot be asked: crictl",
        ),
        (True, {"method": "probe", "liveness_timeout": 0}, "liveness_timeout is 0, so"),
    ],
)
def test_why_no_one_can_restart_it(probe: bool, options: dict[str, Any], reason: str) -> None:
    """Each way that was allowed, and what is wrong with just that."""
    finding = only(container(known=replace(KNOWN, probe=probe)), runtime=NO_CRICTL, **options)
    assert finding.verdict == "refuse"
    assert finding.reason.startswith(reason)


def test_nobody_to_restart_it() -> None:
    for runtime, options in (
        (NO_CRICTL, {}),
        (NO_CRICTL, {"method": "cri"}),
        (CRICTL, {"method": "probe"}),
    ):
        assert only(container(), runtime=runtime, **options).reason.endswith(
            "so its pod must be restarted"
        )
        assert [pod["name"] for pod in pods(container(), runtime=runtime, **options)] == ["web-0"]
    covered = container(known=replace(KNOWN, probe=True))
    assert "crictl is not on this node" in only(covered, runtime=NO_CRICTL, method="cri").reason


def test_a_hung_mount_is_not_one_that_a_restart_is_for() -> None:
    finding = only(container(replace(COPY, answer=Answer(HUNG))))
    assert (finding.control, finding.verdict) == ("STOR-06", "refuse")
    assert finding.summary == "it still has a hung mount at /data"
    assert "abort_hung_connections" in finding.reason
    assert pods(container(replace(COPY, answer=Answer(HUNG)))) == []


def test_at_most_so_many_in_one_run() -> None:
    findings = judged(*(container(number=number) for number in range(3)), max_repairs=2)
    assert [finding.verdict for finding in findings] == ["repair", "repair", "refuse"]
    assert "max_repairs is 2: run again for this one" in findings[2].reason
    assert findings[2].code == "too_many_repairs"
    assert [finding.verdict for finding in judged(max_repairs=0)] == ["refuse"]


def test_each_namespace_has_its_turn() -> None:
    """One that has many came first in each run, and the others never."""
    evil = [container(number=number, namespace="evil") for number in range(3)]
    found = judged(*evil, container(number=3, namespace="shop"), max_repairs=2)
    assert [finding.namespace for finding in found if finding.repair] == ["evil", "shop"]


def test_containers_take_turns_by_the_time_that_they_may_take() -> None:
    """One that ignores SIGTERM for 200 s came first in each run, and left no time for others (N10).

    Its process had the lowest number.
    """
    slow = [container(number=number, namespace="evil", grace_period=200) for number in range(2)]
    mine = [container(number=number, namespace="shop") for number in range(2, 5)]
    found = judged(*slow, *mine)
    assert [one.namespace for one in found] == ["shop", "shop", "evil", "shop", "evil"]
    # Their number is what max_repairs limits: who has quick ones gets no more of them.
    quick = [container(number=number, namespace="evil", grace_period=2) for number in range(9)]
    limited = judged(*quick, *mine, max_repairs=4)
    assert [one.namespace for one in limited if one.repair] == ["evil", "shop"] * 2


def test_pods_and_containers_of_all_namespaces_share_max_repairs_in_turns() -> None:
    """Ten containers of one left no room for the pods of all others, in each run (N10)."""
    many = [container(number=number, namespace="evil") for number in range(10)]
    once = container(
        number=20, namespace="shop", pod=f"9{UID[1:]}", known=replace(KNOWN, restart_policy="Never")
    )
    assert [one["namespace"] for one in pods(*many, once)] == ["shop"]
    found = judged(*many, once)
    assert [one.code for one in found if one.namespace == "evil"].count("too_many_repairs") == 1
    # Within a namespace, containers come first: that interrupts less.
    own = replace(once, namespace="evil")
    assert pods(*many, own) == []


def test_a_majority_is_refused_unless_it_is_accepted() -> None:
    well = replace(COPY, answer=Answer(OK))
    node = [container(number=number) for number in range(3)] + [container(well, number=3)]
    assert (
        plan(ContainerState("node1", tuple(node[:3]), CRICTL), ContainerOptions())
        .findings[0]
        .verdict
        == "refuse"
    )
    for count in (1, 2, 3):
        assert {finding.verdict for finding in judged(*node[:count], accept_majority=False)} == {
            "refuse"
        }
    findings = judged(*node, accept_majority=False)
    assert {finding.verdict for finding in findings} == {"refuse"}
    assert "3 of the node's 4 containers with FUSE mounts" in findings[0].reason
    assert {finding.verdict for finding in judged(*node, accept_majority=True)} == {"repair"}
    assert {finding.verdict for finding in judged(*node[2:], accept_majority=False)} == {"repair"}
    more = [container(well, number=number) for number in (4, 5)]
    assert {finding.verdict for finding in judged(*node, *more, accept_majority=False)} == {
        "repair"
    }


def test_one_tenants_dead_containers_keep_no_other_from_its_restart() -> None:
    """They are most of the node's, and not of the other's namespace."""
    well = replace(COPY, answer=Answer(OK))
    evil = [container(number=number, namespace="evil") for number in range(4)]
    good = [container(number=5), container(well, number=6)]
    found = judged(*evil, *good, accept_majority=False)
    assert {(finding.namespace, finding.verdict) for finding in found} == {
        ("evil", "refuse"),
        ("shop", "repair"),
    }
    # Nor is it an outage where all of one tenant's are dead, and half of the node's.
    others = [container(well, number=number, namespace="evil") for number in (1, 2)]
    mine = [container(number=number) for number in (3, 4)]
    found = judged(*others, *mine, accept_majority=False)
    assert [finding.verdict for finding in found] == ["repair"] * 2
    # Nor does one with many that are well lift the guard of another.
    many = [container(well, number=10 + number, namespace="evil") for number in range(3)]
    both = [container(number=5), container(number=6), container(number=7), container(number=8)]
    assert {finding.verdict for finding in judged(*many, *both, accept_majority=False)} == {
        "refuse"
    }


def test_names_that_are_no_words_are_quoted() -> None:
    finding = only(container(replace(COPY, point="/da\nta")))
    assert "'/da\\nta'" in finding.summary
    assert "\n" not in finding.summary


def test_a_container_that_nobody_names_is_told_by_its_ids() -> None:
    assert (
        only(container(known=None, name="", pod_name="", namespace="")).name == f"{UID}/{'0' * 12}"
    )


def test_pods_are_counted_like_containers() -> None:
    once = [
        container(
            number=number,
            pod=f"{number}{UID[1:]}",
            pod_name=f"job-{number}",
            known=replace(KNOWN, restart_policy="Never"),
        )
        for number in range(3)
    ]
    assert len(pods(*once)) == 3
    assert [
        pod["name"] for pod in pods(container(number=9), *once, max_repairs=2, accept_majority=True)
    ] == ["job-0"]
    findings = judged(container(number=9), *once, max_repairs=2, accept_majority=True)
    assert [finding.verdict for finding in findings] == ["repair", "refuse", "refuse", "refuse"]
    assert ["max_repairs is 2" in finding.reason for finding in findings] == [
        False,
        False,
        True,
        True,
    ]
    # The reason why the pod must be restarted at all is still said, and is the code.
    assert {finding.code for finding in findings[1:]} == {findings[1].code}
    assert all("so its pod must be restarted" in finding.reason for finding in findings[1:])
    well = container(replace(COPY, answer=Answer(OK)), number=4)
    assert pods(*once, well, accept_majority=False) == []
    assert all(
        "3 of the node's 4 containers" in finding.reason
        for finding in judged(*once, well, accept_majority=False)
    )
    assert len(pods(*once, well, accept_majority=True)) == 3


def test_restarts_of_one_tenant_leave_another_its_move() -> None:
    """Restarts came first, so whoever has many containers kept the pods of others in each run."""

    def some(namespace: str, *numbers: int, policy: str = "Always") -> list[Container]:
        known = replace(KNOWN, restart_policy=policy)
        made = [container(number=one, namespace=namespace, known=known) for one in numbers]
        return [replace(one, pod=f"{one.pid % 10}{UID[1:]}") for one in made]

    both = [*some("evil", 1, 2, 3), *some("shop", 7, 8, policy="Never")]
    assert [pod["uid"][0] for pod in pods(*both, max_repairs=2)] == ["7"]
    found = judged(*both, max_repairs=2)
    assert [one.namespace for one in found if one.repair] == ["evil"]
    assert sum("max_repairs is 2" in one.reason for one in found) == 3
    # Within a turn, what interrupts less comes first.
    assert pods(*both, max_repairs=1) == []
    # Nor does anyone gain by pods of its own.
    other = [*some("evil", 1, 2, 3, policy="Never"), *some("shop", 7, 8)]
    assert [pod["uid"][0] for pod in pods(*other, max_repairs=3)] == ["1"]
    found = judged(*other, max_repairs=3)
    assert [one.namespace for one in found if one.repair] == ["shop", "shop"]


def test_containers_of_a_pod_that_must_be_restarted_are_one_pod() -> None:
    once = replace(KNOWN, restart_policy="Never")
    both = pods(
        container(number=1, known=once), container(number=2, known=replace(once, claim="more"))
    )
    assert [(pod["name"], pod["claims"]) for pod in both] == [("web-0", ["data", "more"])]


def test_a_container_whose_volume_cannot_be_told_is_refused() -> None:
    linked = container(known=None, elsewhere=("/var/run/data",))
    finding = only(linked)
    assert (finding.verdict, pods(linked)) == ("refuse", [])
    assert "the given paths (/var/run/data)" in finding.reason
    assert "restart policy" not in finding.reason
