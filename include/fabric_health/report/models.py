"""Models on the page: of every form its size, its quality beside the base's, and how fast it is served."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from fabric_health.checks.model_eval.tables import ModelQuality, ModelServing, Quantization
from fabric_health.datasets.verdict_tables import Verdict
from fabric_health.report import text
from fabric_health.report.data import ModelResults, ReportData

BASE = "base"
FORMS_SHOWN = 60
PERPLEXITY = "perplexity"
# Of several metrics of a task that one which says whether an item is right; the others follow it.
_LEADING = ("acc", "exact_match", "pass@1", "acc_norm")


@dataclass(frozen=True)
class Quality:
    """What a form reaches in a task. ``beside``: how it compares with its base in this run, None for a base itself."""

    task: str
    metric: str
    value: float
    stderr: float | None
    items: int | None
    beside: Verdict | None


@dataclass(frozen=True)
class Speed:
    """Serving at one concurrency: medians over launches. ``before``: of the latest earlier run that compares.

    ``tokens_per_s`` are generated; of a model that only gives vectors they are read.
    """

    concurrency: int
    client: str
    tokens_per_s: float
    ttft_p50_ms: float | None
    tpot_p50_ms: float | None
    launches: int
    before: float | None

    @property
    def change(self) -> float | None:
        """Change of the throughput, as a share of the earlier one."""
        return self.tokens_per_s / self.before - 1 if self.before else None


@dataclass(frozen=True)
class Form:
    """One form of a model: the base, or quantised by a scheme. Sizes of weight files in bytes, memory in MiB."""

    unit: str
    scheme: str
    bytes: int | None
    ratio: float | None
    quantised: Quantization | None
    start_s: float | None
    memory_mib: float | None
    quality: tuple[Quality, ...]
    speed: tuple[Speed, ...]

    @property
    def fastest(self) -> Speed | None:
        """Speed at the highest concurrency: what throughput is judged by."""
        return max(self.speed, key=lambda s: s.concurrency, default=None)

    def of(self, task: str) -> Quality | None:
        """Return the quality in a task, None where it was not evaluated."""
        return next((q for q in self.quality if q.task == task), None)


@dataclass(frozen=True)
class Model:
    """A model with its forms, the base first. ``about``: what it is, where the run says."""

    name: str
    about: str
    origins: tuple[str, ...]
    versions: tuple[str, ...]
    tasks: tuple[str, ...]
    forms: tuple[Form, ...]
    refused: tuple[tuple[str, str], ...]


def models(data: ReportData) -> tuple[Model, ...]:
    """Return what was measured of each model."""
    found = data.models
    if found is None:
        return ()
    beside = [r for r in data.verdict.rows if r.against == BASE] if data.verdict else []
    units = {r.unit for rows in (found.quantizations, found.servers, found.quality, found.serving) for r in rows}
    units |= {b.unit for b in found.builds}
    by_model: dict[str, list[str]] = {}
    for unit in sorted(units):
        by_model.setdefault(unit.partition("/")[0], []).append(unit)
    return tuple(_model(data, found, name, of, beside) for name, of in by_model.items())


def _model(data: ReportData, found: ModelResults, name: str, units: Sequence[str], beside: Sequence[Verdict]) -> Model:
    forms = tuple(_form(found, unit, beside) for unit in units[:FORMS_SHOWN])
    build = next((b for b in found.builds if b.unit == name and b.problem is None), None)
    about = ""
    if build is not None and build.parameters is not None:
        about = f"{build.parameters:,} parameters, trained here" + (f" on {build.corpus}" if build.corpus else "")
    launches = {s.launch for s in found.servers if s.unit in units} | {
        q.launch for q in found.quantizations if q.unit in units
    }
    return Model(
        name=name,
        about=about,
        origins=tuple(sorted({found.origins.get(n, data.key.origin) for n in launches})),
        versions=tuple(sorted({s.version for s in found.servers if s.unit in units and s.version})),
        tasks=tuple(dict.fromkeys(q.task for form in forms for q in form.quality)),
        forms=forms,
        refused=tuple((f"{p.launch}, {p.subject}", p.detail) for p in found.problems if p.unit in units and p.refuses),
    )


def _form(found: ModelResults, unit: str, beside: Sequence[Verdict]) -> Form:
    name, _, scheme = unit.partition("/")
    quantised = next((q for q in found.quantizations if q.unit == unit), None)
    size, ratio = (quantised.bytes, quantised.size_ratio) if quantised else _base_size(found, name)
    servers = [s for s in found.servers if s.unit == unit]
    return Form(
        unit=unit,
        scheme=scheme or BASE,
        bytes=size,
        ratio=ratio,
        quantised=quantised,
        start_s=text.median_of(s.start_s for s in servers),
        memory_mib=text.median_of(s.peak_memory_mib for s in servers),
        quality=_quality([q for q in found.quality if q.unit == unit], [v for v in beside if v.subject == unit]),
        speed=_speed(found, unit),
    )


def _base_size(found: ModelResults, name: str) -> tuple[int | None, float | None]:
    """Return the size of a base: as its own launch says, or those that quantised it."""
    sizes = [b.bytes for b in found.builds if b.unit == name and b.bytes]
    sizes += [q.source_bytes for q in found.quantizations if q.model == name and q.source_bytes]
    return (sizes[0], 1.0) if sizes else (None, None)


def _quality(rows: Sequence[ModelQuality], beside: Sequence[Verdict]) -> tuple[Quality, ...]:
    """Return one line a task: of its leading metric, averaged over launches (which ought to agree)."""
    out = []
    for task in dict.fromkeys(r.task for r in sorted(rows, key=lambda r: (r.task == PERPLEXITY, r.task))):
        of = [r for r in rows if r.task == task]
        names = sorted({r.metric for r in of}, key=lambda n: (_leading(n), n))
        same = [r for r in of if r.metric == names[0]]
        verdict = next((v for v in beside if f";task={task};" in f";{v.comparability};"), None)
        out.append(Quality(task, names[0], median(r.value for r in same), same[0].stderr, same[0].items, verdict))
    return tuple(out)


def _leading(metric: str) -> int:
    name = metric.partition(",")[0]
    return _LEADING.index(name) if name in _LEADING else len(_LEADING)


def _speed(found: ModelResults, unit: str) -> tuple[Speed, ...]:
    rows = [r for r in found.serving if r.unit == unit and r.problem is None and _tokens(r)]
    out = []
    for client, concurrency in sorted({(r.client, r.concurrency) for r in rows}, key=lambda k: (k[1], k[0])):
        of = [r for r in rows if (r.client, r.concurrency) == (client, concurrency)]
        keys = {r.comparability for r in of}
        before = [r for r in found.before.rows if r.comparability in keys and r.problem is None]
        out.append(
            Speed(
                concurrency=concurrency,
                client=client,
                tokens_per_s=text.median_of(_by_launch(of)) or 0.0,
                ttft_p50_ms=text.median_of(r.ttft_p50_ms for r in of),
                tpot_p50_ms=text.median_of(r.tpot_p50_ms for r in of),
                launches=len({r.launch for r in of}),
                before=text.median_of(_by_launch(before)),
            )
        )
    return tuple(out)


def _by_launch(rows: Sequence[ModelServing]) -> list[float]:
    """Return the throughput of each launch: the median of its repeats, which are no independent samples."""
    held: dict[str, list[float]] = {}
    for r in rows:
        if (speed := _tokens(r)) is not None:
            held.setdefault(r.launch, []).append(speed)
    return [median(v) for v in held.values()]


def _tokens(r: ModelServing) -> float | None:
    return r.output_tokens_per_s or r.total_tokens_per_s
