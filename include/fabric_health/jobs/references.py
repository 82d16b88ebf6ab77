"""Secrets of jobs: looked up by reference where a job starts, and nowhere else."""

from __future__ import annotations

from fabric_health.connections import ConnectionSource
from fabric_health.errors import ConnectionSettingError
from fabric_health.jobs.spec import JobSpec, SecretReference

# Looked up like a secret, but an address: redacting it would take the hosts out of a job's result.
ADDRESSES = ("host", "port", "extra.endpoint")


def value_of(reference: SecretReference, connections: ConnectionSource) -> str:
    """Return the secret's value. Raises ConnectionSettingError when the connection or its field is not there."""
    connection = connections(reference.connection)
    field = reference.field
    if field in ("host", "login", "password"):
        value = getattr(connection, field)
    elif field == "port":
        value = connection.port
    elif field.startswith("extra."):
        value = connection.extra.get(field.removeprefix("extra."))
    else:
        raise ConnectionSettingError(
            f"secret {reference.connection}.{field}: expected host, port, login, password or extra.<key>"
        )
    if value is None or value == "":
        raise ConnectionSettingError(f"connection {reference.connection!r}: {field} is missing; a job needs it")
    return str(value)


def secrets_of(spec: JobSpec, connections: ConnectionSource) -> tuple[str, ...]:
    """Return the values a job is given as secrets, for redacting its output. Ones that cannot be found are left out.

    Addresses are none.
    """
    values = []
    for reference in spec.secrets.values():
        if reference.field in ADDRESSES:
            continue
        try:
            values.append(value_of(reference, connections))
        except ConnectionSettingError:
            continue
    return tuple(values)
