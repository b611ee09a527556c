# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each module with a deadline ends soon after it, also where no request and no command takes the
time.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph.watched import Watched
from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph.watchers import WATCH

MODULES = "ansible_collections.storage_ops.runbooks.plugins.modules"
FILES = sorted((Path(__file__).resolve().parents[4] / "plugins/modules").glob("*.py"))
# What ends a module that is late, with the place of the deadline among its arguments.
ENDERS = {"run": 3, "report": 3, "report_parts": 3, "ended_if_late": 0}
# What the module was told to wait besides its deadline.
WAITS = {"rbd_watcher_info": {"observation_seconds": 20.0, "gone_timeout": 3.0}}


class Ended(Exception):
    """Raised in place of running the module: its deadline."""


def has_deadline(file: Path) -> bool:
    module = importlib.import_module(f"{MODULES}.{file.stem}")
    # The others are actions, and only documented there.
    return hasattr(module, "AnsibleModule")


def known_deadline(patch: pytest.MonkeyPatch, module: ModuleType, **params: Any) -> float:
    """What ends the module is told."""

    def ender(place: int) -> Any:
        def called(*given: Any, **more: Any) -> None:
            raise Ended(*given[place : place + 1], *filter(None, [more.get("deadline")]))

        return called

    def made(argument_spec: dict[str, Any], **_more: Any) -> SimpleNamespace:
        defaults = {option: spec.get("default") for option, spec in argument_spec.items()}
        assert "deadline" in defaults
        given = {**defaults, "deadline": 77.0, "node": "a", "run_id": "b", **params}
        return SimpleNamespace(params=given, no_log_values=set(), check_mode=False)

    for name, place in ENDERS.items():
        if hasattr(module, name):
            patch.setattr(module, name, ender(place))
    patch.setattr(module, "AnsibleModule", made)
    with pytest.raises(Ended) as caught:
        module.main()
    (told,) = caught.value.args
    return float(told)


@pytest.mark.parametrize("name", [file.stem for file in FILES if has_deadline(file)])
def test_what_ends_a_module_knows_its_deadline(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    module = importlib.import_module(f"{MODULES}.{name}")
    more = WAITS.get(name, {})
    assert known_deadline(monkeypatch, module, **more) == 77 + sum(more.values())


def test_a_look_at_a_fence_knows_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module(f"{MODULES}.volume_failover")
    assert known_deadline(monkeypatch, module, state="held") == 77


def test_a_watch_gives_no_more_time_to_begin_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Lease of the node need only be longer than the deadline, so another run may follow."""
    module = importlib.import_module(f"{MODULES}.ceph_blocklist")
    watch = {name: spec.get("default") for name, spec in WATCH.items()}
    watch |= {"observations": 2, "observation_seconds": 3.0, "gone_timeout": 600.0}
    given = {"entries": ["10.0.0.5"], "watch": watch}
    assert known_deadline(monkeypatch, module, **given) == 77
    made: list[Any] = []

    def run(_module: Any, make: Any, *_more: Any) -> None:
        made.append(make())
        raise Ended(0)

    monkeypatch.setattr(module, "run", run)
    with pytest.raises(Ended):
        module.main()
    (runbook,) = made
    assert isinstance(runbook, Watched) and runbook._ceph.deadline.remaining() <= 77
