# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role fuse_recovery makes of what it is given, as Ansible computes it."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.tests.unit.support.roles import ROLES, load, variable


def role(name: str, **given: Any) -> Any:
    """The role's variable of that name."""
    return variable("fuse_recovery", name, **given)


def planned(findings: list[Any], **given: Any) -> Any:
    """What the role remembers of the findings of its first look."""
    (template,) = (
        facts["__fuse_recovery_planned"]
        for task in load(ROLES / "fuse_recovery/tasks/kubelet.yml")
        if "__fuse_recovery_planned" in (facts := task.get("ansible.builtin.set_fact", {}))
    )
    found = {"fuse_recovery_result": {"findings": findings}}
    return role("remembered", __fuse_recovery_remembered=template, **found, **given)


def pod(uid: str, overdue: int = 0) -> dict[str, Any]:
    return {
        "uid": uid,
        "namespace": "shop",
        "name": uid,
        "terminating": bool(overdue),
        "overdue": overdue,
        "phase": "Running",
    }


def volume(
    name: str, *pods: dict[str, Any], secret: str = "", namespace: str = "shop"
) -> dict[str, Any]:
    reference = {"namespace": "kube-system", "name": secret} if secret else {}
    return {
        "volume": name,
        "claim": f"claim-{name}",
        "namespace": namespace,
        "secret": reference,
        "pods": list(pods),
    }


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("", ["ch.ctrox.csi.s3-driver"]),
        ([], ["ch.ctrox.csi.s3-driver"]),
        ("a, b\nc", ["a", "b", "c"]),
        (["a"], ["a"]),
    ],
)
def test_provisioners(given: Any, wanted: list[str]) -> None:
    assert (
        list(role("scope", fuse_recovery_provisioners=given)["provisioners"])[: len(wanted)]
        == wanted
    )


def test_a_driver_that_the_user_describes_is_one_to_look_for() -> None:
    given = '{"s3.example.com": {"recipe": "s3fs"}, "csi-rclone": {"endpoint": "https://s3"}}'
    assert "s3.example.com" in role("scope", fuse_recovery_drivers=given)["provisioners"]
    assert role("drivers", fuse_recovery_drivers=given)["csi-rclone"] == {
        "recipe": "rclone",
        "endpoint": "https://s3",
    }
    assert role("drivers", fuse_recovery_drivers="") == role("drivers_known")


@pytest.mark.parametrize("given", ["", " ", [], "[]"])
def test_no_volumes(given: Any) -> None:
    assert role("given", fuse_recovery_volumes=given) == []


def test_answers_of_a_survey() -> None:
    assert role("given", fuse_recovery_volumes='[{"volume": "pv-1"}]') == [{"volume": "pv-1"}]
    assert sorted(role("paths_now", fuse_recovery_paths="/var/lib/kubelet/a b\n/c\n")) == [
        "/c",
        "/var/lib/kubelet/a b",
    ]
    assert sorted(role("paths_now", fuse_recovery_paths="")) == list(role("paths_now")) == []
    assert role("credential_keys", fuse_recovery_credential_keys='{"access_key": ["user"]}')[
        "access_key"
    ] == ["user"]
    assert role("node") == "worker01"
    assert role("node", fuse_recovery_node=" n1 ") == "n1"


def test_secrets_are_read_only_to_mount_anew() -> None:
    found = {"volumes": [volume("a", secret="s3"), volume("b", secret="s3"), volume("c")]}
    asked = role("with_secret", __fuse_recovery_join=found)
    assert [one["volume"] for one in asked] == ["a", "b"]
    kubelet = role("with_secret", __fuse_recovery_join=found, fuse_recovery_strategy="kubelet")
    assert list(kubelet) == []


def test_only_pods_of_dead_mounts_are_moved_and_none_that_should_have_ended_long_ago() -> None:
    """The latter end when what holds them is unmounted."""
    found = {
        "volumes": [
            volume("dead", pod("1"), pod("2")),
            volume("well", pod("3")),
            volume("stuck", pod("4", 61)),
            volume("empty"),
        ]
    }
    told = [(["dead", "stuck"], ["1", "4"]), (["empty"], []), (["of another node"], ["9"])]
    findings: list[Any] = [
        {"verdict": "repair", "evidence": {"volumes": names, "pods": pods}} for names, pods in told
    ]
    well = {"volumes": ["well"], "pods": ["5"]}
    findings += [{"verdict": "repair"}, {"verdict": "refuse", "evidence": well}]
    remembered = planned(findings, __fuse_recovery_join=found)
    assert remembered == {"any": True, "volumes": {"dead": [], "stuck": []}}
    moved = role("moved", __fuse_recovery_join=found, __fuse_recovery_planned=remembered)
    assert [entry["volume"] for entry in moved] == ["dead"]
    assert planned(findings[-1:], __fuse_recovery_join=found) == {"any": False, "volumes": {}}
    # Also of a volume that the cluster does not have here: nothing is moved, and it is unmounted.
    assert planned(findings[2:3], __fuse_recovery_join=found)["any"] is True


