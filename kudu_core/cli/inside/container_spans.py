"""``.rows`` and ``.delta`` files: header, pages, sections, footer, trailer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kudu_core._ext.base.crc32c import crc32c
from kudu_core.cfile.columns.column_list import ColumnList
from kudu_core.cfile.pages.container import (
    CONTAINER_DELTA,
    CONTAINER_ROWS,
    HEADER,
    SECTION_FRAME,
    SECTION_PAGE,
    TRAILER,
    Extent,
    FileReader,
)
from kudu_core.cfile.pages.page import PAGE_FRAME, PAYLOAD_HEAD
from kudu_core.cli.inside.file_pieces import FilePiece

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

KINDS = {CONTAINER_ROWS: "rows", CONTAINER_DELTA: "delta"}
SECTIONS = {
    2: "page index", 3: "dictionary", 4: "key index", 5: "bloom", 6: "footer", 7: "statistics",
    8: "codec dictionary", 9: "copies",
}  # fmt: skip
CODECS = {0: "none", 1: "lz4", 2: "zstd", 3: "zstd with dictionary", 4: "lz4 with dictionary"}
ENCODINGS = {0: "values", 1: "ordinals"}
OWN = {-1: "encoded keys", -2: "insert times", -3: "rowids", -4: "timestamps", -5: "operations"}


def container_spans(fs: FileSystem, path: str, data: bytes) -> Iterator[FilePiece]:
    """Every piece; ``Corruption`` where header, trailer or footer are not sound."""
    kind = HEADER.unpack_from(data)[2] if len(data) >= HEADER.size else CONTAINER_ROWS
    with FileReader(fs, path, kind if kind in KINDS else CONTAINER_ROWS) as file:
        yield FilePiece(0, HEADER.size, "header", {"kind": KINDS[kind], "file_id": file.file_id.hex()}, True)
        pages = [span for entry in ColumnList(file.footer_rest) for span in _pages(file, data, entry)]
        yield from pages
        taken = sorted(pages, key=lambda span: span.offset)
        yield from _sections(file, data, taken)
        yield FilePiece(
            file.footer_extent.offset, file.footer_extent.length, "footer",
            {**file.footer, "columns": [_column(entry) for entry in ColumnList(file.footer_rest)]}, True,
        )  # fmt: skip
        fields = {"footer_offset": file.footer_extent.offset, "footer_crc": f"{file.footer_crc:08x}"}
        yield FilePiece(file.size - TRAILER.size, TRAILER.size, "trailer", fields, True)


def _column(entry: Any) -> dict[str, Any]:
    zone = entry.zone
    return {
        "id": entry.id, "role": entry.role, "type": entry.type, "nullable": entry.nullable,
        "rows": entry.rows, "page_rows": 1 << entry.page_bits, "nulls": zone.null_count,
        "nans": zone.nan_count, "stored_bytes": entry.stored_bytes,
    }  # fmt: skip


def _pages(file: FileReader, data: bytes, entry: Any) -> Iterator[FilePiece]:
    """The pages of a column, each with its frame."""
    at, number = entry.pages.offset, 0
    while at + PAGE_FRAME.size <= min(entry.pages.end, len(data)):
        crc, stored, raw, encoding, codec, _ = PAGE_FRAME.unpack_from(data, at)
        length = PAGE_FRAME.size + stored
        body = data[at + 4 : at + length]
        sound = crc32c(body, file.place_crc(at, SECTION_PAGE)) == crc
        fields: dict[str, Any] = {
            "column": entry.id, "number": number, "encoding": ENCODINGS.get(encoding, encoding),
            "codec": CODECS.get(codec, codec), "payload_bytes": stored, "raw_bytes": raw,
        }  # fmt: skip
        if entry.id in OWN:
            fields["of"] = OWN[entry.id]
        if sound and codec == 0 and stored >= PAYLOAD_HEAD.size:
            fields["rows"] = PAYLOAD_HEAD.unpack_from(data, at + PAGE_FRAME.size)[0]
        yield FilePiece(at, length, "page", fields, sound)
        at += length
        number += 1


def _sections(file: FileReader, data: bytes, pages: list[FilePiece]) -> Iterator[FilePiece]:
    """What lies between the pages is sections, one behind the other."""
    gaps, at = [], HEADER.size
    for page in pages:
        if page.offset > at:
            gaps.append(Extent(at, page.offset - at))
        at = max(at, page.end)
    gaps.append(Extent(at, file.footer_extent.offset - at))
    for gap in gaps:
        at = gap.offset
        while at + SECTION_FRAME.size <= gap.end:
            crc, kind, _, payload = SECTION_FRAME.unpack_from(data, at)
            length = SECTION_FRAME.size + payload
            if kind not in SECTIONS or at + length > gap.end:
                break
            sound = crc32c(data[at + 4 : at + length], file.place_crc(at, kind)) == crc
            yield FilePiece(at, length, f"section: {SECTIONS[kind]}", {"payload_bytes": payload}, sound)
            at += length
