# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Callable

DOCUMENTATION = r"""
name: dead_mounts
short_description: Keep of a node's findings only known volumes and paths
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Root on a node may answer in place of the module, with any lists of any length. An expression
    that crosses two of them takes all time and memory of the controller.
  - So a playbook remembers no more of the findings than this filter returns. The number of volumes
    and paths in it is limited by what the cluster and the operator have named.
options:
  _input:
    description: The findings of M(storage_ops.runbooks.fuse_remount).
    type: list
    required: true
  volumes:
    description:
      - The volumes that the cluster has on this node, each with its name as C(volume) and the
        C(uid) of each of its C(pods).
      - A volume counts only together with one of these pods, since a tenant chooses the name of an
        inline volume.
    type: list
    elements: dict
    required: true
  paths:
    description: The mount points that the operator has given.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
---
- name: Show which volumes have a mount to repair
  ansible.builtin.debug:
    msg: "{{ found | storage_ops.runbooks.dead_mounts(volumes=known, paths=['/mnt']) }}"
  vars:
    known:
      - volume: pv-1
        pods: [{uid: 0a1b2c3d-1111-2222-3333-444455556666}]
    found:
      - verdict: repair
        evidence:
          volumes: [pv-1, pv-of-another-node]
          pods: [0a1b2c3d-1111-2222-3333-444455556666]
        given: [/mnt]
  # Result: {"any": true, "volumes": {"pv-1": ["/mnt"]}}
"""

RETURN = r"""
_value:
  description:
    - C(any), whether there is a mount to repair, also of another volume.
    - C(volumes), the given volumes with such a mount. The value of each is the list of
      given paths that its finding is about.
  type: dict
"""


def dead_mounts(
    findings: Any, volumes: Iterable[dict[str, Any]], paths: Iterable[str] = ()
) -> dict[str, Any]:
    """Whether a mount is to be repaired, and the known volumes and paths of those that are."""
    pods = {one["volume"]: {pod["uid"] for pod in one["pods"]} for one in volumes}
    uids = {uid: uid for every in pods.values() for uid in every}
    names, given = ({text: text for text in texts} for texts in (pods, paths))
    repairs = [one for one in _dictionaries(findings) if one.get("verdict") == "repair"]
    found: dict[str, set[str]] = {}
    for finding in repairs:
        evidence = finding.get("evidence")
        named = evidence if isinstance(evidence, dict) else {}
        # The steps of the repair name them, too, but have room only for some.
        targets = _known(_items(finding.get("given")), given)
        theirs = _known(_items(named.get("pods")), uids)
        for volume in _known(_items(named.get("volumes")), names):
            if pods[volume] & theirs:
                found.setdefault(volume, set()).update(targets)
    return {"any": bool(repairs), "volumes": {key: sorted(found[key]) for key in sorted(found)}}


def _known(said: Iterable[Any], known: dict[str, str]) -> set[str]:
    """The known ones among these, each once, and not as they were said."""
    # What is no text may have no hash.
    return {known[text] for text in said if isinstance(text, str) and text in known}


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dictionaries(value: Any) -> Iterator[dict[str, Any]]:
    return (one for one in _items(value) if isinstance(one, dict))


class FilterModule:
    """The filter of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name and function."""
        return {"dead_mounts": dead_mounts}
