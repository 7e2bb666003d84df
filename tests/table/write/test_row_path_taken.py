"""Which reads and writes take the row path: plain ones, of every store."""

from __future__ import annotations

import gc
import random
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core._ext.base.status import NeedsGeneralPath
from kudu_core._ext.pages.holder import PageHolder
from kudu_core.rowset.disk.deltastore import DeltaStore
from kudu_core.table.read import points
from kudu_core.table.write import log_walk
from tests.support.cases.row_tables import LAYOUTS, make
from tests.support.clock import ManualClock
from tests.support.inside import all_rowsets_of, engine_of, rowsets_of, tablets_of
from tests.table.write.test_row_path import same


def test_plain_keys_take_the_row_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory, flushed, updated and absent: none of them needs the general path."""
    with make(tmp_path / "t", ("string", "int64"), ManualClock()) as table:
        table.insert([{"k0": f"host-{i % 50}", "k1": i, "need": i} for i in range(3000)])
        table.flush()
        table.update([{"k0": "host-7", "k1": 7, "need": 70}])
        table.insert([{"k0": "new", "k1": 1, "need": 1}])

        def refuse(*_: Any) -> None:
            raise AssertionError("the general path")

        monkeypatch.setattr(points, "_get_general", refuse)
        for i in range(0, 3000, 7):
            row = table.get((f"host-{i % 50}", i))
            assert row is not None and row["need"] == (70 if i == 7 else i)
        by_name = table.get({"k0": "host-7", "k1": 7})
        assert by_name is not None and table.get(("host-7", 7)) == by_name | {"need": 70}
        assert table.get(("new", 1), ["need"]) == {"need": 1}
        for absent in [("host-1", 0), ("host", 1), ("zzz", 1), ("", 0), ("host-1", -(2**63))]:
            assert table.get(absent) is None


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_newest_row_of_a_table_of_one_tablet_is_found_in_few_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    """``points.get`` answers by itself; what it does not, ``_get`` does, with the same answers."""
    asked: list[Any] = []
    usual = points._get

    def counted(engine: Any, key: Any, *more: Any) -> Any:
        asked.append(key)
        return usual(engine, key, *more)

    monkeypatch.setattr(points, "_get", counted)
    with make(tmp_path / "t", ("string", "int64"), ManualClock(), layout) as table:
        keys = [k for i in range(60) if has_tablet(table, k := (f"host-{i % 7}", i % 41))]
        table.insert([{"k0": k[0], "k1": k[1], "need": i} for i, k in enumerate(keys)])
        for _ in "memory", "flushed":
            rows = [table.get(key) for key in keys]
            assert bool(asked) == (layout != "one")
            asked.clear()
            assert rows == [table.get(key, at=table.timestamp) for key in keys]
            assert [row and row["need"] for row in rows] == list(range(len(keys)))
            assert len(asked) == len(keys)
            asked.clear()
            table.flush()
        before = table.timestamp
        table.update([{"k0": keys[0][0], "k1": keys[0][1], "need": -1}])
        assert table.get(keys[0]) == table.get(keys[0], at=before) | {"need": -1}  # type: ignore[operator]
    with pytest.raises(kc.Closed):
        table.get(keys[0])


def test_pages_leave_with_the_cache(tmp_path: Path) -> None:
    """What point reads hold is what the cache holds, whoever looked last."""
    with make(tmp_path / "t", ("int64",), ManualClock(), page_cache_bytes=1 << 20) as table:
        r = random.Random(1)
        table.insert(
            {
                "k0": list(range(60_000)),
                "need": [r.getrandbits(60) for _ in range(60_000)],
                "v11": [f"{r.random()}" for _ in range(60_000)],
            }
        )
        table.flush()
        rowset = rowsets_of(table)[0]
        points_ = rowset.base.open().points
        cache = rowset.base.cache
        assert cache is not None
        for _ in range(2000):
            k = r.randrange(60_000)
            row = table.get(k)
            assert row is not None and row["k0"] == k
            assert points_.pages <= cache.statistics().pages
        assert points_.pages > 0
    with pytest.raises(NeedsGeneralPath):
        points_.find(b"12345678", 0)


REFUSED = "the general path"


def refuse(*_: Any) -> None:
    raise AssertionError(REFUSED)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_store_is_read_by_the_row_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    """Overlapping rowsets, REDO and UNDO files, DeltaMemStores, deleted and reinserted rows, at any time."""
    r = random.Random(layout)
    key_types = ("string", "int64")
    states: list[tuple[int, dict[tuple[str, int], dict[str, Any]]]] = []
    model: dict[tuple[str, int], dict[str, Any]] = {}
    keys = [(f"host-{i % 9}", i % 40) for i in range(200)]
    with make(tmp_path / "t", key_types, ManualClock(), layout) as table:
        defaults = dict.fromkeys(table.schema.names) | {"must": 7}
        takes = [key for key in keys if has_tablet(table, key)]
        for step in range(930):
            key = r.choice(takes)
            row: dict[str, Any] = {"k0": key[0], "k1": key[1]}
            if key in model and r.random() < 0.3:
                table.delete([row])
                del model[key]
            else:
                row |= {"need": step, r.choice(["v3", "v11", "v16"]): None}
                row |= {"v9": r.random(), "v11": f"text {step}"} if r.random() < 0.5 else {}
                table.upsert([row])
                model[key] = {**model.get(key, defaults), **row}
            if step % 60 == 59:
                table.flush()
            if step % 45 == 44:
                states.append((table.timestamp, {k: dict(v) for k, v in model.items()}))
        rowsets = all_rowsets_of(table)
        assert any(rowset.undo for rowset in rowsets), "no UNDO file"
        assert any(isinstance(s, DeltaStore) for rowset in rowsets for s in rowset.redo), "no REDO file"
        assert any(rowset.memory_stores for rowset in rowsets), "no DeltaMemStore"
        assert max(len(t.view.rowsets) for t in tablets_of(table)) > 3
        monkeypatch.setattr(points, "_get_general", refuse)
        for at, state in [*states, (table.timestamp, model)]:
            for key in keys:
                assert same(table.get(key, at=at), state.get(key)), (key, at)
        assert table.get(keys[0]) == model.get(keys[0])
        with table.snapshot(states[3][0]) as snapshot:
            assert [snapshot.get(key) for key in keys] == [states[3][1].get(key) for key in keys]
    monkeypatch.undo()
    with kc.open_table(tmp_path / "t") as reader:
        monkeypatch.setattr(points, "_get_general", refuse)
        assert [reader.get(key) for key in keys] == [model.get(key) for key in keys]


def has_tablet(table: kc.Table, key: tuple[str, int]) -> bool:
    engine = engine_of(table)
    encoded = engine.schema.row_codec.keys.encode(key)
    assert encoded is not None
    return points.tablet_of_key(engine.tablets, encoded) is not None


@pytest.mark.parametrize("layout", LAYOUTS)
def test_writes_of_flushed_rows_take_the_row_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    with make(tmp_path / "t", ("string", "int64"), ManualClock(), layout) as table:
        keys = [k for i in range(300) if has_tablet(table, k := (f"host-{i % 7}", i % 41))]
        rows_ = {k: {"k0": k[0], "k1": k[1], "need": i} for i, k in enumerate(keys)}
        table.insert(list(rows_.values()))
        table.flush()
        monkeypatch.setattr(log_walk, "write_calls", refuse)
        for n, (h, t) in enumerate(rows_):
            key = {"k0": h, "k1": t}
            assert table.update([{**key, "need": -n}]).counts == (0, 1, 0, 0)
            assert table.upsert([{**key, "v3": n}]).counts == (0, 1, 0, 0)
            assert table.insert([{**key, "need": 5}], on_conflict="ignore").counts == (0, 0, 0, 1)
            row = table.get((h, t))
            assert row is not None and (row["need"], row["v3"]) == (-n, n)
            assert table.delete([key]).counts == (0, 0, 1, 0)
            assert table.get((h, t)) is None
            assert table.delete([key], on_missing="ignore").counts == (0, 0, 0, 1)
            assert table.update([{**key, "need": 1}], on_missing="ignore").counts == (0, 0, 0, 1)
            assert table.insert([{**key, "need": n}]).counts == (1, 0, 0, 0)
            assert table.update([{**key, "need": n + 1}]).counts == (0, 1, 0, 0)
            assert table.get((h, t), ["need"]) == {"need": n + 1}
        assert table.count() == len(rows_)


def test_columns_that_a_compaction_rewrote_take_the_row_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They lie in files of their own, which the cache tells about their pages."""
    with make(tmp_path / "t", ("string", "int64"), ManualClock(), page_cache_bytes=1 << 20) as table:
        table.insert([{"k0": f"host-{i % 5}", "k1": i, "need": i, "v3": i} for i in range(2000)])
        before = table.timestamp
        table.flush()
        table.update([{"k0": f"host-{i % 5}", "k1": i, "need": -i} for i in range(0, 2000, 3)])
        table.flush()
        table.compact(full=True)
        rowset = rowsets_of(table)[0]
        assert rowset.meta.replaced
        monkeypatch.setattr(points, "_get_general", refuse)
        for at, sign in ((None, -1), (before, 1)):
            for i in range(2000):
                row = table.get((f"host-{i % 5}", i), ["need", "v3"], at=at)
                assert row == {"need": i if i % 3 else sign * i, "v3": i}
        file = rowset.base.open().points
        table.close()
        others = held_by(file)
        assert others and all(holder.closed for holder in others) and file.closed


def held_by(file: Any) -> list[Any]:
    """Who else holds pages for the file."""
    return [other for other in gc.get_referents(file) if isinstance(other, PageHolder)] + [
        other
        for part in gc.get_referents(file)
        if isinstance(part, list)
        for other in part
        if isinstance(other, PageHolder)
    ]
