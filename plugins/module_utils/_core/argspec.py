# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Argument specs that can be merged, so that modules share option groups without repeating them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import BadOption

# The least bound of what has to be more than 0.
POSITIVE = sys.float_info.min
# max_repairs of a run that repairs nothing, so that it reports no limit.
NO_LIMIT = 1_000_000


@dataclass(frozen=True)
class ArgumentSpec:
    """Options as AnsibleModule takes them."""

    options: dict[str, dict[str, Any]] = field(default_factory=dict)

    def merge(self, *others: ArgumentSpec) -> ArgumentSpec:
        """A new spec with the options of this one and of ``others``."""
        merged = dict(self.options)
        for other in others:
            merged.update(other.options)
        return ArgumentSpec(merged)

    def to_kwargs(self) -> dict[str, Any]:
        """Keyword arguments for AnsibleModule."""
        return {"argument_spec": self.options}


def given_options(kind: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """What was given for the fields of an options class; it has the defaults of the others.

    A module that only reports lacks most of them. It repairs nothing, so max_repairs is no limit.
    """
    # AnsibleModule fills in None for what was not given.
    fields = kind.__dataclass_fields__
    unlimited = {"max_repairs": NO_LIMIT} if "max_repairs" in fields else {}
    given = {name: params[name] for name in fields if params.get(name) is not None}
    return {**unlimited, **given}


def given_names(
    params: Mapping[str, Any],
    *options: str,
    strip: bool = True,
    otherwise: str = "leave the option out to look at everything",
) -> dict[str, tuple[str, ...]]:
    """The names that lists of the user have, each once. Raises BadOption for an empty one.

    ``strip``: without blanks around them, which may belong to a path.
    """
    # An empty name would match nothing, and the run would look successful.
    found = {
        option: tuple(dict.fromkeys(t.strip() if strip else t for t in params.get(option) or ()))
        for option in options
    }
    for option, texts in found.items():
        if not all(texts):
            raise BadOption(f"{option} has an empty name; {otherwise}")
    return found


def missing(unmatched: Sequence[str]) -> str:
    """The end of a message: what a scope names and the host does not have."""
    # No error: of many hosts only some have it, and none has it any more after the repair.
    if not unmatched:
        return ""
    said = "; ".join(unmatched[:5])
    return f"; on this host {said}: was it repaired already, is it on another, or misspelt?"


def check_numbers(
    given: Mapping[str, Any], bounds: Mapping[str, float | tuple[float, float]]
) -> None:
    """Refuse options that are too small, too large, infinite or not a number.

    ``bounds``: option -> the least (POSITIVE: any that is more than 0), or the least and the most.
    An option that is not given is left out. Raises BadOption that names the first one.
    """
    for name, bound in bounds.items():
        least, most = bound if isinstance(bound, tuple) else (bound, sys.float_info.max)
        value = given.get(name)
        # Not "value < least": NaN, which Ansible takes for a float, is no less than anything.
        if value is not None and not least <= value <= most:
            fits = f"at least {_shown(least)}" if least != POSITIVE else "more than 0"
            if isinstance(bound, tuple):
                fits = f"{_shown(least)} to {_shown(most)}"
            raise BadOption(f"{name} is {_shown(value)}; give {fits}")


def _shown(number: float) -> str:
    # "g" alone would write a big whole number as 3.1536e+07.
    return f"{number:.0f}" if float(number).is_integer() else f"{number:g}"
