# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ceph clients read from a tree as a Debian 12 node (Linux 6.1, Ceph 16.2) has shown it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph_clients.runbook import (
    CephClients,
    Client,
    _image,
    _instance,
    _Mounts,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import namespaces
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import MOST_LINE, Host

FSID = "981f368d-d55e-474a-b0be-3df26643b32a"
BOOT = "82b619b4-0ab0-4e9c-b2a2-196bbf0b9cf0"
POD = "0c7e5a39-6c1f-4b7c-9f55-2f4d3f1c8a11"
# Capability sets: of root, of a container by default (a80425fb has no CAP_SYS_ADMIN), and none.
ALL, CONTAINER, NONE = "000001ffffffffff", "00000000a80425fb", "0000000000000000"
FIRST_USERS, OTHER_USERS = "user:[4026531837]", "user:[4026532999]"
SECRET = "AQD8gwFrapYrHxAAo8zsHVXbtOL+LbjKs9BMkg=="
ROOT = "22 1 254:0 / / rw - ext4 /dev/vda rw"
KRBD = Client(
    "krbd",
    "/dev/rbd0",
    "rbd",
    "",
    "img1",
    "",
    "client.4173",
    "127.0.0.1",
    "127.0.0.1:0/3526210998",
    FSID,
)


def put(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(f"{text}\n")


def put_process(root: Path, pid: int, program: str, *words: str) -> None:
    put(root, f"proc/{pid}/comm", program)
    (root / f"proc/{pid}/cmdline").write_text("".join(f"{word}\0" for word in words))
    put_status(root, pid)
    (root / f"proc/{pid}/exe").symlink_to(f"/usr/bin/{program}")
    (root / f"proc/{pid}/ns").mkdir(exist_ok=True)
    (root / f"proc/{pid}/ns/user").symlink_to(FIRST_USERS)


def put_status(
    root: Path, pid: int, permitted: str = ALL, effective: str = ALL, bounding: str = ALL
) -> None:
    sets = f"CapInh:\t{NONE}\nCapPrm:\t{permitted}\nCapEff:\t{effective}\nCapBnd:\t{bounding}"
    put(root, f"proc/{pid}/status", f"Name:\tx\nTgid:\t{pid}\nPid:\t{pid}\n{sets}")


def put_image(root: Path, number: int = 0, **changed: str) -> None:
    said = {
        "pool": "rbd",
        "pool_ns": "",
        "name": "img1",
        "current_snap": "-",
        "client_id": "client4173",
        "client_addr": "127.0.0.1:0/3526210998",
        "cluster_fsid": FSID,
        "config_info": f"127.0.0.1:6789 name=admin,secret={SECRET} rbd img1 -",
    }
    for name, text in {**said, **changed}.items():
        put(root, f"sys/bus/rbd/devices/{number}/{name}", text)
    put(root, f"sys/class/block/rbd{number}/dev", f"252:{16 * number}")


def put_mounts(root: Path, *lines: str, pid: int = 1, owner: str = FIRST_USERS) -> None:
    put(root, f"proc/{pid}/mountinfo", "\n".join([ROOT, *lines]))
    (root / f"proc/{pid}/ns").mkdir(exist_ok=True)
    (root / f"proc/{pid}/ns/mnt").symlink_to(f"mnt:[{pid}]")
    if owner:
        (root / f"proc/{pid}/ns/mnt.owner").symlink_to(owner)


class Tree(Host):
    """A tree, read by a test that need not be root."""

    def __init__(self, root: Path) -> None:
        super().__init__(Deadline(60), 10, str(root))
        self.name = "worker01"

    def require_root(self) -> None:
        pass

    def owner(self, pid: str) -> str | None:
        link = f"/proc/{pid}/ns/mnt"
        return self.link(f"{link}.owner") if self.link(link) else None


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path, "proc/sys/kernel/random/boot_id", BOOT)
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/pid").symlink_to("pid:[4026531836]")
    (tmp_path / "sys/bus").mkdir(parents=True)
    (tmp_path / "proc/1").mkdir()
    put_mounts(tmp_path)
    return tmp_path


