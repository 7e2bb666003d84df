"""Parts of calls put together: by their columns, rows numbered as they were given."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kudu_core._ext.rules.decide import CALL_UPSERT
from kudu_core.common.rows.conform import conform
from kudu_core.common.schema.declare import Column, declare
from kudu_core.table.calls.call import Call, joined, numbers_of_calls, starts_of
from kudu_core.table.runs.sorted import pieces

SCHEMA = declare([Column(name, "int64") for name in "kab"], "k")


def part(columns: str, keys: list[int], numbers: list[int] | None = None, *, continues: bool = True) -> Call:
    block = conform(SCHEMA, pa.record_batch(dict.fromkeys(columns, keys))).block
    given = None if numbers is None else np.array(numbers, np.int64)
    return Call(CALL_UPSERT, block, continues=continues, numbers=given)


PARTS = [
    part("ka", [1], continues=False),
    part("ka", [10, 11], continues=False),
    part("kb", [12]),
    part("kb", [14, 16], [4, 6]),
    part("kb", [17]),
    part("ka", [13, 15], [3, 5]),
    part("ka", [20], continues=False),
]


def test_parts_of_the_same_columns_become_one() -> None:
    calls = joined(PARTS)
    assert [call.rows for call in calls] == [1, 2, 4, 2, 1]
    assert [call.continues for call in calls] == [False, False, True, True, False]
    assert starts_of(calls).tolist() == [0, 1, 9]
    assert calls[2].numbers is not None and calls[2].numbers.tolist() == [2, 4, 6, 5]


def test_rows_are_numbered_over_all_calls() -> None:
    for calls in (PARTS, joined(PARTS)):
        numbers = numbers_of_calls(calls)
        assert numbers is not None
        assert numbers.tolist() == [0, 1, 2, 3, 5, 7, 6, 4, 6, 9]
    assert numbers_of_calls(PARTS[:2]) is None


def test_runs_are_numbered_alike() -> None:
    runs = list(pieces(PARTS, 1 << 19, 1 << 20))
    assert [(run.call, run.first, run.begun) for run in runs] == [
        (0, 0, 0), (1, 1, 1), (2, 3, 1), (3, 7, 1), (4, 9, 9)
    ]  # fmt: skip
    assert runs[2].source.numbers is not None and runs[2].source.numbers.tolist() == [2, 4, 6, 5]


def test_some_rows_keep_their_numbers() -> None:
    taken = PARTS[3].take(np.array([1]))
    assert taken.numbers is not None and taken.numbers.tolist() == [6]
