"""Indexes: the same rows as without them, in every state and at every time."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.common.format.envelope import HEADER, Envelope
from kudu_core.errors import Corruption
from kudu_core.table.stored.indexes import INDEXES_FLAG, indexes_from_json
from kudu_core.table.stored.table_state import ENVELOPE, parse_state, read_state
from tests.support.bulk import MEMORY_LIMIT_BYTES, small_runs
from tests.support.inside import engine_of, orders_made
from tests.support.models.overwriting import overwrite
from tests.support.tables import Make
from tests.table.manage.worlds import PLACES, World

NAMES = ("by_a", "by_s", "by_both")


def indexed(table: kc.Table) -> None:
    table.create_index("by_a", "a")
    table.create_index("by_s", ["s"])
    table.create_index("by_both", ["s", "a"])


def asked(rng: random.Random) -> Iterator[tuple[pc.Expression, Any]]:
    """Predicates, and what they say of a row."""
    a, b = sorted(rng.sample(range(-2, 22), 2))
    s = rng.choice(["", "x", "xy", "y", "none"])
    chosen = rng.sample(range(30), 5)
    fa, fs = pc.field("a"), pc.field("s")
    yield fa == a, lambda r: r["a"] == a
    yield (fa >= a) & (fa < b), lambda r: r["a"] is not None and a <= r["a"] < b
    yield fa.isin(chosen), lambda r: r["a"] in chosen
    yield fs == s, lambda r: r["s"] == s
    yield pc.starts_with(fs, "x"), lambda r: r["s"] is not None and r["s"].startswith("x")
    yield (fs == s) & (fa == a), lambda r: r["s"] == s and r["a"] == a
    yield (fs == s) & (fa > a), lambda r: r["s"] == s and r["a"] is not None and r["a"] > a
    yield fs.isin(["x", s]) & fa.isin(chosen), lambda r: r["s"] in ("x", s) and r["a"] in chosen
    yield (fa == a) | fa.is_null(), lambda r: r["a"] in (None, a)


class Oracle:
    """A table, and its rows at every time that was noted, as dicts by key."""

    def __init__(self, table: kc.Table, rng: random.Random) -> None:
        self.table, self.rng = table, rng
        self.rows: dict[int, dict[str, Any]] = {}
        self.then: list[tuple[int, dict[int, dict[str, Any]]]] = []

    def put(self, keys: list[int]) -> pa.Table:
        rng = self.rng
        new = [
            {
                "k": k,
                "a": rng.choice([None, *range(20)]),
                "s": rng.choice([None, "", "x", "xy", "y"]),
                "must": 1,
            }
            for k in keys
        ]
        self.rows = self.rows | {row["k"]: row for row in new}
        return pa.Table.from_pylist(new, schema=self.table.schema)

    def some(self, most: int = 60) -> list[int]:
        return self.rng.sample(range(200), self.rng.randrange(1, most))

    def write(self, how: str) -> None:
        table, keys = self.table, self.some()
        if how == "upsert":
            table.upsert(self.put(keys))
        elif how == "batch":
            with table.batch() as batch:
                batch.upsert(self.put(keys))
                batch.upsert(self.put(self.some()).to_pylist())
        elif how == "row":
            table.upsert(self.put(keys[:1]).to_pylist())
        elif how == "reader":
            table.upsert(pa.RecordBatchReader.from_batches(table.schema, self.put(keys).to_batches()))
        elif how == "merge":
            merge = table.merge(self.put(keys))
            merge.when_matched(None).when_not_matched_insert().execute()
        elif how == "delete":
            table.delete(keys, on_missing="ignore")
            self.rows = {k: row for k, row in self.rows.items() if k not in keys}
        elif how == "where":
            table.update(where=pc.field("a") == 3, set={"a": 4})
            self.rows = {k: row | {"a": 4} if row["a"] == 3 else row for k, row in self.rows.items()}
        elif how == "overwrite":
            self.rows = {}
            overwrite(table, self.put(keys))
        else:
            assert how == "truncate"
            table.truncate()
            self.rows = {}

    def check(self, table: kc.Table) -> int:
        """How often an index was used."""
        used = 0
        times = [(None, self.rows), *self.rng.sample(self.then, min(2, len(self.then)))]
        for at, rows in times:
            for where, passes in asked(self.rng):
                scan = table.scan(where=where, at=at)
                found = scan.to_table().sort_by("k").to_pylist()
                wanted = [row for _, row in sorted(rows.items()) if passes(row)]
                assert found == wanted, (str(where), at)
                assert scan.count() == len(wanted)
                assert table.scan(where=where, at=at, order="key").to_table().to_pylist() == wanted
                used += len(scan.explain().indexes)
        return used


HOWS = ["upsert", "batch", "row", "reader", "merge", "delete", "where", "overwrite", "truncate"]
ODDS = [9, 4, 4, 4, 4, 6, 4, 1, 1]


@pytest.mark.parametrize(("tablets", "door"), [(1, "log"), (3, "log"), (3, "files"), (1, "spilled")])
def test_the_same_rows_in_every_state(make: Make, seed: int, tablets: int, door: str) -> None:
    rng = random.Random(f"{seed} {tablets} {door}")
    parts = [] if tablets == 1 else [kc.HashPartition("k", tablets)]
    options: dict[str, Any] = {} if door == "log" else {"ingest_threshold_rows": 1}
    table = make(
        partition_by=parts, history_retention_s=None, memory_limit_bytes=MEMORY_LIMIT_BYTES, **options
    )
    with small_runs(spill=True) if door == "spilled" else nullcontext():
        _run(table, rng)


def _run(table: kc.Table, rng: random.Random) -> None:
    oracle, used = Oracle(table, rng), 0
    oracle.write("upsert")
    indexed(table)
    for _ in range(12):
        if rng.random() < 0.6:
            oracle.write(rng.choices(HOWS, ODDS)[0])
            oracle.then.append((table.timestamp, oracle.rows))
        else:
            rng.choice([table.flush, table.flush, table.compact, lambda: table.compact(full=True)])()
            used += oracle.check(table)
    used += oracle.check(table)
    assert used
    table.flush()  # so that all of it is durable
    with kc.open_table(table.path) as reader:
        assert set(reader.indexes) == set(NAMES)
        oracle.check(reader)
    table.verify()


@pytest.mark.parametrize("place", PLACES)
def test_they_stay(place: str, tmp_path: Path, seed: int) -> None:
    """Through another open, renames, a clone; readers see them too."""
    world = World(place, tmp_path)
    world.write(random.Random(seed), range(30), 30)
    world.table.flush()
    with kc.open_table(world.path, **world.how) as reader:
        world.table.create_index("by_v", "v")
        reader.refresh()
        assert reader.indexes["by_v"].columns == ("v",)
    world.table.alter(rename={"v": "w", "s": "v"})
    assert world.table.indexes["by_v"].columns == ("w",)
    with pytest.raises(kc.InvalidArgument, match=r"column 'w' is in the index 'by_v'.*drop_index\('by_v'\)"):
        world.table.alter(drop=["w"])
    with pytest.raises(kc.InvalidArgument, match="column 'w' is in the index"):
        world.table.alter(drop=["w"], add=[kc.Column("w", pa.int64())])
    world.reopen()
    assert world.table.indexes["by_v"].columns == ("w",)
    scan = world.table.scan(where=pc.field("w") == 5)
    assert scan.explain().indexes
    assert {row["k"] for row in scan.to_pylist()} == {k for k, (v, _) in world.rows.items() if v == 5}
    if place == "folder":
        world.table.clone(tmp_path / "clone")
        with kc.open_table(tmp_path / "clone") as clone:
            assert clone.indexes["by_v"].columns == ("w",)
            assert clone.scan(where=pc.field("w") == 5).explain().indexes
    world.table.drop_index("by_v")
    world.table.alter(drop=["w"])
    world.reopen()
    assert world.table.indexes == {}
    world.table.close()


LATE, EARLY = dt.datetime(2024, 1, 2), dt.datetime(1950, 1, 2)
TYPES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [-128, -1, 0, 5, 127]),
    (pa.uint8(), [0, 1, 128, 255]),
    (pa.int16(), [-(2**15), 0, 9]),
    (pa.uint32(), [0, 7, 2**32 - 1]),
    (pa.int64(), [-(2**63), -1, 0, 7, 2**63 - 1]),
    (pa.int64(), [2**63 - 3, 2**63 - 2, 2**63 - 1]),
    (pa.uint64(), [0, 2**63, 2**64 - 1]),
    (pa.uint64(), [2**64 - 9, 2**64 - 1]),
    (pa.float32(), [float("-inf"), -1.5, -0.0, 0.0, 2.5, float("inf"), float("nan")]),
    (pa.float64(), [float("-inf"), -1e300, -0.0, 0.0, 1.0, float("inf"), float("nan")]),
    (pa.bool_(), [False, True]),
    (pa.date32(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    (pa.timestamp("us"), [EARLY, dt.datetime(1970, 1, 1), LATE]),
    (pa.decimal128(38, 2), [decimal.Decimal(v) for v in ("-1e35", "-0.01", "0.00", "7.25", "1e35", "2e35")]),
    (pa.string(), ["", "a", "a\0", "ab", "b", "é"]),
    (pa.binary(), [b"", b"\0", b"a", b"a\xff", b"\xff\xff"]),
]


@pytest.mark.parametrize(("type_", "values"), TYPES, ids=[f"{n}-{t}" for n, (t, _) in enumerate(TYPES)])
@pytest.mark.parametrize("nulls", [False, True])
def test_every_type(make: Make, type_: pa.DataType, values: list[Any], nulls: bool, seed: int) -> None:
    """As the first column of an index, and as the second one; without the index the answer is the same."""
    rng = random.Random(seed)
    table = make(pa.schema([("k", pa.int64()), ("one", pa.int64()), ("v", type_)]))
    given = [rng.choice([*values, *[None] * len(values)] if nulls else values) for _ in range(400)]
    one = [rng.randrange(3) for _ in given]
    table.insert(pa.table({"k": range(400), "one": one, "v": pa.array(given, type_)}, schema=table.schema))
    table.flush()
    v, fixed = pc.field("v"), pc.field("one") == 1
    wheres = []
    for value in values:
        constant = pa.scalar(value, type_)
        compared = [v == constant, v < constant, v >= constant, (v > constant) & (v <= constant)]
        wheres += [*compared, *(fixed & where for where in compared)]
    wheres += [v.isin(pa.array(values[1:], type_)), fixed & v.isin(pa.array(values[1:], type_)), fixed]
    without = [table.scan(["k"], where).to_table().sort_by("k") for where in wheres]
    used: set[str] = set()
    for name, columns in (("alone", ["v"]), ("second", ["one", "v"])):
        table.create_index(name, columns)
        for where, wanted in zip(wheres, without, strict=True):
            scan = table.scan(["k"], where)
            used |= scan.explain().indexes.keys()
            assert scan.to_table().sort_by("k") == wanted, str(where)
        table.drop_index(name)
    assert used == {"alone", "second"}


def test_it_reads_only_what_it_finds(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    table, rows = make(), 100_000
    a = np.random.default_rng(1).permutation(rows) // 10
    table.insert(pa.table({"k": np.arange(rows), "a": a, "s": [f"s{n:06}" for n in a]}))
    table.flush()
    where = [("a", "==", 77)]
    assert table.scan(where=where).explain().rows_wanted > rows // 2
    indexed(table)
    assert table.scan(where=where).explain().rows_wanted == 10
    assert table.scan(where=[("s", "==", "s000077")]).explain().rows_wanted == 10
    explained = table.scan(where=[("s", "==", "s000077"), ("a", "<", 100)]).explain()
    assert explained.indexes == {"by_both": 1}
    assert "by_both (1 rowsets)" in str(explained)
    table.update({"k": [5, 6], "a": [77, 78]})
    assert table.scan(where=where).explain().rows_wanted == 10 + len({5, 6} - set(np.flatnonzero(a == 77)))
    assert not table.scan(where=[("a", ">", 77)]).explain().indexes  # most rows: reading all is faster
    table.drop_index("by_a")
    assert not table.scan(where=where).explain().indexes


def test_rewritten_columns_are_other_cells(make: Make) -> None:
    """A merge of changes makes a file of one column beside the base file, whose order was known."""
    table = make(history_retention_s=0)
    table.insert(pa.table({"k": range(500), "a": range(500)}))
    table.flush()
    table.create_index("by_a", "a")
    for value in (1000, 2000, 3000):
        assert table.scan(where=[("a", "==", 7)]).count() == (value == 1000)
        table.update(pa.table({"k": range(500), "a": [value + k for k in range(500)]}))
        table.flush()
        table.maintain()
        table.compact()
        found = table.scan(where=[("a", "==", value + 7)])
        assert found.explain().indexes == {"by_a": 1}
        assert [row["k"] for row in found.to_pylist()] == [7]


def test_without_room_for_it_rows_are_scanned(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is made that would not be kept."""
    made = orders_made(monkeypatch)
    table = make(page_cache_bytes=1 << 12)
    table.insert(pa.table({"k": range(5000), "a": range(5000)}))
    table.flush()
    table.create_index("by_a", "a")
    scan = table.scan(where=[("a", "==", 7)])
    assert scan.explain().indexes == {}
    assert scan.count() == 1
    assert not made


