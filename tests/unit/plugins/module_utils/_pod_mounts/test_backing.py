# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is below a filesystem, and what the kernel's log says of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Hashable, Mapping, Sequence
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


class Answers:
    """What devices answer, to each question one after the other; in the place of call_each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *replies: Mapping[str, Reply]) -> None:
        self.replies = list(replies)
        self.owners: list[list[Hashable]] = []
        monkeypatch.setattr(backing, "call_each", self.ask)

    def ask(
        self,
        _function: Any,
        names: Sequence[str],
        timeout: float,
        budget: float,
        owners: Sequence[Hashable],
    ) -> list[Reply]:
        assert timeout <= budget < 60
        self.owners.append(list(owners))
        said = self.replies.pop(0)
        return [said[name] for name in names]


READABLE, WRITABLE = Reply(value=""), Reply(value=False)


@pytest.mark.parametrize(
    ("read", "written", "code", "said"),
    [
        (READABLE, WRITABLE, "", ""),
        (Reply(value="Input/output error"), None, "device_unusable", "Input/output error"),
        (
            Reply(problem="no answer in 10 s", timed_out=True),
            None,
            "device_unusable",
            "cannot be read: no answer",
        ),
        (READABLE, Reply(value=True), "device_read_only", "write-protected"),
        (READABLE, Reply(problem="no answer in 11 s"), "device_unusable", "cannot be written"),
    ],
)
def test_a_device_must_answer_and_be_writable(
    monkeypatch: pytest.MonkeyPatch, read: Reply, written: Reply | None, code: str, said: str
) -> None:
    """A move to a device that cannot be used would be an outage for nothing."""
    Answers(monkeypatch, {"sda": read}, {"sda": written} if written else {})
    found = backing.unusable(Host(Deadline(60), 10), {"sda": "shop"}, 10)["sda"]
    assert [reason.code for reason in found] == ([code] if code else [])
    assert all(said in reason for reason in found)


def test_devices_are_asked_at_once_and_in_turns_of_their_owners(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One after the other, a tenant's LUNs that hang used up the deadline of all others."""
    evil = [f"sd{letter}" for letter in "bcdefghijklm"]
    hung = dict.fromkeys(evil, Reply(problem="no answer in 5 s", timed_out=True))
    answers = Answers(monkeypatch, {"sda": READABLE, **hung}, {"sda": WRITABLE})
    whose = {"sda": "shop", **dict.fromkeys(evil, "evil")}
    found = backing.unusable(Host(Deadline(60), 10), whose, 5)
    assert found["sda"] == () and all("no answer" in found[name][0] for name in evil)
    assert answers.owners == [["shop", *["evil"] * 12], ["shop"]]


MOUNTED = "[10.0] EXT4-fs (dm-1): mounted filesystem with ordered data mode. Quota mode: none."
TURNED = "[20.0] EXT4-fs (dm-1): Remounting filesystem read-only"
UUID = "f89d0e1d-e60f-4362-8d64-02670f8075db"
AT = "detected at xfs_fs_goingdown+0x63/0xb0{} (fs/xfs/xfs_fsops.c:475).  Shutting down filesystem."
# As Linux 4.4 to 6.18 write them.
GAVE_UP = {
    "ext4": (
        "EXT4-fs (dm-1): Remounting filesystem read-only",
        "EXT4-fs (dm-1): shut down requested (2)",
        "Aborting journal on device dm-1-8.",
    ),
    "xfs": (
        "XFS (dm-1): Corruption of in-memory data detected.  Shutting down filesystem",
        "XFS (dm-1): Log I/O Error Detected.  Shutting down filesystem",
        "XFS (dm-1): Log I/O Error Detected. Shutting down filesystem",
        "XFS (dm-1): All device paths lost.  Shutting down filesystem",
        "XFS (dm-1): I/O Error Detected. Shutting down filesystem",
        "XFS (dm-1): User initiated shutdown received. Shutting down filesystem",
        "XFS (dm-1): User initiated shutdown (0x2) received. Shutting down filesystem",
        "XFS (dm-1): User initiated shutdown received.",
        "XFS (dm-1): Log I/O Error (0x6) " + AT.format(""),
        "XFS (dm-1): Metadata I/O Error (0x4) " + AT.format(" [xfs]"),
        "XFS (dm-1): Corruption of in-memory data (0x8) " + AT.format(" [xfs]"),
        "XFS (dm-1): Corruption of on-disk metadata (0x8) " + AT.format(" [xfs]"),
        "XFS (dm-1): Block device removal (0x20) " + AT.format(" [xfs]"),
        "XFS (dm-1): Filesystem has been shut down due to log error (0x2).",
    ),
    "btrfs": (
        "BTRFS info (device dm-1): forced readonly",
        "BTRFS info (device dm-1: state E): forced readonly",
        "BTRFS: error (device dm-1) in btrfs_commit_transaction:2253: errno=-5 IO failure",
        "BTRFS: error (device dm-1: state A) in cleanup_transaction:1984: errno=-5 IO",
        "BTRFS error (device dm-1: state EA) in write_all_supers:4301: errno=-5 IO failure "
        "(errors while writing out supers)",
    ),
}
GAVE_UP_OF = [(fstype, text) for fstype, texts in GAVE_UP.items() for text in texts]


