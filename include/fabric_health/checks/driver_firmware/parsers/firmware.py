"""Flashed firmware: ``mlxfwmanager --query`` in XML (or text), ``mstflint q``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fabric_health.checks.driver_firmware.parsers.text import MAX_CHARS, clean, lines
from fabric_health.checks.driver_firmware.parsers.xml_tree import Element, XmlError, parse_xml

MAX_DEVICES = 256
_VERSION = re.compile(r"\d{1,4}(?:\.\d{1,6}){2,3}")
_PART = re.compile(r"[A-Za-z0-9][\w-]{2,48}")
_PCI = re.compile(r"(?:([0-9a-f]{4}):)?([0-9a-f]{2}:[0-9a-f]{2})\.[0-7]")


@dataclass(frozen=True)
class FlashedDevice:
    """Firmware in a NIC's flash: what runs after the next reset. ``slot`` is its PCI address without function."""

    slot: str | None
    guid: str | None
    psid: str | None
    part_number: str | None
    type: str | None
    flashed: str | None
    running: str | None = None


def slot(pci: str | None) -> str | None:
    """Return ``0000:5e:00`` of ``0000:5e:00.0`` or ``5e:00.0``; both ports of a card share it."""
    found = _PCI.fullmatch((pci or "")[:32].strip().lower())
    return f"{found[1] or '0000'}:{found[2]}" if found else None


def parse_mlxfwmanager(text: str) -> tuple[FlashedDevice, ...]:
    """Return the devices of ``mlxfwmanager --query``, XML or text. Raises ValueError when it lists none."""
    text = clean(text[:MAX_CHARS])
    start = text.find("<Devices")
    if start < 0:
        devices = _text_devices(text)
    else:
        end = text.rfind("</Devices>")
        if end < start:
            raise ValueError("XML ends before </Devices>")
        try:
            root = parse_xml(text[start : end + len("</Devices>")])
        except XmlError as problem:
            raise ValueError(str(problem)) from None
        devices = [_xml_device(d) for d in root.all("Device")]
    if not devices:
        raise ValueError("no device is listed")
    return tuple(devices[:MAX_DEVICES])


def _xml_device(device: Element) -> FlashedDevice:
    given = device.attributes
    firmware = device.find("Versions/FW")
    guids = device.find("GUIDs")
    return FlashedDevice(
        slot=slot(given.get("pciName")),
        guid=_hex16(next(iter(guids.attributes.values()), None)) if guids else None,
        psid=_match(_PART, given.get("psid")),
        part_number=_match(_PART, given.get("partNumber")),
        type=_match(_PART, given.get("type")),
        flashed=_match(_VERSION, firmware.attributes.get("current")) if firmware else None,
    )


_TEXT_FIELD = re.compile(r"([A-Z][A-Za-z0-9 ]{1,30}):\s{1,40}(\S.{0,120})")
_TEXT_FIRMWARE = re.compile(r"FW\s{1,40}(\S{1,32})\s{1,40}\S.{0,80}")


def _text_devices(text: str) -> list[FlashedDevice]:
    blocks: list[dict[str, str]] = []
    for raw in lines(text):
        line = raw.strip()
        if re.fullmatch(r"Device #\d{1,3}:", line):
            blocks.append({})
            continue
        if not blocks:
            continue
        firmware = _TEXT_FIRMWARE.fullmatch(line)
        found = _TEXT_FIELD.fullmatch(line)
        if firmware:
            blocks[-1].setdefault("FW", firmware[1])
        elif found:
            blocks[-1].setdefault(found[1], found[2].strip())
    return [
        FlashedDevice(
            slot=slot(b.get("PCI Device Name")),
            guid=_hex16(b.get("Base GUID") or b.get("Port1 GUID")),
            psid=_match(_PART, b.get("PSID")),
            part_number=_match(_PART, b.get("Part Number")),
            type=_match(_PART, b.get("Device Type")),
            flashed=_match(_VERSION, b.get("FW")),
        )
        for b in blocks
    ]


_FLINT_FIELD = re.compile(r"([A-Z][A-Za-z0-9 ()]{1,30}):\s{1,30}(\S.{0,120})")


def parse_mstflint(text: str) -> FlashedDevice:
    """Read ``mstflint q``. Raises ValueError when it names no firmware version.

    ``FW Version(Running)`` is printed only when it differs; ``FW Version`` is then the one of the next boot.
    """
    fields: dict[str, str] = {}
    for raw in lines(text):
        found = _FLINT_FIELD.fullmatch(raw.strip())
        if found:
            fields.setdefault(found[1], found[2].strip())
    flashed = _match(_VERSION, fields.get("FW Version"))
    if flashed is None:
        raise ValueError("no FW Version")
    return FlashedDevice(
        slot=None,
        guid=_hex16(fields.get("Base GUID", "").partition(" ")[0]),
        psid=_match(_PART, fields.get("PSID")),
        part_number=_match(_PART, fields.get("Part Number")),
        type=None,
        flashed=flashed,
        running=_match(_VERSION, fields.get("FW Version(Running)")) or flashed,
    )


def _match(pattern: re.Pattern[str], text: str | None) -> str | None:
    return text if text is not None and len(text) < 64 and pattern.fullmatch(text) else None


def _hex16(text: str | None) -> str | None:
    digits = (text or "")[:32].strip().lower().removeprefix("0x")
    return digits if re.fullmatch(r"[0-9a-f]{16}", digits) else None