def test_a_column_that_the_rows_lack(make: Make) -> None:
    table = make()
    table.insert(pa.table({"k": range(100), "a": range(100)}))
    table.flush()
    table.alter(add=[kc.Column("new", pa.int64(), default=4)])
    table.create_index("by_new", "new")
    table.upsert(pa.table({"k": range(90, 110), "new": [5] * 20}))
    table.flush()
    for value, wanted in ((4, 90), (5, 20)):
        assert table.scan(where=[("new", "==", value)]).count() == wanted


WRONG = [
    ("", "a", "no name of an index"),
    (" a", "a", "no name of an index"),
    (5, "a", "5 is no name of an index"),
    ("x" * 256, "a", "no name of an index"),
    ("other", "zz", "zz"),
    ("other", [], "columns of an index are 1 to 8 names"),
    ("other", 5, "columns of an index are 1 to 8 names"),
    ("other", [5], "names of columns, not 5"),
    ("other", ["a", "a"], "column 'a' is twice"),
    ("other", ["l"], r"column 'l' is list.*no order"),
    ("by_a", ["s"], "there is an index 'by_a', of a; drop it before"),
]


@pytest.mark.parametrize(("name", "columns", "said"), WRONG)
def test_what_is_no_index(make: Make, name: Any, columns: Any, said: str) -> None:
    table = make([*make_schema()])
    table.create_index("by_a", "a")
    table.create_index("by_a", ["a"])  # it is there: nothing changes
    with pytest.raises(kc.KuduError, match=said):
        table.create_index(name, columns)
    assert list(table.indexes) == ["by_a"]
    with pytest.raises(kc.InvalidArgument, match="there is no index 'none'; there is 'by_a'"):
        table.drop_index("none")
    with kc.open_table(table.path) as reader, pytest.raises(kc.KuduError):
        reader.create_index("x", "a")


