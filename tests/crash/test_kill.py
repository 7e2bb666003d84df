"""kill -9 of a writing process at random moments, many times on the same table.

The children are forks of this process, which has imported everything; each opens the table itself, says
through a pipe what it begins and what was acknowledged, and dies in the middle of something.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.table.opened.debug import SWITCH
from tests.support.faults import checking
from tests.support.inside import oldest_ts_of
from tests.support.models.changes import check_changes
from tests.support.models.history import SCHEMA, Batch, History, random_batch, send
from tests.support.models.model import TableModel

pytestmark = pytest.mark.timeout(7200)  # --long takes its time

KEYS = range(3000)
OPTIONS: dict[str, Any] = {
    "maintenance": "background",
    "ingest_threshold_rows": 400,
    "flush_threshold_bytes": 64 << 10,
    "flush_age_s": 0.2,
    "rowset_target_bytes": 64 << 10,
    "file_grace_s": 0.0,
    "scan_threads": 1,
}
LONGEST_LIFE_S = 1.0
CYCLES_OF_A_TABLE = 20
"""Then a new one: the history of many lives only slows the checks."""


@dataclass
class Acknowledged:
    """What the pipe has said."""

    begun: int = -1
    done: int = -1
    timestamps: list[int] = field(default_factory=list)
    walks: list[str] = field(default_factory=list)
    """Walks of maintenance that were under way in the end."""
    ended: list[str] = field(default_factory=list)
    """Those that came to their end before."""


@dataclass(frozen=True)
class Doom:
    """Death in a walk of maintenance: so long after the n-th of its kind has begun."""

    walk: str
    nth: int
    delay_s: float


def batch_of(seed: int, number: int, model: TableModel) -> Batch:
    """The same batch in the child, which sends it, and in the parent, which knows what must be there."""
    rng = random.Random(f"{seed}-{number}")
    low = rng.randrange(len(KEYS) - 300)
    keys = rng.choice((KEYS, range(low, low + 300)))
    rows = rng.choice((1, 3, 10, 100, 500))
    return random_batch(rng, model, keys, rows, whole=rows > 10)


def write_until_killed(path: str, seed: int, model: TableModel, durability: str, pipe: int) -> None:
    """The child: never returns."""
    rng = random.Random(seed)
    options = {"durability": durability, "history_retention_s": rng.choice((86_400, 86_400, 0.3))}
    with kc.open_table(path, "rw", options=options, timeout_s=10) as table:
        os.write(pipe, b'{"open":1}\n')
        number = 0
        while True:
            batch = batch_of(seed, number, model)
            for operation, rows in batch:
                model.call(operation, rows)
            os.write(pipe, json.dumps({"begin": number}).encode() + b"\n")
            result = send(table, batch)
            os.write(pipe, json.dumps({"done": number, "ts": result.timestamp}).encode() + b"\n")
            draw = rng.random()
            if draw < 0.1:
                table.flush()
            elif draw < 0.15:
                table.compact(full=rng.random() < 0.7)
            elif draw < 0.18:
                table.gc()
            number += 1


Child = Callable[[str, int, TableModel, str, int], None]


def one_life(
    path: str,
    seed: int,
    history: History,
    durability: str,
    life_s: float,
    child: Child = write_until_killed,
    doom: Doom | None = None,
) -> Acknowledged:
    """Fork a writer, kill it after ``life_s`` seconds of writing or at its ``doom``; what it had said."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:  # nothing of pytest may run here
        try:
            os.close(reading)
            os.environ[SWITCH] = str(int(seed % 4 == 0))
            child(path, seed, history.model, durability, writing)
        except BaseException as error:  # noqa: BLE001  the parent tells it
            os.write(writing, json.dumps({"error": repr(error)}).encode() + b"\n")
        finally:
            os._exit(1)
    os.close(writing)
    try:
        said = listen(reading, life_s, doom)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    while some := os.read(reading, 1 << 16):
        said += some
    os.close(reading)
    return acknowledged(said)


