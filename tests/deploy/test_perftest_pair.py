"""The runner of a pair: who starts first, what ends with what, and what it prints. The tool is played; no RDMA here."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric_health.checks.collectives.parsers.pair_log import read_pair_log

ROOT = Path(__file__).parents[2]
RUNNER = ROOT / "deploy" / "images" / "nccl-tests" / "perftest_pair.py"
FAKE = ROOT / "tests" / "fixtures" / "collectives" / "fake_perftest.py"


def free_port() -> int:
    """A port below which, and above which, nothing listens: the runner takes two."""
    while True:
        with socket.create_server(("", 0)) as one:
            port = one.getsockname()[1]
            with contextlib.suppress(OSError), socket.create_server(("", port + 1)):
                return int(port)


class Ranks:
    """Both ranks on this machine, as mpirun starts them."""

    def __init__(self, folder: Path, **fake: str) -> None:
        self.log, self.port, self.fake = folder / "log", free_port(), fake
        self.started: list[subprocess.Popen[str]] = []

    def start(self, rank: int, token: str = "perftest-1", limit: float = 20, test_limit: float = 5) -> None:
        argv = [
            sys.executable, "-I", str(RUNNER), "--hosts", "127.0.0.1,127.0.0.1", "--token", token,
            "--devices", "mlx5_0,mlx5_1,mlx5_2", "--sizes", "65536", "--port", str(self.port),
            "--limit", str(limit), "--test-limit", str(test_limit),
            "--", sys.executable, str(FAKE), "-D", "5", "--report_gbits",
        ]  # fmt: skip
        env = {"FAKE_LOG": str(self.log), "OMPI_COMM_WORLD_RANK": str(rank), **self.fake}
        pipe = subprocess.PIPE
        self.started.append(subprocess.Popen(argv, env=env, stdout=pipe, stderr=pipe, text=True))

    def end(self) -> list[tuple[int, str, str]]:
        """Exit code, stdout and stderr of each."""
        return [(p.returncode, *out) for p in self.started for out in [p.communicate(timeout=40)]]

    def tools(self) -> list[str]:
        return [line.rsplit(" ", 1)[0] for line in self.log.read_text().splitlines()]

    def alive(self) -> list[int]:
        pids = [int(line.rsplit(" ", 1)[1]) for line in self.log.read_text().splitlines()]
        return [
            p for p in pids if Path(f"/proc/{p}/stat").exists() and " Z " not in Path(f"/proc/{p}/stat").read_text()
        ]


@pytest.fixture
def ranks(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Ranks]:
    made = Ranks(tmp_path, **getattr(request, "param", {}))
    yield made
    for process in made.started:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_server_before_client_for_each_device(ranks: Ranks) -> None:
    ranks.start(1)  # the client comes first and waits
    ranks.start(0)
    (client, out, err), (server, silent, _) = ranks.end()
    assert (client, server, silent, err) == (0, 0, "", "")
    assert ranks.tools() == [f"{role} mlx5_{n}" for n in range(3) for role in ("server", "client")]
    log = read_pair_log(out, gbits=True)
    assert (log.server, log.client, log.ended) == (socket.gethostname(), socket.gethostname(), True)
    assert [(t.device, t.problem, t.reading.device) for t in log.tests] == [
        (f"mlx5_{n}", "", f"mlx5_{n}") for n in range(3)
    ]
    assert log.tests[0].reading.lines[0].values["bw_average_gbitps"] == 391.8712  # the file's digits


@pytest.mark.parametrize(
    ("ranks", "problem"),
    [
        ({"FAKE_CRASH": "mlx5_1"}, "exit code 1: Failed to modify QP to RTR"),
        ({"FAKE_DEAF": "mlx5_1"}, "the server did not start: Unable to find the Infiniband/RoCE device"),
        ({"FAKE_HANG": "mlx5_1"}, "ended at its time limit"),
    ],
    indirect=["ranks"],
)
def test_a_device_that_fails_does_not_keep_the_others_from_being_measured(ranks: Ranks, problem: str) -> None:
    ranks.start(0, test_limit=2)
    ranks.start(1, test_limit=2)
    _, (code, out, _) = ranks.end()
    assert code == 0
    log = read_pair_log(out, gbits=True)
    assert [t.problem for t in log.tests] == ["", problem, ""]
    assert log.ended
    assert ranks.alive() == []


@pytest.mark.parametrize("ranks", [{"FAKE_HANG": "mlx5_0"}], indirect=True)
@pytest.mark.parametrize(("rank", "number"), [(0, signal.SIGKILL), (1, signal.SIGKILL), (1, signal.SIGTERM)])
def test_when_one_end_goes_the_other_ends_too(ranks: Ranks, rank: int, number: signal.Signals) -> None:
    ranks.start(0, test_limit=30)
    ranks.start(1, test_limit=30)
    until = time.monotonic() + 20
    while not (ranks.log.exists() and len(ranks.tools()) == 2) and time.monotonic() < until:
        time.sleep(0.05)
    os.kill(ranks.started[rank].pid, number)
    found = ranks.end()
    assert found[rank][0] == (-number if number == signal.SIGKILL else 128 + number)
    assert found[1 - rank][0] == 3
    assert "the other rank is gone" in found[1 - rank][2]
    left = ranks.alive()
    # What a killed rank started cannot be ended by it: mpirun and the pod do that.
    assert len(left) <= (1 if number == signal.SIGKILL else 0)
    for pid in left:
        os.kill(pid, signal.SIGKILL)


def test_the_time_of_the_job_ends_a_rank_without_partner(ranks: Ranks) -> None:
    ranks.start(0, limit=1)
    ranks.start(0, token="other", limit=1)
    for code, out, err in ranks.end():
        assert (code, out) == (3, "")
        assert "no client came" in err or "Address already in use" in err


def test_the_client_of_another_job_is_not_served(ranks: Ranks) -> None:
    ranks.start(0, limit=1.5)
    ranks.start(1, token="perftest-2", limit=1.5)
    (server, _, _), (client, out, _) = ranks.end()
    assert (server, client, out) == (3, 3, "")
    assert not ranks.log.exists()


def test_a_command_line_at_fault_says_what_it_needs() -> None:
    argv = [sys.executable, "-I", str(RUNNER), "--hosts", "a", "--token", "t", "--devices", "d", "--sizes", "1",
            "--port", "2000", "--limit", "1", "--test-limit", "1", "--rank", "0", "--", "x"]  # fmt: skip
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "two hosts" in ended.stderr
