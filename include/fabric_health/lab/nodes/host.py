"""Answers about the host itself: files under /proc, /sys and /etc, systemd units, the kernel."""

from __future__ import annotations

import re
from datetime import datetime

from fabric_health.lab.answer import Answer
from fabric_health.lab.nodes import lspci, nvidia_smi
from fabric_health.lab.nodes.hardware import Hardware, spread
from fabric_health.lab.nodes.rdma import sysfs_files

KERNEL = "5.15.0-151-generic"
OS_RELEASE = "Ubuntu 22.04.5 LTS"
BIOS = "2.3.5"


def answer_uname(hardware: Hardware, arguments: tuple[str, ...]) -> Answer:
    """Answer `uname -r`."""
    if arguments == ("-r",):
        return Answer(hardware.expected("kernel_release", KERNEL) + "\n")
    return Answer(stderr="uname: extra operand\nTry 'uname --help' for more information.\n", exit_code=1)


def answer_cat(hardware: Hardware, paths: tuple[str, ...]) -> Answer:
    """Answer `cat FILE...` for the files that the product reads; any other does not exist."""
    out, problems = "", ""
    for path in paths:
        text = _file(hardware, path)
        if text is None:
            problems += f"cat: {path}: No such file or directory\n"
        else:
            out += text
    return Answer(out, problems, 1 if problems else 0)


def answer_grep(hardware: Hardware, arguments: tuple[str, ...], now: datetime) -> Answer:
    """Answer `grep -H . FILE...` on the NICs' files: `path:line`, exit status 2 when a file does not exist."""
    if arguments[:2] != ("-H", "."):
        return Answer(stderr="Usage: grep [OPTION]... PATTERNS [FILE]...\n", exit_code=2)
    files: dict[str, str] = {}
    for nic in hardware.nics:
        files |= sysfs_files(hardware, nic, now)
    out, problems = "", ""
    for path in arguments[2:]:
        if path in files:
            out += f"{path}:{files[path]}\n"
        else:
            problems += f"grep: {path}: No such file or directory\n"
    return Answer(out, problems, 2 if problems else 0 if out else 1)


def answer_ls(hardware: Hardware, arguments: tuple[str, ...]) -> Answer:
    """Answer `ls /sys/kernel/iommu_groups`, in the order of the C locale."""
    if arguments != ("/sys/kernel/iommu_groups",):
        path = arguments[-1] if arguments else ""
        return Answer(stderr=f"ls: cannot access '{path}': No such file or directory\n", exit_code=2)
    return Answer("".join(f"{g}\n" for g in sorted(str(i) for i in range(lspci.iommu_groups(hardware)))))


def answer_lspci(hardware: Hardware, arguments: tuple[str, ...]) -> Answer:
    """Answer `lspci -Dnnvv`."""
    if set("".join(a.lstrip("-") for a in arguments)) <= set("Dnv") and arguments:
        return Answer(lspci.text(hardware))
    return Answer(stderr="lspci: Unrecognized option\n", exit_code=1)


def answer_systemctl(hardware: Hardware, arguments: tuple[str, ...]) -> Answer:
    """Answer `systemctl show -p Id,ActiveState,LoadState UNIT...`: one block a unit, in systemd's order."""
    if arguments[:3] != ("show", "-p", "Id,ActiveState,LoadState"):
        return Answer(stderr=f"Unknown command verb {arguments[0] if arguments else ''}.\n", exit_code=1)
    return Answer("\n".join(_unit(hardware, u) for u in arguments[3:]))


def _unit(hardware: Hardware, unit: str) -> str:
    known = {}
    if hardware.gpus:
        known["nvidia-persistenced"] = hardware.expected("persistenced_state", "active")
        if hardware.node.sku.has_fabric_manager:
            known["nvidia-fabricmanager"] = hardware.expected("fabric_manager_state", "active")
    state = known.get(unit.removesuffix(".service"), "not-found")
    load, active = ("not-found", "inactive") if state == "not-found" else ("loaded", state)
    return f"Id={unit.removesuffix('.service')}.service\nLoadState={load}\nActiveState={active}\n"


