"""Data files as objects: what a container asks of a file system, and what a store cannot be asked."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.cfile.pages.container import CONTAINER_ROWS, FileReader
from kudu_core.cfile.pages.container_writer import FileWriter
from kudu_core.common.run.pool import Pool
from kudu_core.errors import Closed, InternalError, InvalidArgument, StoreUnavailable
from kudu_core.fs.missing import FileMissing
from kudu_core.objects.files.asked_pieces import AskedPieces
from kudu_core.objects.files.file_ends import SMALL_BYTES
from kudu_core.objects.files.object_files import ObjectFiles
from tests.support.objects.memory import MemoryObjectStore, client

ROOT = "s3://bucket/t"
PATH = f"{ROOT}/tablets/00000001/000002-00000001.rows"


class World:
    def __init__(self) -> None:
        self.memory = MemoryObjectStore()
        self.files = ObjectFiles(client(self.memory), ROOT)

    def container(self, size: int) -> tuple[int, int, bytes]:
        """(bytes, footer CRC, contents of its one section) of a container of about a size."""
        body = random.Random(size).randbytes(size)
        writer = FileWriter(self.files, PATH, CONTAINER_ROWS)
        extent = writer.add_section(4, [body])
        meta = writer.finish({"at": [extent.offset, extent.length]}, b"")
        return meta.size, meta.footer_crc, body


@pytest.mark.parametrize("size", [10, 30_000, 3_000_000, 9_000_000])
def test_a_container_is_one_put_and_opened_by_one_wave(size: int) -> None:
    world = World()
    n_bytes, crc, body = world.container(size)
    assert world.memory.counts()["requests_put"] == 1
    assert len(world.memory.objects[PATH[len(ROOT) + 1 :]].data) == n_bytes
    reader = FileReader(world.files, PATH, CONTAINER_ROWS, size=n_bytes, footer_crc=crc)
    gets = world.memory.counts()["requests_get"]
    assert gets == (1 if n_bytes <= SMALL_BYTES else 2), "the beginning and the end, side by side"
    offset, length = reader.footer["at"]
    assert reader.read_at(offset + 16, length - 16) == body
    assert world.memory.counts()["requests_get"] <= gets + 1
    assert "list" not in world.memory.counts() and world.memory.counts()["requests_list"] == 0
    reader.close()


def test_a_file_is_there_when_its_sync_has_returned_and_not_before() -> None:
    world = World()
    file = world.files.create(PATH)
    data = bytearray(b"abc")
    assert file.append([data, b"def"]) == 0
    data[:] = b"xyz"
    assert not world.memory.objects
    file.sync()
    assert world.files.read_bytes(PATH, 100) == b"abcdef"
    file.sync()
    assert world.memory.counts()["requests_put"] == 1, "nothing new"
    assert file.append(b"g") == 6
    file.close()
    assert world.files.read_bytes(PATH, 100) == b"abcdef", "what was not synced is nothing"
    with pytest.raises(Closed):
        file.append(b"h")


def test_a_file_that_was_deleted_is_missing_whenever_that_is_found_out() -> None:
    world = World()
    n_bytes, crc, _ = world.container(200_000)
    reader = FileReader(world.files, PATH, CONTAINER_ROWS, size=n_bytes, footer_crc=crc)
    world.files.unlink(PATH)
    world.files.unlink(PATH)
    with pytest.raises(FileMissing, match="the file is missing"):
        reader.read_at(1000, 10)
    with pytest.raises(FileMissing):
        FileReader(world.files, PATH, CONTAINER_ROWS, size=n_bytes, footer_crc=crc)
    with pytest.raises(FileNotFoundError):
        world.files.open_read(PATH)


def test_reads_end_where_the_file_does() -> None:
    world = World()
    world.files.replace_file(PATH, b"0123456789")
    file = world.files.open_read(PATH)
    assert (file.size(), file.pread(4, 8), file.pread(4, 10), file.pread(0, 3)) == (10, b"89", b"", b"")
    assert file.preadv([2, 3, 9], 3) == [b"34", b"567", b"89"]
    file.close()
    with pytest.raises(Closed):
        file.pread(1, 0)


def test_names_and_folders() -> None:
    world = World()
    for name in ("a/1.rows", "a/2.rows", "b/c/3.rows", "TABLE"):
        world.files.replace_file(f"{ROOT}/{name}", name.encode())
    assert world.files.listdir(ROOT) == ["TABLE", "a", "b"]
    assert world.files.listdir(f"{ROOT}/a") == ["1.rows", "2.rows"]
    assert world.files.is_dir(f"{ROOT}/b") and not world.files.is_dir(f"{ROOT}/TABLE")
    assert world.files.exists(f"{ROOT}/TABLE") and not world.files.exists(f"{ROOT}/z")
    assert world.files.stat(f"{ROOT}/a/1.rows").size == 8
    world.files.mkdir(f"{ROOT}/new")
    world.files.sync_dir(f"{ROOT}/new")
    world.files.rmtree(f"{ROOT}/a")
    assert world.files.listdir(ROOT) == ["TABLE", "b"]
    with pytest.raises(InvalidArgument, match="is no path in"):
        world.files.read_bytes("s3://bucket/other/x", 1)


def test_what_no_store_has_is_not_asked_for() -> None:
    files = World().files
    for call in (
        lambda: files.rename(PATH, PATH + "2"),
        lambda: files.link(PATH, PATH + "2"),
        lambda: files.open_write(PATH),
        lambda: files.identity(PATH),
        lambda: files.lease(PATH),
        lambda: files.reader_lock(PATH),
    ):
        with pytest.raises(InternalError, match="nothing in an object store rests on that"):
            call()


def test_a_table_in_a_store_is_backed_up_to_a_folder_and_restored_there(tmp_path: object) -> None:
    memory = MemoryObjectStore()
    table = kc.create_table(ROOT, pa.schema([("k", pa.int64())]), "k", _requests=memory)
    table.insert([{"k": n} for n in range(100)])
    assert table.backup(f"{tmp_path}/b").total == 100
    assert table.verify().records >= 1
    table.close()
    with kc.restore(f"{tmp_path}/b", f"{tmp_path}/t") as restored:
        assert restored.count() == 100


def test_what_was_asked_for_is_fetched_once_and_let_go_when_it_is_read() -> None:
    memory = MemoryObjectStore()
    with Pool(4) as pool:
        files = ObjectFiles(client(memory), ROOT, pool)
        data = random.Random(1).randbytes(1 << 20)
        files.replace_file(PATH, data)
        file = files.open_read(PATH, len(data))

        def gets() -> int:
            return memory.counts()["requests_get"]

        file.pread(1, 0)  # the ends
        before = gets()
        assert file.ask(1000, 50_000)  # type: ignore[attr-defined]
        for on_its_way in ((1000, 50_000), (10, 50_500)):
            assert not file.ask(*on_its_way)  # type: ignore[attr-defined]
        assert file.pread(10, 50_500) == data[50_500:50_510]
        assert file.pread(1000, 50_000) == data[50_000:51_000]
        assert gets() == before + 1
        assert file.pread(1000, 50_000) == data[50_000:51_000]
        assert gets() == before + 2, "it is kept no longer"
        for outside in ((0, 5), (10, -1), (10, len(data) - 5)):
            assert not file.ask(*outside)  # type: ignore[attr-defined]
        assert not file.ask(5, 3), "it is there"  # type: ignore[attr-defined]
        file.close()
        assert not file.ask(1000, 70_000)  # type: ignore[attr-defined]


def test_a_file_that_will_be_opened_is_opened_without_a_wait() -> None:
    memory = MemoryObjectStore()
    with Pool(4) as pool:
        files = ObjectFiles(client(memory), ROOT, pool)
        data = random.Random(1).randbytes(100_000)
        files.replace_file(PATH, data)
        files.will_open(PATH, len(data))
        files.will_open(PATH, len(data))
        file = files.open_read(PATH, len(data))
        assert (file.pread(40, 0), file.pread(9, len(data) - 9)) == (data[:40], data[-9:])
        assert memory.counts()["requests_get"] == 2, "the beginning and the end, once"
        files.will_open(f"{PATH}2", 10)
        with pytest.raises(FileMissing):
            files.open_read(f"{PATH}2", 10).pread(10, 0)


def test_an_outage_of_then_is_not_told_to_who_reads_now() -> None:
    memory = MemoryObjectStore()
    store = client(memory)
    real, out, failed = store.read_ranges, [True], threading.Semaphore(0)

    def failing(name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        if out:
            failed.release()
            raise StoreUnavailable("no answer", False)
        return real(name, ranges)

    with Pool(4) as pool:
        files = ObjectFiles(store, ROOT, pool)
        data = random.Random(1).randbytes(1 << 20)
        files.replace_file(PATH, data)
        store.read_ranges = failing  # type: ignore[method-assign]
        files.will_open(PATH, len(data))
        file = files.open_read(PATH, len(data))
        assert file.ask(1000, 50_000)  # type: ignore[attr-defined]
        for n, offset in ((1000, 50_000), (10, 0)):
            with pytest.raises(StoreUnavailable):
                file.pread(n, offset)
        assert file.ask(1000, 70_000)  # type: ignore[attr-defined]
        assert file.ask(1000, 90_000)  # type: ignore[attr-defined]
        for _ in range(6):
            assert failed.acquire(timeout=30)
        out.clear()
        assert file.pread(10, 0) == data[:10]
        assert file.pread(1000, 70_000) == data[70_000:71_000]
        assert file.pread(10, 90_100) == data[90_100:90_110], "a part of it"
        assert files.asked.bytes == 0


def test_what_nobody_reads_makes_place() -> None:
    with Pool(4) as pool:
        memory = MemoryObjectStore()
        files = ObjectFiles(client(memory), ROOT, pool)
        data = random.Random(1).randbytes(1 << 20)
        files.replace_file(PATH, data)
        files.asked = AskedPieces(100_000)
        file, other = files.open_read(PATH, len(data)), files.open_read(PATH, len(data))
        assert not file.ask(25_001, 0), "too large to be worth it"  # type: ignore[attr-defined]
        for number in range(20):
            for one in (file, other):
                assert one.ask(10_000, 100_000 + 10_000 * number)  # type: ignore[attr-defined]
        assert files.asked.bytes == 100_000
        before = memory.counts()["requests_get"]
        for number in range(20):
            offset = 100_000 + 10_000 * number
            assert file.pread(10_000, offset) == data[offset : offset + 10_000]
        assert memory.counts()["requests_get"] >= before + 15, "what had made place, anew"
        assert files.asked.bytes == 50_000
        other.close()
        assert files.asked.bytes == 0
