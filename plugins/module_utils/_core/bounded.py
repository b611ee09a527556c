# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Commands and probes that may never return.

A child that waits for a lost disk sits in D state: SIGKILL does not end it, and whoever waits for
it (or for end-of-file on a pipe it holds) waits as long as the disk is lost.
``AnsibleModule.run_command`` and ``subprocess`` do wait. So every child here has its own session,
writes to memory files or to a polled pipe, and is abandoned, never waited for, past its deadline.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import time
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Callable, TypeVar

from .errors import words

Clock = Callable[[], float]
_Key = TypeVar("_Key", bound=Hashable)
# A worker that has not answered for this long (seconds) keeps only the item it is stuck on; the
# others get workers of their own. On a node that is only busy the forks would make it worse, so
# this is no hair trigger.
STALL_SECONDS = 1.0
# Healthy devices answer within a millisecond: one worker asks this many of them before a second
# worker is worth its fork.
ITEMS_PER_WORKER = 32
# How many children of one look there are at a time, with those that SIGKILL does not end. Each of
# these stays until what it waits for answers, and with it the memory of this process: a tenant may
# have any number of mounts whose servers hang.
MOST_CHILDREN = 32
# As many where something else bounds each of them: each holds a pipe open here, and 1024 is the
# usual soft limit of open files (getrlimit(2), RLIMIT_NOFILE).
MAX_WORKERS = 512
# Seconds in which SIGKILL ends a child, on a busy node as well, unless the kernel holds it.
_END_SECONDS = 1.0

# Of what a failed program said, so many characters of the beginning and of the end are told.
_SHOWN = 150
# Seconds that the items of one owner have a worker, before the others have their turn.
TURN_SECONDS = 1.0

# Of the workers, one owner's items have at most one in so many: slow ones share the processors with
# those of the others.
_SHARE = 4

# Where multipath, dmsetup and the like are; the PATH of a non-login shell often lacks them.
_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def boottime() -> float:
    """Seconds since the boot, with those for which the machine was suspended."""
    # CLOCK_MONOTONIC stands still for these (clock_gettime(2)). That of other systems does not
    # always, and they have no CLOCK_BOOTTIME.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Deadline:
    """A budget of seconds that everything a module does is paid from."""

    def __init__(self, seconds: float, clock: Clock = time.monotonic) -> None:
        # Monotonic: an administrator or NTP may set the wall clock while the module runs.
        self.clock = clock
        self._end = clock() + seconds

    def remaining(self) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self._end - self.clock())

    def cap(self, seconds: float) -> float:
        """``seconds``, or what is left if that is less."""
        return min(seconds, self.remaining())

    def share(self, least: float) -> float:
        """Seconds for one of several looks: a quarter of what is left, or ``least`` if it is more.

        For what others may make slow, in any number: what is found needs time as well.
        """
        return self.cap(max(self.remaining() / 4, least))

    @contextlib.contextmanager
    def shortened(self, seconds: float) -> Iterator[None]:
        """Meanwhile, no more than so many seconds are left."""
        end = self._end
        self._end = min(end, self.clock() + seconds)
        try:
            yield
        finally:
            self._end = end


@dataclass(frozen=True)
class CommandResult:
    """What became of a command. ``rc`` is None when it could not be started or did not end in time.

    ``timed_out``: it was started, and had not ended in time; what it does may still come about.
    ``missing``: there is no such program.
    """

    argv: tuple[str, ...]
    rc: int | None
    stdout: str
    stderr: str
    seconds: float
    problem: str = ""
    timed_out: bool = False
    missing: bool = False

    @property
    def ok(self) -> bool:
        """It ended, with exit status 0."""
        return self.rc == 0

    def describe(self) -> str:
        """One line for an error message: the command and what it said."""
        said = self.problem or _short(" ".join((self.stderr or self.stdout).split())) or "no output"
        status = "" if self.rc is None else f" (rc {self.rc})"
        return f"{' '.join(self.argv)}{status}: {said}"


