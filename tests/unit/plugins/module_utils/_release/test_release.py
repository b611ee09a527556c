# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When a fenced node may be given back, what is taken back and in which order, and what a run that
is killed leaves to the next one.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any, Callable

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import engine
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.lease import RunLease
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ledger import (
    ANNOTATION,
    UNKNOWN_MACHINE,
    Entry,
    FenceObject,
    Ledger,
    Ledgers,
    PowerFence,
    config_map_path,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.network_fence import (
    FENCES,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import (
    Conflict,
    Forbidden,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.own import object_name
from ansible_collections.storage_ops.runbooks.plugins.module_utils._release.plan import read_clients
from ansible_collections.storage_ops.runbooks.plugins.module_utils._release.runbook import (
    make_release,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.cluster import FakeCluster, Slow
from ansible_collections.storage_ops.runbooks.tests.unit.support.fences import looks
from ansible_collections.storage_ops.runbooks.tests.unit.support.module import Module

NODE = "/api/v1/nodes/a"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/storage-ops/leases/{object_name('a')}"
MAP = config_map_path("a", "storage-ops")
OUT = "node.kubernetes.io/out-of-service"
TAINT = {"key": OUT, "value": "nodeshutdown", "effect": "NoExecute"}
OTHER_TAINT = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
LEDGER = Ledger(
    node="a",
    node_uid="uid-a",
    boot_id="boot-1",
    machine="m-a",
    method="ceph",
    phase="detached",
    cluster_id="ceph-1",
    fsid="f",
    addresses=("10.0.0.1",),
    entries=(
        Entry("10.0.0.1", "address", True, "2999-01-01T00:00:00Z"),
        Entry("10.0.0.9", "address", False, "2999-01-01T00:00:00Z"),
    ),
    network_fences=(),
    source={"10.0.0.1": "watcher"},
    volumes=("pv-db",),
    unverified=False,
    cordoned=True,
    tainted=True,
    by="awx",
    run="run-0",
    at="2026-01-01T00:00:00Z",
)
BY_OBJECT = LEDGER._replace(
    method="network_fence",
    entries=(),
    network_fences=(FenceObject("fence-a", "uid-f", ("10.0.0.1/32",), True),),
)
KRBD = {
    "kind": "krbd",
    "device": "/dev/rbd0",
    "pool": "rbd",
    "image": "db",
    "entry": "10.0.0.1:0/7",
    "fsid": "f",
}
CLEAN = {"boot_id": "boot-1", "clients": [], "problem": ""}

Object = dict[str, Any]


def node(
    ready: str = "True",
    boot: str = "boot-2",
    uid: str = "uid-a",
    *taints: Object,
    cordoned: bool = True,
    machine: str = "M-A",
) -> Object:
    spec: Object = {
        "taints": list(taints or (OTHER_TAINT, TAINT)),
        **({"unschedulable": True} if cordoned else {}),
    }
    status = {
        "conditions": [
            {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ],
        "nodeInfo": {"bootID": boot, "systemUUID": machine},
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "a", "uid": uid},
        "spec": spec,
        "status": status,
    }


def network_fence(
    state: str = "Fenced", message: str = "fencing operation successful", uid: str = "uid-f"
) -> Object:
    return {
        "apiVersion": "csiaddons.openshift.io/v1alpha1",
        "kind": "NetworkFence",
        "metadata": {"name": "fence-a", "uid": uid},
        "spec": {
            "driver": "rbd.csi.ceph.com",
            "fenceState": state,
            "cidrs": ["10.0.0.1/32"],
            "parameters": {"clusterID": "ceph-1"},
        },
        "status": {"result": "Succeeded", "message": message},
    }


def blocked(entry: str, kind: str = "address") -> Object:
    address = entry.rpartition(":")[0] if kind == "client" else entry
    return {
        "entry": f"{entry}:0/0" if kind == "address" else entry,
        "kind": kind,
        "address": address,
        "until": "",
    }


def watcher(entry: str) -> Object:
    address = entry.rpartition(":")[0]
    return {
        "address": address,
        "entry": entry,
        "client": "client.7",
        "cookie": "1",
        "seen": 2,
        "persistent": True,
        "mirror": False,
    }


# The clock of the API server, which stands still: what is read when this file is loaded must not be
# old for the last of its tests.
NOW = datetime.now(timezone.utc)


def reading(
    *blocklist: Object, fsid: str = "f", watchers: tuple[Object, ...] = (), age: float = 0.0
) -> Object:
    image = {
        "volume": "pv-db",
        "pool": "rbd",
        "namespace": "",
        "image": "db",
        "problem": "",
        "locks": [],
        "client_addresses": [],
    }
    return {
        "fsid": fsid,
        "read_at": f"{NOW - timedelta(seconds=age):%Y-%m-%dT%H:%M:%SZ}",
        "observations": 2,
        "seconds": 1.0,
        "families": ["IPv4"],
        "blocklist": list(blocklist),
        "images": [{**image, "watchers": list(watchers)}],
    }


FOREIGN = (blocked("10.0.0.9"), blocked("10.0.0.1:0/55", "client"))
GONE = reading(*FOREIGN)


class World(FakeCluster):
    """An API server with the node and its ledger, and a controller of NetworkFences that acts
    whenever one is patched.
    """

    def __init__(
        self, host: Object | None = None, *objects: Object, ledger: Ledger | None = LEDGER
    ) -> None:
        super().__init__(*([host] if host else []), *objects)
        self.clock = lambda: NOW
        self.message = "unfencing operation successful"
        self.result = "Succeeded"
        if ledger:
            Ledgers(self, "storage-ops").write(ledger)  # type: ignore[arg-type]
        self.requests.clear()

    def patch(self, path: str, body: Any, dry_run: bool = False, kind: str = "merge") -> Object:
        answer = super().patch(path, body, dry_run, kind)
        if path.startswith(FENCES) and not dry_run:
            self.objects[path]["status"] = {"result": self.result, "message": self.message}
        return answer

    @property
    def spec(self) -> Object:
        found: Object = self.objects[NODE]["spec"]
        return found

    @property
    def ledger(self) -> Ledger | None:
        return Ledgers(self, "storage-ops").read("a", self.objects.get(NODE))  # type: ignore[arg-type]

    def changes(self) -> list[str]:
        """Requests that changed something."""
        return [
            request
            for request in self.requests
            if request.split()[0] not in ("get", "list") and "dry run" not in request
        ]


def release(
    world: World,
    state: str = "releasing",
    check: bool = False,
    run_id: str = "run-1",
    **options: Any,
) -> Object:
    params = {
        "node": "a",
        "run_id": run_id,
        "ledger_namespace": "storage-ops",
        "lease_seconds": 180.0,
        "lease_timeout": 0.0,
        "fence": None,
        "state": state,
        "clients": None,
        "ceph": None,
        "old_machine_confirmed_off": False,
        "power_on": False,
        "power": [],
        "release_timeout": 1.0,
        **options,
    }
    module = Module(check)
    with pytest.raises(SystemExit):
        engine.run(module, lambda: make_release(world, params, check), fail_on_refusal=True)  # type: ignore[arg-type]
    assert "exception" not in module.result, module.result
    return module.result


def outcomes(result: Object) -> list[tuple[str, str]]:
    return [(action["action"], action["outcome"]) for action in result["actions"]]


def refused(world: World, words: str, state: str = "releasing", **options: Any) -> None:
    """It says so in check mode and for real, and nothing is changed, not even a Lease is left."""
    before = {place: item for place, item in world.objects.items() if "/leases/" not in place}
    for check in (True, False) if state == "releasing" else (False,):
        result = release(world, state, check, **options)
        assert result["failed"] and not result["changed"], result["msg"]
        assert words in result["msg"], result["msg"]
        (finding,) = result["findings"]
        assert (finding["control"], finding["verdict"]) == ("STOR-17", "refuse")
        assert result["fence"]["node"] == "a"
    assert {
        place: item for place, item in world.objects.items() if "/leases/" not in place
    } == before
    assert LEASE not in world.objects


def begun(world: World, **options: Any) -> World:
    """A world in which the first step was done."""
    assert not release(world, **options)["failed"]
    world.requests.clear()
    return world


def too_late(result: Object) -> list[tuple[str, str]]:
    """What became of the actions of a run that had too little time."""
    assert (result["failed"], result["code"]) == (True, "deadline_passed")
    assert "less than 30 s are left of the deadline" in result["msg"]
    return outcomes(result)


def at(world: World, verb: str, place: str, seconds: float = 29.0) -> None:
    """So many seconds are left from such a request on."""

    def before(asked: str, path: str) -> None:
        if asked == verb and place in path:
            world.deadline = Deadline(seconds, lambda: 0.0)

    world.before = before


# releasing


@pytest.mark.parametrize(("verb", "place"), [("get", NODE), ("create", "/leases")])
def test_with_too_little_time_no_release_begins(verb: str, place: str) -> None:
    """Also if the wait for the Lease took it."""
    world = World(node())
    at(world, verb, place)
    assert too_late(release(world)) == [("mark_release", "skipped")]
    assert not any("configmaps" in request for request in world.changes())
    assert LEASE not in world.objects and world.ledger and world.ledger.phase == "detached"
    world.deadline = Deadline(300.0, lambda: 0.0)
    at(world, verb, place, 30.0)
    assert not release(world)["failed"]


def test_a_release_whose_time_is_over_stops_before_the_next_step() -> None:
    """Nothing is begun that could be ended half-way, and the next run goes on."""
    world = begun(World(node()))
    at(world, "patch", NODE)
    assert too_late(release(world, "released", ceph=GONE)) == [
        ("untaint_node", "done"),
        ("uncordon_node", "skipped"),
        ("remove_fence_ledger", "skipped"),
    ]
    assert world.ledger and world.spec["unschedulable"]
    at(world, "patch", NODE, 30.0)
    world.deadline = Deadline(30.0, lambda: 0.0)
    assert not release(world)["failed"] and not release(world, "released", ceph=GONE)["failed"]
    assert world.ledger is None


def test_a_rebooted_node_may_be_released() -> None:
    world = World(node())
    result = release(world)
    assert not result["failed"] and outcomes(result) == [("mark_release", "done")], result["msg"]
    assert result["fence"]["phase"] == "releasing"
    assert world.ledger and world.ledger.phase == "releasing"
    assert world.objects[LEASE]["spec"]["holderIdentity"] == "run-1"
    assert "its bootID was boot-1 and is boot-2" in result["findings"][0]["evidence"]["proof"][0]
    # The fence is still as it was.
    assert TAINT in world.spec["taints"] and world.spec["unschedulable"]


def test_ledgers_that_may_not_be_read_are_told() -> None:
    """Another node's fence there may share an entry, and goes with this release."""
    world = World(node(), ledger=None)
    Ledgers(world, "storage").write(LEDGER._replace(namespace="storage"))  # type: ignore[arg-type]

    def forbidden(verb: str, place: str) -> None:
        if verb == "list" and "/namespaces/storage-ops/configmaps" in place:
            raise Forbidden("no")

    world.before = forbidden
    (finding,) = release(world, ledger_namespace="storage")["findings"]
    assert "may not read the ledgers of namespace storage-ops" in finding["reason"]
    world.before = lambda verb, place: None
    (finding,) = release(world, ledger_namespace="storage")["findings"]
    assert finding["verdict"] == "repair" and "may not read" not in finding["reason"]


def test_check_mode_changes_nothing_and_tells_what_the_ledger_would_be() -> None:
    world = World(node())
    result = release(world, check=True)
    assert outcomes(result) == [("mark_release", "planned")] and result["changed"]
    assert result["fence"]["phase"] == "releasing"
    assert world.changes() == []


@pytest.mark.parametrize("ready", ["Unknown", "False"])
def test_a_node_that_is_not_ready(ready: str) -> None:
    refused(World(node(ready)), f"a is not Ready (Ready={ready} for")


def test_a_node_that_is_gone() -> None:
    world = World(ledger=LEDGER)
    refused(world, "there is no node a: its host may still run")


def test_the_same_boot_without_a_look_at_the_node() -> None:
    refused(
        World(node(boot="boot-1")),
        "a was not rebooted since it was fenced (bootID boot-1), and the node was not looked at",
    )


@pytest.mark.parametrize("boot", ["boot-1", "BOOT-1"])
def test_the_same_boot_and_a_mapped_image(boot: str) -> None:
    refused(
        World(node(boot=boot)),
        "still shows 1 clients that were fenced (krbd /dev/rbd0 rbd/db 10.0.0.1:0/7)",
        clients={**CLEAN, "clients": [KRBD]},
    )


def rbd_volume(name: str = "pv-db", driver: str = "rbd.csi.ceph.com") -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "csi": {"driver": driver, "volumeHandle": "h"},
            "claimRef": {"namespace": "shop", "name": "db"},
        },
    }


def test_in_the_same_boot_each_image_of_the_fence_must_have_been_read() -> None:
    """An image that could not be read, or was not asked for, counted as one without watchers."""
    world = World(node(boot="boot-1"), rbd_volume())
    unread = {**GONE, "images": [{**GONE["images"][0], "problem": "rbd status: timed out"}]}
    refused(
        world,
        "the image of pv-db was not read in Ceph (rbd status: timed out), so a client",
        clients=CLEAN,
        ceph=unread,
    )
    without = {**GONE, "images": []}
    result = release(world, clients=CLEAN, ceph=without)
    assert result["code"] == "ceph_not_read" and "the image of pv-db" in result["msg"]
    # Another boot needs no such proof; nor has what is no RBD image, or is gone, one to be read.
    for host, *volumes in (
        (node(), rbd_volume()),
        (node(boot="boot-1"), rbd_volume(driver="csi.example.com")),
        (node(boot="boot-1"),),
    ):
        assert not release(World(host, *volumes), clients=CLEAN, ceph=without)["failed"]
    assert not release(world, clients=CLEAN, ceph=GONE)["failed"]


@pytest.mark.parametrize("kind", ["rbd-nbd", "cephfs", "ceph-fuse"])
def test_the_same_boot_and_another_client(kind: str) -> None:
    refused(
        World(node(boot="boot-1")),
        f"still shows 1 clients that were fenced ({kind} x)",
        clients={**CLEAN, "clients": [{"kind": kind, "device": "x"}]},
    )


def test_a_client_in_a_pod_is_named_with_what_to_do() -> None:
    place = "served by rbd-nbd, pid 2797 of pod 0c7e5a39"
    nbd = {"kind": "rbd-nbd", "device": "/dev/nbd0", "in_use": [place, "mounted at /b"]}
    refused(
        World(node(boot="boot-1")),
        f"still shows 2 clients that were fenced (krbd /dev/rbd0 rbd/db 10.0.0.1:0/7; rbd-nbd "
        f"/dev/nbd0, {place}), which would go on writing. Reboot the node.",
        clients={**CLEAN, "clients": [{**KRBD, "in_use": []}, nbd]},
    )
    refused(
        World(node(boot="boot-1")),
        "If a process of theirs is in a pod, it ends when you delete that pod",
        clients={**CLEAN, "clients": [nbd]},
    )


def test_the_same_boot_and_a_node_that_could_not_be_read() -> None:
    refused(
        World(node(boot="boot-1")),
        "the node could not be read: no /sys",
        clients={**CLEAN, "problem": "no /sys"},
    )


def test_clients_of_another_boot() -> None:
    refused(
        World(node(boot="boot-1")),
        "clients was read in another boot (boot-0)",
        clients={**CLEAN, "boot_id": "boot-0"},
    )


def test_clients_without_a_boot() -> None:
    refused(
        World(node(boot="boot-1")),
        "clients was read in another boot (of no id)",
        clients={**CLEAN, "boot_id": ""},
    )


def test_a_node_without_a_boot() -> None:
    refused(World(node(boot="")), "a reports no bootID", clients={**CLEAN, "boot_id": ""})


def test_a_ledger_without_a_boot_needs_a_look_at_the_node() -> None:
    ledger = LEDGER._replace(boot_id="")
    refused(
        World(node(), ledger=ledger),
        "the bootID that a was fenced in is unknown, and the node was not looked at",
    )
    assert not release(World(node(), ledger=ledger), clients={**CLEAN, "boot_id": "boot-2"})[
        "failed"
    ]


def test_a_watcher_contradicts_a_clean_node() -> None:
    world = World(node(boot="boot-1"))
    refused(
        world,
        "Ceph still sees a watcher 10.0.0.1:0/7 of rbd/db",
        clients=CLEAN,
        ceph=reading(watchers=(watcher("10.0.0.1:0/7"),)),
    )
    assert not release(world, clients=CLEAN, ceph=reading(watchers=(watcher("10.0.0.2:0/7"),)))[
        "failed"
    ]


def test_only_the_kubelet_had_died() -> None:
    """The bootID is the same, but the node shows no client any more."""
    result = release(World(node(boot="boot-1")), clients=CLEAN)
    assert not result["failed"]
    assert "itself shows no client of the fenced storage" in result["findings"][0]["reason"]


def test_clients_of_another_ceph_do_not_matter() -> None:
    assert not release(
        World(node(boot="boot-1")), clients={**CLEAN, "clients": [{**KRBD, "fsid": "other"}]}
    )["failed"]


def test_another_node_object_is_no_reboot() -> None:
    refused(World(node(boot="boot-1", uid="uid-new")), "was not rebooted since")
    assert not release(World(node(boot="boot-2", uid="uid-new")))["failed"]


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (
            "m-a",
            "m-new",
            "(its systemUUID/machineID was m-a and is m-new), so "
            "the one that was fenced may still run",
        ),
        (
            "",
            "m-a",
            "it cannot be told whether a is the machine that was "
            "fenced (its ledger has no systemUUID)",
        ),
        (
            "m-a",
            "",
            "it cannot be told whether a is the machine that was "
            "fenced (the node reports no systemUUID)",
        ),
        (
            UNKNOWN_MACHINE,
            "m-a",
            "it cannot be told whether a is the machine that was "
            "fenced (a volume was attached before its Node object was made)",
        ),
    ],
)
def test_another_boot_of_another_machine_is_no_reboot(before: str, now: str, words: str) -> None:
    """What that machine shows of its own clients says nothing of the old one's."""
    host, ledger = node(machine=now), LEDGER._replace(machine=before)
    refused(World(host, ledger=ledger), words, clients={**CLEAN, "boot_id": "boot-2"})
    result = release(World(host, ledger=ledger), old_machine_confirmed_off=True)
    assert (
        not result["failed"]
        and "the old one was confirmed to be off" in result["findings"][0]["reason"]
    ), result["msg"]
    held = reading(watchers=(watcher("10.0.0.1:0/7"),))
    refused(
        World(host, ledger=ledger),
        "is said to be off, but Ceph still sees a watcher 10.0.0.1:0/7",
        ceph=held,
        old_machine_confirmed_off=True,
    )


