"""Differences between two normalised configs of one switch."""

from __future__ import annotations

import json

from fabric_health.checks.switch_config import drift_lines, drift_tree, remediation
from fabric_health.checks.switch_config.difference import ORDER, Change, Difference
from fabric_health.site import Platform

# A switch that differs in more lines has another config; commands for each would help nobody and cost seconds.
MAX_REMEDIATIONS = 2000

__all__ = ["Change", "Difference", "drift"]


def drift(platform: Platform, reference: str, running: str) -> list[Difference]:
    """Return how ``running`` differs from ``reference``, both as :func:`normalise` returns them (its ``config``).

    Equal configs give an empty list; every difference has a path that is unique within its change. Raises ValueError
    when a text is not the normalised form of its platform.
    """
    if reference == running:
        return []
    if platform in ("cumulus", "sonic"):
        return _tree_drift(platform, reference, running)
    before = drift_lines.Config(platform, reference)
    found = drift_lines.compare(platform, before, drift_lines.Config(platform, running))
    return [
        remediation.for_lines(platform, d, before.block(d.parents) if d.path.endswith(ORDER) else [])
        for d in found[:MAX_REMEDIATIONS]
    ] + found[MAX_REMEDIATIONS:]


def _tree_drift(platform: Platform, reference: str, running: str) -> list[Difference]:
    written = json.loads(reference)
    found = drift_tree.compare(platform, drift_tree.load(platform, reference), drift_tree.load(platform, running))
    old_spelling = platform == "cumulus" and remediation.uses_enable(running)
    return [
        remediation.for_tree(platform, d, written, old_spelling=old_spelling) for d in found[:MAX_REMEDIATIONS]
    ] + found[MAX_REMEDIATIONS:]
