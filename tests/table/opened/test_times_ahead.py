"""Times that no int64 holds, from May 2041, and what comes after the last one, in 2112."""

from __future__ import annotations

import datetime as dt
import os
import random
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.format.members import LIMIT
from kudu_core.common.run.clock import hybrid, time_of, timestamp_of
from kudu_core.errors import InvalidArgument, NotSupported, SnapshotInFuture
from tests.support.clock import ManualClock
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import log_of, wait_durable
from tests.support.models.changes import check_changes, check_pairs
from tests.support.models.history import SCHEMA, History, random_batch

BORDER_US = 1 << 51
"""In 2041: hybrid times from here on are no int64."""
END_US = LIMIT >> 12
STARTS = {
    "2041": BORDER_US - 20,
    "2100": int(dt.datetime(2100, 1, 1, tzinfo=dt.UTC).timestamp()) * 10**6,
    "2112": END_US - 10**9,
}
LATER = int(dt.datetime(2262, 1, 1, tzinfo=dt.UTC).timestamp()) * 10**6
OPTIONS = {"maintenance": "manual", "durability": "none", "file_grace_s": 0}

FORMS = (int, np.uint64, Decimal, lambda ts: pa.scalar(ts, pa.uint64()))
"""As what a timestamp may be given back: Python's, pandas', Spark's, Arrow's."""


@pytest.fixture(params=STARTS)
def clock(request: pytest.FixtureRequest) -> ManualClock:
    return ManualClock(STARTS[request.param])


@pytest.mark.parametrize("ingest_rows", [10**6, 40])
def test_a_history_in_the_future(
    tmp_path: Path, seed: int, long: bool, clock: ManualClock, ingest_rows: int
) -> None:
    """What is told of it is what happened, on both sides of the border, however often it is reopened."""
    for run in range(20 if long else 1):
        rng, history, path = random.Random(f"{seed}-{run}"), History(), tmp_path / f"t{run}"
        options = OPTIONS | {"ingest_threshold_rows": ingest_rows}
        ranges = [kc.HashPartition(["k"], 2)] if run % 2 else []
        table = kc.create_table(path, SCHEMA, "k", partition_by=ranges, options=options, _clock=clock)
        for _ in range(24):
            rows = rng.choice((1, 4, 50))
            history.write(table, random_batch(rng, history.model, range(60), rows, whole=rng.random() < 0.5))
            clock.advance(us=2)
            draw = rng.random()
            if draw < 0.2:
                table.flush()
            elif draw < 0.3:
                table.compact(full=True)
            elif draw < 0.4:
                table.close()
                table = kc.open_table(path, "rw", _clock=clock)
        wait_durable(table)
        assert (history.writes[-1] >= 1 << 63) and history.writes[-1] < LIMIT
        if clock.now_us() < 2 * BORDER_US - END_US:
            assert history.writes[0] < 1 << 63, "the history crosses the border"
        assert check_changes(table, history, 0, history.writes[-1]) > 50
        history.check(table, rng)
        check_pairs(table, history, rng, 6)
        with kc.open_table(path, _clock=clock) as reader:
            history.check(reader, rng)
            check_pairs(reader, history, rng, 6)
        table.verify()
        table.close()


def test_what_a_change_says_of_its_time_is_taken_back(clock: ManualClock) -> None:
    fs = MemoryFileSystem()
    with kc.create_table("/t", SCHEMA, "k", options=OPTIONS, _fs=fs, _clock=clock) as table:
        written = []
        for k in range(8):
            written.append(table.insert({"k": [k], "a": [k]}).timestamp)
            clock.advance(us=9)
        log_of(table).wait_durable(written[-1])
        told = table.changes(since=0)
        assert told.schema.field("_timestamp").type == pa.uint64()
        assert [row["_timestamp"] for row in told.to_pylist()] == written
        assert table.changes(net=True).to_table()["_timestamp"].to_pylist() == written
        assert told.to_table().to_pandas()["_timestamp"].tolist() == written
        for form in FORMS:
            for n, ts in enumerate(written):
                since = table.changes(since=form(ts))
                assert [row["k"] for row in since.to_pylist()] == list(range(n + 1, 8))
                assert table.count(at=form(ts)) == n + 1
                assert table.get(n, at=form(ts))["a"] == n and table.get(n, at=form(ts - 1)) is None
            window = table.changes(since=form(written[2]), until=form(written[5]))
            assert [row["k"] for row in window.to_pylist()] == [3, 4, 5]
        shares = table.change_tokens(written[2], written[6], target_rows=1)
        again = [row for share in shares for b in table.change_token(share) for row in b.to_pylist()]
        assert sorted(row["_timestamp"] for row in again) == written[3:7]
        saved = table.backup("/saved")
        table.insert({"k": [8]})
        more = table.backup("/saved", since=np.uint64(saved.timestamp))
        assert more.timestamp > saved.timestamp
        for form in FORMS:
            with kc.restore(
                "/saved", f"/r{form}".replace(" ", ""), form(saved.timestamp), _fs=fs, _clock=clock
            ) as back:
                assert back.count() == 8


