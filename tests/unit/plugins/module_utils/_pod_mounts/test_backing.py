# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is below a filesystem, and what the kernel's log says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    Deadline,
    Reply,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.block import (
    Disk,
    DmDevice,
    Transport,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.multipath import Daemon
from ansible_collections.storage_ops.runbooks.plugins.module_utils._pod_mounts import backing
from ansible_collections.storage_ops.runbooks.plugins.module_utils._pod_mounts.backing import (
    Backing,
    joined,
    kernel_line,
    paths_below,
    read_names,
    since_mounted,
)


class Answering(Host):
    """A node whose device answers as given, in order."""

    def __init__(self, *replies: Reply) -> None:
        super().__init__(Deadline(60), 10)
        self.replies = list(replies)

    def bounded(self, function: Callable[[], Any], timeout: float | None = None) -> Reply:
        return self.replies.pop(0)


READABLE = Reply(value="")


@pytest.mark.parametrize(
    ("replies", "code", "said"),
    [
        ((READABLE, Reply(value=False)), "", ""),
        ((Reply(value="Input/output error"),), "device_unusable", "Input/output error"),
        ((Reply(problem="no answer in 10 s", timed_out=True),), "device_unusable", "no answer"),
        ((READABLE, Reply(value=True)), "device_read_only", "write-protected"),
        ((READABLE, Reply(problem="no answer in 11 s")), "device_unusable", "cannot be written"),
    ],
)
def test_a_device_must_answer_and_be_writable(
    replies: tuple[Reply, ...], code: str, said: str
) -> None:
    """A move to a device that cannot be used would be an outage for nothing."""
    host = Answering(*replies)
    found = backing.unusable(host, "sda", 10)
    assert [reason.code for reason in found] == ([code] if code else [])
    assert all(said in reason for reason in found)
    assert host.replies == []


MOUNTED = "[10.0] EXT4-fs (dm-1): mounted filesystem with ordered data mode. Quota mode: none."
TURNED = "[20.0] EXT4-fs (dm-1): Remounting filesystem read-only"


@pytest.mark.parametrize(
    "line",
    [
        TURNED,
        "[1.0] Aborting journal on device dm-1-8.",
        "[1.0] XFS (dm-1): Filesystem has been shut down due to log error (0x2).",
        "[1.0] XFS (dm-1): Log I/O Error Detected. Shutting down filesystem",
        "[1.0] XFS (dm-1): User initiated shutdown (0x2) received. Shutting down filesystem",
        "[1.0] XFS (dm-1): xfs_do_force_shutdown(0x2) called from line 1211 of file "
        "fs/xfs/xfs_log.c. Shutting down filesystem",
        "[1.0] BTRFS info (device dm-1): forced readonly",
        "[1.0] BTRFS info (device dm-1: state E): forced readonly",
        "[1.0] BTRFS: error (device dm-1) in btrfs_commit_transaction:2253: errno=-5 IO failure",
        "[1.0] BTRFS: error (device dm-1: state A) in cleanup_transaction:1984: errno=-5 IO",
    ],
)
def test_the_kernel_gave_it_up(line: str) -> None:
    assert since_mounted([line], "dm-1") == [line]
    # Another device, be it that its name only begins or ends alike.
    for name in ("dm-11", "dm-", "m-1", "sda"):
        assert since_mounted([line], name) == []


@pytest.mark.parametrize(
    "line",
    [
        "[1.0] EXT4-fs (dm-1): write access unavailable, skipping orphan cleanup",
        "[1.0] EXT4-fs error (device dm-1): ext4_lookup:1855: inode "
        "#2: comm ls: iget: bogus i_mode (0)",
        "[1.0] XFS (dm-1): Ending clean mount",
        "[1.0] XFS (dm-1): metadata I/O error in xfs_buf_ioend at daddr 0x1 len 1 error 5",
        "[1.0] Buffer I/O error on dev dm-1, logical block 1, async page read",
        "[1.0] BTRFS error (device dm-1): bdev /dev/mapper/v errs: wr 1, rd 0, flush 0",
        "[1.0] BTRFS info (device dm-1): disk space caching is enabled",
    ],
)
def test_what_may_pass(line: str) -> None:
    assert since_mounted([line], "dm-1") == []


@pytest.mark.parametrize(
    "line",
    [
        MOUNTED,
        "[30.0] EXT4-fs (dm-1): unmounting filesystem.",
        "[30.0] EXT4-fs (dm-1): re-mounted. Quota mode: none.",
        "[30.0] XFS (dm-1): Mounting V5 Filesystem",
        "[30.0] XFS (dm-1): Unmounting Filesystem",
        "[30.0] BTRFS info (device dm-1): first mount of filesystem 5e0f6d5c-1111",
        "[30.0] BTRFS info (device dm-1: state E): last unmount of filesystem 5e0f6d5c",
        "[30.0] BTRFS info (device dm-1): using crc32c (crc32c-intel) checksum algorithm",
        "[30.0] BTRFS info (device dm-1): has skinny extents",
    ],
)
def test_only_what_was_said_since_it_was_mounted(line: str) -> None:
    assert since_mounted([TURNED, line], "dm-1") == []
    assert since_mounted([line, TURNED], "dm-1") == [TURNED]
    assert since_mounted([TURNED, line.replace("dm-1", "dm-2")], "dm-1") == [TURNED]


@pytest.mark.parametrize("said", [TURNED, MOUNTED, "[1.0] XFS (dm-1): Unmounting Filesystem"])
def test_a_tenant_says_nothing_of_a_filesystem(said: str) -> None:
    """By a program of that name that crashes: it had the volume of another moved, or its fault
    hidden.
    """
    message = said.partition("] ")[2]
    crash = (
        "[25.0] x[123]: segfault at 0 ip 0000563c4c0b1139 sp 00007ffd error 4 in "
        f"{message}[563c4c0b1000+1000]"
    )
    assert since_mounted([crash], "dm-1") == []
    assert since_mounted([TURNED, crash], "dm-1") == [TURNED]


@pytest.mark.parametrize(
    ("record", "lines"),
    [
        ("4,812,20000000,-;EXT4-fs (dm-1): x\n SUBSYSTEM=block\n", ["[20.0] EXT4-fs (dm-1): x"]),
        ("4,812,20000000,-,caller=T1;a;b\n", ["[20.0] a;b"]),
        # A process wrote it.
        ("12,813,20000000,-;EXT4-fs (dm-1): x\n", []),
        ("no record", []),
        ("4,x;y", []),
    ],
)
def test_only_the_kernels_own_words_count(record: str, lines: list[str]) -> None:
    assert kernel_line(record) == lines


def test_the_last_lines_are_kept() -> None:
    lines = [TURNED.replace("20", str(number)) for number in range(9)]
    assert since_mounted(lines, "dm-1") == lines[-5:]


def test_the_kernel_names_one_of_several_devices() -> None:
    said = "[20.0] BTRFS info (device sdb: state E): forced readonly"
    assert since_mounted([said], "sda", "sdb") == [said]
    assert since_mounted([said], "sda", "sdc") == since_mounted([said]) == []


def test_names_of_block_devices(tmp_path: Path) -> None:
    """A device's number leads to it; an anonymous one to none, unless the filesystem tells."""
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    (tmp_path / "sys/devices/dm-1").mkdir(parents=True)
    (tmp_path / "sys/dev/block/253:1").symlink_to("../../devices/dm-1")
    (tmp_path / "point").mkdir()
    node = Host(Deadline(30), 5, str(tmp_path))
    points = {"253:1": "/point", "253:2": "/point", "0:45": "/point", "0:46": "", "0:47": "/gone"}
    names = {"253:1": ("dm-1",), "253:2": (), "0:45": (), "0:46": (), "0:47": ()}
    assert read_names(node, points) == names


def test_a_filesystem_on_several_devices_needs_all_of_them() -> None:
    sound = Backing("sda", errors={"write_errs": "1"}, paths=("sda: running",))
    assert joined("0:45", [sound]) == sound
    other = Backing("sdb", True, {"write_errs": "1"}, ("sdb: blocked",), ("a path is down",))
    errors = {"write_errs": "1"}
    both = Backing("sda sdb", True, errors, ("sda: running", "sdb: blocked"), ("a path is down",))
    assert joined("0:45", [sound, other]) == both
    assert "gone from the kernel" in joined("253:1", []).obstacles[0]
    assert "which block devices it is on cannot be told" in joined("0:45", []).obstacles[0]


# A partition of a multipath map, with LVM on top.
SLAVES = {"dm-2": ["dm-1"], "dm-1": ["dm-0"], "dm-0": ["sda", "sdb"]}
SESSION = Transport("iSCSI", "session1", "10.0.0.1", "LOGGED_IN")
DISKS = {
    name: Disk(name, "8:0", "6:0:0:1", "running", "3600", "V", "M", (), SESSION)
    for name in ("sda", "sdb")
}
DM = {
    "dm-0": DmDevice("dm-0", "253:0", "mpatha", "mpath-3600", False, ("sda", "sdb"), ("dm-1",)),
    "dm-1": DmDevice(
        "dm-1", "253:1", "mpatha-part1", "part1-mpath-3600", False, ("dm-0",), ("dm-2",)
    ),
    "dm-2": DmDevice("dm-2", "253:2", "vg-lv", "LVM-x", False, ("dm-1",), ()),
}
READY = {"sda": "active ready", "sdb": "active ghost"}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    for name, slaves in SLAVES.items():
        for slave in slaves:
            (tmp_path / f"sys/class/block/{name}/slaves/{slave}").mkdir(parents=True)
    disk = tmp_path / "sys/devices/host6/block/sda"
    (disk / "sda1").mkdir(parents=True)
    (disk / "sda1/partition").write_text("1")
    (tmp_path / "sys/class/block/sda1").symlink_to("../../devices/host6/block/sda/sda1")
    return Host(Deadline(10), 5, str(tmp_path))


def test_paths_are_followed_down_to_the_disks(host: Host) -> None:
    paths, bad = paths_below(host, "dm-2", DISKS, DM, Daemon({"3600": READY}))
    assert paths == [
        "mpatha: sda active ready",
        "mpatha: sdb active ghost",
        "sda: running, iSCSI session1 to 10.0.0.1: LOGGED_IN",
        "sdb: running, iSCSI session1 to 10.0.0.1: LOGGED_IN",
    ]
    assert bad == []
    assert paths_below(host, "sda1", DISKS, {}, Daemon()) == (
        ["sda: running, iSCSI session1 to 10.0.0.1: LOGGED_IN"],
        [],
    )
    # What is no SCSI disk can only be read.
    assert paths_below(host, "vda", DISKS, {}, Daemon()) == ([], [])


@pytest.mark.parametrize(
    "said", ["failed faulty", "failed ready", "active faulty", "active shaky", "undef undef"]
)
def test_one_path_that_multipathd_does_not_use(host: Host, said: str) -> None:
    assert paths_below(host, "dm-2", DISKS, DM, Daemon({"3600": {**READY, "sda": said}}))[1] == [
        f"a path is down: mpatha: sda {said}"
    ]


def test_what_else_is_wrong_with_paths(host: Host) -> None:
    ready = Daemon({"3600": READY})

    def bad(
        disk: Disk = DISKS["sda"], dm: DmDevice = DM["dm-0"], daemon: Daemon = ready
    ) -> list[str]:
        return paths_below(host, "dm-2", {**DISKS, "sda": disk}, {**DM, "dm-0": dm}, daemon)[1]

    assert bad(disk=replace(DISKS["sda"], state="blocked")) == [
        "a path is down: sda: blocked, iSCSI session1 to 10.0.0.1: LOGGED_IN",
    ]
    assert bad(disk=replace(DISKS["sda"], transport=replace(SESSION, state="FAILED"))) == [
        "a path is down: sda: running, iSCSI session1 to 10.0.0.1: FAILED",
    ]
    assert "mpatha is suspended, so another process is changing it" in bad(
        dm=replace(DM["dm-0"], suspended=True)
    )
    assert "mpatha has no path left" in bad(dm=replace(DM["dm-0"], slaves=()))
    assert "multipathd does not answer" in bad(daemon=Daemon(problem="multipathd does not answer"))
