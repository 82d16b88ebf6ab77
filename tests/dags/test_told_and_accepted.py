"""Telling and accepting in real DAG runs: only the stages before them are replaced by what they leave in the store.

A thread answers as a person does in the browser: by the function behind Airflow's REST API.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import concluded_samples as samples
import pytest

from fabric_health import baselines
from fabric_health.datasets import embedded
from fabric_health.datasets.store import ObjectStore
from fabric_health.maintenance import Change
from fabric_health.run_document import RunDocument

SITE = Path(__file__).parents[2] / "include" / "sites" / "lab.yaml"

DAG_FILE = """
import json, os
from airflow.sdk import DAG, task
from airflow.sdk.exceptions import AirflowFailException
from fabric_health.airflow.accepting import accept, accept_param
from fabric_health.airflow.chain import DEFAULT_ARGS, Concluded
from fabric_health.airflow.telling import tell

@task(retries=0)
def open_run():
    if os.environ["OPENED"] == "null":
        raise AirflowFailException("the form has a mistake")
    return json.loads(os.environ["OPENED"])

@task(retries=0)
def publish(run):
    if run["broken"]:
        raise AirflowFailException("no page")
    return {"page": "s3://b/reports/site=lab/p/index.html", "prefix": "reports/site=lab/p/"}

with DAG("told", schedule=None, default_args=DEFAULT_ARGS, params=accept_param()) as dag:
    run = open_run()
    done = Concluded(run, publish(run))
    tell(done)
    accept(done)
