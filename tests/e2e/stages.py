"""Runs stages of a run in a process of its own and, where told, dies of SIGKILL between two of its writes.

``stages.py SITE REF [collect:switch_config ...] [land:switch_config@3]``: ``@3`` kills the process as the stage's third
write is about to be sent, ``@3+`` right after it was answered.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from fabric_health import pipeline
from fabric_health.datasets.store import ObjectStore
from fabric_health.rooms import open_rooms

WHOLE = {
    "compare": pipeline.compare,
    "explain": pipeline.explain,
    "quality": pipeline.check_quality,
    "conclude": pipeline.conclude,
    "publish": pipeline.publish,
}
PER_CHECK = {"collect": pipeline.collect, "land": pipeline.land, "judge": pipeline.judge}


def die_at(write: int, *, after: bool) -> None:
    """End this process at its ``write``-th put from now on, as a power cut would."""
    put, lock, done = ObjectStore.put, threading.Lock(), 0

    def counted(self: ObjectStore, key: str, data: bytes, content_type: str | None = None) -> None:
        nonlocal done
        with lock:
            done += 1
            mine = done == write
        if mine and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        put(self, key, data, content_type)
        if mine:
            os.kill(os.getpid(), signal.SIGKILL)

    ObjectStore.put = counted


def main(site: str, ref: str, *stages: str) -> None:
    rooms = open_rooms(Path(site), lambda message: print(message, flush=True))
    for stage in stages:
        what, _, moment = stage.partition("@")
        name, _, check = what.partition(":")
        if moment:
            die_at(int(moment.rstrip("+")), after=moment.endswith("+"))
        if check:
            PER_CHECK[name](rooms, ref, check)
        else:
            WHOLE[name](rooms, ref)
        if moment:
            raise SystemExit(f"{stage}: ended before that write")


if __name__ == "__main__":
    main(*sys.argv[1:])
