"""What the driver and firmware audit asks of a node: read-only commands, each an argv list, only what the SKU can have.

Most tools answer any user; ``lspci -vv``, ``smartctl``, ``mlxfwmanager``, ``mstflint`` and ``dmesg`` want root and say
so otherwise, which becomes facts in state ``error`` with the tool's own words.
"""

from __future__ import annotations

from fabric_health.checks.check import Unit
from fabric_health.evidence import MIB, Command
from fabric_health.site import Nic, Node, Site, Sku

# Files read with `grep -H . FILE...`, which prints `path:value`: one process instead of dozens, and each value keeps
# its path. A file that is missing only adds a line on stderr. Port 1: dual-port cards show one RDMA device a port.
IB_FILES: tuple[str, ...] = ("fw_ver", "board_id", "hca_type")
IB_PORT_FILES: tuple[str, ...] = ("state", "phys_state", "rate", "link_layer")
IB_COUNTERS: tuple[str, ...] = (
    "symbol_error",
    "link_downed",
    "link_error_recovery",
    "port_rcv_errors",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_rcv_packets",
)
PCI_LINK_FILES: tuple[str, ...] = (
    "current_link_speed",
    "current_link_width",
    "max_link_speed",
    "max_link_width",
)


def commands(unit: Unit, site: Site) -> tuple[Command, ...]:
    """Return the commands for one node, in the order they run; nothing for a switch."""
    if not isinstance(unit, Node):
        return ()
    sku = unit.sku
    return (*_gpu(sku), *_nics(sku), *_host(sku), *_drives(sku), *_kernel_log(site))


def drive_name(device: str) -> str:
    """Return the last part of a device path: ``nvme0`` of ``/dev/nvme0``; drives are units under that name."""
    return device.rstrip("/").rsplit("/", 1)[-1]


def _gpu(sku: Sku) -> tuple[Command, ...]:
    if not sku.gpus:
        return ()
    services: tuple[str, ...] = ("nvidia-persistenced",)
    out = [
        # A GPU in trouble (Xid 79, 119) can hold nvidia-smi for minutes; healthy nodes of 8 answer within 10 s.
        Command("nvidia_smi", ("nvidia-smi", "-q", "-x"), timeout_s=60),
        Command("nvidia_proc", ("cat", "/proc/driver/nvidia/version"), timeout_s=10),
    ]
    if sku.nvlinks_per_gpu:
        out.append(Command("nvlink", ("nvidia-smi", "nvlink", "-s"), timeout_s=30))
    if sku.has_fabric_manager:
        services = ("nvidia-fabricmanager", *services)
        out.append(Command("fabric_manager", ("nv-fabricmanager", "--version"), timeout_s=10))
    out.append(Command("services", ("systemctl", "show", "-p", "Id,ActiveState,LoadState", *services), timeout_s=15))
    return tuple(out)


def _nics(sku: Sku) -> tuple[Command, ...]:
    if not sku.nics:
        return ()
    out = [
        Command("ibstat", ("ibstat",), timeout_s=30),
        Command("ibv_devinfo", ("ibv_devinfo", "-v"), timeout_s=30),
        Command("rdma_link", ("rdma", "-j", "link", "show"), timeout_s=15),
        Command("ip_link", ("ip", "-j", "-s", "-d", "link", "show"), timeout_s=15),
        Command("sysfs", ("grep", "-H", ".", *(f for nic in sku.nics for f in nic_files(nic))), timeout_s=15),
        Command("mlxfwmanager", ("mlxfwmanager", "--query", "--query-format", "XML"), timeout_s=60, optional=True),
        Command("ofed", ("ofed_info", "-s"), timeout_s=15, optional=True),
        Command("doca_deb", ("dpkg-query", "-W", "doca-*"), timeout_s=15, optional=True),
        Command("doca_rpm", ("rpm", "-qa", "--qf", r"%{NAME}\t%{VERSION}-%{RELEASE}\n", "doca-*"), 15, optional=True),
    ]
    for nic in sku.nics:
        if nic.netdev:
            out += (
                Command(f"ethtool_i:{nic.netdev}", ("ethtool", "-i", nic.netdev), timeout_s=10),
                Command(f"ethtool_k:{nic.netdev}", ("ethtool", "-k", nic.netdev), timeout_s=10),
                Command(f"ethtool_S:{nic.netdev}", ("ethtool", "-S", nic.netdev), timeout_s=15),
            )
        if nic.pci:
            argv = ("mstflint", "-d", nic.pci, "q", "full")
            out.append(Command(f"mstflint:{nic.name}", argv, timeout_s=30, optional=True))
    return tuple(out)


def nic_files(nic: Nic) -> tuple[str, ...]:
    """Return the sysfs files of one NIC that the command ``sysfs`` reads."""
    device = f"/sys/class/infiniband/{nic.name}"
    files = [f"{device}/{f}" for f in IB_FILES]
    files += [f"{device}/device/{f}" for f in PCI_LINK_FILES]
    files += [f"{device}/ports/1/{f}" for f in IB_PORT_FILES]
    files += [f"{device}/ports/1/counters/{f}" for f in IB_COUNTERS]
    if nic.netdev:
        files.append(f"/sys/class/net/{nic.netdev}/carrier_changes")
    return tuple(files)


def _host(sku: Sku) -> tuple[Command, ...]:
    out = [
        Command("uname", ("uname", "-r"), timeout_s=5),
        Command("os_release", ("cat", "/etc/os-release"), timeout_s=5),
        Command("bios", ("cat", "/sys/class/dmi/id/bios_version"), timeout_s=5),
        # -nn: class and device ids beside the names, which change with the age of pci.ids.
        Command("lspci", ("lspci", "-Dnnvv"), timeout_s=30),
        Command("cmdline", ("cat", "/proc/cmdline"), timeout_s=5),
        Command("iommu_groups", ("ls", "/sys/kernel/iommu_groups"), timeout_s=5),
        Command("modules", ("cat", "/proc/modules"), timeout_s=5),
    ]
    if sku.nfs_mounts:
        # The table of mounts, never the mount point: a stat on a dead NFS server hangs for good.
        out.append(Command("mounts", ("cat", "/proc/mounts"), timeout_s=5))
    return tuple(out)


def _drives(sku: Sku) -> tuple[Command, ...]:
    return tuple(Command(f"smartctl:{drive_name(d)}", ("smartctl", "-j", "-a", d), timeout_s=20) for d in sku.drives)


def _kernel_log(site: Site) -> tuple[Command, ...]:
    # Matches instead of -k, which would hide earlier boots: a node is often rebooted right after a fatal Xid.
    # systemd-networkd is the one that writes "Lost carrier". Both are fields that journald itself sets: no user can
    # write such lines. Newest first, so that a size limit costs the oldest.
    since = f"--since=-{max(1, round(site.thresholds.kernel_log_window_h * 3600))}s"
    fields = "--output-fields=MESSAGE,SYSLOG_IDENTIFIER,_TRANSPORT,_SYSTEMD_UNIT"
    matches = ("_TRANSPORT=kernel", "+", "_SYSTEMD_UNIT=systemd-networkd.service")
    return (
        Command(
            "journal",
            ("journalctl", "--reverse", "-o", "json", "--no-pager", since, fields, *matches),
            timeout_s=60,
            max_bytes=16 * MIB,
        ),
        Command("dmesg", ("dmesg", "--time-format", "iso"), timeout_s=15, max_bytes=8 * MIB, optional=True),
    )
