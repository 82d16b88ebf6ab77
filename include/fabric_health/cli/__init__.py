"""The command line: the same stages as the DAGs, the lab, and SQL on the results. No Airflow needed."""

from __future__ import annotations

from fabric_health.cli.main import main

__all__ = ["main"]