def _file(hardware: Hardware, path: str) -> str | None:
    match path:
        case "/proc/driver/nvidia/version" if hardware.gpus:
            return nvidia_smi.proc_version(hardware)
        case "/etc/os-release":
            return _os_release(hardware.expected("os_release", OS_RELEASE))
        case "/sys/class/dmi/id/bios_version":
            return hardware.expected("bios_version", BIOS) + "\n"
        case "/proc/cmdline":
            return _cmdline(hardware)
        case "/proc/modules":
            return _modules(hardware)
        case "/proc/mounts":
            return _mounts(hardware)
        case _:
            return None


def _os_release(pretty: str) -> str:
    """Return /etc/os-release of a distribution from its pretty name."""
    name = re.split(r"\s+\d", pretty, maxsplit=1)[0]
    version = (re.findall(r"\d+(?:\.\d+)?", pretty) or ["0"])[0]
    family = "ubuntu" if name.lower().startswith("ubuntu") else name.lower().split()[0]
    return (
        f'PRETTY_NAME="{pretty}"\nNAME="{name}"\nVERSION_ID="{version}"\nVERSION="{version}"\nID={family}\n'
        f'HOME_URL="https://www.{family}.com/"\n'
    )


def _cmdline(hardware: Hardware) -> str:
    mode = hardware.node.sku.iommu or "off"
    iommu = {"off": "intel_iommu=off", "pt": "intel_iommu=on iommu=pt", "on": "intel_iommu=on"}[mode]
    kernel = hardware.expected("kernel_release", KERNEL)
    return f"BOOT_IMAGE=/vmlinuz-{kernel} root=/dev/mapper/vg0-root ro {iommu} pci=realloc=off console=tty0\n"


def _modules(hardware: Hardware) -> str:
    modules = ["nfsv4 884736 1", "rpcrdma 331776 1", "nvme 57344 8", "nvme_core 188416 10 nvme"]
    if hardware.nics:
        modules += [
            "rdma_ucm 32768 0",
            "ib_uverbs 167936 2 rdma_ucm,mlx5_ib",
            "mlx5_ib 495616 0",
            "mlx5_core 2236416 1 mlx5_ib",
            "ib_core 442368 4 rdma_ucm,ib_uverbs,mlx5_ib,rpcrdma",
        ]
    if hardware.gpus:
        modules += ["nvidia_uvm 2076672 4", "nvidia_drm 135168 0", "nvidia_modeset 1814528 1 nvidia_drm"]
        modules.append("nvidia 14381056 63 nvidia_uvm,nvidia_modeset")
        if hardware.nics and hardware.expected("nvidia_peermem", "loaded") == "loaded":
            modules.insert(0, "nvidia_peermem 16384 0")
    return "".join(f"{_with_users(m)} Live 0x0000000000000000{_taint(m)}\n" for m in modules)


def _with_users(module: str) -> str:
    return module + "," if module.count(" ") == 3 else module + " -"


def _taint(module: str) -> str:
    return " (OE)" if module.startswith(("nvidia", "mlx5", "ib_", "rdma_ucm", "rpcrdma")) else ""


def _mounts(hardware: Hardware) -> str:
    lines = [
        "sysfs /sys sysfs rw,nosuid,nodev,noexec,relatime 0 0",
        "proc /proc proc rw,nosuid,nodev,noexec,relatime 0 0",
        "/dev/mapper/vg0-root / ext4 rw,relatime 0 0",
        "tmpfs /run tmpfs rw,nosuid,nodev,size=52759600k,mode=755,inode64 0 0",
    ]
    address = f"10.9.{spread(hardware.node.name, 'nfs net', 0, 15)}.{spread(hardware.node.name, 'nfs host', 1, 254)}"
    for mount in hardware.node.sku.nfs_mounts:
        proto = hardware.expected(f"nfs_proto:{mount}", "rdma")
        port = ",port=20049" if proto == "rdma" else ""
        place = mount.replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011")
        lines.append(
            f"10.9.0.1:/export{place} {place} nfs4 rw,relatime,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,hard,"
            f"proto={proto}{port},timeo=600,retrans=2,sec=sys,clientaddr={address},local_lock=none,addr=10.9.0.1 0 0"
        )
    return "\n".join(lines) + "\n"
