"""The command line: exit codes, what is printed, and that a user's mistake is an error line and never a traceback."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from fabric_health import __version__, connections
from fabric_health.cli.main import app, main
from fabric_health.datasets import embedded
from fabric_health.errors import FabricHealthError

SITE = """\
site: tiny
title: A lab of three units
origin: lab
coverage_floor: 0.5
reach:
  lab: {kind: ssh, connection: lab_ssh, unit_timeout_s: 60, connect_timeout_s: 5}
skus:
  one-nic:
    gpu_model: NVIDIA H100 80GB HBM3
    gpus: 2
    link_layer: Ethernet
    nic_rate_gbps: 400
    netdev_mtu_bytes: 9000
    nics: [{name: mlx5_0, rail: 0, netdev: ens1np0, pci: "0000:18:00.0", psid: MT_0000000838, gpu: 0}]
    nic_firmware: {MT_0000000838: 28.43.2026}
    expected: {driver_version: 580.126.09}
nodes:
  - {names: "n[1-2]", sku: one-nic, rack: r1, reach: lab, address: "127.12.SUBNET.[1-2]"}
switches:
  - {names: sw1, platform: eos, reach: lab, address: 127.12.SUBNET.9}
port_profiles:
  gpu: {speed_gbps: 400, mtu_bytes: 9216}
cabling:
  - {switch: sw1, ports: "Ethernet[1-2]/1", profile: gpu, nodes: "n[1-2]", nic: mlx5_0}
"""


@pytest.fixture(scope="module")
def site_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli-site") / "tiny.yaml"
    path.write_text(SITE.replace("SUBNET", str(1 + os.getpid() % 200)))
    return path


@pytest.fixture(scope="module")
def home(site_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home in which `lab up` has run; every command of this module works there."""
    folder = tmp_path_factory.mktemp("cli-home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FABRIC_HEALTH_HOME", str(folder))
        patch.setenv("FABRIC_HEALTH_SITE", str(site_file))
        patch.setattr("fabric_health.cli.terminal.out.width", 2000)
        try:
            assert main(["lab", "up"]) == 0
            yield folder
        finally:
            main(["lab", "down"])


@pytest.fixture(scope="module")
def run_name(home: Path) -> str:
    """A concluded run over a healthy lab."""
    assert main(["run", "weekly"]) == 0
    pages = list((home / "reports").glob("*/index.html"))
    assert len(pages) == 1
    return pages[0].parent.name


