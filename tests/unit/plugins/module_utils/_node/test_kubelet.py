# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kubelet's folder, told by paths that anyone may have made."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import kubelet
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.kubelet import (
    Place,
    VolumeNote,
)

UID = "0a1b2c3d-1111-2222-3333-444455556666"
PV = "pvc-7f3f2f0e-0000-1111-2222-333344445555"
HANDLE = "0001-0009-rook-ceph-0000000000000001-8a1b"
DIGEST = hashlib.sha256(HANDLE.encode()).hexdigest()
NOTE = {
    "driverName": "rbd.csi.ceph.com",
    "specVolID": PV,
    "volumeHandle": HANDLE,
    "nodeName": "node-a",
    "attachmentID": "csi-1",
}

CSI = "plugins/kubernetes.io/csi"
BLOCK_NOTE = f"{CSI}/volumeDevices/{PV}/data/vol_data.json"


@pytest.mark.parametrize("root", ["/var/lib/kubelet", "/data/k8s kubelet"])
@pytest.mark.parametrize(
    ("path", "kind", "said", "note"),
    [
        (f"{CSI}/pv/{PV}/globalmount", "staging", {"volume": PV}, f"{CSI}/pv/{PV}/vol_data.json"),
        (
            f"{CSI}/rbd.csi.ceph.com/{DIGEST}/globalmount/{HANDLE}",
            "staging",
            {"driver": "rbd.csi.ceph.com", "digest": DIGEST, "below": HANDLE},
            f"{CSI}/rbd.csi.ceph.com/{DIGEST}/vol_data.json",
        ),
        (
            f"pods/{UID}/volumes/kubernetes.io~csi/{PV}/mount",
            "publish",
            {"pod": UID, "volume": PV, "plugin": "kubernetes.io~csi"},
            f"pods/{UID}/volumes/kubernetes.io~csi/{PV}/vol_data.json",
        ),
        (
            f"pods/{UID}/volume-subpaths/{PV}/main/12",
            "subpath",
            {"pod": UID, "volume": PV, "container": "main", "index": "12"},
            "",
        ),
        (
            f"pods/{UID}/volumes/kubernetes.io~nfs/{PV}",
            "in_tree",
            {"pod": UID, "volume": PV, "plugin": "kubernetes.io~nfs"},
            "",
        ),
        (
            f"pods/{UID}/volumeDevices/kubernetes.io~csi/{PV}",
            "block_pod",
            {"pod": UID, "volume": PV, "plugin": "kubernetes.io~csi"},
            BLOCK_NOTE,
        ),
        (
            f"pods/{UID}/volumeDevices/kubernetes.io~fc/{PV}",
            "block_pod",
            {"pod": UID, "volume": PV, "plugin": "kubernetes.io~fc"},
            "",
        ),
        (f"{CSI}/volumeDevices/staging/{PV}", "block_staging", {"volume": PV}, BLOCK_NOTE),
        (
            f"{CSI}/volumeDevices/staging/{PV}/{HANDLE}",
            "block_staging",
            {"volume": PV, "below": HANDLE},
            BLOCK_NOTE,
        ),
        (f"{CSI}/volumeDevices/publish/{PV}", "block_publish", {"volume": PV}, BLOCK_NOTE),
        (
            f"{CSI}/volumeDevices/publish/{PV}/{UID}",
            "block_publish",
            {"volume": PV, "pod": UID},
            BLOCK_NOTE,
        ),
        (
            f"{CSI}/volumeDevices/{PV}/dev/{UID}",
            "block_map",
            {"volume": PV, "pod": UID},
            BLOCK_NOTE,
        ),
    ],
)
def test_places(root: str, path: str, kind: str, said: dict[str, str], note: str) -> None:
    place = Place(kind, f"{root}/{path}", note=note and f"{root}/{note}", **said)
    assert kubelet.classify(f"{root}/{path}", root) == place
    assert kubelet.classify(f"{root}er/{path}", root) is None
    assert kubelet.classify(f"{root}-{path}", root) is None
    assert kubelet.classify(f"{root}/{path}/..", root) is None
    assert kubelet.classify(f"{root}/{path}\n", root) is None


