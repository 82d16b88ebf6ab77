"""What is asked of a fabric: discovery, links, counters and the subnet manager, each for the whole fabric at once.

All tools are of infiniband-diags and only read. ``ibqueryerrors --data`` is never asked: version 44 of the tools
ends with a segmentation fault now and then; traffic comes from ``--counters``, which lists every port. An empty
threshold file lets ``ibqueryerrors`` show every counter that is not zero, so that the limits are ours alone.

None needs another's answer, so that two run at a time. Each keeps two management packets under way to a fabric (their
``--outstanding_smps``), so together they load it as much as OpenSM alone does by default (its ``--maxsmps``: 4).
"""

from __future__ import annotations

from fabric_health.checks.check import Unit
from fabric_health.checks.fabric_links.asked import DIAGNET, DISCOVERY, ERRORS, LINKS, MANAGER, MANAGERS, TRAFFIC
from fabric_health.checks.fabric_links.settings import FabricSettings, settings
from fabric_health.evidence import MIB, Command
from fabric_health.site import Fabric, Site

# 4,096 hosts in three tiers: some 20,000 ports of 350 bytes. All answers of a unit together may take 64 MiB.
MAX_BYTES = 24 * MIB
AT_ONCE = 2


def fabric_settings(unit: Unit, site: Site) -> FabricSettings | None:
    """Return the settings of the fabric that a unit is; None for another kind of unit."""
    if not isinstance(unit, Fabric):
        return None
    return next((f for f in settings(site).fabrics if f.name == unit.name), None)


def commands(unit: Unit, site: Site) -> tuple[Command, ...]:
    """Return what to ask of one fabric. Raises SiteError for settings that do not hold."""
    fabric = fabric_settings(unit, site)
    if fabric is None:
        return ()
    through: tuple[str, ...] = ()
    if fabric.ca is not None:
        through += ("-C", fabric.ca)
    if fabric.port is not None:
        through += ("-P", str(fabric.port))

    def tool(name: str, *argv: str, max_bytes: int = MAX_BYTES, optional: bool = False) -> Command:
        whole = (*fabric.wrapper, argv[0], *through, *argv[1:])
        return Command(name, whole, timeout_s=fabric.timeout_s, max_bytes=max_bytes, optional=optional)

    asked = (
        tool(MANAGER, "sminfo", max_bytes=MIB),
        tool(MANAGERS, "saquery", "SMIR", max_bytes=MIB, optional=True),
        tool(DISCOVERY, "ibnetdiscover"),
        tool(LINKS, "iblinkinfo", "--line"),
        tool(ERRORS, "ibqueryerrors", "--threshold-file", "/dev/null"),
        tool(TRAFFIC, "ibqueryerrors", "--counters"),
    )
    if fabric.ibdiagnet_log is None:
        return asked
    log = Command(DIAGNET, ("cat", fabric.ibdiagnet_log), timeout_s=fabric.timeout_s, max_bytes=16 * MIB)
    return (*asked, log)
