"""Model folders: the hashes they are known by, and that they appear whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import model_folder
import pytest
from model_folder import UsageError


def fill(folder: Path, content: bytes = b"weights") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(content)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if not p.name.endswith(".lock"))


def test_weights_are_known_by_names_and_hashes(tmp_path: Path) -> None:
    folder = fill(tmp_path / "m")
    (folder / "a.safetensors").write_bytes(b"first")
    lines = [(n, hashlib.sha256(b).hexdigest()) for n, b in (("a", b"first"), ("model", b"weights"))]
    expected = hashlib.sha256("".join(f"{n}.safetensors {sha}\n" for n, sha in lines).encode()).hexdigest()
    assert model_folder.weights_sha256(model_folder.file_hashes(folder)) == expected
    assert model_folder.weights_bytes(folder) == len(b"first") + len(b"weights")
    (folder / "config.json").write_text('{"other": 1}')
    assert model_folder.weights_sha256(model_folder.file_hashes(folder)) == expected
    (folder / "a.safetensors").write_bytes(b"firsT")
    assert model_folder.weights_sha256(model_folder.file_hashes(folder)) != expected


def test_no_weights_have_no_hash(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(ValueError, match="no"):
        model_folder.weights_sha256(model_folder.file_hashes(tmp_path))


def test_the_manifest_is_not_among_the_files_it_lists(tmp_path: Path) -> None:
    folder = fill(tmp_path / "m")
    before = model_folder.file_hashes(folder)
    (folder / model_folder.MANIFEST).write_text("{}")
    assert model_folder.file_hashes(folder) == before


@pytest.mark.parametrize("exchange", [True, False])
def test_a_folder_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool) -> None:
    if not exchange:
        monkeypatch.setattr(model_folder, "_exchanged", lambda *_: False)
    target = fill(tmp_path / "m", b"old")
    (target / "of-the-old-one").write_text("")
    with model_folder.only_one(target), model_folder.in_place_when_done(target) as part:
        fill(part, b"new")
        os.chmod(part / "model.safetensors", 0o600)
        assert (target / "model.safetensors").read_bytes() == b"old"
    assert names(target) == ["config.json", "model.safetensors"]
    assert (target / "model.safetensors").read_bytes() == b"new"
    assert stat.S_IMODE((target / "model.safetensors").stat().st_mode) & 0o044
    assert names(tmp_path) == ["m"]


def test_what_fails_leaves_the_old_one(tmp_path: Path) -> None:
    target = fill(tmp_path / "m", b"old")

    def make() -> None:
        with model_folder.only_one(target), model_folder.in_place_when_done(target) as part:
            fill(part, b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        make()
    assert (target / "model.safetensors").read_bytes() == b"old"
    assert names(tmp_path) == ["m"]


def test_what_killed_makers_left_is_cleared_away(tmp_path: Path) -> None:
    fill(tmp_path / ".m.part-123")
    fill(tmp_path / ".m.w8a8.part-7")
    fill(tmp_path / ".m.old-5", b"kept")
    with model_folder.only_one(tmp_path / "m"):
        # Another model's maker may be at work; and a change of names that was cut in two is undone.
        assert names(tmp_path) == [".m.w8a8.part-7", "m"]
    assert (tmp_path / "m" / "model.safetensors").read_bytes() == b"kept"


PROGRAM = """
import sys, time
sys.path.insert(0, sys.argv[1])
import model_folder
from pathlib import Path
target = Path(sys.argv[2])
model_folder.end_on_signals()
def work():
    with model_folder.only_one(target), model_folder.in_place_when_done(target) as part:
        (part / "half").write_text("")
        model_folder.tell("at work")
        time.sleep(60)
sys.exit(model_folder.reported("p", Path(sys.argv[3]), work))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_cancelled_maker_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    models, report = tmp_path / "models", tmp_path / "report.json"
    argv = [sys.executable, "-c", PROGRAM, str(Path(model_folder.__file__).parent), str(models / "m"), str(report)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at work\n"
        process.send_signal(number)
        assert process.wait(30) == 128 + number
    assert names(models) == []
    assert json.loads(report.read_text())["problem"] == f"ended by signal {int(number)}"


def test_a_failure_is_reported_and_misuse_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> dict[str, object]:
        raise OSError("no\nspace")

    def misused() -> dict[str, object]:
        raise UsageError("expected\nthis")

    assert model_folder.reported("p", tmp_path / "r.json", fails) == 1
    assert json.loads((tmp_path / "r.json").read_text())["problem"] == "OSError: no space"
    assert model_folder.reported("p", tmp_path / "s.json", misused) == 64
    assert not (tmp_path / "s.json").exists()
    assert capsys.readouterr().err.endswith("error: expected this\n")
    assert names(tmp_path) == ["r.json"]


def test_only_models_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()
    assert model_folder.checked_target(tmp_path / "documents") == tmp_path / "documents"
    (tmp_path / "documents" / "thesis.txt").write_text("")
    (tmp_path / "file").write_text("")
    for taken in ("documents", "file"):
        with pytest.raises(UsageError, match="no model"):
            model_folder.checked_target(tmp_path / taken)
    assert model_folder.checked_target(fill(tmp_path / "m"))
