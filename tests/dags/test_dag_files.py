"""What a DAG file may cost and must have. Every test looks at fresh processes, as a DAG processor's are."""

import json
from pathlib import Path

import pytest

from fabric_health.checks.registry import ENTRIES

STAGES = ("collect", "land", "judge")
HEAVY = ("pandas", "pyarrow", "duckdb", "great_expectations", "kubernetes", "asyncssh", "minio", "altair", "netutils")

SERIALIZED = """
import airflow, json, sys
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization
import os
bag = DagBag(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
assert not bag.import_errors, bag.import_errors
print(json.dumps({k: DagSerialization.to_dict(d) for k, d in sorted(bag.dags.items())}, sort_keys=True, default=str))
"""


@pytest.fixture(scope="module")
def dags(python_in):
    return json.loads(python_in(SERIALIZED).splitlines()[-1])


def test_every_expected_dag_is_there(dags):
    fixed = {"weekly_fabric_health", "post_maintenance", "trend_quality", "housekeeping"}
    assert set(dags) == {*fixed, *(e.dag_id for e in ENTRIES)}


def test_parsing_in_two_processes_gives_the_same_dags(python_in, dags):
    again = json.loads(python_in(SERIALIZED, PYTHONHASHSEED="1").splitlines()[-1])
    assert again == dags


def test_parsing_imports_nothing_heavy(python_in, tmp_path):
    """Compared with an empty DAG file: what Airflow itself imports is not ours to avoid."""
    (tmp_path / "empty.py").write_text("from airflow.sdk import DAG\nwith DAG('empty'):\n    pass\n")
    source = """
import json, os, sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(os.environ["FOLDER"])
assert bag.dags and not bag.import_errors, bag.import_errors
print(json.dumps(sorted({m.partition('.')[0] for m in sys.modules})))
"""
    empty = set(json.loads(python_in(source, FOLDER=str(tmp_path)).splitlines()[-1]))
    folder = str(Path(__file__).resolve().parents[2] / "dags")
    ours = set(json.loads(python_in(source, FOLDER=folder).splitlines()[-1]))
    assert "fabric_health" in ours
    assert not (ours - empty) & set(HEAVY)


def test_parsing_does_no_input_or_output(python_in):
    """Connections, variables, sockets and reads of anything but code fail while the files are parsed."""
    python_in(
        """
import builtins, io, os, socket, sys
from airflow.dag_processing.dagbag import DagBag
import airflow.sdk, airflow.sdk.execution_time.context
from airflow.sdk import Connection, Variable
folder = os.environ["AIRFLOW__CORE__DAGS_FOLDER"]
files = sorted(f for f in os.listdir(folder) if f.endswith(".py"))
sources = {f: open(os.path.join(folder, f)).read() for f in files}
def refuse(*a, **k):
    raise AssertionError(f"input or output while parsing: {a[:1]}")
real = builtins.open
def guarded(file, *a, **k):
    if not str(file).endswith((".py", ".pyc", ".json.gz", ".typed")) and "site-packages" not in str(file):
        refuse(file)
    return real(file, *a, **k)
Connection.get = Variable.get = refuse
socket.socket.connect = refuse
builtins.open = io.open = guarded
assert files
for name, text in sources.items():
    exec(compile(text, os.path.join(folder, name), "exec"), {"__name__": name, "__file__": os.path.join(folder, name)})
"""
    )


def test_policy_of_every_dag(dags):
    for dag_id, body in dags.items():
        dag = body["dag"]
        assert dag["doc_md"].strip(), dag_id
        assert "fabric-health" in dag["tags"], dag_id
        assert dag["dagrun_timeout"], dag_id
        for task in dag["tasks"]:
            fields = {**dag.get("default_args", {}).get("__var", {}), **task["__var"]}
            assert fields.get("owner", "airflow") != "airflow", (dag_id, fields["task_id"])
            assert fields.get("execution_timeout"), (dag_id, fields["task_id"])


def test_tasks_are_a_few_per_check_not_per_unit(dags):
    around = 11 + sum(e.isolates for e in ENTRIES)
    for dag_id in ("weekly_fabric_health", "post_maintenance"):
        assert len(dags[dag_id]["dag"]["tasks"]) == around + 3 * len(ENTRIES)


