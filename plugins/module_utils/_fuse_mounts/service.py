# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program that serves a new FUSE mount: its command line, its credentials, its limits.

Pure: no I/O here.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from hashlib import sha256

from .._core import untrusted
from .._core.codes import Reason
from .._core.errors import Refused
from .._core.untrusted import masked
from . import recipes as fuse_recipes
from .likeness import KEPT
from .limits import Limits
from .model import (
    CACHES,
    DEFAULT_MEMORY,
    DEFAULT_TASKS,
    LEAST_MEMORY,
    LEAST_TASKS,
    SLICE,
    FuseState,
    FuseVolume,
    Recovery,
    Service,
    printable,
)

# Of the node's memory, all programs together get one such part, and at least so many MiB.
_SHARE, _LEAST_TOTAL = 4, 2048
# The next step where this host cannot mount the volume itself.
BY_DRIVER = "let the driver mount it again for new pods (strategy kubelet)"


def service_for(
    state: FuseState, entry: FuseVolume, recovery: Recovery
) -> tuple[Service | None, list[Reason]]:
    """How the new mount is made (None if that is unknown), and all reasons against it."""
    problems = _source_problems(entry)
    recipe = _recipe_for(entry, recovery)
    if recipe is None and not entry.command:
        asked = (
            f"there is no recipe {untrusted.sample_of(entry.recipe)}"
            if entry.recipe
            else f"no recipe is for mounts of the type {recovery.fstype}"
        )
        return None, [
            *problems,
            Reason(
                "mount_unknown",
                f"{asked}: give one of {', '.join(fuse_recipes.RECIPES)}, or a command, or "
                f"{BY_DRIVER}",
            ),
        ]
    # Without one source nothing else can be judged.
    if problems:
        return None, problems
    # All non-empty sources are the same here.
    source = next(filter(None, entry.sources))
    problems = [
        *_host_problems(state, entry, recipe),
        *_credential_problems(entry, recipe),
        *_unreadable(entry),
        *_label_problems(entry, recovery),
        *_word_problems(entry, source),
    ]
    try:
        service = _filled(state, entry, recipe, source, recovery)
    except Refused as error:
        # The same word may have been refused above.
        return None, list(dict.fromkeys([*problems, Reason(error.code, str(error))]))
    service = replace(
        service,
        as_is=not state.systemd,
        limits=_limits(entry, recipe, _driver_limits(state, entry, recovery)),
        secrets=tuple(filter(None, entry.credentials.values())),
    )
    return service, problems + _shown_secrets(entry, service)


def _recipe_for(entry: FuseVolume, recovery: Recovery) -> fuse_recipes.Recipe | None:
    """The recipe that the entry names, else that of the dead mounts' type."""
    if entry.command:
        return None
    if entry.recipe:
        return fuse_recipes.RECIPES.get(entry.recipe)
    return fuse_recipes.for_fstype(recovery.fstype)


def _program_name(entry: FuseVolume, recipe: fuse_recipes.Recipe | None) -> str:
    return entry.command[0] if entry.command else recipe.name if recipe else ""


def _source_problems(entry: FuseVolume) -> list[Reason]:
    """What keeps it from being known which bucket or folder to mount."""
    sources = sorted({*entry.sources} - {""})
    if len(sources) == 1:
        return []
    # The cluster may name several, as a bucket in the parameters and another in the attributes; and
    # some drivers note only in the bucket which of its folders they mount.
    why = (
        f"more than one candidate source: {', '.join(map(untrusted.sample_of, sources[:5]))}"
        if sources
        else f"no source of {entry.describe()} is known"
    )
    return [Reason("mount_unknown", f"{why}: give the right one in 'sources', or {BY_DRIVER}")]


def _host_problems(
    state: FuseState, entry: FuseVolume, recipe: fuse_recipes.Recipe | None
) -> list[Reason]:
    """What this host lacks."""
    problems = []
    # A recipe's program stays in the foreground, so without systemd it would end with the module.
    if not state.systemd and recipe:
        problems.append(
            Reason(
                "program_missing",
                "systemd does not run here, and the new mount's program would run in it: give a "
                "command that goes into the background by itself",
            )
        )
    name = _program_name(entry, recipe)
    if not state.programs.get(name, ""):
        problems.append(
            Reason("program_missing", f"{name} is not on this host: install it, or {BY_DRIVER}")
        )
    return problems


