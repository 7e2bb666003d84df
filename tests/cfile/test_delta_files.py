"""What is written to ``.delta`` files is what is read from them, by every way to read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kudu_core._ext.changes import delta as delta_kernel
from kudu_core._ext.changes.replay import Updates, replay
from kudu_core.cfile import REDO, UNDO, DeltaFile, PageCache
from kudu_core.cfile.columns.specs import ColumnSpec
from kudu_core.cfile.files import delta_writer
from kudu_core.cfile.files.delta_writer import write_delta_file
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import Corruption
from tests.support.cases.cfile import BytesFileSystem, column, same

CALLS_TS = np.sort(np.random.default_rng(3).integers(1 << 62, (1 << 62) + (1 << 45), 300).astype(np.uint64))


def make_delta(
    rng: np.random.Generator, kind: str, entries: int, rows: int, *, timed: bool | str
) -> dict[str, Any]:
    """Random sorted entries over some rows, and updates of two columns for part of them.  ``timed``: whether
    they have times of their own; "few": of as many calls as there are in ``CALLS_TS``."""
    if timed == "few":
        calls = len(CALLS_TS)
        drawn = np.sort(rng.choice(rows * calls, entries, replace=False))
        rowids = (drawn // calls).astype(np.uint32)
        ts = (CALLS_TS if kind == REDO else CALLS_TS[::-1])[drawn % calls]
    elif timed:
        rowids = np.sort(rng.integers(0, rows, entries).astype(np.uint32))
        ts = np.arange(entries, dtype=np.uint64) * 3 + 1000
        if kind == UNDO:
            ts = ts[::-1].copy()
    else:
        rowids = np.sort(rng.choice(rows, entries, replace=False).astype(np.uint32))
        ts = None
    ops = rng.choice([1, 1, 1, 1, 2, 3] if kind == UNDO else [1, 1, 1, 1, 2], entries).astype(np.uint8)
    columns = {}
    for id_, type_name in ((7, "float64"), (9, "string")):
        chosen = np.flatnonzero((ops != 2) & (rng.random(entries) < 0.6)).astype(np.uint32)
        if len(chosen):
            values: list[Any] = [None if i % 9 == 0 else f"{i % 50}" for i in range(len(chosen))]
            if type_name == "float64":
                values = [None if v is None else float(v) for v in values]
            spec = ColumnSpec(id_, ColumnType.parse(type_name), True)
            columns[id_] = (spec, chosen, column(values, type_name))
    return {"kind": kind, "rowids": rowids, "ts": ts, "ops": ops, "columns": columns}


@pytest.mark.parametrize("kind", [REDO, UNDO])
@pytest.mark.parametrize("timed", [True, False, "few"])
@pytest.mark.parametrize("entries", [1, 40, 3000, 40_000])
def test_delta_entries_come_back_by_rows(kind: str, timed: bool | str, entries: int, seed: int) -> None:
    rng = np.random.default_rng((seed, entries))
    rows = entries * 2 + 3
    delta = make_delta(rng, kind, entries, rows, timed=timed)
    fs = BytesFileSystem()
    meta = write_delta_file(fs, "d", **delta)
    rowids, ts, ops = delta["rowids"], delta["ts"], delta["ops"]
    assert (meta.min_rowid, meta.max_rowid) == (rowids.min(), rowids.max())
    assert (meta.min_ts, meta.max_ts) == ((None, None) if ts is None else (ts.min(), ts.max()))
    assert meta.delete_count == (ops == 2).sum() and meta.reinsert_count == (ops == 3).sum()
    with DeltaFile(fs, "d", PageCache(1 << 22), size=meta.size, footer_crc=meta.footer_crc) as file:
        assert file.meta == meta
        for lower, upper in [(0, 1 << 32), (0, 0), *np.sort(rng.integers(0, rows, (8, 2))).tolist()]:
            inside = (rowids >= lower) & (rowids < upper)
            got = file.entries(lower, upper)
            _same_arrays(got, (rowids[inside], None if ts is None else ts[inside], ops[inside]))
            dead = inside & (ops != 1)
            _same_arrays(
                file.liveness(lower, upper), (rowids[dead], None if ts is None else ts[dead], ops[dead])
            )
            for id_, (spec, positions, values) in delta["columns"].items():
                chosen = np.flatnonzero(inside[positions])
                got_rowids, got_ts, got_values = file.updates(id_, lower, upper)
                entry = positions[chosen]
                assert (got_rowids == rowids[entry]).all() and len(got_rowids) == len(entry)
                assert (got_ts is None) == (ts is None)
                assert ts is None or (got_ts == ts[entry]).all()
                assert same(got_values.to_arrow(spec.type), values.take(chosen).to_arrow(spec.type))
                if got_values.width and upper <= rows:
                    _same_replayed(file.parts(id_, lower, upper), lower, upper, got_rowids, got_values)
            some = np.unique(rng.integers(0, rows, rng.choice((1, 9, rows))))
            ordinals, *got = file.entries_of(some)
            inside = np.isin(rowids, some)
            assert (ordinals == np.flatnonzero(inside)).all()
            _same_arrays(tuple(got), (rowids[inside], None if ts is None else ts[inside], ops[inside]))
            for id_, (spec, positions, values) in delta["columns"].items():
                which, got_values = file.updates_of_entries(id_, ordinals)
                assert (which == np.flatnonzero(np.isin(ordinals, positions))).all()
                chosen = np.flatnonzero(inside[positions])
                assert same(got_values.to_arrow(spec.type), values.take(chosen).to_arrow(spec.type))
            if upper <= rows:
                live = ColumnBuffers(1, dead.sum(), (ops[dead] == 3).view(np.uint8), None, None)
                _same_replayed(file.liveness_parts(lower, upper), lower, upper, rowids[dead], live)
        file.verify()


def _same_replayed(
    parts: list[Updates], lower: int, upper: int, rowids: np.ndarray, new: ColumnBuffers
) -> None:
    """The pieces change rows [lower, upper) as those changes do."""
    rows = upper - lower
    found, wanted = np.full((2, rows * new.width), 7, np.uint8)
    bits, wanted_bits = np.full((2, (rows + 7) // 8), 255, np.uint8)
    replay(parts, found, new.width, lower, rows, bits)
    delta_kernel.apply_fixed(wanted, new.width, lower, rowids, new.values)
    delta_kernel.apply_bits(wanted_bits, rows, lower, rowids, new.validity)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(bits, wanted_bits)


def test_a_delta_file_whose_rowids_descend_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_writer, "in_order", lambda *_: True)
    fs = BytesFileSystem()
    rowids, ops = np.array([1, 9, 3, 12], np.uint32), np.array([1, 1, 2, 2], np.uint8)
    spec = ColumnSpec(4, ColumnType.parse("int64"), True)
    columns = {4: (spec, np.arange(4, dtype=np.uint32), column([1, 2, 3, 4], "int64"))}
    write_delta_file(fs, "d", REDO, rowids, None, ops, columns)
    with DeltaFile(fs, "d", PageCache(1 << 20)) as file:
        with pytest.raises(Corruption, match="ascend"):
            file.parts(4, 0, 20)
        file.liveness_parts(0, 20)  # these two do ascend


def _same_arrays(got: tuple[Any, ...], wanted: tuple[Any, ...]) -> None:
    for left, right in zip(got, wanted, strict=True):
        assert (left is None) == (right is None)
        if left is not None:
            np.testing.assert_array_equal(left, right)


def test_few_rows_of_a_delta_file_cost_few_pages() -> None:
    delta = make_delta(np.random.default_rng(8), REDO, 200_000, 1 << 20, timed=True)
    fs = BytesFileSystem()
    write_delta_file(fs, "d", **delta)
    cache = PageCache(1 << 24)
    with DeltaFile(fs, "d", cache) as file:
        file.updates(7, 500_000, 500_010)
        assert cache.statistics().pages <= 6
        file.entries()
        assert cache.statistics().pages > 30


def test_delta_entries_out_of_order_are_refused() -> None:
    fs = BytesFileSystem()
    rowids = np.array([1, 1], np.uint32)
    ops = np.array([1, 1], np.uint8)
    for kind, ts in ((REDO, [2, 1]), (REDO, [1, 1]), (UNDO, [1, 2]), (REDO, None)):
        times = None if ts is None else np.array(ts, np.uint64)
        with pytest.raises(AssertionError):
            write_delta_file(fs, "d", kind, rowids, times, ops, {})
    assert not fs.files
