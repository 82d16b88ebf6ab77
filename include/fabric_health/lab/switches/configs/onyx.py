"""Running configuration of an NVIDIA Onyx switch: flat lines of one attribute, ports in ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from fabric_health.lab.switches.device import Device, Port
from fabric_health.lab.switches.layout import hashed, runs, secret

FEC = {"rs": "rs-fec", "fc": "fc-fec", "none": "no-fec"}


def render(device: Device) -> str:
    """Return the body of ``show running-config`` below the lines of its header that change with time."""
    return "\n".join((*_top(device), *_ports(device), *_qos(device), *_acl(device), *_bgp(device), *_system(device)))


def span(first: Port, last: Port) -> str:
    """Return a range of ports as the configuration writes it: ``1/1-1/8``, ``1/3`` for one."""
    a, b = (p.name.removeprefix("Eth") for p in (first, last))
    return a if a == b else f"{a}-{b}"


def _section(title: str) -> tuple[str, ...]:
    return ("", "##", f"## {title}", "##")


def _top(device: Device) -> Iterator[str]:
    yield from (f"## Hostname: {device.name}", "## Product release: 3.10.4302", "##", "")
    yield from ("##", "## Running-config temporary prefix mode setting", "##", "no cli default prefix-modes enable")
    yield from _section("Interface Ethernet configuration")


def _each(ports: Iterable[Port], words: Callable[[Port], str | None]) -> Iterator[str]:
    """Give one line for every run of ports that share the same words."""
    grouped: dict[str, list[Port]] = {}
    for port in ports:
        text = words(port)
        if text is not None:
            grouped.setdefault(text, []).append(port)
    for text, members in grouped.items():
        for first, last in runs(members):
            yield f"   interface ethernet {span(first, last)} {text}"


def _ports(device: Device) -> Iterator[str]:
    cabled = device.cabled
    yield from _each(cabled, lambda p: f"speed {p.set_speed_gbps}G force")
    yield from _each(cabled, lambda p: f"mtu {p.mtu_line} force" if p.mtu_line is not None else None)
    yield from _each(cabled, lambda p: f"fec-override {FEC[p.fec]} force")
    yield from _each(cabled, lambda p: f'description "{p.description}"')
    yield from _each(cabled, lambda p: "no switchport force" if p.vlan is None else None)
    yield from _each(cabled, lambda p: f"switchport access vlan {p.vlan}" if p.vlan is not None else None)
    yield from _each(cabled, lambda p: f"ip address 10.254.{p.position}.0/31 primary" if p.vlan is None else None)
    yield from _each(device.ports, lambda p: None if p.admin_up else "shutdown")
    yield from _section("VLAN configuration")
    for vlan in device.vlans:
        yield from (f"   vlan {vlan}", f'   vlan {vlan} name "gpu-rdma"')


def _qos(device: Device) -> Iterator[str]:
    yield from _section("DCB and QoS configuration")
    yield "   traffic pool rail type lossless"
    yield from (f"   traffic pool rail map switch-priority {p}" for p in device.lossless)
    yield "   dcb priority-flow-control enable force"
    yield from (f"   dcb priority-flow-control priority {p} enable" for p in device.lossless)
    yield from _each(device.cabled, lambda p: "dcb priority-flow-control mode on force" if p.pfc else None)
    yield from _each(device.cabled, lambda p: "qos trust L3")
    marking = [p for p in device.cabled if p.ecn]
    for priority in device.lossless:
        for first, last in runs(marking):
            words = f"traffic-class {priority} congestion-control ecn minimum-absolute 160 maximum-absolute 1600"
            yield f"   interface ethernet {span(first, last)} {words}"
    yield from _each(device.cabled, lambda p: "traffic-class 6 dcb ets strict")


def _acl(device: Device) -> Iterator[str]:
    yield from _section("ACL configuration")
    head = "   ipv4 access-list MGMT-IN"
    yield head
    yield from (f"{head} seq-number 10 permit tcp 10.0.0.0 mask 255.255.0.0 any eq-destination 22",)
    yield f"{head} seq-number 20 permit udp 10.0.0.0 mask 255.255.0.0 any eq-destination 161"
    if device.acl_line:
        yield f"{head} seq-number 25 permit ip any any"
    yield from (f"{head} seq-number 30 permit icmp any any", f"{head} seq-number 40 deny ip any any")


def _bgp(device: Device) -> Iterator[str]:
    yield from _section("BGP configuration")
    yield from ("   protocol bgp", f"   router bgp {device.as_number} vrf default")
    head = f"   router bgp {device.as_number} vrf default"
    yield f"{head} router-id {device.router_id} force"
    for port in device.uplinks:
        yield f"{head} neighbor 10.254.{port.position}.1 remote-as external"


def _system(device: Device) -> Iterator[str]:
    yield from _section("Network management configuration")
    yield from ("   ntp server 10.0.0.10 version 4", "   no ntp server 10.0.0.10 disable", "   ntp enable")
    yield f"   snmp-server community {secret('community')} ro"
    yield f"#  tacacs-server key {'*' * 8}"
    yield from _section("AAA and user configuration")
    yield f"   username fabric password 7 {hashed('6', device.name + '/fabric')}"
    yield from _section("X.509 certificates configuration")
    yield from ("#", f"# Certificate name system-self-signed, ID {secret(device.name + '/cert', 40)}")
    yield from ("# (public-cert config omitted since private-key config is hidden)", "")
    yield from ("##", "## Persistent prefix mode setting", "##", "cli default prefix-modes enable", "")
