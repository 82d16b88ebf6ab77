"""Canonical JSON of Cumulus (NVUE) and SONiC (config_db) configs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from fabric_health.checks.switch_config.masking import MASK, is_secret_key, mask_text, mask_value
from fabric_health.site import Platform

MAX_RANGE = 4096
MAX_EXPANDED = 200_000
MAX_DEPTH = 64

Tree = dict[str, Any]

# SONiC tables whose keys may name several ports, and several queues of a port.
_PORT_TABLES = frozenset({"PORT_QOS_MAP", "QUEUE", "BUFFER_PG", "BUFFER_QUEUE", "PFC_WD"})
_QUEUE_TABLES = frozenset({"QUEUE", "BUFFER_PG", "BUFFER_QUEUE"})
# Fields whose comma-separated value is a set; `lanes` and AAA method lists are sequences.
_SET_FIELDS = frozenset({"pfc_enable", "pfcwd_sw_enable", "members", "members@", "ports", "ports@", "dhcp_servers"})
_VOLATILE_TABLES = frozenset({"VERSIONS", "bgpraw"})
_SEQUENCE_KEYS = frozenset({"lanes", "authentication-order", "login"})
_REFERENCE = re.compile(r"\[[A-Z][A-Z0-9_]*\|([^\[\]]*)\]")
_RANGE_PART = re.compile(r"^(?P<stem>(?:[A-Za-z][A-Za-z_.]*|[A-Za-z]+\d+s)?)(?P<low>\d{1,6})-(?P<high>\d{1,6})$")
_STEM = re.compile(r"^(?:[A-Za-z][\w.]*?)?(?=\d{1,6}(?:-\d{1,6})?$)")
_LIST_PART = re.compile(r"^[A-Za-z][\w.]*\d(?:-\d+)?$|^\d+(?:-\d+)?$")


class _TooLargeError(ValueError):
    """A config expands or nests beyond anything a switch has."""


def canonical(platform: Platform, text: str) -> tuple[str | None, str | None]:
    """Return (canonical JSON, None), or (None, problem) when ``text`` is no whole config. Never raises."""
    try:
        data, problem = _load(text)
        if problem is not None:
            return None, problem
        tree, problem = _nvue(data) if platform == "cumulus" else _sonic(data)
        if tree is None:
            return None, problem
        return dump(tree), None
    except (_TooLargeError, RecursionError) as error:
        return None, f"not a config: {error}"


def dump(value: object) -> str:
    """Return canonical JSON: sorted keys, one leaf a line, as golden configs are read by people too."""
    return json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False) + "\n"


def _load(text: str) -> tuple[Any, str | None]:
    # Warnings of sudo or of a config generator may precede the document, never follow it.
    start = re.search(r"(?m)^[ \t]*[\[{]", text)
    if start is None:
        return None, f"not JSON: {text.strip()[:120]!r}"
    body = text[start.start() :].strip()
    try:
        return json.loads(body, parse_constant=_refuse_constant), None
    except (ValueError, RecursionError) as error:
        if body[-1:] not in "]}" or "Unterminated" in str(error) or "Expecting" in str(error):
            return None, f"truncated or broken JSON: {error}"
        return None, f"not JSON: {error}"


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")


def _nvue(data: Any) -> tuple[Tree | None, str | None]:
    tree: Tree = {}
    if isinstance(data, list):
        sets = [d["set"] for d in data if isinstance(d, dict) and isinstance(d.get("set"), dict)]
        for part in sets:
            _merge(tree, _nvue_node(part, _Budget(), 0))
    elif isinstance(data, dict):
        part = data.get("set", {k: v for k, v in data.items() if k != "header"})
        if isinstance(part, dict):
            tree = _nvue_node(part, _Budget(), 0)
    if not any(isinstance(tree.get(k), dict) for k in ("interface", "system", "router", "qos", "bridge", "vrf")):
        return None, "JSON without an NVUE config: expected a list with a `set` item"
    return tree, None


class _Budget:
    """Bounds how many keys ranges may expand to, so that a hostile config cannot fill the memory."""

    def __init__(self) -> None:
        self.left = MAX_EXPANDED

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise _TooLargeError(f"ranges expand to more than {MAX_EXPANDED} keys")


def _nvue_node(node: Tree, budget: _Budget, depth: int) -> Tree:
    if depth > MAX_DEPTH:
        raise _TooLargeError(f"nested deeper than {MAX_DEPTH} levels")
    out: Tree = {}
    for key, value in node.items():
        if is_secret_key(key):
            out[key] = mask_value(value)
            continue
        names = list(expand_key(key))
        budget.take(len(names))
        for name in names:
            _merge(out, {name: _nvue_value(name, value, budget, depth)})
    return out


def _nvue_value(key: str, value: Any, budget: _Budget, depth: int) -> Any:
    if isinstance(value, dict):
        # `state: {up: {}}` and `state: up` are the same; so is every choice that some releases wrap.
        if key == "state" and len(value) == 1 and next(iter(value.values())) == {}:
            return next(iter(value))
        return _nvue_node(value, budget, depth + 1)
    if isinstance(value, list):
        return _list(key, [_nvue_value("", v, budget, depth + 1) for v in value])
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        if re.fullmatch(r"-?(?:0|[1-9]\d{0,17})", value):
            return int(value)
        return mask_text(value) if "$" in value else value
    return value


def expand_key(key: str) -> Iterator[str]:
    """Expand ``swp1-4,swp7``, ``swp1-4,7``, ``10,20-22`` or ``swp1s0-3``; any other key stays as it is.

    A part without a stem takes the stem of the part before it: ``swp2,6`` is ``swp2`` and ``swp6``.
    """
    parts = [p.strip() for p in key.split(",")]
    if len(parts) > 1 and not all(_LIST_PART.match(p) for p in parts):
        yield key
        return
    stem = ""
    for part in parts:
        own = _STEM.match(part)
        named = stem + part if own is not None and not own[0] else part
        stem = own[0] or stem if own is not None else ""
        found = _RANGE_PART.match(named)
        if found is None:
            yield named
            continue
        low, high = int(found["low"]), int(found["high"])
        if not low <= high < low + MAX_RANGE:
            yield named
            continue
        yield from (f"{found['stem']}{n}" for n in range(low, high + 1))


def _sonic(data: Any) -> tuple[Tree | None, str | None]:
    if not isinstance(data, dict) or not any(isinstance(data.get(t), dict) for t in ("PORT", "DEVICE_METADATA")):
        return None, "JSON without a SONiC config: expected tables such as PORT or DEVICE_METADATA"
    budget = _Budget()
    out: Tree = {}
    for table, entries in data.items():
        if table in _VOLATILE_TABLES:
            continue
        if not isinstance(entries, dict):
            out[table] = _sonic_leaf(table, entries, 0)
        elif is_secret_key(table):
            out[table] = _secret_names(_sonic_table(table, entries, budget))
        else:
            out[table] = _sonic_table(table, entries, budget)
    return out, None


def _secret_names(entries: Tree) -> Tree:
    """Number the entries of a table whose keys are secrets, such as SNMP communities."""
    ordered = sorted(entries.values(), key=lambda v: json.dumps(v, sort_keys=True))
    return {f"{MASK} {number}": entry for number, entry in enumerate(ordered, 1)}


def _sonic_table(table: str, entries: Tree, budget: _Budget) -> Tree:
    out: Tree = {}
    for key, entry in entries.items():
        names = _sonic_keys(table, key)
        budget.take(len(names))
        for name in names:
            _merge(out, {name: _sonic_leaf(key, entry, 0)})
    return out


def _sonic_keys(table: str, key: str) -> list[str]:
    if table not in _PORT_TABLES:
        return [key]
    ports, bar, queues = key.partition("|")
    names = [p.strip() for p in ports.split(",") if p.strip()] or [key]
    if not bar or table not in _QUEUE_TABLES:
        return [f"{n}{bar}{queues}" for n in names]
    numbers = list(expand_key(queues))
    if len(names) * len(numbers) > MAX_RANGE:
        return [key]
    return [f"{n}|{q}" for n in names for q in numbers]


def _sonic_leaf(key: str, value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise _TooLargeError(f"nested deeper than {MAX_DEPTH} levels")
    if is_secret_key(key) and not isinstance(value, dict):
        return mask_value(value)
    if isinstance(value, dict):
        return {k: _sonic_leaf(k, v, depth + 1) for k, v in value.items()}
    if isinstance(value, list):
        return _list(key, [_sonic_leaf("", v, depth + 1) for v in value])
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    text = _REFERENCE.sub(r"\1", str(value))
    if key in _SET_FIELDS:
        return ",".join(sorted({p.strip() for p in text.split(",") if p.strip()}, key=_numeric_first))
    return mask_text(text) if "$" in text else text


def _list(key: str, values: list[Any]) -> list[Any]:
    """Sort a list unless its order means something: both systems keep sets as JSON lists."""
    if key in _SEQUENCE_KEYS:
        return values
    return sorted(values, key=lambda v: json.dumps(v, sort_keys=True))


def _numeric_first(text: str) -> tuple[int, int, str]:
    return (0, int(text), "") if text.isascii() and text.isdigit() and len(text) < 10 else (1, 0, text)


def _merge(into: Tree, part: Tree) -> None:
    for key, value in part.items():
        old = into.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            _merge(old, value)
        else:
            into[key] = value
