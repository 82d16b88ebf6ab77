"""The nodes of a fleet, their NICs, racks, and the switch port behind each NIC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fabric_health.errors import LabError
from fabric_health.site import Node, Site

_MTU_BYTES = 9000
_LEAF_NODES = 32


@dataclass(frozen=True)
class Fabric:
    """Nodes of one SKU. ``nics`` are a node's NICs by rail; ``rails`` their rail numbers, ``gpu_rails`` each GPU's.

    ``gpu_rails`` holds positions in ``nics``. ``ports`` gives ``leaf-2/Ethernet32`` by node and position, None where
    nothing is cabled. ``nic_gbps`` is the line rate of one NIC in Gb/s.
    """

    nodes: tuple[str, ...]
    racks: tuple[str, ...]
    nics: tuple[str, ...]
    rails: tuple[int, ...]
    gpu_rails: tuple[int, ...]
    ports: tuple[tuple[str | None, ...], ...]
    gpu_model: str
    gpu_pci: tuple[str, ...]
    nic_gbps: float
    ethernet: bool
    mtu_bytes: int
    pcie_generation: int
    pcie_lanes: int
    index: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Number the nodes."""
        object.__setattr__(self, "index", {n: i for i, n in enumerate(self.nodes)})

    @property
    def gpus(self) -> int:
        """GPUs of a node."""
        return len(self.gpu_rails)

    @classmethod
    def of_site(cls, site: Site, nodes: Sequence[str] | None = None) -> Fabric:
        """Return the fabric of a site's nodes (all of those with GPUs for None).

        :raises UsageError: a node that the site does not have.
        :raises LabError: no node with GPUs, or nodes of several SKUs.
        """
        chosen = list(site.nodes) if nodes is None else [u for n in nodes if isinstance(u := site.unit(n), Node)]
        chosen = [n for n in chosen if n.sku.gpus > 0]
        skus = sorted({n.sku_name for n in chosen})
        if len(skus) != 1 or (nodes is not None and len(chosen) != len(nodes)):
            raise LabError(f"the fleet model plays GPU nodes of one SKU at a time; got {', '.join(skus) or 'none'}")
        sku = chosen[0].sku
        nics = sorted(sku.nics, key=lambda n: n.rail)
        of_gpu = {n.gpu: i for i, n in enumerate(nics) if n.gpu is not None}
        cabled = {(c.peer, c.peer_port): f"{c.switch}/{c.port}" for c in site.cables if c.peer_kind == "node"}
        pci = sku.gpu_pci or tuple(f"0000:{0x1B + 16 * i:02x}:00.0" for i in range(sku.gpus))
        return cls(
            nodes=tuple(n.name for n in chosen),
            racks=tuple(n.rack for n in chosen),
            nics=tuple(n.name for n in nics),
            rails=tuple(n.rail for n in nics),
            gpu_rails=tuple(of_gpu.get(g, g % max(1, len(nics))) for g in range(sku.gpus)),
            ports=tuple(tuple(cabled.get((n.name, nic.name)) for nic in nics) for n in chosen),
            gpu_model=sku.gpu_model,
            gpu_pci=pci,
            nic_gbps=sku.nic_rate_gbps,
            ethernet=sku.link_layer == "Ethernet",
            mtu_bytes=sku.netdev_mtu_bytes or _MTU_BYTES,
            pcie_generation=sku.pcie_gen or 5,
            pcie_lanes=sku.pcie_width or 16,
        )

    @classmethod
    def of_size(cls, count: int, rack_nodes: int = 8) -> Fabric:
        """Return ``count`` nodes of eight H100 and eight 400 Gb/s NICs, a leaf a rail for each 32 nodes.

        Units are called as in the lab (``gpu-001``, ``mlx5_3``); leaves ``leaf-<block>-<rail>`` with ports ``swp<n>``.
        """
        width = max(3, len(str(count)))
        ports = tuple(
            tuple(f"leaf-{i // _LEAF_NODES + 1}-{rail}/swp{i % _LEAF_NODES + 1}" for rail in range(8))
            for i in range(count)
        )
        return cls(
            nodes=tuple(f"gpu-{i:0{width}d}" for i in range(1, count + 1)),
            racks=tuple(f"r{i // rack_nodes + 1}" for i in range(count)),
            nics=tuple(f"mlx5_{i}" for i in range(8)),
            rails=tuple(range(8)),
            gpu_rails=tuple(range(8)),
            ports=ports,
            gpu_model="NVIDIA H100 80GB HBM3",
            gpu_pci=tuple(f"0000:{0x1B + 16 * i:02x}:00.0" for i in range(8)),
            nic_gbps=400.0,
            ethernet=True,
            mtu_bytes=_MTU_BYTES,
            pcie_generation=5,
            pcie_lanes=16,
        )
