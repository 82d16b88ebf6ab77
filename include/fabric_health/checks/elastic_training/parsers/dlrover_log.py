"""Reads logs of DLRover's master and agents, of releases 0.3.7 and 0.6, and what training prints among them.

Sources of the lines: dlrover/python/master/elastic_training/rdzv_manager.py, dlrover/python/elastic_agent/torch/
training.py, dlrover/trainer/torch/flash_checkpoint/engine.py, dlrover/python/training_event/event.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from fabric_health.checks.elastic_training.events import CheckLine, Event, Kind, Reading, Source
from fabric_health.checks.elastic_training.parsers.log_lines import Message, messages, too_long
from fabric_health.checks.elastic_training.parsers.numbers import count, literal, number, seconds
from fabric_health.checks.elastic_training.parsers.training_events import NOT_FINITE, training_event
from fabric_health.checks.untrusted import clip

MAX_EVENTS = 50_000
NODE_CHECK_NAMES = ("network-check", "node-check")
_DICT = r"(\{[^{}]*\})"


@dataclass
class _Log:
    """What has been seen of a log so far. ``node`` is the rank of the node whose agent speaks, where it says so."""

    source: Source
    node: str | None
    known: str | None
    rendezvous: str = ""
    out: Reading = field(default_factory=Reading)

    def tell(self, kind: Kind, message: Message, **values: object) -> None:
        if len(self.out.events) >= MAX_EVENTS:
            self.out.cut = True
            return
        source = values.pop("source", self.source)
        node = values.pop("node", self.node)
        self.out.events.append(Event(kind, source, message.at, node, **values))  # type: ignore[arg-type]

    def ill(self) -> None:
        """Note a line that looks like one of ours and cannot be read."""
        self.out.damaged += 1


class _Line(NamedTuple):
    needle: str
    read: Callable[[_Log, Message], None]


def read_dlrover_log(log: str, source: Source, node: str | None = None) -> Reading:
    """Return the events of a log. ``node`` is the rank of the node that it is of, where its file says so.

    Output of several pods one after the other is told apart by what each agent says of its own rank. Never raises.
    """
    state = _Log(source, node, node)
    state.out.cut = too_long(log)
    for message in messages(log):
        found = _NEEDLES.search(message.text)
        if found is not None:
            _READERS[found[0]](state, message)
    return state.out


# -- rendezvous ------------------------------------------------------------------------------------------------------

_COMPLETED = re.compile(r"Completed (\d{1,9}) round rendezvous of ([\w-]{1,60}) is " + _DICT)
_RESULT = re.compile(r"(\w{1,40})=(\[[^\]]*\]|\S{1,200})")
_ATTEMPTS = re.compile(r"with rank (\d{1,9}) attempts to join the next round of the rendezvous ([\w-]{1,60})")
_JOINED = re.compile(r"has joined round \d{1,9} of the ([\w-]{1,60}) rendezvous as rank (\d{1,9}) in a world")
_LAUNCHES = re.compile(r"Launching agent entrypoint: .{0,2000}, rank: (\d{1,9})\s*$", re.S)
_REMOVED = re.compile(r"Remove exited worker (\d{1,9}) with rank (\d{1,9}) from ([\w-]{1,60}) rendezvous")


def _completed(log: _Log, message: Message) -> None:
    found = _COMPLETED.search(message.text)
    nodes = literal(found[3]) if found else None
    if found is None or not isinstance(nodes, dict):
        log.ill()
        return
    ranks = {node_id: count(rank) for node_id, rank in nodes.items()}
    # The older release has local world sizes there, as torch does: the same number for each.
    if len(nodes) > 1 and None not in ranks.values() and len(set(ranks.values())) == len(ranks):
        log.out.ranks.update({node_id: rank for node_id, rank in ranks.items() if rank is not None})
    kind = Kind.CHECK_RENDEZVOUS if found[2] in NODE_CHECK_NAMES else Kind.RENDEZVOUS
    log.tell(kind, message, node=None, world=len(nodes), detail=f"round {found[1]} of {found[2]}")


def _rendezvous_complete(log: _Log, message: Message) -> None:
    said = dict(_RESULT.findall(message.text))
    world, restart = count(said.get("group_world_size", "")), count(said.get("restart_count", ""))
    if world is None:
        log.ill()
        return
    sizes = literal(said.get("global_world_sizes", ""))
    processes = count(sizes[0]) if isinstance(sizes, list) and sizes else None
    kind = Kind.CHECK_RENDEZVOUS if log.rendezvous in NODE_CHECK_NAMES else Kind.RENDEZVOUS
    log.tell(kind, message, world=processes or world, restart=restart, detail=f"group_world_size {world}")


def _attempts(log: _Log, message: Message) -> None:
    if found := _ATTEMPTS.search(message.text):
        log.node, log.rendezvous = found[1], found[2]


def _joined(log: _Log, message: Message) -> None:
    if found := _JOINED.search(message.text):
        log.rendezvous = found[1]


def _launches(log: _Log, message: Message) -> None:
    """Another pod's log begins, where the logs of several come one after the other."""
    if found := _LAUNCHES.search(message.text):
        log.node, log.rendezvous = found[1], ""
    else:
        log.node = log.known


