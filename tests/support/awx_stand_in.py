# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A stand-in for AWX's API: lists, objects and their relations in memory. It is no AWX: nothing
runs.

What it knows was recorded from AWX 24.6.1, in `awx_24_6_1.json`: the fields that each list takes,
each object as AWX answers when only what is required is given, with what it has below it
(`related`), and what AWX answered to requests that it refuses or takes in part (`exchanges`;
test_awx_stand_in.py plays them). Rules that no recording shows are those of AWX's source, which is
named there. A request that is not known fails, and so does the test that made it.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

Object = dict[str, Any]
Answer = tuple[int, Any]
ENCRYPTED = "$encrypted$"
RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("awx_24_6_1.json").read_text())
FIELDS: dict[str, dict[str, Object]] = RECORDED["fields"]
OBJECTS: dict[str, Object] = RECORDED["objects"]
# Lists of several kinds, which share their numbers.
UNIONS = {
    "unified_job_templates": (
        *("projects", "inventory_sources", "job_templates", "workflow_job_templates"),
        "workflow_approval_templates",
    ),
    "unified_jobs": ("jobs", "project_updates", "workflow_jobs"),
}
# What refers to an object of another list, where the field is not called like the list.
REFERS = {
    **{"source_project": "projects", "default_environment": "execution_environments"},
    **{"inventory": "inventories", "credential_type": "credential_types"},
}
# Relations of many to many, and the list that each is of.
RELATIONS = {
    **dict.fromkeys(
        ("success_nodes", "always_nodes", "failure_nodes"), "workflow_job_template_nodes"
    ),
    **{"credentials": "credentials", "labels": "labels", "instance_groups": "instance_groups"},
}
# awx/main/models/jobs.py, JobTemplate.get_ask_mapping: what a launch may prompt for.
PROMPTS = {
    **{
        name: f"ask_{name}_on_launch"
        for name in ("job_type", "limit", "verbosity", "diff_mode", "skip_tags", "forks")
    },
    **{"job_tags": "ask_tags_on_launch", "inventory": "ask_inventory_on_launch"},
    **{"scm_branch": "ask_scm_branch_on_launch", "timeout": "ask_timeout_on_launch"},
    **{"job_slice_count": "ask_job_slice_count_on_launch"},
}
TYPES: dict[str, tuple[type, ...]] = {
    **{"string": (str, int, float), "boolean": (bool,), "integer": (int,), "id": (int,)},
    **{"datetime": (str,), "json": (dict, list, str), "choice": (str, int, bool)},
}
DAY = "2026-01-01T00:00:00Z"


class UnknownRequest(Exception):
    """What no recording shows. It may be right or wrong: look at a real AWX."""


