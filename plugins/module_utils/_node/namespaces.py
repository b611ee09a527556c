# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The mounts of every mount namespace, in turns of their owners."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import NamedTuple

from .._core.bounded import Deadline, call_each
from .._core.errors import StorageOpsError
from .._core.texts import is_number
from . import control_groups, fdinfo, threads
from .control_groups import pod_of
from .host import Fleeting, Host, count, target_of
from .kubelet import namespaces_of
from .mounts import Mount, TooLong, Wanted, wanted_mount

# Seconds that all mount namespaces of one pod may take. Those of the usual kind take milliseconds;
# for a path of 1 MiB the kernel takes 11.
_SECONDS = 10.0
# Seconds until the others have their turn.
_TURN = 0.1
# Errors for a process that has ended, or ends (fs/proc_namespace.c mounts_open_common). There are
# others: ENOMEM for a path that is longer than the kernel has room for (fs/seq_file.c).
ENDED = (errno.ENOENT, errno.ESRCH, errno.EINVAL)
# How the link of a namespace begins that is not known.
UNTOLD = "unknown, of pid "


# By mount namespace and path of the root, IDs of processes.
ByView = dict[tuple[str, str], list[str]]


class Namespace(NamedTuple):
    """A mount namespace, as the processes with one root see it.

    ``pid``: one of these; ``others``: more of them, should that one end. ``link``: text of its
    /proc/PID/ns/mnt, or of UNTOLD and the process that does not tell it. ``pod``: UID of their pod,
    UNKNOWN, or empty. ``owner``: the pod, or the control group of what is in none.
    """

    pid: str
    link: str
    pod: str
    owner: str
    others: tuple[str, ...] = ()

    def describe(self) -> str:
        """``the mount namespace of pid 4711 of pod UID``."""
        return f"the mount namespace of pid {self.pid}{control_groups.of_pod(self.pod)}"


