"""``ibnetdiscover``: nodes, and which port GUID belongs to which node."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_KINDS = {"Switch": "switch", "Ca": "ca", "Rt": "router"}
# Greedy up to the last quote: a description may hold quotes, and even text that looks like what follows it.
_NODE = re.compile(
    r'^(Switch|Ca|Rt)\t(\d{1,3}) "[SHR]-([0-9a-f]{16})"\s+# "(.*)"'
    r"(?: (?:enhanced|base) port 0 lid (\d{1,5}) lmc \d.*)?$"
)
_SWITCH_PORT = re.compile(r'^\[\d{1,3}\](?:\[ext \d+\])?\t"[SHR]-[0-9a-f]{16}"\[\d{1,3}\]')
_CA_PORT = re.compile(r'^\[(\d{1,3})\]\(([0-9a-f]{1,16})\) \t"[SHR]-[0-9a-f]{16}"\[\d{1,3}\].*?# lid (\d{1,5}) lmc')
_KNOWN = re.compile(r"^(?:#.*|(?:vendid|devid|sysimgguid|switchguid|caguid|rtguid)=.*|DR path .*|)$")
_LOST_QUERY = re.compile(r"bad status (?:110|-110)|Connection timed out")
MAX_NODES = 200_000


@dataclass
class Discovered:
    """One node as discovery has it."""

    guid: str
    kind: str
    ports: int
    description: str
    lid: int | None = None
    port_lids: dict[int, int] = field(default_factory=dict)


@dataclass
class Discovery:
    """All nodes by GUID; ``owners`` has the node GUID of every port GUID; ``unread`` are lines of no known form."""

    nodes: dict[str, Discovered] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)


def parse_discovery(text: str) -> Discovery:
    """Read the topology file that ``ibnetdiscover`` prints. Never raises; what is not understood is in ``unread``."""
    out = Discovery()
    current: Discovered | None = None
    for line in text.splitlines():
        # Most lines are ports, and nothing else begins with a bracket.
        if line.startswith("["):
            if current is None or not _port(current, line, out):
                out.unread.append(line)
        elif node := _NODE.match(line):
            current = _node(node, out, line)
        elif not _KNOWN.match(line):
            out.unread.append(line)
    return out


def _node(found: re.Match[str], out: Discovery, line: str) -> Discovered | None:
    kind, ports, guid, description, lid = found.groups()
    if guid in out.nodes or len(out.nodes) >= MAX_NODES:
        out.unread.append(line)
        return None
    node = Discovered(guid, _KINDS[kind], int(ports), description, _lid(lid))
    out.nodes[guid] = node
    out.owners.setdefault(guid, guid)
    return node


def _port(node: Discovered, line: str, out: Discovery) -> bool:
    if _SWITCH_PORT.match(line):
        return True
    found = _CA_PORT.match(line)
    if found is None:
        return False
    port, port_guid, lid = int(found[1]), found[2].zfill(16), _lid(found[3])
    if out.owners.setdefault(port_guid, node.guid) != node.guid:
        return False
    if lid is not None:
        node.port_lids[port] = lid
        node.lid = lid if node.lid is None else node.lid
    return True


def _lid(text: str | None) -> int | None:
    return int(text) if text is not None and int(text) <= 0xFFFF else None


def lost_queries(said: str) -> int:
    """Return how many queries of a discovery were not answered: ``ibnetdiscover`` succeeds all the same."""
    return sum(1 for line in said.splitlines() if _LOST_QUERY.search(line))