def test_what_a_table_tells_of_itself_it_tells_in_every_year(clock: ManualClock) -> None:
    """``stats()`` had its times as int64, and raised from 2041 on."""
    fs, cut = MemoryFileSystem(), kc.RangePartition("k", [(0, 5), (5, None)])
    with kc.create_table("/t", SCHEMA, "k", partition_by=cut, options=OPTIONS, _fs=fs, _clock=clock) as table:
        for k in (1, 7):
            table.insert({"k": [k], "a": [k]}, txn=("app", k))
            table.flush()
            table.update({"k": [k], "a": [k + 1]})
            clock.advance(1)
        table.alter(drop_range=(0, 5))
        table.compact(full=True)
        seen = set()
        for told in (*(table.stats(by) for by in ("table", "tablet", "rowset", "column")), table.history()):
            for field in told.schema:
                if field.name.endswith("_ts"):
                    seen.add(field.name)
                    assert field.type == pa.uint64(), field
        assert seen == {"oldest_ts", "newest_ts", "created_ts", "dropped_ts", "durable_ts"}
        assert table.stats().to_pylist()[0]["newest_ts"] == table.timestamp > 1 << 62
        for text in (
            table.layout(),
            repr(table),
            str(table.metrics()),
            repr(table.scan()),
            table.scan().explain(),
        ):
            assert text
        with table.snapshot() as snapshot:
            assert repr(snapshot) and snapshot.timestamp == table.timestamp


@pytest.mark.parametrize(
    "no_time", [True, np.bool_(True), 1.0, "7", b"7", Decimal("1.5"), Decimal("nan"), [7]]
)
def test_what_is_no_timestamp_is_refused(no_time: Any) -> None:
    assert timestamp_of(no_time) is None
    with kc.create_table("/t", SCHEMA, "k", options=OPTIONS, _fs=MemoryFileSystem()) as table:
        with pytest.raises(InvalidArgument, match="timestamp"):
            table.scan(at=no_time)
        with pytest.raises(InvalidArgument, match="timestamp"):
            table.changes(since=no_time)
        for number in (-1, 1 << 64, 10**5000):
            with pytest.raises(InvalidArgument, match="timestamp"):
                table.scan(at=number)


WRITES = {
    "insert": lambda table: table.insert({"k": [7], "a": [1]}),
    "one row": lambda table: table.upsert([{"k": 0, "a": 5}]),
    "many rows": lambda table: table.insert({"k": range(100, 200)}),
    "delete": lambda table: table.delete(where=None, keys=[0]),
    "batch": lambda table: table.apply(pa.table({"_op": ["insert", "delete"], "k": [5, 0]})),
    "alter": lambda table: table.alter(add=[kc.Column("new", "int64")]),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("now_us", [END_US, LATER], ids=["2112", "2262"])
def test_after_the_last_timestamp_nothing_is_written(write: str, now_us: int) -> None:
    """A clock so far ahead is wrong; whatever it says, no record is written that no reader takes."""
    fs, clock = MemoryFileSystem(), ManualClock()
    options = OPTIONS | {"durability": "sync", "ingest_threshold_rows": 50}
    table = kc.create_table("/t", SCHEMA, "k", options=options, _fs=fs, _clock=clock)
    table.insert({"k": [0], "a": [0]})
    before = table.scan().to_pylist(), table.schema
    clock.set_us(now_us)
    with pytest.raises(NotSupported, match=r"the clock says .*2112-09-17"):
        WRITES[write](table)
    assert (table.scan().to_pylist(), table.schema) == before
    with pytest.raises(SnapshotInFuture):
        table.scan(at=LIMIT)
    clock.set_us(END_US - 1)
    WRITES[write](table)
    table.close()
    clock.set_us(now_us)
    for mode in ("r", "rw"):
        with kc.open_table("/t", mode, _fs=fs, _clock=clock) as again:
            assert again.timestamp >= hybrid(END_US - 1)
            assert time_of(again.timestamp).startswith("2112-09-17")


def test_a_table_made_when_time_has_ended(clock: ManualClock) -> None:
    fs, after = MemoryFileSystem(), ManualClock(LATER)
    table = kc.create_table("/t", SCHEMA, "k", options=OPTIONS, _fs=fs, _clock=after)
    with pytest.raises(NotSupported, match="the clock says 2262-01-01"):
        table.insert({"k": [1]})
    after.set_us(clock.now_us())
    table.insert({"k": [1]})
    table.flush()
    after.set_us(LATER)
    assert table.count() == 1 and table.count(at=LIMIT - 1) == 1
    table.gc()
    table.close()
    with kc.open_table("/t", _fs=fs, _clock=after) as reader:
        assert reader.count() == 1


ROOMS_AHEAD = tuple(f"tests/{room}" for room in ("common", "rowset", "tablet", "table", "stories"))
ALSO_AHEAD = (
    "tests/table/opened/test_snapshots.py",
    "tests/table/opened/test_token_retention.py",
    "tests/rowset/test_changelog.py",
)


@pytest.mark.timeout(7200)
def test_what_holds_today_holds_in_the_year_2100(long: bool) -> None:
    """Tests that know nothing of it, with all clocks set there; ``--long``: all of the rooms with tables."""
    root = Path(__file__).parents[3]
    chosen = ROOMS_AHEAD if long else ALSO_AHEAD
    own = f"--deselect={Path(__file__).relative_to(root).as_posix()}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--ahead", own, *chosen],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