def clients(root: Path) -> dict[str, Any]:
    audit = CephClients(Tree(root))
    assert audit.facts() == {}
    audit.gather()
    found: dict[str, Any] = audit.facts()["clients"]
    assert SECRET not in json.dumps(found)
    return found


def result(client: Client) -> dict[str, Any]:
    return {**client.__dict__, "in_use": list(client.in_use)}


def test_a_node_without_ceph(root: Path) -> None:
    audit = CephClients(Tree(root))
    state = audit.gather()
    assert audit.facts() == {"clients": {"boot_id": BOOT, "clients": [], "problem": ""}}
    assert audit.healthy(state) == "0 Ceph clients on worker01"
    assert audit.plan(state).findings == []


def test_images_mapped_by_the_kernel(root: Path) -> None:
    put_image(root)
    put_image(
        root,
        1,
        pool="fast",
        pool_ns="team",
        name="img2",
        current_snap="monday",
        client_addr="[fd00::5]:0/12",
    )
    put(root, "sys/class/block/rbd1/holders/dm-3", "")
    put(root, "sys/class/block/rbd1/rbd1p1/partition", "1")
    put(root, "sys/class/block/rbd1/rbd1p1/dev", "252:17")
    (root / "proc/77").mkdir()
    put_mounts(root, "30 22 252:17 / /data rw - ext4 /dev/rbd1p1 rw", pid=77)
    in_use = ("mounted at /data in the mount namespace of pid 77", "held by dm-3")
    second = Client(
        "krbd",
        "/dev/rbd1",
        "fast",
        "team",
        "img2",
        "monday",
        "client.4173",
        "fd00::5",
        "[fd00::5]:0/12",
        FSID,
        in_use,
    )
    assert clients(root)["clients"] == [result(KRBD), result(second)]
    audit = CephClients(Tree(root))
    assert (
        audit.healthy(audit.gather())
        == "2 Ceph clients on worker01: krbd /dev/rbd0 rbd/img1, krbd /dev/rbd1 "
        "fast/team/img2@monday"
    )


def test_a_mount_in_many_namespaces_is_told_once(root: Path) -> None:
    """Each container has a copy of it, and they must not push others off the list."""
    put_image(root)
    number = (root / "sys/class/block/rbd0/dev").read_text().strip()
    for pid in range(70, 110):
        (root / f"proc/{pid}").mkdir()
        put_mounts(root, f"30 22 {number} / /data rw - ext4 /dev/rbd0 rw", pid=pid)
    (client,) = clients(root)["clients"]
    (place,) = client["in_use"]
    assert place.startswith("mounted at /data in the mount namespace of pid ")
    assert place.endswith(" (and 39 more)")


def test_an_image_that_cannot_be_read(root: Path) -> None:
    """Nobody may conclude that there is none."""
    put_image(root)
    (root / "sys/bus/rbd/devices/0/client_id").unlink()
    found = clients(root)
    assert found["clients"] == []
    assert found["problem"] == "/sys/bus/rbd/devices/0 cannot be read"


