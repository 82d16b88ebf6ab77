"""The Makefile finds a Python that fits, and says so where there is none."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("installed", "chosen"),
    [
        (("python3.11", "python3.12", "python3.13"), "python3.11"),
        (("python3.12", "python3.13"), "python3.12"),
        (("python3.13",), "python3.11 which is not there"),
    ],
)
def test_python_that_is_there_is_used(tmp_path: Path, installed: tuple[str, ...], chosen: str) -> None:
    for tool in ("make", "bash"):
        found = shutil.which(tool)
        assert found
        (tmp_path / tool).symlink_to(found)
    for name in installed:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    show = "show:; @echo $(PYTHON) $$(command -v $(PYTHON) >/dev/null || echo which is not there)"
    done = subprocess.run(
        ["make", "--no-print-directory", "--eval", show, "show"],
        cwd=ROOT,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    told = done.stdout.strip()
    assert told == chosen or (told.startswith(f"{tmp_path}/") and told.endswith(f"/{chosen}"))
