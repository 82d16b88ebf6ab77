"""Commands that restore the reference: hier-config for EOS and NX-OS, the platform's own verbs for the others.

They are proposals for a person to read. Text that came from a switch is quoted, so that pasting a proposal cannot
run anything else; where a secret is involved there is no proposal, since its value is not kept.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from fabric_health.checks.switch_config.attributes import SINGLE_PATTERN, attribute
from fabric_health.checks.switch_config.difference import ORDER, Change, Difference
from fabric_health.checks.switch_config.masking import masked
from fabric_health.site import Platform

MAX_COMMANDS = 200
MAX_NESTING = 6

_HIER = {"eos": "ARISTA_EOS", "nxos": "CISCO_NXOS"}
# Attributes that Onyx refuses to change on a live port without `force`.
_ONYX_FORCED = re.compile(r"^(?:mtu|speed|dcb priority-flow-control (?:mode|enable))\b")
_SONIC_PORT_COMMANDS = {"mtu": "mtu", "speed": "speed", "fec": "fec"}
_OLD_STATE = {"enabled": "on", "disabled": "off"}
_NEW_STATE = {"on": "enabled", "off": "disabled"}


def for_lines(platform: Platform, difference: Difference, reference_block: list[str]) -> Difference:
    """Return the difference of a CLI config with its remediation.

    ``reference_block`` holds the lines of the section whose order differs, empty for every other difference.
    """
    d = difference
    if masked(d.expected) or masked(d.actual) or any(masked(line) for line in reference_block):
        return d
    if d.path.endswith(ORDER):
        commands = _reordered(platform, d, reference_block)
    elif platform == "onyx":
        commands = _onyx(d)
    else:
        commands = _hier(platform, d)
    return _with(d, commands)


def for_tree(
    platform: Platform, difference: Difference, reference: dict[str, Any], *, old_spelling: bool
) -> Difference:
    """Return the difference of a JSON config with its remediation.

    ``reference`` is the canonical reference as written. ``old_spelling``: the switch writes ``enable: on``, not
    ``state: enabled``.
    """
    d = difference
    if masked(d.expected) or masked(d.actual):
        return d
    keys = keys_of(d.path)
    value = _lookup(reference, keys) if d.change is not Change.EXTRA else None
    if platform == "sonic":
        return _with(d, _sonic(d, keys, value))
    return _with(d, _nvue(d, keys, value, old_spelling))


def keys_of(path: str) -> tuple[str, ...]:
    """Return the keys of a JSON pointer."""
    return tuple(k.replace("~1", "/").replace("~0", "~") for k in path.split("/")[1:])


def uses_enable(config: str) -> bool:
    """Return whether an NVUE config is written in the older ``enable: on`` spelling."""
    return re.search(r'"enable": "(?:on|off)"', config) is not None


def _with(difference: Difference, commands: list[str]) -> Difference:
    if not commands or len(commands) > MAX_COMMANDS:
        return difference
    return replace(difference, remediation="\n".join(commands))


@cache
def _driver(platform: str) -> Any:
    """Return hier-config's driver, taught which lines replace each other (its own list is shorter)."""
    from hier_config import Platform as HierPlatform
    from hier_config.constructors import get_hconfig_driver
    from hier_config.models import IdempotentCommandsRule, MatchRule

    driver = get_hconfig_driver(HierPlatform[_HIER[platform]])
    anything = MatchRule(re_search=".+")
    single = MatchRule(re_search=SINGLE_PATTERN)
    for depth in range(MAX_NESTING):
        driver.rules.idempotent_commands.append(IdempotentCommandsRule(match_rules=(*[anything] * depth, single)))
    return driver


def _hier(platform: Platform, d: Difference) -> list[str]:
    """Let hier-config find the commands for the section of this one difference: on whole configs it takes seconds."""
    first = (d.expected or d.actual or "").split("\n", 1)[0]
    if d.change is Change.EXTRA and not d.parents and re.match(r"interface Ethernet[\d/]+$", first):
        return [f"default {first}"]  # a physical interface cannot be removed
    # hier-config is imported on use, so that parsing a DAG file does not pay for it.
    from hier_config import WorkflowRemediation, get_hconfig
    from hier_config.exceptions import DuplicateChildError

    driver = _driver(platform)
    try:
        running = get_hconfig(driver, _section(d.parents, d.actual))
        golden = get_hconfig(driver, _section(d.parents, d.expected))
        return str(WorkflowRemediation(running, golden).remediation_config_filtered_text()).splitlines()
    except (DuplicateChildError, ValueError, IndexError, AttributeError, RecursionError):
        return []


def _section(parents: tuple[str, ...], body: str | None) -> str:
    lines = ["   " * i + p for i, p in enumerate(parents)]
    if body is not None:
        lines += ["   " * len(parents) + line for line in body.split("\n")]
    return "\n".join(lines)


