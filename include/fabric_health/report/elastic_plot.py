"""The timeline of a launch of elastic training as SVG text: steps, faults, and how many processes trained."""

from __future__ import annotations

import itertools
from typing import Any

from fabric_health.report import plots
from fabric_health.report.elastic import Launch

WIDTH, STEPS_HEIGHT, WORLD_HEIGHT = 640, 150, 50
NOW, FAULT, WORLD = "#1f4e9c", "#b3261e", "#8b949e"
POINTS = 400


def timeline(launch: Launch) -> str:
    """Return step against time (s since the start) with each fault marked, processes below; empty text for no step.

    The band behind a fault reaches to the first step after it; one without a band was never recovered from.
    """
    if not launch.steps:
        return ""
    import altair as alt

    every = max(1, len(launch.steps) // POINTS)
    steps = [{"t": s.at_s, "step": s.step, "world": s.world} for s in launch.steps[::every]]
    last = max([s.at_s for s in launch.steps] + [m.until_s or m.at_s for m in launch.marks])
    scale = alt.Scale(domain=[0, last * 1.03 or 1.0], nice=False)
    base = alt.Chart(alt.Data(values=steps))
    x = alt.X("t:Q", scale=scale, title=None, axis=alt.Axis(labels=False, ticks=False))
    line = base.mark_line(color=NOW, interpolate="linear").encode(x=x, y=alt.Y("step:Q", title="step"))
    dots = base.mark_point(color=NOW, filled=True, size=14, opacity=1).encode(x=x, y="step:Q")
    above = alt.layer(*_faults(launch, scale, labels=True), line, dots).properties(width=WIDTH, height=STEPS_HEIGHT)
    x = alt.X("t:Q", scale=scale, title="seconds since the start of the job")
    world = base.mark_line(color=WORLD, interpolate="step-after", strokeWidth=3).encode(
        x=x, y=alt.Y("world:Q", title="processes", scale=alt.Scale(zero=True), axis=alt.Axis(tickMinStep=1, format="d"))
    )
    below = alt.layer(*_faults(launch, scale, labels=False), world).properties(width=WIDTH, height=WORLD_HEIGHT)
    return plots.svg(alt.vconcat(above, below, spacing=6))


def _faults(launch: Launch, scale: Any, *, labels: bool) -> list[Any]:
    import altair as alt

    if not launch.marks:
        return []
    marks = [
        {"t": m.at_s, "until": m.at_s if m.until_s is None else m.until_s, "name": m.name, "row": i % 2}
        for i, m in enumerate(launch.marks)
    ]
    base = alt.Chart(alt.Data(values=marks))
    x = alt.X("t:Q", scale=scale)
    layers = [
        base.mark_rect(color=FAULT, opacity=0.12).encode(x=x, x2="until:Q"),
        base.mark_rule(color=FAULT, strokeDash=[4, 3]).encode(x=x),
    ]
    if labels:
        # A name on the right would leave the plot: it stands before its line. Neighbours stand on two rows.
        middle = sum(scale.domain) / 2
        sides = (("left", 4, f"datum.t <= {middle}"), ("right", -4, f"datum.t > {middle}"))
        for row, (side, shift, where) in itertools.product((0, 1), sides):
            text = base.transform_filter(f"datum.row === {row} && {where}")
            text = text.mark_text(align=side, baseline="top", dx=shift, color=FAULT)
            layers.append(text.encode(x=x, y=alt.value(13 * row), text="name:N"))
    return layers
