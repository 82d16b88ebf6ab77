"""What is launched, in which order, and by which command lines."""

from __future__ import annotations

import dataclasses
import re

import pytest
from model_samples import EMBED, SMALL, make_site

from fabric_health.checks.check import Launch
from fabric_health.checks.model_eval.asked import Prepare, Quantise, Serve, asked
from fabric_health.checks.model_eval.launches import launches
from fabric_health.errors import SiteError
from fabric_health.site import Node, ReachProfile, Sku


def by_name(plan: tuple[Launch, ...]) -> dict[str, Launch]:
    return {x.name: x for x in plan}


def test_the_order_is_prepare_quantise_serve_and_repetitions_are_blocks() -> None:
    plan = launches(make_site(**SMALL), (), "run-1")
    steps = [type(asked(x)) for x in plan]
    assert steps == [Prepare, Quantise, Quantise, Serve, Serve, Serve, Serve]
    assert [x.name[-1] for x in plan[3:]] == ["1", "1", "2", "2"]
    assert all(re.fullmatch(r".*-\d+", x.name) and x.unit_kind == "model" for x in plan)
    assert len({x.name for x in plan}) == len(plan)


def test_the_run_shuffles_the_servers_and_nothing_else() -> None:
    site = make_site(**SMALL)
    orders = {tuple(x.name for x in launches(site, (), f"run-{n}")) for n in range(12)}
    assert len(orders) > 1
    assert {o[:3] for o in orders} == {next(iter(orders))[:3]}
    assert {frozenset(o) for o in orders} == {frozenset(next(iter(orders)))}
    assert launches(site, (), "run-1") == launches(site, (), "run-1")


def test_command_lines_say_what_is_asked() -> None:
    plan = by_name(launches(make_site(**SMALL), (), "run-1"))
    want = asked(plan["tiny-qwen3-w8a8-gptq-serve-1"])
    assert isinstance(want, Serve)
    assert (want.unit, want.scheme, want.concurrency, want.items, want.windows) == (
        "tiny-qwen3/w8a8-gptq", "w8a8-gptq", (1, 4), 20, 4,
    )  # fmt: skip
    assert want.flags == ("--no-enable-prefix-caching",)
    assert asked(plan["tiny-qwen3-w4a16-gptq-quantise-1"]) == Quantise(
        "tiny-qwen3/w4a16-gptq", "w4a16-gptq", 64, 256, 0
    )
    assert asked(plan["tiny-qwen3-prepare-1"]) == Prepare("tiny-qwen3", 700, 0)
    second = asked(plan["tiny-qwen3-serve-2"])
    assert isinstance(second, Serve)
    # Later launches measure speed and the fingerprint; quality is evaluated once.
    assert (second.tasks, second.windows, second.greedy_tokens) == ((), 0, 4)
    assert "lm-eval.json" not in plan["tiny-qwen3-serve-2"].spec.artefacts
    assert "fingerprint.json" in plan["tiny-qwen3-serve-2"].spec.artefacts


def test_flags_goodput_and_guidellm_reach_the_program() -> None:
    settings = {
        **SMALL,
        "models": [{"name": "m", "source": "qwen/8b", "data": "texts", "schemes": ["fp8-dynamic"], "tasks": ["a", "b"],
                    "flags": {"fp8-dynamic": ["--kv-cache-dtype", "fp8"]}}],
        "serving": {**SMALL["serving"], "flags": ["--enforce-eager"], "goodput": {"ttft": 200}, "guidellm_s": 15},
        "program": "wrapped.py",
    }  # fmt: skip
    plan = by_name(launches(make_site(**settings), (), "r"))
    assert set(plan) == {"m-fp8-dynamic-quantise-1", *(f"m{f}-serve-{n}" for f in ("", "-fp8-dynamic") for n in (1, 2))}
    argv = plan["m-fp8-dynamic-serve-1"].spec.argv
    assert argv[1] == "{tool}/wrapped.py"
    assert argv[argv.index("--model") + 1] == "{models}/m.fp8-dynamic"
    assert argv[argv.index("--tasks") + 1] == "{models}/texts/tasks"
    assert argv[argv.index("--task") + 1] == "a,b"
    assert argv[argv.index("--goodput") + 1] == "ttft:200"
    assert argv[argv.index("--") + 1 :] == ("--no-enable-prefix-caching", "--enforce-eager", "--kv-cache-dtype", "fp8")
    quantise = plan["m-fp8-dynamic-quantise-1"].spec.argv
    assert "--calibration" not in quantise
    assert quantise[quantise.index("--model") + 1] == "{models}/qwen/8b"
    assert {"guidellm.json", "lm-eval-samples-b.jsonl"} <= set(plan["m-serve-1"].spec.artefacts)


def test_an_embedding_model_is_asked_for_vectors() -> None:
    want = asked(launches(make_site(**EMBED), (), "r")[0])
    assert isinstance(want, Serve)
    assert (want.kind, want.tasks, want.greedy_tokens) == ("embed", (), 0)


def test_nothing_is_fetched_and_resources_are_the_steps_own() -> None:
    settings = {**SMALL, "resources": {"serve": {"gpus": 2, "memory_mib": 4096, "time_limit_s": 600}}}
    plan = by_name(launches(make_site(**settings), (), "r"))
    serve = plan["tiny-qwen3-serve-1"].spec
    assert serve.env["HF_HUB_OFFLINE"] == "1"
    assert (serve.tool, serve.resources.gpu, serve.resources.memory_mib, serve.time_limit_s) == ("vllm", 2, 4096, 600)
    assert plan["tiny-qwen3-prepare-1"].spec.resources.gpu == 0
    assert plan["tiny-qwen3-prepare-1"].spec.tool == "llm-compressor"


def test_a_command_line_of_another_job_is_refused() -> None:
    launch = launches(make_site(**SMALL), (), "r")[-1]
    for argv in (("true",), launch.spec.argv[:4], tuple(a for a in launch.spec.argv if a != "--")):
        spec = dataclasses.replace(launch.spec, argv=argv)
        with pytest.raises(ValueError, match=r"^no --\w+ in |is no job of this check"):
            asked(dataclasses.replace(launch, spec=spec))


def nodes(*names: str) -> tuple[Node, ...]:
    profile = ReachProfile(kind="local")
    sku = Sku(gpu_model="x", gpus=8, link_layer="InfiniBand", nic_rate_gbps=400)
    return tuple(Node(n, "sku", sku, "", n, profile) for n in names)


def test_named_nodes_take_launches_in_turn_where_they_are_fit() -> None:
    known = nodes("gpu-1", "gpu-2", "gpu-3")
    site = dataclasses.replace(make_site(**SMALL, nodes=["gpu-1", "gpu-2"]), nodes=known)
    plan = by_name(launches(site, known, "r"))
    assert [plan[f"tiny-qwen3-serve-{n}"].spec.nodes for n in (1, 2)] == [("gpu-1",), ("gpu-2",)]
    plan = by_name(launches(site, known[1:], "r"))
    assert {x.spec.nodes for x in plan.values()} == {("gpu-2",)}
    assert launches(site, known[2:], "r") == ()


def test_a_node_that_is_none_is_named() -> None:
    with pytest.raises(SiteError, match=r"checks\.model_eval\.nodes: gpu-9 is no node"):
        launches(make_site(**SMALL, nodes=["gpu-9"]), (), "r")
