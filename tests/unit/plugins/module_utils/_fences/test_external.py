# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a command that tells of a node is called, and what its answers prove."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import BadOption
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.agents import AgentCall
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.external import (
    Told,
    told_of,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ledger import (
    Ledger,
    PowerFence,
    parse_ledger,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.power import (
    address_of,
    agent_call,
    parse_power,
    proof_doubts,
    sharing,
    way_of,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.state import (
    HostRecord,
    pick_host_record,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.fences import (
    MACHINE,
    POWERED,
    looks,
)

GIVEN = {"kind": "external", "host": "cloud_01", "command": ["/bin/power-of", "i-0abc"]}
INSTANCE = "aws:///eu-central-1a/i-0abc"
NOW = datetime(2026, 1, 1, 12, 0, 30, tzinfo=timezone.utc)
SILENT = "2026-01-01T11:50:00Z"
# As the ledger notes it.
OUTSIDE = POWERED._replace(
    method="external", power=PowerFence("external", "cloud_01", INSTANCE, MACHINE)
)


def call(**given: Any) -> AgentCall:
    return agent_call({"a": {**GIVEN, **given}}, "a", "admin", "hunter2")


def test_a_command_is_run_as_it_is_and_gets_no_password() -> None:
    assert call() == AgentCall("cloud_01", argv=("/bin/power-of", "i-0abc"))
    assert call(command=["/bin/power-of", 7, "a b; $c"]).argv == ("/bin/power-of", "7", "a b; $c")
    assert way_of("external") == "external"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"host": ""}, "host where its command is run"),
        ({"host": "-oProxyCommand=x"}, "host where its command is run"),
        ({"command": "/bin/power-of i-0abc"}, "must be a list"),
        ({"command": []}, "must be a list"),
        ({"command": None}, "must be a list"),
        ({"command": ["power-of"]}, "must be a list"),
        ({"command": ["/bin/power-of", "a\nb"]}, "must be a list"),
    ],
)
def test_a_command_that_cannot_be_run(given: dict[str, Any], problem: str) -> None:
    found = call(**given)
    assert problem in found.problem and (found.host, found.argv) == ("", ())


def test_one_host_may_tell_of_all_nodes() -> None:
    """Each says of which one it tells. A BMC has one node."""
    bmc = {"kind": "redfish", "address": "cloud01"}
    bmcs = {"a": GIVEN, "b": GIVEN, "c": bmc, "d": {**GIVEN, "host": "no host"}}
    assert address_of(bmcs, "a") == "cloud_01" and address_of(bmcs, "d") == ""
    assert [sharing(bmcs, name) for name in "abcd"] == [[], [], [], []]
    assert address_of({"a": {**GIVEN, "address": "me:secret@x"}}, "a") == "cloud_01"


SAID = {"node": "a", "state": "off", "provider_id": INSTANCE, "since": "2026-01-01T12:00:00Z"}


def answer(said: Any = None, **more: Any) -> list[dict[str, Any]]:
    text = said if isinstance(said, str) else json.dumps(SAID if said is None else said)
    return [{"cmd": ["timeout"], "rc": 0, "stdout": text, **more}]


def test_what_the_command_tells() -> None:
    assert told_of(answer()) == Told("a", "off", INSTANCE, "", SAID["since"])
    assert told_of(answer({**SAID, "system_uuid": "u", "more": [1]})).uuid == "u"
    assert told_of(answer({"node": "a", "state": "on"})) == Told("a", "on")
    assert told_of([]) == Told()


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("", "not what is expected"),
        ("off", "not what is expected"),
        ('"off"', "no JSON object"),
        ([SAID], "no JSON object"),
        ("[" * 9_000, "not what is expected"),
        (json.dumps({**SAID, "more": "x" * 10_000}), "more than 10000 characters"),
        ({**SAID, "node": ""}, "it has no node"),
        ({**SAID, "state": None}, "or no state"),
        ({**SAID, "state": False}, "its state is no text"),
        ({**SAID, "provider_id": ["x"]}, "its provider_id is no text"),
        ({**SAID, "system_uuid": 7}, "its system_uuid is no text"),
        ({**SAID, "since": "yesterday"}, "its since is no time"),
        ({**SAID, "since": "2026-01-01T12:00:00"}, "its since is no time"),
    ],
)
def test_what_is_no_answer(said: Any, problem: str) -> None:
    found = told_of(answer(said))
    assert (found.state, found.status) == ("", -1) and problem in found.problem


