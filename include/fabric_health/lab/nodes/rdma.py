"""Answers of the RDMA tools: ibstat, ibv_devinfo, rdma, and the files under /sys/class/infiniband."""

from __future__ import annotations

import json
from datetime import datetime

from fabric_health.lab.answer import Answer
from fabric_health.lab.nodes.hardware import Hardware, LabNic, spread
from fabric_health.lab.nodes.traffic import counters

# Gb/s of one lane: (enum ibv_port_attr.active_speed, name in sysfs; single data rate has no name).
_LANES = {
    2.5: (1, ""), 5.0: (2, " DDR"), 10.0: (4, " QDR"), 14.0: (16, " FDR"), 25.0: (32, " EDR"), 50.0: (64, " HDR"),
    100.0: (128, " NDR"), 200.0: (256, " XDR"),
}  # fmt: skip
_WIDTHS = {4: "4X (2)", 2: "2X (16)", 1: "1X (1)"}
# What mlx5 reports for a port without a link: 4X QDR on Ethernet, 4X SDR on InfiniBand.
_RATE_DOWN = {"Ethernet": 40.0, "InfiniBand": 10.0}

_IB_MTUS = ((4096, 5), (2048, 4), (1024, 3), (512, 2), (256, 1))
# https://github.com/torvalds/linux/blob/master/include/rdma/ib_addr.h (iboe_get_mtu): GRH, BTH, extended headers.
_ROCE_HEADERS = 72

_DEVICE = """\
hca_id:\t{name}
\ttransport:\t\t\tInfiniBand (0)
\tfw_ver:\t\t\t\t{firmware}
\tnode_guid:\t\t\t{guid}
\tsys_image_guid:\t\t\t{guid}
\tvendor_id:\t\t\t0x02c9
\tvendor_part_id:\t\t\t{part_id}
\thw_ver:\t\t\t\t0x0
\tboard_id:\t\t\t{psid}
\tphys_port_cnt:\t\t\t1
\tmax_mr_size:\t\t\t0xffffffffffffffff
\tpage_size_cap:\t\t\t0xfffffffffffff000
\tmax_qp:\t\t\t\t131072
\tmax_qp_wr:\t\t\t32768
\tdevice_cap_flags:\t\t0x25321c36
\t\t\t\t\tBAD_PKEY_CNTR
\t\t\t\t\tBAD_QKEY_CNTR
\t\t\t\t\tAUTO_PATH_MIG
\t\t\t\t\tCHANGE_PHY_PORT
\t\t\t\t\tPORT_ACTIVE_EVENT
\t\t\t\t\tSYS_IMAGE_GUID
\t\t\t\t\tRC_RNR_NAK_GEN
\t\t\t\t\tMEM_WINDOW
\t\t\t\t\tXRC
\t\t\t\t\tMEM_MGT_EXTENSIONS
\t\t\t\t\tMEM_WINDOW_TYPE_2B
\t\t\t\t\tRAW_IP_CSUM
\t\t\t\t\tMANAGED_FLOW_STEERING
\tmax_sge:\t\t\t30
\tmax_sge_rd:\t\t\t30
\tmax_cq:\t\t\t\t16777216
\tmax_cqe:\t\t\t4194303
\tmax_mr:\t\t\t\t16777216
\tmax_pd:\t\t\t\t8388608
\tmax_qp_rd_atom:\t\t\t16
\tmax_ee_rd_atom:\t\t\t0
\tmax_res_rd_atom:\t\t2097152
\tatomic_cap:\t\t\tATOMIC_HCA (1)
\tmax_mcast_grp:\t\t\t2097152
\tmax_mcast_qp_attach:\t\t240
\tmax_ah:\t\t\t\t2147483647
\tmax_srq:\t\t\t8388608
\tmax_srq_wr:\t\t\t32767
\tmax_pkeys:\t\t\t128
\tlocal_ca_ack_delay:\t\t16
\tcompletion_timestamp_mask:\t\t\t0x7fffffffffffffff
\thca_core_clock:\t\t\t1000000kHZ
\tmaximum available device memory:\t131072Bytes
\tnum_comp_vectors:\t\t63
"""

