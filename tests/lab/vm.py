# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A VM node: one Debian machine with an iSCSI array inside, started in a saved state in seconds."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import qemu, runs
from .common import DEFAULT_RELEASE, RELEASES, LabError, cache_dir, locked, patient, run, say, step
from .image import image, locate
from .state import READY, State

BOOT_DEADLINE = 240.0
SETUP_DEADLINE = 240.0
RESTORE_DEADLINE = 60.0
LOCK_DEADLINE = 900.0
# ssh appends 17 characters to a control socket's name while it makes it; the kernel's limit is 107.
LONGEST_SOCKET = 107 - 17
# Gives a command the virtual environment, and builds that where it is missing.
RUN = Path(__file__).resolve().parents[1] / "tools" / "run.sh"
DEVICES = (
    *(
        "-device",
        "virtio-blk-pci,drive=d0",
        "-device",
        "virtio-net-pci,netdev=n0,romfile=",
        "-device",
        "virtio-rng-pci",
    ),
    # Empty: a test plugs disks in that no array would make.
    *("-device", "virtio-scsi-pci,id=scsi0"),
)
SSH_OPTIONS = (
    *(
        "-F",
        "/dev/null",
        "-o",
        "BatchMode=yes",
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        "UserKnownHostsFile=/dev/null",
    ),
    *("-o", "LogLevel=ERROR", "-o", f"ConnectTimeout={patient(10):.0f}"),
    # The default withstands quantum computers, and takes an emulated processor half a second more.
    *("-o", "KexAlgorithms=curve25519-sha256"),
)


@dataclass(frozen=True)
class Result:
    """What a command in the guest answered."""

    rc: int
    stdout: str
    stderr: str


class CommandError(LabError):
    """A command in the guest failed."""


class CommandTimeout(LabError):
    """A command in the guest did not end in time; it may still be running there."""


