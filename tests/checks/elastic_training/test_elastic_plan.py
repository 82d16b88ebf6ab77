"""Settings are refused with the reason; launches are what was asked for, on nodes that the run's name draws."""

from __future__ import annotations

import json
from typing import Any

import pytest
from elastic_samples import IMAGE, LAB, NOW, cluster_site, local_site

from fabric_health.checks.elastic_training.launches import launches
from fabric_health.checks.elastic_training.settings import asked, settings
from fabric_health.errors import SiteError
from fabric_health.jobs.kubernetes import elastic, manifests
from fabric_health.jobs.settings import KubernetesSettings


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"workers": 1}, "workers: 1; expected 2 or more"),
        ({"workers": 3, "min_workers": 4}, "more than the 3 workers"),
        ({"min_workers": 2}, "faults: lose-agent leaves 1 of 2 workers"),
        ({"faults": ["delete-worker"]}, "faults: delete-worker; the local backend has kill-rank"),
        ({"faults": ["return-agent"]}, "return-agent without a lose-agent before it"),
        ({"faults": ["hang-rank", "kill-rank"]}, "something comes after hang-rank"),
        ({"faults": ["burn"]}, "faults.0"),
        ({"checkpoint_every": 150}, "expected at most half of them"),
        ({"fault_at_step": 200}, "fault_at_step is 200 of 200 steps"),
        ({"nodes": 4}, "unknown key; see docs/checks/elastic_training.md"),
        ({"program": "a;b"}, "program"),
        ({"limits": {"resumed_s": -1}}, "limits.resumed_s"),
    ],
)
def test_settings_of_one_machine_that_do_not_fit(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SiteError, match=r"checks\.elastic_training") as error:
        settings(local_site(**given))
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"workers": 3},
            "workers: 3; expected 4 or more: with three running nodes or fewer DLRover ends the whole group",
        ),
        ({"min_workers": 4}, "delete-worker leaves 3 of 4 workers"),
        ({"faults": ["kill-rank"]}, "the kubernetes backend has delete-worker"),
        ({"faults": ["delete-worker", "delete-worker"]}, "delete-worker more than once; expected it once"),
        ({"node_check": False}, "expected both, or neither"),
        ({"launcher": ["a\nb"]}, "launcher.0"),
    ],
)
def test_settings_of_a_cluster_that_do_not_fit(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SiteError) as error:
        settings(cluster_site(**given))
    assert said in str(error.value)


def test_defaults_follow_from_the_backend() -> None:
    local, cluster = asked(local_site()), asked(cluster_site())
    assert (local.workers, local.min_workers, local.time_limit_s, local.stall_limit_s) == (2, 1, 300, 60)
    assert (cluster.workers, cluster.min_workers, cluster.time_limit_s, cluster.stall_limit_s) == (4, 3, 1800, 600)
    assert local.faults == ("kill-rank", "lose-agent", "return-agent")
    assert cluster.faults == ("delete-worker",)
    assert (cluster.steps, asked(cluster_site(training=["/opt/train.py"])).steps) == (200, None)
    assert asked(local_site(limits={"lost_steps": 0})).lost_steps == 0


def test_launches_of_one_machine() -> None:
    check, faults = launches(local_site(), (), "run-1")
    assert [x.name for x in (check, faults)] == ["elastic-check-1", "elastic-1"]
    for launch in (check, faults):
        assert (launch.units, launch.unit_kind, launch.origin) == (("elastic",), "job", "measured")
        assert launch.spec.tool == "dlrover"
        assert launch.spec.env["TZ"] == "UTC"
    argv = " ".join(faults.spec.argv)
    assert argv == (
        "{python} {tool}/elastic_smoke.py --out {artefacts} --agents 2 --min-agents 1 --steps 200 --checkpoint-every 5 "
        "--disk-every 1 --max-restarts 3 --faults kill-rank,lose-agent,return-agent --stall-limit 60 --limit 300"
    )
    assert "--agents 4 --min-agents 3" in " ".join(check.spec.argv)
    assert "--node-check" in check.spec.argv
    assert "--faults" not in check.spec.argv
    assert "training.jsonl" in faults.spec.artefacts
    assert faults.spec.time_limit_s > 300
    assert [x.name for x in launches(local_site(node_check=False, launches=2), (), "r")] == ["elastic-1", "elastic-2"]


