# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lost node is switched off by its BMC: what is behind that dies, and then the volumes of all
drivers move. No Ceph is asked.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from lab.bmc.bmc import USER, Bmc, ByAgent, Ipmi, Outside, Redfish, machine_uuid
from lab.common import wait
from lab.kubernetes import api as k8s
from lab.kubernetes.api import path
from lab.kubernetes.controlplane import ControlPlane
from support.cluster import Cluster, Played, fresh
from support.failover import HEARTBEAT, IMPATIENT
from support.fencing import OUT_OF_SERVICE, OWN_NAMESPACE, RBAC
from support.fixtures import not_tested
from support.killed import each_step

DRIVERS = {"db": "rbd.csi.ceph.com", "files": "csi.example.com"}
NFS = "nfs.csi.k8s.io"
SHARE = {"server": "192.0.2.9", "path": "/"}
LEDGER = path("ConfigMap", "storage-ops-fence-a", OWN_NAMESPACE)
LEASE = {"lease_seconds": "20", "lease_timeout": "60"}


class Powered:
    """Node a with a workload for each driver, and node b; a's machine is behind a BMC."""

    def __init__(self, cluster: Cluster, bmc: Bmc) -> None:
        self.cluster, self.api, self.bmc = cluster, cluster.api, bmc
        self.patience: dict[str, Any] = {}
        drivers = (*DRIVERS.values(), NFS)
        self.kubelets = cluster.kubelets("a", "b", drivers=drivers, heartbeat=HEARTBEAT)
        for node in ("a", "b"):
            self.api.boot(node)
        self.make_workloads()
        self.kubelets.stop_node("a")
        self.cluster.wait(lambda: self.api.ready("a") == "Unknown", "a is lost", 40)
        lost = "node.kubernetes.io/unreachable"
        self.cluster.wait(lambda: lost in self.api.taints("a"), "a is tainted", 40)

    def make_workloads(self) -> None:
        """Have a pod run on a for each driver."""
        for name, driver in DRIVERS.items():
            self.api.add_volume(name, driver, f"vol-{name}")
            self._deploy(name)

    def _deploy(self, name: str) -> None:
        self.api.create(k8s.workload("Deployment", name, [name], **rather_on_a()))
        self.cluster.wait(lambda: self.places()[name] == {"a"}, f"{name} is attached to a", 60)
        # What the kubelet does not say to use may be detached without it.
        self.cluster.wait(lambda: self._uses(name), f"{name} is in use on a", 60)

    def _uses(self, name: str) -> bool:
        node = self.api.get(path("Node", "a")) or {}
        used = node["status"].get("volumesInUse") or []
        return any(one.endswith(f"^vol-{name}") for one in used)

    def places(self) -> dict[str, set[str]]:
        """The nodes to which each volume is attached."""
        found: dict[str, set[str]] = {name: set() for name in DRIVERS}
        for item in self.api.all("VolumeAttachment"):
            name = item["spec"]["source"]["persistentVolumeName"].removeprefix("pv-")
            found[name].add(item["spec"]["nodeName"])
        return found

    @property
    def ledger(self) -> dict[str, Any]:
        """What is noted of a's fence; empty if nothing is."""
        found = self.api.get(LEDGER)
        return json.loads(found["data"]["ledger"]) if found else {}

    def run(self, playbook: str, roles: tuple[str, ...], check: bool, given: Any) -> Played:
        """One run for node a, as from a survey: all strings."""
        told = {
            "bmcs": json.dumps({"a": self.bmc.mapped, "b": {"kind": "ipmi", "address": "b.test"}}),
            "bmc_user": USER,
            "bmc_password": self.bmc.password,
        }
        options = {**{f"{role}_options": LEASE for role in roles}, **self.patience}
        extra = {f"{roles[0]}_{name}": value for name, value in {**told, **given}.items()}
        played = self.cluster.playbook(playbook, check, user=RBAC, target="a", **options, **extra)
        # What a run that is killed has begun may complain about that.
        assert "Traceback" not in played.text or played.rc < 0, played.text
        # Neither is said anywhere, nor noted.
        assert self.bmc.password not in played.text, played.text
        assert self.bmc.password not in json.dumps(self.ledger)
        return played

    def fail_over(self, check: bool = False, **given: Any) -> Played:
        """Run fail_over_volumes."""
        told = {"method": "power", "grace_seconds": "1", "power_seconds": "2", **given}
        return self.run("fail_over_volumes", ("node_fence", "volume_failover"), check, told)

    def release(self, **given: Any) -> Played:
        """Run release_fenced_node."""
        return self.run("release_fenced_node", ("node_release",), False, given)

    def comes_back_with_its_power(self, seconds: float = 60) -> threading.Thread:
        """From now on the node boots as soon as its machine has power again."""

        def boot() -> None:
            wait(lambda: self.bmc.machine.is_on, "the machine of a has power", seconds)
            self.api.boot("a")
            self.kubelets.start_node("a")

        thread = threading.Thread(target=boot, daemon=True)
        thread.start()
        return thread

    def refused(self, code: str, **given: Any) -> None:
        """It ends before anything is switched off, and with nothing noted."""
        was_on = self.bmc.machine.is_on
        played = self.fail_over(**given)
        assert played.rc != 0 and f"({code})" in played.text, played.text
        assert self.bmc.machine.is_on is was_on and self.ledger == {}
        assert self.places() == {name: {"a"} for name in DRIVERS}


