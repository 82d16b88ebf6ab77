"""The read-only probe: runs a list of commands on the node it is sent to and prints framed JSON.

This file is sent over standard input to ``python3 -I -`` on the node, with one call appended; nothing is installed or
written there. It therefore uses the standard library alone and no syntax or call newer than Python 3.6.

Every line of the answer is ``FH1 <nonce> <kind> <JSON>``: one ``begin``, one ``result`` for each command as it ends,
one ``end``. What a login script prints in between carries no nonce and is ignored by the reader; an answer without
``end`` was cut short, and the results before the cut still count.

Commands begin in the order of the request, each when the one before it has ended. A request may let a few run at once:
then each begins as soon as there is room and has a thread of its own, so that one that floods, hangs or has to be
killed holds up no other's clock; results come as commands end.

In a pod (docs/decisions/0011) it is given to ``python3 -I -c`` instead: it makes the node's root its own first, and
packs its lines, since a pod's log is kept only up to some size: the JSON is compressed and in base64, a long one in
several ``+`` lines before the line that names the kind.
"""

import base64
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import zlib

MAGIC = "FH1"
OUT = 1
SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin")
READ_BYTES = 65536
# However many a request asks for.
MOST_AT_ONCE = 4
# A container runtime cuts lines of 16 KiB and more in pieces.
PIECE = 12288
TERM_GRACE_S = 1.0
KILL_GRACE_S = 1.0
# A command may leave a child behind that holds its pipes open: output is complete once the command itself is gone.
PIPE_GRACE_S = 0.3


class ReaderGoneError(Exception):
    """Nobody reads the answer any more."""


def frame(nonce: str, kind: str, body: object) -> bytes:
    """Return one line of the answer; JSON is ASCII, so a line never holds a stray newline."""
    return ("%s %s %s %s\n" % (MAGIC, nonce, kind, json.dumps(body))).encode("ascii")  # noqa: UP031


def packed(nonce: str, kind: str, body: object) -> bytes:
    """Return one packed line of the answer, or several short ones."""
    text = base64.b64encode(zlib.compress(json.dumps(body).encode("ascii"))).decode("ascii")
    pieces = [text[i : i + PIECE] for i in range(0, len(text), PIECE)]
    kinds = ["+"] * (len(pieces) - 1) + [kind]
    return "".join("%s %s %s %s\n" % (MAGIC, nonce, k, p) for k, p in zip(kinds, pieces)).encode("ascii")  # noqa: UP031, B905


def result(
    index: int, status: str, code: "int | None", texts: "tuple[str, str]", times: "tuple[float, float]"
) -> "dict[str, object]":
    """Return the body of a ``result`` frame; ``texts`` are stdout and stderr, ``times`` seconds since the begin."""
    t0, t1 = round(times[0], 3), round(times[1], 3)
    return {"i": index, "status": status, "code": code, "out": texts[0], "err": texts[1], "t0": t0, "t1": t1}


def environment() -> "dict[str, str]":
    """Return what commands see: the C locale, no pager, nothing secret of the login, the system's directories."""
    path = [p for p in os.environ.get("PATH", "").split(os.pathsep) if p.startswith("/")]
    path += [p for p in SBIN if p not in path]
    # systemctl answers nothing where it finds another root than that of process 1, unless told to ignore it.
    names = ("HOME", "USER", "LOGNAME", "SYSTEMD_IGNORE_CHROOT")
    kept = {k: os.environ[k] for k in names if k in os.environ}
    kept.update(PATH=os.pathsep.join(path), LC_ALL="C", LANG="C", TERM="dumb", SYSTEMD_PAGER="cat", PAGER="cat")
    return kept


def enter(root: str) -> None:
    """Make ``root`` our root, and look for no module of ours in it. Raises OSError."""
    os.chroot(root)
    os.chdir("/")
    sys.path[:] = []


