"""The text that the tiny model is trained on: the docstrings of Python's standard library.

Every machine that runs the programs has it, it may be given away (PSF-2.0), and it is the same for every copy of one
Python release. Nothing is downloaded.
"""

from __future__ import annotations

import ast
import hashlib
import sysconfig
from dataclasses import dataclass
from pathlib import Path

SOURCE = "docstrings of Python's standard library"
LICENCE = "PSF-2.0"
SHORTEST = 80
HELD_OUT_OF = 20
# Other people's code, and code that few copies of Python come with.
LEFT_OUT = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idle_test", "_vendor", "_bundled", "ensurepip"}
)


@dataclass(frozen=True)
class Corpus:
    """Documents to learn from and documents that are held out, each in the order of their files."""

    training: tuple[str, ...]
    held_out: tuple[str, ...]

    @property
    def documents(self) -> int:
        """How many documents there are."""
        return len(self.training) + len(self.held_out)

    @property
    def characters(self) -> int:
        """How long they are together."""
        return sum(map(len, self.training)) + sum(map(len, self.held_out))

    @property
    def sha256(self) -> str:
        """What the text is known by."""
        digest = hashlib.sha256()
        for text in (*self.training, "", *self.held_out):
            digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
        return digest.hexdigest()


def docstrings(library: Path) -> list[str]:
    """Return the longer docstrings below a folder in the order of file names and lines, each text once.

    Files that cannot be read as Python of this release are passed over: the library has some on purpose.
    """
    found: dict[str, None] = {}
    for file in sorted(library.rglob("*.py"), key=lambda p: p.relative_to(library).parts):
        if LEFT_OUT.isdisjoint(file.relative_to(library).parts):
            found.update(dict.fromkeys(_of_file(file)))
    return list(found)


def _of_file(file: Path) -> list[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    nodes = [
        n for n in ast.walk(tree) if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    nodes.sort(key=lambda n: getattr(n, "lineno", 0))
    return [text for n in nodes if len(text := ast.get_docstring(n) or "") >= SHORTEST and _clean(text)]


def _clean(text: str) -> bool:
    # Lone surrogates have no UTF-8; no tokenizer takes them.
    return not any("\ud800" <= c <= "\udfff" for c in text)


def held_out(text: str) -> bool:
    """Tell whether a document is kept from training: one in 20, by its hash, so that no other document changes it."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) % HELD_OUT_OF == 0


def corpus(library: Path | None = None) -> Corpus:
    """Return the corpus of this Python, or of another folder; raises ValueError when there is next to nothing."""
    folder = library or Path(sysconfig.get_path("stdlib"))
    texts = docstrings(folder)
    made = Corpus(tuple(t for t in texts if not held_out(t)), tuple(t for t in texts if held_out(t)))
    if len(made.held_out) < 40:
        raise ValueError(f"only {len(texts)} docstrings in {folder}: this Python comes without its library's sources")
    return made


def spread(texts: tuple[str, ...], count: int) -> list[str]:
    """Return ``count`` texts (or all) at equal distances."""
    if len(texts) <= count:
        return list(texts)
    return [texts[i * len(texts) // count] for i in range(count)]
