# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The metrics, the rules and the dashboard, in Debian's Prometheus and node_exporter."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sample
from lab.common import patient, wait

FILES = Path(__file__).parents[2] / "roles/compliance_report/files"
RULES = FILES / "prometheus-rules.yml"


def run(*command: str, given: str | None = None) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=patient(60), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def free_port() -> int:
    """A port of the loopback interface that nobody uses."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


@contextmanager
def started(log: Path, *command: str) -> Iterator[None]:
    """Run a server until the end of the block."""
    with (
        log.open("w") as output,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        ) as process,
    ):
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(patient(10))
            except subprocess.TimeoutExpired:
                process.kill()


def ask(url: str) -> Any:
    """What a server answers; None while it does not."""
    try:
        with urllib.request.urlopen(url, timeout=patient(5)) as answer:
            return json.load(answer)["data"]
    except (OSError, urllib.error.URLError, ValueError):
        return None


@pytest.mark.smoke
def test_promtool_accepts_metrics_and_rules(tmp_path: Path) -> None:
    """And the rules fire when they should, and only then."""
    results = sample.make_results(20, 30)
    evil = 'a"b\\c\nd'
    sample.request(tmp_path, cluster=evil, exceptions=sample.EXCEPTIONS).write(results.rows())
    assert not run(
        "promtool", "check", "metrics", given=(tmp_path / "storage_ops.prom").read_text()
    )
    assert "7 rules found" in run("promtool", "check", "rules", str(RULES))
    assert "SUCCESS" in run(
        "promtool", "test", "rules", str(Path(__file__).parent / "rules_test.yml")
    )


def test_scraped_and_the_alerts_fire(tmp_path: Path) -> None:
    """From the file by node_exporter into Prometheus; the rules wait for a second there, and the
    dashboard's queries all have data.
    """
    folder = tmp_path / "textfile"
    folder.mkdir()
    (tmp_path / "rules.yml").write_text(re.sub(r"for: \w+", "for: 1s", RULES.read_text()))
    exporter, server = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    (tmp_path / "prometheus.yml").write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(tmp_path / "rules.yml")],
                "scrape_configs": [
                    {"job_name": "node", "static_configs": [{"targets": [exporter]}]}
                ],
            }
        )
    )
    sample.write(tmp_path / "report", 40, 80, prometheus_file=str(folder / "storage_ops.prom"))
    metrics = (folder / "storage_ops.prom").read_text()
    with ExitStack() as running:
        textfile = (
            "--collector.disable-defaults",
            "--collector.textfile",
            f"--collector.textfile.directory={folder}",
        )
        running.enter_context(
            started(
                tmp_path / "exporter.log",
                "prometheus-node-exporter",
                f"--web.listen-address={exporter}",
                *textfile,
            )
        )
        storage = (
            "--storage.tsdb.path",
            str(tmp_path / "data"),
            f"--config.file={tmp_path / 'prometheus.yml'}",
        )
        running.enter_context(
            started(
                tmp_path / "prometheus.log",
                "prometheus",
                f"--web.listen-address={server}",
                *storage,
            )
        )

        def query(expression: str) -> Any:
            found = ask(
                f"http://{server}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
            )
            return found and found["result"]

        ours = '{__name__=~"storage_ops_compliance_.*"}'
        there = sum(not line.startswith("#") for line in metrics.splitlines())
        scraped = wait(lambda: query(ours), "metrics are scraped")
        assert len(scraped) == there
        value = query('storage_ops_compliance_hosts{cluster="example",status="not_assessed"}')[0][
            "value"
        ][1]
        assert (
            f'storage_ops_compliance_hosts{{cluster="example",status="not_assessed"}} {value}'
            in metrics
        )
        assert query("node_textfile_scrape_error")[0]["value"][1] == "0"

        def firing() -> set[str]:
            alerts = (ask(f"http://{server}/api/v1/alerts") or {"alerts": []})["alerts"]
            return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

        expected = {
            f"StorageCompliance{what}"
            for what in ("Critical", "Major", "NotAssessed", "ExceptionExpired")
        }
        wait(lambda: firing() >= expected, f"alerts fire: {expected}")
        assert not firing() & {
            f"StorageCompliance{what}" for what in ("Stale", "Missing", "Unreadable")
        }
        # A run that did not come: the file stays as it is.
        old = re.sub(r"(last_run_timestamp_seconds{.*}) .*", r"\1 1000000000", metrics)
        (folder / "storage_ops.prom").write_text(old)
        wait(lambda: "StorageComplianceStale" in firing(), "the alert for an old run fires")

        # Read again below.
        (folder / "storage_ops.prom").write_text("no metrics")
        unread = {"StorageComplianceMissing", "StorageComplianceUnreadable"}
        wait(lambda: firing() >= unread, "the alerts for a file that cannot be read fire")
        (folder / "storage_ops.prom").write_text(metrics)
        wait(lambda: query(ours), "metrics are scraped again")

        dashboard = json.loads((FILES / "grafana-dashboard.json").read_text())
        queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        assert len(queries) >= 10
        assert not [one for one in queries if not query(one.replace("$cluster", ".*"))]
        names = ask(
            f"http://{server}/api/v1/label/cluster/values?match[]=storage_ops_compliance_last_run_timestamp_seconds"
        )
        assert names == [
            "example"
        ] and "label_values(storage_ops_compliance_last_run" in json.dumps(dashboard["templating"])
