"""An Airflow of one machine for the lab: started in a session of its own, triggered, watched, and stopped whole.

``fabric_health.airflow.first_run`` (`make run`, `make stop`) calls it.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fabric_health.connections import home
from fabric_health.errors import FabricHealthError, UsageError
from fabric_health.processes import Background

HOST = "127.0.0.1"
START_TIMEOUT_S = 600.0
RUN_TIMEOUT_S = 7200.0
PATIENCE_S = 180.0
# How often a person is told what runs, where no task ends.
TELL_EVERY_S = 60.0
DAG = "weekly_fabric_health"
USER = "admin"
_MARK = "FABRIC_HEALTH_AIRFLOW_PROCESS"
_DONE = {"success", "failed", "skipped", "upstream_failed", "removed"}


def repository() -> Path:
    """Return the checkout that holds ``dags/`` and ``plugins/``."""
    root = Path(__file__).resolve().parents[3]
    if not (root / "dags").is_dir():
        raise UsageError(f"{root} has no dags/: the embedded Airflow runs from a checkout of the project")
    return root


@dataclass(frozen=True)
class Embedded:
    """Paths and settings of the embedded Airflow under ``home/airflow``."""

    root: Path
    port: int
    password: str
    jwt_secret: str

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def background(self) -> Background:
        return Background(
            "airflow",
            self.root / "airflow.process.json",
            self.root / "standalone.log",
            # Not AIRFLOW_HOME, which a person may well export in the shell that `make stop` is typed in.
            mark=(_MARK, str(self.root)),
        )

    def environment(self) -> dict[str, str]:
        """Return the environment of every Airflow process; connections are passed by value, never stored in it."""
        checkout = repository()
        bin_dir = str(Path(sys.executable).parent)
        return {
            **{k: v for k, v in os.environ.items() if not k.startswith("AIRFLOW")},
            **_connection_variables(),
            "PATH": f"{bin_dir}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "AIRFLOW_HOME": str(self.root),
            _MARK: str(self.root),
            "AIRFLOW__CORE__DAGS_FOLDER": str(checkout / "dags"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(checkout / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.root / "passwords.json"),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.root / 'airflow.db'}",
            "AIRFLOW__API__HOST": HOST,
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API_AUTH__JWT_SECRET": self.jwt_secret,
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(self.root / "logs"),
            "AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK": "False",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "FABRIC_HEALTH_HOME": str(home()),
            "GX_ANALYTICS_ENABLED": "false",
        }


def _connection_variables() -> dict[str, str]:
    path = home() / "connections.json"
    if not path.is_file():
        return {}
    entries: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return {f"AIRFLOW_CONN_{conn_id.upper()}": json.dumps(body) for conn_id, body in entries.items()}


def settings() -> Embedded:
    """Return the settings, made on first use: port, password and secret are kept with mode 600."""
    root = home() / "airflow"
    root.mkdir(parents=True, exist_ok=True)
    path = root / "settings.json"
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    port = kept.get("port")
    embedded = Embedded(
        root,
        port if port else 8080,
        kept.get("password") or secrets.token_urlsafe(9),
        kept.get("jwt_secret") or secrets.token_urlsafe(32),
    )
    if embedded.background.running() is None and not _free(embedded.port):
        embedded = Embedded(root, _free_port(), embedded.password, embedded.jwt_secret)
    body = {"port": embedded.port, "password": embedded.password, "jwt_secret": embedded.jwt_secret}
    _write_private(path, json.dumps(body))
    _write_private(root / "passwords.json", json.dumps({USER: embedded.password}))
    return embedded


def _write_private(path: Path, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as f:
        f.write(text)


def _free(port: int) -> bool:
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((HOST, port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    with socket.socket() as s:
        s.bind((HOST, 0))
        return int(s.getsockname()[1])


class _PortTakenError(FabricHealthError):
    """Another program answers on our port."""


def start(tell: Any) -> Embedded:
    """Start Airflow, wait until it is healthy, and set its pools. Idempotent.

    Raises FabricHealthError with the end of its log when it does not come up.
    """
    embedded = settings()
    if embedded.background.running() is not None:
        tell(f"Airflow runs already at {embedded.url}")
        return embedded
    for last in (False, False, True):
        tell("starting Airflow (database, scheduler, DAG processor, API server, triggerer)")
        airflow = str(Path(sys.executable).parent / "airflow")
        embedded.background.start([airflow, "standalone"], env=embedded.environment())
        try:
            _wait_until_healthy(embedded, tell)
            break
        except _PortTakenError as error:
            # It was free when we looked, seconds ago.
            embedded.background.stop()
            if last:
                raise
            tell(f"{error}; trying another")
            embedded = settings()
    _set_pools(Api(embedded))
    return embedded


def _wait_until_healthy(embedded: Embedded, tell: Any) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    said = time.monotonic()
    while time.monotonic() < deadline:
        if embedded.background.running() is None:
            raise FabricHealthError(f"Airflow ended while starting; the end of its log:\n{embedded.background.tail()}")
        try:
            health = Api(embedded).get("/monitor/health", authenticated=False)
            parts = ("metadatabase", "scheduler", "dag_processor", "triggerer")
            if all((health.get(p) or {}).get("status") == "healthy" for p in parts):
                Api(embedded).get("/pools")  # takes our password: nobody else's Airflow
                tell(f"Airflow is healthy at {embedded.url}")
                return
        except urllib.error.HTTPError as error:
            if error.code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
                raise _PortTakenError(f"another program answers at {embedded.url} (HTTP {error.code})") from None
        except ValueError:
            raise _PortTakenError(f"another program answers at {embedded.url}, in something else than JSON") from None
        except OSError:
            pass
        if time.monotonic() - said > 15:
            said = time.monotonic()
            tell("still waiting for Airflow to be healthy")
        time.sleep(1)
    raise FabricHealthError(f"Airflow is not healthy after {START_TIMEOUT_S:.0f} s; see {embedded.background.log}")


def _set_pools(api: Api) -> None:
    """Make the pools of ``deploy/pools.json``, or change them to it."""
    pools: dict[str, dict[str, Any]] = json.loads((repository() / "deploy" / "pools.json").read_text(encoding="utf-8"))
    for name, pool in pools.items():
        try:
            api.post("/pools", {"name": name, **pool})
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.CONFLICT:
                raise FabricHealthError(f"Airflow refused the pool {name}: HTTP {error.code}") from None
            api.patch(f"/pools/{name}", {"pool": name, **pool})


class Api:
    """Airflow's public REST API with the embedded login."""

    def __init__(self, embedded: Embedded) -> None:
        self._embedded = embedded
        self._token: str | None = None

    def get(self, path: str, *, authenticated: bool = True) -> dict[str, Any]:
        """GET ``/api/v2`` + path. Raises OSError when it does not answer or refuses."""
        return self._call("GET", f"/api/v2{path}", None, authenticated)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """POST to ``/api/v2`` + path."""
        return self._call("POST", f"/api/v2{path}", body, True)

    def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """PATCH ``/api/v2`` + path."""
        return self._call("PATCH", f"/api/v2{path}", body, True)

    def _call(self, method: str, path: str, body: dict[str, Any] | None, authenticated: bool) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        if authenticated:
            if self._token is None:
                login = {"username": USER, "password": self._embedded.password}
                self._token = self._call("POST", "/auth/token", login, False)["access_token"]
            headers["Authorization"] = f"Bearer {self._token}"
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(  # noqa: S310  # the URL is our own loopback address
            self._embedded.url + path, data=data, headers=headers, method=method
        )
        with urllib.request.urlopen(request, timeout=20) as response:  # noqa: S310
            answer: dict[str, Any] = json.loads(response.read())
        return answer

    def wait_for(self, path: str) -> dict[str, Any]:
        """GET as :meth:`get`, bearing with a server that is too busy to answer for a while.

        Raises FabricHealthError when it gives no answer for ``PATIENCE_S``, or refuses.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.get(path)
            except urllib.error.HTTPError as error:
                if error.code < HTTPStatus.INTERNAL_SERVER_ERROR or time.monotonic() > deadline:
                    raise FabricHealthError(f"Airflow answers {path} with HTTP {error.code}") from None
            except (OSError, ValueError) as error:
                if time.monotonic() > deadline:
                    log = self._embedded.background.log
                    raise FabricHealthError(
                        f"no answer from Airflow for {PATIENCE_S:.0f} s ({error}); see {log}"
                    ) from None
            time.sleep(2)


def run_weekly(embedded: Embedded, tell: Any, conf: dict[str, Any] | None = None) -> str:
    """Run the weekly DAG: see :func:`run_dag`."""
    return run_dag(embedded, tell, DAG, conf)


def run_dag(embedded: Embedded, tell: Any, dag: str, conf: dict[str, Any] | None = None) -> str:
    """Trigger a DAG, tell each task as it ends and once a minute what runs, and return the state of the run.

    ``conf`` are values of its form. Raises FabricHealthError when it is refused, or does not end within two hours.
    """
    api = Api(embedded)
    deadline = time.monotonic() + RUN_TIMEOUT_S
    run_id = _trigger(api, dag, conf or {}, deadline)
    tell(f"triggered {dag}: {embedded.url}/dags/{dag}/runs/{run_id}")
    told: set[str] = set()
    told_at = time.monotonic()
    while time.monotonic() < deadline:
        time.sleep(2)
        tasks = api.wait_for(f"/dags/{dag}/dagRuns/{run_id}/taskInstances?limit=100")["task_instances"]
        ended = sorted((t for t in tasks if t["state"] in _DONE), key=lambda t: t["end_date"] or "")
        for t in ended:
            if t["task_id"] not in told:
                told.add(t["task_id"])
                took = f" in {t['duration']:.1f} s" if t["duration"] else ""
                tell(f"[{len(told)}/{len(tasks)}] {t['task_id']}: {t['state']}{took}")
                told_at = time.monotonic()
        if time.monotonic() - told_at > TELL_EVERY_S:
            told_at = time.monotonic()
            running = ", ".join(t["task_id"] for t in tasks if t["state"] == "running")
            tell(f"[{len(told)}/{len(tasks)}] running: {running or 'nothing yet'}")
        state = api.wait_for(f"/dags/{dag}/dagRuns/{run_id}")["state"]
        if state in ("success", "failed"):
            return str(state)
    raise FabricHealthError(f"{dag} did not end within {RUN_TIMEOUT_S:.0f} s; see {embedded.url}")


def _trigger(api: Api, dag: str, conf: dict[str, Any], deadline: float) -> str:
    """Trigger the DAG; right after the start it may not be parsed yet."""
    while True:
        try:
            return str(api.post(f"/dags/{dag}/dagRuns", {"logical_date": None, "conf": conf})["dag_run_id"])
        except urllib.error.HTTPError as error:
            if error.code != 404 or time.monotonic() > deadline - RUN_TIMEOUT_S + 120:
                detail = error.read()[:500].decode("utf-8", "replace")
                raise FabricHealthError(f"Airflow refused to trigger {dag}: HTTP {error.code} {detail}") from None
        time.sleep(1)
