# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Looks into the mount namespaces of containers, restarts those that have a dead mount, and proves
that they have the node's new one.
"""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import posixpath
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .._core.argspec import ArgumentSpec, check_numbers, given_options
from .._core.bounded import Deadline, Reply, call_each, find_program
from .._core.engine import Action, ActionFailed, Finding, NotStarted, Plan, before_a_change
from .._core.errors import StorageOpsError
from .._core.texts import is_number
from .._node import fdinfo
from .._node.control_groups import UNKNOWN, container_id_of, pod_of, pod_uid_of, read
from .._node.host import Fleeting, Host
from .._node.kubelet import (
    PUBLISH,
    SUBPATH,
    classify,
    find_root,
    namespaces_of,
    owner_of,
    parents_problem,
    turn_of,
)
from .._node.mounts import MountTable, is_fuse, read_table
from .._node.probes import (
    DEAD,
    DEAD_ERRORS,
    ERROR,
    HUNG,
    OK,
    Answer,
    held_children,
    list_held,
    probe_folders,
    still,
    walked,
    way_of,
)
from .._node.processes import require_host_namespace
from . import plan as pure
from .mounters import mounter_of, of_the_node
from .plan import Container, ContainerOptions, ContainerState, Copy, HostMount, Known, Runtime

OPTIONS_SPEC = ArgumentSpec(
    {
        "containers": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "pod": {"type": "str", "required": True},
                "mount_path": {"type": "str", "required": True},
                "container": {"type": "str", "default": ""},
                "id": {"type": "str", "default": ""},
                "namespace": {"type": "str", "default": ""},
                "pod_name": {"type": "str", "default": ""},
                "volume": {"type": "str", "default": ""},
                "claim": {"type": "str", "default": ""},
                "host_path": {"type": "str", "default": ""},
                "probe": {"type": "bool", "default": False},
                "restart_policy": {"type": "str", "default": ""},
            },
        },
        "method": {"type": "str", "choices": ["auto", "probe", "cri"], "default": "auto"},
        "probe_timeout": {"type": "float", "default": 5.0},
        "liveness_timeout": {"type": "float", "default": 120.0},
        "stop_timeout": {"type": "int"},
        "restart_timeout": {"type": "float", "default": 120.0},
        "crictl": {"type": "str", "default": "crictl"},
        "runtime_endpoint": {"type": "str", "default": ""},
        "planned_paths": {"type": "list", "elements": "str", "default": []},
        "max_repairs": {"type": "int", "default": 10},
        "accept_majority": {"type": "bool", "default": False},
    }
)
# crictl reads its endpoint from here by itself (kubernetes-sigs/cri-tools docs/crictl.md).
_CRICTL_CONFIG = "/etc/crictl.yaml"
# The defaults of containerd, CRI-O and cri-dockerd (kubernetes.io, "Container Runtimes"), and of
# k3s and k0s (their documentation).
_SOCKETS = (
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/cri-dockerd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/k0s/containerd.sock",
)
# Bytes of a container's mountinfo, and how many mount points of FUSE mounts in it are looked at,
# with how many characters in all. A container of the usual kind has some 50 mounts, with 10 KiB.
_MOST_BYTES = 2**22
# And seconds for that. Of the usual kind it takes milliseconds.
_MOST_SECONDS = 10.0
MOST_POINTS = 2_000
_MOST_CHARACTERS = 2**18
# include/uapi/linux/limits.h
_PATH_MAX = 4096
# A container takes seconds to start, and each look reads all of /proc.
_POLL_SECONDS = 1.0
# kubernetes pkg/kubelet/kuberuntime/labels.go podTerminationGracePeriodLabel.
_GRACE_ANNOTATION = "io.kubernetes.pod.terminationGracePeriod"

# (container, device of a FUSE file system in it) -> (a process of the container, the mount that is
# asked).
Questions = dict[tuple[str, str], tuple[int, str]]


@dataclass(frozen=True)
class Inspected:
    """What the runtime says about a container.

    ``mounts``: path in the container -> (path of the node, propagation). ``grace_period``: seconds.
    """

    name: str
    namespace: str
    pod_name: str
    mounts: dict[str, tuple[str, str]]
    grace_period: int = pure.GRACE_SECONDS


class StaleContainers:
    """The part of the runbook recover_fuse_mounts that is about containers, on one node."""

    def __init__(self, host: Host, options: ContainerOptions) -> None:
        self._host = host
        self._options = options
        self._runtime = Runtime()
        self._root = options.kubelet_root
        self._pods: list[dict[str, Any]] = []
        self._plan = Plan([])
        # IDs of the containers of the first look; and of each new container, whose restart it
        # proves.
        self._before: frozenset[str] = frozenset()
        self._proofs: dict[str, str] = {}
        # One deadline for all: the kubelet restarts the containers at the same time.
        self._patience: Deadline | None = None

    # gather

    def not_applicable(self, state: ContainerState) -> dict[str, str]:
        """Both controls, where no container has a FUSE mount."""
        return pure.not_applicable(state)

    def gather(self) -> ContainerState:
        """Probe the FUSE mounts in every container. Only if one is dead or hung, ask the runtime,
        and probe the node's side of it.
        """
        host = self._host
        host.require_root()
        require_host_namespace(host)
        self._root = find_root(host, self._options.kubelet_root)
        processes = list(_container_processes(host)) if self._root else []
        # A container that starts during the run may be the proof of a restart.
        self._before = frozenset(container for container, _pod, _pid in processes)
        # Only the answers decide whether the runtime is asked at all.
        containers = self._ask(self._containers(processes))
        if any(container.dead or container.hung for container in containers):
            self._runtime = find_runtime(host, self._options)
            containers = self._described(containers)
        return ContainerState(host.name, tuple(containers), self._runtime, namespaces_of(host))

    def _containers(self, processes: Sequence[tuple[str, str, int]]) -> list[Container]:
        """The containers that were asked for and have FUSE mounts, which are not probed yet.

        ``processes``: as by _container_processes.
        """
        known = {
            container: tuple(entry for entry in self._options.containers if entry.pod == pod)
            for container, pod, _pid in processes
        }
        # The cluster may have asked for certain containers only.
        wanted = [one for one in processes if known[one[0]] or not self._options.containers]
        host, replies = self._host, self._read_mounts(wanted)
        found = []
        for (container, pod, pid), reply in zip(wanted, replies):
            # comm, not cmdline: reading the latter may hang with the process (fs/proc/base.c
            # get_mm_cmdline).
            command = host.read(f"/proc/{pid}/comm") or ""
            seen, problem = ((), reply.problem) if reply.problem else reply.value
            copies = tuple(Copy(point, device, Answer(ERROR)) for point, device in seen)
            if copies or problem:
                entries = known[container]
                found.append(
                    Container(container, pod, pid, command, copies, known=entries, problem=problem)
                )
        return found

    def _read_mounts(self, processes: Sequence[tuple[str, str, int]]) -> list[Reply]:
        """By process, what _fuse_mounts finds. ``processes``: as by _container_processes."""
        host = self._host
        volumes = _volumes(host, self._root) if processes else {}
        namespaces = namespaces_of(host)
        # Each by itself: a tenant may have as many mounts in its container as it likes, and what
        # they cost must not end the look at the others. Of each namespace one at a time: the kernel
        # keeps a line of mountinfo as a whole for each reader, and a path may have any length
        # (fs/seq_file.c seq_read_iter).
        return call_each(
            lambda process: _fuse_mounts(host, str(process[2]), volumes),
            processes,
            host.deadline.cap(min(host.command_timeout, _MOST_SECONDS)),
            host.deadline.share(host.command_timeout),
            owners=[turn_of(pod, namespaces) for _container, pod, _pid in processes],
            of_owner=1,
        )

    def _ask(self, containers: Sequence[Container]) -> list[Container]:
        """The containers with what their mounts answer.

        Each file system is asked once in each container: there may be any number of mounts of it,
        and they all have one server.
        """
        questions = {
            (container.id, copy.device): (container.pid, copy.point)
            for container in containers
            # So that the first mount of a file system is the one that is asked.
            for copy in reversed(container.copies)
        }
        answers = self._answered(questions)
        return [
            replace(
                container,
                copies=tuple(
                    replace(copy, answer=answers[container.id, copy.device])
                    for copy in container.copies
                ),
            )
            for container in containers
        ]

    def _answered(self, questions: Questions) -> dict[tuple[str, str], Answer]:
        """The answers to all questions, of which some are asked of one container alone."""
        # First in one container: a volume that hangs may be in any number of them, and each look at
        # it leaves a child.
        first = {device: container for container, device in reversed(list(questions))}
        asked = {(container, device) for device, container in first.items()}
        # What was not asked is neither dead nor well.
        answers = self._held(questions)
        first_asked = [one for one in questions if one in asked and one not in answers]
        answers.update(self._answers({one: questions[one] for one in first_asked}))
        # On the way to the mount it hangs in this container alone, whose owner made the way.
        hung = {
            one[1]: answer
            for one, answer in answers.items()
            if answer.state == HUNG and answer.step
        }
        answers.update((one, hung[one[1]]) for one in questions if one[1] in hung)
        answers.update(
            self._answers({one: questions[one] for one in questions if one not in answers})
        )
        return answers

    def _held(self, questions: Questions) -> dict[tuple[str, str], Answer]:
        """The answers to questions that too many children of earlier runs wait for."""
        held = held_children(self._host)
        if not held:
            return {}
        owners = owners_of(self._host, [pid for pid, _point in questions.values()])
        answers = {}
        for one, (pid, _point) in questions.items():
            for pids in (held.get(one[1]), held.get(way_of(owners[pid]))):
                if pids:
                    answers[one] = Answer(ERROR, text=still(pids))
        return answers

    def _answers(self, questions: Questions) -> dict[tuple[str, str], Answer]:
        """By container and device, what a mount answers. ``questions``: as for ``look_into``."""
        replies = look_into(
            self._host,
            list(questions.values()),
            self._options.probe_timeout,
            [device for _container, device in questions],
        )
        return {one: answer for one, (answer, _device) in zip(questions, replies)}

    def _described(self, containers: Sequence[Container]) -> list[Container]:
        """The containers, those with a dead or hung mount with what the runtime, the cluster and
        the node say about it.
        """
        described = []
        for container in containers:
            if container.dead or container.hung:
                container = self._named(container)
                # The cluster asked for other containers of this pod.
                if self._options.containers and not container.known and not container.elsewhere:
                    continue
            described.append(container)
        return self._with_hosts(described)

    def _with_hosts(self, containers: list[Container]) -> list[Container]:
        """The containers with the state of the node's own mounts, each of which is probed once."""
        # Each path once, since many containers may have the same volume.
        paths = sorted(
            {
                copy.host.path
                for container in containers
                for copy in container.copies
                if copy.host.path
            }
        )
        table = read_table(self._host, "self")
        namespaces = namespaces_of(self._host)
        owners = [owner_of(path, self._root, namespaces) for path in paths]
        timeout = self._options.probe_timeout
        devices = [table_device(table, path) for path in paths]
        answers = dict(zip(paths, probe_folders(self._host, paths, timeout, owners, devices)))
        ways = dict(zip(paths, parents_problem(self._host, paths, self._root)))

        def hosted(copy: Copy) -> Copy:
            path = copy.host.path
            if not path:
                return copy
            return replace(
                copy,
                host=replace(
                    copy.host,
                    device=table_device(table, path),
                    answer=answers[path],
                    problem=ways[path],
                ),
            )

        return [
            replace(container, copies=tuple(hosted(copy) for copy in container.copies))
            for container in containers
        ]

    def _named(self, container: Container) -> Container:
        """The container with its names, and with the node's path of each copy."""
        said = inspect(self._host, self._runtime, container.id)
        points = {copy.point for copy in container.copies}
        known = [
            entry
            for entry in container.known
            if entry.mount_path in points and self._is_about(entry, container, said)
        ]
        # The cluster has the mount path as it was written; if that has a link in it, the kernel
        # shows where it leads to, and the two do not match.
        elsewhere = sorted(
            {entry.mount_path for entry in container.known if _may_be(entry, container, said)}
            if not known
            else ()
        )
        first = known[0] if known else Known("", "")
        named = replace(
            container,
            name=first.container,
            namespace=first.namespace,
            pod_name=first.pod_name,
            known=tuple(known),
            elsewhere=tuple(elsewhere),
            copies=tuple(
                replace(copy, host=self._host_mount(container, copy, said, known))
                for copy in container.copies
            ),
        )
        if said is None:
            return replace(named, serves=False, grace_period=pure.GRACE_SECONDS)
        propagations = (propagation for _path, propagation in said.mounts.values())
        return replace(
            named,
            name=said.name,
            namespace=said.namespace,
            pod_name=said.pod_name,
            # PROPAGATION_BIDIRECTIONAL (kubernetes/cri-api pkg/apis/runtime/v1/api.proto).
            serves=any(propagation.endswith("BIDIRECTIONAL") for propagation in propagations),
            grace_period=said.grace_period,
        )

    def _is_about(self, entry: Known, container: Container, said: Inspected | None) -> bool:
        """Whether an entry of the cluster is about this container of its pod.

        Several containers of a pod may have the same mount path. If the runtime gives no name, only
        their IDs tell them apart.
        """
        # The runtime has names, which are the same in the cluster.
        if said:
            return entry.container in ("", said.name)
        # Different container names at the same path of one pod.
        twins = {
            other.container
            for other in self._options.containers
            if (other.pod, other.mount_path) == (entry.pod, entry.mount_path)
        }
        return entry.id == container.id or (not entry.id and len(twins) == 1)

    def _host_mount(
        self, container: Container, copy: Copy, said: Inspected | None, known: Iterable[Known]
    ) -> HostMount:
        """Which path of the node a copy is of. The runtime made the mounts, so it counts most."""
        told = next((entry for entry in known if entry.mount_path == copy.point), None)
        if said:
            path = said.mounts.get(copy.point, ("", ""))[0]
            if not path:
                return HostMount(problem="by the runtime it is none of the container's volumes")
        else:
            path = told.host_path if told else ""
            if not path:
                why = f" ({self._runtime.problem})" if self._runtime.problem else ""
                return HostMount(
                    problem=f"neither the cluster nor the runtime says which volume this is{why}"
                )
        return self._pod_volume(container, path, told.volume if told else "")

    def _pod_volume(self, container: Container, path: str, volume: str) -> HostMount:
        """A path of the node, if it is a CSI volume of the container's own pod."""
        root = self._options.kubelet_root
        # The runtime has the path as the kubelet gave it, maybe through a link.
        path = self._root + path[len(root) :] if path.startswith(f"{root}/") else path
        place = classify(path, self._root)
        # A CSI driver's container has the whole kubelet folder, with the volumes of all pods.
        if place is None or place.kind not in (PUBLISH, SUBPATH) or place.pod != container.pod:
            return HostMount(
                problem=f"it is {path!r} of the node, which is no CSI volume of its own pod"
            )
        # Not the name in the path, which for an inline volume is what the pod's owner calls it.
        return HostMount(path, volume)

    # plan

    def plan(self, state: ContainerState) -> Plan:
        """Decide, from what was gathered."""
        self._pods = pure.pods_to_restart(state, self._options)
        self._plan = pure.plan(state, self._options)
        return self._plan

    def facts(self) -> dict[str, Any]:
        """The pods of containers that cannot be restarted alone."""
        return {"pods": self._pods}

    def owners(self) -> dict[str, tuple[str, Callable[[Any], str]]]:
        """A namespace may have any number of pods."""
        return {"pods": ("STOR-05", lambda pod: str(pod["namespace"]))}

    def healthy(self, state: ContainerState) -> str:
        """What a run says that finds nothing."""
        count = len(state.containers)
        if not count:
            return (
                "no container that was asked for has a FUSE mount"
                if self._options.containers
                else "no container has a FUSE mount"
            )
        return f"{count} container{'s' * (count != 1)} with FUSE mounts, none of them dead or hung"

    # apply

    def apply(self, action: Action) -> None:
        """Wait for the kubelet, or have the runtime end the container, if it still has the dead
        mount.
        """
        container: Container = action.subject
        if action.verb == "await_liveness_probe":
            # The kubelet restarts it; this only looks.
            with before_a_change():
                self._await(action, container)
            return
        # A liveness probe may have restarted it in the meantime.
        with before_a_change():
            self._still_stale(container)
        timeout = pure.stop_seconds(container, self._options) + self._host.command_timeout
        # A container must not be ended without time left to see it come back.
        if self._host.deadline.remaining() < timeout:
            raise NotStarted(
                "the deadline leaves no time to see it started again: "
                "run again, or raise the deadline",
                code="deadline_passed",
            )
        # crictl waits for as long as the container may take to end.
        result = self._host.run(action.command, timeout)
        # On a busy node the runtime gives up before the kernel has ended what it killed, and the
        # container ends all the same.
        if not result.ok and not self._ends(container, self._host.command_timeout):
            raise ActionFailed(result.describe(), code="program_failed")

    def _still_stale(self, container: Container) -> None:
        # The same container, with its mounts probed again.
        same = [one for one in _container_processes(self._host) if one[0] == container.id]
        found = self._described(self._ask(self._containers(same)))
        if not found:
            raise NotStarted("the container has ended meanwhile: run again")
        if not found[0].dead:
            raise NotStarted("its mounts answer now")
        blockers, reasons = pure.obstacles(
            ContainerState(self._host.name, tuple(found), self._runtime), found[0], self._options
        )
        if blockers or reasons:
            why = [*blockers, *reasons]
            raise NotStarted(f"meanwhile {'; '.join(why)}", why[0].code)

    def _await(self, action: Action, container: Container) -> None:
        seconds = self._options.liveness_timeout
        self._patience = self._patience or Deadline(seconds, self._host.deadline.clock)
        if self._ends(container, self._patience.remaining()):
            return
        # No other way is allowed, or there is none.
        if self._options.method == "probe" or self._runtime.problem:
            raise ActionFailed(
                f"the kubelet has not restarted it within {seconds:g} s (liveness_timeout), "
                "although its liveness probe covers the mount"
                + (
                    f", and the runtime cannot be asked: {self._runtime.problem}"
                    if self._runtime.problem
                    else ""
                ),
                code="pod_stuck",
            )
        planned = next(
            finding
            for finding in self._plan.findings
            if any(action is step for step in finding.repair)
        )
        # The kubelet did not restart it in time, so the runtime is asked after all.
        planned.repair.append(pure.stop_action(self._runtime, container, self._options))

    def _ends(self, container: Container, seconds: float) -> bool:
        """Whether it is gone by then."""
        return self._host.wait_for(lambda: not self._is_there(container), seconds)

    def _is_there(self, container: Container) -> bool:
        # As long as the process that was seen is there, that is enough: another tenant may have
        # hundreds of thousands of them, and this is asked again and again.
        if container_id_of(read(self._host, str(container.pid))) == container.id:
            return True
        known = (found for found, _pod, _pid in _container_processes(self._host))
        return container.id in known or self._may_hide(container)

    def _may_hide(self, container: Container) -> bool:
        """Whether its process is in a control group that cannot be read by now: it is not gone."""
        return pod_of(self._host, str(container.pid)) == UNKNOWN

    def undo(self, action: Action) -> Action | None:
        """Nothing to take back: the kubelet starts an ended container again."""
        return None

    def half_made(self, finding: Finding) -> list[str]:
        """Nothing: a container is ended as a whole, and the kubelet goes on starting it again
        (restartPolicy Always). Whether that works, as with an image that is gone, is up to its pod.
        """
        return []

    # verify

    def verify(self, finding: Finding) -> list[str]:
        """A new container of the same name in the same pod must be able to list the folder, on the
        file system that the node has there.
        """
        old: Container = finding.repair[0].subject
        until = Deadline(self._host.deadline.cap(self._options.restart_timeout))
        while True:
            doubts, proof = self._compare(old)
            if not doubts:
                return proof
            if until.remaining() < _POLL_SECONDS:
                raise ActionFailed(
                    "its restart is not proven within "
                    f"{self._options.restart_timeout:g} s (restart_timeout): {doubts}",
                    code="repair_unproven",
                )
            # The new container needs a moment for its image, its mounts and its start.
            time.sleep(_POLL_SECONDS)

    def _compare(self, old: Container) -> tuple[str, list[str]]:
        """(why the restart is not proven, what proves it); one of them is empty."""
        # Its processes may live on in D state, on the dead mount itself.
        if self._is_there(old):
            return "the old one has not ended", []
        found = list(_container_processes(self._host))
        # What the node has now is what the new container has to show.
        table = read_table(self._host, "self")
        wanted = [
            (copy.point, copy.host.path, table_device(table, copy.host.path)) for copy in old.dead
        ]
        doubt = "the kubelet has not started it again"
        for container, pod, pid in found:
            # A pod's containers keep its UID; a new pod would have another one.
            if pod != old.pod or not self._may_follow(old, container):
                continue
            doubts = self._doubts(pid, wanted)
            if doubts:
                doubt = f"{container[:12]} runs, but {doubts[0]}"
                continue
            # Two containers of a pod restart at once; each new one proves one of them.
            self._proofs[container] = old.id
            return "", [
                f"{pure.shown(point)} in container {container[:12]} (pid {pid}) can be listed, and "
                f"is {device} as {pure.shown(path)} is"
                for point, path, device in wanted
            ]
        return doubt, []

    def _may_follow(self, old: Container, container: str) -> bool:
        """Whether a container of the same pod may be the new one in place of ``old``."""
        # If the runtime gives no names, other containers of the pod may have the same mounts. One
        # that was there before, or that proves another restart, does not count.
        if container in self._before or self._proofs.get(container, old.id) != old.id:
            return False
        said = inspect(self._host, self._runtime, container)
        return not (said and old.name and said.name != old.name)

    def _doubts(self, pid: int, wanted: list[tuple[str, str, str]]) -> list[str]:
        """Which of the (mount path, path of the node, device) a new container does not have."""
        answers = look_into(
            self._host,
            [(pid, point) for point, _path, _device in wanted],
            self._options.probe_timeout,
        )
        said = [
            _doubt(point, device, answer) for (point, _path, device), answer in zip(wanted, answers)
        ]
        return [text for text in said if text]


