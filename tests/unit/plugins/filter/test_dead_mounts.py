# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is kept of a node's findings, whatever it says."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.filter.dead_mounts import FilterModule

kept = FilterModule().filters()["dead_mounts"]
ONE = {"verdict": "repair", "evidence": {"volumes": ["pv-1"]}, "repair": [{"target": "/mnt"}]}


def test_the_example_of_its_documentation() -> None:
    found = [{**ONE, "evidence": {"volumes": ["pv-1", "pv-of-another-node"]}}]
    assert kept(found, volumes=["pv-1"], paths=["/mnt"]) == {
        "any": True,
        "volumes": {"pv-1": ["/mnt"]},
    }
    assert kept([ONE], ["pv-1"]) == {"any": True, "volumes": {"pv-1": []}}
    assert kept([{**ONE, "verdict": "refuse"}], ["pv-1"]) == {"any": False, "volumes": {}}


@pytest.mark.parametrize("odd", [None, "x", 7, {}, [[]], [{}], {"volumes": "pv-1"}, [["pv-1"]]])
def test_of_another_form_nothing_is_kept(odd: Any) -> None:
    assert kept(odd, ["pv-1"], ["/mnt"])["volumes"] == {}
    for part in ("evidence", "verdict"):
        assert kept([{**ONE, part: odd}], ["pv-1"], ["/mnt"])["volumes"] == {}
    assert kept([{**ONE, "evidence": {"volumes": odd}}], ["pv-1"])["volumes"] == {}
    only = kept([{**ONE, "repair": odd}, {**ONE, "repair": [{"target": odd}]}], ["pv-1"], ["/mnt"])
    assert only["volumes"] == {"pv-1": []}
