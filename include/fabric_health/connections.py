"""Where credentials come from: connection ids resolved from the environment or a file, in Airflow's own JSON form.

Inside Airflow, ``fabric_health.airflow`` resolves the same ids through Airflow's connections instead. A site file
only ever holds ids.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fabric_health.errors import ConnectionSettingError


@dataclass(frozen=True)
class Connection:
    """Credentials and address of one service or one set of units. ``repr`` shows no secret.

    SSH: ``login``, ``password`` or ``extra.key_file`` or ``extra.agent: true``, ``extra.known_hosts`` (path,
    required), ``port``; ``host`` only for jump hosts. S3: ``host``, ``port``, ``login`` and ``password`` (access and
    secret key), ``extra.bucket``, ``extra.secure``, ``extra.region``.
    """

    id: str
    host: str | None = None
    port: int | None = None
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    extra: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must never be stored."""
        values = (self.password, self.extra.get("private_key"), self.extra.get("passphrase"))
        return tuple(str(v) for v in values if v)


ConnectionSource = Callable[[str], Connection]


def home() -> Path:
    """Return the directory of local state: ``$FABRIC_HEALTH_HOME``, else ``.fabric-health`` here."""
    return Path(os.environ.get("FABRIC_HEALTH_HOME", ".fabric-health")).resolve()


def connection(conn_id: str) -> Connection:
    """Resolve a connection id from ``$AIRFLOW_CONN_<ID>`` (JSON) or ``<home>/connections.json``.

    Raises ConnectionSettingError that says where it looked and what was expected.
    """
    variable = f"AIRFLOW_CONN_{conn_id.upper()}"
    source, raw = f"${variable}", os.environ.get(variable)
    if raw is not None:
        return parse(conn_id, source, _json(source, raw))
    path = home() / "connections.json"
    if path.is_file():
        entries = _json(str(path), _text(path))
        if isinstance(entries, dict) and conn_id in entries:
            return parse(conn_id, str(path), entries[conn_id])
    raise ConnectionSettingError(
        f"connection {conn_id!r} is not defined: looked at ${variable} and {path}. "
        f"For the lab run `fabric-health lab up`; for a site export {variable} as JSON (docs/connections.md)."
    )


def parse(conn_id: str, source: str, raw: Any) -> Connection:
    """Build a Connection from Airflow's JSON form. Raises ConnectionSettingError naming the field at fault."""
    if not isinstance(raw, dict):
        raise ConnectionSettingError(f"{source}: connection {conn_id!r}: expected a JSON object")
    extra = raw.get("extra") or {}
    if isinstance(extra, str):
        extra = _json(f"{source}: extra", extra)
    for name in ("host", "login", "password"):
        if not isinstance(raw.get(name), str | None):
            raise ConnectionSettingError(f"{source}: connection {conn_id!r}: {name}; expected a text")
    port = raw.get("port")
    if port is not None and not (type(port) is int and 0 < port < 65536):
        raise ConnectionSettingError(f"{source}: connection {conn_id!r}: port {port!r}; expected 1..65535")
    if not isinstance(extra, dict):
        raise ConnectionSettingError(f"{source}: connection {conn_id!r}: extra; expected a JSON object")
    return Connection(conn_id, raw.get("host"), port, raw.get("login"), raw.get("password"), extra)


def save(path: Path, connections: dict[str, Connection]) -> None:
    """Write connections to ``path`` (mode 600) in the form that ``airflow connections import`` reads."""
    entries = {
        c.id: {
            "conn_type": c.extra.get("conn_type", "generic"),
            "host": c.host,
            "port": c.port,
            "login": c.login,
            "password": c.password,
            "extra": {k: v for k, v in c.extra.items() if k != "conn_type"},
        }
        for c in connections.values()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as f:
        json.dump(entries, f, indent=1, sort_keys=True)
    temporary.replace(path)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConnectionSettingError(f"{path}: {error}; expected a readable JSON file in UTF-8") from None


def _json(source: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConnectionSettingError(f"{source}: {error.msg} at character {error.pos}; expected JSON") from None
