# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether NFS shares can be mounted on this node: names, routes, ports, and timed mounts.

The mounts are made where no other process sees them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from .._core.argspec import ArgumentSpec, check_numbers, given_options
from .._core.bounded import call_each, owners_of, run_command
from .._core.engine import Plan
from .._core.errors import BadOption, StorageOpsError
from .._core.texts import is_number
from .._node import kubelet
from .._node.control_groups import may_be_ours, pod_of
from .._node.host import Host
from .._node.kubelet import UNKNOWN, find_root, namespaces_of, owner_of
from .._node.mounts import Mount, pass_over, read_table
from .._node.namespaces import Namespaces
from .._node.options import SHARES
from .plan import (
    FAILED,
    NO_ANSWER,
    NO_ROUTE,
    NOT_TRIED,
    OK,
    REFUSED,
    VERSIONS,
    Attempt,
    NfsOptions,
    NfsState,
    Port,
    Share,
    Target,
    classify,
    describe,
    not_applicable,
    plan,
    port_of,
    require_measured,
    split_share,
)
from .runtime_limit import LimitOptions, excessive, read_limits

NFS_SPEC = SHARES.merge(
    ArgumentSpec(
        {
            "versions": {
                "type": "list",
                "elements": "str",
                "choices": ["3", "4.0", "4.1", "4.2"],
                "default": ["3", "4.0", "4.1", "4.2"],
            },
            "wanted_version": {
                "type": "str",
                "choices": ["", "3", "4", "4.0", "4.1", "4.2"],
                "default": "",
            },
            "mount_options": {"type": "list", "elements": "str", "default": []},
            "mount_timeout": {"type": "float", "default": 30.0},
            "slow_seconds": {"type": "float", "default": 10.0},
            "connect_timeout": {"type": "float", "default": 3.0},
        }
    )
)

# Seconds after a mount's time-out: for timeout(1) to kill it, and for the kernel to release it.
_GRACE = 3.0
# An array has an address per controller and network; mount.nfs tries them in turn.
_MAX_ADDRESSES = 8
# Program numbers of RPC (RFC 1833, 3.1; RFC 1813, 5.1).
_PORTMAPPER, _MOUNTD = 100000, 100005
# Transports other than TCP (nfs(5), proto). No port can be tried for them.
_NOT_TCP = {"proto=rdma", "proto=rdma6", "rdma", "proto=udp", "proto=udp6", "udp"}
# Options that the user may not give: the version, which is what is tried, and bg, since a mount in
# the background would outlive this module (nfs(5)).
_NOT_TO_BE_GIVEN = re.compile(r"(nfsvers|vers|minorversion)(=|$)|v[34](\.\d)?$|bg$", re.ASCII)
# The options of an existing mount without which another one of the share may fail, or reach another
# server.
_KEPT = re.compile(r"(sec|proto)=[\w:]+|port=[1-9]\d*", re.ASCII)
# Below /run, with the process's ID: what an ended run left is known by it, and removed.
_FOLDER = re.compile(r"storage_ops-nfs-(\d+)", re.ASCII)


def nfs_options(params: dict[str, Any]) -> NfsOptions:
    """The options of NfsShares, checked. Raises BadOption."""
    given = given_options(NfsOptions, params)
    for name in ("shares", "versions", "mount_options"):
        given[name] = tuple(dict.fromkeys(item.strip() for item in given.get(name, ())))
    # A list, or one text with commas, as in a StorageClass.
    given["mount_options"] = tuple(filter(None, ",".join(given["mount_options"]).split(",")))
    given["versions"] = given["versions"] or NfsOptions.versions
    options = NfsOptions(**given)
    for share in options.shares:
        split_share(share)
    # The attempt would measure another version than it says.
    odd = [option for option in options.mount_options if _NOT_TO_BE_GIVEN.match(option)]
    if odd:
        raise BadOption(
            f"{odd[0]!r} may not be in mount_options: versions and wanted_version say what is "
            "tried, in the foreground"
        )
    _require_times(options)
    return replace(options, versions=(*options.versions, *_missing_versions(options)))


def _require_times(options: NfsOptions) -> None:
    given = {"mount_timeout": options.mount_timeout, "connect_timeout": options.connect_timeout}
    check_numbers(given, {"mount_timeout": 1, "connect_timeout": 0.1})
    if not 0 < options.slow_seconds <= options.mount_timeout:
        raise BadOption(
            f"slow_seconds is {options.slow_seconds:g}; give more than 0 and at most mount_timeout"
        )


