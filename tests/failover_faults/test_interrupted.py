# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs that are killed after each step and at each write, and two at once: what is left is safe,
and the next run finishes it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.failover import ADDRESSES, NODE_A, NODE_B, Failover
from support.fencing import DEADLINE, FAIL_OVER, LEASE, RELEASE, Fencing, kill

ENTRY = f"{ADDRESSES[NODE_A]}:0/0"
CALLBACKS = Path(__file__).parent / "callbacks"
# What was killed leaves its Lease for so long (seconds), and the next run waits for that.
SHORT = {
    f"{role}_options": {**LEASE, "lease_seconds": "10"}
    for role in ("node_fence", "volume_failover", "node_release")
}
# Neither Leases nor what the API server only rehearses.
WRITES = r"^(?!.*/leases)(?!.*dryRun)"
# More steps or writes than any run has.
MANY = 20


@pytest.fixture
def fencing(failover_current: Failover) -> Fencing:
    """Node A is lost while it writes, and the new pod on B waits."""
    failover_current.lose()
    failover_current.wait_waiting()
    return Fencing(failover_current)


def killed_after_change(fencing: Fencing, playbook: str, spared: list[str]) -> str:
    """A run that dies after the first task that changed something and is not spared; its name, or
    nothing if the run came to its end.
    """
    more = {
        "ANSIBLE_CALLBACK_PLUGINS": str(CALLBACKS),
        "ANSIBLE_CALLBACKS_ENABLED": "kill_after",
        "SPARED": json.dumps(spared),
    }
    command = fencing.command(playbook, **SHORT)
    answer = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env=fencing.settings(**more),
    )
    assert answer.returncode in (0, -signal.SIGKILL), answer.stdout + answer.stderr
    return answer.stdout.rpartition("killed after: ")[2].strip() if answer.returncode else ""


def killed_at_write(fencing: Fencing, playbook: str) -> str:
    """A run that dies with its first write to the API server that is no Lease's; which one, or
    nothing if it made none.
    """
    proxy = fencing.proxy = fencing.scene.cluster.proxy()
    process = subprocess.Popen(
        fencing.command(playbook, **SHORT),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=fencing.settings(),
    )
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


def safe(fencing: Fencing) -> None:
    """At no time two writers, two fences or two ledgers."""
    scene = fencing.scene
    assert set(scene.storage.ceph.blocklist()) <= {ENTRY}
    assert len(fencing.ledgers) <= 1
    if scene.attachment(NODE_A) is None or scene.attached(NODE_B):
        assert scene.writer.error, "A may still write, and its volume was moved"


def moved(fencing: Fencing) -> None:
    """The last run has left one fence and one ledger, and B has the volume; another run finds
    nothing to do.
    """
    scene = fencing.scene
    safe(fencing)
    assert set(scene.storage.ceph.blocklist()) == {ENTRY}
    ledger = fencing.ledger
    assert ledger and ledger["phase"] == "detached" and ledger["cordoned"] and fencing.lease is None
    assert [(entry["entry"], entry["ours"]) for entry in ledger["entries"]] == [
        (ADDRESSES[NODE_A], True)
    ]
    assert scene.attached(NODE_B) and scene.attachment(NODE_A) is None
    before = fencing.state()
    again = fencing.fail_over()
    assert again.rc == 0 and "| CHANGED" not in again.text, again.text
    assert fencing.state() == before


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


def each_step(fencing: Fencing, playbook: str, check: Callable[[], None]) -> list[str]:
    """Kill a run after its first step, the next one after the first of another name, until one
    comes to its end.
    """
    names: list[str] = []
    for _number in range(MANY):
        names.append(killed_after_change(fencing, playbook, names))
        check()
        if not names[-1]:
            return names
    raise AssertionError(f"no run came to its end: {names}")


def each_write(fencing: Fencing, playbook: str, check: Callable[[], None]) -> list[str]:
    """Kill run after run with its first write, until one has none to make."""
    writes = []
    for _number in range(MANY):
        writes.append(killed_at_write(fencing, playbook))
        check()
        if not writes[-1]:
            return writes
    raise AssertionError(f"no run came to its end: {writes}")


@pytest.mark.alternate
def test_killed_after_each_step(fencing: Fencing) -> None:
    names = each_step(fencing, FAIL_OVER, lambda: safe(fencing))
    assert len(names) == 6, names
    moved(fencing)
    fencing.scene.recover(rebooted=True)
    names = each_step(fencing, RELEASE, lambda: fenced_or_free(fencing))
    assert len(names) == 4, names
    released(fencing)


@pytest.mark.variation
def test_killed_at_each_write(fencing: Fencing) -> None:
    writes = each_write(fencing, FAIL_OVER, lambda: safe(fencing))
    assert len(writes) > 5, writes
    moved(fencing)


@pytest.mark.alternate
def test_two_operators_at_once(fencing: Fencing) -> None:
    """The second one waits for the first, and finds nothing left to do."""
    # However long the first one takes.
    patient = {"lease_seconds": "600", "lease_timeout": "900"}
    command = fencing.command(FAIL_OVER, node_fence_options=patient)
    settings = fencing.settings()
    runs = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=settings
        )
        for _run in range(2)
    ]
    outputs = [run.communicate(timeout=DEADLINE)[0] for run in runs]
    for run, output in zip(runs, outputs, strict=True):
        assert run.returncode == 0, output
    assert sum("done: write_fence_ledger" in output for output in outputs) == 1, outputs
    moved(fencing)


@pytest.mark.variation
def test_a_second_operator_who_does_not_wait_is_refused(fencing: Fencing) -> None:
    scene = fencing.scene
    other = fencing.command(FAIL_OVER, node_fence_options={**LEASE, "lease_seconds": "60"})
    proxy = fencing.proxy = scene.cluster.proxy()
    process = subprocess.Popen(
        other, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=fencing.settings()
    )
    proxy.on("PATCH", WRITES, times=1, after=lambda: os.kill(process.pid, signal.SIGSTOP))
    scene.cluster.wait(lambda: fencing.lease, "the first run has the Lease", 60)
    fencing.proxy = None
    refused = fencing.fail_over(node_fence_options={**LEASE, "lease_timeout": "0"})
    assert refused.rc != 0 and "another run (" in refused.text, refused.text
    os.kill(process.pid, signal.SIGCONT)
    output, _nothing = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, output
    moved(fencing)
