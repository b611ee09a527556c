# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why an NFS share cannot be mounted, or only slowly, and what can be done (STOR-09).

It judges what was measured. Pure: no I/O here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._core.codes import Reason
from .._core.engine import Finding, Plan
from .._core.errors import BadOption, StorageOpsError
from .._core.texts import is_number
from .._node.kubelet import UNKNOWN

# In the order in which mount.nfs tries them if none is given (nfs(5), nfsvers).
VERSIONS = ("4.2", "4.1", "4.0", "3")

# What became of a mount, or of a connection.
# Shown in results, and used as keys by the guide.
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

# What mount.nfs says in the C locale (nfs-utils, utils/mount/error.c mount_error); the first that
# matches counts.
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
# IPv6 in brackets, with a zone for link-local addresses (RFC 4007, 11); a host name; then the
# export, which may contain any character.
_SHARE = re.compile(
    r"(\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]|[A-Za-z0-9][A-Za-z0-9._-]*):(/.*)", re.DOTALL | re.ASCII
)


@dataclass(frozen=True)
class NfsOptions:
    """What the user asked for. All times are in seconds.

    The documentation of nfs_mount_check describes each option.
    """

    shares: tuple[str, ...] = ()
    # All of them, since another one than the wanted may be the way out.
    versions: tuple[str, ...] = ("3", "4.0", "4.1", "4.2")
    # What the StorageClass asks for; empty means what mount.nfs negotiates.
    wanted_version: str = ""
    mount_options: tuple[str, ...] = ()
    mount_timeout: float = 30.0
    # A mount of a healthy share takes well below a second.
    slow_seconds: float = 10.0
    connect_timeout: float = 3.0


@dataclass(frozen=True)
class Target:
    """A share to check.

    ``versions``: those of its mounts on this node. ``options``: the options of these mounts that
    another mount of it needs. ``mounts``: how many there are. ``owner``: the namespaces of their
    pods, as far as the node tells; else the pods, or the mount points. ``is_unclear``: it tells of
    none of these pods.
    """

    share: str
    versions: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    mounts: int = 0
    owner: str = ""
    is_unclear: bool = False

    @property
    def turn(self) -> str:
        """Whose turn its check uses up: a tenant may have any number of servers, and of pods
        without a container.
        """
        return UNKNOWN if self.is_unclear else self.owner or self.server

    @property
    def server(self) -> str:
        """The server's name or address, without the brackets of an IPv6 address."""
        return split_share(self.share)[0]


@dataclass(frozen=True)
class Port:
    """The result of a TCP connection.

    ``service``: nfs, portmapper or mountd. ``text``: the error, or another remark.
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

    ``alone``: no other known mount was under way, so the seconds are the share's own.
    """

    version: str
    state: str
    seconds: float = 0.0
    error: str = ""
    # Linux does NFS mounts one after the other while a server does not answer.
    alone: bool = True

    def __str__(self) -> str:
        if self.state == OK:
            return f"mounted in {self.seconds:.1f} s"
        time = f" after {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.state}{time}" + (f" ({self.error})" if self.error else "")


@dataclass(frozen=True)
class Share:
    """All that was found out about a share.

    ``name_problem``: why its server's name has no address. ``unmeasured``: why it is not known
    whether it has one. ``routes``: one line per address.
    """

    target: Target
    addresses: tuple[str, ...] = ()
    name_problem: str = ""
    # One per address, since storage networks often have routes of their own.
    routes: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    unmeasured: str = ""


@dataclass(frozen=True)
class NfsState:
    """What was gathered, from which the plan is made.

    ``limit``: the largest limit of open files of a running container runtime, if it is too large,
    else 0. ``hanging``: mounts of other processes that were under way all the time. ``left``:
    processes of this check that the kernel still held at its end. ``left_mounts``: mounts of this
    check that still exist.
    """

    node: str
    shares: tuple[Share, ...]
    limit: int = 0
    hanging: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    left_mounts: tuple[str, ...] = ()


