# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Is there something to fence, and was enough of it observed? Pure: no I/O here."""

from __future__ import annotations

import re

from .._core.codes import Reason
from .._core.untrusted import few
from .._fences.ceph_reading import Image, Reading
from .._fences.proof import stale
from .._fences.state import AttachedVolume
from .case import FenceCase
from .proven import is_other

# A healthy node that retries NodeStageVolume opens the image for a moment at each try, so only a
# client that every look has shown is evidence. Looks, and seconds from the first to the last.
_LEAST_LOOKS, _LEAST_SECONDS = 3, 60.0
# The same where three sources agree who that is.
_AGREED_LOOKS, _AGREED_SECONDS = 2, 5.0
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)


def check_volumes(case: FenceCase) -> None:
    """The user means at least one volume that the node may have open, or an inline volume."""
    # A fence that stands goes on, even once Kubernetes has detached its volumes.
    if case.known:
        return
    if not case.meant and not (case.by_power and case.state.inline):
        case.reasons.append(Reason("nothing_to_repair", _nothing_meant(case)))


def _nothing_meant(case: FenceCase) -> str:
    # Ceph's blocklist protects images that the node itself opens, and no other storage: no entry
    # keeps a node from NFS, and none is made for CephFS alone (files.py). A node that is off has
    # nothing open.
    cluster_id, node = case.options.cluster_id, case.options.node
    kind = "volume" if case.by_power else "RBD volume"
    said = (
        f"no {kind}{f' of cluster_id {cluster_id}' if cluster_id else ''} is attached to node "
        f"{node}, or used there without, so there is nothing to fence"
    )
    others = [f"{found.name} ({found.storage})" for found in case.state.held if not found.is_rbd]
    others += case.state.inline
    if others and not case.by_power:
        said += (
            f". It has {few(others)}, and for these alone nothing is fenced in Ceph: if the node "
            "is off, or can be switched off, use method external or power"
        )
    return said + (f". Left out: {few(case.stays, '; ')}" if case.left_out else "")


def check_reading(case: FenceCase) -> None:
    """What was read of Ceph is recent, of the right Ceph, and has every volume that is meant."""
    reading = case.options.reading
    if reading is None:
        return
    before = case.state.ledger
    case.reasons += stale(
        reading,
        case.state.now,
        # A released fence that left no entries binds the node to no Ceph.
        before.fsid if before and (case.known or before.entries) else "",
    )
    _leave_unread(case)
    _check_cluster(case, reading)
    # What is added to a fence needs the same evidence as a new one.
    if not case.known or {found.name for found in case.meant} - case.judged:
        check_length(case)
    _check_images(case)


def _check_cluster(case: FenceCase, reading: Reading) -> None:
    """The Ceph that was read is the one that the volumes name."""
    # Another Ceph may have images of the same names, as a copy or a backup site has, and shows them
    # without a client. A clusterID is any name, and mostly the fsid (ceph-csi's
    # docs/rbd/deploy.md); where it is another UUID, ceph-csi maps it, as after a fail-over between
    # two Cephs (internal/util/cluster_mapping.go).
    # Nor was this one seen where the fence was intended without a reading.
    before = case.judged if case.known and case.known.fsid else frozenset()
    others = {
        found.cluster_id
        for found in case.meant
        if found.name not in before
        and _UUID.fullmatch(found.cluster_id)
        and found.cluster_id.lower() != reading.fsid.lower()
    } - {case.options.cluster_id}
    if reading.fsid and others:
        case.reasons.append(
            Reason(
                "ceph_reading_unfit",
                f"what was read is of Ceph cluster {reading.fsid}, and volumes name clusterID "
                f"{few(sorted(others))}, which looks like another cluster: ask the Ceph that has "
                "the volumes. If that is this one, because ceph-csi maps the clusterID to it, say "
                "so by cluster_id",
            )
        )


def _leave_unread(case: FenceCase) -> None:
    """Leave out what was not read at all: a tenant may have more attached at any moment.

    What was judged for the fence must be read, and where nothing was read, nothing is known.
    """
    read = {image.volume for image in case.images}
    unread = [found for found in case.meant if found.name not in read]
    if case.judged_by() or len(unread) < len(case.meant):
        case.leave_out(
            {
                found.name: Reason(
                    "ceph_not_read",
                    "it is not in what was read of Ceph, since it came after that, or had no room "
                    "there: run again",
                )
                for found in unread
                if found.name not in case.judged
            }
        )


def _check_images(case: FenceCase) -> None:
    """Each volume that is meant was read."""
    # Each volume is asked for in Ceph by rbd_watcher_info, by pool, RADOS namespace and image.
    for found in case.meant:
        image = next((image for image in case.images if image.volume == found.name), None)
        if image is None:
            case.reasons.append(
                Reason(
                    "ceph_not_read",
                    f"volume {found.name} is not in what was read of Ceph (option ceph), so any "
                    "client may hold it: read it too",
                )
            )
        # No answer is not an answer of "no watchers".
        elif image.problem:
            case.reasons.append(
                Reason(
                    "ceph_not_read",
                    f"image {image.title} of volume {found.name} could not be read: "
                    f"{image.problem}",
                )
            )


def check_length(case: FenceCase) -> None:
    """The images were observed often and long enough."""
    # A client that is dead stays a watcher for osd_client_watch_timeout, 30 s by default, after its
    # last ping (Watch::register_cb of src/osd/Watch.cc): an observation that is no longer than that
    # shows clients that are gone, and one look shows those that only pass by.
    reading, options = case.options.reading, case.options
    least = (2, 0.0) if options.accept_short_observation else (_LEAST_LOOKS, _LEAST_SECONDS)
    if not reading or _is_long(reading, *least):
        return
    if not (_is_long(reading, _AGREED_LOOKS, _AGREED_SECONDS) and _is_agreed(case)):
        case.reasons.append(
            Reason(
                "observation_too_short",
                f"Ceph was looked at {reading.observations} times in {reading.seconds:g} s, "
                f"and {least[0]} times in {least[1]:g} s are needed, since only a client that "
                "stays is evidence: read it again with observations and observation_seconds of "
                "rbd_watcher_info",
            )
        )


def _is_long(reading: Reading, looks: int, seconds: float) -> bool:
    return reading.observations >= looks and reading.seconds >= seconds


def _is_agreed(case: FenceCase) -> bool:
    """Each image is open where ceph-csi noted the node when it staged that image, and where its
    Node object has an address, or where Ceph saw the node before; and whoever else opens it is
    known to be no node.
    """
    # No other node may open what is attached here alone, so nothing is left that only a longer look
    # could tell from the node.
    images = {image.volume: image for image in case.images}
    return bool(case.meant) and all(
        found.name in images and _is_only_here(found) and _is_node(case, images[found.name])
        for found in case.meant
    )


def _is_only_here(found: AttachedVolume) -> bool:
    return bool(found.attachment.name) and not found.elsewhere and not found.is_shared


def _is_node(case: FenceCase, image: Image) -> bool:
    """All that has this image open, or a lock on it, is the node's own client."""
    noted = {found.address for found in image.client_addresses if found.node == case.options.node}
    own = noted & {*case.own, *case.recorded.address}
    watchers = [found for found in image.watchers if not is_other(found, case.options)]
    return (
        bool(watchers)
        and all(found.persistent and found.is_kernel for found in watchers)
        and {found.address for found in watchers} <= own
        and {found.address for found in image.locks} <= own
    )
