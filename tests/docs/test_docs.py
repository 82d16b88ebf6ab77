"""The documentation names only what exists, and names all of it: links, commands, rules, keys, views, limits."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from fabric_health import site as site_module
from fabric_health.checks.check import Context, RowSet
from fabric_health.checks.collectives.judge import _RULES as LAUNCH_RULES
from fabric_health.checks.collectives.peer_judge import _KINDS as PEER_KINDS
from fabric_health.checks.registry import ENTRIES, Entry
from fabric_health.checks.switch_config import port_rules, unread
from fabric_health.cli.main import app
from fabric_health.cli.terminal import Exit
from fabric_health.datasets import sql
from fabric_health.datasets.contracts import columns
from fabric_health.evidence import CommandResult, CommandStatus, ReachStatus, UnitEvidence
from fabric_health.jobs.settings import JobSettings, KubernetesSettings
from fabric_health.lab.faults import CATALOGUE, PLANTED
from fabric_health.maintenance import KINDS, MAX_LAUNCHES, Declaration
from fabric_health.notice import When
from fabric_health.site import Thresholds, load_site
from fabric_health.site_pods import ProbePods, Toleration
from fabric_health.verdict.metrics import MARGINS
from fabric_health.verdict.outcome import Outcome

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "include" / "fabric_health"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")])
VIEWS = re.findall(r"^CREATE VIEW (\w+)", (PACKAGE / "datasets" / "views.sql").read_text(), re.M)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _blocks(text: str, language: str) -> list[str]:
    return [body for name, body in BLOCK.findall(text) if name == language]


def _inline(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", BLOCK.sub("", text))


def _by_page(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _anchors(text: str) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", BLOCK.sub("", text), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}


@pytest.mark.parametrize("page", PAGES, ids=_by_page)
def test_relative_links_resolve(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in LINK.findall(BLOCK.sub("", text)):
        if target.startswith(("https://", "http://")):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        if anchor:
            assert anchor in _anchors(file.read_text(encoding="utf-8")), target


@pytest.mark.parametrize("page", PAGES, ids=_by_page)
def test_make_targets_exist(page: Path) -> None:
    makefile = _text("Makefile")
    targets = {t for line in re.findall(r"^([a-z][a-z_ -]*):", makefile, re.M) for t in line.split()}
    text = page.read_text(encoding="utf-8")
    lines = [line for body in _blocks(text, "") for line in body.splitlines()] + _inline(text)
    for line in lines:
        if match := re.match(r"make ([a-z_-]+)", line):
            assert match[1] in targets, line


def _command_lines(text: str) -> Iterator[list[str]]:
    """Yield the arguments of every `fabric-health ...` line in code blocks, without redirection and pipes."""
    for body in _blocks(text, ""):
        for line in body.replace("\\\n", " ").splitlines():
            found = re.match(r"\s*(?:[\w./-]+/)?fabric-health (.*)", line)
            if found:
                yield _arguments(found[1])


def _arguments(rest: str) -> list[str]:
    words = shlex.split(rest, comments=True)
    end = next((i for i, w in enumerate(words) if w in ("|", "<", ">")), len(words))
    return words[:end]


def _parse(command: Any, name: str, arguments: list[str]) -> None:
    """Parse as the command line does, without running anything. Raises typer's usage errors."""
    root = command.make_context(name, list(arguments))
    left = [*getattr(root, "_protected_args", []), *root.args]
    while left and hasattr(command, "resolve_command"):
        name, command, left = command.resolve_command(root, left)
        assert command is not None, name
        root = command.make_context(name, left, parent=root)
        left = [*getattr(root, "_protected_args", []), *root.args]


@pytest.mark.parametrize("page", PAGES, ids=_by_page)
def test_command_lines_parse(page: Path) -> None:
    command = typer.main.get_command(app)
    for arguments in _command_lines(page.read_text(encoding="utf-8")):
        try:
            _parse(command, "fabric-health", arguments)
        except typer.TyperException as error:
            pytest.fail(f"{' '.join(arguments)}: {error}")


