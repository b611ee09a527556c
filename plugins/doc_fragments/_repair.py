# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this doc fragment is **PRIVATE** to the collection. It can have breaking changes at any
# time.

from __future__ import annotations


class ModuleDocFragment:
    """Options that several modules which repair share."""

    STRICT = r"""
options:
  strict:
    description:
      - Fail the task when a repair is refused.
      - The refusal of an object that an option names, as by its WWID, path or name, always fails
        the task.
    type: bool
    default: false
"""

    LIMIT = r"""
options:
  max_repairs:
    description: Repair at most this many objects in one run; the others are refused until the next
      run.
    type: int
    default: 10
"""
