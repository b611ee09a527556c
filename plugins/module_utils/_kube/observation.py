# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The attachments of a cluster at one moment with what needs them, and what follows for each.

Pure: no I/O here.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from .._core.codes import Reason
from . import in_tree, names
from .objects import (
    Attachment,
    Claim,
    Node,
    Pod,
    Volume,
    attachment_name,
    attachment_names,
    is_bound,
    made_again,
)

# Keys of the publish context that a driver's node plugin needs, by driver; without them the volume
# cannot be staged.
REQUIRED_METADATA = {"csi.huawei.com": ("publishInfo",)}
# The form of the names that the attach-detach controller gives (getAttachmentName of
# pkg/volume/csi/csi_attacher.go). Attachments with other names are made by other tools.
_OWN_NAME = re.compile(r"csi-[0-9a-f]{64}")
_LOST_NODE = (
    "so it is unknown whether its host still writes to the volume. Make sure that it does "
    "not and fail its volumes over (fail_over_volumes)"
)


# Pods by node, namespace and claim.
_Pods = dict[tuple[str, str, str], list[Pod]]


@dataclass(frozen=True)
class Observation:
    """The cluster at one moment, attachments read before everything else. The first has all
    attachments, later ones the suspects.
    """

    # Monotonic seconds.
    at: float
    attachments: dict[str, Attachment]
    volumes: dict[str, Volume] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    # Those that may need a suspect.
    pods: tuple[Pod, ...] = ()
    # Those with a node that do not run yet.
    pending: tuple[Pod, ...] = ()
    # Only where a volume does not name its claim; all of them where one has none, or is gone.
    claims: dict[tuple[str, str], Claim] = field(default_factory=dict)
    # The states of pods and nodes since the observation before, as far as a watch reported them;
    # some may be gone.
    passed_pods: tuple[Pod, ...] = ()
    passed_nodes: tuple[Node, ...] = ()

    @cached_property
    def in_use(self) -> set[str]:
        """Names of the attachments that kubelets report as in use (volumesInUse)."""
        return _names((node.volumes_in_use, node.name) for node in self.nodes.values())

    @cached_property
    def was_in_use(self) -> set[str]:
        """The same since the observation before."""
        return _names((node.volumes_in_use, node.name) for node in self.passed_nodes)

    @cached_property
    def was_listed(self) -> set[str]:
        """Names of the attachments that volumesAttached had since the observation before."""
        return _names((node.volumes_attached, node.name) for node in self.passed_nodes)

    @cached_property
    def listed(self) -> set[str]:
        """Names of the attachments that the controller manager lists for kubelets
        (volumesAttached).
        """
        return _names((node.volumes_attached, node.name) for node in self.nodes.values())

    @cached_property
    def by_volume(self) -> dict[str, list[Attachment]]:
        """Attachments of each PersistentVolume."""
        found: dict[str, list[Attachment]] = defaultdict(list)
        for attachment in self.attachments.values():
            found[attachment.volume].append(attachment)
        return found

    @cached_property
    def _by_handle(self) -> dict[tuple[str, str], list[Volume]]:
        """PersistentVolumes by their disk."""
        found: dict[tuple[str, str], list[Volume]] = defaultdict(list)
        for volume in self.volumes.values():
            if volume.disk[0]:
                # Two PersistentVolumes of one disk share its attachment: a pod of either needs it.
                found[in_tree.same_disk(volume.disk)].append(volume)
        return found

    @cached_property
    def _by_name(self) -> dict[str, dict[str, list[Volume]]]:
        """By node, PersistentVolumes by the name of their attachment to it."""
        # Filled on demand: a hash of each volume for each node would be millions.
        return {}

    def twins(self, attachment: Attachment) -> list[Volume]:
        """Other PersistentVolumes that share the attachment, since they stand for the same volume
        of the storage.
        """
        own = self.volumes.get(attachment.volume)
        if own:
            return [volume for volume in self.same(own) if volume is not own]
        if attachment.node not in self._by_name:
            made = self._by_name[attachment.node] = defaultdict(list)
            for volume in self.volumes.values():
                if volume.disk[0]:
                    made[attachment_name(*volume.disk, attachment.node)].append(volume)
        return self._by_name[attachment.node].get(attachment.name, [])

    def same(self, volume: Volume) -> list[Volume]:
        """The PersistentVolumes with the driver and handle of this one, itself among them."""
        return self._by_handle.get(in_tree.same_disk(volume.disk), [volume])

    @cached_property
    def _by_claim(self) -> _Pods:
        """Pods by node and claim."""
        return _by_claim(self.pods)

    @cached_property
    def _passed_by_claim(self) -> _Pods:
        """The same of the pods since the observation before."""
        return _by_claim(self.passed_pods)

    @cached_property
    def _by_bound(self) -> dict[str, list[tuple[str, str]]]:
        """Claims by the PersistentVolume they are bound to."""
        return self._by_volume(proven=True)

    @cached_property
    def _by_word(self) -> dict[str, list[tuple[str, str]]]:
        """Claims by the PersistentVolume that only they themselves name."""
        return self._by_volume(proven=False)

    def _by_volume(self, proven: bool) -> dict[str, list[tuple[str, str]]]:
        """Claims by the PersistentVolume they name: those that are proven to be its, or others."""
        found: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for key, claim in self.claims.items():
            if proven == _is_its(claim, self.volumes.get(claim.volume)):
                found[claim.volume].append(key)
        return found

    @cached_property
    def _unexplained(self) -> dict[str, list[tuple[Pod, Reason]]]:
        """By node: pods there whose claim does not show what they have mounted."""
        found: dict[str, list[tuple[Pod, Reason]]] = defaultdict(list)
        for pod in self.pods:
            for name in [] if pod.terminal else pod.claims:
                claim = self.claims.get((pod.namespace, name))
                if claim is None:
                    why = Reason(
                        "claim_unbound",
                        f"pod {pod.title} names the claim {name}, which does not exist",
                    )
                # It may have the volume of an older claim of that name, and only the kubelet knows.
                elif _placed_before(pod, claim):
                    why = Reason(
                        "in_use_by_pod", f"pod {pod.title} was there before its claim {name}"
                    )
                else:
                    continue
                found[pod.node].append((pod, why))
                # One is reason enough, and a tenant's pod may name 50,000.
                break
        return found

    def has_claim(self, name: str) -> bool:
        """The PersistentVolume exists, and names its claim, present or past."""
        # Otherwise all claims have to be known.
        return name in self.volumes and bool(self.volumes[name].claim_name)

    def unexplained(self, attachment: Attachment) -> list[Reason]:
        """Pods that may have the attachment's volume mounted, although no claim proves it.

        Of a pod no container of which ever ran, the kubelet may have mounted it: but it mounts
        nothing attachable before its node's volumesInUse lists it
        (GenerateVerifyControllerAttachedVolumeFunc of
        pkg/volume/util/operationexecutor/operation_generator.go). So a tenant's pod that waits for
        ever for a claim that never existed keeps no attachment of others.
        """
        mounted = attachment.name in self.in_use | self.was_in_use
        found = self._claimed(attachment, mounted)
        if self.has_claim(attachment.volume):
            return found
        return found + [
            why for pod, why in self._unexplained.get(attachment.node, []) if pod.ran or mounted
        ]

    def _claimed(self, attachment: Attachment, mounted: bool) -> list[Reason]:
        """Pods with a claim that names the volume, while nothing else says that it is the claim's.

        Any tenant can make one. So it is told, and never taken for the volume's own: that would
        hide the attachment, and bring it into the scope of the tenant's namespace.
        """
        # A volume without a claim may be bound to this one any moment. A volume that is gone, or
        # another claim's, is not mounted for a pod of which no container ever ran (getPVSpec of
        # pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go).
        owned = self.has_claim(attachment.volume)
        free = attachment.volume in self.volumes and not owned
        pods = [
            (pod, key[1])
            for key in self._by_word.get(attachment.volume, ())
            for known in (self._by_claim, self._passed_by_claim)
            for pod in known.get((attachment.node, *key), ())
            if not pod.terminal and (free or mounted or self._may_have_by(key, pod, owned))
        ]
        return [
            Reason(
                "in_use_by_pod",
                f"pod {pod.title} has the claim {name}, which names {attachment.volume}, and "
                "nothing proves that it is that claim's",
            )
            for pod, name in dict.fromkeys(pods)
        ]

    def _may_have_by(self, key: tuple[str, str], pod: Pod, owned: bool) -> bool:
        """A pod may have the volume mounted that this claim only names. ``owned``: the volume names
        another claim.
        """
        # What a pod has that was there before the claim, it has by an older one of that name. So
        # the claim, which any tenant may make for a pod that runs, says no more of the volume than
        # the pod does; see ``unexplained``.
        return pod.ran and not (owned and _placed_before(pod, self.claims[key]))

    def namespaces_of(self, attachment: Attachment) -> set[str]:
        """The namespaces of all claims that have, had, or say they have its volume."""
        keys = self.keys_of(attachment).union(self._by_word.get(attachment.volume, ()))
        return {namespace for namespace, _name in keys}

    def keys_of(self, attachment: Attachment) -> set[tuple[str, str]]:
        """All claims that stand or stood for the attachment's volume, by whichever
        PersistentVolume.
        """
        volumes = {
            volume.name: volume
            for volume in [*self.twins(attachment), self.volumes.get(attachment.volume)]
            if volume
        }
        keys = {volume.claim for volume in volumes.values() if volume.claim_name}
        return keys.union(*(self._by_bound.get(name, ()) for name in {attachment.volume, *volumes}))

    def _is_another(self, attachment: Attachment, key: tuple[str, str]) -> bool:
        """The claim of that name has another volume by now."""
        # A claim can be deleted and created again while a pod that mounted the old volume runs.
        known = {"", attachment.volume, *(twin.name for twin in self.twins(attachment))}
        return key in self.claims and self.claims[key].volume not in known

    def claims_of(self, attachment: Attachment) -> list[tuple[str, str]]:
        """The claims that stand for the attachment's volume, by whichever PersistentVolume."""
        return sorted(
            key for key in self.keys_of(attachment) if not self._is_another(attachment, key)
        )

    def users(self, attachment: Attachment) -> list[Pod]:
        """Pods on the attachment's node that need its volume: all that are not terminal.

        Of a claim that was created again for another volume, those that are older than it.
        """
        return self._users(attachment, self._by_claim)

    def passed_users(self, attachment: Attachment) -> list[Pod]:
        """Pods that needed it since the observation before, even for a moment."""
        return self._users(attachment, self._passed_by_claim)

    def _users(self, attachment: Attachment, pods: _Pods) -> list[Pod]:
        return [
            pod
            # Sorted, so that messages and fingerprints are the same in each run.
            for key in sorted(self.keys_of(attachment))
            for pod in pods.get((attachment.node, *key), ())
            if not pod.terminal
            and (not self._is_another(attachment, key) or _placed_before(pod, self.claims[key]))
        ]

    def ready(self, node: str) -> bool:
        """The node is there and its kubelet reports."""
        # Unknown counts as not ready: what a silent kubelet last said is no evidence.
        return node in self.nodes and self.nodes[node].ready == "True"


