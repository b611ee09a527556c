# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""Argument specs that can be merged, so that modules share option groups without repeating them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


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
