"""Plots of a verdict as SVG text: the loss of every unit with its interval, and the last runs of what got slower."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fabric_health.report import plots, text
from fabric_health.report.data import Trend
from fabric_health.report.verdicts import Line, panels
from fabric_health.verdict.outcome import Outcome

WIDTH, ROW = 620, 19
TREND_WIDTH, TREND_HEIGHT, COLUMNS = 300, 130, 3
INK, DIM, PALE = "#1b1f24", "#57606a", "#d5dae0"
COLOURS = {
    Outcome.REGRESSED.value: "#b3261e",
    Outcome.IMPROVED.value: "#1a6b3c",
    Outcome.PASS.value: "#1f4e9c",
    Outcome.INCONCLUSIVE.value: "#8a5a00",
}
# Diamond: touched by the change; open circle: a control; square: no change was declared, or it is none of both.
SHAPES = {"touched": "diamond", "control": "circle", None: "square"}
# The axis reaches so many margins to both sides at least, and so much beyond the largest loss or gain.
_MARGINS, _ROOM = 2.0, 1.25
_NAME = 34
_SIZE = 70
_SHAPES = ["diamond", "circle", "square"]


def forest(lines: Sequence[Line]) -> str:
    """Return the loss (%) of each line with its interval, zero and margin marked, as SVG; empty text for none.

    One panel per metric and kind of unit, all on one axis: right is slower. An interval that is wider than the axis
    ends in an arrow.
    """
    if not lines:
        return ""
    import altair as alt

    reach = _reach(lines)
    found = list(panels(lines).items())
    charts = [_panel(title, of, reach, last=title == found[-1][0]) for title, of in found]
    # Names are drawn left of the axis; a browser's font may be wider than the one that room was measured with.
    return plots.svg(
        alt.concat(*charts, columns=1, spacing=14).properties(padding={"left": 60, "right": 40, "top": 5, "bottom": 5})
    )


def _reach(lines: Sequence[Line]) -> tuple[float, float]:
    """Return the ends of the axis in percent: of estimates and margins; of intervals as far as twice that."""
    losses = [100 * (x.row.loss or 0.0) for x in lines]
    margin = 100 * max(x.row.margin or 0.0 for x in lines)
    low, high = min(-_MARGINS * margin, _ROOM * min(losses)), max(_MARGINS * margin, _ROOM * max(losses))
    lows = [105 * x.row.loss_low for x in lines if x.row.loss_low is not None]
    highs = [105 * x.row.loss_high for x in lines if x.row.loss_high is not None]
    return min(low, max(2 * low, min(lows, default=low))), max(high, min(2 * high, max(highs, default=high)))


def _panel(title: str, lines: Sequence[Line], reach: tuple[float, float], *, last: bool) -> Any:
    import altair as alt

    margin = 100 * max(x.row.margin or 0.0 for x in lines)
    # The data are given once, to all layers together: a chart is copied often before it is drawn.
    values = [_point(i, x, reach) for i, x in enumerate(lines)]
    axis = alt.Axis(format="+.0~f", tickCount=8, grid=True, gridColor="#eef0f3", domain=False, labels=last, ticks=last)
    scale = alt.Scale(domain=list(reach), nice=False, zero=False)
    x = alt.X("loss:Q", scale=scale, axis=axis, title="loss, % (right: slower; left: faster)" if last else None)
    y = alt.Y("at:O", axis=None, sort=None)
    colour = alt.Color("outcome:N", scale=alt.Scale(domain=list(COLOURS), range=list(COLOURS.values())), legend=None)
    shape = alt.Shape("shape:N", scale=alt.Scale(domain=_SHAPES, range=_SHAPES), legend=None)
    size = alt.Size("size:Q", scale=None, legend=None)
    hollow = alt.condition("datum.shape === 'circle'", alt.value("#fff"), colour)
    base = alt.Chart().encode(y=y)
    layers = [
        *_marked(margin, scale),
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", scale=scale), x2="high:Q", color=colour),
        base.mark_point(opacity=1, strokeWidth=2).encode(x=x, stroke=colour, fill=hollow, shape=shape, size=size),
        base.mark_text(align="center").encode(x=alt.value(0), text="cut_low:N", color=colour),
        base.mark_text(align="center").encode(x=alt.value(WIDTH), text="cut_high:N", color=colour),
        base.mark_text(align="right", dx=-10, fontSize=12, color=INK).encode(x=alt.value(0), text="name:N"),
        base.mark_text(align="left", dx=12, fontSize=12).encode(x=alt.value(WIDTH), text="told:N", color=colour),
    ]
    heading = alt.TitleParams(_shown(title, 90), anchor="start", fontSize=13, dy=-8)
    of = alt.layer(*layers, data=alt.Data(values=values))
    return of.properties(width=WIDTH, height=ROW * len(lines), title=heading)


def _marked(margin: float, scale: Any) -> list[Any]:
    """Return the lines at zero and at the margin (%), and the margin in words."""
    import altair as alt

    bad = COLOURS[Outcome.REGRESSED.value]
    at = alt.X("value:Q", scale=scale)
    zero, other = (alt.Chart(alt.Data(values=[{"value": v}])).encode(x=at) for v in (0.0, margin))
    words = other.mark_text(text=f"margin {margin:.3g} %", align="left", dx=4, dy=-6, fontSize=11, color=bad)
    return [zero.mark_rule(color=INK), other.mark_rule(color=bad, strokeDash=[5, 3]), words.encode(y=alt.value(0))]


def _point(at: int, line: Line, reach: tuple[float, float]) -> dict[str, Any]:
    r = line.row
    loss = 100 * (r.loss or 0.0)
    low = 100 * r.loss_low if r.loss_low is not None else reach[0] - 1
    high = 100 * r.loss_high if r.loss_high is not None else reach[1] + 1
    return {
        "at": at,
        "name": _shown(line.name, _NAME),
        "loss": min(max(loss, reach[0]), reach[1]),
        "low": max(low, reach[0]),
        "high": min(high, reach[1]),
        "cut_low": "◂" if low < reach[0] else "",
        "cut_high": "▸" if high > reach[1] else "",
        "outcome": r.outcome,
        "told": f"{line.badge.symbol} {line.badge.word}",
        "shape": SHAPES.get(r.role, "square"),
        "size": _SIZE * (2 if line.is_set else 1),
    }


def over_runs(trends: Sequence[Trend]) -> str:
    """Return a panel per unit: busbw (GB/s) of its last runs, the margin around what it was before as a band, as SVG.

    Points are medians of launches, lines their span; the last is this run. Empty text for none.
    """
    if not trends:
        return ""
    import altair as alt

    return plots.svg(alt.concat(*map(_trend, trends), columns=COLUMNS, spacing=18))


def _trend(trend: Trend) -> Any:
    import altair as alt

    names = [x.started_at.strftime("%d %b %H:%M") for x in trend.levels]
    last = len(names) - 1
    values = [
        {"run": i, "median": x.median, "low": x.low, "high": x.high, "now": i == last}
        for i, x in enumerate(trend.levels)
    ]
    usual = trend.usual
    band = [
        {"run": i, "low": usual * (1 - trend.margin), "high": usual * (1 + trend.margin)} for i in range(len(names))
    ]
    floor = min([*(v["low"] for v in values), usual * (1 - trend.margin)])
    top = max([*(v["high"] for v in values), usual * (1 + trend.margin)])
    room = (top - floor) * 0.08
    scale = alt.Scale(domain=[floor - room, top + room], nice=False, zero=False)
    y = alt.Y("median:Q", title="busbw, GB/s", scale=scale, axis=alt.Axis(tickCount=4))
    ends = [0, last] if last else [0]
    told = "datum.value === 0 ? '" + names[0] + "' : '" + names[last] + "'"
    axis = alt.Axis(values=ends, labelExpr=told, labelAngle=0, grid=False, labelFlush=True)
    x = alt.X("run:Q", title=None, axis=axis, scale=alt.Scale(domain=[0, last], nice=False, padding=10))
    base = alt.Chart(alt.Data(values=values)).encode(x=x)
    colour = alt.condition("datum.now", alt.value(COLOURS[Outcome.REGRESSED.value]), alt.value(DIM))
    lowest = alt.Y("low:Q", title="busbw, GB/s", scale=scale)
    layers = [
        alt.Chart(alt.Data(values=band)).mark_area(color=PALE, opacity=0.6).encode(x=x, y=lowest, y2="high:Q"),
        base.mark_line(color=DIM, strokeWidth=1).encode(y=y),
        base.mark_rule(strokeWidth=2).encode(y=lowest, y2="high:Q", color=colour),
        base.mark_point(filled=True, size=46, opacity=1).encode(y=y, color=colour),
    ]
    title = alt.TitleParams(_shown(trend.unit, 40), subtitle=_shown(trend.what, 60), anchor="start", fontSize=13)
    return alt.layer(*layers).properties(width=TREND_WIDTH, height=TREND_HEIGHT, title=title)


def _shown(value: str, limit: int) -> str:
    return text.clipped(" ".join(value.split()), limit, "cut")