def test_pods_are_not_moved_for_anothers_volume_of_the_same_name() -> None:
    """A tenant's dead inline volume, named like a PersistentVolume whose mounts are well (N17)."""
    found = {"volumes": [volume("pv-victim", pod("victim"))]}
    evidence = {"volumes": ["pv-victim"], "pods": ["tenant"]}
    findings = [{"verdict": "repair", "evidence": evidence}]
    assert planned(findings, __fuse_recovery_join=found) == {"any": True, "volumes": {}}
    evidence["pods"] = ["tenant", "victim"]
    assert planned(findings, __fuse_recovery_join=found)["volumes"] == {"pv-victim": []}


def test_a_host_does_not_have_the_controller_compare_its_words_for_hours() -> None:
    """With one that is no text, Ansible's filter would compare each with each. A task that computes
    a variable has no time limit.
    """
    found = {"volumes": [volume("dead", pod("1"))]}
    names = [{}, *(f"pv-{number}" for number in range(1_000)), "dead"]
    uids = [{}, *(f"uid-{number}" for number in range(1_000)), "1"]
    findings = [{"verdict": "repair", "evidence": {"volumes": names, "pods": uids}}]
    remembered = planned(findings, __fuse_recovery_join=found)
    given = {"__fuse_recovery_join": found, "__fuse_recovery_planned": remembered}
    assert list(role("broken", **given)) == ["dead"]
    assert [entry["volume"] for entry in role("moved", **given)] == ["dead"]


def test_two_lists_of_one_answer_are_not_multiplied() -> None:
    """A node has named one volume 600 times, and as many repairs of it: of these there were 360,000
    then, each time that the variable was read.
    """
    given: dict[str, Any] = {
        "__fuse_recovery_join": {"volumes": [volume("pv-1", pod("1")), volume("pv-2", pod("2"))]},
        "__fuse_recovery_later": ["pv-1"],
    }
    one = {"verdict": "repair", "evidence": {"volumes": ["pv-1"] * 600, "pods": ["1"] * 600}}
    for said in ([{}] * 600, [""] * 600, ["/m"] * 600, [[]], "x"):
        for paths, wanted in (([], []), (["/m", "/n"], ["/m"] if "/m" in said else [])):
            given["fuse_recovery_paths"] = paths
            remembered = planned([{**one, "given": said}] * 2, **given)
            assert remembered == {"any": True, "volumes": {"pv-1": wanted}}
            assert list(role("paths_later", __fuse_recovery_planned=remembered, **given)) == wanted
            now = role("paths_now", __fuse_recovery_planned=remembered, **given)
            assert sorted(now) == [path for path in paths if path not in wanted]


def test_who_is_left_out_of_the_list_is_not_gone_from_the_node() -> None:
    """A tenant whose list becomes too long while his pods are awaited keeps his mounts."""
    finding = {"summary": "volumes of namespace evil were not looked at", "reason": "too long"}
    given: dict[str, Any] = {
        "__fuse_recovery_waiting": ["mine", "theirs", "gone"],
        "__fuse_recovery_groups": [["evil", [volume("theirs")]], ["shop", [volume("mine")]]],
        "__fuse_recovery_join": {
            "volumes": [volume("mine", pod("1", 1))],
            "left_out": ["evil"],
            "findings": [finding],
        },
    }
    assert list(role("staying", **given)) == ["theirs"]
    assert sorted(role("ready", **given)) == ["gone", "mine"]
    told = ["volumes of namespace evil were not looked at: too long"]
    assert list(role("not_assessed", **given)) == told
    before = {"__fuse_recovery_not_told_before": ["before", *told]}
    assert list(role("not_assessed", **given, **before)) == ["before", *told]
    assert list(role("not_assessed")) == [] and list(role("staying")) == []


def test_a_namespace_whose_pods_are_not_moved_keeps_no_other_from_it() -> None:
    """It is left, with the reason."""
    groups: list[Any] = [["evil", [volume("theirs")]], ["shop", [volume("mine")]]]
    evil, shop = ({"item": group} for group in groups)
    refused = {"results": [{**evil, "failed": True, "msg": "bare\npod"}, {**shop, "failed": False}]}
    found = role("refused", __fuse_recovery_rehearsals=refused, __fuse_recovery_groups=groups)
    assert [list(pair) for pair in found] == [["evil", "bare\npod"]]
    movable = role("movable", __fuse_recovery_rehearsals=refused, __fuse_recovery_groups=groups)
    assert [group[0] for group in movable] == ["shop"]
    assert list(role("refused")) == [] == list(role("not_moved")) == list(role("left"))

    jobs = [{"item": {**evil}, "failed": True, "msg": "late"}, {"item": {**shop}, "finished": 1}]
    failed = role("failed_groups", __fuse_recovery_jobs={"results": jobs})
    assert [group[0] for group in failed] == ["evil"]
    assert list(role("failed_groups", __fuse_recovery_jobs={"skipped": True})) == []
    told = role("not_moved", fuse_recovery_moves={"results": jobs})
    assert [list(pair) for pair in told] == [["evil", "late"]]
    assert list(role("left", __fuse_recovery_unmoved=[["evil", "late"]])) == [
        "namespace evil: its pods were not moved: late"
    ]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, "0"),
        ({"fuse_recovery_strategy": "kubelet"}, "180"),
        (
            {
                "fuse_recovery_strategy": "kubelet",
                "fuse_recovery_options": {"containers_timeout": ""},
            },
            "180",
        ),
        (
            {
                "fuse_recovery_strategy": "kubelet",
                "fuse_recovery_options": {"containers_timeout": "20"},
            },
            "20",
        ),
        ({"fuse_recovery_strategy": "kubelet", "fuse_recovery_read_cluster": "false"}, "0"),
    ],
)
def test_containers_are_waited_for_where_the_role_moves_the_pods(
    given: dict[str, Any], wanted: str
) -> None:
    assert str(role("containers_timeout", **given)) == wanted


