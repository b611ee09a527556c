# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Causes that events and waiting states name, by the catalogue.

Pure: no I/O here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone

from .._core.texts import words
from .._kube import observation
from .._kube.events import VOLUME_REASONS, WAITS_FOR_SCHEDULER, Message
from .._kube.objects import Node, Pod, Volume, age
from . import catalogue
from .catalogue import Entry
from .state import Cause, Seen, TriageState

# A problem behind an event that is this much older than the newest one of its reason has passed:
# the kubelet repeats itself at least every 2 minutes and 3 seconds (podAttachAndMountTimeout of
# pkg/kubelet/volumemanager/volume_manager.go).
OUTDATED_SECONDS = 600.0
# An event explains why a running pod became not ready only if it is at most this much older than
# that: the probe fails a few times (failureThreshold) before the pod is not ready.
BEFORE_NOT_READY_SECONDS = 300.0

# Begins the names of CSI volumes in node.status (pkg/volume/csi/csi_plugin.go: CSIPluginName).
_CSI = "kubernetes.io/csi/"


# How many messages are kept of one object, and looked at for one pod; the newest. Kubernetes itself
# makes one event of those that repeat each other, so an object has few.
MAX_MESSAGES = 50
_NEVER = datetime.min.replace(tzinfo=timezone.utc)


class Newest:
    """The newest messages about one object, of however many its owner has written."""

    def __init__(self) -> None:
        self._kept: list[Message] = []

    def add(self, message: Message) -> None:
        """One more; it may come twice, where a list was read again."""
        self._kept.append(message)
        if len(self._kept) >= 2 * MAX_MESSAGES:
            self._kept = list(self.all())

    def all(self) -> tuple[Message, ...]:
        """Those that are kept."""
        once = dict.fromkeys(self._kept)
        if len(once) <= MAX_MESSAGES:
            return tuple(once)
        by_time = sorted(once, key=lambda message: message.last or _NEVER, reverse=True)
        return tuple(by_time[:MAX_MESSAGES])


# Which messages still hold


def current(seen: Seen, state: TriageState) -> list[Message]:
    """What still holds of the messages about a pod and its unbound claims, newest first."""
    said = _said_of(seen, state)
    # What containers and the scheduler give as reasons holds now, and has no time.
    newest: dict[str, datetime] = {}
    for message in said:
        last = message.last or state.now
        newest[message.reason] = max(newest.get(message.reason, last), last)
    claims = state.claims_of(seen.pod)
    all_bound = all(claim and state.is_bound(claim) for _name, claim in claims)
    volumes = {name: claim.volume for name, claim in claims if claim}
    answers = _answers(said)
    return [
        message
        for message in said
        if age(newest[message.reason], message.last or state.now) <= OUTDATED_SECONDS
        and not _has_passed(message, answers, volumes, seen, all_bound)
    ]


def _answers(said: Iterable[Message]) -> dict[str, datetime]:
    """When a driver last answered; and by volume, when it last did so to the kubelet's request to
    mount that one.
    """
    answers = {"": _NEVER}
    for message in said:
        if catalogue.answered(message.text):
            for volume in ("", catalogue.mounted(message.text)):
                answers[volume] = max(answers.get(volume, _NEVER), message.last or _NEVER)
    return answers


def _said_of(seen: Seen, state: TriageState) -> list[Message]:
    """The messages about a pod and its unbound claims, newest first, so many that all pods have
    their turn.
    """
    pod = seen.pod
    said = [*seen.waiting, *state.messages.get(pod.uid, ())]
    for _name, claim in state.claims_of(pod):
        if claim and not state.is_bound(claim):
            said += state.messages.get(claim.uid, ())
    # It has found its node since.
    if pod.node:
        said = [message for message in said if message.reason != "FailedScheduling"]
    return sorted(said, key=lambda message: message.last or state.now, reverse=True)[:MAX_MESSAGES]


def _has_passed(
    message: Message,
    answers: Mapping[str, datetime],
    volumes: Mapping[str, str],
    seen: Seen,
    all_bound: bool,
) -> bool:
    """Something else shows that the message does not hold any more.

    ``answers``: of drivers; ``volumes``: those of the pod's claims, by name; ``all_bound``: all
    claims of the pod are.
    """
    # Normal until the pod has a node; after that _bypassed_scheduler reports it.
    if message.reason == WAITS_FOR_SCHEDULER:
        return True
    entry = catalogue.match(message.reason, message.text)
    if entry and entry.of_claims and all_bound:
        return True
    if not message.last:
        return False
    # What went wrong while the pod was mounted says nothing about why it does not end.
    if seen.ending and message.last < seen.ending and not (entry and entry.lasts):
        return True
    # A driver that has answered since is registered: after a reboot the kubelet mounts before the
    # drivers' registrars have run.
    if entry and entry.id == "driver-not-registered":
        return answers[""] > message.last
    # The kubelet asks a driver to mount a volume only when it has read its claim, and it is
    # attached. Right after a pod has come, or an attach, it may be told for a moment that it may
    # not read the claim, or the VolumeAttachment.
    volume = catalogue.volume_of(message.text) or volumes.get(catalogue.claim_of(message.text))
    asked = answers.get(volume, _NEVER) if volume else _NEVER
    return bool(entry and entry.before_mounting and asked > message.last)