def _short(text: str) -> str:
    """Its beginning and its end: many programs warn first, and say last what they failed at."""
    return text if len(text) <= 2 * _SHOWN else f"{text[:_SHOWN]} ... {text[-_SHOWN:]}"


def find_program(name: str) -> str | None:
    """Absolute path of a program on PATH or in the sbin directories, which a non-login PATH often
    lacks.
    """
    for folder in [*os.environ.get("PATH", "").split(":"), *_SBIN]:
        # An empty entry of PATH means the working directory (POSIX, Base Definitions, 8.3), where
        # others may have put a program of that name.
        candidate = os.path.join(folder, name)
        if folder and os.access(candidate, os.X_OK):
            return candidate
    return None


def run_command(
    argv: Sequence[str], timeout: float, clock: Clock = time.monotonic
) -> CommandResult:
    """Run ``argv`` for at most ``timeout`` seconds, C locale, no stdin; on time-out kill its
    session and abandon it.
    """
    started = clock()
    argv = tuple(argv)

    def result(rc: int | None, out: str = "", err: str = "", problem: str = "") -> CommandResult:
        return CommandResult(argv, rc, out, err, clock() - started, problem)

    program = argv[0] if os.path.isabs(argv[0]) else find_program(argv[0])
    if program is None:
        return replace(result(None, problem="not installed"), missing=True)
    if timeout <= 0:
        return result(None, problem="not started: no time left")
    # What programs say is compared with English words (locale(7): LC_ALL overrides all others).
    environment = dict(os.environ, LC_ALL="C", LANGUAGE="C")
    # Not pipes: their end comes only when every process that holds them has ended, which one in D
    # state does not. Not files: the disk below may be the one that hangs.
    out, err = os.memfd_create("stdout"), os.memfd_create("stderr")
    try:
        pid = os.posix_spawn(
            program,
            argv,
            environment,
            # A group of its own, so that what the command has started is killed with it.
            setsid=True,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, out, 1),
                (os.POSIX_SPAWN_DUP2, err, 2),
            ],
        )
        status = _wait(pid, started + timeout, clock)
        if status is None:
            _kill(pid)
            _reap([pid], clock)
        # pread, since the file offset is shared with the child, which may still write.
        texts = [
            os.pread(fd, os.fstat(fd).st_size, 0).decode("utf-8", "replace") for fd in (out, err)
        ]
    except OSError as error:
        return result(None, problem=f"cannot be started: {error.strerror}")
    finally:
        os.close(out)
        os.close(err)
    if status is None:
        problem = f"no answer within {timeout:.1f} s, abandoned as pid {pid}"
        return replace(result(None, texts[0], texts[1], problem), timed_out=True)
    return result(os.waitstatus_to_exitcode(status), texts[0], texts[1])


def _wait(pid: int, until: float, clock: Clock) -> int | None:
    """Wait status of ``pid``, or None when it still runs when the clock says ``until``."""
    # Most commands end within milliseconds; only for the others the pause grows.
    pause = 0.0005
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        left = until - clock()
        if left <= 0:
            return None
        time.sleep(min(pause, left))
        pause = min(pause * 2, 0.02)


def _has_ended(pid: int) -> bool:
    """Whether a child has ended; then it is reaped."""
    return os.waitpid(pid, os.WNOHANG)[0] == pid


def _kill(pid: int) -> None:
    """Kill the child's whole session, without waiting: one in D state does not go."""
    # One that was forked just now has no session yet, and is alone. It is not reaped before, so
    # this is no other process.
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)


def _reap(pids: Iterable[int], clock: Clock) -> list[int]:
    """Reap those of the killed children that are gone within a moment, shared by all of them;
    returns the others.
    """
    # SIGKILL ends a process within milliseconds or, in D state, only when its I/O does. So a longer
    # wait would reap no more of them.
    until = clock() + 0.05
    return [pid for pid in pids if _wait(pid, until, clock) is None]


@dataclass
class Reply:
    """What a probe gave: ``value`` (JSON-able), or ``problem`` when it raised, died or did not
    return in time.

    ``timed_out``: it had its whole time-out and did not return. ``left``: pid of its child if the
    kernel still held that after SIGKILL. ``error``: class of what it raised, such as
    ``PermissionError``.
    """

    value: Any = None
    problem: str = ""
    timed_out: bool = False
    left: int = 0
    error: str = ""


