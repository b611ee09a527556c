# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter as a template calls it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.storage_ops.runbooks.plugins.filter.withheld_move import FilterModule

move = FilterModule().filters()["withheld_move"]
SHOP = {"namespace": "shop", "drivers": ["a"]}


def test_the_example_of_its_documentation() -> None:
    assert move(SHOP) == ""
    assert move(SHOP, failed=[SHOP]) == "a move in its namespace failed with the driver a"


@pytest.mark.parametrize(
    ("workload", "failed"),
    [("shop", []), ({}, []), (SHOP, [{"namespace": "shop"}]), (SHOP, ["shop"]), (SHOP, None)],
)
def test_what_is_no_workload_is_refused(workload: Any, failed: Any) -> None:
    with pytest.raises(AnsibleFilterError, match="no workload of volumeattachment_repair"):
        move(workload, failed)
