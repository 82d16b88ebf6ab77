"""The launches of a run: the built-in model first, then one a scheme, then one a served form and repetition.

The order is kept: what is served was quantised before. Repetitions are blocks, each shuffled by the run's name, so that
a machine that warms up does not spoil one form alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from fabric_health.checks.check import Launch
from fabric_health.checks.model_eval.schemes import BASE, SchemeName
from fabric_health.checks.model_eval.settings import (
    BUILT_IN,
    NO_PREFIX_CACHE,
    ModelSettings,
    Settings,
    Step,
    settings,
)
from fabric_health.errors import SiteError
from fabric_health.jobs.spec import JobSpec, Resources
from fabric_health.site import Node, Site

QUANTISER, SERVER = "llm-compressor", "vllm"
MODEL_FILE, QUANTISE_FILE, SERVER_FILE = "model.json", "quantise.json", "server.json"
LM_EVAL_FILE, PERPLEXITY_FILE, FINGERPRINT_FILE = "lm-eval.json", "perplexity.json", "fingerprint.json"
EMBEDDINGS_FILE, GUIDELLM_FILE, METRICS_FILE, LOG_FILE = "embeddings.json", "guidellm.json", "metrics.txt", "server.log"
_MIB = 1 << 20
# Nothing is fetched, nothing is told to anybody: a job has what is in its image and in the folder of models.
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}


def bench_file(concurrency: int, repeat: int) -> str:
    """Return the name of the file of one benchmark."""
    return f"bench-c{concurrency}-r{repeat}.json"


def samples_file(task: str) -> str:
    """Return the name of the file of a task's items."""
    return f"lm-eval-samples-{task}.jsonl"


def launches(site: Site, nodes: tuple[Node, ...], run: str) -> tuple[Launch, ...]:
    """Return the run's launches in their order. Raises SiteError for settings that cannot be used."""
    wanted = settings(site)
    unknown = [n for n in wanted.nodes if not any(node.name == n for node in site.nodes)]
    if unknown:
        raise SiteError(
            f"{site.path}: checks.model_eval.nodes: {', '.join(unknown)} is no node; expected names of the site's nodes"
        )
    places = [n.name for n in nodes if n.name in wanted.nodes]
    if wanted.nodes and not places:
        return ()
    plan = [_prepare(wanted, model, places) for model in wanted.models if model.source == BUILT_IN]
    for model in wanted.models:
        plan += [_quantise(wanted, model, scheme, places) for scheme in model.schemes]
    order = random.Random(f"model_eval {run}")  # noqa: S311  an order, not a secret
    for number in range(1, wanted.serving.launches + 1):
        block = [_serve(wanted, m, form, number, places) for m in wanted.models for form in m.forms]
        order.shuffle(block)
        plan += block
    return tuple(plan)


def _prepare(wanted: Settings, model: ModelSettings, places: Sequence[str]) -> Launch:
    argv = (
        "{python}", "{tool}/" + wanted.model_program,
        "--out", "{models}/" + model.folder,
        "--steps", str(wanted.built_in.steps),
        "--seed", str(wanted.built_in.seed),
        "--report", "{artefacts}/" + MODEL_FILE,
    )  # fmt: skip
    name = f"{model.name}-prepare-1"
    spec = _spec(name, QUANTISER, argv, wanted.resources.prepare, (MODEL_FILE,), OFFLINE, places, 1)
    return Launch(name, spec, (model.name,), origin="measured", unit_kind="model")


def _quantise(wanted: Settings, model: ModelSettings, scheme: SchemeName, places: Sequence[str]) -> Launch:
    gate = model.gate(scheme)
    argv = [
        "{python}", "{tool}/" + wanted.quantise_program,
        "--model", "{models}/" + model.folder,
        "--scheme", scheme,
        "--out", "{models}/" + model.folder_of(scheme),
    ]  # fmt: skip
    if gate.samples:
        argv += [
            "--calibration", f"{{models}}/{model.data_folder}/calibration.jsonl",
            "--samples", str(gate.samples),
            "--max-length", str(gate.max_length),
        ]  # fmt: skip
    argv += ["--seed", str(model.calibration.seed), "--report", "{artefacts}/" + QUANTISE_FILE]
    name = f"{model.name}-{scheme}-quantise-1"
    spec = _spec(name, QUANTISER, tuple(argv), wanted.resources.quantise, (QUANTISE_FILE,), OFFLINE, places, 1)
    return Launch(name, spec, (model.unit(scheme),), origin="measured", unit_kind="model")