class Shares(Powered):
    """Node a with pods of StatefulSets that have nothing but NFS, in each of the three ways."""

    names = ("csi", "plain", "inline")

    def make_workloads(self) -> None:
        """None of it is ever attached."""
        self.api.create(k8s.csi_driver(NFS, attach_required=False))
        self.api.add_volume("csi", NFS, "vol-csi", modes=["ReadWriteMany"])
        volume, claim = k8s.volume("plain", NFS, "", modes=["ReadWriteMany"])
        del volume["spec"]["csi"]
        volume["spec"]["nfs"] = SHARE
        self.api.create(volume, claim)
        inline = {"volumes": [{"name": "inline", "nfs": SHARE}]}
        for name, claims, more in (
            ("csi", ["csi"], {}),
            ("plain", ["plain"], {}),
            ("inline", [], inline),
        ):
            self.api.create(k8s.workload("StatefulSet", name, claims, **rather_on_a(), **more))
        self.cluster.wait(lambda: self.run_on("a"), "they run on a", 60)

    def run_on(self, node: str) -> bool:
        """All of the pods run there, and nowhere else."""
        pods = self.api.all("Pod", "default")
        found = {(one["metadata"]["name"], one["spec"].get("nodeName")) for one in pods}
        running = all(one["status"].get("phase") == "Running" for one in pods)
        return running and found == {(f"{name}-0", node) for name in self.names}