@pytest.mark.parametrize(
    "path",
    [
        "",
        "pods",
        f"pods/{UID}/volumes/kubernetes.io~csi/{PV}",
        f"pods/{UID}/volumes/kubernetes.io~csi/{PV}/mount/inside",
        f"pods/{UID}/volumes/kubernetes.io~csi/../mount",
        f"pods/../volumes/kubernetes.io~nfs/{PV}",
        f"pods/{UID}/volumes/no-plugin/{PV}",
        f"pods/{UID}//volumes/kubernetes.io~nfs/{PV}",
        f"pods/{UID}/volumes/kubernetes.io~nfs/a b",
        f"pods/{UID}/volumes/kubernetes.io~nfs/.hidden",
        f"pods/{UID}/volumes/kubernetes.io~nfs/{'x' * 254}",
        f"pods/{UID}/volume-subpaths/{PV}/main/\u0663",
        f"pods/{UID}/volume-subpaths/{PV}/main/-1",
        f"{CSI}/rbd.csi.ceph.com/{DIGEST[1:]}/globalmount",
        f"{CSI}/pv/{PV}/globalmount/a/../../x",
        f"{CSI}/pv/{PV}/globalmount/",
        f"{CSI}/pv/{PV}",
    ],
)
def test_what_is_no_place(path: str) -> None:
    assert kubelet.classify(f"{kubelet.ROOT}/{path}") is None


PARTS = [
    *(
        "",
        ".",
        "..",
        "\n",
        "pods",
        UID,
        "volumes",
        "volume-subpaths",
        "volumeDevices",
        "kubernetes.io~csi",
        "kubernetes.io~nfs",
        PV,
        "mount",
        "0",
    ),
    *(
        "plugins",
        "kubernetes.io",
        "csi",
        "pv",
        "globalmount",
        "staging",
        "publish",
        "dev",
        DIGEST,
        "rbd.csi.ceph.com",
        "a\nb",
        "~",
        "\udcff",
    ),
]
FORMS = [
    f"pods/{UID}/volumes/kubernetes.io~csi/{PV}/mount",
    f"{CSI}/pv/{PV}/globalmount/x",
    f"{CSI}/volumeDevices/publish/{PV}/{UID}",
]


@st.composite
def paths(draw: st.DrawFn) -> str:
    """A true path with parts of it changed, or any other."""
    parts = draw(
        st.one_of(
            st.sampled_from(FORMS).map(lambda form: form.split("/")),
            st.lists(st.sampled_from(PARTS), max_size=9),
        )
    )
    for _change in range(draw(st.integers(0, 3))):
        parts.insert(
            draw(st.integers(0, len(parts))),
            draw(st.one_of(st.sampled_from(PARTS), st.text(max_size=5))),
        )
    return "/".join(parts)


@given(
    st.sampled_from(
        [
            "/var/lib/kubelet/",
            "/var/lib/kubelet",
            "/var/lib/kubelet/../",
            "/",
            "",
            "/var/lib/kubelet//",
        ]
    ),
    paths(),
)
def test_nothing_outside_the_root_is_a_place(before: str, path: str) -> None:
    place = kubelet.classify(before + path)
    if place:
        for inside in (place.point, *filter(None, (place.note,))):
            assert os.path.normpath(inside) == inside
            assert os.path.commonpath([inside, kubelet.ROOT]) == kubelet.ROOT
        assert place.point == before + path
        assert place.point.isprintable()


def test_staging_points() -> None:
    note = kubelet.parse_note(json.dumps(NOTE), "x")
    assert note == VolumeNote("rbd.csi.ceph.com", HANDLE, PV, "node-a")
    older = f"{kubelet.ROOT}/{CSI}/pv/{PV}/vol_data.json"
    new, old = kubelet.staging_points(note, {older: VolumeNote(note.driver, HANDLE)})
    for point in (new, old):
        place = kubelet.classify(point)
        assert place and place.kind == kubelet.STAGING and kubelet.contradiction(place, note) == ""
    # What else may be staged in the folder of that name.
    for other in (
        VolumeNote("other.example.com", HANDLE),
        VolumeNote(note.driver, "another"),
        VolumeNote(problem="it is no JSON"),
    ):
        assert kubelet.staging_points(note, {older: other}) == (new,)
    assert kubelet.staging_points(note, {}) == (new,)


