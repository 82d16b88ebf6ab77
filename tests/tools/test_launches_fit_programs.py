"""What the checks launch is what the tools' programs understand: two sides of a command line, written apart."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fabric_health
from fabric_health.checks.check import Launch
from fabric_health.checks.elastic_training.launches import launches as elastic_launches
from fabric_health.checks.model_eval.launches import SERVER
from fabric_health.checks.model_eval.launches import launches as model_launches
from fabric_health.jobs.argv import filled
from fabric_health.site import Site, load_site

ROOT = Path(fabric_health.__file__).parents[1]
# The programs import each other by their names, from their own folders.
sys.path[:0] = [str(ROOT / "tools" / name) for name in ("llm-compressor", "vllm", "dlrover")]

import elastic_smoke  # type: ignore[import-not-found]  # noqa: E402
import measure  # type: ignore[import-not-found]  # noqa: E402
import quantise  # type: ignore[import-not-found]  # noqa: E402
import tiny_model  # type: ignore[import-not-found]  # noqa: E402

EVERYTHING: dict[str, Any] = {
    "models": [
        {"name": "tiny", "schemes": ["w8a8-gptq", "w8a8-smoothquant-gptq", "fp8-dynamic", "w4a16-awq", "nvfp4"]},
        {"name": "mine", "source": "mine", "schemes": ["w4a16-gptq"], "tasks": ["one", "two"]},
        {"name": "vectors", "source": "mine", "kind": "embed", "schemes": [], "serve": ["base"]},
    ],
    "serving": {"goodput": {"ttft": 200, "tpot": 50}, "guidellm_s": 10, "launches": 2},
    "quality": {"items": 100},
}


@pytest.fixture(scope="module")
def site() -> Site:
    return load_site(ROOT / "sites" / "lab.yaml")


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """A folder of models in which every base is what the programs take for one."""
    for name in ("tiny-qwen3", "tiny", "mine"):
        folder = tmp_path / "models" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 4096}))
        (folder / "model.safetensors").write_bytes(b"w")
        (folder / "calibration.jsonl").write_text('{"text": "t"}\n')
    return {"python": "python", "tool": "tool", "artefacts": str(tmp_path), "models": str(tmp_path / "models")}


def planned(site: Site, settings: dict[str, Any]) -> tuple[Launch, ...]:
    held = replace(site, checks={**site.checks, "model_eval": settings})
    return model_launches(held, held.nodes, "run")


@pytest.mark.parametrize("settings", ["lab", "everything", "defaults"])
def test_every_launch_of_models_is_understood(site: Site, places: dict[str, str], settings: str) -> None:
    own = {"lab": dict(site.checks["model_eval"]), "everything": EVERYTHING, "defaults": {}}[settings]
    seen = set()
    for launch in planned(site, own):
        _, program, *argv = filled(launch.spec.argv, places)
        if launch.spec.tool == SERVER:
            options = measure.parsed(argv)
            assert options.name == launch.units[0]
            assert options.flags
            seen.add("serve")
        elif program.endswith("quantise.py"):
            assert quantise.parsed(argv).scheme == launch.units[0].partition("/")[2]
            seen.add("quantise")
        else:
            assert tiny_model.parsed(argv).steps == 700
            seen.add("prepare")
    assert seen == {"serve", "quantise", "prepare"}


def test_tasks_and_goals_arrive_as_several(site: Site, places: dict[str, str]) -> None:
    (launch,) = (x for x in planned(site, EVERYTHING) if x.name == "mine-serve-1")
    options = measure.parsed(list(filled(launch.spec.argv, places)[2:]))
    assert options.task == ["one", "two"]
    assert sorted(options.goodput) == ["tpot:50", "ttft:200"]


def test_every_launch_of_elastic_training_is_understood(site: Site, places: dict[str, str]) -> None:
    checks = {}
    for launch in elastic_launches(site, site.nodes, "run"):
        plan, node_check = elastic_smoke._options(list(filled(launch.spec.argv, places)[2:]))
        checks[launch.name] = (node_check, plan.faults)
    assert checks == {
        "elastic-check-1": (True, ()),
        "elastic-1": (False, ("kill-rank", "lose-agent", "return-agent")),
    }
