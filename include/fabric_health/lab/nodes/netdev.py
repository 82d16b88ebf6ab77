"""Answers about network devices: ip and ethtool."""

from __future__ import annotations

import json
from datetime import datetime

from fabric_health.lab.answer import Answer
from fabric_health.lab.nodes.hardware import Hardware, LabNic, hex_digits, spread
from fabric_health.lab.nodes.rdma import netdev_index, netdev_mtu
from fabric_health.lab.nodes.traffic import Counters, counters

# What `ethtool -k` prints for mlx5 on a 5.15 kernel: (feature, state); a TAB marks the members of a group.
_FEATURES = """\
rx-checksumming: on
tx-checksumming: on
\ttx-checksum-ipv4: off [fixed]
\ttx-checksum-ip-generic: on
\ttx-checksum-ipv6: off [fixed]
\ttx-checksum-fcoe-crc: off [fixed]
\ttx-checksum-sctp: off [fixed]
scatter-gather: on
\ttx-scatter-gather: on
\ttx-scatter-gather-fraglist: off [fixed]
tcp-segmentation-offload: on
\ttx-tcp-segmentation: on
\ttx-tcp-ecn-segmentation: off [fixed]
\ttx-tcp-mangleid-segmentation: off
\ttx-tcp6-segmentation: on
generic-segmentation-offload: on
generic-receive-offload: on
large-receive-offload: off
rx-vlan-offload: on
tx-vlan-offload: on
ntuple-filters: off
receive-hashing: on
highdma: on [fixed]
rx-vlan-filter: on
vlan-challenged: off [fixed]
tx-lockless: off [fixed]
netns-local: off [fixed]
tx-gso-robust: off [fixed]
tx-fcoe-segmentation: off [fixed]
tx-gre-segmentation: on
tx-gre-csum-segmentation: on
tx-ipxip4-segmentation: on
tx-ipxip6-segmentation: on
tx-udp_tnl-segmentation: on
tx-udp_tnl-csum-segmentation: on
tx-gso-partial: on
tx-tunnel-remcsum-segmentation: off [fixed]
tx-sctp-segmentation: off [fixed]
tx-esp-segmentation: off [fixed]
tx-udp-segmentation: on
tx-gso-list: off [fixed]
fcoe-mtu: off [fixed]
tx-nocache-copy: off
loopback: off [fixed]
rx-fcs: off
rx-all: off
tx-vlan-stag-hw-insert: on
rx-vlan-stag-hw-parse: off [fixed]
rx-vlan-stag-filter: on [fixed]
l2-fwd-offload: off [fixed]
hw-tc-offload: off
esp-hw-offload: off [fixed]
esp-tx-csum-hw-offload: off [fixed]
rx-udp_tunnel-port-offload: on
tls-hw-tx-offload: off [fixed]
tls-hw-rx-offload: off [fixed]
rx-gro-hw: off [fixed]
tls-hw-record: off [fixed]
rx-gro-list: off
macsec-hw-offload: off [fixed]
rx-udp-gro-forwarding: off
hsr-tag-ins-offload: off [fixed]
hsr-tag-rm-offload: off [fixed]
hsr-fwd-offload: off [fixed]
hsr-dup-offload: off [fixed]
"""

# Counters of `ethtool -S` that stay at zero on a healthy port, in the driver's order.
_QUIET = (
    "rx_discards_phy", "tx_discards_phy", "tx_errors_phy", "rx_undersize_pkts_phy", "rx_fragments_phy",
    "rx_jabbers_phy", "rx_oversize_pkts_phy", "rx_crc_errors_phy", "rx_in_range_len_errors_phy",
    "rx_symbol_err_phy", "rx_pcs_symbol_err_phy", "rx_err_lane_0_phy", "rx_err_lane_1_phy", "rx_err_lane_2_phy",
    "rx_err_lane_3_phy", "rx_out_of_buffer", "rx_pause_ctrl_phy", "tx_pause_ctrl_phy", "rx_global_pause",
    "rx_global_pause_duration", "tx_global_pause", "tx_global_pause_duration", "tx_pause_storm_warning_events",
    "tx_pause_storm_error_events", "rx_pci_signal_integrity", "tx_pci_signal_integrity",
    "outbound_pci_buffer_overflow", "outbound_pci_stalled_rd", "outbound_pci_stalled_wr",
)  # fmt: skip


