"""Quantise a model with llm-compressor by one of the fixed schemes, measure it, and put the result in place whole.

    python quantise.py --model MODELS/tiny-qwen3 --scheme w8a8-gptq --out MODELS/tiny-qwen3.w8a8-gptq
        --calibration MODELS/tiny-qwen3/calibration.jsonl --samples 64 --max-length 256 --seed 0 --report quantise.json

On the GPU where there is one, on the processors otherwise. What was written is loaded again before it takes its place.
Exit code 0: it is there; 1: it could not be made (the report says why), and nothing was changed; 64: wrong arguments.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import platform
import random
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

# See tiny_model.py: threads that wait sleep.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.update(
    HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false", HF_HUB_DISABLE_TELEMETRY="1"
)

import model_folder
from model_folder import MANIFEST, UsageError
from schemes import MODULES, QUANT_METHOD, SCHEMES, Scheme

LIBRARIES = {
    "llmcompressor": "llmcompressor",
    "compressed_tensors": "compressed-tensors",
    "transformers": "transformers",
    "torch": "torch",
}
# Weights of a Linear module in a compressed folder, by compressed-tensors' naming.
SCALE = ".weight_scale"
# What a quantised model is asked once before it is put in place, where no text was given.
ASKED = "Return the number of items in the list."


def parsed(argv: list[str]) -> argparse.Namespace:
    """Read the command line; raises UsageError."""
    parser = argparse.ArgumentParser(prog="quantise.py", description=__doc__.splitlines()[0], exit_on_error=False)
    parser.add_argument("--model", type=Path, required=True, help="folder of the model")
    parser.add_argument("--scheme", required=True, help=", ".join(SCHEMES))
    parser.add_argument("--out", type=Path, required=True, help="folder for the quantised model")
    parser.add_argument("--calibration", type=Path, help='lines of JSON, each {"text": ...}; for schemes that need it')
    parser.add_argument("--samples", type=int, default=512, help="calibration texts to use")
    parser.add_argument("--max-length", type=int, default=2048, help="tokens of each at most")
    parser.add_argument("--seed", type=int, default=0, help="draws the texts; 0 to 2^31-1")
    parser.add_argument("--threads", type=int, default=2, help="threads of the arithmetic, 1 to 64")
    parser.add_argument("--report", type=Path, required=True, help="file to write the report to")
    options = model_folder.read_arguments(parser, argv)
    if options.scheme not in SCHEMES:
        raise UsageError(f"--scheme {options.scheme}: expected one of {', '.join(SCHEMES)}")
    if SCHEMES[options.scheme].calibrated and options.calibration is None:
        raise UsageError(f"--scheme {options.scheme} looks at texts: expected --calibration")
    limits = (("samples", 1, 100_000), ("max-length", 1, 1_000_000), ("seed", 0, 2**31 - 1), ("threads", 1, 64))
    for name, least, most in limits:
        value = getattr(options, name.replace("-", "_"))
        if not least <= value <= most:
            raise UsageError(f"--{name} {value}: expected {least} to {most}")
    checked_source(options)
    return options


def checked_source(options: argparse.Namespace) -> None:
    """Refuse a model that cannot be quantised to where it is asked for; raises UsageError."""
    config = model_folder.checked_model(options.model)
    if "quantization_config" in config:
        raise UsageError(f"--model {options.model} is quantised already: expected a model in 16 or 32 bits")
    positions = config.get("max_position_embeddings")
    if options.calibration is not None and isinstance(positions, int) and options.max_length > positions:
        raise UsageError(f"--max-length {options.max_length}: the model's texts have {positions} tokens at most")
    options.out = model_folder.checked_target(options.out)
    source = options.model.resolve()
    if source == options.out.resolve() or source in options.out.resolve().parents:
        raise UsageError(f"--out {options.out} is the model itself or in it: expected another folder")


def calibration_texts(file: Path, samples: int, seed: int) -> list[str]:
    """Return the texts to calibrate with, drawn by the seed; raises UsageError when the file does not have them."""
    texts = []
    try:
        with open(file, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                row = json.loads(line) if line.strip() else None
                text = row.get("text") if isinstance(row, dict) else None
                if not isinstance(text, str) or not text.strip():
                    raise UsageError(f'{file} line {number}: expected {{"text": "..."}} with some text')
                texts.append(text)
    except OSError as error:
        raise UsageError(f"--calibration {file}: {error.strerror}; expected lines of JSON") from None
    except (ValueError, RecursionError):
        raise UsageError(f'{file}: expected lines of JSON in UTF-8, each {{"text": ...}}') from None
    if len(texts) < samples:
        raise UsageError(f"--samples {samples}: {file} has {len(texts)} texts")
    return random.Random(seed).sample(texts, samples)  # noqa: S311 - to be the same each time


def pin_nothing_without_accelerator() -> None:
    """Let AWQ run on processors alone.

    AWQModifier (llm-compressor 0.14) asks for page-locked memory to copy from faster; torch refuses that where there is
    no accelerator to copy to. There is then nothing to gain from it, and its results do not depend on it.
    """
    import torch
    from llmcompressor.pipelines.cache import IntermediatesCache

    if not torch.accelerator.is_available():
        IntermediatesCache.pin_memory = lambda *_args, **_kwargs: None


def modifiers(scheme: Scheme) -> list[Any]:
    """Return the recipe as llm-compressor's objects."""
    made = []
    for step in scheme.recipe:
        if step.modifier == "AWQModifier":
            pin_nothing_without_accelerator()
        made.append(getattr(importlib.import_module(MODULES[step.modifier]), step.modifier)(**step.arguments))
    return made


