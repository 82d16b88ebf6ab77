"""A launch's evidence to rows: what may be used as a number, and what is refused with which reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from nccl_output import COLUMNS, Run, as_json, body, connection_log, footer, header, preamble, text

from fabric_health.checks.check import Launch, RowSet
from fabric_health.checks.collectives.parse import parse
from fabric_health.checks.collectives.tables import Collective, CollectiveLaunch, CollectiveSample, LaunchProblem
from fabric_health.evidence import CommandStatus, UnitEvidence
from fabric_health.site import Site

LaunchOf = Callable[..., Launch]
RowsOf = Callable[..., RowSet]


def broken(rows: RowSet) -> set[str]:
    return {p.rule for p in rows.of(LaunchProblem)}


def logged(run: Run, network: str = "IB") -> str:
    return "\n".join(connection_log(run, network)) + "\n" + text(run)


def test_good_launch(launch_of: LaunchOf, rows_of: RowsOf) -> None:
    rows = rows_of(launch_of(), logged(Run()), nccl_tests__json=as_json(Run()))
    assert broken(rows) == set()
    (outcome,) = rows.of(CollectiveLaunch)
    assert (outcome.usable, outcome.hosts_seen, outcome.ranks_seen, outcome.exit_code) == (True, 3, 24, 0)
    assert (outcome.transport, outcome.library_version) == ("NET/IB/GDRDMA,P2P", "2.28.9")
    found = rows.of(Collective)
    assert len(found) == 6
    row = found[-1]
    assert (row.group, row.group_kind, row.size_bytes, row.in_place) == ("all", "all", 32 << 20, True)
    assert (row.ranks, row.nodes, row.ranks_per_node, row.sku, row.timing) == (24, 3, 8, "h100", "max")
    assert row.busbw_gbps == pytest.approx(100 * 2 * 23 / 24)
    assert row.time_cv is not None
    assert len({r.comparability for r in found}) == 6
    assert len(rows.of(CollectiveSample)) == 6 * 4


def test_ran_on_other_hosts_is_refused_with_the_reason(launch_of: LaunchOf, rows_of: RowsOf) -> None:
    """16 slots on two hosts are filled before the third is touched: 8 + 8 ranks, "OK", and a node never tested."""
    run = Run(hosts=("gpu-001", "gpu-002"), per_host=8)
    rows = rows_of(launch_of(), logged(run), nccl_tests__json=as_json(run))
    problems = {p.rule: p for p in rows.of(LaunchProblem)}
    assert problems["hosts_as_asked"].detail == "asked for and not used: gpu-003"
    assert problems["ranks_as_asked"].refuses
    assert rows.of(Collective) == []
    assert rows.of(CollectiveSample) == []
    assert not rows.of(CollectiveLaunch)[0].usable


def test_another_host_of_the_same_count(launch_of: LaunchOf, rows_of: RowsOf) -> None:
    rows = rows_of(launch_of(), logged(Run(hosts=("gpu-001", "gpu-002", "gpu-007"))))
    (problem,) = [p for p in rows.of(LaunchProblem) if p.rule == "hosts_as_asked"]
    assert problem.detail == "asked for and not used: gpu-003; used and not asked for: gpu-007"
    assert rows.of(Collective) == []


def test_uneven_ranks(launch_of: LaunchOf, rows_of: RowsOf) -> None:
    output = logged(Run()).replace("on    gpu-003 device  0", "on    gpu-002 device  0")
    assert "ranks_as_asked" in broken(rows_of(launch_of(), output))


def test_built_without_mpi(launch_of: LaunchOf, rows_of: RowsOf) -> None:
    """mpirun then starts independent copies, each of which is content with itself."""
    copies = "".join(text(Run(hosts=(h,))) for h in ("gpu-001", "gpu-002", "gpu-003"))
    rows = rows_of(launch_of(), copies)
    assert "ranks_once" in broken(rows)
    assert rows.of(Collective) == []


def test_tcp_fallback_is_named_though_all_is_ok(launch_of: LaunchOf, rows_of: RowsOf) -> None:
    rows = rows_of(launch_of(), logged(Run(algbw=0.28), "Socket"), nccl_tests__json=as_json(Run(algbw=0.28)))
    assert broken(rows) == {"transport_as_expected"}
    row = rows.of(Collective)[0]
    assert row.transport == "NET/Socket,P2P"
    assert "transport=NET/Socket,P2P" in row.comparability


def test_silent_about_its_transport(launch_of: LaunchOf, rows_of: RowsOf) -> None:
    assert broken(rows_of(launch_of(), text(Run()), nccl_tests__json=as_json(Run()))) == {"transport_known"}
    single = Run(hosts=("gpu-001",))
    assert broken(rows_of(launch_of(nodes=1), text(single), nccl_tests__json=as_json(single))) == set()


def test_truncated_output_gives_no_number(launch_of: LaunchOf, rows_of: RowsOf) -> None:
    whole = logged(Run())
    for cut in (whole[: whole.index("# Out of bounds")], whole[: whole.index(" 33554432") + 60], "", "Killed\n"):
        rows = rows_of(launch_of(per_iteration=False), cut)
        assert "output_complete" in broken(rows)
        assert rows.of(Collective) == []


def test_error_inside_exit_code_0(launch_of: LaunchOf, rows_of: RowsOf) -> None:
    output = logged(Run()) + "# error: remote process exited or there was a network error\n"
    rows = rows_of(launch_of(per_iteration=False), output)
    assert broken(rows) == {"tool_reports_no_error"}
    assert rows.of(Collective) == []


def test_exit_code_and_status(launch_of: LaunchOf, rows_of: RowsOf) -> None:
    failed = rows_of(launch_of(per_iteration=False), logged(Run()), exit_code=1, stderr="mpirun: lost a daemon\n")
    (problem,) = failed.of(LaunchProblem)
    assert problem.detail == "exit code 1: mpirun: lost a daemon"
    late = rows_of(launch_of(per_iteration=False), logged(Run()), exit_code=None, status=CommandStatus.TIMEOUT)
    assert broken(late) == {"launch_completes"}
    assert failed.of(Collective) == late.of(Collective) == []


def test_wrong_values_stay_visible_as_such(launch_of: LaunchOf, rows_of: RowsOf) -> None:
    rows = rows_of(launch_of(per_iteration=False), logged(Run(wrong=3)), exit_code=1)
    assert broken(rows) == {"no_wrong_results"}
    assert {r.wrong for r in rows.of(Collective)} == {3}


def test_unchecked_values(launch_of: LaunchOf, rows_of: RowsOf) -> None:
    run = Run()
    lines = [preamble(run, s) + body(run, s, wrong="N/A") * 2 for s in run.sizes]
    output = "\n".join([*connection_log(run), *header(run), *COLUMNS, *lines, *footer(run)])
    assert broken(rows_of(launch_of(per_iteration=False), output)) == {"results_checked"}


@pytest.mark.parametrize("collective", ["alltoall", "sendrecv", "broadcast", "all_gather", "reduce_scatter"])
def test_every_collective_with_its_factor(launch_of: LaunchOf, rows_of: RowsOf, collective: str) -> None:
    run = Run(collective=collective)
    rows = rows_of(launch_of(collective), logged(run), nccl_tests__json=as_json(run))
    assert broken(rows) == set()
    assert rows.of(Collective)[0].busbw_gbps == pytest.approx(100 * run.factor)
    assert {r.wrong for r in rows.of(Collective) if r.in_place} == (
        {None} if collective in ("alltoall", "sendrecv") else {0}
    )


def test_sizes_shared_by_24_ranks_are_rounded_down(launch_of: LaunchOf, rows_of: RowsOf) -> None:
    sizes = tuple(s // (24 * 16) * (24 * 16) for s in (8 << 20, 16 << 20, 32 << 20))
    run = Run(collective="all_gather", sizes=sizes)
    assert broken(rows_of(launch_of("all_gather"), logged(run), nccl_tests__json=as_json(run))) == set()


def test_sizes_not_reached(launch_of: LaunchOf, rows_of: RowsOf) -> None:
    run = Run(sizes=(8 << 20, 16 << 20))
    output = logged(run).replace("# Using devices", "# Reducing maxBytes to 16777216 due to memory limitation\n# Using")
    output = output.replace("# Using\n", "# Using devices\n")
    rows = rows_of(launch_of(per_iteration=False), output)
    assert broken(rows) == {"sizes_reached"}
    assert {r.size_bytes for r in rows.of(Collective)} == {8 << 20, 16 << 20}
    assert rows.of(CollectiveLaunch)[0].max_bytes_reached == 16 << 20


def test_another_collective(launch_of: LaunchOf, rows_of: RowsOf) -> None:
    rows = rows_of(launch_of("all_gather", per_iteration=False), logged(Run()))
    assert "collective_as_asked" in broken(rows)
    assert rows.of(Collective) == []


def test_bandwidths_that_do_not_fit(launch_of: LaunchOf, rows_of: RowsOf) -> None:
    output = logged(Run())
    shown = f"{100 * 2 * 23 / 24:6.2f}"
    assert shown in output
    wrong_bus = rows_of(launch_of(per_iteration=False), output.replace(shown, "175.00"))
    assert broken(wrong_bus) == {"arithmetic_holds"}
    assert wrong_bus.of(Collective) == []
    assert broken(rows_of(launch_of(per_iteration=False), output.replace("335.54", "670.54"))) == {"arithmetic_holds"}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_json_of_every_version(launch_of: LaunchOf, rows_of: RowsOf, version: int) -> None:
    rows = rows_of(launch_of(), logged(Run()), nccl_tests__json=as_json(Run(), version))
    assert broken(rows) == set()
    assert {r.iterations for r in rows.of(Collective)} == {4}


def test_json_was_written_beside_an_older_file(launch_of: LaunchOf, rows_of: RowsOf) -> None:
    """The tool never overwrites: it takes path.0 and says so. The file under the plain name is an older launch's."""
    older, newer = as_json(Run(algbw=50)), as_json(Run())
    stale = rows_of(launch_of(), logged(Run()), nccl_tests__json=older)
    assert "artefact_of_this_launch" in broken(stale)
    assert stale.of(Collective) == []
    said = "# Writing JSON output to /artefacts/nccl-tests.json.0\n" + logged(Run())
    rows = rows_of(launch_of(), said, nccl_tests__json=older, nccl_tests__json__0=newer)
    assert broken(rows) == set()
    assert rows.of(Collective)[0].iterations == 4


