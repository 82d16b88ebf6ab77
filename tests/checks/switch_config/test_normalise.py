"""Normal forms of the five syntaxes: volatile lines out, secrets masked, rubbish refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_health.checks.switch_config.config_json import expand_key
from fabric_health.checks.switch_config.masking import mask_text, same_secret
from fabric_health.checks.switch_config.normalise import normalise
from fabric_health.checks.switch_config.onyx_lines import expand_ports
from fabric_health.evidence import Redactor
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


def raw(platform: Platform) -> str:
    return (CONFIGS / FILES[platform]).read_text(encoding="utf-8")


def config(platform: Platform, text: str | None = None) -> str:
    result = normalise(platform, raw(platform) if text is None else text)
    assert result.well_formed, result.problem
    return result.config


@pytest.mark.parametrize("platform", PLATFORMS)
def test_fixture_is_well_formed_and_holds_no_secret(platform: Platform) -> None:
    text = config(platform)
    for secret in ("0l5b3U3c", "zgT0Yk3m", "VOiPTxq1", "s3cr3t", "0822455D", "hashhash", "0x4d8e3a"):
        assert secret not in text


@pytest.mark.parametrize("platform", PLATFORMS)
def test_redacted_evidence_gives_the_same_normal_form(platform: Platform) -> None:
    assert config(platform, Redactor().text(raw(platform))) == config(platform)


@pytest.mark.parametrize("platform", CLI)
def test_normal_form_is_a_fixed_point(platform: Platform) -> None:
    once = config(platform)
    assert normalise(platform, once, captured=False).config == once


@pytest.mark.parametrize("platform", CLI)
def test_windows_line_ends_and_escape_codes_change_nothing(platform: Platform) -> None:
    text = raw(platform)
    assert config(platform, text.replace("\n", "\r\n")) == config(platform)
    assert config(platform, "\x1b[2J\x1b[H" + text.replace("interface", "\x1b[1minterface\x1b[0m")) == config(platform)


def test_volatile_lines_are_dropped() -> None:
    text = config("nxos")
    assert text.startswith("version 10.3(4a)\nhostname leaf-4\n")
    assert "Bios" not in text
    assert "!" not in text
    assert "Command" not in config("eos")
    assert "Generated at" not in config("onyx")
    assert "Certificate" not in config("onyx")
    assert '"VERSIONS"' not in config("sonic")
    assert "rev-id" not in config("cumulus")


def test_secret_types_stay() -> None:
    assert "secret sha512 $6$<redacted>" in config("eos")
    assert "password 7 <redacted>" in config("eos")
    assert "password 5 $5$<redacted> role network-admin" in config("nxos")
    assert '"hashed-password": "$6$<redacted>"' in config("cumulus")
    assert '"passkey": "<redacted>"' in config("sonic")
    assert '"<redacted> 1"' in config("sonic")


def test_devices_own_masks_become_the_mask() -> None:
    assert mask_text("snmp-server community <removed> ro") == "snmp-server community <redacted> ro"
    assert mask_text("radius-server key ********") == "radius-server key <redacted>"


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        ("$6$<redacted>", "$6$<redacted>", True),
        ("$6$<redacted>", "<redacted>", True),
        ("$6$<redacted>", "$5$<redacted>", False),
        ("plain", "<redacted>", False),
    ],
)
def test_masks_are_compared_by_type_only(expected: str, actual: str, same: bool) -> None:
    assert same_secret(expected, actual) is same


def test_banner_is_one_line_whatever_it_says() -> None:
    assert "banner motd\\nAuthorised use only\\n% Invalid access is logged\\n!\\nEOF\n" in config("eos")
    assert "banner motd #\\nAuthorised use only\\n#\n" in config("nxos")


def test_onyx_ranges_are_expanded_and_force_is_dropped() -> None:
    lines = config("onyx").splitlines()
    for port in range(1, 5):
        assert f"interface ethernet 1/{port} mtu 9216" in lines
    assert not any(line.endswith(" force") for line in lines)
    assert expand_ports("1/2-1/4,1/7/1-1/7/2") == ["1/2", "1/3", "1/4", "1/7/1", "1/7/2"]
    assert expand_ports("1/1-1/999999") == ["1/1-1/999999"]
    assert expand_ports("1/4-1/2") == ["1/4-1/2"]


def test_onyx_blocks_read_like_flat_lines() -> None:
    block = "hostname x\ninterface ethernet 1/1\n   mtu 9216 force\n   speed 400G\n   exit\nvlan 10\n   exit\n"
    port = "interface ethernet 1/1"
    flat = f"hostname x\n{port}\n{port} mtu 9216\n{port} speed 400G\nvlan 10\n"
    assert normalise("onyx", block).config == normalise("onyx", flat).config == flat


def test_nvue_keys_are_expanded() -> None:
    tree = json.loads(config("cumulus"))
    assert tree["interface"]["swp3"]["link"]["mtu"] == 9216
    assert tree["interface"]["swp7"]["link"]["state"] == "up"
    assert tree["interface"]["swp1"]["description"] == "gpu-001 mlx5_0"
    assert list(tree["bridge"]["domain"]["br_default"]["vlan"]) == ["100", "200", "201", "202"]
    assert list(expand_key("swp1s0-3")) == ["swp1s0", "swp1s1", "swp1s2", "swp1s3"]
    assert list(expand_key("swp2,6")) == ["swp2", "swp6"]
    assert list(expand_key("swp1-3,7")) == ["swp1", "swp2", "swp3", "swp7"]
    assert list(expand_key("swp2,9-10,vlan10,20, 30")) == ["swp2", "swp9", "swp10", "vlan10", "vlan20", "vlan30"]
    assert list(expand_key("swp1s0-1,3")) == ["swp1s0", "swp1s1", "swp1s3"]
    assert list(expand_key("10,20-21")) == ["10", "20", "21"]
    assert list(expand_key("swp1-9999999")) == ["swp1-9999999"]
    assert list(expand_key("pre-up")) == ["pre-up"]
    assert list(expand_key("auto-negotiate,x y")) == ["auto-negotiate,x y"]


def test_short_and_long_nvue_keys_are_the_same_config() -> None:
    def interfaces(key: str) -> str | None:
        return normalise("cumulus", json.dumps([{"set": {"interface": {key: {"link": {"mtu": 9216}}}}}])).config

    forms = {interfaces(key) for key in ("swp1-3,6", "swp1,2,3,6", "swp1-3,swp6", "swp6,1-3")}
    assert len(forms) == 1
    assert '"swp6"' in str(forms)


def test_sonic_keys_references_and_sets_have_one_form() -> None:
    tree = json.loads(config("sonic"))
    assert set(tree["QUEUE"]) == {"Ethernet0|3", "Ethernet8|3", "Ethernet0|6"}
    assert tree["QUEUE"]["Ethernet0|3"]["wred_profile"] == "E"
    assert tree["ACL_TABLE"]["MGMT"]["ports@"] == "Ethernet0,Ethernet8"
    other = raw("sonic").replace('"3,4"', '"4,3"').replace('"0,1,2,3,4,5,6,7"', '"1,0,2,3,4,5,6,7"')
    changed = json.loads(config("sonic", other))
    assert changed["PORT_QOS_MAP"] == tree["PORT_QOS_MAP"]
    assert changed["PORT"]["Ethernet0"]["lanes"] == "1,0,2,3,4,5,6,7"


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "empty"),
        ("  \n\n", "empty"),
        ("% Invalid command at '^' marker.\n", "% Invalid command"),
        ("% Invalid input (privileged mode required)\n", "% Invalid input"),
        ("<!DOCTYPE html><html><body>Login</body></html>", "HTML"),
        ("Authorised use only. All access is logged.\n", ""),
        ("hostname x\n--More--", "pager"),
        ("bash: nv: command not found\n", "command not found"),
        ("sudo: a password is required\n", "password is required"),
        ("a" * 50_000, ""),
        ("\x1b[31m\x1b[0m", ""),
    ],
)
def test_rubbish_is_refused_with_the_problem(platform: Platform, text: str, word: str) -> None:
    result = normalise(platform, text)
    assert not result.well_formed
    assert result.problem
    assert word in result.problem
    assert result.config == ""


@pytest.mark.parametrize("platform", ["eos", "onyx", "sonic", "cumulus"])
def test_every_truncation_is_seen(platform: Platform) -> None:
    text = raw(platform).rstrip()
    last = text.rfind("\n")
    for cut in (len(text) // 3, len(text) // 2, last - 1):
        result = normalise(platform, text[:cut])
        assert not result.well_formed, cut


def test_golden_configs_need_no_end_mark() -> None:
    text = raw("eos").replace("\nend\n", "\n")
    assert not normalise("eos", text).well_formed
    assert normalise("eos", text, captured=False).config == config("eos")


@pytest.mark.parametrize("platform", ["sonic", "cumulus"])
def test_another_commands_json_is_refused(platform: Platform) -> None:
    for text in ("{}", "[]", "[1, 2]", '{"swp1": {"link": {}}}', "null", "1e999", '{"PORT": NaN}'):
        assert not normalise(platform, text).well_formed


def test_a_warning_before_the_document_is_no_problem() -> None:
    assert config("sonic", "sudo: unable to resolve host leaf-2\n" + raw("sonic")) == config("sonic")
    assert not normalise("sonic", raw("sonic") + "\nConnection closed").well_formed


def test_hostile_ranges_and_depths_stay_small() -> None:
    keys = ",".join(f"swp{i}-{i + 4000}" for i in range(100))
    assert not normalise("cumulus", json.dumps([{"set": {"interface": {keys: {"link": {"mtu": 1}}}}}])).well_formed
    deep = '{"PORT": ' + '{"a": ' * 50_000 + "1" + "}" * 50_001
    assert not normalise("sonic", deep).well_formed


@given(text=st.text(max_size=400), platform=st.sampled_from(PLATFORMS))
def test_no_text_crashes_and_none_passes_silently(text: str, platform: Platform) -> None:
    result = normalise(platform, text)
    assert result.well_formed == (result.problem is None)
    assert result.well_formed == (result.config != "")


@given(data=st.data(), platform=st.sampled_from(PLATFORMS))
def test_no_damage_to_a_config_crashes(data: st.DataObject, platform: Platform) -> None:
    text = raw(platform)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 200)))
    result = normalise(platform, text[:start] + data.draw(st.text(max_size=20)) + text[end:])
    assert result.well_formed == (result.problem is None)
