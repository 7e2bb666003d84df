"""What a stored column is, and the structs of its page index and dictionary.

Layout: docs/format.md, "Page index", "Dictionary" and "Rows files".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from kudu_core.cfile.columns.zone import STRING_ZONE_BYTES
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import NotSupported

if TYPE_CHECKING:
    from kudu_core.common.rows.rowblock import ColumnBuffers
    from kudu_core.common.schema.schema import StoredColumn

# pages, width of a zone bound, power of two of a page's rows
INDEX_HEAD = struct.Struct("<IHH")
# offset, size, null count, NaN count, flags; two zone bounds follow
INDEX_ENTRY = struct.Struct("<QIIII")
# words, codec, reserved, raw bytes; offsets (u32[words + 1]) and bytes of the words follow
DICTIONARY_HEAD = struct.Struct("<IBBHQ")
# entries, reserved; offsets (u64[entries + 1]) and the bytes of the keys follow
KEY_INDEX_HEAD = struct.Struct("<II")
assert INDEX_HEAD.size == 8
assert INDEX_ENTRY.size == 24
assert DICTIONARY_HEAD.size == 16
assert KEY_INDEX_HEAD.size == 8

ZONE_PRESENT = 1  # the bounds hold; else every cell is null or NaN
ZONE_LOW_CUT = 2  # the lower bound is a prefix
ZONE_HIGH_CUT = 4  # the upper bound is a raised prefix
ZONE_HIGH_OPEN = 8  # there is no upper bound
ZONE_FLAGS = 15

DICTIONARY_WORDS = 65_536
ROLES = ("key", "value", "keys", "insert_time", "rowid", "timestamp", "op", "entry")
MAX_ROWS = (1 << 32) - 1
"""Rows of a file, and entries of a delta file: rowids and ordinals of entries are uint32."""


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """How one column is stored.

    ``role``: "key" and "value" are columns of the schema; "keys" (whole encoded keys),
    "insert_time", "rowid", "timestamp", "op" and "entry" belong to the file itself.
    ``encoding``: "auto", "plain", or for strings "dictionary" / "prefix".
    ``compression``: "auto" (LZ4 where it pays), "lz4", "zstd" (both for text with a dictionary of the
    column, where that pays) or "none".
    """

    id: int
    type: ColumnType
    nullable: bool
    role: str = "value"
    encoding: str = "auto"
    compression: str = "auto"

    @staticmethod
    def of(column: StoredColumn, role: str = "value") -> ColumnSpec:
        """How a column of a schema is stored."""
        return ColumnSpec(column.id, column.type, column.nullable, role, column.encoding, column.compression)


def check_rows(path: str, rows: int) -> None:
    """``NotSupported`` for more rows, or entries, than a file can number."""
    if rows > MAX_ROWS:
        raise NotSupported(f"{path}: {rows:,} rows in one file; it has at most {MAX_ROWS:,}")


@cache
def index_layout(width: int) -> np.dtype[np.void]:
    """Of an entry of a page index with bounds of so many bytes; numpy takes long to make one."""
    return np.dtype(
        [
            ("offset", "<u8"),
            ("size", "<u4"),
            ("nulls", "<u4"),
            ("nans", "<u4"),
            ("flags", "<u4"),
            ("low", "u1", (width,)),
            ("high", "u1", (width,)),
        ]
    )


def zone_width(width: int, words: int | None) -> int:
    """Bytes of one zone bound in the page index: a value, a code, or length and 32 bytes."""
    if words is not None:
        return 4
    return width if width else STRING_ZONE_BYTES + 1


def code_width(words: int) -> int:
    """Physical width of dictionary codes."""
    return 1 if words <= 256 else 2


def word(words: ColumnBuffers, code: int) -> bytes:
    """One word of a dictionary."""
    assert words.offsets is not None
    return words.values[words.offsets[code] : words.offsets[code + 1]].tobytes()