def make_schema() -> list[kc.Column]:
    columns = (("k", pa.int64()), ("a", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.int64())))
    return [kc.Column(name, type_) for name, type_ in columns]


def test_a_table_file_with_indexes_says_so(make: Make, path: Path) -> None:
    """A library that knows none would forget them when it writes TABLE."""
    table = make()
    before = (path / "TABLE").read_bytes()
    assert HEADER.unpack_from(before)[2] == 0
    table.create_index("by_a", "a")
    data = (path / "TABLE").read_bytes()
    assert HEADER.unpack_from(data)[2] == INDEXES_FLAG
    with pytest.raises(kc.NotSupported):
        Envelope(magic=ENVELOPE.magic, version=1, other="", flags=1).body("TABLE", data)
    table.drop_index("by_a")
    table.create_index("by_s", "s")
    state = read_state(engine_of(table).fs, f"{path}/TABLE")
    assert [one.id for one in state.indexes.values()] == [2]  # an id is of one index for ever


@pytest.mark.parametrize(
    "value",
    [
        {"indexes": [["a", 1, [1]]]},
        {"indexes": [["a", 1, []]], "next_index": 2},
        {"indexes": [["a", 1, [1, 1]]], "next_index": 2},
        {"indexes": [["", 1, [1]]], "next_index": 2},
        {"indexes": [["a", 1, [1]], ["a", 2, [1]]], "next_index": 3},
        {"indexes": [["a", 1, [1]], ["b", 1, [1]]], "next_index": 3},
        {"indexes": [[f"i{n}", n + 1, [1]] for n in range(65)], "next_index": 99},
    ],
)
def test_what_no_table_file_says(value: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        indexes_from_json(value)


def test_an_index_of_no_column_is_damage(make: Make, path: Path) -> None:
    table = make()
    table.create_index("by_a", "a")
    column = engine_of(table).table_file.state.indexes["by_a"].column_ids[0]
    data = (path / "TABLE").read_bytes()
    body = ENVELOPE.body("TABLE", data).replace(f'"by_a",1,[{column}]'.encode(), b'"by_a",1,[77]')
    with pytest.raises(Corruption, match="an index is of a column that is not there"):
        parse_state(ENVELOPE.around(body, INDEXES_FLAG), "TABLE")
