# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The modules that judge what tenants wrote in the cluster end soon after their deadline, also
where no request takes the time.
"""

from __future__ import annotations

import importlib
import inspect
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import engine

MODULES = "ansible_collections.storage_ops.runbooks.plugins.modules"


@pytest.mark.parametrize(
    ("name", "runner"),
    [
        ("cluster_storage_info", engine.report_parts),
        ("csi_volume_info", engine.report),
        ("pod_volume_info", engine.report),
        ("volumeattachment_repair", engine.run),
        ("workload_reattach", engine.run),
    ],
)
def test_the_runner_knows_the_deadline(
    monkeypatch: pytest.MonkeyPatch, name: str, runner: Any
) -> None:
    module = importlib.import_module(f"{MODULES}.{name}")
    known: dict[str, Any] = {}

    def called(*given: Any, **more: Any) -> None:
        known.update(inspect.signature(runner).bind(*given, **more).arguments)

    def made(argument_spec: dict[str, Any], **_more: Any) -> SimpleNamespace:
        params = {option: spec.get("default") for option, spec in argument_spec.items()}
        return SimpleNamespace(params={**params, "deadline": 77.0}, no_log_values=set())

    monkeypatch.setattr(module, runner.__name__, called)
    monkeypatch.setattr(module, "AnsibleModule", made)
    module.main()
    assert known["deadline"] == 77.0