def container_options(params: dict[str, Any], check_mode: bool = False) -> ContainerOptions:
    """The options of StaleContainers, checked. Raises BadOption.

    ``planned_paths`` counts in check mode only. A module that only reports lacks most options. It
    repairs nothing, so max_repairs is no limit.
    """
    given = given_options(ContainerOptions, params)
    least = {
        "probe_timeout": 0.1,
        # 0 means not to wait for the kubelet at all.
        "liveness_timeout": 0,
        "stop_timeout": 0,
        "restart_timeout": 1,
        "max_repairs": 0,
    }
    check_numbers(given, least)
    given["containers"] = tuple(_known(entry) for entry in given.get("containers", ()))
    # A real run acts on what is there, not on a plan.
    given["planned_paths"] = tuple(given.get("planned_paths", ())) if check_mode else ()
    given["kubelet_root"] = (
        given.get("kubelet_root", ContainerOptions.kubelet_root).rstrip("/") or "/"
    )
    return ContainerOptions(**given)


def _known(entry: dict[str, Any]) -> Known:
    given = {key: value for key, value in entry.items() if value is not None}
    return Known(**{**given, "mount_path": _normal(given["mount_path"])})


def _normal(path: str) -> str:
    """A mount path as mountinfo writes it: ``//data/`` is /data."""
    return "/" + posixpath.normpath(f"/{path}").lstrip("/")


