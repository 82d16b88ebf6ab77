"""What the tests of this check build on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fabric_runs import load

from fabric_health.site import Site


@pytest.fixture(scope="session")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A site whose fabric has a cabling plan and expectations."""
    return load(tmp_path_factory.mktemp("planned"))


@pytest.fixture(scope="session")
def unplanned(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The same site without a cabling plan."""
    return load(tmp_path_factory.mktemp("unplanned"), cabling="[]")
