# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What findings about attachments have in common: their evidence, their texts, and the workload
that has to be moved.

Pure: no I/O here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from .._core.codes import Reason
from .._core.engine import Finding
from .._kube.objects import Attachment, Pod, VolumeError, age
from .._kube.observation import Observation
from .state import AttachmentState

RUNBOOK = "storage_ops.runbooks.repair_volumeattachments"

TOO_FEW_OBSERVATIONS = Reason(
    "observation_too_short", "a single observation proves nothing: set observations to 2 or more"
)


def attachment_finding(
    state: AttachmentState, attachment: Attachment, control: str, severity: str
) -> Finding:
    """A finding about an attachment, with the evidence that all of them show."""
    # Of the last observation: what a reader compares with the cluster is the newest state.
    volume = state.last.volumes.get(attachment.volume)
    node = state.last.nodes.get(attachment.node)
    evidence = {
        "uid": attachment.uid,
        "driver": attachment.driver,
        "volume": attachment.volume,
        # The name by which the storage knows the volume.
        "handle": volume.handle if volume else "",
        "claim": "/".join(volume.claim) if volume and volume.claim_name else "",
        "phase": volume.phase if volume else "gone",
        "access_modes": list(volume.access_modes) if volume else [],
        "attached": attachment.attached,
        "age_seconds": round(age(state.now, attachment.created)),
        "node_ready": node.ready if node else "gone",
        "attach_error": _error_evidence(attachment.attach_error, state.now),
        "detach_error": _error_evidence(attachment.detach_error, state.now),
        "finalizers": list(attachment.finalizers),
        "observed": state.observed,
    }
    # Absent for most attachments, so a reader sees at once which are being deleted.
    if attachment.deleted:
        evidence["deleted_seconds_ago"] = round(age(state.now, attachment.deleted))
    return Finding(
        control=control,
        severity=severity,
        kind="VolumeAttachment",
        name=attachment.name,
        node=attachment.node,
        summary="",
        evidence=evidence,
    )


def _error_evidence(error: VolumeError | None, now: datetime) -> str:
    if error is None:
        return ""
    return (
        f"{error.message} ({duration(age(now, error.time))} ago)" if error.time else error.message
    )


def pod_evidence(pods: Iterable[Pod], now: datetime) -> list[str]:
    return [f"{pod.title} {pod.phase}, {duration(age(now, pod.created))} old" for pod in pods]


def title(state: AttachmentState, attachment: Attachment) -> str:
    # Deleted between two looks, it still had a name.
    volume = state.last.volumes.get(attachment.volume) or state.first.volumes.get(attachment.volume)
    return (
        f"{attachment.volume} ({'/'.join(volume.claim)})"
        if volume and volume.claim_name
        else attachment.volume
    )


def duration(seconds: float) -> str:
    """Seconds in the largest unit of which there are at least two."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        # "1 d" could be anything up to two days.
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


# Which workload has to be moved, for STOR-13 and STOR-14


def _workload_key(pods: Iterable[Pod]) -> tuple[str, str, str]:
    """Namespace, kind and name of what moves together: the pods of one controller."""
    # Pods of several controllers may share a volume; the choice must be the same in every run.
    return min(
        (pod.namespace, pod.owner.kind, pod.owner.name)
        if pod.owner
        else (pod.namespace, "Pod", pod.name)
        for pod in pods
    )


def workload_title(pods: Collection[Pod]) -> str:
    namespace, kind, name = _workload_key(pods)
    return f"{kind} {namespace}/{name}"


def workload_of(seen: Observation, pods: Collection[Pod], attachment: Attachment) -> dict[str, Any]:
    """Which workload has to be moved off which claims, so that the attachment is recreated."""
    # A volume may have claims by several PersistentVolumes with the same handle; only those that
    # the pods really use are moved.
    namespace, kind, name = _workload_key(pods)
    used = {(pod.namespace, claim) for pod in pods for claim in pod.claims}
    claims = sorted(
        claim
        for space, claim in seen.claims_of(attachment)
        if space == namespace and (space, claim) in used
    )
    return {
        "kind": kind,
        "namespace": namespace,
        "name": name,
        "claims": claims,
        # By uid: after the move another attachment has the same name.
        "attachments": [attachment.uid],
        "drivers": [attachment.driver],
    }


def join_workloads(found: Iterable[Finding], wanted: Iterable[Finding]) -> None:
    """Let the first finding of each workload that is in scope name all of its claims and
    attachments, and the others none.
    """
    # A workload moves as a whole, so its attachments that are out of scope are recreated as well,
    # and it must not be moved once for each of them.
    joined: dict[tuple[str, str], dict[str, Any]] = {}
    for finding in found:
        if finding.workload:
            # By control as well, since STOR-13 and STOR-14 are moved only with consents of their
            # own.
            workload = joined.setdefault(
                (finding.control, finding.evidence["workload_title"]), dict(finding.workload)
            )
            for what in {"claims", "attachments", "drivers", "missing"} & set(workload):
                workload[what] = sorted({*workload[what], *finding.workload[what]})
    for finding in wanted:
        if finding.workload:
            finding.workload = joined.pop(
                (finding.control, finding.evidence["workload_title"]), None
            )
