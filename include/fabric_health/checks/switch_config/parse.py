"""One switch's evidence to rows: its normalised config, its ports, facts about it, and what could not be read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

from fabric_health.checks.check import Unit, read_at
from fabric_health.checks.switch_config.answers import Answers
from fabric_health.checks.switch_config.commands import SOURCES, lossless_priorities
from fabric_health.checks.switch_config.identity import identify
from fabric_health.checks.switch_config.neighbors import Plan
from fabric_health.checks.switch_config.normalise import normalise
from fabric_health.checks.switch_config.ports import cumulus, eos, nxos, onyx, sonic
from fabric_health.checks.switch_config.ports.reading import PortReading, PortReadings
from fabric_health.checks.switch_config.tables import SwitchConfig
from fabric_health.checks.switch_config.unread import ANSWER
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.tables import Fact, FactState
from fabric_health.evidence import UnitEvidence
from fabric_health.site import Site, Switch

_PORTS: dict[str, Callable[[Answers, str | None, frozenset[int]], PortReadings]] = {
    "cumulus": cumulus.parse_ports,
    "sonic": sonic.parse_ports,
    "onyx": onyx.parse_ports,
    "eos": eos.parse_ports,
    "nxos": nxos.parse_ports,
}


def parse(unit: Unit, evidence: UnitEvidence, site: Site) -> list[Row]:
    """Return the rows of one switch. Never raises for anything the switch answered.

    An answer that could not be read leaves its columns null and gives a fact ``answer:<command>`` in state ``error``.
    Evidence without any result (the switch was not reached) gives no rows: its reach status says why.
    """
    if not isinstance(unit, Switch) or not evidence.results:
        return []
    answers = Answers(evidence)
    config = _config(unit, answers)
    identity = identify(unit.platform, answers)
    ports = _PORTS[unit.platform](answers, config, frozenset(lossless_priorities(unit.name, site)))
    plan = Plan(site)
    counted_at = read_at(evidence, SOURCES[unit.platform]["counters"])
    rows: list[Row] = []
    if config is not None:
        digest = hashlib.sha256(config.encode("utf-8")).hexdigest()
        rows.append(SwitchConfig(unit.name, unit.platform, config, digest, identity["os_version"][0]))
    for name, reading in ports.ports.items():
        if reading == PortReading():
            continue  # known by name only: no row, so that judging looks at whether the inventory was read
        row = reading.row(unit.name, name, plan.expectation(unit.name, name), plan.is_port)
        rows.append(replace(row, collected_at=counted_at))
    for attribute, (value, command) in identity.items():
        rows.append(
            _fact(unit.name, attribute, value, answers.problems.get(command, "the switch does not say"), command)
        )
    for command, detail in sorted(answers.problems.items()):
        rows.append(_fact(unit.name, ANSWER + command, None, detail, command))
    return rows


def _config(switch: Switch, answers: Answers) -> str | None:
    text = answers.text("running_config")
    if text is None:
        return None
    normalised = normalise(switch.platform, text)
    if not normalised.well_formed:
        answers.problem("running_config", normalised.problem or "not a whole config")
        return None
    # A JSON config may hold lone surrogates, which no UTF-8 file can.
    return normalised.config.encode("utf-8", "replace").decode("utf-8")


def _fact(switch: str, attribute: str, value: str | None, detail: str, command: str) -> Fact:
    state = FactState.ERROR if value is None else FactState.VALUE
    return Fact(
        unit=switch,
        unit_kind="switch",
        attribute=attribute,
        state=state.value,
        value=value,
        detail=detail if value is None else None,
        command=command,
    )
