# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""STOR-13: a volume is attached, and the node's status.volumesAttached does not list it.

Pure: no I/O here.
"""

from __future__ import annotations

from .._core import untrusted
from .._core.codes import Reason
from .._core.engine import Finding
from .._kube.objects import Attachment, Pod, made_again
from .._kube.observation import may_lack_status
from .findings import (
    RUNBOOK,
    TOO_FEW_OBSERVATIONS,
    attachment_finding,
    pod_evidence,
    title,
    workload_of,
    workload_title,
)
from .state import AttachmentOptions, AttachmentState

# Bugs that lose the entry. Kubernetes issue -> (the minor release 1.x that had the fix from its
# start, and the patch releases that brought it to older ones): 111000 by pull request 111205 and
# its cherry picks 112302 to 112305, 120571 by 120595. Which one ended 108869 is not known; it was
# seen up to 1.24.17.
_LOST_STATUS_BUGS = {
    "111000": (26, {25: 1, 24: 5, 23: 11, 22: 14}),
    "120571": (29, {28: 3, 27: 7, 26: 10}),
    "108869": (25, {}),
}


def lost_status(
    state: AttachmentState, seen: list[Attachment], options: AttachmentOptions
) -> Finding | None:
    """An attached volume that pods need and that its node's status does not list.

    ``seen``: the attachment in each observation. None if that was not so in all of them.
    """
    attachment = seen[-1]
    if attachment.driver in state.detached_drivers or not _was_always_missing(state, seen):
        return None
    steady = _steady_users(state, seen)
    if not steady:
        return None
    finding = attachment_finding(state, attachment, "STOR-13", "major")
    finding.summary = (
        f"{title(state, attachment)} is attached to {attachment.node}, and the "
        "node's volumesAttached does not list it"
    )
    finding.evidence.update(
        pods=pod_evidence(steady, state.now),
        workload_title=workload_title(steady),
        # Whether the kubelet waits for the entry: it lists a volume there before it mounts it.
        volumes_in_use=attachment.name in state.last.in_use,
        version=state.version_text,
        # They tell an owner which upgrade prevents the next case.
        bugs=_bugs(state.version),
        **state.leader,
    )
    # The entry goes before the detach (RemoveVolumeFromReportAsAttached in
    # pkg/controller/volume/attachdetach/reconciler/reconciler.go), so one that fails explains why
    # it is missing.
    if attachment.detach_error:
        finding.refuse(
            Reason(
                "attacher_stuck",
                "the storage side is the cause, its last detach failed: "
                f"{attachment.detach_error.message}",
            )
        )
    # To move a pod off the node detaches the volume, which may still be in use on the old host.
    elif state.last.nodes[attachment.node].is_younger(attachment):
        finding.refuse(Reason("identity_changed", f"its node {made_again(attachment.node)}"))
    elif len(seen) < 2:
        finding.refuse(TOO_FEW_OBSERVATIONS)
    else:
        # The kubelet checks the list before each mount, and not afterwards
        # (GenerateVerifyControllerAttachedVolumeFunc of
        # pkg/volume/util/operationexecutor/operation_generator.go).
        finding.reason = (
            f"observed {state.observed}. A pod that starts there waits for the entry forever; a "
            "pod that runs is not affected. Move the pod away and back: "
            + untrusted.shown_command(
                f"ansible-playbook {RUNBOOK} -e attachment_repair_names={{name}} -e "
                "attachment_repair_lost_status=reattach",
                name=attachment.name,
            )
        )
        finding.workload = workload_of(state.last, steady, attachment)
    return finding


def _was_always_missing(state: AttachmentState, seen: list[Attachment]) -> bool:
    """No observation, and nothing in between, had the attachment in volumesAttached."""
    # Right after an attach the entry is missing for a moment: the controller manager writes the
    # node's status after the VolumeAttachment (UpdateNodeStatuses of
    # pkg/controller/volume/attachdetach/statusupdater/node_status_updater.go).
    missing = all(
        may_lack_status(observation, once) for observation, once in zip(state.observations, seen)
    )
    return missing and not any(
        seen[-1].name in observation.was_listed for observation in state.observations
    )


def _steady_users(state: AttachmentState, seen: list[Attachment]) -> list[Pod]:
    """The pods that needed the attachment in every observation."""
    # For a pod that has just come or is about to go the entry may change at any moment.
    users = [
        {pod.uid: pod for pod in observation.users(once)}
        for observation, once in zip(state.observations, seen)
    ]
    return [pod for uid, pod in users[-1].items() if all(uid in once for once in users)]


def _bugs(version: tuple[int, int, int]) -> list[str]:
    """Bugs of Kubernetes that lose the entry and that this version may have."""
    _major, minor, patch = version
    return [
        f"kubernetes #{issue}"
        for issue, (first, patches) in _LOST_STATUS_BUGS.items()
        if minor < first and patch < patches.get(minor, patch + 1)
    ]
