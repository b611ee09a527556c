# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The nightly run, on a real node with faults, one that nobody reaches, and one on which we may do
nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.fleet import Fleet
from support.mounts import Kubelet, mounts
from support.node import COLLECTION, Node, of_ansible, remote_environment

# As a survey sends it.
SURVEY = {
    "target": "node1\nnorights\ngone\n",
    "compliance_node_timeout": "200",
    "compliance_node_options": json.dumps(
        {"observations": 2, "observation_seconds": 3, "probe_timeout": 20}
    ),
    "compliance_read_cluster": "true",
    # It tries again for 15 s; a busy machine needs some seconds before the first try.
    "compliance_cluster_options": json.dumps({"deadline": 30}),
    "compliance_ceph_host": "node1",
    "compliance_report_controls": "",
    "compliance_report_severity": "",
    "compliance_report_strict": "false",
}
# Where a run has met it, in one way or another.
SECRETS = {
    name: f"5ecret-of-{name}" for name in ("kubeconfig", "become", "ceph", "source", "passwd")
}


def compliance(folder: Path, inventory: Path, *arguments: str, **variables: Any) -> str:
    """Run the playbook as AWX does; what it said.

    The API server that the kubeconfig names does not answer.
    """
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        "clusters": [{"name": "lab", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "lab", "user": {"token": SECRETS["kubeconfig"]}}],
    }
    (folder / "kubeconfig").write_text(json.dumps(kubeconfig))
    given = {**SURVEY, "compliance_report_folder": str(folder / "report"), **variables}
    command = [
        "ansible-playbook",
        f"{COLLECTION}.compliance",
        "-i",
        str(inventory),
        "-e",
        json.dumps(given),
        *arguments,
    ]
    settings = {
        **remote_environment(),
        "K8S_AUTH_KUBECONFIG": str(folder / "kubeconfig"),
        "ANSIBLE_STDOUT_CALLBACK": "default",
    }
    answer = of_ansible(command, settings)
    said = answer.stdout + answer.stderr
    assert answer.returncode == 0, said
    return said


def report(folder: Path, part: str = "") -> dict[str, Any]:
    """The report that was written last."""
    read: dict[str, Any] = json.loads((folder / "report" / part / "report.json").read_text())
    return read


def hosts(folder: Path, part: str = "") -> dict[str, dict[str, Any]]:
    """Its hosts by their names."""
    return {host["name"]: host for host in report(folder, part)["hosts"]}


def inventory_of(node: Node, folder: Path) -> Path:
    """The node under three names."""
    inventory = yaml.safe_load(node.vm.inventory().read_text())
    known = inventory["all"]["hosts"]["node1"]
    # A control socket of its own, or ssh would go on as root.
    norights = {
        **known,
        "ansible_user": "ops",
        "ansible_become": False,
        "ansible_ssh_common_args": "-F /dev/null -o ControlPath=none",
    }
    gone = {
        **known,
        "ansible_port": 1,
        "ansible_ssh_common_args": "-F /dev/null -o ControlPath=none",
    }
    inventory["all"]["hosts"] = {"node1": known, "norights": norights, "gone": gone}
    path = folder / "inventory.yml"
    path.write_text(yaml.safe_dump(inventory))
    return path


def dead_fuse(node: Node, point: str, source: str) -> None:
    """A FUSE mount whose server has ended, as mountinfo shows that of a driver that puts its key
    into the source.
    """
    program = f"""
import ctypes, os
handle = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={{handle}},rootmode=40000,user_id=0,group_id=0".encode()
names = {source.encode()!r}, {point.encode()!r}
assert ctypes.CDLL(None).mount(*names, b"fuse.s3fs", 0, options) == 0
"""
    node.vm.run("python3 -", stdin=program)


