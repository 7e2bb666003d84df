"""Columns of text, as a codec gets a dictionary for."""

from __future__ import annotations

from typing import Any

import numpy as np

from kudu_core.cfile import RowsFile, RowsFileSpec, write_rows_file
from kudu_core.cfile.columns.specs import ColumnSpec
from kudu_core.cfile.pages import page
from kudu_core.cfile.pages.codec_dictionary import CODEC_LZ4_DICTIONARY, CODEC_ZSTD_DICTIONARY
from kudu_core.common.types.types import ColumnType
from tests.support.cases.cfile import BytesFileSystem, column

ROWS = 5000
CODECS = {
    "zstd": CODEC_ZSTD_DICTIONARY,
    "lz4": CODEC_LZ4_DICTIONARY,
    "auto": CODEC_LZ4_DICTIONARY,
}
"""Of pages with a dictionary, by the compression that is asked for."""


def text(seed: int, size: int, rows: int = ROWS) -> list[str]:
    """Cells of about so many bytes, of a vocabulary of 2,000 words."""
    rng = np.random.default_rng(seed)
    words = [rng.bytes(6).hex()[: int(n)] for n in rng.integers(4, 12, 2000)]
    whole = " ".join(words[k] for k in rng.integers(0, 2000, 60_000).tolist())
    sizes = rng.integers(size // 2, 2 * size, rows).tolist()
    starts = rng.integers(0, len(whole) - 2 * size, rows).tolist()
    return [whole[at : at + n] for at, n in zip(starts, sizes, strict=True)]


def spec_of(compression: str = "zstd", role: str = "value", encoding: str = "auto") -> ColumnSpec:
    return ColumnSpec(0, ColumnType.parse("string"), True, role, encoding, compression)


def file_of(values: list[Any], spec: ColumnSpec | None = None) -> Any:
    """A file system with a file of one column."""
    fs = BytesFileSystem()
    spec = spec or spec_of()
    write_rows_file(fs, "f", RowsFileSpec([(spec, column(values, spec.type.name))], file_id=bytes(16)))
    return fs


def without_checksums(fs: Any) -> bytes:
    """The file of ``file_of`` with 0 for the CRC of each page, where nothing else computes one."""
    data = bytearray(fs.files["f"])
    with RowsFile(fs, "f") as file:
        read = file.columns[0]
        for number in range(read.page_count):
            at = read.page_offset(number)
            data[at : at + 4] = bytes(4)
    return bytes(data)


def codecs(file: RowsFile, data: bytes | bytearray) -> set[int]:
    """Those of the pages of the one column."""
    read = file.columns[0]
    places = [read.page_offset(number) for number in range(read.page_count)]
    return {page.PAGE_FRAME.unpack_from(data, place)[4] for place in places}
