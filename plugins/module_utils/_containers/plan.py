# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Containers that still have a dead FUSE mount after it was replaced on the node: which may be
restarted. Pure: no I/O here.
"""

# A container's mount namespace has copies of the node's mounts. A new mount on the node reaches it
# only inside a mount with mountPropagation HostToContainer or Bidirectional (mount_namespaces(7);
# kubernetes.io, "Mount propagation"). A volume that is mounted by itself is a copy that stays dead
# until the container is started again.

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from .._core.codes import Reason
from .._core.engine import Action, Finding, Plan
from .._core.guards import is_most, majority, most_of, too_many
from .._core.turns import in_turns
from .._node.probes import DEAD, HUNG, OK, Answer

# Only with this policy the kubelet restarts a container that ended without an error, as after
# SIGTERM (kubernetes pkg/kubelet/container/helpers.go ShouldContainerBeRestarted).
_ALWAYS = "Always"
# kubernetes/api core/v1/types.go DefaultTerminationGracePeriodSeconds.
GRACE_SECONDS = 30
# Each container gets at least this (kubernetes pkg/kubelet/kuberuntime/kuberuntime_manager.go
# minimumGracePeriodInSeconds).
_LEAST_GRACE_SECONDS = 2


@dataclass(frozen=True)
class Known:
    """What the cluster says about a mount in a container; what it does not say is empty.

    The option containers of container_restart describes the fields.
    """

    pod: str
    mount_path: str
    container: str = ""
    id: str = ""
    namespace: str = ""
    pod_name: str = ""
    volume: str = ""
    claim: str = ""
    # Of the node, as the cluster derives it from the pod's UID; the runtime's answer counts more.
    host_path: str = ""
    # Whether the container's liveness probe reads or lists the mount, as the playbook found out.
    probe: bool = False
    restart_policy: str = ""


@dataclass(frozen=True)
class ContainerOptions:
    """What the user asked for and allows. All times are in seconds.

    The documentation of container_restart describes each option.
    """

    containers: tuple[Known, ...] = ()
    # auto: wait for the kubelet where a probe covers the mount, else ask the runtime. probe, cri:
    # only that.
    method: str = "auto"
    probe_timeout: float = 5.0
    liveness_timeout: float = 120.0
    stop_timeout: int | None = None
    restart_timeout: float = 120.0
    crictl: str = "crictl"
    runtime_endpoint: str = ""
    kubelet_root: str = "/var/lib/kubelet"
    # In check mode: mounts of the node that another task would repair first.
    planned_paths: tuple[str, ...] = ()
    max_repairs: int = 10
    accept_majority: bool = False
    deadline: float = 300.0


@dataclass(frozen=True)
class HostMount:
    """The node's side of a mount in a container.

    ``path``: on the node. ``volume``: the PersistentVolume, as the cluster says. ``device``: that
    of the FUSE superblock that is mounted there now; empty if there is none. ``answer``: what it
    answered. ``problem``: why it is not known, or is not one of the pod's own volumes.
    """

    path: str = ""
    volume: str = ""
    device: str = ""
    answer: Answer | None = None
    # A refusal: restarting would not help, or would hit another pod's volume.
    problem: str = ""


@dataclass(frozen=True)
class Copy:
    """A FUSE mount that a container sees at ``point``."""

    point: str
    device: str
    answer: Answer
    host: HostMount = HostMount()


@dataclass(frozen=True)
class Container:
    """A container with FUSE mounts.

    ``pod``: UID. ``pid``: one of its processes. ``copies``: its FUSE mounts. ``name``: from the
    runtime, else from the cluster. ``serves``: its own mounts propagate to the node.
    ``grace_period``: seconds that its pod gives it to end. ``known``: what the cluster says about
    these mounts. ``elsewhere``: the mount paths that were given for it, if none of them is one of
    its FUSE mounts. ``problem``: why its mounts could not be read.
    """

    id: str
    pod: str
    pid: int
    command: str
    copies: tuple[Copy, ...]
    name: str = ""
    namespace: str = ""
    pod_name: str = ""
    # A CSI driver's own container has Bidirectional mounts; its restart ends the servers in it.
    serves: bool = False
    grace_period: int = GRACE_SECONDS
    # Only entries about mounts that the container really has.
    known: tuple[Known, ...] = ()
    elsewhere: tuple[str, ...] = ()
    problem: str = ""

    @property
    def unasked(self) -> str:
        """Why it may have a dead mount although none was found; else empty."""
        silent = [
            copy.answer.text
            for copy in self.copies
            # Not an error of the filesystem, but none of the answer, as when time ran out.
            if copy.answer.unasked
        ]
        return "" if self.dead or self.hung else self.problem or next(iter(silent), "")

    @property
    def dead(self) -> tuple[Copy, ...]:
        """Its mounts whose server has ended."""
        return tuple(copy for copy in self.copies if copy.answer.state == DEAD)

    @property
    def hung(self) -> tuple[Copy, ...]:
        """Its mounts that do not answer."""
        return tuple(copy for copy in self.copies if copy.answer.state == HUNG)

    @property
    def title(self) -> str:
        """POD/CONTAINER, by their names as far as these are known."""
        return f"{self.pod_name or self.pod}/{self.name or self.id[:12]}"

    @property
    def restart_policy(self) -> str:
        """The container's restart policy; empty if the entries give none, or different ones."""
        # A pod has one restart policy, but since Kubernetes 1.28 init containers may have their
        # own.
        said = {entry.restart_policy for entry in self.known if entry.restart_policy}
        return said.pop() if len(said) == 1 else ""

    @property
    def probed(self) -> bool:
        """Whether its liveness probe fails because of one of its dead mounts; the restart that
        follows renews all of them.
        """
        # A probe of a healthy mount would not fail.
        points = {copy.point for copy in self.dead}
        return any(entry.probe and entry.mount_path in points for entry in self.known)


