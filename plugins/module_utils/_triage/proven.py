# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Causes that the objects of the cluster prove: node, claim, volume, VolumeAttachment, CSINode.

Pure: no I/O here.
"""

from __future__ import annotations

from collections.abc import Iterable

from .._core import untrusted
from .._kube import observation
from .._kube.attaching import UNREAD
from .._kube.events import WAITS_FOR_SCHEDULER
from .._kube.objects import Attachment, Node, Pod, Volume
from . import catalogue
from .state import Cause, Seen, TriageOptions, TriageState, elapsed, node_state

# The driver for whose volumes there is a fail-over; Rook puts its namespace in front, as in
# rook-ceph.rbd.csi.ceph.com.
RBD_DRIVER = "rbd.csi.ceph.com"
_LOST = (
    "the playbook fences Ceph RBD volumes; for others prove that {node} is off or fenced "
    "before they go elsewhere"
)
_REPLACE_NODE = "delete the pod so that another node takes it"


def unreported_node(seen: Seen, state: TriageState) -> Cause | None:
    """A node that does not report or is gone. It outweighs every message."""
    pod, node = seen.pod, state.seen.nodes.get(seen.pod.node)
    if not pod.node or (node is not None and node.ready != "Unknown"):
        return None
    why, volumes = f"its node {pod.node} {node_state(node)}", state.bound(pod)
    if not volumes:
        return Cause("", why, f"repair or remove the node, or {_REPLACE_NODE}", "info")
    return Cause("STOR-16", why, _LOST.format(node=pod.node), facts=_lost(pod.node, *volumes))


def _lost(node: str, *volumes: Volume) -> dict[str, str]:
    """The fact that the command of a fail-over needs; only where it can do something."""
    if any(volume.driver.endswith(RBD_DRIVER) for volume in volumes):
        return {"lost_node": node}
    return {}


# A pod that does not start


def waiting(seen: Seen, state: TriageState, options: TriageOptions) -> Cause | None:
    """What keeps a pod that has a node from starting."""
    pod = seen.pod
    if not pod.node:
        return None
    node = state.seen.nodes.get(pod.node)
    if node is None or node.ready != "True":
        why = f"its node {pod.node} {node_state(node)}"
        return Cause("", why, f"repair the node, or {_REPLACE_NODE}")
    bypassed = _bypassed_scheduler(pod, state)
    if bypassed:
        return bypassed
    causes = (_volume_cause(volume, node, state, options) for volume in state.bound(pod))
    return next((cause for cause in causes if cause), None)


def _bypassed_scheduler(pod: Pod, state: TriageState) -> Cause | None:
    """A claim that waits for a scheduler which never saw its pod."""
    # With volumeBindingMode WaitForFirstConsumer the scheduler annotates the claim with the node it
    # chose, and the volume is provisioned only then (AssumePodVolumes and bindAPIUpdate of the
    # scheduler's volume binder). A pod that sets spec.nodeName skips that.
    for name, claim in state.claims_of(pod):
        if claim is None or state.is_bound(claim):
            continue
        if any(
            message.reason == WAITS_FOR_SCHEDULER for message in state.messages.get(claim.uid, ())
        ):
            return Cause(
                "",
                f"claim {name} gets its volume only when the scheduler places the pod, but the pod "
                f"was put on {pod.node} without the scheduler (spec.nodeName)",
                "make the pod without spec.nodeName, with a nodeSelector or affinity in its place; "
                "or annotate the claim with volume.kubernetes.io/selected-node={node}",
            )
    return None


def _volume_cause(
    volume: Volume, node: Node, state: TriageState, options: TriageOptions
) -> Cause | None:
    """What keeps one volume from a node, as far as the objects prove it."""
    own = state.own_attachment(volume, node.name)
    if own is None or own.attach_error:
        held = _held(volume, node, state)
        if held:
            return held
    if own is not None:
        return _attachment_cause(own, volume, node, state, options)
    if state.wants_attachment(volume, node.name):
        return _no_attachment(volume, node, state)
    return _unregistered([state.driver_of(volume, node.name)], node, state)


def _attachment_cause(
    own: Attachment, volume: Volume, node: Node, state: TriageState, options: TriageOptions
) -> Cause | None:
    """What is wrong with the VolumeAttachment, in the order in which a volume is attached."""
    if own.deleted:
        return _detaching(own, state)
    if own.attach_error:
        return _attach_error(own.attach_error.message, volume, node)
    if not own.attached:
        return _unanswered(own, node, state)
    missing = observation.missing_metadata(own, options.required_metadata)
    if missing:
        return Cause(
            "STOR-14",
            f"VolumeAttachment {own.name} lacks {', '.join(missing)}, without which {own.driver} "
            "cannot mount",
            "the workload leaves the node, and comes back when that VolumeAttachment is gone",
            facts={
                "attachment": own.name,
                "more": observation.metadata_arguments(own.driver, options.required_metadata),
            },
        )
    # The kubelet mounts only what the controller manager lists there
    # (GenerateVerifyControllerAttachedVolumeFunc of
    # pkg/volume/util/operationexecutor/operation_generator.go).
    if observation.may_lack_status(state.seen, own):
        return Cause(
            "STOR-13",
            f"VolumeAttachment {own.name} is attached, but status.volumesAttached of {node.name} "
            "lacks the volume",
            "this is one observation; the playbook makes several before it changes anything",
            facts={"attachment": own.name},
        )
    return _unregistered([state.driver_of(volume, node.name)], node, state)


def _unanswered(own: Attachment, node: Node, state: TriageState) -> Cause:
    """The controller manager has made a VolumeAttachment, and no attacher has taken it up."""
    silent = (
        f"the external-attacher of {own.driver} has not answered VolumeAttachment {own.name} "
        f"for {elapsed(state.now, own.created)}"
    )
    absent = _unregistered([own.driver], node, state)
    if absent:
        return Cause("", f"{absent.why}; and {silent}", absent.look)
    look = "look at the pods and logs of the driver's controller (container csi-attacher)"
    return Cause("STOR-15", silent, look)


def _attach_error(message: str, volume: Volume, node: Node) -> Cause:
    """The driver's message is the best explanation; the catalogue may know what it means."""
    # As the kubelet's event would put it.
    known = catalogue.match(
        "FailedAttachVolume", f"AttachVolume.Attach failed for volume : {message}"
    )
    return Cause(
        known.control if known else "",
        f"attaching {volume.name} to {node.name} fails: {message}",
        known.look if known else "",
    )


