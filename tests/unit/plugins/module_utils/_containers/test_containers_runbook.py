# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which containers are looked at, what is read right before one is ended, and what proves it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._containers import (
    runbook as containers,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._containers.runbook import (
    OPTIONS_SPEC,
    StaleContainers,
    container_options,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    CommandResult,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import run
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.probes import (
    DEAD,
    ERROR,
    HUNG,
    Answer,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.fuse_node import (
    FuseNode,
    mount,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.storage_node import (
    Module,
)

UID, OTHER = "5b9ba8a1-4f1b-4c7e-9d2b-1f2f5d0f3c11", "5b9ba8a1-4f1b-4c7e-9d2b-1f2f5d0f3c22"
# A dead mount's filesystem, and the one that the node has in its place.
OLD, NEW = "0:50", "0:60"
# A program that can be run, which takes no part: the node answers for it.
CRICTL = "/bin/sh"
STOP, INSPECT = f"{CRICTL} --timeout 10s stop", f"{CRICTL} --timeout 10s inspect"
RESTARTED = [("stop_container", "done")]


def path_of(pod: str) -> str:
    return f"/var/lib/kubelet/pods/{pod}/volumes/kubernetes.io~csi/pv-1/mount"


class Scene:
    """Containers, each of which had the node's mount of its pod's volume at /data.

    ``comes``: how a container comes back that was ended: (its name, what is mounted at /data, its
    pod), or None.
    """

    def __init__(self, node: FuseNode) -> None:
        self.node = node
        self.comes: tuple[str, str, str] | None = ("main", NEW, UID)
        self.pids: dict[str, int] = {}
        node.answers[OLD] = Answer(DEAD, "listing", "ENOTCONN", "not connected")
        node.restarts = self.restart
        self.volume(UID)

    def volume(self, pod: str) -> None:
        self.node.add(mount(50 + len(self.node.mounts), path_of(pod), NEW))

    def start(self, name: str, device: str, pod: str = UID) -> str:
        """Start a container; its id."""
        pid = 20 + len(self.pids)
        identity = f"{pid:064x}"
        self.pids[identity] = pid
        self.node.container(pid, identity, pod, mount(2, "/data", device))
        volumes = [{"containerPath": "/data", "hostPath": path_of(pod)}]
        self.node.inspected[identity] = {"metadata": {"name": name}, "mounts": volumes}
        return identity

    def restart(self, identity: str) -> None:
        self.node.end(self.pids[identity])
        if self.comes:
            self.start(*self.comes)

    def repair(self, *entries: dict[str, Any], **given: Any) -> Module:
        """Run container_restart; ``entries``: of its option containers, else one for main."""
        defaults = {name: option.get("default") for name, option in OPTIONS_SPEC.options.items()}
        plain = {"pod": UID, "mount_path": "/data", "restart_policy": "Always"}
        known = [{**plain, **entry} for entry in entries or [{"container": "main"}]]
        ours = {"containers": known, "crictl": CRICTL, "restart_timeout": 1, "deadline": 1e9}
        ours |= {"accept_majority": True, "kubelet_root": "/var/lib/kubelet"}
        module = Module()
        try:
            runbook = StaleContainers(self.node, container_options({**defaults, **ours, **given}))
            run(module, lambda: runbook, False)
        except SystemExit:
            assert module.failed
        return module

    def stopped(self) -> list[str]:
        """The containers that the runtime was to end."""
        return [line.split()[-1] for line in self.node.commands if line.startswith(STOP)]


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    node = FuseNode(tmp_path, monkeypatch)
    pause = SimpleNamespace(sleep=lambda _seconds: node.wait_for(bool, 0))
    monkeypatch.setattr(containers, "time", pause)
    return Scene(node)


def test_a_container_is_restarted_and_that_is_proven(scene: Scene) -> None:
    old = scene.start("main", OLD)
    module = scene.repair()
    assert not module.failed, module.result["msg"]
    assert module.outcomes == RESTARTED
    assert scene.stopped() == [old]
    (finding,) = module.result["findings"]
    new = f"{scene.pids[old] + 1:064x}"
    (proof,) = finding["evidence"]["proof"]
    assert proof.startswith(f"/data in container {new[:12]} (pid 21) can be listed")
    assert proof.endswith(f"and is {NEW} as {path_of(UID)} is")


def test_where_all_answer_the_runtime_is_not_asked(scene: Scene) -> None:
    scene.start("main", NEW)
    scene.start("side", NEW)
    module = scene.repair()
    assert (module.result["findings"], scene.node.commands) == ([], [])
    assert "2 containers with FUSE mounts, none of them dead or hung" in module.result["msg"]


def test_one_of_many_is_enough_to_ask(scene: Scene) -> None:
    old = scene.start("main", OLD)
    scene.start("side", NEW)
    assert scene.repair().outcomes == RESTARTED
    assert scene.stopped() == [old]


def test_each_is_looked_at_again_by_its_own_id(scene: Scene) -> None:
    """Another one of its pod that is well says nothing of it."""
    scene.start("side", NEW)
    old = scene.start("main", OLD)
    module = scene.repair({"container": "main"}, {"container": "side"})
    assert module.outcomes == RESTARTED
    assert scene.stopped() == [old]


def test_containers_that_were_not_asked_for_outvote_none(scene: Scene) -> None:
    """That they are well does not say that what is down is no outage."""
    scene.volume(OTHER)
    scene.start("main", OLD)
    scene.start("web", NEW, OTHER)
    module = scene.repair(accept_majority=False)
    assert f"1 of the node's 1 containers with FUSE mounts of {UID} look" in module.reasons
    assert scene.stopped() == []


def test_a_hung_one_is_named_and_left_alone(scene: Scene) -> None:
    scene.start("main", OLD)
    scene.node.answers[OLD] = Answer(HUNG, "listing", text="no answer")
    module = scene.repair()
    assert module.verdicts == {f"{UID}/main": "refuse"}
    assert "abort it on the node first" in module.reasons
    assert scene.stopped() == []


@pytest.mark.parametrize("missing", ["root", "namespace"])
def test_what_is_not_the_nodes_view_is_no_evidence(
    scene: Scene,
    missing: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_host: FuseNode) -> None:
        raise StorageOpsError("run it as root")

    scene.start("main", OLD)
    if missing == "root":
        monkeypatch.setattr(FuseNode, "require_root", refuse)
    else:
        scene.node.process(30, "python3", namespace="30")
        (scene.node.root / "proc/self").unlink()
        (scene.node.root / "proc/self").symlink_to("30")
    module = scene.repair()
    assert module.failed
    assert "run it as root" in module.result["msg"] or "the node's" in module.result["msg"]
    assert scene.node.commands == []


def test_a_run_stays_with_the_containers_that_were_given(scene: Scene) -> None:
    """Neither another pod's, nor another container of the pod, whatever is wrong with it."""
    scene.volume(OTHER)
    main = scene.start("main", OLD)
    scene.start("side", OLD)
    scene.start("main", OLD, OTHER)
    module = scene.repair()
    assert list(module.verdicts) == [f"{UID}/main"]
    assert scene.stopped() == [main]


def test_one_that_was_given_by_a_link_only_is_told(scene: Scene) -> None:
    """Its mounts have other paths, so which one is meant is not known; it is dead all the same."""
    scene.start("main", OLD)
    module = scene.repair({"container": "main", "mount_path": "/var/run/data"})
    assert module.verdicts == {f"{UID}/main": "refuse"}
    assert "the given paths (/var/run/data)" in module.reasons
    assert scene.stopped() == []


def test_without_any_given_all_are_looked_at(scene: Scene) -> None:
    """And none is ended, since it is not known whether it would come back."""
    scene.volume(OTHER)
    scene.start("main", OLD)
    scene.start("web", OLD, OTHER)
    module = scene.repair(containers=[])
    assert module.verdicts == {f"{UID}/main": "refuse", f"{OTHER}/web": "refuse"}
    assert "its restart policy is not known" in module.reasons
    assert scene.stopped() == []


def test_a_container_that_ends_while_it_is_looked_at_is_passed_over(scene: Scene) -> None:
    main = scene.start("main", OLD)
    scene.start("side", NEW)
    scene.node.at("read /proc/20/mountinfo", lambda: scene.node.end(scene.pids[main]))
    module = scene.repair()
    assert not module.failed, module.result["msg"]
    assert module.result["findings"] == []
    assert "1 container with FUSE mounts, none of them" in module.result["msg"]


def test_a_container_that_cannot_be_read_is_not_well(scene: Scene) -> None:
    scene.start("main", OLD)
    (scene.node.root / "proc/20/mountinfo").unlink()
    module = scene.repair()
    assert not module.failed
    assert list(module.verdicts.values()) == ["report"]
    assert "/proc/20/mountinfo cannot be read" in module.reasons


def test_the_nodes_mount_is_looked_at_at_the_volumes_own_path(scene: Scene) -> None:
    """Not there, not answering, or reached over a link: the container would get no better one."""
    scene.start("main", OLD)
    (there,) = scene.node.layers(path_of(UID))
    scene.node.mounts.remove(there)
    assert "no FUSE file system is mounted at" in scene.repair().reasons
    scene.node.add(replace(there, device="0:61"))
    scene.node.answers["0:61"] = Answer(DEAD)
    assert "does not answer either (dead)" in scene.repair().reasons
    scene.node.answers["0:61"] = Answer(ERROR)
    folder = scene.node.root / path_of(UID)[1:]
    folder.parent.rename(folder.parent.parent / "away")
    folder.parent.symlink_to("away")
    assert "it is a link, or no folder" in scene.repair().reasons
    assert scene.stopped() == []


def test_a_container_that_is_well_again_is_not_ended(scene: Scene) -> None:
    """It is read again right before, and so is the node's mount."""
    scene.start("main", OLD)
    looks: list[str] = []

    def well_at_the_second_look(line: str) -> None:
        looks.extend([line] if line == "read /proc/20/mountinfo" else [])
        if len(looks) == 2:
            scene.node.answers.clear()

    scene.node.steps.append(well_at_the_second_look)
    module = scene.repair()
    assert "was not started: its mounts answer now" in module.reasons
    assert scene.stopped() == []


def test_no_container_is_ended_that_the_run_would_not_see_start(scene: Scene) -> None:
    scene.start("main", OLD)
    module = scene.repair(stop_timeout=100_000)
    assert "the deadline leaves no time to see it started again" in module.reasons
    assert scene.stopped() == []


def test_a_runtime_that_does_not_end_it_is_told(scene: Scene) -> None:
    scene.start("main", OLD)
    scene.node.said[STOP] = CommandResult(("crictl",), 1, "", "context deadline exceeded", 0.0)
    module = scene.repair()
    assert module.failed
    assert module.result["msg"].count("context deadline exceeded") == 1
    assert module.outcomes == [("stop_container", "failed")]


def test_one_that_ends_after_the_runtime_gave_up_has_ended(scene: Scene) -> None:
    old = scene.start("main", OLD)
    scene.node.said[STOP] = CommandResult(("crictl",), 1, "", "failed to kill container", 0.0)
    scene.node.at(STOP, lambda: scene.restart(old))
    module = scene.repair()
    assert not module.failed, module.result["msg"]
    assert module.outcomes == RESTARTED


PROBED = {"container": "main", "probe": True}


def test_a_kubelet_that_restarts_it_in_time_is_enough(scene: Scene) -> None:
    old = scene.start("main", OLD)
    scene.node.at("wait", lambda: scene.restart(old))
    module = scene.repair(PROBED)
    assert not module.failed, module.result["msg"]
    assert module.outcomes == [("await_liveness_probe", "done")]
    assert scene.stopped() == []


def test_of_two_that_wait_the_one_that_stays_is_ended(scene: Scene) -> None:
    """As its own repair's second step."""
    scene.volume(OTHER)
    first, second = scene.start("main", OLD), scene.start("web", OLD, OTHER)
    scene.node.at("wait", lambda: scene.restart(first))

    def another() -> None:
        scene.comes = ("web", NEW, OTHER)

    scene.node.at(STOP, another)
    module = scene.repair(PROBED, {**PROBED, "pod": OTHER, "container": "web"})
    assert not module.failed, module.result["msg"]
    steps = [
        [action["action"] for action in module.result["actions"]],
        [action["target"] for action in module.result["actions"]],
    ]
    assert steps == [
        ["await_liveness_probe", "await_liveness_probe", "stop_container"],
        [f"{UID}/main", f"{OTHER}/web", f"{OTHER}/web"],
    ]
    assert scene.stopped() == [second]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"method": "probe"}, "although its liveness probe covers the mount"),
        ({"crictl": "/no/such/crictl"}, "and the runtime cannot be asked: /no/such/crictl"),
    ],
)
def test_a_kubelet_that_does_nothing_is_told_where_nothing_else_may_be_done(
    scene: Scene,
    given: dict[str, Any],
    said: str,
) -> None:
    scene.start("main", OLD)
    module = scene.repair({**PROBED, "host_path": path_of(UID)}, **given)
    assert module.failed
    assert said in module.result["msg"]
    assert module.outcomes == [("await_liveness_probe", "failed")]
    assert scene.stopped() == []


