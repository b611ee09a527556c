# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who is affected by a finding: pods, claims, namespaces and the workloads of the pods.

A node knows pods by uid and volumes by the name of their PersistentVolume, which are in the
kubelet's paths. The module volume_user_info says whose they are. Only for people: nothing is
decided on it. Pure: no I/O here.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._core import untrusted
from .._core.controls import NODE_CONTROLS
from .._core.errors import words
from .._core.turns import in_turns
from .._kube.users import MAX_PODS, MAX_VOLUMES
from . import clean

# Names of each kind that a finding has; their number is told as well.
MAX_NAMED = 10
KINDS = ("pods", "claims", "namespaces", "owners")

# Paths below the kubelet's folder, see _node/kubelet.py for their sources.
_UID = r"[0-9A-Za-z-]{1,64}"
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}"
_FORMS = (
    re.compile(
        rf"/pods/(?P<pod>{_UID})/(?:volumes|volumeDevices)/[\w.-]+~[\w.-]+/(?P<volume>{_NAME})"
    ),
    re.compile(rf"/pods/(?P<pod>{_UID})/volume-subpaths/(?P<volume>{_NAME})/"),
    re.compile(
        r"/plugins/kubernetes\.io/csi/(?:pv/|volumeDevices/(?:staging/|publish/)?)"
        rf"(?P<volume>{_NAME})"
    ),
)
# Evidence that has paths of what the finding is about; other paths may be there to compare with.
_PATHS = ("points", "mounts", "covered", "also_mounted", "mounts_on_this_node", "reasons")
# An audit's list that is not whole ends like this (shortening.clip, clean.plain).
_CUT = re.compile(r"\(?\+\d+ more")


@dataclass(frozen=True)
class Named:
    """What the evidence of a finding names."""

    volumes: tuple[str, ...] = ()
    # (uid of a pod, its volume). The name may be the pod's own: its owner chooses those of inline
    # volumes, and of volumes without a PersistentVolume.
    mounted: tuple[tuple[str, str], ...] = ()
    # By uid.
    pods: tuple[str, ...] = ()
    # As namespace/name.
    claims: tuple[str, ...] = ()
    # The evidence is cut, so there may be more.
    cut: bool = False


@dataclass(frozen=True)
class Users:
    """The answer of volume_user_info; empty where the cluster was not asked."""

    # By name: claim, and how many pods use it.
    volumes: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    pods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # Pods by claim.
    by_claim: Mapping[str, list[Mapping[str, Any]]] = field(default_factory=dict)


NOT_ASKED = Users()


def question(findings: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Volumes and pods to look up, those of the first findings first."""
    volumes: list[tuple[str, str, str]] = []
    pods: list[tuple[str, str, str]] = []
    for finding in findings:
        named, host, space = named_by(finding), finding["host"], _space(finding)
        inside = (volume for _pod, volume in named.mounted)
        volumes += [(host, space, name) for name in (*named.volumes, *inside)]
        pods += [(host, space, uid) for uid in named.pods]
    return {"volumes": _first(volumes, MAX_VOLUMES), "pods": _first(pods, MAX_PODS)}


def _space(finding: Mapping[str, Any]) -> str:
    """The namespace that the finding itself names."""
    claim = str(finding["evidence"].get("claim", ""))
    return str(finding["object"]["namespace"]) or claim.rpartition("/")[0]


def _first(named: Iterable[tuple[str, str, str]], most: int) -> list[str]:
    """So many names, of ``(host, namespace, name)``."""
    # A node writes its findings itself, and a tenant on it may cause any number of them.
    turns = in_turns(dict.fromkeys(named), lambda one: one[:2])
    turns = in_turns(turns, lambda one: one[0])
    return list(dict.fromkeys(name for _host, _space, name in turns))[:most]


def named_by(finding: Mapping[str, Any]) -> Named:
    """What a finding's evidence names."""
    evidence, thing = finding["evidence"], finding["object"]
    texts = [text for key in _PATHS for text in _texts(evidence.get(key))]
    texts += [thing["name"], finding["reason"]]
    found = [match for text in texts for form in _FORMS for match in form.finditer(text)]
    claims = [*_texts(evidence.get("claim")), *_texts(evidence.get("claims"))]
    return Named(
        _volumes_named(evidence, thing, found),
        _mounts_named(found),
        _pods_named(evidence, found),
        tuple(dict.fromkeys(claim for claim in claims if "/" in claim)),
        _is_cut(evidence),
    )


def _volumes_named(
    evidence: Mapping[str, Any], thing: Mapping[str, Any], found: Iterable[re.Match[str]]
) -> tuple[str, ...]:
    """``found``: the paths of the kubelet that the finding has."""
    # A lost node's volumes stand with their claim and driver behind them.
    names = [
        text.partition(" ")[0]
        for text in (evidence.get("volume"), *_list(evidence.get("volumes")))
        if isinstance(text, str)
    ]
    names += [thing["name"]] if thing["kind"] == "PersistentVolume" else []
    names += [match["volume"] for match in found if not _is_in_pod(match)]
    return tuple(dict.fromkeys(name for name in names if untrusted.is_name(name)))


def _is_in_pod(match: re.Match[str]) -> bool:
    return "pod" in match.re.groupindex


def _mounts_named(found: Iterable[re.Match[str]]) -> tuple[tuple[str, str], ...]:
    """By uid of the pod, and name."""
    every = [(match["pod"], match["volume"]) for match in found if _is_in_pod(match)]
    return tuple(dict.fromkeys(one for one in every if untrusted.is_name(one[1])))


def _pods_named(evidence: Mapping[str, Any], found: Iterable[re.Match[str]]) -> tuple[str, ...]:
    """By uid."""
    uids = [
        *_texts(evidence.get("pod")),
        *(text for text in _texts(evidence.get("pods")) if "/" not in text),
        *(match["pod"] for match in found if _is_in_pod(match)),
    ]
    return tuple(dict.fromkeys(uid for uid in uids if re.fullmatch(_UID, uid)))


def _is_cut(evidence: Mapping[str, Any]) -> bool:
    """Some of what is affected had no room in the evidence."""
    every = [
        text
        for key in (*_PATHS, "pods", "volumes", "claims")
        for text in _list(evidence.get(key))
        if isinstance(text, str)
    ]
    return "cut" in evidence or any(map(_CUT.match, every))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(value: Any) -> list[str]:
    """The texts in a value of the evidence, whatever its form."""
    if isinstance(value, str):
        return [value] if value else []
    if isinstance(value, Mapping):
        return [text for inner in value.values() for text in _texts(inner)]
    return [text for inner in value for text in _texts(inner)] if isinstance(value, list) else []


def read_users(result: Any) -> Users:
    """The answer of the module; of anything else, nothing is known."""
    if not isinstance(result, Mapping) or not isinstance(result.get("pods"), (list, tuple)):
        return NOT_ASKED
    by_claim: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    try:
        volumes = {
            str(one["name"]): (clean.line(one["claim"], 400), int(one["pods"]))
            for one in result["volumes"]
        }
        pods = {}
        for one in result["pods"]:
            pod = {key: clean.line(one[key], 400) for key in ("namespace", "name", "node", "owner")}
            pods[str(one["uid"])] = pod
            for claim in one["claims"]:
                by_claim[clean.line(claim, 400)].append(pod)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"its result is not one of volume_user_info: {words(error)}") from error
    return Users(volumes, pods, by_claim)


