"""The same weights, flags and device answer the same; what differs in these is never held against each other."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from fabric_health.checks.model_eval.drift import Drift, drifted, moved, requantised
from fabric_health.checks.model_eval.tables import Fingerprint, ModelEmbedding, Quantization

W, KEY = "a" * 64, "model=m;device=x"


def answer(tokens: str, prompt: str = "p1", launch: str = "m-serve-1", **more: str) -> Fingerprint:
    given = {"unit": "m", "prompt_sha256": "0" * 64, "weights_sha256": W, "comparability": KEY, **more}
    return Fingerprint(launch=launch, prompt=prompt, tokens=tokens, logprob=-1.5, **given)


def vector(values: str, text: str = "t1", **more: str) -> ModelEmbedding:
    given = {"unit": "m", "launch": "m-serve-1", "weights_sha256": W, "comparability": KEY, **more}
    return ModelEmbedding(text=text, dimension=2, vector=values, **given)


def test_equal_answers_do_not_differ() -> None:
    before = [answer("1 2 3"), answer("4 5 6", "p2")]
    assert drifted(before, before) == [Drift("m", KEY, 2, 0)]


def test_the_first_token_that_differs_is_named() -> None:
    before = [answer("1 2 3", "p1"), answer("4 5 6", "p2"), answer("7 8 9", "p3")]
    now = [answer("1 2 3", "p1"), answer("4 5 7", "p2"), answer("7 1 9", "p3")]
    assert drifted(now, before) == [Drift("m", KEY, 3, 2, "p2", 2, 6, 7)]


def test_an_answer_that_ends_earlier_differs_there() -> None:
    (found,) = drifted([answer("1 2")], [answer("1 2 3")])
    assert (found.position, found.token_before, found.token_now) == (2, 3, None)


@pytest.mark.parametrize(
    "other",
    [{"weights_sha256": "b" * 64}, {"comparability": "model=m;device=y"}, {"unit": "n"}, {"prompt_sha256": "1" * 64}],
)
def test_other_weights_flags_device_or_prompts_are_not_compared(other: dict[str, str]) -> None:
    assert drifted([answer("1 2 3")], [answer("9 9 9", **other)]) == []


def test_likelihoods_of_equal_answers_may_move() -> None:
    before = answer("1 2 3")
    (found,) = drifted([dataclasses.replace(before, logprob=-1.8)], [before])
    assert (found.differing, found.largest_move) == (0, pytest.approx(0.1))


def test_of_several_launches_the_first_counts() -> None:
    now = [answer("9 9", launch="m-serve-2"), answer("1 2", launch="m-serve-1")]
    (found,) = drifted(now, [answer("1 2")])
    assert found.differing == 0


def made(**more: Any) -> Quantization:
    given: dict[str, Any] = {
        "source_sha256": W,
        "recipe_sha256": W,
        "calibration_sha256": W,
        "tool_version": "1",
        "device": "cpu",
    }
    return Quantization(launch="q-1", model="m", scheme="x", unit="m/x", **{**given, **more})


@pytest.mark.parametrize("changed", [{}, {"seed": 1}, {"calibration_max_length": 512}])
def test_other_weights_are_a_note_only_where_nothing_was_asked_otherwise(changed: dict[str, Any]) -> None:
    found = requantised([made(weights_sha256="b" * 64, **changed)], [made(weights_sha256="c" * 64)])
    assert len(found) == (not changed)


def test_vectors_are_compared_by_their_angle() -> None:
    before = [vector("[1,0]"), vector("[0,2]", "t2")]
    (same,) = moved([vector("[3,0]"), vector("[0,1]", "t2")], before)
    assert (same.cosine, same.is_moved, same.texts) == (1.0, False, 2)
    (turned,) = moved([vector("[1,0]"), vector("[0.1,2]", "t2")], before)
    assert (turned.text, turned.is_moved) == ("t2", True)
    assert turned.cosine == pytest.approx(math.cos(math.atan(0.05)))


@pytest.mark.parametrize("value", ["", "[]", "[0,0]", "[1]", "[1,2,3]", "{}", "[" * 9000, '["a",1]'])
def test_a_vector_that_is_none_has_moved(value: str) -> None:
    (found,) = moved([vector(value)], [vector("[1,0]")])
    assert found.cosine == -1.0


def test_vectors_of_any_size_have_an_angle() -> None:
    (found,) = moved([vector("[1e18,1e18]")], [vector("[1e-300,1e-300]")])
    assert found.cosine == pytest.approx(1.0)


def test_a_recipe_that_gives_other_weights_is_seen() -> None:
    before = Quantization(
        "m-w-quantise-1", "m", "w", "m/w", source_sha256="s", weights_sha256="a", recipe_sha256="r",
        calibration_samples=64, tool_version="1", device="cpu",
    )  # fmt: skip
    now = dataclasses.replace(before, weights_sha256="b")
    assert [(r.unit, r.weights_before, r.weights_now) for r in requantised([now], [before])] == [("m/w", "a", "b")]
    assert [r.is_other for r in (*requantised([now], [before]), *requantised([before], [before]))] == [True, False]
    for other in ({"source_sha256": "t"}, {"recipe_sha256": "q"}, {"tool_version": "2"}, {"calibration_samples": 65}):
        assert requantised([dataclasses.replace(now, **other)], [before]) == []  # type: ignore[arg-type]
    assert requantised([dataclasses.replace(now, problem="no")], [before]) == []
    unknown = dataclasses.replace(before, source_sha256=None)
    assert requantised([dataclasses.replace(unknown, weights_sha256="b")], [unknown]) == []