def _serve(wanted: Settings, model: ModelSettings, form: str, number: int, places: Sequence[str]) -> Launch:
    evaluates = number <= wanted.quality.launches
    flags = (NO_PREFIX_CACHE, *wanted.serving.flags, *model.flags.get(form, ()))
    argv = (
        "{python}", "{tool}/" + wanted.program,
        "--model", "{models}/" + model.folder_of(form),
        "--name", model.unit(form),
        "--out", "{artefacts}",
        "--kind", model.kind,
        *_load(wanted),
        *(_answers(wanted, model, evaluates) if model.kind == "generate" else _texts(model)),
        "--start-limit", str(wanted.serving.start_limit_s),
        "--step-limit", str(wanted.serving.step_limit_s),
        "--", *flags,
    )  # fmt: skip
    name = f"{model.name}-serve-{number}" if form == BASE else f"{model.name}-{form}-serve-{number}"
    env = {**OFFLINE, **wanted.serving.env}
    files = tuple(_files(wanted, model, evaluates))
    spec = _spec(name, SERVER, argv, wanted.resources.serve, files, env, places, number)
    return Launch(name, spec, (model.unit(form),), origin="measured", unit_kind="model")


def _load(wanted: Settings) -> list[str]:
    serving = wanted.serving
    out = ["--concurrency", ",".join(map(str, serving.concurrency))]
    out += ["--repeats", str(serving.repeats), "--prompts", str(serving.prompts)]
    out += ["--input-tokens", str(serving.input_tokens), "--output-tokens", str(serving.output_tokens)]
    out += [word for goal, ms in sorted(serving.goodput.items()) for word in ("--goodput", f"{goal}:{ms:g}")]
    if serving.guidellm_s:
        out += ["--guidellm-seconds", str(serving.guidellm_s)]
    return out


def _answers(wanted: Settings, model: ModelSettings, evaluates: bool) -> list[str]:
    """Return what is asked of the answers. The fingerprint is taken in every launch: it is what must not vary."""
    data, quality, out = "{models}/" + model.data_folder, wanted.quality, []
    if evaluates and model.task_names:
        out += ["--tasks", f"{data}/tasks"]
        out += ["--task", ",".join(model.task_names)]
        out += ["--items", str(quality.items)] if quality.items is not None else []
    if evaluates and quality.windows:
        out += ["--evaluation", f"{data}/evaluation.jsonl", "--windows", str(quality.windows)]
        out += ["--window-tokens", str(quality.window_tokens)]
    return [*out, "--prompts-file", f"{data}/prompts.jsonl", "--greedy-tokens", str(quality.greedy_tokens)]


def _texts(model: ModelSettings) -> list[str]:
    return ["--texts-file", f"{{models}}/{model.data_folder}/{model.texts}"]


def _files(wanted: Settings, model: ModelSettings, evaluates: bool) -> Iterator[str]:
    serving = wanted.serving
    yield from (SERVER_FILE, METRICS_FILE, LOG_FILE)
    yield from (bench_file(c, r) for c in serving.concurrency for r in range(1, serving.repeats + 1))
    if serving.guidellm_s:
        yield GUIDELLM_FILE
    if model.kind == "embed":
        yield EMBEDDINGS_FILE
        return
    yield FINGERPRINT_FILE
    if evaluates and model.task_names:
        yield LM_EVAL_FILE
        yield from map(samples_file, model.task_names)
    if evaluates and wanted.quality.windows:
        yield PERPLEXITY_FILE


def _spec(
    name: str,
    tool: str,
    argv: tuple[str, ...],
    step: Step,
    files: tuple[str, ...],
    env: dict[str, str],
    places: Sequence[str],
    number: int,
) -> JobSpec:
    return JobSpec(
        name=name,
        tool=tool,
        argv=argv,
        env=env,
        nodes=(places[(number - 1) % len(places)],) if places else (),
        resources=Resources(
            cpu=step.cpu, memory_mib=step.memory_mib, gpu=step.gpus, shared_memory_mib=step.shared_memory_mib
        ),
        time_limit_s=step.time_limit_s,
        artefacts=files,
        artefact_max_bytes=64 * _MIB,
    )
