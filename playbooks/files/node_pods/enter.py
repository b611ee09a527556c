# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs a module of Ansible on the node of this pod, with the pod's Python.

``enter.py`` alone is what the pod does: it makes an interpreter with the pod's uid as its name, and
waits. Ansible is told that path (``ansible_python_interpreter``), so a pod that the inventory has
not read has no such interpreter, whatever the pod's name is.

``enter.py run [FILE]`` is what the interpreter does. The module is in FILE, or comes by stdin
(pipelining). The process leaves the pod's namespaces for those of process 1. From there on paths,
devices, sockets and programs are the node's. Only Python's own library is still read from the pod,
through a descriptor of the pod's root.

node-pods.yml has a copy of this file.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import pwd
import signal
import sys
import tempfile

OLDEST = (3, 9)
# A folder of the pod alone. Ansible takes a path for an interpreter, without arguments.
INTERPRETERS = "/run/storage_ops/interpreters"
# A folder of the node that the pod has at the same path. What Ansible writes to one of the two is
# found in the other, and /run is in memory.
SHARED = "/run/storage_ops/pod"
# The mounts last: the descriptors of the others are opened in the pod's /proc. With hostPID the
# processes are the node's already, and the users are the first ones.
NAMESPACES = ("ipc", "net", "uts", "cgroup", "mnt")
# The dynamic loader looks for what these are linked with when they are imported. On the node it
# would find another release of it, or nothing.
LINKED = ("bz2", "hashlib", "lzma", "ssl", "uuid", "zlib")
# The same for the C library's ways to look up names (nsswitch.conf(5)); musl has none.
LOOKUPS = ("libnss_files.so.2", "libnss_dns.so.2")
# Of the image, for its own programs: those of the node would take other libraries by them.
NOT_FOR_THE_NODE = ("LD_", "PYTHON")


class Refused(Exception):
    """The module must not run. ``code``: one of plugins/module_utils/_core/codes.py."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def stay(uid: str) -> None:
    """Make the interpreter, and wait for the end of the pod."""
    path = f"{INTERPRETERS}/{uid}"
    with open(f"{path}.new", "w", encoding="ascii") as stream:
        stream.write(f'#!/bin/sh\nexec {sys.executable} -IS {__file__} run "$@"\n')
        os.fchmod(stream.fileno(), 0o500)
    os.rename(f"{path}.new", path)
    while True:
        signal.pause()


def enter() -> str:
    """Leave the pod; the path by which its root is still found. Raises Refused."""
    try:
        root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        if os.readlink("/proc/self/ns/mnt") == os.readlink("/proc/1/ns/mnt"):
            raise Refused(
                "privileges_missing", "process 1 is the pod's, not the node's: set hostPID: true"
            )
        ours = place()
        for descriptor in [os.open(f"/proc/1/ns/{name}", os.O_RDONLY) for name in NAMESPACES]:
            join(descriptor)
        # With shareProcessNamespace, process 1 is the pod's own, in another mount namespace.
        if place() != ours:
            raise Refused(
                "privileges_missing",
                f"{SHARED} is not the same folder in the pod and where process 1 is, so that is "
                "not the node: set hostPID: true",
            )
    except OSError as error:
        raise Refused(
            "privileges_missing",
            f"the node cannot be entered ({error.filename or 'setns'}: {error.strerror}): the pod "
            f"has to be privileged, with hostPID: true and the node's folder {SHARED}",
        ) from error
    return f"/proc/self/fd/{root}"


def place() -> tuple[int, int]:
    """What tells the shared folder from all others."""
    found = os.stat(SHARED)
    return found.st_dev, found.st_ino


def join(descriptor: int) -> None:
    """setns(2). Python itself has it from 3.12 on. Raises OSError."""
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    os.close(descriptor)


def prepare() -> None:
    """Load what could not be loaded on the node."""
    for name in LINKED:
        # The image may lack it; so may the modules then.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # It reads the image's nsswitch.conf, which counts from then on.
    with contextlib.suppress(KeyError):
        pwd.getpwuid(0)
    for name in LOOKUPS:
        with contextlib.suppress(OSError):
            ctypes.CDLL(name)


def move_library(root: str) -> None:
    """Have Python's library read from the pod. ``root``: where the pod's root is found."""
    sys.path[:] = [root + path for path in sys.path if path.startswith("/")]
    sys.path_importer_cache.clear()
    for module in list(sys.modules.values()):
        parts = getattr(module, "__path__", None)
        if isinstance(parts, list):
            parts[:] = [root + path for path in parts]
    # By this path there is another Python on the node, or none.
    sys.executable = ""
    tempfile.tempdir = SHARED
    for name in [name for name in os.environ if name.startswith(NOT_FOR_THE_NODE)]:
        del os.environ[name]


def run(file: str) -> None:
    """Run the module in a file (empty: of stdin) on the node. Raises Refused."""
    if sys.version_info[:2] < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise Refused("program_missing", f"this pod's image has no Python {oldest} or later")
    if file:
        with open(file, "rb") as stream:
            source = stream.read()
    else:
        source = sys.stdin.buffer.read()
    prepare()
    move_library(enter())
    # The module's wrapper takes a second argument for an order to unpack itself.
    sys.argv = [file or "module"]
    code = compile(source, sys.argv[0], "exec", dont_inherit=True)
    exec(code, {"__name__": "__main__"})


def main() -> None:
    """As the pod, or as the interpreter of a module, whose answer is JSON."""
    if sys.argv[1:2] != ["run"]:
        # The kubelet sets it (metadata.uid).
        stay(os.environ["POD_UID"])
    try:
        run("".join(sys.argv[2:3]))
    except Refused as error:
        print(json.dumps({"failed": True, "msg": str(error), "code": error.code}))
        sys.exit(1)


if __name__ == "__main__":
    main()
