# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the answers of a BMC prove, and what they do not."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.codes import Reason
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import BadOption
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ledger import (
    Ledger,
    PowerFence,
    parse_ledger,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.power import (
    is_same_machine,
    normal_uuid,
    parse_power,
    proof_doubts,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.fences import (
    LEDGER,
    MACHINE,
    POWERED,
    looks,
)

NOW = datetime(2026, 1, 1, 12, 0, 30, tzinfo=timezone.utc)
# The same, its first three fields with their bytes reversed.
SWAPPED = "44454c4c-3400-1052-8051-b7c04f4b4e31"


def doubts(*answers: Any, ledger: Ledger = POWERED, now: datetime = NOW, **more: Any) -> list[str]:
    found: list[Reason] = proof_doubts(parse_power(looks(*answers)), ledger, None, now, **more)
    return [reason.code for reason in found]


def test_off_twice_and_seconds_apart_is_the_proof() -> None:
    assert doubts("off", "off", apart=5.0) == []
    assert doubts("Off", "OFF", apart=5.0) == []


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        (["on", "on"], "power_not_off"),
        # A BMC that lies, and one that takes its time.
        (["off", "on"], "power_not_off"),
        (["on", "off"], "power_not_off"),
        (["poweringoff", "off"], "power_not_off"),
        (["off"], "power_reading_unfit"),
        ([], "power_reading_unfit"),
        (["off", {"state": "", "problem": "timed out", "status": -1}], "bmc_unreachable"),
        (["off", {"state": "", "problem": "HTTP Error 401", "status": 401}], "bmc_login_refused"),
        (["off", {"state": "", "status": 403}], "bmc_login_refused"),
        (["off", {"uuid": "4c4c4544-0034-5210-8051-000000000000"}], "bmc_other_machine"),
        (["off", {"address": "192.0.2.12"}], "bmc_other_machine"),
        (["off", {"system": "2"}], "bmc_other_machine"),
        (["off", {"kind": ""}], "bmc_unknown"),
        (["off", {"kind": "ssh"}], "bmc_unknown"),
        (["off", {"address": ""}], "bmc_unknown"),
        (["off", {"shared": ["b"]}], "bmc_unknown"),
    ],
)
def test_what_proves_nothing(answers: list[Any], code: str) -> None:
    assert doubts(*answers) == [code]


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        ("Incorrect password provided", "bmc_login_refused"),
        ("Unauthorized name", "bmc_login_refused"),
        ("Insufficient resources", "bmc_unreachable"),
        ("timeout", "bmc_unreachable"),
        ("Failed to import the required Python library (pyghmi) on x's Python", "program_missing"),
    ],
)
def test_what_a_bmc_says_by_ipmi(problem: str, code: str) -> None:
    said = {"kind": "ipmi", "system": "", "uuid": "", "state": "", "problem": problem}
    by_ipmi = POWERED._replace(power=PowerFence("ipmi", "192.0.2.11"))
    assert doubts(said, said, ledger=by_ipmi) == [code]
    # A web server that says it means its own.
    assert doubts({"state": "", "problem": "no password", "status": 500}) == ["bmc_unreachable"]


@pytest.mark.parametrize(
    ("status", "problem", "code"),
    [
        (1, "Failed: You have to set login password", "bmc_login_refused"),
        (1, "The user does not have the correct privileges to do it", "bmc_login_refused"),
        (1, "Unable to connect/login to fencing device", "bmc_unreachable"),
        (124, "it was ended", "bmc_unreachable"),
        (-1, "no route to host", "bmc_unreachable"),
        (-1, "", "bmc_unreachable"),
        (126, "permission denied", "program_missing"),
        (127, "no such file", "program_missing"),
        # It was not asked, or does not fit.
        (0, "the host is missing", "bmc_unknown"),
        (0, "", "bmc_unreachable"),
    ],
)
def test_what_a_fence_agent_says(status: int, problem: str, code: str) -> None:
    agent = {"kind": "fence_apc", "uuid": "", "system": "3"}
    by_agent = POWERED._replace(power=PowerFence("fence_apc", "192.0.2.11", "3"))
    assert doubts(agent, agent, ledger=by_agent) == []
    said = {**agent, "state": "", "status": status, "problem": problem}
    assert doubts(said, said, ledger=by_agent) == [code]
    for other in ({"system": "4"}, {"kind": "fence_apc_snmp"}, {"address": "192.0.2.12"}):
        told = {**agent, **other}
        assert doubts(told, told, ledger=by_agent) == ["bmc_other_machine"]
    assert doubts({**agent, "kind": "fence_APC"}) == ["bmc_unknown"]


