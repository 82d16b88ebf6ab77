"""What somebody expects, on the page: apart from the news, with owner and day; and back when the day is over."""

from __future__ import annotations

import dataclasses
from datetime import date

from strict_page import Page

from fabric_health.datasets.tables import Finding
from fabric_health.report.data import ReportData
from fabric_health.report.page import render
from fabric_health.verdict.expected import Expected, acknowledge

DAY = date(2026, 11, 30)
DRIVER = Expected(
    number=0,
    units=frozenset(f"gpu-{n:03}" for n in range(1, 5)),
    owner="jane <b>",
    reason="canary",
    expires=DAY,
    attribute="driver_version",
)
MTU = dataclasses.replace(
    DRIVER, units=frozenset({"leaf-2"}), owner="joe", reason="cable ordered", attribute=None, rule="port_mtu"
)


def index(data: ReportData) -> Page:
    return Page(render(data)["index.html"])


def expecting(data: ReportData, *entries: Expected) -> ReportData:
    """Return the run as it is with these entries in the site file."""
    findings: tuple[Finding, ...] = tuple(acknowledge(data.findings, entries, DAY))
    return dataclasses.replace(
        data, findings=findings, site=dataclasses.replace(data.site, expected_changes=entries, _by_name={})
    )


def test_an_acknowledged_finding_is_apart_from_the_news_with_owner_and_day(faulty: ReportData) -> None:
    before, p = index(faulty), index(expecting(faulty, MTU))
    assert "Look at these (2)" in before.text
    assert "Look at these (1)" in p.text
    rest = p.text.partition("Acknowledged (1)")[2]
    assert "leaf-2/Ethernet32 has MTU 1500" in rest
    assert "acknowledged by joe until 2026-11-30: cable ordered" in rest
    titles = [
        (v["title"], v.get("class")) for _, v in p.elements if (v.get("title") or "").startswith("leaf-2/Ethernet32")
    ]
    assert [c for _, c in titles] == ["acknowledged"]


def test_when_the_day_is_over_it_is_news_and_says_so(faulty: ReportData) -> None:
    p = index(expecting(faulty, dataclasses.replace(MTU, expires=date(2026, 11, 20))))
    assert "Look at these (2)" in p.text
    assert "Acknowledged (" not in p.text
    assert "acknowledgement of joe expired since 2026-11-20: cable ordered" in " ".join(p.text.split())


def test_expected_changes_are_counted_and_come_after_the_others(faulty: ReportData) -> None:
    p = index(expecting(faulty, DRIVER))
    text = " ".join(p.text.split())
    assert "12 facts on 12 units, 1 config line, 1 finding gone; acknowledged: 4." in text
    assert "jane <b> until 2026-11-30: canary" in text
    assert text.index("gpu-005, gpu-006") < text.index("gpu-001, gpu-002, gpu-003, gpu-004 jane <b>")


def test_an_expired_change_says_since_when_and_is_not_counted(faulty: ReportData) -> None:
    text = index(expecting(faulty, dataclasses.replace(DRIVER, expires=date(2026, 11, 20)))).text
    assert "jane <b> expired since 2026-11-20: canary" in text
    assert "acknowledged:" not in text


def test_a_healthy_run_names_what_it_does_not_count(healthy: ReportData, faulty: ReportData) -> None:
    mtu = next(f for f in faulty.findings if f.rule == "port_mtu")
    data = expecting(dataclasses.replace(healthy, findings=(mtu,)), MTU)
    text = index(data).text
    assert "Nothing but what is acknowledged" in " ".join(text.split())
    assert "every rule was met on every unit" not in text


def test_without_expected_changes_the_page_has_no_word_of_them(faulty: ReportData) -> None:
    text = index(faulty).text
    assert "acknowledged by" not in text
    assert "Acknowledged (" not in text
