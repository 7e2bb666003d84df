"""What comes while a merge is at work: changes, ingests, flushes, other compactions, readers, alters."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.cfile.files.delta_codes import REDO_DELETE
from kudu_core.tablet.compact import merge
from tests.support.faults import checking
from tests.support.inside import engine_of, log_of, schema_of, wait_durable
from tests.support.models.merging import Merging
from tests.tablet.compact.test_merge_cases import STEPS, Row, finish

# ---- what comes meanwhile ----

CHANGES: dict[str, Callable[[Merging], object]] = {
    "update": lambda m: m.set(1, 12, 25, a=77),  # 4.8 a, d
    "delete": lambda m: m.delete(1, 12, 25),  # 4.8 b
    "delete, insert anew": lambda m: (m.delete(1, 12), m.put(1, 12, a=5)),  # 4.8 c
    "insert": lambda m: m.put(900, 901, a=1),  # 14.3.10
    "one batch over inputs and memory": lambda m: m.write(  # 4.8 f
        ("update", [{"k": 1, "a": 8}, {"k": 12, "a": 8}, {"k": 500, "a": 8}]), ("delete", [{"k": 25}])
    ),
    "upsert of what memory holds": lambda m: m.write(  # 4.8 m
        ("upsert", [{"k": 500, "a": 1}, {"k": 1, "a": 1}, {"k": 777, "a": 1}])
    ),
    "ingest": lambda m: m.put(*range(1000, 1080), a=1),
}


def inputs(m: Merging) -> list[int]:
    """Three rowsets that overlap, with a past in memory and in files; row 500 lives in memory."""
    for part in range(3):
        m.put(*range(part, 30, 3), a=part)
        m.flush()
        m.set(*range(0, part * 3 + 1, 3), a=10 * part)
    m.delete(6, 7)
    m.flush_all()
    m.put(7, a=70)
    m.flush()
    m.put(500, a=1)
    m.set(3, 7, b="in memory")
    return m.ids


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("change", list(CHANGES))
def test_a_change_comes_meanwhile(m: Merging, step: str, change: str) -> None:
    if step == "ready" and change == "ingest":
        pytest.skip("an ingest waits for the flush lane: see the next tests")
    ids = inputs(m)
    m.merge(ids, m.once(step, lambda: CHANGES[change](m)))
    assert not set(ids) & set(m.ids)
    finish(m)


@pytest.mark.parametrize("step", STEPS)
def test_an_ingest_that_changes_the_inputs(m: Merging, step: str) -> None:
    """It is decided against the view that it finds: the inputs before, the outputs after the install."""
    ids = inputs(m)
    done: list[object] = []

    def ingest() -> None:
        rows = [{"k": k, "a": 1, "b": "upserted", "c": None} for k in (*range(28), *range(600, 640))]
        m.write(("upsert", rows))
        done.append(step)

    thread = threading.Thread(target=ingest)
    if step == "ready":  # the lane is the merge's: the ingest comes after it
        m.merge(ids, m.once(step, thread.start))
    else:
        m.merge(ids, m.once(step, lambda: (thread.start(), thread.join())))
    thread.join()
    assert done
    finish(m)


def test_an_install_while_an_ingest_is_being_built(m: Merging, monkeypatch: pytest.MonkeyPatch) -> None:
    """The merge is ready and waits until the ingest, which knows the inputs by their ids, is installed."""
    from kudu_core.table.ingest import ingest

    ids = inputs(m)
    building, go_on = threading.Event(), threading.Event()
    real = ingest._build

    def paused(*args: object, **more: object) -> object:
        built = real(*args, **more)  # type: ignore[arg-type]
        building.set()
        assert go_on.wait(60)
        return built

    monkeypatch.setattr(ingest, "_build", paused)
    rows = [{"k": k, "a": 3, "b": "ingested", "c": None} for k in range(80)]
    writer = threading.Thread(target=lambda: m.write(("upsert", rows)))
    writer.start()
    assert building.wait(60)
    steps: list[str] = []
    caught_up = threading.Event()

    def note(step: str) -> None:
        steps.append(step)
        if step == "round":
            caught_up.set()

    merger = threading.Thread(target=lambda: m.merge(ids, note))
    merger.start()
    assert caught_up.wait(60)
    merger.join(0.2)
    assert "ready" not in steps and set(ids) <= set(m.ids)
    go_on.set()
    writer.join()
    merger.join()
    assert steps[-1] == "installed" and not set(ids) & set(m.ids)
    finish(m)


@pytest.mark.parametrize("step", STEPS[:3])
def test_flushes_meanwhile(m: Merging, step: str) -> None:
    """Of a MemRowSet, and of the inputs' changes: D rises, and another round follows (protocol C4)."""
    ids = inputs(m)

    def flush() -> None:
        m.set(0, 1, a=1234)
        m.put(800, 801, a=1)
        m.flush_all()
        assert max(r.meta.durable for r in m.rowsets if r.id in ids) == m.tablet.state.mark

    m.merge(ids, m.once(step, flush))
    outputs = [r for r in m.rowsets if r.id not in ids]
    assert outputs
    finish(m)


