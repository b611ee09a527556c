# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Triage reads what it needs to judge stuck pods, in bulk where they are many, and nothing about
the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Callable, TypeVar

from .._core import untrusted
from .._core.argspec import check_numbers
from .._core.engine import Plan
from .._core.errors import BadOption, StorageOpsError
from .._core.turns import TurnOver, timed
from .._kube.attaching import read_last_attach
from .._kube.client import Cluster, path, within
from .._kube.events import Message, pick_message
from .._kube.lease import read_leader
from .._kube.objects import (
    Attachment,
    Claim,
    Pod,
    Volume,
    age,
    attachment_name,
    is_bound,
    leniently,
    pick_attachment,
    pick_claim,
    pick_driver,
    pick_node,
    pick_node_drivers,
    pick_volume,
    place_of,
)
from .._kube.observation import REQUIRED_METADATA, Observation
from .._kube.options import keys_by_driver
from .messages import Newest
from .plan import plan
from .proven import has_volumes
from .state import Seen, TriageOptions, TriageState, pick_seen, suspect, unattached

# Up to this many objects are read one by one; more come in one list, which costs the API server
# less than many requests and keeps the client below its rate limit.
MAX_GETS = 20
# Of so many objects of a namespace the events are read one by one.
_FEW_UIDS = 3
# For the events of a namespace there are so many seconds, if there are that many at all, however
# many namespaces there are: a busy API server may take as long for a LIST of a few.
_LEAST_SECONDS = 2.0

_STORAGE = "storage.k8s.io/v1"
# A pod keeps running, and may be ready, with a dead mount: the kubelet does not look into mounts.
_MEANING = (
    "a dead FUSE mount, or a container that still sees one, is STOR-05; a hung FUSE mount is "
    "STOR-06; a mount that is not the pod's volume is STOR-07; a filesystem that turned read-only "
    "is STOR-08"
)

T = TypeVar("T")


