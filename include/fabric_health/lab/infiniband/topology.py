"""A fat tree of InfiniBand switches and hosts, in the form that ``ibnetdiscover`` prints and ibsim reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

# Hosts a leaf, pods, leaves a pod, spines a pod, ports a switch. Two pods or more are joined by core switches.
_SHAPES: dict[int, tuple[int, int, int, int, int]] = {
    32: (8, 1, 4, 2, 16),
    256: (32, 1, 8, 4, 64),
    1024: (32, 1, 32, 16, 64),
    4096: (32, 4, 32, 32, 64),
}
HOSTS = tuple(_SHAPES)
# The fastest that ibsim plays: a speed that it does not know, NDR among them, it takes for SDR without a word.
SPEED = "HDR"
WIDTH = 4
_SWITCH_GUID, _HOST_GUID = 0xB8599F0300000000, 0x0C42A10300000000
_TIER = {"leaf": 1, "spine": 2, "core": 3}


@dataclass(frozen=True)
class Port:
    """A port of a node by its name: ``leaf001``, 3."""

    node: str
    number: int


@dataclass(frozen=True)
class Cable:
    """A cable between two ports, with what it runs at."""

    one: Port
    other: Port
    width: int = WIDTH
    speed: str = SPEED


@dataclass(frozen=True)
class FatTree:
    """Nodes by name with their GUID and number of ports, and the cables between them."""

    switches: Mapping[str, tuple[int, int]]
    hosts: Mapping[str, int]
    cables: tuple[Cable, ...]
    lids: Mapping[str, int] = field(default_factory=dict)

    def description(self, node: str) -> str:
        """Return the node's description, as such nodes call themselves."""
        return f"MF0;{node}:MQM9700/U1" if node in self.switches else f"{node} mlx5_0"

    def node_id(self, node: str) -> str:
        """Return the id that topology files and the simulator's console use."""
        return f"S-{self.switches[node][0]:016x}" if node in self.switches else f"H-{self.hosts[node]:016x}"

    def find(self, node: str, number: int) -> Cable | None:
        """Return the cable at a port."""
        port = Port(node, number)
        return next((c for c in self.cables if port in (c.one, c.other)), None)


def fat_tree(hosts: int = 32) -> FatTree:
    """Return the tree of so many hosts. Raises ValueError for a size that is not in ``HOSTS``."""
    if hosts not in _SHAPES:
        raise ValueError(f"{hosts} hosts; expected one of {', '.join(map(str, HOSTS))}")
    per_leaf, pods, leaves, spines, ports = _SHAPES[hosts]
    switches: dict[str, tuple[int, int]] = {}
    nodes: dict[str, int] = {}
    cables: list[Cable] = []

    def switch(tier: str, index: int) -> str:
        name = f"{tier}{index:03d}"
        switches[name] = (_SWITCH_GUID + (_TIER[tier] << 20) + index * 64, ports)
        return name

    for pod in range(pods):
        pod_spines = [switch("spine", pod * spines + s + 1) for s in range(spines)]
        uplinks = max(1, per_leaf // spines)
        for inner in range(leaves):
            leaf = switch("leaf", pod * leaves + inner + 1)
            for k in range(per_leaf):
                number = (pod * leaves + inner) * per_leaf + k + 1
                host = f"gpu{number:04d}"
                nodes[host] = _HOST_GUID + number * 16
                cables.append(Cable(Port(leaf, k + 1), Port(host, 1)))
            for s, spine in enumerate(pod_spines):
                for q in range(uplinks):
                    near = Port(leaf, per_leaf + 1 + s * uplinks + q)
                    cables.append(Cable(near, Port(spine, inner * uplinks + q + 1)))
    if pods > 1:
        for s in range(spines):
            cores = [switch("core", 2 * s + i + 1) for i in range(2)]
            for pod in range(pods):
                for up in range(32):
                    near = Port(f"spine{pod * spines + s + 1:03d}", 33 + up)
                    cables.append(Cable(near, Port(cores[up // 16], pod * 16 + up % 16 + 1)))
    lids = {name: i + 1 for i, name in enumerate([*switches, *nodes])}
    return FatTree(switches, nodes, tuple(cables), lids)


def topology_file(tree: FatTree) -> str:
    """Return the tree as a topology file. Tools that name no other node ask from the first host."""
    by_port = {p: (far, c) for c in tree.cables for p, far in ((c.one, c.other), (c.other, c.one))}
    first, *others = tree.hosts
    lines: list[str] = []
    for node in (first, *tree.switches, *others):
        lines += _node(tree, node, by_port)
        lines.append("")
    return "\n".join(lines)


def _node(tree: FatTree, node: str, by_port: Mapping[Port, tuple[Port, Cable]]) -> Iterator[str]:
    yield from ("vendid=0x2c9", f"devid={'0xd2f2' if node in tree.switches else '0x1021'}")
    if node in tree.switches:
        guid, ports = tree.switches[node]
        yield f"sysimgguid=0x{guid:016x}"
        yield f"switchguid=0x{guid:016x}({guid:016x})"
        yield (
            f'Switch\t{ports} "{tree.node_id(node)}"\t\t# "{tree.description(node)}" '
            f"enhanced port 0 lid {tree.lids[node]} lmc 0"
        )
        numbers = range(1, ports + 1)
    else:
        guid = tree.hosts[node]
        yield f"sysimgguid=0x{guid:016x}"
        yield f"caguid=0x{guid:016x}"
        yield f'Ca\t1 "{tree.node_id(node)}"\t\t# "{tree.description(node)}"'
        numbers = range(1, 2)
    for number in numbers:
        if (found := by_port.get(Port(node, number))) is not None:
            far, cable = found
            yield _port(tree, node, number, far, cable)


def _port(tree: FatTree, node: str, number: int, far: Port, cable: Cable) -> str:
    runs = f"{cable.width}x{cable.speed}"
    about = f'"{tree.description(far.node)}" lid {tree.lids[far.node]} {runs}'
    if node in tree.switches:
        far_guid = f"({tree.hosts[far.node]:x})" if far.node in tree.hosts else ""
        return f'[{number}]\t"{tree.node_id(far.node)}"[{far.number}]{far_guid} \t\t# {about}'
    own = f"({tree.hosts[node]:x})"
    return f'[{number}]{own} \t"{tree.node_id(far.node)}"[{far.number}]\t\t# lid {tree.lids[node]} lmc 0 {about}'
