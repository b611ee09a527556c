# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A Ceph cluster on loopback, or in a network namespace of its own: one monitor and one OSD in
memory, from the distribution's packages, without systemd.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import runs
from ..common import LabError, cache_dir, patient, step, wait
from ..kubernetes.controlplane import free_ports
from ..kubernetes.process import Process
from ..qemu import tail
from . import release
from .net import SERVERS, Net, settings_of

START_DEADLINE = 60.0
COMMAND_DEADLINE = patient(60)
PROGRAMS = ("ceph-mon", "ceph-osd", "monmaptool", "ceph-authtool", "ceph", "rbd")
# user -> capabilities of those that there are from the start.
USERS = {
    "mon.": {"mon": "allow *"},
    "client.admin": {"mon": "allow *", "osd": "allow *", "mgr": "allow *", "mds": "allow *"},
    "osd.0": {"mon": "allow profile osd", "mgr": "allow profile osd", "osd": "allow *"},
}


class CephError(LabError):
    """A command of Ceph's failed."""


class Ceph:
    """A cluster by name, with the pool ``rbd``.

    Its folder holds all it has; several run side by side. ``families``: of its monitor's addresses,
    in the order of the monitor map; it is in a namespace of its own then.
    """

    def __init__(self, name: str, *, tied: bool = True, families: Sequence[str] = ()) -> None:
        self.name, self.tied, self.families = name, tied, tuple(families)
        self.folder = cache_dir() / "ceph" / name
        self.conf = self.folder / "ceph.conf"
        self.keyring = self.folder / "ceph.client.admin.keyring"
        self.mon, self.osd = Process(self.folder, "ceph-mon"), Process(self.folder, "ceph-osd")
        self.net = Net(self.folder) if families else None

    # life

    def start(self) -> None:
        """From nothing to an empty pool, whatever was there before."""
        release.use()
        missing = [program for program in PROGRAMS if not shutil.which(program)]
        if missing:
            raise LabError(
                f"there is no {', '.join(missing)}: install the packages in "
                "tests/lab/apt-packages.txt"
            )
        self.stop()
        runs.remove(self.folder)
        runs.claim(self.folder)
        self.folder.mkdir(parents=True, mode=0o700)
        with step(f"{self.name}: starting Ceph"):
            fsid = str(uuid.uuid4())
            ports = dict(zip(("v2", "v1"), free_ports(2), strict=True))
            addresses = self._monitor_at(self.families, ports)
            settings = {"fsid": fsid, "addresses": addresses, "folder": self.folder}
            self.conf.write_text(CONF.format(**settings, **(settings_of(self.families) or PLACE)))
            if self.net:
                self.net.start(self.tied)
            self._make_keyrings()
            self._program(
                "monmaptool",
                "--create",
                "--fsid",
                fsid,
                "--addv",
                "a",
                addresses,
                str(self.folder / "monmap"),
            )
            keys = [
                "--monmap",
                str(self.folder / "monmap"),
                "--keyring",
                str(self.folder / "initial.keyring"),
            ]
            self._program("ceph-mon", "--mkfs", "-i", "a", *keys)
            monitor = [*self.inside, "ceph-mon", "-c", str(self.conf), "-i", "a", "-f"]
            self.mon.start(monitor, self.tied)
            self._wait(lambda: self._answers(self.mon), self.mon, "the monitor answers")
            number = str(uuid.uuid4())
            self.run("osd", "new", number, "0")
            (self.folder / "osd").mkdir()
            self._program("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", number)
            # As systemd does: Debian's Ceph 18 looks for its classes in a relative path.
            daemon = ["env", "--chdir=/", "ceph-osd", "-c", str(self.conf), "-i", "0", "-f"]
            self.osd.start([*self.inside, *daemon], self.tied)
            self._wait(lambda: self._osds_up() == 1, self.osd, "the OSD is up")
            self.create_pool("rbd")

    def stop(self) -> None:
        """End everything, hard: nothing here is worth a farewell.

        The folder stays, for its logs.
        """
        for found in self.folder.glob("*.pid"):
            Process(self.folder, found.stem).stop(signal.SIGKILL)

    def remove(self) -> None:
        """End everything, and keep nothing."""
        self.stop()
        runs.remove(self.folder)
        runs.release(self.folder)

    def reset(self) -> None:
        """No clients, images, users or blocklist entries, as right after the start."""
        if not self.running:
            self.start()
            return
        self.thaw()
        for found in self.folder.glob("client-*.pid"):
            Process(self.folder, found.stem).stop(signal.SIGKILL)
        # A filesystem keeps its pools.
        for log in self.folder.glob("client-mds-*.log"):
            name = log.stem.removeprefix("client-mds-")
            self.run("fs", "fail", name)
            self.run("fs", "rm", name, "--yes-i-really-mean-it")
            log.unlink()
        # Images whose clients were killed can be removed after 30 s, their pool at once.
        for pool in self.json("osd", "pool", "ls"):
            self.run("osd", "pool", "delete", pool, pool, "--yes-i-really-really-mean-it")
        self.change_blocklist("clear")
        for user in self.json("auth", "ls")["auth_dump"]:
            if user["entity"] not in USERS:
                self.run("auth", "rm", user["entity"])
        self.create_pool("rbd")

    @property
    def running(self) -> bool:
        """Both daemons run."""
        return bool(self.mon.pid and self.osd.pid)

    def freeze(self) -> None:
        """The monitor answers no more, as behind a dead network."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It answers again."""
        self._signal(signal.SIGCONT)

    # access

    @property
    def inside(self) -> list[str]:
        """What runs a command where the cluster is reached; nothing on loopback."""
        return self.net.inside if self.net else []

    @property
    def python(self) -> str:
        """The interpreter of a host of Ansible's that reaches the cluster."""
        return self.net.python if self.net else release.PYTHON

    def list_first(self, family: str) -> None:
        """Have the monitor map list the addresses of this family first."""
        every = self.json("mon", "dump")["mons"][0]["public_addrs"]["addrvec"]
        ports = {found["type"]: int(found["addr"].rpartition(":")[2]) for found in every}
        order = sorted(self.families, key=lambda found: found != family)
        now = self._monitor_at(order, ports)
        self.run("mon", "set-addrs", "a", now)
        self.conf.write_text(self.conf.read_text().replace(self.addresses, now))

    def run(self, *argv: str) -> str:
        """What ``ceph`` says to an administrator on its standard output."""
        return self._program("ceph", "--connect-timeout", f"{patient(10):.0f}", *argv)

    def json(self, *argv: str) -> Any:
        """The same, as data."""
        return json.loads(self.run(*argv, "--format", "json"))

    def rbd(self, *argv: str) -> str:
        """What ``rbd`` says to an administrator."""
        return self._program("rbd", *argv)

    @property
    def fsid(self) -> str:
        """The cluster's id."""
        return next(
            line.split()[-1]
            for line in self.conf.read_text().splitlines()
            if line.startswith("fsid")
        )

    @property
    def addresses(self) -> str:
        """Where its monitor is, as Ceph writes it: both protocols."""
        return next(
            line.split(" = ", 1)[1]
            for line in self.conf.read_text().splitlines()
            if line.startswith("mon_host")
        )

    def user(self, name: str, **caps: str) -> Path:
        """Make ``client.NAME`` with these capabilities (``mon="profile rbd"``), or give it other
        ones; its keyring.
        """
        granted = [word for pair in caps.items() for word in pair]
        self.run("auth", "get-or-create", f"client.{name}")
        self.run("auth", "caps", f"client.{name}", *granted)
        target = self.folder / f"ceph.client.{name}.keyring"
        _write_secret(target, self.run("auth", "get", f"client.{name}"))
        return target

    def create_pool(self, name: str) -> None:
        """A pool for images."""
        # With more placement groups it takes longer.
        self.run("osd", "pool", "create", name, "1")
        self.rbd("pool", "init", name)

    def create_image(
        self,
        name: str,
        pool: str = "rbd",
        namespace: str = "",
        size: str = "8M",
        features: str = "layering",
    ) -> None:
        """An image; a namespace is made when it is not there."""
        if namespace and namespace not in [
            found["name"]
            for found in json.loads(self.rbd("namespace", "ls", pool, "--format", "json"))
        ]:
            self.rbd("namespace", "create", f"{pool}/{namespace}")
        self.rbd(
            "create",
            f"{pool}/{namespace}/{name}" if namespace else f"{pool}/{name}",
            "--size",
            size,
            "--image-feature",
            features,
        )

    def watchers(self, image: str) -> list[dict[str, Any]]:
        """Address (with nonce), client and cookie of an image's watchers; the one that looks is not
        among them.
        """
        found: list[dict[str, Any]] = json.loads(self.rbd("status", image, "--format", "json"))[
            "watchers"
        ]
        return found

    def blocklist(self) -> dict[str, str]:
        """Every entry, as Ceph spells it, with its end; ranges among them."""
        found = self.json("osd", "dump")
        return {**found[self.word], **found.get(f"range_{self.word}", {})}

    def osd_map(self) -> dict[str, Any]:
        """The OSD map, without what OSDs report by themselves and its number: Ceph 20 makes a new
        one now and then in which nothing else has changed.
        """
        own = ("epoch", "modified", "osds", "osd_xinfo")
        return {key: found for key, found in self.json("osd", "dump").items() if key not in own}

    def change_blocklist(self, *argv: str) -> str:
        """``ceph osd blocklist`` with these arguments, by the name that this release has for it."""
        return self.run("osd", self.word, *argv)

    @functools.cached_property
    def word(self) -> str:
        """How this release calls its blocklist: before Ceph 16 it has another name."""
        return "blocklist" if "blocklist" in self.json("osd", "dump") else "blacklist"

    @functools.cached_property
    def ranges(self) -> bool:
        """This release's blocklist knows ranges: before Ceph 16 it does not."""
        return f"range_{self.word}" in self.json("osd", "dump")

    # parts

    @staticmethod
    def _monitor_at(families: Sequence[str], ports: Mapping[str, int]) -> str:
        """Its addresses, as Ceph writes them: both protocols, by family."""
        hosts = [SERVERS[family] for family in families] or ["127.0.0.1"]
        named = [f"[{host}]" if ":" in host else host for host in hosts]
        return f"[{','.join(f'{kind}:{host}:{ports[kind]}' for host in named for kind in ports)}]"

    def _make_keyrings(self) -> None:
        # Which kinds of keys there are, and which of them a monitor takes, depends on the release.
        every = []
        for user, caps in USERS.items():
            target = self.folder / f"ceph.{user}.keyring"
            granted = [word for pair in caps.items() for word in ("--cap", *pair)]
            made = ["--create-keyring", str(target), "--gen-key", "--name", user, *granted]
            self._program("ceph-authtool", *made)
            every.append(target.read_text())
        _write_secret(self.folder / "initial.keyring", "".join(every))

    def _program(self, program: str, *arguments: str) -> str:
        command = [*self.inside, program, "-c", str(self.conf), *arguments]
        try:
            answer = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=COMMAND_DEADLINE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise CephError(
                f"{program} {' '.join(arguments)}: no answer within {COMMAND_DEADLINE:.0f} s"
            ) from None
        if answer.returncode:
            raise CephError(
                f"{program} {' '.join(arguments)}: rc {answer.returncode}: "
                f"{answer.stderr.strip()[:1000]}"
            )
        return answer.stdout

    def _osds_up(self) -> int:
        # Before Ceph 15 it is one level deeper.
        found = self.json("osd", "stat")
        return int(found.get("osdmap", found)["num_up_osds"])

    def _answers(self, process: Process) -> bool:
        process.check()
        with contextlib.suppress(CephError):
            return bool(self.run("mon", "stat"))
        return False

    def _wait(self, ready: Any, process: Process, what: str) -> None:
        try:
            wait(ready, f"{self.name}: {what}", START_DEADLINE)
        except LabError as exc:
            raise LabError(f"{exc}\n{tail(process.log)}") from exc

    def _signal(self, number: int) -> None:
        pid = self.mon.pid
        if pid is not None:
            os.kill(pid, number)