class Triage:
    """The runbook of triage: it only reads and reports."""

    def __init__(self, cluster: Cluster, options: TriageOptions) -> None:
        self._cluster = cluster
        self._options = options
        # Objects of which nothing could be made, and why.
        self._unread: dict[str, str] = {}
        # Namespaces whose events took too long, and the seconds that they had.
        self._unread_events: dict[str, float] = {}

    def gather(self) -> TriageState:
        """Read attachments before pods: otherwise an attachment made in between would look like one
        that no pod needs.
        """
        # The watch cache is new enough: what looks stuck has been so for stuck_seconds.
        attachments = self._list(path(_STORAGE, "volumeattachments"), pick_attachment)
        pods = self._pods()
        now = self._cluster.now()
        named = self._named_pod(pods)
        suspects = tuple(
            seen
            for seen in ([named] if named else pods)
            if suspect(seen, now, self._options.stuck_seconds)
        )
        if not pods and not self._unread:
            self._check_scope()
        state = TriageState(now, len(pods), suspects, named)
        state = self._around(state, pods, attachments) if suspects else state
        return replace(state, unread=self._unread, unread_events=self._unread_events)

    def _list(
        self,
        path: str,
        pick: Callable[[dict[str, Any]], T | None],
        fields: str = "",
        cached: bool = True,
    ) -> list[T]:
        """A list, by default from the watch cache. No object ends it, whatever is in it."""
        pick = leniently(pick, self._unread)
        return self._cluster.list(path, pick, fields=fields, cached=cached)

    def _get(self, path: str, pick: Callable[[dict[str, Any]], T]) -> T | None:
        """An object, None where there is none. The same holds, unless it is the named pod's."""
        item = self._cluster.get(path)
        found = leniently(pick, self._unread)(item) if item else None
        if item and found is None and self._options.pod:
            raise self._unreadable(place_of(item))
        return found

    def _unreadable(self, title: str) -> StorageOpsError:
        return StorageOpsError(
            f"cannot read {title}: {self._unread[title]}", code="evidence_unreadable"
        )

    def _named_pod(self, pods: list[Seen]) -> Seen | None:
        """The pod that the user named; None where they named none."""
        if not self._options.pod:
            return None
        named = next((seen for seen in pods if seen.pod.name == self._options.pod), None)
        title = f"{self._options.namespace}/{self._options.pod}"
        if title in self._unread:
            raise self._unreadable(title)
        if named is None:
            raise StorageOpsError(
                f"pod {title} does not exist; a Deployment's pods get new names: "
                + untrusted.shown_command(
                    "kubectl -n {namespace} get pods", namespace=self._options.namespace
                ),
                code="not_found",
            )
        return named

    def plan(self, state: TriageState) -> Plan:
        """Judge what was gathered."""
        # The messages of thousands of pods take a while to match; requests are not all that takes
        # time.
        if state.named and not self._cluster.deadline.remaining():
            raise StorageOpsError(
                "the deadline passed before the pod was judged: raise deadline",
                code="deadline_passed",
            )
        return plan(state, self._options, lambda: self._cluster.deadline.remaining() > 0)

    def healthy(self, state: TriageState) -> str:
        """What was read, where no pod is stuck."""
        if state.named:
            return (
                f"pod {state.named.pod.title} "
                f"{_condition(state.named, state, self._options.stuck_seconds)}"
            )
        scope = f" in namespace {self._options.namespace}" if self._options.namespace else ""
        scope += f" on node {self._options.node}" if self._options.node else ""
        return f"no pod is stuck; {state.examined} pods looked at{scope}"

    def _check_scope(self) -> None:
        """A scope without pods may be a typing error, which must not look like a
        healthy cluster.
        """
        for resource, name in (
            ("nodes", self._options.node),
            ("namespaces", self._options.namespace),
        ):
            if name and not self._cluster.get(path("v1", resource, name)):
                raise StorageOpsError(
                    f"no {resource[:-1]} {name}: is it misspelt?", code="not_found"
                )

    def _pods(self) -> list[Seen]:
        """The pods of the scope; a pod that the user named is looked for as etcd has it now."""
        # The API server has an index for that field (NodeNameIndexFunc of
        # pkg/registry/core/pod/strategy.go).
        fields = f"spec.nodeName={self._options.node}" if self._options.node else ""
        pods = path("v1", "pods", namespace=self._options.namespace)
        return self._list(pods, pick_seen, fields, cached=not self._options.pod)

    def _around(
        self, state: TriageState, pods: list[Seen], attachments: list[Attachment]
    ) -> TriageState:
        """What the suspects' claims, volumes, nodes and events say."""
        suspects = [suspect.pod for suspect in state.suspects]
        claims = self._claims(suspects)
        volumes = self._by_name(
            "v1",
            "persistentvolumes",
            {claim.volume for claim in claims.values() if claim.volume},
            pick_volume,
        )
        theirs = _attachments_of(suspects, claims, volumes, attachments)
        nodes = {pod.node for pod in suspects if pod.node} | {
            attachment.node for attachment in theirs.values()
        }
        version = self._cluster.version()
        state = replace(
            state,
            seen=Observation(
                at=0.0,
                attachments=theirs,
                volumes=volumes,
                nodes=self._by_name("v1", "nodes", nodes, pick_node),
                pods=tuple(self._neighbours(suspects, pods)),
                claims=claims,
            ),
            messages=self._messages(
                state.suspects,
                [
                    claim
                    for claim in claims.values()
                    if not is_bound(claim, volumes.get(claim.volume))
                ],
            ),
            version=(version.major, version.minor, version.patch),
            version_text=version.text,
        )
        return self._unattached(self._registered(state))

    def _registered(self, state: TriageState) -> TriageState:
        """Which drivers the suspects' nodes have, and which of them want no attachment."""
        used = _drivers_by_node(state)
        drivers = self._by_name(_STORAGE, "csidrivers", set().union(*used.values()), pick_driver)
        on_nodes = self._by_name(
            _STORAGE, "csinodes", {node for node, names in used.items() if names}, pick_node_drivers
        )
        return replace(
            state,
            detached_drivers=frozenset(
                name for name, driver in drivers.items() if not driver.attach_required
            ),
            drivers_on={name: node.drivers for name, node in on_nodes.items()},
        )

    def _unattached(self, state: TriageState) -> TriageState:
        """Why no VolumeAttachment is created: read only where one is missing."""
        if not unattached(state):
            return state
        # The newest event tells whether the controller manager attaches anything at all.
        last, unread = read_last_attach(self._cluster)
        return replace(
            state,
            lease=read_leader(self._cluster),
            last_attach=last,
            attach_unread=unread,
        )

    def _neighbours(self, suspects: list[Pod], pods: list[Seen]) -> list[Pod]:
        """All pods that could use a claim of the suspects: claims do not leave their namespace."""
        # With a node as scope, only its pods were read; another pod may still use the same claim.
        if not self._options.node:
            return [seen.pod for seen in pods]
        namespaces = {pod.namespace for pod in suspects if pod.claims}
        return self._of_namespaces("pods", namespaces, lambda item: pick_seen(item).pod)

    def _claims(self, pods: Sequence[Pod]) -> dict[tuple[str, str], Claim]:
        """The claims that the pods name, and that exist."""
        keys: set[tuple[str, str]] = set()
        # Not all of them: a tenant's pods may name millions that do not exist.
        for key in _claim_keys(pods):
            keys.add(key)
            if len(keys) > MAX_GETS:
                break
        if len(keys) <= MAX_GETS:
            found = {
                (namespace, name): self._get(
                    path("v1", "persistentvolumeclaims", name, namespace), pick_claim
                )
                for namespace, name in sorted(keys)
            }
            return {key: claim for key, claim in found.items() if claim}
        namespaces = {pod.namespace for pod in pods if pod.claims}
        listed = self._of_namespaces("persistentvolumeclaims", namespaces, pick_claim)
        known = {(claim.namespace, claim.name): claim for claim in listed}
        return {key: known[key] for key in _claim_keys(pods) if key in known}

    def _by_name(
        self, version: str, resource: str, names: set[str], pick: Callable[[dict[str, Any]], T]
    ) -> dict[str, T]:
        """Those of the named cluster-wide objects that exist."""
        if len(names) <= MAX_GETS:
            found = {name: self._get(path(version, resource, name), pick) for name in sorted(names)}
            return {name: item for name, item in found.items() if item}

        def wanted(item: dict[str, Any]) -> tuple[str, T] | None:
            name = item["metadata"]["name"]
            return (name, pick(item)) if name in names else None

        return dict(self._list(path(version, resource), wanted))

    def _of_namespaces(
        self,
        resource: str,
        namespaces: set[str],
        pick: Callable[[dict[str, Any]], T | None],
        fields: str = "",
    ) -> list[T]:
        """A resource in some namespaces, or in all where that takes fewer requests."""
        scopes = sorted(namespaces) if len(namespaces) <= MAX_GETS else [""]
        return [
            item
            for namespace in scopes
            for item in self._list(path("v1", resource, namespace=namespace), pick, fields)
        ]

    def _messages(
        self, suspects: Sequence[Seen], claims: list[Claim]
    ) -> dict[str, tuple[Message, ...]]:
        """The messages about pods and unbound claims, by uid."""
        said: dict[str, Newest] = defaultdict(Newest)
        pods = {
            (seen.pod.namespace, uid)
            for seen in suspects
            for uid in (seen.pod.uid, seen.mirror)
            if uid
        }
        unbound = {(claim.namespace, claim.uid) for claim in claims}
        pod_of = _mirrored(suspects, claims)
        for kind, objects in (("Pod", pods), ("PersistentVolumeClaim", unbound)):
            self._read_events(
                kind, objects, lambda uid, message: said[pod_of.get(uid, uid)].add(message)
            )
        return {uid: messages.all() for uid, messages in said.items()}

    def _read_events(
        self, kind: str, objects: set[tuple[str, str]], keep: Callable[[str, Message], None]
    ) -> None:
        """Hand over what events say about the objects, one by one: there may be any number."""

        def wanted(item: dict[str, Any]) -> None:
            # A tenant may write events in its own namespace about an object of another one.
            about = item["metadata"].get("namespace"), (item.get("involvedObject") or {}).get("uid")
            said = pick_message(item) if about in objects else None
            if said:
                keep(*said)

        by_namespace: dict[str, list[str]] = defaultdict(list)
        for namespace, uid in sorted(objects):
            # It has had its time already.
            if namespace not in self._unread_events:
                by_namespace[namespace].append(uid)
        # A tenant may write any number of events, as big as an object may be. Half of the time that
        # is left stays for what follows, and each namespace has its share of the other half; those
        # with the fewest objects come first, and what they leave is for the others.
        left, kept = len(by_namespace), self._cluster.deadline.remaining() / 2
        for namespace, uids in sorted(by_namespace.items(), key=lambda item: len(item[1])):
            spare = max(0.0, self._cluster.deadline.remaining() - kept)
            share = max(min(_LEAST_SECONDS, spare), spare / left)
            left -= 1
            fields = (
                [f"involvedObject.uid={uid}" for uid in uids]
                if len(uids) <= _FEW_UIDS
                else [f"involvedObject.kind={kind}"]
            )
            self._events_of(namespace, fields, wanted, share)

    def _events_of(
        self,
        namespace: str,
        choices: Sequence[str],
        wanted: Callable[[dict[str, Any]], None],
        seconds: float,
    ) -> None:
        """Read events of one namespace by each of these field selectors, for so many seconds."""
        deadline, events = self._cluster.deadline, path("v1", "events", namespace=namespace)
        try:
            with within(self._cluster, seconds):
                for fields in choices:
                    left = deadline.remaining()
                    if not left:
                        raise TurnOver("")
                    pick = timed(left, deadline.clock, leniently(wanted, self._unread))
                    self._cluster.list(events, pick, fields=fields, cached=True)
        except TurnOver as error:
            self._unread_events[namespace] = seconds
            if self._options.pod:
                raise StorageOpsError(
                    f"the events of namespace {namespace} could not be read within {seconds:.0f} "
                    "s: delete those that are too many or too big, or raise deadline",
                    code="deadline_passed",
                ) from error


