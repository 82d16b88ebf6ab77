"""How many units are worked on at once, without letting those that hang block those that answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

# A healthy unit shows progress (connection, login, output) more often than this.
QUIET_S = 3.0


@dataclass
class _Slot:
    held: bool = True
    quiet: bool = False
    moved_at: float = 0.0
    timer: asyncio.TimerHandle | None = None


@dataclass
class Slots:
    """At most ``concurrency`` units are active; one that is quiet for ``quiet_s`` gives its place to the next.

    So a hundred hanging units cost the others ``quiet_s`` seconds, not a hundred time limits. At most ``quiet_limit``
    units may be waited for beside the active ones, for each of them holds a connection open.
    """

    concurrency: int
    quiet_limit: int
    quiet_s: float = QUIET_S
    _places: asyncio.Semaphore = field(init=False, repr=False)
    _quiet: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._places = asyncio.Semaphore(self.concurrency)

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[Callable[[], None]]:
        """Wait for a place and yield the function that tells of progress."""
        await self._places.acquire()
        loop = asyncio.get_running_loop()
        slot = _Slot(moved_at=loop.time())

        def moved() -> None:
            slot.moved_at = loop.time()

        def look() -> None:
            still_s = loop.time() - slot.moved_at
            if still_s >= self.quiet_s and self._quiet < self.quiet_limit:
                slot.held, slot.quiet = False, True
                self._quiet += 1
                self._places.release()
                return
            slot.timer = loop.call_later(max(0.05, self.quiet_s - still_s), look)

        slot.timer = loop.call_later(self.quiet_s, look)
        try:
            yield moved
        finally:
            if slot.timer is not None:
                slot.timer.cancel()
            if slot.quiet:
                self._quiet -= 1
            if slot.held:
                self._places.release()