def _removed(log: _Log, message: Message) -> None:
    found = _REMOVED.search(message.text)
    if found is None:
        log.ill()
    elif found[3] not in NODE_CHECK_NAMES:
        log.tell(Kind.NODE_LOST, message, node=found[2], detail=clip(message.text))


# -- node check ------------------------------------------------------------------------------------------------------

# A sample in DLRover's documentation has "time aree".
_STATUS = re.compile(r"(?i)round (\d{1,9}): the node status\s+are*:?\s*" + _DICT)
_ELAPSED = re.compile(r"(?i)round (\d{1,9}): the node elapsed time\s+are*:?\s*" + _DICT)
_ROUND_TIME = re.compile(r"check time of round (\d{1,9}) is ([\d.eE+-]{1,30}) and succeed is (True|False)")
_AGENTS_VIEW = re.compile(r"Fault nodes are: ?(\[[^\[\]]*\]).{0,400}?stragglers are: ?(\[[^\[\]]*\])", re.S)
_FAULTY = re.compile(r"Fault nodes\(rank:node_id\) are: ?" + _DICT)
_STRAGGLERS = re.compile(r"Straggler: ?" + _DICT)
_RESULT_IS = re.compile(r"check result is (True|False)")


def _status(log: _Log, message: Message) -> None:
    found = _STATUS.search(message.text)
    values = literal(found[2]) if found else None
    if found is None or not isinstance(values, dict) or not all(isinstance(v, bool) for v in values.values()):
        log.ill()
        return
    passed = {k: v for k, v in values.items() if isinstance(v, bool)}
    log.out.checks.append(CheckLine(int(found[1]), passed=passed, by_id=True))
    failed = sorted(k for k, v in passed.items() if not v)
    log.tell(Kind.NODE_CHECK, message, node=None, detail=clip(f"round {found[1]}, failed: {failed or 'none'}"))


def _elapsed(log: _Log, message: Message) -> None:
    found = _ELAPSED.search(message.text)
    values = literal(found[2]) if found else None
    if found is None or not isinstance(values, dict) or any(seconds(v) is None for v in values.values()):
        log.ill()
        return
    times = {k: s for k, v in values.items() if (s := seconds(v)) is not None}
    log.out.checks.append(CheckLine(int(found[1]), elapsed=times, by_id=True))
    log.tell(Kind.NODE_CHECK, message, node=None, detail=clip(f"round {found[1]}, times: {found[2]}"))


def _round_time(log: _Log, message: Message) -> None:
    found = _ROUND_TIME.search(message.text)
    time = _float(found[2]) if found else None
    if found is None or time is None:
        log.ill()
        return
    passed = found[3] == "True"
    rank = count(log.node)
    if rank is not None:
        log.out.checks.append(CheckLine(int(found[1]), elapsed={rank: time}, passed={rank: passed}))
    log.tell(Kind.NODE_CHECK, message, detail=f"round {found[1]}: {time:g} s, {'passed' if passed else 'failed'}")


