"""Answers about NIC firmware and host software of the fabric: mlxfwmanager, mstflint, ofed_info, package managers."""

from __future__ import annotations

from xml.sax.saxutils import escape

from fabric_health.lab.answer import Answer, not_installed
from fabric_health.lab.nodes.hardware import Hardware, LabNic

_OFED = "MLNX_OFED_LINUX-24.10-2.1.8.0"
_PXE, _UEFI = "3.7.0500", "14.36.0021"
# DOCA profiles and the packages behind them; `doca-ofed` is the one that a compute node installs.
_DOCA_PACKAGES = ("doca-ofed", "doca-ofed-userspace")


def answer_mlxfwmanager(hardware: Hardware, arguments: tuple[str, ...]) -> Answer:
    """Answer `mlxfwmanager --query --query-format XML`."""
    if arguments != ("--query", "--query-format", "XML"):
        return Answer(stderr="-E- Invalid option. Please use --help for usage.\n", exit_code=3)
    if not hardware.nics:
        return Answer(
            '<SVMInventory lang="en">\n <SPStatus result="false">\n  <Message id="20"></Message>\n'
            " </SPStatus>\n</SVMInventory>\n",
            exit_code=20,
        )
    return Answer("<Devices>\n" + "".join(_device(hardware, n) for n in hardware.nics) + "</Devices>\n")


def answer_mstflint(hardware: Hardware, arguments: tuple[str, ...]) -> Answer:
    """Answer `mstflint -d ADDRESS q [full]`."""
    if len(arguments) not in (3, 4) or arguments[0] != "-d" or arguments[2] not in ("q", "query"):
        return Answer("-E- Invalid command line. Use -h for help.\n", exit_code=1)
    nic = next((n for n in hardware.nics if arguments[1] in (n.bus, n.bus.removeprefix("0000:"), n.name)), None)
    if nic is None:
        return Answer(f"-E- Cannot open Device: {arguments[1]}. No such file or directory. MFE_CR_ERROR\n", exit_code=1)
    return Answer(_image(hardware, nic, full=arguments[3:] == ("full",)))


def answer_ofed_info(hardware: Hardware, arguments: tuple[str, ...]) -> Answer:
    """Answer `ofed_info -s`, which ends its one line with a colon."""
    if arguments != ("-s",):
        return Answer(stderr="Usage: ofed_info [-s|-n|-l|-h]\n", exit_code=1)
    return Answer(hardware.expected("ofed_version", _OFED).rstrip(":") + ":\n")


def answer_dpkg_query(hardware: Hardware, arguments: tuple[str, ...]) -> Answer:
    """Answer `dpkg-query -W 'doca-*'` on a Debian family node; elsewhere the tool does not exist."""
    if rpm_based(hardware):
        return not_installed("dpkg-query")
    version = hardware.expected("doca_version", "")
    if arguments != ("-W", "doca-*") or not version:
        pattern = arguments[-1] if arguments else ""
        return Answer(stderr=f"dpkg-query: no packages found matching {pattern}\n", exit_code=1)
    return Answer("".join(f"{p}\t{version}\n" for p in _DOCA_PACKAGES))


def answer_rpm(hardware: Hardware, arguments: tuple[str, ...]) -> Answer:
    """Answer `rpm -qa --qf NAME<TAB>VERSION-RELEASE 'doca-*'`; no match prints nothing and exits 0."""
    if not rpm_based(hardware):
        return not_installed("rpm")
    version = hardware.expected("doca_version", "")
    if "doca-*" not in arguments or not version:
        return Answer()
    release = version if "-" in version else f"{version}-1"
    return Answer("".join(f"{p}\t{release}\n" for p in _DOCA_PACKAGES))


def rpm_based(hardware: Hardware) -> bool:
    """Return True when the site file says that the node runs a distribution of the Red Hat or SUSE family."""
    release = hardware.expected("os_release", "").lower()
    return any(word in release for word in ("red hat", "rhel", "rocky", "alma", "centos", "sles", "suse", "oracle"))


def _device(hardware: Hardware, nic: LabNic) -> str:
    infiniband = hardware.node.sku.link_layer == "InfiniBand"
    identity = f'<GUIDs Base_Guid="{nic.guid}"/>' if infiniband else f'<MACs Base_Mac="{nic.mac.replace(":", "")}"/>'
    quote = {'"': "&quot;"}
    return (
        f'  <Device pciName="{nic.bus}" type="{nic.model.kind}" psid="{escape(nic.psid, quote)}" '
        f'partNumber="{escape(nic.part_number, quote)}">\n    <Versions>\n'
        f'      <FW current="{escape(nic.firmware, quote)}" available="N/A"/>\n'
        f'      <PXE current="{_PXE}" available="N/A"/>\n      <UEFI current="{_UEFI}" available="N/A"/>\n'
        f"    </Versions>\n    {identity}\n    <Status> No matching image found </Status>\n"
        f"    <Description> {escape(nic.model.description)} </Description>\n  </Device>\n"
    )


def _image(hardware: Hardware, nic: LabNic, *, full: bool) -> str:
    rows = [
        ("Image type:", "FS4"),
        ("FW Version:", nic.firmware),
        ("FW Release Date:", "12.12.2024"),
    ]
    if full:
        rows += [("MIC Version:", "2.0.0"), ("PRS Name:", nic.model.part_number), ("Part Number:", nic.part_number)]
        rows.append(("Description:", nic.model.description))
    rows += [
        ("Product Version:", nic.firmware),
        ("Rom Info:", f"type=UEFI version={_UEFI.replace('.00', '.')} cpu=AMD64,AARCH64"),
        ("", f"type=PXE version={_PXE} cpu=AMD64"),
        ("Description:", "UID                GuidsNumber"),
        ("Base GUID:", f"{nic.guid}        4"),
        ("Base MAC:", f"{nic.mac.replace(':', '')}            4"),
        ("Image VSD:", "N/A"),
        ("Device VSD:", "N/A"),
        ("PSID:", nic.psid),
        ("Security Attributes:", "secure-fw"),
    ]
    if full:
        rows += [
            ("Default Update Method:", "fw_ctrl"),
            ("Life cycle:", "GA SECURED"),
            ("Secure Boot Capable:", "Enabled"),
            ("EFUSE Security Ver:", "0"),
        ]
    return "".join(f"{label:<23}{text}\n" for label, text in rows)
