from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_health.verdict.comparability import differing, fields_of

KEY = "engine=nccl-tests;algorithm=RING;nvls=false;size_bytes=8589934592"


def test_fields_that_differ_are_named_with_both_values() -> None:
    other = "engine=nccl-tests;algorithm=NVLS;nvls=true;size_bytes=8589934592"
    assert differing(KEY, other) == (("algorithm", "RING", "NVLS"), ("nvls", "false", "true"))
    assert differing(KEY, KEY) == ()


def test_what_one_key_lacks_is_unknown_there() -> None:
    assert differing("a=1", "a=1;b=2") == (("b", "?", "2"),)
    assert differing("a=1;b=2", "a=1") == (("b", "2", "?"),)
    assert differing("a=?", "a=RING") == (("a", "?", "RING"),)


@pytest.mark.parametrize(
    ("key", "fields"), [("", {}), (";;", {}), ("a", {"a": "?"}), ("a=b=c", {"a": "b=c"}), ("a=", {"a": "?"})]
)
def test_odd_keys_are_read(key: str, fields: dict[str, str]) -> None:
    assert fields_of(key) == fields


@given(st.text(), st.text())
def test_any_text_is_a_key_and_order_of_comparison_only_swaps(a: str, b: str) -> None:
    assert {(n, x, y) for n, x, y in differing(a, b)} == {(n, x, y) for n, y, x in differing(b, a)}
    assert differing(a, a) == ()
