# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Eight faults on a VM node, each treated by what people type, by a FAQ's steps, and by us.

The steps of vendors' FAQs are a script here. Prints a table: what residual was left, which volumes
lost paths that the array serves, which maps read another volume's data, which programs hung, and
the seconds. Asserts nothing. What a path reads is asked of the path itself, by a mark in the last
block of each volume; what it should read follows from what the array serves under its number.
Run with python -P: the folder has namesakes of the tests' modules.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from lab.common import LabError
from lab.vm import Vm
from support.node import Node

COLUMNS = (
    "fault",
    "by",
    "s",
    "residual left",
    "served paths lost",
    "reads another volume",
    "hangs",
)
# Seconds until a way counts as one that does not end.
LIMIT = 600.0
# Seconds for a read of one block. What has not come by then, hangs or fails.
READING = 8
# LUNs of the lab's array, in 4 KiB blocks.
LAST_BLOCK = (64 << 20) // 4096 - 1
PORTALS = ("127.0.0.1", "127.0.0.2")

# What an operator does by hand, a script: delete each failed path, flush each map that had one,
# look for what is there now.
BY_STEPS = r"""
multipath -ll
failed=$(multipath -ll | grep -E ' (failed|faulty) ' | grep -oE ' sd[a-z]+ ')
maps=$(for disk in $failed; do
    ls /sys/block/$disk/holders | while read -r dm; do cat /sys/block/$dm/dm/name; done
done | sort -u)
for disk in $failed; do echo 1 > /sys/block/$disk/device/delete; done
for map in $maps; do multipath -f $map; done
for host in /sys/class/scsi_host/host*; do echo '- - -' > $host/scan; done
multipath -ll
"""


@dataclass(frozen=True)
class Look:
    """A node at one moment.

    ``residual``: maps and disks that were found as something that the array does not serve there.
    ``right``: by volume, the SCSI addresses of its paths in its map. ``wrong``: maps with a path
    that reads another volume. ``hung``: programs in D state.
    """

    residual: list[str]
    right: dict[str, set[str]]
    wrong: list[str]
    hung: list[str]


@dataclass(frozen=True)
class Treated:
    """What a way came to. ``seconds``: None if it did not end."""

    seconds: float | None
    before: Look
    after: Look

    def cells(self) -> list[str]:
        """Seconds, left, lost, wrong, hung; each empty where there is nothing to say."""
        before, after = self.before, self.after
        lost = [
            f"{volume} ({len(paths - after.right.get(volume, set()))} of {len(paths)})"
            for volume, paths in sorted(before.right.items())
            if paths - after.right.get(volume, set())
        ]
        seconds = f"{self.seconds:.0f}" if self.seconds is not None else f"no end in {LIMIT:.0f}"
        hung = [word for word in after.hung if word not in before.hung]
        return [seconds, *(", ".join(words) for words in (after.residual, lost, after.wrong, hung))]


# the faults


def mark(node: Node, backing: str) -> None:
    """Write into the last block of a volume which one it is."""
    file = f"/var/lib/lab/luns/{backing}"
    write = f"dd of={file} bs=4096 seek={LAST_BLOCK} conv=notrunc status=none"
    node.sh(f"printf 'volume {backing}' | {write}")


def mount(node: Node, lun: int) -> None:
    """Mount the map of a LUN."""
    device = f"/dev/mapper/{node.map_of(lun)[0]}"
    node.sh(f"mkfs.ext4 -q {device} && mkdir -p /mnt/a && mount {device} /mnt/a")
    mark(node, f"lun{lun}")


def dead(node: Node, mounted: bool = False) -> None:
    """The array no longer serves LUN 2."""
    if mounted:
        mount(node, 2)
    node.unmap(2)


def reused(node: Node, mounted: bool = False) -> None:
    """The array has given the number 2 to another volume."""
    if mounted:
        mount(node, 2)
    node.labctl("lun new other 64")
    mark(node, "other")
    node.labctl("lun unmap 2")
    node.labctl("lun map 2 other")
    wait_for_ready_paths(node, 8)


def swapped(node: Node) -> None:
    """The array has exchanged the numbers 1 and 2."""
    for lun in (1, 2):
        node.labctl(f"lun unmap {lun}")
    for lun, other in ((1, 2), (2, 1)):
        node.labctl(f"lun map {lun} lun{other}")
    wait_for_ready_paths(node, 8)


def outage(node: Node, portals: tuple[str, ...]) -> None:
    """These portals are silent; maps queue, as arrays' documentation asks for."""
    node.queue()
    for portal in portals:
        node.labctl(f"portal down {portal}")
    wait_for_ready_paths(node, 4 * (len(PORTALS) - len(portals)))


def offline(node: Node) -> None:
    """The kernel has set one disk offline, as after too many errors."""
    node.sh(f"echo offline > /sys/block/{node.paths_of(2)[0]}/device/state")
    wait_for_ready_paths(node, 7)


def wait_for_ready_paths(node: Node, count: int) -> None:
    """Wait until multipathd calls so many paths ready."""

    def ready() -> bool:
        seen = node.sh("multipathd show paths raw format %T", check=False)
        return seen.count("ready") == count

    node.wait(ready, f"{count} paths are ready", 180)


FAULTS: dict[str, tuple[str, Callable[[Node], None]]] = {
    "dead": ("LUN unmapped, map unused", dead),
    "dead-mounted": ("LUN unmapped, map mounted", lambda node: dead(node, mounted=True)),
    "reused": ("LUN number reused, map unused", reused),
    "reused-mounted": ("LUN number reused, map mounted", lambda node: reused(node, mounted=True)),
    "swapped": ("two LUN numbers swapped, maps unused", swapped),
    "portal": ("one of two portals silent", lambda node: outage(node, PORTALS[1:])),
    "outage": ("both portals silent", lambda node: outage(node, PORTALS)),
    "offline": ("one disk set offline by the kernel", offline),
}


