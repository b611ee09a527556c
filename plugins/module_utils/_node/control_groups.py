# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pod and the container of a process, by its control group."""

from __future__ import annotations

import contextlib
import re

from .host import Fleeting, Host, ends, of_living

# In place of a pod's UID, where it is not known whose a process is. It may be any pod's, and is
# never taken for the node's own. The kernel does not tell a control group whose path has 4096
# characters (before Linux 6.8, kernel/cgroup/cgroup.c proc_cgroup_show), and a container may make
# such ones below its own. The parent of a process does not tell either: a container's first process
# has none in the container, and may be in such a group itself.
UNKNOWN = "unknown"

# Control groups of pods, by the cgroupfs driver (kubepods/burstable/podUID/ID) and by systemd's
# (kubepods-burstable-podUID.slice, with each - of the UID as _ ; cri-containerd-ID.scope, or
# :cri-containerd:ID if runc does not use systemd). See kubernetes
# pkg/kubelet/cm/cgroup_manager_linux.go and pod_container_manager_linux.go. The UID of a static pod
# is a hash without dashes. With a --cgroup-root, as in kind, its name is in front of all of these.
# conmon, which watches a container of CRI-O, belongs to the node.
_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}"
_POD = re.compile(
    rf"/(?:[^/:]*-)?pod(?P<uid>{_UID})(?:\.slice)?(?:[/:]|$)", re.ASCII | re.MULTILINE
)
_CONTAINER = re.compile(
    r"[/:](?!crio-conmon-)(?:[a-z-]+-)?(?P<id>[0-9a-f]{64})(?:\.scope)?(?:/|$)",
    re.ASCII | re.MULTILINE,
)


def pod_uid_of(cgroup: str) -> str:
    """The UID of the pod in a /proc/PID/cgroup; empty if there is none, UNKNOWN of UNKNOWN."""
    if cgroup == UNKNOWN:
        return UNKNOWN
    match = _POD.search(cgroup)
    return match["uid"].replace("_", "-") if match else ""


def container_id_of(cgroup: str) -> str:
    """The ID of the pod's container in a /proc/PID/cgroup; empty if there is none."""
    match = _CONTAINER.search(cgroup) if pod_uid_of(cgroup) else None
    return match["id"] if match else ""


def text_of(base: str) -> str:
    """The control group of a process, or UNKNOWN. ``base``: folder of a thread that lives.

    Raises FileNotFoundError or ProcessLookupError if it ends.
    """
    try:
        with open(f"{base}/cgroup", encoding="utf-8", errors="replace", newline="") as file:
            text = file.read().rstrip("\n")
    except (FileNotFoundError, ProcessLookupError):
        raise
    except OSError:
        return UNKNOWN
    # With control groups of version 1, a thread that ends is shown in none of them, whatever pod it
    # is of (kernel/cgroup/cgroup.c proc_cgroup_show).
    groups = [line for line in text.split("\n") if not line.startswith("0::")]
    if groups and all(line.endswith(":/") for line in groups) and ends(base):
        raise ProcessLookupError
    return text


def of_process(base: str) -> str:
    """The control group of a process, or UNKNOWN; empty if it has ended. ``base``: its folder."""
    # With version 2 the first thread goes on showing it when it has ended (proc_cgroup_show), and
    # no other one, which may end at any moment, is asked. No container takes a process from one pod
    # to another (cgroups(7)). What shows no pod may be one of version 1.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        text = text_of(base)
        if pod_uid_of(text):
            return text
    try:
        return of_living(base, text_of) or ""
    except Fleeting:
        return UNKNOWN


def read(host: Host, pid: str) -> str:
    """The same, by the ID of the process."""
    return of_process(host.path(f"/proc/{pid}"))


def pod_of(host: Host, pid: str) -> str:
    """The UID of the pod of a process, or UNKNOWN; empty if there is none."""
    return pod_uid_of(read(host, pid))


def may_be_ours(host: Host, pod: str) -> bool:
    """A process of this pod may be one of this collection's: it is of no pod, or of the one through
    which this module has come to a node without ssh (playbooks/files/node_pods), as no tenant's is.
    """
    return not pod or UNKNOWN != pod == pod_of(host, "self")


def of_pod(pod: str) -> str:
    """`` of pod UID``, for a message; empty if there is none."""
    if pod == UNKNOWN:
        return " of an unknown pod (its control group cannot be read)"
    return f" of pod {pod}" if pod else ""
