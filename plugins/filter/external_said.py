# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a command has said of a node that others have switched off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable

from ..module_utils._fences.external import told_of

DOCUMENTATION = r"""
name: external_said
short_description: Read what a command has said of the power of a node
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - The command exits with 0 and prints one JSON object. C(node) is the name of the node in
    Kubernetes, and C(state) is V(on) or V(off). C(provider_id) and C(system_uuid) say which machine
    it is, as C(spec.providerID) and C(status.nodeInfo.systemUUID) of the Node do. C(since) is since
    when it has that state.
  - Whether this is about the right machine, is judged by the modules.
options:
  _input:
    description: The results of M(ansible.builtin.command). The last one counts.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
---
- name: Show what the command said
  ansible.builtin.debug:
    msg: "{{ [asked] | storage_ops.runbooks.external_said }}"
  # Result: {"node": "worker06", "state": "off", "system": "aws:///eu-central-1a/i-0abc",
  #          "uuid": "", "since": "2026-01-01T12:00:00Z", "status": 0, "problem": ""}
"""

RETURN = r"""
_value:
  description:
    - C(node), C(state) and C(since), as they were said; C(system), the C(provider_id), and C(uuid),
      the C(system_uuid). Empty for what was not said.
    - C(status), the exit code of a command that failed. V(-1) if it has none, or if what it printed
      is no such object.
    - C(problem), what was said instead of a state.
  type: dict
"""


def external_said(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the newest answer comes to."""
    return told_of(answers)._asdict()


class FilterModule:
    """The filter of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name and function."""
        return {"external_said": external_said}
