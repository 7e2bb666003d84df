"""Reads of a table in an object store wait for few round trips: what will be read is asked for together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import URL

T = TypeVar("T")
COLUMNS = 12
ROWS = 200_000


class Rounds:
    """A store that counts round trips: a request is of the round after the last that was answered before it
    was sent.  An answer takes so long that what does not wait for another is sent meanwhile."""

    def __init__(self, inner: MemoryObjectStore) -> None:
        self._inner = inner
        self._mutex = threading.Lock()
        self.requests = 0
        self.bytes = 0
        self.answered = 0
        """The last round that has an answer."""

    def begin(self) -> None:
        self.requests = self.bytes = self.answered = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def get(self, path: str, limit: int | None) -> tuple[bytes, str]:
        return self._timed(lambda: self._inner.get(path, limit), 1)

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.bytes += sum(length for _, length in ranges)
        return self._timed(lambda: self._inner.get_ranges(path, ranges), len(ranges))

    def _timed(self, request: Callable[[], T], count: int) -> T:
        with self._mutex:
            mine = self.answered + 1
            self.requests += count
        time.sleep(0.05)
        with self._mutex:
            self.answered = max(self.answered, mine)
        return request()


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


def test_a_cold_get_waits_for_four_round_trips(reader: tuple[kc.Table, Rounds]) -> None:
    """The file's ends; its indexes, dictionaries and bloom; the page of the key; the pages of the values."""
    table, rounds = reader
    assert table.get(ROWS // 2)["k"] == ROWS // 2  # type: ignore[index]
    assert rounds.answered <= 4
    rounds.begin()
    assert table.get(ROWS // 2)["k"] == ROWS // 2  # type: ignore[index]
    assert rounds.requests == 0, "it is in the cache"


def test_a_scan_waits_for_the_ends_of_files_their_indexes_and_their_pages(
    reader: tuple[kc.Table, Rounds],
) -> None:
    table, rounds = reader
    assert table.scan(["v0", "s0"]).to_table().num_rows == ROWS
    assert rounds.answered <= 4, "of four rowsets together"


def test_a_scan_of_few_columns_reads_their_bytes(reader: tuple[kc.Table, Rounds]) -> None:
    table, rounds = reader
    table.scan(["v0"]).to_table()
    whole = 8 * ROWS
    assert rounds.bytes <= 1.25 * whole + 4 * (16 << 10) + 8192


def test_many_keys_are_looked_for_together(reader: tuple[kc.Table, Rounds]) -> None:
    table, rounds = reader
    keys = pa.table({"k": np.random.default_rng(2).integers(0, ROWS, 60)})
    assert table.get_many(keys).num_rows == 60
    assert rounds.answered <= 45, "of four tablets, one after the other"


def test_a_full_scan_of_all_columns(reader: tuple[kc.Table, Rounds]) -> None:
    table, rounds = reader
    assert table.scan().to_table().num_rows == ROWS
    assert rounds.answered <= 12
