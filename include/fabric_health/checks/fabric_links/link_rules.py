"""Links that are up: brought up by the subnet manager, and as wide and fast as expected. Possible is not expected."""

from __future__ import annotations

from fabric_health.checks.fabric_links.asked import LINKS
from fabric_health.checks.fabric_links.lanes import speed_name
from fabric_health.checks.fabric_links.tables import FabricPort
from fabric_health.checks.fabric_links.view import FabricView, deviation, not_judged
from fabric_health.datasets.tables import Finding, Severity

_UNMANAGED = ("Initialize", "Armed")
_NAMED = 5


def link_findings(view: FabricView, no_manager: Finding | None) -> list[Finding]:
    """Judge every link once. ``no_manager`` is the finding that explains links that nobody has brought up."""
    out: list[Finding] = []
    unknown: dict[str, list[str]] = {"width": [], "speed": []}
    unjudged = 0
    for port, far in view.links:
        if port.peer_guid is None:
            continue
        if port.state in _UNMANAGED:
            out.append(_not_active(view, port, no_manager))
        elif port.state != "Active":
            unknown["speed"].append(view.of_port(port))
            continue
        unjudged += port.expected_width is None and port.expected_lane_gbps is None
        out += _width(view, port, far, unknown["width"])
        out += _speed(view, port, far, unknown["speed"])
    if unknown["width"]:
        out.append(_gap(view, "link_width_known", "width", unknown["width"]))
    if unknown["speed"]:
        out.append(_gap(view, "link_speed_known", "speed", unknown["speed"]))
    if unjudged:
        out.append(_no_expectation(view, unjudged))
    return [*out, *_without_lid(view, no_manager)]


def _not_active(view: FabricView, port: FabricPort, no_manager: Finding | None) -> Finding:
    return deviation(
        view,
        "link_active",
        view.of_port(port),
        "port",
        "state",
        Severity.CRITICAL,
        f"The link of {view.of_port(port)} to {port.peer} is up but not active ({port.state}): it carries no data.",
        expected="Active",
        actual=port.state,
        action="See the subnet manager's log for this port: it has not configured the link.",
        source="InfiniBand Architecture Specification: the subnet manager takes a port from Initialize to Active",
        command=LINKS,
        explained_by=no_manager.finding if no_manager else None,
    )


def _width(view: FabricView, port: FabricPort, far: FabricPort | None, unknown: list[str]) -> list[Finding]:
    expected = port.expected_width or (far.expected_width if far else None)
    if expected is None:
        return []
    if port.width is None:
        unknown.append(view.of_port(port))
        return []
    if port.width == expected:
        return []
    return [
        deviation(
            view,
            "link_width",
            view.of_port(port),
            "port",
            "width",
            Severity.CRITICAL if port.width < expected else Severity.WARNING,
            f"The link of {view.of_port(port)} to {port.peer} uses {port.width} of {expected} lanes.",
            expected=f"{expected}x",
            actual=f"{port.width}x",
            action="Reseat the cable at both ends and clean its connectors; replace it if lanes stay away.",
            source=f"site file: checks.fabric_links, links of {view.name}",
            command=LINKS,
        )
    ]


def _speed(view: FabricView, port: FabricPort, far: FabricPort | None, unknown: list[str]) -> list[Finding]:
    expected = port.expected_lane_gbps or (far.expected_lane_gbps if far else None)
    if expected is None:
        return []
    actual = port.lane_gbps
    if actual is None:
        unknown.append(view.of_port(port))
        return []
    if abs(actual - expected) < 0.01:
        return []
    return [
        deviation(
            view,
            "link_speed",
            view.of_port(port),
            "port",
            "lane_gbps",
            Severity.CRITICAL if actual < expected else Severity.WARNING,
            f"The link of {view.of_port(port)} to {port.peer} runs at {speed_name(actual)} ({actual:.8g} Gb/s a lane), "
            f"not at {speed_name(expected)}.",
            expected=f"{speed_name(expected)} ({expected:.8g} Gb/s a lane)",
            actual=f"{speed_name(actual)} ({actual:.8g} Gb/s a lane)",
            action="See the speeds enabled at both ends (ibportstate <lid> <port> query), then cable and firmware.",
            source=f"site file: checks.fabric_links, links of {view.name}",
            command=LINKS,
        )
    ]


def _gap(view: FabricView, rule: str, metric: str, ports: list[str]) -> Finding:
    first = ", ".join(ports[:_NAMED]) + (", ..." if len(ports) > _NAMED else "")
    return not_judged(
        view,
        rule,
        metric,
        Severity.WARNING,
        f"The {metric} of {len(ports)} link{'s' if len(ports) > 1 else ''} of {view.name} is not known: {first}.",
        expected=f"a {metric} that the tools name",
        actual="a spelling that is not known, or none",
        action="See the raw answer; newer speeds need newer tools.",
        command=LINKS,
    )


def _no_expectation(view: FabricView, links: int) -> Finding:
    return not_judged(
        view,
        "link_expectation",
        "expectation",
        Severity.INFO,
        f"Width and speed of {links} link{'s' if links > 1 else ''} of {view.name} were not judged: "
        "the site file does not say what they should be.",
        action="Set `hosts` and `trunks` of the fabric in checks.fabric_links, e.g. {width: 4x, speed: NDR}.",
        command=LINKS,
    )


def _without_lid(view: FabricView, no_manager: Finding | None) -> list[Finding]:
    return [
        deviation(
            view,
            "node_managed",
            view.unit(node.node),
            "switch" if node.kind == "switch" else "node",
            "lid",
            Severity.CRITICAL,
            f"{view.unit(node.node)} is on the fabric but has no LID: the subnet manager does not manage it.",
            expected="a LID",
            actual="none" if node.lid is None else str(node.lid),
            action="See the subnet manager's log for this node, and whether it is in the manager's partition.",
            source="InfiniBand Architecture Specification: the subnet manager assigns LIDs",
            explained_by=no_manager.finding if no_manager else None,
        )
        for node in view.nodes.values()
        if not node.lid
    ]
