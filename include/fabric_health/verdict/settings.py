"""How a run of a fleet is judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Round:
    """One more round of launches: ``launches`` for each unit that is at least ``z`` standard errors slow."""

    z: float
    launches: int

    def __post_init__(self) -> None:
        if self.launches < 1:
            raise ValueError(f"a round of {self.launches} launches; expected one or more")


@dataclass(frozen=True)
class Settings:
    """The defaults are those that ``bench/verdicts.py`` supports.

    ``alpha``: probability that a run in which nothing happened blames anything, over all units, groups and the fleet
    of all ``panels`` that are judged together. 3 % for normal noise leave room for the heavy tails of launches: at most
    one false alarm in 20 weekly runs. ``unit_share`` and ``group_share`` of it are for units and groups, the rest for
    the fleet as a whole. ``history``: past runs that count; ``min_history``: with fewer a unit has no past.
    ``min_units``: fewer units in a run cannot tell what the run did to all of them. ``min_group``: smaller groups are
    not looked at as groups. ``rounds``: screening rounds; empty: decide on what is there. ``most_extra``: launches
    that all rounds of a run may take, as a share of its regular ones; four units are always allowed all rounds.
    """

    alpha: float = 0.03
    panels: int = 1
    unit_share: float = 0.6
    group_share: float = 0.1
    history: int = 8
    min_history: int = 3
    min_units: int = 8
    min_group: int = 4
    rounds: tuple[Round, ...] = (
        Round(1.1, 1),
        Round(1.5, 3),
        Round(2.0, 4),
        Round(2.4, 10),
        Round(2.9, 20),
    )
    most_extra: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 0.5 or self.panels < 1 or self.history < 2 or self.min_history < 2:
            raise ValueError("expected 0 < alpha < 0.5, panels >= 1, history >= 2 and min_history >= 2")
        if min(self.unit_share, self.group_share) <= 0 or self.unit_share + self.group_share >= 1:
            raise ValueError("expected positive shares of alpha for units and groups that leave some for the fleet")
        if self.min_units < 3 or self.min_group < 2 or self.most_extra < 0:
            raise ValueError("expected min_units >= 3, min_group >= 2 and most_extra >= 0")

    @property
    def extra(self) -> int:
        """Launches that a unit has taken beyond the regular ones when it went through all rounds."""
        return sum(r.launches for r in self.rounds)


DEFAULTS: Final = Settings()
