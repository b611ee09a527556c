# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The types that the plan of residual paths reads and writes. Pure: no I/O here."""

from __future__ import annotations

from dataclasses import dataclass, field

from .._core.codes import Reason
from .._core.engine import Action, Finding
from .._node.block import Disk, DmDevice, Transport
from .._node.multipath import Daemon
from .._node.scsi import Answer
from .._node.usage import Openers

# What a disk turned out to be. A path of a map is one, too.
SERVING = "serving"  # the LUN it was found as
GONE = "gone"  # the target serves no such LUN any more
OTHER = "other"  # the target serves another LUN under this number
TWIN = "twin"  # another LUN that has the same WWID
STANDBY = "standby"  # the LUN it was found as, through a controller that is not the one to use now
UNIDENTIFIED = "unidentified"  # it answers, but names itself in no comparable way
FOREIGN = "foreign"  # not a SCSI disk, so it cannot be asked
UNKNOWN = "unknown"  # no answer that proves anything
# What a path may be on a map that works. What cannot be told counts as well: an audit must not
# report a local disk or a foreign device as broken.
FINE = {SERVING, STANDBY, UNIDENTIFIED, FOREIGN}
# What a path must be so that another disk may join its map: here the LUN is proven.
WHOLE = {SERVING, STANDBY}


@dataclass(frozen=True)
class ResidualOptions:
    """What the user asked for and allows. All times are in seconds.

    The documentation of multipath_residual describes each option.
    """

    maps: tuple[str, ...] = ()
    wwids: tuple[str, ...] = ()
    vendor: str = ""
    product: str = ""
    # Several, over more than one check of multipathd, so that a short failure is not a proof.
    observations: int = 3
    observation_seconds: float = 25.0
    probe_timeout: float = 5.0
    max_repairs: int = 10
    # Accepted risks, each off by default, named for what they do.
    fail_hung_readers: bool = False
    flush_empty_maps: bool = False
    accept_majority: bool = False
    rescan_targets: bool = False

    def scope(self) -> list[tuple[str, tuple[str, ...] | str]]:
        """What the user narrowed the run down to."""
        return [
            ("maps", self.maps),
            ("WWIDs", self.wwids),
            ("vendor", self.vendor),
            ("product", self.product),
        ]


@dataclass(frozen=True)
class Observation:
    """The node at one moment. The first observation asks every disk, later ones the suspects only.

    ``at``: monotonic seconds. ``disks``: by kernel name. ``dm``: by kernel name (``dm-0``).
    ``transports``: by SCSI host and target. ``answers``: by disk name. ``luns``: by target
    (``6:0:0``), the LUN numbers that it reports.
    """

    at: float
    disks: dict[str, Disk]
    dm: dict[str, DmDevice]
    transports: dict[str, Transport]
    daemon: Daemon
    answers: dict[str, Answer]
    luns: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def maps(self) -> list[DmDevice]:
        """The device-mapper devices that are multipath maps."""
        return [device for device in self.dm.values() if device.is_multipath]

    @property
    def plain_disks(self) -> list[Disk]:
        """The disks that are a path of no map."""
        # A disk in a map is judged with the map, since others of its paths may serve the LUN.
        taken = {slave for device in self.maps for slave in device.slaves}
        return [disk for disk in self.disks.values() if disk.name not in taken]


@dataclass(frozen=True)
class ResidualState:
    """What was gathered, from which the plan is made.

    ``checker_interval``: seconds between two checks of a path by multipathd. ``queueing``: by map
    name. ``open_counts``: by major:minor. ``uses``: by kernel name of a map or disk, why it is in
    use. ``aliases``: name of a map -> WWID.
    """

    node: str
    observations: tuple[Observation, ...]
    checker_interval: float = 0.0
    queueing: dict[str, bool] = field(default_factory=dict)
    open_counts: dict[str, int] = field(default_factory=dict)
    openers: Openers = field(default_factory=Openers)
    uses: dict[str, list[Reason]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)

    @property
    def last(self) -> Observation:
        """The newest observation."""
        # Repairs are planned from it, and the others have to agree with it.
        return self.observations[-1]

    @property
    def span(self) -> float:
        """Seconds from the first observation to the last."""
        return self.last.at - self.observations[0].at


@dataclass(frozen=True)
class Judgement:
    """What a disk turned out to be, and by which sign.

    ``wwids``: all names of the other LUN, for OTHER. ``code``: that of a refusal because of it.
    """

    kind: str
    why: str
    wwids: tuple[str, ...] = ()
    code: str = "path_unproven"

    @property
    def wwid(self) -> str:
        """The names of the other LUN, for messages."""
        return ", ".join(self.wwids)

    @property
    def reason(self) -> Reason:
        """The judgement as a refusal."""
        return Reason(self.code, self.why)

    def same_as(self, other: Judgement) -> bool:
        """Whether both say the same about the disk; the text does not count."""
        # The texts have sense codes that may change while the meaning stays.
        return (self.kind, self.wwids) == (other.kind, other.wwids)


@dataclass(frozen=True)
class PathSubject:
    """A path to remove, as it was when the plan was made.

    ``expected``: WWID of the LUN that it was found as. ``plain``: it is a path of no map.
    """

    disk: Disk
    expected: str
    judgement: Judgement
    plain: bool


@dataclass(frozen=True)
class PathsSubject:
    """The paths that one action removes, all of them before it scans for the LUNs that took their
    numbers.
    """

    paths: tuple[PathSubject, ...]

    @property
    def brings(self) -> set[str]:
        """WWIDs of the LUNs that took the numbers; the scan adds their disks."""
        # A scan of one number finds one LUN, but each LUN has several names.
        return {wwid for path in self.paths for wwid in path.judgement.wwids}

    @property
    def leaving(self) -> set[str]:
        """Kernel names of the disks that are removed."""
        return {path.disk.name for path in self.paths}


@dataclass(frozen=True)
class TargetSubject:
    """The target that an action scans.

    ``known``: (SCSI address, WWID) of its disks when the plan was made.
    """

    target: str
    known: frozenset[tuple[str, str]]


@dataclass(frozen=True)
class MapSubject:
    """The map that an action changes, and the judgement of each path when the plan was made."""

    device: DmDevice
    judgements: dict[str, Judgement]

    @property
    def kept(self) -> set[str]:
        """Names of the paths that serve its LUN; multipathd makes the map again from them."""
        # If the map is to be made again, these have to be in it, else it was not repaired.
        return {name for name, judgement in self.judgements.items() if judgement.kind in WHOLE}


@dataclass
class ResidualCase:
    """A map, or a disk in no map, whose paths do not all serve its LUN.

    ``wwid``: that of the LUN it was found as. ``obstacles``: why it may not be repaired.
    ``serving``: paths that still serve the LUN, which forbid a repair too, unless the repair brings
    the same LUN back. ``release``: actions that free the paths. ``paths``: those that are removed.
    """

    finding: Finding
    wwid: str
    obstacles: list[Reason]
    serving: list[Reason] = field(default_factory=list)
    release: list[Action] = field(default_factory=list)
    paths: tuple[PathSubject, ...] = ()