def test_a_pod_that_was_moved_speaks_for_no_other_of_its_name() -> None:
    def found(namespace: str, uid: str) -> dict[str, Any]:
        thing = {"kind": "container", "namespace": namespace, "name": "web-0/main", "node": "n1"}
        return {"object": thing, "evidence": {"pod": uid}, "verdict": "refuse"}

    cut = {
        "object": {"kind": "container", "name": "x/main"},
        "evidence": {"cut": "too long"},
        "verdict": "refuse",
    }
    told = {
        "pods": [{"uid": "1", "name": "web-0", "namespace": "evil", "claims": ["data"]}],
        "findings": [found("evil", "1"), found("shop", "2"), cut],
    }
    given = {
        "fuse_recovery_containers_result": told,
        "fuse_recovery_restart_pods": True,
        "__fuse_recovery_join": {
            "containers": [{"pod": "1", "namespace": "evil", "claim": "data"}]
        },
    }
    assert list(role("done", **given)) == ["evil/web-0/main"]
    assert list(role("done", fuse_recovery_containers_result=told)) == []
    assert list(role("done", fuse_recovery_restart_pods=True)) == []
    stayed = {"__fuse_recovery_unmoved": [["evil", "refused"]]}
    assert (
        list(role("done", **given, **stayed)) == [] == list(role("pods_moved", **given, **stayed))
    )
    dead = [{"control": "STOR-05", "summary": "main keeps it"}, {"control": "", "summary": "x"}]
    assert list(role("left", __fuse_recovery_left_after={"findings": dead})) == ["main keeps it"]


def test_a_secret_that_cannot_be_read_leaves_out_its_volume_alone() -> None:
    """One tenant's class may name a Secret that none may read: it stopped all repairs of a node."""
    volumes = [volume("pv-1", secret="mine"), volume("pv-2", secret="theirs", namespace="evil")]
    read = {"metadata": volumes[0]["secret"], "data": {}}
    unread = {"secret": volumes[1]["secret"], "reason": "Forbidden"}
    given: dict[str, Any] = {
        "__fuse_recovery_join": {"volumes": volumes, "findings": []},
        "__fuse_recovery_secrets": {"secrets": [read], "unread": [unread]},
    }
    assert [entry["volume"] for entry in role("found", **given)] == ["pv-1"]
    (told,) = role("not_assessed", **given)
    assert told == (
        "volume pv-2 was left out, since its Secret cannot be read: kube-system/theirs (Forbidden)"
    )


def to_move(*pods: dict[str, Any], **more: Any) -> list[tuple[str, str, str]]:
    containers = [
        {"pod": f"u{number}", "namespace": "shop", "claim": claim, "pod_name": "p"}
        for number in (1, 2)
        for claim in ("data", "logs")
    ]
    found = role(
        "to_move",
        __fuse_recovery_join={"containers": containers},
        fuse_recovery_containers_result={"pods": list(pods)},
        **more,
    )
    return [(one["pod"], one["namespace"], one["claim"]) for one in found]


def test_a_node_chooses_only_among_its_own_pods_in_the_scope() -> None:
    """Its namespaces and claims were moved as it said them."""
    told = {"uid": "u1", "namespace": "kube-system", "name": "x", "claims": ["data", "x"]}
    assert to_move({**told, "uid": "other"}) == []
    assert to_move(told) == [("u1", "shop", "data")]
    assert to_move({"uid": "u1"}) == to_move({**told, "claims": ["x"]}) == []
    both = (told, {**told, "uid": "u2"})
    assert len(to_move(*both)) == 2
    assert len(to_move(*both, fuse_recovery_max_repairs=1)) == 1
    assert to_move(*both, fuse_recovery_max_repairs="1") == [("u1", "shop", "data")]


def test_a_pod_of_many_claims_is_no_more_than_its_claims() -> None:
    """Of each claim that a node names there was a copy of the pod, with all of its claims."""
    told = {"uid": "u1", "claims": ["data"] * 600 + [f"x{number}" for number in range(600)]}
    assert to_move(told, {**told, "claims": ["logs"]}) == [("u1", "shop", "data")]
    for odd in ("x", [told["claims"]], {"uid": []}, {"uid": "u1", "claims": "data"}):
        assert to_move(odd) == []  # type: ignore[arg-type]
