"""Tools' environments made for real from a lock, from packages that the test itself builds."""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading
import time
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fabric_health.jobs import environments
from fabric_health.jobs.environments import ToolEnvironmentError, delete_unused, ensure


def wheel(folder: Path, version: str) -> tuple[Path, str]:
    """Write a wheel of one module and return it with its hash."""
    folder.mkdir(exist_ok=True)
    path = folder / f"tinytool-{version}-py3-none-any.whl"
    info = f"tinytool-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("tinytool.py", f"VERSION = {version!r}\n")
        z.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tinytool\nVersion: {version}\n")
        z.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(f"{info}/RECORD", f"tinytool.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def tools(tmp_path, monkeypatch):
    _, digest = wheel(tmp_path / "wheels", "1.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    folder = tmp_path / "tools" / "tiny"
    folder.mkdir(parents=True)
    (folder / "requirements.txt").write_text(f"tinytool==1.0 --hash=sha256:{digest}\n")
    return tmp_path / "tools"


def version_in(python: Path) -> str:
    done = subprocess.run([python, "-c", "import tinytool; print(tinytool.VERSION)"], capture_output=True, text=True)
    return done.stdout.strip()


def test_self_is_the_interpreter_that_runs_this(tmp_path):
    import sys

    assert ensure("self", tmp_path, tmp_path, print) == ensure("", tmp_path, tmp_path, print) == Path(sys.executable)


def test_a_tool_without_a_lock_is_an_error_that_names_the_others(tools, tmp_path):
    with pytest.raises(ToolEnvironmentError, match=r"no tool 'vllm'.*tiny"):
        ensure("vllm", tools, tmp_path, print)
    with pytest.raises(ToolEnvironmentError, match="no tool"):
        ensure("../tiny", tools, tmp_path, print)


def test_made_once_found_again_and_remade_for_another_lock(tools, tmp_path):
    """Two makers at once make one environment; what an interrupted maker left is replaced."""
    told: list[str] = []
    digest_folder = None
    home = tmp_path / "home"
    results: list[Path] = []
    threads = [threading.Thread(target=lambda: results.append(ensure("tiny", tools, home, told.append))) for _ in "12"]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert len(set(results)) == 1
    assert sum("making its environment" in m and "once" in m for m in told) == 1
    assert version_in(results[0]) == "1.0"
    told.clear()
    assert ensure("tiny", tools, home, told.append) == results[0]
    assert told == []
    digest_folder = results[0].parents[1]
    (digest_folder / ".complete").unlink()
    (digest_folder / "bin" / "python").unlink()
    assert version_in(ensure("tiny", tools, home, told.append)) == "1.0"


def test_a_package_that_is_not_the_locked_one_is_refused(tools, tmp_path):
    lock = tools / "tiny" / "requirements.txt"
    lock.write_text(f"tinytool==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(ToolEnvironmentError, match="HASH"):
        ensure("tiny", tools, tmp_path / "home", print)
    assert not list((tmp_path / "home").rglob(".complete"))


def test_pip_sees_no_secret_of_ours(monkeypatch):
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "ours")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "ours")
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example.org/simple")
    seen = environments._environment()
    assert "ours" not in seen.values()
    assert seen["PIP_INDEX_URL"].startswith("https://mirror")


def aged(path: Path, days: float = 40) -> Path:
    at = time.time() - days * 86_400
    os.utime(path, (at, at))
    return path


def test_environments_that_no_job_uses_go_and_come_again(tools, tmp_path):
    """An old one stays while it is used; what a failed maker left goes; what is not ours stays."""
    home = tmp_path / "home"
    month_ago = datetime.now(UTC) - timedelta(days=30)
    python = ensure("tiny", tools, home, print)
    folder, tool = python.parents[1], python.parents[2]
    aged(folder / ".complete")
    assert ensure("tiny", tools, home, print) == python
    assert delete_unused(home, month_ago) == []

    aged(folder / ".complete")
    left = [tool / ".0123456789ac.old", tool / "0123456789ab", tool / "ab0123456789.log"]
    left[0].mkdir()
    left[1].mkdir()
    left[2].write_text("ERROR")
    (tool / "notes").write_text("mine")
    aged(tool / "notes")
    left = [folder, *map(aged, left)]
    assert sorted(delete_unused(home, month_ago, dry_run=True)) == sorted(left)
    assert all(p.exists() for p in left)
    assert sorted(delete_unused(home, month_ago)) == sorted(left)
    assert sorted(p.name for p in tool.iterdir()) == [".lock", "notes"]
    assert delete_unused(home, month_ago) == []
    assert version_in(ensure("tiny", tools, home, print)) == "1.0"
    assert delete_unused(tmp_path / "nowhere", month_ago) == []


def test_an_environment_that_is_taken_or_being_made_is_left(tools, tmp_path, monkeypatch):
    home = tmp_path / "home"
    month_ago = datetime.now(UTC) - timedelta(days=30)
    complete = aged(ensure("tiny", tools, home, print).parents[1] / ".complete")
    with environments._only_one(complete.parents[1], "tiny", print):
        assert delete_unused(home, month_ago) == []
    rename = Path.rename

    def taken_just_before(path: Path, target: Path) -> Path:
        if path == complete.parent:
            assert ensure("tiny", tools, home, print).exists()
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", taken_just_before)
    assert delete_unused(home, month_ago) == []
    assert version_in(complete.parent / "bin" / "python") == "1.0"
