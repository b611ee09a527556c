# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""VolumeAttachments: reads the cluster, carries out what the plan decides, and proves it.

A healthy cluster costs five requests, all answered from the API server's watch cache: its version,
attachments, volumes, nodes and the pods that are pending. Only suspects cost more.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, Callable, TypeVar

from .._core import untrusted
from .._core.argspec import ArgumentSpec, check_numbers, given_names, given_options
from .._core.engine import (
    Action,
    ActionFailed,
    Finding,
    NotStarted,
    Plan,
    Prevented,
    require_time,
)
from .._core.errors import BadOption, StorageOpsError
from .._core.untrusted import few
from .._kube import in_tree, observation
from .._kube.attaching import read_last_attach
from .._kube.changing import not_done
from .._kube.client import Cluster, Conflict, KubeError, NotFound, path
from .._kube.followed import Followed, Key, key_of
from .._kube.lease import read_leader
from .._kube.objects import (
    Attachment,
    Claim,
    Pod,
    Volume,
    age,
    attachment_name,
    pick_attachment,
    pick_claim,
    pick_driver,
    pick_node,
    pick_node_drivers,
    pick_user,
    pick_volume,
)
from .._kube.observation import Observation
from .._kube.options import keys_by_driver
from . import plan as pure
from . import suspects as suspected
from .collision import may_collide
from .left_over import Orphan, attacher_says
from .state import AttachmentOptions, AttachmentState
from .suspects import Wait

# Up to this many objects are read one by one; beyond that, all of their kind are listed.
MAX_GETS = 100
# Up to this many lists of one node's pods are quicker than one list of all pods.
MAX_NODE_LISTS = 500
MAX_NAMESPACE_LISTS = 20
# Seconds between two polls.
_PAUSE = 0.5
# Seconds reserved for reading once more what a deletion has done.
_LAST_LOOK = 5.0

_STORAGE = "storage.k8s.io/v1"
# Group and version, and resource.
_ATTACHMENTS = (_STORAGE, "volumeattachments")
_VOLUMES = ("v1", "persistentvolumes")
_NODES = ("v1", "nodes")
_CLAIMS = ("v1", "persistentvolumeclaims")
_PODS = ("v1", "pods")

Object = dict[str, Any]
Kind = tuple[str, str]
T = TypeVar("T")
K = TypeVar("K", bound=Key)

# How attachments are judged, and which of them.
JUDGING = ArgumentSpec(
    {
        # A pod that starts or ends needs its attachment for minutes in which nothing else shows
        # that.
        "min_age_seconds": {"type": "float", "default": 300.0},
        "observations": {"type": "int", "default": 2},
        # Long enough for a controller manager that works to attach or detach meanwhile: it looks
        # every 100 ms.
        "observation_seconds": {"type": "float", "default": 30.0},
        "pending_seconds": {"type": "float", "default": 120.0},
        "required_metadata": {"type": "dict", "default": {}},
    }
)
SCOPE = JUDGING.merge(
    ArgumentSpec(
        {
            name: {"type": "list", "elements": "str", "default": []}
            for name in ("names", "drivers", "nodes", "namespaces")
        }
    )
)


def make_options(params: dict[str, Any]) -> AttachmentOptions:
    """Options of VolumeAttachments, checked.

    A module that only reports lacks the risks, and gets their defaults.
    """
    check_numbers(
        params,
        {
            "min_age_seconds": 0,
            "observations": 1,
            "observation_seconds": 0,
            "pending_seconds": 0,
            "max_repairs": 0,
            "detach_timeout": 1,
        },
    )
    if "controls" in params and not params["controls"]:
        raise BadOption(
            "controls is empty, so nothing would be checked; leave the option out to run all of "
            "them"
        )
    scope = given_names(params, "names", "drivers", "nodes", "namespaces")
    # The user's word for a driver replaces what is built in, so that a list can also be emptied.
    required = {
        **observation.REQUIRED_METADATA,
        **keys_by_driver("required_metadata", params["required_metadata"]),
    }
    given = given_options(AttachmentOptions, params)
    given["controls"] = frozenset(params.get("controls", AttachmentOptions.controls))
    return AttachmentOptions(**{**given, **scope, "required_metadata": required})


