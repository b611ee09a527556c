# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Block devices read from a sysfs tree, and open files read from a proc tree."""

from __future__ import annotations

import errno
import os
import signal
import stat
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import (
    block,
    fdinfo,
    processes,
    usage,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.block import (
    Disk,
    DmDevice,
    Transport,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import MOST_LINE, Host

WWID = "36001405e4563a9b6215b4e49ba37cfd9"
SESSION = "sys/devices/platform/host6/session1/target6:0:0/6:0:0:2"
PORT = "sys/devices/pci0/host7/rport-7:0-1/target7:0:1/7:0:1:300"


def put(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def put_disk(
    root: Path,
    device: str,
    name: str,
    dev: str,
    holders: tuple[str, ...] = (),
    removable: str = "0",
) -> None:
    hctl = device.rpartition("/")[2]
    for attribute, text in {
        "state": "running",
        "wwid": f"naa.{WWID[1:]}",
        "vendor": "LIO-ORG ",
        "model": "lun2            ",
    }.items():
        put(root, f"{device}/{attribute}", f"{text}\n")
    put(root, f"{device}/block/{name}/dev", f"{dev}\n")
    put(root, f"{device}/block/{name}/removable", f"{removable}\n")
    (root / f"{device}/block/{name}/holders").mkdir()
    for holder in holders:
        put(root, f"{device}/block/{name}/holders/{holder}", "")
    link = root / f"sys/class/scsi_disk/{hctl}"
    link.mkdir(parents=True)
    (link / "device").symlink_to(root / device)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    put_disk(tmp_path, SESSION, "sda", "8:0", ("dm-3",))
    put_disk(tmp_path, PORT, "sdb", "8:16")
    put_disk(tmp_path, "sys/devices/usb1/host9/target9:0:0/9:0:0:0", "sdc", "8:32", removable="1")
    put(tmp_path, "sys/class/iscsi_session/session1/state", "LOGGED_IN\n")
    put(tmp_path, "sys/class/iscsi_connection/connection1:0/persistent_address", "127.0.0.1\n")
    put(tmp_path, "sys/class/fc_remote_ports/rport-7:0-1/roles", "FCP Target\n")
    put(tmp_path, "sys/class/fc_remote_ports/rport-7:0-1/port_name", "0x500601\n")
    put(tmp_path, "sys/class/fc_remote_ports/rport-7:0-1/port_state", "Blocked\n")
    put(tmp_path, "sys/class/fc_remote_ports/rport-7:0-2/roles", "FCP Initiator\n")
    for name, text in {
        "dev": "253:3",
        "dm/name": r"mpath\x20b",
        "dm/uuid": f"mpath-{WWID}",
        "dm/suspended": "0",
        "slaves/sda": "",
        "holders/dm-4": "",
    }.items():
        put(tmp_path, f"sys/block/dm-3/{name}", text)
    for name, text in {
        "dev": "253:4",
        "dm/name": r"mpath\x20b-part1",
        "dm/uuid": f"part1-mpath-{WWID}",
        "dm/suspended": "1",
        "slaves/dm-3": "",
    }.items():
        put(tmp_path, f"sys/block/dm-4/{name}", text)
    (tmp_path / "sys/block/sda").mkdir()
    return Host(Deadline(60), 10, str(tmp_path))


def test_disks_and_how_they_are_reached(host: Host) -> None:
    reached = block.transports(host)
    assert set(reached) == {"session1", "rport-7:0-1"}
    found = block.disks(host, reached)
    session = Transport("iSCSI", "session1", "127.0.0.1", "LOGGED_IN")
    assert found["sda"] == Disk(
        "sda", "8:0", "6:0:0:2", "running", WWID, "LIO-ORG", "lun2", ("dm-3",), session
    )
    assert (found["sda"].target, found["sda"].lun) == ("6:0:0", 2)
    assert session.up
    assert found["sdb"].transport == Transport("FC", "rport-7:0-1", "0x500601", "Blocked")
    assert (found["sdb"].target, found["sdb"].lun) == ("7:0:1", 300)
    assert not reached["rport-7:0-1"].up
    assert "sdc" not in found, "a removable disk is nobody's LUN"


def test_what_is_reached_through_a_session_is_a_disk_whatever_it_says_of_itself(
    host: Host, tmp_path: Path
) -> None:
    """Whoever runs a target decides whether its LUN says that it is removable. It was no disk then,
    and a foreign path in a map.
    """
    put(tmp_path, f"{SESSION}/block/sda/removable", "1\n")
    assert "sda" in block.disks(host, block.transports(host))


def test_device_mapper_devices(host: Host) -> None:
    found = block.dm_devices(host)
    assert found["dm-3"] == DmDevice(
        "dm-3", "253:3", "mpath b", f"mpath-{WWID}", False, ("sda",), ("dm-4",)
    )
    assert (found["dm-3"].is_multipath, found["dm-3"].wwid, found["dm-3"].is_partition) == (
        True,
        WWID,
        False,
    )
    assert (found["dm-4"].is_multipath, found["dm-4"].is_partition, found["dm-4"].suspended) == (
        False,
        True,
        True,
    )


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("mpatha", "mpatha"),
        (r"my\x20disk", "my disk"),
        (r"d\xc3\xa4ta", "d\u00e4ta"),
        ("d\u00e4ta", "d\u00e4ta"),
        (r"a\x2", r"a\x2"),
        (r"\xff", "\ufffd"),
    ],
)
def test_names_that_libdevmapper_has_mangled(kernel: str, name: str) -> None:
    assert block.unmangled(kernel) == name


def test_the_names_a_disk_was_found_with(host: Host, tmp_path: Path) -> None:
    device = tmp_path / SESSION
    # A T10 name (type 1) whose last byte looks like the end of a line, and one of the target port,
    # which does not count.
    names = b"\x02\x01\x00\x05abcd\n" + b"\x01\x13\x00\x02xy"
    (device / "vpd_pg83").write_bytes(b"\x00\x83" + len(names).to_bytes(2, "big") + names)
    (tmp_path / PORT / "vpd_pg83").write_bytes(b"\x00\x83\x00\x09")
    found = block.disks(host, {})
    assert found["sda"].names == ("1abcd_",)
    assert (found["sda"].wwid, found["sdb"].wwid) == ("1abcd_", WWID)
    assert found["sdb"].names == (), "a page that is cut says nothing"


def test_a_disk_is_not_the_volume_that_the_kernel_takes_it_for(host: Host, tmp_path: Path) -> None:
    """A tenant's LUN has a SCSI name string (type 8) with the name of another array's volume, which
    the kernel prefers, and an NAA name of its own, by which udev and multipath know it.
    """
    own, other = bytes.fromhex("66666660000000000000000000000001"), f"naa.{WWID[1:]}".encode()
    names = bytes((3, 8, 0, len(other))) + other + bytes((1, 3, 0, len(own))) + own
    (tmp_path / SESSION / "vpd_pg83").write_bytes(
        b"\x00\x83" + len(names).to_bytes(2, "big") + names
    )
    assert host.read(f"/{SESSION}/wwid") == other.decode()
    assert block.disks(host, {})["sda"].wwid == f"3{own.hex()}"


def test_kernel_partitions(tmp_path: Path) -> None:
    put(tmp_path, "sys/class/block/sda/sda1/partition", "1\n")
    put(tmp_path, "sys/class/block/sda/sda1/dev", "8:1\n")
    put(tmp_path, "sys/class/block/sda/queue/depth", "1\n")
    put(tmp_path, "sys/class/scsi_device/6:0:0:2/device/scsi_generic/sg3/dev", "21:3\n")
    disk = Disk("sda", "8:0", "6:0:0:2", "running", WWID, "", "", (), None)
    assert block.disk_devices(Host(Deadline(60), 10, str(tmp_path)), disk) == {
        "sda": "8:0",
        "sda1": "8:1",
        "sg3": "c21:3",
    }
    assert block.partitions(Host(Deadline(60), 10, str(tmp_path)), "sda") == {"sda1": "8:1"}


def test_what_a_loop_device_stands_on() -> None:
    """struct loop_info64 as the kernel fills it in: the device of the backing file's file system,
    the inode, the device that it is.
    """
    info = struct.pack("=QQQ", 0x10FD03, 12, 0) + bytes(208)
    assert usage.parse_loop_info(info) == ["253:259"]
    info = struct.pack("=QQQ", 0x6, 12, 0xFD01) + bytes(208)
    assert usage.parse_loop_info(info) == ["253:1", "0:6"]


def test_our_own_open_files_are_found(tmp_path: Path) -> None:
    """The real /proc of this process, which has a character device open, and a block device where
    there is one that may be opened.
    """
    (tmp_path / "proc/999999").mkdir(parents=True)  # a process that has just ended
    (tmp_path / "proc" / str(os.getpid())).symlink_to(f"/proc/{os.getpid()}")
    blocks = [
        f"/dev/{name}"
        for name in os.listdir("/sys/class/block")
        if os.access(f"/dev/{name}", os.R_OK)
    ]
    files = [os.open(device, os.O_RDONLY | os.O_NONBLOCK) for device in ["/dev/full", *blocks[:1]]]
    try:
        numbers = [
            f"{os.major(os.fstat(fd).st_rdev)}:{os.minor(os.fstat(fd).st_rdev)}" for fd in files
        ]
        devs = {f"c{numbers[0]}", *numbers[1:]}
        found = usage.read_openers(Host(Deadline(60), 30, str(tmp_path)), devs | {"999:999"})
        assert found.unread == () and found.doubt == ""
        assert found.by_dev.pop("999:999") == []
        assert set(found.by_dev) == devs
        for openers in found.by_dev.values():
            assert [(opener.pid, opener.opens, opener.udev, opener.hung) for opener in openers] == [
                (os.getpid(), 1, False, False)
            ]
    finally:
        for fd in files:
            os.close(fd)


@pytest.mark.parametrize(
    ("ways", "writes"),
    [
        ((os.O_RDONLY,), False),
        ((os.O_WRONLY,), True),
        ((os.O_RDWR,), True),
        ((os.O_RDONLY, os.O_RDWR), True),
    ],
)
def test_who_has_it_open_for_writing(ways: tuple[int, ...], writes: bool) -> None:
    files = [os.open("/dev/full", way | os.O_NONBLOCK) for way in ways]
    try:
        number = os.fstat(files[0]).st_rdev
        dev = f"c{os.major(number)}:{os.minor(number)}"
        opener = usage.open_devices(f"/proc/{os.getpid()}", {dev}, {})[dev]
        assert (opener["opens"], opener["writes"]) == (len(ways), writes)
    finally:
        for fd in files:
            os.close(fd)


def test_a_file_that_is_closed_meanwhile_is_not_written(tmp_path: Path) -> None:
    assert not usage._writes(str(tmp_path / "fdinfo/3"))


def is_remote(base: Path, mount: int) -> bool:
    return mount in usage._remote_mounts(str(base), {})


def device(base: str, descriptor: int) -> str:
    return usage._device(base, str(descriptor), lambda: usage._remote_mounts(base, {}))


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.ENODATA, errno.EACCES, errno.EPERM])
def test_where_the_kernel_does_not_tell_what_a_file_is_it_may_be_any(
    monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def untold(_path: str) -> fdinfo.Kept:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(fdinfo, "kept", untold)
    with open("/dev/null", encoding="ascii") as file, pytest.raises(OSError, match="."):
        device("/proc/self", file.fileno())


def test_states_and_remote_files_of_a_process(tmp_path: Path) -> None:
    """A process in D state by its thread; a file on NFS is never touched, for its server may be
    dead.
    """
    for pid, state in (("7", "D"), ("8", "S")):
        put(tmp_path, f"{pid}/task/{pid}/stat", f"{pid} (a) D (b) {state} 1 1")
        put(
            tmp_path,
            f"{pid}/mountinfo",
            "30 1 0:40 / /nfs rw - nfs4 server:/x rw\n31 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
        )
        (tmp_path / pid / "ns").mkdir()
        (tmp_path / pid / "ns" / "mnt").symlink_to("mnt:[1]")
        (tmp_path / pid / "root").symlink_to("/")
    assert usage._hung(str(tmp_path / "7"))
    assert not usage._hung(str(tmp_path / "8"))
    put(tmp_path, "9/task/9/stat", "9 (dd) S 1 1")
    put(tmp_path, "9/task/10/stat", "10 (dd) S 1 1")
    put(tmp_path, "9/task/11/stat", "11 (dd) D 1 1")
    assert usage._hung(str(tmp_path / "9")), "any of its threads"
    for pid, program, group in (
        ("7", "kpartx", "systemd-udevd.service/udev"),
        ("8", "kpartx", "ssh.service"),
        ("10", "udevadm", ""),
    ):
        put(tmp_path, f"{pid}/cgroup", f"0::/system.slice/{group}\n")
        (tmp_path / pid / "exe").symlink_to(f"/sbin/{program}")
    assert [usage._udev(str(tmp_path / pid)) for pid in ("7", "8", "10")] == [True, False, True]
    put(tmp_path, "8/cgroup", "0::/system.slice/my-systemd-udevd.service\n")
    assert not usage._udev(str(tmp_path / "8")), "another unit, whose name ends alike"
    pod = "kubepods/pod0a1b2c3d-1111-2222-3333-777777777777"
    for pid, group in (("7", "x/systemd-udevd.service"), ("10", "x")):
        put(tmp_path, f"{pid}/cgroup", f"0::/{pod}/{group}\n")
        assert not usage._udev(str(tmp_path / pid)), "a tenant's, with its name"
    assert is_remote(tmp_path / "7", 30)
    assert not is_remote(tmp_path / "7", 31)
    # Whatever its path is: anyone may mount on /dev/shm, in a user namespace of its own.
    put(tmp_path, "7/fd/none", "")
    for fd, mount, dev in (("3", 30, ""), ("4", 31, "c1:3")):
        put(tmp_path, f"7/fdinfo/{fd}", f"pos:\t0\nflags:\t0100000\nmnt_id:\t{mount}\n")
        (tmp_path / "7/fd" / fd).symlink_to("/dev/null")
        assert device(str(tmp_path / "7"), int(fd)) == dev
    # In a chroot that is no mount point a process sees no mounts at all.
    put(tmp_path, "8/mountinfo", "")
    assert not is_remote(tmp_path / "8", 30)
    # A mount at a path without end hides no file of the process, and its own is remote by its type.
    long = f"32 1 0:41 / /{'x' * MOST_LINE} rw - TYPE x rw\n"
    text = "31 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
    for fstype, remote in (("tmpfs", False), ("fuse.s3fs", True)):
        put(tmp_path, "8/mountinfo", long.replace("TYPE", fstype) + text)
        assert is_remote(tmp_path / "8", 32) is remote
        assert not is_remote(tmp_path / "8", 31)
    (tmp_path / "7/task/9").mkdir()  # a thread that has just ended
    assert usage._hung(str(tmp_path / "7"))


def test_a_path_for_which_the_kernel_has_no_room_hides_no_open_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error looked like that of a file that was closed."""

    def failing(*_arguments: object) -> Iterator[bytes]:
        yield b"31 1 8:1 / / rw - ext4 /dev/sda1 rw"
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(usage, "lines_of", failing)
    with (tmp_path / "file").open("w") as file:
        number = errno.ENOMEM
        with pytest.raises(StorageOpsError, match="its mounts cannot be read: Cannot allocate"):
            usage.open_devices("/proc/self", {"8:1"}, {})
        # As of a bind mount of a control group whose path is too long (cgroup_show_path).
        number = errno.ERANGE
        with pytest.raises(StorageOpsError, match="its mounts cannot be read: Numerical"):
            usage.open_devices("/proc/self", {"8:1"}, {})
        number = errno.EINVAL
        assert usage.open_devices("/proc/self", {"8:1"}, {}) == {}
        assert not file.closed


def test_a_device_at_a_path_without_end_is_open(tmp_path: Path) -> None:
    """The kernel does not tell a path of more than a page, which looked like a closed file."""
    if os.geteuid():
        pytest.skip("only root makes device nodes")
    folder = os.open(tmp_path, os.O_RDONLY)
    for _level in range(20):
        os.mkdir("x" * 250, dir_fd=folder)
        inner = os.open("x" * 250, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.mknod("node", 0o600 | stat.S_IFCHR, os.makedev(1, 3), dir_fd=folder)
    node = os.open("node", os.O_RDONLY, dir_fd=folder)
    try:
        with pytest.raises(OSError, match="File name too long"):
            os.readlink(f"/proc/self/fd/{node}")
        assert device("/proc/self", node) == "c1:3"
        assert not processes.has_open("/proc/self", "/node")
        # So, too, for a process that has its root there.
        child = os.fork()
        if not child:
            try:
                os.fchdir(folder)
                os.chroot(".")
                signal.pause()
            finally:
                os._exit(1)
        # A child that has ended has no root, which is an error.
        while os.stat(f"/proc/{child}/root").st_ino != os.fstat(folder).st_ino:
            time.sleep(0.01)
        try:
            assert device(f"/proc/{child}", node) == "c1:3"
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    finally:
        os.close(node)
        os.close(folder)
        subprocess.run(["rm", "-r", f"{tmp_path}/{'x' * 250}"], check=True)


def test_open_files_that_cannot_be_read_are_not_taken_for_none(tmp_path: Path) -> None:
    """Here the folder of a process is a file; on a node it may have too many, or hang."""
    for pid in ("7", "8", "9", "10", "11"):
        put(tmp_path, f"proc/{pid}/fd", "")
        put(tmp_path, f"proc/{pid}/comm", "web\n")
        put(tmp_path, f"proc/{pid}/cgroup", "0::/\n")
        (tmp_path / f"proc/{pid}/ns").mkdir()
        (tmp_path / f"proc/{pid}/ns/mnt").symlink_to("mnt:[1]")
    # One that can be read is none of them.
    (tmp_path / "proc/9/fd").unlink()
    (tmp_path / "proc/9/fd").mkdir()
    node = Host(Deadline(60), 30, str(tmp_path))
    found = usage.read_openers(node, {"8:0"})
    assert found.by_dev == {"8:0": []}
    assert [one.partition(" (Not")[0] for one in found.unread] == [
        f"web (pid {pid})" for pid in (7, 8, 10, 11)
    ]
    assert "web (pid 10)" in found.doubt and "pid 11" not in found.doubt
    assert found.doubt.endswith(" and 1 more has it open is not known")
    # Without rights none of them can be read.
    (tmp_path / "proc/7/comm").unlink()
    (tmp_path / "proc/7/comm").mkdir()
    with pytest.raises(StorageOpsError, match="processes of this node could not be read"):
        usage.read_openers(node, {"8:0"})


def test_a_folder_of_a_devices_name_is_not_its_node(tmp_path: Path) -> None:
    """Only what is bound from a /dev is: other filesystems may have a folder sda, too."""
    lines = ["1 0 254:0 / / rw - ext4 /dev/vda rw", "2 1 254:1 /sda /backup rw - ext4 /dev/vdb rw"]
    put(tmp_path, "proc/1/mountinfo", "\n".join(lines) + "\n")
    (tmp_path / "proc/1/ns").mkdir()
    (tmp_path / "proc/1/ns/mnt").symlink_to("mnt:[1]")
    uses = usage.UsesByDevice(Host(Deadline(60), 10, str(tmp_path)))
    assert uses.of({"sda": "8:0"}) == []


def test_a_tenant_cannot_have_a_disk_look_used(tmp_path: Path) -> None:
    """By the name of a folder in memory (an emptyDir with a subPath), or of a source in a user
    namespace of his own.
    """
    pod = "/var/lib/kubelet/pods/5b9ba8a1-4f1b-4c7e-9d2b-1f2f5d0f3c11"
    node = [
        "1 0 254:0 / / rw - ext4 /dev/vda rw",
        f"2 1 0:60 / {pod}/volumes/kubernetes.io~empty-dir/m rw - tmpfs tmpfs rw",
        f"3 1 0:60 /sda {pod}/volume-subpaths/m/main/0 rw - tmpfs tmpfs rw",
        # A driver's own.
        "4 1 0:61 /sdb /var/lib/kubelet/dev/pod rw - tmpfs tmpfs rw",
    ]
    container = [
        "9 8 0:60 /sda /sda rw - tmpfs tmpfs rw",
        "8 0 0:70 / / rw - overlay /dev/sda rw",
        "7 8 0:71 / /x rw - fuse.x /dev/sda rw",
        "6 8 0:72 / /y rw - binder /dev/sda rw",
        "5 8 0:73 / /z rw - shiftfs /dev/sda rw",
    ]
    for name, lines in {"1": node, "7": container}.items():
        put(tmp_path, f"proc/{name}/mountinfo", "\n".join(lines) + "\n")
        (tmp_path / f"proc/{name}/ns").mkdir()
        (tmp_path / f"proc/{name}/ns/mnt").symlink_to(f"mnt:[{name}]")
    put(tmp_path, "dev/sda", "")
    uses = usage.UsesByDevice(Host(Deadline(60), 10, str(tmp_path)))
    assert uses.of({"sda": "8:0"}) == []
    assert uses.of({"sdb": "8:16"}) == [
        "its device node is bound at /var/lib/kubelet/dev/pod in the mount namespace of pid 1"
    ]


def test_an_open_file_that_cannot_be_read_is_not_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(link: str) -> str:
        raise OSError(number, os.strerror(number), link)

    monkeypatch.setattr(usage, "target_of", failing)
    number = errno.ENOENT
    assert usage._device("/proc/self", "0", set) == ""
    number = errno.ENOMEM
    with pytest.raises(OSError, match="allocate"):
        usage._device("/proc/self", "0", set)


@pytest.mark.parametrize(
    ("portals", "peers"),
    [
        # A tenant's server at the array's address, on another port, is another portal.
        ([("10.0.0.5", "3260"), ("10.0.0.5", "13260")], ["10.0.0.5:3260", "10.0.0.5:13260"]),
        ([("fd00::5", "3260")], ["[fd00::5]:3260"]),
        ([("10.0.0.5", "")], ["10.0.0.5"]),
        # What is not known of two sessions does not make them one array.
        ([("", ""), ("", "")], ["unknown of session1", "unknown of session2"]),
    ],
)
def test_a_portal_is_an_address_and_a_port(
    portals: list[tuple[str, str]], peers: list[str], tmp_path: Path
) -> None:
    real = [f"192.0.2.{number}" for number in range(1, len(portals) + 1)]
    for number, (address, port) in enumerate(portals, 1):
        put(tmp_path, f"sys/class/iscsi_session/session{number}/state", "LOGGED_IN\n")
        connection = f"sys/class/iscsi_connection/connection{number}:0"
        for name, text in (("address", address), ("port", port)):
            if text:
                put(tmp_path, f"{connection}/persistent_{name}", f"{text}\n")
        put(tmp_path, f"{connection}/address", f"{real[number - 1]}\n")
    found = block.transports(Host(Deadline(60), 10, str(tmp_path)))
    assert [transport.peer for transport in found.values()] == peers
    assert [transport.address for transport in found.values()] == real
