"""The verdict on the page: its word beside the answer, what moved, which change fits, and what it says of doubt."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any
from xml.etree import ElementTree

import pytest
from strict_page import Page, read

from fabric_health import answer
from fabric_health.compared import Whole, run_row
from fabric_health.datasets.verdict_tables import Attribution, Verdict
from fabric_health.maintenance import Change
from fabric_health.report import page, verdict_plots, verdicts
from fabric_health.report.data import Level, ReportData, Trend, VerdictResults
from fabric_health.verdict.outcome import Outcome

KEY = "engine=nccl-tests;collective=all_reduce;nodes=1;size_bytes=4294967296"
BEFORE = "post_maintenance-20261123T030000-0a1b2c3d"
WHY = f"the last accepted run (accepted by jane on 2026-11-23): {BEFORE}"
SVG = "{http://www.w3.org/2000/svg}"


def row(subject: str, outcome: str, loss: float | None = None, **more: Any) -> Verdict:
    """Return a judgement of a node's bus bandwidth, its interval 1.5 % to both sides."""
    given: dict[str, Any] = {
        "against": BEFORE,
        "subject": subject,
        "subject_kind": "node",
        "check": "collectives",
        "metric": "busbw_gbps",
        "comparability": KEY,
        "outcome": outcome,
        "layer": "paired",
        "reason": f"reason of {subject}",
        "loss": loss,
        "loss_low": None if loss is None else loss - 0.015,
        "loss_high": None if loss is None else loss + 0.015,
        "confidence": 0.95,
        "margin": 0.03,
        "detectable_loss": 0.028,
        "value_before": 362.0,
        "value_after": None if loss is None else 362.0 * (1 - loss),
        "unit_of_measure": "GB/s",
        "units": 1,
        "launches_before": 3,
        "launches_after": 5,
        "runs_before": 1,
    }
    return Verdict(**{**given, **more})


def whole(outcome: Outcome, reason: str, settle: str | None = None, explanation: str | None = None) -> Verdict:
    return run_row(Whole(outcome, reason, settle), BEFORE, WHY, explanation)


DRIVER = Change(
    touched=tuple(f"gpu-{n:03}" for n in range(1, 5)),
    controls=tuple(f"gpu-{n:03}" for n in range(5, 17)),
    kind="driver",
    ticket="CHG-1042",
)
FITS = Attribution(
    against=BEFORE,
    rank=1,
    attribute="driver_version",
    changed_units="gpu-[001-004]",
    moved_with=3,
    moved_without=0,
    unmoved_with=1,
    unmoved_without=12,
    score=6.5,
    summary="driver_version 570 -> 580 fits best",
    before="570.148.08",
    after="580.65.06",
    p_value=0.0071,
    inseparable_from="fw_version 28.42 -> 28.43",
)
EXPLANATION = (
    "These changes are on the same 4 units and cannot be told apart: driver_version 570.148.08 -> 580.65.06, "
    "fw_version 28.42 -> 28.43. To tell them apart: undo driver_version on gpu-001, gpu-002, and measure both halves."
)


@pytest.fixture
def regressed(faulty: ReportData) -> ReportData:
    """A driver on four nodes: three lost 9 %, one did not; the controls are quiet, one unit has a wide interval."""
    rows = [
        whole(Outcome.REGRESSED, "gpu-002, gpu-001, gpu-003 slower than in the last accepted run", None, EXPLANATION),
        row("touched", "REGRESSED", 0.09, subject_kind="set", role="touched", units=4),
        row("controls", "PASS", 0.001, subject_kind="set", role="control", units=12),
        *(row(f"gpu-{n:03}", "REGRESSED", 0.08 + n % 3 / 100, role="touched") for n in (1, 2, 3)),
        row("gpu-004", "PASS", 0.002, role="touched"),
        row("gpu-005", "INCONCLUSIVE", 0.02, role="control", loss_low=-0.4, loss_high=0.5, settle="12 launches each"),
        *(row(f"gpu-{n:03}", "PASS", n / 10_000, role="control") for n in range(6, 16)),
        row("gpu-016", "IMPROVED", -0.05, role="control"),
        row(
            "rail-1",
            "NOT_COMPARABLE",
            layer="",
            subject_kind="rail",
            reason="not measured in the same way before: algorithm NVLS -> RING",
        ),
        row("rail-2", "NOT_COMPARABLE", layer="", subject_kind="rail", reason=answer.NEVER_MEASURED),
    ]
    at = faulty.record.started_at
    levels = tuple(
        Level(f"r{n}", at - timedelta(days=7 * (4 - n)), 362.0 - 30 * (n == 4), 360.0 - 30 * (n == 4), 364.0, 3)
        for n in range(5)
    )
    trend = Trend("gpu-002", "all_reduce busbw_gbps", 0.03, levels)
    results = VerdictResults(tuple(rows), (FITS,), DRIVER, (trend,))
    record = dataclasses.replace(faulty.record, verdict="REGRESSED", ticket="CHG-1042")
    return dataclasses.replace(faulty, verdict=results, record=record)


