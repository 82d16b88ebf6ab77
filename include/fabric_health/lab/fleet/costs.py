"""What the lab's active faults cost: a share of bandwidth for each node and NIC, and NICs that carry nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fabric_health.lab.faults import CATALOGUE
from fabric_health.lab.fleet import laws
from fabric_health.lab.fleet.fabric import Fabric
from fabric_health.lab.state import Fault

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Costs:
    """Shares of bandwidth that are left: ``node`` (N) of everything, ``nic`` (N x NICs); ``down`` carries nothing.

    ``crossing`` is what is left for traffic of a NIC position that goes from one leaf to another. ``silent`` are nodes
    that no job can start on, with what happens when one tries.
    """

    node: Floats
    nic: Floats
    down: Bools
    crossing: float
    silent: Mapping[str, str]

    @classmethod
    def none(cls, fabric: Fabric) -> Costs:
        """Return the costs of a healthy fabric."""
        shape = (len(fabric.nodes), len(fabric.nics))
        return cls(np.ones(shape[0]), np.ones(shape), np.zeros(shape, dtype=bool), 1.0, {})

    @classmethod
    def of(cls, fabric: Fabric, faults: Iterable[Fault], driver_shares: Mapping[str, float] | None = None) -> Costs:
        """Return what ``faults`` cost; kinds that cost no bandwidth, and units elsewhere, are passed over.

        ``driver_shares`` gives the share of bandwidth that a driver version leaves: no figure is published, so without
        it another driver costs nothing.
        """
        reading = _Reading(fabric, cls.none(fabric), tuple(faults), driver_shares or {})
        crossing = 1.0
        silent: dict[str, str] = {}
        for fault in reading.faults:
            if fault.kind in ("node-unreachable", "node-hanging") and fault.unit in fabric.index:
                silent[fault.unit] = (
                    "Connection refused" if fault.kind == "node-unreachable" else "Connection timed out"
                )
            elif fault.kind == "bad-leaf" and not reading.leaf(fault.unit):
                crossing = min(crossing, reading.left(fault))
            else:
                reading.apply(fault)
        costs = reading.costs
        costs.down[costs.nic <= 0] = True
        return cls(costs.node, np.where(costs.down, 0.0, costs.nic), costs.down, crossing, silent)


@dataclass(frozen=True)
class _Reading:
    fabric: Fabric
    costs: Costs
    faults: tuple[Fault, ...]
    driver_shares: Mapping[str, float]

    def leaf(self, switch: str) -> bool:
        """Return whether NICs hang on the switch; anything else is a spine."""
        return any(port and port.partition("/")[0] == switch for row in self.fabric.ports for port in row)

    def left(self, fault: Fault) -> float:
        """Return what a loss in percent leaves."""
        return 1.0 - _value(fault) / 100

    def apply(self, fault: Fault) -> None:
        """Multiply what is left of the units that the fault sits on."""
        name, _, part = fault.unit.partition("/")
        node = self.fabric.index.get(name)
        if node is not None and not part:
            self._whole_node(fault, node)
        elif node is not None and part.startswith("gpu"):
            self._gpu(fault, node, part)
        elif node is not None and part in self.fabric.nics:
            self._nic(fault, node, self.fabric.nics.index(part))
        elif part:
            for i, j in self._behind(name, part):
                self._port(fault, i, j)
        elif fault.kind == "bad-leaf":
            at = np.array([[bool(p) and str(p).startswith(name + "/") for p in row] for row in self.fabric.ports])
            self.costs.nic[at] *= self.left(fault)

    def _whole_node(self, fault: Fault, i: int) -> None:
        if fault.kind == "slow-node":
            self.costs.node[i] *= self.left(fault)
        elif fault.kind == "driver-version":
            self.costs.node[i] *= self.driver_shares.get(fault.value or "", 1.0)

    def _gpu(self, fault: Fault, i: int, part: str) -> None:
        gpu = part.removeprefix("gpu")
        if fault.kind != "pcie-degraded" or not gpu.isdecimal() or int(gpu) >= self.fabric.gpus or not self.fabric.nics:
            return
        fabric = self.fabric
        lanes = min(int(_value(fault)), fabric.pcie_lanes)
        healthy = fabric.nic_gbps / 8 * laws.NETWORK_SHARE
        self.costs.nic[i, fabric.gpu_rails[int(gpu)]] *= laws.pcie_share(fabric.pcie_generation, lanes, healthy)

    def _nic(self, fault: Fault, i: int, j: int) -> None:
        if fault.kind == "nic-down":
            self.costs.down[i, j] = True
        elif fault.kind == "slow-rail":
            self.costs.nic[i, j] *= self.left(fault)

    def _port(self, fault: Fault, i: int, j: int) -> None:
        fabric, nic = self.fabric, self.costs.nic
        if fault.kind == "port-down":
            self.costs.down[i, j] = True
        elif fault.kind == "port-speed":
            nic[i, j] *= min(1.0, _value(fault) / fabric.nic_gbps)
        elif fault.kind == "switch-mtu" and fabric.ethernet:
            nic[i, j] *= laws.mtu_share(min(int(_value(fault)), fabric.mtu_bytes), fabric.mtu_bytes)
        elif fault.kind == "port-errors":
            nic[i, j] *= laws.error_share(_value(fault), fabric.nic_gbps)
        elif fault.kind == "switch-pfc" and fabric.ethernet:
            nic[i, j] *= laws.PFC_OFF_SHARE

    def _behind(self, switch: str, port: str) -> Iterator[tuple[int, int]]:
        """Yield the NICs whose traffic passes a port, as cables are plugged in now."""
        plugged = f"{switch}/{self._swapped(switch, port)}"
        for i, row in enumerate(self.fabric.ports):
            for j, planned in enumerate(row):
                if planned == plugged:
                    yield i, j

    def _swapped(self, switch: str, port: str) -> str:
        """Return the port whose planned cable is in ``port``."""
        for f in self.faults:
            if f.kind == "miscabled" and f.value and f.unit.startswith(switch + "/"):
                one, other = f.unit.partition("/")[2], f.value
                if port in (one, other):
                    return other if port == one else one
        return port


def _value(fault: Fault) -> float:
    text = fault.value if fault.value is not None else CATALOGUE[fault.kind].default
    try:
        return float(text or 0)
    except ValueError:
        return float(CATALOGUE[fault.kind].default or 0)
