# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a kind cluster is made of, where nothing of it can be had."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from lab.kind.build import attacher, driver, kubernetes_version, node_programs, provisioner
from lab.kubernetes.build import CURRENT, Binaries, Unavailable, locate


@pytest.mark.parametrize("part", [node_programs, driver, attacher, provisioner])
def test_out_of_reach(
    part: Callable[[], Binaries], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No module can be had: it says so, and nothing counts as built."""
    monkeypatch.setenv("STORAGE_OPS_CACHE", str(tmp_path))
    monkeypatch.setenv("GOPROXY", "off")
    monkeypatch.setenv("LAB_DEBIAN_MIRROR", "http://127.0.0.1:9/debian")
    with pytest.raises(Unavailable):
        part()
    assert [found.name for found in (tmp_path / "kubernetes").glob("[!.]*")] == ["build.lock"]


def test_nodes_have_the_version_of_the_control_planes() -> None:
    assert kubernetes_version() == locate(CURRENT).version
