# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""On a node: keep what Python compiles out of zip archives, as it keeps what it compiles out of
files.

Ansible sends a module as a zip archive, out of which Python compiles all of ansible-core's part at
each call. An emulated processor takes longer for that than for the module itself. The code is found
again by the hash of its source, as in .pyc files of the kind "checked-hash" (PEP 552).
lab_bytecode.pth loads this into every Python of the node, so it imports nothing that is not there
already.
"""

from __future__ import annotations

import _imp
import marshal
import os
import zipimport
from _frozen_importlib_external import MAGIC_NUMBER

FOLDER = "/var/cache/lab-bytecode"
# zipimport is Python since 3.8 (Lib/zipimport.py); this function is where it compiles.
_compile = zipimport._compile_source  # type: ignore[attr-defined]
_KEY = int.from_bytes(MAGIC_NUMBER, "little")


def _hash(data: bytes) -> bytes:
    return _imp.source_hash(_KEY, data)


def _kept(path: str, source: bytes) -> object:
    """In place of zipimport's own function: the code of a module in the archive ``path``."""
    name = path.rpartition(".zip/")[2].replace("/", ".")
    place = f"{FOLDER}/{_hash(source).hex()}-{len(source)}-{name}"
    data = _read(place)
    # After a power loss a file may be cut short.
    if data[:8] != _hash(data[8:]):
        code = _compile(path, source)
        data = marshal.dumps(code)
        _write(place, _hash(data) + data)
        return code
    code = marshal.loads(data[8:])
    # The archive lies in another folder at each call.
    _imp._fix_co_filename(code, path)  # type: ignore[attr-defined]
    return code


def _read(place: str) -> bytes:
    try:
        with open(place, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _write(place: str, data: bytes) -> None:
    try:
        with open(f"{place}.{os.getpid()}", "wb") as file:
            file.write(data)
        os.rename(file.name, place)
    except OSError:
        # Another user, or a disk that is full or read-only because a test made it so.
        pass


zipimport._compile_source = _kept  # type: ignore[attr-defined]
