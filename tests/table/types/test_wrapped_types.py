"""Dictionaries and extension types have the values of what they are made of, with all that those refuse."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import zoneinfo
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support.tables import Make


class Marked(pa.ExtensionType):
    """As most are written: it has no hash."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "tests.marked")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Marked:
        return cls(storage)


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    pa.register_extension_type(Marked(pa.null()))
    yield
    pa.unregister_extension_type("tests.marked")


def _wrapped(kind: str, type_: pa.DataType) -> pa.DataType:
    return pa.dictionary(pa.int32(), type_) if kind == "dictionary" else Marked(type_)


def _array(kind: str, type_: pa.DataType, value: Any) -> pa.Array:
    values = pa.array([value], type_)
    if kind == "dictionary":
        return pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int32()), values)
    return pa.ExtensionArray.from_storage(Marked(type_), pa.array([value, None], type_))


VALUES = [
    (pa.binary(3), b"abc"),
    (pa.float16(), 1.5),
    (pa.month_day_nano_interval(), pa.MonthDayNano([1, 2, 3])),
    (pa.decimal256(60, 2), Decimal("1.25")),
    (pa.decimal32(5, 2), Decimal("1.25")),
    (pa.string_view(), "a string of more than twelve bytes"),
    (pa.binary_view(), b"bytes of which there are more than twelve"),
    (pa.uint64(), 2**64 - 1),
]


@pytest.mark.parametrize("kind", ["dictionary", "extension"])
@pytest.mark.parametrize(("type_", "value"), VALUES, ids=[str(one) for one, _ in VALUES])
def test_wrapped_values(make: Make, kind: str, type_: pa.DataType, value: Any) -> None:
    declared = _wrapped(kind, type_)
    columns = [kc.Column("id", "int64"), kc.Column("v", declared), kc.Column("d", declared, default=value)]
    table = make(columns, ["id"])
    table.insert(pa.table({"id": [1, 2], "v": _array(kind, type_, value)}))
    table.insert([{"id": 3, "v": value}])
    table.insert({"id": [4], "v": [value]})
    table.update(where=pc.field("id") == 1, set={"d": pc.field("v")})
    for _ in range(2):
        assert [table.get(id_)["v"] for id_ in (1, 2, 3, 4)] == [value, None, value, value]
        assert [table.get(id_)["d"] for id_ in (1, 2, 3, 4)] == [value] * 4
        found = table.scan(["v"]).to_table()
        found.validate(full=True)
        assert found.schema.field("v").type == declared
        if not pa.types.is_interval(type_):
            assert table.count([("v", "==", value)]) == table.count([("v", "in", [value])]) == 3
            assert table.count(pc.field("v") == _array(kind, type_, value)[0]) == 3
        table.flush()


@pytest.mark.parametrize("kind", ["dictionary", "extension"])
def test_what_the_wrapped_type_refuses_is_refused(make: Make, kind: str) -> None:
    table = make(
        pa.schema(
            [
                ("id", pa.int64()),
                ("cell", _wrapped(kind, pa.binary(3))),
                ("half", _wrapped(kind, pa.float16())),
            ]
        ),
        ["id"],
    )
    with pytest.raises(kc.SchemaMismatch, match="row 0: 5 bytes are no"):
        table.insert(pa.table({"id": [1], "cell": pa.array([b"abcde"])}))
    with pytest.raises((kc.InvalidArgument, kc.SchemaMismatch), match="5 bytes are no"):
        table.insert([{"id": 1, "cell": b"abcde"}])
    with pytest.raises(kc.SchemaMismatch, match="is not exact"):
        table.insert(pa.table({"id": [1], "half": pa.array([1e6], pa.float32())}))
    assert table.count() == 0
    with pytest.raises(kc.InvalidArgument, match="a key cannot hold"):
        make(pa.schema([("id", _wrapped(kind, pa.month_day_nano_interval()))]), ["id"])


