# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which lost nodes still hold volumes (STOR-16), and which fences were left behind (STOR-17).

Pure: no I/O here.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from ipaddress import ip_address, ip_network
from typing import Any, NamedTuple

from .._core import untrusted
from .._core.controls import FAIL_OVER, RELEASE
from .._core.engine import MAX_RESULT_CHARACTERS, Finding, Plan
from .._core.turns import within
from .._fences.ceph_reading import Blocked, Reading
from .._fences.ledger import Entry, Ledger, doubt_of
from .._fences.network_fence import (
    FENCED,
    MESSAGES,
    UNFENCED,
    NetworkFence,
    coverage,
    networks,
)
from .._fences.returned import LONE, is_old, machine_doubt, plain, rebooted
from .._fences.state import OUT_OF_SERVICE, AttachedVolume, HostRecord, names_cephfs
from .._kube.objects import Attachment, Pod, attachment_names, parse_time

# Of nodes that the user did not name, so much of their volumes and of what their kubelets say is
# told (characters); a whole data centre may be lost.
# Ansible passes results between processes and into AWX's database, so one of megabytes hurts.
_MAX_VOLUMES = 70_000
# And so much of the volumes of those that are named (characters). Besides, a result has neighbours
# and ledgers, and what rbd_watcher_info tells of as many images has room in one, too.
_MAX_NAMED = 250_000
# Of so many other nodes volumes are told, of each so many: each is a question to Ceph.
MAX_NEIGHBOURS = 100
# With one, a volume whose pod has just ended would hide its node.
_EACH = 2
# How the copies of a ledger, a ConfigMap and the node's annotation, can differ.
ELSEWHERE, NOTHING, CONTRADICTED, STALE = "elsewhere", "nothing", "contradicted", "stale"
# Anybody who may patch the Node can have written the annotation, and any backup tool can restore a
# ConfigMap.
_CONTRADICTED = (
    "anyone who controls its kubelet may have written the annotation; or the ConfigMap is an old "
    "one, from "
    "a backup. The ConfigMap counts, but the node is not released while they contradict each "
    "other: compare both with Ceph's blocklist"
)


# Who is Ready may claim any address; who is lost may write again by it.
_MAY_BE_OF = (
    "{0} is not Ready, has an address in it, and was perhaps fenced by hand: leave it until that "
    "host is off, whatever {1} says of its own addresses"
)
# The entry may fence a host that is no node at all: addresses in a node's status are its kubelet's.
_IF_ITS_OWN = "if the address is indeed the node's, which its kubelet alone says"


class Unlike(NamedTuple):
    """How the copies of a ledger differ: one of the words above, and the sentence about it, without
    its subject. ``where``: the other namespace.
    """

    how: str
    said: str
    where: str = ""


class FenceAuditOptions(NamedTuple):
    """What the user asked for. ``grace``: seconds that a node must be Unknown to be lost."""

    nodes: tuple[str, ...] = ()
    ceph: Reading | None = None
    grace: float = 120.0


class LostNode(NamedTuple):
    """A node that was named or is not Ready. ``host``: None when there is no such Node;
    ``volumes``: attached to it, or fenced from it.

    ``used``: those that it may have open although they are not attached to it; ``waiting``: the
    pods that wait for one of these volumes on another node; ``neighbours``: volumes that other
    nodes have, see find_neighbours, as far as their PersistentVolumes are there;
    ``neighbours_left_out``: how many nodes have more of these.
    """

    name: str
    host: HostRecord | None
    ledger: Ledger | None
    volumes: tuple[AttachedVolume, ...]
    used: tuple[AttachedVolume, ...] = ()
    waiting: tuple[Pod, ...] = ()
    neighbours: tuple[dict[str, Any], ...] = ()
    neighbours_left_out: int = 0

    @property
    def left_open(self) -> tuple[AttachedVolume, ...]:
        """The RBD volumes of ``used``, which Kubernetes has detached by force."""
        # Many others are never attached, and then no attachment keeps them from other nodes.
        return tuple(found for found in self.used if found.is_rbd)

    def lost_for(self, now: datetime, grace: float) -> float:
        """Seconds since it was last heard of; 0 unless that is longer than the grace."""
        # lastTransitionTime is when the condition became Unknown, which is the node monitor grace
        # period after the kubelet's last heartbeat
        # (pkg/controller/nodelifecycle/node_lifecycle_controller.go).
        seconds = (
            self.host.node.lost_for(now) if self.host and self.host.node.ready == "Unknown" else 0.0
        )
        return seconds if seconds >= grace else 0.0


