"""What each of the lab's faults costs in the fleet model, and on whom."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from fabric_health.errors import LabError, UsageError
from fabric_health.lab.faults import CATALOGUE
from fabric_health.lab.fleet.costs import Costs
from fabric_health.lab.fleet.fabric import Fabric
from fabric_health.lab.fleet.model import Fleet, NoPathError
from fabric_health.lab.state import Fault, LabState
from fabric_health.lab.validation import checked_fault
from fabric_health.site import Site, load_site

SITE = Path(__file__).parents[2] / "include" / "sites" / "lab.yaml"
SINCE = datetime(2026, 11, 30, tzinfo=UTC)
# A delayed rank, and faults of elastic training and of served models, cost real runs of this machine: no part of the
# model.
OF_REAL_RUNS = {"delayed-rank", "never-resumes", "lost-checkpoints", "slow-node-check"}
OF_REAL_RUNS |= {"corrupt-shard", "flipped-bit", "wrong-model", "server-errors"}
FREE = {"nic-firmware", "link-flap", "remap-pending", "xid", "acl-line", "driver-version", "miscabled", *OF_REAL_RUNS}
UNITS = {
    "node": "gpu-003",
    "gpu": "gpu-003/gpu2",
    "nic": "gpu-003/mlx5_2",
    "switch": "leaf-2",
    "port": "leaf-2/Ethernet16",
    "rank": "localhost/rank-3",
    "job": "elastic",
    "agent": "elastic/agent-2",
    "model": "tiny-qwen3/w8a8-gptq",
}


@pytest.fixture(scope="module")
def site() -> Site:
    return load_site(SITE)


def fleet(site: Site, *faults: tuple[str, str, str | None], **options: object) -> Fleet:
    made = tuple(checked_fault(site, kind, unit, value, SINCE) for kind, unit, value in faults)
    return Fleet.of_site(site, LabState(SINCE, made), **options)  # type: ignore[arg-type]


def test_every_kind_of_fault_costs_something_or_is_known_to_be_free(site: Site) -> None:
    healthy = Costs.none(Fabric.of_site(site))
    for kind, fault in CATALOGUE.items():
        value = "Ethernet24" if kind == "miscabled" else None
        costs = fleet(site, (kind, UNITS[fault.unit_kind], value)).costs
        same = (
            np.array_equal(costs.node, healthy.node)
            and np.array_equal(costs.nic, healthy.nic)
            and not costs.down.any()
            and not costs.silent
        )
        assert same == (kind in FREE), kind


@pytest.mark.parametrize(
    ("kind", "unit", "value", "share"),
    [
        ("slow-rail", "gpu-007/mlx5_3", "18", 0.82),
        ("switch-mtu", "leaf-2/Ethernet176", "1500", 0.945),
        ("port-speed", "leaf-2/Ethernet176", "200", 0.5),
        ("pcie-degraded", "gpu-007/gpu3", "8", 0.602),
        ("port-errors", "leaf-2/Ethernet176", "0.001", 0.891),
        ("switch-pfc", "leaf-2/Ethernet176", None, 0.88),
    ],
)
def test_a_fault_of_one_nic_costs_its_rail_and_nothing_else(
    site: Site, kind: str, unit: str, value: str | None, share: float
) -> None:
    costs = fleet(site, (kind, unit, value)).costs
    expected = np.ones((16, 8))
    expected[6, 3] = share
    assert costs.nic == pytest.approx(expected, abs=0.002)
    assert (costs.node == 1).all()


def test_a_bad_leaf_costs_all_nics_on_it_and_a_bad_spine_only_what_crosses_leaves(site: Site) -> None:
    leaf = fleet(site, ("bad-leaf", "leaf-2", "20")).costs
    expected = np.ones((16, 8))
    expected[:, 2:4] = 0.8
    assert leaf.nic == pytest.approx(expected)
    spine = fleet(site, ("bad-leaf", "spine-1", "20"))
    assert (spine.costs.nic == 1).all()
    healthy = fleet(site)
    pair = spine.group(("gpu-001", "gpu-016"))
    assert spine.limit("all_gather", pair) == healthy.limit("all_gather", pair)  # a rail stays on its leaf
    faulty = Costs.none(big := Fabric.of_size(64))
    faulty = Costs.of(big, [Fault("bad-leaf", "spine-9", "20", SINCE)])
    fleets = [Fleet(big, 1, c) for c in (Costs.none(big), faulty)]
    near, far = ("gpu-001", "gpu-002"), ("gpu-001", "gpu-040")
    limits = [[f.limit("all_gather", f.group(nodes)) for nodes in (near, far)] for f in fleets]
    assert limits[1][0] == limits[0][0]
    assert limits[1][1] == pytest.approx(0.8 * limits[0][1])


def test_traffic_of_a_nic_that_is_down_shares_the_next_one(site: Site) -> None:
    down, healthy = fleet(site, ("nic-down", "gpu-012/mlx5_6", None)), fleet(site)
    everyone = down.fabric.nodes
    for rail, share in ((5, 1.0), (6, 0.5), (7, 0.5)):
        group = down.group(everyone, (rail,), alone=False)
        assert down.limit("all_reduce", group) == pytest.approx(share * healthy.limit("all_reduce", group), rel=0.03)
    together = down.group(everyone)
    assert down.limit("all_reduce", together) == pytest.approx(0.5 * healthy.limit("all_reduce", together), rel=0.03)
    with pytest.raises(NoPathError, match="gpu-012: mlx5_6 is down"):
        down.limit("all_reduce", down.group(everyone, (6,), alone=True))
    without = down.group([n for n in everyone if n != "gpu-012"])
    assert down.limit("all_reduce", without) == healthy.limit("all_reduce", without)


def test_a_node_without_any_nic_cannot_take_part(site: Site) -> None:
    cut = fleet(site, *(("nic-down", f"gpu-012/mlx5_{i}", None) for i in range(8)))
    with pytest.raises(NoPathError, match="gpu-012"):
        cut.limit("all_reduce", cut.group(cut.fabric.nodes))
    assert cut.limit("all_reduce", cut.group(("gpu-012",))) > 400


def test_a_port_fault_follows_the_cable_that_is_plugged_in(site: Site) -> None:
    costs = fleet(site, ("miscabled", "leaf-2/Ethernet128", "Ethernet136"), ("port-speed", "leaf-2/Ethernet128", "100"))
    assert np.argwhere(costs.costs.nic < 1).tolist() == [[1, 3]]


def test_a_driver_costs_what_it_is_said_to_cost(site: Site) -> None:
    planted = ("driver-version", "gpu-005", "570.148.08")
    assert (fleet(site, planted).costs.node == 1).all()
    slower = fleet(site, planted, driver_shares={"570.148.08": 0.96})
    assert slower.costs.node[4] == 0.96
    assert slower.costs.node.sum() == pytest.approx(15.96)


def test_nodes_that_do_not_answer_take_no_job(site: Site) -> None:
    silent = fleet(site, ("node-unreachable", "gpu-010", None), ("node-hanging", "gpu-011", None)).costs.silent
    assert silent == {"gpu-010": "Connection refused", "gpu-011": "Connection timed out"}


@pytest.mark.parametrize("kind", ["slow-rail", "slow-node", "bad-leaf"])
@pytest.mark.parametrize("value", ["0", "100", "-3", "much", "nan"])
def test_losses_outside_of_percent_are_refused(site: Site, kind: str, value: str) -> None:
    with pytest.raises(UsageError, match="loss in percent"):
        checked_fault(site, kind, UNITS[CATALOGUE[kind].unit_kind], value, SINCE)


def test_a_fleet_has_gpu_nodes_of_one_sku(site: Site) -> None:
    with pytest.raises(LabError, match="one SKU"):
        Fabric.of_site(site, ["leaf-1"])
    with pytest.raises(UsageError, match="no unit"):
        Fabric.of_site(site, ["gpu-999"])
