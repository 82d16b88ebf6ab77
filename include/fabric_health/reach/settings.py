"""From a reach profile and its connection to SSH settings: read once, checked before any unit is asked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh

from fabric_health.connections import Connection, ConnectionSource
from fabric_health.errors import ConnectionSettingError
from fabric_health.site import ReachProfile

DEFAULT_PORT = 22
KEEPALIVE_S = 15.0
KEEPALIVE_MISSES = 3


@dataclass(frozen=True)
class SshSettings:
    """All that is needed to log in to the units of one profile. ``repr`` shows no secret."""

    connection_id: str
    host: str | None
    port: int
    known_hosts_path: Path
    options: asyncssh.SSHClientConnectionOptions


@dataclass(frozen=True)
class ProfileSettings:
    """How the units of one profile are reached; ``unit`` is None for the machine we run on."""

    profile: ReachProfile
    unit: SshSettings | None = None
    jump: SshSettings | None = None


def resolve(profile: ReachProfile, connections: ConnectionSource) -> ProfileSettings:
    """Resolve a profile's connections and read their key and known hosts.

    Raises ConnectionSettingError when something needed is missing or cannot be read.
    """
    if profile.kind == "local":
        return ProfileSettings(profile)
    if profile.connection is None:
        raise ConnectionSettingError("a reach profile of kind ssh names no connection; expected `connection: <id>`")
    if any(not c.isprintable() for c in profile.python):
        raise ConnectionSettingError(f"reach profile's python {profile.python!r}: expected a path or a program's name")
    unit = ssh_settings(connections(profile.connection), profile)
    jump = None
    if profile.jump is not None:
        jump = ssh_settings(connections(profile.jump), profile)
        if not jump.host:
            raise ConnectionSettingError(f"connection {profile.jump!r}: host is missing; expected the jump host's name")
    return ProfileSettings(profile, unit, jump)


def ssh_settings(connection: Connection, profile: ReachProfile) -> SshSettings:
    """Build SSH settings of one connection; host keys are always checked against its ``known_hosts``.

    The user's own SSH configuration, default keys and running agent play no part unless the connection names them.
    Raises ConnectionSettingError naming connection and field.
    """
    if not connection.login:
        raise _wrong(connection, "login", "missing; expected the user name")
    known_hosts_path = _path(connection, "known_hosts")
    if known_hosts_path is None:
        raise _wrong(connection, "extra.known_hosts", "missing; expected the path of a known_hosts file")
    try:
        known_hosts = asyncssh.read_known_hosts(str(known_hosts_path))
    except OSError as error:
        raise _wrong(connection, "extra.known_hosts", f"{known_hosts_path}: {error.strerror or error}") from None
    except (ValueError, asyncssh.Error) as error:
        raise _wrong(connection, "extra.known_hosts", f"{known_hosts_path}: {error}") from None
    keys, agent = _keys(connection), _agent(connection)
    if not keys and agent is None and not connection.password:
        raise _wrong(connection, "extra.key_file", "missing, and so are agent and password; expected one of them")
    timeout_s = profile.connect_timeout_s
    options = asyncssh.SSHClientConnectionOptions(
        config=None,
        username=connection.login,
        password=connection.password or None,
        client_keys=keys or None,
        agent_path=agent,
        known_hosts=known_hosts,
        connect_timeout=timeout_s,
        login_timeout=timeout_s,
        # A peer that vanished is noticed after (misses + 1) intervals, within the unit's own time.
        keepalive_interval=min(KEEPALIVE_S, max(1.0, profile.unit_timeout_s / 6)),
        keepalive_count_max=KEEPALIVE_MISSES,
        gss_auth=False,
        gss_kex=False,
        client_host_keysign=False,
        host_based_auth=False,
    )
    is_jump = profile.jump == connection.id and profile.connection != connection.id
    port = connection.port if is_jump else profile.port or connection.port
    return SshSettings(connection.id, connection.host, port or DEFAULT_PORT, known_hosts_path, options)


def _keys(connection: Connection) -> list[asyncssh.SSHKey]:
    passphrase = connection.extra.get("passphrase")
    literal = connection.extra.get("private_key")
    path = _path(connection, "key_file")
    field = "extra.key_file" if path else "extra.private_key"
    try:
        if path is not None:
            return [asyncssh.read_private_key(str(path), passphrase)]
        if literal:
            return [asyncssh.import_private_key(str(literal), passphrase)]
    except OSError as error:
        raise _wrong(connection, field, f"{path}: {error.strerror or error}") from None
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, ValueError):
        # The library's message may quote the key: it is not repeated.
        raise _wrong(connection, field, "not a readable private key, or a wrong passphrase") from None
    return []


def _agent(connection: Connection) -> str | None:
    wanted = connection.extra.get("agent")
    if not wanted:
        return None
    path = os.environ.get("SSH_AUTH_SOCK") if wanted is True else str(wanted)
    if not path or not Path(path).exists():
        raise _wrong(connection, "extra.agent", "no agent is running: $SSH_AUTH_SOCK names no socket")
    return path


def _path(connection: Connection, key: str) -> Path | None:
    value: Any = connection.extra.get(key)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise _wrong(connection, f"extra.{key}", "not a path")
    return Path(value).expanduser()


def _wrong(connection: Connection, field: str, what: str) -> ConnectionSettingError:
    return ConnectionSettingError(f"connection {connection.id!r}: {field}: {what} (docs/connections.md)")
