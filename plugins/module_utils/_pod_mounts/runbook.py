# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mounts of pods that are not their volume, and volumes that turned read-only: reads the node,
carries out the plan.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import replace
from typing import Any

from .._core import drivers
from .._core.argspec import ArgumentSpec, check_numbers, given_names, given_options, missing
from .._core.bounded import owners_of
from .._core.engine import Action, ActionFailed, Finding, NotStarted, Plan, before_a_change
from .._core.errors import BadOption
from .._node import kubelet, loops, probes, processes
from .._node.copies import other_mounts
from .._node.host import Host
from .._node.mounts import Mount, MountTable, read_table
from .._node.options import PUBLISH
from .._node.renewed import read_renewed
from .._node.unmount import unmount
from . import plan as pure
from . import stacks
from .backing import read_backings, read_logs, read_names
from .model import LayerSubject, PodMountOptions, PodMountState, show
from .stacks import is_fuse
from .wrong_mounts import judge_stack, seen_in

OPTIONS_SPEC = PUBLISH.merge(
    ArgumentSpec(
        {
            "paths": {"type": "list", "elements": "str", "default": []},
            "volumes": {"type": "list", "elements": "str", "default": []},
            "probe_timeout": {"type": "float", "default": 5.0},
        }
    )
)


def pod_mount_options(params: dict[str, Any]) -> PodMountOptions:
    """The options of PodMounts, checked. Raises BadOption.

    Modules that only report lack the scope and the accepted risks, and get their defaults.
    """
    check_numbers(params, {"probe_timeout": 0.1, "max_repairs": 0})
    given = given_options(PodMountOptions, params)
    given.update(given_names(params, "volumes"))
    given.update(given_names(params, "paths", strip=False))
    _require_places(given.get("publish_from", {}))
    return PodMountOptions(**given)


def _require_places(publish_from: dict[str, str]) -> None:
    for driver, place in publish_from.items():
        if place not in (drivers.STAGING, drivers.ELSEWHERE):
            raise BadOption(
                f"publish_from has {place!r} for {driver}: give {drivers.STAGING}, if the mounts "
                f"of pods are binds of its staging mount, or {drivers.ELSEWHERE}"
            )


# Seconds. After it has unmounted a volume, the kubelet removes its folder within one.
_REMOVAL = 5.0


