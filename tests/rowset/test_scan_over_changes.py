"""Scans over changes: what the kernels read and lay changes over is what a dictionary holds.

Changes lie in memory, in files, in both; rows are chosen whole, by masks, by ranges, singly; snapshots
cut through a store of changes.
"""

from __future__ import annotations

import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core._ext.changes import replay as replay_kernel
from kudu_core.cfile.files import delta_pieces
from kudu_core.rowset.disk import patches
from kudu_core.rowset.memory import column_log, logged

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("f64", pa.float64()),
        ("f32", pa.float32()),
        ("i16", pa.int16()),
        ("u8", pa.uint8()),
        ("flag", pa.bool_()),
        ("money", pa.decimal128(20, 2)),
        ("name", pa.string()),
    ]
)
ROWS = 3000
Row = dict[str, Any]


def random_cells(rng: np.random.Generator, n: int, column: str) -> list[Any]:
    raw = rng.integers(0, 100, n).tolist()
    made: list[Any]
    if column in ("f64", "f32"):
        made = [value / 4 for value in raw]
    elif column == "flag":
        made = [value % 2 == 0 for value in raw]
    elif column == "money":
        made = [decimal.Decimal(value).scaleb(-2) for value in raw]
    elif column == "name":
        made = [f"name {value}" for value in raw]
    else:
        made = raw
    nulls = rng.random(n) < rng.choice([0, 0.2])
    return [None if null else value for null, value in zip(nulls, made, strict=True)]


class Model:
    """The table and what it must hold, now and at the timestamps kept."""

    def __init__(self, table: kc.Table, rng: np.random.Generator) -> None:
        self.table, self.rng = table, rng
        self.rows: dict[int, Row] = {}
        self.kept: list[tuple[int, dict[int, Row]]] = []

    def keep(self, ts: int) -> None:
        self.kept.append((ts, {id_: dict(row) for id_, row in self.rows.items()}))

    def insert(self, ids: list[int]) -> None:
        cells = {f.name: random_cells(self.rng, len(ids), f.name) for f in SCHEMA if f.name != "id"}
        ts = self.table.upsert(pa.table({"id": ids, **cells}, SCHEMA)).timestamp
        for k, id_ in enumerate(ids):
            self.rows[id_] = {"id": id_, **{name: column[k] for name, column in cells.items()}}
        self.keep(ts)

    def update(self) -> None:
        names = [f.name for f in SCHEMA if f.name != "id" and self.rng.random() < 0.4] or ["f64"]
        count = int(self.rng.choice([1, 30, 600]))
        ids = self.rng.choice(sorted(self.rows), min(count, len(self.rows)), replace=False).tolist()
        cells = {name: random_cells(self.rng, len(ids), name) for name in names}
        schema = pa.schema([SCHEMA.field(name) for name in ("id", *names)])
        ts = self.table.update(pa.table({"id": ids, **cells}, schema)).timestamp
        for k, id_ in enumerate(ids):
            self.rows[id_] |= {name: column[k] for name, column in cells.items()}
        self.keep(ts)

    def delete(self) -> None:
        ids = self.rng.choice(sorted(self.rows), int(self.rng.choice([1, 100])), replace=False).tolist()
        ts = self.table.delete({"id": ids}).timestamp
        for id_ in ids:
            del self.rows[id_]
        self.keep(ts)

    def step(self) -> None:
        what = self.rng.integers(0, 10)
        if what < 6:
            self.update()
        elif what < 7:
            self.delete()
        elif what < 8:
            gone = [id_ for id_ in range(ROWS) if id_ not in self.rows]
            self.insert(gone[: int(self.rng.integers(1, 40))] or [ROWS])
        elif what < 9:
            self.table.flush()
        else:
            self.table.maintain()

    def check(self) -> None:
        at = -1 if self.rng.random() < 0.5 else int(self.rng.integers(len(self.kept)))
        ts, rows = self.kept[at]
        names = [f.name for f in SCHEMA if f.name != "id" and self.rng.random() < 0.6]
        where, passes = CONDITIONS[int(self.rng.integers(len(CONDITIONS)))]
        batch_rows = int(self.rng.choice([64, 1000, 65536]))
        scan = self.table.scan(["id", *names], where, at=ts, batch_rows=batch_rows)
        expected = {id_: row for id_, row in rows.items() if passes(row)}
        found = scan.to_table().to_pylist()
        assert len(found) == len(expected) == scan.count()
        assert {row["id"]: row for row in found} == {
            id_: {name: row[name] for name in ("id", *names)} for id_, row in expected.items()
        }