class AnyOf(tuple[Hashable, ...]):
    """The owners of an item that several have. It is asked in the turn that comes first."""


def owners_of(pairs: Iterable[tuple[_Key, Hashable]]) -> dict[_Key, Hashable]:
    """Of pairs of an item and one that has it, for each item the owner as ``call_each`` takes it.

    An item of several owners waits in the turn of each, since its first owner may have any number
    of slow items before it.
    """
    found: dict[_Key, dict[Hashable, None]] = {}
    for item, owner in pairs:
        several = owner if isinstance(owner, AnyOf) else (owner,)
        found.setdefault(item, {}).update(dict.fromkeys(several))
    return {
        item: AnyOf(owners) if len(owners) > 1 else next(iter(owners))
        for item, owners in found.items()
    }


@dataclass
class _Worker:
    pid: int
    pipe: int
    owner: Hashable
    items: list[int]
    since: float
    started: float
    buffer: bytearray = field(default_factory=bytearray)
    done: int = 0

    @property
    def current(self) -> int:
        """Index of the item it works on."""
        return self.items[self.done]


def call(function: Callable[[], Any], timeout: float) -> Reply:
    """Run ``function`` in a child for at most ``timeout`` seconds; its result must be JSON-able."""
    return call_each(lambda _item: function(), [None], timeout)[0]


def call_each(
    function: Callable[[Any], Any],
    items: Sequence[Any],
    timeout: float,
    budget: float = math.inf,
    clock: Clock = time.monotonic,
    owners: Sequence[Hashable] = (),
    workers: int = MOST_CHILDREN,
    of_owner: int = 0,
) -> list[Reply]:
    """Call ``function(item)`` for every item in children, each for at most ``timeout`` seconds; one
    reply per item, in order.

    All of it ends within ``budget`` seconds; what was not answered by then has a problem.

    A few workers go through all the items, which is cheap as long as everything answers. Where one
    stalls, the rest of its items get a worker each, so that as many hung items as there may be
    workers cost about one ``timeout``.

    ``workers``: how many there are at most, with those that were given up and that SIGKILL has not
    ended. Once there are so many of these, what was not asked has a problem. ``owners``: of each
    item, whose it is, where some may have any number of slow ones: these use up only their own
    turns. ``owners_of`` makes them where several may have an item. ``of_owner``: how many workers
    one owner has at a time; a quarter of all if it is 0.
    """
    pool = _Pool(function, items, timeout, clock, owners, workers, of_owner)
    until = clock() + budget
    try:
        while pool.busy and clock() < until:
            pool.start_workers()
            pool.hear()
            pool.abandon_stalled()
    # Whatever ends the loop, an exception of a signal too, no child is left without SIGKILL.
    finally:
        pool.close()
    return pool.answers()


