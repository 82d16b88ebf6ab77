"""Settings of the check: the site file's ``checks.model_eval``."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator, model_validator

from fabric_health.checks.model_eval.schemes import BASE, SCHEMES, Scheme, SchemeName, model_of, scheme_of
from fabric_health.errors import settings_error
from fabric_health.site import Identifier, Site

BUILT_IN: Final = "built-in"
NO_PREFIX_CACHE: Final = "--no-enable-prefix-caching"
_FOLDER = r"^[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)*$"
_PROGRAM = r"^(\.\./)*[A-Za-z0-9][A-Za-z0-9_-]*(/[A-Za-z0-9][A-Za-z0-9_-]*)*\.py$"
# Also cut short: the server's parser takes a word for the only one that begins so, and "_" for "-".
_SECRET = re.compile(r"(?i)--(api-k|hf-t)\S*")
# What the program that starts the server sets itself, and what would make a benchmark measure a cache.
_NOT_FLAGS = frozenset(
    {"--model", "--host", "--port", "--uds", "--served-model-name", "--enable-prefix-caching", "--root-path"}
)
ModelName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$")]
TaskName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][\w.-]*$", max_length=100)]
Flag = Annotated[str, StringConstraints(min_length=1, max_length=500)]
Goal = Literal["ttft", "tpot", "e2el"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)


def _usable(flags: tuple[str, ...]) -> tuple[str, ...]:
    for flag in flags:
        name = flag.split("=", 1)[0].replace("_", "-")
        if name in _NOT_FLAGS:
            raise ValueError(f"flag {name} is set by the check itself; expected other flags of the server")
        if _SECRET.fullmatch(name):
            raise ValueError(f"flag {name} would put a secret on a command line; the server needs none")
        if any(not c.isprintable() for c in flag):
            raise ValueError("a flag has a character that cannot be printed; expected one word of a command line")
    return tuple(f for f in flags if f != NO_PREFIX_CACHE)


class Gate(_Model):
    """What a quantised form must keep. What is left out is the scheme's own figure."""

    recovery: float | None = Field(None, gt=0, le=1, description="share of the base's quality that must be kept")
    size_min: float | None = Field(None, gt=0, lt=1, description="smallest size, as a share of the base's weights")
    size_max: float | None = Field(None, gt=0, le=1.5, description="largest size, as a share of the base's weights")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.size_min is not None and self.size_max is not None and self.size_min > self.size_max:
            raise ValueError("size_min is larger than size_max; expected a range such as 0.45 to 0.8")
        return self


class Calibration(_Model):
    """The text that quantising looks at: ``calibration.jsonl`` of the model's data. Pinned, or results would move."""

    samples: int | None = Field(None, ge=1, le=100_000, description="samples; 64 of built-in, else the scheme's own")
    max_length: int | None = Field(
        None, ge=8, le=1 << 20, description="tokens of a sample at most; default: 256 of built-in, else the scheme's"
    )
    seed: int = Field(0, ge=0, le=1 << 31, description="order of the samples")


