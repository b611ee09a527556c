# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Event filter for ansible-rulebook: what an Alertmanager says, as one small event for each alert,
with nothing in it but valid names.
"""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from typing import Any

DOCUMENTATION = r"""
---
short_description: Make events of the alerts in a webhook of Alertmanager
description:
  - Makes an event of each alert that fires, C(alert) with C(name), C(namespace), C(pod) and
    C(node), and drops everything else.
  - Whoever can write a label would otherwise write variables of a playbook, which Ansible takes for
    templates. So an alert is dropped when one of these labels is not a name as Kubernetes allows
    it.
  - An alert with C(exported_namespace), C(exported_pod) or C(exported_node) is dropped, too, unless
    O(exported_labels) says what these mean.
options:
  exported_labels:
    description:
      - Only C(exported_namespace), C(exported_pod) and C(exported_node) count in an alert that has
        one of them. Prometheus renames the labels of kube-state-metrics so if it does not honor
        them (C(honor_labels)), and then the others are of the pod that was asked for the metric.
      - Turn this on only if no tenant can write alerts. A monitoring stack that gives tenants rules
        or metrics of their own enforces C(namespace) alone, so a tenant's
        C(exported_namespace) would name any other namespace.
    type: bool
    default: false
  max_alerts:
    description: How many alerts of one webhook become events. The others are dropped, with a
      warning. Each namespace has its turn, so none keeps the others out.
    type: int
    default: 100
  pods_per_namespace:
    description:
      - Of how many pods (or nodes) of a namespace the alerts become events within half an hour. The
        others are dropped, with a warning, and Alertmanager repeats them as long as they fire.
      - Whoever makes pods in a namespace can have any number of them fail, each under a new name,
        and each makes a run that all others wait for.
    type: int
    default: 20
"""

EXAMPLES = r"""
- eda.builtin.webhook:
    port: 5000
  filters:
    - storage_ops.runbooks.alerts:
"""

LOG = logging.getLogger(__name__)
# RFC 1123, as for namespaces, pods and nodes.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
# In place of an alert that names what is no name, or whose names may be a tenant's word.
_WRONG: dict[str, str] = {}
_EXPORTED: dict[str, str] = {}
_WARNINGS = (
    (_WRONG, "an alert was dropped: its name, or its namespace, pod or node, is not a valid name"),
    (
        _EXPORTED,
        "an alert was dropped: it has exported_namespace, exported_pod or exported_node; see "
        "storage_ops_exported_labels in the rulebook",
    ),
)
_ALERT = re.compile(r"[a-zA-Z_][a-zA-Z0-9_:.-]{0,127}")
# As long as the rulebooks do not look at the same pod again.
SHARE_SECONDS = 1800
# By namespace, the pods and nodes of which something became an event, and when.
_SHARES: dict[str, dict[tuple[str, str], float]] = {}


def main(
    event: dict[str, Any],
    max_alerts: int = 100,
    exported_labels: bool | str = False,
    pods_per_namespace: int = 20,
) -> list[dict[str, Any]]:
    """The events that a webhook stands for: none, when it is not Alertmanager's."""
    payload = event.get("payload")
    alerts = payload.get("alerts") if isinstance(payload, dict) else None
    if not isinstance(alerts, list):
        LOG.warning("a webhook was dropped: it has no list of alerts")
        return []
    # A variable of ansible-rulebook may be a text.
    exported = str(exported_labels).lower() in ("true", "yes", "on", "1")
    found = [_alert(alert, exported) for alert in alerts]
    for reason, warning in _WARNINGS:
        # As many as there may be alerts, so that no tenant fills the log.
        for _number in range(min(sum(kept is reason for kept in found), max_alerts)):
            LOG.warning(warning)
    # Alerts of several metrics about the same pod are one question.
    unique = {tuple(sorted(kept.items())): kept for kept in found if kept}
    allowed = _within_shares(_in_turns(list(unique.values())), max_alerts, pods_per_namespace)
    chosen = allowed[:max_alerts]
    if len(allowed) > max_alerts:
        LOG.warning(
            "%d of %d alerts were dropped: one webhook may hold %d",
            len(allowed) - max_alerts,
            len(unique),
            max_alerts,
        )
    return [{"alert": kept} for kept in chosen]


def _within_shares(
    alerts: list[dict[str, str]], max_alerts: int, most: int
) -> list[dict[str, str]]:
    """Those whose namespace has not used up its share. Only those that become events count."""
    now = time.monotonic()
    _forget(now - SHARE_SECONDS)
    allowed: list[dict[str, str]] = []
    dropped: Counter[str] = Counter()
    for kept in alerts:
        # Without a namespace, no tenant has written it.
        known = _SHARES.setdefault(kept["namespace"], {}) if kept["namespace"] else {}
        about = kept["pod"], kept["node"]
        if about not in known and len(known) >= most:
            dropped[kept["namespace"]] += 1
            continue
        if len(allowed) < max_alerts:
            known.setdefault(about, now)
        allowed.append(kept)
    for namespace, number in dropped.items():
        LOG.warning(
            "%d alerts of namespace %s were dropped: it has had those of %d pods in half an hour",
            number,
            namespace,
            most,
        )
    return allowed


def _forget(until: float) -> None:
    """Forget what was said by then, and namespaces of which nothing is left."""
    left = {
        namespace: {about: said for about, said in known.items() if said > until}
        for namespace, known in _SHARES.items()
    }
    _SHARES.clear()
    _SHARES.update({namespace: known for namespace, known in left.items() if known})


def _in_turns(alerts: list[dict[str, str]]) -> list[dict[str, str]]:
    """The first of each namespace, then the second: who has many keeps no other out."""
    before: Counter[str] = Counter()
    turns = []
    for kept in alerts:
        turns.append((before[kept["namespace"]], kept))
        before[kept["namespace"]] += 1
    return [kept for _turn, kept in sorted(turns, key=lambda item: item[0])]


def _alert(alert: Any, exported: bool) -> dict[str, str] | None:
    """What is kept of an alert; None when it does not fire, _WRONG when a name in it is none,
    _EXPORTED when its labels mean what the user has not said.
    """
    labels = alert.get("labels") if isinstance(alert, dict) else None
    if not isinstance(labels, dict) or alert.get("status") != "firing":
        return None
    kept = {"name": labels.get("alertname", "")}
    prefix = ""
    if any(labels.get(f"exported_{name}") for name in ("namespace", "pod", "node")):
        if not exported:
            return _EXPORTED
        prefix = "exported_"
    for name in ("namespace", "pod", "node"):
        kept[name] = labels.get(prefix + name) or ""
    if not _is(_ALERT, kept["name"]) or not all(
        kept[name] == "" or _is(_NAME, kept[name]) for name in ("namespace", "pod", "node")
    ):
        return _WRONG
    # The pod of no namespace is no pod.
    return {**kept, "pod": kept["pod"] if kept["namespace"] else ""}


def _is(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None
