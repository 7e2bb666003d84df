"""Arrow data of somebody else's: broken buffers through every door, and legal ones that look odd.

A matrix: ``HOSTILE`` (tests/support/cases/foreign.py) has arrays that are broken in one way each, for columns
of every type; ``DOORS`` has the ways in.  Each array is refused at each door by an error of ours that names
the column; nothing has changed, the table is not poisoned, the next write works, and the table opens again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.types.types import ColumnType
from kudu_core.table.jobs import commit
from tests.support.cases.foreign import HOSTILE, ROWS, VALUES, i32, spoiled
from tests.support.hostile.doors import (
    DOORS,
    FORMS,
    NEW,
    OPTIONS,
    OPTIONS_OF,
    Edited,
    as_batch,
    make,
    refused,
    state,
    written_and_opened_again,
)
from tests.support.inside import handle_of

# ---- the doors


@pytest.mark.parametrize("name", DOORS)
def test_broken_buffers_at_a_door(tmp_path: Path, name: str, long: bool) -> None:
    """All of them at the doors that everything goes through, a third at each of the others."""
    table = make(tmp_path / "t", **OPTIONS_OF.get(name, {}))
    every = long or name in ("upsert", "bulk", "staged")
    some = HOSTILE if every else HOSTILE[list(DOORS).index(name) % 3 :: 3]
    for number, case in enumerate(some):
        refused(table, DOORS[name], case, as_batch, tmp_path)
        if long or number % 20 == 0:
            table = written_and_opened_again(table, number)
    written_and_opened_again(table, len(HOSTILE)).close()


@pytest.mark.parametrize("form", FORMS)
def test_broken_buffers_in_a_form(tmp_path: Path, form: str, long: bool) -> None:
    table = make(tmp_path / "t")
    for case in HOSTILE if long else HOSTILE[list(FORMS).index(form) % 2 :: 2]:
        if not (case.by_size and "export" in form):
            refused(table, lambda t, data, _: t.upsert(data(NEW)), case, FORMS[form], tmp_path)
    written_and_opened_again(table, 1).close()


ORDERED = [case for case in HOSTILE if case.column not in ("bool", "float16", "float32", "float64")]


def test_broken_sequence_columns(tmp_path: Path) -> None:
    """By which the last row of a key is known, and which the table does not have."""
    with make(tmp_path / "t") as table:
        before = state(table)
        for case in ORDERED:
            array, spoil = case.make()
            columns = [("k", "int64"), ("when", case.column)]
            job = commit.begin(handle_of(table), "upsert", columns, on_duplicate="last", sequence_by="when")
            stager = commit.stager(job, "attempt")
            with pytest.raises(kc.InvalidArgument, match="column 'when'"):
                stager.append(as_batch(NEW, "when", array, spoil))
            commit.abandon(job)
            assert state(table) == before


# ---- keys

KEY_TYPES = [name for name in VALUES if ColumnType.parse(name).is_key_type]
KEY_DOORS: dict[str, Callable[[kc.Table, pa.Array, Callable[[], None]], object]] = {
    "insert": lambda t, a, spoil: t.insert(keyed(a, spoil)),
    "upsert": lambda t, a, spoil: t.upsert(keyed(a, spoil)),
    "update": lambda t, a, spoil: t.update(keyed(a, spoil, v=[1, 2, 3])),
    "delete": lambda t, a, spoil: t.delete(keyed(a, spoil)),
    "delete, ignored": lambda t, a, spoil: t.delete(keyed(a, spoil), on_missing="ignore"),
    "delete of an array": lambda t, a, spoil: t.delete(alone(a, spoil)),
    "delete of chunks": lambda t, a, spoil: t.delete(alone(pa.chunked_array([a, a]), spoil)),
    "get_many": lambda t, a, spoil: t.get_many(keyed(a, spoil)),
    "get_many of an array": lambda t, a, spoil: t.get_many(alone(a, spoil)),
    "get_many of chunks": lambda t, a, spoil: t.get_many(alone(pa.chunked_array([a, a]), spoil)),
}


def keyed(array: pa.Array, spoil: Callable[[], None], **more: Any) -> pa.RecordBatch:
    batch = pa.RecordBatch.from_arrays([array, *map(pa.array, more.values())], names=["k", *more])
    spoil()
    return batch


def alone(array: Any, spoil: Callable[[], None]) -> Any:
    spoil()
    return array


@pytest.mark.parametrize("column", KEY_TYPES)
def test_broken_keys(tmp_path: Path, column: str) -> None:
    columns = [kc.Column("k", column), kc.Column("v", "int64")]
    table = kc.create_table(tmp_path / "t", columns, "k", options=OPTIONS)
    table.insert({"k": pa.array(VALUES[column], ColumnType.parse(column).arrow), "v": [1, 2, 3]})
    before, timestamp = state(table), table.timestamp
    cases = [case for case in HOSTILE if case.column == column]
    assert cases
    for name, door in KEY_DOORS.items():
        for case in cases:
            array, spoil = case.make()
            with pytest.raises(kc.InvalidArgument, match="column 'k'"):
                door(table, array, spoil)
            assert state(table) == before, (name, case)
            assert table.timestamp == timestamp
    table.update([{"k": VALUES[column][0], "v": 7}])
    table.close()
    for mode in ("r", "rw"):
        with kc.open_table(tmp_path / "t", mode) as table:
            assert table.get(VALUES[column][0]) == {"k": VALUES[column][0], "v": 7}


# ---- producers of the C data interface


def _put(field: str, value: int) -> Callable[[Any, Any], None]:
    return lambda whole, column: setattr(column, field, value)


def _no_values(whole: Any, column: Any) -> None:
    column.buffers[1] = None


EDITS: dict[str, Callable[[Any, Any], None]] = {
    "a column shorter than its batch": _put("length", 2),
    "a column without rows": _put("length", 0),
    "a negative length": _put("length", -1),
    "a negative offset": _put("offset", -1),
    "an offset beyond everything": _put("offset", 2**62),
    "too few buffers": _put("n_buffers", 1),
    "too many buffers": _put("n_buffers", 5),
    "more nulls than rows": _put("null_count", 7),
    "a child too few": lambda whole, column: setattr(whole, "n_children", 1),
    "a negative length of all": lambda whole, column: setattr(whole, "length", -3),
    "nulls of rows": lambda whole, column: setattr(whole, "null_count", 3),
    "no values": _no_values,
}


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("column", ["int64", "string", "decimal128(5,2)", "bool"])
def test_producers_that_fill_in_the_struct_wrongly(tmp_path: Path, column: str, edit: str) -> None:
    if (edit, column) == ("no values", "string"):
        pytest.skip("the second buffer of a string is its offsets, which pyarrow reads when it takes it in")
    with make(tmp_path / "t") as table:
        before = state(table)
        cells = pa.array(VALUES[column], ColumnType.parse(column).arrow)
        batch = pa.RecordBatch.from_arrays([pa.array(NEW), cells], names=["k", column])
        with pytest.raises(kc.InvalidArgument):
            table.upsert(Edited(batch, EDITS[edit]))
        assert state(table) == before
        table.upsert(Edited(batch, lambda whole, column: None))
        assert table.count() == 6


def test_names_of_operations_shorter_than_their_batch(tmp_path: Path) -> None:
    with make(tmp_path / "t") as table:
        before = state(table)
        batch = pa.RecordBatch.from_arrays([pa.array(NEW), pa.array(["insert"] * ROWS)], names=["k", "_op"])
        for length in (0, 2):
            with pytest.raises(kc.InvalidArgument, match="column '_op'"):
                table.apply(Edited(batch, _put("length", length)))
        assert state(table) == before


def test_a_pandas_frame_over_broken_arrow_data(tmp_path: Path) -> None:
    """Also where whole floats stand for the integers of a column."""
    with make(tmp_path / "t") as table:
        before = state(table)
        for name in ("int64", "float64", "string"):
            type_ = pa.float64() if name == "int64" else ColumnType.parse(name).arrow
            data = [i32(0, 0, 0, 0), b""] if name == "string" else [bytes(24)]
            array, spoil = spoiled(type_, [b"\x05", *data], [b"\x01", *[None] * len(data)], null_count=1)
            frame = pd.DataFrame({"k": NEW, name: pd.Series(pd.arrays.ArrowExtensionArray(array))})
            spoil()
            with pytest.raises(kc.InvalidArgument, match=f"column '{name}'"):
                table.upsert(frame)
        assert state(table) == before
