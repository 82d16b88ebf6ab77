"""The stand-in for nccl-tests: the real tool's options, errors and formats, read by the parsers of the real tool."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_health.checks.check import Launch
from fabric_health.checks.collectives.launches import fleet_spec
from fabric_health.checks.collectives.parse import parse
from fabric_health.checks.collectives.parsers.nccl_json import read_json
from fabric_health.checks.collectives.parsers.nccl_log import read_log, split
from fabric_health.checks.collectives.parsers.nccl_text import hosts_in, read_text
from fabric_health.checks.collectives.settings import NcclSettings
from fabric_health.checks.collectives.tables import Collective, CollectiveLaunch, LaunchProblem
from fabric_health.jobs.local import LocalBackend
from fabric_health.jobs.spec import JobSpec, JobStatus
from fabric_health.lab.fleet import all_reduce_perf, document, options, plot, session, text
from fabric_health.lab.fleet.laws import COLLECTIVES
from fabric_health.lab.place import Place, ServerRecord
from fabric_health.lab.state import LabState, save
from fabric_health.lab.validation import checked_fault
from fabric_health.launching import evidence_of
from fabric_health.site import load_site

SITE = Path(__file__).parents[2] / "include" / "sites" / "lab.yaml"
SINCE = datetime(2026, 11, 30, tzinfo=UTC)
SMALL = ("-b", "1M", "-e", "1G", "-f", "32", "-n", "5", "-a", "3")
HOSTS = "gpu-[001-004]"


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home of a lab that plays the site, as its files say it; no server is needed."""
    place = Place(tmp_path)
    save(place.state, LabState(SINCE))
    ServerRecord(1, 1, 2222, str(SITE), "").save(place.server)
    return tmp_path


def plant(home: Path, *faults: tuple[str, str, str | None]) -> None:
    site = load_site(SITE)
    save(Place(home).state, LabState(SINCE, tuple(checked_fault(site, *f, SINCE) for f in faults)))


def play(home: Path, *argv: str, **environment: str) -> Said:
    out: list[str] = []
    err: list[str] = []
    env = {"FABRIC_HEALTH_HOME": str(home), **environment}
    code = all_reduce_perf.run(argv, env, out.append, err.append)
    return Said(code, "".join(out), "".join(err))


def fixed(home: Path, collective: str, *argv: str, hosts: str = HOSTS, **environment: str) -> Said:
    return play(home, collective, "--hosts", hosts, "--run", "r", "--launch", "l", *argv, **environment)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("per_iteration", [False, True])
def test_text_is_read_as_the_real_tools(home: Path, collective: str, per_iteration: bool) -> None:
    said = fixed(home, collective, *SMALL, "-S", "1", *(("-I", "1") if per_iteration else ()))
    assert (said.code, said.err) == (0, "")
    found = read_text(said.out.splitlines())
    assert found.faults == []
    assert (found.collective, found.tool_version, found.library_version) == (collective, "2.19.6", "2.28.9")
    assert found.concluded
    assert found.out_of_bounds == 0
    assert len(found.lines) == 6
    assert Counter(d.host for d in found.devices) == {f"gpu-00{i}": 8 for i in range(1, 5)}
    assert {x.wrong for x in found.lines} == ({0, None} if collective in ("alltoall", "sendrecv") else {0})
    assert all((x.time_min_us is not None) == per_iteration for x in found.lines)
    assert text.ORIGIN in said.out.splitlines()
    assert found.lines[-1].busbw_gbps > found.lines[0].busbw_gbps


def test_rows_have_the_columns_of_their_header_in_each_layout(home: Path) -> None:
    for argv, tokens in (
        ((), 13),
        (("-S", "1"), 15),
        (("-I", "1"), 21),
        (("-I", "1", "-S", "1"), 23),
        (("-c", "0"), 13),
    ):
        rows = [x for x in fixed(home, "all_reduce", *SMALL, *argv).out.splitlines() if x.strip()[:1].isdigit()]
        assert [len(r.split()) for r in rows] == [tokens] * 3
        assert all(r.split()[8] == ("N/A" if argv == ("-c", "0") else "0") for r in rows)