def not_applicable(state: NfsState) -> dict[str, str]:
    """The control, where no share was named, and none is mounted for a pod."""
    if state.shares:
        return {}
    return {"STOR-09": "no NFS share is mounted in the kubelet's folder"}


def split_share(share: str) -> tuple[str, str]:
    """(server, export) of ``server:/export``. Raises BadOption for anything else."""
    match = _SHARE.fullmatch(share)
    # NUL would cut the argument short.
    if match is None or "\0" in share:
        raise BadOption(
            f"{share!r} is not an NFS share: write it as server:/export, with an IPv6 address in "
            "square brackets"
        )
    return match.group(1).strip("[]"), match.group(2)


def port_of(options: Sequence[str]) -> int:
    """The server's TCP port by these mount options; 2049 if they name none (nfs(5), port)."""
    named = [option[5:] for option in options if option.startswith("port=")]
    # The last one counts, as for mount.nfs. port=0 stands for the port that rpcbind advertises.
    said = named[-1] if named else ""
    return int(said) if is_number(said) and len(said) < 6 and 0 < int(said) < 65536 else 2049


def classify(rc: int | None, text: str) -> str:
    """The result of a mount.

    ``rc``: exit status of ``timeout -s KILL``; ``text``: what mount wrote.
    """
    # By the status first: a mount that was made may have printed warnings.
    if rc == 0:
        return OK
    # Killed by this module; the status of timeout(1); 128 + SIGKILL.
    if rc in (-9, 124, 137):
        return NO_ANSWER
    return next(
        (state for state, sayings in _SAYINGS if any(saying in text for saying in sayings)), FAILED
    )


def plan(state: NfsState, options: NfsOptions) -> Plan:
    """Findings for each share, and for what could not be cleaned up."""
    findings = [finding for share in state.shares for finding in _judge(share, state, options)]
    return Plan([*findings, *_judge_left(state)])


def require_measured(findings: Sequence[Finding]) -> None:
    """Raise StorageOpsError if there are findings, and all of them only say that nothing could be
    measured.
    """
    if findings and all(finding.verdict == "refuse" for finding in findings):
        first = findings[0]
        raise StorageOpsError(f"{first.summary}: {first.reason}", code=first.code)


def _judge(share: Share, state: NfsState, options: NfsOptions) -> list[Finding]:
    why = _unmeasured(share)
    if why:
        return [_refused(share, state, Reason("evidence_unreadable", why))]
    # A server that cannot be reached explains all versions at once.
    outage = _outage(share)
    if outage:
        summary, reason = outage
        return [
            _finding(
                share, state, "major", f"{share.target.share} cannot be mounted: {summary}", reason
            )
        ]
    wanted = (
        # Else the versions of its mounts here; of a share without mounts, the negotiated one.
        [options.wanted_version] if options.wanted_version else list(share.target.versions) or [""]
    )
    return [
        finding
        for version in wanted
        for finding in [_judge_version(share, version, state, options)]
        if finding
    ]


def _unmeasured(share: Share) -> str:
    """Why it is not known whether the server can be reached; empty if it is."""
    if share.unmeasured:
        return f"the name {share.target.server} could not be looked up: {share.unmeasured}"
    ports = [port for port in share.ports if port.service == "nfs"]
    untried = [port for port in ports if port.state == NOT_TRIED]
    if not untried or any(port.state == OK for port in ports):
        return ""
    return f"{untried[0]}"


def _outage(share: Share) -> tuple[str, str] | None:
    """(problem, next step) if the server cannot be reached at all, in whatever version."""
    server = share.target.server
    if share.name_problem:
        return (
            f"the name {server} has no address on this node ({share.name_problem})",
            "correct the name, or this node's resolver (/etc/resolv.conf, /etc/hosts); a mount is "
            "made in the node's network, where names of the cluster's DNS are not known",
        )
    # Of several addresses one is enough, since mount.nfs tries them in turn.
    ports = [port for port in share.ports if port.service == "nfs"]
    if not ports or any(port.state == OK for port in ports):
        return None
    # The share may name another port than 2049 in its options.
    place = f"TCP {ports[0].port} of {', '.join(one.address for one in ports)}"
    return _unreachable(place, ports)


