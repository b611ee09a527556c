# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A stand-in for CSI's external-attacher and the storage array behind it: it answers
VolumeAttachments through the real API.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from types import TracebackType

from ..common import LabError
from .api import Api, ApiError, Object, now, path

PERIOD = 0.1
RETRY = 1.0


@dataclass(frozen=True)
class Behaviour:
    """How a driver, or one volume, takes a request."""

    # Answered with this message, again and again.
    fail: str = ""
    # Never answered.
    silent: bool = False
    # Answered after so many seconds.
    slow: float = 0
    # Which requests that is about; the other kind just works.
    attach: bool = True
    detach: bool = True
    # What the driver publishes with the attachment (publishInfo, serialNumber ...).
    metadata: dict[str, str] = field(default_factory=dict)


OK = Behaviour()


class Attacher:
    """Serves all drivers.

    A volume that only one node may have is refused to a second one, as an array does.
    """

    def __init__(self, api: Api) -> None:
        self.api = api
        self._behaviours: dict[str, Behaviour] = {}
        self._since: dict[str, float] = {}
        self._retry: dict[str, float] = {}
        self._shared: dict[str, bool] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        # What went wrong in the thread; a test that waits in vain finds it here.
        self.problem = ""

    def behave(self, name: str, behaviour: Behaviour = OK) -> None:
        """From now on a driver, or the volume of this name (which counts more), behaves so."""
        self._behaviours[name] = behaviour
        self._retry.clear()

    def start(self) -> None:
        """Begin to serve."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._serve, name="attacher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Serve no more."""
        self._stop.set()
        if self._thread:
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Attacher:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.stop()

    def _serve(self) -> None:
        while not self._stop.wait(PERIOD):
            try:
                attachments = self.api.all("VolumeAttachment")
                for attachment in attachments:
                    self._answer(attachment, attachments)
            except LabError as exc:
                # The API server may be away for a while; that is part of some tests.
                self.problem = str(exc)

    def _answer(self, attachment: Object, attachments: list[Object]) -> None:
        meta, volume = (
            attachment["metadata"],
            attachment["spec"]["source"].get("persistentVolumeName", ""),
        )
        driver = attachment["spec"]["attacher"]
        finalizer = "external-attacher/" + driver.replace(".", "-")
        detaching = "deletionTimestamp" in meta
        if not detaching and (attachment.get("status") or {}).get("attached"):
            return
        if detaching and finalizer not in meta.get("finalizers", []):
            return
        behaviour = self._behaviours.get(volume) or self._behaviours.get(driver, OK)
        affected = behaviour.detach if detaching else behaviour.attach
        if affected and behaviour.silent:
            return
        request = f"{meta['uid']}/{detaching}"
        age = time.monotonic() - self._since.setdefault(request, time.monotonic())
        if (affected and age < behaviour.slow) or time.monotonic() < self._retry.get(request, 0):
            return
        error = behaviour.fail if affected else ""
        if not detaching and not error:
            error = self._taken(attachment, attachments)
        where = path("VolumeAttachment", meta["name"])
        try:
            if not detaching and finalizer not in meta.get("finalizers", []):
                self.api.merge(
                    where,
                    {
                        "metadata": {
                            "uid": meta["uid"],
                            "finalizers": [*meta.get("finalizers", []), finalizer],
                        }
                    },
                )
            if error:
                self._retry[request] = time.monotonic() + RETRY
                self.api.merge(
                    f"{where}/status",
                    _status(
                        meta,
                        **{
                            f"{'detach' if detaching else 'attach'}Error": {
                                "time": now(),
                                "message": error,
                            }
                        },
                    ),
                )
            elif detaching:
                self.api.merge(f"{where}/status", _status(meta, attached=False, detachError=None))
                left = [name for name in meta["finalizers"] if name != finalizer]
                self.api.merge(where, {"metadata": {"uid": meta["uid"], "finalizers": left}})
            else:
                self.api.merge(
                    f"{where}/status",
                    _status(
                        meta,
                        attached=True,
                        attachError=None,
                        attachmentMetadata=behaviour.metadata or None,
                    ),
                )
        except ApiError as exc:
            # Gone, or another one by now: the next look tells.
            if exc.status not in (404, 409, 422):
                raise

    def _taken(self, attachment: Object, attachments: list[Object]) -> str:
        """Why the array does not let this node have the volume."""
        volume, name = (
            attachment["spec"]["source"].get("persistentVolumeName"),
            attachment["spec"]["nodeName"],
        )
        if not volume:
            return ""
        if volume not in self._shared:
            found = self.api.find("PersistentVolume", volume) or {"spec": {}}
            self._shared[volume] = bool(
                {"ReadWriteMany", "ReadOnlyMany"} & set(found["spec"].get("accessModes", []))
            )
        for other in attachments:
            holds = (other.get("status") or {}).get("attached") and other["spec"]["source"].get(
                "persistentVolumeName"
            ) == volume
            if holds and other["spec"]["nodeName"] != name and not self._shared[volume]:
                return (
                    f"rpc error: code = FailedPrecondition desc = volume {volume} is already "
                    f"published to node {other['spec']['nodeName']}"
                )
        return ""


def _status(meta: Object, **changes: object) -> Object:
    """A change of status, for this very object only."""
    return {
        "metadata": {"uid": meta["uid"]},
        "status": {"attached": False, **changes} if "attached" in changes else changes,
    }
