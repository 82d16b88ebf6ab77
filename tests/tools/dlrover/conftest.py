"""The tool's programs are scripts beside each other, without a package: imported as they find each other."""

from __future__ import annotations

import sys
from pathlib import Path

TOOL = Path(__file__).parents[3] / "include" / "tools" / "dlrover"
sys.path.insert(0, str(TOOL))
