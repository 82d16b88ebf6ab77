"""What a launch was asked to do, read from its job's own command line: the plan and the check cannot differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from fabric_health.checks.check import Launch
from fabric_health.checks.model_eval.launches import OFFLINE, SERVER
from fabric_health.checks.model_eval.schemes import model_of, scheme_of
from fabric_health.checks.model_eval.settings import NO_PREFIX_CACHE


@dataclass(frozen=True)
class Prepare:
    """Train the built-in model, or find it trained."""

    unit: str
    steps: int
    seed: int


@dataclass(frozen=True)
class Quantise:
    """Quantise a model by a scheme. ``samples`` is 0 for a scheme without calibration."""

    unit: str
    scheme: str
    samples: int
    max_length: int
    seed: int

    @property
    def model(self) -> str:
        """The unit of the form that is quantised."""
        return model_of(self.unit)


@dataclass(frozen=True)
class Serve:
    """Serve a form of a model, load it and ask it. ``items`` None is all items of a task.

    ``env`` has the site's own words ``NAME=value``: they choose kernels as flags do.
    """

    unit: str
    kind: Literal["generate", "embed"]
    concurrency: tuple[int, ...]
    repeats: int
    prompts: int
    input_tokens: int
    output_tokens: int
    goodput: str
    guidellm_s: int
    tasks: tuple[str, ...]
    items: int | None
    windows: int
    window_tokens: int
    greedy_tokens: int
    flags: tuple[str, ...]
    env: tuple[str, ...] = ()

    @property
    def model(self) -> str:
        """The unit of the form that is not quantised."""
        return model_of(self.unit)

    @property
    def scheme(self) -> str:
        """The scheme, ``base`` for the form that is not quantised."""
        return scheme_of(self.unit)

    @property
    def started_with(self) -> tuple[str, ...]:
        """Flags and environment of the server, all that the site says of how it runs."""
        return (*self.flags, *self.env)

    @property
    def caches_prefixes(self) -> bool:
        """Whether the server was not told to leave prefixes uncached."""
        return NO_PREFIX_CACHE not in self.flags


Asked = Prepare | Quantise | Serve


def asked(launch: Launch) -> Asked:
    """Return what ``launch`` asks for. Raises ValueError for a job that this check did not plan."""
    argv = launch.spec.argv
    if len(launch.units) != 1:
        raise ValueError(f"launch {launch.name} measures {len(launch.units)} units, expected one form of a model")
    unit = launch.units[0]
    if launch.spec.tool == SERVER:
        own = tuple(f"{k}={v}" for k, v in sorted(launch.spec.env.items()) if OFFLINE.get(k) != v)
        return _serve(unit, argv, own)
    if "--scheme" in argv:
        samples, length = int(option(argv, "--samples", "0")), int(option(argv, "--max-length", "0"))
        return Quantise(unit, option(argv, "--scheme"), samples, length, int(option(argv, "--seed")))
    return Prepare(unit, int(option(argv, "--steps")), int(option(argv, "--seed")))


def _serve(unit: str, argv: Sequence[str], env: tuple[str, ...]) -> Serve:
    at = argv.index("--") if "--" in argv else len(argv)
    own, flags = tuple(argv[:at]), tuple(argv[at + 1 :])
    kind = option(own, "--kind")
    if kind not in ("generate", "embed") or option(own, "--name") != unit or not flags:
        raise ValueError(f"{' '.join(own)[:200]} is no job of this check")
    items = option(own, "--items", "")
    return Serve(
        unit=unit,
        kind="embed" if kind == "embed" else "generate",
        concurrency=tuple(int(c) for c in option(own, "--concurrency").split(",")),
        repeats=int(option(own, "--repeats")),
        prompts=int(option(own, "--prompts")),
        input_tokens=int(option(own, "--input-tokens")),
        output_tokens=int(option(own, "--output-tokens")),
        goodput=" ".join(value for word, value in pairwise(own) if word == "--goodput"),
        guidellm_s=int(option(own, "--guidellm-seconds", "0")),
        tasks=tuple(t for t in option(own, "--task", "").split(",") if t),
        items=int(items) if items else None,
        windows=int(option(own, "--windows", "0")),
        window_tokens=int(option(own, "--window-tokens", "0")),
        greedy_tokens=int(option(own, "--greedy-tokens", "0")),
        flags=flags,
        env=env,
    )


def option(argv: Sequence[str], name: str, default: str | None = None) -> str:
    """Return the value after ``name`` in a command line. Raises ValueError when there is none and no default."""
    for word, value in pairwise(argv):
        if word == name:
            return value
    if default is None:
        raise ValueError(f"no {name} in {' '.join(argv)[:200]}")
    return default
