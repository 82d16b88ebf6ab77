"""A process tree as a server that goes wrong leaves it: every member ignores polite signals, one is abandoned.

``python stand_in.py HOW PORT``: "mute" opens no port, "ends" ends at once, "healthy" answers /health, /v1/models and
/version and nothing else. Beside it run a child and a grandchild whose parent has ended; a segment of shared memory is
mapped.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

ANSWERS = {
    "/health": b"",
    "/v1/models": json.dumps({"data": [{"id": "stand-in"}]}).encode(),
    "/version": b'{"version": "0"}',
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = ANSWERS.get(self.path)
        self.send_response(200 if body is not None else 404)
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, format: str, *args: object) -> None:
        pass


def deaf() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def main(how: str, port: int) -> None:
    if how == "ends":
        sys.stderr.write("no such model\n")
        sys.exit(3)
    if how == "abandon":  # ends, and leaves a child that nobody waits for
        subprocess.Popen([sys.executable, __file__, "sleep", "0"])
        return
    deaf()
    if how != "sleep":
        subprocess.Popen([sys.executable, __file__, "abandon", "0"])
        segment = os.environ.get("STAND_IN_SEGMENT")
        if segment:
            with open(segment, "w+b") as file:
                file.truncate(4096)
                kept = mmap.mmap(file.fileno(), 4096)
                kept[0] = 1
    if how == "healthy":
        HTTPServer(("127.0.0.1", port), Handler).serve_forever()
    time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
