"""The answer of a write, as it is made for calls of one row."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, replace

import pytest

from kudu_core.table.calls.result import WriteResult


@pytest.mark.parametrize("counted", ["inserted", "updated", "deleted"])
def test_the_answer_of_one_row_is_as_any_other(counted: str) -> None:
    made, plain = WriteResult.of_one_row(7, counted), WriteResult(7, **{counted: 1})
    assert made == plain and hash(made) == hash(plain) and repr(made) == repr(plain)
    assert asdict(made) == asdict(plain) and made.counts == plain.counts
    assert pickle.loads(pickle.dumps(made)) == copy.copy(made) == plain
    assert replace(made, errors=None, ignored=2) == replace(plain, ignored=2)
    with pytest.raises(FrozenInstanceError):
        made.timestamp = 8  # type: ignore[misc]
