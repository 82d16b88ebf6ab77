"""Great Expectations, kept in one place: rules in, flat results and Data Docs out."""

from __future__ import annotations

import html
import os
import re
import tempfile
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabric_health.datasets.run import RunKey
from fabric_health.datasets.tables import QualityResult
from fabric_health.quality.offline import offline
from fabric_health.quality.suites import Rule

if TYPE_CHECKING:
    import pandas as pd

    from fabric_health.quality.run import Batch

SITE = "fabric_health"
SHOWN_VALUES = 10
MAX_OBSERVED = 2000
_BEACON = re.compile(rb"https://great-expectations-web-assets[^\"']*")
_RANDOM_ID = re.compile(rb"collapse-body-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(rb"\b\d{8}T\d{6}\.\d{6}Z\b")
# The pages and what they need to look right; the animated walk-through is 3.5 MiB a run and adds nothing.
_KEPT_SUFFIXES = frozenset({".html", ".css", ".ico", ".svg"})


def validate(batches: Sequence[Batch], key: RunKey) -> tuple[list[QualityResult], dict[str, bytes]]:
    """Validate every batch; return results in the order of batches and rules, and the Data Docs by file name."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations as gx
    from great_expectations.core import RunIdentifier
    from great_expectations.data_context.types.base import ProgressBarsConfig

    with tempfile.TemporaryDirectory(prefix="data-docs-") as folder:
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = ProgressBarsConfig(globally=False)
        context.add_data_docs_site(SITE, _docs_site(folder))
        source = context.data_sources.add_pandas("tables")
        identity = RunIdentifier(run_name=key.run, run_time=key.started_at)
        results: list[QualityResult] = []
        for batch in batches:
            definition = source.add_dataframe_asset(batch.name).add_batch_definition_whole_dataframe(batch.name)
            suite = context.suites.add(gx.ExpectationSuite(name=batch.name, expectations=_expectations(batch)))
            outcome = context.validation_definitions.add(
                gx.ValidationDefinition(name=batch.name, data=definition, suite=suite)
            ).run(batch_parameters={"dataframe": _inert(batch.frame)}, result_format="SUMMARY", run_id=identity)
            by_rule = {r.expectation_config.meta["rule"]: r for r in outcome.results}
            results += [_result(batch, rule, by_rule.get(n)) for n, rule in enumerate(batch.rules)]
        context.build_data_docs(site_names=[SITE])
        return results, _files(Path(folder), key)


def _docs_site(folder: str) -> dict[str, Any]:
    return {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": folder},
    }


def _expectations(batch: Batch) -> list[Any]:
    import great_expectations.expectations as gxe

    out = []
    for n, rule in enumerate(batch.rules):
        made = getattr(gxe, "".join(part.title() for part in rule.expectation.split("_")))
        out.append(made(**rule.arguments, severity=rule.severity.value, meta={"rule": n}))
    return out


def _inert(frame: pd.DataFrame) -> pd.DataFrame:
    """Escape every text: Data Docs put values into HTML, and into a template, as they are.

    Escaping maps different texts to different texts, so uniqueness and membership are judged the same.
    """
    escaped = frame.copy()
    for name in frame.columns:
        if frame[name].dtype == "object" or frame[name].dtype.name in {"str", "string"}:
            texts = frame[name]
            mask = texts.notna() & texts.astype("str").str.contains(r"[&<>\"'$]", regex=True, na=False)
            if mask.any():
                escaped.loc[mask, name] = texts[mask].map(lambda v: html.escape(str(v)).replace("$", "&#36;"))
    return escaped


def _result(batch: Batch, rule: Rule, outcome: Any) -> QualityResult:
    """Flatten one outcome. An expectation that could not be evaluated has failed, and says why."""
    found: dict[str, Any] = dict(outcome.result or {}) if outcome is not None else {}
    return QualityResult(
        suite=batch.suite,
        expectation=rule.expectation,
        subject=rule.subject,
        severity=rule.severity.value,
        success=bool(outcome is not None and outcome.success),
        description=rule.description,
        observed=_observed(outcome, found),
        rows_checked=_whole(found.get("element_count", len(batch.frame))),
        rows_unexpected=_whole(found.get("unexpected_count")),
    )


def _observed(outcome: Any, found: dict[str, Any]) -> str | None:
    if outcome is None:
        return "the expectation was not evaluated"
    info = outcome.exception_info or {}
    for entry in [info, *(v for v in info.values() if isinstance(v, dict))]:
        if entry.get("raised_exception"):
            return f"could not be evaluated: {entry.get('exception_message')}"[:MAX_OBSERVED]
    if found.get("observed_value") is not None:
        return str(found["observed_value"])[:MAX_OBSERVED]
    wrong = found.get("partial_unexpected_list") or []
    if not wrong:
        return None
    if all(v != v or v is None for v in wrong):
        return f"null in {found.get('unexpected_count')} rows"
    shown = ", ".join(html.unescape(str(v)) for v in wrong[:SHOWN_VALUES])
    more = int(found.get("unexpected_count") or 0) - min(len(wrong), SHOWN_VALUES)
    return (shown + (f" and {more} more" if more > 0 else ""))[:MAX_OBSERVED]


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _files(folder: Path, key: RunKey) -> dict[str, bytes]:
    run_time = key.started_at.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%fZ").encode()
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix in _KEPT_SUFFIXES)
    return {p.relative_to(folder).as_posix(): _quiet(p, run_time) for p in files}


def _quiet(path: Path, run_time: bytes) -> bytes:
    """Return a file; of a page, without what makes each rendering of the same results differ.

    That is the remote logo, whose address tells its owner when the page is looked at, random element ids, and the
    time of loading: only the run's own time stays.
    """
    data = _BEACON.sub(b"data:,", path.read_bytes())
    if path.suffix != ".html":
        return data
    numbers: dict[bytes, bytes] = {}
    page = _TIME.sub(lambda m: m[0] if m[0] == run_time else b"-", offline(data))
    return _RANDOM_ID.sub(lambda m: numbers.setdefault(m[0], b"collapse-body-%d" % len(numbers)), page)
