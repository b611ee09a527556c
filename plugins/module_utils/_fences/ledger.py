# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ledger of a fence: what was done to a node, and by whom, so that exactly that can be taken
back.

It is kept in a ConfigMap, and then noted on the Node, for the eye and for runs that keep theirs in
another namespace. Whoever controls the node's kubelet may write that note, so nothing is done or
left undone because of the note alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from .._core import untrusted
from .._core.argspec import ArgumentSpec, check_numbers
from .._core.errors import BadOption, StorageOpsError
from .._core.ip import host_addresses
from .._kube.changing import again, change_object
from .._kube.client import Cluster, Forbidden, Object, path
from .._kube.objects import OWN_NAMESPACE, parse_time
from .._kube.own import LABELS, create_own, has_room, object_name, selector

# A copy of the ledger on the Node, for whoever reads that alone. The ConfigMap counts: a kubelet
# may write the annotations of its own Node (NodeRestriction,
# plugin/pkg/admission/noderestriction/admission.go).
ANNOTATION = "runbooks.storage-ops/fence"
KEY = "ledger"
# Characters of the names of its volumes, as JSON has them (name_size). A ledger may have each of
# them twice (volumes, detached). Together with all that node_fence_info tells of the node besides,
# it has to fit in one result (MAX_RESULT_CHARACTERS), in each run until the release. A ConfigMap
# has room for 1 MiB (MaxSecretSize of pkg/apis/core/validation/validation.go).
MOST_NAMES = 60_000
# Raised with every change that an older collection would misread; it then refuses.
VERSION = 1
# In the order in which a fence comes to them.
PHASES = ("intended", "fenced", "detached", "releasing")
METHODS = ("ceph", "network_fence", "power", "external", "none")
# Those whose fence is that the node has no power: we have switched it off, or others have.
OFF_METHODS = ("power", "external")
KINDS = ("address", "range")
# The kind of what is no BMC, and tells of one that others have switched off (_fences/external.py).
EXTERNAL = "external"
# What stands for the machine of a fence that may be of another one, which had the node's name
# before: what this one does then releases nothing.
UNKNOWN_MACHINE = "unknown"

# Seconds. A change, with the looks right before it, has to end before its Lease does. One that
# never runs out would lock everybody out after a run that was killed.
_LEAST_LEASE, _MOST_LEASE = 10.0, 3600.0
# Where the ledgers are, for whoever reads them.
PLACE = ArgumentSpec({"ledger_namespace": {"type": "str", "default": OWN_NAMESPACE}})
# Which run works at which node.
WHOSE = PLACE.merge(
    ArgumentSpec(
        {"node": {"type": "str", "required": True}, "run_id": {"type": "str", "required": True}}
    )
)
RUN = WHOSE.merge(
    ArgumentSpec(
        {
            "lease_seconds": {"type": "float", "default": 240.0},
            "lease_timeout": {"type": "float", "default": 260.0},
            "fence": {"type": "dict"},
        }
    )
)


class Entry(NamedTuple):
    """An entry of Ceph's blocklist as the module ceph_blocklist takes it. ``until``: ISO, or empty.

    ``ours``: we have made or renewed it, so it goes when the node is given back; or, if it was
    there ``before``, until that time, it is given back as it was.
    """

    entry: str
    kind: str
    ours: bool
    until: str
    before: str = ""


class FenceObject(NamedTuple):
    """A NetworkFence that fences the node. ``ours``: it was Unfenced before."""

    name: str
    uid: str
    cidrs: tuple[str, ...]
    ours: bool


class PowerFence(NamedTuple):
    """The BMC by which a node is switched off, or what else says that it is. Its user and password
    are never noted.

    ``kind``: "redfish", "ipmi", the name of a fence agent, or "external"; ``address``: for that
    last one the host that is asked; ``system``: the system's Id in Redfish, the plug of a fence
    agent, the providerID; ``uuid``: of the machine, as the BMC says, or empty; ``off_at``: when the
    node was first proven to be off, ISO, or empty.
    """

    kind: str
    address: str
    system: str = ""
    uuid: str = ""
    off_at: str = ""

    @property
    def title(self) -> str:
        """What says whether the node is off, as a message names it."""
        return f"its {'BMC' if self.kind != EXTERNAL else 'external source'} {self.address}"

    @property
    def is_named(self) -> bool:
        """It says which machine it is of."""
        return bool(self.system or self.uuid)


