# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fenced node is given back, or refused; and what was left behind is found. The fence is a real one, in a real Ceph's blocklist.

The node is a stand-in, so a reboot is another bootID in its status, and what the node shows of its clients is given as ceph_client_info
returns it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from failover import ADDRESSES, NODE_A, NODE_B, Failover
from lab.ceph.client import Writer
from lab.kubernetes.api import path
from lab.kubernetes.proxy import Proxy
from node import Outcome
from redrive import kill_module

from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.fence_ledger import ANNOTATION, Entry, Ledger, Ledgers
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.options import make_cluster

# Everything here runs with exactly these rights.
RIGHTS = Path(__file__).resolve().parents[2] / "playbooks/files/rbac-fence.yml"
OUT = "node.kubernetes.io/out-of-service"
TAINT = {"key": OUT, "value": "nodeshutdown", "effect": "NoExecute"}
ADDRESS = ADDRESSES[NODE_A]
# Fenced by somebody before; the ledger says so.
BEFORE = "127.0.0.99"
CONFIG_MAP = path("ConfigMap", f"storage-ops-fence-{NODE_A}", "kube-system")
LEASE = path("Lease", f"storage-ops-fence-{NODE_A}", "kube-system")
# A run that was killed leaves its Lease, and the next one waits for that.
QUICK = {"lease_seconds": 5, "lease_timeout": 20}


class Fenced:
    """Node A is lost, and was fenced, tainted and cordoned, says its ledger; and it is so."""

    def __init__(self, failover: Failover) -> None:
        self.failover, self.cluster, self.storage, self.api = failover, failover.cluster, failover.storage, failover.api
        failover.lose()
        self.boot_id = failover.node()["status"]["nodeInfo"]["bootID"]
        self.block("present", BEFORE, ADDRESS)
        spec = failover.node()["spec"]
        self.api.merge(path("Node", NODE_A), {"spec": {"unschedulable": True, "taints": [*spec.get("taints", []), TAINT]}})
        self.note()

    def note(self, **changes: Any) -> None:
        """Write the ledger."""
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
            entries=(Entry(ADDRESS, "address", True, until), Entry(BEFORE, "address", False, until)),
            network_fences=(),
            source={ADDRESS: "watcher"},
            volumes=("pv-db",),
            unverified=False,
            cordoned=True,
            tainted=True,
            by="a test",
            run="run-0",
            at=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        )
        params = {"kubeconfig": str(self.cluster.kubeconfig()), "request_timeout": 30.0, "deadline": 60.0}
        Ledgers(make_cluster(params), "kube-system").write(ledger._replace(**changes))

    def block(self, state: str, *entries: str) -> None:
        """Change the blocklist."""
        run = self.storage.ansible("ceph_blocklist", state=state, entries=list(entries))
        assert not run.failed, run.msg

    def reading(self) -> dict[str, Any]:
        """The blocklist as rbd_watcher_info returns it."""
        return dict(self.storage.ansible("rbd_watcher_info").result["ceph"])

    def step(self, state: str, run_id: str = "run-1", check: bool = False, proxy: Proxy | None = None, **options: Any) -> Outcome:
        """One call of our module."""
        options = {"node": NODE_A, "state": state, "run_id": run_id, **QUICK, **options}
        return self.cluster.ansible("node_release", check=check, user=RIGHTS, proxy=proxy, **options)

    def release(self, run_id: str = "run-1", check: bool = False, **options: Any) -> list[Outcome]:
        """All of it, as the role does it, up to the first step that fails."""
        steps = [self.step("releasing", run_id, check, **options)]
        fence = steps[0].result.get("fence")
        if steps[0].failed or not fence:
            return steps
        if not check:
            self.block("absent", *[entry["entry"] for entry in fence["entries"] if entry["ours"]])
        return [*steps, self.step("released", run_id, check, fence=fence, ceph=self.reading())]

    def audit(self, **options: Any) -> list[dict[str, Any]]:
        """The findings of node_fence_info."""
        run = self.cluster.ansible("node_fence_info", user=RIGHTS, ceph=self.reading(), grace_seconds=1, **options)
        assert not run.failed and not run.changed, run.msg
        return run.findings

    def clean(self, *clients: dict[str, str], problem: str = "") -> dict[str, Any]:
        """What the node shows, as ceph_client_info returns it."""
        return {"boot_id": self.boot_id, "clients": list(clients), "problem": problem}

    def state(self) -> dict[str, Any]:
        """What a run that changes nothing leaves alone. A node's status and its heartbeat are not ours."""
        node, kept = self.failover.node(), self.api.get(CONFIG_MAP)
        return {
            "spec": node["spec"],
            "annotations": node["metadata"].get("annotations"),
            "ledger": kept and (kept["metadata"]["resourceVersion"], kept["data"]),
            "lease": self.api.get(LEASE),
            "blocklist": self.storage.ceph.blocklist(),
        }

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


