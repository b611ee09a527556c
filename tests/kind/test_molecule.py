# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Molecule scenarios of roles that need no block device, on this cluster instead of one of
their own (extensions/molecule/kind, and attachment_repair, which accepts any cluster).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from lab.common import patient
from lab.kind.buckets import BucketDriver
from lab.kind.csi import Driver
from support.kind import KindCluster

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 400.0
# What a scenario says that needs a driver whose volumes are buckets, before the bucket.
BUCKET = "LAB_KIND_WITH: --bucket "
SCENARIOS = {
    found.parent.name: found.read_text()
    for found in sorted(ROOT.glob("extensions/molecule/*/molecule.yml"))
    if "../kind/create.yml" in found.read_text() or found.parent.name == "attachment_repair"
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(
    cluster: KindCluster, driver: Driver, scenario: str, request: pytest.FixtureRequest
) -> None:
    _told, needs, after = SCENARIOS[scenario].partition(BUCKET)
    if needs:
        buckets: BucketDriver = request.getfixturevalue("bucket_driver")
        buckets.gateway.put(after.split()[0])
    _run(
        scenario,
        LAB_KIND=cluster.kind.name,
        CLUSTER_PROVIDER="given",
        K8S_AUTH_KUBECONFIG=str(cluster.kubeconfig()),
    )
    assert cluster.left() == [] and driver.attached() == {}


def _run(scenario: str, **variables: str) -> None:
    """As a user does, with these variables. Of this process's own none chooses the cluster."""
    own = {key: text for key, text in os.environ.items() if not key.startswith("K8S_AUTH_")}
    answer = subprocess.run(
        ["molecule", "test", "--scenario-name", scenario],
        check=False,
        capture_output=True,
        text=True,
        timeout=patient(DEADLINE),
        cwd=ROOT,
        env={**own, **variables, "NO_COLOR": "1"},
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
