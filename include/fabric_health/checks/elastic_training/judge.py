"""Findings of elastic training: what could not be read, nodes, single faults, whole launches, the image."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fabric_health.checks.check import Context, Launch, RowSet
from fabric_health.checks.elastic_training.launches import TOOL
from fabric_health.checks.elastic_training.node_rules import node_findings
from fabric_health.checks.elastic_training.recovery_rules import recovery_findings
from fabric_health.checks.elastic_training.rules import CHECK, SITE_FILE, deviation, not_judged
from fabric_health.checks.elastic_training.run_rules import ending_findings, readable_findings, run_findings
from fabric_health.checks.elastic_training.settings import Asked, asked, image_of
from fabric_health.checks.elastic_training.tables import ElasticEvent, ElasticNodeCheck, ElasticRecovery, ElasticRun
from fabric_health.datasets.tables import Finding, FindingKind, Severity
from fabric_health.evidence import ReachStatus
from fabric_health.site import Site

_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}\Z")
# Tags that are moved with each build.
_MOVING = frozenset({"latest", "master", "main", "dev", "nightly", "edge"})
# What explains that a launch did not end well, where it is found.
_CAUSES = ("dlrover_in_play", "node_check_passes", "training_resumes", "no_stall", "restarts_within_limit")


def judge(rows: RowSet, context: Context) -> list[Finding]:
    """Return the findings of a run, by itself: times of recovery have limits, and get no verdict against earlier runs.

    Raises SiteError for settings that cannot be used.
    """
    if CHECK not in context.site.checks:
        return []  # a site that does not name the check has none
    wanted = asked(context.site)
    runs = {r.launch: r for r in sorted(rows.of(ElasticRun), key=lambda r: r.launch)}
    events, survived = rows.of(ElasticEvent), rows.of(ElasticRecovery)
    answered = {name for name, ref in context.reach.items() if ref.status is ReachStatus.OK}
    found = [*_launched(context, wanted), *_image(context.site, wanted)]
    found += readable_findings(list(runs.values()), answered)
    found += node_findings(runs, rows.of(ElasticNodeCheck), events, wanted, context.site)
    found += recovery_findings(runs, survived, wanted)
    for name, run in runs.items():
        own = [r for r in survived if r.launch == name]
        found += run_findings(run, [e for e in events if e.launch == name], own, wanted)
    because = _causes(found)
    for name, run in runs.items():
        found += ending_findings(run, [r for r in survived if r.launch == name], wanted, because)
    return _once(found)


def _causes(found: list[Finding]) -> dict[str, str]:
    """Return by launch the finding that explains a bad end, the most telling first."""
    out: dict[str, str] = {}
    for rule in _CAUSES:
        for f in found:
            if f.rule == rule and f.kind == FindingKind.DEVIATION and f.evidence_unit:
                out.setdefault(f.evidence_unit, f.finding)
    return out


def _once(found: list[Finding]) -> list[Finding]:
    """Return each finding once: what several launches show alike is told of the first, the worst kind of it first."""
    kept: dict[str, Finding] = {}
    for f in found:
        other = kept.get(f.finding)
        if other is None or (other.kind == FindingKind.NOT_JUDGED and f.kind == FindingKind.DEVIATION):
            kept[f.finding] = f
    return list(kept.values())


def _launched(context: Context, wanted: Asked) -> Iterator[Finding]:
    if any(isinstance(u, Launch) for u in context.scope):
        return
    yield not_judged(
        "training_launched",
        "launches",
        f"Elastic training was not launched: it needs {wanted.workers} nodes of one SKU in scope that the audits "
        "found fit, and there are fewer",
        action="See which nodes were left out and why; take more nodes into scope.",
        launch=None,
    )


def _image(site: Site, wanted: Asked) -> Iterator[Finding]:
    image = image_of(site, TOOL)
    if wanted.backend == "local" or image is None or _DIGEST.search(image):
        return
    _, _, tag = image.rpartition("/")[2].partition(":")
    moving = not tag or tag in _MOVING
    yield deviation(
        "image_pinned",
        "image",
        Severity.WARNING if moving else Severity.INFO,
        f"The image of training is {image}: "
        + ("what it holds changes without notice" if moving else "a tag can be moved, a digest cannot"),
        expected="registry/name@sha256:...",
        actual=image,
        action=f"Set jobs.kubernetes.images.{TOOL} by digest; results of different images are not compared.",
        source=SITE_FILE,
        launch=None,
    )