def test_the_two_hours_of_one_name_are_two_values(make: Make) -> None:
    berlin = zoneinfo.ZoneInfo("Europe/Berlin")
    first = dt.datetime(2024, 10, 27, 2, 30, tzinfo=berlin)
    second = first.replace(fold=1)
    table = make(pa.schema([("at", pa.timestamp("us", "Europe/Berlin")), ("v", pa.int64())]), ["at"])
    table.insert({"at": [first, second], "v": [1, 2]})
    at = pc.field("at")
    for _ in range(2):
        listed = [("at", "in", [first, second])]
        for where in (at.isin([first, second]), (at == first) | (at == second), listed):
            assert table.scan(where=where).to_table().num_rows == table.count(where) == 2
        assert table.scan(where=at == second).to_table()["v"].to_pylist() == [2]
        table.flush()


WITHOUT_PANDAS = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pandas":
            raise ImportError(name)

sys.meta_path.insert(0, Absent())
import kudu_core as kc

with kc.open_table(sys.argv[1], mode="rw") as table:
    assert table.insert([{"id": 2}]).inserted == 1
    assert table.get(1, ["id"]) == {"id": 1}
    try:
        table.get(2)
    except kc.InvalidArgument as error:
        assert "read it as Arrow" in str(error)
    else:
        raise AssertionError("a value was made")
"""


def test_a_default_with_nanoseconds_without_pandas_hinders_nothing_else(make: Make) -> None:
    default = pa.scalar(1, pa.timestamp("ns"))
    table = make([kc.Column("id", "int64"), kc.Column("at", "timestamp[ns]", default=default)], ["id"])
    table.insert([{"id": 1}])
    table.close()
    told = [sys.executable, "-c", WITHOUT_PANDAS, table.path]
    done = subprocess.run(told, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", [pa.string(), pa.binary(3)], ids=str)
def test_a_dictionary_of_text_in_a_struct_is_read_with_it(make: Make, text: pa.DataType) -> None:
    value: Any = b"abc" if pa.types.is_fixed_size_binary(text) else "abc"
    coded = pa.dictionary(pa.int32(), text)
    table = make(pa.schema([("id", pa.int64()), ("v", pa.struct([("a", coded)]))]), ["id"])
    table.insert([{"id": 1, "v": {"a": value}}, {"id": 2, "v": None}])
    for _ in range(2):
        found = table.scan(["v", "v.a"], order="key").to_table()
        assert found.to_pylist() == [{"v": {"a": value}, "v.a": value}, {"v": None, "v.a": None}]
        assert found.schema.field("v.a").type == found.schema.field("v").type.field("a").type == coded
        table.flush()


@pytest.mark.parametrize("type_", [pa.binary(3), pa.dictionary(pa.int32(), pa.binary(3)), pa.uuid()], ids=str)
def test_cells_of_a_fixed_size_begin_with_less(make: Make, type_: pa.DataType) -> None:
    size = 16 if type_ == pa.uuid() else 3
    table = make(pa.schema([("id", pa.int64()), ("v", type_)]), ["id"])
    table.insert([{"id": 1, "v": b"ab".ljust(size, b"c")}, {"id": 2, "v": b"x" * size}, {"id": 3, "v": None}])
    for _ in range(2):
        for where in (pc.starts_with(pc.field("v"), b"ab"), pc.match_like(pc.field("v"), "ab%")):
            assert table.count(where) == table.scan(where=where).to_table().num_rows == 1
        table.flush()


def test_a_key_of_a_fixed_size_begins_with_less(make: Make) -> None:
    halves = kc.RangePartition(["id"], bounds=[(None, (b"b\0\0",)), ((b"b\0\0",), None)])
    table = make(pa.schema([("id", pa.binary(3)), ("n", pa.int64())]), ["id"], partition_by=halves)
    table.insert({"id": [b"abc", b"xyz"], "n": [1, 2]})
    table.flush()
    for first in (b"a", b"xy"):
        assert table.scan(where=pc.starts_with(pc.field("id"), first)).to_table().num_rows == 1


def test_the_bytes_of_a_long_decimal_are_no_text(make: Make) -> None:
    table = make(pa.schema([("id", pa.int64()), ("v", pa.decimal256(60, 2))]), ["id"])
    with pytest.raises(kc.InvalidArgument, match="starts_with"):
        table.count(pc.starts_with(pc.field("v"), b"a"))


def test_an_extension_type_of_runs_is_no_column_type(make: Make) -> None:
    runs = Marked(pa.run_end_encoded(pa.int32(), pa.string()))
    with pytest.raises(kc.InvalidArgument, match="is not a column type"):
        make(pa.schema([("id", pa.int64()), ("v", runs)]), ["id"])
