"""Reads of a table in an object store wait for few round trips: what will be read is asked for together."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.objects.files.asked_pieces import AskedPieces
from kudu_core.objects.files.object_files import ObjectFiles
from kudu_core.table.opened import debug
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import URL

COLUMNS = 12
ROWS = 200_000
QUIET_S = 0.06


class Rounds:
    """A store that answers in rounds: what has come is answered when nothing has come for a while, so
    whatever does not wait for another is of its round, however busy the machine is."""

    def __init__(self, inner: MemoryObjectStore) -> None:
        self._inner = inner
        self._mutex = threading.Lock()
        self._open: threading.Event | None = None
        """Of the round that gathers requests, set when it is answered."""
        self.begin()

    def begin(self) -> None:
        self.requests = self.bytes = self.rounds = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def get(self, path: str, limit: int | None) -> tuple[bytes, str]:
        self._join(1)
        return self._inner.get(path, limit)

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.bytes += sum(length for _, length in ranges)
        self._join(len(ranges))
        return self._inner.get_ranges(path, ranges)

    def _join(self, count: int) -> None:
        with self._mutex:
            self.requests += count
            leads = self._open is None
            if self._open is None:
                self._open = threading.Event()
                self.rounds += 1
            mine = self._open
        if not leads:
            mine.wait()
            return
        before = -1
        while before != self.requests:
            before = self.requests
            time.sleep(QUIET_S)
        with self._mutex:
            self._open = None
        mine.set()


@pytest.fixture(scope="module")
def filled() -> MemoryObjectStore:
    """Four tablets of one rowset each, closed."""
    store = MemoryObjectStore()
    rng = np.random.default_rng(1)
    columns = {f"v{n}": rng.integers(0, 1 << 40, ROWS) for n in range(COLUMNS - 3)}
    columns |= {f"s{n}": [f"text {n} {row % 3000}" for row in range(ROWS)] for n in range(3)}
    data = pa.table({"k": np.arange(ROWS), **columns})
    with kc.create_table(
        URL, data.schema, "k", partition_by=kc.HashPartition("k", 4), _requests=store,
        options={"maintenance": "manual"},
    ) as table:  # fmt: skip
        table.insert(data)
        table.compact(full=True)
    return store


@pytest.fixture
def reader(filled: MemoryObjectStore) -> Iterator[tuple[kc.Table, Rounds]]:
    rounds = Rounds(filled)
    with kc.open_table(URL, _requests=rounds) as table:  # type: ignore[arg-type]
        rounds.begin()
        yield table, rounds


def test_a_cold_get_waits_for_three_round_trips(reader: tuple[kc.Table, Rounds]) -> None:
    """The file's end, with its indexes and dictionaries; the page of the key; the pages of the values.  The
    bloom is on its way meanwhile."""
    table, rounds = reader
    assert table.get(ROWS // 2)["k"] == ROWS // 2  # type: ignore[index]
    assert rounds.rounds <= 3
    assert rounds.requests <= 2 + len(table.schema)
    rounds.begin()
    assert table.get(ROWS // 2)["k"] == ROWS // 2  # type: ignore[index]
    assert rounds.requests == 0, "it is in the cache"


def test_a_scan_waits_for_the_ends_of_files_and_their_pages(
    reader: tuple[kc.Table, Rounds],
) -> None:
    table, rounds = reader
    assert table.scan(["v0", "s0"]).to_table().num_rows == ROWS
    assert rounds.rounds <= 2, "of four rowsets together"


def test_nothing_is_asked_of_rowsets_that_statistics_rule_out(
    reader: tuple[kc.Table, Rounds], monkeypatch: pytest.MonkeyPatch
) -> None:
    announced: list[str] = []
    monkeypatch.setattr(ObjectFiles, "will_open", lambda files, path, size, tail: announced.append(path))
    table, rounds = reader
    before = rounds.requests
    for where in ([("v0", "<", 0)], [("v1", ">", 1 << 41), ("s0", "=", "no such text")]):
        scan = table.scan(where=where)
        assert scan.to_table().num_rows == scan.count() == 0
    assert rounds.requests == before and not announced
    assert table.scan(where=[("v0", ">", 0)]).count() > 0
    assert len(announced) == 4


def test_a_scan_of_few_columns_reads_their_bytes(reader: tuple[kc.Table, Rounds]) -> None:
    table, rounds = reader
    table.scan(["v0"]).to_table()
    whole = 8 * ROWS
    assert rounds.bytes <= 1.25 * whole + 4 * (16 << 10) + 8192


def test_many_keys_are_looked_for_together(reader: tuple[kc.Table, Rounds]) -> None:
    table, rounds = reader
    keys = pa.table({"k": np.random.default_rng(2).integers(0, ROWS, 20)})
    assert table.get_many(keys).num_rows == 20
    assert rounds.rounds <= 20, "of four tablets, one after the other"


def test_a_full_scan_of_all_columns(reader: tuple[kc.Table, Rounds]) -> None:
    table, rounds = reader
    assert table.scan().to_table().num_rows == ROWS
    assert rounds.rounds <= 4


@pytest.mark.parametrize("dropped", [False, True])
def test_a_bloom_is_used_once_it_has_come(dropped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of keys that are not there, the first costs a page of keys; those of other pages nothing."""
    store = MemoryObjectStore()
    data = pa.table({"k": np.arange(0, 2 * ROWS, 2)})
    with kc.create_table(URL, data.schema, "k", _requests=store) as table:
        table.insert(data)
        table.flush()
    rounds = Rounds(store)
    with kc.open_table(URL, _requests=rounds) as table:  # type: ignore[arg-type]
        rounds.begin()
        with monkeypatch.context() as patch:
            if dropped:  # there was no place for what was asked for
                patch.setattr(AskedPieces, "takes", lambda pieces, size: False)
            assert table.get(1) is None
        assert rounds.rounds == 2
        assert rounds.requests == (2 if dropped else 3), "the end of the file; a page, and the bloom"
        for page in range(1, 6):
            time.sleep(0.2)  # who has asked for it was answered, maybe not yet woken
            rounds.begin()
            assert table.get(page * 40_000 + 1) is None
            if rounds.requests == 0:
                break
        assert rounds.requests == 0


def test_a_write_of_few_rows_waits_for_two_round_trips_and_its_put(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the file, and a page of its keys: whether they are there, and where."""
    monkeypatch.setenv(debug.SWITCH, "0")  # the checks of an open read files too
    store = MemoryObjectStore()
    rng = np.random.default_rng(1)
    data = pa.table({"k": np.arange(0, 2 * ROWS, 2), "v": rng.integers(0, 1 << 60, ROWS)})
    with kc.create_table(URL, data.schema, "k", _requests=store, options={"maintenance": "manual"}) as table:
        table.insert(data)
        table.flush()
    for keys in ([4, 5], [100_000, 200_002, 300_001]):
        rounds = Rounds(store)
        with kc.open_table(URL, "rw", _requests=rounds) as table:  # type: ignore[arg-type]
            rounds.begin()
            result = table.upsert([{"k": key, "v": -key} for key in keys])
            assert rounds.rounds == 2
            assert (result.inserted, result.updated) == (1, len(keys) - 1)
            assert table.get_many(keys, ["v"])["v"].to_pylist() == [-key for key in keys]