class Ledger(NamedTuple):
    """What is to be done, or was done, to a node; see the module node_fence for what its fields
    mean.

    ``revision`` counts how often it was written, so that of two copies it is known which one is
    older. ``machine``: the hardware or virtual machine that was fenced, as another one may have the
    node's name by now; ``namespace``: where the ledger is kept. Both are empty in the ledgers of an
    older version. ``detached``: those of ``volumes`` that are proven to have left the node, and to
    be attached elsewhere or free; in the phase ``detached`` all of them have. ``power``: with one
    of OFF_METHODS, by which BMC. ``proven``: the fence was proven once, so volumes may have moved,
    whatever the phase says since more was to be fenced. ``declared_off``: some moved because the
    user had declared the node off (method none), before this fence took over.
    """

    node: str
    node_uid: str
    boot_id: str
    method: str
    phase: str
    cluster_id: str
    fsid: str
    addresses: tuple[str, ...]
    entries: tuple[Entry, ...]
    network_fences: tuple[FenceObject, ...]
    source: dict[str, str]
    volumes: tuple[str, ...]
    unverified: bool
    cordoned: bool
    tainted: bool
    by: str
    run: str
    at: str
    revision: int = 0
    machine: str = ""
    namespace: str = ""
    detached: tuple[str, ...] = ()
    power: PowerFence | None = None
    proven: bool = False
    declared_off: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it, and as modules return it."""
        data: dict[str, Any] = {"version": VERSION, **self._asdict()}
        for name in ("addresses", "volumes", "detached"):
            data[name] = list(data[name])
        data["source"] = dict(self.source)
        data["entries"] = [entry._asdict() for entry in self.entries]
        data["network_fences"] = [
            {**found._asdict(), "cidrs": list(found.cidrs)} for found in self.network_fences
        ]
        # Only where there is one, so that the text of any other ledger stays what it was.
        del data["power"]
        return {**data, "power": self.power._asdict()} if self.power else data

    @property
    def was_declared_off(self) -> bool:
        """Volumes moved because the user declared the node off."""
        return self.declared_off or (self.method == "none" and self.was_proven)

    @property
    def text(self) -> str:
        """As the ConfigMap and the annotation have it."""
        # Sorted, so that a copy can be compared as a text.
        return json.dumps(self.to_dict(), sort_keys=True)

    @property
    def path(self) -> str:
        """Where the API has its node."""
        return path("v1", "nodes", self.node)

    @property
    def is_off(self) -> bool:
        """The fence is that the node has no power, so that it writes to no storage at all."""
        return self.method in OFF_METHODS

    @property
    def was_proven(self) -> bool:
        """It was proven once, so its volumes may have moved, whatever was begun since."""
        return self.proven or self.phase in ("fenced", "detached")

    def reached(self, phase: str) -> bool:
        """It has come to that phase, or is past it."""
        return PHASES.index(self.phase) >= PHASES.index(phase)


def parse_ledger(data: Mapping[str, Any] | str, where: str) -> Ledger:
    """The ledger that a text or a dictionary holds.

    Raises StorageOpsError that names ``where`` it stands.
    """
    try:
        fields = untrusted.from_json(data) if isinstance(data, str) else data
        if fields["version"] != VERSION:
            raise ValueError(
                f"its version is {fields['version']!r}, and this collection writes {VERSION}"
            )
        return _parse(fields)
    except (ValueError, OverflowError, KeyError, TypeError, AttributeError) as error:
        said = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise StorageOpsError(
            f"the ledger in {where} cannot be read: {said}. Nothing is done to a node whose fence "
            "is not known: repair the ledger, or take the fence back by hand and delete it",
            code="ledger_unreadable",
        ) from error


_NAMES = ("node", "node_uid", "boot_id", "method", "phase", "cluster_id", "fsid")


def _parse(fields: Mapping[str, Any]) -> Ledger:
    # Every field must be there and of its type: a field that is missing must not pass for an empty
    # one.
    texts: dict[str, Any] = {name: _text(fields, name) for name in (*_NAMES, "by", "run", "at")}
    for name, allowed in (("method", METHODS), ("phase", PHASES)):
        if texts[name] not in allowed:
            raise ValueError(f"{name} is {texts[name]!r}")
    moment = parse_time(texts["at"])
    # A time without a zone could be off by hours, and an entry's end is judged by it.
    if not texts["node"] or moment is None or moment.tzinfo is None:
        raise ValueError("it has no node, or no time")
    entries = tuple(map(_entry, fields["entries"]))
    wrong = [entry.kind for entry in entries if entry.kind not in KINDS]
    if wrong:
        raise ValueError(f"kind is {wrong[0]!r}")
    return Ledger(
        **texts,
        addresses=_texts(fields["addresses"]),
        entries=entries,
        network_fences=tuple(
            FenceObject(
                _text(item, "name"), _text(item, "uid"), _texts(item["cidrs"]), _flag(item, "ours")
            )
            for item in fields["network_fences"]
        ),
        source={str(address): str(source) for address, source in fields["source"].items()},
        volumes=_texts(fields["volumes"]),
        unverified=_flag(fields, "unverified"),
        cordoned=_flag(fields, "cordoned"),
        tainted=_flag(fields, "tainted"),
        revision=int(fields.get("revision", 0)),
        machine=_text({"machine": "", **fields}, "machine"),
        namespace=_text({"namespace": "", **fields}, "namespace"),
        detached=_texts({"detached": [], **fields}["detached"]),
        power=_power(texts["method"], fields.get("power")),
        proven=_flag({"proven": _may_be_proven(fields), **fields}, "proven"),
        declared_off=_flag({"declared_off": False, **fields}, "declared_off"),
    )


def _may_be_proven(fields: Mapping[str, Any]) -> bool:
    """Of the ledger of an older version: only one that was written once, before its fence, was
    certainly never proven.
    """
    return fields["phase"] != "intended" or fields.get("revision") != 1


def _power(method: str, item: Mapping[str, Any] | None) -> PowerFence | None:
    """The BMC of a fence by one of OFF_METHODS, which has one in any case."""
    if item is None:
        if method in OFF_METHODS:
            raise ValueError(f"its method is {method}, and it names no BMC")
        return None
    return PowerFence(*(_text(item, name) for name in PowerFence._fields))


def _text(fields: Mapping[str, Any], name: str) -> str:
    if not isinstance(fields[name], str):
        raise TypeError(f"{name} is no text")
    return str(fields[name])


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, (list, tuple)) or not all(isinstance(value, str) for value in values):
        raise TypeError("a list of texts is none")
    return tuple(values)


def _entry(item: Mapping[str, Any]) -> Entry:
    """What an older version wrote has no ``before``."""
    before = _text({"before": "", **item}, "before")
    return Entry(
        _text(item, "entry"), _text(item, "kind"), _flag(item, "ours"), _text(item, "until"), before
    )


def _flag(fields: Mapping[str, Any], name: str) -> bool:
    if not isinstance(fields[name], bool):
        raise TypeError(f"{name} is neither true nor false")
    return bool(fields[name])


class RunOptions(NamedTuple):
    """The options RUN, checked.

    ``fence``: what the step before would have written; counts in check mode only.
    """

    node: str
    run: str
    namespace: str
    lease_seconds: float
    lease_timeout: float
    fence: Ledger | None


def run_options(params: Mapping[str, Any], check_mode: bool) -> RunOptions:
    """The options that the modules of a fence share.

    Raises StorageOpsError for what does not fit.
    """
    # They become names of objects, and are shown in commands to be copied.
    check_run(params)
    check_numbers(
        params, {"lease_seconds": (_LEAST_LEASE, _MOST_LEASE), "lease_timeout": (0.0, 86_400.0)}
    )
    fence = (
        parse_ledger(params["fence"], "the option fence")
        if check_mode and params["fence"]
        else None
    )
    # It passes through a playbook, where a loop over nodes mixes them up easily.
    if fence and fence.node != params["node"]:
        raise BadOption(
            f"the option fence is the ledger of node {fence.node}, not of {params['node']}"
        )
    return RunOptions(
        params["node"],
        params["run_id"],
        params["ledger_namespace"],
        params["lease_seconds"],
        params["lease_timeout"],
        fence,
    )


def check_run(params: Mapping[str, Any]) -> None:
    """Whether ``node``, ``run_id`` and ``ledger_namespace`` are names at all, or BadOption."""
    for name in WHOSE.options:
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", params[name]):
            raise BadOption(
                f"{name} is {params[name]!r}; give one word of letters, digits, dots and dashes"
            )


def config_map_path(node: str, namespace: str) -> str:
    """Where the API has the ConfigMap of a node's ledger."""
    return path("v1", "configmaps", object_name(node), namespace)


