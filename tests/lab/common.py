# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the lab's modules share: where the cache is, how progress is shown, how errors look, how a
lock is taken.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
# How many times slower a machine may be that does much else besides. Times that are there only to
# end what hangs are stretched by it; deadlines that are tested themselves are not.
BUSY = 10.0
RELEASES = ("bullseye", "bookworm", "trixie")
DEFAULT_RELEASE = "bookworm"
GUEST = Path(__file__).resolve().parent / "guest"


class LabError(Exception):
    """The lab cannot do what was asked; the message says why and what to do next."""


def cache_dir() -> Path:
    """Everything the lab makes lives here, outside any checkout."""
    explicit = os.environ.get("STORAGE_OPS_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    path = Path(explicit) if explicit else Path(base) / "storage_ops.runbooks"
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()


def patient(seconds: float) -> float:
    """After how many seconds to give up what takes less than ``seconds`` on an idle machine."""
    return seconds * BUSY


def wait(condition: Callable[[], T], what: str, seconds: float = 30, pause: float = 0.05) -> T:
    """Poll until there is an answer that counts as true; that answer."""
    until = time.monotonic() + patient(seconds)
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > until:
            raise LabError(f"not within {patient(seconds):.0f} s: {what}")
        time.sleep(pause)


def say(message: str) -> None:
    """Progress goes to stderr: stdout belongs to the command's answer."""
    print(f"lab: {message}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def step(what: str) -> Iterator[None]:
    """Announce a long step and tell afterwards how long it took."""
    say(f"{what} ...")
    start = time.monotonic()
    yield
    say(f"{what}: {time.monotonic() - start:.1f} s")


@contextlib.contextmanager
def locked(path: Path, deadline: float) -> Iterator[None]:
    """Hold an exclusive lock; whoever comes second waits, visibly and not for ever."""
    deadline = patient(deadline)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Python opens with O_CLOEXEC, so neither qemu nor an ssh master inherits the lock.
    with path.open("a") as handle:
        start = time.monotonic()
        told = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() - start > deadline:
                    raise LabError(
                        f"{path} is locked by another process for more than {deadline:.0f} s"
                    ) from None
                if not told:
                    say(f"waiting for another process that holds {path}")
                    told = True
                time.sleep(0.2)
        yield


def run(
    command: Sequence[str],
    deadline: float,
    label: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    tied: bool = False,
) -> None:
    """Run a command with a deadline; with a label, show every ten seconds that it is still at work.

    Tied, it ends with this process, even if that one is killed.
    """
    argv = [*(["setpriv", "--pdeathsig", "KILL"] if tied else []), *command]
    start = time.monotonic()
    deadline = patient(deadline)
    tail: collections.deque[str] = collections.deque(maxlen=15)
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(10):
            if label:
                say(f"{label}: {time.monotonic() - start:4.0f} s  {(tail or [''])[-1][:90]}")
            if time.monotonic() - start > deadline:
                process.kill()

    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=cwd,
        env=env,
    ) as process:
        threading.Thread(target=watch, daemon=True).start()
        assert process.stdout is not None
        for line in process.stdout:
            tail.append(line.rstrip())
        process.wait()
        ended.set()
    if process.returncode:
        late = (
            f" after its deadline of {deadline:.0f} s"
            if time.monotonic() - start > deadline
            else ""
        )
        raise LabError(
            f"{' '.join(command[:4])} ... failed with rc {process.returncode}{late}:\n  "
            + "\n  ".join(tail)
        )
