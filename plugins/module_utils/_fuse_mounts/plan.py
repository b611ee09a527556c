# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""Dead and hung FUSE mounts of the kubelet's (STOR-05, STOR-06): whether and how they may be
replaced. Pure: no I/O here.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import drivers, untrusted
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.codes import Reason
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    Action,
    Finding,
    Plan,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import Refused
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.turns import in_turns
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.untrusted import masked
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts import (
    recipes as fuse_recipes,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts.limits import (
    Limits,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import kubelet
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.kubelet import (
    Place,
    VolumeNote,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.mounts import (
    Mount,
    MountTable,
    is_fuse,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.probes import (
    DEAD,
    ERROR,
    HUNG,
    OK,
    Answer,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.processes import Process

RUNBOOK = "storage_ops.runbooks.recover_fuse_mounts"
KIND = "FUSE mount"
# Where new mounts are made before they are put in the place of dead ones.
PRIVATE = "/run/storage_ops/fuse"
# Options of one mount that a bind must have, too.
_FLAGS = ("ro", "nosuid", "nodev", "noexec")
# Options of a filesystem that decide who may do what in it.
_KEPT = ("allow_other", "default_permissions")
# Labels of SELinux for the whole filesystem (selinux_sb_show_options in security/selinux/hooks.c);
# what has a comma is quoted.
_CONTEXT = re.compile(r'(?:^|,)((?:fs|def|root)?context=(?:"[^"]*"|[^,"]*))')
# What works where this host cannot mount it.
_BY_DRIVER = "let the driver mount it again for new pods (strategy kubelet)"
# Their clients pass on what their own servers answer: that one is gone does not say that the client
# is.
_FORWARDING = ("fuse.glusterfs",)
CONNECTIONS = "/sys/fs/fuse/connections"
# Mebibytes, and threads: of a server whose driver's container has no limits, or is not found.
DEFAULT_MEMORY, DEFAULT_TASKS = 1024, 512
LEAST_MEMORY, LEAST_TASKS = 64, 16
# What a mount point is after a repair that failed.
AS_BEFORE = "as it was"
TAKEN_OFF = "without some of its dead mounts"
NEW = "the new mount"
OTHER = "neither as it was nor the new mount"
# Names of options whose values are secrets.
_PASSWORD = re.compile(
    r"passw(?:or)?d$|(?:^|[_.-])(?:pass|passphrase|token)$|secret", re.ASCII | re.IGNORECASE
)
# What a filesystem of one user's alone answers even to root: its server lives.
_ALIVE = ("EACCES", "EPERM")
# The staging mount first, so that whoever publishes the volume meanwhile finds the new one.
_ORDER = (kubelet.STAGING, kubelet.PUBLISH, kubelet.IN_TREE, kubelet.SUBPATH)


@dataclass(frozen=True)
class Pod:
    """A pod of a volume, as the cluster has it."""

    uid: str
    namespace: str = ""
    name: str = ""
    terminating: bool = False


@dataclass(frozen=True)
class Volume:
    """What a volume's mount should be, as the cluster or the user says; ``pods``: None if nobody
    has said.
    """

    volume: str = ""
    driver: str = ""
    handle: str = ""
    paths: tuple[str, ...] = ()
    recipe: str = ""
    sources: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    endpoint: str = ""
    region: str = ""
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    command: tuple[str, ...] = ()
    foreground: bool = True
    memory_max: int | None = None
    tasks_max: int | None = None
    pods: tuple[Pod, ...] | None = None
    secret_namespace: str = ""

    def describe(self) -> str:
        """For the eye."""
        return self.volume or self.handle or ", ".join(self.paths)


@dataclass(frozen=True)
class Options:
    """What the user asked for and allows; see the documentation of fuse_remount for units and
    defaults.
    """

    paths: tuple[str, ...] = ()
    strategy: str = "remount"
    volumes: tuple[Volume, ...] = ()
    kubelet_root: str = kubelet.ROOT
    node: str = ""
    probe_timeout: float = 5.0
    remount_timeout: float = 30.0
    containers_timeout: float = 0.0
    unstage_timeout: float = 60.0
    abort_hung_connections: bool = False
    max_repairs: int = 10
    accept_majority: bool = False


@dataclass(frozen=True)
class Target:
    """A mount point that is to get another mount.

    ``take``: the layers that go, the topmost first. ``root``: the folder of the filesystem that was
    mounted there. ``flags``: options that its mount had. ``beneath``: number of the mount that lies
    under them in the stack, 0 if none.
    """

    point: str
    kind: str
    take: tuple[Mount, ...]
    root: str
    flags: tuple[str, ...]
    beneath: int


@dataclass(frozen=True)
class Unfinished:
    """What an interrupted run left: its new mount, and the points that were to get it.

    ``devices``: the dead superblocks. ``fstype``, ``origin``, ``kept``: as in Recovery. ``begun``:
    its new mount was proven, and it had come as far as to replace mounts. ``credentials``: its file
    of them is still there.
    """

    key: str
    name: str
    devices: tuple[str, ...]
    targets: tuple[Target, ...]
    fstype: str = ""
    origin: str = ""
    kept: tuple[str, ...] = ()
    begun: bool = False
    credentials: bool = False

    @property
    def folder(self) -> str:
        """Where its new mount is."""
        return f"{PRIVATE}/{self.key}/mount"


@dataclass(frozen=True)
class Service:
    """How a new mount is made. ``secret``: text of the credentials file. ``environment``: no
    secrets. ``as_is``: without systemd.

    ``limits``: properties of its unit, by which the program has less than root's rights and a
    bounded share of the node.
    ``secrets``: what the program knows and may say.
    """

    argv: tuple[str, ...]
    fstypes: tuple[str, ...]
    secret: str = field(default="", repr=False)
    environment: tuple[str, ...] = ()
    secret_environment: bool = False
    foreground: bool = True
    as_is: bool = False
    limits: tuple[str, ...] = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Recovery:
    """What all actions of a finding work on.

    ``devices``, ``fstype``: the dead superblocks, and what they are. ``origin``: what mountinfo
    says they are of, if that is more than the name of a program. ``kept``: options that the new one
    must have, too. ``ready``: a mount that answers already, below ``trusted``; empty if it is to be
    made by the ``service`` (a Service).
    """

    key: str
    name: str
    devices: tuple[str, ...]
    targets: tuple[Target, ...]
    fstype: str = ""
    origin: str = ""
    kept: tuple[str, ...] = ()
    ready: str = ""
    trusted: str = ""
    service: Any = None
    pods: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    handles: tuple[tuple[str, str], ...] = ()

    @property
    def folder(self) -> str:
        """Of its own, below PRIVATE."""
        return f"{PRIVATE}/{self.key}"

    @property
    def unit(self) -> str:
        """The transient unit that the new mount lives in."""
        return f"storage_ops-fuse-{self.key}.service"

    @property
    def source(self) -> str:
        """The mount that is to be seen at all targets."""
        return self.ready or f"{self.folder}/mount"


@dataclass(frozen=True)
class Step:
    """What an action works on. ``target``: the Target, of an action on one mount point."""

    recovery: Recovery
    target: Any = None


@dataclass(frozen=True)
class PodFolder:
    """A volume's folder in the folder of a pod: as long as it is there, the kubelet is not done
    with it.
    """

    pod: str
    volume: str
    driver: str
    handle: str


@dataclass(frozen=True)
class State:
    """Everything the plan is made from.

    ``root``: the kubelet's folder, empty if there is none. ``answers``: by device of the
    superblock. ``others``: FUSE mounts of other mount namespaces. ``parents``: by mount point, why
    its folders cannot be trusted. ``absent``: mount points that are not there any more, of those
    that an interrupted run noted. ``waiting``: by device, requests that the server owes.
    ``crowded``: by device, of how many other mounts not all were looked at.
    ``limits``: by driver, of its container. ``programs``: by name, their paths. ``servers``:
    processes that have /dev/fuse open.
    """

    node: str
    root: str
    table: MountTable
    answers: dict[str, Answer] = field(default_factory=dict)
    others: tuple[Mount, ...] = ()
    processes: tuple[Process, ...] = ()
    notes: dict[str, VolumeNote] = field(default_factory=dict)
    parents: dict[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    waiting: dict[str, str] = field(default_factory=dict)
    programs: dict[str, str] = field(default_factory=dict)
    systemd: bool = True
    folders: tuple[PodFolder, ...] = ()
    unfinished: tuple[Unfinished, ...] = ()
    servers: tuple[int, ...] = ()
    crowded: dict[str, str] = field(default_factory=dict)
    limits: dict[str, Limits] = field(default_factory=dict)


@dataclass(frozen=True)
class Superblock:
    """A FUSE filesystem with the mounts of it that are the kubelet's; ``outside``: those elsewhere,
    or hidden by a mount higher up.
    """

    device: str
    mounts: tuple[tuple[Mount, Place], ...]
    outside: tuple[Mount, ...]


class Remote(NamedTuple):
    """What mounts talk to, as far as is known. A majority is counted for each.

    ``namespace``: of the Secret that they are mounted with. Who may write that can name any
    endpoint in it, or none, and would have mounts that answer counted with those of others; so it
    counts for that namespace alone.
    """

    driver: str
    endpoint: str
    namespace: str

    @property
    def shown(self) -> str:
        """Within a sentence."""
        at = f" at {untrusted.sample_of(self.endpoint)}" if self.endpoint else ""
        of = f" of {self.driver}" if self.driver else ""
        return of + at + (f" with Secrets in {self.namespace}" if self.namespace else "")


@dataclass
class _Group:
    """Broken superblocks that lie on one another somewhere, and so can only go together."""

    devices: list[str]
    targets: list[Target]
    covered: list[Mount]
    name: str = ""


def superblocks(table: MountTable, root: str) -> dict[str, Superblock]:
    """The FUSE filesystems that are mounted at places of the kubelet's, by device."""
    found: dict[str, Superblock] = {}
    for mount in table.mounts if root else ():
        if not is_fuse(mount):
            continue
        before = found.get(mount.device, Superblock(mount.device, (), ()))
        place = kubelet.classify(mount.point, root)
        if place and place.kind in _ORDER and mount in table.layers(mount.point):
            found[mount.device] = Superblock(
                mount.device, (*before.mounts, (mount, place)), before.outside
            )
        else:
            found[mount.device] = Superblock(mount.device, before.mounts, (*before.outside, mount))
    return {device: superblock for device, superblock in found.items() if superblock.mounts}


def kept_elsewhere(table: MountTable, superblock: Superblock) -> list[Mount]:
    """The mounts of the driver's own from which it binds those of pods, if it stages none.

    JuiceFS and Mountpoint for S3 do so: a pod of the driver's serves a mount in a folder of theirs
    (juicedata/juicefs-csi-driver pkg/config/config.go MountPointPath,
    awslabs/mountpoint-s3-csi-driver pkg/driver/node/mounter SourceMountDir).
    """
    if any(place.kind == kubelet.STAGING for _mount, place in superblock.mounts):
        return []
    return [
        mount
        for mount in superblock.outside
        if mount.root == "/" and table.layers(mount.point)[-1:] == [mount]
    ]


def servers_of(state: State, device: str) -> list[Process]:
    """Processes that may serve a FUSE filesystem: they have /dev/fuse open, and it is mounted in
    their mount namespace. Older kernels do not tell more."""
    by_pid = {str(process.pid): process.namespace for process in state.processes}
    mounts = [mount for mount in (*state.table.mounts, *state.others) if mount.device == device]
    spaces = {by_pid.get(mount.pid, "") for mount in mounts} - {""}
    return [
        process
        for process in state.processes
        if process.pid in state.servers and process.namespace in spaces
    ]


def to_ask(table: MountTable, superblock: Superblock) -> str:
    """The mount point through which a superblock can be asked; empty if another mount
    lies on each.
    """
    tops = [
        (_ORDER.index(place.kind), mount.point)
        for mount, place in superblock.mounts
        if table.layers(mount.point)[-1] is mount
    ]
    return min(tops)[1] if tops else ""


def buried(
    table: MountTable, found: Mapping[str, Superblock], answers: Mapping[str, Answer]
) -> list[Mount]:
    """One layer of each superblock that nobody could ask yet, and on which nothing lies but broken
    ones.
    """
    layers: dict[str, Mount] = {}
    for superblock in found.values():
        for mount, _place in superblock.mounts:
            stack = table.layers(mount.point)
            above = stack[stack.index(mount) + 1 :]
            if (
                mount.device not in answers
                and above
                and all(_is_broken(answers.get(layer.device)) for layer in above)
            ):
                layers.setdefault(mount.device, mount)
    return list(layers.values())


def _is_broken(answer: Answer | None) -> bool:
    return answer is not None and answer.state in (DEAD, HUNG)


def plan(state: State, options: Options) -> Plan:
    """What becomes of every superblock of the kubelet's that does not answer, and of interrupted
    runs.

    Most of what talks to the same server being broken may be an outage of that: it is not repaired.
    """
    found = superblocks(state.table, state.root)
    groups = _groups(state, found)
    left = list(state.unfinished)
    findings = []
    points: dict[int, set[str]] = {}
    for group in groups:
        mine = [one for one in left if _meets(one, group)]
        left = [one for one in left if one not in mine]
        findings.append(_judge(state, options, found, group, mine))
        points[id(findings[-1])] = {target.point for target in group.targets}
    findings += [_judge_unfinished(state, options, found, one) for one in left]
    findings += _errors(state, found, options)
    wanted = _in_scope(state, options, found, findings, points)
    wanted = _in_turns(wanted, options)
    repairs = [finding for finding in wanted if finding.repair or "evict" in finding.evidence]
    refused = []
    outages = {} if options.accept_majority else _outages(state, options, found)
    for finding in repairs:
        remotes = _remotes_of(finding, state, options, found)
        outage = [outages[remote] for remote in remotes if remote in outages]
        if outage:
            finding.refuse(*outage)
            refused.append(finding)
    left_over = [finding for finding in repairs if finding not in refused]
    for finding in left_over[options.max_repairs :]:
        finding.refuse(
            Reason(
                "too_many_repairs",
                f"max_repairs is {options.max_repairs}: run again for this one, or raise it",
            )
        )
        refused.append(finding)
    for finding in refused:
        finding.evidence.pop("evict", None)
    return Plan(wanted)


# majorities


def _outages(
    state: State, options: Options, found: Mapping[str, Superblock]
) -> dict[Remote, Reason]:
    """The remotes of which most mounts are broken, and what there is to say of each."""
    totals: Counter[Remote] = Counter()
    broken: Counter[Remote] = Counter()
    for device, superblock in found.items():
        remote = _remote(state, options, [place for _mount, place in superblock.mounts])
        totals[remote] += 1
        broken[remote] += _is_broken(state.answers.get(device))
    return {
        remote: Reason(
            "majority_broken",
            f"{broken[remote]} of the node's {total} FUSE mounts{remote.shown} look broken at "
            "once: that may be an outage. "
            "If their servers are known to be gone for good, set accept_majority",
        )
        for remote, total in totals.items()
        if 2 * broken[remote] > total
    }


def _remotes_of(
    finding: Finding, state: State, options: Options, found: Mapping[str, Superblock]
) -> list[Remote]:
    """What the mounts that a repair is about talk to."""
    recovery: Recovery | None = finding.repair[0].subject.recovery if finding.repair else None
    devices = recovery.devices if recovery else finding.evidence["devices"]
    blocks = [found[device] for device in devices if device in found]
    groups = [[place for _mount, place in block.mounts] for block in blocks]
    for target in recovery.targets if recovery and not groups else ():
        place = kubelet.classify(target.point, state.root)
        groups += [[place]] if place else []
    return list(dict.fromkeys(_remote(state, options, places) for places in groups))


def _remote(state: State, options: Options, places: list[Place]) -> Remote:
    """Of the mounts of one filesystem.

    An endpoint that is not known is one for all of a driver's.
    """
    read = [state.notes.get(place.note) for place in places]
    notes = [note for note in read if note and not note.problem]
    handles = tuple({(note.driver, note.handle) for note in notes})
    points = {place.point for place in places}
    entries = _entries(state, options, _volumes(places, notes), handles, points)
    entry = entries[0] if len(entries) == 1 else Volume()
    known = {place.driver for place in places} | {note.driver for note in notes} | {entry.driver}
    driver = min(known - {""}, default="")
    return Remote(driver, entry.endpoint.rstrip("/").lower(), entry.secret_namespace)


def _in_turns(findings: list[Finding], options: Options) -> list[Finding]:
    """By the namespaces of the pods."""
    namespaces = {
        entry.volume: {pod.namespace for pod in entry.pods or ()} for entry in options.volumes
    }

    def owner(finding: Finding) -> tuple[str, ...]:
        volumes = finding.evidence.get("volumes", ())
        return tuple(sorted({name for volume in volumes for name in namespaces.get(volume, ())}))

    return in_turns(findings, owner)


def _groups(state: State, found: Mapping[str, Superblock]) -> list[_Group]:
    """Broken superblocks, those together that are stacked on each other at some point, or that an
    interrupted run was about to replace.
    """
    groups: list[_Group] = []
    noted = [{target.point for target in one.targets} for one in state.unfinished]

    def near_to(device: str) -> set[str]:
        points = {mount.point for mount, _place in found[device].mounts}
        return points.union(*(others for others in noted if others & points))

    for device in found:
        if not _is_broken(state.answers.get(device)):
            continue
        points = near_to(device)
        near = [
            group for group in groups if any(points & near_to(other) for other in group.devices)
        ]
        groups = [group for group in groups if group not in near]
        groups.append(
            _Group([*(other for group in near for other in group.devices), device], [], [])
        )
    for group in groups:
        places = {
            mount.point: place for device in group.devices for mount, place in found[device].mounts
        }
        for point, place in sorted(
            places.items(), key=lambda item: (_ORDER.index(item[1].kind), item[0])
        ):
            layers = state.table.layers(point)
            take: list[Mount] = []
            while layers and layers[-1].device in group.devices:
                take.append(layers.pop())
            group.covered += [layer for layer in layers if layer.device in group.devices]
            if take:
                flags = tuple(
                    flag
                    for flag in _FLAGS
                    if flag in take[0].options or (flag == "ro" and flag in take[0].super_options)
                )
                group.targets.append(
                    Target(
                        point,
                        place.kind,
                        tuple(take),
                        take[0].root,
                        flags,
                        layers[-1].id if layers else 0,
                    )
                )
        group.name = (group.targets or [Target(group.covered[0].point, "", (), "", (), 0)])[0].point
    return groups


def _meets(unfinished: Unfinished, group: _Group) -> bool:
    """Whether what was left is of this group: the same dead mounts, or their points."""
    points = {target.point for target in group.targets} | {mount.point for mount in group.covered}
    return bool(points & {target.point for target in unfinished.targets})


# findings


def _judge(
    state: State,
    options: Options,
    found: Mapping[str, Superblock],
    group: _Group,
    left: list[Unfinished],
) -> Finding:
    hung = [device for device in group.devices if state.answers[device].state == HUNG]
    finding = _group_finding(state, found, group, hung)
    _tell_what_else(finding, state, found, group, hung, left)
    forwarding = _forwarding(state, found, group)
    if forwarding:
        finding.verdict = "report"
        finding.reason = (
            f"{', '.join(forwarding)} passes on what its servers answer, so its "
            "client may live: see whether they are there"
        )
        return finding
    recovery, obstacles = _recovery(state, options, found, group, left, finding)
    if hung and not options.abort_hung_connections:
        obstacles.append(
            Reason(
                "mount_hung",
                "it hangs, but may only be slow: what it has not written is lost when it is cut "
                "off. Set abort_hung_connections for that",
            )
        )
    if obstacles:
        finding.refuse(*obstacles)
    elif not group.targets:
        finding.verdict = "report"
        finding.reason = "a mount that answers lies on it everywhere, so no process meets it"
    else:
        _plan_repair(finding, state, options, group, hung, recovery, left)
    return finding


def _group_finding(
    state: State, found: Mapping[str, Superblock], group: _Group, hung: list[str]
) -> Finding:
    """What is wrong with the mounts of a group, not judged yet."""
    first = next(mount for device in group.devices for mount, _place in found[device].mounts)
    answers = ((device, state.answers[device]) for device in group.devices)
    said = (f"{device} {one.step}: {one.error or one.text}" for device, one in answers)
    return Finding(
        control="STOR-06" if hung else "STOR-05",
        severity="major",
        kind=KIND,
        name=group.name,
        node=state.node,
        summary=f"the server of {group.name} {'does not answer' if hung else 'is gone'}",
        verdict="repair",
        reason="",
        runbook=RUNBOOK,
        evidence={
            "devices": group.devices,
            "fstype": first.fstype,
            "source": printable(masked(first.source)),
            "answer": "; ".join(said),
            "mounts": [f"{target.point} ({target.kind})" for target in group.targets],
        },
    )


def _tell_what_else(
    finding: Finding,
    state: State,
    found: Mapping[str, Superblock],
    group: _Group,
    hung: list[str],
    left: list[Unfinished],
) -> None:
    """Evidence that only some findings have."""
    told: dict[str, Any] = {
        "covered": [mount.point for mount in group.covered],
        "outside": [
            printable(mount.point) for device in group.devices for mount in found[device].outside
        ],
        "credentials": [f"{PRIVATE}/{one.key}/credentials" for one in left if one.credentials],
    }
    finding.evidence.update({key: value for key, value in told.items() if value})
    finding.evidence["containers"] = [
        f"{entry['container'] or entry['pod'] or 'process'} (pid {entry['pid']}) at "
        f"{entry['point']}"
        for entry in stale(state, set(group.devices))
    ]
    finding.evidence["containers"] += [
        f"more: {state.crowded[device]}" for device in group.devices if device in state.crowded
    ]
    if hung:
        waiting = {device: state.waiting.get(device, "unknown") for device in hung}
        finding.evidence["connections"] = waiting
        held = [state.answers[device].left for device in hung]
        finding.evidence["held"] = [pid for pid in held if pid]


def _forwarding(state: State, found: Mapping[str, Superblock], group: _Group) -> list[str]:
    """Types of the dead mounts whose client may live although they answer like dead ones."""
    return sorted(
        {
            mount.fstype
            for device in group.devices
            for mount, _place in found[device].mounts
            if mount.fstype in _FORWARDING and state.answers[mount.device].state == DEAD
        }
    )


def _plan_repair(
    finding: Finding,
    state: State,
    options: Options,
    group: _Group,
    hung: list[str],
    recovery: Recovery,
    left: list[Unfinished],
) -> None:
    """The actions, in order, and why they may be done."""
    met = {mount.device for target in group.targets for mount in target.take}
    aborts = [
        Action("abort_connection", device, _abort_command(state, device), Step(recovery))
        for device in hung
        if device in met
    ]
    if options.strategy == "kubelet":
        once = "once no" if recovery.pods else "no"
        finding.reason = f"{once} container of its pods is left"
        finding.repair = [*aborts, *_kubelet_actions(recovery, options)]
        others = left
    else:
        finding.reason = (
            f"{recovery.ready} answers" if recovery.ready else "what is to be mounted is known"
        )
        mount, *rest = _remount_actions(recovery)
        finding.repair = [mount, *aborts, *rest] if recovery.service else [*aborts, mount, *rest]
        others = [one for one in left if one.key != recovery.key]
    finding.repair += [
        _clean_up(Recovery(one.key, one.name, (), ()), not one.begun) for one in others
    ]


def _abort_command(state: State, device: str) -> list[str]:
    there = any(
        mount.fstype == "fusectl" and mount.point == CONNECTIONS for mount in state.table.mounts
    )
    first = [] if there else ["mount", "-t", "fusectl", "fusectl", CONNECTIONS, "then"]
    return [*first, "write", f"{CONNECTIONS}/{device.partition(':')[2]}/abort", "1"]


def _recovery(
    state: State,
    options: Options,
    found: Mapping[str, Superblock],
    group: _Group,
    left: list[Unfinished],
    finding: Finding,
) -> tuple[Recovery, list[Reason]]:
    """How a group would be repaired, and all that speaks against it."""
    notes, obstacles = _notes(
        state,
        [(mount, place) for device in group.devices for mount, place in found[device].mounts],
        finding,
    )
    obstacles += [
        Reason(
            "identity_changed",
            f"the kubelet calls this node {name}, and what was said of its volumes is of "
            f"{options.node}: correct the name of the node",
        )
        for name in sorted({note.node for note in notes} - {"", options.node})
        if options.node
    ]
    targets = (*group.targets, *(_bare(state, left) if options.strategy == "remount" else ()))
    devices = tuple(group.devices)
    takes = [mount for target in group.targets for mount in target.take]
    volumes = _volumes(
        [place for device in group.devices for _mount, place in found[device].mounts], notes
    )
    handles = tuple(sorted({(note.driver, note.handle) for note in notes}))
    finding.evidence["volumes"], finding.evidence["handles"] = (
        list(volumes),
        [f"{driver} {handle}" for driver, handle in handles],
    )
    dead = takes or group.covered
    origins = sorted({origin_of(mount) for mount in dead} - {""})
    recovery = Recovery(
        _key(group.name, takes, left),
        group.name,
        devices,
        targets,
        dead[0].fstype,
        origins[0] if origins else "",
        (*(option for option in _KEPT if option in dead[0].super_options), *contexts(dead[0])),
        volumes=volumes,
        handles=handles,
    )
    if not group.targets:
        return recovery, obstacles
    obstacles += _point_obstacles(state, targets)
    obstacles += _elsewhere_obstacles(state, found, group, finding)
    points = {mount.point for device in devices for mount, _place in found[device].mounts}
    entries = _entries(state, options, recovery.volumes, recovery.handles, points)
    if options.strategy == "kubelet":
        return _for_kubelet(state, options, recovery, entries, obstacles, finding)
    if len(origins) > 1:
        obstacles.append(
            Reason(
                "evidence_contradicts",
                "the dead mounts that lie on each other are of different sources: "
                f"{', '.join(map(masked, origins))}",
            )
        )
    for one in left:
        if one.begun and _answers(state, one.folder, recovery.devices):
            return replace(recovery, key=one.key, ready=one.folder, trusted=PRIVATE), obstacles
    renewed = _renewed(state, recovery, notes)
    if renewed is None:
        obstacles += _user_obstacles(dead[0], entries)
        return _to_be_mounted(state, recovery, entries, obstacles)
    different = unlike(recovery, renewed)
    return replace(recovery, ready=renewed.point, trusted=state.root), [
        *obstacles,
        *([Reason("mount_differs", different)] if different else []),
    ]


def _user_obstacles(mount: Mount, entries: list[Volume]) -> list[Reason]:
    """A new server runs as root; of another user's mount even root sees nothing
    (fuse(4), user_id).
    """
    users = [option for option in mount.super_options if re.fullmatch(r"user_id=[1-9]\d*", option)]
    if not users or any(entry.command for entry in entries):
        return []
    return [
        Reason(
            "mount_unknown",
            f"its server ran as another user than root ({users[0]}), and a recipe's runs as root: "
            "give a command that runs as that user, or use the strategy kubelet",
        )
    ]


def _elsewhere_obstacles(
    state: State, found: Mapping[str, Superblock], group: _Group, finding: Finding
) -> list[Reason]:
    """Mounts of drivers' own, which would stay dead, and be bound for the next pod."""
    obstacles = []
    for device in group.devices:
        for mount in kept_elsewhere(state.table, found[device]):
            processes = servers_of(state, device)
            pods = sorted({process.pod for process in processes if process.pod})
            finding.evidence["servers"] = [
                f"{process.describe()} of pod {process.pod or '(none)'}" for process in processes
            ]
            whose = (
                f"its server may be that of the pod {' or '.join(pods)}: delete that pod"
                if pods
                else "its server is gone, or of no pod: find the pod of the driver that serves it "
                "(JuiceFS, Mountpoint for S3 and others have one for each volume), and delete that"
            )
            obstacles.append(
                Reason(
                    "driver_mount_broken",
                    f"the driver's own mount at {printable(mount.point)}, from which it binds "
                    f"those of pods, is dead as well, and the next pod would get it; {whose}, "
                    "then run this again",
                )
            )
    return obstacles


def _key(name: str, layers: list[Mount], left: list[Unfinished]) -> str:
    """Of a repair that makes a new mount.

    In the unit of one that was begun, mounts that are in use may live.
    """
    again = [one.key for one in left if not one.begun]
    return again[0] if again else key_of(name, layers, [one.key for one in left])


def _volumes(places: list[Place], notes: list[VolumeNote]) -> tuple[str, ...]:
    """PersistentVolumes.

    In other places than these a pod's own name for its volume may stand, which many pods use.
    """
    named = {place.volume for place in places if place.kind in (kubelet.STAGING, kubelet.PUBLISH)}
    return tuple(sorted((named | {note.volume for note in notes}) - {""}))


def _notes(
    state: State, mounts: list[tuple[Mount, Place]], finding: Finding
) -> tuple[list[VolumeNote], list[Reason]]:
    """The kubelet's notes of these mounts, and those that contradict."""
    notes: list[VolumeNote] = []
    problems: list[str] = []
    contradictions: list[Reason] = []
    for place in {place.note: place for _mount, place in mounts if place.note}.values():
        note = state.notes.get(place.note, VolumeNote(problem=f"{place.note} was not read"))
        if note.problem:
            problems.append(note.problem)
        else:
            against = kubelet.contradiction(place, note)
            contradictions += [Reason("evidence_contradicts", against)] if against else []
            notes.append(note)
    if problems:
        finding.evidence["notes"] = problems
    if len({(note.driver, note.handle) for note in notes}) > 1:
        contradictions.append(
            Reason(
                "evidence_contradicts",
                "the kubelet's notes name more than one volume: "
                + ", ".join(sorted({note.handle for note in notes})),
            )
        )
    return notes, contradictions


def _bare(state: State, left: list[Unfinished]) -> tuple[Target, ...]:
    """Points from which an interrupted run took the dead mounts without putting the new
    one there.
    """
    bare = {}
    # The kubelet may have removed the pod since.
    for target in [
        target for one in left for target in one.targets if target.point not in state.absent
    ]:
        place = kubelet.classify(target.point, state.root) if state.root else None
        layers = state.table.layers(target.point)
        if place and place.kind in _ORDER and (layers[-1].id if layers else 0) == target.beneath:
            bare[target.point] = Target(
                target.point, place.kind, (), target.root, target.flags, target.beneath
            )
    return tuple(bare.values())


def _point_obstacles(state: State, targets: tuple[Target, ...]) -> list[Reason]:
    """What lies in the way of the mounts themselves."""
    obstacles = [
        Reason("mount_in_the_way", state.parents[target.point])
        for target in targets
        if state.parents.get(target.point)
    ]
    for target in targets:
        own = {mount.id for mount in target.take}
        obstacles += [
            Reason(
                "mount_in_the_way", f"another mount lies inside of it, at {printable(mount.point)}"
            )
            for mount in (state.table.on(target.take[-1]) if target.take else [])
            if mount.id not in own
        ]
        if target.root.endswith("//deleted"):
            obstacles.append(
                Reason(
                    "mount_in_the_way", f"the folder that was mounted at {target.point} was deleted"
                )
            )
    return obstacles


def _entries(
    state: State,
    options: Options,
    volumes: tuple[str, ...],
    handles: tuple[tuple[str, str], ...],
    points: set[str],
) -> list[Volume]:
    """What the user or the cluster says of this volume."""
    places = [kubelet.classify(point, state.root) for point in points]
    digests = {(place.driver, place.digest) for place in places if place and place.digest}

    def meant(entry: Volume) -> bool:
        if points & set(entry.paths) or (entry.volume and entry.volume in volumes):
            return True
        if not entry.handle:
            return False
        same = [driver for driver, handle in handles if handle == entry.handle]
        digest = kubelet.digest_of(entry.handle)
        same += [driver for driver, staged in digests if staged == digest]
        return any(entry.driver in ("", driver) for driver in same)

    return [entry for entry in options.volumes if meant(entry)]


# the strategy remount


def _to_be_mounted(
    state: State, recovery: Recovery, entries: list[Volume], obstacles: list[Reason]
) -> tuple[Recovery, list[Reason]]:
    """With the service that makes a new mount."""
    if len(entries) != 1:
        why = "nothing says" if not entries else f"{len(entries)} entries of 'volumes' say"
        remedy = f"give it by 'volumes', run the playbook with the cluster, or {_BY_DRIVER}"
        said = Reason("mount_unknown", f"{why} what is to be mounted: {remedy}")
        return recovery, [*obstacles, said]
    service, problems = _service(state, entries[0], recovery)
    known = [handle for driver, handle in recovery.handles if entries[0].driver in ("", driver)]
    if entries[0].handle and recovery.handles and entries[0].handle not in known:
        problems.append(
            Reason(
                "evidence_contradicts",
                f"'volumes' has the volume handle {entries[0].handle}, the kubelet's note "
                f"{', '.join(known) or 'another driver'}",
            )
        )
    return replace(recovery, service=service), obstacles + problems


def _renewed(state: State, recovery: Recovery, notes: list[VolumeNote]) -> Mount | None:
    """The staging mount of the same volume, if that answers: its driver has renewed it."""
    taken = {target.point for target in recovery.targets}
    for note in notes:
        for point in kubelet.staging_points(note, state.root):
            layers = state.table.layers(point)
            same = _answers(state, point, recovery.devices) and (
                layers[-1].root,
                layers[-1].fstype,
            ) == ("/", recovery.fstype)
            if same and point not in taken:
                return layers[-1]
    return None


def origin_of(mount: Mount) -> str:
    """What a filesystem is of, as mountinfo says; empty if that is but the name of a program, or
    nothing.
    """
    recipes = [recipe for recipe in fuse_recipes.RECIPES.values() if mount.fstype in recipe.fstypes]
    nothing = {
        "",
        "none",
        "fuse",
        mount.fstype,
        mount.fstype.partition(".")[2],
        *(recipe.program for recipe in recipes),
    }
    # What a remote is called is up to whoever configured it.
    source = (
        mount.source.rpartition(":")[2]
        if any(recipe.names_remote for recipe in recipes)
        else mount.source
    )
    return "" if source in nothing else source.rstrip("/:")


def unlike(recovery: Recovery, mount: Mount) -> str:
    """Why a new mount cannot take the place of the dead ones, as far as mountinfo tells."""
    if mount.device in recovery.devices:
        return "the new mount is of the dead filesystem"
    if mount.fstype == recovery.fstype and recovery.origin and origin_of(mount) != recovery.origin:
        new = origin_of(mount) or mount.source
        return (
            f"the new mount is of {printable(masked(new))!r}, the dead one was of "
            f"{printable(masked(recovery.origin))!r}"
        )
    has = {*mount.super_options, *contexts(mount)}
    lost = [option for option in recovery.kept if option not in has]
    return f"the new mount lacks {' and '.join(lost)}, which the dead one had" if lost else ""


def contexts(mount: Mount) -> tuple[str, ...]:
    """The labels of SELinux that a filesystem was mounted with, as options."""
    return tuple(_CONTEXT.findall(",".join(mount.super_options)))


def _answers(state: State, point: str, dead: tuple[str, ...]) -> bool:
    layers = state.table.layers(point)
    if not layers or not is_fuse(layers[-1]) or layers[-1].device in dead:
        return False
    answer = state.answers.get(layers[-1].device)
    return answer is not None and answer.state == OK


def _service(
    state: State, entry: Volume, recovery: Recovery
) -> tuple[Service | None, list[Reason]]:
    """How the new mount is made, and why it cannot be."""
    problems = []
    sources = sorted({*entry.sources} - {""})
    if not sources:
        problems.append(
            Reason(
                "mount_unknown", f"no source of {entry.describe()} is known: give one in 'sources'"
            )
        )
    elif len(sources) > 1:
        problems.append(
            Reason(
                "mount_unknown",
                "more than one candidate source: "
                f"{', '.join(map(untrusted.sample_of, sources[:5]))}",
            )
        )
    recipe = (
        fuse_recipes.RECIPES.get(entry.recipe)
        if entry.recipe
        else fuse_recipes.for_fstype(recovery.fstype)
    )
    if entry.command:
        recipe = None
    elif recipe is None:
        asked = (
            f"there is no recipe {untrusted.sample_of(entry.recipe)}"
            if entry.recipe
            else f"no recipe is for mounts of the type {recovery.fstype}"
        )
        return None, [
            *problems,
            Reason(
                "mount_unknown",
                f"{asked}: give one of {', '.join(fuse_recipes.RECIPES)}, or a command",
            ),
        ]
    if problems:
        return None, problems
    if not state.systemd and recipe:
        problems.append(
            Reason(
                "program_missing",
                "systemd does not run here, in which the mount could live: give a command that "
                "goes into the background by itself",
            )
        )
    name = entry.command[0] if entry.command else recipe.program if recipe else ""
    program = state.programs.get(name, "")
    if not program:
        problems.append(
            Reason("program_missing", f"{name} is not on this host: install it, or {_BY_DRIVER}")
        )
    missing = [key for key in (recipe.needed if recipe else ()) if not entry.credentials.get(key)]
    if missing:
        lacking = f"the credentials lack {' and '.join(missing)}"
        problems.append(
            Reason(
                "credentials_missing",
                f"{lacking}: give them by the option 'volumes', or {_BY_DRIVER}",
            )
        )
    problems += _habits(entry, recipe, recovery)
    problems += _word_problems(entry, sources[0])
    try:
        service = _filled(entry, recipe, program, sources[0], recovery)
    except Refused as error:
        return None, list(dict.fromkeys([*problems, Reason(error.code, str(error))]))
    drivers = {driver for driver, _handle in recovery.handles} | {entry.driver} - {""}
    known = state.limits.get(min(drivers), Limits()) if len(drivers) == 1 else Limits()
    secrets = tuple(filter(None, entry.credentials.values()))
    service = replace(
        service, as_is=not state.systemd, limits=_limits(entry, recipe, known), secrets=secrets
    )
    return service, problems + _shown_secrets(entry, recipe, service)


def _habits(entry: Volume, recipe: fuse_recipes.Recipe | None, recovery: Recovery) -> list[Reason]:
    """What the dead mount had and a new one would lack."""
    named = sorted({entry.driver, *(driver for driver, _handle in recovery.handles)})
    unfit = [drivers.unfit(driver, recipe.program) for driver in named] if recipe else []
    problems = [
        Reason("mount_unknown", f"{why}: {_BY_DRIVER}") for why in dict.fromkeys(unfit) if why
    ]
    given = {name for option in entry.options for name in _option_names(option)}
    # Which programs hand it on to the kernel differs, so it is not made up here; unlike looks.
    labels = [option for option in recovery.kept if option not in _KEPT]
    return problems + [
        Reason(
            "mount_differs",
            f"the dead mount has {printable(label)}, without which SELinux may keep its pods out: "
            f"give it in 'options', if the program takes it, or {_BY_DRIVER}",
        )
        for label in labels
        if label.partition("=")[0] not in given
    ]


def _filled(
    entry: Volume, recipe: fuse_recipes.Recipe | None, program: str, source: str, recovery: Recovery
) -> Service:
    values = {
        "source": source,
        "target": f"{recovery.folder}/mount",
        "credentials_file": f"{recovery.folder}/credentials",
    }
    values.update(
        {"endpoint": entry.endpoint, "bucket": source.partition(":")[0], "region": entry.region}
    )
    options = list(entry.options)
    given = {word for option in options for word in _option_names(option)}
    # Who could see the files, and change them, still can.
    for option in (option for option in recovery.kept if option in _KEPT):
        if not given & ({option, "allow_root"} if option == "allow_other" else {option}):
            options.append(
                f"--{option.replace('_', '-')}" if recipe and recipe.long_options else option
            )
    words = fuse_recipes.option_words(options)
    if recipe is None:
        argv = fuse_recipes.fill(entry.command, values, {"options": words})
        secret = fuse_recipes.credentials_text(None, entry.credentials, {})
        return Service(
            (program, *argv[1:]), (recovery.fstype,), secret, foreground=entry.foreground
        )
    # The user's name is no secret where the recipe has it on the command line.
    values["access_key"] = entry.credentials.get("access_key", "")
    at = fuse_recipes.fill(recipe.at, values, {}) if entry.endpoint else []
    argv = fuse_recipes.fill(recipe.argv, values, {"options": words, "at": at})
    secret = fuse_recipes.credentials_text(recipe, entry.credentials, values)
    environment = tuple(fuse_recipes.fill(recipe.environment, values, {}))
    fstypes = tuple(dict.fromkeys([*recipe.fstypes, recovery.fstype]))
    return Service((program, *argv), fstypes, secret, environment, recipe.secret_environment)


# What a server whose files are elsewhere needs of root's rights: to mount. No unit of its own mount
# namespace (ProtectSystem= and the like): its mount would not be seen outside it (systemd.exec(5)).
_CONFINED = (
    "CapabilityBoundingSet=CAP_SYS_ADMIN",
    "DevicePolicy=closed",
    "DeviceAllow=/dev/fuse rw",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "LockPersonality=yes",
    "RestrictRealtime=yes",
)


def _limits(entry: Volume, recipe: fuse_recipes.Recipe | None, known: Limits) -> tuple[str, ...]:
    """A tenant's bucket decides how much a server has to remember, and what it parses.

    ``known``: what its driver's container has; with less than the least no program would come up.
    """
    memory = DEFAULT_MEMORY if known.memory is None else max(LEAST_MEMORY, known.memory // 2**20)
    tasks = DEFAULT_TASKS if known.tasks is None else max(LEAST_TASKS, known.tasks)
    limits = (
        f"MemoryMax={memory if entry.memory_max is None else entry.memory_max}M",
        f"TasksMax={tasks if entry.tasks_max is None else entry.tasks_max}",
        # Rather this one than the kubelet.
        "OOMScoreAdjust=500",
        # The credentials would be in it.
        "LimitCORE=0",
        "NoNewPrivileges=yes",
    )
    # What a command of the user's own serves may be files of the node, with owners and devices.
    return limits if recipe is None else limits + _CONFINED


def _option_names(option: str) -> list[str]:
    """The names in ``-o a,b=c`` or ``--a-b=c``, as the kernel would write them."""
    text = re.sub(r"^(?:--|-o[ =]?)", "", option)
    return [word.partition("=")[0].replace("-", "_") for word in re.split(r"[,\s]+", text)]


def _word_problems(entry: Volume, source: str) -> list[Reason]:
    """Words that are no words, and passwords in them."""
    problems = []
    given = (("source", source), ("endpoint", entry.endpoint), ("region", entry.region))
    for what, text in (*given, *(("option", option) for option in entry.options)):
        why = untrusted.problem(what, text) if text else ""
        if why:
            problems.append(Reason("value_refused", why))
        # What is longer than any word was refused, and would take long.
        if len(text) <= untrusted.MAX_WORD and masked(text) != text:
            problems.append(
                Reason(
                    "secret_exposed", f"the {what} has a password in it: give that as a credential"
                )
            )
    for option in entry.options:
        for word in re.split(r"[,\s]+", option):
            name, _equals, value = word.lstrip("-").partition("=")
            if value and _PASSWORD.search(name) and not name.endswith("file"):
                problems.append(
                    Reason(
                        "secret_exposed",
                        f"the option {name!r} is a secret, which the command line would show "
                        "everybody: give it as a credential",
                    )
                )
    return problems


def _shown_secrets(
    entry: Volume, recipe: fuse_recipes.Recipe | None, service: Service
) -> list[Reason]:
    """Credentials that are words of the command line, which every user of the node sees."""
    named = {
        key
        for word in (recipe.argv if recipe else ())
        for key in entry.credentials
        if f"{{{key}}}" in word
    }
    return [
        Reason(
            "secret_exposed",
            f"the command line would show everybody the credential {key}: hand it over by "
            f"{{credentials_file}}",
        )
        for key, text in entry.credentials.items()
        if text and key not in named and any(text in word for word in service.argv)
    ]


def _remount_actions(recovery: Recovery) -> list[Action]:
    actions = []
    step = Step(recovery)
    if recovery.service:
        actions.append(
            Action("mount", recovery.name, _mount_command(recovery, recovery.service), step)
        )
    else:
        actions.append(Action("adopt_mount", recovery.name, ["use", recovery.ready], step))
    for target in recovery.targets:
        source = f"{recovery.source}{target.root}".rstrip("/")
        bind = [
            "mount",
            "--bind",
            *(["-o", ",".join(target.flags)] if target.flags else []),
            source,
            target.point,
        ]
        take = [
            word for _mount in target.take for word in ("umount", "--lazy", target.point, "then")
        ]
        actions.append(
            Action("replace_mount", target.point, [*take, *bind], Step(recovery, target))
        )
    return [*actions, _clean_up(recovery)]


def _clean_up(recovery: Recovery, stop: bool = False) -> Action:
    """``stop``: nothing can live in its unit but the mount that goes."""
    first = ["systemctl", "stop", recovery.unit, "then"] if stop else []
    command = [
        "umount",
        "--lazy",
        f"{recovery.folder}/mount",
        "then",
        *first,
        "rm",
        "-r",
        recovery.folder,
    ]
    return Action("clean_up", recovery.folder, command, Step(recovery))


def _mount_command(recovery: Recovery, service: Service) -> list[str]:
    """The exact command line. What systemd would take for a variable is doubled."""
    if service.as_is:
        return list(service.argv)
    command = [
        "systemd-run",
        "--quiet",
        "--collect",
        f"--unit={recovery.unit}",
        f"--description=FUSE mount for {recovery.name}",
    ]
    command.append(f"--property=Type={'simple' if service.foreground else 'forking'}")
    command += [f"--property={limit}" for limit in service.limits]
    command += [f"--setenv={variable}" for variable in service.environment]
    if service.secret_environment and service.secret:
        command.append(f"--property=EnvironmentFile={recovery.folder}/credentials")
    if service.secret:
        # Whatever becomes of who started it: the file goes when the mount lists, or when the
        # program has ended.
        remove = f"rm -f {recovery.folder}/credentials"
        mounted = f"grep -qs ' {recovery.folder}/mount ' /proc/self/mountinfo"
        wait = f"until {mounted}; do kill -0 $MAINPID 2> /dev/null || break; sleep 0.2; done"
        lists = f"timeout -s KILL 10 ls {recovery.folder}/mount > /dev/null 2>&1"
        command.append(f'--property=ExecStartPost=-/bin/sh -c "{wait}; {lists}; {remove}"')
        command.append(f'--property=ExecStopPost=-/bin/sh -c "{remove}"')
    return [*command, "--", *(word.replace("$", "$$") for word in service.argv)]


# the strategy kubelet


def _for_kubelet(
    state: State,
    options: Options,
    recovery: Recovery,
    entries: list[Volume],
    obstacles: list[Reason],
    finding: Finding,
) -> tuple[Recovery, list[Reason]]:
    """Unmount what the kubelet left behind, if nobody can be using it any more."""
    places = [kubelet.classify(target.point, state.root) for target in recovery.targets]
    pods = tuple(sorted({place.pod for place in places if place and place.pod}))
    known = {pod.uid: pod for entry in entries for pod in entry.pods or ()}
    if pods and (len(entries) != 1 or entries[0].pods is None):
        obstacles.append(
            Reason(
                "pods_wanted",
                f"whether the pods {', '.join(pods)} are still wanted is not known: give them in "
                "'volumes', or use the strategy remount",
            )
        )
    running = [process for process in state.processes if process.pod in pods]
    if running and not options.containers_timeout:
        names = ", ".join(process.describe() for process in running[:5])
        obstacles.append(
            Reason(
                "pods_running",
                f"containers of its pods run: {names}. Evict the pods and set containers_timeout, "
                "or use the strategy remount",
            )
        )
    by_pid = {str(process.pid): process for process in state.processes}
    hosts = {mount.id: mount for mount in state.table.mounts}
    for mount in state.others:
        owner = by_pid.get(mount.pid)
        if (
            mount.device in recovery.devices
            and not _follows(mount, state, hosts)
            and (owner is None or owner.pod not in pods)
        ):
            who = owner.describe() if owner else f"pid {mount.pid}"
            obstacles.append(
                Reason(
                    "in_use_mounted",
                    f"it is also mounted in the mount namespace of {who}, at "
                    f"{printable(mount.point)}",
                )
            )
    still = still_wanted(state.folders, recovery)
    if not pods and still:
        obstacles.append(
            Reason(
                "pods_wanted",
                f"the kubelet still has folders of this volume for the pods {', '.join(still)}: "
                "it is not done with it",
            )
        )
    # Between two restarts of a container there is no process to be seen, so that says nothing of a
    # pod that stays.
    obstacles += [
        Reason("evidence_unreadable", f"it has {state.crowded[device]}")
        for device in recovery.devices
        if device in state.crowded
    ]
    wanted = [
        f"{known[uid].namespace}/{known[uid].name}"
        for uid in pods
        if uid in known and not known[uid].terminating
    ]
    if wanted:
        if not obstacles and (
            options.abort_hung_connections
            or not any(state.answers[device].state == HUNG for device in recovery.devices)
        ):
            # The only thing that keeps it from being repaired.
            finding.evidence["evict"] = wanted
        obstacles.append(
            Reason(
                "pods_wanted",
                f"{', '.join(wanted)} is not being deleted: evict it first (workload_reattach), "
                "or use the strategy remount",
            )
        )
    return replace(recovery, pods=pods), obstacles


def still_wanted(folders: tuple[PodFolder, ...], recovery: Recovery) -> list[str]:
    """The pods in whose folders the volume still has one."""
    return sorted(
        {
            folder.pod
            for folder in folders
            if folder.volume in recovery.volumes
            or (folder.driver, folder.handle) in recovery.handles
        }
    )


def _follows(mount: Mount, state: State, hosts: Mapping[int, Mount]) -> bool:
    """A copy in another namespace that goes when the node's own is unmounted: what both lie on
    exchanges mounts, as for a CSI driver.
    """
    parent = next(
        (other for other in state.others if other.pid == mount.pid and other.id == mount.parent),
        None,
    )
    groups = {parent.shared, parent.master} - {0} if parent else set()
    return any(
        own.device == mount.device and own.parent in hosts and hosts[own.parent].shared in groups
        for own in state.table.mounts
        if is_fuse(own)
    )


def _kubelet_actions(recovery: Recovery, options: Options) -> list[Action]:
    step = Step(recovery)
    actions = []
    if recovery.pods and options.containers_timeout:
        actions.append(
            Action(
                "wait_for_containers",
                recovery.name,
                ["wait", f"{options.containers_timeout:g}", *recovery.pods],
                step,
            )
        )
    staged = [target for target in recovery.targets if target.kind == kubelet.STAGING]
    for target in [target for target in recovery.targets if target not in staged]:
        actions.append(_unmount_action(recovery, target))
    for target in staged:
        if recovery.pods:
            actions.append(
                Action(
                    "wait_unstaged",
                    target.point,
                    ["wait", f"{options.unstage_timeout:g}", target.point],
                    Step(recovery, target),
                )
            )
        else:
            actions.append(_unmount_action(recovery, target))
    return actions


def _unmount_action(recovery: Recovery, target: Target) -> Action:
    command = [
        word for _mount in target.take for word in ("umount", "--lazy", target.point, "then")
    ]
    return Action("unmount", target.point, command[:-1], Step(recovery, target))


# what else is told


def _judge_unfinished(
    state: State, options: Options, found: Mapping[str, Superblock], one: Unfinished
) -> Finding:
    """What an interrupted run left, where nothing dead is left to tell of it."""
    bare = _bare(state, [one]) if options.strategy == "remount" else ()
    ready = one.folder if one.begun and _answers(state, one.folder, one.devices) else ""
    finding = Finding(
        control="STOR-05",
        severity="major" if bare else "minor",
        kind=KIND,
        name=one.name,
        node=state.node,
        summary=f"a repair of {one.name} was interrupted: {len(bare)} mount points have no mount"
        if bare
        else f"a repair of {one.name} was not tidied up",
        verdict="repair",
        reason="it was begun, and is finished" if bare else "nothing needs what is left",
        runbook=RUNBOOK,
        evidence={"folder": f"{PRIVATE}/{one.key}", "mounts": [target.point for target in bare]},
    )
    if one.credentials:
        finding.evidence["credentials"] = [f"{PRIVATE}/{one.key}/credentials"]
    key = one.key if ready else _key(one.name, [], [one])
    recovery = Recovery(
        key,
        one.name,
        one.devices,
        bare,
        one.fstype,
        one.origin,
        one.kept,
        ready=ready,
        trusted=PRIVATE,
    )
    tidy = _clean_up(Recovery(one.key, one.name, (), ()), not one.begun)
    if not bare:
        finding.repair = [tidy]
        return finding
    obstacles = _point_obstacles(state, bare)
    if not ready:
        places = [
            place
            for target in bare
            for place in [kubelet.classify(target.point, state.root)]
            if place
        ]
        recovery = replace(recovery, volumes=_volumes(places, []))
        entries = _entries(state, options, recovery.volumes, (), {target.point for target in bare})
        recovery, obstacles = _to_be_mounted(state, recovery, entries, obstacles)
    if obstacles:
        finding.refuse(*obstacles)
    else:
        finding.repair = [*_remount_actions(recovery), *([tidy] if key != one.key else [])]
    return finding


def _errors(state: State, found: Mapping[str, Superblock], options: Options) -> list[Finding]:
    """Servers that answer with an error: they live, but something is wrong with them."""
    findings = []
    for device, superblock in found.items():
        answer = state.answers.get(device)
        if answer is None or answer.state != ERROR or answer.error in _ALIVE:
            continue
        point = to_ask(state.table, superblock) or superblock.mounts[0][0].point
        finding = Finding(
            control="STOR-05",
            severity="minor",
            kind=KIND,
            name=point,
            node=state.node,
            summary=f"the server of {point} answers with an error: {answer.text}",
            verdict="report",
            reason="",
            runbook=RUNBOOK,
        )
        finding.evidence = {
            "devices": [device],
            "answer": f"{answer.step}: {answer.error or answer.text}",
            "mounts": [point],
        }
        finding.reason = "its server lives: see what that says"
        findings.append(finding)
    return findings


def _in_scope(
    state: State,
    options: Options,
    found: Mapping[str, Superblock],
    findings: list[Finding],
    points_of: Mapping[int, set[str]],
) -> list[Finding]:
    """What the user asked for; a path that needs no repair, or can have none, is an answer of its
    own.

    ``points_of``: by id, the mount points of findings whose evidence tells more of them.
    """
    if not options.paths:
        return findings
    wanted, met = [], set()
    for finding in findings:
        points = {
            finding.name,
            *points_of.get(id(finding), finding.evidence["mounts"]),
            *finding.evidence.get("covered", []),
        }
        if points & set(options.paths):
            finding.named = True
            wanted.append(finding)
            met |= points
    for path in options.paths:
        if path in met:
            continue
        layers = state.table.layers(path)
        healthy = any(
            mount.point == path
            for superblock in found.values()
            for mount, _place in superblock.mounts
        )
        finding = Finding(
            control="STOR-05",
            severity="info",
            kind=KIND,
            name=printable(path),
            node=state.node,
            summary=f"{printable(path)} is not to be repaired",
            verdict="report",
            reason="",
            runbook=RUNBOOK,
            named=True,
        )
        finding.evidence = {
            "mounts": [],
            "layers": [f"{layer.fstype} {layer.device}" for layer in layers],
        }
        finding.refuse(
            Reason("nothing_to_repair", "it answers: there is nothing to repair")
            if healthy
            else Reason("not_found", "no FUSE mount of the kubelet's is there")
        )
        wanted.append(finding)
    return wanted


def point_is(target: Target, table: MountTable, devices: tuple[str, ...]) -> str:
    """What became of a mount point: one of AS_BEFORE, TAKEN_OFF, NEW, or something else."""
    layers = table.layers(target.point)
    planned = [mount.id for mount in reversed(target.take)]
    for count in range(len(planned), -1, -1):
        below = layers[: len(layers) - count]
        above = [layer.id for layer in layers[len(below) :]]
        if above == planned[:count] and _top(below) == target.beneath:
            return AS_BEFORE if count == len(planned) else TAKEN_OFF
    new = bool(layers) and is_fuse(layers[-1]) and layers[-1].device not in devices
    return NEW if new and _top(layers[:-1]) == target.beneath else OTHER


def _top(layers: list[Mount]) -> int:
    return layers[-1].id if layers else 0


def stale(state: State, devices: set[str]) -> list[dict[str, object]]:
    """Containers, or other namespaces, that hold one of these superblocks and keep it whatever
    happens to the node's own mounts.
    """
    by_pid = {str(process.pid): process for process in state.processes}
    hosts = {mount.id: mount for mount in state.table.mounts}
    found = []
    for mount in state.others:
        if mount.device not in devices or _follows(mount, state, hosts):
            continue
        owner = by_pid.get(mount.pid)
        # Of a namespace that several share, a process of a container speaks for it.
        mates = [
            process
            for process in state.processes
            if owner and process.namespace == owner.namespace and process.container
        ]
        owner = mates[0] if mates else owner
        found.append(
            {
                "pod": owner.pod if owner else "",
                "container": owner.container if owner else "",
                "pid": owner.pid if owner else int(mount.pid),
                "point": printable(mount.point),
                "device": mount.device,
            }
        )
    return found


def key_of(name: str, layers: list[Mount], before: list[str]) -> str:
    """Names the folder and the unit of a repair: the next one, of other mounts or after those
    ``before``, has another.
    """
    text = "\0".join(
        [name, *(f"{mount.device} {mount.id} {mount.point}" for mount in layers), *before]
    )
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:12]


def printable(path: str) -> str:
    """A path as it may be shown; one with characters that may not be is quoted."""
    return path if path.isprintable() else ascii(path)
