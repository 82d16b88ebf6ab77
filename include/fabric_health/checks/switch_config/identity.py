"""What a switch says it is: OS version, model, serial, host name; as facts that are tracked between runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from fabric_health.checks.switch_config.answers import Answers, clean, mapping, records

Identity = dict[str, tuple[str | None, str]]
"""Attribute -> (value, command it was read from)."""

_MAX = 120


def identify(platform: str, answers: Answers) -> Identity:
    """Return ``os_version``, ``model``, ``serial`` and ``hostname``, each None where the switch does not say."""
    return _BY_PLATFORM[platform](answers)


def _pick(data: Any, command: str, **keys: tuple[str, ...]) -> Identity:
    """Take, for each attribute, the first of its keys that holds text."""
    fields = mapping(data)
    return {
        attribute: (next((v for v in (clean(fields.get(k), _MAX) for k in names) if v), None), command)
        for attribute, names in keys.items()
    }


def _cumulus(answers: Answers) -> Identity:
    system = answers.json("system", lambda d: isinstance(d, dict) and "hostname" in d, "a system with its `hostname`")
    platform = answers.json(
        "platform",
        lambda d: isinstance(d, dict) and bool({"serial-number", "part-number", "asic-model"} & set(d)),
        "a platform with its `serial-number`",
    )
    version = mapping(mapping(system).get("version"))
    out = _pick(system, "system", hostname=("hostname",), os_version=("product-release", "build", "os-version"))
    if out["os_version"][0] is None:
        out |= _pick(version, "system", os_version=("product-release", "build", "image"))
    return out | _pick(
        platform,
        "platform",
        model=("product-name", "platform-name", "part-number"),
        serial=("serial-number",),
    )


_SONIC_LINES = {"os_version": "SONiC Software Version", "model": "HwSKU", "serial": "Serial Number"}


def _sonic(answers: Answers) -> Identity:
    text = answers.text("version")
    if text is not None and "SONiC Software Version:" not in text:
        answers.problem("version", "no line `SONiC Software Version:`")
        text = None
    out: Identity = {}
    for attribute, title in _SONIC_LINES.items():
        match = re.search(rf"^{title}:[ \t]*(\S.{{0,{_MAX}}})$", text or "", re.MULTILINE)
        value = clean(match[1], _MAX) if match else None
        out[attribute] = (None if value in ("N/A", "None") else value, "version")
    return out


_ONYX_HOSTNAME = re.compile(r"^## Hostname:[ \t]*(\S{1,64})[ \t]*$", re.MULTILINE)
_ONYX_HEAD = 2_000


def _onyx(answers: Answers) -> Identity:
    def flat(data: Any) -> dict[str, Any]:
        return {str(k).lower(): v for record in records(data) for k, v in record.items()}

    data = answers.json("version", lambda d: "product release" in flat(d), "a version with `Product release`")
    # No show command that answers in JSON names the switch; the head of its config does, where that is a config.
    config = answers.text("running_config") if "running_config" not in answers.problems else None
    named = _ONYX_HOSTNAME.search((config or "")[:_ONYX_HEAD])
    return _pick(
        flat(data),
        "version",
        os_version=("product release",),
        model=("product model",),
        serial=("system serial num",),
    ) | {"hostname": (clean(named[1], _MAX) if named else None, "running_config")}


def _eos(answers: Answers) -> Identity:
    data = answers.json(
        "version",
        lambda d: isinstance(d, dict) and {"modelName", "version"} <= set(d),
        "a version with `modelName` and `version`",
    )
    return _pick(data, "version", os_version=("version",), model=("modelName",), serial=("serialNumber",))


def _nxos(answers: Answers) -> Identity:
    data = answers.json(
        "version",
        lambda d: isinstance(d, dict) and bool({"nxos_ver_str", "sys_ver_str", "kickstart_ver_str"} & set(d)),
        "a version with `nxos_ver_str`",
    )
    return _pick(
        data,
        "version",
        os_version=("nxos_ver_str", "sys_ver_str", "kickstart_ver_str"),
        model=("chassis_id",),
        serial=("proc_board_id",),
        hostname=("host_name",),
    )


_BY_PLATFORM: dict[str, Callable[[Answers], Identity]] = {
    "cumulus": _cumulus,
    "sonic": _sonic,
    "onyx": _onyx,
    "eos": _eos,
    "nxos": _nxos,
}
