# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a fence agent is given, and what its answer proves. The answers are those of fence-agents
4.12.1.
"""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.agents import (
    AgentCall,
    Said,
    is_agent,
    said_of,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.power import (
    agent_call,
    sharing,
    way_of,
)

APC = {"kind": "fence_apc", "host": "fencer01", "address": "192.0.2.30", "system": "3"}


def call(user: str = "admin", password: str = "hunter2", **given: Any) -> AgentCall:
    return agent_call({"a": {**APC, **given}}, "a", user, password)


def test_the_login_goes_through_standard_input() -> None:
    told = call(options={"ssl-insecure": True, "power_timeout": 40})
    assert told.problem == "" and told.host == "fencer01"
    assert told.input.splitlines() == [
        "ip=192.0.2.30",
        "plug=3",
        "username=admin",
        "password=hunter2",
        "ssl-insecure=1",
        "power_timeout=40",
    ]
    assert set(told.hidden) == {"admin", "hunter2", "1", "40"}


@pytest.mark.parametrize(
    ("address", "lines"),
    [
        ("[2001:DB8::1]:8443", ["ip=2001:DB8::1", "ipport=8443"]),
        ("pdu.example.com", ["ip=pdu.example.com"]),
    ],
)
def test_where_the_agent_asks(address: str, lines: list[str]) -> None:
    assert call("", "", address=address, system=None).input.splitlines() == lines


def test_a_blank_or_an_equals_sign_within_a_value_is_part_of_it() -> None:
    password = 'a="b" #c\' ü'
    told = call(password=password, system="/dc/vm/my machine")
    assert f"password={password}\n" in told.input and "plug=/dc/vm/my machine\n" in told.input


@pytest.mark.parametrize(
    "kind",
    ["fence_", "fence_APC", "fence_a/../b", "/usr/sbin/fence_apc", "fence-apc", "fence_apc\n"]
    + ["fence_apc ", "sh", "", "fence_apc;id"],
)
def test_what_is_no_name_of_a_fence_agent_is_never_called(kind: str) -> None:
    assert not is_agent(kind) and way_of(kind) == ""
    assert call(kind=kind) == AgentCall()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"options": ["x"]}, "no dictionary"),
        ({"host": ""}, "host where fence_apc is installed is missing"),
        ({"kind": "fence_dummy"}, "not the power of a machine"),
        ({"options": {"x": "a\naction=on"}}, "cannot be given this x"),
        ({"options": {"x": "a\raction=on"}}, "cannot be given this x"),
        ({"options": {"x": " a"}}, "cannot be given this x"),
        ({"options": {"x": '"a"'}}, "cannot be given this x"),
        ({"options": {"x": ["a"]}}, "cannot be given this x"),
        ({"options": {"x": None}}, "cannot be given this x"),
        ({"options": {"x y": "a"}}, "x y is no name of an option"),
        ({"options": {"x=1\naction": "a"}}, "is no name of an option"),
        ({"options": {"#x": "a"}}, "is no name of an option"),
        ({"options": {"ssl-insecure": 1, "ssl_insecure": 0}}, "is given twice"),
        ({"options": {"x": 1, "X": 0}}, "is given twice"),
        # Another machine, several, a missing one, another action, or a password that is written.
        *(
            ({"options": {name: "a"}}, f"option {name} is not allowed")
            for name in ("action", "option", "ip", "ipaddr", "plug", "port", "uuid", "nodename")
        ),
        *(
            ({"options": {name: "a"}}, f"option {name} is not allowed")
            for name in ("login", "passwd", "Password", "verbose", "debug-file", "port-as-ip")
        ),
        ({"options": {"missing_as_off": 1}}, "option missing_as_off is not allowed"),
        ({"options": {"plug-separator": "x"}}, "option plug-separator is not allowed"),
        ({"system": "3,4"}, "several machines"),
        ({"system": "3\n"}, "cannot be given this plug"),
    ],
)
def test_what_is_not_passed_to_an_agent(given: dict[str, Any], problem: str) -> None:
    told = call(**given)
    assert problem in told.problem and told.input == ""
    assert "hunter2" not in told.problem


@pytest.mark.parametrize("password", ["hunter2\naction=on", " hunter2", '"hunter2"', "hunter2\x00"])
def test_a_password_that_an_agent_would_read_in_another_way(password: str) -> None:
    told = call(password=password)
    assert "cannot be given this password" in told.problem and "hunter2" not in told.problem


@pytest.mark.parametrize(
    ("other", "wanted"),
    [
        ({}, ["b"]),
        ({"system": "4"}, []),
        ({"address": "192.0.2.31"}, []),
        ({"address": "192.0.2.30:623"}, ["b"]),
        # Another agent may call the same machine otherwise.
        ({"system": "4", "kind": "fence_apc_snmp"}, ["b"]),
        ({"system": "4", "kind": "redfish"}, ["b"]),
        ({"system": ""}, ["b"]),
        # The options tell no machines apart.
        ({"system": "", "options": {"systems_uri": "/2"}}, ["b"]),
    ],
)
def test_who_else_has_it(other: dict[str, Any], wanted: list[str]) -> None:
    assert sharing({"a": APC, "b": {**APC, **other}}, "a") == wanted


METADATA = """<?xml version="1.0" ?>
<resource-agent name="fence_x" shortdesc="x" >
<parameters>
\t<parameter name="action" unique="0" required="1">
\t<parameter name="ip" unique="0" required="1" obsoletes="ipaddr">
\t<parameter name="plug" unique="0" required="1" obsoletes="port">
</parameters>
<actions>
\t<action name="on" automatic="0"/>
\t<action name="off" />
\t<action name="reboot" />
\t<action name="status" />
\t<action name="monitor" />
</actions>
</resource-agent>
"""
# The address alone says which machine is meant.
ALONE = METADATA.replace('name="action"', 'name="port_as_ip"')
NO_PLUG = METADATA.replace('name="plug"', 'name="switch"')
FABRIC = METADATA.replace('<action name="reboot" />', "").replace('matic="0"', 'matic="1"')
OFF = {"rc": 2, "stdout": "Status: OFF"}
ON = {"rc": 0, "stdout": "Status: ON\n"}


def said(status: dict[str, Any], metadata: Any = METADATA, plug: bool = True) -> Said:
    described = metadata if isinstance(metadata, dict) else {"rc": 0, "stdout": metadata}
    ran = {"cmd": ["fence_x"]}
    answers = [{**ran, **described, "item": "metadata"}, {**ran, **status, "item": "status"}]
    return said_of(answers, ("admin", "hunter2"), plug)


@pytest.mark.parametrize(("status", "state"), [(OFF, "off"), (ON, "on")])
@pytest.mark.parametrize("metadata", [METADATA, ALONE, NO_PLUG])
def test_what_says_on_or_off(status: dict[str, Any], state: str, metadata: str) -> None:
    assert said(status, metadata, plug=metadata == METADATA) == Said(state, 0, "")


@pytest.mark.parametrize(
    ("status", "code"),
    [
        # Python itself, a shell, or a word that contradicts the code.
        ({"rc": 2, "stdout": "", "stderr": "can't open file"}, 2),
        ({"rc": 2, "stdout": "Status: ON"}, 2),
        ({"rc": 0, "stdout": "Status: OFF"}, -1),
        ({"rc": 0, "stdout": ""}, -1),
        ({"rc": 0, "stdout": "N/A"}, -1),
        ({"rc": 2, "stdout": "Status: OFF\nStatus: ON"}, 2),
        ({"rc": 1, "stdout": "Status: OFF"}, 1),
        ({"rc": 1, "stdout": "Status: OFF", "stderr": "Connection timed out"}, 1),
        ({"unreachable": True, "msg": "no route"}, -1),
        ({"rc": "2", "stdout": "Status: OFF"}, -1),
        ({"rc": 127, "stderr": "No such file or directory"}, 127),
        ({"rc": 124}, 124),
        ({}, -1),
    ],
)
def test_what_says_nothing(status: dict[str, Any], code: int) -> None:
    told = said(status)
    assert (told.state, told.status) == ("", code) and told.problem


@pytest.mark.parametrize(
    ("metadata", "plug", "problem"),
    [
        (FABRIC, True, "no action reboot"),
        ("", True, "no action on, off, status, reboot"),
        ("<action name='off'/>", True, "no action on, off, status, reboot"),
        # Every system at that address would be the same machine.
        (ALONE, True, "knows one machine at an address"),
        (NO_PLUG, True, "knows one machine at an address"),
    ],
)
def test_an_agent_that_does_not_fit_proves_nothing(metadata: str, plug: bool, problem: str) -> None:
    for status in (OFF, ON):
        told = said(status, metadata, plug)
        assert (told.state, told.status) == ("", 0) and problem in told.problem


def test_an_agent_that_does_not_fit_says_so_although_it_fails_at_the_status() -> None:
    """fence_scsi asks for its disks before it says anything of them."""
    described = {"cmd": [], "rc": 0, "stdout": '<action name="on"/><action name="status"/>'}
    failed = {"cmd": [], "rc": 1, "stdout": "", "stderr": "no devices"}
    asked = [{**described, "item": "metadata"}, {**failed, "item": "status"}]
    said = said_of(asked, (), False)
    assert (said.state, said.status) == ("", 0) and "it has no action off, reboot" in said.problem


def test_an_agent_that_does_not_describe_itself_proves_nothing() -> None:
    assert said(OFF, {"rc": 1, "stdout": METADATA, "stderr": "no"}) == Said("", 1, "no")
    alone = said_of([{**OFF, "cmd": [], "item": "status"}], (), False)
    assert alone.state == "" and "no action" in alone.problem


def test_what_is_not_the_agents_own_answer_proves_nothing() -> None:
    """Ansible's module has not come to call it."""
    metadata = {"cmd": [], "rc": 0, "stdout": METADATA, "item": "metadata"}
    failed = {**OFF, "msg": "Module result deserialization failed", "item": "status"}
    assert said_of([metadata, failed], (), True) == Said("", -1, failed["msg"])


def test_a_message_shows_no_secret() -> None:
    stderr = (
        "2026-01-01 12:00:00,000 ERROR: login of admin:hunter2 failed\n\n"
        "WARNING:root:Parse error: Ignoring unknown option 'password=hunter2'\n"
        "2026-01-01 12:00:00,001 ERROR: Please use '-h' for usage\n\n"
    )
    told = said({"rc": 1, "stderr": stderr})
    assert told.problem.endswith("ERROR: login of ***:*** failed")


def test_what_an_action_has_done_is_not_a_state() -> None:
    done = {"cmd": [], "rc": 0, "stdout": "Status: OFF", "item": "off"}
    assert said_of([done], (), False) == Said("", 0, "")
    late = {**done, "rc": 1, "stderr": "ERROR: Failed: Timed out waiting to power OFF"}
    assert said_of([late], (), False) == Said("", 1, late["stderr"])
    assert said_of([], (), False) == Said("", 0, "")