def _names(entries: Iterable[tuple[tuple[str, ...], str]]) -> set[str]:
    """Names of the attachments that these entries of a node's status stand for, with that node."""
    return {name for volumes, node in entries for name in attachment_names(volumes, node)}


def _is_its(claim: Claim, volume: Volume | None) -> bool:
    """The claim is proven to have the volume that it names, or to have had it.

    A volume that is gone, or whose claimRef was removed, does not say whose it was.
    """
    # Bound says the controller manager, once the volume's claimRef agreed; Lost it says of any
    # claim with the annotation of a bound one (syncBoundClaim of
    # pkg/controller/volume/persistentvolume/pv_controller.go). And a volume that was made for a
    # claim is named for its uid (getProvisionedVolumeNameForClaim there).
    if volume and volume.claim_name:
        return is_bound(claim, volume)
    return is_bound(claim, None) or claim.volume == f"pvc-{claim.uid}"


def _by_claim(pods: Iterable[Pod]) -> _Pods:
    """Pods by node and claim."""
    found: _Pods = defaultdict(list)
    for pod in pods:
        for claim in pod.claims:
            found[pod.node, pod.namespace, claim].append(pod)
    return found


def _placed_before(pod: Pod, claim: Claim) -> bool:
    """The pod came to its node before the claim was created, so it mounted the volume of an older
    claim of that name.
    """
    return bool(pod.scheduled and claim.created and pod.scheduled < claim.created)


