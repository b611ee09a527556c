# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""Argument specs that can be merged, so that modules share option groups without repeating them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import BadOption


@dataclass(frozen=True)
class ArgumentSpec:
    """Options as AnsibleModule takes them."""

    options: dict[str, dict[str, Any]] = field(default_factory=dict)

    def merge(self, *others: ArgumentSpec) -> ArgumentSpec:
        """A new spec with the options of this one and of ``others``."""
        merged = dict(self.options)
        for other in others:
            merged.update(other.options)
        return ArgumentSpec(merged)

    def to_kwargs(self) -> dict[str, Any]:
        """Keyword arguments for AnsibleModule."""
        return {"argument_spec": self.options}


def check_numbers(
    given: Mapping[str, Any], bounds: Mapping[str, float | tuple[float, float]]
) -> None:
    """Refuse options that are too small, too large, infinite or not a number.

    ``bounds``: option -> the least, or the least and the most. An option that is not given is left
    out. Raises BadOption that names the first one.
    """
    for name, bound in bounds.items():
        least, most = bound if isinstance(bound, tuple) else (bound, sys.float_info.max)
        value = given.get(name)
        # Not "value < least": NaN, which Ansible takes for a float, is no less than anything.
        if value is not None and not least <= value <= most:
            fits = f"{least:g} to {most:g}" if isinstance(bound, tuple) else f"at least {least:g}"
            raise BadOption(f"{name} is {value:g}; give {fits}")