class _Queue:
    """What is still to be asked: lists of indexes, taken in turns of their owners.

    ``most``: how many workers one owner has at a time.
    """

    def __init__(self, count: int, owners: Sequence[Hashable], most: int) -> None:
        self._owners, self._most = owners, most
        # Of each worker that has it now, and the seconds that it had others.
        self._having: Counter[Hashable] = Counter()
        self._had: defaultdict[Hashable, float] = defaultdict(float)
        self._waiting: dict[Hashable, deque[list[int]]] = {}
        by_owner: dict[Hashable, list[int]] = {}
        for index in range(count):
            owner = owners[index] if owners else None
            for one in owner if isinstance(owner, AnyOf) else (owner,):
                by_owner.setdefault(one, []).append(index)
        for owner, indexes in by_owner.items():
            own = [index for index in indexes if not self.is_shared(index)]
            for start in range(0, len(own), ITEMS_PER_WORKER):
                self.add(owner, own[start : start + ITEMS_PER_WORKER])
            # Each alone: whether it is asked already is seen when a worker takes it. Among others,
            # one that hangs would in the end stop a worker of each owner.
            for index in indexes:
                if self.is_shared(index):
                    self.add(owner, [index])

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def is_shared(self, index: int) -> bool:
        """It may be waiting, or be asked, in the turn of another owner as well."""
        return bool(self._owners) and isinstance(self._owners[index], AnyOf)

    def add(self, owner: Hashable, indexes: list[int]) -> None:
        """Items of one owner, behind its others."""
        if indexes:
            self._waiting.setdefault(owner, deque()).append(indexes)

    def _next(self) -> Hashable:
        # By time, since one item may take as long as a thousand others.
        return min(self._waiting, key=lambda one: (self._having[one], self._had[one]))

    @property
    def ready(self) -> bool:
        """Something waits whose owner may have one more worker."""
        return bool(self._waiting) and self._having[self._next()] < self._most

    def take(self) -> tuple[Hashable, list[int]]:
        """The next items, for a worker: of the owner that has the fewest now, and had the least."""
        owner = self._next()
        indexes = self._waiting[owner].popleft()
        if not self._waiting[owner]:
            del self._waiting[owner]
        self._having[owner] += 1
        return owner, indexes

    def give_back(self, owner: Hashable, seconds: float) -> None:
        """A worker is through with items of this owner, or is taken from them."""
        self._having[owner] -= 1
        self._had[owner] += seconds


