# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a fence agent has said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable

from ..module_utils._fences.agents import said_of

DOCUMENTATION = r"""
name: agent_said
short_description: Judge what a fence agent has said of the power of a machine
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - >-
    A machine is off if the agent exits with 2 and prints C(Status: OFF), and on if it exits with 0
    and prints C(Status: ON). Anything else says nothing about it.
  - An agent that does not switch power, as its metadata shows, is not believed.
options:
  _input:
    description: The results of M(ansible.builtin.command), in a loop over the actions of the agent,
      for example V(metadata) and V(status).
    type: list
    elements: dict
    required: true
  plug:
    description: Whether the agent was told which of several machines is meant.
    type: bool
    default: false
  hidden:
    description: What no message may show.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
---
- name: Show what the agent said
  ansible.builtin.debug:
    msg: "{{ asked.results | storage_ops.runbooks.agent_said }}"
  # Result: {"state": "off", "status": 0, "problem": ""}
"""

RETURN = r"""
_value:
  description:
    - C(state), V(on), V(off) or empty.
    - C(status), the exit code of an agent that failed. V(-1) if it has none, or if what the agent
      printed contradicts it.
    - C(problem), what was said instead of a state.
  type: dict
"""


def agent_said(
    answers: Sequence[Mapping[str, Any]], plug: bool = False, hidden: Sequence[str] = ()
) -> dict[str, Any]:
    """What the answers of one look come to."""
    return said_of(answers, hidden, plug)._asdict()


class FilterModule:
    """The filter of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name and function."""
        return {"agent_said": agent_said}