def _faulty(log: _Log, message: Message) -> None:
    found = _FAULTY.search(message.text)
    nodes = literal(found[1]) if found else None
    if not isinstance(nodes, dict):
        log.ill()
        return
    for rank, node_id in nodes.items():
        identity = count(node_id)
        if identity is not None:
            log.out.ranks[identity] = rank
        log.tell(Kind.NODE_CHECK_FAILED, message, node=str(rank), detail=clip(message.text))


def _stragglers(log: _Log, message: Message) -> None:
    found = _STRAGGLERS.search(message.text)
    nodes = literal(found[1]) if found else None
    if not isinstance(nodes, dict):
        log.ill()
        return
    _note_stragglers(log, message, frozenset(nodes))


def _agents_view(log: _Log, message: Message) -> None:
    found = _AGENTS_VIEW.search(message.text)
    faulty, slow = (literal(found[1]), literal(found[2])) if found else (None, None)
    if not isinstance(faulty, list) or not isinstance(slow, list):
        log.ill()
        return
    for rank in {r for r in map(count, faulty) if r is not None}:
        log.tell(Kind.NODE_CHECK_FAILED, message, node=str(rank), detail=clip(message.text))
    _note_stragglers(log, message, frozenset(r for r in map(count, slow) if r is not None))


def _note_stragglers(log: _Log, message: Message, ranks: frozenset[int]) -> None:
    if not ranks:
        return
    log.out.checks.append(CheckLine(-1, stragglers=ranks))
    for rank in sorted(ranks):
        log.tell(Kind.STRAGGLER, message, node=str(rank), detail=clip(message.text))


def _check_result(log: _Log, message: Message) -> None:
    found = _RESULT_IS.search(message.text)
    if found and found[1] == "False":
        log.tell(Kind.NODE_CHECK_FAILED, message, detail=clip(message.text))


def _check_failed(log: _Log, message: Message) -> None:
    log.tell(Kind.NODE_CHECK_FAILED, message, detail=clip(message.text))


# -- faults and what is done about them ------------------------------------------------------------------------------

_FAILURE = re.compile(r"(\d{1,9}): ProcessFailure\(([^()]{0,2000})")
_EXIT_CODE = re.compile(r"exitcode=(-?\d{1,6})")
_LEFT = re.compile(r"Decrement remaining FO to (-?\d{1,9})")
_HEARTBEAT = re.compile(r"The node (\d{1,9})-(\S{1,200}) has not sent a heartbeat")


def _worker_failed(log: _Log, message: Message) -> None:
    failures = _FAILURE.findall(message.text)
    if not failures:
        log.tell(Kind.WORKER_FAILED, message, detail=clip(message.text))
    for rank, said in failures[:64]:
        code = _EXIT_CODE.search(said)
        detail = f"exit code {code[1]}" if code else clip(said)
        log.tell(Kind.WORKER_FAILED, message, rank=int(rank), detail=detail)


def _restart(log: _Log, message: Message) -> None:
    log.tell(Kind.RESTART, message, detail=clip(message.text))


def _restarts_left(log: _Log, message: Message) -> None:
    found = _LEFT.search(message.text)
    if found is None:
        log.ill()
    else:
        log.tell(Kind.RESTARTS_LEFT, message, value=int(found[1]), detail=f"{found[1]} left")


def _heartbeat(log: _Log, message: Message) -> None:
    found = _HEARTBEAT.search(message.text)
    log.tell(Kind.NODE_LOST, message, node=found[1] if found else None, detail=clip(message.text))


_LOADED = re.compile(r"Load checkpoint at step (\d{1,16}) from (?:the )?(\w{1,20})")


def _loaded(log: _Log, message: Message) -> None:
    found = _LOADED.search(message.text)
    step = count(found[1]) if found else None
    if found is None or step is None:
        log.ill()
        return
    # Releases say disk or storage; both are what outlives the node.
    place = "memory" if found[2].lower() == "memory" else "storage"
    log.tell(Kind.CHECKPOINT_LOADED, message, step=step, detail=place)


def _downgraded(log: _Log, message: Message) -> None:
    log.tell(Kind.DOWNGRADED, message, detail=clip(message.text))


def _performance(log: _Log, message: Message) -> None:
    log.tell(Kind.PERFORMANCE, message, detail=clip(message.text))


