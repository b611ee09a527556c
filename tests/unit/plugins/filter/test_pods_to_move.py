# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter as a template calls it; tests/unit/roles/test_fuse_recovery_role.py has more."""

from __future__ import annotations

from ansible_collections.storage_ops.runbooks.plugins.filter.pods_to_move import FilterModule

to_move = FilterModule().filters()["pods_to_move"]


def test_the_example_of_its_documentation() -> None:
    told = [{"uid": "u1", "claims": ["data"]}, {"uid": "of-another-node", "claims": ["data"]}]
    container = {"pod": "u1", "namespace": "shop", "claim": "data"}
    assert to_move(told, [container], 10) == [container]
    assert to_move(told, [container], 0) == to_move(None, [container], 10) == []
