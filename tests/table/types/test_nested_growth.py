"""Fields that are added to structs, at any depth: in lists, views, vectors and maps."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core._ext.base.status import PageError
from kudu_core.common.rows.flattened import flat_batch
from kudu_core.common.types.nested.nested_layout import layout_of
from kudu_core.table.jobs import commit
from tests.support.inside import handle_of
from tests.support.nested.drawn import FLAT, nested_type
from tests.support.tables import Make
from tests.table.types.test_nested_random import Story, rows_of

SHORT, LONG = 5, 800
INNER = pa.struct([("x", pa.int32())])
SCHEMA = pa.schema([
    ("k", pa.int64()),
    ("v", pa.list_(INNER)),
    ("f", pa.list_(pa.struct([("y", pa.list_(INNER, 2))]), 2)),
    ("m", pa.map_(pa.string(), INNER)),
    ("s", pa.struct([("l", pa.large_list(INNER))])),
])  # fmt: skip
ROW: dict[str, Any] = {
    "v": [{"x": 1}, None], "f": [{"y": [{"x": 2}, {"x": 3}]}, {"y": None}],
    "m": [("a", {"x": 4}), ("b", None)], "s": {"l": [{"x": 5}]},
}  # fmt: skip
ADDED = [
    pa.field("v[].n", pa.list_(pa.string())), pa.field("f[].y[].w", pa.decimal128(5, 2)),
    pa.field("m[].value.e", pa.struct([("t", pa.bool_())])), pa.field("s.l[].u", pa.list_(pa.int8(), 2)),
]  # fmt: skip
GROWN: dict[str, Any] = {
    "v": [{"x": 1, "n": None}, None],
    "f": [{"y": [{"x": 2, "w": None}, {"x": 3, "w": None}]}, {"y": None}],
    "m": [("a", {"x": 4, "e": None}), ("b", None)],
    "s": {"l": [{"x": 5, "u": None}]},
}
NEW: dict[str, Any] = {
    "v": [{"x": None, "n": ["p", None]}], "f": [None, {"y": [None, {"x": 1, "w": 7}]}],
    "m": [("c", {"x": 1, "e": {"t": True}})], "s": {"l": [{"x": 1, "u": [3, None]}, None]},
}  # fmt: skip
NOTHING: dict[str, Any] = dict.fromkeys(ROW)


# ---- any type, any operation, any state ----


def _structs(type_: pa.DataType, place: list[str]) -> Iterator[list[str]]:
    """Paths to the structs of a type."""
    if pa.types.is_struct(type_):
        yield place
        for field in type_:
            yield from _structs(field.type, [*place, field.name])
    elif pa.types.is_map(type_):
        yield from _structs(type_.item_type, [*place, "[]", "value"])
    elif hasattr(type_, "value_field"):
        yield from _structs(type_.value_type, [*place, "[]"])


def _with(value: Any, steps: list[str], name: str) -> Any:
    """A value whose structs at the end of the steps have another field, NULL."""
    if value is None:
        return None
    if not steps:
        return {**value, name: None}
    if steps[0] != "[]":
        return {**value, steps[0]: _with(value[steps[0]], steps[1:], name)}
    if steps[1:2] == ["value"] and value and isinstance(value[0], tuple):
        return [(key, _with(item, steps[2:], name)) for key, item in value]
    return [_with(item, steps[1:], name) for item in value]


class Growing(Story):
    """A story whose structs get fields."""

    grown = 0

    def grow(self) -> None:
        rng = self.rng
        places = [place for field in self.values for place in _structs(field.type, [field.name])]
        for steps in rng.sample(places, min(len(places), rng.choice((1, 2)))):
            self.grown += 1
            name = f"g{self.grown}"
            type_ = rng.choice((rng.choice(FLAT), nested_type(rng, 1), nested_type(rng, 2)))
            before = self.table.scan()
            path = "".join(step if step == "[]" else f".{step}" for step in [*steps, name])[1:]
            self.table.alter(add=[pa.field(path, type_)])
            assert rows_of(before.to_table()) == self.state, "a scan that was made before keeps its columns"
            self.schema = self.table.schema
            states = [self.state, *(state for _, state in self.past)]
            for state in states:
                for key, row in state.items():
                    state[key] = {**row, steps[0]: _with(row[steps[0]], steps[1:], name)}


@pytest.mark.timeout(7200)
def test_tables_whose_structs_grow_agree_with_a_model(
    make: Make, tmp_path: Path, seed: int, long: bool
) -> None:
    grown = 0
    for case in range(LONG if long else SHORT):
        rng = random.Random(f"{seed} growth {case}")
        story = Growing(rng, make, tmp_path / f"t{case}")
        try:
            for _ in range(16):
                rng.choice((story.write, story.write, story.write, story.delete, story.upkeep, story.grow))()
                if rng.random() < 0.3:
                    story.look(None, story.state)
            for moment in [(None, story.state), *story.past]:
                story.look(*moment)
            story.told()
            story.table.verify()
            with kc.open_table(story.path) as reader:
                assert rows_of(reader.scan().to_table()) == story.state
            grown += story.grown
        except Exception as error:
            raise AssertionError(f"seed {seed}, case {case}: {story.schema}") from error
        finally:
            story.table.close()
    assert grown


# ---- each kind of list, each state of the rows ----


@pytest.fixture
def table(make: Make, tmp_path: Path) -> kc.Table:
    made = make(SCHEMA, at=tmp_path / "t", durability="sync")
    made.insert([{"k": 1, **ROW}, {"k": 2}, {"k": 3, "v": [], "m": {}, "s": {"l": []}}])
    return made


@pytest.mark.parametrize("state", ["memory", "flushed", "churned", "merged"])
def test_rows_of_every_state_have_the_field(table: kc.Table, state: str) -> None:
    before = table.timestamp
    if state != "memory":
        table.flush()
    if state == "churned":
        table.update({"k": [1], "v": [[]]})
        table.update({"k": [1], "v": [ROW["v"]]})
    if state == "merged":
        table.insert([{"k": 4}])
        table.delete(4)
        table.flush()
        table.compact(full=True)
    opened = kc.open_table(table.path)
    table.alter(add=ADDED)
    assert table.get(1) == {"k": 1, **GROWN}
    assert table.get(2) == {"k": 2, **NOTHING}
    assert table.get_many([1]).drop_columns(["_found"]).to_pylist() == [{"k": 1, **GROWN}]
    table.update([{"k": 2, **NEW}])
    begin = table.timestamp
    expected = [{"k": 1, **GROWN}, {"k": 2, **NEW}, {"k": 3, **NOTHING, "v": [], "m": [], "s": {"l": []}}]
    assert table.scan(order="key").to_pylist() == expected
    assert table.scan(["v"], at=before, order="key").to_pylist()[:2] == [{"v": GROWN["v"]}, {"v": None}]
    assert table.count(pc.field("v") == pa.scalar(GROWN["v"], table.schema.field("v").type)) == 1
    opened.refresh()
    assert opened.scan(order="key").to_pylist() == expected
    opened.close()
    table.upsert({"k": [1], "m": [NEW["m"]]})
    table.delete(3)
    told = table.changes(begin, table.timestamp, images="both").to_table().to_pylist()
    assert [row["m"] for row in told if row["k"] == 1] == [NEW["m"]]
    assert [row["v"] for row in told if row["k"] == 1] == [GROWN["v"]]
    expected = [{"k": 1, **GROWN, "m": NEW["m"]}, expected[1]]
    table.close()
    with kc.open_table(table.path, "rw") as again:  # of the log
        assert again.scan(order="key").to_pylist() == expected
        again.alter(add=[pa.field("m[].value.e.z", pa.string())])
        again.flush()
        again.compact(full=True)
        assert again.get(1)["m"] == [("c", {"x": 1, "e": {"t": True, "z": None}})]  # type: ignore[index]
        again.verify()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("v[].x", r"'v\[\]' has a field 'x' already"),
        ("v[]", "'v' is list.*and no list of structs"),
        ("v[]n", r"""'v\[\]n': a field of a struct is named with dots.*as "items\[\]\.price\""""),
        ("v[0].n", "is named with dots"),
        ("v.n", r"""'v' is list.*; one of what is in it is named "v\[\]\.n\""""),
        ("s[].n", "'s' is struct.*no list of structs"),
        ("s.l.n", r'is named "s\.l\[\]\.n"'),
        ("m[].key", r'is a map; a field is added to its values, as "m\[\]\.value\.x"'),
        ("m[].key.n", "is a map; a field is added to its values"),
        ("m[].value", "is a map; a field is added to its values"),
        ("v[].x.n", r"'v\[\]\.x' is int32; a field is added to a struct"),
        ("v[].z.n", r"'v\[\]' has no field 'z'"),
    ],
)
def test_what_names_no_struct_is_refused(table: kc.Table, name: str, why: str) -> None:
    before = table.schema
    with pytest.raises(kc.InvalidArgument, match=why):
        table.alter(add=[pa.field(name, pa.int8())])
    assert table.schema == before


