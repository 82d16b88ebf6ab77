"""Which tests to run next. A function of the state alone, so a resumed session plans what it would have planned.

1. Screen: disjoint groups of neighbours, about the square root of the fleet each, all at once.
2. A slow group is cut into smaller ones; at eight nodes or fewer each is paired with a different known-good partner.
3. Groups of several domains test what lies between domains; several of them, of different domains, tell uplinks, paths
   and the spine apart, also where each half passes alone.
4. The node (or domain) that remains is measured rail by rail with another partner, and what was slow once more with a
   third one.

A weak suspicion is first measured again in halves. Nothing is blamed on one launch: see ``cases`` and ``verdict``.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fabric_health.isolation.belief import Belief, Suspicion, believe, common_loss
from fabric_health.isolation.case import ONE_PLACE, Stage, stage_of
from fabric_health.isolation.cut import Cut
from fabric_health.isolation.fleet import Fleet, Kind
from fabric_health.isolation.state import State, Test

# Nodes of each domain in a group that tests what lies between domains, at most.
NODES_OF_A_DOMAIN = 4
CROSSING_SPLITS = 5
PAIR_LIMIT = 8
# Odds below which a suspicion of many nodes is halved rather than cut in parts, and one of few halved before pairs.
WEAK_ODDS_OF_MANY, WEAK_ODDS = 1.0, 0.3
# Pairs are made of the most suspect nodes that hold this share of the suspicion.
PAIRED_SHARE = 0.9
# The same between domains, where the next step costs more and one more launch of other nodes tells as much.
WEAK_ODDS_BETWEEN = 3.0
# A node is a known-good partner when its odds of being slow are below this and it was in a test that passed.
GOOD_ODDS = 0.02
REPEATS_OF_UNEXPLAINED = 1


def plan(state: State) -> list[Test]:
    """Return the tests of the next round, disjoint in (node, rail); none when there is nothing left to ask or spend."""
    if state.spent():
        return []
    round_ = _Round(state)
    if not state.rounds:
        for group in screen_groups(state.fleet):
            round_.add(group, None, "screen")
        return round_.tests
    if common_loss(state):
        return []
    belief = believe(state)
    round_.learn(belief)
    for suspicion in belief.suspicions:
        _next(round_, suspicion)
    _between_domains(round_)
    _once_more(round_)
    return round_.tests


def screen_groups(fleet: Fleet) -> list[tuple[str, ...]]:
    """Return disjoint groups that cover the fleet, of whole domains or parts of one where possible.

    About sqrt(N) nodes a group, 4 to 32: the cost of screening and of looking into one slow group are then alike.
    """
    want = min(max(round(math.sqrt(len(fleet.nodes))), 4), 32)
    if len(fleet.nodes) < 8:
        want = 2
    groups: list[list[str]] = []
    small: list[str] = []
    for members in fleet.domains.values():
        if len(members) > 1.5 * want:
            groups += _cut(members, min(math.ceil(len(members) / want), len(members) // 2))
        elif len(members) >= 0.6 * want:
            groups.append(list(members))
        else:
            small += members
            if len(small) >= 0.75 * want:
                groups.append(small)
                small = []
    if small:
        if (len(small) > 1 and len(small) >= 0.4 * want) or not groups:
            groups.append(small)
        else:
            groups[-1] = groups[-1] + small
    return [tuple(g) for g in groups]


def _cut(nodes: Sequence[str], parts: int) -> list[list[str]]:
    """Return ``nodes`` in ``parts`` runs of neighbours whose lengths differ by one at most."""
    parts = max(1, min(parts, len(nodes)))
    edges = [round(i * len(nodes) / parts) for i in range(parts + 1)]
    return [list(nodes[a:b]) for a, b in itertools.pairwise(edges)]


@dataclass
class _Round:
    """The round in the making: which (node, rail) is taken, which nodes are known good."""

    state: State
    tests: list[Test] = field(default_factory=list)
    taken: set[tuple[str, int]] = field(default_factory=set)
    belief: Belief | None = None
    suspects: set[str] = field(default_factory=set)
    barred: set[str] = field(default_factory=set)  # suspects of their own, not for having been in a crossing group
    suspect_domains: set[str] = field(default_factory=set)
    good: list[str] = field(default_factory=list)
    crossed: set[str] = field(default_factory=set)
    met: dict[str, set[str]] = field(default_factory=dict)
    between: bool = False  # groups of several domains are planned: they serve every suspicion

    @property
    def fleet(self) -> Fleet:
        return self.state.fleet

    def learn(self, belief: Belief) -> None:
        """Note suspects, known-good nodes (the least suspect first) and who was measured with whom."""
        self.belief = belief
        for suspicion in belief.suspicions:
            nodes = sum(m.share for m in suspicion.members if m.hypothesis.component.kind is Kind.NODE)
            for member in suspicion.members:
                c = member.hypothesis.component
                if c.kind is Kind.NODE:
                    self.suspects.add(c.place)
                    if nodes > 0.5:
                        self.barred.add(c.place)
                else:
                    self.suspect_domains |= self.fleet.domains_behind(c.kind, c.place)
        tested: set[str] = set()
        bad = set(belief.unexplained)
        for result in self.state.results:
            t = result.test
            if t.rail is None and result.measurement.relative is not None and t.name not in bad:
                tested |= set(t.nodes)
            for n in t.nodes:
                self.met.setdefault(n, set()).update(t.nodes)
            self.crossed |= set(t.nodes) if t.crosses else set()
        order = {n: i for i, n in enumerate(self.fleet.nodes)}
        good = [
            n for n in self.fleet.nodes if n in tested and n not in self.suspects and belief.node_odds[n] < GOOD_ODDS
        ]
        self.good = sorted(good, key=lambda n: (round(math.log10(belief.node_odds[n] + 1e-9)), order[n]))

    def free(self, node: str, rail: int | None = None) -> bool:
        """Return whether ``node`` has the rail (or all rails) left in this round."""
        rails = range(self.fleet.rails) if rail is None else (rail,)
        return all((node, r) not in self.taken for r in rails)

    def add(self, nodes: Iterable[str], rail: int | None, purpose: str) -> bool:
        """Add a test; False when the budget is full, it has fewer than two nodes or a node is taken."""
        group = tuple(nodes)
        left = self.state.settings.max_tests - len(self.state.results) - len(self.tests)
        if left < 1 or len(group) < 2 or not all(self.free(n, rail) for n in group):
            return False
        crosses = len(self.fleet.domains_of(group)) > 1
        name = f"r{len(self.state.rounds) + 1}-{len(self.tests) + 1:02d}"
        self.tests.append(Test(name, group, rail, crosses, purpose))
        rails = range(self.fleet.rails) if rail is None else (rail,)
        self.taken |= {(n, r) for n in group for r in rails}
        return True

    def partner(self, node: str, rail: int | None = None, exclude: Iterable[str] = ()) -> str | None:
        """Return a known-good partner for ``node``: one it never met, from its own domain, else the nearest to that."""
        domain, met, barred = self.fleet.nodes[node].domain, self.met.get(node, set()), set(exclude)

        def rank(n: str) -> tuple[bool, bool, bool]:
            # A partner of the screen's large group is as good as new; one of a pair is not.
            here = self.fleet.nodes[n].domain
            return (n in self.paired_with(node), here != domain, here in self.suspect_domains or n in met)

        choice = [n for n in self.good if n != node and n not in barred and self.free(n, rail)]
        return min(choice, key=rank, default=None)

    def paired_with(self, node: str) -> set[str]:
        """Return the nodes that ``node`` was measured with alone, on any rail."""
        return {
            n for r in self.state.results if len(r.test.nodes) == 2 and node in r.test.nodes for n in r.test.nodes
        } - {node}

    def nodes_of(self, domain: str, count: int) -> list[str]:
        """Return up to ``count`` free nodes of ``domain`` that nothing speaks against, the least measured first."""
        chosen = [n for n in self.fleet.domains[domain] if n not in self.barred and self.free(n)]
        return sorted(chosen, key=lambda n: (n in self.suspects, n in self.crossed))[:count]


def _next(round_: _Round, suspicion: Suspicion) -> None:
    """Add the tests that tell the members of ``suspicion`` apart, or confirm the one that is left."""
    places = suspicion.places()
    (kind, place), share = max(places.items(), key=lambda item: item[1])
    stage = stage_of(round_.state, suspicion)
    if stage is Stage.SETTLED:
        return
    nodes = {p: share for (k, p), share in places.items() if k is Kind.NODE}
    between = sum(s for (k, _), s in places.items() if k not in (Kind.NODE, Kind.LEAF))
    if stage is Stage.SPLIT and between < 0.5:
        if nodes:
            _split_nodes(round_, nodes, suspicion.odds)
        else:
            _confirm_leaf(round_, place)
    elif stage is Stage.SPLIT:
        _split_between(round_, suspicion, share)
    elif kind is Kind.NODE:
        _confirm_node(round_, place, stage, suspicion)
    elif kind is Kind.LEAF:
        _confirm_leaf(round_, place) if stage is Stage.CONFIRM else _rails_between(round_, kind, place, suspicion)
    elif stage is Stage.CONFIRM:
        _split_between(round_, suspicion, share)
    else:
        _rails_between(round_, kind, place, suspicion)


def _split_nodes(round_: _Round, shares: dict[str, float], odds: float) -> None:
    """Halves for a weak suspicion, parts for a strong one, pairs with different known-good partners for few nodes."""
    order = {n: i for i, n in enumerate(round_.fleet.nodes)}
    nodes = sorted(shares, key=order.__getitem__)
    if odds < (WEAK_ODDS if len(nodes) <= PAIR_LIMIT else WEAK_ODDS_OF_MANY) and len(nodes) >= 4:
        parts = _cut(nodes, 2)
    elif len(nodes) > PAIR_LIMIT:
        parts = _cut(nodes, math.ceil(math.sqrt(len(nodes))))
    else:
        ranked = sorted(nodes, key=lambda n: -shares[n])
        held = list(itertools.accumulate(shares[n] for n in ranked))
        enough = next(i for i, h in enumerate(held) if h >= PAIRED_SHARE * held[-1])
        parts = [[n] for n in ranked[: enough + 1]]
    for part in parts:
        if len(part) > 1:
            round_.add(part, None, f"part of a slow group of {len(nodes)}")
        elif (partner := round_.partner(part[0])) is not None:
            round_.add((part[0], partner), None, f"{part[0]} with a known-good partner")
    if all(len(part) == 1 for part in parts) and not round_.tests and len(nodes) > 2:
        for part in _cut(nodes, len(nodes) // 2):
            round_.add(part, None, "no known-good partner left: suspects among themselves")


def _confirm_node(round_: _Round, node: str, stage: Stage, suspicion: Suspicion) -> None:
    """Pair with a new partner; then every rail with another one; then the rails in doubt with a third."""
    if stage is Stage.CONFIRM and suspicion.members[0].hypothesis.component.rail is None:
        if (partner := round_.partner(node)) is not None:
            round_.add((node, partner), None, f"{node} with another known-good partner")
        return
    for rail in _rails_to_test(round_, suspicion):
        if (partner := round_.partner(node, rail)) is not None:
            round_.add((node, partner), rail, f"{node} rail {rail} with another known-good partner")


def _rails_to_test(round_: _Round, suspicion: Suspicion) -> list[int]:
    """Return all rails when none was tested, else those that a member names or that were slow."""
    members = suspicion.members
    if any(m.hypothesis.component.rail is None and not m.hypothesis.how for m in members):
        return list(range(round_.fleet.rails))
    named = {m.hypothesis.component.rail for m in members if m.share > 0.01} - {None}
    return sorted(r for r in named if r is not None) or list(range(round_.fleet.rails))


def _confirm_leaf(round_: _Round, domain: str) -> None:
    """Pairs inside the domain and one out of it: a slow leaf slows them all, a slow node only its own."""
    members = [n for n in round_.fleet.domains[domain] if round_.free(n)]
    random.Random(f"{round_.state.settings.seed} {domain} {len(round_.state.rounds)}").shuffle(members)  # noqa: S311 - an order, no secret
    outside = next((n for n in round_.good if round_.fleet.nodes[n].domain != domain and round_.free(n)), None)
    if outside is not None and members:
        round_.add((members.pop(), outside), None, f"{domain} with a node of another domain")
    for pair in _cut(members, max(1, len(members) // 2))[:3]:
        round_.add(pair, None, f"a pair inside {domain}")


def _between_domains(round_: _Round) -> None:
    """Screen what lies between domains: every domain once in a crossing group, as far as clean nodes allow."""
    if all(r.test.crosses for r in round_.state.results):
        _inside_domains(round_)
    crossings: dict[str, int] = dict.fromkeys(round_.fleet.domains, 0)
    # The screen's groups of neighbouring small domains say little of the ways between all of them.
    for result in (r for results in round_.state.rounds[1:] for r in results):
        if result.test.crosses and result.test.rail is None and result.measurement.relative is not None:
            for d in round_.fleet.domains_of(result.test.nodes):
                crossings[d] += 1
    due = [d for d, n in crossings.items() if n == 0 and d not in round_.suspect_domains]
    if not due or len(round_.fleet.domains) < 2:
        return
    # Few are due: give them company that is known to cross well.
    others = [d for d in crossings if d not in due and d not in round_.suspect_domains]
    domains = due if len(due) > 1 else due + others[:1]
    # Half of a small domain at most: the other half is needed should this group be slow.
    group = [n for d in domains for n in round_.nodes_of(d, _share(round_, d, 2))]
    if len(round_.fleet.domains_of(group)) > 1:
        round_.add(group, None, f"between {len(domains)} domains")


def _inside_domains(round_: _Round) -> None:
    """Two groups inside one domain each: without any, a slow spine looks like a slow run."""
    large = sorted(round_.fleet.domains, key=lambda d: -len(round_.nodes_of(d, NODES_OF_A_DOMAIN)))
    for domain in large[:2]:
        round_.add(round_.nodes_of(domain, NODES_OF_A_DOMAIN), None, f"inside {domain}, to compare with")


def _share(round_: _Round, domain: str, groups: int) -> int:
    """Return how many nodes of ``domain`` each of ``groups`` groups may have."""
    return max(1, min(NODES_OF_A_DOMAIN, len(round_.fleet.domains[domain]) // groups))


def _split_between(round_: _Round, suspicion: Suspicion, share: float) -> None:
    """Groups of different domains, chosen so that each answer halves what is left; also used to confirm.

    Domains are drawn at random and the draw that cuts the remaining probability best is kept, one test after another,
    so that members which no test so far tells apart fall on different sides.
    """
    if round_.between:
        return
    round_.between = True
    fleet = round_.fleet
    if suspicion.odds < WEAK_ODDS_BETWEEN:
        _again_with_others(round_, suspicion)
        return
    weights = {key: w for key, w in suspicion.places().items() if key[0] is not Kind.NODE}
    confirm = share >= ONE_PLACE
    must_show = next(iter(weights)) if confirm else None
    if confirm:
        weights |= {(c.kind, c.place): 0.01 for c in fleet.components if c.kind not in (Kind.NODE, Kind.LEAF)}
    cut = Cut(fleet, weights, f"{round_.state.settings.seed} {len(round_.state.rounds)}")
    for _ in range(2 if confirm else CROSSING_SPLITS):
        drawn = cut.draw([d for d in fleet.domains if round_.nodes_of(d, 1)], must_show)
        group = [n for d in drawn for n in round_.nodes_of(d, _share(round_, d, CROSSING_SPLITS))]
        if drawn and round_.add(group, None, f"between {len(drawn)} domains, to tell uplinks, paths and spine apart"):
            cut.apply(drawn)


def _again_with_others(round_: _Round, suspicion: Suspicion) -> None:
    """Measure between the domains of the test that speaks most for ``suspicion``, with other nodes of them."""
    tests = {r.test.name: r.test for r in round_.state.results}
    of = [tests[name] for name in suspicion.tests if tests[name].crosses and tests[name].rail is None]
    for domains in [sorted(round_.fleet.domains_of(t.nodes)) for t in of[-1:]]:
        group = [n for d in domains for n in round_.nodes_of(d, _share(round_, d, 2))]
        round_.add(group, None, f"between {len(domains)} domains once more, with other nodes")


def _rails_between(round_: _Round, kind: Kind, place: str, suspicion: Suspicion) -> None:
    """Every rail of a group that shows the fault, side by side."""
    fleet = round_.fleet
    inside = sorted(fleet.domains_behind(kind, place))
    outside = [d for d in fleet.domains if d not in inside and d not in round_.suspect_domains]
    domains = inside[:2] if kind in (Kind.PATH, Kind.SPINE) else [inside[0], *outside[:1]]
    if kind is Kind.LEAF:
        domains = inside
    for rail in _rails_to_test(round_, suspicion):
        group = [n for d in domains for n in _for_rail(round_, d, rail)]
        round_.add(group, rail, f"{kind} {place} rail {rail}")


def _for_rail(round_: _Round, domain: str, rail: int) -> list[str]:
    """Return two nodes of ``domain`` that have ``rail`` free, others than those of the last test of it."""
    used = {n for r in round_.state.results if r.test.rail == rail for n in r.test.nodes}
    free = [n for n in round_.fleet.domains[domain] if n not in round_.barred and round_.free(n, rail)]
    return sorted(free, key=lambda n: (n in round_.suspects, n in used))[:2]


def _once_more(round_: _Round) -> None:
    """Repeat a test that was far too slow for noise and that nothing explains: once by chance, twice is an answer."""
    assert round_.belief is not None
    done = [tuple(sorted(r.test.nodes)) for r in round_.state.results if r.test.rail is None]
    for result in round_.state.results:
        t = result.test
        if t.name not in round_.belief.unexplained or t.rail is not None or len(t.nodes) < 3:
            continue
        if done.count(tuple(sorted(t.nodes))) <= REPEATS_OF_UNEXPLAINED:
            round_.add(t.nodes, None, f"{t.name} was slow and nothing explains it: once more")
