# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node whose root is hostile answers what it likes, in place of the module that was
sent to it.
"""

from __future__ import annotations

import inspect
import json
import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.storage_ops.runbooks.plugins.action import on_node
from ansible_collections.storage_ops.runbooks.plugins.action.on_node import as_run, without_orders
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.untrusted import shown
from ansible_collections.storage_ops.runbooks.tests.unit.support.roles import documented

COLLECTION = Path(__file__).resolve().parents[4]
RUNTIME = yaml.safe_load((COLLECTION / "meta/runtime.yml").read_text(encoding="utf-8"))
REMOTE = [*RUNTIME["action_groups"]["node"], *RUNTIME["action_groups"]["ceph"]]


@pytest.mark.parametrize(
    ("said", "interpreter", "kept"),
    [
        (
            {"ansible_facts": {"p": "/python"}},
            {"p": "/python"},
            {"ansible_facts": {"p": "/python"}},
        ),
        (
            {"ansible_facts": {"p": "/evil", "x": 1}},
            {"p": "/python"},
            {"facts": {"x": 1}, "ansible_facts": {"p": "/python"}},
        ),
        ({"ansible_facts": ["x"], "add_host": {"host_name": "h"}, "add_group": "g"}, {}, {}),
        ({"ansible_stats": {"data": {"x": 1}}}, {}, {}),
    ],
)
def test_what_is_kept_of_a_result(
    said: dict[str, Any], interpreter: dict[str, Any], kept: dict[str, Any]
) -> None:
    """The Python that the controller has found on the host is its own word."""
    assert without_orders({"changed": False, **said}, interpreter) == {"changed": False, **kept}


class Core:
    """The part of Ansible's actions that an answer goes through."""

    said: dict[str, Any] = {}

    def _low_level_execute_command(self, *_args: Any, **_kwargs: Any) -> dict[str, Any]:
        return {"rc": 0, "stdout": "", "stderr": "", **self.said}

    def _parse_returned_data(self, data: dict[str, Any]) -> dict[str, Any]:
        return data

    def run(self) -> dict[str, Any]:
        """Both, as an action does that runs a module."""
        return self._parse_returned_data(self._low_level_execute_command())


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_host_does_not_make_the_controller_read_for_hours(
    monkeypatch: pytest.MonkeyPatch, stream: str
) -> None:
    monkeypatch.setattr(on_node, "MOST_TAKEN", 1000)
    monkeypatch.setattr(on_node, "ActionBase", Core)
    action = Core()

    def run() -> dict[str, Any]:
        with on_node.guarded(Core):
            return action._low_level_execute_command()

    action.said = {stream: "x" * 1000}
    assert run()[stream] == action.said[stream]
    action.said = {stream: "x" * 1001}
    said = on_node.answered(task(), "multipath_residual", {}, run)
    # Nor is anything known of what it was allowed to change.
    assert (said["failed"], said["code"], said["half_made"]) == (True, "result_too_long", True)
    assert "answered with 1001 characters, and 1000 characters with" in said["msg"]
    # However short they are, values take memory.
    monkeypatch.setattr(on_node, "MOST_VALUES", 9)
    for answer, values in (("[{},{},{},{}]", 8), ("[[],[],[],[],[]]", 10), ('{"a":1,"b":2}', 2)):
        action.said = {stream: answer}
        said = on_node.answered(task(), "multipath_residual", {}, run)
        assert (said.get("code") == "result_too_long") == (values > 9), answer
        assert values <= 9 or f"answered with {values} values or lines" in said["msg"]


# Where str.splitlines ends a line.
ENDS = [chr(code) for code in range(0x3000) if len(f"a{chr(code)}b".splitlines()) > 1]