class _Pool:
    """The workers of one call_each, what they are still to be asked, and what they answered."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        items: Sequence[Any],
        timeout: float,
        clock: Clock,
        owners: Sequence[Hashable] = (),
        workers: int = MOST_CHILDREN,
        of_owner: int = 0,
    ) -> None:
        self._function, self._items, self._timeout, self._clock = function, items, timeout, clock
        self._most, self._turn = workers, TURN_SECONDS if owners else math.inf
        self._replies: list[Reply | None] = [None] * len(items)
        most = of_owner or max(1, workers // _SHARE)
        self._waiting = _Queue(len(items), owners, most if owners else workers)
        self._running: dict[int, _Worker] = {}
        # pid -> index of the item that it was asked for and never answered, if there is one
        self._killed: dict[int, int | None] = {}
        # Of these, those that were given up, and when; without those that have ended since.
        self._given_up: dict[int, float] = {}
        self._held: list[int] = []
        self._poller = select.poll()

    @property
    def busy(self) -> bool:
        """Something is not answered yet, and will be asked."""
        return bool(self._running or (self._waiting and (self._room > 0 or self._ending)))

    @property
    def _ending(self) -> bool:
        """Whether one that was given up may still be about to end."""
        return self._clock() - max(self._given_up.values(), default=0.0) < _END_SECONDS

    @property
    def _room(self) -> int:
        """For how many more workers there is room."""
        return self._most - len(self._running) - len(self._given_up)

    def start_workers(self) -> None:
        """Fork as many as there may be. What no child can be forked for has its answer."""
        for pid in [pid for pid in self._given_up if _has_ended(pid)]:
            del self._given_up[pid], self._killed[pid]
        while self._waiting.ready and self._room > 0:
            owner, taken = self._waiting.take()
            indexes = [index for index in taken if not self._is_settled(index)]
            if not indexes:
                self._waiting.give_back(owner, 0)
                continue
            try:
                worker = _fork_worker(self._function, self._items, owner, indexes, self._clock)
            except OSError as error:
                self._waiting.give_back(owner, 0)
                for index in indexes:
                    self._reply(index, Reply(problem=f"could not be asked: {error.strerror}"))
                continue
            self._running[worker.pipe] = worker
            self._poller.register(worker.pipe, select.POLLIN)

    def _is_settled(self, index: int) -> bool:
        """It was answered in the turn of another owner, or is asked right now."""
        return self._waiting.is_shared(index) and (
            self._replies[index] is not None
            or any(worker.current == index for worker in self._running.values())
        )

    def _reply(self, index: int, reply: Reply) -> None:
        # The first one counts, since one may be asked in the turns of several.
        if self._replies[index] is None:
            self._replies[index] = reply

    def hear(self) -> None:
        """Take what the workers say, for up to 20 ms."""
        for pipe, _event in self._poller.poll(20):
            worker = self._running[pipe]
            # All that a pipe holds by default (pipe(7), pipe capacity).
            chunk = os.read(pipe, 65536)
            self._take(worker, chunk)
            if worker.done == len(worker.items):
                self._retire(worker)
            # End-of-file before its last answer: something killed it, as the OOM killer does.
            elif not chunk:
                self._reply(worker.current, Reply(problem="the probe died"))
                self._waiting.add(worker.owner, worker.items[worker.done + 1 :])
                self._retire(worker)

    def _take(self, worker: _Worker, chunk: bytes) -> None:
        worker.buffer += chunk
        # An answer may have many chunks, and is split only once it is whole.
        if b"\n" not in chunk:
            return
        *lines, worker.buffer = worker.buffer.split(b"\n")
        # What a worker sends beyond its items was taken from it while it was stuck.
        for line in lines[: len(worker.items) - worker.done]:
            self._reply(worker.current, Reply(**json.loads(line)))
            worker.done += 1
            worker.since = self._clock()

    def abandon_stalled(self) -> None:
        """Give the items of a worker that stalls to others, and after the timeout give it up."""
        now = self._clock()
        for worker in list(self._running.values()):
            idle = now - worker.since
            if idle > min(STALL_SECONDS, self._timeout):
                for index in worker.items[worker.done + 1 :]:
                    self._waiting.add(worker.owner, [index])
                worker.items = worker.items[: worker.done + 1]
            elif now - worker.started > self._turn:
                self._waiting.add(worker.owner, worker.items[worker.done + 1 :])
                worker.items = worker.items[: worker.done + 1]
            if idle > self._timeout:
                problem = f"no answer within {self._timeout:.1f} s, abandoned as pid {worker.pid}"
                self._reply(worker.current, Reply(problem=problem, timed_out=True))
                self._retire(worker)
                self._given_up[worker.pid] = now

    def _retire(self, worker: _Worker) -> None:
        self._poller.unregister(worker.pipe)
        os.close(worker.pipe)
        del self._running[worker.pipe]
        self._waiting.give_back(worker.owner, self._clock() - worker.started)
        # Also one that has answered: its own children may be left.
        _kill(worker.pid)
        self._killed[worker.pid] = worker.current if worker.done < len(worker.items) else None

    def close(self) -> None:
        """Kill every worker that is left. One in D state does not go, and is not waited for."""
        for worker in list(self._running.values()):
            self._retire(worker)
        self._held = _reap(self._killed, self._clock)

    def answers(self) -> list[Reply]:
        """One for each item, in order, once the pool is closed."""
        why = (
            "no answer before the deadline"
            if self._room > 0
            else "not asked: too many others do not answer"
        )
        found = [reply or Reply(problem=why) for reply in self._replies]
        for pid in self._held:
            unanswered = self._killed[pid]
            if unanswered is not None:
                found[unanswered].left = pid
        return found


def _fork_worker(
    function: Callable[[Any], Any],
    items: Sequence[Any],
    owner: Hashable,
    indexes: list[int],
    clock: Clock,
) -> _Worker:
    """Fork a child that calls ``function`` for the items at ``indexes`` and writes one JSON line
    each.
    """
    reader, writer = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        raise
    if pid:
        os.close(writer)
        now = clock()
        return _Worker(pid, reader, owner, indexes, now, now)
    try:
        # As for a command: with all that the function starts, it is one group to kill.
        os.setsid()
        # The caller's stdout may be the ssh channel: a child stuck in D state must not keep it
        # open.
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        for index in indexes:
            try:
                line = {"value": function(items[index])}
            except Exception as error:  # the parent gets every failure as an answer
                line = {"problem": words(error), "error": type(error).__name__}
            # JSON escapes line breaks within texts, so one line is one answer.
            os.write(writer, json.dumps(line).encode() + b"\n")
    finally:
        # Not sys.exit: the clean-up of the module, and output that it has in its buffers, must not
        # come from the child as well.
        os._exit(0)
