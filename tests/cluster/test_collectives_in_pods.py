"""nccl-tests' whole way on a cluster: the job's object, ranks in pods of their own, the launcher's log, rows.

mpirun and the program are played by processes on this machine: mpirun mixes what its ranks print, in pieces of 4 KiB as
Open MPI does, and the program prints what the lab's fleet would measure, in nccl-tests' own formats.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from fabric_health.checks.check import Launch
from fabric_health.checks.collectives.launches import JSON_FILE, fleet_spec
from fabric_health.checks.collectives.parse import parse
from fabric_health.checks.collectives.settings import NcclSettings
from fabric_health.checks.collectives.tables import Collective, CollectiveLaunch, LaunchProblem
from fabric_health.evidence import CommandStatus
from fabric_health.jobs.kubernetes import manifests
from fabric_health.jobs.kubernetes.backend import KubernetesBackend
from fabric_health.jobs.rank_wrapper import MAGIC
from fabric_health.jobs.settings import KubernetesSettings
from fabric_health.jobs.spec import JobResult, JobStatus
from fabric_health.launching import evidence_of
from fabric_health.site import load_site

SITE = Path(__file__).parents[2] / "include" / "sites" / "lab.yaml"
NODES = ("gpu-001", "gpu-002")
SAID = b"worker:77:77 [1] NCCL INFO comm 0x55d0 rank 9 nranks 16 cudaDev 1 - Destroy COMPLETE\n"

# argv: PIECE -np N --host A,B [-x NAME]... COMMAND. Starts the first ranks and passes their output on, PIECE bytes of
# one rank at a time, as the one that has something to say comes along. Where pieces are small there are ranks that have
# something to say after each of the artefact.
MPIRUN = f"""
SAID = {SAID!r}
import os, select, subprocess, sys
piece, words, sent = int(sys.argv[1]), sys.argv[2:], False
command = words[words.index("python3") if "python3" in words else words.index("-x") + 2:]
while command[0] == "-x":
    command = command[2:]
if command[0] == "python3":
    command[0] = sys.executable
ranks = []
for rank in range(3):
    env = dict(os.environ, OMPI_COMM_WORLD_RANK=str(rank))
    ranks.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE))
open_pipes = [r.stdout.fileno() for r in ranks]
while open_pipes:
    for pipe in select.select(open_pipes, [], [])[0]:
        data = os.read(pipe, piece)
        if data:
            sent = sent or b"FHR1" in data
            os.write(1, data + SAID if sent and piece < 4096 else data)
        else:
            open_pipes.remove(pipe)
sys.exit(max(r.wait() for r in ranks))
"""
# A rank: the first one measures and names pods where the fleet names nodes; the others have a last word.
PROGRAM = """
import json, os, sys
known = json.loads(open(__file__ + ".json").read())
if os.environ["OMPI_COMM_WORLD_RANK"] != "0":
    sys.exit(os.write(1, known["said"].encode()) < 1)
from fabric_health.lab.fleet import all_reduce_perf
def pods(text):
    for node, pod in known["pods"].items():
        text = text.replace(node, pod)
    return text
argv = ["all_reduce", "--site", known["site"], "--hosts", ",".join(known["pods"]), *sys.argv[1:]]
code = all_reduce_perf.run(argv, known["env"], lambda t: sys.stdout.write(pods(t)), sys.stderr.write)
path = argv[argv.index("-J") + 1]
text = open(path).read()
open(path, "w").write(pods(text))
sys.stdout.flush()
sys.exit(code)
"""


@dataclass
class Tool:
    """nccl-tests as the player's pods have it."""

    folder: Path
    backend: KubernetesBackend
    piece: int = 4096

    def launch(self, grouping: str, count: int) -> tuple[Launch, JobResult]:
        site = load_site(SITE)
        nodes = [n for n in site.nodes if n.name in NODES[:count]]
        mpirun = self.folder / "mpirun.py"
        mpirun.write_text(MPIRUN, encoding="utf-8")
        program = self.folder / "all_reduce_perf"
        program.write_text(f"#!{sys.executable}\n{PROGRAM}", encoding="utf-8")
        program.chmod(0o755)
        nccl = NcclSettings(
            min_bytes=1 << 20,
            max_bytes=1 << 28,
            factor=16,
            binaries=str(self.folder),
            mpirun=(sys.executable, str(mpirun), str(self.piece)),
        )
        name = f"nccl-all-reduce-{grouping}-1"
        spec = fleet_spec(nccl, name, "all_reduce", grouping, nodes)
        pod = manifests.object_name("site-a", "run-1", name)
        pods = {n.name: f"{pod}-worker-{i}" if count > 1 else pod for i, n in enumerate(nodes)}
        known = {"site": str(SITE), "env": dict(spec.env), "pods": pods, "said": SAID.decode()}
        Path(f"{program}.json").write_text(json.dumps(known), encoding="utf-8")
        return Launch(name, spec, tuple(n.name for n in nodes)), self.backend.run(spec, lambda _: None)


