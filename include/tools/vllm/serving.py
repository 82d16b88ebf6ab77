"""One vLLM server on this machine: started, waited for, identified, stopped, and nothing of it left."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import api
import psutil
from processes import Descendants, Signals, shared_memory_of
from steps import StepError, last_lines, tail

LOOK_S = 0.25
STOP_S = 20.0
KILL_GRACE_S = 1.0
_DEVICE = re.compile(r"device_config=(?:DeviceConfig\(device_type='?)?([a-z]+)")


@dataclass(frozen=True)
class Asked:
    """What to serve. ``flags`` are vLLM's own; where they contradict the rest, the rest wins."""

    model: Path
    name: str
    port: int
    kind: str = "generate"
    flags: tuple[str, ...] = ()


def command(asked: Asked) -> list[str]:
    """Return the command line of the server.

    Prefix caching is off: with it, a second run of the same prompts measures the cache.
    """
    pooling = ["--runner", "pooling"] if asked.kind == "embed" and "--runner" not in asked.flags else []
    return [
        *vllm(),
        *("serve", str(asked.model), *pooling, *asked.flags),
        *("--host", api.HOST, "--port", str(asked.port), "--served-model-name", asked.name),
        "--no-enable-prefix-caching",
        *("--uvicorn-log-level", "warning"),
    ]


def vllm() -> list[str]:
    """Return how vLLM's command is started: its own script, or ours for builds whose script does not work."""
    script = Path(sys.executable).with_name("vllm")
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("vllm")
        if script.is_file():
            return [str(script)]
    return [sys.executable, str(Path(__file__).with_name("vllm_command.py"))]


def environment(scratch: Path, base: Mapping[str, str], threads: int | None) -> dict[str, str]:
    """Return the environment of the server and of its clients: offline, silent, everything written below ``scratch``.

    vLLM's own cache alone stays from run to run, in the virtual environment, where that can be written.
    What ``base`` sets itself is kept, such as a cache on a volume, the size of the KV cache on CPUs (GiB, an integer)
    or the number of threads.
    """
    out = {
        "HF_HOME": str(scratch / "hf"),
        "VLLM_CACHE_ROOT": str(_cache() or scratch / "vllm"),
        "VLLM_CONFIG_ROOT": str(scratch / "config"),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
        "TRITON_CACHE_DIR": str(scratch / "triton"),
        "NUMBA_CACHE_DIR": str(scratch / "numba"),
        "VLLM_HOST_IP": api.HOST,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        # Clients of one small server need no pool of threads, and a pool disturbs what it measures.
        "TOKENIZERS_PARALLELISM": "false",
        **base,
        "TMPDIR": str(scratch),
        # Sockets have short names, so that the folder's own may be long: they lie where the server runs.
        "VLLM_RPC_BASE_PATH": ".",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "no_proxy": api.HOST,
        "NO_PROXY": api.HOST,
        "PYTHONUNBUFFERED": "1",
    }
    if not accelerated():
        # One processor is left to the server's other processes and to the clients, as vLLM does by itself.
        out.setdefault("OMP_NUM_THREADS", str(threads or max(1, len(os.sched_getaffinity(0)) - 1)))
        # Threads that spin while they wait for one that has no processor make a shared machine a hundred times slower.
        out.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        # Bound to the first processors, two servers on one machine would share those and leave the others idle.
        out.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    return out


def accelerated() -> bool:
    """Tell whether this machine (or container) has been given a GPU: NVIDIA's or AMD's device files are there."""
    return any(Path(p).exists() for p in ("/dev/nvidiactl", "/dev/kfd"))


def _cache() -> Path | None:
    """Return where vLLM keeps what it found out about model classes: in this environment, if it is a virtual one."""
    own = sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK)
    return Path(sys.prefix) / "cache" / "vllm" if own else None