@pytest.mark.parametrize(("fstype", "text"), GAVE_UP_OF)
def test_the_kernel_gave_it_up(fstype: str, text: str) -> None:
    line = f"[1.0] {text}"
    assert since_mounted([line], fstype, "dm-1") == [line]
    # Another device, be it that its name only begins or ends alike.
    for name in ("dm-11", "dm-", "m-1", "sda"):
        assert since_mounted([line], fstype, name) == []
    # Nor is a filesystem of another type meant.
    for other in GAVE_UP.keys() - {fstype}:
        assert since_mounted([line], other, "dm-1") == []


def test_the_driver_of_ext4_speaks_for_the_older_ones() -> None:
    assert since_mounted([TURNED], "ext3", "dm-1") == since_mounted([TURNED], "ext2", "dm-1")
    assert since_mounted([TURNED], "ext3", "dm-1") == [TURNED]


@pytest.mark.parametrize(
    ("fstype", "line"),
    [
        ("ext4", "[1.0] EXT4-fs (dm-1): write access unavailable, skipping orphan cleanup"),
        (
            "ext4",
            "[1.0] EXT4-fs error (device dm-1): ext4_lookup:1855: inode "
            "#2: comm ls: iget: bogus i_mode (0)",
        ),
        ("xfs", "[1.0] XFS (dm-1): Ending clean mount"),
        ("xfs", "[1.0] XFS (dm-1): metadata I/O error in xfs_buf_ioend at daddr 0x1 len 1 error 5"),
        ("ext4", "[1.0] Buffer I/O error on dev dm-1, logical block 1, async page read"),
        ("btrfs", "[1.0] BTRFS error (device dm-1): bdev /dev/mapper/v errs: wr 1, rd 0, flush 0"),
        ("btrfs", "[1.0] BTRFS info (device dm-1): disk space caching is enabled"),
    ],
)
def test_what_may_pass(fstype: str, line: str) -> None:
    assert since_mounted([line], fstype, "dm-1") == []


REMOUNTS = (
    MOUNTED,
    "[30.0] EXT4-fs (dm-1): mounted filesystem with ordered data mode. Opts: (null)",
    "[30.0] EXT4-fs (dm-1): mounted filesystem without journal. Opts: a=b,c. Quota mode: none.",
    f"[30.0] EXT4-fs (dm-1): mounted filesystem {UUID} r/w with ordered data mode. "
    "Quota mode: none.",
    "[30.0] EXT4-fs (dm-1): unmounting filesystem.",
    f"[30.0] EXT4-fs (dm-1): unmounting filesystem {UUID}.",
    "[30.0] EXT4-fs (dm-1): re-mounted. Quota mode: none.",
    "[30.0] EXT4-fs (dm-1): re-mounted. Opts: errors=remount-ro",
    f"[30.0] EXT4-fs (dm-1): re-mounted {UUID} r/w.",
    "[30.0] XFS (dm-1): Mounting V5 Filesystem",
    f"[30.0] XFS (dm-1): Mounting V5 Filesystem {UUID}",
    "[30.0] XFS (dm-1): Mounting V5 filesystem in no-recovery mode. Filesystem will be "
    "inconsistent.",
    "[30.0] XFS (dm-1): Unmounting Filesystem",
    f"[30.0] XFS (dm-1): Unmounting Filesystem {UUID}",
    f"[30.0] BTRFS info (device dm-1): first mount of filesystem {UUID}",
    f"[30.0] BTRFS info (device dm-1: state E): last unmount of filesystem {UUID}",
    "[30.0] BTRFS info (device dm-1): using crc32c (crc32c-intel) checksum algorithm",
    "[30.0] BTRFS info (device dm-1): has skinny extents",
)


@pytest.mark.parametrize("line", REMOUNTS)
def test_only_what_was_said_since_it_was_mounted(line: str) -> None:
    assert since_mounted([TURNED, line], "ext4", "dm-1") == []
    assert since_mounted([line, TURNED], "ext4", "dm-1") == [TURNED]
    assert since_mounted([TURNED, line.replace("dm-1", "dm-2")], "ext4", "dm-1") == [TURNED]


