# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lost nodes and fences that were left behind: reads the cluster for what fence_audit_plan finds.

A healthy cluster costs four requests, answered from the API server's memory where they may be long:
its nodes, the ConfigMaps of ledgers, its API groups, and NetworkFences. Attachments, volumes and
pods are read only where a node is lost or was named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Callable, NamedTuple

from .._core.argspec import check_numbers, given_names
from .._core.engine import Plan
from .._core.errors import BadOption, StorageOpsError
from .._fences.ceph_reading import parse_reading
from .._fences.ledger import KEY, NO_NOTE, Ledger, Ledgers, Note, parse_ledger, read_note
from .._fences.network_fence import list_fences
from .._fences.state import (
    ATTACHMENTS,
    AttachedVolume,
    HostRecord,
    OnNodes,
    attached_volume,
    find_used,
    is_too_late,
    pick_host_record,
    slim_volume,
    without_attachment,
)
from .._kube.client import Cluster, Object, path
from .._kube.objects import Attachment, Pod, pick_attachment, pick_pod
from .._kube.own import object_name, selector
from . import plan as pure
from .plan import FenceAuditOptions, FenceAuditState, LostNode

# So many objects are read one by one; of more, all of their kind are.
# A GET costs the API server one read of etcd, a LIST of everything megabytes; about here they meet.
_MAX_GETS = 100
# A day. Whoever waits longer before a node counts as lost has typed another unit.
_MAX_GRACE = 86_400.0
_NODES = path("v1", "nodes")
_VOLUMES = path("v1", "persistentvolumes")


# Of nodes, what is said of them.
_Said = tuple[tuple[str, str], ...]


class _Host(NamedTuple):
    """A node, and what is noted on it as its ledger."""

    record: HostRecord
    note: Note


