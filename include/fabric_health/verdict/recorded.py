"""Recorded changes between the last good and the first bad run, equal ones put together."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fabric_health.changes import VOLATILE, Change

# What cannot be why a unit got slower. Error counts only grow: what they tell of is a finding. A pending value is not
# in effect. Where the kernel log is read from is a matter of our own asking.
NO_CAUSE = VOLATILE | {
    "ecc_sram_uncorrectable",
    "ecc_dram_uncorrectable",
    "remapped_rows_correctable",
    "remapped_rows_uncorrectable",
    "media_errors",
    "ibdiagnet_errors",
    "ibdiagnet_warnings",
    "ecc_mode_pending",
    "fw_version_pending",
    "kernel_log_source",
}
# Attributes that one act changes together with the first: an update of a package, another card in the slot. They are
# no candidates of their own where they changed on the same units.
_MOVES_ALONG: dict[str, frozenset[str]] = {
    "driver_version": frozenset(
        {"cuda_driver_version", "kernel_module_version", "fabric_manager_version", "gsp_firmware_version"}
    ),
    "doca_version": frozenset({"ofed_version"}),
    "part_number": frozenset({"psid", "nic_type", "pcie_gen_max", "pcie_width_max"}),
    "serial": frozenset({"uuid", "pci_bus_id", "gpu_model", "drive_model", "model", "hostname"}),
}
ANY = "(various)"
FACTS, CONFIG = "facts", "config_drift"


@dataclass(frozen=True)
class RecordedChange:
    """One attribute of one unit that is not what it was. None: the unit had, or has, no value.

    ``attribute`` is a fact's name or a config line; ``source`` says which table it is from.
    """

    unit: str
    attribute: str
    before: str | None
    after: str | None
    source: str = FACTS

    @classmethod
    def of_fact(cls, change: Change) -> RecordedChange:
        """Return the change of a fact."""
        return cls(change.unit, change.attribute, change.before, change.after)

    @classmethod
    def of_config(
        cls, switch: str, path: str, before: str | None, after: str | None, port: str | None = None
    ) -> RecordedChange:
        """Return the change of a config line. The port's own name is taken out of its text.

        The same line that goes on several ports is then the same change. The name may be a step of a JSON pointer
        (``/PORT/Ethernet32/mtu``, RFC 6901), or written out where the cabling plan has it short (``ethernet 1/3``).
        """
        if port is None:
            return cls(switch, path, before, after, CONFIG)
        if path.startswith("/"):
            step = port.replace("~", "~0").replace("/", "~1")
            path = "/".join("<port>" if part == step else part for part in path.split("/"))
        name = _port_name(port)
        told = [text if text is None else name.sub("<port>", text) for text in (path, before, after)]
        return cls(f"{switch}/{port}", told[0] or path, told[1], told[2], CONFIG)


@dataclass(frozen=True)
class Group:
    """Equal changes: of one attribute, with the units that have it. ``along``: attributes that moved with it.

    ``before`` and ``after`` are ``ANY`` where units differ in them.
    """

    attribute: str
    before: str | None
    after: str | None
    source: str
    units: frozenset[str]
    along: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the change in words: ``fw_version 28.42 -> 28.43``."""
        if self.before == self.after:
            return f"{self.attribute} changed"
        if self.source == CONFIG and None in (self.before, self.after):
            return f"{'new' if self.before is None else 'lost'} config line `{_shown(self.attribute)}`"
        if self.before == ANY:
            return f"{self.attribute} -> {_shown(self.after)}"
        return f"{self.attribute} {_shown(self.before)} -> {_shown(self.after)}"


def _port_name(port: str) -> re.Pattern[str]:
    """Return what the port is called in a line: Ethernet1 is no part of Ethernet12, nor of Ethernet1/2."""
    kind = re.match(r"[A-Za-z]*", port).group()  # type: ignore[union-attr]  # matches anything
    long = f"{kind}[a-z]* ?" if kind else ""
    return re.compile(rf"(?<![\w/]){long}{re.escape(port[len(kind) :])}(?![\w/])", re.IGNORECASE)


def _shown(value: str | None) -> str:
    if value is None:
        return "(none)"
    line = " ".join(value.split())
    return line if len(line) <= 80 else line[:77] + "..."


def exact_groups(changes: Iterable[RecordedChange]) -> list[Group]:
    """Return equal changes put together, without those that cannot be a cause, in a fixed order."""
    found: dict[tuple[str, str, str | None, str | None], set[str]] = {}
    for c in changes:
        if c.attribute not in NO_CAUSE and c.before != c.after:
            found.setdefault((c.attribute, c.source, c.before, c.after), set()).add(c.unit)
    return sorted(
        (Group(a, b, n, s, frozenset(units)) for (a, s, b, n), units in found.items()),
        key=lambda g: (g.attribute, g.source, g.before or "", g.after or "", sorted(g.units)),
    )


def wider_groups(groups: Iterable[Group]) -> list[tuple[Group, tuple[Group, ...]]]:
    """Return groups of changes that differ in their values only, each with what it is made of.

    Units that came to one version from several, or that each got a new serial, have a change in common too.
    """
    by_after: dict[tuple[str, str, str | None], list[Group]] = {}
    by_attribute: dict[tuple[str, str], list[Group]] = {}
    for g in groups:
        by_after.setdefault((g.attribute, g.source, g.after), []).append(g)
        by_attribute.setdefault((g.attribute, g.source), []).append(g)
    out = [
        (Group(a, ANY, after, s, frozenset().union(*(g.units for g in held))), tuple(held))
        for (a, s, after), held in by_after.items()
        if len(held) > 1
    ]
    out += [
        (Group(a, ANY, ANY, s, frozenset().union(*(g.units for g in held))), tuple(held))
        for (a, s), held in by_attribute.items()
        if len({g.after for g in held}) > 1
    ]
    return out


def moves_along(first: str, other: str) -> bool:
    """Return whether ``other`` is an attribute that changes with ``first`` in one act."""
    return other in _MOVES_ALONG.get(first, ())
