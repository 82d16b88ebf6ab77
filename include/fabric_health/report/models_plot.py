"""Quality of a model's forms against their size and their speed, as SVG text."""

from __future__ import annotations

from typing import Any

from fabric_health.report import plots, text
from fabric_health.report.models import BASE, PERPLEXITY, Form, Model

WIDTH, HEIGHT = 300, 170
FORM, BASE_COLOUR, LOST = "#1f4e9c", "#57606a", "#b3261e"
_NAME = 28


def quality_against_cost(model: Model) -> str:
    """Return two panels: quality against the size of the weights and against tokens/s; empty text for none.

    Quality is perplexity where it was measured (lower is better, so the axis is turned: up is better), else the first
    task. A form that is worse than its base beyond its gate is red and a cross.
    """
    task = PERPLEXITY if PERPLEXITY in model.tasks else next(iter(model.tasks), None)
    if task is None:
        return ""
    sized = [f for f in model.forms if f.bytes is not None and f.of(task) is not None]
    served = [f for f in model.forms if f.fastest is not None and f.of(task) is not None]
    import altair as alt

    charts = []
    if len(sized) > 1:
        charts.append(_panel(sized, task, "size of the weights, MiB", [(f.bytes or 0) / (1 << 20) for f in sized]))
    if len(served) > 1:
        speeds = [f.fastest.tokens_per_s if f.fastest else 0.0 for f in served]
        charts.append(_panel(served, task, "tokens/s at the highest concurrency", speeds))
    return plots.svg(alt.hconcat(*charts, spacing=40)) if charts else ""


def _panel(forms: list[Form], task: str, title: str, costs: list[float]) -> Any:
    import altair as alt

    values = []
    for form, cost in zip(forms, costs, strict=True):
        quality = form.of(task)
        if quality is None:
            continue
        worse = quality.beside is not None and quality.beside.outcome == "REGRESSED"
        kind = "worse" if worse else "base" if form.scheme == BASE else "form"
        name = text.clipped(form.scheme, _NAME, "cut")
        values.append({"cost": cost, "quality": quality.value, "name": name, "kind": kind})
    scale = alt.Scale(zero=False, nice=True, padding=12, reverse=task == PERPLEXITY)
    better = "perplexity (up is better)" if task == PERPLEXITY else f"{text.clipped(task, _NAME, 'cut')} (up is better)"
    kinds = ["form", "base", "worse"]
    base = alt.Chart(alt.Data(values=values)).encode(
        x=alt.X(
            "cost:Q",
            title=title,
            scale=alt.Scale(zero=False, nice=True, padding=24),
            axis=alt.Axis(tickCount=5, labelOverlap=True),
        ),
        y=alt.Y("quality:Q", title=better, scale=scale, axis=alt.Axis(tickCount=5)),
        color=alt.Color("kind:N", scale=alt.Scale(domain=kinds, range=[FORM, BASE_COLOUR, LOST]), legend=None),
    )
    shape = alt.Shape("kind:N", scale=alt.Scale(domain=kinds, range=["circle", "square", "cross"]), legend=None)
    points = base.mark_point(filled=True, size=80, opacity=1).encode(shape=shape)
    names = base.mark_text(align="center", baseline="bottom", dy=-8, fontSize=11).encode(text="name:N")
    return alt.layer(points, names).properties(width=WIDTH, height=HEIGHT)
