# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Attachments that are left over, about to be, or not what they say: audited and repaired with
exactly the rights that are shipped.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from lab.kubernetes import api as k8s
from lab.kubernetes import faults
from lab.kubernetes.api import path
from lab.kubernetes.attacher import Behaviour
from lab.kubernetes.faults import COLLIDING_DRIVER, DRIVER
from support.cluster import Cluster
from support.node import Outcome
from support.selection import variation

FILES = Path(__file__).parents[2] / "playbooks/files"
AUDITOR, REPAIRER = FILES / "rbac-audit.yml", FILES / "rbac-repair.yml"
CONTROLS = [f"STOR-{number}" for number in range(11, 16)]
# Long enough to be observed twice, and short enough for a test.
QUICK: dict[str, Any] = {"min_age_seconds": 1, "observation_seconds": 1}
both = pytest.mark.parametrize("fixture", ["old", "current"])


@pytest.fixture
def old(control_plane_1_20: Cluster) -> Cluster:
    """A cluster that has the bugs."""
    return control_plane_1_20


@pytest.fixture
def current(control_plane_current: Cluster) -> Cluster:
    """A cluster that does not."""
    return control_plane_current


@pytest.fixture
def cluster(request: pytest.FixtureRequest, fixture: str) -> Cluster:
    """The cluster of the version that a test is run with."""
    found: Cluster = request.getfixturevalue(fixture)
    return found


def audit(cluster: Cluster, **options: Any) -> list[dict[str, Any]]:
    """What the audit finds."""
    given = {"controls": CONTROLS, **QUICK, **options}
    outcome = cluster.ansible("cluster_storage_info", user=AUDITOR, **given)
    assert not outcome.failed and not outcome.changed, outcome.msg
    return outcome.findings


def repair(cluster: Cluster, check: bool = False, **options: Any) -> Outcome:
    """Run the repair.

    That most attachments of a node look left over, since there are so few, is accepted.
    """
    given = {**QUICK, "detach_timeout": 10, "accept_majority": True, **options}
    return cluster.ansible("volumeattachment_repair", check, user=REPAIRER, **given)


def controls(findings: list[dict[str, Any]]) -> list[str]:
    """Which controls found something."""
    return [finding["control"] for finding in findings]


def repaired_four_ways(cluster: Cluster, name: str) -> None:
    """Check, run, run again, check again; only the attachment of that name is touched."""
    before = cluster.attachment_uids()
    planned = repair(cluster, check=True)
    assert not planned.failed and planned.changed, planned.msg
    assert planned.outcomes == [("delete_volumeattachment", "planned")]
    assert planned.finding(name)["verdict"] == "repair"
    assert cluster.attachment_uids() == before
    done = repair(cluster)
    assert not done.failed and done.changed, done.msg
    assert done.outcomes == [("delete_volumeattachment", "done")]
    assert f"{name} (uid {before[name]}) is gone" in done.finding(name)["evidence"]["proof"]
    del before[name]
    assert {
        known: uid for known, uid in cluster.attachment_uids().items() if known in before
    } == before
    for check in (False, True):
        again = repair(cluster, check=check)
        assert not again.failed and not again.changed, again.msg
        assert "STOR-11" not in controls(again.findings)


def phase(cluster: Cluster, name: str) -> str:
    """The phase of a pod."""
    return str((cluster.api.find("Pod", name) or {"status": {}})["status"].get("phase", ""))


def collide(cluster: Cluster) -> dict[int, faults.Attached]:
    """Volumes with 67, 68 and 69 characters, each attached to its node for a pod."""
    cluster.kubelets("n67", "n68", "n69", "other", drivers=(COLLIDING_DRIVER,))
    handles = {
        length: f"vol-{length}-".ljust(length - len(COLLIDING_DRIVER) - 1, "x")
        for length in (67, 68, 69)
    }
    return {
        length: faults.attach(cluster.api, f"c{length}", COLLIDING_DRIVER, handle, f"n{length}")
        for length, handle in handles.items()
    }