def index(data: ReportData) -> Page:
    return read(page.render(data))["index.html"]


def of(data: ReportData, *rows: Verdict, change: Change | None = None) -> ReportData:
    return dataclasses.replace(data, verdict=VerdictResults(rows, (), change))


def badges(p: Page) -> list[str]:
    """Return the verdicts on the page, each as it is read, with their class."""
    return [f"{name}: {word}" for name, words in p.classes.items() if name.startswith("verdict ") for word in words]


def in_order(text: str, *parts: str) -> None:
    at = -1
    for part in parts:
        found = text.find(part, at + 1)
        assert found > at, f"{part!r} is not after what has to stand before it"
        at = found


def test_the_verdict_stands_beside_the_answer_with_what_it_was_compared_with(regressed: ReportData) -> None:
    in_order(
        index(regressed).text,
        "FINDINGS",
        "driver change",
        "▼ REGRESSED",
        regressed.record.headline,
        "Regressed: gpu-002, gpu-001, gpu-003 slower than in the last accepted run.",
        "These changes are on the same 4 units and cannot be told apart",
        f"Compared with the last accepted run (accepted by jane on 2026-11-23): {BEFORE}.",
        "Change: driver on 4 units ( gpu-[001-004] ), 12 controls, ticket CHG-1042",
        "Look at these",
    )


def test_what_regressed_comes_first_then_what_improved(regressed: ReportData) -> None:
    section = index(regressed).text.partition("Verdict: ")[2].partition("What changed")[0]
    in_order(
        section,
        "touched 4 units: gpu-[001-004]",
        "controls, left alone 12 units: gpu-[005-016]",
        "What moved (4 judgements)",
        "▼ REGRESSED gpu-002 touched all_reduce busbw_gbps , single nodes reason of gpu-002",
        "362.0 → 325.8 GB/s +10.0 % +8.5 to +11.5 %",
        "3 % 2.8 % 3 + 5 launches",
        "▲ IMPROVED gpu-016 control",
        "Which change fits",
        "To tell them apart: undo driver_version on gpu-001",
        "driver_version cannot be told apart from fw_version 28.42 -> 28.43 570.148.08 → 580.65.06 gpu-[001-004] 3 0 1",
        "against it 12 0.0071",
        "Units together",
        "all that was touched",
        "all controls",
        "How much, and how sure",
        "Over the last runs",
        "What settles nothing by itself",
        "12 launches each",
        "Not comparable",
        "algorithm NVLS -> RING",
        "1 series was never measured before this run",
        "11 judgements PASS",
    )


def test_a_regression_leads_to_its_finding(regressed: ReportData) -> None:
    mtu = regressed.findings[0]
    slow = dataclasses.replace(mtu, finding="f" * 16, unit="gpu-002", metric="all_reduce busbw_gbps")
    p = index(dataclasses.replace(regressed, findings=(*regressed.findings, slow)))
    assert f"#f-{slow.finding}" in p.links


def test_first_run_says_no_verdict_which_looks_unlike_a_pass(healthy: ReportData) -> None:
    new = row("gpu-001", "NOT_COMPARABLE", layer="", reason=answer.NEVER_MEASURED)
    first = of(healthy, whole(Outcome.INCONCLUSIVE, "no earlier run measured any of this", "this run is first"), new)
    passed = of(healthy, whole(Outcome.PASS, "no loss of 3%"), row("gpu-001", "PASS", 0.001))
    assert set(badges(index(first))) == {"verdict NO_VERDICT: – no verdict"}
    assert "No verdict is no PASS" in index(first).text
    assert "1 series was never measured before" in index(first).text
    assert set(badges(index(passed))) == {"verdict PASS: ✓ PASS"}
    assert "no verdict" not in index(passed).text


def test_a_run_that_was_not_compared_says_so_without_a_section(healthy: ReportData) -> None:
    p = index(healthy)
    assert badges(p) == ["verdict NO_VERDICT: – no verdict"]
    assert "verdict" not in p.ids


def test_inconclusive_says_why_and_what_would_settle_it(healthy: ReportData) -> None:
    data = of(healthy, whole(Outcome.INCONCLUSIVE, "2 of 3 settle nothing", "10 launches"), row("gpu-001", "PASS", 0.0))
    in_order(index(data).text, "? INCONCLUSIVE", "2 of 3 settle nothing", "what would settle it 10 launches")
    assert "Nothing moved" not in index(data).text


def test_not_comparable_names_the_fields(healthy: ReportData) -> None:
    reason = "not measured in the same way before: nccl_version 2.27.3 -> 2.28.1"
    odd = [row(f"gpu-{n:03}", "NOT_COMPARABLE", layer="", reason=reason) for n in range(1, 6)]
    text = index(of(healthy, whole(Outcome.NOT_COMPARABLE, reason), *odd)).text
    in_order(text, "≠ NOT COMPARABLE", "Not comparable:", f"all_reduce busbw_gbps 5 {reason}")


