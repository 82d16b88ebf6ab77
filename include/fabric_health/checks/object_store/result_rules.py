"""Rules on results of one run: enough launches of what was asked, no errors, even shares of hosts, stable segments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median

from fabric_health.checks.object_store.launches import plan
from fabric_health.checks.object_store.parse import OPERATIONS
from fabric_health.checks.object_store.quantities import MIB, size_text
from fabric_health.checks.object_store.rules import SITE_FILE, WARP, deviation, not_judged
from fabric_health.checks.object_store.settings import Settings
from fabric_health.checks.object_store.tables import ObjectStoreHost, ObjectStoreResult
from fabric_health.datasets.tables import Finding, Severity

Kind = tuple[str, str, int]
# What a network of the given rate can carry beyond its rate by rounding and clock: nothing worth more.
LINE_RATE_SLACK = 1.02
# Of a handful of seconds one is always slow: fewer say nothing about stability.
MIN_SEGMENTS = 10


def _label(kind: Kind) -> str:
    load, op, size = kind
    return f"{op} {size_text(size)}" if load != "mixed" else f"{op} of mixed {size_text(size)}"


def result_findings(
    results: Sequence[ObjectStoreResult], hosts: Sequence[ObjectStoreHost], wanted: Settings
) -> Iterator[Finding]:
    """Judge every kind of result (load, operation, size) over its launches."""
    kinds: dict[Kind, list[ObjectStoreResult]] = defaultdict(list)
    for row in results:
        kinds[row.load, row.op, row.asked_object_bytes].append(row)
    for asked in plan(wanted).values():
        for op in OPERATIONS[asked.load] - {"MIXED"}:
            kinds.setdefault((asked.load, op, asked.object_bytes), [])
    shares: dict[Kind, list[ObjectStoreHost]] = defaultdict(list)
    of_launch = {r.launch: (r.load, r.asked_object_bytes) for r in results}
    for share in hosts:
        if share.launch in of_launch:
            load, size = of_launch[share.launch]
            shares[load, share.op, size].append(share)
    for kind, rows in sorted(kinds.items()):
        good = [r for r in rows if r.problem is None]
        refused = list(_refused(kind, rows, wanted))
        yield from refused
        if len(good) < wanted.launches and kind[1] != "MIXED":
            yield not_judged(
                "launches_complete",
                wanted.store,
                _label(kind),
                f"{_label(kind)}: {len(good)} of {wanted.launches} launches gave a result that can be used",
                unit_kind="object_store",
                action="Read the launches' own findings; a comparison needs all of them.",
                explained_by=refused[0].finding if refused else None,
            )
        yield from _errors(kind, good, wanted)
        yield from _stability(kind, good, wanted)
        yield from _line_rate(kind, good, wanted)
        yield from _skew(kind, shares[kind], wanted)


def _refused(kind: Kind, rows: Sequence[ObjectStoreResult], wanted: Settings) -> Iterator[Finding]:
    bad = [r for r in rows if r.problem is not None]
    elsewhere = [r for r in bad if (r.problem or "").startswith("ran on ")]
    if elsewhere:
        yield deviation(
            "hosts_as_requested",
            wanted.store,
            _label(kind),
            Severity.CRITICAL,
            f"{_label(kind)} {elsewhere[0].problem}: {len(elsewhere)} results are refused, for they measure another "
            "network or store",
            expected=", ".join(wanted.endpoints) or "one host",
            actual=elsewhere[0].hosts or "none named",
            action="Check the host names of the benchmark and what they resolve to on its clients.",
            source=SITE_FILE,
        )
    others = [r for r in bad if r not in elsewhere]
    if others:
        yield not_judged(
            "result_as_asked",
            wanted.store,
            _label(kind),
            f"{_label(kind)}: {len(others)} results are refused: {others[0].problem}",
            unit_kind="object_store",
            action="Run the launch longer, or set what is asked right in the site file.",
        )


def _errors(kind: Kind, rows: Sequence[ObjectStoreResult], wanted: Settings) -> Iterator[Finding]:
    failed = sum(r.errors or 0 for r in rows)
    if not failed or kind[1] == "MIXED":
        return
    total = sum(r.requests or 0 for r in rows)
    first = next((r.first_error for r in rows if r.errors and r.first_error), None)
    said = f"; the first: {first}" if first else ""
    yield deviation(
        "no_request_errors",
        wanted.store,
        _label(kind),
        Severity.CRITICAL,
        f"{_label(kind)}: {failed} of {total or 'an unknown number of'} requests failed{said}",
        expected="0 errors",
        actual=f"{failed} errors",
        action="Read the store's log at the time of the run; results with errors are not comparable.",
        source=WARP,
    )


def _stability(kind: Kind, rows: Sequence[ObjectStoreResult], wanted: Settings) -> Iterator[Finding]:
    """Judge segments over all launches: one bad second of one launch is noise, the median launch's is not."""
    rows = [r for r in rows if (r.segments or 0) >= MIN_SEGMENTS]
    dips = [r.segment_slowest / r.segment_median for r in rows if r.segment_median and r.segment_slowest is not None]
    if dips and median(dips) < wanted.slowest_segment_min:
        yield deviation(
            "segments_stable",
            wanted.store,
            _label(kind),
            Severity.WARNING,
            f"{_label(kind)}: the slowest second reaches {100 * median(dips):.0f} % of the median second",
            expected=f">= {100 * wanted.slowest_segment_min:.0f} %",
            actual=f"{100 * median(dips):.0f} %",
            action="Look for stalls of drives, healing, scanning or other load at the time of the run.",
            source=SITE_FILE,
        )
    off = [abs(r.segment_median / average - 1) for r in rows if r.segment_median and (average := _average(r))]
    if off and median(off) > wanted.median_to_average:
        yield deviation(
            "segments_typical",
            wanted.store,
            _label(kind),
            Severity.WARNING,
            f"{_label(kind)}: the median second is {100 * median(off):.0f} % off the average, which then stands for "
            "no time of the run",
            expected=f"within {100 * wanted.median_to_average:.0f} %",
            actual=f"{100 * median(off):.0f} %",
            action="Run longer, or look for a store that speeds up or slows down within the run.",
            source=SITE_FILE,
        )


