"""Bring a switch config into the form that can be compared: volatile lines out, secrets masked, rubbish refused."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fabric_health.checks.switch_config import config_json, onyx_lines
from fabric_health.checks.switch_config.masking import mask_text
from fabric_health.site import Platform

MAX_CONFIG_CHARS = 32 << 20
MAX_LINE_CHARS = 8_192
INDENT = "   "

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
# splitlines() and JSON would treat these in different ways; no config has them.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029]")
_PAGER = re.compile(r"(?im)^[ \t]*(?:--\s*more\s*--|<---? ?more ?--->|lines \d+-\d+(?:/\d+)?(?: \(END\))?)|--More--")
_HTML = re.compile(r"(?is)^\s*(?:<!doctype html|<html|<head|<body|<\?xml)")
_ERROR = re.compile(
    r"(?im)^[ \t]*(?:% ?(?:invalid|incomplete|unrecognized|unknown|ambiguous|authorization|permission|error)[^\n]*|"
    r"cmd exec error[^\n]*|syntax error[^\n]*|permission denied[^\n]*|error:[^\n]*|traceback \(most recent[^\n]*|"
    r"(?:-?bash|sh|sudo): [^\n]*|[\w./-]+: command not found[^\n]*|usage: [^\n]*)$"
)
_LANDMARK: dict[Platform, re.Pattern[str]] = {
    "eos": re.compile(r"(?m)^(?:hostname|interface|vlan|transceiver|spanning-tree|router|management|service) ?\S*"),
    "nxos": re.compile(r"(?m)^(?:hostname|switchname|interface|version|feature|vdc|vlan)\s+\S"),
    "onyx": re.compile(r"(?m)^[ \t]*(?:hostname|interface|vlan|dcb|no cli default|ip |traffic|lldp)\b"),
}
_BANNER = re.compile(r"^\s*banner\s+\S+")
_NXOS_BANNER = re.compile(r"^banner\s+\S+\s+(?P<delimiter>\S)(?P<rest>.*)$")


@dataclass(frozen=True)
class NormalisedConfig:
    """A config in comparable form.

    ``config`` is block text (three spaces a level) for EOS, NX-OS and Onyx and canonical JSON for Cumulus and SONiC.
    When ``well_formed`` is False, ``problem`` says what came instead of a whole config and ``config`` must not be
    compared.
    """

    config: str
    well_formed: bool
    problem: str | None = None


def normalise(platform: Platform, text: str, *, captured: bool = True) -> NormalisedConfig:
    """Return the comparable form of a config. Never raises.

    ``captured``: the text came from a device, so it must show the end mark that the platform prints (``end`` on EOS);
    a golden config kept in a repository need not have one.
    """
    problem = _refusal(text)
    if problem is not None:
        return NormalisedConfig("", False, problem)
    text = _CONTROL.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))).expandtabs(8)
    if platform in ("cumulus", "sonic"):
        config, problem = config_json.canonical(platform, text)
        if config is None:
            return NormalisedConfig("", False, _error_in(text) or problem)
        return NormalisedConfig(config, True)
    return _normalise_lines(platform, text, captured)


def _refusal(text: str) -> str | None:
    if not text or text.isspace():
        return "empty answer"
    if len(text) > MAX_CONFIG_CHARS:
        return f"answer of {len(text)} characters, more than {MAX_CONFIG_CHARS}: not a config"
    if _HTML.search(text[:4096]):
        return "HTML or XML instead of a config"
    if _PAGER.search(text):
        return "the pager stopped the output (--More--): paging is on"
    return None


def _error_in(text: str) -> str | None:
    found = _ERROR.search(text)
    return f"the switch answered: {found.group(0).strip()[:200]}" if found else None


def _normalise_lines(platform: Platform, text: str, captured: bool) -> NormalisedConfig:
    lines = _fold_banners(platform, [line.rstrip() for line in text.split("\n")])
    if max(map(len, lines), default=0) > MAX_LINE_CHARS:
        return NormalisedConfig("", False, f"a line of more than {MAX_LINE_CHARS} characters: not a config")
    body = "\n".join(line for line in lines if not _BANNER.match(line))
    problem = _error_in(body)
    if problem is None and not _LANDMARK[platform].search(body):
        problem = "no config line in the answer (a login banner or another command's output?)"
    if problem is None and captured:
        problem = _truncation(platform, body)
    if problem is not None:
        return NormalisedConfig("", False, problem)
    kept = onyx_lines.flatten(lines) if platform == "onyx" else _reindent(_without_volatile(platform, lines))
    if not kept:
        return NormalisedConfig("", False, "nothing but comments in the answer")
    return NormalisedConfig(mask_text("\n".join(kept)) + "\n", True)


def _truncation(platform: Platform, body: str) -> str | None:
    tail = body.rstrip().rsplit("\n", 1)[-1].strip()
    if platform == "eos" and tail != "end":
        return "truncated: EOS ends a running-config with `end`"
    if platform == "onyx":
        opened = re.search(r"(?m)^[ \t]*no cli default", body)  # may itself be cut
        closed = re.search(r"(?m)^[ \t]*cli default prefix-modes enable\s*$", body)
        if opened and not closed:
            return "truncated: Onyx ends a running-config with `cli default prefix-modes enable`"
    return None


def _fold_banners(platform: Platform, lines: list[str]) -> list[str]:
    """Make each banner one line: its text may look like config, comments or errors."""
    out: list[str] = []
    end: str | None = None
    for line in lines:
        if end is not None:
            out[-1] += "\\n" + line.strip()
            if (line.strip() == end) if end == "EOF" else (end in line):
                end = None
            continue
        out.append(line)
        if _BANNER.match(line):
            end = _banner_end(platform, line)
    return out


def _banner_end(platform: Platform, line: str) -> str | None:
    """Return what ends the banner that starts on ``line``, None when it ends there."""
    if platform == "eos":
        return "EOF" if len(line.split()) == 2 else None
    if platform == "onyx":
        return '"' if line.count('"') == 1 else None
    found = _NXOS_BANNER.match(line)
    return found["delimiter"] if found and found["delimiter"] not in found["rest"] else None


def _without_volatile(platform: Platform, lines: list[str]) -> list[str]:
    out = []
    for line in lines:
        bare = line.strip()
        if not bare or bare.startswith(("!", "exit-")) or bare in ("end", "exit"):
            continue
        if platform == "nxos":
            # The BIOS follows firmware updates, not config; the software version is a golden line like any other.
            line = re.sub(r"^(version \S+)\s+Bios:version.*$", r"\1", line)
        out.append(line)
    return out


def _reindent(lines: list[str]) -> list[str]:
    """Indent by three spaces a level, whatever the device uses, and collapse runs of spaces."""
    out: list[str] = []
    stack: list[int] = []
    for line in lines:
        bare = line.lstrip(" ")
        width = len(line) - len(bare)
        while stack and width <= stack[-1]:
            stack.pop()
        out.append(INDENT * len(stack) + " ".join(bare.split()))
        stack.append(width)
    return out
