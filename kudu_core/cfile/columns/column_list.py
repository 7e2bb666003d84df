"""The list of columns at the end of a footer: where each column lies in its file, its type and its zone.

An open takes no more of it than the ids: an entry, which has one size, is unpacked when its column is first
asked for (``column_readers``).  So a file of thousands of columns opens as fast as one of four.

Layout: docs/format.md, "Column list".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kudu_core.cfile.columns.specs import ROLES
from kudu_core.cfile.columns.statistics import HAS_MAX, HAS_MIN, MAX_EXACT, MIN_EXACT
from kudu_core.cfile.columns.zone import Zone
from kudu_core.cfile.pages.container import Extent, FileReader

LIST_HEAD = struct.Struct("<II")
# columns, bytes after the entries
LIST_ENTRY = struct.Struct("<iIQQQQQQIIIIIBBBBBBH")
# id, rows; offset and length of pages, page index, dictionary; words, nulls, NaNs; where the type's name
# and the bounds begin after the entries; role, page_bits, flags, bytes of the type's name and of the
# bounds, zero
assert LIST_HEAD.size == 8
assert LIST_ENTRY.size == 84
_ROLE_AT = 76

# Beside those of statistics:
NULLABLE = 16
FLAGS = 31

_ENTRY_ROLE = ROLES.index("entry")


@dataclass(frozen=True, slots=True)
class ColumnEntry:
    """One column of a file, as its footer has it; read from a file it is believed in nothing."""

    id: int
    role: str
    type: str
    nullable: bool
    rows: int
    page_bits: int
    pages: Extent
    index: Extent
    dictionary: Extent | None
    """Of its words, or of its codec where it has no words."""
    words: int | None
    zone: Zone

    @property
    def stored_bytes(self) -> int:
        """Bytes of dictionary, pages and page index in the file."""
        return self.pages.length + self.index.length + (self.dictionary.length if self.dictionary else 0)


def pack_entries(entries: Sequence[ColumnEntry]) -> bytes:
    """The list of columns, in the order given."""
    heads: list[bytes] = []
    rest = bytearray()
    types: dict[str, int] = {}
    for entry in entries:
        name, zone = entry.type.encode(), entry.zone
        if entry.type not in types:
            types[entry.type] = len(rest)
            rest += name
        low, high = zone.minimum or b"", zone.maximum or b""
        flags = (
            (zone.minimum is not None) * HAS_MIN
            | (zone.maximum is not None) * HAS_MAX
            | zone.minimum_exact * MIN_EXACT
            | zone.maximum_exact * MAX_EXACT
            | entry.nullable * NULLABLE
        )
        heads.append(
            LIST_ENTRY.pack(
                entry.id,
                entry.rows,
                *entry.pages,
                *entry.index,
                *(entry.dictionary or (0, 0)),
                entry.words or 0,
                zone.null_count,
                zone.nan_count,
                types[entry.type],
                len(rest),
                ROLES.index(entry.role),
                entry.page_bits,
                flags,
                len(name),
                len(low),
                len(high),
                0,
            )
        )
        rest += low + high
    return b"".join((LIST_HEAD.pack(len(entries), len(rest)), *heads, rest))


class ColumnList(Sequence[ColumnEntry]):
    """A list of columns, packed; entries are unpacked one by one.  ``ValueError`` where it is none."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = data
        if len(data) < LIST_HEAD.size:
            raise ValueError(f"a list of columns in {len(data)} bytes")
        self._count, rest = LIST_HEAD.unpack_from(data)
        self._rest_at = LIST_HEAD.size + self._count * LIST_ENTRY.size
        if self._rest_at + rest != len(data):
            raise ValueError(f"a list of {self._count} columns and {rest} bytes in {len(data)}")

    def __len__(self) -> int:
        return int(self._count)

    def __getitem__(self, number: int) -> ColumnEntry:  # type: ignore[override]
        """``ValueError`` for an entry that no writer makes."""
        if not 0 <= number < self._count:
            raise IndexError(number)
        (
            id_, rows, pages_at, pages_bytes, index_at, index_bytes, dictionary_at, dictionary_bytes,
            words, nulls, nans, type_at, bounds_at, role, page_bits, flags, type_bytes, low_bytes, high_bytes,
            zero,
        ) = LIST_ENTRY.unpack_from(self._data, LIST_HEAD.size + number * LIST_ENTRY.size)  # fmt: skip
        if role >= len(ROLES) or flags > FLAGS or zero or nulls + nans > rows:
            raise ValueError(f"column {id_}: its role, flags or counts")
        type_at, low_at = self._rest_at + type_at, self._rest_at + bounds_at
        high_at = low_at + low_bytes
        end = high_at + high_bytes
        if end > len(self._data) or type_at + type_bytes > len(self._data):
            raise ValueError(f"column {id_}: its type or bounds lie outside the list")
        data = self._data
        zone = Zone(
            bytes(data[low_at:high_at]) if flags & HAS_MIN else None,
            bytes(data[high_at:end]) if flags & HAS_MAX else None,
            nulls,
            nans,
            rows,
            bool(flags & MIN_EXACT),
            bool(flags & MAX_EXACT),
        )
        return ColumnEntry(
            id_,
            ROLES[role],
            str(data[type_at : type_at + type_bytes], "ascii"),
            bool(flags & NULLABLE),
            rows,
            page_bits,
            Extent(pages_at, pages_bytes),
            Extent(index_at, index_bytes),
            Extent(dictionary_at, dictionary_bytes) if words or dictionary_bytes else None,
            words or None,
            zone,
        )

    @property
    def ids(self) -> list[int]:
        """Of the columns, in their order; changes of a column and the ordinals of their entries share one."""
        found: list[int] = self._field("<i4", 0).tolist()
        return found

    @property
    def rows(self) -> list[int]:
        """How many cells each has."""
        found: list[int] = self._field("<u4", 4).tolist()
        return found

    @property
    def counts_entries(self) -> list[bool]:
        """Which of them have role ``entry``."""
        found: list[bool] = (self._field("u1", _ROLE_AT) == _ENTRY_ROLE).tolist()
        return found

    def _field(self, dtype: str, at: int) -> np.ndarray:
        return np.ndarray((self._count,), dtype, self._data, LIST_HEAD.size + at, (LIST_ENTRY.size,))


def column_list(file: FileReader) -> ColumnList:
    """The footer's list of columns."""
    try:
        return ColumnList(file.footer_rest)
    except ValueError as error:
        file.damaged(file.footer_extent.offset, f"footer: {error}")


__all__ = ["ColumnEntry", "ColumnList", "column_list", "pack_entries"]
