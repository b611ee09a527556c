# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node with an array for unit tests: a tree of files, and as much of the kernel and of multipathd
as removing a disk meets.

What multipathd does here is what makes a swap dangerous: a new disk joins the map of its WWID,
whatever the other paths read by now.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, Callable

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    CommandResult,
    Deadline,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import Finding, run
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.scsi import Answer
from ansible_collections.storage_ops.runbooks.plugins.module_utils._residual_paths.model import (
    ResidualOptions,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._residual_paths.runbook import (
    ResidualPaths,
)

TARGETS = ("6:0:0", "7:0:0")
TENANT = "9:0:0"
_ROOT_MOUNT = "22 1 254:1 / / rw - ext4 /dev/vda1 rw"


def wwid(volume: int) -> str:
    """Of a volume of the array; from 100 on, of a tenant's server, which is of another maker."""
    return f"36{'666666' if volume >= 100 else '001405'}{volume:025d}"


class StorageNode(Host):
    """Volumes 1.. under the LUN numbers 1.., each over two sessions in a map mpath1, mpath2, ...

    ``array``: (target, LUN number) -> volume. ``answers``: what a disk answers in place of the
    truth. ``steps``: called with each command before it is run. ``said``: what a command says in
    place of what it does. ``commands``: all that were run. ``claimed``: devices that another has
    opened exclusively. ``claims``: devices that we have opened. ``asked``: disks that we have
    asked; ``owners``: whose turns that used up. ``hung``: devices that do not answer when they are
    opened. ``stubborn``: SCSI addresses that the kernel does not let go of. ``deaf``: targets where
    a scan finds nothing. ``scanned``: SCSI addresses that were. ``found``: (target, LUN number) ->
    volume that a scan finds there in place of what ``array`` has. ``links``: of /dev/disk/by-id,
    which udev does not tidy up.
    """

    def __init__(self, root: Path, volumes: int = 4, seconds: float = 600) -> None:
        super().__init__(Deadline(seconds), 5, str(root))
        self.root = root
        self.array = {(target, lun): lun for target in TARGETS for lun in range(1, volumes + 1)}
        self.answers: dict[str, Answer] = {}
        self.steps: list[Callable[[list[str]], None]] = []
        self.said: dict[str, tuple[int, str]] = {}
        self.commands: list[str] = []
        self.queueing: set[str] = set()
        self.opened: dict[str, int] = {}
        self.claimed: set[str] = set()
        self.claims: list[str] = []
        self.asked: set[str] = set()
        self.owners: dict[str, Hashable] = {}
        self.hung: set[str] = set()
        self.stubborn: set[str] = set()
        self.deaf: set[str] = set()
        self.scanned: list[str] = []
        self.found: dict[tuple[str, int], int] = {}
        self.links: dict[str, str] = {}
        for number, target in enumerate(TARGETS, 1):
            self.put(f"sys/class/iscsi_session/session{number}/state", "LOGGED_IN")
            (self.root / f"sys/class/scsi_host/host{target[0]}").mkdir(parents=True)
        self.mounts(_ROOT_MOUNT)
        for lun in range(1, volumes + 1):
            for target in TARGETS:
                self._add(target, lun)
        self.follow()

    # what tests do and see

    def swap(self, *luns: int, targets: Sequence[str] = TARGETS) -> None:
        """Each number gets the volume of the next one, and the last that of the first."""
        for target in targets:
            volumes = [self.array[target, lun] for lun in luns]
            self.array.update(
                {(target, lun): volume for lun, volume in zip(luns, [*volumes[1:], volumes[0]])}
            )

    def tenant(self, *volumes: int) -> None:
        """A tenant's own server, to which the node has one session: volumes under 1, 2, ..."""
        self.put("sys/class/iscsi_session/session3/state", "LOGGED_IN")
        (self.root / f"sys/class/scsi_host/host{TENANT[0]}").mkdir(parents=True)
        for lun, volume in enumerate(volumes, 1):
            self.array[TENANT, lun] = volume
            self._add(TENANT, lun)
        self.follow()

    def unmap(self, lun: int) -> None:
        for target in TARGETS:
            del self.array[target, lun]

    def mounts(self, *lines: str) -> None:
        """The mount table of the one process there is."""
        self.put("proc/1/mountinfo", "\n".join(lines))
        (self.root / "proc/1/fd").mkdir(exist_ok=True)
        (self.root / "proc/1/ns").mkdir(exist_ok=True)
        for link, target in (
            ("1/ns/mnt", "mnt:[1]"),
            ("1/root", "/"),
            ("1/exe", "/sbin/init"),
            ("self", "1"),
        ):
            if not (self.root / "proc" / link).is_symlink():
                (self.root / "proc" / link).symlink_to(target)

    def mount(self, name: str) -> None:
        """Mount a map."""
        self.mounts(
            _ROOT_MOUNT,
            f"23 22 {self.read(f'/sys/block/{self.dm_of(name)}/dev')} / /mnt/{name} rw - ext4 "
            f"/dev/mapper/{name} rw",
        )

    def at(self, command: str, do: Callable[[], object]) -> None:
        """Do something once, when a command that begins like this is about to run."""
        left = [do]
        self.steps.append(
            lambda argv: left.pop()() if left and " ".join(argv).startswith(command) else None
        )

    def serve(self, lun: int, volume: int) -> None:
        for target in TARGETS:
            self.array[target, lun] = volume

    def partition(self, name: str) -> str:
        """A partition map on a map; its name."""
        dm, part = self.dm_of(name), "dm-90"
        uuid = self.read(f"/sys/block/{dm}/dm/uuid")
        for file, text in {
            "dev": f"253:{part[3:]}",
            "dm/name": f"{name}-part1",
            "dm/uuid": f"part1-{uuid}",
            "dm/suspended": "0",
            f"slaves/{dm}": "",
        }.items():
            self.put(f"sys/block/{part}/{file}", text)
        (self.root / f"sys/block/{part}/holders").mkdir()
        self.put(f"sys/block/{dm}/holders/{part}", "")
        # Whatever device-mapper stands on, it has claimed (dm_get_device in drivers/md/dm-table.c).
        self.claimed.add(dm)
        return f"{name}-part1"

    def maps(self) -> dict[str, dict[str, int | None]]:
        """Map -> its paths -> the volume that each reads."""
        return {
            self.read(f"/sys/block/{dm}/dm/name") or "": {
                name: self.volume(name) for name in self.names(f"/sys/block/{dm}/slaves")
            }
            for dm in self.names("/sys/block")
            if (self.read(f"/sys/block/{dm}/dm/uuid") or "").startswith("mpath-")
        }

    def volume(self, disk: str) -> int | None:
        """What a disk reads."""
        hctl = self.hctl(disk)
        return self.array.get((hctl.rpartition(":")[0], int(hctl.rpartition(":")[2])))

    def hctl(self, disk: str) -> str:
        return next(
            hctl
            for hctl in self.names("/sys/class/scsi_disk")
            if self.exists(f"/sys/class/scsi_disk/{hctl}/device/block/{disk}")
        )

    def disks(self) -> list[str]:
        return sorted(
            name
            for hctl in self.names("/sys/class/scsi_disk")
            for name in self.names(f"/sys/class/scsi_disk/{hctl}/device/block")
        )

    def dm_of(self, name: str) -> str:
        return next(
            dm for dm in self.names("/sys/block") if self.read(f"/sys/block/{dm}/dm/name") == name
        )

    def put(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(f"{text}\n" if text else "")

    # the host

    def require_root(self) -> None:
        pass

    def path(self, path: str) -> str:
        self.claims += [path[len("/dev/") :]] if path.startswith("/dev/") else []
        if path.startswith("/dev/") and path[len("/dev/") :] in self.claimed:
            raise OSError(errno.EBUSY, "Device or resource busy")
        if path.startswith("/dev/") and path[len("/dev/") :] in self.hung:
            raise RuntimeError("no answer")
        # What is written there twice happens twice.
        number = len(self.names(os.path.dirname(path))) if path.endswith("/scan") else ""
        return super().path(f"{path}{number}")

    def sleep(self, seconds: float) -> None:
        pass

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        self.follow()
        return condition()

    def ask(
        self,
        questions: Sequence[tuple[str, bool]],
        timeout: float,
        owners: Sequence[Hashable],
    ) -> list[Answer]:
        self.asked |= {name for name, _report_luns in questions}
        self.owners.update({name: owner for (name, _luns), owner in zip(questions, owners)})
        return [
            self.answers.get(name) or self._answer(name, report_luns)
            for name, report_luns in questions
        ]

    def _answer(self, name: str, report_luns: bool) -> Answer:
        volume, target = self.volume(name), self.hctl(name).rpartition(":")[0]
        luns = tuple(lun for where, lun in self.array if where == target) if report_luns else None
        return (
            Answer("good", "good", "good", 0, (wwid(volume),), luns)
            if volume
            else Answer("05/25/00", "05/25/00", luns=luns)
        )

    def run(self, argv: Sequence[str], timeout: float | None = None) -> CommandResult:
        line = " ".join(argv)
        self.commands.append(line)
        for step in self.steps:
            step(list(argv))
        rc, out = next(
            (said for command, said in self.said.items() if line.startswith(command)), (None, "")
        )
        if rc is None:
            rc, out = 0, self._command(list(argv))
        return CommandResult(tuple(argv), rc, out, "", 0.0)

    def _command(self, argv: list[str]) -> str:
        known = {
            dm: self.read(f"/sys/block/{dm}/dm/name") or ""
            for dm in self.names("/sys/block")
            if dm.startswith("dm-")
        }
        if argv[:2] == ["multipath", "-f"]:
            self._flush(next(dm for dm, name in known.items() if name == argv[2]))
        elif argv[:2] == ["multipathd", "disablequeueing"]:
            self.queueing.discard(argv[3])
        elif argv[:2] == ["multipathd", "restorequeueing"]:
            self.queueing.add(argv[3])
        elif argv == ["multipathd", "show", "maps", "raw", "format", "%d"]:
            return "\n".join(dm for dm, name in known.items() if name in self.maps())
        elif argv == ["multipathd", "show", "paths", "raw", "format", "%d %t %T"]:
            return "\n".join(
                f"{name} active {'ready' if self.volume(name) else 'faulty'}"
                for name in self.disks()
            )
        elif argv[:3] == ["multipathd", "show", "config"]:
            return "defaults {\n max_polling_interval 0\n}"
        elif argv[:2] == ["dmsetup", "table"]:
            return "\n".join(
                f"{name}: 0 8 multipath 1 {'queue_if_no_path' if name in self.queueing else 'x'} 0"
                for name in known.values()
            )
        elif argv[:2] == ["dmsetup", "info"]:
            return "\n".join(
                f"{self.read(f'/sys/block/{dm}/dev')}:{self.opened.get(name, 0)}"
                for dm, name in known.items()
            )
        return ""

    # the kernel and multipathd

    def follow(self) -> None:
        """Do what was written to delete and scan files, and what multipathd makes of it."""
        for hctl in self.names("/sys/class/scsi_disk"):
            if (
                self.read(f"/sys/class/scsi_device/{hctl}/device/delete") == "1"
                and hctl not in self.stubborn
            ):
                self._remove(hctl)
        for host in self.names("/sys/class/scsi_host"):
            for scan in self.names(f"/sys/class/scsi_host/{host}"):
                channel, number, wanted = (
                    self.read(f"/sys/class/scsi_host/{host}/{scan}") or ""
                ).split()
                self.scanned.append(f"{host[4:]}:{channel}:{number}:{wanted}")
                for target, lun in [found for found in self.array if found[0] not in self.deaf]:
                    if target == f"{host[4:]}:{channel}:{number}" and wanted in ("-", str(lun)):
                        self._add(target, lun)
                (self.root / f"sys/class/scsi_host/{host}/{scan}").unlink()
        self._links()

    def _add(self, target: str, lun: int) -> None:
        hctl = f"{target}:{lun}"
        if self.exists(f"/sys/class/scsi_disk/{hctl}"):
            return
        free = next(
            name
            for name in (f"sd{chr(97 + index)}" for index in range(26))
            if name not in self.disks()
        )
        device = f"sys/devices/session{(*TARGETS, TENANT).index(target) + 1}/{hctl}"
        known_as = wwid(self.found.get((target, lun), self.array[target, lun]))
        for name, text in {
            "state": "running",
            "wwid": f"naa.{known_as[1:]}",
            "vendor": "LIO-ORG",
            "model": "disk",
            "delete": "",
        }.items():
            self.put(f"{device}/{name}", text)
        self.put(f"{device}/block/{free}/dev", f"8:{16 * (ord(free[2]) - 97)}")
        self.put(f"{device}/block/{free}/removable", "0")
        (self.root / f"{device}/block/{free}/holders").mkdir()
        for kind in ("scsi_disk", "scsi_device"):
            (self.root / f"sys/class/{kind}/{hctl}").mkdir(parents=True)
            (self.root / f"sys/class/{kind}/{hctl}/device").symlink_to(self.root / device)
        self._join(known_as)

    def _join(self, known_as: str) -> None:
        """multipathd: every disk that was found under this WWID becomes a path of its map."""
        taken = [dm for dm in self.names("/sys/block") if dm.startswith("dm-")]
        dm = next(
            (dm for dm in taken if self.read(f"/sys/block/{dm}/dm/uuid") == f"mpath-{known_as}"),
            None,
        )
        if dm is None:
            number = next(number for number in range(100) if f"dm-{number}" not in taken)
            dm, name = f"dm-{number}", f"mpath{int(known_as[8:])}"
            for file, text in {
                "dev": f"253:{number}",
                "dm/name": name,
                "dm/uuid": f"mpath-{known_as}",
                "dm/suspended": "0",
            }.items():
                self.put(f"sys/block/{dm}/{file}", text)
            (self.root / f"sys/block/{dm}/holders").mkdir()
        for hctl in self.names("/sys/class/scsi_disk"):
            device = f"/sys/class/scsi_disk/{hctl}/device"
            for name in self.names(f"{device}/block"):
                if self.read(f"{device}/wwid") == f"naa.{known_as[1:]}" and not self.names(
                    f"{device}/block/{name}/holders"
                ):
                    self.put(f"sys/block/{dm}/slaves/{name}", "")
                    (self.root / device[1:] / f"block/{name}/holders/{dm}").write_text("")

    def _flush(self, dm: str) -> None:
        self.claimed.discard(dm)
        for hctl in self.names("/sys/class/scsi_disk"):
            for name in self.names(f"/sys/class/scsi_disk/{hctl}/device/block"):
                (self.root / f"sys/class/scsi_disk/{hctl}/device/block/{name}/holders/{dm}").unlink(
                    missing_ok=True
                )
        for part in self.names(f"/sys/block/{dm}/holders"):
            shutil.rmtree(self.root / f"sys/block/{part}")
        shutil.rmtree(self.root / f"sys/block/{dm}")

    def _remove(self, hctl: str) -> None:
        for name in self.names(f"/sys/class/scsi_disk/{hctl}/device/block"):
            for dm in self.names("/sys/block"):
                (self.root / f"sys/block/{dm}/slaves/{name}").unlink(missing_ok=True)
        device = (self.root / f"sys/class/scsi_disk/{hctl}/device").resolve()
        for kind in ("scsi_disk", "scsi_device"):
            shutil.rmtree(self.root / f"sys/class/{kind}/{hctl}")
        shutil.rmtree(device)

    def _links(self) -> None:
        links = self.root / "dev/disk/by-id"
        shutil.rmtree(links, ignore_errors=True)
        links.mkdir(parents=True)
        for name, target in self.links.items():
            (links / name).symlink_to(f"../../{target}")
        for dm in [name for name in self.names("/sys/block") if name.startswith("dm-")]:
            uuid = self.read(f"/sys/block/{dm}/dm/uuid") or ""
            (links / f"dm-uuid-{uuid}").symlink_to(f"../../{dm}")
            (links / f"scsi-{uuid[len('mpath-') :]}").symlink_to(f"../../{dm}")


class Module:
    """What the engine needs of an AnsibleModule; the result is kept."""

    check_mode = False
    _diff = False

    def __init__(self) -> None:
        self.result: dict[str, Any] = {}
        self.failed = False

    def exit_json(self, **result: Any) -> None:
        self.result = result

    def fail_json(self, **result: Any) -> None:
        self.failed = True
        self.result = result
        raise SystemExit(1)

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        """(action, outcome) in order."""
        return [(action["action"], action["outcome"]) for action in self.result["actions"]]

    @property
    def verdicts(self) -> dict[str, str]:
        """Name of the object -> what became of it."""
        return {
            finding["object"]["name"]: finding["verdict"] for finding in self.result["findings"]
        }

    @property
    def reasons(self) -> str:
        """Of all findings."""
        return "; ".join(finding["reason"] for finding in self.result["findings"])


class _Late(ResidualPaths):
    """Something happens between the last action and the proof."""

    happens: Callable[[], object]

    def verify(self, finding: Finding) -> list[str]:
        self.happens()
        return super().verify(finding)


def repair(node: StorageNode, late: Callable[[], object] = bool, **options: Any) -> Module:
    """Run multipath_residual on the node, as the module does, with two observations.

    ``late``: called right before the proof of each repair.
    """
    module = Module()
    wanted = ResidualOptions(
        **{"observations": 2, "observation_seconds": 0.0, "accept_majority": True, **options}
    )
    try:
        runbook = _Late(node, wanted)
        runbook.happens = late
        run(module, lambda: runbook, False)
    except SystemExit:
        assert module.failed
    return module
