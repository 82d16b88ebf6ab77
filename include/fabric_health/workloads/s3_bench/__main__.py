"""Entry point: one JSON object on standard output; exit code 64 for wrong usage, 69 for a store that cannot be used."""

from __future__ import annotations

import json
import signal
import sys
from types import FrameType
from typing import NoReturn

from fabric_health.workloads.s3_bench.options import WrongUsageError, read
from fabric_health.workloads.s3_bench.run import LoadError, measure

EX_USAGE, EX_UNAVAILABLE = 64, 69


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    # Once: a second signal must not cut the removal of what was written.
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)


def main() -> int:
    """Run one load; being told to end still removes its objects."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _end)
    try:
        result = measure(read(sys.argv[1:]))
    except WrongUsageError as error:
        sys.stderr.write(f"error: {error}\n")
        return EX_USAGE
    except LoadError as error:
        sys.stderr.write(f"error: {error}\n")
        return EX_UNAVAILABLE
    sys.stdout.write(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
