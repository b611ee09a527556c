# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Dead and hung FUSE mounts of the kubelet's (STOR-05, STOR-06): whether and how they may be
replaced. Pure: no I/O here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .._core.codes import Reason
from .._core.engine import Action, Finding, Plan
from .._core.guards import limit_repairs
from .._core.untrusted import masked
from .._node import kubelet
from .._node.kubelet import Place, VolumeNote
from .._node.mounts import CONNECTIONS, Mount, is_fuse
from .._node.probes import DEAD, ERROR, HUNG
from .identity import entries_for, handles_of, namesakes, notes_of, volumes_of
from .likeness import KEPT, contexts, origin_of, renewed_by_driver, unlike
from .model import (
    KIND,
    PRIVATE,
    FuseOptions,
    FuseState,
    FuseVolume,
    Recovery,
    Step,
    Superblock,
    Target,
    Unfinished,
    printable,
)
from .outages import outages_by_remote, owner_of, remotes_of, turns_by_namespace
from .remounting import (
    clean_up,
    elsewhere_obstacles,
    loop_obstacles,
    point_obstacles,
    remount_actions,
    to_be_mounted,
    user_obstacles,
)
from .stacks import (
    MountGroup,
    bare_targets,
    groups_of,
    looped,
    meets,
    stale,
    still_noted,
    superblocks,
    to_ask,
    usable,
)
from .unmounting import for_kubelet, kubelet_actions

# Network clients that pass on ENOTCONN where their remote servers are gone, so that it does not
# show that the client itself has ended (gluster/glusterfs xlators/protocol/client/src/client.c).
_FORWARDING = ("fuse.glusterfs",)
# The answers of a healthy filesystem that only the user who mounted it can use, not even root
# (fs/fuse/dir.c fuse_allow_current_process).
_ALIVE = ("EACCES", "EPERM")


def not_applicable(state: FuseState) -> dict[str, str]:
    """Both controls, where no FUSE mount is in the kubelet's folder, and no repair was begun."""
    mounts = [mount for mount in state.table.mounts if is_fuse(mount)]
    # Also those that are no volume's: they show that something here uses FUSE.
    inside = [mount for mount in mounts if f"{mount.point}/".startswith(f"{state.root}/")]
    if state.root and (inside or state.unfinished):
        return {}
    return dict.fromkeys(("STOR-05", "STOR-06"), "no FUSE mount is in the kubelet's folder")


def plan(state: FuseState, options: FuseOptions) -> Plan:
    """A finding for each FUSE superblock of the kubelet that does not answer, and for each repair
    that was interrupted.
    """
    found = superblocks(state.table, state.root)
    state = replace(state, unfinished=still_noted(state))
    left = list(state.unfinished)
    findings = []
    points: dict[int, set[str]] = {}
    for group in groups_of(state, found):
        # Its leftovers are cleaned up, or used, by the repair of the same mount points.
        mine = [one for one in left if meets(one, group)]
        left = [one for one in left if one not in mine]
        findings.append(_judge(state, options, found, group, mine))
        findings[-1].owner = owner_of(findings[-1], state, options, found)
        points[id(findings[-1])] = {target.point for target in group.targets}
    # Those whose dead mounts are gone: they have no group to belong to.
    findings += [_judge_unfinished(state, options, one) for one in left]
    findings += _errors(state, found)
    wanted = Plan(
        _in_scope(state, options, found, findings, points), (turns_by_namespace(options),)
    )
    _limit_repairs(wanted.findings, state, options, found)
    return wanted


def _limit_repairs(
    findings: list[Finding], state: FuseState, options: FuseOptions, found: Mapping[str, Superblock]
) -> None:
    """Refuse repairs during an outage, and beyond max_repairs."""
    # A finding that only waits for an eviction counts: the eviction is for its repair.
    repairs = [finding for finding in findings if finding.repair or "evict" in finding.evidence]
    refused = _refuse_outages(repairs, state, options, found)
    # The order is by turns of the namespaces, so none is starved.
    left = [one for one in repairs if one not in refused]
    refused += limit_repairs(left, options.max_repairs)
    for finding in refused:
        # Pods are not evicted for a repair that is not made.
        finding.evidence.pop("evict", None)