class FenceAudit:
    """The audit that node_fence_info runs on one cluster."""

    def __init__(self, cluster: Cluster, options: FenceAuditOptions, namespace: str) -> None:
        self._cluster, self._options, self._namespace = cluster, options, namespace
        self._kept = Ledgers(cluster, namespace)
        # An audit may take what the API server remembers; what goes on to a fence is read as it is.
        self._cached = not options.nodes
        self._state: FenceAuditState | None = None

    def gather(self) -> FenceAuditState:
        """Read the nodes and ledgers, and of the lost nodes their attachments and volumes."""
        # Attachments first where nodes are named, as for a fence: what is attached meanwhile is
        # missing, and what was detached is judged once more.
        attachments = self._attachments() if self._options.nodes else None
        hosts = self._hosts()
        ledgers, unreadable, copies = self._ledgers(hosts)
        fences = list_fences(self._cluster)
        records = {name: host.record for name, host in hosts.items()}
        # A named node is looked at whatever it says of itself.
        lost = list(self._options.nodes) or sorted(
            name for name, host in records.items() if host.node.ready != "True"
        )
        # The longest list comes last and only if a node is lost.
        if attachments is None:
            attachments = self._attachments() if lost else []
        found = self._lost(lost, records, ledgers, attachments)
        self._state = FenceAuditState(
            self._cluster.now(), records, ledgers, unreadable, fences, found, copies
        )
        return self._state

    def _attachments(self) -> list[Attachment]:
        # resourceVersion=0 lets the API server answer from its watch cache (Kubernetes API
        # concepts, "Resource versions"); a fence needs what etcd has.
        return self._cluster.list(ATTACHMENTS, pick_attachment, cached=self._cached)

    def _hosts(self) -> dict[str, _Host]:
        def pick(item: Object) -> _Host:
            return _Host(pick_host_record(item), read_note(item))

        wanted = self._options.nodes
        if wanted and len(wanted) <= _MAX_GETS:
            items = [self._cluster.get(path("v1", "nodes", name)) for name in wanted]
            found = [pick(item) for item in items if item]
        else:
            found = self._cluster.list(
                _NODES,
                lambda item: pick(item) if self._concerns(item["metadata"]["name"]) else None,
                cached=self._cached,
            )
        return {host.record.node.name: host for host in found}

    def _concerns(self, node: str) -> bool:
        # An audit of named nodes tells nothing of others.
        return not self._options.nodes or node in self._options.nodes

    def _ledgers(
        self, hosts: Mapping[str, _Host]
    ) -> tuple[dict[str, Ledger], _Said, tuple[tuple[str, pure.Unlike], ...]]:
        """By node, those of the ConfigMaps; those that cannot be read; and those of which the node
        says something else.
        """
        # The label is ours, so ConfigMaps of others in the namespace are not even sent.

        def pick(item: Object) -> tuple[str, str] | None:
            text = (item.get("data") or {}).get(KEY)
            return None if text is None else (item["metadata"]["name"], text)

        texts = self._cluster.list(
            path("v1", "configmaps", namespace=self._namespace),
            pick,
            labels=selector(),
            cached=self._cached,
        )
        unreadable: dict[str, str] = {}
        kept = _parse(
            ((name, f"ConfigMap {self._namespace}/{name}", text) for name, text in texts),
            unreadable,
        )
        ledgers = {node: kept[node] for node in filter(self._concerns, sorted(kept))}
        notes = {node: host.note for node, host in hosts.items() if host.note.text}
        doubts = {}
        for node in filter(self._concerns, sorted({*ledgers, *notes} - set(unreadable))):
            what = self._compare(node, ledgers.get(node), hosts.get(node))
            doubts.update({node: what} if what else {})
        found = tuple(
            (node, why) for node, why in sorted(unreadable.items()) if self._concerns(node)
        )
        return ledgers, found, tuple(doubts.items())

    def _compare(self, node: str, kept: Ledger | None, host: _Host | None) -> pure.Unlike | None:
        """What is wrong with the note of a ledger on its node; None if nothing is."""
        # From the worst to the harmless: a ledger that is not there at all, two that contradict
        # each other, one that is only old.
        note = host.note if host else NO_NOTE
        if kept is None:
            where = self._kept.elsewhere(node, note)
            if where:
                said = (
                    f"is in namespace {where} by its annotation, but this run looks in "
                    f"{self._namespace}"
                )
                return pure.Unlike(pure.ELSEWHERE, said, where)
            return pure.Unlike(
                pure.NOTHING, "is nowhere, although the node has the annotation of one"
            )
        # A node's object that was recreated since is not that of the fence.
        if not note.text and host and host.record.node.uid == kept.node_uid:
            return pure.Unlike(pure.STALE, "has no annotation, only its ConfigMap")
        if note.contradicts(kept):
            said = "contradicts the annotation of the node, which is not older"
            return pure.Unlike(pure.CONTRADICTED, said)
        if note.text and note.ledger is None:
            return pure.Unlike(pure.STALE, "has an annotation that cannot be read")
        if note.ledger and note.ledger != kept:
            return pure.Unlike(
                pure.STALE,
                f"has an older annotation: it says {note.ledger.phase} (revision "
                f"{note.ledger.revision}), the ConfigMap {kept.phase}",
            )
        return None

    def _lost(
        self,
        names: list[str],
        hosts: Mapping[str, HostRecord],
        ledgers: Mapping[str, Ledger],
        attachments: list[Attachment],
    ) -> tuple[LostNode, ...]:
        # The fenced volumes of a node belong to it even after they were detached, until they are
        # awaited elsewhere.
        here = _by_node(attachments, names)
        _check_names(name for name in names if not (name in hosts or name in ledgers or here[name]))
        held = {entry.volume for found in here.values() for entry in found if entry.volume}
        volumes = self._volumes(held | _fenced(names, ledgers))
        # Of a Ready node the kubelet itself unmounts what nothing needs.
        silent = {name: hosts.get(name) for name in names if not pure.is_ready(hosts.get(name))}
        seen = OnNodes.nothing()
        used = find_used(self._cluster, silent, ledgers, attachments, volumes, self._cached, seen)
        # One pass over all attachments, not one for each volume.
        by_volume = _by_volume(attachments, held)
        lost = []
        for name in names:
            more = used.get(name, ())
            attached = [
                entry._replace(too_late=is_too_late(entry, hosts.get(name), seen.ran))
                for entry in _attached(here[name], volumes, by_volume)
            ]
            gone = _fenced_away(name, ledgers.get(name), (*attached, *more), volumes)
            found = LostNode(name, hosts.get(name), ledgers.get(name), (*attached, *gone), more)
            lost.append(self._with_neighbours(found, attachments) if self._options.nodes else found)
        return self._with_waiting(lost)

    def _with_waiting(self, lost: list[LostNode]) -> tuple[LostNode, ...]:
        pods = self._waiting_pods(lost)
        return tuple(
            found._replace(waiting=tuple(pod for pod in pods if pod.node != found.name))
            for found in lost
        )

    def _with_neighbours(self, lost: LostNode, attachments: list[Attachment]) -> LostNode:
        names, left_out = pure.find_neighbours(attachments, lost)
        items = self._volumes(set(names))
        return lost._replace(
            neighbours=tuple(slim_volume(items[name]) for name in names if name in items),
            neighbours_left_out=left_out,
        )

    def _waiting_pods(self, lost: Iterable[LostNode]) -> list[Pod]:
        """The pods that have a node, and wait for a volume which the lost nodes may hold."""
        # Pending with a node means scheduled and waiting for its volumes, among other things.
        volumes = [
            volume
            for found in lost
            if not pure.is_ready(found.host)
            for volume in (*found.volumes, *found.left_open)
            if pure.is_exclusive(volume)
        ]
        claims = {volume.volume.claim for volume in volumes if volume.volume and volume.claim}

        def pick(item: Object) -> Pod | None:
            # A tenant may name 43,000 claims in a pod beside that one.
            pod = pick_pod(item)
            its = tuple(claim for claim in pod.claims if (pod.namespace, claim) in claims)
            waits = pod.node and pod.phase == "Pending" and its
            return pod._replace(claims=its) if waits else None

        spaces = sorted({namespace for namespace, _name in claims})
        folders = (
            [path("v1", "pods", namespace=space) for space in spaces]
            if len(spaces) <= _MAX_GETS
            else [path("v1", "pods")]
        )
        return [
            pod
            for folder in folders
            for pod in self._cluster.list(folder, pick, cached=self._cached)
        ]

    def _volumes(self, names: set[str]) -> dict[str, Object]:
        # Some are read one by one, many by one list.
        if len(names) > _MAX_GETS:
            found = self._cluster.list(
                _VOLUMES,
                lambda item: item if item["metadata"]["name"] in names else None,
                cached=self._cached,
            )
        else:
            found = [
                item
                for name in sorted(names)
                for item in [self._cluster.get(f"{_VOLUMES}/{name}")]
                if item
            ]
        return {item["metadata"]["name"]: item for item in found}

    def plan(self, state: FenceAuditState) -> Plan:
        """Judge."""
        return pure.plan(state, self._options)

    def healthy(self, state: FenceAuditState) -> str:
        """Counts of what was looked at."""
        ready = sum(host.node.ready == "True" for host in state.hosts.values())
        return f"{ready} of {len(state.hosts)} nodes are Ready, {len(state.ledgers)} have a fence"

    def facts(self) -> dict[str, Any]:
        """The lost nodes."""
        return {"lost": pure.describe(self._state, self._options)} if self._state else {}

    def owners(self) -> dict[str, tuple[str, Callable[[Any], str]]]:
        """Any number of nodes may be lost; of one that was named nothing may be missing."""
        if self._options.nodes:
            return {}
        return {"lost": ("STOR-16", lambda entry: str(entry["node"]))}


