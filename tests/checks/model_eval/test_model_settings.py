"""Settings that cannot be used are refused with the key, what was expected and what to do."""

from __future__ import annotations

from typing import Any

import pytest
from model_samples import SMALL, make_site

from fabric_health.checks.model_eval.settings import Settings, settings
from fabric_health.errors import SiteError


def model(**more: Any) -> dict[str, Any]:
    return {"models": [{"name": "m", "source": "m", **more}]}


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"models": []}, "models", "at least 1 item"),
    ({"model": []}, "model", "unknown key; see docs/checks/model_eval.md"),
    ({"models": [{"name": "a", "source": "x"}, {"name": "a"}]}, "model_eval", "every name once"),
    ({"models": [{"source": "x"}]}, "models.0.name", "required key is missing"),
    ({"models": [{"name": "A/B"}]}, "models.0.name", "pattern"),
    (model(source="../x"), "models.0.source", "without `..`"),
    (model(source="/models/x"), "models.0.source", "below the models folder"),
    (model(data="a/../../b"), "models.0.data", "pattern"),
    (model(schemes=["w2a2"]), "models.0.schemes.0", "w8a8-gptq"),
    (
        model(schemes=["w4a16-awq"], serve=["fp8-dynamic"]),
        "models.0",
        "serve names fp8-dynamic; expected of base, w4a16-awq",
    ),
    (model(schemes=["w4a16-awq"], flags={"nvfp4": ["--x"]}), "models.0", "flags names nvfp4"),
    (model(schemes=["w4a16-awq"], gates={"nvfp4": {"recovery": 0.9}}), "models.0", "gates names nvfp4"),
    (model(serve=["base", "base"]), "models.0", "named twice"),
    (model(kind="embed", tasks=["gsm8k"]), "models.0", "expected none for kind embed"),
    (model(tasks=["../gsm8k"]), "models.0.tasks.0", "pattern"),
    (model(flags={"base": ["--port=1"]}), "models.0.flags", "--port is set by the check itself"),
    (model(flags={"base": ["--api-key=x"]}), "models.0.flags", "secret on a command line"),
    (model(flags={"base": ["--api_key", "x"]}), "models.0.flags", "flag --api-key would put a secret"),
    (model(flags={"base": ["--hf-tok=x"]}), "models.0.flags", "secret on a command line"),
    (model(flags={"base": ["--served_model_name=x"]}), "models.0.flags", "is set by the check itself"),
    (
        model(gates={"nvfp4": {"size_min": 0.9, "size_max": 0.3}}, schemes=["nvfp4"]),
        "gates.nvfp4",
        "larger than size_max",
    ),
    ({"models": [{"name": "m", "revision": "0" * 64}]}, "models.0", "follows from its recipe"),
    (model(revision="main"), "models.0.revision", "pattern"),
    (
        {"models": [{"name": "a", "schemes": ["nvfp4"]}, {"name": "b", "source": "a.nvfp4"}]},
        "model_eval",
        "quantising writes",
    ),
    (
        {"serving": {"flags": ["--enable-prefix-caching"]}},
        "serving.flags",
        "--enable-prefix-caching is set by the check",
    ),
    ({"serving": {"flags": ["--a\nb"]}}, "serving.flags", "cannot be printed"),
    ({"serving": {"concurrency": [64], "prompts": 8}}, "serving", "at least as many prompts"),
    ({"serving": {"goodput": {"latency": 5}}}, "serving.goodput", "ttft"),
    ({"serving": {"launches": 1}, "quality": {"launches": 2}}, "model_eval", "expected at most as many"),
    ({"quality": {"items": 3}}, "quality.items", "greater than or equal to 10"),
    ({"program": "/x.py"}, "program", "pattern"),
    ({"resources": {"serve": {"gpus": -1}}}, "resources.serve.gpus", "greater than or equal to 0"),
]


@pytest.mark.parametrize(("given", "key", "says"), REFUSED, ids=[f"{r[1]}-{i}" for i, r in enumerate(REFUSED)])
def test_a_mistake_is_named_with_its_key(given: dict[str, Any], key: str, says: str) -> None:
    with pytest.raises(SiteError) as error:
        settings(make_site(**given))
    assert key in str(error.value)
    assert says in str(error.value)
    assert str(error.value).startswith("site.yaml: checks.model_eval")


def test_the_defaults_are_the_built_in_model_by_five_schemes() -> None:
    (only,) = settings(make_site()).models
    assert (only.name, only.source, only.task_names) == ("tiny-qwen3", "built-in", ("continuation",))
    assert only.forms == ("base", *only.schemes)
    assert (only.gate("w8a8-gptq").samples, only.gate("w8a8-gptq").max_length) == (64, 256)
    assert only.gate("fp8-dynamic").samples == 0


def test_a_model_of_the_site_has_the_schemes_usual_calibration_and_own_gates() -> None:
    given = model(schemes=["w8a8-gptq", "w4a16-awq"], gates={"w8a8-gptq": {"recovery": 0.99, "size_max": 0.6}})
    wanted = settings(make_site(**given))
    gate = wanted.models[0].gate("w8a8-gptq")
    assert (gate.recovery, gate.size_min, gate.size_max, gate.samples, gate.max_length) == (0.99, 0.45, 0.6, 512, 2048)
    assert (wanted.models[0].gate("w4a16-awq").samples, wanted.models[0].task_names) == (256, ())
    assert (wanted.recovery_of("m/w8a8-gptq"), wanted.recovery_of("m/w4a16-awq"), wanted.recovery_of("m")) == (
        0.99,
        0.95,
        1.0,
    )
    assert (wanted.base_of("m/w8a8-gptq"), wanted.base_of("m")) == ("m", "m")
    assert (wanted.recovery_of("gone/w8a8-gptq"), wanted.model("gone")) == (1.0, None)


def test_every_setting_is_described_or_described_by_its_parts() -> None:
    for name in ("models", "serving", "quality", "resources", "built_in"):
        assert name in Settings.model_fields
    assert settings(make_site(**SMALL)).serving.launches == 2
