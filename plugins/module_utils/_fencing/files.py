# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which volumes of CephFS are fenced with the RBD volumes of the node? Pure: no I/O here.

RBD and CephFS share the blocklist of their Ceph. Nothing that is read before the fence shows from
where a node has a CephFS mounted, without being the client's own word. So a volume of CephFS names
no address to fence. It joins the fence of the whole node, once that is in force and no metadata
server has a session of the node any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .._core.codes import Reason
from .._core.untrusted import few
from .._fences.ceph_reading import FileSystem, Reading, Session
from .._fences.ledger import Ledger
from .._fences.state import AttachedVolume, NodeState, opposing
from .case import FenceCase
from .confirmation import node_addresses
from .options import FenceOptions
from .proven import proven_of
from .whole_node import is_whole, widen


@dataclass
class Files:
    """``covered``: the volumes of CephFS that the fence is proven for; ``left``: the others, each
    with the reason; ``opposed``: what contradicts a fence that has volumes of CephFS already.
    """

    covered: list[str] = field(default_factory=list)
    left: dict[str, Reason] = field(default_factory=dict)
    opposed: list[Reason] = field(default_factory=list)


def judge_files(
    state: NodeState, ledger: Ledger, options: FenceOptions, reading: Reading | None
) -> Files:
    """Judge each volume of CephFS that the node may have mounted. ``reading``: of after the
    fence.
    """
    files = Files()
    # With method power everything on the node is fenced, and with method none nothing is.
    if ledger.method not in ("ceph", "network_fence") or options.check:
        return files
    # ceph-csi attaches nothing where its CSIDriver says attachRequired: false.
    candidates = [found for found in state.held if _is_meant(found, options)]
    if not candidates:
        return files
    judge = _Judge(state, ledger, options, reading)
    for found in candidates:
        if found.name in ledger.volumes:
            # It was proven. That it cannot be read now says nothing against it.
            files.opposed += judge.held(found)
            continue
        reasons = [*judge.unfit(found), *judge.held(found)]
        if reasons:
            files.left[found.name] = reasons[0]
        else:
            files.covered.append(found.name)
    return files


def _is_meant(found: AttachedVolume, options: FenceOptions) -> bool:
    # What the node cannot have opened, or has no PersistentVolume, is left as any other volume.
    return (
        found.is_cephfs
        and found.volume is not None
        and not found.too_late
        and options.cluster_id in ("", found.cluster_id)
    )