def leave(cluster: Cluster, attached: dict[int, faults.Attached]) -> None:
    """Delete the pods, and wait until the controller manager calls their volumes detached."""
    for found in attached.values():
        cluster.api.delete(path("Pod", found.pod), grace=0)
    for found in attached.values():
        cluster.wait(
            lambda found=found: found.unique_name not in cluster.api.volumes_attached(found.node),
            f"{found.handle} detached",
        )


@pytest.mark.smoke
def test_the_collision_is_predicted_found_and_cleaned(old: Cluster) -> None:
    cluster = old
    attached = collide(cluster)
    victim = attached[68]
    (predicted,) = audit(cluster)
    assert (predicted["control"], predicted["severity"], predicted["verdict"]) == (
        "STOR-12",
        "critical",
        "report",
    )
    assert predicted["object"]["name"] == victim.volume
    assert predicted["evidence"]["attached_to"] == ["n68"]
    assert "v1.20.2 is affected; it is attached to n68 now" in predicted["reason"]

    leave(cluster, attached)
    cluster.wait(lambda: len(cluster.attachment_uids()) == 1, "the others are detached")
    assert list(cluster.attachment_uids()) == [victim.attachment]
    cluster.api.create(k8s.pod("elsewhere", [victim.claim], "other"))
    cluster.wait(lambda: len(cluster.attachment_uids()) == 2, "the other node asks for the volume")
    assert controls(audit(cluster)) == ["STOR-12", "STOR-11"]
    assert phase(cluster, "elsewhere") == "Pending"

    repaired_four_ways(cluster, victim.attachment)
    cluster.wait(lambda: phase(cluster, "elsewhere") == "Running", "the pod starts elsewhere")
    cluster.api.delete(path("Pod", "elsewhere"), grace=0)
    cluster.api.delete(path("PersistentVolumeClaim", victim.claim))
    cluster.wait(
        lambda: cluster.api.find("PersistentVolumeClaim", victim.claim) is None, "the claim is gone"
    )
    cluster.api.delete(path("PersistentVolume", victim.volume))
    cluster.wait(
        lambda: cluster.api.find("PersistentVolume", victim.volume) is None, "the volume is gone"
    )
    cluster.used(
        "rbac-repair.yml",
        "delete volumeattachments",
        "list persistentvolumes",
        "list csidrivers",
        "get leases kube-system/kube-controller-manager",
    )


def test_the_current_version_has_no_collision(current: Cluster) -> None:
    cluster = current
    attached = collide(cluster)
    assert audit(cluster) == []
    leave(cluster, attached)
    cluster.wait(lambda: not cluster.attachment_uids(), "all are detached")
    assert audit(cluster) == []


def test_what_a_killed_controller_manager_left_is_cleaned(old: Cluster) -> None:
    cluster = old
    cluster.kubelets("killed", "other", drivers=(DRIVER,))
    orphan = faults.killed_in_backoff(cluster.plane)
    (weak,) = audit(cluster)
    assert (weak["control"], weak["severity"], weak["verdict"]) == ("STOR-11", "minor", "report")

    cluster.api.create(k8s.pod("elsewhere", [orphan.claim], "other"))

    def refused() -> bool:
        return any(
            (found.get("status") or {}).get("attachError")
            for found in cluster.api.all("VolumeAttachment")
        )

    cluster.wait(refused, "the array refuses the second node")
    (strong,) = audit(cluster)
    assert "other waits for it" in strong["evidence"]["because"][0]
    # The only attachment of its node is most of them, and an audit is told no word that accepts
    # that.
    assert strong["verdict"] == "refuse" and "set accept_majority" in strong["reason"]
    repaired_four_ways(cluster, orphan.attachment)
    cluster.wait(lambda: phase(cluster, "elsewhere") == "Running", "the pod starts elsewhere")