def settle(seed: int, threads: int) -> None:
    """Fix seeds and the number of threads, so that the same source gives the same weights."""
    import numpy
    import torch

    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(threads)


def device_name() -> str:
    """Return the GPU's name, or "cpu"."""
    import torch

    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else "cpu"


def peak_gpu_memory_mib() -> float | None:
    """Return the most GPU memory held, in MiB; None without a GPU."""
    import torch

    return round(torch.cuda.max_memory_allocated() / model_folder.MIB, 1) if torch.cuda.is_available() else None


def quantised(network: Any, tokens: Any, scheme: Scheme, texts: list[str], options: argparse.Namespace) -> None:
    """Quantise the model in place."""
    from llmcompressor import oneshot

    from datasets import Dataset

    calibrated: dict[str, Any] = {}
    if scheme.calibrated:
        rows = [tokens(t, truncation=True, max_length=options.max_length) for t in texts]
        data = Dataset.from_list([{"input_ids": r["input_ids"], "attention_mask": r["attention_mask"]} for r in rows])
        calibrated = {
            "dataset": data,
            "max_seq_length": options.max_length,
            "num_calibration_samples": len(rows),
            "shuffle_calibration_samples": False,
        }
    oneshot(model=network, recipe=modifiers(scheme), **calibrated)


def checked_result(part: Path, scheme: Scheme, text: str) -> dict[str, str]:
    """Load what was written as it will be loaded, and return its format and method.

    Raises ValueError when it is not quantised as the scheme says, or its answers are no numbers.
    """
    import torch
    from safetensors import safe_open
    from transformers import AutoModelForCausalLM, AutoTokenizer

    config = json.loads((part / "config.json").read_text(encoding="utf-8")).get("quantization_config") or {}
    said = {"format": str(config.get("format")), "quant_method": str(config.get("quant_method"))}
    if said != {"format": scheme.format, "quant_method": QUANT_METHOD}:
        raise ValueError(f"written as {said}, expected {scheme.format} of {QUANT_METHOD}")
    names: set[str] = set()
    for file in part.glob("*.safetensors"):
        with safe_open(file, framework="pt") as opened:
            names |= set(opened.keys())
    if not any(n.endswith(SCALE) for n in names):
        raise ValueError("no weight that was written has a scale: nothing was quantised")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = AutoModelForCausalLM.from_pretrained(part, dtype="auto", local_files_only=True).to(device).eval()
    ids = AutoTokenizer.from_pretrained(part, local_files_only=True)(text, truncation=True, max_length=64)["input_ids"]
    with torch.no_grad():
        logits = network(torch.tensor([ids], device=device)).logits
    if not bool(torch.isfinite(logits).all()):
        raise ValueError("the quantised model's answers are not finite numbers")
    return said


def make(part: Path, scheme: Scheme, texts: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Load, quantise, save and check; return the times in seconds and what was written."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    settle(options.seed, options.threads)
    clock = [time.monotonic()]
    tokens = AutoTokenizer.from_pretrained(options.model, local_files_only=True)
    network = AutoModelForCausalLM.from_pretrained(options.model, dtype="auto", local_files_only=True)
    clock.append(time.monotonic())
    quantised(network, tokens, scheme, texts, options)
    clock.append(time.monotonic())
    network.save_pretrained(part, save_compressed=True)
    tokens.save_pretrained(part)
    clock.append(time.monotonic())
    del network
    said = checked_result(part, scheme, texts[0] if texts else ASKED)
    clock.append(time.monotonic())
    times = dict(zip(("load_s", "quantise_s", "save_s", "check_s"), _between(clock), strict=True))
    return {**times, "result": {**written(part), **said}}


def _between(clock: list[float]) -> list[float]:
    return [round(later - earlier, 3) for earlier, later in itertools.pairwise(clock)]


def written(folder: Path) -> dict[str, Any]:
    """Return the hashes and the size of a model folder."""
    files = model_folder.file_hashes(folder)
    return {
        "weights_sha256": model_folder.weights_sha256(files),
        "files": files,
        "bytes": model_folder.weights_bytes(folder),
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Return the report of the model quantised to ``options.out``."""
    began = time.monotonic()
    scheme = SCHEMES[options.scheme]
    texts, calibration = [], None
    if scheme.calibrated:
        texts = calibration_texts(options.calibration, options.samples, options.seed)
        calibration = {
            "sha256": model_folder.file_sha256(options.calibration),
            "samples": options.samples,
            "max_length": options.max_length,
            "seed": options.seed,
        }
    source = written(options.model)
    about = {
        "program": "quantise",
        "scheme": options.scheme,
        "recipe": [step.described() for step in scheme.recipe],
        "source": {"weights_sha256": source["weights_sha256"], "bytes": source["bytes"]},
        "calibration": calibration,
        "threads": options.threads,
        "versions": {
            **{name: version(package) for name, package in LIBRARIES.items()},
            "python": platform.python_version(),
        },
    }
    with model_folder.only_one(options.out), model_folder.in_place_when_done(options.out) as part:
        made = make(part, scheme, texts, options)
        model_folder.write_json(part / MANIFEST, {**about, "result": made["result"]})
    return {
        **about,
        **made,
        "duration_s": round(time.monotonic() - began, 3),
        "peak_memory_mib": model_folder.peak_memory_mib(),
        "peak_gpu_memory_mib": peak_gpu_memory_mib(),
        "device": device_name(),
        "problem": "",
    }


def main(argv: list[str]) -> int:
    """Run the program; return its exit code."""
    model_folder.end_on_signals()
    try:
        options = parsed(argv)
    except UsageError as problem:
        return model_folder.refuse(problem)
    return model_folder.reported("quantise", options.report, lambda: run(options))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
