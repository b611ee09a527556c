# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report as one page that needs nothing else.

Pure, but for reading what the page is made of.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from .._core.codes import CODES
from .._core.controls import CONTROLS
from .._core.engine import SEVERITIES
from . import model, overview
from .model import RESULTS

# Each colour has a shape as well: colour alone must not carry meaning (WCAG 2.1, 1.4.1).
MARKS = {"critical": "\u25c6", "major": "\u25b2", "minor": "\u25cf", "info": "\u25cb"}
# An outage leaves thousands of hosts unassessed. The table of hosts has them all.
MAX_LISTED = 200


class Assets(NamedTuple):
    """What the page is made of."""

    page: str
    style: str
    script: str

    @classmethod
    def read(cls, folder: Path) -> Assets:
        """From the files of the role."""
        return cls(
            *(
                (folder / name).read_text(encoding="utf-8")
                for name in ("page.html", "page.css", "page.js")
            )
        )


def render(
    report: Mapping[str, Any], text: str, trend: Sequence[Mapping[str, Any]], assets: Assets
) -> str:
    """The page; ``text``: the report as JSON.

    The summary is there without JavaScript, the list of findings is made by it.
    """
    run, summary = report["run"], report["summary"]
    # Notes (the last severity) do not turn the page red; what was not assessed turns it yellow, and
    # where nothing was applicable nothing is known to be good.
    state = (
        "bad"
        if any(summary["findings"]["open"][severity] for severity in SEVERITIES[:-1])
        else "warn"
        if overview.failing(report) or not overview.looked_at(report)
        else "good"
    )
    # substitute, not safe_substitute: a placeholder without a value is a mistake of ours.
    return Template(assets.page).substitute(
        policy=_policy(assets),
        style=assets.style,
        script=assets.script,
        data=_data(text),
        title=escape(run["title"]),
        meta=_meta(run),
        sentence=escape(_capital(overview.sentence(report))),
        state=state,
        notes=_notes(run),
        cards=_cards(summary),
        controls=_controls(report),
        trend=_trend(trend, summary),
        codes=_codes(summary["codes"]),
        unassessed=_unassessed(report["hosts"]),
        exceptions=_exceptions(report["exceptions"]),
        footer=escape(
            f"Made by storage_ops.runbooks {run['collection_version']}, which changed nothing on "
            f"any host. Run {run['id']}."
        ),
    )


def _meta(run: Mapping[str, Any]) -> str:
    parts = [f"Fleet {run['cluster']}", _time(run["finished"]), f"took {_duration(run['seconds'])}"]
    if run["slice"]:
        parts.append(f"slice {run['slice']['number']} of {run['slice']['count']}")
    return " ".join(f"<span>{escape(part)}</span>" for part in parts)


def _notes(run: Mapping[str, Any]) -> str:
    scope, notes = run["scope"], []
    if run["partial"]:
        notes.append(
            (
                "",
                "This run was of a part of the fleet, or of what there is to find: it is compared "
                "with no other.",
            )
        )
    if len(scope["controls"]) < len(CONTROLS):
        notes.append(
            ("", f"Only {len(scope['controls'])} of {len(CONTROLS)} controls were in scope.")
        )
    if scope["severity"] != SEVERITIES[-1]:
        notes.append(
            ("", f"Findings less severe than {scope['severity']} are neither shown nor counted.")
        )
    if scope["select"]:
        notes.append(("", f"Only findings that are selected by {scope['select']} are shown."))
    if "select_error" in scope:
        notes.append(
            (
                " warn",
                "The selection could not be applied, so everything is shown: "
                f"{scope['select_error']}",
            )
        )
    return "".join(f'<p class="note{kind}">{escape(note)}</p>' for kind, note in notes)


def _cards(summary: Mapping[str, Any]) -> str:
    findings, hosts = summary["findings"], summary["hosts"]
    numbers = [
        (
            severity,
            findings["open"][severity],
            f"{MARKS[severity]} {severity}",
            f"severity={severity}&status=open",
        )
        for severity in SEVERITIES
    ]
    numbers += [
        ("", findings["new"], "new since the last run", "status=new"),
        # What is gone is not in this report.
        ("", findings["resolved"], "resolved since then", ""),
        ("", findings["accepted"], "accepted", "status=accepted"),
        ("", hosts["not_assessed"], "not assessed", "view=hosts&q=not_assessed"),
    ]
    return "\n".join(_card(*one) for one in numbers)


def _card(kind: str, number: int, text: str, filters: str) -> str:
    """A number; it leads to what it counts, if there is any."""
    shown = f"<b>{_number(number)}</b><span>{escape(text)}</span>"
    classes = f"number {kind}{'' if number else ' zero'}"
    if number and filters:
        return f'<a class="{classes}" href="#{escape(filters)}">{shown}</a>'
    return f'<p class="{classes}">{shown}</p>'


