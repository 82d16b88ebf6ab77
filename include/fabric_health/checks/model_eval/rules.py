"""How broken rules of launches are told, and how this check makes a finding."""

from __future__ import annotations

from dataclasses import dataclass

from fabric_health.checks.untrusted import clip
from fabric_health.datasets.tables import Finding, FindingKind, Severity, finding

CHECK, KIND = "model_eval", "model"
SITE_FILE = "site file"
VLLM_BENCH = "https://docs.vllm.ai/en/latest/benchmarking/cli/"
COMPRESSOR = "https://github.com/vllm-project/llm-compressor"
HARNESS = "https://github.com/EleutherAI/lm-evaluation-harness"
_NOT, _DEVIATION = FindingKind.NOT_JUDGED, FindingKind.DEVIATION
_CRITICAL, _WARNING, _INFO = Severity.CRITICAL, Severity.WARNING, Severity.INFO


@dataclass(frozen=True)
class Rule:
    """How a broken rule of a launch is told. ``cause``: rules whose finding on the same unit explains this one's."""

    severity: Severity
    kind: FindingKind
    action: str
    source: str = SITE_FILE
    causes: tuple[str, ...] = ()


_LOG = "Read server.log in the launch's evidence."
RULES: dict[str, Rule] = {
    "launch_known": Rule(_CRITICAL, _NOT, "Plan the run again with this version."),
    "launch_completes": Rule(_CRITICAL, _NOT, "Read the end of the job's output."),
    "report_readable": Rule(
        _CRITICAL, _NOT, "Read the end of the job's output; the program ended before it wrote its report.",
        causes=("launch_completes",),
    ),
    "model_prepared": Rule(
        _CRITICAL, _NOT, "Read the job's output; without the model nothing is quantised or served.",
        causes=("launch_completes",),
    ),
    "model_quantised": Rule(
        _CRITICAL, _NOT, "Read the job's output: often memory, or a layer that the recipe cannot take.", COMPRESSOR,
        causes=("launch_completes",),
    ),
    "quantised_as_asked": Rule(
        _CRITICAL, _NOT, "See that the calibration file has as many samples as the site file asks for.", COMPRESSOR
    ),
    "server_starts": Rule(
        _CRITICAL, _NOT, _LOG + " Often the device's memory, a scheme without kernels for it, or a flag.",
        causes=("weights_intact", "launch_completes"),
    ),
    "served_as_asked": Rule(
        _CRITICAL, _DEVIATION, "Find out which server answered: another one on the port, or a wrapper that starts it."
    ),
    "weights_intact": Rule(
        _CRITICAL, _DEVIATION,
        "Take the storage under the models folder and the memory of the node to be corrupting data until they are "
        "tested; quantise again and compare the hashes.",
        "ours: weights are read as they were written",
    ),
    "prefix_caching_off": Rule(
        _WARNING, _NOT, "See which flags the server was started with; a warm cache's speed is not the model's.",
        VLLM_BENCH,
    ),
    "steps_complete": Rule(
        _WARNING, _NOT, "Read the step's part of the output. " + _LOG, causes=("server_starts", "launch_completes")
    ),
    "result_written": Rule(
        _WARNING, _NOT, "Read the output of the step that should have written it.",
        causes=("steps_complete", "launch_completes"),
    ),
    "result_readable": Rule(
        _WARNING, _NOT, "See the file in the evidence; the tool may be of a release that is not known yet.",
        causes=("steps_complete",),
    ),
    "requests_complete": Rule(
        _CRITICAL, _DEVIATION, _LOG + " The client ends with exit code 0 whatever the server answers.", VLLM_BENCH
    ),
    "load_as_asked": Rule(_WARNING, _NOT, "See which load the client ran; other loads are not comparable.", VLLM_BENCH),
    "arithmetic_holds": Rule(
        _WARNING, _NOT, "See the result in the evidence: rates that do not follow from its counts are of other fields.",
        VLLM_BENCH,
    ),
    "requests_counted": Rule(
        _WARNING, _DEVIATION, "Find out which server answered the client: this one counted fewer requests.", VLLM_BENCH
    ),
    "items_complete": Rule(
        _WARNING, _NOT, "See how many items the task or text has, and ask for no more.", HARNESS,
        causes=("steps_complete",),
    ),
    "items_match_result": Rule(
        _WARNING, _NOT, "See both files in the evidence: one may be of another evaluation.", HARNESS
    ),
    "metrics_readable": Rule(
        _WARNING, _NOT, "See that the server exposes /metrics; without it a prefix cache at work goes unseen.",
        "https://docs.vllm.ai/en/latest/usage/metrics/",
    ),
    "server_leaves_nothing": Rule(
        _WARNING, _DEVIATION, "End what is left by hand: it holds memory of the device that the next launch needs."
    ),
}  # fmt: skip


def deviation(
    rule: str,
    unit: str,
    metric: str,
    severity: Severity,
    summary: str,
    *,
    expected: str,
    actual: str,
    action: str,
    source: str,
    launch: str | None = None,
) -> Finding:
    """Make a finding of this check on a form of a model; ``launch`` has the evidence."""
    return finding(
        check=CHECK,
        rule=rule,
        unit=unit,
        unit_kind=KIND,
        metric=metric,
        severity=severity,
        summary=clip(summary, 500),
        expected=clip(expected),
        actual=clip(actual),
        action=action,
        source=source,
        command="job",
        evidence_unit=launch,
    )


def not_judged(
    rule: str,
    unit: str,
    metric: str,
    summary: str,
    *,
    action: str,
    severity: Severity = Severity.WARNING,
    explained_by: str | None = None,
) -> Finding:
    """Make the finding that something could not be judged, which is never a pass."""
    return finding(
        check=CHECK,
        rule=rule,
        unit=unit,
        unit_kind=KIND,
        metric=metric,
        severity=severity,
        kind=FindingKind.NOT_JUDGED,
        summary=clip(summary, 500),
        action=action,
        source=SITE_FILE,
        explained_by=explained_by,
    )


def named(names: list[str], most: int = 4) -> str:
    """Return names for a sentence, cut after ``most``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
