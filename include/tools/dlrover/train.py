"""A small data-parallel training job under DLRover that tells what happens to it: it starts, resumes, steps and saves.

Run by ``dlrover-run ... train.py``, once a rank: on gloo without a GPU, on NCCL with one. An event is one JSON object,
printed as ``EV {json}`` and, with ``--events``, appended to a file that all ranks of a machine may share. The batch of
a step is a function of the seed and the step alone, and the ranks divide it among them: a run that resumes from its
checkpoint, with as many ranks or fewer, goes on with the same run. Checkpoints are DLRover's flash checkpoints: into
shared memory every ``--checkpoint-every`` steps, and of those every ``--disk-every``-th into ``--checkpoints``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

INPUTS = 32
LEARNING_RATE = 3e-3
NOISE = 0.05


@dataclass(frozen=True)
class Events:
    """Where this rank tells its events, and who it is in every one of them."""

    who: dict[str, Any]
    file: Path | None = None

    def tell(self, kind: str, **more: Any) -> None:
        """Print one event and append it to the file, in one write, so that lines of several ranks do not mix."""
        line = json.dumps({"t": round(time.time(), 4), "kind": kind, **self.who, **more})
        sys.stdout.write(f"EV {line}\n")
        sys.stdout.flush()
        if self.file is not None:
            out = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(out, f"{line}\n".encode())
            finally:
                os.close(out)


@dataclass
class Training:
    """Model, optimiser and the step that they are at."""

    torch: Any
    device: Any
    model: Any
    optimiser: Any
    step: int = 0
    teacher: Any = field(default=None)

    def batch(self, seed: int, step: int, size: int) -> tuple[Any, Any]:
        """Return inputs (size x INPUTS) and targets (size x 1) of a step: the same ones on every rank, in every run."""
        torch = self.torch
        if self.teacher is None:
            first = torch.Generator().manual_seed(seed)
            self.teacher = (torch.randn(INPUTS, 8, generator=first) / INPUTS**0.5, torch.randn(8, 1, generator=first))
        numbers = torch.Generator().manual_seed(seed * 1_000_003 + step + 1)
        inputs = torch.randn(size, INPUTS, generator=numbers)
        targets = torch.tanh(inputs @ self.teacher[0]) @ self.teacher[1]
        targets = targets + NOISE * torch.randn(size, 1, generator=numbers)
        return inputs.to(self.device), targets.to(self.device)

    def advance(self, options: argparse.Namespace, rank: int, world: int) -> float:
        """Take one step on this rank's share of the batch. Returns the mean squared error over the whole batch."""
        inputs, targets = self.batch(options.seed, self.step, options.batch)
        # Shares differ by one item where the ranks do not divide the batch; the weight keeps the sum that of the batch.
        mine, wanted = inputs[rank::world], targets[rank::world]
        loss = ((self.model(mine) - wanted) ** 2).sum() * (world / options.batch)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.step += 1
        total = loss.detach() / world
        self.torch.distributed.all_reduce(total)
        return float(total)