def test_what_is_slow_is_isolated_after_all_benchmarks_and_before_it_is_explained(dags):
    for dag_id in ("weekly_fabric_health", "nccl_benchmark"):
        tasks = {t["__var"]["task_id"]: t["__var"] for t in dags[dag_id]["dag"]["tasks"]}
        before = {n for n, t in tasks.items() if "isolate" in t.get("downstream_task_ids", ())}
        last = next(e.name for e in reversed(ENTRIES) if e.is_benchmark and f"{e.name}.judge" in tasks)
        assert before == {"open_run", f"{last}.judge"}
        assert tasks["isolate"]["downstream_task_ids"] == ["compare"]
        assert tasks["compare"]["downstream_task_ids"] == ["explain"]
        for name in ("isolate", "compare"):
            assert tasks[name]["trigger_rule"] == "all_done_min_one_success"
    assert all(
        "isolate" not in {t["__var"]["task_id"] for t in dags[e.dag_id]["dag"]["tasks"]}
        for e in ENTRIES
        if not e.isolates
    )


def test_a_benchmark_waits_for_all_audits_and_the_one_before_and_not_for_their_success(dags):
    tasks = {t["__var"]["task_id"]: t["__var"] for t in dags["weekly_fabric_health"]["dag"]["tasks"]}
    audits = {f"{e.name}.judge" for e in ENTRIES if not e.is_benchmark}
    before = audits
    for e in (e for e in ENTRIES if e.is_benchmark):
        name = f"{e.name}.collect"
        assert {n for n, t in tasks.items() if name in t.get("downstream_task_ids", ())} == {"open_run", *before}
        assert tasks[name]["trigger_rule"] == "all_done_min_one_success"
        before = {f"{e.name}.judge"}
    for stage in ("collect", "land"):
        assert tasks[f"switch_config.{stage}"].get("trigger_rule", "all_success") == "all_success"


def test_a_check_that_was_not_asked_for_holds_up_nothing(dags):
    """Its collecting and landing are skipped; a skipped last task would skip all that waits for every check."""
    for dag_id in ("weekly_fabric_health", "post_maintenance"):
        tasks = {t["__var"]["task_id"]: t["__var"] for t in dags[dag_id]["dag"]["tasks"]}
        assert {tasks[f"{e.name}.judge"]["trigger_rule"] for e in ENTRIES} == {"none_failed"}


def test_the_form_after_maintenance_has_the_fields_and_kinds_of_a_declared_change(dags):
    from fabric_health.airflow import after_maintenance
    from fabric_health.maintenance import KINDS, MAX_LAUNCHES, Declaration

    assert after_maintenance.KINDS == KINDS
    assert set(after_maintenance.FIELDS) == set(Declaration.model_fields)
    params = dict(dags["post_maintenance"]["dag"]["params"])
    assert set(params) == {"site", "fail_on", "accept_as_baseline", *Declaration.model_fields}
    assert f'"maximum": {MAX_LAUNCHES}' in json.dumps(params["launches"])


def test_people_are_told_once_the_page_is_there_and_a_channel_that_is_away_fails_no_run(dags):
    """A teardown counts for no run's state, and runs also after a stage that failed."""
    for dag_id, body in dags.items():
        tasks = {t["__var"]["task_id"]: t["__var"] for t in body["dag"]["tasks"]}
        assert ("notify" in tasks) == (dag_id in ("weekly_fabric_health", "post_maintenance"))
        if "notify" in tasks:
            notify = tasks["notify"]
            assert {n for n, t in tasks.items() if "notify" in t.get("downstream_task_ids", ())} == {
                "open_run",
                "publish",
            }
            assert (notify["is_teardown"], notify.get("on_failure_fail_dagrun", False)) == (True, False)
            assert notify["trigger_rule"] == "all_done_setup_success"
            assert not notify.get("downstream_task_ids")


def test_a_run_becomes_the_baseline_only_after_its_page_and_an_answer_and_asks_only_when_told_to(dags):
    for dag_id in ("weekly_fabric_health", "post_maintenance"):
        tasks = {t["__var"]["task_id"]: t["__var"] for t in dags[dag_id]["dag"]["tasks"]}
        before = {
            name: {n for n, t in tasks.items() if name in t.get("downstream_task_ids", ())}
            for name in ("ask_baseline", "approve_baseline", "accept_baseline")
        }
        assert before == {
            "ask_baseline": {"open_run", "publish"},
            "approve_baseline": {"ask_baseline"},
            "accept_baseline": {"open_run", "approve_baseline"},
        }
        assert all(tasks[n].get("trigger_rule", "all_success") == "all_success" for n in before)
        assert "gate" not in {n for names in before.values() for n in names}, (
            "whoever alerts on the state waits for no one"
        )
        field = dict(dags[dag_id]["dag"]["params"])["accept_as_baseline"]
        assert field["default"] == "no"
        assert '"enum": ["no", "ask"]' in json.dumps(field)


