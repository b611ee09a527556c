# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter as a template calls it; what an answer proves is in _fences/test_agents.py."""

from __future__ import annotations

from ansible_collections.storage_ops.runbooks.plugins.filter.agent_said import FilterModule

agent_said = FilterModule().filters()["agent_said"]
DESCRIBED = "".join(f'<action name="{name}"/>' for name in ("on", "off", "status", "reboot"))


def test_the_example_of_its_documentation() -> None:
    metadata = {"cmd": [], "item": "metadata", "rc": 0, "stdout": DESCRIBED}
    status = {"cmd": [], "item": "status", "rc": 2, "stdout": "Status: OFF"}
    assert agent_said([metadata, status]) == {"state": "off", "status": 0, "problem": ""}
    assert agent_said([metadata, status], plug=True)["state"] == ""
    failed = {"cmd": [], "item": "status", "rc": 1, "stderr": "hunter2"}
    assert agent_said([metadata, failed], hidden=["hunter2"])["problem"] == "***"