@pytest.mark.parametrize(
    ("more", "status", "problem"),
    [
        ({"rc": 1, "stderr": "no such instance\n"}, 1, "no such instance"),
        ({"rc": 124}, 124, "the command did not answer in time"),
        ({"rc": 127, "stderr": "no such file"}, 127, "no such file"),
        # Ansible's module failed, as on a host without Python.
        ({"cmd": None, "msg": "x"}, 0, ""),
    ],
)
def test_a_command_that_fails_tells_nothing(
    more: dict[str, Any], status: int, problem: str
) -> None:
    (given,) = answer(**more)
    if given["cmd"] is None:
        del given["cmd"]
        status, problem = -1, "x"
    found = told_of([given])
    assert (found.state, found.status) == ("", status) and problem in found.problem
    away = told_of([{"unreachable": True, "msg": "x"}])
    assert (away.status, away.problem) == (-1, "Ansible cannot reach the host of the command")


# what it proves


def host(instance: str = INSTANCE, uuid: str = MACHINE, heard: str = SILENT) -> HostRecord:
    ready = {"type": "Ready", "status": "Unknown", "lastHeartbeatTime": heard}
    return pick_host_record(
        {
            "metadata": {"name": "a", "uid": "u"},
            "spec": {"providerID": instance},
            "status": {"nodeInfo": {"systemUUID": uuid, "machineID": "m"}, "conditions": [ready]},
        }
    )


HERE = host()


def by(**said: Any) -> dict[str, Any]:
    """An answer about the node, by both of its names."""
    base = {"kind": "external", "address": "cloud_01", "system": INSTANCE, "node": "a", "status": 0}
    return {**base, **said}


def seen(*answers: dict[str, Any]) -> list[dict[str, Any]]:
    """Half a minute apart, as what others do takes some seconds."""
    told = looks(*answers)
    told[0]["read_at"] = "2026-01-01T11:59:55Z"
    return told


def doubts(
    *answers: dict[str, Any],
    ledger: Ledger = OUTSIDE,
    node: HostRecord | None = HERE,
    now: datetime = NOW,
) -> list[str]:
    read = parse_power(seen(*(answers or (by(), by()))))
    return [reason.code for reason in proof_doubts(read, ledger, node, now, apart=5.0)]


def noted(**power: str) -> Ledger:
    assert OUTSIDE.power
    return OUTSIDE._replace(power=OUTSIDE.power._replace(**power))


def test_off_twice_by_the_right_machine_is_the_proof() -> None:
    assert doubts() == []
    assert doubts(by(uuid=""), by(uuid=""), ledger=noted(uuid="")) == []
    assert doubts(by(system=""), by(system=""), ledger=noted(system="")) == []
    # Without its Node object, it is the machine that was told before.
    assert doubts(node=None) == []
    assert parse_ledger(OUTSIDE.text, "x") == OUTSIDE and OUTSIDE.is_off


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        ([by(), by(state="on")], "power_not_off"),
        ([by(state="stopping"), by()], "power_not_off"),
        ([by()], "power_reading_unfit"),
        ([by(), by(node="b")], "bmc_other_machine"),
        ([by(node="b"), by()], "bmc_other_machine"),
        ([by(node=""), by(node="")], "bmc_other_machine"),
        ([by(address="cloud02"), by(address="cloud02")], "bmc_other_machine"),
        ([by(), by(state="", status=1, problem="no password")], "bmc_unreachable"),
        ([by(), by(state="", status=124, problem="it was ended")], "bmc_unreachable"),
        ([by(), by(state="", status=127, problem="no such file")], "program_missing"),
        ([by(), by(state="", problem="its command must be a list")], "bmc_unknown"),
    ],
)
def test_what_proves_nothing(answers: list[dict[str, Any]], code: str) -> None:
    assert doubts(*answers) == [code]


