"""The answer of a write, as it is made for calls of one row."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, replace

import pyarrow as pa
import pytest

from kudu_core.table.calls.result import WriteResult
from tests.support.tables import Make


@pytest.mark.parametrize("counted", ["inserted", "updated", "deleted"])
def test_the_answer_of_one_row_is_as_any_other(make: Make, counted: str) -> None:
    table = make(pa.schema([("k", pa.int64()), ("v", pa.int64())]))
    made = table.insert([{"k": 1, "v": 1}])
    if counted != "inserted":
        made = table.update([{"k": 1, "v": 2}]) if counted == "updated" else table.delete([{"k": 1}])
    plain = WriteResult(table.timestamp, **{counted: 1})
    assert made == plain and hash(made) == hash(plain) and repr(made) == repr(plain)
    assert asdict(made) == asdict(plain) and made.counts == plain.counts
    assert pickle.loads(pickle.dumps(made)) == copy.copy(made) == plain
    assert replace(made, errors=None, ignored=2) == replace(plain, ignored=2)
    with pytest.raises(FrozenInstanceError):
        made.timestamp = 8  # type: ignore[misc]
