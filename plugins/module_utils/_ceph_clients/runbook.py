# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ceph clients of a node: mapped RBD images (krbd, rbd-nbd) and CephFS (kernel, FUSE).

A client that was fenced writes again as soon as its blocklist entry is gone, and krbd does so
without a watch on its image. So before a node is released, the node itself must show that none is
left.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from .._core import untrusted
from .._core.engine import Plan
from .._core.errors import StorageOpsError
from .._node.control_groups import of_pod, pod_of
from .._node.host import FIRST_USERS, Fleeting, Host
from .._node.mounts import Mount
from .._node.namespaces import Namespace, Namespaces

_RBD = "/sys/bus/rbd/devices"
_DEBUG = "/sys/kernel/debug"
# How many places of a client are told, and how many characters of each path.
_MOST_PLACES = 20
_SHOWN = 300
# The kernel numbers the first PID namespace so (PROC_PID_INIT_INO); in any other, processes of the
# node are hidden.
_FIRST_PIDS = "pid:[4026531836]"
# comm holds 15 characters of a program's name.
_PROGRAMS = ("rbd-nbd", "ceph-fuse")
# ms_mode puts the address's type in front: (2)10.0.0.5:0/3197.
_INSTANCE = re.compile(
    r"(?:\(\d+\))?\[?(?P<address>[0-9A-Fa-f:.]+?)\]?:(?P<port>\d+)/(?P<nonce>\d+)"
)
# user@FSID.filesystem=/path, as mount.ceph(8) has written it since Quincy.
_FSID = re.compile(r"[^@/]*@(?P<fsid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.")


@dataclass(frozen=True)
class Client:
    """One mapped image or filesystem. What the node does not show is empty."""

    # krbd, rbd-nbd, cephfs or ceph-fuse.
    kind: str
    device: str
    pool: str = ""
    namespace: str = ""
    image: str = ""
    snapshot: str = ""
    # Ceph's number for it, as client.4124.
    client: str = ""
    address: str = ""
    # The address with port and nonce, as the blocklist has it.
    entry: str = ""
    fsid: str = ""
    # Where it is mounted or held, as texts.
    in_use: tuple[str, ...] = ()


@dataclass(frozen=True)
class NodeClients:
    """The Ceph clients of a node."""

    boot_id: str
    clients: tuple[Client, ...] = ()
    # Why these may not be all; empty if they are.
    problem: str = ""

    def to_result(self) -> dict[str, Any]:
        """As modules return it."""
        return {
            "boot_id": self.boot_id,
            "clients": [
                {**asdict(client), "in_use": list(client.in_use)} for client in self.clients
            ],
            "problem": self.problem,
        }


class Process(NamedTuple):
    """A client in userspace, with the words of its command line."""

    pid: int
    program: str
    words: tuple[str, ...]


