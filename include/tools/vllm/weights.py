"""What a model folder's weights are: the SHA-256 of each file, and one of all of them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

MANIFEST = "fabric-health.json"
MANIFEST_BYTES = 64 * 1024


def weight_files(model: Path) -> dict[str, str]:
    """Return the SHA-256 of each ``*.safetensors`` file, by name. Raises ValueError where there is none, or OSError."""
    files = sorted(p for p in model.glob("*.safetensors") if p.is_file())
    if not files:
        raise ValueError(f"{model}: no *.safetensors file; expected a model folder")
    out = {}
    for path in files:
        with open(path, "rb") as file:
            out[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return out


def weights_sha256(files: dict[str, str]) -> str:
    """Return one SHA-256 for all files: that of a line ``NAME SHA256`` for each, in the order of their names."""
    return hashlib.sha256("".join(f"{name} {files[name]}\n" for name in sorted(files)).encode()).hexdigest()


def manifest(model: Path) -> dict[str, Any] | None:
    """Return what the program that wrote the folder says of it; None where it says nothing that can be read."""
    try:
        with open(model / MANIFEST, "rb") as file:
            said = file.read(MANIFEST_BYTES + 1)
        found = json.loads(said) if len(said) <= MANIFEST_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