def test_in_the_boot_of_the_fence_another_machine_may_be_what_was_fenced() -> None:
    """What this one shows of its own clients says nothing of that one's."""
    world = World(node(boot="boot-1"), ledger=LEDGER._replace(machine=UNKNOWN_MACHINE))
    refused(world, "it cannot be told whether a is the machine that was fenced", clients=CLEAN)
    assert not release(world, clients=CLEAN, old_machine_confirmed_off=True)["failed"]


def test_that_the_old_machine_is_off_says_nothing_of_this_one() -> None:
    for ledger in (LEDGER, LEDGER._replace(machine="")):
        world = World(node(boot="boot-1"), ledger=ledger)
        refused(world, "the node was not looked at", old_machine_confirmed_off=True)
        assert not release(world, clients=CLEAN)["failed"]


def test_what_was_read_of_ceph_must_be_fit_from_the_start() -> None:
    refused(
        World(node()),
        "the reading is of Ceph cluster other, and the fence is in f",
        ceph=reading(fsid="other"),
    )
    refused(World(node()), "read it again", ceph=reading(age=3600))


def test_lost_again_while_it_is_released() -> None:
    world = World(node("Unknown"), ledger=LEDGER._replace(phase="releasing"))
    refused(
        world,
        "if it is lost and has volumes, fence it again: ansible-playbook "
        "storage_ops.runbooks.fail_over_volumes -e target=a",
    )


