"""The file of ``-J``: version 3 of the layout that nccl-tests 2.19.6 writes, oddities included."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from fabric_health.lab.fleet import text
from fabric_health.lab.fleet.session import Half, Line, Session

_TIME = "%Y-%m-%d %H:%M:%S"
_TRIES = 1000


def reserve(path: str) -> str | None:
    """Create the file, or ``path.0``, ``path.1``, ... where it exists; None when it cannot be written."""
    for attempt in (path, *(f"{path}.{i}" for i in range(_TRIES))):
        try:
            os.close(os.open(attempt, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except OSError as error:
            if error.errno != errno.EEXIST:
                return None
        else:
            return attempt
    return None


def document(
    session: Session,
    lines: Sequence[Line],
    average_gbps: float,
    minimum_gbps: float | None,
    argv: Sequence[str],
    environment: Mapping[str, str],
    began: datetime,
    ended: datetime,
) -> dict[str, Any]:
    """Return the document. Only ``NCCL_*`` of the environment is written; the real tool writes all, secrets too."""
    o = session.options
    step = {"step_factor": o.factor} if o.factor > 1 else {"step_bytes": o.step_bytes}
    devices = [session.ranks[i] for i in text.indices(session)]
    okay = "unchecked" if minimum_gbps is None else _truth(average_gbps >= 0.9 * minimum_gbps)
    return {
        "version": 3,
        "origin": "lab fleet model",
        "start_time": f"{began:{_TIME}}",
        "args": [f"./build/{o.program}", *argv],
        "env": [f"{k}={v}" for k, v in sorted(environment.items()) if k.startswith("NCCL_")],
        "nccl_version": text.NCCL_CODE,
        "config": {
            "nthreads": 1,
            "ngpus": o.gpus_per_process,
            "minimum_bytes": o.smallest,
            "maximum_bytes": o.largest,
            **step,
            "warmup_iters": o.warmup,
            "iterations": o.iterations,
            "aggregated_iterations": 1,
            "validation": o.check,
            "graph": 0,
            "blocking_collectives": "false",
            "per_iter_timing": _truth(o.per_iteration),
            "per_iter_skip": 0,
            "parallel_init": _truth(o.parallel_init),
            "devices": [
                {
                    "rank": r.rank,
                    "group": r.group,
                    "pid": r.pid,
                    "hostname": r.host,
                    "device": r.device,
                    "device_hex": r.pci,
                    "device_info": session.fleet.fabric.gpu_model,
                }
                for r in devices
            ],
        },
        "results": [_result(session, line) for line in lines],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": round(average_gbps, 6), "okay": okay},
        "errors": [""],
        "end_time": f"{ended:{_TIME}}",
    }


def write(path: str, found: Mapping[str, Any]) -> None:
    """Write a document into a file that ``reserve`` made."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(found, file, separators=(",", ":"))


def _result(session: Session, line: Line) -> dict[str, Any]:
    o = session.options
    op = o.op if o.collective in ("all_reduce", "reduce_scatter") else "none"
    checked = o.check > 0
    inside = checked and o.collective not in ("alltoall", "sendrecv")
    found: dict[str, Any] = {
        "size": line.size,
        "count": line.count,
        "type": o.dtype,
        "redop": op,
        "root": f"{line.root:6d}",
        "out_of_place": _half(line.out_of_place, checked),
    }
    if o.per_iteration:
        found["out_of_place_per_iter"] = _iterations(line.out_of_place)
    found["in_place"] = _half(line.in_place, inside)
    if o.per_iteration:
        found["in_place_per_iter"] = _iterations(line.in_place)
    return {**found, "actual_iterations": o.iterations, "experiment_name": o.program}


def _half(half: Half, checked: bool) -> dict[str, Any]:
    return {
        "time": round(half.time_us, 6),
        "alg_bw": round(half.algbw_gbps, 6),
        "bus_bw": round(half.busbw_gbps, 6),
        "nwrong": 0.0 if checked else None,
    }


def _iterations(half: Half) -> dict[str, Any]:
    s = text.Statistics(half.times_us)
    found: dict[str, Any] = {
        "min_us": s.low,
        "max_us": s.high,
        "avg_us": s.mean,
        "p50_us": s.p50,
        "p95_us": s.p95,
        "p99_us": s.p99,
        "stdev_us": s.deviation,
        "cv_pct": s.cv_percent,
    }
    found = {k: round(v, 6) for k, v in found.items()}
    found["times_us"] = [round(t, 6) for t in half.times_us.tolist()]
    if len(half.process_times_us) > 1:
        found["per_process_max_times_us"] = [[round(t, 6) for t in own] for own in half.process_times_us.tolist()]
    return found


def _truth(value: object) -> str:
    return "true" if value else "false"
