"""Changes in memory: every way to read them gives what replaying them one by one gives."""

from __future__ import annotations

import numpy as np
import pytest

from kudu_core.cfile.files.delta_codes import REDO_DELETE, REDO_REINSERT, REDO_UPDATE
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.rowset.memory import logged
from kudu_core.rowset.memory.changelog import Change, ChangeLog
from kudu_core.rowset.rows.delta_view import patch

ROWS = 60_000
NUMBER, TEXT = 1, 2


def column(values: list[int] | list[bytes], width: int) -> ColumnBuffers:
    if width:
        return ColumnBuffers(8, len(values), np.array(values, np.int64).view(np.uint8), None, None)
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(v) for v in values], out=offsets[1:])  # type: ignore[arg-type]
    data = np.frombuffer(b"".join(values), np.uint8)  # type: ignore[arg-type]
    return ColumnBuffers(0, len(values), data, offsets, None)


class Model:
    """Rows as plain values."""

    def __init__(self) -> None:
        self.number = [0] * ROWS
        self.text = [b""] * ROWS
        self.live = [True] * ROWS


def filled(seed: int, changes: int) -> tuple[ChangeLog, list[tuple[int, Change]]]:
    rng = np.random.default_rng(seed)
    log = ChangeLog()
    history: list[tuple[int, Change]] = []
    dead: set[int] = set()
    ts = 10
    done = 0
    hot = rng.integers(0, ROWS, 20)
    while done < changes:
        ts += int(rng.integers(1, 3))
        size = int(rng.integers(1, 400))
        rows = np.unique(np.concatenate([rng.integers(0, ROWS, size), rng.choice(hot, 3)])).astype(np.uint32)
        dying = rows[rng.random(len(rows)) < 0.02]
        reviving = np.array(sorted(dead & set(rows.tolist()) - set(dying.tolist())), np.uint32)
        plain = np.array([r for r in rows.tolist() if r not in set(dying.tolist()) | dead], np.uint32)
        for op, some in (
            (REDO_UPDATE, plain),
            (REDO_DELETE, np.setdiff1d(dying, list(dead)).astype(np.uint32)),
            (REDO_REINSERT, reviving),
        ):
            if not len(some):
                continue
            columns = {}
            if op != REDO_DELETE:
                columns[NUMBER] = column(rng.integers(0, 1 << 60, len(some)).tolist(), 8)
                if op == REDO_REINSERT or rng.random() < 0.5:
                    columns[TEXT] = column([b"t%d" % v for v in rng.integers(0, 10**6, len(some))], 0)
            change = Change(op, some, columns)
            log.append(ts, change)
            history.append((ts, change))
            done += len(some)
        dead |= set(dying.tolist())
        dead -= set(reviving.tolist())
    return log, history


def replayed(history: list[tuple[int, Change]], snapshot: int) -> Model:
    model = Model()
    for ts, change in history:
        if ts > snapshot:
            break
        for i, row in enumerate(change.rowids.tolist()):
            if change.op != REDO_UPDATE:
                model.live[row] = change.op == REDO_REINSERT
            for column_id, values in change.columns.items():
                if column_id == NUMBER:
                    model.number[row] = int.from_bytes(values.cell(i), "little")
                else:
                    model.text[row] = values.cell(i)
    return model


@pytest.mark.parametrize("changes", [300, 12_000])
def test_every_range_of_rows_equals_a_replay(changes: int, seed: int) -> None:
    log, history = filled(seed, changes)
    stamps = [ts for ts, _ in history]
    rng = np.random.default_rng(seed + 1)
    for snapshot in (0, stamps[0], stamps[len(stamps) // 2], stamps[-1], stamps[-1] + 5):
        model = replayed(history, snapshot)
        view = log.at(snapshot)
        ranges = [(0, ROWS), (0, 1), (ROWS - 1, ROWS), (16_384, 32_768), (16_000, 33_000), (100, 400)]
        ranges += [(int(r), int(r) + 1) for r in rng.integers(0, ROWS, 10)]
        ranges += [(int(c.rowids[0]), int(c.rowids[0]) + 1) for _, c in history[-5:]]
        for lower, upper in ranges:
            for column_id, expected in ((NUMBER, model.number), (TEXT, model.text)):
                base = (
                    column([0] * (upper - lower), 8)
                    if column_id == NUMBER
                    else column([b""] * (upper - lower), 0)
                )
                changed = view.updates(column_id, lower, upper)
                if changed is not None:
                    base = patch(base, lower, *changed, owned=False)
                if column_id == NUMBER:
                    assert base.values.view(np.int64).tolist() == expected[lower:upper]
                else:
                    assert [base.cell(i) for i in range(upper - lower)] == expected[lower:upper]
            live = [True] * (upper - lower)
            found = view.liveness(lower, upper)
            if found is not None:
                for row, flag in zip(found[0].tolist(), found[1].tolist(), strict=True):
                    live[row - lower] = bool(flag)
            assert live == model.live[lower:upper]


def test_moved_changes_keep_their_order_times_and_values(seed: int) -> None:
    log, history = filled(seed, 2000)
    timestamps, rowids, ops = log.changes(0, len(log))
    picked = np.flatnonzero((rowids % 3 == 0) & (ops != REDO_REINSERT))
    moved = log.moved(picked, rowids[picked] // 3)
    assert moved.changes(0, len(moved))[0].tolist() == timestamps[picked].tolist()
    assert moved.changes(0, len(moved))[1].tolist() == (rowids[picked] // 3).tolist()
    numbers, _, values = log.column_changes(NUMBER, 0, len(log))
    keep = np.flatnonzero(np.isin(numbers, picked))
    _, _, moved_values = moved.column_changes(NUMBER, 0, len(moved))
    assert bytes(moved_values.values) == bytes(values.take(keep).values)
    assert moved.first_ts == int(timestamps[picked[0]]) and moved.last_ts == int(timestamps[picked[-1]])
    assert moved.liveness_changes == int((ops[picked] >= REDO_DELETE).sum())
    assert history


def test_narrow_reads_use_the_tree_and_wide_ones_do_not(seed: int) -> None:
    log, _ = filled(seed, 2 * logged.NARROW_CHANGES)
    view = log.at(2**64 - 1)
    view.updates(NUMBER, 0, ROWS)
    assert log._in_tree == 0
    view.updates(NUMBER, 100, 300)
    assert log._in_tree == len(log)