_PORT = """\
\t\tport:\t1
\t\t\tstate:\t\t\t{state}
\t\t\tmax_mtu:\t\t4096 (5)
\t\t\tactive_mtu:\t\t{mtu} ({mtu_code})
\t\t\tsm_lid:\t\t\t{sm_lid}
\t\t\tport_lid:\t\t{lid}
\t\t\tport_lmc:\t\t0x00
\t\t\tlink_layer:\t\t{layer}
\t\t\tmax_msg_sz:\t\t0x40000000
\t\t\tport_cap_flags:\t\t{cap_flags}
\t\t\tport_cap_flags2:\t0x0000
\t\t\tmax_vl_num:\t\t{vl}
\t\t\tbad_pkey_cntr:\t\t0x0
\t\t\tqkey_viol_cntr:\t\t0x0
\t\t\tsm_sl:\t\t\t0
\t\t\tpkey_tbl_len:\t\t{pkeys}
\t\t\tgid_tbl_len:\t\t{gids}
\t\t\tsubnet_timeout:\t\t{timeout}
\t\t\tinit_type_reply:\t0
\t\t\tactive_width:\t\t{width}
\t\t\tactive_speed:\t\t{lane:.1f} Gbps ({speed_code})
\t\t\tphys_state:\t\t{phys}
{gid_lines}
"""


def answer_ibstat(hardware: Hardware, arguments: tuple[str, ...]) -> Answer:
    """Answer `ibstat [CA]`."""
    chosen = [n for n in hardware.nics if not arguments or n.name == arguments[0]]
    if arguments and not chosen:
        return Answer(stderr=f"ibpanic: [1] main: '{arguments[0]}' IB device can't be found\n", exit_code=255)
    return Answer("".join(_ibstat(hardware, n) for n in chosen))


def answer_ibv_devinfo(hardware: Hardware, arguments: tuple[str, ...]) -> Answer:
    """Answer `ibv_devinfo -v`; without ``-v`` the same document is cut at the link layer, as the tool does."""
    if not hardware.nics:
        return Answer(stderr="No IB devices found\n", exit_code=255)
    verbose = "-v" in arguments
    return Answer("".join(_devinfo(hardware, n, verbose) for n in hardware.nics))


def answer_rdma(hardware: Hardware, arguments: tuple[str, ...]) -> Answer:
    """Answer `rdma -j link show`, on one line as iproute2 prints it."""
    if arguments not in (("-j", "link", "show"), ("-j", "link")):
        return Answer(stderr=f'Unknown argument "{arguments[-1] if arguments else ""}".\n', exit_code=255)
    return Answer(json.dumps([_rdma(hardware, n) for n in hardware.nics], separators=(",", ":")) + "\n")


