# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""Why an NFS share cannot be mounted, or only slowly, and what would (STOR-09); a pure judgement of
what was measured.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.codes import Reason
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import Finding, Plan
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    BadOption,
)

RUNBOOK = "storage_ops.runbooks.check_nfs"

# In the order in which mount.nfs tries them when it is not told which.
VERSIONS = ("4.2", "4.1", "4.0", "3")

# What became of a mount, or of a connection.
OK = "ok"
NOT_OFFERED = "not offered"
DENIED = "denied"
NO_EXPORT = "no such export"
NO_ANSWER = "no answer"
REFUSED = "refused"
NO_ROUTE = "no route"
NO_HELPER = "no mount.nfs"
FAILED = "failed"
NOT_TRIED = "not tried"

# What mount.nfs says, in the C locale; the first that fits counts.
_SAYINGS = (
    (
        NOT_OFFERED,
        ("Protocol not supported", "requested NFS version or transport protocol is not supported"),
    ),
    (NOT_OFFERED, ("Program/version mismatch", "Program not registered")),
    (DENIED, ("access denied by server", "Permission denied", "Operation not permitted")),
    (NO_EXPORT, ("No such file or directory", "Not a directory")),
    (NO_ANSWER, ("Connection timed out",)),
    (REFUSED, ("Connection refused",)),
    (NO_ROUTE, ("No route to host", "Network is unreachable")),
    (NO_HELPER, ("need a /sbin/mount", "unknown filesystem type", "not installed")),
)
_SHARE = re.compile(
    r"(\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]|[A-Za-z0-9][A-Za-z0-9._-]*):(/.*)", re.DOTALL
)


@dataclass(frozen=True)
class Options:
    """What the user asked for; see the documentation of nfs_mount_check."""

    shares: tuple[str, ...] = ()
    versions: tuple[str, ...] = ("3", "4.0", "4.1", "4.2")
    wanted_version: str = ""
    mount_options: tuple[str, ...] = ()
    mount_timeout: float = 30.0
    slow_seconds: float = 10.0
    connect_timeout: float = 3.0


@dataclass(frozen=True)
class Target:
    """A share to look at.

    ``versions``: those that mounts of it on this node have now. ``options``: of these mounts, as
    far as another mount of it needs them.
    ``mounts``: how many there are.
    """

    share: str
    versions: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    mounts: int = 0

    @property
    def server(self) -> str:
        """Name or address, without the brackets of an IPv6 address."""
        return split_share(self.share)[0]


@dataclass(frozen=True)
class Port:
    """What became of a TCP connection.

    ``service``: nfs, portmapper or mountd. ``text``: the error, or what else is to be said.
    """

    service: str
    address: str
    port: int
    state: str
    seconds: float
    text: str = ""

    def __str__(self) -> str:
        detail = f": {self.text}" if self.text else ""
        return (
            f"{self.service} at {self.address} TCP {self.port}: {self.state} "
            f"({self.seconds:.2f} s){detail}"
        )


@dataclass(frozen=True)
class Attempt:
    """A timed mount.

    ``alone``: no other one that we know of was under way, so that the seconds are the share's own.
    """

    version: str
    state: str
    seconds: float = 0.0
    error: str = ""
    alone: bool = True

    def __str__(self) -> str:
        if self.state == OK:
            return f"mounted in {self.seconds:.1f} s"
        time = f" after {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.state}{time}" + (f" ({self.error})" if self.error else "")


@dataclass(frozen=True)
class Share:
    """All that was found out about a share.

    ``name_problem``: why its server's name has no address. ``routes``: one line per address.
    """

    target: Target
    addresses: tuple[str, ...] = ()
    name_problem: str = ""
    routes: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()
    attempts: tuple[Attempt, ...] = ()


@dataclass(frozen=True)
class State:
    """What was read.

    ``limit``: the largest limit of open files of a running container runtime, if it is too large,
    else 0. ``hanging``: mounts by others that were under way. ``left``: processes of ours that the
    kernel held at the end. ``left_mounts``: mounts of ours that are still there.
    """

    node: str
    shares: tuple[Share, ...]
    limit: int = 0
    hanging: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    left_mounts: tuple[str, ...] = ()