def _average(row: ObjectStoreResult) -> float | None:
    return row.mib_per_s if row.mib_per_s is not None else row.objects_per_s


def _line_rate(kind: Kind, rows: Sequence[ObjectStoreResult], wanted: Settings) -> Iterator[Finding]:
    if wanted.line_rate_gbps is None or kind[1] == "MIXED":
        return
    # A client on a server's own machine reads without the network: the result is then not the network's.
    ends = min(max(1, len(wanted.hosts)), max(1, len(wanted.clients)))
    limit = wanted.line_rate_gbps * 1e9 / 8 / MIB * ends
    beyond = [r.mib_per_s for r in rows if r.mib_per_s is not None and r.mib_per_s > limit * LINE_RATE_SLACK]
    if beyond:
        yield deviation(
            "within_line_rate",
            wanted.store,
            _label(kind),
            Severity.WARNING,
            f"{_label(kind)}: {max(beyond):.0f} MiB/s is more than the network carries; part of it did not cross it",
            expected=f"<= {limit:.0f} MiB/s ({wanted.line_rate_gbps:g} Gb/s x {ends})",
            actual=f"{max(beyond):.0f} MiB/s",
            action="Run the clients on machines that hold no part of the store, or correct line_rate_gbps.",
            source=SITE_FILE,
        )


def _skew(kind: Kind, shares: Sequence[ObjectStoreHost], wanted: Settings) -> Iterator[Finding]:
    """Judge the shares of hosts, each as its median over launches."""
    by_host: dict[str, list[float]] = defaultdict(list)
    for share in shares:
        rate = share.mib_per_s if share.mib_per_s is not None else share.objects_per_s
        if rate is not None:
            by_host[share.host].append(rate)
    rates = {h: median(v) for h, v in by_host.items()}
    if len(rates) < 2:
        return
    slow, fast = min(rates, key=lambda h: (rates[h], h)), max(rates, key=lambda h: (rates[h], h))
    if rates[fast] <= wanted.host_skew_max * rates[slow]:
        return
    skew = f"{rates[fast] / rates[slow]:.2f}" if rates[slow] else "unbounded"
    yield deviation(
        "host_skew",
        f"{wanted.store}/{slow}",
        _label(kind),
        Severity.WARNING,
        f"{_label(kind)}: {slow} serves the least, {rates[slow]:.0f} against {rates[fast]:.0f} of {fast} (x {skew})",
        expected=f"fastest / slowest <= {wanted.host_skew_max:g}",
        actual=skew,
        action=f"Compare drives, NIC and load of {slow} with the others; see that hosts are taken in turn.",
        source=SITE_FILE,
    )
