# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records from where healthy nodes reach Ceph: one ConfigMap, written by one request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from .._core.engine import Action, ActionFailed, Finding, NotStarted, Plan
from .._core.errors import StorageOpsError
from .._fences.ledger import Ledgers
from .._fences.record import read_records, record_path
from .._fences.state import (
    ATTACHMENTS,
    AttachedVolume,
    HostRecord,
    attached_volume,
    pick_host_record,
)
from .._kube.client import Cluster, Conflict, NotFound, Object, path
from .._kube.objects import CLIENT_RECORD, Attachment, Node, pick_attachment
from . import plan as pure
from .plan import RecordOptions, RecordState, Subject


class ClientRecord:
    """The runbook record_ceph_clients on one cluster.

    It needs no Lease: it writes what Ceph showed, and the API server refuses its patch if another
    run has written since this one has read.
    """

    def __init__(self, cluster: Cluster, options: RecordOptions) -> None:
        self._cluster, self._options = cluster, options
        self._state: RecordState | None = None
        self._written: dict[str, str | None] = {}

    def gather(self) -> RecordState:
        """Attachments before nodes and ledgers: a node that is lost or fenced meanwhile is seen."""
        cluster, options = self._cluster, self._options
        if options.ceph:
            pure.check_ceph(options.ceph, cluster.now())
        attachments = cluster.list(ATTACHMENTS, pick_attachment)
        hosts = tuple(cluster.list(path("v1", "nodes"), pick_host_record))
        unknown = sorted(set(options.nodes) - {host.node.name for host in hosts})
        if unknown:
            raise StorageOpsError(
                f"there is no node {', '.join(unknown)}: is it misspelt?", code="not_found"
            )
        records = read_records(cluster, options.namespace)
        if records.item is None:
            raise StorageOpsError(
                f"there is no ConfigMap {options.namespace}/{CLIENT_RECORD}: "
                "playbooks/files/rbac-audit-record.yml of this collection makes it",
                code="not_found",
            )
        self._state = RecordState(
            cluster.now(), hosts, self._volumes(attachments, hosts), self._fenced(), records
        )
        return self._state

    def plan(self, state: RecordState) -> Plan:
        """Decide."""
        return pure.plan(state, self._options)

    def healthy(self, state: RecordState) -> str:
        """What was looked at."""
        return f"{len(state.hosts)} nodes, and {len(state.records.found)} records"

    def facts(self) -> dict[str, Any]:
        """The volumes to be read, for rbd_watcher_info; empty once that was done."""
        found = (
            pure.volumes_to_read(self._state, self._options)
            if self._state and self._options.ceph is None
            else []
        )
        return {
            "volumes": [volume.pv for volume in found],
            "attachments": {volume.name: volume.attachment.uid for volume in found},
        }

    def rehearse(self, action: Action) -> None:
        """Have the API server say whether it would take it."""
        self._patch(action.subject.data, dry_run=True)

    def apply(self, action: Action) -> None:
        """Write it, without the nodes that are no longer what they were."""
        subject: Subject = action.subject
        changed = self._changed(subject)
        data = {key: text for key, text in subject.data.items() if key not in changed}
        if not data:
            raise NotStarted("every node of it was booted, lost or fenced meanwhile: run again")
        self._patch(data)
        self._written = data

    def undo(self, action: Action) -> Action | None:
        """Nothing: it is the last action."""
        return None

    def verify(self, finding: Finding) -> list[str]:
        """What is read back is what was written."""
        item = read_records(self._cluster, self._options.namespace).item or {}
        data = item.get("data") or {}
        wrong = [key for key, text in self._written.items() if data.get(key) != text]
        if wrong:
            raise ActionFailed(
                f"ConfigMap {CLIENT_RECORD} does not have {len(wrong)} of the records as they were "
                "written: another client changes it. Run again",
                code="repair_unproven",
            )
        return [f"ConfigMap {CLIENT_RECORD} has {len(self._written)} records as they were written"]

    def _changed(self, subject: Subject) -> set[str]:
        """The keys of nodes that are no longer as they were judged."""
        hosts = {
            host.node.uid: host
            for host in self._cluster.list(path("v1", "nodes"), pick_host_record)
        }
        fenced = self._fenced()

        def is_same(key: str) -> bool:
            record, host = subject.records[key], hosts.get(key.partition(".")[0])
            if record is None:
                return host is None or key in subject.disproven
            return (
                host is not None
                and host.node.ready == "True"
                and host.node.name not in fenced
                and record.is_of_boot(host.boot_id, host.machine)
            )

        return {key for key in subject.records if not is_same(key)}

    def _patch(self, data: dict[str, str | None], dry_run: bool = False) -> None:
        # The resourceVersion of what was judged: of two runs at once the later one is refused.
        item: Object = (self._state.records.item if self._state else None) or {"metadata": {}}
        meta = {name: item["metadata"].get(name) for name in ("uid", "resourceVersion")}
        where = record_path(self._options.namespace)
        try:
            self._cluster.patch(where, {"metadata": meta, "data": data}, dry_run=dry_run)
        except (Conflict, NotFound) as error:
            raise NotStarted(f"another run has written it meanwhile: {error}") from error

    def _fenced(self) -> frozenset[str]:
        ledgers = Ledgers(self._cluster, self._options.namespace)
        return frozenset(ledger.node for ledger in ledgers.all())

    def _volumes(
        self, attachments: Iterable[Attachment], hosts: Iterable[HostRecord]
    ) -> tuple[AttachedVolume, ...]:
        """The RBD volumes that are attached to one node, and to no other."""
        nodes = {host.node.name: host.node for host in hosts}
        users: dict[str, list[Attachment]] = defaultdict(list)
        for found in attachments:
            if found.volume:
                users[found.volume].append(found)
        alone = {
            name: several[0]
            for name, several in users.items()
            if len(several) == 1 and _is_in_use(several[0], nodes)
        }

        def pick(item: Object) -> AttachedVolume | None:
            found = alone.get(item["metadata"]["name"])
            volume = attached_volume(found, item) if found else None
            return volume if volume and volume.is_rbd else None

        return tuple(self._cluster.list(path("v1", "persistentvolumes"), pick))


def _is_in_use(found: Attachment, nodes: Mapping[str, Node]) -> bool:
    """The node has the volume, and not a machine that had the node's name before."""
    node = nodes.get(found.node)
    return found.attached and not found.deleted and bool(node and not node.is_younger(found))
