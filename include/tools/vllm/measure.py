"""Serve one model with vLLM and measure the server: speed under load, quality of its answers, greedy fingerprint.

    python measure.py --model DIR --name NAME --out FOLDER --concurrency 1,4 ... -- <flags of vllm serve>

Everything runs on this machine: the server, and its clients. Steps that are not asked for are left out; a step that
fails hides no other. ``server.json`` says what became of all of them; the tools' own reports lie beside it, unchanged.
Exit code 0 when every step ended well. Whatever ends this program, SIGKILL aside, the server ends with it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import api
import embeddings
import serving
import weights
from clients import Prepared
from load import Load, bench_argv, guidellm
from processes import Descendants, Signals, Watch
from steps import StepError, Steps, tail, take, write_json

import quality

LOG_BYTES = 256 * 1024
ASK_S = 30.0
HURRY_S = 1.5


@dataclass(frozen=True)
class Placement:
    """Which folder's weights are hashed, which folder is served, and under which name."""

    hashed: Path
    served: Path
    name: str


def place(options: argparse.Namespace, scratch: Path) -> Placement:
    """Return what was asked for: the model's folder, under its name. ``scratch`` is deleted in the end."""
    return Placement(options.model, options.model, options.name)


@contextlib.contextmanager
def reached(port: int) -> Iterator[int]:
    """Give the port at which clients find the server: the server's own."""
    yield port


