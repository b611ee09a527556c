# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on the controller, between Ansible and the answers of hosts, which are trusted less.

Ansible takes variables from a result (``ansible_facts``, which outrank a role's defaults and the
inventory) and artifacts (``ansible_stats``, which AWX turns into extra variables of the next job of
a workflow). Root on a host can answer in place of the module, and so set them. With ``delegate_to``
the variables become those of the host of the play, such as localhost.
"""

from __future__ import annotations

import json
import math
import os
import re
import resource
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.json_utils import _filter_non_json_lines
from ansible.plugins.action import ActionBase
from ansible.plugins.action.normal import ActionModule as Normal
from ansible.release import __version__
from ansible.utils.display import Display

from ..module_utils._core import texts, untrusted

# The first ansible-core with which no hostile host has been tried (tests/adhoc/test_on_node.py).
UNTRIED = (2, 23)
# What an answer goes through in each action of Ansible's.
WAYS = ("_low_level_execute_command", "_parse_returned_data")
OWN_NAMES = ("on_node", "storage_ops.runbooks.on_node")
# What ansible-core acts on in a result (StrategyBase._process_pending_results of
# ansible/plugins/strategy), in addition to its own values (_ansible_*).
ORDERS = ("ansible_facts", "ansible_stats", "add_host", "add_group")
# What makes an object of Ansible's own of a value, as __ansible_type does since ansible-core 2.19
# (AnsibleSerializable of ansible/module_utils/_internal/_datatag); and by which key such a value
# has what it says: tagged values, dates, warnings and errors, the events in these.
MARK = "__ansible_"
MEANT = ("value", "iso8601", "event", "msg")
# What modules return that mean no harm, and it is dropped, too. By the first one a host could have
# ansible-core 2.22 mask any text of the output, such as the names of other hosts.
ROUTINE = ("_ansible_new_secrets", "_ansible_suppress_tmpdir_delete")
# Characters of a text, and levels of lists and dictionaries. What Ansible does with a result in the
# process of all hosts fails some hundred levels deep.
MOST = 500_000
DEEPEST = 100
# Lines of a difference. Ansible compares two texts in the process of all hosts, which takes hours
# for long ones (difflib takes quadratic time and more).
MOST_LINES = 4_000
SIDES = ("before", "after")
# What a program on a host writes; errors come first.
STREAMS = ("stderr", "stdout")
# Characters of a line of it in a message.
MOST_OF_LINE = 500
# Lines of kubectl that say that the program has ended, or that none was started.
KUBECTL_ENDS = (texts.KUBECTL_ENDED, "Error from server")
NO_DIFF = {"prepared": "(the difference is too long to be shown)\n"}
# What a program has written, and people read as it is. In any other text a line feed would forge a
# line of the job's output: Ansible prints labels and warnings as they are.
WITH_LINES = ("stdout", "stderr", "module_stdout", "module_stderr")
# Characters of a module's answer that the controller accepts. Our own modules return a tenth of it
# at most; parsing and showing more would cost the controller too much.
MOST_TAKEN = 10_000_000
# Values and lines in it, about. However short one is, it takes a hundred bytes or more, in this
# process and in that of all hosts: Ansible keeps a text also as a list of its lines. Those of our
# own modules have some characters each.
MOST_VALUES = 500_000
# What begins a value, the backslash of what JSON escapes, and where str.splitlines ends a line.
SIGNS = ",[{\\\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
TOO_LONG = "result_too_long"
# Bytes that the process of one task may use in addition, while it talks to a host. Ansible collects
# all that a host sends before anything here sees it. MOST_TAKEN characters need a fifth of it.
MOST_MEMORY = 512 * 1024**2
# Seconds that a module of ours may take by its own options, as _node/options.py and
# _ceph/options.py have them, and their defaults.
NODE_WAITS = {"deadline": 300.0}
CEPH_WAITS = {"deadline": 60.0}
WATCHES = "rbd_watcher_info"
WAITS = {
    "ceph_blocklist": CEPH_WAITS,
    "ceph_client_info": NODE_WAITS,
    "container_restart": NODE_WAITS,
    "csi_mount_repair": NODE_WAITS,
    "fuse_remount": NODE_WAITS,
    "iscsi_module_check": NODE_WAITS,
    "multipath_residual": NODE_WAITS,
    "nfs_mount_check": NODE_WAITS,
    "node_storage_info": NODE_WAITS,
    WATCHES: {**CEPH_WAITS, "observation_seconds": 0.0, "gone_timeout": 60.0},
}
# Seconds in addition for all that Ansible does itself: it builds the module, and makes a folder,
# copies and looks for Python on a node that may be slow. Modules of Ansible's have to end in that
# time, too; the few that need longer have the keyword timeout.
GRACE = 120.0
# Seconds for removing what is left on a host.
TIDYING = 30.0
# The most that a timer of all systems can hold.
LONGEST = 100_000_000.0
# Seconds after which a timer that has not ended a task tries again.
AGAIN = 5.0
# What asks a machine from the controller itself, and reads all that this one says.
ASKING = ("ansible.builtin.uri",)
SPEC: dict[str, dict[str, Any]] = {
    "module": {"type": "str", "required": True},
    "arguments": {"type": "dict", "default": {}},
}


class ActionModule(Normal):  # type: ignore[misc]
    """The action of this file, and of all modules that do not run on the controller
    (meta/runtime.yml).
    """

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Run the module, and return its result without anything that Ansible would act on."""
        if self._task.async_val:
            # By an action of its own (TaskExecutor._poll_async_result).
            raise AnsibleError(
                f"{self._task.action} cannot run with async, since Ansible would take variables "
                "from what the host answers later: remove async from the task"
            )
        if self._task.action not in OWN_NAMES:
            with guarded(type(self)) as unread:
                result: dict[str, Any] = answered(
                    self._task,
                    self._task.action,
                    self._task.args,
                    lambda: instead(
                        as_run(super(ActionModule, self).run(tmp, task_vars)),
                        unread,
                        may_change(self._task, self._task.action),
                        self._connection.transport,
                    ),
                    self._room(),
                )
            return without_orders(result, _interpreter(self))
        _ok, params = self.validate_argument_spec(argument_spec=SPEC)
        task = self._task.copy()
        task.action, task.args = params["module"], params["arguments"]
        loader = self._shared_loader_obj.action_loader
        name = task.action if loader.has_plugin(task.action) else "ansible.builtin.normal"
        action = loader.get(
            name,
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
        with guarded(type(action)) as unread:
            result = answered(
                self._task,
                task.action,
                task.args,
                lambda: instead(
                    as_foreign(action.run(task_vars=task_vars), self._task),
                    unread,
                    may_change(self._task, task.action),
                    self._connection.transport,
                ),
                self._room(task.action),
            )
        return without_orders(result, _interpreter(action))

    def _room(self, module: str = "") -> int | None:
        """Bytes for what the host sends; None if it is the controller, whose programs, such as ceph
        with its threads, would have to live with them.
        """
        # They inherit the limit (fork(2), setrlimit(2)).
        here = self._connection.transport == "local" and module not in ASKING
        return None if here else MOST_MEMORY

    def cleanup(self, force: bool = False) -> None:
        """Remove the folder that is left on the host. The host keeps nothing else from its end."""
        # Ansible calls this after a task that was ended, without a timeout (TaskExecutor._execute),
        # and where the connection fails here, the host is one that it cannot reach.
        lost = suppress(AnsibleConnectionFailure, Silent, MemoryError)
        # Ansible warns of what the host says then.
        with guarded(type(self)), lost, within(TIDYING, self._room()):
            super().cleanup(force)


class Silent(BaseException):
    """A host has not answered in time. No Exception, since connection plugins try again after
    those (_ssh_retry of ansible/plugins/connection/ssh.py).
    """


def patience(task: Any, module: str, arguments: Mapping[str, Any]) -> float:
    """Seconds after which the controller no longer waits for a host: more than a module that keeps
    its own deadline may take.
    """
    if task.timeout:
        return float(task.timeout)
    name = module.rpartition(".")[2]
    seconds = _waits(name, arguments)
    watch = arguments.get("watch") if name == "ceph_blocklist" else None
    if watch is not None:
        # It comes after the entries, and has as much time as in the module that only watches.
        asked = dict(watch) if isinstance(watch, Mapping) else {}
        seconds += _waits(WATCHES, {**asked, "deadline": arguments.get("deadline")})
    return min(seconds + GRACE, LONGEST)


def _waits(name: str, arguments: Mapping[str, Any]) -> float:
    return sum(
        _number(arguments.get(wait), default) for wait, default in WAITS.get(name, {}).items()
    )


def _number(given: Any, default: float) -> float:
    """A module's option; the module itself refuses what is none, or negative."""
    try:
        seconds = float(given)
    except (TypeError, ValueError):
        return default
    return max(seconds, 0.0) if math.isfinite(seconds) else default


@contextmanager
def within(seconds: float, room: int | None) -> Iterator[None]:
    """Raise Silent after so many seconds, and MemoryError if it takes more than so many bytes."""
    # The module's deadline runs on the host, where root may ignore it. A signal, as Ansible's own
    # timeout, since connection plugins wait in the kernel. It takes the place of that timeout.

    def late(_signal: int, _frame: Any) -> None:
        raise Silent

    others, before = _children(), signal.signal(signal.SIGALRM, late)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
            with _little_memory(room):
                yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except (Silent, MemoryError):
        # The programs of the connection would wait for the host for ever.
        for child in _children() - others:
            with suppress(OSError):
                os.kill(child, signal.SIGTERM)
        raise
    finally:
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _little_memory(room: int | None) -> Iterator[None]:
    """Allow this process only so many bytes more than it has."""
    # Not RLIMIT_AS: children inherit the limit, and a program in Go (kubectl, as a connection)
    # reserves more addresses than it uses. RLIMIT_DATA counts what can be written (getrlimit(2),
    # since Linux 4.7), statm's sixth number what there is of it (proc(5)).
    statm = Path("/proc/self/statm")
    # Only Linux has it.
    if room is None or not statm.exists():
        yield
        return
    pages = int(statm.read_text(encoding="ascii").split()[5])
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = pages * resource.getpagesize() + room
    lower = [most, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(lower), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _children() -> set[int]:
    """The programs that this process has started; none are known if this is not Linux."""
    found: set[int] = set()
    for thread in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found.update(map(int, thread.read_text(encoding="ascii").split()))
    return found


def answered(
    task: Any,
    module: str,
    arguments: Mapping[str, Any],
    run: Callable[[], dict[str, Any]],
    room: int | None = None,
) -> dict[str, Any]:
    """What an action returns, also where the host cannot be reached, or does not answer.

    ``room``: how many bytes it may take for that; None for any number.
    """
    # Before ansible-core 2.19 the text of a failed connection is templated if an action raises it
    # (TaskExecutor._execute marks only what is returned as unsafe). Whoever answers at the host's
    # address writes that text, even before ssh has checked the key: "Bad remote protocol version
    # identification: ...".
    seconds = patience(task, module, arguments)
    lost: dict[str, Any] = {"unreachable": True}
    try:
        with within(seconds, room):
            return {key: value for key, value in run().items() if key != "unreachable"}
    except AnsibleConnectionFailure as error:
        lost["msg"] = str(error)
    except Silent:
        lost["msg"] = f"the host did not answer within {seconds:g} seconds"
    except MemoryError as error:
        said = str(error) or "more than the memory holds"
        lost = {"failed": True, "code": TOO_LONG, "msg": _too_long(said)}
    # Ansible quotes in errors of its own what a host wrote, and would print them as they are.
    except Exception as error:
        return _failed(error)
    lost["msg"] = _text(lost["msg"])
    # Ansible runs no rescue and no always for a host that it cannot reach, and ends the run where
    # that is the only one of its batch: a host could end it for all by cutting the connection. So a
    # role's task has failed, unless it goes on itself. Nor is a host lost since it answers so.
    # Of a task that asks another host, or one for all, the host of the play would be lost: that of
    # a Ceph ended all plays of the nightly report.
    apart = task._role is not None or task.run_once or task.delegate_to
    if "unreachable" in lost and (task.ignore_unreachable or not apart):
        return lost
    # What was allowed to change something may be in the middle of it.
    return {"failed": True, **lost, **_half_made(may_change(task, module))}


def may_change(task: Any, module: str) -> bool:
    """The module may change something on the host."""
    return not task.check_mode and not module.endswith("_info")


def _half_made(begun: bool) -> dict[str, bool]:
    return {"half_made": True} if begun else {}


def instead(
    result: dict[str, Any],
    unread: Sequence[Mapping[str, Any]],
    changes: bool,
    transport: str = "",
) -> dict[str, Any]:
    """A result that tells what the host said in place of the module's, such as sudo's refusal.

    ``unread``: the answers without a result; ``changes``: the module may change something;
    ``transport``: of the connection.
    """
    # Ansible tells what its reader of JSON missed, and an action may go on without the result.
    if not unread or not result.get("failed"):
        return result
    said, code = unread[-1], unread[-1].get("rc") or 0
    # Of its own accord a module ends with a result. A shell adds 128 to the signal that ended it
    # (dash(1), EXIT STATUS), subprocess makes it negative.
    number = -code if code < 0 else code - 128
    killed = 0 < number < signal.NSIG
    ended = f"signal {number}" if killed else f"exit code {code}"
    # With a terminal (ssh -tt) sudo's words are in stdout, and ssh's own in stderr.
    told = [line for key in STREAMS for line in texts.telling(said.get(key) or "")]
    words = "; ".join(untrusted.shown(line, MOST_OF_LINE) for line in told) or "nothing"
    # Neither is the traceback of that reader of any use.
    kept = {key: value for key, value in result.items() if key != "exception"}
    kept["msg"] = f"the host gave no result of the module ({ended}), and said: {words}"
    # sudo, a shell and Python end so only if they were killed, and so perhaps the module.
    # Ansible does not see when kubectl loses the stream to a pod, and the module goes on there.
    stderr = texts.lines(said.get("stderr") or "")
    ended_there = any(line.startswith(KUBECTL_ENDS) for line in stderr)
    cut = transport == "kubectl" and not ended_there
    return {**kept, **_half_made(changes and (killed or cut))}


def _failed(error: Exception) -> dict[str, Any]:
    """The result of an action that has raised an error."""
    # What an action fails with (AnsibleActionFail) may hold a result of its own.
    given = getattr(error, "result", None)
    result = as_run(dict(given)) if isinstance(given, Mapping) else {}
    foreseen = isinstance(error, AnsibleError)
    told = str(error) if foreseen else f"{type(error).__name__}: {error}"
    result |= {"failed": True, "msg": _text(told)}
    if not foreseen:
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        result["exception"] = untrusted.shown("".join(lines), MOST, lines=True)
    return result


@contextmanager
def guarded(action: type) -> Iterator[list[dict[str, Any]]]:
    """Have Ansible read nothing of an answer but what is safe: each action of this process does,
    since an action may run others (shell runs command, and template runs copy). Yields the answers
    in which there was no result.

    Raises AnsibleError, before anything is run, where that cannot be relied on.
    """
    # Ansible quotes what a host writes around a module's JSON, and keys that no module may return.
    # From 2.21 on it makes an object of an answer (UnifiedTaskResult), and keeps its warnings to
    # print them, before an action sees any of it. So it gets no other answer.
    if tuple(map(int, re.findall(r"\d+", __version__, re.ASCII)[:2])) >= UNTRIED:
        before = ".".join(map(str, UNTRIED))
        raise AnsibleError(
            f"ansible-core {__version__} has not been tested with hosts that answer to harm the "
            f"controller, so nothing was run on the host: install ansible-core below {before}"
        )
    if any(getattr(action, way) is not getattr(ActionBase, way) for way in WAYS):
        raise AnsibleError(
            f"the action {action.__module__} reads what a host answers in a way of its own, so "
            "nothing was run on the host: use another module"
        )
    execute, parse = (getattr(ActionBase, way) for way in WAYS)
    warn = Display.warning
    unread: list[dict[str, Any]] = []

    def executed(self: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        said: dict[str, Any] = _within_bounds(execute(self, *args, **kwargs))
        safe = {stream: _as_json(said.get(stream) or "") for stream in STREAMS}
        lines = {f"{stream}_lines": text.splitlines() for stream, text in safe.items()}
        return {**said, **safe, **lines}

    def parsed(self: Any, said: dict[str, Any], *profile: Any) -> Any:
        safe = made_safe(said)
        if "{" not in safe["stdout"]:
            unread.append(safe)
        return parse(self, safe, *profile)

    def warned(self: Any, msg: Any, *args: Any, **kwargs: Any) -> None:
        # It may quote what a program on the host has written, with its lines. Since ansible-core
        # 2.21 a value of the wrong type is printed as a line of its own (obj).
        kwargs.pop("obj", None)
        warn(self, _text(msg), *args, **kwargs)

    ActionBase._low_level_execute_command, ActionBase._parse_returned_data = executed, parsed
    Display.warning = warned
    try:
        yield unread
    finally:
        ActionBase._low_level_execute_command, ActionBase._parse_returned_data = execute, parse
        Display.warning = warn


def made_safe(said: dict[str, Any]) -> dict[str, Any]:
    """What a module's process has written, with a result of JSON's types alone that is safe to
    show, or with none; whatever an ansible-core makes of it then.

    ``said``: of ActionBase._low_level_execute_command.
    """
    text = said.get("stdout") or ""
    try:
        found, warnings = _filter_non_json_lines(text, objects_only=True)
        answer = json.loads(found)
    except ValueError:
        # Nor is it one for Ansible, which shows the text.
        return {**said, "stdout": text.replace("{", "\\x7b")}
    data = {key: value for key, value in answer.items() if not _reserved(key)}
    dropped = [untrusted.shown(key) for key in answer if _reserved(key) and key not in ROUTINE]
    if dropped:
        names = untrusted.few(dropped)
        warnings.append(f"dropped from the host's answer, since no module may set it: {names}")
    if warnings:
        data["warnings"] = [*_entries(data.get("warnings")), *warnings]
    # An action may need all of a text (fetch decodes a file): its own result is cut.
    return {**said, "stdout": json.dumps(as_data(data, MOST_TAKEN), ensure_ascii=False)}


def _reserved(key: str) -> bool:
    """It is what the controller alone says of a result, or what it would act on."""
    # The Python that it finds on the host it adds to the facts (ActionBase._execute_module).
    return key.startswith("_ansible_") or key in ORDERS[1:]


def _within_bounds(said: dict[str, Any]) -> dict[str, Any]:
    """The answer of a host. Raises MemoryError, as for one that the memory does not hold."""
    streams = [said.get(stream) or "" for stream in STREAMS]
    size = sum(map(len, streams))
    if size > MOST_TAKEN:
        raise MemoryError(f"{size} characters")
    # Those in texts count as well.
    values = sum(text.count(sign) for text in streams for sign in SIGNS)
    if values > MOST_VALUES:
        raise MemoryError(f"{values} values or lines")
    return said


def _too_long(size: str) -> str:
    return (
        f"the host answered with {size}, and {MOST_TAKEN} characters with {MOST_VALUES} values and "
        "lines are read from a module: root on the host may send anything"
    )


def _as_json(text: str) -> str:
    """The text with unprintable characters as JSON escapes."""
    # For a JSON reader that is the same text: JSON has such characters in strings only (RFC 8259,
    # 7).
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\r\t" else json.dumps(char)[1:-1] for char in text
    )


def without_orders(result: dict[str, Any], interpreter: dict[str, Any]) -> dict[str, Any]:
    """A result that sets no variable but the Python that the controller itself found on the host.

    Facts about the host are the value ``facts``, and not variables.
    """
    kept = {key: value for key, value in result.items() if key not in ORDERS}
    said = result.get("ansible_facts")
    if isinstance(said, dict):
        facts = {key: value for key, value in said.items() if key not in interpreter}
        kept |= {"facts": facts} if facts else {}
    return {**kept, "ansible_facts": interpreter} if interpreter else kept


def as_data(result: Mapping[str, Any], most: int = MOST) -> dict[str, Any]:
    """A result of JSON's types alone, and safe to show; ``most``: characters of each value's text.

    Ansible prints much of it as it is, and the rest as JSON, in which it leaves characters that a
    terminal obeys (U+009B). Roles show its texts in labels and messages.
    """
    kinds: dict[str, Callable[[Any], Any]] = {
        "exception": _traceback,
        "warnings": lambda said: [_text(entry) for entry in _entries(said)],
        "deprecations": lambda said: [_deprecation(entry) for entry in _entries(said)],
        "diff": _differences,
    }
    return {
        untrusted.shown(key): kinds[key](value)
        if key in kinds
        else _plain(value, key in WITH_LINES, most)
        for key, value in result.items()
        if not key.startswith(MARK)
    }


def _plain(value: Any, lines: bool = False, most: int = MOST, depth: int = DEEPEST) -> Any:
    """A value of a result; of any other type than JSON's only its text is left.

    ``lines``: line feeds and tabs stay.
    """
    # ansible-core 2.19 makes objects of an answer where that says so: warnings, which it prints as
    # they are, and values that have it print a warning where they are used, numbers among them.
    if isinstance(value, str):
        return untrusted.shown(str.__str__(value), most, lines)
    if value is None or isinstance(value, bool):
        return value
    for kind in (int, float):
        if isinstance(value, kind):
            return kind(value)
    if not isinstance(value, (Mapping, list, tuple, set)):
        return _text(value)
    if depth == 0:
        return "(more below)"
    if isinstance(value, Mapping):
        meant = _meant(value)
        if meant is not value:
            return _plain(meant, lines, most, depth - 1)
        return {_text(key): _plain(item, lines, most, depth - 1) for key, item in value.items()}
    return [_plain(item, lines, most, depth - 1) for item in value]


def _meant(value: Mapping[Any, Any]) -> Any:
    """What a value says that is to be an object of Ansible's; any other one as it is."""
    rest = {key: item for key, item in value.items() if not str(key).startswith(MARK)}
    if len(rest) == len(value):
        return value
    return next((rest[key] for key in MEANT if key in rest), rest)


def _part(value: Any, name: str) -> Any:
    """A part of an object of Ansible's, or of what was to be one."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _text(value: Any) -> str:
    """The text of a key, or of what is no data; of a warning its message."""
    event = _part(value, "event")
    message = _part(value if event is None else event, "msg")
    return untrusted.shown(str(value if message is None else message), MOST)


def _entries(said: Any) -> list[Any]:
    """Warnings, of which Ansible takes a list alone."""
    if isinstance(said, (list, tuple)):
        return [*said]
    return [] if said is None else [said]


def _deprecation(entry: Any) -> dict[str, str]:
    """In the form that Ansible takes; with a word more it may fail instead of warning."""
    when = {key: _part(entry, key) for key in ("version", "date")}
    return {"msg": _text(entry), **{key: _text(said) for key, said in when.items() if said}}


def _differences(said: Any) -> Any:
    """A difference, or a list of them, with both sides as texts, and short enough to compare."""
    many = isinstance(said, (list, tuple))
    diff = [_difference(one) for one in said] if many else _difference(said)
    return diff if _lines_of(diff) <= MOST_LINES else NO_DIFF


def _difference(said: Any) -> Any:
    if not isinstance(said, Mapping):
        return _plain(said)
    return {
        _text(key): _side(value) if key in SIDES else _plain(value) for key, value in said.items()
    }


def _side(value: Any) -> str:
    """One side of a difference."""
    # Ansible would make lines of a dictionary itself, and as YAML one of each word, if it is nested
    # deep (CallbackBase._serialize_diff of ansible/plugins/callback).
    side = _plain(value, lines=True)
    if isinstance(side, str):
        return side
    return "" if side is None else json.dumps(side, indent=1, ensure_ascii=False) + "\n"


def _lines_of(diff: Any) -> int:
    """How many lines Ansible makes of a difference, about."""
    text = json.dumps(diff, indent=0)
    return text.count("\n") + text.count("\\n")


def _traceback(exception: Any) -> str:
    """The text of an exception. Since ansible-core 2.19 it is an object with the traceback."""
    text = exception
    if not isinstance(text, str):
        text = _part(_part(exception, "event"), "formatted_traceback") or "no traceback"
    return untrusted.shown(str.__str__(str(text)), MOST, lines=True)


def as_run(result: dict[str, Any]) -> dict[str, Any]:
    """The result of a module that has run, never of a skipped one."""
    # Each of this collection supports check mode. A playbook treats what was skipped as not wanted,
    # so a host could hide itself with "skipped", or with "results" that were all skipped
    # (TaskResult.is_skipped of ansible/executor).
    return as_data(
        {key: value for key, value in result.items() if key not in ("skipped", "results")}
    )


def as_foreign(result: dict[str, Any], task: Any) -> dict[str, Any]:
    """The result of a module of others, skipped in check mode only."""
    # A module that does not support check mode says there that it was skipped (AnsibleModule of
    # ansible/module_utils/basic.py). Of uri each header of the answer is a key of the result.
    return as_data(result) if task.check_mode else as_run(result)


def _interpreter(action: ActionBase) -> dict[str, Any]:
    """The fact by which later tasks need not search for the Python again."""
    # ActionBase._execute_module adds it to a result.
    key, found = action._discovered_interpreter_key, action._discovered_interpreter
    return {key: found} if key and found else {}
