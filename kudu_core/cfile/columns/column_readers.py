"""The columns of one open file by id, each made when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from kudu_core.cfile.columns.reader import ColumnReader
from kudu_core.cfile.columns.recast.recast_reader import read_as

if TYPE_CHECKING:
    from kudu_core.cfile.columns.column_list import ColumnList
    from kudu_core.cfile.pages.container import FileReader
    from kudu_core.common.types.types import ColumnType


class ColumnReaders(Mapping[int, ColumnReader]):
    """Thread safe.  What is wrong with a column's entry is said when the column is asked for."""

    def __init__(
        self,
        ids: Collection[int],
        make: Callable[[int], ColumnReader],
        types: Mapping[int, ColumnType] = MappingProxyType({}),
    ) -> None:
        self._ids = ids
        self._make = make
        self._types = types
        self._made: dict[int, ColumnReader] = {}
        self._elsewhere: dict[int, ColumnReaders] = {}

    @staticmethod
    def of_list(
        file: FileReader,
        columns: ColumnList,
        numbers: Mapping[int, int],
        check: Callable[[ColumnReader], None],
        types: Mapping[int, ColumnType] = MappingProxyType({}),
    ) -> ColumnReaders:
        """``numbers``: where in the list each id is.  ``check`` refuses what this file cannot have.
        ``types``: by id, of columns that are read as these, whatever they lie in the file as."""

        def make(column_id: int) -> ColumnReader:
            try:
                entry = columns[numbers[column_id]]
            except ValueError as error:
                file.damaged(file.footer_extent.offset, f"footer: {error}")
            column = ColumnReader(file, entry)
            check(column)
            return column

        return ColumnReaders(numbers, make, types)

    def __getitem__(self, column_id: int) -> ColumnReader:
        made = self._made.get(column_id)
        if made is None:
            if column_id not in self:
                raise KeyError(column_id)
            other = self._elsewhere.get(column_id)
            made = self._make(column_id) if other is None else other[column_id]
            if column_id in self._types:
                made = read_as(made, self._types[column_id])
            made = self._made.setdefault(column_id, made)
        return made

    def __contains__(self, column_id: object) -> bool:
        return column_id in self._ids or column_id in self._elsewhere

    def __iter__(self) -> Iterator[int]:
        yield from self._ids
        yield from (column_id for column_id in self._elsewhere if column_id not in self._ids)

    def __len__(self) -> int:
        return len(self._ids) + sum(column_id not in self._ids for column_id in self._elsewhere)

    def replace(self, column_ids: Iterable[int], other: ColumnReaders) -> None:
        """Take these columns from another file, before the first of them is asked for."""
        self._elsewhere.update(dict.fromkeys(column_ids, other))

    def own(self) -> ColumnReaders:
        """Those of this file alone, before any was replaced, as they lie in it."""
        return ColumnReaders(self._ids, self._make)

    def uncached(self) -> ColumnReaders:
        """The same columns, read past the page cache."""
        return ColumnReaders(self, lambda column_id: self[column_id].uncached())


__all__ = ["ColumnReaders"]