def may_lack_status(seen: Observation, attachment: Attachment) -> bool:
    """Attached by the controller manager, and its node's status does not list it."""
    # The caller leaves out drivers with attachRequired=false: their attachments are never listed.
    node = seen.nodes.get(attachment.node)
    usable = (
        node is not None
        and node.ready == "True"
        and node.managed
        and attachment.attached
        and not attachment.deleted
    )
    return (
        usable
        and attachment.name not in seen.listed
        and _made_by_the_controller_manager(seen, attachment)
    )


def missing_metadata(attachment: Attachment, required: dict[str, tuple[str, ...]]) -> list[str]:
    """Keys that the driver needs in the attachment's metadata and that are not there."""
    if not attachment.attached or attachment.deleted:
        return []
    return [key for key in required.get(attachment.driver, ()) if key not in attachment.metadata]


def metadata_arguments(driver: str, required: Mapping[str, tuple[str, ...]]) -> str:
    """The argument by which the playbook looks for the same keys; empty where they are built in."""
    keys = required.get(driver, ())
    if keys == REQUIRED_METADATA.get(driver, ()):
        return ""
    return " -e " + shlex.quote(json.dumps({"attachment_repair_required_metadata": {driver: keys}}))


def needed_by(seen: Observation, attachment: Attachment) -> str:
    """Who needs the attachment now, or did since the observation before; empty if none does."""
    users = seen.users(attachment)
    if users:
        return f"pod {users[0].title} on {attachment.node}" + (
            f" and {len(users) - 1} more" if users[1:] else ""
        )
    if attachment.name in seen.in_use and seen.ready(attachment.node):
        return f"the kubelet of {attachment.node}, by volumesInUse"
    passed = seen.passed_users(attachment)
    if passed:
        return f"pod {passed[0].title} on {attachment.node}, a moment ago"
    if attachment.name in seen.was_in_use:
        return f"the kubelet of {attachment.node}, a moment ago, by volumesInUse"
    return ""


