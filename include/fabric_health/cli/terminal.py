"""What commands print, and with which exit code they end."""

from __future__ import annotations

import time
from enum import IntEnum

from rich.console import Console
from rich.table import Table

from fabric_health.datasets.tables import Answer, Finding

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


class Exit(IntEnum):
    """Exit codes of every command. Usage errors take sysexits' EX_USAGE, since 2 means "could not judge"."""

    HEALTHY = 0
    FINDINGS = 1
    NOT_JUDGED = 2
    USAGE = 64


EXIT_OF = {
    Answer.HEALTHY: Exit.HEALTHY,
    Answer.FINDINGS: Exit.FINDINGS,
    Answer.NOT_JUDGED: Exit.NOT_JUDGED,
}


class Clock:
    """Prints progress on stderr with the seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def tell(self, message: str) -> None:
        """Print one line of progress."""
        err.print(f"[dim]{time.monotonic() - self._start:6.1f} s[/dim]  {_plain(message)}")


def _plain(message: str) -> str:
    """Return untrusted text without control characters (tabs stay) and without console markup."""
    return "".join(c if c.isprintable() or c == "\t" else "?" for c in message).replace("[", "\\[")


def show(message: str) -> None:
    """Print one line of untrusted text on stdout."""
    out.print(_plain(message))


def fail(message: str) -> None:
    """Print an error on stderr, keeping its line breaks."""
    for line in message.splitlines():
        err.print(f"[bold red]error[/bold red]  {_plain(line)}")


def grid(columns: list[str], rows: list[list[str]]) -> None:
    """Print a table of untrusted cells."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for c in columns:
        table.add_column(c, overflow="fold")
    for row in rows:
        table.add_row(*(_plain(cell) for cell in row))
    out.print(table)


def finding_block(f: Finding) -> None:
    """Print a finding as a few lines that stay readable on a narrow terminal and in a log."""
    style = {"critical": "bold red", "warning": "yellow"}.get(f.severity, "dim")
    since = f.first_seen.strftime("since %Y-%m-%d") if f.first_seen else ""
    out.print(f"\n[{style}]{f.severity:9}[/{style}] [bold]{_plain(f.unit)}[/bold]  [dim]{since}[/dim]")
    show(f"          {f.summary}")
    if f.acknowledged_by:
        show(f"          acknowledged by {f.acknowledged_by}")
    elif f.acknowledgement_expired:
        show(f"          acknowledgement of {f.acknowledgement_expired}")
    if f.expected is not None or f.actual is not None:
        show(f"          expected {f.expected or 'unknown'}; actual {f.actual or 'unknown'}")
    for n, line in enumerate((f.action or "").splitlines()):
        show(f"          {'do:' if n == 0 else '   '} {line}")
