"""Maintenance whose merges other processes build does what it does here."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.common.run.locks import Claim
from kudu_core.table.jobs.merge_job import RemoteMergeTask, build_task, builder_of
from kudu_core.table.lifecycle.maintain import maintain_now
from kudu_core.tablet.compact import merge
from tests.support.inside import engine_of, handle_of, tablets_of
from tests.support.models.history import SCHEMA, History, random_batch
from tests.support.models.merging import OPTIONS


def overlapping(path: Path, history: History, rng: random.Random) -> kc.Table:
    by = kc.HashPartition("k", 3)
    table = kc.create_table(path, SCHEMA, "k", partition_by=by, options={**OPTIONS, "flush_age_s": 3600})
    for _ in range(6):
        history.write(table, random_batch(rng, history.model, range(300), 200, whole=True))
        table.flush()
    return table


@pytest.mark.parametrize("threads", [1, 4])
def test_maintenance_does_what_it_does_here(tmp_path: Path, seed: int, threads: int) -> None:
    here, there = History(), History()
    wanted = overlapping(tmp_path / "here", here, random.Random(seed))
    found = overlapping(tmp_path / "there", there, random.Random(seed))
    runs: list[int] = []

    def run(tasks: Sequence[RemoteMergeTask]) -> list[bytes]:
        runs.append(len(tasks))
        with kc.open_table(tasks[0].table_path) as reader:
            handle = handle_of(reader)
            return [told for n, task in enumerate(tasks) for told in build_task(handle, task, f"a{n}")]

    def merges(table: kc.Table) -> float:
        return table.metrics().get("merge_count", 0)  # what else there is depends on the time it takes

    assert maintain_now(engine_of(found), None, builder_of(engine_of(found), run, Claim(set())), threads)
    assert wanted.maintain()
    assert merges(found) == merges(wanted) and len(runs) >= 3
    maintain_now(engine_of(found), None, builder_of(engine_of(found), run, Claim(set())), threads)
    assert merges(found) == merges(wanted)
    layouts = [
        sorted((t.id, r.meta.min_key, r.meta.max_key, r.meta.rows) for t in e.tablets for r in t.view.rowsets)
        for e in (engine_of(found), engine_of(wanted))
    ]
    assert layouts[0] == layouts[1]
    assert os.listdir(tmp_path / "there/staging") == []
    for mine, at in zip(there.writes, here.writes, strict=True):
        assert found.scan(order="key", at=mine).to_table() == wanted.scan(order="key", at=at).to_table()
    found.verify()


def test_an_operation_that_fails_ends_the_others_and_is_told(tmp_path: Path, seed: int) -> None:
    table = overlapping(tmp_path / "t", History(), random.Random(seed))
    before = table.scan(order="key").to_table()

    def fails(tasks: Sequence[RemoteMergeTask]) -> list[bytes]:
        raise OSError(5, "the executors are gone")

    with pytest.raises(OSError, match="executors are gone"):
        maintain_now(engine_of(table), None, builder_of(engine_of(table), fails, Claim(set())), 3)
    errors = table.history()["error"].drop_null().to_pylist()
    assert errors and all("executors are gone" in error for error in errors)
    builder = builder_of(engine_of(table), fails, Claim(set()))
    assert maintain_now(engine_of(table), 0, builder, 3) == 0, "no budget"
    assert table.scan(order="key").to_table() == before
    assert os.listdir(tmp_path / "t/staging") == []
    assert all(not tablet.compacting for tablet in tablets_of(table))


def test_several_are_under_way_at_a_time(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And those that are built here one after the other: each may take its share of the memory limit.  Small
    ones need not, so none is small here."""
    monkeypatch.setattr(merge, "SMALL_BYTES", -1)
    table = overlapping(tmp_path / "t", History(), random.Random(seed))
    meeting = threading.Barrier(3, timeout=20)
    building, most = [0], [0]
    usual = merge.build

    def build(*arguments: Any) -> Any:
        building[0] += 1
        most[0] = max(most[0], building[0])
        try:
            return usual(*arguments)
        finally:
            building[0] -= 1

    def run(tasks: Sequence[RemoteMergeTask]) -> list[bytes]:
        if not meeting.broken and most[0] == 0:
            meeting.wait()
        return []  # all of them are built here then

    monkeypatch.setattr(merge, "build", build)
    assert maintain_now(engine_of(table), None, builder_of(engine_of(table), run, Claim(set())), 3) >= 3
    assert most[0] == 1