@pytest.mark.parametrize("sign", ["phase", variation("name")])
def test_what_a_killed_controller_manager_left_and_no_node_waits_for(
    old: Cluster, sign: str
) -> None:
    """Its volume was made available by hand; or it is named, and seen unused for longer than a
    controller manager waits.
    """
    cluster = old
    cluster.kubelets("killed", drivers=(DRIVER,))
    orphan = faults.killed_in_backoff(cluster.plane)
    named: dict[str, Any] = {"names": [orphan.attachment]}
    before = cluster.attachment_uids()
    if sign == "phase":
        cluster.api.delete(path("PersistentVolumeClaim", orphan.claim))
        where = path("PersistentVolume", orphan.volume)
        cluster.wait(lambda: cluster.api.get(where)["status"]["phase"] == "Released", "released")  # type: ignore[index]
        cluster.api.merge(where, {"spec": {"claimRef": None}})
        cluster.wait(lambda: cluster.api.get(where)["status"]["phase"] == "Available", "available")  # type: ignore[index]
    else:
        refused = repair(cluster, **named)
        assert refused.failed and "observation_seconds: 130" in refused.msg, refused.msg
        assert cluster.attachment_uids() == before
        named["observation_seconds"] = 130
    done = repair(cluster, **named)
    assert not done.failed and done.outcomes == [("delete_volumeattachment", "done")], done.msg
    assert not cluster.attachment_uids()


@pytest.mark.smoke
def test_a_lost_entry_of_the_node_status(old: Cluster) -> None:
    cluster = old
    cluster.kubelets("lost", drivers=(DRIVER,))
    lost = faults.lost_attachment(cluster.plane)
    cluster.wait(
        lambda: lost.unique_name not in cluster.api.volumes_attached("lost"), "the entry is lost"
    )
    (finding,) = audit(cluster)
    assert (finding["control"], finding["object"]["name"], finding["verdict"]) == (
        "STOR-13",
        lost.attachment,
        "report",
    )
    assert finding["evidence"]["pods"][0].startswith(f"default/{lost.pod} Pending")
    assert finding["workload"]["claims"] == [lost.claim]
    assert finding["workload"]["attachments"] == [cluster.attachment_uids()[lost.attachment]]
    assert "kubernetes #111000" in finding["evidence"]["bugs"]
    assert finding["evidence"]["leader"]
    outcome = repair(cluster)
    assert not outcome.changed and controls(outcome.findings) == ["STOR-13"]


@both
def test_an_entry_that_only_comes_late_is_not_lost(cluster: Cluster) -> None:
    """The controller manager is slow to write the node's status, as it is for a moment in every
    attach.
    """
    cluster.kubelets("slow", drivers=(DRIVER,))
    cluster.api.create(k8s.csi_driver(DRIVER))
    cluster.api.add_volume("late", DRIVER, "vol-late")
    cluster.attacher.behave(DRIVER, Behaviour(silent=True))
    cluster.api.create(k8s.pod("late", ["late"], "slow"))
    cluster.wait(cluster.attachment_uids, "the attachment")
    manager = cluster.plane.processes["kube-controller-manager"].pid
    assert manager
    os.kill(manager, signal.SIGSTOP)
    try:
        cluster.attacher.behave(DRIVER)
        cluster.wait(
            lambda: cluster.api.all("VolumeAttachment")[0]["status"]["attached"], "attached"
        )
        assert cluster.api.volumes_attached("slow") == []
        (transient,) = audit(cluster, controls=["STOR-13"])
        assert transient["control"] == "STOR-13"

        proxy = cluster.proxy()

        def catch_up() -> None:
            os.kill(manager, signal.SIGCONT)
            cluster.wait(lambda: cluster.api.volumes_attached("slow"), "the entry")

        # The second observation asks for the attachment by its name.
        rule = proxy.on("GET", r"/volumeattachments/csi-", times=1, before=catch_up)
        outcome = cluster.ansible(
            "cluster_storage_info", user=AUDITOR, proxy=proxy, **QUICK, controls=["STOR-13"]
        )
        assert rule.matched and outcome.findings == []
    finally:
        os.kill(manager, signal.SIGCONT)


