# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`python -m lab`: the VM nodes, the control planes, the kind clusters and the Ceph clusters from a
shell, a playbook or a Makefile.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from . import faults, qemu, runs
from .ceph.cluster import Ceph, existing_cephs
from .common import DEFAULT_RELEASE, RELEASES, LabError, cache_dir, say, step
from .image import image
from .kind.buckets import start_with
from .kind.build import attacher as csi_attacher
from .kind.build import driver as csi_driver
from .kind.build import node_programs
from .kind.build import provisioner as csi_provisioner
from .kind.cluster import Kind, existing_kinds
from .kind.csi import Driver
from .kind.engine import Engine
from .kind.node_image import node_image
from .kind.python_image import python_image
from .kubelet import node as kubelet
from .kubernetes.api import Object
from .kubernetes.attacher import Attacher
from .kubernetes.build import CURRENT, OLD, PARTS, VERSIONS, Unavailable, binaries, current
from .kubernetes.controlplane import USERS, ControlPlane, existing_planes, lost_after
from .kubernetes.kubelets import lose, reboot, serve
from .kubernetes.process import Process
from .vm import SSH_OPTIONS, Vm, existing

KIND_PROGRAMS = {
    "kind": node_programs,
    "csi-driver": csi_driver,
    "csi-attacher": csi_attacher,
    "csi-provisioner": csi_provisioner,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="lab",
        description="VM nodes with real iSCSI and multipath; Kubernetes control planes; clusters "
        "made by kind; Ceph.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str, vm: bool = True) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text)
        if vm:
            made.add_argument("name", metavar="NAME")
        made.add_argument(
            "--release",
            choices=RELEASES,
            help=f"default: that of the node NAME if there is one, else {DEFAULT_RELEASE}",
        )
        return made

    command("image", "build the image unless the cache has it; prints its folder", vm=False)
    command("up", "make a node run in its ready state")
    command("reset", "the same, named for what a test wants")
    command("reboot", "power loss and boot")
    stop = commands.add_parser("stop", help="power a node off, or all")
    stop.add_argument("name", metavar="NAME", nargs="?", default="")
    stop.add_argument("--all", action="store_true")
    command("ssh", "a shell on the node, or a command after --").add_argument(
        "argv", nargs=argparse.REMAINDER, metavar="-- CMD"
    )
    command("inventory", "write an inventory with the node as node1; prints its path").add_argument(
        "--output", type=Path
    )
    listed = [
        "reuse-lun N: another volume gets LUN N's number",
        *(f"{name} {text}" for name, (_labctl, text) in faults.FAULTS.items()),
    ]
    fault = commands.add_parser("fault", help="break something", epilog="; ".join(listed))
    fault.add_argument("name", metavar="NAME")
    fault.add_argument("fault", metavar="FAULT")
    fault.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARG")
    fault.add_argument("--release", choices=RELEASES)
    commands.add_parser("status", help="the nodes there are")
    commands.add_parser("prepare", help="build all that tests need, unless the cache has it")
    _add_cluster(commands.add_parser("cluster", help="Kubernetes control planes"))
    _add_kind(commands.add_parser("kind", help="clusters with real kubelets, made by kind"))
    _add_ceph(commands.add_parser("ceph", help="Ceph clusters"))

    commands.add_parser("sweep", help="end and remove what killed runs of the tests have left")

    options = parser.parse_args()
    runs.outlive()
    try:
        return _run(options)
    except LabError as exc:
        say(str(exc))
        return 1


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, text: str) -> argparse.ArgumentParser:
        made = actions.add_parser(name, help=text)
        made.add_argument("name", metavar="NAME")
        made.add_argument(
            "--version",
            choices=VERSIONS,
            help=f"default: that of the one called NAME if there is one, else {CURRENT}",
        )
        return made

    up = action(
        "up",
        "start an empty one, with an attacher, that outlives this command; prints the path of an "
        "administrator's kubeconfig",
    )
    up.add_argument(
        "--node",
        action="append",
        default=[],
        metavar="NODE",
        help="a node with a stand-in for its kubelet",
    )
    up.add_argument(
        "--driver",
        action="append",
        default=[],
        metavar="DRIVER",
        help="a CSI driver of these nodes",
    )
    up.add_argument(
        "--lost-after",
        type=int,
        metavar="SECONDS",
        help="a silent node's Ready is Unknown then; default: that of Kubernetes",
    )
    for name, text in (
        ("lose", "a node's kubelet falls silent; returns when Kubernetes knows"),
        ("reboot", "a node is back, with another bootID; returns when it is Ready"),
    ):
        action(name, text).add_argument("node", metavar="NODE")
    action("kubeconfig", "prints the path of a kubeconfig").add_argument(
        "--user", default="admin", help=", ".join(USERS)
    )
    action("stop", "end it, and delete its folder")
    action("serve", "the attacher and the kubelets, in the foreground; part of up").add_argument(
        "--node", action="append", default=[]
    )
    actions.add_parser("stop-all", help="the same with every one there is")
    actions.add_parser("status", help="the control planes there are")


