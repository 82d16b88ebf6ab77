"""``make run`` and ``make stop`` for real: the lab, a real scheduler with LocalExecutor, the pages, and nothing left.

One Airflow serves the whole module; the tests build on each other in the order they stand in.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import psutil
import pytest
import yaml

import fabric_health
from fabric_health import connections
from fabric_health.airflow import embedded as airflow
from fabric_health.checks import registry
from fabric_health.datasets import embedded as store_server
from fabric_health.datasets import reading
from fabric_health.datasets.store import ObjectStore
from fabric_health.datasets.tables import Coverage, CoverageState, Finding, Run
from fabric_health.lab import lab
from fabric_health.lab.faults import PLANTED

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]
SITES = Path(fabric_health.__file__).parents[1] / "sites"
XCOM_LIMIT = 4096
# Nobody is to be told in these tests, and nobody is asked.
NOT_ASKED = dict.fromkeys(("notify", "ask_baseline", "approve_baseline", "accept_baseline"), "skipped")
BENCHMARKS = [e.name for e in registry.ENTRIES if e.is_benchmark]
XCOM_OF_RETURN = "return_value"


@dataclass(frozen=True)
class Product:
    """A home in which ``make run`` ran: what it printed, its Airflow, its site file."""

    home: Path
    site_path: Path
    printed: str
    server: airflow.Embedded

    def store(self) -> ObjectStore:
        entries = json.loads((self.home / "connections.json").read_text())
        entry = entries[store_server.CONNECTION_ID]
        return ObjectStore.connect(connections.parse(store_server.CONNECTION_ID, "test", entry), retry_s=20)

    def runs(self) -> list[Run]:
        """Return the concluded runs, newest first."""
        return [r.row for r in reading.concluded(self.store(), "lab")]

    def latest_page(self) -> str:
        return str(json.loads(self.store().get("reports/site=lab/latest.json"))["report"])

    def weekly(self, conf: dict[str, Any] | None = None, dag: str = airflow.DAG) -> tuple[str, dict[str, str]]:
        """Run the weekly DAG, or another; return its state and the state of each task."""
        told: list[str] = []
        state = airflow.run_dag(self.server, told.append, dag, conf)
        run_id = re.search(r"/runs/(\S+)", told[0]).group(1)  # type: ignore[union-attr]
        return state, {t["task_id"]: t["state"] for t in self.tasks(run_id, dag)}

    def tasks(self, run_id: str, dag: str = airflow.DAG) -> list[dict[str, Any]]:
        path = f"/dags/{dag}/dagRuns/{run_id}/taskInstances?limit=100"
        return list(airflow.Api(self.server).get(path)["task_instances"])


def command(what: str, home: Path, site_path: Path, limit_s: float) -> subprocess.CompletedProcess[str]:
    """Run what a target of the Makefile runs."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "FABRIC_HEALTH"))}
    return subprocess.run(
        [sys.executable, "-m", "fabric_health.airflow.first_run", what],
        env={
            **clean,
            "FABRIC_HEALTH_HOME": str(home),
            "FABRIC_HEALTH_SITE": str(site_path),
            "FABRIC_HEALTH_SITE_FILES": f"lab={site_path}",
            "GX_ANALYTICS_ENABLED": "false",
        },
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """``make run`` in a home of its own, on a copy of the lab's site: a loaded test machine is no hung node."""
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("site")
    shutil.copytree(SITES / "golden", folder / "golden")
    site_path = folder / "lab.yaml"
    text = (SITES / "lab.yaml").read_text()
    assert "unit_timeout_s: 20" in text
    site = yaml.safe_load(text.replace("unit_timeout_s: 20", "unit_timeout_s: 90"))
    # Without benchmarks: what they give on a loaded test machine is noise, and theirs are tests of their own.
    site["checks"] = {"fabric_links": site["checks"]["fabric_links"]}
    site_path.write_text(yaml.safe_dump(site, sort_keys=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FABRIC_HEALTH_HOME", str(home))
        try:
            done = command("run", home, site_path, 1500)
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
            yield Product(home, site_path, done.stdout, airflow.settings())
        finally:
            command("stop", home, site_path, 120)


def test_run_prints_the_answer_and_where_to_look(product: Product) -> None:
    assert "FINDINGS" in product.printed
    for _, unit, _ in PLANTED:
        assert unit in product.printed
    assert f"{product.server.url}  user {airflow.USER}, password {product.server.password}" in product.printed
    page = Path(re.search(r"page\s+(\S+index\.html)", product.printed).group(1))  # type: ignore[union-attr]
    assert page.read_bytes() == product.store().get(product.latest_page())


def test_weekly_run_has_landed_and_found_the_planted_faults(product: Product) -> None:
    run, baseline = product.runs()
    assert (baseline.dag, baseline.answer) == ("weekly", "HEALTHY")
    assert (run.dag, run.answer, run.coverage_ratio) == (airflow.DAG, "FINDINGS", 1.0)
    found = [f for f in reading.read(product.store(), Finding, "lab") if f.explained_by is None]
    assert {f.unit for f in found} == {unit for _, unit, _ in PLANTED}


def test_scheduler_ran_every_task_in_its_pool(product: Product) -> None:
    tasks = product.tasks(product.runs()[0].scheduler_run_id)
    assert {t["task_id"]: t["state"] for t in tasks if t["state"] != "success"} == NOT_ASKED
    assert {t["task_id"]: t["pool"] for t in tasks if t["task_id"].endswith(".collect")} == {
        f"{e.name}.collect": e.pool for e in registry.ENTRIES
    }


def test_fail_on_makes_only_the_last_task_fail(product: Product) -> None:
    before = product.runs()
    state, tasks = product.weekly({"fail_on": "warning"})
    assert state == "failed"
    assert {t: s for t, s in tasks.items() if s != "success"} == {**NOT_ASKED, "gate": "failed"}
    run, *earlier = product.runs()
    assert earlier == before
    assert run.answer == "FINDINGS"
    assert run.scheduler_run_id in page_text(product)


def test_a_check_that_cannot_start_fails_clearly_and_the_page_says_so(product: Product) -> None:
    """The switches' connection is not defined: no retry helps, the nodes are judged, the run is concluded."""
    whole = product.site_path.read_text()
    site = yaml.safe_load(whole)
    site["reach"]["elsewhere"] = {"kind": "ssh", "connection": "no_such_connection"}
    for group in site["switches"]:
        group["reach"] = "elsewhere"
    product.site_path.write_text(yaml.safe_dump(site, sort_keys=False))
    try:
        state, tasks = product.weekly()
    finally:
        product.site_path.write_text(whole)
    assert state == "failed"
    assert {t: s for t, s in tasks.items() if s != "success"} == {
        "switch_config.collect": "failed",
        "switch_config.land": "upstream_failed",
        "switch_config.judge": "upstream_failed",
        # Which nodes are fit is not known, so no benchmark is launched on them: each says so.
        **{f"{b}.collect": "failed" for b in BENCHMARKS},
        **{f"{b}.{s}": "upstream_failed" for b in BENCHMARKS for s in ("land", "judge")},
        "gate": "failed",
        **NOT_ASKED,
    }
    run = product.runs()[0]
    tries = {t["task_id"]: t["try_number"] for t in product.tasks(run.scheduler_run_id)}
    assert tries["switch_config.collect"] == 1
    log = "".join(p.read_text() for p in product.server.root.glob(f"logs/**/run_id={run.scheduler_run_id}/**/*.log"))
    assert {b: tries[f"{b}.collect"] for b in BENCHMARKS} == dict.fromkeys(BENCHMARKS, 1)
    assert "Airflow has no connection 'no_such_connection'" in log
    assert "nothing is launched: switch_config did not finish" in log
    assert f"{1 + len(BENCHMARKS)} check(s) did not finish" in log
    page = page_text(product)
    assert run.scheduler_run_id in page
    assert f"{registry.check('switch_config').title} did not finish, so none of its units was judged" in page
    assert "0 facts on 0 units" in page  # what was not asked has not changed
    rows = reading.read(product.store(), Coverage, "lab", run=product.latest_page().split("/")[-2])
    assert {c.state for c in rows if c.check == "switch_config"} == {CoverageState.NOT_JUDGED}
    assert {c.state for c in rows if c.check == "driver_firmware"} == {CoverageState.JUDGED}


def test_after_maintenance_only_the_checks_of_the_form_run_and_the_others_hold_up_nothing(product: Product) -> None:
    page, form = product.latest_page(), {"touched": "gpu-007", "kind": "firmware", "ticket": "CHG-9"}
    state, tasks = product.weekly({**form, "checks": ["driver_firmware", "switch_config"]}, "post_maintenance")
    left_out = [e.name for e in registry.ENTRIES if e.name not in ("driver_firmware", "switch_config")]
    assert state == "success"
    assert {t: s for t, s in tasks.items() if s != "success"} == {
        **{f"{name}.{stage}": "skipped" for name in left_out for stage in ("collect", "land")},
        **NOT_ASKED,
    }
    run = product.runs()[0]
    assert (run.dag, run.ticket, run.answer, run.verdict) == ("post_maintenance", "CHG-9", "FINDINGS", "INCONCLUSIVE")
    assert run.checks == "driver_firmware,switch_config"
    assert product.latest_page() == page  # a look at some checks is not the state of the site


def test_a_form_with_a_mistake_is_refused_before_anything_is_asked(product: Product) -> None:
    before = product.runs()
    state, tasks = product.weekly({"touched": "gpu-[001-"}, "post_maintenance")
    assert (state, tasks["open_run"]) == ("failed", "failed")
    assert not [t for t, s in tasks.items() if s == "success"]
    log = "".join(p.read_text() for p in product.server.root.glob("logs/dag_id=post_maintenance/**/task_id=open_run/*"))
    assert "touched: range 'gpu-[001-'" in log
    assert product.runs() == before


def test_trend_quality_follows_the_results(product: Product) -> None:
    """It is scheduled on the asset that a concluded run updates."""
    api, deadline = airflow.Api(product.server), time.monotonic() + 120
    while True:
        runs = api.get("/dags/trend_quality/dagRuns")["dag_runs"]
        if runs and all(r["state"] in ("success", "failed") for r in runs):
            break
        assert time.monotonic() < deadline, runs
        time.sleep(1)
    assert {r["run_type"] for r in runs} == {"asset_triggered"}
    assert "success" in {r["state"] for r in runs}


def test_tasks_pass_on_references_not_data(product: Product) -> None:
    with sqlite3.connect(f"file:{product.server.root / 'airflow.db'}?mode=ro", uri=True) as db:
        sizes = db.execute("select dag_id, task_id, key, length(value) from xcom").fetchall()
    tasks = {(dag, task) for dag, task, key, _ in sizes if key == XCOM_OF_RETURN}
    assert {task for dag, task in tasks if dag == airflow.DAG} >= {"open_run", "explain", "quality", "publish", "gate"}
    assert not [row for row in sizes if row[3] > XCOM_LIMIT]


def test_no_secret_in_what_airflow_keeps(product: Product) -> None:
    """Metadata database with its rendered fields and XComs, task logs, logs of the services, what was printed."""
    entries = json.loads((product.home / "connections.json").read_text())
    secrets = {e["password"] for e in entries.values() if e["password"]}
    secrets |= {i["credentials"][0]["secretKey"] for i in json.loads(s3_users(product))["identities"]}
    secrets |= set((product.home / "lab" / "client_key").read_text().splitlines()[1:-1])
    assert len(secrets) >= 5
    kept = [p for p in product.server.root.rglob("*") if p.is_file()]
    assert any(p.name == "airflow.db" for p in kept)
    assert sum(p.suffix == ".log" for p in kept) > 20
    texts = {str(p): p.read_bytes() for p in kept} | {"stdout": product.printed.encode()}
    assert not [(name, s[:4]) for name, text in texts.items() for s in secrets if s.encode() in text]


def s3_users(product: Product) -> str:
    return (product.home / "s3" / "s3.json").read_text()


# -- the pages in Airflow's UI


class Links(HTMLParser):
    """Collects the relative links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {v for k, v in attrs if k == "href" and v and not v.startswith("#")}


def page_text(product: Product) -> str:
    return product.store().get(product.latest_page()).decode()


def get(product: Product, path: str, *, login: bool = True) -> tuple[int, http.client.HTTPMessage, str]:
    """GET a path exactly as it is written, without following redirects."""
    connection = http.client.HTTPConnection(airflow.HOST, product.server.port, timeout=60)
    headers = {"Authorization": f"Bearer {token(product)}"} if login else {}
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode()
    finally:
        connection.close()


def token(product: Product) -> str:
    connection = http.client.HTTPConnection(airflow.HOST, product.server.port, timeout=60)
    login = json.dumps({"username": airflow.USER, "password": product.server.password})
    try:
        connection.request("POST", "/auth/token", login, {"Content-Type": "application/json"})
        return str(json.loads(connection.getresponse().read())["access_token"])
    finally:
        connection.close()


def test_pages_are_in_the_menu(product: Product) -> None:
    plugins = airflow.Api(product.server).get("/plugins")["plugins"]
    ours = next(p for p in plugins if p["name"] == "fabric_health")
    assert [(v["name"], v["href"], v["destination"]) for v in ours["external_views"]] == [
        ("Fabric health", "/fabric-health/", "nav")
    ]


def test_nobody_sees_a_page_without_a_login(product: Product) -> None:
    page = "/fabric-health/" + product.latest_page()
    for path in ("/fabric-health/", page, page.replace("index.html", "nothing.html")):
        status, _, body = get(product, path, login=False)
        assert status == 401, path
        assert "Fabric health" not in body


def test_pages_and_all_their_evidence_are_served(product: Product) -> None:
    status, headers, _ = get(product, "/fabric-health/")
    target = headers["Location"]
    assert (status, target) == (307, "/fabric-health/" + product.latest_page())
    status, headers, body = get(product, target)
    assert status == 200
    assert headers["Content-Type"].startswith("text/html")
    assert headers["X-Content-Type-Options"] == "nosniff"
    policy = dict(p.strip().split(" ", 1) for p in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert "script-src" not in policy
    assert body == page_text(product)
    evidence = Links(body).found
    assert evidence
    for link in evidence:
        status, headers, body = get(product, urlsplit(urljoin(target, link)).path)
        assert status == 200, link
        assert "Content-Security-Policy" in headers
        assert "back to the run" in body


def test_odd_paths_are_no_pages(product: Product) -> None:
    page = product.latest_page().removeprefix("reports/")
    folder = page.rsplit("/", 1)[0]
    for path in (
        f"{folder}/../../../latest.json",
        f"{folder}/%2e%2e/%2e%2e/%2e%2e/latest.json",
        "site=lab/latest.json",
        f"{folder}/..%2f..%2f..%2f..%2fruns/x",
        "%2e%2e/runs/site=lab",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        f"{folder}/index.html%00",
        f"{folder}/index.html%0d%0aX-A:%20b",
        f"{folder}//index.html",
        f"{folder}/",
        "",
        f"{folder}/{'a' * 4000}",
        f"{folder}/no-such-file.html",
        page.replace("site=lab", "site=other"),
    ):
        status, headers, _ = get(product, f"/fabric-health/reports/{path}")
        assert status == 404, path
        assert "X-A" not in headers


def test_a_store_that_is_away_is_said_soon(product: Product) -> None:
    page = "/fabric-health/" + product.latest_page()
    server = store_server.status(product.home)
    assert server is not None
    store_server.stop(product.home)
    try:
        for path in ("/fabric-health/", page):
            began = time.monotonic()
            status, headers, body = get(product, path)
            assert status == 503
            assert "object store" in body
            assert "Traceback" not in body
            assert "Content-Security-Policy" in headers
            assert time.monotonic() - began < 20
    finally:
        store_server.start(product.home, server.port)
    assert get(product, page)[0] == 200


# -- the end


def test_stop_leaves_no_process_and_no_port(product: Product) -> None:
    store, units = store_server.status(product.home), lab.status(product.home)
    assert store is not None
    assert units is not None
    assert {p.name() for p in processes_of(product.home)}
    done = command("stop", product.home, product.site_path, 120)
    assert (done.returncode, done.stdout.strip()) == (0, "stopped: Airflow, lab, object store")
    assert processes_of(product.home) == []
    addresses = [(airflow.HOST, product.server.port), (airflow.HOST, store.port), ("127.10.1.1", units.port)]
    for address in [*addresses, *((airflow.HOST, p) for p in store.inner_ports)]:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=2)
    again = command("stop", product.home, product.site_path, 120)
    assert (again.returncode, again.stdout.strip()) == (0, "nothing was running")


def processes_of(home: Path) -> list[psutil.Process]:
    """Return live processes, besides this one, that have the home in their environment or their command line."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if any(str(home) in text for text in (*process.cmdline(), *process.environ().values())):
                found.append(process)
        except psutil.Error:
            continue
    return found