class Vm:
    """A node by name. Its folder is keyed by the machine, and so are the states that nodes share.

    A saved state is a folder: ``machine`` is the memory and all else but disks, ``disk.qcow2`` is
    what the disk of each node is based on, and ``state.json`` is what `labctl state` said.
    """

    def __init__(self, name: str, release: str = DEFAULT_RELEASE, memory: int = 768) -> None:
        self.name, self.release, self.memory = name, release, memory
        self.image = locate(release)
        ingredients = [
            self.image.key,
            str(memory),
            *qemu.HARDWARE,
            *DEVICES,
            qemu.KERNEL_OPTIONS,
            READY.key,
        ]
        self.key = hashlib.sha256("\0".join(ingredients).encode()).hexdigest()[:10]
        self.path = cache_dir() / "vms" / f"{name}-{release}-{self.key}"
        self.states = cache_dir() / "states"
        self.pidfile = self.path / "qemu.pid"
        self.disk = self.path / "disk.qcow2"
        self.serial = self.path / "serial.log"
        # One connection for us and for Ansible, but not as another user: an emulated processor
        # takes seconds for a handshake.
        self.control = self.path / "%r.cm"
        self.qmp = qemu.Qmp(self.path / "qmp.sock")
        # What `labctl state` said when the state was saved in which the node has begun.
        self.begun: dict[str, Any] = {}
        if len(str(self.control)) + len("nobody") > LONGEST_SOCKET:
            raise LabError(
                f"{self.control} is too long for a socket: set STORAGE_OPS_CACHE to a shorter path"
            )

    @property
    def port(self) -> int:
        """The loopback port that leads to the node's sshd."""
        return int((self.path / "port").read_text())

    @property
    def running(self) -> bool:
        return qemu.running(self.pidfile) is not None

    def up(self, state: State = READY) -> None:
        """Make the node run in a saved state, whatever it was doing.

        A state is made at its first use.
        """
        image(self.release)
        self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path.parent / f"{self.name}-{self.release}.lock", LOCK_DEADLINE):
            self._drop_outdated()
            saved = self._saved(state)
            with step(f"{self.name}: start in its state {state.name}"):
                self._start_from(saved)
            self.begun = json.loads((saved / "state.json").read_text())
            self.inventory()

    def prepare(self, state: State = READY) -> None:
        """Make a saved state unless the cache has it; the node is stopped."""
        image(self.release)
        self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path.parent / f"{self.name}-{self.release}.lock", LOCK_DEADLINE):
            self._saved(state)
            self.stop()

    def reset(self, state: State = READY) -> None:
        """The same as `up`, named for what a test wants."""
        self.up(state)

    def stop(self) -> None:
        """Power off, hard; the saved states stay."""
        self._close_connections()
        qemu.stop(self.pidfile)

    def reboot(self) -> None:
        """A power loss and a boot.

        Every change to the root filesystem is kept; the array comes back as it was configured last.
        """
        with step(f"{self.name}: reboot"):
            old = self.run("cat /proc/sys/kernel/random/boot_id; sync -f /").stdout
            self._close_connections()
            self.qmp.execute("system_reset")
            self._wait_for_boot()
            if self.run("cat /proc/sys/kernel/random/boot_id").stdout == old:
                raise LabError(f"{self.name} did not reboot")

    def power_on(self) -> None:
        """Boot from what the disk had when it was stopped: what was not flushed is lost."""
        with step(f"{self.name}: power on"):
            self.launch()
            self._wait_for_boot()
            self.inventory()

    def run(
        self, command: str | Sequence[str], timeout: float = 60, check: bool = True, stdin: str = ""
    ) -> Result:
        """Run a command line as root in the guest, with a deadline."""
        line = command if isinstance(command, str) else shlex.join(command)
        argv = self.ssh(line, "-o", "ControlMaster=auto", "-o", "ControlPersist=300")
        # Files, not pipes: the control master stays behind and would keep a pipe open.
        with (
            tempfile.TemporaryFile("w+") as given,
            tempfile.TemporaryFile("w+") as out,
            tempfile.TemporaryFile("w+") as err,
        ):
            given.write(stdin)
            given.seek(0)
            try:
                rc = subprocess.run(
                    argv, stdin=given, stdout=out, stderr=err, timeout=patient(timeout), check=False
                ).returncode
            except subprocess.TimeoutExpired:
                raise CommandTimeout(
                    f"{self.name}: {line!r} did not end within {patient(timeout):.0f} s"
                ) from None
            out.seek(0)
            err.seek(0)
            result = Result(rc, out.read(), err.read())
        if check and result.rc:
            raise CommandError(
                f"{self.name}: {line!r}: rc {result.rc}\n{result.stdout}{result.stderr}"
            )
        return result

    def ssh(self, line: str, *options: str) -> list[str]:
        """A command that runs a command line in the guest, over the connection that there is."""
        key, port = str(self.image.ssh_key), str(self.port)
        common = ["-i", key, "-p", port, "-o", f"ControlPath={self.control}"]
        return ["ssh", *SSH_OPTIONS, *common, *options, "root@127.0.0.1", line]

    def plug_disk(self, name: str, megabytes: int, **properties: str) -> None:
        """Plug in a SCSI disk of QEMU's own, which reads as zeroes; without ``serial`` or ``wwn``
        it has no name at all.
        """
        size = megabytes << 20
        node: dict[str, Any] = {
            "driver": "null-co",
            "node-name": name,
            "size": size,
            "read-zeroes": True,
        }
        device: dict[str, Any] = {
            "driver": "scsi-hd",
            "id": name,
            "bus": "scsi0.0",
            "drive": name,
            **properties,
        }
        self.qmp.execute("blockdev-add", **node)
        self.qmp.execute("device_add", **device)

    def unplug_disk(self, name: str) -> None:
        """Pull it out again."""
        self.qmp.execute("device_del", id=name)
        until = time.monotonic() + patient(30)
        node: dict[str, Any] = {"node-name": name}
        while True:
            try:
                self.qmp.execute("blockdev-del", **node)
                return
            except LabError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.5)

    def labctl(self, *arguments: str, timeout: float = 300) -> str:
        """labctl's answer."""
        return self.run(["labctl", *arguments], timeout).stdout.strip()

    def state(self) -> dict[str, Any]:
        """Maps, disks, sessions and LUNs, as `labctl state` sees them."""
        state: dict[str, Any] = json.loads(self.labctl("state"))
        return state

    def inventory(self, path: Path | None = None) -> Path:
        """Write an inventory in which this node is called node1; by default beside the VM."""
        path = path or self.path / "inventory.yml"
        variables = self.login()
        lines = [
            "all:",
            "  hosts:",
            "    node1:",
            *(f"      {name}: {json.dumps(value)}" for name, value in variables.items()),
        ]
        path.write_text("\n".join(lines) + "\n")
        return path

    def login(self) -> dict[str, Any]:
        """How Ansible reaches it: variables of a host."""
        return {
            "ansible_host": "127.0.0.1",
            "ansible_port": self.port,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.image.ssh_key),
            "ansible_ssh_common_args": shlex.join(SSH_OPTIONS),
            # Ansible takes this for a format.
            "ansible_control_path": str(self.control).replace("%", "%%"),
            "ansible_python_interpreter": "/usr/bin/python3",
        }

    def _drop_outdated(self) -> None:
        """End and delete this node's predecessors, made by an older recipe."""
        for old in self.path.parent.glob(f"{self.name}-{self.release}-*"):
            if old.is_dir() and old != self.path:
                say(f"{self.name}: removing the outdated {old.name}")
                qemu.stop(old / "qemu.pid")
                shutil.rmtree(old)

    def _saved(self, state: State) -> Path:
        """The folder of a saved state; the first node that needs it makes it, and others wait."""
        before = self._saved(state.before) if state.before else None
        kind = f"{state.name}-{self.release}-{self.memory}"
        # A state loads only where it was made: same qemu, same accelerator.
        made_by = "\0".join((self.key, state.key, qemu.version(), qemu.accelerator(self.image)))
        # In the folder of the state before, whose disk is part of its own: they go together.
        around = before or self.states
        folder = around / f"{kind}-{hashlib.sha256(made_by.encode()).hexdigest()[:10]}"
        if not folder.exists():
            with locked(self.states / f"{kind}.lock", LOCK_DEADLINE):
                if not folder.exists():
                    for old in (*around.glob(f"{kind}-*/"), *around.glob(f".{kind}-*/")):
                        say(f"removing the outdated state {old.name}")
                        shutil.rmtree(old)
                    self._make(state, before, folder)
        return folder

    def _make(self, state: State, before: Path | None, folder: Path) -> None:
        work = folder.with_name(f".{folder.name}")
        work.mkdir()
        try:
            if before:
                self._start_from(before)
            else:
                with step(f"{self.name}: first boot of {self.release} (up to a minute)"):
                    self._start(self.image.disk)
                    self._wait_for_ssh(BOOT_DEADLINE)
                    self._set_clock()
            with step(f"{self.name}: making the state {state.name}"):
                self._apply(state)
            with step(f"{self.name}: saving the state {state.name}"):
                (work / "state.json").write_text(self.labctl("state"))
                self.run("sync")
                self._close_connections()
                self.qmp.save(work / "machine")
                qemu.stop(self.pidfile)
                self.disk.rename(work / "disk.qcow2")
            work.rename(folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _apply(self, state: State) -> None:
        """Follow a recipe."""
        for path, content in state.files.items():
            mode = 755 if Path(path).parent.name in ("bin", "sbin") else 644
            packed = base64.b64encode(gzip.compress(content, 1)).decode()
            unpack = f"base64 -d | gunzip > {path} && chmod {mode} {path}"
            self.run(f"mkdir -p $(dirname {path}) && {unpack}", SETUP_DEADLINE, stdin=packed)
        for command in state.commands:
            try:
                self.run(command, SETUP_DEADLINE)
            except LabError as exc:
                raise LabError(f"{exc}\nserial log:\n{qemu.tail(self.serial)}") from exc
        for module in state.modules:
            self._call(module)

    def _call(self, module: str) -> None:
        """Let Ansible call a module on the node."""
        environment = {**os.environ, "ANSIBLE_PIPELINING": "1"}
        # `make prepare` begins before the virtual environment is there.
        run(
            [str(RUN), "ansible", "node1", "-i", str(self.inventory()), "-m", module],
            SETUP_DEADLINE,
            env=environment,
        )

    def _start_from(self, saved: Path) -> None:
        self._start(saved / "disk.qcow2", "-incoming", "defer")
        self.qmp.load(saved / "machine")
        # The guest still believes it is the hour of the saving.
        self._wait_for_ssh(RESTORE_DEADLINE)
        self._set_clock()

    def _start(self, base: Path, *extra: str) -> None:
        """Start qemu with a new disk, based on that one."""
        self._close_connections()
        qemu.stop(self.pidfile)
        self.disk.unlink(missing_ok=True)
        kind = "raw" if base == self.image.disk else "qcow2"
        overlay = [
            "qemu-img",
            "create",
            "-q",
            "-f",
            "qcow2",
            "-b",
            str(base),
            "-F",
            kind,
            str(self.disk),
        ]
        subprocess.run(overlay, check=True, timeout=patient(60))
        self.launch(*extra)

    def launch(self, *extra: str) -> None:
        """Start qemu with the disk that there is."""
        # So that qemu inherits it.
        runs.current()
        port = self._free_port()
        (self.path / "port").write_text(str(port))
        self.serial.write_text("")
        arguments = [
            "-name",
            self.name,
            "-accel",
            qemu.accelerator(self.image),
            "-m",
            str(self.memory),
            "-serial",
            f"file:{self.serial}",
        ]
        arguments += [
            "-qmp",
            f"unix:{self.qmp.path},server=on,wait=off",
            "-pidfile",
            str(self.pidfile),
        ]
        arguments += ["-kernel", str(self.image.kernel), "-initrd", str(self.image.initrd)]
        options = f"root=/dev/vda rw quiet {qemu.KERNEL_OPTIONS} {qemu.clock()}"
        arguments += ["-append", options]
        arguments += [
            "-drive",
            f"file={self.disk},if=none,id=d0,format=qcow2,cache=unsafe,discard=unmap",
        ]
        arguments += ["-netdev", self._network(port)]
        log = self.path / "qemu.log"
        qemu.start([*arguments, *DEVICES, *extra], log, self._environment())

    def _network(self, port: int) -> str:
        """What the node's network card leads to: nothing but its sshd can be reached, and nothing
        from there.
        """
        return f"user,id=n0,hostfwd=tcp:127.0.0.1:{port}-:22,restrict=on"

    def _environment(self) -> dict[str, str]:
        """Of qemu, besides what this process has."""
        return {}

    def _free_port(self) -> int:
        """The port of the last time if nobody took it since, else any."""
        last = self.path / "port"
        for candidate in (int(last.read_text()) if last.exists() else 0, 0):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", candidate))
                except OSError:
                    continue
                port: int = probe.getsockname()[1]
                return port
        raise LabError("no free port on 127.0.0.1")

    def _set_clock(self) -> None:
        self.run(f"date -s @{time.time():.0f}", timeout=RESTORE_DEADLINE)

    def _wait_for_boot(self) -> None:
        self._wait_for_ssh(BOOT_DEADLINE)
        # "degraded" is an answer, too: what failed because of a fault is the test's business.
        self.run("systemctl is-system-running --wait", timeout=BOOT_DEADLINE, check=False)

    def _wait_for_ssh(self, deadline: float) -> None:
        """Until sshd greets; qemu itself accepts connections long before."""
        deadline = patient(deadline)
        end = time.monotonic() + deadline
        # Each connection costs the guest a process: a busy machine must not begin again every time.
        patience = 2.0
        while time.monotonic() < end:
            if not self.running:
                raise LabError(
                    f"{self.name}: qemu "
                    f"ended:\n{qemu.tail(self.path / 'qemu.log')}\n{qemu.tail(self.serial)}"
                )
            try:
                with socket.create_connection(("127.0.0.1", self.port), patience) as connection:
                    if connection.recv(4) == b"SSH-":
                        return
            except TimeoutError:
                patience = min(2 * patience, 60.0)
            except OSError:
                pass
            time.sleep(0.1)
        raise LabError(
            f"{self.name}: no ssh within {deadline:.0f} s; serial log:\n{qemu.tail(self.serial)}"
        )

    def _close_connections(self) -> None:
        """ssh masters would otherwise wait on a connection that the restored guest never had."""
        for socket_path in self.path.glob("*.cm"):
            command = [
                "ssh",
                "-F",
                "/dev/null",
                "-O",
                "exit",
                "-o",
                f"ControlPath={socket_path}",
                "root@127.0.0.1",
            ]
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=patient(20),
            )
            socket_path.unlink(missing_ok=True)


def existing(name: str = "") -> list[Vm]:
    """The nodes in the cache that were made by the present recipe, all or those of one name."""
    found = []
    for release in RELEASES:
        for path in sorted((cache_dir() / "vms").glob(f"*-{release}-*/")):
            vm = Vm(path.name.rsplit("-", 2)[0], release)
            if vm.path == path and name in ("", vm.name):
                found.append(vm)
    return found