def _add_kind(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, text: str) -> argparse.ArgumentParser:
        made = actions.add_parser(name, help=text)
        made.add_argument("name", metavar="NAME")
        return made

    up = action(
        "up",
        "start one with two workers that outlives this command, in a Docker engine of its own; "
        "prints the path of an administrator's kubeconfig",
    )
    up.add_argument(
        "--driver",
        action="store_true",
        help="with a CSI driver on both workers, and the external-attacher",
    )
    up.add_argument(
        "--bucket",
        default="",
        help="with a CSI driver whose volumes are buckets, and an S3 server that has this one",
    )
    action("down", "end it, and delete its folder")
    action(
        "inventory", "write an inventory: its workers, and where its kubeconfig is"
    ).add_argument("--output", type=Path, required=True)
    action("docker", "run docker with its engine; arguments after --").add_argument(
        "argv", nargs=argparse.REMAINDER, metavar="-- ARGUMENT"
    )
    actions.add_parser("down-all", help="the same with every one there is")
    actions.add_parser("status", help="the kind clusters there are")
    actions.add_parser("prepare", help="build what they need, unless the cache has it")


def _add_ceph(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in (
        ("up", "start an empty one that outlives this command; prints its ceph.conf"),
        ("stop", "end it, and delete its folder"),
    ):
        actions.add_parser(name, help=text).add_argument("name", metavar="NAME")
    actions.add_parser("stop-all", help="the same with every one there is")
    actions.add_parser("status", help="the Ceph clusters there are")


def prepare(parts: Mapping[str, Callable[[], object]]) -> int:
    """Build one after the other, whatever becomes of those before.

    Returns 1 when one failed; what cannot be had on this machine has not failed.
    """
    failed = False
    for name, build in parts.items():
        try:
            with step(f"prepare {name}"):
                build()
        except Unavailable as exc:
            say(f"prepare {name}: NOT AVAILABLE here: {exc}")
        except LabError as exc:
            say(f"prepare {name}: FAILED: {exc}")
            failed = True
    return int(failed)


def _all_parts() -> dict[str, Callable[[], object]]:
    """What the suites need, but for the image of kind's nodes: it takes one processor minutes of
    which only the tests on kind clusters have any use.
    """
    return {
        f"node {DEFAULT_RELEASE}": Vm("prepare").prepare,
        # Before the control planes' programs: what is compiled for those is then compiled once.
        **_where_docker_runs(KIND_PROGRAMS),
        f"kubernetes {OLD}": lambda: binaries(OLD),
        **{f"{part.name} {CURRENT}": functools.partial(current, part) for part in PARTS},
        # Last: it has programs of both.
        "node with a kubelet": lambda: Vm("prepare").prepare(kubelet.state()),
    }


def kind_parts() -> dict[str, Callable[[], object]]:
    """What kind clusters and their tests need."""
    images = {"kind's node": node_image, "an image with Python": python_image}
    return _where_docker_runs({**KIND_PROGRAMS, **images})


def _where_docker_runs(
    parts: Mapping[str, Callable[[], object]],
) -> dict[str, Callable[[], object]]:
    """The same, but not built on a machine that could not run them."""

    def built(build: Callable[[], object]) -> None:
        Engine.check_machine()
        build()

    return {name: functools.partial(built, build) for name, build in parts.items()}


def _ceph(options: argparse.Namespace) -> int:
    if options.action == "status":
        for ceph in existing_cephs():
            print(f"{ceph.name}\t{'running' if ceph.running else 'stopped'}\t{ceph.conf}")
    elif options.action == "stop-all":
        for ceph in existing_cephs():
            ceph.remove()
    elif options.action == "stop":
        Ceph(options.name, tied=False).remove()
    elif options.action == "up":
        ceph = Ceph(options.name, tied=False)
        ceph.start()
        print(ceph.conf)
    return 0


def _kind(options: argparse.Namespace) -> int:
    if options.action == "status":
        for kind in existing_kinds():
            state = "running" if kind.running else "stopped"
            print(f"{kind.name}\t{state}\tport {kind.port()}\t{kind.folder}")
    elif options.action == "down-all":
        for kind in existing_kinds():
            kind.remove()
    elif options.action == "prepare":
        return prepare(kind_parts())
    elif options.action == "down":
        Kind(options.name, tied=False).remove()
        Ceph(options.name, tied=False).remove()
    elif options.action == "inventory":
        options.output.write_text(json.dumps(_inventory(Kind(options.name, tied=False))))
    elif options.action == "docker":
        engine = Kind(options.name, tied=False).engine
        argv = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
        sys.stdout.flush()
        os.execvpe("docker", ["docker", *argv], engine.environment)
    elif options.action == "up":
        kind = Kind(options.name, tied=False)
        kind.start()
        if options.driver:
            Driver(kind).start()
        if options.bucket:
            start_with(kind, options.bucket)
        print(kind.kubeconfig())
    return 0


def _inventory(kind: Kind) -> Object:
    workers = {"hosts": kind.hosts(*kind.workers)}
    # Whoever runs Ansible: the implicit one would not have the variable.
    own = {"ansible_connection": "local"}
    own["ansible_python_interpreter"] = "{{ ansible_playbook_python }}"
    known = {"kubeconfig": str(kind.kubeconfig())}
    return {"all": {"vars": known, "hosts": {"localhost": own}, "children": {"workers": workers}}}


def _cluster(options: argparse.Namespace) -> int:
    if options.action == "stop-all":
        for plane in existing_planes():
            plane.remove()
        return 0
    if options.action == "status":
        for plane in existing_planes():
            state = "running" if plane.running else "stopped"
            print(
                f"{plane.name}\t{plane.version}\t{plane.number}\t{state}\tport "
                f"{plane.port()}\t{plane.folder}"
            )
        return 0
    plane = ControlPlane(
        options.name,
        options.version or _version_of(options.name, options.action == "up"),
        tied=False,
    )
    if options.action == "up":
        _cluster_up(plane, options)
    elif options.action == "serve":
        with Attacher(plane.api()):
            serve(plane, options.node)
    elif options.action == "lose":
        lose(plane, options.node)
    elif options.action == "reboot":
        reboot(plane, options.node)
    elif options.action == "kubeconfig":
        print(plane.kubeconfig(options.user))
    elif options.action == "stop":
        plane.remove()
    return 0


def _cluster_up(plane: ControlPlane, options: argparse.Namespace) -> None:
    if options.lost_after:
        plane.controller_manager_args += lost_after(options.lost_after)
    plane.start()
    for node in options.node:
        plane.api().add_node(node, *options.driver)
        plane.api().boot(node)
    serving = [sys.executable, "-m", "lab", "cluster", "serve", plane.name]
    Process(plane.folder, "stand-ins").start(
        [*serving, "--version", plane.version, *(f"--node={node}" for node in options.node)],
        tied=False,
    )
    print(plane.kubeconfig())


def _version_of(name: str, new: bool) -> str:
    """The version of the control plane of that name, of which there must be one unless it is to be
    made.
    """
    there = [plane.version for plane in existing_planes() if plane.name == name]
    if len(there) > 1:
        raise LabError(f"there are several control planes {name}: add --version {'|'.join(there)}")
    if not there and not new:
        raise LabError(f"there is no control plane {name}: see the status of all")
    return there[0] if there else CURRENT


def _run(options: argparse.Namespace) -> int:
    if options.command == "cluster":
        return _cluster(options)
    if options.command == "kind":
        return _kind(options)
    if options.command == "ceph":
        return _ceph(options)
    if options.command == "status":
        for vm in existing():
            print(
                f"{vm.name}\t{vm.release}\t{'running' if vm.running else 'stopped'}\tport "
                f"{vm.port}\t{vm.path}"
            )
        return 0
    if options.command == "prepare":
        return prepare(_all_parts())
    if options.command == "image":
        print(image(options.release or DEFAULT_RELEASE).path)
        return 0
    if options.command == "stop":
        if bool(options.name) == options.all:
            raise LabError("stop: either NAME or --all")
        for vm in existing(options.name):
            vm.stop()
        if options.all:
            # Those of older recipes, too.
            for pidfile in (cache_dir() / "vms").glob("*/qemu.pid"):
                qemu.stop(pidfile)
        return 0
    if options.command == "sweep":
        runs.sweep()
        return 0
    vm = _node(options.name, options.release)
    if options.command in ("up", "reset", "reboot"):
        getattr(vm, options.command)()
    elif options.command == "ssh":
        argv = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
        sys.stdout.flush()
        os.execvp(
            "ssh",
            [
                "ssh",
                *SSH_OPTIONS,
                "-i",
                str(vm.image.ssh_key),
                "-p",
                str(vm.port),
                "root@127.0.0.1",
                *argv,
            ],
        )
    elif options.command == "inventory":
        print(vm.inventory(options.output))
    elif options.command == "fault":
        answer = faults.inject(vm, options.fault, *options.arguments)
        print(answer, end="\n" if answer else "")
    return 0


def _node(name: str, release: str | None) -> Vm:
    if release:
        return Vm(name, release)
    there = existing(name)
    if len(there) > 1:
        raise LabError(
            f"there are several nodes {name}: add --release {'|'.join(vm.release for vm in there)}"
        )
    return there[0] if there else Vm(name)


if __name__ == "__main__":
    sys.exit(main())
