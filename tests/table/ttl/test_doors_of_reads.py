"""Every call that reads rows, in every state in which they may lie: none has what has expired."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import kudu_core as kc
from tests.table.opened import test_handle_beside as every_call
from tests.table.ttl.twins import DAY, LIFETIME, Twins

ALIVE, GONE, TIMELESS, NEVER = range(10), range(10, 20), range(20, 25), range(25, 30)
"""Keys of rows that live on, of those that expire, of those without a time, and of none."""
HERE = {*ALIVE, *TIMELESS}
KEYS = [*ALIVE, *GONE, *TIMELESS, *NEVER]
Keys = set[int]


def _of(rows: Any) -> Keys:
    found = rows.column("k").to_pylist()
    assert len(found) == len(set(found))
    return set(found)


def _counted(count: int) -> Keys:
    """The keys, where their number is right."""
    return HERE if count == len(HERE) else {-count}


def _found(table: Any, columns: list[str] | None) -> Keys:
    rows = table.get_many(KEYS, columns)
    for row in rows.to_pylist():
        assert row["_found"] or all(row[name] is None for name in row if name not in ("k", "_found"))
    return {key for key, found in zip(KEYS, rows["_found"].to_pylist(), strict=True) if found}


def _tokens(table: kc.Table) -> Keys:
    shares = [pickle.loads(pickle.dumps(token)) for token in table.scan_tokens(["k"], target_rows=4)]
    return set().union(*(_of(table.scan_token(share).to_table()) for share in shares))


def _fragments(table: kc.Table) -> Keys:
    return set().union(*(_of(some.to_table()) for some in table.to_dataset().get_fragments()))


def _datafusion(table: kc.Table) -> Keys:
    datafusion = pytest.importorskip("datafusion")
    context = datafusion.SessionContext()
    context.register_dataset("t", table.to_dataset())
    return _of(context.sql("select k from t").to_arrow_table())


def _polars(table: kc.Table) -> Keys:
    return set(table.lazy().select("k").collect()["k"].to_list())


def _duckdb(table: kc.Table) -> Keys:
    data = table.to_dataset()  # noqa: F841  DuckDB finds it by its name
    return _of(duckdb.sql("select k from data").arrow().read_all())


def _streamed(table: kc.Table) -> Keys:
    import pyarrow as pa

    return _of(pa.table(table))


def _bounds(table: kc.Table) -> Keys:
    return HERE if table.scan().min_max("v") == (min(HERE), max(HERE)) else {-1}


def _lives(table: Any, key: int) -> bool:
    """Whether a key has a version that has not ended."""
    return None in table.history_of(key, ["v"])["_valid_to"].to_pylist()


def _snapshot(table: kc.Table) -> Keys:
    with table.snapshot() as now:
        assert {key for key in KEYS if now.get(key) is not None} == HERE
        assert _found(now, ["v"]) == HERE
        assert {key for key in KEYS if _lives(now, key)} == HERE
        return _of(now.scan(["k"]).to_table())


Door = Callable[[kc.Table], Keys]
DOORS: dict[str, list[Door]] = {
    "get": [
        lambda t: {key for key in KEYS if t.get(key) is not None},
        lambda t: {key for key in KEYS if t.get(key, ["v"]) == {"v": key}},
        lambda t: {key for key in KEYS if t.get(key, ["at", "k"]) is not None},
        lambda t: {key for key in KEYS if key in t},
    ],
    "get_many": [lambda t: _found(t, None), lambda t: _found(t, ["v"]), lambda t: _found(t, ["k"])],
    "count": [
        lambda t: _counted(t.count()),
        lambda t: _counted(t.count(pc.field("v") >= 0)),
        lambda t: _counted(t.count([("s", "==", "x")])),
        lambda t: _counted(len(t)),
    ],
    "scan": [
        lambda t: _of(t.scan().to_table()),
        lambda t: _of(t.scan(["k"], order="key").to_table()),
        lambda t: _of(t.scan(["k"], "v >= 0").to_table()),
        lambda t: _of(t.scan(["k"], order="key", limit=len(HERE)).to_table()),
        lambda t: _of(t.scan(["k"], key_range=(0, 100)).to_table()),
        lambda t: _of(t.scan(["k"], pc.field("k").isin(KEYS)).to_table()),
        lambda t: _of(pickle.loads(pickle.dumps(t.scan(["k"]))).to_table()),
        lambda t: _counted(t.scan(limit=100).count()),
        _bounds,
    ],
    "snapshot": [_snapshot],
    "to_dataset": [
        lambda t: _of(t.to_dataset().to_table()),
        lambda t: _of(t.to_dataset().to_table(columns=["k"], filter=ds.field("v") >= 0)),
        lambda t: _counted(t.to_dataset().count_rows()),
        _fragments,
        _duckdb,
        _datafusion,
    ],
    "lazy": [_polars],
    "sql": [lambda t: _of(t.sql("SELECT k FROM this"))],
    "scan_tokens": [_tokens],
    "scan_token": [_tokens],
    "head": [lambda t: _of(t.head(100))],
    "to_table": [lambda t: _of(t.to_table()), _streamed],
    "to_pandas": [lambda t: set(t.to_pandas()["k"])],
    "to_polars": [lambda t: set(t.to_polars()["k"].to_list())],
    "history_of": [lambda t: {key for key in KEYS if _lives(t, key)}],
}
TOLD_AS_WRITTEN = {"changes", "change_tokens", "change_token"}
"""Expiry is no change: the deletion that follows it is (``test_expiry_in_changes.py``)."""
COPIES = {"backup", "clone"}
"""They have all that is stored: ``test_copies.py``."""
NO_ROWS = {
    "indexes", "report", "stats", "history", "metrics", "layout", "verify", "tags", "timestamp",
    "unreplayed", "schema", "primary_key", "partitions", "options", "mode", "path", "refresh", "ttl", "close",
}  # fmt: skip


def test_every_call_is_a_door_or_is_none() -> None:
    """A call that is added must be put where it belongs."""
    public = {name for name in dir(kc.Table) if not name.startswith("_")}
    reads = public - every_call.WRITES - every_call.UPKEEP
    assert reads == set(DOORS) | TOLD_AS_WRITTEN | COPIES | NO_ROWS


def _flush(twins: Twins) -> None:
    twins.ttl.flush()


def _in_deltas(twins: Twins) -> None:
    """Rows whose times are changed after the flush: what was to live has no time to live, and the reverse."""
    old, new = twins.now - LIFETIME + DAY / 2, twins.now
    twins.ttl.update([{"k": k, "at": old} for k in ALIVE] + [{"k": k, "at": new} for k in GONE])
    twins.ttl.flush()
    twins.ttl.update([{"k": k, "at": new} for k in ALIVE] + [{"k": k, "at": old} for k in GONE])


def _flushed_deltas(twins: Twins) -> None:
    _flush(twins)
    _in_deltas(twins)
    twins.ttl.flush()


def _merged(twins: Twins) -> None:
    _flushed_deltas(twins)
    twins.ttl.compact(full=True)


def _reopened(twins: Twins) -> None:
    _in_deltas(twins)
    twins.reopen()


STATES: dict[str, Callable[[Twins], None]] = {
    "in memory": lambda twins: None,
    "flushed": _flush,
    "deltas in memory": lambda twins: (_flush(twins), _in_deltas(twins))[1],
    "deltas in files": _flushed_deltas,
    "merged": _merged,
    "reopened": _reopened,
}


@pytest.fixture(params=STATES)
def twins(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Twins]:
    made = Twins(tmp_path)
    old = made.now - LIFETIME + DAY / 2
    rows = [{"k": k, "at": made.now, "v": k, "s": "x"} for k in ALIVE]
    rows += [{"k": k, "at": old, "v": 1000 + k, "s": "x"} for k in GONE]
    rows += [{"k": k, "at": None, "v": k, "s": "x"} for k in TIMELESS]
    made.ttl.insert(rows)
    STATES[request.param](made)
    assert made.ttl.count() == len(HERE) + len(GONE)
    made.clock.advance(DAY.total_seconds())
    yield made
    made.close()


def test_what_has_expired_comes_out_of_no_door(twins: Twins) -> None:
    for name, doors in DOORS.items():
        for number, door in enumerate(doors):
            assert door(twins.ttl) == HERE, (name, number)


def test_nor_of_a_reader(twins: Twins) -> None:
    twins.ttl.flush()
    with kc.open_table(twins.ttl.path, _clock=twins.clock) as reader:
        for name, doors in DOORS.items():
            for number, door in enumerate(doors):
                assert door(reader) == HERE, (name, number)


def test_nor_at_a_past_time(twins: Twins) -> None:
    table, then = twins.ttl, twins.ttl.timestamp
    table.upsert([{"k": k, "at": twins.now, "v": -k} for k in KEYS])  # all are there now, with other values
    assert table.count() == len(KEYS)
    assert _of(table.scan(["k"], at=then).to_table()) == HERE
    assert table.count(at=then) == len(HERE) and table.count("v >= 0", at=then) == len(HERE)
    assert {key for key in KEYS if table.get(key, at=then) is not None} == HERE
    found = table.get_many(KEYS, ["v"], at=then)["_found"].to_pylist()
    assert {key for key, there in zip(KEYS, found, strict=True) if there} == HERE
    assert _of(table.to_dataset(at=then).to_table()) == HERE
    assert set(table.lazy(at=then).collect()["k"].to_list()) == HERE
    with table.snapshot(then) as past:
        assert _of(past.scan(["k"]).to_table()) == HERE
    table.tag("then", then)
    assert table.count(at="then") == len(HERE)
    times = table.history_of(GONE[0])["at"].to_pylist()
    assert times and min(times) > twins.now - LIFETIME, "versions that have expired are not told"


def test_a_snapshot_and_a_scan_keep_their_moment(twins: Twins) -> None:
    table = twins.ttl
    with table.snapshot() as now:
        scan, dataset = table.scan(["k"]), table.to_dataset()
        sent = pickle.loads(pickle.dumps(now)) if table.flush() is None else None
        twins.clock.advance(2 * LIFETIME.total_seconds())
        assert table.count() == len(TIMELESS)
        table.compact()  # removes what has expired
        assert _of(now.scan(["k"]).to_table()) == _of(scan.to_table()) == _of(dataset.to_table()) == HERE
        assert now.get(ALIVE[0]) is not None and _found(now, None) == HERE
        assert sent is not None and sent.clock_us == now.clock_us
        later = table.snapshot(now.timestamp)
        assert later.scan().count() == len(TIMELESS), "another snapshot of that time has a moment of its own"
