"""Vectors of fixed texts, from a server of embeddings."""

from __future__ import annotations

import hashlib
import math
import time
from pathlib import Path
from typing import Any

from steps import StepError, write_json

from quality import Served, texts


def embed(served: Served, path: Path, target: Path, limit_s: float) -> None:
    """Write the vector of each text, asked for one at a time, and how long all took. Raises ApiError, StepError."""
    started = time.monotonic()
    found: list[dict[str, Any]] = []
    tokens = 0
    for name, text in texts(path, "text"):
        answer = served.post("/v1/embeddings", {"input": text, "encoding_format": "float"}, started + limit_s)
        vector = [float(x) for x in answer["data"][0]["embedding"]]
        if not vector or not all(math.isfinite(x) for x in vector):
            raise StepError(f"{name}: expected a vector of finite numbers")
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        found.append({"id": name, "sha256": digest, "vector": vector})
        tokens += int(answer["usage"]["prompt_tokens"])
    sizes = {len(row["vector"]) for row in found}
    if len(sizes) != 1:
        raise StepError(f"vectors of different lengths: {sorted(sizes)}")
    duration_s = round(time.monotonic() - started, 6)
    write_json(target, {"dimension": sizes.pop(), "duration_s": duration_s, "tokens": tokens, "texts": found})
