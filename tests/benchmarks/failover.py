# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long a failover takes: by the playbook, by hand, and by waiting for Kubernetes; and whether
the lost node could still write.

A node with an RBD image open is lost, on a real control plane and a real Ceph, and its pod's
replacement waits on another one. Measured from the first command until that pod runs; of the
playbook also from its decision, which is when the ledger of the fence is written. Bare calls are
the floor: what has to be done, by calls of the API and of Ceph, with nothing looked at or proven.
By hand are the commands that an operator types, one after the other, without the time to read,
think and type. Waiting is what remains when only the pod is deleted, by force: Kubernetes gives its
volume up after six minutes, and fences nothing. Prints seconds and ratios of one run; asserts
nothing. How long a node has to be lost before the runbook acts is left out: that is a choice. Run
with python -P: the folder has namesakes of the tests' modules.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from lab.ceph.cluster import Ceph
from lab.common import wait
from lab.kubernetes.api import path
from lab.kubernetes.build import CURRENT, VERSIONS
from lab.kubernetes.controlplane import ControlPlane
from support.cluster import LOCAL, fresh
from support.failover import ADDRESSES, NODE_A, NODE_B, SOON_LOST, Failover
from support.node import environment
from support.storage import fresh_storage

# The controller manager gives a volume up after 6 min; a pod that could not have it tries again
# within 2 min.
GIVE_UP = 600.0
A_WHILE = 2.0
# The task with which the playbook has decided, and where its callback notes when tasks ended.
DECISION = "record the intended fence in the ledger"
TIMES = Path(tempfile.gettempdir()) / f"storage-ops-task-times-{os.getpid()}"
# For one that nobody wants to wait for.
IMPATIENT = {"observation_seconds": 2, "accept_short_observation": True}


class Result(NamedTuple):
    """Seconds until the pod runs on B, and how many blocks A wrote in the two seconds after it;
    ``decided``: seconds since the decision, of the playbook alone.
    """

    seconds: float
    written: int
    decided: float


def by_playbook(scenario: Failover, **options: int) -> None:
    """The whole runbook."""
    TIMES.write_text("", encoding="utf-8")
    os.environ.update(
        ANSIBLE_CALLBACK_PLUGINS=str(Path(__file__).parent / "callbacks"),
        ANSIBLE_CALLBACKS_ENABLED="task_times",
        TASK_TIMES=str(TIMES),
    )
    ceph = scenario.storage.connection()
    role = {
        "ceph_host": "localhost",
        "grace_seconds": 1,
        **{f"ceph_{key}": value for key, value in ceph.items()},
        **options,
    }
    extra = {"target": NODE_A, **{f"node_fence_{key}": value for key, value in role.items()}}
    played = scenario.cluster.playbook("fail_over_volumes", user="admin", **extra)
    if played.rc:
        sys.exit(played.text)


def tasks() -> list[tuple[float, str, str]]:
    """When each task of the last playbook ended, its action and its name."""
    lines = TIMES.read_text(encoding="utf-8").splitlines() if TIMES.exists() else []
    fields = (line.split("\t", 2) for line in lines)
    return [(float(at), action, name) for at, action, name in fields]


def since_decision(begun: float) -> None:
    """Print what each module took since then."""
    for at, action, name in tasks():
        if at > begun and action.startswith("storage_ops.runbooks."):
            print(f"    {at - begun:6.1f} s  {action.rpartition('.')[2]:<18} {name}", flush=True)


def by_bare_calls(scenario: Failover) -> None:
    """Fence, see the watcher gone, taint the node, delete its pod by force."""
    ceph, image, api = scenario.storage.ceph, scenario.image(), scenario.api
    ceph.run("osd", "blocklist", "add", ADDRESSES[NODE_A], "31536000")
    scenario.cluster.wait(lambda: not scenario.watches(), f"no client has {image}")
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown"}
    taints = [*scenario.node()["spec"].get("taints", ()), {**taint, "effect": "NoExecute"}]
    api.merge(path("Node", NODE_A), {"spec": {"taints": taints}})
    for found in scenario.pods(NODE_A):
        api.delete(path("Pod", found["metadata"]["name"]), grace=0)


