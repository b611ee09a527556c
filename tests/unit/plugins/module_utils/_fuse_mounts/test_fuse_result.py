# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is told of FUSE mounts that do not answer, where one tenant has thousands of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.filter.dead_mounts import dead_mounts
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import controls, engine
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import Finding, Plan
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts.model import (
    FuseOptions,
    FusePod,
    FuseState,
    FuseVolume,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts.plan import plan
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.kubelet import (
    ROOT,
    VolumeNote,
    digest_of,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.mounts import (
    Mount,
    MountTable,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.probes import Answer
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.processes import Process

DRIVER = "s3.csi.example.com"
GONE = Answer("dead", "statvfs", "ENOTCONN", "Transport endpoint is not connected")
VICTIMS = 3


def uid(number: int) -> str:
    return f"{number:08x}-0000-0000-0000-{number:012x}"


class Node:
    """A node of which all FUSE mounts are dead."""

    def __init__(self) -> None:
        self.mounts = [mount(1, "/", "8:1", fstype="ext4")]
        self.notes: dict[str, VolumeNote] = {}
        self.volumes: list[FuseVolume] = []

    def add(self, name: str, namespace: str, subpaths: int = 0) -> FuseVolume:
        """A volume with one pod, and so many folders of it in the pod."""
        number = len(self.volumes) + 1
        pod, handle = uid(number), f"h-{name}"
        staging = f"{ROOT}/plugins/kubernetes.io/csi/{DRIVER}/{digest_of(handle)}"
        folder = f"{ROOT}/pods/{pod}/volumes/kubernetes.io~csi/{name}"
        self.notes[f"{staging}/vol_data.json"] = VolumeNote(DRIVER, handle)
        self.notes[f"{folder}/vol_data.json"] = VolumeNote(DRIVER, handle, name)
        points = [(f"{staging}/globalmount", "/"), (f"{folder}/mount", "/")]
        points += [
            (f"{ROOT}/pods/{pod}/volume-subpaths/{name}/c/{n}", f"/d{n}") for n in range(subpaths)
        ]
        for point, root in points:
            self.mounts.append(
                mount(len(self.mounts) + 1, point, f"0:{100 + number}", 1, root=root)
            )
        self.volumes.append(
            FuseVolume(
                volume=name,
                recipe="s3fs",
                sources=("b",),
                credentials={"access_key": "AK", "secret_key": "SKSKSKSKSK"},
                driver=DRIVER,
                handle=handle,
                pods=(FusePod(pod, namespace, "web", terminating=True),),
            )
        )
        return self.volumes[-1]

    def state(self, **more: Any) -> FuseState:
        dead = {one.device: GONE for one in self.mounts[1:]}
        return FuseState(
            "n1",
            ROOT,
            MountTable(self.mounts),
            notes=self.notes,
            programs={"s3fs": "/usr/bin/s3fs"},
            spare={"/tmp": 512},
            **{"answers": dead, **more},
        )


def mount(number: int, point: str, device: str, parent: int = 0, **more: Any) -> Mount:
    given: dict[str, Any] = {"root": "/", "fstype": "fuse.s3fs", "pid": "1", **more}
    return Mount(
        id=number,
        parent=parent,
        device=device,
        point=point,
        options=("rw", "nosuid"),
        shared=0,
        master=0,
        unbindable=False,
        source="s3fs",
        super_options=("rw", "allow_other", "user_id=0", "group_id=0"),
        **given,
    )


@pytest.mark.parametrize("strategy", ["kubelet", "remount"])
@pytest.mark.parametrize("subpaths", [900, 5000])
def test_a_pod_with_thousands_of_folders_takes_nothing_from_others(
    strategy: str, subpaths: int
) -> None:
    """The role decides by the result which pods have to go, and which containers are restarted."""
    node = Node()
    node.add("pvc-evil", "evil", subpaths)
    for number in range(VICTIMS):
        node.add(f"pvc-{number}", f"shop-{number}")
    paths = (node.mounts[3].point, node.mounts[-1].point)
    options = FuseOptions(strategy=strategy, volumes=tuple(node.volumes), accept_majority=True)
    result = engine._result(plan(node.state(), options))
    assert len(json.dumps(result)) <= engine.MAX_RESULT_CHARACTERS
    assert [one["verdict"] for one in result["findings"]] == ["repair"] * (VICTIMS + 1)
    first = result["findings"][0]
    assert first["repair_left_out"] > subpaths - 50
    for found in result["findings"][1:]:
        assert "cut" not in found["evidence"] and found["evidence"]["mounts"]
        assert {step["target"] for step in found["repair"]} <= {
            action["target"] for action in result["actions"]
        }
    known = [
        {"volume": one.volume, "pods": [{"uid": pod.uid} for pod in one.pods or ()]}
        for one in node.volumes
    ]
    if strategy == "kubelet":
        told = dead_mounts(result["findings"], known)["volumes"]
        assert list(told) == [f"pvc-{n}" for n in range(VICTIMS)] + ["pvc-evil"]
    named = FuseOptions(
        strategy=strategy, volumes=tuple(node.volumes), accept_majority=True, paths=paths
    )
    given = [one["given"] for one in engine._result(plan(node.state(), named))["findings"]]
    assert sorted(given) == sorted([path] for path in paths)


def test_what_is_named_of_many_mounts_is_known_where_its_step_has_no_room() -> None:
    node = Node()
    node.add("pvc-1", "shop", 900)
    last = node.mounts[-1].point
    options = FuseOptions(
        strategy="kubelet", volumes=tuple(node.volumes), accept_majority=True, paths=(last,)
    )
    (found,) = engine._result(plan(node.state(), options))["findings"]
    assert last not in [step["target"] for step in found["repair"]]
    known = [{"volume": "pvc-1", "pods": [{"uid": uid(1)}]}]
    assert dead_mounts([found], known, [last])["volumes"] == {"pvc-1": [last]}


@pytest.mark.parametrize("number", [3, 60])
def test_long_paths_of_a_container_cost_another_control_no_command(number: int) -> None:
    """In an audit the volumes are not known, and all is the node's."""
    node = Node()
    for volume in range(number):
        node.add(f"pvc-{volume}", "evil")
    long = "/" + "/".join(["d" * 200] * 24)
    copies = tuple(
        mount(5000 + n, f"{long}/{n}", f"0:{101 + volume}", 4000, pid=str(9000 + volume))
        for volume in range(number)
        for n in range(60)
    )
    processes = tuple(
        Process(9000 + volume, "sh", f"mnt:[{volume}]", uid(volume + 1), "a" * 64)
        for volume in range(number)
    )
    state = node.state(others=copies, processes=processes)
    found = plan(state, FuseOptions(accept_majority=True)).findings
    assert sum(len(json.dumps(one.to_result())) for one in found) > 600_000
    assert {one.owner for one in found} == {
        f"namespace of pod {uid(volume + 1)}" for volume in range(number)
    }
    array = Finding(
        "STOR-01", "major", "multipath map", "mpatha", "n1", "it has no path left",
        verdict="repair", evidence={"wwid": "36001405aaaa", "paths": [{"disk": "sda"}]},
    )  # fmt: skip
    result = engine._result(Plan([*found, array]))
    assert len(json.dumps(result)) <= engine.MAX_RESULT_CHARACTERS
    told = result["findings"][-1]
    assert told["evidence"] == array.evidence
    told["object"]["namespace"] = ""
    assert "residual_paths_wwids=36001405aaaa" in controls.check_command(told, "n1")


def test_whose_mounts_are_is_known_by_the_node_too() -> None:
    node = Node()
    node.add("pvc-1", "shop")
    state = node.state(namespaces={uid(1): "bank"})
    (found,) = plan(state, FuseOptions(accept_majority=True)).findings
    assert found.owner == "namespace bank"
    options = FuseOptions(volumes=tuple(node.volumes), accept_majority=True)
    (found,) = plan(state, options).findings
    assert found.owner == "namespace shop"
