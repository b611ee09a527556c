# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""Dead and hung FUSE mounts: reads the node, carries out what fuse_plan decides, and proves it."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict, replace
from typing import Any

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.argspec import ArgumentSpec
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    Deadline,
    call_each,
    find_program,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    Action,
    ActionFailed,
    Finding,
    NotStarted,
    Plan,
    Prevented,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    BadOption,
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts import (
    limits as driver_limits,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts import plan as pure
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts import (
    recipes as fuse_recipes,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts.plan import (
    PRIVATE,
    Options,
    Pod,
    PodFolder,
    Recovery,
    Service,
    State,
    Step,
    Superblock,
    Target,
    Unfinished,
    Volume,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import kubelet
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import (
    UNDO_SECONDS,
    Host,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.mounts import (
    Mount,
    MountTable,
    each_mount,
    each_namespace,
    is_fuse,
    read_table,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.probes import (
    DEAD,
    ERROR,
    HUNG,
    OK,
    Answer,
    probe_folders,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.processes import (
    Process,
    pod_uid_of,
    read_processes,
    require_host_namespace,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.unmount import (
    bind,
    call_libc,
    unmount,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.unmount import (
    replace as replace_mount,
)

# What replacing the mounts of one volume may take besides the time-outs that the user has set.
_STEP_SECONDS = 5.0
# Of one filesystem in one mount namespace. A tenant may have 100,000 in his own (fs.mount-max).
_MOST_COPIES = 1000
_HIDDEN = "(hidden)"
# A shorter line of a configuration file, as "[x]", tells nothing.
_SECRET_LINE = 8
# linux/sched.h, linux/fs.h, linux/mount.h
_CLONE_NEWNS = 0x20000
_MS_REC_SLAVE = 0x4000 | 0x80000
_MNT_DETACH_NOFOLLOW = 2 | 8

_POD = {
    "uid": {"type": "str", "required": True},
    "namespace": {"type": "str", "default": ""},
    "name": {"type": "str", "default": ""},
    "terminating": {"type": "bool", "default": False},
}
_VOLUME = {
    "volume": {"type": "str", "default": ""},
    "driver": {"type": "str", "default": ""},
    "handle": {"type": "str", "default": ""},
    "paths": {"type": "list", "elements": "str", "default": []},
    # Not by choices: of a driver that is served by another program, only its own volumes are
    # refused.
    "recipe": {"type": "str", "default": ""},
    "sources": {"type": "list", "elements": "str", "default": []},
    "options": {"type": "list", "elements": "str", "default": []},
    "endpoint": {"type": "str", "default": ""},
    "secret_namespace": {"type": "str", "default": "", "no_log": False},
    "region": {"type": "str", "default": ""},
    "command": {"type": "list", "elements": "str", "default": []},
    "foreground": {"type": "bool", "default": True},
    "memory_max": {"type": "int"},
    "tasks_max": {"type": "int"},
    "pods": {"type": "list", "elements": "dict", "options": _POD},
}
# What an audit has in common with the repair.
PROBES_SPEC = ArgumentSpec({"probe_timeout": {"type": "float", "default": 5.0}})
OPTIONS_SPEC = PROBES_SPEC.merge(
    ArgumentSpec(
        {
            "paths": {"type": "list", "elements": "str", "default": []},
            "strategy": {"type": "str", "default": "remount", "choices": ["remount", "kubelet"]},
            "volumes": {"type": "list", "elements": "dict", "default": [], "options": _VOLUME},
            # At the top, since Ansible logs a list of dictionaries by its repr(), where a secret
            # with a backslash, a quote or a line break no longer looks like itself and is not
            # masked.
            "credentials": {"type": "dict", "default": {}, "no_log": True},
            "node": {"type": "str", "default": ""},
            "remount_timeout": {"type": "float", "default": 30.0},
            "containers_timeout": {"type": "float", "default": 0.0},
            "unstage_timeout": {"type": "float", "default": 60.0},
            "abort_hung_connections": {"type": "bool", "default": False},
            "max_repairs": {"type": "int", "default": 10},
            "accept_majority": {"type": "bool", "default": False},
        }
    )
)


def fuse_options(params: dict[str, Any]) -> Options:
    """Options of FuseRecovery, checked.

    A module that only reports lacks most of them, and repairs nothing it would have to limit.
    """
    given = {
        "max_repairs": 1_000_000,
        **{
            name: params[name]
            for name in Options.__dataclass_fields__
            if params.get(name) is not None
        },
    }
    for name, least in (
        ("probe_timeout", 0.1),
        ("remount_timeout", 1),
        ("containers_timeout", 0),
        ("unstage_timeout", 0),
        ("max_repairs", 0),
    ):
        if not given.get(name, least) >= least:  # not a number is neither
            raise BadOption(f"{name} is {given[name]:g}; give at least {least:g}")
    paths = tuple(path.rstrip("/") for path in given.get("paths", ()))
    if "" in paths:
        raise BadOption("paths has an empty path; leave the option out to look at everything")
    volumes = tuple(_volume(entry) for entry in given.get("volumes", ()))
    return Options(
        **{
            **given,
            "paths": paths,
            "volumes": _with_credentials(volumes, params.get("credentials") or {}),
        }
    )


def options_of(module: Any) -> dict[str, Any]:
    """The options of an AnsibleModule, which no longer masks the credentials in its result.

    Ansible masks every text of theirs wherever it occurs in the findings of all volumes, and their
    Secrets are written by tenants: one of the text "refuse" would hide each verdict from what
    counts them. So the options that Ansible adds to the result have none, and what a volume's own
    program says is scrubbed where it comes from (``FuseRecovery.apply``).
    """
    given = dict(module.params)
    credentials = given["credentials"] or {}
    module.params["credentials"] = dict.fromkeys(credentials, _HIDDEN)
    parts = [secrets for secrets in credentials.values() if isinstance(secrets, dict)]
    module.no_log_values -= {str(text) for secrets in parts for text in secrets.values()}
    return given


def _with_credentials(volumes: tuple[Volume, ...], given: dict[str, Any]) -> tuple[Volume, ...]:
    """Each volume with what is given for its name, its handle or one of its paths.

    No error shows a secret.
    """
    if not all(isinstance(secrets, dict) for secrets in given.values()):
        raise BadOption(
            "credentials has a part that is no dictionary: give one for each volume, by its name, "
            "handle or path"
        )
    given = {str(key).rstrip("/"): secrets for key, secrets in given.items()}
    found, left = [], set(given)
    for volume in volumes:
        keys = list(
            dict.fromkeys(
                key for key in (volume.volume, volume.handle, *volume.paths) if key in given and key
            )
        )
        if len(keys) > 1:
            raise BadOption(
                f"credentials has {volume.describe()} more than once: give it by one of "
                f"{', '.join(keys)}"
            )
        left -= set(keys)
        secrets = given[keys[0]] if keys else {}
        texts = {str(key): str(text) for key, text in secrets.items() if text is not None}
        found.append(replace(volume, credentials=texts))
    if left:
        raise BadOption(
            f"{len(left)} of the credentials are of a volume that is not among the volumes"
        )
    return tuple(found)


def _volume(entry: dict[str, Any]) -> Volume:
    """One of the option 'volumes'; which volume is meant must be said."""
    given = {
        name: entry[name] for name in Volume.__dataclass_fields__ if entry.get(name) is not None
    }
    for name in ("paths", "sources", "options", "command"):
        given[name] = tuple(given.get(name, ()))
    given["paths"] = tuple(path.rstrip("/") for path in given["paths"])
    if "pods" in given:
        given["pods"] = tuple(
            Pod(
                **{
                    name: pod[name]
                    for name in Pod.__dataclass_fields__
                    if pod.get(name) is not None
                }
            )
            for pod in given["pods"]
        )
    volume = Volume(**given)
    for name, number, least in (
        ("memory_max", volume.memory_max, pure.LEAST_MEMORY),
        ("tasks_max", volume.tasks_max, pure.LEAST_TASKS),
    ):
        if number is not None and number < least:
            raise BadOption(f"{name} of {volume.describe()} is {number}; give at least {least}")
    if not volume.describe():
        raise BadOption("an entry of 'volumes' says neither 'volume' nor 'handle' nor 'paths'")
    return volume


class FuseRecovery:
    """The runbook recover_fuse_mounts on one node."""

    def __init__(self, host: Host, options: Options) -> None:
        self._host = host
        self._deadline = host.deadline
        self._options = options
        self._root = ""
        self._stale: list[dict[str, object]] | None = None
        # Points from which the dead mount was taken, until the new one is there.
        self._bare: set[str] = set()
        # Repairs of which a point has the new mount, or would have none.
        self._begun: set[str] = set()

    def gather(self) -> State:
        """Ask each FUSE superblock of the kubelet's once; where one is broken, find out all about
        it.
        """
        host = self._host
        host.require_root()
        require_host_namespace(host)
        self._root = root = kubelet.find_root(host, self._options.kubelet_root)
        self._options = replace(
            self._options,
            paths=self._resolved(self._options.paths),
            volumes=tuple(
                replace(volume, paths=self._resolved(volume.paths))
                for volume in self._options.volumes
            ),
        )
        table = read_table(host, "1")
        found = pure.superblocks(table, root)
        unfinished = _read_unfinished(host)
        asked = {device: pure.to_ask(table, superblock) for device, superblock in found.items()}
        for one in unfinished:
            layers = table.layers(one.folder)
            if layers and is_fuse(layers[-1]):
                asked.setdefault(layers[-1].device, one.folder)
        asked = {device: point for device, point in asked.items() if point}
        answers = dict(
            zip(asked, probe_folders(host, list(asked.values()), self._options.probe_timeout))
        )
        state = State(host.name, root, table, answers, unfinished=unfinished)
        broken = {
            device
            for device, answer in answers.items()
            if answer.state in (DEAD, HUNG) and device in found
        }
        if broken or unfinished:
            self._ask_buried(state, found, answers)
            broken = {
                device
                for device, answer in answers.items()
                if answer.state in (DEAD, HUNG) and device in found
            }
            state = self._more(state, [found[device] for device in sorted(broken)], found)
        self._stale = pure.stale(state, broken)
        return state

    def plan(self, state: State) -> Plan:
        """Decide."""
        return pure.plan(state, self._options)

    def healthy(self, state: State) -> str:
        """How many were asked, and where."""
        if not state.root:
            return (
                f"there is no {self._options.kubelet_root}, and so no FUSE mount of the kubelet's"
            )
        number = len(pure.superblocks(state.table, state.root))
        return f"{number} FUSE mounts below {state.root}, and all of them answer"

    def facts(self) -> dict[str, Any]:
        """Containers that keep a dead mount although the node has a new one."""
        return {} if self._stale is None else {"stale": self._stale}

    def _resolved(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        """Paths that were given, as mountinfo has them: the kubelet's folder may be given by a
        link.
        """
        given = self._options.kubelet_root.rstrip("/")
        return tuple(
            f"{self._root}{path[len(given) :]}"
            if self._root and path.startswith(f"{given}/")
            else path
            for path in paths
        )

    def _ask_buried(
        self, state: State, found: dict[str, Superblock], answers: dict[str, Answer]
    ) -> None:
        """What lies below a broken mount, and nowhere else on top, is asked where that one is taken
        off for nobody but us.
        """
        while True:
            layers = pure.buried(state.table, found, answers)
            if not layers:
                return
            for mount in layers:
                answers[mount.device] = self._ask_below(state.table, mount)

    def _ask_below(self, table: MountTable, mount: Mount) -> Answer:
        host, timeout = self._host, self._options.probe_timeout
        stack = [layer.id for layer in table.layers(mount.point)]
        if mount.id not in stack:
            return Answer(ERROR, text="it is mounted there no more")
        depth = len(stack) - stack.index(mount.id) - 1
        if not depth:
            return probe_folders(host, [mount.point], timeout)[0]

        def asking() -> dict[str, Any]:
            _own_namespace()
            for _layer in range(depth):
                with kubelet.opened_parent(host.path(mount.point), host.path(self._root)) as (
                    folder,
                    name,
                ):
                    call_libc(
                        "umount2", f"/proc/self/fd/{folder}/{name}".encode(), _MNT_DETACH_NOFOLLOW
                    )
            return asdict(probe_folders(host, [mount.point], timeout)[0])

        reply = host.bounded(asking, timeout + _STEP_SECONDS)
        return Answer(ERROR, text=reply.problem) if reply.problem else Answer(**reply.value)

    def _more(self, state: State, broken: list[Superblock], found: dict[str, Superblock]) -> State:
        """Everything else that the plan needs, once something is wrong."""
        host = self._host
        places = [place for superblock in broken for _mount, place in superblock.mounts]
        points = sorted(
            {place.point for place in places}
            | {target.point for one in state.unfinished for target in one.targets}
        )
        inside = (
            [point for point in points if kubelet.classify(point, state.root)] if state.root else []
        )
        # Of those that answer, one tells the driver.
        noted = (
            [place.note for _mount, place in one.mounts if place.note] for one in found.values()
        )
        first = {notes[0] for notes in noted if notes}
        notes = sorted(first.union(place.note for place in places if place.note))
        fstypes = {mount.fstype for superblock in broken for mount, _place in superblock.mounts}
        recipes = [fuse_recipes.RECIPES.get(volume.recipe) for volume in self._options.volumes]
        recipes += [fuse_recipes.for_fstype(fstype) for fstype in fstypes]
        programs = {recipe.program for recipe in recipes if recipe} | {
            volume.command[0] for volume in self._options.volumes if volume.command
        }
        others, crowded = _others(host, {superblock.device for superblock in broken})
        known = dict(zip(notes, kubelet.read_notes(host, notes, state.root)))
        drivers = {note.driver for note in known.values()} | {
            volume.driver for volume in self._options.volumes
        }
        remount = self._options.strategy == "remount"
        return replace(
            state,
            limits=driver_limits.read(host, state.root, drivers - {""}) if remount else {},
            others=others,
            crowded=crowded,
            processes=tuple(read_processes(host, uses=False)),
            notes=known,
            absent=tuple(
                _absent(host, [target.point for one in state.unfinished for target in one.targets])
            ),
            parents=dict(zip(inside, kubelet.parents_problem(host, inside, state.root))),
            waiting={superblock.device: _waiting(host, superblock.device) for superblock in broken},
            programs={name: path for name in programs for path in [find_program(name)] if path},
            systemd=host.exists("/run/systemd/system"),
            folders=_pod_folders(host, state.root)
            if self._options.strategy == "kubelet" and broken
            else (),
            servers=_servers(host)
            if any(pure.kept_elsewhere(state.table, superblock) for superblock in broken)
            else (),
        )

    # apply

    def apply(self, action: Action) -> None:
        """Carry out one action. No error tells a secret, whoever said it."""
        step: Step = action.subject
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
        except StorageOpsError as error:
            said = _scrubbed(str(error), step.recovery.service)
            raise type(error)(said, code=error.code) from None

    def undo(self, action: Action) -> Action | None:
        """A mount point that was emptied gets the new mount; a new mount that is nowhere in use
        goes again.
        """
        step: Step = action.subject
        # The deadline may be what failed the action; taking it back has time of its own.
        self._host.deadline = Deadline(UNDO_SECONDS)
        if action.verb == "replace_mount" and step.target and step.target.point in self._bare:
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
            verb = "stop_service" if command else "clean_up"
            return Action(
                verb, step.recovery.name, [*command, "rm", "-r", step.recovery.folder], step
            )
        return None

    def half_made(self, finding: Finding) -> list[str]:
        """Each mount point must be as it was before, or else each must have the whole new mount."""
        host, recovery = self._host, finding.repair[0].subject.recovery
        try:
            table = read_table(host, "1")
            devices = recovery.devices
            points = {one.point: pure.point_is(one, table, devices) for one in recovery.targets}
            whole = {pure.AS_BEFORE}
            if self._options.strategy == "kubelet":
                whole.add(pure.TAKEN_OFF)
            untouched = set(points.values()) <= whole
            left = []
            if not untouched and set(points.values()) != {pure.NEW}:
                others = [point for point, what in points.items() if what != pure.AS_BEFORE]
                left += [f"{point} is {points[point]}" for point in others]
            begun = [action for action in finding.repair if action.outcome in ("done", "failed")]
            if untouched and any(action.verb == "abort_connection" for action in begun):
                left.append("the connection to its server was cut")
            if os.path.lexists(host.path(recovery.folder)):
                left.append(f"{recovery.folder} is still there")
            if untouched and recovery.service and (recovery.service.as_is or self._runs(recovery)):
                # Without a unit there is no telling.
                left.append(f"its new program may still run ({recovery.unit})")
            return left
        finally:
            # Taking back had a time of its own.
            host.deadline = self._deadline

    def _recheck(self, recovery: Recovery, seconds: float) -> None:
        """It must still be as it was planned for: the same mounts on top, and broken at a second
        look.
        """
        host = self._host
        self._require_time(seconds)
        table = read_table(host, "1")
        for target in recovery.targets:
            layers = table.layers(target.point)
            found = (
                [(layer.id, layer.device) for layer in reversed(layers[-len(target.take) :])]
                if target.take
                else []
            )
            beneath = layers[-len(target.take) - 1].id if len(layers) > len(target.take) else 0
            if (
                found != [(mount.id, mount.device) for mount in target.take]
                or beneath != target.beneath
            ):
                raise NotStarted(f"other mounts are at {target.point} than were planned for")
        points = {
            mount.device: target.point for target in recovery.targets for mount in target.take[:1]
        }
        answers = probe_folders(host, list(points.values()), self._options.probe_timeout)
        for point, answer in zip(points.values(), answers):
            if answer.state not in (DEAD, HUNG):
                raise NotStarted(f"{point} answers by now: {answer.text or answer.state}")

    def _mount(self, action: Action, step: Step) -> None:
        """Make the new mount where nobody sees it, and prove that it is one."""
        host, recovery, service = self._host, step.recovery, step.recovery.service
        timeout = self._options.remount_timeout
        self._recheck(
            recovery,
            timeout + 3 * self._options.probe_timeout + _STEP_SECONDS * (1 + len(recovery.targets)),
        )
        self._sweep(recovery)
        self._record(recovery, begun=False)
        secret = f"{recovery.folder}/credentials"
        try:
            if service.secret:
                _write(host.path(secret), service.secret)
            result = host.run(action.command, timeout)
            # systemd-run may wait as long as the mount does.
            if not (result.ok or result.timed_out):
                said = result.problem or " ".join(result.stderr.split())[:300]
                raise ActionFailed(f"no FUSE mount came up: {said}{self._journal(recovery)}")
            seen: list[Mount] = []

            def ended() -> bool:
                seen[:] = [
                    layer
                    for layer in read_table(host, "1").layers(recovery.source)[-1:]
                    if is_fuse(layer)
                ]
                return bool(seen) or not (service.as_is or self._runs(recovery))

            host.wait_for(ended, timeout - result.seconds)
            if not seen:
                raise ActionFailed(
                    f"no FUSE mount came up within {timeout:g} s{self._journal(recovery)}"
                )
            (answer,) = probe_folders(host, [recovery.source], self._options.probe_timeout)
            if answer.state != OK:
                raise ActionFailed(
                    f"the new mount does not list: {answer.text}{self._journal(recovery)}"
                )
            if seen[0].fstype not in service.fstypes:
                raise ActionFailed(
                    f"the new mount is a {seen[0].fstype}, not {' or '.join(service.fstypes)}",
                    code="mount_differs",
                )
            if pure.unlike(recovery, seen[0]):
                raise ActionFailed(pure.unlike(recovery, seen[0]), code="mount_differs")
            self._require_roots(recovery)
        finally:
            # It was read when the program started; none of them reads it again.
            _remove(host.path(secret))

    def _adopt(self, _action: Action, step: Step) -> None:
        """Use a mount that answers already."""
        recovery = step.recovery
        self._recheck(
            recovery, 2 * self._options.probe_timeout + _STEP_SECONDS * (1 + len(recovery.targets))
        )
        different = pure.unlike(recovery, self._new_mount(recovery))
        if different:
            raise NotStarted(different)
        if _note(self._host, recovery.key).get("begun"):
            # Its note is still needed if this goes wrong.
            self._begun.add(recovery.key)
        self._record(recovery, begun=False)
        self._require_roots(recovery)

    def _new_mount(self, recovery: Recovery) -> Mount:
        """The mount that is to be seen at the targets, if it is there and answers; else
        NotStarted.
        """
        layers = read_table(self._host, "1").layers(recovery.source)
        if not layers or not is_fuse(layers[-1]) or layers[-1].device in recovery.devices:
            raise NotStarted(f"the new mount at {recovery.source} is gone")
        (answer,) = probe_folders(self._host, [recovery.source], self._options.probe_timeout)
        if answer.state != OK:
            raise NotStarted(
                f"the new mount at {recovery.source} does not answer any more: {answer.text}"
            )
        return layers[-1]

    def _require_roots(self, recovery: Recovery) -> None:
        """The folders that subPaths show must be there before anything is taken away."""
        host = self._host
        wanted = sorted(
            {f"{recovery.source}{target.root}" for target in recovery.targets if target.root != "/"}
        )

        def missing() -> list[str]:
            return [
                path
                for path in wanted
                if os.path.islink(host.path(path)) or not os.path.lexists(host.path(path))
            ]

        problems = [
            problem
            for problem in kubelet.parents_problem(host, wanted, _trusted(recovery))
            if problem
        ]
        reply = host.bounded(missing)
        problems += (
            [reply.problem]
            if reply.problem
            else [f"{path!r} is not in the new mount" for path in reply.value]
        )
        if problems:
            raise ActionFailed(f"what a subPath shows cannot be shown again: {'; '.join(problems)}")

    def _abort(self, action: Action, step: Step) -> None:
        """Cut the connection to a server that hangs, after one more look."""
        host, device = self._host, action.target
        layer = next(
            mount
            for target in step.recovery.targets
            for mount in target.take
            if mount.device == device
        )
        answer = self._ask_below(read_table(host, "1"), layer)
        if answer.state != HUNG:
            raise NotStarted(
                f"{layer.point} does not hang at a second look: {answer.text or answer.state}"
            )
        *mounting, _write_word, file, text = action.command
        if mounting and not host.exists(os.path.dirname(file)):
            result = host.run(mounting[:-1])
            if not result.ok:
                raise ActionFailed(result.describe(), code="program_failed")
        reply = host.bounded(lambda: _poke(host.path(file), text))
        if reply.problem:
            raise ActionFailed(reply.problem)
        if self._ask_below(read_table(host, "1"), layer).state == HUNG:
            raise ActionFailed("it still hangs after its connection was aborted", code="mount_hung")

    def _replace(self, _action: Action, step: Step) -> None:
        """Take the dead layers off, and put the new mount there at once."""
        host, recovery, target = self._host, step.recovery, step.target
        self._require_time(_STEP_SECONDS)
        source, trusted = self._source(recovery, target)
        if recovery.key not in self._begun:
            self._record(recovery, begun=True)
        self._begun.add(recovery.key)
        table = read_table(host, "1")
        layers, made = table.layers(target.point), table.layers(recovery.source)
        left = {layer.id for layer in layers}
        take = [mount for mount in target.take if mount.id in left]
        # Where mount points are peers, the dead mounts may have gone with those of another point,
        # and the new one have come with its.
        rest = [layer for layer in layers if layer.id not in [mount.id for mount in take]]
        came = bool(rest and made) and (rest[-1].device, rest[-1].root) == (
            made[-1].device,
            target.root,
        )
        if not came and (rest[-1].id if rest else 0) != target.beneath:
            raise NotStarted(f"another mount lies at {target.point} by now")
        self._bare.add(target.point)
        replace_mount(host, take, source, trusted, target.point, self._root)
        self._bare.discard(target.point)

    def _take_off(self, target: Target) -> None:
        """Unmount the dead layers.

        Where mount points are peers they may have gone with those of another point.
        """
        left = {layer.id for layer in read_table(self._host, "1").layers(target.point)}
        for mount in target.take:
            if mount.id in left:
                unmount(self._host, mount, self._root, lazy=True)

    def _bind(self, _action: Action, step: Step) -> None:
        """After a failure: put the new mount where there is none."""
        target = step.target
        layers = read_table(self._host, "1").layers(target.point)
        if (layers[-1].id if layers else 0) == target.beneath:
            source, trusted = self._source(step.recovery, target)
            bind(self._host, source, trusted, target.point, self._root)
        self._bare.discard(target.point)

    def _source(self, recovery: Recovery, target: Target) -> tuple[str, str]:
        """(what to bind, a folder without links that it is in).

        Read-only and the like are taken over from the mount that is bound.
        """
        host, top = self._host, self._new_mount(recovery)
        flags = [flag for flag in target.flags if flag not in top.options]
        inside = "" if target.root == "/" else target.root
        if not flags:
            return f"{recovery.source}{inside}", _trusted(recovery)
        folder = f"{recovery.folder}/{'-'.join(flags)}"

        def bound() -> list[Mount]:
            return read_table(host, "1").layers(folder)

        def good(layers: list[Mount]) -> bool:
            return (
                bool(layers)
                and layers[-1].device == top.device
                and set(flags) <= set(layers[-1].options)
            )

        # mount(8) makes it in two steps, and a run may have been killed between them.
        if not good(bound()):
            for layer in reversed(bound()):
                unmount(host, layer, PRIVATE, lazy=True)
            _make_folder(host.path(folder))
            result = host.run(["mount", "--bind", "-o", ",".join(flags), recovery.source, folder])
            if not result.ok or not good(bound()):
                raise ActionFailed(result.describe(), code="program_failed")
        return f"{folder}{inside}", PRIVATE

    def _clean_up(self, _action: Action, step: Step) -> None:
        self._sweep(step.recovery)

    def _require_time(self, seconds: float) -> None:
        if self._host.deadline.remaining() < seconds:
            raise Prevented(
                f"less than {seconds:g} s are left of the deadline; run again, or raise it"
            )

    def _record(self, recovery: Recovery, begun: bool) -> None:
        """Note what is about to be done, for the run after one that is interrupted.

        What was begun stays so.
        """
        host = self._host
        try:
            os.makedirs(host.path(PRIVATE), mode=0o700, exist_ok=True)
            for folder in (recovery.folder, f"{recovery.folder}/mount"):
                _make_folder(host.path(folder))
            os.chmod(host.path(recovery.folder), 0o700)
            text = json.dumps(
                {
                    "name": recovery.name,
                    "devices": recovery.devices,
                    "fstype": recovery.fstype,
                    "origin": recovery.origin,
                    "kept": recovery.kept,
                    "begun": begun or bool(_note(host, recovery.key).get("begun")),
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
            _write(host.path(f"{recovery.folder}/plan.json.new"), text)
            os.rename(
                host.path(f"{recovery.folder}/plan.json.new"),
                host.path(f"{recovery.folder}/plan.json"),
            )
        except OSError as error:
            raise ActionFailed(f"{recovery.folder} could not be made: {error.strerror}") from error

    def _sweep(self, recovery: Recovery) -> None:
        """Unmount what is in the repair's own folder, and remove that.

        A service in which no target can live yet is stopped.
        """
        host = self._host
        folder = host.path(recovery.folder)
        if not os.path.lexists(folder):
            return
        table = read_table(host, "1")
        for name in host.names(recovery.folder):
            for layer in reversed(table.layers(f"{recovery.folder}/{name}")):
                unmount(host, layer, PRIVATE, lazy=True)
        if _note(host, recovery.key).get("begun") is False and host.exists("/run/systemd/system"):
            # Once it has been unmounted it may have ended by itself, which is as well.
            host.run(["systemctl", "stop", recovery.unit], UNDO_SECONDS)
        # The note goes last: without it nobody would know of the rest.
        for name in sorted(host.names(recovery.folder), key=lambda name: name == "plan.json"):
            _remove(f"{folder}/{name}")
        _remove(folder)
        if os.path.lexists(folder):
            raise ActionFailed(f"{recovery.folder} could not be removed: something in it is in use")

    def _runs(self, recovery: Recovery) -> bool:
        result = self._host.run(
            ["systemctl", "show", "--property=ActiveState", "--value", recovery.unit]
        )
        return result.ok and result.stdout.strip() in ("active", "activating", "reloading")

    def _journal(self, recovery: Recovery) -> str:
        """What the program said last."""
        result = self._host.run(
            ["journalctl", "--no-pager", "--output=cat", "--lines=5", "--unit", recovery.unit]
        )
        said = " | ".join(line.strip() for line in result.stdout.splitlines() if line.strip())[
            -600:
        ]
        return f" ({recovery.unit}: {said})" if result.ok and said else ""

    def _wait_for_containers(self, _action: Action, step: Step) -> None:
        host, pods = self._host, step.recovery.pods
        timeout = host.deadline.cap(self._options.containers_timeout)
        running = _running(host, pods)
        if running and not timeout:
            raise Prevented("nothing is left of the deadline to wait for containers; raise it")
        if running and not host.wait_for(lambda: not _running(host, pods), timeout):
            left = ", ".join(_running(host, pods)[:5])
            raise NotStarted(
                f"containers of its pods still run after {timeout:g} s: {left}", code="pods_running"
            )

    def _unmount(self, _action: Action, step: Step) -> None:
        """Take the dead layers off, if no container has come up meanwhile."""
        recovery = step.recovery
        # The kubelet's time is not to be cut short afterwards.
        unstaging = recovery.pods and any(
            target.kind == kubelet.STAGING for target in recovery.targets
        )
        self._require_time(_STEP_SECONDS + (self._options.unstage_timeout if unstaging else 0))
        running = _running(self._host, recovery.pods)
        if running:
            raise NotStarted(
                f"containers of its pods run: {', '.join(running[:5])}", code="pods_running"
            )
        self._take_off(step.target)

    def _wait_unstaged(self, _action: Action, step: Step) -> None:
        """Let the kubelet unstage; what it has forgotten is unmounted."""
        host, target, timeout = self._host, step.target, self._options.unstage_timeout
        devices = [mount.device for mount in target.take]

        def gone() -> bool:
            return not any(
                layer.device in devices for layer in read_table(host, "1").layers(target.point)
            )

        if gone():
            return
        self._require_time(timeout)
        if host.wait_for(gone, timeout):
            return
        still = pure.still_wanted(_pod_folders(host, self._root), step.recovery)
        if still:
            raise ActionFailed(
                f"the kubelet has not unstaged it within {timeout:g} s, since it still has folders "
                f"for the pods {', '.join(still)}",
                code="pods_wanted",
            )
        self._take_off(target)

    # verify

    def verify(self, finding: Finding) -> list[str]:
        """What proves that every point has the new mount, and answers; or, with the strategy
        kubelet, has none.
        """
        host = self._host
        recovery: Recovery = finding.repair[0].subject.recovery
        table = read_table(host, "1")
        others, _crowded = _others(host, recovery.devices)
        now = State(
            host.name,
            self._root,
            table,
            others=others,
            processes=tuple(read_processes(host, uses=False)),
        )
        stale = pure.stale(now, set(recovery.devices))
        self._stale = stale + [
            entry for entry in self._stale or [] if entry["device"] not in recovery.devices
        ]
        doubts = []
        for target in recovery.targets:
            if any(
                layer.device in recovery.devices
                for layer in table.layers(target.point)
                if layer.id in [mount.id for mount in target.take]
            ):
                doubts.append(f"the dead mount is still at {target.point}")
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
        left = sorted(
            {
                pure.printable(mount.point)
                for mount in table.mounts
                if mount.device in recovery.devices
            }
        )
        proof += [f"the dead filesystem is still mounted at {', '.join(left)}"] if left else []
        waiting = [
            f"{entry['container'] or entry['pod'] or entry['pid']} at {entry['point']}"
            for entry in stale
        ]
        return proof + (
            [f"still seen by {', '.join(waiting)}, until that is restarted"] if waiting else []
        )

    def _replaced(self, recovery: Recovery, table: MountTable, doubts: list[str]) -> list[str]:
        answers = probe_folders(
            self._host, [target.point for target in recovery.targets], self._options.probe_timeout
        )
        devices = set()
        for target, answer in zip(recovery.targets, answers):
            layers = table.layers(target.point)
            top = layers[-1] if layers else None
            if answer.state != OK:
                doubts.append(f"{target.point} does not answer: {answer.text}")
            if top is None or not is_fuse(top) or top.device in recovery.devices:
                doubts.append(f"{target.point} has no new mount")
                continue
            devices.add(top.device)
            beneath = layers[-2].id if len(layers) > 1 else 0
            if beneath != target.beneath or top.root != target.root:
                doubts.append(f"{target.point} is not stacked, or does not show, what it did")
            lost = [flag for flag in target.flags if flag not in top.options]
            doubts += [f"{target.point} is not mounted {', '.join(lost)}"] if lost else []
        if len(devices) > 1:
            doubts.append(f"its mounts are of different filesystems: {', '.join(sorted(devices))}")
        if not recovery.targets:
            return [f"{recovery.folder} is gone"]
        return [
            f"{target.point} lists, and is of the new filesystem {', '.join(devices)}"
            for target in recovery.targets
        ]


def _scrubbed(text: str, service: Service | None) -> str:
    """Without the secrets of the program that may have said it.

    Those of others would hide what it is about.
    """
    for secret in sorted(service.secrets if service else (), key=len, reverse=True):
        for form in _spellings(secret):
            text = text.replace(form, "********")
    return text


def _spellings(secret: str) -> list[str]:
    """A secret as errors may quote it, and each of its lines that could be one; the
    longest first.
    """
    lines = [line.strip() for line in secret.splitlines() if len(line.strip()) >= _SECRET_LINE]
    values = [line.partition("=")[2].strip() for line in lines]
    texts = {secret, *lines, *(value for value in values if len(value) >= _SECRET_LINE)}
    forms = {form for text in texts for form in (text, repr(text)[1:-1], json.dumps(text)[1:-1])}
    return sorted(forms, key=len, reverse=True)


def _trusted(recovery: Recovery) -> str:
    return recovery.trusted or PRIVATE


def _others(host: Host, devices: Collection[str]) -> tuple[tuple[Mount, ...], dict[str, str]]:
    """Mounts of these filesystems, and what they lie on, in the mount namespaces other than the
    node's own.

    Besides, by device, where there are so many that not all were looked at.
    """
    own = host.link("/proc/1/ns/mnt")
    mounts: list[Mount] = []
    crowded: dict[str, str] = {}
    for pid, text in each_namespace(host):
        if (
            not any(f" {device} " in text for device in devices)
            or host.link(f"/proc/{pid}/ns/mnt") == own
        ):
            continue
        needed: set[str] = set()
        counts: Counter[str] = Counter()
        for mount in each_mount(text, pid, lambda _number, device: device in devices):
            counts[mount.device] += 1
            if counts[mount.device] <= _MOST_COPIES:
                needed |= {str(mount.id), str(mount.parent)}
        mounts += each_mount(text, pid, lambda number, _device, needed=needed: number in needed)  # type: ignore[misc]
        for device, count in counts.items():
            if count > _MOST_COPIES:
                crowded[device] = (
                    f"{count} mounts in the mount namespace of pid {pid}, of which {_MOST_COPIES} "
                    "were looked at"
                )
    return tuple(mounts), crowded


def _absent(host: Host, points: list[str]) -> list[str]:
    """Those of the paths at which there is nothing; a dead mount is something."""

    def asking(point: str) -> bool:
        try:
            os.lstat(host.path(point))
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
        return False

    replies = call_each(asking, points, host.command_timeout, host.deadline.remaining())
    return [point for point, reply in zip(points, replies) if reply.value]


def _servers(host: Host) -> tuple[int, ...]:
    """Processes that have /dev/fuse open. Links in /proc are read, which asks no server."""

    def looking() -> list[int]:
        found = []
        for pid in filter(str.isdigit, os.listdir(host.path("/proc"))):
            folder = host.path(f"/proc/{pid}/fd")
            # It may end meanwhile.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if any(os.readlink(f"{folder}/{fd}") == "/dev/fuse" for fd in os.listdir(folder)):
                    found.append(int(pid))
        return found

    reply = host.bounded(looking)
    if reply.problem:
        raise StorageOpsError(f"the open files of processes could not be read: {reply.problem}")
    return tuple(reply.value)


def _waiting(host: Host, device: str) -> str:
    """How many requests its server owes; as far as fusectl is mounted."""
    number = device.partition(":")[2]
    waiting = host.read(f"{pure.CONNECTIONS}/{number}/waiting")
    return f"connection {number}: " + (
        "fusectl is not mounted" if waiting is None else f"{waiting} requests wait"
    )


def _running(host: Host, pods: Collection[str]) -> list[str]:
    """Processes in the control groups of these pods."""
    found = []
    for pid in host.names("/proc") if pods else ():
        if pid.isdigit() and pod_uid_of(host.read(f"/proc/{pid}/cgroup") or "") in pods:
            found.append(
                Process(int(pid), host.read(f"/proc/{pid}/comm") or "", "", "", "", ()).describe()
            )
    return found


def _pod_folders(host: Host, root: str) -> tuple[PodFolder, ...]:
    """Every folder of a volume in the folder of a pod; only names are read."""

    def listing() -> list[list[str]]:
        found = []
        for pod in _names(host.path(f"{root}/pods")):
            for plugin in _names(host.path(f"{root}/pods/{pod}/volumes")):
                found += [
                    [pod, plugin, volume]
                    for volume in _names(host.path(f"{root}/pods/{pod}/volumes/{plugin}"))
                ]
        return found

    reply = host.bounded(listing)
    if reply.problem:
        raise StorageOpsError(
            f"the pods' folders below {root} could not be listed: {reply.problem}"
        )
    # Names that Kubernetes does not give are nothing to it.
    known = [
        (pod, plugin, volume)
        for pod, plugin, volume in reply.value
        if kubelet.classify(f"{root}/pods/{pod}/volumes/{plugin}/{volume}/mount", root)
        or plugin != "kubernetes.io~csi"
    ]
    paths = [
        f"{root}/pods/{pod}/volumes/{plugin}/{volume}/vol_data.json"
        for pod, plugin, volume in known
        if plugin == "kubernetes.io~csi"
    ]
    notes = dict(zip(paths, kubelet.read_notes(host, paths, root)))
    folders = []
    for pod, plugin, volume in known:
        note = notes.get(
            f"{root}/pods/{pod}/volumes/{plugin}/{volume}/vol_data.json", kubelet.VolumeNote()
        )
        folders.append(PodFolder(pod, volume, note.driver, note.handle))
    return tuple(folders)


def _names(path: str) -> list[str]:
    """Names of the folders in a folder that is no link, links left out; none if it is not there."""
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return []
    try:
        with os.scandir(folder) as entries:
            return sorted(
                entry.name
                for entry in entries
                if entry.name.isprintable() and entry.is_dir(follow_symlinks=False)
            )
    finally:
        os.close(folder)


def _note(host: Host, key: str) -> dict[str, Any]:
    """What a run noted of its repair; empty if that cannot be read."""
    noted: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        noted = json.loads(host.read(f"{PRIVATE}/{key}/plan.json") or "{}")
    return noted


def _read_unfinished(host: Host) -> tuple[Unfinished, ...]:
    """What earlier runs noted and never tidied up; a note that cannot be read names no
    mount point.
    """
    found = []
    for key in host.names(PRIVATE):
        noted = _note(host, key)
        targets = tuple(
            Target(
                entry["point"],
                entry["kind"],
                (),
                entry["root"],
                tuple(entry["flags"]),
                entry["beneath"],
            )
            for entry in noted.get("targets", ())
        )
        more = {name: noted[name] for name in ("fstype", "origin") if name in noted}
        found.append(
            Unfinished(
                key,
                noted.get("name", f"{PRIVATE}/{key}"),
                tuple(noted.get("devices", ())),
                targets,
                kept=tuple(noted.get("kept", ())),
                # Of what cannot be read, nothing is known to be unused.
                begun=noted.get("begun", True),
                credentials=host.exists(f"{PRIVATE}/{key}/credentials"),
                **more,
            )
        )
    return tuple(found)


def _own_namespace() -> None:
    """A copy of the mounts for this process alone: what it unmounts stays for all others, and what
    they unmount goes here, too.
    """
    call_libc("unshare", _CLONE_NEWNS)
    call_libc("mount", b"none", b"/", None, _MS_REC_SLAVE, None)


def _make_folder(path: str) -> None:
    """A folder, if it is not there; what is mounted on it is not asked."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)


def _write(path: str, text: str) -> None:
    """A file that nobody but root can read, and that was not there before."""
    _remove(path)
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600),
        "w",
        encoding="utf-8",
    ) as file:
        file.write(text)


def _poke(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _remove(path: str) -> None:
    """A file or an empty folder; one in use stays."""
    with contextlib.suppress(OSError):
        try:
            os.unlink(path)
        except IsADirectoryError:
            os.rmdir(path)