def _missing_versions(options: NfsOptions) -> list[str]:
    """The versions that wanted_version needs besides those that are tried anyway."""
    wanted = options.wanted_version
    # mount.nfs then negotiates among the minor versions.
    if wanted == "4":
        minors = ["4.0", "4.1", "4.2"]
        return [] if set(options.versions) & set(minors) else minors
    return [] if wanted in ("", *options.versions) else [wanted]


class NfsShares:
    """STOR-09 on one node; only reports.

    ``measured``: what could not be measured is an error, so that it does not fail the control.
    """

    def __init__(
        self,
        host: Host,
        options: NfsOptions,
        limits: LimitOptions,
        kubelet_root: str,
        measured: bool = False,
    ) -> None:
        self._host = host
        self._options = options
        self._limits = limits
        self._root = kubelet_root
        self._measured = measured
        self._state: NfsState | None = None

    def gather(self) -> NfsState:
        """Resolve the servers' names, connect to them, and mount the shares."""
        host, options = self._host, self._options
        # A mount needs CAP_SYS_ADMIN (mount(2)), and so does a mount namespace (unshare(2)).
        host.require_root()
        # Named shares, else those that the kubelet has mounted on this node.
        targets = [Target(share) for share in options.shares] or _targets_here(host, self._root)
        if targets:
            # Mounts are tried with the limit that a CSI driver's container has.
            limit = excessive(read_limits(host, self._limits), self._limits)
            self._state = _gather(host, targets, options, limit)
        else:
            self._state = NfsState(host.name, ())
        return self._state

    def plan(self, state: NfsState) -> Plan:
        """Decide, from what was gathered."""
        found = plan(state, self._options)
        if self._measured:
            require_measured(found.findings)
        return found

    def not_applicable(self, state: NfsState) -> dict[str, str]:
        """The control, where there is no share."""
        return not_applicable(state)

    def healthy(self, state: NfsState) -> str:
        """What a run says that finds nothing."""
        count = len(state.shares)
        return (
            f"{count} NFS share{'s' * (count != 1)} mounted in time"
            if count
            else f"no NFS share is mounted below {self._root}"
        )

    def facts(self) -> dict[str, Any]:
        """All that was measured, by share (``shares``)."""
        return (
            {}
            if self._state is None
            else {"shares": [describe(share) for share in self._state.shares]}
        )

    def owners(self) -> dict[str, tuple[str, Callable[[Any], str]]]:
        """A pod may name any share in its specification."""
        return {"shares": ("STOR-09", lambda share: str(share["server"]))}


def _targets_here(host: Host, kubelet_root: str) -> list[Target]:
    """One share of each server from which the kubelet has mounted; none if there is no kubelet."""
    root = find_root(host, kubelet_root)
    mounts = nfs_mounts(read_table(host, "1").mounts, root) if root else []
    targets = targets_of(mounts, root, namespaces_of(host))
    # Else it would look as if no share were mounted here.
    if mounts and not targets:
        raise StorageOpsError(
            f"what is mounted at {mounts[0].point} is no NFS share that could be tried: give one "
            "in shares",
            code="evidence_unreadable",
        )
    return targets


def nfs_mounts(mounts: Iterable[Mount], root: str) -> list[Mount]:
    """The NFS mounts below ``root``."""
    # nfs4 is shown for version 4, nfs for 3 and older (fs/nfs/fs_context.c).
    return [
        mount
        for mount in mounts
        if mount.fstype in ("nfs", "nfs4") and mount.point.startswith(f"{root}/")
    ]


def targets_of(
    mounts: Iterable[Mount], root: str, namespaces: Mapping[str, str] | None = None
) -> list[Target]:
    """One share for each server, way to mount from it, and namespace, of the NFS mounts below
    ``root``.

    That the others are mounted shows that their exports exist; but each tenant chooses, and may
    remove, its own. Behind one address there may be several servers, each at its port.
    ``namespaces``: of pods, by uid.
    """
    known = namespaces or {}
    by_share: dict[tuple[str, tuple[str, ...]], list[Mount]] = {}
    for mount in nfs_mounts(mounts, root):
        by_share.setdefault((mount.source, _options_of(mount)), []).append(mount)
    by_server: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[Mount]] = {}
    for (source, options), found in by_share.items():
        # A source that is no share cannot be tried.
        with contextlib.suppress(StorageOpsError):
            key = split_share(source)[0], options, _tenants(found, root, known)
            by_server.setdefault(key, []).extend(found)
    return [
        Target(
            found[0].source,
            tuple(dict.fromkeys(_version_of(mount) for mount in found)),
            options,
            len(found),
            ", ".join(tenants),
            all(owner_of(mount.point, root, known) == UNKNOWN for mount in found),
        )
        for (_server, options, tenants), found in by_server.items()
    ]