def test_all_kinds_of_lists_keep_their_kind(make: Make) -> None:
    element = pa.field("entry", INNER, False, metadata={"why": "kept"})
    kinds: dict[str, pa.DataType] = {
        "a": pa.list_(element), "b": pa.large_list(element), "c": pa.list_view(element),
        "d": pa.large_list_view(element), "e": pa.list_(element, 1),
        "f": pa.map_(pa.string(), pa.field("v", INNER, False), keys_sorted=True),
    }  # fmt: skip
    table = make(pa.schema([("k", pa.int64()), *kinds.items()]))
    names = [f"{name}[].value.n" if name == "f" else f"{name}[].n" for name in kinds]
    table.alter(add=[pa.field(name, pa.int8()) for name in names])
    grown = pa.struct([("x", pa.int32()), ("n", pa.int8())])
    for name, type_ in kinds.items():
        after = table.schema.field(name).type
        assert type(after) is type(type_)
        field = after.item_field if name == "f" else after.value_field
        assert field.type == grown and not field.nullable
    assert table.schema.field("e").type.list_size == 1 and table.schema.field("f").type.keys_sorted


# ---- calls that an ALTER overtakes ----


@pytest.mark.parametrize("operation", ["insert", "upsert", "update"])
def test_a_batch_that_is_overtaken_gives_whole_values(table: kc.Table, operation: str) -> None:
    """The rows that are there have the new field, and those of the call have not."""
    key = 9 if operation == "insert" else 2
    with table.batch() as batch:
        getattr(batch, operation)([{"k": key, **ROW}])
        table.alter(add=[*ADDED, pa.field("s.n", pa.int8())])
        if operation != "insert":
            table.upsert([{"k": 2, **NEW, "s": {**NEW["s"], "n": 3}}])
    expected = {"k": key, **GROWN, "s": {**GROWN["s"], "n": None}}
    assert table.get(key) == expected
    assert table.get(key, ["s.n"]) == {"s.n": None}
    table.close()
    with kc.open_table(table.path, "rw") as again:
        assert again.get(key) == expected
        again.verify()