@pytest.mark.parametrize(
    ("comes", "doubt"),
    [
        (None, "the kubelet has not started it again"),
        (("main", NEW, OTHER), "the kubelet has not started it again"),
        (("side", NEW, UID), "the kubelet has not started it again"),
        (("main", OLD, UID), "/data in it is dead: not connected"),
        (("main", "0:70", UID), f"/data in it is on 0:70, and the node has {NEW} there"),
    ],
)
def test_what_is_no_proof_of_a_restart(
    scene: Scene,
    comes: tuple[str, str, str] | None,
    doubt: str,
) -> None:
    scene.start("main", OLD)
    scene.comes = comes
    module = scene.repair()
    assert module.failed
    assert "is not proven within 1 s (restart_timeout): " in module.result["msg"]
    (finding,) = module.result["findings"]
    assert finding["reason"].count(doubt) == module.result["msg"].count(doubt) == 1
    # Nor is its name: all that is said of it follows it.
    assert module.result["msg"].count(f"{UID}/main") == 1
    assert module.outcomes == RESTARTED


def test_one_that_the_runtime_says_it_ended_may_still_run(scene: Scene) -> None:
    old = scene.start("main", OLD)
    scene.node.restarts = lambda _container: scene.start("main", NEW)
    module = scene.repair()
    assert module.failed
    assert "the old one has not ended" in module.result["msg"]
    assert scene.stopped() == [old]