def test_a_ledger_of_another_namespace() -> None:
    world = World(node(), ledger=LEDGER._replace(namespace="vault"))
    world.objects[NODE]["metadata"]["annotations"] = {}
    refused(world, "run again with ledger_namespace vault")
    world = World(node(), ledger=None)
    Ledgers(world, "vault").write(LEDGER._replace(namespace="vault"))  # type: ignore[arg-type]
    result = release(world)
    assert result["failed"] and "ledger_namespace vault" in result["msg"], result["msg"]
    assert not release(world, ledger_namespace="vault")["failed"]


@pytest.mark.parametrize("lost", ["annotation", "half of the last write", "a kubelet's word"])
def test_a_copy_of_the_ledger_that_is_missing_or_old_is_written_again(lost: str) -> None:
    world = World(node())
    old = world.objects[NODE]["metadata"]["annotations"][ANNOTATION]
    if lost == "annotation":
        world.objects[NODE]["metadata"]["annotations"] = {}
    elif lost == "a kubelet's word":
        world.objects[NODE]["metadata"]["annotations"][ANNOTATION] = "x"
    else:
        # Killed between the two.
        begun = LEDGER._replace(phase="releasing", revision=1)
        Ledgers(world, "storage-ops").write(begun)  # type: ignore[arg-type]
        world.objects[NODE]["metadata"]["annotations"][ANNOTATION] = old
    assert not release(world)["failed"]
    text = world.objects[MAP]["data"]["ledger"]
    assert (
        world.objects[NODE]["metadata"]["annotations"][ANNOTATION] == text and '"releasing"' in text
    )


@pytest.mark.parametrize("text", [LEDGER.text, "x"])
def test_a_note_alone_takes_no_fence_off(text: str) -> None:
    """A kubelet may write it, with other clients' entries as ours and a bootID that it
    never had.
    """
    world = World(node(), ledger=None)
    world.objects[NODE]["metadata"]["annotations"] = {ANNOTATION: text}
    for check in (True, False):
        result = release(world, check=check, ceph=reading(blocked("10.0.0.1")))
        assert not result["failed"] and not result["changed"] and result["fence"] == {}
        finding = result["findings"][-1]
        assert (finding["verdict"], finding["severity"]) == ("report", "major")
        assert (
            "has no ledger in namespace storage-ops" in finding["summary"]
            and "so it is ignored" in finding["reason"]
        )
    assert MAP not in world.objects


def test_copies_that_contradict_each_other_take_no_fence_off() -> None:
    world = World(node())
    world.objects[NODE]["metadata"]["annotations"][ANNOTATION] = LEDGER._replace(
        run="other", revision=7
    ).text
    result = release(world)
    assert result["failed"] and not result["changed"] and "contradict each other" in result["msg"]


def test_a_reboot_that_ceph_contradicts() -> None:
    """Whoever has the kubelet writes the bootID; a client from before shows that there was none."""
    seen = reading(watchers=(watcher("10.0.0.1:0/7"),))
    refused(World(node()), "says that it was rebooted since", ceph=seen)
    refused(World(node()), "Ceph still sees a watcher 10.0.0.1:0/7 of rbd/db", ceph=seen)
    assert not release(World(node()), ceph=reading(watchers=(watcher("10.0.0.2:0/7"),)))["failed"]
    # What a run that was killed has begun is ended: clients of its new boot may be there by now.
    half = reading(blocked("10.0.0.1"), watchers=(watcher("10.0.0.1:0/7"),))
    assert not release(World(node(), ledger=LEDGER._replace(phase="releasing")), ceph=half)[
        "failed"
    ]
    refused(World(node()), "says that it was rebooted since", ceph=half)


# what others need


