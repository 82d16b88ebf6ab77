"""An Airflow of its own for the tests of this folder: its home is a temporary folder, its database is migrated once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def airflow_environment(tmp_path_factory):
    """Return the environment of Airflow processes: SQLite, this checkout's DAGs and plugins, no examples."""
    home = tmp_path_factory.mktemp("airflow")
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "FABRIC_HEALTH"))},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
        "AIRFLOW__DAG_PROCESSOR__DAG_VERSION_INFLATION_CHECK_LEVEL": "error",
        "GX_ANALYTICS_ENABLED": "false",
    }


@pytest.fixture(scope="session")
def migrated(airflow_environment):
    """Return the environment of an Airflow whose database exists."""
    done = subprocess.run(
        ["airflow", "db", "migrate"], env=airflow_environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return airflow_environment


@pytest.fixture(scope="session")
def python_in(airflow_environment):
    """Return a function that runs a Python source in a fresh process of that Airflow and returns its stdout."""

    def run(source: str, **extra: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", source],
            env={**airflow_environment, **extra},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    return run
