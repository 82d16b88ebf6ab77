"""What the runner of a pair prints: who met whom, and each test's own text, file and exit codes.

Lines of the runner start with ``FHPAIR1`` and are JSON; what stands before a ``result`` is perftest's text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from fabric_health.checks.collectives.parsers.perftest import PairLine, PairReading, read_perftest, read_perftest_json

MAGIC = "FHPAIR1 "
_MAX_TEXT = 16 << 20
_MAX_TESTS = 4096
# Half a unit of the last of two digits after the point, in Gb/s or us.
_PRINTED = 0.005


@dataclass(frozen=True)
class PairTest:
    """One device and size: what the tool said, and what went wrong, empty for nothing."""

    device: str
    size_bytes: int
    reading: PairReading
    problem: str = ""


@dataclass
class PairLog:
    """All that one launch says. ``ended`` tells whether the runner came to its last line."""

    server: str = ""
    client: str = ""
    tests: list[PairTest] = field(default_factory=list)
    ended: bool = False
    strange: str = ""


def read_pair_log(text: str, *, gbits: bool) -> PairLog:
    """Read the output of a launch. Never raises; ``gbits`` says whether ``--report_gbits`` was given."""
    log = PairLog()
    lines: list[str] = []
    for line in text[:_MAX_TEXT].splitlines():
        if not line.startswith(MAGIC):
            lines.append(line)
            continue
        event = _event(line)
        kind = event.get("event")
        if kind == "pair" and not log.server and not log.client:
            log.server, log.client = _word(event, "server"), _word(event, "client")
        elif kind == "test" and log.client:
            lines = []
        elif kind == "result" and log.client and len(log.tests) < _MAX_TESTS:
            test = _test(event, "\n".join(lines), gbits=gbits)
            if test is None:
                log.strange = log.strange or line[:160]
            else:
                log.tests.append(test)
            lines = []
        elif kind == "end" and log.client:
            log.ended = event.get("tests") == len(log.tests)
        else:
            log.strange = log.strange or line[:160]
    return log


def _event(line: str) -> dict[str, Any]:
    try:
        event = json.loads(line.removeprefix(MAGIC))
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def _word(event: dict[str, Any], key: str) -> str:
    value = event.get(key)
    return value[:253] if isinstance(value, str) else ""


def _test(event: dict[str, Any], text: str, *, gbits: bool) -> PairTest | None:
    device, size, problem, file = (event.get(k) for k in ("device", "size", "problem", "json"))
    if not isinstance(device, str) or not isinstance(size, int) or isinstance(size, bool):
        return None
    reading = read_perftest(text)
    fine = read_perftest_json(file, gbits=gbits) if isinstance(file, str) else None
    differs = ""
    if fine is not None and not fine.faults:
        # The text has the same row; the file's digits are finer.
        finer = {x.size_bytes: x for x in fine.lines}
        differs = next((d for x in reading.lines if (d := _difference(x, finer.get(x.size_bytes)))), "")
        reading.lines = [finer.get(x.size_bytes, x) for x in reading.lines]
    said = problem if isinstance(problem, str) else "the runner does not say how it ended"
    for end in ("client", "server"):
        if not said and event.get(end) != 0:
            said = f"exit code of the {end}: {str(event.get(end))[:20]}"
    if not said:
        said = "; ".join(detail for _, detail in reading.faults)
    if not said and {x.size_bytes for x in reading.lines} != {size}:
        said = f"no result of {size} B"
    if not said and reading.device != device:
        said = f"the tool used {str(reading.device)[:40]} instead"
    said = said or differs
    return PairTest(device[:80], size, reading, said[:300])


def _difference(text: PairLine, fine: PairLine | None) -> str:
    """Say how a row of the file differs from what was printed, beyond what printing cuts; empty for not at all."""
    if fine is None:
        return f"the file has no result of {text.size_bytes} B"
    if text.iterations != fine.iterations:
        return f"{fine.iterations} iterations in the file, {text.iterations} printed"
    for name, value in text.values.items():
        other = fine.values.get(name)
        if other is not None and abs(other - value) > _PRINTED + 1e-3 * value:
            return f"{name} is {other:g} in the file, {value:g} as printed"
    return ""