def _controls(report: Mapping[str, Any]) -> str:
    counts, rows = report["summary"]["controls"], []
    shown = [
        result
        for result in RESULTS
        # Few runs have any of these, and an empty column takes room on a phone.
        if result not in ("not_applicable", "not_in_scope")
        or any(count[result] for count in counts.values())
    ]
    for control in report["controls"]:
        count = counts[control["id"]]
        cells = "".join(
            f'<td class="n {result if count[result] else "zero"}" '
            f'data-what="{_words(result)}">{_number(count[result])}</td>'
            for result in shown
        )
        name = (
            f'<a href="#control={control["id"]}">{control["id"]}</a> '
            f"<span>{escape(control['title'])}</span>"
        )
        rows.append(
            f'<tr><td class="what"><div>{name}</div></td><td '
            f'class="bar">{_bar(count)}</td>{cells}</tr>'
        )
    heads = "".join(
        f'<th scope="col" class="n">{_capital(_words(result))}</th>' for result in shown
    )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Results by '
        'control"><table><thead><tr><th scope="col">Control</th>'
        f'<th scope="col" class="bar">Hosts</th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _bar(count: Mapping[str, int]) -> str:
    """The results side by side; the table says the same in numbers."""
    # No host may have the control, as where only a cluster was audited.
    total = sum(count[result] for result in RESULTS) or 1
    place, parts = 0.0, []
    for result in ("fail", "accepted", "not_assessed", "not_in_scope", "not_applicable", "pass"):
        width = 100 * count[result] / total
        # One host among thousands must still be visible.
        width = max(width, 1.5) if width else 0
        parts.append(
            f'<rect class="{result}" x="{place:.2f}" width="{width:.2f}" height="8"/>'
            if width
            else ""
        )
        place += width
    return (
        f'<svg viewBox="0 0 {max(place, 1):.2f} 8" preserveAspectRatio="none" '
        f'aria-hidden="true">{"".join(parts)}</svg>'
    )


# The drawing of the trend: its width and height, and the room on the left for numbers.
_WIDTH, _HEIGHT, _LEFT = 400.0, 130.0, 30.0
# Room above the highest bar.
_ABOVE = 10.0


