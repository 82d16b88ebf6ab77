"""What a config line is about: its attribute, the topic of that attribute, and the port it sits on."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fabric_health.site import Platform

# Attributes that a section holds at most once: the match is the attribute, what follows it the value.
SINGLE_PATTERN = r"""(?x)^(?:
    mtu | speed | duplex | description | fec | error-correction\ encoding | shutdown | switchport(?=$)
  | switchport\ (?:access\ vlan | mode | trunk\ allowed\ vlan(?!\ (?:add|remove|except)) | trunk\ native\ vlan
        | hybrid\ allowed-vlan)
  | priority-flow-control\ (?:mode | priority\ \d+ | on(?=$) | watch-dog(?:-interval)?\S*)
  | dcb\ priority-flow-control\ (?:mode | enable | priority\ \d+)
  | dcb\ ets\ (?:mode | enable)
  | qos\ (?:trust | map\ (?:dscp|cos|traffic-class)\ [\d\ ]+(?=\ to\ ) | default\ \S+)
  | service-policy\ (?:type\ \S+\ )?(?:input|output)
  | service-profile
  | random-detect(?:\ ecn)? (?=\ (?:minimum|maximum|count|threshold))
  | traffic-class\ \d+\ (?:congestion-control | dcb\ ets)
  | traffic\ pool\ \S+\ (?:type | memory\ \S+ | map\ switch-priority)
  | bandwidth\ (?:remaining\ )?percent | bandwidth(?=\ \d) | priority\ level
  | priority(?=\ (?:strict|level)) | shape\ \S+
  | pause\ (?:pfc-cos|no-drop|buffer-size) | congestion-control\ \S+
  | ip\ address(?!.*\ secondary) | ipv6\ link-local | vrf(?:\ member|\ forwarding)? | channel-group | load-interval
  | lacp\ \S+ | spanning-tree\ (?:mode|portfast|port\ type|bpduguard) | hostname | switchname | version
  | router-id | (?:bgp\ )?maximum-paths | timers\ bgp | distance\ bgp | name(?=\ ) | state(?=\ (?:active|suspend))
  | neighbor\ \S+\ (?:remote-as|description|peer\ group|update-source|ebgp-multihop|timers|password|maximum-routes)
  | username\ \S+(?=\ ) | snmp-server\ (?:location|contact|source-interface|engineID)
  | logging\ (?:buffered|console|monitor|level|facility|source-interface|trap) | ntp\ source(?:-interface)?
  | clock\ timezone | boot\ (?:system|nxos) | enable\ (?:secret|password) | aaa\ authentication\ login\ \S+
  | hardware\ access-list\ tcam\ region\ \S+ | hardware\ speed-group\ \S+ | system\ (?:default\ switchport|jumbomtu)
  | vlan\ \d+\ name | lldp\ (?:timer|holdtime)
    )(?=\ |$)"""
_SINGLE = re.compile(SINGLE_PATTERN)
# Commands that a section may hold many times; two of them are two lines, never one line with another value.
_MANY = frozenset(
    """
    ntp|ntp server|ntp peer|logging|logging host|feature|neighbor|vlan|interface|permit|deny|remark|class|class-map
    policy-map|match|set|network|ip route|ipv6 route|ip name-server|snmp-server|snmp-server host|snmp-server user
    snmp-server community|username|server|radius-server|tacacs-server|router|route-map|ip access-list|ip prefix-list
    aaa|ip|ipv6|no|redistribute|switchport trunk allowed vlan|hardware|banner|address-family|exec|line|vrf context
    vrf definition|ip community-list|ipv4 access-list|ipv6 access-list|mac access-list|router bgp|address
    """.strip()
    .replace("\n", "|")
    .replace("|    ", "|")
    .split("|")
)
_NUMBERED = re.compile(
    r"^(?:(?P<flat>(?:ip|ipv4|ipv6|mac) (?:access-list|prefix-list) \S+) )?(?P<number>(?:seq(?:-number|uence)? )?\d+)"
    r" (?=permit|deny|remark|statistics|match|set)"
)
_ORDERED = re.compile(
    r"^(?:(?:ip|ipv4|ipv6|mac) (?:access-list|prefix-list)|ip as-path access-list|ip community-list|route-map|"
    r"policy-map|control-plane|aaa group server|traffic-policy)\b"
)
_FLAT_RULE = re.compile(
    r"^(?P<group>(?:ip|ipv4|ipv6|mac) (?:access-list|prefix-list) \S+|access-list \S+|ip community-list (?:\S+ )?\S+) "
    r"(?=permit|deny|remark)"
)

# First match decides; the words of a topic are regular expressions that start a line.
_TOPIC_WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("description", (r"description", r"alias", r"name", r"vlan \d+ name")),
    ("user", (r"username", r"enable (?:secret|password)", r"aaa", r"tacacs-server", r"radius-server", r"role")),
    ("ntp", (r"ntp", r"clock", r"ptp")),
    ("logging", (r"logging",)),
    ("snmp", (r"snmp-server",)),
    ("acl", (r"(?:ip|ipv4|ipv6|mac) (?:access-list|access-group|port access-group)", r"access-list")),
    ("acl", (r"(?:seq\S* )?\d+ (?:permit|deny|remark)", r"permit", r"deny")),
    ("routing-policy", (r"route-map", r"(?:ip|ipv6) (?:prefix-list|community-list|as-path)")),
    ("bgp", (r"router bgp", r"neighbor", r"router-id", r"bgp", r"address-family", r"network", r"redistribute")),
    ("bgp", (r"maximum-paths", r"timers bgp", r"distance bgp", r"protocol bgp", r"feature bgp")),
    ("mtu", (r"mtu", r"system jumbomtu", r"ip mtu")),
    ("speed", (r"speed", r"duplex", r"hardware speed-group")),
    ("fec", (r"fec", r"error-correction")),
    ("pfc", (r"(?:dcb )?priority-flow-control", r"pause", r"traffic pool", r"flowcontrol")),
    ("ecn", (r"random-detect", r"(?:traffic-class \d+ )?congestion-control")),
    ("admin", (r"shutdown",)),
    ("vlan", (r"vlan", r"switchport")),
    ("qos", (r"qos", r"service-policy", r"service-profile", r"(?:uc-|mc-)?tx-queue", r"dcb ets", r"traffic-class")),
    ("qos", (r"bandwidth", r"priority", r"shape", r"class", r"class-map", r"policy-map", r"system qos")),
    ("qos", (r"set qos-group", r"match (?:dscp|cos|qos-group)")),
    ("spanning-tree", (r"spanning-tree",)),
    ("lldp", (r"lldp", r"feature lldp")),
    ("hostname", (r"hostname", r"switchname")),
    ("version", (r"version", r"boot")),
    ("lag", (r"channel-group", r"lacp", r"port-channel", r"mlag", r"vpc")),
    ("routing", (r"ip route", r"ipv6 route", r"router", r"ip routing", r"ip address", r"ipv6 address", r"vrf")),
)
_TOPICS = tuple((topic, re.compile(rf"^(?:{'|'.join(words)})(?![\w-])")) for topic, words in _TOPIC_WORDS)
_SECTION_TOPICS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("acl", re.compile(r"^(?:ip|ipv4|ipv6|mac) access-list\b")),
    ("routing-policy", re.compile(r"^(?:route-map|(?:ip|ipv6) prefix-list)\b")),
    ("bgp", re.compile(r"^router bgp\b")),
    ("qos", re.compile(r"^(?:policy-map|class-map|qos profile|system qos)\b")),
)


@dataclass(frozen=True)
class Attribute:
    """What a line sets. ``single``: its section holds it once, so another value is a change of the same line."""

    key: str
    single: bool


def attribute(line: str) -> Attribute:
    """Return the attribute of a line; ``no`` and ``default`` forms share that of the positive form."""
    bare = re.sub(r"^(?:no|default) ", "", line)
    numbered = _NUMBERED.match(bare)
    if numbered:
        return Attribute(numbered.group(0).strip(), True)
    found = _SINGLE.match(bare)
    if found:
        return Attribute(found.group(0).strip(), True)
    head, _, _value = bare.rpartition(" ")
    if not head or head in _MANY or bare.split(" ", 1)[0] in ("permit", "deny", "remark", "feature", "match"):
        return Attribute(bare, False)
    return Attribute(head, False)


def order_matters(header: str) -> bool:
    """Return whether the order of a section's lines means something (first match wins, first server first)."""
    return _ORDERED.match(header) is not None


