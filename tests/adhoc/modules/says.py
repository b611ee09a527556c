# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A module that returns what it is told to, as JSON text: ours say something hostile only on a node
that is hostile.
"""

from __future__ import annotations

import json

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={"result": {"type": "str", "required": True}}, supports_check_mode=True
    )
    result = json.loads(module.params["result"])
    if result.pop("fails"):
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
