"""``ttl=`` itself: which columns have the times, what is stored, how it changes; and what removes rows."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.table.stored.table_state import parse_state
from kudu_core.table.write.expired_rows import Sweeper
from tests.support.clock import ManualClock
from tests.support.inside import engine_of
from tests.table.ttl.twins import DAY, LIFETIME, MANUAL, SCHEMA, Twins, now_of, sorted_rows

UTC_DAY = dt.datetime(2023, 11, 14, tzinfo=dt.UTC)
TYPES = [
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Asia/Tokyo")),
    pa.date32(),
    pa.date64(),
]


@pytest.fixture
def twins(tmp_path: Path) -> Iterator[Twins]:
    made = Twins(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("in_key", [False, True], ids=["value", "key"])
@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_a_row_expires_at_its_microsecond(tmp_path: Path, type_: pa.DataType, in_key: bool) -> None:
    start = int(UTC_DAY.timestamp()) * 10**6
    clock = ManualClock(start)
    key = ["k", "at"] if in_key else ["k"]
    schema = pa.schema([("k", pa.int64()), ("at", type_)])
    with kc.create_table(
        tmp_path / "t", schema, key, ttl=("at", LIFETIME), options=MANUAL, _clock=clock
    ) as table:
        naive = UTC_DAY.replace(tzinfo=None)
        aware = pa.types.is_timestamp(type_) and type_.tz is not None
        times = pa.array([UTC_DAY if aware else naive], pa.timestamp("us", "UTC" if aware else None))
        table.insert(pa.table({"k": [1], "at": times.cast(type_)}, schema=schema))
        whole: Any = (1, table.to_table()["at"][0]) if in_key else 1
        for flushed in (False, True):
            clock.set_us(start + LIFETIME // dt.timedelta(microseconds=1) - 1)
            assert table.count() == 1 and whole in table and table.get(whole, ["k"]) == {"k": 1}
            assert table.get(whole)["at"] == table.to_table()["at"][0].as_py()
            assert table.get_many([whole])["_found"].to_pylist() == [True]
            clock.advance(us=1)
            assert table.count() == 0 and whole not in table and table.get(whole) is None
            assert table.get_many([whole])["_found"].to_pylist() == [False]
            if not flushed:
                clock.set_us(start)
                table.flush()
        assert table.maintain() > 0
        table.flush()
        assert table.changes(None).to_table()["_op"].to_pylist()[-1] == "delete"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("v", DAY), "column 'v' is int64; a row's time is a timestamp or a date, of which a number"),
        (("s", DAY), "column 's' is string; a row's time is a timestamp or a date"),
        (("no", DAY), "there is no column 'no'"),
        (("at", 30), "how long rows live is a datetime.timedelta, not 30"),
        (("at", dt.timedelta(0)), "a microsecond to a thousand years"),
        (("at", -DAY), "a microsecond to a thousand years"),
        (("at", dt.timedelta.max), "a microsecond to a thousand years"),
        ("at", "ttl is the column with the time of a row"),
        (DAY, "ttl is the column with the time of a row"),
        (("at",), "ttl is the column with the time of a row"),
    ],
)
def test_what_is_no_ttl_is_refused(twins: Twins, given: Any, says: str) -> None:
    with pytest.raises(kc.InvalidArgument, match=says):
        kc.create_table(twins.folder / "no", SCHEMA, "k", ttl=given)
    assert not (twins.folder / "no").exists()
    with pytest.raises(kc.InvalidArgument, match=says):
        twins.ttl.alter(ttl=given)
    assert twins.ttl.ttl == ("at", LIFETIME)


def test_fields_and_wrapped_times_are_refused(tmp_path: Path) -> None:
    time = pa.timestamp("us")
    schema = pa.schema(
        [("k", pa.int64()), ("n", pa.struct([("at", time)])), ("d", pa.dictionary(pa.int32(), time))]
    )
    for name in ("n", "n.at", "d"):
        with pytest.raises(kc.InvalidArgument, match="ttl: "):
            kc.create_table(tmp_path / "t", schema, "k", ttl=(name, DAY))


def test_it_is_stored_and_only_where_there_is_one(twins: Twins) -> None:
    def stored(table: kc.Table) -> tuple[int, list[Any]]:
        data = (Path(table.path) / "TABLE").read_bytes()
        state = parse_state(data, "TABLE")
        said = json.loads(data[24:])["schemas"][-1]
        return int.from_bytes(data[10:12], "little"), [said.get("ttl"), state.schema.ttl is None, len(said)]

    assert stored(twins.ttl) == (4, [[2, LIFETIME // dt.timedelta(microseconds=1)], False, 5])
    assert stored(twins.plain) == (0, [None, True, 4])
    twins.ttl.tag("now")
    assert stored(twins.ttl)[0] == 5
    twins.reopen()
    assert twins.ttl.ttl == ("at", LIFETIME) and twins.plain.ttl is None


def test_exist_ok_wants_the_same(twins: Twins) -> None:
    twins.close()
    path, how = twins.folder / "ttl", {"exist_ok": True, "partition_by": [kc.HashPartition("k", 2)]}
    with pytest.raises(kc.TableExists, match="ttl"):
        kc.create_table(path, SCHEMA, "k", **how)
    kc.create_table(path, SCHEMA, "k", ttl=("at", LIFETIME), **how).close()


def test_alter(twins: Twins) -> None:
    table, old = twins.ttl, twins.now - LIFETIME
    table.insert([{"k": 1, "at": old}, {"k": 2, "at": twins.now - DAY}, {"k": 3, "at": None}])
    assert table.count() == 2
    table.alter(ttl=("at", DAY))
    assert sorted(table.to_table()["k"].to_pylist()) == [3]
    table.alter(ttl=("seen", 2 * LIFETIME), rename={"at": "seen"})
    assert table.count() == 3 and table.ttl == ("seen", 2 * LIFETIME)
    with pytest.raises(kc.InvalidArgument, match="'seen' has the times of ttl"):
        table.alter(drop=["seen"])
    with pytest.raises(kc.InvalidArgument, match="changes nothing"):
        table.alter(ttl=("seen", 2 * LIFETIME))
    with kc.open_table(table.path, _clock=twins.clock) as reader:
        assert reader.ttl == ("seen", 2 * LIFETIME)
        table.alter(drop=["seen"], ttl=None)
        reader.refresh()
        assert reader.ttl is None and reader.count() == 3
    table.compact()
    assert table.count() == 3


def test_a_mirror_by_changes_has_what_reads_show(twins: Twins) -> None:
    table, mirror, since = twins.ttl, dict[int, Any](), 0
    for step in range(8):
        table.upsert([{"k": k, "at": twins.now - (k % 5) * DAY, "v": step} for k in range(step, step + 9)])
        twins.clock.advance(3 * DAY.total_seconds())
        if step % 2:
            table.compact()
        table.flush()  # changes are told once they are durable
        changes = table.changes(since or None)
        for row in changes.to_table().to_pylist():
            if row["_op"] == "delete":
                del mirror[row["k"]]
            else:
                mirror[row["k"]] = row["v"]
        since = changes.until
        shown = {row["k"]: row["v"] for row in table.to_table().to_pylist()}
        assert shown.items() <= mirror.items()
        assert step % 2 == 0 or shown == mirror
    assert shown and len(mirror) < 17


def test_copies_have_the_ttl_and_what_is_stored(twins: Twins) -> None:
    table, folder = twins.ttl, twins.folder
    table.insert([{"k": k, "at": twins.now - k * DAY} for k in range(20)])
    table.backup(folder / "backups")
    table.update([{"k": k, "v": 1} for k in range(5)])
    second = table.backup(folder / "backups", since=table.backup(folder / "more").timestamp - 1)
    table.clone(folder / "clone")
    shown = sorted_rows(table.to_table())
    assert len(shown) == 10 and second.total == 20
    for copy in (
        kc.open_table(folder / "clone", _clock=twins.clock),
        kc.restore(folder / "more", folder / "restored", _clock=twins.clock),
    ):
        with copy:
            assert copy.ttl == ("at", LIFETIME) and sorted_rows(copy.to_table()) == shown
    with kc.open_table(folder / "restored", "rw", _clock=twins.clock) as copy:
        copy.alter(ttl=None)
        assert copy.count() == 20


def test_removed_rows_leave_the_files_once_their_history_may_go(tmp_path: Path) -> None:
    clock = ManualClock()
    options = {**MANUAL, "history_retention_s": 0}
    with kc.create_table(
        tmp_path / "t", SCHEMA, "k", ttl=("at", LIFETIME), options=options, _clock=clock
    ) as table:
        table.insert([{"k": k, "at": now_of(clock) - (k % 2) * 5 * DAY} for k in range(1000)])
        table.flush()
        clock.advance(6 * DAY.total_seconds())
        assert table.count() == 500 and table.stats()["rows_stored"].to_pylist() == [1000]
        table.compact()
        table.flush()
        clock.advance(1.0)
        table.compact(full=True)
        assert table.count() == 500 and table.stats()["rows_stored"].to_pylist() == [500]
        clock.advance(9 * DAY.total_seconds())
        table.compact()
        table.flush()
        clock.advance(1.0)
        table.compact(full=True)
        assert table.count() == 0 and table.stats()["rows_stored"].to_pylist() == [0]


def test_background_maintenance_sweeps_now_and_then(twins: Twins) -> None:
    table = twins.ttl
    sweeper = Sweeper(engine_of(table))
    table.insert([{"k": 1, "at": twins.now - LIFETIME + DAY}])
    sweeper()  # begins to count
    twins.clock.advance(DAY.total_seconds())
    before = table.timestamp
    sweeper()
    table.flush()  # changes are told once they are durable
    assert table.changes(before).to_table()["_op"].to_pylist() == ["delete"]
    table.insert([{"k": 2, "at": twins.now - LIFETIME}])
    before = table.timestamp
    twins.clock.advance(599.0)
    sweeper()
    assert table.timestamp == before, "not due again"
    twins.clock.advance(1.0)
    sweeper()
    table.flush()
    assert table.changes(before).to_table()["_op"].to_pylist() == ["delete"]


def test_an_open_table_has_a_sweeper(twins: Twins) -> None:
    assert isinstance(engine_of(twins.ttl).compactions.beside, Sweeper)
    twins.reopen()
    assert isinstance(engine_of(twins.ttl).compactions.beside, Sweeper)
