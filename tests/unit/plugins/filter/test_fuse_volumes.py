# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the cluster says of volumes, as a node is told it."""

from __future__ import annotations

import re
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.storage_ops.runbooks.plugins.filter.fuse_volumes import FilterModule
from ansible_collections.storage_ops.runbooks.plugins.filter.fuse_volumes import (
    fuse_volumes as told,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._csi_volumes.secrets import (
    masked,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts.model import (
    FuseState,
    Recovery,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts.options import (
    OPTIONS_SPEC,
    fuse_options,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts.recipes import (
    RECIPES,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts.service import (
    mount_command,
    service_for,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts.volumes import (
    credentials_of,
    option_words,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.mounts import (
    MountTable,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.mountinfo import (
    parse_mountinfo,
)

ROLE = Path(__file__).resolve().parents[4] / "roles/fuse_recovery/vars/main.yml"


def volume(**changes: Any) -> dict[str, Any]:
    return {
        "volume": "pv-1",
        "driver": "ru.yandex.s3.csi",
        "handle": "shared/pv-1",
        "claim": "data",
        "parameters": {
            "mounter": "rclone",
            "options": "--memory-limit 1000 --dir-mode=0777 -o allow_other,uid=1",
        },
        "attributes": {},
        "mount_options": ["gid=2"],
        "sources": ["shared/pv-1"],
        "secret": {"namespace": "kube-system", "name": "s3"},
        "pods": [
            {
                "uid": "u",
                "namespace": "shop",
                "name": "web-0",
                "terminating": False,
                "phase": "Running",
                "containers": [],
            }
        ],
        **changes,
    }


def secret(name: str = "s3", **data: str) -> dict[str, Any]:
    encoded = {key: b64encode(text.encode()).decode() for key, text in data.items()}
    return {"metadata": {"namespace": "kube-system", "name": name}, "data": encoded}


def fuse_volumes(*arguments: Any, **named: Any) -> list[dict[str, Any]]:
    """The volumes alone, which have no secret in them."""
    volumes: list[dict[str, Any]] = told(*arguments, **named)["volumes"]
    assert not any("credentials" in entry for entry in volumes)
    return volumes


KEYS = {
    "access_key": ["accessKeyID", "key_id"],
    "secret_key": ["secretAccessKey"],
    "endpoint": ["endpoint"],
    "region": ["region"],
}
GIVEN = {"volume": "pv-2", "options": ["a"]}
OURS = secret(
    accessKeyID="AK",
    secretAccessKey="SK\n",
    endpoint="https://s3.example.com",
    region="eu",
    other="x",
)


def test_a_volume_with_all_of_its_parts() -> None:
    (entry,) = fuse_volumes(
        [volume()], secrets=[secret("other", accessKeyID="no"), OURS], credential_keys=KEYS
    )
    assert entry == {
        "volume": "pv-1",
        "driver": "ru.yandex.s3.csi",
        "handle": "shared/pv-1",
        "recipe": "rclone",
        "sources": ["shared/pv-1"],
        "options": [
            # Which the driver always gives it.
            "--vfs-cache-mode=writes",
            *("--memory-limit=1000", "--dir-mode=0777", "allow_other,uid=1", "gid=2"),
        ],
        "endpoint": "https://s3.example.com",
        "secret_namespace": "kube-system",
        "region": "eu",
        "credentials_key": "pv-1",
        "pods": [{"uid": "u", "namespace": "shop", "name": "web-0", "terminating": False}],
    }


def test_whose_word_an_endpoint_is() -> None:
    """The Secret's namespace, whatever is in the Secret today; none where the user gives the
    endpoint.
    """
    for each, given, namespace in (
        (volume(), [], "kube-system"),
        (
            volume(secret={"namespace": "shop", "name": "gone"}, attributes={"url": "https://s3"}),
            [],
            "shop",
        ),
        (volume(secret={}), [], ""),
        (volume(), [{"volume": "pv-1", "endpoint": "https://mine"}], ""),
    ):
        (entry,) = fuse_volumes([each], secrets=[OURS], credential_keys=KEYS, given=given)
        assert entry["secret_namespace"] == namespace


def test_options_that_the_driver_always_gives_come_first() -> None:
    """Without them the real k8s-csi-s3's buckets could not be mounted; of the same name, the last
    one counts.
    """
    s3fs = volume(parameters={"mounter": "s3fs", "options": "-o mp_umask=077"})
    (entry,) = fuse_volumes([s3fs], secrets=[OURS], credential_keys=KEYS)
    always = ["use_path_request_style", "mp_umask=000", "endpoint=eu"]
    assert entry["options"] == [*always, "mp_umask=077", "gid=2"]
    own = [{"volume": "pv-1", "command": ["bindfs", "{options}"]}]
    (entry,) = fuse_volumes([s3fs], secrets=[OURS], credential_keys=KEYS, given=own)
    assert entry["options"] == ["mp_umask=077", "gid=2"]
    (entry,) = fuse_volumes(
        [{**s3fs, "driver": "s3.example.com"}], secrets=[OURS], credential_keys=KEYS
    )
    assert entry["options"] == ["mp_umask=077", "gid=2"]


@pytest.mark.parametrize(
    ("recipe", "source"),
    [
        ("s3fs", "b:/a/c"),
        ("rclone", "b/a/c"),
        ("", "b/a/c"),
    ],
)
def test_a_folder_in_a_bucket_as_each_program_wants_it(recipe: str, source: str) -> None:
    (entry,) = fuse_volumes([volume(sources=["b/a/c", "b"], parameters={"mounter": recipe})])
    assert entry["sources"] == [source, "b"]


def test_attributes_of_a_volume_count_more_than_parameters_of_its_class() -> None:
    own = {"mounter": "s3fs", "url": "https://own", "everest.io/region": "eu"}
    (entry,) = fuse_volumes([volume(attributes=own, parameters={"mounter": "rclone", "url": "x"})])
    assert (entry["recipe"], entry["endpoint"], entry["region"]) == ("s3fs", "https://own", "eu")
    # What it takes is what fuse_remount takes.
    assert set(entry) <= set(OPTIONS_SPEC.options["volumes"]["options"])


def test_no_secret_no_credentials() -> None:
    for reference in ({}, {"namespace": "kube-system", "name": "gone"}):
        found = told([volume(secret=reference)], secrets=[OURS], credential_keys=KEYS)
        assert (found["credentials"], found["volumes"][0]["endpoint"]) == ({}, "")


def test_credentials_are_apart() -> None:
    """By the name of their volume; those that the user gives, by what the entry has of name, handle
    and path.
    """
    keys = {"access_key": "AK", "secret_key": "SK"}
    given = [
        {"handle": "h", "credentials": {"a": "1"}},
        {"paths": ["/p"], "credentials": {"a": "2"}},
        {"volume": "pv-2", "credentials": {"a": "3"}},
    ]
    found = told(
        [volume(), volume(volume="pv-2")], secrets=[OURS], credential_keys=KEYS, given=given
    )
    assert found["credentials"] == {
        "pv-1": keys,
        "pv-2": {"a": "3"},
        "h": {"a": "1"},
        "/p": {"a": "2"},
    }
    options = fuse_options(found)
    assert {entry.describe(): entry.credentials for entry in options.volumes} == found[
        "credentials"
    ]
    with pytest.raises(AnsibleFilterError, match="credentials"):
        told([], given=[{"credentials": {"a": "1"}}])


def test_credentials_are_of_their_entry_alone() -> None:
    """A tenant chooses a handle, and may choose the name of another's volume. Then the keys of that
    volume went to the tenant's endpoint, or the run failed for all volumes.
    """
    theirs = secret(accessKeyID="AK2", secretAccessKey="SK2", endpoint="https://theirs")
    theirs["metadata"]["namespace"] = "evil"
    bare = {"metadata": theirs["metadata"], "data": {"endpoint": theirs["data"]["endpoint"]}}
    reference = {"namespace": "evil", "name": "s3"}
    mine, other = volume(handle="pv-1"), volume(volume="pv-3", handle="3")
    for driver in ("ru.yandex.s3.csi", "ch.ctrox.csi.s3-driver"):
        shared = volume(volume="pv-2", handle="pv-1", driver=driver, secret=reference)
        for data, expected in ((theirs, {"access_key": "AK2", "secret_key": "SK2"}), (bare, {})):
            for order in ([mine, shared, other], [other, shared, mine]):
                found = told(order, secrets=[OURS, data], credential_keys=KEYS)
                volumes = {entry.volume: entry for entry in fuse_options(found).volumes}
                assert volumes["pv-2"].credentials == expected
                assert volumes["pv-2"].endpoint == "https://theirs"
                for name in ("pv-1", "pv-3"):
                    keys = {"access_key": "AK", "secret_key": "SK"}
                    assert volumes[name].credentials == keys
                assert not any(entry.doubt for entry in volumes.values())


def test_credentials_that_the_user_gives_are_of_that_entry_alone() -> None:
    """Not of a tenant's volume that is called as the user calls it, or has the same handle."""
    given: list[dict[str, Any]] = [
        {"handle": "h", "driver": "d", "credentials": {"a": "1"}},
        {"handle": "h", "driver": "e", "credentials": {"a": "2"}},
        {"paths": ["/p/"], "credentials": {"a": "3"}},
        {"paths": ["/p"], "credentials": {"a": "4"}},
    ]
    planted = [
        volume(volume="h", handle="x", secret={}),
        volume(volume="pv-2", handle="h", secret={}),
    ]
    for cluster in (planted, planted[::-1]):
        entries = fuse_options(told(cluster, given=given)).volumes
        assert [dict(entry.credentials) for entry in entries] == [
            *([{}] * 2),
            *(entry["credentials"] for entry in given),
        ]
        assert not any(entry.doubt for entry in entries)


def test_the_user_knows_better() -> None:
    driver = {
        "ru.yandex.s3.csi": {
            "command": ["geesefs", "{source}", "{target}"],
            "endpoint": "https://driver",
        }
    }
    given = [
        {"volume": "pv-1", "sources": ["mine"], "recipe": None},
        {"paths": ["/var/lib/kubelet/x"], "recipe": "s3fs"},
    ]
    entries = fuse_volumes([volume(), volume(volume="pv-2")], drivers=driver, given=given)
    assert [entry.get("volume") for entry in entries] == ["pv-1", "pv-2", None]
    assert [entry.get("endpoint") for entry in entries] == [
        "https://driver",
        "https://driver",
        None,
    ]
    assert entries[0]["sources"] == ["mine"]
    assert entries[0]["recipe"] == "rclone"
    assert entries[0]["command"] == driver["ru.yandex.s3.csi"]["command"]
    assert entries[2] == given[1]
    # Another program wants the source in another way.
    (other,) = fuse_volumes([volume()], given=[{"volume": "pv-1", "recipe": "s3fs"}])
    assert other["sources"] == ["shared:/pv-1"]


def test_pods_that_are_about_to_be_moved_count_as_leaving() -> None:
    for leaving in (True, False):
        (entry,) = fuse_volumes([volume()], leaving=leaving)
        assert [pod["terminating"] for pod in entry["pods"]] == [leaving]


def test_a_volume_that_no_pod_has_says_so() -> None:
    entries = fuse_volumes([], unused=[{"volume": "pv-9", "driver": "d", "handle": "h"}])
    assert entries == [{"volume": "pv-9", "driver": "d", "handle": "h", "pods": []}]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("-o a -o b,c", ["a", "b,c"]),
        ("-oallow_other -odbglevel=info", ["allow_other", "dbglevel=info"]),
        ("allow_other,umask=0", ["allow_other,umask=0"]),
        (
            "--debug_s3 --list-type 2 --no-checksum",
            ["--debug_s3", "--list-type=2", "--no-checksum"],
        ),
        ("--name='a b' -o", ["--name=a b"]),
    ],
)
def test_options(text: str, words: list[str]) -> None:
    assert option_words(text) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"--s3-sse-customer-key=K"', ["--s3-sse-customer-key=(hidden)"]),
        ('-o "ssl_client_cert=a:PEM:b:PEM:pw"', ["ssl_client_cert=(hidden)"]),
        ("-o 'passwd=x' -o a", ["passwd=(hidden)", "a"]),
        ("-o 'passwd=' -o a", ["passwd=(hidden)", "a"]),
        ('"--sse-c="K"" --x=1', ["--sse-c=(hidden)", "--x=1"]),
        ('--sse-c="K" --x=1', ["--sse-c=(hidden)", "--x=1"]),
    ],
)
def test_quoted_options_stay_whole_where_a_secret_is_hidden(text: str, words: list[str]) -> None:
    assert option_words(masked(text)) == words


def test_options_that_cannot_be_read_refuse_their_own_volume() -> None:
    """The filter failed, and so the run for each volume of the node."""
    broken = volume(volume="pv-2", handle="x", parameters={"options": "--token 'planted"})
    good, bad = fuse_volumes([volume(), broken])
    assert "unreadable" not in good
    assert bad["unreadable"] == "its mount options cannot be taken apart: No closing quotation"
    assert bad["options"] == ["gid=2"]
    _good, entry = fuse_options({"volumes": [good, bad]}).volumes
    assert entry.unreadable == bad["unreadable"]
    # Those of the user count, and are whole.
    for better in ({"drivers": {broken["driver"]: {"options": ["a"]}}}, {"given": [{**GIVEN}]}):
        _good, bad = fuse_volumes([volume(), broken], **better)
        assert (bad["options"], "unreadable" in bad) == (["a"], False)


def test_errors_show_no_secret() -> None:
    with pytest.raises(AnsibleFilterError, match="not what csi_volume_info"):
        fuse_volumes([{"volume": "x", "driver": "d"}])
    assert list(FilterModule().filters()) == ["fuse_volumes"]


@pytest.mark.parametrize("planted", ["planted!", b64encode(b"\xff").decode()])
def test_a_secret_that_is_no_text_is_its_own_volumes_problem(planted: str) -> None:
    """The filter failed, and so the run for each volume of the node."""
    broken = {
        "metadata": {"namespace": "evil", "name": "s3"},
        "data": {**OURS["data"], "accessKeyID": planted},
    }
    theirs = volume(volume="pv-2", handle="x", secret={"namespace": "evil", "name": "s3"})
    found = told([volume(), theirs], secrets=[OURS, broken], credential_keys=KEYS)
    assert found["credentials"] == {"pv-1": {"access_key": "AK", "secret_key": "SK"}}
    # Half of what it says would be another server's mount.
    assert found["volumes"][1]["endpoint"] == ""


def test_no_secret_gives_a_whole_file() -> None:
    """rclone's has commands in it, which root would run on the node."""
    with pytest.raises(AnsibleFilterError, match="which no Secret may give"):
        fuse_volumes(
            [volume()], secrets=[secret(rclone="[x]")], credential_keys={"file": ["rclone"]}
        )


@pytest.mark.parametrize(
    "data",
    [
        {"accessKeyID": "AK", "secretAccessKey": "SK"},
        {"akId": "AK", "akSecret": "SK"},
        {"access-key": "AK", "secret-key": "SK"},
        {"access_key": "AK", "secret_key": "SK"},
        {"AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "SK"},
        # Of Mountpoint for S3, whose access_key is the secret.
        {"key_id": "AK", "access_key": "SK"},
        {"access.key": "AK", "secret.key": "SK"},
    ],
)
def test_the_keys_that_the_role_knows(data: dict[str, str]) -> None:
    keys = yaml.safe_load(ROLE.read_text())["__fuse_recovery_credential_keys_known"]
    encoded = secret(**data)["data"]
    assert credentials_of(encoded, keys) == {"access_key": "AK", "secret_key": "SK"}


OVERRIDES: list[dict[str, Any]] = [
    {},
    {"region": "eu-1"},
    {"region": ""},
    {"endpoint": "https://s3.example.com"},
    {"options": ["allow_other"]},
    {"sources": ["b:/pv-1"]},
    {"region": "eu-1", "endpoint": "https://s3.example.com", "memory_max": 100},
    {"command": ["s3fs", "-o", "url={endpoint},endpoint={region}", "{options}", "{target}"]},
    {"command": ["s3fs", "{options}", "{target}"], "region": "eu-1", "endpoint": "https://s3"},
]


def words_of_root(planted: dict[str, str], driver: str, recipe: str, by_driver: bool) -> list[str]:
    """All words of the command lines that are accepted, with each override in turn."""
    theirs = secret(**{"accessKeyID": "AK", "secretAccessKey": "SK", "region": "eu", **planted})
    theirs["data"].setdefault("endpoint", b64encode(b"https://s3.example.com").decode())
    mine = volume(
        driver=driver, attributes={"mounter": recipe}, parameters={}, sources=["shared/pv-1"]
    )
    state = FuseState(
        "node-1",
        "/var/lib/kubelet",
        MountTable(parse_mountinfo("20 1 8:1 / / rw - ext4 /dev/sda rw", "1")),
        programs={name: f"/usr/bin/{name}" for name in RECIPES},
        spare={"/tmp": 512},
    )
    recovery = Recovery(
        "abcdefabcdef", "/var/lib/kubelet/x", ("0:50",), (), fstype="fuse.s3fs", kept=()
    )
    words = []
    for override in OVERRIDES:
        given = (
            {"drivers": {driver: override}}
            if by_driver
            else {"given": [{"volume": "pv-1", **override}]}
        )
        found = told([mine], secrets=[theirs], credential_keys=KEYS, **given)
        (entry,) = fuse_options({**found, "probe_timeout": 5.0, "remount_timeout": 30.0}).volumes
        service, problems = service_for(state, entry, recovery)
        words += mount_command(recovery, service) if service and not problems else []
    return words


@pytest.mark.parametrize("by_driver", [True, False], ids=["driver", "volume"])
@pytest.mark.parametrize("recipe", sorted(RECIPES))
@pytest.mark.parametrize("driver", ["ru.yandex.s3.csi", "ch.ctrox.csi.s3-driver", "csi.example"])
def test_no_value_of_a_secret_adds_an_option(driver: str, recipe: str, by_driver: bool) -> None:
    """s3fs loads a library that an option names, as root. The region of a Secret gave it one, where
    the user gave another region: what was checked was not what was used.
    """
    for key in ("region", "endpoint", "accessKeyID", "secretAccessKey"):
        for text in ("x,planted=/e", "x planted=/e", "x\nplanted=/e", "-oplanted=/e"):
            words = words_of_root({key: text}, driver, recipe, by_driver)
            options = [part for word in words for part in re.split(r"[,\s]", word)]
            assert not [part for part in options if part.lstrip("-o").startswith("planted")]
    # The recipes are accepted at all.
    assert words_of_root({}, driver, recipe, by_driver)


def test_the_region_that_is_used_is_the_one_that_is_checked() -> None:
    planted = secret(accessKeyID="AK", secretAccessKey="SK", region="x,planted=/e")
    mine = volume(attributes={"mounter": "s3fs"}, parameters={}, mount_options=[])
    for given, region in (({}, "x,planted=/e"), ({"region": "eu-1"}, "eu-1")):
        (entry,) = fuse_volumes(
            [mine],
            secrets=[planted],
            credential_keys=KEYS,
            drivers={"ru.yandex.s3.csi": given},
        )
        said = [option for option in entry["options"] if option.startswith("endpoint=")]
        # Refused on the node, by its region.
        assert (entry["region"], said) == (region, ["endpoint=eu-1"] if given else [])
