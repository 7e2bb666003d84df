"""Text of dates, times, decimals and uuids within lists, structs and maps: as in flat columns, or refused
with the first bad value, its row, its path, and what to write instead."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from tests.support.tables import Make

ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
TAKEN: dict[str, tuple[pa.DataType, str, Any]] = {
    "date32": (pa.date32(), "2026-01-05", "2026-01-05"),
    "date64": (pa.date64(), "2026-01-05", "2026-01-05"),
    "timestamp": (pa.timestamp("us"), "2026-01-05T10:30:00.5", "2026-01-05 10:30:00.500000"),
    "zoned": (pa.timestamp("ms", "UTC"), "2026-01-05T10:30+01:00", "2026-01-05 09:30:00+00:00"),
    "time32": (pa.time32("s"), "10:30", "10:30:00"),
    "time64": (pa.time64("us"), "10:30:00.250000000", "10:30:00.250000"),
    "uuid": (pa.uuid(), str(ID).upper(), str(ID)),
    "plain uuid": (pa.uuid(), ID.hex, str(ID)),
}
REFUSED: dict[str, tuple[pa.DataType, str, str]] = {
    "date32": (pa.date32(), "5.1.2026", "write 2026-01-05"),
    "timestamp": (pa.timestamp("s"), "2026-01-05T10:30:00.5", "no more places than s"),
    "no zone": (pa.timestamp("s", "UTC"), "2026-01-05", "has no zone"),
    "time32": (pa.time32("s"), "10:30:00.5", "write 10:30:00, with no more places than s"),
    "time of a zone": (pa.time64("us"), "10:30:00Z", "and no zone"),
    "late": (pa.time64("us"), "24:00:01", "write 10:30:00"),
    "uuid": (pa.uuid(), "0011", "write it as 00112233-"),
    "decimal": (pa.decimal128(9, 2), "1.50", "write decimal.Decimal"),
    "long decimal": (pa.decimal256(50, 2), "1.50", "write decimal.Decimal"),
    "integer": (pa.int16(), "5", r"write int\(text\)"),
    "float": (pa.float64(), "5", r"write float\(text\)"),
    "duration": (pa.duration("s"), "5", "write datetime.timedelta"),
    "bytes": (pa.binary(), "abc", "write text.encode"),
    "fixed bytes": (pa.binary(3), "abc", "write text.encode"),
}
Wrap = dict[str, tuple[Any, Any, str]]
FORMS: Wrap = {
    "struct": (lambda t: pa.struct([("x", t)]), lambda v: {"x": v}, "c.x"),
    "list": (lambda t: pa.list_(t), lambda v: [None, v], r"c\[\]"),
    "fixed list": (lambda t: pa.list_(t, 2), lambda v: [None, v], r"c\[\]"),
    "map": (lambda t: pa.map_(pa.string(), t), lambda v: [("a", v)], r"c\[\].value"),
    "deep": (lambda t: pa.large_list(pa.struct([("y", pa.list_(t))])), lambda v: [None, {"y": [v]}],
             r"c\[\].y\[\]"),
}  # fmt: skip


def given(form: str, value: str) -> list[Any]:
    """Rows in which the third has the value."""
    wrap = FORMS[form][1]
    return [None, wrap(None), wrap(value), wrap(value)]


def shapes(form: str, value: str) -> dict[str, Any]:
    cells, type_ = given(form, value), FORMS[form][0](pa.string())
    array = pa.array([None, *cells], type_).slice(1)
    return {
        "rows": [{"k": k, "c": cell} for k, cell in enumerate(cells)],
        "columns": {"k": range(4), "c": cells},
        "arrow": {"k": pa.array(range(4)), "c": array},
        "chunks": {"k": range(4), "c": pa.chunked_array([array.slice(0, 1), array.slice(1)])},
    }


@pytest.mark.parametrize("shape", ["rows", "columns", "arrow", "chunks"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", TAKEN)
def test_text_is_taken_as_in_a_flat_column(make: Make, kind: str, form: str, shape: str) -> None:
    type_, text, wanted = TAKEN[kind]
    table = make(pa.schema([("k", pa.int64()), ("c", FORMS[form][0](type_)), ("flat", type_)]))
    table.insert(shapes(form, text)[shape])
    table.update({"k": [2], "flat": pa.array([text])})
    row = table.get(2)
    assert row is not None
    inner = row["c"]
    while isinstance(inner, list | tuple | dict):
        inner = list(inner.values())[-1] if isinstance(inner, dict) else inner[-1]
    assert str(inner) == str(row["flat"]) == wanted
    assert table.get(0, ["c"]) == {"c": None}


@pytest.mark.parametrize("shape", ["rows", "columns", "arrow"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", REFUSED)
def test_other_text_is_refused_with_its_row_its_path_and_what_to_write(
    make: Make, kind: str, form: str, shape: str
) -> None:
    type_, text, advice = REFUSED[kind]
    table = make(pa.schema([("k", pa.int64()), ("c", FORMS[form][0](type_))]))
    with pytest.raises((kc.SchemaMismatch, kc.InvalidArgument)) as refused:
        table.insert(shapes(form, text)[shape])
    told = str(refused.value)
    path = FORMS[form][2]
    assert re.search(f"column '{path}'.* row 2(:| has) '{re.escape(text)}'.*{advice}", told), told
    assert type(refused.value) in (kc.SchemaMismatch, kc.InvalidArgument)
    assert table.count() == 0


def test_a_slice_of_large_lists_of_other_numbers_is_that_slice(make: Make) -> None:
    table = make(pa.schema([("k", pa.int64()), ("c", pa.list_(pa.int64()))]))
    table.insert({"k": [1, 2], "c": pa.array([[1], [2, 3], [4]], pa.large_list(pa.int32())).slice(1)})
    assert table.scan(["c"], order="key").to_pylist() == [{"c": [2, 3]}, {"c": [4]}]


@pytest.mark.parametrize("views", [pa.list_view, pa.large_list_view])
def test_views_of_other_numbers_keep_what_follows_an_empty_list(make: Make, views: Any) -> None:
    """Arrow's own cast loses it."""
    table = make(pa.schema([("k", pa.int64()), ("c", pa.list_(pa.int64())), ("w", views(pa.int64()))]))
    cells = [[7], [], [None, 1], None, [2]]
    given = pa.array(cells, views(pa.int16())).slice(1)
    table.insert({"k": range(4), "c": given, "w": given})
    table.update([{"k": 3, "w": [5, None]}])
    assert table.scan(["c"], order="key").to_table()["c"].to_pylist() == cells[1:]
    assert table.scan(["w"], order="key").to_table()["w"].to_pylist() == [*cells[1:4], [5, None]]


def test_a_field_is_set_by_text_too(make: Make) -> None:
    parts = pa.struct([("d", pa.date32()), ("t", pa.time32("s"))])
    table = make(pa.schema([("k", pa.int64()), ("s", parts)]))
    table.insert([{"k": 1, "s": {"d": "2026-01-05", "t": "10:30"}}])
    table.update({"k": [1], "s.d": ["2026-01-06"]})
    table.update(where=[("k", "==", 1)], set={"s": {"d": "2026-01-07", "t": None}})
    assert str(table.get(1)) == "{'k': 1, 's': {'d': datetime.date(2026, 1, 7), 't': None}}"