def split_share(share: str) -> tuple[str, str]:
    """(server, export) of ``server:/export``; anything else is a StorageOpsError."""
    match = _SHARE.fullmatch(share)
    if match is None or "\0" in share:
        raise BadOption(
            f"{share!r} is no NFS share: write it as server:/export, with an IPv6 address in "
            "square brackets"
        )
    return match.group(1).strip("[]"), match.group(2)


def port_of(options: Sequence[str]) -> int:
    """The port of the server that mount options name, as for NFS."""
    named = [option[5:] for option in options if option.startswith("port=")]
    return int(named[-1]) if named and named[-1].isdigit() and 0 < int(named[-1]) < 65536 else 2049


def classify(rc: int | None, text: str) -> str:
    """What became of a mount: exit status of ``timeout -s KILL``, and what mount said."""
    if rc == 0:
        return OK
    if rc in (-9, 124, 137):
        return NO_ANSWER
    return next(
        (state for state, sayings in _SAYINGS if any(saying in text for saying in sayings)), FAILED
    )


def plan(state: State, options: Options) -> Plan:
    """Findings for each share, and for what could not be cleaned up; a pure function."""
    findings = [finding for share in state.shares for finding in _judge(share, state, options)]
    return Plan([*findings, *_judge_left(state)])


def _judge(share: Share, state: State, options: Options) -> list[Finding]:
    outage = _outage(share)
    if outage:
        summary, reason = outage
        return [
            _finding(
                share, state, "major", f"{share.target.share} cannot be mounted: {summary}", reason
            )
        ]
    wanted = (
        [options.wanted_version] if options.wanted_version else list(share.target.versions) or [""]
    )
    return [
        finding
        for version in wanted
        for finding in [_judge_version(share, version, state, options)]
        if finding
    ]


def _outage(share: Share) -> tuple[str, str] | None:
    """What keeps every version from being mounted, before NFS comes into it; and the next step."""
    server = share.target.server
    if share.name_problem:
        return (
            f"the name {server} has no address on this node ({share.name_problem})",
            "correct the name, or this node's resolver (/etc/resolv.conf, /etc/hosts); names that "
            "only the cluster's DNS knows do not help whoever mounts in the node's network",
        )
    ports = [port for port in share.ports if port.service == "nfs"]
    if not ports or any(port.state == OK for port in ports):
        return None
    port = ports[0]
    place = f"TCP {port.port} of {', '.join(one.address for one in ports)}"
    states = {one.state for one in ports}
    if states == {REFUSED}:
        return (
            f"{place} refuses connections",
            "start the NFS server there, or have the firewall that "
            "rejects this node let it through",
        )
    if states == {NO_ROUTE}:
        return (
            f"there is no way to {place} ({port.text})",
            "see the route in the evidence: add one, or bring up the interface of the storage "
            "network; if there is one, the host is off or a firewall rejects this node",
        )
    if NO_ANSWER in states:
        return (
            f"{place} does not answer",
            "packets are dropped without a word: a firewall or security group on the way, a route "
            f"that leads elsewhere, or the host is off. Try 'ping {port.address}' and open TCP "
            f"{port.port} for this node",
        )
    return f"{place} cannot be connected to ({port.text})", "see the error"


def _picked(share: Share, wanted: str) -> Attempt | None:
    """The attempt that a mount with this version comes to: mount.nfs goes on to a lower one only
    where the server has not that one.
    """
    attempts = [
        attempt for version in VERSIONS for attempt in share.attempts if attempt.version == version
    ]
    fitting = [
        attempt
        for attempt in attempts
        if wanted in ("", attempt.version) or (wanted == "4" and attempt.version != "3")
    ]
    return next(
        (attempt for attempt in fitting if attempt.state != NOT_OFFERED),
        fitting[0] if fitting else None,
    )


