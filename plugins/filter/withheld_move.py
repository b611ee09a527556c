# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable

from ansible.errors import AnsibleFilterError

from ..module_utils._attachments.moves import withheld
from ..module_utils._core.errors import words

DOCUMENTATION = r"""
name: withheld_move
short_description: Say why a workload is not moved after moves of others have failed
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - A move that fails may be the fault of who owns the workload, as of a pod that never becomes
    Ready. Then only the further workloads of its namespace with the same driver are not moved.
  - When moves in two namespaces have failed with the same driver, no further workload of that
    driver is moved, since moving them would break them all.
options:
  _input:
    description: The C(workload) of a finding of M(storage_ops.runbooks.volumeattachment_repair).
    type: dict
    required: true
  failed:
    description:
      - The workloads whose moves have failed in this run, each with the C(code) of its failure
        where it has one.
      - After V(interrupted) no workload is moved.
    type: list
    elements: dict
    default: []
"""

EXAMPLES = r"""
---
- name: Show why a workload is not moved
  ansible.builtin.debug:
    msg: "{{ workload | storage_ops.runbooks.withheld_move(failed=[other]) }}"
  vars:
    workload: {namespace: shop, drivers: [csi.example.com]}
    other: {namespace: shop, drivers: [csi.example.com]}
  # Result: a move in its namespace failed with the driver csi.example.com
"""

RETURN = r"""
_value:
  description: Why it is not moved. Empty if it is.
  type: str
"""


def withheld_move(workload: Mapping[str, Any], failed: Sequence[Mapping[str, Any]] = ()) -> str:
    """Why a workload is not moved; empty if it is."""
    try:
        return withheld(workload, failed)
    # What raises these has another form than the module's results; the text names the key.
    except (AttributeError, KeyError, TypeError) as error:
        raise AnsibleFilterError(
            f"withheld_move: this is no workload of volumeattachment_repair: {words(error)}"
        ) from error


class FilterModule:
    """The filter of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name and function."""
        return {"withheld_move": withheld_move}
