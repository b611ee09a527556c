# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this doc fragment is **PRIVATE** to the collection. It can have breaking changes at any
# time.

from __future__ import annotations


class ModuleDocFragment:
    """Options that the modules for VolumeAttachments share."""

    DOCUMENTATION = r"""
options:
  names:
    description: Look only at the VolumeAttachments of these names, and not at PersistentVolumes and
      pods.
    type: list
    elements: str
    default: []
  drivers:
    description: Look only at volumes of these CSI drivers.
    type: list
    elements: str
    default: []
  nodes:
    description: Look only at what concerns these nodes.
    type: list
    elements: str
    default: []
  namespaces:
    description: Look only at volumes whose claims, and at pods that, are in these namespaces.
    type: list
    elements: str
    default: []
"""

    JUDGING = r"""
options:
  min_age_seconds:
    description:
      - Seconds that a VolumeAttachment must be old before it can be called left over.
      - Also the seconds after which one that is being deleted is reported.
    type: float
    default: 300
  observations:
    description:
      - How often something suspicious is looked at before it is judged. Everything else is read
        once.
      - A single observation proves nothing, so with V(1) every repair is refused.
    type: int
    default: 2
  observation_seconds:
    description: Seconds from the first observation to the last. Nothing is waited for when nothing
      is suspicious.
    type: float
    default: 30
  pending_seconds:
    description: Seconds that a pod must have had its node and waited for its volume before that is
      reported (STOR-15).
    type: float
    default: 120
  required_metadata:
    description:
      - Keys that C(status.attachmentMetadata) of a VolumeAttachment must have, as a dictionary of
        driver to a list of keys (STOR-14).
      - V({"csi.huawei.com":["publishInfo"]}) is known. What is given for a driver replaces what is
        known of it, and an empty list switches the control off for it.
    type: dict
    default: {}
"""