def _claim_keys(pods: Iterable[Pod]) -> Iterator[tuple[str, str]]:
    """Namespace and name of each claim that the pods name."""
    return ((pod.namespace, name) for pod in pods for name in pod.claims)


def _attachments_of(
    suspects: Sequence[Pod],
    claims: Mapping[tuple[str, str], Claim],
    volumes: Mapping[str, Volume],
    attachments: Iterable[Attachment],
) -> dict[str, Attachment]:
    """The attachments of the suspects' volumes, by name."""
    used = [
        (pod.node, volumes[claim.volume])
        for pod in suspects
        for claim in (claims.get((pod.namespace, name)) for name in pod.claims)
        if claim and claim.volume in volumes and is_bound(claim, volumes[claim.volume])
    ]
    # An attachment that has the name of one of theirs may be for another PersistentVolume with the
    # same handle.
    names = {attachment_name(*volume.disk, node) for node, volume in used}
    theirs = {volume.name for _node, volume in used}
    return {
        found.name: found for found in attachments if found.volume in theirs or found.name in names
    }


def _drivers_by_node(state: TriageState) -> dict[str, set[str]]:
    """The drivers that the suspects of each node use, inline volumes included."""
    used: dict[str, set[str]] = defaultdict(set)
    for pod in (seen.pod for seen in state.suspects if seen.pod.node):
        of_claims = {volume.disk[0] for volume in state.bound(pod)}
        used[pod.node] |= {*of_claims, *pod.inline_drivers} - {""}
    return used


