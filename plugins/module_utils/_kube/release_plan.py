# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.

"""Whether a fenced node may be given back, and what then has to be taken back. Pure: no I/O here.

Without its fence, a client that has lived through it goes on writing where it stopped: the kernel's, and every one without exclusive-lock.
So a fence is only taken back once nothing can be left of the old clients: another boot, or what the node itself shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from ansible_collections.storage_ops.runbooks.plugins.module_utils._engine import Action, Finding, Plan, StorageOpsError
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.ceph_reading import Reading, Watcher
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import path
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.fence_ledger import FenceObject, Ledger, config_map_path
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.fence_state import HostRecord
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.network_fence import UNFENCED, NetworkFence, command
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import Pod, age

RUNBOOK = "storage_ops.runbooks.release_fenced_node"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
# The taint that volume_failover sets. One with another value or effect is somebody else's.
TAINT = (OUT_OF_SERVICE, "nodeshutdown", "NoExecute")
# What was read of Ceph longer ago (seconds) is no evidence any more.
_MAX_AGE = 600.0

_REBOOT = (
    "Reboot the node; or, if only its kubelet had died, stop what still uses the volumes there and have the node itself show that no "
    "client is left (ceph_client_info, option clients)"
)


class Client(NamedTuple):
    """A client of Ceph that a node shows. ``entry``: its address and nonce as the blocklist has it, empty where nobody can tell."""

    kind: str
    device: str
    image: str
    entry: str
    fsid: str

    @property
    def title(self) -> str:
        """For the eye."""
        return " ".join(filter(None, (self.kind, self.device, self.image, self.entry)))


class Clients(NamedTuple):
    """What a node itself shows, in the boot of that id. ``problem``: why it may not be all of it."""

    boot_id: str
    clients: tuple[Client, ...]
    problem: str


class Options(NamedTuple):
    """What the user gave. ``check``: in check mode, so what the steps before this one do has not been done."""

    node: str
    state: str
    clients: Clients | None = None
    ceph: Reading | None = None
    check: bool = False
    namespace: str = "kube-system"


class State(NamedTuple):
    """What was read. ``fences``: None where there is no such resource; ``pods``: those on the node that use a volume of the fence.

    ``busy``: who else works at the node; only in check mode, since otherwise the Lease tells.
    """

    now: datetime
    host: HostRecord | None
    ledger: Ledger | None
    fences: tuple[NetworkFence, ...] | None = None
    pods: tuple[Pod, ...] = ()
    busy: str = ""


class Subject(NamedTuple):
    """What an action works on."""

    ledger: Ledger
    fence: NetworkFence | None = None


def read_clients(data: Mapping[str, Any]) -> Clients:
    """What ceph_client_info returned, checked: with a part missing, nobody may conclude that there is no client."""
    try:
        return Clients(
            _text(data["boot_id"]).strip().lower(),
            tuple(
                Client(
                    _text(item["kind"]),
                    _text(item.get("device") or ""),
                    "/".join(filter(None, (_text(item.get("pool") or ""), _text(item.get("image") or "")))),
                    _text(item.get("entry") or ""),
                    _text(item.get("fsid") or ""),
                )
                for item in data["clients"]
            ),
            _text(data["problem"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise StorageOpsError(
            f"clients is not what ceph_client_info returns as clients ({type(error).__name__}: {error}); give all of it: boot_id, clients "
            "and problem"
        ) from None


def plan(state: State, options: Options) -> Plan:
    """Decide. No ledger: nothing to take back."""
    if state.ledger is None:
        return Plan([_stray_taint(state.host)] if state.host and has_taint(state.host) else [])
    ledger, host = state.ledger, state.host
    finding = Finding(
        "STOR-17",
        "major",
        "Node",
        options.node,
        options.node,
        f"{options.node} is fenced (method {ledger.method}, phase {ledger.phase}) since {ledger.at}",
        "repair",
        "",
        RUNBOOK,
        _evidence(state, ledger),
        named=True,
    )
    if state.busy:
        finding.refuse(f"{state.busy}. Wait for it, and run again")
    elif host is None or host.node.ready != "True":
        finding.refuse(_not_ready(state, options.node))
    else:
        {"releasing": _plan_releasing, "unfenced": _plan_unfenced, "released": _plan_released}[options.state](
            finding, state, options, ledger, host
        )
    return Plan([finding] if finding.verdict != "repair" or finding.repair else [])


def has_taint(host: HostRecord) -> bool:
    """It carries exactly the taint that we set."""
    return TAINT in host.taints


def rebooted(host: HostRecord, ledger: Ledger) -> bool:
    """Both boots are known, and they are two. Another Node object says nothing: a kubelet can register again without a reboot."""
    return bool(host.boot_id and ledger.boot_id) and host.boot_id.lower() != ledger.boot_id.lower()


def ours(ledger: Ledger) -> tuple[FenceObject, ...]:
    """The NetworkFences that we have fenced. One that was Fenced before is somebody else's to take back."""
    return tuple(fence for fence in ledger.network_fences if fence.ours)


