"""Every rule of the check both ways: what passes, and what each fault is found as."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from elastic_samples import (
    CLUSTER,
    FAULTS,
    NOW,
    WHOLE,
    ClusterRun,
    ClusterStory,
    Fault,
    Part,
    Run,
    Story,
    check_files,
    checked,
    cluster_site,
    local_site,
)

from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.elastic_training import ELASTIC_TRAINING
from fabric_health.checks.elastic_training.tables import ElasticNodeCheck, ElasticRecovery, ElasticRun
from fabric_health.datasets.tables import Finding
from fabric_health.evidence import CommandStatus, ReachStatus
from fabric_health.site import Site


def only(run: Run, rule: str) -> Finding:
    (found,) = [f for f in run.findings() if f.rule == rule]
    return found


def test_a_run_on_one_machine_passes() -> None:
    run = Run()
    assert run.findings() == []
    assert run.quarantined() == []
    trained = next(r for r in run.of(ElasticRun) if r.launch == "elastic-1")
    assert (trained.final_status, trained.steps, trained.problem, trained.unread) == ("succeeded", 200, None, None)
    assert trained.start_s == pytest.approx(8.2, abs=0.05)
    assert (trained.world_first, trained.world_last, trained.peak_memory_mib) == (2, 2, 812.5)
    assert "dlrover=0.6.1;torch=2.13.0" in trained.comparability


def test_a_run_on_a_cluster_passes() -> None:
    run = ClusterRun()
    assert run.findings() == []
    assert run.quarantined() == []
    (row,) = run.of(ElasticRecovery)
    assert (row.kind, row.node, row.world_before, row.world_after) == ("delete-worker", "gpu-002", 32, 24)
    assert row.replaced_s == pytest.approx(45, abs=0.01)
    assert {r.node for r in run.of(ElasticNodeCheck)} == {"gpu-001", "gpu-002", "gpu-003", "gpu-004"}


# -- recovery --------------------------------------------------------------------------------------------------------


def test_a_job_that_never_resumes() -> None:
    story = Story(WHOLE[:2], FAULTS[:2], done=False, report={"problem": "did not come back"})
    run = Run(story, exit_code=1)
    found = only(run, "training_resumes")
    assert (found.severity, found.kind, found.metric) == ("critical", "deviation", "lose-agent.resumed")
    assert "never went on after a lost agent at step 70" in found.summary
    ended = only(run, "training_completes")
    assert (ended.actual, ended.explained_by) == ("failed", found.finding)
    assert run.rules() == ["fault_injected", "training_completes", "training_resumes"]


def test_a_deleted_pod_that_never_comes_back_and_training_that_does_not_go_on() -> None:
    run = ClusterRun(ClusterStory(CLUSTER[:1], replaced_s=None, done=False), exit_code=1, seconds=700)
    assert run.rules() == ["training_completes", "training_resumes", "worker_replaced_in_time"]


def test_whether_it_resumed_is_not_known_from_cut_output() -> None:
    run = ClusterRun(ClusterStory(CLUSTER[:1], done=False), exit_code=1, status=CommandStatus.TRUNCATED)
    assert only(run, "training_resumes").kind == "not_judged"
    assert only(run, "evidence_complete").kind == "not_judged"


def test_steps_without_any_restart_or_rendezvous_cannot_be_told_apart() -> None:
    story = Story((Part(0, 200, wait_s=8, step_s=0.5),), (Fault("kill-rank", 0, rank=1, after_s=-60),))
    bare = {**story.files(), "master.log": "", "agent-0.log": "", "agent-1.log": ""}
    run = Run(bare, local_site(faults=["kill-rank"]), seconds=story.ended_at)
    found = only(run, "training_resumes")
    assert (found.kind, found.severity) == ("not_judged", "warning")


def test_recovery_beyond_its_limit() -> None:
    slow = (WHOLE[0], replace(WHOLE[1], wait_s=301), *WHOLE[2:])
    run = Run(Story(slow))
    found = only(run, "recovers_in_time")
    assert (found.metric, found.expected) == ("kill-rank.resumed_s", "<= 300 s")
    assert "detected 0.6 s, rendezvous 300" in found.summary
    assert run.rules() == ["recovers_in_time"]
    assert Run(Story(slow), local_site(limits={"resumed_s": 400})).rules() == []


def test_a_silent_fault_has_more_time() -> None:
    site = local_site(faults=["hang-rank"], stall_limit_s=1000)
    parts = (WHOLE[0], Part(30, 200, restart=1, wait_s=500))
    assert Run(Story(parts, (Fault("hang-rank", 0, rank=1),)), site).rules() == []
    late = (WHOLE[0], Part(30, 200, restart=1, wait_s=700))
    assert Run(Story(late, (Fault("hang-rank", 0, rank=1),)), site).rules() == ["recovers_in_time"]


def test_a_job_that_resumes_from_step_0() -> None:
    run = Run(Story((WHOLE[0], Part(0, 70, restart=1), *WHOLE[2:])))
    found = only(run, "resumes_from_checkpoint")
    assert found.severity == "critical"
    assert "after a killed rank at step 33: resumed from step 0" in found.summary
    assert run.rules() == ["resumes_from_checkpoint"]


def test_before_the_first_checkpoint_step_0_is_right() -> None:
    parts = (Part(0, 4, wait_s=8), Part(0, 200, restart=1))
    run = Run(Story(parts, FAULTS[:1]), local_site(faults=["kill-rank"]))
    assert run.rules() == []


def test_ranks_that_go_on_from_different_steps() -> None:
    story = Story()
    other = [
        {"t": story.starts[1] + 0.12, "kind": "resume", "rank": 1, "world": 2, "node": 1, "restart": 1, "step": 25}
    ]
    run = Run(Story(more=other))
    assert "ranks went on from different steps: 25, 30" in only(run, "resumes_from_checkpoint").summary


def test_more_steps_lost_than_a_checkpoint_is_apart() -> None:
    run = Run(Story((WHOLE[0], Part(20, 70, restart=1), *WHOLE[2:])))
    found = only(run, "lost_steps_within_checkpoint")
    assert (found.actual, found.expected, found.severity) == ("13 steps", "<= 5 steps", "warning")
    assert run.rules() == ["lost_steps_within_checkpoint"]
    kept = local_site(limits={"lost_steps": 20})
    assert Run(Story((WHOLE[0], Part(20, 70, restart=1), *WHOLE[2:])), kept).rules() == []


def test_loss_that_does_not_go_on_where_it_was() -> None:
    bad = {step: 2.5 - step / 100 for step in range(31, 201)}
    run = Run(Story(losses=bad))
    assert "loss_continues" in run.rules()
    assert only(run, "loss_continues").severity == "critical"


def test_fewer_or_more_processes_than_there_should_be() -> None:
    site = local_site(workers=4, min_workers=2)
    parts = [replace(p, world=w) for p, w in zip(WHOLE, (4, 4, 2, 4), strict=True)]
    files = {f"agent-{n}.log": "" for n in range(4)}
    story = Story(parts, report={"agents": 4, "min_agents": 2})
    run = Run({**story.files(), **files}, site, seconds=story.ended_at)
    # Of one lost agent two workers are gone, and the return of one brings two.
    assert {f.metric for f in run.findings()} == {"lose-agent.world_size", "return-agent.world_size"}
    assert run.rules() == ["world_size_follows"]


def test_a_returned_worker_that_is_gone_at_the_end() -> None:
    parts = (*WHOLE[:3], Part(130, 160, 2, 3, 5), Part(160, 200, 1, 4, 5))
    assert "world_size_restored" in Run(Story(parts), local_site(max_restarts=3)).rules()
    # On a cluster: the pod is back, but the job was over before it trained.
    run = ClusterRun(ClusterStory((CLUSTER[0], Part(40, 200, 24, 1, 30))))
    assert run.rules() == ["world_size_restored"]


def test_a_pod_that_is_replaced_late_or_never() -> None:
    late = ClusterRun(ClusterStory(replaced_s=121))
    assert only(late, "worker_replaced_in_time").actual == "121 s"
    never = ClusterRun(ClusterStory(replaced_s=None))
    assert "no pod took its place" in only(never, "worker_replaced_in_time").summary
    unknown = ClusterRun(files={"pods.jsonl": "x" * 50})
    assert unknown.rules() == ["evidence_complete"]


# -- whole launches --------------------------------------------------------------------------------------------------


def test_a_hang_between_steps_is_found_without_a_crash() -> None:
    late = [
        {"t": 1796014900.0, "kind": "step", "rank": 0, "world": 2, "node": 0, "restart": 3, "step": 200, "loss": 0.1}
    ]
    story = Story(more=late, done=False)
    run = Run(story.files(), seconds=story.ended_at + 900 - story.starts[0])
    assert "no_stall" in run.rules()


def test_a_job_that_hangs_and_is_ended() -> None:
    story = Story(WHOLE[:1], (), done=False, report={"stalled": {"step": 33}, "problem": "stalled: no step for 60 s"})
    run = Run(story.files(), local_site(faults=[]), exit_code=1, seconds=80)
    ended = only(run, "training_completes")
    assert (ended.actual, ended.severity) == ("hung", "critical")
    stall = only(run, "no_stall")
    assert (stall.severity, ended.explained_by) == ("critical", stall.finding)


def test_an_injected_hang_that_nobody_notices() -> None:
    report = {"stalled": {"step": 33}, "problem": "stalled: no step for 60 s after step 33"}
    story = Story(WHOLE[:1], (Fault("hang-rank", 0, rank=1),), done=False, report=report)
    run = Run(story.files(), local_site(faults=["hang-rank"]), exit_code=1, seconds=80)
    assert only(run, "training_resumes").metric == "hang-rank.resumed"
    assert only(run, "training_completes").actual == "hung"


def test_a_job_that_runs_out_of_time() -> None:
    story = Story(WHOLE[:1], FAULTS[:1], done=False)
    run = Run(story.files(), exit_code=None, seconds=40, status=CommandStatus.TIMEOUT, reach=ReachStatus.HUNG)
    assert only(run, "training_completes").actual == "limit"


def test_exit_code_0_without_a_step_is_a_failure() -> None:
    run = ClusterRun(stdout="Completed\n", stderr="", files={"faults.jsonl": ""})
    assert only(run, "training_completes").actual == "no_steps"
    assert only(run, "fault_injected").kind == "not_judged"


def test_exit_code_0_before_the_last_step_is_a_failure() -> None:
    run = Run(Story((*WHOLE[:3], Part(130, 170, 2, 3, 5))))
    found = only(run, "training_completes")
    assert (found.actual, found.severity) == ("unfinished", "critical")
    assert "at step 170 of 200" in found.summary


def test_a_late_start() -> None:
    run = Run(Story((replace(WHOLE[0], wait_s=301), *WHOLE[1:])))
    assert run.rules() == ["starts_in_time"]


def test_loss_that_does_not_fall_is_missing_or_no_number() -> None:
    flat = dict.fromkeys(range(201), 1.0)
    assert Run(Story(losses=flat)).rules() == ["loss_falls"]
    none = dict.fromkeys(range(201))
    assert only(Run(Story(losses=none)), "loss_falls").kind == "not_judged"
    nan = Run(Story(losses={50: float("nan")}))
    assert only(nan, "loss_finite").severity == "critical"


def test_more_restarts_than_allowed() -> None:
    parts = (*WHOLE[:3], replace(WHOLE[3], restart=4))
    run = Run(Story(parts))
    assert run.rules() == ["restarts_within_limit"]


def test_what_is_left_behind() -> None:
    run = Run(Story(report={"left": ["/dev/shm/job_ckpt_shm_0"]}))
    assert run.rules() == ["nothing_left"]


def test_torchrun_in_place_of_dlrover() -> None:
    files = Story().files()
    files["agent-0.log"] += "[2026-11-30 05:00:02,000] [ERROR] [elastic_run.py:1:f] Downgrade to use torch-run\n"
    assert only(Run(files), "dlrover_in_play").severity == "critical"


def test_a_fault_that_did_not_happen() -> None:
    run = Run(Story((*WHOLE[:2], Part(70, 200, 1, 2, 9)), FAULTS[:2]))
    found = only(run, "fault_injected")
    assert (found.kind, found.severity) == ("not_judged", "warning")
    assert "return-agent did not happen" in found.summary


# -- node check ------------------------------------------------------------------------------------------------------


def test_a_straggler_is_a_finding_on_its_node() -> None:
    run = ClusterRun(files={"master.log": checked((20.3, 20.3, 152.0, 21.0))})
    (found,) = run.findings()
    assert (found.rule, found.unit, found.unit_kind, found.severity) == ("no_stragglers", "gpu-003", "node", "warning")
    assert found.actual == "7.5 x"


def test_half_of_the_nodes_being_slow_is_seen_which_dlrover_misses() -> None:
    run = ClusterRun(files={"master.log": checked((20.0, 20.0, 50.0, 52.0))})
    assert {f.unit for f in run.findings()} == {"gpu-003", "gpu-004"}


def test_a_straggler_that_dlrover_names_itself() -> None:
    said = "[2026-11-30 05:00:41,000] [WARNING] [x.py:1:f] Straggler: {2: 41.2}.\n"
    run = ClusterRun(files={"master.log": checked() + said})
    assert "DLRover names it a straggler" in only(run, "no_stragglers").summary


def test_a_slow_agent_of_one_machine_is_a_part_of_the_job() -> None:
    run = Run(check=check_files(times=(3.0, 3.1, 9.9, 3.0)))
    (found,) = run.findings()
    assert (found.rule, found.unit, found.unit_kind) == ("no_stragglers", "elastic/agent-2", "agent")


def test_a_node_that_fails_the_check() -> None:
    run = ClusterRun(files={"master.log": checked(failed=[1])})
    found = only(run, "node_check_passes")
    assert (found.unit, found.severity) == ("gpu-002", "critical")


def test_a_check_that_fails_without_naming_a_node() -> None:
    said = "NodeCheckFailedError: This node failed the node-check procedure(mat-mul + comm) before training.\n"
    run = ClusterRun(ClusterStory(parts=CLUSTER[:1], done=False), exit_code=1, stdout="", stderr=said,
                     files={"master.log": "", "faults.jsonl": ""})  # fmt: skip
    found = only(run, "node_check_passes")
    assert (found.unit, found.unit_kind) == ("elastic", "job")
    assert only(run, "training_completes").explained_by == found.finding


def test_a_check_without_any_result() -> None:
    run = Run(check={**check_files(), "master.log": "nothing\n"})
    assert only(run, "node_check_known").kind == "not_judged"
    assert ClusterRun(site=cluster_site(node_check=False, exclude_straggler=False)).rules() == []


# -- evidence --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["job.json", "training.jsonl", "faults.jsonl"])
def test_without_what_it_is_judged_by_a_launch_is_not(name: str) -> None:
    files = Story().files()
    del files[name]
    run = Run(files)
    assert only(run, "launch_readable").kind == "not_judged"
    assert {f.kind for f in run.findings()} == {"not_judged"}
    assert run.quarantined() == []


def test_another_program_or_other_settings_are_not_judged() -> None:
    assert "launch_readable" in Run({**Story().files(), "job.json": json.dumps({"program": "other"})}).rules()
    run = Run(Story(report={"checkpoint_every": 50}))
    assert "checkpoint_every 50 instead of 5" in only(run, "launch_readable").summary


def test_training_that_goes_on_from_an_earlier_launch_is_not_judged() -> None:
    run = Run(Story((Part(150, 160, wait_s=8), Part(160, 200, restart=1)), FAULTS[:1]))
    assert "training began at step 150" in only(run, "launch_readable").summary


@pytest.mark.parametrize("name", ["agent-0.log", "master.log"])
def test_a_missing_log_is_told(name: str) -> None:
    files = Story().files()
    del files[name]
    assert Run(files).rules() == ["evidence_complete"]


def test_a_cut_log_is_told() -> None:
    assert Run(Story().files(), cut=["agent-0.log"]).rules() == ["evidence_complete"]
    files = Story().files()
    files["agent-0.log"] += "\n[... 12345 bytes left out ...]\n"
    assert Run(files).rules() == ["evidence_complete"]
    files = Story().files()
    files["training.jsonl"] += '{"t": 17960'
    assert Run(files).rules() == ["evidence_complete"]


def test_the_cut_end_of_the_deleted_workers_output_is_no_loss() -> None:
    story = ClusterStory()
    for end in ('EV {"t": 1796', 'EV {"t": 1796\n'):
        run = ClusterRun(story, stdout=end + story.stdout())
        assert run.rules() == []
        assert run.of(ElasticRecovery) == ClusterRun(story).of(ElasticRecovery)
    twice = 'EV {"t": 1796\nEV {"t": 1796\n' + story.stdout()
    assert ClusterRun(story, stdout=twice).rules() == ["evidence_complete"]


def test_a_launch_that_did_not_run_has_its_finding_already() -> None:
    given: dict[str, Any] = {
        "exit_code": None,
        "status": CommandStatus.NOT_RUN,
        "reach": ReachStatus.UNREACHABLE,
        "detail": "no room",
    }
    run = Run({}, **given)
    assert run.rules() == []
    assert next(r.problem for r in run.of(ElasticRun) if r.launch == "elastic-1") == "no room"


def test_steps_without_a_time_cannot_be_timed() -> None:
    lines = "".join(f"loss = {2 - s / 150}, step = {s}\n" for s in range(201))
    site = cluster_site(training=["/opt/train.py"], faults=[])
    run = ClusterRun(ClusterStory(faults=()), site, stdout=lines, files={"faults.jsonl": ""})
    assert run.rules() == ["steps_timed"]


def test_a_launch_that_cannot_be_judged_is_no_result() -> None:
    good, bad = Run(), Run({**Story().files(), "job.json": "{}"})
    for run, expected in ((good, {"elastic-1", "elastic-check-1"}), (bad, {"elastic-check-1"})):
        rows = [r for t in ELASTIC_TRAINING.results for r in run.of(t) if ELASTIC_TRAINING.counts(r)]
        assert {ELASTIC_TRAINING.unit_of(r) for r in rows} == expected


def launched(site: Site) -> list[Finding]:
    return ELASTIC_TRAINING.judge(RowSet(), Context(site, "r", NOW, (), {}))


def test_too_few_fit_nodes_are_no_pass() -> None:
    (found,) = launched(cluster_site(workers=4))
    assert (found.rule, found.kind) == ("training_launched", "not_judged")
    assert "4 nodes of one SKU" in found.summary


def test_a_site_that_does_not_name_the_check_has_none() -> None:
    assert launched(replace(cluster_site("registry.example.org/dlrover:master"), checks={})) == []


@pytest.mark.parametrize(
    ("image", "severity"),
    [
        ("registry.example.org/dlrover:master", "warning"),
        ("registry.example.org:5000/dlrover", "warning"),
        ("registry.example.org/dlrover:latest", "warning"),
        ("registry.example.org/dlrover:0.6.1", "info"),
    ],
)
def test_an_image_that_can_change(image: str, severity: str) -> None:
    assert only(ClusterRun(site=cluster_site(image)), "image_pinned").severity == severity
