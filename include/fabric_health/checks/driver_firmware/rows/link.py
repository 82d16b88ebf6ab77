"""The link of a NIC as its node sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from fabric_health.checks.driver_firmware.commands import IB_COUNTERS
from fabric_health.checks.driver_firmware.parsers.netdev import MAX_COUNTER, Netdev
from fabric_health.checks.driver_firmware.rows.rdma_answers import Answers
from fabric_health.checks.driver_firmware.tables import Link
from fabric_health.site import Nic, Node, Site

T = TypeVar("T")


def link_row(node: Node, nic: Nic, site: Site, answers: Answers) -> Link:
    """Return the link; what no tool gave is null, a counter that is not there included."""
    ports = [device.port for device, _ in answers.views(nic.name)]
    name = nic.netdev or _first(p.netdev for p in ports)
    cable = site.cable_of_nic(node.name, nic.name)
    layer = _first(p.link_layer for p in ports)
    network = answers.links.get(name or "")
    counters = _infiniband(nic, answers.sysfs)
    if (layer or node.sku.link_layer) == "Ethernet":
        counters = _ethernet(counters, network, answers.statistics.get(name or ""))
    return Link(
        node=node.name,
        nic=node.nic_unit(nic.name),
        port=1,
        rail=nic.rail,
        switch_port=f"{cable.switch}/{cable.port}" if cable else None,
        netdev=name,
        admin_up=network.admin_up if network else None,
        link_layer=layer,
        state=_first(p.state for p in ports),
        phys_state=_first(p.phys_state for p in ports),
        rate_gbps=_first(p.rate_gbps for p in ports),
        width=_first(p.width for p in ports),
        active_mtu_bytes=_first(p.active_mtu_bytes for p in ports),
        netdev_mtu_bytes=network.mtu_bytes if network else None,
        collected_at=answers.counted_at,
        carrier_changes=_carrier_changes(name, network, answers.sysfs),
        **counters,
    )


def _first(values: Iterable[T | None]) -> T | None:
    return next((v for v in values if v is not None), None)


def _infiniband(nic: Nic, sysfs: Mapping[str, str]) -> dict[str, int | None]:
    """Return the port's counters as the HCA keeps them."""
    base = f"/sys/class/infiniband/{nic.name}/ports/1/counters"
    found = {name: _integer(sysfs.get(f"{base}/{name}")) for name in IB_COUNTERS}
    return {
        "symbol_errors": found["symbol_error"],
        "link_downed": found["link_downed"],
        "link_error_recovery": found["link_error_recovery"],
        "port_rcv_errors": found["port_rcv_errors"],
        "port_xmit_discards": found["port_xmit_discards"],
        "tx_packets": found["port_xmit_packets"],
        "rx_packets": found["port_rcv_packets"],
    }


def _ethernet(
    ib: Mapping[str, int | None], network: Netdev | None, statistics: Mapping[str, int] | None
) -> dict[str, int | None]:
    """Return counters of an Ethernet port: the physical port's, which see RDMA and TCP traffic alike.

    The HCA's own counters see RDMA only. Where ethtool answered without a counter (the set depends on the firmware)
    the next best source is taken; where it did not answer at all nothing is, lest two sources meet in one delta.
    """
    if not statistics:
        return dict.fromkeys(ib) | {"link_error_recovery": ib["link_error_recovery"]}
    symbols = _first((statistics.get("rx_symbol_err_phy"), statistics.get("rx_pcs_symbol_err_phy")))
    return {
        "symbol_errors": _first((symbols, ib["symbol_errors"])),
        "link_downed": _first((statistics.get("link_down_events_phy"), ib["link_downed"])),
        "link_error_recovery": ib["link_error_recovery"],
        "port_rcv_errors": network.rx_errors if network else None,
        "port_xmit_discards": _first((statistics.get("tx_discards_phy"), ib["port_xmit_discards"])),
        "tx_packets": _first((statistics.get("tx_packets_phy"), network.tx_packets if network else None)),
        "rx_packets": _first((statistics.get("rx_packets_phy"), network.rx_packets if network else None)),
    }


def _carrier_changes(name: str | None, network: Netdev | None, sysfs: Mapping[str, str]) -> int | None:
    by_sysfs = _integer(sysfs.get(f"/sys/class/net/{name}/carrier_changes"))
    return by_sysfs if by_sysfs is not None else network.carrier_changes if network else None


def _integer(text: str | None) -> int | None:
    """Return a counter, None for ``N/A (no PMA)`` and anything else that is not one."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 19:
        return None
    number = int(text)
    return number if number < MAX_COUNTER else None
