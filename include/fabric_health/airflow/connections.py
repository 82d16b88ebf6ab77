"""Resolves connection ids through Airflow: its environment, metadata database or secrets backend."""

from __future__ import annotations

from airflow.sdk import Connection as AirflowConnection
from airflow.sdk.exceptions import AirflowException, AirflowRuntimeError

from fabric_health.connections import Connection
from fabric_health.errors import ConnectionSettingError


def airflow_entry(conn_id: str) -> AirflowConnection:
    """Return Airflow's connection ``conn_id`` as Airflow has it. Raises ConnectionSettingError when there is none."""
    try:
        return AirflowConnection.get(conn_id)
    except (AirflowException, AirflowRuntimeError) as error:
        raise ConnectionSettingError(
            f"Airflow has no connection {conn_id!r} ({type(error).__name__}): add it under Admin, Connections, "
            "or import a file with `airflow connections import` (docs/connections.md)"
        ) from None


def airflow_connection(conn_id: str) -> Connection:
    """Return Airflow's connection ``conn_id`` as ours. Raises ConnectionSettingError when there is none."""
    found = airflow_entry(conn_id)
    return Connection(
        id=conn_id,
        host=found.host,
        port=found.port,
        login=found.login,
        password=found.password,
        extra=dict(found.extra_dejson),
    )
