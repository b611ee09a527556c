# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on the controller: checks the variables and hosts of a run before anything is touched."""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible.inventory.manager import split_host_pattern
from ansible.module_utils.common.yaml import yaml_load
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import lookup_loader
from ansible.utils.vars import load_extra_vars

from ..module_utils._core.answers import read
from ..module_utils._core.errors import BadOption, StorageOpsError

ROLES = Path(__file__).resolve().parents[2] / "roles"
SPECS = "meta/argument_specs.yml"
# How similar a name has to be to an existing one to count as a misspelling of it, prefix included
# (difflib.SequenceMatcher.ratio).
ALIKE = 0.85
# The same for the first and the last word of a name that lacks words in between.
ALIKE_WORDS = 0.8
# The variable of a role, behind its prefix, that has the rare options of its module.
RARE = "options"
SPEC: dict[str, dict[str, Any]] = {
    "target": {"type": "raw"},
    "variables": {"type": "list", "elements": "str", "default": []},
    "prefixes": {"type": "list", "elements": "str", "default": []},
    "given": {"type": "list", "elements": "str"},
    "playbooks": {"type": "list", "elements": "str"},
    "role": {"type": "str"},
    "own": {"type": "list", "elements": "str", "default": []},
    "unread": {"type": "list", "elements": "str", "default": []},
    "rare": {"type": "list", "elements": "str", "default": []},
}
BOUNDS = {
    "required_together": [("given", "playbooks")],
    "mutually_exclusive": [("given", "target", "role")],
}


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action of this file."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Refuse unknown variables, and parts of a target that match nothing."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _ok, params = self.validate_argument_spec(argument_spec=SPEC, **BOUNDS)
        if params["given"] is not None:
            return {**result, **_handed_on(params["given"], params["playbooks"])}
        variables = task_vars or {}
        known = Known.read(ROLES, params["variables"], params["prefixes"])
        given = load_extra_vars(self._loader)
        try:
            # With a target this runs once, on a host that may not belong to the target.
            refuse(known.unknown(variables if params["target"] is None else given, given))
            if params["role"] is not None:
                # ansible_check_mode reflects only --check, not a play's check_mode.
                more = {"check": bool(self._task.check_mode), "changed": False}
                return {**result, **self._options(params, variables), **more}
            if params["target"] is None:
                return {**result, "changed": False}
            hosts, left_out = self._hosts(params["target"], variables)
            # Only the hosts of this run: misspelt variables of others do not affect it.
            refuse(_unknown_of_hosts(known, hosts, variables))
        except StorageOpsError as error:
            return {**result, "failed": True, "msg": str(error), "code": error.code}
        said = f"the limit leaves out {', '.join(left_out)}" if left_out else f"{len(hosts)} hosts"
        return {**result, "changed": False, "hosts": hosts, "left_out": left_out, "msg": said}

    def _options(
        self, params: Mapping[str, Any], variables: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        spec = options_of(params["role"])
        given = {
            name: self._templar.template(variables[name]) for name in spec if name in variables
        }
        return answered(params["role"], given, params["own"], params["unread"], params["rare"])

    def _hosts(self, target: Any, variables: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """The hosts of the target that are in the run, and those that ``--limit`` leaves out."""
        inventory = lookup_loader.get(
            "ansible.builtin.inventory_hostnames", loader=self._loader, templar=self._templar
        )

        def match(pattern: str) -> list[str]:
            return [str(host) for host in inventory.run([pattern], variables=dict(variables))]

        parts = split(target)
        if not parts:
            raise BadOption(
                "target is required and must not be empty: name the hosts, for example -e "
                "target=worker01"
            )
        groups = variables.get("groups", {})
        _check_parts(parts, [*groups, *groups.get("all", [])], match)
        hosts = match(",".join(parts))
        in_run = set(variables.get("ansible_play_hosts_all", []))
        kept = [host for host in hosts if host in in_run]
        if not kept:
            why = (
                f"the limit excludes all hosts of the target {','.join(parts)}"
                if hosts
                else f"no host matches all of {','.join(parts)}"
            )
            raise StorageOpsError(f"No host is left: {why}", code="not_found")
        return kept, [host for host in hosts if host not in in_run]


def _check_parts(
    parts: Iterable[str], names: Collection[str], match: Callable[[str], list[str]]
) -> None:
    """Refuse a part of a target that matches no host of the inventory.

    ``names``: the groups and hosts of the inventory, to suggest one.
    """
    for part in parts:
        # "!host" with a misspelt name would leave the host in the run.
        name = part[1:] if part[0] in "!&" else part
        # In a list with commas Ansible takes each part for one name, with its colons and a second
        # operator (split_host_pattern of ansible/inventory/manager.py).
        if not name or name[0] in "!&" or not match(f"{name},"):
            # A group that is there is not meant for another one.
            empty = ": it is a group without hosts. Is the inventory (-i) the right one?"
            near = empty if name in names else _meant(name.lstrip("!&"), names)
            raise StorageOpsError(
                f"No host of the inventory matches {part}{near}", code="not_found"
            )


class Known:
    """The variables that exist, and the prefixes that make a variable one of ours."""

    def __init__(
        self, names: Collection[str], prefixes: Collection[str], elsewhere: Collection[str]
    ) -> None:
        self.names = frozenset(names)
        # Options of playbooks: their roles see them as well, and must not call them unknown.
        self.elsewhere = frozenset(elsewhere)
        self.prefixes = tuple(prefixes)

    @classmethod
    def read(cls, roles: Path, variables: Iterable[str], prefixes: Iterable[str]) -> Known:
        """The variables of all roles, and those of a playbook."""
        # All roles: the names of one may begin with the prefix of another, and a role may use
        # another one. Modules: a result is often registered under the module's name, which may
        # begin with the prefix of a role.
        names = {
            *variables,
            *(file.stem for file in (roles.parent / "plugins/modules").glob("*.py")),
        }
        for file in roles.glob("*/meta/argument_specs.yml"):
            for entry in yaml_load(file.read_text(encoding="utf-8"))["argument_specs"].values():
                names.update(entry.get("options", {}))
        # Registered variables may have the prefix of their role, and are no options.
        for file in roles.glob("*/tasks/*.yml"):
            names.update(
                re.findall(
                    r"^ *register: ([a-z]\w*)",
                    file.read_text(encoding="utf-8"),
                    re.MULTILINE | re.ASCII,
                )
            )
        ours = [f"{file.parents[1].name}_" for file in roles.glob("*/meta/argument_specs.yml")]
        playbooks = (roles.parent / "playbooks").glob("*.yml")
        text = "\n".join(file.read_text(encoding="utf-8") for file in playbooks)
        elsewhere = re.findall(r"^ +- ([a-z]\w*_\w+)$", text, re.MULTILINE | re.ASCII)
        return cls(names, [*prefixes, *ours], elsewhere)

    @classmethod
    def of(cls, roles: Path, playbooks: Iterable[str]) -> Known:
        """The variables that these playbooks of the collection check for by themselves."""
        folder = roles.parent / "playbooks"
        checks = [check for name in playbooks for check in _checks(folder / f"{name}.yml")]
        names = {name for check in checks for name in check.get("variables", [])}
        # A check with a target makes "target" a variable of the playbook.
        names |= {"target" for check in checks if "target" in check}
        return cls.read(roles, names, {name for check in checks for name in check["prefixes"]})

    def strangers(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Each of ``names`` that is neither known nor Ansible's, with the most similar known."""
        found = {name for name in map(str, names) if not name.startswith("ansible_")} - self.names
        return {
            name: difflib.get_close_matches(name, sorted(self.names), 1) for name in sorted(found)
        }

    def unknown(self, variables: Iterable[str], given: Iterable[str]) -> dict[str, list[str]]:
        """Each unknown variable, with the most similar known ones.

        ``given``: the extra variables of this run, whose prefix may be misspelt as well.
        """
        ours = {str(name) for name in variables if str(name).startswith(self.prefixes)} - self.names
        found = {name: difflib.get_close_matches(name, sorted(self.names), 1) for name in ours}
        others = {str(name) for name in given} - self.names - self.elsewhere - ours
        found |= {name: near for name in others if (near := self._near(name))}
        return dict(sorted(found.items()))

    def _near(self, name: str) -> list[str]:
        """The variable of a role or playbook that was most likely meant."""
        names = self._prefixed()
        shortened = [known for known in names if _is_shortened(name, known)]
        near = difflib.get_close_matches(name, names, 1, ALIKE)
        return near or difflib.get_close_matches(name, shortened, 1, 0.0)

    def _prefixed(self) -> list[str]:
        return sorted(name for name in self.names if name.startswith(self.prefixes))


def options_of(role: str) -> dict[str, dict[str, Any]]:
    """The options of a role by their variables, as documented."""
    specs = yaml_load((ROLES / role / SPECS).read_text(encoding="utf-8"))
    options: dict[str, dict[str, Any]] = specs["argument_specs"]["main"]["options"]
    return options


def answered(
    role: str,
    given: Mapping[str, Any],
    own: Collection[str],
    unread: Collection[str],
    rare: Collection[str] = (),
) -> dict[str, dict[str, Any]]:
    """What was given for the options of a role: for its module, and for the role alone.

    ``rare``: options of the module that have no variable, and are given in the dictionary RARE.
    Raises StorageOpsError for a value that does not fit, and for another name in the dictionary.
    """
    begin = len(role) + 1
    spec = {name: option for name, option in options_of(role).items() if name[begin:] not in unread}
    values = {name[begin:]: value for name, value in read(spec, given).items()}
    ours = {name: value for name, value in values.items() if name in own}
    rarely = _rare(f"{role}_{RARE}", values.pop(RARE, {}), rare) if rare else {}
    return {
        "own": ours,
        "options": {
            **{name: value for name, value in values.items() if name not in ours},
            **rarely,
        },
    }


def _rare(variable: str, given: Mapping[Any, Any], rare: Collection[str]) -> dict[str, Any]:
    """The options in the dictionary. An empty one stands for the module's default."""
    for name in map(str, given):
        if name not in rare:
            near = _said(difflib.get_close_matches(name, sorted(rare), 1))
            raise BadOption(
                f"Nothing was touched: {variable} has {name!r}{near}; it can have "
                f"{', '.join(sorted(rare))}"
            )
    return {name: value for name, value in given.items() if value is not None and value != ""}


def _handed_on(given: Iterable[str], playbooks: Iterable[str]) -> dict[str, Any]:
    """Refuse variables for runs of these playbooks that the playbooks do not know."""
    try:
        refuse(Known.of(ROLES, playbooks).strangers(given))
    except StorageOpsError as error:
        return {"failed": True, "msg": str(error), "code": error.code}
    return {"changed": False}


def _checks(playbook: Path) -> list[dict[str, Any]]:
    """The arguments of each check of the scope in a playbook."""
    text = playbook.read_text(encoding="utf-8")
    found = re.findall(r"(?m)^( +)storage_ops\.runbooks\.check_scope:\n((?:\1 +.*\n)*)", text)
    return [yaml_load(textwrap.dedent(body)) for _indent, body in found]


def _is_shortened(name: str, known: str) -> bool:
    """It is a known one without the words in between, as residual_maps for residual_paths_maps."""
    ours, theirs = name.split("_"), known.split("_")
    return 1 < len(ours) < len(theirs) and all(
        difflib.SequenceMatcher(None, ours[end], theirs[end]).ratio() >= ALIKE_WORDS
        for end in (0, -1)
    )


def refuse(unknown: Mapping[str, list[str]]) -> None:
    """End the run if there are unknown variables."""
    if unknown:
        names = ", ".join(f"{name}{_said(near)}" for name, near in unknown.items())
        raise BadOption(f"Nothing was touched, since there is no variable {names}")


def split(target: Any) -> list[str]:
    """The parts of a target: a list or a text, separated by commas, white space or colons."""
    # Colons as in Ansible's host patterns; split_host_pattern knows those of IPv6 addresses.
    given = target if isinstance(target, (list, tuple)) else [target]
    text = ",".join(str(part) for part in given if part is not None)
    return [
        str(part)
        for part in split_host_pattern(",".join(re.split(r"[,\s]+", text, flags=re.UNICODE)))
        if part
    ]


def _meant(name: str, names: Iterable[str]) -> str:
    return _said(difflib.get_close_matches(name, sorted(set(names)), 1))


def _said(near: list[str]) -> str:
    return f" (did you mean {near[0]}?)" if near else ""


def _unknown_of_hosts(
    known: Known, hosts: Iterable[str], variables: Mapping[str, Any]
) -> dict[str, list[str]]:
    """By variable and host, the names that it may have been meant for."""
    found = {host: known.unknown(_of(host, variables), {}) for host in hosts}
    return {
        f"{name} of {host}": near
        for host, unknown in found.items()
        for name, near in unknown.items()
    }


def _of(host: str, variables: Mapping[str, Any]) -> Iterable[str]:
    """Names of all variables of a host."""
    # raw_get does not template (HostVars of ansible/vars/hostvars.py).
    found = variables["hostvars"].raw_get(host)
    return found if isinstance(found, Mapping) else ()
