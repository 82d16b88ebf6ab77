"""Write the reference of all tables, ``docs/tables.md``, from their contracts.

``python -m fabric_health.datasets.reference [FILE]`` writes the file, ``--check`` only compares (exit code 1 when
it is out of date).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from fabric_health.datasets.contracts import COMMON, Column, Row, columns
from fabric_health.datasets.registry import all_tables

DEFAULT_FILE = Path("docs/tables.md")
_HEAD = """\
# Tables

Generated from the contracts in the code: `python -m fabric_health.datasets.reference`. Do not edit.

Objects: `tables/<table>/v=<major>/site=<site>/week=<Monday>/<run>__<part>.parquet` in the bucket. Within a major
version columns are only added, and only nullable ones. Times are UTC. Null means "not measured", never zero.
Query them with `fabric-health sql`, or with any reader of Hive-partitioned Parquet.

Every table also has the columns of its path, `site` and `week`, and these:
"""
_VIEWS = """\
## Views

Made by `fabric-health sql` (definitions: `include/fabric_health/datasets/views.sql`). Only concluded runs count.
"""


def render(tables: Sequence[type[Row]]) -> str:
    """Return the reference as Markdown."""
    parts = [_HEAD, _rows(COMMON)]
    for row_type in sorted(tables, key=lambda t: t.TABLE):
        parts += [
            f"\n## {row_type.TABLE}\n\n{row_type.DESCRIPTION}\n\n"
            f"Version {row_type.MAJOR}. Key: {', '.join(f'`{k}`' for k in row_type.KEY)}.\n",
            _rows(columns(row_type)),
        ]
    parts += ["\n" + _VIEWS, *(f"- `{name}`: {text}" for name, text in _views())]
    return "\n".join(parts) + "\n"


def _rows(spec: Sequence[Column]) -> str:
    head = "| column | type | unit | null | description |\n|---|---|---|---|---|"
    return "\n".join([head, *(_row(c) for c in spec)])


def _row(c: Column) -> str:
    bounds = {
        (True, True): f" (from {_number(c.minimum)} to {_number(c.maximum)})",
        (True, False): f" (at least {_number(c.minimum)})",
        (False, True): f" (at most {_number(c.maximum)})",
    }.get((c.minimum is not None, c.maximum is not None), "")
    text = (c.description + bounds).replace("|", "\\|")
    return f"| `{c.name}` | {c.type.__name__} | {c.unit} | {'yes' if c.nullable else 'no'} | {text} |"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _views() -> list[tuple[str, str]]:
    """Return each view with the comment that stands right above it."""
    text = files("fabric_health.datasets").joinpath("views.sql").read_text(encoding="utf-8")
    out = []
    for match in re.finditer(r"((?:^--[^\n]*\n)*)^CREATE VIEW (\w+) AS", text, re.M):
        comment = " ".join(line.removeprefix("--").strip() for line in match[1].splitlines())
        out.append((match[2], comment))
    return out


def main(arguments: Sequence[str]) -> int:
    """Write or compare the reference. Returns the exit code."""
    check = "--check" in arguments
    names = [a for a in arguments if not a.startswith("--")]
    target = Path(names[0]) if names else DEFAULT_FILE
    text = render(all_tables())
    if check:
        if target.is_file() and target.read_text(encoding="utf-8") == text:
            return 0
        sys.stderr.write(f"{target} is out of date; run `python -m fabric_health.datasets.reference`\n")
        return 1
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
