"""The cabling plan against what LLDP says: who should be at the far end, under which names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fabric_health.checks.switch_config.ports.reading import canonical_port
from fabric_health.checks.switch_config.ports.values import is_mac, system_name
from fabric_health.site import Cable, Node, Site, Switch


@dataclass
class Plan:
    """The cables of a site by switch and port."""

    site: Site
    _cables: dict[str, dict[str, Cable]] = field(default_factory=dict, repr=False)
    _systems: dict[str, Node | Switch] = field(default_factory=dict, repr=False)

    def cables(self, switch: str) -> dict[str, Cable]:
        """Return the planned cables of a switch by its port."""
        if switch not in self._cables:
            self._cables[switch] = {c.port: c for c in self.site.cables_of(switch)}
        return self._cables[switch]

    def expectation(self, switch: str, port: str) -> Callable[[str | None, str], bool]:
        """Return a test whether an LLDP neighbour (system, port) is, beyond doubt, the planned one."""
        cable = self.cables(switch).get(port)
        return lambda system, name: (
            cable is not None and system == system_name(cable.peer) and self._same_port(cable, name) is True
        )

    def is_port(self, system: str | None, port: str) -> bool:
        """Tell whether ``port`` is the name of a port of the node or switch that calls itself ``system``."""
        if not self._systems:
            units: tuple[Node | Switch, ...] = (*self.site.nodes, *self.site.switches)
            self._systems.update({system_name(u.name) or u.name: u for u in units})
        unit = self._systems.get(system or "")
        if isinstance(unit, Node):
            return any(port.strip().lower() in self.names(unit, n.name) for n in unit.sku.nics)
        return isinstance(unit, Switch) and canonical_port(unit.platform, port) is not None

    def agrees(self, cable: Cable, system: str, port: str | None) -> bool:
        """Tell whether an LLDP neighbour is the planned one.

        A MAC, an alias that only the peer can resolve, or no port id neither confirms nor refutes the port: then the
        system's name decides.
        """
        return system == system_name(cable.peer) and (port is None or self._same_port(cable, port) is not False)

    def _same_port(self, cable: Cable, port: str) -> bool | None:
        """Tell whether ``port`` is the planned far port, None when the name tells nothing."""
        if is_mac(port):
            return None
        peer = self.site.unit(cable.peer)
        if isinstance(peer, Switch):
            announced = canonical_port(peer.platform, port)
            if announced is None:
                return None if peer.platform == "sonic" else False
            return announced == (canonical_port(peer.platform, cable.peer_port) or cable.peer_port)
        return port.strip().lower() in self.names(peer, cable.peer_port)

    def names(self, node: Node, nic: str) -> frozenset[str]:
        """Return the names under which a NIC port may announce itself: RDMA device and network device."""
        netdev = next((n.netdev for n in node.sku.nics if n.name == nic), None)
        return frozenset(n.lower() for n in (nic, netdev) if n)

    def far_end(self, cable: Cable) -> str:
        """Return the planned far end for a person: ``gpu-001 ens1np0 (mlx5_0)`` or ``spine-1 Eth1/3``."""
        peer = self.site.unit(cable.peer)
        netdev = None
        if isinstance(peer, Node):
            netdev = next((n.netdev for n in peer.sku.nics if n.name == cable.peer_port), None)
        return f"{cable.peer} {netdev} ({cable.peer_port})" if netdev else f"{cable.peer} {cable.peer_port}"
