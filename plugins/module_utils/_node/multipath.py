# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What multipathd and device-mapper say about multipath maps; every question is bounded."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from .._core.errors import StorageOpsError, words
from .block import unmangled
from .host import Host

# Of "multipathd show maps json" (multipath-tools, libmultipath/print.c PRINT_JSON_MAJOR_VERSION, in
# print.h before 0.8.7); 0 in every release from the first with JSON, 0.6.2, to 0.14.3.
_MAJOR_VERSION = 0
# Seconds: the default of max_polling_interval, four times polling_interval (multipath.conf(5)).
DEFAULT_CHECKER_INTERVAL = 20.0
# multipathd writes one text of its JSON a line, and escapes nothing in it (multipath-tools,
# libmultipath/print.h PRINT_JSON_MAP). A mangled alias (my\x20disk) is no JSON, and a quotation
# mark would end the text too early. Whoever runs a target chooses its name and its products, so
# that one of his could hide all maps, or look like another map. None of them has a line break: the
# kernel replaces those of an INQUIRY (drivers/scsi/scsi_scan.c scsi_sanitize_inquiry_string), and a
# target's name is one line of its record (open-iscsi, usr/idbm.c).
_TEXT_LINE = re.compile(r'(\s*"\w+"\s*:\s*)"(.*)"(,?\s*)')
_TABLE_LINE = re.compile(r"^(?P<name>.*): \d+ \d+ multipath (?P<features>.*)$")


@dataclass(frozen=True)
class Daemon:
    """The maps of multipathd. ``problem``: why it does not tell them; then ``paths`` is empty.

    ``paths``: WWID of a map -> disk name -> its states by device-mapper and by the checker, such as
    ``failed faulty``.
    """

    paths: dict[str, dict[str, str]] = field(default_factory=dict)
    problem: str = ""


def ask_daemon(host: Host) -> Daemon:
    """Ask multipathd for its maps."""
    result = host.run(["multipathd", "show", "maps", "json"])
    # Without the daemon nothing tells a path that fails from one that is being checked.
    if not result.ok:
        return Daemon(problem=f"multipathd does not answer: {result.describe()}")
    try:
        return Daemon(parse_maps(result.stdout))
    except StorageOpsError as error:
        return Daemon(problem=str(error))


def parse_maps(text: str) -> dict[str, dict[str, str]]:
    """``Daemon.paths`` from the output of ``multipathd show maps json``. Raises StorageOpsError."""
    # A busy daemon prints "timeout" instead, and exits with status 0.
    repaired = "\n".join(_with_escapes(line) for line in text.split("\n"))
    try:
        answer = json.loads(repaired, strict=False)
    except json.JSONDecodeError as error:
        if text.startswith("{"):
            near = " ".join(repaired[max(0, error.pos - 40) : error.pos + 40].split())
            raise StorageOpsError(
                f"multipathd's JSON is broken near {near!r}",
                code="multipathd_unusable",
            ) from None
        raise StorageOpsError(
            f"multipathd answered {' '.join(text.split())[:100]!r} instead of JSON",
            code="multipathd_unusable",
        ) from None
    version = answer.get("major_version") if isinstance(answer, dict) else None
    # Fields that mean something else by then would make healthy paths look dead.
    if version != _MAJOR_VERSION:
        raise StorageOpsError(
            f"multipathd's JSON has version {version!r}, and this collection knows version "
            f"{_MAJOR_VERSION} only",
            code="version_unsupported",
        )
    found: dict[str, dict[str, str]] = {}
    try:
        # 0.9.4 lists a map with a mangled alias twice, by both names, with its paths in one of
        # them.
        for entry in answer["maps"]:
            found.setdefault(entry["uuid"], {}).update(_paths(entry))
    except (KeyError, TypeError, AttributeError) as error:
        raise StorageOpsError(
            f"multipathd's JSON lacks what is needed: {words(error)}",
            code="multipathd_unusable",
        ) from None
    return found


def _with_escapes(line: str) -> str:
    """A line of multipathd's JSON with its text as JSON has it; others as they are."""
    found = _TEXT_LINE.fullmatch(line)
    return f"{found[1]}{json.dumps(found[2])}{found[3]}" if found else line


def _paths(entry: dict[str, Any]) -> dict[str, str]:
    return {
        path["dev"]: f"{path['dm_st']} {path['chk_st']}"
        for group in entry.get("path_groups", [])
        for path in group.get("paths", [])
    }


def known_paths(host: Host) -> set[str] | None:
    """The disks that multipathd knows, in a map or not; None if it does not answer."""
    result = host.run(["multipathd", "show", "paths", "raw", "format", "%d"])
    return set(result.stdout.split()) if result.ok and result.stdout.strip() != "timeout" else None


def checker_interval(host: Host) -> float:
    """Seconds in which multipathd checks every path once; the default if it does not tell."""
    result = host.run(["multipathd", "show", "config"])
    match = (
        re.search(r"^\s*max_polling_interval\s+\"?(\d+)", result.stdout, re.MULTILINE)
        if result.ok
        else None
    )
    return float(match.group(1)) if match else DEFAULT_CHECKER_INTERVAL


def queueing(host: Host) -> dict[str, bool]:
    """Map name -> whether the kernel queues I/O while no path works. Raises StorageOpsError."""
    # The kernel is asked, since multipathd may lag behind (drivers/md/dm-mpath.c multipath_status,
    # STATUSTYPE_TABLE). Names stay mangled, so that each is on one line.
    result = host.run(["dmsetup", "table", "--manglename", "none", "--target", "multipath"])
    if not result.ok:
        raise StorageOpsError(f"the device-mapper tables could not be read: {result.describe()}")
    lines = [
        match for line in result.stdout.splitlines() for match in [_TABLE_LINE.match(line)] if match
    ]
    return {
        unmangled(match.group("name")): "queue_if_no_path" in match.group("features").split()
        for match in lines
    }


def open_counts(host: Host) -> dict[str, int]:
    """major:minor of a device-mapper device -> how often it is open. Raises StorageOpsError."""
    result = host.run(
        ["dmsetup", "info", "-c", "--noheadings", "--separator", ":", "-o", "major,minor,open"]
    )
    if not result.ok:
        raise StorageOpsError(
            f"the open counts of device-mapper could not be read: {result.describe()}"
        )
    rows = [
        line.strip().split(":") for line in result.stdout.splitlines() if line.strip()[:1].isdigit()
    ]
    return {f"{major}:{minor}": int(count) for major, minor, count in rows}


def aliases(host: Host) -> dict[str, str]:
    """Map name -> WWID from multipath's bindings file, which also has maps that are gone."""
    lines = [line.split() for line in (host.read("/etc/multipath/bindings") or "").splitlines()]
    return {
        words[0]: words[1] for words in lines if len(words) == 2 and not words[0].startswith("#")
    }