@pytest.fixture
def cli(home: Path, capfd: pytest.CaptureFixture[str]):
    """Run a command; return exit code, stdout, stderr, having seen that there is no traceback."""

    def call(*argv: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main(list(argv))
        said = capfd.readouterr()
        assert "Traceback" not in said.out + said.err
        return code, said.out, said.err

    return call


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """The same in a home where nothing was ever started."""
    monkeypatch.setenv("FABRIC_HEALTH_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FABRIC_HEALTH_SITE", raising=False)

    def call(*argv: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main(list(argv))
        said = capfd.readouterr()
        assert "Traceback" not in said.out + said.err
        return code, said.out, said.err

    return call


def commands(group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, command in sorted(getattr(group, "commands", {}).items()):
        yield from commands(command, (*path, name))


EVERY = list(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("path", EVERY, ids=lambda p: " ".join(p) or "(none)")
def test_every_command_has_help(bare, path: tuple[str, ...]) -> None:
    code, out, _ = bare(*path, "--help")
    assert code == 0
    assert "Usage:" in out
    assert len(out.splitlines()) > 4


def test_the_commands_are_the_documented_ones() -> None:
    names = {" ".join(p) for p in EVERY if p}
    assert {"lab up", "lab down", "lab status", "lab fault", "lab heal", "run", "stage", "tables", "sql"} <= names
    assert {"report", "evidence", "site validate", "site show", "version"} <= names


def test_version(bare) -> None:
    assert bare("version") == (0, f"{__version__}\n", "")


@pytest.mark.parametrize(
    "argv",
    [(), ("lab",), ("rum",), ("run",), ("run", "weekly", "--scop", "x"), ("sql", "select 1", "--format", "xml")],
    ids=" ".join,
)
def test_a_command_line_that_makes_no_sense_is_64(bare, argv: tuple[str, ...]) -> None:
    code, out, err = bare(*argv)
    assert code == 64
    assert "Usage:" in out + err


def test_a_healthy_run_is_0_and_names_its_page(cli, home, run_name) -> None:
    code, out, err = cli("run", "switch_config", "--scope", "sw1")
    assert code == 0
    assert "HEALTHY" in out
    assert "1 units, switch_config" in err, "progress goes to stderr"
    page = next(line.split(maxsplit=1)[1] for line in out.splitlines() if line.startswith("page"))
    assert Path(page).read_text().startswith("<!doctype html>")


def test_findings_are_1_and_say_where(cli, run_name) -> None:
    assert cli("lab", "fault", "driver-version", "n2")[0] == 0
    try:
        code, out, _ = cli("run", "driver_firmware")
    finally:
        assert cli("lab", "heal")[1] == "healed 1 faults\n"
    assert code == 1
    block = out[out.index("\nwarning") :].lstrip().partition("\n\n")[0]
    assert [w for w in ("n2", "580.126.09", "570.148.08") if w not in block] == []


def test_could_not_judge_is_2(cli, run_name) -> None:
    assert cli("lab", "fault", "node-unreachable", "n1")[0] == 0
    try:
        code, out, _ = cli("run", "driver_firmware", "--scope", "n1")
    finally:
        cli("lab", "heal", "n1")
    assert code == 2
    assert "NOT_JUDGED" in out
    assert "n1 could not be asked: refused" in out


def test_a_store_that_is_away_is_2(cli, monkeypatch, home, run_name) -> None:
    saved = json.loads((home / "connections.json").read_text())
    entry = {**saved["fabric_health_s3"], "port": 9}
    monkeypatch.setenv("AIRFLOW_CONN_FABRIC_HEALTH_S3", json.dumps(entry))
    monkeypatch.setenv("AIRFLOW_CONN_FABRIC_HEALTH_S3_ANALYST", json.dumps(entry))
    monkeypatch.setattr("fabric_health.datasets.store.ObjectStore.connect", _impatient())
    for argv in (("run", "weekly"), ("tables",), ("sql", "select 1"), ("report",)):
        code, _, err = cli(*argv)
        assert code == 2, argv
        assert "object store 127.0.0.1:9" in err
        assert "Check that the store runs" in err


def _impatient():
    from fabric_health.datasets.store import ObjectStore

    connect = ObjectStore.connect
    return lambda conn: connect(conn, retry_s=0.1)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("run", "driver_firmwar"), ("no check is called 'driver_firmwar'", "driver_firmware, switch_config")),
        (("run", "weekly", "--scope", "n3"), ("site 'tiny' has no unit 'n3'",)),
        (("run", "weekly", "--scope", "n[1-"), ("range",)),
        (("run", "switch_config", "--scope", "n1"), ("has no switch",)),
        (("stage", "colect", "--run", "x"), ("no stage is called 'colect'", "collect, land")),
        (("stage", "land", "--run", "x"), ("give --check",)),
        (("stage", "explain", "--run", "runs/none/run.json"), ("no run document at s3://",)),
        (("tables", "fact"), ("no table is called 'fact'", "facts")),
        (("sql", "select 1 from nothing"), ("the query cannot be answered", "nothing")),
        (("sql", "selec 1"), ("the query cannot be answered",)),
        (("sql", "drop table facts"), ("read only",)),
        (("sql", "select 1; select 2"), ("one SQL statement",)),
        (("sql", "select * from read_csv('/etc/passwd')"), ("the query cannot be answered",)),
        (("report", "--run", "none"), ("no report of a run 'none'",)),
        (("evidence", "n1", "--run", "none"), ("kept no evidence of 'n1'",)),
        (("lab", "fault", "nonsense", "n1"), ("no fault 'nonsense'",)),
        (("lab", "fault", "nic-down", "n1"), ("nic",)),
        (("lab", "fault", "driver-version", "n9"), ("no unit 'n9'",)),
        (("--site", "/nowhere/site.yaml", "run", "weekly"), ("/nowhere/site.yaml", "No such file")),
        (("site", "validate", "/nowhere/site.yaml"), ("/nowhere/site.yaml", "No such file")),
    ],
    ids=lambda x: " ".join(x) if x and isinstance(x, tuple) else "",
)
def test_a_users_mistake_is_64_and_says_what_would_fit(cli, run_name, argv, words) -> None:
    code, out, err = cli(*argv)
    assert (code, out) == (64, "")
    assert err.lstrip().startswith("error") or "\nerror" in err
    assert [w for w in words if w not in err] == []


def test_what_is_missing_is_2_and_says_where_to_get_it(bare, site_file) -> None:
    for argv in (("run", "weekly"), ("sql", "select 1"), ("tables",), ("evidence", "n1", "--run", "r")):
        code, _, err = bare("--site", str(site_file), *argv)
        assert code == 2, argv
        assert "connection 'fabric_health_s3' is not defined" in err
        assert "fabric-health lab up" in err
    code, _, err = bare("lab", "fault", "driver-version", "n1")
    assert code == 2
    assert "no lab is running" in err
    assert bare("lab", "status") == (0, "object store: not running\nlab: not running\n", "")
    assert bare("lab", "down") == (0, "nothing was running\n", "")


def test_a_broken_connections_file_is_named(bare, tmp_path, site_file) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "connections.json").write_text('{"fabric_health_s3": {"port": 99999999}}')
    code, _, err = bare("--site", str(site_file), "run", "weekly")
    assert code == 2
    assert "connections.json" in err
    assert "expected 1..65535" in err