def _unreachable(place: str, ports: list[Port]) -> tuple[str, str]:
    port = ports[0]
    states = {one.state for one in ports}
    # A closed port answers with RST (RFC 9293, 3.5.2), a router without a route with ICMP
    # (RFC 792); only what drops packets does not answer.
    if states == {REFUSED}:
        return (
            f"{place} refuses connections",
            "start the NFS server there, or have the firewall that "
            "rejects this node let it through",
        )
    # ICMP "unreachable" of a router, or of this node itself.
    if states == {NO_ROUTE}:
        return (
            f"there is no way to {place} ({port.text})",
            "see the route in the evidence: add one, or bring up the interface of the storage "
            "network; if there is one, the host is off or a firewall rejects this node",
        )
    if NO_ANSWER in states:
        return (
            f"{place} does not answer",
            "packets are dropped: by a firewall or security group on the way, by a route that "
            f"leads elsewhere, or the host is off. Try 'ping {port.address}' and open TCP "
            f"{port.port} for this node",
        )
    return f"{place} cannot be connected to ({port.text})", "see the error"


def _picked(share: Share, wanted: str) -> Attempt | None:
    """The attempt that shows what a mount with this version does; None if none was made."""
    fitting = [
        attempt
        for attempt in sorted(share.attempts, key=lambda one: VERSIONS.index(one.version))
        if wanted in ("", attempt.version) or (wanted == "4" and attempt.version != "3")
    ]
    # mount.nfs tries a lower version only if the server does not support the higher one
    # (nfs-utils, utils/mount/stropts.c nfs_autonegotiate).
    return next(
        (attempt for attempt in fitting if attempt.state != NOT_OFFERED),
        fitting[0] if fitting else None,
    )


def _judge_version(
    share: Share, wanted: str, state: NfsState, options: NfsOptions
) -> Finding | None:
    """The finding about mounts with this version; None if they are made, and quickly."""
    attempt = _picked(share, wanted)
    if attempt is None or (attempt.state == OK and attempt.seconds < options.slow_seconds):
        return None
    # Nothing was measured, so nothing is said about the server.
    if attempt.state in (NO_HELPER, NOT_TRIED):
        install = (
            "mount.nfs is not installed, so no mount could be timed: install nfs-common (nfs-utils)"
        )
        untried = f"NFS {attempt.version} could not be tried: {attempt.error}"
        return _refused(
            share,
            state,
            Reason("program_missing", install)
            if attempt.state == NO_HELPER
            else Reason("evidence_unreadable", untried),
        )
    severity, summary, reason = _explain(share, wanted, attempt, state, options)
    return _finding(
        share,
        state,
        severity,
        f"{share.target.share}: {summary}",
        f"{reason}{_company(attempt, state)}",
    )


def _explain(
    share: Share, wanted: str, attempt: Attempt, state: NfsState, options: NfsOptions
) -> tuple[str, str, str]:
    """(severity, summary, cause and next step) of an attempt that failed or was slow."""
    best = _best(share, options)
    # Each failure names a version that works, if one does: a StorageClass is sooner changed than a
    # server.
    other = (
        _suggestion(best, share, options)
        if best
        else "no version that was tried can be mounted in time"
    )
    shut = _portmapper(share, attempt)
    # Looked at first: the server is not to blame, and no other version needs to be set.
    if best and _limit_is_it(attempt, state, best):
        return "major", *_by_limit(attempt, state, best, other)
    # It was mounted, so it is slow: _judge_version lets quick ones pass.
    if attempt.state == OK:
        return "minor", *_slow(attempt, options, other)
    # Closed ports of the portmapper or mountd would explain it.
    if attempt.state == NO_ANSWER and not shut:
        return (
            "major",
            f"mounting it as NFS {attempt.version} was not done within "
            f"{min(attempt.seconds, options.mount_timeout):.0f} s",
            "the server accepts connections but does not answer requests: look at "
            f"its NFS threads and mountd; {other}",
        )
    if attempt.state == NOT_OFFERED and not shut:
        asked = f"NFS {wanted}" if wanted else "any version that was tried"
        joined = f"enable {asked} on the server, or {other}"
        return (
            "major",
            f"the server does not offer {asked}",
            joined if best else f"enable {asked} on the server; {other}",
        )
    return "major", *_rejected(attempt, shut, other)


