"""Error counters as rates between two runs. What was counted before the first run is told, not judged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

from fabric_health.checks.fabric_links.asked import ERRORS
from fabric_health.checks.fabric_links.tables import FabricPort, FabricWindow
from fabric_health.checks.fabric_links.view import FabricView, deviation, not_judged
from fabric_health.datasets.tables import Finding, Severity

_DAY_S = 86_400.0
_NAMED = 5
_LINK = "Clean or reseat the cable and transceivers at both ends; replace the cable if errors go on."


@dataclass(frozen=True)
class _Meaning:
    words: str
    action: str


MEANINGS: dict[str, _Meaning] = {
    "symbol_error": _Meaning("symbol errors", _LINK),
    "link_error_recovery": _Meaning("link retrainings", _LINK),
    "link_downed": _Meaning("link losses", _LINK + " Look at both ends' logs for the same times."),
    "rcv_errors": _Meaning("packets received with errors", _LINK),
    "rcv_remote_physical_errors": _Meaning(
        "packets that another port had marked bad", "Look for the port upstream with symbol or receive errors."
    ),
    "rcv_switch_relay_errors": _Meaning("packets that the switch could not relay", "Look at routing and multicast."),
    "xmit_discards": _Meaning(
        "packets dropped on sending", "Look for a slow receiver or congestion behind the port; compare xmit_wait."
    ),
    "xmit_constraint_errors": _Meaning("packets refused on sending", "Compare partition keys of both ends."),
    "rcv_constraint_errors": _Meaning("packets refused on receiving", "Compare partition keys of both ends."),
    "local_link_integrity_errors": _Meaning("link integrity events", _LINK),
    "excessive_buffer_overrun_errors": _Meaning("buffer overruns", "Look at flow control: firmware of both ends."),
    "vl15_dropped": _Meaning(
        "management packets dropped", "Look for a tool or manager that floods the node with queries."
    ),
}


_counts = attrgetter(*MEANINGS)


def counter_findings(view: FabricView) -> list[Finding]:
    """Judge every port's window since the previous run."""
    out: list[Finding] = []
    for window in view.windows.values():
        if any(_counts(window)):
            out += _window(view, window)
    out += _stuck(view)
    if not view.windows:
        out += _first_run(view)
    return out


def per_day(count: int, window_s: float) -> float:
    """Return a rate per day. A window shorter than a day is not scaled up: two events in a minute are no 2,880."""
    return count / max(window_s / _DAY_S, 1.0)


def _window(view: FabricView, window: FabricWindow) -> Iterator[Finding]:
    if window.reset:
        return
    for (counter, meaning), count in zip(MEANINGS.items(), _counts(window), strict=True):
        limit = getattr(view.limits, counter) if count else None
        if limit is None:
            continue
        rate = per_day(count, window.window_s)
        # As many losses as the limit are too many; of errors, more than the limit.
        if rate < limit or (rate == limit and counter != "link_downed"):
            continue
        unit = view.unit(window.node, window.port)
        yield deviation(
            view,
            "port_flaps" if counter == "link_downed" else "port_errors",
            unit,
            "port",
            counter,
            Severity.WARNING,
            f"{unit} counted {count:,} {meaning.words} since the last run.",
            expected=f"{'<' if counter == 'link_downed' else '<='} {limit:g} a day",
            actual=f"{rate:,.1f} a day",
            action=meaning.action,
            source=f"site file: checks.fabric_links.limits.{counter}",
            command=ERRORS,
        )


def _stuck(view: FabricView) -> list[Finding]:
    stuck = [f"{w.node} port {w.port} ({w.stuck})" for w in view.windows.values() if w.stuck]
    if not stuck:
        return []
    return [
        not_judged(
            view,
            "counters_count",
            "stuck_counters",
            Severity.WARNING,
            f"{len(stuck)} port{'s' if len(stuck) > 1 else ''} of {view.name} "
            f"{'have' if len(stuck) > 1 else 'has'} counters at their end, which count no further: {_first(stuck)}.",
            expected="counters below their end",
            actual="; ".join(stuck[:50]),
            action="Clear them once what they tell is settled: ibqueryerrors -k, or perfquery -R <lid> <port>.",
            source="InfiniBand Architecture Specification: PortCounters stop at their highest value",
            command=ERRORS,
        )
    ]


def _first_run(view: FabricView) -> list[Finding]:
    high = [f"{p.node} port {p.port}" for p in view.ports.values() if _over(view, p)]
    if not high:
        return []
    return [
        deviation(
            view,
            "counters_before",
            view.name,
            "fabric",
            "counters",
            Severity.INFO,
            f"{len(high)} port{'s' if len(high) > 1 else ''} of {view.name} had counted errors before the first run: "
            f"{_first(high)}. Whether they go on is judged from the next run on.",
            expected="counters of a healthy link",
            actual="; ".join(high[:50]),
            command=ERRORS,
        )
    ]


def _over(view: FabricView, port: FabricPort) -> bool:
    counts = _counts(port)
    # No limit is below zero.
    return any(counts) and any(
        value is not None and limit is not None and value > limit
        for value, limit in zip(counts, _counts(view.limits), strict=True)
    )


def _first(items: list[str]) -> str:
    return ", ".join(items[:_NAMED]) + (", ..." if len(items) > _NAMED else "")
