"""Evidence in the store: redacted, content-addressed, verified when read, complete once its manifest is there."""

from __future__ import annotations

import pytest
import zstandard
from landed_samples import MONDAY, run_key

from fabric_health.datasets import evidence as kept
from fabric_health.datasets.store import ObjectStore
from fabric_health.errors import StoreError
from fabric_health.evidence import CommandResult, CommandStatus, ReachStatus, Redactor, UnitEvidence


def answered(unit: str, stdout: str, check: str = "driver_firmware") -> UnitEvidence:
    result = CommandResult("cat", ("cat", "x"), CommandStatus.EXITED, 0, stdout, "", MONDAY, MONDAY)
    return UnitEvidence(unit, "node", check, ReachStatus.OK, "", MONDAY, MONDAY, (result,))


def test_evidence_comes_back_as_it_was_and_storing_it_twice_changes_nothing(store: ObjectStore) -> None:
    given = answered("gpu-001", "ünïcode \x1b[31m\n")
    ref = kept.put_evidence(store, run_key(), given, Redactor())
    before = store.get(ref.key)
    assert kept.put_evidence(store, run_key(), given, Redactor()) == ref
    assert store.get(ref.key) == before
    assert kept.get_evidence(store, ref) == given
    assert ref.key == (
        f"evidence/site=lab/week=2026-11-30/{run_key().run}/driver_firmware/gpu-001/{ref.sha256}.json.zst"
    )
    assert (ref.commands, ref.status) == (1, ReachStatus.OK)


def test_secrets_do_not_reach_the_store(store: ObjectStore) -> None:
    redactor = Redactor(("hunter2-canary",))
    ref = kept.put_evidence(store, run_key(), answered("n", "pass hunter2-canary\npassword: canary-two\n"), redactor)
    text = zstandard.ZstdDecompressor().decompressobj().decompress(store.get(ref.key)).decode()
    assert "canary" not in text
    assert "<redacted>" in text


def test_a_unit_cannot_choose_where_its_evidence_goes(store: ObjectStore) -> None:
    for unit in ("../../tables/facts", "a/b?c", "..", "."):
        ref = kept.put_evidence(store, run_key(), answered(unit, "x"), Redactor())
        assert ref.key.startswith("evidence/site=lab/week=2026-11-30/")
        assert len(ref.key.split("/")) == 7
        assert "/../" not in ref.key
        assert kept.get_evidence(store, ref).unit == unit


def test_text_that_utf8_cannot_hold_is_spelt_out(store: ObjectStore) -> None:
    ref = kept.put_evidence(store, run_key(), answered("n", "x\ud800y"), Redactor())
    result = kept.get_evidence(store, ref).result("cat")
    assert result is not None
    assert result.stdout == "x\\ud800y"


def test_evidence_that_was_changed_or_damaged_is_refused(store: ObjectStore) -> None:
    ref = kept.put_evidence(store, run_key(), answered("n", "x"), Redactor())
    other = kept.put_evidence(store, run_key(), answered("n", "y"), Redactor())
    store.put(ref.key, store.get(other.key))
    with pytest.raises(StoreError, match="was changed after it was stored"):
        kept.get_evidence(store, ref)
    store.put(ref.key, b"not zstd")
    with pytest.raises(StoreError, match="is not zstd"):
        kept.get_evidence(store, ref)


def test_a_decompression_bomb_is_refused(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = kept.put_evidence(store, run_key(), answered("n", "a" * 100_000), Redactor())
    monkeypatch.setattr(kept, "MAX_EVIDENCE_BYTES", 10_000)
    with pytest.raises(StoreError, match="holds more than 10000 bytes"):
        kept.get_evidence(store, ref)


def test_a_check_has_collected_once_its_manifest_is_there(store: ObjectStore) -> None:
    key = run_key()
    evidence = [answered(u, u) for u in ("gpu-002", "gpu-001")]
    refs = [kept.put_evidence(store, key, e, Redactor()) for e in evidence]
    assert [r.unit for r in refs] == ["gpu-002", "gpu-001"]
    assert kept.read_manifest(store, key, "driver_firmware") is None
    assert kept.find_evidence(store, key.run, "gpu-001") == []
    target = kept.write_manifest(store, key, "driver_firmware", refs)
    assert target == f"runs/site=lab/week=2026-11-30/{key.run}/driver_firmware.manifest.json"
    before = store.get(target)
    kept.write_manifest(store, key, "driver_firmware", refs[::-1])
    assert store.get(target) == before
    assert kept.read_manifest(store, key, "driver_firmware") == refs[::-1]
    assert kept.find_evidence(store, key.run, "gpu-001/mlx5_3") == [evidence[1]]
    assert kept.find_evidence(store, "another-run", "gpu-001") == []


def test_a_damaged_manifest_is_an_error_that_says_what_to_do(store: ObjectStore) -> None:
    key = run_key()
    for body in (b"", b"[]", b'{"version": 2}', b'{"version": 1, "evidence": [{"unit": 1}]}'):
        store.put(kept.manifest_key(key, "c"), body)
        with pytest.raises(StoreError, match="not a manifest of version 1"):
            kept.read_manifest(store, key, "c")


def test_no_evidence_is_no_error(store: ObjectStore) -> None:
    kept.write_manifest(store, run_key(), "c", [])
    assert kept.read_manifest(store, run_key(), "c") == []
