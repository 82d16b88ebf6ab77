"""First look at a tool's output: escape codes, byte order marks and line ends, with every line bounded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

MAX_CHARS = 16 << 20
MAX_LINE = 4096
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]{0,32}[ -/]?[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|[@-Z\\-_])")
_LINE_ENDS = re.compile(r"\r+(?=\n|\Z)|\ufeff")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def clean(text: str) -> str:
    """Return ``text`` (at most ``MAX_CHARS``) without terminal escapes, carriage returns and byte order marks.

    Any other control character becomes U+FFFD: what stands around it must not grow together into a value.
    """
    text = text[:MAX_CHARS]
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return _CONTROLS.sub("\ufffd", _LINE_ENDS.sub("", text))


def lines(text: str) -> Iterator[str]:
    """Yield the cleaned lines of ``text``, each cut at ``MAX_LINE`` so that no pattern sees more."""
    for line in text[:MAX_CHARS].split("\n"):
        yield clean(line[:MAX_LINE])


def one_line(text: str, limit: int = 200) -> str:
    """Return ``text`` as one printable line of at most ``limit`` characters, to show in a message."""
    line = " ".join(clean(text[: 8 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def json_value(text: str) -> Any:
    """Return the JSON value of ``text``. Raises ValueError for anything else, nesting without end included.

    Warnings that a tool prints before its document are skipped: the document begins at the first line that opens
    an object or a list.
    """
    text = text[:MAX_CHARS].lstrip("\ufeff \t\r\n")
    start = re.search(r"^[ \t]{0,64}[\[{]", text, re.M)
    if start is None:
        raise ValueError("no JSON object or list")
    try:
        return json.loads(text[start.end() - 1 :])
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