class Note(NamedTuple):
    """What stands on a Node object; ``text`` is empty for nothing, ``ledger`` None for what is none
    of that node.

    A kubelet may write the annotations of its own node (NodeRestriction,
    plugin/pkg/admission/noderestriction), so a note is shown, compared and looked into, and never
    believed.
    """

    text: str
    ledger: Ledger | None

    def contradicts(self, kept: Ledger) -> bool:
        """It is not what a run that was killed between the two has left: that one is older."""
        # The ConfigMap is written first, so after a kill the note is older, never newer.
        return bool(self.ledger and self.ledger != kept and kept.revision <= self.ledger.revision)


NO_NOTE = Note("", None)


def name_size(name: str) -> int:
    """The characters that a name has in a list of JSON."""
    return len(name) + len('"", ')


def noted_text(ledger: Ledger, item: Object) -> str:
    """What is noted of a ledger on its Node; empty if that has no room for it."""
    return ledger.text if has_room(item, ANNOTATION, ledger.text) else ""


def is_noted(item: Object, ledger: Ledger) -> bool:
    """The note on the node is the newest, and there if it has room."""
    return read_note(item).text == noted_text(ledger, item)


def read_note(item: Object | None) -> Note:
    """What is noted on a Node object."""
    # An annotation may be edited by anybody with the right to patch nodes, so it may be no ledger
    # at all.
    if item is None:
        return NO_NOTE
    text = str((item["metadata"].get("annotations") or {}).get(ANNOTATION) or "")
    try:
        ledger = parse_ledger(text, "")
    except StorageOpsError:
        return Note(text, None)
    return Note(text, ledger if ledger.node == item["metadata"]["name"] else None)