def _by_limit(attempt: Attempt, state: NfsState, best: Attempt, other: str) -> tuple[str, str]:
    times = f"{attempt.seconds:.0f} s where NFS {best.version} takes {best.seconds:.1f} s"
    return (
        f"NFS {attempt.version} takes {times}, with a limit of {state.limit} open files",
        "programs of NFS 3 close every file they might have open: lower LimitNOFILE of "
        f"the runtime (STOR-10); or else {other}",
    )


def _slow(attempt: Attempt, options: NfsOptions, other: str) -> tuple[str, str]:
    return (
        f"mounting it as NFS {attempt.version} takes {attempt.seconds:.1f} s",
        f"a CSI driver gives up after about {options.mount_timeout:g} s: look at the "
        f"server's load and name service; {other}",
    )


def _rejected(attempt: Attempt, shut: str, other: str) -> tuple[str, str]:
    """An error that the server, or mount.nfs, gave."""
    name = f"NFS {attempt.version}"
    # Most often the export lists the node's other address, not that of the storage network.
    if attempt.state == DENIED:
        # mountd answers MNT3ERR_ACCES in both cases (RFC 1813, 5.2.1), as that of Linux does, and
        # nfsd of Linux refuses a client to which it exports nothing at all. These cannot be told
        # apart from here.
        also = (
            ", or there is no such export, of which mountd says the same"
            if attempt.version == "3"
            else ", or the server exports nothing to this node any more"
        )
        return (
            f"the server denies this node access as {name}",
            "the export does not list an address of this node, or asks for another "
            f"sec={also}; {other}",
        )
    # In NFS 4 the server's exports are in one tree (RFC 7530, 7.3; pseudo file system), in which a
    # client sees those for itself alone.
    if attempt.state == NO_EXPORT:
        return (
            f"the server has no such export in {name}",
            "exports of NFS 4 are named from its pseudo root (fsid=0), which NFS 3 does not "
            "have: correct the path; or the export does not list an address of this node, for "
            f"which it then is not there; {other}",
        )
    return f"it cannot be mounted as {name}: {attempt.error or attempt.state}", f"{shut}{other}"


def _company(attempt: Attempt, state: NfsState) -> str:
    """What may have delayed the mount, besides its server; part of a sentence."""
    if attempt.state not in (OK, NO_ANSWER):
        return ""
    # Alone it would have been measured again, had there been time.
    ours = (
        ""
        if attempt.alone
        else "; other mounts were under way, and no time was left to try this one alone: give only "
        "this share in 'shares'"
    )
    theirs = (
        f"; {len(state.hanging)} other mounts hang on this node (see hanging_mounts), and "
        "meanwhile Linux starts no other one"
    )
    return ours + (theirs if state.hanging else "")


def _portmapper(share: Share, attempt: Attempt) -> str:
    """The closed ports that NFS 3 needs besides its own; part of a sentence.

    If it cannot reach them, mount.nfs says that the server does not support the version.
    """
    # NFS 4 needs only TCP 2049 (RFC 7530, 3.1).
    shut = [str(port) for port in share.ports if port.service != "nfs" and port.state != OK]
    return (
        f"NFS 3 also needs the portmapper and mountd: {'; '.join(shut)}; "
        if attempt.version == "3" and shut
        else ""
    )


