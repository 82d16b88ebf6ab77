"""What the page is given of a comparison: its rows, and the last runs of what got slower, measured in the same way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fabric_health.checks.collectives.tables import Collective
from fabric_health.compared import PART, Whole, run_row
from fabric_health.datasets import landing
from fabric_health.datasets.run import RunKey, run_name
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.tables import Run
from fabric_health.datasets.verdict_tables import Verdict
from fabric_health.run_document import RunDocument
from fabric_health.verdict.outcome import Outcome
from fabric_health.verdict_results import verdict_results

START = datetime(2026, 11, 2, 3, tzinfo=UTC)
KEY = "collective=all_reduce;nodes=1"


def document(n: int) -> RunDocument:
    at = START + n * timedelta(days=7)
    key = RunKey("lab", run_name("weekly", str(n), at), at, "lab")
    return RunDocument(key, "weekly", str(n), ("collectives",), ("n1", "n2"), "0", "0")


def concluded(store: ObjectStore, n: int, *busbw: float, key: str = KEY, wrong: int | None = 0) -> None:
    """Land a run whose nodes have these bandwidths, launch by launch; the second part is of more launches."""
    run = document(n).key
    row = Run("weekly", str(n), run.started_at, "collectives", 2, 0, "HEALTHY", "h", 1.0, 0, 0, 1, 0, "0", "0")
    landing.land(store, run, "run", [(row, None)], (Run,))
    for part, values in (("collectives", busbw[:2]), ("collectives.confirm", busbw[2:])):
        rows = [
            (measured(f"{part}-{i}", node, value, key, wrong), None)
            for i, value in enumerate(values)
            for node in ("n1", "n2")
        ]
        landing.land(store, run, part, rows, (Collective,))


def measured(launch: str, node: str, busbw: float, key: str, wrong: int | None) -> Collective:
    return Collective(
        launch=launch,
        group=node,
        group_kind="node",
        collective="all_reduce",
        dtype="float",
        redop="sum",
        root=-1,
        size_bytes=1 << 32,
        in_place=False,
        time_us=1.0,
        algbw_gbps=busbw,
        busbw_gbps=busbw,
        ranks=8,
        ranks_per_node=8,
        nodes=1,
        hosts_sha="0" * 16,
        engine="nccl-tests",
        timing="max",
        comparability=key,
        wrong=wrong,
    )


def test_a_run_that_was_not_compared_has_no_results(store: ObjectStore) -> None:
    assert verdict_results(store, document(0)) is None


def test_what_got_slower_has_its_last_runs_of_the_same_measurement_only(store: ObjectStore) -> None:
    concluded(store, 0, 400.0, 402.0)
    concluded(store, 1, 999.0, 999.0, key="collective=all_reduce;nodes=2")
    concluded(store, 2, 401.0, 403.0, wrong=7)
    concluded(store, 3, 350.0, 352.0, 351.0)
    lost = Verdict("history", "n1", "node", "collectives", "busbw_gbps", KEY, "REGRESSED", "pooled", "r", loss=0.1)
    fine = Verdict("history", "n2", "node", "collectives", "busbw_gbps", KEY, "PASS", "pooled", "r", loss=0.0)
    rows = [run_row(Whole(Outcome.REGRESSED, "slower"), "history", "the run before"), lost, fine]
    landing.land(store, document(3).key, PART, [(r, None) for r in rows], (Verdict,))
    found = verdict_results(store, document(3))
    assert found is not None
    assert len(found.rows) == 3
    (trend,) = found.trends
    assert (trend.unit, trend.what, trend.usual) == ("n1", "all_reduce busbw_gbps", 401.0)
    assert [(x.low, x.median, x.high, x.launches) for x in trend.levels] == [
        (400.0, 401.0, 402.0, 2),
        (350.0, 351.0, 352.0, 3),
    ]
