# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one check of numbers that users give."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.argspec import (
    check_numbers,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import BadOption


@pytest.mark.parametrize(
    ("value", "bound", "fits"),
    [
        (0.5, 1, "at least 1"),
        (float("nan"), 1, "at least 1"),
        (float("inf"), 1, "at least 1"),
        (61, (1, 60), "1 to 60"),
        (0, (1, 60), "1 to 60"),
    ],
)
def test_numbers_that_fit_nothing(value: float, bound: Any, fits: str) -> None:
    with pytest.raises(BadOption, match=f"seconds is .*; give {fits}$"):
        check_numbers({"seconds": value}, {"seconds": bound})


def test_numbers_that_fit() -> None:
    check_numbers({"seconds": 1, "left_out": None}, {"seconds": (1, 1), "left_out": 3, "other": 3})
