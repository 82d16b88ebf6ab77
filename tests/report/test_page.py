"""The page of a run: what stands on it and in which order, that its links lead somewhere, and that it stays inert."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strict_page import Page, read

from fabric_health.datasets.tables import Finding, FindingKind, Severity, finding
from fabric_health.evidence import UnitEvidence
from fabric_health.report import page, plots
from fabric_health.report.data import PastRun, ReportData
from fabric_health.report.text import visible
from fabric_health.site import Site, load_site

T = TypeVar("T")


def index(data: ReportData) -> Page:
    return read(page.render(data))["index.html"]


def cells(p: Page, title: str) -> list[str]:
    """Return the classes of the map cells whose label begins with ``title``."""
    return [v.get("class") or "" for tag, v in p.elements if tag == "td" and (v.get("title") or "").startswith(title)]


def in_order(text: str, *parts: str) -> None:
    at = -1
    for part in parts:
        found = text.find(part, at + 1)
        assert found > at, f"{part!r} is not after what has to stand before it"
        at = found


# -- what stands on it


def test_answer_comes_first(faulty: ReportData) -> None:
    text = index(faulty).text
    in_order(
        text,
        "Embedded lab",
        "origin: lab",
        "FINDINGS · 2 of 22 units",
        faulty.record.headline,
        "Look at these (2)",
        "1 more is explained by these",
        "What changed",
        "Fabric",
        "Drift from golden (1)",
        "Findings over the last runs",
        "Coverage",
        "Data quality",
        "For information (1)",
        "Evidence",
    )


def test_most_urgent_finding_comes_first_with_all_it_takes(faulty: ReportData) -> None:
    text = index(faulty).text
    in_order(
        text,
        "critical leaf-2/Ethernet32 leaf-2/Ethernet32 has MTU 1500, expected 9216",
        "rule port_mtu: site file, port profile `rail`",
        "9216 1500 23 Nov 2026",
        "config interface mtu Ethernet32 9216 config save -y interfaces",
        "? not judged gpu-003",
        "answers to every command unreachable 30 Nov 2026 new check power",
    )
    assert text.count(" new ") == 1


def test_healthy_first_run(healthy: ReportData) -> None:
    p = index(healthy)
    in_order(
        p.text,
        "HEALTHY",
        "Look at these (0)",
        "Nothing: every rule was met",
        "This is the first run of its kind",
        "100.0 % of what was in scope was judged",
        "1 of 1 expectations met",
    )
    assert ("h1", {"class": "HEALTHY"}) in p.elements
    looks = {v.get("class") for tag, v in p.elements if tag == "td" and v.get("title")}
    assert looks == {"fine"}
    for absent in ("Drift from golden", "Findings over the last runs", "For information", "explained by these"):
        assert absent not in p.text


def test_too_little_judged_is_not_shown_as_fine(healthy: ReportData) -> None:
    data = dataclasses.replace(
        healthy,
        record=dataclasses.replace(healthy.record, answer="NOT_JUDGED", headline="Only 40 % ...", coverage_ratio=0.4),
        coverage=tuple(dataclasses.replace(c, state="not_judged", reason="not asked") for c in healthy.coverage),
        links=(),
        switch_ports=(),
    )
    p = index(data)
    assert "NOT JUDGED" in p.text
    assert "too little to call it healthy" in p.text
    assert "every rule was met" not in p.text
    looks = {v.get("class") for tag, v in p.elements if tag == "td" and v.get("title")}
    assert looks == {"unknown"}


def test_not_measured_looks_different_from_fine(faulty: ReportData) -> None:
    p = index(faulty)
    assert cells(p, "gpu-001/mlx5_0: fine (ACTIVE, 400 Gb/s)") == ["fine"]
    assert cells(p, "gpu-003/mlx5_0: not measured (no row of it landed)") == ["unknown"]
    assert cells(p, "gpu-003: not measured. gpu-003 could not be asked") == ["unknown"]
    assert cells(p, "gpu-005/mlx5_2: explained by another finding.") == ["explained"]
    assert cells(p, "leaf-2/Ethernet32: critical.") == ["critical"]
    symbols = {look: set(p.classes[look]) & set("·?→✕!") for look in ("fine", "unknown", "explained", "critical")}
    assert symbols == {"fine": {"·"}, "unknown": {"?"}, "explained": {"→"}, "critical": {"✕"}}


def test_a_value_that_was_not_read_is_not_called_zero(healthy: ReportData) -> None:
    port = dataclasses.replace(healthy.switch_ports[0], speed_gbps=None, mtu_bytes=None, oper_up=None)
    data = dataclasses.replace(
        healthy,
        links=(dataclasses.replace(healthy.links[0], rate_gbps=None, state=None), *healthy.links[1:]),
        switch_ports=(port, *healthy.switch_ports[1:]),
    )
    p = index(data)
    assert cells(p, "gpu-001/mlx5_0: fine (state unknown, rate unknown)")
    unit = f"{port.switch}/{port.port}"
    label = next(v["title"] for _, v in p.elements if (v.get("title") or "").startswith(f"{unit}: "))
    assert (label or "").endswith("state unknown, rate unknown, MTU unknown)")


def test_explained_findings_lead_to_their_cause(faulty: ReportData) -> None:
    pages = read(page.render(faulty))
    cause = faulty.findings[0]
    assert f"#f-{cause.finding}" in pages["index.html"].links
    assert "leaf-2/Ethernet32: leaf-2/Ethernet32 has MTU 1500, expected 9216" in pages["index.html"].text


def test_a_cause_that_is_not_on_the_page_is_named_without_a_link(healthy: ReportData, faulty: ReportData) -> None:
    effect = next(f for f in faulty.findings if f.explained_by)
    p = index(dataclasses.replace(healthy, findings=(effect,)))
    assert f"finding {effect.explained_by}" in p.text


def test_every_unit_with_findings_has_its_evidence(faulty: ReportData) -> None:
    pages = read(page.render(faulty))
    for f in faulty.findings:
        name = f"evidence/{f.check}/{f.unit.split('/')[0]}.html"
        fragment = f"#c-{f.command}" if f.command else ""
        assert name + fragment in pages["index.html"].links
        assert "state: ACTIVE" in pages[name].text
    assert {n for n in pages if n != "index.html"} == {
        "evidence/driver_firmware/gpu-003.html",
        "evidence/driver_firmware/gpu-005.html",
        "evidence/driver_firmware/gpu-009.html",
        "evidence/switch_config/leaf-2.html",
    }


def test_evidence_that_was_not_rendered_is_not_linked(faulty: ReportData) -> None:
    data = dataclasses.replace(faulty, evidence_shown=faulty.evidence_shown[:1])
    pages = read(page.render(data))
    assert len(pages) == 2


def test_commands_and_units_that_differ_in_odd_signs_only_have_their_own_places(faulty: ReportData) -> None:
    shown = faulty.evidence_shown[0]
    names = ("ethtool_i:ens1", "ethtool_i/ens1", "ethtool_i ens1", "ethtool_i_ens1", "../x", "..", "é", "e" * 300, "")
    results = tuple(dataclasses.replace(shown.results[0], name=n) for n in names)
    findings = tuple(
        dataclasses.replace(faulty.findings[0], finding=f"{i:016x}", command=n) for i, n in enumerate(names)
    )
    data = dataclasses.replace(faulty, findings=findings, evidence_shown=(dataclasses.replace(shown, results=results),))
    read(page.render(data))
    files = {page.evidence_file("c", n) for n in names}
    assert len(files) == len(names)
    assert all(".." not in f.removesuffix(".html").split("/") and f.count("/") == 2 for f in files)


def test_changes_of_many_units_are_one_line(faulty: ReportData) -> None:
    text = index(faulty).text
    in_order(text, "12 facts on 12 units, 1 config line, 1 finding gone", "driver_version 570 580 12 units")
    in_order(text, "Config lines that changed", "leaf-2 PORT/Ethernet32/mtu 9216 1500", "No longer there", "gpu-011")


def test_many_findings_are_folded_and_counted(
    healthy: ReportData, many: Callable[[ReportData, int], ReportData]
) -> None:
    source = page.render(many(healthy, 120))["index.html"]
    read({"index.html": source})
    before, _, folded = source.decode().partition("<summary>70 more findings</summary>")
    assert (before.count("<tr id="), folded.count("<tr id=")) == (50, 70)
    text = index(many(healthy, 1200)).text
    assert "Look at these (1,200)" in text
    assert "200 of 1,200 are on this page; all are in table findings." in text


# -- what comes from devices stays text

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)' x='",
    "</style></title></pre></textarea><svg onload=alert(1)>",
    "javascript:alert(1)",
    "{{ 7*7 }}{% raw %}",
    "&lt;script&gt;&#60;b&#62;",
    "\x1b[2J\x1b]0;x\x07\x00\r\x85\u2028",
    "\u202egnp.exe\u2066\u200b\ufeff",
    "\ud800",
    "a" * (1 << 20),
    "<" * (1 << 20),
)


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda h: repr(h[:20]))
def test_hostile_text_in_every_field_is_inert(faulty: ReportData, hostile: str) -> None:
    pages = page.render(spoiled(faulty, hostile))
    read(pages)
    assert max(len(body) for body in pages.values()) < 5 << 20
    text = pages["index.html"].decode()
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_text_that_looks_like_a_template_is_not_one(faulty: ReportData) -> None:
    pages = read(page.render(spoiled(faulty, "{{ 7*7 }}")))
    assert "scheduler run {{ 7*7 }} ·" in pages["index.html"].text
    assert "{{ 7*7 }}" in pages["evidence/driver_firmware/gpu-003.html"].text


def test_two_hundred_hostile_findings_fit_on_the_page(
    healthy: ReportData, many: Callable[[ReportData, int], ReportData]
) -> None:
    pages = page.render(spoiled(many(healthy, 300), "<" * 5000))
    assert max(len(body) for body in pages.values()) < 5 << 20


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=200))
def test_visible_text_acts_on_nothing(text: str) -> None:
    shown = visible(text)
    assert all(c in "\n\t" or c.isprintable() for c in shown)
    assert shown == text or any(not (c in "\n\t" or c.isprintable()) for c in text)


def spoiled(data: ReportData, hostile: str) -> ReportData:
    """Put ``hostile`` into every text that may come from outside: all but enumerations, names of ours and hashes."""
    keep = {
        *("check", "severity", "kind", "finding", "explained_by", "against", "change", "state", "answer", "origin"),
        *("run", "site_sha256", "sha256", "checks", "week", "target_table", "unit_kind", "status", "key", "site"),
    }
    owners = {"unit", "switch", "node", "nic", "port"}

    def of(row: T) -> T:
        changed: dict[str, Any] = {}
        for f in dataclasses.fields(row):  # type: ignore[arg-type]
            value = getattr(row, f.name)
            if f.name in keep or not isinstance(value, str):
                continue
            changed[f.name] = f"{value}/{hostile}" if f.name in owners else hostile
        return dataclasses.replace(row, **changed)  # type: ignore[type-var]

    def evidence(e: UnitEvidence) -> UnitEvidence:
        results = tuple(dataclasses.replace(of(r), name=r.name, argv=(hostile, hostile)) for r in e.results)
        return dataclasses.replace(e, detail=hostile, results=results)

    return dataclasses.replace(
        data,
        record=of(data.record),
        findings=tuple(map(of, data.findings)),
        coverage=tuple(map(of, data.coverage)),
        changes=tuple(map(of, data.changes)),
        drift=tuple(map(of, data.drift)),
        resolved=tuple(map(of, data.resolved)),
        links=tuple(dataclasses.replace(x, state=hostile) for x in data.links[:20]) + data.links[20:],
        quality=tuple(map(of, data.quality)),
        quarantine=tuple(map(of, data.quarantine)),
        evidence={k: dataclasses.replace(s, detail=hostile) for k, s in data.evidence.items()},
        evidence_shown=tuple(map(evidence, data.evidence_shown)),
    )


def test_nothing_is_fetched_from_elsewhere(faulty: ReportData) -> None:
    linked = dataclasses.replace(faulty.findings[0], source="https://docs.nvidia.com/xid")
    pages = page.render(dataclasses.replace(faulty, findings=(linked, *faulty.findings[1:])))
    for body in pages.values():
        text = body.decode()
        assert not re.search(r"(?:src|href|xlink:href)\s*=\s*[\"']?(?:https?:|//|data:)", text)
        assert not re.search(r"url\(\s*[\"']?(?!#)", text)
        assert "@import" not in text
        urls = {u for u in re.findall(r"https?://[^\s\"'<]+", text) if not u.startswith("http://www.w3.org/")}
        assert urls <= {"https://docs.nvidia.com/xid"}


# -- large sites


@pytest.fixture
def many() -> Callable[[ReportData, int], ReportData]:
    """Return a function that gives a run ``count`` findings on its links, over and over."""

    def make(data: ReportData, count: int) -> ReportData:
        found: list[Finding] = []
        for i in range(count):
            link = data.links[i % len(data.links)]
            found.append(
                finding(
                    check="driver_firmware",
                    rule=f"rule_{i}",
                    unit=link.nic,
                    unit_kind="nic",
                    metric="rate_gbps",
                    severity=Severity.CRITICAL if i % 3 else Severity.WARNING,
                    kind=FindingKind.DEVIATION,
                    summary=f"{link.nic} runs at 200 Gb/s, expected 400 Gb/s",
                    expected="400",
                    actual="200",
                    action="reseat the cable, then look at the port of the switch and its transceiver",
                    source="site file",
                    command="ibv_devinfo",
                )
            )
        return dataclasses.replace(data, findings=tuple(found))

    return make


def test_a_thousand_nodes_and_two_hundred_switches_fit(
    big: ReportData, many: Callable[[ReportData, int], ReportData]
) -> None:
    began = datetime.now(UTC)
    pages = page.render(many(big, 500))
    took = (datetime.now(UTC) - began).total_seconds()
    size = len(pages["index.html"])
    print(f"1,000 nodes x 8 rails and 200 switches x 64 ports: {took:.1f} s, {size / 2**20:.2f} MiB")
    assert size < 5 << 20
    p = read(pages)["index.html"]
    assert len(cells(p, "")) >= 1000 * 9 + 200 * 41
    assert "rows fine throughout" in p.text


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory, run_of: Callable[[Site], ReportData]) -> ReportData:
    """1,000 nodes of 8 rails, 200 leaf switches of 40 links to them and 24 to a spine each."""
    nics = "\n".join(f"      - {{name: mlx5_{r}, rail: {r}, netdev: eth{r}}}" for r in range(8))
    cables = []
    for r in range(8):
        for i in range(25):
            leaf, first = f"leaf-{r * 25 + i + 1:03}", i * 40 + 1
            cables.append(
                f'  - {{switch: {leaf}, ports: "swp[1-40]", profile: rail, '
                f'nodes: "gpu-[{first:04}-{first + 39:04}]", nic: mlx5_{r}}}'
            )
    text = f"""