def _refuse_outages(
    repairs: list[Finding], state: FuseState, options: FuseOptions, found: Mapping[str, Superblock]
) -> list[Finding]:
    """Refuse and return the repairs of mounts of whose remote most are broken."""
    outages = {} if options.accept_majority else outages_by_remote(state, options, found)
    refused = []
    for finding in repairs:
        remotes = remotes_of(finding, state, options, found)
        outage = [outages[remote] for remote in remotes if remote in outages]
        if outage:
            finding.refuse(*outage)
            refused.append(finding)
    return refused


def _judge(
    state: FuseState,
    options: FuseOptions,
    found: Mapping[str, Superblock],
    group: MountGroup,
    left: list[Unfinished],
) -> Finding:
    # One device that hangs makes the group one that hangs: its abort needs a consent.
    hung = [device for device in group.devices if state.answers[device].state == HUNG]
    finding = _group_finding(state, found, group, hung)
    _tell_what_else(finding, state, found, group, hung, left)
    # Reported, not refused: no option could make the repair safe.
    forwarding = _forwarding(state, found, group)
    if forwarding:
        finding.verdict = "report"
        finding.reason = (
            f"{', '.join(forwarding)} passes on the errors of its remote servers, so its "
            "client may live: check whether those servers can be reached"
        )
        return finding
    recovery, obstacles = _recovery(state, options, found, group, left, finding)
    if hung and not options.abort_hung_connections:
        obstacles.append(
            Reason(
                "mount_hung",
                "it hangs, but may only be slow: aborting its connection loses what it has not "
                "written yet. Set abort_hung_connections to accept that",
            )
        )
    if obstacles:
        finding.refuse(*obstacles)
    elif not group.targets:
        finding.verdict = "report"
        finding.reason = "mounts that answer cover it everywhere, so no process can reach it"
        for point in finding.evidence.get("loops", ()):
            finding.reason += f" but by the loop device at {point}: delete that pod"
    else:
        _plan_repair(finding, state, options, group, hung, recovery, left)
    return finding


def _group_finding(
    state: FuseState, found: Mapping[str, Superblock], group: MountGroup, hung: list[str]
) -> Finding:
    """The finding of a group with its usual evidence, before it is judged."""
    # All mounts of a group were made for the same volume, so any of them can be shown.
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
        evidence={
            "devices": group.devices,
            "fstype": first.fstype,
            # A source may have a password in it, as the metadata engine's address of JuiceFS.
            "source": printable(masked(first.source)),
            "answer": "; ".join(said),
            "mounts": [f"{target.point} ({target.kind})" for target in group.targets],
        },
    )


def _tell_what_else(
    finding: Finding,
    state: FuseState,
    found: Mapping[str, Superblock],
    group: MountGroup,
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
    finding.evidence["containers"] = _containers(state, group)
    if hung:
        waiting = {device: state.waiting.get(device, "unknown") for device in hung}
        finding.evidence["connections"] = waiting
        # Processes of this module in D state; they end when the server answers or is aborted.
        held = [state.answers[device].left for device in hung]
        finding.evidence["held"] = [pid for pid in held if pid]


def _containers(state: FuseState, group: MountGroup) -> list[str]:
    """The containers that have the dead filesystem mounted, for the evidence."""
    seen = [
        f"{entry['container'] or entry['pod'] or 'process'} (pid {entry['pid']}) at "
        f"{entry['point']}"
        for entry in stale(state, set(group.devices))
    ]
    return seen + [
        f"more: {state.crowded[device]}" for device in group.devices if device in state.crowded
    ]


def _forwarding(state: FuseState, found: Mapping[str, Superblock], group: MountGroup) -> list[str]:
    """Types of the group's mounts that answer like dead ones while their client may live."""
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
    state: FuseState,
    options: FuseOptions,
    group: MountGroup,
    hung: list[str],
    recovery: Recovery,
    left: list[Unfinished],
) -> None:
    """The actions, in order, and why they are safe."""
    # A hung filesystem that others cover everywhere keeps no process waiting.
    met = {mount.device for target in group.targets for mount in target.take}
    aborts = [
        Action("abort_connection", device, _abort_command(state, device), Step(recovery))
        for device in hung
        if device in met
    ]
    # The dead mounts go, but no new one is made: the driver does that when it publishes the volume.
    if options.strategy == "kubelet":
        once = "once no" if recovery.pods else "no"
        finding.reason = f"{once} container of its pods is left"
        finding.repair = [*aborts, *kubelet_actions(recovery, options)]
        # Nothing of an interrupted remount is used, so all of it is tidied up.
        others = left
    else:
        finding.reason = (
            f"{recovery.ready} answers" if recovery.ready else "what is to be mounted is known"
        )
        # A new server that does not start changes nothing, so it comes before the abort.
        mount, *rest = remount_actions(recovery)
        finding.repair = [mount, *aborts, *rest] if recovery.service else [*aborts, mount, *rest]
        others = [one for one in left if one.key != recovery.key]
    finding.repair += [_tidy(one) for one in others]


