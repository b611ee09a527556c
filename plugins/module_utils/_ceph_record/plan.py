# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which images show from where the healthy nodes reach Ceph, and what of it is recorded.

Pure: no I/O here. What Ceph shows is all that counts. A node's own word (its status, its driver)
only keeps an address from being recorded of another node.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from .._core.argspec import given_names
from .._core.codes import Reason
from .._core.engine import Action, Finding, Plan
from .._core.errors import BadOption, StorageOpsError
from .._core.ip import is_host, normal_address
from .._core.untrusted import few
from .._fences.ceph_reading import Image, Reading, Watcher, parse_reading
from .._fences.proof import stale
from .._fences.record import MOST, Record, Records, few_clients, record_path, word
from .._fences.state import AttachedVolume, HostRecord
from .._kube.objects import CLIENT_RECORD

RUNBOOK = "storage_ops.runbooks.record_ceph_clients"
# So many nodes are read in one run, those first whose record is the oldest: each image is some
# questions to Ceph, and its volume has to have room in a result.
MOST_NODES = 250
# And so much of their volumes (characters), of which none has a long name: what rbd_watcher_info
# tells of as many images has to have room in a result, too.
_MOST_TOLD, _MOST_VOLUME = 150_000, 2_000
# Of each node. With one, a volume whose pod has just ended would hide its node.
_EACH = 2
# A client that is gone stays a watcher for osd_client_watch_timeout, 30 s, after its last ping
# (Watch of src/osd/Watch.cc). So one that is there for longer is alive, and is the node that has
# the volume now. Looks, and seconds from the first to the last.
_LEAST_LOOKS, _LEAST_SECONDS = 2, 31.0
# A record of the same content is not written again before that (seconds): a second run changes
# nothing, and what the next night shows is new evidence.
_FRESH = 3_600.0
# So many nodes that could not be recorded are a finding each.
_MOST_FINDINGS = 50


class RecordOptions(NamedTuple):
    """What the user wants. ``ceph``: None for the question which images are to be read;
    ``attachments``: by volume, the uid of its VolumeAttachment before Ceph was read.
    """

    nodes: tuple[str, ...]
    namespace: str
    other_addresses: tuple[str, ...]
    ceph: Reading | None
    attachments: Mapping[str, str]


class RecordState(NamedTuple):
    """``attached``: the RBD volumes that one node alone has, as Kubernetes has attached them;
    ``fenced``: the nodes that have a ledger.
    """

    now: datetime
    hosts: tuple[HostRecord, ...]
    attached: tuple[AttachedVolume, ...]
    fenced: frozenset[str]
    records: Records


class Judged(NamedTuple):
    """By node its record, or why it has none although Ceph shows clients of it. A node of which
    Ceph shows nothing is in neither. ``disproven``: the keys of records that are wrong by now.
    """

    records: dict[str, Record]
    doubts: dict[str, Reason]
    disproven: set[str]


class Subject(NamedTuple):
    """What is to be written: by key a record, or None for one that goes; ``disproven``: those of
    them that go although their Node object is there.
    """

    records: dict[str, Record | None]
    disproven: frozenset[str] = frozenset()

    @property
    def data(self) -> dict[str, str | None]:
        """As a merge patch has it."""
        return {key: record.text if record else None for key, record in self.records.items()}


def make_options(params: Mapping[str, Any]) -> RecordOptions:
    """The module's options, checked. Raises StorageOpsError."""
    try:
        others = tuple(normal_address(text) for text in params["other_addresses"])
    except ValueError as error:
        raise BadOption(f"other_addresses has what is no IP address: {error}") from None
    ceph = parse_reading(params["ceph"]) if params["ceph"] else None
    nodes = given_names(params, "nodes")["nodes"]
    attachments = {str(name): str(uid) for name, uid in params["attachments"].items()}
    if ceph and not attachments:
        raise BadOption(
            "attachments is empty: give what this module returned as attachments before Ceph was "
            "read, since only a volume that stayed attached shows its node"
        )
    return RecordOptions(nodes, params["ledger_namespace"], others, ceph, attachments)


