"""Pages that the cache does not keep: read once for a look-up, and held by nobody when it has ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core._ext.base.status import NeedsGeneralPath
from kudu_core._ext.pages import blocks
from kudu_core._ext.row.column import PointColumn
from kudu_core._ext.row.file import PointFile
from kudu_core._ext.row.shape import RowShape
from tests.kernels.row.test_file import TAGS, bitmap, index_of
from tests.support.fs.counting import counting, reads

ROWS = 3000
SHAPE = RowShape("a", [0], [TAGS["unsigned"]], [bytes], [None])


class Cache:
    """What a column is loaded from and remembered by; ``keeps`` says what becomes of what is put."""

    def __init__(self, keeps: Any) -> None:
        self.keeps = keeps
        self.loaded: list[int] = []
        self.file: Any = None
        values = np.arange(ROWS, dtype=np.uint32)
        self.pages = [
            blocks.encode_fixed(values[i : i + 1024].view(np.uint8), 4, 0, bitmap(np.ones(1024, bool)))
            for i in range(0, ROWS, 1024)
        ]
        self.keys = [int(v).to_bytes(4, "big") for v in values]

    def load(self, number: int) -> tuple[Any, int]:
        self.loaded.append(number)
        return self.pages[number], number

    def remember(self, place: int, payload: Any) -> bool:
        if isinstance(self.keeps, BaseException):
            raise self.keeps
        if callable(self.keeps):
            return bool(self.keeps(place))
        return bool(self.keeps)

    def opened(self) -> PointFile:
        column = PointColumn(self.load, 3, 4, None, None, self.remember, 10)
        self.file = PointFile(ROWS, {0: column}, [(column, 0, 4, 0)], None, index_of(self.keys), None)
        return self.file


def numbers_of(file: PointFile, rows: list[int]) -> Any:
    (found,) = file.cells([0], np.array(rows))
    assert found is not None
    return found[0].view("<u4").tolist()


def test_each_look_up_reads_a_page_once_and_holds_nothing() -> None:
    cache = Cache(False)
    file = cache.opened()
    for step in (
        lambda: file.row(1500, SHAPE) == {"a": 1500},
        lambda: file.find(cache.keys[1500], 0) == 1500,
        lambda: numbers_of(file, [1500, 1024, 1501]) == [1500, 1024, 1501],
    ):
        for _ in range(2):
            cache.loaded.clear()
            assert step()
            assert cache.loaded == [1]
            assert file.pages == 0
    cache.loaded.clear()
    assert numbers_of(file, [2999, 0, 1500, 1, 2998]) == [2999, 0, 1500, 1, 2998]
    assert sorted(cache.loaded) == [0, 1, 2]
    cache.keeps = True
    assert file.row(1500, SHAPE) == {"a": 1500} and file.pages == 1, "it goes on"
    assert file.row(1501, SHAPE) == {"a": 1501} and len(cache.loaded) == 4


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), RuntimeError()])
def test_what_ends_the_putting_leaves_nothing_held(error: BaseException) -> None:
    cache = Cache(error)
    file = cache.opened()
    for look_up in (
        lambda: file.row(1500, SHAPE),
        lambda: file.find(cache.keys[1500], 0),
        lambda: file.cells([0], np.array([1500])),
    ):
        with pytest.raises(type(error)):
            look_up()
        assert file.pages == 0
    cache.keeps = True
    assert file.row(5, SHAPE) == {"a": 5} and file.pages == 1
    assert file.forget(0) is False and file.forget(0) and file.pages == 0, "no look-up is counted any more"


def test_a_file_that_is_closed_while_a_page_is_put_answers_still_or_not_at_all() -> None:
    """As a finalizer may close it; what is read is the page, which stays until the look-up ends."""

    caches: list[Cache] = []

    def close(_: int) -> bool:
        caches[-1].file.close()
        return False

    look_ups: list[tuple[Callable[[PointFile], Any], Any]] = [
        (lambda f: f.row(1500, SHAPE), {"a": 1500}),
        (lambda f: f.find((1500).to_bytes(4, "big"), 0), 1500),
        (lambda f: numbers_of(f, [1500]), [1500]),
    ]
    for look_up, wanted in look_ups:
        caches.append(Cache(close))
        file = caches[-1].opened()
        assert look_up(file) == wanted
        assert file.pages == 0
        with pytest.raises(NeedsGeneralPath):
            look_up(file)


def test_the_cache_drops_it_at_once() -> None:
    """The cache has put it, and evicted it before it said so."""

    def drop(place: int) -> bool:
        assert not cache.file.forget(place), "it was just used"
        assert cache.file.forget(place)
        return False

    cache = Cache(drop)
    file = cache.opened()
    assert file.row(1500, SHAPE) == {"a": 1500} and file.pages == 0
    assert file.find(cache.keys[2000], 0) == 2000 and file.pages == 0


def test_a_get_of_a_blob_larger_than_the_cache_keeps_reads_it_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    blobs = [rng.bytes(300_000) for _ in range(20)]
    schema = pa.schema([("k", pa.int64()), ("b", pa.binary())])
    with kc.create_table(tmp_path / "t", schema, "k", options={"durability": "none"}) as table:
        table.insert({"k": range(20), "b": blobs})
        table.flush()
    fs, reader = counting(tmp_path / "t", {"page_cache_bytes": 1 << 20})
    with reader:
        for k in range(3):
            reader.get(k)  # indexes, and the page of keys
        for k in (7, 7, 19):
            before = reads(fs)
            assert reader.get(k) == {"k": k, "b": blobs[k]}
            assert reads(fs) == before + 1
        before = reads(fs)
        found = reader.get_many([3, 9, 3])
        assert found["b"].to_pylist() == [blobs[3], blobs[9], blobs[3]]
        assert reads(fs) == before + 2


def test_get_many_beyond_the_cache_reads_each_page_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    rows = 4000
    schema = pa.schema([("k", pa.int64()), ("b", pa.binary())])
    with kc.create_table(tmp_path / "t", schema, "k", options={"durability": "none"}) as table:
        table.insert({"k": range(rows), "b": [rng.bytes(1000) for _ in range(rows)]})
        table.flush()
    fs, reader = counting(tmp_path / "t", {"page_cache_bytes": 200_000})
    with reader:
        keys = rng.permutation(rows)[:1000].tolist()
        reader.get_many(keys)  # indexes
        before = reads(fs)
        assert reader.get_many(keys)["k"].to_pylist() == keys
        pages = rows // 32 + 1  # of 32 KiB, and one of keys
        assert reads(fs) - before <= pages
