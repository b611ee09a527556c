# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A FUSE server whose backend is stuck, ``fuse_stuck.py POINT``: statvfs is answered, a listing
never, until /run/unstuck is there.
"""

from __future__ import annotations

import os
import stat
import sys
import time

import fusepy  # type: ignore[import-not-found]


class Stuck(fusepy.Operations):  # type: ignore[misc]
    """One folder."""

    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        """A folder, and nothing in it."""
        if path != "/":
            raise fusepy.FuseOSError(2)
        return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}

    def readdir(self, path: str, fh: int) -> list[str]:
        """Wait."""
        while not os.path.exists("/run/unstuck"):
            time.sleep(0.2)
        return [".", ".."]

    def statfs(self, path: str) -> dict[str, int]:
        """Known without asking anybody."""
        return {"f_bsize": 4096, "f_blocks": 1}


if __name__ == "__main__":
    fusepy.FUSE(
        Stuck(), sys.argv[1], foreground=True, fsname="stuck", subtype="lab", allow_other=True
    )
