"""Results of warp as it prints them for people, in both layouts that are about.

The current one has a block ``Report: GET. Concurrency: 32. Ran: 4m57s`` for each operation, the earlier one
``Operation: GET (386413). Ran 1m0s. Concurrency: 20. Hosts: 2.``; details differ between releases, so every line is
read by what it is. Text says less than JSON: hosts are listed only when there are several.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from fabric_health.checks.object_store.quantities import millis, rate_mib, seconds
from fabric_health.checks.object_store.reading import (
    SAMPLES,
    SEGMENT_MEANS,
    HostShare,
    Operation,
    Reading,
    Segments,
    Times,
)

LAYOUT, OLD_LAYOUT = "warp text", "warp text, before 1.1"
MAX_LINES = 20_000
MAX_BLOCKS = 100
MAX_LINE = 1000
_ANSI = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]")
_HEAD = re.compile(r"(Report|Operation): ([A-Za-z]{2,20})\b(.{0,300})")
_SKIPPED = re.compile(r"Skipping ([A-Za-z]{2,20})\b.{0,40}too few samples")
_RATE = re.compile(r"(?:([\d.]{1,20} ?[KMGT]?i?B/s)(?:, )?)?(?:([\d.]{1,20}) obj/s)?(.{0,200})")
_HOST = re.compile(r"\* (https?://[^\s]{1,200}?|[\w.\[\]-]{1,200}:\d{1,5}): Avg: (.{1,200})")
_SPLIT = re.compile(r"split into (\d{1,9}) x (\S{1,20})")
_DECIMAL_LABEL = re.compile(r"(?<=[\d ])([KMGT])B/s")
_ERRORS = re.compile(r"(?:\* )?Errors: (\d{1,15})\b")
_TIME = re.compile(r"(Avg|Best|Worst|Median|50%|90%|99%|90th|99th|Fastest|Slowest|Average): ?([\d.hmsµμun]{1,20})")


def read_warp_text(output: str) -> Reading | None:
    """Read all blocks of ``output``; None when there is none."""
    lines = [_ANSI.sub("", x)[:MAX_LINE].strip() for x in output.splitlines()[:MAX_LINES]]
    blocks = list(itertools.islice(_blocks(lines), MAX_BLOCKS + 1))
    if not blocks:
        return None
    old = any(b.old for b in blocks)
    operations = [_operation(b) for b in blocks]
    problems = [f"more than {MAX_BLOCKS} results"] if len(blocks) > MAX_BLOCKS else []
    names = [o.op for o in operations]
    if len(set(names)) != len(names):
        # Seen in the wild: a block of another run pasted in; which of the two belongs here cannot be told.
        problems.append(
            f"several results of {', '.join(sorted({n for n, times in Counter(names).items() if times > 1}))}"
        )
    return Reading(OLD_LAYOUT if old else LAYOUT, tuple(operations), problems=tuple(problems))


@dataclass
class _Block:
    """The lines of one operation."""

    op: str
    head: str
    old: bool
    skipped: bool = False
    lines: list[str] = field(default_factory=list)


def _blocks(lines: list[str]) -> Iterator[_Block]:
    block: _Block | None = None
    for line in lines:
        head, skipped = _HEAD.match(line), _SKIPPED.search(line)
        if head or skipped:
            if block is not None:
                yield block
            if head:
                op = "MIXED" if head[2].lower() == "total" else head[2].upper()
                block = _Block(op, head[3], head[1] == "Operation")
            elif skipped:
                op = "MIXED" if skipped[1].lower() == "total" else skipped[1].upper()
                block = _Block(op, "", False, skipped=True)
        elif block is not None:
            block.lines.append(line)
    if block is not None:
        yield block


def _operation(block: _Block) -> Operation:
    found = Operation(
        block.op,
        concurrency=_whole(r"Concurrency: (\d{1,9})", block),
        clients=_whole(r"Warp Instances: (\d{1,9})", block),
        object_bytes=_whole(r"Size: (\d{1,18}) bytes", block),
        requests=_whole(r"\((\d{1,18})(?: reqs)?\)", block),
        duration_s=_ran(block),
        errors=0,
    )
    hosts: list[HostShare] = []
    section = ""
    for line in block.lines:
        if line.endswith(":") and not line.startswith("*"):
            section = line
        if errors := _ERRORS.match(line):
            found = replace(found, errors=int(errors[1]))
        elif host := _HOST.match(line):
            mib, rate = _rates(host[2])
            # Errors behind a host's rate are not its own: warp prints the operation's there.
            hosts.append(HostShare(host[1], mib, rate))
        elif split := _SPLIT.search(line):
            found = replace(found, segments=Segments(int(split[1]), seconds(split[2].rstrip(":"))))
            section = line
        else:
            found = _line(found, line, section, block.old)
    found = replace(found, by_host=tuple(hosts), hosts=tuple(sorted(h.host for h in hosts)))
    if block.skipped:
        return _numberless(found, "too few samples: a longer run is needed")
    if found.objects_per_s is None or found.duration_s is None:
        return _numberless(found, "no average or no duration in the result: it is cut or damaged")
    if found.segments.count is None or None in (found.segments.fastest, found.segments.slowest):
        # The segments are what warp prints last: without them the text is cut.
        return _numberless(found, "the text ends before its segments: it is cut")
    return found


def _numberless(found: Operation, problem: str) -> Operation:
    kept = Operation(found.op, found.hosts, found.clients, found.concurrency, found.object_bytes)
    return replace(kept, errors=found.errors or None, requests=found.requests, problem=problem)


def _line(found: Operation, line: str, section: str, old: bool) -> Operation:
    body = line.lstrip("* -").strip()
    if body.startswith(("Average:", "Throughput:")) and found.objects_per_s is None:
        mib, rate = _rates(body.partition(":")[2])
        return replace(found, mib_per_s=mib, objects_per_s=rate)
    if body.startswith(("Reqs: Avg:", "Avg:")) and found.latency == Times() and "by host" not in section:
        times = _times(body, ("Avg", "50%", "90%", "99%", "Slowest"))
        kind = SAMPLES if old else SEGMENT_MEANS
        return replace(found, latency=times, percentiles=kind) if times else found
    if body.startswith(("TTFB:", "First Byte:")) and found.ttfb == Times() and "by host" not in section:
        times = _times(body, ("Avg", "Median", "90th", "99th", "Worst"))
        return replace(found, ttfb=times) if times else found
    for name, key in (("Fastest:", "fastest"), ("50% Median:", "median"), ("Slowest:", "slowest")):
        if body.startswith(name) and "split into" in section:
            mib, rate = _rates(body[len(name) :])
            value = mib if mib is not None else rate
            return replace(found, segments=_with(found.segments, key, value))
    return found


def _with(segments: Segments, key: str, value: float | None) -> Segments:
    if key == "fastest":
        return replace(segments, fastest=value)
    return replace(segments, median=value) if key == "median" else replace(segments, slowest=value)


def _rates(text: str) -> tuple[float | None, float | None]:
    """Return MiB/s (None where no payload is printed) and objects/s.

    Releases of 2019 and 2020 wrote MB/s for 2^20 bytes: the label changed, the arithmetic never did.
    """
    found = _RATE.match(_DECIMAL_LABEL.sub(r"\1iB/s", text.strip()))
    if found is None:
        return None, None
    mib = rate_mib(found[1]) if found[1] else None
    try:
        rate = float(found[2]) if found[2] else None
    except ValueError:
        rate = None
    return mib, rate


def _times(text: str, names: tuple[str, str, str, str, str]) -> Times | None:
    values = {m[1].replace("Average", "Avg"): millis(m[2]) for m in _TIME.finditer(text)}
    picked = [values.get(n) for n in names]
    return Times(*picked) if picked[0] is not None else None


def _whole(pattern: str, block: _Block) -> int | None:
    for line in (block.head, *block.lines[:3]):
        if found := re.search(pattern, line):
            return int(found[1])
    return None


def _ran(block: _Block) -> float | None:
    found = re.search(r"Ran:? (?:Duration: )?([\d.hmsµun]{1,20})", block.head)
    if found:
        return seconds(found[1].rstrip("."))
    # Older still: the duration stands behind the average, in brackets.
    for line in block.lines[:6]:
        if (inner := re.search(r"obj/s.{0,40}\(([\d.hms]{1,20})[,)]", line)) and "Avg" not in line:
            return seconds(inner[1])
    return None