def test_a_run_has_time_for_an_answer(dags):
    alone = dags["nccl_benchmark"]["dag"]
    assert "approve_baseline" not in {t["__var"]["task_id"] for t in alone["tasks"]}
    for dag_id in ("weekly_fabric_health", "post_maintenance"):
        assert dags[dag_id]["dag"]["dagrun_timeout"] > alone["dagrun_timeout"] + 24 * 3600


def test_explaining_waits_for_every_audit(dags):
    tasks = {t["__var"]["task_id"]: t["__var"] for t in dags["weekly_fabric_health"]["dag"]["tasks"]}
    for e in ENTRIES:
        if not e.is_benchmark:
            assert "explain" in tasks[f"{e.name}.judge"]["downstream_task_ids"]


def test_time_limit_of_a_run_holds_its_longest_path(dags):
    """Each task may use its limit once without the run being cut off. Waiting for slots comes on top."""
    for dag_id, body in dags.items():
        dag = body["dag"]
        tasks = {t["__var"]["task_id"]: t["__var"] for t in dag["tasks"]}
        default = dag["default_args"]["__var"]["execution_timeout"]

        def longest(name, tasks=tasks, default=default):
            own = tasks[name].get("execution_timeout", default)
            own = own["__var"] if isinstance(own, dict) else own
            return own + max((longest(n) for n in tasks[name].get("downstream_task_ids", ())), default=0)

        assert max(map(longest, tasks)) <= dag["dagrun_timeout"], dag_id


def test_asking_units_takes_a_slot_of_a_pool_that_is_deployed(dags):
    pools = json.loads((Path(__file__).resolve().parents[2] / "deploy" / "pools.json").read_text())
    assert {e.pool for e in ENTRIES} <= set(pools)
    assert all(p["slots"] > 0 for p in pools.values())
    for entry in ENTRIES:
        for dag_id in ("weekly_fabric_health", entry.dag_id):
            tasks = {t["__var"]["task_id"]: t["__var"] for t in dags[dag_id]["dag"]["tasks"]}
            asked = {n: t["pool"] for n, t in tasks.items() if t.get("pool", "default_pool") != "default_pool"}
            assert asked.pop(f"{entry.name}.collect") == entry.pool
            launching = {n: asked.pop(n, None) for n in ("isolate", "compare")}
            assert set(launching.values()) == {"gpu_fabric" if "isolate" in tasks else None}
            assert all(name.endswith(".collect") for name in asked)


def test_several_sites_get_a_dag_each_with_a_suffix(python_in):
    out = python_in(SERIALIZED, FABRIC_HEALTH_SITE_FILES="east=/sites/east.yaml; west=/sites/west.yaml@30 4 * * 2")
    dags = json.loads(out.splitlines()[-1])
    assert {"weekly_fabric_health__east", "weekly_fabric_health__west"} <= set(dags)
    assert "30 4 * * 2" in json.dumps(dags["weekly_fabric_health__west"]["dag"]["timetable"])


def test_first_start_on_a_monday_waits_for_the_next(python_in):
    """Else a new Airflow would begin with a run nobody asked for, in the way of the one asked for."""
    out = python_in(
        """
import os
from datetime import datetime, UTC
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization
from airflow.timetables import trigger
from airflow.timetables.base import TimeRestriction
bag = DagBag(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
dag = DagSerialization.from_dict(DagSerialization.to_dict(bag.dags["weekly_fabric_health"]))
trigger.utcnow = lambda: datetime(2026, 11, 30, 3, 1, tzinfo=UTC)
restriction = TimeRestriction(earliest=dag.start_date, latest=None, catchup=dag.catchup)
print(dag.timetable.next_dagrun_info(last_automated_data_interval=None, restriction=restriction).run_after.isoformat())
"""
    )
    assert out.splitlines()[-1] == "2026-12-07T03:00:00+00:00"


def test_a_malformed_site_list_is_an_import_error_that_says_what_was_expected(python_in):
    out = python_in(
        """
import os
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
print(bag.import_errors)
""",
        FABRIC_HEALTH_SITE_FILES="lab",
    )
    assert "expected name=/path/site.yaml" in out