def test_flush_and_compactions_of_other_rowsets(m: Merging) -> None:
    ids = inputs(m)
    m.put(*range(2000, 2010), a=1)
    m.flush()
    [other] = set(m.ids) - set(ids)
    for a in range(3):
        m.set(2000, 2001, a=a)
        m.flush_all()
    engine = engine_of(m.table)
    assert engine.compactions is not None
    compactions = engine.compactions

    def meanwhile() -> None:
        assert compactions.compact(m.tablet, other, "minor")
        assert compactions.compact(m.tablet, other, "major")
        # Protocol M3.
        assert not compactions.compact(m.tablet, ids[0], "minor"), "claimed"
        assert compactions.merge(m.tablet, [ids[1], other]) is None, "claimed"
        assert m.merge([other]).rowsets_added == 1

    m.merge(ids, m.once("written", meanwhile))
    assert m.tablet.compacting == set()
    finish(m)


def test_rounds_go_on_while_many_changes_come(m: Merging, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "FEW_CHANGES", 3)
    ids = inputs(m)
    left = [3]

    def busy(step: str) -> None:
        if step == "round" and left[0]:
            left[0] -= 1
            m.set(0, 3, 9, 12, 15, a=left[0])

    done = m.merge(ids, busy)
    assert done.rounds == 5, "one before the changes, one after each, the last under the lane"
    [output] = [r for r in m.rowsets if r.id not in ids]
    assert len(output.meta.redo) == 4, "the deletions of the past, and one for each round that found some"
    finish(m)


def test_changes_of_several_inputs_move_in_order_of_time(m: Merging) -> None:
    """Protocol C4: from memory to memory, of inputs that were changed in turns."""
    ids = inputs(m)

    def busy() -> None:
        for step in range(12):
            m.set(*((0, 3), (1, 4), (2, 5))[step % 3], a=step)
        m.delete(9)
        m.set(10, b="last")

    m.merge(ids, m.once("ready", busy))
    [output] = [r for r in m.rowsets if r.id not in ids]
    dead = sum(not output.lives(row) for row in range(output.meta.rows))
    assert [len(s) for s in output.memory_stores] == [26] and dead == 2, "6 and 9; 7 lives again"
    finish(m)


