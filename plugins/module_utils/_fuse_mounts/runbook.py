# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Dead and hung FUSE mounts: reads the node, carries out the plan, and proves the result."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from .._core.bounded import MOST_CHILDREN, Deadline, Reply, owners_of
from .._core.engine import (
    Action,
    ActionFailed,
    Finding,
    NotStarted,
    PassedOver,
    Plan,
    Prevented,
    before_a_change,
    require_time,
)
from .._core.errors import StorageOpsError
from .._core.texts import lines, stripped
from .._node import kubelet
from .._node.copies import other_mounts
from .._node.host import UNDO_SECONDS, Host
from .._node.mounts import Mount, MountTable, is_fuse, read_table
from .._node.probes import (
    DEAD,
    ERROR,
    HUNG,
    MOST_HELD,
    MOST_HELD_BY_REPAIRS,
    OK,
    Answer,
    held_children,
    hung_before,
    probe_folders,
    probe_opened,
)
from .._node.processes import read_processes, require_host_namespace
from .._node.renewed import NOTES, identity
from .._node.unmount import Source, bind, call_libc, held, misfits, same, unmount, unmount_dead
from .._node.unmount import replace as replace_mount
from . import caches, likeness, stacks, unmounting
from . import plan as pure
from .gathering import details, pod_folders, running_processes
from .model import (
    PRIVATE,
    FuseOptions,
    FuseState,
    Recovery,
    Service,
    Step,
    Superblock,
    Target,
    Unfinished,
    printable,
)
from .records import (
    lock,
    make_folder,
    note_of,
    note_renewed,
    read_unfinished,
    remove,
    write_private,
)
from .service import limit_command

# Seconds that one step of a repair may take besides the time-outs that the user has set.
_STEP_SECONDS = 5.0
# What each further mount point of the same repair adds.
_MORE_SECONDS = 2.0
# The same where mounts are only taken off: twice what each of 1,200 subPaths took.
_MORE_UNMOUNT_SECONDS = 0.2
# Characters. A shorter line of a configuration file, such as "[x]", is no secret, and masking it
# would make errors unreadable.
_SECRET_LINE = 8
# include/uapi/linux/sched.h CLONE_NEWNS; include/uapi/linux/mount.h MS_REC and MS_SLAVE;
# include/linux/fs.h MNT_DETACH and UMOUNT_NOFOLLOW (see unshare(2), mount(2), umount(2)).
_CLONE_NEWNS = 0x20000
_MS_REC_SLAVE = 0x4000 | 0x80000
_MNT_DETACH_NOFOLLOW = 2 | 8


