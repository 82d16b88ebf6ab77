"""What differs between releases of the tools is read to the same meaning."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from fabric_health.checks.model_eval.parsers.answers import (
    Window,
    perplexity,
    read_embeddings,
    read_fingerprint,
    read_perplexity,
)
from fabric_health.checks.model_eval.parsers.bench import Times
from fabric_health.checks.model_eval.parsers.guidellm import read_guidellm
from fabric_health.checks.model_eval.parsers.lm_eval import read_items, read_results
from fabric_health.checks.model_eval.parsers.reports import read_metrics
from fabric_health.checks.model_eval.parsers.vllm_bench import read_bench, read_bench_text

Text = Callable[[str], str]


def test_goodput_has_a_colon_in_old_files_and_failed_is_unknown(text_of: Text) -> None:
    (old,), (new,) = (read_bench(text_of(f"vllm-bench-{n}.json")) for n in ("0.9-old-keys", "0.32"))
    assert (old.goodput_per_s, old.failed) == (31.5, None)
    assert (new.goodput_per_s, new.failed) == (None, 0)
    assert old.times == new.times
    assert (old.completed, old.output_tokens) == (new.completed, new.output_tokens) == (50, 1600)


def test_the_median_stands_for_the_50th_percentile(text_of: Text) -> None:
    (found,) = read_bench(text_of("vllm-bench-0.32-p99-only.json"))
    assert found.times["ttft"].p50 == pytest.approx(28.118, abs=1e-3)
    assert found.times["ttft"].p90 is None
    assert found.times["e2el"] == Times()


def test_appended_results_are_all_there_in_order(text_of: Text) -> None:
    first, second = read_bench(text_of("vllm-bench-0.32-appended.json"))
    assert first.duration_s < second.duration_s  # type: ignore[operator]
    cut = text_of("vllm-bench-0.32-appended.json")[:-20]
    assert read_bench(cut) == []


def test_times_of_requests_are_in_seconds(text_of: Text) -> None:
    (found,) = read_bench(text_of("vllm-bench-0.32-detailed.json"))
    ttft = found.times["ttft"]
    assert (ttft.mean, ttft.p50, ttft.p90, ttft.p99) == pytest.approx((55.0, 55.0, 67.0, 69.7))
    assert found.times["itl"].p50 == pytest.approx(15.0)


def test_the_printed_block_says_the_same_as_the_file(text_of: Text) -> None:
    (printed,), (saved,) = read_bench_text(text_of("vllm-bench-0.32.txt")), read_bench(text_of("vllm-bench-0.32.json"))
    assert (printed.completed, printed.failed, printed.concurrency) == (
        saved.completed,
        saved.failed,
        saved.concurrency,
    )
    assert printed.total_tokens_per_s == pytest.approx(saved.total_tokens_per_s, abs=0.01)
    assert printed.times["ttft"].p90 == pytest.approx(saved.times["ttft"].p90, abs=0.01)


def test_the_label_of_all_tokens_was_spelt_otherwise(text_of: Text) -> None:
    (old,) = read_bench_text(text_of("vllm-bench-0.9.txt"))
    assert old.total_tokens_per_s == 9660.38
    assert old.failed is None
    assert read_bench_text(text_of("vllm-bench-0.9.txt").replace("=" * 50, "")) == []


def test_guidellm_of_two_generations(text_of: Text) -> None:
    (old_version, (old,)), (new_version, (new,)) = (
        read_guidellm(text_of(f"guidellm-{v}.json")) for v in ("0.6", "0.8")
    )
    assert (old_version, new_version) == ("0.6.0", "0.8.1")
    assert old == new
    assert (new.concurrency, new.completed, new.failed, new.incomplete) == (4, 100, 0, 0)
    assert new.times["e2el"].mean == pytest.approx(248.35, abs=0.01)
    assert new.output_tokens == 3200


def test_scores_by_metric_and_filter(text_of: Text) -> None:
    found = read_results(text_of("lm-eval-results-0.4.13.json"))
    assert found is not None
    task = found.tasks["tiny_cont"]
    assert {s.metric for s in task.scores} == {"acc", "acc_norm"}
    assert (task.original, task.effective, found.limit, found.harness) == (120, 120, None, "0.4.13")
    assert all(s.stderr is None for s in found.tasks["tiny_ppl"].scores)
    assert not any(s.higher_is_better for s in found.tasks["tiny_ppl"].scores)


def test_scores_of_a_part_and_of_old_releases(text_of: Text) -> None:
    limited, old = (read_results(text_of(f"lm-eval-results-{n}.json")) for n in ("limited", "0.3"))
    assert limited is not None
    assert old is not None
    strict, flexible = limited.tasks["gsm8k"].scores
    assert (strict.metric, strict.stderr, flexible.stderr) == ("exact_match,strict-match", 0.0274, None)
    assert (limited.limit, limited.tasks["gsm8k"].effective) == (250.0, 250)
    assert {s.metric for s in old.tasks["lambada"].scores} == {"ppl", "acc"}


def test_items_of_a_choice_have_the_likelihood_of_the_right_one(text_of: Text) -> None:
    found = read_items(text_of("lm-eval-samples-choice-0.4.13.jsonl"))
    assert (found.problem, found.metric) == (None, "acc")
    assert [i.correct for i in found.items] == [True, False, True]
    assert [i.loglikelihood for i in found.items] == [-10.5, -14.0, -9.5]
    assert found.items[1].name == "1-01010101"
    old = read_items(text_of("lm-eval-samples-choice-0.4.0.jsonl"))
    assert [(i.name, i.loglikelihood) for i in old.items] == [("0", -10.5), ("1", -14.0)]


def test_an_empty_thought_before_an_answer_does_not_make_it_wrong(text_of: Text) -> None:
    found = read_items(text_of("lm-eval-samples-generate-0.4.13.jsonl"))
    assert found.metric == "exact_match,strict-match"
    assert [(i.correct, i.mended) for i in found.items] == [(True, True), (False, False), (True, False)]
    # A number that was generated is no likelihood.
    assert [i.loglikelihood for i in found.items] == [None, None, None]


def test_counters_add_up_over_labels(text_of: Text) -> None:
    found = read_metrics(text_of("metrics-0.32.txt"))
    assert found is not None
    assert (found.requests, found.prefix_cache_hits) == (500, 0)
    assert read_metrics("python_gc_objects_collected_total 1.0\n") is None


def test_perplexity_is_over_tokens_with_the_spread_of_windows() -> None:
    value, error = perplexity([Window("a", 100, -100.0), Window("b", 100, -300.0)])
    assert value == pytest.approx(7.389, abs=1e-3)
    assert error == pytest.approx(7.389, abs=1e-3)
    assert perplexity([Window("a", 100, -100.0)])[1] is None


@pytest.mark.parametrize(
    ("reader", "body", "says"),
    [
        (read_perplexity, {"windows": []}, "no window"),
        (read_perplexity, {"windows": [{"id": "a", "tokens": 4, "logprob": 1.5}]}, "0 or less"),
        (read_perplexity, {"windows": [{"id": "a", "tokens": 4, "logprob": -1}] * 2}, "twice"),
        (read_fingerprint, {"prompts": [{"id": "a", "prompt_sha256": "00", "token_ids": [1]}]}, "no hash"),
        (read_fingerprint, {"prompts": [{"id": "a", "prompt_sha256": "0" * 64, "token_ids": [1, "x"]}]}, "no token"),
        (read_embeddings, {"dimension": 2, "texts": [{"id": "a", "vector": [0, 0]}]}, "zero"),
        (read_embeddings, {"dimension": 3, "texts": [{"id": "a", "vector": [1, 0]}]}, "dimension"),
        (read_embeddings, {"dimension": 2, "texts": [{"id": "a", "vector": [1, None]}]}, "finite"),
    ],
)
def test_answers_that_cannot_be_used(reader: Callable[[str], object], body: object, says: str) -> None:
    found, problem = reader(json.dumps(body))  # type: ignore[misc]
    assert found == []
    assert says in problem
