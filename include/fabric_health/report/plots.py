"""Plots as SVG text with selectable labels, made without a browser or a network."""

from __future__ import annotations

from collections.abc import Sequence

from fabric_health.report.data import PastRun

WIDTH, HEIGHT = 640, 130


def findings_over_runs(runs: Sequence[PastRun]) -> str:
    """Return findings per run by severity, oldest first, as an SVG document; empty text for fewer than two runs."""
    if len(runs) < 2:
        return ""
    import altair as alt
    import vl_convert

    rows = [
        {"run": r.started_at.strftime("%d %b %H:%M:%S"), "severity": severity, "findings": count}
        for r in runs
        for severity, count in (("critical", r.findings_critical), ("warning", r.findings_warning))
    ]
    order = [r.started_at.strftime("%d %b %H:%M:%S") for r in runs]
    bars = (
        alt.Chart(alt.Data(values=rows), width=WIDTH, height=HEIGHT)
        .mark_bar(stroke="#333", strokeWidth=0.5, width={"band": min(0.8, 0.08 * len(runs))})
        .encode(
            x=alt.X("run:N", sort=order, title="run (start, UTC)", axis=alt.Axis(labelAngle=0, labelOverlap=True)),
            y=alt.Y("findings:Q", title="findings", axis=alt.Axis(tickMinStep=1, format="d")),
            color=alt.Color(
                "severity:N",
                scale=alt.Scale(domain=["critical", "warning"], range=["#b3261e", "#e9a23b"]),
                title="severity",
            ),
            order=alt.Order("severity:N"),
        )
        .configure_view(stroke=None)
        .configure(font="system-ui, sans-serif", background="transparent")
    )
    svg: str = vl_convert.vegalite_to_svg(bars.to_dict())
    return svg
