"""What a call costs grows as the table does, and no faster: with columns, with tablets, with rowsets.

Counted are the calls of functions, compiled ones too, in tables of one size and of twice that size.  What
asks each of n things about n others needs four times as many.
"""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc

OPTIONS = {"maintenance": "manual", "durability": "none", "scan_threads": 1}
ROWS = 256
PACKAGE = Path(kc.__file__).parent


class World:
    """A table, and what it is asked."""

    def __init__(self, path: Path, columns: int = 4, tablets: int = 1, rowsets: int = 1) -> None:
        self.path = path
        self.names = [f"v{number}" for number in range(columns)]
        self.table = kc.create_table(
            path,
            pa.schema([("k", pa.int64()), *((name, pa.int64()) for name in self.names)]),
            "k",
            partition_by=[kc.HashPartition("k", tablets)] if tablets > 1 else (),
            options=OPTIONS,
        )
        for part in range(rowsets):
            keys = range(part, ROWS * rowsets, rowsets)  # rowsets that overlap
            self.table.insert({"k": keys, **dict.fromkeys(self.names, keys)})
            self.table.flush()
        self.since = self.table.upsert([{"k": 0, "v0": 7}]).timestamp

    def open(self) -> None:
        self.table.close()
        with kc.open_table(self.path, options=OPTIONS) as reader:
            next(iter(reader.scan(["v0"], limit=1)))
        self.table = kc.open_table(self.path, mode="rw", options=OPTIONS)

    def scan(self) -> None:
        self.table.scan().to_table()

    def scan_of_one(self) -> None:
        self.table.scan(["v1"]).to_table()

    def where(self) -> None:
        self.table.scan(["v1"], where=pc.field("v2") < 9).to_table()

    def in_order(self) -> None:
        self.table.scan(["v1"], order="key", limit=10).to_table()

    def get(self) -> None:
        self.table.get(5)
        self.table.get_many([1, 2, 3], ["v1"])

    def update(self) -> None:
        self.table.update({"k": range(64), "v1": range(64)})

    def update_where(self) -> None:
        self.table.update(where=pc.field("v2") < 64, set={"v1": pc.field("v1") + 1})

    def delete_where(self) -> None:
        self.table.delete(where=pc.field("v2") == 11)

    def flush(self) -> None:
        self.table.flush()

    def changes(self) -> None:
        until = self.table.upsert([{"k": 0, "v0": 8}]).timestamp
        assert self.table.changes(self.since, until).to_table().num_rows > 64
        assert self.table.changes(self.since, until, images="both").to_table().num_rows > 64

    def net(self) -> None:
        until = self.table.upsert([{"k": 0, "v0": 9}]).timestamp
        assert self.table.changes(self.since, until, net=True).to_table().num_rows > 60

    def compact(self) -> None:
        self.table.flush()
        self.table.compact(full=True)


CALLS = [
    "scan", "scan_of_one", "where", "in_order", "get", "update", "update_where", "delete_where", "changes",
    "net", "flush", "changes", "net", "scan", "compact", "open",
]  # fmt: skip
"""In this order: changes in memory, then in files."""


def counted(act: Callable[[], Any]) -> int:
    """How many functions a call calls, in this thread."""
    count = 0

    def note(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.collect()
    gc.disable()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def costs(path: Path, **size: int) -> dict[str, int]:
    world = World(path, **size)
    found = {f"{name} {place}": counted(getattr(world, name)) for place, name in enumerate(CALLS)}
    world.table.close()
    return found


@pytest.fixture(scope="module", autouse=True)
def warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is imported or made at the first call is not counted."""
    costs(tmp_path_factory.mktemp("warm") / "t")


@pytest.mark.parametrize(("what", "count"), [("columns", 150), ("tablets", 16), ("rowsets", 24)])
def test_twice_as_much_costs_twice_as_much(tmp_path: Path, what: str, count: int) -> None:
    once, twice = (costs(tmp_path / str(size), **{what: size}) for size in (count, 2 * count))
    grown = {name: round(twice[name] / once[name], 2) for name in once}
    assert max(grown.values()) <= 2.3, grown


def test_columns_that_nobody_asks_for_cost_nothing(tmp_path: Path) -> None:
    once, twice = (costs(tmp_path / str(size), columns=size) for size in (150, 300))
    alone = ("scan_of_one", "where", "in_order", "update", "update_where")
    grown = {name: twice[name] / once[name] for name in once if name.split()[0] in alone}
    assert len(grown) == len(alone) and max(grown.values()) <= 1.1, grown


# A walk through all columns for each column calls nothing: it is not counted above.
ASKED = {
    "rowset/disk/base_file.py": "the columns that a compaction has rewritten, for one column of a predicate",
    "rowset/rows/meta.py": "the same, for one column",
}


def test_no_list_of_all_columns_is_walked_through_for_each() -> None:
    found = set()
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
                listed = node.comparators[0]
                if isinstance(listed, ast.Attribute) and listed.attr == "column_ids":
                    found.add(file.relative_to(PACKAGE).as_posix())
    assert found == ASKED.keys(), "ask whoever has the columns by id, as RowsFile.has does"
