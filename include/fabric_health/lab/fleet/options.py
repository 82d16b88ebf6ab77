"""The command line of nccl-tests, as ``src/common.cu`` of 2.19 reads it."""

from __future__ import annotations

import getopt
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from fabric_health.lab.fleet.laws import COLLECTIVES

MAX_SIZES = 256
MAX_ITERATIONS = 100_000
DTYPE_BYTES = {
    "int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "half": 2, "float": 4, "double": 8,
    "bfloat16": 2,
}  # fmt: skip
_OPS = ("sum", "prod", "min", "max", "avg")
_NAMES = {
    "t": "nthreads", "g": "ngpus", "b": "minbytes", "e": "maxbytes", "i": "stepbytes", "f": "stepfactor", "n": "iters",
    "m": "agg_iters", "w": "warmup_iters", "p": "parallel_init", "c": "check", "o": "op", "d": "datatype", "r": "root",
    "z": "blocking", "T": "timeout", "G": "cudagraph", "C": "report_cputime", "a": "average", "S": "report_timestamps",
    "J": "output_file", "I": "per_iter",
}  # fmt: skip
_OWN = ("hosts=", "home=", "site=", "run=", "launch=")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# What changes how the real tool measures and is no part of the model: only "off" is accepted.
_ONLY = {"t": 1, "m": 1, "z": 0, "G": 0, "C": 0}


class ExitError(Exception):
    """The program ends here, with what it prints and its exit code (which may be 0, as for ``-h``)."""

    def __init__(self, code: int, stdout: str = "", stderr: str = "") -> None:
        super().__init__(stderr or stdout)
        self.code, self.stdout, self.stderr = code, stdout, stderr


@dataclass(frozen=True)
class Options:
    """What to measure and how to print it; sizes in bytes. ``average`` joins ranks' times: rank 0, mean, min, max."""

    collective: str
    gpus_per_process: int = 1
    smallest: int = 32 << 20
    largest: int = 32 << 20
    step_bytes: int = 1 << 20
    factor: int = 1
    iterations: int = 20
    warmup: int = 1
    check: int = 1
    dtype: str = "float"
    op: str = "sum"
    root: int = 0
    average: int = 1
    stamps: bool = False
    json: str | None = None
    per_iteration: bool = False
    parallel_init: int = 0
    own: dict[str, str] = field(default_factory=dict)

    @property
    def program(self) -> str:
        """The name of the real program."""
        return f"{self.collective}_perf"

    @property
    def sizes(self) -> list[int]:
        """Sizes to measure, ascending."""
        out = [self.smallest]
        while len(out) < MAX_SIZES:
            size = out[-1] * self.factor if self.factor > 1 else out[-1] + self.step_bytes
            if size > self.largest or size == out[-1]:
                break
            out.append(size)
        return out


def parse(argv: Sequence[str]) -> Options:
    """Return the options of ``<collective> [nccl-tests options] --hosts a,b``.

    Raises ExitError as the real tool ends: usage and exit code 0 for an option it does not know, 255 for a bad size.
    """
    name = argv[0].rsplit("/", 1)[-1].removesuffix("_perf") if argv else ""
    if name not in COLLECTIVES:
        raise ExitError(2, stderr=f"expected a collective first, one of: {', '.join(COLLECTIVES)}; got {name!r}\n")
    try:
        pairs, rest = getopt.gnu_getopt(
            list(argv[1:]), ":".join(_NAMES) + ":h", [f"{n}=" for n in _NAMES.values()] + [*_OWN, "help"]
        )
    except getopt.GetoptError as error:
        raise ExitError(0, f"invalid option '?'\n{usage(name)}", f"{name}_perf: {error.msg}\n") from None
    letters = {f"--{long}": letter for letter, long in _NAMES.items()}
    given: dict[str, str] = {}
    own: dict[str, str] = {}
    for key, value in pairs:
        if key in ("-h", "--help"):
            raise ExitError(0, usage(name))
        if f"{key.removeprefix('--')}=" in _OWN:
            own[key.removeprefix("--")] = value
        else:
            given[letters.get(key, key.removeprefix("-"))] = value
    if rest:
        raise ExitError(2, stderr=f"{name}_perf: unexpected argument {rest[0]!r}\n")
    return _options(name, given, own)


def _options(name: str, given: dict[str, str], own: dict[str, str]) -> Options:
    for letter, only in _ONLY.items():
        if _integer(given, letter, only) != only:
            raise ExitError(2, stderr=f"{name}_perf: the lab's fleet model plays -{letter} {only} only\n")
    smallest = _size(given, "b", 32 << 20)
    largest = _size(given, "e", max(32 << 20, smallest) if "b" not in given else smallest)
    if smallest > largest:
        raise ExitError(255, stderr=f"invalid sizes for 'minbytes' and 'maxbytes': {smallest} > {largest}\n")
    dtype, op = given.get("d", "float"), given.get("o", "sum")
    if dtype not in DTYPE_BYTES or op not in _OPS:
        raise ExitError(
            2, stderr=f"{name}_perf: the lab's fleet model plays one datatype and operation: not {dtype} {op}\n"
        )
    options = Options(
        collective=name,
        gpus_per_process=max(1, _integer(given, "g", 1)),
        smallest=smallest,
        largest=largest,
        step_bytes=max(1, _size(given, "i", 1 << 20)),
        factor=max(1, _integer(given, "f", 1)),
        iterations=min(MAX_ITERATIONS, max(1, _integer(given, "n", 20))),
        warmup=_integer(given, "w", 1),
        check=_integer(given, "c", 1),
        dtype=dtype,
        op=op,
        root=_integer(given, "r", 0),
        average=_integer(given, "a", 1),
        stamps=_integer(given, "S", 0) != 0,
        json=given.get("J"),
        per_iteration=_integer(given, "I", 0) != 0,
        parallel_init=_integer(given, "p", 0),
        own=own,
    )
    if options.average not in (0, 1, 2, 3):
        raise ExitError(2, stderr=f"{name}_perf: -a {options.average}; expected 0, 1, 2 or 3\n")
    return options


def _integer(given: dict[str, str], letter: str, default: int) -> int:
    """Read a number as ``strtol`` does: what follows the digits is dropped, no digits are 0."""
    if letter not in given:
        return default
    found = re.match(r"\s*([+-]?\d{1,9})", given[letter])
    return int(found[1]) if found else 0


def _size(given: dict[str, str], letter: str, default: int) -> int:
    if letter not in given:
        return default
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)([KMGkmg]?)(?:i?B)?", given[letter].strip())
    if not found:
        raise ExitError(255, stderr=f"invalid size specified for '{_NAMES[letter]}'\n")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def usage(name: str) -> str:
    """Return the usage text: one option a line, by its letter and its long name."""
    options = "".join(f"\t[-{letter},--{long} <value>] \n" for letter, long in _NAMES.items())
    own = "".join(f"\t[--{o}<value>] of the lab's stand-in \n" for o in _OWN)
    return f"USAGE: {name}_perf \n{options}{own}\t[-h,--help]\n"