def doubt_of(namespace: str) -> str:
    """What to do about a ledger in another namespace, as a sentence without its end."""
    # Who follows such a note believes its writer: with that ledger the fence of another node was
    # taken off.
    return (
        "A node may write its own annotation, and a tenant a ConfigMap in its namespace. Only if "
        f"runs of yours keep ledgers in {namespace}, give ledger_namespace {namespace}; if not, "
        "the annotation is false"
    )


def _pick(item: Object, doubts: dict[str, str]) -> Ledger | None:
    """The ledger in a ConfigMap with our label; what keeps it from being one goes to ``doubts``,
    by the ConfigMap's place.
    """
    meta, text = item["metadata"], (item.get("data") or {}).get(KEY)
    if not text:
        return None
    where = f"ConfigMap {meta['namespace']}/{meta['name']}"
    prefix = object_name("")
    # RBAC restricts names, and never labels: who may patch one other object of this namespace, as
    # the account of the audits the record of clients, could make a ledger of it.
    if not meta["name"].startswith(prefix):
        doubts[where] = f"{where} has the label of a ledger, and not the name of one"
        return None
    try:
        ledger = parse_ledger(text, where)
    except StorageOpsError as error:
        doubts[where] = str(error)
        return _torn(meta["name"][len(prefix) :], text)
    if object_name(ledger.node) != meta["name"]:
        doubts[where] = f"{where} is the ledger of node {ledger.node}: it was copied by hand"
        return None
    return ledger


def _torn(node: str, text: str) -> Ledger:
    """What an unreadable ledger of another node means for this one: each address in its text may be
    in that fence.

    It may be one of a newer collection, so it is not ignored. But it names no volume, so that it
    speaks for no client.
    """
    # An entry of Ceph may have a port and a nonce behind its address (10.0.0.5:0/123).
    words = re.findall(r"[0-9A-Fa-f.:]{2,}", text)
    addresses, _others = host_addresses([*words, *(word.partition(":")[0] for word in words)])
    return Ledger(
        node=node,
        node_uid="",
        boot_id="",
        method="ceph",
        phase="intended",
        cluster_id="",
        fsid="",
        addresses=addresses,
        entries=(),
        network_fences=(),
        source={},
        volumes=(),
        unverified=True,
        cordoned=False,
        tainted=False,
        by="",
        run="",
        at="",
    )


