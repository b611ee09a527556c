# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run of the tests starts and makes is known to be its own, so that the next run sweeps it
when that one was killed.

A run is named by a process: its pid, when it began, its pid namespace and its boot. Whatever it
starts inherits the name in its environment. What it makes outside of a test's own folder it claims
first, by a link in the cache.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .common import LabError, cache_dir, locked, say, wait

VARIABLE = "STORAGE_OPS_RUN"
CGROUPS = Path("/sys/fs/cgroup")
# umount2(2)
_MNT_DETACH, _NOFOLLOW = 2, 8


def name_of(pid: int) -> str:
    """The run that this process is. tests/tools/env.sh writes the same."""
    return f"{pid}.{_stat(pid)[19]}.{_namespace()}.{_boot()}"


def current() -> str:
    """The run that this process belongs to: what its environment says, else itself.

    Empty: none; what it makes outlives it.
    """
    return os.environ.setdefault(VARIABLE, name_of(os.getpid()))


def outlive() -> None:
    """Unless a run of the tests has started this process, what it makes stays until it is stopped
    by hand.
    """
    if os.environ.get(VARIABLE, "") in ("", name_of(os.getpid())):
        os.environ[VARIABLE] = ""


def is_over(name: str) -> bool:
    """Whether that run is no more. Of other pid namespaces we cannot tell."""
    try:
        pid, began, namespace, boot = name.split(".")
    except ValueError:
        return False
    if boot != _boot():
        return True
    if namespace != str(_namespace()):
        return False
    try:
        stat = _stat(int(pid))
    except (OSError, ValueError):
        return True
    # proc_pid_stat(5): field 22 is when it began; one that has ended may not have been waited for
    # yet.
    return stat[19] != began or stat[0] in "ZX"


# what it makes


def claim(path: Path) -> None:
    """To be called before something is made there: it belongs to this run."""
    release(path)
    if current():
        folder = cache_dir() / "runs" / current()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / hashlib.sha256(bytes(path)).hexdigest()[:16]).symlink_to(path)


def release(path: Path) -> None:
    """It is gone again."""
    for link in _claims(path):
        link.unlink(missing_ok=True)


@contextlib.contextmanager
def temporary(what: str) -> Iterator[Path]:
    """A folder with a short path, until the end of the block.

    What we start meanwhile has it as its TMPDIR.
    """
    before = os.environ.get("TMPDIR")
    path = Path(tempfile.gettempdir()) / f"lab-{what}-{secrets.token_hex(4)}"
    claim(path)
    path.mkdir(mode=0o700)
    os.environ["TMPDIR"] = str(path)
    try:
        yield path
    finally:
        os.environ.pop("TMPDIR")
        if before is not None:
            os.environ["TMPDIR"] = before
        remove(path)
        release(path)


