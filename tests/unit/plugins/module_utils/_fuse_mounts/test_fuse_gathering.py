# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of fuse_remount, and what it reads of files; all that mounts takes a real kernel."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

import pytest
from ansible.module_utils import basic

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    Deadline,
    Reply,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    ActionFailed,
    NotStarted,
    Prevented,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts import (
    gathering,
    options,
    records,
    stacks,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts import (
    runbook as fuse,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts.model import (
    FuseOptions,
    FusePod,
    FuseVolume,
    Recovery,
    Step,
    Target,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.mounts import (
    Mount,
    MountTable,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.mountinfo import (
    parse_mountinfo,
)

TARGET = Target("/var/lib/kubelet/p", "publish", (), "/", ("ro",), 7)


def host(root: Path) -> Host:
    return Host(Deadline(60), 10, str(root))


def test_an_audit_has_the_defaults() -> None:
    """And no limit to stay under, since it repairs nothing."""
    found = options.fuse_options({"probe_timeout": 2.0, "kubelet_root": "/k", "maps": []})
    assert found == FuseOptions(probe_timeout=2.0, kubelet_root="/k", max_repairs=1_000_000)


def test_a_tenth_of_the_disk_on_which_a_program_keeps_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder may not be there yet. What does not answer is left out, and so is refused."""
    node = host(tmp_path)
    given = FuseOptions(volumes=(FuseVolume("a", options=("tmpdir=/b/c",)), FuseVolume("d")))
    status = os.statvfs(tmp_path)
    size = status.f_blocks * status.f_frsize // 10 // 2**20
    assert gathering.spare(node, given) == {"/b/c": size, "/tmp": size}
    monkeypatch.setattr(node, "bounded", lambda *_more: Reply(problem="no answer"))
    assert gathering.spare(node, given) == {}


def test_what_the_module_leaves_out_is_what_the_plan_takes_for_granted() -> None:
    """No guard is off unless that is said, and no pod is one that goes."""

    def defaults(spec: dict[str, Any]) -> dict[str, Any]:
        return {name: given["default"] for name, given in spec.items() if "default" in given}

    entries = options.OPTIONS_SPEC.options["volumes"]["options"]
    assert options.fuse_options(defaults(options.OPTIONS_SPEC.options)) == FuseOptions()
    (volume,) = options.fuse_options({"volumes": [{**defaults(entries), "volume": "a"}]}).volumes
    assert volume == FuseVolume("a")
    assert FusePod("u", **defaults(entries["pods"]["options"])) == FusePod("u")
    assert options.OPTIONS_SPEC.options["credentials"]["no_log"] is True
    least = options.fuse_options({"volumes": [{"volume": "a", "memory_max": 64, "tasks_max": 16}]})
    assert (least.volumes[0].memory_max, least.volumes[0].tasks_max) == (64, 16)


def test_volumes_as_ansible_hands_them_over() -> None:
    entry = dict.fromkeys(FuseVolume.__dataclass_fields__)
    entry.update({"volume": "pvc-1", "sources": ["a"], "paths": ["/a/"]})
    entry["pods"] = [{"uid": "u", "namespace": "", "name": "", "terminating": True}]
    del entry["credentials"]
    (volume,) = options.fuse_options(
        {"volumes": [entry], "credentials": {"/a": {"secret_key": 5, "x": None}}}
    ).volumes
    assert volume == FuseVolume(
        "pvc-1",
        paths=("/a",),
        sources=("a",),
        credentials={"secret_key": "5"},
        pods=(FusePod("u", terminating=True),),
    )
    (unknown,) = options.fuse_options({"volumes": [{"handle": "h", "pods": None}]}).volumes
    assert unknown.pods is None


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"probe_timeout": 0.0}, "probe_timeout is 0; give at least 0.1"),
        ({"remount_timeout": float("nan")}, "remount_timeout is nan"),
        ({"max_repairs": -1}, "max_repairs is -1"),
        ({"paths": ["/a", ""]}, "paths has an empty name"),
        ({"volumes": [{"sources": ["a"]}]}, "says neither 'volume' nor 'handle' nor 'paths'"),
        ({"volumes": [{"volume": "a", "memory_max": 0}]}, "memory_max of a is 0; give at least 64"),
        ({"volumes": [{"volume": "a", "tasks_max": 15}]}, "tasks_max of a is 15; give at least 16"),
        (
            {"volumes": [{"volume": "a"}], "credentials": {"b": {}}},
            "^1 of the credentials are of a volume that is not among",
        ),
        (
            {"volumes": [{"volume": "a"}], "credentials": {"secret_key": "s3cr3t"}},
            "^credentials has a part that is not a dictionary",
        ),
        # Its name is what it has them by, so nothing has them by its handle.
        (
            {"volumes": [{"volume": "a", "handle": "h"}], "credentials": {"a": {}, "h": {}}},
            "^1 of the credentials are of a volume that is not among",
        ),
        (
            {"volumes": [{"volume": "a", "credentials_key": "k"}], "credentials": {"a": {}}},
            "^credentials has no 'k', which is the credentials_key of a$",
        ),
    ],
)
def test_options_that_cannot_be(params: dict[str, Any], reason: str) -> None:
    with pytest.raises(StorageOpsError, match=reason):
        options.fuse_options(params)


def test_a_mount_that_several_tenants_have_is_asked_in_the_turn_of_each() -> None:
    """The first may have any number of mounts that hang."""
    pods = [f"0a1b2c3d-1111-2222-3333-44445555666{number}" for number in range(3)]
    points = [f"/var/lib/kubelet/pods/{pod}/volumes/kubernetes.io~csi/v/mount" for pod in pods]
    lines = [
        f"{number + 2} 1 0:{50 + number // 2} / {point} rw - fuse.s3fs s3fs rw"
        for number, point in enumerate(points)
    ]
    table = MountTable(
        parse_mountinfo("\n".join(["1 0 8:1 / / rw - ext4 /dev/sda rw", *lines]), "1")
    )
    found = stacks.superblocks(table, "/var/lib/kubelet")
    namespaces = dict(zip(pods, ("evil", "victim", "evil")))
    staged = f"/var/lib/kubelet/plugins/kubernetes.io/csi/s3.example.com/{'0' * 64}/globalmount"
    asked = {"0:50": points[0], "0:51": points[2], "0:9": "/x", "0:10": staged}
    assert fuse._owners(asked, found, "/var/lib/kubelet", namespaces) == [
        ("evil", "victim"),
        "evil",
        "/x",
        # A tenant may have any number that are staged for no pod, and of pods without a container.
        "?",
    ]
    del namespaces[pods[2]]
    assert fuse._owners(asked, found, "/var/lib/kubelet", namespaces)[1] == "?"
    # The node tells of no pod at all.
    assert fuse._owners(asked, found, "/var/lib/kubelet", {})[1:] == [pods[2], "/x", staged]


MINE, THEIRS = {"secret_key": "mine"}, {"secret_key": "theirs"}


def credentials(volumes: list[dict[str, Any]], given: dict[str, Any]) -> list[Any]:
    """Of each volume what it has, or why nothing."""
    found = options.fuse_options({"volumes": volumes, "credentials": given}).volumes
    return [entry.doubt or dict(entry.credentials) for entry in found]


def test_a_handle_that_is_the_name_of_another_volume() -> None:
    """Tenants choose handles. The run failed for all volumes, or the other one got the keys."""
    volumes = [{"volume": "a", "handle": "a"}, {"volume": "b", "handle": "a"}, {"volume": "c"}]
    other = {"secret_key": "other"}
    assert credentials(volumes, {"a": MINE, "b": THEIRS, "c": other}) == [MINE, THEIRS, other]
    assert credentials(volumes, {"a": MINE, "c": other}) == [MINE, {}, other]
    assert credentials(volumes[::-1], {"a": MINE, "c": other}) == [other, {}, MINE]


def test_credentials_that_may_be_of_several_volumes_are_of_none() -> None:
    """It is the problem of these alone."""
    volumes = [
        {"volume": "a", "driver": "d", "handle": "h"},
        {"volume": "b", "driver": "e", "handle": "h"},
        {"paths": ["/p"], "handle": "x"},
        {"volume": "c"},
    ]
    one, two, three, four = credentials(volumes, {"h": MINE, "/p/": THEIRS, "x": THEIRS, "c": MINE})
    assert (
        one == two == ("credentials has 'h', which may be of several volumes: give credentials_key")
    )
    assert three == "credentials has several for it: give credentials_key"
    assert four == MINE
    # Who has its own by its name asks for no others.
    assert credentials(volumes[:2], {"h": MINE, "b": THEIRS}) == [MINE, THEIRS]


def test_what_is_said_to_be_of_a_volume_is_of_no_other() -> None:
    """Whatever the other is called."""
    volumes = [
        {"handle": "h", "credentials_key": "h"},
        {"volume": "h"},
        {"volume": "b", "handle": "h"},
        {"paths": ["h"]},
    ]
    assert credentials(volumes, {"h": MINE}) == [MINE, {}, {}, {}]


def test_what_is_noted_is_read_again(tmp_path: Path) -> None:
    """By nobody but root; a note that is damaged names no mount point."""
    recovery = Recovery(
        "abc", "/name", ("0:5",), (TARGET,), "fuse.s3fs", "bucket-a", ("allow_other",)
    )
    folder = tmp_path / "run/storage_ops/fuse/abc"
    # Also where another has made it.
    folder.mkdir(parents=True, mode=0o755)
    fuse.FuseRecovery(host(tmp_path), FuseOptions())._record(recovery, begun=True)
    assert (folder.stat().st_mode & 0o777, (folder / "plan.json").stat().st_mode & 0o777) == (
        0o700,
        0o600,
    )
    (folder.parent / "def").mkdir()
    (folder.parent / "def/plan.json").write_text('{"name": ')
    one, damaged = records.read_unfinished(host(tmp_path))
    assert (one.key, one.name, one.devices, one.targets) == ("abc", "/name", ("0:5",), (TARGET,))
    assert (one.fstype, one.origin, one.kept, one.begun) == (
        "fuse.s3fs",
        "bucket-a",
        ("allow_other",),
        True,
    )
    # Whether something lives in the service of a note that cannot be read, nobody knows.
    assert (damaged.key, damaged.targets, damaged.begun) == ("def", (), True)


def test_what_was_begun_stays_so(tmp_path: Path) -> None:
    """Else the service would be stopped that repaired mounts live in; and a file of credentials
    that was left is seen.
    """
    recovery = Recovery("abc", "/name", (), ())
    runbook = fuse.FuseRecovery(host(tmp_path), FuseOptions())
    for begun, noted in ((False, False), (True, True), (False, True)):
        runbook._record(recovery, begun)
        assert records.note_of(host(tmp_path), "abc")["begun"] is noted
    assert not records.read_unfinished(host(tmp_path))[0].credentials
    (tmp_path / "run/storage_ops/fuse/abc/credentials").touch()
    assert records.read_unfinished(host(tmp_path))[0].credentials


def test_paths_by_a_link_to_the_kubelets_folder() -> None:
    runbook = fuse.FuseRecovery(host(Path("/")), FuseOptions(kubelet_root="/var/lib/kubelet/"))
    runbook._root = "/data/kubelet"
    given = ("/var/lib/kubelet/pods/a", "/var/lib/kubelets/b", "/data/kubelet/pods/c")
    assert runbook._resolved(given) == (
        "/data/kubelet/pods/a",
        "/var/lib/kubelets/b",
        "/data/kubelet/pods/c",
    )


@pytest.mark.parametrize(
    ("seconds", "running", "error"),
    [(60.0, [], None), (0.0, [], None), (0.0, ["x"], Prevented), (60.0, ["x"], NotStarted)],
)
def test_waiting_for_containers(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    running: list[str],
    error: type[Exception] | None,
) -> None:
    """It looks first; only what there is to wait for needs time."""
    monkeypatch.setattr(fuse, "running_processes", lambda *_more: running)
    runbook = fuse.FuseRecovery(
        Host(Deadline(seconds), 10, str(tmp_path)), FuseOptions(containers_timeout=0.1)
    )
    step = Step(Recovery("abc", "/name", (), (), pods=("u",)))
    with pytest.raises(error) if error else contextlib.nullcontext():
        runbook._wait_for_containers(fuse.Action("wait_for_containers", "x", [], step), step)


def test_all_containers_have_the_same_seconds_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their pods were all being deleted before. Two volumes of one tenant, whose containers did not
    end, took the whole deadline, and those after them had no turn.
    """
    monkeypatch.setattr(fuse, "running_processes", lambda *_more: ["x"])
    waits: list[float] = []

    class Waiting(Host):
        """It lets time pass by waiting alone."""

        def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
            waits.append(seconds)
            return condition()

    host = Waiting(Deadline(290, lambda: sum(waits)), 10, str(tmp_path))
    runbook = fuse.FuseRecovery(host, FuseOptions(strategy="kubelet", containers_timeout=180))
    action = fuse.Action("wait_for_containers", "x", [])
    for name in ("/a", "/b"):
        with pytest.raises(NotStarted, match="still run after 180 s: x") as error:
            runbook._wait_for_containers(action, Step(Recovery("k", name, (), (), pods=("u",))))
        assert error.value.code == "pods_running"
    assert waits == [180, 0]


def test_the_kubelets_time_is_not_cut_short(tmp_path: Path) -> None:
    """What would leave it less is not begun."""
    staged = replace(TARGET, kind="staging")
    runbook = fuse.FuseRecovery(
        Host(Deadline(30), 10, str(tmp_path)), FuseOptions(strategy="kubelet", unstage_timeout=60)
    )
    step = Step(Recovery("abc", "/name", (), (staged, TARGET), pods=("u",)), TARGET)
    with pytest.raises(NotStarted, match="less than 70.2 s are left of the deadline"):
        runbook._unmount(fuse.Action("unmount", TARGET.point, [], step), step)


def test_a_new_mount_that_is_gone_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = MountTable(
        [Mount(1, 0, "8:1", "/", "/", ("rw",), 0, 0, False, "ext4", "sda1", ("rw",), "1")]
    )
    monkeypatch.setattr(fuse, "read_table", lambda _host, _pid: table)
    (tmp_path / TARGET.point[1:]).mkdir(parents=True)
    runbook = fuse.FuseRecovery(host(tmp_path), FuseOptions())
    step = Step(Recovery("abc", "/name", (), (TARGET,)), replace(TARGET, beneath=0))
    for verb in ("replace_mount", "adopt_mount"):
        with pytest.raises(NotStarted, match="is gone"):
            runbook.apply(
                fuse.Action(
                    verb,
                    TARGET.point,
                    [],
                    replace(step, recovery=replace(step.recovery, targets=())),
                )
            )


def test_a_secret_is_written_for_root_alone_and_never_through_a_link(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    os.symlink(other, tmp_path / "credentials")
    records.write_private(str(tmp_path / "credentials"), "s3cr3t")
    assert other.read_text() == "mine"
    assert (tmp_path / "credentials").stat().st_mode & 0o777 == 0o600


def test_no_error_tells_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"secret_key": "s3cr3t", "file": "[x]\nsecret_access_key = b\\ack'slash\n"}
    service = fuse.Service((), (), secrets=tuple(keys.values()))
    recovery = fuse.FuseRecovery(host(tmp_path), FuseOptions())

    def failing(*_args: Any) -> None:
        raise ActionFailed(
            f"cannot use s3cr3t in eu, nor {keys['file']!r}, nor {json.dumps(keys)}, nor "
            "b\\ack'slash"
        )

    monkeypatch.setattr(recovery, "_clean_up", failing)
    action = fuse.Action(
        "clean_up", "x", [], Step(Recovery("abc", "/name", (), (), service=service))
    )
    with pytest.raises(ActionFailed, match=r"^cannot use \*{8} in eu, nor ") as caught:
        recovery.apply(action)
    assert not any(part in str(caught.value) for part in ("s3cr3t", "ack", "slash"))


@pytest.mark.parametrize(
    "keys",
    [
        {"a": "abcdefgh", "b": "abcdefghTOPSECRET"},
        {"a": "abcdefghTOPSECRET", "b": "abcdefgh"},
        {"file": "abcdefgh\nabcdefghTOPSECRET\n"},
        {"file": "abcdefghTOPSECRET\nabcdefgh\n"},
    ],
)
def test_a_secret_that_begins_like_another_is_hidden_as_a_whole(
    keys: dict[str, str],
) -> None:
    service = fuse.Service((), (), secrets=tuple(keys.values()))
    text = "no abcdefghTOPSECRET, nor abcdefgh"
    assert fuse._scrubbed(text, service) == "no ********, nor ********"


def test_what_tells_nothing_is_not_hidden() -> None:
    """A short line is the head of a section, or a word that errors have anyway."""
    forms = fuse._spellings("[x]\nsecret_access_key = abcdefghij\nregion = eu\n")
    assert "abcdefghij" in forms
    assert not {"[x]", "eu"} & set(forms)


SECRETS = {
    "file": "[x]\nsecret_access_key = TOPSECRET1\n",
    "a": "back\\TOPSECRET2",
    "b": 'it\'s "TOPSECRET3"',
    "c": "TOPSECRET4\u00fc\u2028\x1b",
}


def test_no_log_of_a_node_has_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ansible writes what a module was called with to the journal, a list of dictionaries by its
    repr().
    """
    said: list[str] = []
    monkeypatch.setattr(
        basic.AnsibleModule,
        "log",
        lambda _self, text, log_args=None: said.append(f"{text} {log_args}"),
    )
    arguments = {"volumes": [{"volume": "pvc-1"}], "credentials": {"pvc-1": SECRETS}}
    monkeypatch.setattr(
        basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode()
    )
    # ansible-core 2.19 asks how they are written.
    monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
    module = basic.AnsibleModule(**options.OPTIONS_SPEC.to_kwargs())
    assert "pvc-1" in "".join(said) and "TOPSECRET" not in "".join(said)
    (volume,) = options.fuse_options(module.params).volumes
    assert volume.credentials == SECRETS


def test_no_secret_of_a_tenant_hides_a_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ansible masks what is secret in all of a result: of this one nothing was left to
    be counted.
    """
    hostile = {
        "access_key": "refuse",
        "secret_key": "STOR-0",
        "session_token": "major",
        "endpoint": "e",
    }
    arguments = {
        "volumes": [{"volume": "pvc-1"}],
        "credentials": {"pvc-1": {**hostile, "other": "TOPSECRET"}},
    }
    monkeypatch.setattr(
        basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode()
    )
    monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
    module = basic.AnsibleModule(**options.OPTIONS_SPEC.to_kwargs())
    given = options.options_of(module)
    assert options.fuse_options(given).volumes[0].credentials["access_key"] == "refuse"
    found = {
        "control": "STOR-05",
        "severity": "major",
        "verdict": "refuse",
        "reason": "of another tenant",
    }
    with pytest.raises(SystemExit):
        module.exit_json(findings=[found])
    said = capsys.readouterr().out
    result = json.loads(said)
    assert result["findings"] == [found]
    assert (
        result["invocation"]["module_args"]["credentials"] == {"pvc-1": "(hidden)"}
        and "TOPSECRET" not in said
    )


def test_folders_of_pods(tmp_path: Path) -> None:
    """Only names are read; links and names that Kubernetes does not give count for nothing."""
    uid = "0a1b2c3d-1111-2222-3333-444455556666"
    volumes = tmp_path / f"var/lib/kubelet/pods/{uid}/volumes"
    (volumes / "kubernetes.io~csi/pvc-1/mount").mkdir(parents=True)
    (volumes / "kubernetes.io~csi/pvc-1/vol_data.json").write_text(
        json.dumps({"driverName": "d", "volumeHandle": "h", "specVolID": "pvc-1"})
    )
    # Its owner has named it like a PersistentVolume, as any volume of another plugin may be.
    (volumes / "kubernetes.io~csi/pvc-3/mount").mkdir(parents=True)
    (volumes / "kubernetes.io~csi/pvc-3/vol_data.json").write_text(
        json.dumps(
            {
                "driverName": "d",
                "volumeHandle": "csi-0a",
                "specVolID": "pvc-3",
                "volumeLifecycleMode": "Ephemeral",
            }
        )
    )
    # It may be the volume of that name: the kubelet writes the note after it makes the folder.
    (volumes / "kubernetes.io~csi/pvc-4").mkdir(parents=True)
    (volumes / "kubernetes.io~csi/x y/mount").mkdir(parents=True)
    (volumes / "kubernetes.io~nfs/pvc-2").mkdir(parents=True)
    os.symlink(
        volumes.parent, tmp_path / "var/lib/kubelet/pods/0a1b2c3d-1111-2222-3333-777777777777"
    )
    found = gathering.pod_folders(host(tmp_path), "/var/lib/kubelet")
    assert [(folder.pod, folder.volume, folder.driver, folder.handle) for folder in found] == [
        (uid, "pvc-1", "d", "h"),
        (uid, "", "d", "csi-0a"),
        (uid, "pvc-4", "", ""),
    ]
    # Of a pod whose folder leads to that of another, none is its own.
    linked = tmp_path / "var/lib/kubelet/pods/0a1b2c3d-1111-2222-3333-888888888888"
    linked.mkdir()
    (linked / "volumes").symlink_to(volumes)
    assert gathering.pod_folders(host(tmp_path), "/var/lib/kubelet") == found
    # A node whose kubelet has had no pod has no folder of them.
    assert gathering.pod_folders(host(tmp_path), "/var/lib/other") == ()
