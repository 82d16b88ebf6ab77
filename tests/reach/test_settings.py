"""A connection that cannot be used is refused before any unit is asked, with the field at fault."""

from __future__ import annotations

from pathlib import Path

import asyncssh
import pytest

from fabric_health.connections import Connection
from fabric_health.errors import ConnectionSettingError
from fabric_health.reach.settings import resolve
from fabric_health.site import ReachProfile

PROFILE = ReachProfile(connection="c", port=2200, unit_timeout_s=12)


@pytest.fixture
def extra(tmp_path: Path) -> dict[str, str]:
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(str(tmp_path / "key"))
    (tmp_path / "known_hosts").write_text("")
    return {"key_file": str(tmp_path / "key"), "known_hosts": str(tmp_path / "known_hosts")}


def settings_of(profile: ReachProfile = PROFILE, **fields):
    return resolve(profile, lambda conn_id: Connection(conn_id, **fields))


def test_a_key_and_known_hosts_are_enough(extra, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", extra["key_file"])
    settings = settings_of(login="fabric", port=22, extra=extra)
    assert settings.unit is not None
    assert settings.unit.port == 2200, "the profile's port wins"
    assert settings.unit.options.agent_path == "", "the user's agent plays no part"
    assert settings.unit.options.keepalive_interval == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"login": None}, "login: missing"),
        ({"known_hosts": None}, "extra.known_hosts: missing"),
        ({"known_hosts": "/no/such/file"}, "extra.known_hosts: /no/such/file: No such file"),
        ({"known_hosts": 7}, "extra.known_hosts: not a path"),
        ({"key_file": None}, "extra.key_file: missing, and so are agent and password"),
        ({"key_file": "/no/such/key"}, "extra.key_file: /no/such/key: No such file"),
        ({"key_file": None, "private_key": "canary"}, "extra.private_key: not a readable private key"),
        ({"key_file": None, "agent": "/no/such/socket"}, "extra.agent: no agent is running"),
    ],
)
def test_what_is_missing_is_named(extra, change, message) -> None:
    fields = {"login": "fabric", "port": 22, "extra": {**extra, **change}}
    if "login" in change:
        fields["login"] = None
    with pytest.raises(ConnectionSettingError, match=message) as caught:
        settings_of(**fields)
    assert "connection 'c'" in str(caught.value)
    assert "canary" not in str(caught.value)


def test_a_broken_known_hosts_file_is_named(extra) -> None:
    Path(extra["known_hosts"]).write_text("only-a-host\n")
    with pytest.raises(ConnectionSettingError, match="known_hosts"):
        settings_of(login="fabric", extra=extra)


def test_an_encrypted_key_needs_its_passphrase(extra, tmp_path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(str(tmp_path / "locked"), "pkcs8-pem", passphrase="open sesame")
    locked = {**extra, "key_file": str(tmp_path / "locked")}
    with pytest.raises(ConnectionSettingError, match="wrong passphrase"):
        settings_of(login="fabric", extra={**locked, "passphrase": "guess"})
    assert settings_of(login="fabric", extra={**locked, "passphrase": "open sesame"}).unit


def test_a_profile_without_a_connection_or_with_a_jump_host_without_a_name(extra) -> None:
    with pytest.raises(ConnectionSettingError, match="names no connection"):
        resolve(ReachProfile(), lambda conn_id: Connection(conn_id))
    jump = ReachProfile(connection="c", jump="j")
    with pytest.raises(ConnectionSettingError, match="connection 'j': host is missing"):
        settings_of(jump, login="fabric", extra=extra)


def test_a_python_with_a_line_break_is_refused(extra) -> None:
    with pytest.raises(ConnectionSettingError, match="python"):
        settings_of(ReachProfile(connection="c", python="python3\nrm"), login="fabric", extra=extra)


def test_nothing_secret_in_repr(extra) -> None:
    shown = repr(settings_of(login="fabric", password="hunter22", extra=extra))
    assert "hunter22" not in shown