class PodMounts:
    """The runbook repair_pod_mounts on one node."""

    def __init__(self, host: Host, options: PodMountOptions) -> None:
        self._host = host
        self._options = options

    def gather(self) -> PodMountState:
        """Compare mounts, and probe each filesystem once. Where something is wrong, find its block
        devices and its users.
        """
        self._host.require_root()
        # In a container mountinfo would show that container's mounts, all of them well.
        processes.require_host_namespace(self._host)
        root = kubelet.find_root(self._host, self._options.kubelet_root)
        # No node of a cluster: there is nothing that could be wrong.
        if not root:
            return PodMountState(self._host.name, "", read_table(self._host, "self"), {})
        self._options = replace(
            self._options, paths=tuple(self._resolved(path, root) for path in self._options.paths)
        )
        state = self._mounts(root)
        types = {one.device: one.first.fstype for one in stacks.filesystems(state)}
        points = {device: stacks.point_of(state, device) for device in types}
        # Needed for the log, which names devices and not mount points.
        names = read_names(self._host, points)
        state = replace(state, answers=self._ask(state))
        shown = [filesystem.device for filesystem in stacks.suspicious_filesystems(state)]
        state = replace(state, logs=read_logs(self._host, names, types, points, shown))
        turned = [filesystem.device for filesystem in stacks.suspicious_filesystems(state)]
        # Reading all processes is the most expensive part, so a healthy node is spared it.
        if turned or stacks.suspicious_stacks(state):
            state = self._users(state, turned)
        if turned:
            below = {device: names[device] for device in turned}
            backings = read_backings(self._host, below, self._options.probe_timeout, _owners(state))
            state = replace(state, backings=backings)
        return state

    def plan(self, state: PodMountState) -> Plan:
        """Decide, from what was gathered."""
        return pure.plan(state, self._options)

    def not_applicable(self, state: PodMountState) -> dict[str, str]:
        """Controls of what the kubelet has not mounted here."""
        return pure.not_applicable(state)

    def healthy(self, state: PodMountState) -> str:
        """What a run says that finds nothing; with the scope, if there was one."""
        options = self._options
        if not state.root:
            return f"there is no {options.kubelet_root}, and so no pod mount"
        scope = [
            f"{name} {', '.join(value)}"
            for name, value in (("paths", options.paths), ("volumes", options.volumes))
            if value
        ]
        within = f" within the scope ({'; '.join(scope)})" if scope else ""
        counts = (
            f"{len(state.places(kubelet.PUBLISH))} pod mounts and "
            f"{len(stacks.filesystems(state))} volume filesystems"
        )
        return f"{counts} looked at, none wrong or read-only by error{within}"

    def unmatched(self, state: PodMountState) -> str:
        """What of the scope the node does not have."""
        return missing(pure.unmatched(state, self._options))

    def _resolved(self, path: str, root: str) -> str:
        """A given path as mountinfo writes it: the kubelet's folder may be given as a link."""
        given = self._options.kubelet_root.rstrip("/")
        real = f"{root}{path[len(given) :]}" if path.startswith(f"{given}/") else path
        # A mistyped path must not look like a healthy one.
        if kubelet.classify(real, root) is None:
            raise BadOption(
                f"{path!r} is not a mount point that the kubelet creates in {root}: name one as "
                f"the "
                "findings do, or a volume"
            )
        return real

    def _mounts(self, root: str) -> PodMountState:
        """The node's mounts, and the kubelet's notes of them."""
        host = self._host
        state = PodMountState(host.name, root, read_table(host, "self"), {})
        places = state.places(kubelet.PUBLISH)
        # The staging folders that have only a name count by their notes.
        named = [place for place in state.places(kubelet.STAGING) if place.volume]
        # Each note is read once, however many pods mount the volume.
        paths = list(dict.fromkeys(place.note for place in [*places, *named]))
        namespaces = kubelet.namespaces_of(host)
        devices = owners_of(
            (layer.device, kubelet.owner_of(place.point, root, namespaces))
            for place in places
            for layer in state.table.layers(place.point)
        )
        return replace(
            state,
            notes=dict(zip(paths, kubelet.read_notes(host, paths, root))),
            loops=loops.read_backing(host, devices),
            publish_from=self._options.publish_from,
            namespaces=namespaces,
            renewed=read_renewed(host),
        )

    def _ask(self, state: PodMountState) -> dict[str, probes.Answer]:
        """Probe every volume's filesystem, and the FUSE mounts in stacks that are not fine."""
        devices = [filesystem.device for filesystem in stacks.filesystems(state)]
        devices += [
            layer.device
            for stack in stacks.pod_stacks(state)
            if not stack.fine
            for layer in stack.layers
            if is_fuse(layer)
        ]
        points = {device: stacks.point_of(state, device) for device in dict.fromkeys(devices)}
        # Where other mounts cover it everywhere, it cannot be probed by a path.
        points = {device: point for device, point in points.items() if point}
        asked = list(points.values())
        whose = _owners(state)
        owners = [whose[device] for device in points]
        timeout = self._options.probe_timeout
        answers = probes.probe_folders(self._host, asked, timeout, owners, list(points))
        return dict(zip(points, answers))

    def _users(
        self, state: PodMountState, turned: Collection[str] = (), point: str = ""
    ) -> PodMountState:
        """The state with all processes, and the mounts of other namespaces that they may use.

        ``turned``: devices of filesystems that look wrong, besides those of wrong stacks.
        ``point``: the only wrong stack whose users matter.
        """
        # Only copies of what looks wrong matter; a tenant may have any number of others.
        suspicious = stacks.suspicious_stacks(state)
        wrong = {layer.device for stack in suspicious for layer in stack.layers}
        wanted = [stack for stack in suspicious if point in ("", stack.place.point)]
        others = other_mounts(self._host, {*wrong, *turned})
        state = replace(
            state,
            elsewhere=others.mounts,
            crowded=others.crowded,
            spaces=others.namespaces,
        )
        # Only who could be inside: a tenant may have any number of processes to read elsewhere.
        found = processes.read_processes(self._host, seen_in(state, wanted))
        return replace(state, processes=tuple(found))

    # apply

    def apply(self, action: Action) -> None:
        """Unmount one layer, after one more look at the whole stack and at its users."""
        subject: LayerSubject = action.subject
        mount, planned = subject.mount, [_key(layer) for layer in subject.layers]
        # The kubelet goes on mounting and unmounting while this runs.
        with before_a_change():
            state = self._fresh(mount.point)
        layers = [_key(layer) for layer in state.table.layers(mount.point)]
        # On shared mounts, several layers may have gone with the previous one, with which they
        # came. verify() sees to it that what must stay is there.
        if layers != [
            layer for layer in planned[: planned.index(_key(mount)) + 1] if layer in layers
        ]:
            raise NotStarted(f"what is mounted at {mount.point} has changed meanwhile")
        if _key(mount) not in layers:
            return
        self._require_repair(state, mount)
        try:
            unmount(self._host, mount, state.root)
        except NotStarted:
            raise
        except ActionFailed as error:
            # The kernel knows users that /proc does not name, and then umount2 returns EBUSY.
            if mount.id in [
                layer.id for layer in read_table(self._host, "self").layers(mount.point)
            ]:
                raise NotStarted(str(error), error.code) from error
            raise

    def _require_repair(self, state: PodMountState, mount: Mount) -> None:
        """Judged again, the layer must still be the next to be unmounted. Raises NotStarted."""
        # By the same judgement as the plan, so that no second rule has to agree with the first.
        stack = next(
            (
                stack
                for stack in stacks.suspicious_stacks(state)
                if stack.place.point == mount.point
            ),
            None,
        )
        finding = judge_stack(state, stack) if stack else None
        if finding is None or not finding.repair or finding.repair[0].subject.mount.id != mount.id:
            raise NotStarted(
                f"{mount.point} is no longer to be repaired: "
                f"{finding.reason if finding else 'it is as it should be'}",
                finding.code if finding else "",
            )

    def undo(self, action: Action) -> None:
        """Nothing to take back: each removed layer was not the volume, or was there twice."""

    def half_made(self, finding: Finding) -> list[str]:
        """What a repair that failed has taken that must stay.

        Each layer that it unmounts was not the volume, or was there twice, so the next run goes on
        with the rest. Nor does it count what is gone with its folder: the kubelet removes both for
        a pod that goes, and who owns that may delete it at any moment.
        """
        kept = _kept(finding)
        staged = [staging["point"] for staging in finding.evidence["staging"]]
        left: list[str] = []

        def whole() -> bool:
            table = read_table(self._host, "self")
            asked = [point for point in (finding.name, *staged) if not table.layers(point)]
            gone = kubelet.absent_points(self._host, asked)
            left[:] = _lost(
                finding, table, [mount for mount in kept if mount.point not in gone], gone
            )
            return not left

        # The kubelet unmounts first, and removes the folder right after that.
        self._host.wait_for(whole, _REMOVAL)
        return left

    def _fresh(self, point: str) -> PodMountState:
        """The node's current state, as far as one mount point needs it."""
        root = kubelet.resolve_root(self._host, self._options.kubelet_root)
        state = self._mounts(root)
        layers = state.table.layers(point)
        # Only then the answer matters: a dead one is left to the repair of FUSE mounts.
        if any(is_fuse(layer) for layer in layers):
            state = replace(state, answers=self._ask(state))
        return self._users(state, point=point)

    # verify

    def verify(self, finding: Finding) -> list[str]:
        """What proves that the wrong layers are gone, and nothing else."""
        point = finding.name
        # What was planned, compared with what is there now.
        gone: list[Mount] = [action.subject.mount for action in finding.repair]
        kept = _kept(finding)
        # The node's own namespace, which require_host_namespace() has checked.
        table = read_table(self._host, "self")
        doubts = _doubts(finding, table, gone, kept)
        layers = table.layers(point)
        if [_key(layer) for layer in layers] != [_key(mount) for mount in kept]:
            doubts.append(f"{len(layers)} mounts are there, not {len(kept)}")
        if doubts:
            raise ActionFailed(
                f"the repair of {point} is not proven: {'; '.join(doubts)}", code="repair_unproven"
            )
        proof = [
            f"mount {mount.id} of {show(mount.source)} ({mount.device}) is gone from {point}"
            for mount in gone
        ]
        return proof + [f"the pod's mount is {mount.device}, the volume" for mount in kept]


