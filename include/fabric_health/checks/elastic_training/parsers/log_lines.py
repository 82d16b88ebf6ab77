"""Splits logs into messages with their time, whoever wrote them.

DLRover's own lines begin ``[2026-11-30 21:00:00,123] [INFO] [file:line:function]``, its structured events with an ISO
time, lines that Kubernetes or another logger dated with a bare time. Few name a time zone: jobs run with TZ=UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from fabric_health.checks.elastic_training.parsers.numbers import FIRST_TIME, LAST_TIME, MAX_LITERAL

MAX_LINES = 400_000
MAX_LINE = MAX_LITERAL
# How many lines a message may go on for: a result of a rendezvous has eleven.
MAX_MORE = 24
_TIME = re.compile(r"\s?\[?(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?\]?[ ,|]\s?")
# Level and place in the code, behind the time.
_LEVEL = re.compile(r"\[(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\] ?(?:\[[^\]]{0,200}\] ?)?")
# What torchrun puts before lines of a process when it passes them on: [default0]:
_TEE = re.compile(r"\[[A-Za-z][\w-]{0,40}\d\]:\s?")


@dataclass
class Message:
    """One message: its time (seconds since 1970, None without one), its text with the lines it goes on for."""

    at: float | None
    text: str
    more: int = 0


def messages(log: str) -> Iterator[Message]:
    """Yield the messages of a log. A line that is indented belongs to the message before it."""
    open_message: Message | None = None
    for line in _lines(log):
        if open_message is not None and open_message.more < MAX_MORE and _goes_on(line):
            open_message.text += "\n" + line
            open_message.more += 1
            continue
        if open_message is not None:
            yield open_message
        open_message = message(line)
    if open_message is not None:
        yield open_message


def _goes_on(line: str) -> bool:
    return line[:1] in (" ", "\t") and "loss" not in line and "EV {" not in line


def message(line: str) -> Message:
    """Return one line as a message, its time, level and place taken off."""
    tee = _TEE.match(line)
    if tee:
        line = line[tee.end() :]
    found = _TIME.match(line)
    if found is None:
        return Message(None, line)
    text = line[found.end() :]
    level = _LEVEL.match(text)
    return Message(_seconds(found[1], found[2], found[3]), text[level.end() :] if level else text)


def _lines(log: str) -> Iterator[str]:
    at, number = 0, 0
    while at < len(log) and number < MAX_LINES:
        end = log.find("\n", at)
        end = len(log) if end < 0 else end
        if end > at:
            yield log[at : min(end, at + MAX_LINE)].rstrip("\r")
        at, number = end + 1, number + 1


def too_long(log: str) -> bool:
    """Tell whether a log has more lines than are read."""
    return log.count("\n") > MAX_LINES


def _seconds(day_time: str, fraction: str | None, zone: str | None) -> float | None:
    try:
        moment = datetime.fromisoformat(day_time.replace(" ", "T"))
        if zone and zone != "Z":
            moment = datetime.fromisoformat(day_time.replace(" ", "T") + zone)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        seconds = moment.timestamp() + (float(f"0.{fraction}") if fraction else 0.0)
    except (OverflowError, ValueError):
        return None
    return seconds if FIRST_TIME <= seconds < LAST_TIME else None