def _credential_problems(entry: FuseVolume, recipe: fuse_recipes.Recipe | None) -> list[Reason]:
    # Also with a command: without them it could mount something else.
    if entry.doubt:
        return [Reason("credentials_missing", entry.doubt)]
    missing = [key for key in fuse_recipes.NEEDED if not entry.credentials.get(key)]
    if not recipe or not missing:
        return []
    lacking = f"the credentials lack {' and '.join(missing)}"
    return [
        Reason(
            "credentials_missing",
            f"{lacking}: give them by the option 'credentials', or {BY_DRIVER}",
        )
    ]


def _unreadable(entry: FuseVolume) -> list[Reason]:
    """Mount options that the cluster has and that could not be read."""
    if not entry.unreadable:
        return []
    why = printable(entry.unreadable)
    return [Reason("mount_unknown", f"{why}: give them in 'options', or {BY_DRIVER}")]


def _driver_limits(state: FuseState, entry: FuseVolume, recovery: Recovery) -> Limits:
    """Those of the driver's container, if exactly one driver is named."""
    named = {driver for driver, _handle in recovery.handles} | {entry.driver} - {""}
    # Of two drivers it is not known which one served the mount.
    return state.limits.get(min(named), Limits()) if len(named) == 1 else Limits()


def _label_problems(entry: FuseVolume, recovery: Recovery) -> list[Reason]:
    """SELinux labels of the dead mount that the options do not repeat."""
    # By name only: the user may know another label that fits.
    given = fuse_recipes.option_values(entry.options)
    # Not every program hands a label on to the kernel, so it is not added to the options here.
    # Where one was given but does not arrive, likeness.unlike refuses the new mount.
    labels = [option for option in recovery.kept if option not in KEPT]
    return [
        Reason(
            "mount_differs",
            f"the dead mount has {printable(label)}, without which SELinux may keep its pods out: "
            f"give it in 'options', if the program takes it, or {BY_DRIVER}",
        )
        for label in labels
        if label.partition("=")[0] not in given
    ]


def _cache_of(entry: FuseVolume, source: str, recovery: Recovery) -> str:
    """The folder for what the program of this volume keeps, and no other's."""
    told = [*map(list, recovery.handles), entry.endpoint, source]
    return f"{CACHES}/{sha256(json.dumps(told).encode()).hexdigest()[:16]}"


def _filled(
    state: FuseState,
    entry: FuseVolume,
    recipe: fuse_recipes.Recipe | None,
    source: str,
    recovery: Recovery,
) -> Service:
    """The command line and the credentials, with all placeholders filled in.

    Raises Refused for a value that is no word of its kind.
    """
    program = state.programs.get(_program_name(entry, recipe), "")
    values = {
        "source": source,
        "target": f"{recovery.folder}/mount",
        "credentials_file": f"{recovery.folder}/credentials",
        "endpoint": entry.endpoint,
        "region": entry.region,
    }
    words = fuse_recipes.option_words(
        [*_options(entry, recipe, recovery), *_spare(state, entry, recipe)]
    )
    # The user's command decides about the options by itself, with {options} or without.
    if recipe is None:
        argv = fuse_recipes.fill(entry.command, values, {"options": words})
        secret = fuse_recipes.credentials_text(None, entry.credentials, {})
        return Service(
            (program, *argv[1:]), (recovery.fstype,), secret, foreground=entry.foreground
        )
    at = fuse_recipes.fill(recipe.at, values, {}) if entry.endpoint else []
    argv = fuse_recipes.fill(recipe.argv, values, {"options": words, "at": at})
    secret = fuse_recipes.credentials_text(recipe, entry.credentials, values)
    own = {"cache": _cache_of(entry, source, recovery)}
    environment = tuple(fuse_recipes.fill(recipe.environment, own, {}))
    # A version of the program may set another subtype than the one that made the dead mount.
    fstypes = tuple(dict.fromkeys([recipe.fstype, recovery.fstype]))
    return Service((program, *argv), fstypes, secret, environment)


