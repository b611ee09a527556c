# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kernel modules of an initiator, iscsid and the initiator name (STOR-04)."""

from __future__ import annotations

import os
import re
import shlex
from typing import Any

from .._core.engine import Action, ActionFailed, Finding, Plan
from .._core.errors import BadOption, StorageOpsError
from .._node import kubelet
from .._node.host import Host
from .plan import (
    INITIATOR_FILE,
    RUNBOOK,
    IscsiOptions,
    IscsiState,
    Module,
    Use,
    is_active,
    not_applicable,
    plan,
)

# modules-load.d(5). /etc is the administrator's, and the only one to write to.
_PERSIST_FOLDERS = (
    "/etc/modules-load.d",
    "/run/modules-load.d",
    "/usr/lib/modules-load.d",
    "/lib/modules-load.d",
)
# kmod, libkmod/libkmod.c default_config_paths.
_MODPROBE_FOLDERS = (
    "/etc/modprobe.d",
    "/run/modprobe.d",
    "/usr/local/lib/modprobe.d",
    "/usr/lib/modprobe.d",
    "/lib/modprobe.d",
)
# The command of an install line may load the module by itself with one of these, after other steps.
_LOADERS = ("modprobe", "insmod")
# A module counts as loaded only if those that it needs are (modules.dep(5)).
_DEPENDENCIES = {"iscsi_tcp": ("libiscsi_tcp", "libiscsi", "scsi_transport_iscsi")}
# open-iscsi's database of targets, a folder for each: upstream and Debian, Red Hat (iscsiadm(8)).
_TARGETS = ("/etc/iscsi/nodes", "/var/lib/iscsi/nodes")
# Each driver's registrar makes its socket here, and CSINode lists who did (kubernetes
# pkg/kubelet/config/defaults.go; kubernetes-csi/node-driver-registrar
# cmd/csi-node-driver-registrar/node_register.go, which names it DRIVER-reg.sock).
_REGISTRY = "plugins_registry"
_SOCKET = "-reg.sock"
# Where the kubelet has volumes of CSI drivers, by the driver (kubernetes
# pkg/volume/csi/csi_attacher.go makeDeviceMountPath), and of its own iSCSI driver: of the node, and
# of each pod (pkg/volume/iscsi/iscsi.go, iscsiPluginName).
_STAGED = "plugins/kubernetes.io/csi"
_OWN = "plugins/kubernetes.io/iscsi"
_OWN_OF_PODS = "kubernetes.io~iscsi"
# More would show no more.
_MOST_FOLDERS = 100
# Also the names of files in /sys/module and /lib/modules: no slash, no dot.
_MODULE = re.compile(r"^[A-Za-z0-9_-]+$")


def audit_options(params: dict[str, Any]) -> IscsiOptions:
    """The options of an audit, checked. Raises BadOption."""
    names = ("peer_initiator_names", "peer_boot_ids", "uses_iscsi", "kubelet_root")
    odd = [name for name, used in params["uses_iscsi"].items() if not isinstance(used, bool)]
    if odd:
        raise BadOption(f"uses_iscsi has no true or false for {odd[0]}")
    return IscsiOptions(if_used=True, **{name: params[name] for name in names})