@pytest.mark.smoke
def test_a_night(node: Node, tmp_path: Path) -> None:
    """Two faults are found, what cannot be read is not assessed, nothing changes, and no secret is
    told by whatever is written.
    """
    node.sh("useradd -m -s /bin/sh ops && cp -r /root/.ssh /home/ops/ && chown -R ops: /home/ops")
    node.vm.run(
        "mkdir -p /etc/ceph; umask 077; cat > /etc/ceph/ceph.client.admin.keyring",
        stdin=f"[client.admin]\n key = {SECRETS['ceph']}\n",
    )
    node.vm.run("umask 077; cat > /etc/passwd-s3fs", stdin=f"key:{SECRETS['passwd']}\n")
    node.sh("touch /etc/ceph/ceph.conf")
    volume = Kubelet(node).volume()
    dead_fuse(node, volume.stage(), f"https://user:{SECRETS['source']}@s3.example.com/bucket")
    node.unmap(2)
    dead, _wwid = node.map_of(2)
    before = node.shape(), mounts(node)
    inventory = inventory_of(node, tmp_path)

    # Its target names all there is.
    said = compliance(
        tmp_path,
        inventory,
        "-vvv",
        ansible_become_password=SECRETS["become"],
        compliance_report_partial="false",
    )
    written = "".join(
        path.read_text() for path in sorted((tmp_path / "report").rglob("*")) if path.is_file()
    )
    assert [name for name, secret in SECRETS.items() if secret in said or secret in written] == []
    assert "s3.example.com" in written
    first, seen = report(tmp_path), hosts(tmp_path)
    found = {
        (finding["host"], finding["control"], finding["object"]["name"])
        for finding in first["findings"]
    }
    assert {("node1", "STOR-01", dead), ("node1", "STOR-05", volume.staging)} <= found
    assert {host for host, _control, _name in found} == {"node1"}
    controls = seen["node1"]["controls"]
    assert [
        controls[control]
        for control in ("STOR-01", "STOR-02", "STOR-05", "STOR-06", "STOR-08", "STOR-09")
    ] == [
        "fail",
        "pass",
        "fail",
        "pass",
        # Its only volume is a FUSE mount.
        "not_applicable",
        "not_applicable",
    ]
    assert seen["node1"]["not_applicable"].keys() >= {"STOR-08", "STOR-09"}
    assert (seen["node1"]["status"], seen["gone"]["status"], seen["norights"]["status"]) == (
        "assessed",
        "not_assessed",
        "not_assessed",
    )
    assert "unreachable" in seen["gone"]["reason"]
    assert (
        set(seen["gone"]["controls"].values())
        == set(seen["norights"]["controls"].values())
        == {"not_assessed"}
    )
    assert "run it as root (become: true)" in seen["norights"]["reason"] + str(
        seen["norights"]["reasons"]
    )
    assert set(seen["cluster"]["controls"].values()) == {"not_assessed"}
    assert "no connection to https://127.0.0.1:1" in seen["cluster"]["reasons"]["STOR-11"]
    assert "Ceph's blocklist was not read" in seen["cluster"]["reasons"]["STOR-17"]
    assert "pass" not in seen["ceph"]["controls"].values()
    assert (node.shape(), mounts(node)) == before

    # The next day: the same, of the nodes that --limit leaves, and of two controls. The night's
    # report stays as it is.
    compliance(
        tmp_path,
        inventory,
        "--limit",
        "node1,gone",
        compliance_report_controls="stor-01, STOR-05\nSTOR-11",
        compliance_read_cluster="false",
    )
    assert {name: host["status"] for name, host in hosts(tmp_path, "partial").items()} == {
        "node1": "assessed",
        "gone": "not_assessed",
        "cluster": "not_assessed",
    }
    again = {
        (finding["host"], finding["control"], finding["object"]["name"])
        for finding in report(tmp_path, "partial")["findings"]
    }
    assert again == {("node1", "STOR-01", dead), ("node1", "STOR-05", volume.staging)}
    assert len(list((tmp_path / "report" / "runs").iterdir())) == 1 and report(tmp_path) == first
    assert (node.shape(), mounts(node)) == before


def test_a_node_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    """Its results are all in before it is given up; it is not assessed, and the fault of another is
    found.
    """
    fleet = Fleet(tmp_path, 6, faulty=1, hanging=1)
    run = fleet.compliance(compliance_node_timeout="30")
    assert run.rc == 0, run.text
    given_up = run.when("did not answer within")
    assert all(run.when(f"ok: [{name}]") < given_up for name in fleet.names[:5])
    seen = {host["name"]: host for host in fleet.report()["hosts"]}
    assert [seen[name]["controls"]["STOR-05"] for name in fleet.names] == [
        *["not_applicable"] * 4,
        "fail",
        "not_assessed",
    ]
    assert "did not answer within" in seen["n006"]["reason"]
    assert {(found["host"], found["object"]["node"]) for found in fleet.report()["findings"]} == {
        ("n005", "n005")
    }
