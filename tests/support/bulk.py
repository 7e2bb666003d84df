"""Bulk ingest in small: few rows make many runs and ranges, and a few hundred bytes are spilled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kudu_core.table.ingest import build
from kudu_core.table.ingest import spill as spilling
from kudu_core.table.runs import sorted as sorted_runs
from kudu_core.table.runs import spilled
from kudu_core.table.write import door

MEMORY_LIMIT_BYTES = 16 << 20
"""The option with which the tables of these tests are made: the smallest that it takes."""


@contextmanager
def small_runs(
    *, spill: bool, run_rows: int = 8, range_bytes: int = 400, sample_rows: int = 4
) -> Iterator[None]:
    """Runs of so many rows, ranges of about so many bytes; ``spill``: calls of two batches go to staging."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_runs, "SAMPLE_ROWS", sample_rows)
        patch.setattr(spilled, "OPEN_FILES", 2)
        patch.setattr(sorted_runs, "RUN_ROWS", run_rows)
        patch.setattr(spilling, "SPILLED_ROWS", run_rows)
        patch.setattr(build, "MEMORY_DIVISOR", MEMORY_LIMIT_BYTES // range_bytes)
        if spill:
            patch.setattr(door, "KEPT_DIVISOR", MEMORY_LIMIT_BYTES)
        yield
