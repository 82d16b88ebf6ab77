"""Events that training tells itself (``training.jsonl``, lines ``EV {json}``), injected faults, events of pods."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from fabric_health.checks.elastic_training.events import INJECTED, Event, Kind, Reading, Source
from fabric_health.checks.elastic_training.parsers.numbers import count, document, moment, number, text
from fabric_health.checks.untrusted import clip

MAX_LINE = 64 << 10
NOT_FINITE = "loss is no finite number"
MAX_EVENTS = 200_000
_TRAINING = {k.value: k for k in (Kind.START, Kind.RESUME, Kind.STEP, Kind.SAVE, Kind.DONE)}
_INJECTED = {k.value: k for k in INJECTED}
_PODS = {
    k.value.removeprefix("pod_"): k
    for k in (
        Kind.POD_CREATED, Kind.POD_RUNNING, Kind.POD_DELETED, Kind.POD_GONE, Kind.POD_SUCCEEDED, Kind.POD_FAILED,
    )
}  # fmt: skip


class Other(Enum):
    """What a line is that is whole, and tells of something that is not read."""

    KIND = "kind"


# An event, something that is not read, or, for a line that ought to be either, nothing.
Told = Event | Other | None


def read_training(lines: str) -> Reading:
    """Return the events of ``training.jsonl``. Never raises; lines that are no events are counted as damaged."""
    return _read(lines, training_event)


def read_faults(lines: str) -> Reading:
    """Return the events of ``faults.jsonl``: what was injected, and when."""
    return _read(lines, fault_event)


def read_pods(lines: str) -> Reading:
    """Return the events of ``pods.jsonl``: what became of each pod of the job."""
    return _read(lines, pod_event)


def _read(lines: str, event_of: Callable[[str], Told]) -> Reading:
    out = Reading()
    for line in lines.split("\n"):  # only that ends a line: JSON may hold other breaks as they are
        if not line.strip():
            continue
        if len(out.events) >= MAX_EVENTS or out.damaged >= MAX_EVENTS:
            out.cut = True
            break
        told = event_of(line) if len(line) <= MAX_LINE else None
        if isinstance(told, Event):
            out.events.append(told)
        elif told is None:
            out.damaged += 1
    return out


def training_event(line: str) -> Told:
    """Return the event that a JSON object tells: kind, time and, of a step, its number are needed.

    A kind that is not known is passed over: a program may tell more than is read. A loss that is no finite number is
    kept as a note: training that computes NaN must not look like one without loss.
    """
    said = document(line)
    named = text(said.get("kind")) if said else None
    if said is None or named is None:
        return None
    kind, at = _TRAINING.get(named), moment(said.get("t"))
    if kind is None:
        return Other.KIND
    step, loss = count(said.get("step")), number(said.get("loss"))
    if at is None or (kind in (Kind.STEP, Kind.RESUME) and step is None):
        return None
    bad = kind is Kind.STEP and said.get("loss") is not None and loss is None
    return Event(
        kind,
        Source.TRAINING,
        at,
        node=_node(said.get("node")),
        rank=count(said.get("rank")),
        world=count(said.get("world")),
        step=step,
        restart=count(said.get("restart")),
        loss=loss,
        detail=clip(f"{NOT_FINITE} ({said.get('loss')})") if bad else None,
    )


def fault_event(line: str) -> Told:
    """Return the injected fault that a JSON object tells."""
    said = document(line)
    kind = _INJECTED.get(str(said.get("fault"))) if said else None
    at = moment(said.get("t")) if said else None
    if said is None or kind is None or at is None:
        return None
    said_more = [t for k in ("pod", "detail") if (t := text(said.get(k)))]
    return Event(
        kind,
        Source.INJECTOR,
        at,
        node=_node(said.get("node")),
        rank=count(said.get("rank")),
        step=count(said.get("step")),
        detail=clip(": ".join(said_more)) or None,
        peer=count(said.get("rank_index")),
    )


def pod_event(line: str) -> Told:
    """Return what a JSON object tells of a worker's pod; pods of other kinds are passed over."""
    said = document(line)
    kind = _PODS.get(str(said.get("event"))) if said else None
    at = moment(said.get("t")) if said else None
    pod = text(said.get("pod")) if said else None
    if said is None or kind is None or at is None or pod is None:
        return None
    if said.get("replica_type", "worker") != "worker":
        return Other.KIND
    return Event(
        kind,
        Source.KUBERNETES,
        at,
        node=_node(said.get("node")),
        restart=count(said.get("relaunch_count")),
        detail=clip(pod),
        value=count(said.get("replica_id")),
        peer=count(said.get("rank_index")),
    )


def _node(value: object) -> str | None:
    found = text(value)
    return clip(found, 120) if found else None
