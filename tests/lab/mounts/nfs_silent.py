# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An NFS server that is there and says nothing: it answers the null calls by which a client sees
that it is there, and no other.

Usage: nfs_silent ADDRESS
"""

from __future__ import annotations

import socket
import struct
import sys
import threading


def main() -> None:
    listener = socket.create_server((sys.argv[1], 2049))
    while True:
        connection, _peer = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def answer(connection: socket.socket) -> None:
    """One connection.

    RFC 5531: each call has its length before it; number, call, RPC version, program, its version,
    procedure.
    """
    with connection.makefile("rb") as calls:
        while True:
            head = calls.read(4)
            if len(head) < 4:
                return
            call = calls.read(struct.unpack(">I", head)[0] & 0x7FFFFFFF)
            number, _call, _rpc, _program, _version, procedure = struct.unpack(">6I", call[:24])
            if procedure == 0:
                connection.sendall(struct.pack(">7I", 0x80000000 | 24, number, 1, 0, 0, 0, 0))


if __name__ == "__main__":
    main()
