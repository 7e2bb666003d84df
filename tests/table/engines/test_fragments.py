"""``to_dataset().get_fragments()``: shares that together are the dataset, also in another process."""

from __future__ import annotations

import multiprocessing
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import kudu_core as kc
from kudu_core.engines.arrow import share_files
from tests.support.inside import engine_of
from tests.support.tables import Make
from tests.table.engines.conftest import PAGE, ROWS

F = pc.field


def sorted_rows(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).sort_by("k").combine_chunks()


@pytest.mark.parametrize("target", [3 * PAGE, 10 * PAGE, ROWS])
def test_fragments_are_the_dataset(reader: kc.Table, target: int) -> None:
    dataset = reader.to_dataset()
    fragments = list(dataset.get_fragments(target_rows=target))
    assert len(fragments) == {3 * PAGE: 14, 10 * PAGE: 4, ROWS: 2}[target]
    assert sum(fragment.rows for fragment in fragments) == ROWS
    whole = reader.scan().to_table().sort_by("k").combine_chunks()
    assert sorted_rows([fragment.to_table() for fragment in fragments]) == whole
    for fragment in fragments:
        assert fragment.physical_schema == dataset.schema
        part = ds.InMemoryDataset(fragment.to_table(dataset.schema, ["k"]))
        assert part.count_rows(filter=fragment.partition_expression) == fragment.count_rows()


