# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The first of ours that each module imports and calls: an older Python ends here, with a message.

What comes after it is a SyntaxError there. So this file and the modules themselves keep to what
Python 3.6 can read, and lack ``from __future__ import annotations``, which it cannot.
"""

import json
import sys

OLDEST = (3, 9)


def require() -> None:
    """End the module, as a failed one, where Python is older than OLDEST."""
    if sys.version_info[:2] >= OLDEST:
        return
    message = (
        "storage_ops.runbooks requires Python %d.%d or later on this host, and %s is Python %d.%d: "
        "install a later one beside it (RHEL 8: python3.12), and "
        "set ansible_python_interpreter to it"
    )
    words = OLDEST + (sys.executable,) + tuple(sys.version_info[:2])
    # In the form of fail_json: an AnsibleModule does not exist yet.
    sys.stdout.write(
        json.dumps({"failed": True, "msg": message % words, "code": "program_missing"})
    )
    raise SystemExit(1)
