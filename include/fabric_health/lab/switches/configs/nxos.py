"""Running configuration of a Cisco NX-OS leaf or spine."""

from __future__ import annotations

from collections.abc import Iterator

from fabric_health.lab.switches.device import Device, Port
from fabric_health.lab.switches.layout import hashed, secret

FEC = {"rs": "fec rs-fec", "fc": "fec fc-fec", "none": "fec off"}
WRED = "minimum-threshold 160 kbytes maximum-threshold 1600 kbytes drop-probability 80 weight 0"


def render(device: Device) -> str:
    """Return the body of ``show running-config`` below its ``!Time`` line."""
    return "\n".join((*_system(device), *_qos(device), *_acl(device), *_interfaces(device), *_bgp(device), ""))


def _system(device: Device) -> Iterator[str]:
    yield from ("version 10.4(3) Bios:version 01.14", f"hostname {device.name}", f"vdc {device.name} id 1")
    yield from ("  limit-resource vlan minimum 16 maximum 4094", "  limit-resource vrf minimum 2 maximum 4096", "")
    yield from ("feature bgp", "feature lldp", "")
    yield f"username fabric password 5 {hashed('5', device.name + '/fabric')}  role network-admin"
    yield f"snmp-server community {secret('community')} group network-operator"
    key = secret(device.name + "/snmp", 32)
    yield f"snmp-server user fabric network-admin auth md5 0x{key} priv 0x{key} localizedkey"
    yield f'tacacs-server key 7 "{secret(device.name + "/tacacs", 12)}"'
    yield from ("ntp server 10.0.0.10 use-vrf management", "")
    for vlan in device.vlans:
        yield from (f"vlan {vlan}", "  name gpu-rdma", "")


def _qos(device: Device) -> Iterator[str]:
    classes = {p: "RDMA" if p == 3 else f"RDMA-{p}" for p in device.lossless}
    for priority, name in classes.items():
        yield from (f"class-map type qos match-all {name}", f"  match dscp {8 * priority + 2}")
    yield from ("class-map type qos match-all CNP", "  match dscp 48", "policy-map type qos RAIL-IN")
    for priority, name in classes.items():
        yield from (f"  class {name}", f"    set qos-group {priority}")
    yield from ("  class CNP", "    set qos-group 6", "policy-map type network-qos RAIL-NQ")
    for priority in classes:
        yield from (f"  class type network-qos c-8q-nq{priority}", f"    pause pfc-cos {priority}", "    mtu 9216")
    yield "policy-map type queuing RAIL-OUT"
    for priority in classes:
        yield from (f"  class type queuing c-out-8q-q{priority}", "    bandwidth remaining percent 30")
        if device.ecn:
            yield f"    random-detect {WRED} ecn"
    yield from ("  class type queuing c-out-8q-q6", "    priority level 1", "system qos")
    yield from ("  service-policy type network-qos RAIL-NQ", "  service-policy type queuing output RAIL-OUT")
    yield from ("priority-flow-control watch-dog-interval on", "")


def _acl(device: Device) -> Iterator[str]:
    yield "ip access-list MGMT-IN"
    yield from ("  10 permit tcp 10.0.0.0/16 any eq 22", "  20 permit udp 10.0.0.0/16 any eq snmp")
    if device.acl_line:
        yield "  25 permit ip any any"
    yield from ("  30 permit icmp any any", "  40 deny ip any any", "")


def _interfaces(device: Device) -> Iterator[str]:
    for port in device.ports:
        yield f"interface {port.name}"
        yield from _interface(port)
        yield ""
    yield from ("interface mgmt0", "  vrf member management", f"  ip address {device.switch.address}/24", "")
    yield from ("interface loopback0", f"  ip address {device.router_id}/32", "")


def _interface(port: Port) -> Iterator[str]:
    if not port.cabled:
        yield "  shutdown"
        return
    yield f"  description {port.description}"
    if port.vlan is None:
        yield "  no switchport"
    else:
        yield f"  switchport access vlan {port.vlan}"
    yield f"  speed {port.set_speed_gbps * 1000}"
    yield f"  {FEC[port.fec]}"
    if port.mtu_line is not None:
        yield f"  mtu {port.mtu_line}"
    yield f"  priority-flow-control mode {'on' if port.pfc else 'off'}"
    yield "  service-policy type qos input RAIL-IN"
    if port.vlan is None:
        yield f"  ip address 10.254.{port.position}.0/31"
    yield "  no shutdown" if port.admin_up else "  shutdown"


def _bgp(device: Device) -> Iterator[str]:
    yield from (f"router bgp {device.as_number}", f"  router-id {device.router_id}")
    yield from ("  address-family ipv4 unicast", "    redistribute direct route-map CONNECTED", "    maximum-paths 64")
    for port in device.uplinks:
        yield from (f"  neighbor 10.254.{port.position}.1", "    remote-as external", "    address-family ipv4 unicast")
