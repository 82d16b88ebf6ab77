"""Turns the rows of a run into findings: all rules over all nodes that answered, each cause named once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.driver_firmware.rules.events import event_findings
from fabric_health.checks.driver_firmware.rules.gpu_health import gpu_findings
from fabric_health.checks.driver_firmware.rules.host import host_findings
from fabric_health.checks.driver_firmware.rules.inventory import inventory_findings
from fabric_health.checks.driver_firmware.rules.links import link_findings
from fabric_health.checks.driver_firmware.rules.pcie import pcie_findings
from fabric_health.checks.driver_firmware.rules.stack import stack_findings
from fabric_health.checks.driver_firmware.rules.storage import drive_findings
from fabric_health.checks.driver_firmware.rules.unjudged import unjudged_findings
from fabric_health.checks.driver_firmware.rules.versions import version_findings
from fabric_health.checks.driver_firmware.view import NodeView, fleet, natural
from fabric_health.datasets.tables import Finding, FindingKind, Severity

NODE_RULES: tuple[Callable[[NodeView], Iterator[Finding]], ...] = (
    inventory_findings,
    stack_findings,
    gpu_findings,
    pcie_findings,
    host_findings,
    link_findings,
    drive_findings,
    event_findings,
)
# effect -> causes: a finding of the effect on a unit is explained by one of the cause on the same unit or its node.
_EXPLAINED: dict[str, tuple[str, ...]] = {
    "fabric_state": ("fabric_manager_active", "driver_stack_matches"),
    "nvlinks": ("fabric_manager_active",),
    "link_downed": ("link_flaps",),
    "link_error_recovery": ("link_flaps",),
}
# A tool that cannot answer because of what another finding says.
_SILENCED_BY: tuple[str, ...] = ("driver_responds", "gpu_responds", "gpu_present", "nic_present", "drive_present")
# Xid 45 cleans up after others, 63 records a remap, 154 and 171/172 follow the Xid that caused them.
_XID_FOLLOWERS = frozenset({"xid_45", "xid_154", "xid_171", "xid_172"})


def judge(rows: RowSet, context: Context) -> list[Finding]:
    """Return the findings of a run, ordered by node, unit, rule and metric; the order of rows makes no difference.

    Nodes that did not answer give none here: the run reports them. What a partly read node did not give is a finding
    of kind ``not_judged``.
    """
    judged = fleet(rows, context)
    found: list[Finding] = list(version_findings(judged))
    for view in judged.nodes:
        for rule in NODE_RULES:
            found += rule(view)
    # Last: the rules above have noted by now what they could not read.
    for view in judged.nodes:
        found += unjudged_findings(view)
    return sorted(_explain(found), key=lambda f: (natural(f.unit), f.rule, f.metric, f.finding))


def _explain(found: list[Finding]) -> list[Finding]:
    by_unit: dict[str, list[Finding]] = {}
    for item in sorted(found, key=lambda f: (f.rule, f.metric)):
        by_unit.setdefault(item.unit, []).append(item)
    return [replace(f, explained_by=_cause(f, by_unit)) if f.explained_by is None else f for f in found]


def _cause(effect: Finding, by_unit: dict[str, list[Finding]]) -> str | None:
    node = effect.unit.partition("/")[0]
    near = [*by_unit.get(effect.unit, ()), *(by_unit.get(node, ()) if node != effect.unit else ())]
    if effect.kind == FindingKind.NOT_JUDGED:
        causes = _SILENCED_BY
        near = [f for f in near if f.rule not in causes or _silences(f, effect)]
    elif effect.rule == "xid":
        return _xid_cause(effect, by_unit.get(effect.unit, ()))
    else:
        causes = _EXPLAINED.get(effect.rule, ())
    return next((f.finding for rule in causes for f in near if f.rule == rule), None)


def _silences(cause: Finding, effect: Finding) -> bool:
    """A driver that does not answer silences nvidia-smi, not ibstat; a lost part silences all tools on itself."""
    return cause.rule != "driver_responds" or effect.command in (cause.command, "nvlink")


def _xid_cause(effect: Finding, near: tuple[Finding, ...] | list[Finding]) -> str | None:
    if effect.metric == "xid_63":
        return next((f.finding for f in near if f.rule in ("remap_pending", "remap_failure")), None)
    if effect.metric not in _XID_FOLLOWERS:
        return None
    others = [f for f in near if f.rule == "xid" and f.metric not in _XID_FOLLOWERS]
    others.sort(key=lambda f: (f.severity != Severity.CRITICAL, f.severity != Severity.WARNING, f.metric))
    return next((f.finding for f in others if f.severity != Severity.INFO), None)