@dataclass
class Measurement:
    """One measurement from start to end, and what is written down about it."""

    options: argparse.Namespace
    scratch: Path
    signals: Signals = field(default_factory=Signals)
    descendants: Descendants = field(default_factory=Descendants)
    files: dict[str, str] = field(default_factory=dict)
    manifest: dict[str, Any] | None = None
    problem: str = ""
    device: str = ""
    server: serving.Server | None = None
    clients: dict[str, Prepared] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.steps = Steps(self.descendants, self.signals, self.scratch, self.options.step_limit)
        self.watch = Watch(self.descendants)
        self.env = serving.environment(self.scratch, os.environ, self.options.threads)

    def run(self) -> None:
        """Serve and measure. What fails is written down, not raised; only a signal ends it early (SystemExit)."""
        o = self.options
        placement = self.steps.call("place", lambda _: place(o, self.scratch))
        if placement is None:
            return
        self.files = self.steps.call("hash", lambda _: weights.weight_files(placement.hashed)) or {}
        if not self.files:
            return
        self.manifest = weights.manifest(placement.hashed)
        self._prepare_clients()
        port = api.free_port()
        asked = serving.Asked(placement.served, placement.name, port, o.kind, tuple(o.flags))
        self.server = serving.Server(asked, self.descendants, self.signals, self.scratch)
        self.steps.call("start", self._start, o.start_limit)
        if self.server.start_s == 0.0:
            return
        self.steps.alive = self.server.gone
        self.steps.call("identify", self._identify, ASK_S)
        self.steps.call("clients", self._clients_ready, o.start_limit)
        if self.server.served != [o.name]:
            # Numbers of another model under this one's name would be worse than none.
            self.problem = f"the server serves {self.server.served}, asked for was {o.name!r}: nothing was measured"
            return
        with reached(port) as client_port:
            self._measure(quality.Served(client_port, o.name, placement.served))

    def _start(self, limit_s: float) -> None:
        assert self.server is not None
        self.server.start(self.env)
        assert self.server.process is not None
        self.watch.server = self.server.process.pid
        self.server.wait_ready(limit_s)

    def _identify(self, limit_s: float) -> None:
        assert self.server is not None
        self.device = self.server.device()
        self.server.identify(limit_s)

    def _prepare_clients(self) -> None:
        wanted = {"bench": bool(self.options.concurrency), "evaluate": bool(self.options.tasks)}
        for kind in (k for k, asked in wanted.items() if asked):
            self.clients[kind] = Prepared(kind, self.descendants, self.scratch, self.env)

    def _clients_ready(self, limit_s: float) -> None:
        for client in self.clients.values():
            client.wait_ready(self.steps, limit_s)

    def _measure(self, served: quality.Served) -> None:
        o, steps = self.options, self.steps
        answers, likely, vectors = (o.out / f"{n}.json" for n in ("fingerprint", "perplexity", "embeddings"))
        if o.prompts_file:
            steps.call(
                "fingerprint", lambda s: quality.fingerprint(served, o.prompts_file, o.greedy_tokens, answers, s)
            )
        if o.evaluation:
            text = quality.Windows(o.evaluation, o.windows, o.window_tokens)
            steps.call("perplexity", lambda s: quality.perplexity(served, text, likely, s))
        if o.texts_file:
            steps.call("embeddings", lambda s: embeddings.embed(served, o.texts_file, vectors, s))
        self._load(served)
        if o.tasks:
            self._evaluate(served)
        steps.call("metrics", lambda s: serving.scrape(served.port, o.out / "metrics.txt", min(s, ASK_S)))

    def _load(self, served: quality.Served) -> None:
        o = self.options
        sizes = (o.prompts, o.input_tokens, o.output_tokens, o.seed)
        for concurrency in o.concurrency:
            for repeat in range(1, o.repeats + 1):
                load = Load(concurrency, repeat, *sizes, tuple(o.goodput))
                words = bench_argv(load, o.kind, served.model, served.name, served.port, self.scratch)
                self._prepared("bench", load.name, ["vllm", *words], partial(self._take_bench, load))
        if o.guidellm_seconds and o.concurrency:
            load = Load(max(o.concurrency), o.guidellm_seconds, *sizes)
            guidellm(self.steps, o.out / "guidellm.json", served.port, served.model, served.name, load, self.env)

    def _take_bench(self, load: Load) -> None:
        take(self.scratch / f"{load.name}.json", self.options.out / f"{load.name}.json")

    def _evaluate(self, served: quality.Served) -> None:
        o = self.options
        folder = self.scratch / "lm-eval"
        argv = quality.evaluate_argv(served, o.tasks, o.task, o.items, folder)
        # Tasks name their data by paths relative to their own folder, wherever that lies.
        self._prepared("evaluate", "lm-eval", argv, lambda: quality.take_evaluation(folder, o.task, o.out), o.tasks)

    def _prepared(
        self, kind: str, name: str, argv: list[str], report: Callable[[], None], folder: Path | None = None
    ) -> None:
        def run(log: Path) -> int:
            if kind not in self.clients:
                raise StepError("its client was not started")
            return self.clients[kind].run(self.steps, argv, log, folder or self.scratch)

        self.steps.program(name, run, report)

    def end(self) -> None:
        """Stop everything, see what is left, and write ``server.json``."""
        o, server = self.options, self.server
        stopped = time.monotonic()
        forced: list[str] = []
        if self.signals.received:
            # Whoever ends a job waits a few seconds and then kills all of it.
            forced = self.descendants.end(None, HURRY_S)
        for client in self.clients.values():
            client.end()
        forced += server.stop() if server else []
        if server and server.process:
            code = server.process.poll()
            self.steps.note("stop", 0 if code is not None else 1, time.monotonic() - stopped)
            (o.out / "server.log").write_bytes(tail(server.log, LOG_BYTES))
        self.watch.end()
        port = server.asked.port if server else 0
        left = serving.remains(port, self.watch.segments, self.descendants, self.scratch)
        write_json(o.out / "server.json", self._report(forced, left))

    def _report(self, forced: list[str], left: list[str]) -> dict[str, Any]:
        o, server = self.options, self.server
        return {
            "program": "measure",
            "kind": o.kind,
            "asked": o.name,
            "served": server.served if server else [],
            "weights_sha256": weights.weights_sha256(self.files) if self.files else "",
            "files": self.files,
            "manifest": self.manifest,
            "version": server.version if server else "",
            "argv": server.argv if server else [],
            "flags": list(o.flags),
            "device": self.device,
            "start_s": server.start_s if server else 0.0,
            "stop_s": server.stop_s if server else 0.0,
            "peak_memory_mib": round(self.watch.peak_mib, 1),
            "server_peak_memory_mib": round(self.watch.server_peak_mib, 1),
            "killed": [*self.steps.killed, *forced],
            "left": left,
            "steps": self.steps.as_rows(),
            "problem": self.problem,
        }

    def ended_well(self) -> bool:
        """Tell whether every step did what it should."""
        return not self.problem and all(s.exit_code == 0 for s in self.steps.done)


