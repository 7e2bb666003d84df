"""What writes by predicate read: the key, the condition's columns and those that ``set=`` names.

Counted at the file system, over handles without a cache of pages: one call for each column and run of pages.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.table.write import where
from tests.support.fs.counting import counting, reads
from tests.support.tables import Make

ROWS = 400
FEW, MANY = 4, 40


@pytest.fixture
def cost(make: Make, path: Path) -> Callable[..., int]:
    """``cost(columns, act)``: what a write reads of a table of so many value columns, all in files."""

    def measured(columns: int, act: Callable[[kc.Table], kc.WriteResult], rows: int = 2) -> int:
        at = path / f"{columns}-{len(list(path.glob('*')))}"
        at.parent.mkdir(exist_ok=True)
        names = [f"v{number}" for number in range(columns)]
        table = make(pa.schema([("k", pa.int64()), *((name, pa.int64()) for name in names)]), at=at)
        table.insert({"k": range(ROWS), **{name: range(ROWS) for name in names}})
        table.flush()
        table.close()
        fs, table = counting(at, {"maintenance": "manual", "durability": "none"}, mode="rw")
        with table:
            table.delete(where=pc.field("k") == ROWS - 1)  # opens what there is to open
            before = reads(fs)
            result = act(table)
            assert sum(result.counts) == rows
            return reads(fs) - before

    return measured


WRITES: dict[str, Callable[[kc.Table], kc.WriteResult]] = {
    "a delete by the key": lambda t: t.delete(where=pc.field("k") < 2),
    "a delete by a value": lambda t: t.delete(where=pc.field("v1") < 2),
    "a literal": lambda t: t.update(where=pc.field("k") < 2, set={"v0": 7}),
    "a literal by a value": lambda t: t.update(where=pc.field("v1") < 2, set={"v0": 7}),
    "an expression": lambda t: t.update(where=pc.field("k") < 2, set={"v0": pc.field("v2") + 1}),
    "a condition": lambda t: t.update(
        where=pc.field("k") < 2, set={"v0": pc.if_else(pc.field("v2") > 0, pc.field("v3"), 0)}
    ),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_other_columns_are_not_read(
    cost: Callable[..., int], write: Callable[[kc.Table], kc.WriteResult]
) -> None:
    assert cost(MANY, write) == cost(FEW, write) < MANY


def test_each_column_that_is_named_is_read(cost: Callable[..., int]) -> None:
    def write(*names: str) -> Callable[[kc.Table], kc.WriteResult]:
        new = {f"v{at}": pc.field(name) for at, name in enumerate(names)}
        return lambda table: table.update(where=pc.field("k") < 2, set=new)

    one = cost(MANY, write("v9"))
    each = cost(MANY, write("v9", "v8")) - one
    assert each > 0
    assert cost(MANY, write("v9", "v8", "v7")) == one + 2 * each
    assert cost(MANY, write("v9", "v9")) == one, "each once"
    assert cost(MANY, write("k")) == one - each, "the key is read in any case"


def test_an_expression_that_is_not_understood_may_name_any_column(
    cost: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, "parse", lambda _: None)
    assert cost(MANY, lambda t: t.update(where=pc.field("k") < 2, set={"v0": pc.field("v2") + 1})) >= MANY
    assert cost(MANY, lambda t: t.update(where=pc.field("k") < 2, set={"v0": 7})) < MANY, (
        "a literal names none"
    )


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (pc.field("nothing"), "no column 'nothing'"),
        (pc.field("v") + pc.field("nothing"), "no column 'nothing'"),
        (pc.field("v", "inner"), "no column 'v.inner'"),
        (pc.field(1), "named, not numbered"),
        (pc.field("s") + 1, "set: "),
        (pc.field("s"), "'v'"),
    ],
)
def test_what_does_not_fit_is_found_before_anything_is_locked(
    make: Make, new: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())]))
    table.insert({"k": [1], "v": [2], "s": ["x"]})
    monkeypatch.setattr(where, "prune_tablets", lambda *_: pytest.fail("the write had begun"))
    with pytest.raises((kc.InvalidArgument, kc.SchemaMismatch), match=message):
        table.update(where=pc.field("k") == 1, set={"v": new})
    assert table.scan().to_pylist() == [{"k": 1, "v": 2, "s": "x"}]