@pytest.mark.parametrize(
    ("ours", "theirs", "shared"),
    [
        (LEDGER, {}, "10.0.0.1"),
        (
            LEDGER,
            {"method": "network_fence", "entries": (), "addresses": ("10.0.0.1",)},
            "10.0.0.1",
        ),
        (
            BY_OBJECT._replace(network_fences=(FenceObject("f", "u", ("10.0.0.0/24",), True),)),
            {"addresses": ("10.0.0.7",)},
            "10.0.0.0/24",
        ),
    ],
)
def test_what_fences_another_node_too_is_not_taken_back(
    ours: Ledger, theirs: Object, shared: str
) -> None:
    """As behind an address that Ceph sees of both."""
    other = LEDGER._replace(
        node="b", node_uid="uid-b", entries=(Entry("10.0.0.1", "address", False, ""),)
    )._replace(**theirs)
    world = World(node(), ledger=ours)
    Ledgers(world, "storage-ops").write(other)  # type: ignore[arg-type]
    words = (
        f"{shared} fences node b too, according to its ledger (phase detached), and would go "
        "with this "
        "release: release b first"
    )
    refused(world, words)
    # It was fenced in between.
    for step in ("held", "unfenced"):
        world = begun(World(node(), ledger=ours))
        Ledgers(world, "storage-ops").write(other)  # type: ignore[arg-type]
        refused(world, words, step)


@pytest.mark.parametrize(
    "theirs",
    [
        {"entries": (), "method": "none"},
        {"entries": (Entry("10.0.0.2", "address", True, ""),), "addresses": ("10.0.0.2",)},
        # What both found there is neither's to take back.
        {"entries": (Entry("10.0.0.9", "address", False, ""),), "addresses": ("10.0.0.9",)},
    ],
)
def test_fences_of_others_that_are_their_own(theirs: Object) -> None:
    world = World(node())
    Ledgers(world, "storage-ops").write(
        LEDGER._replace(node="b", node_uid="uid-b")._replace(**theirs)
    )  # type: ignore[arg-type]
    assert not release(world)["failed"]


# never fenced


INTENDED = LEDGER._replace(phase="intended", tainted=False)


def test_a_fence_that_never_came_needs_no_look_at_the_node() -> None:
    """The fail-over was stopped before, and the node is back as it was: the reading shows it, so
    cordon and ledger go.
    """
    world = World(node("True", "boot-1", "uid-a", OTHER_TAINT), ledger=INTENDED)
    refused(
        world, "If it was never fenced, its fail-over having been stopped before, that can be seen"
    )
    refused(world, "the node was not looked at", ceph=reading(*FOREIGN, blocked("10.0.0.1")))
    result = release(world, ceph=GONE)
    assert (
        not result["failed"] and "nothing of ours fences it" in result["findings"][0]["reason"]
    ), result["msg"]
    # Killed right here, it does not become a dead end.
    assert not release(world, ceph=GONE)["failed"]
    last = release(world, "released", ceph=GONE)
    assert [verb for verb, _outcome in outcomes(last)] == [
        "uncordon_node",
        "remove_fence_ledger",
    ], last["msg"]


def test_a_fence_that_may_have_come_while_another_run_was_waited_for() -> None:
    """That was killed before it could note it."""
    world = World(node(boot="boot-1"), ledger=INTENDED)
    RunLease(world, "storage-ops", "a", "run-9", 180).take(0)  # type: ignore[arg-type]
    seen = []

    def run_out(verb: str, place: str) -> None:
        seen.extend([place] if (verb, place) == ("get", LEASE) else [])
        if len(seen) == 2:
            world.clock = lambda: NOW + timedelta(seconds=300)

    world.before = run_out
    result = release(world, ceph=GONE, lease_timeout=10.0)
    assert (
        result["failed"]
        and "another run (run-9) is working on node a" in result["msg"]
        and "run again" in result["msg"]
    ), result["msg"]
    assert result["code"] == "lease_held"
    assert world.ledger and world.ledger.phase == "intended" and LEASE not in world.objects


@pytest.mark.parametrize(
    ("phase", "proven"), [("fenced", False), ("detached", False), ("intended", True)]
)
def test_a_fence_that_is_gone_by_itself_does_not_prove_the_clients_gone(
    phase: str, proven: bool
) -> None:
    """Once it was proven, volumes may have moved, and the fence was only to become larger."""
    ledger = LEDGER._replace(phase=phase, proven=proven, tainted=False)
    refused(
        World(node(boot="boot-1"), ledger=ledger),
        "the node was not looked at",
        ceph=GONE,
    )


def test_a_network_fence_that_was_never_patched() -> None:
    ledger = BY_OBJECT._replace(phase="intended", tainted=False)
    for fence in (
        network_fence(),
        network_fence("Unfenced"),
        network_fence("Unfenced", ""),
    ):
        refused(World(node(boot="boot-1"), fence, ledger=ledger), "the node was not looked at")
    fence = network_fence("Unfenced", "unfencing operation successful")
    refused(
        World(node(boot="boot-1"), fence, ledger=ledger),
        "the node was not looked at",
        ceph=reading(blocked("10.0.0.1/32", "range")),
    )
    assert not release(World(node(boot="boot-1"), fence, ledger=ledger))["failed"]


def test_a_fence_by_nothing_that_was_never_carried_out() -> None:
    ledger = INTENDED._replace(method="none", entries=())
    assert not release(World(node(boot="boot-1"), ledger=ledger))["failed"]


@pytest.mark.parametrize("phase", ["fenced", "detached", "intended"])
def test_a_node_that_was_said_to_be_off_and_was_not(phase: str) -> None:
    """Its volumes have other writers, and it is in the boot in which it had them."""
    ledger = INTENDED._replace(method="none", entries=(), phase=phase, proven=True)
    same = World(node(boot="boot-1"), ledger=ledger)
    for looked in ({}, {"clients": CLEAN, "ceph": GONE}):
        refused(same, "fenced as one that is off (node_confirmed_off): it was not", **looked)
    assert not release(World(node(), ledger=ledger))["failed"]
    # A release that has begun of one that never was proven goes on.
    never = ledger._replace(proven=False, phase="releasing")
    assert not release(World(node(boot="boot-1"), ledger=never))["failed"]
    # It was fenced in Ceph since.
    later = World(node(boot="boot-1"), ledger=INTENDED._replace(phase=phase, declared_off=True))
    refused(later, "it was not", clients=CLEAN, ceph=reading(blocked("10.0.0.1"), *FOREIGN))


def test_pods_of_before_are_told() -> None:
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv-db"},
        "spec": {"claimRef": {"namespace": "shop", "name": "db"}},
    }
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": "shop", "name": name},
            "spec": {
                "nodeName": "a",
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}],
            },
            "status": {"phase": "Running"},
        }
        for name in ("db", "web")
    ]
    result = release(World(node(boot="boot-1"), volume, *pods), clients=CLEAN)
    assert result["findings"][0]["evidence"]["pods"] == ["shop/db (Running)"]


def test_no_ledger_is_nothing_to_do() -> None:
    for state in ("releasing", "unfenced", "released"):
        world = World(node("True", "boot-2", "uid-a", OTHER_TAINT), ledger=None)
        result = release(world, state)
        assert (
            not result["failed"]
            and not result["changed"]
            and result["findings"] == []
            and result["fence"] == {}
        )
        assert "a is not fenced" in result["msg"]
        assert world.changes() == []


def test_a_taint_without_a_ledger_is_reported() -> None:
    result = release(World(node(), ledger=None))
    assert not result["failed"] and not result["changed"]
    (finding,) = result["findings"]
    assert finding["verdict"] == "report" and f"kubectl taint node a {OUT}-" in finding["reason"]


def test_another_run_is_at_work() -> None:
    world = World(node())
    RunLease(world, "storage-ops", "a", "run-9", 180).take(0)  # type: ignore[arg-type]
    for check in (True, False):
        result = release(world, check=check)
        assert result["failed"] and not result["changed"] and "run-9" in result["msg"], result[
            "msg"
        ]
    assert world.ledger and world.ledger.phase == "detached"
    assert world.objects[LEASE]["spec"]["holderIdentity"] == "run-9"