def _best(share: Share, options: NfsOptions) -> Attempt | None:
    """The attempt with the highest version that was mounted quickly."""
    quick = [
        attempt
        for attempt in share.attempts
        if attempt.state == OK and attempt.seconds < options.slow_seconds
    ]
    # VERSIONS begins with the highest.
    return min(quick, key=lambda attempt: VERSIONS.index(attempt.version), default=None)


def _suggestion(best: Attempt, share: Share, options: NfsOptions) -> str:
    # The user's own mount options were used in the attempt, so they belong to the advice.
    words = ", ".join([f"nfsvers={best.version}", *options.mount_options])
    return (
        f"set mountOptions [{words}] in the StorageClass, with which it was mounted in "
        f"{best.seconds:.1f} s (PersistentVolumes that exist keep their own mountOptions)"
    )


def _limit_is_it(attempt: Attempt, state: NfsState, best: Attempt) -> bool:
    """Whether a too large limit of open files explains why only NFS 3 is slow."""
    # mount.nfs starts rpc.statd for NFS 3 only (nfs(5), lock), which closes all descriptors that it
    # could have.
    return (
        bool(state.limit)
        and attempt.version == "3"
        and best.version != "3"
        and attempt.state in (OK, NO_ANSWER)
    )


def _finding(share: Share, state: NfsState, severity: str, summary: str, reason: str) -> Finding:
    """A finding about a share, with all that was measured as its evidence."""
    finding = Finding(
        # A person has to act: on the server, the network or the StorageClass. So it only reports.
        control="STOR-09",
        severity=severity,
        kind="NFS share",
        name=printable(share.target.share),
        node=state.node,
        summary=printable(summary),
        owner=f"namespace {share.target.owner or share.target.server}",
    )
    finding.reason = printable(reason)
    finding.evidence = {
        "addresses": list(share.addresses),
        "routes": list(share.routes),
        "ports": [str(port) for port in share.ports],
    }
    finding.evidence.update(_more_evidence(share, state))
    return finding


def _more_evidence(share: Share, state: NfsState) -> dict[str, Any]:
    """Evidence that only some findings have."""
    evidence: dict[str, Any] = {}
    if share.attempts:
        evidence["versions"] = {attempt.version: str(attempt) for attempt in share.attempts}
    if share.target.mounts:
        evidence["mounts_on_this_node"] = share.target.mounts
        evidence["versions_in_use"] = list(share.target.versions)
    # The user should know what was not tried.
    if any(attempt.version == "3" and attempt.state == OK for attempt in share.attempts):
        evidence["note"] = (
            "NFS 3 was tried with nolock, so that no rpc.statd was started: locks of NFS 3 were "
            "not checked"
        )
    if state.limit:
        evidence["limit_nofile"] = state.limit
    if state.hanging:
        evidence["hanging_mounts"] = [printable(text) for text in state.hanging]
    return evidence


def _refused(share: Share, state: NfsState, reason: Reason) -> Finding:
    finding = _finding(
        share, state, "minor", f"{share.target.share}: whether it can be mounted is not known", ""
    )
    finding.refuse(reason.with_text(printable(reason)))
    return finding


def _judge_left(state: NfsState) -> list[Finding]:
    if not state.left and not state.left_mounts:
        return []
    # The text is "pid N (NAME)".
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
    )
    finding.reason = (
        "they were killed, are in mount namespaces of their own, and end by "
        "themselves as soon as the server answers or the kernel gives up"
    )
    finding.evidence = {"processes": list(state.left), "mounts": list(state.left_mounts)}
    return [finding]


def printable(text: str) -> str:
    """A text with unprintable characters and line breaks escaped."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def describe(share: Share) -> dict[str, Any]:
    """A share as the module returns it, as JSON."""
    # All numbers and texts as measured, also of shares without a finding.
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
