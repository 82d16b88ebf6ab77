"""Whether a site can be played as a lab, and whether a fault makes sense on it."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Iterable
from datetime import datetime

from fabric_health.checks.collectives.launches import LOCAL_UNIT
from fabric_health.checks.collectives.settings import settings
from fabric_health.checks.elastic_training.settings import LEAST_WORKERS, asked
from fabric_health.checks.model_eval.settings import settings as models_of
from fabric_health.errors import LabError, UsageError
from fabric_health.lab.faults import CATALOGUE, FaultKind
from fabric_health.lab.place import CONNECTION_ID
from fabric_health.lab.state import Fault
from fabric_health.site import Node, Site, Switch

ELASTIC_UNIT = "elastic"
_VERSION = re.compile(r"^[0-9][0-9A-Za-z._-]{0,30}$")


def check_site(site: Site) -> None:
    """Raise LabError unless every unit has a loopback address of its own and is reached over ``lab_ssh``."""
    if site.origin != "lab":
        raise LabError(f"{site.path}: origin is {site.origin!r}; the lab plays only sites with `origin: lab`")
    seen: dict[str, str] = {}
    for unit in site.select(None):
        try:
            loopback = ipaddress.ip_address(unit.address).is_loopback
        except ValueError:
            loopback = False
        if not loopback:
            raise LabError(f"{unit.name}: address {unit.address!r}; expected a loopback address such as 127.10.1.1")
        if unit.address in seen:
            raise LabError(f"{unit.name} and {seen[unit.address]} share {unit.address}; expected an address each")
        seen[unit.address] = unit.name
        reach = unit.reach
        if reach.kind != "ssh" or reach.connection != CONNECTION_ID or reach.port or reach.jump:
            raise LabError(f"{unit.name}: expected a reach profile of kind ssh with connection {CONNECTION_ID} alone")


def checked_fault(site: Site, kind: str, unit: str, value: str | None, since: datetime) -> Fault:
    """Return the fault, with its default value filled in. Raises UsageError that says what would fit."""
    if kind not in CATALOGUE:
        raise UsageError(f"no fault {kind!r}; {_near(kind, CATALOGUE, 'expected')}")
    fault = CATALOGUE[kind]
    _check_unit(site, fault, unit)
    given = value if value is not None else fault.default
    if not fault.value_doc:
        if value is not None:
            raise UsageError(f"fault {kind} takes no value, {value!r} was given")
        return Fault(kind, unit, None, since)
    if given is None:
        raise UsageError(f"fault {kind} needs a value: {fault.value_doc}")
    if kind == "miscabled":
        given = _other_port(site, unit, given)
    elif not _VALUES[kind](given):
        raise UsageError(f"fault {kind}: value {given!r}; expected {fault.value_doc}, e.g. {fault.default}")
    return Fault(kind, unit, given, since)


def _check_unit(site: Site, fault: FaultKind, unit: str) -> None:
    name, _, part = unit.partition("/")
    if fault.unit_kind == "rank":
        _check_rank(site, fault, unit)
        return
    if fault.unit_kind in ("job", "agent"):
        _check_elastic(site, fault, unit)
        return
    if fault.unit_kind == "model":
        forms = [m.unit(form) for m in models_of(site).models for form in m.forms]
        if unit not in forms:
            hint = _near(unit, forms, "expected")
            raise UsageError(f"fault {fault.name} sits on a form of a model that is served, not on {unit}; {hint}")
        return
    owner = site.unit(name)
    wanted = "switch" if fault.unit_kind in ("switch", "port") else "node"
    if owner.kind != wanted:
        raise UsageError(f"fault {fault.name} sits on a {fault.unit_kind}; {name} is a {owner.kind}")
    if fault.unit_kind in ("node", "switch"):
        if part:
            raise UsageError(f"fault {fault.name} sits on a whole {fault.unit_kind}: {name}, not {unit}")
        return
    parts = _parts(site, owner, fault)
    if part not in parts:
        what = f"{name} has no {fault.unit_kind} {part!r}" if part else f"fault {fault.name} needs a {fault.unit_kind}"
        hint = _near(part, parts, "expected")
        raise UsageError(f"{what}; {hint}, as {name}/{parts[0] if parts else fault.unit_kind}")


def _check_rank(site: Site, fault: FaultKind, unit: str) -> None:
    """Ranks run on the machine that plays the lab; those in pairs are held against each other."""
    gloo = settings(site).gloo
    ranks = [f"{LOCAL_UNIT}/rank-{n}" for n in range(max(gloo.ranks, 2 * gloo.pairs))]
    if unit not in ranks:
        raise UsageError(
            f"fault {fault.name} sits on a rank of gloo, not on {unit}; expected one from {ranks[0]} to {ranks[-1]}"
        )


def _check_elastic(site: Site, fault: FaultKind, unit: str) -> None:
    """The job of elastic training is one, on the machine that plays the lab; its agents stand for nodes."""
    agents = [f"{ELASTIC_UNIT}/agent-{n}" for n in range(max(LEAST_WORKERS, asked(site).workers))]
    known = [ELASTIC_UNIT] if fault.unit_kind == "job" else agents
    if unit not in known:
        expected = known[0] if len(known) == 1 else f"one from {known[0]} to {known[-1]}"
        what = "the job" if fault.unit_kind == "job" else "an agent"
        raise UsageError(f"fault {fault.name} sits on {what} of elastic training, not on {unit}; expected {expected}")


def _parts(site: Site, owner: Node | Switch, fault: FaultKind) -> list[str]:
    if isinstance(owner, Switch):
        return [c.port for c in site.cables_of(owner.name)]
    if fault.unit_kind == "gpu":
        return [f"gpu{i}" for i in range(owner.sku.gpus)]
    return [n.name for n in owner.sku.nics]


def _other_port(site: Site, unit: str, value: str) -> str:
    switch, _, port = unit.partition("/")
    other = value.removeprefix(switch + "/")
    ports = [c.port for c in site.cables_of(switch)]
    if other not in ports or other == port:
        rest = [p for p in ports if p != port]
        raise UsageError(f"fault miscabled: value {value!r}; {_near(other, rest, 'expected another cabled port')}")
    return other


def _near(given: str, known: Iterable[str], lead: str) -> str:
    names = list(known)
    near = difflib.get_close_matches(given, names, n=3)
    if near:
        return f"nearest: {', '.join(near)}"
    return f"{lead} one of: {', '.join(names[:8]) or '(none)'}{', ...' if len(names) > 8 else ''}"


def _integer(low: int, high: int) -> Callable[[str], bool]:
    return lambda text: text.isascii() and text.isdigit() and len(text) < 10 and low <= int(text) <= high


def _number(low: float, high: float) -> Callable[[str], bool]:
    def fits(text: str) -> bool:
        try:
            return low < float(text) <= high
        except ValueError:
            return False

    return fits


_VALUES: dict[str, Callable[[str], bool]] = {
    "driver-version": lambda text: bool(_VERSION.match(text)),
    "nic-firmware": lambda text: bool(_VERSION.match(text)),
    "pcie-degraded": lambda text: text in ("1", "2", "4", "8", "16"),
    "link-flap": _integer(1, 1000),
    "xid": _integer(1, 999),
    "switch-mtu": _integer(576, 65535),
    "port-speed": _number(0, 3200),
    "port-errors": _number(0, 1),
    "delayed-rank": _number(0, 1_000_000),
    "slow-node-check": _number(0, 1_000_000),
    "server-errors": _integer(2, 1000),
    "slow-rail": _number(0, 99),
    "slow-node": _number(0, 99),
    "bad-leaf": _number(0, 99),
}