site: big
title: A large site
reach: {{lab: {{kind: ssh, connection: lab_ssh}}}}
skus:
  h100:
    gpu_model: NVIDIA H100 80GB HBM3
    gpus: 8
    link_layer: Ethernet
    nic_rate_gbps: 400
    nics:
{nics}
nodes:
  - {{names: "gpu-[0001-1000]", sku: h100, rack: r1, reach: lab}}
switches:
  - {{names: "leaf-[001-200]", platform: cumulus, reach: lab}}
  - {{names: "spine-[01-24]", platform: cumulus, reach: lab}}
port_profiles:
  rail: {{speed_gbps: 400}}
cabling:
{chr(10).join(cables)}
{chr(10).join(spines())}
"""
    path = tmp_path_factory.mktemp("big") / "big.yaml"
    path.write_text(text)
    return run_of(load_site(path))


def spines() -> list[str]:
    """Return cables of every leaf's ports 41 to 64 to one port of each spine."""
    return [
        f'  - {{switch: leaf-{leaf:03}, ports: "swp{40 + s}", profile: rail, peer: spine-{s:02}, '
        f'peer_ports: "swp{leaf}"}}'
        for leaf in range(1, 201)
        for s in range(1, 25)
    ]


# -- plots


def test_plot_is_xml_whose_labels_are_text() -> None:
    runs = [
        PastRun(f"r{n}", datetime(2026, 11, n, 3, tzinfo=UTC), answer, n % 3, n % 2, 1.0)
        for n, answer in ((2, "FINDINGS"), (9, "NOT_JUDGED"), (16, "HEALTHY"))
    ]
    svg = plots.findings_over_runs(runs)
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    labels = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"02 Nov 03:00:00", "09 Nov 03:00:00", "findings", "critical", "warning"} <= set(labels)
    assert "? 1" in labels
    assert not list(root.iter("{http://www.w3.org/2000/svg}image"))


def test_one_run_is_no_trend() -> None:
    assert plots.findings_over_runs([PastRun("r", datetime(2026, 11, 2, tzinfo=UTC), "HEALTHY", 0, 0, 1.0)]) == ""
