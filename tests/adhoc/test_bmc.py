# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A BMC that answers by Redfish without end, with both ansible-cores."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab.common import patient

USER, PASSWORD = "admin", "hunter2 ü'$x"
UUID = "0a1b2c3d-1111-4222-8333-444455556666"
SYSTEM = {"Id": "1", "UUID": UUID, "PowerState": "On"}
# More than is read, and no harm to the machine that runs this.
FLOOD, PIECE = 2**30, b"\0" * 2**20


class Bmc(ThreadingHTTPServer):
    """A BMC with one system, for whoever has its password. ``floods``: it answers at length."""

    def __init__(self, folder: Path, floods: bool) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.floods, self.sent = floods, 0
        self.certificate, key = folder / "certificate.pem", folder / "key.pem"
        made = ["-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(self.certificate)]
        name = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
        subprocess.run(
            ["openssl", "req", "-x509", "-days", "2", *made, *name], check=True, capture_output=True
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self.socket = context.wrap_socket(self.socket, server_side=True)


class Answers(BaseHTTPRequestHandler):
    """What it says to a request."""

    server: Bmc
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Any path is its system's."""
        told = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.headers["Authorization"] != f"Basic {told}":
            self.send_error(401)
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        if not self.server.floods:
            body = json.dumps(SYSTEM).encode()
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with contextlib.suppress(OSError):
            while self.server.sent < FLOOD:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(PIECE), PIECE))
                self.server.sent += len(PIECE)
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_words: Any) -> None:
        """Nothing is printed."""


@contextlib.contextmanager
def answering(folder: Path, floods: bool) -> Iterator[Bmc]:
    """One that is there."""
    with Bmc(folder, floods) as bmc:
        thread = threading.Thread(target=bmc.serve_forever)
        thread.start()
        try:
            yield bmc
        finally:
            bmc.shutdown()
            thread.join()


def reading(programs: Path, folder: Path, bmc: Bmc) -> tuple[dict[str, Any], str]:
    """What the role's tasks read of it, and all that was printed."""
    address = f"127.0.0.1:{bmc.server_port}"
    entry = {"kind": "redfish", "address": address, "ca_path": str(bmc.certificate), "system": "1"}
    given = {
        "__node_fence_bmc_node": "a",
        "__node_fence_bmc_given": {"a": entry},
        "__node_fence_bmc_user": USER,
        "__node_fence_bmc_password": PASSWORD,
        "__node_fence_bmc_unverified": False,
    }
    seen = folder / "seen.json"
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable},
        "tasks": [
            {
                "ansible.builtin.include_role": {
                    "name": "storage_ops.runbooks.node_fence",
                    "tasks_from": "power_read",
                },
                "vars": given,
            },
            {"ansible.builtin.copy": {"dest": str(seen), "content": "{{ __node_fence_power }}"}},
        ],
    }
    playbook = folder / "play.yml"
    playbook.write_text(yaml.safe_dump([play], sort_keys=False), encoding="utf-8")
    environment = {
        **os.environ,
        "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
        "ANSIBLE_HOME": str(folder / "home"),
    }
    done = subprocess.run(
        [str(programs / "ansible-playbook"), "-vvv", "-i", "localhost,", str(playbook)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=patient(300),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (read,) = json.loads(seen.read_text(encoding="utf-8"))
    return read, done.stdout + done.stderr


@pytest.mark.parametrize("floods", [False, True])
def test_a_bmc_takes_no_more_memory_than_a_host(
    programs: Path, tmp_path: Path, floods: bool
) -> None:
    """The request runs on the controller, and took as much as the BMC sent in 100 seconds (F8)."""
    with answering(tmp_path, floods) as bmc:
        read, printed = reading(programs, tmp_path, bmc)
        assert bmc.sent < FLOOD
    assert "hunter2" not in printed
    if floods:
        assert bmc.sent and (read["state"], read["uuid"], str(read["status"])) == ("", "", "0"), (
            read
        )
    else:
        assert (read["state"], read["uuid"], str(read["status"])) == ("On", UUID, "200"), read