def _not_ready(state: State, node: str) -> str:
    host = state.host
    if host is None:
        return (
            f"there is no node {node}: its host may still run, so the fence stays. Bring the node back; if it never comes back, switch its "
            "host off for good, and remove the fence by hand before its address is given to another one"
        )
    return (
        f"{node} is not Ready (Ready={host.node.ready} for {age(state.now, host.node.ready_since):.0f} s): its host may still run, and "
        "only the fence keeps it from writing. Bring the node back first"
    )


# releasing


def _plan_releasing(finding: Finding, state: State, options: Options, ledger: Ledger, host: HostRecord) -> None:
    doubts, proof = judge_clients(state, options, ledger, host)
    finding.evidence["old_clients"] = doubts or [proof]
    if doubts:
        finding.refuse(*doubts)
        return
    finding.reason = f"{host.node.name} is Ready, and {proof}"
    # A run that was killed after this one may have left the phase, but the Lease is to be ours.
    where = config_map_path(ledger.node, options.namespace)
    finding.repair = [Action("mark_release", host.node.name, ["PATCH", where, "phase=releasing"], Subject(ledger))]


def judge_clients(state: State, options: Options, ledger: Ledger, host: HostRecord) -> tuple[list[str], str]:
    """Why clients from before the fence may be left, or else what proves that there are none."""
    node = host.node.name
    if rebooted(host, ledger):
        return [], f"it was rebooted since: its bootID was {ledger.boot_id} and is {host.boot_id}"
    if not host.boot_id:
        return [f"{node} reports no bootID, so nobody can tell which boot it is in. Is its kubelet well?"], ""
    same = (
        f"{node} was not rebooted since it was fenced (bootID {host.boot_id})"
        if ledger.boot_id
        else f"nobody knows the bootID that {node} was fenced in"
    )
    clients = options.clients
    if clients is None:
        return [f"{same}, and nobody has looked on the node for clients of before, which would go on writing. {_REBOOT}"], ""
    doubts = []
    if clients.problem:
        doubts.append(f"{same}, and the node could not be read: {clients.problem}. {_REBOOT}")
    if clients.boot_id != host.boot_id.lower():
        doubts.append(
            f"{same}, and clients was read in another boot ({clients.boot_id or 'of no id'}): was it read on another host, or before a "
            "reboot? Read it again on this node"
        )
    held = [client.title for client in clients.clients if _is_fenced(client, ledger)]
    if held:
        doubts.append(
            f"{same}, and it still shows {len(held)} clients that were fenced ({', '.join(held[:3])}), which would go on writing. {_REBOOT}"
        )
    watchers = _survivors(options.ceph, ledger)
    if watchers:
        doubts.append(f"{same}, and Ceph still sees {', '.join(watchers[:3])}, so not all of its clients are gone. {_REBOOT}")
    return doubts, f"{same}, but itself shows no client of the fenced storage"


def _is_fenced(client: Client, ledger: Ledger) -> bool:
    """The fence is for this client, as far as anybody can tell."""
    if client.fsid and ledger.fsid and client.fsid != ledger.fsid:
        return False
    single = _single_clients(ledger)
    return not single or not client.entry or client.entry in single


