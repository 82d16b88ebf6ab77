"""What a model folder's weights are: the SHA-256 of each file, and one of all of them."""

from __future__ import annotations

import hashlib
from pathlib import Path


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