def test_images_mapped_by_rbd_nbd(root: Path) -> None:
    put_process(root, 2797, "rbd-nbd", "/usr/bin/rbd-nbd", "map", "rbd/img2", "--try-netlink")
    put_process(
        root,
        2800,
        "rbd-nbd",
        "rbd-nbd",
        "--id",
        "csi",
        "--keyfile=/tmp/csi/keys/k",
        "--device",
        "/dev/nbd9",
        "attach",
        "p/n/i@s",
    )
    put_process(root, 2900, "qemu-nbd", "qemu-nbd", "-c", "/dev/nbd2", "disk")
    # A thread has connected it; the server of the last one has died.
    put(root, "proc/2799/status", "Name:\trbd-nbd\nTgid:\t2797\nPid:\t2799")
    for name, pid in (("nbd0", "2799"), ("nbd2", "2900"), ("nbd3", "4711")):
        put(root, f"sys/block/{name}/pid", pid)
    (root / "sys/block/nbd1").mkdir()
    put(root, "sys/class/block/nbd0/dev", "43:0")
    put(root, "proc/1/mountinfo", f"{ROOT}\n40 22 43:0 / /mnt/n rw - ext4 /dev/nbd0 rw")
    found = clients(root)
    in_use = ("served by rbd-nbd, pid 2797", "mounted at /mnt/n in the mount namespace of pid 1")
    assert found["clients"] == [
        result(Client("rbd-nbd", "/dev/nbd0", "rbd", "", "img2", in_use=in_use)),
        result(Client("rbd-nbd", "", "p", "n", "i", "s", in_use=("served by rbd-nbd, pid 2800",))),
    ]
    assert found["problem"] == ""


def test_a_process_that_does_not_show_its_command_line(root: Path) -> None:
    put_process(root, 2797, "rbd-nbd")
    put(root, "proc/2797/cgroup", f"0::/kubepods/besteffort/pod{POD}/{'a' * 64}")
    problem = clients(root)["problem"]
    assert problem == (
        f"the command line of rbd-nbd, pid 2797 of pod {POD}, cannot be read (if it "
        "is in a pod, delete that pod)"
    )
    # It ended meanwhile: then there is nothing to see, and nothing left.
    (root / "proc/2797/exe").unlink()
    assert clients(root)["problem"] == ""
    # Each of its threads ends before it can be read, and there is another one.
    for pid in (2797, 2798):
        (root / f"proc/2797/task/{pid}").mkdir(parents=True)
    (root / "proc/2797/ns/mnt").symlink_to("mnt:[1]")
    assert clients(root)["problem"] == problem


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("map img", ("rbd", "", "img", "")),
        ("map p/img --cookie x", ("p", "", "img", "")),
        ("--cluster ceph map p/ns/img@snap", ("p", "ns", "img", "snap")),
        ("-m 10.0.0.1:6789 attach --device /dev/nbd0 p/img --cookie x", ("p", "", "img", "")),
        ("map --pool p --image img", ("", "", "", "")),
        ("map a/b/c/d", ("", "", "", "")),
        ("", ("", "", "", "")),
    ],
)
def test_image_in_a_command_line(line: str, expected: tuple[str, str, str, str]) -> None:
    assert _image(tuple(line.split())) == expected


def put_kernel_client(
    root: Path, number: int, address: str = "127.0.0.1:0/3565127129", fsid: str = FSID
) -> None:
    text = f"instance: client.{number} (3){address}\nblocklisted: false"
    put(root, f"sys/kernel/debug/ceph/{fsid}.client{number}/status", text)


def cephfs(source: str, device: str = "0:50") -> str:
    return f"50 22 {device} / /mnt/c rw - ceph {source} rw,name=admin,secret=<hidden>"


MOUNTED = ("mounted at /mnt/c in the mount namespace of pid 1",)


@pytest.mark.parametrize("source", ["127.0.0.1:6789:/", f"admin@{FSID}.cfs=/"])
def test_filesystem_of_the_kernel(root: Path, source: str) -> None:
    """Its mount and its client are joined; the client of a mapped image is none of a filesystem."""
    put_image(root)
    put_kernel_client(root, 4163)
    (root / f"sys/kernel/debug/ceph/{FSID}.client4173").mkdir()
    put(root, "proc/1/mountinfo", f"{ROOT}\n{cephfs(source)}")
    entry = {
        "client": "client.4163",
        "address": "127.0.0.1",
        "entry": "127.0.0.1:0/3565127129",
        "fsid": FSID,
        "in_use": MOUNTED,
    }
    assert clients(root)["clients"] == [result(KRBD), result(Client("cephfs", source, **entry))]