class StandIn:
    """The objects, by their list.

    `repository`: the playbooks that a project's sync finds. `syncs`: how updates of projects end:
    "successful" or "failed", or "pending" for ever. `prefix`: where the API is.
    """

    def __init__(self, repository: Iterable[str] = (), prefix: str = "/api/") -> None:
        self.repository = list(repository)
        self.syncs = "successful"
        self.prefix = prefix
        # The lists that this user may not write to.
        self.forbidden: set[str] = set()
        self.lists: dict[str, dict[int, Object]] = {name: {} for name in OBJECTS}
        self.relations: dict[str, list[int]] = {}
        self.surveys: dict[str, Object] = {}
        self.secrets: list[str] = []
        self.writes: list[str] = []
        self.unknown: list[str] = []
        # (the template's name, what was sent) of each job.
        self.launched: list[tuple[str, Object]] = []
        # The playbooks in the checkout of each project.
        self.checkouts: dict[int, list[str]] = {}
        self.numbers: dict[str, int] = {}
        self.lock = threading.Lock()

    # Objects

    def add(self, plural: str, body: Object) -> Object:
        """A new object, which must be one that AWX takes."""
        status, made = self._create(plural, body)
        assert status == 201, made
        return made

    def named(self, plural: str, name: str) -> Object:
        """The object of that name, or identifier."""
        return next(
            each
            for each in self.lists[plural].values()
            if name in (each.get("name"), each.get("identifier"))
        )

    def _number(self, plural: str) -> int:
        shared = next((union for union, parts in UNIONS.items() if plural in parts), plural)
        self.numbers[shared] = self.numbers.get(shared, 0) + 1
        return self.numbers[shared]

    def make(self, plural: str, values: Object) -> Object:
        """An object as AWX makes it, unchecked: for what AWX has from the start."""
        made = deepcopy(OBJECTS[plural])
        number = self._number(plural)
        where = f"{self.prefix}v2/{plural}/{number}/"
        related = {name: f"{where}{name}/" for name in made.pop("related")}
        made |= {"id": number, "url": where, "related": related, "created": DAY, "modified": DAY}
        made |= deepcopy(values)
        self.lists[plural][number] = made
        return made

    def _create(self, plural: str, body: Object) -> Answer:
        if refused := self._refused(plural, body, {}):
            return 400, refused
        made = self.make(plural, {**self._stored(plural, body), **self._derived(plural, body)})
        if plural == "projects" and made["scm_type"]:
            self._update(made)
        return 201, self._shown(made)

    def _stored(self, plural: str, values: Object) -> Object:
        """As AWX keeps it: secrets are not handed out, and "no object" is null."""
        fields = FIELDS[plural]
        values = {
            name: OBJECTS[plural][name]
            if value is None or (value == "" and fields[name]["type"] == "id")
            else value
            for name, value in values.items()
            if name in fields and not fields[name].get("write_only")
        }
        if plural == "credentials" and "inputs" in values:
            kind = self.lists["credential_types"][values["credential_type"]]
            secret = {
                field["id"] for field in kind["inputs"].get("fields", []) if field.get("secret")
            }
            given = values["inputs"]
            self.secrets += [given[name] for name in given if name in secret]
            values["inputs"] = {
                name: ENCRYPTED if name in secret else value for name, value in given.items()
            }
        return values

    def _derived(self, plural: str, values: Object) -> Object:
        """What AWX takes from another object, since nobody may give it."""
        if plural == "job_templates" and values.get("project"):
            return {"organization": self.lists["projects"][values["project"]]["organization"]}
        if plural == "schedules":
            zone = re.search(r"TZID=([^:;]+)", values["rrule"])
            return {"timezone": zone[1] if zone else "UTC"}
        return {}

    def _shown(self, made: Object) -> Object:
        """With what AWX sums up of the objects that it refers to."""
        parts: dict[str, Any] = {}
        for name, value in made.items():
            if (
                isinstance(value, int)
                and not isinstance(value, bool)
                and (other := self._other(name, value))
            ):
                parts[name] = {
                    key: other[key] for key in ("id", "name", "description") if key in other
                }
                if name == "unified_job_template":
                    made["related"][name] = other["url"]
        if made["type"] == "inventory":
            count = sum(
                each["inventory"] == made["id"] for each in self.lists["inventory_sources"].values()
            )
            made |= {"has_inventory_sources": count > 0, "total_inventory_sources": count}
        if "credentials" in made["related"]:
            ids = self.relations.get(made["related"]["credentials"], [])
            parts["credentials"] = [
                {key: self.lists["credentials"][each][key] for key in ("id", "name", "kind")}
                for each in ids
            ]
        updates = [
            each for each in self.lists["project_updates"].values() if each["project"] == made["id"]
        ]
        if made["type"] == "project" and updates and not updates[-1]["finished"]:
            parts["current_update"] = {
                key: updates[-1][key] for key in ("id", "name", "status", "failed")
            }
        nodes = {
            name: self.relations.get(made["related"][name], [])
            for name in RELATIONS
            if name.endswith("_nodes") and name in made
        }
        shown = {**made, **nodes, "summary_fields": parts}
        if made["type"] in ("job", "workflow_job"):
            # Whoever looks once more finds it done.
            made |= {"status": "successful", "finished": DAY, "event_processing_finished": True}
        return shown

    def _other(self, field: str, number: int) -> Object | None:
        plural = REFERS.get(field, f"{field}s")
        return next(
            (
                self.lists[each][number]
                for each in UNIONS.get(plural, (plural,))
                if number in self.lists.get(each, {})
            ),
            None,
        )

    # What AWX refuses

    def _refused(self, plural: str, body: Object, before: Object) -> Object:
        """What is wrong with the fields of a POST or, with what there is before it, a PATCH."""
        fields, wrong = FIELDS[plural], {}
        for name, value in body.items():
            # What is read only AWX passes over, such as the type that modules send.
            if name not in fields and name not in OBJECTS[plural]:
                raise UnknownRequest(f"{plural} has no field {name}")
            if name in fields and (words := _wrong(fields[name], value)):
                wrong[name] = [words]
            elif (
                value
                and name in fields
                and fields[name]["type"] == "id"
                and not self._other(name, value)
            ):
                wrong[name] = [f'Invalid pk "{value}" - object does not exist.']
        for name, field in fields.items():
            if field.get("required") and name not in body and name not in before:
                wrong[name] = ["This field is required."]
        return wrong or self._rules(plural, {**before, **body}, before)

    def _rules(self, plural: str, whole: Object, before: Object) -> Object:
        """What AWX asks of an object as a whole."""
        if plural == "job_templates":
            project = self.lists["projects"].get(whole.get("project") or 0)
            if project and whole.get("playbook") not in self.checkouts.get(project["id"], []):
                return {"playbook": ["Playbook not found for project."]}
        if plural == "schedules" and (words := _rrule(whole["rrule"])):
            return {"rrule": words}
        # awx/main/models/base.py: unique_together of each model.
        keys = {
            **{
                "schedules": ("unified_job_template", "name"),
                "inventory_sources": ("inventory", "name"),
            },
            **{"workflow_job_template_nodes": ("workflow_job_template", "identifier")},
            "execution_environments": ("name",),
            "credentials": ("organization", "name", "credential_type"),
        }.get(plural, ("organization", "name"))
        keys = tuple(key for key in keys if key in OBJECTS[plural])
        same = [
            each
            for each in self.lists.get(plural, {}).values()
            if each["id"] != before.get("id")
            and all(each.get(key) == whole.get(key) for key in keys)
        ]
        if same and plural != "workflow_approval_templates":
            return {
                "__all__": [f"{plural} with this ({', '.join(keys)}) combination already exists."]
            }
        return {}

    # Requests

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        """(status, answer) to a request."""
        if not path.startswith(f"{self.prefix}v2/"):
            return 404, {"detail": "The requested resource could not be found."}
        plural, *rest = path.removeprefix(f"{self.prefix}v2/").strip("/").split("/")
        if plural in ("ping", "config") and method == "GET":
            return 200, {"version": "24.6.1"}
        if method != "GET":
            self.writes.append(f"{method} {path}")
            if plural in self.forbidden:
                return 403, {"detail": "You do not have permission to perform this action."}
        if not rest:
            return self._list(method, plural, query, body)
        if plural == "workflow_approval_templates" and len(rest) > 1:
            return 404, {"detail": "The requested resource was not found on this server."}
        found = self.lists[plural].get(int(rest[0]))
        if found is None:
            return 404, {"detail": "Not found."}
        if len(rest) == 1:
            return self._detail(method, plural, found, body)
        return self._below(method, path, found, rest[1], body)

    def _list(self, method: str, plural: str, query: dict[str, str], body: Any) -> Answer:
        # 404 at the real one, which has approval templates below their nodes only.
        if plural not in (*OBJECTS, *UNIONS) or plural == "workflow_approval_templates":
            raise UnknownRequest(f"list {plural}")
        if method == "POST" and plural in FIELDS:
            return self._create(plural, body)
        if method != "GET":
            raise UnknownRequest(f"{method} {plural}")
        every = [
            self._shown(each)
            for part in UNIONS.get(plural, (plural,))
            for each in self.lists[part].values()
        ]
        pages = {
            name: int(query.pop(name, default))
            for name, default in (("page", "1"), ("page_size", "25"))
        }
        query.pop("order_by", None)
        either = {
            name.removeprefix("or__"): value
            for name, value in query.items()
            if name.startswith("or__")
        }
        exact = {name: value for name, value in query.items() if not name.startswith("or__")}
        found = [
            each
            for each in every
            if all(_matches(plural, each, *item) for item in exact.items())
            and (not either or any(_matches(plural, each, *item) for item in either.items()))
        ]
        return 200, self._page(plural, found, query, **pages)

    def _page(
        self, plural: str, found: list[Object], query: dict[str, str], page: int, page_size: int
    ) -> Object:
        # awx/api/pagination.py: not more than 200, whatever is asked for.
        size = min(page_size, 200)
        rest = found[page * size :]
        again = urlencode({**query, "page": page + 1, "page_size": size})
        following = f"{self.prefix}v2/{plural}/?{again}" if rest else None
        return {
            "count": len(found),
            "next": following,
            "previous": None,
            "results": found[(page - 1) * size : page * size],
        }

    def _detail(self, method: str, plural: str, found: Object, body: Any) -> Answer:
        if method == "GET":
            return 200, self._shown(found)
        if method == "PATCH":
            if refused := self._refused(plural, body, found):
                return 400, refused
            kind = {"credential_type": found["credential_type"]} if plural == "credentials" else {}
            moved = plural == "projects" and any(
                found[key] != body.get(key, found[key]) for key in ("scm_url", "scm_branch")
            )
            found.update(self._stored(plural, {**body, **kind}))
            found.update(self._derived(plural, found))
            if moved:
                self._update(found)
            return 200, self._shown(found)
        if method == "DELETE":
            del self.lists[plural][found["id"]]
            gone = {"job_templates", "workflow_job_templates"} & {plural}
            for each in [
                each
                for each in self.lists["schedules"].values()
                if gone and each["unified_job_template"] == found["id"]
            ]:
                del self.lists["schedules"][each["id"]]
            return 204, None
        raise UnknownRequest(f"{method} of one of {plural}")

    def _below(self, method: str, path: str, found: Object, name: str, body: Any) -> Answer:
        """What belongs to an object."""
        if name not in found["related"]:
            return 404, {"detail": "Not found."}
        if name in RELATIONS and path.split("/")[-4] != "inventories":
            return self._relation(method, path, RELATIONS[name], body)
        handlers: dict[tuple[str, str], Callable[[Object, str, Any], Answer]] = {
            ("GET", "survey_spec"): lambda _found, where, _body: (200, self.surveys.get(where, {})),
            ("POST", "survey_spec"): self._survey,
            ("DELETE", "survey_spec"): lambda _found, where, _body: (
                200,
                self.surveys.pop(where, None) and None,
            ),
            ("POST", "launch"): self._launch,
            ("POST", "update"): lambda found, _where, _body: (
                202,
                self._begun(self._update(found)),
            ),
            ("POST", "create_approval_template"): self._approval,
            ("POST", "schedules"): lambda found, _where, body: self._create(
                "schedules", {**body, "unified_job_template": found["id"]}
            ),
        }
        if (method, name) not in handlers:
            raise UnknownRequest(f"{method} {path}")
        return handlers[method, name](found, path, body)

    def _relation(self, method: str, path: str, plural: str, body: Any) -> Answer:
        ids = self.relations.setdefault(path, [])
        if method == "GET":
            found = [self._shown(self.lists[plural][each]) for each in ids]
            return 200, {"count": len(found), "next": None, "previous": None, "results": found}
        if body.get("disassociate"):
            ids.remove(body["id"])
        elif body["id"] not in self.lists[plural]:
            return 400, {"msg": f"{plural} {body['id']} does not exist"}
        elif body["id"] not in ids:
            ids.append(body["id"])
        return 204, None

    def _approval(self, node: Object, _path: str, body: Object) -> Answer:
        if refused := self._refused("workflow_approval_templates", body, {}):
            return 400, refused
        made = self.make("workflow_approval_templates", body)
        node["unified_job_template"] = made["id"]
        return 201, self._shown(made)

    # Projects, surveys and launches

    def _update(self, project: Object) -> Object:
        """awx/api/views: ProjectUpdateView; AWX also updates a project that is new, or
        was moved.
        """
        done = self.syncs != "pending"
        values = {
            name: project[name] for name in OBJECTS["project_updates"] if name.startswith("scm_")
        }
        values |= {name: project[name] for name in ("name", "description", "local_path")}
        values |= {"project": project["id"], "unified_job_template": project["id"]}
        if done:
            values |= {"status": self.syncs, "finished": DAY, "event_processing_finished": True}
        values |= {"failed": self.syncs == "failed"}
        if self.syncs == "successful":
            self.checkouts[project["id"]] = list(self.repository)
            project["scm_revision"] = f"{hash(tuple(self.repository)) & (2**160 - 1):040x}"
            values |= {"scm_revision": project["scm_revision"]}
        project["status"] = self.syncs
        return self.make("project_updates", values)

    def _begun(self, update: Object) -> Object:
        """The answer to whoever has started it: with its number, which nothing else shows."""
        return {"project_update": update["id"], **self._shown(update)}

    def _survey(self, _found: Object, where: str, body: Object) -> Answer:
        """awx/api/views, JobTemplateSurveySpec."""
        if not body["spec"]:
            return 400, {"error": "'spec' doesn't contain any items."}
        for number, question in enumerate(body["spec"]):
            for name in ("type", "question_name", "variable", "required"):
                if name not in question:
                    return 400, {"error": f"'{name}' missing from survey question {number}"}
            default, choices = question.get("default"), question.get("choices")
            if default not in (None, "") and not isinstance(default, str):
                return 400, {
                    "error": f"Default value {default} in survey question "
                    f"{number} expected to be string."
                }
            if choices and "default" in question and default not in choices:
                return 400, {"error": "Default choice must be answered from the choices listed."}
        self.surveys[where] = deepcopy(body)
        return 200, None

    def _launch(self, found: Object, _where: str, body: Object) -> Answer:
        """What is not asked for is passed over by a job template, and refused by a workflow."""
        workflow = found["type"] == "workflow_job_template"
        survey = (
            self.surveys.get(found["related"]["survey_spec"], {}).get("spec", [])
            if found["survey_enabled"]
            else []
        )
        given = body.get("extra_vars", {})
        given = json.loads(given) if isinstance(given, str) else given
        if wrong := [words for question in survey for words in _answered(question, given)]:
            return 400, {"variables_needed_to_start": wrong}
        asked = {question["variable"] for question in survey}
        extra = (
            {}
            if found["ask_variables_on_launch"]
            else {name: value for name, value in given.items() if name not in asked}
        )
        if workflow and extra:
            names = ", ".join(extra)
            return 400, {
                "extra_vars": [
                    f"Variables {names} are not allowed on launch. Check the Prompt on Launch "
                    "setting on the Workflow Job Template to include Extra Variables."
                ]
            }
        prompted = {
            name: body[name] for name in PROMPTS if name in body and body[name] != found.get(name)
        }
        ignored = {name: value for name, value in prompted.items() if not found.get(PROMPTS[name])}
        taken = {name: value for name, value in prompted.items() if name not in ignored}
        ignored |= {"extra_vars": extra} if extra else {}
        defaults = {
            question["variable"]: question["default"]
            for question in survey
            if question.get("default") is not None
        }
        own = json.loads(found["extra_vars"] or "{}")
        taken_first = sorted(
            (name for name in given if name not in extra), key=lambda name: name not in asked
        )
        variables = {**own, **defaults, **{name: given[name] for name in taken_first}}
        self.launched.append((found["name"], body))
        kind = "workflow_job" if workflow else "job"
        fields = {*FIELDS[f"{kind}_templates"], "organization"}
        copied = {
            name: found[name] for name in OBJECTS[f"{kind}s"] if name in found and name in fields
        }
        copied |= {f"{kind}_template": found["id"], "unified_job_template": found["id"]}
        made = self.make(f"{kind}s", {**copied, **taken, "extra_vars": json.dumps(variables)})
        return 201, {kind: made["id"], "ignored_fields": ignored, **self._shown(made)}


