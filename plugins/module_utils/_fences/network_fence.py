# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NetworkFences of CSI-Addons: read them, flip one, and await what its controller says.

The controller keeps one result and one message for an object, those of the operation that ended
last, and says nothing about which generation they belong to. So only the message tells which
operation succeeded, and it is compared for equality: "unfencing operation successful" contains the
other one. Nothing here creates or deletes a NetworkFence.
"""

from __future__ import annotations

import contextlib
import functools
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Any, Callable, NamedTuple, Protocol

from .._core.engine import ActionFailed, NotStarted
from .._core.errors import StorageOpsError
from .._core.ip import Network, exact_network, is_mapped, normal_network
from .._core.untrusted import few
from .._kube.changing import again
from .._kube.client import Cluster, Conflict, KubeError, NotFound, Object, path
from .._kube.objects import parse_time

# kubernetes-csi-addons api/csiaddons/v1alpha1: NetworkFence and NetworkFenceClass have no
# namespace.
GROUP = "csiaddons.openshift.io/v1alpha1"
FENCES = path(GROUP, "networkfences")
CLASSES = path(GROUP, "networkfenceclasses")
FENCED, UNFENCED = "Fenced", "Unfenced"
SUCCEEDED, FAILED = "Succeeded", "Failed"
# What the controller says once it has done one or the other.
# FenceOperationSuccessfulMessage and UnFenceOperationSuccessfulMessage of
# api/csiaddons/v1alpha1/networkfence_types.go, compared for equality.
MESSAGES = {FENCED: "fencing operation successful", UNFENCED: "unfencing operation successful"}

# How the addresses of a prepared NetworkFence are known: OPTION (the user gave them), DRIVER (its
# CSIAddonsNode reports them), or INTERNAL (the node's InternalIP, which Ceph may never see).
# Only the first makes them known. The driver on a node answers GetFenceClients (csi-addons/spec
# fence/fence.proto) and the kubelet writes the InternalIP, so root on the node chooses both.
ADDRESSES_FROM = "runbooks.storage-ops/addresses-from"
OPTION, DRIVER, INTERNAL = "option", "driver", "node"

# Under which a change is made.
Hold = Callable[[], AbstractContextManager[None]]

# Seconds between two looks at the status.
_PAUSE = 0.5
# A failure is tried again by the controller: about ten times in so many seconds, and then ever more
# rarely.
# controller-runtime's default rate limiter doubles the pause from 5 ms on (client-go
# util/workqueue, DefaultTypedControllerRateLimiter).
_FAILED_SECONDS = 10.0


class NetworkFence(NamedTuple):
    """A NetworkFence. ``driver`` and ``cluster_id`` come from its class where it has one, and are
    empty when that class is missing.

    ``state``: what its spec asks for; ``result`` and ``message``: how the operation that ended last
    went, empty before any;
    ``addresses_from``: see ADDRESSES_FROM, empty for one that network_fence_prepare has not made.
    """

    name: str
    uid: str
    driver: str
    cluster_id: str
    cidrs: tuple[str, ...]
    state: str
    result: str
    message: str
    created: datetime | None
    deleted: datetime | None
    class_name: str
    addresses_from: str = ""

    @property
    def settled(self) -> bool:
        """The controller has done what the spec asks for, and says so."""
        # A controller that was restarted reconciles every object, so the message of an operation
        # may be written again at any time, and by a reconciler that has read an older spec.
        return (
            not self.deleted
            and self.result == SUCCEEDED
            and self.message == MESSAGES.get(self.state)
        )

    @property
    def in_force(self) -> bool:
        """It is Fenced, and its controller says that it has done that."""
        return self.state == FENCED and self.settled

    @property
    def by_user(self) -> bool:
        """The user gave its addresses."""
        return self.addresses_from == OPTION

    @property
    def by_node(self) -> bool:
        """Its addresses are what the node says of itself."""
        return self.addresses_from in (DRIVER, INTERNAL)

    @property
    def status(self) -> str:
        """What its status says, as a sentence."""
        return f"{self.result}: {self.message}" if self.result or self.message else "nothing yet"


def list_fences(cluster: Cluster) -> tuple[NetworkFence, ...] | None:
    """Every NetworkFence as etcd has it now; None where the cluster knows no such resource, as its
    API server itself says.

    Raises KubeError, also for a missing right.
    """
    # Without CSI-Addons there is nothing to fence by, which is no error. An error that only looks
    # like it must not be taken for that: a NetworkFence that is overlooked may undo the fence.
    groups = (cluster.get("/apis") or {}).get("groups")
    if groups is None:
        raise StorageOpsError(
            "the API server does not say which groups of resources it serves (/apis), so "
            "NetworkFences cannot be ruled out",
            code="api_error",
        )
    if not any(
        version.get("groupVersion") == GROUP
        for group in groups
        for version in group.get("versions") or []
    ):
        return None
    try:
        items = cluster.list(FENCES, lambda item: item)
    except KubeError as error:
        if error.status == 404 and not _serves(cluster, "networkfences"):
            return None
        raise
    classes = (
        read_classes(cluster)
        if any(item["spec"].get("networkFenceClassName") for item in items)
        else {}
    )
    return tuple(sorted(pick_fence(item, classes) for item in items))


def read_classes(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """The spec of every NetworkFenceClass, by name."""
    # Driver, clusterID and secret of a NetworkFence may be in its class alone.
    return dict(
        cluster.list(CLASSES, lambda item: (item["metadata"]["name"], item.get("spec") or {}))
    )


def pick_fence(item: dict[str, Any], classes: Mapping[str, dict[str, Any]]) -> NetworkFence:
    """The record of a NetworkFence.

    A class takes precedence over what the object says itself, as it does for the controller.
    """
    meta, spec, status = item["metadata"], item["spec"], item.get("status") or {}
    class_name = spec.get("networkFenceClassName") or ""
    driver, cluster_id = _storage_of(spec, classes.get(class_name, {}))
    return NetworkFence(
        meta["name"],
        meta["uid"],
        driver,
        cluster_id,
        tuple(spec.get("cidrs") or ()),
        # The resource's own default, should an API server ever not have filled it in
        # (api/csiaddons/v1alpha1/networkfence_types.go, FenceState).
        spec.get("fenceState") or FENCED,
        status.get("result") or "",
        status.get("message") or "",
        parse_time(meta.get("creationTimestamp")),
        parse_time(meta.get("deletionTimestamp")),
        class_name,
        (meta.get("annotations") or {}).get(ADDRESSES_FROM) or "",
    )


def _storage_of(spec: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[str, str]:
    """Driver and clusterID of a NetworkFence; ``settings``: the spec of its class, if it is there.

    Both are empty where it names a class that is missing.
    """
    own = spec.get("parameters") or {}
    if not spec.get("networkFenceClassName"):
        return spec.get("driver") or "", own.get("clusterID") or ""
    if not settings:
        return "", ""
    # processFencingRequest copies the parameters of the class over those of the object
    # (internal/controller/csiaddons/networkfence_controller.go).
    parameters = {**own, **(settings.get("parameters") or {})}
    return settings.get("provisioner") or "", parameters.get("clusterID") or ""


class HasRanges(Protocol):
    """A NetworkFence, or the note of one in a ledger."""

    @property
    def cidrs(self) -> tuple[str, ...]:
        """As its spec has them."""


def covered(fence: HasRanges, addresses: Iterable[str]) -> list[str]:
    """Those of the addresses that one of its ranges contains."""
    is_covered = coverage(fence)
    return [address for address in addresses if is_covered(address)]


def coverage(fence: HasRanges) -> Callable[[str], bool]:
    """Whether one of its ranges contains an address; made once for many addresses.

    Root on a node can have thousands of single addresses in its NetworkFence, so these are not
    compared one by one, nor read again for each address.
    """
    found = networks(fence.cidrs)
    single = {network.network_address for network in found if network.num_addresses == 1}
    wide = [network for network in found if network.num_addresses > 1]

    def is_covered(address: str) -> bool:
        wanted = normal_network(address).network_address
        return wanted in single or any(wanted in network for network in wide)

    return is_covered


def may_act_on(fence: NetworkFence, drivers: set[str], cluster_ids: set[str]) -> bool:
    """It may act on the Ceph of volumes with these drivers and clusterIDs.

    Two clusterIDs may stand for one Ceph, and two drivers too, so only where both are known and
    others it is another storage's. Once nothing is attached no driver is known, and the clusterID
    alone tells.
    """
    # A NetworkFence names its Ceph by a clusterID of the driver's configuration, and nothing in the
    # cluster tells which clusterIDs are one Ceph.
    driver_fits = not fence.driver or fence.driver in drivers
    return (
        driver_fits
        or not fence.cluster_id
        or not cluster_ids
        or "" in cluster_ids
        or fence.cluster_id in cluster_ids
    )


@functools.cache
def networks(cidrs: tuple[str, ...]) -> tuple[Network, ...]:
    """The ranges of a NetworkFence.

    CSI-Addons lets any text pass, and what is none is left out; ``10.0.0.1:0/32`` is Rook's
    spelling.
    """
    # CSI-Addons checks nothing (cidrs is a list of strings), and ceph-csi hands each to "ceph osd
    # blocklist range add" as it is (AddNetworkFence of
    # internal/csi-addons/networkfence/fencing.go).
    found: list[Network] = []
    for cidr in cidrs:
        with contextlib.suppress(ValueError):
            found.append(normal_network(re.sub(r"^([0-9.]+):0/", r"\1/", cidr)))
    return tuple(found)


def mapped(cidrs: tuple[str, ...]) -> list[str]:
    """The ranges of IPv4-mapped IPv6 addresses."""
    # A Ceph with ranges gets them as they are, and blocks no IPv4 client then. For one without,
    # ceph-csi makes IPv4 addresses of them (AddNetworkFence and getIPRange of
    # internal/csi-addons/networkfence/fencing.go).
    found = []
    for cidr in cidrs:
        with contextlib.suppress(ValueError):
            if is_mapped(exact_network(cidr)):
                found.append(cidr)
    return found


def undecidable(fence: NetworkFence) -> str:
    """Why the message of this NetworkFence could not prove a fencing, as a sentence; empty when it
    could.

    An Unfenced one must say that it is unfenced. With the message of a fencing, this CSI-Addons has
    one message for both. With that, with a failure or with none, an unfencing is still to come or
    under way, and may land after our fencing.
    """
    # The controller gives up its call of the driver after a timeout (unfenceClusterNetwork of
    # internal/controller/csiaddons/networkfence_controller.go), and the driver may end it later.
    if fence.state != UNFENCED or fence.settled:
        return ""
    why = "its unfencing is still to come or under way, and may land after a fencing"
    if fence.message == MESSAGES[FENCED]:
        why += (
            "; or this CSI-Addons has one message for both operations, "
            "so nothing could prove the fence"
        )
    return (
        f"NetworkFence {fence.name} is Unfenced, but its status says {fence.status!r}: {why}. Wait "
        f"until it says {MESSAGES[UNFENCED]!r}; if it never does, look at the log of the "
        "CSI-Addons controller, or delete this NetworkFence while "
        "it is Unfenced and use method ceph"
    )


def fence(
    cluster: Cluster,
    fence: NetworkFence,
    deadline_seconds: float,
    sleep: Callable[[float], None] = time.sleep,
    hold: Hold = nullcontext,
) -> NetworkFence:
    """Patch it to Fenced unless it is, and wait until the controller says that it is done.

    ``hold``: what holds while it is judged and patched, but not during the wait.

    NotStarted: nothing was changed, since its message could prove nothing, or it is gone.
    ActionFailed: it is Fenced in its spec, but the controller says that it failed, or something
    else, or nothing.
    """
    return _flip(cluster, fence, FENCED, deadline_seconds, sleep, hold)


def unfence(
    cluster: Cluster,
    fence: NetworkFence,
    deadline_seconds: float,
    sleep: Callable[[float], None] = time.sleep,
    hold: Hold = nullcontext,
) -> NetworkFence:
    """Patch it to Unfenced unless it is, and wait until the controller says that it is done;
    ``hold`` and errors as with ``fence``.

    One whose fencing was not answered yet is not touched either (NotStarted): the old message would
    be taken for the proof.
    """
    return _flip(cluster, fence, UNFENCED, deadline_seconds, sleep, hold)


def rehearse(cluster: Cluster, fence: NetworkFence, state: str) -> None:
    """Let the API server try the patch without doing it."""
    # dryRun=All runs admission and validation and stores nothing (Kubernetes API concepts,
    # "Dry-run").
    if fence.state != state:
        _patch(cluster, fence, state, dry_run=True)


def command(fence: NetworkFence, state: str) -> list[str]:
    """The patch as an Action shows it."""
    return ["PATCH", f"{FENCES}/{fence.name}", f"uid={fence.uid}", f"spec.fenceState={state}"]


def await_message(
    cluster: Cluster,
    before: NetworkFence,
    deadline_seconds: float,
    sleep: Callable[[float], None] = time.sleep,
) -> NetworkFence:
    """Wait until the controller says that it has done what the spec asks for.

    ``before``: the object with its status from before the spec was changed, which is not yet an
    answer.
    """
    # The result of the operation before stays until the next one has ended, so the first looks may
    # show an old one.
    started = time.monotonic()
    failed_since: float | None = None
    while True:
        now = _reread(cluster, before)
        if now.state != before.state:
            raise ActionFailed(
                f"NetworkFence {now.name} is to be {before.state}, but it was set to "
                f"{now.state} meanwhile",
                code="network_fence_unfit",
            )
        if now.settled:
            return now
        at = time.monotonic()
        # The failure of what was asked before may still stand there, and a new one may read the
        # same.
        told = (before.result, before.message) != (now.result, now.message)
        failed_since = (failed_since or at) if now.result == FAILED and told else None
        left = cluster.deadline.cap(deadline_seconds - (at - started))
        if left < _PAUSE or (failed_since is not None and at - failed_since > _FAILED_SECONDS):
            raise ActionFailed(_unsettled(now, at - started), code="network_fence_unfit")
        sleep(_PAUSE)


def _serves(cluster: Cluster, resource: str) -> bool:
    """Whether the group has this resource."""
    return any(
        entry.get("name") == resource
        for entry in (cluster.get(f"/apis/{GROUP}") or {}).get("resources") or []
    )


def _flip(
    cluster: Cluster,
    fence: NetworkFence,
    state: str,
    seconds: float,
    sleep: Callable[[float], None],
    hold: Hold,
) -> NetworkFence:
    with hold():
        before = _set_state(cluster, fence, state)
    return await_message(cluster, before._replace(state=state), seconds, sleep)


def _set_state(cluster: Cluster, fence: NetworkFence, state: str) -> NetworkFence:
    """Patch it as it is now, if it may be; returns how it was before."""

    def act() -> NetworkFence:
        item = _read(cluster, fence)
        before = _judged(item, fence)
        problem = undecidable(before) if state == FENCED else _unfinished(before)
        if problem:
            raise ActionFailed(problem, code="network_fence_unfit")
        if before.state != state:
            # Another run, or a person, may have set it since: what is patched is what was judged.
            _patch(cluster, before, state, version=item["metadata"]["resourceVersion"])
        return before

    try:
        # Its controller writes its status, which is another version, too.
        return again(act)
    except (Conflict, NotFound) as error:
        raise NotStarted(
            f"NetworkFence {fence.name} is not the one that was "
            f"planned for (uid {fence.uid}): {error}",
            code="identity_changed",
        ) from error
    except ActionFailed as error:
        raise NotStarted(str(error), error.code) from error


def _unfinished(fence: NetworkFence) -> str:
    """Why the message of this NetworkFence could not prove an unfencing: it is still that of the
    one before it was Fenced.
    """
    if fence.state == FENCED and fence.result == SUCCEEDED and fence.message == MESSAGES[UNFENCED]:
        return (
            f"NetworkFence {fence.name} is Fenced, but its status still says {fence.message!r}: "
            "its fencing may be under way, and land after an unfencing. Wait until it says "
            f"{MESSAGES[FENCED]!r}; if it never does, look at CSI-Addons' controller and the driver"
        )
    return ""


def _patch(
    cluster: Cluster, fence: NetworkFence, state: str, dry_run: bool = False, version: str = ""
) -> None:
    # With metadata.uid and resourceVersion in the body the API server answers 409 Conflict where
    # the object is another one by now, or was changed.
    meta = {"uid": fence.uid, **({"resourceVersion": version} if version else {})}
    cluster.patch(
        f"{FENCES}/{fence.name}", {"metadata": meta, "spec": {"fenceState": state}}, dry_run
    )


def _reread(cluster: Cluster, fence: NetworkFence) -> NetworkFence:
    """It as it is now."""
    return _judged(_read(cluster, fence), fence)


def _read(cluster: Cluster, fence: NetworkFence) -> Object:
    """The object. Raises ActionFailed where it is gone, or another one has its name."""
    item = cluster.get(f"{FENCES}/{fence.name}")
    if item is None or item["metadata"]["uid"] != fence.uid:
        what = (
            "is gone"
            if item is None
            else f"was replaced by another one (uid {item['metadata']['uid']})"
        )
        raise ActionFailed(
            f"NetworkFence {fence.name} (uid {fence.uid}) {what}. {_DELETED}",
            code="network_fence_unfit",
        )
    return item


def _judged(item: Object, fence: NetworkFence) -> NetworkFence:
    """The record of the object that was read just now, unless it is another fence by now."""
    # Driver and clusterID cannot change, so a class is not read again.
    now = pick_fence(item, {})._replace(driver=fence.driver, cluster_id=fence.cluster_id)
    if now.deleted:
        raise ActionFailed(
            f"NetworkFence {fence.name} is being deleted. {_DELETED}", code="network_fence_unfit"
        )
    if now.cidrs != fence.cidrs:
        raise ActionFailed(
            f"NetworkFence {fence.name} has other ranges now: {few(now.cidrs)} instead of "
            f"{few(fence.cidrs)}",
            code="network_fence_unfit",
        )
    return now


_DELETED = (
    "A NetworkFence that is deleted while it is Fenced leaves its entries in Ceph's blocklist: "
    "look at them with storage_ops.runbooks.rbd_watcher_info or ceph osd blocklist ls"
)


def _unsettled(now: NetworkFence, seconds: float) -> str:
    # Each of the three cases has another cause: the driver, the controller's version, or no
    # controller at all.
    wanted = MESSAGES[now.state]
    if now.result == FAILED:
        advice = "The controller goes on trying; look at the driver it calls and at its secret"
    elif now.result == SUCCEEDED:
        advice = (
            "That is the message of the other operation: its controller has not come to it (is it "
            "running?), or this CSI-Addons has one message for both; look at its log"
        )
    else:
        advice = (
            "Its controller does not answer: is it running, and does driver "
            f"{now.driver or 'of its class'} have a CSIAddonsNode?"
        )
    return (
        f"NetworkFence {now.name} is {now.state} in its spec, but within {seconds:.0f} s its "
        f"status did not say {wanted!r}. It says {now.status}. {advice}"
    )