def _judge_version(share: Share, wanted: str, state: State, options: Options) -> Finding | None:
    attempt = _picked(share, wanted)
    if attempt is None or (attempt.state == OK and attempt.seconds < options.slow_seconds):
        return None
    name = f"NFS {attempt.version}"
    if attempt.state in (NO_HELPER, NOT_TRIED):
        install = (
            "mount.nfs is not installed, so no mount could be timed: install nfs-common (nfs-utils)"
        )
        return _refused(
            share,
            state,
            Reason("program_missing", install)
            if attempt.state == NO_HELPER
            else Reason("evidence_unreadable", f"{name} could not be tried: {attempt.error}"),
        )
    best = _best(share, options)
    other = (
        _suggestion(best, share, options)
        if best
        else "no version that was tried can be mounted in time"
    )
    shut = _portmapper(share, attempt)
    severity = "major"
    if best and _limit_is_it(attempt, state, best):
        times = f"{attempt.seconds:.0f} s where NFS {best.version} takes {best.seconds:.1f} s"
        summary = f"{name} takes {times}, with a limit of {state.limit} open files"
        reason = (
            "programs of NFS 3 close every file they might have open: lower LimitNOFILE of "
            f"the runtime (STOR-10); or else {other}"
        )
    elif attempt.state == OK:
        severity = "minor"
        summary = f"mounting it as {name} takes {attempt.seconds:.1f} s"
        reason = (
            f"a CSI driver gives up after {options.mount_timeout:g} s or so: look at the "
            f"server's load and name service; {other}"
        )
    elif attempt.state == NO_ANSWER and not shut:
        summary = (
            f"mounting it as {name} was not done within "
            f"{min(attempt.seconds, options.mount_timeout):.0f} s"
        )
        reason = (
            "the server takes connections and does not answer what follows: look at its NFS "
            f"threads and mountd; {other}"
        )
    elif attempt.state == NOT_OFFERED and not shut:
        asked = f"NFS {wanted}" if wanted else "any version that was tried"
        summary = f"the server does not offer {asked}"
        reason = (
            f"enable {asked} on the server, or {other}"
            if best
            else f"enable {asked} on the server; {other}"
        )
    elif attempt.state == DENIED:
        summary = f"the server denies this node access as {name}"
        also = (
            ", or there is no such export, of which mountd says the same"
            if attempt.version == "3"
            else ""
        )
        reason = (
            "the export does not list an address of this node, or asks for another "
            f"sec={also}; {other}"
        )
    elif attempt.state == NO_EXPORT:
        summary = f"the server has no such export in {name}"
        reason = (
            "exports of NFS 4 are named from its pseudo root (fsid=0), which NFS 3 does not "
            f"have: correct the path; {other}"
        )
    else:
        summary = f"it cannot be mounted as {name}: {attempt.error or attempt.state}"
        reason = f"{shut}{other}"
    return _finding(
        share,
        state,
        severity,
        f"{share.target.share}: {summary}",
        f"{reason}{_company(attempt, state)}",
    )


def _company(attempt: Attempt, state: State) -> str:
    """What may have held the mount up, besides its server."""
    if attempt.state not in (OK, NO_ANSWER):
        return ""
    ours = (
        ""
        if attempt.alone
        else "; other mounts were under way, and no time was left to try this one alone: give only "
        "this share in 'shares'"
    )
    theirs = (
        f"; {len(state.hanging)} other mounts hang on this node (see hanging_mounts), and "
        "Linux lets none begin meanwhile"
    )
    return ours + (theirs if state.hanging else "")


def _portmapper(share: Share, attempt: Attempt) -> str:
    """NFS 3 needs two more ports, and what mount.nfs says when it does not get at them is that the
    server has not this version.
    """
    shut = [str(port) for port in share.ports if port.service != "nfs" and port.state != OK]
    return (
        f"NFS 3 also needs the portmapper and mountd: {'; '.join(shut)}; "
        if attempt.version == "3" and shut
        else ""
    )


def _best(share: Share, options: Options) -> Attempt | None:
    """The highest version that was mounted quickly."""
    quick = [
        attempt
        for attempt in share.attempts
        if attempt.state == OK and attempt.seconds < options.slow_seconds
    ]
    return min(quick, key=lambda attempt: VERSIONS.index(attempt.version), default=None)


