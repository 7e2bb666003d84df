"""What the tests of compactions share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.faults import checking
from tests.support.models.merging import Merging


@pytest.fixture(autouse=True)
def checked() -> Iterator[None]:
    """The invariants of docs/protocol.md after every install."""
    with checking(True):
        yield


@pytest.fixture
def m(tmp_path: Path) -> Merging:
    return Merging(tmp_path / "t")
