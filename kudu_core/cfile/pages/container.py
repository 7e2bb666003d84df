"""The container of ``.rows`` and ``.delta`` files: header, sections, footer, trailer.

    header | (page | section)* | footer section | trailer

A container knows where its bytes begin and end and that they are the bytes that were written
there: each CRC also covers the file's random id and the offset, so a page that was swapped,
misdirected or left over from another file is found.  It knows nothing of columns or rows.

Layout: docs/format.md, "Container".  Model: Kudu's CFile (header, blocks, footer, feature bits).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self

from kudu_core._ext.base.crc32c import crc32c
from kudu_core.cfile.pages.footer import join_footer, split_footer
from kudu_core.errors import Closed, Corruption, NotSupported
from kudu_core.fs.missing import FileMissing

if TYPE_CHECKING:
    from kudu_core.cfile.pages.page_cache import Holder, PageCache, Reader
    from kudu_core.fs.api import FileSystem, ReadFile, WriteFile

MAGIC = b"KUCFILE\n"
FORMAT_VERSION = 1

CONTAINER_ROWS = 1
CONTAINER_DELTA = 2
CONTAINERS = (CONTAINER_ROWS, CONTAINER_DELTA)

# Feature bits.  An unknown bit of the second set means: this version cannot read the file.
COMPATIBLE_FEATURES = 0
INCOMPATIBLE_FEATURES = 0

SECTION_PAGE = 1  # only inside CRCs: pages carry the page frame, not the section frame
SECTION_PAGE_INDEX = 2
SECTION_DICTIONARY = 3
SECTION_KEY_INDEX = 4
SECTION_BLOOM = 5
SECTION_FOOTER = 6
SECTION_STATISTICS = 7
SECTION_CODEC_DICTIONARY = 8

# magic, format version, kind, compatible, incompatible features, file id, crc
HEADER = struct.Struct("<8sHHII16sI")
# crc, kind, reserved, length of the payload that follows
SECTION_FRAME = struct.Struct("<IHHQ")
# footer offset, footer length (with its frame), footer crc, magic
TRAILER = struct.Struct("<QII8s")
# what a CRC covers before the frame and the payload: offset in the file, section kind
CRC_PLACE = struct.Struct("<QH")
assert HEADER.size == 40
assert SECTION_FRAME.size == 16
assert TRAILER.size == 24
assert CRC_PLACE.size == 10

FOOTER_LIMIT_BYTES = 32 << 20
"""A footer of as many columns as a table may have, each with its changes, comes to a third of it."""
_TAIL_GUESS_BYTES = 16 << 10
_FLUSH_BYTES = 4 << 20

Bytes = bytes | bytearray | memoryview


class Extent(NamedTuple):
    """A piece of a file: ``length`` bytes from ``offset``, frames included."""

    offset: int
    length: int

    @property
    def end(self) -> int:
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class FileMeta:
    """What a manifest records of a file, so that a truncated, older or foreign one is found."""

    size: int
    footer_crc: int


class FileWriter:
    """Writes one container.  Appends are collected and written in pieces of a few MiB.

    After an exception the file is incomplete; call ``abort``.  Not thread safe.
    """

    def __init__(self, fs: FileSystem, path: str, kind: int, *, file_id: bytes | None = None) -> None:
        assert kind in CONTAINERS
        self.path = path
        self.file_id = os.urandom(16) if file_id is None else file_id
        assert len(self.file_id) == 16
        self._fs = fs
        self.id_crc: int = crc32c(self.file_id, 0)
        self._file: WriteFile | None = fs.create(path)
        self._pending: list[Any] = []
        self._pending_bytes = 0
        self.offset = 0
        head = HEADER.pack(
            MAGIC, FORMAT_VERSION, kind, COMPATIBLE_FEATURES, INCOMPATIBLE_FEATURES, self.file_id, 0
        )[:-4]
        self.append(head)
        self.append(crc32c(head, 0).to_bytes(4, "little"))

    def place_crc(self, kind: int) -> int:
        """The CRC of file id, current offset and ``kind``: the start value of a frame's CRC."""
        return crc32c(CRC_PLACE.pack(self.offset, kind), self.id_crc)

    def append(self, data: Any) -> None:
        """Add bytes at the current offset; the caller must not change ``data`` afterwards."""
        size = len(data)
        if not size:
            return
        self._pending.append(data)
        self._pending_bytes += size
        self.offset += size
        if self._pending_bytes >= _FLUSH_BYTES:
            self._flush()

    def add_section(self, kind: int, payload: Sequence[Any]) -> Extent:
        """Add a section of the byte buffers ``payload``; return where it lies."""
        offset = self.offset
        length = sum(len(part) for part in payload)
        rest = SECTION_FRAME.pack(0, kind, 0, length)[4:]
        crc = crc32c(rest, self.place_crc(kind))
        for part in filter(len, payload):
            crc = crc32c(part, crc)
        self.append(crc.to_bytes(4, "little") + rest)
        for part in payload:
            self.append(part)
        return Extent(offset, SECTION_FRAME.size + length)

    def finish(self, footer: Mapping[str, Any], rest: bytes, *, sync: bool = True) -> FileMeta:
        """Write footer and trailer, sync and close the file.  Syncing the directory is the caller's.

        ``rest``: what follows the JSON in the footer.
        """
        assert self._file is not None
        body = join_footer(footer, rest)
        if len(body) > FOOTER_LIMIT_BYTES:
            raise NotSupported(
                f"{self.path}: a footer of {len(body):,} bytes; it has at most {FOOTER_LIMIT_BYTES:,}"
            )
        offset = self.offset
        rest = SECTION_FRAME.pack(0, SECTION_FOOTER, 0, len(body))[4:]
        crc = crc32c(body, crc32c(rest, self.place_crc(SECTION_FOOTER)))
        self.append(crc.to_bytes(4, "little") + rest)
        self.append(body)
        self.append(TRAILER.pack(offset, SECTION_FRAME.size + len(body), crc, MAGIC))
        self._flush()
        file = self._file
        if sync:
            file.sync()
        self._file = None
        file.close()
        return FileMeta(self.offset, crc)

    def abort(self) -> None:
        """Remove the incomplete file.  Does nothing after ``finish``."""
        file, self._file = self._file, None
        self._pending = []
        if file is not None:
            file.close()
            self._fs.unlink(self.path, missing_ok=True)

    def _flush(self) -> None:
        assert self._file is not None
        if self._pending:
            self._file.append(self._pending)
        self._pending = []
        self._pending_bytes = 0