class Namespaces:
    """Every mount namespace that has a process.

    ``found``: these. ``unread``: those of pods that were not read, as texts.
    """

    # A namespace that only an open file keeps alive cannot be read; a device that is mounted there
    # shows by its open count. Containers may make any number of namespaces, with any number of
    # mounts, so this is bounded, and what was not read must not look unmounted.

    def __init__(self, host: Host) -> None:
        self._host = host
        self.unread: dict[str, str] = {}
        # IDs of threads that have a namespace for themselves.
        self._threads: set[str] = set()
        by_link = _by_view(host)
        self._add_threads(by_link)
        # The node's own first, of which the others have copies.
        self.found = sorted(_find(host, by_link), key=lambda one: bool(one.pod))

    def _add_threads(self, by_link: ByView) -> None:
        """Add the namespaces that threads have for themselves."""
        host = self._host
        several = [
            (pid, link, many)
            for (link, _root), pids in by_link.items()
            for pid in pids
            for many in [count(host.path(f"/proc/{pid}"))]
            if many > 1
        ]
        pods = {pid: pod_of(host, pid) for pid, _link, _many in several}
        # A namespace may have any number of pods.
        spaces = namespaces_of(host)
        until = Deadline(host.deadline.cap(host.command_timeout), host.deadline.clock)
        for (pid, link, _many), share in threads.in_shares(
            several,
            lambda one: spaces.get(pods[one[0]], pods[one[0]]),
            lambda one: one[2],
            lambda one: not pods[one[0]],
            until,
        ):
            base = host.path(f"/proc/{pid}")
            try:
                found = host.of_living(pid, partial(_threads_of, base, link, share))
            except StorageOpsError as error:
                # Anyone may have threads that end one after the other.
                if not threads.may_have_namespaces(base):
                    continue
                namespace = Namespace(pid, link, pods[pid], pods[pid])
                self._leave(namespace, f"the threads of pid {pid}: {error}")
                continue
            for task, view in found or ():
                self._threads.add(task)
                by_link.setdefault(view, []).append(task)

    def mounts(
        self,
        wanted: Wanted | None = None,
        too_long: TooLong = None,
        among: Iterable[Namespace] | None = None,
    ) -> Iterator[tuple[Namespace, Mount]]:
        """Their mounts, one by one; keep only what is needed.

        ``wanted``, ``too_long``: as for ``each_mount``. ``among``: only of these. What one pod has
        too many of is in ``unread`` afterwards. Raises StorageOpsError if namespaces that are in no
        pod could not be read in half of the time that is left, and when the deadline passes.
        """
        of_owner: dict[str, list[Namespace]] = {}
        for namespace in self.found if among is None else among:
            of_owner.setdefault(namespace.owner, []).append(namespace)
        waiting = {
            owner: self._read(several, wanted, too_long) for owner, several in of_owner.items()
        }
        latest = {owner: several[0] for owner, several in of_owner.items()}
        had = dict.fromkeys(of_owner, 0.0)
        # By whose they are, as far as the node tells: a namespace may have any number of pods, and
        # no line can be left half read.
        spaces = namespaces_of(self._host)
        whose = {owner: spaces.get(owner, owner) for owner in of_owner}
        taken = dict.fromkeys(whose.values(), 0.0)
        deadline, clock = self._host.deadline, self._host.deadline.clock
        # By whether it is of a pod. Each service of the node has copies of the subPaths of pods, at
        # paths that tenants lengthen. These have to be read, or nothing of the node is repaired.
        room = {True: deadline.cap(self._host.command_timeout), False: deadline.remaining() / 2}
        while waiting:
            # Who had the least is next. By time, since one mount may take as long as a thousand.
            owner = min(waiting, key=lambda one: (taken[whose[one]], had[one]))
            of_pod = bool(latest[owner].pod)
            if min(room[of_pod], deadline.remaining()) <= 0 or (of_pod and had[owner] > _SECONDS):
                del waiting[owner]
                most = max(had, key=had.__getitem__)
                why = f"the longest took {latest[most].describe()}, {had[most]:.1f} s"
                self._leave(latest[owner], why)
                continue
            since = clock()
            for namespace, mount in waiting[owner]:
                latest[owner] = namespace
                if mount:
                    yield namespace, mount
                if clock() - since > _TURN:
                    break
            else:
                del waiting[owner]
            took = clock() - since
            had[owner] += took
            taken[whose[owner]] += took
            room[of_pod] -= took

    def _read(
        self, several: Iterable[Namespace], wanted: Wanted | None, too_long: TooLong
    ) -> Iterator[tuple[Namespace, Mount | None]]:
        """One item for each line of their mountinfo."""
        for namespace in several:
            # If a process has ended meanwhile, another one of its namespace may be left.
            for pid in (namespace.pid, *namespace.others):
                begun = False
                now = namespace._replace(pid=pid)
                try:
                    for line in self._lines(pid):
                        begun = True
                        yield now, wanted_mount(line, pid, wanted, too_long)
                except (OSError, Fleeting) as error:
                    self._leave(now, f"{now.describe()}: {getattr(error, 'strerror', error)}")
                    break
                if begun:
                    break

    def _lines(self, pid: str) -> Iterable[bytes]:
        """Those of the mountinfo of a process; none if it has ended."""

        def opening(base: str) -> Iterable[bytes]:
            lines = self._host.lines(f"/proc/{os.path.basename(base)}/mountinfo")
            try:
                # Once it is open, it is the namespace's, whichever thread ends.
                return chain([next(lines)], lines)
            except StopIteration:
                return ()
            except OSError as error:
                if error.errno in ENDED:
                    raise ProcessLookupError from error
                raise

        if pid not in self._threads:
            return self._host.of_living(pid, opening) or ()
        # Another thread of the process is in another namespace.
        try:
            return opening(f"/proc/{pid}")
        except (FileNotFoundError, ProcessLookupError):
            return ()

    def _leave(self, namespace: Namespace, why: str) -> None:
        """Do without a namespace and those behind it; only a pod may have such."""
        left = self._host.deadline.remaining()
        if not namespace.pod or not left:
            raise StorageOpsError(
                f"not all mount namespaces of the node could be read ({why}): raise deadline, or "
                "find out whose processes have so many mounts, or which pod has subPaths in very "
                "deep folders",
                code="evidence_unreadable" if left else "deadline_passed",
            )
        self.unread[namespace.owner] = namespace.describe()


