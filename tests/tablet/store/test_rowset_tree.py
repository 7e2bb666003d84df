"""What the bounds of rowsets save: a key costs the height, whatever the number of rowsets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.cfile import RowsFile
from kudu_core.common.rows.keys import encode_key
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.table.read import points
from tests.support.fs.faulty import FaultyFileSystem
from tests.support.inside import is_opened, page_cache_of, rowsets_of, schema_of, tablet_of
from tests.support.tables import Make

ROWSETS = 20


@pytest.fixture
def wide(make: Make, path: Path) -> Iterator[kc.Table]:
    """20 rowsets that end before the next begins, and one over keys of the 10th to the 19th; reopened."""
    table = make(flush_age_s=3600)
    for part in range(ROWSETS):
        table.insert({"k": np.arange(1000 * part, 1000 * part + 900, 2), "a": np.arange(450)})
        table.flush()
    table.insert({"k": np.arange(10_001, 19_000, 2), "a": np.arange(4500)})
    table.flush()
    table.close()
    with kc.open_table(path, "rw") as again:
        yield again


def view_of(table: kc.Table) -> list[DiskRowSet]:
    return list(rowsets_of(table))


def opened(table: kc.Table) -> list[int]:
    return [n for n, rowset in enumerate(view_of(table)) if is_opened(rowset.base)]


def holding(table: kc.Table, key: int) -> list[int]:
    wanted = encode_key(schema_of(table), key)
    return [n for n, r in enumerate(view_of(table)) if r.meta.min_key <= wanted <= r.meta.max_key]


def test_the_tree_knows_the_rowsets(wide: kc.Table) -> None:
    tree = tablet_of(wide).view.tree
    assert len(tree) == len(view_of(wide)) == ROWSETS + 1
    assert tree.height == 2
    for place, rowset in enumerate(view_of(wide)):
        assert tree.ids[place] == rowset.id
        assert tablet_of(wide).view.rowset(rowset.id) is rowset
    assert tablet_of(wide).view.rowset(12345) is None


def test_a_point_read_opens_what_may_hold_its_key(wide: kc.Table) -> None:
    """And asks no more blooms than rowsets lie over the key."""
    for key, there in ((5000, True), (12_000, True), (12_001, True), (12_950, False), (950, False)):
        before = set(opened(wide))
        assert (wide.get(key) is not None) == there
        assert set(opened(wide)) <= before | set(holding(wide, key))
        assert len(holding(wide, key)) <= 2
    assert len(opened(wide)) == 3


@pytest.mark.parametrize("way", ["row", "few rows", "many rows"])
def test_a_point_read_probes_one_bloom_for_each_rowset_over_its_key(
    wide: kc.Table, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    asked: list[str] = []
    usual = RowsFile.locate

    def locate(file: RowsFile, *arguments: object) -> object:
        asked.append(file.path)
        return usual(file, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(RowsFile, "locate", locate)
    before = len(opened(wide))
    if way == "many rows":
        monkeypatch.setattr(points, "are_few", lambda keys: False)
    if way == "row":
        assert wide.get(12_001) == {"k": 12_001, "a": 1000, "s": None, "must": 7}
    else:
        assert wide.get_many([12_001])["a"].to_pylist() == [1000]
    assert len(asked) == (2 if way == "many rows" else 0)
    assert len(opened(wide)) - before <= 2


@pytest.mark.parametrize("height", [1, 4])
def test_a_point_read_touches_a_bloom_for_each_rowset_and_a_page_of_each_column(
    make: Make, path: Path, height: int
) -> None:
    """Of rowsets of several pages that lie over each other, read for the first time at this place."""
    table = make(flush_age_s=3600, ingest_threshold_rows=1 << 30)
    for part in range(height):
        k = np.arange(part, 60_000 * height, height)
        table.insert({"k": k, "a": k * 3, "s": [f"row {n}" for n in k.tolist()]})
        table.flush()
    table.close()
    with kc.open_table(path, "rw") as again:
        assert len(view_of(again)) == len(holding(again, 50_000 * height)) == height
        assert again.get(0) is not None  # opens what there is
        columns = len(schema_of(again).columns)
        for key in (20_000 * height, 40_000 * height + height - 1, 55_000 * height):
            before = page_cache_of(again).statistics()
            row = again.get(key)
            assert row is not None
            assert (row["a"], row["s"]) == (key * 3, f"row {key}")
            after = page_cache_of(again).statistics()
            assert 0 < after.misses - before.misses <= height + columns
            assert again.get(key) == row
            assert page_cache_of(again).statistics().misses == after.misses, "a page was read again"


@pytest.mark.parametrize("one", [False, True], ids=["batch", "row"])
def test_a_write_opens_what_may_hold_its_keys(wide: kc.Table, one: bool) -> None:
    if one:
        wide.upsert([{"k": 5000, "a": -1}])
    else:
        wide.upsert({"k": [5000, 5001], "a": [-1, -1]})
    assert opened(wide) == holding(wide, 5000)
    wide.insert({"k": [10**9, 10**9 + 1]})
    assert len(opened(wide)) == 1
    wide.upsert({"k": np.arange(0, 1000 * ROWSETS, 500)})
    assert len(opened(wide)) == ROWSETS + 1


def test_a_scan_of_a_range_opens_what_may_hold_it(wide: kc.Table) -> None:
    rows = wide.scan(["k"], key_range=(4898, 6002)).to_table()
    assert rows["k"].to_pylist() == [4898, *range(5000, 5900, 2), 6000]
    assert opened(wide) == [4, 5, 6]
    explained = wide.scan(["k"], key_range=(4898, 6002)).explain()
    assert (explained.rowsets, explained.rowsets_pruned) == (ROWSETS + 1, ROWSETS - 2)


def test_changes_of_rowsets_keep_the_tree(wide: kc.Table) -> None:
    """Only rowsets that come or go make another one; readers of one row follow each change."""
    tablet = tablet_of(wide)
    assert wide.get(4000) is not None
    tree, points = tablet.view.tree, tablet.view.points
    for key in range(0, 1000 * ROWSETS, 1000):
        wide.update({"k": [key, key + 2], "a": [key, key]})
        assert wide.get(key) == {"k": key, "a": key, "s": None, "must": 7}
        assert wide.get(key + 4) is not None
    assert tablet.view.tree is tree
    assert tablet.view.points is not points
    assert len(tablet.view.changed) == ROWSETS
    tablet.view.__dict__.pop("points")
    assert [wide.get(key)["a"] for key in range(0, 1000 * ROWSETS, 1000)] == [*range(0, 1000 * ROWSETS, 1000)]
    wide.flush()
    assert not tablet.view.changed
    wide.insert({"k": [1]})
    wide.flush()
    assert tablet.view.tree is not tree
    assert wide.get(1) is not None and wide.get(2)["a"] == 0


def test_equal_first_keys(make: Make) -> None:
    """Rowsets that begin with one key are told apart, dead copies of it too."""
    table = make()
    for value in range(5):
        table.insert({"k": [0, 10 + value], "a": [value, value]})
        table.flush()
        if value < 4:
            table.delete([0])
            table.flush()
    view = tablet_of(table).view
    assert view.tree.point(encode_key(schema_of(table), 0)).tolist() == [0, 1, 2, 3, 4]
    assert table.get(0) == {"k": 0, "a": 4, "s": None, "must": 7}
    assert table.get_many([0, 12])["a"].to_pylist() == [4, 2]
    table.upsert({"k": [0, 14], "a": [9, 9]})
    assert table.get(0)["a"] == 9


def test_opening_reads_manifests_only(make: Make, path: Path) -> None:
    """60 rowsets: no file of theirs is opened, before something is read."""
    table = make(pa.schema([("k", pa.int64()), ("a", pa.int64())]), ingest_threshold_rows=5, flush_age_s=3600)
    for part in range(60):
        table.insert({"k": np.arange(10 * part, 10 * part + 9)})
    table.close()
    for mode in ("r", "rw"):
        fs = FaultyFileSystem(PosixFileSystem(), keep_log=True)
        with kc.open_table(path, mode, options={"maintenance": "manual"}, _fs=fs) as again:
            assert len(view_of(again)) == 60
            read = [call.path for call in fs.log if call.op in ("open_read", "read_bytes", "pread", "preadv")]
            assert not [p for p in read if p.endswith((".rows", ".delta"))]
            manifests = [p for p in read if p.endswith("MANIFEST")]
            assert len(manifests) <= 4
            fs.log.clear()
            assert again.get(77) is not None
            assert {call.path for call in fs.log if call.op == "open_read"} == {view_of(again)[7].base.path}
