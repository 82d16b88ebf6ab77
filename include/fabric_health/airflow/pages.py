"""Serves the pages of runs from the store inside Airflow's UI, to those who are logged in there.

Pages are made by us, but what they show came from devices: they are escaped when rendered, and served with a policy
that forbids scripts and every foreign address.
"""

from __future__ import annotations

import html
import json
import mimetypes
import re

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import FastAPI, HTTPException
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from fabric_health.airflow.addresses import PREFIX
from fabric_health.airflow.connections import airflow_connection
from fabric_health.airflow.sites import site_entries
from fabric_health.datasets.store import ObjectMissing, ObjectStore
from fabric_health.errors import FabricHealthError
from fabric_health.rooms import STORE_CONNECTION

_PATH = re.compile(r"site=[\w.-]+/week=\d{4}-\d\d-\d\d/[\w.-]+/(?:[\w.=@+-]+/)*[\w.=@+-]+")
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'self'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}

# A person is waiting: say that the store is away rather than try for a minute.
_RETRY_S = 3.0

app = FastAPI(title="fabric-health pages", docs_url=None, redoc_url=None, openapi_url=None)


def _store() -> ObjectStore:
    return ObjectStore.connect(airflow_connection(STORE_CONNECTION), retry_s=_RETRY_S)


@app.get("/")
def latest(user: GetUserDep) -> Response:
    """Go to the latest page; with several sites, list them."""
    found: list[tuple[str, str]] = []
    try:
        store = _store()
        for entry in site_entries():
            try:
                report = json.loads(store.get(f"reports/site={entry.name}/latest.json"))["report"]
                found.append((entry.name, report.removeprefix("reports/")))
            except ObjectMissing:
                continue
    except FabricHealthError as error:
        return _message(str(error), 503)
    if len(found) == 1:
        return RedirectResponse(f"{PREFIX}/reports/{found[0][1]}")
    if not found:
        return _message("No run has been published yet: trigger weekly_fabric_health.", 200)
    items = "".join(
        f'<li><a href="{PREFIX}/reports/{html.escape(p)}">{html.escape(name)}</a></li>' for name, p in found
    )
    return HTMLResponse(f"<!doctype html><title>Fabric health</title><h1>Sites</h1><ul>{items}</ul>", headers=_HEADERS)


@app.get("/reports/{path:path}")
def report(path: str, user: GetUserDep) -> Response:
    """Serve one file of a published page."""
    if not _PATH.fullmatch(path) or ".." in path:
        raise HTTPException(404, "no such page")
    try:
        body = _store().get(f"reports/{path}")
    except ObjectMissing:
        raise HTTPException(404, "no such page") from None
    except FabricHealthError as error:
        return _message(str(error), 503)
    kind = mimetypes.guess_type(path)[0] or "text/plain"
    return Response(body, media_type=kind, headers=_HEADERS)


def _message(text: str, status: int) -> HTMLResponse:
    page = f"<!doctype html><title>Fabric health</title><p>{html.escape(text)}</p>"
    return HTMLResponse(page, status_code=status, headers=_HEADERS)
