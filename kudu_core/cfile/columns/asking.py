"""What will be read of columns, asked for before, of files in which each read waits for a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kudu_core.common.run.ordering import distinct

if TYPE_CHECKING:
    import numpy.typing as npt

    from kudu_core.cfile.columns.pages import ColumnPages
    from kudu_core.cfile.pages.container import Extent, FileReader


def ask_extents(file: FileReader, extents: Iterable[Extent | None]) -> None:
    if file.ask is not None:
        for extent in extents:
            if extent is not None and not file.has_copy(extent):
                file.ask(extent.length, extent.offset)


def ask_sections(columns: Iterable[ColumnPages]) -> None:
    """What is read before any page of them: page indexes and dictionaries."""
    for column in columns:
        if column.file.ask is not None:
            index = column.index_extent if column._index is None and column.page_count > 1 else None
            words = column.dictionary_extent if column._dictionary is None else None
            ask_extents(column.file, (index, words))


def ask_pages(columns: Iterable[ColumnPages], lower: int, upper: int) -> None:
    """The pages of rows [lower, upper) that the cache lacks, in runs as they will be read."""
    asking = [column for column in columns if column.file.ask is not None]
    ask_sections(asking)
    for column in asking:
        offsets, sizes = column.places(), column._sizes
        first, last = lower >> column.page_bits, (upper - 1) >> column.page_bits
        found = column.file.cached(offsets[first : last + 1])
        begin: int | None = None
        for at, payload in enumerate([*found, True], first):
            if payload is None:
                begin = at if begin is None else begin
            elif begin is not None and column.file.ask is not None:
                column.file.ask(sum(sizes[begin:at]), offsets[begin])
                begin = None


def ask_rows(columns: Iterable[ColumnPages], rows: npt.NDArray[np.int64]) -> None:
    """The pages of single rows that the cache lacks, each for itself."""
    asking = [column for column in columns if column.file.ask is not None]
    ask_sections(asking)
    for column in asking:
        ask_numbers(column, distinct(rows >> column.page_bits).tolist())


def ask_numbers(column: ColumnPages, numbers: Sequence[int]) -> None:
    """The same of pages by their numbers."""
    offsets, sizes, ask = column.places(), column._sizes, column.file.ask
    found = column.file.cached([offsets[number] for number in numbers])
    for number, payload in zip(numbers, found, strict=True):
        if payload is None and ask is not None:
            ask(sizes[number], offsets[number])


__all__ = ["ask_extents", "ask_pages", "ask_rows", "ask_sections"]
