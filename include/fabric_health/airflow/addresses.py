"""Where a person finds a run in a browser: its page behind Airflow's login, its tasks, and what waits for an answer."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from airflow.sdk import conf

PREFIX = "/fabric-health"


def _base() -> str:
    """Return the address that people know Airflow under, ``[api] base_url``; empty when it is not set."""
    return str(conf.get("api", "base_url", fallback="") or "").rstrip("/")


def page_address(page: Mapping[str, str] | None) -> str | None:
    """Return the address of a published page (``prefix`` and ``page``, as publishing returns them).

    Without ``[api] base_url`` it is where the page is in the store; None when no page was published.
    """
    if not page:
        return None
    base = _base()
    return f"{base}{PREFIX}/{quote(page['prefix'], safe='/=')}index.html" if base else page["page"]


def run_address(dag_id: str, run_id: str) -> str | None:
    """Return the address of a DAG run in Airflow; None without ``[api] base_url``."""
    base = _base()
    return f"{base}/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}" if base else None


def answer_address() -> str:
    """Return where Airflow lists what waits for a person's answer, in words when its address is not known."""
    base = _base()
    return f"{base}/required_actions" if base else "Airflow, Required Actions"