class CephClients:
    """The audit that ceph_client_info runs: it reports and does not judge."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._found: NodeClients | None = None

    def gather(self) -> NodeClients:
        """Read the node in a child that may be left behind."""
        # Reading /proc/PID/cmdline takes the process's mmap lock (fs/proc/base.c, get_mm_cmdline),
        # which a process that hangs on lost storage may hold.
        host = self._host
        host.require_root()
        boot_id = host.read("/proc/sys/kernel/random/boot_id")
        if not boot_id:
            raise StorageOpsError(
                "/proc/sys/kernel/random/boot_id cannot be read, so it is unknown whether this "
                "node was rebooted"
            )
        # Not raised: node_release has to know that it is unknown, and refuses.
        try:
            self._found = self._read(boot_id)
        except StorageOpsError as error:
            self._found = NodeClients(boot_id, problem=str(error))
        return self._found

    def _read(self, boot_id: str) -> NodeClients:
        host = self._host
        # Apart from the rest, since it may have children of its own.
        mounts = _Mounts(host)
        reply = host.bounded(lambda: read(host, mounts))
        if reply.problem:
            raise StorageOpsError(reply.problem)
        clients, problems = reply.value
        found = tuple(Client(**{**client, "in_use": tuple(client["in_use"])}) for client in clients)
        return NodeClients(boot_id, found, "; ".join(problems))

    def plan(self, _state: NodeClients) -> Plan:
        """No finding: whether a client should be there only the cluster knows."""
        return Plan([])

    def healthy(self, state: NodeClients) -> str:
        """How many there are, and what is unknown."""
        names = [
            f"{client.kind} {client.device} {spec(client)}".strip() for client in state.clients
        ]
        said = (
            f"{len(names)} Ceph client{'s' * (len(names) != 1)} on "
            f"{self._host.name}{': ' if names else ''}{', '.join(names)}"
        )
        return said + (f"; there may be more: {state.problem}" if state.problem else "")

    def facts(self) -> dict[str, Any]:
        """The clients, for node_release."""
        return {"clients": self._found.to_result()} if self._found else {}


def spec(client: Client) -> str:
    """An image as the rbd command takes it; empty for a filesystem."""
    path = "/".join(filter(None, (client.pool, client.namespace, client.image)))
    return path + (f"@{client.snapshot}" if client.snapshot else "")


def read(host: Host, mounts: _Mounts) -> tuple[list[dict[str, Any]], list[str]]:
    """(fields of every ``Client``, why there may be more). May block: call it in a child."""
    problems = []
    if host.link("/proc/self/ns/pid") != _FIRST_PIDS:
        problems.append(
            "this runs in a container, from where not all processes of the node are seen: run it "
            "on the node itself"
        )
    if not host.exists("/sys/bus"):
        problems.append("/sys is not mounted")
    problems += [
        f"what is mounted in {unread} could not be read in time (delete that pod)"
        for unread in mounts.unread
    ]
    rbd = _krbd(host, mounts, problems)
    processes = _processes(host, problems)
    found = [*rbd, *_nbd(host, mounts, processes), *_filesystems(host, mounts, rbd, processes)]
    return [asdict(client) for client in found], problems


class _Mounts:
    """The mounts of images and of CephFS, in all mount namespaces.

    ``filesystems``: a mount of each CephFS, by its device. ``unread``: mount namespaces of pods in
    which there may be more.
    """

    # Tenants may have any number of mounts, at paths of any length, so only what is told is kept.

    def __init__(self, host: Host) -> None:
        self._host = host
        self.filesystems: dict[str, Mount] = {}
        # Device -> path -> processes, one of each mount namespace.
        self._places: dict[str, dict[str, dict[str, None]]] = {}
        self._more: Counter[str] = Counter()
        self._blocks = {
            number
            for name in host.names("/sys/class/block")
            if name.startswith(("rbd", "nbd"))
            for number in _numbers(host, name)
        }
        everywhere = Namespaces(host)
        first = {one: _is_the_nodes(host, one) for one in everywhere.found}
        # Last those of which it is only then known which FUSE mounts are copies (clone(2),
        # CLONE_NEWNS).
        for trusted in (True, False):
            self._read(everywhere, [one for one in first if first[one] is trusted], trusted)
        self.unread = tuple(everywhere.unread.values())

    def _read(self, everywhere: Namespaces, among: list[Namespace], trusted: bool) -> None:
        """Note the mounts of some namespaces.

        ``trusted``: not just anyone can mount there.
        """

        def note(mount: Mount) -> None:
            if mount.device in self._blocks or self._is_filesystem(mount, trusted):
                self._note(mount)

        # Filesystems without a block device have a major number of 0 (fs/super.c, get_anon_bdev).
        for _namespace, mount in everywhere.mounts(
            lambda _number, device: device in self._blocks or device.startswith("0:"), note, among
        ):
            note(mount)

    def _is_filesystem(self, mount: Mount, trusted: bool) -> bool:
        """It is of a CephFS; FUSE as its program says, or anyone who may mount."""
        # With a user namespace, which any process may make, FUSE can be mounted in mount namespaces
        # that it owns, with any name as its subtype (fs/fuse/inode.c, FS_USERNS_MOUNT). The
        # kernel's CephFS cannot (fs/ceph/super.c). No mount gets from there to the node's own
        # namespaces (mount_namespaces(7), less privileged mount namespaces).
        if mount.fstype == "ceph":
            found = True
        else:
            found = mount.fstype.startswith("fuse.ceph") and (
                trusted or mount.device in self.filesystems
            )
        if found:
            self.filesystems.setdefault(mount.device, mount)
        return found

    def _note(self, mount: Mount) -> None:
        places = self._places.setdefault(mount.device, {})
        point = untrusted.shown(mount.point, _SHOWN)
        if point in places or len(places) < _MOST_PLACES:
            places.setdefault(point, {})[mount.pid] = None
        else:
            self._more[mount.device] += 1

    def places(self, devices: Iterable[str]) -> tuple[str, ...]:
        """Where filesystems are mounted: the first places, with a count of the others.

        None of them decides anything; they say where to look.
        """
        told, more = [], 0
        for device in devices:
            more += self._more[device]
            for point, pids in self._places.get(device, {}).items():
                others = f" (and {len(pids) - 1} more)" if len(pids) > 1 else ""
                whose = _whose(self._host, next(iter(pids)))
                told.append(f"mounted at {point} in the mount namespace of {whose}{others}")
        more += len(told[_MOST_PLACES:])
        return (*told[:_MOST_PLACES], *([f"(+{more} more)"] if more else []))


def _is_the_nodes(host: Host, namespace: Namespace) -> bool:
    """Whether the node's own user namespace owns a mount namespace, so that not just anyone can
    mount there.
    """
    # A process that has ended tells nothing, and a tenant can have any number of those. Where the
    # kernel does not tell it of one that is there, not just anyone may be able to mount.
    is_there = False
    for pid in (namespace.pid, *namespace.others):
        owner = host.owner(pid)
        if owner:
            return owner in FIRST_USERS
        is_there = is_there or owner is not None
    return is_there


def _numbers(host: Host, name: str) -> list[str]:
    """The numbers of a block device and of its partitions."""
    # mountinfo shows the number, and a mount's source may be any text.
    numbers = [host.read(f"{folder}/dev") for folder in _folders(host, name)]
    return [number for number in numbers if number]


def _folders(host: Host, name: str) -> list[str]:
    """Of a block device and its partitions in sysfs."""
    base = f"/sys/class/block/{name}"
    parts = [part for part in host.names(base) if host.exists(f"{base}/{part}/partition")]
    return [base, *(f"{base}/{part}" for part in parts)]


def _whose(host: Host, pid: str) -> str:
    """A process, with its pod."""
    return f"pid {pid}{of_pod(pod_of(host, pid))}"


def _krbd(host: Host, mounts: _Mounts, problems: list[str]) -> list[Client]:
    """Images that the kernel has mapped."""
    # The attributes are described in Documentation/ABI/testing/sysfs-bus-rbd. config_info is not
    # read, since it holds the key.
    found = []
    for number in host.names(_RBD):
        base = f"{_RBD}/{number}"
        said = {name: host.read(f"{base}/{name}") for name in ("pool", "name", "client_id")}
        if None in said.values():
            # It may just be unmapped, and then it does not exist any more.
            if host.exists(base):
                problems.append(f"{base} cannot be read")
            continue
        found.append(
            replace(
                _image_of_kernel(host, base),
                device=f"/dev/rbd{number}",
                pool=said["pool"] or "",
                image=said["name"] or "",
                client=_client_id(said["client_id"] or ""),
                in_use=_in_use(host, mounts, f"rbd{number}"),
            )
        )
    return found


def _image_of_kernel(host: Host, base: str) -> Client:
    """What older kernels may not show of a mapped image."""
    snapshot = host.read(f"{base}/current_snap") or "-"
    address, entry = _instance(host.read(f"{base}/client_addr") or "")
    return Client(
        kind="krbd",
        device="",
        namespace=host.read(f"{base}/pool_ns") or "",
        snapshot="" if snapshot == "-" else snapshot,
        address=address,
        entry=entry,
        fsid=host.read(f"{base}/cluster_fsid") or "",
    )


def _in_use(host: Host, mounts: _Mounts, name: str) -> tuple[str, ...]:
    """Where a block device or a partition of it is mounted, and what is built on it."""
    # LVM, device-mapper or md on the image keep it open without any mount.
    holders = [
        f"held by {holder}"
        for folder in _folders(host, name)
        for holder in host.names(f"{folder}/holders")
    ]
    return (*mounts.places(_numbers(host, name)), *holders)


def _processes(host: Host, problems: list[str]) -> list[Process]:
    """The clients in userspace that are programs of their own."""
    found = []
    for pid in filter(str.isdigit, host.names("/proc")):
        program = host.read(f"/proc/{pid}/comm")
        # Its name a process chooses (prctl(2), PR_SET_NAME).
        if program in _PROGRAMS and host.may_mount(pid):
            words = tuple(filter(None, host.command_line(pid)))
            if words:
                found.append(Process(int(pid), program, words))
            elif _runs(host, pid):
                problems.append(
                    f"the command line of {program}, {_whose(host, pid)}, cannot be read (if it "
                    "is in a pod, delete that pod)"
                )
    return found


def _runs(host: Host, pid: str) -> bool:
    """Whether a process has a program; so, too, if that is unknown."""
    try:
        return bool(host.of_living(pid, lambda base: os.readlink(f"{base}/exe")))
    except Fleeting:
        return True


def _nbd(host: Host, mounts: _Mounts, processes: list[Process]) -> list[Client]:
    """Images that rbd-nbd has mapped: its processes, each with its device if it still has one."""
    serving: dict[int, str] = {}
    for name in host.names("/sys/block"):
        pid = host.read(f"/sys/block/{name}/pid") if name.startswith("nbd") else None
        if pid is None:
            continue
        # A thread of the server may be what has connected it. Where the server is gone, its client
        # is, too.
        leader = re.search(r"^Tgid:\s*(\d+)$", host.read(f"/proc/{pid}/status") or "", re.MULTILINE)
        if leader:
            serving[int(leader.group(1))] = name
    found = []
    for process in processes:
        if process.program == "rbd-nbd":
            name = serving.get(process.pid, "")
            in_use = (
                f"served by rbd-nbd, {_whose(host, str(process.pid))}",
                *(_in_use(host, mounts, name) if name else ()),
            )
            found.append(
                Client(
                    "rbd-nbd",
                    f"/dev/{name}" if name else "",
                    *_image(process.words[1:]),
                    in_use=in_use,
                )
            )
    return found


def _image(words: tuple[str, ...]) -> tuple[str, str, str, str]:
    """Pool, namespace, image and snapshot from the arguments of ``rbd-nbd map``; empty where they
    are unclear.
    """
    # The argument is [POOL/[NAMESPACE/]]IMAGE[@SNAPSHOT], with the pool "rbd" by default
    # (rbd-nbd(8), rbd(8)). Except for options and paths only an image has a slash; without a pool
    # it follows the command.
    after = words[words.index("map") + 1 :][:1] if "map" in words else ()
    plain = [word for word in words if not word.startswith(("-", "/"))]
    candidates = [*(word for word in plain if "/" in word), *after]
    text = next((word for word in candidates if word in plain), "")
    path, _at, snapshot = text.partition("@")
    *above, image = path.split("/")
    if not path or len(above) > 2:
        return "", "", "", ""
    pool, namespace = [*above, *("rbd", "")[len(above) :]]
    return pool, namespace, image, snapshot


def _filesystems(
    host: Host, mounts: _Mounts, rbd: list[Client], processes: list[Process]
) -> list[Client]:
    """CephFS by its mounts, its processes, and the kernel's clients in debugfs."""
    # A busy client outlives its last mount, and is then seen in debugfs only.
    found = [
        _mounted(mount, mounts.places([device])) for device, mount in mounts.filesystems.items()
    ]
    found += [
        Client("ceph-fuse", "", in_use=(f"served by ceph-fuse, {_whose(host, str(process.pid))}",))
        for process in processes
        if process.program == "ceph-fuse"
    ]
    return _with_instances(found, _kernel_clients(host, {client.client for client in rbd}))


