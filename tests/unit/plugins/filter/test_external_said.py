# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter as a template calls it."""

from __future__ import annotations

import json

from ansible_collections.storage_ops.runbooks.plugins.filter.external_said import FilterModule

external_said = FilterModule().filters()["external_said"]


def test_the_example_of_its_documentation() -> None:
    said = {
        "node": "worker06",
        "state": "off",
        "provider_id": "aws:///eu-central-1a/i-0abc",
        "since": "2026-01-01T12:00:00Z",
    }
    asked = {"cmd": ["/bin/power-of"], "rc": 0, "stdout": json.dumps(said)}
    assert external_said([asked]) == {
        **{"node": "worker06", "state": "off", "system": "aws:///eu-central-1a/i-0abc", "uuid": ""},
        **{"since": "2026-01-01T12:00:00Z", "status": 0, "problem": ""},
    }