def test_a_fragment_answers_as_the_dataset(reader: kc.Table) -> None:
    dataset = reader.to_dataset().filter(F("w") < 500)
    whole = ds.InMemoryDataset(reader.scan(where=F("w") < 500).to_table())
    where = (F("k") >= ROWS // 2 - 3) & (F("v") < ROWS + 10)
    fragments = list(dataset.get_fragments(where, target_rows=PAGE))
    wanted = whole.to_table(columns=["k", "s"], filter=where).sort_by("k")
    asked: list[Callable[[Any], pa.Table]] = [
        lambda f: f.to_table(columns=["k", "s"], filter=where),
        lambda f: f.scanner(dataset.schema, columns=["k", "s"], filter=where, batch_size=100).to_table(),
        lambda f: pa.table(f.scanner(columns=["k", "s"], filter=where)),
        lambda f: pa.Table.from_batches(f.to_batches(columns=["k", "s"], filter=where), wanted.schema),
        lambda f: f.scanner(columns={"k": F("k"), "s": F("s")}, filter=where).to_table(),
    ]
    for ask in asked:
        assert sorted_rows([ask(fragment) for fragment in fragments]) == wanted.combine_chunks()
    assert sum(fragment.count_rows(where) for fragment in fragments) == wanted.num_rows
    first = next(dataset.get_fragments(target_rows=PAGE))
    assert first.count_rows() == first.to_table().num_rows
    assert first.take(pa.array([3, 1]), ["k"])["k"].to_pylist() == [3, 1]
    assert first.head(3, ["k"])["k"].to_pylist() == [0, 1, 2]
    assert first.scanner(columns=["k"]).head(2)["k"].to_pylist() == [0, 1]
    assert first.scanner(columns=["k"]).take(pa.array([5]))["k"].to_pylist() == [5]
    with pytest.raises(kc.NotSupported, match="columns"):
        first.to_table(pa.schema([("k", pa.int64())]))
    with pytest.raises(kc.InvalidArgument, match="target_rows"):
        dataset.get_fragments(target_rows=0)


def test_a_filter_leaves_fragments_out(read_by: Any) -> None:
    def of(where: pc.Expression) -> Callable[[kc.Table], int]:
        return lambda t: len(list(t.to_dataset().get_fragments(where, target_rows=2 * PAGE)))

    assert read_by(of(F("k") >= 0))[0] == 20
    assert read_by(of(F("k") < 5)) == (1, 0)
    assert read_by(of(F("k") < -5)) == (0, 0)
    assert read_by(of(F("v") == 77_000)) == (1, 0)
    assert read_by(of(F("s") == "nobody")) == (0, 0)
    # And within a fragment: the page of v that has it, and the one of the key.
    found, pages = read_by(lambda t: [f.to_table(columns=["k"], filter=F("v") == 77_000).num_rows
                                      for f in t.to_dataset().get_fragments()])  # fmt: skip
    assert sum(found) == 1 and pages <= 2


@pytest.mark.parametrize("seed", range(5))
def test_random_tables(make: Make, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Keys of several types, rows in memory and in files, some deleted: nothing is lost at a border."""
    draw = random.Random(seed)
    kinds = [pa.string(), pa.int32(), pa.date32(), pa.decimal128(12, 2), pa.timestamp("us")]
    key_types = draw.sample(kinds, 2)
    schema = pa.schema([*((f"k{i}", t) for i, t in enumerate(key_types)), ("v", pa.int64())])
    table = make(schema, ["k0", "k1"], partition_by=kc.HashPartition("k0", 2))

    def cells(type_: pa.DataType) -> pa.Array:
        numbers = pa.array([draw.randrange(60) for _ in range(150)], pa.int32())
        return (numbers.cast(pa.int64()) if pa.types.is_timestamp(type_) else numbers).cast(type_)

    monkeypatch.setattr(share_files, "FILE_ROWS", 40)
    for number in range(3):
        table.upsert(pa.table([*map(cells, key_types), cells(pa.int64())], schema))
        if number < 2 and draw.random() < 0.7:
            table.flush()
    table.delete(where=F("v") < 10)
    dataset = table.to_dataset()
    wanted = table.scan().to_table().sort_by([("k0", "ascending"), ("k1", "ascending")])
    fragments = list(dataset.get_fragments(target_rows=40))
    assert len(fragments) > 2
    for other in (fragments, [pickle.loads(pickle.dumps(fragment)) for fragment in fragments]):
        found = pa.concat_tables([fragment.to_table() for fragment in other])
        assert found.sort_by([("k0", "ascending"), ("k1", "ascending")]) == wanted
    in_cpp = ds.Scanner.from_dataset(dataset).to_table()
    assert in_cpp.sort_by([("k0", "ascending"), ("k1", "ascending")]) == wanted
    for row in draw.sample(wanted.to_pylist(), 10):
        where = F("k0") == pa.scalar(row["k0"], key_types[0])
        alike = [r for r in wanted.to_pylist() if r["k0"] == row["k0"]]
        assert ds.Scanner.from_dataset(dataset, filter=where).count_rows() == len(alike), f"seed {seed}"


WORDS = ["", "a", "a\0", "a\0b", "\x7f", "\u00e4b", "\u00ff", "\u00ffz", "\uffff", "\U0010ffff"]


def test_bounds_of_text(make: Make) -> None:
    """What all texts with a prefix lie below is no text, and so nothing that Arrow could be told."""
    schema = pa.schema([("k", pa.string()), ("n", pa.int32())])
    table = make(schema, ["k", "n"])
    table.insert({"k": WORDS, "n": list(range(len(WORDS)))})
    dataset = table.to_dataset()
    for word in WORDS:
        for where in (pc.starts_with(F("k"), word), F("k") > word, F("k") <= word, F("k") == word):
            wanted = sorted(table.scan(["n"], where).to_table()["n"].to_pylist())
            for read in (dataset.filter(where), dataset):
                filter = None if read is not dataset else where
                found = ds.Scanner.from_dataset(read, filter=filter).to_table()["n"].to_pylist()
                assert sorted(found) == wanted
            for fragment in dataset.get_fragments(where, target_rows=3):
                rows = ds.InMemoryDataset(fragment.to_table())
                assert rows.count_rows(filter=fragment.partition_expression) == fragment.count_rows()


def test_fragments_are_one_snapshot(make: Make) -> None:
    """In this process with the columns of the dataset, elsewhere with their names of then."""
    table = make(history_retention_s=0)
    table.insert({"k": list(range(100)), "a": [1] * 100})
    fragments = list(table.to_dataset().get_fragments(target_rows=10))
    far = pickle.dumps(fragments)
    table.update({"k": list(range(100)), "a": [2] * 100})
    table.delete([0])
    table.flush()
    table.alter(rename={"a": "b"})
    table.gc()
    assert sum(fragment.count_rows() for fragment in fragments) == 100
    for there in (fragments, pickle.loads(far)):
        assert {a for f in there for a in f.to_table(columns=["a"])["a"].to_pylist()} == {1}
    del fragments, there
    assert engine_of(table).pins.oldest is None
    table.gc()
    with pytest.raises(kc.SnapshotTooOld):
        pickle.loads(far)


def rows_of(fragment: Any) -> int:
    found: int = fragment.count_rows(F("w") < 10)
    return found


def test_fragments_in_spawned_processes(folder: Path, reader: kc.Table) -> None:
    fragments = list(reader.to_dataset().filter(F("k") < 5 * PAGE).get_fragments(target_rows=2 * PAGE))
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.map(rows_of, fragments)
    assert len(found) > 1 and sum(found) == reader.count((F("w") < 10) & (F("k") < 5 * PAGE))