def _abort_command(state: FuseState, device: str) -> list[str]:
    # The folder of a connection is named by its superblock's device, whose major number is 0
    # (fs/fuse/control.c fuse_ctl_add_conn). Any text written to "abort" aborts it.
    # fusectl exists once, whatever its mount point; only this path is used here.
    there = any(
        mount.fstype == "fusectl" and mount.point == CONNECTIONS for mount in state.table.mounts
    )
    first = [] if there else ["mount", "-t", "fusectl", "fusectl", CONNECTIONS, "then"]
    return [*first, "write", f"{CONNECTIONS}/{device.partition(':')[2]}/abort", "1"]


def _recovery(
    state: FuseState,
    options: FuseOptions,
    found: Mapping[str, Superblock],
    group: MountGroup,
    left: list[Unfinished],
    finding: Finding,
) -> tuple[Recovery, list[Reason]]:
    """How a group would be repaired, and all reasons against it.

    Adds what is known of the volume to the evidence.
    """
    places = [place for device in group.devices for _mount, place in found[device].mounts]
    notes, obstacles = notes_of(state, places, finding)
    obstacles += _node_obstacles(options, notes)
    recovery = _dead_mounts(state, options, group, left, places, notes)
    finding.evidence["volumes"] = list(recovery.volumes)
    finding.evidence["handles"] = [f"{driver} {handle}" for driver, handle in recovery.handles]
    obstacles += _unasked(state, group)
    points = {place.point for place in places}
    entries = entries_for(state, options, recovery.volumes, recovery.handles, points)
    names = {*recovery.volumes, *(entry.volume for entry in entries)}
    held = looped(state, places, recovery.handles, names)
    if held:
        recovery = _with_loops(state, recovery, held)
        finding.evidence["volumes"] = list(recovery.volumes)
        finding.evidence["loops"] = [place.point for place in held]
        entries = entries_for(state, options, recovery.volumes, recovery.handles, points)
    # Nothing is replaced, so it does not matter what would be mounted.
    if not group.targets:
        return recovery, obstacles
    obstacles += point_obstacles(state, recovery.targets)
    obstacles += elsewhere_obstacles(state, found, group, finding)
    # It mounts nothing, so the source of the dead mounts does not matter to it.
    if options.strategy == "kubelet":
        return for_kubelet(state, options, recovery, entries, held, obstacles, finding)
    obstacles += loop_obstacles(held)
    obstacles += _source_obstacles(group)
    if not entries:
        obstacles += namesakes(options, recovery)
    return _by_remount(state, recovery, left, notes, entries, obstacles)


def _with_loops(state: FuseState, recovery: Recovery, held: list[Place]) -> Recovery:
    """The repair with what the pods' loop devices tell of the volume: if only the staging mount is
    dead, nothing else tells its name.
    """
    notes = [state.notes.get(place.note, VolumeNote(problem="not read")) for place in held]
    # Without a readable record there is only the folder's name. The playbook uses that only with a
    # pod that the cluster lists for that volume.
    told = {place.volume if note.problem else note.volume for place, note in zip(held, notes)}
    volumes = tuple(sorted({*recovery.volumes, *told} - {""}))
    handles = recovery.handles or handles_of([note for note in notes if not note.problem])
    return replace(recovery, volumes=volumes, handles=handles)


def _unasked(state: FuseState, group: MountGroup) -> list[Reason]:
    """A mount that hangs as far as children of earlier runs show: it may answer by now."""
    answers = [state.answers[device] for device in group.devices]
    return [
        Reason("evidence_unreadable", f"{one.text}, and may answer: run again later")
        for one in answers
        if not one.asked
    ]


def _node_obstacles(options: FuseOptions, notes: list[VolumeNote]) -> list[Reason]:
    """Whether 'volumes' was read for another node than the one that this kubelet serves."""
    return [
        Reason(
            "identity_changed",
            f"the kubelet calls this node {name}, but 'volumes' is about the node "
            f"{options.node}: correct the name of the node",
        )
        for name in sorted({note.node for note in notes} - {"", options.node})
        if options.node
    ]