def test_site_validate_names_file_line_and_key(bare, tmp_path, site_file) -> None:
    good = site_file.read_text()
    assert bare("site", "validate", str(site_file)) == (
        0,
        f"{site_file}: site 'tiny' is valid: 2 nodes, 1 switches, 2 cables\n",
        "",
    )
    bad = tmp_path / "bad.yaml"
    bad.write_text(good.replace("gpus: 2", "gpu: 2").replace("mtu_bytes: 9216", "mtu_bytes: big"))
    code, out, err = bare("site", "validate", str(bad))
    assert (code, out) == (64, "")
    line = 1 + good.splitlines().index("    gpus: 2")
    assert f"{bad}:{line}: skus.one-nic.gpu: unknown key; did you mean 'gpus'?" in err
    assert "port_profiles.gpu.mtu_bytes: Input should be a valid integer" in err
    assert "skus.one-nic.gpus: required key is missing" in err
    assert len(err.splitlines()) == 3


def test_site_validate_reads_the_settings_of_jobs_and_checks(bare, tmp_path, site_file) -> None:
    bad = tmp_path / "bad.yaml"
    settings = """\
jobs:
  backend: local
  paralel: 2
checks:
  switch_config: {}
  driver_firmware: {depth: 3}
  collectiv: {}
  collectives:
    launches: 0
    nccl: {warmup: few}
  object_store:
    bucket: data
"""
    bad.write_text(site_file.read_text() + settings)
    code, out, err = bare("site", "validate", str(bad))
    assert (code, out) == (64, "")
    first = 1 + len(site_file.read_text().splitlines())
    told = [line.removeprefix("error").strip() for line in err.splitlines()]
    assert [t.split(": ")[:2] for t in told] == [
        [f"{bad}:{first + line}", key]
        for line, key in (
            (2, "jobs.paralel"),
            (5, "checks.driver_firmware"),
            (6, "checks.collectiv"),
            (8, "checks.collectives.launches"),
            (9, "checks.collectives.nccl.warmup"),
            (10, "checks.object_store"),
        )
    ]
    assert "unknown check; did you mean 'collectives'?" in err
    assert "the check takes no settings" in err
    assert "expected a name with `bench` in it" in err


def test_the_site_files_here_are_valid(bare) -> None:
    for name in ("lab", "example"):
        code, _, err = bare("site", "validate", str(Path(__file__).parents[2] / f"include/sites/{name}.yaml"))
        assert (code, err) == (0, ""), name


def test_site_show(bare, site_file) -> None:
    code, out, _ = bare("--site", str(site_file), "site", "show")
    assert code == 0
    assert "one-nic" in out
    assert "sw1" in out


def test_tables_lists_and_describes(cli, run_name) -> None:
    code, out, _ = cli("tables")
    assert code == 0
    counts = {x.split()[0]: int(x.split()[1]) for x in out.splitlines()[1:]}
    assert counts["facts"] > 50
    assert counts["runs"] >= 1
    assert counts["quarantine"] == 0
    code, out, _ = cli("tables", "switch_ports")
    assert code == 0
    assert "mtu_bytes" in out


