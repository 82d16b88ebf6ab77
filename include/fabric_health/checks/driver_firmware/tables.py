"""Tables of the driver and firmware audit besides ``facts``: links seen from the node, and kernel events."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from fabric_health.datasets.contracts import Row, column, optional


@dataclass(frozen=True)
class Link(Row):
    TABLE: ClassVar[str] = "links"
    KEY: ClassVar[tuple[str, ...]] = ("run", "nic", "port")
    DESCRIPTION: ClassVar[str] = "One row per NIC port as its node sees it: state, rate, MTU, cumulative counters."

    node: str = column("node")
    nic: str = column("NIC unit id, e.g. `gpu-001/mlx5_3`")
    port: int = column("port number on the NIC", minimum=1, maximum=255)
    rail: int | None = optional("rail of the NIC in the site file", minimum=0)
    switch_port: str | None = optional("switch port of the cabling plan, e.g. `leaf-1/swp3`")
    netdev: str | None = optional("network device")
    admin_up: bool | None = optional("network device administratively up (flag `UP`), with or without carrier")
    link_layer: str | None = optional("`InfiniBand` or `Ethernet`")
    state: str | None = optional("logical state: `ACTIVE`, `DOWN`, `INIT`, `ARMED`, ...")
    phys_state: str | None = optional("physical state: `LINK_UP`, `DISABLED`, `POLLING`, ...")
    rate_gbps: float | None = optional("rate", unit="Gb/s", minimum=0)
    width: str | None = optional("active width, e.g. `4X`")
    active_mtu_bytes: int | None = optional("active RDMA MTU", unit="B", minimum=0)
    netdev_mtu_bytes: int | None = optional("MTU of the network device", unit="B", minimum=0)
    symbol_errors: int | None = optional("cumulative symbol errors", unit="errors", minimum=0)
    link_downed: int | None = optional("cumulative link downed", unit="events", minimum=0)
    link_error_recovery: int | None = optional("cumulative link error recoveries", unit="events", minimum=0)
    port_rcv_errors: int | None = optional("cumulative receive errors", unit="packets", minimum=0)
    port_xmit_discards: int | None = optional("cumulative transmit discards", unit="packets", minimum=0)
    tx_packets: int | None = optional("cumulative packets sent", unit="packets", minimum=0)
    rx_packets: int | None = optional("cumulative packets received", unit="packets", minimum=0)
    carrier_changes: int | None = optional("cumulative carrier changes of the network device", unit="events", minimum=0)
    collected_at: datetime | None = optional("when the counters were read, UTC")


@dataclass(frozen=True)
class KernelEvent(Row):
    TABLE: ClassVar[str] = "kernel_events"
    KEY: ClassVar[tuple[str, ...]] = ("run", "unit", "kind", "sequence")
    DESCRIPTION: ClassVar[str] = "Xid, SXid and lost-carrier lines of the kernel log within the site's time window."

    unit: str = column("unit the line is about: GPU, NIC or node")
    unit_kind: str = column("`gpu`, `nic` or `node`")
    kind: str = column("`xid`, `sxid` or `lost_carrier`")
    sequence: int = column("order within (unit, kind)", minimum=0)
    message: str = column("the line, at most 500 characters")
    code: int | None = optional("Xid or SXid number", minimum=0)
    at: datetime | None = optional("time of the line, UTC; null when the log carries none")
