"""Every rule on a cabled port: what must pass and what must fail, and one primary finding a cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.switch_config import SWITCH_CONFIG
from fabric_health.checks.switch_config.port_rules import port_findings
from fabric_health.checks.switch_config.tables import ConfigDrift, PortWindow, SwitchConfig, SwitchPort
from fabric_health.checks.switch_config.windows import port_windows
from fabric_health.datasets.contracts import Row
from fabric_health.datasets.tables import Fact, Finding
from fabric_health.evidence import ReachStatus, StoredEvidence
from fabric_health.site import PortProfile, Site

NOW = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
BEFORE = NOW - timedelta(days=7)
SWITCHES = ("cumulus-1", "sonic-1", "onyx-1", "eos-1", "nxos-1")


@pytest.fixture(scope="session")
def healthy(ports_site: Site) -> dict[str, SwitchPort]:
    """A port as planned for every end of every cable, by unit."""
    out = {}
    for switch in SWITCHES:
        for c in ports_site.cables_of(switch):
            far = c.peer_port
            if c.peer_kind == "node":
                far = next(n.netdev for n in ports_site.unit(c.peer).sku.nics if n.name == c.peer_port)
            out[f"{switch}/{c.port}"] = SwitchPort(
                switch=switch,
                port=c.port,
                admin_up=True,
                oper_up=True,
                speed_gbps=400.0,
                mtu_bytes=9214 if switch == "eos-1" else 9216,
                fec="rs",
                pfc_priorities="3",
                ecn=True,
                vlan=100,
                neighbor=c.peer,
                neighbor_port=far,
                rx_packets=10_000_000,
                tx_packets=10_000_000,
                rx_errors=0,
                tx_errors=0,
                rx_pause_frames=100,
                tx_pause_frames=100,
                carrier_transitions=2,
            )
    return out


def context(site: Site, previous: Iterable[Row] = (), reach: ReachStatus = ReachStatus.OK) -> Context:
    return Context(
        site=site,
        run="run",
        started_at=NOW,
        scope=(*site.nodes, *site.switches),
        reach={s.name: StoredEvidence(s.name, "key", "sha", reach) for s in site.switches},
        previous=RowSet.gather(previous),
        previous_at={s.name: BEFORE for s in site.switches},
    )


Judge = Callable[..., list[Finding]]


@pytest.fixture
def judge(ports_site: Site, healthy: dict[str, SwitchPort]) -> Judge:
    """Judge the healthy ports with some replaced (None: the port is gone) and rows added."""

    def run(
        changes: dict[str, SwitchPort | None] | None = None,
        extra: Sequence[Row] = (),
        previous: Sequence[Row] = (),
        reach: ReachStatus = ReachStatus.OK,
    ) -> list[Finding]:
        ports = [p for p in {**healthy, **(changes or {})}.values() if p is not None]
        ctx = context(ports_site, previous, reach)
        windows = port_windows(RowSet.gather(ports), ctx)
        return SWITCH_CONFIG.judge(RowSet.gather([*ports, *windows, *extra]), ctx)

    return run


def only(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, [(f.rule, f.unit) for f in findings]
    return findings[0]


def primary(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(f.rule, f.unit) for f in findings if not f.explained_by]


def test_healthy_ports_have_no_finding(judge: Judge) -> None:
    assert judge() == []


UNIT = "nxos-1/Ethernet1/1"
BROKEN = [
    ("port_admin_up", {"admin_up": False, "oper_up": False}, "up", "administratively down"),
    ("port_up", {"oper_up": False}, "up", "down"),
    ("port_speed", {"speed_gbps": 200.0}, "400 Gb/s", "200 Gb/s"),
    ("port_mtu", {"mtu_bytes": 1500}, "9216 B", "1500 B"),
    ("port_mtu", {"mtu_bytes": 9213}, "9216 B", "9213 B"),
    ("port_fec", {"fec": "none"}, "rs", "none"),
    ("port_pfc", {"pfc_priorities": ""}, "3", "none"),
    ("port_pfc", {"pfc_priorities": "3,4"}, "3", "3,4"),
    ("port_ecn", {"ecn": False}, "on", "off"),
    ("port_vlan", {"vlan": 1}, "100", "1"),
    ("port_neighbor", {"neighbor": "gpu-002"}, "gpu-001 ens5np0 (mlx5_4)", "gpu-002 ens5np0"),
    ("port_neighbor", {"neighbor_port": "ens4np0"}, "gpu-001 ens5np0 (mlx5_4)", "gpu-001 ens4np0"),
]


@pytest.mark.parametrize(("rule", "change", "expected", "actual"), BROKEN)
def test_each_rule_fails_on_its_port_only(
    rule: str, change: dict, expected: str, actual: str, judge: Judge, healthy: dict[str, SwitchPort]
) -> None:
    found = only(judge({UNIT: replace(healthy[UNIT], **change)}))
    assert (found.rule, found.unit, found.unit_kind, found.kind) == (rule, UNIT, "port", "deviation")
    assert (found.expected, found.actual) == (expected, actual)
    assert UNIT in found.summary
    assert found.action
    assert found.source


PASSING = [
    {"mtu_bytes": 9214},
    {"mtu_bytes": 9218},
    {"neighbor_port": "mlx5_4"},
    {"neighbor_port": "ENS5NP0"},
    {"neighbor_port": "b8:59:9f:00:00:01"},
    {"neighbor_port": "b859.9f00.0001"},
    {"neighbor_port": None},
]


@pytest.mark.parametrize("change", PASSING)
def test_what_is_as_good_as_planned_passes(change: dict, judge: Judge, healthy: dict[str, SwitchPort]) -> None:
    assert judge({UNIT: replace(healthy[UNIT], **change)}) == []


def test_a_missing_port_is_absent_when_the_inventory_was_read(judge: Judge) -> None:
    found = only(judge({UNIT: None}))
    assert (found.rule, found.unit, found.actual) == ("port_present", UNIT, "absent")


def test_a_port_that_is_down_has_no_other_finding(judge: Judge, healthy: dict[str, SwitchPort]) -> None:
    dead = replace(healthy[UNIT], oper_up=False, speed_gbps=None, mtu_bytes=1500, neighbor=None, fec="none")
    assert only(judge({UNIT: dead})).rule == "port_up"


def test_a_profile_without_wishes_is_not_judged(judge: Judge, healthy: dict[str, SwitchPort]) -> None:
    unit = "nxos-1/Ethernet1/3"
    odd = replace(healthy[unit], speed_gbps=100.0, mtu_bytes=1500, fec=None, ecn=None, vlan=None)
    assert judge({unit: odd}) == []


def answer_problem(switch: str, command: str) -> Fact:
    return Fact(switch, "switch", f"answer:{command}", "error", None, "the answer is empty", command)


def test_unknown_values_are_one_not_judged_finding_per_switch_and_metric(
    judge: Judge, healthy: dict[str, SwitchPort]
) -> None:
    blind = {u: replace(p, mtu_bytes=None, ecn=None) for u, p in healthy.items() if u.startswith("nxos-1/Ethernet1/")}
    found = judge(blind)
    assert {(f.rule, f.unit, f.kind, f.severity) for f in found} == {
        ("port_mtu_known", "nxos-1", "not_judged", "warning"),
        ("port_ecn_known", "nxos-1", "not_judged", "warning"),
    }
    assert all("2 cabled ports" in f.summary and "Ethernet1/1, Ethernet1/2" in f.summary for f in found)


def test_an_unreadable_answer_explains_what_it_hides(judge: Judge, healthy: dict[str, SwitchPort]) -> None:
    blind = {u: replace(p, pfc_priorities=None) for u, p in healthy.items() if u.startswith("nxos-1/")}
    found = judge(blind, [answer_problem("nxos-1", "pfc")])
    assert primary(found) == [("answer_readable", "nxos-1")]
    assert [f.severity for f in found] == ["warning", "warning"]
    # A counters command that fails leaves rules unknown that never claim a pass: worth knowing, no warning.
    assert only(judge({}, [answer_problem("sonic-1", "counters")])).severity == "info"


def test_no_inventory_is_not_an_absent_port(judge: Judge, healthy: dict[str, SwitchPort]) -> None:
    gone = {u: None for u in healthy if u.startswith("onyx-1/")}
    found = judge(gone, [answer_problem("onyx-1", "interfaces")])
    assert primary(found) == [("answer_readable", "onyx-1")]
    assert {f.kind for f in found} == {"not_judged"}
    # Without any row and any reason the ports are still not called absent.
    assert {f.rule for f in judge(gone)} == {"port_state_known"}


def test_switches_that_did_not_answer_are_not_judged_here(judge: Judge, healthy: dict[str, SwitchPort]) -> None:
    broken = {UNIT: replace(healthy[UNIT], mtu_bytes=1500, ecn=None)}
    for status in (ReachStatus.UNREACHABLE, ReachStatus.EMPTY, ReachStatus.HUNG, ReachStatus.MALFORMED):
        assert judge(broken, reach=status) == []
    # What a switch answered in part counts, and what is missing is said: there is no reach finding that says it.
    assert {f.rule for f in judge(broken, reach=ReachStatus.PARTIAL)} == {"port_mtu", "port_ecn_known"}


def test_swapped_cables_name_each_other(judge: Judge, healthy: dict[str, SwitchPort]) -> None:
    a, b = "sonic-1/Ethernet0", "sonic-1/Ethernet8"
    swapped = {a: replace(healthy[a], neighbor="gpu-002"), b: replace(healthy[b], neighbor="gpu-001")}
    found = judge(swapped)
    assert {(f.rule, f.unit) for f in found} == {("port_neighbor", a), ("port_neighbor", b)}
    assert f"swapped with {b}" in next(f for f in found if f.unit == a).summary
    assert f"swapped with {a}" in next(f for f in found if f.unit == b).summary


def test_one_wrong_neighbour_is_not_called_swapped(judge: Judge, healthy: dict[str, SwitchPort]) -> None:
    a = "sonic-1/Ethernet0"
    assert "swapped" not in only(judge({a: replace(healthy[a], neighbor="gpu-002")})).summary


def test_cables_between_switches_have_one_primary_finding(judge: Judge, healthy: dict[str, SwitchPort]) -> None:
    near, far = "eos-1/Ethernet3/1", "nxos-1/Ethernet1/3"
    down = {near: replace(healthy[near], oper_up=False), far: replace(healthy[far], oper_up=False)}
    assert primary(judge(down)) == [("port_up", near)]
    down[far] = replace(healthy[far], admin_up=False, oper_up=False)
    assert primary(judge(down)) == [("port_admin_up", far)]
    wrong = {near: replace(healthy[near], neighbor_port="Ethernet1/9"), far: replace(healthy[far], neighbor="eos-9")}
    assert primary(judge(wrong)) == [("port_neighbor", near)]


def test_pfc_must_be_equal_at_both_ends(judge: Judge, healthy: dict[str, SwitchPort]) -> None:
    near, far = "eos-1/Ethernet3/1", "nxos-1/Ethernet1/3"
    found = only(judge({far: replace(healthy[far], pfc_priorities="")}))
    assert (found.rule, found.unit, found.actual) == ("port_pfc_both_ends", near, "3")
    for other in ("3", None):
        assert judge({far: replace(healthy[far], pfc_priorities=other)}) == []
    assert [f.rule for f in judge({far: replace(healthy[far], pfc_priorities="", oper_up=False)})] == ["port_up"]


def test_pfc_of_a_profile_explains_the_difference_of_the_ends(ports_site: Site, healthy: dict[str, SwitchPort]) -> None:
    profile = PortProfile(pfc_priorities=(3,))
    cables = tuple(replace(c, profile=profile) if c.peer_kind == "switch" else c for c in ports_site.cables)
    site = replace(ports_site, cables=cables)
    far = "nxos-1/Ethernet1/3"
    rows = RowSet.gather({**healthy, far: replace(healthy[far], pfc_priorities="")}.values())
    found = port_findings(rows, context(site))
    assert primary(found) == [("port_pfc", far)]
    assert {f.rule for f in found} == {"port_pfc", "port_pfc_both_ends"}


# Counters -----------------------------------------------------------------------------------------------------------


def counted(healthy: dict[str, SwitchPort], **delta: int) -> SwitchPort:
    port = healthy[UNIT]
    return replace(port, **{name: getattr(port, name) + d for name, d in delta.items()})


def test_error_ratio(judge: Judge, healthy: dict[str, SwitchPort]) -> None:
    before = list(healthy.values())
    # The limit is 1e-5: 10 errors in a million packets pass, 11 do not.
    assert judge({UNIT: counted(healthy, rx_errors=10, rx_packets=1_000_000)}, previous=before) == []
    found = only(judge({UNIT: counted(healthy, rx_errors=11, rx_packets=1_000_000)}, previous=before))
    assert (found.rule, found.metric, found.unit) == ("port_error_ratio", "rx_errors", UNIT)
    assert "11 errors in 1,000,000 packets" in found.summary
    found = only(judge({UNIT: counted(healthy, tx_errors=50, tx_packets=1_000_000)}, previous=before))
    assert found.metric == "tx_errors"


def test_what_counters_cannot_tell_is_no_finding(judge: Judge, healthy: dict[str, SwitchPort]) -> None:
    noisy = counted(healthy, rx_errors=5_000, rx_packets=1_000_000)
    assert judge({UNIT: noisy}) == []  # no previous run
    before = list(healthy.values())
    assert judge({UNIT: replace(noisy, rx_packets=10_000_000)}, previous=before) == []  # no packet in the window
    assert judge({UNIT: replace(noisy, rx_packets=None)}, previous=before) == []
    assert judge({UNIT: replace(noisy, tx_packets=5)}, previous=before) == []  # a counter went back: cleared


def test_windows(ports_site: Site, healthy: dict[str, SwitchPort]) -> None:
    now = counted(healthy, rx_packets=7, rx_pause_frames=3)
    window = next(
        w for w in port_windows(RowSet.gather([now]), context(ports_site, healthy.values())) if w.port == now.port
    )
    assert (window.since, window.window_s, window.reset) == (BEFORE, 7 * 86_400.0, False)
    assert (window.rx_packets, window.rx_pause_frames, window.tx_packets, window.rx_discards) == (7, 3, 0, None)
    back = replace(now, carrier_transitions=0)
    window = next(iter(port_windows(RowSet.gather([back]), context(ports_site, healthy.values()))))
    assert window.reset
    assert window.rx_packets is None
    assert port_windows(RowSet.gather([now]), context(ports_site)) == []


def test_a_window_is_as_long_as_what_lies_between_the_two_readings(
    ports_site: Site, healthy: dict[str, SwitchPort]
) -> None:
    then = BEFORE + timedelta(minutes=50)
    old = [replace(p, collected_at=then) for p in healthy.values()]
    now = replace(counted(healthy, rx_packets=7), collected_at=NOW + timedelta(minutes=5))
    (window,) = port_windows(RowSet.gather([now]), context(ports_site, old))
    assert (window.since, window.window_s) == (then, 7 * 86_400.0 - 45 * 60)
    # An earlier release kept no time of reading: both ends are then the starts of the runs.
    (window,) = port_windows(RowSet.gather([now]), context(ports_site, healthy.values()))
    assert (window.since, window.window_s) == (BEFORE, 7 * 86_400.0)
    # Rows of a run before the latest one are as old as that run.
    older = BEFORE - timedelta(days=7)
    ctx = replace(context(ports_site, healthy.values()), carried_at={(s, "switch_ports"): older for s in SWITCHES})
    (window,) = port_windows(RowSet.gather([now]), ctx)
    assert (window.since, window.window_s) == (older, 14 * 86_400.0)


def last_window(frames: int | None, reset: bool = False) -> PortWindow:
    return PortWindow("nxos-1", "Ethernet1/1", BEFORE - timedelta(days=7), 7 * 86_400.0, reset, rx_pause_frames=frames)


def test_pause_surge(judge: Judge, healthy: dict[str, SwitchPort]) -> None:
    before = list(healthy.values())
    surge = {UNIT: counted(healthy, rx_pause_frames=60_001)}
    found = only(judge(surge, previous=[*before, last_window(12_000)]))
    assert (found.rule, found.metric, found.unit) == ("port_pause_surge", "rx_pause_frames", UNIT)
    assert judge({UNIT: counted(healthy, rx_pause_frames=60_000)}, previous=[*before, last_window(12_000)]) == []
    assert judge({UNIT: counted(healthy, rx_pause_frames=9_999)}, previous=[*before, last_window(0)]) == []
    assert only(judge(surge, previous=[*before, last_window(0)])).rule == "port_pause_surge"
    for unknown in ([], [last_window(None)], [last_window(None, reset=True)]):
        assert judge(surge, previous=[*before, *unknown]) == []


def test_flaps(judge: Judge, healthy: dict[str, SwitchPort], ports_site: Site) -> None:
    before = list(healthy.values())
    assert judge({UNIT: counted(healthy, carrier_transitions=34)}, previous=before) == []  # 4.9 a day over a week
    found = only(judge({UNIT: counted(healthy, carrier_transitions=35)}, previous=before))
    assert (found.rule, found.actual) == ("port_flaps", "5.0 changes a day")
    # Two runs within minutes: a window is never scaled up to a day.
    ctx = replace(context(ports_site, before), previous_at={s: NOW - timedelta(minutes=5) for s in SWITCHES})
    rows: list[Row] = [counted(healthy, carrier_transitions=4)]
    windows = port_windows(RowSet.gather(rows), ctx)
    found_now = port_findings(RowSet.gather([*rows, *windows]), ctx)
    assert "port_flaps" not in {f.rule for f in found_now}


# Drift and port rules together --------------------------------------------------------------------------------------


def drift(port: str | None, topic: str, path: str, **values: str | None) -> ConfigDrift:
    change = "changed" if values.get("expected") and values.get("actual") else "missing"
    return ConfigDrift(
        "nxos-1",
        "golden",
        change,
        path,
        NOW,
        NOW,
        port=port,
        topic=topic,
        parents="interface Ethernet1/1",
        expected=values.get("expected"),
        actual=values.get("actual"),
        remediation=values.get("remediation"),
    )


@pytest.fixture
def config() -> SwitchConfig:
    return SwitchConfig("nxos-1", "nxos", "hostname nxos-1\n", "0" * 64)


def judged(judge: Judge, *args: object) -> list[Finding]:
    return [f for f in judge(*args) if f.rule != "golden_given"]


def test_a_drifted_line_and_its_port_are_one_finding(
    judge: Judge, healthy: dict[str, SwitchPort], config: SwitchConfig
) -> None:
    line = drift(
        "Ethernet1/1",
        "mtu",
        "interface Ethernet1/1 / mtu",
        expected="mtu 9216",
        remediation="interface Ethernet1/1\n  mtu 9216",
    )
    found = judged(judge, {UNIT: replace(healthy[UNIT], mtu_bytes=1500)}, [config, line])
    assert primary(found) == [("port_mtu", UNIT)]
    port = next(f for f in found if f.rule == "port_mtu")
    assert "config line gone: mtu 9216" in port.summary
    assert port.action == "interface Ethernet1/1\n  mtu 9216"
    assert next(f for f in found if f.rule == "config_equals_golden").explained_by == port.finding


def test_drift_of_another_topic_or_port_stands_alone(
    judge: Judge, healthy: dict[str, SwitchPort], config: SwitchConfig
) -> None:
    lines = [
        drift("Ethernet1/1", "speed", "interface Ethernet1/1 / speed", expected="speed 400000"),
        drift("Ethernet1/2", "mtu", "interface Ethernet1/2 / mtu", expected="mtu 9216"),
    ]
    found = judged(judge, {UNIT: replace(healthy[UNIT], mtu_bytes=1500)}, [config, *lines])
    assert sorted(primary(found)) == [
        ("config_equals_golden", UNIT),
        ("config_equals_golden", "nxos-1/Ethernet1/2"),
        ("port_mtu", UNIT),
    ]


def test_a_line_of_the_whole_switch_leads_its_ports(
    judge: Judge, healthy: dict[str, SwitchPort], config: SwitchConfig
) -> None:
    line = drift(None, "ecn", "policy-map type queuing RAIL-OUT / random-detect", expected="random-detect ecn")
    lost = {u: replace(p, ecn=False) for u, p in healthy.items() if u.startswith("nxos-1/")}
    found = judged(judge, lost, [config, line])
    assert primary(found) == [("config_equals_golden", "nxos-1")]
    assert len([f for f in found if f.rule == "port_ecn" and f.explained_by]) == 2


def test_rows_and_check_fit(ports_site: Site, healthy: dict[str, SwitchPort]) -> None:
    rows: list[Row] = [*healthy.values()]
    for row in [*rows, *SWITCH_CONFIG.derive(RowSet.gather(rows), context(ports_site, rows))]:
        assert type(row) in SWITCH_CONFIG.tables
        assert SWITCH_CONFIG.unit_of(row) in SWITCHES
    with pytest.raises(TypeError):
        SWITCH_CONFIG.unit_of(Row())
