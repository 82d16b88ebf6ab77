"""No text, whatever it is, makes a parser raise, run long, or turn into a value that no tool printed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric_health.checks.driver_firmware.commands import commands
from fabric_health.checks.driver_firmware.parse import parse
from fabric_health.checks.driver_firmware.tables import KernelEvent, Link
from fabric_health.datasets.contracts import Row, columns
from fabric_health.datasets.tables import Fact
from fabric_health.evidence import CommandResult, UnitEvidence
from fabric_health.site import Node, Site

NODE = Path(__file__).parents[2] / "fixtures" / "driver_firmware" / "node"
EvidenceOf = Callable[[Mapping[str, str | CommandResult | None]], UnitEvidence]
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted(NODE.glob("*.txt"))}
NAMES = [
    name.replace("_ibp94s0", ":ibp94s0").replace("_mlx5_0", ":mlx5_0").replace("_nvme0", ":nvme0") for name in TEXTS
]

HOSTILE = [
    "",
    "\n",
    "\x00" * 100,
    "\x1b]0;owned\x07\x1b[2J\x1b[31m",
    "<script>alert(1)</script>\n",
    "<!DOCTYPE a [<!ENTITY b 'c'>]><nvidia_smi_log>&b;</nvidia_smi_log>",
    "[]",
    "{}",
    "null",
    "[null]",
    '[{"ifname":null}]',
    "[" * 50_000,
    '{"a":' * 50_000,
    "9" * 20_000,
    ":" * 20_000,
    "a:b\n" * 20_000,
    "%s%n%x" * 1000,
    "\ud800\udfff",
    "ファームウェア\n",
    "Zugriff verweigert\n",
    "\ufeff\r\n\r\n",
    "A" * 200_000,
    "GPU 0: " + "(" * 100_000,
    "CA '" + "m" * 100_000 + "'",
]

COLUMNS = {row_type: columns(row_type) for row_type in (Fact, Link, KernelEvent)}


def contract_faults(row: Row) -> list[str]:
    """Return what landing would quarantine the row for."""
    faults = []
    for column in COLUMNS[type(row)]:
        found = getattr(row, column.name)
        if found is None:
            bad = not column.nullable
        elif column.type is str:
            bad = not isinstance(found, str) or len(found) > 600 or any(c in found for c in "\x00\x1b\n")
        elif column.type is bool:
            bad = not isinstance(found, bool)
        else:
            fits = isinstance(found, (column.type, int) if column.type is float else column.type)
            bad = not fits or isinstance(found, bool) or (column.minimum is not None and found < column.minimum)
        faults += [f"{column.name} is {found!r}"] if bad else []
    return faults


@pytest.fixture(scope="module")
def parse_all(recorded_node: Node, recorded_site: Site, evidence_of: EvidenceOf) -> Callable[..., list[Row]]:
    return lambda changes: parse(recorded_node, evidence_of(changes), recorded_site)


def test_the_fixtures_cover_the_commands(recorded_node: Node, recorded_site: Site) -> None:
    asked = {c.name for c in commands(recorded_node, recorded_site)}
    assert asked - set(NAMES) == {"dmesg", "doca_rpm"}
    assert set(NAMES) <= asked


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_one_hostile_text_for_every_command(parse_all: Callable[..., list[Row]], text: str) -> None:
    begin = time.process_time()
    rows = parse_all(dict.fromkeys([*NAMES, "dmesg", "doca_rpm"], text))
    assert time.process_time() - begin < 2
    for row in rows:
        assert contract_faults(row) == []
        if isinstance(row, Fact) and row.attribute != "iommu_mode":  # no IOMMU group is an empty folder
            assert row.state != "value", row
        if isinstance(row, Link):
            assert row.state is None
            assert row.rx_packets is None
        assert not isinstance(row, KernelEvent)


@pytest.fixture(scope="module")
def parse_one(parse_all: Callable[..., list[Row]]) -> Callable[[str, str], list[Row]]:
    """Parses evidence that holds the answer to one command only."""
    nothing: dict[str, str | None] = dict.fromkeys([*NAMES, "dmesg", "doca_rpm"], None)
    return lambda name, text: parse_all({**nothing, name: text})


@pytest.mark.parametrize("name", NAMES)
def test_every_command_truncated_anywhere(parse_one: Callable[[str, str], list[Row]], name: str) -> None:
    text = TEXTS[name.replace(":", "_")]
    for cut in range(0, len(text), max(1, len(text) // 40)):
        for row in parse_one(name, text[:cut]):
            assert contract_faults(row) == []


# Words that a parser may derive from a short text without their standing in it.
DERIVED = {"off", "on", "pt", "0", "not-mounted", "not-nfs", "absent", "none", "journal", "dmesg"}
CHEAP = settings(max_examples=3 * settings().max_examples)


@CHEAP
@given(name=st.sampled_from([*NAMES, "dmesg", "doca_rpm"]), text=st.text(max_size=400))
def test_no_text_raises_or_passes(parse_one: Callable[[str, str], list[Row]], name: str, text: str) -> None:
    for row in parse_one(name, text):
        assert contract_faults(row) == []
        if isinstance(row, Fact) and row.state == "value":
            assert row.command == name
            assert row.value is not None
            assert row.value in text or row.value in DERIVED


@CHEAP
@given(data=st.data(), name=st.sampled_from(NAMES))
def test_damaged_answers_never_raise(
    parse_one: Callable[[str, str], list[Row]], data: st.DataObject, name: str
) -> None:
    """Real answers with a piece cut out, doubled or replaced: closer to the parsers than random text."""
    text = TEXTS[name.replace(":", "_")]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 400)))
    piece = data.draw(st.one_of(st.just(""), st.just(text[start:end] * 2), st.text(max_size=40)))
    for row in parse_one(name, text[:start] + piece + text[end:]):
        assert contract_faults(row) == []


KEYS = [
    "ifname",
    "mtu",
    "flags",
    "stats64",
    "rx",
    "tx",
    "packets",
    "port",
    "state",
    "netdev",
    "smartctl",
    "exit_status",
    "messages",
    "string",
    "smart_status",
    "passed",
    "MESSAGE",
    "__REALTIME_TIMESTAMP",
    "nvme_smart_health_information_log",
    "critical_warning",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=12,
)


@CHEAP
@given(name=st.sampled_from(["rdma_link", "ip_link", "smartctl:nvme0", "journal"]), document=JSON)
def test_no_json_raises(parse_one: Callable[[str, str], list[Row]], name: str, document: object) -> None:
    for row in parse_one(name, json.dumps(document)):
        assert contract_faults(row) == []