PLACE = {"binds": "", "place": "public_addr = 127.0.0.1\ncluster_addr = 127.0.0.1"}
CONF = """\
[global]
fsid = {fsid}
mon_host = {addresses}
{binds}
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
auth_allow_insecure_global_id_reclaim = false
run_dir = {folder}
# Its path could be too long for a socket.
admin_socket =
log_file =
mon_cluster_log_file = {folder}/cluster.log
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_allow_pool_delete = true
mon_warn_on_pool_no_redundancy = false

[mon]
mon_data = {folder}/mon
keyring = {folder}/ceph.mon..keyring
# The default is a second, for each change.
paxos_propose_interval = 0.05
paxos_min_wait = 0.02
# The disk may be quite full: almost nothing is written.
mon_data_avail_warn = 2
mon_data_avail_crit = 1

[osd]
osd_data = {folder}/osd
keyring = {folder}/ceph.osd.0.keyring
{place}
osd_objectstore = memstore
memstore_device_bytes = 1073741824
osd_class_load_list = *
osd_class_default_list = *
# Since Ceph 17 an OSD measures its disk first.
osd_mclock_skip_benchmark = true

[mds]
# It serves the filesystem of its own name, whatever others there are. Before Ceph 15 there is no
# such option.
mds_join_fs = $id

[client.admin]
keyring = {folder}/ceph.client.admin.keyring
"""


def _write_secret(target: Path, text: str) -> None:
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        stream.write(text)


def existing_cephs() -> Iterator[Ceph]:
    """The clusters that have a folder."""
    for found in sorted((cache_dir() / "ceph").glob("*/ceph.conf")):
        yield Ceph(found.parent.name, tied=False)