# the ways


def in_background(node: Node, script: str) -> float | None:
    """Run a script on the node; its seconds, None if it does not end.

    Nothing waits for a process in D state.
    """
    node.vm.run("cat > /run/way.sh", stdin=f"{script}\n")
    begun = time.monotonic()
    both = "sh /run/way.sh; touch /run/way.end"
    node.sh(f"setsid sh -c '{both}' > /run/way.log 2>&1 < /dev/null & true")
    while node.sh("ls /run/way.end", check=False) == "":
        if time.monotonic() - begun > LIMIT:
            return None
        time.sleep(1)
    return time.monotonic() - begun


def by_us(node: Node) -> float | None:
    """The module with its defaults."""
    begun = time.monotonic()
    outcome = node.ansible("multipath_residual")
    seconds = time.monotonic() - begun
    for finding in outcome.findings:
        words = [finding["object"]["name"], finding["verdict"], finding["reason"]]
        print("   ", *words, file=sys.stderr)
    return seconds


RESCAN = "rescan-scsi-bus.sh -r -m"
WAYS: dict[str, tuple[str, Callable[[Node], float | None]]] = {
    "rescan": (f"`{RESCAN}`", lambda node: in_background(node, RESCAN)),
    "steps": ("the FAQ's steps", lambda node: in_background(node, BY_STEPS)),
    "us": ("this collection", by_us),
}


# what became of it


def read_marks(node: Node, disks: list[str]) -> dict[str, str]:
    """Which volume each disk reads (``lun1``); without those that do not answer."""
    ask = f"dd if=/dev/$0 bs=4096 skip={LAST_BLOCK} count=1 iflag=direct 2> /dev/null"
    read = shlex.quote(f"{ask} | head -c 20 | tr -d '\\0' > /run/mark.$0")
    quietly = "> /dev/null 2>&1 < /dev/null &"
    script = "".join(f"setsid sh -c {read} {disk} {quietly}\n" for disk in disks)
    node.vm.run("sh", stdin=f"rm -f /run/mark.*\n{script}sleep {READING}\n")
    lines = node.sh("grep -H volume /run/mark.*", check=False).splitlines()
    return {line.partition(":")[0].rpartition(".")[2]: line.rpartition(" ")[2] for line in lines}


def look(node: Node) -> Look:
    """What there is now, judged by what the array serves."""
    state = node.state()
    luns = {number: entry["wwid"] for number, entry in state["luns"].items()}
    known = [*node.vm.begun["luns"].values(), *state["luns"].values()]
    names = {entry["wwid"]: entry["backing"] for entry in known}
    disks = state["disks"]
    served = {disk: luns.get(disks[disk]["hctl"].rpartition(":")[2], "") for disk in disks}
    # A read of any other path would hang.
    paths = [item for found in state["maps"].values() for item in found["paths"].items()]
    marks = read_marks(node, [disk for disk, path in paths if "ready" in path["checker_state"]])
    residual, wrong, right = [], [], {}
    for wwid, found in state["maps"].items():
        volume = names.get(wwid, wwid)
        right[volume] = {disks[disk]["hctl"] for disk in found["paths"] if served[disk] == wwid}
        if not found["paths"] or any(served[disk] != wwid for disk in found["paths"]):
            residual.append(found["name"])
        other = {marks[disk] for disk in found["paths"] if disk in marks} - {volume}
        wrong += [f"{found['name']} of {volume} reads {name}" for name in sorted(other)]
    in_maps = {disk for disk, _path in paths}
    plain = [disk for disk in disks if disk not in in_maps]
    residual += [disk for disk in plain if served[disk] != disks[disk]["wwid"]]
    programs = node.sh("ps -o state=,comm= --ppid 2 -p 2 --deselect", check=False).splitlines()
    hung = {line.split()[1] for line in programs if line.startswith("D")}
    return Look(sorted(residual), right, sorted(wrong), sorted(hung))


def treat(vm: Vm, fault: str, way: str) -> Treated:
    """One fault, one way, on a fresh node."""
    vm.reset()
    node = Node(vm)
    for lun in vm.begun["luns"].values():
        mark(node, lun["backing"])
    FAULTS[fault][1](node)
    before = look(node)
    seconds = WAYS[way][1](node)
    return Treated(seconds, before, look(node))


def versions(vm: Vm) -> str:
    """Of what took part."""
    ask = "dpkg-query -W -f '${Package} ${Version}, ' multipath-tools sg3-utils open-iscsi"
    return vm.run(f"{ask}; uname -r").stdout.strip()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", nargs="*", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS))
    options = parser.parse_args()
    vm = Vm("bench-compare")
    vm.up()
    try:
        print(f"{vm.release}: {versions(vm)}")
        print(f"| {' | '.join(COLUMNS)} |")
        print(f"|{'---|' * len(COLUMNS)}", flush=True)
        for fault in options.faults:
            for way in options.ways:
                try:
                    cells = treat(vm, fault, way).cells()
                except LabError as error:
                    cells = ["", f"NOT MEASURED: {json.dumps(str(error)[:200])}", "", "", ""]
                print(f"| {' | '.join([FAULTS[fault][0], WAYS[way][0], *cells])} |", flush=True)
    finally:
        vm.stop()


if __name__ == "__main__":
    main()