def _mounted(mount: Mount, places: tuple[str, ...]) -> Client:
    """A CephFS by one of its mounts."""
    fsid = _FSID.match(mount.source)
    kind = "cephfs" if mount.fstype == "ceph" else "ceph-fuse"
    return Client(kind, mount.source, fsid=fsid.group("fsid") if fsid else "", in_use=places)


def _kernel_clients(host: Host, mapped: set[str]) -> list[Client]:
    """Clients of the kernel other than those of mapped images, where debugfs is mounted."""
    # Their folders are called FSID.clientNUMBER (net/ceph/debugfs.c, ceph_debugfs_client_init).
    found = []
    for folder in host.names(f"{_DEBUG}/ceph"):
        fsid, _dot, number = folder.rpartition(".")
        client = _client_id(number)
        if client and client not in mapped:
            status = host.read(f"{_DEBUG}/ceph/{folder}/status") or ""
            address, entry = _instance(status)
            found.append(
                Client("cephfs", "", client=client, address=address, entry=entry, fsid=fsid)
            )
    return found


def _with_instances(found: list[Client], kernel: list[Client]) -> list[Client]:
    """Join mounts with the kernel's clients."""
    # The kernel does not say which client has which mount, so only a single pair surely fits.
    mounted = [client for client in found if client.kind == "cephfs"]
    if (
        len(mounted) != 1
        or len(kernel) != 1
        or (mounted[0].fsid or kernel[0].fsid) != kernel[0].fsid
    ):
        return found + kernel
    joined = replace(kernel[0], device=mounted[0].device, in_use=mounted[0].in_use)
    return [joined if client is mounted[0] else client for client in found]


def _client_id(text: str) -> str:
    """``client4124`` of the kernel in Ceph's form, ``client.4124``; empty for anything else."""
    match = re.fullmatch(r"client\.?(\d+)", text)
    return f"client.{match.group(1)}" if match else ""


def _instance(text: str) -> tuple[str, str]:
    """(address, entry as the blocklist has it) of the first ``address:port/nonce`` in a text; both
    empty if there is none.
    """
    match = _INSTANCE.search(text)
    if match is None:
        return "", ""
    try:
        address = ipaddress.ip_address(match.group("address"))
    except ValueError:
        return "", ""
    host = f"[{address}]" if address.version == 6 else str(address)
    return str(address), f"{host}:{match.group('port')}/{match.group('nonce')}"