@dataclass(frozen=True)
class Runtime:
    """How the container runtime is asked.

    ``command``: the words with which every command begins. ``problem``: why it cannot be asked.
    """

    command: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class ContainerState:
    """What was gathered, from which the plan is made."""

    node: str
    containers: tuple[Container, ...]
    runtime: Runtime = Runtime()


def not_applicable(state: ContainerState) -> dict[str, str]:
    """Both controls, where no container has a FUSE mount, or may have one."""
    # One whose mounts could not be read is in the state, too.
    if state.containers:
        return {}
    return dict.fromkeys(("STOR-05", "STOR-06"), "no container has a FUSE mount")


def plan(state: ContainerState, options: ContainerOptions) -> Plan:
    """A finding for each container that has, or may have, a dead or hung mount."""
    return Plan(_decide(state, options)[0])


def pods_to_restart(state: ContainerState, options: ContainerOptions) -> list[dict[str, Any]]:
    """The pods of containers that cannot be restarted alone.

    Each is a dict of ``uid``, ``namespace``, ``name``, ``claims`` (those of the dead mounts) and
    ``reasons``.
    """
    return _decide(state, options)[1]


def _decide(
    state: ContainerState, options: ContainerOptions
) -> tuple[list[Finding], list[dict[str, Any]]]:
    """(findings, pods that have to be restarted)."""
    # In turns by namespace, as for all that max_repairs limits.
    broken = in_turns(
        [container for container in state.containers if container.dead or container.hung],
        lambda container: container.namespace,
    )
    findings = [_judge(state, container, options) for container in broken]
    pairs = list(zip(broken, findings))
    moved = _to_move(state, options, pairs)
    if not options.accept_majority:
        moved = _refuse_outages(pairs, moved, _outages(state, broken))
    moved = _limit(pairs, moved, options)
    findings = _by_time(pairs, options)
    findings += [
        _judge_unasked(state, container) for container in state.containers if container.unasked
    ]
    return findings, [
        _pod(state, [container for container, _finding in group], options)
        for group in moved.values()
    ]


# By pod, its containers that cannot be restarted alone, with their findings.
Moved = dict[str, list[tuple[Container, Finding]]]


def _to_move(
    state: ContainerState, options: ContainerOptions, pairs: list[tuple[Container, Finding]]
) -> Moved:
    moved: Moved = {}
    for container, finding in pairs:
        blockers, reasons = obstacles(state, container, options)
        # A pod is restarted only if nothing forbids the restart of its container.
        if container.dead and reasons and not blockers:
            moved.setdefault(container.pod, []).append((container, finding))
    return moved


