"""Draw the pictures of docs/verdicts.md from comparisons that are really judged, as SVG.

    python bench/verdict_pictures.py docs/images

Writes ``verdict-outcomes.svg`` (five intervals against a margin of 3 %, each judged by the rule that judges runs),
``verdict-controls.svg`` (one loss with quiet control units, and with control units that fell too) and
``verdict-launches.svg`` (what a number of launches can show). Simulated, from a fixed seed: the same files each time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

from fabric_health.verdict.decision import decide
from fabric_health.verdict.outcome import Metric
from fabric_health.verdict.paired import assess
from fabric_health.verdict.panel import difference_of
from fabric_health.verdict.power import Design, Noise, detectable_loss

METRIC = Metric("busbw_gbps", higher_is_better=True, margin=0.03)
INK, SOFT, BAD, GOOD, OPEN = "#1f2933", "#9aa5b1", "#b42318", "#1a7f5a", "#9a6700"
COLOURS = {"REGRESSED": BAD, "PASS": GOOD, "IMPROVED": "#1d4ed8", "INCONCLUSIVE": OPEN}
# What a reader should see first, and intervals (low, loss, high) that the rule is asked about.
INTERVALS = (
    ("certainly less than the margin", (-0.008, 0.003, 0.014)),
    ("a loss for certain, of a size that matters", (0.045, 0.062, 0.079)),
    ("perhaps nothing, perhaps 6 %", (-0.012, 0.024, 0.060)),
    ("a loss for certain, too small to matter", (0.004, 0.012, 0.020)),
    ("faster for certain", (-0.068, -0.050, -0.032)),
)


def svg(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    """Return a picture with its own background, readable on light and dark pages."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="13" role="img" aria-label="{escape(title)}">\n'
        f'<title>{escape(title)}</title>\n<rect width="{width}" height="{height}" fill="#ffffff"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def text(x: float, y: float, what: str, colour: str = INK, anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}"{more}>{escape(what)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str = INK, more: str = "") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{more}/>'


def outcomes() -> str:
    """Draw intervals against zero and the margin, each with the word that the rule has for it."""

    def x(loss: float) -> float:
        return 430 + loss * 2400

    parts = [
        f'<rect x="{x(0.03):.1f}" y="34" width="{x(0.085) - x(0.03):.1f}" height="216" fill="#fdecea"/>',
        line(x(0), 34, x(0), 250, INK, ' stroke-dasharray="2 3"'),
        line(x(0.03), 34, x(0.03), 250, BAD, ' stroke-width="1.5"'),
        text(x(0), 24, "no change", INK, "middle"),
        text(x(0.03) + 4, 24, "margin 3 %", BAD),
        text(x(0.085), 268, "slower", SOFT, "end"),
        text(x(-0.07), 268, "faster", SOFT),
    ]
    for i, (what, (low, loss, high)) in enumerate(INTERVALS):
        y = 56 + 42 * i
        word = decide(difference_of(loss), difference_of(low), difference_of(high), METRIC.margin).value
        colour = COLOURS[word]
        parts += [
            text(12, y, word, colour, more=' font-weight="600"'),
            text(12, y + 16, what, "#52606d", more=' font-size="12"'),
            line(x(low), y + 4, x(high), y + 4, colour, ' stroke-width="3"'),
            line(x(low), y - 3, x(low), y + 11, colour, ' stroke-width="2"'),
            line(x(high), y - 3, x(high), y + 11, colour, ' stroke-width="2"'),
            f'<circle cx="{x(loss):.1f}" cy="{y + 4}" r="5" fill="{colour}"/>',
        ]
    return svg(660, 280, "Five intervals of a loss against a margin of 3 %, and the verdict of each", parts)