# What the kernel writes of a tenant's process: its name, of up to 15 characters (prctl(2),
# PR_SET_NAME), and its program's (arch/x86/mm/fault.c show_signal_msg, mm/memory.c print_vma_addr;
# arch/arm64/kernel/traps.c arm64_show_signal; mm/oom_kill.c dump_header; mm/page_alloc.c
# warn_alloc). Or the prefix of a rule of its firewall, of up to 127 characters, before the packet's
# data (net/netfilter/nf_log_syslog.c).
OF_A_TENANT = (
    "{comm}[22826]: segfault at 0 ip 0000563c4c0b1139 sp 00007ffd error 6 in {text}[117a,563c4c0b]",
    "{comm}[22826]: unhandled exception: DABT (lower EL), ESR 0x92000046, in {text}[117a,563c4c0b]",
    "{comm} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj={text}",
    "{comm}: page allocation failure: order:0, mode:0xcc0({text}), nodemask=(null)",
    "{text}IN=eth0 OUT= MAC=02:42 SRC=10.0.0.1 DST=10.0.0.2 LEN=60",
    "{text} IN=eth0 OUT= MAC=02:42 SRC=10.0.0.1 DST=10.0.0.2 LEN=60",
    "x[22826]: segfault at 0 ip 0000563c4c0b1139 sp 00007ffd error 6 in {text}[117a,563c4c0b]",
)


@pytest.mark.parametrize("form", OF_A_TENANT)
def test_a_tenant_says_nothing_of_a_filesystem(form: str) -> None:
    """It had the volume of another moved, or its fault hidden."""
    for fstype, text in [
        *GAVE_UP_OF,
        *(("ext4", line.partition("] ")[2]) for line in REMOUNTS),
        *((fstype, "Shutting down filesystem") for fstype in GAVE_UP),
    ]:
        for comm in ("XFS (dm-1): ", "XFS (dm-1): Log", text[:15]):
            forged = f"[25.0] {form.format(comm=comm, text=text)}"
            assert since_mounted([forged], fstype, "dm-1") == []
            assert since_mounted([TURNED, forged], "ext4", "dm-1") == [TURNED]


@pytest.mark.parametrize(
    ("record", "lines"),
    [
        ("4,812,20000000,-;EXT4-fs (dm-1): x\n SUBSYSTEM=block\n", ["[20.0] EXT4-fs (dm-1): x"]),
        ("4,812,20000000,-,caller=T1;a;b\n", ["[20.0] a;b"]),
        # A process wrote it.
        ("12,813,20000000,-;EXT4-fs (dm-1): x\n", []),
        # A part of a message, which begins with what was inserted there: a tenant's text.
        ("4,814,20000000,c;EXT4-fs (dm-1): x\n", []),
        ("4,814,20000000,+,caller=T1;EXT4-fs (dm-1): x\n", []),
        ("no record", []),
        ("4,x;y", []),
    ],
)
def test_only_the_kernels_own_words_count(record: str, lines: list[str]) -> None:
    assert kernel_line(record) == lines


def test_the_last_lines_are_kept() -> None:
    lines = [TURNED.replace("20", str(number)) for number in range(9)]
    assert since_mounted(lines, "ext4", "dm-1") == lines[-5:]


def test_the_kernel_names_one_of_several_devices() -> None:
    said = "[20.0] BTRFS info (device sdb: state E): forced readonly"
    assert since_mounted([said], "btrfs", "sda", "sdb") == [said]
    assert since_mounted([said], "btrfs", "sda", "sdc") == since_mounted([said], "btrfs") == []


def test_the_log_counts_only_for_what_shows_it_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever could write a line of the log had volumes of others taken for lost."""
    names = {f"253:{number}": (f"dm-{number}",) for number in range(6)}
    for name, errors in (("dm-2", "3"), ("dm-3", "0")):
        (tmp_path / f"sys/fs/ext4/{name}").mkdir(parents=True)
        (tmp_path / f"sys/fs/ext4/{name}/errors_count").write_text(f"{errors}\n")
    log = [TURNED.replace("dm-1", name) for name in ("dm-0", "dm-1", "dm-2", "dm-3", "dm-5")]
    monkeypatch.setattr(backing, "_kernel_log", lambda _host: log)

    def attribute(path: str, _name: str, follow_symlinks: bool) -> bytes:
        assert not follow_symlinks
        code = {"dm-1": errno.EIO, "dm-5": errno.EOPNOTSUPP}.get(Path(path).name, errno.ENODATA)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "getxattr", attribute)
    node = Host(Deadline(30), 5, str(tmp_path))
    # The first is covered everywhere, so it cannot be asked.
    points = {device: f"/{name}" if name != "dm-0" else "" for device, (name,) in names.items()}
    types = dict.fromkeys(names, "ext4")
    shown = backing.read_logs(node, names, types, points, [])
    assert list(shown) == ["253:1", "253:2"]
    # What is read-only, for one, needs no other sign.
    assert "253:3" in backing.read_logs(node, names, types, points, ["253:3"])
    assert backing.read_logs(node, names, dict.fromkeys(names, "xfs"), points, list(names)) == {}


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
