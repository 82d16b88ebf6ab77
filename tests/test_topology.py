"""Which units are behind a NIC, a port, a leaf, a spine."""

from __future__ import annotations

from pathlib import Path

from fabric_health.site import load_site
from fabric_health.topology import reach_of

LAB = load_site(Path(__file__).parents[1] / "include" / "sites" / "lab.yaml")
REACH = reach_of(LAB)
ALL_RAILS = {f"rail-{i}" for i in range(8)}


def rails(unit: str) -> set[str]:
    return {u for u in REACH[unit] if u.startswith("rail-")}


def nodes(unit: str) -> set[str]:
    return {u for u in REACH[unit] if u.startswith("gpu-") and "/" not in u}


def test_a_nic_reaches_itself_its_node_and_its_rail() -> None:
    assert REACH["gpu-003/mlx5_2"] == {"gpu-003/mlx5_2", "gpu-003", "rail-2"}


def test_a_port_reaches_the_nic_at_its_cable() -> None:
    cable = next(c for c in LAB.cables if (c.peer, c.peer_port) == ("gpu-003", "mlx5_2"))
    assert REACH[f"{cable.switch}/{cable.port}"] == REACH["gpu-003/mlx5_2"]


def test_a_leaf_reaches_the_nics_on_it_and_not_those_on_others() -> None:
    assert rails("leaf-2") == {"rail-2", "rail-3"}
    assert len(nodes("leaf-2")) == 16
    assert "gpu-001/mlx5_2" in REACH["leaf-2"]
    assert "gpu-001/mlx5_0" not in REACH["leaf-2"]


def test_a_spine_reaches_everything_and_an_uplink_what_its_leaf_carries() -> None:
    assert (rails("spine-1"), len(nodes("spine-1"))) == (ALL_RAILS, 16)
    up = next(c for c in LAB.cables if {c.switch, c.peer} == {"leaf-2", "spine-1"})
    for end in (f"{up.switch}/{up.port}", f"{up.peer}/{up.peer_port}"):
        assert REACH[end] == REACH["leaf-2"]