def _wrong(field: Object, value: Any) -> str:
    """What AWX's serializers say of a value of that field."""
    nothing = value is None or value == ""
    if (
        "choices" in field
        and value not in field["choices"]
        and not (nothing and "default" in field)
    ):
        return f'"{value}" is not a valid choice.'
    if nothing:
        return "This field may not be blank." if field.get("required") else ""
    if not isinstance(value, TYPES[field["type"]]) or (
        field["type"] != "boolean" and field["type"] != "choice" and isinstance(value, bool)
    ):
        return f"Not a valid {field['type']}."
    if len(str(value)) > field.get("max_length", len(str(value))):
        return f"Ensure this field has no more than {field['max_length']} characters."
    if field["type"] == "integer" and value < field.get("min_value", value):
        return f"Ensure this value is greater than or equal to {field['min_value']}."
    return ""


def _rrule(text: str) -> list[str]:
    """What AWX says of a schedule's rule, as recorded."""
    zone = "rrule parsing failed validation: A valid TZID must be provided (e.g., America/New_York)"
    if "DTSTART" not in text:
        valid = "Valid DTSTART required in rrule. Value should start with: DTSTART:YYYYMMDDTHHMMSSZ"
        return [valid, "One or more rule required in rrule.", zone]
    if not re.search(r"DTSTART(;TZID=[^:]+:\d{8}T\d{6}|:\d{8}T\d{6}Z)", text):
        return ["DTSTART cannot be a naive datetime.  Specify ;TZINFO= or YYYYMMDDTHHMMSSZZ.", zone]
    rules = re.findall(r"R(ULE:\S+)", text)
    return [f"INTERVAL required in rrule: R{rule}" for rule in rules if "INTERVAL" not in rule]


