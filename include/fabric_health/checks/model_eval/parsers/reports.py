"""Reports of the programs that prepare, quantise and serve, and the metrics that a server exposes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fabric_health.checks.model_eval.parsers.reading import document, sha256, text, texts, versions
from fabric_health.checks.untrusted import clip, count, listing, mapping, number

_MAX_LINES = 200_000
_SAMPLE = re.compile(r"([A-Za-z_:][\w:]{0,200})(\{[^{}]{0,2000}\})?[ \t]+(\S{1,40})(?:[ \t]+-?\d{1,20})?")


@dataclass(frozen=True)
class Built:
    """What preparing the built-in model gave. ``problem`` is the program's own."""

    cached: bool | None
    recipe_sha256: str | None
    weights_sha256: str | None
    parameters: int | None
    bytes: int | None
    duration_s: float | None
    steps: int | None
    loss_first: float | None
    loss_last: float | None
    perplexity: float | None
    peak_memory_mib: float | None
    corpus: str | None
    corpus_sha256: str | None
    versions: str | None
    problem: str | None


@dataclass(frozen=True)
class Quantised:
    """What quantising gave. ``recipe`` is JSON with sorted keys; its hash is of that text."""

    scheme: str | None
    recipe: str | None
    recipe_sha256: str | None
    source_sha256: str | None
    source_bytes: int | None
    weights_sha256: str | None
    bytes: int | None
    format: str | None
    quant_method: str | None
    calibration_sha256: str | None
    calibration_samples: int | None
    calibration_max_length: int | None
    seed: int | None
    load_s: float | None
    quantise_s: float | None
    save_s: float | None
    duration_s: float | None
    peak_memory_mib: float | None
    device: str | None
    versions: str | None
    problem: str | None


@dataclass(frozen=True)
class StepEnd:
    """How one step beside the server ended. ``exit_code`` None: it did not end by itself."""

    name: str
    exit_code: int | None
    problem: str


@dataclass(frozen=True)
class Server:
    """What the program that started the server says. ``manifest_*`` are of the folder that was served."""

    asked: str | None
    served: tuple[str, ...]
    weights_sha256: str | None
    version: str | None
    flags: tuple[str, ...]
    argv: tuple[str, ...]
    device: str | None
    start_s: float | None
    stop_s: float | None
    peak_memory_mib: float | None
    left: tuple[str, ...]
    steps: tuple[StepEnd, ...]
    manifest_sha256: str | None
    source_sha256: str | None
    problem: str | None


def read_model(report: str) -> Built | None:
    """Read ``model.json``; None when it is no such report."""
    d = _of_program(report, "tiny_model")
    if d is None:
        return None
    corpus = mapping(d.get("corpus"))
    about = ", ".join(t for k in ("source", "licence") if (t := text(corpus.get(k), 200)))
    return Built(
        cached=d["cached"] if isinstance(d.get("cached"), bool) else None,
        recipe_sha256=sha256(d.get("recipe_sha256")),
        weights_sha256=sha256(d.get("weights_sha256")),
        parameters=count(d.get("parameters")),
        bytes=count(d.get("bytes")),
        duration_s=number(d.get("duration_s")),
        steps=count(d.get("steps")),
        loss_first=number(d.get("loss_first")),
        loss_last=number(d.get("loss_last")),
        perplexity=number(d.get("perplexity")),
        peak_memory_mib=number(d.get("peak_memory_mib")),
        corpus=about or None,
        corpus_sha256=sha256(corpus.get("sha256")),
        versions=versions(d.get("versions")),
        problem=text(d.get("problem")),
    )


