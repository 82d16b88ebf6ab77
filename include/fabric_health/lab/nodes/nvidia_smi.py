"""Answers of the NVIDIA driver's tools: nvidia-smi, nv-fabricmanager, /proc/driver/nvidia/version."""

from __future__ import annotations

from datetime import datetime, timedelta
from xml.sax.saxutils import escape

from fabric_health.lab.answer import Answer
from fabric_health.lab.nodes import nvidia_smi_xml as xml
from fabric_health.lab.nodes.hardware import Gpu, Hardware, branch_of, hex_digits, spread


def answer(hardware: Hardware, arguments: tuple[str, ...], now: datetime) -> Answer:
    """Answer `nvidia-smi ARGUMENTS`."""
    match arguments:
        case ("-q", "-x") | ("-x", "-q"):
            return Answer(document(hardware, now))
        case ("nvlink", "-s"):
            return Answer(_nvlink(hardware))
        case ("-L",):
            return Answer("".join(f"GPU {g.index}: {_name(hardware)} (UUID: {g.uuid})\n" for g in hardware.gpus))
        case ("--version",):
            return Answer(
                f"NVIDIA-SMI version  : {hardware.driver}\nNVML version        : {hardware.driver.rpartition('.')[0]}\n"
                f"DRIVER version      : {hardware.driver}\nCUDA Version        : {hardware.cuda}\n"
            )
        case _:
            return Answer(
                'Invalid combination of input arguments. Please run "nvidia-smi -h" for help.\n',
                exit_code=1,
            )


def fabric_manager(hardware: Hardware, arguments: tuple[str, ...]) -> Answer:
    """Answer `nv-fabricmanager ARGUMENTS`; the product only ever asks for the version."""
    if arguments in (("--version",), ("-v",)):
        return Answer(f"Fabric Manager version is : {hardware.fabric_manager}\n")
    return Answer(stderr="nv-fabricmanager: unrecognized option\n", exit_code=1)


def proc_version(hardware: Hardware) -> str:
    """Return /proc/driver/nvidia/version of the loaded kernel module."""
    built = "root@dvs-builder"
    flavor = hardware.expected("kernel_module_flavor", "open")
    module = (
        f"NVIDIA UNIX Open Kernel Module for x86_64  {hardware.kernel_module}  Release Build  ({built})"
        if flavor == "open"
        else f"NVIDIA UNIX x86_64 Kernel Module  {hardware.kernel_module}  Release Build  ({built})"
    )
    compiler = "gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04.2)"
    return f"NVRM version: {module}  Wed Nov  5 09:12:44 UTC 2025\nGCC version:  {compiler}\n"


def document(hardware: Hardware, now: datetime) -> str:
    """Return the document of `nvidia-smi -q -x`: DTD v13 from driver 580 on, v12 before."""
    branch = branch_of(hardware.driver)
    head = xml.HEAD.format(
        dtd=13 if branch >= 580 else 12,
        timestamp=now.strftime("%a %b %d %H:%M:%S %Y"),
        driver=hardware.driver,
        cuda=hardware.cuda,
        count=len(hardware.gpus),
    )
    return head + "\n".join(_gpu(hardware, g, branch, now) for g in hardware.gpus) + xml.TAIL


def _gpu(hardware: Hardware, gpu: Gpu, branch: int, now: datetime) -> str:
    return xml.GPU.format(**_identity(hardware, gpu, branch), **_blocks(hardware, gpu, branch, now), **_live(gpu, now))


