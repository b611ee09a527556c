# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable

from ansible.errors import AnsibleFilterError

from ..module_utils._fences.agents import secrets_in
from ..module_utils._fences.power import address_of, agent_call, sharing, way_of

DOCUMENTATION = r"""
name: bmc_of
short_description: Find the address of a node's BMC, how it is asked, and who else has it
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Two addresses are the same whatever the case of a host's name is, with or without a dot at its
    end, with or without the usual port, and however an IP address is spelled.
  - An address that can be read in two ways, as V(192.0.2.011), is none. A node that has such a one
    may have the BMC of any other node.
  - Nothing is resolved, so the name of a host and its IP address are two addresses.
options:
  _input:
    description: The BMC of each node, as the variable P(storage_ops.runbooks.node_fence#role) has
      it in C(node_fence_bmcs).
    type: dict
    required: true
  node:
    description: The name of the node.
    type: str
    required: true
  user:
    description: User of the BMC, for a fence agent.
    type: str
    default: ''
  password:
    description: Its password. It is in the result, so no task may show that.
    type: str
    default: ''
"""

EXAMPLES = r"""
---
- name: Show which nodes have one BMC
  ansible.builtin.debug:
    msg: "{{ (bmcs | storage_ops.runbooks.bmc_of(node='worker01')).shared }}"
  vars:
    bmcs:
      worker01: {kind: redfish, address: bmc01.example.com}
      worker02: {kind: redfish, address: "BMC01.example.com:443"}
  # Result: [worker02]
"""

RETURN = r"""
_value:
  description:
    - C(address), as it was given, or empty if there is none that can be read.
    - C(shared), the other nodes that have this BMC, or may have it.
    - C(way), how it is asked, V(redfish), V(ipmi), V(agent) or V(external); empty for a kind that
      is none.
    - C(agent), how its fence agent, or the command of kind V(external), is called, if it has one.
      C(host), where that is, C(argv), the program and its arguments, and C(input), its standard
      input without the action. C(hidden) are the values of these options. C(problem) is why it
      cannot be called.
    - C(secrets), a regular expression that finds user and password in any case and in their usual
      spellings, also together as in a header of HTTP. C(passwords) does not find the user alone.
  type: dict
"""


def bmc_of(
    bmcs: Mapping[str, Any], node: str, user: str = "", password: str = ""
) -> dict[str, Any]:
    """The address of a node's BMC, how it is asked, and who else has it."""
    if not isinstance(bmcs, Mapping):
        raise AnsibleFilterError(
            "bmc_of: this is no dictionary of BMCs: give node_fence_bmcs as "
            '{"worker01": {"kind": "redfish", "address": "192.0.2.11"}}, and run again'
        )
    address = address_of(bmcs, node)
    call = agent_call(bmcs, node, str(user), str(password))
    return {
        "address": address,
        "shared": sharing(bmcs, node),
        "way": way_of(str(bmcs[node].get("kind") or "")) if address else "",
        "agent": {**call._asdict(), "hidden": list(call.hidden), "argv": list(call.argv)},
        "secrets": secrets_in((str(user), str(password))),
        "passwords": secrets_in((str(password),), (str(user),)),
    }


class FilterModule:
    """The filter of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name and function."""
        return {"bmc_of": bmc_of}
