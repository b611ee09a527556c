# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""mountinfo that tests write as a text."""

from __future__ import annotations

from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.mounts import (
    Mount,
    each_mount,
)


def parse_mountinfo(text: str, pid: str) -> list[Mount]:
    """The mounts in a mountinfo file. Raises StorageOpsError for a line of another form."""
    # Mount points may contain the other characters at which str.splitlines would split.
    return list(each_mount(text.encode("utf-8", "surrogatepass").split(b"\n"), pid))