def check_ceph(reading: Reading, now: datetime) -> None:
    """It was read of one Ceph, just now, and for long enough. Raises StorageOpsError."""
    for reason in stale(reading, now, ""):
        raise StorageOpsError(reason, reason.code)
    if reading.observations < _LEAST_LOOKS or reading.seconds < _LEAST_SECONDS:
        raise StorageOpsError(
            f"Ceph was looked at {reading.observations} times in {reading.seconds:g} s, and "
            f"{_LEAST_LOOKS} times in {_LEAST_SECONDS:g} s are needed, since a client that is gone "
            "is shown for 30 s: read it with observations and observation_seconds of "
            "rbd_watcher_info",
            code="observation_too_short",
        )


def volumes_to_read(state: RecordState, options: RecordOptions) -> list[AttachedVolume]:
    """The volumes whose images show from where the nodes reach Ceph."""
    here = by_node(state)
    oldest = {
        name: min(
            (found.at for found in state.records.found.values() if found.node_uid == host.node.uid),
            default=None,
        )
        for name, host in _wanted(state, options).items()
    }
    turns = sorted((at.timestamp() if at else 0.0, name) for name, at in oldest.items())
    told = [
        volume
        for _at, name in [turn for turn in turns if turn[1] in here][:MOST_NODES]
        # What was attached first is most likely in use.
        for volume in sorted(here[name], key=_since)[:_EACH]
    ]
    room, kept = _MOST_TOLD, []
    for volume in told:
        size = len(json.dumps(volume.pv))
        if size <= min(room, _MOST_VOLUME):
            kept.append(volume)
            room -= size
    return kept


def _since(volume: AttachedVolume) -> tuple[str, str]:
    return str(volume.attachment.created or ""), volume.name


def by_node(state: RecordState) -> dict[str, list[AttachedVolume]]:
    """The volumes of each node."""
    found: dict[str, list[AttachedVolume]] = defaultdict(list)
    for volume in state.attached:
        found[volume.attachment.node].append(volume)
    return found


def _wanted(state: RecordState, options: RecordOptions) -> dict[str, HostRecord]:
    """The healthy nodes that are meant."""
    # Of one that is silent Ceph shows what was, and what has a ledger may be blocked.
    return {
        host.node.name: host
        for host in state.hosts
        if host.node.ready == "True"
        and host.node.name not in state.fenced
        and (not options.nodes or host.node.name in options.nodes)
    }


def plan(state: RecordState, options: RecordOptions) -> Plan:
    """What is to be recorded, and of which nodes Ceph shows what contradicts itself."""
    reading = options.ceph
    if reading is None:
        return Plan([])
    seen, doubts, wrong = judge(state, options, reading)
    new = {record.key: record for record in seen.values() if not _is_kept(record, state, reading)}
    disproven = frozenset(wrong & set(state.records.found))
    gone = sorted({*_of_no_node(state), *disproven})
    too_many = _without_room(state, new, gone)
    doubts |= {new.pop(key).node: reason for key, reason in too_many.items()}
    findings = [_doubt(node, doubts[node]) for node in sorted(doubts)[:_MOST_FINDINGS]]
    if new or gone:
        findings.append(_write(options, Subject({**new, **dict.fromkeys(gone)}, disproven)))
    return Plan(findings)


def judge(state: RecordState, options: RecordOptions, reading: Reading) -> Judged:
    """What Ceph shows of the nodes."""
    here, images = by_node(state), {image.volume: image for image in reading.images}
    judged = Judged({}, {}, set())
    for name, host in _wanted(state, options).items():
        shown = [
            client
            for volume in here.get(name, ())
            for client in [client_of(volume, images.get(volume.name), options)]
            if client
        ]
        if shown:
            _judge_node(
                _record(host, shown, reading), {at for at, _who in shown}, state, judged, images
            )
    return judged


