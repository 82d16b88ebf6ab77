"""Driver stack rules: the parts of NVIDIA's stack on a node are of one version and answer each other."""

from __future__ import annotations

from collections.abc import Iterator

from fabric_health.checks.driver_firmware.rules.rule import FABRIC_MANAGER, GSP, NVIDIA_SMI, deviation
from fabric_health.checks.driver_firmware.view import NodeView, Part
from fabric_health.datasets.tables import FactState, Finding, Severity

INSTALL = "Drain the node, install the parts from one release, and reboot (or reload the modules)."
# What nvidia-smi says when user space and kernel do not fit, and what it means for the node.
_FAILURES = {
    "version mismatch": ("user space and the loaded kernel module are of different versions", INSTALL),
    "communicate with the nvidia driver": (
        "the kernel module is not loaded or does not answer",
        "Read dmesg | grep NVRM; load the module or reinstall the driver for this kernel (DKMS).",
    ),
    "no devices were found": (
        "the driver finds no GPU",
        "Read dmesg | grep NVRM and lspci -d 10de:; power-cycle the node.",
    ),
}


def stack_findings(view: NodeView) -> Iterator[Finding]:
    """Judge the NVIDIA stack of a node with GPUs."""
    if not view.node.sku.gpus:
        return
    failure = _failure(view)
    if failure:
        yield failure
        return
    driver = view.text(view.part, "driver_version", required=True)
    if driver is None:
        return
    yield from _mismatch(view, driver)
    yield from _gsp(view, view.peek(view.part, "kernel_module_version") or driver)


def _failure(view: NodeView) -> Finding | None:
    fact = view.fact(view.part, "driver_version")
    if fact is None or fact.state != FactState.ERROR:
        return None
    said = (fact.detail or "").lower()
    for text, (meaning, action) in _FAILURES.items():
        if text in said:
            module = view.peek(view.part, "kernel_module_version")
            return deviation(
                view.part,
                "driver_responds",
                "driver_version",
                Severity.CRITICAL,
                f"nvidia-smi fails on {view.node.name}: {meaning}" + (f" (module {module})" if module else ""),
                expected="nvidia-smi answers",
                actual=fact.detail,
                action=action,
                source=NVIDIA_SMI,
                command=fact.command,
            )
    return None


def _mismatch(view: NodeView, driver: str) -> Iterator[Finding]:
    """One finding, however many parts differ from the driver: they come from one package set."""
    parts = {"kernel_module_version": ("kernel module", "NVML and CUDA fail for new processes", NVIDIA_SMI)}
    if view.node.sku.has_fabric_manager:
        effect = "CUDA cannot initialise GPUs behind NVSwitch (error 802)"
        parts["fabric_manager_version"] = ("fabric manager", effect, FABRIC_MANAGER)
    versions = {attribute: view.text(view.part, attribute, required=True) for attribute in parts}
    off = {attribute: version for attribute, version in versions.items() if version not in (None, driver)}
    if not off:
        return
    first = next(iter(off))
    shown = ", ".join(f"{parts[attribute][0]} {version}" for attribute, version in off.items())
    yield deviation(
        view.part,
        "driver_stack_matches",
        first if len(off) == 1 else "driver_stack",
        Severity.CRITICAL,
        f"Driver of {view.node.name} is {driver}, but {shown}: {parts[first][1]}",
        expected=driver,
        actual=shown,
        action=INSTALL,
        source=parts[first][2],
        command=view.command(view.part, first),
    )


def _gsp(view: NodeView, module: str) -> Iterator[Finding]:
    """GSP firmware is loaded by the kernel module; one finding on the node when all its GPUs show the same other."""
    off: list[tuple[Part, str]] = []
    for gpu in view.gpus:
        version = view.text(gpu, "gsp_firmware_version")
        if version is not None and version != module:
            off.append((gpu, version))
    if len(off) > 1 and len(off) == len(view.gpus) and len({version for _, version in off}) == 1:
        off = [(view.part, off[0][1])]
    for part, version in off:
        yield deviation(
            part,
            "driver_stack_matches",
            "gsp_firmware_version",
            Severity.WARNING,
            f"GSP firmware of {'all GPUs of ' if part == view.part else ''}{part.unit} is {version}, "
            f"the kernel module is {module}",
            expected=module,
            actual=version,
            action=INSTALL,
            source=GSP,
            command=view.command(view.gpus[0] if part == view.part else part, "gsp_firmware_version"),
        )
