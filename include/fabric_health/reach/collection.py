"""Ask many units at once, each within its own limits."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from fabric_health.connections import ConnectionSource
from fabric_health.errors import ConnectionSettingError
from fabric_health.evidence import ReachStatus, UnitEvidence
from fabric_health.reach.request import UnitRequest
from fabric_health.reach.slots import QUIET_S, Slots
from fabric_health.reach.transcript import Transcript, UnitFaultError
from fabric_health.site import ReachProfile

LOOKUP_THREADS = 32
# Calls of a cluster's API that make, read and delete a pod, beside the time that it takes to start and to run.
POD_CALLS_S = 90.0
OnEvidence = Callable[[UnitEvidence], None]
_Ask = Callable[[Transcript, float, Callable[[], None]], Awaitable[None]]


def collect(requests: Sequence[UnitRequest], connections: ConnectionSource, on_evidence: OnEvidence) -> None:
    """Ask every unit and hand over each one's evidence as it ends, in any order.

    ``on_evidence`` is called exactly once for each request, never twice at the same time, in one thread of its own so
    that slow storage does not hold up the units. What it raises stops the collection and is raised here. A unit's
    fault is never raised: it is the evidence's status.

    Raises ConnectionSettingError, before anything starts, when a profile's connection cannot be used.
    """
    asyncio.run(collect_async(requests, connections, on_evidence))


async def collect_async(
    requests: Sequence[UnitRequest], connections: ConnectionSource, on_evidence: OnEvidence
) -> None:
    """Do what :func:`collect` does, inside a running event loop."""
    if not requests:
        return
    async with contextlib.AsyncExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(1, "evidence"))
        profiles = await _profiles(requests, connections, stack)
        loop = asyncio.get_running_loop()

        async def one(request: UnitRequest) -> None:
            evidence = await _unit(request, profiles[request.unit.reach])
            await loop.run_in_executor(threads, on_evidence, evidence)

        tasks = [asyncio.create_task(one(r), name=r.unit.name) for r in requests]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@dataclass
class _Profile:
    """How the units of one profile are asked, and how many at once."""

    ask: _Ask
    slots: Slots = field(repr=False)


async def _profiles(
    requests: Sequence[UnitRequest], connections: ConnectionSource, stack: contextlib.AsyncExitStack
) -> dict[ReachProfile, _Profile]:
    for request in requests:
        if request.unit.kind == "switch" and (kind := request.unit.reach.kind) != "ssh":
            raise ConnectionSettingError(f"{request.unit.name}: a switch cannot be reached as `{kind}`; expected ssh")
    distinct = dict.fromkeys(r.unit.reach for r in requests)
    quiet = _spare_descriptors()
    out: dict[ReachProfile, _Profile] = {}
    for profile in distinct:
        if profile.kubernetes is not None:
            # A pod that waits for its node is a pod all the same: it keeps its place.
            ask, slots = await _ask_pods(profile, connections, stack), Slots(profile.concurrency, quiet_limit=0)
        else:
            ask = _ask_here if profile.kind == "local" else await _ask_ssh(profile, connections, stack)
            slots = Slots(profile.concurrency, quiet, QUIET_S)
        out[profile] = _Profile(ask, slots)
    return out


async def _ask_here(transcript: Transcript, until: float, moved: Callable[[], None]) -> None:
    from fabric_health.reach.local import ask_local

    await ask_local(transcript, until - asyncio.get_running_loop().time(), moved)


async def _ask_ssh(profile: ReachProfile, connections: ConnectionSource, stack: contextlib.AsyncExitStack) -> _Ask:
    # Imported here: DAG files import this package, and they must stay light.
    from fabric_health.reach.settings import resolve
    from fabric_health.reach.ssh import SshLink

    lookups = ThreadPoolExecutor(LOOKUP_THREADS, "lookup")
    stack.callback(lookups.shutdown, wait=False, cancel_futures=True)
    link = SshLink(resolve(profile, connections), lookups)
    stack.push_async_callback(link.close)
    return link.ask


async def _ask_pods(profile: ReachProfile, connections: ConnectionSource, stack: contextlib.AsyncExitStack) -> _Ask:
    from fabric_health.reach.pods import PodLink

    link = await PodLink.open(profile, connections)
    stack.push_async_callback(link.close)
    return link.ask


def _limit_s(profile: ReachProfile) -> float:
    """Return the seconds after which a unit is given up; a pod also needs time to start and to be read."""
    pods = profile.kubernetes
    return profile.unit_timeout_s + (pods.start_limit_s + POD_CALLS_S if pods else 0.0)


async def _unit(request: UnitRequest, profile: _Profile) -> UnitEvidence:
    async with profile.slots.one() as moved:
        transcript = Transcript(request)
        limit_s = _limit_s(request.unit.reach)
        until = asyncio.get_running_loop().time() + limit_s
        try:
            async with asyncio.timeout_at(until):
                await profile.ask(transcript, until, moved)
        except TimeoutError:
            detail = f"no whole answer within {limit_s:g} s; {transcript.progress}"
            return transcript.evidence(ReachStatus.HUNG, detail)
        except UnitFaultError as fault:
            detail = f"{fault.detail}; {transcript.progress}" if transcript.results else fault.detail
            return transcript.evidence(fault.status, detail)
        except Exception as error:
            # Whatever a hostile peer makes a library raise is that unit's fault and nobody else's.
            return transcript.evidence(ReachStatus.MALFORMED, f"{type(error).__name__}: {str(error)[:200]}")
        return transcript.evidence(ReachStatus.OK)


def _spare_descriptors() -> int:
    """Return how many quiet units may be waited for beside the active ones: half of the open files we may have."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2048 if soft == resource.RLIM_INFINITY else max(16, min(4096, soft // 2))