def _unregistered(drivers: Iterable[str], node: Node, state: TriageState) -> Cause | None:
    """A driver that the node does not have, as far as its CSINode is known."""
    # The kubelet finds a driver only by its registration (newCsiDriverClient of
    # pkg/volume/csi/csi_client.go), which it also lists in the CSINode.
    there = state.drivers_on.get(node.name)
    absent = [driver for driver in drivers if driver and there is not None and driver not in there]
    if not absent:
        return None
    why = (
        f"CSINode {node.name} lacks the driver {absent[0]}, so the kubelet can neither mount nor "
        "unmount its volumes"
    )
    return Cause(
        "",
        why,
        f"look at the driver's node pod on {node.name}: was it removed, or does it not start?",
    )


def _no_attachment(volume: Volume, node: Node, state: TriageState) -> Cause:
    """R8: no VolumeAttachment is created. First what explains it, then the controller manager."""
    # The controller manager ignores a node without it (addNodeToDswp of
    # pkg/controller/volume/attachdetach/attach_detach_controller.go).
    if not node.managed:
        return Cause(
            "",
            f"{node.name} lacks the annotation "
            "volumes.kubernetes.io/controller-managed-attach-detach, "
            "so no volume is attached to it",
            "restart its kubelet with enableControllerAttachDetach: true",
        )
    driver = volume.disk[0]
    if driver not in state.drivers_on.get(node.name, ()):
        return Cause(
            "",
            f"CSINode {node.name} lacks the driver {driver}",
            f"look at the driver's node pod on {node.name}",
        )
    lease = state.lease
    leader = (
        f"{lease.holder or 'no holder'}, lease renewed {elapsed(state.now, lease.renewed)} ago"
        if lease
        else "no lease"
    )
    last = (
        f"{elapsed(state.now, state.last_attach)} ago"
        if state.last_attach
        else "none that is still known"
    )
    if state.attach_unread:
        last = UNREAD
    return Cause(
        "STOR-15",
        f"no VolumeAttachment is created for {volume.name} on {node.name}",
        "the controller manager does not attach it (last attach of any volume, by its events: "
        f"{last}); its owner looks at the leader: {leader}",
        evidence={"leader": leader, "last_attach": last},
    )


