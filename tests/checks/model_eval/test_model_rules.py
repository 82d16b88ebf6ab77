"""Each rule has a run that meets it (the healthy one meets all) and one that breaks it, and is found on its form."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from model_samples import (
    EMBED,
    NOW,
    SMALL,
    Change,
    Files,
    Run,
    bench_report,
    digest,
    edited,
    healthy,
    make_evidence,
    metrics,
)

from fabric_health.checks.check import Context, Launch, RowSet
from fabric_health.checks.model_eval import MODEL_EVAL
from fabric_health.checks.model_eval.asked import asked
from fabric_health.checks.model_eval.rules import RULES
from fabric_health.checks.model_eval.tables import (
    Fingerprint,
    ModelBuild,
    ModelEmbedding,
    ModelLaunchProblem,
    ModelQuality,
    ModelServer,
    ModelServing,
    PerItem,
    Quantization,
)
from fabric_health.datasets.tables import Finding
from fabric_health.evidence import CommandStatus, ReachStatus, StoredEvidence

BASE, QUANT, BENCH = "tiny-qwen3", "tiny-qwen3/w8a8-gptq", "bench-c4-r1.json"
Edit = Callable[[dict[str, Any]], Any]


def on(launch: str, name: str, edit: Edit) -> Change:
    """Return a change of one file of one launch."""

    def change(of: Launch, files: Files) -> None:
        if of.name == launch:
            edited(files, name, edit)

    return change


def without(launch: str, name: str) -> Change:
    def change(of: Launch, files: Files) -> None:
        if of.name == launch:
            del files[name]

    return change


def instead(launch: str, name: str, text: str) -> Change:
    def change(of: Launch, files: Files) -> None:
        if of.name == launch:
            files[name] = text

    return change


def found(run: Run, rule: str) -> Finding:
    (finding,) = [f for f in run.findings() if f.rule == rule]
    return finding


def test_a_healthy_run_has_no_finding() -> None:
    for settings in (SMALL, EMBED):
        run = Run(settings=settings)
        assert run.findings() == []
        assert run.quarantined() == []
        assert run.of(ModelLaunchProblem) == []
    assert {type(r) for r in Run().rows} == {
        ModelBuild, Quantization, ModelServer, ModelServing, ModelQuality, PerItem, Fingerprint,
    }  # fmt: skip
    assert {type(r) for r in Run(settings=EMBED).rows} == {ModelServer, ModelServing, ModelEmbedding}


SERVE, SERVE_2, QUANTISE = (
    "tiny-qwen3-w8a8-gptq-serve-1",
    "tiny-qwen3-w8a8-gptq-serve-2",
    "tiny-qwen3-w8a8-gptq-quantise-1",
)
BASE_SERVE, PREPARE = "tiny-qwen3-serve-1", "tiny-qwen3-prepare-1"
WRONG = "f" * 64
UNMADE = {"launches_complete", "weights_as_written"}
NONE: set[str] = set()
# rule, change that breaks it, unit, severity, other rules that are broken with it
CASES: list[tuple[str, Change, str, str, set[str]]] = [
    ("report_readable", instead(PREPARE, "model.json", "{}"), BASE, "critical", {"launches_complete"}),
    ("report_readable", without(QUANTISE, "quantise.json"), QUANT, "critical", UNMADE),
    ("report_readable", instead(SERVE, "server.json", "[]"), QUANT, "critical", {"launches_complete"}),
    (
        "report_readable", on(SERVE, "server.json", lambda d: d.update(weights_sha256="")), QUANT, "critical",
        {"launches_complete"},
    ),
    (
        "model_prepared", on(PREPARE, "model.json", lambda d: d.update(problem="no text")), BASE, "critical",
        {"launches_complete"},
    ),
    ("model_prepared", on(PREPARE, "model.json", lambda d: d.update(steps=3)), BASE, "critical", {"launches_complete"}),
    (
        "model_quantised", on(QUANTISE, "quantise.json", lambda d: d.update(problem="out of memory")), QUANT,
        "critical", UNMADE,
    ),
    (
        "quantised_as_asked", on(QUANTISE, "quantise.json", lambda d: d["calibration"].update(samples=12)), QUANT,
        "critical", UNMADE,
    ),
    (
        "server_starts",
        on(SERVE, "server.json", lambda d: d.update(
            served=[], steps=[{"name": "start", "exit_code": 1, "duration_s": 1.0, "problem": "no kernel for it"}])),
        QUANT, "critical", {"launches_complete", "steps_complete"},
    ),
    (
        "served_as_asked", on(SERVE, "server.json", lambda d: d.update(served=["other"], problem="nothing measured")),
        QUANT, "critical", {"launches_complete"},
    ),
    (
        "weights_intact", on(SERVE, "server.json", lambda d: d.update(weights_sha256=WRONG)), QUANT, "critical",
        {"launches_complete"},
    ),
    ("prefix_caching_off", instead(SERVE, "metrics.txt", metrics(hits=64)), QUANT, "warning", NONE),
    ("prefix_caching_off", on(SERVE, "server.json", lambda d: d.update(flags=[])), QUANT, "warning", NONE),
    (
        "steps_complete",
        on(SERVE, "server.json", lambda d: d["steps"].append({"name": "lm-eval", "exit_code": 1, "problem": "x"})),
        QUANT, "warning", NONE,
    ),
    ("result_written", without(SERVE, "bench-c4-r1.json"), QUANT, "warning", NONE),
    ("result_written", without(SERVE, "lm-eval.json"), QUANT, "warning", NONE),
    ("result_written", without(SERVE, "lm-eval-samples-continuation.jsonl"), QUANT, "warning", NONE),
    ("result_written", without(SERVE, "perplexity.json"), QUANT, "warning", NONE),
    ("result_written", without(SERVE, "fingerprint.json"), QUANT, "warning", NONE),
    ("result_readable", instead(SERVE, "bench-c4-r1.json", "<html>502</html>"), QUANT, "warning", NONE),
    ("result_readable", instead(SERVE, "lm-eval.json", "{}"), QUANT, "warning", NONE),
    ("result_readable", on(SERVE, "lm-eval.json", lambda d: d.update(results={})), QUANT, "warning", NONE),
    ("result_readable", instead(SERVE, "lm-eval-samples-continuation.jsonl", "{"), QUANT, "warning", NONE),
    ("result_readable", instead(SERVE, "perplexity.json", "{}"), QUANT, "warning", NONE),
    ("result_readable", instead(SERVE, "fingerprint.json", "{}"), QUANT, "warning", NONE),
    ("requests_complete", on(SERVE, BENCH, lambda d: d.update(completed=23, failed=1)), QUANT, "critical", NONE),
    ("requests_complete", on(SERVE, BENCH, lambda d: d.update(completed=0, failed=24)), QUANT, "critical", NONE),
    ("requests_complete", on(SERVE, BENCH, lambda d: d.update(failed=2)), QUANT, "critical", NONE),
    ("load_as_asked", on(SERVE, BENCH, lambda d: d.update(max_concurrency=8)), QUANT, "warning", NONE),
    ("load_as_asked", on(SERVE, BENCH, lambda d: d.update(model_id="other")), QUANT, "warning", NONE),
    ("load_as_asked", on(SERVE, BENCH, lambda d: d.update(total_input_tokens=9)), QUANT, "warning", NONE),
    ("load_as_asked", on(SERVE, BENCH, lambda d: d.update(total_output_tokens=9)), QUANT, "warning", NONE),
    ("arithmetic_holds", on(SERVE, BENCH, lambda d: d.update(output_throughput=9e9)), QUANT, "warning", NONE),
    ("arithmetic_holds", on(SERVE, BENCH, lambda d: d.pop("request_throughput")), QUANT, "warning", NONE),
    ("requests_counted", instead(SERVE, "metrics.txt", metrics(requests=3)), QUANT, "warning", NONE),
    ("metrics_readable", without(SERVE, "metrics.txt"), QUANT, "warning", NONE),
    ("items_complete", on(SERVE, "perplexity.json", lambda d: d["windows"].pop()), QUANT, "warning", NONE),
    (
        "items_complete",
        on(SERVE, "lm-eval.json", lambda d: d["n-samples"]["continuation"].update(effective=19)),
        QUANT, "warning", NONE,
    ),
    (
        "items_match_result",
        on(SERVE, "lm-eval.json", lambda d: d["results"]["continuation"].update({"acc,none": 0.9})), QUANT, "warning",
        NONE,
    ),
    ("server_leaves_nothing", on(SERVE, "server.json", lambda d: d.update(left=["Core"])), QUANT, "warning", NONE),
    (
        "quantised_from_source", on(QUANTISE, "quantise.json", lambda d: d["source"].update(weights_sha256=WRONG)),
        QUANT, "critical", NONE,
    ),
    (
        "format_as_scheme", on(QUANTISE, "quantise.json", lambda d: d["result"].update(format=None)), QUANT, "critical",
        NONE,
    ),
    ("size_as_expected", on(QUANTISE, "quantise.json", lambda d: d["result"].update(bytes=1300000)),
     QUANT, "warning", NONE),
    (
        "weights_as_written",
        on(SERVE, "server.json", lambda d: d.update(weights_sha256=WRONG, manifest=None)), QUANT, "critical", NONE,
    ),
    (
        "weights_as_written",
        on(BASE_SERVE, "server.json", lambda d: d.update(weights_sha256=WRONG, manifest=None)), BASE, "critical", NONE,
    ),
    (
        "answers_deterministic",
        on(SERVE_2, "fingerprint.json", lambda d: d["prompts"][1].update(token_ids=[7, 9, 5, 5])),
        QUANT, "warning", NONE,
    ),
    (
        "likelihoods_deterministic",
        on(SERVE_2, "fingerprint.json", lambda d: d["prompts"][1].update(logprobs=[-0.6, -0.25, -1.0, -0.125])), QUANT,
        "info", NONE,
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "change", "unit", "severity", "more"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)]
)
def test_a_broken_rule_is_found_on_its_form(
    rule: str, change: Change, unit: str, severity: str, more: set[str]
) -> None:
    run = Run(change)
    finding = found(run, rule)
    assert (finding.unit, finding.unit_kind, finding.severity) == (unit, "model", severity)
    assert finding.action
    assert set(run.rules()) == {rule, *more}
    assert run.quarantined() == []


def test_a_server_of_errors_gives_no_number_though_its_client_ended_well() -> None:
    run = Run(on(SERVE, BENCH, lambda d: d.update(completed=0, failed=24, request_throughput=0.0)))
    (row,) = [r for r in run.of(ModelServing) if r.launch == SERVE and r.concurrency == 4]
    assert "0 of 24 requests" in row.problem
    assert (row.output_tokens_per_s, row.ttft_p50_ms, row.requests_per_s) == (None, None, None)
    assert found(run, "requests_complete").actual == "0 of 24 requests"


@pytest.mark.parametrize(
    "changed", [{"served": ["other"]}, {"asked": "other"}, {"weights_sha256": WRONG}, {"served": []}]
)
def test_what_another_model_answered_is_no_number_of_this_one(changed: dict[str, Any]) -> None:
    run = Run(on(SERVE, "server.json", lambda d: d.update(changed)))
    numbers = (ModelServing, ModelQuality, PerItem, Fingerprint)
    assert not [r for t in numbers for r in run.of(t) if r.launch == SERVE]
    (server,) = [r for r in run.of(ModelServer) if r.launch == SERVE]
    assert server.problem


def test_speeds_of_a_cache_are_no_numbers_but_answers_are() -> None:
    run = Run(instead(SERVE, "metrics.txt", metrics(hits=64)))
    assert all(r.problem for r in run.of(ModelServing) if r.launch == SERVE)
    assert [r for r in run.of(PerItem) if r.launch == SERVE]


def test_a_flipped_bit_is_found_by_the_hash_without_a_manifest_too() -> None:
    finding = found(
        Run(on(SERVE, "server.json", lambda d: d.update(weights_sha256=WRONG, manifest=None))), "weights_as_written"
    )
    assert (finding.expected, finding.actual) == (digest(QUANT)[:12], WRONG[:12])
    assert finding.evidence_unit == SERVE


def test_changed_weights_explain_a_server_that_does_not_start() -> None:
    failed = [{"name": "start", "exit_code": 1, "duration_s": 1.0, "problem": "header too large"}]
    run = Run(on(SERVE, "server.json", lambda d: d.update(served=[], steps=failed, weights_sha256=WRONG)))
    cause = found(run, "weights_intact")
    assert found(run, "server_starts").explained_by == cause.finding


def test_another_environment_of_the_server_is_another_series() -> None:
    def key(**serving: Any) -> str:
        run = Run(settings={**SMALL, "serving": {**SMALL["serving"], **serving}})
        keys: list[str] = [r.comparability for r in run.of(Fingerprint) if r.unit == BASE]
        return keys[0]

    assert key(env={"VLLM_ATTENTION_BACKEND": "FLASHINFER"}) != key()
    assert key(env={"DO_NOT_TRACK": "1"}) == key()


def test_a_break_within_an_item_is_no_end_of_its_line() -> None:
    def broken(launch: Launch, files: Files) -> None:
        name = "lm-eval-samples-continuation.jsonl"
        if name in files:
            items = [{**json.loads(line), "note": "one\u2028two\x85three"} for line in files[name].splitlines()]
            files[name] = "".join(json.dumps(i, ensure_ascii=False) + "\n" for i in items)

    assert Run(broken).rules() == []


def test_another_window_or_text_under_the_same_name_is_another_item() -> None:
    def hashed(launch: Launch, files: Files) -> None:
        if "perplexity.json" in files:
            edited(files, "perplexity.json", lambda d: [w.update(sha256=digest("text")) for w in d["windows"]])

    def names(run: Run) -> set[str]:
        return {r.item for r in run.of(PerItem) if r.task == "perplexity"}

    assert {n.removesuffix(f"-{digest('text')[:8]}") for n in names(Run(hashed))} == names(Run())
    assert not names(Run(hashed)) & names(Run())


def test_what_was_not_made_explains_what_cannot_be_served() -> None:
    def change(launch: Launch, files: Files) -> None:
        if launch.name == PREPARE:
            edited(files, "model.json", lambda d: d.update(problem="no text"))
        else:
            files.clear()

    run = Run(change)
    cause = found(run, "model_prepared")
    others = [f for f in run.findings() if f.finding != cause.finding]
    assert {f.rule for f in others} == {"report_readable", "launches_complete"}
    assert all(f.explained_by for f in others)
    quant = next(f for f in others if f.rule == "report_readable" and f.unit == QUANT)
    assert quant.explained_by == cause.finding


def test_a_pinned_revision_is_held_against_what_is_served() -> None:
    model = {"name": "m", "source": "m", "schemes": [], "revision": WRONG}
    run = Run(settings={**SMALL, "models": [model]})
    assert run.rules() == ["revision_as_pinned"]
    assert Run(settings={**SMALL, "models": [{**model, "revision": digest("m")}]}).rules() == []


def test_a_model_of_unknown_weights_is_at_least_the_same_in_all_launches() -> None:
    settings = {**SMALL, "models": [{"name": "m", "source": "m", "schemes": []}]}
    run = Run(on("m-serve-2", "server.json", lambda d: d.update(weights_sha256=WRONG, manifest=None)), settings)
    assert found(run, "weights_as_written").unit == "m"
    assert Run(settings=settings).rules() == []


def test_only_on_a_gpu_a_quantised_form_has_to_be_as_fast_as_its_base() -> None:
    def slow(device: str, rate: float = 20.0) -> Change:
        def change(launch: Launch, files: Files) -> None:
            if "server.json" in files:
                edited(files, "server.json", lambda d: d.update(device=device))
            if launch.units == (QUANT,) and "server.json" in files:
                want = asked(launch)
                files["bench-c4-r1.json"] = json.dumps(bench_report(want, 4, rate=rate))  # type: ignore[arg-type]

        return change

    finding = found(Run(slow("cuda: 1 x NVIDIA H200")), "no_slower_than_base")
    assert (finding.unit, finding.severity) == (QUANT, "info")
    assert Run(slow("cpu: EPYC avx512")).rules() == []
    assert Run(slow("cuda: 1 x NVIDIA H200", rate=29.1)).rules() == []


def test_vectors_of_two_launches_have_one_direction() -> None:
    def turn(d: dict[str, Any]) -> None:
        d["texts"][1]["vector"] = [0.5, 0.5, 1.0]

    finding = found(Run(on("tiny-embed-serve-2", "embeddings.json", turn), EMBED), "vectors_deterministic")
    assert finding.unit == "tiny-embed"
    assert "text-1" in finding.summary


def test_guidellm_is_held_against_its_failures(text_of: Callable[[str], str]) -> None:
    settings = {**SMALL, "serving": {**SMALL["serving"], "guidellm_s": 30}}
    report = text_of("guidellm-0.8.json")

    def run(text: str) -> Run:
        return Run(lambda _, files: files.update({"guidellm.json": text}) if "server.json" in files else None, settings)

    good = run(report)
    assert good.rules() == []
    (row,) = [r for r in good.of(ModelServing) if r.client == "guidellm" and r.launch == SERVE]
    assert (row.concurrency, row.completed, row.problem) == (4, 100, None)
    assert run(report.replace('"errored": 0', '"errored": 3')).rules() == ["requests_complete"]
    assert run("").rules() == ["result_readable"]
    assert run(report.replace('"streams": 4', '"streams": 2')).rules() == ["load_as_asked"]
    assert Run(settings=settings).rules() == ["result_written"]


def test_a_printed_result_stands_for_a_file_that_was_not_saved(text_of: Callable[[str], str]) -> None:
    serving = {"launches": 1, "concurrency": [8], "prompts": 50, "input_tokens": 64, "output_tokens": 32}
    settings = {**SMALL, "serving": serving}

    def unsaved(launch: Launch, files: Files) -> None:
        files.pop("bench-c8-r1.json", None)

    run = Run(unsaved, settings, stdout=text_of("vllm-bench-0.32.txt"))
    assert run.rules() == []
    assert {r.ttft_p99_ms for r in run.of(ModelServing)} == {51.15}


def test_an_answer_after_an_empty_thought_is_right_in_the_score_too(text_of: Callable[[str], str]) -> None:
    model = {"name": "m", "source": "m", "schemes": [], "tasks": ["gsm8k"]}
    settings = {**SMALL, "models": [model], "quality": {**SMALL["quality"], "items": None}}
    results = {
        "results": {"gsm8k": {"exact_match,strict-match": 1 / 3, "exact_match_stderr,strict-match": 0.3}},
        "n-samples": {"gsm8k": {"original": 3, "effective": 3}},
    }

    def change(launch: Launch, files: Files) -> None:
        if launch.name == "m-serve-1":
            files["lm-eval.json"] = json.dumps(results)
            files["lm-eval-samples-gsm8k.jsonl"] = text_of("lm-eval-samples-generate-0.4.13.jsonl")

    run = Run(change, settings)
    assert run.rules() == []
    (score,) = [r for r in run.of(ModelQuality) if r.task == "gsm8k"]
    assert score.value == pytest.approx(2 / 3)
    assert [r.correct for r in run.of(PerItem) if r.task == "gsm8k"] == [True, False, True]


def test_keys_of_base_and_scheme_differ_in_the_scheme_alone() -> None:
    keys = {
        r.unit: dict(f.split("=", 1) for f in r.comparability.split(";"))
        for r in Run().of(PerItem)
        if r.task != "perplexity"
    }
    base, quant = keys[BASE], keys[QUANT]
    assert {k for k in base if base[k] != quant[k]} == {"scheme"}
    assert base["revision"] == digest(BASE)[:12]


def test_a_launch_that_did_not_end_is_told_once() -> None:
    run = Run()
    launch = next(x for x in run.launches if x.name == SERVE)
    for status, exit_code, rule in (
        (CommandStatus.TIMEOUT, None, "launch_completes"),
        (CommandStatus.EXITED, 1, "launch_completes"),
        (CommandStatus.TRUNCATED, 0, None),
    ):
        evidence = make_evidence(SERVE, healthy(launch), status=status, exit_code=exit_code)
        rows = MODEL_EVAL.parse(launch, evidence, run.site)
        assert [r.rule for r in rows if isinstance(r, ModelLaunchProblem)] == ([rule] if rule else [])
    cut = make_evidence(SERVE, healthy(launch), status=CommandStatus.TIMEOUT, exit_code=None)
    rows = MODEL_EVAL.parse(launch, cut, run.site)
    assert not [r for r in rows if isinstance(r, (ModelServing, PerItem))]
    reach = {SERVE: StoredEvidence(SERVE, "k", "h", ReachStatus.HUNG)}
    findings = MODEL_EVAL.judge(RowSet.gather(rows), Context(run.site, "run-1", NOW, (launch,), reach))
    assert {f.rule for f in findings} == {"launches_complete"}


def test_files_that_were_cut_say_so() -> None:
    run = Run()
    launch = next(x for x in run.launches if x.name == SERVE)
    rows = MODEL_EVAL.parse(launch, make_evidence(SERVE, healthy(launch), cut=("bench-c4-r1.json",)), run.site)
    (problem,) = [r for r in rows if isinstance(r, ModelLaunchProblem)]
    assert (problem.rule, problem.detail) == ("result_written", "bench-c4-r1.json was cut")


def test_a_job_of_another_check_is_refused() -> None:
    launch = Launch("x-1", Run().launches[0].spec, ())
    (row,) = MODEL_EVAL.parse(launch, make_evidence("x-1", {}), Run().site)
    assert isinstance(row, ModelLaunchProblem)
    assert row.rule == "launch_known"
    findings = MODEL_EVAL.judge(RowSet.gather([row]), Context(Run().site, "r", NOW, (), {}))
    assert {f.rule for f in findings} == {"launch_known", "launches_planned"}


def test_a_run_without_launches_is_not_judged() -> None:
    run = Run()
    (finding,) = MODEL_EVAL.judge(RowSet(), Context(run.site, "run-1", NOW, (), {}))
    assert (finding.rule, finding.kind) == ("launches_planned", "not_judged")


def test_what_broke_in_several_launches_is_one_finding() -> None:
    def change(launch: Launch, files: Files) -> None:
        if "server.json" in files:
            edited(files, "server.json", lambda d: d.update(left=["EngineCore"]))

    findings = Run(change).findings()
    assert sorted(f.unit for f in findings) == [BASE, QUANT]
    assert all("the same in" in f.summary for f in findings)


def test_every_rule_of_a_launch_has_a_case_that_breaks_it() -> None:
    elsewhere = {"launch_known", "launch_completes"}
    assert set(RULES) == {c[0] for c in CASES if c[0] in RULES} | elsewhere
