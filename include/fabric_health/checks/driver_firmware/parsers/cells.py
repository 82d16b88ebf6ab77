"""Cells: what a tool said about one attribute, always one of a value, unsupported, or an error with its reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fabric_health.checks.driver_firmware.parsers.text import MAX_CHARS, one_line
from fabric_health.datasets.tables import FactState
from fabric_health.evidence import CommandResult, CommandStatus

MAX_VALUE = 200
VERSION = re.compile(r"[0-9A-Za-z]{1,32}(?:[._+~:-][0-9A-Za-z]{1,48}){1,12}")
_PERMISSION = re.compile(
    r"permission denied|operation not permitted|insufficient permission|must be root|requires? root|<access denied>",
    re.I,
)
_TIMEOUT_CODES = {124: "timeout", 137: "killed"}


@dataclass(frozen=True)
class Cell:
    """One attribute as the tool gave it. ``value`` is set exactly when ``state`` is ``VALUE``, else ``detail`` is."""

    state: FactState
    value: str | None = None
    detail: str | None = None


def value(text: str) -> Cell:
    """Return a cell that holds ``text``."""
    return Cell(FactState.VALUE, text)


def unsupported(detail: str) -> Cell:
    """Return a cell for what this tool or hardware says it does not have."""
    return Cell(FactState.UNSUPPORTED, detail=one_line(detail))


def error(detail: str) -> Cell:
    """Return a cell for what could not be read, and why."""
    return Cell(FactState.ERROR, detail=one_line(detail) or "no reason given")


def matching(text: str | None, pattern: re.Pattern[str], what: str) -> Cell:
    """Return ``text`` when the whole of it matches ``pattern``, else an error that says ``what`` was expected."""
    stripped = (text or "")[: 4 * MAX_VALUE].strip()
    if not stripped:
        return error(f"empty; expected {what}")
    if len(stripped) > MAX_VALUE or not pattern.fullmatch(stripped):
        return error(f"{stripped!r}; expected {what}")
    return value(stripped)


def version(text: str | None) -> Cell:
    """Return a version such as ``580.126.09`` or ``28.41.1000``."""
    return matching(text, VERSION, "a version")


_PHRASE = re.compile(r"[^\W_](?:[^\x00-\x1f<>\ufffd]{0,198}[^\s<>\ufffd])?")


def phrase(text: str | None, what: str) -> Cell:
    """Return a short printable text without markup, such as a product name."""
    return matching(text, _PHRASE, what)


_COUNT = re.compile(r"[0-9]{1,20}")


def count(text: str | None) -> Cell:
    """Return a decimal count without leading zeros."""
    cell = matching(text, _COUNT, "a count")
    return value(str(int(cell.value))) if cell.value is not None else cell


def choice(text: str | None, choices: Mapping[str, str]) -> Cell:
    """Return the canonical word for ``text`` among ``choices`` (keys compared without case)."""
    stripped = (text or "")[: 4 * MAX_VALUE].strip()
    for word, canonical in choices.items():
        if stripped.casefold() == word.casefold():
            return value(canonical)
    return error(f"{stripped!r}; expected one of {', '.join(choices)}")


def yes_no(flag: object) -> Cell:
    """Return ``yes`` or ``no`` for a boolean, an error for anything else."""
    if flag is True:
        return value("yes")
    if flag is False:
        return value("no")
    return error(f"{flag!r}; expected true or false")


def failure(result: CommandResult | None, *, any_exit: bool = False) -> Cell | None:
    """Return why ``result`` has no output to read as a whole, None when it has.

    A command that timed out, was cut or killed is never read in part. ``any_exit`` accepts every other exit code,
    for tools whose output is complete in spite of it (smartctl's is a bit mask).
    """
    if result is None:
        return error("not run: no such command in the evidence")
    if result.status is CommandStatus.NOT_INSTALLED or (result.ran and result.exit_code == 127):
        return error("not installed")
    if result.status is CommandStatus.TIMEOUT:
        return error(f"timeout after {(result.ended_at - result.started_at).total_seconds():.0f} s")
    if result.status is CommandStatus.TRUNCATED or len(result.stdout) > MAX_CHARS:
        return error("output truncated at its size limit")
    if result.status is CommandStatus.NOT_RUN:
        return error(f"not run: {one_line(result.stderr) or 'the unit gave no answer to it'}")
    code = result.exit_code
    if code is None:
        return error("ended without an exit code")
    if code in _TIMEOUT_CODES:
        return error(f"{_TIMEOUT_CODES[code]} (exit code {code})")
    if code != 0 and not any_exit:
        return said(result)
    return None


def said(result: CommandResult) -> Cell:
    """Return an error with what the tool printed instead of an answer."""
    text = one_line(result.stderr) or one_line(result.stdout) or "nothing printed"
    prefix = "permission: " if _PERMISSION.search(text) else ""
    return error(f"{prefix}exit code {result.exit_code}: {text}")


def is_missing_tool(result: CommandResult | None) -> bool:
    """Return True when the program of ``result`` is not installed."""
    cell = failure(result, any_exit=True)
    return cell is not None and cell.detail == "not installed"


def read(result: CommandResult | None, parse: Callable[[str], Cell]) -> Cell:
    """Return ``parse(stdout)`` when the command answered in full, else why it did not."""
    if result is None:
        return error("not run: no such command in the evidence")
    return failure(result) or parse(result.stdout)
