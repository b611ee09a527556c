# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`python -m lab`: the VM nodes from a shell, a playbook or a Makefile."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from . import faults
from .common import DEFAULT_RELEASE, RELEASES, LabError, say
from .image import image
from .vm import SSH_OPTIONS, Vm, existing


def main() -> int:
    parser = argparse.ArgumentParser(prog="lab", description="VM nodes with real iSCSI and multipath.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str, vm: bool = True) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text)
        if vm:
            made.add_argument("name", metavar="NAME")
        made.add_argument("--release", choices=RELEASES, help=f"default: that of the node NAME if there is one, else {DEFAULT_RELEASE}")
        return made

    command("image", "build the image unless the cache has it; prints its folder", vm=False)
    command("up", "make a node run in its ready state")
    command("reset", "the same, named for what a test wants")
    command("reboot", "power loss and boot")
    stop = commands.add_parser("stop", help="power a node off, or all")
    stop.add_argument("name", metavar="NAME", nargs="?", default="")
    stop.add_argument("--all", action="store_true")
    command("ssh", "a shell on the node, or a command after --").add_argument("argv", nargs=argparse.REMAINDER, metavar="-- CMD")
    command("inventory", "write an inventory with the node as node1; prints its path").add_argument("--output", type=Path)
    listed = ["reuse-lun N: another volume gets LUN N's number", *(f"{name} {text}" for name, (_labctl, text) in faults.FAULTS.items())]
    fault = commands.add_parser("fault", help="break something", epilog="; ".join(listed))
    fault.add_argument("name", metavar="NAME")
    fault.add_argument("fault", metavar="FAULT")
    fault.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARG")
    fault.add_argument("--release", choices=RELEASES)
    commands.add_parser("status", help="the nodes there are")

    options = parser.parse_args()
    try:
        return _run(options)
    except LabError as exc:
        say(str(exc))
        return 1


def _run(options: argparse.Namespace) -> int:
    if options.command == "status":
        for vm in existing():
            print(f"{vm.name}\t{vm.release}\t{'running' if vm.running else 'stopped'}\tport {vm.port}\t{vm.path}")
        return 0
    if options.command == "image":
        print(image(options.release or DEFAULT_RELEASE).path)
        return 0
    if options.command == "stop":
        if bool(options.name) == options.all:
            raise LabError("stop: either NAME or --all")
        for vm in existing(options.name):
            vm.stop()
        return 0
    vm = _node(options.name, options.release)
    if options.command in ("up", "reset", "reboot"):
        getattr(vm, options.command)()
    elif options.command == "ssh":
        argv = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
        sys.stdout.flush()
        os.execvp("ssh", ["ssh", *SSH_OPTIONS, "-i", str(vm.image.ssh_key), "-p", str(vm.port), "root@127.0.0.1", *argv])
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
        raise LabError(f"there are several nodes {name}: add --release {'|'.join(vm.release for vm in there)}")
    return there[0] if there else Vm(name)


if __name__ == "__main__":
    sys.exit(main())
