"""The files of a rowset that may be damaged: opened by themselves, or with what a manifest says of them.

What does not open at all, and what had to be opened in the other way, is told as damage, not raised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from kudu_core.cfile.files.delta_file import DeltaFile
from kudu_core.cfile.files.rows_file import RowsFile
from kudu_core.cfile.files.salvage import KnownRows, salvage_delta, salvage_rows
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import KuduError
from kudu_core.rowset.rows.meta import ColumnsRef, DeltaRef, FileRef, RowSetMeta

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

T = TypeVar("T", RowsFile, DeltaFile)

UNREADABLE = (KuduError, OSError)
"""What reading damaged bytes, or a damaged disk, may raise."""

Places = Callable[[FileRef], str | None]
"""Where the file is that a manifest means, None where it is nowhere."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Something of a rowset's files that cannot be read."""

    path: str
    reason: str
    rows: int = 0
    """Rows whose keys are gone."""
    changes: int = 0
    """Updates and deletions that are gone, at most."""


@dataclass(slots=True)
class DamagedFiles:
    """Opens the files of one rowset.  UNDO files are left alone: they hold the past only."""

    fs: FileSystem
    schema: Schema
    meta: RowSetMeta
    places: Places
    damage: list[Damage] = field(default_factory=list)
    used: list[str] = field(default_factory=list)
    """Paths of the files that are read."""
    lost: set[int] = field(default_factory=set)
    """Columns that cannot be read in the file where their newest values are."""

    def base(self) -> RowsFile | None:
        """The rows, with the columns that stand anew in other files; None: no key can be read."""
        meta, schema = self.meta, self.schema

        def salvage(path: str) -> RowsFile:
            ref = meta.base
            known = KnownRows(
                ref.size,
                ref.footer_crc,
                meta.rows,
                meta.statistics,
                schema.key_ids,
                meta.min_key,
                meta.max_key,
            )
            file, unreadable = salvage_rows(self.fs, path, known, schema.by_id, schema.cell_types)
            self.lost.update(unreadable)
            return file

        base = self._opened(meta.base, RowsFile, salvage, rows=meta.rows)
        if base is not None and (base.rows != meta.rows or base.key_ids != schema.key_ids):
            reason = "other rows or key columns than its manifest says"
            self.damage.append(Damage(base.path, reason, meta.rows))
            base.close()
            base = None
        if base is not None:
            for columns in meta.replaced:
                self._replace(base, columns)
            for column_id in sorted(self.lost.intersection(schema.by_id)):
                self.damage.append(Damage(base.path, f"column {column_id} cannot be read"))
        return base

    def _replace(self, base: RowsFile, columns: ColumnsRef) -> None:
        """Read columns from the file where they stand anew, and none of them from another."""

        def salvage(path: str) -> RowsFile:
            ref = columns.file
            known = KnownRows(ref.size, ref.footer_crc, self.meta.rows, columns.statistics)
            return salvage_rows(self.fs, path, known, self.schema.by_id, self.schema.cell_types)[0]

        file = self._opened(columns.file, RowsFile, salvage)
        there = [i for i in columns.column_ids if file is not None and i in file.columns]
        try:
            if file is not None:
                base.replace_columns(file, there)
        except UNREADABLE as error:
            self.damage.append(Damage(columns.file.name, reason_of(error)))
            there = []
        self.lost.difference_update(there)
        self.lost.update(set(columns.column_ids).difference(there))

    def changes(self, ref: DeltaRef) -> DeltaFile | None:
        """A file of changes; None: nothing of it can be read."""

        def salvage(path: str) -> DeltaFile:
            types = self.schema.cell_types
            return salvage_delta(self.fs, path, ref.file.size, ref.file.footer_crc, types)

        return self._opened(ref.file, DeltaFile, salvage, changes=ref.entries)

    def _opened(
        self, ref: FileRef, make: Callable[..., T], salvage: Callable[[str], T], **gone: int
    ) -> T | None:
        """``gone``: what is lost if neither way opens the file."""
        path = self.places(ref)
        if path is None:
            self.damage.append(Damage(ref.name, "the file is missing", **gone))
            return None
        try:
            types = self.schema.cell_types
            file = make(self.fs, path, None, size=ref.size, footer_crc=ref.footer_crc, types=types)
        except UNREADABLE as error:
            try:
                file = salvage(path)
            except UNREADABLE:
                self.damage.append(Damage(path, reason_of(error), **gone))
                return None
            self.damage.append(Damage(path, f"{reason_of(error)}; what it says is known from elsewhere"))
        self.used.append(path)
        return file


def reason_of(error: BaseException) -> str:
    return str(error)[:300]


__all__ = ["UNREADABLE", "Damage", "DamagedFiles", "Places", "reason_of"]