def _options(
    entry: FuseVolume, recipe: fuse_recipes.Recipe | None, recovery: Recovery
) -> list[str]:
    """The mount options, with those of the dead mount that decide who may see and change files."""
    options = list(entry.options)
    given = fuse_recipes.option_values(options).keys()
    for option in (option for option in recovery.kept if option in KEPT):
        # allow_root and allow_other exclude each other in libfuse (mount.fuse3(8)).
        if not given & ({option, "allow_root"} if option == "allow_other" else {option}):
            options.append(
                f"--{option.replace('_', '-')}" if recipe and recipe.long_options else option
            )
    return options


def _spare(state: FuseState, entry: FuseVolume, recipe: fuse_recipes.Recipe | None) -> list[str]:
    """The option by which the program leaves others a part of the node's disk.

    Raises Refused if that is not known.
    """
    if recipe is None or not recipe.spares:
        return []
    given = fuse_recipes.option_values(entry.options)
    if any(name in given for name in recipe.spares):
        return []
    # What a driver's container writes is counted for its pod. What our unit writes is counted for
    # none, and a full disk has the kubelet evict any pods of the node
    # (kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction).
    folder = fuse_recipes.folder_of(recipe, entry.options)
    if folder not in state.spare:
        raise Refused(
            f"how large the file system of {printable(folder)} is, which {recipe.name} must not "
            f"fill, is not known: give {recipe.spares[0]} in 'options'",
            code="evidence_unreadable",
        )
    return [f"{recipe.spares[0]}={state.spare[folder]}"]


# A server whose files are elsewhere needs one right of root: to mount (CAP_SYS_ADMIN, mount(2)).
# Settings that give the unit a mount namespace of its own (ProtectSystem= and the like) are left
# out: its mount would not be visible outside (systemd.exec(5)).
_CONFINED = (
    "CapabilityBoundingSet=CAP_SYS_ADMIN",
    "DevicePolicy=closed",
    "DeviceAllow=/dev/fuse rw",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "LockPersonality=yes",
    "RestrictRealtime=yes",
)


