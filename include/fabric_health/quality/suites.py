"""What is expected of the trend tables, declared: one suite per table, from its contract and from what it means.

Nothing here needs Great Expectations; ``quality.run`` turns rules into its expectations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fabric_health.checks.driver_firmware.tables import KernelEvent, Link
from fabric_health.checks.elastic_training.tables import ElasticEvent, ElasticRecovery, ElasticRun
from fabric_health.checks.switch_config.tables import ConfigDrift, SwitchConfig, SwitchPort
from fabric_health.datasets.contracts import Row, columns
from fabric_health.datasets.tables import (
    Coverage,
    CoverageState,
    Fact,
    FactState,
    Finding,
    FindingKind,
    Quarantine,
    Severity,
)

# Share of the median rows per judged unit of earlier runs that a run may differ by before it is worth a look.
ROWS_LOW, ROWS_HIGH = 0.5, 2.0
# The weekly run and a day of grace.
MAX_GAP_DAYS = 8.0


@dataclass(frozen=True)
class Rule:
    """One expectation. ``expectation`` is Great Expectations' type name; ``subject`` names column and parameters."""

    expectation: str
    subject: str
    description: str
    severity: Severity
    arguments: Mapping[str, Any] = field(default_factory=dict)


# Values that a column may have besides null.
VALUES: Mapping[tuple[type[Row], str], tuple[str, ...]] = {
    (Fact, "state"): tuple(FactState),
    (Fact, "unit_kind"): ("node", "gpu", "nic", "drive", "switch", "port", "fabric", "launch", "object_store"),
    (Finding, "severity"): tuple(Severity),
    (Finding, "kind"): tuple(FindingKind),
    (Coverage, "state"): tuple(CoverageState),
    (Coverage, "unit_kind"): ("node", "pair", "switch", "fabric", "machine", "object_store", "model", "job"),
    (Link, "link_layer"): ("InfiniBand", "Ethernet"),
    (KernelEvent, "kind"): ("xid", "sxid", "lost_carrier"),
    (KernelEvent, "unit_kind"): ("gpu", "nic", "node"),
    (SwitchConfig, "platform"): ("cumulus", "sonic", "onyx", "eos", "nxos"),
    (ConfigDrift, "against"): ("golden", "previous"),
    (ConfigDrift, "change"): ("missing", "extra", "changed"),
    (SwitchPort, "fec"): ("rs", "fc", "none"),
    (ElasticEvent, "source"): ("master", "agent", "training", "injector", "kubernetes"),
    (ElasticRun, "backend"): ("local", "kubernetes"),
    (ElasticRun, "final_status"): ("succeeded", "failed", "no_steps", "unfinished", "hung", "limit", "unknown"),
    (ElasticRecovery, "kind"): ("kill-rank", "hang-rank", "lose-agent", "return-agent", "delete-worker"),
}

# Where real values lie: a number outside is most likely in another unit than its column says (Mb/s for Gb/s, KiB
# for B). Ethernet and InfiniBand ports run from 0.1 to 1,600 Gb/s today; RDMA MTUs are 256..4096 B on InfiniBand
# (IBTA, PortInfo.MTUCap); an IP MTU is at least 68 B (RFC 791) and jumbo frames end below 64 KiB.
PLAUSIBLE: Mapping[tuple[type[Row], str], tuple[float, float]] = {
    (Link, "rate_gbps"): (0, 3200),
    (Link, "active_mtu_bytes"): (256, 16384),
    (Link, "netdev_mtu_bytes"): (68, 65535),
    (SwitchPort, "speed_gbps"): (0, 3200),
    (SwitchPort, "mtu_bytes"): (68, 65535),
}

# Tables whose rows are read from a unit's answer, so that each must name its evidence.
FROM_EVIDENCE: frozenset[type[Row]] = frozenset({Fact, Link, KernelEvent, SwitchConfig, SwitchPort})

# Tables that have about as many rows per judged unit in every run.
STEADY: frozenset[type[Row]] = frozenset({Fact, Link, SwitchConfig, SwitchPort})


