# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Speak to a running qemu: start it, ask it (QMP), stop it, and find out whether KVM works on this
machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .common import LabError, cache_dir, locked, patient, say
from .image import Image

QEMU = "qemu-system-x86_64"
KVM_DEADLINE = 25.0
TCG = "tcg,thread=multi,tb-size=256"
# Emulated, `rep movsb` copies byte by byte, and page tables of five levels are walked in software:
# a guest that is told of neither needs a quarter less of the processor.
CPU = "max,-erms,-la57"
HARDWARE = ("-M", "q35", "-cpu", CPU, "-smp", "2", "-display", "none", "-nodefaults")
KERNEL_OPTIONS = (
    "console=ttyS0 mitigations=off audit=0 nokaslr net.ifnames=0 tsc=reliable no_timer_check"
)


def tail(path: Path, lines: int = 15) -> str:
    """The end of a log, for an error message."""
    if not path.exists():
        return f"({path} does not exist)"
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


class Qmp:
    """One QMP command per connection: the socket is free for the next process at once."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def execute(self, command: str, deadline: float = 60, **arguments: Any) -> Any:
        deadline = patient(deadline)
        end = time.monotonic() + deadline
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(deadline)
                connection.connect(str(self.path))
                with connection.makefile("rw") as stream:
                    json.loads(stream.readline())  # the greeting
                    for name, args in (("qmp_capabilities", {}), (command, arguments)):
                        stream.write(json.dumps({"execute": name, "arguments": args}) + "\n")
                        stream.flush()
                        reply = {"event": ""}
                        while "event" in reply:
                            connection.settimeout(max(0.1, end - time.monotonic()))
                            reply = json.loads(stream.readline())
                        if "error" in reply:
                            raise LabError(f"qemu refused {name}: {reply['error']}")
                    return reply["return"]
        except (OSError, ValueError) as exc:
            raise LabError(
                f"qemu did not answer {command} on {self.path} within {deadline:.0f} s: {exc}"
            ) from exc

    def save(self, path: Path, deadline: float = 300) -> None:
        """Stop the machine and write all that it is, but for its disks, to a file."""
        self.execute("stop")
        # The default is 128 MiB/s, as if there were a network to spare.
        self.execute("migrate-set-parameters", **{"max-bandwidth": 1 << 40})
        target, part = shlex.quote(str(path)), shlex.quote(f"{path}.part")
        self.execute("migrate", uri=f"exec:cat > {part} && mv {part} {target}")
        self._wait_for_migration(path, deadline)
        # qemu has handed over the last bytes; the program may not have written them yet.
        end = time.monotonic() + deadline
        while not path.exists():
            if time.monotonic() > end:
                raise LabError(f"{path} was not written within {deadline:.0f} s")
            time.sleep(0.05)

    def load(self, path: Path, deadline: float = 300) -> None:
        """Let a machine that was started with ``-incoming defer`` go on from there."""
        self.execute("migrate-incoming", uri=f"exec:cat {shlex.quote(str(path))}")
        self._wait_for_migration(path, deadline)
        self.execute("cont")

    def _wait_for_migration(self, path: Path, deadline: float) -> None:
        end = time.monotonic() + deadline
        status = ""
        while status != "completed":
            time.sleep(0.05)
            status = self.execute("query-migrate").get("status", "")
            if status in ("failed", "cancelled") or time.monotonic() > end:
                raise LabError(f"qemu: migration of {path} within {deadline:.0f} s: {status}")


def running(pidfile: Path) -> int | None:
    """The pid of the qemu that wrote this file, if it still runs (a pid may have been given to
    another process since).
    """
    try:
        pid = int(pidfile.read_text())
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if str(pidfile).encode() in arguments else None


def start(arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
    """Start qemu detached; returns when it runs, or waits for what it is to load."""
    command = [QEMU, *HARDWARE, *arguments, "-daemonize"]
    with log.open("w") as output:
        try:
            process = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=patient(120),
                env={**os.environ, **environment},
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise LabError(
                f"qemu did not start within {patient(120):.0f} s:\n{tail(log)}"
            ) from None
    if process.returncode:
        raise LabError(f"qemu did not start:\n{tail(log)}")


def stop(pidfile: Path) -> None:
    """End the qemu that wrote this file, and wait until it has gone."""
    for number, deadline in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
        pid = running(pidfile)
        if pid is None:
            break
        os.kill(pid, number)
        end = time.monotonic() + patient(deadline)
        while running(pidfile) and time.monotonic() < end:
            time.sleep(0.05)
    else:
        if running(pidfile):
            raise LabError(f"qemu of {pidfile} cannot be killed")
    pidfile.unlink(missing_ok=True)


def clock() -> str:
    """The kernel option that tells how fast the guest's processor counts, where it is known.

    Emulated, it counts as this machine's does. A kernel that measures it on a busy machine may be
    wrong by far, and then its time runs away.
    """
    # Where the kernel cannot change the processor's speed, "cpu MHz" is that of the counter
    # (arch/x86/kernel/cpu/proc.c: cpu_khz).
    text = Path("/proc/cpuinfo").read_text()
    found = set(re.findall(r"^cpu MHz\s*: ([0-9]+)\.([0-9]{3})$", text, re.MULTILINE))
    flags = {"constant_tsc", "hypervisor"}
    if len(found) != 1 or not flags <= set(text.partition("\nflags")[2].split("\n")[0].split()):
        return ""
    ((mega, kilo),) = found
    return f"tsc_early_khz={mega}{kilo}"


def version() -> str:
    """qemu's version line."""
    try:
        return subprocess.run(
            [QEMU, "--version"], capture_output=True, text=True, check=True, timeout=patient(30)
        ).stdout.splitlines()[0]
    except FileNotFoundError:
        raise LabError(f"{QEMU} is not installed: see tests/lab/apt-packages.txt") from None


def accelerator(image: Image) -> str:
    """`kvm` if a kernel really boots with it, else TCG.

    Tried once per boot of this machine and version of qemu.
    """
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return TCG
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    decision = (
        cache_dir() / f"accelerator-{hashlib.sha256((boot + version()).encode()).hexdigest()[:12]}"
    )
    with locked(cache_dir() / "accelerator.lock", 3 * KVM_DEADLINE):
        if not decision.exists():
            say(f"trying KVM (at most {KVM_DEADLINE:.0f} s) ...")
            works = _kvm_boots(image)
            say(
                "KVM works"
                if works
                else "KVM does not boot a stock kernel here: using TCG (slower)"
            )
            decision.write_text("kvm" if works else TCG)
    return decision.read_text()


def _kvm_boots(image: Image) -> bool:
    """Whether the guest's kernel gets as far as running programs."""
    serial = cache_dir() / "accelerator.serial"
    serial.write_text("")
    arguments = [
        *HARDWARE,
        "-accel",
        "kvm",
        "-m",
        "512",
        "-no-reboot",
        "-kernel",
        str(image.kernel),
        "-initrd",
        str(image.initrd),
    ]
    arguments += ["-append", KERNEL_OPTIONS, "-serial", f"file:{serial}"]
    with subprocess.Popen(
        [QEMU, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        end = time.monotonic() + KVM_DEADLINE
        booted = False
        while not booted and process.poll() is None and time.monotonic() < end:
            time.sleep(0.2)
            booted = "Begin: Loading essential drivers" in serial.read_text(errors="replace")
        process.kill()
    return booted
