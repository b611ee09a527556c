# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The same scenarios, other multipath-tools, kernels and Pythons."""

from __future__ import annotations

from faults.test_residual_interrupted import test_somebody_opens_the_map_in_the_middle
from faults.test_residual_refusals import (
    test_all_portals_down,
    test_foreign_sense_code,
    test_one_portal_down,
)
from faults.test_residual_repair import (
    test_dead_map,
    test_disks_left_without_a_map,
    test_hung_reader_on_a_queueing_map,
    test_map_without_paths,
)
from faults.test_residual_reuse import reused, test_unused_map_is_replaced
from support.node import Node

__all__ = [
    "reused",
    "test_all_portals_down",
    "test_dead_map",
    "test_disks_left_without_a_map",
    "test_foreign_sense_code",
    "test_hung_reader_on_a_queueing_map",
    "test_map_without_paths",
    "test_one_portal_down",
    "test_somebody_opens_the_map_in_the_middle",
    "test_unused_map_is_replaced",
]

VERSIONS = {
    "bullseye": ("0.8.5", "3.9"),
    "bookworm": ("0.9.4", "3.11"),
    "trixie": ("0.11.1", "3.13"),
}


def test_versions_are_those_of_the_support_matrix(node: Node) -> None:
    multipath, python = VERSIONS[node.vm.release]
    assert node.sh("dpkg-query -W -f '${Version}' multipath-tools").startswith(multipath)
    assert node.sh("python3 --version").startswith(f"Python {python}.")
    audit = node.ansible("node_storage_info")
    # Debian 11 loads iscsi_tcp at boot by itself, later ones do not.
    assert {finding["control"] for finding in audit.findings} <= {"STOR-04"}
