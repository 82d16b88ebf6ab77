"""Recorded outputs for the tests of this check."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parents[2] / "fixtures" / "model_eval"

# Launches and reports that the tests here build on.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def text_of() -> Callable[[str], str]:
    """Return what reads a recorded output by its file name."""
    return lambda name: (FIXTURES / name).read_text(encoding="utf-8")