def listen(reading: int, life_s: float, doom: Doom | None) -> bytes:
    """What the child says in ``life_s`` seconds from its first word on, or until its ``doom``."""
    said, deadline = b"", None
    while True:
        wait = 20.0 if deadline is None else deadline - time.monotonic()
        if wait <= 0:
            break
        ready, _, _ = select.select([reading], [], [], wait)
        if not ready:
            assert deadline is not None, "the child did not open the table within 20 seconds"
            break
        some = os.read(reading, 1 << 16)
        if not some:
            break
        said += some
        if deadline is None and b"\n" in said:
            deadline = time.monotonic() + life_s
        if doom is not None and said.count(b'"walk":"%s"' % doom.walk.encode()) >= doom.nth:
            assert deadline is not None
            deadline, doom = min(deadline, time.monotonic() + doom.delay_s), None
    return said


def acknowledged(said: bytes) -> Acknowledged:
    """What the child had said, line by line."""
    heard = Acknowledged()
    for line in said.splitlines():
        message = json.loads(line)  # a line is one write to the pipe, so it is whole
        assert "error" not in message, message["error"]
        if "begin" in message:
            heard.begun = message["begin"]
        if "done" in message:
            heard.done = message["done"]
            heard.timestamps.append(message["ts"])
        if "walk" in message:
            heard.walks.append(message["walk"])
        if "ended" in message:
            heard.walks.remove(message["ended"])
            heard.ended.append(message["ended"])
    return heard


def account(
    history: History,
    seed: int,
    heard: Acknowledged,
    batch: Callable[[int, int, TableModel], Batch] = batch_of,
) -> None:
    """Bring the history to what the child had said.  ``batch``: of which seed and number, as in the child."""
    for number in range(heard.begun + 1):
        history.begin(batch(seed, number, history.model))
        if number <= heard.done:
            history.acknowledge(heard.timestamps[number])


def cycle(path: str, seed: int, number: int, history: History, durability: str) -> int:
    """One child's life and the look at what it left; returns how many batches were acknowledged."""
    rng = random.Random(f"{seed}-{number}-{durability}")
    life = seed * 1_000_003 + number
    heard = one_life(path, life, history, durability, rng.uniform(0, LONGEST_LIFE_S))
    account(history, life, heard)
    for mode in rng.choice((("r", "rw"), ("rw",))):
        seen = history.copy()
        with checking(True):
            table = kc.open_table(path, mode, options={"maintenance": "manual"}, timeout_s=10)
        with table:
            # A reader ends before an ingest that is in the log only; it may see the one in flight or not.
            (history if mode == "rw" else seen).settle(table)
            (history if mode == "rw" else seen).check(table, rng, past=2)
            if mode == "rw":
                legal = [time for time in history.writes if time >= oldest_ts_of(table)]
                for _ in range(2 if len(legal) > 1 else 0):
                    check_changes(table, history, *sorted(rng.sample(legal, 2)))
                if rng.random() < 0.3:
                    table.flush()
    return heard.done + 1


@pytest.mark.parametrize("durability", ["sync", "group"])
def test_kill(tmp_path: Path, durability: str, seed: int, long: bool) -> None:
    cycles = (200 if durability == "sync" else 50) if long else (4 if durability == "sync" else 2)
    batches = 0
    for number in range(cycles):
        if number % CYCLES_OF_A_TABLE == 0:
            path, history = str(tmp_path / f"table-{number}"), History()
            by = kc.HashPartition(["k"], 3)
            kc.create_table(path, SCHEMA, "k", partition_by=by, options=OPTIONS).close()
        try:
            batches += cycle(path, seed, number, history, durability)
        except Exception as error:
            error.add_note(f"cycle {number} of {durability}; run again with --seed={seed}")
            raise
    assert batches > cycles, f"only {batches} batches in {cycles} lives"
    print(f"{batches} batches acknowledged in {cycles} lives; seed {seed}")