@pytest.mark.parametrize("end", [*ENDS, *(json.dumps(end)[1:-1] for end in ENDS)])
def test_line_ends_are_values(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """Of 10,000,000 of them, which is no value, Ansible made a list of lines, with two gigabytes in
    the process of all hosts. The login shell of the first task could write them.
    """
    monkeypatch.setattr(on_node, "MOST_VALUES", 9)
    assert len(ENDS) == 10
    for number in (9, 10):
        said = {"rc": 0, "stdout": "", "stderr": f"x{end}" * number}
        answer = on_node.answered(task(), "raw", {}, lambda said=said: on_node._within_bounds(said))
        assert (answer.get("code") == "result_too_long") == (number > 9), answer


def test_a_text_of_a_host_stays_one_line() -> None:
    """Ansible prints labels and warnings as they are, and a line feed forged lines of its own: a
    recap of other hosts, and a command to be copied.
    """
    evil = "x\n\nPLAY RECAP ****\nworker02 : ok=9 failed=0\u2028\r\tTo finish: curl"
    sides = {"before": evil, "after": evil}
    answer = {
        **dict.fromkeys(("msg", "unit", evil), evil),
        "warnings": [evil],
        "findings": [{"summary": evil, "evidence": {evil: [evil]}}],
        "deprecations": [{"msg": evil}],
        "diff": {**sides, "prepared": evil, "before_header": evil},
    }
    kept = as_run({**answer, "stdout": evil, "module_stderr": evil, "exception": evil})
    with_lines = [kept.pop(key) for key in ("stdout", "module_stderr", "exception")]
    with_lines += [kept["diff"].pop(side) for side in sides]
    assert {text.count("\n") for text in with_lines} == {3}
    assert not {"\u2028", "\r"} & set("".join(with_lines))
    assert printable(kept) and set(kept) == {*answer} - {evil} | {shown(evil)}
    assert "\\n\\nPLAY RECAP" in kept["msg"]
    assert kept["msg"] == kept["findings"][0]["summary"]
    for failed in (AnsibleError(evil), AnsibleConnectionFailure(evil)):

        def fails(error: Exception = failed) -> dict[str, Any]:
            raise error

        assert on_node.answered(task(), "raw", {}, fails)["msg"] == kept["msg"]


def test_no_module_of_ours_was_skipped_that_has_run() -> None:
    """Else Ceph's host could pass for one that was not to be asked."""
    said = {"skipped": True, "results": [{"skipped": True}]}
    assert as_run({"changed": False, **said, "ceph": {}}) == {"changed": False, "ceph": {}}


@pytest.mark.parametrize("skipped", [True, "1", 1])
def test_what_skips_a_module_of_others_is_check_mode_alone(skipped: Any) -> None:
    """A header of a BMC's answer is a key of the result of uri: with "Skipped: 1", a machine that
    was told to go off passed for one that was not asked.
    """
    said = {"skipped": skipped, "results": [{"skipped": True}], "status": 500, "msg": "no"}
    assert on_node.as_foreign(said, task()) == {"status": 500, "msg": "no"}
    # There the module says so itself, and has done nothing.
    assert on_node.as_foreign(said, task(check_mode=True)) == said


LOST = {"unreachable": True, "msg": "lost"}


def task(**given: Any) -> Any:
    """A task of a role that may change something."""
    asked = {"_role": "x", "ignore_unreachable": False, "check_mode": False, "timeout": 0}
    asked |= {"run_once": False, "delegate_to": None}
    return SimpleNamespace(**{**asked, **given})


@pytest.mark.parametrize(
    ("given", "module", "kept"),
    [
        ({}, "multipath_residual", {"failed": True, "half_made": True, **LOST}),
        ({"check_mode": True}, "multipath_residual", {"failed": True, **LOST}),
        ({}, "storage_ops.runbooks.node_storage_info", {"failed": True, **LOST}),
        ({"ignore_unreachable": True}, "ceph_blocklist", LOST),
        ({"_role": None}, "multipath_residual", LOST),
        # Of these it would be the host of the play, and often of the whole run.
        ({"_role": None, "run_once": True}, "rbd_watcher_info", {"failed": True, **LOST}),
        ({"_role": None, "delegate_to": "c"}, "rbd_watcher_info", {"failed": True, **LOST}),
        ({"_role": None, "delegate_to": "c", "ignore_unreachable": True}, "x_info", LOST),
    ],
)
def test_a_role_has_failed_on_a_host_that_is_lost(
    given: dict[str, Any], module: str, kept: dict[str, Any]
) -> None:
    """For one that is only unreachable Ansible runs no rescue, and may end the run. Whether it is,
    the connection says, and not the host.
    """

    def lost() -> dict[str, Any]:
        raise AnsibleConnectionFailure("lost")

    assert on_node.answered(task(**given), module, {}, lost) == kept
    said = on_node.answered(task(**given), module, {}, lambda: {"unreachable": True, "msg": "x"})
    assert said == {"msg": "x"}

    def late() -> dict[str, Any]:
        # As the timer does, and a connection plugin that tries again after each Exception.
        try:
            os.kill(os.getpid(), signal.SIGALRM)
        except Exception:
            return {"msg": "tried again"}
        return {"msg": "waited"}

    said = on_node.answered(task(**given, timeout=77), module, {}, late)
    assert said == {**kept, "msg": "the host did not answer within 77 seconds"}
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_the_controller_waits_longer_than_a_module_by_its_own_deadline() -> None:
    """That ends it on the host, where root may ignore it. Whatever the module, it is bounded."""
    for name in REMOTE:
        options = documented(name)
        waits = {wait: float(options[wait].get("default", 0)) for wait in on_node.WAITS[name]}
        assert waits == on_node.WAITS[name]
        seconds = on_node.patience(task(), f"storage_ops.runbooks.{name}", {})
        assert seconds == sum(waits.values()) + on_node.GRACE
        seconds = on_node.patience(task(), name, {"deadline": "20"})
        assert seconds == sum({**waits, "deadline": 20.0}.values()) + on_node.GRACE
        for odd in (None, "x", "nan", "inf", [1]):
            waited = on_node.patience(task(), name, {"deadline": odd})
            assert waited == sum(waits.values()) + on_node.GRACE
        assert on_node.patience(task(), name, {"deadline": 1e300}) == on_node.LONGEST
    assert on_node.patience(task(), "ansible.builtin.raw", {"deadline": 9}) == on_node.GRACE
    assert on_node.patience(task(timeout=5), "multipath_residual", {"deadline": 9}) == 5


def test_the_controller_waits_for_what_is_watched_too() -> None:
    """After the entries, and not in the time for these. Else it would lose what the module says."""
    name = "storage_ops.runbooks.ceph_blocklist"
    for watch, seconds in (({"gone_timeout": "300", "observation_seconds": 3}, 303), ("{}", 60)):
        asked = {"deadline": 20, "watch": watch}
        assert on_node.patience(task(), name, asked) == 20 + 20 + seconds + on_node.GRACE
    # Its other options have the defaults of the module that only watches.
    watch = documented("ceph_blocklist")["watch"]["suboptions"]
    for wait, default in on_node.WAITS["rbd_watcher_info"].items():
        assert wait == "deadline" or float(watch[wait]["default"]) == default


def test_a_timer_runs_while_a_host_is_asked() -> None:
    """It repeats, since what it raises may be lost, as in a __del__."""

    def asked() -> dict[str, Any]:
        left, again = signal.getitimer(signal.ITIMER_REAL)
        return {"left": left, "again": again}

    said = on_node.answered(task(timeout=1000), "ansible.builtin.raw", {}, asked)
    assert 0 < said["left"] <= 1000 and said["again"] == on_node.AGAIN
    # Also while the folder is removed, which Ansible does after a task that was ended.
    removed = []

    class Action(on_node.ActionModule):  # type: ignore[misc]
        """The part that is asked."""

        def __init__(self, connection: str = "ssh") -> None:
            shell = SimpleNamespace(tmpdir="/x")
            self._connection = SimpleNamespace(_shell=shell, transport=connection)
            self._task = SimpleNamespace(async_val=0)

        def _remove_tmp_path(self, tmp_path: str, force: bool = False) -> None:
            removed.append((tmp_path, signal.getitimer(signal.ITIMER_REAL)[0]))
            raise AnsibleConnectionFailure("lost")

    Action().cleanup()
    # Programs on the controller itself, such as ceph, do not get by with the room for an answer.
    assert (Action()._room(), Action("local")._room()) == (on_node.MOST_MEMORY, None)
    assert Action("local")._room("ansible.builtin.command") is None
    # What a BMC sends has to fit, too.
    assert Action("local")._room("ansible.builtin.uri") == on_node.MOST_MEMORY
    assert removed[0][0] == "/x" and 0 < removed[0][1] <= on_node.TIDYING


def test_a_host_does_not_use_up_the_memory_of_the_controller() -> None:
    """Which all hosts of a run share. A connection plugin collects all that a host sends."""
    room = 64 * 1024**2
    before = resource.getrlimit(resource.RLIMIT_DATA)
    most = 0

    def collected() -> dict[str, Any]:
        nonlocal most
        answer = b""
        with subprocess.Popen(["cat", "/dev/zero"], stdout=subprocess.PIPE) as host:
            assert host.stdout is not None
            try:
                while len(answer) < 8 * room:
                    answer += host.stdout.read(1024**2)
                    most = len(answer)
            finally:
                host.kill()
        return {"stdout": answer.decode()}

    said = on_node.answered(task(), "multipath_residual", {}, collected, room)
    assert (said["failed"], said["code"]) == (True, "result_too_long")
    # It was allowed to change something, and nothing is known of that.
    assert said["half_made"] is True
    assert "more than the memory holds" in said["msg"] and 0 < most <= room
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_no_text_of_ours_is_obeyed_by_a_terminal() -> None:
    """Whoever is root on a host writes the labels and messages of the tasks after this one."""
    evil = "\x1b]52;c;eA==\x07\u202e"
    answer = {"pods": [{"namespace": evil, evil: [evil]}], "unit": evil, "count": 3, evil: True}
    kept = on_node.as_run({**answer, "ansible_facts": {"ansible_python": "x"}})
    assert json.dumps(kept, ensure_ascii=False).isprintable() and kept["count"] == 3
    assert "\\u001b" not in json.dumps(kept) and len(kept) == 5


EVIL = "\x1b]52;c;eA==\x07\x9b2J\u202e"
# The same with what Python's own representation of a text does not escape.
SHOWN = "\\x1b]52;c;eA==\\x07\\x9b2J\\u202e"


def printable(kept: Any) -> bool:
    return json.dumps(kept, ensure_ascii=False).isprintable()


def test_a_result_has_the_types_of_json_alone() -> None:
    """ansible-core 2.19 makes objects of an answer that asks for them. It prints the text of a
    warning as it is, and also that of a value that is deprecated, where it is used.
    """

    class Tagged(int):
        """A number that Ansible knows more about."""

    warning = SimpleNamespace(event=SimpleNamespace(msg=EVIL))
    answer = {
        "warnings": [warning, EVIL, {"msg": EVIL}],
        "deprecations": [warning, {"msg": EVIL, "version": EVIL, "removed": True}, EVIL, 7],
        "exception": warning,
        "rc": Tagged(3),
        "some": {EVIL},
        "changed": True,
        "seconds": 0.5,
        "none": None,
        "other": EVIL,
    }
    kept = on_node.as_data(answer)
    assert printable(kept) and not isinstance(kept["rc"], Tagged)
    assert kept["warnings"] == [SHOWN, SHOWN, SHOWN]
    told = [{"msg": SHOWN}, {"msg": SHOWN, "version": SHOWN}, {"msg": SHOWN}, {"msg": "7"}]
    assert kept["deprecations"] == told
    assert (kept["changed"], kept["seconds"], kept["none"]) == (True, 0.5, None)
    assert kept["some"] == [SHOWN] and kept["exception"] == "no traceback"
    deep: Any = EVIL
    for _level in range(5_000):
        deep = [deep]
    kept = on_node.as_run({"deep": deep})
    assert json.dumps(kept).count("[") == on_node.DEEPEST and "more below" in json.dumps(kept)


@pytest.mark.parametrize("sides", [str, list, dict])
def test_no_host_has_the_controller_compare_long_texts(sides: type) -> None:
    """Ansible does so in the process of all hosts, with --diff, which AWX's check jobs have."""
    text = "a\nb\n" * 1_001

    def side() -> Any:
        return text if sides is str else {"x": text.split()} if sides is dict else [text]

    diff: Any = {"before": side(), "after": side()}
    if sides is list:
        diff = [{"before": "a\n" * 101, "after": "b\n"}] * 41
    assert on_node.as_data({"diff": diff})["diff"] == on_node.NO_DIFF
    short = {"before": "a\n", "after": "", "before_header": EVIL}
    assert on_node.as_data({"diff": short})["diff"] == {**short, "before_header": SHOWN}


def test_ansible_makes_no_lines_of_a_dictionary_itself() -> None:
    """As YAML it folds a text, and one that is nested deep at each blank: 400,000 characters were 5
    lines as they were counted, and thousands as they were compared.
    """
    deep: Any = "a b c " * 100
    for _level in range(50):
        deep = {"a": deep}
    sides = on_node.as_data({"diff": [{"before": deep, "after": [1], "x": deep}]})["diff"][0]
    assert sides["before"].count("\n") == 101 and sides["after"] == "[\n 1\n]\n"
    assert isinstance(sides["x"], dict)
    assert on_node.as_data({"diff": {"before": None, "after": 7}})["diff"] == {
        "before": "",
        "after": "7\n",
    }


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (AnsibleError(EVIL), SHOWN),
        (AnsibleActionFail(EVIL, result={"stderr": EVIL, "skipped": True}), SHOWN),
        (ValueError(EVIL), f"ValueError: {SHOWN}"),
        (RecursionError("too deep"), "RecursionError: too deep"),
    ],
)
def test_an_error_that_quotes_a_host_is_no_more_than_a_failure(error: Exception, said: str) -> None:
    """Ansible prints those that an action raises as they are: of a file that could not be copied,
    say, what the host has written.
    """

    def failed() -> dict[str, Any]:
        raise error

    kept = on_node.answered(task(), "ansible.builtin.copy", {}, failed)
    assert kept["failed"] is True and said in kept["msg"] and printable(kept)
    assert "skipped" not in kept
    # Where it was not foreseen. Old ansible-cores give that of an action that fails, too.
    assert "exception" in kept or isinstance(error, AnsibleError)
    assert "exception" not in kept or error.__class__ in (
        AnsibleActionFail,
        ValueError,
        RecursionError,
    )