CONDITIONS: list[tuple[Any, Any]] = [
    (None, lambda row: True),
    (pc.field("u8") >= 50, lambda row: row["u8"] is not None and row["u8"] >= 50),
    (pc.field("u8") == 7, lambda row: row["u8"] == 7),
    (pc.field("f64") < 1, lambda row: row["f64"] is not None and row["f64"] < 1),
    (pc.field("id") == 1234, lambda row: row["id"] == 1234),
    ((pc.field("id") >= 100) & (pc.field("id") < 400), lambda row: 100 <= row["id"] < 400),
    (pc.field("id").isin([3, 900, 2999]), lambda row: row["id"] in (3, 900, 2999)),
    (pc.field("name") == "name 5", lambda row: row["name"] == "name 5"),
]


@pytest.mark.parametrize("patched", [False, True], ids=["piece by piece", "patched"])
@pytest.mark.parametrize("part", range(4))
def test_scans_over_changes_agree_with_a_dictionary(
    part: int, patched: bool, tmp_path: Path, long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Never, or also for scans of a few rows.
    monkeypatch.setattr(patches, "GOOD_PART", ROWS if patched else 0)
    # Pieces that fill, and scans of several pages, with few changes.
    for module in (column_log, logged):
        monkeypatch.setattr(module, "PIECE", 256)
        monkeypatch.setattr(module, "UNSORTED", int(part) * 40)
    for seed in range(part * 100, part * 100 + (40 if long else 1)):
        print(f"seed {seed}")
        rng = np.random.default_rng(seed)
        options = {
            "maintenance": "manual",
            "durability": "none",
            "page_cache_bytes": int(rng.choice([1 << 20, 1 << 26])),
        }
        with kc.create_table(tmp_path / f"t{seed}", SCHEMA, ["id"], options=options) as table:
            model = Model(table, rng)
            model.insert(list(range(ROWS)))
            if rng.random() < 0.7:
                table.flush()
            for _ in range(25):
                model.step()
                model.check()
            table.flush()
            for _ in range(10):
                model.check()


def test_a_partial_scan_decodes_only_its_part_of_a_delta_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, pieces = 400_000, []
    made = delta_pieces.Updates

    def counted(*args: Any, **options: Any) -> replay_kernel.Updates:
        part = made(*args, **options)
        pieces.append(part.count)
        return part

    monkeypatch.setattr(delta_pieces, "Updates", counted)
    schema = pa.schema([("id", pa.int64()), ("a", pa.float64()), ("b", pa.float64())])
    with kc.create_table(tmp_path / "t", schema, ["id"], options={"maintenance": "manual"}) as table:
        base = np.arange(rows)
        table.insert({"id": base, "a": base * 0.5, "b": base * 0.5})
        table.flush()
        # Every other row, and b only in the upper half: its entries are not those of the file.
        table.update({"id": base[::2], "a": -1.0 * base[::2]})
        table.update({"id": base[rows // 2 :: 2], "b": -2.0 * base[rows // 2 :: 2]})
        table.flush()
        part = table.scan(["id", "a"], [("id", ">=", 100_000), ("id", "<", 100_010)]).to_table()
        assert part["a"].to_pylist() == [-id_ if id_ % 2 == 0 else id_ / 2 for id_ in range(100_000, 100_010)]
        assert pieces == [16_384]
        pieces.clear()
        narrow = table.scan(["a"], [("id", ">=", 100_000), ("id", "<", 120_000)]).to_table()
        assert narrow["a"].to_pylist()[:2] == [-100_000, 50_000.5]
        # The pieces of one block of 262,144 rows: 131,072 of 200,000 changes.
        assert 100_000 < sum(pieces) <= 131_072 and max(pieces) <= 16_384
        pieces.clear()
        table.scan(["a"], [("id", ">=", 200_000), ("id", "<", 201_000)]).to_table()
        assert not pieces  # kept in the page cache
        assert table.scan(["b"]).to_table()["b"].to_pylist() == [
            -2.0 * id_ if id_ >= rows // 2 and id_ % 2 == 0 else id_ / 2 for id_ in range(rows)
        ]
        assert sum(pieces) == 100_000
        pieces.clear()
        table.scan(["b"]).to_table()
        table.scan(["id"]).to_table()
        assert not pieces
