# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long a failover takes: by the playbook, by hand, and by waiting for Kubernetes; and whether
the lost node could still write.

A node with an RBD image open is lost, on a real control plane and a real Ceph, and its pod's
replacement waits on another one. Measured from the first command to the volume's attachment there.
By hand are the commands that an operator types, one after the other, without the time to read,
think and type. Waiting is what remains when only the pod is deleted, by force: Kubernetes gives its
volume up after six minutes, and fences nothing. Prints seconds and ratios of one run; asserts
nothing. How long a node has to be lost before the runbook acts is left out: that is a choice. Run
with python -P: the folder has namesakes of the tests' modules.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from lab.ceph.cluster import Ceph
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
# For one that nobody wants to wait for.
IMPATIENT = {"observation_seconds": 2, "accept_short_observation": True}


class Result(NamedTuple):
    """Seconds until B's attachment, and how many blocks A wrote in the two seconds after it."""

    seconds: float
    written: int


def by_playbook(scenario: Failover, **options: int) -> None:
    """The whole runbook."""
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
    "hand": ("by hand, no time to think", by_hand),
    "wait": ("only the pod deleted, then waiting", delete_pod),
}


def measure(scenario: Failover, way: Callable[[Failover], None]) -> Result:
    """One failover."""
    scenario.lose()
    scenario.wait_waiting()
    begun = time.monotonic()
    way(scenario)
    scenario.cluster.wait(lambda: scenario.attached(NODE_B), "B has the volume", GIVE_UP)
    seconds = time.monotonic() - begun
    before = scenario.content()
    time.sleep(A_WHILE)
    return Result(seconds, scenario.content() - before)


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
            seconds, written = results[name]
            print(
                f"  {text:<46} {seconds:7.1f} s until B has the volume; A wrote {written} blocks "
                "in the 2 s after that",
                flush=True,
            )
    finally:
        plane.remove()
        ceph.remove()
    if "playbook" in results:
        for name, result in results.items():
            if name != "playbook":
                print(
                    f"  ratio of {WAYS[name][0]} to the playbook with its defaults: "
                    f"{result.seconds / results['playbook'].seconds:.1f}"
                )


if __name__ == "__main__":
    main()
