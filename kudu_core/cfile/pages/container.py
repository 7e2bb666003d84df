"""The container of ``.rows`` and ``.delta`` files: header, sections, footer, trailer.

    header | (page | section)* | footer section | trailer

A container knows where its bytes begin and end and that they are the bytes that were written
there: each CRC also covers the file's random id and the offset, so a page that was swapped,
misdirected or left over from another file is found.  It knows nothing of columns or rows.

Layout: docs/format.md, "Container".  Model: Kudu's CFile (header, blocks, footer, feature bits).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self

from kudu_core._ext.base.crc32c import crc32c
from kudu_core.cfile.pages.footer import split_footer
from kudu_core.cfile.pages.section_copies import header_in, sections_in
from kudu_core.errors import Closed, Corruption, NotSupported
from kudu_core.fs.missing import FileMissing

if TYPE_CHECKING:
    from kudu_core.cfile.pages.page_cache import Holder, PageCache, Reader
    from kudu_core.fs.api import FileSystem, ReadFile

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
SECTION_COPIES = 9

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
    tail: int = 0
    """Bytes from the copies of sections to the end; 0 of a file without."""


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
        tail: int = 0,
        cache: PageCache | None = None,
        variant: bytes = b"",
    ) -> None:
        """``variant``: what is made of its pages, where it is not what they are; the cache keeps them
        apart."""
        self.path = path
        self.cache = cache
        self.closed = False
        try:
            self._file: ReadFile = fs.open_read(path, size)
        except FileNotFoundError:
            raise FileMissing(path) from None
        self.ask: Callable[[int, int], object] | None = getattr(self._file, "ask", None)
        """Of a file in a store: told (bytes, offset) that will be read, it begins to fetch them."""
        self.is_near: Callable[[int, int], bool] | None = getattr(self._file, "is_near", None)
        """Whether these have come."""
        self._cache_token = -1
        self._attached: Reader | None = None
        self.last_dictionary: tuple[int, Any] | None = None  # place and codec dictionary, past the cache
        self._copies: dict[int, bytes] = {}
        try:
            self.size = self._file.size()
            if size is not None and self.size != size:
                self.damaged(0, f"the file has {self.size} bytes, its manifest says {size}")
            if self.size < HEADER.size + SECTION_FRAME.size + TRAILER.size:
                self.damaged(0, f"{self.size} bytes cannot hold a container")
            near = self._read_tail(tail) if tail and fs.remote else None
            self.file_id = self._read_header(kind, near)
            self._id_crc: int = crc32c(self.file_id, 0)
            self.footer_extent, self.footer_crc, self.footer, self.footer_rest = self._read_footer(near)
            if near is not None:
                self._take_copies(near)
            if footer_crc is not None and footer_crc != self.footer_crc:
                self.damaged(self.footer_extent.offset, "not the file that the manifest names (footer CRC)")
        except BaseException:
            self._file.close()
            raise
        if cache is not None:
            self._attached = cache.attach(self.file_id + variant, self.size)
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
        data = self._copies.pop(extent.offset, b"")  # who asks keeps what he makes of it
        if len(data) != extent.length:
            data = self.read_at(extent.offset, extent.length)
        return self._check_section(data, extent.offset, kind)[0]

    def has_copy(self, extent: Extent) -> bool:
        """Whether the section there is in memory, as it came with the footer."""
        return extent.offset in self._copies

    @property
    def tail(self) -> int:
        """See ``FileMeta``."""
        copies = self.copies_extent
        return 0 if copies is None else self.size - copies.offset

    @property
    def copies_extent(self) -> Extent | None:
        found = self.footer.get("copies")
        if found is None:
            return None
        at = self.footer_extent.offset
        if not (isinstance(found, list) and len(found) == 2 and all(type(part) is int for part in found)):
            self.damaged(at, "footer: where the copies of sections lie")
        extent = Extent(*found)
        if extent.offset < HEADER.size or extent.length < SECTION_FRAME.size or extent.end != at:
            self.damaged(at, f"footer: copies of sections of {extent.length} bytes at {extent.offset}")
        return extent

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
        copies = self.copies_extent
        if copies is not None:
            self._verify_copies(copies)
            extents = [*extents, copies]
        at = HEADER.size
        for extent in sorted((*extents, self.footer_extent)):
            if extent.length and extent.offset != at:
                self.damaged(at, f"the next piece of the file begins at {extent.offset}")
            at = max(at, extent.end)
        if at + TRAILER.size != self.size:
            self.damaged(at, "bytes that belong to nothing")

    def _verify_copies(self, extent: Extent) -> None:
        """Copies are what they are copies of."""
        payload = self.section(extent, SECTION_COPIES)
        sections = self._sections_in(payload, extent.offset)
        if header_in(payload) != self.read_at(0, HEADER.size):
            self.damaged(extent.offset, "the copy of the header is another")
        for offset, data in sections.items():
            if self.read_at(offset, len(data)) != data:
                self.damaged(extent.offset, f"the copy of the section at {offset} is another")

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

    def _read_tail(self, tail: int) -> bytes:
        """Copies of sections, footer and trailer, by one read; of the copies the frame and the header are
        there."""
        least = 2 * SECTION_FRAME.size + HEADER.size + TRAILER.size
        if not least <= tail <= self.size - HEADER.size:
            self.damaged(0, f"its manifest says that copies of sections begin {tail} bytes before its end")
        return self.read_at(self.size - tail, tail)

    def _take_copies(self, near: bytes) -> None:
        """Use the copies that came with the footer, by which they are where the manifest says."""
        extent = self.copies_extent
        if extent is None or extent.offset != self.size - len(near):
            self.damaged(self.size - len(near), "the copies of sections are not where the manifest says")
        payload, _ = self._check_section(near[: extent.length], extent.offset, SECTION_COPIES)
        self._copies = self._sections_in(payload, extent.offset)

    def _sections_in(self, payload: memoryview, at: int) -> dict[int, bytes]:
        try:
            return sections_in(payload)
        except ValueError as error:
            self.damaged(at, f"the copies of sections cannot be taken apart: {error}")

    def _read_header(self, kind: int, near: bytes | None = None) -> bytes:
        """``near``: copies of sections; the header's is in front."""
        head = self.read_at(0, HEADER.size) if near is None else near[SECTION_FRAME.size :][: HEADER.size]
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

    def _read_footer(self, near: bytes | None = None) -> tuple[Extent, int, dict[str, Any], memoryview]:
        """``near``: the end of the file, footer and trailer in it; None: it is read."""
        guess = min(self.size, _TAIL_GUESS_BYTES) if near is None else len(near)
        end = self.read_at(self.size - guess, guess) if near is None else near
        trailer_at = self.size - TRAILER.size
        offset, length, crc, magic = TRAILER.unpack_from(end, guess - TRAILER.size)
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
        data = end[start : start + length] if start >= 0 else self.read_at(offset, length)
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
