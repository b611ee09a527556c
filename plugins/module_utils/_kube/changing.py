# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changes and deletions of an object that others write too."""

from __future__ import annotations

import contextlib
from typing import Callable, Optional, TypeVar

from .._core.engine import ActionFailed, Prevented
from .client import Cluster, Conflict, KubeError, NotFound, Object

T = TypeVar("T")
# What is to be patched in an object, None for nothing; and it may be gone.
Change = Callable[[Optional[Object]], Optional[Object]]
# No change is begun with less of the deadline left (seconds): it has to be followed to its end,
# with the repetitions of a request that an API server in trouble lost.
LEAST_SECONDS = 30.0
# Nodes change all the time: the kubelet of one that has come back writes its Node often, and each
# write is another resourceVersion.
TRIES = 10


def again(act: Callable[[], T]) -> T:
    """What reads and then writes, until nothing has changed in between, a few times."""
    # The API server refuses a resourceVersion that is not the newest (409, optimistic concurrency:
    # Kubernetes API conventions, "Concurrency Control and Consistency").
    for _try in range(TRIES - 1):
        try:
            return act()
        except (Conflict, NotFound):
            pass
    return act()


def change_object(cluster: Cluster, where: str, change: Change, dry_run: bool = False) -> None:
    """Patch an object as ``change`` says of what was read, provided that it is that still."""
    # A JSON merge patch replaces a list whole (RFC 7396), so without the resourceVersion it might
    # drop what another writer has added.

    def act() -> None:
        item = cluster.get(where)
        body = change(item)
        if item is None or body is None:
            return
        read = {name: item["metadata"][name] for name in ("uid", "resourceVersion")}
        meta = {**body.get("metadata", {}), **read}
        cluster.patch(where, {**body, "metadata": meta}, dry_run=dry_run)

    again(act)


def delete_exactly(
    cluster: Cluster,
    where: str,
    uid: str,
    dry_run: bool = False,
    grace: int | None = None,
    version: str = "",
) -> None:
    """Delete that object; one that is gone already, or replaced by another one, needs no
    deletion.

    ``version``: its resourceVersion; one that was changed since stays as well.
    """
    # A precondition on the uid (DeleteOptions of k8s.io/apimachinery meta/v1) spares an object that
    # was made again under the name.
    with contextlib.suppress(NotFound, Conflict):
        cluster.delete(where, uid, dry_run, grace, version)


def not_done(error: KubeError) -> ActionFailed:
    """What a failed request means for its action: where no answer came it may be done."""
    # A 4xx is the refusal of a request (RFC 9110, section 15.5).
    kind = Prevented if 400 <= error.status < 500 else ActionFailed
    return kind(str(error), error.code)