def proofs(
    seen: Observation, attachment: Attachment, version: tuple[int, int, int], version_text: str
) -> list[str]:
    """Strong signs that an attachment that no pod needs is left over, and not about to be needed or
    detached.
    """
    # That no pod needs it is normal for a moment in each detach, so it proves nothing by itself.
    volume = seen.volumes.get(attachment.volume)
    if volume is None:
        return [f"its PersistentVolume {attachment.volume} is gone"]
    found = []
    # No claim has it in these phases (PersistentVolumePhase of k8s.io/api/core/v1), so no pod can
    # come to need it.
    if volume.phase in ("Released", "Failed", "Available"):
        found.append(f"its PersistentVolume {volume.name} is {volume.phase}")
    if volume.exclusive:
        found += [
            f"{volume.name} may be on one node only, and {other.node} waits for it: "
            f"{other.attach_error.message}"
            for other in seen.by_volume.get(volume.name, ())
            if _is_kept_off(seen, attachment, other) and other.attach_error
        ]
    # kubernetes issue 97230: the controller manager believes that it has detached it.
    if names.collides(volume.driver, volume.handle) and names.affected(version) == "yes":
        found.append(
            f"{volume.driver}^{volume.handle} is {names.COLLISION} bytes long, which "
            f"{version_text} takes for another name"
        )
    return found


def _is_kept_off(seen: Observation, attachment: Attachment, other: Attachment) -> bool:
    """A pod waits for the volume on another node, which cannot get it while the first has it."""
    if (
        other.node == attachment.node
        or other.deleted
        or other.attached
        or other.attach_error is None
    ):
        return False
    # Its own words are not enough: an old error stays in the status.
    waits_there = any(pod.phase == "Pending" and not pod.deleted for pod in seen.users(other))
    return waits_there and other.attach_error.names_other_node(attachment.node)


def blockers(seen: Observation, attachment: Attachment) -> list[Reason]:
    """Why it may not be deleted although no pod needs it."""
    # All that apply are reported, so that a user does not clear them one by one.
    node = seen.nodes.get(attachment.node)
    found = []
    # Its host may run on, with the volume mounted.
    if node is None:
        found.append(
            Reason("node_lost", f"its node {attachment.node} does not exist any more, {_LOST_NODE}")
        )
    elif node.ready != "True":
        found.append(
            Reason(
                "node_lost",
                f"its node {attachment.node} is not ready (Ready is {node.ready}), {_LOST_NODE}",
            )
        )
    elif not node.managed:
        found.append(
            Reason(
                "controller_responsible",
                f"the kubelet of {attachment.node} attaches volumes by "
                "itself and does not say which it uses",
            )
        )
    if node and node.is_younger(attachment):
        found.append(Reason("identity_changed", f"its node {made_again(attachment.node)}"))
    if attachment.name in seen.listed:
        found.append(
            Reason(
                "controller_responsible",
                f"volumesAttached of {attachment.node} lists it: a controller manager that runs "
                "needs it or detaches it by itself, and one that does not run will after its start",
            )
        )
    found += [
        words.with_text(f"{words}, and may use the volume")
        for words in seen.unexplained(attachment)[:3]
    ]
    if not _made_by_the_controller_manager(seen, attachment):
        found.append(
            Reason(
                "controller_responsible",
                "it was not made by the controller manager, which gives it another name; remove "
                "it with the tool that created it",
            )
        )
    twins = [
        f"{twin.name} ({'/'.join(twin.claim)}, {twin.phase})" for twin in seen.twins(attachment)
    ]
    if twins:
        found.append(
            Reason(
                "same_volume_twice",
                f"PersistentVolume {', '.join(twins[:3])} has the same driver and handle, and so "
                "the same attachment. Delete the PersistentVolume that is not needed any more, "
                "and run again",
            )
        )
    return found


def _made_by_the_controller_manager(seen: Observation, attachment: Attachment) -> bool:
    """By the form of its name, and by its volume where that is known."""
    volume = seen.volumes.get(attachment.volume)
    made = (
        attachment_name(*volume.disk, attachment.node)
        if volume and volume.disk[0]
        else attachment.name
    )
    return made == attachment.name and bool(_OWN_NAME.fullmatch(attachment.name))
