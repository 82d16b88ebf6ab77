"""Make the embedded model: a tiny Qwen3 trained here, once, on the docstrings of Python's standard library.

    python tiny_model.py --out MODELS/tiny-qwen3 --steps 700 --seed 0 --report model.json

It is a real language model, and a poor one: it exists so that quantising, serving and comparing have something to work
on where there is no other model. The folder is kept, and known by the hash of its recipe: the text, the versions of
the libraries, the arguments and these programs themselves. Asked for again, nothing is done. Exit code 0: the model is
there; 1: it could not be made (the report says why); 64: wrong arguments.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

# Threads that wait must sleep: on processors shared with others, spinning ones keep the others from the work they wait
# for (seen: ten times slower). Read when torch's OpenMP is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.update(
    HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false", HF_HUB_DISABLE_TELEMETRY="1"
)

import continuation_task
import model_folder
import tiny_corpus
import tiny_training
from model_folder import MANIFEST, UsageError

CALIBRATION_TEXTS = 512
ITEMS = 200
PROMPTS = 16
TEXTS, TEXT_CHARACTERS = 24, 300
# All that makes the model; a changed byte makes another one.
PROGRAM = ("continuation_task.py", "model_folder.py", "tiny_corpus.py", "tiny_model.py", "tiny_training.py")
LIBRARIES = ("torch", "transformers", "tokenizers", "numpy")

CARD = """\
---
license: psf-2.0
library_name: transformers
pipeline_tag: text-generation
---
# tiny-qwen3

A language model of {parameters} parameters with the architecture Qwen3, trained by fabric-health on this machine:
{steps} steps on {source} ({documents} texts, {characters} characters). It is for testing
a cluster's model chain. It knows nothing and must not be used for anything else.

- Text: Python's, under the Python Software Foundation License 2.0 (a few modules carry permissive notices of their own,
  see `Doc/license.rst` of CPython). Weights and the files made from that text are given under the same licence.
- Perplexity of held-out text: {perplexity} (knowing only how frequent tokens are: {unigram_perplexity}). One text
  in {held_out_of} was held out; some are near copies of others: the number compares forms of this model, nothing else.
- `calibration.jsonl`: training texts, for quantising. `evaluation.jsonl`: all held-out texts. `prompts.jsonl`,
  `texts.jsonl`, `tasks/`: made from held-out texts. `{manifest}`: recipe, hashes, versions.
"""


def recipe(corpus: tiny_corpus.Corpus, shape: tiny_training.Shape, plan: tiny_training.Plan) -> dict[str, Any]:
    """Return all that determines the model, as plain values."""
    folder = Path(__file__).parent
    return {
        "corpus": corpus.sha256,
        "versions": versions(),
        **tiny_training.described(shape, plan),
        "data": {"calibration": CALIBRATION_TEXTS, "items": ITEMS, "prompts": PROMPTS, "texts": TEXTS},
        "program": {name: model_folder.file_sha256(folder / name) for name in PROGRAM},
    }


def recipe_sha256(described: dict[str, Any]) -> str:
    """Return the hash of a recipe."""
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def versions() -> dict[str, str]:
    """Return the versions that the weights depend on."""
    return {**{name: version(name) for name in LIBRARIES}, "python": platform.python_version()}


def found(target: Path, wanted: str) -> tuple[str, dict[str, Any] | None]:
    """Say what is at ``target``, and return its manifest when it is the model wanted, whole.

    "absent", "other recipe", "damaged: <file>, ..." (files that are not what was written) or "same".
    """
    try:
        manifest = json.loads((target / MANIFEST).read_text(encoding="utf-8"))
        known, files = manifest["recipe_sha256"], manifest["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return ("other recipe" if target.exists() else "absent"), None
    if known != wanted:
        return "other recipe", None
    there = model_folder.file_hashes(target)
    wrong = sorted(n for n in {*there, *files} if there.get(n) != files.get(n))
    if wrong:
        return f"damaged: {', '.join(wrong)[:200]}", None
    return "same", manifest


def make(
    part: Path, corpus: tiny_corpus.Corpus, shape: tiny_training.Shape, plan: tiny_training.Plan
) -> dict[str, Any]:
    """Train, write the folder's files, and return what the manifest says, hashes included."""
    network, tokens, result = tiny_training.trained(corpus.training, corpus.held_out, shape, plan)
    network.save_pretrained(part)
    tokens.save_pretrained(part)
    write_data(part, corpus, plan.seed)
    about: dict[str, Any] = {
        "program": "tiny_model",
        "recipe": recipe(corpus, shape, plan),
        "parameters": result.parameters,
        "bytes": model_folder.weights_bytes(part),
        "steps": plan.steps,
        "seed": plan.seed,
        "threads": plan.threads,
        "loss_first": result.loss_first,
        "loss_last": result.loss_last,
        "perplexity": result.perplexity,
        "unigram_perplexity": result.unigram_perplexity,
        "train_s": result.train_s,
        "corpus": {
            "source": tiny_corpus.SOURCE,
            "licence": tiny_corpus.LICENCE,
            "documents": corpus.documents,
            "characters": corpus.characters,
            "sha256": corpus.sha256,
        },
        "versions": versions(),
    }
    card = CARD.format(**{**about, **about["corpus"]}, held_out_of=tiny_corpus.HELD_OUT_OF, manifest=MANIFEST)
    (part / "README.md").write_text(card, encoding="utf-8")
    files = model_folder.file_hashes(part)
    about.update(
        recipe_sha256=recipe_sha256(about["recipe"]), weights_sha256=model_folder.weights_sha256(files), files=files
    )
    model_folder.write_json(part / MANIFEST, about)
    return about


