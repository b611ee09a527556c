# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A stand-in for AWX's API: lists, objects and their relations in memory, for awx.awx's modules to talk to. It is no AWX.

It shows that the modules accept what the playbook says, that names refer to something that is there, and that a second run changes nothing.
Of AWX's own rules it knows two: a default is one of the choices, and a secret is never handed out. A job that is launched has been
successful at once; nothing runs.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

Object = dict[str, Any]
ENCRYPTED = "$encrypted$"
TEMPLATES = ("job_templates", "workflow_job_templates", "projects")
# The relations that the modules ask for; each is a list of ids.
RELATIONS = ("credentials", "success_nodes", "always_nodes", "failure_nodes", "labels", "instance_groups")


class StandIn:
    """The objects, by their list."""

    def __init__(self) -> None:
        self.lists: dict[str, dict[int, Object]] = {}
        self.relations: dict[str, list[int]] = {}
        self.surveys: dict[str, Object] = {}
        self.secrets: list[str] = []
        self.writes: list[str] = []
        # (the template's name, what was sent) of each job.
        self.launched: list[tuple[str, Object]] = []
        self.last = 0
        self.lock = threading.Lock()

    def add(self, plural: str, body: Object) -> Object:
        """A new object."""
        self.last += 1
        where = f"/api/v2/{plural}/{self.last}/"
        related = {"survey_spec": f"{where}survey_spec/", "launch": f"{where}launch/"} if plural in TEMPLATES else {}
        made = {"id": self.last, "url": where, "type": plural[:-1], "related": related, "summary_fields": {}, **self._stored(plural, body)}
        if plural == "projects":
            made |= {"status": "successful", "scm_revision": "0" * 40}
        self.lists.setdefault(plural, {})[self.last] = made
        return made

    def _stored(self, plural: str, body: Object) -> Object:
        """As AWX keeps it: secrets are not handed out, variables are text."""
        body = {name: value for name, value in body.items() if name != "type"}
        if plural == "credentials" and "inputs" in body:
            kind = self.lists["credential_types"][body["credential_type"]]
            secret = {field["id"] for field in kind["inputs"]["fields"] if field.get("secret")}
            self.secrets += [value for name, value in body["inputs"].items() if name in secret]
            body["inputs"] = {name: ENCRYPTED if name in secret else value for name, value in body["inputs"].items()}
        return body

    def named(self, plural: str, name: str) -> Object:
        """The object of that name, or identifier."""
        return next(found for found in self.lists[plural].values() if name in (found.get("name"), found.get("identifier")))

    def find(self, plural: str, wanted: dict[str, str]) -> list[Object]:
        """The objects that have these values."""
        plurals = {"unified_job_templates": TEMPLATES, "unified_jobs": ("jobs",)}.get(plural, (plural,))
        every = [found for each in plurals for found in self.lists.get(each, {}).values()]
        either = {name.removeprefix("or__"): value for name, value in wanted.items() if name.startswith("or__")}
        # A user or a team is what a credential need not have.
        exact = {name: value for name, value in wanted.items() if not name.startswith("or__") and "__" not in name and name != "page_size"}
        return [
            found
            for found in every
            if all(str(found.get(name)) == value for name, value in exact.items())
            and (not either or any(str(found.get(name)) == value for name, value in either.items()))
        ]

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        """(status, answer) to a request."""
        _api, _v2, plural, *rest = path.strip("/").split("/")
        if plural == "config":
            return 200, {"version": "24.6.1"}
        if method != "GET":
            self.writes.append(f"{method} {path}")
        if not rest:
            return (200, _page(self.find(plural, query))) if method == "GET" else (201, self.add(plural, body))
        found = self.lists[plural][int(rest[0])]
        if len(rest) == 1:
            if method == "PATCH":
                found.update(
                    self._stored(plural, {**body, **({"credential_type": found["credential_type"]} if plural == "credentials" else {})})
                )
            return 200, found
        return self._below(method, path, found, rest[1], body)

    def _below(self, method: str, path: str, found: Object, name: str, body: Any) -> tuple[int, Any]:
        """What belongs to an object."""
        if name == "survey_spec":
            if method == "GET":
                return 200, self.surveys.get(path, {})
            for question in body["spec"]:
                if question.get("choices") and question.get("default", question["choices"][0]) not in question["choices"]:
                    return 400, {"error": "Default choice must be answered from the choices listed."}
            self.surveys[path] = body
            return 200, {}
        if name == "launch":
            self.launched.append((found["name"], body))
            done = {"status": "successful", "created": "2026-01-01T00:00:00Z", "finished": "2026-01-01T00:00:01Z", "artifacts": {}}
            return 201, self.add("jobs", done)
        if name == "create_approval_template":
            made = self.add("workflow_approval_templates", body)
            found["related"]["unified_job_template"] = made["url"]
            return 201, made
        if name not in RELATIONS:
            return 404, {"detail": "Not found."}
        ids = self.relations.setdefault(path, [])
        if method == "GET":
            return 200, _page([{"id": each} for each in ids])
        if body.get("disassociate"):
            ids.remove(body["id"])
        else:
            ids.append(body["id"])
        return 204, None


def _page(found: list[Object]) -> Object:
    return {"count": len(found), "next": None, "previous": None, "results": found}


@contextmanager
def serve(stand_in: StandIn) -> Iterator[str]:
    """Its URL, until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        """One request."""

        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            where = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            text = self.rfile.read(length)
            with stand_in.lock:
                status, answer = stand_in.answer(self.command, where.path, dict(parse_qsl(where.query)), json.loads(text) if text else None)
            data = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = _do

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()
