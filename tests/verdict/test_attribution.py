"""Attribution: the change that separates what moved comes first, with what speaks against it."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_health.changes import VOLATILE
from fabric_health.verdict.attribution import Attribution, Candidate, Explains, rank
from fabric_health.verdict.attribution_words import candidate_sentence, sentence, separating_test
from fabric_health.verdict.recorded import NO_CAUSE, RecordedChange
from fabric_health.verdict.separation import Chance, fisher, log_ratio

NODES = [f"gpu-{i:03}" for i in range(1, 17)]


def changed(units: Sequence[str], attribute: str = "driver_version", before: str = "1", after: str = "2"):
    return [RecordedChange(u, attribute, before, after) for u in units]


def slow(units: Sequence[str], loss: float = 0.09) -> dict[str, float]:
    return dict.fromkeys(units, loss)


def others(*units: str) -> list[str]:
    return [n for n in NODES if n not in units]


def named(found: Attribution) -> str:
    assert found.first is not None, sentence(found)
    return found.first.name


# --- the statistics on known answers


def test_fisher_gives_the_tea_tasting_answers() -> None:
    # R. A. Fisher, The Design of Experiments (1935), chapter 2: 8 cups, 4 and 4: all right 1/70, three right 17/70.
    assert fisher(4, 0, 4, 4) == pytest.approx(1 / 70)
    assert fisher(3, 1, 4, 4) == pytest.approx(17 / 70)


def test_log_ratio_is_half_of_the_g_statistic() -> None:
    # 2 x 2 table (10, 2; 3, 15): scipy's power divergence with lambda 0 is G, in agreement with Wilks.
    from scipy.stats import chi2_contingency

    g = chi2_contingency([[10, 2], [3, 15]], correction=False, lambda_="log-likelihood").statistic
    assert float(log_ratio(10, 2, 13, 17)) == pytest.approx(g / 2)
    assert float(log_ratio(3, 15, 13, 17)) == 0.0  # units without it moved more often: nothing is said for it


def test_chance_of_one_split_is_fishers_p() -> None:
    split = frozenset(range(4))
    assert Chance([split], 16, 4).of(float(log_ratio(4, 0, 4, 12))) == pytest.approx(1 / math.comb(16, 4))
    assert Chance([split], 16, 4).of(float(log_ratio(3, 1, 4, 12))) == pytest.approx(fisher(3, 1, 4, 12))


def test_many_recorded_changes_make_a_fit_by_chance_likelier() -> None:
    one_each = [frozenset([i]) for i in range(16)]
    assert Chance(one_each[:1], 16, 1).of(float(log_ratio(1, 0, 1, 15))) == pytest.approx(1 / 16)
    assert Chance(one_each, 16, 1).of(float(log_ratio(1, 0, 1, 15))) == 1.0


# --- what it names


def test_the_change_of_the_units_that_moved_is_named_without_counter_evidence() -> None:
    noise = changed(NODES[6:9], "ofed_version") + changed(NODES[2:4], "bios_version")
    found = rank(changed(NODES[:4]) + noise, slow(NODES[:4]), NODES[4:])
    assert found.outcome is Explains.NAMED
    assert named(found) == "driver_version 1 -> 2"
    first = found.candidates[0]
    assert (first.moved_with, first.moved_without, first.unmoved_with) == (tuple(NODES[:4]), (), ())
    assert (first.unmoved_without, first.sensitivity, first.specificity, first.strong) == (12, 1.0, 1.0, True)
    assert "all 4 units with it moved, none of the 12 without it did" in sentence(found)
    assert "ofed_version" not in {c.group.attribute for c in found.candidates}  # only on units that did not move


def test_a_driver_update_is_one_change_with_what_comes_along() -> None:
    along = changed(NODES[:4], "cuda_driver_version") + changed(NODES[:4], "kernel_module_version")
    along += [RecordedChange(f"{n}/gpu{i}", "gsp_firmware_version", "1", "2") for n in NODES[:4] for i in range(8)]
    found = rank(changed(NODES[:4]) + along, slow(NODES[:4]), NODES[4:])
    assert found.outcome is Explains.NAMED
    assert found.candidates[0].group.along == ("cuda_driver_version", "gsp_firmware_version", "kernel_module_version")
    # By itself, on other units, it is a change as any other.
    alone = rank(changed(NODES[:3]) + along, slow(NODES[:4]), NODES[4:])
    assert named(alone).startswith("cuda_driver_version")


def test_counter_evidence_is_shown() -> None:
    found = rank(changed(NODES[:4]), slow(NODES[1:5]), others(*NODES[1:5]))
    first = found.candidates[0]
    assert (first.unmoved_with, first.moved_without) == ((NODES[0],), (NODES[4],))
    said = sentence(found)
    assert f"{NODES[0]} has it and did not move" in said
    assert f"{NODES[4]} moved without it" in said
    assert f"No recorded change separates {NODES[4]} from what stayed" in said


def test_a_fleet_wide_change_argues_weakly() -> None:
    fleet = changed(NODES, "kernel_release")
    found = rank(fleet, slow(NODES[:2]), NODES[2:])
    assert (found.outcome, found.first, found.candidates[0].score) == (Explains.NONE, None, 0.0)
    assert "kernel_release 1 -> 2 (2 moved, 14 not)" in sentence(found)
    assert "separates nothing: 2 of 16 units" in candidate_sentence(found.candidates[0])
    assert named(rank(fleet + changed(NODES[:2]), slow(NODES[:2]), NODES[2:])) == "driver_version 1 -> 2"


def test_nothing_recorded_says_so() -> None:
    found = rank([], slow(NODES[:1]), NODES[1:])
    assert found.outcome is Explains.NONE
    assert sentence(found) == f"No recorded change separates them: nothing that we record changed on {NODES[0]}."


def test_without_units_that_stayed_nothing_can_be_separated() -> None:
    found = rank(changed(NODES), slow(NODES), [])
    assert (found.outcome, found.first) == (Explains.NO_CONTROL, None)
    assert "no change can be separated" in sentence(found)
    assert rank([], {}, NODES).outcome is Explains.NOTHING_MOVED


def test_two_changes_on_the_same_units_are_inseparable_with_the_test_that_separates_them() -> None:
    firmware = [RecordedChange(f"{n}/mlx5_{i}", "fw_version", "a", "b") for n in NODES[:4] for i in range(8)]
    found = rank(changed(NODES[:4]) + firmware, slow(NODES[:4]), NODES[4:])
    assert found.outcome is Explains.INSEPARABLE
    assert {c.name for c in (found.candidates[0], *found.inseparable)} == {"driver_version 1 -> 2", "fw_version a -> b"}
    test = separating_test(found) or ""
    assert "undo driver_version 1 -> 2 on gpu-001, gpu-002, keep fw_version a -> b there" in test
    assert "both on gpu-003, gpu-004" in test
    assert "cannot be told apart" in sentence(found)


def test_a_change_in_one_place_is_undone_as_a_whole_and_one_in_many_in_half() -> None:
    port = RecordedChange("leaf-1", "os_version", "1", "2")
    reach = {"leaf-1": NODES[:4]}
    found = rank([port, *changed(NODES[:4], "zeta")], slow(NODES[:4]), NODES[4:], reach)
    assert "undo zeta 1 -> 2 on gpu-001, gpu-002, keep os_version" in (separating_test(found) or "")
    both = rank([port, replace(port, attribute="model")], slow(NODES[:4]), NODES[4:], reach)
    assert "on leaf-1, keep" in (separating_test(both) or "")
    assert separating_test(rank([port], slow(NODES[:4]), NODES[4:], reach)) is None


def test_nearly_the_same_units_say_by_how_much() -> None:
    found = rank(changed(NODES[:4]) + changed(NODES[:5], "kernel_release"), slow(NODES[:4]), NODES[4:])
    assert found.outcome is Explains.NAMED
    assert [c.group.attribute for c in found.close] == ["kernel_release"]
    assert f"kernel_release 1 -> 2 (differs on {NODES[4]} only)" in sentence(found)
    far = rank(changed(NODES[:4]) + changed(NODES[:12], "kernel_release"), slow(NODES[:4]), NODES[4:])
    assert far.close == ()


def test_two_causes_on_different_units_are_both_found() -> None:
    port = RecordedChange.of_config("leaf-2", "interface swp3 > mtu 9216", "mtu 9216", None, "swp3")
    moved = [*NODES[:4], NODES[8]]
    found = rank([*changed(NODES[:4]), port], slow(moved), others(*moved), {"leaf-2/swp3": [NODES[8]]})
    assert named(found) == "driver_version 1 -> 2"
    assert found.rest is not None
    assert named(found.rest) == "lost config line `interface <port> > mtu 9216`"
    assert "on leaf-2/swp3 separates them" in sentence(found)


def test_a_larger_loss_counts_for_more() -> None:
    changes = changed(NODES[:2], "driver_version") + changed(NODES[2:4], "bios_version")
    losses = {NODES[0]: 0.2, NODES[1]: 0.2, NODES[2]: 0.03, NODES[3]: 0.03}
    found = rank(changes, losses, NODES[4:])
    assert [c.group.attribute for c in found.candidates] == ["driver_version", "bios_version"]
    assert found.candidates[0].loss_share == pytest.approx(0.4 / 0.46)
    assert found.candidates[0].p_value == found.candidates[1].p_value


# --- what a change reaches


def test_a_change_on_a_part_is_of_its_node_and_one_on_a_node_of_all_its_parts() -> None:
    nic = RecordedChange("gpu-003/mlx5_2", "fw_version", "a", "b")
    assert rank([nic], slow(["gpu-003"]), others("gpu-003")).outcome is Explains.NAMED
    parts = [f"{n}/mlx5_{i}" for n in NODES[:4] for i in range(2)]
    found = rank(changed([NODES[0]]), slow(parts[:2]), parts[2:])
    assert found.candidates[0].moved_with == tuple(parts[:2])
    sibling = rank([RecordedChange("gpu-001/mlx5_1", "fw_version", "a", "b")], slow(parts[:1]), parts[1:])
    assert sibling.outcome is Explains.NONE


def test_a_switch_change_reaches_what_is_behind_it() -> None:
    reach = {"leaf-1": NODES[:8], "leaf-1/swp1": [NODES[0]]}
    leaf = RecordedChange("leaf-1", "os_version", "1", "2")
    assert rank([leaf], slow(NODES[:8]), NODES[8:], reach).candidates[0].moved_with == tuple(NODES[:8])
    port = RecordedChange("leaf-1/swp1", "mtu", "1", "2")
    assert rank([port], slow(NODES[:1]), NODES[1:], reach).candidates[0].moved_with == (NODES[0],)
    # A port that nobody planned may carry anything of its switch.
    unplanned = RecordedChange("leaf-1/swp60", "mtu", "1", "2")
    assert rank([unplanned], slow(NODES[:8]), NODES[8:], reach).outcome is Explains.NAMED


def test_units_that_could_not_be_judged_are_neither() -> None:
    found = rank(changed(NODES[:6]), slow(NODES[:2]), NODES[6:])
    assert found.candidates[0].unmoved_with == ()
    assert named(found) == "driver_version 1 -> 2"


# --- equal and unequal changes


def test_the_same_line_lost_on_several_ports_is_one_change() -> None:
    lost = [
        RecordedChange.of_config("leaf-1", f"interface Ethernet{i} > mtu", "9216", None, f"Ethernet{i}")
        for i in (1, 12)
    ]
    assert {c.attribute for c in lost} == {"interface <port> > mtu"}
    found = rank(lost, slow(NODES[:2]), NODES[2:], {"leaf-1/Ethernet1": NODES[:1], "leaf-1/Ethernet12": NODES[1:2]})
    assert found.candidates[0].changed_units == ("leaf-1/Ethernet1", "leaf-1/Ethernet12")


def test_a_port_name_is_not_taken_out_of_a_longer_one() -> None:
    c = RecordedChange.of_config("leaf-1", "Ethernet1 Ethernet12 xEthernet1", None, "Ethernet1", "Ethernet1")
    assert (c.attribute, c.after) == ("<port> Ethernet12 xEthernet1", "<port>")


@pytest.mark.parametrize(
    ("port", "path", "attribute"),
    [
        ("Ethernet32", "/PORT/Ethernet32/mtu", "/PORT/<port>/mtu"),
        ("Ethernet3", "/PORT/Ethernet32/mtu", "/PORT/Ethernet32/mtu"),
        ("Ethernet1/1", "/interface/Ethernet1~112/mtu", "/interface/Ethernet1~112/mtu"),
        ("Ethernet1/1", "/interface/Ethernet1~11/mtu", "/interface/<port>/mtu"),
        ("Eth1/3", "interface ethernet 1/3 / mtu", "interface <port> / mtu"),
        ("Eth1/3", "interface ethernet 1/31 / mtu", "interface ethernet 1/31 / mtu"),
    ],
)
def test_a_port_name_is_found_as_a_step_of_a_pointer_and_written_out(port: str, path: str, attribute: str) -> None:
    assert RecordedChange.of_config("leaf-2", path, "9216", "1500", port).attribute == attribute


def test_units_that_came_to_one_version_from_several_have_a_change_in_common() -> None:
    mixed = changed(NODES[:2], "fw_version", "a", "c") + changed(NODES[2:4], "fw_version", "b", "c")
    found = rank(mixed, slow(NODES[:4]), NODES[4:])
    assert [c.name for c in found.candidates] == ["fw_version -> c"]
    serials = [RecordedChange(n, "cable_serial", f"o{n}", f"n{n}") for n in NODES[:3]]
    assert named(rank(serials, slow(NODES[:3]), NODES[3:])) == "cable_serial changed"
    # But not where the exact change says it better.
    found = rank(changed(NODES[:4]) + changed(NODES[4:9], before="0"), slow(NODES[:4]), NODES[4:])
    assert named(found) == "driver_version 1 -> 2"


@pytest.mark.parametrize("attribute", sorted(NO_CAUSE))
def test_what_moves_by_itself_is_no_candidate(attribute: str) -> None:
    assert rank(changed(NODES[:2], attribute), slow(NODES[:2]), NODES[2:]).candidates == ()


def test_no_cause_holds_all_that_is_volatile_and_no_serial() -> None:
    assert VOLATILE < NO_CAUSE
    assert not {"serial", "cable_serial", "fw_version", "nvlinks_active", "pcie_width"} & NO_CAUSE


def test_a_replaced_part_is_a_candidate() -> None:
    new = changed([f"{NODES[0]}/gpu3"], "serial", "s1", "s2") + changed([f"{NODES[0]}/gpu3"], "uuid", "u1", "u2")
    found = rank(new, slow(NODES[:1]), NODES[1:])
    assert (named(found), found.candidates[0].group.along) == ("serial s1 -> s2", ("uuid",))


def test_unfit_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="both moved and unmoved"):
        rank([], slow(NODES[:1]), NODES)
    for loss in (0.0, -0.1, math.nan, math.inf):
        with pytest.raises(ValueError, match="positive, finite loss"):
            rank([], {NODES[0]: loss}, NODES[1:])


# --- properties

ATTRIBUTES = ("a", "b", "c", "driver_version", "kernel_module_version", "serial")
CHANGES = st.lists(
    st.builds(
        RecordedChange,
        unit=st.sampled_from([*NODES, *(f"{n}/mlx5_0" for n in NODES), "leaf-1", "leaf-1/swp1"]),
        attribute=st.sampled_from(ATTRIBUTES),
        before=st.sampled_from(["0", "1", None]),
        after=st.sampled_from(["1", "2", None]),
    ),
    max_size=40,
)
MOVED = st.dictionaries(st.sampled_from(NODES), st.floats(0.01, 0.5), min_size=1, max_size=8)
REACH = {"leaf-1": frozenset(NODES[:8]), "leaf-1/swp1": frozenset(NODES[:1])}


def unmoved(moved: dict[str, float]) -> list[str]:
    return [n for n in NODES if n not in moved]


def of(found: Attribution, name: str) -> Candidate | None:
    return next((c for c in found.candidates if c.name == name), None)


@given(CHANGES, MOVED, st.randoms(use_true_random=False))
def test_the_order_of_changes_and_units_does_not_matter(
    changes: list[RecordedChange], moved: dict[str, float], order: random.Random
) -> None:
    shuffled, units = list(changes), unmoved(moved)
    order.shuffle(shuffled)
    order.shuffle(units)
    again = dict(order.sample(sorted(moved.items()), len(moved)))
    one, other = rank(changes, moved, unmoved(moved), REACH), rank(shuffled, again, units, REACH)
    assert [(c.name, c.changed_units, round(c.score, 9)) for c in one.candidates] == [
        (c.name, c.changed_units, round(c.score, 9)) for c in other.candidates
    ]
    assert sentence(one) == sentence(other)


@given(CHANGES, MOVED)
def test_every_candidate_accounts_for_every_judged_unit(changes: list[RecordedChange], moved: dict[str, float]) -> None:
    found = rank(changes, moved, unmoved(moved), REACH)
    for c in found.candidates:
        assert c.moved_with
        assert c.group.attribute not in NO_CAUSE
        assert {*c.moved_with, *c.moved_without} == set(moved)
        assert len(c.unmoved_with) + c.unmoved_without == len(unmoved(moved))
        assert c.score >= 0
        assert 0 <= c.p_value <= 1
        assert 0 <= c.chance <= 1
        assert candidate_sentence(c)
    assert [c.score for c in found.candidates] == pytest.approx(
        sorted((c.score for c in found.candidates), reverse=True)
    )
    assert sentence(found).endswith(".")


@given(CHANGES, MOVED, st.data())
def test_a_change_more_on_a_unit_that_did_not_move_lifts_no_candidate(
    changes: list[RecordedChange], moved: dict[str, float], data: st.DataObject
) -> None:
    more = [
        RecordedChange(data.draw(st.sampled_from(unmoved(moved))), data.draw(st.sampled_from(ATTRIBUTES)), "1", "2")
        for _ in range(data.draw(st.integers(1, 3)))
    ]
    before = {c.name: c for c in rank(changes, moved, unmoved(moved), REACH).candidates}
    for c in rank([*changes, *more], moved, unmoved(moved), REACH).candidates:
        # A wider group falls apart into its members when it no longer says more than they do.
        earlier = before.get(c.name)
        if earlier is not None:
            assert c.score <= earlier.score + 1e-9
        else:
            assert c.score <= max(b.score for b in before.values()) + 1e-9


@given(
    st.sets(st.sampled_from(NODES), min_size=1, max_size=8),
    st.sets(st.sampled_from(NODES), max_size=8),
    st.data(),
)
def test_more_separation_is_a_higher_score(has: set[str], moved: set[str], data: st.DataObject) -> None:
    moved = moved or {NODES[0]}
    losses = {u: data.draw(st.floats(0.02, 0.4)) for u in sorted(moved)}

    def score(units: set[str]) -> float:
        found = of(rank(changed(sorted(units)), losses, unmoved(losses)), "driver_version 1 -> 2")
        return found.score if found else 0.0

    base = score(has)
    for u in NODES:
        better = has | {u} if u in moved else has - {u}
        if better != has:
            assert score(better) >= base - 1e-9
    assert score(set(moved)) >= base - 1e-9


@given(MOVED)
def test_a_perfect_separation_is_never_beaten(moved: dict[str, float]) -> None:
    noise = changed(NODES[::2], "a") + changed(NODES[1:9], "b") + changed(NODES, "c")
    found = rank([*noise, *changed(sorted(moved), "zz")], moved, unmoved(moved))
    first = found.candidates[0]
    assert {*first.moved_with, *first.unmoved_with} == set(moved)


def test_every_fact_that_only_counts_or_moves_by_itself_is_known() -> None:
    """All attributes of GPUs and drives are looked through by name: a new counter has to be placed."""
    from fabric_health.checks.driver_firmware.parsers import cells
    from fabric_health.checks.driver_firmware.parsers.nvidia_smi import GPU_ATTRIBUTES
    from fabric_health.checks.driver_firmware.parsers.storage import all_cells

    counting = ("correctable", "uncorrectable", "_errors", "temperature", "percentage", "throttle", "spare", "_pending")
    steady = {"available_spare_threshold", "remap_pending"}  # a limit, and a state that a reset ends
    named = {a for a in (*GPU_ATTRIBUTES, *all_cells(cells.error("x"))) if any(c in a for c in counting)}
    assert named - steady <= NO_CAUSE
