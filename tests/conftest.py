"""What many tests share: one real embedded object store per session, a fresh bucket per test."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Rows that the tests of several folders build on; what takes minutes to make.
sys.path.insert(0, str(Path(__file__).parent / "datasets"))
sys.path.insert(0, str(Path(__file__).parent / "preparation"))

import prepared
from hypothesis import HealthCheck, settings

from fabric_health.datasets import embedded
from fabric_health.datasets.store import ObjectStore

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


class Timer:
    """Stops pytest-timeout's clock of the running test while it waits for what is made once for many tests."""

    def __init__(self) -> None:
        self._set: tuple[pytest.Item, Any] | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> None:
        self._set = item, settings

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_cancel_timer(self) -> None:
        self._set = None

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        running = self._set
        if running is None:
            yield
            return
        item, settings = running
        item.ihook.pytest_timeout_cancel_timer(item=item)
        try:
            yield
        finally:
            item.ihook.pytest_timeout_set_timer(item=item, settings=settings)


_TIMER = Timer()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_TIMER)


# Fixtures that wait for what takes minutes to make, the longest last.
LATE = ("kubernetes_assets", "tool_python")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run modules that need long preparation last: it goes on beside the others."""
    late: dict[Path, int] = {}
    for item in items:
        ranks = [i for i, name in enumerate(LATE, 1) if name in getattr(item, "fixturenames", ())]
        late[item.path] = max([late.get(item.path, 0), *ranks])
    items.sort(key=lambda item: late[item.path])


@pytest.fixture(scope="session")
def tool_python() -> Callable[[str], Path]:
    """Return the interpreter of a tool's locked environment by the tool's name; made on first use, kept, shared.

    A test whose environment cannot be made fails with pip's words. The wait for it is no time of the test.
    """

    def python(tool: str) -> Path:
        with _TIMER.stopped():
            return prepared.tool_python(tool)

    return python


@pytest.fixture(scope="session")
def with_tools(tool_python: Callable[[str], Path]) -> Callable[..., None]:
    """Give a home these tools' environments, so that a job that is run there makes none: ``(home, *tools)``."""

    def give(home: Path, *tools: str) -> None:
        (home / "tools").mkdir(exist_ok=True)
        for tool in tools:
            tool_python(tool)
            if not (home / "tools" / tool).is_symlink():
                (home / "tools" / tool).symlink_to(prepared.home() / "tools" / tool)

    return give


@pytest.fixture(scope="session")
def kubernetes_assets() -> Path:
    """Return the folder that holds etcd and kube-apiserver; made on first use (four minutes of two cores), kept."""
    with _TIMER.stopped():
        return prepared.kubernetes_assets()


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
