"""Plots as SVG text with selectable labels, made without a browser or a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fabric_health.datasets.tables import Answer
from fabric_health.report.data import PastRun

WIDTH, HEIGHT = 640, 130


def findings_over_runs(runs: Sequence[PastRun]) -> str:
    """Return findings per run by severity, oldest first, as an SVG document; empty text for fewer than two runs.

    A run that could not judge shows `?` over its bar: no findings there do not mean that all is well.
    """
    if len(runs) < 2:
        return ""
    import altair as alt

    names = [r.started_at.strftime("%d %b %H:%M:%S") for r in runs]
    rows = [
        {"run": name, "severity": severity, "findings": count}
        for name, r in zip(names, runs, strict=True)
        for severity, count in (("critical", r.findings_critical), ("warning", r.findings_warning))
    ]
    labels = [
        {"run": name, "top": r.findings_critical + r.findings_warning, "label": _label(r)}
        for name, r in zip(names, runs, strict=True)
    ]
    x = alt.X("run:N", sort=names, title="run (start, UTC)", axis=alt.Axis(labelAngle=0, labelOverlap=True))
    bars = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar(stroke="#333", strokeWidth=0.5, width={"band": min(0.8, 0.08 * len(runs))})
        .encode(
            x=x,
            y=alt.Y("findings:Q", title="findings", axis=alt.Axis(tickMinStep=1, format="d")),
            color=alt.Color(
                "severity:N",
                scale=alt.Scale(domain=["critical", "warning"], range=["#b3261e", "#e9a23b"]),
                title="severity",
            ),
            order=alt.Order("severity:N"),
        )
    )
    marks = (
        alt.Chart(alt.Data(values=labels))
        .mark_text(baseline="bottom", dy=-2, color="#1b1f24")
        .encode(x=x, y="top:Q", text="label:N")
    )
    return svg(alt.layer(bars, marks).properties(width=WIDTH, height=HEIGHT))


def svg(chart: Any) -> str:
    """Return a chart as SVG text in the page's font, on its background."""
    import vl_convert

    styled = chart.configure_view(stroke=None).configure(font="system-ui, sans-serif", background="transparent")
    drawn: str = vl_convert.vegalite_to_svg(styled.to_dict())
    return drawn


def _label(run: PastRun) -> str:
    found = run.findings_critical + run.findings_warning
    if run.answer == Answer.NOT_JUDGED:
        return f"? {found}" if found else "?"
    return str(found)