def _may_be(entry: Known, container: Container, said: Inspected | None) -> bool:
    """Whether nothing that is known excludes that an entry is about this container."""
    return entry.container in ("", said.name) if said else entry.id in ("", container.id)


def _volumes(host: Host, root: str) -> dict[str, int | None]:
    """By device of each FUSE file system that the node has at a mount point of the kubelet, the
    user who mounted it, or None.
    """
    mounts = read_table(host, "self").mounts
    devices = {one.device for one in mounts if is_fuse(one) and classify(one.point, root)}
    return {device: mounter_of(host, device) for device in devices}


def _fuse_mounts(
    host: Host, pid: str, volumes: Mapping[str, int | None]
) -> tuple[list[tuple[str, str]], str]:
    """((point, device) of the FUSE mounts that a process reaches, why there may be others).

    ``volumes``: as by _volumes.
    """
    try:
        points, problem = fuse_points(read_table(host, pid, _MOST_BYTES))
    except StorageOpsError as error:
        # Either it has ended, or a process in it changes the mounts while they are read.
        return [], str(error) if host.exists(f"/proc/{pid}") else ""
    # In a user namespace of its own a container can mount any number of file systems, with servers
    # that hang, and let root of the node in (fs/fuse/dir.c fuse_allow_current_process). Elsewhere
    # it cannot, without CAP_SYS_ADMIN (fs/namespace.c may_mount). Only now it is asked, since there
    # is no way back from it.
    if host.owner(pid) != host.owner("self"):
        points, doubt = of_the_node(host, pid, points, volumes)
        # Of one that has ended meanwhile, nothing is told.
        problem = problem or (doubt if host.exists(f"/proc/{pid}") else "")
    return points, problem


