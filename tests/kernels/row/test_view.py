"""One row through memory and delta files: the last word on each column wins, at every snapshot."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from kudu_core._ext.base.status import NeedsGeneralPath
from kudu_core._ext.columns.growing import AppendColumn
from kudu_core._ext.index.hash_index import KeyTable
from kudu_core._ext.index.rowid_map import RowidMap
from kudu_core._ext.keys import hashing
from kudu_core._ext.pages import blocks
from kudu_core._ext.row.changes import ChangeFile, ChangePoints, DecodedColumn, DeltaPoints
from kudu_core._ext.row.codec import MISSING, TAGS, RowShape
from kudu_core._ext.row.column import PointColumn
from kudu_core._ext.row.view import MemoryPoints, PointView, RowsetPoints
from tests.kernels.index.test_rowset_tree import tree_of
from tests.support.oracles.row import view as oracle

IDS = (3, 5, 8)
SHAPE = RowShape(
    ["a", "b", "c"],
    IDS,
    [TAGS["signed"], TAGS["bytes"], TAGS["float"]],
    [lambda raw: raw] * 3,
    [-1, b"-", -1.0],
)
WIDTHS = (8, 0, 8)


def value(r: random.Random, i: int) -> Any:
    return [r.randint(-9, 9), bytes([r.randint(0, 255)] * r.randint(0, 5)), r.random()][i]


def cell(i: int, given: Any) -> bytes | None:
    if given is None:
        return None
    return bytes(given) if i == 1 else np.array(given, "<i8" if i == 0 else "<f8").tobytes()


def change_points() -> ChangePoints:
    return ChangePoints(AppendColumn(8), AppendColumn(4), AppendColumn(1), AppendColumn(4), RowidMap())


def append(log: ChangePoints, ts: int, op: int, row: int, values: dict[int, Any]) -> None:
    cells = [cell(i, values[id_]) if id_ in values else MISSING for i, id_ in enumerate(IDS)]
    while (new := log.reserve_one(IDS, cells)) >= 0:
        log.add(IDS[new], AppendColumn(4), AppendColumn(4), AppendColumn(WIDTHS[new]))
    log.append_one(ts, op, row, IDS, cells)


def random_changes(r: random.Random, rows: int, count: int, first: int = 1) -> list[oracle.Change]:
    out: list[oracle.Change] = []
    live = [True] * rows
    ts = first
    for _ in range(count):
        ts += r.randint(1, 2)
        row = r.randrange(rows)
        op = r.choice([1, 1, 1, 2]) if live[row] else 3
        live[row] = op != 2
        picked = [] if op == 2 else IDS if op == 3 else r.sample(IDS, r.randint(1, 3))
        out.append((ts, row, op, {i: None if r.random() < 0.2 else value(r, IDS.index(i)) for i in picked}))
    return out


def by_position(said: tuple[bool | None, dict[int, Any]]) -> tuple[bool | None, dict[int, Any]]:
    """Values of a row that is dead mean nothing."""
    lives, values = said
    return lives, {} if lives is False else {IDS.index(i): v for i, v in values.items()}


def test_changes_in_memory(seed: int, long: bool) -> None:
    for round_ in range(200 if long else 20):
        r = random.Random(f"{seed} {round_}")
        changes = random_changes(r, r.choice([1, 5, 40]), r.choice([1, 30, 300]))
        log = change_points()
        looked = r.randrange(len(changes))  # here the index of a hot row may be made; it grows later
        for number, (ts, row, op, values) in enumerate(changes):
            append(log, ts, op, row, values)
            if number >= looked:
                log.row(row, ts, SHAPE)
        assert log.liveness == sum(c[2] >= 2 for c in changes)
        for row in range(41):
            assert log.touched(row) == any(c[1] == row for c in changes)
            for at in (0, changes[0][0], r.choice(changes)[0], changes[-1][0], 2**64 - 1):
                lives, values = log.row(row, at, SHAPE)
                expected = by_position(oracle.row_after(changes, row, at))
                assert (lives, {} if lives is False else values) == expected, (round_, row, at)


def newest_values(
    log: ChangePoints | DeltaPoints, column: int | None, rows: int, *more: Any
) -> dict[int, Any]:
    """What ``newest`` says, by row."""
    which, what = log.newest(column, np.arange(rows), *more)  # type: ignore[misc]
    return dict(zip(which.tolist(), what.tolist() if isinstance(what, np.ndarray) else what, strict=False))


def test_the_newest_change_of_many_rows_in_memory(seed: int, long: bool) -> None:
    for round_ in range(200 if long else 20):
        r = random.Random(f"{seed} {round_}")
        changes = random_changes(r, r.choice([1, 5, 40]), r.choice([1, 30, 300]))
        log = change_points()
        seen: set[int] = set()  # a column that nothing has set has no log yet
        for ts, row, op, values in changes:
            append(log, ts, op, row, values)
            seen.update(values)
            if r.random() < 0.05 and IDS[0] in seen:
                log.newest(IDS[0], np.array([row]), len(changes))
        limit = r.randrange(len(changes) + 1)
        for column in IDS:
            sets = [n for n, c in enumerate(changes) if column in c[3]]
            if not sets:
                continue
            expected = {changes[n][1]: place for place, n in enumerate(sets) if n < limit}
            assert newest_values(log, column, 41, limit) == expected, (round_, column)
        deaths = {c[1]: n for n, c in enumerate(changes[:limit]) if c[2] >= 2}
        assert newest_values(log, None, 41, limit) == deaths


def test_a_hot_row_costs_no_walk() -> None:
    """10,000 changes of a row are indexed once: afterwards a read looks at what came since."""
    log = change_points()
    for ts in range(1, 10_001):
        append(log, ts, 1, 7, {IDS[0]: ts})
    assert log.nbytes == 0
    assert log.row(7, 2**63, SHAPE) == (None, {0: 10_000})
    size = log.nbytes
    assert 40_000 <= size <= 41_500
    for at in (1, 4_999, 10_000):
        assert log.row(7, at, SHAPE) == (None, {0: at})
    assert log.nbytes == size
    append(log, 10_001, 2, 7, {})
    assert log.row(7, 10_000, SHAPE) == (None, {0: 10_000})
    assert log.row(7, 10_001, SHAPE)[0] is False
    assert log.nbytes == size + 4


def test_a_change_without_its_column_does_nothing() -> None:
    log = change_points()
    assert log.reserve_one(IDS, [MISSING, b"x", MISSING]) == 1
    assert not log.touched(7)
    assert log.reserve_one(IDS, [MISSING] * 3) == -1
    log.append_one(1, 2, 7, IDS, [MISSING] * 3)
    assert log.row(7, 1, SHAPE) == (False, {})
    with pytest.raises(ValueError):
        log.append_one(2, 1, 7, IDS, [MISSING])


class Held:
    """A cache that keeps everything, or nothing."""

    def __init__(self, keeps: bool = True) -> None:
        self.keeps = keeps
        self.next = 0

    def numbers(self, values: list[int], dtype: str) -> DecodedColumn:
        raw = np.array(values, dtype).view(np.uint8)
        self.next += 1
        place = self.next if self.keeps else None
        return DecodedColumn(lambda: (raw, place), np.dtype(dtype).itemsize, len(values))

    def column(self, i: int, values: list[Any]) -> PointColumn:
        valid = np.array([v is not None for v in values])
        bits = None if valid.all() else np.packbits(valid, bitorder="little")
        cells = [cell(i, v) or b"" for v in values]
        if WIDTHS[i]:
            raw = np.frombuffer(b"".join(c or bytes(8) for c in cells), np.uint8)
            page = blocks.encode_fixed(raw, 8, 1 if i == 0 else 2, bits)
        else:
            ends = np.cumsum([0, *map(len, cells)]).astype(np.int32)
            page = blocks.encode_binary(ends, np.frombuffer(b"".join(cells), np.uint8), bits, False)
        self.next += 1
        place = self.next if self.keeps else None
        return PointColumn(lambda _: (page, place), 1, WIDTHS[i])


def delta_points(changes: list[oracle.Change], held: Held, *, timed: bool = True) -> DeltaPoints:
    """As a file has them: by row, and within it in the order given."""
    entries = sorted(range(len(changes)), key=lambda i: changes[i][1])
    columns = []
    for i, id_ in enumerate(IDS):
        mine = [n for n, e in enumerate(entries) if id_ in changes[e][3]]
        if mine:
            values = [changes[entries[n]][3][id_] for n in mine]
            columns.append((id_, held.numbers(mine, "<u4"), held.column(i, values)))
    return DeltaPoints(
        held.numbers([changes[e][1] for e in entries], "<u4"),
        held.numbers([changes[e][2] for e in entries], "u1"),
        held.numbers([changes[e][0] for e in entries], "<u8") if timed else None,
        columns,
    )


@pytest.mark.parametrize("undo", [False, True])
def test_changes_in_files(undo: bool, seed: int, long: bool) -> None:
    for round_ in range(200 if long else 20):
        r = random.Random(f"{seed} {round_}")
        changes = random_changes(r, r.choice([1, 5, 40]), r.choice([1, 30, 300]))
        low, high = changes[0][0], changes[-1][0]
        if undo:
            changes.reverse()
        points = delta_points(changes, Held())
        opened: list[int] = []

        def open_(points: DeltaPoints = points, opened: list[int] = opened) -> DeltaPoints:
            opened.append(1)
            return points

        file = ChangeFile(open_, undo, low, high)
        # Not even opened where its times say that the snapshot takes nothing.
        assert file.row(0, high if undo else low - 1, SHAPE) == (None, {}) and not opened
        meaning = oracle.row_before if undo else oracle.row_after
        rows = np.arange(41)
        touched = points.touched(rows)
        for row in range(41):
            assert touched[row] == any(c[1] == row for c in changes)
            for at in (0, low, r.choice(changes)[0], high, 2**64 - 1):
                lives, values = file.row(row, at, SHAPE)
                expected = by_position(meaning(changes, row, at))
                assert (lives, {} if lives is False else values) == expected, (round_, row, at)
        assert opened == [1]
        at = r.choice(changes)[0]
        for snapshot in (None, at):
            seen = [c for c in changes if snapshot is None or (c[0] > at if undo else c[0] <= at)]
            lives = {c[1]: int(c[2] == 3) for c in seen if c[2] >= 2}
            assert newest_values(points, None, 41, snapshot, undo) == lives
            for i, column in enumerate(IDS):
                found = points.newest(column, rows, snapshot, undo)
                if found is None:
                    assert not any(column in c[3] for c in changes)
                    continue
                which, (cells, ends, validity) = found
                values = {c[1]: c[3][column] for c in seen if column in c[3]}
                assert which.tolist() == sorted(values)
                for k, row in enumerate(which.tolist()):
                    if validity is not None and not validity[k >> 3] >> (k & 7) & 1:
                        assert values[row] is None
                        continue
                    raw = cells[ends[k] : ends[k + 1]] if ends is not None else cells[8 * k : 8 * k + 8]
                    assert raw.tobytes() == cell(i, values[row])


def test_a_file_whose_statistics_rule_it_out_is_not_opened(seed: int) -> None:
    """With them it says what it says without them, and is asked only where it may say something."""
    r = random.Random(seed)
    for _ in range(60):
        changes = random_changes(r, 20, r.choice([1, 8]))
        columns = tuple({i for c in changes for i in c[3]})
        liveness = any(c[2] >= 2 for c in changes)
        some = [i for i in range(len(IDS)) if r.random() < 0.4]
        shape = RowShape(
            [SHAPE.names[i] for i in some],
            [IDS[i] for i in some],
            [(TAGS["signed"], TAGS["bytes"], TAGS["float"])[i] for i in some],
            [lambda raw: raw] * len(some),
            [None] * len(some),
        )
        opened: list[int] = []

        def open_(changes: list[oracle.Change] = changes, opened: list[int] = opened) -> DeltaPoints:
            opened.append(1)
            return delta_points(changes, Held())

        low, high = changes[0][0], changes[-1][0]
        plain = ChangeFile(lambda changes=changes: delta_points(changes, Held()), False, low, high)  # type: ignore[misc]
        file = ChangeFile(open_, False, low, high, columns, liveness)
        for row in range(21):
            assert file.row(row, high, shape) == plain.row(row, high, shape)
        assert bool(opened) == (liveness or any(IDS[i] in columns for i in some))


def test_what_the_cache_does_not_keep_is_read_elsewhere() -> None:
    changes: list[oracle.Change] = [(5, 1, 1, {3: 7})]
    file = ChangeFile(lambda: delta_points(changes, Held(keeps=False)), False, 5, 5)
    with pytest.raises(NeedsGeneralPath):
        file.row(1, 9, SHAPE)


def test_held_columns_leave_when_they_are_not_used() -> None:
    points = delta_points([(5, 1, 1, {3: 7})], Held())
    file = ChangeFile(lambda: points, False, 5, 5)
    assert file.row(1, 9, SHAPE) == (None, {0: 7})
    held = points.pages
    assert held == 4  # rowids, operations, entries, values; the times were not needed
    assert [points.forget(place) for place in range(10)].count(False) == held
    assert points.pages == held
    assert all(points.forget(place) for place in range(10)) and points.pages == 0
    assert file.row(1, 9, SHAPE) == (None, {0: 7}) and points.pages == held
    points.close()
    assert points.pages == 0
    with pytest.raises(NeedsGeneralPath):
        points.touched(np.zeros(1, np.int64))


def test_operations_that_do_not_exist_are_not_guessed_at() -> None:
    for op in (0, 4, 255):
        file = ChangeFile(lambda op=op: delta_points([(5, 1, op, {3: 7})], Held()), False, 5, 5)  # type: ignore[misc]
        with pytest.raises(NeedsGeneralPath):
            file.row(1, 9, SHAPE)


def test_columns_that_do_not_fit_are_refused() -> None:
    held = Held()
    four, one, eight = held.numbers([1], "<u4"), held.numbers([1], "u1"), held.numbers([1], "<u8")
    for arguments in [(one, one, eight), (four, four, eight), (four, one, four)]:
        with pytest.raises(ValueError):
            DeltaPoints(*arguments, [])
    with pytest.raises(ValueError):
        DeltaPoints(four, held.numbers([1, 2], "u1"), None, [])
    with pytest.raises(ValueError):
        DeltaPoints(four, one, None, [(3, held.numbers(list(range(16_385)), "<u4"), held.column(0, [1]))])
    short = DecodedColumn(lambda: (np.zeros(3, np.uint8), 1), 4, 1)
    with pytest.raises(ValueError):
        DeltaPoints(short, one, None, []).touched(np.zeros(1, np.int64))


def test_rows_in_memory_by_key(seed: int) -> None:
    r = random.Random(seed)
    keys, inserted = KeyTable(r.getrandbits(60)), AppendColumn(8)
    columns = {id_: AppendColumn(width) for id_, width in zip(IDS[:2], WIDTHS[:2], strict=True)}
    changes = change_points()
    memory = MemoryPoints(keys, inserted, columns, changes)
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