def test_forest_marks_roles_by_shape_zero_and_margin_by_lines_and_says_each_verdict_in_words(
    regressed: ReportData,
) -> None:
    found = verdicts.section(regressed, frozenset())
    assert found is not None
    root = ElementTree.fromstring(verdict_plots.forest(found.plotted))
    words = [e.text for e in root.iter(f"{SVG}text")]
    assert {"all that was touched", "gpu-002", "▼ REGRESSED", "✓ PASS", "▲ IMPROVED", "margin 3 %"} <= set(words)
    # The interval that is wider than the axis ends in an arrow on both sides.
    assert (words.count("◂"), words.count("▸")) == (1, 1)
    assert words.index("gpu-002") < words.index("gpu-001") < words.index("gpu-016") < words.index("gpu-015")


def test_forest_is_capped_and_says_how_many_are_not_drawn(healthy: ReportData) -> None:
    lost = [row(f"gpu-{n:04}", "REGRESSED", 0.1 + n / 10_000) for n in range(100)]
    fine = [row(f"gpu-{n:04}", "PASS", 0.001) for n in range(100, 200)]
    data = of(healthy, whole(Outcome.REGRESSED, "slower"), *lost, *fine)
    found = verdicts.section(data, frozenset())
    assert found is not None
    assert [x.name for x in found.plotted][:2] == ["gpu-0099", "gpu-0098"]
    assert (len(found.plotted), found.unplotted) == (40, 160)
    text = index(data).text
    assert "40 drawn, the worst first; 160 not drawn" in text
    assert "50 of 100 shown; all are in table verdicts." in text


@pytest.mark.parametrize("loss", [None, 0.999, -50.0, 0.0])
def test_any_loss_is_drawn_or_left_out(healthy: ReportData, loss: float | None) -> None:
    data = of(healthy, whole(Outcome.REGRESSED, "r"), row("gpu-001", "REGRESSED", loss, loss_low=None, loss_high=None))
    assert ("no estimate" in index(data).text) == (loss is None)


HOSTILE = (
    "<script>alert(1)</script>",
    "\x1b[2J\u202e\x00",
    "' + datum.x + '",
    "a[1-",
    "{{ 7*7 }}",
    "=;;=",
    "<" * 100_000,
)


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda h: repr(h[:16]))
def test_hostile_text_in_every_field_is_inert(regressed: ReportData, hostile: str) -> None:
    results = regressed.verdict
    assert results is not None
    keep = {"outcome", "subject_kind", "role", "layer"}

    def spoiled(x: Any) -> Any:
        given = {f.name: getattr(x, f.name) for f in dataclasses.fields(x) if f.name not in keep}
        return dataclasses.replace(x, **{k: hostile for k, v in given.items() if isinstance(v, str)})

    change = dataclasses.replace(DRIVER, touched=(hostile,), controls=(hostile, hostile), kind=hostile)
    data = dataclasses.replace(
        regressed,
        record=dataclasses.replace(regressed.record, ticket=hostile),
        verdict=VerdictResults(
            tuple(map(spoiled, results.rows)),
            tuple(map(spoiled, results.attributions)),
            change,
            tuple(map(spoiled, results.trends)),
        ),
    )
    body = page.render(data)["index.html"]
    Page(body)
    assert len(body) < 2 << 20
    assert "\x1b" not in body.decode()
    assert "\u202e" not in body.decode()


def test_a_thousand_nodes_stay_a_small_section(healthy: ReportData) -> None:
    without = len(page.render(healthy)["index.html"])
    rows = [row(f"gpu-{n:04}", ("PASS", "REGRESSED", "INCONCLUSIVE")[n % 3], 0.001 * (n % 97)) for n in range(1000)]
    rows += [dataclasses.replace(r, comparability=KEY + ";redop=max") for r in rows]
    data = of(healthy, whole(Outcome.REGRESSED, "slower"), *rows, change=DRIVER)
    assert len(page.render(data)["index.html"]) - without < 500_000


def test_words_of_a_run() -> None:
    fine = row("gpu-001", "PASS", 0.0)
    assert answer.verdict_word([]) == answer.NO_VERDICT
    assert answer.verdict_word([whole(Outcome.INCONCLUSIVE, "nothing measured")]) == answer.NO_VERDICT
    assert answer.verdict_word([whole(Outcome.INCONCLUSIVE, "too wide"), fine]) == "INCONCLUSIVE"
    assert answer.verdict_word([whole(Outcome.NOT_COMPARABLE, "nccl")]) == "NOT_COMPARABLE"
    assert answer.verdict_word([fine, whole(Outcome.PASS, "fine")]) == "PASS"