@pytest.fixture
def tool(tmp_path, namespace, backend, monkeypatch):
    backend.settings = KubernetesSettings(namespace=namespace, images={"nccl-tests": "registry.example.org/nccl:1"})
    folder = tmp_path / "nccl"
    (folder / "tmp").mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(folder / "tmp"))  # of the pods
    return Tool(folder, backend)


def rows_of(launch: Launch, result: JobResult):
    found = parse(launch, evidence_of(launch, "collectives", result), load_site(SITE))
    problems = [r for r in found if isinstance(r, LaunchProblem)]
    (outcome,) = (r for r in found if isinstance(r, CollectiveLaunch))
    return outcome, problems, [r for r in found if isinstance(r, Collective) and r.size_bytes == 1 << 28]


@pytest.mark.parametrize(("kind", "grouping"), [("mpijob", "node"), ("volcano", "rail"), ("mpijob", "all")])
def test_every_node_and_rail_has_its_numbers(tool, player, kind, grouping):
    tool.backend.settings = tool.backend.settings.model_copy(update={"multi_node": kind})
    launch, result = tool.launch(grouping, 2)
    assert (result.status, result.exit_code, result.truncated) == (JobStatus.EXITED, 0, False), result.reason
    assert result.reason == ""
    assert JSON_FILE in result.artefacts
    assert MAGIC not in result.stdout
    outcome, problems, rows = rows_of(launch, result)
    assert problems == []
    assert (outcome.usable, outcome.hosts_seen, outcome.ranks_seen) == (True, 2, 16)
    wanted = {"node": set(NODES), "rail": {f"rail-{i}" for i in range(8)}, "all": {"all"}}
    assert {r.group for r in rows} == wanted[grouping]
    assert not list((tool.folder / "tmp").iterdir())
    tool.backend.release(launch.name)
    player.wait_until(lambda: not player.left())


def test_a_launch_of_one_node_runs_in_its_pod_and_has_its_numbers(tool, player):
    launch, result = tool.launch("all", 1)
    assert (result.status, result.exit_code) == (JobStatus.EXITED, 0), result.reason
    outcome, problems, rows = rows_of(launch, result)
    assert problems == []
    assert (outcome.usable, outcome.hosts_seen, outcome.ranks_seen) == (True, 1, 8)
    assert rows
    assert {r.time_min_us is not None for r in rows} == {True}, "single iterations are known"


def test_a_file_that_other_ranks_talked_into_is_named_and_nodes_have_no_numbers(tool, player):
    tool.piece = 512
    launch, result = tool.launch("node", 2)
    assert (result.status, result.exit_code) == (JobStatus.EXITED, 0), result.reason
    assert JSON_FILE not in result.artefacts
    assert f"artefact {JSON_FILE}: " in result.reason
    assert "other ranks'" in result.reason
    _, problems, rows = rows_of(launch, result)
    assert [p.rule for p in problems if p.rule.startswith("artefact")] == ["artefact_written"]
    assert "other ranks'" in next(p.detail for p in problems if p.rule == "artefact_written")
    assert {r.group for r in rows} <= {"node:slowest"}


def test_a_log_that_lost_a_line_of_the_file_is_no_result(tool, player):
    whole = player.log_of

    def damaged(pod: str) -> bytes | None:
        log = whole(pod)
        lines = (log or b"").splitlines(keepends=True)
        ours = [i for i, line in enumerate(lines) if line.startswith(f"{MAGIC} ".encode())]
        return log if not ours else b"".join(lines[: ours[0]] + lines[ours[0] + 1 :])

    player.log_of = damaged
    launch, result = tool.launch("node", 2)
    assert result.status is JobStatus.LOST
    assert "stdout in the log has" in result.reason
    evidence = evidence_of(launch, "collectives", result)
    assert evidence.result("job").status is CommandStatus.NOT_RUN
    outcome, _, rows = rows_of(launch, result)
    assert not outcome.usable
    assert rows == []