def _replaced(group: MountGroup) -> list[Mount]:
    """The mounts that a repair takes off; if other mounts cover them all, those."""
    return [mount for target in group.targets for mount in target.take] or group.covered


def _origins(group: MountGroup) -> list[str]:
    # Without a source a mount contradicts nothing.
    return sorted({origin_of(mount) for mount in _replaced(group)} - {""})


def _dead_mounts(
    state: FuseState,
    options: FuseOptions,
    group: MountGroup,
    left: list[Unfinished],
    places: list[Place],
    notes: list[VolumeNote],
) -> Recovery:
    """What is known of the dead mounts, from which their repair is made."""
    takes = [mount for target in group.targets for mount in target.take]
    origins = _origins(group)
    dead = _replaced(group)[0]
    return Recovery(
        _key(state, group.name, takes, left),
        group.name,
        tuple(group.devices),
        (
            *group.targets,
            *(bare_targets(state, left) if options.strategy == "remount" else ()),
        ),
        dead.fstype,
        origins[0] if origins else "",
        (*(option for option in KEPT if option in dead.super_options), *contexts(dead)),
        volumes=volumes_of(places, notes),
        handles=handles_of(notes),
    )


def _source_obstacles(group: MountGroup) -> list[Reason]:
    origins = _origins(group)
    # Two remotes at one mount point: which of them the pod needs is not for us to choose.
    if len(origins) > 1:
        return [
            Reason(
                "evidence_contradicts",
                "the dead mounts on top of each other have different sources: "
                f"{', '.join(map(masked, origins))}",
            )
        ]
    return []


def _by_remount(
    state: FuseState,
    recovery: Recovery,
    left: list[Unfinished],
    notes: list[VolumeNote],
    entries: list[FuseVolume],
    obstacles: list[Reason],
) -> tuple[Recovery, list[Reason]]:
    """The repair with the mount that replaces the dead ones: one that answers, or a new one."""
    # A mount that an interrupted run made and proved is in use at some of the points already.
    for one in left:
        if usable(state, one, recovery.devices):
            return replace(recovery, key=one.key, ready=one.folder, trusted=PRIVATE), obstacles
    renewed = renewed_by_driver(state, recovery, notes)
    # A driver that was restarted may have staged the volume again, and then its mount is the best
    # one: no secret is needed.
    if renewed is None:
        obstacles += user_obstacles(recovery.targets[0].take[0], entries)
        return to_be_mounted(state, recovery, entries, obstacles)
    different = unlike(recovery, renewed)
    return replace(recovery, ready=renewed.point, trusted=state.root), [
        *obstacles,
        *([Reason("mount_differs", different)] if different else []),
    ]


def _key(state: FuseState, name: str, layers: list[Mount], left: list[Unfinished]) -> str:
    """The key of a repair that makes a new mount."""
    # An interrupted repair that replaced nothing is made again under its own key, which cleans up
    # after it. Once it had begun, its server may serve mounts in use, so it gets no second one.
    again = [one.key for one in left if not one.begun]
    if again:
        return again[0]
    key, taken = (
        _key_of(name, layers, [one.key for one in left]),
        [one.key for one in state.unfinished],
    )
    # Paths and numbers come again: so could the key of what was begun for another volume.
    return _key_of(name, layers, sorted(taken)) if key in taken else key


def _judge_unfinished(state: FuseState, options: FuseOptions, one: Unfinished) -> Finding:
    """What an interrupted run left, if no dead mount shows it any more."""
    bare = bare_targets(state, [one]) if options.strategy == "remount" else ()
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
        evidence={"folder": f"{PRIVATE}/{one.key}", "mounts": [target.point for target in bare]},
    )
    if one.credentials:
        finding.evidence["credentials"] = [f"{PRIVATE}/{one.key}/credentials"]
    if bare:
        _finish(finding, state, options, one, bare)
    else:
        finding.repair = [_tidy(one)]
    return finding