def left_over(cluster: Cluster, name: str, node: str) -> str:
    """An attachment of a released volume, which no controller manager knows of; its name."""
    driver = DRIVER
    volume, _claim = k8s.volume(name, driver, f"vol-{name}")
    # A claim that was deleted: the controller manager calls the volume released.
    volume["spec"]["claimRef"]["uid"] = "00000000-0000-0000-0000-000000000000"
    made = k8s.attachment_name(f"vol-{name}", driver, node)
    spec = {
        "attacher": driver,
        "nodeName": node,
        "source": {"persistentVolumeName": volume["metadata"]["name"]},
    }
    cluster.api.create(
        volume,
        {
            "apiVersion": k8s.STORAGE,
            "kind": "VolumeAttachment",
            "metadata": {"name": made},
            "spec": spec,
        },
    )

    def ready() -> bool:
        found = cluster.api.find("VolumeAttachment", made) or {}
        bound = cluster.api.find("PersistentVolume", volume["metadata"]["name"]) or {"status": {}}
        return (
            bool((found.get("status") or {}).get("attached"))
            and bound["status"].get("phase") == "Released"
        )

    cluster.wait(ready, f"{name} attached and released")
    return made


@pytest.mark.variation
@both
@pytest.mark.usefixtures("lowest_client")
def test_the_lowest_client(cluster: Cluster) -> None:
    cluster.kubelets("n1", drivers=(DRIVER,))
    orphan = left_over(cluster, "old", "n1")
    (finding,) = audit(cluster)
    assert (finding["control"], finding["object"]["name"]) == ("STOR-11", orphan)
    repaired_four_ways(cluster, orphan)
    assert audit(cluster) == []


@both
def test_a_finalizer_that_is_held_is_told_and_stays(cluster: Cluster) -> None:
    cluster.kubelets("n1", drivers=(DRIVER,))
    orphan = left_over(cluster, "held", "n1")
    cluster.attacher.behave(DRIVER, Behaviour(silent=True))
    outcome = repair(cluster, detach_timeout=3)
    assert outcome.failed and outcome.changed
    assert outcome.outcomes == [("delete_volumeattachment", "failed")]
    assert "still there 3 s later, held by external-attacher/csi-example-com" in outcome.msg
    assert "says nothing: is it running?" in outcome.msg

    cluster.attacher.behave(DRIVER, Behaviour(fail="the array is busy"))
    cluster.wait(
        lambda: "detachError" in cluster.api.all("VolumeAttachment")[0]["status"],
        "an error of the attacher",
    )
    (finding,) = audit(cluster)
    assert (finding["control"], finding["verdict"]) == ("STOR-11", "refuse")
    assert "says: the array is busy." in finding["reason"]
    assert finding["evidence"]["deleted_seconds_ago"] >= 1
    assert cluster.api.find("VolumeAttachment", orphan)["metadata"]["finalizers"] == [
        "external-attacher/csi-example-com"
    ]  # type: ignore[index]
    named = repair(cluster, names=[orphan])
    assert named.failed and not named.changed

    cluster.attacher.behave(DRIVER)
    cluster.wait(lambda: not cluster.attachment_uids(), "the attacher lets go")
    assert audit(cluster) == []


@pytest.mark.smoke
def test_publish_information_of_forty_attachments(current: Cluster) -> None:
    cluster, driver = current, "csi.huawei.com"
    cluster.kubelets("n1", "n2", drivers=(driver,))
    cluster.api.create(k8s.csi_driver(driver))
    cluster.attacher.behave(driver, Behaviour(metadata={"publishInfo": "{}"}))
    workloads = {"db": ["old-1", "old-2"], "web": ["old-3"]}
    old = [claim for claims in workloads.values() for claim in claims]
    fine = [f"fine-{number}" for number in range(37)]
    for name in old:
        cluster.attacher.behave(f"pv-{name}", Behaviour(metadata={"wwn": "1"}))
    for name in old + fine:
        cluster.api.create(*k8s.volume(name, driver, f"vol-{name}"))
    for name, claims in workloads.items():
        cluster.api.create(k8s.workload("Deployment", name, claims))
    for number, name in enumerate(fine):
        cluster.api.create(k8s.pod(name, [name], f"n{number % 2 + 1}"))

    def attached() -> bool:
        found = cluster.api.all("VolumeAttachment")
        return len(found) == 40 and all(
            (entry.get("status") or {}).get("attached") for entry in found
        )

    cluster.wait(attached, "40 attachments", 60)
    before = cluster.attachment_uids()
    findings = audit(cluster, controls=["STOR-14"])
    assert controls(findings) == ["STOR-14"] * 3
    assert {finding["evidence"]["volume"] for finding in findings} == {f"pv-{name}" for name in old}
    found = {
        tuple(entry["claims"]): entry
        for entry in (finding["workload"] for finding in findings if "workload" in finding)
    }
    assert set(found) == {("old-1", "old-2"), ("old-3",)}
    assert {entry["kind"] for entry in found.values()} == {"ReplicaSet"}
    uids = {finding["evidence"]["uid"] for finding in findings}
    assert {uid for entry in found.values() for uid in entry["attachments"]} == uids
    outcome = repair(cluster, required_metadata={driver: ["publishInfo", "wwn"]})
    assert not outcome.changed and len(outcome.findings) == 40
    assert cluster.attachment_uids() == before