def _mirrored(suspects: Iterable[Seen], claims: Iterable[Claim]) -> dict[str, str]:
    """The uids of static pods in the API, by those that their kubelets use in events.

    A uid that is that of a real object counts as that object, whatever a pod's annotation claims.
    """
    known = {"", *(seen.pod.uid for seen in suspects), *(claim.uid for claim in claims)}
    return {seen.mirror: seen.pod.uid for seen in suspects if seen.mirror not in known}


def triage_options(params: dict[str, Any]) -> TriageOptions:
    """Options of Triage, checked."""
    if params["pod"] and not params["namespace"]:
        raise BadOption(
            f"pod {params['pod']} needs its namespace: set namespace (playbook: triage_namespace)"
        )
    check_numbers(params, {"stuck_seconds": 0})
    given = keys_by_driver("required_metadata", params["required_metadata"])
    scope = {name: params[name].strip() for name in ("namespace", "pod", "node")}
    return TriageOptions(
        **scope,
        stuck_seconds=params["stuck_seconds"],
        # What the user gives for a driver replaces what is built in for it.
        required_metadata={**REQUIRED_METADATA, **given},
    )


def _condition(seen: Seen, state: TriageState, stuck_seconds: float) -> str:
    """The state of a pod that is not stuck, as the end of a sentence about it."""
    pod = seen.pod
    if pod.deleted:
        return "is being deleted, and its grace period has not ended long ago"
    if pod.phase == "Running":
        return _running(seen, state.messages.get(pod.uid, ()))
    if pod.phase in ("Succeeded", "Failed"):
        return f"has ended ({pod.phase})"
    return (
        f"is {pod.phase} for {age(state.now, seen.since):.0f} s, not yet for stuck_seconds "
        f"({stuck_seconds:g})"
    )


def _running(seen: Seen, messages: Sequence[Message]) -> str:
    """What its containers and probes say, and which audit checks its mounts."""
    pod = seen.pod
    mounts = f". {_audit_of(pod.node)}" if pod.node and has_volumes(pod) else ""
    # A pod may be Ready and have a dead mount, so its node's audit is named in any case.
    if pod.ready:
        return f"is Running and Ready{mounts}"
    # Containers that were started before may keep a mount that died since: only they, or the node,
    # see that.
    words = [
        "is Running but not Ready, and nothing says that a volume is the cause",
        *seen.containers,
        *_last_probe(messages),
    ]
    return "; ".join(words) + mounts


def _last_probe(messages: Iterable[Message]) -> list[str]:
    """What the latest failed probe said."""
    probed = {
        message.last: message.text
        for message in messages
        if message.reason == "Unhealthy" and message.last
    }
    return [probed[max(probed)]] if probed else []


def _audit_of(node: str) -> str:
    audit = untrusted.shown_command(
        "ansible-playbook storage_ops.runbooks.compliance -i inventory -e target={node} "
        "-e compliance_report_controls=STOR-05,STOR-06,STOR-07,STOR-08",
        node=node,
    )
    return f"Only its node can tell whether its mounts work; {audit} checks that: {_MEANING}"
