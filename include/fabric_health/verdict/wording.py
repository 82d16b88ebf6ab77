"""How numbers and units are put into the sentences of a verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence

NAMED = 4
"""Units that a sentence names before it only counts the rest."""


def percent(share: float | None) -> str:
    """Return e.g. ``9.4 %``; ``?`` for what is not known."""
    if share is None or math.isnan(share):
        return "?"
    if math.isinf(share):
        return "any amount"
    return f"{abs(share) * 100:.1f} %" if abs(share) < 5e-4 else f"{share * 100:.1f} %"


def plural(number: int, what: str) -> str:
    """Return e.g. ``1 launch`` or ``3 launches``."""
    if number == 1:
        return f"1 {what}"
    return f"{number} {what}es" if what.endswith(("ch", "s", "x")) else f"{number} {what}s"


def listed(names: Sequence[str], shown: int = NAMED) -> str:
    """Return names as a list, of those beyond ``shown`` only their number."""
    some = ", ".join(names[:shown])
    return some if len(names) <= shown else f"{some} and {len(names) - shown} more"