def numbered(line: str) -> bool:
    """Return whether the line carries its own sequence number, which decides instead of its position."""
    return _NUMBERED.match(line) is not None


def flat_rule_group(line: str) -> str | None:
    """Return the list that a flat, unnumbered rule belongs to (``ipv4 access-list NAME``), or None."""
    found = _FLAT_RULE.match(line)
    return found["group"] if found else None


def topic_of(line: str, parents: tuple[str, ...]) -> str | None:
    """Return the topic of a line within its sections, None when it has none of those known."""
    bare = re.sub(r"^(?:no|default) ", "", line)
    own = next((t for t, p in _TOPICS if p.match(bare)), None)
    if own not in (None, "qos", "vlan", "description"):
        return own
    section = next((t for h in reversed(parents) for t, p in _SECTION_TOPICS if p.match(h)), None)
    return section or own


_PORT_HEADER: dict[Platform, re.Pattern[str]] = {
    "eos": re.compile(r"^interface (Ethernet[\d/]+)"),
    "nxos": re.compile(r"^interface (Ethernet[\d/]+)"),
    "onyx": re.compile(r"^(?:no )?interface ethernet (\d+(?:/\d+)+)"),
}


def port_of(platform: Platform, header: str) -> str | None:
    """Return the port that an interface header names, in the spelling of the cabling plan."""
    pattern = _PORT_HEADER.get(platform)
    found = pattern.match(header) if pattern else None
    if found is None:
        return None
    return f"Eth{found[1]}" if platform == "onyx" else found[1]
