# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which targets are one array. Pure: no I/O here.

A pod may have a volume on an iSCSI server of its tenant, which then answers what the tenant likes.
So one array's answers must not decide about another array's maps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from .._node.block import Disk, DmDevice
from .model import Observation


@dataclass(frozen=True)
class Arrays:
    """The arrays of a node, each named by its first target.

    ``by_target``: target (``6:0:0``) -> array. ``makers``: array -> who made it, as the names of
    its disks say, which whoever runs it can choose. ``servers``: array -> the first of those that
    share an address with it. ``of_pods``: those of which a server in a pod may be, as all that are
    reached by iSCSI. ``kin``: array -> the first of those that have a volume in common with it, by
    what their disks were found as.
    """

    by_target: dict[str, str]
    makers: dict[str, set[str]]
    servers: dict[str, str]
    of_pods: frozenset[str]
    kin: dict[str, str]

    def of_server(self, arrays: Iterable[str]) -> tuple[str, ...]:
        """Whose turns a repair of these arrays uses up.

        One server may have any number of ports and targets. At an array's address another server
        may have ports, too (see _node/block.py), so only turns are shared, and no judgement.
        """
        return tuple(sorted({self.servers.get(array, array) for array in arrays}))

    def of(self, targets: Iterable[str]) -> set[str]:
        """The arrays of these targets."""
        return {self.by_target[target] for target in targets if target in self.by_target}

    def of_map(self, last: Observation, device: DmDevice) -> set[str]:
        """The arrays of a map. Without paths it has none, and its name tells the maker."""
        targets = [last.disks[name].target for name in device.slaves if name in last.disks]
        return self.of(targets) if device.slaves else self.made_by(device.wwid)

    def made_by(self, wwid: str) -> set[str]:
        """The arrays with a disk of the same maker."""
        maker = maker_of(wwid)
        return {array for array, makers in self.makers.items() if maker and maker in makers}

    def near(self, targets: Iterable[str]) -> set[str]:
        """The arrays of these targets, and those of the same makers.

        Only these may have a volume of the same name, as the other half of a mirror has. A maker is
        no more than a claim, so this may keep a scan from being made, and nothing else.
        """
        own = self.of(targets)
        makers = {maker for array in own for maker in self.makers[array]}
        return own | {array for array, made in self.makers.items() if made & makers}

    def may_share(self, some: Iterable[str], others: Iterable[str]) -> bool:
        """Whether these arrays may have a volume in common: they are one, or disks of both were
        found as one.
        """
        # Of such disks multipathd itself makes one map, so a name that a LUN takes on later gains
        # nothing by it. It tells portals of one array where no map is left that has both.
        return not {self.kin[one] for one in some}.isdisjoint({self.kin[one] for one in others})

    def only_one(self, target: str) -> bool:
        """Whether whatever this target serves is of the one array that it can be of.

        That is so on a node with one array, and where no server of a pod is reached.
        """
        return len(self.makers) == 1 or self.of([target]).isdisjoint(self.of_pods)

    def targets(self, array: str) -> list[str]:
        """All targets of an array."""
        return [target for target, whose in self.by_target.items() if whose == array]


def find_arrays(observations: Collection[Observation]) -> Arrays:
    """The arrays of a node. Targets are of one array if they have the same portal, or a map in
    common.

    Neither is what the target says of itself. What is not reached by iSCSI counts as one array,
    since no pod can add to that.
    """
    disks = [disk for seen in observations for disk in seen.disks.values()]
    groups = merged([*_by_portal(disks), *_by_map(observations)])
    by_target = {target: min(group) for group in groups for target in sorted(group)}
    makers: dict[str, set[str]] = {array: set() for array in by_target.values()}
    for disk in disks:
        said = {maker_of(name) for name in (disk.wwid, *disk.names)}
        makers[by_target[disk.target]] |= said - {""}
    of_pods = frozenset(by_target[disk.target] for disk in disks if _portal(disk))
    return Arrays(by_target, makers, _servers(disks, by_target), of_pods, _kin(disks, by_target))


def _servers(disks: Iterable[Disk], by_target: Mapping[str, str]) -> dict[str, str]:
    """By array, the first of those at the same addresses."""
    # By no name of the target (IQN): whoever runs it gives it any number of these.
    there = [(address, disk) for disk in disks for address in _addresses(disk)]
    return _firsts(there, by_target)


def _kin(disks: Iterable[Disk], by_target: Mapping[str, str]) -> dict[str, str]:
    """By array, the first of those with a disk of the same WWID."""
    return _firsts(((disk.wwid, disk) for disk in disks if disk.wwid), by_target)


def _firsts(shared: Iterable[tuple[str, Disk]], by_target: Mapping[str, str]) -> dict[str, str]:
    """By array, the first of those that have something in common with it."""
    whose: dict[str, set[str]] = {}
    for what, disk in shared:
        whose.setdefault(what, set()).add(by_target[disk.target])
    groups = merged([*whose.values(), *({array} for array in set(by_target.values()))])
    return {array: min(group) for group in groups for array in group}


def server_of(disk: Disk) -> str:
    """Whose turns a question to this disk uses up: its iSCSI server's address; empty if it has
    none.
    """
    transport = disk.transport
    return (transport.address if _portal(disk) and transport else "") or _asked_for(disk)


def _addresses(disk: Disk) -> set[str]:
    """Where a disk's server is: as it was asked for, which may be one of many names, and its IP
    address, which is known of a connection that works.
    """
    return {_asked_for(disk), server_of(disk)} - {""}


def _asked_for(disk: Disk) -> str:
    portal = _portal(disk)
    name, _colon, port = portal.rpartition(":")
    return (name if port.isdigit() and name else portal).strip("[]")


def _by_portal(disks: Iterable[Disk]) -> Collection[set[str]]:
    """The targets of each portal."""
    portals: dict[str, set[str]] = {}
    for disk in disks:
        portals.setdefault(_portal(disk), set()).add(disk.target)
    return portals.values()


def _by_map(observations: Iterable[Observation]) -> set[frozenset[str]]:
    """The targets of each map; none for a map without paths."""
    return {
        frozenset(seen.disks[name].target for name in device.slaves if name in seen.disks)
        for seen in observations
        for device in seen.maps
    }


def merged(ties: Iterable[Collection[str]]) -> list[set[str]]:
    """Sets that have something in common as one."""
    groups: list[set[str]] = []
    for tie in ties:
        linked = [group for group in groups if not group.isdisjoint(tie)]
        groups = [group for group in groups if group.isdisjoint(tie)]
        groups += [set(tie).union(*linked)] if tie else []
    return groups


def _portal(disk: Disk) -> str:
    transport = disk.transport
    return transport.peer if transport is not None and transport.kind == "iSCSI" else ""


def maker_of(wwid: str) -> str:
    """Who made the volume with this name (spelled as multipath does); empty if it does not say."""
    # NAA 5 and 6 begin with the IEEE company ID, NAA 2 has it after 12 bits; EUI-64 begins with it;
    # a T10 name begins with the vendor in eight characters (SPC-4, Device Identification VPD page).
    kind, rest = wwid[:1], wwid[1:]
    if kind == "3":
        return rest[4:10] if rest[:1] == "2" else rest[1:7] if rest[:1] in ("5", "6") else ""
    if kind == "1":
        return rest[:8].partition("_")[0]
    return rest[:6] if kind == "2" else ""
