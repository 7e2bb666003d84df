"""kill -9 in the middle of what maintenance does by itself: merges, compactions of deltas, collections.

The children of ``test_kill`` write, and nothing else; their table looks after itself, with small thresholds
and little pause.  They say when a walk begins and ends, and the parent kills shortly after one of the
kind that the cycle is about has begun, so that deaths fall into each of them.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.tablet.compact import history_gc
from kudu_core.tablet.maintain import compaction_lane, delta_policy, flush_lane, folding, lane, operations
from kudu_core.tablet.store.garbage import Garbage
from tests.crash.test_kill import OPTIONS, Acknowledged, Doom, account, batch_of, one_life
from tests.support.faults import checking
from tests.support.inside import oldest_ts_of
from tests.support.models.changes import check_changes
from tests.support.models.history import SCHEMA, Batch, History, random_batch, send
from tests.support.models.model import TableModel

pytestmark = pytest.mark.timeout(7200)  # --long takes its time

WALKS: dict[str, tuple[Any, str]] = {
    "merge": (compaction_lane, "merge_rowsets"),
    "major": (folding, "compact_major"),
    "minor": (folding, "compact_minor"),
    "history gc": (history_gc, "collect"),
    "file gc": (Garbage, "collect"),
    "flush": (flush_lane, "flush_memrowset"),
    "delta flush": (flush_lane, "flush_deltas"),
}
AIMS = ("merge", "major", "history gc", "merge", "file gc", "minor", "merge", "flush", "major", "delta flush")
"""Of the cycles in turn."""
LONGEST_LIFE_S = 4.0
"""By then the walk has begun, or the machine is busy."""
LONGEST_WALK_S = 0.02
CYCLES_OF_A_TABLE = 20


def batch_at(seed: int, number: int, model: TableModel) -> Batch:
    """Large batches and then single changes of rows on disk, which delta compactions are for."""
    if number % 30 < 10 or not len(model):
        return batch_of(seed, number, model)
    rng = random.Random(f"{seed}-{number}")
    return random_batch(rng, model, sorted(key[0] for key in model.state()), 1)


def write_beside_maintenance(path: str, seed: int, model: TableModel, durability: str, pipe: int) -> None:
    """The child: never returns."""
    _tell_walks(pipe)
    lane.POLL_S = 0.01
    operations.LOOK_AGAIN_S = 0.1
    delta_policy.MINOR_FILES, delta_policy.MOST_FILES = 3, 6
    delta_policy.COLD_FACTOR = 0.04  # nobody scans here
    rng = random.Random(seed)
    options = {
        "durability": durability,
        "history_retention_s": rng.choice((86_400, 0.3, 0.3, 0)),
        "flush_age_s": 0.05,
        "maintenance_threads": 2,
    }
    with kc.open_table(path, "rw", options=options, timeout_s=10) as table:
        os.write(pipe, b'{"open":1}\n')
        number = 0
        while True:
            batch = batch_at(seed, number, model)
            for operation, rows in batch:
                model.call(operation, rows)
            os.write(pipe, json.dumps({"begin": number}).encode() + b"\n")
            result = send(table, batch)
            os.write(pipe, json.dumps({"done": number, "ts": result.timestamp}).encode() + b"\n")
            if number % 30 >= 10:
                time.sleep(rng.uniform(0, 0.03))
            number += 1


def _tell_walks(pipe: int) -> None:
    """From here on each walk says when it begins and ends.  Deletions say so only where there are some."""

    def told(name: str, walk: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if name == "file gc" and not len(args[0]):
                return walk(*args, **kwargs)
            os.write(pipe, b'{"walk":"%s"}\n' % name.encode())
            try:
                return walk(*args, **kwargs)
            finally:
                os.write(pipe, b'{"ended":"%s"}\n' % name.encode())

        return wrapped

    for name, (holder, function) in WALKS.items():
        setattr(holder, function, told(name, getattr(holder, function)))


def cycle(path: str, seed: int, number: int, walk: str, history: History, durability: str) -> Acknowledged:
    """One child's life and the look at what it left."""
    rng = random.Random(f"{seed}-{number}-{walk}")
    life = seed * 1_000_003 + number
    doom = Doom(walk, rng.choice((1, 2, 3, 5)), rng.uniform(0, LONGEST_WALK_S) if rng.random() < 0.8 else 0.0)
    heard = one_life(path, life, history, durability, LONGEST_LIFE_S, write_beside_maintenance, doom)
    account(history, life, heard, batch_at)
    with checking(True):
        table = kc.open_table(path, "rw", options={"maintenance": "manual"}, timeout_s=10)
    with table:
        history.settle(table)
        history.check(table, rng, past=4)
        legal = [time for time in history.writes if time >= oldest_ts_of(table)]
        if len(legal) > 1:
            since, until = sorted(rng.sample(legal[-40:], 2))
            check_changes(table, history, since, until)
        table.verify()
    return heard


def test_kill_in_maintenance(tmp_path: Path, seed: int, long: bool) -> None:
    cycles = 300 if long else len(AIMS)
    fell: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    batches = 0
    for number in range(cycles):
        if number % CYCLES_OF_A_TABLE == 0:
            path, history = str(tmp_path / f"table-{number}"), History()
            by = [kc.HashPartition(["k"], 2)] if number % 40 == 0 else []
            kc.create_table(path, SCHEMA, "k", partition_by=by, options=OPTIONS).close()
        walk = AIMS[number % len(AIMS)]
        try:
            heard = cycle(path, seed, number, walk, history, "sync" if number % 3 else "group")
        except Exception as error:
            error.add_note(f"cycle {number}, {walk}; run again with --seed={seed}")
            raise
        batches += heard.done + 1
        fell.update(heard.walks)
        ended.update(heard.ended)
    print(f"{batches} batches acknowledged in {cycles} lives, which ended in {dict(fell)}; seed {seed}")
    print(f"walks that came to an end: {dict(ended)}")
    assert batches > cycles
    assert fell["merge"], "no merge was interrupted"
    others = [walk for walk in WALKS if walk != "merge"]
    assert all(fell[walk] for walk in others) if long else any(fell[walk] for walk in others), fell
    assert ended["merge"] and ended["file gc"] and ended["major"] + ended["minor"], ended
