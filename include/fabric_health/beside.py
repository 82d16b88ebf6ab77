"""Rails of the nodes that a change left alone, measured beside the others in the same run.

Work on nodes touches every rail, since each rail's ring runs through them: no rail is left to compare with, and between
two runs a loss of the margin drowns in what runs differ by anyway. Within a run it does not. So a run after a change of
nodes also measures the rails of the nodes left alone. Where rails with the touched nodes are as fast as rails without
them, the touched nodes hold up nothing.

That says how the nodes are now, not how they were before: alone it makes a PASS of what is open, and no REGRESSED.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fabric_health.checks.check import Launch
from fabric_health.checks.collectives.asked import of_fleet
from fabric_health.checks.collectives.comparability import comparability
from fabric_health.checks.collectives.launches import again
from fabric_health.checks.collectives.tables import Collective
from fabric_health.datasets.contracts import Row
from fabric_health.launching import Plan
from fabric_health.maintenance import Change
from fabric_health.measured import CONTROL_RAIL, Measured
from fabric_health.site import Site
from fabric_health.verdict.comparability import fields_of
from fabric_health.verdict.contrast import contrast
from fabric_health.verdict.decision import decide
from fabric_health.verdict.intervals import Estimate
from fabric_health.verdict.launches import logs_of_panel, shifts
from fabric_health.verdict.outcome import Judgement, Layer, Outcome
from fabric_health.verdict.panel import finite_loss_of, loss_of
from fabric_health.verdict.power import detectable_shift
from fabric_health.verdict.wording import percent

# A ring of fewer nodes is no measure of one of many.
LEAST_NODES = 4
_POWER = 0.8


def launches(plan: Plan, change: Change, site: Site, run: str, prefix: str) -> Iterator[Launch]:
    """Yield the plan's launches of rails again, on the nodes among theirs that the change left alone.

    None where no node was touched, or fewer than four are left.
    """
    for launch, of in of_fleet(plan.launches):
        rest = [u for u in launch.units if u not in change.touched]
        if of.grouping == "rail" and LEAST_NODES <= len(rest) < len(launch.units):
            yield again(launch, of, rest, f"{prefix}{launch.name}", site, run)


def of_controls(row: Row) -> Row:
    """Return a row of such a launch so that nobody takes it for one of the rails of all nodes."""
    if not isinstance(row, Collective) or row.group_kind != "rail":
        return row
    row = replace(row, group_kind=CONTROL_RAIL)
    return replace(row, comparability=comparability(row))


def in_the_light_of(found: Judgement, m: Measured, beside: Sequence[Measured]) -> Judgement:
    """Return what is said of the touched rails, together with what those beside them say in the same run.

    PASS where rails with the touched nodes are shown to be as fast as rails without them, whether they looked open,
    faster or a little slower than before: then it was the day. REGRESSED where they are shown not to be and looked
    slower than before, too. What lies beyond the margin with its whole interval stays, with what speaks against it.
    """
    rest = next((b for b in beside if _alike(m, b)), None)
    if rest is None or found.outcome in (Outcome.PASS, Outcome.NOT_COMPARABLE):
        return found
    both = shifts(logs_of_panel(rest.panel), logs_of_panel(m.panel))
    if not len(both):
        return found
    seen = contrast(both, both.only(()), found.confidence, None)
    e = seen.estimate
    now = decide(e.shift, e.low, e.high, found.margin)
    nodes = fields_of(rest.panel.comparability).get("nodes", "?")
    told = (
        f"In this run, rails with the touched nodes {_lose(e, found.confidence)} against rails of the {nodes} nodes "
        f"left alone; {seen.how}."
    )
    looked_slow = found.loss is not None and found.loss >= found.margin / 2
    if now is Outcome.PASS and not _beyond(found):
        return _settled(found, now, e, f"{told} Between the two runs: {found.reason}")
    if now is Outcome.REGRESSED and looked_slow and found.outcome is Outcome.INCONCLUSIVE:
        return _settled(found, now, e, f"{told} Between the two runs: {found.reason}")
    against = now is Outcome.PASS and found.outcome is Outcome.REGRESSED
    verdict = " So the touched nodes are not what makes them slow." if against else ""
    return replace(found, reason=f"{found.reason} {told}{verdict}")


def _beyond(found: Judgement) -> bool:
    """Tell whether the whole interval lies beyond the margin, on either side."""
    low, high = found.loss_low, found.loss_high
    return (low is not None and low >= found.margin) or (high is not None and high <= -found.margin)


def _settled(found: Judgement, now: Outcome, e: Estimate, reason: str) -> Judgement:
    visible = detectable_shift(e.standard_error, math.inf, (1 - found.confidence) / 2, _POWER)
    return replace(
        found,
        layer=Layer.PEERS,
        outcome=now,
        reason=reason,
        settle=None,
        loss=finite_loss_of(e.shift),
        loss_low=finite_loss_of(e.low),
        loss_high=finite_loss_of(e.high),
        p_value=e.p_greater,
        detectable_loss=loss_of(visible) if visible > 0 else None,
    )


def _alike(m: Measured, beside: Measured) -> bool:
    """Tell whether both are the same benchmark of the same run, but for the nodes."""
    if m.panel.unit_kind != "rail" or m.panel.runs[-1:] != beside.panel.runs[-1:]:
        return False
    keys = (fields_of(x.panel.comparability) for x in (m, beside))
    one, other = ({k: v for k, v in key.items() if k not in ("nodes", "ranks", "group_kind")} for key in keys)
    return m.panel.metric == beside.panel.metric and one == other


def _lose(e: Estimate, confidence: float) -> str:
    """Return e.g. ``lose 0.4 % (95.0 % interval -0.3 % to 1.1 %)``; a gain is told as a gain."""
    verb, sign = ("lose", 1) if e.shift >= 0 else ("gain", -1)
    low, high = sorted(sign * finite_loss_of(b) for b in (e.low, e.high))
    interval = f"{percent(confidence)} interval {percent(low)} to {percent(high)}"
    return f"{verb} {percent(sign * finite_loss_of(e.shift))} ({interval})"
