"""The programs of the tool `llm-compressor`, imported by their names as they import each other."""

from __future__ import annotations

import sys
from pathlib import Path

TOOL = Path(__file__).parents[3] / "include" / "tools" / "llm-compressor"
sys.path.insert(0, str(TOOL))