def test_sql_prints_tables_csv_and_json(cli, run_name, monkeypatch) -> None:
    query = (
        "select unit, value from facts where attribute = 'driver_version' and unit_kind = 'node' "
        f"and run = '{run_name}' order by unit"
    )
    code, out, _ = cli("sql", query)
    assert code == 0
    assert [x.split() for x in out.splitlines()] == [
        ["unit", "value"],
        ["n1", "580.126.09"],
        ["n2", "580.126.09"],
    ]
    code, out, _ = cli("sql", query, "--format", "csv")
    assert list(csv.DictReader(io.StringIO(out))) == [{"unit": f"n{i}", "value": "580.126.09"} for i in (1, 2)]
    code, out, _ = cli("sql", query, "--format", "json")
    assert [json.loads(x) for x in out.splitlines()] == [{"unit": f"n{i}", "value": "580.126.09"} for i in (1, 2)]
    code, out, _ = cli("sql", query, "--limit", "1")
    assert "1 of 2 rows" in out
    monkeypatch.setattr("sys.stdin", io.StringIO("select 42 as answer"))
    assert cli("sql", "-", "--format", "json")[1] == '{"answer": 42}\n'


def test_report_and_evidence(cli, home, run_name) -> None:
    for argv in (("report",), ("report", "--run", run_name)):
        code, out, _ = cli(*argv)
        assert code == 0
        assert Path(out.strip()).is_file()
    code, out, _ = cli("evidence", "n1/mlx5_0", "--run", run_name, "--command", "ibstat")
    assert code == 0
    assert out.startswith("# driver_firmware on n1: ok")
    assert "$ ibstat   [exited, exit code 0]" in out
    assert "CA 'mlx5_0'" in out
    assert cli("evidence", "n1", "--run", run_name, "--check", "switch_config")[0] == 64


def test_a_stage_can_be_repeated(cli, home, run_name) -> None:
    _, out, _ = cli("sql", f"select week, site from runs where run = '{run_name}'", "--format", "json")
    where = json.loads(out)
    ref = f"runs/site={where['site']}/week={where['week']}/{run_name}/run.json"
    code, out, _ = cli("stage", "judge", "--run", ref, "--check", "switch_config")
    assert code == 0
    assert json.loads(out) == {"info": 1, "warning": 0, "critical": 0}, "there is no golden config, which is no fault"
    code, out, _ = cli("stage", "conclude", "--run", ref)
    assert json.loads(out)["answer"] == "HEALTHY"


def test_lab_status_and_faults(cli) -> None:
    assert cli("lab", "fault", "nic-firmware", "n1/mlx5_0", "28.1.1")[1] == "nic-firmware on n1/mlx5_0 = 28.1.1\n"
    _, out, _ = cli("lab", "status")
    assert "n1/mlx5_0" in out
    assert "28.1.1" in out
    assert cli("lab", "heal", "n1/mlx5_0", "nic-firmware")[0] == 0
    assert "no fault is active" in cli("lab", "status")[1]
    code, out, _ = cli("lab", "fault")
    assert code == 0
    assert "node-hanging" in out
    assert cli("lab", "path")[1].strip() == str(connections.home())


def test_lab_up_again_and_another_site(cli, tmp_path, site_file) -> None:
    assert cli("lab", "up")[0] == 0
    other = tmp_path / "other.yaml"
    other.write_text(site_file.read_text().replace("site: tiny", "site: other"))
    code, _, err = cli("--site", str(other), "lab", "up")
    assert code == 2
    assert "stop it first" in err


def test_an_interrupt_is_130(bare, monkeypatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(embedded, "status", interrupted)
    code, _, err = bare("lab", "status")
    assert code == 130
    assert "run the command again to go on" in err


def test_a_mistake_of_ours_is_2_and_never_taken_for_findings(monkeypatch, capfd) -> None:
    def broken() -> Path:
        raise RuntimeError("boom")

    monkeypatch.delenv("FABRIC_HEALTH_SITE", raising=False)
    monkeypatch.setattr("fabric_health.rooms.default_site_file", broken)
    assert main(["run", "weekly"]) == 2
    said = capfd.readouterr().err
    assert "RuntimeError: boom" in said
    assert "please report it" in said


def test_an_error_is_printed_without_control_characters_or_markup(bare, monkeypatch) -> None:
    def refused(*_: object) -> None:
        raise FabricHealthError("\x1b[31mred[/] [bold]no[/bold]\nsecond line")

    monkeypatch.setattr(embedded, "status", refused)
    code, _, err = bare("lab", "status")
    assert code == 2
    assert "\x1b" not in err
    assert "[bold]no[/bold]" in err
    assert "second line" in err