def fuse_points(table: MountTable) -> tuple[list[tuple[str, str]], str]:
    """((point, device) of the FUSE mounts that a process with this table reaches, why there may be
    others).
    """
    points = dict.fromkeys(mount.point for mount in table.mounts if is_fuse(mount))
    looked_at: list[str] = []
    room = _MOST_CHARACTERS
    for point in points:
        room -= len(point)
        # A process reaches what is at a longer path only from a folder on the way.
        if room >= 0 and len(looked_at) < MOST_POINTS and len(os.fsencode(point)) < _PATH_MAX:
            looked_at.append(point)
    devices = ((point, table_device(table, point)) for point in looked_at)
    found = [(point, device) for point, device in devices if device]
    left = len(points) - len(looked_at)
    if not left:
        return found, ""
    return found, (
        f"{left} of its {len(points)} FUSE mounts were not looked at, since they are too many, or "
        "their paths too long"
    )


def table_device(table: MountTable, point: str) -> str:
    """Device of the FUSE superblock that is topmost at a mount point; empty if that is none."""
    # The topmost mount is what a process reads; a tmpfs over it hides a dead one.
    top = table.holding(point)
    return top.device if top and top.point == point and is_fuse(top) else ""


def _container_processes(host: Host) -> Iterable[tuple[str, str, int]]:
    """(container ID, pod UID, ID of a process in it), each container once, by control groups."""
    # A process in the node's own mount namespace does not see the container's mounts. The runtime
    # puts one into the control group before it enters the namespace.
    seen: set[str] = set()
    own = host.link("/proc/self/ns/mnt")
    # The lowest process ID is mostly the container's first process, whose mounts count.
    for pid in sorted(filter(is_number, host.names("/proc")), key=int):
        cgroup = read(host, pid)
        container = container_id_of(cgroup)
        if container in ("", *seen):
            continue
        try:
            space = host.namespace(pid)
        except Fleeting:
            # It is there, whatever it shows.
            space = container
        if space not in ("", own):
            seen.add(container)
            yield container, pod_uid_of(cgroup), int(pid)


