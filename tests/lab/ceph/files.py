# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CephFS on a cluster of the lab's: a metadata server, and mounts by ceph-fuse with addresses of
their own.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any

from ..common import LabError, cache_dir, patient, step, wait
from ..kubernetes.process import Process
from ..qemu import tail
from .client import bind_source
from .cluster import Ceph

# Before Ceph 15 the option has the second name. A configuration may have options that are unknown.
CHOSEN = """
[client]
client_fs = {name}
client_mds_namespace = {name}
"""


class Metadata:
    """A filesystem with one metadata server, until it is closed, its cluster is reset, or the tests
    end.
    """

    def __init__(self, ceph: Ceph, name: str = "files") -> None:
        self.ceph, self.name = ceph, name
        # By this name the cluster ends it at a reset, as all of its clients.
        self.process = Process(ceph.folder, f"client-mds-{name}")

    def start(self) -> None:
        """Until the filesystem is active."""
        program = metadata_server()
        ceph, name = self.ceph, self.name
        with step(f"{ceph.name}: starting ceph-mds"):
            for pool in (f"{name}.meta", f"{name}.data"):
                ceph.run("osd", "pool", "create", pool, "1")
            ceph.run("fs", "flag", "set", "enable_multiple", "true", "--yes-i-really-mean-it")
            ceph.run("fs", "new", name, f"{name}.meta", f"{name}.data")
            keyring = ceph.folder / f"mds.{name}.keyring"
            caps = ["mon", "allow profile mds", "osd", "allow *", "mds", "allow *"]
            ceph.run("auth", "get-or-create", f"mds.{name}", *caps, "-o", str(keyring))
            command = ["env", f"--chdir={ceph.folder}"]
            command += [str(program), "-c", str(ceph.conf), "-i", name, "-f"]
            options = {
                "keyring": keyring,
                # Without one it answers no "ceph tell". The whole path could be too long.
                "admin_socket": f"mds.{name}.asok",
                "public_addr": "127.0.0.1",
                # It changes its state with the next one of these; the default is 4 s.
                "mds_beacon_interval": 0.5,
                "mds_cache_memory_limit": 64 << 20,
            }
            command += [f"--{option}={value}" for option, value in options.items()]
            self.process.start(command, ceph.tied)
            try:
                wait(self._is_active, f"{ceph.name}: {name} is active", 60)
            except LabError as exc:
                raise LabError(f"{exc}\n{tail(self.process.log)}") from exc

    def sessions(self) -> list[dict[str, Any]]:
        """What the metadata server says of its clients."""
        found: list[dict[str, Any]] = self.ceph.json("tell", f"mds.{self.name}:0", "session", "ls")
        return found

    def pause(self) -> None:
        """It answers no more, as behind a dead network."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """It answers again."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End it, hard; the filesystem goes with the cluster's reset."""
        self.process.stop(signal.SIGKILL)

    def __enter__(self) -> Metadata:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    def _is_active(self) -> bool:
        self.process.check()
        return any(
            info["state"] == "up:active"
            for filesystem in self.ceph.json("fs", "dump")["filesystems"]
            if filesystem["mdsmap"]["fs_name"] == self.name
            for info in filesystem["mdsmap"]["info"].values()
        )

    def _signal(self, number: int) -> None:
        pid = self.process.pid
        if pid is None:
            raise LabError(f"the metadata server has ended:\n{tail(self.process.log)}")
        os.kill(pid, number)


class Mount:
    """A mount of a filesystem by ceph-fuse, from an address of its own."""

    def __init__(
        self, metadata: Metadata, address: str = "127.0.0.11", root: str = "/", host: str = ""
    ) -> None:
        self.metadata, self.address, self.root, self.host = metadata, address, root, host
        ceph = metadata.ceph
        name = f"client-fuse-{uuid.uuid4().hex[:12]}"
        self.process = Process(ceph.folder, name)
        self.folder = ceph.folder / name

    @property
    def path(self) -> Path:
        """Where to read and write it: where its server has mounted it, which may have a mount
        namespace of its own.
        """
        return Path(f"/proc/{self.process.pid}/root{self.folder}")

    def start(self) -> None:
        """Until it is mounted."""
        if not shutil.which("ceph-fuse"):
            raise LabError(
                "there is no ceph-fuse: install the packages in tests/lab/apt-packages.txt"
            )
        ceph = self.metadata.ceph
        self.folder.mkdir()
        command = ["env", f"LD_PRELOAD={bind_source()}", f"LAB_ADDRESS={self.address}"]
        # What a client calls itself is the name of its machine; it needs one of its own.
        named = ["unshare", "--uts", "sh", "-c", f'hostname {self.host}; exec "$0" "$@"']
        command += named if self.host else []
        conf = self.folder.with_suffix(".conf")
        conf.write_text(ceph.conf.read_text() + CHOSEN.format(name=self.metadata.name))
        command += ["ceph-fuse", "-c", str(conf), "-n", "client.admin", "-f", "-r", self.root]
        command += [str(self.folder)]
        self.process.start(command, ceph.tied)

        def is_mounted() -> bool:
            self.process.check()
            return os.path.ismount(self.path)

        wait(is_mounted, f"{self.address} has {self.metadata.name} mounted", 60)

    def close(self) -> None:
        """Unmount it, whatever has become of it."""
        if os.path.ismount(self.folder):
            command = ["umount", "--lazy", str(self.folder)]
            subprocess.run(command, capture_output=True, timeout=patient(30), check=False)
        self.process.stop(signal.SIGKILL)

    def __enter__(self) -> Mount:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()


def metadata_server() -> Path:
    """The program ceph-mds of the version of the other daemons, downloaded at its first use.

    Its package needs that of the manager, with 30 others, of which it uses none.
    """
    installed = shutil.which("ceph-mds")
    if installed:
        return Path(installed)
    version = _said("dpkg-query", "--show", "--showformat=${Version}", "ceph-base")
    folder = cache_dir() / "ceph" / f"ceph-mds-{version.replace('/', '_')}"
    if not folder.exists():
        building = folder.with_suffix(f".{os.getpid()}")
        building.mkdir(parents=True)
        _said("apt-get", "download", f"ceph-mds={version}", folder=building)
        (package,) = building.glob("*.deb")
        _said("dpkg-deb", "--extract", str(package), str(building))
        building.rename(folder)
    return folder / "usr" / "bin" / "ceph-mds"


def _said(*command: str, folder: Path | None = None) -> str:
    answer = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=patient(120), check=False
    )
    if answer.returncode:
        raise LabError(f"{' '.join(command)}: {answer.stderr.strip()[:1000]}")
    return answer.stdout.strip()
