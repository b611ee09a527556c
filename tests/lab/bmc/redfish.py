# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``python -m lab.bmc.redfish FOLDER PORT UUID``: the emulator of sushy-tools, whose one system is
the machine of that folder.
"""

from __future__ import annotations

import json
import ssl
import sys
from pathlib import Path

import flask
from sushy_tools.emulator import main as emulator
from sushy_tools.emulator.resources.systems import fakedriver
from werkzeug.wrappers import Response

from .machine import machine_of

FOLDER = Path(sys.argv[1])
# Where whoever controls the BMC has the reset done: what it names as the action's URL, and where
# it redirects that request to.
TARGET, REDIRECT = FOLDER / "target", FOLDER / "redirect"
RESET = "/Actions/ComputerSystem.Reset"


class Systems(fakedriver.FakeDriver):  # type: ignore[misc]
    """As the one with which it comes, with a machine behind."""

    machine = machine_of(FOLDER)

    def set_power_state(self, identity: str, state: str) -> None:
        """Switch it, as ResetType says (DSP2046)."""
        self.machine.told(state in ("On", "ForceOn"))

    def get_power_state(self, identity: str) -> str:
        """What its BMC says."""
        return "On" if self.machine.says else "Off"


def misled() -> Response | None:
    """A redirection that keeps method, body and password (RFC 9110, 15.4.9)."""
    if not (flask.request.path.endswith(RESET) and REDIRECT.exists()):
        return None
    return flask.redirect(REDIRECT.read_text(), 308)


def renamed(answer: flask.Response) -> flask.Response:
    """An answer with another URL of the action."""
    if TARGET.exists() and answer.is_json and "Actions" in (told := answer.get_json()):
        told["Actions"]["#ComputerSystem.Reset"]["target"] = TARGET.read_text()
        answer.set_data(json.dumps(told))
    return answer


def main() -> None:
    """Serve until it is ended."""
    port, uuid = int(sys.argv[2]), sys.argv[3]
    fakedriver.FakeDriver = Systems
    state = "On" if Systems.machine.is_on else "Off"
    system = {"uuid": uuid, "name": "node", "power_state": state, "nics": []}
    emulator.app.configure(
        extra_config={
            "SUSHY_EMULATOR_FAKE_DRIVER": True,
            "SUSHY_EMULATOR_STATE_DIR": str(FOLDER),
            "SUSHY_EMULATOR_FAKE_SYSTEMS": [system],
            "SUSHY_EMULATOR_AUTH_FILE": str(FOLDER / "users"),
        }
    )
    emulator.app.before_request(misled)
    emulator.app.after_request(renamed)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FOLDER / "bmc.pem")
    emulator.app.run(host="127.0.0.1", port=port, ssl_context=context)


if __name__ == "__main__":
    main()