@pytest.mark.parametrize("page", PAGES, ids=_by_page)
def test_commands_named_in_text_exist(page: Path) -> None:
    for code in _inline(page.read_text(encoding="utf-8")):
        if not code.startswith("fabric-health "):
            continue
        command: Any = typer.main.get_command(app)
        words = re.sub(r"^--site \S+ ", "", code.removeprefix("fabric-health ")).split()
        while hasattr(command, "commands") and words and not words[0].startswith(("-", ".")):
            assert words[0] in command.commands, code
            command = command.commands[words.pop(0)]


def test_a_command_line_that_is_wrong_is_noticed() -> None:
    command = typer.main.get_command(app)
    for wrong in (["nonsense"], ["run"], ["run", "weekly", "--nope"], ["lab", "nonsense"]):
        with pytest.raises(typer.TyperException):
            _parse(command, "fabric-health", wrong)


SHARED = {"unit_answers", "unit_has_rows", "check_finishes"}

# Rule names that code builds from others: where, how, and what comes of it.
BUILT = {
    ("driver_firmware", "attribute"): {"iommu_mode", "acs_state", "ecc_sram_correctable", "ecc_dram_correctable"},
    ("driver_firmware", "column"): {"link_downed", "link_error_recovery", "symbol_errors"},
    ("switch_config", "f'port_{metric}_known'"): {f"port_{m}_known" for m in unread._TITLES},
    ("collectives", "f'{kind}_as_fast_as_peers'"): {f"{k}_as_fast_as_peers" for k in PEER_KINDS},
}
# What finds things in the name of a check outside its folder.
ELSEWHERE = {"collectives": ("isolated.py", "isolation_cases.py"), "model_eval": ("answered.py",)}


def _rule_names(check: str) -> set[str]:
    """Return every rule name that findings of a check are made with, found in its code."""
    files = [*(PACKAGE / "checks" / check).rglob("*.py"), *(PACKAGE / name for name in ELSEWHERE.get(check, ()))]
    trees = [ast.parse(file.read_text()) for file in files]
    taking = {"finding": None} | {n: i for tree in trees for n, i in _taking_a_rule(tree)}
    out: set[str] = set()
    for tree in trees:
        scopes: list[ast.AST] = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
        for scope in scopes:
            for node in ast.walk(scope):
                if isinstance(node, ast.Call):
                    for value in _given_rules(node, taking):
                        out |= _spelt_out(value, [scope, tree, *trees], check)
    return out


def _given_rules(call: ast.Call, taking: dict[str, int | None]) -> list[ast.expr]:
    func = call.func
    name = func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""
    if name not in taking:
        return []
    place = taking[name]
    return [k.value for k in call.keywords if k.arg == "rule"] + ([] if place is None else call.args[place : place + 1])


def _taking_a_rule(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield functions with a parameter ``rule`` and classes with a field of that name, with its position."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.FunctionDef):
            names = [a.arg for a in node.args.args if a.arg != "self"]
        elif isinstance(node, ast.ClassDef):
            fields = [s for s in node.body if isinstance(s, ast.AnnAssign)]
            names = [ast.unparse(s.target) for s in fields if "ClassVar" not in ast.unparse(s.annotation)]
        if "rule" in names and isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name, names.index("rule")


def _spelt_out(value: ast.expr, scopes: list[ast.AST], check: str) -> set[str]:
    """Return the names that an expression can be: those that are handed on are found where they come from."""
    source = ast.unparse(value)
    if (check, source) in BUILT:
        return BUILT[check, source]
    if source == "f'port_{s.metric}'":
        return {f"port_{m}" for m in _profile_metrics()}
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return {value.value}
    if isinstance(value, ast.IfExp):
        return _spelt_out(value.body, scopes, check) | _spelt_out(value.orelse, scopes, check)
    handed_on = {
        ast.unparse(n) for c in ast.walk(scopes[0]) if isinstance(c, ast.comprehension) for n in ast.walk(c.target)
    }
    if source in handed_on or (isinstance(value, ast.Attribute) and value.attr == "rule"):
        return set()
    bound = next((names for scope in scopes if (names := _bound(source, scope))), set())
    assert bound or source == "rule", f"{check}: how is this rule name built? {source}"
    return bound


def _bound(name: str, scope: ast.AST) -> set[str]:
    """Return the literal texts that a function or module binds to ``name``: assigned, or in a loop over tuples."""
    literal = {
        ast.unparse(n.targets[0]): n.value.elts
        for n in ast.walk(scope)
        if isinstance(n, ast.Assign) and isinstance(n.value, ast.Tuple)
    }
    out: set[str] = set()
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign):
            target, values = node.targets[0], [node.value]
        elif isinstance(node, ast.For):
            rows = node.iter.elts if isinstance(node.iter, ast.Tuple) else literal.get(ast.unparse(node.iter), [])
            target, values = node.target, list(rows)
        else:
            continue
        for value in values:
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=True))
            out |= {
                v.value
                for t, v in pairs
                if ast.unparse(t) == name and isinstance(v, ast.Constant) and isinstance(v.value, str)
            }
    return out


