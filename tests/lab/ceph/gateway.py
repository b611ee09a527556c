# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An S3 server: radosgw on a Ceph cluster of the lab's, on loopback, with one user."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import secrets
import shutil
import subprocess
import urllib.request
from email.utils import formatdate
from urllib.error import HTTPError, URLError

from ..common import LabError, patient, step, wait
from ..kubernetes.controlplane import free_ports
from ..kubernetes.process import Process
from ..qemu import tail
from .cluster import COMMAND_DEADLINE, START_DEADLINE, Ceph


class Gateway:
    """radosgw, until it is closed, its cluster is reset, or the tests end."""

    def __init__(self, ceph: Ceph) -> None:
        self.ceph = ceph
        # By this name the cluster ends it at a reset, as all of its clients.
        self.process = Process(ceph.folder, "client-radosgw")
        self.access_key = secrets.token_hex(10).upper()
        self.secret_key = secrets.token_hex(20)
        (self.port,) = free_ports(1)

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Until it serves its user."""
        if not shutil.which("radosgw"):
            raise LabError(
                "there is no radosgw: install the packages in tests/lab/apt-packages.txt"
            )
        with step(f"{self.ceph.name}: starting radosgw"):
            keyring = self.ceph.user("radosgw", mon="allow rw", osd="allow rwx")
            # It makes a dozen pools, and an OSD bears a few hundred placement groups only.
            self.ceph.run("config", "set", "mon", "osd_pool_default_pg_num", "2")
            common = ["-c", str(self.ceph.conf), "-n", "client.radosgw", "--keyring", str(keyring)]
            self.process.start(
                ["radosgw", *common, "-f", "--rgw_frontends", f"beast endpoint={self.address}"],
                self.ceph.tied,
            )
            try:
                wait(self._listens, f"{self.ceph.name}: radosgw answers", START_DEADLINE)
            except LabError as exc:
                raise LabError(f"{exc}\n{tail(self.process.log)}") from exc
            keys = ["--access-key", self.access_key, "--secret-key", self.secret_key]
            user = [
                "radosgw-admin",
                *common,
                "user",
                "create",
                "--uid",
                "lab",
                "--display-name",
                "lab",
                *keys,
            ]
            subprocess.run(
                user,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=COMMAND_DEADLINE,
                check=True,
            )

    def close(self) -> None:
        """End it."""
        self.process.stop()

    def put(self, path: str, content: str = "") -> None:
        """Make a bucket (``bucket``), an object (``bucket/name``) or a folder as s3fs has them
        (``bucket/name/``).
        """
        kind = "application/x-directory" if path.endswith("/") else "text/plain"
        self._ask("PUT", path, kind, content.encode())

    def get(self, path: str) -> str:
        """What is in an object; empty: there is none."""
        try:
            return self._ask("GET", path)
        except HTTPError as error:
            if error.code != 404:
                raise
            return ""

    def _ask(self, method: str, path: str, kind: str = "", content: bytes | None = None) -> str:
        date = formatdate(usegmt=True)
        # Signature version 2 is a few lines, and radosgw knows it.
        digest = hmac.new(
            self.secret_key.encode(), f"{method}\n\n{kind}\n{date}\n/{path}".encode(), hashlib.sha1
        ).digest()
        headers = {
            "Date": date,
            **({"Content-Type": kind} if kind else {}),
            "Authorization": f"AWS {self.access_key}:{base64.b64encode(digest).decode()}",
        }
        request = urllib.request.Request(
            f"http://{self.address}/{path}", content, headers, method=method
        )
        with urllib.request.urlopen(request, timeout=COMMAND_DEADLINE) as answer:
            return str(answer.read().decode())

    def _listens(self) -> bool:
        self.process.check()
        with contextlib.suppress(URLError, ConnectionError):
            try:
                with urllib.request.urlopen(f"http://{self.address}/", timeout=patient(5)):
                    return True
            except HTTPError:
                return True
        return False
