"""What to measure: the command line, checked."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

LOADS = ("get", "put", "mixed", "delete", "stat")
PLACE = "s3-bench"
MAX_PART_BYTES = 16 << 20


class WrongUsageError(Exception):
    """The load cannot be run as asked."""


@dataclass(frozen=True)
class Options:
    """One load. ``requests`` 0 means as many as ``duration_s`` allows; sizes in bytes."""

    load: str
    object_bytes: int
    concurrency: int
    processes: int
    duration_s: float
    warmup_s: float
    requests: int
    objects: int
    max_stored_bytes: int
    bucket: str
    name: str
    endpoint: str
    tls: bool
    region: str | None
    timeout_s: float
    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str | None = field(repr=False, default=None)

    @property
    def prefix(self) -> str:
        """Where this load's objects are."""
        return f"{PLACE}/{self.name}/"

    @property
    def part_bytes(self) -> int:
        """Size of a part; what is larger than one is sent in several, so memory does not grow with the object."""
        return MAX_PART_BYTES

    def threads_of(self, process: int) -> int:
        """Return how many of the concurrent requests ``process`` makes."""
        return share(self.concurrency, self.processes, process)


def share(total: int, parts: int, index: int) -> int:
    """Return part ``index`` of ``total`` divided as evenly as can be."""
    return total // parts + (index < total % parts)


def read(argv: Sequence[str], environment: Mapping[str, str] = os.environ) -> Options:
    """Read command line and environment. Raises WrongUsageError saying what was expected."""
    parser = argparse.ArgumentParser(prog="python -m fabric_health.workloads.s3_bench", description=__doc__)
    parser.add_argument("--load", required=True, choices=LOADS)
    parser.add_argument("--object-bytes", type=int, required=True, help="size of an object")
    parser.add_argument("--concurrency", type=int, default=8, help="requests at the same time")
    parser.add_argument("--processes", type=int, default=2, help="processes that share them")
    parser.add_argument("--duration-s", type=float, default=30.0, help="measured time")
    parser.add_argument("--warmup-s", type=float, default=1.0, help="time before it that is not counted")
    parser.add_argument("--requests", type=int, default=0, help="make this many requests instead of --duration-s")
    parser.add_argument("--objects", type=int, default=256, help="objects written first, for all loads but put")
    parser.add_argument("--max-stored-bytes", type=int, default=4 << 30, help="put: then overwrite the oldest")
    parser.add_argument("--bucket", required=True, help="bucket for benchmarks only")
    parser.add_argument("--name", required=True, help="name of this load within the bucket")
    parser.add_argument("--endpoint", help="host:port; default $S3_ENDPOINT")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--region")
    parser.add_argument("--timeout-s", type=float, default=60.0, help="of one request")
    given = parser.parse_args(argv)
    keys = {k: environment.get(k, "") for k in ("S3_ACCESS_KEY", "S3_SECRET_KEY")}
    missing = [k for k, v in keys.items() if not v]
    if missing:
        raise WrongUsageError(f"{' and '.join(missing)} not set in the environment")
    raw = vars(given)
    raw["endpoint"] = given.endpoint or environment.get("S3_ENDPOINT", "")
    options = Options(
        **raw,
        access_key=keys["S3_ACCESS_KEY"],
        secret_key=keys["S3_SECRET_KEY"],
        session_token=environment.get("S3_SESSION_TOKEN") or None,
    )
    _check(options)
    return options


def _check(o: Options) -> None:
    faults = {
        "--endpoint: expected host:port": re.fullmatch(r"[\w.\[\]:-]{1,253}:\d{1,5}", o.endpoint) is None,
        "--name: expected letters, digits, dots and dashes": re.fullmatch(r"[\w][\w.-]{0,126}", o.name) is None,
        "--object-bytes: expected 1 B to 5 TiB": not 1 <= o.object_bytes <= 5 << 40,
        "--concurrency: expected 1 to 4096": not 1 <= o.concurrency <= 4096,
        "--processes: expected 1 to --concurrency": not 1 <= o.processes <= o.concurrency,
        "--duration-s: expected more than 0": not 0 < o.duration_s <= 86_400,
        "--warmup-s: expected 0 or more": not 0 <= o.warmup_s <= 3600,
        "--requests: expected 0 or at least --concurrency": o.requests and o.requests < o.concurrency,
        "--objects: expected at least --concurrency": not o.concurrency <= o.objects and o.load != "put",
        "--timeout-s: expected more than 0": not 0 < o.timeout_s <= 3600,
    }
    for message, wrong in faults.items():
        if wrong:
            raise WrongUsageError(message)
