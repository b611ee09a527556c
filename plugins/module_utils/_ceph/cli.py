# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ceph's command line tools: every call is bounded, and what goes wrong is said with
the next step.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

from .._core.bounded import CommandResult, Deadline, run_command
from .._core.errors import StorageOpsError
from .._core.texts import lines, stripped

# Seconds for a command after connect_timeout; a healthy cluster answers in 0.2. Together they stay
# below 15.
_ANSWER_SECONDS = 8.0
# The errno that the tools exit with when no monitor answers in time.
_ETIMEDOUT = 110
# A metadata server of 14.2.21 answers EPERM. Then the tool, which connects to it apart, also
# complains of a keyring that it does not need.
_FORBIDDEN = ("Error EACCES", "Error EPERM: problem getting command descriptions from mds.")
_MON_HOST = re.compile(r"^\s*mon[ _]host\s*=\s*(.+?)\s*$", re.MULTILINE | re.ASCII)


class Denied(StorageOpsError):
    """Ceph knows the user, and does not let it do this."""

    code = "ceph_forbidden"


class Connection(NamedTuple):
    """How to reach a cluster and as whom; empty for the tools' own defaults.

    ``connect_timeout``: seconds.
    """

    conf: str = ""
    keyring: str = ""
    user: str = "admin"
    cluster: str = "ceph"
    connect_timeout: float = 5.0

    @property
    def name(self) -> str:
        """The user, as Ceph names it."""
        return f"client.{self.user}"

    @property
    def conf_path(self) -> str:
        """The configuration that the tools read."""
        return self.conf or f"/etc/ceph/{self.cluster}.conf"


class Ceph:
    """``ceph``, ``rbd`` and ``rados``, all of it paid from one deadline."""

    def __init__(
        self,
        connection: Connection,
        deadline: Deadline,
        run: Callable[[Sequence[str], float], CommandResult] = run_command,
    ) -> None:
        self.connection = connection
        self.deadline = deadline
        self._run = run

    def argv(self, program: str, *arguments: str) -> list[str]:
        """The whole command."""
        # --connect-timeout is of the tool "ceph" alone (src/ceph.in); rbd and rados take any
        # configuration option, and client_mount_timeout bounds how long librados waits for the
        # monitors (src/common/options/mds-client.yaml.in).
        connection = self.connection
        seconds = f"{connection.connect_timeout:g}"
        return [
            program,
            *(["--cluster", connection.cluster] if connection.cluster != "ceph" else []),
            *(["--conf", connection.conf] if connection.conf else []),
            *(["--keyring", connection.keyring] if connection.keyring else []),
            "--name",
            connection.name,
            # Without it they wait for 300 s.
            *(
                ["--connect-timeout", seconds]
                if program == "ceph"
                else [f"--client_mount_timeout={seconds}"]
            ),
            *arguments,
        ]

    def run(self, program: str, *arguments: str) -> CommandResult:
        """Run one of the tools, whatever becomes of it; messages are on stderr, also where all is
        well.
        """
        return self.execute(self.argv(program, *arguments))

    def execute(self, argv: Sequence[str]) -> CommandResult:
        """Run a whole command, as ``argv`` makes it."""
        return self._run(argv, self.deadline.cap(self.connection.connect_timeout + _ANSWER_SECONDS))

    def json(self, program: str, *arguments: str) -> Any:
        """What one of the tools says, as data.

        Raises StorageOpsError with the next step, Denied where a capability is missing.
        """
        result = self.run(program, *arguments, "--format", "json")
        if not result.ok:
            raise self.error(result)
        try:
            return json.loads(result.stdout)
        except ValueError:
            said = " ".join(result.stdout.split())[:100]
            raise StorageOpsError(
                f"{result.argv[0]} {' '.join(arguments)} answered {said!r} instead of JSON",
                code="program_failed",
            ) from None

    def error(self, result: CommandResult) -> StorageOpsError:
        """What went wrong, as a sentence for the operator."""
        # What is missing first, then what is wrong with the configuration, the network and the
        # keyring, and only then the capabilities: each of them may have the message of the next one
        # as its consequence.
        connection, said = self.connection, result.stderr
        where = f"the Ceph cluster of {connection.conf_path} (mon_host: {self._mon_host()})"
        if result.missing:
            return StorageOpsError(
                f"{result.argv[0]} is not installed on {os.uname().nodename}: run this on a Ceph "
                "admin host or in the Rook toolbox pod",
                code="program_missing",
            )
        # What the programs write: ceph/ceph src/ceph.in and src/pybind/rados/rados.pyx,
        # src/auth/KeyRing.cc, src/mon/MonClient.cc.
        if "conf_read_file" in said or "unable to open config file" in said:
            return StorageOpsError(
                f"{connection.conf_path} cannot be read as Ceph's "
                "configuration: give its path as conf",
                code="file_unusable",
            )
        if result.rc is None or result.rc == _ETIMEDOUT or "timed out" in said:
            return StorageOpsError(
                f"{where} does not answer: {result.describe()}. Nothing is known about it; see "
                f"whether its monitors run and can be reached from {os.uname().nodename} (ceph "
                f"--conf {connection.conf_path} --connect-timeout 5 mon stat)"
                + ("" if os.path.basename(result.argv[0]) == "ceph" else self._silent_osds()),
                code="ceph_unreachable",
            )
        if any(words in said for words in _FORBIDDEN):
            return Denied(f"{_last_line(said)}, as {connection.name}")
        if (
            "unable to find a keyring" in said
            or "handle_auth_bad_method" in said
            or "error connecting to the cluster" in said
        ):
            return StorageOpsError(
                f"{where} does not let {connection.name} in with the keyring "
                f"{connection.keyring or 'of the configuration'}: {_last_line(said)}. Give user "
                "and keyring that belong together; this user must be able to read the keyring",
                code="ceph_forbidden",
            )
        if "Operation not permitted" in said:
            return Denied(
                f"{connection.name} may not read it ({_last_line(said)}): grant osd 'profile "
                "rbd-read-only'"
            )
        said = f"{_last_line(said)} (rc {result.rc} of {' '.join(result.argv)})"
        return StorageOpsError(said, code="program_failed")

    def _silent_osds(self) -> str:
        # rbd and rados ask the OSDs. Those of Ceph 18.2.7 never answer a user without capabilities
        # for them, where those of 16.2.15 say EPERM.
        return (
            "; whether its OSDs are up (ceph osd stat); and whether they may answer "
            f"{self.connection.name}: else grant osd 'profile rbd-read-only'"
        )

    def _mon_host(self) -> str:
        try:
            with open(self.connection.conf_path, encoding="utf-8", errors="replace") as file:
                match = _MON_HOST.search(file.read())
        except OSError:
            return "unknown"
        return match[1] if match else "not said there"


def _last_line(text: str) -> str:
    return ([line for line in map(stripped, lines(text)) if line] or ["no output"])[-1]