def contract_rules(row_type: type[Row], origin: str, *, of_many_runs: bool = False) -> list[Rule]:
    """Return what the rows of a table must meet, of one run or of many together; ``origin`` is the site's."""
    rules = [_unique(row_type, of_many_runs)]
    for c in columns(row_type):
        if not c.nullable:
            rules.append(
                Rule(
                    "expect_column_values_to_not_be_null",
                    c.name,
                    f"`{c.name}` is always there",
                    Severity.CRITICAL,
                    {"column": c.name},
                )
            )
        if c.minimum is not None or c.maximum is not None:
            rules.append(_between(c.name, c.minimum, c.maximum, Severity.CRITICAL, "by contract", c.unit))
        if (row_type, c.name) in PLAUSIBLE:
            low, high = PLAUSIBLE[row_type, c.name]
            rules.append(_between(c.name, low, high, Severity.WARNING, "unless its unit is wrong", c.unit))
        if (row_type, c.name) in VALUES:
            rules.append(_one_of(c.name, VALUES[row_type, c.name]))
    rules.append(_one_of("origin", dict.fromkeys((origin, "measured"))))
    if row_type in FROM_EVIDENCE:
        rules.append(
            Rule(
                "expect_column_values_to_not_be_null",
                "evidence",
                "every row names the evidence it was read from",
                Severity.WARNING,
                {"column": "evidence"},
            )
        )
    return rules


def no_quarantine() -> Rule:
    """Return the rule that no row broke its contract."""
    return Rule(
        "expect_table_row_count_to_equal",
        "quarantined rows = 0",
        "no row of this run broke the contract of its table",
        Severity.WARNING,
        {"value": 0},
    )


def complete(what: str, severity: Severity) -> Rule:
    """Return the rule for a frame with one row per expected thing, whose ``missing`` names it if it is not there."""
    return Rule(
        "expect_column_values_to_be_null", f"missing: {what}", f"{what} is there", severity, {"column": "missing"}
    )


def steady_rows(check: str) -> Rule:
    """Return the rule for the ratio of a check's rows per judged unit to the median of earlier runs."""
    return Rule(
        "expect_column_values_to_be_between",
        f"{check}: rows per judged unit / median of earlier runs in [{ROWS_LOW:g}, {ROWS_HIGH:g}]",
        f"a unit that {check} judged has {ROWS_LOW:g} to {ROWS_HIGH:g} times as many rows as in the median earlier run",
        Severity.WARNING,
        {"column": "ratio", "min_value": ROWS_LOW, "max_value": ROWS_HIGH},
    )


def fresh() -> Rule:
    """Return the rule for the time between this run and the concluded run before it, in days."""
    return Rule(
        "expect_column_values_to_be_between",
        f"days since the run before <= {MAX_GAP_DAYS:g}",
        f"at most {MAX_GAP_DAYS:g} days lie between this run and the concluded run before it",
        Severity.WARNING,
        {"column": "days", "min_value": 0, "max_value": MAX_GAP_DAYS},
    )


def fresh_now() -> Rule:
    """Return the rule for the age of the latest concluded run, in days: the weekly run does run."""
    return Rule(
        "expect_column_values_to_be_between",
        f"days since the latest run <= {MAX_GAP_DAYS:g}",
        f"the latest concluded run is at most {MAX_GAP_DAYS:g} days old",
        Severity.CRITICAL,
        {"column": "days", "min_value": 0, "max_value": MAX_GAP_DAYS},
    )


def suites(row_types: Iterable[type[Row]], origin: str) -> dict[type[Row], list[Rule]]:
    """Return the contract suite of each table; quarantine's is that it is empty."""
    return {t: [no_quarantine()] if t is Quarantine else contract_rules(t, origin) for t in row_types}


def _unique(row_type: type[Row], of_many_runs: bool) -> Rule:
    names = [k for k in row_type.KEY if k != "run" or of_many_runs]
    what = ", ".join(names)
    description = f"no two rows have the same {what}" if of_many_runs else f"no two rows of a run have the same {what}"
    if len(names) == 1:
        return Rule("expect_column_values_to_be_unique", what, description, Severity.CRITICAL, {"column": names[0]})
    return Rule("expect_compound_columns_to_be_unique", what, description, Severity.CRITICAL, {"column_list": names})


def _between(column: str, low: float | None, high: float | None, severity: Severity, why: str, unit: str) -> Rule:
    left = "-inf" if low is None else f"{low:g}"
    right = "inf" if high is None else f"{high:g}"
    shown = f" {unit}" if unit and unit != "1" else ""
    return Rule(
        "expect_column_values_to_be_between",
        f"{column} in [{left}, {right}]",
        f"`{column}` lies between {left} and {right}{shown} {why}",
        severity,
        {"column": column, "min_value": low, "max_value": high},
    )


def _one_of(column: str, allowed: Iterable[str]) -> Rule:
    values = [str(v) for v in allowed]
    return Rule(
        "expect_column_values_to_be_in_set",
        f"{column} in {{{', '.join(values)}}}",
        f"`{column}` is one of {', '.join(values)}",
        Severity.CRITICAL,
        {"column": column, "value_set": values},
    )
