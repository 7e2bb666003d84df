"""Encoded keys: one at a time, many at once, and the two agree."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kudu_core._ext.base.status import PageError
from kudu_core.common.rows.conform import conform
from kudu_core.common.rows.keys import (
    EncodedKeys,
    decode_keys,
    encode_key,
    encode_keys,
    encode_prefix,
)
from kudu_core.common.schema.declare import Column, declare
from kudu_core.common.schema.schema import Schema
from kudu_core.common.types.keycodec import KeyCodec, prefix_successor, successor
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import InvalidArgument

D = decimal.Decimal


def _schema(*types: str) -> Schema:
    columns = [Column(f"c{i}", name) for i, name in enumerate(types)]
    return declare(columns, [column.name for column in columns])


# Worked values of Kudu's encoding.
GOLDEN = [
    (("int8",), (-128,), "00"),
    (("int8",), (-1,), "7f"),
    (("int8",), (0,), "80"),
    (("int32",), (1,), "80000001"),
    (("uint16",), (258,), "0102"),
    (("string", "int32"), ("a\0b", 5), "610001620000" + "80000005"),
    (("string", "int8"), ("", 0), "000080"),
    (("string", "string"), ("a", "b\0"), "6100006200"),
    (("date32",), (dt.date(1970, 1, 2),), "80000001"),
    (("timestamp[us]",), (dt.datetime(1969, 12, 31, 23, 59, 59, 999999),), "7fffffffffffffff"),
    (("decimal128(4,1)",), (D("-0.1"),), "7f" + "ff" * 15),
]


@pytest.mark.parametrize(("types", "key", "encoded"), GOLDEN)
def test_the_bytes_of_a_key(types: tuple[str, ...], key: tuple[object, ...], encoded: str) -> None:
    schema = _schema(*types)
    assert encode_key(schema, key).hex() == encoded
    assert tuple(schema.key_codec.decode(bytes.fromhex(encoded))) == key


CELLS: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-128, 127),
    "uint32": st.integers(0, 2**32 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "string": st.text(st.sampled_from("\0\1ab\xff"), max_size=4),
    "binary": st.binary(max_size=4).map(lambda b: b.replace(b"\x07", b"\0")),
    "date32": st.dates(),
    "timestamp[us,UTC]": st.datetimes(timezones=st.just(dt.UTC)),
    "decimal128(20,3)": st.integers(-(10**20) + 1, 10**20 - 1).map(lambda n: D(n).scaleb(-3)),
}
SHAPES = [
    ("int64",),
    ("string",),
    ("string", "string"),
    ("int8", "string", "uint32"),
    ("binary", "int64"),
    ("date32", "timestamp[us,UTC]", "decimal128(20,3)", "binary"),
]


@pytest.mark.parametrize("types", SHAPES)
@given(data=st.data())
def test_bytes_order_as_values_do_and_both_ways_agree(types: tuple[str, ...], data: st.DataObject) -> None:
    schema = _schema(*types)
    keys = data.draw(st.lists(st.tuples(*(CELLS[name] for name in types)), min_size=1, max_size=12))
    columns = [
        pa.array(cells, c.type.arrow)
        for cells, c in zip(zip(*keys, strict=True), schema.columns, strict=True)
    ]
    block = conform(schema, pa.RecordBatch.from_arrays(columns, names=list(schema.names))).block
    encoded = encode_keys(schema, block)
    one_by_one = [encode_key(schema, key) for key in keys]
    assert list(encoded) == one_by_one

    def comparable(key: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(v.encode() if isinstance(v, str) else v for v in key)

    for (a, x), (b, y) in itertools.product(zip(keys, one_by_one, strict=True), repeat=2):
        assert (comparable(a) < comparable(b)) == (x < y)
    back = decode_keys(schema, encoded)
    for column, array in zip(schema.columns, columns, strict=True):
        assert back.columns[column.id].to_arrow(column.type) == array
    assert [tuple(schema.key_codec.decode(x)) for x in one_by_one] == keys
    for key, x in zip(keys, one_by_one, strict=True):
        for count in range(1, len(key)):
            head = encode_prefix(schema, key[:count])
            assert x.startswith(head)
            assert schema.key_codec.decode_prefix(head) == key[:count]


def test_a_key_is_given_as_scalar_tuple_list_or_dict() -> None:
    single, double = _schema("int64"), _schema("string", "int8")
    assert len({encode_key(single, k) for k in (5, (5,), [5], {"c0": 5}, np.int64(5))}) == 1
    assert len({encode_key(double, k) for k in (("a", 1), ["a", 1], {"c1": 1, "c0": "a"})}) == 1


@pytest.mark.parametrize(
    ("types", "key", "named"),
    [
        (("int64",), None, "c0"),
        (("int64",), "5", "c0"),
        (("int64",), 5.0, "c0"),
        (("int64",), True, "c0"),
        (("int8",), 128, "c0"),
        (("int64",), (1, 2), "c0"),
        (("int64",), {}, "c0"),
        (("int64",), {"c1": 1}, "c1"),
        (("string", "int8"), ("a",), "c1"),
        (("string", "int8"), "a", "c"),
        (("string", "int8"), ("a", None), "c1"),
        (("string", "int8"), {"c1": 1}, "c0"),
        (("string", "int8"), {"c0": "a", "x": 1}, "'x'"),
        (("timestamp[us,UTC]",), dt.datetime(2020, 1, 1), "c0"),
        (("date32",), dt.datetime(2020, 1, 1), "c0"),
        (("decimal128(4,2)",), D("0.001"), "c0"),
    ],
)
def test_a_wrong_key_names_the_column(types: tuple[str, ...], key: object, named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        encode_key(_schema(*types), key)


@pytest.mark.parametrize(
    ("types", "encoded"),
    [
        (("int64",), "00"),
        (("int64",), "00" * 9),
        (("string", "int8"), "61"),
        (("string", "int8"), "610080"),
        (("string", "int8"), "6100028000"),
        (("string", "int8"), "610000"),
        (("string", "int8"), "61000080ff"),
    ],
)
def test_bytes_that_are_no_key_are_found_out(types: tuple[str, ...], encoded: str) -> None:
    schema, raw = _schema(*types), bytes.fromhex(encoded)
    with pytest.raises(PageError):
        schema.key_codec.decode(raw)
    with pytest.raises(PageError):
        decode_keys(schema, EncodedKeys.from_list([raw]))


def test_successors() -> None:
    assert b"a" < successor(b"a") <= b"a\0"
    assert prefix_successor(b"a\xff\xff") == b"b"
    assert prefix_successor(b"\xff") is None
    assert prefix_successor(b"") is None


@given(st.lists(st.binary(max_size=6), max_size=30))
def test_many_keys_at_once(raw: list[bytes]) -> None:
    keys = EncodedKeys.from_list(raw)
    assert list(keys) == raw
    assert len(keys) == len(raw)
    assert [keys[i] for i in range(len(raw))] == raw
    hashes = keys.hashes()
    assert hashes.tolist() == [mmh3.hash64(key, 0, signed=False)[0] for key in raw]
    order = keys.sort()
    ordered = keys.take(order)
    assert list(ordered) == sorted(raw)
    assert order.tolist() == sorted(range(len(raw)), key=lambda i: raw[i])
    assert ordered.order() == (2 if len(set(raw)) == len(raw) else 1)
    groups, first = keys.group(hashes)
    assert [raw[i] for i in first] == list(dict.fromkeys(raw))
    assert [raw[first[g]] for g in groups] == raw
    below = ordered.lower_bound(keys)
    assert below.tolist() == [sum(other < key for other in raw) for key in raw]
    assert ordered.lower_bound(keys, upper=True).tolist() == [sum(o <= key for o in raw) for key in raw]
    half = len(raw) // 2
    assert list(EncodedKeys.concat([keys.slice(0, half), keys.slice(half, len(raw))])) == raw


def test_a_key_over_16_kib_is_marked() -> None:
    keys = EncodedKeys.from_list([b"x", b"y" * 16384, b"z" * 16385])
    large = keys.too_large()
    assert large is not None
    assert large.tolist() == [False, False, True]
    assert keys.slice(0, 2).too_large() is None
    assert EncodedKeys.from_list([]).too_large() is None


def test_keys_and_bounds_are_shown_to_people() -> None:
    codec = KeyCodec([("s", ColumnType.parse("string")), ("i", ColumnType.parse("int16"))])
    assert codec.show(codec.encode(("a", 5))) == "('a', 5)"
    assert codec.show(codec.encode_prefix(("a",))) == "('a')"
    assert codec.show(None) == "open"
    assert codec.show(b"a\0\1") == "()+0x610001"