class _Judge:
    """What was read, and the node that is fenced."""

    def __init__(
        self, state: NodeState, ledger: Ledger, options: FenceOptions, reading: Reading | None
    ) -> None:
        self._state, self._ledger, self._options = state, ledger, options
        self._reading = reading
        self._case = FenceCase(state, options)
        self._proven = proven_of(state, reading.images if reading else (), options)
        self._mine = node_addresses(ledger, state, options, self._proven)

    def unfit(self, found: AttachedVolume) -> list[Reason]:
        """Why it is not known whether the node still has this volume."""
        late = self._case.not_begun_with(found)
        if late:
            return [late]
        reading = self._reading
        if reading is None or reading.files is None:
            return [_unread(found, "the sessions at the metadata servers were not read")]
        if not self._is_same_ceph(found, reading):
            return [
                Reason(
                    "ceph_reading_unfit",
                    f"{found.name} names clusterID {found.cluster_id or '(none)'}, and nothing "
                    f"shows that this is Ceph cluster {reading.fsid}, which was fenced. If it is, "
                    "say so by cluster_id",
                )
            ]
        opposing_ones = opposing(self._state, self._ledger, {found.attachment.driver})
        if opposing_ones:
            names = few(fence.name for fence in opposing_ones)
            return [
                Reason(
                    "network_fence_opposed",
                    f"NetworkFence {names} is Unfenced, may act on the Ceph of {found.name}, and "
                    "covers an address of the fence, so its controller may take the fence away",
                )
            ]
        return [*self._not_whole(found), *self._unread_files(found, reading.files)]

    def held(self, found: AttachedVolume) -> list[Reason]:
        """The sessions that are, or may be, the node's."""
        left = [
            f"{session.title} at {files.name}"
            for files in self._files_of(found)
            for session in files.sessions
            if self._may_be_node(session, found)
        ]
        if not left:
            return []
        # Without a filter, "session evict" matches all sessions (Ceph's src/mds/MDSRank.cc,
        # evict_clients), and adds all clients to the blocklist: seen with 16.2.15.
        return [
            Reason(
                "ceph_session_left",
                f"{few(left)} still has a session, and it is, or may be, node "
                f"{self._options.node}'s. The metadata server does what it asks for, so "
                f"{found.name} is not fenced. Find out whose it is, let it end or evict it alone "
                "(ceph tell mds.RANK session evict id=NUMBER; without id= all clients are "
                "evicted), and run again",
            )
        ]

    def _files_of(self, found: AttachedVolume) -> list[FileSystem]:
        """The filesystem of the volume; all of them where it does not tell which one."""
        files = self._reading.files if self._reading else None
        return [one for one in files or () if found.file_system in ("", one.name) or not one.name]

    def _unread_files(self, found: AttachedVolume, files: tuple[FileSystem, ...]) -> list[Reason]:
        mine = self._files_of(found)
        if not mine:
            name = found.file_system or "any CephFS"
            return [_unread(found, f"there is no {name} in the Ceph that was read")]
        return [
            _unread(found, f"{one.name or 'CephFS'}: {one.problem}") for one in mine if one.problem
        ]

    def _not_whole(self, found: AttachedVolume) -> list[Reason]:
        """Why the node may reach the volume from an address that is not fenced."""
        if self._case.older([found]) or found.used_by_older_pod:
            return [
                Reason(
                    "fence_incomplete",
                    f"{found.name} was attached before this Node object was made, or a pod uses it "
                    f"that is older, so the machine that was {self._options.node} before may have "
                    "it, at an unknown address",
                )
            ]
        # The whole node is what it was when the fence was intended, judged by what is read now.
        case, ledger = self._case, self._ledger
        case.source, case.spared = dict(ledger.source), {}
        widen(case, ledger.method)
        added = [address for address in case.source if address not in ledger.addresses]
        if not added and is_whole(case):
            return []
        spared = [f"{address} {why}" for address, why in case.spared.items()]
        bare = [f"no {name} address is in the fence" for name in case.bare_families()]
        why = few([*(f"{address} is not in the fence" for address in added), *spared, *bare], "; ")
        return [
            Reason(
                "fence_incomplete",
                f"{found.name} needs the fence of the whole node, which may lack an address "
                f"({why or 'which addresses the node has is not known'}): name all by which it "
                "reaches Ceph in fence_addresses, or prove that it is off and use method none with "
                "node_confirmed_off",
            )
        ]

    def _is_same_ceph(self, found: AttachedVolume, reading: Reading) -> bool:
        """The Ceph that was read is the one that the volume is in."""
        # A clusterID is any name, and mostly the fsid. A name means one Ceph to all drivers of one
        # ceph-csi (its ConfigMap, ClusterInfo of internal/util/csiconfig.go). Without the image of
        # each RBD volume of the fence, that is not proven.
        cluster_id = found.cluster_id
        if not cluster_id:
            return False
        if cluster_id.lower() == reading.fsid.lower() or cluster_id == self._options.cluster_id:
            return True
        return any(
            other.is_rbd
            and (other.cluster_id, other.family) == (cluster_id, found.family)
            and other.name in self._ledger.volumes
            for other in self._state.held
        )

    def _may_be_node(self, session: Session, found: AttachedVolume) -> bool:
        """The session is the node's, or nothing shows that it is another client's."""
        if session.address in self._mine:
            return True
        if session.address in self._proven or session.address in self._options.other_addresses:
            return False
        # A client may give any host name, so none is fenced by it. But one that gives this node's
        # may be this node.
        if _is_named(session.hostname, self._options.node):
            return True
        alone = not found.is_shared and not found.elsewhere
        return alone and bool(found.root) and session.root.rstrip("/") == found.root


def _unread(found: AttachedVolume, why: str) -> Reason:
    return Reason(
        "ceph_not_read",
        f"whether the node still has a session for {found.name} is not known: {why}",
    )


def _is_named(hostname: str, node: str) -> bool:
    """The host has the node's name, with or without its domain."""
    host, name = hostname.lower(), node.lower()
    return bool(host) and (
        host == name or host == name.partition(".")[0] or host.partition(".")[0] == name
    )