def test_lost_again_before_the_first_step() -> None:
    world = World(node())

    def lose(verb: str, place: str) -> None:
        if verb == "create" and "/leases" in place:
            world.objects[NODE]["status"]["conditions"][0]["status"] = "Unknown"

    world.before = lose
    result = release(world)
    assert result["failed"] and "was not started: a is not Ready" in result["msg"], result["msg"]
    assert world.ledger and world.ledger.phase == "detached" and LEASE not in world.objects


def test_released_by_another_run_meanwhile() -> None:
    world = World(node())

    def finish(verb: str, place: str) -> None:
        if verb == "create" and "/leases" in place:
            world.objects.pop(MAP, None)
            world.objects[NODE]["metadata"]["annotations"] = {}

    world.before = finish
    result = release(world)
    assert result["failed"] and "another run has released a meanwhile" in result["msg"], result[
        "msg"
    ]
    assert LEASE not in world.objects


def test_a_missing_right_is_found_in_check_mode() -> None:
    world = World(node())

    def forbid(verb: str, place: str) -> None:
        if verb == "patch" and place == MAP:
            raise Forbidden("cannot patch configmaps", 403)

    world.before = forbid
    result = release(world, check=True)
    assert result["failed"] and "would fail: cannot patch configmaps" in result["msg"]


# held


def test_held_renews_the_lease_and_changes_nothing_else() -> None:
    world = begun(World(node()))
    before = {place: item for place, item in world.objects.items() if place != LEASE}
    world.clock = lambda: NOW + timedelta(seconds=100)
    result = release(world, "held")
    assert not result["failed"] and not result["changed"] and result["findings"] == [], result[
        "msg"
    ]
    # Before all is read, and after it: the whole of it is left for what follows.
    assert result["fence"]["phase"] == "releasing" and world.changes() == [f"patch {LEASE}"] * 2
    assert not world.requests[-1:][0].startswith("list")
    assert {place: item for place, item in world.objects.items() if place != LEASE} == before


def test_held_says_no_to_a_run_that_was_away_for_too_long() -> None:
    world = begun(World(node()))
    world.clock = lambda: NOW + timedelta(seconds=300)
    RunLease(world, "storage-ops", "a", "run-9", 180).take(0)  # type: ignore[arg-type]
    result = release(world, "held")
    assert result["failed"] and "run run-9 has it now" in result["msg"]
    # It has released the node, and somebody has fenced that again.
    world = begun(World(node()))
    assert not release(world, "released", ceph=GONE)["failed"]
    result = release(world, "held")
    assert result["failed"] and "it was deleted" in result["msg"]
    Ledgers(world, "storage-ops").write(INTENDED)  # type: ignore[arg-type]
    RunLease(world, "storage-ops", "a", "run-1", 180).take(0)  # type: ignore[arg-type]
    refused(world, "the release has not begun (the ledger says intended)", "held")


def test_held_says_no_where_the_ledger_is_gone() -> None:
    world = World(node(), ledger=None)
    RunLease(world, "storage-ops", "a", "run-1", 180).take(0)  # type: ignore[arg-type]
    result = release(world, "held")
    assert (
        result["failed"]
        and "a has no ledger any more" in result["msg"]
        and LEASE not in world.objects
    )


def test_held_says_no_to_a_node_that_is_lost_again() -> None:
    world = begun(World(node()))
    world.objects[NODE]["status"]["conditions"][0]["status"] = "Unknown"
    refused(world, "a is not Ready (Ready=Unknown", "held")


def test_held_in_check_mode_needs_no_lease() -> None:
    world = World(node())
    fence = release(world, check=True)["fence"]
    result = release(world, "held", check=True, fence=fence)
    assert (
        not result["failed"]
        and not result["changed"]
        and result["fence"] == fence
        and world.changes() == []
    )


# released


def test_released_takes_back_what_is_ours_and_the_ledger_last() -> None:
    world = begun(World(node()))
    result = release(world, "released", ceph=GONE)
    assert not result["failed"], result["msg"]
    assert [verb for verb, _outcome in outcomes(result)] == [
        "untaint_node",
        "uncordon_node",
        "remove_fence_ledger",
    ]
    assert world.spec == {"taints": [OTHER_TAINT]}
    assert (
        MAP not in world.objects
        and ANNOTATION not in world.objects[NODE]["metadata"]["annotations"]
    )
    assert LEASE not in world.objects and result["fence"] == {}
    assert "10.0.0.9 were there before it, so they stay" in result["findings"][0]["reason"]
    assert any("10.0.0.1:0/55" in line for line in result["findings"][0]["evidence"]["proof"])
    again = release(world, "released", ceph=GONE)
    assert not again["changed"] and not again["failed"]


def test_what_is_not_ours_stays() -> None:
    """A cordon and a taint from before, and a taint of the same key that somebody else has set."""
    world = begun(World(node(), ledger=LEDGER._replace(tainted=False, cordoned=False)))
    assert [verb for verb, _outcome in outcomes(release(world, "released", ceph=GONE))] == [
        "remove_fence_ledger"
    ]
    assert TAINT in world.spec["taints"] and world.spec["unschedulable"]
    other = {**TAINT, "value": "maintenance"}
    world = begun(World(node("True", "boot-2", "uid-a", other)))
    assert "untaint_node" not in dict(outcomes(release(world, "released", ceph=GONE)))
    assert world.spec["taints"] == [other]


def test_another_node_object_keeps_its_own_cordon() -> None:
    world = begun(World(node(uid="uid-new")))
    assert [verb for verb, _outcome in outcomes(release(world, "released", ceph=GONE))] == [
        "remove_fence_ledger"
    ]
    assert world.spec["unschedulable"] and MAP not in world.objects


@pytest.mark.parametrize(
    ("ceph", "words"),
    [
        (None, "it is not proven that 10.0.0.1 left Ceph's blocklist"),
        (reading(*FOREIGN, blocked("10.0.0.1")), "10.0.0.1 is still in Ceph's blocklist"),
        (reading(fsid="other"), "the reading is of Ceph cluster other, and the fence is in f"),
        (reading(age=3600), "read it again"),
        (reading(age=-3600), "s from now, so a clock is wrong"),
    ],
)
def test_not_released_without_proof(ceph: Object | None, words: str) -> None:
    refused(begun(World(node())), words, "released", ceph=ceph)


def test_what_was_there_before_is_given_back() -> None:
    """Somebody had put the address there by hand, until then; what is there until later is ours
    still.
    """
    ledger = LEDGER._replace(entries=(LEDGER.entries[0]._replace(before="2026-01-02T00:00:00Z"),))

    def there(until: str) -> Object:
        return reading(*FOREIGN, {**blocked("10.0.0.1"), "until": until})

    refused(
        begun(World(node(), ledger=ledger)),
        "10.0.0.1 is still in",
        "released",
        ceph=there("2026-01-02T00:03:01Z"),
    )
    result = release(
        begun(World(node(), ledger=ledger)), "released", ceph=there("2026-01-02T00:02:59Z")
    )
    assert not result[
        "failed"
    ] and "10.0.0.1 until 2026-01-02T00:02:59Z, which blocks 10.0.0.1 and is not ours" in str(
        result["findings"]
    )
    assert not release(begun(World(node(), ledger=ledger)), "released", ceph=GONE)["failed"]


def test_what_was_read_before_the_fence_proves_nothing() -> None:
    at = f"{NOW:%Y-%m-%dT%H:%M:%SZ}"
    refused(
        begun(World(node(), ledger=LEDGER._replace(at=at))),
        "and the fence was noted after that",
        "released",
        ceph=reading(age=60),
    )