@pytest.mark.parametrize(
    ("noted", "said"),
    [
        ("192.0.2.11:443", "192.0.2.11"),
        ("BMC.example.com", "bmc.example.com."),
        ("[2001:DB8::0:1]", "[2001:db8::1]:443"),
    ],
)
def test_one_bmc_by_two_names(noted: str, said: str) -> None:
    """The run before, or the inventory before it was tidied up, named it in another way."""
    ledger = POWERED._replace(power=PowerFence("redfish", noted, "1", MACHINE))
    assert doubts({"address": said}, {"address": noted}, ledger=ledger) == []
    assert doubts({"address": said}, {"address": "192.0.2.12"}, ledger=ledger) == [
        "bmc_other_machine"
    ]


def test_a_noted_bmc_that_cannot_be_read_is_no_other_one() -> None:
    ledger = POWERED._replace(power=PowerFence("redfish", "192.0.2.011", "1", MACHINE))
    assert doubts("off", "off", ledger=ledger) == ["bmc_other_machine"]


def test_by_ipmi_no_machine_can_be_compared() -> None:
    said = {"kind": "ipmi", "system": "", "uuid": ""}
    by_ipmi = POWERED._replace(power=PowerFence("ipmi", "192.0.2.11"))
    assert doubts(said, said, ledger=by_ipmi) == []


@pytest.mark.parametrize(
    "uuid", [MACHINE, MACHINE.upper(), SWAPPED, "", "none", "0" * 32, "f" * 32]
)
def test_one_machine_may_be_spelled_in_two_ways_or_not_at_all(uuid: str) -> None:
    assert is_same_machine(normal_uuid(uuid), MACHINE)
    assert doubts({"uuid": uuid}, {"uuid": uuid}) == []


def test_a_machine_id_is_no_uuid_of_a_machine() -> None:
    """It looks like one without its dashes, and is alone where the kubelet has no systemUUID."""
    alone = POWERED._replace(machine=MACHINE.replace("-", "").replace("4", "5"))
    assert doubts("off", "off", ledger=alone) == []
    stranger = POWERED._replace(machine=MACHINE.replace("4", "5") + "/abc")
    assert doubts("off", "off", ledger=stranger) == ["bmc_other_machine"]


def test_the_readings_are_after_the_ledger_and_recent_and_far_enough_apart() -> None:
    assert doubts("off", "off", apart=5.1) == ["power_reading_unfit"]
    late = POWERED._replace(at="2026-01-01T12:00:52Z")
    assert doubts("off", "off", ledger=late) == ["power_reading_unfit"]
    assert doubts("off", "off", now=NOW + timedelta(seconds=110)) == []
    for seconds in (120, -180):
        then = NOW + timedelta(seconds=seconds)
        assert doubts("off", "off", now=then) == ["power_reading_unfit"]
    assert doubts("off", least=1) == []


def test_a_reading_needs_a_time() -> None:
    for when in ("", "yesterday", "2026-01-01T12:00:00"):
        with pytest.raises(BadOption, match="a reading without a time"):
            parse_power([{**looks("off")[0], "read_at": when}])


def test_the_ledger_names_the_bmc_and_no_secret() -> None:
    assert parse_ledger(POWERED.text, "x") == POWERED
    assert set(POWERED.to_dict()["power"]) == {"kind", "address", "system", "uuid", "off_at"}
    # What an older version wrote stays the same text.
    assert "power" not in LEDGER.to_dict()
    for broken in (POWERED.text.replace('"address": "192.0.2.11"', '"x": "y"'),):
        with pytest.raises(Exception, match="'address' is missing"):
            parse_ledger(broken, "x")
    data = POWERED.to_dict()
    del data["power"]
    with pytest.raises(Exception, match="names no BMC"):
        parse_ledger(data, "x")
