"""Findings about drift from the golden config."""

from __future__ import annotations

from collections import defaultdict

from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.switch_config.derive import GOLDEN, golden_of
from fabric_health.checks.switch_config.masking import masked
from fabric_health.checks.switch_config.tables import ConfigDrift, SwitchConfig
from fabric_health.datasets.tables import Finding, FindingKind, Severity, finding

CHECK = "switch_config"
RULE = "config_equals_golden"
COMMAND = "running_config"
SOURCE = "golden config of the site file"
MAX_FINDINGS = 200
"""Beyond so many differences a switch runs another config: one finding says so, `config_drift` keeps every row."""

MAX_TEXT = 160
MAX_ACTION_LINES = 8

# What breaks lossless transport or cuts traffic when it drifts, on a port or for the whole switch.
_CRITICAL = frozenset({"pfc", "mtu", "ecn", "acl", "admin"})
_HARMLESS = frozenset({"description"})
_ORDER = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}


def drift_findings(rows: RowSet, context: Context) -> list[Finding]:
    """Return one finding per golden difference, and one for each switch whose config cannot be compared.

    Differences to the previous run are changes to look at, not findings.
    """
    by_switch: dict[str, list[ConfigDrift]] = defaultdict(list)
    for row in rows.of(ConfigDrift):
        if row.against == GOLDEN:
            by_switch[row.switch].append(row)
    switches = {s.name: s for s in context.site.switches}
    out: list[Finding] = []
    for config in rows.of(SwitchConfig):
        switch = switches.get(config.switch)
        if switch is None:
            continue
        golden = golden_of(switch)
        if golden is None:
            out.append(_without_golden(switch.name))
        elif not golden.well_formed:
            out.append(_unusable_golden(switch.name, golden.problem or "not a config"))
        cabled = {c.port for c in context.site.cables_of(switch.name)}
        drifted = by_switch.get(switch.name, [])
        if len(drifted) > MAX_FINDINGS:
            out.append(_another_config(switch.name, drifted, cabled))
        else:
            out += [_difference(row, cabled) for row in drifted]
    return out


def severity_of(row: ConfigDrift, cabled: set[str]) -> Severity:
    """Return how much a difference matters: what lossless traffic needs is critical wherever a cable depends on it."""
    if row.topic in _HARMLESS:
        return Severity.INFO
    touches_traffic = row.port in cabled if row.port is not None else bool(cabled)
    return Severity.CRITICAL if row.topic in _CRITICAL and touches_traffic else Severity.WARNING


def _difference(row: ConfigDrift, cabled: set[str]) -> Finding:
    return finding(
        check=CHECK,
        rule=RULE,
        unit=f"{row.switch}/{row.port}" if row.port else row.switch,
        unit_kind="port" if row.port else "switch",
        metric=row.path,
        severity=severity_of(row, cabled),
        summary=_summary(row),
        expected=row.expected,
        actual=row.actual,
        action=_action(row),
        source=SOURCE,
        command=COMMAND,
    )


def _summary(row: ConfigDrift) -> str:
    where = row.path.rsplit(" / ", 1)[0] if row.parents and " / " in row.path else ""
    place = f" under `{_short(where)}`" if where else f" at {row.path}" if row.path.startswith("/") else ""
    if row.path.endswith("(order)"):
        return f"lines{place} stand in another order than in the golden config, and order decides there"
    if row.change == "missing":
        return f"golden line `{_short(row.expected)}`{place} is gone"
    if row.change == "extra":
        return f"`{_short(row.actual)}`{place} is not in the golden config"
    return f"golden line `{_short(row.expected)}`{place} reads `{_short(row.actual)}`"


def _short(text: str | None) -> str:
    first, _, rest = (text or "").partition("\n")
    if len(first) > MAX_TEXT:
        first = first[: MAX_TEXT - 1] + "…"
    return f"{first} (and {rest.count(chr(10)) + 1} lines below)" if rest else first


def _action(row: ConfigDrift) -> str:
    if row.remediation:
        lines = row.remediation.split("\n")
        if len(lines) <= MAX_ACTION_LINES:
            return row.remediation
        return "\n".join([*lines[:MAX_ACTION_LINES], f"... {len(lines) - MAX_ACTION_LINES} more in config_drift"])
    if masked(row.expected) or masked(row.actual):
        return "set the secret again in the form that the golden config has, or accept the new form there"
    return "restore the golden config here, or accept the change there"


def _another_config(switch: str, drifted: list[ConfigDrift], cabled: set[str]) -> Finding:
    worst = max((severity_of(row, cabled) for row in drifted), key=_ORDER.__getitem__)
    counts = {c: sum(row.change == c for row in drifted) for c in ("missing", "extra", "changed")}
    return finding(
        check=CHECK,
        rule=RULE,
        unit=switch,
        unit_kind="switch",
        metric="config",
        severity=worst,
        summary=(
            f"{len(drifted)} differences to the golden config ({counts['missing']} missing, {counts['extra']} extra, "
            f"{counts['changed']} changed): the switch runs another config; table config_drift lists them all"
        ),
        expected="0 differences",
        actual=f"{len(drifted)} differences",
        action="check that the golden config is this switch's, then load it anew or accept the running one",
        source=SOURCE,
        command=COMMAND,
    )


def _without_golden(switch: str) -> Finding:
    return finding(
        check=CHECK,
        rule="golden_given",
        unit=switch,
        unit_kind="switch",
        metric="golden",
        severity=Severity.INFO,
        kind=FindingKind.NOT_JUDGED,
        summary="no golden config: the running config is only compared with that of the previous run",
        action="store the config that this switch should run and name it under `golden` in the site file",
        source=SOURCE,
    )


def _unusable_golden(switch: str, problem: str) -> Finding:
    return finding(
        check=CHECK,
        rule="golden_given",
        unit=switch,
        unit_kind="switch",
        metric="golden",
        severity=Severity.WARNING,
        kind=FindingKind.NOT_JUDGED,
        summary=f"the golden config cannot be compared: {problem}",
        action="replace the golden config with a whole config of this platform",
        source=SOURCE,
    )