def test_refused_until_the_old_client_is_proven_gone(fenced: Fenced) -> None:
    """Lost; back without a reboot, with and without a look at the node; and at last with one that shows none: only its kubelet had died."""
    failover, writer = fenced.failover, fenced.failover.writer
    refused(fenced, f"{NODE_A} is not Ready (Ready=Unknown")
    failover.recover()
    refused(fenced, "nobody has looked on the node")
    mapped = {"kind": "krbd", "device": "/dev/rbd0", "pool": "rbd", "image": failover.image(), "entry": writer.entry, "fsid": ""}
    mapped["fsid"] = fenced.storage.ceph.fsid
    refused(fenced, "still shows 1 clients that were fenced (krbd /dev/rbd0", clients=fenced.clean(mapped))
    refused(fenced, "the node could not be read", clients=fenced.clean(problem="/sys is not there"))
    refused(fenced, "clients was read in another boot", clients={**fenced.clean(), "boot_id": "another"})
    # Why: without its fence it goes on where it stopped.
    assert writer.error and not failover.watches()
    writer.kill()
    steps = fenced.release(clients=fenced.clean())
    assert [run.failed for run in steps] == [False, False], steps[-1].msg
    fenced.given_back()
    assert f"{BEFORE}:0/0" in fenced.storage.entries()


def test_released_after_a_reboot(fenced: Fenced) -> None:
    """Exactly what is ours goes: an entry from before and one that Ceph has made by itself stay. The bootID was patched by this test."""
    failover, ceph = fenced.failover, fenced.storage.ceph
    ceph.create_image("locked", features="layering,exclusive-lock")
    fenced.block("absent", ADDRESS)
    with Writer(ceph, "locked", ADDRESS) as owner:
        fenced.block("present", ADDRESS)
        # B breaks the lock of a client that is fenced, and Ceph fences that client for itself.
        with Writer(ceph, "locked", ADDRESSES[NODE_B]):
            failover.cluster.wait(lambda: owner.entry in fenced.storage.entries(), "Ceph has fenced the owner of the lock by itself")
    failover.writer.kill()
    failover.recover(rebooted=True)
    before = fenced.state()
    check = fenced.release(check=True)
    assert [run.outcomes for run in check] == [
        [("mark_release", "planned")],
        [("untaint_node", "planned"), ("uncordon_node", "planned"), ("remove_fence_ledger", "planned")],
    ]
    assert fenced.state() == before
    begun, last = fenced.release()
    assert not last.failed, last.msg
    assert begun.outcomes == [("mark_release", "done")]
    assert last.outcomes == [("untaint_node", "done"), ("uncordon_node", "done"), ("remove_fence_ledger", "done")]
    fenced.given_back()
    assert {owner.entry, f"{BEFORE}:0/0"} <= fenced.storage.entries()
    # Node A can use its storage again.
    with Writer(ceph, "locked", ADDRESS) as again:
        assert again.acknowledged and not again.error
    (only,) = fenced.release()
    assert not only.failed and not only.changed and only.result["fence"] == {}
    assert fenced.audit() == []


def test_not_released_while_the_entry_is_there_or_nobody_knows(fenced: Fenced) -> None:
    fenced.failover.recover(rebooted=True)
    assert not fenced.step("releasing").failed
    before = {**fenced.state(), "lease": None}
    for options, words in (
        ({}, f"nobody has shown that {ADDRESS} left"),
        ({"ceph": fenced.reading()}, f"{ADDRESS} is still in Ceph's blocklist"),
    ):
        run = fenced.step("released", **options)
        assert run.failed and not run.changed and words in run.msg, run.msg
        assert fenced.state() == before
        # A refusal gives the Lease back, so the next run need not wait.
        assert not fenced.step("releasing").failed


@pytest.mark.parametrize(
    ("method", "where", "number", "state"), [("PATCH", "/nodes/", 1, "releasing"), ("PATCH", "/nodes/", 1, "released")]
)
def test_killed_and_run_again(fenced: Fenced, method: str, where: str, number: int, state: str) -> None:
    """Right after a change that the module has not heard of: the next run waits for the Lease, and finishes it."""
    fenced.failover.recover(rebooted=True)
    if state == "released":
        begun = fenced.step("releasing")
        fenced.block("absent", ADDRESS)
        assert not begun.failed, begun.msg
    proxy = fenced.cluster.proxy()
    kill = proxy.on(method, where, first=number, times=1, after=lambda: kill_module(module="node_release"))
    died = fenced.step(state, proxy=proxy, ceph=fenced.reading())
    assert died.failed and "findings" not in died.result, died.result
    assert kill.matched >= number and fenced.api.get(LEASE)
    steps = fenced.release("run-2")
    assert not steps[-1].failed, steps[-1].msg
    fenced.given_back()


