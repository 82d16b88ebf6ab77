"""Version and setting rules: equal to what the site file pins, else equal to the majority of the SKU.

One cause gives one finding: what comes with the driver is judged against the driver (``stack``), what a different
card brings is not listed again, and a setting that all GPUs of a node share is one finding on the node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fabric_health.checks.driver_firmware.rules.attributes import (
    ACTIONS,
    ALIGN,
    OF_CARD,
    STACK,
    UNIFORM,
    judged_elsewhere,
)
from fabric_health.checks.driver_firmware.rules.norms import ABSENT, Ballot, Norm, Norms
from fabric_health.checks.driver_firmware.rules.rule import CHECK, MFT, SITE_FILE, deviation
from fabric_health.checks.driver_firmware.view import Fleet, NodeView, Part, PartKind, clip, natural
from fabric_health.datasets.tables import FactState, Finding, FindingKind, Severity, finding


@dataclass(frozen=True)
class _Hit:
    """One unit whose value is not the norm."""

    view: NodeView
    part: Part
    norm: Norm
    actual: str


def version_findings(fleet: Fleet) -> Iterator[Finding]:
    """Judge versions and settings of all nodes of the fleet, SKU by SKU."""
    for sku_name in sorted({v.node.sku_name for v in fleet.nodes}):
        views = [v for v in fleet.nodes if v.node.sku_name == sku_name and v.facts]
        if views:
            yield from _Judgement(views, Norms(fleet, sku_name, views)).findings()


class _Judgement:
    """Holds the nodes of one SKU to its norms."""

    def __init__(self, views: list[NodeView], norms: Norms) -> None:
        self.views, self.norms, self.sku = views, norms, norms.sku
        self.driver_off: set[str] = set()
        self.other_card: set[str] = set()

    def findings(self) -> Iterator[Finding]:
        for kind, attributes in UNIFORM.items():
            pinned = [a for a in sorted(self.sku.expected) if self.norms.shows(kind, a)]
            # The driver and the card come first: they explain what other attributes show.
            for attribute in dict.fromkeys((*attributes[:1], *pinned, *attributes)):
                yield from self._attribute(kind, attribute)
        yield from self._pending_firmware()
        yield from self._unknown_pins()

    def _attribute(self, kind: PartKind, attribute: str) -> Iterator[Finding]:
        ballot = self.norms.ballot(kind, attribute)
        hits = list(self._hits(ballot))
        self.driver_off |= {h.view.node.name for h in hits if attribute == "driver_version"}
        self.other_card |= {h.part.unit for h in hits if attribute == "psid"}
        if judged_elsewhere(self.sku, attribute):
            return
        yield from self._report(kind, attribute, [h for h in hits if not self._follows(attribute, h)])
        for group, counts in sorted(ballot.votes.items()):
            if len(counts) > 1 and self.norms.norm(ballot, group) is None:
                yield self._no_majority(ballot, group)

    def _hits(self, ballot: Ballot) -> Iterator[_Hit]:
        for view in self.views:
            for part in view.parts(ballot.kind):
                facts = view.facts.get(part.unit, {})
                group = self.norms.group(view.node, ballot.kind, ballot.attribute, part.name, facts)
                norm = self._psid_norm(part) if ballot.attribute == "psid" else None
                norm = norm or self.norms.norm(ballot, group)
                actual = _actual(view, part, ballot.attribute, norm)
                if norm and actual is not None and actual != norm.value:
                    yield _Hit(view, part, norm, actual)

    def _psid_norm(self, part: Part) -> Norm | None:
        psid = next((n.psid for n in self.sku.nics if n.name == part.name and n.psid), None)
        return Norm(psid, "pinned in the site file", given=True, pinned=True) if psid else None

    def _follows(self, attribute: str, hit: _Hit) -> bool:
        """Return whether another finding already says the same."""
        if attribute in OF_CARD and hit.part.unit in self.other_card:
            return True
        if attribute == "cuda_driver_version":
            return hit.view.node.name in self.driver_off
        if attribute == "persistence_mode":
            return hit.view.peek(hit.view.part, "persistenced_state") not in (None, "active")
        if attribute in STACK:
            # Unequal to the driver: rule `stack` says so. Equal to a driver that is off: the driver's finding does.
            driver = hit.view.peek(hit.view.part, "driver_version")
            return hit.actual != driver or hit.view.node.name in self.driver_off
        return False

    def _report(self, kind: PartKind, attribute: str, hits: list[_Hit]) -> Iterator[Finding]:
        by_node: dict[str, list[_Hit]] = {}
        for hit in hits:
            by_node.setdefault(hit.view.node.name, []).append(hit)
        for name in sorted(by_node, key=natural):
            of_node = by_node[name]
            view = of_node[0].view
            gpus = view.parts(kind) if kind == "gpu" else ()
            if len(gpus) > 1 and len(of_node) == len(gpus) and len({h.actual for h in of_node}) == 1:
                command = view.command(gpus[0], attribute)
                yield _differs(view.part, attribute, of_node[0], f"all {len(gpus)} GPUs of {name}", command)
                continue
            for hit in of_node:
                yield _differs(hit.part, attribute, hit, hit.part.unit, view.command(hit.part, attribute))

    def _no_majority(self, ballot: Ballot, group: str) -> Finding:
        """One warning on the SKU: with no norm there is nobody to blame."""
        counts = ballot.votes[group]
        shares = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        shown = ", ".join(f"{clip(value)} ({count} of {sum(counts.values())})" for value, count in shares[:4])
        return finding(
            check=CHECK,
            rule="majority_exists",
            unit=self.norms.sku_name,
            unit_kind="sku",
            metric=ballot.attribute if group == f"{ballot.kind}s" else f"{ballot.attribute}:{clip(group)}",
            severity=Severity.WARNING,
            summary=f"{ballot.attribute} differs across {clip(group)} of {self.norms.sku_name}, no value prevails",
            expected=f"one value on at least {self.norms.min_share:.0%}",
            actual=clip(shown),
            action=f"Decide which value is right and pin {ballot.attribute} in the site file.",
            source=SITE_FILE,
        )

    def _pending_firmware(self) -> Iterator[Finding]:
        """Firmware that was flashed and waits for a reset, where what runs is as it should be."""
        for view in self.views:
            for nic in view.nics:
                pending, runs = view.peek(nic, "fw_version_pending"), view.peek(nic, "fw_version")
                if pending is None or pending == runs:
                    continue
                group = self.norms.group(view.node, "nic", "fw_version", nic.name, view.facts.get(nic.unit, {}))
                norm = self.norms.norm(self.norms.ballot("nic", "fw_version"), group)
                if norm is not None and runs != norm.value:
                    continue
                yield deviation(
                    nic,
                    "fw_pending",
                    "fw_version_pending",
                    Severity.WARNING,
                    f"{nic.unit} runs firmware {runs} and boots {pending} at its next reset",
                    expected=runs,
                    actual=pending,
                    action="Reset the NIC (mlxfwreset) if the new firmware is wanted, else flash the old one back.",
                    source=MFT,
                    command=view.command(nic, "fw_version_pending"),
                )

    def _unknown_pins(self) -> Iterator[Finding]:
        for attribute in sorted(self.sku.expected):
            if judged_elsewhere(self.sku, attribute) or any(self.norms.shows(kind, attribute) for kind in UNIFORM):
                continue
            yield finding(
                check=CHECK,
                rule="expected_is_known",
                unit=self.norms.sku_name,
                unit_kind="sku",
                metric=attribute,
                severity=Severity.WARNING,
                kind=FindingKind.NOT_JUDGED,
                summary=f"The site file pins {attribute!r} for {self.norms.sku_name}, which no unit has",
                expected=clip(self.sku.expected[attribute]),
                action="Correct the name under expected, or remove it; table facts lists the attributes there are.",
                source=SITE_FILE,
            )


def _actual(view: NodeView, part: Part, attribute: str, norm: Norm | None) -> str | None:
    """Return the value to compare; ``ABSENT`` where the tool says it is not there and the majority has it."""
    fact = view.fact(part, attribute)
    if fact is None:
        if norm is not None and norm.value != ABSENT and (norm.pinned or not norm.given):
            view.text(part, attribute)
        return None
    if fact.state == FactState.UNSUPPORTED and norm is not None and not norm.given:
        return ABSENT
    return view.text(part, attribute, required=norm is not None and norm.pinned)


def _differs(part: Part, attribute: str, hit: _Hit, who: str, command: str | None) -> Finding:
    action = ACTIONS.get(attribute, ALIGN)
    if attribute == "fw_version" and hit.view.peek(hit.part, "fw_version_pending") == hit.norm.value:
        action = "The expected firmware is flashed already: reset the NIC (mlxfwreset) or reboot the node."
    return deviation(
        part,
        "as_expected" if hit.norm.given else "equal_across_sku",
        attribute,
        Severity.WARNING,
        f"{attribute} of {who} is {clip(hit.actual)}, expected {clip(hit.norm.value)} ({hit.norm.why})",
        expected=hit.norm.value,
        actual=hit.actual,
        action=action,
        source=SITE_FILE if hit.norm.pinned else hit.norm.why,
        command=command,
    )
