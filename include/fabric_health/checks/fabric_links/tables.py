"""Tables of the InfiniBand check: nodes and ports of a fabric, and what each port counted between two runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from fabric_health.datasets.contracts import Row, column, optional


@dataclass(frozen=True)
class FabricNode(Row):
    TABLE: ClassVar[str] = "fabric_nodes"
    KEY: ClassVar[tuple[str, ...]] = ("run", "fabric", "guid")
    DESCRIPTION: ClassVar[str] = "Switches, channel adapters and routers that discovery of an InfiniBand fabric found."

    fabric: str = column("fabric")
    guid: str = column("node GUID, 16 hex digits")
    node: str = column("short name, unique within the fabric; the GUID where descriptions are not")
    kind: str = column("`switch`, `ca` or `router`")
    description: str = column("node description as it came, untrusted text")
    ports: int = column("ports of the node", unit="ports", minimum=0, maximum=255)
    present: bool = column("found in this run; False for one that an earlier run found and this one did not")
    last_seen: datetime | None = optional("start of the run that found it last, UTC; null where that is this run")
    lid: int | None = optional("local id, base LID of a switch or of a CA's first port", minimum=0, maximum=65535)


@dataclass(frozen=True)
class FabricPort(Row):
    TABLE: ClassVar[str] = "fabric_ports"
    KEY: ClassVar[tuple[str, ...]] = ("run", "fabric", "guid", "port")
    DESCRIPTION: ClassVar[str] = "Ports of an InfiniBand fabric: link, neighbour, expectation and cumulative counters."

    fabric: str = column("fabric")
    guid: str = column("GUID of the node that the port belongs to, 16 hex digits")
    port: int = column("port number", minimum=0, maximum=254)
    node: str = column("short name of that node")
    kind: str = column("`switch`, `ca` or `router`")
    state: str | None = optional("logical state: `Active`, `Armed`, `Initialize`, `Down`")
    phys_state: str | None = optional("physical state: `LinkUp`, `Polling`, `Disabled`, ...")
    width: int | None = optional("lanes in use", unit="lanes", minimum=1, maximum=12)
    lane_gbps: float | None = optional("speed of one lane; HDR is 53.125", unit="Gb/s", minimum=0)
    lid: int | None = optional("LID of the port", minimum=0, maximum=65535)
    peer_guid: str | None = optional("GUID of the neighbour node, 16 hex digits")
    peer_port: int | None = optional("port number there", minimum=0, maximum=254)
    peer: str | None = optional("short name of the neighbour")
    link: str | None = optional("`host` or `trunk` (between switches)")
    expected_width: int | None = optional("lanes it should use", unit="lanes", minimum=1, maximum=12)
    expected_lane_gbps: float | None = optional("speed that a lane should have", unit="Gb/s", minimum=0)
    symbol_error: int | None = optional("cumulative minor link errors; stops at 65,535", unit="errors", minimum=0)
    link_error_recovery: int | None = optional("cumulative retrainings; stops at 255", unit="events", minimum=0)
    link_downed: int | None = optional("cumulative link losses; stops at 255", unit="events", minimum=0)
    rcv_errors: int | None = optional("cumulative packets received with an error", unit="packets", minimum=0)
    rcv_remote_physical_errors: int | None = optional(
        "cumulative packets marked bad upstream", unit="packets", minimum=0
    )
    rcv_switch_relay_errors: int | None = optional(
        "cumulative packets a switch could not relay", unit="packets", minimum=0
    )
    xmit_discards: int | None = optional("cumulative packets dropped on sending", unit="packets", minimum=0)
    xmit_constraint_errors: int | None = optional("cumulative packets refused on sending", unit="packets", minimum=0)
    rcv_constraint_errors: int | None = optional("cumulative packets refused on receiving", unit="packets", minimum=0)
    local_link_integrity_errors: int | None = optional("cumulative; stops at 15", unit="events", minimum=0)
    excessive_buffer_overrun_errors: int | None = optional("cumulative; stops at 15", unit="events", minimum=0)
    vl15_dropped: int | None = optional("cumulative management packets dropped", unit="packets", minimum=0)
    xmit_wait: int | None = optional("cumulative ticks with data and no credit to send it", unit="ticks", minimum=0)
    xmit_data_bytes: int | None = optional("cumulative bytes sent (the counter's words x 4)", unit="B", minimum=0)
    rcv_data_bytes: int | None = optional("cumulative bytes received (the counter's words x 4)", unit="B", minimum=0)
    xmit_packets: int | None = optional("cumulative packets sent", unit="packets", minimum=0)
    rcv_packets: int | None = optional("cumulative packets received", unit="packets", minimum=0)
    collected_at: datetime | None = optional("when the counters were read, UTC")


@dataclass(frozen=True)
class FabricWindow(Row):
    TABLE: ClassVar[str] = "fabric_windows"
    KEY: ClassVar[tuple[str, ...]] = ("run", "fabric", "guid", "port")
    DESCRIPTION: ClassVar[str] = "What each port counted since the previous run; nothing where a counter went back."

    fabric: str = column("fabric")
    guid: str = column("GUID of the node that the port belongs to, 16 hex digits")
    port: int = column("port number", minimum=0, maximum=254)
    node: str = column("short name of that node")
    since: datetime = column("when the counters that the window begins with were read, UTC")
    window_s: float = column("length of the window", unit="s", minimum=0)
    reset: bool = column("a counter is lower than before: cleared or restarted, so nothing is known of the window")
    stuck: str | None = optional("counters at their end, which count no further, comma separated")
    symbol_error: int | None = optional("minor link errors in the window", unit="errors", minimum=0)
    link_error_recovery: int | None = optional("retrainings in the window", unit="events", minimum=0)
    link_downed: int | None = optional("link losses in the window", unit="events", minimum=0)
    rcv_errors: int | None = optional("packets received with an error in the window", unit="packets", minimum=0)
    rcv_remote_physical_errors: int | None = optional("packets marked bad upstream, in it", unit="packets", minimum=0)
    rcv_switch_relay_errors: int | None = optional("packets not relayed in the window", unit="packets", minimum=0)
    xmit_discards: int | None = optional("packets dropped on sending in the window", unit="packets", minimum=0)
    xmit_constraint_errors: int | None = optional("packets refused on sending in the window", unit="packets", minimum=0)
    rcv_constraint_errors: int | None = optional(
        "packets refused on receiving in the window", unit="packets", minimum=0
    )
    local_link_integrity_errors: int | None = optional("events in the window", unit="events", minimum=0)
    excessive_buffer_overrun_errors: int | None = optional("events in the window", unit="events", minimum=0)
    vl15_dropped: int | None = optional("management packets dropped in the window", unit="packets", minimum=0)
    xmit_wait: int | None = optional("ticks without credit in the window", unit="ticks", minimum=0)
    xmit_data_bytes: int | None = optional("bytes sent in the window", unit="B", minimum=0)
    rcv_data_bytes: int | None = optional("bytes received in the window", unit="B", minimum=0)
    xmit_packets: int | None = optional("packets sent in the window", unit="packets", minimum=0)
    rcv_packets: int | None = optional("packets received in the window", unit="packets", minimum=0)