def test_what_a_killed_renewal_has_left_goes_with_the_entry() -> None:
    """It stood in for the entry of an address, spelled as a range of one, and ceph_blocklist knows
    it by its end.
    """
    left = {**blocked("10.0.0.1/32", "range"), "until": "2026-01-08T03:33:33Z", "stand_in": True}
    before = reading(
        *FOREIGN, blocked("10.0.0.1"), left, {**blocked("10.0.0.9/32", "range"), "stand_in": True}
    )
    check = release(World(node()), check=True, ceph=before)["fence"]
    world = begun(World(node()), ceph=before)
    assert world.ledger and world.ledger.to_dict()["entries"] == check["entries"]
    assert [(entry.entry, entry.kind) for entry in world.ledger.entries if entry.ours] == [
        ("10.0.0.1", "address"),
        ("10.0.0.1/32", "range"),
    ]
    refused(
        world,
        "10.0.0.1/32 is still in Ceph's blocklist: remove it",
        "released",
        ceph=reading(*FOREIGN, left),
    )
    assert (
        not release(world, ceph=GONE)["failed"]
        and not release(world, "released", ceph=GONE)["failed"]
    )
    # Nobody has looked before.
    world = begun(World(node()))
    refused(
        world,
        "begin again with state releasing and this reading",
        "released",
        ceph=reading(*FOREIGN, left),
    )
    assert not release(world, ceph=reading(*FOREIGN, left))["failed"]
    assert world.ledger and world.ledger.entries[-1] == Entry(
        "10.0.0.1/32", "range", True, "2026-01-08T03:33:33Z"
    )


@pytest.mark.parametrize(
    "entry",
    [
        # Of the same range, but nothing that we have put there; wider; and of an address that the
        # node has by now.
        blocked("10.0.0.1/32", "range"),
        blocked("10.0.0.0/24", "range"),
        blocked("10.0.0.77"),
    ],
)
def test_what_still_blocks_the_node_is_told(entry: Object) -> None:
    host = node()
    host["status"]["addresses"].append({"type": "InternalIP", "address": "10.0.0.77"})
    world = begun(World(host))
    result = release(world, "released", ceph=reading(*FOREIGN, entry))
    assert not result["failed"], result["msg"]
    (finding,) = result["findings"]
    words = f"Ceph's blocklist has {entry['address']} until unknown, which blocks 10.0.0."
    assert words in finding["reason"] and any(
        words in line for line in finding["evidence"]["proof"]
    )
    assert "which blocks" not in str(release(begun(World(host)), "released", ceph=GONE)["findings"])


def test_not_released_before_it_has_begun() -> None:
    world = World(node())
    RunLease(world, "storage-ops", "a", "run-1", 180).take(0)  # type: ignore[arg-type]
    refused(world, "the release has not begun (the ledger says detached)", "released", ceph=GONE)


def test_not_released_by_a_run_that_lost_its_lease() -> None:
    world = begun(World(node()))
    result = release(world, "released", run_id="run-2", ceph=GONE)
    assert result["failed"] and "lost the Lease" in result["msg"]
    assert world.changes() == []


def fenced_again(world: World) -> Callable[[], None]:
    """Another run finds that the node was lost again, once the Lease of this one is over."""

    def act() -> None:
        host = world.objects[NODE]
        host["status"]["conditions"][0]["status"] = "Unknown"
        RunLease(world, "storage-ops", "a", "run-2", 180).take(0)  # type: ignore[arg-type]
        ledgers = Ledgers(world, "storage-ops")  # type: ignore[arg-type]
        there = ledgers.read("a", host)
        assert there
        at_ = f"{world.now():%Y-%m-%dT%H:%M:%SZ}"
        new = ledgers.write(there._replace(phase="intended", run="run-2", at=at_))
        ledgers.write(new._replace(phase="fenced", proven=True))

    return act


def test_a_late_run_takes_no_network_fence_off() -> None:
    """Its requests are tried again for longer than its Lease lasts, and another run had fenced the
    node meanwhile by the same NetworkFence.
    """
    world = begun(World(node(), network_fence(), ledger=BY_OBJECT))
    # The one before the action: prepare() renews it, too.
    Slow(world, ("get", NODE), ("get", FENCES), nth=2, meanwhile=fenced_again(world))
    result = release(world, "unfenced")
    assert (result["failed"], result["code"]) == (True, "lease_lost"), result["msg"]
    assert outcomes(result) == []
    fence = next(item for place, item in world.objects.items() if place.startswith(FENCES))
    assert fence["spec"]["fenceState"] == "Fenced"
    assert world.ledger and (world.ledger.run, world.ledger.phase) == ("run-2", "fenced")


def test_a_late_run_does_not_remove_the_ledger_of_the_next_fence() -> None:
    world = begun(World(node("True", "boot-2", "uid-a", OTHER_TAINT, cordoned=False)))
    Slow(world, ("get", NODE), ("get", MAP), nth=2, meanwhile=fenced_again(world))
    result = release(world, "released", ceph=GONE)
    assert (result["failed"], result["code"]) == (True, "lease_lost"), result["msg"]
    assert outcomes(result) == []
    assert world.ledger and world.ledger.run == "run-2"
    assert world.objects[LEASE]["spec"]["holderIdentity"] == "run-2"


def test_a_late_run_does_not_begin_to_release_a_node_that_was_lost_again() -> None:
    """What it has read under its Lease is older than that."""
    world = World(node())
    # Of the second renewal, which is after the wait for the Lease.
    Slow(world, ("list", "/configmaps"), ("get", NODE), meanwhile=fenced_again(world))
    result = release(world)
    assert (result["failed"], result["code"]) == (True, "lease_lost"), result["msg"]
    assert world.ledger and (world.ledger.run, world.ledger.phase) == ("run-2", "fenced")


def test_lost_again_right_before_the_taint() -> None:
    world = begun(World(node()))
    reads = []

    def lose(verb: str, place: str) -> None:
        if (verb, place) == ("get", NODE):
            reads.append(place)
            if len(reads) == 2:
                world.objects[NODE]["status"]["conditions"][0]["status"] = "Unknown"

    world.before = lose
    result = release(world, "released", ceph=GONE)
    assert result["failed"] and "a is not Ready any more (Ready=Unknown)" in result["msg"], result[
        "msg"
    ]
    assert TAINT in world.spec["taints"] and MAP in world.objects


@pytest.mark.parametrize(
    # Read for the Lease's sake, and right before the patch.
    ("state", "nth"),
    [("released", 2), ("released", 3), ("unfenced", 2)],
)
def test_a_node_that_was_made_again_since_it_was_judged(state: str, nth: int) -> None:
    """Its taints and its cordon are those of others, and its clients may be as well."""
    fenced = BY_OBJECT if state == "unfenced" else LEDGER
    world = begun(World(node(), network_fence(), ledger=fenced))
    reads = []

    def replace(verb: str, place: str) -> None:
        if (verb, place) == ("get", NODE):
            reads.append(place)
            if len(reads) == nth:
                world.objects[NODE]["metadata"]["uid"] = "uid-again"

    world.before = replace
    result = release(world, state, ceph=GONE)
    assert (result["failed"], result["code"]) == (True, "identity_changed"), result["msg"]
    assert "is another one now (uid uid-again)" in result["msg"]
    assert TAINT in world.spec["taints"] and world.spec["unschedulable"] and MAP in world.objects
    fence = next(item for place, item in world.objects.items() if place.startswith(FENCES))
    assert fence["spec"]["fenceState"] == "Fenced"


def test_the_node_changes_while_it_is_patched() -> None:
    """A heartbeat between reading and patching is a conflict that is tried again; no taint that
    came meanwhile is lost.
    """
    world = begun(World(node()))
    late = {"key": "late", "effect": "NoSchedule"}
    done = []

    def beat(verb: str, place: str) -> None:
        if (verb, place) == ("patch", NODE) and not done:
            done.append(place)
            world.spec["taints"].append(late)
            raise Conflict("the object has been modified", 409)

    world.before = beat
    assert not release(world, "released", ceph=GONE)["failed"]
    assert world.spec["taints"] == [OTHER_TAINT, late]


def test_check_mode_goes_all_the_way() -> None:
    """The entries are still there, since the step before was only planned."""
    world = World(node(), network_fence(), ledger=BY_OBJECT._replace(entries=LEDGER.entries))
    objects = {**world.objects}
    fence = release(world, check=True)["fence"]
    unfenced = release(world, "unfenced", check=True, fence=fence)
    assert outcomes(unfenced) == [("unfence_network", "planned")] and unfenced["fence"] == fence
    last = release(world, "released", check=True, fence=fence, ceph=reading(blocked("10.0.0.1")))
    assert [verb for verb, outcome in outcomes(last) if outcome == "planned"] == [
        "untaint_node",
        "uncordon_node",
        "remove_fence_ledger",
    ]
    assert last["fence"] == {} and world.changes() == [] and world.objects == objects