def _survivors(ceph: Reading | None, ledger: Ledger) -> list[str]:
    """Watchers from what is fenced."""
    if ceph is None or ceph.fsid != ledger.fsid:
        return []
    return [f"a watcher {watcher.entry} of {image.title}" for image in ceph.images for watcher in image.watchers if is_old(watcher, ledger)]


def is_old(watcher: Watcher, ledger: Ledger) -> bool:
    """The watcher has an address, or is the client, that the ledger fences."""
    single = _single_clients(ledger)
    return watcher.entry in single if single else watcher.address in ledger.addresses


def _single_clients(ledger: Ledger) -> set[str]:
    """The clients that are fenced where nothing else at their address is; empty where whole addresses are."""
    whole = ledger.network_fences or any(entry.kind != "client" for entry in ledger.entries)
    return set() if whole else {entry.entry for entry in ledger.entries}


# unfenced


def _plan_unfenced(finding: Finding, state: State, options: Options, ledger: Ledger, host: HostRecord) -> None:
    """Patch ours to Unfenced; deleting one would leave its fence."""
    if not _begun(finding, ledger):
        return
    for planned in ours(ledger):
        fence = _current(state, planned)
        if fence is None and not _proven_gone(state, options, ledger, planned):
            finding.refuse(_lost_fence(planned))
            return
        if fence and not _is_unfenced(fence):
            finding.repair.append(Action("unfence_network", fence.name, command(fence, UNFENCED), Subject(ledger, fence)))
    finding.reason = f"{host.node.name} is Ready, and its release has begun"


def _current(state: State, planned: FenceObject) -> NetworkFence | None:
    """The NetworkFence that we have fenced; or one made anew that is Unfenced, whose controller takes the fence back too."""
    found = (fence for fence in state.fences or () if fence.name == planned.name)
    return next((fence for fence in found if fence.uid == planned.uid or fence.state == UNFENCED), None)


def _is_unfenced(fence: NetworkFence) -> bool:
    return fence.state == UNFENCED and fence.settled


def _lost_fence(planned: FenceObject) -> str:
    return (
        f"NetworkFence {planned.name} (uid {planned.uid}), which was Fenced, is gone, and deleting it does not unfence. Make it anew with "
        f"{', '.join(planned.cidrs)} and fenceState Unfenced, or remove the ranges from Ceph's blocklist and give the reading (option ceph)"
    )


def _proven_gone(state: State, options: Options, ledger: Ledger, planned: FenceObject) -> bool:
    """Ceph itself shows that the ranges of a NetworkFence are in its blocklist no more."""
    ceph = options.ceph
    return ceph is not None and not _unfit(ceph, state, ledger) and not any(ceph.blocks(cidr) for cidr in planned.cidrs)


# released


def _plan_released(finding: Finding, state: State, options: Options, ledger: Ledger, host: HostRecord) -> None:
    if not _begun(finding, ledger):
        return
    doubts = [] if options.check else [*_still_blocked(state, options, ledger), *_still_fenced(state, options, ledger)]
    if doubts:
        finding.refuse(*doubts)
        return
    node = host.node
    where = path("v1", "nodes", node.name)
    # What another Node object carries was not set by us.
    same = node.uid == ledger.node_uid
    if ledger.tainted and same and has_taint(host):
        gone = f"-{TAINT[0]}={TAINT[1]}:{TAINT[2]}"
        finding.repair.append(
            Action("untaint_node", node.name, ["PATCH", where, f"uid={node.uid}", f"spec.taints={gone}"], Subject(ledger))
        )
    if ledger.cordoned and same and node.unschedulable:
        command_ = ["PATCH", where, f"uid={node.uid}", "spec.unschedulable=null"]
        finding.repair.append(Action("uncordon_node", node.name, command_, Subject(ledger)))
    finding.repair.append(
        Action("remove_fence_ledger", node.name, ["DELETE", config_map_path(ledger.node, options.namespace)], Subject(ledger))
    )
    finding.reason = "the fence is gone" if not options.check else "the steps before take the fence back"
    left = _foreign(ledger)
    if left:
        finding.reason += (
            f"; {', '.join(left)} were there before it, so they stay, and the node is fenced by them as long as they are there"
        )


