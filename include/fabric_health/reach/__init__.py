"""How a unit is reached: commands in, evidence out, whatever the unit does.

:func:`collect` asks many units at once. A unit that refuses, hangs, floods, lies about its host key or answers
rubbish yields evidence that says exactly that and delays nobody else.
"""

from fabric_health.reach.collection import collect, collect_async
from fabric_health.reach.request import UnitRequest

__all__ = ["UnitRequest", "collect", "collect_async"]
