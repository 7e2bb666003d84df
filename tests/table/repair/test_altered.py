"""``kudu_core.repair`` of a table of many types and tablets that was altered, overwritten and merged."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from tests.support.clock import ManualClock
from tests.support.faults import ROOT, TINY, checking, drop, segments_of
from tests.support.fs.memory import MemoryFileSystem
from tests.support.hostile.damage import Damage, Subject, in_place, kind_of, whole_file
from tests.support.models.model import State, Timeline
from tests.support.models.overwriting import overwrite
from tests.support.models.repairing import Repaired, check, check_equal, repaired, state_of

pytestmark = pytest.mark.timeout(7200)  # --long takes its time

SCHEMA = pa.schema(
    [
        ("g", pa.string()),
        ("v", pa.int64()),
        ("k", pa.int32()),
        ("f", pa.float64()),
        ("d", pa.decimal128(9, 2)),
        ("t", pa.timestamp("us", "UTC")),
        ("b", pa.bool_()),
        ("s", pa.string()),
    ]
)
KEY = ("k", "g")
KINDS = ("TABLE", "MANIFEST", "log", "rows", "delta")
CASES, LONG_CASES = 2, 400
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


class Life:
    """A table's calls, each at a time of its own."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = MemoryFileSystem()
        self.disk.mkdir("/tables")
        self.clock = ManualClock()
        self.table = kc.create_table(
            ROOT,
            SCHEMA,
            KEY,
            partition_by=[kc.HashPartition("g", 2), kc.RangePartition("k", [(0, 50), (50, 100)])],
            options={
                "maintenance": "manual",
                "ingest_threshold_rows": 30,
                "file_grace_s": 0,
                "history_retention_s": None,
            },
            _fs=self.disk,
            _clock=self.clock,
        )
        self.times: list[int] = []

    def row(self, k: int) -> dict[str, Any]:
        rng = self.rng
        values: dict[str, Any] = {
            "v": rng.randrange(1000),
            "f": rng.choice((None, rng.random())),
            "d": Decimal(rng.randrange(10**6)).scaleb(-2),
            "t": NOON + dt.timedelta(seconds=rng.randrange(9999)),
            "b": rng.choice((None, True, False)),
            "s": rng.choice((None, "", "x" * rng.randrange(40))),
            "note": rng.choice((None, "new")),
            "w": rng.randrange(50),
        }
        names = self.table.schema.names
        return {"g": "ab"[k % 2], "k": k, **{n: v for n, v in values.items() if n in names}}

    def call(self, name: str, rows: list[dict[str, Any]]) -> None:
        self.clock.advance(us=7)
        schema = pa.schema([self.table.schema.field(n) for n in rows[0]])
        result = getattr(self.table, name)(pa.Table.from_pylist(rows, schema=schema))
        self.times.append(result.timestamp)

    def upsert(self, *keys: int) -> None:
        self.call("upsert", [self.row(k) for k in keys])

    def update(self, column: str, *keys: int) -> None:
        self.call("update", [{n: self.row(k)[n] for n in ("g", "k", column)} for k in keys])

    def delete(self, *keys: int) -> None:
        self.call("delete", [{"g": "ab"[k % 2], "k": k} for k in keys])

    def play(self) -> None:
        self.upsert(*range(20), *range(60, 70))
        self.update("v", 1, 2, 3, 61)
        self.table.flush()
        self.update("s", 1, 5, 7, 62)
        self.delete(4, 63)
        self.table.flush()
        self.table.alter(
            add=[kc.Column("note", "string", default="old"), kc.Column("w", "int16")], drop=["f"]
        )
        self.upsert(4, 20, 21, 71)
        self.update("note", 2, 3, 20, 64)
        self.table.flush()
        self.table.compact()
        self.upsert(*range(10, 48))  # an ingest, with changes of rows in files and in memory
        self.update("w", 11, 12, 65)
        self.table.alter(drop_range=(50, 100), add_range=[(50, 80), (80, 200)])
        self.upsert(55, 66, 81, 150)
        self.table.flush()
        self.table.compact(full=True)
        self.delete(11, 55)
        self.update("b", 12, 13, 81)
        self.clock.advance(us=7)
        rows = [self.row(k) for k in (*range(36), 51, 90)]
        self.times.append(overwrite(self.table, rows, 2).timestamp)
        self.update("d", 0, 1, 2, 51)
        self.table.flush()
        self.update("s", 1, 2, 3, 90)
        self.delete(5, 6)
        self.table.flush()
        self.upsert(5, 100, 101)
        self.update("v", 2, 7)
        self.delete(8)


@pytest.fixture(scope="module", params=["closed", "killed"])
def lived(request: pytest.FixtureRequest, seed: int) -> tuple[Subject, Timeline, State]:
    with segments_of(TINY), checking(False):
        life = Life(seed)
        life.play()
        table = life.table
        past = Timeline()
        for time in life.times:
            past.commit(time, state_of(table.scan(at=time), KEY))
        newest = state_of(table.scan(), KEY)
        if request.param == "closed":
            table.close()
        else:
            drop(table)
            life.disk.kill()
        life.disk.sync_all()
    now_us = life.clock.now_us() + 1000
    subject = Subject(request.param, life.disk, None, now_us, [], {})  # type: ignore[arg-type]
    return subject, past, newest


def repair_of(lived: tuple[Subject, Timeline, State], *damages: Damage) -> Repaired:
    table, past, newest = lived
    fs = table.damaged(damages[0]) if damages else table.disk.crash_clone(0, keep="all")
    try:
        found = repaired(fs, table.now_us)
        check(found, past, newest)
    except BaseException as error:
        error.add_note(f"{table.name} table: {'; '.join(map(str, damages))}")
        raise
    return found


def test_a_sound_table_gives_an_equal_one(lived: tuple[Subject, Timeline, State]) -> None:
    found = repair_of(lived)
    check_equal(found, lived[2])
    assert found.report.is_sound, found.report.text()


@pytest.mark.parametrize("kind", KINDS)
def test_one_damaged_file(lived: tuple[Subject, Timeline, State], kind: str, seed: int, long: bool) -> None:
    table, _, newest = lived
    rng = random.Random(seed * 1_000 + KINDS.index(kind))
    paths = [path for path in table.files if kind_of(path) == kind]
    damages = [damage for path in paths for damage in whole_file(table, path)]
    if not long:
        damages = rng.sample(damages, min(CASES, len(damages)))
    drawn = (in_place(table, rng.choice(paths), rng) for _ in range(LONG_CASES if long else CASES))
    for damage in (*damages, *(one for one in drawn if one is not None)):
        found = repair_of(lived, damage)
        if found.report.is_sound or kind in ("TABLE", "MANIFEST"):
            check_equal(found, newest)