class FenceAuditState(NamedTuple):
    """What was read. ``unreadable``: of ledgers that cannot be read, the node and why; ``fences``:
    None without CSI-Addons.

    ``copies``: of nodes whose ledger is not kept twice as it should be, the node and what is wrong.
    """

    now: datetime
    hosts: Mapping[str, HostRecord]
    ledgers: Mapping[str, Ledger]
    unreadable: tuple[tuple[str, str], ...] = ()
    fences: tuple[NetworkFence, ...] | None = None
    lost: tuple[LostNode, ...] = ()
    copies: tuple[tuple[str, Unlike], ...] = ()

    def ready(self, node: str) -> bool:
        """The node is there and its kubelet reports that it is well."""
        return is_ready(self.hosts.get(node))


def plan(state: FenceAuditState, options: FenceAuditOptions) -> Plan:
    """Everything that is wrong."""
    # STOR-16 first, since data is in danger there; what is only left over comes last.
    findings = [finding for lost in state.lost for finding in _judge_lost(lost, state, options)]
    findings += [_unreadable(node, why) for node, why in state.unreadable]
    findings += [_copies(node, unlike, state) for node, unlike in state.copies]
    for ledger in state.ledgers.values():
        findings += _judge_ledger(ledger, state, options.ceph)
    findings += _stray_taints(state)
    findings += _stray_fences(state)
    findings += _stray_entries(state, options.ceph) if options.ceph else []
    return Plan(findings)


