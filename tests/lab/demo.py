# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""make demo: a real node, a real residual disk, and the playbook that finds it, removes it and
proves that it is gone; then the report.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from lab.common import LabError
from lab.runs import temporary
from lab.vm import Vm

PLAYBOOK = "storage_ops.runbooks.clean_residual_paths"
COMPLIANCE = "storage_ops.runbooks.compliance"
# LUN 2 is mpathb (tests/lab/README.md). Only the demo looks for so short a time: the default is 25
# s.
LUN = 2
MAP = "mpathb"
SECONDS = 10
CHECKOUT = Path(__file__).resolve().parents[2]
REPORT = CHECKOUT / "build/demo-report"
STARTED = time.monotonic()


class DemoError(Exception):
    """The demo did not go as it should."""


def say(headline: str, *lines: str) -> None:
    """Announce a step."""
    print(
        f"\n=== [{time.monotonic() - STARTED:4.0f} s] {headline}", *lines, sep="\n    ", flush=True
    )


def show(vm: Vm, command: str) -> str:
    """Run a command on the node and show both, as an operator's terminal would."""
    print(f"\nnode1# {command}", flush=True)
    # The exit code is part of what is shown: some of these commands are meant to fail.
    result = vm.run(command, check=False)
    print(
        "\n".join(text.rstrip() for text in (result.stdout, result.stderr) if text.strip())
        or "(no output)",
        flush=True,
    )
    return result.stdout


def clean(inventory: Path, *arguments: str) -> str:
    """Run the playbook that cleans the node; return its output."""
    return play(
        PLAYBOOK,
        inventory,
        "-e",
        "target=node1",
        "-e",
        f"residual_paths_observation_seconds={SECONDS}",
        *arguments,
    )


def play(playbook: str, inventory: Path, *arguments: str) -> str:
    """Run a playbook as an operator would; return its output."""
    command = ["ansible-playbook", playbook, "-i", str(inventory), *arguments]
    print(f"\n$ {shlex.join(command)}", flush=True)
    environment = {**os.environ, "ANSIBLE_FORCE_COLOR": "1" if sys.stdout.isatty() else "0"}
    lines = []
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    if process.returncode != 0:
        raise DemoError(f"ansible-playbook ended with {process.returncode}")
    return "".join(lines)


def wait_until_failed(vm: Vm) -> None:
    """multipathd sees a LUN that is gone at its next check of each path."""
    for _attempt in range(60):
        paths = vm.run('multipathd show paths raw format "%m %t"').stdout.splitlines()
        if sum(path.split() == [MAP, "failed"] for path in paths) == 2:
            return
        time.sleep(1)
    raise DemoError(f"multipathd still calls the paths of {MAP} usable")


def demo(vm: Vm, inventory: Path) -> None:
    say(
        "Boot a node: Debian, an iSCSI target with two portals, multipath",
        "The first time its image is built, which takes some minutes.",
    )
    vm.up()
    vm.inventory(inventory)
    show(vm, "multipath -ll")

    say(
        f"Unmap LUN {LUN} on the storage, and nothing on the node",
        "This is what a node is left with that lost power while "
        "Kubernetes moved its volumes elsewhere.",
    )
    vm.labctl("lun", "unmap", str(LUN))
    wait_until_failed(vm)
    show(vm, f"multipath -ll {MAP}")
    show(vm, f"dd if=/dev/mapper/{MAP} of=/dev/null bs=4k count=1 iflag=direct")

    say("Run the playbook in check mode: it finds the map and shows why, and changes nothing")
    if "planned: flush_map" not in clean(inventory, "--check"):
        raise DemoError("check mode planned nothing")

    say("Run it for real")
    if "done: flush_map" not in clean(inventory):
        raise DemoError("nothing was repaired")

    say("The proof: map and paths are gone, the other three maps have both their paths")
    maps = show(vm, "multipath -ll")
    show(vm, f"ls /dev/mapper/{MAP}")
    show(vm, "ls /dev/disk/by-id")
    if MAP in maps or maps.count("active ready running") != 6:
        raise DemoError("the node is not as it should be")

    say("Run it again: nothing to do")
    if "nothing to do" not in clean(inventory):
        raise DemoError("the second run found something")

    say("The nightly run: all controls of the node in one call, changing nothing, and the report")
    # Nobody wants the demo to look at the cluster that happens to be in ~/.kube/config.
    play(
        COMPLIANCE,
        inventory,
        "-e",
        "compliance_read_cluster=false",
        "-e",
        f"compliance_report_folder={REPORT}",
    )
    report = json.loads((REPORT / "report.json").read_text())
    if [host["name"] for host in report["hosts"] if host["status"] == "assessed"] != ["node1"]:
        raise DemoError("the report does not have the node")


def farewell() -> None:
    say(
        "Done. The report:",
        f"{REPORT}/report.html      to read, in any browser",
        f"{REPORT}/report.json      all of it, for programs",
        f"{REPORT}/storage_ops.prom metrics for Prometheus",
        f"{REPORT}/junit.xml        for CI",
    )
    say("Now on your own inventory, which must name the hosts as ansible reaches them:")
    print(f"""
    Install the collection from this checkout:
        ansible-galaxy collection install {CHECKOUT}
    Look first, nothing is changed:
        ansible-playbook {PLAYBOOK} -i INVENTORY -e target=worker01 --check
    Then repair, one host at a time:
        ansible-playbook {PLAYBOOK} -i INVENTORY -e target=worker01
    A quick look at many hosts (docs/guides/ad_hoc.md):
        ansible -i INVENTORY all -b -m storage_ops.runbooks.multipath_residual --check
    The report of all controls, on all hosts:
        ansible-playbook {COMPLIANCE} -i INVENTORY
    What is refused and why: docs/guides/residual_paths.md
""")


def terminate(_signal: int, _frame: FrameType | None) -> None:
    # As an exception, so that the node is stopped on the way out.
    raise KeyboardInterrupt


def main() -> int:
    signal.signal(signal.SIGTERM, terminate)
    vm = Vm("demo")
    try:
        with temporary("demo") as folder:
            demo(vm, folder / "inventory.yml")
        farewell()
    except (DemoError, LabError) as error:
        print(f"\ndemo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo interrupted", file=sys.stderr)
        return 130
    finally:
        vm.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