def _profile_metrics() -> set[str]:
    tree = ast.parse(Path(port_rules.__file__).read_text())
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "_Setting"]
    return {c.args[0].value for c in calls if isinstance(c.args[0], ast.Constant) and isinstance(c.args[0].value, str)}


# Checks that are documented, registered or not yet.
CHECKS = sorted({e.name for e in ENTRIES} | {p.stem for p in (ROOT / "docs" / "checks").glob("*.md")})


@pytest.mark.parametrize("check", CHECKS)
def test_every_rule_is_documented(check: str) -> None:
    rules = _rule_names(check)
    text = _text(f"docs/checks/{check}.md")
    assert rules
    assert not {r for r in rules | SHARED if f"`{r}`" not in text}


@pytest.mark.parametrize("check", CHECKS)
def test_every_documented_rule_exists(check: str) -> None:
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (?:C|W|I|by number)", _text(f"docs/checks/{check}.md"), re.M)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named
    assert not named - _rule_names(check) - SHARED


def test_each_rule_of_a_refused_launch_is_told() -> None:
    assert set(LAUNCH_RULES) <= _rule_names("collectives")


def test_every_site_key_is_documented() -> None:
    text = _text("docs/site-file.md")
    for model in (*vars(site_module).values(), ProbePods, Toleration):
        if isinstance(model, type) and issubclass(model, BaseModel) and model is not Thresholds:
            missing = {k for k in model.model_fields if f"`{k}`" not in text}
            assert not missing, model.__name__