def prepared(options: argparse.Namespace) -> Training:
    """Return the training at step 0; equal on all ranks."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    torch.manual_seed(options.seed)
    layers: list[Any] = [torch.nn.Linear(INPUTS, options.width), torch.nn.ReLU()]
    for _ in range(options.depth - 1):
        layers += [torch.nn.Linear(options.width, options.width), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(options.width, 1)).to(device)
    model = DistributedDataParallel(model, device_ids=[device.index] if on_gpu else None)
    return Training(torch, device, model, torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE))


def resume(training: Training, checkpointer: Any) -> None:
    """Load the newest checkpoint, from memory or else from disk; without one the training stays at step 0."""
    state = checkpointer.load_checkpoint()
    if state:
        training.model.load_state_dict(state["model"])
        training.optimiser.load_state_dict(state["optimiser"])
        training.step = int(state["step"])


def save(training: Training, checkpointer: Any, options: argparse.Namespace) -> str:
    """Save a checkpoint (all ranks take part). Returns where to: ``memory`` or ``disk``."""
    from dlrover.trainer.torch.flash_checkpoint.checkpointer import StorageType

    number = training.step // options.checkpoint_every
    disk = number % options.disk_every == 0
    state = {
        "model": training.model.state_dict(),
        "optimiser": training.optimiser.state_dict(),
        "step": training.step,
    }
    checkpointer.save_checkpoint(
        training.step,
        state,
        path=str(options.checkpoints / str(training.step) / "rank_0.pt"),
        storage_type=StorageType.DISK if disk else StorageType.MEMORY,
    )
    return "disk" if disk else "memory"


def train(options: argparse.Namespace) -> int:
    """Train to the last step. Returns 0; a rank that loses its peers ends with their error, for DLRover to handle."""
    import torch
    import torch.distributed as dist
    from dlrover.trainer.torch.flash_checkpoint.ddp import DdpCheckpointer

    dist.init_process_group(
        "nccl" if torch.cuda.is_available() else "gloo", timeout=timedelta(seconds=options.collective_timeout)
    )
    rank, world = dist.get_rank(), dist.get_world_size()
    events = Events(
        {
            "rank": rank,
            "world": world,
            "node": number("NODE_RANK", "WORKER_RANK", "GROUP_RANK"),
            "restart": number("TORCHELASTIC_RESTART_COUNT"),
            "pid": os.getpid(),
        },
        options.events,
    )
    events.tell("start", step=0)
    training = prepared(options)
    checkpointer = DdpCheckpointer(str(options.checkpoints))
    began = time.monotonic()
    resume(training, checkpointer)
    events.tell("resume", step=training.step, load_s=round(time.monotonic() - began, 4))
    loss = float("nan")
    while training.step < options.steps:
        if training.step == options.steps - 1 and options.hold is not None:
            wait_for(options.hold)
        began = time.monotonic()
        loss = training.advance(options, rank, world)
        if rank == 0 and training.step % options.report_every == 0:
            events.tell("step", step=training.step, loss=round(loss, 6))
        if training.step % options.checkpoint_every == 0:
            saving = time.monotonic()
            storage = save(training, checkpointer, options)
            if rank == 0:
                took = round(time.monotonic() - saving, 4)
                events.tell("save", step=training.step, storage=storage, save_s=took)
        time.sleep(max(0.0, options.step_seconds - (time.monotonic() - began)))
    dist.barrier()
    events.tell("done", step=training.step, loss=None if loss != loss else round(loss, 6))
    dist.destroy_process_group()
    return 0


def wait_for(file: Path) -> None:
    """Wait until the file is there; each rank does so by itself, at the same step."""
    while not file.exists():
        time.sleep(0.05)


def number(*names: str) -> int | None:
    """Return the first of these environment variables that is a number."""
    for name in names:
        text = os.environ.get(name, "")
        if text.isascii() and text.isdigit():
            return int(text)
    return None


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoints", type=Path, required=True, help="folder of checkpoints, the same on all nodes")
    parser.add_argument("--checkpoint-every", type=int, default=5, help="steps between checkpoints in memory")
    parser.add_argument("--disk-every", type=int, default=4, help="every so many of them also go to disk")
    parser.add_argument("--report-every", type=int, default=1, help="steps between two events of kind step")
    parser.add_argument("--step-seconds", type=float, default=0.0, help="a step takes this long at least, in s")
    parser.add_argument("--collective-timeout", type=float, default=600.0, help="s until a collective gives up")
    parser.add_argument("--batch", type=int, default=64, help="items of a step, divided among the ranks")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--events", type=Path, help="file to which events are appended, too")
    parser.add_argument("--hold", type=Path, help="the last step is not taken before this file is there")
    options = parser.parse_args(argv)
    counts = ("steps", "checkpoint_every", "disk_every", "report_every", "batch", "width", "depth")
    for name in counts:
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: expected 1 or more")
    if not 0 <= options.step_seconds <= 60 or not 1 <= options.collective_timeout <= 86_400:
        parser.error("expected --step-seconds of 0 to 60 and --collective-timeout of 1 to 86400")
    return options


def main(argv: list[str] | None = None) -> int:
    """Run one rank. Returns the exit code."""
    return train(_options(sys.argv[1:] if argv is None else argv))


if __name__ == "__main__":
    sys.exit(main())