def _begun(finding: Finding, ledger: Ledger) -> bool:
    if ledger.phase != "releasing":
        finding.refuse(f"the release has not begun (the ledger says {ledger.phase}): call it with state releasing first")
    return ledger.phase == "releasing"


def _still_blocked(state: State, options: Options, ledger: Ledger) -> list[str]:
    """Why entries of ours may still be in the blocklist."""
    wanted = [entry for entry in ledger.entries if entry.ours]
    ceph = options.ceph
    if ceph is None:
        needed = [entry.entry for entry in wanted if ledger.method == "ceph"]
        return (
            [f"nobody has shown that {', '.join(needed)} left Ceph's blocklist: read it with rbd_watcher_info (option ceph)"]
            if needed
            else []
        )
    unfit = _unfit(ceph, state, ledger)
    if unfit:
        return [unfit]
    left = [entry.entry for entry in wanted if ceph.blocks(entry.entry)]
    left += [cidr for fence in ours(ledger) for cidr in fence.cidrs if ceph.blocks(cidr)]
    return (
        [f"{', '.join(dict.fromkeys(left))} is still in Ceph's blocklist: remove it (ceph_blocklist, state absent), and read it again"]
        if left
        else []
    )


def _still_fenced(state: State, options: Options, ledger: Ledger) -> list[str]:
    """Why NetworkFences of ours may still be in force."""
    doubts = []
    for planned in ours(ledger):
        fence = _current(state, planned)
        if fence is None and not _proven_gone(state, options, ledger, planned):
            doubts.append(_lost_fence(planned))
        elif fence and not _is_unfenced(fence):
            doubts.append(f"NetworkFence {fence.name} is {fence.state} ({fence.status}): call it with state unfenced first")
    return doubts


def _unfit(ceph: Reading, state: State, ledger: Ledger) -> str:
    """Why a reading says nothing about this fence now."""
    if ledger.fsid and ceph.fsid != ledger.fsid:
        return f"the reading is of Ceph cluster {ceph.fsid}, and the fence is in {ledger.fsid}: read it from the right one"
    if age(state.now, ceph.read_at) > _MAX_AGE:
        return f"Ceph was read {age(state.now, ceph.read_at):.0f} s ago (at {ceph.read_at:%H:%M:%S}Z): read it again"
    return ""


# evidence


def _foreign(ledger: Ledger) -> list[str]:
    """What fenced the node before us."""
    return [entry.entry for entry in ledger.entries if not entry.ours] + [
        f"NetworkFence {fence.name}" for fence in ledger.network_fences if not fence.ours
    ]


def _evidence(state: State, ledger: Ledger) -> dict[str, Any]:
    host = state.host
    evidence: dict[str, Any] = {
        "ready": host.node.ready if host else "no such node",
        "boot_id": host.boot_id if host else "",
        "boot_id_when_fenced": ledger.boot_id,
        "method": ledger.method,
        "phase": ledger.phase,
        "entries": [f"{entry.entry}{'' if entry.ours else ' (was there before)'}" for entry in ledger.entries],
        "volumes": list(ledger.volumes),
        "fenced_by": ledger.by,
    }
    if ledger.network_fences:
        evidence["network_fences"] = [f"{fence.name}{'' if fence.ours else ' (was Fenced before)'}" for fence in ledger.network_fences]
    if state.pods:
        evidence["pods"] = [f"{pod.title} ({pod.phase})" for pod in state.pods]
    return evidence


def _stray_taint(host: HostRecord) -> Finding:
    name = host.node.name
    return Finding(
        "STOR-17",
        "major",
        "Node",
        name,
        name,
        f"{name} is not fenced by this collection, but carries the taint {OUT_OF_SERVICE}",
        "report",
        f"whoever set it has to remove it, once the node was rebooted: kubectl taint node {name} {OUT_OF_SERVICE}-",
        RUNBOOK,
        {"taints": [f"{key}={value}:{effect}" for key, value, effect in host.taints], "ready": host.node.ready, "boot_id": host.boot_id},
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
