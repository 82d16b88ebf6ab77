"""One launch's evidence to rows: what it gave, what was wrong with it, and its numbers where these can be used."""

from __future__ import annotations

from fabric_health.checks.check import Launch, Unit
from fabric_health.checks.model_eval.asked import Prepare, Quantise, asked
from fabric_health.checks.model_eval.launches import MODEL_FILE, QUANTISE_FILE
from fabric_health.checks.model_eval.outcome import Outcome
from fabric_health.checks.model_eval.parsers.reports import Quantised, read_model, read_quantise
from fabric_health.checks.model_eval.served import read_serve
from fabric_health.checks.model_eval.tables import ModelBuild, ModelLaunchProblem, Quantization
from fabric_health.datasets.contracts import Row
from fabric_health.evidence import CommandResult, CommandStatus, UnitEvidence
from fabric_health.site import Site

_ENDED = frozenset({CommandStatus.EXITED, CommandStatus.TRUNCATED})


def parse(unit: Unit, evidence: UnitEvidence, site: Site) -> list[Row]:
    """Return the rows of one launch. Never raises for anything that a job wrote."""
    if not isinstance(unit, Launch):
        return []
    named = unit.units[0] if unit.units else unit.name
    try:
        want = asked(unit)
    except ValueError as error:
        return [ModelLaunchProblem(unit.name, named, "launch_known", "launch", True, str(error)[:300])]
    out = Outcome(unit.name, want.unit, evidence)
    job = evidence.result("job")
    # Its results are in files: output that was cut loses none of them.
    if job is None or job.status not in _ENDED:
        how = "it gave no output" if job is None else f"it did not end by itself ({job.status.value})"
        out.broken("launch_completes", f"{how} {evidence.detail}".strip())
    if isinstance(want, Prepare):
        _prepared(want, job, out)
    elif isinstance(want, Quantise):
        _quantised(want, job, out)
    else:
        node = unit.spec.nodes[0] if unit.spec.nodes else None
        read_serve(want, node, job, out)
    return out.all_rows()


def _prepared(want: Prepare, job: CommandResult | None, out: Outcome) -> None:
    file = out.file(MODEL_FILE)
    report = read_model(file.stdout) if file else None
    if report is None:
        out.broken("report_readable", _unreadable(MODEL_FILE, job, out))
        out.rows.append(ModelBuild(out.launch, out.unit, problem=out.first_problem()))
        return
    if report.problem or report.weights_sha256 is None or _failed(job):
        out.broken("model_prepared", report.problem or _exit(job) or "its report has no hash of weights")
    elif report.steps != want.steps:
        out.broken(
            "model_prepared",
            "it was trained by another recipe than asked for",
            expected=f"{want.steps} steps",
            actual=f"{report.steps} steps",
        )
    out.rows.append(
        ModelBuild(
            launch=out.launch,
            unit=out.unit,
            cached=report.cached,
            recipe_sha256=report.recipe_sha256,
            weights_sha256=report.weights_sha256,
            parameters=report.parameters,
            bytes=report.bytes,
            duration_s=report.duration_s,
            steps=report.steps,
            loss_first=report.loss_first,
            loss_last=report.loss_last,
            perplexity=report.perplexity,
            peak_memory_mib=report.peak_memory_mib,
            corpus=report.corpus,
            corpus_sha256=report.corpus_sha256,
            tool_version=report.versions,
            problem=out.first_problem(),
        )
    )


def _quantised(want: Quantise, job: CommandResult | None, out: Outcome) -> None:
    file = out.file(QUANTISE_FILE)
    report = read_quantise(file.stdout) if file else None
    if report is None:
        out.broken("report_readable", _unreadable(QUANTISE_FILE, job, out))
        problem = out.first_problem()
        out.rows.append(Quantization(out.launch, want.model, want.scheme, want.unit, problem=problem))
        return
    if report.problem or report.weights_sha256 is None or not report.bytes or _failed(job):
        out.broken("model_quantised", report.problem or _exit(job) or "its report has no weights")
    else:
        _as_asked(want, report, out)
    ratio = report.bytes / report.source_bytes if report.bytes and report.source_bytes else None
    out.rows.append(
        Quantization(
            launch=out.launch,
            model=want.model,
            scheme=want.scheme,
            unit=want.unit,
            source_sha256=report.source_sha256,
            weights_sha256=report.weights_sha256,
            bytes=report.bytes,
            source_bytes=report.source_bytes,
            size_ratio=ratio,
            format=report.format,
            quant_method=report.quant_method,
            recipe=report.recipe,
            recipe_sha256=report.recipe_sha256,
            calibration_sha256=report.calibration_sha256,
            calibration_samples=report.calibration_samples,
            calibration_max_length=report.calibration_max_length,
            seed=report.seed,
            load_s=report.load_s,
            quantise_s=report.quantise_s,
            save_s=report.save_s,
            duration_s=report.duration_s,
            peak_memory_mib=report.peak_memory_mib,
            device=report.device,
            tool_version=report.versions,
            problem=out.first_problem(),
        )
    )


def _as_asked(want: Quantise, found: Quantised, out: Outcome) -> None:
    """Hold scheme and calibration against what was asked: other samples are another recipe."""
    pairs: list[tuple[str, object, object]] = [("scheme", want.scheme, found.scheme)]
    if want.samples:
        pairs += [
            ("samples", want.samples, found.calibration_samples),
            ("max_length", want.max_length, found.calibration_max_length),
            ("seed", want.seed, found.seed),
        ]
    odd = [(name, asked, got) for name, asked, got in pairs if asked != got]
    if odd:
        out.broken(
            "quantised_as_asked",
            f"it was quantised with another {' and '.join(n for n, _, _ in odd)} than asked for",
            expected=", ".join(f"{n} {a}" for n, a, _ in odd),
            actual=", ".join(f"{n} {'unknown' if g is None else g}" for n, _, g in odd),
        )


def _failed(job: CommandResult | None) -> bool:
    return job is not None and job.exit_code not in (0, None)


def _exit(job: CommandResult | None) -> str:
    return f"it ended with exit code {job.exit_code}" if job is not None and _failed(job) else ""


def _unreadable(file: str, job: CommandResult | None, out: Outcome) -> str:
    """Say why there is no report, with the last line that the job printed."""
    what = f"{file} is no report of its program" if out.file(file) else out.why_missing(file)
    output = "" if job is None else (job.stderr.strip() or job.stdout)
    last = next((line.strip() for line in reversed(output[-20_000:].splitlines()) if line.strip()), "")
    code = f"; {_exit(job)}" if _failed(job) else ""
    return f"{what}{code}" + (f": {last[:160]}" if last and _failed(job) else "")
