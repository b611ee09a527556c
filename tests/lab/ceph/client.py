# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A client of Ceph's in a process of its own, with an address of its own: an image's watcher, as a
node that has mapped the image.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import uuid
from pathlib import Path
from types import TracebackType

from ..common import LabError, cache_dir, patient, wait
from ..kubernetes.process import Process
from ..qemu import tail
from . import release
from .cluster import Ceph

HERE = Path(__file__).resolve().parent
BLOCK = 4096


class Client:
    """``holder.py`` with an image, at work until it is closed, killed, or the tests end. ``six``:
    the address of its host of the other family, IPv6.
    """

    mode = ""

    def __init__(
        self,
        ceph: Ceph,
        image: str,
        address: str = "127.0.0.11",
        pool: str = "rbd",
        namespace: str = "",
        six: str = "",
    ) -> None:
        self.ceph, self.image, self.pool, self.namespace = ceph, image, pool, namespace
        self.addresses = tuple(filter(None, (address, six)))
        self.process = Process(ceph.folder, f"client-{uuid.uuid4().hex[:12]}")

    def start(self) -> None:
        """Begin, and wait until the image is open, and the first block is written; after a killed
        holder of its lock that takes 30 s.
        """
        told = [f"LAB_ADDRESS{'_6' * (':' in address)}={address}" for address in self.addresses]
        preload = [*self.ceph.inside, "env", f"LD_PRELOAD={bind_source()}", *told]
        arguments = [str(self.ceph.conf), self.pool, self.namespace, self.image]
        self.process.start(
            [*preload, release.python(), "-u", str(HERE / "holder.py"), self.mode, *arguments],
            self.ceph.tied,
        )

        def begun() -> bool:
            self.process.check()
            return self._lines()[1:] != []

        wait(begun, f"{self.address} has {self.image} open", 60)

    def kill(self) -> None:
        """As the loss of power does: Ceph drops the watch after 30 s."""
        self.process.stop(signal.SIGKILL)

    def close(self) -> None:
        """Close the image, and end."""
        self.process.stop()

    def pause(self) -> None:
        """The machine hangs; it may wake up again, and go on writing as if nothing had been."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """It wakes up."""
        self._signal(signal.SIGCONT)

    @property
    def address(self) -> str:
        """The one that Ceph sees; before it has connected, the first of its host's."""
        return self.entry.rpartition(":")[0].strip("[]") or self.addresses[0]

    @property
    def spec(self) -> str:
        """The image as ``rbd`` wants it named."""
        return "/".join(part for part in (self.pool, self.namespace, self.image) if part)

    @property
    def entry(self) -> str:
        """``ADDRESS:0/NONCE``, by which Ceph knows this client."""
        return self._last("entry")

    @property
    def error(self) -> str:
        """Name of the error that the last thing it did ended with; empty when that went well."""
        lines = self._lines()
        return lines[-1][1] if lines and lines[-1][0] == "error" else ""

    def __enter__(self) -> Client:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.kill()

    def _lines(self) -> list[tuple[str, str]]:
        """What it has said; a line that is being written does not count yet."""
        text = self.process.log.read_text(errors="replace") if self.process.log.exists() else ""
        said = (line.partition(" ") for line in text.split("\n")[:-1])
        return [
            (word, rest)
            for word, _space, rest in said
            if word in ("entry", "wrote", "visit", "error")
        ]

    def _last(self, word: str) -> str:
        return next((rest for said, rest in reversed(self._lines()) if said == word), "")

    def _signal(self, number: int) -> None:
        pid = self.process.pid
        if pid is None:
            raise LabError(f"the client of {self.image} has ended:\n{tail(self.process.log)}")
        os.kill(pid, number)


class Writer(Client):
    """Holds the image open and writes numbered blocks, each into a part of the image that is its
    address's own; goes on after errors.
    """

    mode = "write"

    @property
    def acknowledged(self) -> int:
        """Number of the last block that Ceph has said is written; 0 before the first."""
        return int(self._last("wrote") or 0)

    def content(self) -> int:
        """Number of the newest of its blocks that the image holds, whoever asks; 0 when there is
        none.
        """
        target = self.process.folder / f"{self.process.name}.image"
        try:
            self.ceph.rbd("export", "--no-progress", self.spec, str(target))
            data = target.read_bytes()
        finally:
            target.unlink(missing_ok=True)
        blocks = (
            data[start : start + BLOCK].rstrip(b"\0").decode(errors="replace").split()
            for start in range(0, len(data), BLOCK)
        )
        mine = self.address
        return max((int(block[1]) for block in blocks if block[:1] == [mine]), default=0)


class Visitor(Client):
    """Opens and closes the image again and again, as retries of NodeStage do: a watcher that comes
    and goes, always the same client.
    """

    mode = "visit"

    @property
    def visits(self) -> int:
        """How often it has opened the image."""
        return int(self._last("visit") or 0)


def bind_source() -> Path:
    """The library that gives a client its address, built at its first use."""
    source = HERE / "bind_source.c"
    # Without this machine's C library, which is another one than that of LAB_CEPH. What it takes
    # from there, every C library has.
    options = ["-O2", "-Wall", "-shared", "-fPIC", "-nostdlib"]
    recipe = b"\0".join((source.read_bytes(), *map(str.encode, options)))
    target = cache_dir() / "ceph" / f"bind-{hashlib.sha256(recipe).hexdigest()[:12]}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        building = target.with_suffix(f".{os.getpid()}")
        answer = subprocess.run(
            ["gcc", *options, "-o", str(building), str(source)],
            capture_output=True,
            text=True,
            timeout=patient(60),
            check=False,
        )
        if answer.returncode:
            raise LabError(f"{source.name} cannot be built: {answer.stderr}")
        building.rename(target)
    return target
