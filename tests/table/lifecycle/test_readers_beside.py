"""Readers that meet a writer in the middle of a step."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import kudu_core as kc
from tests.support import clock
from tests.support.fs.faulty import Call
from tests.support.fs.slow import LATE_S, PATH, SOON_S, Disk, Thread, create, log_sync, rows, values_of

# ---- readers beside a writer in the middle of a step ----


def test_a_snapshot_of_another_table_reads_nothing_that_is_not_visible(disk: Disk) -> None:
    table, other = create(disk), create(disk, "/d/u")
    with disk.held(log_sync, lambda: table.insert(rows(7, 9))):
        other.insert(rows(0, 2))
        snapshot = other.snapshot()
        read = Thread(lambda: table.get(7, at=snapshot))
        read.join(SOON_S)
        assert read.is_alive()
    read.join(LATE_S)
    assert read.answer == [{"k": 7, "a": 7, "s": "x"}]


@pytest.mark.parametrize("durability", ["sync", "group", "none"])
@pytest.mark.parametrize("now", [False, True])
def test_tokens_can_be_read_by_others_at_once(disk: Disk, durability: str, now: bool) -> None:
    table = create(disk, durability=durability, group_interval_s=30.0)
    table.insert(rows(0, 5))
    time.sleep(0.001)
    tokens = table.scan_tokens(at=clock.now() if now else None)
    with kc.open_table(PATH, _fs=disk) as reader:
        assert sum(reader.scan_token(token).to_table().num_rows for token in tokens) == 5


def test_r1_a_writer_may_act_anywhere_in_a_readers_open() -> None:
    """The reader sees the table of before, or of after one of the steps."""
    call, acted = 0, True
    while acted:
        disk = Disk()
        table = create(disk, ingest_threshold_rows=8)
        table.insert(rows(0, 5))
        table.flush()
        table.update({"k": [1], "a": [9]})
        table.insert(rows(5, 8))
        table.close()
        acted, seen, at = False, 0, call + 1
        writers: list[kc.Table] = []
        legal = [{i: i for i in range(8)} | {1: 9}]

        def act(
            _: Call,
            at: int = at,
            disk: Disk = disk,
            legal: list[Any] = legal,
            writers: list[kc.Table] = writers,
        ) -> None:
            nonlocal acted, seen
            seen += 1
            if seen != at:
                return
            acted = True
            writer = kc.open_table(PATH, "rw", _fs=disk.memory)
            writers.append(writer)
            steps: list[Callable[[], object]] = [
                lambda: writer.insert(rows(100, 120)),
                lambda: writer.delete({"k": [2]}),
                lambda: writer.flush(),
                lambda: writer.insert(rows(200, 203)),
            ]
            for step in steps:
                step()
                legal.append(values_of(writer))

        disk.see = act
        with kc.open_table(PATH, _fs=disk) as reader:
            assert values_of(reader) in legal, call
        for writer in writers:
            writer.close()
        call += 3
    assert call > 30


# ---- what an open, a flush and a create rest on ----


def test_a_token_of_another_kind_is_an_invalid_argument(disk: Disk) -> None:
    table = create(disk)
    with pytest.raises(kc.InvalidArgument):
        table.scan_token(5)  # type: ignore[arg-type]
    for target in ("x", None, 0, True):
        with pytest.raises(kc.InvalidArgument):
            table.scan_tokens(target_rows=target)  # type: ignore[arg-type]
