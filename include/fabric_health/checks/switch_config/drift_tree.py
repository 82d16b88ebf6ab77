"""Drift of JSON configs (Cumulus NVUE, SONiC config_db): equal branches are pruned, deepdiff compares the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from fabric_health.checks.switch_config.difference import Change, Difference
from fabric_health.checks.switch_config.masking import is_secret_key, same_secret
from fabric_health.site import Platform

Tree = dict[str, Any]

_SONIC_PORT = re.compile(r"(?:^|\|)(Ethernet\d+)(?:\||$)")
_SONIC_TOPICS: dict[str, str] = {
    "mtu": "mtu",
    "speed": "speed",
    "autoneg": "speed",
    "fec": "fec",
    "admin_status": "admin",
    "description": "description",
    "alias": "description",
    "pfc_enable": "pfc",
    "pfcwd_sw_enable": "pfc",
    "pfc_asym": "pfc",
    "pfc_to_queue_map": "pfc",
    "wred_profile": "ecn",
    "bgp_asn": "bgp",
    "hostname": "hostname",
}
_SONIC_TABLE_TOPICS: tuple[tuple[str, str], ...] = (
    ("PFC_WD", "pfc"),
    ("MAP_PFC", "pfc"),
    ("WRED_PROFILE", "ecn"),
    ("ACL", "acl"),
    ("BGP", "bgp"),
    ("VLAN", "vlan"),
    ("NTP", "ntp"),
    ("SNMP", "snmp"),
    ("SYSLOG", "logging"),
    ("TACPLUS", "user"),
    ("RADIUS", "user"),
    ("AAA", "user"),
    ("PORTCHANNEL", "lag"),
    ("LLDP", "lldp"),
    ("QUEUE", "qos"),
    ("SCHEDULER", "qos"),
    ("BUFFER", "qos"),
    ("PORT_QOS_MAP", "qos"),
    ("DSCP_TO", "qos"),
    ("TC_TO", "qos"),
    ("DOT1P", "qos"),
    ("STATIC_ROUTE", "routing"),
)
_NVUE_TOPICS: dict[str, str] = {
    "mtu": "mtu",
    "speed": "speed",
    "auto-negotiate": "speed",
    "breakout": "speed",
    "fec": "fec",
    "description": "description",
    "pfc": "pfc",
    "pfc-watchdog": "pfc",
    "congestion-control": "ecn",
    "roce": "pfc",
    "access": "vlan",
    "untagged": "vlan",
    "vlan": "vlan",
    "acl": "acl",
    "ntp": "ntp",
    "aaa": "user",
    "snmp-server": "snmp",
    "syslog": "logging",
    "bgp": "bgp",
    "hostname": "hostname",
    "lldp": "lldp",
    "bond": "lag",
    "mlag": "lag",
    "qos": "qos",
    "bridge": "vlan",
    "router": "routing",
}
_ON = {"on": "enabled", "off": "disabled", "enabled": "enabled", "disabled": "disabled", "enable": "enabled"}


def load(platform: Platform, config: str) -> Tree:
    """Read canonical JSON into the form that is compared: lists as one leaf, one spelling of enable/state."""
    data = json.loads(config)
    if not isinstance(data, dict):
        raise ValueError("canonical config is no JSON object")
    return _comparable(platform, data)


def _comparable(platform: Platform, node: Tree) -> Tree:
    out: Tree = {}
    for key, value in node.items():
        if isinstance(value, dict):
            out[key] = _comparable(platform, value)
        elif isinstance(value, list):
            out[key] = json.dumps(value, sort_keys=True, ensure_ascii=False)
        else:
            out[key] = value
    if platform == "cumulus":
        _spell_state(out)
    return out


def _spell_state(node: Tree) -> None:
    """NVUE wrote ``enable: on`` until about 5.10 and ``state: enabled`` since: compare the newer form."""
    enable = node.get("enable")
    if isinstance(enable, str) and enable in _ON and "state" not in node:
        node["state"] = _ON[node.pop("enable")]
    elif isinstance(node.get("state"), str) and node["state"] in _ON:
        node["state"] = _ON[node["state"]]


def compare(platform: Platform, reference: Tree, running: Tree) -> list[Difference]:
    """Return the differences in the order of their paths."""
    expected, actual = _prune(reference, running)
    if expected == actual:
        return []
    from deepdiff import DeepDiff  # imports pandas where it is installed: not when a DAG file is parsed

    # No list is left in the trees, so nothing is matched by likeness; without the threshold deepdiff would report two
    # tables with few keys in common as one changed value.
    found = DeepDiff(expected, actual, ignore_order=True, verbose_level=2, view="tree", threshold_to_diff_deeper=0)
    out: list[Difference] = []
    for kind, change in (
        ("dictionary_item_removed", Change.MISSING),
        ("dictionary_item_added", Change.EXTRA),
        ("values_changed", Change.CHANGED),
        ("type_changes", Change.CHANGED),
    ):
        for item in found.get(kind, ()):
            keys = tuple(str(k) for k in item.path(output_format="list"))
            difference = _difference(platform, change, keys, item.t1, item.t2)
            if difference is not None:
                out.append(difference)
    return sorted(out, key=lambda d: (d.path, d.change))


def _prune(reference: Tree, running: Tree) -> tuple[Tree, Tree]:
    """Drop what is equal on both sides: comparing dicts is far cheaper than diffing them."""
    left: Tree = {}
    right: Tree = {}
    for key, value in reference.items():
        if key not in running:
            left[key] = value
            continue
        other = running[key]
        if value == other and type(value) is type(other):
            continue
        if isinstance(value, dict) and isinstance(other, dict):
            left[key], right[key] = _prune(value, other)
        else:
            left[key], right[key] = value, other
    right.update((k, v) for k, v in running.items() if k not in reference)
    return left, right


def _difference(platform: Platform, change: Change, keys: tuple[str, ...], old: Any, new: Any) -> Difference | None:
    expected = None if change is Change.EXTRA else text_of(old)
    actual = None if change is Change.MISSING else text_of(new)
    if expected is not None and actual is not None:
        secret = is_secret_key(keys[-1]) and same_secret(expected, actual)
        if secret or expected == actual:
            return None
    value = old if change is not Change.EXTRA else new
    return Difference(
        change=change,
        path=pointer(keys),
        parents=keys[:-1],
        port=_port(platform, keys),
        topic=_sonic_topic(keys, value) if platform == "sonic" else _nvue_topic(keys, value),
        expected=expected,
        actual=actual,
    )


def text_of(value: Any) -> str:
    """Return a leaf as text and a branch as compact JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def pointer(keys: Sequence[str]) -> str:
    """Return the JSON pointer (RFC 6901) of a path of keys."""
    return "".join("/" + k.replace("~", "~0").replace("/", "~1") for k in keys)