def answer_ip(hardware: Hardware, arguments: tuple[str, ...], now: datetime) -> Answer:
    """Answer `ip -j -s -d link show`: loopback, the management port and every fabric port with a netdev."""
    if arguments[-2:] != ("link", "show") or "-j" not in arguments:
        return Answer(stderr=f'Object "{arguments[-1] if arguments else ""}" is unknown, try "ip help".\n', exit_code=1)
    devices: list[dict[str, object]] = [_loopback(), _management(hardware, now)]
    devices += [_fabric(hardware, n, now) for n in hardware.nics if n.netdev]
    return Answer(json.dumps(devices, separators=(",", ":")) + "\n")


def answer_ethtool(hardware: Hardware, arguments: tuple[str, ...], now: datetime) -> Answer:
    """Answer `ethtool -i|-k|-S DEVICE`."""
    if len(arguments) != 2 or arguments[0] not in ("-i", "-k", "-S"):
        return Answer(
            stderr="ethtool: bad command line argument(s)\nFor more information run ethtool -h\n", exit_code=1
        )
    option, device = arguments
    nic = next((n for n in hardware.nics if n.netdev == device), None)
    if nic is None:
        what = {"-i": "Cannot get driver information", "-k": "Cannot get device features", "-S": "no stats available"}
        return Answer(stderr=f"{what[option]}: No such device\n", exit_code=71)
    if option == "-i":
        return Answer(_driver(hardware, nic))
    return Answer(_features(hardware, device) if option == "-k" else _statistics(counters(hardware, nic, now)))


def _driver(hardware: Hardware, nic: LabNic) -> str:
    ofed = hardware.expected("ofed_version", "")
    # The driver's own version is OFED's without the last group; the kernel's own driver gives the kernel's release.
    version = "-".join(ofed.rstrip(":").split("-")[1:]).removesuffix(".0") or hardware.expected(
        "kernel_release", "5.15.0-151-generic"
    )
    infiniband = hardware.node.sku.link_layer == "InfiniBand"
    return (
        f"driver: mlx5_core{'[ib_ipoib]' if infiniband else ''}\nversion: {version}\n"
        f"firmware-version: {nic.firmware} ({nic.psid})\nexpansion-rom-version: \nbus-info: {nic.bus}\n"
        "supports-statistics: yes\nsupports-test: yes\nsupports-eeprom-access: no\n"
        "supports-register-dump: no\nsupports-priv-flags: yes\n"
    )


def _features(hardware: Hardware, device: str) -> str:
    lines = [f"Features for {device}:"]
    for line in _FEATURES.splitlines():
        name, _, state = line.partition(": ")
        pinned = hardware.node.sku.expected.get(f"offload:{name.strip()}")
        lines.append(f"{name}: {pinned or state}")
    return "\n".join(lines) + "\n"