@dataclass
class Server:
    """A running server and what is known about it."""

    asked: Asked
    descendants: Descendants
    signals: Signals
    scratch: Path
    process: subprocess.Popen[bytes] | None = None
    argv: list[str] = field(default_factory=list)
    served: list[str] = field(default_factory=list)
    version: str = ""
    start_s: float = 0.0
    stop_s: float = 0.0

    @property
    def log(self) -> Path:
        """The file with all that the server says."""
        return self.scratch / "server.log"

    def start(self, env: Mapping[str, str]) -> None:
        """Start the server; it is not ready yet. Raises OSError."""
        self.argv = command(self.asked)
        self.process = self.descendants.start(self.argv, env, self.scratch, self.log)

    def wait_ready(self, limit_s: float) -> None:
        """Wait until the server says that it is healthy. Raises StepError past the limit, or when it ends before."""
        started = time.monotonic()
        while time.monotonic() - started < limit_s:
            if gone := self.gone():
                raise StepError(gone)
            with contextlib.suppress(api.ApiError):
                api.get(self.asked.port, "/health", 2.0)
                self.start_s = round(time.monotonic() - started, 3)
                return
            time.sleep(LOOK_S)
        raise StepError(f"not healthy after {limit_s:g} s; the server said last: {last_lines(self.log)}")

    def identify(self, limit_s: float) -> None:
        """Ask the server what it serves, and in which version. Raises ApiError, StepError."""
        answer = api.get_json(self.asked.port, "/v1/models", limit_s)
        try:
            self.served = [str(m["id"]) for m in answer["data"]]
            self.version = str(api.get_json(self.asked.port, "/version", limit_s)["version"])
        except (KeyError, TypeError):
            raise StepError("/v1/models or /version: not an answer of vLLM") from None

    def gone(self) -> str:
        """Return why the server cannot answer any more; "" while it runs."""
        if self.process is None:
            return "the server was not started"
        code = self.process.poll()
        if code is None:
            return ""
        return f"the server ended with exit code {128 - code if code < 0 else code}: {last_lines(self.log)}"

    def stop(self) -> list[str]:
        """Stop the server: SIGINT as vLLM wants it, then by force what is left. Return what had to be forced."""
        if self.process is None:
            return []
        started = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            if self.process.poll() is None:
                self.process.send_signal(2)
        while self._runs() and time.monotonic() - started < STOP_S and not self.signals.received:
            time.sleep(0.05)
        forced = self.descendants.end(self.process.pid, KILL_GRACE_S)
        self.stop_s = round(time.monotonic() - started, 3)
        return forced

    def _runs(self) -> bool:
        assert self.process is not None
        return self.process.poll() is None or bool(self.descendants.alive(self.process.pid))

    def device(self) -> str:
        """Return what the server computes on: vLLM's word for it, and the model and number of GPUs or the CPU model."""
        found = _DEVICE.search(tail(self.log, 1 << 20).decode("utf-8", "replace"))
        kind = found[1] if found else "unknown"
        detail = _gpus() if kind == "cuda" else _cpu() if kind == "cpu" else ""
        return f"{kind}: {detail}" if detail else kind


def _gpus() -> str:
    try:
        said = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=20, check=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    names = [line.strip() for line in said.splitlines() if line.strip()]
    return ", ".join(f"{names.count(n)} x {n}" for n in sorted(set(names)))


def _cpu() -> str:
    """Return the processor as Linux names it, with the vector units that decide which kernels are used."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    values = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in text.split("\n\n")[0].splitlines())}
    flags = values.get("flags", "").split()
    units = [u for u in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if u in flags]
    return " ".join([values.get("model name", "unknown"), *units])


def remains(port: int, segments: set[str], descendants: Descendants, scratch: Path) -> list[str]:
    """Clear away what a stopped server may have left, and return what is left all the same, a line for each."""
    segments = {s for s in segments if os.path.exists(s)}
    # A segment that somebody else's process has mapped as well is not only the server's.
    segments -= shared_memory_of(_others()) if segments else set()
    for segment in segments:
        with contextlib.suppress(OSError):
            os.unlink(segment)
    shutil.rmtree(scratch, ignore_errors=True)
    left = descendants.end(None, KILL_GRACE_S) and [f"process {p.pid}" for p in descendants.alive()]
    left += [s for s in sorted(segments) if os.path.exists(s)]
    left += [str(scratch)] if scratch.exists() else []
    left += [f"{api.HOST}:{port}"] if api.listening(port) else []
    return left


def _others() -> list[psutil.Process]:
    return [p for p in psutil.process_iter() if p.pid != os.getpid()]


def scrape(port: int, target: Path, limit_s: float) -> None:
    """Write down the server's metrics as Prometheus would scrape them. Raises ApiError, StepError."""
    body = api.get(port, "/metrics", limit_s)
    if b"vllm:" not in body:
        raise StepError("/metrics: no metric of vLLM in it")
    target.write_bytes(body)