def test_a_change_of_a_dropped_row_is_corruption(m: Merging, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol C4: it can only come from a fault of ours, and nothing is installed then."""
    import numpy as np

    from kudu_core.rowset.memory.changelog import Change

    ids = inputs(m)
    dead = m.tablet.view.rowset(sorted(ids)[1])
    assert dead is not None
    [row] = dead.locate(*probe(m, 7))

    def wrong() -> None:
        m.set(1, a=5)  # gives the rowset a store
        now = m.tablet.view.rowset(dead.id)
        assert now is not None and now.active is not None
        now.active.append(now.active.last_ts, Change(REDO_DELETE, np.array([row], np.uint32), {}))

    before = m.files()
    with checking(False), pytest.raises(kc.Corruption, match=f"row {row}, which a merge has dropped"):
        m.merge(ids, m.once("written", wrong))
    assert set(m.ids) == set(ids) and m.files() == before and m.tablet.compacting == set()


def probe(m: Merging, key: int) -> tuple[object, object]:
    from kudu_core.common.rows.keys import EncodedKeys, encode_key

    keys = EncodedKeys.from_list([encode_key(schema_of(m.table), key)])
    return keys, keys.hashes()


# ---- readers ----


def test_scans_go_on_over_a_merge(m: Merging) -> None:
    """14.3.19: begun on the inputs, before the merge or between its rounds; their files stay as long."""
    inputs(m)
    state = m.history.past.at(m.history.writes[-1])
    early = iter(m.table.scan(["k"], batch_rows=7).to_reader())
    seen = next(early).to_pylist()
    late: list[tuple[Iterator[pa.RecordBatch], list[Row]]] = []

    def begin() -> None:
        reader = iter(m.table.scan(["k"], at=m.history.writes[-1], order="key", batch_rows=7).to_reader())
        late.append((reader, next(reader).to_pylist()))
        m.set(0, 1, a=9)

    m.merge(at_step=m.once("round", begin))
    m.table.gc()
    assert m.files(), "held"
    seen += [row for batch in early for row in batch.to_pylist()]
    assert sorted(row["k"] for row in seen) == sorted(key[0] for key in state)
    reader, rows = late.pop()
    rows += [row for batch in reader for row in batch.to_pylist()]
    assert [row["k"] for row in rows] == sorted(key[0] for key in state)
    del early, reader
    m.table.gc()
    assert m.files() == set()


def test_a_reader_of_another_handle(tmp_path: Path) -> None:
    """It reads the inputs for ``file_grace_s``, and the outputs after a refresh."""
    m = Merging(tmp_path / "t", file_grace_s=60)
    inputs(m)
    wait_durable(m.table)
    with kc.open_table(m.path) as reader:
        before = reader.scan(order="key").to_table()
        m.merge()
        m.table.gc()
        assert m.files(), "kept for readers elsewhere"
        assert reader.scan(order="key").to_table() == before
        m.set(0, a=99)
        log_of(m.table).wait_durable(m.history.writes[-1])
        reader.refresh()
        assert reader.get(0)["a"] == 99  # type: ignore[index]
        m.history.check(reader, random.Random(0))


def by_time_and_key(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The order of changes of one time is nobody's."""
    return sorted(changes, key=lambda change: (change["_timestamp"], change["k"]))


def test_the_schema_changes_before_and_during_a_merge(m: Merging) -> None:
    """4.8 j, 14.3.17: what a dropped column held is not written; a new one is carried over."""
    ids = inputs(m)
    m.set(0, 4, 8, c=0.25)
    m.flush_all()
    m.set(0, 4, c=0.5)
    engine = engine_of(m.table)
    dropped = engine.schema.by_name["c"].id
    m.table.alter(drop=["c"], add=[kc.Column("d", pa.int64(), default=7)])
    times = m.history.writes
    engine.log.wait_durable(engine.log.cut())
    before = m.table.changes(times[0], times[-1], images="both").to_pylist()

    def meanwhile() -> None:
        m.table.update([{"k": 1, "d": 1, "b": "one"}])
        m.table.alter(add=[kc.Column("e", pa.string())])
        m.table.update([{"k": 2, "e": "two"}])

    m.merge(ids, m.once("written", meanwhile))
    output = max((r for r in m.rowsets if r.id not in ids), key=lambda r: r.meta.rows)
    new = {engine.schema.by_name[name].id for name in ("d", "e")}
    assert dropped not in {i for ref in (*output.meta.undo, *output.meta.redo) for i in ref.updates}
    assert dropped not in output.base.open().column_ids
    assert new <= {i for ref in output.meta.redo for i in ref.updates}
    rows = {row["k"]: row for row in m.table.scan().to_pylist()}
    for (number,), row in m.history.model.state().items():
        expected = {"k": number, "a": row[0], "b": row[1], "d": 7, "e": None}
        expected |= {1: {"d": 1, "b": "one"}, 2: {"e": "two"}}.get(number, {})
        assert rows[number] == expected
    m.merge([output.id])
    after = m.table.changes(times[0], times[-1], images="both").to_pylist()
    for change in after:
        for image in (change, change["_before"] or {"e": None}):
            assert image.pop("e") is None
    assert by_time_and_key(after) == by_time_and_key(before) and len(after) > 30
    m.crash()
    assert {row["k"]: row for row in m.table.scan().to_pylist()} == rows