def look_into(
    host: Host,
    questions: Sequence[tuple[int, str]],
    timeout: float,
    devices: Sequence[str] = (),
) -> list[tuple[Answer, str]]:
    """List folders as processes see them.

    ``questions``: (pid, path). ``devices``: for each, what was mounted there; of anything else
    that hangs, the answer has no ``step``. Returns for each what it answered, and the device
    mounted there.
    """

    owners = owners_of(host, [pid for pid, _point in questions])

    def looking(number: int) -> dict[str, str]:
        pid, point = questions[number]

        def reached() -> None:
            at_mount[number] = 1

        try:
            # /proc/PID/root is resolved in the process's mount namespace (proc_pid_root(5)).
            root = host.path(f"{host.living(str(pid))}/root")
            wanted = devices[number] if devices else ""
            return {"device": _list(root, point, way_of(owners[pid]), reached, wanted)}
        except OSError as error:
            name = errno.errorcode.get(error.errno or 0, str(error.errno))
            # JSON on the way from the child, so the error is named and not pickled.
            return {"error": name, "text": error.strerror or str(error)}

    # Shared with the children, to know how far one came that never returns.
    with mmap.mmap(-1, max(1, len(questions))) as at_mount:
        # In turns of the namespaces: a container may have any number of mounts that hang, and a
        # namespace any number of pods.
        replies = call_each(
            looking,
            range(len(questions)),
            timeout,
            host.deadline.cap(host.command_timeout + timeout),
            owners=[owners[pid] for pid, _point in questions],
        )
        return [_judge(reply, bool(there)) for reply, there in zip(replies, at_mount[:])]


