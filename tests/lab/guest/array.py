# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An array for several nodes, on one of them: LIO, with a target for each node, which serves what
is published to that node. labctl makes the backings.

Standard library only, Python 3.9. Nothing of it outlives a boot.
"""

from __future__ import annotations

import fcntl
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

CORE = Path("/sys/kernel/config/target/core/fileio_0")
ISCSI = Path("/sys/kernel/config/target/iscsi")
IQN = "iqn.2026-01.test.lab:for-"
# Of the node's network card (image.py); the portals are two ports of it.
ADDRESS = "10.0.2.15"
PORTS = (3270, 3271)
# What the portals are called by the nodes.
PORTALS = Path("/run/lab-array-portals")
# LIO answers at LUN 0 even if nothing is mapped there.
FIRST = 1
ATTRIBUTES = {
    "authentication": 0,
    "demo_mode_write_protect": 0,
    "generate_node_acls": 1,
    "cache_dynamic_acls": 1,
}


def group(node: str) -> Path:
    """The portal group of a node's target."""
    return ISCSI / f"{IQN}{node}" / "tpgt_1"


def served(node: str) -> dict[int, str]:
    """What a node has: number -> backing."""
    found = {}
    for lun in (group(node) / "lun").iterdir():
        for entry in lun.iterdir():
            if entry.is_symlink():
                found[int(lun.name.rpartition("_")[2])] = entry.name
    return found


def start(portals: str, *nodes: str) -> None:
    """Make the targets; ``portals``, with commas in between, is what nodes log in to."""
    PORTALS.write_text(portals)
    for node in nodes:
        group(node).mkdir(parents=True)
        for name, value in ATTRIBUTES.items():
            (group(node) / "attrib" / name).write_text(str(value))
        for port in PORTS:
            (group(node) / f"np/{ADDRESS}:{port}").mkdir()
        (group(node) / "enable").write_text("1")


def stop() -> None:
    """Remove the targets."""
    for target in ISCSI.glob(f"{IQN}*"):
        node = target.name[len(IQN) :]
        for backing in served(node).values():
            unpublish(backing, node)
        (group(node) / "enable").write_text("0")
        for portal in (group(node) / "np").iterdir():
            portal.rmdir()
        group(node).rmdir()
        target.rmdir()


def publish(backing: str, node: str) -> None:
    """Serve a backing at the lowest number that is free: so the next one gets that of one that was
    taken away. Prints how the node finds it.
    """
    for target in ISCSI.glob(f"{IQN}*"):
        other = target.name[len(IQN) :]
        if other != node and backing in served(other).values():
            # CSI spec, ControllerPublishVolume Errors: "Volume published to another node".
            sys.exit(f"{backing} is published to {other}")
    numbers = {name: number for number, name in served(node).items()}
    number = numbers.get(backing, FIRST)
    if backing not in numbers:
        while number in numbers.values():
            number += 1
        lun = group(node) / f"lun/lun_{number}"
        lun.mkdir()
        (lun / backing).symlink_to(CORE / backing)
    said = {"iqn": f"{IQN}{node}", "portals": PORTALS.read_text(), "lun": str(number)}
    print(json.dumps(said))


def unpublish(backing: str, node: str) -> None:
    """Take it away; not there is as good."""
    for number, name in served(node).items():
        if name == backing:
            lun = group(node) / f"lun/lun_{number}"
            (lun / backing).unlink()
            lun.rmdir()


COMMANDS: dict[str, Callable[..., None]] = {
    "start": start,
    "stop": stop,
    "publish": publish,
    "unpublish": unpublish,
}


def main(command: str, arguments: Sequence[str]) -> None:
    """One at a time: a number is given to one backing only."""
    with Path("/run/lab-array.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if command == "served":
            print(json.dumps(served(*arguments)))
        else:
            COMMANDS[command](*arguments)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
