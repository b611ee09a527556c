# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The bugs of old controller managers, each produced by the real one.

All need an attacher that serves.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ..common import wait
from .api import Api, attachment_name, path, pod, unique_name
from .controlplane import ControlPlane

DRIVER = "csi.example.com"
# A driver whose name makes "driver^handle" begin like the name of a VolumeAttachment.
COLLIDING_DRIVER = "csi-rack.example.com"
DETACH_ROLE = path("ClusterRole", "system:controller:attachdetach-controller")


@dataclass(frozen=True)
class Attached:
    """A volume, the pod that uses it, and where."""

    driver: str
    handle: str
    claim: str
    node: str
    pod: str

    @property
    def volume(self) -> str:
        """The PersistentVolume's name."""
        return f"pv-{self.claim}"

    @property
    def attachment(self) -> str:
        """The VolumeAttachment's name."""
        return attachment_name(self.handle, self.driver, self.node)

    @property
    def unique_name(self) -> str:
        """The volume's name in the node's status."""
        return unique_name(self.driver, self.handle)


def attach(api: Api, claim: str, driver: str, handle: str, node: str) -> Attached:
    """A pod with a volume on a node (made if it is not there), once the controller manager calls
    the volume attached.
    """
    if api.find("CSIDriver", driver) is None:
        api.create(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "CSIDriver",
                "metadata": {"name": driver},
                "spec": {"attachRequired": True},
            }
        )
    if api.find("Node", node) is None:
        api.add_node(node, driver)
    api.add_volume(claim, driver, handle)
    made = Attached(driver, handle, claim, node, f"{claim}-first")
    api.create(pod(made.pod, [claim], node))
    wait(lambda: made.unique_name in api.volumes_attached(node), f"{handle} attached to {node}", 30)
    return made


def _is_detached(api: Api, made: Attached) -> bool:
    return made.unique_name not in api.volumes_attached(made.node)


def collision(plane: ControlPlane, lengths: Sequence[int] = (67, 68, 69)) -> dict[int, Attached]:
    """Volumes whose `driver^handle` is so long, each attached to a node of its own and then left by
    its pod, with what came of it.

    Up to 1.23 the VolumeAttachment of the one with 68 characters is left over, and nobody says so.
    """
    api = plane.api()
    made = {}
    for length in lengths:
        handle = f"vol-{length}-".ljust(length - len(COLLIDING_DRIVER) - 1, "x")
        made[length] = attach(
            api, f"collision-{length}", COLLIDING_DRIVER, handle, f"collision-{length}"
        )
    for found in made.values():
        api.delete(path("Pod", found.pod), grace=0)
    for found in made.values():
        # The controller says "detached" of all of them.
        wait(
            partial(_is_detached, api, found),
            f"{found.handle} detached",
            30,
        )
    return made


@contextlib.contextmanager
def detach_denied(api: Api) -> Iterator[None]:
    """The controller manager may not delete VolumeAttachments: every detach fails at once, and is
    tried again ever later.
    """
    rules = (api.get(DETACH_ROLE) or {})["rules"]

    def denied(rule: dict[str, list[str]]) -> dict[str, list[str]]:
        concerned = "volumeattachments" in rule.get("resources", [])
        return (
            {**rule, "verbs": [verb for verb in rule["verbs"] if verb != "delete"]}
            if concerned
            else rule
        )

    api.merge(DETACH_ROLE, {"rules": [denied(rule) for rule in rules]})
    try:
        _wait_allowed(api, False)
        yield
    finally:
        api.merge(DETACH_ROLE, {"rules": rules})
        _wait_allowed(api, True)


def lost_attachment(
    plane: ControlPlane, name: str = "lost", node: str = "lost", seconds: float = 60
) -> Attached:
    """Attached, and believed to be so by the controller, but missing from its node's
    volumesAttached for good.

    A detach fails once, and a new pod for the same volume and node arrives while the controller
    waits to try again. With a kubelet on the node (hollow or stand-in) the volume is in its
    volumesInUse, too. Up to 1.24.4.
    """
    api = plane.api()
    first = attach(api, name, DRIVER, f"vol-{name}", node)
    with detach_denied(api):
        api.delete(path("Pod", first.pod), grace=0)
        # The first failure puts the volume back on the list; the next look, in the midst of the
        # back-off, takes it off and leaves it so. After the third there are 2 s to come in between.
        _wait_for_failed_detach(plane, first, seconds, failures=3)
        time.sleep(0.5)
        second = Attached(first.driver, first.handle, first.claim, node, f"{name}-second")
        api.create(pod(second.pod, [name], node))
        # The controller has to know of the pod before it may detach.
        time.sleep(0.5)
    return second


def killed_in_backoff(plane: ControlPlane, name: str = "killed", node: str = "killed") -> Attached:
    """A VolumeAttachment that no pod needs and nobody deletes: the controller manager was killed
    while it waited to detach again.
    """
    api = plane.api()
    found = attach(api, name, DRIVER, f"vol-{name}", node)
    with detach_denied(api):
        api.delete(path("Pod", found.pod), grace=0)
        # Right after a failure the volume is on the node's list once more, and a new controller
        # manager would find it there. By the third failure the back-off is long enough to meet the
        # moment when it is off again.
        _wait_for_failed_detach(plane, found, 60, failures=3)
        time.sleep(0.3)
        wait(
            lambda: found.unique_name not in api.volumes_attached(node),
            f"{found.handle} off the list of {node}",
            30,
        )
        plane.kill_controller_manager()
    plane.start_controller_manager()
    return found


def _wait_for_failed_detach(
    plane: ControlPlane, found: Attached, seconds: float, failures: int = 1
) -> None:
    """Until the detach has failed so often."""
    text = f'{found.unique_name} podName: nodeName:}}" failed'
    wait(
        lambda: plane.log().count(text) >= failures,
        f"detach of {found.handle} failed {failures} times",
        seconds,
    )


def _wait_allowed(api: Api, allowed: bool) -> None:
    """The API server's authorizer has seen the change."""
    asked = {"group": "storage.k8s.io", "resource": "volumeattachments", "verb": "delete"}
    spec = {
        "user": "system:serviceaccount:kube-system:attachdetach-controller",
        "resourceAttributes": asked,
    }
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    where = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    wait(
        lambda: api.call("POST", where, review)["status"].get("allowed", False) == allowed,
        "the changed role",
        20,
    )
