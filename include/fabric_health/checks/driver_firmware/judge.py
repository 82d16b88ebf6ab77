"""Turns the rows of a run into findings: all rules over all nodes that answered, each cause named once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
# rule -> (rule, metric) of what explains it on the same unit or its node; metric None: any.
_EXPLAINED: dict[str, tuple[tuple[str, str | None], ...]] = {
    "fabric_state": (("fabric_manager_active", None), ("driver_stack_matches", None)),
    "nvlinks": (("fabric_manager_active", None),),
    "link_downed": (("link_flaps", None),),
    "link_error_recovery": (("link_flaps", None),),
    "gpu_present": (("xid", "xid_79"),),
    "gpu_responds": (("xid", "xid_79"),),
}
# Xids that a state of the GPU tells again, as long as it lasts.
_XID_EXPLAINED: dict[str, tuple[str, ...]] = {
    "xid_63": ("remap_pending", "remap_failure"),
    "xid_64": ("remap_failure",),
    "xid_74": ("nvlinks",),
}
# Xid 45 cleans up after others, 154 says what to do about them, 171 and 172 are details of 48.
_XID_FOLLOWERS = ("xid_45", "xid_154", "xid_171", "xid_172")
# A tool that cannot answer because of what another finding says.
_SILENCED_BY = ("driver_responds", "gpu_responds", "gpu_present", "nic_present", "drive_present")
_RANK = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}


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
    for item in sorted(found, key=lambda f: (-_RANK[Severity(f.severity)], f.rule, f.metric)):
        by_unit.setdefault(item.unit, []).append(item)
    return [replace(f, explained_by=_cause(f, by_unit)) for f in found]


def _cause(effect: Finding, by_unit: Mapping[str, Sequence[Finding]]) -> str | None:
    """Return the finding that explains ``effect``; nothing is explained by a lesser finding."""
    node = effect.unit.partition("/")[0]
    same = by_unit[effect.unit]
    near = [*same, *(by_unit.get(node, ()) if node != effect.unit else ())]
    if effect.kind == FindingKind.NOT_JUDGED:
        causes = [f for f in near if f.rule in _SILENCED_BY and _silences(f, effect)]
    elif effect.rule == "xid" and effect.metric in _XID_FOLLOWERS:
        causes = [f for f in same if _asks_for_action(f)]
    elif effect.rule == "recovery_action":
        causes = [f for f in same if f.rule == "xid" and _asks_for_action(f)]
    elif effect.rule == "xid":
        causes = [f for f in same if f.rule in _XID_EXPLAINED.get(effect.metric, ())]
    else:
        wanted = _EXPLAINED.get(effect.rule, ())
        causes = [f for rule, metric in wanted for f in near if f.rule == rule and metric in (None, f.metric)]
    rank = _RANK[Severity(effect.severity)]
    return next((f.finding for f in causes if _RANK[Severity(f.severity)] >= rank), None)


def _silences(cause: Finding, effect: Finding) -> bool:
    """A driver that does not answer silences nvidia-smi, not ibstat; a lost part silences all tools on itself."""
    return cause.rule != "driver_responds" or effect.command in (cause.command, "nvlink")


def _asks_for_action(f: Finding) -> bool:
    return f.rule == "xid" and f.metric not in _XID_FOLLOWERS and f.severity != Severity.INFO