def test_filesystems_are_not_joined_on_a_guess(root: Path) -> None:
    put_kernel_client(root, 4163)
    put_kernel_client(root, 4164)
    put(root, "proc/1/mountinfo", f"{ROOT}\n{cephfs('10.0.0.1:/')}")
    found = clients(root)["clients"]
    assert [(client["device"], client["client"], client["in_use"]) for client in found] == [
        ("10.0.0.1:/", "", list(MOUNTED)),
        ("", "client.4163", []),
        ("", "client.4164", []),
    ]
    # One client, but of another cluster than the mount.
    other = "5b9ba8a1-4f1b-4c7e-9d2b-1f2f5d0f3c11"
    put(root, "proc/1/mountinfo", f"{ROOT}\n{cephfs(f'admin@{other}.cfs=/')}")
    for number in (4163, 4164):
        os.unlink(root / f"sys/kernel/debug/ceph/{FSID}.client{number}/status")
    os.rmdir(root / f"sys/kernel/debug/ceph/{FSID}.client4164")
    assert [
        (client["device"], client["client"], client["fsid"]) for client in clients(root)["clients"]
    ] == [
        (f"admin@{other}.cfs=/", "", other),
        ("", "client.4163", FSID),
    ]


def test_a_filesystem_without_a_mount_is_found(root: Path) -> None:
    """Lazily unmounted and busy: no namespace has it any more, but its client lives."""
    put_kernel_client(root, 4163)
    assert [(client["kind"], client["client"]) for client in clients(root)["clients"]] == [
        ("cephfs", "client.4163")
    ]


def test_ceph_fuse_by_its_mount_and_by_its_process(root: Path) -> None:
    put(root, "proc/1/mountinfo", f"{ROOT}\n50 22 0:51 / /mnt/f rw - fuse.ceph-fuse ceph-fuse rw")
    put_process(root, 3008, "ceph-fuse", "ceph-fuse", "/mnt/f")
    assert [
        (client["kind"], client["device"], client["in_use"]) for client in clients(root)["clients"]
    ] == [
        ("ceph-fuse", "ceph-fuse", ["mounted at /mnt/f in the mount namespace of pid 1"]),
        ("ceph-fuse", "", ["served by ceph-fuse, pid 3008"]),
    ]


@pytest.mark.parametrize("program", ["rbd-nbd", "ceph-fuse"])
def test_a_container_may_give_its_process_any_name(root: Path, program: str) -> None:
    put_process(root, 3008, program, program, "map", "rbd/img2")
    put_status(root, 3008, CONTAINER, CONTAINER, CONTAINER)
    # All of its capabilities are of a user namespace that it has made itself.
    put_process(root, 3009, program, program, "map", "rbd/img2")
    (root / "proc/3009/ns/user").unlink()
    (root / "proc/3009/ns/user").symlink_to(OTHER_USERS)
    # Nor need it show its command line.
    put_process(root, 3010, program)
    put_status(root, 3010, CONTAINER, CONTAINER, CONTAINER)
    found = clients(root)
    assert (found["clients"], found["problem"]) == ([], "")


@pytest.mark.parametrize("program", ["rbd-nbd", "ceph-fuse"])
@pytest.mark.parametrize(
    "sets", [(ALL, NONE, NONE), (NONE, ALL, NONE), (NONE, NONE, ALL), ("200000", NONE, NONE)]
)
def test_what_may_have_attached_something_counts(
    root: Path, program: str, sets: tuple[str, str, str]
) -> None:
    """Also what has given up its capabilities since, or got them from fusermount3."""
    put_process(root, 3008, program, program, "map", "rbd/img2")
    put_status(root, 3008, *sets)
    put(root, "proc/3008/cgroup", f"0::/kubepods/besteffort/pod{POD}/{'a' * 64}")
    (client,) = clients(root)["clients"]
    assert client["kind"] == program
    assert client["in_use"] == [f"served by {program}, pid 3008 of pod {POD}"]