@pytest.mark.parametrize("version", ["2.23.0b1", "2.100.1", "3.0.0"])
def test_an_ansible_core_that_was_not_tried_is_refused(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is run on the host."""
    monkeypatch.setattr(on_node, "ActionBase", Core)
    monkeypatch.setattr(on_node, "__version__", version)
    with pytest.raises(AnsibleError, match=r"install ansible-core below 2\.23"):
        refused_by(Core)
    first = ".".join(map(str, on_node.UNTRIED))
    said = (COLLECTION / "docs/installation.md").read_text(encoding="utf-8")
    assert f"From {first} on, tasks on hosts refuse to run" in said
    for tried in ("2.16.0", "2.21.5", "2.22.0rc1"):
        monkeypatch.setattr(on_node, "__version__", tried)
        with on_node.guarded(Core):
            pass


def refused_by(action: type) -> None:
    """Raises what the guard does, and fails where it lets the action run."""
    with on_node.guarded(action):
        raise AssertionError("it ran")


@pytest.mark.parametrize("way", on_node.WAYS)
def test_an_action_that_reads_an_answer_in_its_own_way_is_refused(way: str) -> None:
    own = type("Own", (ActionBase,), {way: lambda self: None})
    with pytest.raises(AnsibleError, match="in a way of its own, so nothing was run"):
        refused_by(own)
    with on_node.guarded(type("Usual", (ActionBase,), {})):
        pass


def test_each_action_is_guarded_while_one_runs_and_none_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those too that it runs itself, such as shell, and also after an error."""
    monkeypatch.setattr(on_node, "ActionBase", Core)
    monkeypatch.setattr(Core, "said", {"stdout": json.dumps({"msg": EVIL}), "stderr": EVIL})
    warned: list[Any] = []
    monkeypatch.setattr(Display, "warning", lambda _self, msg, **more: warned.append((msg, more)))
    before = [getattr(owner, way) for owner, way in GUARDED]

    def failing() -> None:
        with on_node.guarded(Core):
            other = type("Other", (Core,), {})()
            assert json.loads(other.run()["stdout"]) == {"msg": SHOWN}
            assert other.run()["stderr"].isprintable()
            Display().warning(msg=f"{EVIL}\n", obj=EVIL)
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert [getattr(owner, way) for owner, way in GUARDED] == before
    assert Core().run()["stderr"] == EVIL
    # The value that a warning is about is printed as a line of its own.
    assert warned == [(f"{SHOWN}\\n", {})]


GUARDED = [(Core, way) for way in on_node.WAYS] + [(Display, "warning")]


def made(kind: str, **fields: Any) -> dict[str, Any]:
    """What ansible-core 2.19 and later make an object of."""
    return {"__ansible_type": kind, **fields}


LINES = f"{EVIL}\nPLAY RECAP\n"
EVENT = made("Event", msg=LINES, formatted_traceback=LINES, help_text=LINES)
TYPED = {
    "msg": made("_AnsibleTaggedStr", value=LINES, tags=[made("Deprecated", msg=LINES)]),
    "warnings": [made("WarningSummary", event=EVENT), LINES, 7],
    "deprecations": [made("DeprecationSummary", event=EVENT, version="9", deprecator=None)],
    "exception": made("ErrorSummary", event=EVENT),
    "when": made("AnsibleSerializableDate", iso8601="2026-01-01"),
    "deep": [made("_AnsibleTaggedList", value=[made("NoSuch", event=made("Event", msg=LINES))])],
    "odd": made("NoSuch", __ansible_other=1, x=LINES),
    "__ansible_type": "WarningSummary",
    "stdout": LINES,
    "long": "x" * (on_node.MOST + 1),
}
# What the controller alone says, and what it acts on.
RESERVED = ("_ansible_no_log", "_ansible_\x1b", "ansible_stats", "add_host", "add_group")
ONE_LINE = f"{SHOWN}\\nPLAY RECAP\\n"


def texts_of(value: Any) -> Iterator[str]:
    """All texts in a value, keys as well."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for pair in value.items() for part in pair for text in texts_of(part))
    elif isinstance(value, list):
        yield from (text for part in value for text in texts_of(part))


def test_ansible_reads_a_result_of_safe_texts_and_of_nothing_else() -> None:
    """ansible-core 2.21 keeps warnings of a module's result before an action sees it."""
    answer = {**TYPED, **dict.fromkeys((*RESERVED, *on_node.ROUTINE), LINES)}
    stdout = f"banner\n{json.dumps(answer, ensure_ascii=False)}\n{LINES}"
    said = on_node.made_safe({"rc": 0, "stdout": stdout, "stderr": "x"})
    kept = json.loads(said.pop("stdout"))
    assert said == {"rc": 0, "stderr": "x"} and kept["msg"] == ONE_LINE
    assert not {*RESERVED, *on_node.ROUTINE} & set(kept)
    assert "__ansible_" not in json.dumps(kept)
    junk, dropped = kept["warnings"][3:]
    assert kept["warnings"][:3] == [ONE_LINE, ONE_LINE, "7"]
    assert junk.startswith("Module invocation had junk") and junk.isprintable()
    assert dropped.endswith(": _ansible_no_log, _ansible_\\x1b, ansible_stats, add_host, add_group")
    assert kept["deprecations"] == [{"msg": ONE_LINE, "version": "9"}]
    assert kept["when"] == "2026-01-01" and kept["odd"] == {"x": ONE_LINE}
    assert kept["deep"] == [[ONE_LINE]]
    # An action may need all of it; in its own result it is cut.
    assert kept["long"] == TYPED["long"]
    # What a program wrote has its lines, and so has a traceback.
    assert kept.pop("stdout") == kept.pop("exception") == f"{SHOWN}\nPLAY RECAP\n"
    assert all(map(str.isprintable, texts_of(kept)))


def parsed(stdout: str) -> dict[str, Any]:
    """What the ansible-core that is installed here reads of it."""
    reader = SimpleNamespace(_used_interpreter=None)
    said = {"rc": 1, "stdout": stdout, "stdout_lines": [], "stderr": "", "stderr_lines": []}
    with on_node.guarded(ActionBase):
        parse = ActionBase._parse_returned_data
        profile = () if "profile" not in PARSE_OPTIONS else ("legacy",)
        data = parse(reader, said, *profile)
        return data if isinstance(data, dict) else data.as_result_dict(for_round_trip=True)


PARSE_OPTIONS = inspect.signature(ActionBase._parse_returned_data).parameters


def test_this_ansible_core_warns_of_safe_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its real reader, from 2.21 on of the warnings of a result itself."""
    seen: list[Any] = []

    def warned(_self: Any, msg: str, *_args: Any, **kwargs: Any) -> None:
        seen.extend([msg, kwargs.get("obj")])

    monkeypatch.setattr(Display, "warning", warned)
    # For 2.21 a value of the wrong type.
    answer = {**TYPED, **dict.fromkeys(RESERVED, LINES), "rc": LINES, "changed": LINES}
    data = parsed(f"{json.dumps(answer)}\n{LINES}")
    warnings = [
        getattr(getattr(warning, "event", None), "msg", warning) for warning in data["warnings"]
    ]
    assert warnings[:3] == [ONE_LINE, ONE_LINE, "7"]
    assert not any(map(data.__contains__, RESERVED))
    assert all(map(str.isprintable, [*warnings, *filter(None, seen)]))
    # An action's result has JSON's types alone.
    result = on_node.as_run(data)
    assert result["warnings"][:2] == [ONE_LINE, ONE_LINE] and json.dumps(result)
    assert result["deprecations"] == [{"msg": ONE_LINE, "version": "9"}]


@pytest.mark.parametrize("text", ["", "{", '{"a": 1', "[1]", '{"a": \x1b}', "Traceback {x}"])
def test_what_is_no_result_for_the_guard_is_none_for_ansible(text: str) -> None:
    said = on_node.made_safe({"rc": 1, "stdout": text})
    assert "{" not in said["stdout"]
    data = parsed(text)
    assert data["failed"] is True and data["module_stdout"] == said["stdout"]


def test_the_guard_that_finds_no_result_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if an ansible-core would find one where the guard does not."""

    def none(_text: str, objects_only: bool) -> Any:
        raise ValueError(objects_only)

    monkeypatch.setattr(on_node, "_filter_non_json_lines", none)
    assert parsed(json.dumps({"changed": True, "msg": EVIL}))["failed"] is True


def test_what_a_host_says_when_its_folder_is_removed_is_one_safe_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ansible warns of it. The task's own action removes it, and another one runs the module."""
    warned: list[str] = []

    def executed(*_args: Any, **_kwargs: Any) -> dict[str, Any]:
        return {"rc": 1, "stdout": "", "stderr": f"{EVIL}\nPLAY RECAP"}

    class Action(on_node.ActionModule):  # type: ignore[misc]
        """The part that is asked."""

        _cleanup_remote_tmp = True

        def __init__(self) -> None:
            shell = SimpleNamespace(
                tmpdir="/x/ansible-tmp-1", remove=lambda *_args, **_kwargs: "rm"
            )
            self._connection = SimpleNamespace(_shell=shell, transport="ssh")
            self._task = SimpleNamespace(async_val=0)

    monkeypatch.setattr(ActionBase, "_low_level_execute_command", executed)
    monkeypatch.setattr(Display, "warning", lambda _self, msg: warned.append(msg))
    Action().cleanup(force=True)
    assert len(warned) == 1 and "PLAY RECAP" in warned[0] and warned[0].isprintable()


SUDO = "sudo: a password is required"


class Ran(on_node.ActionModule):  # type: ignore[misc]
    """The action of a module of ours, up to what its host writes."""

    _discovered_interpreter_key = _discovered_interpreter = None
    _connection = SimpleNamespace(transport="ssh")

    def __init__(self, said: dict[str, Any], given: dict[str, Any]) -> None:
        self.said = said
        self._task = task(action="multipath_residual", args={}, async_val=0, **given)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"stderr": f"{SUDO}\r\n", "stdout": "\r\n", "rc": 1}, f"(exit code 1), and said: {SUDO}"),
        # With a terminal both are in stdout, and ssh ends with a word of its own.
        (
            {"stderr": "Shared connection closed.\r\n", "stdout": f"\r\n{SUDO}\r\n", "rc": 1},
            f"and said: Shared connection closed.; {SUDO}",
        ),
        ({"stderr": "", "stdout": "", "rc": 1}, "and said: nothing"),
        (
            {"stderr": f"{EVIL}{SUDO}\rx", "stdout": "", "rc": 1},
            f"said: {json.dumps(EVIL)[1:-1]}{SUDO}\\rx",
        ),
        (
            {"stderr": "Traceback (most recent call last):\n  x\nOSError: full\n", "rc": 1},
            "said: OSError: full",
        ),
        ({"stderr": "x" * 10_000, "rc": 127}, f"(exit code 127), and said: {'x' * 500} (+9500"),
        (
            {"stderr": "Killed\n", "stdout": '{"changed": tr', "rc": 137},
            "(signal 9), and said: Kill",
        ),
        ({"stderr": "", "rc": -15}, "(signal 15), and said: nothing"),
        ({"stderr": "", "rc": 255}, "(exit code 255), and said: nothing"),
    ],
)
@pytest.mark.parametrize("check_mode", [False, True])
def test_what_a_host_says_in_place_of_a_result_is_the_message(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, Any], told: str, check_mode: bool
) -> None:
    """An operator who may not use sudo there reads sudo's own words, whatever ansible-core makes of
    them. A module that was killed while it may change something may have left it half made.
    """

    def normal(action: Ran, *_args: Any) -> dict[str, Any]:
        # As ActionBase._execute_module.
        answer = action._low_level_execute_command("python")
        profile = () if "profile" not in PARSE_OPTIONS else ("legacy",)
        data = action._parse_returned_data(answer, *profile)
        return data if isinstance(data, dict) else data.as_result_dict(for_round_trip=True)

    def executed(action: Ran, *_args: Any) -> dict[str, Any]:
        return {"stdout": "", "stdout_lines": [], "stderr_lines": [], **action.said}

    monkeypatch.setattr(on_node.Normal, "run", normal)
    monkeypatch.setattr(ActionBase, "_low_level_execute_command", executed)
    monkeypatch.setattr(Ran, "_used_interpreter", None, raising=False)
    result = Ran(said, {"check_mode": check_mode}).run()
    assert result["failed"] is True and told in result["msg"], result
    assert result["msg"].startswith("the host gave no result of the module (")
    assert printable(result["msg"]) and "exception" not in result
    assert result.get("half_made", False) is (said["rc"] in (137, -15) and not check_mode)


