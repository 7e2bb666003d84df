"""What the files of changes of a rowset say of a column at a snapshot, as one patch.

A scan of a good part of a rowset lays it over pages while these are decoded.  It is kept in the page cache,
among the pages of the base file, which outlives files of changes: one for the newest state of each column,
and one for an older snapshot, the last one that was read.  What a patch was made of is written in it, so one
that has become old is known, and only what came since is laid over it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kudu_core._ext.changes.patch import Patch
from kudu_core.common.run.locks import mutex
from kudu_core.rowset.disk.deltastore import DeltaStore, FileDeltas

if TYPE_CHECKING:
    from kudu_core._ext.changes.replay import Updates
    from kudu_core.cfile.files.rows_file import RowsFile
    from kudu_core.rowset.rows.delta_view import DeltaView

GOOD_PART = 8
"""Of a rowset's rows one in so many, or more: a scan of fewer looks for the changes of its own."""

LARGE_PART = 4
"""The page cache keeps nothing that is larger than its limit by this."""

_PLACES = -(1 << 49)
"""Places in the cache below which those of patches lie; no page and nothing else of a file is there."""


def may_be_kept(changes: int, width: int, rows: int, limit_bytes: int) -> bool:
    """Whether a page cache of this limit keeps a patch of so many changes of cells of ``width`` bytes."""
    return bool(width) and (changes * width + rows // 4) * LARGE_PART <= limit_bytes


class Patches:
    """Those of one rowset at one snapshot, each made when it is first asked for.  Thread safe."""

    def __init__(
        self, file: RowsFile, rows: int, views: tuple[DeltaView, ...], redo: tuple[DeltaStore, ...]
    ) -> None:
        """``redo``: all REDO files of the rowset, of which an older snapshot may see less."""
        self._file = file
        self._rows = rows
        self._redo = redo
        files = []
        for view in views:
            if not isinstance(view, FileDeltas):
                break
            files.append(view)
        self._files = tuple(files)
        self.rest = views[len(files) :]
        """What is laid over after a patch: changes in memory."""
        self._made: dict[int, Patch | None] = {}
        self._mutex = mutex()

    def of(self, column_id: int, wanted_rows: int) -> Patch | None:
        """The patch of a column of fixed width that the base file has; None: ask all views.

        ``wanted_rows``: how many a scan is about to read.
        """
        if column_id not in self._made:
            with self._mutex:
                if column_id not in self._made:
                    self._made[column_id] = self._found(column_id, wanted_rows)
        return self._made[column_id]

    def is_known(self, column_id: int) -> bool:
        """Whether the cache has a patch of the newest state, or of one before."""
        return self._file.file.cached_page(_PLACES - 2 * column_id) is not None

    def _found(self, column_id: int, wanted_rows: int) -> Patch | None:
        file = self._file.file
        views = [view for view in self._files if view.touches(column_id)]
        if file.cache is None or not views:
            return None
        source = tuple(view.name for view in views)
        newest = tuple(s.at_newest().name for s in self._redo if column_id in s.ref.updates)
        place = _PLACES - 2 * column_id - (0 if source == newest else 1)
        known: Patch | None = file.cached_page(place)
        if known is not None and known.source == source:
            return known
        width = self._file.columns[column_id].width
        changes = sum(view.store.ref.updates[column_id] for view in views)
        if wanted_rows * GOOD_PART < self._rows:
            return None
        if not may_be_kept(changes, width, self._rows, file.cache.limit_bytes):
            return None
        parts: list[Updates | Patch] = []
        if known is not None and known.source == source[: len(known.source)]:
            parts.append(known)
            views = views[len(known.source) :]
        for view in views:
            parts += view.parts(column_id, 0, self._rows) or ()
        made = Patch(parts, width, self._rows, source)
        file.replace(place, made)
        return made


__all__ = ["GOOD_PART", "Patches", "may_be_kept"]