def test_every_job_key_is_documented_with_its_default() -> None:
    rows = dict(re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ([^|]+) \|", _text("docs/jobs.md"), re.M))
    told = {k: default for keys, default in rows.items() for k in re.findall(r"`(\w+)`", keys)}
    for model in (JobSettings, KubernetesSettings):
        assert set(model.model_fields) <= set(told), model.__name__
        for name, described in model.model_fields.items():
            if described.is_required():
                assert told[name] == "required", name
            elif isinstance(described.default, (str, int, float)) and name != "home":
                assert f"`{described.default}`".lower() in told[name], name


def _keys(model: type[BaseModel]) -> Iterator[str]:
    for name, described in model.model_fields.items():
        yield name
        for inner in (described.annotation, *getattr(described.annotation, "__args__", ())):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from _keys(inner)


@pytest.mark.parametrize("check", ["collectives", "object_store", "model_eval", "elastic_training"])
def test_every_setting_of_a_benchmark_is_documented(check: str) -> None:
    text = _text(f"docs/checks/{check}.md")
    model = import_module(f"fabric_health.checks.{check}.settings").Settings
    assert not {k for k in _keys(model) if f"`{k}`" not in text}


def test_every_threshold_is_documented_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", _text("docs/thresholds.md"), re.M))
    for name, described in Thresholds.model_fields.items():
        assert float(rows[name].replace(",", "")) == described.default, name


def test_every_margin_of_a_verdict_is_documented() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (\d+) % \|", _text("docs/thresholds.md"), re.M))
    assert {name: int(percent) / 100 for name, percent in rows.items()} == MARGINS


def test_every_view_is_documented() -> None:
    text = _text("docs/analyst.md") + _text("docs/tables.md")
    assert not {v for v in VIEWS if not re.search(rf"\b{v}\b", text)}


class NoObjects:
    """A store that nothing has landed in."""

    def list(self, prefix: str) -> list[str]:
        return []


@pytest.mark.parametrize("page", PAGES, ids=_by_page)
def test_recipes_fit_the_tables(page: Path) -> None:
    for recipe in _blocks(page.read_text(encoding="utf-8"), "sql"):
        assert sql.query(NoObjects(), recipe).column_names, recipe  # type: ignore[arg-type]


def _settings(page: Path) -> Iterator[tuple[str, Any]]:
    """Yield the name and the settings of every check, and `jobs`, that a page gives an example of."""
    for body in _blocks(page.read_text(encoding="utf-8"), "yaml"):
        part = yaml.safe_load(body)
        if isinstance(part, dict) and {"checks", "jobs"} & set(part):
            yield from part.get("checks", {}).items()
            yield from ((k, v) for k, v in part.items() if k == "jobs")


@pytest.mark.parametrize("page", PAGES, ids=_by_page)
def test_examples_of_settings_are_valid(page: Path) -> None:
    for name, example in _settings(page):
        where = "fabric_health.jobs" if name == "jobs" else f"fabric_health.checks.{name}"
        module = import_module(f"{where}.settings")
        (module.JobSettings if name == "jobs" else module.Settings).model_validate(example)


def test_examples_of_settings_are_found() -> None:
    found = {name for page in PAGES for name, _ in _settings(page)}
    assert {"jobs", "collectives", "object_store", "model_eval", "elastic_training", "fabric_links"} <= found


@pytest.mark.parametrize("page", PAGES, ids=_by_page)
def test_queries_of_command_lines_fit_the_tables(page: Path) -> None:
    for arguments in _command_lines(page.read_text(encoding="utf-8")):
        if arguments[:1] == ["sql"] and arguments[-1] != "-":
            assert sql.query(NoObjects(), arguments[-1]).column_names  # type: ignore[arg-type]


def test_python_of_the_analyst_page_compiles() -> None:
    for body in _blocks(_text("docs/analyst.md"), "python"):
        compile(body, "docs/analyst.md", "exec")


def test_exit_codes_are_those_of_the_code() -> None:
    table = re.search(r"## Exit codes\n\n(.*?)\n\n", _text("docs/operator.md"), re.S)
    assert table
    assert {int(n) for n in re.findall(r"^\| (\d+) \|", table[1], re.M)} == {*map(int, Exit), 130}


def test_lab_faults_and_planted_faults_are_those_of_the_code() -> None:
    lab, readme = _text("docs/lab.md"), _text("README.md")
    assert not {k for k in CATALOGUE if f"`{k}`" not in lab}
    assert not {unit for _, unit, _ in PLANTED if f"`{unit}`" not in readme or f"`{unit}`" not in lab}
    assert f"{len(CATALOGUE)} kinds of fault" in _text("CHANGELOG.md")


def test_dags_are_named_as_they_are() -> None:
    dags = {e.dag_id for e in ENTRIES} | {"weekly_fabric_health", "post_maintenance", "trend_quality", "housekeeping"}
    assert not {d for d in dags if f"`{d}`" not in _text("docs/operator.md") + _text("docs/engineer.md")}


def test_the_form_after_maintenance_is_documented_field_by_field() -> None:
    rows = re.findall(r"^\| [A-Z][a-z ]+ \(`(\w+)`\) \| (.+) \| .+ \|$", _text("docs/engineer.md"), re.M)
    told = dict(rows)
    assert set(told) == {"site", *Declaration.model_fields, "fail_on", "accept_as_baseline"}
    assert re.findall(r"`(\w+)`", told["kind"]) == list(KINDS)
    assert f"1 to {MAX_LAUNCHES} " in told["launches"]
    verdicts = re.findall(r"^\| `([A-Z_]+)` \| .+ \| .+ \|$", _text("docs/engineer.md"), re.M)
    assert set(verdicts) == {o.value for o in Outcome}


def test_who_is_told_and_when_is_documented() -> None:
    text = _text("docs/connections.md")
    assert re.search(r"^\| `FABRIC_HEALTH_NOTIFY_WHEN` \| `not_healthy` \|", text, re.M)
    assert When.parse("", "") == "not_healthy"
    assert not {w.value for w in When if f"`{w}`" not in text}


def test_the_screenshot_is_small() -> None:
    image = ROOT / "docs" / "images" / "report.png"
    assert image.read_bytes().startswith(b"\x89PNG")
    assert image.stat().st_size < 300_000


@pytest.mark.parametrize("page", PAGES, ids=_by_page)
def test_pages_hold_no_private_paths(page: Path) -> None:
    assert not re.search(r"(?<!\w)/(?:tmp|root|home|work)/", page.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def walkthrough() -> dict[str, Any]:
    """The code of docs/adding-a-check.md, run from top to bottom."""
    names: dict[str, Any] = {"__name__": "walkthrough"}
    for body in _blocks(_text("docs/adding-a-check.md"), "python"):
        exec(compile(body, "docs/adding-a-check.md", "exec", dont_inherit=True), names)
    return names


LAB = load_site(ROOT / "include" / "sites" / "lab.yaml")
NODE = LAB.nodes[0]
TRACKING = (
    "A9FEA97B,169.254.169.123,4,1700000000.1,{offset},-0.000001,0.000002,1.2,0.0,0.01,0.0003,0.0001,64.2,Normal\n"
)


def _answered(stdout: str, exit_code: int = 0) -> UnitEvidence:
    from datetime import UTC, datetime

    now = datetime(2026, 11, 30, tzinfo=UTC)
    result = CommandResult("tracking", ("chronyc",), CommandStatus.EXITED, exit_code, stdout, "", now, now)
    return UnitEvidence(NODE.name, "node", "time_sync", ReachStatus.OK, "", now, now, (result,))


def _judged(walkthrough: dict[str, Any], evidence: UnitEvidence) -> list[Any]:
    rows = RowSet.gather(walkthrough["parse"](NODE, evidence, LAB))
    context = Context(LAB, "run", evidence.started_at, (NODE,), {})
    return list(walkthrough["judge"](rows, context))


def test_the_walkthrough_makes_a_check(walkthrough: dict[str, Any]) -> None:
    check = walkthrough["TIME_SYNC"]
    assert [c.name for c in check.commands(NODE, LAB)] == ["tracking"]
    assert check.commands(LAB.switches[0], LAB) == ()
    assert [c.name for c in columns(check.tables[0])] == ["node", "offset_s", "problem"]
    assert isinstance(walkthrough["ENTRY"], Entry)
    assert walkthrough["ENTRY"].name == check.name
    assert check.unit_of(walkthrough["ClockOffset"](NODE.name)) == NODE.name


def test_the_walkthrough_judges(walkthrough: dict[str, Any]) -> None:
    assert _judged(walkthrough, _answered(TRACKING.format(offset="0.00001"))) == []
    (off,) = _judged(walkthrough, _answered(TRACKING.format(offset="-3.5")))
    assert (off.kind, off.actual) == ("deviation", "-3.5 s")
    (silent,) = _judged(walkthrough, _answered("506 Cannot talk to daemon\n", 1))
    assert (silent.kind, silent.actual) == ("not_judged", None)


@settings(max_examples=200, deadline=None)
@given(text=st.text())
def test_no_text_crashes_the_walkthrough_or_passes(walkthrough: dict[str, Any], text: str) -> None:
    (finding,) = _judged(walkthrough, _answered(text))
    assert finding.kind == "not_judged"
