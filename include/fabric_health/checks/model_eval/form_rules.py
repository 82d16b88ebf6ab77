"""Rules on forms of models within one run: made of the right weights, in the scheme's format and size, served so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median

from fabric_health.checks.check import RowSet
from fabric_health.checks.model_eval.rules import COMPRESSOR, SITE_FILE, deviation, named, not_judged
from fabric_health.checks.model_eval.schemes import BASE, SCHEMES, model_of, scheme_of
from fabric_health.checks.model_eval.settings import Settings
from fabric_health.checks.model_eval.tables import ModelBuild, ModelServer, ModelServing, Quantization
from fabric_health.datasets.tables import Finding, Severity

METHOD = "compressed-tensors"
_SHOWN = 12
# Share by which a form may be slower than its base and count as fast: launches vary by some per cent.
SLOWER = 0.05


def form_findings(rows: RowSet, wanted: Settings) -> Iterator[Finding]:
    """Yield the findings on every form."""
    made = [r for r in rows.of(Quantization) if r.problem is None]
    bases = _bases(rows, wanted)
    for row in made:
        yield from _source(row, bases)
        yield from _format(row)
        yield from _size(row, wanted)
    written = {r.unit: r.weights_sha256 for r in made if r.weights_sha256} | bases
    yield from _served(rows.of(ModelServer), written, wanted)
    yield from _speed(rows.of(ModelServing), rows.of(ModelServer))


def _bases(rows: RowSet, wanted: Settings) -> dict[str, str]:
    """Return the hash that each base is known by: the site's, or that of this run's preparing."""
    known = {r.unit: r.weights_sha256 for r in rows.of(ModelBuild) if r.problem is None and r.weights_sha256}
    return known | {m.name: m.revision for m in wanted.models if m.revision is not None}


def _source(row: Quantization, bases: dict[str, str]) -> Iterator[Finding]:
    base = bases.get(row.model)
    if base is None or row.source_sha256 == base:
        return
    yield deviation(
        "quantised_from_source",
        row.unit,
        "source_sha256",
        Severity.CRITICAL,
        f"{row.unit} was quantised from other weights than those of {row.model}",
        expected=base[:_SHOWN],
        actual=(row.source_sha256 or "unknown")[:_SHOWN],
        action="Find out what changed the model's folder; its results are of another model.",
        source="ours: all forms of a model have one source",
        launch=row.launch,
    )


def _format(row: Quantization) -> Iterator[Finding]:
    scheme = next((s for name, s in SCHEMES.items() if name == row.scheme), None)
    if scheme is None or (row.format == scheme.format and row.quant_method == METHOD):
        return
    yield deviation(
        "format_as_scheme",
        row.unit,
        "format",
        Severity.CRITICAL,
        f"{row.unit} was written as {row.format or 'nothing that is known'} ({row.quant_method or 'no method'})",
        expected=f"{scheme.format} ({METHOD})",
        actual=f"{row.format or 'unknown'} ({row.quant_method or 'unknown'})",
        action="See the recipe and the versions; a model that was saved unquantised is served without complaint.",
        source=COMPRESSOR,
        launch=row.launch,
    )


def _size(row: Quantization, wanted: Settings) -> Iterator[Finding]:
    model = wanted.model(row.unit)
    if model is None or row.size_ratio is None or row.scheme not in SCHEMES:
        return
    gate = model.gate(next(name for name in SCHEMES if name == row.scheme))
    if gate.size_min <= row.size_ratio <= gate.size_max:
        return
    yield deviation(
        "size_as_expected",
        row.unit,
        "size_ratio",
        Severity.WARNING,
        f"The weights of {row.unit} have {100 * row.size_ratio:.0f} % of the size of its base",
        expected=f"{100 * gate.size_min:.0f} to {100 * gate.size_max:.0f} %",
        actual=f"{100 * row.size_ratio:.0f} %",
        action=f"See which layers were quantised; if the size is right for this model, set gates.{row.scheme}.",
        source=SITE_FILE,
        launch=row.launch,
    )


def _served(servers: Sequence[ModelServer], written: dict[str, str], wanted: Settings) -> Iterator[Finding]:
    """Hold the weights of every server against those that this run wrote, or that the site pins."""
    by_unit: dict[str, list[ModelServer]] = defaultdict(list)
    for row in sorted(servers, key=lambda r: r.launch):
        if row.problem is None and row.weights_sha256 is not None:
            by_unit[row.unit].append(row)
    pinned = {m.name for m in wanted.models if m.revision is not None}
    for unit, rows in by_unit.items():
        expected = written.get(unit)
        if expected is None and scheme_of(unit) != BASE:
            yield not_judged(
                "weights_as_written",
                unit,
                "weights_sha256",
                f"{unit} was served, and no launch of this run wrote its weights: they may be those of an earlier run",
                action="Find out why quantising gave no result; until then nothing is known of these weights.",
            )
            continue
        other = [r for r in rows if expected is not None and r.weights_sha256 != expected]
        if not other or expected is None:
            yield from _changing(unit, rows if expected is None else [])
            continue
        where = "pinned in the site file" if unit in pinned else "written in this run"
        yield deviation(
            "revision_as_pinned" if unit in pinned else "weights_as_written",
            unit,
            "weights_sha256",
            Severity.CRITICAL,
            f"The weights of {unit} that were served are not those {where}, in {named([r.launch for r in other])}",
            expected=expected[:_SHOWN],
            actual=(other[0].weights_sha256 or "")[:_SHOWN],
            action="If nobody replaced the model, take storage and memory of the node to be corrupting data.",
            source="ours: weights are read as they were written",
            launch=other[0].launch,
        )


def _changing(unit: str, rows: Sequence[ModelServer]) -> Iterator[Finding]:
    """A model whose weights nothing is known of must at least be the same in all launches of the run."""
    hashes = sorted({r.weights_sha256 for r in rows if r.weights_sha256})
    if len(hashes) < 2:
        return
    yield deviation(
        "weights_as_written",
        unit,
        "weights_sha256",
        Severity.CRITICAL,
        f"The weights of {unit} were not the same in all launches of the run",
        expected="one hash",
        actual=", ".join(h[:_SHOWN] for h in hashes[:4]),
        action="If nobody replaced the model, take storage and memory of the node to be corrupting data.",
        source="ours: weights are read as they were written",
        launch=rows[0].launch,
    )


def _speed(rows: Sequence[ModelServing], servers: Sequence[ModelServer]) -> Iterator[Finding]:
    """On a GPU a quantised form is there to be faster, or at least no slower. CPUs have few kernels for it."""
    on_cpu = {s.launch for s in servers if s.device is None or s.device.lower().startswith("cpu")}
    rates: dict[tuple[str, str, int], list[ModelServing]] = defaultdict(list)
    for row in rows:
        if row.problem is None and row.output_tokens_per_s and row.launch not in on_cpu:
            rates[row.unit, row.client, row.concurrency].append(row)
    for (unit, client, concurrency), held in sorted(rates.items()):
        base = rates.get((model_of(unit), client, concurrency))
        if scheme_of(unit) == BASE or not base:
            continue
        now, then = (median(r.output_tokens_per_s or 0.0 for r in part) for part in (held, base))
        if now >= (1 - SLOWER) * then:
            continue
        yield deviation(
            "no_slower_than_base",
            unit,
            f"output_tokens_per_s.c{concurrency}.{client.replace(' ', '-')}",
            Severity.INFO,
            f"{unit} generates {now:.0f} tokens/s at concurrency {concurrency}, its base {then:.0f}",
            expected=f">= {(1 - SLOWER) * then:.0f} tokens/s",
            actual=f"{now:.0f} tokens/s",
            action="See in server.log which kernels it chose; a scheme without kernels for the GPU is emulated.",
            source="ours: what is not faster need not be quantised",
            launch=held[0].launch,
        )
