"""Runs one job in its pod and frames what it says, so that a log proves to be whole.

This file is given to ``python3 -I -c`` in the workload's image with a request as its argument; it therefore uses the
standard library alone and no syntax or call newer than Python 3.6.

The pod's log is the only way back, and a log may be rotated, cut or lost. Lines of the job's stdout are passed on as
they are; the others start with ``FHJ1 <nonce> <kind>``: ``begin`` comes first, ``err`` carries a line of stderr,
``art`` a piece of an artefact (zlib, base64), and ``end`` says how it ended, with sizes and hashes. A log without its
begin or its end is not a result.
"""

import base64
import contextlib
import hashlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
import zlib

MAGIC = "FHJ1"
PIECE = 48 * 1024
LINE = 16 * 1024
TERM_GRACE_S = 5.0


class Stream:
    """One pipe of the job: passes whole lines on, up to a bound, and counts everything."""

    def __init__(self, head: bytes, limit: int) -> None:
        self.head = head
        self.limit = limit
        self.seen = 0
        self.passed = 0
        self.pending = b""
        self.ended_in_line = False

    def take(self, data: bytes) -> None:
        """Take bytes as they come; a line that is longer than LINE is passed on in pieces."""
        self.seen += len(data)
        data = data[: max(0, self.limit - self.passed)]
        self.passed += len(data)
        self.pending += data
        lines = self.pending.split(b"\n")
        self.pending = lines.pop()
        if lines:
            write(b"".join(self.head + line + b"\n" for line in lines))

    def close(self) -> None:
        """Pass on what has no line end; the end frame says so."""
        if self.pending:
            self.ended_in_line = True
            write(self.head + self.pending + b"\n")
            self.pending = b""


def write(data: bytes) -> None:
    """Write to the log at once."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def frame(nonce: str, kind: str, body: object) -> None:
    """Write one frame."""
    write(("%s %s %s %s\n" % (MAGIC, nonce, kind, json.dumps(body))).encode("ascii"))  # noqa: UP031


def wait_for(hosts: "list[str]", port: int, until: float) -> "str | None":
    """Wait until every host answers on ``port``. Return what is missing when the time is over."""
    missing = list(hosts)
    why = ""
    while missing:
        try:
            socket.create_connection((missing[0], port), timeout=3.0).close()
            missing.pop(0)
        except OSError as error:
            why = str(error)
            if time.monotonic() > until:
                shown = (len(missing), len(hosts), port, ", ".join(missing[:8]), why)
                return "%d of %d hosts do not answer on port %d: %s (%s)" % shown  # noqa: UP031
            time.sleep(0.5)
    return None


def run(request: "dict[str, object]", streams: "tuple[Stream, Stream]") -> "tuple[str, int | None, str]":
    """Run the job. Return status, exit code and reason."""
    limit = float(request["time_limit_s"])  # type: ignore[arg-type]
    missing = wait_for(
        request["wait_for"],  # type: ignore[arg-type]
        int(request["wait_port"]),  # type: ignore[call-overload]
        time.monotonic() + float(request["wait_limit_s"]),  # type: ignore[arg-type]
    )
    if missing:
        return "not_started", None, missing
    os.makedirs(str(request["artefact_folder"]), exist_ok=True)
    try:
        child = subprocess.Popen(
            request["argv"],  # type: ignore[call-overload]
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return "not_started", None, "%s: %s" % (request["argv"][0], error)  # type: ignore[index]  # noqa: UP031
    asked = []  # type: list[int]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _f: asked.append(n))
    status = pump(child, streams, time.monotonic() + limit, asked)
    signal_group(child.pid, signal.SIGKILL)
    code = child.wait()
    reason = ""
    if status == "exited" and code < 0:
        reason = "ended by signal %d" % -code  # noqa: UP031
    return status, 128 - code if code < 0 else code, reason


def pump(child: "subprocess.Popen[bytes]", streams: "tuple[Stream, Stream]", until: float, asked: "list[int]") -> str:
    """Pass the job's output on until it ends, its time is over or the pod is told to stop."""
    selector = selectors.DefaultSelector()
    for pipe, stream in zip((child.stdout, child.stderr), streams):  # noqa: B905
        os.set_blocking(pipe.fileno(), False)  # type: ignore[union-attr]
        selector.register(pipe, selectors.EVENT_READ, stream)  # type: ignore[arg-type]
    status = "exited"
    gone_at = None  # type: float | None
    while selector.get_map() or child.poll() is None:
        now = time.monotonic()
        if child.poll() is not None:
            gone_at = gone_at or now
            if now - gone_at > 1.0:  # what the job left behind holds its pipes open
                signal_group(child.pid, signal.SIGKILL)
            if now - gone_at > 3.0:
                break
        elif status == "exited" and (asked or now >= until):
            status = "cancelled" if asked else "timeout"
            signal_group(child.pid, signal.SIGTERM)
            until = now + TERM_GRACE_S
        elif status != "exited" and now >= until:
            signal_group(child.pid, signal.SIGKILL)
        if not selector.get_map():
            time.sleep(0.02)
        for key, _ in selector.select(0.2):
            data = os.read(key.fd, 1 << 16)
            if data:
                key.data.take(data)
            else:
                selector.unregister(key.fileobj)
    return status


def signal_group(pid: int, number: int) -> None:
    """Signal every process of the job's group."""
    with contextlib.suppress(OSError):
        os.killpg(pid, number)


def artefacts(request: "dict[str, object]", nonce: str) -> "dict[str, object]":
    """Print the artefacts. Return per name its size and hash, or why it is not there."""
    told = {}  # type: dict[str, object]
    folder = os.path.realpath(str(request["artefact_folder"]))
    limit = int(request["artefact_max_bytes"])  # type: ignore[call-overload]
    for name in request["artefacts"]:  # type: ignore[attr-defined]
        path = os.path.join(folder, name)
        try:
            if not os.path.realpath(path).startswith(folder + os.sep) or not os.path.isfile(path):
                raise OSError("no such file in the artefact folder")
            with open(path, "rb") as file:
                body = file.read(limit + 1)
            if len(body) > limit:
                raise OSError("larger than %d bytes" % limit)  # noqa: UP031
        except OSError as error:
            told[name] = {"error": error.strerror or str(error)}
            continue
        packed = zlib.compress(body, 6)
        for start in range(0, len(packed), PIECE):
            piece = base64.b64encode(packed[start : start + PIECE]).decode("ascii")
            frame(nonce, "art", [name, piece])
        told[name] = {"size": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    return told


def main(text: str) -> int:
    """Run the request (JSON) and return the job's exit code."""
    request = json.loads(text)
    nonce, limit = request["nonce"], int(request["output_max_bytes"])
    head = ("%s %s err " % (MAGIC, nonce)).encode("ascii")  # noqa: UP031
    # What ranks send back through the job's output has room of its own.
    streams = (Stream(b"", limit + int(request["rank_bytes"])), Stream(head, limit))
    started = time.time()
    frame(nonce, "begin", {"host": socket.gethostname(), "at": started})
    status, code, reason = run(request, streams)
    for stream in streams:
        stream.close()
    told = artefacts(request, nonce)
    frame(
        nonce,
        "end",
        {
            "status": status,
            "code": code,
            "reason": reason,
            "started_at": started,
            "ended_at": time.time(),
            "seen": [s.seen for s in streams],
            "passed": [s.passed for s in streams],
            "ended_in_line": [s.ended_in_line for s in streams],
            "artefacts": told,
        },
    )
    return code if isinstance(code, int) else 126


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