def controls() -> str:
    """Draw launches before and after on changed and control units, twice, with what the comparison says."""
    parts: list[str] = []
    for panel, after in enumerate((362.0, 328.0)):
        left = 20 + 330 * panel
        random = np.random.default_rng(11)
        sides = [
            {f"{name}-{u}": list(level * np.exp(random.normal(0, 0.02, 10))) for u in range(count)}
            for name, count, level in (
                ("new", 2, 362.0),
                ("new", 2, 328.0),
                ("calm", 6, 362.0),
                ("calm", 6, after),
            )
        ]
        found = assess(sides[0], sides[1], metric=METRIC, controls=(sides[2], sides[3]))
        verdict = "It is the change" if found.blames_change else "Real, but not the change"
        parts += [
            text(left, 24, verdict, BAD if found.blames_change else OPEN, more=' font-weight="600" font-size="15"'),
            line(left + 34, 220, left + 300, 220, SOFT),
        ]
        for value in (320, 340, 360, 380):
            y = 220 - (value - 310) * 2.2
            parts.append(text(left + 28, y + 4, str(value), SOFT, "end", ' font-size="11"'))
            parts.append(line(left + 34, y, left + 300, y, "#e4e7eb"))
        for at, (side, colour) in enumerate(zip(sides, (INK, BAD, INK, BAD), strict=True)):
            centre = left + 70 + 62 * at + (10 if at > 1 else 0)
            for k, values in enumerate(side.values()):
                shown = values if len(side) == 2 else [float(np.mean(values))]
                for j, value in enumerate(shown):
                    x = centre + (k - len(side) / 2) * 5 + (j % 3) * 1.5
                    y = 220 - (value - 310) * 2.2
                    dot = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}" fill-opacity="0.65"/>'
                    parts.append(dot)
            parts.append(text(centre, 236, ("before", "after")[at % 2], INK, "middle", ' font-size="11"'))
        parts += [
            text(left + 101, 254, "2 nodes with the new driver", INK, "middle", ' font-size="12"'),
            text(left + 242, 254, "6 nodes without", INK, "middle", ' font-size="12"'),
        ]
    note = "Bus bandwidth in GB/s: each launch of the changed nodes, the mean of each control node. Simulated."
    parts.append(text(20, 276, note, "#52606d", more=' font-size="11"'))
    return svg(680, 286, "A loss on two nodes beside control nodes that stayed, and beside some that fell too", parts)


def launches() -> str:
    """Draw the loss that a change on two nodes beside six others shows in 80 % of cases, by launches and noise."""

    def place(count: int, loss: float) -> tuple[float, float]:
        return 60 + (count - 2) * 29.0, 230 - loss * 2000

    parts = [line(60, 230, 600, 230, SOFT), line(60, 30, 60, 230, SOFT)]
    for loss in (0.02, 0.04, 0.06, 0.08):
        y = place(2, loss)[1]
        parts += [line(60, y, 600, y, "#e4e7eb"), text(52, y + 4, f"{loss:.0%}", INK, "end")]
    for noise, colour, down in ((0.01, GOOD, 10), (0.02, OPEN, 2), (0.04, BAD, 4)):
        seen = [(n, detectable_loss(Noise(noise, 0.002), Design(2, 6, n, n, known=True))) for n in range(2, 20)]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(n, loss) for n, loss in seen if loss <= 0.098))
        end = place(19, seen[-1][1])
        parts += [
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5"/>',
            text(end[0] + 8, end[1] + down, f"{noise:.0%} noise", colour),
        ]
    parts += [text(place(n, 0)[0], 248, str(n), INK, "middle") for n in (3, 5, 10, 15)]
    parts += [
        text(330, 268, "launches on each node, before and after", INK, "middle"),
        text(60, 20, "smallest loss that shows in 4 of 5 cases: 2 nodes changed, 6 beside them, noise known", INK),
    ]
    return svg(690, 280, "The more launches and the less noise, the smaller the loss that shows", parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for name, draw in (("outcomes", outcomes), ("controls", controls), ("launches", launches)):
        (folder / f"verdict-{name}.svg").write_text(draw(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