class FuseRecovery:
    """The runbook recover_fuse_mounts on one node."""

    def __init__(self, host: Host, options: FuseOptions) -> None:
        self._host = host
        self._deadline = host.deadline
        self._options = options
        self._root = ""
        self._stale: list[dict[str, object]] | None = None
        # Mount points from which the dead mount was taken, until the new one is there.
        self._bare: set[str] = set()
        # Keys of repairs whose new mount is in use, so that it must not be taken back.
        self._begun: set[str] = set()
        # By key of a repair, the device of the new mount that was proven.
        self._devices: dict[str, str] = {}
        # How long containers are waited for, from the first wait on.
        self._patience: Deadline | None = None
        self._lock = -1
        self._has_acted = False

    def prepare(self) -> None:
        """Keep other runs on this node away: two would take each other's new mounts."""
        self._host.require_root()
        self._lock = lock(self._host)

    def close(self, failed: bool) -> None:
        """Let others run again, however this one ended."""
        # Only now: with the lock no other run starts a server.
        if self._lock >= 0 and self._has_acted:
            caches.tidy(self._host)
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1

    def gather(self) -> FuseState:
        """Probe each FUSE superblock of the kubelet once; gather more only if one is broken."""
        host = self._host
        host.require_root()
        # Mounts that are made in a container's namespace would be seen by no pod.
        require_host_namespace(host)
        self._root = root = kubelet.find_root(host, self._options.kubelet_root)
        # mountinfo has no links, so paths are compared without them, too.
        self._options = replace(
            self._options,
            paths=self._resolved(self._options.paths),
            volumes=tuple(
                replace(volume, paths=self._resolved(volume.paths))
                for volume in self._options.volumes
            ),
        )
        # Of process 1, since the kubelet and the pods get their mounts from there.
        table = read_table(host, "1")
        found = stacks.superblocks(table, root)
        unfinished = read_unfinished(host)
        asked = _asked(table, found, unfinished)
        namespaces = kubelet.namespaces_of(host)
        owners = _owners(asked, found, root, namespaces)
        timeout = self._options.probe_timeout
        paths = list(asked.values())
        most = self._most_held()
        answers = dict(zip(asked, probe_folders(host, paths, timeout, owners, list(asked), most)))
        state = FuseState(
            host.name, root, table, answers, unfinished=unfinished, namespaces=namespaces
        )
        broken = _broken(found, answers)
        if broken or unfinished:
            self._ask_buried(state, found, answers)
            # Now those below broken mounts have answered, too.
            broken = _broken(found, answers)
            state = details(host, self._options, state, broken, found)
        self._stale = stacks.stale(state, broken)
        return state

    def plan(self, state: FuseState) -> Plan:
        """Decide, from what was gathered."""
        return pure.plan(state, self._options)

    def not_applicable(self, state: FuseState) -> dict[str, str]:
        """Both controls, where the kubelet has no FUSE mount."""
        return pure.not_applicable(state)

    def healthy(self, state: FuseState) -> str:
        """What a run says that finds nothing."""
        if not state.root:
            return f"there is no {self._options.kubelet_root}, and so no FUSE mount of the kubelet"
        number = len(stacks.superblocks(state.table, state.root))
        return f"{number} FUSE mounts below {state.root}, and all of them answer"

    def facts(self) -> dict[str, Any]:
        """The containers that keep a dead mount until they are restarted (``stale``)."""
        return {} if self._stale is None else {"stale": self._stale}

    def owners(self) -> dict[str, tuple[str, Callable[[Any], str]]]:
        """A pod may have any number of mounts of its volumes."""
        return {"stale": ("STOR-05", lambda entry: entry["pod"] or f"pid {entry['pid']}")}

    def _resolved(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        """The given paths as mountinfo writes them: the kubelet's folder may be given as a link."""
        given = self._options.kubelet_root.rstrip("/")
        return tuple(
            f"{self._root}{path[len(given) :]}"
            if self._root and path.startswith(f"{given}/")
            else path
            for path in paths
        )

    def _ask_buried(
        self, state: FuseState, found: dict[str, Superblock], answers: dict[str, Answer]
    ) -> None:
        """Probe the superblocks that only broken mounts cover.

        What is below a broken layer may turn out to be broken itself, and cover another one.
        """
        while True:
            layers = stacks.buried(state.table, found, answers)
            if not layers:
                return
            waiting = held_children(self._host, self._most_held())
            for mount in layers:
                answers[mount.device] = (
                    hung_before(waiting[mount.device])
                    if mount.device in waiting
                    else self._ask_below(state.table, mount)
                )

    def _most_held(self) -> int:
        """What hangs is repaired only if it was asked in this run, and an audit repairs nothing."""
        return MOST_HELD_BY_REPAIRS if self._options.abort_hung_connections else MOST_HELD

    def _ask_below(self, table: MountTable, mount: Mount) -> Answer:
        """Probe a mount with the layers above it taken off, in a mount namespace of the child's own
        that ends with it. The node's mounts stay as they are.
        """
        timeout = self._options.probe_timeout
        reply = self._at_layer(
            table, mount, lambda found: asdict(probe_opened(self._host, found, timeout))
        )
        return Answer(ERROR, text=reply.problem) if reply.problem else Answer(**reply.value)

    def _at_layer(
        self, table: MountTable, mount: Mount, doing: Callable[[int], dict[str, Any]]
    ) -> Reply:
        """Call a function in a child, with an O_PATH descriptor of a mount that is held meanwhile.

        The error of the reply is StorageOpsError if the mount is no longer there.
        """
        host = self._host
        # The table may have changed since it was read.
        stack = [same(layer, mount) for layer in table.layers(mount.point)]
        depth = len(stack) - stack.index(True) - 1 if any(stack) else -1

        def working() -> dict[str, Any]:
            if depth < 0:
                raise StorageOpsError("it is no longer mounted there")
            if depth:
                _own_namespace()
            for _layer in range(depth):
                with kubelet.opened_parent(host.path(mount.point), host.path(self._root)) as (
                    folder,
                    name,
                ):
                    # The layers above are dead: MNT_DETACH asks no server.
                    call_libc(
                        "umount2", f"/proc/self/fd/{folder}/{name}".encode(), _MNT_DETACH_NOFOLLOW
                    )
            # In a copy of the namespace it has another number.
            with held(host, mount, self._root, number=not depth) as found:
                return doing(found)

        return host.bounded(working, self._options.probe_timeout + _STEP_SECONDS)

    # apply

    def apply(self, action: Action) -> None:
        """Carry out one action. No error contains a secret, whichever program wrote it."""
        step: Step = action.subject
        self._has_acted = True
        steps = {
            "mount": self._mount,
            "adopt_mount": self._adopt,
            "abort_connection": self._abort,
            "replace_mount": self._replace,
            "bind_mount": self._bind,
            "clean_up": self._clean_up,
            "stop_service": self._clean_up,
            "wait_for_containers": self._wait_for_containers,
            "unmount": self._unmount,
            "wait_unstaged": self._wait_unstaged,
        }
        try:
            steps[action.verb](action, step)
        # from None, since the original error would show the secret in a traceback.
        except StorageOpsError as error:
            said = _scrubbed(str(error), step.recovery.service)
            raise type(error)(said, code=error.code) from None

    def undo(self, action: Action) -> Action | None:
        """An emptied mount point gets the new mount; a new mount that is not in use is removed."""
        step: Step = action.subject
        # The deadline may have passed, which may be why the action failed.
        self._host.deadline = Deadline(UNDO_SECONDS)
        if action.verb == "replace_mount" and step.target and step.target.point in self._bare:
            # The pod that would need it is gone.
            if self._gone([step.target], read_table(self._host, "1")):
                return None
            source = f"{step.recovery.source}{step.target.root}".rstrip("/")
            return Action(
                "bind_mount",
                step.target.point,
                ["mount", "--bind", source, step.target.point],
                step,
            )
        if action.verb in ("mount", "adopt_mount") and step.recovery.key not in self._begun:
            command = (
                ["systemctl", "stop", step.recovery.unit, "then"] if action.verb == "mount" else []
            )
            # A mount that was only adopted has a server of its driver, which stays.
            verb = "stop_service" if command else "clean_up"
            return Action(
                verb, step.recovery.name, [*command, "rm", "-r", step.recovery.folder], step
            )
        return None

    def half_made(self, finding: Finding) -> list[str]:
        """What a failed repair has left that is neither the old state nor the whole new one.

        Only what this run has done counts. A tenant may have its pod deleted at any moment, and
        whoever runs what the new server talks to may have it stop answering at any moment. Neither
        must end the turns of others. What else is left of the volume is put into the evidence.
        """
        host, recovery = self._host, finding.repair[0].subject.recovery
        # As for undo(), which may have set it already: who lets each question wait must not make
        # the state unknown.
        if host.deadline is self._deadline:
            host.deadline = Deadline(max(UNDO_SECONDS, host.deadline.remaining()))
        try:
            table = read_table(host, "1")
            gone = self._gone(recovery.targets, table)
            # One that this run has emptied has the new mount by now, or could not be taken back.
            left = [
                f"{point} is {what}"
                for point, what in _points(recovery, table).items()
                if what == stacks.OTHER and point not in gone
            ]
            # With that note the next run goes on with the new mount, or tidies it up.
            noted = note_of(host, recovery.key).get("begun") is True
            told = ["the connection to its server was aborted"] if _aborted(finding) else []
            if os.path.lexists(host.path(recovery.folder)):
                (told if noted else left).append(f"{recovery.folder} is still there")
            if recovery.key not in self._begun and self._may_run(recovery):
                # Without systemd that is so whatever it did, and so of each that ends at once.
                known = told if recovery.service.as_is else left
                known.append(f"its new program may still run ({recovery.unit})")
            finding.evidence.update({"left": told} if told else {})
            return left
        finally:
            # undo() has set a deadline of its own.
            host.deadline = self._deadline

    def _may_run(self, recovery: Recovery) -> bool:
        # Without a unit, nothing tells which processes belong to the program.
        service = recovery.service
        return bool(service) and (service.as_is or self._runs(recovery))

    @before_a_change()
    def _recheck(self, recovery: Recovery, seconds: float) -> None:
        """Everything must still be as it was planned for: the same mounts, and broken.

        ``seconds``: what the repair of one mount point may take. Raises NotStarted, or Prevented if
        the deadline is too near for any repair.
        """
        host = self._host
        self._require_time(seconds, _MORE_SECONDS * (len(recovery.targets) - 1))
        table = read_table(host, "1")
        for target in recovery.targets:
            if not _as_planned(target, table.layers(target.point)):
                raise NotStarted(f"other mounts are at {target.point} than were planned for")
        points = {
            mount.device: target.point for target in recovery.targets for mount in target.take[:1]
        }
        answers = probe_folders(host, list(points.values()), self._options.probe_timeout)
        for point, answer in zip(points.values(), answers):
            # It may have been slow, or its driver has just repaired it.
            if answer.state not in (DEAD, HUNG):
                raise NotStarted(f"{point} answers now: {answer.text or answer.state}")

    def _mount(self, action: Action, step: Step) -> None:
        """Make the new mount in the repair's own folder, and prove it before any pod gets it."""
        host, recovery, service = self._host, step.recovery, step.recovery.service
        timeout = self._options.remount_timeout
        self._recheck(recovery, timeout + 3 * self._options.probe_timeout + 2 * _STEP_SECONDS)
        # What an interrupted run of the same key has left would be in the way.
        self._sweep(recovery)
        # Before anything is made, so that even a kill in the next moment is tidied up.
        self._record(recovery, begun=False)
        secret = f"{recovery.folder}/credentials"
        try:
            if service.secret:
                write_private(host.path(secret), service.secret)
            if not service.as_is:
                self._limit_all()
            result = host.run(action.command, timeout)
            # systemd-run waits for a forking program to go into the background, and a slow mount
            # may take until the time-out. So a time-out here decides nothing; the mount table does.
            if not (result.ok or result.timed_out):
                stderr = _scrubbed(result.stderr, service)
                said = result.problem or " ".join(stderr.split())[:300]
                raise ActionFailed(f"no FUSE mount came up: {said}{self._journal(recovery)}")
            self._prove_mount(recovery, self._appeared(recovery, timeout, result.seconds))
        finally:
            # The program has read it at its start, and does not read it again.
            remove(host.path(secret))

    def _limit_all(self) -> None:
        """No program of ours is started before all of them have a limit of memory together."""
        command = limit_command(self._host.read("/proc/meminfo") or "")
        result = self._host.run(command, _STEP_SECONDS)
        if not result.ok:
            said = result.problem or " ".join(result.stderr.split())[:300]
            raise ActionFailed(f"the memory of the mounts' programs could not be limited: {said}")

    def _appeared(self, recovery: Recovery, timeout: float, passed: float) -> Mount:
        """The new mount, once it is there. Raises ActionFailed after ``timeout``, or when its
        program has ended.
        """
        host = self._host
        seen: list[Mount] = []

        def ended() -> bool:
            seen[:] = [
                layer
                for layer in read_table(host, "1").layers(recovery.source)[-1:]
                if is_fuse(layer)
            ]
            return bool(seen) or not (recovery.service.as_is or self._runs(recovery))

        host.wait_for(ended, timeout - passed)
        if not seen:
            raise ActionFailed(
                f"no FUSE mount came up within {timeout:g} s{self._journal(recovery)}"
            )
        return seen[0]

    def _prove_mount(self, recovery: Recovery, mount: Mount) -> None:
        """A mount may be there before its server answers, and may be of something else."""
        (answer,) = probe_folders(self._host, [recovery.source], self._options.probe_timeout)
        if answer.state != OK:
            raise ActionFailed(
                f"the new mount cannot be listed: {answer.text}{self._journal(recovery)}"
            )
        fstypes = recovery.service.fstypes
        if mount.fstype not in fstypes:
            raise ActionFailed(
                f"the new mount is a {mount.fstype}, not {' or '.join(fstypes)}",
                code="mount_differs",
            )
        different = likeness.unlike(recovery, mount)
        if different:
            raise ActionFailed(different, code="mount_differs")
        self._require_roots(recovery)
        self._devices[recovery.key] = mount.device

    def _adopt(self, _action: Action, step: Step) -> None:
        """Use a mount that already answers."""
        recovery = step.recovery
        self._recheck(recovery, 3 * self._options.probe_timeout + 2 * _STEP_SECONDS)
        different = likeness.unlike(recovery, self._new_mount(recovery))
        if different:
            raise NotStarted(different)
        if note_of(self._host, recovery.key).get("begun"):
            # It is an interrupted run's mount and in use: if this fails, it must stay.
            self._begun.add(recovery.key)
        self._record(recovery, begun=False)
        self._require_roots(recovery)

    def _new_mount(self, recovery: Recovery) -> Mount:
        """The mount that all targets will show. Raises NotStarted if it does not answer."""
        layers = read_table(self._host, "1").layers(recovery.source)
        if not layers or not is_fuse(layers[-1]) or layers[-1].device in recovery.devices:
            raise NotStarted(f"the new mount at {recovery.source} is gone")
        (answer,) = probe_folders(self._host, [recovery.source], self._options.probe_timeout)
        if answer.state != OK:
            raise NotStarted(f"the new mount at {recovery.source} no longer answers: {answer.text}")
        if self._devices.setdefault(recovery.key, layers[-1].device) != layers[-1].device:
            raise NotStarted(f"the mount at {recovery.source} is not the one that was proven")
        return layers[-1]

    def _require_roots(self, recovery: Recovery) -> None:
        """What subPath mounts show has to be there, and of the same kind, before a dead mount is
        taken off: its users can make a file of a folder, and mount(2) puts none on the other.
        """
        host, timeout = self._host, self._options.probe_timeout
        gone = self._gone(recovery.targets, read_table(host, "1"))
        wanted = [
            (f"{recovery.source}{target.root}", target.point)
            for target in recovery.targets
            if target.root != "/" and target.point not in gone
        ]
        rounds = [wanted[at : at + MOST_CHILDREN] for at in range(0, len(wanted), MOST_CHILDREN)]
        # The server may hang at each of them. So the first that has a problem ends it, and all that
        # it may take is in what _recheck() has asked for: there, each further one has more.
        with host.deadline.shortened(timeout + _STEP_SECONDS * len(rounds)):
            for pairs in rounds:
                # A tenant may have put a link in its place, which a bind by root would follow out
                # of the volume (CVE-2017-1002101; kubernetes pkg/volume/util/subpath).
                problems = misfits(host, pairs, _trusted(recovery), self._root, timeout)
                if problems:
                    raise ActionFailed(
                        f"a subPath cannot be mounted from the new mount: {'; '.join(problems)}",
                        code="mount_differs",
                    )

    def _gone(self, targets: Iterable[Target], table: MountTable) -> set[str]:
        """The mount points that no longer exist. The kubelet removes those of a pod with it, and
        who owns the pod may delete it at any moment.
        """
        points = [target.point for target in targets]
        # What is mounted is there, and each question to one that hangs leaves a child.
        asked = [point for point in points if not table.layers(point)]
        return set(kubelet.absent_points(self._host, asked))

    def _abort(self, action: Action, step: Step) -> None:
        """Abort the connection to a server that hangs, after one more look."""
        host, device = self._host, action.target
        layer = next(
            mount
            for target in step.recovery.targets
            for mount in target.take
            if mount.device == device
        )
        self._require_points(step.recovery)
        # The command as it was planned and shown; no shell is involved.
        *mounting, _write_word, file, text = action.command
        # Without systemd's sys-fs-fuse-connections.mount, fusectl may not be mounted.
        if mounting and not host.exists(os.path.dirname(file)):
            _require_hung(layer, self._ask_below(read_table(host, "1"), layer))
            result = host.run(mounting[:-1])
            if not result.ok:
                raise ActionFailed(result.describe(), code="program_failed")

        def cutting(found: int) -> dict[str, Any]:
            answer = probe_opened(host, found, self._options.probe_timeout)
            # The number of the connection is that of the device, which is not another's as long as
            # the mount is held.
            if answer.state == HUNG:
                _poke(host.path(file), text)
            return asdict(answer)

        # In a child with a deadline, like everything that touches a filesystem that hangs.
        reply = self._at_layer(read_table(host, "1"), layer, cutting)
        if reply.problem:
            kind = NotStarted if reply.error == StorageOpsError.__name__ else ActionFailed
            raise kind(f"{layer.point}: {reply.problem}")
        _require_hung(layer, Answer(**reply.value))
        # All waiting requests have failed by now (fs/fuse/dev.c fuse_abort_conn), and it answers as
        # a dead mount does.
        if self._ask_below(read_table(host, "1"), layer).state == HUNG:
            raise ActionFailed("it still hangs after its connection was aborted", code="mount_hung")

    def _replace(self, _action: Action, step: Step) -> None:
        """Take the dead layers off, and bind the new mount there in the same step."""
        host, recovery, target = self._host, step.recovery, step.target
        self._require_time(_STEP_SECONDS)
        table = read_table(host, "1")
        if target.point in self._gone([target], table):
            raise PassedOver(f"{target.point} is gone")
        take = self._still_planned(recovery, target, table)
        made = self._new_mount(recovery)
        source = self._source(recovery, target, made)
        # Noted first: from here on its server may serve mounts in use, and must not be stopped.
        if recovery.key not in self._begun:
            self._record(recovery, begun=True)
        self._begun.add(recovery.key)
        if target.kind == kubelet.PUBLISH:
            self._note_renewed(replace(made, point=target.point, root=target.root), table)
        self._bare.add(target.point)
        timeout = self._options.probe_timeout
        replace_mount(host, take, source, target.point, self._root, timeout)
        self._bare.discard(target.point)

    def _note_renewed(self, made: Mount, table: MountTable) -> None:
        """Note what a pod is about to get. STOR-07 compares its mount with the staging mount, and
        the driver may stage the volume again.
        """
        try:
            note_renewed(self._host, identity(made), table)
        except OSError as error:
            raise ActionFailed(f"{NOTES} could not be written: {error.strerror}") from error

    def _still_planned(self, recovery: Recovery, target: Target, table: MountTable) -> list[Mount]:
        """The planned layers of a point that are still there. Raises NotStarted if others are."""
        layers = table.layers(target.point)
        take = [mount for mount in target.take if _among(mount, layers)]
        rest = [layer for layer in layers if not _among(layer, take)]
        if not _came(rest, table.layers(recovery.source), target) and (
            stacks.top_id(rest) != target.beneath
        ):
            raise NotStarted(f"another mount is now at {target.point}")
        return take

    def _take_off(self, target: Target) -> None:
        """Unmount the dead layers that are still there."""
        # Lazy, since a process may have files of the dead mount open; these only give errors.
        timeout = self._options.probe_timeout
        unmount_dead(self._host, target.take, target.point, self._root, timeout)

    def _bind(self, _action: Action, step: Step) -> None:
        """Undo an emptied mount point: put the new mount there, unless it is there already."""
        target = step.target
        # The new mount may have come by propagation before the failure.
        layers = read_table(self._host, "1").layers(target.point)
        if (layers[-1].id if layers else 0) == target.beneath:
            source = self._source(step.recovery, target, self._new_mount(step.recovery))
            bind(self._host, source, target.point, self._root)
        self._bare.discard(target.point)

    def _source(self, recovery: Recovery, target: Target, top: Mount) -> Source:
        """What to bind, of the new mount.

        A bind has the options of what is bound (mount(2), MS_BIND). So where the target had more,
        a copy with just these is made in the repair's own folder, and bound instead.
        """
        host = self._host
        flags = [flag for flag in target.flags if flag not in top.options]
        inside = "" if target.root == "/" else target.root
        if not flags:
            return Source(f"{recovery.source}{inside}", _trusted(recovery), top.device)
        folder = f"{recovery.folder}/{'-'.join(flags)}"

        def bound() -> list[Mount]:
            return read_table(host, "1").layers(folder)

        def good(layers: list[Mount]) -> bool:
            return (
                bool(layers)
                and layers[-1].device == top.device
                and set(flags) <= set(layers[-1].options)
            )

        # mount(8) binds first, then remounts with the options. A run may have been killed in
        # between.
        if not good(bound()):
            for layer in reversed(bound()):
                unmount(host, layer, PRIVATE, lazy=True)
            make_folder(host.path(folder))
            result = host.run(["mount", "--bind", "-o", ",".join(flags), recovery.source, folder])
            if not result.ok or not good(bound()):
                raise ActionFailed(result.describe(), code="program_failed")
        return Source(f"{folder}{inside}", PRIVATE, top.device)

    def _clean_up(self, _action: Action, step: Step) -> None:
        self._sweep(step.recovery)

    def _require_time(self, seconds: float, more: float = 0.0) -> None:
        require_time(self._host.deadline, seconds, more)

    def _record(self, recovery: Recovery, begun: bool) -> None:
        """Note what is about to be done, for the run after one that is interrupted.

        ``begun``: mounts are about to be replaced. Once noted, that is never taken back.
        """
        host = self._host
        try:
            os.makedirs(host.path(PRIVATE), mode=0o700, exist_ok=True)
            for folder in (recovery.folder, f"{recovery.folder}/mount"):
                make_folder(host.path(folder))
            os.chmod(host.path(recovery.folder), 0o700)
            text = json.dumps(
                {
                    "name": recovery.name,
                    "devices": recovery.devices,
                    "fstype": recovery.fstype,
                    "origin": recovery.origin,
                    "kept": recovery.kept,
                    "handles": recovery.handles,
                    "begun": begun or bool(note_of(host, recovery.key).get("begun")),
                    "targets": [
                        {
                            "point": target.point,
                            "kind": target.kind,
                            "root": target.root,
                            "flags": target.flags,
                            "beneath": target.beneath,
                        }
                        for target in recovery.targets
                    ],
                }
            )
            write_private(host.path(f"{recovery.folder}/plan.json.new"), text)
            # A note that was half written would be taken for none, and its mounts for a driver's.
            os.rename(
                host.path(f"{recovery.folder}/plan.json.new"),
                host.path(f"{recovery.folder}/plan.json"),
            )
        except OSError as error:
            raise ActionFailed(f"{recovery.folder} could not be made: {error.strerror}") from error

    def _sweep(self, recovery: Recovery) -> None:
        """Unmount what is in the repair's own folder, remove the folder, and stop the server if it
        serves no target yet.
        """
        host = self._host
        folder = host.path(recovery.folder)
        if not os.path.lexists(folder):
            return
        table = read_table(host, "1")
        for name in host.names(recovery.folder):
            for layer in reversed(table.layers(f"{recovery.folder}/{name}")):
                unmount(host, layer, PRIVATE, lazy=True)
        if note_of(host, recovery.key).get("begun") is False and host.exists("/run/systemd/system"):
            # A server ends by itself when its last mount goes, so a failure says nothing.
            # Bounded like an undo, since a server may need a while to end.
            host.run(["systemctl", "stop", recovery.unit], UNDO_SECONDS)
        # The note goes last: without it, the next run would not find the rest.
        for name in sorted(host.names(recovery.folder), key=lambda name: name == "plan.json"):
            remove(f"{folder}/{name}")
        remove(folder)
        if os.path.lexists(folder):
            raise ActionFailed(f"{recovery.folder} could not be removed: something in it is in use")

    def _runs(self, recovery: Recovery) -> bool:
        # The unit is unknown to systemd once it has ended and was collected, which is no error.
        # Where systemd does not answer, it may run.
        result = self._host.run(
            ["systemctl", "show", "--property=ActiveState", "--value", recovery.unit]
        )
        states = ("active", "activating", "reloading", "deactivating")
        return not result.ok or result.stdout.strip() in states

    def _journal(self, recovery: Recovery) -> str:
        """The program's last words, for an error; empty if there are none."""
        result = self._host.run(
            ["journalctl", "--no-pager", "--output=cat", "--lines=5", "--unit", recovery.unit]
        )
        # Before it is cut: half a secret would not be known as one.
        text = _scrubbed(result.stdout, recovery.service)
        said = " | ".join(filter(None, map(stripped, lines(text))))[-600:]
        return f" ({recovery.unit}: {said})" if result.ok and said else ""

    @before_a_change()
    def _wait_for_containers(self, _action: Action, step: Step) -> None:
        host, recovery = self._host, step.recovery

        def look() -> list[str]:
            return running_processes(host, recovery.pods, recovery.devices)

        running = look()
        if not running:
            return
        # Waiting for nothing needs no time, so this comes after the first look.
        if not host.deadline.remaining():
            raise Prevented("no time is left to wait for containers: raise deadline")
        self._require_points(recovery)
        # The pods of all of them were being deleted when the run began. So they end side by side,
        # and those of one tenant that do not end take no time from the next volume.
        whole = self._options.containers_timeout
        self._patience = self._patience or Deadline(whole, host.deadline.clock)
        timeout = host.deadline.cap(self._patience.remaining())
        # An unmount below a running container would leave it with the dead mount for good.
        if not host.wait_for(lambda: not look(), timeout):
            left = ", ".join(look()[:5])
            raise NotStarted(
                f"containers of its pods still run after {round(timeout or whole, 1):g} s: {left}",
                code="pods_running",
            )

    def _unmount(self, _action: Action, step: Step) -> None:
        """Take the dead layers off, if no container or pod has come up meanwhile."""
        self._require_points(step.recovery, step.target)
        with before_a_change():
            self._require_unused(step.recovery)
        self._take_off(step.target)

    def _require_unused(self, recovery: Recovery) -> None:
        running = running_processes(self._host, recovery.pods, recovery.devices)
        if running:
            raise NotStarted(
                f"containers of its pods run: {', '.join(running[:5])}", code="pods_running"
            )
        # A new pod has a folder before the driver mounts anything for it.
        still = [] if recovery.pods else self._still_wanted(recovery)
        if still:
            raise NotStarted(
                f"the kubelet has folders of this volume for the pods {', '.join(still)} by now",
                code="pods_wanted",
            )

    def _still_wanted(self, recovery: Recovery) -> list[str]:
        return unmounting.still_wanted(pod_folders(self._host, self._root), recovery)

    def _require_points(self, recovery: Recovery, target: Target | None = None) -> None:
        """There must be time for all mount points of a repair, or for those from ``target`` on.

        What one needs only for being large is no reason to end the run.
        """
        each, more = _MORE_SECONDS, 0.0
        points = unmounting.in_order(recovery)
        left = points[points.index(target) if target else 0 :]
        if self._options.strategy == "kubelet":
            each = _MORE_UNMOUNT_SECONDS
            # Once the pods' mounts are gone, the kubelet must have its whole time to unstage.
            if recovery.pods and any(one.kind == kubelet.STAGING for one in left):
                more = self._options.unstage_timeout
        more += each * len(left[1:])
        self._require_time(_STEP_SECONDS + self._options.probe_timeout, more)

    def _wait_unstaged(self, _action: Action, step: Step) -> None:
        """Let the kubelet unstage the volume; unmount it if the kubelet has forgotten it."""
        with before_a_change():
            left = self._left_staged(step)
        if left:
            self._take_off(step.target)

    def _left_staged(self, step: Step) -> bool:
        """Whether the kubelet has left it for good. Raises ActionFailed if it may still unstage
        it.
        """
        host, target, timeout = self._host, step.target, self._options.unstage_timeout

        def gone() -> bool:
            return not self._left_dead(target, read_table(host, "1"))

        if gone():
            return False
        self._require_time(_STEP_SECONDS, timeout)
        if host.wait_for(gone, timeout):
            return False
        still = self._still_wanted(step.recovery)
        if still:
            raise ActionFailed(
                f"the kubelet has not unstaged it within {timeout:g} s, since it still has folders "
                f"for the pods {', '.join(still)}",
                code="pods_wanted",
            )
        return True

    # verify

    def verify(self, finding: Finding) -> list[str]:
        """What proves that every mount point shows the new filesystem; with the strategy kubelet,
        that none shows a dead one.

        Raises ActionFailed if anything is in doubt.
        """
        host = self._host
        recovery: Recovery = finding.repair[0].subject.recovery
        table = read_table(host, "1")
        dead = self._still_dead(recovery, table)
        stale = self._still_held(recovery, dead, table)
        doubts = [
            f"the dead mount is still at {target.point}"
            for target in recovery.targets
            if self._left_dead(target, table)
        ]
        if self._options.strategy == "kubelet":
            proof = [f"{target.point} has no dead mount any more" for target in recovery.targets]
        else:
            proof = self._replaced(recovery, table, doubts)
        if doubts:
            raise ActionFailed(
                f"the repair of {finding.name} is not proven: {'; '.join(doubts)}",
                code="repair_unproven",
            )
        if os.path.lexists(host.path(recovery.folder)):
            raise ActionFailed(
                f"the repair of {finding.name} is not proven: {recovery.folder} is still there",
                code="repair_unproven",
            )
        return proof + _remainders(dead, table, stale)

    def _left_dead(self, target: Target, table: MountTable) -> bool:
        """Whether one of the mounts that a repair takes off is still there."""
        layers = table.layers(target.point)
        left = [layer for layer in layers if _among(layer, target.take)]
        # Below another, or gone: what is at the path says nothing of it.
        if not left or left != layers[-1:]:
            return bool(left)
        # The next mount may have all of its numbers; but that one answers.
        (answer,) = probe_folders(self._host, [target.point], self._options.probe_timeout)
        return answer.state != OK

    def _still_dead(self, recovery: Recovery, table: MountTable) -> tuple[str, ...]:
        """The dead superblocks, without those whose number is another filesystem's by now."""
        tops = {
            mount.device: mount.point
            for mount in table.mounts
            if mount.device in recovery.devices and table.layers(mount.point)[-1:] == [mount]
        }
        answers = probe_folders(self._host, list(tops.values()), self._options.probe_timeout)
        other = [device for device, answer in zip(tops, answers) if answer.state == OK]
        return tuple(device for device in recovery.devices if device not in other)

    def _still_held(
        self, recovery: Recovery, devices: tuple[str, ...], table: MountTable
    ) -> list[dict[str, object]]:
        """Containers that keep a dead mount of this repair; facts() reports them, too.

        ``devices``: of its superblocks, those that are still dead.
        """
        others = other_mounts(self._host, devices)
        now = FuseState(
            self._host.name,
            self._root,
            table,
            others=others.mounts,
            spaces=others.namespaces,
            processes=tuple(read_processes(self._host)),
        )
        stale = stacks.stale(now, set(devices))
        self._stale = stale + [
            entry for entry in self._stale or [] if entry["device"] not in recovery.devices
        ]
        return stale

    def _replaced(self, recovery: Recovery, table: MountTable, doubts: list[str]) -> list[str]:
        """What proves that each target shows the new filesystem; adds to ``doubts`` what does
        not.
        """
        gone = self._gone(recovery.targets, table)
        targets = [target for target in recovery.targets if target.point not in gone]
        answers = probe_folders(
            self._host, [target.point for target in targets], self._options.probe_timeout
        )
        devices = set()
        for target, answer in zip(targets, answers):
            layers = table.layers(target.point)
            if answer.state != OK:
                doubts.append(f"{target.point} does not answer: {answer.text}")
            if not layers or not is_fuse(layers[-1]) or layers[-1].device in recovery.devices:
                doubts.append(f"{target.point} has no new mount")
                continue
            devices.add(layers[-1].device)
            doubts += _not_as_before(target, layers)
        # One server has one superblock; two would mean that a second run has worked here.
        if len(devices) > 1:
            doubts.append(f"its mounts are of different filesystems: {', '.join(sorted(devices))}")
        if not recovery.targets:
            return [f"{recovery.folder} is gone"]
        proof = [
            f"{target.point} can be listed, and is of the new filesystem {', '.join(devices)}"
            for target in targets
        ]
        return proof + [f"{point} is gone" for point in sorted(gone)]


def _asked(
    table: MountTable, found: dict[str, Superblock], unfinished: tuple[Unfinished, ...]
) -> dict[str, str]:
    """By device of a superblock, the path at which it is probed; those that can be."""
    asked = {device: stacks.to_ask(table, superblock) for device, superblock in found.items()}
    # A new mount that an interrupted run left may be what its mount points are waiting for.
    for one in unfinished:
        layers = table.layers(one.folder)
        if layers and is_fuse(layers[-1]):
            asked.setdefault(layers[-1].device, one.folder)
    return {device: point for device, point in asked.items() if point}


def _owners(
    asked: dict[str, str], found: dict[str, Superblock], root: str, namespaces: Mapping[str, str]
) -> list[Hashable]:
    """Whose turn each question is: the namespaces of the pods that have the filesystem."""
    whose = owners_of(
        (device, kubelet.turn_of(place.pod, namespaces))
        for device, block in found.items()
        for _mount, place in block.mounts
        if place.pod
    )
    return [
        whose.get(device, kubelet.owner_of(point, root, namespaces))
        for device, point in asked.items()
    ]


def _broken(found: dict[str, Superblock], answers: dict[str, Answer]) -> set[str]:
    return {
        device for device, answer in answers.items() if device in found and stacks.is_broken(answer)
    }


def _aborted(finding: Finding) -> bool:
    """Whether a connection was, or may have been, aborted."""
    return any(
        action.verb == "abort_connection" and action.outcome in ("done", "failed")
        for action in finding.repair
    )


def _points(recovery: Recovery, table: MountTable) -> dict[str, str]:
    """By mount point, what became of it (stacks.point_is)."""
    return {
        target.point: stacks.point_is(target, table, recovery.devices)
        for target in recovery.targets
    }


def _as_planned(target: Target, layers: list[Mount]) -> bool:
    """Whether the mounts to remove are still on top, and on the same mount as before."""
    kept = max(0, len(layers) - len(target.take))
    tops = list(reversed(layers[kept:]))
    unchanged = len(tops) == len(target.take) and all(map(same, tops, target.take))
    return unchanged and stacks.top_id(layers[:kept]) == target.beneath


def _among(mount: Mount, mounts: Iterable[Mount]) -> bool:
    return any(same(one, mount) for one in mounts)


def _require_hung(layer: Mount, answer: Answer) -> None:
    if answer.state != HUNG:
        raise NotStarted(
            f"{layer.point} does not hang at a second look: {answer.text or answer.state}"
        )


def _came(rest: list[Mount], made: list[Mount], target: Target) -> bool:
    """Whether the new mount is at a target already.

    Where mount points are peers, the dead mount of one goes with that of another, and the new one
    comes with it, by propagation (mount_namespaces(7)).
    """
    return (
        bool(rest and made) and rest[-1].device == made[-1].device and rest[-1].root == target.root
    )


def _remainders(
    devices: tuple[str, ...], table: MountTable, stale: list[dict[str, object]]
) -> list[str]:
    """Where the dead filesystem is still mounted, which does not make the repair doubtful.

    Mounts that are not the kubelet's stay, and running containers keep theirs until they end.
    """
    left = sorted({printable(mount.point) for mount in table.mounts if mount.device in devices})
    told = [f"the dead filesystem is still mounted at {', '.join(left)}"] if left else []
    waiting = [
        f"{entry['container'] or entry['pod'] or entry['pid']} at {entry['point']}"
        for entry in stale
    ]
    if waiting:
        told.append(f"still seen by {', '.join(waiting)}, until that is restarted")
    return told


def _not_as_before(target: Target, layers: list[Mount]) -> list[str]:
    """In what the topmost mount of a target differs from the dead one, besides its filesystem."""
    doubts = []
    if stacks.top_id(layers[:-1]) != target.beneath or layers[-1].root != target.root:
        doubts.append(f"{target.point} is not stacked as before, or shows another folder")
    lost = [flag for flag in target.flags if flag not in layers[-1].options]
    doubts += [f"{target.point} is not mounted {', '.join(lost)}"] if lost else []
    return doubts


def _scrubbed(text: str, service: Service | None) -> str:
    """A text with the secrets of this program masked.

    The secrets of other volumes are not: tenants choose them, and could hide any word.
    """
    # The longest first, so that one that contains another is masked as a whole.
    for secret in sorted(service.secrets if service else (), key=len, reverse=True):
        for form in _spellings(secret):
            text = text.replace(form, "********")
    return text


def _spellings(secret: str) -> list[str]:
    """A secret as errors may quote it, and each of its lines that could be one; longest first."""
    each = [line for line in map(stripped, lines(secret)) if len(line) >= _SECRET_LINE]
    values = [stripped(line.partition("=")[2]) for line in each]
    texts = {secret, *each, *(value for value in values if len(value) >= _SECRET_LINE)}
    forms = {form for text in texts for form in (text, repr(text)[1:-1], json.dumps(text)[1:-1])}
    return sorted(forms, key=len, reverse=True)


def _trusted(recovery: Recovery) -> str:
    return recovery.trusted or PRIVATE


def _own_namespace() -> None:
    """A copy of the mounts for this process alone: what it unmounts stays mounted for all others,
    and what they unmount disappears here, too (mount_namespaces(7), slave mounts).
    """
    call_libc("unshare", _CLONE_NEWNS)
    call_libc("mount", b"none", b"/", None, _MS_REC_SLAVE, None)


def _poke(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