class Ledgers:
    """Where the ledgers are kept."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        # Which of all() were not read, and why, as a sentence; empty if none.
        self.unread = ""
        self._folder = path("v1", "configmaps", namespace=namespace)

    def read(self, node: str, item: Object | None) -> Ledger | None:
        """The ledger of a node, of which ``item`` is the object, or None if that is gone.

        Raises StorageOpsError where it cannot be read, and where it is kept in another namespace.
        """
        self._check_place(node, read_note(item))
        kept, _found = self._kept(node)
        # A restored backup, or a copy by hand: its entries are another node's.
        if kept and kept.node != node:
            raise StorageOpsError(
                f"ConfigMap {self._namespace}/{object_name(node)} of node {node} is the ledger of "
                f"node {kept.node}: find out who copied it, and delete it",
                code="evidence_contradicts",
            )
        return kept

    def refuse_doubt(self, kept: Ledger, item: Object | None) -> None:
        """Before a fence is taken off: raises StorageOpsError if the note on the node says
        otherwise, and is no older.

        The ConfigMap may have been restored from a backup. A kubelet that writes such a note keeps
        its own fence.
        """
        # A release takes protection away. Whoever could forge an old ConfigMap, as by a restored
        # backup, must not have a fence taken off that is newer.
        note = read_note(item)
        if note.ledger and note.contradicts(kept):
            raise StorageOpsError(
                f"ConfigMap {self._namespace}/{object_name(kept.node)} and the annotation "
                f"{ANNOTATION} of node {kept.node} contradict each other (phase {kept.phase}, and "
                f"phase {note.ledger.phase}): compare both with Ceph's "
                "blocklist, and delete the wrong one",
                code="evidence_contradicts",
            )

    def write(self, ledger: Ledger, dry_run: bool = False) -> Ledger:
        """Keep it in the ConfigMap, then note it on the node, if that is still there; returns it
        with its new revision.

        Raises StorageOpsError if what is kept is not of the revision that ``ledger`` was made from.
        """
        # The ConfigMap first, which counts; a note without its ConfigMap would be one of which
        # nothing is known.
        kept = again(lambda: self._keep(ledger, dry_run))
        self._note(kept, dry_run)
        return kept

    def remove(self, ledger: Ledger, dry_run: bool = False) -> None:
        """Take its note from the node, whose object may be another one by now, and then delete the
        ConfigMap.

        Raises StorageOpsError if what is kept is another ledger by now.
        """
        again(lambda: self._remove(ledger, dry_run))

    def all(self) -> list[Ledger]:
        """The ledger of every node that has one in a ConfigMap of this namespace, and of the
        default one, as far as this account may read that: two nodes' fences may share an entry.

        No other namespace counts, since a tenant may write ConfigMaps in its own. Of one that
        cannot be read there is what ``_torn`` makes of it, and ``unread`` names it.
        """
        doubts: dict[str, str] = {}

        def pick(item: Object) -> Ledger | None:
            return _pick(item, doubts)

        found = self._cluster.list(self._folder, pick, labels=selector())
        unread = []
        if self._namespace != OWN_NAMESPACE:
            default = path("v1", "configmaps", namespace=OWN_NAMESPACE)
            try:
                found += self._cluster.list(default, pick, labels=selector())
            except Forbidden:
                unread.append(
                    f"this account may not read the ledgers of namespace {OWN_NAMESPACE}, so it is "
                    "not known whether another node's fence shares an entry with this one"
                )
        if doubts:
            unread.append(
                f"not read as ledgers of other nodes: {untrusted.few(doubts.values(), '; ')}"
            )
        self.unread = "; ".join(unread)
        return found

    def _kept(self, node: str) -> tuple[Ledger | None, Object | None]:
        item = self._cluster.get(config_map_path(node, self._namespace))
        if item is None:
            return None, None
        text = (item.get("data") or {}).get(KEY) or ""
        return parse_ledger(text, f"ConfigMap {self._namespace}/{object_name(node)}"), item

    def _keep(self, ledger: Ledger, dry_run: bool) -> Ledger:
        kept, found = self._kept(ledger.node)
        if kept and kept._replace(revision=0) == ledger._replace(revision=0):
            return kept
        # A run that was stopped for longer than its Lease lasts, as on a suspended laptop, must not
        # write over what the next one has done.
        if (kept.revision if kept else 0) != ledger.revision:
            raise _another(ledger.node, kept)
        ledger = ledger._replace(revision=ledger.revision + 1)
        meta: Object = {
            "name": object_name(ledger.node),
            "namespace": self._namespace,
            "labels": LABELS,
        }
        if found is None:
            body = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": meta,
                "data": {KEY: ledger.text},
            }
            create_own(self._cluster, self._folder, body, dry_run)
        else:
            meta = {
                **meta,
                "uid": found["metadata"]["uid"],
                "resourceVersion": found["metadata"]["resourceVersion"],
            }
            self._cluster.patch(
                config_map_path(ledger.node, self._namespace),
                {"metadata": meta, "data": {KEY: ledger.text}},
                dry_run=dry_run,
            )
        return ledger

    def _remove(self, ledger: Ledger, dry_run: bool) -> None:
        kept, found = self._kept(ledger.node)
        # Another run may have fenced the node again. Before a rehearsal nothing was written.
        if kept and not dry_run and kept._replace(revision=ledger.revision) != ledger:
            raise _another(ledger.node, kept)
        # First the note, then the ConfigMap: after a kill in between the ledger is still there, and
        # the next run ends the work.
        self._take_note(kept or ledger, dry_run)
        if found:
            meta = found["metadata"]
            where = config_map_path(ledger.node, self._namespace)
            self._cluster.delete(where, meta["uid"], dry_run, version=meta["resourceVersion"])

    def _take_note(self, ledger: Ledger, dry_run: bool) -> None:
        """Take the note of a ledger from its node; that of a newer one, or of one that is kept
        elsewhere, stays.
        """

        def change(item: Object | None) -> Object | None:
            note = read_note(item)
            if not note.text or note.contradicts(ledger) or self.elsewhere(ledger.node, note):
                return None
            return {"metadata": {"annotations": {ANNOTATION: None}}}

        change_object(self._cluster, ledger.path, change, dry_run)

    def _note(self, ledger: Ledger, dry_run: bool) -> None:
        def change(item: Object | None) -> Object | None:
            if item is None or item["metadata"]["uid"] != ledger.node_uid:
                # The node's object is gone, or another one: the ConfigMap is what counts.
                return None
            if is_noted(item, ledger):
                return None
            # A run with another namespace has another Lease.
            self._check_place(ledger.node, read_note(item))
            # Without room not the older one either, which would be read as the newest.
            return {"metadata": {"annotations": {ANNOTATION: noted_text(ledger, item) or None}}}

        change_object(self._cluster, ledger.path, change, dry_run)

    def elsewhere(self, node: str, note: Note) -> str:
        """The other namespace in which, as the note says, a ledger of the node is indeed kept;
        empty if there is none.

        Where this account may not look, the note remains a mere word.
        """
        where = note.ledger.namespace if note.ledger else ""
        if where in ("", self._namespace) or not untrusted.is_name(where):
            return ""
        try:
            return where if self._cluster.get(config_map_path(node, where)) else ""
        except Forbidden:
            return ""

    def _check_place(self, node: str, note: Note) -> None:
        where = self.elsewhere(node, note)
        if where:
            raise StorageOpsError(
                f"the annotation {ANNOTATION} says that the ledger of node {node} is in namespace "
                f"{where}, where there is one, and not in {self._namespace}. {doubt_of(where)}; "
                + untrusted.shown_command(
                    f"kubectl annotate node {{node}} {ANNOTATION}-", node=node
                )
                + " removes it",
                code="ledger_unreadable",
            )


def _another(node: str, kept: Ledger | None) -> StorageOpsError:
    now = f"run {kept.run} has written it (phase {kept.phase})" if kept else "it is gone"
    return StorageOpsError(
        f"the ledger of node {node} is not what this run has read: {now}. Run again",
        code="world_changed",
    )