def affected_by(finding: Mapping[str, Any], users: Users) -> dict[str, Any]:
    """By each of KINDS that is known, how many are affected (``count``) and the first of them
    (``names``); and whether these are all (``complete``).
    """
    named, thing = named_by(finding), finding["object"]
    volumes = dict.fromkeys([*named.volumes, *_mounted(named, users)])
    known = [users.volumes[name] for name in volumes if name in users.volumes]
    claims = [*named.claims, *(claim for claim, _number in known if claim)]
    pods, left = _pods(finding, named, users, known)
    titles = _titles(thing, pods)
    told = {
        "pods": _counted(titles, left),
        "claims": _counted(claims),
        "namespaces": _counted(_namespaces(thing, pods, claims)),
        "owners": _counted(_owner(pod) for pod in pods if pod["owner"]),
    }
    return {
        **{kind: one for kind, one in told.items() if one["count"]},
        "complete": not (left or named.cut) and _all_known(named, known, titles),
    }


def _titles(thing: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> list[str]:
    known = [*pods, *([thing] if thing["kind"] == "pod" else [])]
    return [f"{pod['namespace']}/{pod['name']}" for pod in known]


def _namespaces(
    thing: Mapping[str, Any], pods: Iterable[Mapping[str, Any]], claims: Iterable[str]
) -> list[str]:
    return [
        thing["namespace"],
        *(pod["namespace"] for pod in pods),
        *(claim.partition("/")[0] for claim in claims),
    ]


def _all_known(named: Named, known: Sequence[tuple[str, int]], titles: Sequence[str]) -> bool:
    """Whether it is known of all that the finding names whose it is; False where it names nothing.

    ``known``: its volumes of which it is; ``titles``: its pods.
    """
    # Of a pod that the node names, a volume without a claim is its own.
    if named.pods:
        return True
    return len(known) == len(named.volumes) and bool(named.volumes or titles)


def _mounted(named: Named, users: Users) -> list[str]:
    """The volumes in the folders of pods, of those pods that have their claims."""
    return [
        volume
        for pod, volume in named.mounted
        if volume in users.volumes
        and users.pods.get(pod) in users.by_claim.get(users.volumes[volume][0], [])
    ]


def _pods(
    finding: Mapping[str, Any],
    named: Named,
    users: Users,
    known: Iterable[tuple[str, int]],
) -> tuple[list[Mapping[str, Any]], int]:
    """The pods of a finding as far as they are known, and how many more there are."""
    # Those that the node itself names, since another node's pods of the volume may be well.
    if named.pods:
        pods = [users.pods[uid] for uid in named.pods if uid in users.pods]
        return pods, len(named.pods) - len(pods)
    of_claims: list[Mapping[str, Any]] = []
    left = 0
    for claim, number in dict.fromkeys(known):
        listed = users.by_claim.get(claim, [])
        of_claims += listed
        left += max(number - len(listed), 0)
    if finding["control"] in NODE_CONTROLS:
        here = (finding["object"]["node"], finding["host"])
        of_claims = [pod for pod in of_claims if pod["node"] in here]
    return of_claims, left


def _owner(pod: Mapping[str, Any]) -> str:
    kind, _blank, name = pod["owner"].partition(" ")
    return f"{kind} {pod['namespace']}/{name}"


def _counted(names: Iterable[str], more: int = 0) -> dict[str, Any]:
    distinct = Counter(name for name in names if name)
    return {"count": len(distinct) + more, "names": list(distinct)[:MAX_NAMED]}