def _answered(question: Object, given: Object) -> list[str]:
    """awx/main/models/mixins.py, _survey_element_validation: what is wrong with an answer."""
    name = question["variable"]
    if name not in given:
        return [f"'{name}' value missing"] if question["required"] else []
    value = given[name]
    if question["type"] == "multiplechoice":
        choices = question["choices"]
        return (
            []
            if value in choices
            else [f"Value {value} for '{name}' expected to be one of {choices}."]
        )
    if not isinstance(value, str):
        return [f"Value {value} for '{name}' expected to be a string."]
    if len(value) < question.get("min", 0):
        return [
            f"'{name}' value {value} is too small (length is {len(value)} must be at least "
            f"{question['min']})."
        ]
    if len(value) > question.get("max", len(value)):
        return [f"'{name}' value {value} is too large (must be no more than {question['max']})."]
    return []


def _matches(plural: str, found: Object, name: str, value: str) -> bool:
    """Whether an object is what a filter of AWX's lists asks for (awx/api/filters.py)."""
    field, _separator, how = name.partition("__")
    if field not in found and plural not in UNIONS:
        raise UnknownRequest(f"{plural} has no field {field} to filter by")
    if field not in found:
        return False
    part, _separator, way = how.partition("__")
    if part == "name":
        return _compare(found["summary_fields"].get(field, {}).get("name"), way, value)
    return _compare(found[field], how, value)


def _compare(what: Any, how: str, value: str) -> bool:
    if how not in ("", "startswith", "in"):
        raise UnknownRequest(f"filter __{how}")
    if how == "in":
        return str(what) in value.split(",")
    return str(what).startswith(value) if how else str(what) == value


@contextmanager
def serve(stand_in: StandIn, certificate: Path | None = None) -> Iterator[str]:
    """Its URL, until the end of the block; with a certificate and its key in a file it is of
    HTTPS.
    """

    class Handler(BaseHTTPRequestHandler):
        """One request."""

        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            where = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            text = self.rfile.read(length)
            with stand_in.lock:
                try:
                    query = dict(parse_qsl(where.query, keep_blank_values=True))
                    status, answer = stand_in.answer(
                        self.command, where.path, query, json.loads(text) if text else None
                    )
                except (UnknownRequest, LookupError, ValueError) as exc:
                    stand_in.unknown.append(f"{self.command} {self.path} {text.decode()}: {exc!r}")
                    status, answer = 500, {"detail": str(exc)}
            data = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("X-API-Product-Name", "AWX")
            self.send_header("X-API-Product-Version", "24.6.1")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_DELETE = _do

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http{'s' if certificate else ''}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert stand_in.unknown == [], stand_in.unknown
