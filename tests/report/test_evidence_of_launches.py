"""A benchmark's finding is on a node or a rail; its evidence is what a launch said."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fabric_health.datasets.tables import Severity, finding
from fabric_health.report import page


def test_a_finding_of_a_benchmark_leads_to_the_evidence_of_its_launch() -> None:
    f = finding(
        check="collectives",
        rule="slow",
        unit="gpu-001",
        unit_kind="node",
        metric="busbw",
        severity=Severity.WARNING,
        summary="gpu-001 is slow",
        command="job",
        evidence_unit="lab-all-reduce-1",
    )
    shown = SimpleNamespace(check="collectives", unit="lab-all-reduce-1", results=(SimpleNamespace(name="job"),))
    data: Any = SimpleNamespace(evidence_shown=(shown,))
    assert page._evidence_links(data)(f) == "evidence/collectives/lab-all-reduce-1.html#c-job"