def _judge_node(
    record: Record,
    addresses: set[str],
    state: RecordState,
    judged: Judged,
    images: Mapping[str, Image],
) -> None:
    """Put a node of which Ceph shows something where it belongs."""
    others = _recorded_elsewhere(record, state)
    reason = _contradiction(record, addresses, state, images, others)
    claim = _claimed(record, state)
    before = state.records.found.get(record.key)
    if reason:
        # What was recorded before is not the whole truth, or no truth any more.
        judged.disproven.update({record.key, *(other.key for other in others)})
    # A kubelet's word makes no record go; that Ceph shows the node somewhere else by now does.
    elif claim and before and before.address != record.address:
        judged.disproven.add(record.key)
    doubt = reason or claim
    if doubt:
        judged.doubts[record.node] = doubt
    else:
        judged.records[record.node] = record


def client_of(
    volume: AttachedVolume, image: Image | None, options: RecordOptions
) -> tuple[str, tuple[str, ...]] | None:
    """Address and clients of the node that has this volume; None where its image does not show it.

    Whoever else opens the image at that time makes it show nothing: a copy, a backup, another node.
    """
    if image is None or image.problem:
        return None
    # By its identity, and not by clocks: else another node may have had it while Ceph was read.
    if options.attachments.get(volume.name) != volume.attachment.uid:
        return None
    watchers = watchers_of(image, options)
    if not watchers or not all(_is_of_node(volume, found) for found in watchers):
        return None
    addresses = {found.address for found in watchers}
    addresses |= {lock.address for lock in image.locks} - set(options.other_addresses)
    if len(addresses) != 1:
        return None
    (address,) = addresses
    return (address, tuple(found.client for found in watchers)) if is_host(address) else None


def watchers_of(image: Image, options: RecordOptions) -> list[Watcher]:
    """Who has the image open, without those known to be no node."""
    # rbd-mirror opens every image that it replicates.
    return [
        found
        for found in image.watchers
        if not found.mirror and found.address not in options.other_addresses
    ]


def _is_of_node(volume: AttachedVolume, watcher: Watcher) -> bool:
    """It watches as the node does that has this volume mounted, and an entry for its address would
    hit it.
    """
    # Each time with the same cookie is the same mount. What comes and goes is a tool, or a node
    # that tries to stage the volume. For the mapped address see mapped_clients (_fences/proof.py).
    return (
        watcher.persistent
        and (watcher.is_kernel or volume.may_be_nbd)
        and not watcher.entry.startswith("[::ffff:")
    )


def _record(host: HostRecord, shown: list[tuple[str, tuple[str, ...]]], reading: Reading) -> Record:
    return Record(
        node=host.node.name,
        node_uid=host.node.uid,
        machine=word(host.machine),
        boot_id=word(host.boot_id),
        fsid=reading.fsid,
        address=shown[0][0],
        clients=few_clients(name for _address, names in shown for name in names),
        images=len(shown),
        looks=reading.observations,
        seconds=reading.seconds,
        at=reading.read_at,
    )


def _contradiction(
    record: Record,
    addresses: Collection[str],
    state: RecordState,
    images: Mapping[str, Image],
    others: Collection[Record],
) -> Reason | None:
    """What Ceph shows, or has shown, against recording the address of a node."""
    if len(addresses) > 1:
        return Reason(
            "evidence_contradicts",
            f"Ceph shows its images open at {few(sorted(addresses))}: with several addresses it is "
            "not known by which others it reaches Ceph, so name all of them in fence_addresses "
            "if it is lost",
        )
    held = _also_at(record, state, images)
    if held:
        return Reason(
            "fence_shared",
            f"Ceph shows its images open at {record.address}, where a client has "
            f"{few(held)} open too, which is not attached to this node alone: if several hosts "
            "reach Ceph from one address (NAT), none of them can be fenced by it",
        )
    if others:
        return Reason(
            "evidence_contradicts",
            f"Ceph shows its images open at {record.address}, and that was recorded of node "
            f"{few(other.node for other in others)}, which was not booted since: neither is "
            "recorded there any more, so run again",
        )
    return None


