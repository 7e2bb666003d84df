"""Merges whose outputs other processes build: every merge is one, however small."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kudu_core.rowset.history.merging import OutputLimits
from kudu_core.table.jobs import merge_job
from kudu_core.tablet.compact import merge
from tests.support.faults import checking
from tests.support.models.merging import Merging


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every merge is built elsewhere, in several ranges and tasks; the invariants after each install."""
    monkeypatch.setattr(merge_job, "SMALL_BYTES", 0)
    monkeypatch.setattr(merge_job, "TASK_BYTES", 1)
    monkeypatch.setattr(merge_job, "LOOK_PAUSE_S", 0.001)
    monkeypatch.setattr(merge, "OutputLimits", lambda file_bytes, memory_bytes: OutputLimits(500, 1 << 20))
    with checking(True):
        yield


@pytest.fixture
def m(tmp_path: Path) -> Merging:
    m = Merging(tmp_path / "t")
    for part in range(3):
        m.put(*range(part, 120, 3), a=part)
        m.flush()
    m.delete(3)
    m.put(3, a=33)
    m.flush()
    m.set(1, 2, a=7)
    m.delete(9)
    return m
