"""The base of a DiskRowSet: its rows before any change, and what statistics say of their columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kudu_core.cfile.columns.statistics import FileStatistics, StatisticsRef, read_statistics
from kudu_core.cfile.columns.zone import Zone
from kudu_core.cfile.files.rows_file import RowsFile
from kudu_core.common.format.names import file_path
from kudu_core.common.types import values
from kudu_core.common.types.types import ColumnType
from kudu_core.common.where.sets import place_of
from kudu_core.errors import Corruption
from kudu_core.fs.missing import FileMissing
from kudu_core.rowset.disk.lazy_file import LazyFile
from kudu_core.rowset.rows.meta import FileRef, RowSetMeta

if TYPE_CHECKING:
    from kudu_core._ext.row.file import PointFile
    from kudu_core.cfile.pages.page_cache import PageCache
    from kudu_core.fs.api import FileSystem


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnBounds:
    """Bounds of the base values of a column: places (``common.where.sets``)."""

    some: bool
    """Whether any cell is neither null nor NaN."""
    low: Any
    high: Any
    """None where nothing is known."""

    @staticmethod
    def of(type_: ColumnType, zone: Zone) -> ColumnBounds | None:
        bounds = zone.minimum, zone.maximum
        if type_.width and any(raw is not None and len(raw) != type_.width for raw in bounds):
            return None  # statistics that say nothing rule nothing out
        low, high = (None if raw is None else place_of(type_, values.unpack(type_, raw)) for raw in bounds)
        return ColumnBounds(not zone.empty, low, high)


class Base(LazyFile[RowsFile]):
    """The ``.rows`` file, and those of rewritten columns, opened on first use and shared by all versions
    of the rowset until a compaction rewrites columns."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        meta: RowSetMeta,
        cache: PageCache | None,
        types: Mapping[int, ColumnType],
    ) -> None:
        """``types``: by id, of columns that may lie in the files as others."""
        super().__init__()
        self.types = types
        self.fs = fs
        self.directory = directory
        self.cache = cache
        self._ref = meta.base
        self._rows = meta.rows
        self._replaced = meta.replaced
        self._statistics = meta.statistics
        self._bounds: dict[int, ColumnBounds | None] = {}

    @property
    def path(self) -> str:
        return file_path(self.directory, self._ref.name)

    def points(self) -> PointFile:
        return self.open().points

    def _opened(self) -> RowsFile:
        file = self._open_one(self._ref)
        try:
            for columns in self._replaced:
                file.replace_columns(self._open_one(columns.file), columns.column_ids)
        except BaseException:
            file.close()
            raise
        return file

    def _open_one(self, ref: FileRef) -> RowsFile:
        path = file_path(self.directory, ref.name)
        file = RowsFile(
            self.fs,
            path,
            self.cache,
            size=ref.size,
            footer_crc=ref.footer_crc,
            tail=ref.tail,
            types=self.types,
        )
        if file.rows != self._rows:
            file.close()
            raise Corruption(path, 0, f"{file.rows} rows, its manifest says {self._rows}")
        return file

    def name_of(self, column_id: int) -> str:
        """The name of the file that has the cells of a column."""
        replaced = [columns.file.name for columns in self._replaced if column_id in columns.column_ids]
        return str(replaced[-1] if replaced else self._ref.name)

    # ---- statistics ----

    def bounds(self, column_id: int, type_: ColumnType) -> ColumnBounds | None:
        """What statistics say of a column, None where they say nothing.  Those that are not in the manifest
        are read when they are first asked for; of the file that may need, but never its footer."""
        if column_id not in self._bounds:
            try:
                zone = self.zone(column_id)
            except FileMissing:
                return None  # who opens the file for its rows meets that
            self._bounds[column_id] = None if zone is None else ColumnBounds.of(type_, zone)
        return self._bounds[column_id]

    def zone(self, column_id: int) -> Zone | None:
        """What statistics say of a column; see ``bounds``.  ``FileMissing`` where they are in no file."""
        if column_id in self.types:  # a footer says of which type its bounds are; statistics do not
            opened = self.open()
            return opened.zone(column_id) if opened.has(column_id) else None
        ref, statistics = self._ref, self._statistics
        for columns in self._replaced:
            if column_id in columns.column_ids:
                ref, statistics = columns.file, columns.statistics
        if isinstance(statistics, StatisticsRef):
            file = self._file
            if file is not None and column_id in file.columns:
                return file.zone(column_id)
            if not statistics.has(column_id):
                return None
            statistics = read_statistics(self.fs, file_path(self.directory, ref.name), statistics, ref.size)
        return None if statistics is None else statistics.zone(column_id)

    def column_sizes(self) -> dict[int, tuple[int, int]]:
        """Stored bytes and nulls by column id, as statistics have them; those in files are read anew."""
        found: dict[int, tuple[int, int]] = {}
        sources: list[tuple[FileRef, FileStatistics | None, tuple[int, ...] | None]]
        sources = [(self._ref, self._statistics, None)]
        sources += [(columns.file, columns.statistics, columns.column_ids) for columns in self._replaced]
        for ref, statistics, column_ids in sources:
            if isinstance(statistics, StatisticsRef):
                path = file_path(self.directory, ref.name)
                statistics = read_statistics(self.fs, path, statistics, ref.size)
            if statistics is None:
                continue
            for column_id in statistics.column_ids if column_ids is None else column_ids:
                zone = statistics.zone(column_id)
                if zone is not None:
                    found[column_id] = statistics.stored_bytes(column_id), zone.null_count
        return found
