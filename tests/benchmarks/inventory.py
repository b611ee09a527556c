# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the nodes of a big cluster cost as an inventory, against the two k8s_info tasks that an
operator's playbook needs to read the same, before it has made a host of any of them.

Compared with a static inventory of the same hosts as well, which somebody would have to maintain.
5,000 nodes with their drivers in a real API server. Prints seconds (what Ansible itself needs to
start is taken off), the memory of the biggest process, the seconds that curl takes for the same
lists, which is the limit, and ratios of one run; asserts nothing but that all nodes are there.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from cluster import Cost, by_curl, cost, run
from lab.kubernetes import load
from lab.kubernetes.build import CURRENT, VERSIONS
from lab.kubernetes.controlplane import ControlPlane
from support.node import environment

LISTS = [
    "/api/v1/nodes?resourceVersion=0",
    "/apis/storage.k8s.io/v1/csinodes?resourceVersion=0",
]
BY_HAND = [("v1", "Node"), ("storage.k8s.io/v1", "CSINode")]
SOURCE = """
plugin: storage_ops.runbooks.nodes
keyed_groups: [{prefix: version, key: kubernetes_node.kubelet_version}]
"""


def listed(kubeconfig: Path, source: Path, *options: str, **more: str) -> Cost:
    """What it costs to have all hosts with their variables; they are in ``out.yml`` afterwards."""
    command = ["ansible-inventory", "-i", str(source), "--list", *options]
    command += ["--output", str(source.with_name("out.yml"))]
    return cost(command, kubeconfig, ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED="true", **more)


def check(kubeconfig: Path, source: Path, nodes: int) -> None:
    """What was measured is the whole cluster."""
    group = "driver_csi_bulk_example_com"
    done = subprocess.run(
        ["ansible", "-i", str(source), group, "--list-hosts"],
        env={**environment(), "K8S_AUTH_KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        check=True,
    )
    if f"hosts ({nodes})" not in done.stdout:
        sys.exit(f"these are not {nodes} nodes: {done.stdout[:1000]} {done.stderr[:1000]}")


def show(what: str, found: Cost, seconds: float) -> None:
    """One line."""
    print(f"  {what:40} {seconds:7.1f} s {found.megabytes:6.0f} MB", flush=True)


def measure(plane: ControlPlane, folder: Path, nodes: int) -> None:
    """The lines of one cluster."""
    kubeconfig = plane.kubeconfig()
    source, nothing = folder / "nodes.storage_ops.yml", folder / "hosts.yml"
    source.write_text(SOURCE, encoding="utf-8")
    nothing.write_text("all: {hosts: {localhost: }}\n", encoding="utf-8")
    check(kubeconfig, source, nodes)
    start = listed(kubeconfig, nothing)
    show("ansible-inventory with localhost alone", start, start.seconds)
    made = listed(kubeconfig, source)
    seconds = made.seconds - start.seconds
    show("the inventory plugin", made, seconds)
    # The first run fills the cache.
    source.write_text(f"{SOURCE}cache: true\n", encoding="utf-8")
    cache = {
        "ANSIBLE_CACHE_PLUGIN": "ansible.builtin.jsonfile",
        "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(folder / "cache"),
    }
    listed(kubeconfig, source, **cache)
    cached = listed(kubeconfig, source, **cache)
    show("the same from its cache", cached, cached.seconds - start.seconds)
    # What Ansible itself needs for so many hosts.
    listed(kubeconfig, source, "--yaml")
    written = source.with_name("out.yml").rename(folder / "written.yml")
    static = listed(kubeconfig, written)
    show("the same hosts from a file of YAML", static, static.seconds - start.seconds)
    play = run(kubeconfig, [{"ansible.builtin.ping": {}}])
    tasks = [
        {"kubernetes.core.k8s_info": {"api_version": version, "kind": kind}}
        for version, kind in BY_HAND
    ]
    hand = run(kubeconfig, tasks)
    show("2 tasks with kubernetes.core.k8s_info", hand, hand.seconds - play.seconds)
    curl = by_curl(plane, LISTS)
    print(f"  the same lists by curl                   {curl:7.1f} s")
    ratio = (hand.seconds - play.seconds) / seconds
    print(
        f"  ratio of the tasks to the plugin: {ratio:.1f} in time, "
        f"{hand.megabytes / made.megabytes:.1f} in memory; of the plugin to curl: "
        f"{seconds / curl:.1f}"
    )


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", choices=VERSIONS, default=CURRENT)
    parser.add_argument("--nodes", type=int, default=5_000)
    options = parser.parse_args()
    print(f"{options.nodes} nodes")
    # The nodes have no kubelets, so a controller manager would call them lost.
    plane = ControlPlane(
        "bench-inventory", options.version, controller_manager=False, scheduler=False
    )
    plane.start()
    try:
        load.fill(plane, load.Load(options.nodes, volumes=1, pods=1))
        with tempfile.TemporaryDirectory() as folder:
            measure(plane, Path(folder), options.nodes)
    finally:
        plane.remove()


if __name__ == "__main__":
    main()
