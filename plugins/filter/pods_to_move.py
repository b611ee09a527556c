# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable

DOCUMENTATION = r"""
name: pods_to_move
short_description: Find the pods to move among those that the cluster has on a node
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - A node says by uid and claim which pods have to go. Nothing else that it says counts, since root
    on it may answer in place of the module. The cluster has said whose these pods are.
  - A node that answers falsely moves no more than its own pods, and the result is never longer than
    O(containers).
options:
  _input:
    description: The C(pods) of M(storage_ops.runbooks.container_restart).
    type: list
    required: true
  containers:
    description: The C(containers) of M(storage_ops.runbooks.csi_volume_info).
    type: list
    elements: dict
    required: true
  most:
    description: How many pods are moved at most. Of the others nothing is returned.
    type: int
    required: true
"""

EXAMPLES = r"""
---
- name: Show which claims have to be moved
  ansible.builtin.debug:
    msg: "{{ told | storage_ops.runbooks.pods_to_move(containers, 10) | map(attribute='claim') }}"
  vars:
    told: [{uid: u1, claims: [data]}, {uid: of-another-node, claims: [data]}]
    containers: [{pod: u1, namespace: shop, claim: data}]
  # Result: ["data"]
"""

RETURN = r"""
_value:
  description: The entries of O(containers) to move, one for each pod and claim.
  type: list
  elements: dict
"""


def pods_to_move(
    pods: Any, containers: Sequence[Mapping[str, Any]], most: int
) -> list[Mapping[str, Any]]:
    """The containers of the cluster's whose pods and claims the node has named."""
    known = {(one["pod"], one["claim"]): one for one in containers}
    uids = {pod for pod, _claim in known}
    told: dict[str, set[str]] = {}
    for pod in pods if isinstance(pods, list) else []:
        uid = pod.get("uid") if isinstance(pod, dict) else None
        # What is no text may have no hash. Of two answers about one pod the first counts.
        if not isinstance(uid, str) or uid not in uids or uid in told or len(told) >= int(most):
            continue
        claims = pod.get("claims")
        told[uid] = (
            {one for one in claims if isinstance(one, str)} if isinstance(claims, list) else set()
        )
    return [one for (pod, claim), one in known.items() if claim in told.get(pod, ())]


class FilterModule:
    """The filter of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name and function."""
        return {"pods_to_move": pods_to_move}
