"""Random tables with columns of lists, structs and maps beside a model: every operation, any past state."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support.nested.drawn import as_bits, nested_array, nested_type
from tests.support.tables import Make

Row = dict[str, Any]
State = dict[int, Row]
KEYS = 12
UTC = "zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc"
SHORT, LONG = 10, 1_500


def cells_of(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Cells that equal themselves: floats by their bits."""
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    return [cell for chunk in chunks for cell in _whole(as_bits(_compact(chunk))).to_pylist()]


def _whole(array: pa.Array) -> pa.Array:
    array.validate(full=True)
    return array


def _compact(array: pa.Array) -> pa.Array:
    """An array that begins at its buffers' first cell.  Not by ``take``, which gives wrong cells of a slice
    of a fixed_size_list inside of another (pyarrow 26)."""
    if array.offset == 0:
        return array
    batch, sink = pa.record_batch([array], ["a"]), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as out:
        out.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch().column(0)


class Story:
    """A table, its model, and the states that were."""

    def __init__(self, rng: random.Random, make: Make, path: Path) -> None:
        self.rng, self.path = rng, path
        fields = [
            pa.field(f"c{place}", nested_type(rng, rng.choice((1, 2, 3))), rng.random() < 0.7)
            for place in range(rng.randrange(1, 4))
        ]
        fields.insert(rng.randrange(len(fields) + 1), pa.field("k", pa.int64(), False))
        self.schema = pa.schema([*fields, pa.field("n", pa.int32())])
        self.options = {
            "ingest_threshold_rows": rng.choice((1, 100_000)),
            "maintenance": "manual",
            "durability": "none",
        }
        self.table = make(self.schema, at=path, **self.options)
        self.state: State = {}
        self.past: list[tuple[int, State]] = []
        self.begin = self.table.timestamp

    @property
    def values(self) -> list[pa.Field]:
        return [field for field in self.schema if field.name != "k"]

    def rows(self, keys: list[int], names: list[str]) -> pa.Table:
        arrays = {"k": pa.array(keys, pa.int64())}
        for name in names:
            field = self.schema.field(name)
            if name == "n":
                arrays[name] = pa.array([self.rng.choice((None, 1, -7)) for _ in keys], field.type)
            else:
                arrays[name] = nested_array(self.rng, field.type, len(keys), field.nullable)
        fields = [self.schema.field(name) for name in arrays]
        return pa.table(list(arrays.values()), schema=pa.schema(fields))

    def write(self) -> None:
        rng = self.rng
        operation = rng.choice(("insert", "upsert", "upsert", "update"))
        keys = rng.sample(range(KEYS), rng.choice((1, 2, 5)))
        if operation == "insert":
            keys = [key for key in keys if key not in self.state]
        if operation == "update":
            keys = [key for key in keys if key in self.state]
        names = [f.name for f in self.values if operation != "update" or rng.random() < 0.6]
        if not keys or not names:
            return
        given = self.rows(keys, names)
        cells = {name: cells_of(given[name]) for name in names}
        data: Any = given
        if rng.random() < 0.3:
            data = given.combine_chunks().to_batches()[0]
        result = getattr(self.table, operation)(data)
        for place, key in enumerate(keys):
            old = self.state.get(key, {field.name: None for field in self.values})
            self.state[key] = {**old, **{name: cells[name][place] for name in names}}
        self.past.append((result.timestamp, dict(self.state)))

    def delete(self) -> None:
        keys = [key for key in self.state if self.rng.random() < 0.2]
        if keys:
            result = self.table.delete(keys)
            for key in keys:
                del self.state[key]
            self.past.append((result.timestamp, dict(self.state)))

    def upkeep(self) -> None:
        kind = self.rng.choice(("flush", "flush", "compact", "reopen"))
        if kind == "reopen":
            self.table.close()
            self.table = kc.open_table(self.path, "rw", options=kc.Options(**self.options))
        else:
            getattr(self.table, kind)()

    def look(self, at: int | None, state: State) -> None:
        rng, names = self.rng, [field.name for field in self.values]
        found = self.table.scan(at=at, order=rng.choice(("any", "key"))).to_table()
        assert found.schema.equals(self.table.schema)
        assert rows_of(found) == state
        asked = rng.sample(range(KEYS + 3), 4)
        many = self.table.get_many(asked, at=at)
        assert many["_found"].to_pylist() == [key in state for key in asked]
        assert {k: r for k, r in rows_of(many.drop_columns(["_found"])).items() if k in state} == {
            key: state[key] for key in asked if key in state
        }
        try:
            row = self.table.get(asked[0], at=at)
            assert (row is None) == (asked[0] not in state)
            cells = {name: many[name][0].as_py() for name in many.column_names[:-1]}
            assert row is None or repr(row) == repr(cells).replace(*UTC)
        except (kc.InvalidArgument, OverflowError, ValueError) as error:
            if not isinstance(error, kc.InvalidArgument):
                with pytest.raises(kc.InvalidArgument):
                    self.table.get(asked[0], at=at)
                return
            assert "Python's" in str(error)
        name = rng.choice(names)
        some = self.table.scan([name, "k"], at=at).to_table()
        assert dict(zip(some["k"].to_pylist(), cells_of(some[name]), strict=True)) == {
            key: row[name] for key, row in state.items()
        }
        missing = sum(row[name] is None for row in state.values())
        assert self.table.count(where=pc.field(name).is_null(), at=at) == missing
        assert self.table.count(where=pc.field(name).is_valid(), at=at) == len(state) - missing
        self.parts(found, at)

    def parts(self, found: pa.Table, at: int | None) -> None:
        """Fields of structs by their paths are what the whole columns say."""
        for field in self.values:
            if not pa.types.is_struct(field.type) or found.num_rows == 0:
                continue
            child = self.rng.choice(list(field.type))
            path = f"{field.name}.{child.name}"
            part = self.table.scan(["k", path], at=at).to_table()
            got = dict(zip(part["k"].to_pylist(), cells_of(part[path]), strict=True))
            whole = dict(zip(found["k"].to_pylist(), cells_of(found[field.name]), strict=True))
            assert got == {key: None if row is None else row[child.name] for key, row in whole.items()}

    def told(self) -> None:
        """Changes, applied one after the other, make the state; net ones too."""
        for net in (False, True):
            copy: State = {}
            changes = self.table.changes(self.begin, self.table.timestamp, net=net).to_table()
            for op, key, row in zip(
                changes["_op"].to_pylist(),
                changes["k"].to_pylist(),
                rows_in_order(changes.select([f.name for f in self.values])),
                strict=True,
            ):
                if op == "delete":
                    del copy[key]
                    assert set(row.values()) == {None}
                else:
                    copy[key] = row
            assert copy == self.state