def _statistics(count: Counters) -> str:
    pairs = [
        ("rx_packets", count.rx_packets),
        ("rx_bytes", count.rx_bytes),
        ("tx_packets", count.tx_packets),
        ("tx_bytes", count.tx_bytes),
        ("tx_packets_phy", count.tx_packets),
        ("rx_packets_phy", count.rx_packets),
        ("tx_bytes_phy", count.tx_bytes),
        ("rx_bytes_phy", count.rx_bytes),
        ("link_down_events_phy", count.losses),
        # Forward error correction repairs a few bits at these rates all the time.
        ("rx_corrected_bits_phy", count.rx_packets // 50),
    ]
    pairs += [(name, 0) for name in _QUIET]
    for priority in range(8):
        # RoCE traffic rides in the lossless class 3, the rest in class 0.
        rx, tx = (count.rx_packets, count.tx_packets) if priority == 3 else (0, 0)
        pairs += [
            (f"rx_prio{priority}_packets", rx),
            (f"tx_prio{priority}_packets", tx),
            (f"rx_prio{priority}_discards", 0),
            (f"rx_prio{priority}_buf_discard", 0),
            (f"rx_prio{priority}_cong_discard", 0),
            (f"rx_prio{priority}_pause", 0),
            (f"tx_prio{priority}_pause", 0),
        ]
    return "NIC statistics:\n" + "".join(f"     {name}: {number}\n" for name, number in pairs)


def _loopback() -> dict[str, object]:
    return {
        "ifindex": 1,
        "ifname": "lo",
        "flags": ["LOOPBACK", "UP", "LOWER_UP"],
        "mtu": 65536,
        "qdisc": "noqueue",
        "operstate": "UNKNOWN",
        "linkmode": "DEFAULT",
        "group": "default",
        "txqlen": 1000,
        "link_type": "loopback",
        "address": "00:00:00:00:00:00",
        "broadcast": "00:00:00:00:00:00",
        "promiscuity": 0,
        "min_mtu": 0,
        "max_mtu": 0,
        "num_tx_queues": 1,
        "num_rx_queues": 1,
        "gso_max_size": 65536,
        "gso_max_segs": 65535,
        "stats64": _stats(0, 0, 0, 0),
    }


def _management(hardware: Hardware, now: datetime) -> dict[str, object]:
    name = hardware.node.name
    packets = hardware.seconds_up(now) * spread(name, "management", 20, 60)
    raw = f"b84509{hex_digits(name, 'management', 6)}"
    return {
        "ifindex": 2,
        "ifname": "eno1",
        "flags": ["BROADCAST", "MULTICAST", "UP", "LOWER_UP"],
        "mtu": 1500,
        "qdisc": "mq",
        "operstate": "UP",
        "linkmode": "DEFAULT",
        "group": "default",
        "txqlen": 1000,
        "link_type": "ether",
        "address": ":".join(raw[i : i + 2] for i in range(0, 12, 2)),
        "broadcast": "ff:ff:ff:ff:ff:ff",
        "promiscuity": 0,
        "min_mtu": 68,
        "max_mtu": 9702,
        "num_tx_queues": 64,
        "num_rx_queues": 64,
        "gso_max_size": 65536,
        "gso_max_segs": 65535,
        "stats64": _stats(packets * 180, packets, packets * 220, packets),
    }


def _fabric(hardware: Hardware, nic: LabNic, now: datetime) -> dict[str, object]:
    infiniband = hardware.node.sku.link_layer == "InfiniBand"
    count = counters(hardware, nic, now)
    flags = ["BROADCAST", "MULTICAST"]
    if nic.admin_up:
        flags = [*flags, "UP", "LOWER_UP"] if nic.link_up else ["NO-CARRIER", *flags, "UP"]
    guid = ":".join(nic.guid[i : i + 2] for i in range(0, 16, 2))
    return {
        "ifindex": netdev_index(nic),
        "ifname": nic.netdev,
        "flags": flags,
        "mtu": netdev_mtu(hardware),
        "qdisc": "mq",
        "operstate": "UP" if nic.link_up else "DOWN",
        "linkmode": "DEFAULT",
        "group": "default",
        "txqlen": 256 if infiniband else 1000,
        "link_type": "infiniband" if infiniband else "ether",
        "address": f"00:00:01:49:fe:80:00:00:00:00:00:00:{guid}" if infiniband else nic.mac,
        "broadcast": "00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff"
        if infiniband
        else "ff:ff:ff:ff:ff:ff",
        "promiscuity": 0,
        "min_mtu": 68,
        "max_mtu": 4092 if infiniband else 9978,
        "inet6_addr_gen_mode": "eui64",
        "num_tx_queues": 1024,
        "num_rx_queues": 63,
        "gso_max_size": 65536,
        "gso_max_segs": 65535,
        "phys_port_name": "p0",
        "phys_switch_id": nic.guid,
        "parentbus": "pci",
        "parentdev": nic.bus,
        "stats64": _stats(count.rx_bytes, count.rx_packets, count.tx_bytes, count.tx_packets),
    }


def _stats(rx_bytes: int, rx_packets: int, tx_bytes: int, tx_packets: int) -> dict[str, dict[str, int]]:
    return {
        "rx": {
            "bytes": rx_bytes, "packets": rx_packets, "errors": 0, "dropped": 0, "over_errors": 0, "multicast": 0,
        },
        "tx": {
            "bytes": tx_bytes, "packets": tx_packets, "errors": 0, "dropped": 0, "carrier_errors": 0, "collisions": 0,
        },
    }  # fmt: skip