def _tenants(mounts: Iterable[Mount], root: str, namespaces: Mapping[str, str]) -> tuple[str, ...]:
    """The namespaces of the pods that have a share, or these pods; where no pod has it, the mount
    points.
    """
    places = {mount.point: kubelet.classify(mount.point, root) for mount in mounts}
    pods = {point: place.pod for point, place in places.items() if place and place.pod}
    # Where a driver has staged it for them, that is of no pod.
    return tuple(sorted({namespaces.get(pod, pod) for pod in pods.values()} or places))


def _options_of(mount: Mount) -> tuple[str, ...]:
    """The options without which another mount may fail, or reach another server."""
    return tuple(option for option in mount.super_options if _KEPT.fullmatch(option))


def _version_of(mount: Mount) -> str:
    # Current kernels show "vers=4.1" (fs/nfs/super.c nfs_show_nfs_version), old ones a separate
    # "minorversion=".
    values = dict(option.partition("=")[::2] for option in mount.super_options)
    version = values.get("vers", "4.0" if mount.fstype == "nfs4" else "3")
    return f"4.{values.get('minorversion', '0')}" if version == "4" else version


def _gather(host: Host, targets: Sequence[Target], options: NfsOptions, limit: int) -> NfsState:
    """Resolve, connect and mount. ``limit``: of open files, for the mounts."""
    # What hangs before and after was hanging all the time.
    before = _mounting(host)
    shares = _reached(host, targets, options)
    with _folder(host) as folder:
        # Inside the folder's context, so that it is removed whatever happens.
        attempts = _mount_all(host, shares, options, limit, folder)
        shares = [
            replace(share, attempts=tuple(attempts.get(number, ())))
            for number, share in enumerate(shares)
        ]
        left = _left(host, folder)
        left_mounts = _left_mounts(host, folder)
    # The start time tells a process from one that got its ID meanwhile.
    after = _mounting(host)
    hanging = tuple(text for pid, text in before.items() if after.get(pid) == text)
    return NfsState(host.name, tuple(shares), limit, hanging, left, left_mounts)


def _reached(host: Host, targets: Sequence[Target], options: NfsOptions) -> list[Share]:
    """The shares with the addresses, routes and ports of their servers; each is looked at once."""
    # Many shares are on few servers, and each look may cost a whole time-out.
    names = _resolve(host, owners_of((target.server, target.turn) for target in targets))
    shares = [
        Share(target, addresses, problem, unmeasured=unknown)
        for target in targets
        for addresses, problem, unknown in [names[target.server]]
    ]
    addresses = owners_of(
        (address, share.target.turn) for share in shares for address in share.addresses
    )
    # Which interface and source address is taken decides what the export list must allow.
    routes = _routes(host, addresses)
    places = owners_of(
        (_where(share, address, options), share.target.turn)
        for share in shares
        for address in share.addresses
    )
    ports = _connect(host, places, options)
    return [
        replace(
            share,
            routes=tuple(routes[address] for address in share.addresses),
            ports=tuple(
                port
                for address in share.addresses
                for port in ports[_where(share, address, options)]
            ),
        )
        for share in shares
    ]


