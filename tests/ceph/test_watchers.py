# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""rbd_watcher_info against a real cluster: who has an image open, and who only looks in."""

from __future__ import annotations

import subprocess
import threading
from typing import Any

import pytest
from lab.ceph.client import Visitor, Writer
from lab.common import patient, wait
from support.node import Outcome
from support.storage import Storage

OBSERVED: dict[str, Any] = {"observations": 4, "observation_seconds": 4}


def info(storage: Storage, *images: str, **options: Any) -> Outcome:
    """One run."""
    done = storage.ansible(
        "rbd_watcher_info", images=[{"pool": "rbd", "image": image} for image in images], **options
    )
    assert not done.failed and not done.changed, done.msg
    return done


def watchers(outcome: Outcome, number: int = 0) -> dict[str, dict[str, Any]]:
    """The watchers of an image, by entry."""
    return {found["entry"]: found for found in outcome.result["ceph"]["images"][number]["watchers"]}


@pytest.mark.smoke
def test_who_is_always_there_and_who_only_looks_in(storage: Storage) -> None:
    storage.ceph.create_image("data")
    storage.ceph.create_image("quiet")
    with (
        Writer(storage.ceph, "data", "127.0.0.11") as a,
        Visitor(storage.ceph, "data", "127.0.0.12") as visitor,
    ):
        done = info(storage, "data", "quiet", **OBSERVED)
        found = watchers(done)
        assert (
            found[a.entry]["persistent"]
            and found[a.entry]["seen"] == 4
            and found[a.entry]["address"] == "127.0.0.11"
        )
        assert not found.get(visitor.entry, {"persistent": False})["persistent"]
        assert watchers(done, 1) == {}
        (known,) = (known for known in storage.ceph.watchers("data") if known["address"] == a.entry)
        assert (found[a.entry]["client"], found[a.entry]["cookie"]) == (
            f"client.{known['client']}",
            str(known["cookie"]),
        )
        assert done.result["ceph"]["observations"] == 4 and done.result["ceph"]["seconds"] >= 4
        # One observation proves nothing.
        assert not watchers(info(storage, "data"))[a.entry]["persistent"]


def test_we_are_no_watcher_ourselves(storage: Storage) -> None:
    """``rbd image-meta`` would be one; and a user that may only read is enough."""
    storage.user("storage-ops", mon="allow r", osd="profile rbd-read-only")
    storage.ceph.create_image("data", features="layering,exclusive-lock")
    storage.ceph.rbd(
        "image-meta",
        "set",
        "data",
        ".rbd.csi.ceph.com/clientaddress/0001-vol/node-a",
        "127.0.0.11:0/123",
    )
    seen: list[Any] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.extend(storage.ceph.watchers("data"))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        outcome = info(storage, "data", user="storage-ops", **OBSERVED)
    finally:
        done.set()
        thread.join()
    assert seen == []
    (image,) = outcome.result["ceph"]["images"]
    assert image["problem"] == "" and image["features"] == ["layering", "exclusive-lock"]
    assert image["client_addresses"] == [{"node": "node-a", "address": "127.0.0.11"}]


@pytest.mark.smoke
def test_a_dead_owner_of_a_lock(storage: Storage) -> None:
    storage.ceph.create_image("data", features="layering,exclusive-lock")
    writer = Writer(storage.ceph, "data", "127.0.0.11")
    # Nobody needs to be waited for as long as usual.
    timeout = ("osd", "osd_client_watch_timeout")
    storage.ceph.run("config", "set", *timeout, "5")
    try:
        writer.start()
        entry = writer.entry
        writer.kill()
        wait(lambda: not storage.ceph.watchers("data"), "the watch has run out", 60)
    finally:
        storage.ceph.run("config", "rm", *timeout)
    (image,) = info(storage, "data").result["ceph"]["images"]
    assert image["watchers"] == [] and [
        (lock["address"], lock["entry"]) for lock in image["locks"]
    ] == [("127.0.0.11", entry)]