def test_where_the_node_has_lost_its_mount_nothing_is_proven(scene: Scene) -> None:
    """What the container has is then none of the node's."""
    scene.start("main", OLD)
    (there,) = scene.node.layers(path_of(UID))
    scene.node.at(STOP, lambda: scene.node.mounts.remove(there))
    module = scene.repair()
    assert module.failed
    assert "and the node has nothing there" in module.result["msg"]


def test_a_proof_has_all_of_its_dead_mounts(scene: Scene) -> None:
    """One that is well in the new container says nothing of the other."""
    old = scene.start("main", OLD)
    second = path_of(UID).replace("pv-1", "pv-2")
    scene.node.add(mount(90, second, "0:61"))
    volumes = scene.node.inspected[old]["mounts"]
    volumes.append({"containerPath": "/more", "hostPath": second})
    add_mount(scene, old, mount(3, "/more", OLD))
    more = {"container": "main", "mount_path": "/more"}
    module = scene.repair({"container": "main"}, more)
    assert module.failed
    assert "/more in it is on" in module.result["msg"]


def add_mount(scene: Scene, identity: str, one: Any) -> None:
    """In a container that runs."""
    file = scene.node.root / f"proc/{scene.pids[identity]}/mountinfo"
    line = f"{one.id} 1 {one.device} / {one.point} rw - fuse.s3fs s3fs rw"
    file.write_text(f"{file.read_text()}\n{line}")