def test_the_json_holds_what_the_text_says_and_every_process(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    said = fixed(home, "all_reduce", *SMALL, "-I", "1", "-J", str(path), NCCL_TESTS_SPLIT="MOD 8", SECRET="s3cret")
    assert f"# Writing JSON output to {path}" in said.out
    assert "s3cret" not in path.read_text()
    raw = json.loads(path.read_text())
    assert raw["version"] == 3
    assert raw["results"][0]["root"] == "    -1"
    assert raw["average_bus_bandwidth"]["okay"] == "unchecked"
    fine, coarse = read_json(path.read_text()), read_text(said.out.splitlines())
    assert fine is not None
    assert fine.faults == []
    assert [d.group for d in fine.devices] == [d.group for d in coarse.devices] == [r % 8 for r in range(32)]
    for a, b in zip(fine.lines, coarse.lines, strict=True):
        assert a.time_us == pytest.approx(b.time_us, abs=b.time_rounding * 1.01)
        assert len(a.process_times_us) == 32
        assert max(sum(t) / len(t) for t in a.process_times_us) == pytest.approx(a.time_us, rel=1e-6)
        assert a.times_us == tuple(max(step) for step in zip(*a.process_times_us, strict=True))


def test_an_existing_file_stays_and_one_that_cannot_be_written_is_skipped(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("mine")
    assert f"# Writing JSON output to {path}.0" in fixed(home, "all_reduce", *SMALL, "-J", str(path)).out
    assert path.read_text() == "mine"
    said = fixed(home, "all_reduce", *SMALL, "-J", str(tmp_path / "no" / "x.json"))
    assert said.code == 0
    assert "# skipping json output" in said.out
    assert document.reserve(str(tmp_path)) == f"{tmp_path}.0"


@pytest.mark.parametrize(("split_by", "groups"), [("DIV 8", 4), ("MOD 8", 8), ("AND 0x7", 8), ("%8", 8), ("", 1)])
def test_splits_form_groups(home: Path, split_by: str, groups: int) -> None:
    found = read_text(fixed(home, "all_reduce", *SMALL, NCCL_TESTS_SPLIT=split_by).out.splitlines())
    assert len({d.group for d in found.devices}) == groups


def test_one_process_for_all_gpus_of_a_node(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    said = fixed(home, "all_reduce", *SMALL, "-g", "8", "-I", "1", "-J", str(path))
    assert len(read_text(said.out.splitlines()).devices) == 32
    raw = json.loads(path.read_text())
    # The real tool reads only the first device line of each process into its file.
    assert [d["rank"] for d in raw["config"]["devices"]] == [0, 8, 16, 24]
    assert len(raw["results"][0]["in_place_per_iter"]["per_process_max_times_us"]) == 4


def test_the_log_shows_transport_nics_and_algorithm(home: Path) -> None:
    plant(home, ("nic-down", "gpu-002/mlx5_6", None))
    said = fixed(home, "all_reduce", *SMALL, NCCL_DEBUG="INFO")
    lines, entries = split(said.out, hosts_in(said.out))
    log = read_log(entries)
    assert log.version == "2.28.9"
    assert log.transports() == "NET/IB/GDRDMA,P2P"
    assert log.nics() == ",".join(f"mlx5_{i}" for i in range(8))
    assert "mlx5_6" not in (log.nics(frozenset(("gpu-002", d) for d in range(8))) or "")
    assert log.tuning("all_reduce", 1 << 30) == ("RING", "SIMPLE")
    assert read_text(lines).faults == []
    assert "NCCL INFO" not in fixed(home, "all_reduce", *SMALL).out


@pytest.mark.parametrize(
    ("hosts", "algorithm", "expected"),
    [("gpu-001", "", "NVLS"), ("gpu-[001-002]", "", "NVLS_TREE"), ("gpu-[001-002]", "Ring", "RING")],
)
def test_the_logged_algorithm_is_the_laws(home: Path, hosts: str, algorithm: str, expected: str) -> None:
    said = fixed(home, "all_reduce", *SMALL, hosts=hosts, NCCL_DEBUG="INFO", NCCL_ALGO=algorithm)
    assert f"Algo {expected} proto" in said.out


def test_a_slow_rail_shows_in_its_rail_and_in_all_together_only(home: Path) -> None:
    def at_most(split_by: str) -> float:
        found = read_text(fixed(home, "all_reduce", *SMALL, NCCL_TESTS_SPLIT=split_by).out.splitlines())
        return found.lines[-1].busbw_gbps

    before = {s: at_most(s) for s in ("", "DIV 8", "MOD 8")}
    plant(home, ("slow-rail", "gpu-002/mlx5_3", "30"))
    after = {s: at_most(s) for s in before}
    assert after["DIV 8"] == before["DIV 8"]
    for s in ("", "MOD 8"):
        assert after[s] == pytest.approx(0.7 * before[s], rel=0.05)


def test_one_gpu_of_each_host_measures_its_rail_alone(home: Path) -> None:
    pair = "gpu-[002-003]"
    plant(home, ("slow-rail", "gpu-002/mlx5_3", "30"), ("nic-down", "gpu-002/mlx5_6", None))
    rail = {d: fixed(home, "all_reduce", *SMALL, hosts=pair, NCCL_TESTS_DEVICE=str(d)) for d in (1, 3, 6)}
    found = {d: read_text(said.out.splitlines()) for d, said in rail.items()}
    assert [(x.host, x.device) for x in found[3].devices] == [("gpu-002", 3), ("gpu-003", 3)]
    assert found[3].lines[-1].busbw_gbps == pytest.approx(0.7 * found[1].lines[-1].busbw_gbps, rel=0.06)
    assert rail[6].code == 3
    assert "mlx5_6 is down" in rail[6].out
    assert fixed(home, "all_reduce", *SMALL, hosts=pair, NCCL_TESTS_DEVICE="8").code == 1


def test_more_times_than_memory_takes_are_refused(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    assert options.parse(["all_reduce", "-n", "99999999"]).iterations == options.MAX_ITERATIONS
    monkeypatch.setattr(session, "_MAX_TIMES", 100)
    assert "at most 100 times a size" in fixed(home, "all_reduce", "-n", "5").err


def test_the_same_launch_is_the_same_and_unnamed_launches_differ(home: Path) -> None:
    assert fixed(home, "all_reduce", *SMALL).out == fixed(home, "all_reduce", *SMALL).out
    first, other = (play(home, "all_reduce", "--hosts", HOSTS, *SMALL).out for _ in "12")
    assert first != other


def test_a_node_that_cannot_be_reached_keeps_the_job_from_starting(home: Path) -> None:
    plant(home, ("node-unreachable", "gpu-003", None))
    said = fixed(home, "all_reduce", *SMALL)
    assert said.code == 255
    assert "ssh: connect to host gpu-003 port 22: Connection refused" in said.err
    assert said.out == ""
    assert fixed(home, "all_reduce", *SMALL, hosts="gpu-[001-002]").code == 0


def test_a_node_without_network_fails_the_test(home: Path) -> None:
    plant(home, *(("nic-down", f"gpu-003/mlx5_{i}", None) for i in range(8)))
    said = fixed(home, "all_reduce", *SMALL)
    assert said.code == 3
    found = read_text(said.out.splitlines())
    assert [rule for rule, _ in found.faults] == ["tool_reports_no_error"]
    assert not found.concluded
    assert found.lines == []


def test_a_floor_from_the_environment_fails_the_run(home: Path) -> None:
    assert fixed(home, "all_reduce", *SMALL, NCCL_TESTS_MIN_BW="1").code == 0
    said = fixed(home, "all_reduce", *SMALL, NCCL_TESTS_MIN_BW="1000")
    assert said.code == 1
    assert "FAILED" in said.out


@pytest.mark.parametrize(
    ("argv", "code", "out", "err"),
    [
        (("-Q",), 0, "invalid option '?'\nUSAGE: all_reduce_perf", "option -Q not recognized"),
        (("-b",), 0, "USAGE: all_reduce_perf", "requires argument"),
        (("-h",), 0, "USAGE: all_reduce_perf", ""),
        (("-b", "x"), 255, "", "invalid size specified for 'minbytes'"),
        (("-b", "2G", "-e", "1G"), 255, "", "invalid sizes for 'minbytes' and 'maxbytes': 2147483648 > 1073741824"),
        (("-g", "16"), 1, "", "Invalid number of GPUs: 16 requested but only 8 were found."),
        (("-g", "3"), 1, "", "Invalid number of GPUs: 9 requested but only 8 were found."),
        (("-C", "1"), 2, "", "-C 0 only"),
        (("-d", "float128"), 2, "", "float128"),
        (("-a", "7"), 2, "", "-a 7"),
        (("stray",), 2, "", "'stray'"),
    ],
)
def test_options_that_do_not_fit_end_as_in_the_real_tool(
    home: Path, argv: tuple[str, ...], code: int, out: str, err: str
) -> None:
    said = fixed(home, "all_reduce", *argv)
    assert said.code == code
    assert out in said.out
    assert err in said.err
    assert "Avg bus bandwidth" not in said.out


def test_what_is_missing_is_said(home: Path, tmp_path: Path) -> None:
    assert "expected a collective first" in play(home).err
    assert "no hosts" in play(home, "all_reduce").err
    assert "gpu-099" in play(home, "all_reduce", "--hosts", "gpu-099").err
    assert "fabric-health lab up" in play(tmp_path / "empty", "all_reduce", "--hosts", "gpu-001").err
    assert "NCCL_TESTS_SPLIT" in fixed(home, "all_reduce", NCCL_TESTS_SPLIT="nonsense").err
    assert "equal size" in fixed(home, "all_reduce", NCCL_TESTS_SPLIT="DIV 5").err
    assert fixed(home, "all_reduce", *SMALL, hosts="").code == 2
    assert fixed(home, "all_gather", "-b", "8").code == 1
    Place(home).state.write_text("{")
    assert "expected the lab's state" in fixed(home, "all_reduce").err


def test_sizes_are_read_and_stepped_as_in_the_real_tool() -> None:
    assert options.parse(["all_reduce"]).sizes == [32 << 20]
    assert options.parse(["all_reduce_perf", "-b", "8", "-e", "64", "-f", "2"]).sizes == [8, 16, 32, 64]
    assert options.parse(["all_reduce", "--minbytes", "1.5K", "-e", "4K", "-i", "1K"]).sizes == [1536, 2560, 3584]
    assert options.parse(["all_reduce", "-b", "1G", "-e", "8GB", "-f", "8"]).sizes == [1 << 30, 8 << 30]


def test_numbers_are_printed_as_wide_as_in_the_real_tool() -> None:
    shown = [text.number(v, 7) for v in (0, 0.4567, 1234.567, 12345.67, 123456.7, 1234567.0, 12345678.0)]
    assert shown == ["   0.00", "   0.46", "1234.57", "12345.7", " 123457", "1234567", "1.2e+07"]
    assert text.number(479.4, 6) == "479.40"
    assert text.number(1234.5, 6) == "1234.5"


@given(st.lists(st.text(max_size=12), max_size=8))
def test_no_command_line_crashes_it(words: list[str]) -> None:
    out: list[str] = []
    code = all_reduce_perf.run(["all_reduce", "--hosts", "gpu-001", "-n", "1", *words], {}, out.append, out.append)
    assert code in (0, 1, 2, 255)


def test_through_the_job_backend_and_the_checks_parser(home: Path) -> None:
    """The whole way of a launch: job, evidence, rows; the slow rail is the slow row."""
    plant(home, ("slow-rail", "gpu-002/mlx5_3", "18"))
    site = load_site(SITE)
    nodes = [n for n in site.nodes if n.name in {f"gpu-00{i}" for i in range(1, 5)}]
    nccl = NcclSettings(min_bytes=1 << 20, max_bytes=1 << 30, factor=32, iterations=5)
    rows: dict[str, list[Collective]] = {}
    for grouping in ("all", "node", "rail"):
        name = f"lab-all-reduce-{grouping}-1"
        spec = fleet_spec(nccl, name, "all_reduce", grouping, nodes, lab="r")
        result = backend(home).run(spec, lambda _: None)
        assert (result.status, result.exit_code, result.stderr, result.reason) == (JobStatus.EXITED, 0, "", "")
        launch = Launch(name, spec, tuple(n.name for n in nodes))
        found = parse(launch, evidence_of(launch, "collectives", result), site)
        assert [r for r in found if isinstance(r, LaunchProblem)] == []
        outcome = next(r for r in found if isinstance(r, CollectiveLaunch))
        assert (outcome.engine, outcome.usable, outcome.hosts_seen, outcome.ranks_seen) == ("lab_fleet", True, 4, 32)
        rows[grouping] = [r for r in found if isinstance(r, Collective) and r.size_bytes == 1 << 30]
    assert {r.nics for r in rows["all"]} == {",".join(f"mlx5_{i}" for i in range(8))}
    assert {r.transport for r in rows["rail"]} == {"NET/IB/GDRDMA"}
    assert {r.group for r in rows["node"]} == {n.name for n in nodes}
    by_rail = {r.group: r.busbw_gbps for r in rows["rail"] if not r.in_place}
    assert sorted(by_rail) == [f"rail-{i}" for i in range(8)]
    slow = by_rail.pop("rail-3")
    assert slow == pytest.approx(0.82 * median(by_rail.values()), rel=0.04)


def test_jobs_of_our_own_programs_know_the_home_of_their_starter(tmp_path: Path) -> None:
    spec = JobSpec("j", "self", ("{python}", "-c", "import os; print(os.environ['FABRIC_HEALTH_HOME'])"))
    result = backend(tmp_path).run(spec, lambda _: None)
    assert result.stdout.strip() == str(tmp_path)


def backend(home: Path) -> LocalBackend:
    return LocalBackend(home, "r", home / "tools", lambda name: pytest.fail(f"asked for secrets of {name}"))


def test_main_is_a_program(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FABRIC_HEALTH_HOME", str(home))
    monkeypatch.setattr(sys, "argv", ["x", "all_reduce", "--hosts", "gpu-001", *SMALL])
    assert all_reduce_perf.main() == 0
    assert "# Collective test concluded: all_reduce_perf" in capsys.readouterr().out


def test_the_picture_in_the_docs_is_of_this_model() -> None:
    drawn = plot.chart(load_site(SITE))
    curves = {row["fleet"] for row in drawn["hconcat"][0]["data"]["values"]}
    image = (SITE.parents[2] / "docs" / "images" / "fleet-model.svg").read_text(encoding="utf-8")
    assert len(curves) == 5
    assert {name for name in curves if f">{name}<" not in image} == set()
    assert image.rstrip().endswith("</svg>")