def _port(platform: Platform, keys: tuple[str, ...]) -> str | None:
    if platform == "cumulus":
        return keys[1] if keys[0] == "interface" and len(keys) > 1 and keys[1].startswith("swp") else None
    for key in keys[1:3]:
        found = _SONIC_PORT.search(key)
        if found:
            return found[1]
    return None


def _sonic_topic(keys: tuple[str, ...], value: Any) -> str | None:
    table, field = keys[0], keys[-1]
    if len(keys) > 2 and field in _SONIC_TOPICS:
        return _SONIC_TOPICS[field]
    if isinstance(value, dict) and len(keys) == 2:
        inner = next((_SONIC_TOPICS[k] for k in ("pfc_enable", "wred_profile") if k in value), None)
        if inner is not None:
            return inner
    return next((topic for prefix, topic in _SONIC_TABLE_TOPICS if table.startswith(prefix)), None)


def _nvue_topic(keys: tuple[str, ...], value: Any) -> str | None:
    if keys[0] == "interface" and keys[2:4] == ("link", "state"):
        return "admin"
    if keys[0] == "qos" and keys[-1] in ("min-threshold", "max-threshold", "probability"):
        return "ecn"
    for key in reversed(keys[2:] if keys[0] in ("interface", "vrf") else keys):
        if key in _NVUE_TOPICS:
            return _NVUE_TOPICS[key]
    if isinstance(value, dict) and len(value) == 1:
        return _NVUE_TOPICS.get(next(iter(value)))
    return None
