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
    description: Check only the VolumeAttachments with these names, and no PersistentVolumes or
      pods.
    type: list
    elements: str
    default: []
  drivers:
    description: Check only volumes of these CSI drivers.
    type: list
    elements: str
    default: []
  nodes:
    description: Check only objects of these nodes.
    type: list
    elements: str
    default: []
  namespaces:
    description: Check only pods in these namespaces, and volumes whose claims are in them.
    type: list
    elements: str
    default: []
"""

    JUDGING = r"""
options:
  min_age_seconds:
    description:
      - Minimum age in seconds of a VolumeAttachment before it can count as left over.
      - A VolumeAttachment that is being deleted for longer than this is reported.
    type: float
    default: 300
  observations:
    description:
      - How often a suspicious object is read before it is judged. Everything else is read once.
      - A single observation proves nothing, so with V(1) every repair is refused.
    type: int
    default: 2
  observation_seconds:
    description: Seconds from the first observation to the last. There is no wait if nothing is
      suspicious.
    type: float
    default: 30
  pending_seconds:
    description: Seconds that a scheduled pod must have waited for its volume before it is reported
      (STOR-15).
    type: float
    default: 120
  required_metadata:
    description:
      - Keys that C(status.attachmentMetadata) of a VolumeAttachment must have, as a dictionary of
        driver to a list of keys (STOR-14).
      - V({"csi.huawei.com":["publishInfo"]}) is built in. An entry for a driver replaces its
        built-in keys; an empty list disables the control for the driver.
    type: dict
    default: {}
"""