def _owners(state: PodMountState) -> dict[str, Hashable]:
    """By device of a filesystem, whose turns it uses up: of the pods that have it, else of where it
    is staged for them.
    """

    def whose(kind: str) -> dict[str, Hashable]:
        return owners_of(
            (layer.device, kubelet.owner_of(place.point, state.root, state.namespaces))
            for place in state.places(kind)
            for layer in state.table.layers(place.point)
        )

    return {**whose(kubelet.STAGING), **whose(kubelet.PUBLISH)}


def _kept(finding: Finding) -> list[Mount]:
    """The layers that the repair leaves."""
    gone = [action.subject.mount for action in finding.repair]
    return [mount for mount in finding.repair[0].subject.layers if mount not in gone]


def _doubts(finding: Finding, table: MountTable, gone: list[Mount], kept: list[Mount]) -> list[str]:
    """Mounts that are there and should not be, or the other way round."""
    there = {_key(mount) for mount in table.mounts}
    doubts = [f"mount {mount.id} is still there" for mount in gone if _key(mount) in there]
    return doubts + _lost(finding, table, kept)


def _lost(
    finding: Finding, table: MountTable, kept: list[Mount], absent: Collection[str] = ()
) -> list[str]:
    """Which of these layers are gone, and which staging mounts. ``absent``: folders that are."""
    there = {_key(mount) for mount in table.mounts}
    lost = [f"mount {mount.id} is gone, too" for mount in kept if _key(mount) not in there]
    return lost + [
        f"the staging mount at {staged['point']} is gone"
        # A staging mount that went along would take the volume from all pods of the node.
        for staged in finding.evidence["staging"]
        if staged["point"] not in absent and not _staged(table, staged)
    ]


def _key(mount: Mount) -> tuple[int, str, str, str]:
    """What identifies a mount while others at the same point come and go."""
    return mount.id, mount.device, mount.root, mount.point


def _staged(table: MountTable, staged: dict[str, Any]) -> bool:
    # By ID and device: another mount at the staging point would be another volume's.
    return any(
        (mount.id, mount.device) == (staged["mount"], staged["device"])
        for mount in table.layers(staged["point"])
    )
