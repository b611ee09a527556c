# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""BMCs in front of a machine: one that speaks Redfish (sushy-tools), and one that speaks IPMI
(OpenIPMI's ipmi_sim). And a command that only tells of one.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bcrypt

from ..common import LabError, wait
from ..kubernetes.process import Process
from .machine import machine_of, put_behind

if TYPE_CHECKING:
    from ..kubelet.node import KubeletVm

USER, PASSWORD = "storage-ops", 'a "secret" of $HOME'
# A management controller at the usual address of a BMC (ipmi_sim_cmd(5)).
_EMULATION = """mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
mc_enable 0x20
"""
# ipmi_lan(5). A blank ends a word there.
_LAN = """name "lab"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 {port}
    priv_limit admin
    allowed_auths_callback md2 md5
    allowed_auths_user md2 md5
    allowed_auths_operator md2 md5
    allowed_auths_admin md2 md5
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control "{control}"
  user 1 true "" "" user 10 md2 md5
  user 2 true "{user}" "{password}" admin 10 md2 md5
"""
IPMI_PASSWORD = "a-$ecret"
_OUTSIDE = """import json, pathlib, sys
sys.path.insert(0, {tests!r})
from lab.bmc.machine import machine_of
told = json.loads(sys.argv[1])
state = "on" if machine_of(pathlib.Path({folder!r})).says else "off"
print(json.dumps({{"state": state, **told}}))
"""


class Bmc:
    """A BMC, and its machine, which has power when it starts: a process, or this VM node, whose
    life is its owner's business.
    """

    kind = ""
    password = PASSWORD

    def __init__(self, folder: Path, vm: KubeletVm | None = None) -> None:
        folder.mkdir(parents=True)
        if vm:
            put_behind(folder, vm)
        self.folder, self.machine, self._vm = folder, machine_of(folder), vm
        self.port = _free_port(self.kind)
        self._process = Process(folder, "bmc")

    def start(self) -> None:
        """Answer."""
        self._process.start(self._command(), tied=True)

    def stop(self) -> None:
        """It is away."""
        self._process.stop()

    def close(self) -> None:
        """Nothing is left of it."""
        self.stop()
        if not self._vm:
            self.machine.switch(False)

    def __enter__(self) -> Bmc:
        self.machine.switch(True)
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def mapped(self) -> dict[str, Any]:
        """As the inventory has it."""
        return {"kind": self.kind, "address": f"127.0.0.1:{self.port}"}

    def _command(self) -> list[str]:
        raise NotImplementedError


class Redfish(Bmc):
    """One whose certificate only its own file vouches for.

    ``machine_uuid``: the UUID that it gives its machine.
    """

    kind = "redfish"

    def __init__(self, folder: Path, machine_uuid: str, vm: KubeletVm | None = None) -> None:
        super().__init__(folder, vm)
        self._uuid = machine_uuid
        self.certificate = folder / "certificate.pem"

    def start(self) -> None:
        """Answer, once it can."""
        if not self.certificate.exists():
            self._make_secrets()
        super().start()

        def answers() -> bool:
            self._process.check()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        wait(answers, "the emulator of Redfish answers", 30)

    @property
    def mapped(self) -> dict[str, Any]:
        """With its certificate."""
        return {**super().mapped, "ca_path": str(self.certificate)}

    def trusts(self, other: Redfish) -> None:
        """Have the other one's certificate and users; before it starts."""
        for name in ("certificate.pem", "bmc.pem", "users"):
            shutil.copy(other.folder / name, self.folder / name)

    @property
    def reset(self) -> str:
        """The URL at which its machine is switched."""
        address = f"https://127.0.0.1:{self.port}"
        return f"{address}/redfish/v1/Systems/{self._uuid}/Actions/ComputerSystem.Reset"

    def mislead(self, target: str = "", redirect: str = "") -> None:
        """Name this URL of its reset, and redirect requests of that; empty: as it is."""
        for name, text in (("target", target), ("redirect", redirect)):
            (self.folder / name).unlink(missing_ok=True)
            if text:
                (self.folder / name).write_text(text)

    def _make_secrets(self) -> None:
        key = self.folder / "key.pem"
        name = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
        made = ["-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(self.certificate)]
        subprocess.run(
            ["openssl", "req", "-x509", "-days", "2", *made, *name], check=True, capture_output=True
        )
        both = self.certificate.read_text() + key.read_text()
        (self.folder / "bmc.pem").write_text(both)
        hashed = bcrypt.hashpw(self.password.encode(), bcrypt.gensalt(4)).decode()
        (self.folder / "users").write_text(f"{USER}:{hashed}\n")

    def _command(self) -> list[str]:
        return [
            sys.executable,
            "-m",
            "lab.bmc.redfish",
            str(self.folder),
            str(self.port),
            self._uuid,
        ]


class ByAgent(Redfish):
    """The same one, and the inventory names the fence agent of fence-agents that asks it."""

    kind = "fence_redfish"
    program = Path("/usr/sbin") / kind

    @property
    def mapped(self) -> dict[str, Any]:
        """The agent runs on the controller, and takes any certificate."""
        # It has no option for the certificate of an authority.
        where = {name: given for name, given in super().mapped.items() if name != "ca_path"}
        return {**where, "host": "localhost", "options": {"ssl_insecure": True}}


class Outside(Bmc):
    """No BMC: a command that tells of the machine, which others switch.

    ``told``: what its answer has beside the state; "state" in it is told instead.
    """

    kind = "external"

    def __init__(self, folder: Path, **told: str) -> None:
        super().__init__(folder)
        self.told, self.program = told, folder / "power-of"

    def start(self) -> None:
        """Answer."""
        text = _OUTSIDE.format(tests=str(Path(__file__).parents[2]), folder=str(self.folder))
        self.program.write_text(text)

    def stop(self) -> None:
        """It is away."""
        self.program.unlink(missing_ok=True)

    def hang(self) -> None:
        """It never answers."""
        self.program.write_text("import time\ntime.sleep(600)\n")

    @property
    def mapped(self) -> dict[str, Any]:
        """It runs on the controller, and is given its answer."""
        command = [sys.executable, str(self.program), json.dumps(self.told)]
        return {"kind": self.kind, "host": "localhost", "command": command}


class Ipmi(Bmc):
    """One that does not say which machine it has."""

    kind = "ipmi"
    password = IPMI_PASSWORD

    def start(self) -> None:
        """Answer; whoever asks too early asks again."""
        control = f"{sys.executable} -m lab.bmc.machine {self.folder}"
        lan = _LAN.format(port=self.port, control=control, user=USER, password=self.password)
        (self.folder / "lan.conf").write_text(lan)
        (self.folder / "sim.emu").write_text(_EMULATION)
        (self.folder / "state").mkdir(exist_ok=True)
        super().start()

    def _command(self) -> list[str]:
        program = shutil.which("ipmi_sim")
        if program is None:
            raise LabError("ipmi_sim is missing: apt-get install openipmi")
        config = ["-c", str(self.folder / "lan.conf"), "-f", str(self.folder / "sim.emu")]
        return [program, *config, "-s", str(self.folder / "state"), "-n"]


def machine_uuid(node: str) -> str:
    """The systemUUID that a node of the lab has (Api.boot)."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, node))


def _free_port(kind: str) -> int:
    family = socket.SOCK_DGRAM if kind == "ipmi" else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, family) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
