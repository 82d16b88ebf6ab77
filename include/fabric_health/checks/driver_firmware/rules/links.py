"""Link rules: every NIC port up, at the SKU's rate, layer and MTU, and without errors since the previous run.

Counters are cumulative and restart at zero with the driver, so only differences between two runs count, and a
difference below zero means "unknown". A port that is down has that one finding; its rate and MTU say nothing then.
"""

from __future__ import annotations

from collections.abc import Iterator

from fabric_health.checks.driver_firmware.rules.rule import (
    IBQUERYERRORS,
    LINUX_ROCE_MTU,
    LINUX_ROCE_STATE,
    NVSENTINEL,
    RDMA_CORE,
    SITE_FILE,
    deviation,
)
from fabric_health.checks.driver_firmware.tables import Link
from fabric_health.checks.driver_firmware.view import NodeView, Part
from fabric_health.datasets.tables import Finding, Severity

IB_MTUS = (4096, 2048, 1024, 512, 256)
# What RoCE puts around an RDMA packet inside an Ethernet frame: GRH 40, UDP 8, BTH 12, XRC 4, atomic 28, ICRC 4.
ROCE_OVERHEAD_BYTES = 96
# 1e-12 bit errors per bit, the InfiniBand limit, is 115 symbol errors an hour on a 4X QDR link (32 Gb/s of data);
# NVSentinel rounds it to 120, and faster links have forward error correction in front of this counter.
SYMBOL_ERRORS_PER_HOUR = 120.0
ADMIN_DOWN = "administratively down on the node"
COUNTERS = ("symbol_errors", "link_downed", "link_error_recovery", "port_rcv_errors", "port_xmit_discards")
CABLE = "Clean and reseat the cable and optics; swap the cable if it goes on; check the peer port's counters."


def link_findings(view: NodeView) -> Iterator[Finding]:
    """Judge the links of every NIC of the SKU that the node showed."""
    for nic in view.node.sku.nics:
        unit = view.node.nic_unit(nic.name)
        for link in view.links.get(unit, ()):
            yield from _link(view, Part(unit, "nic"), link)


def _link(view: NodeView, part: Part, link: Link) -> Iterator[Finding]:
    state = _needed(view, part, link, "state", link.state)
    phys = _needed(view, part, link, "phys_state", link.phys_state)
    if (state is not None and state != "ACTIVE") or (phys is not None and phys != "LINK_UP"):
        yield _down(view, part, link)
        return
    if state is None:
        return
    yield from _rate(view, part, link)
    yield from _layer(view, part, link)
    yield from _mtu(view, part, link)
    yield from _counters(view, part, link)


def _needed(view: NodeView, part: Part, link: Link, column: str, value: str | None) -> str | None:
    if value is None:
        view.gap(part, "", _metric(link, column), "null in table links: no tool gave a readable value")
    return value


def _metric(link: Link, column: str) -> str:
    return column if link.port == 1 else f"{column}:{link.port}"


def _down(view: NodeView, part: Part, link: Link) -> Finding:
    states = f"state {link.state or 'unknown'}, phys_state {link.phys_state or 'unknown'}"
    ethernet = (link.link_layer or view.node.sku.link_layer) == "Ethernet"
    why, action = _why_down(part, link, ethernet)
    actual = f"{why} ({states})"
    return deviation(
        part,
        "link_up",
        _metric(link, "state"),
        Severity.CRITICAL,
        f"Link of {part.unit} is down: {actual}",
        expected="state ACTIVE, phys_state LINK_UP",
        actual=actual,
        action=action,
        source=LINUX_ROCE_STATE if ethernet else RDMA_CORE,
    )