def _limits(
    entry: FuseVolume, recipe: fuse_recipes.Recipe | None, known: Limits
) -> tuple[str, ...]:
    """Properties of the systemd unit (systemd.resource-control(5), systemd.exec(5)).

    ``known``: the limits of the driver's container.
    """
    # What a tenant puts into a bucket decides how much memory its server takes, and what it parses.
    # So the server gets no more than the driver's container, in which it ran before.
    # The driver's limits are for all its volumes together, so one server never gets more than that.
    memory = DEFAULT_MEMORY if known.memory is None else max(LEAST_MEMORY, known.memory // 2**20)
    tasks = DEFAULT_TASKS if known.tasks is None else max(LEAST_TASKS, known.tasks)
    limits = (
        f"MemoryMax={memory if entry.memory_max is None else entry.memory_max}M",
        f"TasksMax={tasks if entry.tasks_max is None else entry.tasks_max}",
        # Under memory pressure the kernel ends this server first, not the kubelet, which has -999
        # (kubernetes pkg/kubelet/qos/policy.go KubeletOOMScoreAdj).
        "OOMScoreAdjust=500",
        # A core dump would contain the credentials.
        "LimitCORE=0",
        "NoNewPrivileges=yes",
    )
    # A user's own command may serve files of the node, for which it needs more rights of root.
    return limits if recipe is None else limits + _CONFINED


def _word_problems(entry: FuseVolume, source: str) -> list[Reason]:
    """Values that cannot be one word of a command line, and values with secrets in them."""
    problems = []
    given = [("source", source), ("endpoint", entry.endpoint), ("region", entry.region)]
    for what, text in given + [("option", option) for option in entry.options]:
        why = untrusted.problem(what, text) if text else ""
        if why:
            problems.append(Reason("value_refused", why))
        # A longer text was refused above, and searching it could take long.
        if len(text) <= untrusted.MAX_WORD and masked(text) != text:
            problems.append(
                Reason(
                    # As in redis://:PASSWORD@host for the metadata engine of JuiceFS.
                    "secret_exposed",
                    f"the {what} has a password in it: give that as a credential",
                )
            )
    return problems + _secret_options(entry)


def _secret_options(entry: FuseVolume) -> list[Reason]:
    """Options with a secret, since every user of the node can read command lines
    (proc_pid_cmdline(5)).
    """
    found: dict[str, None] = {}
    for option in entry.options:
        words = re.split(r"[,\s]+", option, flags=re.UNICODE)
        for word, following in zip(words, [*words[1:], "-"]):
            # An option without a value, such as password_stdin, exposes nothing.
            name, equals, value = word.lstrip("-").partition("=")
            # Of one with a dash, the value may be the next word.
            if word.startswith("-") and not equals and not following.startswith("-"):
                value = following
            # What was hidden on the way here is one, too, and no value for a program.
            hidden = untrusted.HIDDEN[:-1]
            if untrusted.is_secret(name, value) or hidden in word:
                found[f"the option {name!r}" if hidden not in name else "an option"] = None
    return [
        Reason(
            "secret_exposed",
            f"{what} is a secret, and every user can read the command line: give it as a "
            "credential",
        )
        for what in found
    ]


def _shown_secrets(entry: FuseVolume, service: Service) -> list[Reason]:
    """Credentials that the filled-in command line would contain."""
    return [
        Reason(
            "secret_exposed",
            f"the command line would contain the credential {key}, and every user can read it: "
            "use {credentials_file} in the command instead",
        )
        for key, text in entry.credentials.items()
        if text and any(text in word for word in service.argv)
    ]


def limit_command(meminfo: str) -> list[str]:
    """The command line that limits the memory of all programs together; ``meminfo``: the text of
    /proc/meminfo (proc_meminfo(5)).
    """
    # Each may take as much as the driver's container, and a tenant may have any number of volumes.
    # Always the same on one node: a limit that is lowered would end programs that run. It is kept
    # in /run, and holds as soon as the slice is there (systemctl(1) set-property).
    found = re.search(r"^MemTotal:\s*([0-9]+) kB$", meminfo, re.MULTILINE | re.ASCII)
    size = max(_LEAST_TOTAL, int(found[1]) // 1024 // _SHARE if found else 0)
    return ["systemctl", "set-property", "--runtime", SLICE, f"MemoryMax={size}M"]


def mount_command(recovery: Recovery, service: Service) -> list[str]:
    """The exact command line that starts the program."""
    if service.as_is:
        return list(service.argv)
    command = [
        # In a transient unit the program has a control group, limits and a journal of its own.
        # --collect unloads the unit even if it has failed, so that nothing is left
        # (systemd-run(1)).
        "systemd-run",
        "--quiet",
        "--collect",
        f"--unit={recovery.unit}",
        f"--description=FUSE mount for {recovery.name}",
        f"--slice={SLICE}",
    ]
    command.append(f"--property=Type={'simple' if service.foreground else 'forking'}")
    command += [f"--property={limit}" for limit in service.limits]
    command += [f"--setenv={variable}" for variable in service.environment]
    if service.secret:
        # systemd removes the file, so that it goes even if this run is killed: when the mount can
        # be listed, or when the program has ended. $MAINPID is set by systemd (systemd.exec(5)).
        remove = f"rm -f {recovery.folder}/credentials"
        # From /proc/self/mountinfo, since a stat of the new mount may hang until its server
        # answers.
        mounted = f"grep -qs ' {recovery.folder}/mount ' /proc/self/mountinfo"
        wait = f"until {mounted}; do kill -0 $MAINPID 2> /dev/null || break; sleep 0.2; done"
        # A mount that can be listed has used its credentials, so the file is no longer needed.
        lists = f"timeout -s KILL 10 ls {recovery.folder}/mount > /dev/null 2>&1"
        command.append(f'--property=ExecStartPost=-/bin/sh -c "{wait}; {lists}; {remove}"')
        command.append(f'--property=ExecStopPost=-/bin/sh -c "{remove}"')
    # systemd expands variables in command lines; $$ is a literal $ (systemd.service(5)).
    return [*command, "--", *(word.replace("$", "$$") for word in service.argv)]
