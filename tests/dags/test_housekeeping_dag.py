"""The DAG that deletes: when it runs, that it can only count, and its tasks called in a real Airflow process."""

import json

FILES = """
import json, os
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization
bag = DagBag(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
assert not bag.import_errors, bag.import_errors
print(json.dumps(DagSerialization.to_dict(bag.dags["housekeeping"]), default=str))
"""


def tasks_of(dag):
    return {t["__var"]["task_id"]: t["__var"] for t in dag["tasks"]}


def test_it_is_daily_one_at_a_time_and_can_only_count(python_in):
    dag = json.loads(python_in(FILES).splitlines()[-1])["dag"]
    assert "30 1 * * *" in json.dumps(dag["timetable"])
    assert (dag["catchup"], dag["max_active_runs"]) == (False, 1)
    assert "dry_run" in json.dumps(dag["params"])
    tasks = tasks_of(dag)
    assert set(tasks) == {"expire_evidence_lab", "delete_orphans_lab", "sweep_cluster_lab", "tidy_machine"}
    assert not any(t.get("downstream_task_ids") for t in tasks.values()), "none waits for another"


def test_every_site_has_its_tasks(python_in):
    out = python_in(FILES, FABRIC_HEALTH_SITE_FILES="east=/sites/east.yaml;west=/sites/west.yaml")
    tasks = tasks_of(json.loads(out.splitlines()[-1])["dag"])
    steps = ("expire_evidence", "delete_orphans", "sweep_cluster")
    assert set(tasks) == {"tidy_machine", *(f"{step}_{site}" for step in steps for site in ("east", "west"))}


CALLED = """
import json, os
from fabric_health.airflow import tidying
params = {"dry_run": os.environ["DRY_RUN"] == "yes"}
tidying.get_current_context = lambda: {"params": params}
print("RESULT", json.dumps({
    name: getattr(tidying, name).function("lab") for name in ("expire_evidence", "delete_orphans", "sweep_cluster")
}))
print("RESULT", json.dumps(tidying.tidy_machine.function()))
"""


def test_its_tasks_count_and_delete(python_in, migrated, s3_home, store, tmp_path):
    from fabric_health.datasets import embedded

    operator = embedded.operator(s3_home)
    described = {
        "conn_type": "generic",
        "host": operator.host,
        "port": operator.port,
        "login": operator.login,
        "password": operator.password,
        "extra": {**operator.extra, "bucket": store.bucket},
    }
    key = "evidence/site=lab/week=2001-01-01/x/driver_firmware/gpu-001/0.json.zst"
    store.put(key, b"x")

    def called(dry_run):
        environment = {
            "AIRFLOW_CONN_FABRIC_HEALTH_S3": json.dumps(described),
            "FABRIC_HEALTH_HOME": str(tmp_path),
            "DRY_RUN": dry_run,
        }
        lines = python_in(CALLED, **environment).splitlines()
        return [json.loads(line.removeprefix("RESULT ")) for line in lines if line.startswith("RESULT ")]

    on_site, on_machine = called("yes")
    assert (on_site["expire_evidence"]["deleted"], on_site["delete_orphans"]["deleted"]) == (1, 0)
    assert on_site["sweep_cluster"]["skipped"]
    assert [t["deleted"] for t in on_machine] == [0, 0, 0]
    assert store.exists(key)
    assert called("no")[0]["expire_evidence"] == on_site["expire_evidence"]
    assert not store.exists(key)
