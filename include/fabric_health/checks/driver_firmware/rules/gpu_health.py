"""GPU health rules: memory errors and row remaps, recovery action, throttling, NVLink and NVSwitch fabric."""

from __future__ import annotations

from collections.abc import Iterator

from fabric_health.checks.driver_firmware.rules.attributes import DEFAULTS
from fabric_health.checks.driver_firmware.rules.rule import (
    AZURE_NHC,
    FABRIC_MANAGER,
    MEMORY_ERRORS,
    NVIDIA_SMI,
    NVML,
    deviation,
)
from fabric_health.checks.driver_firmware.view import NodeView, Part
from fabric_health.datasets.tables import Finding, Severity

RESET = "Drain the node and reset the GPU (nvidia-smi -r -i INDEX, or reboot)."
RMA = "Drain the node, run the field diagnostic, and replace the GPU if it confirms."
# "sw_power_cap" is what a busy GPU at its power limit shows; idle and application clocks are settings, not trouble.
_HARDWARE_THROTTLE = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")


def gpu_findings(view: NodeView) -> Iterator[Finding]:
    """Judge the health of every GPU that the node showed."""
    for gpu in view.gpus:
        lost = _lost(view, gpu)
        if lost:
            yield lost
            continue
        yield from _remaps(view, gpu)
        yield from _ecc_pending(view, gpu)
        yield from _sram(view, gpu)
        yield from _corrected(view, gpu)
        yield from _throttle(view, gpu)
        yield from _nvlinks(view, gpu)
        yield from _fabric(view, gpu)


def _lost(view: NodeView, gpu: Part) -> Finding | None:
    """Find a GPU whose live cells say that it is gone: name and serial stay readable, so it still counts as present."""
    for attribute, fact in sorted(view.facts[gpu.unit].items()):
        said = (fact.detail or "").lower()
        if "gpu is lost" in said or "gpu requires reset" in said:
            lost = "lost" in said
            return deviation(
                gpu,
                "gpu_responds",
                "responds",
                Severity.CRITICAL,
                f"{gpu.unit} {'is lost: it no longer answers on PCIe' if lost else 'has to be reset before use'}",
                expected="every cell readable",
                actual=f"{attribute}: {fact.detail}",
                action="Drain and power-cycle the node; reseat or replace the GPU if it comes back." if lost else RESET,
                source=NVML,
                command=fact.command,
            )
    return None


def _remaps(view: NodeView, gpu: Part) -> Iterator[Finding]:
    """One finding on memory remaps and the recovery action: a pending remap is why a reset is asked for."""
    failure, pending = view.text(gpu, "remap_failure"), view.text(gpu, "remap_pending")
    rows, limit = view.number(gpu, "remapped_rows_uncorrectable"), view.thresholds.remapped_rows_uncorrectable
    action = view.text(gpu, "recovery_action")
    if failure == "yes" or (rows is not None and rows > limit):
        why = "row remapping failed" if failure == "yes" else f"{rows} rows were remapped for uncorrectable errors"
        yield deviation(
            gpu,
            "remap_failure",
            "remap_failure",
            Severity.CRITICAL,
            f"{gpu.unit}: {why}, its memory can no longer be repaired",
            expected=f"no failure, at most {limit} rows remapped",
            actual=f"failure {failure or 'unknown'}, {'unknown' if rows is None else rows} rows",
            action=RMA,
            source=MEMORY_ERRORS,
            command=view.command(gpu, "remap_failure"),
        )
    elif pending == "yes":
        asked = f"; recovery action {action}" if action not in (None, "None") else ""
        yield deviation(
            gpu,
            "remap_pending",
            "remap_pending",
            Severity.WARNING,
            f"{gpu.unit}: a row remap is pending and takes effect at the next GPU reset{asked}",
            expected="no",
            actual=f"yes{asked}",
            action=RESET,
            source=MEMORY_ERRORS,
            command=view.command(gpu, "remap_pending"),
        )
        if action in ("Reset", "Drain and Reset"):
            return
    if action is not None and action != "None":
        yield deviation(
            gpu,
            "recovery_action",
            "recovery_action",
            Severity.WARNING if action == "Drain P2P" else Severity.CRITICAL,
            f"The driver asks for a recovery action on {gpu.unit}: {action}",
            expected="None",
            actual=action,
            action=f"Drain the node, then: {action}.",
            source=MEMORY_ERRORS,
            command=view.command(gpu, "recovery_action"),
        )


def _ecc_pending(view: NodeView, gpu: Part) -> Iterator[Finding]:
    current, pending = view.text(gpu, "ecc_mode"), view.text(gpu, "ecc_mode_pending")
    wanted = view.node.sku.expected.get("ecc_mode", DEFAULTS["ecc_mode"])
    # A mode that is off already has its finding (versions), whose action includes the reset.
    if current != wanted or pending is None or pending == current:
        return
    yield deviation(
        gpu,
        "ecc_pending",
        "ecc_mode_pending",
        Severity.WARNING,
        f"ECC of {gpu.unit} will be {pending} after its next reset",
        expected=current,
        actual=pending,
        action=f"nvidia-smi -e {1 if current == 'enabled' else 0} -i INDEX, unless the change is wanted.",
        source=NVIDIA_SMI,
        command=view.command(gpu, "ecc_mode_pending"),
    )