# A volume that another node has


def _held(volume: Volume, node: Node, state: TriageState) -> Cause | None:
    """Another node has a volume that only one node can have."""
    # The controller manager then does not even try to attach it (IsMultiAttachAllowed of
    # pkg/volume/util/util.go).
    others = [
        attachment
        for attachment in state.seen.by_volume.get(volume.name, ())
        if attachment.node != node.name
    ]
    if not others or not volume.exclusive:
        return None
    other = others[0]
    there, what = state.seen.nodes.get(other.node), f"{volume.name} is attached to {other.node}"
    if there is None or there.ready != "True":
        return Cause(
            "STOR-16",
            f"{what}, which {node_state(there)}",
            _LOST.format(node=other.node),
            facts={"node": other.node, **_lost(other.node, volume)},
        )
    if other.deleted:
        return _detaching(other, state)
    return _needed_there(other, what, state) or _left_over(other, what, state)


def _needed_there(other: Attachment, what: str, state: TriageState) -> Cause | None:
    """A pod, or the kubelet, of the other node still needs the volume."""
    users = [
        f"{pod.title}{' (being deleted)' if pod.deleted else ''}" for pod in state.seen.users(other)
    ]
    if users:
        return Cause(
            "",
            f"{what}, where pod {untrusted.few(users)} needs it",
            "stop or move that pod; only one node can have the volume",
        )
    needed = observation.needed_by(state.seen, other)
    if not needed:
        return None
    return Cause(
        "",
        f"{what}, where {needed} has it in use",
        f"look at the kubelet's log on {other.node} for what keeps it from unmounting; audit "
        "the node with node_storage_info",
    )


def _left_over(other: Attachment, what: str, state: TriageState) -> Cause:
    """No pod needs the volume on the other node. The repair is named only where it would act."""
    because = observation.proofs(state.seen, other, state.version, state.version_text)
    why = f"{what}, where no pod needs it"
    if observation.blockers(state.seen, other) or not because:
        look = (
            "nothing proves that it is left over; a running controller manager detaches it by "
            "itself. Audit it with cluster_storage_info"
        )
        return Cause("STOR-11", why, look)
    return Cause(
        "STOR-11",
        why,
        "the playbook checks twice before it deletes anything",
        facts={"attachment": other.name},
        # A playbook repairs the attachment of this name.
        evidence={"because": because, "attachment": other.name},
    )


def _detaching(attachment: Attachment, state: TriageState) -> Cause:
    """The VolumeAttachment is being deleted, and the driver does not detach the volume."""
    # external-attacher removes its finalizer only after ControllerUnpublishVolume has succeeded
    # (csiDetach of its pkg/controller/csi_handler.go).
    since = elapsed(state.now, attachment.deleted)
    error = f": {attachment.detach_error.message}" if attachment.detach_error else ""
    held = f", held by {', '.join(attachment.finalizers)}" if attachment.finalizers else ""
    return Cause(
        "STOR-11",
        f"VolumeAttachment {attachment.name} for {attachment.node} was deleted {since} ago and is "
        f"still there{held}{error}",
        "the driver must release the volume: look at its controller (container csi-attacher) and "
        "the storage; never strip the finalizer",
    )


# A pod that does not end


