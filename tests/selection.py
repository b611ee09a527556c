# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which tests CI has time for: the others are variations of them, and run with ALL=1."""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["variation"]


def variation(*values: Any) -> Any:
    """Parameters of a test that CI leaves out, since it has others of the same test."""
    return pytest.param(*values, marks=pytest.mark.variation)