def _finish(
    finding: Finding,
    state: FuseState,
    options: FuseOptions,
    one: Unfinished,
    bare: tuple[Target, ...],
) -> None:
    """Give the empty mount points the interrupted run's mount, or another new one."""
    ready = one.folder if usable(state, one, one.devices) else ""
    recovery = Recovery(
        one.key if ready else _key(state, one.name, [], [one]),
        one.name,
        one.devices,
        bare,
        one.fstype,
        one.origin,
        one.kept,
        ready=ready,
        trusted=PRIVATE,
        handles=one.handles,
    )
    obstacles = point_obstacles(state, bare)
    # The server of the interrupted run has ended, so a new one is needed.
    if not ready:
        told = (kubelet.classify(target.point, state.root) for target in bare)
        places = [place for place in told if place]
        notes, contradictions = notes_of(state, places, finding)
        volumes, handles = volumes_of(places, notes), handles_of(notes)
        recovery = replace(recovery, volumes=volumes, handles=handles)
        points = {place.point for place in places}
        entries = entries_for(state, options, volumes, handles, points)
        obstacles += [*contradictions, *_node_obstacles(options, notes)]
        recovery, obstacles = to_be_mounted(state, recovery, entries, obstacles)
    if obstacles:
        finding.refuse(*obstacles)
        return
    # The remount's own last action cleans up only what has its key.
    others = [_tidy(one)] if recovery.key != one.key else []
    finding.repair = [*remount_actions(recovery), *others]


def _tidy(one: Unfinished) -> Action:
    # The server of a run that replaced nothing serves only the mount that goes, so it is stopped.
    return clean_up(Recovery(one.key, one.name, (), ()), stop=not one.begun)


def _errors(state: FuseState, found: Mapping[str, Superblock]) -> list[Finding]:
    """Servers that live and answer with an error, as when their remote denies access; and those
    that were not asked, which are never taken for well.
    """
    findings = []
    for device, superblock in found.items():
        answer = state.answers.get(device)
        # EACCES and EPERM are how a healthy mount of another user answers root.
        if answer is None or answer.state != ERROR or answer.error in _ALIVE:
            continue
        point = to_ask(state.table, superblock) or superblock.mounts[0][0].point
        finding = Finding(
            control="STOR-05",
            severity="minor",
            kind=KIND,
            name=point,
            node=state.node,
            summary=f"whether the server of {point} answers is not known"
            if answer.unasked
            else f"the server of {point} answers with an error: {answer.text}",
        )
        finding.evidence = {
            "devices": [device],
            "answer": f"{answer.step}: {answer.error or answer.text}",
            "mounts": [point],
        }
        finding.reason = (
            f"{answer.text}: repair the mounts that hang (STOR-06), or find out why they do, and "
            "run again, with a longer deadline if there is too much to ask"
            if answer.unasked
            else "its server lives: read what it logs"
        )
        findings.append(finding)
    return findings


def _in_scope(
    state: FuseState,
    options: FuseOptions,
    found: Mapping[str, Superblock],
    findings: list[Finding],
    points_of: Mapping[int, set[str]],
) -> list[Finding]:
    """The findings that the user asked for. A given path without one gets a finding that says why.

    ``points_of``: by id() of a finding, its mount points, where the evidence does not list just
    these.
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
        finding.given = sorted(points & set(options.paths))
        if finding.given:
            finding.named = True
            wanted.append(finding)
            met |= points
    wanted += [_without_finding(state, found, path) for path in options.paths if path not in met]
    return wanted


def _without_finding(state: FuseState, found: Mapping[str, Superblock], path: str) -> Finding:
    """A refusal for a path that the user has given and that has nothing to repair."""
    # A path that has no FUSE mount at all may be a typing error, which must not look like success.
    healthy = any(
        mount.point == path for superblock in found.values() for mount, _place in superblock.mounts
    )
    finding = Finding(
        control="STOR-05",
        severity="info",
        kind=KIND,
        name=printable(path),
        node=state.node,
        summary=f"{printable(path)} is not to be repaired",
        named=True,
        evidence={
            "mounts": [],
            "layers": [f"{layer.fstype} {layer.device}" for layer in state.table.layers(path)],
        },
    )
    finding.refuse(
        Reason("nothing_to_repair", "it answers: there is nothing to repair")
        if healthy
        else Reason("not_found", "no FUSE mount of the kubelet is there")
    )
    return finding


def _key_of(name: str, layers: list[Mount], before: list[str]) -> str:
    """12 hexadecimal digits that name the folder and the unit of a repair.

    A repair of other mounts, or after the interrupted ones with the keys ``before``, gets others.
    """
    # Paths cannot contain NUL, so no two lists give the same text.
    text = "\0".join(
        [name, *(f"{mount.device} {mount.id} {mount.point}" for mount in layers), *before]
    )
    # Short, since it is part of unit names and of paths that people type.
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:12]
