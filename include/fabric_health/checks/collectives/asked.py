"""What a launch was asked to do, read from its job's own command line: the plan and the check cannot differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from fabric_health.checks.check import Launch
from fabric_health.jobs.spec import JobSpec

Engine = Literal["gloo", "nccl-tests", "lab_fleet", "perftest"]
# Engines that measure nodes of the site: one program a collective, in groups of ranks.
FLEET_ENGINES: tuple[Engine, ...] = ("nccl-tests", "lab_fleet")
LAB_PROGRAM = "fabric_health.lab.fleet.all_reduce_perf"
SPLIT = "NCCL_TESTS_SPLIT"
_TIMING = {"0": "rank0", "1": "avg", "2": "min", "3": "max"}
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Asked:
    """Sizes in bytes, ascending. ``nodes`` is empty for a launch on the machine that starts it.

    ``grouping``: ``all`` ranks in one communicator, one per ``node``, one per ``rail``, or a ``pair``: server and
    client, in this order. ``devices`` are those of a pair; ``gpudirect`` says that its data are in memory of GPUs.
    ``ranks`` is gloo's: one communicator for each of ``groups``, which are numbers of ranks.
    """

    engine: Engine
    collectives: tuple[str, ...]
    grouping: Literal["all", "node", "rail", "pair", "ranks"]
    sizes: tuple[int, ...]
    nodes: tuple[str, ...]
    ranks: int
    timing: str
    checked: bool = True
    artefact: str | None = None
    gbits: bool = False
    devices: tuple[str, ...] = ()
    gpudirect: bool = False
    groups: tuple[tuple[int, ...], ...] = ()

    @property
    def workload(self) -> str:
        """The collective, or ``sweep`` for several in one launch."""
        return self.collectives[0] if len(self.collectives) == 1 else "sweep"


def asked(launch: Launch) -> Asked:
    """Return what ``launch`` asks for. Raises ValueError for a job that this check did not plan."""
    argv, spec = launch.spec.argv, launch.spec
    names = [a.rsplit("/", 1)[-1] for a in argv]
    if "--collectives" in argv:
        return _gloo(argv)
    program = next((i for i, n in enumerate(names) if n.endswith("_perf") or n == LAB_PROGRAM), None)
    if program is not None:
        lab = names[program] == LAB_PROGRAM
        return Asked(
            engine="lab_fleet" if lab else "nccl-tests",
            collectives=(argv[program + 1] if lab else names[program].removesuffix("_perf"),),
            grouping=_grouping(spec.env.get(SPLIT, "")),
            sizes=sizes(_size(option(argv, "-b")), _size(option(argv, "-e")), int(option(argv, "-f"))),
            nodes=spec.nodes,
            ranks=len(spec.nodes) * spec.ranks_per_node,
            timing=_TIMING[option(argv, "-a")],
            checked=option(argv, "-c") != "0",
            artefact=option(argv, "-J", "").rsplit("/", 1)[-1] or None,
        )
    if "--devices" in argv and "--" in argv[:-1]:
        return _pair(spec)
    raise ValueError(f"launch {launch.name}: {' '.join(argv)[:200]} is no job of this check")


def of_fleet(launches: Iterable[Launch]) -> Iterator[tuple[Launch, Asked]]:
    """Yield the launches that measure nodes of the site, with what each asks for; others are passed over."""
    for launch in launches:
        try:
            of = asked(launch)
        except (ValueError, KeyError):
            continue
        if of.engine in FLEET_ENGINES:
            yield launch, of


def _pair(spec: JobSpec) -> Asked:
    argv = spec.argv
    tool = argv[argv.index("--") + 1 :]
    return Asked(
        engine="perftest",
        collectives=(tool[0].rsplit("/", 1)[-1],),
        grouping="pair",
        sizes=tuple(sorted(int(s) for s in option(argv, "--sizes").split(","))),
        nodes=spec.nodes,
        ranks=len(spec.nodes),
        timing="avg",
        gbits="--report_gbits" in tool,
        devices=tuple(option(argv, "--devices").split(",")),
        gpudirect="--gpus" in argv,
    )


def sizes(smallest: int, largest: int, factor: int) -> tuple[int, ...]:
    """Return the sizes of a sweep: ``smallest`` times powers of ``factor`` up to ``largest``."""
    if smallest < 1 or factor < 2:
        raise ValueError("a sweep needs a size of 1 B or more and a factor of 2 or more")
    out = [smallest]
    while out[-1] * factor <= largest:
        out.append(out[-1] * factor)
    return tuple(out)


def option(argv: Sequence[str], name: str, default: str | None = None) -> str:
    """Return the value after ``name`` in a command line. Raises ValueError when there is none and no default."""
    for word, value in zip(argv, (*argv[1:], None), strict=True):
        if word == name and value is not None:
            return value
        if word.startswith(name + "="):
            return word[len(name) + 1 :]
    if default is None:
        raise ValueError(f"no {name} in {' '.join(argv)[:200]}")
    return default


def _gloo(argv: tuple[str, ...]) -> Asked:
    named = option(argv, "--groups", "")
    groups = tuple(tuple(int(m) for m in group.split(",")) for group in named.split("/")) if named else ()
    return Asked(
        engine="gloo",
        collectives=tuple(option(argv, "--collectives").split(",")),
        grouping="ranks" if groups else "all",
        sizes=sizes(int(option(argv, "--min-bytes")), int(option(argv, "--max-bytes")), int(option(argv, "--factor"))),
        nodes=(),
        ranks=sum(len(g) for g in groups) or int(option(argv, "--ranks")),
        timing="best",
        groups=groups,
    )


def _grouping(split: str) -> Literal["all", "node", "rail"]:
    word = split.split(None, 1)[0].upper() if split.strip() else ""
    if word in ("", "DIV", "MOD"):
        return {"": "all", "DIV": "node", "MOD": "rail"}[word]  # type: ignore[return-value]
    raise ValueError(f"{SPLIT}={split!r}: expected DIV or MOD")


def _size(text: str) -> int:
    unit = _UNITS.get(text[-1:].upper())
    return int(text[:-1]) * unit if unit else int(text)
