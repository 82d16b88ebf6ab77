"""When two measurements of models may be compared: only when all of a key's fields are equal.

The hash of quantised weights is not among them: each run quantises anew, and whether that gives the same quality is the
question. The source's hash is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

UNKNOWN = "?"
_SHORT = 12


@dataclass(frozen=True)
class Served:
    """What every key of a launch's rows has: the model, where it came from, and what served it on what.

    ``flags`` are those of the server and its environment: all words that say how it runs.
    """

    model: str
    revision: str | None
    scheme: str
    version: str | None
    device: str | None
    flags: tuple[str, ...]

    def key(self, **more: object) -> str:
        """Return the canonical key ``field=value;...``; what is not known is ``?`` and equals only itself."""
        fields: Mapping[str, object] = {
            "model": self.model,
            "revision": self.revision and self.revision[:_SHORT],
            "scheme": self.scheme,
            **more,
            "version": self.version,
            "device": self.device,
            "flags": digest(self.flags),
        }
        return ";".join(f"{name}={_text(value)}" for name, value in fields.items())


def digest(words: Iterable[str]) -> str:
    """Return the first 12 hex digits of the SHA-256 of ``words`` in their order."""
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()[:_SHORT]


def _text(value: object) -> str:
    if value is None or value == "":
        return UNKNOWN
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.replace(";", ",").replace("=", ":")
