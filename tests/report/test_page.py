# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page in Chromium, opened from the disk, as a manager, an engineer, a printer and an attacker
use it.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pixels
import pytest
import sample
from axe_playwright_python.sync_playwright import Axe
from lab.common import patient, wait
from playwright.sync_api import Browser, Page, expect

FIRST_SCREEN = (
    "Storage compliance",
    "Fleet example",
    "open findings (",
    "new since the last run",
    "By control",
    "Trend",
    "Not assessed",
)
WIDE = {"width": 1280, "height": 800}
EVIL = (
    "\"'&</script><img src=x "
    'onerror="document.title=1"><script>document.title=1</script>\x1b[2J\u202e{{ 7 * 7 }}'
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fleet of some size, with earlier runs."""
    folder = tmp_path_factory.mktemp("report")
    sample.write(folder, hosts=120, findings=160, runs=12)
    return folder / "report.html"


@contextmanager
def opened(browser: Browser, file: Path, fragment: str = "", **how: Any) -> Iterator[Page]:
    """The page, which must ask for nothing and complain of nothing."""
    context = browser.new_context(**{"viewport": WIDE, **how})
    context.set_default_timeout(patient(30) * 1000)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on(
        "request",
        lambda request: said.append(request.url) if not request.url.startswith("file:") else None,
    )
    page.goto(f"{file.as_uri()}{fragment}")
    yield page
    context.close()
    assert not said


def accessible(page: Page) -> None:
    """No violation, by axe-core."""
    found = Axe().run(page).response["violations"]
    assert not [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found]


def data(file: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((file.parent / "report.json").read_text())
    return loaded


def seen(page: Page, dark: bool, texts: Sequence[str] = FIRST_SCREEN) -> None:
    """A picture of the first screen shows its texts, on the ground that was asked for."""
    picture = page.screenshot()
    assert pixels.dark(page, picture) == dark
    where = {text: page.get_by_text(text).locator("visible=true").first for text in texts}
    assert not [text for text, at in where.items() if not pixels.legible(page, picture, at)]


@pytest.mark.smoke
def test_a_manager_sees_the_state_on_the_first_screen(browser: Browser, report: Path) -> None:
    """Title, fleet, sentence, numbers, the first controls, the trend and what was not assessed; in
    the dark, too, and without a script.
    """
    summary = data(report)["summary"]
    with opened(browser, report) as page:
        for text in FIRST_SCREEN:
            box = page.get_by_text(text).first.bounding_box()
            assert (
                box
                and box["y"] + box["height"] <= WIDE["height"]
                and box["x"] + box["width"] <= WIDE["width"]
            ), text
        numbers = [
            text.replace("\u202f", "") for text in page.locator(".number b").all_inner_texts()
        ]
        opened_findings = summary["findings"]["open"]
        assert numbers[:4] == [
            str(opened_findings[severity]) for severity in ("critical", "major", "minor", "info")
        ]
        assert numbers[7] == str(summary["hosts"]["not_assessed"])
        row = page.locator("tr", has_text="STOR-09").locator("td.n").all_inner_texts()
        control = summary["controls"]["STOR-09"]
        assert row == [
            str(control[result])
            for result in ("pass", "fail", "accepted", "not_applicable", "not_assessed")
        ]
        assert page.locator(".chart g").count() == 13
        expect(page.locator("section", has=page.locator("#h-exceptions"))).to_contain_text(
            "expired 2025-09-30"
        )
        accessible(page)
        seen(page, dark=False)
        page.get_by_role("button", name="Dark colours").click()
        accessible(page)
        seen(page, dark=True)

        def remembered() -> bool:
            page.reload()
            return page.locator("html").get_attribute("data-theme") == "dark"

        # The browser writes it down when it comes to it.
        wait(remembered, "what was chosen is remembered")
    with opened(browser, report, color_scheme="dark") as page:
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 29)"
    with opened(browser, report, java_script_enabled=False) as page:
        assert (
            page.get_by_text("open findings (").is_visible()
            and page.locator("noscript p").is_visible()
        )
        assert not page.locator("#explorer").is_visible()


def test_an_engineer_finds_and_repairs(browser: Browser, report: Path) -> None:
    """Filtered by everything there is, by mouse and keyboard; the address says what is shown."""
    findings = data(report)["findings"]

    def count(**wanted: Any) -> int:
        return sum(
            all(finding[key] == value for key, value in wanted.items()) for finding in findings
        )

    with opened(browser, report) as page:
        status, rows = page.locator("#count"), page.locator("#list .row")
        expect(status).to_contain_text(f"{len(findings)} of {len(findings)} findings")
        assert rows.count() == 100
        page.get_by_role("button", name="Show more").click()
        assert rows.count() == len(findings)
        page.get_by_label("Severity", exact=True).select_option("critical")
        expect(rows).to_have_count(count(severity="critical"))
        page.get_by_role("button", name="Clear").click()
        page.get_by_label("Status", exact=True).select_option("accepted")
        expect(rows).to_have_count(count(status="accepted"))
        page.get_by_label("Status", exact=True).select_option("new")
        expect(rows).to_have_count(count(new=True))
        page.get_by_role("button", name="Clear").click()
        page.get_by_role("link", name="STOR-01").click()
        expect(rows).to_have_count(count(control="STOR-01"))
        expect(page.get_by_label("Control", exact=True)).to_have_value("STOR-01")
        first = findings[[finding["control"] for finding in findings].index("STOR-01")]
        page.get_by_label("Search", exact=True).fill(f"{first['evidence']['wwid'].upper()} faulty")
        expect(rows).to_have_count(1)
        assert "q=" in page.url and "control=STOR-01" in page.url
        rows.first.focus()
        page.keyboard.press("Enter")
        expect(rows.first).to_have_attribute("aria-expanded", "true")
        detail = page.locator(".detail")
        for text in (
            first["reason"],
            first["evidence"]["wwid"],
            first["evidence"]["paths"][3],
            f"multipath -f {first['object']['name']}",
        ):
            expect(detail).to_contain_text(text)
        # What the host says that it runs is no command to be copied.
        expect(detail).to_contain_text(f"Planned actions, as {first['host']} says")
        expect(detail.locator("code")).to_have_text([first["command"]])
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        detail.get_by_role("button", name="Copy").click()
        expect(detail.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == first["command"]
        scope = f"-e residual_paths_wwids={first['evidence']['wwid']} --check"
        assert first["command"].endswith(f"-e target={first['host']} {scope}")
        accessible(page)
        rows.first.focus()
        page.keyboard.press("Enter")
        expect(detail).to_have_count(0)
        address = page.url
        page.get_by_role("button", name="Clear").click()
        page.get_by_role("button", name="Hosts").click()
        expect(status).to_contain_text("of 121 hosts")
        accessible(page)
        page.get_by_label("Search", exact=True).fill("sudo")
        expect(rows.first).to_contain_text("Missing sudo password")
        rows.first.click()
        expect(page.locator("#about-host")).to_contain_text("STOR-01 not assessed")
        expect(status).to_contain_text("None of")
    with opened(browser, report, "#" + address.split("#")[1]) as page:
        expect(page.locator("#list .row")).to_have_count(1)


def of(finding: dict[str, Any], kind: str) -> list[str]:
    """Whom it affects, of that kind."""
    names: list[str] = finding["affected"].get(kind, {}).get("names", [])
    return names


def test_the_list_as_a_work_list(browser: Browser, report: Path) -> None:
    """By cause, by namespace, the oldest first; the numbers lead to what they count."""
    found = data(report)
    findings = found["findings"]
    with opened(browser, report) as page:
        status, rows = page.locator("#count"), page.locator("#list .row")
        page.get_by_role("button", name="Causes").click()
        causes = {(one["control"], one["code"] or one["verdict"]) for one in findings}
        expect(status).to_have_text(f"{len(causes)} causes")
        expect(rows).to_have_count(len(causes))
        accessible(page)
        name = rows.first.locator("span").first.inner_text().rsplit(" ", 1)
        of_cause = [
            one for one in findings if [one["control"], one["code"] or one["verdict"]] == name
        ]
        expect(rows.first).to_contain_text(f"{len(of_cause)} finding")
        rows.first.click()
        expect(rows).to_have_count(len(of_cause))
        expect(page.get_by_label("Cause", exact=True)).to_have_value(name[1])
        page.get_by_role("button", name="Clear").click()
        page.get_by_role("button", name="Namespaces").click()
        expect(rows).to_have_count(
            len({name for one in findings for name in of(one, "namespaces")})
        )
        page.get_by_role("button", name="Workloads").click()
        owners = {name for one in findings for name in of(one, "owners")}
        expect(status).to_have_text(f"{len(owners)} workloads")
        accessible(page)
        owner = rows.first.locator("span").first.inner_text()
        rows.first.click()
        expect(rows).to_have_count(sum(owner in of(one, "owners") for one in findings))
        expect(page.get_by_label("Workload", exact=True)).to_have_value(owner)
        page.get_by_role("button", name="Clear").click()
        page.get_by_label("Sort by", exact=True).select_option("pods")
        most = max(one["affected"].get("pods", {}).get("count", 0) for one in findings)
        expect(rows.first).to_contain_text(f"{most} pods")
        rows.first.click()
        expect(page.locator(".detail")).to_contain_text(f"Pods ({most})")
        expect(page.locator(".detail")).to_contain_text(f"and {most - 10} more")
        rows.first.click()
        page.get_by_role("button", name="Clear").click()
        page.get_by_role("button", name="Findings", exact=True).click()
        page.get_by_label("Sort by", exact=True).select_option("oldest")
        oldest = min(one["first_seen"] for one in findings)
        rows.first.click()
        expect(page.locator(".detail")).to_contain_text(oldest)
        expect(rows.first).to_contain_text(" d")
        assert "sort=oldest" in page.url
        opened_findings = found["summary"]["findings"]["open"]
        page.locator("a.number", has_text="major").click()
        expect(rows).to_have_count(min(opened_findings["major"], 100))
        page.locator("a.number", has_text="not assessed").click()
        expect(rows).to_have_count(found["summary"]["hosts"]["not_assessed"])


def test_saved_as_csv(browser: Browser, tmp_path: Path) -> None:
    """What is filtered; no cell is a formula, and no text breaks a row."""
    results = sample.make_results(6, 300)
    # Excel with ";" between cells begins a cell behind one, and a full-width sign counts as well.
    guarded = {
        "=cmd|' /C calc'!A0": "'=cmd|' /C calc'!A0",
        "+1": "'+1",
        "-1": "'-1",
        "@SUM(1)": "'@SUM(1)",
        "\uff1d1": "'\uff1d1",
        'x;"; =cmd;y;-z': "x;\"; '=cmd;y;'-z",
        'a"b,c': 'a"b,c',
    }
    evil, several = list(guarded), 'x;"; =cmd;y;-z'
    # Each of them is in each severity, one of which is saved.
    names = {severity: itertools.cycle(evil) for severity in ("critical", "major", "minor", "info")}
    for returned in results.nodes.values():
        for finding in returned.get("findings", []):
            finding["summary"] = next(names[finding["severity"]])
            finding["reason"] = 'two\nlines, and "quotes"'
    told = sample.users(results.rows())
    for number, pod in enumerate(told["pods"]):
        pod["name"] = evil[number % len(evil)]
    sample.request(tmp_path).write(results.rows(), told)
    findings = data(tmp_path / "report.html")["findings"]
    assert any(of(one, "pods") for one in findings)
    with opened(browser, tmp_path / "report.html", accept_downloads=True) as page:
        page.get_by_label("Severity", exact=True).select_option(findings[0]["severity"])
        with page.expect_download() as download:
            page.get_by_role("button", name="Save as CSV").click()
        saved = download.value.path().read_text(encoding="utf-8-sig")
    shown = [one for one in findings if one["severity"] == findings[0]["severity"]]
    rows = list(csv.DictReader(io.StringIO(saved, newline="")))
    assert [row["host"] for row in rows] == [one["host"] for one in shown]
    assert {one["summary"] for one in shown}.issuperset(guarded)
    for row, one in zip(rows, shown, strict=True):
        assert row["summary"] == guarded.get(one["summary"], one["summary"])
        assert row["reason"] == one["reason"] and row["command"] == one["command"]
        assert row["first_seen"] == one["first_seen"]
        # Within a cell, only what follows a semicolon may begin another one.
        pods = ", ".join(of(one, "pods")).replace(several, guarded[several])
        assert row["affected_pods"] == pods
        assert row["affected_complete"] == str(one["affected"]["complete"]).lower()


def test_an_address_that_asks_for_what_there_is_not(browser: Browser, report: Path) -> None:
    """Shows what its filters show: everything."""
    findings = len(data(report)["findings"])
    for fragment in (
        "#status=__proto__",
        "#status=constructor&severity=bogus",
        "#control=STOR-99&view=toString",
    ):
        with opened(browser, report, fragment) as page:
            expect(page.locator("#count")).to_contain_text(f"{findings} of {findings} findings")
            assert [
                page.locator(f"#{name}").input_value() for name in ("severity", "control", "status")
            ] == ["", "", ""]


def test_paper(browser: Browser, report: Path) -> None:
    """Black on white, all findings that are filtered, no buttons."""
    findings = data(report)["findings"]
    with opened(browser, report, color_scheme="dark") as page:
        page.emulate_media(media="print")
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        assert page.locator("#list .row").count() == len(findings)
        assert (
            page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        )
        for gone in ("#filters", "#theme", "#view-hosts"):
            assert not page.locator(gone).is_visible()
        assert page.get_by_text("open findings (").is_visible()
        page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        assert len(page.pdf(format="A4")) > 50_000


@pytest.mark.parametrize("colours", ["light", pytest.param("dark", marks=pytest.mark.variation)])
def test_a_telephone(browser: Browser, report: Path, colours: str) -> None:
    """360 pixels are wide enough, in daylight and at night: the list, its filters, a finding, and
    the other views.
    """
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True}
    dark = colours == "dark"
    with opened(browser, report, color_scheme=colours, **phone) as page:
        first = page.locator("#list .row").first
        where = first.bounding_box()
        assert where and where["y"] + 120 <= 740, "a finding is on the first screen"
        assert not page.locator("#filters").is_visible()
        host = data(report)["findings"][0]["host"]
        seen(page, dark, ("Storage compliance", "open findings (", "Filter and sort", host))
        accessible(page)
        page.get_by_text("Filter and sort").tap()
        expect(page.locator("#filters")).to_be_visible()
        first.tap()
        expect(page.locator(".detail")).to_be_visible()
        accessible(page)
        page.locator(".detail").evaluate("detail => detail.scrollIntoView({behavior: 'instant'})")
        assert pixels.dark(page, page.screenshot()) == dark
        for view in ("Hosts", "Causes", "Namespaces", "Workloads"):
            page.get_by_role("button", name=view, exact=True).tap()
            expect(page.locator("#count")).to_contain_text(view.lower())
            accessible(page)
            assert page.evaluate("document.documentElement.scrollWidth") == 360, view


@pytest.mark.smoke
def test_hostile_text_is_shown_and_does_nothing(browser: Browser, tmp_path: Path) -> None:
    results = sample.make_results(6, 6)
    for name in list(results.nodes)[:3]:
        results.nodes[f"{name}{EVIL}"] = results.nodes.pop(name)
    for returned in results.nodes.values():
        for finding in returned.get("findings", []):
            finding.update(summary=EVIL, reason=EVIL, evidence={EVIL: [EVIL]}, runbook=EVIL)
            finding["object"] = {"kind": EVIL, "name": EVIL, "node": EVIL}
    results.nodes["unseen"] = {"unreachable": True, "msg": EVIL}
    exception = {
        "select": "[?contains(host, '</script>')]",
        "owner": EVIL,
        "reason": EVIL,
        "expires": sample.EXCEPTIONS[0]["expires"],
    }
    sample.request(tmp_path, title=f"Title {EVIL}", cluster=EVIL, exceptions=[exception]).write(
        results.rows()
    )
    with opened(browser, tmp_path / "report.html") as page:
        for row in page.locator("#list .row").all():
            row.click()
        shown = '</script><img src=x onerror="document.title=1">'
        expect(page.locator(".detail").first).to_contain_text(shown)
        expect(page.locator("h1")).to_contain_text(shown)
        expect(page.locator(".detail").first).to_contain_text(r"\x1b[2J\u202e{{ 7 * 7 }}")
        assert page.locator("img").count() == 0 and page.title().startswith("Title ")
        page.get_by_role("button", name="Hosts").click()
        expect(page.locator("#list")).to_contain_text(shown)


def test_twenty_thousand_findings_open(browser: Browser, tmp_path: Path) -> None:
    """A hundred of them are made at first, and the search finds one; tests/benchmarks/report.py
    measures how fast.
    """
    sample.write(tmp_path, hosts=5_000, findings=20_000)
    with opened(browser, tmp_path / "report.html") as page:
        page.wait_for_selector("html[data-ready]")
        assert page.locator("#list button.row").count() == 100
        page.get_by_label("Search", exact=True).fill("worker-0042")
        expect(page.locator("#count")).not_to_contain_text("20000 of")
        assert 0 < page.locator("#list button.row").count() <= 100