def _claimed(record: Record, state: RecordState) -> Reason | None:
    """Another node has the address in its status."""
    theirs = [
        other.node.name
        for other in state.hosts
        if other.node.uid != record.node_uid and record.address in other.addresses
    ]
    if theirs:
        return Reason(
            "fence_shared",
            f"Ceph shows its images open at {record.address}, and node {few(theirs)} has that "
            "address in its status: find out whose it is",
        )
    return None


def _also_at(record: Record, state: RecordState, images: Mapping[str, Image]) -> list[str]:
    """The images of others that a client at the address of a node has open."""
    mine = {found.name for found in state.attached if found.attachment.node == record.node}
    return [
        image.title
        for image in images.values()
        if image.volume not in mine
        and any(found.address == record.address for found in image.watchers)
    ]


def _recorded_elsewhere(record: Record, state: RecordState) -> list[Record]:
    """The records of other nodes that were seen at its address in their present boot."""
    hosts = {host.node.uid: host for host in state.hosts}
    return [
        other
        for other in state.records.found.values()
        if (other.fsid, other.address) == (record.fsid, record.address)
        and other.node_uid != record.node_uid
        and other.node_uid in hosts
        and other.is_of_boot(hosts[other.node_uid].boot_id, hosts[other.node_uid].machine)
    ]


def _is_kept(record: Record, state: RecordState, reading: Reading) -> bool:
    """The same is recorded, and not long ago."""
    kept = state.records.found.get(record.key)
    return bool(
        kept
        and kept.says_the_same(record)
        and abs((reading.read_at - kept.at).total_seconds()) < _FRESH
    )


def _of_no_node(state: RecordState) -> list[str]:
    """The keys of Node objects that are gone: a uid never comes back."""
    uids = {host.node.uid for host in state.hosts}
    keys = [*state.records.found, *state.records.unreadable]
    return sorted(key for key in keys if key.partition(".")[0] not in uids)


def _without_room(
    state: RecordState, new: Mapping[str, Record], gone: Collection[str]
) -> dict[str, Reason]:
    """By key, those of the new records that would make the ConfigMap too large."""
    data = ((state.records.item or {}).get("data") or {}).items()
    sizes = {key: len(key) + len(text) for key, text in data if key not in gone}
    taken, left = sum(sizes.values()), {}
    for key, record in new.items():
        more = len(key) + len(record.text) - sizes.get(key, 0)
        if taken + more > MOST:
            left[key] = Reason(
                "result_too_long",
                f"ConfigMap {CLIENT_RECORD} has no room for more nodes: it may have {MOST:,} "
                "characters",
            )
        else:
            taken += more
    return left


def _doubt(node: str, reason: Reason) -> Finding:
    finding = Finding(
        control="STOR-16",
        severity="minor",
        kind="Node",
        name=node,
        node=node,
        summary=f"from where node {node} reaches Ceph is not recorded",
        runbook=RUNBOOK,
    )
    finding.leave(reason)
    return finding


def _write(options: RecordOptions, subject: Subject) -> Finding:
    records = [record for record in subject.records.values() if record]
    gone = [key for key, record in subject.records.items() if record is None]
    return Finding(
        control="STOR-16",
        severity="info",
        kind="ConfigMap",
        name=CLIENT_RECORD,
        node="",
        namespace=options.namespace,
        summary=f"{len(records)} nodes are not recorded as Ceph shows them, and {len(gone)} "
        "records are of nodes that are gone, or not true any more",
        verdict="repair",
        reason="Ceph shows the clients of images that one healthy node alone has",
        runbook=RUNBOOK,
        evidence={
            "nodes": [f"{found.node}: {found.address} ({few(found.clients)})" for found in records],
            "removed": gone,
        },
        repair=[
            Action(
                "write_client_record",
                f"{options.namespace}/{CLIENT_RECORD}",
                ["PATCH", record_path(options.namespace), *(found.node for found in records)],
                subject,
            )
        ],
    )