def of_a_running_pod(messages: Iterable[Message], seen: Seen) -> list[Message]:
    """Those that can explain why a pod runs and is not ready, by a volume."""
    return [
        message for message in messages if _since_it_runs(message, seen) and _about_storage(message)
    ]


def _since_it_runs(message: Message, seen: Seen) -> bool:
    """The message is about the time when the pod became not ready."""
    # All others are about its start, or have passed.
    if not seen.started or not message.last:
        return True
    return (
        message.last > seen.started
        and age(seen.since or message.last, message.last) <= BEFORE_NOT_READY_SECONDS
    )


def _about_storage(message: Message) -> bool:
    entry = catalogue.match(message.reason, message.text)
    return entry.storage if entry else message.reason in VOLUME_REASONS


# What they say


def told(messages: Iterable[Message], seen: Seen, state: TriageState) -> Cause | None:
    """The cause by the message that says most; an unknown message is shown as it is."""
    known = [(message, catalogue.match(message.reason, message.text)) for message in messages]
    if not known:
        return None
    message, entry = min(known, key=lambda pair: _rank(*pair))
    if entry is None:
        return _unknown(message)
    return Cause(
        entry.control,
        entry.cause,
        entry.look,
        "major" if entry.storage else "info",
        facts=_facts(entry, message, seen, state),
    )


def _rank(message: Message, entry: Entry | None) -> tuple[int, int]:
    """Known causes, then unknown messages about a volume, then what is not storage, then "it timed
    out", then all else that is unknown.
    """
    # Among known causes the order of the catalogue decides.
    if entry is None:
        return (1 if message.reason in VOLUME_REASONS else 4), 0
    return (3 if entry.vague else 0 if entry.storage else 2), catalogue.ENTRIES.index(entry)


def _unknown(message: Message) -> Cause:
    volume = message.reason in VOLUME_REASONS
    look = "only the message itself explains it"
    if volume:
        look += "; look at the log of the CSI driver's node pod on {node}"
    return Cause(
        "",
        f"a message that triage does not know: {message.reason}: {message.text}",
        look,
        "major" if volume else "minor",
    )


def _facts(entry: Entry, message: Message, seen: Seen, state: TriageState) -> dict[str, str]:
    """What the command for a message needs in addition to the pod, its node and its volume: the
    object that the message is about, if that is clear.
    """
    node = state.seen.nodes.get(seen.pod.node)
    volumes = state.bound(seen.pod)
    # The kubelet quotes the volume's name: MountVolume.SetUp failed for volume "pvc-..."
    # (GenerateMsg of pkg/volume/util/operationexecutor/operation_executor.go).
    named = [volume for volume in volumes if f'"{volume.name}"' in message.text] or volumes
    if entry.metadata:
        return _incomplete_attachment(entry.metadata, named, seen.pod.node, state)
    if entry.control == "STOR-09":
        return _refused_share(message, seen.pod, state)
    if entry.control == "STOR-13" and node and _is_in_tree(named) and _lacks_in_tree(node):
        return {"in_tree_node": node.name}
    return {}


def _refused_share(message: Message, pod: Pod, state: TriageState) -> dict[str, str]:
    """The share that the kubelet could not mount: it is not mounted, so the playbook does not know
    it by itself.
    """
    # The kubelet shows the arguments of mount(8) (k8s.io/mount-utils, mount_linux.go, doMount).
    said = set(words(message.text))
    share = next((share for share in state.shares(pod) if share in said), "")
    return {"more": state.check_of(share, pod)}


def _incomplete_attachment(
    key: str, volumes: Sequence[Volume], node: str, state: TriageState
) -> dict[str, str]:
    """The one VolumeAttachment that lacks a key, and what makes the playbook check that key."""
    # The playbook does not know by itself which keys the attachments of other drivers need.
    own = [state.own_attachment(volume, node) for volume in volumes]
    lacking = [attachment for attachment in own if attachment and key not in attachment.metadata]
    if len(lacking) != 1:
        return {}
    needs = observation.metadata_arguments(lacking[0].driver, {lacking[0].driver: (key,)})
    return {"attachment": lacking[0].name, "more": needs}


def _is_in_tree(volumes: Iterable[Volume]) -> bool:
    return not any(volume.driver for volume in volumes)


def _lacks_in_tree(node: Node) -> bool:
    """The kubelet waits for a volume of an in-tree plugin."""
    # Such a plugin makes no VolumeAttachment, so only the node's own lists show it.
    # A kubelet may write 70,000 names into each list.
    listed = set(node.volumes_attached)
    return any(not name.startswith(_CSI) and name not in listed for name in node.volumes_in_use)