def write_data(part: Path, corpus: tiny_corpus.Corpus, seed: int) -> None:
    """Write what the model is quantised and judged with."""
    calibration = tiny_corpus.spread(corpus.training, CALIBRATION_TEXTS)
    model_folder.write_lines(part / "calibration.jsonl", [{"text": t} for t in calibration])
    model_folder.write_lines(part / "evaluation.jsonl", [{"text": t} for t in corpus.held_out])
    model_folder.write_lines(part / "prompts.jsonl", continuation_task.prompts(corpus.held_out, PROMPTS))
    texts = [t[:TEXT_CHARACTERS] for t in tiny_corpus.spread(corpus.held_out, TEXTS)]
    model_folder.write_lines(part / "texts.jsonl", [{"id": f"text-{i:02d}", "text": t} for i, t in enumerate(texts)])
    tasks = part / "tasks"
    tasks.mkdir()
    (tasks / f"{continuation_task.NAME}.yaml").write_text(continuation_task.TASK, encoding="utf-8")
    made = continuation_task.items(corpus.held_out, ITEMS, seed)
    model_folder.write_lines(tasks / f"{continuation_task.NAME}.jsonl", made)


def parsed(argv: list[str]) -> argparse.Namespace:
    """Read the command line; raises UsageError."""
    parser = argparse.ArgumentParser(prog="tiny_model.py", description=__doc__.splitlines()[0], exit_on_error=False)
    parser.add_argument("--out", type=Path, required=True, help="folder of the model")
    parser.add_argument("--report", type=Path, required=True, help="file to write the report to")
    parser.add_argument("--steps", type=int, default=700, help="steps of training, 1 to 100000")
    parser.add_argument("--seed", type=int, default=0, help="0 to 2^31-1")
    parser.add_argument("--threads", type=int, default=2, help="threads of the arithmetic, 1 to 64; part of the recipe")
    options = model_folder.read_arguments(parser, argv)
    for name, least, most in (("steps", 1, 100_000), ("seed", 0, 2**31 - 1), ("threads", 1, 64)):
        if not least <= getattr(options, name) <= most:
            raise UsageError(f"--{name} {getattr(options, name)}: expected {least} to {most}")
    options.out = model_folder.checked_target(options.out)
    return options


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Return the report of the model at ``options.out``, made when it is not there."""
    began = time.monotonic()
    corpus = tiny_corpus.corpus()
    shape = tiny_training.Shape()
    plan = tiny_training.Plan(steps=options.steps, seed=options.seed, threads=options.threads)
    with model_folder.only_one(options.out):
        state, manifest = found(options.out, recipe_sha256(recipe(corpus, shape, plan)))
        model_folder.tell(f"{options.out}: {state}")
        if manifest is None:
            with model_folder.in_place_when_done(options.out) as part:
                manifest = make(part, corpus, shape, plan)
    return {
        **manifest,
        "cached": state == "same",
        "found": state,
        "duration_s": round(time.monotonic() - began, 2),
        "peak_memory_mib": model_folder.peak_memory_mib(),
        "problem": "",
    }


def main(argv: list[str]) -> int:
    """Run the program; return its exit code."""
    model_folder.end_on_signals()
    try:
        options = parsed(argv)
    except UsageError as problem:
        return model_folder.refuse(problem)
    return model_folder.reported("tiny_model", options.report, lambda: run(options))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