def test_a_batch_that_gives_a_field_says_nothing_of_its_neighbour(make: Make) -> None:
    table = make(pa.schema([("k", pa.int64()), ("s", pa.struct([("b", pa.int8()), ("l", pa.list_(INNER))]))]))
    with table.batch() as batch:
        batch.upsert({"k": [2], "s.l": [[{"x": 5}]]})
        table.alter(add=[pa.field("s.n", pa.int8()), pa.field("s.l[].u", pa.int8())])
        table.upsert([{"k": 2, "s": {"b": 1, "l": [{"x": 1, "u": 1}], "n": 3}}])
    assert table.get(2, ["s"]) == {"s": {"b": 1, "l": [{"x": 5, "u": None}], "n": 3}}


@pytest.mark.parametrize("ignore_null", [False, True])
@pytest.mark.parametrize("threshold", [1, 1000])
def test_a_job_that_is_overtaken_gives_whole_values(
    make: Make, tmp_path: Path, ignore_null: bool, threshold: int
) -> None:
    table = make(SCHEMA, at=tmp_path / "t", ingest_threshold_rows=threshold)
    given = pa.RecordBatch.from_pylist([{"k": 1, **ROW}, {"k": 2, **NOTHING}], schema=SCHEMA)
    batch, _, _ = flat_batch(handle_of(table).opened().schema, given)
    columns = [(field.name, str(field.type)) for field in batch.schema]
    job = commit.begin(handle_of(table), "upsert", columns, ignore_null=ignore_null)
    stager = commit.stager(job, "0")
    stager.append(batch)
    staged = stager.finish()
    table.alter(add=ADDED)
    table.insert([{"k": 1, **NEW}, {"k": 2, **NEW}])
    commit.commit_job(job, staged, handle_of(table))
    assert table.get(1) == {"k": 1, **GROWN}
    assert table.get(2) == {"k": 2, **(NEW if ignore_null else NOTHING)}
    table.verify()