def test_two_operators_at_once(fenced: Fenced) -> None:
    """The second one waits for the first, or gives up without a change."""
    fenced.failover.recover(rebooted=True)
    assert not fenced.step("releasing", "run-1", lease_seconds=60).failed
    second = fenced.step("releasing", "run-2", lease_timeout=2)
    assert second.failed and not second.changed and "another run (run-1) works at node" in second.msg, second.msg
    fenced.block("absent", ADDRESS)
    last = fenced.step("released", "run-1", ceph=fenced.reading())
    assert not last.failed, last.msg
    fenced.given_back()


def summaries(findings: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return sorted((finding["control"], finding["severity"], finding["summary"]) for finding in findings)


def test_what_is_left_behind_is_found(fenced: Fenced) -> None:
    """STOR-17 in all its forms, on one node after another state; and the lost one as STOR-16."""
    failover, api = fenced.failover, fenced.api
    # Kubernetes has taken the volume off by the taint, but the ledger does not know: the fail-over was killed.
    fenced.note(phase="fenced")
    (held,) = fenced.audit()
    assert (held["control"], held["severity"]) == ("STOR-16", "critical") and "interrupted when it was fenced" in held["reason"]
    # The fence has expired by itself.
    over = Entry(ADDRESS, "address", True, "2026-01-01T00:00:00Z")
    fenced.block("absent", ADDRESS)
    fenced.note(entries=(over,))
    found = summaries(fenced.audit(controls=["STOR-17"]))
    assert [(severity, "has expired by itself" in summary) for _control, severity, summary in found] == [("critical", True)], found
    # A ledger without its entry.
    fenced.note()
    found = summaries(fenced.audit(controls=["STOR-17"]))
    assert [(severity, f"has {ADDRESS}, but Ceph's" in summary) for _control, severity, summary in found] == [("critical", True)], found
    fenced.block("present", ADDRESS)
    assert fenced.audit(controls=["STOR-17"]) == []
    # A watcher of before that is fenced no more would be seen: here it is not.
    failover.writer.kill()
    # Back, not rebooted; then rebooted, by a bootID that this test patches.
    failover.recover()
    (back,) = fenced.audit()
    assert back["severity"] == "major" and "not rebooted since" in back["reason"]
    failover.recover(rebooted=True)
    (back,) = fenced.audit()
    assert "it was rebooted since" in back["reason"] and back["evidence"]["out_of_service"] is True
    assert back["runbook"] == "storage_ops.runbooks.release_fenced_node"
    # The ledger is lost: the taint and the entry are there without it; the entry of nobody's address is none of our business.
    api.merge(path("Node", NODE_A), {"metadata": {"annotations": {ANNOTATION: None}}})
    api.delete(CONFIG_MAP)
    found = summaries(fenced.audit())
    assert len(found) == 2 and all(control == "STOR-17" for control, _severity, _summary in found), found
    assert f"{ADDRESS} of {NODE_A}, and no ledger knows it" in found[0][2] and OUT in found[1][2]
    # An entry for a range, and one for a single client, which Ceph makes itself.
    fenced.block("absent", ADDRESS)
    fenced.block("present", "127.0.0.8/29", f"{ADDRESSES[NODE_B]}:0/12345")
    entries = [finding["object"] for finding in fenced.audit() if finding["object"]["kind"] == "BlocklistEntry"]
    assert [(found["name"], found["node"]) for found in entries] == [("127.0.0.8/29", NODE_A)]
    # A ledger of a node that is no more.
    fenced.block("absent", "127.0.0.8/29", BEFORE)
    fenced.note()
    failover.kubelets.stop_node(NODE_A)
    api.delete(path("Node", NODE_A))
    assert any(
        "there is no such node any more" in summary for _control, _severity, summary in summaries(fenced.audit(controls=["STOR-17"]))
    )


def test_what_a_fail_over_is_told_of_a_lost_node(failover_current: Failover) -> None:
    """As much as rbd_watcher_info needs to find A's watcher."""
    failover_current.lose()
    run = failover_current.cluster.ansible("node_fence_info", user=RIGHTS, grace_seconds=1)
    (finding,) = run.findings
    assert (finding["control"], finding["object"]["node"]) == ("STOR-16", NODE_A)
    (lost,) = run.result["lost"]
    assert (lost["node"], lost["ready"], lost["addresses"], lost["ledger"]) == (NODE_A, "Unknown", [ADDRESS], {})
    volumes = [volume["pv"] for volume in lost["volumes"]]
    seen = failover_current.storage.ansible("rbd_watcher_info", volumes=volumes).result["ceph"]
    assert [watcher["entry"] for image in seen["images"] for watcher in image["watchers"]] == [failover_current.writer.entry]
    (named,) = failover_current.cluster.ansible("node_fence_info", user=RIGHTS, nodes=[NODE_A], ceph=seen).result["lost"]
    assert named["volumes"] == lost["volumes"]