def owners_of(host: Host, pids: Iterable[int]) -> dict[int, str]:
    """By process, whose turn it uses up: the namespace of its pod, as far as that is known."""
    namespaces = namespaces_of(host)
    pods = {pid: pod_of(host, str(pid)) for pid in pids}
    return {pid: turn_of(pod, namespaces) for pid, pod in pods.items()}


def _judge(reply: Any, at_mount: bool) -> tuple[Answer, str]:
    if reply.problem:
        state, step = HUNG if reply.timed_out else ERROR, "listing" if at_mount else ""
        return Answer(state, step, text=reply.problem, left=reply.left), ""
    if "error" in reply.value:
        return Answer(
            DEAD if reply.value["error"] in DEAD_ERRORS else ERROR, "listing", **reply.value
        ), ""
    return Answer(OK), reply.value["device"]


def _list(root: str, point: str, way: str, reached: Callable[[], object], wanted: str = "") -> str:
    """Read one entry of a folder in another mount namespace, and return its device.

    No link on the way is followed: it would be resolved in this process's own namespace.
    ``way``: as for ``walked``. ``reached``: called where the server of the mount itself is asked,
    and none on the way. ``wanted``: the device of that mount, if it is known.
    """
    with walked(root, point, way) as found:
        # Of others, who have the mount that was there before, this would say nothing.
        if wanted in ("", _kept_device(found)):
            reached()
        device = list_held(found).st_dev
    return f"{os.major(device)}:{os.minor(device)}"