class ModelSettings(_Model):
    """One model: where it is, how it is quantised, which forms are served, and what they are held to."""

    name: ModelName = Field(description="name of the model as a unit; its forms are `<name>/<scheme>`")
    source: str = Field(
        BUILT_IN, description="`built-in`: a tiny model that is trained once; else its folder below the models folder"
    )
    revision: str | None = Field(
        None, pattern=r"^[0-9a-f]{64}$", description="hash of its weights; other weights are then refused"
    )
    kind: Literal["generate", "embed"] = "generate"
    schemes: tuple[SchemeName, ...] = Field(
        ("w8a8-gptq", "w8a8-smoothquant-gptq", "fp8-dynamic", "w4a16-gptq", "w4a16-awq"), description="to quantise by"
    )
    serve: tuple[str, ...] | None = Field(
        None, min_length=1, description="forms that are served: `base` and schemes; all when left out"
    )
    gates: dict[SchemeName, Gate] = Field(default_factory=dict, description="scheme -> what it must keep")
    data: str | None = Field(
        None,
        pattern=_FOLDER,
        max_length=200,
        description="folder below the models folder with `tasks/`, `calibration.jsonl`, `evaluation.jsonl`, "
        "`prompts.jsonl`; the model's own when left out",
    )
    texts: str = Field(
        "texts.jsonl",
        pattern=_FOLDER,
        max_length=200,
        description="file of the data whose texts an embedding model is asked for",
    )
    tasks: tuple[TaskName, ...] | None = Field(
        None,
        max_length=20,
        description="tasks of lm-evaluation-harness in `tasks/`; `continuation` of built-in",
    )
    flags: dict[str, tuple[Flag, ...]] = Field(
        default_factory=dict, description="form -> flags of the server for it, besides those of all"
    )
    calibration: Calibration = Calibration()

    @field_validator("source")
    @classmethod
    def _folder(cls, value: str) -> str:
        if value != BUILT_IN and (len(value) > 200 or not re.match(_FOLDER, value)):
            raise ValueError("expected `built-in`, or a folder below the models folder such as qwen3-8b, without `..`")
        return value

    @field_validator("flags")
    @classmethod
    def _flags(cls, value: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        return {form: _usable(flags) for form, flags in value.items()}

    @model_validator(mode="after")
    def _fits(self) -> Self:
        known = (BASE, *self.schemes)
        for key, forms in (("serve", self.serve or ()), ("flags", tuple(self.flags)), ("gates", tuple(self.gates))):
            odd = [f for f in forms if f not in known]
            if odd:
                raise ValueError(f"{key} names {', '.join(odd)}; expected of {', '.join(known)}: base and `schemes`")
        if len(set(self.schemes)) != len(self.schemes) or len(set(self.forms)) != len(self.forms):
            raise ValueError("a scheme or form is named twice; expected each once")
        if self.source == BUILT_IN and self.revision is not None:
            raise ValueError("revision of the built-in model follows from its recipe; expected none")
        if self.kind == "embed" and self.tasks:
            raise ValueError("tasks need a model that generates; expected none for kind embed")
        return self

    @property
    def folder(self) -> str:
        """Folder of the base form below the models folder."""
        return self.name if self.source == BUILT_IN else self.source

    @property
    def data_folder(self) -> str:
        """Folder of the texts and tasks below the models folder."""
        return self.data or self.folder

    @property
    def forms(self) -> tuple[str, ...]:
        """Forms that are served, base first."""
        return self.serve if self.serve is not None else (BASE, *self.schemes)

    @property
    def task_names(self) -> tuple[str, ...]:
        """Tasks that are evaluated."""
        if self.tasks is not None or self.kind == "embed":
            return self.tasks or ()
        return ("continuation",) if self.source == BUILT_IN else ()

    def unit(self, form: str) -> str:
        """Return the unit of a form."""
        return self.name if form == BASE else f"{self.name}/{form}"

    def folder_of(self, form: str) -> str:
        """Return the folder of a form below the models folder."""
        return self.folder if form == BASE else f"{self.name}.{form}"

    def gate(self, scheme: SchemeName) -> Scheme:
        """Return what a scheme of this model is held to."""
        usual, own = SCHEMES[scheme], self.gates.get(scheme, Gate())
        return Scheme(
            usual.format,
            usual.recovery if own.recovery is None else own.recovery,
            usual.size_min if own.size_min is None else own.size_min,
            usual.size_max if own.size_max is None else own.size_max,
            self._samples(usual.samples, self.calibration.samples, 64),
            self._samples(usual.max_length, self.calibration.max_length, 256),
            usual.capability,
        )

    def _samples(self, usual: int, own: int | None, built_in: int) -> int:
        if own is not None or usual == 0:
            return own or 0
        return built_in if self.source == BUILT_IN else usual


class Serving(_Model):
    """How forms are served and loaded."""

    launches: int = Field(3, ge=1, le=20, description="independent repetitions: the server is started anew in each")
    concurrency: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = Field(
        (1, 8, 32), min_length=1, max_length=16, description="requests at the same time, one benchmark for each"
    )
    prompts: int = Field(200, ge=1, le=100_000, description="requests of a benchmark")
    input_tokens: int = Field(1024, ge=1, le=1 << 20, description="tokens of a prompt")
    output_tokens: int = Field(128, ge=1, le=1 << 20, description="tokens of an answer; they are always generated")
    repeats: int = Field(1, ge=1, le=20, description="benchmarks at each concurrency within a launch")
    guidellm_s: int = Field(
        0, ge=0, le=3600, description="measured time of guidellm beside vllm bench, at the highest concurrency; 0: none"
    )
    goodput: dict[Goal, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict, description="latency goals in ms; requests within all of them count as goodput"
    )
    flags: tuple[Flag, ...] = Field((), description="flags of the server for all forms; prefix caching is always off")
    env: dict[str, str] = Field(default_factory=dict, description="environment of the server, plain values")
    start_limit_s: int = Field(900, ge=10, le=7200, description="time until the server answers")
    step_limit_s: int = Field(1800, ge=10, le=14_400, description="time of each step after that")

    @field_validator("flags")
    @classmethod
    def _flags(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return _usable(value)

    @field_validator("concurrency")
    @classmethod
    def _levels(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(value)))

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.prompts < max(self.concurrency):
            raise ValueError(
                f"{self.prompts} prompts at a concurrency of {max(self.concurrency)}; expected at least as many prompts"
            )
        return self


class Quality(_Model):
    """How answers are evaluated."""

    launches: int = Field(1, ge=1, le=20, description="launches that evaluate; answers vary less than speed")
    items: int | None = Field(
        None, ge=10, le=1_000_000, description="items of each task; all when left out, which alone compares with others"
    )
    windows: int = Field(64, ge=0, le=100_000, description="windows of evaluation text for perplexity; 0: none")
    window_tokens: int = Field(512, ge=16, le=1 << 17, description="tokens of a window")
    greedy_tokens: int = Field(64, ge=1, le=4096, description="tokens of each answer of the fingerprint")


class Step(_Model):
    """What a job of one step may use."""

    gpus: int = Field(1, ge=0, le=64)
    cpu: float = Field(8, gt=0, le=1024)
    memory_mib: int = Field(65_536, ge=256)
    shared_memory_mib: int = Field(8192, ge=64, description="for the processes of a server")
    time_limit_s: float = Field(7200, gt=0, le=86_400)


class Steps(_Model):
    """Resources by step."""

    prepare: Step = Step(gpus=0, cpu=2, memory_mib=4096, shared_memory_mib=64, time_limit_s=1800)
    quantise: Step = Step()
    serve: Step = Step()


class BuiltIn(_Model):
    """Training of the built-in model. It is kept by the hash of its recipe, so a change trains it anew."""

    steps: int = Field(700, ge=1, le=100_000)
    seed: int = Field(0, ge=0, le=1 << 31)


class Settings(_Model):
    """Which models are quantised, served and evaluated, and how."""

    models: tuple[ModelSettings, ...] = Field((ModelSettings(name="tiny-qwen3"),), min_length=1, max_length=50)
    serving: Serving = Serving()
    quality: Quality = Quality()
    resources: Steps = Steps()
    built_in: BuiltIn = BuiltIn()
    nodes: tuple[Identifier, ...] = Field(
        (), description="nodes that launches take in turn; wherever the backend places them when left out"
    )
    program: str = Field(
        "measure.py", pattern=_PROGRAM, max_length=200, description="program in the folder of the tool `vllm`"
    )
    quantise_program: str = Field(
        "quantise.py", pattern=_PROGRAM, max_length=200, description="program in that of `llm-compressor`"
    )
    model_program: str = Field(
        "tiny_model.py", pattern=_PROGRAM, max_length=200, description="the same, for the built-in model"
    )

    @model_validator(mode="after")
    def _apart(self) -> Self:
        names = [m.name for m in self.models]
        if len(set(names)) != len(names):
            raise ValueError(f"models {', '.join(names)}; expected every name once")
        written = {m.folder_of(s) for m in self.models for s in m.schemes}
        written |= {m.name for m in self.models if m.source == BUILT_IN}
        for m in self.models:
            if m.source != BUILT_IN and m.source in {w for w in written if "." in w}:
                raise ValueError(f"source of {m.name} is {m.source}, which quantising writes; expected another folder")
        if self.quality.launches > self.serving.launches:
            raise ValueError(
                f"quality.launches {self.quality.launches} of {self.serving.launches}; expected at most as many"
            )
        return self

    def model(self, unit: str) -> ModelSettings | None:
        """Return the settings of the model that a unit is a form of, None for one that is not named here."""
        return next((m for m in self.models if m.name == model_of(unit)), None)

    def base_of(self, unit: str) -> str:
        """Return the unit of the form that is not quantised; a base is its own."""
        return model_of(unit)

    def recovery_of(self, unit: str) -> float:
        """Return the share of the base's quality that a form has to keep; 1 for a base or an unknown scheme."""
        found, scheme = self.model(unit), scheme_of(unit)
        if found is None or scheme not in SCHEMES:
            return 1.0
        return found.gate(scheme).recovery


def settings(site: Site) -> Settings:
    """Return the site's settings. Raises SiteError naming each key at fault and what was expected."""
    try:
        return Settings.model_validate(dict(site.checks.get("model_eval", {})))
    except ValidationError as error:
        page = "docs/checks/model_eval.md"
        raise settings_error(error, str(site.path), "checks.model_eval", page) from None
