"""Switch configuration and ports: running against golden and against the previous run, and rules on cabled ports."""

from __future__ import annotations

from fabric_health.checks.check import Check, Context, RowSet
from fabric_health.checks.switch_config.commands import commands
from fabric_health.checks.switch_config.derive import drift_rows
from fabric_health.checks.switch_config.judge import judge
from fabric_health.checks.switch_config.parse import parse
from fabric_health.checks.switch_config.tables import ConfigDrift, PortWindow, SwitchConfig, SwitchPort
from fabric_health.checks.switch_config.windows import port_windows
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.tables import Fact

__all__ = ["SWITCH_CONFIG"]


def _derive(rows: RowSet, context: Context) -> list[Row]:
    return [*drift_rows(rows, context), *port_windows(rows, context)]


def _unit_of(row: Row) -> str:
    if isinstance(row, Fact):
        return row.unit.split("/", 1)[0]
    if isinstance(row, (SwitchConfig, ConfigDrift, SwitchPort, PortWindow)):
        return row.switch
    raise TypeError(f"{type(row).__name__} is no row of the check switch_config")


SWITCH_CONFIG = Check(
    name="switch_config",
    title="Switch configuration and ports",
    unit_kind="switch",
    tables=(SwitchConfig, ConfigDrift, SwitchPort, PortWindow, Fact),
    commands=commands,
    parse=parse,
    derive=_derive,
    judge=judge,
    unit_of=_unit_of,
    doc=(
        "Compares each switch's running config with its golden config and with the previous run, and judges every "
        "cabled port: present, up, speed, MTU, FEC, PFC, ECN, VLAN, LLDP neighbour, errors, pause frames, flaps."
    ),
)