def test_a_missing_right_to_delete_is_found_in_check_mode() -> None:
    world = begun(World(node()))

    def forbid(verb: str, place: str) -> None:
        if verb == "delete" and place == MAP:
            raise Forbidden("cannot delete configmaps", 403)

    world.before = forbid
    result = release(world, "released", check=True, ceph=GONE)
    assert (
        result["failed"]
        and "remove_fence_ledger a would fail: cannot delete configmaps" in result["msg"]
    )
    assert MAP in world.objects


# by NetworkFence


def test_entries_of_before_a_change_of_method_have_to_go_too() -> None:
    world = begun(
        World(
            node(),
            network_fence("Unfenced", "unfencing operation successful"),
            ledger=BY_OBJECT._replace(entries=LEDGER.entries),
        )
    )
    refused(world, "it is not proven that 10.0.0.1 left", "released")


def test_a_network_fence_is_patched_and_its_message_awaited() -> None:
    world = begun(World(node(), network_fence(), ledger=BY_OBJECT))
    result = release(world, "unfenced")
    assert outcomes(result) == [("unfence_network", "done")], result["msg"]
    assert world.objects[f"{FENCES}/fence-a"]["spec"]["fenceState"] == "Unfenced"
    assert not [request for request in world.requests if request.startswith("delete")]
    assert not release(world, "unfenced")["changed"]
    last = release(world, "released")
    assert not last["failed"], last["msg"]
    assert any("unverified in Ceph" in line for line in last["findings"][0]["evidence"]["proof"])


@pytest.mark.parametrize(
    ("result", "message"),
    [("Failed", "no such secret"), ("Succeeded", "fencing operation successful"), ("", "")],
)
def test_a_network_fence_that_fails_or_is_silent(result: str, message: str) -> None:
    """The ledger stays, and so do taint and cordon."""
    world = begun(World(node(), network_fence(), ledger=BY_OBJECT))
    world.result, world.message = result, message
    failed = release(world, "unfenced")
    assert failed["failed"] and outcomes(failed) == [("unfence_network", "failed")]
    assert world.ledger and world.ledger.phase == "releasing" and TAINT in world.spec["taints"]
    # Its run has ended, and another one need not wait for it.
    assert LEASE not in world.objects
    RunLease(world, "storage-ops", "a", "run-1", 180).take(0)  # type: ignore[arg-type]
    after = release(world, "released")
    assert after["failed"] and "NetworkFence fence-a is Unfenced" in after["msg"], after["msg"]
    assert MAP in world.objects


def test_a_network_fence_that_still_shows_in_the_blocklist() -> None:
    """Its message says that it is unfenced, but Ceph does not."""
    world = begun(
        World(node(), network_fence("Unfenced", "unfencing operation successful"), ledger=BY_OBJECT)
    )
    refused(
        world,
        "10.0.0.1/32 is still in Ceph's blocklist",
        "released",
        ceph=reading(blocked("10.0.0.1/32", "range")),
    )


def test_a_network_fence_that_was_fenced_before_is_left() -> None:
    ledger = BY_OBJECT._replace(
        network_fences=(FenceObject("fence-a", "uid-f", ("10.0.0.1/32",), False),)
    )
    world = begun(World(node(), network_fence(), ledger=ledger))
    assert not release(world, "unfenced")["changed"]
    result = release(world, "released")
    assert (
        not result["failed"]
        and "NetworkFence fence-a were there before it" in result["findings"][0]["reason"]
    )
    assert world.objects[f"{FENCES}/fence-a"]["spec"]["fenceState"] == "Fenced"


@pytest.mark.parametrize("objects", [(), (network_fence(uid="uid-other"),)])
def test_a_network_fence_that_was_deleted(objects: tuple[Object, ...]) -> None:
    """Deleting does not unfence, so only Ceph can tell."""
    refused(
        begun(World(node(), *objects, ledger=BY_OBJECT)), "deleting it does not unfence", "unfenced"
    )
    world = begun(World(node(), *objects, ledger=BY_OBJECT))
    refused(
        world,
        "deleting it does not unfence",
        "unfenced",
        ceph=reading(blocked("10.0.0.1/32", "range")),
    )
    world = begun(World(node(), *objects, ledger=BY_OBJECT))
    assert not release(world, "unfenced", ceph=GONE)["failed"]
    assert not release(world, "released", ceph=GONE)["failed"]


def test_a_network_fence_with_rooks_spelling_is_gone_only_if_ceph_has_not_its_address() -> None:
    planned = FenceObject("fence-a", "uid-f", ("10.0.0.1:0/32",), True)
    ledger = BY_OBJECT._replace(network_fences=(planned,))
    left = reading(blocked("10.0.0.1/32", "range"))
    said = "deleting it does not unfence"
    refused(begun(World(node(), ledger=ledger)), said, "unfenced", ceph=left)
    assert not release(begun(World(node(), ledger=ledger)), "unfenced", ceph=GONE)["failed"]


def spec_of(fence: Object, **changes: Any) -> Object:
    return {**fence, "spec": {**fence["spec"], **changes}}


MADE_ANEW = network_fence("Unfenced", "unfencing operation successful", "uid-other")


@pytest.mark.parametrize(
    "fence",
    [
        spec_of(network_fence(), cidrs=["10.0.0.2/32"]),
        spec_of(network_fence(), cidrs=["10.0.0.1/32", "10.0.0.2/32"]),
        spec_of(MADE_ANEW, cidrs=["192.0.2.9/32"]),
        spec_of(MADE_ANEW, parameters={"clusterID": "ceph-2"}),
        spec_of(MADE_ANEW, driver="csi.example.com"),
    ],
)
def test_a_network_fence_that_is_another_one_now(fence: Object) -> None:
    """It has the name, but its controller takes back something else."""
    for step in ("unfenced", "released"):
        refused(
            begun(World(node(), fence, ledger=BY_OBJECT)), "is gone or has other ranges now", step
        )


def test_a_network_fence_that_the_blocklist_made_up_for() -> None:
    """It is gone, and our own entry of its only address is there until the next step: that is not
    what it has left.
    """
    ledger = BY_OBJECT._replace(method="ceph", entries=LEDGER.entries[:1])
    mine, left = blocked("10.0.0.1"), blocked("10.0.0.1/32", "range")
    refused(
        begun(World(node(), ledger=ledger)),
        "is gone or has other ranges now",
        "unfenced",
        ceph=reading(left),
    )
    refused(
        begun(World(node(), ledger=ledger)),
        "is still in Ceph's blocklist",
        "released",
        ceph=reading(mine),
    )
    world = begun(World(node(), ledger=ledger))
    assert not release(world, "unfenced", ceph=reading(mine))["failed"]
    assert not release(world, "released", ceph=GONE)["failed"]


def test_a_network_fence_that_was_made_anew_unfenced() -> None:
    world = begun(
        World(
            node(),
            network_fence("Unfenced", "unfencing operation successful", "uid-other"),
            ledger=BY_OBJECT,
        )
    )
    assert not release(world, "unfenced")["failed"]
    assert not release(world, "released")["failed"]


# killed and run again


class Killed(BaseException):
    """As by SIGKILL: nothing is tidied up."""


def write(ledger: Ledger, ceph: Object) -> Callable[[World, str], Object]:
    def everything(world: World, run_id: str) -> Object:
        first = release(world, run_id=run_id, clients=CLEAN)
        if not first["failed"] and first["fence"]:
            release(world, "unfenced", run_id=run_id)
            return release(world, "released", run_id=run_id, ceph=ceph)
        return first

    return everything


