"""Plots of benchmarks as SVG text: this run in blue with the spread of its launches, an earlier one in grey behind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from fabric_health.report import plots, text
from fabric_health.report.collectives import Curve
from fabric_health.report.object_store import Line

NOW, BEFORE = "#1f4e9c", "#8b949e"
COLUMNS, WIDTH, HEIGHT = 3, 300, 150
POINT_ROW = 26
_TITLE = 60
# Sizes on an axis in binary units: `datum.value` is a number of ours.
_SIZE = (
    "datum.value >= 1073741824 ? format(datum.value / 1073741824, '.4~g') + ' GiB' : datum.value >= 1048576 ? "
    "format(datum.value / 1048576, '.4~g') + ' MiB' : datum.value >= 1024 ? format(datum.value / 1024, '.4~g') + "
    "' KiB' : format(datum.value, 'd') + ' B'"
)


def busbw_curves(curves: Sequence[Curve]) -> str:
    """Return one panel a curve, busbw (GB/s) from 0 against size (logarithmic), as SVG; empty text for none."""
    if not curves:
        return ""
    import altair as alt

    return plots.svg(alt.concat(*(_curve(c) for c in curves), columns=COLUMNS, spacing=18))


def object_store_points(lines: Sequence[Line]) -> str:
    """Return a panel per object size and unit: launches as points, medians as strokes, as SVG; empty text for none."""
    if not lines:
        return ""
    import altair as alt

    panels: dict[tuple[int, str], list[Line]] = defaultdict(list)
    for line in lines:
        panels[line.object_bytes, line.unit].append(line)
    return plots.svg(alt.concat(*(_points(unit, found) for (_, unit), found in panels.items()), columns=2, spacing=18))


def _curve(curve: Curve) -> Any:
    import altair as alt

    def data(points: Sequence[Any]) -> Any:
        return alt.Data(
            values=[{"size": p.size_bytes, "median": p.median, "low": p.low, "high": p.high} for p in points]
        )

    sizes = sorted({p.size_bytes for p in (*curve.now, *curve.before)})
    axis = alt.Axis(values=sizes, labelExpr=_SIZE, labelOverlap=True, labelAngle=0, grid=False)
    x = alt.X("size:Q", title=None, axis=axis, scale=alt.Scale(type="log", base=2, nice=False, padding=8))
    top = max(p.high for p in (*curve.now, *curve.before))
    y = alt.Y("median:Q", title="busbw, GB/s", scale=alt.Scale(domain=[0, top * 1.05 or 1]), axis=alt.Axis(tickCount=4))
    base = alt.Chart(data(curve.now))
    layers = [base.mark_area(color=NOW, opacity=0.18).encode(x=x, y=alt.Y("low:Q", title="busbw, GB/s"), y2="high:Q")]
    if curve.before:
        past = alt.Chart(data(curve.before)).encode(x=x, y=y)
        layers.append(past.mark_line(color=BEFORE, strokeDash=[5, 3]))
        layers.append(past.mark_point(color=BEFORE, shape="square", size=34, filled=False))
    layers.append(base.mark_line(color=NOW).encode(x=x, y=y))
    layers.append(base.mark_point(color=NOW, filled=True, size=34, opacity=1).encode(x=x, y=y))
    where = ", in place" if curve.in_place else ""
    title = alt.TitleParams(_shown(curve.title), subtitle=_shown(curve.setting + where), anchor="start", fontSize=13)
    return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT, title=title)


def _points(unit: str, lines: Sequence[Line]) -> Any:
    import altair as alt

    names = [_shown(x.title if len({y.setting for y in lines}) == 1 else f"{x.title}, {x.setting}") for x in lines]
    pairs = list(zip(names, lines, strict=True))
    launches = [{"op": name, "value": v} for name, x in pairs for v in x.speed.values]
    medians = [{"op": name, "value": x.speed.median} for name, x in pairs]
    earlier = [
        {"op": name, "value": x.before.median, "low": x.before.low, "high": x.before.high}
        for name, x in pairs
        if x.before is not None
    ]
    x = alt.X("value:Q", title=unit, scale=alt.Scale(zero=True, nice=True), axis=alt.Axis(tickCount=5))
    y = alt.Y("op:N", title=None, sort=names)

    def chart(values: list[dict[str, Any]]) -> Any:
        return alt.Chart(alt.Data(values=values)).encode(x=x, y=y)

    layers = [
        chart(launches).mark_point(color=NOW, filled=True, size=40, opacity=0.55),
        chart(medians).mark_tick(color=NOW, thickness=3, size=18),
    ]
    if earlier:
        span = alt.Chart(alt.Data(values=earlier)).mark_rule(color=BEFORE, strokeWidth=2)
        layers.insert(0, chart(earlier).mark_point(color=BEFORE, shape="square", size=70, strokeWidth=2))
        layers.insert(0, span.encode(x=alt.X("low:Q", title=unit), x2="high:Q", y=y))
    return alt.layer(*layers).properties(width=400, height=POINT_ROW * len(set(names)))


def _shown(value: str) -> str:
    return text.clipped(" ".join(value.split()), _TITLE, "cut")
