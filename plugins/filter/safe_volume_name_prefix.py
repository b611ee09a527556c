# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

from ansible.errors import AnsibleFilterError

from ..module_utils._core.errors import StorageOpsError
from ..module_utils._kube.names import safe_prefix

DOCUMENTATION = r"""
name: safe_volume_name_prefix
short_description: Compute a volume name prefix that prevents the 68-character collision
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Before Kubernetes 1.24 the controller manager took a CSI volume for a VolumeAttachment when the
    driver's name begins with C(csi-) and C(DRIVER^HANDLE) is exactly 68 bytes long. It never
    detached such a volume (STOR-12).
  - Where the volume handle contains the volume's name, a longer C(--volume-name-prefix) of the
    external provisioner makes all handles longer. This computes the shortest prefix that begins
    with the current one and keeps every handle of the driver out of reach, also those whose number
    at the end has fewer digits than today's.
  - Existing volumes keep their handles. Check that the array accepts volume names of the new
    length.
options:
  _input:
    description:
      - Volume handles of the driver's PersistentVolumes, or one handle that is as short as they
        get.
      - Each must contain the current prefix; otherwise the prefix has no influence on its length
        and the filter fails.
      - Handles from before an earlier answer of this filter count as if they had been made with it,
        so that the answer stays the same.
    type: list
    elements: str
    required: true
  driver:
    description: Name of the CSI driver. If it does not begin with C(csi-), there is nothing to
      prevent, and O(prefix) is returned.
    type: str
    required: true
  prefix:
    description: The provisioner's current C(--volume-name-prefix).
    type: str
    default: pvc
"""

EXAMPLES = r"""
---
- name: Show a prefix that keeps the driver's volumes out of reach of the collision
  ansible.builtin.debug:
    msg: >-
      {{ handles
         | storage_ops.runbooks.safe_volume_name_prefix(driver=driver, prefix='csivol') }}
  vars:
    driver: csi-unity.dellemc.com
    handles:
      - csivol-c6b8f2c16a-iSCSI-fnm00153800463-sv_99
  # Result: csivolxxxx, since csi-unity.dellemc.com^csivol-c6b8f2c16a-iSCSI-fnm00153800463-sv_9
  # has 65 bytes
"""

RETURN = r"""
_value:
  description: The prefix, a DNS label. The current one if it is safe already.
  type: str
"""


def safe_volume_name_prefix(handles: str | Sequence[str], driver: str, prefix: str = "pvc") -> str:
    """The shortest safe prefix; fails where a prefix cannot help."""
    given = [handles] if isinstance(handles, str) else handles
    if not isinstance(given, (list, tuple)) or not all(
        isinstance(text, str) for text in (driver, prefix, *given)
    ):
        raise AnsibleFilterError(
            "safe_volume_name_prefix: give volume handles (a list of "
            "strings), driver and prefix (strings)"
        )
    try:
        return safe_prefix(driver, given, prefix)
    except StorageOpsError as error:
        raise AnsibleFilterError(f"safe_volume_name_prefix: {error}") from error


class FilterModule:
    """The filter of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name and function."""
        return {"safe_volume_name_prefix": safe_volume_name_prefix}
