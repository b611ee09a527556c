# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is kept of a node's findings, whatever it says."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.filter.dead_mounts import FilterModule

kept = FilterModule().filters()["dead_mounts"]
KNOWN = [{"volume": "pv-1", "pods": [{"uid": "1"}, {"uid": "2"}]}]
NAMED = {"volumes": ["pv-1"], "pods": ["2"]}
ONE = {"verdict": "repair", "evidence": NAMED, "given": ["/mnt"]}


def test_the_example_of_its_documentation() -> None:
    found = [{**ONE, "evidence": {"volumes": ["pv-1", "pv-of-another-node"], "pods": ["2"]}}]
    assert kept(found, volumes=KNOWN, paths=["/mnt"]) == {
        "any": True,
        "volumes": {"pv-1": ["/mnt"]},
    }
    assert kept([ONE], KNOWN) == {"any": True, "volumes": {"pv-1": []}}
    assert kept([{**ONE, "verdict": "refuse"}], KNOWN) == {"any": False, "volumes": {}}


@pytest.mark.parametrize("odd", [None, "x", 7, {}, [[]], [{}], {"volumes": "pv-1"}, [["pv-1"]]])
def test_of_another_form_nothing_is_kept(odd: Any) -> None:
    assert kept(odd, KNOWN, ["/mnt"])["volumes"] == {}
    for part in ("evidence", "verdict"):
        assert kept([{**ONE, part: odd}], KNOWN, ["/mnt"])["volumes"] == {}
    for name in NAMED:
        assert kept([{**ONE, "evidence": {**NAMED, name: odd}}], KNOWN)["volumes"] == {}
    only = kept([{**ONE, "given": odd}, {**ONE, "given": [odd]}], KNOWN, ["/mnt"])
    assert only["volumes"] == {"pv-1": []}


@pytest.mark.parametrize("pods", [[], ["3"]])
def test_a_volume_counts_only_with_a_pod_of_it(pods: list[str]) -> None:
    """A tenant chooses the name of an inline volume."""
    others = [*KNOWN, {"volume": "pv-3", "pods": [{"uid": "3"}]}]
    found = [{**ONE, "evidence": {**NAMED, "pods": pods}}]
    assert kept(found, others, ["/mnt"]) == {"any": True, "volumes": {}}
