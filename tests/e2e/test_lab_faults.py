"""Every fault the lab can have is found on its unit, with what was expected and what is; nothing else is flagged."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

import pytest

from fabric_health import answer, pipeline
from fabric_health.datasets.tables import CoverageState, Finding, FindingKind
from fabric_health.lab import lab
from fabric_health.lab.faults import CATALOGUE
from fabric_health.site import load_site

pytestmark = pytest.mark.e2e

NODES, SWITCHES = ("driver_firmware",), ("switch_config",)
BOTH = (*NODES, *SWITCHES)
# Faults of real runs of this machine have tests of their own.
OF_REAL_RUNS = ("rank", "job", "agent", "model")
UP = "state ACTIVE, phys_state LINK_UP"
SHUT = "administratively down on the node (state DOWN, phys_state DISABLED)"
HANGING_LIMIT_S = 6


@dataclass(frozen=True)
class Found:
    """A finding that must stand for itself; a pattern where the value depends on the moment."""

    unit: str
    rule: str
    expected: str | None
    actual: str | re.Pattern[str]
    kind: str = FindingKind.DEVIATION.value

    def matches(self, f: Finding) -> bool:
        same = (f.unit, f.rule, f.expected, f.kind) == (self.unit, self.rule, self.expected, self.kind)
        if isinstance(self.actual, str):
            return same and f.actual == self.actual
        return same and self.actual.fullmatch(f.actual or "") is not None


@dataclass(frozen=True)
class Case:
    """A fault, the checks that have anything to say about it, what they must say, and what that must explain."""

    kind: str
    unit: str
    value: str | None
    checks: tuple[str, ...]
    found: tuple[Found, ...]
    explained: frozenset[tuple[str, str]] = frozenset()


CASES = (
    Case(
        "driver-version",
        "gpu-003",
        None,
        NODES,
        (Found("gpu-003", "as_expected", "580.126.09", "570.148.08"),),
    ),
    Case(
        "nic-firmware",
        "gpu-007/mlx5_3",
        None,
        NODES,
        (Found("gpu-007/mlx5_3", "as_expected", "28.43.2026", "28.39.1002"),),
    ),
    Case("pcie-degraded", "gpu-002/gpu5", None, NODES, (Found("gpu-002/gpu5", "pcie_width", "x16", "x8"),)),
    Case(
        "nic-down",
        "gpu-012/mlx5_6",
        None,
        BOTH,
        (Found("gpu-012/mlx5_6", "link_up", UP, SHUT),),
        frozenset({("leaf-4/Ethernet1/12", "port_up")}),
    ),
    Case(
        "link-flap",
        "gpu-009/mlx5_1",
        None,
        BOTH,
        (Found("gpu-009/mlx5_1", "link_flaps", "fewer than 5 within 24 h", "7 within 24 h"),),
        frozenset({("gpu-009/mlx5_1", "link_downed")}),
    ),
    Case("remap-pending", "gpu-004/gpu2", None, NODES, (Found("gpu-004/gpu2", "remap_pending", "no", "yes"),)),
    Case(
        "xid",
        "gpu-001/gpu7",
        None,
        NODES,
        (
            Found(
                "gpu-001/gpu7",
                "xid",
                "no Xid",
                "NVRM: Xid (PCI:0000:9d:00): 79, GPU has fallen off the bus.",
            ),
        ),
    ),
    Case(
        "switch-mtu",
        "leaf-2/Ethernet32",
        None,
        SWITCHES,
        (Found("leaf-2/Ethernet32", "port_mtu", "9216 B", "1500 B"),),
        frozenset({("leaf-2/Ethernet32", "config_equals_golden")}),
    ),
    Case(
        "switch-pfc",
        "leaf-3/Ethernet5/1",
        None,
        SWITCHES,
        (Found("leaf-3/Ethernet5/1", "port_pfc", "3", "none"),),
        frozenset({("leaf-3/Ethernet5/1", "config_equals_golden")}),
    ),
    Case(
        "port-speed",
        "leaf-1/swp3",
        None,
        BOTH,
        (Found("leaf-1/swp3", "port_speed", "400 Gb/s", "200 Gb/s"),),
        frozenset({("leaf-1/swp3", "config_equals_golden"), ("gpu-003/mlx5_0", "link_rate")}),
    ),
    Case(
        "port-down",
        "leaf-4/Ethernet1/20",
        None,
        BOTH,
        (Found("leaf-4/Ethernet1/20", "port_admin_up", "up", "administratively down"),),
        frozenset({("leaf-4/Ethernet1/20", "config_equals_golden"), ("gpu-004/mlx5_7", "link_up")}),
    ),
    Case(
        "miscabled",
        "leaf-1/swp5",
        "swp6",
        SWITCHES,
        # A swap is wrong at two ports: both need a hand.
        (
            Found("leaf-1/swp5", "port_neighbor", "gpu-005 enp24s0np0 (mlx5_0)", "gpu-006 enp24s0np0"),
            Found("leaf-1/swp6", "port_neighbor", "gpu-006 enp24s0np0 (mlx5_0)", "gpu-005 enp24s0np0"),
        ),
    ),
    Case(
        "acl-line",
        "spine-2",
        None,
        SWITCHES,
        (Found("spine-2", "config_equals_golden", None, "25 permit ip any any"),),
    ),
    Case(
        "port-errors",
        "spine-1/Eth1/3",
        None,
        SWITCHES,
        (
            Found(
                "spine-1/Eth1/3",
                "port_error_ratio",
                "<= 1.0e-05 errors per packet",
                re.compile(r"[1-9]\.\de-0\d errors per packet"),
            ),
        ),
    ),
    # What only a benchmark shows: every audit must stay silent.
    Case("slow-rail", "gpu-007/mlx5_3", "18", NODES, ()),
    Case("slow-node", "gpu-004", None, NODES, ()),
    Case("bad-leaf", "leaf-2", None, SWITCHES, ()),
    Case(
        "node-unreachable",
        "gpu-010",
        None,
        NODES,
        (Found("gpu-010", "unit_answers", "answers to every command", "refused", FindingKind.NOT_JUDGED.value),),
    ),
    Case(
        "node-hanging",
        "gpu-011",
        None,
        NODES,
        (Found("gpu-011", "unit_answers", "answers to every command", "hung", FindingKind.NOT_JUDGED.value),),
    ),
)
AT_ONCE = ("nic-firmware", "remap-pending", "nic-down", "switch-mtu", "acl-line")


def case(kind: str) -> Case:
    return next(c for c in CASES if c.kind == kind)


def plant(home, *cases: Case) -> None:
    for c in cases:
        lab.add_fault(home, c.kind, c.unit, c.value)


def check(findings: list[Finding], *cases: Case) -> None:
    """Hold findings against what the faults must give: no more, no less, and nothing explained by anything else."""
    stand = [f for f in findings if f.explained_by is None]
    wanted = [w for c in cases for w in c.found]
    unmatched = [w for w in wanted if sum(w.matches(f) for f in stand) != 1]
    extra = [(f.unit, f.rule, f.expected, f.actual) for f in stand if not any(w.matches(f) for w in wanted)]
    assert (unmatched, extra) == ([], [])
    by_id = {f.finding: f for f in findings}
    roots = {f.finding for f in stand}
    explained = [f for f in findings if f.explained_by is not None]
    assert {(f.unit, f.rule) for f in explained} == {pair for c in cases for pair in c.explained}
    for f in explained:
        cause = by_id[f.explained_by or ""]
        assert cause.finding in roots
        own = next(c for c in cases if (f.unit, f.rule) in c.explained)
        assert (cause.unit, cause.rule) in {(w.unit, w.rule) for w in own.found}


@pytest.fixture(scope="module")
def chain(lab_home):
    """A chain whose only concluded run saw a healthy lab: every other run of this module compares with that one."""
    lab.heal(lab_home.home)
    made = lab_home.chain()
    ref = made.conclude()
    assert made.findings(ref) == []
    assert {c.state for c in made.coverage(ref)} == {CoverageState.JUDGED}
    assert len(made.coverage(ref)) == 22
    return made


def test_every_kind_of_fault_has_its_case() -> None:
    """What the machine that runs jobs does is no unit of an audit: ranks, models and elastic training."""
    of_audits = sorted(k for k, fault in CATALOGUE.items() if fault.unit_kind not in OF_REAL_RUNS)
    assert sorted(c.kind for c in CASES) == of_audits


def test_a_healthy_lab_gives_no_finding_the_second_time_either(chain, healthy) -> None:
    assert chain.findings(chain.judge()) == []


@pytest.mark.parametrize("fault", [c for c in CASES if c.kind != "node-hanging"], ids=lambda c: c.kind)
def test_each_fault_is_found_where_it_is_and_nothing_else(chain, healthy, fault: Case) -> None:
    plant(healthy.home, fault)
    ref = chain.judge(fault.checks)
    check(chain.findings(ref), fault)
    left = [c for c in chain.coverage(ref) if c.state != CoverageState.JUDGED]
    if fault.kind == "node-unreachable":
        assert [(c.unit, c.state, c.reason.split(":")[0]) for c in left] == [("gpu-010", "not_judged", "refused")]
    else:
        assert left == []


def test_a_hanging_node_costs_its_limit_and_no_more(chain, healthy, lab_site) -> None:
    fault = case("node-hanging")
    hasty = load_site(lab_site(("unit_timeout_s: 20", f"unit_timeout_s: {HANGING_LIMIT_S}")))
    impatient = healthy.chain(site=hasty)
    plant(healthy.home, fault)
    ref = impatient.open(fault.checks, "gpu-[010-013]")
    began = time.monotonic()
    counts = pipeline.collect(impatient.rooms, ref, "driver_firmware")
    took = time.monotonic() - began
    assert counts == {"ok": 3, "hung": 1}
    assert HANGING_LIMIT_S <= took < HANGING_LIMIT_S + 15
    pipeline.land(impatient.rooms, ref, "driver_firmware")
    pipeline.judge(impatient.rooms, ref, "driver_firmware")
    pipeline.explain(impatient.rooms, ref)
    check(impatient.findings(ref), fault)
    covered = {c.unit: (c.state, c.reason) for c in impatient.coverage(ref)}
    state, reason = covered.pop("gpu-011")
    assert state == CoverageState.NOT_JUDGED
    assert reason.startswith(f"hung: no whole answer within {HANGING_LIMIT_S} s; 0 of ")
    assert set(covered.values()) == {("judged", None)}
    # Three of four is under the floor of 90 %: nobody may call this healthy.
    assert pipeline.conclude(impatient.rooms, ref)["answer"] == "NOT_JUDGED"


def test_five_faults_at_once_then_healed(chain, healthy) -> None:
    five = [case(kind) for kind in AT_ONCE]
    own = healthy.chain()
    own.conclude()
    plant(healthy.home, *five)
    ref = own.conclude()
    found = own.findings(ref)
    check(found, *five)
    assert len(answer.news(found)) == 5
    assert own.report(ref).record.answer == "FINDINGS"

    lab.heal(healthy.home)
    ref = own.conclude()
    assert own.findings(ref) == []
    after = own.report(ref)
    assert {f.finding for f in after.resolved} == {f.finding for f in found}
    assert after.record.answer == "HEALTHY"
    assert {(d.switch, d.against) for d in after.drift} == {("leaf-2", "previous"), ("spine-2", "previous")}
    assert {(c.unit, c.attribute, c.after) for c in after.changes if c.attribute == "fw_version"} == {
        ("gpu-007/mlx5_3", "fw_version", "28.43.2026")
    }


def test_a_fault_keeps_the_day_it_was_first_seen_until_it_is_gone(healthy) -> None:
    own = healthy.chain()
    faults = [case("switch-mtu"), case("acl-line")]

    def first_seen() -> set[object]:
        found = own.findings(ref)
        check(found, *faults)
        return {f.first_seen for f in found}

    own.conclude(SWITCHES)
    plant(healthy.home, *faults)
    ref = own.conclude(SWITCHES)
    first = own.landed(ref).run.key.started_at
    assert first_seen() == {first}
    ref = own.conclude(SWITCHES)
    assert first_seen() == {first}
    assert {d.first_seen for d in own.report(ref).drift if d.against == "golden"} == {first}
    lab.heal(healthy.home)
    ref = own.conclude(SWITCHES)
    assert own.findings(ref) == []
    plant(healthy.home, *faults)
    ref = own.conclude(SWITCHES)
    assert first_seen() == {own.landed(ref).run.key.started_at}
