"""Reach nodes by pods: one short-lived pod a node runs the same probe as over SSH, and its log is the answer.

All pods of a collection are looked at with one request a second, so their number does not matter to the cluster's API.
A pod is deleted as soon as it is read; what is left when a collection ends, for whatever reason, is deleted then.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from fabric_health.connections import ConnectionSource
from fabric_health.errors import ConnectionSettingError
from fabric_health.evidence import ReachStatus
from fabric_health.jobs.kubernetes.api import Cluster, ClusterAwayError, ClusterRefusedError
from fabric_health.jobs.kubernetes.kinds import POD, Phase
from fabric_health.jobs.kubernetes.reasons import of_pod
from fabric_health.jobs.kubernetes.sweep import sweep
from fabric_health.reach import probe
from fabric_health.reach.answer import probe_deadline_s
from fabric_health.reach.frames import new_nonce
from fabric_health.reach.pod_answer import MAX_LOG_BYTES, PodAnswer, take
from fabric_health.reach.pod_manifest import COLLECTION, CONTAINER, MAX_SCRIPT_BYTES, ProbePod
from fabric_health.reach.transcript import Transcript, UnitFaultError, utc_now
from fabric_health.site import ReachProfile
from fabric_health.site_pods import NODE_NAME, ProbePods

log = logging.getLogger(__name__)
Json = dict[str, Any]
T = TypeVar("T")
LOOK_S = 1.0
CALLS_AT_ONCE = 16
# An API that is away for longer costs the units that wait for it; a collection is repeated in a minute.
PATIENCE_S = 60.0
# At the end nobody waits for us any more, and the sweep deletes what we could not.
LAST_PATIENCE_S = 15.0
# What waiting does not help (an image that is not there) is left this long: a registry may only be slow.
HOPELESS_S = 20.0
# A kubelet may need a moment to have a log's last lines.
LOG_TRIES = 4


@dataclass(frozen=True)
class _Look:
    """All pods of the collection by name, as the API had them after ``began`` (the event loop's clock)."""

    began: float
    pods: Mapping[str, Json]


@dataclass
class PodLink:
    """What the pods of one profile in one collection share: the cluster, and the eye that is kept on them."""

    profile: ReachProfile
    cluster: Cluster
    collection: str = field(default_factory=new_nonce)
    _made: set[str] = field(default_factory=set, init=False)
    _closing: threading.Event = field(default_factory=threading.Event, init=False)
    _next: asyncio.Future[_Look] = field(init=False)

    def __post_init__(self) -> None:
        self.cluster = replace(self.cluster, patience_s=PATIENCE_S, sleep=self._pause)
        self._threads = ThreadPoolExecutor(CALLS_AT_ONCE, "cluster")
        self._next = asyncio.get_running_loop().create_future()
        self._eye = asyncio.create_task(self._look(), name="looking at pods")

    @classmethod
    async def open(cls, profile: ReachProfile, connections: ConnectionSource) -> PodLink:
        """Connect to the cluster and delete what a collection that was killed left there, past its deadline.

        Raises ConnectionSettingError.
        """
        if profile.kubernetes is None:
            raise ConnectionSettingError(
                "a reach profile of kind kubernetes has no `kubernetes`; see docs/site-file.md"
            )
        link = cls(profile, Cluster.connect(profile.connection, profile.kubernetes.namespace, connections))
        try:
            for name in await link._call(sweep, link.cluster, datetime.now(UTC), (POD,)):
                log.info("%s was left behind and is deleted", name)
        except (ClusterRefusedError, ClusterAwayError) as error:
            log.debug("not swept: %s", error)  # each unit will say so itself
        return link

    @property
    def pods(self) -> ProbePods:
        assert self.profile.kubernetes is not None
        return self.profile.kubernetes

    async def ask(self, transcript: Transcript, _until: float, _moved: Callable[[], None]) -> None:
        """Ask one node and fill ``transcript``. Raises UnitFaultError when it does not answer as asked."""
        request = transcript.request
        limit_s = request.unit.reach.unit_timeout_s
        pod = ProbePod(
            request, self.pods, self.collection, new_nonce(), probe_deadline_s(limit_s), transcript.started_at
        )
        if (size := len(pod.script)) > MAX_SCRIPT_BYTES:
            what = f"its {len(request.commands)} commands take {size} bytes; a pod's command holds {MAX_SCRIPT_BYTES}"
            raise UnitFaultError(ReachStatus.NOT_PLACED, what)
        self._made.add(pod.name)  # before it is made: a call that is cut short may have made it all the same
        try:
            await self._call(self.cluster.create, POD, pod.manifest())
            made_at = asyncio.get_running_loop().time()
            answer = await self._end_of(pod, made_at, transcript)
        except ClusterRefusedError as error:
            status = ReachStatus.AUTH_FAILED if error.status in (401, 403) else ReachStatus.NOT_PLACED
            # A quota and a webhook refuse with 403 as well.
            if str(error).startswith(("quota ", "admission webhook ")):
                status = ReachStatus.NOT_PLACED
            raise UnitFaultError(status, str(error)) from None
        except ClusterAwayError as error:
            raise UnitFaultError(ReachStatus.UNREACHABLE, str(error)) from None
        finally:
            await self._remove(pod.name)
        take(transcript, pod.nonce, answer)

    async def close(self) -> None:
        """Delete every pod that is left. Nothing is awaited: it must be done also when everything is cancelled."""
        self._eye.cancel()
        self._closing.set()
        self._threads.shutdown(wait=True, cancel_futures=True)
        last = replace(self.cluster, patience_s=LAST_PATIENCE_S, sleep=time.sleep)
        with ThreadPoolExecutor(CALLS_AT_ONCE, "cluster") as threads:
            list(threads.map(lambda name: self._delete(last, name), sorted(self._made)))

    # -- one pod ---------------------------------------------------------------------------------------------------

    async def _end_of(self, pod: ProbePod, made_at: float, transcript: Transcript) -> PodAnswer:
        """Follow a pod to its end, or to the end of its time, and return its log.

        Raises UnitFaultError when it does not start, or is deleted.
        """
        loop = asyncio.get_running_loop()
        limit_s = transcript.request.unit.reach.unit_timeout_s
        hopeless_at = running_at = None
        while True:
            seen_before = utc_now()
            obj = await self._seen(pod.name, made_at)
            phase, now = POD.state(obj).phase, loop.time()
            if phase is Phase.PENDING:
                hopeless_at = await self._pending(obj, now, made_at, hopeless_at)
                continue
            self._on_the_right_node(pod, obj)
            if phase.final:
                return PodAnswer(obj, await self._log(pod), over=True)
            if running_at is None:
                # The node's clock is not believed; it began to run between two looks.
                running_at, transcript.started_at = now, seen_before
            if now - running_at >= limit_s:
                return PodAnswer(obj, await self._log(pod, tries=1), over=False)

    async def _seen(self, name: str, made_at: float) -> Json:
        """Return the pod as the next look has it. Raises UnitFaultError when it is gone."""
        while True:
            look = await asyncio.shield(self._next)
            if look.began >= made_at:
                break
        if name not in look.pods:
            raise UnitFaultError(ReachStatus.CLOSED_EARLY, f"pod {name} was deleted before it was read, and not by us")
        return look.pods[name]

    async def _pending(self, obj: Json, now: float, made_at: float, hopeless_at: float | None) -> float | None:
        """Return since when there is no hope, None while there is. Raises UnitFaultError when it waited long enough."""
        trouble = of_pod(obj)
        hopeless_at = (hopeless_at or now) if trouble and trouble.hopeless else None
        over = now - made_at >= self.pods.start_limit_s
        if over or (hopeless_at is not None and now - hopeless_at >= HOPELESS_S):
            said = trouble.text if trouble else await self._why(obj)
            raise UnitFaultError(ReachStatus.NOT_PLACED, f"after {now - made_at:.0f} s: {said}")
        return hopeless_at

    async def _why(self, obj: Json) -> str:
        """Return what the events of a pod say that is itself silent: a folder that is no folder, a slow registry."""
        name = str(obj["metadata"]["name"])
        events = await self._call(self.cluster.events, name)
        if trouble := of_pod(obj, events):
            return trouble.text
        last = f"its last event is {events[-1].get('reason')}: {events[-1].get('message')}" if events else "no event"
        return f"pod {name} does not run, for no reason that the cluster gives ({last[:300]})"

    def _on_the_right_node(self, pod: ProbePod, obj: Json) -> None:
        node, asked = (obj.get("spec") or {}).get("nodeName"), pod.request.unit.address
        if self.pods.node_selector_key == NODE_NAME and node and node != asked:
            raise UnitFaultError(ReachStatus.MALFORMED, f"pod {pod.name} ran on node {node!r} instead of {asked!r}")

    async def _log(self, pod: ProbePod, tries: int = LOG_TRIES) -> bytes | None:
        data: bytes | None = None
        for attempt in range(tries):
            if attempt:
                await asyncio.sleep(0.5 * attempt)
            data = await self._call(self.cluster.log, pod.name, CONTAINER, MAX_LOG_BYTES)
            if data and f"{probe.MAGIC} {pod.nonce} end ".encode() in data:
                break
        return data

    async def _remove(self, name: str) -> None:
        if not self._closing.is_set():
            await self._call(self._delete, self.cluster, name)

    def _delete(self, cluster: Cluster, name: str) -> None:
        try:
            cluster.delete(POD, name)
        except (ClusterRefusedError, ClusterAwayError) as error:
            log.warning("pod %s is not deleted, the sweep will do it: %s", name, error)
        else:
            self._made.discard(name)

    # -- all pods --------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            if not self._made:
                continue
            began = loop.time()
            try:
                pods = await self._call(self.cluster.objects, POD, f"{COLLECTION}={self.collection}")
            except Exception as error:  # whatever it is, those who wait must hear of it
                self._tell(error)
            else:
                self._tell(_Look(began, {str(p["metadata"]["name"]): p for p in pods}))

    def _tell(self, seen: _Look | Exception) -> None:
        told, self._next = self._next, asyncio.get_running_loop().create_future()
        if isinstance(seen, _Look):
            told.set_result(seen)
            return
        told.set_exception(seen)
        told.exception()  # nobody may be waiting for it

    async def _call(self, function: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: function(*args))

    def _pause(self, seconds: float) -> None:
        """Wait between two tries of a call, in its thread; at the end of the collection nothing is tried again."""
        if self._closing.wait(seconds):
            raise ClusterAwayError("the collection ended before the cluster's API answered")
