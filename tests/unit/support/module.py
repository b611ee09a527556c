# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part of AnsibleModule that the engine uses."""

from __future__ import annotations

from typing import Any


class Exit(SystemExit):
    """What AnsibleModule ends the process by."""


class Module:
    """``result``: what was returned, with ``failed``."""

    def __init__(self, check_mode: bool = False, diff: bool = False) -> None:
        self.check_mode = check_mode
        self._diff = diff
        self.result: dict[str, Any] = {}

    def exit_json(self, **result: Any) -> None:
        self.result = {"failed": False, **result}
        raise Exit

    def fail_json(self, **result: Any) -> None:
        self.result = {"failed": True, **result}
        raise Exit
