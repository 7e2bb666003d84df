"""Pages that one compiled call reads: the same payloads and the same errors as the general path's."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kudu_core._ext.base.crc32c import crc32c
from kudu_core._ext.files.page_fetcher import PageFetcher
from kudu_core.cfile import PageCache, RowsFile, RowsFileSpec, write_rows_file
from kudu_core.cfile.columns.reader import ColumnReader
from kudu_core.cfile.columns.specs import ColumnSpec
from kudu_core.cfile.pages.codec_dictionary import ColumnDictionary
from kudu_core.cfile.pages.container import SECTION_PAGE, FileReader
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import Closed, Corruption
from kudu_core.fs.descriptors import opened as descriptor_of
from kudu_core.fs.posix import PosixFileSystem
from tests.support.cases.cfile import Case, column, make_case
from tests.support.cases.texts import spec_of, text

ROWS = 3000


def written(folder: Path, compression: str = "lz4") -> tuple[str, Case]:
    """Numbers, words of a dictionary, and strings in pages of 16 rows."""
    rng = np.random.default_rng(3)
    case = make_case(rng, ROWS, "int", types=["int64", "string", "binary"])
    for id_, values in {
        2: [None if k % 5 == 0 else f"word {k % 7}" for k in range(ROWS)],
        3: [None if k % 9 == 0 else f"{k:04d}".encode() * 40 for k in range(ROWS)],
    }.items():
        type_ = "string" if id_ == 2 else "binary"
        case.columns[id_] = column(values, type_)
        case.specs[id_] = ColumnSpec(id_, ColumnType.parse(type_), True, compression=compression)
    path = str(folder / compression)
    case.write(PosixFileSystem(), path)
    return path, case


def opened(path: str, limit: int = 1 << 20) -> RowsFile:
    return RowsFile(PosixFileSystem(), path, PageCache(limit))


def place_of(column: ColumnReader, number: int) -> tuple[int, int]:
    """Where a page lies: offset, bytes."""
    entry = column.index()[number]
    return int(entry["offset"]), int(entry["size"])


def fetcher_of(column: ColumnReader, **other: Any) -> PageFetcher:
    """That of the column, or one that expects something else."""
    index = column.index()
    decoders = [None, None, pa.Codec("zstd").decompress]
    said = {
        "file": column.file.direct,
        "id_crc": crc32c(column.file.file_id, 0),
        "kind": SECTION_PAGE,
        "offsets": index["offset"].astype(np.int64),
        "sizes": index["size"].astype(np.int64),
        "nulls": index["nulls"].astype(np.int64),
        "rows": column.rows,
        "page_bits": column.page_bits,
        "width": column.width,
        "encoding": column.encoding,
        "decoders": decoders,
        "most_bytes": 1 << 26,
    }
    return PageFetcher(**(said | other))


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_a_fetch_gives_what_the_general_path_gives(compression: str, tmp_path: Path) -> None:
    path, _ = written(tmp_path, compression)
    with opened(path) as file:
        for read in file.columns.values():
            read.index()
            assert read.fetcher is not None
            for number in range(read.page_count):
                data = read.file.read_at(*place_of(read, number))
                wanted = bytes(read.checked(number, data))
                assert bytes(read.fetcher.fetch(number)) == wanted
                assert bytes(read.fetcher.opened(number, data)) == wanted
                for other in (data[:-1], data + b"x", data[:15], b"", data[:-1] + bytes([data[-1] ^ 1])):
                    assert read.fetcher.opened(number, other) is None
        assert {read.width for read in file.columns.values()} >= {0, 1, 8}


def test_every_flipped_byte_of_a_page_is_damage(tmp_path: Path) -> None:
    """The fetch has no answer, and the general path names the file and the page."""
    path, _ = written(tmp_path)
    whole = Path(path).read_bytes()
    with opened(path) as file:
        read = file.columns[3]
        read.index()
        offset, size = place_of(read, 4)
        assert read.fetcher is not None
        for at in range(offset, offset + size):
            Path(path).write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
            assert read.fetcher.fetch(4) is None, at - offset
            if at < offset + 20:
                with pytest.raises(Corruption, match=f"{path}.*{offset}") as caught:
                    file.cells([3], np.array([4 << read.page_bits]))
                assert caught.value.offset == offset
        Path(path).write_bytes(whole[: offset + size - 1])
        assert read.fetcher.fetch(4) is None
        with pytest.raises(Corruption, match="ends inside"):
            file.cells([3], np.array([4 << read.page_bits]))
        Path(path).write_bytes(whole)
        assert read.fetcher.fetch(4) is not None


@pytest.mark.parametrize(
    ("name", "other"),
    [("id_crc", 5), ("kind", 3), ("width", 2), ("width", 0), ("encoding", 0), ("rows", ROWS - 1)],
)
def test_a_page_of_something_else_is_not_taken(name: str, other: int, tmp_path: Path) -> None:
    path, _ = written(tmp_path)
    with opened(path) as file:
        read = file.columns[2]
        last = read.page_count - 1
        assert fetcher_of(read).fetch(last) is not None
        assert fetcher_of(read, **{name: other}).fetch(last) is None
        nulls = np.zeros(read.page_count, np.int64)
        assert fetcher_of(read, nulls=nulls).fetch(last) is None


def test_what_a_codec_says_is_not_believed(tmp_path: Path) -> None:
    path, _ = written(tmp_path, "zstd")
    with opened(path) as file:
        read = file.columns[3]
        real = read.checked(0, read.file.read_at(*place_of(read, 0)))

        def decoder(found: Any) -> list[Any]:
            def decode(stored: bytes, decompressed_size: int, asbytes: bool) -> Any:
                if isinstance(found, Exception):
                    raise found
                return found

            return [None, None, decode]

        assert fetcher_of(read, decoders=decoder(real)).fetch(0) == real
        for wrong in (real + b"x", real[:-1], bytearray(real), b"", OSError(), ValueError()):
            assert fetcher_of(read, decoders=decoder(wrong)).fetch(0) is None
        for decoders in ([], [None, None], [None, None, None]):
            assert fetcher_of(read, decoders=decoders).fetch(0) is None, "a codec of another version"
        assert fetcher_of(read, decoders=decoder(real), most_bytes=len(real) - 1).fetch(0) is None
        with pytest.raises(KeyboardInterrupt):
            fetcher_of(read, decoders=[None, None, interrupted]).fetch(0)


def interrupted(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


def test_a_file_that_is_closed_or_has_no_descriptor(tmp_path: Path) -> None:
    path, _ = written(tmp_path)
    file = opened(path)
    read = file.columns[3]
    fetcher, descriptor = fetcher_of(read), read.file.direct.descriptor
    file.close()
    assert fetcher.fetch(0) is None
    with pytest.raises(Closed):
        file.cells([3], np.array([0]))
    with opened(path) as other:
        folder = PosixFileSystem().open_read(path)
        folder.descriptor = None
        assert fetcher_of(other.columns[3], file=folder).fetch(0) is None
        still = SimpleNamespace(descriptor=descriptor)
        assert fetcher_of(other.columns[3], file=still, most_bytes=0).fetch(0) is None
        with pytest.raises(TypeError):
            fetcher_of(other.columns[3], file=SimpleNamespace(descriptor=3)).fetch(0)


def test_wrong_arguments(tmp_path: Path) -> None:
    path, _ = written(tmp_path)
    with opened(path) as file:
        read = file.columns[3]
        pages = read.page_count
        for number in (-1, pages):
            with pytest.raises(IndexError):
                fetcher_of(read).fetch(number)
            with pytest.raises(IndexError):
                fetcher_of(read).opened(number, b"")
        assert fetcher_of(read, sizes=np.full(pages, 15)).fetch(0) is None
        short = np.zeros(1, np.int64)
        for other in ({"rows": ROWS + 100}, {"rows": -1}, {"page_bits": 15}, {"sizes": short}):
            with pytest.raises(ValueError):
                fetcher_of(read, **other)


def test_the_system_s_error_is_told(tmp_path: Path) -> None:
    path, _ = written(tmp_path)
    with opened(path) as file:
        folder = SimpleNamespace(descriptor=descriptor_of(str(tmp_path), os.O_RDONLY))
        with pytest.raises(IsADirectoryError):
            fetcher_of(file.columns[3], file=folder).fetch(0)


# ---- pages of LZ4 with a dictionary


def with_dictionary(folder: Path) -> str:
    path = str(folder / "dictionary")
    spec = RowsFileSpec([(spec_of("lz4"), column(text(1, 120), "string"))])
    write_rows_file(PosixFileSystem(), path, spec)
    return path


@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_the_text_is_asked_for_where_the_cache_has_it_not(limit: int, tmp_path: Path) -> None:
    asked: list[int] = []
    with opened(with_dictionary(tmp_path), limit) as file:
        read = file.columns[0]
        dictionary = read.codec_dictionary
        assert dictionary is not None
        wanted = [bytes(read.checked(k, read.file.read_at(*place_of(read, k)))) for k in range(4)]

        class Text:
            """Counts who asks."""

            def __init__(self, dictionary: ColumnDictionary) -> None:
                self.place, self._dictionary = dictionary.place, dictionary

            def text(self) -> bytes:
                asked.append(1)
                return self._dictionary.text()

        counted = Text(dictionary)
        fetcher = fetcher_of(read, text=counted, reader=read.file.reader)
        assert [fetcher.fetch(k) for k in range(4)] == wanted
        assert len(asked) == (0 if limit else 4)
        asked.clear()
        assert [fetcher_of(read, text=counted).fetch(k) for k in range(4)] == wanted
        assert len(asked) == 4
        assert fetcher_of(read).fetch(0) is None, "the general path says that there is none"


def test_a_text_that_is_another(tmp_path: Path) -> None:
    """Other bytes of the same number, or no answer; never a crash.  What goes wrong in ``text`` is told."""
    with opened(with_dictionary(tmp_path)) as file:
        read = file.columns[0]
        real = read.checked(0, read.file.read_at(*place_of(read, 0)))
        for other in (b"", b"abc", bytes(1000), bytes(1 << 16)):
            found = fetcher_of(read, text=SimpleNamespace(place=-1, text=lambda other=other: other)).fetch(0)
            assert found is None or len(found) == len(real)

        def damaged() -> bytes:
            raise Corruption("f", 3, "no dictionary")

        with pytest.raises(Corruption, match="no dictionary"):
            fetcher_of(read, text=SimpleNamespace(place=-1, text=damaged)).fetch(0)
        with pytest.raises(TypeError):
            fetcher_of(read, text=SimpleNamespace(place=-1, text=lambda: "text")).fetch(0)


# ---- reads are counted


def test_a_page_that_the_cache_does_not_keep_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a blob that is larger than a quarter of the cache; nothing stays held of it."""
    rng = np.random.default_rng(1)
    case = make_case(rng, 40, "int", types=["binary"])
    blobs = [rng.bytes(100_000) for _ in range(40)]
    case.columns[1] = column(blobs, "binary")
    case.specs[1] = ColumnSpec(1, ColumnType.parse("binary"), True)
    path = str(tmp_path / "blobs")
    case.write(PosixFileSystem(), path)
    reads: list[int] = []

    class Counted:
        """Notes what is fetched."""

        def __init__(self, fetcher: Any) -> None:
            self._fetcher = fetcher

        def fetch(self, number: int) -> Any:
            reads.append(number)
            return self._fetcher.fetch(number)

    with opened(path, 200_000) as file:
        key = {id_: file.columns[id_].index() for id_ in (0, 1)}
        assert len(key) == 2
        points = file.points
        points.cells([0], np.array([3]))
        held = points.pages
        monkeypatch.setattr(file.columns[1], "fetcher", Counted(file.columns[1].fetcher))
        monkeypatch.setattr(FileReader, "read_adjacent", None)
        for rows in ([7], [7, 8, 7], [39]):
            reads.clear()
            found = points.cells([1], np.array(rows))[0]
            assert found is not None
            assert found[0].tobytes() == b"".join(blobs[row] for row in rows)
            assert reads == list(dict.fromkeys(rows)), "each once"
            assert points.pages == held


def test_the_system_is_asked_for_a_page_that_it_has_not_in_memory(tmp_path: Path) -> None:
    path, _ = written(tmp_path)
    with opened(path) as file:
        column = file.columns[3]
        fetcher = fetcher_of(column)
        offset = place_of(column, 1)[0]
        column.fetched(1)
        assert fetcher.ask(1, True) is False, "it was just read"
        assert fetcher.ask(1, False) is True
        for number in (-1, column.page_count):
            with pytest.raises(IndexError):
                fetcher.ask(number, False)
        assert column.file.direct is not None
        fd = column.file.direct.descriptor.fd
        os.fsync(fd)
        asked = missing = False
        for _ in range(100):  # asking makes the system fetch: what is asked next may be there
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            asked = fetcher.ask(1, True)
            if asked:
                break
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            try:
                os.preadv(fd, [bytearray(1)], offset, os.RWF_NOWAIT)
            except BlockingIOError:
                missing = True
        assert asked or not missing, "the system had not the page and was not asked"
    assert fetcher.ask(1, False) is False, "the file is closed"
