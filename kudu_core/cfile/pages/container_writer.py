"""Writing containers: what they are, and why, says ``container``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kudu_core._ext.base.crc32c import crc32c
from kudu_core.cfile.pages.container import (
    COMPATIBLE_FEATURES,
    CONTAINERS,
    CRC_PLACE,
    FOOTER_LIMIT_BYTES,
    FORMAT_VERSION,
    HEADER,
    INCOMPATIBLE_FEATURES,
    MAGIC,
    SECTION_COPIES,
    SECTION_FOOTER,
    SECTION_FRAME,
    TRAILER,
    Extent,
    FileMeta,
)
from kudu_core.cfile.pages.footer import join_footer
from kudu_core.cfile.pages.section_copies import SectionCopies
from kudu_core.errors import NotSupported

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem, WriteFile

_FLUSH_BYTES = 4 << 20


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
        self._copies = SectionCopies() if fs.remote else None
        self.offset = 0
        head = HEADER.pack(
            MAGIC, FORMAT_VERSION, kind, COMPATIBLE_FEATURES, INCOMPATIBLE_FEATURES, self.file_id, 0
        )[:-4]
        self._header = head + crc32c(head, 0).to_bytes(4, "little")
        self.append(self._header)

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

    def add_section(self, kind: int, payload: Sequence[Any], *, copied: bool = False) -> Extent:
        """Add a section of the byte buffers ``payload``; return where it lies.

        ``copied``: a reader wants it with the footer, before anything else of the file.
        """
        offset = self.offset
        length = sum(len(part) for part in payload)
        rest = SECTION_FRAME.pack(0, kind, 0, length)[4:]
        crc = crc32c(rest, self.place_crc(kind))
        for part in filter(len, payload):
            crc = crc32c(part, crc)
        frame = crc.to_bytes(4, "little") + rest
        self.append(frame)
        for part in payload:
            self.append(part)
        if copied and self._copies is not None:
            self._copies.add(offset, [frame, *payload])
        return Extent(offset, SECTION_FRAME.size + length)

    def finish(self, footer: Mapping[str, Any], rest: bytes, *, sync: bool = True) -> FileMeta:
        """Write footer and trailer, sync and close the file.  Syncing the directory is the caller's.

        ``rest``: what follows the JSON in the footer.
        """
        assert self._file is not None
        copies = None if self._copies is None else self._copies.payload(self._header, self.offset)
        tail_at = self.offset
        if copies is not None:
            footer = {**footer, "copies": list(self.add_section(SECTION_COPIES, [copies]))}
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
        return FileMeta(self.offset, crc, 0 if copies is None else self.offset - tail_at)

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


__all__ = ["FileWriter"]
