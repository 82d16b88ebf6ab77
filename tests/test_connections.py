"""Connections come from the environment or a file, say what is wrong with them, and show no secret."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from fabric_health import connections
from fabric_health.connections import Connection, connection, parse, save
from fabric_health.errors import ConnectionSettingError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FABRIC_HEALTH_HOME", str(tmp_path))
    monkeypatch.delenv("AIRFLOW_CONN_LAB_SSH", raising=False)
    return tmp_path


def test_the_environment_wins_over_the_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(home / "connections.json", {"lab_ssh": Connection("lab_ssh", "file", 22, "u", None, {})})
    assert connection("lab_ssh").host == "file"
    monkeypatch.setenv("AIRFLOW_CONN_LAB_SSH", json.dumps({"host": "env", "extra": '{"agent": true}'}))
    got = connection("lab_ssh")
    assert (got.host, got.extra) == ("env", {"agent": True})


def test_what_is_saved_is_read_back_and_for_the_owner_only(home: Path) -> None:
    saved = Connection("s3", "h", 9000, "key", "secret", {"bucket": "b", "secure": False})
    save(home / "connections.json", {"s3": saved})
    assert connection("s3") == saved
    assert stat.S_IMODE((home / "connections.json").stat().st_mode) == 0o600
    assert [p.name for p in home.iterdir()] == ["connections.json"]


def test_a_missing_one_says_where_it_looked(home: Path) -> None:
    with pytest.raises(ConnectionSettingError) as caught:
        connection("prod-ssh")
    for word in ("'prod-ssh'", "$AIRFLOW_CONN_PROD-SSH", str(home / "connections.json"), "docs/connections.md"):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("{", "expected JSON"),
        ("ssh://user:s3cr3t@host", "expected JSON"),
        ("[]", "expected a JSON object"),
        ('"x"', "expected a JSON object"),
        ('{"port": 0}', "expected 1..65535"),
        ('{"port": "22"}', "expected 1..65535"),
        ('{"port": true, "extra": []}', "port"),
        ('{"extra": "{"}', "extra"),
        ('{"extra": "[]"}', "extra"),
        ('{"extra": [1]}', "extra"),
        ('{"host": 7}', "host"),
        ('{"login": ["a"]}', "login"),
        ('{"password": {"a": 1}}', "password"),
    ],
)
def test_a_bad_one_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch, raw: str, words: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAB_SSH", raw)
    with pytest.raises(ConnectionSettingError) as caught:
        connection("lab_ssh")
    assert "LAB_SSH" in str(caught.value)
    assert words in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "nonsense", "\xff"])
def test_a_broken_file_is_named(home: Path, text: str) -> None:
    (home / "connections.json").write_text(text, encoding="latin-1")
    with pytest.raises(ConnectionSettingError, match=r"connections\.json"):
        connection("lab_ssh")


def test_secrets_are_listed_and_not_shown() -> None:
    held = parse("x", "test", {"password": "pw-1", "extra": {"private_key": "key-2", "passphrase": "phrase-3"}})
    assert held.secrets == ("pw-1", "key-2", "phrase-3")
    assert not any(s in repr(held) for s in held.secrets)
    assert parse("x", "test", {}).secrets == ()


def test_home_is_a_directory_here_unless_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FABRIC_HEALTH_HOME")
    assert connections.home() == Path.cwd() / ".fabric-health"
