# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable

from ansible.errors import AnsibleFilterError

from ..module_utils._core.errors import StorageOpsError, words
from ..module_utils._fuse_mounts.volumes import fuse_volumes as join

DOCUMENTATION = r"""
name: fuse_volumes
short_description: Make the volumes of fuse_remount from those of csi_volume_info
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Turns what M(storage_ops.runbooks.csi_volume_info) returned into the options
    O(storage_ops.runbooks.fuse_remount#module:volumes) and
    O(storage_ops.runbooks.fuse_remount#module:credentials), the latter with the credentials of
    their Secrets.
  - The program is the C(mounter) of a volume's attributes or of its StorageClass. A source
    C(bucket/folder) is written as that program wants it.
  - The result holds credentials. Use it in a task with C(no_log), or straight as the options.
options:
  _input:
    description: RV(storage_ops.runbooks.csi_volume_info#module:volumes).
    type: list
    elements: dict
    required: true
  unused:
    description: RV(storage_ops.runbooks.csi_volume_info#module:unused), of which no pod is left on
      the node.
    type: list
    elements: dict
    default: []
  secrets:
    description: The Secrets, as M(storage_ops.runbooks.csi_secret_info) returns them.
    type: list
    elements: dict
    default: []
  credential_keys:
    description:
      - By the name of a credential, keys of a Secret that hold it, the best first.
      - The credentials C(endpoint) and C(region) are no secrets, and become the options of these
        names.
    type: dict
    default: {}
  drivers:
    description: By CSI driver, parts of an entry that are known better than from the cluster, for
      example C(recipe) or C(command).
    type: dict
    default: {}
  given:
    description:
      - The user's own entries. One with the same C(volume) overrides the found one key by key;
        others are added.
      - These may have C(credentials) as well.
    type: list
    elements: dict
    default: []
  leaving:
    description: Treat all pods as being deleted, as for a plan of what follows their deletion.
    type: bool
    default: false
"""

EXAMPLES = r"""
---
- name: Repair the mounts of an S3 driver on a node
  storage_ops.runbooks.fuse_remount:
    volumes: "{{ found.volumes }}"
    credentials: "{{ found.credentials }}"
  become: true
  vars:
    found: >-
      {{ s3.volumes
         | storage_ops.runbooks.fuse_volumes(secrets=read.secrets, credential_keys=keys) }}
    keys:
      access_key: [accessKeyID]
      secret_key: [secretAccessKey]
      endpoint: [endpoint]
"""

RETURN = r"""
_value:
  description: C(volumes) and C(credentials), the options of M(storage_ops.runbooks.fuse_remount) of
    these names.
  type: dict
"""


def fuse_volumes(
    volumes: Sequence[Mapping[str, Any]],
    unused: Sequence[Mapping[str, Any]] = (),
    secrets: Sequence[Mapping[str, Any]] = (),
    credential_keys: Mapping[str, Sequence[str]] | None = None,
    drivers: Mapping[str, Mapping[str, Any]] | None = None,
    given: Sequence[Mapping[str, Any]] = (),
    leaving: bool = False,
) -> dict[str, Any]:
    """Volumes and credentials as fuse_remount takes them."""
    try:
        return join(volumes, unused, secrets, credential_keys or {}, drivers or {}, given, leaving)
    except StorageOpsError as error:
        raise AnsibleFilterError(f"fuse_volumes: {error}") from error
    # What raises these has another form than the modules' results; the text names the key.
    except (AttributeError, KeyError, TypeError) as error:
        raise AnsibleFilterError(
            "fuse_volumes: this is not what csi_volume_info and csi_secret_info return: "
            f"{words(error)}"
        ) from error


class FilterModule:
    """The filter of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name and function."""
        return {"fuse_volumes": fuse_volumes}
