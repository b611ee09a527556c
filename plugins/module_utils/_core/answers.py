# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What was given for the options of a role, as the values that its module takes.

A survey of AWX sends every answer as a string: a list as words or lines, a switch as a word, a
dictionary as JSON or YAML, and an unanswered question as an empty string, which stands for the
role's default.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Callable

from ansible.module_utils.common.yaml import yaml_load

from .errors import BadOption

# The boolean filter of Ansible takes every word that it does not know for false.
WORDS = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
# Of a wrong answer, and of what is wrong with it, in a message.
MAX_CHARACTERS = 200


def read(spec: Mapping[str, Mapping[str, Any]], given: Mapping[str, Any]) -> dict[str, Any]:
    """Option -> value, for the options of ``spec`` (as in ``meta/argument_specs.yml``), of which
    those are left out that have neither an answer nor a default.

    Raises BadOption that names every answer that does not fit.
    """
    values: dict[str, Any] = {}
    unfit: list[str] = []
    for name, option in spec.items():
        try:
            value = _value(option, given.get(name))
        except ValueError as error:
            # All of them are told at once: a survey is filled in once more, not once for each.
            unfit.append(f"{name} {error}")
            continue
        if not _unanswered(value):
            values[name] = value
    if unfit:
        raise BadOption(f"Nothing was touched: {'; '.join(unfit)}")
    return values


def _value(option: Mapping[str, Any], given: Any) -> Any:
    """The answer or the default; raises ValueError with what it must be and is not."""
    default = option.get("default")
    if isinstance(given, str):
        # AWX sends a multi-line answer with the line break at its end.
        given = given.strip()
    if _unanswered(given):
        return default
    return _reader(option, default)(given)


def _reader(option: Mapping[str, Any], default: Any) -> Callable[[Any], Any]:
    """A survey has no types, so most options are ``raw``, and their default says what they are."""
    if option["type"] == "list" and option["elements"] != "dict":
        return _lines if option["elements"] == "path" else _words
    if isinstance(default, bool):
        return _switch
    if isinstance(default, (int, float)):
        return _number
    if isinstance(default, list):
        return lambda given: _data(given, list, "list")
    if isinstance(default, dict):
        return lambda given: _data(given, dict, "dictionary")
    return str


def _unanswered(given: Any) -> bool:
    # 0 and false are answers.
    return given is None or (isinstance(given, (str, list, tuple, dict)) and not given)


def _switch(given: Any) -> bool:
    word = str(given).lower()
    if word not in WORDS:
        raise ValueError(f"must be true or false, not {_shown(given)}")
    return WORDS[word]


def _number(given: Any) -> Any:
    # As it was given: whether it is whole, and what it may be, the module knows. For Python True is
    # the number 1, and a switch in the place of a number is a mistake.
    try:
        finite = not isinstance(given, bool) and math.isfinite(float(given))
    except (TypeError, ValueError):
        finite = False
    if not finite:
        raise ValueError(f"must be a number, not {_shown(given)}")
    return given


def _words(given: Any) -> list[str]:
    """Separated by commas, blanks or newlines, none of which is part of a name."""
    return _some([word for item in _items(given) for word in item.replace(",", " ").split()], given)


def _lines(given: Any) -> list[str]:
    """One on each line, since a path may have blanks and commas."""
    lines = [line.strip() for item in _items(given) for line in item.splitlines()]
    return _some([line for line in lines if line], given)


def _some(names: list[str], given: Any) -> list[str]:
    """A scope that was meant to be narrow, as by the name in a variable that is empty, must not
    become everything.
    """
    if not names:
        raise ValueError(f"names nothing and is not empty: {_shown(given)}")
    return names


def _items(given: Any) -> list[str]:
    """Of a list, its items; a list may have lists, as where a template puts some together."""
    if isinstance(given, (list, tuple)):
        return [text for item in given for text in _items(item)]
    if isinstance(given, Mapping):
        raise ValueError("must be a list, not a dictionary")
    return [str(given)]


def _data(given: Any, wanted: type, name: str) -> Any:
    if isinstance(given, str):
        try:
            # By the safe loader: a tag in an answer makes no Python object
            # (ansible.module_utils.common.yaml).
            given = yaml_load(given)
        except Exception as error:  # of the YAML library, which a module utility does not import
            raise ValueError(f"must be a {name}, as JSON or YAML: {_first_line(error)}") from error
    if not isinstance(given, wanted):
        raise ValueError(f"must be a {name}, as JSON or YAML, not {_shown(given)}")
    return given


def _shown(given: Any) -> str:
    return repr(given)[:MAX_CHARACTERS]


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:MAX_CHARACTERS]
