# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What multipathd and device-mapper say about multipath maps; every question is bounded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from .._core.errors import StorageOpsError
from .._core.texts import is_number, lines, stripped, words
from .block import DmDevice, unmangled
from .host import Host

# Seconds: the default of max_polling_interval, four times polling_interval (multipath.conf(5)).
DEFAULT_CHECKER_INTERVAL = 20.0
# Only what the kernel and multipathd themselves write: names of devices, and states
# (multipath-tools, libmultipath/print.c mpd and pd; the same from 0.6.2 to 0.14.3). multipathd
# escapes nothing, and whoever runs a target chooses its name, its products and its WWIDs, which may
# have line breaks. So which map a path is in, and of which WWID, sysfs tells, and no text of a
# target is asked for.
_MAPS = ["multipathd", "show", "maps", "raw", "format", "%d"]
_PATHS = ["multipathd", "show", "paths", "raw", "format", "%d %t %T"]
# What it prints instead, at times with exit status 0: it is busy, or it failed.
_NO_ANSWER = ("timeout", "fail")
_MAP_LINE = re.compile(r"\S+", re.ASCII)
# The second state may have a blank: "i/o pending". NVMe, which multipathd only shows, has "n/a".
_PATH_LINE = re.compile(r"(\S+) ((?:active|failed|undef|n/a) \S.*)", re.ASCII)
_TABLE_LINE = re.compile(r"^(?P<name>.*): \d+ \d+ multipath (?P<features>.*)$", re.ASCII)
# What is after a "#" is a comment (libmultipath/alias.c). An alias has no blanks.
_BINDING = re.compile(r"[ \t]*(?P<alias>[^\s#]+)[ \t]+(?P<wwid>[!\"$-~]+)[ \t]*", re.ASCII)


@dataclass(frozen=True)
class Daemon:
    """The maps of multipathd. ``problem``: why it does not tell them; then the others are empty.

    ``not_asked``: since there is no program here to ask it with. It may run in a container.
    ``paths``: WWID of a map that it knows -> disk name -> its states by device-mapper and by the
    checker, such as ``failed faulty``. ``known``: kernel names of its maps (``dm-0``), also of
    those that the kernel does not have any more.
    """

    paths: dict[str, dict[str, str]] = field(default_factory=dict)
    problem: str = ""
    known: frozenset[str] = frozenset()
    not_asked: bool = False


class _NotAsked(StorageOpsError):
    """Whether there is a daemon, and what it says, is not known."""


def ask_daemon(host: Host, dm: Mapping[str, DmDevice]) -> Daemon:
    """Ask multipathd for its maps and paths. ``dm``: the devices of the kernel, by their names."""
    try:
        known = _known_maps(_said(host, _MAPS))
        states = _states(_said(host, _PATHS))
    except StorageOpsError as error:
        return Daemon(problem=str(error), not_asked=isinstance(error, _NotAsked))
    maps = [dm[name] for name in known if name in dm and dm[name].is_multipath]
    return Daemon(
        {
            device.wwid: {name: states[name] for name in device.slaves if name in states}
            for device in maps
        },
        known=known,
    )


def _said(host: Host, command: list[str]) -> str:
    result = host.run(command)
    # Not one that was ended: it had asked, and so it is the daemon that does not answer.
    if result.rc is None and not result.timed_out:
        raise _NotAsked(
            f"multipathd cannot be asked: {result.describe()}", code="multipathd_unusable"
        )
    # Without the daemon nothing tells a path that fails from one that is being checked.
    if not result.ok:
        raise StorageOpsError(
            f"multipathd does not answer: {result.describe()}", code="multipathd_unusable"
        )
    return result.stdout


def _known_maps(text: str) -> frozenset[str]:
    """``Daemon.known``; raises StorageOpsError."""
    # Beside them it may have "undef" for a map that is not in the kernel, NVMe devices with paths
    # of their own, and "ok" where there is none.
    found = _matches(_MAP_LINE, text)
    return frozenset(one[0] for one in found if re.fullmatch(r"dm-\d+", one[0], re.ASCII))


def _states(text: str) -> dict[str, str]:
    """Disk name -> its states, as in ``Daemon.paths``; raises StorageOpsError."""
    # "ok" where it has no path.
    if stripped(text) == "ok":
        return {}
    return {found[1]: found[2] for found in _matches(_PATH_LINE, text)}


def _matches(line_pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    found = []
    for line in filter(None, map(stripped, lines(text))):
        match = line_pattern.fullmatch(line)
        if match is None or line in _NO_ANSWER:
            raise StorageOpsError(
                f"multipathd answered {' '.join(text.split())[:100]!r} instead of its maps and "
                "paths",
                code="multipathd_unusable",
            )
        found.append(match)
    return found


def known_paths(host: Host) -> set[str] | None:
    """The disks that multipathd knows, in a map or not; None if it does not answer."""
    try:
        return set(_states(_said(host, _PATHS)))
    except StorageOpsError:
        return None


def checker_interval(host: Host) -> float:
    """Seconds in which multipathd checks every path once; the default if it does not tell."""
    result = host.run(["multipathd", "show", "config"])
    match = (
        re.search(r"^\s*max_polling_interval\s+\"?(\d+)", result.stdout, re.MULTILINE | re.ASCII)
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
    found = filter(None, map(_TABLE_LINE.match, lines(result.stdout)))
    return {
        unmangled(match.group("name")): "queue_if_no_path" in words(match.group("features"))
        for match in found
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
    rows = [line.split(":") for line in map(stripped, lines(result.stdout)) if is_number(line[:1])]
    return {f"{major}:{minor}": int(count) for major, minor, count in rows}


def aliases(host: Host) -> dict[str, str]:
    """Map name -> WWID from multipath's bindings file, which also has maps that are gone."""
    found: dict[str, str] = {}
    for line in lines(host.read("/etc/multipath/bindings") or ""):
        # Whoever runs a target chooses the WWID, and udev keeps all characters of UTF-8 in it
        # (systemd, src/shared/device-nodes.c). So it is one only if it has none but these.
        match = _BINDING.fullmatch(line)
        if match:
            # The first one counts (multipath-tools, libmultipath/alias.c rlookup_binding).
            found.setdefault(match["alias"], match["wwid"])
    return found
