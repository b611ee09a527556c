# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""iSCSI readiness on a real kernel (STOR-04)."""

from __future__ import annotations

import pytest
from support.node import Node

MODULES = "iscsi_tcp libiscsi_tcp libiscsi scsi_transport_iscsi"
OURS = "/etc/modules-load.d/storage_ops-iscsi_tcp.conf"


@pytest.fixture
def unloaded(node: Node) -> Node:
    """A node without sessions, whose kernel has no iSCSI module any more."""
    node.guarded = False
    node.labctl("logout")
    node.sh("systemctl stop iscsid.socket iscsid.service; multipath -F", check=False)
    node.sh(
        "rmmod -f ib_iser 2>/dev/null; rmmod iscsi_tcp libiscsi_tcp libiscsi scsi_transport_iscsi",
        check=False,
    )
    assert "\niscsi_tcp " not in node.sh("lsmod")
    return node


# The scenario iscsi_ready of molecule goes the same four ways each time.
@pytest.mark.variation
def test_four_ways(unloaded: Node) -> None:
    node = unloaded
    check = node.ansible("iscsi_module_check", check=True, start_iscsid=True)
    assert check.changed
    assert [action for action, _outcome in check.outcomes] == [
        "load_module",
        "persist_module",
        "start_service",
    ]
    assert "\niscsi_tcp " not in node.sh("lsmod")
    assert node.sh(f"ls {OURS}", check=False) == ""
    run = node.ansible("iscsi_module_check", start_iscsid=True)
    assert not run.failed, run.msg
    assert {outcome for _action, outcome in run.outcomes} == {"done"}
    for module in MODULES.split():
        assert f"\n{module} " in "\n" + node.sh("lsmod")
    assert "iscsi_tcp" in node.sh(f"cat {OURS}").splitlines()
    assert node.sh("systemctl is-active iscsid") == "active"
    again = node.ansible("iscsi_module_check", start_iscsid=True)
    assert (again.changed, again.findings) == (False, [])
    check_again = node.ansible("iscsi_module_check", check=True, start_iscsid=True)
    assert (check_again.changed, check_again.findings) == (False, [])


@pytest.mark.variation
def test_persisted_module_is_back_after_a_reboot(node: Node) -> None:
    """With a module that nothing else on the node asks for."""
    run = node.ansible("iscsi_module_check", modules=["dummy"])
    assert run.outcomes == [("load_module", "done"), ("persist_module", "done")]
    node.vm.reboot()
    assert "\ndummy " in node.sh("lsmod")
    assert node.ansible("iscsi_module_check", modules=["dummy"]).findings == []
    # Host numbers are new after a boot, so the neighbours cannot be compared by path.
    node.guarded = False


@pytest.mark.variation
def test_installed_for_another_kernel(unloaded: Node) -> None:
    """What a kernel upgrade without a reboot leaves behind."""
    node = unloaded
    kernel = node.sh("uname -r")
    node.sh(f"mv /lib/modules/{kernel} /lib/modules/9.9.9-newer")
    finding = node.ansible("iscsi_module_check").finding("iscsi_tcp")
    assert finding["verdict"] == "refuse"
    assert (
        f"not installed for the running kernel {kernel}, only for "
        "9.9.9-newer: reboot into that kernel" in finding["reason"]
    )
    assert "\niscsi_tcp " not in node.sh("lsmod")


@pytest.mark.variation
@pytest.mark.parametrize("line", ["install iscsi_tcp /bin/false", "blacklist iscsi_tcp"])
def test_blacklisted(unloaded: Node, line: str) -> None:
    node = unloaded
    node.sh(f"echo '{line}' > /etc/modprobe.d/no-iscsi.conf")
    finding = node.ansible("iscsi_module_check").finding("iscsi_tcp")
    assert finding["verdict"] == "refuse"
    assert f"/etc/modprobe.d/no-iscsi.conf: {line}" in finding["reason"]
    assert "\niscsi_tcp " not in node.sh("lsmod")
    allowed = node.ansible("iscsi_module_check", load_blacklisted=True)
    assert not allowed.failed, allowed.msg
    assert "\niscsi_tcp " in node.sh("lsmod")


