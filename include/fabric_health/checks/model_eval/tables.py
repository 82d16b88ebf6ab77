"""Tables of the check: models and quantised forms, their servers, speed, quality item by item, answers, embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fabric_health.datasets.contracts import Row, column, optional

_KEY_TEXT = "canonical key of everything that must be equal for two rows to be compared"
_MS = "ms"


@dataclass(frozen=True)
class ModelBuild(Row):
    TABLE: ClassVar[str] = "models"
    KEY: ClassVar[tuple[str, ...]] = ("run", "launch")
    DESCRIPTION: ClassVar[str] = "The built-in model as its launch found or trained it."

    launch: str = column("launch")
    unit: str = column("model")
    cached: bool | None = optional("whether it was there already, trained by the same recipe")
    recipe_sha256: str | None = optional("hash of everything that training depends on")
    weights_sha256: str | None = optional("hash over the names and hashes of the weight files")
    parameters: int | None = optional("parameters", minimum=0)
    bytes: int | None = optional("size of the weight files", unit="B", minimum=0)
    duration_s: float | None = optional("time of the launch's program", unit="s", minimum=0)
    steps: int | None = optional("training steps", minimum=0)
    loss_first: float | None = optional("training loss of the first step, nats", minimum=0)
    loss_last: float | None = optional("training loss of the last step, nats", minimum=0)
    perplexity: float | None = optional("perplexity on held-out text", unit="1", minimum=0)
    peak_memory_mib: float | None = optional("peak memory of the program, 2^20 bytes", unit="MiB", minimum=0)
    corpus: str | None = optional("where the text comes from, with its licence")
    corpus_sha256: str | None = optional("hash of the text")
    tool_version: str | None = optional("versions of the libraries")
    problem: str | None = optional("why this is no model that can be used")


@dataclass(frozen=True)
class Quantization(Row):
    TABLE: ClassVar[str] = "quantizations"
    KEY: ClassVar[tuple[str, ...]] = ("run", "launch")
    DESCRIPTION: ClassVar[str] = "Quantising a model by one scheme: what came out, by which recipe, at what cost."

    launch: str = column("launch")
    model: str = column("model")
    scheme: str = column("scheme, e.g. `w8a8-gptq`")
    unit: str = column("quantised form, `model/scheme`")
    source_sha256: str | None = optional("hash of the weights that were quantised")
    weights_sha256: str | None = optional("hash over the names and hashes of the weight files that were written")
    bytes: int | None = optional("size of the weight files", unit="B", minimum=0)
    source_bytes: int | None = optional("size of the source's weight files", unit="B", minimum=0)
    size_ratio: float | None = optional("bytes / source_bytes", unit="1", minimum=0)
    format: str | None = optional("format of the weights, e.g. `int-quantized`")
    quant_method: str | None = optional("`compressed-tensors`")
    recipe: str | None = optional("modifiers with their arguments, as JSON")
    recipe_sha256: str | None = optional("hash of the recipe")
    calibration_sha256: str | None = optional("hash of the calibration text")
    calibration_samples: int | None = optional("samples of calibration; 0 for schemes without", minimum=0)
    calibration_max_length: int | None = optional("length of a sample at most", unit="tokens", minimum=0)
    seed: int | None = optional("seed of the calibration's order")
    load_s: float | None = optional("loading the model", unit="s", minimum=0)
    quantise_s: float | None = optional("quantising", unit="s", minimum=0)
    save_s: float | None = optional("writing the result", unit="s", minimum=0)
    duration_s: float | None = optional("all of it", unit="s", minimum=0)
    peak_memory_mib: float | None = optional("peak memory of the program, 2^20 bytes", unit="MiB", minimum=0)
    device: str | None = optional("what it ran on")
    tool_version: str | None = optional("versions of llm-compressor and the libraries under it")
    problem: str | None = optional("why this is no result")


@dataclass(frozen=True)
class ModelServer(Row):
    TABLE: ClassVar[str] = "model_servers"
    KEY: ClassVar[tuple[str, ...]] = ("run", "launch")
    DESCRIPTION: ClassVar[str] = "A server of one form of a model: what it served, by which weights, flags and version."

    launch: str = column("launch, an independent repetition")
    unit: str = column("form of the model: `model` or `model/scheme`")
    served: str | None = optional("ids that the server lists, comma separated")
    weights_sha256: str | None = optional("hash over the names and hashes of the weight files that were served")
    version: str | None = optional("version of the server")
    flags: str | None = optional("flags of the server, space separated")
    device: str | None = optional("what it ran on")
    node: str | None = optional("node it was placed on, where the site names one")
    start_s: float | None = optional("time until it answered", unit="s", minimum=0)
    stop_s: float | None = optional("time from the signal until it was gone", unit="s", minimum=0)
    peak_memory_mib: float | None = optional("peak memory of its processes, 2^20 bytes", unit="MiB", minimum=0)
    requests: int | None = optional("requests that it counted as finished", minimum=0)
    prefix_cache_hits: int | None = optional("tokens that it took from the prefix cache", unit="tokens", minimum=0)
    comparability: str | None = optional(_KEY_TEXT)
    problem: str | None = optional("why its measurements are not used")


@dataclass(frozen=True)
class ModelServing(Row):
    TABLE: ClassVar[str] = "model_serving"
    KEY: ClassVar[tuple[str, ...]] = ("run", "launch", "client", "concurrency", "repeat")
    DESCRIPTION: ClassVar[str] = (
        "Speed of a served model at one concurrency. Where `problem` is set the numbers are null. Repeats within a "
        "launch are not independent samples."
    )

    launch: str = column("launch, an independent repetition")
    unit: str = column("form of the model: `model` or `model/scheme`")
    client: str = column("`vllm bench` or `guidellm`")
    concurrency: int = column("requests at the same time", minimum=1)
    repeat: int = column("number of the repeat within the launch, from 1", minimum=1)
    comparability: str = column(_KEY_TEXT)
    prompts: int | None = optional("requests that were to be made", minimum=0)
    completed: int | None = optional("requests that were answered in full", minimum=0)
    failed: int | None = optional("requests that failed; the client ends with exit code 0 all the same", minimum=0)
    duration_s: float | None = optional("length of the measured window", unit="s", minimum=0)
    requests_per_s: float | None = optional("requests per second", unit="1/s", minimum=0)
    output_tokens_per_s: float | None = optional("generated tokens per second", unit="tokens/s", minimum=0)
    total_tokens_per_s: float | None = optional("read and generated tokens per second", unit="tokens/s", minimum=0)
    goodput_per_s: float | None = optional("requests per second within the latency goals", unit="1/s", minimum=0)
    input_tokens: int | None = optional("tokens of all prompts", unit="tokens", minimum=0)
    output_tokens: int | None = optional("tokens generated", unit="tokens", minimum=0)
    ttft_mean_ms: float | None = optional("time to the first token, mean", unit=_MS, minimum=0)
    ttft_p50_ms: float | None = optional("time to the first token, median", unit=_MS, minimum=0)
    ttft_p90_ms: float | None = optional("time to the first token, 90th percentile", unit=_MS, minimum=0)
    ttft_p99_ms: float | None = optional("time to the first token, 99th percentile", unit=_MS, minimum=0)
    tpot_mean_ms: float | None = optional("time per output token after the first, mean", unit=_MS, minimum=0)
    tpot_p50_ms: float | None = optional("time per output token after the first, median", unit=_MS, minimum=0)
    tpot_p90_ms: float | None = optional("time per output token after the first, 90th percentile", unit=_MS, minimum=0)
    tpot_p99_ms: float | None = optional("time per output token after the first, 99th percentile", unit=_MS, minimum=0)
    itl_mean_ms: float | None = optional("time between tokens, mean", unit=_MS, minimum=0)
    itl_p50_ms: float | None = optional("time between tokens, median", unit=_MS, minimum=0)
    itl_p90_ms: float | None = optional("time between tokens, 90th percentile", unit=_MS, minimum=0)
    itl_p99_ms: float | None = optional("time between tokens, 99th percentile", unit=_MS, minimum=0)
    e2el_mean_ms: float | None = optional("time of a request, mean", unit=_MS, minimum=0)
    e2el_p50_ms: float | None = optional("time of a request, median", unit=_MS, minimum=0)
    e2el_p90_ms: float | None = optional("time of a request, 90th percentile", unit=_MS, minimum=0)
    e2el_p99_ms: float | None = optional("time of a request, 99th percentile", unit=_MS, minimum=0)
    problem: str | None = optional("why this is no measurement of what was asked; null when it is one")


@dataclass(frozen=True)
class ModelQuality(Row):
    TABLE: ClassVar[str] = "model_quality"
    KEY: ClassVar[tuple[str, ...]] = ("run", "launch", "task", "metric")
    DESCRIPTION: ClassVar[str] = "Quality of a served model by task and metric."

    launch: str = column("launch")
    unit: str = column("form of the model: `model` or `model/scheme`")
    task: str = column("task of lm-evaluation-harness, or `perplexity`")
    metric: str = column("metric; with its filter where there is one: `acc`, `exact_match,strict-match`")
    value: float = column("value of the metric", unit="1")
    comparability: str = column(_KEY_TEXT)
    stderr: float | None = optional("standard error; null where the harness gives none", unit="1", minimum=0)
    items: int | None = optional("items that were evaluated", minimum=0)
    limited: bool | None = optional("whether only a part of the task's items was evaluated")
    higher_is_better: bool | None = optional("whether more is better, where the harness says")
    task_version: str | None = optional("version of the task")
    harness_version: str | None = optional("version of lm-evaluation-harness; of perplexity, of the server")


@dataclass(frozen=True)
class PerItem(Row):
    TABLE: ClassVar[str] = "per_item"
    KEY: ClassVar[tuple[str, ...]] = ("run", "launch", "task", "item")
    DESCRIPTION: ClassVar[str] = "Answers item by item: what paired tests compare. A window of text is an item, too."

    launch: str = column("launch")
    unit: str = column("form of the model: `model` or `model/scheme`")
    task: str = column("task of lm-evaluation-harness, or `perplexity`")
    item: str = column("number of the item with the first digits of its hash, so that only the same items are paired")
    comparability: str = column(_KEY_TEXT)
    correct: bool | None = optional("whether the answer was right; null for items that are not right or wrong")
    loglikelihood: float | None = optional("of the right answer, or of the text: sum over its tokens", unit="nats")
    tokens: int | None = optional("tokens that the likelihood is of", unit="tokens", minimum=0)


@dataclass(frozen=True)
class Fingerprint(Row):
    TABLE: ClassVar[str] = "fingerprints"
    KEY: ClassVar[tuple[str, ...]] = ("run", "launch", "prompt")
    DESCRIPTION: ClassVar[str] = "Greedy answers to a fixed set of prompts: on the same machine they must not change."

    launch: str = column("launch")
    unit: str = column("form of the model: `model` or `model/scheme`")
    prompt: str = column("id of the prompt")
    prompt_sha256: str = column("hash of the prompt")
    tokens: str = column("ids of the tokens that were generated, space separated")
    weights_sha256: str = column("hash over the names and hashes of the weight files")
    comparability: str = column(_KEY_TEXT)
    logprob: float | None = optional("sum of the log-probabilities of these tokens", unit="nats")


@dataclass(frozen=True)
class ModelEmbedding(Row):
    TABLE: ClassVar[str] = "model_embeddings"
    KEY: ClassVar[tuple[str, ...]] = ("run", "launch", "text")
    DESCRIPTION: ClassVar[str] = "Vectors of a fixed set of texts."

    launch: str = column("launch")
    unit: str = column("form of the model: `model` or `model/scheme`")
    text: str = column("id of the text")
    dimension: int = column("length of the vector", minimum=1)
    vector: str = column("the vector, as JSON")
    weights_sha256: str = column("hash over the names and hashes of the weight files")
    comparability: str = column(_KEY_TEXT)


@dataclass(frozen=True)
class ModelLaunchProblem(Row):
    TABLE: ClassVar[str] = "model_launch_problems"
    KEY: ClassVar[tuple[str, ...]] = ("run", "launch", "rule", "subject")
    DESCRIPTION: ClassVar[str] = "What was wrong with a launch: the rule it broke, what was expected and what came."

    launch: str = column("launch")
    unit: str = column("form of the model: `model` or `model/scheme`")
    rule: str = column("rule it broke, e.g. `served_as_asked`")
    subject: str = column("step or file concerned; `launch` for the whole")
    refuses: bool = column("whether it makes the launch's numbers unusable, all or those of the subject")
    detail: str = column("what is wrong, for a person")
    expected: str | None = optional("what should be")
    actual: str | None = optional("what is")
