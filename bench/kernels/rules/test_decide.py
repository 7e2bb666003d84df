"""The row rules over a call of distinct, or of repeated keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kudu_core._ext.rules import decide

COLUMNS = 7


@pytest.mark.benchmark(group="kernel: decide")
@pytest.mark.parametrize("op", [decide.CALL_INSERT, decide.CALL_UPSERT, decide.CALL_DELETE])
@pytest.mark.parametrize("keys", ["distinct", "repeated"])
@pytest.mark.parametrize("rows", [1_000, 100_000])
def test_decide(benchmark: Any, rows: int, keys: str, op: int) -> None:
    """The state arrays are made outside the timed part and used again: what is decided differs
    from round to round, what it costs does not."""
    gid = np.arange(rows, dtype=np.int32)
    if keys == "repeated":
        gid = np.random.default_rng(4).integers(0, rows // 2, rows).astype(np.int32)
    live, touched, codes = (np.full(rows, int(op != decide.CALL_INSERT), np.uint8) for _ in range(3))
    source, key_row = np.full(rows * COLUMNS, -1, np.int64), np.full(rows, -1, np.int64)
    given = np.ones(COLUMNS, np.uint8)
    was_live = live.copy()
    benchmark.extra_info |= {"rows": rows}

    def call() -> tuple[int, int, int, int, int]:
        live[:] = was_live
        return decide.decide(gid, op, None, given, False, 0, live, touched, source, key_row, codes)

    assert sum(benchmark(call)) == rows


@pytest.mark.benchmark(group="kernel: decide, net")
@pytest.mark.parametrize("what", ["net", "patterns"])
def test_net(benchmark: Any, what: str) -> None:
    groups = 100_000
    ones, source = np.ones(groups, np.uint8), np.full(groups * COLUMNS, 3, np.int64)
    benchmark.extra_info |= {"rows": groups}
    if what == "net":
        kind = benchmark(decide.net, ones, ones, ones, source, groups, COLUMNS)
        assert (kind == decide.NET_UPDATE).all()
    else:
        kind = np.full(groups, decide.NET_UPDATE, np.uint8)
        assert (benchmark(decide.patterns, kind, source, groups, COLUMNS) == (1 << COLUMNS) - 1).all()