def test_a_load_that_must_fail_is_not_planned(unloaded: Node) -> None:
    """Whatever way the configuration says it, modprobe itself knows."""
    node = unloaded
    for line in (
        "install iscsi_tcp /usr/bin/false # not by modprobe",
        "install iscsi_tcp sh -c 'exit 1'",
        "install iscsi_tcp :",
        "install \\\\\n  iscsi_tcp /bin/true",
    ):
        node.sh(
            f"mkdir -p /usr/local/lib/modprobe.d; printf '%b\\n' \"{line}\" > "
            "/usr/local/lib/modprobe.d/no.conf"
        )
        assert "install " in node.sh("modprobe --show-depends iscsi_tcp"), line
        finding = node.ansible("iscsi_module_check").finding("iscsi_tcp")
        assert finding["verdict"] == "refuse", line
        assert "load_blacklisted" in finding["reason"]
    node.sh("echo 'install libiscsi /bin/false' > /usr/local/lib/modprobe.d/no.conf")
    outcome = node.ansible("iscsi_module_check", load_blacklisted=True)
    assert outcome.finding("iscsi_tcp")["verdict"] == "refuse"
    assert (
        "modprobe runs '/bin/false' in place of a dependency"
        in outcome.finding("iscsi_tcp")["reason"]
    )
    assert "\niscsi_tcp " not in node.sh("lsmod")
    node.sh("rm /usr/local/lib/modprobe.d/no.conf; systemctl mask iscsid.service")
    assert (
        "systemctl unmask"
        in node.ansible("iscsi_module_check", start_iscsid=True).finding("iscsid")["reason"]
    )


@pytest.mark.variation
def test_built_in(node: Node) -> None:
    name = node.sh(
        "sed -n 's#.*/\\([a-z0-9_]*\\)\\.ko.*#\\1#p' /lib/modules/$(uname "
        "-r)/modules.builtin | head -1"
    )
    assert node.ansible("iscsi_module_check", modules=[name]).findings == []


@pytest.mark.variation
def test_iscsid_is_not_started_unasked(unloaded: Node) -> None:
    node = unloaded
    finding = node.ansible("iscsi_module_check").finding("iscsid")
    assert finding["verdict"] == "refuse"
    assert "start_iscsid" in finding["reason"]
    assert node.sh("systemctl is-active iscsid", check=False) == "inactive"


@pytest.mark.variation
def test_initiator_name(node: Node) -> None:
    for command, text in (
        (
            "echo InitiatorName=iqn.2026-01.lab.x:b >> /etc/iscsi/initiatorname.iscsi",
            "2 initiator names",
        ),
        ("echo InitiatorName=worker > /etc/iscsi/initiatorname.iscsi", "not of the form"),
        ("rm /etc/iscsi/initiatorname.iscsi", "is missing"),
    ):
        node.sh(command)
        outcome = node.ansible("iscsi_module_check", persist=False)
        assert [text in finding["summary"] for finding in outcome.findings] == [True]
        assert {finding["verdict"] for finding in outcome.findings} == {"refuse"}


@pytest.mark.variation
def test_duplicate_of_another_node(node: Node) -> None:
    name = node.sh("sed -n 's/^InitiatorName=//p' /etc/iscsi/initiatorname.iscsi")
    peers = {"worker02": name, "worker03": "iqn.2026-01.lab.x:c", "again": name}
    # One of them is this machine.
    ids = {"again": node.sh("cat /proc/sys/kernel/random/boot_id").strip(), "worker02": "another"}
    given = {"persist": False, "peer_initiator_names": peers, "peer_boot_ids": ids}
    outcome = node.ansible("iscsi_module_check", **given)
    assert [finding["evidence"]["same_as"] for finding in outcome.findings] == [["worker02"]]
    assert outcome.findings[0]["severity"] == "critical"
