# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Callable

from ansible.errors import AnsibleFilterError

DOCUMENTATION = r"""
name: dictionary
short_description: Read a variable that is a dictionary, or the JSON text of one
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - An AWX survey sends every answer as text, and an unanswered question as an empty text, which is
    an empty dictionary.
  - The message about anything else names the variable, and never its value, which may be a secret.
options:
  _input:
    description: The value of the variable.
    type: raw
    required: true
  name:
    description: The name of the variable, for the message.
    type: str
    required: true
"""

EXAMPLES = r"""
---
- name: Read the answer of a survey
  ansible.builtin.debug:
    msg: "{{ answer | storage_ops.runbooks.dictionary('answer') }}"
  vars:
    answer: '{"worker-1": "host1"}'
"""

RETURN = r"""
_value:
  description: The dictionary.
  type: dict
"""


def dictionary(given: Any, name: str) -> Mapping[str, Any]:
    """The dictionary that a variable is, or holds as JSON."""
    if isinstance(given, str):
        try:
            given = json.loads(given) if given.strip() else {}
        # The message has a position, and nothing of the text.
        except (ValueError, RecursionError) as error:
            raise _refusal(name, f"no valid JSON: {error}") from None
    if not isinstance(given, Mapping):
        raise _refusal(name, "no dictionary")
    return given


def _refusal(name: str, cause: str) -> AnsibleFilterError:
    return AnsibleFilterError(
        f'{name} is {cause}. Give a dictionary or its JSON text, as {{"name": "value"}}, '
        "then run again"
    )


class FilterModule:
    """The filter of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name and function."""
        return {"dictionary": dictionary}
