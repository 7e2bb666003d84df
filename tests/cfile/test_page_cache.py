"""The page cache: what stays, what goes, and who is asked."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core._ext.files.page_loader import PageLoader
from kudu_core._ext.row.column import PointColumn
from kudu_core.cfile.columns.reader import ColumnReader
from kudu_core.cfile.pages.container import FileReader
from kudu_core.cfile.pages.page_cache import PageCache, Reader
from kudu_core.cfile.readers import point_reader
from kudu_core.fs.posix import PosixFileSystem
from tests.support.fs.faulty import FaultyFileSystem
from tests.support.inside import page_cache_of

PAGE = bytes(744)  # 1,000 bytes with the cache's own


def filled(pages: int) -> tuple[PageCache, Reader]:
    """A cache for so many pages, and a reader of a file."""
    cache = PageCache(pages * 1000)
    return cache, cache.attach(b"file")


def read(cache: PageCache, reader: Reader, offset: int) -> bool:
    """A page as a reader gets it; whether the cache had it."""
    if cache.get_many(reader.token, (offset,))[0] is not None:
        return True
    cache.put(reader.token, offset, PAGE)
    return False


def pages_of(cache: PageCache, *queues: str) -> dict[tuple[int, int], Any]:
    """What is in some of the queues, without a question that counts."""
    return {(token, at): page for token, at, page, queue, _ in cache.contents() if queue in queues}


def look(cache: PageCache, token: int, offsets: Iterable[int]) -> list[Any]:
    """What the cache has at these places."""
    pages = pages_of(cache, "new", "kept")
    return [pages.get((token, offset)) for offset in offsets]


class Holder:
    """A reader that holds pages and says which it has used."""

    closed = False

    def __init__(self) -> None:
        self.held: set[int] = set()
        self.used: set[int] = set()

    def forget(self, place: int) -> bool:
        if place in self.used:
            self.used.discard(place)
            return False
        self.held.discard(place)
        return True


def test_a_scan_drives_out_nothing_that_is_read_again() -> None:
    cache, reader = filled(100)
    hot = range(40)
    for _ in range(2):
        for offset in hot:
            read(cache, reader, offset)
    for offset in range(1000, 3000):  # twenty times the cache, once
        assert not read(cache, reader, offset)
    assert [read(cache, reader, offset) for offset in hot] == [True] * 40
    found = cache.statistics()
    assert (found.hits, found.misses) == (80, 2040)
    assert found.evicted == 2040 - found.pages
    assert found.kept_bytes == 40_000
    assert 90_000 < found.bytes <= 100_000


def test_point_reads_among_scans_find_their_pages() -> None:
    """Zipf-like reads of some pages beside endless scans: more hits than a cache of one queue has."""
    rng = random.Random(5)
    cache, reader = filled(200)
    hits = reads = scanned = 0
    for _ in range(20_000):
        if rng.random() < 0.5:
            page = int(rng.paretovariate(0.8)) % 150
            hits += read(cache, reader, page)
            reads += 1
        else:
            scanned += 1
            read(cache, reader, 10_000 + scanned)
    assert hits / reads > 0.9


def test_everything_stays_while_there_is_room() -> None:
    cache, reader = filled(100)
    for offset in range(100):
        read(cache, reader, offset)
    assert all(read(cache, reader, offset) for offset in range(100))
    assert cache.statistics().evicted == 0


def test_a_page_that_comes_back_soon_is_kept() -> None:
    """The name of what went is remembered a while."""
    cache, reader = filled(20)
    for offset in range(30):
        read(cache, reader, offset)
    assert not read(cache, reader, 9)  # it went, and comes back
    for offset in range(100, 200):
        read(cache, reader, offset)
    assert read(cache, reader, 9)
    assert len(pages_of(cache, "gone")) <= 20
    assert not read(cache, reader, 0)


def test_kept_pages_that_nobody_uses_go() -> None:
    cache, reader = filled(50)
    for _ in range(2):
        for offset in range(40):
            read(cache, reader, offset)
    for first in (1000, 2000, 3000):
        for _ in range(3):
            for offset in range(first, first + 40):
                read(cache, reader, offset)
    assert sum(read(cache, reader, offset) for offset in range(3000, 3040)) >= 38
    assert not any(look(cache, reader.token, range(40)))


def test_who_holds_a_page_is_asked() -> None:
    cache, reader = filled(10)
    holder = Holder()
    assert cache.watch(reader, holder)
    for offset in range(10):
        read(cache, reader, offset)
        holder.held.add(offset)
    holder.used |= {3, 4}
    for offset in range(100, 130):
        read(cache, reader, offset)
    assert holder.held == {3, 4}
    assert all(look(cache, reader.token, (3, 4)))
    for offset in range(200, 260):
        for _ in range(2):
            read(cache, reader, offset)
    assert not holder.held, "not used since"


def test_what_is_made_anew_replaces_what_was_there() -> None:
    cache, reader = filled(4)
    for at in range(3):
        assert not read(cache, reader, at) and cache.put(reader.token, at, PAGE) is True
    other = bytes(700)
    assert not cache.put(reader.token, 1, other)
    assert cache.replace(reader.token, 1, other) and cache.replace(reader.token, 9, other)
    assert look(cache, reader.token, (0, 1, 2, 9)) == [PAGE, other, PAGE, other]
    assert cache.statistics().bytes == 4 * 256 + 2 * 744 + 2 * 700
    assert not cache.replace(reader.token, 1, bytes(4000)), "too large, and what was there is old"
    assert look(cache, reader.token, (0, 1, 2, 9)) == [PAGE, None, PAGE, other]
    cache.detach(reader)
    assert not cache.replace(reader.token, 1, other) and cache.statistics().bytes == 0


def test_limits_change() -> None:
    cache, reader = filled(100)
    for offset in range(100):
        read(cache, reader, offset)
    cache.set_limit(30_000)
    assert cache.statistics().bytes <= 30_000
    assert cache.statistics().limit_bytes == 30_000
    cache.set_limit(0)
    assert cache.statistics().pages == cache.statistics().bytes == cache.statistics().kept_bytes == 0
    read(cache, reader, 1)
    assert cache.statistics().pages == 0
    cache.set_limit(100_000)
    for offset in range(90):
        read(cache, reader, offset)
    assert all(read(cache, reader, offset) for offset in range(90))


@pytest.mark.parametrize("step", ["watch", "put"])
def test_the_collector_may_end_readers_in_the_middle_of_a_step(step: str) -> None:
    """Finalizers detach, and the collector calls them wherever memory is taken: also where this thread holds
    the cache's mutex."""
    cache, reader = filled(8)
    gone = cache.attach(b"another")
    cache.put(gone.token, 0, PAGE)
    ended: list[int] = []

    class Collecting(Holder):
        """Whatever is asked of it, the collector runs then."""

        def _collect(self) -> None:
            if not ended:
                ended.append(1)
                cache.detach(gone)

        @property
        def closed(self) -> bool:  # type: ignore[override]
            self._collect()
            return False

        def forget(self, offset: int) -> bool:
            self._collect()
            return True

    def run() -> None:
        cache.watch(reader, Collecting())
        if step == "watch":
            cache.watch(reader, Collecting())
        for offset in range(20):  # pages go, and whoever holds them is asked
            cache.put(reader.token, offset, PAGE)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "it waits for itself"
    assert ended
    cache.attach(b"a third")
    assert cache.statistics().pages <= 8 and b"another" not in cache.readers()


