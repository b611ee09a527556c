# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which tests run, by marks of single parameters; the lowest ansible-core is not for
every Python.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

__all__ = ["HAS_LOWEST", "lowest", "variation"]

# ansible-core 2.16 does not run on a newer Python, so nothing can be installed there. Everywhere
# else it must be: nothing is skipped.
HAS_LOWEST = sys.version_info < (3, 13) or "STORAGE_OPS_LOWEST" in os.environ


def variation(*values: Any) -> Any:
    """Parameters of a test that are one of its variations: CI runs a share of them at a time."""
    return pytest.param(*values, marks=pytest.mark.variation)


def lowest(program: str) -> str:
    """A program of the lowest supported ansible-core; a KeyError says that tests/lab/bootstrap.sh
    lowest was not run.
    """
    if not HAS_LOWEST:
        pytest.skip(
            "NOT TESTED: ansible-core 2.16 does not run on Python "
            "3.13, which this machine's tests run on"
        )
    return f"{os.environ['STORAGE_OPS_LOWEST']}/bin/{program}"