@pytest.mark.parametrize("program", ["rbd-nbd", "ceph-fuse"])
@pytest.mark.parametrize("gone", ["status", "ns/user"])
def test_what_is_unknown_of_a_process_counts(root: Path, program: str, gone: str) -> None:
    """So does a process of a kernel without user namespaces."""
    put_process(root, 3008, program, program, "map", "rbd/img2")
    (root / "proc/3008/ns/mnt").symlink_to("mnt:[3008]")
    unreadable = root / f"proc/3008/{gone}"
    unreadable.unlink()
    if gone == "status":
        unreadable.mkdir()
    assert [client["kind"] for client in clients(root)["clients"]] == [program]


FUSE = "50 22 0:51 / /mnt/f rw - fuse.ceph-fuse ceph-fuse rw"


def test_anyone_may_mount_fuse_in_a_mount_namespace_of_his_own(root: Path) -> None:
    (root / "proc/77").mkdir()
    put_mounts(root, FUSE, pid=77, owner=OTHER_USERS)
    found = clients(root)
    assert (found["clients"], found["problem"]) == ([], "")


@pytest.mark.parametrize("owner", ["", FIRST_USERS])
def test_a_mount_that_not_just_anyone_can_make_counts(root: Path, owner: str) -> None:
    (root / "proc/77").mkdir()
    put_mounts(root, FUSE, pid=77, owner=owner)
    # Read first, and shows where else the node's mount is.
    (root / "proc/10").mkdir()
    put_mounts(root, FUSE.replace("/mnt/f", "/copy"), pid=10, owner=OTHER_USERS)
    (client,) = clients(root)["clients"]
    assert (client["kind"], client["in_use"]) == (
        "ceph-fuse",
        [
            "mounted at /mnt/f in the mount namespace of pid 77",
            "mounted at /copy in the mount namespace of pid 10",
        ],
    )


