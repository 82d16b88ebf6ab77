"""Models after a declared change: touched where they ran, or may have run, on what was touched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fabric_health
from fabric_health.answered import KIND
from fabric_health.comparing import _role
from fabric_health.maintenance import declare, resolve
from fabric_health.site import Site, load_site

LAB = Path(fabric_health.__file__).parents[1] / "sites" / "lab.yaml"
CLUSTER = {
    "backend": "kubernetes",
    "kubernetes": {"namespace": "n", "images": {"vllm": "registry/vllm@sha256:" + "0" * 64}},
}


@pytest.fixture(scope="module")
def lab() -> Site:
    return load_site(LAB)


def on(lab: Site, jobs: dict[str, Any], *nodes: str) -> Site:
    return replace(lab, jobs=jobs, checks={"model_eval": {"nodes": list(nodes)}})


@pytest.mark.parametrize(
    ("nodes", "role"),
    [
        ((), "touched"),
        (("gpu-001", "gpu-009"), "touched"),
        (("gpu-009",), "control"),
    ],
)
def test_models_have_the_role_of_the_nodes_that_they_run_on(lab: Site, nodes: tuple[str, ...], role: str) -> None:
    site = on(lab, CLUSTER, *nodes)
    change = resolve(declare({"touched": "gpu-[001-002]"}), site)
    assert _role("tiny-qwen3/w8a8-gptq", KIND, change, site) == role


def test_on_the_machine_that_starts_jobs_a_change_of_nodes_touches_no_model(lab: Site) -> None:
    site = on(lab, {"backend": "local"})
    assert _role("tiny-qwen3", KIND, resolve(declare({"touched": "gpu-001"}), site), site) is None
    assert _role("tiny-qwen3", KIND, None, site) is None