def _trend(points: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> str:
    """Open findings of earlier runs and this one, as stacked bars."""
    if len(points) < 2:
        return '<p class="soft">There is no earlier run to compare with.</p>'
    totals = [sum(point.get(severity, 0) for severity in SEVERITIES) for point in points]
    top = _ceiling(max(totals))
    step = (_WIDTH - _LEFT) / len(points)
    parts = _grid(top)
    for number, point in enumerate(points):
        parts.append(_stack(point, _LEFT + number * step, step, top))
    first, last = (_time(points[place]["started"], day=True) for place in (0, -1))
    # Only the first and the last day: in between there is no room for 60 of them.
    parts.append(f'<text x="{_LEFT:.0f}" y="147">{escape(first)}</text>')
    parts.append(f'<text x="{_WIDTH:.0f}" y="147" text-anchor="end">{escape(last)}</text>')
    findings = summary["findings"]
    said = f"Open findings of {len(points)} runs: from {totals[0]} on {first} to {totals[-1]} now."
    changed = (
        f"{_number(findings['new'])} new and {_number(findings['resolved'])} resolved since "
        "the last run."
    )
    return (
        '<svg class="chart" viewBox="0 0 400 152" role="img" '
        f'aria-label="{escape(said)}">{"".join(parts)}</svg>'
        f'<ul class="legend">{_legend(points)}</ul><p '
        f'class="soft">{escape(changed)}</p>'
    )


def _grid(top: int) -> list[str]:
    """Lines at none, half and all of the highest number, with these numbers."""
    parts = []
    for share in (0, 0.5, 1):
        y = _HEIGHT - share * (_HEIGHT - _ABOVE)
        parts += [
            f'<line class="grid" x1="{_LEFT:.0f}" x2="{_WIDTH:.0f}" y1="{y:.1f}" y2="{y:.1f}"/>',
            f'<text x="{_LEFT - 6:.0f}" y="{y + 4:.1f}" text-anchor="end">{top * share:.0f}</text>',
        ]
    return parts


def _stack(point: Mapping[str, Any], x: float, step: float, top: int) -> str:
    """The bars of one run, the worst severity at the bottom."""
    counts = {severity: point.get(severity, 0) for severity in SEVERITIES}
    counted = ", ".join(f"{number} {severity}" for severity, number in counts.items() if number)
    y, bars = _HEIGHT, []
    # SVG draws from the top, so the bars are piled up from below.
    for severity, number in counts.items():
        tall = number / top * (_HEIGHT - _ABOVE)
        y -= tall
        place = (
            f'x="{x + step * 0.12:.1f}" width="{step * 0.76:.1f}" y="{y:.1f}" height="{tall:.1f}"'
        )
        bars.append(f'<rect class="{severity}" {place}/>' if tall else "")
    title = f"{_time(point['started'])}: {sum(counts.values())} open ({counted or 'none'})"
    return f"<g><title>{escape(title)}</title>{''.join(bars)}</g>"


def _legend(points: Sequence[Mapping[str, Any]]) -> str:
    return "".join(
        f'<li><svg viewBox="0 0 10 10" aria-hidden="true"><rect class="{severity}" width="10" '
        f'height="10"/></svg>{severity}</li>'
        for severity in SEVERITIES
        if any(point.get(severity, 0) for point in points)
    )


def _unassessed(hosts: Sequence[Mapping[str, Any]]) -> str:
    """Hosts that were not assessed, and what was not on others, with the reason."""
    rows = [
        (host["name"], "", host["reason"]) for host in hosts if host["status"] == "not_assessed"
    ]
    rows += [
        (host["name"], controls, why)
        for host in hosts
        if host["status"] == "partly_assessed"
        for controls, why in _by_reason(host["reasons"])
    ]
    if not rows:
        return '<p class="soft">Everything in scope was assessed.</p>'
    items = "".join(
        f"<li><b>{escape(name)}</b>{' ' + escape(controls) if controls else ''} <span "
        f'class="soft">{escape(why)}</span></li>'
        # Names and reasons come from inventories and hosts: everything is escaped.
        for name, controls, why in rows[:MAX_LISTED]
    )
    left = len(rows) - MAX_LISTED
    more = f'<li class="soft">and {left} more: see the hosts below</li>' if left > 0 else ""
    return f'<ul class="plain" tabindex="0" aria-labelledby="h-unassessed">{items}{more}</ul>'


def _by_reason(reasons: Mapping[str, str]) -> list[tuple[str, str]]:
    """Controls that were not assessed for the same reason, and that reason."""
    found: dict[str, list[str]] = {}
    for control, why in reasons.items():
        found.setdefault(why, []).append(control)
    return [(", ".join(controls), why) for why, controls in found.items()]


def _codes(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Why findings need attention, and why something was not assessed: the most frequent first."""
    if not counts:
        return '<p class="soft">No finding has a code, and nothing was left out.</p>'
    shown = sorted(counts.items(), key=lambda item: (-sum(item[1].values()), item[0]))
    items = "".join(
        f"<li><b>{escape(code)}</b> {_number(count['refused'])} "
        f"need{'s' * (count['refused'] == 1)} attention, "
        f"{_number(count['not_assessed'])} not assessed<br>"
        f'<span class="soft">{escape(f"{CODES[code].cause} {CODES[code].next_step}")}</span></li>'
        for code, count in shown
    )
    return f'<ul class="plain" tabindex="0" aria-labelledby="h-codes">{items}</ul>'


def _exceptions(exceptions: Sequence[Mapping[str, Any]]) -> str:
    if not exceptions:
        return '<p class="soft">Nothing is accepted.</p>'
    items = []
    # Those that need a decision first: expired ones, then the next to expire.
    for one in sorted(exceptions, key=lambda one: (not one["expired"], one["expires"])):
        matched = f"{one['matched']} finding{'s' * (one['matched'] != 1)}"
        if one["expired"]:
            chip = f'<span class="chip expired">expired {escape(one["expires"])}</span> '
            chip += f"{matched} count again" if one["matched"] else "matches nothing"
        else:
            chip = (
                f"until {escape(one['expires'])}, "
                f"{matched if one['matched'] else 'matches nothing'}"
            )
        error = (
            f'<br><span class="note warn">{escape(one["error"])}</span>' if "error" in one else ""
        )
        items.append(
            f"<li>{chip}<br>{escape(one['reason'])} <span "
            f'class="soft">({escape(one["owner"])})</span><br>'
            f"<code>{escape(one['select'])}</code>{error}</li>"
        )
    return f'<ul class="plain" tabindex="0" aria-labelledby="h-exceptions">{"".join(items)}</ul>'


def _words(result: str) -> str:
    return result.replace("_", " ")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _number(number: int) -> str:
    # A narrow no-break space, which no reader takes for a decimal point (SI Brochure, 9th edition,
    # 5.4.4).
    return f"{number:,}".replace(",", "\u202f")


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _time(text: str, day: bool = False) -> str:
    """For people; the time zone is named."""
    try:
        moment = datetime.strptime(text, model.TIME)
    except ValueError:
        return text
    date = f"{moment.day} {moment:%b %Y}"
    return date if day else f"{date}, {moment:%H:%M} UTC"


def _ceiling(number: int) -> int:
    """A round number that is not smaller, and whose half is an integer for the middle line."""
    size = 1
    while True:
        # Below 20 only even numbers have an integer in the middle.
        for step in (2, 4, 6, 8, 10) if size == 1 else (2, 3, 4, 5, 6, 8, 10):
            if number <= step * size:
                return step * size
        size *= 10


def _policy(assets: Assets) -> str:
    """A Content-Security-Policy: nothing is loaded, and only our own style and script run."""
    # Texts from nodes are escaped; the hashes stop what gets through all the same (CSP Level 3,
    # hash-source).
    style, script = (_digest(source) for source in (assets.style, assets.script))
    return (
        f"default-src 'none'; style-src {style}; script-src {script}; base-uri 'none'; "
        "form-action 'none'"
    )


def _digest(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def _data(text: str) -> str:
    """JSON that cannot end its script element; json.dumps has escaped what is not ASCII."""
    # A script element ends at "</script", and "<!--" changes how it is read (HTML Living Standard,
    # 4.12.1.3 Restrictions for contents of script elements).
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
