# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is done to dead mounts, what is read right before it, what a failure leaves, and what proves
a repair.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    CommandResult,
    Deadline,
    Reply,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    Action,
    ActionFailed,
    Finding,
    NotStarted,
    Plan,
    Prevented,
    run,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts import (
    caches,
    gathering,
    records,
    stacks,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts import (
    runbook as fuse,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts.limits import Limits
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts.model import (
    PRIVATE,
    FuseOptions,
    FusePod,
    FuseState,
    FuseVolume,
    Recovery,
    Step,
    Target,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import (
    probes,
    threads,
    unmount,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.kubelet import (
    absent_points,
    digest_of,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.mounts import (
    CONNECTIONS,
    Mount,
    MountTable,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.namespaces import (
    Namespaces,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.probes import (
    DEAD,
    ERROR,
    HUNG,
    OK,
    Answer,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.renewed import (
    NOTES,
    Renewed,
    identity,
    read_renewed,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.fuse_node import (
    FuseNode,
    mount,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.fuse_volumes import (
    DIGEST,
    DRIVER,
    HANDLE,
    POD_FOLDER,
    PUBLISH,
    PV,
    STAGE_FOLDER,
    STAGING,
    SUBPATH,
    UID,
    VOLUME,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.storage_node import (
    Module,
)

POINTS = (STAGING, PUBLISH, SUBPATH)
OLD, NEW = "0:50", "0:60"
GONE = Answer(DEAD, "statvfs", "ENOTCONN", "Transport endpoint is not connected")
STUCK = Answer(HUNG, "listing", text="no answer within 5.0 s", left=99)
REPLACED = [("mount", "done"), *[("replace_mount", "done")] * 3, ("clean_up", "done")]
UNDONE = [("mount", "failed"), *[("replace_mount", "skipped")] * 3, ("clean_up", "skipped")]
UNDONE += [("stop_service", "done")]


class Killed(BaseException):
    """As by SIGKILL: nothing is taken back."""


class _Watched(fuse.FuseRecovery):
    """Something happens after the plan, and before the proof."""

    meanwhile: Callable[[], object]
    late: Callable[[], object]

    def plan(self, state: FuseState) -> Plan:
        plan = super().plan(state)
        self.meanwhile()
        return plan

    def verify(self, finding: Finding) -> list[str]:
        self.late()
        return super().verify(finding)


class Scene:
    """A volume with three mounts, of which the server is gone."""

    def __init__(self, node: FuseNode) -> None:
        self.node = node
        note = {"driverName": DRIVER, "volumeHandle": HANDLE}
        node.put(f"{STAGE_FOLDER[1:]}/vol_data.json", json.dumps(note))
        node.put(f"{POD_FOLDER[1:]}/vol_data.json", json.dumps({**note, "specVolID": PV}))
        for one in (mount(10, STAGING), mount(11, PUBLISH), mount(12, SUBPATH, root="/sub")):
            node.add(one)
        node.answers[OLD] = GONE

    def repair(
        self,
        meanwhile: Callable[[], object] = bool,
        late: Callable[[], object] = bool,
        **given: Any,
    ) -> Module:
        """Run fuse_remount, as the module does.

        ``meanwhile``: called after the plan; ``late``: before the proof.
        """
        module = Module()
        options = {"volumes": (VOLUME,), "accept_majority": True, **given}
        runbook = _Watched(self.node, FuseOptions(**options))
        runbook.meanwhile, runbook.late = meanwhile, late
        try:
            run(module, lambda: runbook, False)
        except SystemExit:
            assert module.failed
        return module

    def kill(self, begins: str) -> None:
        """A run that is killed right before this."""

        def die() -> None:
            raise Killed

        self.node.at(begins, die)
        with pytest.raises(Killed):
            self.repair()

    def devices(self) -> list[list[str]]:
        return self.node.devices(*POINTS)

    def top(self, point: str) -> Mount:
        return self.node.layers(point)[-1]

    def ran(self, begins: str) -> list[str]:
        return [line for line in self.node.commands if line.startswith(begins)]

    def left(self) -> list[str]:
        """The folders of repairs."""
        return self.node.names(PRIVATE)

    def renewed(self) -> frozenset[Renewed]:
        """What is noted of pods' new mounts."""
        return read_renewed(self.node)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(FuseNode(tmp_path, monkeypatch))


UNTOUCHED, RENEWED = [[OLD]] * 3, [[NEW]] * 3


def test_only_a_run_that_acts_tidies_up_caches(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only while it has the lock."""
    tidied: list[bool] = []
    runbook: list[fuse.FuseRecovery] = []
    monkeypatch.setattr(caches, "tidy", lambda _host: tidied.append(runbook[0]._lock >= 0))

    def repair(check_mode: bool) -> None:
        options = FuseOptions(volumes=(VOLUME,), accept_majority=True)
        runbook[:] = [fuse.FuseRecovery(scene.node, options)]
        module = Module()
        module.check_mode = check_mode
        run(module, lambda: runbook[0], False)

    repair(True)
    assert tidied == [] and scene.devices() == UNTOUCHED
    repair(False)
    assert tidied == [True] and scene.devices() == RENEWED
    # Nothing is left to repair.
    repair(False)
    assert tidied == [True]


def test_a_new_mount_takes_the_place_of_the_dead_ones(scene: Scene) -> None:
    module = scene.repair()
    assert not module.failed, module.result["msg"]
    assert module.outcomes == REPLACED
    assert scene.devices() == RENEWED
    assert [scene.top(point).root for point in POINTS] == ["/", "/", "/sub"]
    # Its server is the one that was started, and lives on without a trace of the repair.
    assert (len(scene.node.units), scene.left(), scene.ran("systemctl stop")) == (1, [], [])
    # All of them have a limit together, before one starts.
    limit = "systemctl set-property --runtime storage_ops-fuse.slice MemoryMax=2048M"
    begun = [
        line for line in scene.node.commands if line.startswith(("systemctl set", "systemd-run"))
    ]
    assert begun[0] == limit and " --slice=storage_ops-fuse.slice " in begun[1] and len(begun) == 2
    (finding,) = module.result["findings"]
    wanted = [f"{point} can be listed, and is of the new filesystem {NEW}" for point in POINTS]
    assert finding["evidence"]["proof"] == wanted
    assert [line for line in scene.node.calls if "lazy" not in line and "umount" in line] == []


def test_where_all_answer_nothing_else_is_looked_at(scene: Scene) -> None:
    scene.node.answers.clear()
    module = scene.repair()
    assert (module.result["findings"], module.result["stale"]) == ([], [])
    assert scene.node.commands == scene.left() == []
    assert "1 FUSE mounts below /var/lib/kubelet, and all of them answer" in module.result["msg"]


def test_a_machine_without_a_kubelet_has_no_such_mounts(scene: Scene) -> None:
    kubelet = scene.node.root / "var/lib/kubelet"
    kubelet.rename(kubelet.parent / "away")
    module = scene.repair()
    assert module.result["findings"] == []
    assert "there is no /var/lib/kubelet, and so no FUSE mount" in module.result["msg"]


@pytest.mark.parametrize("missing", ["root", "namespace"])
def test_what_is_not_the_nodes_view_is_no_evidence(
    scene: Scene,
    missing: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_host: FuseNode) -> None:
        raise StorageOpsError("not the node's: no root")

    if missing == "root":
        monkeypatch.setattr(FuseNode, "require_root", refuse)
    else:
        scene.node.process(30, "python3", namespace="30")
        (scene.node.root / "proc/self").unlink()
        (scene.node.root / "proc/self").symlink_to("30")
    module = scene.repair()
    assert module.failed and "not the node's" in module.result["msg"]
    assert scene.devices() == UNTOUCHED


def test_a_run_that_has_read_nothing_names_no_container(scene: Scene) -> None:
    assert fuse.FuseRecovery(scene.node, FuseOptions()).facts() == {}


def test_only_where_the_kubelet_unstages_it_gets_the_time(scene: Scene) -> None:
    """Else less is enough."""
    staged = replace(TARGET, kind="staging", point=STAGING, take=(mount(10, STAGING),))
    options = FuseOptions(strategy="kubelet", unstage_timeout=100_000)
    runbook = fuse.FuseRecovery(scene.node, options)
    runbook._root = "/var/lib/kubelet"
    recovery = Recovery("abc", "/name", (OLD,), (staged, TARGET), pods=(UID,))
    with pytest.raises(NotStarted, match="less than 100010 s"):
        runbook.apply(Action("unmount", PUBLISH, [], Step(recovery, TARGET)))
    only = replace(recovery, targets=(TARGET,))
    runbook.apply(Action("unmount", PUBLISH, [], Step(only, TARGET)))
    forgotten = replace(recovery, pods=())
    runbook.apply(Action("unmount", STAGING, [], Step(forgotten, staged)))
    assert scene.devices() == [[], [], [OLD]]


def test_a_point_with_a_link_on_its_way_is_left_alone(scene: Scene) -> None:
    """Who may write there could lead the repair elsewhere."""
    folder = scene.node.root / POD_FOLDER[1:]
    folder.rename(folder.parent / "away")
    folder.symlink_to("away")
    module = scene.repair()
    assert "it is a link, or no folder" in module.reasons
    assert (scene.node.commands, scene.devices()) == ([], UNTOUCHED)


# right before


def other_on_top(scene: Scene) -> None:
    scene.node.add(mount(77, STAGING, "0:77"))


def gone(scene: Scene) -> None:
    scene.node.mounts.remove(scene.top(PUBLISH))


def same_number(scene: Scene) -> None:
    one = scene.top(PUBLISH)
    scene.node.mounts[scene.node.mounts.index(one)] = replace(one, device="0:77")


def another_beneath(scene: Scene) -> None:
    one = scene.top(PUBLISH)
    scene.node.mounts.remove(one)
    scene.node.add(mount(77, PUBLISH, "0:77"))
    scene.node.add(one)


def well_again(scene: Scene) -> None:
    scene.node.answers[OLD] = Answer(OK)


def slow(scene: Scene) -> None:
    scene.node.answers[OLD] = Answer(ERROR, "statvfs", "EIO", "Input/output error")


@pytest.mark.parametrize(
    ("meanwhile", "reason"),
    [
        (other_on_top, f"other mounts are at {STAGING} than were planned for"),
        (gone, f"other mounts are at {PUBLISH} than were planned for"),
        (same_number, f"other mounts are at {PUBLISH} than were planned for"),
        (another_beneath, f"other mounts are at {PUBLISH} than were planned for"),
        (well_again, f"{SUBPATH} answers now: ok"),
        (slow, f"{SUBPATH} answers now: Input/output error"),
    ],
)
def test_nothing_is_begun_where_the_mounts_have_changed(
    scene: Scene,
    meanwhile: Callable[[Scene], None],
    reason: str,
) -> None:
    module = scene.repair(meanwhile=lambda: meanwhile(scene))
    assert f"mount was not started: {reason}" in module.reasons
    assert (scene.node.commands, scene.node.calls, scene.left()) == ([], [], [])


def test_dead_layers_on_each_other_go_together(scene: Scene) -> None:
    scene.node.answers["0:51"] = GONE
    scene.node.add(mount(20, PUBLISH, "0:51"))
    module = scene.repair()
    assert not module.failed, module.result["msg"]
    assert scene.devices() == RENEWED


def test_a_repair_that_lacks_the_time_for_its_end_is_not_begun(scene: Scene) -> None:
    """A mount that may come up, three looks, and as many replacements as there are points."""
    module = scene.repair(remount_timeout=100_000)
    assert module.failed
    assert "less than 100029 s are left of the deadline" in module.result["msg"]
    assert module.outcomes[0] == ("mount", "skipped")
    assert (scene.node.commands, scene.left(), scene.devices()) == ([], [], UNTOUCHED)


@pytest.mark.parametrize(("seconds", "prevented"), [(54.0, True), (57.0, False)])
def test_who_has_many_mount_points_does_not_end_the_turns_of_others(
    scene: Scene, seconds: float, prevented: bool
) -> None:
    """A pod with 52 subPaths of a dead volume needed more time than there ever is, and each run
    ended there. Only if there is no time for a single one it ends.
    """
    scene.node.deadline = Deadline(seconds, lambda: 0.0)
    module = scene.repair()
    assert module.failed is prevented
    said = module.result["msg"] if prevented else module.reasons
    assert "less than 59 s are left of the deadline" in said
    assert (scene.node.commands, scene.left(), scene.devices()) == ([], [], UNTOUCHED)


TARGET = Target(PUBLISH, "publish", (mount(11, PUBLISH),), "/", ("nosuid",), 0)


@pytest.mark.parametrize("verb", ["replace_mount", "adopt_mount", "unmount", "wait_unstaged"])
def test_each_step_needs_time_of_its_own(scene: Scene, verb: str) -> None:
    """Half of a replacement leaves a pod without its volume."""
    scene.node.deadline = Deadline(0)
    runbook = fuse.FuseRecovery(scene.node, FuseOptions())
    step = Step(Recovery("abc", "/name", (OLD,), (TARGET,), ready=STAGING), TARGET)
    with pytest.raises(Prevented, match="are left of the deadline"):
        runbook.apply(Action(verb, PUBLISH, [], step))
    assert (scene.node.calls, scene.devices()) == ([], UNTOUCHED)


# a new mount that is none


def fails(**result: Any) -> Callable[[Scene], None]:
    given: dict[str, Any] = {"rc": None, "stdout": "", "stderr": "", "seconds": 0.0, **result}

    def prepare(scene: Scene) -> None:
        scene.node.said["systemd-run"] = CommandResult(("systemd-run",), **given)

    return prepare


def unlimited(scene: Scene) -> None:
    failed = CommandResult(("systemctl",), 1, "", "Access denied\n", 0.0)
    scene.node.said["systemctl set-property"] = failed
    # It is not even started.
    scene.node.at("systemd-run", lambda: pytest.fail("without a limit"))


def makes(**made: Any) -> Callable[[Scene], None]:
    def prepare(scene: Scene) -> None:
        scene.node.made = {"device": NEW, **made}

    return prepare


def nothing(scene: Scene) -> None:
    scene.node.made = None


def ends_at_once(scene: Scene) -> None:
    scene.node.made = None
    scene.node.at("wait", scene.node.units.clear)


def answers_badly(scene: Scene) -> None:
    scene.node.answers[NEW] = Answer(ERROR, "listing", "EACCES", "Permission denied")


def lacks_the_folder(scene: Scene) -> None:
    scene.node.folders = ()


def has_a_link_for_it(scene: Scene) -> None:
    scene.node.folders = ("other",)

    def link(line: str) -> None:
        for folder in (scene.node.root / PRIVATE[1:]).glob("*/mount"):
            if line.startswith("wait"):
                (folder / "sub").symlink_to("other")

    scene.node.steps.append(link)


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (
            unlimited,
            "the memory of the mounts' programs could not be limited: Access denied",
        ),
        (fails(rc=1, stderr="Unit exists"), "no FUSE mount came up: Unit exists"),
        (fails(problem="not installed"), "no FUSE mount came up: not installed"),
        (nothing, "no FUSE mount came up within 30 s"),
        (ends_at_once, "no FUSE mount came up within 30 s"),
        (makes(fstype="tmpfs"), "no FUSE mount came up within 30 s"),
        (answers_badly, "the new mount cannot be listed: Permission denied"),
        (makes(fstype="fuse.other"), "the new mount is a fuse.other, not fuse.s3fs"),
        (makes(super_options=("rw",)), "the new mount lacks allow_other"),
        (makes(device=OLD), "the new mount cannot be listed"),
        (lacks_the_folder, "a subPath cannot be mounted from the new mount"),
        (has_a_link_for_it, "a subPath cannot be mounted from the new mount"),
    ],
)
def test_a_new_mount_that_is_none_is_taken_back(
    scene: Scene,
    prepare: Callable[[Scene], None],
    said: str,
) -> None:
    """Before any dead one is touched; its server goes, its folder, and its secret."""
    prepare(scene)
    module = scene.repair()
    assert module.failed
    assert said in module.result["msg"]
    assert module.outcomes == UNDONE
    # That is the end of this object's repair, not of the run.
    assert module.result.get("undone") == [STAGING], module.result["msg"]
    assert (scene.devices(), scene.node.units, scene.left()) == (UNTOUCHED, set(), [])


def test_the_node_of_these_tests_answers_as_a_real_one(scene: Scene) -> None:
    """A stand-in said of a folder that is not there that it is well."""
    paths = ["/var/lib/kubelet", f"{PRIVATE}/none/mount"]
    real = probes.probe_folders(scene.node, paths, 5)
    assert [answer.error for answer in real] == ["", "ENOENT"]
    assert scene.node.probe(paths) == real


def test_a_server_that_hangs_at_look_ups_takes_little_time_of_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant's Secret names the server, which may answer the listing and nothing else: 100
    subPaths took 120 s, which nothing had reserved, and the next volume had no turn.
    """
    folders = [f"f{number}" for number in range(70)]
    scene.node.folders = ("sub", *folders)
    for number, name in enumerate(folders):
        scene.node.add(mount(20 + number, f"{SUBPATH[:-1]}{number + 1}", root=f"/{name}"))
    asked: list[tuple[int, float, bool]] = []

    def hangs(
        _looking: Any, items: list[tuple[str, str]], timeout: float, budget: float
    ) -> list[Reply]:
        assert items[0][0].startswith(PRIVATE)
        # Three rounds, of 32 at most.
        asked.append((len(items), timeout, budget <= 5 + 3 * 5))
        slow = answering < len(asked)
        return [Reply(problem="no answer" if slow else "", value="") for _item in items]

    monkeypatch.setattr(unmount, "call_each", hangs)
    answering = 1
    module = scene.repair(probe_timeout=5)
    assert "a subPath cannot be mounted from the new mount: no answer" in module.result["msg"]
    assert asked == [(32, 5, True)] * 2 and scene.node.devices(*POINTS) == UNTOUCHED
    asked, answering = [], 3
    assert scene.repair(probe_timeout=5).outcomes[-1] == ("clean_up", "done")
    assert asked == [(32, 5, True), (32, 5, True), (7, 5, True)]


def test_a_mount_that_lists_although_its_program_says_nothing(scene: Scene) -> None:
    """systemd-run waits as long as a program that forks does, and that may be the mount's life."""
    fails(problem="no answer within 30.0 s, abandoned as pid 7", timed_out=True)(scene)

    def start(line: str) -> None:
        if line.startswith("systemd-run"):
            scene.node._command(line.split())

    scene.node.steps.append(start)
    assert scene.repair().outcomes == REPLACED


@pytest.mark.parametrize(
    ("prepare", "over"),
    [(bool, True), (nothing, False), (ends_at_once, True)],
)
def test_a_mount_is_waited_for_as_long_as_its_program_runs(
    scene: Scene,
    prepare: Callable[[Scene], object],
    over: bool,
) -> None:
    prepare(scene)
    scene.repair()
    assert scene.node.waits == [over]


def test_what_the_program_said_last_is_told(scene: Scene) -> None:
    scene.node.made = None
    said = "first\n  second  \n\n"
    scene.node.said["journalctl"] = CommandResult(("journalctl",), 0, said, "", 0.0)
    assert ".service: first | second)" in scene.repair().result["msg"]
    scene.node.said["journalctl"] = CommandResult(("journalctl",), 1, said, "", 0.0)
    assert "first" not in scene.repair().result["msg"]


def test_a_secret_is_masked_before_what_has_it_is_cut(scene: Scene) -> None:
    """Of one at the cut, the other half was shown."""
    scene.node.made = None
    said = f"key s3cr3t-key {'x' * 593}"
    scene.node.said["journalctl"] = CommandResult(("journalctl",), 0, said, "", 0.0)
    message = scene.repair().result["msg"]
    assert "xxx)" in message and "-key" not in message


@pytest.mark.parametrize("blanks", ["  ", "\u2003"])
def test_a_secret_is_masked_before_blanks_are_joined(scene: Scene, blanks: str) -> None:
    secret = f"correct{blanks}horse"
    fails(rc=1, stderr=f"cannot log in with {secret}")(scene)
    volume = replace(
        VOLUME, command=("my-mount", "{source}", "{target}"), credentials={"file": secret}
    )
    message = scene.repair(volumes=(volume,)).result["msg"]
    assert "no FUSE mount came up: cannot log in with ********" in message


@pytest.mark.parametrize("prepare", [bool, nothing])
def test_a_secret_is_there_only_while_the_program_starts(
    scene: Scene,
    prepare: Callable[[Scene], object],
) -> None:
    prepare(scene)
    seen: list[tuple[str, int]] = []

    def look(line: str) -> None:
        if line.startswith("systemd-run"):
            (file,) = (scene.node.root / PRIVATE[1:]).glob("*/credentials")
            seen.append((file.read_text(), file.stat().st_mode & 0o777))
        # Right after it, before anything else may go wrong.
        elif line.startswith("umount"):
            assert list((scene.node.root / PRIVATE[1:]).glob("*/credentials")) == []

    scene.node.steps.append(look)
    scene.repair()
    assert seen == [("AKIDEXAMPLE:s3cr3t-key\n", 0o600)]
    assert scene.left() == []


def test_a_volume_without_a_secret_has_no_file_of_one(scene: Scene) -> None:
    """By a program of the user's own, too, which is looked for like any other."""
    command = ("my-mount", "{source}", "{target}")
    files: list[Path] = []

    def look(line: str) -> None:
        if line.startswith("systemd-run"):
            files.extend((scene.node.root / PRIVATE[1:]).glob("*/credentials"))

    scene.node.steps.append(look)
    module = scene.repair(volumes=(replace(VOLUME, command=command, credentials={}),))
    assert (module.outcomes, files) == (REPLACED, [])


# what a failure leaves


def refuse(scene: Scene, begins: str) -> None:
    """The kernel does not do this."""

    def refusing() -> None:
        raise ActionFailed("no memory")

    scene.node.at(begins, refusing)


def test_a_point_that_was_emptied_gets_the_new_mount(scene: Scene) -> None:
    """What was begun cannot be taken back: the dead mount is gone."""
    refuse(scene, "bind")
    module = scene.repair()
    assert module.failed
    assert module.outcomes == [
        ("mount", "done"),
        ("replace_mount", "failed"),
        *[("replace_mount", "skipped")] * 2,
        ("clean_up", "skipped"),
        ("bind_mount", "done"),
    ]
    assert scene.devices() == [[NEW], [OLD], [OLD]]
    # And its server goes on, since there it is in use. Each point is as it was or whole.
    assert len(scene.node.units) == 1
    assert module.result.get("undone") == [STAGING], module.result["msg"]


def test_a_server_that_stops_answering_half_way_does_not_end_the_turns_of_others(
    scene: Scene,
) -> None:
    """A tenant's S3 server that answered twice, and then no more, ended the run of the node; two
    of them that of all nodes.
    """
    scene.node.at("bind", lambda: scene.node.answers.update({NEW: STUCK}))
    module = scene.repair()
    assert module.failed
    assert f"the new mount at {PRIVATE}/{scene.left()[0]}/mount no longer answers" in module.reasons
    assert scene.devices() == [[NEW], [OLD], [OLD]]
    assert module.result.get("undone") == [STAGING], module.result["msg"]
    assert "half_made" not in module.result


def test_where_a_mount_is_there_by_now_none_is_put_on_it(scene: Scene) -> None:
    """As of a kubelet that has staged the volume again."""
    refuse(scene, "bind")

    def staged(line: str) -> None:
        if line.startswith("bind") and not scene.node.layers(STAGING):
            scene.node.add(mount(77, STAGING, "0:77"))

    scene.node.steps.insert(0, staged)
    module = scene.repair()
    assert module.outcomes[-1] == ("bind_mount", "done")
    assert scene.devices() == [["0:77"], [OLD], [OLD]]


def test_a_point_that_kept_its_dead_mount_is_left_as_it_is(scene: Scene) -> None:
    refuse(scene, "umount")
    module = scene.repair()
    assert module.failed
    assert scene.devices() == UNTOUCHED
    assert [line for line in scene.node.calls if line.startswith("bind")] == []
    # What is left of it is told, and the next run uses it.
    (key,) = scene.left()
    (finding,) = module.result["findings"]
    assert finding["evidence"]["left"] == [f"{PRIVATE}/{key} is still there"]
    assert module.result.get("undone") == [STAGING], module.result["msg"]
    assert ("stop_service", "done") not in module.outcomes
    assert not scene.repair().failed
    assert (scene.devices(), scene.left(), len(scene.node.units)) == (RENEWED, [], 1)


def test_a_later_point_that_fails_leaves_the_earlier_ones_well(scene: Scene) -> None:
    scene.node.at("bind", lambda: scene.node.add(mount(77, PUBLISH, "0:77")))
    module = scene.repair()
    assert module.failed
    assert f"another mount is now at {PUBLISH}" in module.result["msg"]
    # Someone else works there, so nothing more is done on this node.
    assert f"{PUBLISH} is neither as it was nor the new mount" in module.result["msg"]
    assert module.result["half_made"] is True
    assert scene.devices() == [[NEW], [OLD, "0:77"], [OLD]]
    assert ("bind_mount", "done") not in module.outcomes


def test_a_failure_costs_the_next_repair_no_time(scene: Scene) -> None:
    """What takes it back has time of its own, and no more than that."""
    before = scene.node.deadline
    scene.node.made = None
    assert scene.repair().result["undone"] == [STAGING]
    assert scene.node.deadline is before


def test_what_cannot_be_removed_is_told(scene: Scene) -> None:
    def fill(line: str) -> None:
        for folder in (scene.node.root / PRIVATE[1:]).glob("*"):
            if line.startswith("systemd-run"):
                (folder / "mine/file").mkdir(parents=True)

    scene.node.steps.append(fill)
    module = scene.repair()
    assert module.failed
    assert "could not be removed: something in it is in use" in module.result["msg"]
    # That all points have the new mount is well, and nothing to be told as left.
    assert "is the new mount" not in module.result["msg"]
    assert scene.devices() == RENEWED
    assert module.outcomes[-1] == ("clean_up", "failed")


def test_a_folder_that_cannot_be_made_is_told(scene: Scene) -> None:
    scene.node.put(f"{PRIVATE[1:]}", "a file")
    module = scene.repair()
    assert module.failed
    assert "could not be made: " in module.result["msg"]
    assert (scene.ran("systemd-run"), scene.devices()) == ([], UNTOUCHED)


def pod_is_gone(scene: Scene) -> None:
    """The kubelet has unmounted what was of the pod, and removed its folders."""
    for point in (PUBLISH, SUBPATH):
        for layer in scene.node.layers(point):
            scene.node.mounts.remove(layer)
        shutil.rmtree(scene.node.root / point[1:])


@pytest.mark.parametrize("begins", [f"umount {STAGING}", f"umount {PRIVATE}"])
def test_a_pod_that_is_deleted_meanwhile_needs_no_repair(scene: Scene, begins: str) -> None:
    scene.node.at(begins, lambda: pod_is_gone(scene))
    module = scene.repair()
    assert not module.failed, module.result["msg"]
    assert (scene.devices(), scene.left()) == ([[NEW], [], []], [])
    (finding,) = module.result["findings"]
    wanted = [f"{STAGING} can be listed, and is of the new filesystem {NEW}"]
    assert finding["evidence"]["proof"] == [*wanted, f"{SUBPATH} is gone", f"{PUBLISH} is gone"]


def test_a_volume_that_is_unstaged_meanwhile_leaves_nothing(scene: Scene) -> None:
    """All of it is gone, so its new server has nothing to serve."""

    def unstaged() -> None:
        pod_is_gone(scene)
        scene.node.mounts.remove(scene.top(STAGING))
        (scene.node.root / STAGING[1:]).rmdir()

    scene.node.at("wait", unstaged)
    module = scene.repair()
    assert not module.failed, module.result["msg"]
    assert [outcome for _verb, outcome in module.outcomes] == ["done", *["skipped"] * 3, "done"]
    assert (scene.devices(), scene.left(), scene.node.units) == ([[], [], []], [], set())


@pytest.mark.parametrize("begins", ["bind", f"umount {PUBLISH}"])
def test_a_failure_counts_no_point_that_is_gone(scene: Scene, begins: str) -> None:
    """Also not the one that was just emptied: nothing is mounted there any more, nor is that a
    failure.
    """

    def failing() -> None:
        pod_is_gone(scene)
        scene.node.mounts.remove(scene.top(STAGING)) if scene.node.layers(STAGING) else None
        shutil.rmtree(scene.node.root / STAGING[1:])
        raise ActionFailed("no memory")

    scene.node.at(begins, failing)
    module = scene.repair()
    assert (module.failed, module.result["undone"]) == (True, [STAGING])
    assert "half_made" not in module.result and "could not be undone" not in module.result["msg"]


def test_a_point_that_another_has_emptied_is_not_half_made(scene: Scene) -> None:
    """The kubelet is about to remove it."""
    module = scene.repair(late=lambda: emptied(scene))
    assert module.failed and f"{PUBLISH} has no new mount" in module.result["msg"], module.result
    assert module.result.get("undone") == [STAGING], module.result["msg"]


def test_a_point_that_is_emptied_right_before_is_not_half_made(scene: Scene) -> None:
    """By another hand, so nothing was done there."""
    scene.node.at(f"umount {PUBLISH}", lambda: emptied(scene))
    module = scene.repair()
    assert module.failed and "another mount is there now, or none" in module.result["msg"]
    assert scene.devices() == [[NEW], [], [OLD]]
    assert module.result.get("undone") == [STAGING], module.result["msg"]


def unread(*_asked: object, **_more: object) -> Any:
    raise StorageOpsError("the processes of this node could not be read")


def test_a_proof_that_cannot_be_read_is_not_half_made(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant's process can prevent it. The mounts are whole, and that is read."""
    module = scene.repair(late=lambda: monkeypatch.setattr(fuse, "read_processes", unread))
    assert module.failed and "half_made" not in module.result, module.result["msg"]
    assert module.result["undone"] == [STAGING]
    (finding,) = module.result["findings"]
    assert (finding["verdict"], finding["code"]) == ("refuse", "repair_unproven")
    assert "is not proven: the processes of this node could not be read" in finding["reason"]
    assert scene.devices() == RENEWED


def test_a_proof_without_any_time_is_not_half_made(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever runs a server can have each question last. What is left is read all the same."""
    left: list[float] = []
    real = fuse.FuseRecovery._gone

    def asking(runbook: fuse.FuseRecovery, *words: Any) -> set[str]:
        left.append(scene.node.deadline.remaining())
        return real(runbook, *words)

    def late() -> None:
        scene.node.deadline._end = 0.0
        monkeypatch.setattr(fuse, "read_processes", unread)
        monkeypatch.setattr(fuse.FuseRecovery, "_gone", asking)

    monkeypatch.setattr(scene.node, "deadline", Deadline(1000.0))
    module = scene.repair(late=late)
    assert module.failed and "half_made" not in module.result, module.result["msg"]
    assert left[-1] > 1.0


@pytest.mark.parametrize("strategy", ["remount", "kubelet"])
def test_a_look_before_any_change_is_not_half_made(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    looks = "read_table" if strategy == "remount" else "running_processes"

    def meanwhile() -> None:
        monkeypatch.setattr(fuse, looks, unread)

    # Whose pods are gone, as the strategy kubelet needs.
    volumes = (replace(VOLUME, pods=(POD,)),)
    module = scene.repair(meanwhile, strategy=strategy, volumes=volumes)
    assert module.failed and "half_made" not in module.result, module.result["msg"]
    assert "could not be read" in module.result["msg"]
    assert module.result["undone"] == [STAGING] and module.result["changed"] is False
    assert scene.devices() == UNTOUCHED


def test_a_folder_that_no_note_explains_ends_the_run(scene: Scene) -> None:
    module = scene.repair(late=lambda: kept(scene))
    assert module.failed and "is still there" in module.result["msg"]
    assert module.result["half_made"] is True


def test_a_point_that_this_run_has_emptied_ends_it(scene: Scene) -> None:
    """Its pod writes to the node's disk until someone looks."""
    for _twice in range(2):
        refuse(scene, f"bind {PRIVATE}")
    module = scene.repair()
    assert module.failed and module.result["half_made"] is True
    assert "Nothing after it was done" in module.result["msg"]
    assert scene.devices() == [[], [OLD], [OLD]]


def test_without_systemd_a_program_that_says_no_is_the_volumes_own_failure(scene: Scene) -> None:
    """Whatever it did it may still run, which ended the run for all others."""
    (scene.node.root / "run/systemd/system").rmdir()
    command = ("my-mount", "{source}", "{target}")
    module = scene.repair(volumes=(replace(VOLUME, command=command, credentials={}),))
    assert module.failed and "no FUSE mount came up" in module.result["msg"]
    assert module.result.get("undone") == [STAGING], module.result["msg"]
    (finding,) = module.result["findings"]
    assert "its new program may still run" in finding["evidence"]["left"][0]


@pytest.mark.parametrize("said", ["", "systemctl stop", "systemctl show"])
def test_a_new_program_that_may_still_run_ends_the_run(scene: Scene, said: str) -> None:
    """It cannot be stopped, or systemd does not answer."""
    scene.node.made = None
    code = 0 if said == "systemctl stop" else 1
    answer = CommandResult(("systemctl",), code, "", "", 0.0)
    scene.node.said.update({said: answer} if said else {})
    running = bool(said)
    module = scene.repair()
    assert ("its new program may still run" in module.result["msg"]) is running
    assert ("half_made" in module.result) is running


# what proves a repair


def comes_back(scene: Scene) -> None:
    """The same mount, by its number."""
    scene.node.add(mount(11, PUBLISH))


def errs(scene: Scene) -> None:
    scene.node.answers[NEW] = Answer(ERROR, "statvfs", "EIO", "Input/output error")


def covered(scene: Scene) -> None:
    scene.node.add(mount(77, PUBLISH, "0:77", fstype="tmpfs"))


def emptied(scene: Scene) -> None:
    scene.node.mounts.remove(scene.top(PUBLISH))


def dead_again(scene: Scene) -> None:
    emptied(scene)
    scene.node.add(mount(77, PUBLISH, OLD))


def changed(**changes: Any) -> Callable[[Scene], None]:
    def change(scene: Scene) -> None:
        one = scene.top(PUBLISH)
        scene.node.mounts[scene.node.mounts.index(one)] = replace(one, **changes)

    return change


def stacked(scene: Scene) -> None:
    scene.node.add(replace(scene.top(PUBLISH), id=77))


def kept(scene: Scene) -> None:
    (command,) = scene.ran("systemd-run")
    scene.node.put(f"{PRIVATE[1:]}/{command.split('fuse-')[1][:12]}/x", "")


@pytest.mark.parametrize(
    ("late", "doubt"),
    [
        (comes_back, f"the dead mount is still at {PUBLISH}"),
        (errs, f"{PUBLISH} does not answer: Input/output error"),
        (covered, f"{PUBLISH} has no new mount"),
        (emptied, f"{PUBLISH} has no new mount"),
        (dead_again, f"{PUBLISH} has no new mount"),
        (changed(root="/sub"), f"{PUBLISH} is not stacked as before, or shows another folder"),
        (stacked, f"{PUBLISH} is not stacked as before, or shows another folder"),
        (changed(options=("rw",)), f"{PUBLISH} is not mounted nosuid"),
        (changed(device="0:61"), "its mounts are of different filesystems: 0:60, 0:61"),
        (kept, "is still there"),
    ],
)
def test_what_contradicts_a_repair_is_no_proof(
    scene: Scene,
    late: Callable[[Scene], None],
    doubt: str,
) -> None:
    module = scene.repair(late=lambda: late(scene))
    assert module.failed
    assert f"the repair of {STAGING} is not proven" in module.result["msg"]
    assert doubt in module.result["msg"]
    assert set(module.outcomes) == set(REPLACED)


def test_where_the_dead_filesystem_is_left_is_told(scene: Scene) -> None:
    """Outside of the kubelet's folder it is none of ours, and the node is not clean of it."""
    scene.node.add(mount(30, "/srv/copy", root="/sub"))
    (finding,) = scene.repair().result["findings"]
    assert "the dead filesystem is still mounted at /srv/copy" in finding["evidence"]["proof"]


def test_containers_that_keep_the_dead_mount_are_handed_on(scene: Scene) -> None:
    """As they are after the repair: one that has ended meanwhile is none of them."""
    for pid in (20, 21):
        scene.node.container(pid, f"{pid:064x}", UID, mount(5, "/data", OLD))
    module = scene.repair(late=lambda: scene.node.end(20))
    stale = [(entry["pid"], entry["pod"], entry["device"]) for entry in module.result["stale"]]
    assert stale == [(21, UID, OLD)]
    (finding,) = module.result["findings"]
    waiting = f"still seen by {21:064x} at /data, until that is restarted"
    assert waiting in finding["evidence"]["proof"]


# read-only and the like


def read_only(scene: Scene) -> None:
    """The pod's own mount was."""
    one = scene.top(PUBLISH)
    scene.node.mounts[scene.node.mounts.index(one)] = replace(one, options=("ro", "nosuid"))


def test_a_mount_that_was_read_only_is_so_again(scene: Scene) -> None:
    """Its flags are not those of the filesystem, so they are taken from a bind that has them."""
    read_only(scene)
    module = scene.repair()
    assert not module.failed, module.result["msg"]
    assert scene.devices() == RENEWED
    assert ["ro" in scene.top(point).options for point in POINTS] == [False, True, False]
    assert len(scene.ran("mount --bind -o ro ")) == 1
    assert scene.left() == []


def test_a_subpath_that_was_read_only_shows_its_own_folder(scene: Scene) -> None:
    one = scene.top(SUBPATH)
    scene.node.mounts[scene.node.mounts.index(one)] = replace(one, options=("ro", "nosuid"))
    module = scene.repair()
    assert not module.failed, module.result["msg"]
    assert ("ro" in scene.top(SUBPATH).options, scene.top(SUBPATH).root) == (True, "/sub")


def test_flags_that_the_kernel_does_not_give_stop_the_repair(scene: Scene) -> None:
    """Else a pod could write what it may only read."""
    read_only(scene)
    scene.node.said["mount --bind"] = CommandResult(("mount",), 32, "", "no memory", 0.0)
    module = scene.repair()
    assert module.failed
    assert "no memory" in module.result["msg"]
    assert scene.devices() == [[NEW], [OLD], [OLD]]
    # Nor does it help that mount(8) says it is done.
    scene.node.said["mount --bind"] = CommandResult(("mount",), 0, "", "", 0.0)
    assert scene.repair().failed
    assert scene.devices() == [[NEW], [OLD], [OLD]]


@pytest.mark.parametrize(("device", "flag"), [(NEW, "rw"), ("0:61", "ro")])
def test_a_bind_that_a_killed_run_left_is_used_only_if_it_is_whole(
    scene: Scene,
    device: str,
    flag: str,
) -> None:
    """mount(8) makes it in two steps; and it may be of a mount before this one."""
    read_only(scene)

    def leave() -> None:
        (key,) = scene.left()
        folder = f"{PRIVATE}/{key}/ro"
        scene.node.add(mount(78, folder, device, options=(flag, "nosuid")))

    scene.node.at(f"umount {STAGING}", leave)
    module = scene.repair()
    assert not module.failed, module.result["msg"]
    assert (scene.devices(), "ro" in scene.top(PUBLISH).options) == (RENEWED, True)
    assert scene.left() == []


# interrupted runs


def test_a_run_that_was_killed_is_finished_by_the_next(scene: Scene) -> None:
    """With the mount that it made, which others may use by now; the empty point comes first."""
    scene.kill("bind")
    assert scene.devices() == [[], [OLD], [OLD]]
    # Of which volume it is, is noted: the paths may be another's by then.
    (left,) = records.read_unfinished(scene.node)
    assert left.handles == ((DRIVER, HANDLE),)
    module = scene.repair()
    assert not module.failed, module.result["msg"]
    assert scene.devices() == RENEWED
    assert (len(scene.ran("systemd-run")), len(scene.node.units), scene.left()) == (1, 1, [])
    assert scene.ran("systemctl stop") == []


def test_an_empty_point_with_a_link_on_its_way_gets_no_mount(scene: Scene) -> None:
    scene.kill("bind")
    folder = scene.node.root / STAGE_FOLDER[1:]
    folder.rename(folder.parent / "away")
    folder.symlink_to("away")
    module = scene.repair()
    assert "it is a link, or no folder" in module.reasons
    assert scene.devices() == [[], [OLD], [OLD]]


def test_a_point_that_got_another_mount_meanwhile_keeps_it(scene: Scene) -> None:
    scene.kill("bind")
    module = scene.repair(meanwhile=lambda: scene.node.add(mount(77, STAGING, "0:77")))
    assert f"other mounts are at {STAGING} than were planned for" in module.reasons
    assert scene.devices() == [["0:77"], [OLD], [OLD]]


def test_a_point_that_is_gone_by_now_gets_none(scene: Scene) -> None:
    """The kubelet has removed the pod."""
    scene.kill(f"bind {PRIVATE}")
    scene.node.mounts.remove(scene.top(PUBLISH))
    scene.node.mounts.remove(scene.top(SUBPATH))
    for point in (PUBLISH, SUBPATH):
        (scene.node.root / point[1:]).rmdir()
    module = scene.repair()
    assert not module.failed, module.result["msg"]
    assert scene.devices() == [[NEW], [], []]


def test_a_new_mount_that_is_not_in_use_yet_is_made_again(scene: Scene) -> None:
    """In the same unit, so that must be stopped first: its program may be the reason."""
    scene.kill("wait")
    (unit,) = scene.node.units
    scene.node.commands.clear()
    module = scene.repair()
    assert not module.failed, module.result["msg"]
    first, _limit, second = scene.node.commands[:3]
    assert first == f"systemctl stop {unit}"
    assert second.startswith("systemd-run") and unit in second
    assert (scene.devices(), scene.left(), scene.node.units) == (RENEWED, [], {unit})


def test_without_systemd_no_service_is_stopped(scene: Scene) -> None:
    scene.kill("wait")
    (scene.node.root / "run/systemd/system").rmdir()
    scene.node.answers.clear()
    assert scene.repair().outcomes == [("clean_up", "done")]
    assert (scene.ran("systemctl stop"), scene.left()) == ([], [])


def test_what_was_not_tidied_up_is(scene: Scene) -> None:
    """Its service serves the repaired mounts by now."""
    scene.kill(f"umount {PRIVATE}")
    assert scene.devices() == RENEWED
    module = scene.repair()
    assert not module.failed, module.result["msg"]
    assert module.outcomes == [("clean_up", "done")]
    assert (scene.devices(), scene.left(), len(scene.node.units)) == (RENEWED, [], 1)
    (finding,) = module.result["findings"]
    assert "is gone" in finding["evidence"]["proof"][0]


def test_a_new_mount_whose_server_dies_before_it_is_used(scene: Scene) -> None:
    """It is asked like any other, and is none that the rest could get."""
    scene.kill("bind")
    (unit,) = scene.node.units
    scene.node.answers[NEW] = GONE
    scene.node.made = {"device": "0:61"}
    module = scene.repair()
    assert not module.failed, module.result["msg"]
    assert scene.devices() == [["0:61"]] * 3
    # In the unit of what was begun, mounts that are in use may live.
    assert unit in scene.node.units and len(scene.node.units) == 2
    assert scene.left() == []


def test_what_is_left_without_a_mount_is_not_asked(scene: Scene) -> None:
    """Its folder is one of the node's own, and answers for that."""
    scene.kill("systemd-run")
    asked: list[str] = []
    probe = scene.node.probe

    def probing(paths: Any) -> list[Answer]:
        asked.extend(paths)
        return probe(paths)

    scene.node.probe = probing  # type: ignore[method-assign]
    scene.node.answers.clear()
    module = scene.repair()
    assert not module.failed, module.result["msg"]
    assert [path for path in asked if path.startswith(PRIVATE)] == []


# a mount that is there already


def staged_again(scene: Scene, **changes: Any) -> None:
    """The driver has renewed its own mount, as for a new pod."""
    scene.node.mounts.remove(scene.top(STAGING))
    scene.node.add(replace(mount(40, STAGING, NEW), **changes))
    (scene.node.root / STAGING[1:] / "sub").mkdir()


ADOPTED = [("adopt_mount", "done"), *[("replace_mount", "done")] * 2, ("clean_up", "done")]


def test_what_the_driver_has_mounted_again_is_used(scene: Scene) -> None:
    staged_again(scene)
    module = scene.repair()
    assert not module.failed, module.result["msg"]
    assert module.outcomes == ADOPTED
    assert (scene.devices(), scene.ran("systemd-run"), scene.left()) == (RENEWED, [], [])


def test_what_a_pod_got_is_noted(scene: Scene) -> None:
    """Of whoever made it: the driver may stage the volume once more."""
    module = scene.repair()
    assert not module.failed, module.result["msg"]
    assert scene.renewed() == {identity(scene.top(PUBLISH))}
    assert os.stat(scene.node.path(NOTES)).st_mode & 0o777 == 0o600
    # It dies, too, and by then the driver has a mount of its own.
    scene.node.answers[NEW] = GONE
    staged_again(scene, device="0:70")
    module = scene.repair()
    assert not module.failed, module.result["msg"]
    assert scene.devices() == [["0:70"]] * 3 and scene.renewed() == {identity(scene.top(PUBLISH))}


def test_what_is_gone_is_noted_no_longer(scene: Scene) -> None:
    gone, stays = mount(29, "/gone", NEW), mount(30, f"{PUBLISH}2", "0:51")
    scene.node.add(stays)
    scene.node.put(NOTES[1:], json.dumps([identity(gone), identity(stays)]))
    scene.repair()
    assert scene.renewed() == {identity(stays), identity(scene.top(PUBLISH))}


@pytest.mark.parametrize("text", ["", "[", "{}", "5", "[[1]]", '[["a", "b", "c", "d", []]]'])
def test_a_note_that_was_damaged_is_none(scene: Scene, text: str) -> None:
    scene.node.put(NOTES[1:], text)
    assert scene.renewed() == frozenset()
    scene.repair()
    assert scene.renewed() == {identity(scene.top(PUBLISH))}


def test_a_pod_that_has_the_new_mount_is_noted_though_the_run_is_killed(scene: Scene) -> None:
    scene.kill(f"umount {SUBPATH}")
    assert scene.devices() == [[NEW], [NEW], [OLD]]
    assert scene.renewed() == {identity(scene.top(PUBLISH))}


def test_a_note_that_cannot_be_written_stops_the_repair(scene: Scene) -> None:
    (scene.node.root / f"{NOTES[1:]}.new").mkdir(parents=True)
    (scene.node.root / f"{NOTES[1:]}.new/file").touch()
    module = scene.repair()
    assert module.failed and f"{NOTES} could not be written" in module.reasons
    # The staging mount comes first, and no pod is without a mount.
    assert scene.devices() == [[NEW], [OLD], [OLD]]


def renewed_is(**changes: Any) -> Callable[[Scene], None]:
    def change(scene: Scene) -> None:
        one = scene.top(STAGING)
        scene.node.mounts[scene.node.mounts.index(one)] = replace(one, **changes)

    return change


@pytest.mark.parametrize("handle", [HANDLE, "another"])
def test_the_old_staging_folder_counts_by_the_note_in_it(scene: Scene, handle: str) -> None:
    """The note is read although the mount answers."""
    old = f"/var/lib/kubelet/plugins/kubernetes.io/csi/pv/{PV}"
    note = {"driverName": DRIVER, "volumeHandle": handle}
    scene.node.mounts.remove(scene.top(STAGING))
    scene.node.put(f"{old[1:]}/vol_data.json", json.dumps(note))
    scene.node.add(mount(40, f"{old}/globalmount", NEW))
    (scene.node.root / old[1:] / "globalmount/sub").mkdir()
    module = scene.repair()
    assert not module.failed, module.result["msg"]
    assert (module.outcomes == ADOPTED) == (handle == HANDLE)


def test_the_notes_of_what_an_interrupted_run_emptied_are_read() -> None:
    """No dead mount is there any more, and the path alone does not tell which volume it was."""
    paths = gathering._note_paths("/var/lib/kubelet", [PUBLISH, SUBPATH], {})
    assert paths == [f"{POD_FOLDER}/vol_data.json"]


def test_the_note_of_a_staging_mount_is_read_wherever_it_is_listed() -> None:
    """It says whether the mount may replace a dead one."""
    root, old = "/var/lib/kubelet", f"/var/lib/kubelet/plugins/kubernetes.io/csi/pv/{PV}"
    mounts = (mount(40, PUBLISH, NEW), mount(41, f"{old}/globalmount", NEW))
    table = MountTable([replace(mount(1, "/", "8:1"), parent=0), *mounts])
    paths = gathering._note_paths(root, [], stacks.superblocks(table, root))
    assert paths == [f"{old}/vol_data.json", f"{POD_FOLDER}/vol_data.json"]


def taken_away(scene: Scene) -> None:
    scene.node.mounts.remove(scene.top(STAGING))


@pytest.mark.parametrize(
    ("meanwhile", "reason"),
    [
        (taken_away, f"the new mount at {STAGING} is gone"),
        (renewed_is(fstype="ext4"), f"the new mount at {STAGING} is gone"),
        (renewed_is(device=OLD), f"the new mount at {STAGING} is gone"),
        (errs, f"the new mount at {STAGING} no longer answers: Input/output error"),
        (renewed_is(super_options=("rw",)), "the new mount lacks allow_other"),
        (well_again, f"{SUBPATH} answers now"),
    ],
)
def test_a_mount_that_is_no_longer_what_it_was_is_not_used(
    scene: Scene,
    meanwhile: Callable[[Scene], None],
    reason: str,
) -> None:
    staged_again(scene)
    module = scene.repair(meanwhile=lambda: meanwhile(scene))
    assert f"adopt_mount was not started: {reason}" in module.reasons
    assert (scene.node.calls, scene.left()) == ([], [])


def test_what_is_used_is_read_only_where_the_pods_own_mount_was(scene: Scene) -> None:
    """The bind that it is taken from lies in a folder of the repair's own, also here."""
    read_only(scene)
    staged_again(scene)
    module = scene.repair()
    assert not module.failed, module.result["msg"]
    assert [("ro" in scene.top(point).options) for point in POINTS] == [False, True, False]
    assert (scene.devices(), scene.left()) == (RENEWED, [])


def test_a_mount_without_the_folder_of_a_subpath_is_not_used(scene: Scene) -> None:
    staged_again(scene)
    (scene.node.root / STAGING[1:] / "sub").rmdir()
    module = scene.repair()
    assert module.failed
    assert "a subPath cannot be mounted from the new mount" in module.result["msg"]
    assert module.outcomes[0] == ("adopt_mount", "failed")
    # What was noted goes; the driver's own mount is none of ours.
    assert module.outcomes[-1] == ("clean_up", "done")
    assert (scene.devices(), scene.left()) == ([[NEW], [OLD], [OLD]], [])


def test_what_was_begun_is_still_noted_if_it_fails_again(scene: Scene) -> None:
    """Without the note, the next run would not know of the empty point."""
    scene.kill("bind")
    (key,) = scene.left()
    (scene.node.root / PRIVATE[1:] / key / "mount/sub").rmdir()
    module = scene.repair()
    assert module.failed
    assert "a subPath cannot be mounted from the new mount" in module.result["msg"]
    assert scene.left() == [key]
    assert records.note_of(scene.node, key)["begun"] is True


# servers that hang

ABORT = f"{CONNECTIONS}/50/abort"


def hang(scene: Scene, fusectl: bool = True) -> None:
    scene.node.answers[OLD] = STUCK
    if fusectl:
        scene.node.put(ABORT[1:], "")
        scene.node.put(f"{CONNECTIONS[1:]}/50/waiting", "3\n")


def test_the_connection_of_a_server_that_hangs_is_cut(scene: Scene) -> None:
    hang(scene)
    module = scene.repair(abort_hung_connections=True)
    assert not module.failed, module.result["msg"]
    assert module.outcomes == [REPLACED[0], ("abort_connection", "done"), *REPLACED[1:]]
    assert scene.node.read(ABORT) == "1"
    (finding,) = module.result["findings"]
    assert finding["evidence"]["connections"] == {OLD: "connection 50: 3 requests wait"}
    assert scene.ran("mount -t fusectl") == []


def test_fusectl_is_mounted_where_it_is_not(scene: Scene) -> None:
    hang(scene, fusectl=False)
    scene.node.at("mount -t fusectl", lambda: scene.node.put(ABORT[1:], ""))
    module = scene.repair(abort_hung_connections=True)
    assert not module.failed, module.result["msg"]
    assert scene.ran("mount -t fusectl") == [f"mount -t fusectl fusectl {CONNECTIONS}"]
    (finding,) = module.result["findings"]
    assert finding["evidence"]["connections"] == {OLD: "connection 50: fusectl is not mounted"}


def test_a_connection_that_is_gone_is_told(scene: Scene) -> None:
    """Where fusectl is mounted, to mount it again would not bring it back."""
    hang(scene, fusectl=False)
    scene.node.add(mount(60, CONNECTIONS, "0:44", fstype="fusectl"))
    module = scene.repair(abort_hung_connections=True)
    assert module.failed
    assert "No such file or directory" in module.result["msg"]
    assert scene.ran("mount -t fusectl") == []


def not_mounted(scene: Scene) -> None:
    (scene.node.root / ABORT[1:]).unlink()
    (scene.node.root / CONNECTIONS[1:] / "50/waiting").unlink()
    (scene.node.root / CONNECTIONS[1:] / "50").rmdir()
    scene.node.said["mount -t"] = CommandResult(("mount",), 32, "", "no fusectl", 0.0)


def no_connection(scene: Scene) -> None:
    (scene.node.root / ABORT[1:]).unlink()
    (scene.node.root / ABORT[1:]).mkdir()


@pytest.mark.parametrize(
    ("prepare", "said", "cut"),
    [
        (lambda scene: scene.node.deaf.add(OLD), "it still hangs after its connection was", True),
        (not_mounted, "no fusectl", True),
        (no_connection, "Is a directory", True),
        (well_again, "does not hang at a second look: ok", False),
        (slow, "does not hang at a second look: Input/output error", False),
    ],
)
def test_a_connection_that_is_not_cut_keeps_its_mounts(
    scene: Scene,
    prepare: Callable[[Scene], None],
    said: str,
    cut: bool,
) -> None:
    """What was not written is lost with it, so one that answers by now is never cut."""
    hang(scene)
    scene.node.at("wait", lambda: prepare(scene))
    module = scene.repair(abort_hung_connections=True)
    assert module.failed
    assert said in module.result["msg"]
    (finding,) = module.result["findings"]
    told = "the connection to its server was aborted" in finding["evidence"].get("left", ())
    assert (told, module.result["undone"]) == (cut, [STAGING])
    assert (scene.devices(), scene.left(), scene.node.units) == (UNTOUCHED, [], set())
    assert cut or scene.node.read(ABORT) == ""
    # What is taken back is the mount that was made, once.
    assert module.outcomes[6:] == [("stop_service", "done")]


@pytest.mark.parametrize(
    "changes",
    [{"id": 77}, {"device": "0:77"}, {"root": "/x"}, {"fstype": "fuse.x"}, {"source": "x"}],
)
def test_a_connection_is_cut_only_if_its_mount_is_this_one(
    scene: Scene, changes: dict[str, Any]
) -> None:
    """Its device is another tenant's by now, and what hangs at the point has its number."""
    hang(scene)
    scene.node.answers["0:77"] = STUCK
    layer = scene.top(PUBLISH)
    for one in list(scene.node.mounts)[1:]:
        scene.node.mounts.remove(one)
    runbook = fuse.FuseRecovery(scene.node, FuseOptions(abort_hung_connections=True))
    runbook._root = "/var/lib/kubelet"
    target = Target(PUBLISH, "publish", (layer,), "/", ("nosuid",), 0)
    command = ["write", ABORT, "1"]
    action = Action(
        "abort_connection", OLD, command, Step(Recovery("abc", "/n", (OLD,), (target,)))
    )
    scene.node.add(replace(layer, **changes))
    with pytest.raises(NotStarted, match="it is no longer mounted there"):
        runbook.apply(action)
    # Or it comes right after the look at the mounts.
    scene.node.mounts.pop()
    scene.node.add(layer)
    real = fuse.read_table

    def reading(*words: Any) -> MountTable:
        table = real(*words)
        scene.node.mounts[-1] = replace(layer, **changes)
        return table

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fuse, "read_table", reading)
        with pytest.raises(NotStarted, match="another mount is there now"):
            runbook.apply(action)
    assert scene.node.read(ABORT) == ""
    scene.node.mounts[-1] = layer
    runbook.apply(action)
    assert scene.node.read(ABORT) == "1"


# runs beside each other

HOLDING = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print(flush=True)
sys.stdin.read()
"""


def test_two_runs_do_not_repair_at_the_same_time(scene: Scene) -> None:
    """One unmounted what the other had just made, and that bound a folder of the node's memory in
    place of the volume.
    """
    scene.node.put(records.LOCK[1:], "")
    command = [sys.executable, "-c", HOLDING, scene.node.path(records.LOCK)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout and other.stdout.readline() == b"\n"
        module = scene.repair()
        assert (module.failed, module.result["code"]) == (True, "lease_held")
        assert (module.result["findings"], scene.devices()) == ([], UNTOUCHED)
        # To look is no harm.
        assert fuse.FuseRecovery(scene.node, FuseOptions()).gather().unfinished == ()
        other.communicate()
    module = scene.repair()
    assert not module.failed, module.result["msg"]
    assert module.outcomes == REPLACED


def test_a_child_that_the_kernel_holds_keeps_no_lock(scene: Scene) -> None:
    """It waits for a server that hangs, perhaps for days."""
    runbook = fuse.FuseRecovery(scene.node, FuseOptions())
    runbook.prepare()
    child = os.fork()
    if not child:
        time.sleep(600)
    try:
        runbook.close(failed=True)
        command = [sys.executable, "-c", HOLDING, scene.node.path(records.LOCK)]
        subprocess.run(command, stdin=subprocess.DEVNULL, timeout=60, check=True)
        # Nor is it given back twice.
        runbook.close(failed=False)
        again = fuse.FuseRecovery(scene.node, FuseOptions())
        again.prepare()
        again.close(failed=False)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_lock_that_cannot_be_had_is_told(scene: Scene) -> None:
    scene.node.put("run/storage_ops", "a file")
    module = scene.repair()
    assert (module.failed, module.result["code"]) == (True, "repair_failed")
    assert "fuse.lock cannot be locked: " in module.result["msg"]
    assert scene.devices() == UNTOUCHED


def test_the_mount_that_was_proven_is_the_one_that_is_bound(scene: Scene) -> None:
    """Another one at its place answers as well."""

    def another() -> None:
        (key,) = scene.left()
        new = scene.top(f"{PRIVATE}/{key}/mount")
        scene.node.mounts[scene.node.mounts.index(new)] = replace(new, device="0:61")

    def first_is_done(line: str) -> None:
        if line.startswith("read /proc/1/mountinfo") and len(scene.node.calls) == 2:
            another()

    scene.node.steps.append(first_is_done)
    module = scene.repair()
    assert "is not the one that was proven" in module.reasons
    assert scene.devices() == [[NEW], [OLD], [OLD]]


# below other mounts


def bury(scene: Scene, *devices: str) -> None:
    """Of other filesystems below the dead one, none of which is mounted anywhere else."""
    top = scene.top(PUBLISH)
    scene.node.mounts.remove(top)
    for number, device in enumerate(devices):
        scene.node.add(mount(80 + number, PUBLISH, device))
    scene.node.add(top)


@pytest.mark.parametrize("buried", [("0:51",), ("0:51", "0:52"), ("0:51", "0:52", "0:53")])
def test_what_lies_below_a_dead_mount_is_asked_for_us_alone(
    scene: Scene,
    buried: tuple[str, ...],
) -> None:
    """Where it is dead as well it goes, too; the node's own mounts stay while it is asked."""
    bury(scene, *buried)
    scene.node.answers.update(dict.fromkeys(buried, GONE))
    before = list(scene.node.mounts)
    state = fuse.FuseRecovery(scene.node, FuseOptions()).gather()
    assert {device: state.answers[device].state for device in buried} == dict.fromkeys(buried, DEAD)
    assert scene.node.mounts == before
    assert scene.repair().outcomes == REPLACED
    assert scene.devices() == RENEWED


def test_what_lies_well_below_a_dead_mount_stays(scene: Scene) -> None:
    bury(scene, "0:51")
    state = fuse.FuseRecovery(scene.node, FuseOptions()).gather()
    assert state.answers["0:51"] == Answer(OK)
    assert scene.repair().outcomes == REPLACED
    assert scene.devices() == [[NEW], ["0:51", NEW], [NEW]]


def test_what_cannot_be_asked_below_another_is_not_dead(
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bury(scene, "0:51")
    scene.node.answers["0:51"] = GONE
    table = fuse.read_table(scene.node, "1")
    runbook = fuse.FuseRecovery(scene.node, FuseOptions())
    runbook._root = "/var/lib/kubelet"
    (below, *_rest) = scene.node.layers(PUBLISH)
    assert runbook._ask_below(table, below).state == DEAD
    assert runbook._ask_below(table, mount(99, PUBLISH)).state == ERROR
    monkeypatch.setattr(scene.node, "bounded", lambda *_more: Reply(problem="the probe died"))
    assert runbook._ask_below(table, below) == Answer(ERROR, text="the probe died")


# mount points that are peers


@pytest.mark.parametrize(
    ("comes", "error"),
    [
        ([], ""),
        ([mount(90, PUBLISH, NEW)], ""),
        ([mount(90, PUBLISH, NEW, root="/sub")], "another mount is now at"),
        ([mount(90, PUBLISH, "0:61")], "another mount is now at"),
    ],
)
def test_a_mount_that_came_with_that_of_a_peer_is_kept(
    scene: Scene,
    comes: list[Mount],
    error: str,
) -> None:
    """The dead one went with the peer's; what came in its place must be just the new one."""

    def follow() -> None:
        scene.node.mounts.remove(scene.top(PUBLISH))
        for one in comes:
            scene.node.add(one)

    scene.node.at("bind", follow)
    module = scene.repair()
    assert error in module.result["msg"]
    assert module.failed is bool(error)
    assert scene.devices()[1] == ([comes[0].device] if comes else [NEW])


# left to the kubelet

POD = FusePod(UID, "shop", "web-0", terminating=True)
KUBELET: dict[str, Any] = {
    "strategy": "kubelet",
    "volumes": (replace(VOLUME, pods=(POD,)),),
    "containers_timeout": 20.0,
}
LEFT = [("wait_for_containers", "done"), *[("unmount", "done")] * 2, ("wait_unstaged", "done")]


def runs(scene: Scene, pid: int = 20) -> None:
    scene.node.process(pid, "web", f"kubepods/pod{UID}/{pid:064x}")


def unstage(scene: Scene) -> None:
    scene.node.mounts.remove(scene.top(STAGING))


def wanted_no_more(scene: Scene) -> None:
    """The kubelet has removed the folders of the pod."""
    folder = scene.node.root / POD_FOLDER[1:]
    folder.rename(scene.node.root / "away")


def test_the_dead_mounts_of_a_pod_that_goes_are_taken_off(scene: Scene) -> None:
    runs(scene)
    scene.node.at("wait 20", lambda: scene.node.end(20))
    scene.node.at("wait 60", lambda: unstage(scene))
    module = scene.repair(**KUBELET)
    assert not module.failed, module.result["msg"]
    assert module.outcomes == LEFT, module.result
    assert scene.devices() == [[], [], []]
    # A process may still be inside of what is dead.
    assert scene.node.calls == [f"umount {point} lazy" for point in (PUBLISH, SUBPATH)]
    (finding,) = module.result["findings"]
    assert finding["evidence"]["proof"][0] == f"{STAGING} has no dead mount any more"
    assert scene.node.commands == []


def test_what_the_kubelet_has_unstaged_already_needs_no_time(scene: Scene) -> None:
    scene.node.at(f"umount {SUBPATH}", lambda: unstage(scene))
    module = scene.repair(**KUBELET, unstage_timeout=0)
    assert module.outcomes == LEFT
    assert scene.devices() == [[], [], []]


def test_what_is_unstaged_by_now_is_not_waited_for(scene: Scene) -> None:
    unstage(scene)
    scene.node.deadline = Deadline(0)
    target = Target(STAGING, "staging", (mount(10, STAGING),), "/", ("nosuid",), 0)
    step = Step(Recovery("abc", "/name", (OLD,), (target,)), target)
    runbook = fuse.FuseRecovery(scene.node, FuseOptions())
    runbook.apply(Action("wait_unstaged", STAGING, [], step))
    assert scene.node.calls == []


def test_what_the_kubelet_has_forgotten_is_taken_off(scene: Scene) -> None:
    scene.node.at("wait 60", lambda: wanted_no_more(scene))
    module = scene.repair(**KUBELET)
    assert not module.failed, module.result["msg"]
    assert scene.devices() == [[], [], []]
    assert f"umount {STAGING} lazy" in scene.node.calls


def test_what_the_kubelet_still_wants_is_left_to_it(scene: Scene) -> None:
    """And that it has not come is told; what was taken off of its pod is no half of a repair."""
    module = scene.repair(**KUBELET)
    assert module.failed
    assert f"it still has folders for the pods {UID}" in module.result["msg"]
    assert module.result.get("undone") == [STAGING], module.result["msg"]
    assert scene.devices() == [[OLD], [], []]


@pytest.mark.parametrize("handle", [HANDLE, "another"])
def test_whose_loop_device_it_is_the_kubelets_note_tells(scene: Scene, handle: str) -> None:
    """The folder is named after this volume in any case."""
    for point in (PUBLISH, SUBPATH):
        scene.node.mounts.remove(scene.top(point))
    scene.node.add(mount(30, PUBLISH, "7:3", fstype="ext4", source="/dev/loop3"))
    note = {"driverName": DRIVER, "volumeHandle": handle, "specVolID": PV}
    scene.node.put(f"{POD_FOLDER[1:]}/vol_data.json", json.dumps(note))
    module = scene.repair()
    (finding,) = module.result["findings"]
    if handle == HANDLE:
        assert (finding["verdict"], finding["code"]) == ("refuse", "in_use_held")
        assert (module.outcomes, scene.devices()) == ([], [[OLD], ["7:3"], []])
    else:
        assert not module.failed, module.result["msg"]
        assert scene.devices() == [[NEW], ["7:3"], []]


FORGOTTEN: dict[str, Any] = {"strategy": "kubelet", "volumes": (replace(VOLUME, pods=()),)}


def forget(scene: Scene) -> None:
    """Of the volume only the staging mount is left."""
    for point in (PUBLISH, SUBPATH):
        scene.node.mounts.remove(scene.top(point))
    wanted_no_more(scene)


def test_a_staging_mount_that_no_pod_wants_goes_at_once(scene: Scene) -> None:
    forget(scene)
    module = scene.repair(**FORGOTTEN)
    assert not module.failed, module.result["msg"]
    assert (module.outcomes, scene.devices()) == ([("unmount", "done")], [[], [], []])


def test_a_staging_mount_that_a_new_pod_wants_stays(scene: Scene) -> None:
    """The kubelet makes the folder first; the pod's own mount was one of the node's disk."""
    forget(scene)
    folder = scene.node.root / POD_FOLDER[1:]
    module = scene.repair(meanwhile=lambda: (scene.node.root / "away").rename(folder), **FORGOTTEN)
    (finding,) = module.result["findings"]
    assert (finding["verdict"], finding["code"]) == ("refuse", "pods_wanted")
    assert f"has folders of this volume for the pods {UID} by now" in finding["reason"]
    assert scene.devices() == [[OLD], [], []]


def test_a_staging_mount_that_was_mounted_again_stays(scene: Scene) -> None:
    """It has all the numbers of the dead one, and answers."""
    forget(scene)
    module = scene.repair(meanwhile=lambda: well_again(scene), **FORGOTTEN)
    (finding,) = module.result["findings"]
    assert (finding["verdict"], finding["code"]) == ("refuse", "world_changed")
    assert "it answers now" in finding["reason"]
    assert scene.devices() == [[OLD], [], []]


@pytest.mark.parametrize("number", [10, 40])
def test_what_was_unstaged_and_staged_again_is_unstaged(scene: Scene, number: int) -> None:
    """With the number of the dead mount, or with that of its device alone."""

    def staged() -> None:
        unstage(scene)
        scene.node.add(mount(number, STAGING))
        well_again(scene)

    scene.node.at("wait 60", staged)
    for pid in (20, 21):
        scene.node.container(pid, f"{pid:064x}", UID, mount(5, "/data", OLD))
    scene.node.at("wait 20", lambda: (scene.node.end(20), scene.node.end(21)))
    # Of another tenant, which has the device by then.
    other = "0a1b2c3d-1111-2222-3333-777777777777"

    def late() -> None:
        scene.node.container(22, f"{22:064x}", other, mount(5, "/data", OLD))

    module = scene.repair(late=late, **KUBELET)
    assert not module.failed, module.result["msg"]
    assert module.outcomes == LEFT
    assert scene.devices() == [[OLD], [], []]
    (finding,) = module.result["findings"]
    told = [f"{point} has no dead mount any more" for point in POINTS]
    assert (finding["evidence"]["proof"], module.result["stale"]) == (told, [])


def test_what_lies_below_another_mount_is_not_unstaged(scene: Scene) -> None:
    """The one on it answers, which says nothing of the dead one."""
    runbook = fuse.FuseRecovery(scene.node, FuseOptions())
    target = Target(STAGING, "staging", (mount(10, STAGING),), "/", ("nosuid",), 0)
    assert runbook._left_dead(target, fuse.read_table(scene.node, "1"))
    scene.node.add(mount(77, STAGING, "0:77"))
    assert runbook._left_dead(target, fuse.read_table(scene.node, "1"))
    scene.node.answers[OLD] = Answer(OK)
    assert runbook._left_dead(target, fuse.read_table(scene.node, "1"))
    scene.node.mounts.pop()
    assert not runbook._left_dead(target, fuse.read_table(scene.node, "1"))


def test_a_pod_with_many_mounts_does_not_end_the_turns_of_others(scene: Scene) -> None:
    """One of 1,000 subPaths used up the deadline, and what it had not taken off by then was the
    end of the run.
    """
    for number in range(1, 200):
        point = f"{SUBPATH[:-1]}{number}"
        scene.node.mounts.append(mount(1000 + number, point, root="/sub", parent=1))
    other = replace(VOLUME, volume="pvc-2", handle="bucket-b", pods=())
    folder = STAGE_FOLDER.replace(DIGEST, digest_of("bucket-b"))
    note = {"driverName": DRIVER, "volumeHandle": "bucket-b"}
    scene.node.put(f"{folder[1:]}/vol_data.json", json.dumps(note))
    scene.node.add(mount(70, f"{folder}/globalmount", "0:70"))
    scene.node.answers["0:70"] = GONE
    scene.node.deadline = Deadline(100.0, lambda: 0.0)
    volumes = (replace(VOLUME, pods=(POD,)), other)
    module = scene.repair(strategy="kubelet", volumes=volumes)
    first, second = module.result["findings"]
    assert {first["code"], second["code"]} == {"deadline_passed", ""}
    assert "less than 110.2 s are left of the deadline" in module.reasons
    assert scene.node.calls == [f"umount {folder}/globalmount lazy"]
    # Of as many as there is time for, none is left.
    scene.node.deadline = Deadline(111.0, lambda: 0.0)
    scene.node.at("wait 60", lambda: unstage(scene))
    module = scene.repair(strategy="kubelet", volumes=volumes)
    assert not module.failed, module.result["msg"]
    assert len(scene.node.mounts) == 1


def test_containers_are_not_waited_for_where_there_is_no_time_for_what_follows(
    scene: Scene,
) -> None:
    """The wait would only take the time of others."""
    runs(scene)
    scene.node.deadline = Deadline(69.0, lambda: 0.0)
    module = scene.repair(**KUBELET)
    assert "wait_for_containers was not started: less than 70.4 s are left" in module.reasons
    assert (scene.node.waits, scene.devices()) == ([], UNTOUCHED)


def test_an_abort_waits_for_no_time_that_its_repair_lacks(scene: Scene) -> None:
    """What was not written would be lost for nothing."""
    hang(scene)
    scene.node.deadline = Deadline(69.0, lambda: 0.0)
    module = scene.repair(abort_hung_connections=True, **{**KUBELET, "containers_timeout": 0.0})
    assert "abort_connection was not started: less than 70.4 s are left" in module.reasons
    assert scene.node.read(ABORT) == ""


def test_a_container_that_comes_up_meanwhile_keeps_its_mount(scene: Scene) -> None:
    """Looked at right before each; other processes are none of its pod's."""
    scene.node.process(30, "sshd", "system.slice/ssh.service")
    module = scene.repair(meanwhile=lambda: runs(scene), **{**KUBELET, "containers_timeout": 0.0})
    assert "containers of its pods run: web (pid 20)" in module.reasons
    assert scene.devices() == UNTOUCHED


def test_containers_that_stay_keep_their_mounts(scene: Scene) -> None:
    runs(scene)
    module = scene.repair(**KUBELET)
    assert "containers of its pods still run after 20 s: web (pid 20)" in module.reasons
    assert scene.devices() == UNTOUCHED


def test_a_dead_mount_that_went_with_a_peer_is_no_failure(scene: Scene) -> None:
    scene.node.at(f"umount {PUBLISH}", lambda: scene.node.mounts.remove(scene.top(SUBPATH)))
    scene.node.at("wait 60", lambda: unstage(scene))
    module = scene.repair(**KUBELET)
    assert not module.failed, module.result["msg"]
    assert scene.node.calls == [f"umount {PUBLISH} lazy"]


def test_a_dead_mount_that_came_back_is_no_proof(scene: Scene) -> None:
    scene.node.at("wait 60", lambda: unstage(scene))
    module = scene.repair(late=lambda: comes_back(scene), **KUBELET)
    assert module.failed
    assert f"the dead mount is still at {PUBLISH}" in module.result["msg"]


# what the plan is told


def test_the_limits_of_a_driver_are_read_where_its_mount_is_made(
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of every driver that the notes or the user name."""
    asked: list[set[str]] = []

    def limits(_host: FuseNode, _root: str, drivers: set[str]) -> dict[str, Limits]:
        asked.append(set(drivers))
        return {driver: Limits(256 * 2**20, 64) for driver in drivers}

    monkeypatch.setattr(gathering.driver_limits, "read", limits)
    other = FuseVolume("pvc-9", driver="other.example.com", sources=("b",))
    mine = replace(VOLUME, driver="")
    assert scene.repair(volumes=(mine, other)).outcomes == REPLACED
    assert asked == [{DRIVER, "other.example.com"}]
    (command,) = scene.ran("systemd-run")
    assert "--property=MemoryMax=256M" in command
    fuse.FuseRecovery(scene.node, FuseOptions(strategy="kubelet")).gather()
    assert len(asked) == 1


def test_volumes_of_the_same_driver_that_answer_say_that_it_is_no_outage(scene: Scene) -> None:
    """By the kubelet's notes of them, which are read although nothing is wrong with them."""
    for number in (2, 3):
        folder = POD_FOLDER.replace(PV, f"pvc-{number}")
        note = {"driverName": DRIVER, "volumeHandle": f"b{number}", "specVolID": f"pvc-{number}"}
        scene.node.put(f"{folder[1:]}/vol_data.json", json.dumps(note))
        scene.node.add(mount(70 + number, f"{folder}/mount", f"0:7{number}"))
    mine = replace(VOLUME, endpoint="", options=("url=https://s3",))
    module = scene.repair(accept_majority=False, volumes=(mine,))
    assert module.outcomes == REPLACED


def test_a_mount_of_the_drivers_own_is_told_with_who_may_serve_it(scene: Scene) -> None:
    """It would stay dead; a process that has no FUSE device open serves none."""
    scene.node.mounts.remove(scene.top(STAGING))
    scene.node.add(mount(40, "/var/lib/driver/pv"))
    for pid, opens in ((30, "/dev/fuse"), (31, "/dev/null")):
        scene.node.process(pid, "mount-s3", f"kubepods/pod{UID}/{pid:064x}")
        (scene.node.root / f"proc/{pid}/fd/3").symlink_to(opens)
    module = scene.repair()
    (finding,) = module.result["findings"]
    assert finding["evidence"]["servers"] == [f"mount-s3 (pid 30) of pod {UID}"]
    assert "the driver's own mount at /var/lib/driver/pv" in module.reasons
    assert scene.devices() == [[], [OLD], [OLD]]


def test_an_unread_process_is_told_and_stops_no_other_repair(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 of a tenant that share a table of a million files stopped all FUSE repairs of the node:
    all processes were read in one child, and its deadline was an error.
    """
    scene.node.mounts.remove(scene.top(STAGING))
    scene.node.add(mount(40, "/var/lib/driver/pv"))
    cgroup = f"kubepods/pod{UID}/{30:064x}"
    for pid, space in ((30, "1"), (31, "1"), (32, "32")):
        scene.node.process(pid, "mount-s3", cgroup, space)
        (scene.node.root / f"proc/{pid}/fd/3").symlink_to("/dev/fuse")
    # Another has ended, and one cannot be read.
    (scene.node.root / "proc/33").mkdir()
    (scene.node.root / "proc/31/fd/3").unlink()
    (scene.node.root / "proc/31/fd").rmdir()
    scene.node.put("proc/31/fd", "")
    asked: list[int] = []
    ask = gathering.ask_each

    def asking(host: Any, function: Any, these: list[Any]) -> list[Reply]:
        asked.extend(one.pid for one in these)
        return ask(host, function, these)

    monkeypatch.setattr(gathering, "ask_each", asking)
    module = scene.repair()
    (finding,) = module.result["findings"]
    assert finding["code"] == "driver_mount_broken"
    found, unread = finding["evidence"]["servers"]
    assert found == f"mount-s3 (pid 30) of pod {UID}"
    assert unread.startswith(f"not known of mount-s3 (pid 31) of pod {UID}: ")
    assert "Not a directory" in unread
    # 32 is in a namespace that has not the mount.
    assert {30, 31} <= set(asked) and 32 not in asked
    # Of an unread one it is not said that the server is gone.
    (scene.node.root / "proc/30/fd/3").unlink()
    assert "of no pod, or not known, since open files could not" in scene.repair().reasons


def test_what_could_not_be_read_is_no_answer(
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No folder of a pod is evidence; not to know is none."""
    monkeypatch.setattr(scene.node, "bounded", lambda *_more: Reply(problem="no answer"))
    with pytest.raises(StorageOpsError, match="folders below /k could not be listed"):
        gathering.pod_folders(scene.node, "/k")


def test_only_what_is_not_there_is_absent(scene: Scene, tmp_path: Path) -> None:
    """A dead mount is something, and so is what cannot be told."""
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    long = "x" * 300
    paths = ["/file", "/link", "/gone", "/file/inside", f"/{long}"]
    assert absent_points(scene.node, paths) == ["/gone", "/file/inside"]


def test_processes_of_pods(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    other = "0a1b2c3d-1111-2222-3333-777777777777"
    runs(scene)
    scene.node.process(21, "side", f"kubepods/pod{UID}/{21:064x}")
    scene.node.process(22, "db", f"kubepods/pod{other}/{22:064x}")
    # One that ends meanwhile.
    (scene.node.root / "proc/21/comm").unlink()
    (scene.node.root / "proc/1/cgroup").unlink()
    assert gathering.running_processes(scene.node, [UID]) == ["web (pid 20)", "a process (pid 21)"]
    # One that may be of any pod counts if its mount namespace has the mount.
    for pid, device in ((23, "0:99"), (24, "0:98")):
        scene.node.container(pid, f"{pid:064x}", other, mount(9, "/data", device))
        (scene.node.root / f"proc/{pid}/cgroup").unlink()
        (scene.node.root / f"proc/{pid}/cgroup").symlink_to("x" * 300)
    _web, _side, unknown = gathering.running_processes(scene.node, [UID], ["0:99"])
    assert unknown.startswith("the mount namespace of pid 23 of an unknown pod")
    # What another pod has too many of to read is none of this volume.
    scene.node.container(25, f"{25:064x}", other, mount(9, "/data", "0:98"))
    for task in (25, 26, 27):
        (scene.node.root / f"proc/25/task/{task}").mkdir(parents=True)
    monkeypatch.setattr(threads, "MOST_THREADS", 2)
    assert len(Namespaces(scene.node).unread) == 1
    _web, _side, alone = gathering.running_processes(scene.node, [UID], ["0:99"])
    assert alone == unknown
    # Without pods there is none to wait for.
    assert gathering.running_processes(scene.node, []) == []
