# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""STOR-14: attachments without the metadata that the driver's node plugin needs.

Pure: no I/O here.
"""

from __future__ import annotations

from .._core import untrusted
from .._core.engine import Finding
from .._kube.objects import Attachment
from .._kube.observation import metadata_arguments, missing_metadata
from .findings import RUNBOOK, attachment_finding, pod_evidence, title, workload_of, workload_title
from .state import AttachmentOptions, AttachmentState


def without_metadata(state: AttachmentState, options: AttachmentOptions) -> list[Finding]:
    """Attachments that lack what their driver's node plugin needs."""
    found = []
    for attachment in state.first.attachments.values():
        missing = missing_metadata(attachment, options.required_metadata)
        if missing:
            found.append(_without_metadata(state, attachment, missing, options))
    return found


def _without_metadata(
    state: AttachmentState, attachment: Attachment, missing: list[str], options: AttachmentOptions
) -> Finding:
    # One observation is enough: what was published is never changed afterwards.
    keys, pods = ", ".join(missing), state.first.users(attachment)
    finding = attachment_finding(state, attachment, "STOR-14", "major")
    finding.evidence.update(
        missing=keys, metadata=list(attachment.metadata), pods=pod_evidence(pods, state.now)
    )
    finding.summary = (
        f"the attachment of {title(state, attachment)} to {attachment.node} lacks {keys}"
    )
    if not pods:
        # The controller manager uses an attachment that exists as it is (csiAttacher.Attach of
        # pkg/volume/csi/csi_attacher.go accepts AlreadyExists).
        finding.reason = (
            f"no pod needs it, so there is no pod to move; the next pod on {attachment.node} "
            "would get it as it is, so delete it if it is left over (STOR-11)"
        )
        return finding
    finding.evidence["workload_title"] = workload_title(pods)
    finding.workload = {**workload_of(state.first, pods, attachment), "missing": missing}
    # The metadata is what ControllerPublishVolume returned as publish_context (CSI specification);
    # external-attacher calls it again only for a new attachment.
    finding.reason = (
        f"{attachment.driver} adds it only to a new attachment: its pods have to leave the node "
        "and come back. "
        + untrusted.shown_command(
            f"ansible-playbook {RUNBOOK} -e attachment_repair_names={{name}} -e "
            "attachment_repair_reattach_missing_metadata=true",
            name=attachment.name,
        )
        + metadata_arguments(attachment.driver, options.required_metadata)
    )
    return finding