def test_pages_go_with_their_file() -> None:
    cache, reader = filled(100)
    other = cache.attach(b"other")
    for offset in range(30):
        for _ in range(offset % 3):
            read(cache, reader, offset)
            read(cache, other, offset)
    cache.detach(reader)
    assert cache.statistics().bytes == 20_000
    cache.put(reader.token, 5, PAGE)
    cache.detach(other)
    found = cache.statistics()
    assert (found.pages, found.bytes, found.kept_bytes) == (0, 0, 0)
    assert not cache.contents()


def test_the_sums_are_right_whatever_happens(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        cache = PageCache(rng.choice((0, 5000, 50_000)))
        readers = [cache.attach(bytes([n])) for n in range(3)]
        tokens = [reader.token for reader in readers]
        holders = [Holder() for _ in tokens]
        for reader, holder in zip(readers, holders, strict=True):
            cache.watch(reader, holder)
        for _ in range(500):
            n = rng.randrange(len(tokens))
            offset = rng.randrange(80)
            if cache.get_many(tokens[n], (offset,))[0] is None:
                cache.put(tokens[n], offset, bytes(rng.choice((0, 10, 1000, 20_000))))
            if rng.random() < 0.3:
                holders[n].used.add(offset)
            if rng.random() < 0.02:
                cache.set_limit(rng.choice((1000, 5000, 50_000)))
            found = cache.statistics()
            pages, kept = pages_of(cache, "new", "kept"), pages_of(cache, "kept")
            assert found.pages == len(pages)
            assert found.bytes == sum(len(p) + 256 for p in pages.values()) <= found.limit_bytes
            assert found.kept_bytes == sum(len(p) + 256 for p in kept.values())
            assert len(pages_of(cache, "gone")) <= len(pages)
            assert not any(pages_of(cache, "gone").values()), "only their names"


def test_threads(seed: int) -> None:
    cache, reader = filled(50)
    failed: list[Exception] = []

    def work(first: int) -> None:
        rng = random.Random(first)
        try:
            for _ in range(3000):
                read(cache, reader, rng.randrange(first, first + 60))
                if rng.random() < 0.01:
                    cache.set_limit(rng.choice((10_000, 50_000)))
        except Exception as exc:  # noqa: BLE001  told below
            failed.append(exc)

    threads = [threading.Thread(target=work, args=(seed + 30 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    found = cache.statistics()
    assert found.hits + found.misses == 12_000
    assert found.bytes <= found.limit_bytes


# ---- through a table


@pytest.fixture
def table(tmp_path: Path) -> Any:
    """300,000 rows of three columns in some rowsets, past a cache that holds a tenth of them."""
    rng = np.random.default_rng(0)
    schema = pa.schema([("k", pa.int64()), ("a", pa.float64()), ("b", pa.int64())])
    options = {"maintenance": "manual", "durability": "none", "rowset_target_bytes": 1 << 20}
    with kc.create_table(tmp_path / "t", schema, "k", options=options) as made:
        made.insert(
            {"k": np.arange(600_000) * 2, "a": rng.random(600_000), "b": rng.integers(0, 1 << 60, 600_000)}
        )
    fs = FaultyFileSystem(PosixFileSystem())
    with kc.open_table(tmp_path / "t", options={"page_cache_bytes": 3 << 20}, _fs=fs) as reader:
        yield reader, fs


def reads_of(fs: FaultyFileSystem) -> int:
    return fs.counts["pread"] + fs.counts["preadv"]


def test_a_scan_of_a_table_leaves_point_reads_their_pages(table: Any) -> None:
    reader, fs = table
    keys = [10, 400_000, 1_100_000]
    for _ in range(3):
        for key in keys:
            assert reader.get(key)["k"] == key
    before = reads_of(fs)
    for key in keys:
        reader.get(key)
    assert reads_of(fs) == before, "all in memory"
    assert reader.scan().to_table().num_rows == 600_000
    assert reader.metrics()["page_cache_evicted"] > 50
    after = reads_of(fs)
    assert after > before + 20
    for key in keys:
        assert reader.get(key)["k"] == key
    assert reads_of(fs) == after, "the scan has driven out none of them"


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("how", ["point", "many", "scan", "deltas"])
def test_what_readers_hold_the_cache_has(
    table: Any, how: str, before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when all pages are dropped before or after one is put."""
    reader, _ = table
    if how == "deltas":
        with kc.open_table(reader.path, "rw") as writer:
            writer.update({"k": np.arange(0, 600_000, 20), "b": np.arange(30_000)})
            writer.flush()
        reader.refresh()
    cache = page_cache_of(reader)
    usual = FileReader.remember
    dropped = []

    def drop_all() -> None:
        limit = cache.limit_bytes
        cache.set_limit(0)
        cache.set_limit(limit)
        dropped.append(limit)

    def remember(self: FileReader, offset: int, page: Any) -> bool:
        if before:
            drop_all()
        kept = usual(self, offset, page)
        if not before:
            drop_all()
        return kept

    def column(found: ColumnReader, holds: Any, holder: Any = None) -> PointColumn:
        """Pages go into the cache by ``remember``, and not past it."""
        load = PageLoader(found, holds, found.file.reader).load
        asked = found.file.remember
        return PointColumn(load, found.page_count, found.width, None, holder, asked, found.page_bits)

    monkeypatch.setattr(FileReader, "remember", remember)
    monkeypatch.setattr(point_reader, "_column", column)
    if how == "point":
        assert all(reader.get(key)["k"] == key for key in (10, 400_000, 1_100_000))
    elif how == "many":
        assert reader.get_many([10, 400_000])["k"].to_pylist() == [10, 400_000]
    else:
        if how == "deltas":
            assert reader.get(400)["b"] == 20
        assert reader.scan(["a"], where=[("b", ">", 1 << 59)]).to_table().num_rows > 1000
    assert dropped
    held = 0
    for readers in cache.readers().values():
        for found in readers:
            for holder in found.holders:
                for place in holder.held:
                    held += 1
                    assert look(cache, found.token, (place,))[0] is not None, f"{place} is held by {holder}"
    assert held or not before
