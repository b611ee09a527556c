# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Numbers that a template has made. What the action does with AWX is tested in tests/runner."""

from __future__ import annotations

from ansible_collections.storage_ops.runbooks.plugins.action.awx_object import numbered


def test_numbers_are_numbers() -> None:
    given = {"name": "7", "forks": "50", "timeout": 0, "job_slice_count": "1", "default": "3"}
    wanted = {"name": "7", "forks": 50, "timeout": 0, "job_slice_count": 1, "default": "3"}
    assert numbered(given) == wanted