# ---- what is stored ----


def test_only_a_field_that_could_be_missing_may_be_without_bytes() -> None:
    """The first field of a struct was there before all others, and what takes no NULL was never added."""
    fields = [pa.field("a", pa.int8()), pa.field("b", pa.int8()), pa.field("c", pa.int8(), False)]
    type_ = pa.list_(pa.list_(pa.struct(fields)))
    layout = layout_of("v", type_, True)
    row = [[{"a": 1, "b": 2, "c": 3}], []]
    names = [leaf.name for leaf in layout.leaves]
    sound = dict(zip(names, layout.flatten(pa.array([row, row], type_)), strict=True))
    for name, taken in (("a", False), ("b", True), ("c", False)):
        leaves = {**sound, f"v[][].{name}": pa.array([b"", b"\5"], pa.binary())}
        if taken:
            made = layout.assemble(list(leaves.values())).to_pylist()
            assert [element[0][0][name] for element in made] == [None, 5]
        else:
            with pytest.raises(PageError, match="row 0: a cell has not 1 bytes for each element"):
                layout.assemble(list(leaves.values()))


def test_a_field_that_is_missing_has_no_other_streams() -> None:
    layout = layout_of("v", pa.list_(pa.struct([("a", pa.int8()), ("b", pa.string())])), True)
    leaves = layout.flatten(pa.array([[{"a": 1, "b": "x"}]], layout.arrow))
    place = [leaf.name for leaf in layout.leaves].index("v[].b:length")
    leaves[place] = pa.array([b""], pa.binary())
    with pytest.raises(PageError, match="bytes, where another leaf has none"):
        layout.assemble(leaves)


def test_what_a_damaged_length_says_is_not_filled() -> None:
    layout = layout_of("v", pa.list_(pa.list_(pa.struct([("a", pa.int8()), ("b", pa.int64())]))), True)
    leaves = layout.flatten(pa.array([[[{"a": 1}]]], layout.arrow))
    leaves[0] = pa.array([np.int32(1 << 27).tobytes()], pa.binary())
    leaves[[leaf.name for leaf in layout.leaves].index("v[][].b")] = pa.array([b""], pa.binary())
    tracemalloc.start()
    try:
        with pytest.raises(PageError, match=r"'v\[\]\[\].a'.*has not 1 bytes for each element"):
            layout.assemble(leaves)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
