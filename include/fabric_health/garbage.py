"""Python's search for cycles of objects, while a stage makes rows by the ten thousand."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

# Objects made between two searches of the youngest; Python's own is 700. Rows hold texts and numbers, so that there
# are no cycles among them to be found, and each search walks over all of them: a quarter of the time of a large part.
YOUNGEST = 50_000


@contextlib.contextmanager
def seldom_collected() -> Iterator[None]:
    """Look for cycles of garbage seldom for as long as the block, or the function it decorates, runs.

    What is not in a cycle is freed at once as always. For one thread at a time, as stages run.
    """
    before = gc.get_threshold()
    gc.set_threshold(max(YOUNGEST, before[0]) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