class IscsiReady:
    """The runbook load_iscsi_modules on one node."""

    def __init__(self, host: Host, options: IscsiOptions) -> None:
        self._host = host
        self._options = options

    def gather(self) -> IscsiState:
        """Read the kernel modules, the state of iscsid and the initiator name."""
        host = self._host
        host.require_root()
        # They become words of commands and parts of paths.
        odd = [name for name in self._options.modules if not _MODULE.match(name)]
        if odd or not self._options.modules:
            raise BadOption(
                f"{odd[0] if odd else ''!r} is not the name of a kernel module; see the option "
                f"modules"
            )
        # The kernel names modules with underscores, whatever their files are called.
        modules = tuple(read_module(host, name.replace("-", "_")) for name in self._options.modules)
        boot_id = host.read("/proc/sys/kernel/random/boot_id") or ""
        names = _initiator_names(host)
        iscsid, problem = _iscsid(host)
        use = read_use(host, self._options.kubelet_root) if self._options.if_used else Use()
        return IscsiState(host.name, host.kernel, modules, iscsid, names, boot_id, problem, use)

    def not_applicable(self, state: IscsiState) -> dict[str, str]:
        """The control, where nothing uses iSCSI."""
        return not_applicable(state, self._options) if self._options.if_used else {}

    def plan(self, state: IscsiState) -> Plan:
        """Decide, from what was gathered."""
        return plan(state, self._options)

    def healthy(self, state: IscsiState) -> str:
        """What a run says that finds nothing."""
        return (
            f"{', '.join(module.name for module in state.modules)} ready in kernel "
            f"{state.kernel}, iscsid and initiator name in order"
        )

    def apply(self, action: Action) -> None:
        """Carry out one action, and check its effect."""
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
        # iscsid may need a moment after systemctl has returned.
        elif not self._host.wait_for(lambda: is_active(_iscsid(self._host)[0]), 10):
            raise ActionFailed("iscsid is not active after its start: see 'journalctl -u iscsid'")

    def undo(self, action: Action) -> Action | None:
        """Nothing to take back: a loaded module that is not persisted is better than none."""
        return None

    def verify(self, finding: Finding) -> list[str]:
        """What proves the repair: the finding must not come up again."""
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
        # For a service there is no more to show than that it runs.
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
    """All about a kernel module that decides whether it works now and after the next boot."""
    # For the message: another kernel may have it, after an update without a reboot.
    kernels = [
        kernel
        for kernel in host.names("/lib/modules")
        if _is_listed(host, f"/lib/modules/{kernel}/modules.dep", name)
    ]
    blacklisted, blocked = _forbidden(host, name)
    return Module(
        name,
        _is_loaded(host, name),
        # Built-in modules are in no modules.dep, only here (Documentation/kbuild/kbuild.rst,
        # modules.builtin).
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
    """Whether a module is in a modules.dep or modules.builtin."""
    # They name files, as kernel/drivers/scsi/iscsi_tcp.ko.xz (modules.dep(5)); - and _ are the
    # same.
    wanted = re.compile(
        rf"(^|/){re.escape(name).replace('_', '[-_]')}\.ko[.a-z0-9]*(:|$)", re.MULTILINE
    )
    return wanted.search(host.read(path) or "") is not None


def _config_lines(host: Host, folders: tuple[str, ...]) -> list[tuple[str, str]]:
    """(file, line) of a configuration in several folders; the first file of a name counts."""
    files: dict[str, str] = {}
    for folder in folders:
        for name in host.names(folder):
            # Other files are ignored (modprobe.d(5), modules-load.d(5)).
            if name.endswith(".conf"):
                # A file in /etc hides one of the same name in /usr/lib, even if it is empty.
                files.setdefault(name, f"{folder}/{name}")
    return [
        (path, line.strip())
        for path in files.values()
        for line in _whole_lines(host.read(path) or "")
    ]


def _whole_lines(text: str) -> list[str]:
    """The lines of a text; a backslash at the end continues one (modprobe.d(5))."""
    return text.replace("\\\n", "").splitlines()


def _forbidden(host: Host, name: str) -> tuple[str, str]:
    """(what forbids a module and can be overruled, what cannot be overruled)."""
    # modprobe itself is asked, since only it knows which lines count. With --ignore-install it
    # ignores the install line of the module, but not those of its dependencies (modprobe(8)).
    # Blacklists count for what loads by alias, as udev does; this flag has modprobe heed them for a
    # name as well (modprobe(8), -b).
    listed = _would_do(host, name, "--use-blacklist")
    blacklisted = _named(host, "blacklist", name, "") if listed == [] else ""
    # As a plain modprobe at boot would do it.
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
    """The steps of modprobe to load a module; none if it is blacklisted; None if that fails."""
    result = host.run(["modprobe", "--show-depends", *flags, name])
    return result.stdout.splitlines() if result.ok else None


def _in_place(steps: list[str] | None) -> list[str]:
    """The commands that would run in place of a load, and that load nothing."""
    commands = [
        step.partition(" ")[2].strip() for step in steps or () if step.startswith("install ")
    ]
    return [command for command in commands if not _loads(command)]


def _loads(command: str) -> bool:
    """Whether a command calls a program that loads modules. apply() checks if it did."""
    try:
        # modprobe gives it to a shell (kmod, tools/modprobe.c command_do), which ignores comments.
        words = shlex.split(command, comments=True)
    except ValueError:
        return False
    return any(os.path.basename(word) in _LOADERS for word in words)


def _named(host: Host, word: str, name: str, command: str) -> str:
    """The configuration line that says so, with its file."""
    for path, line in _config_lines(host, _MODPROBE_FOLDERS):
        if line.replace("-", "_").split()[:2] == [word, name]:
            return f"{path}: {line}"
    # It is on the kernel's command line (modprobe.blacklist=), or in a folder that only this
    # version of modprobe reads.
    return f"modprobe's configuration: {f'{word} {name} {command}'.strip()}"


def _kernel_forbids(host: Host, name: str) -> str:
    """Whether the kernel's command line forbids a module, as a sentence; empty if not."""
    # module_blacklist= (kernel/module/main.c blacklisted), which modprobe cannot overrule.
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


def read_use(host: Host, kubelet_root: str) -> Use:
    """What shows whether the node uses iSCSI. Raises StorageOpsError if that cannot be read."""
    # As in a container without sysfs, where there would be no session.
    if not host.exists("/sys/class"):
        raise StorageOpsError(
            "there is no /sys here, so no iSCSI session would be seen: connect to the node itself "
            "(by ssh, not in a container)",
            code="privileges_missing",
        )
    root = kubelet.find_root(host, kubelet_root)
    registered = host.listing(f"{root}/{_REGISTRY}") if root else []
    return Use(
        # The kernel adds the class with the first transport (drivers/scsi/scsi_transport_iscsi.c).
        tuple(host.listing("/sys/class/iscsi_session")),
        tuple(target for folder in _TARGETS for target in host.listing(folder)),
        tuple(name[: -len(_SOCKET)] if name.endswith(_SOCKET) else name for name in registered),
        *(_volumes(host, root) if root else ((), ())),
    )


def _volumes(host: Host, root: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(CSI drivers with a volume on the node, folders of volumes of the kubelet's own iSCSI
    driver).

    They are there although iSCSI is broken: then there may be no session, and a driver's pod may
    not start. Raises StorageOpsError.
    """

    def looking() -> tuple[list[str], list[str]]:
        def inside(path: str) -> list[str]:
            return [f"{path}/{name}" for name in kubelet.folders(host.path(f"{root}/{path}"))]

        # An empty folder of a driver stays when its last volume has gone.
        staged = [path.rpartition("/")[2] for path in inside(_STAGED) if inside(path)]
        # Below plugins a folder for each interface (kubernetes pkg/volume/iscsi/iscsi_util.go
        # makePDNameInternal).
        above = [*inside(_OWN), *(f"{pod}/volumes/{_OWN_OF_PODS}" for pod in inside("pods"))]
        return staged, [path for folder in above for path in inside(folder)][:_MOST_FOLDERS]

    # In a child: a volume's folder is where a mount may hang.
    reply = host.bounded(looking)
    if reply.problem:
        raise StorageOpsError(
            f"the volumes below {root} could not be listed: {reply.problem}",
            code="evidence_unreadable",
        )
    staged, own = reply.value
    return tuple(staged), tuple(own)


def _iscsid(host: Host) -> tuple[dict[str, str], str]:
    """(unit -> its ActiveState, or ``masked``; why systemd does not tell)."""
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
    if not result.ok:
        return {}, result.describe()
    for block in result.stdout.split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        # not-found stands for a unit that is not installed.
        if values.get("LoadState") in ("loaded", "masked"):
            # A masked unit may still run, if it was masked after its start.
            runs = values["LoadState"] == "loaded" or values["ActiveState"] == "active"
            states[values["Id"]] = values["ActiveState"] if runs else "masked"
    return states, ""


def _initiator_names(host: Host) -> tuple[str, ...] | None:
    text = host.read(INITIATOR_FILE)
    if text is None:
        return None
    # open-iscsi reads KEY=VALUE lines, and # begins a comment (iscsid(8)).
    pairs = [line.partition("=") for line in text.splitlines() if not line.lstrip().startswith("#")]
    return tuple(value.strip() for key, _equals, value in pairs if key.strip() == "InitiatorName")


def _persist(path: str, module: str) -> None:
    """Write the file that loads a module at boot. Raises ActionFailed.

    It is written under another name, synced and renamed, so that a crash leaves no half file.
    """
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # systemd-modules-load reads *.conf alone, so the temporary name ends in another way.
        with open(f"{path}.new", "w", encoding="ascii") as file:
            file.write(f"# written by {RUNBOOK}\n{module}\n")
            file.flush()
            os.fsync(file.fileno())
        os.rename(f"{path}.new", path)
    except OSError as error:
        raise ActionFailed(
            f"{path} could not be written: {error.strerror}", code="program_failed"
        ) from error
