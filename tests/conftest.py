"""What many tests share: one real embedded object store per session, a fresh bucket per test."""

from __future__ import annotations

import dataclasses
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from fabric_health.datasets import embedded
from fabric_health.datasets.store import ObjectStore

# Rows that the tests of several folders build on.
sys.path.insert(0, str(Path(__file__).parent / "datasets"))


# The same examples at every run, without a limit on an example's time: a red test is a fault of the code, never of the
# machine or of the day. `pytest --hypothesis-profile=explore` looks at others, and at many more.
_SETTINGS = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], print_blob=True
)
settings.register_profile("ci", _SETTINGS, derandomize=True, max_examples=100)
settings.register_profile("explore", _SETTINGS, derandomize=False, max_examples=2000)
settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--update``: write golden files anew instead of holding what is read against them."""
    parser.addoption("--update", action="store_true", default=False, help="write golden files anew")


@pytest.fixture(scope="session")
def s3_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home directory whose embedded object store runs; stopped at the end of the session."""
    home = tmp_path_factory.mktemp("s3-home")
    embedded.start(home)
    try:
        yield home
    finally:
        embedded.stop(home)


@pytest.fixture
def store(s3_home: Path) -> ObjectStore:
    """An object store with a bucket of its own, as the user that may do everything in it."""
    operator = embedded.operator(s3_home)
    bucket = f"test-{uuid.uuid4().hex[:12]}"
    made = ObjectStore.connect(dataclasses.replace(operator, extra={**operator.extra, "bucket": bucket}), retry_s=20)
    made.ensure_bucket()
    return made
