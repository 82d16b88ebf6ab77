"""Host software: kernel, distribution, BIOS, IOMMU, modules, mounts, network driver packages."""

from __future__ import annotations

import re

from fabric_health.checks.driver_firmware.parsers import cells
from fabric_health.checks.driver_firmware.parsers.cells import Cell
from fabric_health.checks.driver_firmware.parsers.text import lines, one_line
from fabric_health.evidence import CommandResult

_KERNEL = re.compile(r"\d{1,3}\.\d{1,4}[\w.+~-]{0,80}")


def only_line(text: str) -> str:
    """Return the single non-empty line of ``text``, or an empty text when there are more or none."""
    found = [line.strip() for line in lines(text) if line.strip()]
    return found[0] if len(found) == 1 else ""


def parse_uname(text: str) -> Cell:
    """Return the kernel release."""
    return cells.matching(only_line(text), _KERNEL, "a kernel release")


def parse_bios(text: str) -> Cell:
    """Return the BIOS version."""
    line = only_line(text)
    # Vendors write what they like, but never a version without a digit: that is a message.
    return cells.phrase(line if re.search(r"[0-9]", line) else None, "a BIOS version")


_ASSIGNMENT = re.compile(r"([A-Z_]{1,40})=(['\"]?)([^'\"]{0,200})\2")


def parse_os_release(text: str) -> Cell:
    """Return PRETTY_NAME of os-release, else NAME and VERSION_ID."""
    fields: dict[str, str] = {}
    for line in lines(text):
        found = _ASSIGNMENT.fullmatch(line.strip())
        if found:
            fields[found[1]] = found[3]
    name = fields.get("PRETTY_NAME") or " ".join(filter(None, (fields.get("NAME"), fields.get("VERSION_ID"))))
    return cells.phrase(name, "PRETTY_NAME or NAME")


def iommu_mode(groups: CommandResult | None, cmdline: CommandResult | None) -> Cell:
    """Return ``off`` without IOMMU groups, ``pt`` when the kernel was told to pass through, else ``on``.

    The groups are the truth (a BIOS can switch off what the command line asks for); of several ``iommu=`` on the
    command line the last one counts.
    """
    problem = cells.failure(groups)
    if problem is not None or groups is None:
        # A kernel without an IOMMU has no such directory.
        gone = groups is not None and groups.ran and "No such file or directory" in groups.stderr[:4096]
        return cells.value("off") if gone else problem or cells.error("not run")
    names = [line.strip() for line in lines(groups.stdout) if line.strip()]
    if not names:
        return cells.value("off")
    if not all(re.fullmatch(r"\d{1,6}", n) for n in names):
        return cells.error(f"IOMMU groups are numbers, got {one_line(groups.stdout, 60)!r}")
    problem = cells.failure(cmdline)
    if problem is not None or cmdline is None:
        return problem or cells.error("not run")
    words = " ".join(lines(cmdline.stdout)).split()
    if not words:
        return cells.error("empty kernel command line")
    passthrough = False
    for word in words:
        key, _equals, given = word.partition("=")
        if key == "iommu":
            passthrough = "pt" in given.split(",")
        elif key == "iommu.passthrough":
            passthrough = given == "1"
    return cells.value("pt" if passthrough else "on")


_MODULE = re.compile(r"([\w-]{1,64}) \d{1,12} -?\d{1,6} \S{1,2000} (Live|Loading|Unloading)(?: .{0,80})?")


def parse_peermem(text: str) -> Cell:
    """Return ``loaded`` or ``absent`` for the module that lets NICs read GPU memory (or its older name)."""
    modules: dict[str, str] = {}
    for line in lines(text):
        found = _MODULE.fullmatch(line.strip())
        if found:
            modules[found[1]] = found[2]
    if not modules:
        return cells.error(f"no module is listed: {one_line(text) or 'empty'}")
    live = any(modules.get(name) == "Live" for name in ("nvidia_peermem", "nv_peer_mem"))
    return cells.value("loaded" if live else "absent")


_OCTAL = re.compile(r"\\([0-3][0-7]{2})")


def parse_nfs_proto(text: str, mount_point: str) -> Cell:
    """Return the value of ``proto=`` of the NFS mount at ``mount_point``; ``not-mounted`` or ``not-nfs`` otherwise.

    Of several mounts on one point the last one is what programs see.
    """
    found: tuple[str, str] | None = None
    mounts = 0
    for line in lines(text):
        fields = line.split()
        if len(fields) != 6:
            continue
        mounts += 1
        where = _OCTAL.sub(lambda m: chr(int(m[1], 8)), fields[1])
        if where == mount_point:
            found = (fields[2], fields[3])
    if not mounts:
        return cells.error(f"no mount is listed: {one_line(text) or 'empty'}")
    if found is None:
        return cells.value("not-mounted")
    if found[0] not in ("nfs", "nfs4"):
        return cells.value("not-nfs")
    proto = next((o.removeprefix("proto=") for o in found[1].split(",") if o.startswith("proto=")), None)
    return cells.matching(proto, re.compile(r"[a-z0-9]{2,10}"), "proto= in the mount options")


_OFED = re.compile(r"((?:MLNX_OFED_LINUX|OFED-internal|DOCA-OFED|MLNX_EN|mlnx-en)[\w.-]{0,60}\d):?", re.I)


def parse_ofed(text: str) -> Cell:
    """Return what ``ofed_info -s`` names, without the colon."""
    for line in lines(text):
        found = _OFED.fullmatch(line.strip())
        if found:
            return cells.value(found[1])
    return cells.error(f"no OFED version: {one_line(text) or 'empty'}")


# Profiles, widest first. `doca-host` is left out: it only brings the package repository.
_PROFILES = ("doca-all", "doca-networking", "doca-ofed", "doca-roce", "doca-host-basic")


def parse_packages(text: str) -> Cell:
    """Return the version of the installed DOCA profile from lines ``name<TAB>version``."""
    versions: dict[str, str] = {}
    for line in lines(text):
        name, tab, given = line.strip(" \r").partition("\t")
        if not tab and name:
            return cells.error(f"{one_line(name, 60)!r} is not a package with its version")
        if given.strip():
            versions[name.partition(":")[0]] = given.strip()
    for profile in _PROFILES:
        if profile in versions:
            return cells.version(versions[profile])
    return cells.unsupported("no DOCA profile package is installed")
