"""Merges whose outputs other processes build: the same states and the same changes."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.rowset.history.merging import OutputLimits
from kudu_core.tablet.compact import merge
from tests.support.models.history import random_batch
from tests.support.models.merging import Builder, Merging


def staging(m: Merging) -> list[str]:
    return os.listdir(m.path / "staging")


@pytest.mark.parametrize("retention", [None, 0.0])
def test_every_state_and_every_change_stay(
    tmp_path: Path, seed: int, retention: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merges of random rowsets, each by a reader that stays open, with histories of all kinds."""
    monkeypatch.setattr(merge, "OutputLimits", lambda file_bytes, memory_bytes: OutputLimits(1500, 1 << 20))
    rng = random.Random(seed)
    m = Merging(tmp_path / "t", history_retention_s=retention)
    builder = Builder(m.table)
    several = 0
    for step in range(8):
        for _ in range(4):
            rows, whole = rng.choice((1, 4, 70)), rng.random() < 0.5
            m.history.write(m.table, random_batch(rng, m.history.model, range(60), rows, whole=whole))
            if rng.random() < 0.5:
                m.table.flush() if rng.random() < 0.5 else m.flush()
        if not m.ids:
            continue
        builder.between = lambda: m.history.write(
            m.table, random_batch(rng, m.history.model, range(60), rng.choice((1, 70)), whole=False)
        )
        ids = rng.sample(m.ids, rng.randint(1, len(m.ids)))
        done = m.merge(ids, builder=builder)
        several += done.rowsets_added > 1 and len(builder.tasks) > 1
        assert builder.answers and staging(m) == []
        if step % 4 == 3:
            m.check()
    assert several
    m.crash()
    m.check()


def test_what_is_written_meanwhile_is_carried_over(m: Merging) -> None:
    """Updates, deletions, rows that come back, delta flushes and an ingest between the tasks."""
    builder = Builder(m.table)
    steps: list[Callable[[], object]] = [
        lambda: m.set(4, 5, 100, c=0.25),
        lambda: m.delete(4, 50),
        m.flush_all,
        lambda: m.write(("upsert", [{"k": k, "a": 5} for k in range(0, 120, 2) if k not in (4, 50)])),
        lambda: m.put(4, a=44),
    ]
    builder.between = lambda: steps.pop(0)() if steps else None
    done = m.merge(builder=builder)
    assert not steps and len(builder.tasks) > 3
    assert done.changes > 0 and done.rowsets_added > 1
    m.check()
    m.reopen()
    m.check()


@pytest.mark.parametrize("flush", [False, True])
def test_a_reader_that_is_behind_looks_again(m: Merging, flush: bool) -> None:
    """Changes that it has not seen, in the log or in a file of a rowset that it knows."""
    builder = Builder(m.table)
    m.flush_all()
    builder.reader = kc.open_table(m.path)
    m.set(4, 5, 100, a=99)
    m.delete(50)
    if flush:
        m.flush_all()
    m.merge(builder=builder)
    assert len(builder.answers) > 1
    m.check()


def test_columns_that_come_and_go_meanwhile(m: Merging) -> None:
    builder = Builder(m.table)
    alters: list[dict[str, Any]] = [
        {"add": [kc.Column("n", pa.int64(), default=7)]},
        {"drop": ["b"]},
    ]
    builder.between = lambda: m.table.alter(**alters.pop()) if alters else None
    m.merge(builder=builder)
    m.table.update({"k": [1], "n": [8]})
    assert m.table.get(1) == {"k": 1, "a": 7, "c": 0.5, "n": 8}
    m.merge(builder=builder)
    assert m.table.get(1) == {"k": 1, "a": 7, "c": 0.5, "n": 8}
    assert m.table.verify().files


def test_the_outputs_are_those_of_a_merge_here(m: Merging, tmp_path: Path) -> None:
    other = Merging(tmp_path / "other")
    for one in (m, other):
        one.table.close()
    shutil.rmtree(other.path)
    shutil.copytree(m.path, other.path)
    m.table, other.table = kc.open_table(m.path, "rw"), kc.open_table(other.path, "rw")
    there, here = m.merge(builder=Builder(m.table)), other.merge()
    assert replace(there, horizon=0) == replace(here, horizon=0)

    def told(m: Merging) -> list[Any]:
        found: list[Any] = []
        for meta in m.tablet.rowset_metas:
            found += [meta.rows, meta.min_key, meta.max_key, meta.insert_ts, meta.statistics]
            found += [(d.entries, d.min_ts, d.max_ts, d.liveness) for d in (*meta.redo, *meta.undo)]
        return found

    assert told(m) == told(other)
