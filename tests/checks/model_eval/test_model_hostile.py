"""No file makes a parser raise, and none that is not a whole result gives a number."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from model_samples import EMBED, SMALL, Files, Run, healthy, make_evidence, make_site
from test_model_golden import CASES, FOLDER, reader_of

from fabric_health.checks.check import Launch
from fabric_health.checks.model_eval import MODEL_EVAL
from fabric_health.checks.model_eval.drift import drifted
from fabric_health.checks.model_eval.launches import launches
from fabric_health.checks.model_eval.tables import Fingerprint, ModelLaunchProblem
from fabric_health.datasets.contracts import Row

GUIDED = {**SMALL, "serving": {**SMALL["serving"], "launches": 1, "guidellm_s": 30}}
SITES = {"small": make_site(**GUIDED), "embed": make_site(**EMBED)}
GUIDELLM = json.dumps(json.loads((FOLDER / "guidellm-0.8.json").read_text(encoding="utf-8")))
LAUNCHES = {(s, x.name): x for s, site in SITES.items() for x in launches(site, (), "r")}
PICKED = [("small", "tiny-qwen3-prepare-1"), ("small", "tiny-qwen3-w8a8-gptq-quantise-1"),
          ("small", "tiny-qwen3-w8a8-gptq-serve-1"), ("embed", "tiny-embed-serve-1")]  # fmt: skip
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
HOSTILE = [
    "", "{", "{" * 5000, "[" * 5000, "null", '{"a":' + "9" * 5000 + "}", '{"a":1e999}', "<html>502</html>", "\x00" * 50,
    '{"completed": NaN, "duration": Infinity}', '{"program": "measure", "steps": [], "left": []}', "{}\n{}\n", "\ud800",
]  # fmt: skip


def files_of(site: str, launch: Launch) -> Files:
    files = healthy(launch)
    if site == "small" and "server.json" in files:
        files["guidellm.json"] = GUIDELLM
    return files


def read(site: str, name: str, files: Files, stdout: str = "") -> list[Row]:
    return MODEL_EVAL.parse(LAUNCHES[site, name], make_evidence(name, files, stdout=stdout), SITES[site])


def fits(rows: list[Row]) -> None:
    run = Run.__new__(Run)
    run.rows, run.site, run.launches = rows, SITES["small"], ()
    assert run.quarantined() == []
    run.findings()


@pytest.mark.parametrize(("site", "name"), PICKED)
def test_a_healthy_launch_of_these_has_no_problem(site: str, name: str) -> None:
    rows = read(site, name, files_of(site, LAUNCHES[site, name]))
    assert not [r for r in rows if isinstance(r, ModelLaunchProblem)]


@pytest.mark.parametrize(("site", "name"), PICKED)
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_passes_for_a_file(site: str, name: str, text: str) -> None:
    whole = files_of(site, LAUNCHES[site, name])
    for file in whole:
        if file == "server.log":
            continue
        rows = read(site, name, {**whole, file: text})
        assert [r for r in rows if isinstance(r, ModelLaunchProblem)], file
        fits(rows)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(PICKED), st.data())
def test_json_with_any_value_anywhere_never_raises_and_fits_the_contract(
    picked: tuple[str, str], data: st.DataObject
) -> None:
    whole = files_of(picked[0], LAUNCHES[picked])
    file = data.draw(st.sampled_from(sorted(f for f in whole if f.endswith((".json", ".jsonl")))))
    first, *rest = whole[file].splitlines()
    document = json.loads(first if rest else whole[file])
    node: Any = document
    for _ in range(data.draw(st.integers(1, 6))):
        if isinstance(node, dict) and node:
            key = data.draw(st.sampled_from(sorted(node)))
            if data.draw(st.booleans()):
                node[key] = data.draw(JSON_VALUES)
                break
            node = node[key]
        elif isinstance(node, list) and node:
            node = node[0]
    whole[file] = "\n".join([json.dumps(document), *rest])
    rows = read(*picked, whole)
    fits(rows)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CASES), st.integers(0, 200_000), st.integers(0, 400), st.text(max_size=30))
def test_damaged_recordings_never_raise(case: str, at: int, length: int, instead: str) -> None:
    path = Path(FOLDER / case)
    reader, text = reader_of(path), path.read_text(encoding="utf-8")
    assert reader is not None
    at %= len(text)
    reader(text[:at] + instead + text[at + length :])


@settings(max_examples=40, deadline=None)
@given(st.text())
@example("============ Serving Benchmark Result ============\nSuccessful requests: 24\n" + "=" * 50)
@example("============ Serving Benchmark Result ============\n" * 10_000)
def test_no_output_stands_for_a_result(text: str) -> None:
    whole = files_of("small", LAUNCHES["small", "tiny-qwen3-serve-1"])
    del whole["bench-c4-r1.json"]
    rows = read("small", "tiny-qwen3-serve-1", whole, stdout=text)
    assert [r.rule for r in rows if isinstance(r, ModelLaunchProblem)]
    fits(rows)


@pytest.mark.timeout(60)
def test_a_file_of_megabytes_is_read_in_bounded_time() -> None:
    whole = files_of("small", LAUNCHES["small", "tiny-qwen3-serve-1"])
    for file, text in (
        ("metrics.txt", "vllm:" + "a" * 4_000_000),
        ("metrics.txt", "vllm:x{" * 600_000),
        ("bench-c4-r1.json", "{}" * 1_000_000),
        ("lm-eval-samples-continuation.jsonl", "{}\n" * 600_000),
        ("fingerprint.json", '{"prompts": [' + "[" * 2_000_000),
    ):
        read("small", "tiny-qwen3-serve-1", {**whole, file: text}, stdout="-" * 4_000_000)


@given(st.text(), st.text())
def test_answers_of_any_text_are_compared(a: str, b: str) -> None:
    row = Fingerprint("m-serve-1", "m", "p", "0" * 64, a, "1" * 64, "model=m")
    (found,) = drifted([row], [dataclasses.replace(row, tokens=b)])
    assert bool(found.differing) == (a != b)
