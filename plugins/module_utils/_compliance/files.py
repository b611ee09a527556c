# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report's folder: files that are complete or absent, and the runs that are kept."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from typing import Any

from .._core.errors import StorageOpsError
from . import history, reading

_RUN = re.compile(r"\d{8}T\d{6}Z(_\d+)?\.json", re.ASCII)


def write(path: str, text: str, mode: int = 0o640) -> None:
    """Write a file that others read: they see the old one or the new one."""
    # rename(2) replaces it atomically; without fsync(2) it could be empty after a crash.
    folder, name = os.path.split(path)
    # node_exporter reads all *.prom of its folder, so the temporary name must end in another way.
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}.", suffix=".tmp")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
            # mkstemp gives 0600, whatever the umask is (mkstemp(3)), and node_exporter is another
            # user.
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    # An interrupted job leaves no half file behind, either.
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def check(path: str) -> None:
    """Check that a file can be written there, before hours of gathering."""
    folder = os.path.dirname(path)
    try:
        if os.path.isdir(path):
            raise IsADirectoryError("it is a folder")
        # Tried, not asked: access(2) knows nothing of a full disk, a quota or a read-only mount.
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=".storage_ops.", suffix=".tmp")
        os.close(handle)
        os.unlink(temporary)
    except OSError as error:
        raise StorageOpsError(
            f"{path} cannot be written: {error.strerror or error}", code="file_unusable"
        ) from error


def prepare(folder: str, *inner: str) -> None:
    """Make the folder and its inner ones, and check that they can be written to."""
    # A folder that exists keeps its mode, which its owner has chosen.
    for path in (folder, *(os.path.join(folder, name) for name in inner)):
        try:
            if not os.path.isdir(path):
                os.makedirs(path, exist_ok=True)
                # The findings of hosts are not for every user of the controller.
                os.chmod(path, 0o750)
        except OSError as error:
            raise StorageOpsError(
                f"the folder {path} cannot be made: {error.strerror or error}", code="file_unusable"
            ) from error
        check(os.path.join(path, "report.json"))


def has_runs(folder: str) -> bool:
    """Whether runs of a whole fleet are kept there."""
    return os.path.isdir(os.path.join(folder, "runs")) and bool(_names(folder))


def owner(folder: str) -> tuple[str, list[str]] | None:
    """The fleet and the nodes of the last report that is kept there; None if there is none."""
    last: tuple[str, list[str]] | None = None
    # Of a big fleet each takes a part of a second, so not all of them are read.
    for name in reversed(_names(folder) if has_runs(folder) else []):
        kept = _read_run(folder, name)
        if kept:
            last = last or (str(kept["run"].get("cluster")), [])
            # A run of the cluster alone tells nothing of nodes.
            if kept["nodes"]:
                return last[0], kept["nodes"]
    if last:
        return last
    path = os.path.join(folder, "report.json")
    try:
        part = reading.read_report(read_report(path), path)
    # There is none, or it is not one of ours.
    except StorageOpsError:
        return None
    return part.cluster, [row.name for row in part.rows if row.kind == "node"]


def read_runs(folder: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The runs that are kept, and the names of files that cannot be read as such."""
    runs: list[dict[str, Any]] = []
    unread = []
    for name in _names(folder):
        kept = _read_run(folder, name)
        if kept:
            runs = history.lighten([*runs, kept])
        else:
            # A damaged run costs its comparison, not the report.
            unread.append(name)
    return runs, unread


def _read_run(folder: str, name: str) -> dict[str, Any] | None:
    """A run that is kept; None for a file that cannot be read as such."""
    try:
        with open(os.path.join(folder, "runs", name), encoding="utf-8") as file:
            data: dict[str, Any] = json.load(file)
    # RecursionError: json parses nested arrays recursively.
    except (OSError, ValueError, RecursionError):
        return None
    return data if history.is_kept(data) else None


def keep_run(folder: str, name: str, kept: dict[str, Any], most: int) -> None:
    """Keep a run, and delete the oldest beyond ``most``."""
    # Two runs may begin in the same second.
    path = os.path.join(folder, "runs", f"{name}.json")
    number = 1
    while os.path.exists(path):
        number += 1
        path = os.path.join(folder, "runs", f"{name}_{number}.json")
    write(path, json.dumps(kept, separators=(",", ":")) + "\n")
    # At least this run stays, or the next one could not be compared with it.
    for old in _names(folder)[: -max(most, 1)]:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, "runs", old))


def read_report(path: str) -> Any:
    """An earlier report."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise StorageOpsError(
            f"{path} cannot be read: {error.strerror or error}", code="file_unusable"
        ) from error
    except (ValueError, RecursionError) as error:
        raise StorageOpsError(
            f"{path} is not a report of this collection: {error}", code="file_unusable"
        ) from error


def _names(folder: str) -> list[str]:
    """The names of the kept runs, oldest first: they begin with the time."""
    return sorted(name for name in os.listdir(os.path.join(folder, "runs")) if _RUN.fullmatch(name))