def read_quantise(report: str) -> Quantised | None:
    """Read ``quantise.json``; None when it is no such report."""
    d = _of_program(report, "quantise")
    if d is None:
        return None
    source, result, calibration = (mapping(d.get(k)) for k in ("source", "result", "calibration"))
    recipe = json.dumps(d["recipe"], sort_keys=True)[:20_000] if d.get("recipe") else None
    return Quantised(
        scheme=text(d.get("scheme"), 60),
        recipe=recipe,
        recipe_sha256=hashlib.sha256(recipe.encode()).hexdigest() if recipe else None,
        source_sha256=sha256(source.get("weights_sha256")),
        source_bytes=count(source.get("bytes")),
        weights_sha256=sha256(result.get("weights_sha256")),
        bytes=count(result.get("bytes")),
        format=text(result.get("format"), 60),
        quant_method=text(result.get("quant_method"), 60),
        calibration_sha256=sha256(calibration.get("sha256")),
        calibration_samples=count(calibration.get("samples")),
        calibration_max_length=count(calibration.get("max_length")),
        seed=count(calibration.get("seed")),
        load_s=number(d.get("load_s")),
        quantise_s=number(d.get("quantise_s")),
        save_s=number(d.get("save_s")),
        duration_s=number(d.get("duration_s")),
        peak_memory_mib=number(d.get("peak_memory_mib")),
        device=text(d.get("device"), 100),
        versions=versions(d.get("versions")),
        problem=text(d.get("problem")),
    )


def read_server(report: str) -> Server | None:
    """Read ``server.json``; None when it is no such report."""
    d = _of_program(report, "measure")
    if d is None or not isinstance(d.get("steps"), list) or not isinstance(d.get("left"), list):
        return None
    manifest = mapping(d.get("manifest"))
    # Of a folder that quantising wrote: what it was made of, and what came out.
    source = mapping(manifest.get("source")).get("weights_sha256")
    written = manifest.get("weights_sha256", mapping(manifest.get("result")).get("weights_sha256"))
    return Server(
        asked=text(d.get("asked"), 120),
        served=texts(d.get("served")),
        weights_sha256=sha256(d.get("weights_sha256")),
        version=text(d.get("version"), 60),
        flags=texts(d.get("flags")),
        argv=texts(d.get("argv")),
        device=text(d.get("device"), 100),
        start_s=number(d.get("start_s")),
        stop_s=number(d.get("stop_s")),
        peak_memory_mib=number(d.get("peak_memory_mib")),
        left=tuple(clip(str(x), 200) for x in d["left"][:50]),
        steps=tuple(_step(mapping(s)) for s in listing(d["steps"])[:200]),
        manifest_sha256=sha256(written),
        source_sha256=sha256(source),
        problem=text(d.get("problem")),
    )


def _step(raw: dict[str, Any]) -> StepEnd:
    code = raw.get("exit_code")
    whole = code if isinstance(code, int) and not isinstance(code, bool) and abs(code) < 1 << 31 else None
    return StepEnd(text(raw.get("name"), 60) or "unnamed", whole, text(raw.get("problem")) or "")


def _of_program(report: str, program: str) -> dict[str, Any] | None:
    d = document(report)
    return d if d is not None and d.get("program") == program else None


@dataclass(frozen=True)
class Metrics:
    """What a server counted. None where it does not expose the counter."""

    requests: int | None = None
    prefix_cache_hits: int | None = None


def read_metrics(scrape: str) -> Metrics | None:
    """Read a scrape in Prometheus' text format; None when it has no metric of a vLLM server."""
    totals: dict[str, float] = {}
    for name, value in _samples(scrape):
        totals[name] = totals.get(name, 0.0) + value
    if not totals:
        return None
    return Metrics(
        _total(totals, "request_success_total", "request_success"),
        _total(totals, *(f"{where}prefix_cache_hits{end}" for where in ("", "gpu_") for end in ("_total", ""))),
    )


def _samples(scrape: str) -> Iterator[tuple[str, float]]:
    """Yield the counters of the server by their name without its prefix; what is no number is passed over."""
    for at, line in enumerate(scrape.splitlines()):
        if at >= _MAX_LINES:
            return
        found = _SAMPLE.fullmatch(line.strip()) if line.startswith(("vllm:", "vllm_")) else None
        if found is None:
            continue
        try:
            value = number(float(found[3]))
        except ValueError:
            continue
        if value is not None:
            yield found[1][5:], value


def _total(totals: dict[str, float], *names: str) -> int | None:
    return next((count(totals[n]) for n in names if n in totals), None)
