"""Predicates on whole columns of lists, structs and maps, by every way of asking; what none computes."""

from __future__ import annotations

import math
import pickle
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support.tables import Make

F = pc.field
S = pa.struct([("a", pa.int32()), ("t", pa.list_(pa.string_view())), ("x", pa.float32())])
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("s", S),
        ("l", pa.list_(pa.int64())),
        ("m", pa.map_(pa.string(), pa.int32())),
        ("v", pa.list_(pa.float32(), 2)),
        ("d", pa.large_list(pa.struct([("q", pa.uuid()), ("w", pa.list_view(pa.int16()))]))),
        pa.field("r", pa.struct([pa.field("z", pa.list_(pa.int8()), False)]), False),
    ]
)
Row = dict[str, Any]
IDS = [b"%016d" % number for number in range(3)]


def rows_of(rng: random.Random, keys: range) -> list[Row]:
    def some(value: Callable[[], Any], chance: float = 0.2) -> Any:
        return None if rng.random() < chance else value()

    def numbers(most: int) -> list[Any]:
        return [some(lambda: rng.randrange(3)) for _ in range(rng.randrange(most))]

    return [
        {
            "k": key,
            "s": some(lambda: {"a": some(lambda: rng.randrange(2)), "t": some(lambda: rng.choices("xy", k=1)),
                               "x": some(lambda: rng.choice((0.0, -0.0, 1.5, math.nan)))}),
            "l": some(lambda: numbers(4)),
            "m": some(lambda: dict.fromkeys(rng.sample("pq", rng.randrange(3)), rng.randrange(2))),
            "v": some(lambda: [rng.choice((0.0, -0.0, 1.0)) for _ in range(2)]),
            "d": some(lambda: [some(lambda: {"q": some(lambda: rng.choice(IDS)),
                                             "w": some(lambda: numbers(3))})
                               for _ in range(rng.randrange(3))]),
            "r": {"z": [rng.randrange(2)] * rng.randrange(3)},
        }
        for key in keys
    ]  # fmt: skip