def _check_names(unknown: Iterable[str]) -> None:
    """Raises StorageOpsError for names that nothing in the cluster has."""
    names = ", ".join(unknown)
    if names:
        raise StorageOpsError(
            f"there is no node {names}, nor an attachment or a ledger that names it: is it "
            f"misspelt?",
            code="not_found",
        )


def _fenced(names: Iterable[str], ledgers: Mapping[str, Ledger]) -> set[str]:
    return {volume for name in names if name in ledgers for volume in ledgers[name].volumes}


def _by_node(
    attachments: Iterable[Attachment], names: Iterable[str]
) -> dict[str, list[Attachment]]:
    """The attachments to each of these nodes."""
    found: dict[str, list[Attachment]] = {name: [] for name in names}
    for attachment in attachments:
        if attachment.node in found:
            found[attachment.node].append(attachment)
    return found


def _by_volume(attachments: Iterable[Attachment], volumes: set[str]) -> dict[str, list[Attachment]]:
    """All attachments of each of these volumes."""
    found: dict[str, list[Attachment]] = {}
    for attachment in attachments:
        if attachment.volume in volumes:
            found.setdefault(attachment.volume, []).append(attachment)
    return found


def _attached(
    here: Iterable[Attachment],
    volumes: Mapping[str, Object],
    by_volume: Mapping[str, list[Attachment]],
) -> list[AttachedVolume]:
    """The attachments to a node with their volumes, and where else each of those is attached."""
    # VolumeAttachments of one volume to other nodes show who waits for it, or has it too.
    return [
        attached_volume(
            entry,
            volumes.get(entry.volume),
            [other for other in by_volume.get(entry.volume, ()) if other.node != entry.node],
        )
        for entry in here
    ]


def _fenced_away(
    node: str,
    ledger: Ledger | None,
    known: Iterable[AttachedVolume],
    volumes: Mapping[str, Object],
) -> list[AttachedVolume]:
    """The volumes of its fence that have left a node: they still belong to its fail-over."""
    names = {found.attachment.volume for found in known}
    left = sorted(set(ledger.volumes if ledger else ()) - names)
    return [without_attachment(volume, node, volumes.get(volume)) for volume in left]


def make_audit(cluster: Cluster, params: Mapping[str, Any]) -> FenceAudit:
    """The audit with its options, checked."""
    check_numbers(params, {"grace_seconds": (0, _MAX_GRACE)})
    if not params["controls"]:
        raise BadOption(
            "controls is empty, so nothing would be looked at; leave "
            "the option out to run all of them"
        )
    nodes = given_names(params, "nodes")["nodes"]
    ceph = parse_reading(params["ceph"]) if params["ceph"] else None
    return FenceAudit(
        cluster, FenceAuditOptions(nodes, ceph, params["grace_seconds"]), params["ledger_namespace"]
    )


def _parse(texts: Iterable[tuple[str, str, str]], unreadable: dict[str, str]) -> dict[str, Ledger]:
    """The ledgers by node, from name of the ConfigMap, place and text; of those that cannot be
    read, why, by node.
    """
    # The name of a ConfigMap says whose ledger it should be; one that was copied would fence, or
    # release, another node.
    found = {}
    for name, where, text in texts:
        node = name.partition(object_name(""))[2]
        try:
            ledger = parse_ledger(text, where)
        except StorageOpsError as error:
            unreadable[node] = str(error)
            continue
        if object_name(ledger.node) != name:
            unreadable[node] = f"{where} is the ledger of node {ledger.node}: it was copied by hand"
        else:
            found[ledger.node] = ledger
    return found
