"""Reads ``job.json``: what the program that runs agents on one machine says of the whole launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fabric_health.checks.elastic_training.parsers.numbers import count, document, number, text
from fabric_health.checks.untrusted import clip

PROGRAM = "elastic_smoke"
MAX_TEXT = 1 << 20
MAX_NAMED = 200


@dataclass(frozen=True)
class JobReport:
    """``left`` are command lines, files and ports that were still there after the launch; ``stalled`` that it hung."""

    versions: Mapping[str, str] = field(default_factory=dict)
    left: tuple[str, ...] = ()
    agents: int | None = None
    min_agents: int | None = None
    checkpoint_every: int | None = None
    max_restarts: int | None = None
    stalled: bool = False
    peak_memory_mib: float | None = None
    problem: str = ""


def read_job_report(body: str) -> JobReport | None:
    """Return the report, None when the text is none. Never raises."""
    said = document(body) if len(body) <= MAX_TEXT else None
    if said is None or said.get("program") != PROGRAM:
        return None
    codes, versions, left = said.get("exit_codes"), said.get("versions"), said.get("left")
    if not isinstance(codes, dict) or not isinstance(left, list):
        return None
    # Null stands for a process that the program itself had to end.
    if not all(v is None or (isinstance(v, int) and not isinstance(v, bool)) for v in codes.values()):
        return None
    memory = number(said.get("peak_memory_mib"))
    return JobReport(
        versions=_versions(versions),
        left=tuple(clip(str(item), 200) for item in left[:MAX_NAMED]),
        agents=count(said.get("agents")),
        min_agents=count(said.get("min_agents")),
        checkpoint_every=count(said.get("checkpoint_every")),
        max_restarts=count(said.get("max_restarts")),
        stalled=said.get("stalled") is not None,
        peak_memory_mib=memory if memory is not None and memory >= 0 else None,
        problem=clip(text(said.get("problem")) or ""),
    )


def _versions(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    named = sorted((k, v) for k, v in value.items() if isinstance(v, str))
    return {clip(k, 40): clip(v, 60) for k, v in named[:20]}