def same(left: Any, right: Any) -> bool:
    """As ``==`` of Python, of which NaN equals nothing, also not itself."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def element(cell: Any, place: int) -> Any:
    return cell[place] if cell is not None and len(cell) > place else None


def cases(rng: random.Random, rows: list[Row]) -> list[tuple[Any, Callable[[Row], bool | None]]]:
    """Predicates, and what they are true of."""
    one = rng.choice([row for row in rows if row["s"] is not None and row["d"] is not None])
    s, d, l_, m = one["s"], one["d"], one["l"] or [], list((one["m"] or {}).items())
    e = element(d, 0) or {"q": None, "w": None}
    pairs = lambda row: None if row["m"] is None else list(row["m"].items())  # noqa: E731
    known = lambda cell, told: None if cell is None else told  # noqa: E731
    return [
        (F("s") == pa.scalar(s, S), lambda row: known(row["s"], same(row["s"], s))),
        (pa.scalar(s) != F("s"), lambda row: known(row["s"], not same(row["s"], s))),
        ([("s", "==", s)], lambda row: known(row["s"], same(row["s"], s))),
        (F("l") == pa.scalar(l_, pa.list_(pa.int8())), lambda row: known(row["l"], same(row["l"], l_))),
        ([("l", "not in", [l_, [0]])], lambda row: not (same(row["l"], l_) or same(row["l"], [0]))),
        (F("l").isin(pa.array([l_, None, [1]])), lambda row: row["l"] is None or row["l"] in (l_, [1])),
        ([("m", "==", dict(m))], lambda row: known(row["m"], same(pairs(row), m))),
        (F("v") == pa.scalar([0.0, 1.0]), lambda row: known(row["v"], row["v"] == [0.0, 1.0])),
        ([("d", "=", d)], lambda row: known(row["d"], same(row["d"], d))),
        (~(F("d") == pa.scalar(d, pa.list_(S_D))), lambda row: known(row["d"], not same(row["d"], d))),
        (F("r") == pa.scalar({"z": [1, 1]}), lambda row: row["r"] == {"z": [1, 1]}),
        (F("r", "z") == pa.scalar([0]), lambda row: row["r"] == {"z": [0]}),
        (pc.list_value_length(F("l")) > 1, lambda row: known(row["l"], len(row["l"] or ()) > 1)),
        (pc.list_element(F("l"), 1) == 2, lambda row: element(row["l"], 1) == 2),
        (pc.list_element(F("l"), 0).is_null(), lambda row: element(row["l"], 0) is None),
        (pc.list_element(F("d"), 0) == pa.scalar(e, S_D),
         lambda row: known(element(row["d"], 0), same(element(row["d"], 0), e))),
        (pc.struct_field(pc.list_element(F("d"), 0), "q") == IDS[1],
         lambda row: (element(row["d"], 0) or {}).get("q") == IDS[1]),
        (pc.struct_field(F("s"), "a") == 1, lambda row: (row["s"] or {}).get("a") == 1),
        (pc.struct_field(F("s"), [0]) == 1, lambda row: (row["s"] or {}).get("a") == 1),
        (pc.map_lookup(F("m"), pa.scalar("p"), "first") == 1, lambda row: (row["m"] or {}).get("p") == 1),
        ((F("k") > 20) & (pc.list_value_length(F("s", "t")) == 1) & (F("s", "a") == 0),
         lambda row: row["k"] > 20 and len((row["s"] or {}).get("t") or ()) == 1 and row["s"]["a"] == 0),
        ((F("l") == F("l")) & F("s").is_valid(), lambda row: row["l"] is not None and row["s"] is not None),
    ]  # fmt: skip


S_D = pa.struct([("q", pa.binary()), ("w", pa.list_(pa.int64()))])
"""Of elements, without the types of which Arrow makes no scalar."""


@pytest.fixture(params=["memory", "flushed", "both"])
def filled(request: pytest.FixtureRequest, make: Make, seed: int) -> tuple[kc.Table, list[Row], int]:
    rows = rows_of(random.Random(seed), range(60))
    table = make(SCHEMA)
    before = table.timestamp
    table.insert(rows[:30])
    table.update({"k": [3, 4], "l": [[9, 9], None]})
    if request.param != "memory":
        table.flush()
    table.insert(rows[30:])
    table.update({"k": [3, 4, 50], "l": [rows[3]["l"], rows[4]["l"], rows[50]["l"]]})
    if request.param == "flushed":
        table.flush()
    return table, rows, before


def test_every_way_of_asking_finds_what_python_finds(filled: Any, seed: int) -> None:
    table, rows, before = filled
    found_any = 0
    for where, passes in cases(random.Random(seed), rows):
        keys = [row["k"] for row in rows if passes(row) is True]
        found_any += 0 < len(keys) < len(rows)
        assert [row["k"] for row in table.scan(["k"], where, order="key").to_pylist()] == keys, where
        assert table.count(where) == len(keys)
        assert sorted(table.scan(["s", "k"], where).to_table()["k"].to_pylist()) == keys
        tokens = pickle.loads(pickle.dumps(table.scan_tokens(["k"], where, target_rows=20)))
        shares = [table.scan_token(token).to_table() for token in tokens]
        assert sorted(key for share in shares for key in share["k"].to_pylist()) == keys
        told = table.changes(before, where=where, net=True).to_table()
        assert sorted(told["k"].to_pylist()) == keys
        change_tokens = pickle.loads(pickle.dumps(table.change_tokens(before, where=where, net=True)))
        changed = [table.change_token(token).to_table() for token in change_tokens]
        assert sorted(key for share in changed for key in share["k"].to_pylist()) == keys
    assert found_any > 10


def test_updates_and_deletes_go_by_them(filled: Any, seed: int) -> None:
    table, rows, _ = filled
    for where, passes in cases(random.Random(seed), rows)[::3]:
        keys = [row["k"] for row in rows if passes(row) is True]
        there = table.count()
        with pytest.raises(kc.InvalidArgument):
            table.update(where=where, set={"s.a": F("nothing")})
        assert table.update(where=where, set={"m": {"seen": 1}}).updated == len(keys)
        assert table.update(where=where, set={"m": None}).updated <= len(keys)
        table.update([{"k": row["k"], "m": row["m"]} for row in rows if row["k"] in keys])
        assert table.delete(where=where).deleted == len(keys)
        assert table.count() == there - len(keys)
        table.insert([row for row in rows if row["k"] in keys])


def test_datasets_and_scans_that_travel_take_them(filled: Any) -> None:
    table, rows, _ = filled
    keys = [row["k"] for row in rows if len(row["l"] or ()) > 1]
    longer = pc.list_value_length(F("l")) > 1
    assert sorted(table.to_dataset().to_table(["k"], filter=longer)["k"].to_pylist()) == keys
    scan = pickle.loads(pickle.dumps(table.scan(["k"], longer)))
    assert sorted(scan.to_table()["k"].to_pylist()) == keys
    table.alter(rename={"l": "other"})
    assert sorted(scan.to_table()["k"].to_pylist()) == keys, "as it was named when the scan was made"
    table.alter(add=[pa.field("s.more", pa.int8())])
    assert table.count(F("s") == pa.scalar({"a": None, "t": None, "x": None, "more": None})) >= 0


def test_only_the_leaves_that_are_asked_for_are_read_and_a_field_prunes(make: Make) -> None:
    table = make(pa.schema([("k", pa.int64()), ("s", pa.struct([("x", pa.int64()), ("y", pa.string())]))]))
    for start in (0, 100_000):
        keys = list(range(start, start + 20_000))
        table.insert({"k": keys, "s": [{"x": key, "y": "some text"} for key in keys]})
        table.flush()
    explained = table.scan(["k"], pc.struct_field(F("s"), "x") == 100_007).explain()
    assert (explained.rowsets, explained.rowsets_pruned) == (2, 1)
    assert table.scan(["k"], pc.struct_field(F("s"), "x") == 100_007).to_pylist() == [{"k": 100_007}]


@pytest.mark.parametrize(
    ("where", "why"),
    [
        (F("s") < F("s"), "no kernel.*of lists, structs and maps a predicate asks"),
        (F("s") == 1, r"a constant of int.* beside struct.*whether they are NULL"),
        (F("s") == pa.scalar({"nothing": 1}), "no field 'nothing'"),
        (F("l") == pa.scalar(["a"]), r"row 0 has 'a'; write int\(text\)"),
        (pc.list_element(F("l"), -1) == 1, "counts from 0"),
        (pc.add(F("l"), 1) == 1, "no kernel"),
        ([("l", "<", [1])], "has no order; ask by =="),
        ([("l", "==", None)], r"write pc.field\('l'\).is_null\(\)"),
        ([("l", "in", "ab")], "takes a list of values"),
        ([("l", "==", ["a"])], r"'l\[\]'.*row 0 has 'a'"),
        ([("s", "==", {"nothing": 1})], "no field 'nothing'; there are a, t, x"),
        (F("nothing") == pa.scalar([1]), "no column 'nothing'"),
    ],
    ids=str,
)
def test_what_cannot_be_computed_is_refused_before_anything_is_read(make: Make, where: Any, why: str) -> None:
    table = make(SCHEMA)
    with pytest.raises(kc.InvalidArgument, match=why):
        table.count(where)
    with pytest.raises(kc.InvalidArgument, match=why):
        table.delete(where=where)