def test_what_is_said_beside_a_result_replaces_none() -> None:
    failed = {"failed": True, "msg": "no such map"}
    assert on_node.instead(failed, [], True) == failed
    # An action may ask the host more than once, and go on without an answer.
    assert on_node.instead({"msg": "ok"}, [{"rc": 137}], True) == {"msg": "ok"}


@pytest.mark.parametrize(
    ("stderr", "transport", "half"),
    [
        ("error: unexpected EOF\n", "kubectl", True),
        ("", "kubectl", True),
        ("KeyError: 1\ncommand terminated with exit code 1\n", "kubectl", False),
        ('Error from server (NotFound): pods "x" not found\n', "kubectl", False),
        ("error: unexpected EOF\n", "ssh", False),
    ],
)
def test_a_stream_to_a_pod_that_was_cut_leaves_a_repair_half_made(
    stderr: str, transport: str, half: bool
) -> None:
    """The module goes on in the pod; kubectl itself ends with code 1."""
    failed = {"failed": True, "msg": "no JSON"}
    said = [{"rc": 1, "stderr": stderr}]
    assert on_node.instead(failed, said, True, transport).get("half_made", False) is half
    assert "half_made" not in on_node.instead(failed, said, False, transport)


def test_both_actions_are_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a module of ours, and what on_node runs: another one, which may load more."""
    monkeypatch.setattr(on_node, "ActionBase", Core)
    monkeypatch.setattr(Core, "said", {"stdout": json.dumps({"skipped": True, "msg": EVIL})})

    class Other(Core):
        """Another action."""

        _discovered_interpreter_key = _discovered_interpreter = None

        def run(self, task_vars: Any = None) -> dict[str, Any]:
            said = json.loads(super().run()["stdout"])
            assert said["msg"] == SHOWN
            return dict(said)

    def normal(*_args: Any) -> dict[str, Any]:
        return Other().run()

    monkeypatch.setattr(on_node.Normal, "run", normal)

    class Action(on_node.ActionModule):  # type: ignore[misc]
        """The part that is asked."""

        _discovered_interpreter_key = _discovered_interpreter = None
        _low_level_execute_command = Core._low_level_execute_command
        _parse_returned_data = Core._parse_returned_data
        _task: Any = SimpleNamespace(
            action="storage_ops.runbooks.on_node",
            args={},
            async_val=0,
            check_mode=False,
            copy=SimpleNamespace,
            timeout=0,
        )
        _connection = SimpleNamespace(transport="local")
        _play_context = _loader = _templar = None
        _shared_loader_obj = SimpleNamespace(
            action_loader=SimpleNamespace(has_plugin=bool, get=lambda _name, **_given: Other())
        )

        def __init__(self) -> None:
            pass

        def validate_argument_spec(self, **_given: Any) -> tuple[None, dict[str, Any]]:
            return None, {"module": "ansible.builtin.setup", "arguments": {}}

    ours = "storage_ops.runbooks.node_storage_info"
    for name in (Action._task.action, ours):
        Action._task.action = name
        assert Action().run() == {"msg": SHOWN}
    for name in (Action._task.action, ours):
        Action._task = SimpleNamespace(action=name, async_val=1)
        with pytest.raises(AnsibleError, match=f"{name} cannot run with async"):
            Action().run()


# They ask no host anything.
HERE = {"assert", "debug", "fail", "group_by", "import_playbook", "import_role", "import_tasks"}
HERE |= {"include_role", "include_tasks", "meta", "set_fact", "set_stats"}
OURS = {"check_scope", "compliance_report", "conclude", "on_node", *REMOTE}
HARMLESS = {f"ansible.builtin.{name}" for name in HERE}
HARMLESS |= {f"storage_ops.runbooks.{name}" for name in OURS}
NODE_ROLES = ("fuse_recovery", "iscsi_ready", "nfs_check", "pod_mounts", "residual_paths")


def on_a_host(tasks: list[dict[str, Any]], host: bool) -> set[str]:
    """What these tasks run on a host that is not the controller; ``host``: theirs is not."""
    found: set[str] = set()
    for task in tasks:
        there = task.get("delegate_to", "" if host else "localhost") != "localhost"
        for part in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks", "handlers"):
            found |= on_a_host(task.get(part, []), there)
        # The action's time limit would be over before the module is.
        assert not there or "async" not in task, task
        actions = {key for key in task if "." in key or key in {"action", "local_action"}}
        assert actions or {"block", "hosts"} & set(task), task
        found |= actions if there else set()
    return found


def all_tasks() -> dict[str, set[str]]:
    """By file, what roles and playbooks run on hosts."""
    found = {}
    for file in COLLECTION.glob("roles/*/tasks/*.yml"):
        role = file.parents[1].name
        tasks = DataLoader().load_from_file(str(file))
        found[f"{role}/{file.name}"] = on_a_host(tasks, role in NODE_ROLES)
    for file in COLLECTION.glob("playbooks/**/*.yml"):
        loaded = DataLoader().load_from_file(str(file))
        for play in loaded if isinstance(loaded, list) else []:
            there = play.get("hosts") != "localhost"
            # Else Ansible runs its own module there first.
            assert "hosts" not in play or play["gather_facts"] is False, file
            name = str(file.relative_to(COLLECTION))
            found[name] = found.get(name, set()) | on_a_host([play], there)
    return found


def test_nothing_runs_on_a_host_but_through_it() -> None:
    """What a host answers, and what ssh says of it, is data: also of what reads no result."""
    found = all_tasks()
    assert "storage_ops.runbooks.on_node" in found["playbooks/tasks/reach.yml"]
    assert "storage_ops.runbooks.on_node" in found["attachment_repair/restart_on_host.yml"]
    assert {file: others for file, ran in found.items() if (others := ran - HARMLESS)} == {}


def actions_of(value: Any) -> Iterator[str]:
    """The actions of all tasks in what a file of YAML has, by their short names."""
    if isinstance(value, dict):
        names = [*value, *(str(value.get(key, "")) for key in ("action", "local_action"))]
        yield from (name.split()[0].rpartition(".")[2] for name in names if name.split())
        yield from (name for part in value.values() for name in actions_of(part))
    elif isinstance(value, list):
        yield from (name for part in value for name in actions_of(part))


def test_no_server_that_is_asked_gives_ansible_an_order() -> None:
    """Each header of its answer is a key of the result: Unreachable ended the run, Ansible-Stats
    ansible-playbook itself.
    """
    of_all = {"a": [{"block": [{"action": "x.y.uri url=z"}, {"ansible.legacy.uri": {}}]}]}
    assert [*actions_of(of_all)].count("uri") == 2
    for file in [*COLLECTION.glob("roles/**/*.yml"), *COLLECTION.glob("playbooks/**/*.yml")]:
        assert "uri" not in actions_of(DataLoader().load_from_file(str(file))), file


@pytest.mark.parametrize("name", REMOTE)
def test_what_runs_elsewhere_goes_through_it(name: str) -> None:
    routes = RUNTIME["plugin_routing"]["modules"]
    assert routes[name]["action_plugin"] == "storage_ops.runbooks.on_node"
