"""Tests, measurements, the budget, and all of it as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from fabric_health.isolation.fleet import Fleet, Place

VERSION = 1


@dataclass(frozen=True)
class Test:
    """One measurement to make: a collective on ``nodes``, on one ``rail`` of each or on all rails (None).

    ``name`` is unique in the session. ``crosses`` says whether the group has nodes of more than one domain; with the
    number of nodes and ``rail is None`` it is what the expected bandwidth depends on. ``purpose`` is for a person.
    """

    __test__ = False  # not a test case of pytest

    name: str
    nodes: tuple[str, ...]
    rail: int | None
    crosses: bool
    purpose: str


@dataclass(frozen=True)
class Measurement:
    """What a test gave. ``relative`` is measured over expected bandwidth (1.0 = as expected), None when it gave no
    number: hang, crash, wrong hosts. ``reason`` then says why; ``excused`` is true where that says nothing about the
    nodes (no quota, cancelled), false where the group may be broken.
    """

    test: str
    relative: float | None
    reason: str = ""
    excused: bool = False


@dataclass(frozen=True)
class Result:
    """A test with what it gave."""

    test: Test
    measurement: Measurement


@dataclass(frozen=True)
class Settings:
    """What to look for, how sure to be, and what it may cost.

    ``min_loss`` is the smallest loss that matters (fraction). ``noise`` is the usual spread of one launch's result
    (fraction, from history); it is estimated again from the session. ``run_effect`` is how far a whole run may differ
    from what is expected (one standard deviation, fraction), ``max_loss`` the largest loss that is told from a larger
    one. ``false_blame`` is the accepted probability that a blamed component is innocent. ``faults`` is how many slow
    nodes are expected before anything is measured. ``outliers`` is the share of launches that are slow for no lasting
    reason. ``minutes_per_round`` is one launch with its start; rounds run their tests side by side.
    """

    min_loss: float = 0.05
    noise: float = 0.02
    run_effect: float = 0.02
    max_loss: float = 0.6
    false_blame: float = 0.005
    faults: float = 0.5
    outliers: float = 0.02
    max_tests: int = 80
    max_rounds: int = 10
    max_minutes: float = 60.0
    minutes_per_round: float = 4.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges.

        :raises ValueError: a value out of range, by name.
        """
        for name in ("min_loss", "noise", "run_effect", "false_blame", "outliers"):
            if not 0.0 < getattr(self, name) < 0.5:
                raise ValueError(f"{name}: expected a fraction between 0 and 0.5, got {getattr(self, name)}")
        if not self.min_loss < self.max_loss < 1.0:
            raise ValueError(f"max_loss: expected a fraction between min_loss and 1, got {self.max_loss}")
        for name in ("faults", "max_tests", "max_rounds", "max_minutes", "minutes_per_round"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: expected more than 0, got {getattr(self, name)}")


@dataclass(frozen=True)
class State:
    """Everything known so far. Plans and verdicts are functions of it alone."""

    fleet: Fleet
    settings: Settings = field(default_factory=Settings)
    rounds: tuple[tuple[Result, ...], ...] = ()

    @property
    def results(self) -> tuple[Result, ...]:
        """All results, in the order of their rounds."""
        return tuple(r for results in self.rounds for r in results)

    @property
    def minutes(self) -> float:
        """Estimated minutes spent: rounds x minutes per round."""
        return len(self.rounds) * self.settings.minutes_per_round

    def spent(self) -> str:
        """Return which budget is used up, or an empty string."""
        s = self.settings
        if len(self.results) >= s.max_tests:
            return f"the budget of {s.max_tests} tests is used up"
        if len(self.rounds) >= s.max_rounds:
            return f"the budget of {s.max_rounds} rounds is used up"
        if self.minutes + s.minutes_per_round > s.max_minutes:
            return f"the budget of {s.max_minutes:g} minutes is used up"
        return ""

    def to_json(self) -> str:
        """Return the state as JSON; equal states give equal text."""
        return json.dumps(
            {
                "version": VERSION,
                "fleet": {
                    "nodes": [[n, p.domain, p.pod] for n, p in self.fleet.nodes.items()],
                    "rails": self.fleet.rails,
                },
                "settings": asdict(self.settings),
                "rounds": [[asdict(r) for r in results] for results in self.rounds],
            },
            sort_keys=True,
        )

    @classmethod
    def from_json(cls, text: str) -> State:
        """Return the state that ``to_json`` wrote.

        :raises ValueError: another version, or not such a text.
        """
        try:
            found: dict[str, Any] = json.loads(text)
            if found["version"] != VERSION:
                raise ValueError(f"isolation state: expected version {VERSION}, got {found['version']}")
            fleet = Fleet({n: Place(d, p) for n, d, p in found["fleet"]["nodes"]}, found["fleet"]["rails"])
            rounds = tuple(tuple(_results(results)) for results in found["rounds"])
            return cls(fleet, Settings(**found["settings"]), rounds)
        except (KeyError, TypeError, AttributeError) as e:
            raise ValueError(f"isolation state: not a state written by this version ({e})") from e


def _results(found: list[dict[str, Any]]) -> Iterator[Result]:
    for r in found:
        test = {**r["test"], "nodes": tuple(r["test"]["nodes"])}
        yield Result(Test(**test), Measurement(**r["measurement"]))
