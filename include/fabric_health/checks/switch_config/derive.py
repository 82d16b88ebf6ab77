"""Drift rows of a run: every config against its golden config and against the previous run."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.switch_config.drift import Difference, drift
from fabric_health.checks.switch_config.normalise import NormalisedConfig, normalise
from fabric_health.checks.switch_config.tables import ConfigDrift, SwitchConfig
from fabric_health.evidence import Redactor
from fabric_health.site import Platform, Switch

GOLDEN = "golden"
PREVIOUS = "previous"

Key = tuple[str, str, str, str]


def drift_rows(rows: RowSet, context: Context) -> list[ConfigDrift]:
    """Return the differences of every config in ``rows``.

    ``first_seen`` goes on from the previous run while the series is unbroken; against the previous run every
    difference is new. A switch without a usable golden config has no golden rows: judging says so.
    """
    switches = {s.name: s for s in context.site.switches}
    before = {c.switch: c for c in context.previous.of(SwitchConfig)}
    known = _unbroken(context)
    out: list[ConfigDrift] = []
    for config in rows.of(SwitchConfig):
        switch = switches.get(config.switch)
        if switch is None or switch.platform != config.platform:
            continue
        golden = golden_of(switch)
        if golden is not None and golden.well_formed:
            out += _rows(config, switch.platform, golden.config, GOLDEN, known, context.started_at)
        previous = before.get(config.switch)
        if previous is not None and previous.platform == config.platform:
            out += _rows(config, switch.platform, previous.config, PREVIOUS, {}, context.started_at)
    return out


def golden_of(switch: Switch) -> NormalisedConfig | None:
    """Return the switch's golden config in comparable form, None when the site gives none."""
    return None if switch.golden is None else _normalised_golden(switch.platform, switch.golden)


@lru_cache(maxsize=512)
def _normalised_golden(platform: Platform, text: str) -> NormalisedConfig:
    # Running configs come from redacted evidence: what redaction takes there must be taken here too.
    return normalise(platform, Redactor().text(text), captured=False)


def _unbroken(context: Context) -> dict[Key, datetime]:
    """Return when each golden difference that the switch's last run still showed was first seen."""
    out: dict[Key, datetime] = {}
    for row in context.previous.of(ConfigDrift):
        last_run = context.seen_at(row.switch, SwitchConfig)
        if row.against == GOLDEN and (last_run is None or row.last_seen >= last_run):
            out[row.switch, row.against, row.change, row.path] = row.first_seen
    return out


def _rows(
    config: SwitchConfig,
    platform: Platform,
    reference: str,
    against: str,
    known: dict[Key, datetime],
    started_at: datetime,
) -> list[ConfigDrift]:
    try:
        found = drift(platform, reference, config.config)
    except ValueError:
        # Rows of an earlier release may hold another normal form; the next run has a reference again.
        return []
    return [
        _row(config.switch, against, d, known.get((config.switch, against, d.change.value, d.path)), started_at)
        for d in found
    ]


def _row(switch: str, against: str, d: Difference, first_seen: datetime | None, started_at: datetime) -> ConfigDrift:
    return ConfigDrift(
        switch=switch,
        against=against,
        change=d.change.value,
        path=d.path,
        first_seen=first_seen or started_at,
        last_seen=started_at,
        port=d.port,
        topic=d.topic,
        parents="\n".join(d.parents) or None,
        expected=d.expected,
        actual=d.actual,
        remediation=d.remediation,
    )
