# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether so many FUSE mounts are broken at once that what they talk to may be down.

Replacing mounts during an outage loses what their servers have not written yet, and the new ones
cannot start either. Pure: no I/O here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Callable, NamedTuple

from .._core import untrusted
from .._core.codes import Reason
from .._core.engine import Finding
from .._core.guards import majority, most_of
from .._node import kubelet
from .._node.kubelet import Place
from .identity import entries_for, handles_of, volumes_of
from .model import FuseOptions, FuseState, FuseVolume, Recovery, Superblock
from .stacks import is_broken


class Remote(NamedTuple):
    """What the mounts of a tenant talk to, as far as that is known.

    ``tenant``: the namespace of their pods, see outages_by_remote;
    ``namespace``: that of the Secret with which they are mounted. Whoever may write the Secret can
    name any endpoint in it. With healthy mounts of their own they could outvote the broken mounts
    of others, so an endpoint from a Secret counts for that namespace only. An inline volume has its
    Secret, and all else, from its pod's namespace (kubernetes/api core/v1/types.go
    CSIVolumeSource).
    """

    driver: str
    endpoint: str
    namespace: str
    tenant: str = ""

    @property
    def shared(self) -> Remote:
        """The same of all tenants."""
        return self._replace(tenant="")

    @property
    def shown(self) -> str:
        """As part of a sentence, with a blank in front; empty if nothing is known."""
        at = f" at {untrusted.sample_of(self.endpoint)}" if self.endpoint else ""
        of = f" of {self.driver}" if self.driver else ""
        secrets = f" with Secrets in {self.namespace}" if self.namespace else ""
        return of + at + secrets + (f" of namespace {self.tenant}" if self.tenant else "")


def outages_by_remote(
    state: FuseState, options: FuseOptions, found: Mapping[str, Superblock]
) -> dict[Remote, Reason]:
    """The remotes that may be down, and the refusal for each.

    What is down is so for most of its tenants, and of each for most of what it has. Each tenant
    counts once: with many mounts of its own none makes an outage of others' trouble.
    """
    # Filesystems are counted, not mounts: a volume with many pods is still one.
    totals: Counter[Remote] = Counter()
    broken: Counter[Remote] = Counter()
    for device, superblock in found.items():
        answer = state.answers.get(device)
        # What was not asked is no sign that others work.
        if answer is None or not answer.unasked:
            remote = _remote(state, options, [place for _mount, place in superblock.mounts])
            totals[remote] += 1
            broken[remote] += is_broken(answer)
    most = most_of(broken, totals)
    down = most_of(
        Counter(remote.shared for remote in most), Counter(remote.shared for remote in totals)
    )
    unless = "their servers are known to be gone for good"
    return {
        remote: majority(broken[remote], totals[remote], f"FUSE mounts{remote.shown}", unless)
        for remote in most
        if remote.shared in down
    }


def remotes_of(
    finding: Finding, state: FuseState, options: FuseOptions, found: Mapping[str, Superblock]
) -> list[Remote]:
    """The remotes of the mounts that a repair is about."""
    recovery: Recovery | None = finding.repair[0].subject.recovery if finding.repair else None
    devices = recovery.devices if recovery else finding.evidence["devices"]
    blocks = [found[device] for device in devices if device in found]
    groups = [[place for _mount, place in block.mounts] for block in blocks]
    # After an interrupted run no superblock may be left, only the points of its mounts.
    if recovery and not groups:
        groups = _places_apart(state, recovery)
    return list(dict.fromkeys(_remote(state, options, places) for places in groups))


def _places_apart(state: FuseState, recovery: Recovery) -> list[list[Place]]:
    places = (kubelet.classify(target.point, state.root) for target in recovery.targets)
    return [[place] for place in places if place]


def _remote(state: FuseState, options: FuseOptions, places: list[Place]) -> Remote:
    """The remote of the mounts of one filesystem.

    Volumes of one driver whose endpoint is unknown count as having the same one.
    """
    # Only notes that could be read tell the driver and the handle.
    read = [state.notes.get(place.note) for place in places]
    notes = [note for note in read if note and not note.problem]
    points = {place.point for place in places}
    entries = entries_for(state, options, volumes_of(places, notes), handles_of(notes), points)
    # Two entries contradict each other, and then the endpoint is unknown.
    entry = entries[0] if len(entries) == 1 else FuseVolume()
    known = {place.driver for place in places} | {note.driver for note in notes} | {entry.driver}
    # Contradicting names are refused elsewhere; here any of them will do, if it is always the same.
    driver = min(known - {""}, default="")
    pods = {place.pod for place in places} - {""}
    if any(note.inline for note in notes):
        return Remote(driver, "", min((state.namespaces.get(pod, pod) for pod in pods), default=""))
    # A trailing slash or another case does not make another server (RFC 3986, 6.2.3 and 6.2.2.1).
    endpoint = entry.endpoint.rstrip("/").lower()
    # A claim is of one namespace, so the pods of a volume are.
    tenant = min({state.namespaces.get(pod, "") for pod in pods} - {""}, default="")
    return Remote(driver, endpoint, entry.secret_namespace, tenant)


def owner_of(
    finding: Finding, state: FuseState, options: FuseOptions, found: Mapping[str, Superblock]
) -> str:
    """Whose the mounts of a finding are, for its room in the result: the namespaces of its volume,
    or else of its pods; where these are not known, the pods.
    """
    places = [
        place for device in finding.evidence["devices"] for _mount, place in found[device].mounts
    ]
    pods = {place.pod for place in places} - {""}
    spaces = turns_by_namespace(options)(finding) or {
        state.namespaces.get(pod, f"of pod {pod}") for pod in pods
    }
    return f"namespace {untrusted.few(sorted(spaces))}" if spaces else ""


def turns_by_namespace(options: FuseOptions) -> Callable[[Finding], tuple[str, ...]]:
    """The namespaces of the pods of a finding, whose turn it is."""
    namespaces = {
        entry.volume: {pod.namespace for pod in entry.pods or ()} for entry in options.volumes
    }

    def owner(finding: Finding) -> tuple[str, ...]:
        # Findings without a known volume share one turn.
        volumes = finding.evidence.get("volumes", ())
        return tuple(sorted({name for volume in volumes for name in namespaces.get(volume, ())}))

    return owner
