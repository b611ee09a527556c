# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""Kernel modules of an initiator, iscsid and the initiator name (STOR-04)."""

from __future__ import annotations

import os
import re
import shlex

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    Action,
    ActionFailed,
    Finding,
    Plan,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    BadOption,
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._iscsi_ready.plan import (
    INITIATOR_FILE,
    RUNBOOK,
    Module,
    Options,
    State,
    is_active,
    plan,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host

# systemd-modules-load reads these; /etc is the administrator's, and ours to write to.
_PERSIST_FOLDERS = (
    "/etc/modules-load.d",
    "/run/modules-load.d",
    "/usr/lib/modules-load.d",
    "/lib/modules-load.d",
)
# libkmod/libkmod.c, default_config_paths.
_MODPROBE_FOLDERS = (
    "/etc/modprobe.d",
    "/run/modprobe.d",
    "/usr/local/lib/modprobe.d",
    "/usr/lib/modprobe.d",
    "/lib/modprobe.d",
)
# An install line may load the module itself, after something else.
_LOADERS = ("modprobe", "insmod")
# A module is proven loaded with those it stands on.
_DEPENDENCIES = {"iscsi_tcp": ("libiscsi_tcp", "libiscsi", "scsi_transport_iscsi")}
_MODULE = re.compile(r"^[A-Za-z0-9_-]+$")


class IscsiReady:
    """The runbook load_iscsi_modules on one node."""

    def __init__(self, host: Host, options: Options) -> None:
        self._host = host
        self._options = options

    def gather(self) -> State:
        """Read modules, iscsid and initiator name."""
        host = self._host
        host.require_root()
        odd = [name for name in self._options.modules if not _MODULE.match(name)]
        if odd or not self._options.modules:
            raise BadOption(
                f"{odd[0] if odd else ''!r} is no name of a kernel module; see the option modules"
            )
        # The kernel knows them by underscores, whatever their files are called.
        modules = tuple(read_module(host, name.replace("-", "_")) for name in self._options.modules)
        boot_id = host.read("/proc/sys/kernel/random/boot_id") or ""
        names = _initiator_names(host)
        return State(host.name, host.kernel, modules, _iscsid(host), names, boot_id)

    def plan(self, state: State) -> Plan:
        """Decide."""
        return plan(state, self._options)

    def healthy(self, state: State) -> str:
        """What is ready."""
        return (
            f"{', '.join(module.name for module in state.modules)} ready in kernel "
            f"{state.kernel}, iscsid and initiator name in order"
        )

    def apply(self, action: Action) -> None:
        """Carry out one action and see it done."""
        if action.verb == "persist_module":
            _persist(self._host.path(action.command[1]), action.target)
            return
        result = self._host.run(action.command)
        if not result.ok:
            raise ActionFailed(result.describe(), code="program_failed")
        if action.verb == "load_module":
            module = read_module(self._host, action.target)
            if not module.ready:
                raise ActionFailed(
                    "modprobe succeeded, but the kernel lacks "
                    f"{', '.join(module.missing_dependencies) or module.name}"
                )
        elif not self._host.wait_for(lambda: is_active(_iscsid(self._host)), 10):
            raise ActionFailed("iscsid is not active after its start: see 'journalctl -u iscsid'")

    def undo(self, action: Action) -> Action | None:
        """A module that was loaded and not persisted is better than none: nothing is taken back."""
        return None

    def verify(self, finding: Finding) -> list[str]:
        """The finding must not come up again."""
        again = [
            left
            for left in self.plan(self.gather()).findings
            if (left.kind, left.name) == (finding.kind, finding.name)
        ]
        if again:
            raise StorageOpsError(
                f"the repair of {finding.name} is not proven: {again[0].summary}",
                code="repair_unproven",
            )
        if finding.kind != "kernel module":
            return [f"{finding.name} is active"]
        module = read_module(self._host, finding.name)
        proof = [
            "in the running kernel: "
            f"{', '.join([module.name, *_DEPENDENCIES.get(module.name, ())])}"
        ]
        if module.blacklisted:
            proof.append(f"not loaded at boot as long as it is blacklisted by {module.blacklisted}")
        elif module.persisted:
            proof.append(f"loaded at boot by {module.persisted}")
        return proof


def read_module(host: Host, name: str) -> Module:
    """Everything about one kernel module that decides whether it works now and after
    the next boot.
    """
    kernels = [
        kernel
        for kernel in host.names("/lib/modules")
        if _is_listed(host, f"/lib/modules/{kernel}/modules.dep", name)
    ]
    blacklisted, blocked = _forbidden(host, name)
    return Module(
        name,
        _is_loaded(host, name),
        _is_listed(host, f"/lib/modules/{host.kernel}/modules.builtin", name),
        tuple(kernels),
        blacklisted,
        _persisted(host, name),
        tuple(other for other in _DEPENDENCIES.get(name, ()) if not _is_loaded(host, other)),
        blocked,
    )


def _is_loaded(host: Host, name: str) -> bool:
    # A built-in module has a folder there too, but only if it has parameters.
    return host.exists(f"/sys/module/{name}")


def _is_listed(host: Host, path: str, name: str) -> bool:
    """modules.dep and modules.builtin name files: ``kernel/drivers/scsi/iscsi_tcp.ko.xz: ...``; -
    and _ mean the same.
    """
    wanted = re.compile(
        rf"(^|/){re.escape(name).replace('_', '[-_]')}\.ko[.a-z0-9]*(:|$)", re.MULTILINE
    )
    return wanted.search(host.read(path) or "") is not None


def _config_lines(host: Host, folders: tuple[str, ...]) -> list[tuple[str, str]]:
    """(file, line) of a configuration spread over folders; a file hides those of the same name in
    later folders.
    """
    files: dict[str, str] = {}
    for folder in folders:
        for name in host.names(folder):
            if name.endswith(".conf"):
                files.setdefault(name, f"{folder}/{name}")
    return [
        (path, line.strip())
        for path in files.values()
        for line in _whole_lines(host.read(path) or "")
    ]


def _whole_lines(text: str) -> list[str]:
    """A backslash at the end continues a line (modprobe.d(5))."""
    return text.replace("\\\n", "").splitlines()


def _forbidden(host: Host, name: str) -> tuple[str, str]:
    """What forbids a module and can be overruled, and what cannot.

    By what modprobe itself would do, since only it knows which of the lines count. It can ignore an
    ``install`` line of the module, but not one of a dependency.
    """
    listed = _would_do(host, name, "--use-blacklist")
    blacklisted = _named(host, "blacklist", name, "") if listed == [] else ""
    commands = _in_place(_would_do(host, name))
    if not commands:
        return blacklisted, _kernel_forbids(host, name)
    left = _in_place(_would_do(host, name, "--ignore-install"))
    own = [command for command in commands if command not in left]
    blacklisted = blacklisted or (_named(host, "install", name, own[0]) if own else "")
    blocked = (
        f"modprobe runs '{left[0]}' in place of a dependency: remove that install line"
        if left
        else ""
    )
    return blacklisted, blocked or _kernel_forbids(host, name)


def _would_do(host: Host, name: str, *flags: str) -> list[str] | None:
    """The steps by which modprobe would load a module; none where it is blacklisted; None if it
    cannot.
    """
    result = host.run(["modprobe", "--show-depends", *flags, name])
    return result.stdout.splitlines() if result.ok else None


def _in_place(steps: list[str] | None) -> list[str]:
    """Commands that run in place of a load, and do not load anything."""
    commands = [
        step.partition(" ")[2].strip() for step in steps or () if step.startswith("install ")
    ]
    return [command for command in commands if not _loads(command)]


def _loads(command: str) -> bool:
    """It calls a program that loads modules; whether that works, the kernel shows afterwards."""
    try:
        # modprobe hands it to a shell (tools/modprobe.c, command_do), which ignores comments.
        words = shlex.split(command, comments=True)
    except ValueError:
        return False
    return any(os.path.basename(word) in _LOADERS for word in words)


def _named(host: Host, word: str, name: str, command: str) -> str:
    """The line of the configuration that says it, with its file."""
    for path, line in _config_lines(host, _MODPROBE_FOLDERS):
        if line.replace("-", "_").split()[:2] == [word, name]:
            return f"{path}: {line}"
    # On the kernel's command line, as modprobe.blacklist=, or where this version of modprobe looks
    # too.
    return f"modprobe's configuration: {f'{word} {name} {command}'.strip()}"


def _kernel_forbids(host: Host, name: str) -> str:
    """module_blacklist= on the kernel's command line (kernel/module/main.c, blacklisted)."""
    for word in (host.read("/proc/cmdline") or "").split():
        key, _equals, value = word.partition("=")
        if key == "module_blacklist" and name in value.replace("-", "_").split(","):
            return f"the kernel was booted with {word}: remove that argument, and reboot"
    return ""


def _persisted(host: Host, name: str) -> str:
    lines = _config_lines(host, _PERSIST_FOLDERS) + [
        ("/etc/modules", line.strip()) for line in (host.read("/etc/modules") or "").splitlines()
    ]
    return next((path for path, line in lines if line.replace("-", "_") == name), "")


def _iscsid(host: Host) -> dict[str, str]:
    """ActiveState of service and socket, or ``masked``; ``{}`` where systemd does not answer."""
    result = host.run(
        [
            "systemctl",
            "show",
            "--property=Id,LoadState,ActiveState",
            "iscsid.service",
            "iscsid.socket",
        ]
    )
    states = {}
    for block in result.stdout.split("\n\n") if result.ok else []:
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if values.get("LoadState") in ("loaded", "masked"):
            runs = values["LoadState"] == "loaded" or values["ActiveState"] == "active"
            states[values["Id"]] = values["ActiveState"] if runs else "masked"
    return states


def _initiator_names(host: Host) -> tuple[str, ...] | None:
    text = host.read(INITIATOR_FILE)
    if text is None:
        return None
    pairs = [line.partition("=") for line in text.splitlines() if not line.lstrip().startswith("#")]
    return tuple(value.strip() for key, _equals, value in pairs if key.strip() == "InitiatorName")


def _persist(path: str, module: str) -> None:
    """Written beside and renamed, so that a boot in between never sees half a file."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(f"{path}.new", "w", encoding="ascii") as file:
            file.write(f"# written by {RUNBOOK}\n{module}\n")
            file.flush()
            os.fsync(file.fileno())
        os.rename(f"{path}.new", path)
    except OSError as error:
        raise ActionFailed(
            f"{path} could not be written: {error.strerror}", code="program_failed"
        ) from error
