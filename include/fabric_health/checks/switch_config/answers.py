"""Reading a switch's answers: what is no answer (error text, HTML, half a document) becomes a problem, never data."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fabric_health.evidence import CommandResult, CommandStatus, UnitEvidence

# Network operating systems print their errors on stdout and mostly exit 0.
_ERROR_LINE = re.compile(
    r"^\s*(?:%\s*(?:Invalid|Unrecognized|Incomplete|Ambiguous|Permission|Authorization|Unavailable|Error|Cmd|Please)"
    r"|ERROR\s*:|Error:|Usage:|Traceback \(most recent|Syntax error|Command not found|-?(?:ba)?sh: |sudo: )",
    re.IGNORECASE,
)
_MARKUP = re.compile(r"^\s*(?:<!DOCTYPE|<html|<\?xml|<head|<body)", re.IGNORECASE)
_PAGER = re.compile(r"(?:--\s?More\s?--|<--- More --->|lines \d{1,9}-\d{1,9}(?:\s|$))")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_MAX_DETAIL = 300


@dataclass
class Answers:
    """Answers of one switch by command name, and the problems met while reading them.

    ``problems`` maps a command's name to what was wrong with its answer, in words for a person.
    """

    evidence: UnitEvidence
    problems: dict[str, str] = field(default_factory=dict)
    _read: dict[str, Any] = field(default_factory=dict, repr=False)

    def problem(self, name: str, detail: str) -> None:
        """Record what is wrong with the answer to ``name``; the first problem of a command stays."""
        self.problems.setdefault(name, clean(detail, _MAX_DETAIL) or "unreadable")

    def text(self, name: str) -> str | None:
        """Return the text answered to ``name``, or None with a recorded problem."""
        result = self.evidence.result(name)
        if result is None:
            self.problem(name, "the evidence holds no answer to this command")
            return None
        fault = _fault(result)
        if fault is not None:
            self.problem(name, fault)
            return None
        return result.stdout.replace("\r\n", "\n").lstrip("\ufeff")

    def json(self, name: str, shape: Callable[[Any], bool], expected: str) -> Any:
        """Return the JSON answered to ``name`` if ``shape`` holds of it, else None with a recorded problem.

        ``expected`` says in words what ``shape`` asks for: the output of another command must not pass.
        """
        if name not in self._read:
            self._read[name] = self._json(name, shape, expected)
        return self._read[name]

    def _json(self, name: str, shape: Callable[[Any], bool], expected: str) -> Any:
        text = self.text(name)
        if text is None:
            return None
        try:
            data = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            self.problem(name, f"not the JSON that was asked for ({reason}): {first_line(text)}")
            return None
        if not shape(data):
            self.problem(name, f"expected {expected}, got: {first_line(text)}")
            return None
        return data

    def matching(self, prefix: str) -> tuple[str, ...]:
        """Return the items of the per-item commands ``prefix:item`` that were asked."""
        return tuple(self.evidence.matching(prefix))


def _fault(result: CommandResult) -> str | None:
    if result.status is not CommandStatus.EXITED:
        return f"the command did not complete: {result.status.value}"
    said = first_line(result.stderr) or first_line(result.stdout)
    if result.exit_code not in (0, None):
        return f"the command failed with exit code {result.exit_code}: {said}"
    if not result.stdout.strip():
        return f"the answer is empty{': ' + said if said else ''}"
    head = "\n".join(line for line in result.stdout[:2000].splitlines() if line.strip())
    if _MARKUP.match(head):
        return f"the answer is a web page or XML: {first_line(head)}"
    # Some devices echo the command or a caret before the error: look at the first few lines.
    for line in head.splitlines()[:4]:
        if _ERROR_LINE.match(line):
            return f"the device refused the command: {line.strip()}"
    if _PAGER.search(result.stdout[-200:]):
        return "the answer stopped at a pager prompt"
    return None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def first_line(text: str) -> str:
    """Return the first line that is not blank, clean and short enough to quote."""
    return next((clean(line, 120) or "" for line in text[:4000].splitlines() if line.strip()), "")


def clean(value: object, limit: int) -> str | None:
    """Return untrusted text without control characters, valid UTF-8, at most ``limit`` characters; None if empty.

    JSON may carry lone surrogates, which no UTF-8 file can hold.
    """
    if not isinstance(value, str):
        return None
    text = _CONTROL.sub("", value[: 4 * limit]).encode("utf-8", "replace").decode("utf-8").strip()
    return text[:limit].rstrip() or None


def mapping(value: object) -> dict[str, Any]:
    """Return ``value`` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def records(value: object) -> list[dict[str, Any]]:
    """Return the JSON objects in ``value``: one object or a list of them (devices collapse lists of one)."""
    if isinstance(value, dict):
        return [value]
    if isinstance(value, list):
        return [v for v in value if isinstance(v, dict)]
    return []