def _reordered(platform: Platform, d: Difference, block: list[str]) -> list[str]:
    """Write the section anew: the order of its lines cannot be changed in place."""
    if not block:
        rules = (d.actual or "").split("\n")
        return [f"no {rule}" for rule in rules] + (d.expected or "").split("\n")
    outer = ["   " * i + p for i, p in enumerate(d.parents[:-1])]
    margin = "   " * len(outer)
    return [*outer, f"{margin}no {d.parents[-1]}", *(margin + line for line in block)]


def _onyx(d: Difference) -> list[str]:
    subject = f"{d.parents[0]} " if d.parents else ""
    if d.expected is not None:
        positive = not d.expected.startswith("no ")
        line = d.expected.removeprefix("no ")
        force = " force" if positive and _ONYX_FORCED.match(line) else ""
        return [f"{'' if positive else 'no '}{subject}{line}{force}"]
    actual = d.actual or ""
    if actual.startswith("no "):
        return [f"{subject}{actual.removeprefix('no ')}"]
    known = attribute(actual)
    return [f"no {subject}{known.key if known.single else actual}"]


def _lookup(tree: Any, keys: tuple[str, ...]) -> Any:
    for i, key in enumerate(keys):
        if not isinstance(tree, dict):
            return None
        if key not in tree and key == "state" and i == len(keys) - 1:
            key = "enable"
        tree = tree.get(key)
    return tree


def _nvue(d: Difference, keys: tuple[str, ...], value: Any, old_spelling: bool) -> list[str]:
    if d.change is Change.EXTRA:
        last = "enable" if old_spelling and keys[-1] == "state" and d.actual in _OLD_STATE else keys[-1]
        return [_shell("nv", "unset", *keys[:-1], last), "nv config apply"]
    if value is None:
        return []
    commands: list[str] = []
    for path, leaf in _leaves(keys, value):
        if len(commands) > MAX_COMMANDS:
            return []
        commands.append(_nvue_set(path, leaf, old_spelling))
    return [*commands, "nv config apply"]


def _nvue_set(keys: tuple[str, ...], leaf: Any, old_spelling: bool) -> str:
    if old_spelling and keys[-1] == "state" and leaf in _OLD_STATE:
        keys, leaf = (*keys[:-1], "enable"), _OLD_STATE[leaf]
    elif keys[-1] in ("enable", "state") and leaf in _NEW_STATE:
        spelled = "enable" if old_spelling else "state"
        keys, leaf = (*keys[:-1], spelled), leaf if old_spelling else _NEW_STATE[leaf]
    return _shell("nv", "set", *keys, *([] if leaf is None else [str(leaf)]))


def _leaves(keys: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict):
        if not value:
            yield keys, None
        for key, inner in value.items():
            yield from _leaves((*keys, key), inner)
    elif isinstance(value, list):
        for inner in value:
            yield keys, inner if not isinstance(inner, dict | list) else json.dumps(inner)
    else:
        yield keys, value


def _sonic(d: Difference, keys: tuple[str, ...], value: Any) -> list[str]:
    command = _sonic_command(d, keys)
    if command:
        return command
    if d.change is Change.EXTRA:
        operation: dict[str, Any] = {"op": "remove", "path": d.path}
    elif value is None:
        return []
    else:
        operation = {"op": "add" if d.change is Change.MISSING else "replace", "path": d.path, "value": value}
    patch = json.dumps([operation], ensure_ascii=False)
    return [f"printf %s {shlex.quote(patch)} | sudo config apply-patch /dev/stdin"]


def _sonic_command(d: Difference, keys: tuple[str, ...]) -> list[str]:
    table, entry, field = keys[0], keys[1] if len(keys) > 1 else "", keys[2] if len(keys) > 2 else ""
    if table == "PORT" and field == "admin_status":
        up = d.expected == "up"  # without the field a port is down
        return [_shell("sudo", "config", "interface", "startup" if up else "shutdown", entry)]
    if table == "PORT" and field in _SONIC_PORT_COMMANDS and d.expected:
        return [_shell("sudo", "config", "interface", _SONIC_PORT_COMMANDS[field], entry, d.expected)]
    if table == "PORT_QOS_MAP" and field == "pfc_enable":
        wanted, found = _numbers(d.expected), _numbers(d.actual)
        switch = [(p, "off") for p in sorted(found - wanted)] + [(p, "on") for p in sorted(wanted - found)]
        return [_shell("sudo", "config", "interface", "pfc", "priority", entry, p, state) for p, state in switch]
    if table == "VLAN_MEMBER" and len(keys) == 2:
        vlan, _, port = entry.partition("|")
        number = vlan.removeprefix("Vlan")
        if d.change is Change.EXTRA:
            return [_shell("sudo", "config", "vlan", "member", "del", number, port)]
        untagged = ["-u"] if "untagged" in (d.expected or "") else []
        return [_shell("sudo", "config", "vlan", "member", "add", *untagged, number, port)]
    return []


def _numbers(text: str | None) -> set[str]:
    return {p for p in (text or "").split(",") if p}


def _shell(*argv: str) -> str:
    return shlex.join(argv)