def test_a_proof_may_take_a_while(scene: Scene) -> None:
    """The kubelet may start a container several times before all is well."""
    scene.start("main", OLD)
    scene.comes = ("main", OLD, UID)

    def started_again() -> None:
        scene.comes = ("main", NEW, UID)
        scene.restart(f"{21:064x}")

    scene.node.at("wait", started_again)
    module = scene.repair(restart_timeout=120)
    assert not module.failed, module.result["msg"]


def test_without_the_runtime_another_container_of_the_pod_proves_nothing(scene: Scene) -> None:
    """One that was there before is not the new one, though it may have the same mounts."""
    old = scene.start("main", OLD)
    side = scene.start("side", NEW)
    entries = [
        {**PROBED, "id": old, "host_path": path_of(UID)},
        {"container": "side", "id": side, "host_path": path_of(UID)},
    ]
    scene.comes = None
    scene.node.at("wait", lambda: scene.restart(old))
    module = scene.repair(*entries, crictl="/no/such/crictl")
    assert module.outcomes == [("await_liveness_probe", "done")]
    assert module.failed
    assert "the kubelet has not started it again" in module.result["msg"]


def test_a_container_that_does_not_come_back_ends_no_others_restart(scene: Scene) -> None:
    """As where the tag of its image was deleted: the kubelet cannot start it again."""
    scene.volume(OTHER)
    evil, shop = scene.start("main", OLD), scene.start("main", OLD, OTHER)
    scene.node.restarts = lambda one: (
        scene.restart(one) if one == shop else scene.node.end(scene.pids[one])
    )
    scene.comes = ("main", NEW, OTHER)
    entries = [{"container": "main"}, {"container": "main", "pod": OTHER}]
    module = scene.repair(*entries)
    assert module.failed
    assert scene.stopped() == [evil, shop]
    assert [finding["verdict"] for finding in module.result["findings"]] == ["refuse", "repair"]
    assert len(module.result["undone"]) == 1