def main(argv: list[str] | None = None) -> int:
    """Measure. Returns the exit code; the last line of the output is ``{"program": "measure", "problem": ...}``."""
    options = parsed(sys.argv[1:] if argv is None else argv)
    options.out.mkdir(parents=True, exist_ok=True)
    signals = Signals()
    signals.install()
    m = Measurement(options, scratch_folder(options.out), signals)
    m.descendants.adopt()
    m.watch.begin()
    try:
        m.run()
    except SystemExit:
        m.problem = f"stopped by {signal.Signals(signals.received).name}" if signals.received else "stopped"
    finally:
        with contextlib.suppress(SystemExit), signals.held():
            m.end()
    failed = [f"{s.name}: {s.problem}" for s in m.steps.done if s.exit_code != 0]
    problem = m.problem or "; ".join(failed)[:1000]
    sys.stdout.write(json.dumps({"program": "measure", "problem": problem}) + "\n")
    sys.stdout.flush()
    if signals.received:
        return 128 + signals.received
    return 0 if m.ended_well() else 1


def scratch_folder(out: Path) -> Path:
    """Return a new folder beside the reports' (in a job, below the job's own); elsewhere where that cannot be."""
    try:
        return Path(tempfile.mkdtemp(prefix=".measure-", dir=out.resolve().parent))
    except OSError:
        return Path(tempfile.mkdtemp(prefix="measure-"))


def parsed(argv: list[str]) -> argparse.Namespace:
    """Return the options; what follows ``--`` are the server's flags."""
    own, flags = _cut(argv)
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    p.add_argument("--model", type=Path, required=True, help="folder with config, tokenizer and *.safetensors")
    p.add_argument("--name", required=True, help="name under which the model is served")
    p.add_argument("--out", type=Path, required=True, help="folder of the reports")
    p.add_argument("--kind", choices=("generate", "embed"), default="generate")
    p.add_argument("--threads", type=_positive, help="threads of a server on CPUs; default: all processors but one")
    p.add_argument("--start-limit", type=_seconds, default=600.0, help="s until the server is healthy")
    p.add_argument("--step-limit", type=_seconds, default=600.0, help="s for each step after that")
    p.add_argument("--concurrency", type=_numbers, default=[], help="requests at once, e.g. 1,4: load is measured")
    p.add_argument("--repeats", type=_positive, default=1)
    p.add_argument("--prompts", type=_positive, default=24)
    p.add_argument("--input-tokens", type=_positive, default=64)
    p.add_argument("--output-tokens", type=_positive, default=32)
    p.add_argument("--seed", type=int, default=0, help="of the random prompts")
    p.add_argument("--goodput", action="append", default=[], metavar="METRIC:MS", help="e.g. ttft:200; repeatable")
    p.add_argument("--guidellm-seconds", type=_positive, default=0)
    p.add_argument("--tasks", type=Path, help="folder with lm-eval's task files")
    p.add_argument("--task", type=lambda text: text.split(","), default=[], help="names, comma separated")
    p.add_argument("--items", type=int, default=0, help="first items of each task; 0: all")
    p.add_argument("--evaluation", type=Path, help='JSONL with {"text"}: its perplexity is measured')
    p.add_argument("--windows", type=_positive, default=32)
    p.add_argument("--window-tokens", type=_positive, default=256)
    p.add_argument("--prompts-file", type=Path, help='JSONL with {"id", "prompt"}: greedy answers are kept')
    p.add_argument("--greedy-tokens", type=_positive, default=32)
    p.add_argument("--texts-file", type=Path, help='JSONL with {"id", "text"}: vectors are kept (kind embed)')
    options = p.parse_args(own)
    options.flags = flags
    if bool(options.tasks) != bool(options.task):
        p.error("--tasks and --task belong together")
    if options.kind == "embed" and (options.tasks or options.evaluation or options.prompts_file):
        p.error("a server of embeddings generates nothing: --tasks, --evaluation and --prompts-file do not fit")
    if options.kind == "generate" and options.texts_file:
        p.error("--texts-file needs --kind embed")
    for name in ("model", "out", "tasks", "evaluation", "prompts_file", "texts_file"):
        if getattr(options, name) is not None:
            setattr(options, name, getattr(options, name).resolve())
    return options


def _cut(argv: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in argv:
        return argv, []
    at = argv.index("--")
    return argv[:at], argv[at + 1 :]


def _positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise ValueError
    return value


def _seconds(text: str) -> float:
    if not 0 < (value := float(text)) < 1e6:
        raise ValueError
    return value


def _numbers(text: str) -> list[int]:
    return [_positive(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
