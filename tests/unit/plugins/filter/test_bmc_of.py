# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter as a template calls it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.storage_ops.runbooks.plugins.filter.bmc_of import FilterModule

bmc_of = FilterModule().filters()["bmc_of"]
ONE = {"kind": "redfish", "address": "bmc01.example.com"}


def test_the_example_of_its_documentation() -> None:
    other = {"kind": "redfish", "address": "BMC01.example.com:443"}
    found = bmc_of({"worker01": ONE, "worker02": other}, node="worker01")
    none = {"host": "", "input": "", "hidden": [], "problem": "", "argv": []}
    assert found == {
        "address": "bmc01.example.com",
        "shared": ["worker02"],
        "way": "redfish",
        "agent": none,
        # There is nothing to find.
        "secrets": "(?!)",
        "passwords": "(?!)",
    }


@pytest.mark.parametrize(
    "address",
    ["192.0.2.011", "0xc000020b", "192.0.523", "[192.0.2.1", "2001:db8::1", "a..b", "-a", "."]
    + ["[fe80::1::]", "b:65536", "https://bmc01.example.com", "me@b", "b/", 7],
)
def test_a_node_whose_address_cannot_be_read_may_have_the_same(address: Any) -> None:
    bmcs = {"a": ONE, "b": {"kind": "redfish", "address": address}}
    (said,) = bmc_of(bmcs, node="a")["shared"]
    assert said == "b (its address cannot be read, so it may be the same)"
    # Nothing is asked there, and it is not shown.
    found = bmc_of(bmcs, node="b", user="me", password="x")
    assert (found["address"], found["shared"], found["way"]) == ("", [], "")
    bmcs["b"]["kind"] = "fence_apc"
    assert bmc_of(bmcs, node="b", password="x")["agent"]["input"] == ""


def test_how_a_fence_agent_is_called() -> None:
    """A number is a text: AWX sends what the user typed."""
    bmcs = {"a": {"kind": "fence_apc", "host": "h", "address": "pdu:4001", "system": 3}}
    found = bmc_of(bmcs, node="a", user="me", password=1234)
    assert (found["way"], found["agent"]["host"]) == ("agent", "h")
    assert found["agent"]["input"] == "ip=pdu\nipport=4001\nplug=3\nusername=me\npassword=1234\n"
    assert found["agent"]["hidden"] == ["me", "1234"]


@pytest.mark.parametrize(
    "other",
    [
        {},
        None,
        "text",
        {"address": None},
        {"kind": "redfish"},
        {"address": "bmc02.example.com"},
        {"address": "bmc01"},
        {"address": "bmc01.example.com:8443"},
        {"kind": "redfish", "address": "bmc01.example.com:623"},
        {"kind": "ipmi", "address": "bmc01.example.com:443"},
    ],
)
def test_other_nodes_have_others_or_none(other: Any) -> None:
    assert bmc_of({"a": ONE, "b": other}, node="a")["shared"] == []


@pytest.mark.parametrize("given", ["text", [ONE], None])
def test_what_is_no_dictionary_is_refused(given: Any) -> None:
    with pytest.raises(AnsibleFilterError, match="no dictionary of BMCs"):
        bmc_of(given, node="a")