def _refuse_outages(
    pairs: list[tuple[Container, Finding]], moved: Moved, outages: dict[str, Reason]
) -> Moved:
    """Refuse the repairs in these namespaces, and return the pods of others."""
    for container, finding in pairs:
        outage = outages.get(container.namespace)
        if outage and (finding.repair or container.pod in moved):
            finding.refuse(*_said(finding), outage)
    return {pod: group for pod, group in moved.items() if group[0][0].namespace not in outages}


def _limit(
    pairs: list[tuple[Container, Finding]], moved: Moved, options: ContainerOptions
) -> Moved:
    """Refuse what is beyond max_repairs, and return the pods that are left to restart.

    Both kinds of restart together, in turns of the namespaces. Within each, restarts of containers
    come first: they interrupt less than those of pods.
    """
    alone = [[pair] for pair in pairs if pair[1].repair]
    restarts = in_turns([*alone, *moved.values()], lambda group: group[0][0].namespace)
    for group in restarts[options.max_repairs :]:
        for _container, finding in group:
            finding.refuse(*_said(finding), too_many(options.max_repairs))
    left = [id(group) for group in restarts[: options.max_repairs]]
    return {pod: group for pod, group in moved.items() if id(group) in left}


def _by_time(pairs: list[tuple[Container, Finding]], options: ContainerOptions) -> list[Finding]:
    """The findings in the order in which the containers are restarted.

    The namespaces take turns by the time that a restart may take. A tenant decides how long a
    container takes to end, and whether it comes back.
    """
    turns = in_turns(
        pairs,
        lambda pair: pair[0].namespace,
        size=lambda pair: stop_seconds(pair[0], options) + math.ceil(options.restart_timeout),
    )
    return [finding for _container, finding in turns]


def _said(finding: Finding) -> list[Reason]:
    """The reason for which a finding is already refused, if it is."""
    return [Reason(finding.code, finding.reason)] if finding.code else []


def _outages(state: ContainerState, broken: list[Container]) -> dict[str, Reason]:
    """By namespace, the refusal if most of the node's containers have a dead mount, and most of the
    namespace's, too.

    A tenant with most of the containers so cannot keep others from their repair.
    """
    # No majority of the node is broken, so no namespace is held back.
    if not is_most(len(broken), len(state.containers)):
        return {}
    # Of the namespace as well, since a tenant decides how many containers of its own there are.
    totals = Counter(container.namespace for container in state.containers)
    dead = Counter(container.namespace for container in broken)
    unless = "they all have to be restarted"
    what = "containers with FUSE mounts"
    said = majority(len(broken), len(state.containers), what, unless)
    return dict.fromkeys(most_of(dead, totals), said)


def _pod(
    state: ContainerState, containers: list[Container], options: ContainerOptions
) -> dict[str, Any]:
    # All of a group are in one pod, so any of them can name it.
    first = containers[0]
    claims = {
        known.claim
        for container in containers
        for known in container.known
        # The playbook moves only the volumes that are dead.
        if known.claim and known.mount_path in {copy.point for copy in container.dead}
    }
    reasons = [
        reason for container in containers for reason in obstacles(state, container, options)[1]
    ]
    return {
        "uid": first.pod,
        "namespace": first.namespace,
        "name": first.pod_name,
        "claims": sorted(claims),
        "reasons": list(dict.fromkeys(map(str, reasons))),
    }


def _judge(state: ContainerState, container: Container, options: ContainerOptions) -> Finding:
    """The finding about a container with a dead or hung mount, with its repair if allowed."""
    finding = _container_finding(state, container, options)
    blockers, reasons = obstacles(state, container, options)
    if blockers:
        finding.refuse(*blockers)
    elif reasons:
        finding.refuse(
            *(reason.with_text(f"{reason}, so its pod must be restarted") for reason in reasons)
        )
    else:
        finding.repair = [_action(state, container, options)]
    return finding