def _exit(log: _Log, message: Message) -> None:
    log.tell(Kind.EXIT, message, detail=clip(message.text))


# -- training and structured events ----------------------------------------------------------------------------------

_LOSS_STEP = re.compile(r"loss = ([-\w.+]{1,40}), step = (\d{1,16})")
_STRUCTURED = re.compile(
    r"(?:\[[\w.:-]{1,60}\] )?\[(\d{1,12})\] \[([\w-]{1,64})\] \[([^\]\[]{0,80})\] \[(#?\w{1,60})\] "
    r"\[(BEGIN|END|INSTANT)\] (\{.*)",
    re.S,
)


def _loss_step(log: _Log, message: Message) -> None:
    found = _LOSS_STEP.search(message.text)
    step = count(found[2]) if found else None
    if found is None or step is None:
        return
    loss = _float(found[1], signed=True)
    detail = None if loss is not None else f"{NOT_FINITE} ({found[1]})"
    log.tell(Kind.STEP, message, source=Source.TRAINING, step=step, loss=loss, detail=detail)


def _event_line(log: _Log, message: Message) -> None:
    # The last one of the line: what a pod said last may be cut, and the text of the next pod follow at once.
    event = training_event(message.text[message.text.rfind("EV {") + 3 :])
    if event is None:
        log.ill()
    elif not isinstance(event, Event):
        return
    elif len(log.out.events) < MAX_EVENTS:
        log.out.events.append(event)
    else:
        log.out.cut = True


def _structured(log: _Log, message: Message) -> None:
    found = _STRUCTURED.search(message.text)
    if found is None:
        return
    # #agent_exit says that it failed also after a good run, so nothing is made of what they hold.
    log.tell(Kind.STRUCTURED, message, detail=clip(f"{found[3]} {found[4]} {found[5]} {found[6]}"))


def _float(word: str, *, signed: bool = False) -> float | None:
    try:
        found = number(float(word))
    except ValueError:
        return None
    return found if found is not None and (signed or seconds(found) is not None) else None


# Of several in a line the one that comes first in it counts.
_LINES: tuple[_Line, ...] = (
    _Line("EV {", _event_line),
    _Line("] [BEGIN] {", _structured),
    _Line("] [END] {", _structured),
    _Line("] [INSTANT] {", _structured),
    _Line("loss = ", _loss_step),
    _Line("round rendezvous of", _completed),
    _Line("Rendezvous complete for workers", _rendezvous_complete),
    _Line("attempts to join the next round of the rendezvous", _attempts),
    _Line("has joined round", _joined),
    _Line("Launching agent entrypoint", _launches),
    _Line("Remove exited worker", _removed),
    _Line("The node status", _status),
    _Line("The node elapsed time", _elapsed),
    _Line("check time of round", _round_time),
    _Line("Fault nodes(rank:node_id)", _faulty),
    _Line("Fault nodes are:", _agents_view),
    _Line("Straggler: ", _stragglers),
    _Line("check result is", _check_result),
    _Line("The node is a straggler and exits", _check_failed),
    _Line("The node network is breakdown", _check_failed),
    _Line("NodeCheckFailedError", _check_failed),
    _Line("failed the node-check procedure", _check_failed),
    _Line("GPU basic check failed", _check_failed),
    _Line("Network check needs at least", _check_failed),
    _Line("This node is down", _check_failed),
    _Line("The worker fails with", _worker_failed),
    _Line("ProcessFailure(", _worker_failed),
    _Line("restart_worker", _restart),
    _Line("will restart worker group", _restart),
    _Line("Decrement remaining FO", _restarts_left),
    _Line("has not sent a heartbeat", _heartbeat),
    _Line("Load checkpoint at step", _loaded),
    _Line("Downgrade to use torch-run", _downgraded),
    _Line("AllReduce Perf:", _performance),
    _Line("Succeeded and exit", _exit),
    _Line("Failed and exit", _exit),
    _Line("Job exit with the reason", _exit),
    _Line("All workers failed", _exit),
    _Line("All nodes hanged", _exit),
)
_READERS = {line.needle: line.read for line in _LINES}
_NEEDLES = re.compile("|".join(re.escape(line.needle) for line in _LINES))