def _by_view(host: Host) -> ByView:
    """The processes by their views."""
    found: ByView = {}
    # The oldest first: what a probe, or kubectl exec, has begun in a container is gone by the next
    # look.
    for pid in sorted(filter(is_number, host.names("/proc")), key=int):
        link, root = _view_of(host, pid)
        if link:
            found.setdefault((link, root), []).append(pid)
    return found


def _find(host: Host, by_link: ByView) -> list[Namespace]:
    """One for each root in each mount namespace: a process sees only the mounts below its root.

    Raises StorageOpsError if there is none.
    """
    if not by_link:
        raise StorageOpsError(
            "no mount namespace can be read in /proc: run as root (become: true)",
            code="privileges_missing",
        )
    found = []
    # Whose they are, and by owner those in which the roots may be of different mounts.
    unclear: dict[str, list[Namespace]] = {}
    for (link, _root), pids in by_link.items():
        # Nothing of a pod is in the node's own.
        pod = "" if "1" in pids else next(filter(None, map(partial(pod_of, host), pids)), "")
        owner = pod or ("" if "1" in pids else control_groups.read(host, pids[0]))
        namespace = Namespace(pids[0], link, pod, owner, tuple(pids[1:]))
        if namespace.others and "1" not in pids:
            unclear.setdefault(owner, []).append(namespace)
        else:
            found.append(namespace)
    return found + _by_root(host, unclear)


def _view_of(host: Host, pid: str) -> tuple[str, str]:
    """The mount namespace of a process and the path of its root; empty if it has ended."""
    try:
        return host.of_living(pid, _reading) or ("", "")
    except Fleeting:
        # By itself: it may be any.
        return f"{UNTOLD}{pid}", ""


def _reading(base: str) -> tuple[str, str]:
    link = os.readlink(f"{base}/ns/mnt")
    with contextlib.suppress(OSError):
        return link, target_of(f"{base}/root")
    return link, ""


def _threads_of(
    base: str, link: str, until: Deadline, _living: str
) -> list[tuple[str, tuple[str, str]]]:
    """ID and view of one thread of a process in each namespace other than this."""
    # Not by the thread that lives, which may end before all others are read.
    return [
        (os.path.basename(thread), _reading(thread))
        for thread in threads.namespaces(base, link, until)
    ]


def _by_root(host: Host, unclear: dict[str, list[Namespace]]) -> list[Namespace]:
    """The same, apart if the processes have roots in different mounts at the same path.

    ``unclear``: by owner.
    """
    # The kernel lists what is below the root's mount (fs/proc_namespace.c show_mountinfo). Its ID
    # is no other's as long as a process has its root there (fs/namespace.c mnt_free_id). A server
    # may keep a process from telling it, but that only of its own pod.
    groups = [[[one.pid, *one.others] for one in several] for several in unclear.values()]

    def asking(of_owner: list[list[str]]) -> list[list[int]]:
        return [[_root_of(host, pid) for pid in pids] for pids in of_owner]

    replies = call_each(asking, groups, *host.for_one_of_many())
    found = []
    for several, reply in zip(unclear.values(), replies):
        for number, namespace in enumerate(several):
            by_root: dict[int, list[str]] = {}
            pids = (namespace.pid, *namespace.others)
            roots = reply.value[number] if reply.value else [0] * len(pids)
            for pid, root in zip(pids, roots):
                by_root.setdefault(root or -int(pid), []).append(pid)
            found += [
                namespace._replace(pid=same[0], others=tuple(same[1:])) for same in by_root.values()
            ]
    return found


def _root_of(host: Host, pid: str) -> int:
    """ID of the mount that the root of a process is in; 0 if that is not known."""
    try:
        return fdinfo.mount_at(host.path(f"{host.living(pid)}/root"))
    except OSError:
        return 0