def test_json_that_did_not_come_back_says_why(
    launch_of: LaunchOf, evidence_of: Callable[..., UnitEvidence], fleet: Site
) -> None:
    evidence = evidence_of(launch_of(), logged(Run()))
    for detail, told in (
        ("slow start; artefact nccl-tests.json: 2 of 9 pieces are lost; more", "missing (2 of 9 pieces are lost): "),
        ("artefact other.json: gone", "missing: "),
    ):
        rows = RowSet.gather(parse(launch_of(), replace(evidence, detail=detail), fleet))
        (problem,) = rows.of(LaunchProblem)
        assert (problem.rule, problem.refuses) == ("artefact_written", False)
        assert problem.detail.startswith(f"nccl-tests.json is {told}")


@pytest.mark.parametrize("file", ["", "{", as_json(Run())[:2000], "[]", '{"results": 3}', "null"])
def test_json_cut_off_leaves_the_text(launch_of: LaunchOf, rows_of: RowsOf, file: str) -> None:
    rows = rows_of(launch_of(), logged(Run()), nccl_tests__json=file)
    assert broken(rows) == {"artefact_written"}
    assert len(rows.of(Collective)) == 6


def test_json_with_nan_or_errors(launch_of: LaunchOf, rows_of: RowsOf) -> None:
    document = json.loads(as_json(Run()))
    document["results"][1]["in_place"]["bus_bw"] = "nan"
    rows = rows_of(launch_of(), logged(Run()), nccl_tests__json=json.dumps(document))
    assert rows.of(Collective) == []
    document = json.loads(as_json(Run()))
    document["errors"] = ["unhandled cuda error"]
    assert broken(rows_of(launch_of(), logged(Run()), nccl_tests__json=json.dumps(document))) == {
        "tool_reports_no_error"
    }