def test_an_inline_volume_has_a_name_of_its_own() -> None:
    """The pod's owner chooses it, and may choose that of a PersistentVolume. The kubelet stages
    none.
    """
    handle = f"csi-{'0a' * 32}"
    text = json.dumps({**NOTE, "volumeHandle": handle, "volumeLifecycleMode": "Ephemeral"})
    note = kubelet.parse_note(text, "x")
    assert (note.inline, note.volume, note.name) == (True, "", PV)
    staged = {f"{kubelet.ROOT}/{CSI}/pv/{PV}/vol_data.json": VolumeNote(note.driver, handle)}
    assert kubelet.staging_points(note, staged) == ()
    other = kubelet.classify(f"{kubelet.ROOT}/pods/{UID}/volumes/kubernetes.io~csi/pv-b/mount")
    assert other and "is of the volume" in kubelet.contradiction(other, note)
    persistent = kubelet.parse_note(json.dumps({**NOTE, "volumeLifecycleMode": "Persistent"}), "x")
    assert (persistent.inline, persistent.volume) == (False, PV)


def test_a_note_that_is_of_another_place() -> None:
    note = kubelet.parse_note(json.dumps({**NOTE, "volumeHandle": "other"}), "x")
    published = kubelet.classify(f"{kubelet.ROOT}/pods/{UID}/volumes/kubernetes.io~csi/pv-b/mount")
    staged = kubelet.classify(f"{kubelet.ROOT}/{CSI}/rbd.csi.ceph.com/{DIGEST}/globalmount")
    foreign = kubelet.classify(f"{kubelet.ROOT}/{CSI}/nfs.csi.k8s.io/{DIGEST}/globalmount")
    assert (
        published
        and f"pv-b/vol_data.json is of the volume {PV}, not pv-b"
        in kubelet.contradiction(published, note)
    )
    assert staged and "names the volume handle other" in kubelet.contradiction(staged, note)
    assert foreign and "names the driver rbd.csi.ceph.com" in kubelet.contradiction(foreign, note)


def test_a_note_of_a_staging_path() -> None:
    text = json.dumps({"driverName": "rbd.csi.ceph.com", "volumeHandle": "a b"})
    assert kubelet.parse_note(text, "x") == VolumeNote("rbd.csi.ceph.com", "a b")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        "[]",
        "null",
        "1" * 5000,
        json.dumps({}),
        *(
            json.dumps({**NOTE, "driverName": value})
            for value in ("", None, 7, "a/b", "..", "a\nb", "x" * 300)
        ),
        *(
            json.dumps({**NOTE, "volumeHandle": value})
            for value in ("", "a\n", "\udc80", "\0", ["a"], "x" * 5000)
        ),
        *(json.dumps({**NOTE, "specVolID": value}) for value in ("../x", {}, None)),
        json.dumps({**NOTE, "nodeName": "a b"}),
        *(json.dumps({**NOTE, "volumeLifecycleMode": value}) for value in ("ephemeral", True, [])),
    ],
)
def test_a_note_that_cannot_be_one(text: str) -> None:
    with pytest.raises(StorageOpsError, match="^'/k/vol_data.json' "):
        kubelet.parse_note(text, "/k/vol_data.json")