def test_a_process_that_ends_makes_no_tenants_mount_count(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of many short-lived ones came first, and so its namespace was taken for the node's (N12).

    A namespace of which the kernel does not tell whose it is counts.
    """
    for pid in (76, 77):
        (root / f"proc/{pid}").mkdir()
        put_mounts(root, FUSE, pid=pid, owner=OTHER_USERS)
    for pid in (76, 77):
        (root / f"proc/{pid}/ns/mnt").unlink()
        (root / f"proc/{pid}/ns/mnt").symlink_to("mnt:[77]")
    monkeypatch.setattr(namespaces, "_root_of", lambda _host, _pid: 9)
    # It ends after it was found.
    (root / "proc/76/ns/mnt.owner").unlink()
    assert clients(root)["clients"] == []
    (root / "proc/77/ns/mnt.owner").unlink()
    assert [client["kind"] for client in clients(root)["clients"]] == ["ceph-fuse"]


def test_the_kernels_cephfs_counts_in_every_mount_namespace(root: Path) -> None:
    """Of a pod with a user namespace, only the container may be left."""
    (root / "proc/77").mkdir()
    put_mounts(root, cephfs("10.0.0.1:/"), pid=77, owner=OTHER_USERS)
    assert [client["kind"] for client in clients(root)["clients"]] == ["cephfs"]


def long_mount(device: str, rest: str) -> str:
    """Both the folder that is mounted, and where, may be deeper than what is read of a line."""
    deep = f"/{'x' * 250}" * (MOST_LINE // 250)
    return f"60 22 {device} {deep} {deep} rw,nosuid shared:9 - {rest}"


@pytest.mark.parametrize(
    ("device", "rest"),
    [
        # A folder of an emptyDir, on the node's disk or in memory, that a container has moved.
        ("254:0", "ext4 /dev/vda rw"),
        ("0:44", "tmpfs tmpfs rw"),
        ("0:45", f"overlay - rw,lowerdir={'/y' * MOST_LINE} - ceph ceph rw"),
        ("0:46", "nfs4 10.0.0.9:/ceph rw"),
    ],
)
def test_a_mount_with_a_long_line_is_none_of_ceph(root: Path, device: str, rest: str) -> None:
    put_mounts_of_1(root, long_mount(device, rest))
    found = clients(root)
    assert (found["clients"], found["problem"]) == ([], "")


@pytest.mark.parametrize(
    ("rest", "kind"),
    [
        ("ceph 10.0.0.1:/ rw", "cephfs"),
        ("fuse.ceph-fuse ceph-fuse rw", "ceph-fuse"),
        (f"fuse.ceph {'z' * MOST_LINE} rw", "ceph-fuse"),
    ],
)
def test_a_mount_of_ceph_counts_however_long_its_line(root: Path, rest: str, kind: str) -> None:
    put_mounts_of_1(root, long_mount("0:47", rest), "61 22 0:48 / /b rw - ceph 10.0.0.2:/ rw")
    found = clients(root)
    assert [client["kind"] for client in found["clients"]] == [kind, "cephfs"]
    assert found["problem"] == ""
    (place,) = found["clients"][0]["in_use"]
    assert place.startswith("mounted at /xxx") and len(place) < 500


def test_places_are_few_however_many_there_are(root: Path) -> None:
    """A tenant may mount a volume on itself as often as he likes, and each mount costs memory."""
    put_image(root)
    number = (root / "sys/class/block/rbd0/dev").read_text().strip()
    lines = [f"{50 + n} 22 {number} / /p{n} rw - ext4 /dev/rbd0 rw" for n in range(50)]
    put_mounts_of_1(root, *lines)
    (client,) = clients(root)["clients"]
    assert len(client["in_use"]) == 21
    assert client["in_use"][-1] == "(+30 more)"
    assert [len(places) for places in _Mounts(Tree(root))._places.values()] == [20]


def test_where_a_pods_mounts_were_not_read_there_may_be_more(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So, too, if the time was not enough for those of the node itself."""
    put_image(root)
    (root / "proc/77").mkdir()
    put_mounts(root, FUSE, pid=77, owner=OTHER_USERS)
    put(root, "proc/77/cgroup", f"0::/kubepods/besteffort/pod{POD}/{'a' * 64}")
    lines = Host.lines

    def failing(host: Host, path: str) -> Iterator[bytes]:
        yield from lines(host, path)
        if path in failed:
            raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(Host, "lines", failing)
    failed = ["/proc/77/mountinfo"]
    found = clients(root)
    assert [client["kind"] for client in found["clients"]] == ["krbd"]
    assert found["problem"] == (
        f"what is mounted in the mount namespace of pid 77 of pod {POD} could not be read in time "
        "(delete that pod)"
    )
    failed = ["/proc/1/mountinfo"]
    found = clients(root)
    assert found["clients"] == [] and "Cannot allocate memory" in found["problem"]


def put_mounts_of_1(root: Path, *lines: str) -> None:
    put(root, "proc/1/mountinfo", "\n".join([ROOT, *lines]))


# A process of a container, named like a client; it mounts FUSE where it may. Arguments: name, and
# whether to make namespaces of its own, by which it has all capabilities there.
TENANT = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def check(result):
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
name, own = sys.argv[1].encode(), sys.argv[2] == "own"
if own:
    check(libc.unshare(0x10000000 | 0x00020000))  # CLONE_NEWUSER, CLONE_NEWNS
    for file, text in (("setgroups", "deny"), ("uid_map", "0 0 1"), ("gid_map", "0 0 1")):
        with open("/proc/self/" + file, "w") as opened:
            opened.write(text)
    fuse = os.open("/dev/fuse", os.O_RDWR)
    options = b"fd=%d,rootmode=40000,user_id=0,group_id=0,subtype=ceph-fuse" % fuse
    check(libc.mount(b"ceph-fuse", b"/mnt", b"fuse", 0, options))
else:
    check(libc.prctl(24, 21, 0, 0, 0))  # PR_CAPBSET_DROP, CAP_SYS_ADMIN
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
check(libc.prctl(15, name, 0, 0, 0))  # PR_SET_NAME
print(flush=True)
time.sleep(600)
"""


@contextmanager
def tenant(name: str, own: str) -> Iterator[int]:
    """A real process; its id."""
    command = [sys.executable, "-c", TENANT, name, own]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout and process.stdout.readline() == b"\n"
            yield process.pid
        finally:
            process.kill()


class Real(Host):
    """This machine, without what it shows of others: they may come and go."""

    def __init__(self, *pids: int) -> None:
        super().__init__(Deadline(60), 60)
        self._pids = [str(pid) for pid in (os.getpid(), *pids)]

    def names(self, path: str) -> list[str]:
        return self._pids if path == "/proc" else super().names(path)


@pytest.mark.skipif(
    os.geteuid() != 0
    or os.readlink("/proc/self/ns/pid") != "pid:[4026531836]"
    or not os.access("/dev/fuse", os.W_OK),
    reason="needs root of a machine, and /dev/fuse",
)
@pytest.mark.parametrize("name", ["rbd-nbd", "ceph-fuse"])
def test_a_real_process_and_a_real_mount_of_a_tenant(name: str) -> None:
    before = CephClients(Real()).gather()
    assert before.problem == ""
    with tenant(name, "own") as first, tenant(name, "none") as second:
        mounts = Path(f"/proc/{first}/mountinfo").read_text()
        assert "- fuse.ceph-fuse ceph-fuse" in mounts
        for pid in (first, second):
            assert Path(f"/proc/{pid}/comm").read_text() == f"{name}\n"
        assert CephClients(Real(first, second)).gather() == before
    # Such a process with the node's capabilities counts, and so does root's mount.
    code = TENANT.replace("0x10000000 | ", "").replace('"/proc/self/" + file', "os.devnull")
    command = ["unshare", "-m", sys.executable, "-c", code, name, "own"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout and process.stdout.readline() == b"\n"
            kinds = [client.kind for client in CephClients(Real(process.pid)).gather().clients]
        finally:
            process.kill()
    added = kinds[len(before.clients) :]
    assert sorted(added) == sorted(["ceph-fuse", name])


def test_in_a_container_nobody_may_conclude_that_there_is_none(root: Path) -> None:
    (root / "proc/self/ns/pid").unlink()
    (root / "proc/self/ns/pid").symlink_to("pid:[4026532501]")
    (root / "sys/bus").rmdir()
    audit = CephClients(Tree(root))
    state = audit.gather()
    assert "run it on the node itself" in state.problem
    assert "/sys is not mounted" in state.problem
    assert audit.healthy(state).startswith("0 Ceph clients on worker01; there may be more: ")


def test_what_cannot_be_read_at_all_is_a_problem(root: Path) -> None:
    put(root, "proc/1/mountinfo", "nonsense")
    assert "/proc/1/mountinfo" in clients(root)["problem"]


def test_without_a_boot_id_nothing_is_said(root: Path) -> None:
    (root / "proc/sys/kernel/random/boot_id").unlink()
    with pytest.raises(StorageOpsError, match="boot_id"):
        CephClients(Tree(root)).gather()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.5:0/3197", ("10.0.0.5", "10.0.0.5:0/3197")),
        ("(2)10.0.0.5:0/3197", ("10.0.0.5", "10.0.0.5:0/3197")),
        (
            "instance: client.4163 (3)[FD00:0::5]:0/7\nblocklisted: false",
            ("fd00::5", "[fd00::5]:0/7"),
        ),
        ("(1)300.0.0.1:0/7", ("", "")),
        ("", ("", "")),
    ],
)
def test_instances(text: str, expected: tuple[str, str]) -> None:
    assert _instance(text) == expected
