"""The programs of the tool `vllm`, imported as they import each other: by their names, from their own folder."""

from __future__ import annotations

import sys
from pathlib import Path

TOOL = Path(__file__).parents[3] / "include" / "tools" / "vllm"
sys.path.insert(0, str(TOOL))