OTHER = "4c4c4544-0034-5210-8051-000000000000"


@pytest.mark.parametrize(
    ("said", "node"),
    [
        # By one name it is this machine, and by the other one it is not.
        ({"system": "aws:///eu-central-1a/i-0def"}, host()),
        ({"uuid": OTHER}, host()),
        # It names none, or none that the Node has.
        ({"system": "", "uuid": ""}, host()),
        ({"uuid": ""}, host(instance="")),
        ({"system": ""}, host(uuid="")),
        ({}, host(instance="", uuid="")),
        ({"system": "", "uuid": ""}, None),
    ],
)
def test_an_answer_that_may_be_about_another_machine(
    said: dict[str, Any], node: HostRecord | None
) -> None:
    read = by(**said)
    machine = node.machine if node else ""
    ledger = noted(system=read["system"], uuid=read.get("uuid", MACHINE))._replace(machine=machine)
    assert doubts(read, read, ledger=ledger, node=node) == ["bmc_other_machine"]


def test_without_its_node_object_only_what_was_told_before_counts() -> None:
    """A BMC that was noted has told of no instance."""
    bmc = OUTSIDE._replace(method="power", power=PowerFence("redfish", "192.0.2.11", "1", MACHINE))
    assert doubts(ledger=bmc, node=None) == ["bmc_other_machine"]
    none = OUTSIDE._replace(power=None, machine="")
    assert doubts(ledger=none, node=None) == ["bmc_other_machine"]
    assert doubts(ledger=none._replace(machine=f"{MACHINE}/m"), node=None) == []


def since(*times: str) -> list[dict[str, Any]]:
    return [by(since=f"2026-01-01T{time}Z" if time else "") for time in times]


def test_a_node_that_was_on_in_between_is_not_fenced() -> None:
    assert doubts(*since("11:59:00", "11:59:00")) == []
    assert doubts(*since("11:59:00", "12:00:22")) == ["power_not_off"]
    assert doubts(*since("", "12:00:22")) == ["power_not_off"]
    # It was off when the fence was proven, and is off since later.
    before = noted(off_at="2026-01-01T11:55:00Z")
    assert doubts(*since("11:55:29", "11:55:29"), ledger=before) == []
    assert doubts(*since("11:55:31", "11:55:31"), ledger=before) == ["power_not_off"]


def test_a_kubelet_that_reported_after_it_was_off_contradicts() -> None:
    """The answer is of another machine, or of a cache."""
    assert doubts(*since("11:49:31", "11:49:31")) == []
    assert doubts(*since("11:49:29", "11:49:29")) == ["evidence_contradicts"]
    assert doubts(*since("11:49:29", "11:49:29"), node=None) == []
    assert doubts(*since("11:49:29", "11:49:29"), node=host(heard="")) == []


def test_others_who_only_reboot_it_have_it_off_for_some_seconds() -> None:
    bmc = OUTSIDE._replace(power=POWERED.power)
    for ledger, answer in ((OUTSIDE, by()), (bmc, {})):
        told = seen(answer, answer)
        for at, wanted in (("11:59:55", []), ("11:59:56", ["power_reading_unfit"])):
            told[0]["read_at"] = f"2026-01-01T{at}Z"
            found = proof_doubts(parse_power(told), ledger, HERE, NOW, apart=5.0)
            assert [reason.code for reason in found] == wanted
        # Right before and after something is detached, one is enough.
        assert proof_doubts(parse_power(told[1:]), ledger, HERE, NOW, least=1) == []


def test_what_is_noted_must_be_recent() -> None:
    assert doubts(now=NOW + timedelta(minutes=3)) == ["power_reading_unfit"]
    with pytest.raises(BadOption):
        parse_power(looks(by(since="yesterday")))


def test_a_ledger_of_method_external_names_what_told() -> None:
    text = json.dumps({**OUTSIDE.to_dict(), "power": None})
    with pytest.raises(Exception, match="its method is external, and it names no BMC"):
        parse_ledger(text, "x")
