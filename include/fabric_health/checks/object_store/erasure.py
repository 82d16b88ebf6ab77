"""Arithmetic of MinIO's erasure sets: N drives, M of them parity (EC:M, so EC:4 on 16 drives is 12 + 4).

Source: https://github.com/minio/minio/tree/master/docs/distributed and docs/erasure/storage-class.
"""

from __future__ import annotations

MAX_DRIVES_PER_SET = 16


def default_parity(drives: int) -> int:
    """Return M that MinIO chooses for a set of ``drives`` when none is configured."""
    if drives <= 1:
        return 0
    if drives <= 3:
        return 1
    if drives <= 5:
        return 2
    return 3 if drives <= 7 else 4


def usable_ratio(drives: int, parity: int) -> float:
    """Return the share of raw capacity that holds data: (N - M) / N. Raises ValueError for an impossible set."""
    if drives < 1 or parity < 0 or 2 * parity > drives:
        raise ValueError(f"EC:{parity} on {drives} drives; expected at most half of them as parity")
    return (drives - parity) / drives


def read_quorum(drives: int, parity: int) -> int:
    """Return how many drives of a set reading an object needs."""
    return drives - parity


def write_quorum(drives: int, parity: int) -> int:
    """Return how many drives of a set writing needs: one more than reading where half of them are parity."""
    return drives - parity + (1 if parity and 2 * parity == drives else 0)