def test_a_controller_manager_that_does_not_attach(current: Cluster) -> None:
    cluster = current
    cluster.kubelets("n1", drivers=(DRIVER,))
    cluster.api.create(k8s.csi_driver(DRIVER))
    cluster.api.add_volume("waits", DRIVER, "vol-waits")
    cluster.plane.kill_controller_manager()
    cluster.api.create(k8s.pod("waits", ["waits"], "n1"))
    cluster.wait(lambda: audit(cluster, pending_seconds=2), "found", 60)
    (finding,) = audit(cluster, pending_seconds=2)
    assert (finding["control"], finding["object"]["namespace"], finding["object"]["name"]) == (
        "STOR-15",
        "default",
        "waits",
    )
    assert "the controller manager does not attach" in finding["reason"]
    assert finding["evidence"]["leader"]
    cluster.plane.start_controller_manager()
    cluster.wait(lambda: phase(cluster, "waits") == "Running", "the pod runs", 60)
    assert audit(cluster, pending_seconds=2) == []


@both
def test_what_looks_left_over_and_is_not(cluster: Cluster) -> None:
    """Pods in every state that still need their volumes, on nodes whose kubelets have
    not said so.
    """
    local = "local.example.com"
    kubelets = cluster.kubelets("n1", "n2", drivers=(DRIVER, local))
    cluster.api.create(k8s.csi_driver(DRIVER), k8s.csi_driver(local, attach_required=False))
    for name in ("ending", "shared", "stateful", "waiting"):
        cluster.api.add_volume(name, DRIVER, f"vol-{name}")
    cluster.api.add_volume("local", local, "vol-local")
    kubelets.stuck.add("default/ending")
    cluster.api.create(
        k8s.pod("ending", ["ending"], "n1"),
        k8s.pod("shared-1", ["shared"], "n1"),
        k8s.pod("shared-2", ["shared"], "n1"),
        k8s.workload("StatefulSet", "stateful", ["stateful"]),
        k8s.pod("local", ["local"], "n1"),
    )
    for name in ("ending", "shared-1", "shared-2", "stateful-0", "local"):
        cluster.wait(lambda name=name: phase(cluster, name) == "Running", f"{name} runs", 60)
    cluster.attacher.behave(DRIVER, Behaviour(silent=True))
    cluster.api.create(k8s.pod("waiting", ["waiting"], "n2"))
    cluster.wait(lambda: len(cluster.attachment_uids()) == 4, "attachments")
    cluster.api.delete(path("Pod", "ending"), grace=30)
    cluster.api.delete(path("Pod", "shared-1"), grace=0)
    # From here on only the pods tell.
    kubelets.stop()
    for node in ("n1", "n2"):
        cluster.api.merge(path("Node", node) + "/status", {"status": {"volumesInUse": []}})
    before = cluster.attachment_uids()
    outcome = repair(cluster, min_age_seconds=0)
    assert not outcome.failed and outcome.findings == [], outcome.msg
    assert cluster.attachment_uids() == before
