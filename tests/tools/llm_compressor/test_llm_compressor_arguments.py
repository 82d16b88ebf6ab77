"""What both programs refuse, and in which words; the recipes; the text, the task and the prompts. No torch here."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import continuation_task
import model_folder
import pytest
import quantise
import tiny_corpus
import tiny_model
import tiny_training
import yaml
from hypothesis import given
from hypothesis import strategies as st
from model_folder import UsageError
from schemes import MODULES, SCHEMES


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 1024}))
    (folder / "model.safetensors").write_bytes(b"w")
    (folder / "calibration.jsonl").write_text("".join(json.dumps({"text": f"text {i}"}) + "\n" for i in range(9)))
    return folder


def arguments(folder: Path, /, **changes: Any) -> list[str]:
    chosen = {
        "model": folder,
        "scheme": "w8a8-gptq",
        "out": folder.with_name("q"),
        "calibration": folder / "calibration.jsonl",
        "samples": 4,
        "max-length": 64,
        "report": folder.with_name("report.json"),
    }
    return [w for k, v in {**chosen, **changes}.items() if v is not None for w in (f"--{k}", str(v))]


def test_good_arguments(model: Path) -> None:
    options = quantise.parsed(arguments(model))
    assert (options.scheme, options.samples, options.max_length, options.seed) == ("w8a8-gptq", 4, 64, 0)


def test_a_scheme_that_looks_at_no_text_needs_none(model: Path) -> None:
    changes = {"scheme": "fp8-dynamic", "calibration": None, "samples": None, "max-length": None}
    assert quantise.parsed(arguments(model, **changes)).calibration is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scheme": "w2a2"}, "expected one of w8a8-gptq, w8a8-smoothquant-gptq, fp8-dynamic, w4a16-gptq, w4a16-awq"),
        ({"model": "/nowhere"}, "expected config.json and"),
        ({"model": None}, "--model"),
        ({"calibration": None}, "expected --calibration"),
        ({"samples": 0}, "expected 1 to"),
        ({"samples": "many"}, "--samples"),
        ({"max-length": 4096}, "1024 tokens at most"),
        ({"seed": -1}, "expected 0 to"),
        ({"speed": 3}, "--speed"),
    ],
)
def test_arguments_refused(model: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        quantise.parsed(arguments(model, **changes))


def test_a_model_is_not_quantised_onto_itself_or_twice(model: Path) -> None:
    for out in (model, model / "q", model / ".." / "m"):
        with pytest.raises(UsageError, match="itself or in it"):
            quantise.parsed(arguments(model, out=out))
    (model / "config.json").write_text('{"quantization_config": {}}')
    with pytest.raises(UsageError, match="quantised already"):
        quantise.parsed(arguments(model))


@pytest.mark.parametrize("content", ["not json", "[]", '"text"', "null", ""])
def test_rubbish_for_a_configuration(model: Path, content: str) -> None:
    (model / "config.json").write_text(content)
    with pytest.raises(UsageError):
        quantise.parsed(arguments(model))


@pytest.mark.parametrize("program", ["quantise.py", "tiny_model.py"])
def test_misuse_is_one_line_and_64(tmp_path: Path, program: str) -> None:
    tool = Path(model_folder.__file__).parent
    ended = subprocess.run(
        [sys.executable, str(tool / program), "--out", str(tmp_path / "x")], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 64
    assert ended.stderr.startswith("error: ")
    assert ended.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_calibration_is_drawn_by_the_seed(model: Path) -> None:
    file = model / "calibration.jsonl"
    drawn = quantise.calibration_texts(file, 5, 0)
    assert drawn == quantise.calibration_texts(file, 5, 0)
    assert drawn != quantise.calibration_texts(file, 5, 1)
    assert len(set(drawn)) == 5
    with pytest.raises(UsageError, match="has 9 texts"):
        quantise.calibration_texts(file, 10, 0)
    with pytest.raises(UsageError, match="expected lines of JSON"):
        quantise.calibration_texts(model / "absent", 1, 0)


@given(st.binary(max_size=80))
def test_no_calibration_file_crashes_or_passes_silently(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    file = tmp_path_factory.getbasetemp() / "calibration.jsonl"
    file.write_bytes(content)
    try:
        texts = quantise.calibration_texts(file, 1, 0)
    except UsageError:
        return
    assert texts
    assert texts[0].strip()


def test_every_scheme_is_complete() -> None:
    assert {s.format for s in SCHEMES.values()} == {
        "int-quantized",
        "float-quantized",
        "pack-quantized",
        "nvfp4-pack-quantized",
    }
    for scheme in SCHEMES.values():
        assert {step.modifier for step in scheme.recipe} <= set(MODULES)
        json.dumps([step.described() for step in scheme.recipe])
        assert scheme.recipe[-1].arguments["ignore"] == ["lm_head"]


def test_shape_can_be_quantised_in_groups() -> None:
    shape = tiny_training.Shape()
    for size in (shape.vocabulary, shape.hidden, shape.intermediate, shape.heads * shape.head_dim):
        assert size % 128 == 0


@pytest.mark.parametrize("changes", [{"steps": 0}, {"seed": -1}, {"threads": 65}])
def test_tiny_models_that_are_refused(tmp_path: Path, changes: dict[str, int]) -> None:
    words = [w for k, v in changes.items() for w in (f"--{k}", str(v))]
    with pytest.raises(UsageError, match="expected"):
        tiny_model.parsed(["--out", str(tmp_path / "m"), "--report", str(tmp_path / "r"), *words])


WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]


def text(seed: int, words: int = 60) -> str:
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) + ("\n" if draw.random() < 0.1 else "") for _ in range(words))


def library(folder: Path, count: int) -> Path:
    for number in range(count):
        (folder / f"m{number:04d}.py").write_text(f'def f():\n    """{text(number)}"""\n')
    return folder


def test_corpus_is_split_once_and_for_all(tmp_path: Path) -> None:
    made = tiny_corpus.corpus(library(tmp_path, 1500))
    assert made.documents == 1500
    assert not set(made.training) & set(made.held_out)
    assert 0.02 < len(made.held_out) / made.documents < 0.09
    (tmp_path / "n.py").write_text(f'"""{text(9999)}"""')
    more = tiny_corpus.corpus(tmp_path)
    assert set(made.held_out) <= set(more.held_out)
    assert more.sha256 != made.sha256
    assert tiny_corpus.corpus(tmp_path) == more


def test_docstrings_are_long_distinct_and_of_the_library_itself(tmp_path: Path) -> None:
    long = text(1)
    (tmp_path / "a.py").write_text(f'"""{long}"""\nclass C:\n    """{long}"""\n    def f(self):\n        """short"""\n')
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "null.py").write_bytes(b"\0")
    for folder in ("test", "site-packages"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "b.py").write_text(f'"""{text(2)}"""')
    assert len(tiny_corpus.docstrings(tmp_path)) == 1
    with pytest.raises(ValueError, match="without its library's sources"):
        tiny_corpus.corpus(tmp_path)


def test_items_differ_in_the_order_of_words_alone() -> None:
    texts = tuple(text(i) for i in range(40))
    made = continuation_task.items(texts, 50, 0)
    assert made == continuation_task.items(texts, 50, 0)
    assert made != continuation_task.items(texts, 50, 1)
    whole = ["".join(f" {w}" for w in t.split()) for t in texts]
    for item in made:
        assert len(set(item["choices"])) == 4
        assert len({tuple(sorted(c.split())) for c in item["choices"]}) == 1
        right = "".join(f" {w}" for w in item["context"].split()) + item["choices"][item["label"]]
        assert any(right in t for t in whole)
    assert {item["label"] for item in made} == {0, 1, 2, 3}
    with pytest.raises(ValueError, match="are wanted"):
        continuation_task.items(texts[:2], 50, 0)


def test_the_task_says_where_its_fields_are() -> None:
    task = yaml.safe_load(continuation_task.TASK)
    assert task["task"] == "continuation"
    assert task["dataset_kwargs"]["data_files"] == {"test": "continuation.jsonl"}
    (item,) = continuation_task.items(tuple(text(i) for i in range(9)), 1, 0)
    for key in ("doc_to_text", "doc_to_choice", "doc_to_target"):
        assert task[key].strip("{}") in item


def test_prompts_are_beginnings(tmp_path: Path) -> None:
    texts = tuple(text(i) for i in range(20))
    made = continuation_task.prompts(texts, 16)
    assert len({p["id"] for p in made}) == 16
    assert all(any(t.startswith(p["prompt"]) for t in texts) for p in made)


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(tiny_model, "versions", lambda: {"torch": "1"})
    corpus = tiny_corpus.Corpus(("a",), ("b",))

    def make(texts: tuple[str, ...] = ("a",), **plan: int) -> str:
        chosen = {"steps": 10, "seed": 0, "threads": 2, **plan}
        made = tiny_model.recipe(
            tiny_corpus.Corpus(texts, corpus.held_out), tiny_training.Shape(), tiny_training.Plan(**chosen)
        )
        return tiny_model.recipe_sha256(made)

    return make


def test_all_that_makes_the_model_is_in_its_recipe(recipe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = recipe()
    assert recipe() == first
    others = [recipe(("c",)), recipe(steps=11), recipe(seed=1), recipe(threads=1)]
    monkeypatch.setattr(tiny_model, "versions", lambda: {"torch": "2"})
    others.append(recipe())
    monkeypatch.setattr(model_folder, "file_sha256", lambda file: f"changed {file.name}")
    others.append(recipe())
    assert len({first, *others}) == 7
    assert set(tiny_model.PROGRAM) == {p.name for p in Path(tiny_model.__file__).parent.glob("*.py")} - {
        "quantise.py",
        "schemes.py",
    }


def test_a_kept_model_is_used_only_whole(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    assert tiny_model.found(folder, "wanted") == ("absent", None)
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"w")
    assert tiny_model.found(folder, "wanted") == ("other recipe", None)
    manifest = {"recipe_sha256": "wanted", "files": model_folder.file_hashes(folder)}
    model_folder.write_json(folder / model_folder.MANIFEST, manifest)
    assert tiny_model.found(folder, "wanted") == ("same", manifest)
    assert tiny_model.found(folder, "another") == ("other recipe", None)
    (folder / "model.safetensors").write_bytes(b"v")
    assert tiny_model.found(folder, "wanted") == ("damaged: model.safetensors", None)
    (folder / model_folder.MANIFEST).write_text("{")
    assert tiny_model.found(folder, "wanted") == ("other recipe", None)
