"""May two measurements be compared? Only when every field of their comparability keys is equal.

A key is ``field=value;field=value``; what makes it is the business of the check that measured. A value that is not
known is ``?``, which is not equal to one that is.
"""

from __future__ import annotations

UNKNOWN = "?"


def fields_of(key: str) -> dict[str, str]:
    """Return the fields of a key in its order. A part without ``=`` is a field without a value; never raises."""
    parts = (part.partition("=") for part in key.split(";") if part)
    return {name: value or UNKNOWN for name, _, value in parts}


def label(metric: str, key: str) -> str:
    """Return what a metric under a key measures, for a person: ``all_reduce busbw_gbps``."""
    fields = fields_of(key)
    named = [fields[n] for n in ("collective", "op", "test", "task") if n in fields]
    return " ".join(dict.fromkeys([*named, metric]))


def differing(before: str, after: str) -> tuple[tuple[str, str, str], ...]:
    """Return the fields that differ, each with its value before and after; ``?`` for a field that a key lacks."""
    old, new = fields_of(before), fields_of(after)
    return tuple(
        (name, old.get(name, UNKNOWN), new.get(name, UNKNOWN))
        for name in dict.fromkeys((*old, *new))
        if old.get(name, UNKNOWN) != new.get(name, UNKNOWN)
    )