def _kept_device(descriptor: int) -> str:
    """The device of what is held, without a question to its server; empty if it is not known."""
    try:
        return fdinfo.kept(descriptor).device
    except OSError:
        return ""


def _doubt(point: str, device: str, answer: tuple[Answer, str]) -> str:
    # It must list, and be the file system that the node has there now.
    said, found = answer
    if said.state != OK:
        return f"{pure.shown(point)} in it is {said.state}: {said.text}"
    return (
        ""
        if device and found == device
        else f"{pure.shown(point)} in it is on {found}, and the "
        f"node has {device or 'nothing'} there"
    )


def find_runtime(host: Host, options: ContainerOptions) -> Runtime:
    """How to ask the container runtime: at the given endpoint, else at the one that crictl is
    configured for, else at the only socket there is.
    """
    # An absolute path may name a program outside of PATH, as with k3s.
    program = options.crictl if os.path.isabs(options.crictl) else find_program(options.crictl)
    if program is None or not os.access(program, os.X_OK):
        return Runtime(problem=f"{options.crictl} is not on this node (option crictl)")
    command = (program, "--timeout", "10s")
    if options.runtime_endpoint:
        return Runtime((*command, "--runtime-endpoint", options.runtime_endpoint))
    if host.exists(_CRICTL_CONFIG):
        return Runtime(command)
    sockets = [path for path in _SOCKETS if host.exists(path)]
    # Of two runtimes, only one is the kubelet's.
    if len(sockets) != 1:
        found = ", ".join(sockets) or "no socket of a container runtime"
        return Runtime(
            problem=f"{found} found, and no {_CRICTL_CONFIG}: say which by runtime_endpoint"
        )
    return Runtime((*command, "--runtime-endpoint", f"unix://{sockets[0]}"))