class FileReader:
    """One container, open for reading; its descriptor stays open, so an unlinked file still reads.

    Header, trailer and footer are read and checked here; sections and pages on demand, each by
    its CRC, before anything looks into them.  Thread safe (reads are positional).

    Raises
    ------
    NotSupported
        A newer format version or an unknown incompatible feature; nothing else was looked at.
    Corruption
        Anything else that is not as it was written, or not the file that ``size`` and
        ``footer_crc`` (from a manifest) promise.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        kind: int,
        *,
        size: int | None = None,
        footer_crc: int | None = None,
        cache: PageCache | None = None,
    ) -> None:
        self.path = path
        self.cache = cache
        self.closed = False
        try:
            self._file: ReadFile = fs.open_read(path, size)
        except FileNotFoundError:
            raise FileMissing(path) from None
        self.ask: Callable[[int, int], object] | None = getattr(self._file, "ask", None)
        """Of a file in a store: told (bytes, offset) that will be read, it begins to fetch them."""
        self._cache_token = -1
        self._attached: Reader | None = None
        self.last_dictionary: tuple[int, Any] | None = None  # place and codec dictionary, past the cache
        try:
            self.size = self._file.size()
            if size is not None and self.size != size:
                self.damaged(0, f"the file has {self.size} bytes, its manifest says {size}")
            if self.size < HEADER.size + SECTION_FRAME.size + TRAILER.size:
                self.damaged(0, f"{self.size} bytes cannot hold a container")
            self.file_id = self._read_header(kind)
            self._id_crc: int = crc32c(self.file_id, 0)
            self.footer_extent, self.footer_crc, self.footer, self.footer_rest = self._read_footer()
            if footer_crc is not None and footer_crc != self.footer_crc:
                self.damaged(self.footer_extent.offset, "not the file that the manifest names (footer CRC)")
        except BaseException:
            self._file.close()
            raise
        if cache is not None:
            self._attached = cache.attach(self.file_id, self.size)
            self._cache_token = self._attached.token

    def damaged(self, offset: int, reason: str) -> NoReturn:
        raise Corruption(self.path, offset, reason)

    def place_crc(self, offset: int, kind: int) -> int:
        """The CRC of file id, ``offset`` and ``kind``: the start value of a frame's CRC."""
        return crc32c(CRC_PLACE.pack(offset, kind), self._id_crc)

    def read_at(self, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``offset``."""
        if self.closed:
            raise Closed(f"{self.path} is closed")
        if offset < 0 or length < 0 or offset + length > self.size:
            self.damaged(max(offset, 0), f"{length} bytes reach over the end of the file")
        data = self._file.pread(length, offset)
        if len(data) != length:
            self.damaged(offset, f"the file ends inside {length} bytes")
        return data

    def read_adjacent(self, sizes: Sequence[int], offset: int) -> list[bytes]:
        """Adjacent pieces of the given sizes, from ``offset``, by one system call."""
        if len(sizes) == 1:
            return [self.read_at(offset, sizes[0])]
        if self.closed:
            raise Closed(f"{self.path} is closed")
        length = sum(sizes)
        if offset < 0 or offset + length > self.size:
            self.damaged(max(offset, 0), f"{length} bytes reach over the end of the file")
        pieces = self._file.preadv(sizes, offset)
        if [len(piece) for piece in pieces] != list(sizes):
            self.damaged(offset, f"the file ends inside {length} bytes")
        return pieces

    @property
    def direct(self) -> Any:
        """The open file, where compiled code may read it by its descriptor; None: only by ``pread``."""
        return self._file if hasattr(self._file, "descriptor") else None

    def section(self, extent: Extent, kind: int) -> memoryview:
        """The checked payload of a section."""
        if extent.length < SECTION_FRAME.size or extent.end > self.footer_extent.end:
            self.damaged(extent.offset, f"a section of {extent.length} bytes does not fit the file")
        return self._check_section(self.read_at(extent.offset, extent.length), extent.offset, kind)[0]

    def cached(self, offsets: Sequence[int]) -> list[Any]:
        """The cached pages at ``offsets``, None for each that is missing."""
        if self.closed:
            raise Closed(f"{self.path} is closed")
        if self.cache is None:
            return [None] * len(offsets)
        return self.cache.get_many(self._cache_token, offsets)

    def cached_page(self, offset: int) -> Any:
        """The cached page at ``offset``, None where it is missing."""
        if self.closed:
            raise Closed(f"{self.path} is closed")
        return None if self.cache is None else self.cache.get(self._cache_token, offset)

    def remember(self, offset: int, payload: Any) -> bool:
        """Put a checked page into the cache; whether that has it."""
        return self.cache is not None and self.cache.put(self._cache_token, offset, payload)

    def replace(self, place: int, made: Any) -> bool:
        """``remember`` in the place of what is there: of what is made of pages, and kept among them."""
        return self.cache is not None and self.cache.replace(self._cache_token, place, made)

    @property
    def reader(self) -> Reader | None:
        """By which compiled code finds the file's pages in the cache; None where nothing may be kept."""
        return self._attached

    def watch(self, holder: Holder) -> bool:
        """Whether the cache asks ``holder`` before it drops a page of this file."""
        cache, reader = self.cache, self._attached
        return cache is not None and reader is not None and cache.watch(reader, holder)

    def verify_layout(self, extents: Sequence[Extent]) -> None:
        """Header, the given pieces, footer and trailer cover the file without gap or overlap."""
        at = HEADER.size
        for extent in sorted((*extents, self.footer_extent)):
            if extent.length and extent.offset != at:
                self.damaged(at, f"the next piece of the file begins at {extent.offset}")
            at = max(at, extent.end)
        if at + TRAILER.size != self.size:
            self.damaged(at, "bytes that belong to nothing")

    def close(self) -> None:
        """Close the descriptor and drop the file's pages from the cache.  Idempotent."""
        if self.closed:
            return
        self.let_go()
        self.closed = True
        self._file.close()

    def let_go(self) -> None:
        """Drop the file's pages from the cache; the descriptor closes with the last reader.  Idempotent."""
        self._cache_token = -1
        if self.cache is not None and self._attached is not None:
            self.cache.detach(self._attached)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _read_header(self, kind: int) -> bytes:
        head = self.read_at(0, HEADER.size)
        magic, version, found_kind, _, incompatible, file_id, crc = HEADER.unpack(head)
        if magic != MAGIC:
            self.damaged(0, f"magic {magic!r} is not that of a kudu_core data file")
        # The header's layout is the same in every version: a damaged version number is damage.
        if crc32c(head[:-4], 0) != crc:
            self.damaged(0, "the header does not match its CRC")
        if version > FORMAT_VERSION or version == 0:
            raise NotSupported(
                f"{self.path} has format version {version}; this version reads up to {FORMAT_VERSION}"
            )
        if incompatible & ~INCOMPATIBLE_FEATURES:
            raise NotSupported(
                f"{self.path} uses features that this version does not know: "
                f"{incompatible & ~INCOMPATIBLE_FEATURES:#x}"
            )
        if found_kind != kind:
            self.damaged(10, f"a file of kind {found_kind} where kind {kind} belongs")
        return bytes(file_id)

    def _read_footer(self) -> tuple[Extent, int, dict[str, Any], memoryview]:
        guess = min(self.size, _TAIL_GUESS_BYTES)
        tail = self.read_at(self.size - guess, guess)
        trailer_at = self.size - TRAILER.size
        offset, length, crc, magic = TRAILER.unpack_from(tail, guess - TRAILER.size)
        if magic != MAGIC:
            self.damaged(trailer_at, "the file does not end with a trailer: cut short, or never finished")
        if (
            offset < HEADER.size
            or length < SECTION_FRAME.size
            or length > FOOTER_LIMIT_BYTES + SECTION_FRAME.size
            or offset + length != trailer_at
        ):
            self.damaged(trailer_at, f"a footer of {length} bytes at {offset} does not end at the trailer")
        start = offset - (self.size - guess)
        data = tail[start : start + length] if start >= 0 else self.read_at(offset, length)
        payload, found = self._check_section(data, offset, SECTION_FOOTER)
        if found != crc:
            self.damaged(trailer_at, "the trailer names another footer CRC")
        try:
            footer, rest = split_footer(payload)
        except (ValueError, RecursionError) as error:
            self.damaged(offset, f"the footer cannot be taken apart: {error}")
        return Extent(offset, length), crc, footer, rest

    def _check_section(self, data: bytes, offset: int, kind: int) -> tuple[memoryview, int]:
        view = memoryview(data)
        crc, found_kind, reserved, length = SECTION_FRAME.unpack_from(view)
        if length != len(view) - SECTION_FRAME.size:
            self.damaged(offset, f"a section of {length} bytes in {len(view) - SECTION_FRAME.size}")
        if crc32c(view[4:], self.place_crc(offset, kind)) != crc:
            self.damaged(offset, "the section does not match its CRC")
        if found_kind != kind or reserved:
            self.damaged(offset, f"a section of kind {found_kind} where kind {kind} belongs")
        return view[SECTION_FRAME.size :], crc