def by_hand(scenario: Failover) -> None:
    """Who has the image open, keep that out, see it gone, delete the pod, delete the attachment."""
    ceph, image = scenario.storage.ceph, scenario.image()
    ceph.rbd("status", image)
    ceph.run("osd", "blocklist", "add", ADDRESSES[NODE_A], "31536000")
    ceph.rbd("status", image)
    delete_pod(scenario)
    attachment = scenario.attachment()
    if attachment is not None:
        delete(
            scenario,
            {
                "api_version": "storage.k8s.io/v1",
                "kind": "VolumeAttachment",
                "name": attachment["metadata"]["name"],
            },
        )


def delete_pod(scenario: Failover) -> None:
    """By force, as a kubelet that has gone cannot confirm it."""
    for found in scenario.pods(NODE_A):
        named = {"kind": "Pod", "name": found["metadata"]["name"], "namespace": "default"}
        delete(scenario, {**named, "delete_options": {"gracePeriodSeconds": 0}})


def delete(scenario: Failover, options: Mapping[str, object]) -> None:
    """An ad-hoc command that deletes one object."""
    arguments = {"kubeconfig": str(scenario.cluster.kubeconfig()), "state": "absent", **options}
    command = [
        "ansible",
        "localhost",
        *LOCAL,
        "-m",
        "kubernetes.core.k8s",
        "-a",
        json.dumps(arguments),
    ]
    answer = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, env=environment()
    )
    if answer.returncode:
        sys.exit(answer.stdout + answer.stderr)


WAYS: dict[str, tuple[str, Callable[[Failover], None]]] = {
    "playbook": ("fail_over_volumes, defaults (61 s of looking)", by_playbook),
    "impatient": (
        "fail_over_volumes, 2 s of looking",
        lambda scenario: by_playbook(scenario, **IMPATIENT),
    ),
    "bare": ("by bare calls", by_bare_calls),
    "hand": ("by hand, no time to think", by_hand),
    "wait": ("only the pod deleted, then waiting", delete_pod),
}


def measure(scenario: Failover, way: Callable[[Failover], None]) -> Result:
    """One failover."""
    scenario.lose()
    scenario.wait_waiting()
    begun = time.monotonic()
    ends: list[float] = []
    waiter = threading.Thread(target=lambda: ends.append(running(scenario)))
    waiter.start()
    way(scenario)
    waiter.join()
    if not ends:
        sys.exit("the pod does not run on B")
    decisions = [at for at, _action, name in tasks() if at > begun and DECISION in name]
    decided = ends[0] - decisions[-1] if decisions else 0.0
    if decisions:
        since_decision(decisions[-1])
    before = scenario.content()
    time.sleep(A_WHILE)
    return Result(ends[0] - begun, scenario.content() - before, decided)


def running(scenario: Failover) -> float:
    """When the pod ran on B."""
    # Not more often: that would take the processor from what is measured.
    wait(lambda: running_on_b(scenario), "the pod runs on B", GIVE_UP, pause=0.2)
    return time.monotonic()


def running_on_b(scenario: Failover) -> bool:
    """One of its pods does."""
    return any(found["status"].get("phase") == "Running" for found in scenario.pods(NODE_B))


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", choices=VERSIONS, default=CURRENT)
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS))
    options = parser.parse_args()
    plane = ControlPlane("bench-failover", options.version, controller_manager_args=SOON_LOST)
    ceph = Ceph("bench-failover")
    results: dict[str, Result] = {}
    try:
        plane.start()
        for name in options.ways:
            text, way = WAYS[name]
            for storage in fresh_storage(ceph):
                for cluster in fresh(plane):
                    scenario = Failover(cluster, storage)
                    results[name] = measure(scenario, way)
                    scenario.close()
            seconds, written, decided = results[name]
            print(
                f"  {text:<46} {seconds:7.1f} s until the pod runs on B"
                + (f", {decided:.1f} s from the decision" if decided else "")
                + f"; A wrote {written} blocks in the 2 s after that",
                flush=True,
            )
    finally:
        plane.remove()
        ceph.remove()
        TIMES.unlink(missing_ok=True)
    if "bare" in results:
        for name in ("playbook", "impatient"):
            if name in results:
                own = results[name].decided - results["bare"].seconds
                print(f"  {WAYS[name][0]}: {own:.1f} s from the decision beyond the bare calls")
    if "playbook" in results:
        for name, result in results.items():
            if name != "playbook":
                print(
                    f"  ratio of {WAYS[name][0]} to the playbook with its defaults: "
                    f"{result.seconds / results['playbook'].seconds:.1f}"
                )


if __name__ == "__main__":
    main()