@pytest.mark.parametrize("when", ["look", "proof"])
def test_a_look_that_fails_ends_no_others_restart(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Right before the restart, or at its proof."""
    scene.volume(OTHER)
    first, second = scene.start("main", OLD), scene.start("main", OLD, OTHER)

    def restart(one: str) -> None:
        scene.comes = ("main", NEW, OTHER if one == second else UID)
        scene.restart(one)

    scene.node.restarts = restart
    name = "_still_stale" if when == "look" else "_compare"
    real = getattr(StaleContainers, name)

    def fails(runbook: StaleContainers, container: Any) -> Any:
        if container.pod == UID:
            raise StorageOpsError("the mounts were different each of 10 times")
        return real(runbook, container)

    monkeypatch.setattr(StaleContainers, name, fails)
    module = scene.repair({"container": "main"}, {"container": "main", "pod": OTHER})
    assert module.failed and "half_made" not in module.result, module.result["msg"]
    assert "were different each of 10 times" in module.result["msg"]
    assert scene.stopped() == ([second] if when == "look" else [first, second])
    assert [finding["verdict"] for finding in module.result["findings"]] == ["refuse", "repair"]
    outcome = module.result["findings"][0]["repair"][0]["outcome"]
    assert outcome == ("skipped" if when == "look" else "done")


def test_without_the_runtime_one_new_container_proves_one_restart(scene: Scene) -> None:
    """Of two that have ended, which one has come back is not known."""
    first, second = scene.start("main", OLD), scene.start("side", OLD)
    plain = {**PROBED, "host_path": path_of(UID)}
    entries = [{**plain, "id": first}, {**plain, "container": "side", "id": second}]

    def ended() -> None:
        scene.restart(first)
        scene.node.end(scene.pids[second])

    scene.node.at("wait", ended)
    module = scene.repair(*entries, crictl="/no/such/crictl")
    assert module.failed
    assert f"{UID}/side: its restart is not proven" in module.result["msg"]


def test_pods_that_must_be_restarted_are_handed_on(scene: Scene) -> None:
    scene.start("main", OLD)
    module = scene.repair({"container": "main", "restart_policy": "Never", "claim": "data"})
    assert [(pod["uid"], pod["claims"]) for pod in module.result["pods"]] == [(UID, ["data"])]
    assert scene.stopped() == []
