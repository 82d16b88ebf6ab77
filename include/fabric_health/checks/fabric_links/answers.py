"""The text of each tool's answer, or why there is none that can be used."""

from __future__ import annotations

from dataclasses import dataclass, field

from fabric_health.evidence import CommandResult, CommandStatus, UnitEvidence

MAX_DETAIL = 200


@dataclass
class Answers:
    """Answers of one fabric; ``problems`` says, by command, what could not be read and why."""

    evidence: UnitEvidence
    problems: dict[str, str] = field(default_factory=dict)

    def text(self, name: str, exit_codes: tuple[int, ...] = (0,)) -> str | None:
        """Return what a tool printed when it ended as it should and printed something; None otherwise.

        ``exit_codes`` are those that come with a whole answer: some tools tell of findings with 1.
        """
        result = self.evidence.result(name)
        if result is None:
            self.problem(name, "was not asked")
            return None
        reason = _unusable(result, exit_codes)
        if reason:
            self.problem(name, reason)
            return None
        return result.stdout

    def said(self, name: str) -> str:
        """Return everything that a tool printed, on both streams."""
        result = self.evidence.result(name)
        return f"{result.stdout}\n{result.stderr}" if result else ""

    def problem(self, name: str, detail: str) -> None:
        """Note what is wrong with an answer; the first word on it stays."""
        self.problems.setdefault(name, printable(detail)[:MAX_DETAIL])


def _unusable(result: CommandResult, exit_codes: tuple[int, ...]) -> str:
    if result.status is CommandStatus.NOT_INSTALLED:
        return f"{result.argv[0] if result.argv else 'the tool'} is not installed there"
    if not result.ran:
        return f"did not end with a whole answer: {result.status.value.replace('_', ' ')}"
    code = result.exit_code
    if code is None or code not in exit_codes:
        last = next((line for line in reversed(result.stderr.splitlines()) if line.strip()), "")
        ended = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
        return f"{ended}: {last.strip()}" if last else ended
    if not result.stdout.strip():
        last = next((line for line in reversed(result.stderr.splitlines()) if line.strip()), "")
        return "ended with success and printed nothing" + (f": {last.strip()}" if last else "")
    return ""


def printable(text: str) -> str:
    """Return untrusted text with everything unprintable replaced by a space."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