class VolumeAttachments:
    """The runbook repair_volumeattachments on one cluster.

    ``detach_timeout``: seconds within which a deleted attachment must be gone. ``strict``: a scope
    that matches nothing in the cluster is an error.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: AttachmentOptions,
        detach_timeout: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        strict: bool = False,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._detach_timeout = detach_timeout
        self._sleep = sleep
        self._clock = clock
        self._strict = strict
        # Lists that were read whole, by their path; watches keep them up to date.
        self._followed: dict[str, tuple[Kind, Followed[Any]]] = {}

    # gather

    def gather(self) -> AttachmentState:
        """Read what the controls need, and then the suspects: their pods, and, where no pod needs
        them, all of it again.
        """
        cluster, wanted = self._cluster, self._options.controls
        version = cluster.version() if wanted & {"STOR-11", "STOR-12", "STOR-13"} else None
        numbers = (version.major, version.minor, version.patch) if version else (1, 0, 0)
        first = self._everything()
        # The API server's clock, by which creationTimestamp and the times of errors were made.
        now = cluster.now()
        first, unproven = self._suspects(first, now)
        waits = []
        if "STOR-15" in wanted:
            waits = suspected.waits(first, self._options.pending_seconds, now)
        collide = "STOR-12" in wanted and may_collide(first, numbers)
        known = self._circumstances(first, unproven, waits, collide)
        # A driver that does not attach leaves nothing to detach, and nothing to wait for.
        detached = known["detached_drivers"]
        unproven = {name for name in unproven if first.attachments[name].driver not in detached}
        waits = [
            wait for wait in waits if suspected.could_attach(wait, detached, known["drivers_on"])
        ]
        observations = [first, *self._more_observations(first, unproven, waits)]
        # Events are many, so they are read only for a pod that waits.
        if waits:
            last, unread = read_last_attach(self._cluster)
            known.update(last_attach=last, attach_unread=unread)
        return AttachmentState(
            cluster.now(),
            tuple(observations),
            frozenset(unproven),
            numbers,
            version.text if version else "",
            **known,
        )

    def _suspects(self, first: Observation, now: datetime) -> tuple[Observation, set[str]]:
        """The observation with the suspects' pods, and the suspects that need another one."""
        found = suspected.suspects(first, self._options, now)
        # STOR-14 alone reads no volumes; whose pods its suspects are, only they tell.
        if found and not first.volumes:
            first = replace(first, volumes=self._volumes())
        first = self._with_users(first, found, cached=True)
        return first, suspected.unproven(first, found, self._options, now)

    def _more_observations(
        self, first: Observation, unproven: Collection[str], waits: Collection[Wait]
    ) -> Iterator[Observation]:
        """The suspects again, evenly spread over observation_seconds; nothing without suspects."""
        # The first one is made already.
        times = self._options.observations - 1
        for _number in range(times if unproven or waits else 0):
            self._wait(self._options.observation_seconds / times)
            yield self._again(first, unproven, waits)

    def plan(self, state: AttachmentState) -> Plan:
        """Decide."""
        # A typing error in the scope must not look like a cluster in order.
        unknown = pure.unmatched(state, self._options, known_elsewhere=True) if self._strict else []
        if unknown:
            raise StorageOpsError(
                f"{'; '.join(unknown)}, nor does anything else there know it: is it misspelt?",
                code="not_found",
            )
        return pure.plan(state, self._options)

    def not_applicable(self, state: AttachmentState) -> dict[str, str]:
        """Controls that have nothing to look at in this cluster."""
        return pure.not_applicable(state)

    def healthy(self, state: AttachmentState) -> str:
        """Counts of what was read, the scope if there was one, and why the named attachments are in
        order.
        """
        first, options = state.first, self._options
        counts = [
            (len(first.attachments), "VolumeAttachments"),
            (len(first.volumes), "PersistentVolumes"),
            (len(first.nodes), "nodes"),
        ]
        looked_at = (
            ", ".join(
                f"{count} {what[:-1] if count == 1 else what}" for count, what in counts if count
            )
            or "no VolumeAttachments"
        )
        scope = [f"{what} {', '.join(wanted)}" for what, wanted in options.scope()]
        within = f" within the scope ({'; '.join(scope)})" if scope else ""
        named = "".join(f"; {name} {self._in_order(state, name)}" for name in options.names[:5])
        unmatched = "".join(f"; {words}" for words in pure.unmatched(state, options))
        return (
            f"{looked_at}, nothing found by "
            f"{', '.join(sorted(options.controls))}{within}{named}{unmatched}"
        )

    def _in_order(self, state: AttachmentState, name: str) -> str:
        attachment = state.last.attachments.get(name) or state.first.attachments.get(name)
        if attachment is None:
            return "does not exist"
        needed = observation.needed_by(state.first, attachment)
        if needed:
            return f"is needed by {needed}"
        if attachment.deleted:
            return "is being deleted"
        old, least = age(state.now, attachment.created), self._options.min_age_seconds
        if old >= least:
            return "was not left over"
        return (
            f"is {old:.0f} s old, and only what is older than min_age_seconds ({least:g} s) "
            f"counts as left over: run again in {math.ceil(least - old)} s, or lower "
            "min_age_seconds (playbook: attachment_repair_min_age_seconds)"
        )

    def _everything(self) -> Observation:
        """The cluster at one moment."""
        # Attachments come first: a pod that begins to need one while we read is then seen.
        wanted = self._options.controls
        at = self._clock()
        seen = Observation(at, self._whole(_ATTACHMENTS, pick_attachment))
        if wanted & {"STOR-11", "STOR-12", "STOR-13", "STOR-15"}:
            seen = replace(seen, volumes=self._volumes())
        if wanted & {"STOR-11", "STOR-13", "STOR-15"}:
            seen = replace(seen, nodes=self._whole(_NODES, pick_node))
        if "STOR-15" in wanted:
            seen = replace(seen, pending=tuple(self._pending()))
        return seen

    def _volumes(self) -> dict[str, Volume]:
        return self._whole(_VOLUMES, pick_volume)

    def _whole(
        self, kind: Kind, pick: Callable[[Object], T | None], namespace: str = ""
    ) -> dict[Any, T]:
        """A whole list by names, from the API server's watch cache or as last updated."""
        where = path(*kind, namespace=namespace)
        if where not in self._followed:
            self._followed[where] = (kind, Followed(self._cluster, where, pick))
        return dict(self._followed[where][1].items)

    def _update(self, kinds: Collection[Kind]) -> dict[Kind, list[Any]]:
        """Bring the lists of these kinds that were read whole up to date; the changes of each."""
        # All watches are opened before the first has to answer, so that they wait together.
        lists = [entry for kind in kinds for entry in self._followed.values() if entry[0] == kind]
        for _kind, followed in lists:
            followed.begin()
        passed: dict[Kind, list[Any]] = defaultdict(list)
        for kind, followed in lists:
            passed[kind] += followed.finish()
        return passed

    def _pending(self) -> list[Pod]:
        """Pods with a node and claims that do not run yet."""
        return self._list(*_PODS, pick_user, fields="status.phase=Pending")

    def _again(
        self, first: Observation, unproven: Collection[str], waits: Collection[Wait]
    ) -> Observation:
        """The suspects as they are now."""
        suspects = [first.attachments[name] for name in unproven]
        names, volumes, nodes = _names_to_read(first, suspects, waits)
        # Attachments first, as everywhere.
        kinds = ((_ATTACHMENTS, names), (_VOLUMES, volumes), (_NODES, nodes))
        at = self._clock()
        many = [kind for kind, keys in kinds if len(keys) > MAX_GETS]
        passed = self._update([*many, _CLAIMS, _PODS])
        seen = Observation(
            at,
            self._now(_ATTACHMENTS, names, pick_attachment),
            self._now(_VOLUMES, volumes, pick_volume),
            self._now(_NODES, nodes, pick_node),
            # What came and went between two looks needed the volume as well.
            passed_pods=tuple(passed[_PODS]),
            passed_nodes=tuple(passed[_NODES]),
        )
        if waits:
            seen = replace(seen, pending=tuple(self._pending()))
        return self._with_users(
            seen,
            [seen.attachments[name] for name in unproven if name in seen.attachments],
            cached=True,
        )

    def _now(self, kind: Kind, names: Collection[str], pick: Callable[[Object], T]) -> dict[str, T]:
        """These objects by name: a few one by one, more from a list that was just updated."""
        if len(names) <= MAX_GETS:
            return self._fetch(kind, names, pick)
        found = self._whole(kind, pick)
        return {name: found[name] for name in names if name in found}

    def _observe(
        self, attachments: Collection[str], volumes: Collection[str], nodes: Collection[str]
    ) -> Observation:
        """These objects by name, as etcd has them now; attachments first."""
        at = self._clock()
        return Observation(
            at,
            self._fetch(_ATTACHMENTS, attachments, pick_attachment),
            self._fetch(_VOLUMES, volumes, pick_volume),
            self._fetch(_NODES, nodes, pick_node),
        )

    def _with_users(
        self, seen: Observation, attachments: Collection[Attachment], cached: bool
    ) -> Observation:
        """Add the pods that may need the attachments, and the claims where the volumes do not tell
        whose they are.
        """
        if not seen.volumes:
            names = {entry.volume for entry in attachments}
            seen = replace(seen, volumes=self._fetch(_VOLUMES, names, pick_volume))
        seen = replace(seen, claims=self._claims(seen, attachments, cached))
        needs = {
            (entry.node, namespace)
            for entry in attachments
            for namespace in self._namespaces(seen, entry)
        }
        # Pods that wait for the same volume on another node are evidence, see observation.proofs.
        waiting = {
            other
            for entry in attachments
            for other in seen.by_volume.get(entry.volume, ())
            if other.attach_error
        }
        needs |= {
            (other.node, namespace) for other in waiting for namespace, _name in seen.keys_of(other)
        }
        return replace(seen, pods=tuple(self._pods(needs, cached)))

    @staticmethod
    def _namespaces(seen: Observation, attachment: Attachment) -> set[str]:
        """The namespaces of the pods that may need the attachment; an empty text for all."""
        # A claim and its pods share a namespace. Without a claim any pod might use the volume.
        return seen.namespaces_of(attachment) if seen.has_claim(attachment.volume) else {""}

    def _claims(
        self, seen: Observation, attachments: Collection[Attachment], cached: bool
    ) -> dict[tuple[str, str], Claim]:
        """All claims where a volume is gone or has none, and those that now have the name of a
        claim whose volume was released.
        """
        volumes = {entry.volume: seen.volumes.get(entry.volume) for entry in attachments}
        volumes.update({twin.name: twin for entry in attachments for twin in seen.twins(entry)})
        # A volume that is gone, or whose claimRef is empty, may still be named by any claim.
        everything = not all(seen.has_claim(name) for name in volumes)
        keys = _claims_of_released(volumes.values())
        if cached and (everything or len(keys) > MAX_GETS):
            claims = self._whole(_CLAIMS, pick_claim)
            return {key: claim for key, claim in claims.items() if everything or key in keys}
        if not everything:
            return self._fetch(_CLAIMS, keys, pick_claim)
        found = self._list(*_CLAIMS, pick_claim, cached=False)
        return {(claim.namespace, claim.name): claim for claim in found}

    def _pods(self, needs: Collection[tuple[str, str]], cached: bool) -> list[Pod]:
        """Pods with claims on these nodes, in the namespaces that go with them.

        ``needs``: pairs of node and namespace; an empty namespace stands for all.
        """
        nodes = {node for node, _namespace in needs}
        namespaces = {namespace for _node, namespace in needs}
        few = "" not in namespaces and len(namespaces) <= MAX_NAMESPACE_LISTS
        spaces = sorted(namespaces) if few else [""]

        def wanted(pod: Pod) -> bool:
            return pod.node in nodes and bool(namespaces & {"", pod.namespace})

        def pick(item: dict[str, Any]) -> Pod | None:
            pod = pick_user(item)
            return pod if pod and wanted(pod) else None

        # The watch cache finds a node's pods by an index (NodeNameIndexFunc of
        # pkg/registry/core/pod/strategy.go); etcd has to read all pods of the namespaces.
        if not cached:
            one = f"spec.nodeName={min(nodes)}" if len(nodes) == 1 else ""
            return _flat(self._list(*_PODS, pick, space, one, cached=False) for space in spaces)
        if self._follows_pods(spaces) or len(nodes) > MAX_NODE_LISTS:
            whole = [""] if path(*_PODS) in self._followed else spaces
            pods = _flat(self._whole(_PODS, pick_user, space).values() for space in whole)
            return [pod for pod in pods if wanted(pod)]
        return _flat(
            self._list(*_PODS, pick, fields=f"spec.nodeName={node}") for node in sorted(nodes)
        )

    def _follows_pods(self, spaces: Iterable[str]) -> bool:
        """All pods, or those of all these namespaces, were read whole before."""
        return path(*_PODS) in self._followed or all(
            path(*_PODS, namespace=space) in self._followed for space in spaces
        )

    def _circumstances(
        self, first: Observation, unproven: Collection[str], waits: Collection[Wait], collide: bool
    ) -> dict[str, Any]:
        """What else the plan needs to know about suspects: fields of State."""
        # A healthy cluster has no suspects, and then none of this is read.
        known: dict[str, Any] = {"detached_drivers": frozenset(), "drivers_on": {}}
        if unproven or waits or collide or self._names_unknown_drivers(first):
            drivers = self._list(_STORAGE, "csidrivers", pick_driver)
            known["drivers"] = frozenset(driver.name for driver in drivers)
            known["detached_drivers"] = frozenset(
                driver.name for driver in drivers if not driver.attach_required
            )
        if unproven or waits:
            known["lease"] = read_leader(self._cluster)
        if waits:
            # A driver that does not run on the node is another cause than a controller that
            # attaches nothing.
            names = {wait.pod.node for wait in waits}
            found = self._fetch((_STORAGE, "csinodes"), names, pick_node_drivers)
            known["drivers_on"] = {node.name: node.drivers for node in found.values()}
        return known

    def _names_unknown_drivers(self, first: Observation) -> bool:
        """The user named drivers, and no attachment is of one of them."""
        drivers = {attachment.driver for attachment in first.attachments.values()}
        return bool(self._options.drivers) and not drivers & set(self._options.drivers)

    def _list(
        self,
        group: str,
        resource: str,
        pick: Callable[[dict[str, Any]], T | None],
        namespace: str = "",
        fields: str = "",
        cached: bool = True,
    ) -> list[T]:
        return self._cluster.list(
            path(group, resource, namespace=namespace), pick, cached=cached, fields=fields
        )

    def _fetch(self, kind: Kind, keys: Collection[K], pick: Callable[[Object], T]) -> dict[K, T]:
        """Objects by name, or namespace and name, as etcd has them now; others do not exist."""
        found: dict[K, T] = {}
        if len(keys) <= MAX_GETS:
            for key in sorted(keys):
                namespace, name = ("", key) if isinstance(key, str) else key
                item = self._cluster.get(path(*kind, name, namespace))
                if item:
                    found[key] = pick(item)
            return found
        wanted: set[Key] = set(keys)

        def pick_wanted(item: dict[str, Any]) -> tuple[Any, T] | None:
            key = key_of(item)
            return (key, pick(item)) if key in wanted else None

        return dict(self._cluster.list(path(*kind), pick_wanted))

    def _wait(self, seconds: float) -> None:
        # Better an error at once than one after the wait.
        if self._cluster.deadline.remaining() <= seconds:
            raise StorageOpsError(
                f"the deadline leaves no time to observe suspects for another {seconds:g} s: raise "
                "deadline, or lower observation_seconds",
                code="deadline_passed",
            )
        self._sleep(seconds)

    # apply

    def rehearse(self, action: Action) -> None:
        """Ask the API server whether it would delete the attachment."""
        # A server-side dry run also runs authorization and admission (Kubernetes API Concepts,
        # Dry-run).
        self._cluster.delete(_url(action), action.subject.attachment.uid, dry_run=True)

    def apply(self, action: Action) -> None:
        """Check once more everything it depends on, delete one attachment, and wait until it is
        gone.
        """
        orphan: Orphan = action.subject
        # A deletion that is not followed to its end would be neither proven nor refuted.
        require_time(self._cluster.deadline, self._detach_timeout + _LAST_LOOK)
        # Nothing was changed yet, so a failure here is not a failed action.
        try:
            self._recheck(orphan)
        except KubeError as error:
            raise Prevented(str(error), error.code) from error
        self._delete(action, orphan)
        # Asked only now, since a pod may come in the moment between the recheck and the deletion.
        self._refuse_newcomers(orphan)
        self._wait_until_gone(orphan)

    def undo(self, action: Action) -> Action | None:
        """Nothing: the controller manager makes a new attachment when a pod needs one."""

    def verify(self, finding: Finding) -> list[str]:
        """What proves that the attachment is gone and that no pod needed it."""
        orphan: Orphan = finding.repair[0].subject
        attachment = orphan.attachment
        doubts: list[str] = []

        def clean() -> bool:
            doubts[:] = self._left_behind(orphan)
            return not doubts

        if not self._wait_for(clean):
            raise StorageOpsError(
                f"the repair of {attachment.name} is not proven: {few(doubts, '; ')}",
                code="repair_unproven",
            )
        return [
            f"{attachment.name} (uid {attachment.uid}) is gone",
            f"volumesAttached of {attachment.node} does not list {attachment.volume}",
            f"no pod on {attachment.node} needs {attachment.volume}",
        ]

    def _recheck(self, orphan: Orphan) -> None:
        """Everything but time must still be as it was when planned, by quorum reads."""
        planned = orphan.attachment
        # The siblings, since an attach error of one of them may have been the proof.
        seen = self._observe({planned.name, *orphan.siblings}, (), {planned.node})
        attachment = self._recheck_identity(orphan, seen)
        seen = replace(seen, volumes=self._volumes_of(planned, orphan.volume))
        seen = self._with_users(seen, [attachment], cached=False)
        needed = observation.needed_by(seen, attachment)
        if needed:
            raise NotStarted(f"it is needed by {needed}", code="in_use_by_pod")
        blockers = observation.blockers(seen, attachment)
        if blockers:
            raise NotStarted("; ".join(blockers), blockers[0].code)
        version = self._cluster.version()
        proofs = observation.proofs(
            seen, attachment, (version.major, version.minor, version.patch), version.text
        )
        # A user who names an attachment has reasons that no object shows.
        if not proofs and not orphan.named:
            raise NotStarted("nothing proves any more that it is left over", code="cause_unproven")

    @staticmethod
    def _recheck_identity(orphan: Orphan, seen: Observation) -> Attachment:
        """The attachment as it is now, if it and its node are those of the plan."""
        planned = orphan.attachment
        attachment = seen.attachments.get(planned.name)
        if attachment is None:
            raise NotStarted("it is gone already")
        if attachment.uid != planned.uid:
            raise NotStarted(
                f"it was replaced by another one of the same name, uid {attachment.uid}",
                code="identity_changed",
            )
        if attachment.deleted:
            # Whoever deletes it also follows it; a second deletion would only change the result
            # here.
            raise NotStarted("it is already being deleted")
        node = seen.nodes.get(planned.node)
        # Another host by the same name: whether the old one still writes is a question for a fence.
        if node and node.uid != orphan.node_uid:
            raise NotStarted(
                f"{planned.node} is another node with that name now (uid {node.uid})",
                code="identity_changed",
            )
        return attachment

    def _volumes_of(self, attachment: Attachment, known: Volume | None) -> dict[str, Volume]:
        """The attachment's PersistentVolume and those that share it, as etcd has them now."""
        # Changes since the list was read show new volumes. The disk of a known one cannot change:
        # spec.persistentvolumesource is immutable (ValidatePersistentVolumeUpdate of
        # pkg/apis/core/validation/validation.go).

        def shares(volume: Volume) -> bool:
            made = attachment_name(*volume.disk, attachment.node)
            mine = (
                known
                and in_tree.same_disk(volume.disk)
                == in_tree.same_disk(known.disk)
                != in_tree.NO_DISK
            )
            return made == attachment.name or bool(mine)

        self._update([_VOLUMES])
        twins = {volume.name for volume in self._volumes().values() if shares(volume)}
        return self._fetch(_VOLUMES, {attachment.volume, *twins}, pick_volume)

    def _delete(self, action: Action, orphan: Orphan) -> None:
        try:
            self._cluster.delete(_url(action), orphan.attachment.uid)
        except Conflict as error:
            # The uid was a precondition (metav1.DeleteOptions, preconditions), so only that object
            # can have gone.
            if error.repeated:
                # The first request, whose answer was lost, deleted it; the repeated one met the
                # next attachment of that name.
                return
            raise NotStarted(
                f"it was replaced meanwhile: {error}", code="identity_changed"
            ) from error
        except NotFound as error:
            raise NotStarted("it is gone already") from error
        except KubeError as error:
            raise not_done(error) from error

    def _refuse_newcomers(self, orphan: Orphan) -> None:
        """Fail where a pod that appeared right before the deletion may still use the attachment."""
        # The controller manager finds out only when it syncs that an attachment it counts on is
        # gone (syncStates of pkg/controller/volume/attachdetach/reconciler/reconciler.go).
        users = self._users(orphan)
        if users:
            pod = users[0]
            claim = orphan.volume.claim_name if orphan.volume else ""
            again = untrusted.shown_command(
                "ansible localhost -m storage_ops.runbooks.workload_reattach -a "
                "'namespace={namespace} claims={claims}'",
                namespace=pod.namespace,
                claims=[claim] if claim else pod.claims,
            )
            raise ActionFailed(
                f"pod {pod.title} appeared on {pod.node} while its attachment was deleted, and may "
                f"hold on to the old one. Reattach its volume: {again}",
                code="in_use_by_pod",
            )

    def _users(self, orphan: Orphan) -> list[Pod]:
        """Pods that need the volume on the attachment's node now; the attachment may be gone."""
        attachment = orphan.attachment
        volumes = {orphan.volume.name: orphan.volume} if orphan.volume else {}
        return self._with_users(Observation(0.0, {}, volumes), [attachment], cached=False).users(
            attachment
        )

    def _wait_until_gone(self, orphan: Orphan) -> None:
        left: list[Attachment] = []

        def gone() -> bool:
            left[:] = [attachment for attachment in [self._same(orphan)] if attachment]
            return not left

        if not self._wait_for(gone):
            (attachment,) = left
            holders = ", ".join(attachment.finalizers) or "no finalizer"
            raise ActionFailed(
                f"deleted, but still there {self._detach_timeout:g} s later, held by {holders}. "
                f"{attacher_says(attachment)}",
                code="attacher_stuck",
            )

    def _same(self, orphan: Orphan) -> Attachment | None:
        """The attachment itself, if it still exists."""
        item = self._cluster.get(path(*_ATTACHMENTS, orphan.attachment.name))
        attachment = pick_attachment(item) if item else None
        return attachment if attachment and attachment.uid == orphan.attachment.uid else None

    def _left_behind(self, orphan: Orphan) -> list[str]:
        """What contradicts that the attachment is gone; a new one is right if a pod needs it."""
        planned = orphan.attachment
        seen = self._observe({planned.name}, {planned.volume}, {planned.node})
        attachment, node = seen.attachments.get(planned.name), seen.nodes.get(planned.node)
        if attachment and attachment.uid == planned.uid:
            return ["it is still there"]
        if node is None or node.uid != orphan.node_uid:
            return [f"{planned.node} is gone, or another node with that name now"]
        users = self._users(orphan)
        # A pod that came since needs an attachment, and then a new one is right.
        if users:
            return [] if attachment else [f"pod {users[0].title} needs it now, and has none yet"]
        doubts = ["it was created again, though no pod needs it"] if attachment else []
        return doubts + (
            [f"volumesAttached of {planned.node} still lists it"]
            if planned.name in seen.listed
            else []
        )

    def _wait_for(self, condition: Callable[[], bool]) -> bool:
        """Poll until it is true, for detach_timeout at most and not past the deadline."""
        # Polling, not a watch: a few seconds of one object do not justify a second connection.
        until = self._clock() + self._cluster.deadline.cap(self._detach_timeout)
        while not condition():
            if self._clock() >= until:
                return False
            self._sleep(_PAUSE)
        return True


def _names_to_read(
    first: Observation, suspects: Collection[Attachment], waits: Collection[Wait]
) -> tuple[set[str], set[str], set[str]]:
    """The attachments, volumes and nodes that another observation of the suspects takes."""
    siblings = {other.name for suspect in suspects for other in first.by_volume[suspect.volume]}
    names = {*siblings, *(wait.attachment for wait in waits)}
    volumes = {suspect.volume for suspect in suspects} | {wait.volume.name for wait in waits}
    volumes |= {twin.name for suspect in suspects for twin in first.twins(suspect)}
    nodes = {suspect.node for suspect in suspects} | {wait.pod.node for wait in waits}
    return names, volumes, nodes


def _flat(lists: Iterable[Iterable[T]]) -> list[T]:
    return [item for found in lists for item in found]


def _claims_of_released(volumes: Iterable[Volume | None]) -> set[tuple[str, str]]:
    """The claims that volumes were bound to; others may have these names by now."""
    return {
        volume.claim
        for volume in volumes
        if volume and volume.claim_name and volume.phase != "Bound"
    }


def _url(action: Action) -> str:
    return path(*_ATTACHMENTS, action.target)
