"""Values as the platforms spell them, to plain numbers and names. Whatever is not understood is None, never a guess."""

from __future__ import annotations

import re
from typing import Literal

_COUNT = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,20}")
_SPEED = re.compile(
    r"(?:a-|auto[- ])?(?P<number>[0-9]{1,15}(?:\.[0-9]{1,3})?)\s*(?P<unit>(?:[kmgt]?b(?:it)?(?:/s|ps)?)|[kmgt])?"
    r"(?:full|half|-[0-9]{1,2}x?)?",
    re.IGNORECASE,
)
_LEADING_NUMBER = re.compile(r"\s*([0-9]{1,6})(?![0-9.])")
_MAC = re.compile(r"(?:[0-9a-f]{2}[:-]){5}[0-9a-f]{2}|(?:[0-9a-f]{4}\.){2}[0-9a-f]{4}", re.IGNORECASE)
_SCALE = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_MAX_COUNT = (1 << 63) - 1  # tables hold signed 64-bit integers
_MAX_GBPS = 10_000.0

BareUnit = Literal["", "k", "m", "g"]


def count(value: object) -> int | None:
    """Return a counter: a non-negative integer, also as text with thousands commas. Anything else is None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if 0 <= value <= _MAX_COUNT else None
    if isinstance(value, str):
        text = value.strip()
        if _COUNT.fullmatch(text):
            number = int(text.replace(",", ""))
            return number if number <= _MAX_COUNT else None
    return None


def speed_gbps(value: object, bare: BareUnit) -> float | None:
    """Return a speed in Gb/s. ``bare`` is the unit prefix of a number without unit: ``m`` for Mb/s, empty for bit/s.

    Reads ``400G``, ``a-400G``, ``400 Gbps``, ``400 Gb/s``, ``400000Mb/s``, ``400g-8``, ``400000`` (bare Mb/s).
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return _bounded(float(value) * _SCALE[bare])
    if not isinstance(value, str) or len(value) > 64:
        return None
    match = _SPEED.fullmatch(value.strip().replace(",", ""))
    if match is None:
        return None
    unit = (match["unit"] or "").lower()
    prefix = unit[:1] if unit[:1] in ("k", "m", "g", "t") else ""
    return _bounded(float(match["number"]) * _SCALE[prefix if unit else bare])


def _bounded(bits: float) -> float | None:
    gbps = bits / 1e9
    return round(gbps, 6) if 1e-6 <= gbps <= _MAX_GBPS else None


def mtu_bytes(value: object) -> int | None:
    """Return an MTU in bytes from a number or text that begins with one (``1500 bytes(Maximum packet size ...)``)."""
    if isinstance(value, str):
        match = _LEADING_NUMBER.match(value)
        value = int(match[1]) if match else None
    if isinstance(value, int) and not isinstance(value, bool) and 64 <= value <= 65_575:
        return value
    return None


_FEC = {
    **dict.fromkeys(("rs", "reedsolomon", "rsfec", "clause91", "rs528", "rs544", "rsieee", "fcfecrs"), "rs"),
    **dict.fromkeys(("fc", "fcfec", "firecode", "baser", "clause74", "firecodes"), "fc"),
    **dict.fromkeys(("none", "off", "disabled", "disable", "nofec"), "none"),
}


def fec(value: object) -> str | None:
    """Return ``rs``, ``fc`` or ``none``. ``auto`` and ``N/A`` say nothing about what runs and give None."""
    if not isinstance(value, str):
        return None
    return _FEC.get(re.sub(r"[^a-z0-9]", "", value[:64].lower()))


def vlan(value: object) -> int | None:
    """Return a VLAN id 1..4094 from a number, ``100`` or ``Vlan100``; ``trunk``, ``routed`` and lists give None."""
    if isinstance(value, str):
        match = re.fullmatch(r"(?:vlan)?([0-9]{1,4})", value.strip(), re.IGNORECASE)
        value = int(match[1]) if match else None
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 4094:
        return value
    return None


def priorities(values: object) -> str | None:
    """Return priorities 0..7 as ascending comma-separated text from an iterable of integers; None if one is not."""
    if not isinstance(values, (set, frozenset, list, tuple)):
        return None
    out: set[int] = set()
    for value in values:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 7:
            return None
        out.add(value)
    return ",".join(str(p) for p in sorted(out))


def priority_list(text: object) -> str | None:
    """Return priorities from ``3``, ``3,4``, ``3 4``; ``-`` or blank is the empty set; anything else None."""
    if isinstance(text, int) and not isinstance(text, bool):
        return priorities([text])
    if not isinstance(text, str):
        return None
    text = text.strip()
    if text in ("", "-", "none", "None"):
        return ""
    if not re.fullmatch(r"[0-7](?:[ ,]+[0-7]){0,15}", text):
        return None
    return priorities([int(p) for p in re.findall(r"[0-7]", text)])


def is_mac(text: str) -> bool:
    """Tell whether an LLDP id is a MAC address rather than a name."""
    return _MAC.fullmatch(text.strip()) is not None


def system_name(value: object) -> str | None:
    """Return an LLDP system name in lower case without domain; None for what devices print when there is none."""
    if not isinstance(value, str):
        return None
    text = value[:255].strip().lower()
    if text in ("", "-", "--", "null", "none", "n/a", "not advertised", "not-advertised") or is_mac(text):
        return None
    if re.fullmatch(r"[0-9.]+", text):
        return text
    return text.split(".", 1)[0] or None
