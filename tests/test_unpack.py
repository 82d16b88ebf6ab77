"""Files of jobs are unpacked within a bound, and what is cut or damaged says so."""

from __future__ import annotations

import os

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from fabric_health.unpack import ZSTD_MAGIC, file_text

COMPRESS = zstandard.ZstdCompressor().compress
LIMIT = 1 << 20


@given(st.text())
def test_text_comes_back_compressed_or_not(text: str) -> None:
    body = text.encode("utf-8", "surrogatepass")
    for form in (body, COMPRESS(body)):
        found = file_text(form, LIMIT)
        assert (found.complete, found.problem) == (True, "")
        assert found.text == body.decode("utf-8", "backslashreplace")


def test_several_frames_are_one_text() -> None:
    assert file_text(COMPRESS(b"one\n") + COMPRESS(b"two\n"), LIMIT).text == "one\ntwo\n"


@pytest.mark.parametrize("body", [b"x" * (LIMIT + 1), COMPRESS(bytes(200 << 20))])
def test_more_than_the_bound_is_cut_and_says_so(body: bytes) -> None:
    found = file_text(body, LIMIT)
    assert (len(found.text), found.complete) == (LIMIT, False)
    assert str(LIMIT) in found.problem


def test_cut_and_damaged_data_is_not_complete() -> None:
    body = COMPRESS(os.urandom(300_000))
    for damaged in (body[:-1], body[: len(body) // 2], body + b"junk", COMPRESS(b"whole") + body[:100]):
        found = file_text(damaged, LIMIT)
        assert (found.complete, found.problem == "") == (False, False)


@given(st.binary())
def test_no_bytes_raise(body: bytes) -> None:
    file_text(body, 1000)
    assert not file_text(ZSTD_MAGIC + body, 1000).complete or body[:1] != b""