def _why_down(part: Part, link: Link, ethernet: bool) -> tuple[str, str]:
    """Return (reason, action) of a link that is down.

    On Ethernet mlx5 shows DISABLED for every port without carrier, whoever shut it (``mlx5_query_port_roce``): there
    only the flags of the network device tell. On InfiniBand DISABLED is the port's own state, and IPoIB says nothing.
    """
    shut = link.admin_up is False if ethernet else link.phys_state == "DISABLED"
    if shut and ethernet:
        return ADMIN_DOWN, f"ip link set {link.netdev or 'NETDEV'} up, and find out what shut it (journalctl)."
    if shut:
        return ADMIN_DOWN, f"Enable the port: mlxlink -d {part.name} --port_state UP."
    if link.state in ("INIT", "ARMED"):
        return "waiting for a subnet manager", "Check the subnet manager (sminfo) and its log."
    peer = f" and {link.switch_port}" if link.switch_port else ""
    action = f"Check the cable{peer}; then the NIC (mlxlink -d {part.name})."
    if ethernet and link.admin_up is None:
        return (
            "down for an unknown reason",
            f"See whether the node shut it (ip link show {link.netdev or ''}). {action}",
        )
    return ("no carrier" if ethernet else "no link with its peer"), action


def _rate(view: NodeView, part: Part, link: Link) -> Iterator[Finding]:
    wanted = view.node.sku.nic_rate_gbps
    if link.rate_gbps is None:
        view.gap(part, "", _metric(link, "rate_gbps"), "null in table links: no tool gave a readable value")
    elif abs(link.rate_gbps - wanted) > 0.01 * wanted:
        yield deviation(
            part,
            "link_rate",
            _metric(link, "rate_gbps"),
            Severity.WARNING,
            f"Link of {part.unit} runs at {link.rate_gbps:g} Gb/s instead of {wanted:g} Gb/s",
            expected=f"{wanted:g} Gb/s",
            actual=f"{link.rate_gbps:g} Gb/s" + (f", width {link.width}" if link.width else ""),
            action=f"Check the speed set on {link.switch_port or 'the peer port'} and the cable's rating.",
            source=SITE_FILE,
        )


def _layer(view: NodeView, part: Part, link: Link) -> Iterator[Finding]:
    wanted = view.node.sku.link_layer
    layer = _needed(view, part, link, "link_layer", link.link_layer)
    if layer is not None and layer != wanted:
        yield deviation(
            part,
            "link_layer",
            _metric(link, "link_layer"),
            Severity.CRITICAL,
            f"{part.unit} is in {layer} mode, its SKU uses {wanted}",
            expected=wanted,
            actual=layer,
            action=f"mlxconfig -d {part.name} set LINK_TYPE_P{link.port}={1 if wanted == 'InfiniBand' else 2}, reboot.",
            source=SITE_FILE,
        )


def _mtu(view: NodeView, part: Part, link: Link) -> Iterator[Finding]:
    """Judge the device's MTU and the RDMA MTU that follows from it: one finding, on the cause."""
    sku = view.node.sku
    wanted = sku.netdev_mtu_bytes if sku.link_layer == "Ethernet" else None
    if wanted is not None:
        if link.netdev_mtu_bytes is None:
            view.gap(part, "", _metric(link, "netdev_mtu_bytes"), "null in table links: ip link gave no MTU")
        elif link.netdev_mtu_bytes != wanted:
            follows = "" if link.active_mtu_bytes is None else f" (RDMA MTU {link.active_mtu_bytes})"
            yield deviation(
                part,
                "netdev_mtu",
                _metric(link, "netdev_mtu_bytes"),
                Severity.WARNING,
                f"MTU of {link.netdev or part.unit} on {view.node.name} is "
                f"{link.netdev_mtu_bytes}, not {wanted}{follows}",
                expected=f"{wanted} B",
                actual=f"{link.netdev_mtu_bytes} B{follows}",
                action=f"ip link set {link.netdev or 'NETDEV'} mtu {wanted}, and make it permanent.",
                source=SITE_FILE,
            )
            return
    rdma = roce_mtu(wanted) if wanted is not None else IB_MTUS[0]
    if link.active_mtu_bytes is None:
        view.gap(part, "", _metric(link, "active_mtu_bytes"), "null in table links: ibv_devinfo gave no active MTU")
    elif link.active_mtu_bytes != rdma:
        hint = "; 1024 is what a network device MTU of 1500 gives" if link.active_mtu_bytes == 1024 else ""
        yield deviation(
            part,
            "active_mtu",
            _metric(link, "active_mtu_bytes"),
            Severity.WARNING,
            f"RDMA MTU of {part.unit} is {link.active_mtu_bytes}, not {rdma}{hint}",
            expected=f"{rdma} B",
            actual=f"{link.active_mtu_bytes} B",
            action="Check the MTU of the network device (RoCE) or of the subnet manager's partition (InfiniBand).",
            source=LINUX_ROCE_MTU if sku.link_layer == "Ethernet" else RDMA_CORE,
        )