def kill_after(writes: int, leases: bool = True) -> Callable[[str, str], None]:
    """What ends a run before the write after so many; those of Leases count, or not."""
    left = [writes]

    def kill(verb: str, place: str) -> None:
        if verb in ("create", "patch", "delete") and (leases or "/leases" not in place):
            if not left[0]:
                raise Killed
            left[0] -= 1

    return kill


@pytest.mark.parametrize("ledger", [LEDGER, BY_OBJECT])
def test_killed_after_every_single_change(ledger: Ledger) -> None:
    """Whatever it has done before, the next run, once the Lease is over, finishes it, and takes
    back all and only what is ours.
    """
    everything = write(ledger, GONE)
    count = 0
    while True:
        world = World(node(), network_fence(), ledger=ledger)
        world.before = kill_after(count)
        try:
            everything(world, "run-1")
        except Killed:
            killed = True
        else:
            killed = False
        world.before = lambda _verb, _place: None
        # The killed run's Lease runs out.
        world.clock = lambda: NOW + timedelta(seconds=300)
        last = everything(world, "run-2")
        assert not last["failed"], (count, last["msg"])
        assert world.spec == {"taints": [OTHER_TAINT]}, count
        assert MAP not in world.objects and not world.objects[NODE]["metadata"].get(
            "annotations"
        ), count
        assert world.objects[f"{FENCES}/fence-a"]["spec"]["fenceState"] == (
            "Unfenced" if ledger is BY_OBJECT else "Fenced"
        )
        if not killed:
            break
        count += 1
    assert count >= 7


@pytest.mark.parametrize("ledger", [LEDGER, BY_OBJECT])
def test_each_run_is_killed_after_its_first_change(ledger: Ledger) -> None:
    """Each of them brings the release on, so one has nothing left to do."""
    everything = write(ledger, GONE)
    world = World(node(), network_fence(), ledger=ledger)
    for number in range(10):
        world.before = kill_after(1, leases=False)
        try:
            everything(world, f"run-{number}")
        except Killed:
            # The killed run's Lease has run out.
            for place in [place for place in world.objects if "/leases/" in place]:
                del world.objects[place]
        else:
            break
    else:
        raise AssertionError("no run came to its end")
    assert MAP not in world.objects and not world.objects[NODE]["metadata"].get("annotations")


# options


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"boot_id": "b"},
        {"boot_id": "b", "clients": []},
        {"boot_id": 1, "clients": [], "problem": ""},
        {**CLEAN, "clients": [{}]},
        {**CLEAN, "clients": [{**KRBD, "in_use": [1]}]},
        {**CLEAN, "clients": None},
    ],
)
def test_clients_with_a_part_missing_are_an_error(data: Object) -> None:
    with pytest.raises(StorageOpsError, match="clients is not what ceph_client_info returns"):
        read_clients(data)


def test_a_timeout_that_is_none() -> None:
    for timeout in ("nan", "inf", "0"):
        result = release(World(node()), release_timeout=float(timeout))
        assert result["failed"] and "release_timeout" in result["msg"]


def test_a_ledger_that_a_node_has_forged_in_another_namespace() -> None:
    """Root on the node writes the annotation, a tenant the ConfigMap. Whoever took the first
    refusal's advice took off the fence of another lost node.
    """
    of_victim = Entry("10.0.0.77", "address", True, "2999-01-01T00:00:00Z")
    victim = LEDGER._replace(
        node="v",
        node_uid="uid-v",
        addresses=("10.0.0.77",),
        entries=(of_victim,),
        network_fences=(),
        tainted=False,
    )
    forged = LEDGER._replace(
        namespace="tenant",
        addresses=(),
        entries=(of_victim,),
        network_fences=(),
        volumes=(),
        tainted=False,
        cordoned=False,
    )
    host = node()
    host["metadata"]["annotations"] = {ANNOTATION: forged.text}
    written = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": object_name("a"), "namespace": "tenant"},
        "data": {"ledger": forged.text},
    }
    world = World(host, written, ledger=None)
    Ledgers(world, "storage-ops").write(victim)  # type: ignore[arg-type]
    refused = release(world)
    assert refused["code"] == "ledger_unreadable"
    assert "Only if runs of yours keep ledgers in tenant" in refused["msg"]
    assert f"kubectl annotate node a {ANNOTATION}-" in refused["msg"]
    given = release(world, ledger_namespace="tenant", ceph=reading(blocked("10.0.0.77")))
    assert given["failed"] and given["code"] == "fence_shared", given["msg"]


# a node that was switched off


OFF = LEDGER._replace(
    method="power",
    entries=(),
    addresses=(),
    power=PowerFence("ipmi", "192.0.2.11", off_at="2026-01-01T00:00:00Z"),
)


def said(address: str = "192.0.2.11", **more: Any) -> list[dict[str, Any]]:
    """What the BMC of OFF says."""
    plain = {"kind": "ipmi", "system": "", "uuid": ""}
    return looks({**plain, "address": address, **more})


def test_ceph_contradicts_a_reboot_that_only_the_kubelet_tells() -> None:
    """A node that is switched on has its release begun before anything was judged."""
    taken = LEDGER._replace(method="power", power=OFF.power, phase="releasing")
    seen = reading(watchers=(watcher("10.0.0.1:0/7"),))
    refused(World(node(), ledger=taken), "Ceph still sees", ceph=seen)


@pytest.mark.parametrize("phase", ["intended", "fenced", "detached", "releasing"])
@pytest.mark.parametrize("clients", [None, CLEAN])
def test_what_was_off_is_released_in_another_boot_only(phase: str, clients: Any) -> None:
    """Its BMC said that it was off, so a node in the same boot was never off, whatever it shows."""
    ledger = OFF._replace(phase=phase, tainted=False)
    refused(
        World(node(boot="boot-1"), ledger=ledger), "its BMC 192.0.2.11 said at", clients=clients
    )
    assert not release(World(node(), ledger=ledger), clients=clients)["failed"]


def test_what_others_have_switched_off_others_switch_on() -> None:
    """And it is released in another boot only."""
    outside = PowerFence("external", "cloud01", "aws:///eu/i-0abc", "", "2026-01-01T00:00:00Z")
    ledger = OFF._replace(method="external", power=outside, tainted=False)
    refused(World(node("Unknown", boot="boot-1"), ledger=ledger), "a is not Ready", power_on=True)
    same = World(node(boot="boot-1"), ledger=ledger)
    refused(same, "its external source cloud01 said at", clients=CLEAN)
    assert not release(World(node(), ledger=ledger))["failed"]


def test_what_was_never_off_needs_no_other_boot() -> None:
    """Its fail-over stopped before that, so nothing was detached."""
    assert OFF.power
    never = OFF._replace(phase="intended", tainted=False, power=OFF.power._replace(off_at=""))
    assert not release(World(node(boot="boot-1"), ledger=never))["failed"]


def test_a_node_is_switched_on_only_where_it_was_asked_for() -> None:
    silent = node("Unknown", boot="boot-1")
    refused(World(silent, ledger=OFF), "a is not Ready")
    refused(World(silent), "a is not Ready", power_on=True)
    refused(World(node("False"), ledger=OFF), "a is not Ready", power_on=True)
    world = World(silent, ledger=OFF)
    # Another node's BMC, or none that has answered, switches nothing on.
    refused(world, "was not asked", power_on=True)
    refused(world, "is not the one by which", power_on=True, power=said("192.0.2.12"))
    refused(world, "is that of b too", power_on=True, power=said(shared=["b"]))
    # One that was read long ago may have another machine by now.
    old = f"{NOW - timedelta(seconds=121):%Y-%m-%dT%H:%M:%SZ}"
    refused(world, "read it again", power_on=True, power=said(read_at=old))
    found = release(world, power_on=True, power=said(read_at=f"{NOW:%Y-%m-%dT%H:%M:%SZ}"))
    assert outcomes(found) == [("mark_release", "done")]
    assert world.ledger and world.ledger.phase == "releasing" and TAINT in world.spec["taints"]
    # It is back, and the same run goes on.
    world.objects[NODE]["status"] = node()["status"]
    for step in ("releasing", "unfenced", "released"):
        assert not release(world, step)["failed"]
    assert world.ledger is None and TAINT not in world.spec["taints"]
