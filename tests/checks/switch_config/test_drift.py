"""Drift: identity gives none, free order gives none, order that decides does, one change gives one difference."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric_health.checks.switch_config.attributes import attribute
from fabric_health.checks.switch_config.config_json import dump
from fabric_health.checks.switch_config.drift import Change, Difference, drift
from fabric_health.checks.switch_config.normalise import normalise
from fabric_health.site import Platform

CONFIGS = Path(__file__).parents[2] / "fixtures" / "switch_config" / "configs"
FILES: dict[Platform, str] = {
    "eos": "eos.cfg",
    "nxos": "nxos.cfg",
    "onyx": "onyx.cfg",
    "sonic": "sonic.json",
    "cumulus": "cumulus.json",
}
PLATFORMS = list(FILES)
CLI: list[Platform] = ["eos", "nxos", "onyx"]
TREES: list[Platform] = ["sonic", "cumulus"]
RAW = {p: (CONFIGS / f).read_text(encoding="utf-8") for p, f in FILES.items()}
GOLDEN = {p: normalise(p, RAW[p]).config for p in PLATFORMS}


def against_golden(platform: Platform, raw: str) -> list[Difference]:
    result = normalise(platform, raw)
    assert result.well_formed, result.problem
    return drift(platform, GOLDEN[platform], result.config)


def only(differences: list[Difference]) -> Difference:
    assert len(differences) == 1, differences
    return differences[0]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_identity_gives_none(platform: Platform) -> None:
    assert drift(platform, GOLDEN[platform], GOLDEN[platform]) == []


# --- order


def blocks(text: str) -> list[str]:
    return re.findall(r"(?m)^\S.*\n(?:[ ].*\n)*", text)


@pytest.mark.parametrize("platform", CLI)
@given(seed=st.integers(0, 10_000))
@settings(max_examples=settings().max_examples // 6)
def test_blocks_are_free_to_move(platform: Platform, seed: int) -> None:
    shuffled = blocks(GOLDEN[platform])
    random.Random(seed).shuffle(shuffled)
    found = drift(platform, GOLDEN[platform], "".join(shuffled))
    # Onyx writes access lists as flat lines: their order is the only one that decides.
    assert [d for d in found if d.topic != "acl"] == []
    assert platform == "onyx" or found == []


@pytest.mark.parametrize("platform", ["eos", "nxos"])
@given(seed=st.integers(0, 10_000))
@settings(max_examples=settings().max_examples // 10)
def test_lines_of_an_interface_are_free_to_move(platform: Platform, seed: int) -> None:
    out = []
    for block in blocks(GOLDEN[platform]):
        head, *lines = block.splitlines(keepends=True)
        if head.startswith("interface"):
            random.Random(seed).shuffle(lines)
        out.append("".join([head, *lines]))
    assert drift(platform, GOLDEN[platform], "".join(out)) == []


@pytest.mark.parametrize("platform", TREES)
def test_keys_and_sets_are_free_to_move(platform: Platform) -> None:
    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: turned(v) for k, v in reversed(value.items())}
        return [turned(v) for v in reversed(value)] if isinstance(value, list) else value

    assert against_golden(platform, json.dumps(turned(json.loads(RAW[platform])))) == []


@pytest.mark.parametrize(
    ("platform", "old", "new", "path"),
    [
        (
            "eos",
            "   permit icmp any any\n   deny ip any any\n",
            "   deny ip any any\n   permit icmp any any\n",
            "ip access-list MGMT / (order)",
        ),
        (
            "eos",
            "   server 10.0.0.21\n   server 10.0.0.22\n",
            "   server 10.0.0.22\n   server 10.0.0.21\n",
            "aaa group server tacacs+ ADMIN / (order)",
        ),
        (
            "nxos",
            "  class RDMA\n    set qos-group 3\n  class class-default\n    set qos-group 0\n",
            "  class class-default\n    set qos-group 0\n  class RDMA\n    set qos-group 3\n",
            "policy-map type qos RAIL-IN / (order)",
        ),
        (
            "onyx",
            "   ipv4 access-list MGMT permit icmp any any\n   ipv4 access-list MGMT deny ip any any\n",
            "   ipv4 access-list MGMT deny ip any any\n   ipv4 access-list MGMT permit icmp any any\n",
            "ipv4 access-list MGMT / (order)",
        ),
    ],
)
def test_order_that_decides_is_drift(platform: Platform, old: str, new: str, path: str) -> None:
    assert old in RAW[platform]
    found = only(against_golden(platform, RAW[platform].replace(old, new)))
    assert (found.change, found.path) == (Change.CHANGED, path)
    assert found.expected != found.actual
    assert found.remediation
    assert found.remediation.startswith("no ")


def test_numbered_rules_are_compared_by_number() -> None:
    swapped = RAW["eos"].replace(
        "   10 permit 192.0.2.0/24\n   20 deny any\n", "   20 deny any\n   10 permit 192.0.2.0/24\n"
    )
    assert against_golden("eos", swapped) == []
    found = only(against_golden("eos", RAW["eos"].replace("20 deny any", "20 permit any")))
    assert (found.change, found.path) == (Change.CHANGED, "ip access-list standard SNMP / 20")
    assert (found.expected, found.actual, found.topic) == ("20 deny any", "20 permit any", "acl")
    assert found.remediation == "ip access-list standard SNMP\n  no 20 permit any\n  20 deny any"


# --- one change, one difference


@pytest.mark.parametrize("platform", CLI)
def test_each_missing_line_is_found_exactly(platform: Platform) -> None:
    lines = GOLDEN[platform].splitlines()
    for i, line in enumerate(lines):
        end = i + 1
        while end < len(lines) and lines[end].startswith(" " * (len(line) - len(line.lstrip()) + 1)):
            end += 1
        found = only(drift(platform, GOLDEN[platform], "\n".join(lines[:i] + lines[end:]) + "\n"))
        assert found.change is Change.MISSING
        assert found.expected is not None
        assert found.actual is None
        assert line.strip().endswith(found.expected.split("\n", 1)[0]), line
        assert found.expected.count("\n") == end - i - 1


@pytest.mark.parametrize("platform", CLI)
def test_each_extra_line_is_found_exactly(platform: Platform) -> None:
    lines = GOLDEN[platform].splitlines()
    for i, line in enumerate(lines):
        indent = line[: len(line) - len(line.lstrip())]
        if line.lstrip().startswith("banner"):
            continue
        text = [*lines[:i], f"{indent}zz-unknown 1", *lines[i:]]
        found = only(drift(platform, GOLDEN[platform], "\n".join(text) + "\n"))
        assert (found.change, found.actual) == (Change.EXTRA, "zz-unknown 1")


@pytest.mark.parametrize("platform", CLI)
def test_each_changed_value_is_one_difference(platform: Platform) -> None:
    lines = GOLDEN[platform].splitlines()
    tried = 0
    for i, line in enumerate(lines):
        last_in_block = i + 1 == len(lines) or len(lines[i + 1]) - len(lines[i + 1].lstrip()) <= len(line) - len(
            line.lstrip()
        )
        bare = line.strip().removeprefix("no ")
        if platform == "onyx":
            bare = re.sub(r"^interface \S+ \S+ ", "", bare)
        known = attribute(bare)
        if not known.single or not last_in_block or bare == known.key or "<redacted>" in line:
            continue
        tried += 1
        text = [*lines[:i], line + "7", *lines[i + 1 :]]
        found = only(drift(platform, GOLDEN[platform], "\n".join(text) + "\n"))
        assert found.change is Change.CHANGED, line
        assert found.path.endswith(known.key)
        assert found.expected == bare
        assert found.actual == bare + "7"
    assert tried >= 15


def leaves(tree: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from leaves(value, (*keys, key))
    else:
        yield keys


@pytest.mark.parametrize("platform", TREES)
def test_each_changed_or_missing_or_extra_leaf_is_found_exactly(platform: Platform) -> None:
    paths = list(leaves(json.loads(GOLDEN[platform])))
    assert len(paths) > 40
    for keys in paths:
        for change in Change:
            tree = json.loads(GOLDEN[platform])
            node = tree
            for key in keys[:-1]:
                node = node[key]
            name = keys[-1]
            if change is Change.CHANGED:
                node[name] = "off" if name == "enable" else "zz"
            elif change is Change.MISSING:
                del node[name]
            else:
                name = "zz"
                node[name] = "1"
            found = only(drift(platform, GOLDEN[platform], dump(tree)))
            assert found.change is change
            assert found.path.endswith("/" + ("state" if name == "enable" else name).replace("/", "~1"))


def test_a_missing_block_is_one_difference() -> None:
    text = re.sub(r"interface Ethernet2/1\n(?:   .*\n)+", "", RAW["eos"])
    found = only(against_golden("eos", text))
    assert (found.change, found.path, found.port) == (Change.MISSING, "interface Ethernet2/1", "Ethernet2/1")
    assert found.expected is not None
    assert found.expected.startswith("interface Ethernet2/1\n   description gpu-002 mlx5_4\n   mtu 9214")
    assert found.remediation is not None
    assert "  mtu 9214" in found.remediation


def test_many_valued_commands_are_missing_and_extra() -> None:
    found = against_golden("eos", RAW["eos"].replace("ntp server 10.0.0.10\n", "ntp server 10.0.0.99\n"))
    assert [(d.change, d.path, d.topic) for d in found] == [
        (Change.MISSING, "ntp server 10.0.0.10", "ntp"),
        (Change.EXTRA, "ntp server 10.0.0.99", "ntp"),
    ]


# --- what differs, where, and how to put it right

EXPECTED: list[tuple[Platform, str, str, tuple[str, str, str | None, str | None, str | None]]] = [
    (
        "eos",
        "gpu-002 mlx5_4\n   mtu 9214",
        "gpu-002 mlx5_4\n   mtu 1500",
        (
            "changed",
            "interface Ethernet2/1 / mtu",
            "Ethernet2/1",
            "mtu",
            "interface Ethernet2/1\n  mtu 9214",
        ),
    ),
    (
        "eos",
        "   priority-flow-control priority 3 no-drop\n",
        "",
        (
            "missing",
            "qos profile RAIL / priority-flow-control priority 3",
            None,
            "pfc",
            "qos profile RAIL\n  priority-flow-control priority 3 no-drop",
        ),
    ),
    (
        "eos",
        "   switchport access vlan 100\n   service-profile RAIL\n!\ninterface Ethernet2/1",
        "   switchport access vlan 100\n   service-profile RAIL\n   shutdown\n!\ninterface Ethernet2/1",
        (
            "extra",
            "interface Ethernet1/1 / shutdown",
            "Ethernet1/1",
            "admin",
            "interface Ethernet1/1\n  no shutdown",
        ),
    ),
    (
        "eos",
        "minimum-threshold 160 kbytes",
        "minimum-threshold 16 kbytes",
        (
            "changed",
            "qos profile RAIL / uc-tx-queue 3 / random-detect ecn",
            None,
            "ecn",
            "qos profile RAIL\n  uc-tx-queue 3\n    random-detect ecn minimum-threshold 160 kbytes maximum-threshold "
            "1600 kbytes max-mark-probability 80 weight 0",
        ),
    ),
    (
        "nxos",
        "  fec rs-fec\n  priority-flow-control mode on\n  service-policy type qos input RAIL-IN\n  no shutdown\n\n"
        "interface mgmt0",
        "  fec off\n  priority-flow-control mode on\n  service-policy type qos input RAIL-IN\n  no shutdown\n\n"
        "interface mgmt0",
        ("changed", "interface Ethernet1/2 / fec", "Ethernet1/2", "fec", "interface Ethernet1/2\n  fec rs-fec"),
    ),
    (
        "nxos",
        "  no shutdown\n\ninterface mgmt0",
        "  shutdown\n\ninterface mgmt0",
        (
            "changed",
            "interface Ethernet1/2 / shutdown",
            "Ethernet1/2",
            "admin",
            "interface Ethernet1/2\n  no shutdown",
        ),
    ),
    (
        "nxos",
        "  20 deny ip any any\n",
        "  15 permit ip any any\n  20 deny ip any any\n",
        (
            "extra",
            "ip access-list MGMT / 15",
            None,
            "acl",
            "ip access-list MGMT\n  no 15 permit ip any any",
        ),
    ),
    (
        "onyx",
        "   interface ethernet 1/1-1/4 mtu 9216 force\n",
        "   interface ethernet 1/1-1/3 mtu 9216 force\n   interface ethernet 1/4 mtu 1500 force\n",
        (
            "changed",
            "interface ethernet 1/4 / mtu",
            "Eth1/4",
            "mtu",
            "interface ethernet 1/4 mtu 9216 force",
        ),
    ),
    (
        "onyx",
        "   interface ethernet 1/1-1/4 dcb priority-flow-control mode on force\n",
        "   interface ethernet 1/1-1/3 dcb priority-flow-control mode on force\n",
        (
            "missing",
            "interface ethernet 1/4 / dcb priority-flow-control mode",
            "Eth1/4",
            "pfc",
            "interface ethernet 1/4 dcb priority-flow-control mode on force",
        ),
    ),
    (
        "onyx",
        "   vlan 100\n",
        "   interface ethernet 1/2 shutdown\n   vlan 100\n",
        (
            "extra",
            "interface ethernet 1/2 / shutdown",
            "Eth1/2",
            "admin",
            "no interface ethernet 1/2 shutdown",
        ),
    ),
    (
        "sonic",
        '"lanes": "8,9,10,11,12,13,14,15", "mtu": "9216"',
        '"lanes": "8,9,10,11,12,13,14,15", "mtu": "9100"',
        (
            "changed",
            "/PORT/Ethernet8/mtu",
            "Ethernet8",
            "mtu",
            "sudo config interface mtu Ethernet8 9216",
        ),
    ),
    (
        "sonic",
        '"Ethernet8": {"dscp_to_tc_map": "[DSCP_TO_TC_MAP|R]", "pfc_enable": "3,4"',
        '"Ethernet8": {"dscp_to_tc_map": "[DSCP_TO_TC_MAP|R]", "pfc_enable": "4,5"',
        (
            "changed",
            "/PORT_QOS_MAP/Ethernet8/pfc_enable",
            "Ethernet8",
            "pfc",
            "sudo config interface pfc priority Ethernet8 5 off\nsudo config interface pfc priority Ethernet8 3 on",
        ),
    ),
    (
        "sonic",
        '"ecn": "ecn_all"',
        '"ecn": "ecn_none"',
        (
            "changed",
            "/WRED_PROFILE/E/ecn",
            None,
            "ecn",
            'printf %s \'[{"op": "replace", "path": "/WRED_PROFILE/E/ecn", "value": "ecn_all"}]\''
            " | sudo config apply-patch /dev/stdin",
        ),
    ),
    (
        "sonic",
        '"services": ["SSH"]',
        '"services": ["SSH", "SNMP"]',
        (
            "changed",
            "/ACL_TABLE/MGMT/services",
            None,
            "acl",
            'printf %s \'[{"op": "replace", "path": "/ACL_TABLE/MGMT/services", "value": ["SSH"]}]\''
            " | sudo config apply-patch /dev/stdin",
        ),
    ),
    (
        "cumulus",
        '"swp2": {"description": "gpu-002 mlx5_0"}',
        '"swp2": {"description": "gpu-002 mlx5_0", "link": {"mtu": 1500}}',
        (
            "changed",
            "/interface/swp2/link/mtu",
            "swp2",
            "mtu",
            "nv set interface swp2 link mtu 9216\nnv config apply",
        ),
    ),
    (
        "cumulus",
        '"roce": {"enable": "on", "mode": "lossless"}',
        '"roce": {"mode": "lossless"}',
        ("missing", "/qos/roce/state", None, "pfc", "nv set qos roce enable on\nnv config apply"),
    ),
    (
        "cumulus",
        '"20": {"action": {"deny": {}}}',
        '"15": {"action": {"permit": {}}}, "20": {"action": {"deny": {}}}',
        ("extra", "/acl/MGMT/rule/15", None, "acl", "nv unset acl MGMT rule 15\nnv config apply"),
    ),
]


@pytest.mark.parametrize(("platform", "old", "new", "expected"), EXPECTED)
def test_what_where_and_remediation(
    platform: Platform, old: str, new: str, expected: tuple[str, str, str | None, str | None, str | None]
) -> None:
    assert RAW[platform].count(old) == 1
    found = only(against_golden(platform, RAW[platform].replace(old, new)))
    assert (found.change.value, found.path, found.port, found.topic, found.remediation) == expected


def test_a_renamed_entry_is_missing_and_extra() -> None:
    old, new = '"Vlan100|Ethernet8": {"tagging_mode"', '"Vlan100|Ethernet16": {"tagging_mode"'
    found = against_golden("sonic", RAW["sonic"].replace(old, new))
    assert [(d.change.value, d.port, d.topic, d.remediation) for d in found] == [
        ("extra", "Ethernet16", "vlan", "sudo config vlan member del 100 Ethernet16"),
        ("missing", "Ethernet8", "vlan", "sudo config vlan member add -u 100 Ethernet8"),
    ]


def test_old_and_new_nvue_spellings_are_equal() -> None:
    new = RAW["cumulus"].replace('"enable": "on"', '"state": "enabled"')
    assert against_golden("cumulus", new) == []
    off = new.replace('"roce": {"state": "enabled"', '"roce": {"state": "disabled"')
    found = only(against_golden("cumulus", off))
    assert (found.path, found.expected, found.actual) == ("/qos/roce/state", "enabled", "disabled")
    assert found.remediation == "nv set qos roce state enabled\nnv config apply"


def test_a_changed_secret_type_is_drift_and_a_changed_secret_is_not() -> None:
    other = RAW["eos"].replace("$6$9pHBR2yJ$0l5b3U3cJ3m9xq1aQ0WJHVgS2m", "$6$other$other")
    assert against_golden("eos", other) == []
    found = only(against_golden("eos", RAW["eos"].replace("secret sha512 $6$9pHBR2yJ$", "secret 5 $1$9pHBR2yJ$")))
    assert (found.change, found.path, found.topic) == (Change.CHANGED, "username admin", "user")
    assert found.remediation is None
    assert against_golden("cumulus", RAW["cumulus"].replace("$6$saltsalt$hashhashhash", "*")) == []
    typed = only(against_golden("cumulus", RAW["cumulus"].replace("$6$salt", "$5$salt")))
    assert typed.path == "/system/aaa/user/cumulus/hashed-password"
    assert typed.remediation is None


def test_text_of_a_switch_cannot_run_when_a_proposal_is_pasted() -> None:
    tree = json.loads(RAW["sonic"])
    tree["PORT"]["Ethernet0; reboot"] = {"mtu": "9100'; reboot; '"}
    found = only(against_golden("sonic", json.dumps(tree)))
    assert found.remediation is not None
    assert found.remediation.startswith("printf %s '[{")
    assert "'; reboot; '" not in found.remediation
    nvue = RAW["cumulus"].replace('"swp33": {', '"swp9 $(reboot)": {"type": "swp"}, "swp33": {', 1)
    assert only(against_golden("cumulus", nvue)).remediation == "nv unset interface 'swp9 $(reboot)'\nnv config apply"


def test_paths_are_unique_even_when_a_section_repeats_itself() -> None:
    golden = "interface Ethernet1/1\n   mtu 1\n   mtu 2\n"
    found = drift("eos", golden, "interface Ethernet1/1\n   mtu 3\n   mtu 4\n   mtu 5\n")
    assert len(found) == 5
    assert len({d.path for d in found}) == 5


@pytest.mark.parametrize("platform", ["eos", "nxos", "sonic", "cumulus"])
def test_what_is_no_normal_form_is_refused(platform: Platform) -> None:
    bad = "[]" if platform in TREES else "   starts inside a block\n"
    with pytest.raises(ValueError, match=r"config|JSON"):
        drift(platform, GOLDEN[platform], bad)


@given(data=st.data(), platform=st.sampled_from(PLATFORMS))
def test_no_config_crashes_and_paths_are_unique(data: st.DataObject, platform: Platform) -> None:
    lines = RAW[platform].splitlines()
    words = st.sampled_from(
        [
            "interface Ethernet1/1",
            "   mtu 1",
            "no mtu",
            " no ",
            "banner motd",
            "  exit",
            "no no shutdown",
            "10 permit x",
        ]
    )
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(lines) - 2))
        lines[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.lists(st.one_of(words, st.text(max_size=12)), max_size=3)
        )
    result = normalise(platform, "\n".join(lines), captured=False)
    if result.well_formed:
        for a, b in ((GOLDEN[platform], result.config), (result.config, GOLDEN[platform])):
            found = drift(platform, a, b)
            assert len({(d.change, d.path) for d in found}) == len(found)
            assert (found == []) or a != b