def roce_mtu(netdev_mtu_bytes: int) -> int:
    """Return the RDMA MTU, bytes, that Linux derives from a network device's MTU (``iboe_get_mtu``)."""
    return next((m for m in IB_MTUS if m <= netdev_mtu_bytes - ROCE_OVERHEAD_BYTES), IB_MTUS[-1])


def _counters(view: NodeView, part: Part, link: Link) -> Iterator[Finding]:
    if all(getattr(link, column) is None for column in COUNTERS):
        view.gap(part, "", _metric(link, "counters"), "null in table links: no tool gave a readable counter")
        return
    before = view.earlier_links.get((link.nic, link.port))
    if before is None:
        return
    yield from _events(view, part, link, before)
    yield from _ratio(view, part, link, "port_rcv_errors", _delta(link, before, "rx_packets"), before)
    yield from _ratio(view, part, link, "port_xmit_discards", _delta(link, before, "tx_packets"), before)


def _delta(link: Link, before: Link, column: str) -> int | None:
    """Return the increase of a counter; None when either value is missing or the counter was reset."""
    now, then = getattr(link, column), getattr(before, column)
    return None if now is None or then is None or now < then else now - then


def _events(view: NodeView, part: Part, link: Link, before: Link) -> Iterator[Finding]:
    hours = view.elapsed_s / 3600 if view.elapsed_s else None
    texts = {
        "link_downed": "went down and came back",
        "link_error_recovery": "recovered from errors",
        "symbol_errors": "counted symbol errors",
    }
    for column, what in texts.items():
        count = _delta(link, before, column)
        if not count:
            continue
        severity = Severity.WARNING
        # Without knowing since when, a few symbol errors prove nothing.
        if column == "symbol_errors" and (hours is None or count / max(hours, 1.0) <= SYMBOL_ERRORS_PER_HOUR):
            severity = Severity.INFO
        span = f" in {hours:.1f} h" if hours else ""
        yield deviation(
            part,
            column,
            _metric(link, column),
            severity,
            f"Link of {part.unit} {what}: {count} since the previous run{span}",
            expected="no increase" if column != "symbol_errors" else f"<= {SYMBOL_ERRORS_PER_HOUR:g} an hour",
            actual=f"{getattr(before, column)} -> {getattr(link, column)}",
            action=CABLE,
            source=IBQUERYERRORS if column == "link_error_recovery" else NVSENTINEL,
        )


def _ratio(view: NodeView, part: Part, link: Link, column: str, packets: int | None, before: Link) -> Iterator[Finding]:
    errors, limit = _delta(link, before, column), view.thresholds.error_packet_ratio
    if errors is None or not packets or errors / packets <= limit:
        return
    yield deviation(
        part,
        "link_error_ratio",
        _metric(link, column),
        Severity.WARNING,
        f"{column} of {part.unit} rose by {errors} over {packets} packets since the previous run",
        expected=f"<= {limit:g} per packet",
        actual=f"{errors / packets:.2g} per packet",
        action=CABLE,
        source=NVSENTINEL,
    )
