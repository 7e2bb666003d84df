"""One row of a view by its key: through memory, and of files only those whose bounds admit the key."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kudu_core._ext.columns.flags import AppendFlags
from kudu_core._ext.columns.growing import AppendColumn
from kudu_core._ext.index.hash_index import KeyTable
from kudu_core._ext.keys import hashing
from kudu_core._ext.row.view import MemoryPoints, PointView, RowsetPoints
from tests.kernels.index.test_rowset_tree import tree_of
from tests.kernels.row.changing import (
    IDS,
    SHAPE,
    WIDTHS,
    append,
    cell,
    change_points,
    random_changes,
    value,
)
from tests.support.oracles.row import view as oracle


def test_rows_in_memory_by_key(seed: int) -> None:
    r = random.Random(seed)
    keys, inserted = KeyTable(r.getrandbits(60)), AppendColumn(8)
    columns = {id_: AppendColumn(width) for id_, width in zip(IDS[:2], WIDTHS[:2], strict=True)}
    changes = change_points()
    memory = MemoryPoints(keys, inserted, columns, changes, AppendFlags(), 1)
    view = PointView([memory], [], tree_of([]))
    rows: list[tuple[int, bytes, list[Any]]] = []
    for n in range(300):
        key = f"key-{n}".encode() * r.randint(1, 5)
        rows.append((n // 3 + 1, key, [value(r, 0), r.choice([None, value(r, 1)])]))
        memory.insert_one(
            n // 3 + 1, key, hashing.murmur3_one(key), [cell(i, v) for i, v in enumerate(rows[-1][2])]
        )
    log = random_changes(r, 300, 200, first=101)
    for ts, row, op, values in log:
        append(changes, ts, op, row, values)
    for at in (0, 1, 50, 100, 150, 10_000):
        for n, (ts, key, base) in enumerate(rows):
            lives, values = oracle.row_after(log, n, at)
            expected = None
            if ts <= at and lives is not False:
                expected = dict(zip("abc", [*base, -1.0], strict=True))
                expected.update({"abc"[IDS.index(i)]: v for i, v in values.items()})
            assert view.get(key, at, SHAPE) == expected
    assert view.get(b"absent", 10_000, SHAPE) is None
    assert view.find(rows[7][1], hashing.murmur3_one(rows[7][1])) == [(0, 7)]
    assert view.find(b"absent", hashing.murmur3_one(b"absent")) == []
    with pytest.raises(ValueError):
        memory.insert_one(1, b"k", 1, [None])


def test_only_rowsets_whose_bounds_admit_the_key_are_opened(seed: int) -> None:
    r = random.Random(seed)
    for _ in range(50):
        bounds = sorted(
            tuple(sorted((bytes([r.randint(0, 99)]), bytes([r.randint(0, 99)])))) for _ in range(40)
        )
        asked: list[int] = []

        class Asked(Exception):
            pass

        def open_(i: int, asked: list[int] = asked) -> Any:
            asked.append(i)
            raise Asked

        for probe in (b"", bytes([r.randint(0, 99)]), b"\x63\0", b"\xff"):
            admitted = [i for i, (lower, upper) in enumerate(bounds) if lower <= probe <= upper]
            rowsets = [RowsetPoints(lambda i=i: open_(i), [], None, 0, -1) for i in range(len(bounds))]
            asked.clear()
            try:
                assert PointView([], rowsets, tree_of(bounds)).get(probe, 9, SHAPE) is None
                assert not admitted
            except Asked:
                assert asked and asked[0] in admitted
    with pytest.raises(ValueError, match="bounds of 2"):
        PointView([], rowsets[:1], tree_of([(b"a", b"a"), (b"b", b"b")]))
    with pytest.raises(TypeError):
        PointView([], [None], tree_of([(b"a", b"a")]))  # type: ignore[list-item]


def test_a_view_with_another_version_of_a_rowset() -> None:
    asked: list[str] = []

    def points(name: str) -> RowsetPoints:
        def open_() -> Any:
            asked.append(name)
            raise KeyError(name)

        return RowsetPoints(open_, [], None, 0, -1)

    bounds = [(b"a", b"c"), (b"b", b"b")]
    old = PointView([], [points("0"), points("1")], tree_of(bounds))
    new = old.replaced({0: points("new")})
    for view, name in ((old, "0"), (new, "new"), (old, "0")):
        with pytest.raises(KeyError, match=name):
            view.get(b"a", 9, SHAPE)
    assert asked == ["0", "new", "0"]
    for place in (-1, 2):
        with pytest.raises(ValueError, match="no rowset"):
            old.replaced({place: points("x")})
