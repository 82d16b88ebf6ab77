from __future__ import annotations

from dataclasses import replace

from fabric_health.checks.driver_firmware.commands import commands, drive_name
from fabric_health.site import Node, ReachProfile, Site, Switch, Thresholds


def test_names_are_unique_and_every_command_is_bounded(recorded_node: Node, recorded_site: Site) -> None:
    asked = commands(recorded_node, recorded_site)
    assert len({c.name for c in asked}) == len(asked)
    assert all(0 < c.timeout_s <= 60 and 0 < c.max_bytes <= 16 << 20 for c in asked)
    assert all(isinstance(a, str) and a for c in asked for a in c.argv)


def test_a_node_without_gpus_nics_and_drives_is_not_asked_for_any(recorded_node: Node, recorded_site: Site) -> None:
    bare = replace(
        recorded_node,
        sku=recorded_node.sku.model_copy(update={"gpus": 0, "nics": (), "drives": (), "nfs_mounts": ()}),
    )
    names = {c.name for c in commands(bare, recorded_site)}
    assert names == {
        "uname", "os_release", "bios", "lspci", "cmdline", "iommu_groups", "modules", "journal", "dmesg",
    }  # fmt: skip


def test_fabric_manager_and_nvlink_only_where_the_sku_has_them(recorded_node: Node, recorded_site: Site) -> None:
    sku = recorded_node.sku.model_copy(update={"has_fabric_manager": False, "nvlinks_per_gpu": None})
    asked = {c.name: c for c in commands(replace(recorded_node, sku=sku), recorded_site)}
    assert "nvlink" not in asked
    assert "fabric_manager" not in asked
    assert asked["services"].argv[-1] == "nvidia-persistenced"
    assert "nvidia-fabricmanager" not in asked["services"].argv


def test_each_netdev_and_each_known_pci_address_is_asked(recorded_node: Node, recorded_site: Site) -> None:
    names = [c.name for c in commands(recorded_node, recorded_site)]
    assert [n for n in names if n.startswith("ethtool")] == [f"ethtool_{x}:ibp94s0" for x in "ikS"]
    assert [n for n in names if n.startswith("mstflint")] == ["mstflint:mlx5_0"]
    assert "smartctl:nvme0" in names


def test_kernel_log_window_comes_from_the_site(recorded_node: Node, recorded_site: Site) -> None:
    site = replace(recorded_site, thresholds=Thresholds(kernel_log_window_h=1.5))
    journal = next(c for c in commands(recorded_node, site) if c.name == "journal")
    assert "--since=-5400s" in journal.argv


def test_a_switch_is_asked_nothing(recorded_site: Site) -> None:
    switch = Switch("leaf-1", "eos", "leaf", None, "leaf-1", ReachProfile(), None)
    assert commands(switch, recorded_site) == ()


def test_drive_name() -> None:
    assert drive_name("/dev/nvme10") == "nvme10"
    assert drive_name("/dev/nvme1/") == "nvme1"
