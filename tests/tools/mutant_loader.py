# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plugin of pytest that has one file of the collection imported as another text: see mutants.py.

The working tree stays as it is, so that other tests can run beside it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

FILE = os.path.realpath(os.environ["MUTANT_FILE"])
TEXT = Path(os.environ["MUTANT_TEXT"])
_get_data, _path_stats = SourceFileLoader.get_data, SourceFileLoader.path_stats


def _data(self: SourceFileLoader, path: str) -> bytes:
    return TEXT.read_bytes() if os.path.realpath(path) == FILE else _get_data(self, path)


def _stats(self: SourceFileLoader, path: str) -> Mapping[str, Any]:
    # The loader takes this for "no compiled file", and so compiles the text.
    if os.path.realpath(path) == FILE:
        raise OSError("a mutant")
    return _path_stats(self, path)


SourceFileLoader.get_data = _data  # type: ignore[method-assign]
SourceFileLoader.path_stats = _stats  # type: ignore[method-assign]
