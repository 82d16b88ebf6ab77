"""Rows of DLRover's node check, from what its master or, without that, its agents say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fabric_health.checks.elastic_training.events import CheckLine
from fabric_health.checks.elastic_training.tables import ElasticNodeCheck

MAX_ROWS = 20_000


def node_checks(
    launch: str, lines: Iterable[CheckLine], ranks: Mapping[int, int], names: Mapping[int, str]
) -> list[ElasticNodeCheck]:
    """Return one row per round and node. ``ranks`` is rank by node id, ``names`` node by rank.

    The master tells of all nodes at once, by node id, each time with the better of the rounds so far. Where its log is
    missing the agents' lines stand in, each about its own node.
    """
    told = list(lines)
    of_master = [c for c in told if c.by_id]
    elapsed: dict[tuple[int, int], float] = {}
    passed: dict[tuple[int, int], bool] = {}
    for line in of_master or told:
        for key, seconds in line.elapsed.items():
            elapsed[line.round, ranks.get(key, key) if line.by_id else key] = seconds
        for key, well in line.passed.items():
            passed[line.round, ranks.get(key, key) if line.by_id else key] = well
    places = sorted({*elapsed, *passed})
    last = {rank: round_ for round_, rank in places}
    slow = {rank for line in told for rank in line.stragglers}
    newest = max(last.values(), default=0)
    # One that DLRover names and that has no time of its own is told of all the same.
    places += [(newest, rank) for rank in sorted(slow - set(last))]
    flagged = {(last.get(rank, newest), rank) for rank in slow}
    return [
        ElasticNodeCheck(
            launch=launch,
            round=round_,
            node=names.get(rank, str(rank)),
            elapsed_s=elapsed.get((round_, rank)),
            passed=passed.get((round_, rank)),
            straggler=(round_, rank) in flagged,
        )
        for round_, rank in places[:MAX_ROWS]
    ]