"""

RUN = """
import json, os, sys, threading, time, traceback
from types import SimpleNamespace
sys.path.insert(0, os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
from told import dag
from fabric_health.airflow import channels
channels.PAUSES_S = (0.01, 0.01)

def answer(option, reason):
    try:
        respond(option, reason)
    except BaseException:
        traceback.print_exc()
        os._exit(3)  # else the run waits for ever

def respond(option, reason):
    from airflow.api_fastapi.core_api.datamodels.hitl import UpdateHITLDetailPayload
    from airflow.api_fastapi.core_api.routes.public.hitl import get_hitl_detail, update_hitl_detail
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select
    parked = select(TaskInstance.run_id).where(TaskInstance.dag_id == "told", TaskInstance.state == "awaiting_input")
    user = SimpleNamespace(get_id=lambda: "7", get_name=lambda: "Ada")
    for _ in range(1000):
        time.sleep(0.1)
        with create_session() as session:
            run_id = session.scalars(parked).first()
            if run_id is not None:
                held = get_hitl_detail("told", run_id, "approve_baseline", session)
                print("ASKED", json.dumps([held.subject, held.defaults]))
                body = UpdateHITLDetailPayload(chosen_options=[option], params_input={"reason": reason})
                update_hitl_detail("told", run_id, "approve_baseline", body, user, session)
                return
    raise TimeoutError("nobody asks")

waits = dag.task_dict["approve_baseline"]
print("WAITS", json.dumps([waits.response_timeout.total_seconds(), waits.defaults, waits.fail_on_reject]))
for case in json.loads(os.environ["CASES"]):
    os.environ.update(case["env"])
    os.environ["OPENED"] = json.dumps(case["run"] and {**case["run"], "broken": case.get("broken", False)})
    asked = case.get("answer")
    if asked:
        threading.Thread(target=answer, args=asked, daemon=True).start()
    dag_run = dag.test(run_conf={"accept_as_baseline": "ask" if asked else "no"})
    states = {t.task_id: str(t.state) for t in dag_run.get_task_instances()}
    print("RESULT", json.dumps([str(dag_run.state), states]))
"""


class Handler(BaseHTTPRequestHandler):
    posts: list[str]

    def do_POST(self) -> None:
        self.posts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"])
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def outcomes(python_in, migrated, s3_home, tmp_path_factory):
    """Eight runs in one Airflow process; what each came to, what was told, and what was accepted."""
    operator = embedded.operator(s3_home)
    extra = {**operator.extra, "bucket": f"told-{tmp_path_factory.mktemp('x').name.lower()}"}
    store = ObjectStore.connect(replace(operator, extra=extra), retry_s=20)
    store.ensure_bucket()
    change = Change(("gpu-001",), ("gpu-002",), "driver")
    worse = samples.conclude(
        store,
        samples.document("post_maintenance", change),
        "FINDINGS",
        "1 finding.",
        samples.REGRESSED,
        [samples.slow("gpu-001", "gpu-001 lost 9%.")],
    )
    fine = samples.conclude(store, samples.document("weekly_fabric_health"), verdict=samples.PASS)
    lost = samples.document("lost")

    posts: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"posts": posts}))
    Thread(target=server.serve_forever, daemon=True).start()
    on, away = ({"FABRIC_HEALTH_NOTIFY": ids} for ids in ("told", "told,nobody"))
    off = {"FABRIC_HEALTH_NOTIFY": ""}

    def of(run: RunDocument) -> dict[str, str]:
        return {"site": "lab", "ref": samples.reference(run)}

    cases = [
        {"env": off, "run": of(fine)},
        {"env": on, "run": of(fine)},
        {"env": away, "run": of(worse)},
        {"env": on, "run": of(fine), "answer": ["Reject", ""]},
        {"env": on, "run": of(worse), "answer": ["Approve", "the price of the new driver"]},
        {"env": on, "run": of(lost), "broken": True},
        {"env": on, "run": None},
        {"env": {**on, "FABRIC_HEALTH_SITE_FILES": "lab=no-such-file.yaml"}, "run": of(fine)},
    ]
    store_entry = {"host": operator.host, "port": operator.port, "login": operator.login, "extra": extra}
    hook = {"conn_type": "http", "schema": "http", "host": "127.0.0.1", "port": server.server_port}
    folder = tmp_path_factory.mktemp("dags")
    (folder / "told.py").write_text(DAG_FILE)
    out = python_in(
        RUN,
        AIRFLOW__CORE__DAGS_FOLDER=str(folder),
        CASES=json.dumps(cases),
        FABRIC_HEALTH_SITE_FILES=f"lab={SITE}",
        AIRFLOW_CONN_FABRIC_HEALTH_S3=json.dumps({**store_entry, "password": operator.password}),
        AIRFLOW_CONN_TOLD=json.dumps(hook),
        AIRFLOW__API__BASE_URL="https://airflow.example.org/x/",
        NO_PROXY="127.0.0.1",
    )
    server.shutdown()
    server.server_close()
    results = [json.loads(x.removeprefix("RESULT ")) for x in out.splitlines() if x.startswith("RESULT ")]
    asked = [json.loads(x.removeprefix("ASKED ")) for x in out.splitlines() if x.startswith("ASKED ")]
    waits = json.loads(next(x for x in out.splitlines() if x.startswith("WAITS ")).removeprefix("WAITS "))
    return Outcomes(results, posts, asked, waits, baselines.accepted(store, "lab"))


@dataclass(frozen=True)
class Outcomes:
    """States of each run and its tasks; what the webhook got; what was asked, within what limits; what was accepted."""

    runs: list[tuple[str, dict[str, str]]]
    posts: list[str]
    asked: list[tuple[str, list[str]]]
    waits: list[object]
    accepted: list[baselines.Accepted]


NOT_ASKED = dict.fromkeys(("ask_baseline", "approve_baseline", "accept_baseline"), "skipped")
DONE = dict.fromkeys(("open_run", "publish"), "success")
ANSWERED = dict.fromkeys(("ask_baseline", "approve_baseline"), "success")


def test_without_channels_and_without_a_wish_nothing_is_told_or_asked(outcomes: Outcomes) -> None:
    assert outcomes.runs[0] == ["success", {**DONE, **NOT_ASKED, "notify": "skipped"}]


def test_a_healthy_run_is_not_told_by_default(outcomes: Outcomes) -> None:
    assert outcomes.runs[1] == ["success", {**DONE, **NOT_ASKED, "notify": "skipped"}]


def test_a_channel_that_is_away_is_red_in_a_green_run_and_the_others_are_told(outcomes: Outcomes) -> None:
    assert outcomes.runs[2] == ["success", {**DONE, **NOT_ASKED, "notify": "failed"}]
    first = outcomes.posts[0].splitlines()
    assert first[0] == "lab: REGRESSED (FINDINGS)"
    assert "• gpu-001: gpu-001 lost 9%." in first
    assert "Page: https://airflow.example.org/x/fabric-health/reports/site=lab/p/index.html" in first


def test_no_answer_within_a_day_is_a_no_that_fails_nothing(outcomes: Outcomes) -> None:
    assert outcomes.waits == [24 * 3600, ["Reject"], False]


def test_who_is_asked_is_told_where_and_a_no_leaves_the_run_green(outcomes: Outcomes) -> None:
    assert outcomes.runs[3] == ["success", {**DONE, **ANSWERED, "accept_baseline": "skipped", "notify": "success"}]
    assert outcomes.posts[1].startswith("lab: PASS (HEALTHY)\n")
    assert "Accept as baseline?: answer in https://airflow.example.org/x/required_actions" in outcomes.posts[1]


def test_an_approval_is_recorded_once_with_who_and_why(outcomes: Outcomes) -> None:
    assert outcomes.runs[4] == ["success", {**DONE, **ANSWERED, "accept_baseline": "success", "notify": "success"}]
    assert [(s.partition(":")[0], defaults) for s, defaults in outcomes.asked] == [
        ("PASS", ["Reject"]),
        ("REGRESSED", ["Reject"]),
    ]
    (held,) = outcomes.accepted
    assert held.run.startswith("post_maintenance-")
    row = held.row
    assert (row.accepted_by, row.reason, row.resets_history) == ("Ada (7)", "the price of the new driver", True)


def test_a_run_that_was_not_concluded_fails_and_is_told(outcomes: Outcomes) -> None:
    state, tasks = outcomes.runs[5]
    assert (state, tasks["publish"], tasks["accept_baseline"]) == ("failed", "failed", "upstream_failed")
    assert tasks["notify"] == "success"
    assert outcomes.posts[3].startswith("lab: run not concluded\n")
    assert "See: https://airflow.example.org/x/dags/told/runs/" in outcomes.posts[3]


def test_a_run_that_could_not_be_opened_or_read_is_told_too(outcomes: Outcomes) -> None:
    (opened, tasks), (read, states) = outcomes.runs[6:]
    assert (opened, tasks["open_run"], tasks["notify"]) == ("failed", "failed", "success")
    assert outcomes.posts[4].startswith("told: run not concluded\nThe run could not be opened: ")
    assert (read, states["notify"]) == ("success", "success")
    assert outcomes.posts[5].startswith("lab: run not concluded\nThe results cannot be read: ")
    assert len(outcomes.posts) == 6