def describe(state: FenceAuditState, options: FenceAuditOptions) -> list[dict[str, Any]]:
    """The lost nodes as the module returns them, with their volumes, as far as there is room."""
    if options.nodes:
        return [_named(lost, state, _MAX_NAMED // len(state.lost)) for lost in state.lost]
    room = _MAX_VOLUMES
    described = []
    for lost in state.lost:
        volumes = _described(lost)
        entry = _entry(lost, state, volumes)
        size = _length(entry)
        if size > room:
            # One node that says too much of itself takes no room from the others.
            entry.update(volumes=[], volumes_left_out=len(volumes), addresses=[], boot_id="")
        else:
            room -= size
        described.append(entry)
    return described


def _named(lost: LostNode, state: FenceAuditState, room: int) -> dict[str, Any]:
    """A node that the user named, with as many volumes as have room. This is what the roles hand to
    rbd_watcher_info and node_fence.
    """
    late = {found.name for found in lost.volumes if found.too_late}
    fenced = set(lost.ledger.volumes if lost.ledger else ())
    is_lost = not is_ready(lost.host)

    def rank(one: dict[str, Any]) -> tuple[bool, ...]:
        # What has left a lost node is in no way of what has not. What is fenced is read for its
        # proof and its release, images are all that Ceph is asked for, and no fence has what came
        # too late.
        left = not (one["attachment"] or one["used"])
        return is_lost and left, one["name"] not in fenced, not _has_image(one), one["name"] in late

    # What has left and has no image is in the ledger, and nothing more is asked about it.
    every = [one for one in _described(lost) if one["attachment"] or one["used"] or one["pv"]]
    kept: set[int] = set()
    for group in sorted({rank(one) for one in every}):
        mine = [one for one in every if rank(one) == group]
        # Each namespace in its turn, since a tenant may have any number attached to a lost node, by
        # a pod that names it.
        more, _owners = within(mine, _namespace_of, _length, room)
        room -= sum(map(_length, more))
        kept |= set(map(id, more))
    return {
        **_entry(lost, state, [one for one in every if id(one) in kept]),
        "volumes_left_out": len(every) - len(kept),
    }


def is_ready(host: HostRecord | None) -> bool:
    """Its kubelet reports that it is well. A node that is gone counts as lost: its host may run."""
    return host is not None and host.node.ready == "True"


def _has_image(volume: dict[str, Any]) -> bool:
    return bool(volume["pv"]) and not names_cephfs(volume["driver"])


def _described(lost: LostNode) -> list[dict[str, Any]]:
    attached = [_describe_volume(volume, False) for volume in lost.volumes]
    return attached + [_describe_volume(volume, True) for volume in lost.used]


def _entry(lost: LostNode, state: FenceAuditState, volumes: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "node": lost.name,
        **_describe_host(lost.host, state.now),
        "ledger": lost.ledger.to_dict() if lost.ledger else {},
        "volumes": volumes,
        "volumes_left_out": 0,
        "neighbours": list(lost.neighbours),
        "neighbours_left_out": lost.neighbours_left_out,
    }


def _length(entry: dict[str, Any]) -> int:
    """Its characters in the result."""
    return len(json.dumps(untrusted.clean(entry, MAX_RESULT_CHARACTERS)))


def _namespace_of(volume: dict[str, Any]) -> str:
    return str(volume["claim"]).partition("/")[0]


def _describe_host(host: HostRecord | None, now: datetime) -> dict[str, Any]:
    if host is None:
        return {"ready": "", "not_ready_seconds": 0.0, "boot_id": "", "addresses": []}
    node = host.node
    return {
        "ready": node.ready,
        "not_ready_seconds": node.lost_for(now) if node.ready != "True" else 0.0,
        "boot_id": host.boot_id,
        "addresses": list(host.addresses),
    }


def find_neighbours(
    attachments: Iterable[Attachment], lost: LostNode
) -> tuple[tuple[str, ...], int]:
    """Some volumes of the same drivers that one other node alone has, two for each node; and how
    many nodes there are beyond those that are asked about.

    Whoever has one of them open is not the lost node, so they show from where other nodes reach
    Ceph, which no Node object tells. What was attached first is most likely open.
    """
    # Two of each node, since the pod of one may not run right now; and not of all nodes, since each
    # volume is several questions to Ceph.
    by_node: dict[str, list[Attachment]] = defaultdict(list)
    for found in _single_users(attachments, lost):
        if found.attached and found.node != lost.name:
            by_node[found.node].append(found)
    # Those that have a volume of the lost node may be taken for it, so they are asked first.
    theirs = {at.node for found in (*lost.volumes, *lost.used) for at in found.elsewhere}
    asked = sorted(by_node, key=lambda node: (node not in theirs, node))[:MAX_NEIGHBOURS]
    names = [found.volume for node in asked for found in sorted(by_node[node], key=_since)[:_EACH]]
    return tuple(names), len(by_node) - len(asked)


def _single_users(attachments: Iterable[Attachment], lost: LostNode) -> list[Attachment]:
    """The attachments of volumes of the same drivers that one node alone has, but not of those that
    the lost node has or had.
    """
    # A volume that several nodes may have shows no address of one of them.
    drivers = {found.attachment.driver for found in (*lost.volumes, *lost.used) if found.is_rbd}
    # What only the lost node's kubelet says is used there is not taken from the node that has it.
    held = {
        found.name
        for found in (*lost.volumes, *lost.used)
        if found.attachment.name or not found.elsewhere
    }
    users: dict[str, list[Attachment]] = defaultdict(list)
    for found in attachments:
        if found.driver in drivers and found.volume and found.volume not in held:
            users[found.volume].append(found)
    return [several[0] for several in users.values() if len(several) == 1]


def _since(attachment: Attachment) -> tuple[str, str]:
    return str(attachment.created or ""), attachment.volume


def _describe_volume(volume: AttachedVolume, used: bool) -> dict[str, Any]:
    # The in-tree plugin kubernetes.io/rbd has no driver name; its volumes have spec.rbd.
    in_tree = "rbd" if (volume.pv.get("spec") or {}).get("rbd") else ""
    return {
        "name": volume.name,
        "driver": volume.attachment.driver or in_tree,
        "cluster_id": volume.cluster_id,
        "claim": volume.claim,
        "storage_class": volume.storage_class,
        "attachment": volume.attachment.name,
        "used": used,
        "pv": volume.pv if volume.is_rbd or volume.is_cephfs else {},
    }


def _report(
    control: str,
    severity: str,
    name: str,
    summary: str,
    reason: str,
    *,
    kind: str = "Node",
    node: str = "",
    **evidence: Any,
) -> Finding:
    return Finding(
        control=control,
        severity=severity,
        kind=kind,
        name=name,
        node=node or name,
        summary=summary,
        reason=reason,
        evidence=evidence,
    )


# STOR-16


def _judge_lost(
    lost: LostNode, state: FenceAuditState, options: FenceAuditOptions
) -> list[Finding]:
    seconds = lost.lost_for(state.now, options.grace)
    if not seconds or lost.host is None:
        return []
    return [
        *_holding(lost, lost.host, seconds, options.ceph),
        *_still_watching(lost, options.ceph),
    ]


def _holding(
    lost: LostNode, host: HostRecord, seconds: float, ceph: Reading | None
) -> list[Finding]:
    """The finding about volumes that only the lost node can use, or about a fence not finished."""
    # A volume that several nodes can use does not keep pods from starting elsewhere, so it is no
    # reason to fence.
    attached, used = _exclusive(lost, host)
    held = attached + used
    phase = lost.ledger.phase if lost.ledger else ""
    if not held and phase not in ("intended", "fenced", "releasing"):
        return []
    return [
        _report(
            "STOR-16",
            "critical",
            lost.name,
            f"{lost.name} has been lost for {seconds:.0f} s and {_what_it_holds(attached, used)}",
            _next_step(lost, held),
            volumes=[
                f"{volume.name} ({volume.claim or 'no claim'}, {volume.attachment.driver})"
                for volume in held
            ],
            not_attached=[volume.name for volume in used],
            waiting_elsewhere=[text for volume in held for text in _waiting(volume, lost.waiting)],
            phase=phase or "not fenced",
            taints=[f"{key}={value}:{effect}" for key, value, effect in host.taints],
            watchers=[title for title, _old in _watchers(lost, ceph)],
        )
    ]


def _exclusive(
    lost: LostNode, host: HostRecord
) -> tuple[list[AttachedVolume], list[AttachedVolume]]:
    """The volumes that only this node can use: attached to it, and others it may have open."""
    # A VolumeAttachment with attached false may still be staged: a detach was begun, and the
    # kubelet has not unmounted (volumesInUse).
    in_use = attachment_names(host.node.volumes_in_use, lost.name)
    attached = [
        volume
        for volume in lost.volumes
        if is_exclusive(volume) and _is_held(volume.attachment, in_use)
    ]
    return attached, [volume for volume in lost.left_open if is_exclusive(volume)]


def _what_it_holds(attached: list[AttachedVolume], used: list[AttachedVolume]) -> str:
    parts = []
    if attached:
        parts.append(f"holds {len(attached)} volumes that no other node can use")
    if used:
        parts.append(f"may still use {len(used)} volumes that are not attached to it any more")
    return " and ".join(parts) or "holds no volume any more"


def _still_watching(lost: LostNode, ceph: Reading | None) -> list[Finding]:
    """The finding about watchers that the fence should have ended."""
    # The OSDs drop the watches of a blocklisted client when they learn of it
    # (check_blocklisted_watchers of src/osd/PrimaryLogPG.cc).
    if lost.ledger is None or lost.ledger.phase not in ("fenced", "detached"):
        return []
    left = [title for title, old in _watchers(lost, ceph) if old]
    if not left:
        return []
    return [
        _report(
            "STOR-16",
            "critical",
            lost.name,
            f"{lost.name} is fenced according to its ledger, but Ceph still sees {len(left)} "
            "of its watchers",
            f"the fence does not hold, so it may still write: run {_fail_over(lost.name)} "
            "again, which proves the fence",
            watchers=left,
        )
    ]


def is_exclusive(volume: AttachedVolume) -> bool:
    """Only one node can use it at a time."""
    # An inline volume has no PersistentVolume, and so no accessModes that say it.
    return volume.volume is not None and volume.volume.exclusive


def _is_held(attachment: Attachment, in_use: set[str]) -> bool:
    """The node may have it open. ``in_use``: what the node's status says it has mounted."""
    # A kubelet stages nothing before the attachment says attached (WaitForAttach of
    # pkg/volume/csi/csi_attacher.go).
    return attachment.attached or attachment.name in in_use


def _waiting(volume: AttachedVolume, pods: Iterable[Pod]) -> list[str]:
    """Who waits for it on other nodes."""
    # A pod that waits says why this matters now; an attachment elsewhere, that it already went
    # wrong.
    # Kubernetes makes no attachment there as long as it calls the volume attached to the lost node
    # (reportMultiAttachError of pkg/controller/volume/attachdetach/reconciler/reconciler.go).
    claim = volume.volume.claim if volume.volume else ("", "")
    users = [pod for pod in pods if pod.namespace == claim[0] and claim[1] in pod.claims]
    told = {pod.node: f"{volume.name} on {pod.node} for pod {pod.title}" for pod in users}
    return [
        *told.values(),
        *(f"{volume.name} on {other.node}" for other in volume.elsewhere if other.node not in told),
    ]


def _next_step(lost: LostNode, held: list[AttachedVolume]) -> str:
    # By phase: a release or a fail-over that was interrupted must be ended before anything else is
    # begun.
    again = untrusted.shown_command(
        f"ansible-playbook {FAIL_OVER} -e target={{node}}", node=lost.name
    )
    phase = lost.ledger.phase if lost.ledger else ""
    if phase == "releasing":
        return (
            "it was lost again while its release was under way, so it may be fenced no more, and "
            f"its host may write. If it has volumes, fence it again: {again}"
        )
    if phase in ("intended", "fenced"):
        return (
            f"its fail-over was interrupted when it was {phase}. Run it again, it goes on where "
            f"it stopped: {again}"
        )
    rbd = [volume for volume in held if volume.is_rbd]
    unknown = _other_storage(held, rbd)
    if not rbd:
        return f"its host may still run and write.{unknown}"
    fenced = set(lost.ledger.volumes if lost.ledger else ())
    is_new = phase == "detached" and not {volume.name for volume in rbd} & fenced
    covered = "these are not in its fence. " if is_new else ""
    return (
        f"its host may still run and write, so {covered}fence it and move them: {again}.{unknown}"
    )


def _other_storage(held: list[AttachedVolume], rbd: list[AttachedVolume]) -> str:
    """What to do about volumes that no entry of Ceph's blocklist protects."""
    # Ceph's blocklist says nothing about iSCSI, NFS or a cloud's disks; their fences are persistent
    # reservations (SPC-4), export rules, or the detach itself.
    # CephFS joins the fence of a node that has RBD (_fencing/files.py).
    others = sorted(
        {volume.attachment.driver for volume in held if not (rbd and volume.is_cephfs)}
        - {volume.attachment.driver for volume in rbd}
    )
    return (
        f" Volumes of {', '.join(others)} are not Ceph RBD: before you move them, prove by their "
        "own storage that the host writes no more"
        if others
        else ""
    )


def _watchers(lost: LostNode, ceph: Reading | None) -> list[tuple[str, bool]]:
    """Watchers of the images of its volumes, and whether they are of what its ledger fences."""
    # A watcher is evidence of who has an image open; whose it is, only its address tells.
    names = {volume.name for volume in (*lost.volumes, *lost.used)} | set(
        lost.ledger.volumes if lost.ledger else ()
    )
    images = [image for image in (ceph.images if ceph else ()) if image.volume in names]
    return [
        (
            f"{watcher.title} of {image.title}",
            lost.ledger is not None and is_old(watcher, lost.ledger),
        )
        for image in images
        for watcher in image.watchers
    ]


# STOR-17


def _judge_ledger(ledger: Ledger, state: FenceAuditState, ceph: Reading | None) -> list[Finding]:
    """What a ledger promises, and what there is."""
    # A fence outlives its fail-over on purpose: only a release, after a reboot, may end it.
    name, host = ledger.node, state.hosts.get(ledger.node)
    found = []
    evidence: dict[str, Any] = {
        "phase": ledger.phase,
        "method": ledger.method,
        "entries": [f"{entry.entry} until {entry.until or 'unknown'}" for entry in ledger.entries],
        "network_fences": [fence.name for fence in ledger.network_fences],
        "since": ledger.at,
        "by": ledger.by,
    }
    if host is None:
        reason = (
            "its host may still run, and then only the fence keeps it from writing. If it is gone "
            "for good, remove the fence by hand before its address is "
            "given to another host, then the ledger"
        )
        found.append(
            _report(
                "STOR-17",
                "major",
                name,
                f"{name} has a fence, but there is no such node any more",
                reason,
                **evidence,
            )
        )
    elif host.node.ready == "True":
        evidence.update(
            boot_id=host.boot_id,
            boot_id_when_fenced=ledger.boot_id,
            out_of_service=_is_out_of_service(host),
        )
        found.append(
            _report(
                "STOR-17",
                "major",
                name,
                f"{name} is Ready, and its fence is still there",
                _release(ledger, host),
                **evidence,
            )
        )
    return found + _judge_entries(ledger, state, ceph, evidence)


def _release(ledger: Ledger, host: HostRecord) -> str:
    # The same tests as the release itself makes, so that the advice is never one that it would
    # refuse.
    playbook = untrusted.shown_command(
        f"ansible-playbook {RELEASE} -e target={{node}}", node=ledger.node
    )
    if ledger.phase == "releasing":
        return f"its release was interrupted. Run it again: {playbook}"
    if rebooted(host, ledger):
        return f"it was rebooted since (another bootID), so it can be released: {playbook}"
    stranger = machine_doubt(host, ledger)
    if stranger:
        return (
            f"{stranger}, so the one that was fenced may still run: make sure that it is off, and "
            f"run {playbook} -e node_release_old_machine_confirmed_off=true"
        )
    if ledger.power and ledger.power.off_at:
        return (
            f"it was not rebooted since (same bootID), although {ledger.power.title} "
            "said that it was off, so it may have written to volumes that other nodes have: check "
            f"them, reboot it, and run {playbook}"
        )
    return (
        "it was not rebooted since (same bootID), so old clients may still be there and would "
        f"continue to write: reboot it and run {playbook}, which also releases it if the node "
        "itself shows that none is left"
    )


def _judge_entries(
    ledger: Ledger, state: FenceAuditState, ceph: Reading | None, evidence: dict[str, Any]
) -> list[Finding]:
    """A fence that is gone although no run has released it."""
    # Before it was proven the entries may not be there yet, and while it is released they may be
    # gone already. Where a run has begun to change a fence that was proven, volumes have moved.
    if ledger.phase == "releasing" or not ledger.was_proven:
        return []
    name = ledger.node
    expired, missing = _gone(ledger, state.now, ceph)
    severity, step = _unfenced_step(name, state.ready(name))
    found = []
    if expired:
        what = (
            f"the fence of {name} has expired by itself "
            f"({', '.join(entry.entry for entry in expired[:3])} at {expired[0].until})"
        )
        found.append(_report("STOR-17", severity, name, what, step, **evidence))
    if missing:
        what = f"the ledger of {name} has {', '.join(missing[:3])}, but Ceph's blocklist does not"
        why = "it was removed, but not by a release"
        if ledger.phase == "intended":
            why = "it was removed, or a run ended before it was added"
        step = f"{why}. {step[0].upper()}{step[1:]}"
        found.append(_report("STOR-17", severity, name, what, step, **evidence))
    return found


def _gone(ledger: Ledger, now: datetime, ceph: Reading | None) -> tuple[list[Entry], list[str]]:
    """The entries that have expired, and the entries and addresses that Ceph does not block.

    Without a reading of the ledger's own Ceph only the noted ends count.
    """
    # An entry that Ceph still has counts, whatever end the ledger noted.
    known = ceph if ceph and (not ledger.fsid or ceph.fsid == ledger.fsid) else None
    # Ceph itself knows best: an operator may have renewed an entry.
    absent = [entry for entry in ledger.entries if known is None or not known.blocks(entry.entry)]
    expired = [entry for entry in absent if _is_over(entry, now)]
    if known is None:
        return expired, []
    missing = [entry.entry for entry in absent if entry not in expired]
    if ledger.network_fences:
        missing += [address for address in ledger.addresses if not known.covering(address)]
    return expired, missing


def _unfenced_step(name: str, ready: bool) -> tuple[str, str]:
    """How severe it is that a fence is gone, and what to do about it."""
    # With the fence gone while the volume is attached elsewhere, a node that comes back is a second
    # writer at once.
    if ready:
        return "major", (
            "it is Ready, so clients from before may write again: release it at once, after a "
            f"reboot if its bootID is the same ({_give_back(name)})"
        )
    return "critical", (
        "its host may write again while another node has the volume: switch it off, or "
        f"fence it again at once ({_fail_over(name)})"
    )


def _is_over(entry: Entry, now: datetime) -> bool:
    # A time without its zone cannot be compared, and counts as not over: Ceph's own list decides
    # then.
    until = parse_time(entry.until)
    return until is not None and until.tzinfo is not None and until <= now


def _unreadable(node: str, why: str) -> Finding:
    # A ledger that cannot be read must not count as none: the node may be fenced.
    reason = (
        "compare it with Ceph's blocklist, and repair or delete it: until then nothing is "
        "done to this node"
    )
    return _report(
        "STOR-17",
        "major",
        node,
        f"the ledger of {node} cannot be read",
        reason,
        problem=why,
    )


def _copies(node: str, unlike: Unlike, state: FenceAuditState) -> Finding:
    # How much it matters depends on who may have written what: a note alone proves nothing, a note
    # that is newer than the ConfigMap contradicts the one copy that counts.
    again = _give_back(node) if state.ready(node) else _fail_over(node)
    severity = "minor"
    if unlike.how == ELSEWHERE:
        severity, reason = "major", doubt_of(unlike.where)
    elif unlike.how == NOTHING:
        severity, reason = "major", LONE
    elif unlike.how == CONTRADICTED:
        severity, reason = "major", _CONTRADICTED
    else:
        reason = (
            "unless a run is at work right now, one was killed, the copy was changed by hand, or "
            "the Node has no room for it (256 KiB of annotations in all). "
            f"Both are written again by {again}"
        )
    return _report(
        "STOR-17",
        severity,
        node,
        f"the ledger of {node} {unlike.said}",
        reason,
        problem=unlike.said,
    )


def _fail_over(node: str) -> str:
    return untrusted.shown_command(f"{FAIL_OVER} -e target={{node}}", node=node)


def _give_back(node: str) -> str:
    return untrusted.shown_command(f"{RELEASE} -e target={{node}}", node=node)


def _is_out_of_service(host: HostRecord) -> bool:
    # Kubernetes asks for the key alone (TaintNodeOutOfService), whatever value or effect it has.
    return any(key == OUT_OF_SERVICE for key, _value, _effect in host.taints)


def _stray_taints(state: FenceAuditState) -> list[Finding]:
    # The taint stays until a person removes it (KEP-2268), and while it is there and the node is
    # not Ready, the pod garbage collector deletes every terminating pod of the node by force
    # (gcTerminating of pkg/controller/podgc/gc_controller.go).
    return [
        _report(
            "STOR-17",
            "major",
            name,
            f"{name} is Ready, and still carries the taint {OUT_OF_SERVICE}",
            "there is no ledger, so whoever set it has to remove it, once the node was rebooted: "
            "every pod and volume that comes to it is "
            "taken off at once. "
            + untrusted.shown_command(f"kubectl taint node {{node}} {OUT_OF_SERVICE}-", node=name),
            taints=[f"{key}={value}:{effect}" for key, value, effect in host.taints],
            boot_id=host.boot_id,
        )
        for name, host in state.hosts.items()
        if name not in state.ledgers and state.ready(name) and _is_out_of_service(host)
    ]


def _stray_fences(state: FenceAuditState) -> list[Finding]:
    """NetworkFences that are in force for a node that is back, and that its ledger does
    not name.
    """
    # With the node Ready its pods fail on each write, with no word about a fence in their logs.
    owners = {
        fence.name: ledger.node
        for ledger in state.ledgers.values()
        for fence in ledger.network_fences
    }
    found = []
    homes = _homes_of(state.hosts.values())
    for fence in state.fences or ():
        covered = _covered_nodes(fence, homes) if fence.state == FENCED else []
        nodes = [name for name in covered if state.ready(name) and name != owners.get(fence.name)]
        if nodes:
            found.append(
                _stray_fence(fence, nodes, owners.get(fence.name, ""), _lost_of(covered, state))
            )
    return found


def _covered_nodes(fence: NetworkFence, homes: Mapping[str, Iterable[str]]) -> list[str]:
    # Single addresses are looked up, since a big cluster has thousands of fences and of nodes. Only
    # a range of several is compared with all.
    ranges = networks(fence.cidrs)
    covered = [str(network.network_address) for network in ranges if network.num_addresses == 1]
    if len(covered) < len(ranges):
        covered = list(filter(coverage(fence), homes))
    return sorted({name for address in covered for name in homes.get(address, ())})


def _lost_of(nodes: Iterable[str], state: FenceAuditState) -> list[str]:
    # Not Ready is enough to leave a fence alone, long before a node counts as lost.
    return sorted(name for name in nodes if not state.ready(name))


def _stray_fence(fence: NetworkFence, nodes: list[str], owner: str, lost: list[str]) -> Finding:
    """A NetworkFence that covers nodes that are Ready."""
    # Three cases: a fence that is known, one that may protect data, and one that is only forgotten.
    # Each kubelet writes its own addresses. The advice must not take the fence off a lost node
    # because another node claims its address.
    if owner:
        reason = (
            f"it is the fence of {owner}, by its ledger, and stays until {owner} is released. If "
            f"{nodes[0]} really has an address in it, volumes of this Ceph fail there"
        )
    elif lost:
        reason = _MAY_BE_OF.format(", ".join(lost[:3]), nodes[0])
    else:
        reason = (
            f"no ledger names it, so {_IF_ITS_OWN}, whoever set it has to take it back, once the "
            "node was rebooted: patch spec.fenceState to Unfenced and wait for the message "
            f"{MESSAGES[UNFENCED]!r}. Do not delete it: that leaves Ceph's blocklist as it is"
        )
    return _report(
        "STOR-17",
        "major",
        fence.name,
        f"NetworkFence {fence.name} is Fenced and covers {', '.join(nodes[:3])}, which is Ready",
        reason,
        kind="NetworkFence",
        node=nodes[0],
        nodes=nodes,
        cidrs=list(fence.cidrs),
        status=fence.status,
    )


def _stray_entries(state: FenceAuditState, ceph: Reading) -> list[Finding]:
    """Entries for whole addresses or ranges that fence a node, and that no ledger or NetworkFence
    names.
    """
    # Ceph itself makes entries for single clients: of a manager or MDS that was replaced, and of
    # the dead owner of a lock (rbd_try_acquire_lock of drivers/block/rbd.c;
    # src/librbd/managed_lock/BreakRequest.cc).
    homes, noted = _homes(state), _noted_ranges(state)
    found = []
    for entry in ceph.blocklist:
        if entry.kind == "client" or plain(entry.spelling) in noted:
            continue
        nodes = sorted(_covered(entry, homes))
        if nodes:
            found.append(_stray_entry(entry, nodes, state))
    return found


def _noted_ranges(state: FenceAuditState) -> set[str]:
    """Addresses and ranges that a ledger names, or a NetworkFence in force."""
    # Compared as plain addresses and ranges, since Ceph, ceph-csi and users spell them differently.
    noted = {plain(entry.entry) for ledger in state.ledgers.values() for entry in ledger.entries}
    objects = [fence.cidrs for ledger in state.ledgers.values() for fence in ledger.network_fences]
    objects += [fence.cidrs for fence in state.fences or () if fence.state == FENCED]
    return noted | {plain(cidr) for cidrs in objects for cidr in cidrs}


def _stray_entry(entry: Blocked, nodes: list[str], state: FenceAuditState) -> Finding:
    # Only for a node that is Ready may the entry be a mistake. Of a node that is not it may be the
    # one thing that protects the data. No command is offered: whose the address is the kubelets
    # say, and it may be the fence of a host that is no node.
    ready, lost = [node for node in nodes if state.ready(node)], _lost_of(nodes, state)
    if ready and lost:
        reason = _MAY_BE_OF.format(", ".join(lost[:3]), ready[0])
    elif ready:
        reason = (
            f"{_IF_ITS_OWN}, whoever set it has to remove it from Ceph's blocklist, once the node "
            "was rebooted. Until then volumes of this Ceph fail there"
        )
    else:
        reason = (
            "perhaps the node was fenced by hand. The entry stays until whoever set it removes it "
            "from Ceph's blocklist"
        )
    return _report(
        "STOR-17",
        "major",
        entry.spelling,
        f"Ceph's blocklist has {entry.spelling} of {', '.join(nodes[:3])}, and no ledger knows it",
        reason,
        kind="BlocklistEntry",
        node=nodes[0],
        entry=entry.entry,
        until=entry.until,
        nodes=nodes,
    )


def _homes(state: FenceAuditState) -> dict[str, set[str]]:
    """By address, the nodes that have it, or were fenced by it."""
    # Of a fenced node its ledger counts too: its addresses may have changed since.
    homes = _homes_of(state.hosts.values())
    for ledger in state.ledgers.values():
        for address in ledger.addresses:
            homes[address].add(ledger.node)
    return homes


def _homes_of(hosts: Iterable[HostRecord]) -> dict[str, set[str]]:
    """By address, the nodes that say that they have it."""
    homes: dict[str, set[str]] = defaultdict(set)
    for host in hosts:
        for address in host.addresses:
            homes[address].add(host.node.name)
    return homes


def _covered(entry: Blocked, homes: Mapping[str, Iterable[str]]) -> set[str]:
    # An entry for an address is looked up, which a cluster of thousands of nodes needs; a range is
    # compared with all.
    if entry.kind == "address":
        return set(homes.get(entry.address, ()))
    network = ip_network(entry.address, strict=False)
    return {
        name for address, names in homes.items() if ip_address(address) in network for name in names
    }