def _sram(view: NodeView, gpu: Part) -> Iterator[Finding]:
    limit = view.thresholds.ecc_sram_uncorrectable
    total = view.number(gpu, "ecc_sram_uncorrectable")
    recent = view.number(gpu, "ecc_sram_uncorrectable_volatile")
    exceeded = view.text(gpu, "sram_threshold_exceeded") == "yes"
    fresh = recent is not None and recent > limit
    if not (exceeded or fresh or (total is not None and total > limit)):
        return
    if exceeded:
        what, action = "SRAM errors exceeded the limit that NVIDIA sets for replacement", RMA
    elif fresh:
        what, action = f"{recent} uncorrectable SRAM errors since the driver was loaded", RESET
    else:
        what, action = f"{total} uncorrectable SRAM errors in its life", "Watch it; run the field diagnostic."
    yield deviation(
        gpu,
        "ecc_sram_uncorrectable",
        "ecc_sram_uncorrectable",
        Severity.CRITICAL if exceeded or fresh else Severity.WARNING,
        f"{gpu.unit}: {what}",
        expected=f"<= {limit}, threshold not exceeded",
        actual=f"{_shown(recent)} since load, {_shown(total)} in total, threshold {'' if exceeded else 'not '}exceeded",
        action=action,
        source=MEMORY_ERRORS if exceeded else AZURE_NHC,
        command=view.command(gpu, "ecc_sram_uncorrectable"),
    )


def _shown(number: int | None) -> str:
    return "unknown" if number is None else str(number)


def _corrected(view: NodeView, gpu: Part) -> Iterator[Finding]:
    limits = {
        "ecc_sram_correctable": view.thresholds.ecc_sram_correctable,
        "ecc_dram_correctable": view.thresholds.ecc_dram_correctable,
    }
    for attribute, limit in limits.items():
        count = view.number(gpu, attribute)
        if count is not None and count > limit:
            yield deviation(
                gpu,
                attribute,
                attribute,
                Severity.WARNING,
                f"{gpu.unit} has corrected {count} memory errors ({attribute.removeprefix('ecc_')})",
                expected=f"<= {limit}",
                actual=str(count),
                action="Run the field diagnostic at the next maintenance; replace the GPU if it confirms.",
                source=AZURE_NHC,
                command=view.command(gpu, attribute),
            )


def _throttle(view: NodeView, gpu: Part) -> Iterator[Finding]:
    reasons = view.text(gpu, "throttle_reasons")
    active = [r.strip() for r in (reasons or "").split(",")]
    hardware = [r for r in active if r in _HARDWARE_THROTTLE or r.startswith("hw_")]
    if hardware:
        yield deviation(
            gpu,
            "throttling",
            "throttle_reasons",
            Severity.WARNING,
            f"{gpu.unit} runs at reduced clocks: {', '.join(hardware)}",
            expected="no hardware or thermal throttling",
            actual=reasons,
            action="Check cooling, power supplies and power cables of the node; compare GPU temperatures.",
            source=NVIDIA_SMI,
            command=view.command(gpu, "throttle_reasons"),
        )


def _nvlinks(view: NodeView, gpu: Part) -> Iterator[Finding]:
    wanted = view.node.sku.nvlinks_per_gpu
    # With MIG on, nvidia-smi does not report links at all; MIG itself is judged elsewhere.
    if not wanted or view.peek(gpu, "mig_mode") == "enabled":
        return
    active = view.number(gpu, "nvlinks_active", required=True)
    inactive = view.number(gpu, "nvlinks_inactive", required=True)
    if active is None or (active == wanted and not inactive):
        return
    yield deviation(
        gpu,
        "nvlinks",
        "nvlinks_active",
        Severity.CRITICAL if active < wanted else Severity.WARNING,
        f"{gpu.unit} has {active} of {wanted} NVLinks active",
        expected=f"{wanted} active, 0 inactive",
        actual=f"{active} active, {_shown(inactive)} inactive",
        action="Read nvidia-smi nvlink -s and -e; reset the GPUs of the node, then suspect baseboard or GPU.",
        source=NVML,
        command=view.command(gpu, "nvlinks_active"),
    )


def _fabric(view: NodeView, gpu: Part) -> Iterator[Finding]:
    state = view.text(gpu, "fabric_state")
    if state is None:
        return
    status = view.text(gpu, "fabric_status") if state == "Completed" else view.peek(gpu, "fabric_status")
    if state == "Completed" and status in (None, "Success"):
        return
    actual = f"{state}, {status}" if status else state
    yield deviation(
        gpu,
        "fabric_state",
        "fabric_state",
        Severity.CRITICAL,
        f"{gpu.unit} did not join the NVLink fabric: {actual}",
        expected="Completed, Success",
        actual=actual,
        action="Read /var/log/fabricmanager.log; restart nvidia-fabricmanager, then reset the GPU.",
        source=FABRIC_MANAGER,
        command=view.command(gpu, "fabric_state"),
    )