def _container_finding(
    state: ContainerState, container: Container, options: ContainerOptions
) -> Finding:
    """The finding with its evidence, before it is judged."""
    # Dead ones first, since only they can be repaired by a restart.
    copies = container.dead or container.hung
    what = "dead" if container.dead else "hung"
    points = ", ".join(shown(copy.point) for copy in copies)
    finding = Finding(
        control="STOR-05" if container.dead else "STOR-06",
        severity="major",
        kind="container",
        name=container.title,
        namespace=container.namespace,
        node=state.node,
        summary=f"it still has a {what} mount at {points}",
        verdict="repair",
        reason="the node's mount answers, and a container gets it when it is started again",
        evidence={
            "container": container.id,
            "pod": container.pod,
            "process": f"{container.command} (pid {container.pid})",
            "mounts": [_evidence(copy) for copy in copies],
            "liveness_probe_covers_it": container.probed,
            "restart_policy": container.restart_policy or "unknown",
            "runtime": state.runtime.problem or " ".join(state.runtime.command),
        },
    )
    # In check mode the node's mount is still dead as well.
    if any(copy.host.path in options.planned_paths for copy in copies):
        finding.reason = (
            "what is planned for the node's mount comes first, and a container gets "
            "it when it is started again"
        )
    return finding


def _judge_unasked(state: ContainerState, container: Container) -> Finding:
    """The finding about a container whose mounts could not all be read.

    A tenant can make its mounts slow or unreadable, so this is reported and does not end the run.
    """
    return Finding(
        control="STOR-05",
        # A doubt, and no proof of harm: it must not drown what is known to be dead.
        severity="minor",
        kind="container",
        name=container.title,
        namespace=container.namespace,
        node=state.node,
        summary="whether it still has a dead mount is not known",
        reason=f"{container.unasked}: run again, with a longer deadline "
        "if there is too much to ask",
        evidence={
            "container": container.id,
            "pod": container.pod,
            "process": f"{container.command} (pid {container.pid})",
        },
    )


def _evidence(copy: Copy) -> dict[str, Any]:
    host = copy.host
    return {
        "mount_path": shown(copy.point),
        "device": copy.device,
        "answer": copy.answer.text or copy.answer.error,
        "volume": host.volume,
        "host_path": shown(host.path),
        "host_device": host.device,
        "host_answer": host.answer.state if host.answer else "",
    }


def obstacles(
    state: ContainerState, container: Container, options: ContainerOptions
) -> tuple[list[Reason], list[Reason]]:
    """(why a container is not restarted now, in whatever way; why it cannot be restarted alone)."""
    # Hung only: fuse_remount decides whether to abort the connection.
    if not container.dead:
        return [
            Reason(
                "mount_hung",
                "it hangs, and a hung mount may come back: abort it on the node first "
                "(fuse_remount with abort_hung_connections)",
            ),
        ], []
    blockers: list[Reason] = []
    if container.elsewhere:
        given = ", ".join(map(shown, container.elsewhere))
        blockers.append(
            Reason(
                "evidence_unreadable",
                f"which volume is dead is not known: the given paths ({given}) do not identify its "
                "mounts, since they lead over a link in it, or since no runtime says which "
                "container of its pod it is",
            )
        )
    blockers += _copy_obstacles(container, options)
    # mountPropagation Bidirectional, as CSI drivers have it for the kubelet's folder.
    if container.serves:
        blockers.append(
            Reason(
                "serves_others",
                "it mounts for others (a volume with Bidirectional "
                "propagation), and a restart would end their mounts",
            )
        )
    # Which of its ways to be restarted is right depends on the volume, which is not known.
    if container.elsewhere:
        return blockers, []
    more, reasons = _restart_obstacles(state, container, options)
    return [*blockers, *more], reasons