def rather_on_a() -> dict[str, Any]:
    """The spec of a pod that runs on a while it can, and leaves it as soon as it is lost, but for
    its grace period.
    """
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]}
    term = {"weight": 100, "preference": {"matchExpressions": [here]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {"affinity": affinity, "tolerations": IMPATIENT, "grace": 30}


def off(bmc: Bmc) -> None:
    """The machine does nothing any more."""
    assert not bmc.machine.is_on
    before = bmc.machine.count
    time.sleep(0.5)
    assert bmc.machine.count == before > 0


@pytest.fixture
def redfish(plane_failover_current: ControlPlane, tmp_path: Path) -> Iterator[Powered]:
    """Behind a BMC that speaks Redfish, on a current Kubernetes."""
    with Redfish(tmp_path / "bmc", machine_uuid("a")) as bmc:
        for cluster in fresh(plane_failover_current):
            yield Powered(cluster, bmc)


@pytest.fixture
def shares(plane_failover_current: ControlPlane, tmp_path: Path) -> Iterator[Shares]:
    """Behind such a BMC, with nothing but NFS."""
    with Redfish(tmp_path / "bmc", machine_uuid("a")) as bmc:
        for cluster in fresh(plane_failover_current):
            yield Shares(cluster, bmc)


@pytest.fixture
def agent(plane_failover_current: ControlPlane, tmp_path: Path) -> Iterator[Powered]:
    """Behind the same BMC, which a fence agent asks."""
    if not ByAgent.program.exists():
        not_tested(f"{ByAgent.program} is missing: apt-get install fence-agents")
    with ByAgent(tmp_path / "bmc", machine_uuid("a")) as bmc:
        for cluster in fresh(plane_failover_current):
            yield Powered(cluster, bmc)


@pytest.fixture
def ipmi(plane_failover_1_20: ControlPlane, tmp_path: Path) -> Iterator[Powered]:
    """Behind one that speaks IPMI, on Kubernetes 1.20.2, which has no taint for this."""
    with Ipmi(tmp_path / "bmc") as bmc:
        for cluster in fresh(plane_failover_1_20):
            yield Powered(cluster, bmc)


INSTANCE = "lab:///zone/i-0abc"


@pytest.fixture
def outside(plane_failover_current: ControlPlane, tmp_path: Path) -> Iterator[Powered]:
    """An instance of a cloud, which others switch."""
    with Outside(tmp_path / "bmc", node="a", provider_id=INSTANCE) as bmc:
        for cluster in fresh(plane_failover_current):
            scene = Powered(cluster, bmc)
            cluster.api.merge(path("Node", "a"), {"spec": {"providerID": INSTANCE}})
            yield scene


def moved(scene: Powered, played: Played, method: str = "power") -> None:
    """All of it has moved, and the machine is off."""
    assert played.rc == 0, played.text
    off(scene.bmc)
    assert scene.places() == {name: {"b"} for name in DRIVERS}
    ledger = scene.ledger
    assert (ledger["method"], ledger["phase"]) == (method, "detached")
    assert set(ledger["volumes"]) == {f"pv-{name}" for name in DRIVERS}
    mapped = scene.bmc.mapped
    assert ledger["power"]["address"] == mapped.get("address", mapped.get("host"))
    assert ledger["power"]["off_at"]


def test_the_volumes_of_all_drivers_move_and_the_node_comes_back(redfish: Powered) -> None:
    check = redfish.fail_over(check=True)
    assert check.rc == 0 and "planned: write_fence_ledger" in check.text, check.text
    assert redfish.bmc.machine.is_on and redfish.ledger == {}

    moved(redfish, redfish.fail_over())
    assert OUT_OF_SERVICE in redfish.api.taints("a")
    again = redfish.fail_over()
    assert again.rc == 0 and "| CHANGED" not in again.text, again.text

    # Switched on only where that was asked for.
    refused = redfish.release()
    assert refused.rc != 0 and "(node_not_ready)" in refused.text, refused.text
    off(redfish.bmc)
    back = redfish.comes_back_with_its_power()
    played = redfish.release(power_on="true")
    back.join()
    assert played.rc == 0 and redfish.ledger == {}, played.text
    assert OUT_OF_SERVICE not in redfish.api.taints("a")


def test_pods_with_nothing_but_nfs_move(shares: Shares) -> None:
    """No kubelet ends them, and a StatefulSet makes no new ones before that."""
    played = shares.fail_over()
    assert played.rc == 0, played.text
    off(shares.bmc)
    assert OUT_OF_SERVICE in shares.api.taints("a")
    shares.cluster.wait(lambda: shares.run_on("b"), "they run on b", 60)
    assert shares.api.all("VolumeAttachment") == []
    ledger = shares.ledger
    assert (ledger["method"], ledger["phase"]) == ("power", "detached")
    assert set(ledger["volumes"]) == {"pv-csi", "pv-plain"}
    shares.cluster.used("rbac-fence.yml", "get csidrivers")
    again = shares.fail_over()
    assert again.rc == 0 and "| CHANGED" not in again.text, again.text


def test_by_ipmi_one_volume_after_the_other(ipmi: Powered) -> None:
    ipmi.refused("bmc_login_refused", bmc_password="wrong")
    moved(ipmi, ipmi.fail_over())
    # Somebody switches it on, with the same kernel in its memory as it seems: it was never off.
    ipmi.bmc.machine.switch(True)
    ipmi.kubelets.start_node("a")
    ipmi.cluster.wait(lambda: ipmi.api.ready("a") == "True", "a is ready", 40)
    played = ipmi.release()
    assert played.rc != 0 and "(power_contradicted)" in played.text, played.text
    ipmi.api.boot("a")
    played = ipmi.release()
    assert played.rc == 0 and ipmi.ledger == {}, played.text


def test_by_a_fence_agent_the_volumes_move_and_the_node_comes_back(agent: Powered) -> None:
    check = agent.fail_over(check=True)
    assert check.rc == 0 and "planned: write_fence_ledger" in check.text, check.text
    assert agent.bmc.machine.is_on and agent.ledger == {}

    # Asked twice, then twice by action off, and once after that. Then it lies.
    agent.bmc.machine.lie(True, True, True, True, False, False, True)
    played = agent.fail_over()
    assert played.rc != 0 and "(power_not_off)" in played.text, played.text
    assert agent.bmc.machine.is_on and agent.ledger["phase"] == "intended"
    assert agent.places() == {name: {"a"} for name in DRIVERS}

    moved(agent, agent.fail_over(method="auto"))
    assert agent.ledger["power"]["kind"] == "fence_redfish"
    assert OUT_OF_SERVICE in agent.api.taints("a")
    again = agent.fail_over()
    assert again.rc == 0 and "| CHANGED" not in again.text, again.text
    back = agent.comes_back_with_its_power()
    played = agent.release(power_on="true")
    back.join()
    assert played.rc == 0 and agent.ledger == {}, played.text


def test_a_fence_agent_that_cannot_prove_it_switches_nothing_off(agent: Powered) -> None:
    mine = agent.bmc.mapped
    agent.refused("bmc_unreachable", bmc_password="wrong")
    agent.refused("program_missing", bmcs={"a": {**mine, "kind": "fence_nonesuch"}})
    # It cuts the node off from its disks, and that has its power all the time.
    agent.refused("bmc_unknown", bmcs={"a": {**mine, "kind": "fence_scsi"}})
    # It would ignore which one is meant.
    agent.refused("bmc_unknown", bmcs={"a": {**mine, "system": "1"}})
    agent.refused("bmc_unknown", bmcs={"a": {**mine, "host": "elsewhere"}})
    agent.refused("bmc_unknown", bmcs={"a": {**mine, "options": {"action": "off"}}})
    # fence_redfish has no deadline of its own.
    agent.patience = {"__node_fence_agent_seconds": 5}
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        agent.refused("bmc_unreachable", bmcs={"a": {**mine, "address": address}})


def test_a_bmc_that_may_not_be_the_nodes_switches_nothing_off(redfish: Powered) -> None:
    bmc, mine = redfish.bmc, redfish.bmc.mapped
    redfish.refused("bmc_login_refused", bmc_password="wrong")
    redfish.refused("bmc_unknown", bmcs={"b": mine})
    redfish.refused("bmc_unknown", bmcs={"a": mine, "b": mine})
    # Its certificate is checked, unless the operator accepts any.
    redfish.refused("bmc_unreachable", bmcs={"a": {**mine, "ca_path": ""}})
    bmc.stop()
    redfish.refused("bmc_unreachable")
    bmc.start()
    # Another machine has come to the name of the node.
    info = {"systemUUID": machine_uuid("c"), "bootID": "other"}
    redfish.api.merge(path("Node", "a") + "/status", {"status": {"nodeInfo": info}})
    redfish.refused("bmc_other_machine")


def test_a_bmc_that_lies_detaches_nothing_and_the_next_run_goes_on(redfish: Powered) -> None:
    # Asked twice, then until it says off, and twice more.
    redfish.bmc.machine.lie(True, True, False, False, True)
    played = redfish.fail_over()
    assert played.rc != 0 and "(power_not_off)" in played.text, played.text
    assert redfish.bmc.machine.is_on and redfish.ledger["phase"] == "intended"
    assert redfish.places() == {name: {"a"} for name in DRIVERS}

    # It says on right before the volumes are detached.
    redfish.bmc.machine.lie(True, True, False, False, False, True)
    played = redfish.fail_over(method="auto")
    assert played.rc != 0 and "(power_not_off)" in played.text, played.text
    assert redfish.ledger["phase"] == "fenced"
    assert redfish.places() == {name: {"a"} for name in DRIVERS}

    moved(redfish, redfish.fail_over(method="auto"))


def test_a_bmc_has_no_other_machine_switched_off(redfish: Powered, tmp_path: Path) -> None:
    """It says where its machine is switched, and may redirect a request. The password is one for
    all BMCs.
    """
    assert isinstance(redfish.bmc, Redfish)
    with_other = Redfish(tmp_path / "other", machine_uuid("b"))
    with_other.trusts(redfish.bmc)
    with with_other as other:
        assert isinstance(other, Redfish)
        path = other.reset.partition(f":{other.port}")[2]
        redfish.bmc.mislead(target=f"@127.0.0.1:{other.port}{path}")
        redfish.refused("bmc_unreachable")
        assert other.machine.is_on
        redfish.bmc.mislead(redirect=other.reset)
        played = redfish.fail_over()
        assert played.rc != 0 and "(power_not_off)" in played.text, played.text
        assert other.machine.is_on and redfish.bmc.machine.is_on
        assert redfish.places() == {name: {"a"} for name in DRIVERS}
        redfish.bmc.mislead()
        moved(redfish, redfish.fail_over(method="auto"))
        assert other.machine.is_on


def test_what_others_have_switched_off_moves_and_is_released_when_they_switch_it_on(
    outside: Powered,
) -> None:
    machine = outside.bmc.machine
    # It is said before anything is changed, and what only tells is told to switch nothing.
    outside.refused("power_not_off", method="external")
    machine.switch(False)
    outside.refused("bmc_unknown", method="power")
    check = outside.fail_over(check=True, method="external")
    assert check.rc == 0 and "planned: write_fence_ledger" in check.text, check.text
    assert outside.ledger == {}

    # It was only rebooted: it is on half a minute later.
    machine.lie(False, False, True)
    played = outside.fail_over(method="external")
    assert played.rc != 0 and "(power_not_off)" in played.text, played.text
    assert outside.ledger["phase"] == "intended"
    assert outside.places() == {name: {"a"} for name in DRIVERS}

    moved(outside, outside.fail_over(method="auto"), "external")
    assert outside.ledger["power"]["system"] == INSTANCE
    assert OUT_OF_SERVICE in outside.api.taints("a")
    again = outside.fail_over(method="auto")
    assert again.rc == 0 and "| CHANGED" not in again.text, again.text

    # We do not switch it on either.
    played = outside.release(power_on="true")
    assert played.rc != 0 and "(node_not_ready)" in played.text, played.text
    off(outside.bmc)
    machine.switch(True)
    outside.api.boot("a")
    outside.kubelets.start_node("a")
    outside.cluster.wait(lambda: outside.api.ready("a") == "True", "a is ready", 40)
    played = outside.release()
    assert played.rc == 0 and outside.ledger == {}, played.text
    assert OUT_OF_SERVICE not in outside.api.taints("a")


def test_what_tells_of_another_machine_or_nothing_is_not_believed(outside: Powered) -> None:
    bmc = outside.bmc
    assert isinstance(bmc, Outside)
    bmc.machine.switch(False)
    mine = dict(bmc.told)
    for told, code in (
        ({**mine, "node": "b"}, "bmc_other_machine"),
        ({**mine, "provider_id": "lab:///zone/i-0def"}, "bmc_other_machine"),
        ({"node": "a"}, "bmc_other_machine"),
        ({**mine, "system_uuid": machine_uuid("c")}, "bmc_other_machine"),
        ({**mine, "state": "stopping"}, "power_not_off"),
        ({**mine, "since": "2020-01-01T00:00:00Z"}, "evidence_contradicts"),
        ({**mine, "since": "yesterday"}, "bmc_unreachable"),
    ):
        bmc.told = told
        outside.refused(code, method="external")
    bmc.told = mine
    bmc.stop()
    outside.refused("bmc_unreachable", method="external")
    given = {"method": "external"}
    outside.refused("bmc_unknown", bmcs={"a": {**bmc.mapped, "host": "elsewhere"}}, **given)
    outside.refused("program_missing", bmcs={"a": {**bmc.mapped, "command": ["/no"]}}, **given)
    outside.patience = {"__node_fence_agent_seconds": 5}
    bmc.hang()
    outside.refused("bmc_unreachable", **given)


@pytest.mark.variation
@pytest.mark.parametrize(
    ("bmc", "among"),
    [("agent", ""), ("redfish", "Switch the machine")],
    ids=["agent", "redfish"],
)
def test_killed_after_each_step(request: pytest.FixtureRequest, bmc: str, among: str) -> None:
    """The next run goes on, whatever the one before has come to. Redfish differs by one step."""
    scene: Powered = request.getfixturevalue(bmc)
    power = among or "Call the fence agent"

    def one_writer() -> None:
        if scene.places() != {name: {"a"} for name in DRIVERS}:
            off(scene.bmc)
            assert scene.ledger["phase"] in ("fenced", "detached")

    names = each_step(scene.fail_over, one_writer, among)
    # Ledger and cordon; the power; the proof; taint and pods; where they are now.
    assert len(names) == (1 if among else 5), names
    assert names[0 if among else 1].startswith(power), names
    moved(scene, scene.fail_over())

    def remembered() -> None:
        # The ledger is removed last: the next run finds only what a ledger names.
        assert scene.ledger or OUT_OF_SERVICE not in scene.api.taints("a")

    back = scene.comes_back_with_its_power(600)
    names = each_step(lambda: scene.release(power_on="true"), remembered, among)
    back.join()
    if among:
        assert len(names) == 1 and names[0].startswith(power), names
    else:
        assert names[0].startswith("Record that the release has begun"), names
        assert names[1].startswith(power), names
        assert "Remove taint, cordon and ledger" in names, names
    assert scene.bmc.machine.is_on and scene.ledger == {}
    assert OUT_OF_SERVICE not in scene.api.taints("a")
    assert scene.places() == {name: {"b"} for name in DRIVERS}


@pytest.mark.variation
def test_two_operators_at_once(redfish: Powered) -> None:
    """One switches it off; the other, who does not wait, is told who is at work."""
    redfish.patience = {
        f"{role}_options": {**LEASE, "lease_timeout": "0"}
        for role in ("node_fence", "volume_failover")
    }
    # Its account is made once.
    redfish.cluster.kubeconfig(RBAC)
    with ThreadPoolExecutor(2) as pool:
        runs = [future.result() for future in [pool.submit(redfish.fail_over) for _ in range(2)]]
    won, lost = sorted(runs, key=lambda played: played.rc)
    assert won.rc == 0 and lost.rc == 2, (won.text, lost.text)
    assert "(lease_held)" in lost.text and "another run (" in lost.text, lost.text
    assert "done: " not in lost.text, lost.text
    moved(redfish, won)
