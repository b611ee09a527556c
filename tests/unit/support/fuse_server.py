# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A FUSE filesystem that may have one entry, "sub". Only the standard library: it is also a program
that mounts: ``python fuse_server.py TARGET [MODE [UNPUBLISHED]]``.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys

_LIBC = ctypes.CDLL(None, use_errno=True)
# include/uapi/linux/fuse.h, opcodes.
_LOOKUP, _FORGET, _GETATTR, _STATFS, _INIT, _OPENDIR, _READDIR = 1, 2, 3, 17, 26, 27, 28
_RELEASEDIR, _BATCH_FORGET = 29, 42
_ENOENT, _ENOSYS = -2, -38
BIND, DETACH = 4096, 2
FOLDER, FILE = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o644


def call(function: str, *arguments: bytes | int | None) -> None:
    if getattr(_LIBC, function)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{function} {arguments}")


def fuse_mount(point: str) -> int:
    """Mount at a point; the descriptor of its connection."""
    connection = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={connection},rootmode=40000,user_id=0,group_id=0,allow_other"
    call("mount", b"s3fs", point.encode(), b"fuse.s3fs", 0, options.encode())
    return connection


def serve(connection: int, sub: int = 0) -> int:
    """Answer for a folder, in a child, until this process ends; its process ID.

    ``sub``: the mode of what is in it; 0 for nothing.
    """
    server = os.fork()
    if server:
        return server
    while True:
        request = os.read(connection, 1 << 17)
        _length, operation, unique, node = struct.unpack_from("=IIQQ", request)
        if operation not in (_FORGET, _BATCH_FORGET):
            error, data = _answer(operation, node, request[40:], sub)
            os.write(connection, struct.pack("=IiQ", 16 + len(data), error, unique) + data)


def _attributes(node: int, mode: int) -> bytes:
    """fuse_attr."""
    return struct.pack("=6Q10I", node, *[0] * 5, *[0] * 3, mode, 2, *[0] * 3, 4096, 0)


def _answer(operation: int, node: int, text: bytes, sub: int) -> tuple[int, bytes]:
    """fuse_entry_out, fuse_attr_out, fuse_kstatfs, fuse_init_out and fuse_open_out."""
    if operation == _LOOKUP:
        if not sub or text.split(b"\0")[0] != b"sub":
            return _ENOENT, b""
        return 0, struct.pack("=4Q2I", 2, 0, 0, 0, 0, 0) + _attributes(2, sub)
    mode = FOLDER if node == 1 else sub
    answers = {
        _GETATTR: struct.pack("=QII", 0, 0, 0) + _attributes(node, mode),
        _STATFS: struct.pack("=5Q4I24x", 1, 1, 1, 1, 1, 512, 255, 512, 0),
        _INIT: struct.pack("=4I2H2I2H8I", 7, 31, 65536, 0, 0, 0, 65536, 0, 0, 0, *[0] * 8)[:64],
        _OPENDIR: struct.pack("=QII", 1, 0, 0),
        _READDIR: b"",
        _RELEASEDIR: b"",
    }
    return (0, answers[operation]) if operation in answers else (_ENOSYS, b"")


def unpublish(folder: str) -> None:
    """What the kubelet does once a pod is deleted."""
    call("umount2", f"{folder}/mount".encode(), DETACH)
    os.rmdir(f"{folder}/mount")
    os.unlink(f"{folder}/vol_data.json")
    os.rmdir(folder)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        unpublish(sys.argv[3])
    serve(fuse_mount(sys.argv[1]), int(sys.argv[2], 8) if len(sys.argv) > 2 else FOLDER)
    # The server goes on in the background, as most programs do.
    os._exit(0)