def _suggestion(best: Attempt, share: Share, options: Options) -> str:
    words = ", ".join([f"nfsvers={best.version}", *options.mount_options])
    return (
        f"set mountOptions [{words}] in the StorageClass, with which it was mounted in "
        f"{best.seconds:.1f} s (PersistentVolumes that exist keep their own mountOptions)"
    )


def _limit_is_it(attempt: Attempt, state: State, best: Attempt) -> bool:
    return (
        bool(state.limit)
        and attempt.version == "3"
        and best.version != "3"
        and attempt.state in (OK, NO_ANSWER)
    )


def _finding(share: Share, state: State, severity: str, summary: str, reason: str) -> Finding:
    finding = Finding(
        control="STOR-09",
        severity=severity,
        kind="NFS share",
        name=printable(share.target.share),
        node=state.node,
        summary=printable(summary),
        verdict="report",
        reason="",
        runbook=RUNBOOK,
    )
    finding.reason = printable(reason)
    finding.evidence = {
        "addresses": list(share.addresses),
        "routes": list(share.routes),
        "ports": [str(port) for port in share.ports],
    }
    if share.attempts:
        finding.evidence["versions"] = {attempt.version: str(attempt) for attempt in share.attempts}
    if share.target.mounts:
        finding.evidence["mounts_on_this_node"] = share.target.mounts
        finding.evidence["versions_in_use"] = list(share.target.versions)
    if any(attempt.version == "3" and attempt.state == OK for attempt in share.attempts):
        finding.evidence["note"] = (
            "NFS 3 was tried with nolock, so that no rpc.statd was started: locks of NFS 3 were "
            "not looked at"
        )
    if state.limit:
        finding.evidence["limit_nofile"] = state.limit
    if state.hanging:
        finding.evidence["hanging_mounts"] = [printable(text) for text in state.hanging]
    return finding


def _refused(share: Share, state: State, reason: Reason) -> Finding:
    finding = _finding(
        share, state, "minor", f"{share.target.share}: whether it can be mounted is not known", ""
    )
    finding.refuse(reason.with_text(printable(reason)))
    return finding


def _judge_left(state: State) -> list[Finding]:
    if not state.left and not state.left_mounts:
        return []
    names = [text.split(" (", 1)[0] for text in state.left] or ["mount"]
    summary = (
        f"the kernel still holds {len(state.left)} processes and {len(state.left_mounts)} "
        "mounts of this check"
    )
    finding = Finding(
        control="STOR-09",
        severity="minor",
        kind="process",
        name=", ".join(names[:3]),
        node=state.node,
        summary=summary,
        verdict="report",
        reason="",
        runbook=RUNBOOK,
    )
    finding.reason = (
        "they were killed, live in mount namespaces of their own, and go by "
        "themselves as soon as the server answers or the kernel gives up"
    )
    finding.evidence = {"processes": list(state.left), "mounts": list(state.left_mounts)}
    return [finding]


def printable(text: str) -> str:
    """Text of a share as it can be shown: what is no character, or ends a line, is escaped."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def describe(share: Share) -> dict[str, Any]:
    """A share as the module returns it."""
    return {
        "share": printable(share.target.share),
        "server": printable(share.target.server),
        "addresses": list(share.addresses),
        "name_problem": share.name_problem,
        "routes": list(share.routes),
        "ports": [
            {
                "service": port.service,
                "address": port.address,
                "port": port.port,
                "state": port.state,
                "seconds": round(port.seconds, 3),
                "text": port.text,
            }
            for port in share.ports
        ],
        "versions": {
            attempt.version: {
                "ok": attempt.state == OK,
                "state": attempt.state,
                "seconds": round(attempt.seconds, 3),
                "error": printable(attempt.error),
                "alone": attempt.alone,
            }
            for attempt in share.attempts
        },
        "versions_in_use": list(share.target.versions),
        "mounts": share.target.mounts,
    }
