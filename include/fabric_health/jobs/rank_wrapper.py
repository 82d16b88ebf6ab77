"""Runs one rank of a job where mpirun put it; rank 0 then prints its artefacts, because the launcher is elsewhere.

This file is given to ``python3 -I -c`` on the nodes, with a request and the rank's command line as its arguments; it
therefore uses the standard library alone and no syntax or call newer than Python 3.6.

A file that rank 0 writes stays on its node, but what it prints comes out of mpirun. mpirun passes output on in pieces
that end anywhere, so what other ranks print can break into a line. Each line here,
``FHR1 <nonce> <key> <length> <crc32> <base64>``, therefore proves itself and is read wherever it stands; a small
artefact is printed twice. The key is ``<artefact>.<piece>``, or ``end`` for sizes and hashes.
"""

import base64
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from typing import Any

MAGIC = "FHR1"
PLACE = "{artefacts}"
# Below the 4096 bytes that a pipe takes at once and that Open MPI passes on at once.
PIECE = 1536
# A kubelet rotates a log at 10 MiB unless told otherwise: what is large is printed once.
TWICE_BYTES = 1 << 20
# Other ranks end with rank 0; their last words are on their way.
SETTLE_S = 0.3
RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
SECRET = re.compile(r"(?i)passw|passphrase|secret|token|credential|private|api_?key|access_?key")


def frame(nonce: str, key: str, body: bytes) -> bytes:
    """Return one line that proves itself."""
    text = "%s " % key + base64.b64encode(body).decode("ascii")  # noqa: UP031
    crc = zlib.crc32(text.encode("ascii")) & 0xFFFFFFFF
    key, _, payload = text.partition(" ")
    return ("%s %s %s %d %08x %s\n" % (MAGIC, nonce, key, len(payload), crc, payload)).encode("ascii")  # noqa: UP031


def hidden(body: bytes, secrets: "list[str]") -> bytes:
    """Return a file without the secrets of the environment: tools write down the one they ran in, whole."""
    for name, value in os.environ.items():
        if value and (name in secrets or SECRET.search(name)):
            for form in {value, json.dumps(value)[1:-1]}:
                body = body.replace(os.fsencode("%s=%s" % (name, form)), os.fsencode(name + "=<redacted>"))  # noqa: UP031
    return body


def read(folder: str, name: str, limit: int) -> bytes:
    """Return an artefact's bytes. Raises OSError that says why it is not kept."""
    path = os.path.join(folder, name)
    inside = os.path.realpath(path).startswith(os.path.realpath(folder) + os.sep)
    if not inside or not os.path.isfile(path):
        raise OSError("no such file on the node of rank 0")
    with open(path, "rb") as file:
        body = file.read(limit + 1)
    if len(body) > limit:
        raise OSError("larger than %d bytes" % limit)  # noqa: UP031
    return body


def frames(request: "dict[str, Any]", folder: str) -> "list[bytes]":
    """Return the lines that hold the artefacts, and the one that says what there is."""
    nonce = request["nonce"]
    out = []  # type: list[bytes]
    told = {}  # type: dict[str, dict[str, Any]]
    for number, name in enumerate(request["artefacts"]):
        try:
            body = hidden(read(folder, name, request["max_bytes"]), request["secrets"])
        except OSError as error:
            told[name] = {"error": error.strerror or str(error)}
            continue
        packed = zlib.compress(body, 9)
        pieces = [packed[i : i + PIECE] for i in range(0, len(packed), PIECE)]
        out += [frame(nonce, "%d.%d" % (number, i), p) for i, p in enumerate(pieces)]  # noqa: UP031
        told[name] = {"size": len(body), "sha256": hashlib.sha256(body).hexdigest(), "pieces": len(pieces)}
    return [*out, frame(nonce, "end", json.dumps({"artefacts": told}).encode("ascii"))]


def send(lines: "list[bytes]") -> None:
    """Print the lines, each at once; twice when they are few."""
    for _ in range(2 if sum(len(line) for line in lines) <= TWICE_BYTES else 1):
        time.sleep(SETTLE_S)
        for line in lines:
            view = memoryview(line)
            while view:
                view = view[os.write(1, view) :]


def run(argv: "list[str]") -> "tuple[int, bool]":
    """Run rank 0's program. Return its exit code, and whether we were told to stop."""
    asked = []  # type: list[int]
    child = subprocess.Popen(argv)

    def stop(number: int, _frame: object) -> None:
        asked.append(number)
        if child.poll() is None:
            child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    return child.wait(), bool(asked)


def end_like(code: int) -> int:
    """Return a program's exit code, or end by the signal that ended it: mpirun reports either."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code if code >= 0 else 128 - code


def main(words: "list[str]") -> int:
    """Be a rank: run the command line, and as rank 0 print its artefacts."""
    request, argv = json.loads(words[0]), words[1:]
    rank = next((os.environ[name] for name in RANKS if name in os.environ), None)
    folder = None
    try:
        if rank == "0":
            folder = tempfile.mkdtemp(prefix="fabric-health-")
        elif rank is None:
            sys.stderr.write("fabric-health: no rank in %s: nothing is kept of what it writes\n" % ", ".join(RANKS))  # noqa: UP031
    except OSError as error:
        sys.stderr.write("fabric-health: rank 0 has no temporary folder: %s\n" % error)  # noqa: UP031
    argv = [word.replace(PLACE, folder or os.devnull) for word in argv]
    try:
        if folder is None:
            sys.stderr.flush()
            # Python ignores it, and a program started this way would inherit that.
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.execvp(argv[0], argv)  # noqa: S606
        code, stopped = run(argv)
        if not stopped:
            send(frames(request, folder))
    except OSError as error:
        sys.stderr.write("fabric-health: %s: %s\n" % (argv[0], error))  # noqa: UP031
        return 127
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
    return end_like(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