def rows_in_order(table: pa.Table) -> list[Row]:
    columns = {name: cells_of(table[name]) for name in table.schema.names}
    return [{name: cells[place] for name, cells in columns.items()} for place in range(table.num_rows)]


def rows_of(table: pa.Table) -> State:
    keys = table["k"].to_pylist()
    rows = rows_in_order(table.drop_columns(["k"]))
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, rows, strict=True))


@pytest.mark.timeout(7200)
def test_tables_of_nested_columns_agree_with_a_model(
    make: Make, tmp_path: Path, seed: int, long: bool
) -> None:
    for case in range(LONG if long else SHORT):
        rng = random.Random(f"{seed}-{case}")
        story = Story(rng, make, tmp_path / f"t{case}")
        try:
            for _ in range(14):
                rng.choice((story.write, story.write, story.write, story.delete, story.upkeep))()
                if rng.random() < 0.3:
                    story.look(None, story.state)
            story.look(None, story.state)
            if story.past:
                story.look(*rng.choice(story.past))
            story.told()
            tokens = pickle.loads(pickle.dumps(story.table.scan_tokens()))
            parts = [story.table.scan_token(token).to_table() for token in tokens]
            assert rows_of(pa.concat_tables(parts) if parts else story.schema.empty_table()) == story.state
            story.table.verify()
            story.table.backup(tmp_path / f"b{case}")
            with kc.restore(tmp_path / f"b{case}", tmp_path / f"r{case}") as again:
                assert again.schema == story.table.schema
                assert rows_of(again.scan().to_table()) == story.state
        except Exception as error:
            raise AssertionError(f"seed {seed}, case {case}: {story.schema}") from error
        finally:
            story.table.close()