def ending(seen: Seen, state: TriageState) -> Cause | None:
    """What keeps a pod from ending."""
    pod = seen.pod
    node = state.seen.nodes.get(pod.node)
    # The API server keeps the object until the last finalizer is gone, whatever the kubelet does
    # (Delete of apiserver/pkg/registry/generic/registry/store.go).
    if seen.finalizers:
        return Cause(
            "",
            f"it is held by finalizers: {', '.join(seen.finalizers)}",
            "look at what set them; this is not storage",
            "info",
        )
    if node is None or node.ready != "True":
        return Cause(
            "STOR-16" if pod.claims else "",
            f"its node {pod.node} {node_state(node)}",
            _LOST.format(node=pod.node) if pod.claims else "repair or remove the node",
            "major" if has_volumes(pod) else "info",
            facts=_lost(pod.node, *state.bound(pod)),
        )
    drivers = [state.driver_of(volume, node.name) for volume in state.bound(pod)]
    return _unregistered([*drivers, *pod.inline_drivers], node, state)


def has_volumes(pod: Pod) -> bool:
    """A CSI driver, a claim or an NFS server gives it volumes."""
    return bool(pod.claims or pod.inline_drivers or pod.shares)


# A pod about which neither objects nor messages say anything

# kube-apiserver's --event-ttl is 1h by default.
_UNTOLD = "no event and no object says why (events are kept for an hour)"


def silent(seen: Seen, state: TriageState) -> Cause:
    """Where to look when no object and no message explains why the pod is stuck."""
    pod = seen.pod
    if pod.deleted:
        return _on_a_share(pod, state) or _silent_end(pod)
    # The kubelet starts no container before all volumes are mounted (syncPod of
    # pkg/kubelet/kubelet.go waits in WaitForAttachAndMount).
    if pod.alive:
        look = untrusted.shown_command(
            "kubectl -n {namespace} logs {pod} --all-containers",
            namespace=pod.namespace,
            pod=pod.name,
        )
        return Cause("", "its volumes are mounted and an init container is running", look, "info")
    for name, claim in state.claims_of(pod):
        if claim is None or not state.is_bound(claim):
            why = "is not bound to a volume" if claim else "does not exist"
            look = untrusted.shown_command(
                "kubectl -n {namespace} describe pvc {claim}", namespace=pod.namespace, claim=name
            )
            return Cause("", f"claim {name} {why}", look)
    return _on_a_share(pod, state) or Cause(
        "", _UNTOLD, f"look at {_where_to_look(pod, state)}", "minor"
    )


def _on_a_share(pod: Pod, state: TriageState) -> Cause | None:
    """A pod of an NFS server that may not answer."""
    # While it does not, what is mounted or unmounted waits in the kernel (nfs(5), hard), and the
    # kubelet has nothing to tell: it was seen to be silent for as long as the server was away.
    shares = state.shares(pod)
    if not shares or not pod.node:
        return None
    does = "does not end" if pod.deleted else "does not begin"
    return Cause(
        "STOR-09",
        f"{_UNTOLD}. It {does}, and has the NFS share {shares[0]}: while the server does not "
        "answer, no event tells of it",
        f"look at {_where_to_look(pod, state)}",
        "minor",
        facts={"more": state.check_of(shares[0], pod)},
        evidence={"shares": shares},
    )


def _silent_end(pod: Pod) -> Cause:
    look = f"look at the log of the kubelet on {pod.node} for this pod"
    if not has_volumes(pod):
        return Cause(
            "", "the kubelet has not ended it, and it has no persistent volume", look, "info"
        )
    return Cause(
        "",
        "the kubelet has not ended it or not unmounted its volumes",
        f"{look}; audit the node with node_storage_info",
    )


def _where_to_look(pod: Pod, state: TriageState) -> str:
    if not pod.node:
        return "the scheduler"
    where = f"the log of the kubelet on {pod.node}"
    alone = sorted({volume.driver for volume in state.bound(pod)} & state.detached_drivers)
    if alone:
        where += f", and of the node pod of {alone[0]} there, which mounts without an attachment"
    return where