def _copy_obstacles(container: Container, options: ContainerOptions) -> list[Reason]:
    """Dead mounts of which a restarted container would not get a better one."""
    blockers = []
    for copy in container.dead:
        host, point = copy.host, shown(copy.point)
        if host.problem:
            blockers.append(Reason("evidence_unreadable", f"{point}: {host.problem}"))
        # In check mode the node's mount is still dead, and its repair is only planned.
        elif host.path in options.planned_paths:
            continue
        elif not host.device:
            blockers.append(
                Reason(
                    "driver_mount_broken",
                    f"{point}: no FUSE file system is mounted at {shown(host.path)} of the node: "
                    "repair that first (fuse_remount)",
                )
            )
        # A restarted container would get a copy of a mount that fails just the same.
        elif host.answer is None or host.answer.state != OK:
            said = host.answer.state if host.answer else "not asked"
            blockers.append(
                Reason(
                    "driver_mount_broken",
                    f"{point}: the node's mount at {shown(host.path)} does not answer either "
                    f"({said}): repair it first (fuse_remount)",
                )
            )
        # Then the server is not gone, and the container's view of it must have another cause.
        elif host.device == copy.device:
            blockers.append(
                Reason(
                    "evidence_contradicts",
                    f"{point}: the node has the same file system {copy.device}, which answers "
                    "there: look at the container",
                )
            )
    return blockers


def _restart_obstacles(
    state: ContainerState, container: Container, options: ContainerOptions
) -> tuple[list[Reason], list[Reason]]:
    """(why it is not restarted now, why it cannot be restarted alone), by how it would be."""
    # Without the cluster it is not known; the runtime does not tell.
    if not container.restart_policy:
        said = (
            "its restart policy is not known (option containers): "
            "the kubelet might not start it again"
        )
        return [Reason("evidence_unreadable", said)], []
    if container.restart_policy != _ALWAYS:
        said = (
            f"its restart policy is {container.restart_policy}: "
            "the kubelet would not start it again"
        )
        return [], [Reason("pod_restart_needed", said)]
    if _waits(container, options):
        return [], []
    # Then only the whole pod can be restarted, by the playbook.
    if options.method == "probe" or state.runtime.problem:
        return [], [_no_way(state.runtime, container, options)]
    # The restart could not be seen through to its end.
    if stop_seconds(container, options) >= options.deadline:
        said = (
            f"it may take {stop_seconds(container, options)} s to end, and the deadline is "
            f"{options.deadline:g} s: raise that, or set stop_timeout"
        )
        return [Reason("deadline_passed", said)], []
    return [], []


def _no_way(runtime: Runtime, container: Container, options: ContainerOptions) -> Reason:
    """Why neither the kubelet nor the runtime can be used to restart it."""
    probe = "liveness_timeout is 0" if container.probed else "no liveness probe covers the mount"
    asked = f"the container runtime cannot be asked: {runtime.problem}"
    # Of the ways that the method allows, each one's reason.
    ways = {"probe": [probe], "cri": [asked]}
    said = ", and ".join(ways.get(options.method, [probe, asked]))
    return Reason("runtime_unusable" if runtime.problem else "pod_restart_needed", said)


def _waits(container: Container, options: ContainerOptions) -> bool:
    """Whether the kubelet restarts it by itself, because of its liveness probe."""
    return options.method != "cri" and container.probed and options.liveness_timeout > 0


def _action(state: ContainerState, container: Container, options: ContainerOptions) -> Action:
    # Preferred, since the kubelet then does all by itself, with its own back-off.
    if _waits(container, options):
        # Shown in the result; the kubelet itself ends the container after failureThreshold probes.
        wait = ["wait", f"{options.liveness_timeout:g}", "seconds", "for", "the", "kubelet"]
        return Action("await_liveness_probe", container.title, wait, container)
    return stop_action(state.runtime, container, options)


def stop_action(runtime: Runtime, container: Container, options: ContainerOptions) -> Action:
    """Have the runtime end a container; the kubelet then starts it again."""
    seconds = str(stop_seconds(container, options))
    # crictl stop sends SIGTERM, and SIGKILL after the time-out (CRI, StopContainer).
    command = [*runtime.command, "stop", "--timeout", seconds, container.id]
    return Action("stop_container", container.title, command, container)


def stop_seconds(container: Container, options: ContainerOptions) -> int:
    """Seconds from SIGTERM to SIGKILL: the user's, or what the kubelet itself would wait."""
    # 0 is a choice too: SIGKILL at once, for programs that hang on the dead mount.
    if options.stop_timeout is not None:
        return options.stop_timeout
    # As the kubelet, so that a container has the time that its pod promises.
    return max(_LEAST_GRACE_SECONDS, container.grace_period)


def shown(path: str) -> str:
    """A path as one word: a tenant may have put any character into it."""
    return path if path.isprintable() and " " not in path else repr(path)
