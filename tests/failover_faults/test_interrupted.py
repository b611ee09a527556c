# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs that are killed after each step and at each write, and two at once: what is left is safe,
and the next run finishes it.
"""

from __future__ import annotations

import os
import re
import signal
from typing import Any

import pytest
from lab.kubernetes.addons.addons import Addons
from support.failover import ADDRESSES, NODE_A, NODE_B, Failover
from support.fencing import DEADLINE, FAIL_OVER, LEASE, OUT_OF_SERVICE, Fencing, kill, tree
from support.killed import each_step, until_one_ends

ENTRY = f"{ADDRESSES[NODE_A]}:0/0"
# As Ceph spells the range of one address, which CSI-Addons fences.
RANGE_ENTRY = f"cidr:{ADDRESSES[NODE_A]}:0/32"
# What was killed leaves its Lease for so long (seconds), and the next run waits for that.
SHORT = {
    f"{role}_options": {**LEASE, "lease_seconds": "10"}
    for role in ("node_fence", "volume_failover", "node_release")
}
# Neither Leases nor what the API server only rehearses.
WRITES = r"^(?!.*/leases)(?!.*dryRun)"


# The program of the module, not the shell that runs it.
MODULE = re.compile(r"^\S*python\S* .*AnsiballZ_ceph_blocklist")


@pytest.fixture
def fencing(failover_current: Failover) -> Fencing:
    """Node A is lost while it writes, and the new pod on B waits."""
    failover_current.lose()
    failover_current.wait_waiting()
    return Fencing(failover_current)


def killed_at_write(fencing: Fencing) -> str:
    """A fail-over that dies with its first write to the API server that is no Lease's; which one,
    or nothing if it made none.
    """
    proxy = fencing.proxy = fencing.scene.cluster.proxy()
    process = fencing.begin(FAIL_OVER, **SHORT)
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        proxy.on(method, WRITES, times=1, after=lambda: kill(process))
    output, _nothing = process.communicate(timeout=DEADLINE)
    fencing.proxy = None
    assert process.returncode in (0, -signal.SIGKILL), output
    writes = [
        request
        for request in proxy.requests
        if request.method != "GET" and "/leases" not in request.path
    ]
    made = [
        f"{request.method} {request.path}" for request in writes if "dryRun" not in request.path
    ]
    assert bool(made) == bool(process.returncode), (made, output)
    return made[0] if made else ""


def safe(fencing: Fencing, entry: str = ENTRY) -> None:
    """At no time two writers, two fences or two ledgers."""
    scene = fencing.scene
    assert set(scene.storage.ceph.blocklist()) <= {entry}
    assert len(fencing.ledgers) <= 1
    if scene.attachment(NODE_A) is None or scene.attached(NODE_B):
        assert scene.writer.error, "A may still write, and its volume was moved"


def moved(fencing: Fencing) -> None:
    """The last run has left one entry of ours, see moved_once."""
    ledger = moved_once(fencing, ENTRY)
    assert [(entry["entry"], entry["ours"]) for entry in ledger["entries"]] == [
        (ADDRESSES[NODE_A], True)
    ]


def moved_once(fencing: Fencing, entry: str, **given: str) -> dict[str, Any]:
    """The last run has left one fence and one ledger, which is returned, and B has the volume;
    another run finds nothing to do.
    """
    scene = fencing.scene
    safe(fencing, entry)
    assert set(scene.storage.ceph.blocklist()) == {entry}
    ledger = fencing.ledger
    assert ledger and ledger["phase"] == "detached" and ledger["cordoned"] and fencing.lease is None
    assert scene.attached(NODE_B) and scene.attachment(NODE_A) is None
    before = fencing.state()
    again = fencing.fail_over(**given)
    assert again.rc == 0 and "| CHANGED" not in again.text, again.text
    assert fencing.state() == before
    return ledger


def fenced_or_free(fencing: Fencing) -> None:
    """The ledger goes last: what nobody remembers, nobody takes back."""
    if fencing.scene.storage.ceph.blocklist():
        assert fencing.ledgers


def released(fencing: Fencing) -> None:
    """Nothing is left of the fence, once the Lease of the last run that was killed has run out and
    somebody has looked.
    """
    fencing.scene.cluster.wait(
        lambda: fencing.release().rc == 0 and fencing.lease is None, "no Lease is left", 60
    )
    fencing.nothing_left()
    assert fencing.scene.storage.ceph.blocklist() == {}


def test_killed_after_each_step(fencing: Fencing) -> None:
    names = each_step(lambda: fencing.fail_over(**SHORT), lambda: safe(fencing))
    # One task proves and detaches; test_killed_at_each_write kills it in between, too.
    assert len(names) == 4, names
    moved(fencing)
    fencing.scene.recover(rebooted=True)
    names = each_step(lambda: fencing.release(**SHORT), lambda: fenced_or_free(fencing))
    assert len(names) == 3, names
    released(fencing)


@pytest.mark.variation
def test_killed_after_each_step_of_a_network_fence(fencing: Fencing, addons: Addons) -> None:
    addons.create("a", f"{ADDRESSES[NODE_A]}/32")
    asked = {"node_fence_method": "network_fence"}
    names = each_step(
        lambda: fencing.fail_over(**SHORT, **asked), lambda: safe(fencing, RANGE_ENTRY)
    )
    assert len(names) == 5, names
    ledger = moved_once(fencing, RANGE_ENTRY, **asked)
    assert (ledger["method"], ledger["entries"]) == ("network_fence", [])
    assert [fence["name"] for fence in ledger["network_fences"]] == ["a"]
    fencing.scene.recover(rebooted=True)
    names = each_step(lambda: fencing.release(**SHORT), lambda: fenced_or_free(fencing))
    assert len(names) == 3, names
    released(fencing)
    assert addons.get("a")["spec"]["fenceState"] == "Unfenced"


@pytest.mark.variation
@pytest.mark.parametrize("told", [False, True], ids=["killed", "told"])
def test_ended_between_the_entry_and_its_proof(fencing: Fencing, told: bool) -> None:
    """All of the run at once; or the module alone, which then says what it has done."""
    scene = fencing.scene
    # The second look at the images, without which nothing is proven, never comes.
    run = fencing.begin(FAIL_OVER, **SHORT, __node_fence_after_seconds="3000")
    entries = scene.storage.ceph.blocklist
    scene.cluster.wait(lambda: entries() or run.poll() is not None, "the entry is there", DEADLINE)
    if told:
        (module,) = [pid for pid, line in tree(run).items() if MODULE.search(line)]
        # The module asks Ceph for less before it begins to watch.
        for _time in range(10):
            assert set(entries()) == {ENTRY}
        os.kill(module, signal.SIGTERM)
    else:
        kill(run)
    output, _nothing = run.communicate(timeout=DEADLINE)
    assert run.returncode == (2 if told else -signal.SIGKILL), output
    assert not told or f"in the blocklist: {ENTRY}. " in output and "(interrupted)" in output, (
        output
    )
    safe(fencing)
    assert scene.attached(NODE_A) and fencing.ledger and fencing.ledger["phase"] == "intended"
    again = fencing.fail_over(**SHORT)
    assert again.rc == 0, again.text
    moved(fencing)


@pytest.mark.variation
def test_back_between_the_entry_and_its_proof(fencing: Fencing) -> None:
    """The task that proves and detaches refuses the proof. Nothing is detached, and the run does
    not ask for the node to be switched off.
    """
    scene = fencing.scene
    run = fencing.begin(FAIL_OVER, **SHORT, __node_fence_after_seconds="30")
    entries = scene.storage.ceph.blocklist
    scene.cluster.wait(lambda: entries() or run.poll() is not None, "the entry is there", DEADLINE)
    scene.recover()
    output, _nothing = run.communicate(timeout=DEADLINE)
    assert run.returncode == 2 and "(node_not_lost)" in output, output
    assert "was begun and is not proven" in output and "switch it off" not in output, output
    # What Kubernetes itself detaches, now that the kubelet ends the pod, is no business of ours.
    assert "taint_node" not in output and "delete_volumeattachment" not in output, output
    assert OUT_OF_SERVICE not in scene.taints() and fencing.lease is None
    assert set(entries()) == {ENTRY}
    assert fencing.ledger and fencing.ledger["phase"] == "intended"


@pytest.mark.variation
def test_killed_at_each_write(fencing: Fencing) -> None:
    writes = until_one_ends(lambda _before: killed_at_write(fencing), lambda: safe(fencing))
    assert len(writes) > 4, writes
    moved(fencing)


def test_two_operators_at_once(fencing: Fencing) -> None:
    """The second one waits for the first, and finds nothing left to do."""
    # However long the first one takes.
    patient = {"lease_seconds": "600", "lease_timeout": "900"}
    runs = [fencing.begin(FAIL_OVER, node_fence_options=patient) for _run in range(2)]
    outputs = [run.communicate(timeout=DEADLINE)[0] for run in runs]
    for run, output in zip(runs, outputs, strict=True):
        assert run.returncode == 0, output
    assert sum("done: write_fence_ledger" in output for output in outputs) == 1, outputs
    moved(fencing)


@pytest.mark.variation
def test_a_second_operator_who_does_not_wait_is_refused(fencing: Fencing) -> None:
    scene = fencing.scene
    proxy = fencing.proxy = scene.cluster.proxy()
    process = fencing.begin(FAIL_OVER, node_fence_options={**LEASE, "lease_seconds": "60"})
    proxy.on("PATCH", WRITES, times=1, after=lambda: os.kill(process.pid, signal.SIGSTOP))
    scene.cluster.wait(lambda: fencing.lease, "the first run has the Lease", 60)
    fencing.proxy = None
    refused = fencing.fail_over(node_fence_options={**LEASE, "lease_timeout": "0"})
    assert refused.rc != 0 and "another run (" in refused.text, refused.text
    os.kill(process.pid, signal.SIGCONT)
    output, _nothing = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, output
    moved(fencing)