def test_group_per_node_and_per_rail_from_one_launch(launch_of: LaunchOf, rows_of: RowsOf) -> None:
    run = Run(split="DIV", slow={1: 1.25})
    rows = rows_of(launch_of(grouping="node"), logged(run), nccl_tests__json=as_json(run))
    assert broken(rows) == set()
    largest = {r.group: r for r in rows.of(Collective) if r.size_bytes == 32 << 20 and not r.in_place}
    assert sorted(largest) == ["gpu-001", "gpu-002", "gpu-003"]
    assert largest["gpu-002"].busbw_gbps == pytest.approx(largest["gpu-001"].busbw_gbps / 1.25)
    assert (largest["gpu-001"].ranks, largest["gpu-001"].nodes) == (8, 1)
    run = Run(split="MOD", slow={3: 2.0})
    rows = rows_of(launch_of(grouping="rail"), logged(run), nccl_tests__json=as_json(run))
    assert broken(rows) == set()
    largest = {r.group: r for r in rows.of(Collective) if r.size_bytes == 32 << 20 and not r.in_place}
    assert sorted(largest) == [f"rail-{i}" for i in range(8)]
    assert largest["rail-3"].algbw_gbps == pytest.approx(50, rel=0.01)
    assert largest["rail-0"].algbw_gbps == pytest.approx(100, rel=0.01)
    assert (largest["rail-3"].ranks, largest["rail-3"].nodes, largest["rail-3"].ranks_per_node) == (3, 3, 1)
    assert largest["rail-0"].nics is None or "mlx5_0" in largest["rail-0"].nics


def test_groups_without_the_file_are_only_the_slowest(launch_of: LaunchOf, rows_of: RowsOf) -> None:
    run = Run(split="DIV", slow={1: 1.25})
    rows = rows_of(launch_of(grouping="node", per_iteration=False), logged(run))
    assert {r.group for r in rows.of(Collective)} == {"node:slowest"}


def test_split_that_did_not_happen(launch_of: LaunchOf, rows_of: RowsOf) -> None:
    rows = rows_of(launch_of(grouping="node", per_iteration=False), logged(Run()))
    assert "groups_as_asked" in broken(rows)
    assert rows.of(Collective) == []


def test_environment_of_the_file_is_not_kept(launch_of: LaunchOf, rows_of: RowsOf) -> None:
    rows = rows_of(launch_of(), logged(Run()), nccl_tests__json=as_json(Run()))
    assert "very-secret" not in str(rows.rows)
