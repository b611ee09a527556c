# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pod mounts that are not their volume (STOR-07) and volumes that turned read-only (STOR-08).

wrong_mounts.py and turned_readonly.py judge them. Here they are limited to the scope, and refused
where so much is broken that it may be an outage. Pure: no I/O here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .._core.codes import Reason
from .._core.engine import Finding, Plan
from .._core.guards import limit_repairs, majority, most_of
from .._node import kubelet
from .._node.kubelet import Place
from . import turned_readonly
from .model import Filesystem, PodMountOptions, PodMountState, Stack, show
from .stacks import filesystems, suspicious_filesystems, suspicious_stacks
from .wrong_mounts import is_unknown, judge_stack


def not_applicable(state: PodMountState) -> dict[str, str]:
    """Controls of what the kubelet has not mounted on this node. The scope does not matter."""
    absent = {}
    if not state.places(kubelet.PUBLISH):
        absent["STOR-07"] = "no CSI volume is mounted for a pod"
    if not filesystems(state):
        absent["STOR-08"] = "no filesystem of a volume on a block device is mounted"
    return absent


def plan(state: PodMountState, options: PodMountOptions) -> Plan:
    """A finding for everything in scope that is not as it should be, with its repair if that is
    proven and allowed.
    """
    # All of the node, and the scope only later: whether it is an outage is seen in the whole.
    wrong = [(stack, judge_stack(state, stack)) for stack in suspicious_stacks(state)]
    turned = [
        (one, turned_readonly.judge_filesystem(state, one)) for one in suspicious_filesystems(state)
    ]
    found = [finding for _judged, finding in [*wrong, *turned] if finding]
    for finding in found:
        finding.owner = f"namespace {_owner(state, finding)}"
    # A tenant with many broken mounts must not use up the limit, nor the time, of the others.
    wanted = Plan(
        [finding for finding in found if _in_scope(finding, options)],
        (lambda one: _owner(state, one),),
    )
    # A workload that is moved is a repair as well, by another module.
    helped = [finding for finding in wanted.findings if finding.repair or finding.workload]
    if not options.accept_majority:
        outages = {**_mount_outages(state, wrong), **_filesystem_outages(state, turned)}
        helped = _hold_outages(state, helped, outages)
    for finding in limit_repairs(helped, options.max_repairs):
        finding.workload = None
    return wanted


def _mount_outages(
    state: PodMountState, wrong: Iterable[tuple[Stack, Finding]]
) -> dict[FaultDomain, Reason]:
    """By driver and namespace, why what is broken there is rather an outage."""
    # What nothing is known of says nothing of an outage.
    broken = [_group_of(state, finding) for stack, finding in wrong if not is_unknown(stack)]
    mounts = [_group(state, [place]) for place in state.places(kubelet.PUBLISH)]
    return _outages(broken, mounts, "pod mounts")


def _filesystem_outages(
    state: PodMountState, turned: Iterable[tuple[Filesystem, Finding | None]]
) -> dict[FaultDomain, Reason]:
    """The same of filesystems; those that were not asked say nothing of it either."""
    broken, unasked = [], set()
    for one, finding in turned:
        if turned_readonly.is_unasked(state, one):
            unasked.add(one.device)
        elif finding:
            broken.append(_group_of(state, finding))
    asked = [one for one in filesystems(state) if one.device not in unasked]
    volumes = [_group(state, one.places) for one in asked]
    return _outages(broken, volumes, "volume filesystems")


def _hold_outages(
    state: PodMountState, helped: Iterable[Finding], outages: Mapping[FaultDomain, Reason]
) -> list[Finding]:
    """Refuse what is in an outage; the others."""
    left = []
    for finding in helped:
        outage = outages.get(_group_of(state, finding))
        if outage:
            finding.refuse(outage)
            # The role moves each workload that a finding names, whatever its verdict.
            finding.workload = None
        else:
            left.append(finding)
    return left


class FaultDomain(NamedTuple):
    """What can fail together. Empty is what the node does not tell."""

    driver: str
    namespace: str


def _group(state: PodMountState, places: Iterable[Place]) -> FaultDomain:
    known = list(places)
    notes = [state.notes[place.note].driver for place in known if place.note in state.notes]
    drivers_known = {*notes, *(place.driver for place in known)} - {""}
    spaces = {state.namespaces.get(place.pod, "") for place in known} - {""}
    # min: several names contradict each other, and then any one does that is always the same.
    return FaultDomain(min(drivers_known, default=""), min(spaces, default=""))


def _group_of(state: PodMountState, finding: Finding) -> FaultDomain:
    points = (kubelet.classify(point, state.root) for point in finding.evidence["points"])
    return _group(state, [place for place in points if place])


def _owner(state: PodMountState, finding: Finding) -> str:
    """The namespace whose turn it is; where the node does not know it, the pod."""
    pods = finding.evidence.get("pods") or [finding.evidence.get("pod", "")]
    return _group_of(state, finding).namespace or str(pods[0])


def _outages(
    broken: list[FaultDomain], all_of_them: list[FaultDomain], what: str
) -> dict[FaultDomain, Reason]:
    """The groups of which so much looks broken that nothing of them is to be repaired.

    A driver that fails does so for most of its namespaces, and of each for most of what it has.
    Each namespace counts once: with many mounts of its own none makes an outage of others' trouble.
    """
    bad, total = Counter(broken), Counter(all_of_them)
    most = most_of(bad, total)
    failing = Counter(group.driver for group in most)
    drivers = most_of(failing, Counter(group.driver for group in total))
    unless = "they all have to be repaired"
    return {
        group: majority(bad[group], total[group], f"{what}{_shown_group(group)}", unless)
        for group in most
        if group.driver in drivers
    }


def _shown_group(group: FaultDomain) -> str:
    said = [
        *([f"driver {show(group.driver)}"] if group.driver else []),
        *([f"namespace {show(group.namespace)}"] if group.namespace else []),
    ]
    return f" ({', '.join(said)})" if said else ""


def unmatched(state: PodMountState, options: PodMountOptions) -> list[str]:
    """The parts of the scope that nothing on the node has, as after a typing error."""
    places = [place for one in filesystems(state) for place in one.places]
    places += state.places(kubelet.PUBLISH)
    points, volumes = {place.point for place in places}, state.volumes_at(places)
    return [
        *(f"nothing is mounted at {show(path)}" for path in options.paths if path not in points),
        *(
            f"there is no mount of a volume {show(volume)}"
            for volume in options.volumes
            if volume not in volumes
        ),
    ]


def _in_scope(finding: Finding, options: PodMountOptions) -> bool:
    """Whether a finding is in the user's scope. Marks it as named if the scope names it."""
    # By mount point or by PersistentVolume; a filesystem has several of both.
    points, volumes = set(finding.evidence["points"]), set(finding.evidence["volumes"])
    finding.named = bool(points & set(options.paths) or volumes & set(options.volumes))
    return finding.named or not (options.paths or options.volumes)
