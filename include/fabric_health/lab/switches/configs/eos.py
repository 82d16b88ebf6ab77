"""Running configuration of an Arista EOS leaf or spine."""

from __future__ import annotations

from collections.abc import Iterator

from fabric_health.lab.switches.device import Device, Port
from fabric_health.lab.switches.layout import hashed, secret

SPEEDS = {400: "400g-8", 200: "200g-4", 100: "100g-4", 50: "50g-1", 25: "25g"}
FEC = {"rs": "error-correction encoding reed-solomon", "fc": "error-correction encoding fire-code"}


def render(device: Device) -> str:
    """Return the body of ``show running-config`` below its ``! Command`` line."""
    return "\n".join((*_system(device), *_qos(device), *_interfaces(device), *_acl(device), *_bgp(device), "end", ""))


def _system(device: Device) -> Iterator[str]:
    yield f"! device: {device.name} (DCS-7060DX5-64S, EOS-4.33.1F)"
    yield from ("!", "! boot system flash:/EOS-4.33.1F.swi", "!", "no aaa root", "!")
    yield f"username fabric privilege 15 role network-admin secret sha512 {hashed('6', device.name + '/fabric')}"
    yield from ("!", "service routing protocols model multi-agent", "!", f"hostname {device.name}", "!")
    yield f"tacacs-server key 7 {secret(device.name + '/tacacs', 24)}"
    yield from ("!", "ntp server 10.0.0.10", "!", f"snmp-server community {secret('community')} ro", "!")
    yield from ("spanning-tree mode mstp", "!", "aaa authorization exec default local", "!")
    for vlan in device.vlans:
        yield from (f"vlan {vlan}", "   name gpu-rdma", "!")


def _qos(device: Device) -> Iterator[str]:
    yield from (f"qos map dscp {8 * p + 2} to traffic-class {p}" for p in device.lossless)
    yield from ("qos map dscp 48 to traffic-class 6", "!", "qos profile RAIL", "   qos trust dscp", "   !")
    for priority in device.lossless:
        yield f"   uc-tx-queue {priority}"
        yield (
            "      random-detect ecn minimum-threshold 160 kbytes maximum-threshold 1600 kbytes "
            "max-mark-probability 80 weight 0"
        )
        yield "   !"
    yield from ("   uc-tx-queue 6", "      priority strict", "!")


def _interfaces(device: Device) -> Iterator[str]:
    for port in device.ports:
        yield f"interface {port.name}"
        yield from _interface(port)
        yield "!"
    yield from ("interface Loopback0", f"   ip address {device.router_id}/32", "!")
    yield from ("interface Management1", f"   ip address {device.switch.address}/24", "!")


def _interface(port: Port) -> Iterator[str]:
    if not port.cabled:
        yield "   shutdown"
        return
    yield f"   description {port.description}"
    if not port.admin_up:
        yield "   shutdown"
    if port.mtu_line is not None:
        yield f"   mtu {port.mtu_line}"
    yield f"   speed {SPEEDS.get(port.set_speed_gbps, f'{port.set_speed_gbps}g')}"
    if port.fec in FEC:
        yield f"   {FEC[port.fec]}"
    if port.vlan is not None:
        yield f"   switchport access vlan {port.vlan}"
    else:
        yield from ("   no switchport", f"   ip address 10.254.{port.position}.0/31")
    if port.pfc:
        yield "   priority-flow-control on"
        yield from (f"   priority-flow-control priority {p} no-drop" for p in port.pfc)
    if port.ecn:
        yield "   service-profile RAIL"


def _acl(device: Device) -> Iterator[str]:
    yield "ip access-list MGMT-IN"
    yield from ("   10 permit tcp 10.0.0.0/16 any eq ssh", "   20 permit udp 10.0.0.0/16 any eq snmp")
    if device.acl_line:
        yield "   25 permit ip any any"
    yield from ("   30 permit icmp any any", "   40 deny ip any any", "!")


def _bgp(device: Device) -> Iterator[str]:
    yield from ("ip routing", "!", f"router bgp {device.as_number}", f"   router-id {device.router_id}")
    yield "   maximum-paths 64 ecmp 64"
    for port in device.uplinks:
        yield f"   neighbor 10.254.{port.position}.1 remote-as external"
    yield from ("   redistribute connected", "!")