def test_launch_of_a_cluster() -> None:
    (launch,) = launches(cluster_site(), LAB.nodes, "run-1")
    spec = launch.spec
    assert (spec.family, len(spec.nodes), launch.unit_kind) == ("elastic", 4, "job")
    assert set(spec.nodes) <= {n.name for n in LAB.nodes}
    argv = " ".join(spec.argv)
    gpus = LAB.nodes[0].sku.gpus
    assert argv.startswith(
        f"dlrover-run --nnodes=3:4 --nproc_per_node={gpus} --max_restarts=3 --rdzv_conf join_timeout=600,"
        "lastcall_timeout=30,pend_timeout=600 --network-check --exclude-straggler {tool}/train.py --steps 200"
    )
    assert argv.endswith("--checkpoints {models}/elastic-training/run-1/elastic-1")
    assert spec.disturb is not None
    assert (spec.disturb.rank_index, spec.disturb.at_step, spec.disturb.at_latest_s) == (1, 20, 600)
    assert (spec.resources.gpu, spec.ranks_per_node) == (gpus, gpus)
    (calm,) = launches(cluster_site(faults=[], node_check=False, exclude_straggler=False), LAB.nodes, "run-1")
    assert calm.spec.disturb is None
    assert "--network-check" not in calm.spec.argv


def test_the_cluster_takes_the_launch() -> None:
    (launch,) = launches(cluster_site(), LAB.nodes, "run-1")
    known = KubernetesSettings.model_validate(
        {"namespace": "n", "images": {"dlrover": IMAGE}, "models": {"claim": "m"}}
    )
    job = manifests.job(launch.spec, known, "s", "run-1", NOW)
    assert job.kind.kind == "ElasticJob"
    assert elastic.problem_of(job.manifest) == ""
    assert job.manifest["spec"]["replicaSpecs"]["worker"]["replicas"] == 4
    assert "/models/elastic-training/run-1/elastic-1" in json.dumps(job.manifest)


def test_checkpoints_of_runs_are_kept_apart_whatever_their_names_hold() -> None:
    (launch,) = launches(cluster_site(), LAB.nodes, "manual__2026-11-30T05:00:00+00:00/../x")
    assert launch.spec.argv[-1] == "{models}/elastic-training/manual__2026-11-30T05-00-00-00-00-..-x/elastic-1"


def test_other_nodes_come_up_in_other_runs_and_the_same_in_the_same_run() -> None:
    def of(run: str) -> tuple[str, ...]:
        return launches(cluster_site(), LAB.nodes, run)[0].spec.nodes

    assert of("run-1") == of("run-1")
    drawn = {name for n in range(40) for name in of(f"run-{n}")}
    assert drawn == {n.name for n in LAB.nodes}


def test_fewer_fit_nodes_than_workers_launch_nothing() -> None:
    assert launches(cluster_site(), LAB.nodes[:3], "run-1") == ()
    assert launches(cluster_site(resources={"gpu": 64}), LAB.nodes, "run-1") == ()


def test_a_training_program_of_the_sites_own() -> None:
    own = ["/opt/train.py", "--out", "{checkpoints}", "--n", "{steps}", "--data", "/data"]
    (launch,) = launches(cluster_site(training=own, launcher=["python3", "/opt/run.py"]), LAB.nodes, "r")
    assert launch.spec.argv[:2] == ("python3", "/opt/run.py")
    assert launch.spec.argv[-7:] == (
        "/opt/train.py", "--out", "{models}/elastic-training/r/elastic-1", "--n", "200", "--data", "/data",
    )  # fmt: skip