class Asking:
    """The commands of one request while they run; ``at_once`` of them at most at any time."""

    def __init__(self, request: "dict[str, object]", null: int) -> None:
        self.nonce = str(request["nonce"])
        self.line = packed if request.get("packed") else frame
        self.commands = list(request["commands"])  # type: ignore[call-overload]
        self.at_once = max(1, min(MOST_AT_ONCE, int(request.get("at_once", 1))))  # type: ignore[call-overload]
        self.started = time.monotonic()
        self.deadline = self.started + float(request["deadline_s"])  # type: ignore[arg-type]
        self.env, self.null = environment(), null
        self.todo = iter(enumerate(self.commands))
        self.running = []  # type: list[subprocess.Popen[bytes]]
        self.failed = []  # type: list[BaseException]
        self.leaving = False
        # Held while a command begins, so that none does behind the back of whoever ends them all. A signal may come
        # to the thread that holds it.
        self.beginning = threading.RLock()
        self.telling = threading.Lock()

    def run(self) -> None:
        """Run all commands and tell their results. Raises ReaderGoneError."""
        count = {"commands": len(self.commands)}
        write(self.line(self.nonce, "begin", count))
        beside = []  # type: list[threading.Thread]
        with contextlib.suppress(RuntimeError):  # no room for a thread: fewer at once
            for _ in self.commands[1 : self.at_once]:
                thread = threading.Thread(target=self.work_beside, daemon=True)
                thread.start()
                beside.append(thread)
        self.work()
        for thread in beside:
            while thread.is_alive():
                thread.join(1.0)
        if self.failed:
            raise self.failed[0]
        write(self.line(self.nonce, "end", count))

    def work_beside(self) -> None:
        """Do what the first thread does, and leave to it what went wrong."""
        try:
            self.work()
        except BaseException as error:  # told by the first thread, whatever it is
            self.failed.append(error)

    def work(self) -> None:
        """Take commands in their order until there is none left. Raises ReaderGoneError."""
        while not self.failed:
            with self.beginning:
                taken = next(self.todo, None)
            if taken is None:
                return
            body = self.one(*taken)
            with self.telling:
                if self.leaving:  # it may have been ended by us
                    return
                write(self.line(self.nonce, "result", body))

    def leave(self) -> None:
        """Kill what runs and begin nothing any more."""
        self.leaving = True
        held = self.beginning.acquire(timeout=KILL_GRACE_S)
        for process in list(self.running):
            signal_group(process, signal.SIGKILL)
        if held:
            self.beginning.release()

    def one(self, index: int, command: "dict[str, object]") -> "dict[str, object]":
        """Run one command without a shell and return its result frame's body."""
        argv = [str(a) for a in command["argv"]]  # type: ignore[attr-defined]
        begun = time.monotonic()
        until = min(self.deadline, begun + float(command["timeout_s"]))  # type: ignore[arg-type]
        t0 = begun - self.started
        if self.deadline - begun < 0.05:
            return result(index, "not_run", None, ("", "the unit's time was used up before this command"), (t0, t0))
        try:
            process = self.begin(argv)
        except FileNotFoundError:
            return result(index, "not_installed", 127, ("", "%s: command not found\n" % argv[0]), (t0, t0))  # noqa: UP031
        except (OSError, ValueError) as error:
            return result(index, "exited", 126, ("", "%s: %s\n" % (argv[0], error)), (t0, t0))  # noqa: UP031
        captured, status = capture(process, until, int(command["max_bytes"]))  # type: ignore[call-overload]
        if status != "exited" or process.poll() is None:
            died = stop(process)
            if not died:
                captured[1] += b"\n(the process did not end when killed; it may be stuck in the kernel)\n"
        self.running.remove(process)
        process.stdout.close()  # type: ignore[union-attr]
        process.stderr.close()  # type: ignore[union-attr]
        out, err = (bytes(c).decode("utf-8", "backslashreplace") for c in captured)
        code = process.poll() if status == "exited" else None
        return result(index, status, code, (out, err), (t0, time.monotonic() - self.started))

    def begin(self, argv: "list[str]") -> "subprocess.Popen[bytes]":
        """Start a command, unless all are being ended. Raises OSError, ValueError, ReaderGoneError."""
        with self.beginning:
            if self.leaving:
                raise ReaderGoneError
            process = subprocess.Popen(
                argv,
                stdin=self.null,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",
                env=self.env,
                start_new_session=True,
            )
            self.running.append(process)
        return process


