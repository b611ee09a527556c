# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fenced node is given back, or refused; and what was left behind is found. The fence is a real
one, in a real Ceph's blocklist.

The node is a stand-in, so a reboot is another bootID in its status, and what the node shows of its
clients is given as ceph_client_info returns it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from lab.ceph.client import Writer
from lab.kubernetes.api import path
from lab.kubernetes.controlplane import ControlPlane
from support.failover import ADDRESSES, NODE_A, NODE_B, Failover
from support.fixtures import failover
from support.identities import as_kubelet, restricted
from support.node import Outcome
from support.storage import Storage

from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ledger import (
    ANNOTATION,
    Entry,
    Ledger,
    Ledgers,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import Forbidden
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import (
    OWN_NAMESPACE,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.options import make_cluster

# Everything here runs with exactly these rights.
RIGHTS = Path(__file__).resolve().parents[2] / "playbooks/files/rbac-fence.yml"
OUT = "node.kubernetes.io/out-of-service"
TAINT = {"key": OUT, "value": "nodeshutdown", "effect": "NoExecute"}
ADDRESS = ADDRESSES[NODE_A]
# Fenced by somebody before; the ledger says so.
BEFORE = "127.0.0.99"
CONFIG_MAP = path("ConfigMap", f"storage-ops-fence-{NODE_A}", OWN_NAMESPACE)
LEASE = path("Lease", f"storage-ops-fence-{NODE_A}", OWN_NAMESPACE)


class Returned:
    """Node A, and who gives it back."""

    def __init__(self, failover: Failover) -> None:
        self.failover, self.cluster, self.storage, self.api = (
            failover,
            failover.cluster,
            failover.storage,
            failover.api,
        )
        self.boot_id = failover.node()["status"]["nodeInfo"]["bootID"]

    def ledger(self, **changes: Any) -> Ledger:
        """Of a fence, as far as it is not told otherwise."""
        until = f"{datetime.now(UTC) + timedelta(days=365):%Y-%m-%dT%H:%M:%SZ}"
        ledger = Ledger(
            node=NODE_A,
            node_uid=self.failover.node()["metadata"]["uid"],
            boot_id=self.boot_id,
            method="ceph",
            phase="detached",
            cluster_id=self.storage.ceph.fsid,
            fsid=self.storage.ceph.fsid,
            addresses=(ADDRESS,),
            entries=(
                Entry(ADDRESS, "address", True, until),
                Entry(BEFORE, "address", False, until),
            ),
            network_fences=(),
            source={ADDRESS: "watcher"},
            volumes=("pv-db",),
            unverified=False,
            cordoned=True,
            tainted=True,
            by="a test",
            run="run-0",
            at=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
            machine=self.failover.node()["status"]["nodeInfo"]["systemUUID"],
            namespace=OWN_NAMESPACE,
        )
        return ledger._replace(**changes)

    def block(self, state: str, *entries: str) -> None:
        """Change the blocklist."""
        run = self.storage.ansible("ceph_blocklist", state=state, entries=list(entries))
        assert not run.failed, run.msg

    def reading(self) -> dict[str, Any]:
        """The blocklist as rbd_watcher_info returns it."""
        return dict(self.storage.ansible("rbd_watcher_info").result["ceph"])

    def reading_of_writer(self) -> dict[str, Any]:
        """The blocklist, and who has the volume of ``db`` open, as rbd_watcher_info sees it."""
        volume = self.api.call("GET", path("PersistentVolume", "pv-db"))
        run = self.storage.ansible(
            "rbd_watcher_info", volumes=[volume], observations=3, observation_seconds=3
        )
        assert not run.failed, run.msg
        return dict(run.result["ceph"])

    def step(
        self, state: str, run_id: str = "run-1", check: bool = False, **options: Any
    ) -> Outcome:
        """One call of our module."""
        options = {"node": NODE_A, "state": state, "run_id": run_id, **options}
        return self.cluster.ansible("node_release", check=check, user=RIGHTS, **options)

    def release(self, run_id: str = "run-1", check: bool = False, **options: Any) -> list[Outcome]:
        """All of it, as the role does it, up to the first step that fails."""
        # In the same boot, an image that was not read may be open.
        ceph = self.reading_of_writer() if "clients" in options else self.reading()
        steps = [self.step("releasing", run_id, check, ceph=ceph, **options)]
        fence = steps[0].result.get("fence")
        if steps[0].failed or not fence:
            return steps
        held = self.step("held", run_id, check, fence=fence)
        assert not held.failed and not held.changed, held.msg
        if not check:
            self.block("absent", *[entry["entry"] for entry in fence["entries"] if entry["ours"]])
        return [*steps, self.step("released", run_id, check, fence=fence, ceph=self.reading())]

    def audit(self, **options: Any) -> list[dict[str, Any]]:
        """The findings of node_fence_info."""
        run = self.cluster.ansible(
            "node_fence_info", user=RIGHTS, ceph=self.reading(), grace_seconds=1, **options
        )
        assert not run.failed and not run.changed, run.msg
        return run.findings

    def clean(self, *clients: dict[str, str]) -> dict[str, Any]:
        """What the node shows, as ceph_client_info returns it."""
        return {"boot_id": self.boot_id, "clients": list(clients), "problem": ""}

    def state(self) -> dict[str, Any]:
        """What a run that changes nothing leaves alone.

        A node's status and its heartbeat are not ours.
        """
        node, kept = self.failover.node(), self.api.get(CONFIG_MAP)
        return {
            "spec": node["spec"],
            "annotations": node["metadata"].get("annotations"),
            "ledger": kept and (kept["metadata"]["resourceVersion"], kept["data"]),
            "lease": self.api.get(LEASE),
            "blocklist": self.storage.ceph.blocklist(),
        }


class Fenced(Returned):
    """Node A is lost, and was fenced, tainted and cordoned, says its ledger; and it is so."""

    def __init__(self, failover: Failover) -> None:
        super().__init__(failover)
        failover.lose()
        self.block("present", BEFORE, ADDRESS)
        self.api.merge(path("Node", NODE_A), {"spec": {"unschedulable": True}})
        # The controller manager puts its own list of taints in the place of what is there.
        failover.cluster.wait(
            lambda: "node.kubernetes.io/unschedulable" in failover.taints(), "A is cordoned"
        )
        taints = failover.node()["spec"]["taints"]
        self.api.merge(path("Node", NODE_A), {"spec": {"taints": [*taints, TAINT]}})
        self.note()

    def note(self, **changes: Any) -> None:
        """Write the ledger."""
        params = {
            "kubeconfig": str(self.cluster.kubeconfig()),
            "request_timeout": 30.0,
            "deadline": 60.0,
        }
        ledgers = Ledgers(make_cluster(params), OWN_NAMESPACE)
        kept = ledgers.read(NODE_A, None)
        ledger = self.ledger(**changes)
        ledgers.write(ledger._replace(revision=kept.revision if kept else 0))

    def given_back(self) -> None:
        """Nothing of ours is left, and the node takes pods."""
        node = self.failover.node()
        assert OUT not in self.failover.taints() and not node["spec"].get("unschedulable")
        assert ANNOTATION not in (node["metadata"].get("annotations") or {})
        assert self.api.get(CONFIG_MAP) is None and self.api.get(LEASE) is None
        assert f"{ADDRESS}:0/0" not in self.storage.entries()


@pytest.fixture
def fenced(failover_current: Failover) -> Fenced:
    """A node that was failed over from, on a current Kubernetes."""
    return Fenced(failover_current)


def refused(fenced: Fenced, words: str, **options: Any) -> None:
    """It says so in check mode and for real, and nothing is changed."""
    before = fenced.state()
    # With what the node shows, the unit tests have check mode.
    for check in (False,) if "clients" in options else (True, False):
        run = fenced.step("releasing", check=check, **options)
        assert run.failed and not run.changed, run.msg
        assert words in run.msg, run.msg
        assert fenced.state() == before


@pytest.mark.smoke
def test_refused_until_the_old_client_is_proven_gone(fenced: Fenced) -> None:
    """Lost; back without a reboot, with and without a look at the node; and at last with one that
    shows none: only its kubelet had died.
    """
    failover, writer = fenced.failover, fenced.failover.writer
    refused(fenced, f"{NODE_A} is not Ready (Ready=Unknown")
    failover.recover()
    refused(fenced, "the node was not looked at")
    mapped = {
        "kind": "krbd",
        "device": "/dev/rbd0",
        "pool": "rbd",
        "image": failover.image(),
        "entry": writer.entry,
        "fsid": "",
    }
    mapped["fsid"] = fenced.storage.ceph.fsid
    refused(
        fenced,
        "still shows 1 clients that were fenced (krbd /dev/rbd0",
        clients=fenced.clean(mapped),
    )
    # Why: without its fence it goes on where it stopped.
    assert writer.error and not failover.watches()
    writer.kill()
    steps = fenced.release(clients=fenced.clean())
    assert [run.failed for run in steps] == [False, False], steps[-1].msg
    fenced.given_back()
    assert f"{BEFORE}:0/0" in fenced.storage.entries()


def test_released_after_a_reboot(fenced: Fenced) -> None:
    """Exactly what is ours goes: an entry from before and one that Ceph has made by itself stay.
    The bootID was patched by this test.

    What stood in for our entry, as if ceph_blocklist had been killed while it renewed that, is ours
    too.
    """
    failover, ceph = fenced.failover, fenced.storage.ceph
    ceph.create_image("locked", features="layering,exclusive-lock")
    fenced.block("absent", ADDRESS)
    with Writer(ceph, "locked", ADDRESS) as owner:
        fenced.block("present", ADDRESS)
        # B breaks the lock of a client that is fenced, and Ceph fences that client for itself.
        with Writer(ceph, "locked", ADDRESSES[NODE_B]):
            failover.cluster.wait(
                lambda: owner.entry in fenced.storage.entries(),
                "Ceph has fenced the owner of the lock by itself",
            )
    ceph.run("osd", "blocklist", "range", "add", f"{ADDRESS}/32", str(until_stand_in_ends()))
    failover.writer.kill()
    failover.recover(rebooted=True)
    before = fenced.state()
    check = fenced.release(check=True)
    assert [run.outcomes for run in check] == [
        [("mark_release", "planned")],
        [
            ("untaint_node", "planned"),
            ("uncordon_node", "planned"),
            ("remove_fence_ledger", "planned"),
        ],
    ]
    assert fenced.state() == before
    begun, last = fenced.release()
    assert not last.failed, last.msg
    assert begun.outcomes == [("mark_release", "done")]
    assert last.outcomes == [
        ("untaint_node", "done"),
        ("uncordon_node", "done"),
        ("remove_fence_ledger", "done"),
    ]
    fenced.given_back()
    assert fenced.storage.entries() == {owner.entry, f"{BEFORE}:0/0"}
    # Node A can use its storage again.
    with Writer(ceph, "locked", ADDRESS) as again:
        assert again.acknowledged and not again.error
    (only,) = fenced.release()
    assert not only.failed and not only.changed and only.result["fence"] == {}
    assert fenced.audit() == []


OTHER = f"{ADDRESSES[NODE_B]}:0/4711"


@pytest.fixture
def returned(plane_failover_current: ControlPlane, storage: Storage) -> Iterator[Returned]:
    """A node of a cluster in which a kubelet may write what it may in a real one."""
    with restricted(plane_failover_current):
        for scenario in failover(plane_failover_current, storage):
            yield Returned(scenario)


def write_as_kubelet(case: Returned, note: str, boot: str) -> None:
    """What whoever has the kubelet can make of its own Node: both are accepted."""
    kubelet, where = as_kubelet(case.cluster, NODE_A), path("Node", NODE_A)
    kubelet.patch(where, {"metadata": {"annotations": {ANNOTATION: note}}})
    kubelet.patch(f"{where}/status", {"status": {"nodeInfo": {"bootID": boot}}})
    written = case.failover.node()
    assert written["metadata"]["annotations"][ANNOTATION] == note
    assert written["status"]["nodeInfo"]["bootID"] == boot


def fence(case: Returned, ceph: dict[str, Any], check: bool) -> Outcome:
    """The first step of a fence."""
    quick = {"grace_seconds": 1, "accept_short_observation": True}
    given = {"node": NODE_A, "run_id": "run-1", "state": "intended", "ceph": ceph, **quick}
    return case.cluster.ansible("node_fence", check=check, user=RIGHTS, **given)


def test_a_kubelet_makes_no_ledger(returned: Returned) -> None:
    """As itself it notes a fence and another boot on its Node. Another client's entry in Ceph's
    blocklist does not become ours by it, nor is the node called rebooted, nor can it not be fenced.
    """
    case, failover = returned, returned.failover
    until = f"{datetime.now(UTC) + timedelta(days=365):%Y-%m-%dT%H:%M:%SZ}"
    case.block("present", BEFORE, OTHER)
    entries = (Entry(BEFORE, "address", True, until), Entry(OTHER, "address", True, until))
    forged = case.ledger(entries=entries, addresses=(BEFORE,), revision=7).text
    write_as_kubelet(case, forged, "another-boot")
    kubelet = as_kubelet(case.cluster, NODE_A)
    for act in (
        lambda: kubelet.create(
            CONFIG_MAP.rpartition("/")[0],
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": CONFIG_MAP.rpartition("/")[2]},
            },
        ),
        lambda: kubelet.patch(
            path("Node", NODE_B), {"metadata": {"annotations": {ANNOTATION: forged}}}
        ),
    ):
        with pytest.raises(Forbidden):
            act()

    def not_believed() -> None:
        for check in (True, False):
            (only,) = case.release(check=check)
            assert not only.failed and not only.changed and only.result["fence"] == {}, only.msg
            assert "so it is ignored" in str(only.findings)
        told = str(case.audit())
        assert "is nowhere, although the node has the annotation" in told
        assert "rebooted since" not in told and BEFORE not in told and "4711" not in told

    before = case.state()
    not_believed()
    assert case.state() == before

    failover.lose()
    not_believed()
    seen = case.reading_of_writer()
    planned = fence(case, seen, check=True)
    assert not planned.failed, planned.msg
    write_as_kubelet(case, "x", "a-third-boot")
    for check in (True, False):
        run = fence(case, seen, check)
        assert not run.failed, run.msg
        wanted = {(entry["entry"], entry["ours"]) for entry in run.result["fence"]["entries"]}
        assert wanted <= {(ADDRESS, True)}, wanted
    kept = (case.api.get(CONFIG_MAP) or {})["data"]["ledger"]
    assert BEFORE not in kept and "4711" not in kept
    assert {f"{BEFORE}:0/0", OTHER} <= case.storage.entries()


def test_a_kubelet_adds_nothing_to_its_fence(returned: Returned) -> None:
    """Of a fence that is there only the ConfigMap counts: what its kubelet notes besides is another
    client's, and a note that looks newer keeps the fence.
    """
    case = Fenced(returned.failover)
    kept = json.loads((case.api.get(CONFIG_MAP) or {})["data"]["ledger"])
    case.block("present", OTHER)
    entries = (*case.ledger().entries, Entry(OTHER, "address", True, kept["entries"][0]["until"]))
    newer = case.ledger(entries=entries, revision=kept["revision"] + 1, boot_id="before")
    write_as_kubelet(case, newer.text, "another-boot")
    case.failover.recover()
    refused(case, "contradict each other")
    write_as_kubelet(case, newer._replace(revision=0).text, "another-boot")
    case.failover.writer.kill()
    begun, last = case.release()
    assert not last.failed, last.msg
    ours = [entry["entry"] for entry in begun.result["fence"]["entries"] if entry["ours"]]
    assert ours == [ADDRESS]
    case.given_back()
    assert case.storage.entries() == {f"{BEFORE}:0/0", OTHER}


def until_stand_in_ends() -> int:
    """Seconds until what ceph_blocklist has standing in for an entry ends: a week from now, and
    then at 03:33:33 UTC.
    """
    week = datetime.now(UTC) + timedelta(days=7)
    end = week.replace(hour=3, minute=33, second=33, microsecond=0)
    return round((end + timedelta(days=end < week) - datetime.now(UTC)).total_seconds())


def summaries(findings: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return sorted(
        (finding["control"], finding["severity"], finding["summary"]) for finding in findings
    )


@pytest.mark.variation
def test_what_is_left_behind_is_found(fenced: Fenced) -> None:
    """STOR-17 in the forms that need Ceph or both copies of the ledger, on one node after another
    state.
    """
    failover, api = fenced.failover, fenced.api
    # The fence has expired by itself.
    fenced.block("absent", ADDRESS)
    fenced.storage.ceph.run("osd", "blocklist", "add", f"{ADDRESS}:0/0", "1")
    over = Entry(
        ADDRESS, "address", True, f"{datetime.now(UTC) + timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}"
    )
    fenced.note(entries=(over,))
    failover.cluster.wait(
        lambda: f"{ADDRESS}:0/0" not in fenced.storage.entries(), "Ceph has dropped the entry", 30
    )
    found = summaries(fenced.audit(controls=["STOR-17"]))
    assert [
        (severity, "has expired by itself" in summary) for _control, severity, summary in found
    ] == [("critical", True)], found
    # A ledger without its entry.
    fenced.note()
    found = summaries(fenced.audit(controls=["STOR-17"]))
    assert [
        (severity, f"has {ADDRESS}, but Ceph's" in summary) for _control, severity, summary in found
    ] == [("critical", True)], found
    # It is back, rebooted, by a bootID that this test patches.
    fenced.block("present", ADDRESS)
    failover.writer.kill()
    failover.recover(rebooted=True)
    (back,) = fenced.audit()
    assert "it was rebooted since" in back["reason"] and back["evidence"]["out_of_service"] is True
    assert back["runbook"] == "storage_ops.runbooks.release_fenced_node"
    # Half of the ledger is lost. What is left a kubelet may have written, so nothing is taken off
    # by it.
    api.delete(CONFIG_MAP)
    missing = "is nowhere, although the node has the annotation"
    assert len([entry for entry in summaries(fenced.audit()) if missing in entry[-1]]) == 1
    before = fenced.storage.entries()
    (only,) = fenced.release()
    assert not only.failed and not only.changed and only.result["fence"] == {}, only.msg
    assert "so it is ignored" in str(only.findings) and fenced.storage.entries() == before
    # All of it: the taint and the entry are there without it; the entry of nobody's address is none
    # of our business.
    api.merge(path("Node", NODE_A), {"metadata": {"annotations": {ANNOTATION: None}}})
    found = summaries(fenced.audit())
    assert len(found) == 2 and all(
        control == "STOR-17" for control, _severity, _summary in found
    ), found
    assert f"{ADDRESS} of {NODE_A}, and no ledger knows it" in found[0][2] and OUT in found[1][2]
    # An entry for a range, and one for a single client, which Ceph makes itself.
    fenced.block("absent", ADDRESS)
    fenced.block("present", "127.0.0.8/29", f"{ADDRESSES[NODE_B]}:0/12345")
    entries = [
        finding["object"]
        for finding in fenced.audit()
        if finding["object"]["kind"] == "BlocklistEntry"
    ]
    assert [(found["name"], found["node"]) for found in entries] == [("127.0.0.8/29", NODE_A)]


@pytest.mark.variation
def test_what_a_fail_over_is_told_of_a_lost_node(failover_current: Failover) -> None:
    """As much as rbd_watcher_info needs to find A's watcher."""
    failover_current.lose()
    run = failover_current.cluster.ansible("node_fence_info", user=RIGHTS, grace_seconds=1)
    (finding,) = run.findings
    assert (finding["control"], finding["object"]["node"]) == ("STOR-16", NODE_A)
    (lost,) = run.result["lost"]
    assert (lost["node"], lost["ready"], lost["addresses"], lost["ledger"]) == (
        NODE_A,
        "Unknown",
        [ADDRESS],
        {},
    )
    volumes = [volume["pv"] for volume in lost["volumes"]]
    seen = failover_current.storage.ansible("rbd_watcher_info", volumes=volumes).result["ceph"]
    assert [watcher["entry"] for image in seen["images"] for watcher in image["watchers"]] == [
        failover_current.writer.entry
    ]
    (named,) = failover_current.cluster.ansible(
        "node_fence_info", user=RIGHTS, nodes=[NODE_A], ceph=seen
    ).result["lost"]
    assert named["volumes"] == lost["volumes"]