@given(st.text(st.characters()))
def test_any_text_is_refused_in_words(text: str) -> None:
    with pytest.raises(StorageOpsError):
        kubelet.parse_note(text, "x")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A node with one published volume."""
    folder = tmp_path / f"kubelet/pods/{UID}/volumes/kubernetes.io~csi/{PV}"
    (folder / "mount").mkdir(parents=True)
    (folder / "vol_data.json").write_text(json.dumps(NOTE))
    return Host(Deadline(60), 10, os.path.realpath(tmp_path))


VOLUMES = f"/kubelet/pods/{UID}/volumes/kubernetes.io~csi"


def test_notes_are_read(host: Host) -> None:
    folder = Path(host.path(VOLUMES))
    for name in ("pipe", "folder", "long", "bytes", "link"):
        (folder / name).mkdir()
    os.mkfifo(folder / "pipe/vol_data.json")
    (folder / "folder/vol_data.json").mkdir()
    (folder / "long/vol_data.json").write_text(" " * 70_000)
    (folder / "bytes/vol_data.json").write_bytes(b"\xff")
    (folder / "link/vol_data.json").symlink_to(folder / PV / "vol_data.json")
    (folder / "planted").symlink_to(PV)
    names = (PV, "pipe", "folder", "long", "bytes", "link", "planted", "gone")
    notes = kubelet.read_notes(
        host, [f"{VOLUMES}/{name}/vol_data.json" for name in names], "/kubelet"
    )
    assert notes[0] == VolumeNote("rbd.csi.ceph.com", HANDLE, PV, "node-a")
    said = (
        "is no file",
        "is no file",
        "more than 65536 bytes",
        "is no UTF-8",
        "symbolic links",
        "link, or no folder",
        "No such file",
    )
    for name, note, words in zip(names[1:], notes[1:], said):
        assert words in note.problem and f"/{name}" in note.problem


def test_no_link_on_the_way_is_followed(host: Host, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "mount").mkdir(parents=True)
    for name, target in (
        ("absolute", outside),
        ("relative", "../../../../../outside"),
        ("inside", PV),
    ):
        os.symlink(target, host.path(f"{VOLUMES}/{name}"))
    names = [PV, "absolute", "relative", "inside", "gone"]
    well, *ill = kubelet.parents_problem(
        host, [f"{VOLUMES}/{name}/mount" for name in names], "/kubelet"
    )
    assert well == ""
    for name, problem in zip(names[1:], ill):
        assert f"/{name}' cannot be entered: " in problem


def test_the_last_name_is_left_alone(host: Host) -> None:
    """What is at the path may be dead, or a link: it is for the caller to act on, without following
    it.
    """
    path = host.path(f"{VOLUMES}/{PV}/mount")
    with kubelet.opened_parent(path, host.path("/kubelet")) as (folder, name):
        assert name == "mount"
        assert os.path.samestat(os.fstat(folder), os.stat(os.path.dirname(path)))
        # What moves meanwhile does not lead elsewhere.
        os.rename(host.path(f"{VOLUMES}/{PV}"), host.path(f"{VOLUMES}/moved"))
        assert os.path.realpath(f"/proc/self/fd/{folder}") == host.path(f"{VOLUMES}/moved")
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(folder)


@pytest.mark.parametrize(
    "path",
    [
        "/kubelet",
        "/kubelet/",
        "/kubelet/../etc/x",
        "/kubelet/./x",
        "/kubelet//x",
        "/kubelets/x",
        "kubelet/x",
        "/kubelet/x\0",
    ],
)
def test_a_path_that_is_not_inside(path: str) -> None:
    with (
        pytest.raises(StorageOpsError, match="not inside"),
        kubelet.opened_parent(path, "/kubelet"),
    ):
        pass


def test_the_root_is_resolved(host: Host) -> None:
    os.symlink("kubelet", host.path("/link"))
    assert (
        kubelet.resolve_root(host, "/kubelet/") == kubelet.resolve_root(host, "/link") == "/kubelet"
    )
    for wrong in (
        "kubelet",
        "/kubelet/..",
        "/gone",
        "/",
        "//",
        "",
        f"{VOLUMES}/{PV}/vol_data.json",
    ):
        with pytest.raises(StorageOpsError, match="the kubelet's folder"):
            kubelet.resolve_root(host, wrong)


def test_root_of_a_machine_that_is_no_node(tmp_path: Path) -> None:
    """Only where nobody has said that there should be one."""
    host = Host(Deadline(30), 5, str(tmp_path))
    assert kubelet.find_root(host, kubelet.ROOT) == ""
    with pytest.raises(StorageOpsError, match="does not exist"):
        kubelet.find_root(host, "/data/kubelet")
    (tmp_path / "var/lib/kubelet").mkdir(parents=True)
    assert kubelet.find_root(host, kubelet.ROOT) == kubelet.ROOT