def inspect(host: Host, runtime: Runtime, container: str) -> Inspected | None:
    """What the runtime says about a container; None if it cannot be asked or does not know it.

    The answer includes the container's environment, which may have secrets and is not kept.
    """
    if not runtime.command:
        return None
    # By ID: names are reused by each restart.
    result = host.run([*runtime.command, "inspect", "--output", "json", container])
    if not result.ok:
        return None
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        # A ContainerStatus (kubernetes/cri-api pkg/apis/runtime/v1/api.proto).
        status = json.loads(result.stdout)["status"]
        labels = status.get("labels") or {}
        mounts = {
            _normal(mount["containerPath"]): (mount["hostPath"], mount.get("propagation") or "")
            for mount in status.get("mounts") or []
        }
        return Inspected(
            status["metadata"]["name"],
            labels.get("io.kubernetes.pod.namespace", ""),
            labels.get("io.kubernetes.pod.name", ""),
            mounts,
            _grace_period(status.get("annotations") or {}),
        )
    return None


def _grace_period(annotations: dict[str, Any]) -> int:
    """The pod's terminationGracePeriodSeconds; the default if the pod has none."""
    # The kubelet notes it at each container (kubernetes pkg/kubelet/kuberuntime/labels.go
    # newContainerAnnotations).
    noted = str(annotations.get(_GRACE_ANNOTATION, ""))
    # Only digits, and few of them: it becomes a word of a command.
    return int(noted) if re.fullmatch(r"[0-9]{1,9}", noted) else pure.GRACE_SECONDS
