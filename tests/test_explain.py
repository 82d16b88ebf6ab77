"""Both ends of a cable tell of one trouble: which finding stands, and which points at it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from fabric_health.checks.driver_firmware.rules.links import ADMIN_DOWN
from fabric_health.datasets.tables import Finding, Severity, finding
from fabric_health.explain import link_explanations
from fabric_health.site import Cable, PortProfile, Site, Storage, Thresholds

NIC, PORT = "gpu-001/mlx5_3", "leaf-1/swp3"
NEAR, FAR = "leaf-1/swp33", "spine-1/Eth1/1"
SITE = Site(
    name="s",
    title="S",
    origin="lab",
    coverage_floor=0.9,
    nodes=(),
    switches=(),
    cables=(
        Cable("leaf-1", "swp3", "gpu-001", "mlx5_3", "node", PortProfile(), 3),
        Cable("leaf-1", "swp33", "spine-1", "Eth1/1", "switch", PortProfile(), None),
    ),
    storage=Storage(),
    thresholds=Thresholds(),
    sha256="0" * 64,
    path=Path("s.yaml"),
)


def made(unit: str, rule: str, actual: str = "", explained_by: str | None = None) -> Finding:
    check = "driver_firmware" if unit.startswith("gpu") else "switch_config"
    return finding(
        check=check,
        rule=rule,
        unit=unit,
        unit_kind="x",
        metric=rule,
        severity=Severity.CRITICAL,
        summary=rule,
        actual=actual,
        explained_by=explained_by,
    )


SHUT = f"{ADMIN_DOWN} (state DOWN, phys_state DISABLED)"
NO_CARRIER = "no carrier (state DOWN, phys_state DISABLED)"
POLLING = "no link with its peer (state DOWN, phys_state POLLING)"


def nic_down(how: str) -> Finding:
    return made(NIC, "link_up", how)


def links(*findings: Finding) -> dict[str, str | None]:
    """Return rule@unit -> rule@unit of what explains it; checked to be the same in any order of findings."""
    outcomes = []
    for order in itertools.permutations(findings):
        out = link_explanations(list(order), SITE)
        assert [f.finding for f in out] == [f.finding for f in order]
        names = {f.finding: f"{f.rule}@{f.unit}" for f in out}
        outcomes.append({names[f.finding]: names.get(f.explained_by or "") for f in out})
    assert all(o == outcomes[0] for o in outcomes)
    return outcomes[0]


@pytest.mark.parametrize("port_rule", ["port_up", "port_neighbor"])
@pytest.mark.parametrize("how", [SHUT, NO_CARRIER, POLLING])
def test_a_nic_that_is_down_explains_what_its_port_sees(port_rule, how):
    assert links(nic_down(how), made(PORT, port_rule)) == {
        f"link_up@{NIC}": None,
        f"{port_rule}@{PORT}": f"link_up@{NIC}",
    }


@pytest.mark.parametrize("how", [NO_CARRIER, POLLING])
def test_a_port_that_is_shut_down_explains_the_nic(how):
    assert links(nic_down(how), made(PORT, "port_admin_up")) == {
        f"link_up@{NIC}": f"port_admin_up@{PORT}",
        f"port_admin_up@{PORT}": None,
    }


def test_shut_down_at_both_ends_are_two_causes():
    assert set(links(nic_down(SHUT), made(PORT, "port_admin_up")).values()) == {None}


def test_a_missing_nic_explains_its_port():
    assert links(made(NIC, "nic_present"), made(PORT, "port_up"))[f"port_up@{PORT}"] == f"nic_present@{NIC}"


def test_a_port_at_the_wrong_speed_explains_the_rate_of_its_nic():
    found = links(made(NIC, "link_rate"), made(PORT, "port_speed"))
    assert found == {f"link_rate@{NIC}": f"port_speed@{PORT}", f"port_speed@{PORT}": None}


def test_a_nic_that_flaps_explains_the_flapping_port():
    assert links(made(NIC, "link_flaps"), made(PORT, "port_flaps"))[f"port_flaps@{PORT}"] == f"link_flaps@{NIC}"


@pytest.mark.parametrize("rule", ["port_mtu", "port_pfc", "port_fec", "port_vlan"])
def test_what_a_dead_peer_does_not_cause_stands(rule):
    assert set(links(nic_down(SHUT), made(PORT, rule)).values()) == {None}


def test_of_a_flapping_link_between_switches_the_first_end_stands():
    found = links(made(FAR, "port_flaps"), made(NEAR, "port_flaps"))
    assert found == {f"port_flaps@{NEAR}": None, f"port_flaps@{FAR}": f"port_flaps@{NEAR}"}


def test_nothing_is_hidden_behind_a_lesser_finding():
    port = replace(made(PORT, "port_admin_up"), severity="warning")
    assert set(links(nic_down(NO_CARRIER), port).values()) == {None}


def test_a_node_that_cannot_be_reached_explains_its_dead_port():
    assert links(made("gpu-001", "unit_answers", "unreachable"), made(PORT, "port_up")) == {
        "unit_answers@gpu-001": None,
        f"port_up@{PORT}": "unit_answers@gpu-001",
    }


def test_a_switch_that_cannot_be_reached_explains_the_dead_link_of_a_nic():
    found = links(made("leaf-1", "unit_answers", "unreachable"), nic_down(NO_CARRIER))
    assert found[f"link_up@{NIC}"] == "unit_answers@leaf-1"


@pytest.mark.parametrize("status", ["auth_failed", "hung", "host_key_mismatch"])
def test_a_node_that_answers_badly_is_not_a_reason_for_a_dead_port(status):
    assert set(links(made("gpu-001", "unit_answers", status), made(PORT, "port_up")).values()) == {None}


def test_what_is_explained_already_stays_as_it_is():
    port = made(PORT, "port_up", explained_by="elsewhere")
    out = link_explanations([nic_down(SHUT), port], SITE)
    assert out[1].explained_by == "elsewhere"


def test_findings_on_other_units_are_left_alone():
    alone = [made("gpu-002/mlx5_0", "link_up"), made("leaf-9/swp1", "port_up")]
    assert link_explanations(alone, SITE) == alone


RAIL, SLOW = "rail_as_fast_as_peers@rail-3", f"isolated@{NIC}"


def slow_rail() -> tuple[Finding, Finding]:
    """A NIC that isolation named, and the slow rail that it explains."""
    slow = made(NIC, "isolated")
    return slow, made("rail-3", "rail_as_fast_as_peers", explained_by=slow.finding)


@pytest.mark.parametrize("cause", [made(PORT, "port_mtu"), made(NIC, "symbol_errors")])
def test_a_nic_that_slows_its_rail_and_the_rail_are_explained_by_what_an_audit_says_of_the_cable(
    cause: Finding,
) -> None:
    name = f"{cause.rule}@{cause.unit}"
    assert links(*slow_rail(), cause) == {RAIL: name, SLOW: name, name: None}


def test_a_nic_that_slows_its_rail_and_has_no_other_finding_stands_for_itself() -> None:
    assert links(*slow_rail()) == {RAIL: SLOW, SLOW: None}
    assert links(*slow_rail(), made("leaf-1/swp4", "port_mtu"))[SLOW] is None
    assert links(*slow_rail(), replace(made(PORT, "port_mtu"), kind="not_judged"))[SLOW] is None
    assert links(*slow_rail(), replace(made(PORT, "port_mtu"), severity="warning"))[SLOW] is None
