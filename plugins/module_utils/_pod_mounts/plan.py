# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""Pod mounts that are not their volume (STOR-07) and volumes that turned read-only (STOR-08).

wrong_mounts.py and turned.py judge them. Here they are limited to the scope, and refused where so
much is broken that it may be an outage. Pure: no I/O here.
"""

from __future__ import annotations

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.codes import Reason
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    Finding,
    Plan,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import kubelet
from ansible_collections.storage_ops.runbooks.plugins.module_utils._pod_mounts.model import (
    Options,
    State,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._pod_mounts.stacks import (
    filesystems,
    suspicious_filesystems,
    suspicious_stacks,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._pod_mounts.turned import (
    judge_filesystem,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._pod_mounts.wrong_mounts import (
    is_unknown,
    judge_stack,
)


def plan(state: State, options: Options) -> Plan:
    """A finding for everything in scope that is not as it should be, with its repair if that is
    proven and allowed.
    """
    suspicious = suspicious_stacks(state)
    wrong = [judge_stack(state, stack) for stack in suspicious]
    judged = (judge_filesystem(state, one) for one in suspicious_filesystems(state))
    turned = [finding for finding in judged if finding]
    # A mount of which nothing is known is no sign of an outage.
    broken = [finding for finding, stack in zip(wrong, suspicious) if not is_unknown(stack)]
    outage = [] if options.accept_majority else _outages(state, broken, turned)
    wanted = Plan([finding for finding in [*wrong, *turned] if _in_scope(finding, options)])
    _limit(wanted, options, outage)
    return wanted


def _limit(wanted: Plan, options: Options, outage: list[Reason]) -> None:
    """Refuse all repairs during an outage, else those beyond max_repairs."""
    helped = [finding for finding in wanted.findings if finding.repair or finding.workload]
    too_many = Reason(
        "too_many_repairs",
        f"max_repairs is {options.max_repairs}: run again for this one, or raise it",
    )
    for finding in helped if outage else helped[options.max_repairs :]:
        finding.refuse(*(outage or [too_many]))
        # Nor does the playbook move a workload, which would interrupt it for nothing.
        finding.workload = None


def _outages(state: State, wrong: list[Finding], turned: list[Finding]) -> list[Reason]:
    """Why nothing is repaired: more than half of the mounts, or of the filesystems, are broken."""
    return [
        Reason(
            "majority_broken",
            f"{len(broken)} of the node's {total} {what} look broken at once: that may be an "
            "outage. If they all have to be repaired, set accept_majority",
        )
        for broken, total, what in (
            (wrong, len(state.places(kubelet.PUBLISH)), "pod mounts"),
            (turned, len(filesystems(state)), "volume filesystems"),
        )
        # More than half, however few there are.
        if 2 * len(broken) > total
    ]


def _in_scope(finding: Finding, options: Options) -> bool:
    """Whether a finding is in the user's scope. Marks it as named if the scope names it."""
    # By mount point or by PersistentVolume; a filesystem has several of both.
    points, volumes = set(finding.evidence["points"]), set(finding.evidence["volumes"])
    finding.named = bool(points & set(options.paths) or volumes & set(options.volumes))
    return finding.named or not (options.paths or options.volumes)
