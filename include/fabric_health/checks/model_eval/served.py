"""One launch of a server to rows: was it the server that was asked for, then its speed and its answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fabric_health.checks.model_eval.asked import Serve
from fabric_health.checks.model_eval.comparability import Served
from fabric_health.checks.model_eval.launches import METRICS_FILE, SERVER_FILE
from fabric_health.checks.model_eval.outcome import Outcome
from fabric_health.checks.model_eval.parsers.reports import Metrics, Server, read_metrics, read_server
from fabric_health.checks.model_eval.quality_rows import answer_rows, embedding_rows, item_rows, window_rows
from fabric_health.checks.model_eval.schemes import BASE
from fabric_health.checks.model_eval.serving_rows import Load, serving_rows
from fabric_health.checks.model_eval.settings import NO_PREFIX_CACHE
from fabric_health.checks.model_eval.tables import ModelServer
from fabric_health.evidence import CommandResult


@dataclass(frozen=True)
class _Seen:
    """The server's report, its counters, and what its rows' keys have in common."""

    server: Server
    metrics: Metrics
    keys: Served
    weights: str


def read_serve(want: Serve, node: str | None, job: CommandResult | None, out: Outcome) -> None:
    """Add the rows of a launch that served a form of a model."""
    file = out.file(SERVER_FILE)
    report = read_server(file.stdout) if file else None
    if report is None:
        what = f"{SERVER_FILE} is no report of its program" if file else out.why_missing(SERVER_FILE)
        code = f"; it ended with exit code {job.exit_code}" if job is not None and job.exit_code else ""
        out.broken("report_readable", f"{what}{code}")
        out.rows.append(ModelServer(out.launch, out.unit, node=node, problem=out.first_problem()))
        return
    scrape = out.file(METRICS_FILE)
    metrics = read_metrics(scrape.stdout) if scrape else None
    _server_as_asked(want, report, job, out)
    _ends(report, out)
    keys = Served(want.model, _revision(want, report), want.scheme, report.version, report.device, want.started_with)
    seen = _Seen(report, metrics or Metrics(), keys, report.weights_sha256 or "")
    out.rows.append(_row(want, seen, node, out))
    if out.first_problem() is not None:
        return
    if metrics is None:
        what = "is no scrape of a vLLM server" if scrape else "was not written"
        out.broken("metrics_readable", f"{METRICS_FILE} {what}", subject=METRICS_FILE, refuses=False)
    cached = _caching(want, seen, out)
    load = Load(want, keys, metrics.requests if metrics else None, cached)
    out.rows += serving_rows(load, job.stdout if job else "", out)
    if want.kind == "embed":
        out.rows += embedding_rows(keys, seen.weights, out)
        return
    if want.tasks:
        out.rows += item_rows(want, keys, out)
    if want.windows:
        out.rows += window_rows(want, keys, report.version, out)
    out.rows += answer_rows(want, keys, seen.weights, out)


def _revision(want: Serve, report: Server) -> str | None:
    """Return the hash of the weights that all forms of the model come from."""
    return report.weights_sha256 if want.scheme == BASE else report.source_sha256


def _server_as_asked(want: Serve, report: Server, job: CommandResult | None, out: Outcome) -> None:
    # First: what changed on disk may be why nothing is served.
    if report.weights_sha256 and report.manifest_sha256 and report.manifest_sha256 != report.weights_sha256:
        out.broken(
            "weights_intact",
            "the weight files are not those that were written into the folder",
            expected=report.manifest_sha256[:12],
            actual=report.weights_sha256[:12],
        )
    if not report.served:
        failed_step = next((s.problem for s in report.steps if s.exit_code != 0 and s.problem), "")
        out.broken("server_starts", report.problem or failed_step or "the server lists no model")
        return
    if report.asked != want.unit or report.served != (want.unit,):
        out.broken(
            "served_as_asked",
            "the server lists another model than the one that was asked for",
            expected=want.unit,
            actual=", ".join(report.served),
        )
    elif report.problem:
        out.broken("launch_completes", report.problem)
    if report.weights_sha256 is None:
        out.broken("report_readable", f"{SERVER_FILE} has no hash of the weights that were served")
    failed = job is not None and job.exit_code not in (0, None)
    if failed and not any(_went_wrong(report)):
        out.broken("launch_completes", f"it ended with exit code {job.exit_code if job else None}", refuses=False)


def _went_wrong(report: Server) -> Iterator[bool]:
    yield from (step.exit_code != 0 or bool(step.problem) for step in report.steps)
    yield bool(report.left)


def _ends(report: Server, out: Outcome) -> None:
    for step in report.steps:
        if step.exit_code != 0 or step.problem:
            how = step.problem or (
                f"exit code {step.exit_code}" if step.exit_code is not None else "it did not end by itself"
            )
            out.broken("steps_complete", f"step {step.name}: {how}", subject=step.name, refuses=False)
    if report.left:
        out.broken(
            "server_leaves_nothing",
            f"{len(report.left)} processes were alive after the server was stopped: {report.left[0]}",
            refuses=False,
            expected="none",
            actual=str(len(report.left)),
        )


def _caching(want: Serve, seen: _Seen, out: Outcome) -> str | None:
    """Say why speeds would be those of a cache, None where they are not."""
    hits = seen.metrics.prefix_cache_hits
    if hits:
        detail = f"the server took {hits} tokens from its prefix cache"
    elif want.caches_prefixes or NO_PREFIX_CACHE not in (*seen.server.flags, *seen.server.argv):
        detail = f"the server ran without {NO_PREFIX_CACHE}"
    else:
        return None
    return out.broken(
        "prefix_caching_off",
        detail,
        subject="serving",
        expected="no token from a cache",
        actual="unknown" if hits is None else str(hits),
    )


def _row(want: Serve, seen: _Seen, node: str | None, out: Outcome) -> ModelServer:
    server = seen.server
    return ModelServer(
        launch=out.launch,
        unit=want.unit,
        served=", ".join(server.served) or None,
        weights_sha256=server.weights_sha256,
        version=server.version,
        flags=" ".join(server.flags)[:2000] or None,
        device=server.device,
        node=node,
        start_s=server.start_s,
        stop_s=server.stop_s,
        peak_memory_mib=server.peak_memory_mib,
        requests=seen.metrics.requests,
        prefix_cache_hits=seen.metrics.prefix_cache_hits,
        comparability=seen.keys.key(),
        problem=out.first_problem(),
    )
