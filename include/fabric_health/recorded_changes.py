"""What is recorded to have changed between two runs of a site: facts of units, and lines of switch configs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from fabric_health.changes import fact_changes
from fabric_health.checks import registry
from fabric_health.checks.switch_config.drift import drift
from fabric_health.checks.switch_config.tables import SwitchConfig
from fabric_health.datasets import reading
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.run import RunKey
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.tables import Fact
from fabric_health.history import MAX_RUNS_BACK, load_part
from fabric_health.site import Site
from fabric_health.verdict.recorded import RecordedChange

MAX_LINES_A_SWITCH = 200
MAX_TEXT = 300


def between(store: ObjectStore, site: Site, before: RunKey, now: RunKey) -> list[RecordedChange]:
    """Return what changed from run ``before`` to run ``now``, on units that both of them read.

    A check that ``before`` did not run is taken from the last run before it that did. A unit's facts that one of the
    runs does not have at all are unknown, which is no change. Config lines are on the port that they are about, or else
    on the switch; a switch with more than 200 changed lines has one change that says how many.
    """
    out: list[RecordedChange] = []
    for entry in registry.ENTRIES:
        tables: tuple[type[Row], ...] = registry.check(entry.name).tables
        if entry.is_benchmark or not {Fact, SwitchConfig} & set(tables):
            continue
        was = _latest_with(store, before, entry.name)
        if was is None:
            continue
        if Fact in tables:
            old, new = (load_part(store, Fact, key, entry.name) for key in (was, now))
            changed = fact_changes(_known(new, old), _known(old, new), _at(old, was.started_at))
            out += map(RecordedChange.of_fact, changed)
        if SwitchConfig in tables:
            old_configs = {c.switch: c for c in load_part(store, SwitchConfig, was, entry.name)}
            for config in load_part(store, SwitchConfig, now, entry.name):
                if config.switch in old_configs:
                    out += _config_changes(site, old_configs[config.switch], config)
    return out


def _latest_with(store: ObjectStore, key: RunKey, check: str) -> RunKey | None:
    """Return the latest concluded run, ``key`` or earlier, that ran a check."""
    until = key.started_at + timedelta(seconds=1)
    for n, past in enumerate(reading.concluded(store, key.site, before=until)):
        if n >= MAX_RUNS_BACK:
            break
        if check in past.checks:
            return RunKey(key.site, past.run, past.started_at, key.origin)
    return None


def _known(facts: Iterable[Fact], other: Iterable[Fact]) -> list[Fact]:
    """Return the facts of units of which the other run has any."""
    owners = {f.unit.split("/", 1)[0] for f in other}
    return [f for f in facts if f.unit.split("/", 1)[0] in owners]


def _at(facts: Iterable[Fact], at: datetime) -> dict[str, datetime]:
    return {f.unit.split("/", 1)[0]: at for f in facts}


def _config_changes(site: Site, old: SwitchConfig, new: SwitchConfig) -> list[RecordedChange]:
    platform = next((s.platform for s in site.switches if s.name == new.switch), None)
    if platform is None or {old.platform, new.platform} != {platform} or old.config_sha256 == new.config_sha256:
        return []
    try:
        found = drift(platform, old.config, new.config)
    except ValueError:
        return []
    if len(found) > MAX_LINES_A_SWITCH:
        return [RecordedChange.of_config(new.switch, "config", None, f"{len(found)} lines differ")]
    return [
        RecordedChange.of_config(new.switch, d.path[:MAX_TEXT], _cut(d.expected), _cut(d.actual), d.port) for d in found
    ]


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= MAX_TEXT else text[: MAX_TEXT - 3] + "..."
