"""Times of files of new tablets, which lie before their beginning."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import kudu_core as kc
from tests.table.manage.worlds import World
from tests.table.repartition.test_repartition import told


def test_times_while_it_reads(tmp_path: Path) -> None:
    """Files of the new tablets have times that lie before their beginning, and nobody is shown them."""
    rng = random.Random(5)
    world = World("folder", tmp_path, 1, history_retention_s=0, file_grace_s=0)
    world.write(rng, range(30), 30)
    first = world.table.snapshot()
    world.note()
    held: list[kc.Snapshot] = []

    def between(done: int, of: int) -> None:
        if not done:
            world.write(rng)
            held.append(world.table.snapshot())
            world.note()

    at = world.table.repartition(kc.HashPartition("k", 3), progress=between)
    world.write(rng)
    world.note()
    world.check()
    [between_them] = held
    rows = told(world.table, None, until=between_them.timestamp, net=True)
    assert len(rows) == len(world.then[between_them.timestamp])
    assert at not in {row["_timestamp"] for row in told(world.table, first.timestamp)}
    shares = [token for token in world.table.change_tokens(first.timestamp) if min(token.tablet_ids) > 1]
    assert sum(token.rows for token in shares) <= len(told(world.table, at))
    first.close()
    world.table.flush()
    world.table.compact(full=True)
    world.table.gc()
    with pytest.raises(kc.SnapshotTooOld):
        world.table.count(at=first.timestamp)
    there = world.then[between_them.timestamp]
    rows = told(world.table, None)
    assert sum(row["_timestamp"] <= between_them.timestamp for row in rows) == len(there)
    assert len(told(world.table, None, net=True)) == len(world.rows)
    between_them.close()
    world.table.close()