def _identity(hardware: Hardware, gpu: Gpu, branch: int) -> dict[str, object]:
    model = hardware.gpu_model
    sm_clock = int(float(hardware.expected("max_sm_clock_mhz", str(model.sm_clock_mhz))))
    return {
        "bus_id": f"0000{gpu.bus.upper()}",
        "name": escape(_name(hardware)),
        "architecture": model.architecture,
        "display_mode": xml.DEPRECATED if branch >= 575 else "Enabled",
        "persistence": hardware.expected("persistence_mode", "enabled").capitalize(),
        "mig": hardware.expected("mig_mode", "disabled").capitalize(),
        "ecc": hardware.expected("ecc_mode", "enabled").capitalize(),
        "serial": gpu.serial,
        "uuid": gpu.uuid,
        "index": gpu.index,
        "vbios": gpu.vbios,
        "board_id": f"0x{gpu.bus[5:7]}00",
        "board_part": model.board_part,
        "gpu_part": model.gpu_part,
        "module": len(hardware.gpus) - gpu.index,
        "gsp": hardware.gsp,
        "pci_bus": gpu.bus[5:7].upper(),
        "pci_device": model.pci_device,
        "subsystem": model.subsystem,
        "gen": gpu.gen,
        "width": gpu.width,
        "width_max": gpu.width_max,
        "memory": model.memory_mib,
        "memory_free": model.memory_mib - 480,
        "bar1": model.bar1_mib,
        "bar1_free": model.bar1_mib - 1,
        "remap_pending": "Yes" if gpu.remap_pending else "No",
        # A row waits to be remapped because of one uncorrectable error in it; the reset that is due activates it.
        "remapped": int(gpu.remap_pending),
        "dram_uncorrectable": int(gpu.remap_pending),
        "dram_correctable": 0,
        "banks_max": model.remap_banks - int(gpu.remap_pending),
        "power_limit": f"{float(hardware.expected('power_limit_w', str(model.power_w))):.2f}",
        "sm_clock": sm_clock,
        "mem_clock": model.memory_clock_mhz,
        "graphics_clocks": "".join(
            xml.leaf(5, "supported_graphics_clock", f"{c} MHz") for c in range(sm_clock, 344, -15)
        ),
    }


def _blocks(hardware: Hardware, gpu: Gpu, branch: int, now: datetime) -> dict[str, object]:
    """Return the parts of the document that only some driver branches have."""
    power_cap_us = spread(gpu.unit, "power cap", 0, 40_000) * 1_000 + hardware.seconds_up(now)
    return {
        "display_attached": xml.leaf(2, "display_attached", "Yes") if branch >= 575 else "",
        "pdi": xml.leaf(2, "pdi", f"0x{hex_digits(gpu.unit, 'pdi', 16)}") if branch >= 580 else "",
        "reset_status": xml.RESET_STATUS if branch < 580 else "",
        "event_counters": xml.EVENT_COUNTERS.format(power_cap_us=power_cap_us) if branch >= 575 else "",
        "ecc_repair": xml.ECC_REPAIR if branch >= 580 else "",
        "health_summary": xml.leaf(4, "summary", "N/A") if branch >= 580 else "",
        "health_configuration": xml.leaf(4, "incorrect_configuration", "N/A") if branch >= 580 else "",
    }


def _live(gpu: Gpu, now: datetime) -> dict[str, object]:
    """Return readings of an idle GPU, which wander a little from minute to minute."""
    minute = f"{now:%Y%m%d%H%M}"
    temperature = spread(gpu.unit, "temperature", 27, 34) + spread(gpu.unit, minute, 0, 2)
    watts = spread(gpu.unit, "power", 6_600, 7_300) + spread(gpu.unit, minute + "power", -40, 40)
    return {
        "temp": temperature,
        "tlimit": 87 - temperature,
        "memory_temp": temperature + spread(gpu.unit, "memory temperature", 6, 9),
        "power": f"{watts / 100:.2f}",
        "memory_power": f"{spread(gpu.unit, 'memory power', 3_000, 3_900) / 100:.2f}",
        "replays": spread(gpu.unit, "replays", 90, 160),
        "tx_util": spread(gpu.unit, minute + "tx", 350, 620),
        "rx_util": spread(gpu.unit, minute + "rx", 350, 620),
        "flushed": f"{now - timedelta(seconds=spread(gpu.unit, 'flush', 600, 50_000)):%Y/%m/%d %H:%M:%S}.740",
        "flush_us": spread(gpu.unit, "flush duration", 80_000, 140_000),
    }


def _name(hardware: Hardware) -> str:
    return hardware.node.sku.gpu_model


def _nvlink(hardware: Hardware) -> str:
    model = hardware.gpu_model
    links = hardware.node.sku.nvlinks_per_gpu
    count = model.nvlinks if links is None else links
    lines = "".join(f"\t Link {i}: {model.nvlink_gbps} GB/s\n" for i in range(count))
    return "".join(f"GPU {g.index}: {_name(hardware)} (UUID: {g.uuid})\n{lines}" for g in hardware.gpus)
