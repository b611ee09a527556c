# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this doc fragment is **PRIVATE** to the collection. It can have breaking changes at any
# time.

from __future__ import annotations


class ModuleDocFragment:
    """What modules of this collection can do."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return the findings and planned actions of a real run
      without changing anything.
    support: full
  diff_mode:
    description: Returns the findings before and after the repair when in diff mode.
    support: full
  idempotent:
    description: A second run right after a successful one finds nothing and changes nothing.
    support: full
  platform:
    description: Where the module runs.
    platforms: Linux
    support: full
"""

    INFO_MODULE = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return the findings and planned actions of a real run
      without changing anything.
    support: full
    details: This module never changes anything.
  diff_mode:
    description: Returns the findings before and after the repair when in diff mode.
    support: N/A
    details: This module never changes anything.
  idempotent:
    description: A second run right after a successful one finds nothing and changes nothing.
    support: full
    details: This module never changes anything.
  platform:
    description: Where the module runs.
    platforms: Linux
    support: full
"""

    ACTION = r"""
options: {}
attributes:
  action:
    description: Has an action plugin of the same name.
    support: full
"""

    ACTIONGROUP_NODE = r"""
options: {}
attributes:
  action_group:
    description: Use C(group/storage_ops.runbooks.node) in C(module_defaults) to set defaults for
      all modules that work on a node.
    support: full
    membership:
      - storage_ops.runbooks.node
"""

    ACTIONGROUP_CLUSTER = r"""
options: {}
attributes:
  action_group:
    description: Use C(group/storage_ops.runbooks.cluster) in C(module_defaults) to set defaults for
      all modules that use an API server.
    support: full
    membership:
      - storage_ops.runbooks.cluster
"""
