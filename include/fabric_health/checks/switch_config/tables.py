"""Tables of the switch config check: normalised configs, drift, ports as the switch sees them, counter windows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from fabric_health.datasets.contracts import Row, column, optional


@dataclass(frozen=True)
class SwitchConfig(Row):
    TABLE: ClassVar[str] = "switch_configs"
    KEY: ClassVar[tuple[str, ...]] = ("run", "switch")
    DESCRIPTION: ClassVar[str] = "Running config of a switch with volatile lines dropped and secrets masked."

    switch: str = column("switch")
    platform: str = column("`cumulus`, `sonic`, `onyx`, `eos` or `nxos`")
    config: str = column("normalised running config: text for CLI platforms, canonical JSON for Cumulus and SONiC")
    config_sha256: str = column("SHA-256 of `config`")
    os_version: str | None = optional("version of the network OS as the switch reports it")


@dataclass(frozen=True)
class ConfigDrift(Row):
    TABLE: ClassVar[str] = "config_drift"
    KEY: ClassVar[tuple[str, ...]] = ("run", "switch", "against", "change", "path")
    DESCRIPTION: ClassVar[str] = "Differences of a running config to its golden config and to the previous run."

    switch: str = column("switch")
    against: str = column("`golden` or `previous`")
    change: str = column("`missing`, `extra` or `changed`, seen from the reference")
    path: str = column("section path and line, or JSON path: names the difference, stable between runs")
    first_seen: datetime = column("start of the first run of the unbroken series that shows it, UTC")
    last_seen: datetime = column("start of the run that last showed it, UTC")
    port: str | None = optional("port the difference is about, where it is about one")
    topic: str | None = optional("`mtu`, `speed`, `fec`, `pfc`, `ecn`, `vlan`, `admin`, `acl`, ... or null")
    parents: str | None = optional("enclosing section headers, one per line")
    expected: str | None = optional("line or value of the reference")
    actual: str | None = optional("line or value that runs")
    remediation: str | None = optional("commands that restore the reference, one per line, where known")


@dataclass(frozen=True)
class SwitchPort(Row):
    TABLE: ClassVar[str] = "switch_ports"
    KEY: ClassVar[tuple[str, ...]] = ("run", "switch", "port")
    DESCRIPTION: ClassVar[str] = "One row per port as the switch sees it: state, speed, MTU, QoS, neighbour, counters."

    switch: str = column("switch")
    port: str = column("port in the platform's own spelling, as in the cabling plan")
    admin_up: bool | None = optional("administratively up")
    oper_up: bool | None = optional("operationally up")
    speed_gbps: float | None = optional("speed", unit="Gb/s", minimum=0)
    mtu_bytes: int | None = optional("MTU", unit="B", minimum=0)
    fec: str | None = optional("`rs`, `fc` or `none`")
    pfc_priorities: str | None = optional("priorities with PFC on, ascending, comma separated; empty text: none")
    ecn: bool | None = optional("ECN marking on the lossless queue")
    vlan: int | None = optional("untagged or access VLAN", minimum=1, maximum=4094)
    description: str | None = optional("port description, untrusted text")
    neighbor: str | None = optional("LLDP neighbour: system name, lower case without domain")
    neighbor_port: str | None = optional("LLDP neighbour's port")
    rx_packets: int | None = optional("cumulative packets received", unit="packets", minimum=0)
    tx_packets: int | None = optional("cumulative packets sent", unit="packets", minimum=0)
    rx_errors: int | None = optional("cumulative receive errors", unit="packets", minimum=0)
    tx_errors: int | None = optional("cumulative transmit errors", unit="packets", minimum=0)
    rx_discards: int | None = optional("cumulative receive discards", unit="packets", minimum=0)
    tx_discards: int | None = optional("cumulative transmit discards", unit="packets", minimum=0)
    rx_pause_frames: int | None = optional("cumulative PFC frames received, all priorities", unit="frames", minimum=0)
    tx_pause_frames: int | None = optional("cumulative PFC frames sent, all priorities", unit="frames", minimum=0)
    carrier_transitions: int | None = optional("cumulative link state changes", unit="events", minimum=0)
    collected_at: datetime | None = optional("when the counters were read, UTC")


@dataclass(frozen=True)
class PortWindow(Row):
    TABLE: ClassVar[str] = "port_windows"
    KEY: ClassVar[tuple[str, ...]] = ("run", "switch", "port")
    DESCRIPTION: ClassVar[str] = "What each port counted since the previous run; nothing where a counter went back."

    switch: str = column("switch")
    port: str = column("port in the platform's own spelling, as in the cabling plan")
    since: datetime = column("when the counters that the window begins with were read, UTC")
    window_s: float = column("length of the window", unit="s", minimum=0)
    reset: bool = column("a counter is lower than before: cleared or restarted, so nothing is known of the window")
    rx_packets: int | None = optional("packets received in the window", unit="packets", minimum=0)
    tx_packets: int | None = optional("packets sent in the window", unit="packets", minimum=0)
    rx_errors: int | None = optional("receive errors in the window", unit="packets", minimum=0)
    tx_errors: int | None = optional("transmit errors in the window", unit="packets", minimum=0)
    rx_discards: int | None = optional("receive discards in the window", unit="packets", minimum=0)
    tx_discards: int | None = optional("transmit discards in the window", unit="packets", minimum=0)
    rx_pause_frames: int | None = optional("PFC frames received in the window", unit="frames", minimum=0)
    tx_pause_frames: int | None = optional("PFC frames sent in the window", unit="frames", minimum=0)
    carrier_transitions: int | None = optional("link state changes in the window", unit="events", minimum=0)
