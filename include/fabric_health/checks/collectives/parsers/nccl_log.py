"""What NCCL logs (``NCCL_DEBUG=INFO``): transports between ranks, NICs, algorithm, NVLS, SHARP, version, warnings.

Log lines share the output stream with the results and can break into a row: a row's first half is printed before the
collective runs and connects, its numbers after. ``split`` takes the log out and joins what is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_MARK = "] NCCL "
_HEAD = re.compile(r"([A-Za-z0-9][\w.-]{0,252}):(\d{1,10}):(\d{1,10}) \[(-?\d{1,4})\]$")
_STAMP = re.compile(r"\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\]\s*$")
_VERSION = re.compile(r"NCCL version (\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)\S{0,40}")
_VIA = re.compile(r"\bvia (?:(NET|COLLNET)/([^/\n]{1,40})/(\d{1,4})(?:\(\d+\))?(/GDRDMA)?|(P2P|SHM)\b)")
_USING = re.compile(r"\[(\d{1,4})\]([\w.-]{1,64}?)(?::(\d{1,3}))?/(\w{1,20})")
_TUNED = re.compile(r"(\w{4,20}): (\d{1,19}) Bytes -> Algo (\w{1,20}) proto (\w{1,20})", re.I)
_CHANNELS = re.compile(r"(\d{1,4}) (collnet|nvls) channels")
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
_MAX_WARNINGS = 5


@dataclass(frozen=True)
class LogLine:
    """One line of the log: the host and CUDA device of the process that wrote it (-1: none), and what it says."""

    host: str
    device: int
    level: str
    message: str


@dataclass
class Log:
    """What the log says. ``paths`` are (host, device, transport, NIC or None), one per kind of connection."""

    version: str | None = None
    network: str | None = None
    paths: set[tuple[str, int, str, str | None]] = field(default_factory=set)
    tuned: dict[tuple[str, int], tuple[str, str]] = field(default_factory=dict)
    nvls: bool | None = None
    sharp: bool | None = None
    warnings: list[str] = field(default_factory=list)

    def transports(self, ranks: frozenset[tuple[str, int | None]] | None = None) -> str | None:
        """Return the transports of the given (host, device) pairs, of all for None; None where nothing says."""
        found = {t for h, d, t, _ in self.paths if ranks is None or (h, d) in ranks}
        if not found and self.network and ranks is None:
            return f"NET/{self.network}"
        return ",".join(sorted(found)) or None

    def nics(self, ranks: frozenset[tuple[str, int | None]] | None = None) -> str | None:
        """Return the names of the NICs that carried traffic, sorted; None where nothing says."""
        names = {n for h, d, _, n in self.paths if n and (ranks is None or (h, d) in ranks)}
        return ",".join(sorted(names, key=_natural)) or None

    def tuning(self, collective: str, size_bytes: int) -> tuple[str | None, str | None]:
        """Return algorithm and protocol of a collective at a size, where the log names them or knows only one."""
        name = collective.replace("_", "")
        exact = self.tuned.get((name, size_bytes))
        if exact:
            return exact
        of_all = {v for (n, _), v in self.tuned.items() if n == name}
        return next(iter(of_all)) if len(of_all) == 1 else (None, None)


def split(text: str, hosts: frozenset[str]) -> tuple[list[str], list[LogLine]]:
    """Return the lines of ``text`` without NCCL's log, rows that it broke joined again, and the log by itself.

    ``hosts`` are names known from elsewhere in the output: they tell where a host begins that is glued to a number.
    """
    rest: list[str] = []
    log: list[LogLine] = []
    carry = ""
    for line in text.splitlines():
        before, entry = _entry(line, hosts)
        if entry is None and (alone := _VERSION.search(line)) and "NCCL INFO" not in line:
            before, entry = line[: alone.start()], LogLine("", -1, "VERSION", alone[0])
        if entry is None:
            rest.append(carry + line)
            carry = ""
            continue
        log.append(entry)
        if before.strip():
            carry += before
    if carry:
        rest.append(carry)
    return rest, log


def _entry(line: str, hosts: frozenset[str]) -> tuple[str, LogLine | None]:
    at = line.find(_MARK)
    if at < 0:
        return line, None
    start = max(0, at - 300)
    head = _HEAD.search(line[start : at + 1])
    if head is None:
        return line, None
    before, host = line[: start + head.start()], head[1]
    if host not in hosts:
        glued = next((h for h in hosts if host.endswith(h)), None)
        if glued is not None:
            before, host = before + host[: -len(glued)], glued
    level, _, message = line[at + len(_MARK) :].partition(" ")
    return _STAMP.sub("", before), LogLine(host, int(head[4]), level, message)


def read_log(lines: Iterable[LogLine]) -> Log:
    """Return what the lines of a log say; lines of no interest are skipped."""
    log = Log()
    names: dict[str, dict[int, str]] = {}
    channels: list[tuple[LogLine, re.Match[str]]] = []
    for line in lines:
        version = _VERSION.search(line.message)
        if version and log.version is None:
            log.version = version[1]
        if line.level == "WARN":
            if len(log.warnings) < _MAX_WARNINGS:
                log.warnings.append(f"{line.host}: {line.message}"[:300])
        elif line.level == "INFO":
            _info(log, line, names, channels)
    for line, via in channels:
        log.paths.add(_path(line, via, names.get(line.host, {})))
    return log


def _info(
    log: Log, line: LogLine, names: dict[str, dict[int, str]], channels: list[tuple[LogLine, re.Match[str]]]
) -> None:
    message = line.message
    if (via := _VIA.search(message)) is not None:
        channels.append((line, via))
    elif message.startswith("NET/") and " : Using " in message:
        for using in _USING.finditer(message[:4000]):
            names.setdefault(line.host, {})[int(using[1])] = using[2]
    elif message.startswith("Using network "):
        log.network = message.removeprefix("Using network ").strip()[:40]
    elif (tuned := _TUNED.search(message)) is not None:
        key = (tuned[1].lower(), int(tuned[2]))
        log.tuned[key] = (_name(tuned[3], _ALGORITHMS), _name(tuned[4], _PROTOCOLS))
    else:
        for found in _CHANNELS.finditer(message[:400]):
            used = int(found[1]) > 0
            if found[2] == "nvls":
                log.nvls = used or bool(log.nvls)
            else:
                log.sharp = used or bool(log.sharp)
    if "COLLNET/" in message and via is not None:
        log.sharp = True


def _path(line: LogLine, via: re.Match[str], names: dict[int, str]) -> tuple[str, int, str, str | None]:
    if via[5]:
        return line.host, line.device, via[5], None
    transport = f"{via[1]}/{via[2]}{via[4] or ''}"
    return line.host, line.device, transport, names.get(int(via[3]))


def _name(token: str, names: tuple[str, ...]) -> str:
    """Return the name of an algorithm or protocol that older releases log by its number."""
    if token.isdecimal():
        return names[int(token)] if int(token) < len(names) else token
    return token.upper()


def _natural(name: str) -> tuple[str, int]:
    digits = re.search(r"(\d{1,6})$", name)
    return (name[: digits.start()], int(digits[1])) if digits else (name, -1)