def _resolve(
    host: Host, servers: Mapping[str, Hashable]
) -> dict[str, tuple[tuple[str, ...], str, str]]:
    """By server (addresses, why there are none, why that is not known).

    ``servers``: by server, whose turn it is.
    """

    def resolving(server: str) -> list[str]:
        try:
            # In children, since a name server that does not answer blocks it for long
            # (resolv.conf(5)).
            found = socket.getaddrinfo(server, None, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as error:
            raise StorageOpsError(getattr(error, "strerror", None) or str(error)) from error
        return [str(entry[4][0]) for entry in found]

    asked, owners = list(servers), list(servers.values())
    timeout = host.command_timeout
    # A tenant may have any number of names, whose name server does not answer. What has had no
    # turn by then is not measured.
    replies = call_each(resolving, asked, timeout, host.deadline.share(timeout), owners=owners)
    return {
        server: (
            # getaddrinfo sorts them by preference (RFC 6724), as mount.nfs uses them.
            tuple(dict.fromkeys(reply.value or ()))[:_MAX_ADDRESSES],
            # A name server that does not answer has no address for the mount either.
            reply.problem if reply.error or reply.timed_out else "",
            "" if reply.error or reply.timed_out else reply.problem,
        )
        for server, reply in zip(asked, replies)
    }


def _routes(host: Host, addresses: Mapping[str, Hashable]) -> dict[str, str]:
    """By address the route to it, as ``ip route get`` shows it.

    ``addresses``: by address, whose turn it is.
    """

    def asking(address: str) -> str:
        said = host.run(["ip", "-o", "route", "get", address])
        # -o prints one line, with backslashes in place of line breaks (ip(8)); the first part is
        # the route.
        words = said.stdout.split("\\")[0] if said.ok else said.problem or said.stderr
        return " ".join(words.split())

    asked, owners = list(addresses), list(addresses.values())
    # It is only evidence.
    seconds = host.deadline.cap(host.command_timeout)
    replies = call_each(asking, asked, seconds, seconds, owners=owners)
    return {
        address: f"{address}: {reply.problem or reply.value}"
        for address, reply in zip(asked, replies)
    }


def _where(share: Share, address: str, options: NfsOptions) -> tuple[str, int, bool]:
    """(address, port of NFS or 0 if it is not reached by TCP, whether version 3 is tried)."""
    given = (*share.target.options, *options.mount_options)
    return address, 0 if _NOT_TCP & set(given) else port_of(given), "3" in options.versions


def _connect(
    host: Host, places: Mapping[tuple[str, int, bool], Hashable], options: NfsOptions
) -> dict[tuple[str, int, bool], tuple[Port, ...]]:
    """Connect to NFS, and for version 3 to the portmapper and to the mountd that it names.

    ``places``: by place, whose turn it is.
    """
    asked = sorted(places)
    # Each place once, though several shares may be there.
    jobs = [
        (place, service)
        for place in asked
        for service in ("nfs", "portmapper")
        if (place[1] if service == "nfs" else place[2])
    ]

    def connecting(job: tuple[tuple[str, int, bool], str]) -> list[dict[str, Any]]:
        (address, port, _version_3), service = job
        if service == "nfs":
            return [asdict(_connection(service, address, port, options.connect_timeout)[0])]
        return [asdict(found) for found in _ask_portmapper(address, options.connect_timeout)]

    # The portmapper is asked three things.
    timeout = 3 * options.connect_timeout + 1
    replies = call_each(
        connecting,
        jobs,
        timeout,
        # As for the names: there may be any number of addresses as well.
        host.deadline.share(timeout),
        owners=[places[place] for place, _service in jobs],
    )
    found: dict[tuple[str, int, bool], tuple[Port, ...]] = dict.fromkeys(asked, ())
    for (place, service), reply in zip(jobs, replies):
        # What no time was left for is no server that fails.
        state = FAILED if reply.error or reply.timed_out else NOT_TRIED
        number = place[1] if service == "nfs" else 111
        failed = [Port(service, place[0], number, state, 0.0, reply.problem)]
        found[place] += tuple(failed if reply.problem else [Port(**port) for port in reply.value])
    return found


def _connection(
    service: str, address: str, port: int, timeout: float, question: bytes = b""
) -> tuple[Port, bytes]:
    """(the result of a TCP connection, the answer to the question if there is one)."""
    started = time.monotonic()
    state, text, answer = OK, "", b""
    try:
        # Only a connection: an NFS NULL call would need RPC and tell little more.
        with socket.create_connection((address, port), timeout) as connection:
            # TCP is open, yet who accepts may be a load balancer in front of a dead server: so the
            # portmapper is really asked.
            if question:
                connection.sendall(question)
                answer = connection.recv(4096)
    except OSError as error:
        # A time-out of the socket has no errno of its own.
        state = {
            errno.ECONNREFUSED: REFUSED,
            errno.ETIMEDOUT: NO_ANSWER,
            errno.EHOSTUNREACH: NO_ROUTE,
            errno.ENETUNREACH: NO_ROUTE,
        }.get(error.errno or errno.ETIMEDOUT, FAILED)
        text = error.strerror or str(error)
    return Port(service, address, port, state, time.monotonic() - started, text), answer


def _ask_portmapper(address: str, timeout: float) -> list[Port]:
    """The results for the portmapper, and for the mountd of version 3 that it names."""
    # PMAPPROC_GETPORT (RFC 1833, 3.2) as a CALL (RFC 5531, 9): transaction, CALL, RPC version 2,
    # portmapper version 2, procedure 3, no credentials, no verifier; then the program, its version
    # and TCP. Over TCP each record begins with its length and the last-fragment bit (RFC 5531, 11).
    call = struct.pack(
        ">14I", 1, 0, 2, _PORTMAPPER, 2, 3, 0, 0, 0, 0, _MOUNTD, 3, socket.IPPROTO_TCP, 0
    )
    mapper, answer = _connection(
        "portmapper", address, 111, timeout, struct.pack(">I", 0x80000000 | len(call)) + call
    )
    if mapper.state != OK:
        return [mapper]
    # Length, transaction, REPLY, MSG_ACCEPTED, no verifier (two words), SUCCESS; then the port.
    port = (
        struct.unpack(">I", answer[28:32])[0]
        if len(answer) == 32 and answer[24:28] == bytes(4)
        else 0
    )
    # By IPv6 rpcbind may answer only the newer versions 3 and 4 (RFC 1833, 2).
    if not 0 < port < 65536:
        return [mapper if ":" in address else replace(mapper, text="names no mountd for version 3")]
    return [mapper, _connection("mountd", address, port, timeout)[0]]


@contextlib.contextmanager
def _folder(host: Host) -> Iterator[str]:
    """A folder to mount at. It is removed afterwards, with those that killed runs have left."""
    for name in host.names("/run"):
        match = _FOLDER.fullmatch(name)
        # The name has the process's ID, and that process is gone.
        if match and not host.exists(f"/proc/{match.group(1)}"):
            _remove(host.path(f"/run/{name}"))
    folder = f"/run/storage_ops-nfs-{os.getpid()}"
    try:
        os.makedirs(host.path(folder), mode=0o700, exist_ok=True)
    except OSError as error:
        raise StorageOpsError(
            f"{folder} cannot be made: {error.strerror}", code="file_unusable"
        ) from error
    try:
        yield folder
    finally:
        _remove(host.path(folder))


def _remove(folder: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def mount_command(
    share: Share, version: str, options: NfsOptions, limit: int, folder: str
) -> list[str]:
    """A mount in a mount namespace that ends with it, killed in time even if this module is.

    ``limit``: of open files, as a container has it; 0 leaves it as it is.
    """
    # nfs(5): soft, so that it never blocks; ro, so that it changes nothing; nosharecache, so that
    # an existing mount does not answer for it; nolock, so that it starts no rpc.statd.
    own = ["ro", "soft", "retry=0", "nosharecache", *(["nolock"] if version == "3" else [])]
    # The own options last: of contradicting ones the last counts (nfs(5)).
    words = ",".join([f"vers={version}", *share.target.options, *options.mount_options, *own])
    return [
        # A slave namespace gets the node's unmounts (mount_namespaces(7)). Otherwise, a mount that
        # hangs in it would keep every other volume of the node mounted.
        *(
            "unshare",
            "--mount",
            "--propagation",
            "slave",
            "timeout",
            "-s",
            # At once with SIGKILL: mount.nfs in D state heeds no other signal (TASK_KILLABLE).
            "KILL",
            f"{options.mount_timeout:g}",
        ),
        # prlimit(1) sets the limit before mount starts, and mount.nfs inherits it.
        *(["prlimit", f"--nofile={limit}:{limit}"] if limit else []),
        *("mount", "-n", "-t", "nfs", "-o", words, share.target.share, folder),
    ]


def _mount_all(
    host: Host, shares: Sequence[Share], options: NfsOptions, limit: int, folder: str
) -> dict[int, list[Attempt]]:
    """Every version of every share that can be reached, by the number of the share.

    Many at the same time at first. What was slow is then measured again alone.
    """
    tried = _to_try(shares, options)
    # In company, so that a slow server does not take the others' time.
    jobs = [(number, version) for number, versions in tried.items() for version in versions]
    asked = [(shares[number], version) for number, version in jobs]
    found = dict(zip(jobs, _mount_each(host, asked, options, limit, folder)))
    # One alone was measured alone already.
    if len(jobs) > 1:
        _measure_alone(host, shares, options, limit, folder, found)
    return {
        number: [found[(number, version)] for version in versions]
        for number, versions in tried.items()
    }


def _to_try(shares: Sequence[Share], options: NfsOptions) -> dict[int, dict[str, None]]:
    """By the number of a share that can be reached, the versions to try."""
    reachable = [
        number for number, share in enumerate(shares) if share.addresses and _answers(share)
    ]
    # Also the versions of its mounts on this node: these are the ones in use.
    used = {
        number: [version for version in VERSIONS if version in shares[number].target.versions]
        for number in reachable
    }
    return {number: dict.fromkeys((*options.versions, *used[number])) for number in reachable}


def _measure_alone(
    host: Host,
    shares: Sequence[Share],
    options: NfsOptions,
    limit: int,
    folder: str,
    found: dict[tuple[int, str], Attempt],
) -> None:
    """Repeat the slow attempts in ``found`` one by one, in turns of the namespaces and, within
    each, of their servers; those without time left are marked.

    Linux starts no NFS mount while that of another server hangs, so in company a server looks as
    slow as the slowest one.
    """
    again = [
        job
        for job, attempt in found.items()
        if attempt.state == NO_ANSWER or attempt.seconds >= options.slow_seconds
    ]
    # A server that does not answer takes the whole time-out, so it is tried once for NFS 3 and once
    # for NFS 4, and after those that do answer.
    silent: set[tuple[str, str]] = set()
    # Seconds that each took alone: by namespace, and by namespace and server.
    spent: defaultdict[tuple[str, ...], float] = defaultdict(float)

    def takers(number: int) -> tuple[tuple[str, ...], ...]:
        target = shares[number].target
        return (target.turn,), (target.turn, target.server)

    def turn(job: tuple[int, str]) -> tuple[float, float, bool]:
        # By time, since a server may be as slow as its tenant likes. In steps of slow_seconds, so
        # that a quick server is measured as a whole.
        whose, server = (spent[taker] // options.slow_seconds for taker in takers(job[0]))
        return whose, server, found[job].state == NO_ANSWER

    while again:
        # The turn of the namespace that took the least: so a slow one uses up its own time alone. A
        # tenant may have any number of names for servers.
        job = min(again, key=turn)
        again.remove(job)
        number, version = job
        server = shares[number].target.server
        if (server, version[0]) in silent:
            continue
        left = host.deadline.remaining()
        if left > options.mount_timeout + 2 * _GRACE:
            found[job] = _mount_each(host, [(shares[number], version)], options, limit, folder)[0]
            took = left - host.deadline.remaining()
            for taker in takers(number):
                spent[taker] += took
            silent |= {(server, version[0])} if found[job].state == NO_ANSWER else set()
        else:
            found[job] = replace(found[job], alone=False)


def _answers(share: Share) -> bool:
    ports = [port for port in share.ports if port.service == "nfs"]
    # Without a result, as for RDMA, the mount itself has to tell.
    return not ports or any(port.state == OK for port in ports)


def _mount_each(
    host: Host, jobs: Sequence[tuple[Share, str]], options: NfsOptions, limit: int, folder: str
) -> list[Attempt]:
    def mounting(job: tuple[Share, str]) -> list[Any]:
        result = run_command(
            mount_command(*job, options, limit, folder), options.mount_timeout + _GRACE
        )
        # mount.nfs writes errors to stderr, its helpers some to stdout.
        said = " ".join((result.problem or result.stderr or result.stdout).split())
        # What timeout(1) could not end in its grace was ended from here, which is the same result.
        return [-9 if result.timed_out else result.rc, said[:300], result.seconds]

    left = host.deadline.remaining()
    # A mount that is cut short would look like a server that does not answer.
    if left < options.mount_timeout + 2 * _GRACE:
        why = (
            f"{left:.0f} s of the deadline were left, and a mount may take "
            f"{options.mount_timeout:g} s: raise deadline"
        )
        return [Attempt(version, NOT_TRIED, error=why) for _share, version in jobs]
    longest = options.mount_timeout + 2 * _GRACE
    replies = call_each(
        mounting,
        jobs,
        longest,
        # Half of it is for what has to be measured again alone.
        max(left / 2, longest) if len(jobs) > 1 else left,
        owners=[share.target.turn for share, _version in jobs],
    )
    return [
        _attempt(version, reply.value, reply.problem, reply.timed_out)
        for (_share, version), reply in zip(jobs, replies)
    ]


def _attempt(version: str, value: list[Any] | None, problem: str, timed_out: bool) -> Attempt:
    if value is None:
        return Attempt(version, NO_ANSWER if timed_out else NOT_TRIED, error=problem)
    rc, said, seconds = value
    # These fail before a mount is tried, as without the right to make a namespace.
    state = (
        NOT_TRIED if said.startswith(("unshare:", "timeout:", "prlimit:")) else classify(rc, said)
    )
    return Attempt(version, state, seconds, "" if state == OK else said)


def _mounting(host: Host) -> dict[tuple[str, str], str]:
    """NFS mounts that are under way: (ID of mount.nfs, its start) -> a text about it."""
    # In a child: reading a process's command line takes its mmap lock, and may block
    # (fs/proc/base.c get_mm_cmdline).

    def reading() -> list[tuple[str, str, str]]:
        # mount.nfs4 is the same program under another name.
        pids = [
            pid
            for pid in host.names("/proc")
            if is_number(pid)
            and (host.read(f"/proc/{pid}/comm") or "").startswith("mount.nfs")
            # Its name a process chooses (prctl(2), PR_SET_NAME).
            and host.may_mount(pid)
        ]
        words = [(pid, host.command_line(pid)) for pid in pids]
        return [
            (pid, _started(host, pid), f"pid {pid} ({' '.join(said[:3])})")
            for pid, said in words
            if len(said) > 2
        ]

    # A process in D state may block readers of its command line.
    reply = host.bounded(reading)
    return {(pid, started): text for pid, started, text in reply.value or ()}


def _started(host: Host, pid: str) -> str:
    """When a process started, in ticks since boot; another one may get its ID later."""
    # Field 22 of /proc/PID/stat (proc_pid_stat(5)). The name in field 2 may contain blanks and
    # brackets, so the fields are counted from the last bracket.
    fields = (host.read(f"/proc/{pid}/stat") or "").rpartition(")")[2].split(" ")
    # The first one is empty, since a blank follows the bracket.
    return fields[20] if len(fields) > 20 else ""


def _left(host: Host, folder: str) -> tuple[str, ...]:
    """This check's processes that still exist after a moment. Only their command lines have the
    folder.
    """

    # Killed processes may need a moment to end, unless the kernel holds them.
    until = time.monotonic() + host.deadline.cap(_GRACE)
    while True:
        found = _ours(host, folder)
        if not found or time.monotonic() >= until:
            return found
        time.sleep(0.1)


def _left_mounts(host: Host, folder: str) -> tuple[str, ...]:
    """This check's mounts that still exist."""
    # Their namespaces are of no pod but this module's, and their paths short.
    everywhere = Namespaces(host)
    among = [one for one in everywhere.found if may_be_ours(host, one.pod)]
    return tuple(
        f"{mount.source} of pid {mount.pid}"
        for _namespace, mount in everywhere.mounts(too_long=pass_over, among=among)
        if mount.point == folder
    )


def _ours(host: Host, folder: str) -> tuple[str, ...]:
    # Each by itself, since reading one may block. A pod's process is none of ours, and may be made
    # to block by a tenant. So is one that may be a pod's: ours are where this process is.
    pids = [
        pid
        for pid in host.names("/proc")
        if is_number(pid) and int(pid) != os.getpid() and may_be_ours(host, pod_of(host, pid))
    ]
    seconds = host.deadline.cap(host.command_timeout)
    replies = call_each(host.command_line, pids, seconds, seconds)
    unread = [f"pid {pid}: {reply.problem}" for pid, reply in zip(pids, replies) if reply.problem]
    if unread:
        raise StorageOpsError(
            f"whether a mount of this check is left cannot be told: {', '.join(unread[:5])}"
        )
    return tuple(
        f"pid {pid} ({os.path.basename(reply.value[0])})"
        for pid, reply in zip(pids, replies)
        if folder in reply.value
    )
