"""`nvidia-smi -q -x` of drivers 530 to 595 (DTD v12 and v13) and `nvidia-smi nvlink -s`.

Full paths only: power, memory and ECC elements repeat under MIG devices and modules. Elements came and went with
driver versions; what a version does not have is unsupported, what it should have and does not is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fabric_health.checks.driver_firmware.parsers import cells
from fabric_health.checks.driver_firmware.parsers.cells import Cell
from fabric_health.checks.driver_firmware.parsers.text import MAX_CHARS, clean, lines, one_line
from fabric_health.checks.driver_firmware.parsers.xml_tree import Element, XmlError, parse_xml
from fabric_health.datasets.tables import FactState

MAX_GPUS = 64


@dataclass(frozen=True)
class Gpu:
    """One GPU: its PCI address (``0000:5a:00.0``) and the cells of all attributes in ``GPU_ATTRIBUTES``."""

    pci: str
    cells: dict[str, Cell]


@dataclass(frozen=True)
class Smi:
    """The answer of nvidia-smi: node-wide versions and the GPUs it could open, in the order of their PCI addresses.

    ``problem`` is set when there is no document to read; the other fields are then empty.
    """

    driver_version: Cell
    cuda_version: Cell
    gpus: tuple[Gpu, ...] = ()
    problem: Cell | None = None


@dataclass(frozen=True)
class _Spec:
    paths: tuple[str, ...]
    make: Callable[[str], Cell]
    dated: bool = False  # only some driver versions have it


_ENABLED = {"Enabled": "enabled", "Disabled": "disabled"}
_YES_NO = {"Yes": "yes", "No": "no"}
_UNSUPPORTED = frozenset({"n/a", "[n/a]", "not supported", "[not supported]"})
_BUS_ID = re.compile(r"(?:[0-9a-f]{4})?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})\.([0-7])")
_SERIAL = re.compile(r"[0-9A-Za-z]{6,32}")
_UUID = re.compile(r"GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_VBIOS = re.compile(r"[0-9A-Fa-f]{2}(?:\.[0-9A-Fa-f]{2}){4}")
_STATUS = re.compile(r"[A-Za-z][A-Za-z0-9 _.,:()/-]{0,120}")
_RECOVERY = {
    "None": "None",
    "Reset": "Reset",
    "Reboot": "Reboot",
    "Drain P2P": "Drain P2P",
    "Drain and Reset": "Drain and Reset",
}
_FABRIC_STATE = {"Not Started": "Not Started", "In Progress": "In Progress", "Completed": "Completed"}
# GPU idle is left out: it says that there is no load, not that something holds the clocks down.
_REASONS = (
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "display_clocks_setting",
)


def _amount(unit: str, *, whole: bool = True) -> Callable[[str], Cell]:
    number = r"([0-9]{1,9})" if whole else r"([0-9]{1,9}(?:\.[0-9]{1,4})?)"
    pattern = re.compile(rf"{number} ?{unit}")

    def make(text: str) -> Cell:
        found = pattern.fullmatch(text)
        if found is None:
            return cells.error(f"{text!r}; expected a number of {unit}")
        whole_part, _dot, fraction = found[1].partition(".")
        fraction = fraction.rstrip("0")
        return cells.value(f"{int(whole_part)}.{fraction}" if fraction else str(int(whole_part)))

    return make


def _pattern(pattern: re.Pattern[str], what: str) -> Callable[[str], Cell]:
    return lambda text: cells.matching(text, pattern, what)


def _word(choices: dict[str, str]) -> Callable[[str], Cell]:
    return lambda text: cells.choice(text, choices)


def _model(text: str) -> Cell:
    return cells.phrase(text, "a product name")


_LINK = "pci/pci_gpu_link_info"
_AGGREGATE = "ecc_errors/aggregate"
_SPECS: dict[str, _Spec] = {
    "gpu_model": _Spec(("product_name",), _model),
    "serial": _Spec(("serial",), _pattern(_SERIAL, "a serial number")),
    "uuid": _Spec(("uuid",), _pattern(_UUID, "GPU-<uuid>")),
    "vbios_version": _Spec(("vbios_version",), _pattern(_VBIOS, "five hex bytes with dots")),
    "gsp_firmware_version": _Spec(("gsp_firmware_version",), cells.version, dated=True),
    "persistence_mode": _Spec(("persistence_mode",), _word(_ENABLED)),
    "mig_mode": _Spec(("mig_mode/current_mig",), _word(_ENABLED)),
    "ecc_mode": _Spec(("ecc_mode/current_ecc",), _word(_ENABLED)),
    "ecc_mode_pending": _Spec(("ecc_mode/pending_ecc",), _word(_ENABLED)),
    "pcie_gen": _Spec((f"{_LINK}/pcie_gen/current_link_gen",), cells.count),
    "pcie_gen_max": _Spec((f"{_LINK}/pcie_gen/max_link_gen",), cells.count),
    "pcie_width": _Spec((f"{_LINK}/link_widths/current_link_width",), _amount("x")),
    "pcie_width_max": _Spec((f"{_LINK}/link_widths/max_link_width",), _amount("x")),
    "ecc_sram_correctable": _Spec((f"{_AGGREGATE}/sram_correctable",), cells.count),
    "ecc_dram_correctable": _Spec((f"{_AGGREGATE}/dram_correctable",), cells.count),
    "ecc_dram_uncorrectable": _Spec((f"{_AGGREGATE}/dram_uncorrectable",), cells.count),
    "sram_threshold_exceeded": _Spec((f"{_AGGREGATE}/sram_threshold_exceeded",), _word(_YES_NO), dated=True),
    "remapped_rows_correctable": _Spec(("remapped_rows/remapped_row_corr",), cells.count),
    "remapped_rows_uncorrectable": _Spec(("remapped_rows/remapped_row_unc",), cells.count),
    "remap_pending": _Spec(("remapped_rows/remapped_row_pending",), _word(_YES_NO)),
    "remap_failure": _Spec(("remapped_rows/remapped_row_failure",), _word(_YES_NO)),
    "fabric_state": _Spec(("fabric/state",), _word(_FABRIC_STATE), dated=True),
    "fabric_status": _Spec(("fabric/status",), _pattern(_STATUS, "a status"), dated=True),
    "max_sm_clock_mhz": _Spec(("max_clocks/sm_clock",), _amount("MHz")),
    "power_limit_w": _Spec(
        (
            "gpu_power_readings/current_power_limit",
            "gpu_power_readings/power_limit",
            "power_readings/current_power_limit",
            "power_readings/power_limit",
        ),
        _amount("W", whole=False),
    ),
    "temperature_c": _Spec(("temperature/gpu_temp",), _amount("C")),
}
_COMPUTED = (
    "pci_bus_id",
    "ecc_sram_uncorrectable",
    "ecc_sram_uncorrectable_volatile",
    "recovery_action",
    "throttle_reasons",
)
NVLINK_ATTRIBUTES: tuple[str, ...] = ("nvlinks_active", "nvlinks_inactive")
GPU_ATTRIBUTES: tuple[str, ...] = (*_SPECS, *_COMPUTED)
_ROOT_END = "</nvidia_smi_log>"


def parse_smi(text: str) -> Smi:
    """Read the XML document in ``text``; warnings before and after it are skipped, half a document is a problem."""
    if len(text) > MAX_CHARS:
        return _no_document("output larger than any nvidia-smi writes")
    text = clean(text)
    starts = [i for i in (text.find("<?xml"), text.find("<nvidia_smi_log")) if i >= 0]
    if not starts:
        return _no_document(one_line(text) or "nothing printed")
    end = text.rfind(_ROOT_END)
    if end < 0:
        return _no_document("XML ends before </nvidia_smi_log>")
    try:
        root = parse_xml(text[min(starts) : end + len(_ROOT_END)])
    except XmlError as problem:
        return _no_document(str(problem))
    if root.tag != "nvidia_smi_log":
        return _no_document(f"XML of <{root.tag}>; expected <nvidia_smi_log>")
    return _read(root)


def _no_document(detail: str) -> Smi:
    problem = cells.error(detail)
    return Smi(problem, problem, problem=problem)


def _read(root: Element) -> Smi:
    gpus: dict[str, Gpu] = {}
    for element in root.all("gpu"):
        pci = normal_pci(element.attributes.get("id", "") or element.leaf("pci/pci_bus_id") or "")
        if pci is None or pci in gpus or len(gpus) >= MAX_GPUS:
            return _no_document("a <gpu> without an address of its own")
        gpus[pci] = Gpu(pci, _gpu_cells(element, pci))
    attached = root.leaf("attached_gpus")
    if not gpus and attached != "0":
        return _no_document(f"no <gpu> in the document, {attached or 'no'} GPUs attached")
    return Smi(
        driver_version=_cell(root, _Spec(("driver_version",), cells.version)),
        cuda_version=_cell(root, _Spec(("cuda_version",), cells.version)),
        gpus=tuple(gpus[pci] for pci in sorted(gpus)),
    )


def normal_pci(text: str) -> str | None:
    """Return a PCI address as ``0000:5a:00.0`` (8-digit domains and upper case accepted), None for anything else."""
    found = _BUS_ID.fullmatch(text[:32].strip().lower())
    return f"{found[1]}.{found[2]}" if found else None


def _gpu_cells(gpu: Element, pci: str) -> dict[str, Cell]:
    out = {attribute: _cell(gpu, spec) for attribute, spec in _SPECS.items()}
    out["pci_bus_id"] = cells.value(pci)
    out["ecc_sram_uncorrectable"] = _sram_uncorrectable(gpu, "aggregate")
    out["ecc_sram_uncorrectable_volatile"] = _sram_uncorrectable(gpu, "volatile")
    out["recovery_action"] = _recovery_action(gpu)
    out["throttle_reasons"] = _throttle_reasons(gpu)
    return out


def _text_at(gpu: Element, path: str) -> str | None:
    """Return the text at ``path``. A parent that holds text instead of children speaks for all of them."""
    here = gpu
    for tag in path.split("/"):
        below = next(here.all(tag), None)
        if below is None:
            return here.text if here is not gpu and not here.children else None
        here = below
    return here.text


def _cell(gpu: Element, spec: _Spec) -> Cell:
    text = next((t for t in (_text_at(gpu, p) for p in spec.paths) if t is not None), None)
    if text is None:
        missing = f"no element {spec.paths[0]}"
        return cells.unsupported(f"{missing} in this driver version") if spec.dated else cells.error(missing)
    if text.casefold() in _UNSUPPORTED:
        return cells.unsupported(text)
    if text == "Insufficient Permissions":
        return cells.error(f"permission: {text}")
    return spec.make(text)


def _sram_uncorrectable(gpu: Element, kind: str) -> Cell:
    """Return the count; driver 555 and later split it by how the error was found (parity, SECDED)."""
    base = f"ecc_errors/{kind}"
    whole = _cell(gpu, _Spec((f"{base}/sram_uncorrectable",), cells.count))
    if gpu.find(f"{base}/sram_uncorrectable") is not None:
        return whole
    parts = [_cell(gpu, _Spec((f"{base}/sram_uncorrectable_{how}",), cells.count)) for how in ("parity", "secded")]
    return _total(parts)


def _total(parts: Sequence[Cell]) -> Cell:
    for state in (FactState.ERROR, FactState.UNSUPPORTED):
        bad = [p for p in parts if p.state is state]
        if bad and (state is FactState.ERROR or len(bad) == len(parts)):
            return bad[0]
        if bad:
            return cells.error("only some of its parts are supported")
    return cells.value(str(sum(int(p.value or "") for p in parts)))


def _recovery_action(gpu: Element) -> Cell:
    """Return the recovery action; drivers before 570 had two yes/no elements for what is one word now."""
    if gpu.find("gpu_recovery_action") is not None:
        return _cell(gpu, _Spec(("gpu_recovery_action",), _word(_RECOVERY)))
    if gpu.find("gpu_reset_status") is None:
        return cells.unsupported("no element gpu_recovery_action in this driver version")
    reset = _cell(gpu, _Spec(("gpu_reset_status/reset_required",), _word(_YES_NO)))
    drain = _cell(gpu, _Spec(("gpu_reset_status/drain_and_reset_recommended",), _word(_YES_NO)))
    if reset.value == "yes":
        return cells.value("Reset")
    if drain.value == "yes":
        return cells.value("Drain and Reset")
    return cells.value("None") if reset.value == "no" else reset


def _throttle_reasons(gpu: Element) -> Cell:
    """Return what holds the clocks down, comma separated; drivers up to 530 say "throttle" instead of "event"."""
    for family in ("clocks_event_reason", "clocks_throttle_reason"):
        if gpu.find(f"{family}s") is not None:
            break
    else:
        return cells.error("no element clocks_event_reasons")
    active: list[str] = []
    judged = 0
    for reason in _REASONS:
        path = f"{family}s/{family}_{reason}"
        cell = _cell(gpu, _Spec((path,), _word({"Active": "yes", "Not Active": "no"}), dated=True))
        if cell.state is FactState.ERROR:
            return cells.error(f"{path}: {cell.detail}")
        judged += cell.state is FactState.VALUE
        if cell.value == "yes":
            active.append(reason)
    if not judged:
        return cells.unsupported("no reason is reported on this GPU")
    return cells.value(",".join(sorted(active)) or "none")


@dataclass(frozen=True)
class NvLinks:
    """NVLink cells of one GPU as ``nvidia-smi nvlink -s`` names it."""

    index: int
    uuid: str | None
    active: Cell
    inactive: Cell


_NVLINK_GPU = re.compile(r"GPU (\d{1,3}): [^\n]{0,200}?(?:\(UUID: (GPU-[0-9a-fA-F-]{36})\))?")
_NVLINK_LINK = re.compile(r"Link (\d{1,3}): (.{1,80})")
_NVLINK_RATE = re.compile(r"\d{1,5}(?:\.\d{1,4})? GB/s")


def parse_nvlink(text: str) -> tuple[NvLinks, ...]:
    """Return one entry a GPU, in the order printed. A link asleep (low power) counts as active."""
    out: list[NvLinks] = []
    header: re.Match[str] | None = None
    body: list[str] = []
    for raw in lines(text):
        line = raw.strip()
        found = _NVLINK_GPU.fullmatch(line)
        if found:
            if header:
                out.append(_nvlinks(header, body))
            header, body = found, []
        elif header and line:
            body.append(line)
    if header:
        out.append(_nvlinks(header, body))
    return tuple(out[:MAX_GPUS])


def _nvlinks(header: re.Match[str], body: Sequence[str]) -> NvLinks:
    states: dict[int, str] = {}
    problem: Cell | None = None
    for line in body:
        link = _NVLINK_LINK.fullmatch(line)
        if link and int(link[1]) not in states:
            states[int(link[1])] = link[2].strip()
        elif "not supported" in line.casefold():
            problem = cells.unsupported(line)
        elif link:
            problem = cells.error(f"link {link[1]} is listed twice")
    up = sum(bool(_NVLINK_RATE.fullmatch(s)) or s.casefold() == "sleep" for s in states.values())
    down = sum(s.strip("<>").casefold() in ("inactive", "disabled") for s in states.values())
    if problem is None and not states:
        problem = cells.unsupported("no links are listed")
    if problem is None and up + down != len(states):
        odd = next(s for s in states.values() if not _NVLINK_RATE.fullmatch(s) and s.casefold() != "sleep")
        problem = cells.error(f"a link in a state that is not known: {odd!r}")
    index, uuid = int(header[1]), header[2]
    if problem is not None:
        return NvLinks(index, uuid, problem, problem)
    return NvLinks(index, uuid, cells.value(str(up)), cells.value(str(down)))