def sysfs_files(hardware: Hardware, nic: LabNic, now: datetime) -> dict[str, str]:
    """Return the one-line files of a NIC under /sys by path."""
    base = f"/sys/class/infiniband/{nic.name}"
    count = counters(hardware, nic, now)
    gts = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0", 7: "128.0"}[nic.gen]
    files = {
        "fw_ver": nic.firmware,
        "board_id": nic.psid,
        "hca_type": nic.model.ca_type,
        "node_guid": _colons(nic.guid),
        "device/current_link_speed": f"{gts} GT/s PCIe",
        "device/current_link_width": str(nic.width),
        "device/max_link_speed": f"{gts} GT/s PCIe",
        "device/max_link_width": str(nic.width),
        "ports/1/state": "4: ACTIVE" if nic.link_up else "1: DOWN",
        "ports/1/phys_state": {"LinkUp": "5: LinkUp", "Disabled": "3: Disabled", "Polling": "2: Polling"}[
            _phys(hardware, nic)
        ],
        "ports/1/rate": _sysfs_rate(hardware, nic),
        "ports/1/link_layer": hardware.node.sku.link_layer,
        # On Ethernet mlx5 keeps the losses in the counters of the network device (ethtool -S), not here.
        "ports/1/counters/link_downed": str(count.losses if _infiniband(hardware) else 0),
        "ports/1/counters/port_xmit_packets": str(count.tx_packets),
        "ports/1/counters/port_rcv_packets": str(count.rx_packets),
        "ports/1/counters/port_xmit_data": str(count.tx_bytes // 4),
        "ports/1/counters/port_rcv_data": str(count.rx_bytes // 4),
    }
    quiet = (
        "symbol_error",
        "link_error_recovery",
        "port_rcv_errors",
        "port_xmit_discards",
        "local_link_integrity_errors",
    )
    files |= {f"ports/1/counters/{name}": "0" for name in quiet}
    out = {f"{base}/{name}": value for name, value in files.items()}
    if nic.netdev:
        out[f"/sys/class/net/{nic.netdev}/carrier_changes"] = str(count.carrier_changes)
    return out


def active_mtu(hardware: Hardware) -> tuple[int, int]:
    """Return the active RDMA MTU in bytes and its enum: 4096 on InfiniBand, what fits the netdev's MTU on RoCE."""
    if _infiniband(hardware):
        return _IB_MTUS[0]
    room = netdev_mtu(hardware) - _ROCE_HEADERS
    return next((m for m in _IB_MTUS if m[0] <= room), _IB_MTUS[-1])


def netdev_mtu(hardware: Hardware) -> int:
    """Return the MTU of the node's fabric network devices in bytes."""
    return hardware.node.sku.netdev_mtu_bytes or (4092 if _infiniband(hardware) else 9000)


def lanes(rate_gbps: float) -> tuple[int, float]:
    """Return number of lanes and Gb/s of a lane for a port rate; four lanes wherever they make the rate."""
    for width in _WIDTHS:
        if rate_gbps / width in _LANES:
            return width, rate_gbps / width
    return 4, max((lane for lane in _LANES if lane * 4 <= rate_gbps), default=2.5)


def _infiniband(hardware: Hardware) -> bool:
    return hardware.node.sku.link_layer == "InfiniBand"


def _phys(hardware: Hardware, nic: LabNic) -> str:
    """Return the physical state; mlx5 shows every Ethernet port without carrier as disabled, whoever shut it."""
    if nic.link_up:
        return "LinkUp"
    return "Polling" if nic.admin_up and _infiniband(hardware) else "Disabled"


def _rate(hardware: Hardware, nic: LabNic) -> float:
    return nic.rate_gbps if nic.link_up else _RATE_DOWN[hardware.node.sku.link_layer]


def _sysfs_rate(hardware: Hardware, nic: LabNic) -> str:
    width, lane = lanes(_rate(hardware, nic))
    return f"{width * lane:g} Gb/sec ({width}X{_LANES[lane][1]})"


def _lid(hardware: Hardware, nic: LabNic) -> tuple[int, int]:
    """Return (local id, id of the subnet manager): InfiniBand only, and lost with the link."""
    if not _infiniband(hardware):
        return 0, 0
    return (spread(nic.unit, "lid", 2, 3_000) if nic.link_up else 65535), (1 if nic.link_up else 0)


def _ibstat(hardware: Hardware, nic: LabNic) -> str:
    lid, sm_lid = _lid(hardware, nic)
    width, lane = lanes(_rate(hardware, nic))
    infiniband = _infiniband(hardware)
    port_guid = nic.guid if infiniband else _eui64(nic.mac)
    return (
        f"CA '{nic.name}'\n\tCA type: {nic.model.ca_type}\n\tNumber of ports: 1\n"
        f"\tFirmware version: {nic.firmware}\n\tHardware version: 0\n"
        f"\tNode GUID: 0x{nic.guid}\n\tSystem image GUID: 0x{nic.guid}\n"
        f"\tPort 1:\n\t\tState: {'Active' if nic.link_up else 'Down'}\n\t\tPhysical state: {_phys(hardware, nic)}\n"
        f"\t\tRate: {width * lane:g}\n\t\tBase lid: {lid}\n\t\tLMC: 0\n\t\tSM lid: {sm_lid}\n"
        f"\t\tCapability mask: {'0xa651e848' if infiniband else '0x00010000'}\n"
        f"\t\tPort GUID: 0x{port_guid}\n\t\tLink layer: {hardware.node.sku.link_layer}\n"
    )


def _devinfo(hardware: Hardware, nic: LabNic, verbose: bool) -> str:
    lid, sm_lid = _lid(hardware, nic)
    width, lane = lanes(_rate(hardware, nic))
    mtu, mtu_code = active_mtu(hardware)
    infiniband = _infiniband(hardware)
    device = _DEVICE.format(
        name=nic.name,
        firmware=nic.firmware,
        guid=_colons(nic.guid),
        part_id=nic.model.part_id,
        psid=nic.psid,
    )
    port = _PORT.format(
        state="PORT_ACTIVE (4)" if nic.link_up else "PORT_DOWN (1)",
        mtu=mtu,
        mtu_code=mtu_code,
        sm_lid=sm_lid,
        lid=lid,
        layer=hardware.node.sku.link_layer,
        cap_flags="0xa651e848" if infiniband else "0x04010000",
        vl="4 (3)" if infiniband else "invalid value (0)",
        pkeys=128 if infiniband else 1,
        gids=8 if infiniband else 255,
        timeout=18 if infiniband else 0,
        width=_WIDTHS[width],
        lane=lane,
        speed_code=_LANES[lane][0],
        phys={"LinkUp": "LINK_UP (5)", "Disabled": "DISABLED (3)", "Polling": "POLLING (2)"}[_phys(hardware, nic)],
        gid_lines=_gids(nic, infiniband),
    )
    if verbose:
        return device + port
    short = device[: device.index("\tmax_mr_size")] + port[: port.index("\t\t\tmax_msg_sz")]
    return short + "\n"


def _gids(nic: LabNic, infiniband: bool) -> str:
    if infiniband:
        return f"\t\t\tGID[  0]:\t\tfe80:0000:0000:0000:{_colons(nic.guid)}\n"
    local = f"fe80::{_colons(_eui64(nic.mac))}"
    mapped = f"::ffff:10.{10 + nic.index}.{spread(nic.unit, 'net', 0, 255)}.{spread(nic.unit, 'host', 1, 254)}"
    return "".join(
        f"\t\t\tGID[{i:3}]:\t\t{gid}, {version}\n"
        for i, (gid, version) in enumerate(
            ((local, "RoCE v1"), (local, "RoCE v2"), (mapped, "RoCE v1"), (mapped, "RoCE v2"))
        )
    )


def _rdma(hardware: Hardware, nic: LabNic) -> dict[str, object]:
    lid, sm_lid = _lid(hardware, nic)
    out: dict[str, object] = {"ifindex": nic.index, "ifname": nic.name, "port": 1}
    if _infiniband(hardware):
        out |= {"subnet_prefix": "fe80:0000:0000:0000", "lid": lid, "sm_lid": sm_lid, "lmc": 0}
    physical = {"LinkUp": "LINK_UP", "Disabled": "DISABLED", "Polling": "POLLING"}[_phys(hardware, nic)]
    out |= {"state": "ACTIVE" if nic.link_up else "DOWN", "physical_state": physical}
    if nic.netdev:
        out |= {"netdev": nic.netdev, "netdev_index": netdev_index(nic)}
    return out


def netdev_index(nic: LabNic) -> int:
    """Return the interface index: loopback and the management port come first."""
    return nic.index + 3


def _colons(guid: str) -> str:
    return ":".join(guid[i : i + 4] for i in range(0, 16, 4))


def _eui64(mac: str) -> str:
    raw = mac.replace(":", "")
    return f"{int(raw[:2], 16) ^ 2:02x}{raw[2:6]}fffe{raw[6:]}"