def test_a_client_is_gone_when_it_is_blocked(storage: Storage) -> None:
    storage.ceph.create_image("data")
    with (
        Writer(storage.ceph, "data", "127.0.0.11") as a,
        Writer(storage.ceph, "data", "127.0.0.12") as b,
    ):
        left = info(storage, "data", gone=["127.0.0.11"], gone_timeout=2)
        (finding,) = left.findings
        assert (finding["control"], finding["severity"], finding["verdict"]) == (
            "STOR-16",
            "critical",
            "refuse",
        )
        assert a.entry in finding["summary"] and b.entry not in finding["summary"]
        assert set(watchers(left)) == {a.entry, b.entry}

        timer = threading.Timer(
            3, lambda: storage.ceph.change_blocklist("add", "127.0.0.11", "3600")
        )
        timer.start()
        proof = info(storage, "data", gone=["127.0.0.11", a.entry], gone_timeout=60)
        timer.join()
        assert proof.findings == [] and set(watchers(proof)) == {b.entry}
        assert [(found["entry"], found["kind"]) for found in proof.result["ceph"]["blocklist"]] == [
            ("127.0.0.11:0/0", "address")
        ]


def test_the_images_of_volumes(storage: Storage) -> None:
    storage.ceph.create_image("csi-vol-1")
    storage.ceph.create_image("static", namespace="space")
    storage.ceph.create_pool("other")
    storage.ceph.create_image("tree", pool="other")

    def csi(
        name: str, handle: str, driver: str = "rbd.csi.ceph.com", **attributes: str
    ) -> dict[str, Any]:
        attributes = {"clusterID": "lab", **attributes}
        return {
            "metadata": {"name": name},
            "spec": {
                "csi": {"driver": driver, "volumeHandle": handle, "volumeAttributes": attributes}
            },
        }

    volumes = [
        csi("pv-dynamic", "0001-x", pool="rbd", imageName="csi-vol-1"),
        csi("pv-static", "static", pool="rbd", radosNamespace="space", staticVolume="true"),
        {
            "metadata": {"name": "pv-tree"},
            "spec": {"rbd": {"pool": "other", "image": "tree", "monitors": ["127.0.0.1"]}},
        },
        csi("pv-missing", "0001-y", pool="rbd", imageName="csi-vol-2"),
        csi("pv-tenant", "0001-w", clusterID="tenants", pool="rbd", imageName="static"),
        csi("pv-files", "0001-z", driver="cephfs.csi.ceph.com", fsName="fs"),
    ]
    with (
        Writer(storage.ceph, "tree", "127.0.0.11", pool="other") as a,
        Writer(storage.ceph, "static", "127.0.0.12", namespace="space") as b,
    ):
        done = storage.ansible(
            "rbd_watcher_info", volumes=volumes, rados_namespaces={"tenants": "space"}
        )
    assert not done.failed, done.msg
    images = done.result["ceph"]["images"]
    assert [(found["volume"], bool(found["problem"])) for found in images] == [
        ("pv-dynamic", False),
        ("pv-static", False),
        ("pv-tree", False),
        ("pv-missing", True),
        ("pv-tenant", False),
    ]
    assert [set(watchers(done, number)) for number in range(5)] == [
        set(),
        {b.entry},
        {a.entry},
        set(),
        {b.entry},
    ]
    assert done.result["ignored"] == ["pv-files"]
    (finding,) = done.findings
    assert (
        finding["object"]["name"] == "rbd/csi-vol-2"
        and "No such file or directory" in finding["reason"]
    )


def test_what_may_not_be_read_is_no_image_without_watchers(storage: Storage) -> None:
    storage.user("blind", mon="allow r")
    storage.ceph.create_image("data")
    done = info(storage, "data", user="blind")
    (finding,) = done.findings
    assert (
        "grant osd 'profile rbd-read-only'" in finding["reason"]
        and done.result["ceph"]["images"][0]["problem"]
    )


def test_a_cluster_that_does_not_answer(storage: Storage) -> None:
    storage.ceph.freeze()
    done = storage.ansible(
        "rbd_watcher_info", images=[{"pool": "rbd", "image": "data"}], **OBSERVED
    )
    assert done.failed and "does not answer" in done.msg and "ceph" not in done.result


def test_image_meta_would_make_us_a_watcher(storage: Storage) -> None:
    """Why it is not used: Ceph refuses it to a user that may only read, since it opens the image
    for writing.
    """
    keyring = storage.user("storage-ops", mon="allow r", osd="profile rbd-read-only")
    storage.ceph.create_image("data")
    command = [
        "rbd",
        "-c",
        str(storage.ceph.conf),
        "--keyring",
        str(keyring),
        "--name",
        "client.storage-ops",
        "image-meta",
        "ls",
        "data",
    ]
    answer = subprocess.run(
        command, capture_output=True, text=True, timeout=patient(60), check=False
    )
    assert answer.returncode == 1 and "failed to register watch" in answer.stderr