def remove(path: Path) -> None:
    """Remove a file or a folder with all that is in it, but never what is mounted there.

    Raises LabError if that stays.
    """
    if path.is_relative_to(CGROUPS):
        # cgroups(7): what is in one are no files; it goes when no process is in it.
        for folder, _folders, _files in os.walk(path, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
        return
    for point in sorted(_mounted_below(path), reverse=True):
        ctypes.CDLL(None, use_errno=True).umount2(os.fsencode(point), _MNT_DETACH | _NOFOLLOW)
    if left := _mounted_below(path):
        raise LabError(f"{', '.join(left)} cannot be unmounted, so {path} stays")
    if path.is_dir() and not path.is_symlink():
        # Kubemark's kubelet has folders and sockets in /tmp, which only its log names.
        for log in path.glob("hollow-*.log"):
            for made in made_by_kubelet(log.read_text(errors="replace")):
                remove(made)
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def made_by_kubelet(log: str) -> list[Path]:
    """What a hollow kubelet with this log has made in /tmp and never removes."""
    names = r"/tmp/(?:hollow-kubelet\.|kubelet_remote_)[0-9]+(?:\.sock)?"
    return [Path(found) for found in sorted(set(re.findall(names, log)))]


# what is left of others


def sweep() -> None:
    """End and remove what runs have left that are over."""
    with locked(cache_dir() / "runs.lock", 60):
        _end_processes()
        for folder in sorted((cache_dir() / "runs").glob("*")):
            if is_over(folder.name):
                _remove_claimed(folder)
        _remove_half_built()


def _end_processes() -> None:
    spared = _ancestors()
    # What is found may have had children meanwhile, which are found the next time.
    while left := _left(spared):
        for pid, name in left.items():
            say(f"ending process {pid}, which a run has left that is over ({name})")
            _kill(pid, name)
        try:
            wait(lambda seen=left: not seen.keys() & _left(spared).keys(), "ended", 5)  # type: ignore[misc]
        except LabError:
            # In D state, for instance. Nobody waits for it.
            say(f"cannot be ended: {sorted(left.keys() & _left(spared).keys())}")
            spared.update(left)


def _left(spared: set[int]) -> dict[int, str]:
    """Processes of runs that are over, by pid."""
    return {pid: name for pid, name in _marked().items() if pid not in spared and is_over(name)}


def _kill(pid: int, name: str) -> None:
    """SIGKILL, if the process is still the one that was seen."""
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            if _mark(pid) == name:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def _remove_claimed(run: Path) -> None:
    for link in sorted(run.iterdir()):
        path = link.readlink()
        others = [
            other for other in _claims(path) if other != link and not is_over(other.parent.name)
        ]
        if not others and os.path.lexists(path):
            say(f"removing {path}, which a run has left that is over ({run.name})")
            remove(path)
        link.unlink()
    run.rmdir()


def _remove_half_built() -> None:
    """What is built has another name until it is done, and who builds holds a lock that ends with
    him.
    """
    cache = cache_dir()
    # A link leads to another cache, which is swept by its own runs. What is half built of
    # Kubernetes the next build goes on with.
    for folder in (cache / "images", cache / "states"):
        if not folder.is_symlink():
            _remove_unless_locked(_half_built(folder), sorted(folder.glob("*.lock")))
    for half in sorted(cache.glob("venv-*.[0-9]*")):
        done = half.with_suffix("")
        if not half.is_symlink() and not (done.is_symlink() and done.readlink().name == half.name):
            _remove_unless_locked([half], [done.with_suffix(".lock")])


def _half_built(folder: Path) -> list[Path]:
    """Folders that have no name yet.

    Not what is in them: who builds makes and removes files there meanwhile.
    """
    found = []
    for place, folders, _files in os.walk(folder):
        hidden = {name for name in folders if name.startswith(".") and "-" in name}
        found += [Path(place, name) for name in sorted(hidden)]
        folders[:] = [name for name in folders if name not in hidden]
    return found


def _remove_unless_locked(halves: list[Path], locks: list[Path]) -> None:
    with contextlib.ExitStack() as held:
        for lock in locks if halves else ():
            try:
                fcntl.flock(held.enter_context(lock.open("a")), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
        for half in halves:
            say(f"removing {half}, which was never finished")
            remove(half)


def _claims(path: Path) -> list[Path]:
    """The links of all runs that claim it."""
    links = (cache_dir() / "runs").glob("*/*")
    return [link for link in links if link.is_symlink() and link.readlink() == path]


def _mounted_below(path: Path) -> list[str]:
    """Mount points there; as mountinfo has them, but for its escapes."""
    lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    points = (
        re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), line.split()[4]) for line in lines
    )
    return [point for point in points if Path(point).is_relative_to(path)]


def _marked() -> dict[int, str]:
    """The run of each process that has one, by pid."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {pid: name for pid in pids if (name := _mark(pid))}


def _mark(pid: int) -> str:
    """The run in its environment; that of a process that has ended is empty."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    prefix = f"{VARIABLE}=".encode()
    return next(
        (
            word.removeprefix(prefix).decode(errors="replace")
            for word in words
            if word.startswith(prefix)
        ),
        "",
    )


def _ancestors() -> set[int]:
    """This process and those it comes from."""
    found, pid = set(), os.getpid()
    while pid:
        found.add(pid)
        pid = int(_stat(pid)[1])
    return found


def _stat(pid: int) -> list[str]:
    """proc_pid_stat(5) from the third field on; the second may have spaces."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()


def _namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