def main(text: str) -> int:
    """Run the request (JSON: nonce, deadline_s, commands of argv, timeout_s and max_bytes); 0 when all was printed.

    One whose commands may overlap has ``at_once``. A request of a pod also has ``root``, the folder where the node's
    root is, and ``packed``.
    """
    request = json.loads(text)
    # Opened before another root may hide it: without it every command would look as if it were not installed.
    null = os.open(os.devnull, os.O_RDONLY)
    if request.get("root"):
        try:
            enter(request["root"])
        except OSError as error:
            sys.stderr.write("fabric-health probe: no way into the node's root, %s\n" % error)  # noqa: UP031
            return 3
    asking = Asking(request, null)

    def stop_and_leave(signum: int, _stack: object) -> None:
        asking.leave()
        os._exit(128 + signum)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, stop_and_leave)
    try:
        asking.run()
    except (ReaderGoneError, OSError):
        return 1
    finally:
        asking.leave()
    return 0


def capture(process: "subprocess.Popen[bytes]", until: float, limit: int) -> "tuple[list[bytearray], str]":
    """Read both pipes until the command ends, its time is over or it says more than ``limit`` bytes on one of them."""
    pipes = {process.stdout.fileno(): 0, process.stderr.fileno(): 1}  # type: ignore[union-attr]
    captured = [bytearray(), bytearray()]
    poller = select.poll()
    for fd in pipes:
        os.set_blocking(fd, False)
        poller.register(fd, select.POLLIN | select.POLLHUP)
    poller.register(OUT, 0)
    gone_at = None  # type: float | None
    closed_at = None  # type: float | None
    while pipes or process.poll() is None:
        now = time.monotonic()
        if process.poll() is not None:
            gone_at = gone_at or now
            if now - gone_at > PIPE_GRACE_S:
                signal_group(process, signal.SIGKILL)
                break
        if now >= until:
            return captured, "timeout"
        # A command is gone a moment after its pipes: it is looked for often then, and less often the longer it stays.
        since_closed_s = 0.0 if closed_at is None else now - closed_at
        wait_s = min(until - now, 0.05 if pipes else min(0.01, 0.001 + since_closed_s))
        for fd, event in poller.poll(max(1, int(wait_s * 1000))):
            if fd == OUT:
                if event & (select.POLLERR | select.POLLHUP):
                    raise ReaderGoneError
                continue
            data = read(fd)
            if data is None:
                continue
            if not data:
                poller.unregister(fd)
                del pipes[fd]
                closed_at = None if pipes else time.monotonic()
                continue
            buffer = captured[pipes[fd]]
            buffer += data
            if len(buffer) > limit:
                del buffer[limit:]
                return captured, "truncated"
    return captured, "exited"


def read(fd: int) -> "bytes | None":
    """Return what the pipe holds, nothing at its end, None when it holds nothing yet."""
    try:
        return os.read(fd, READ_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def stop(process: "subprocess.Popen[bytes]") -> bool:
    """End the command's process group, first asking, then killing. False when it is still there (D state)."""
    for number, grace in ((signal.SIGTERM, TERM_GRACE_S), (signal.SIGKILL, KILL_GRACE_S)):
        signal_group(process, number)
        until = time.monotonic() + grace
        while time.monotonic() < until:
            if process.poll() is not None:
                signal_group(process, signal.SIGKILL)
                return True
            time.sleep(0.01)
    return process.poll() is not None


def signal_group(process: "subprocess.Popen[bytes]", number: int) -> None:
    """Signal every process of the command's group; a group that is gone or not ours is left alone."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, number)


def write(data: bytes) -> None:
    """Write to the answer at once. Raises ReaderGoneError when nobody reads it any more."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(OUT, view) :]
        except BlockingIOError:
            select.select([], [OUT], [], 1.0)
        except OSError:
            raise ReaderGoneError from None


if sys.version_info < (3, 6):  # noqa: UP036
    sys.exit("fabric-health probe: Python 3.6 or newer is needed, this is %s" % sys.version.split()[0])  # noqa: UP031
