# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the report on a big fleet costs: to make, on the controller, and to open and filter, in
Chromium.

5,000 hosts with 20,000 findings that do not exist. Prints seconds and megabytes; asserts nothing.
What Ansible needs to start with such an inventory, in which the results stand here, is taken off.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import sync_playwright
from support.node import environment

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
import sample

CHROMIUM = "/usr/bin/chromium"
ROUNDS = 3
ROLE = {"name": "storage_ops.runbooks.compliance_report"}
TASK = {
    "import_role": ROLE,
    "run_once": True,
    "vars": {"compliance_report_hosts": "{{ groups['all'] }}", "compliance_report_others": []},
}


class Cost(NamedTuple):
    """Seconds by the clock and of the processor, and megabytes of the biggest process."""

    seconds: float
    processor: float
    megabytes: float


def play(folder: Path, name: str, tasks: list[dict[str, object]]) -> Cost:
    """What a play costs."""
    playbook = folder / f"{name}.json"
    playbook.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    # Of a child, the system says only how big the biggest was that it ever had.
    measure = "import resource, subprocess, sys; status = subprocess.call(sys.argv[1:], stdout=2); "
    measure += (
        "used = resource.getrusage(resource.RUSAGE_CHILDREN); print(used.ru_utime + "
        "used.ru_stime, used.ru_maxrss); sys.exit(status)"
    )
    command = [
        "ansible-playbook",
        "-i",
        str(folder / "inventory.json"),
        "-e",
        f"compliance_report_folder={folder / 'out'}",
        str(playbook),
    ]
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", measure, *command],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    processor, kilobytes = done.stdout.split()
    return Cost(time.monotonic() - begun, float(processor), int(kilobytes) / 1024)


def make(folder: Path, hosts: int, findings: int) -> None:
    """Through the role, as a playbook does, then by parts."""
    results = sample.make_results(hosts, findings)
    inventory = {
        "all": {
            "hosts": {name: {"compliance_node": result} for name, result in results.nodes.items()}
        }
    }
    (folder / "inventory.json").write_text(json.dumps(inventory))
    nothing = play(folder, "nothing", [{"ansible.builtin.debug": {"msg": "nothing"}}])
    whole = play(folder, "report", [TASK])
    taken, used = whole.seconds - nothing.seconds, whole.processor - nothing.processor
    print(f"role: {taken:.1f} s, {used:.1f} s of the processor, {whole.megabytes:.0f} MB")
    print(
        f"  (an empty play with this inventory: {nothing.seconds:.1f} "
        f"s, {nothing.megabytes:.0f} MB)"
    )
    for format_ in ("json", "html", "prometheus", "junit"):
        rows = results.rows()
        begun = time.process_time()
        sample.request(folder / "parts", formats=[format_]).write(rows)
        print(
            f"  with {format_} only, without Ansible: "
            f"{time.process_time() - begun:.1f} s of the processor"
        )
    for path in sorted((folder / "out").iterdir()):
        if path.is_file():
            print(f"  {path.name}: {path.stat().st_size / 1e6:.1f} MB")


def look(file: Path) -> None:
    """Open the page and use it."""
    seconds: dict[str, list[float]] = {
        "open": [],
        "search": [],
        "search again": [],
        "filter": [],
        "hosts": [],
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for _round in range(ROUNDS):
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            begun = time.monotonic()
            page.goto(file.as_uri())
            page.wait_for_selector("html[data-ready]")
            seconds["open"].append(time.monotonic() - begun)
            for what, change in (
                ("search", "q.value = 'worker-0042'; q.dispatchEvent(new Event('input'))"),
                ("search again", "q.value = 'mpathc'; q.dispatchEvent(new Event('input'))"),
                (
                    "filter",
                    "severity.value = 'critical'; severity.dispatchEvent(new Event('input'))",
                ),
                ("hosts", "document.getElementById('view-hosts').click()"),
            ):
                before = page.locator("#count").inner_text()
                script = (
                    "const [q, severity] = ['q', 'severity'].map((id) => "
                    "document.getElementById(id));"
                )
                begun = time.monotonic()
                page.evaluate(f"() => {{ {script} {change} }}")
                page.wait_for_function(
                    "(before) => document.getElementById('count').innerText !== before", arg=before
                )
                seconds[what].append(time.monotonic() - begun)
            page.close()
        browser.close()
    print("page, seconds until it can be used (median of 3):")
    for what, taken in seconds.items():
        print(f"  {what}: {statistics.median(taken):.2f} s")


def main() -> None:
    """As a program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=5_000)
    parser.add_argument("--findings", type=int, default=20_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        make(Path(name), options.hosts, options.findings)
        look(Path(name) / "out" / "report.html")


if __name__ == "__main__":
    main()
