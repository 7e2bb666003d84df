"""After a rowset has got other files: what scans had of it in the page cache is there again.

Whoever writes files reads back what the next scan would have to read first, so that the scan finds the files
open, the pages of columns that were written anew, and the patches grown by the new changes; only where what
they replace was there.  Nothing rests on it: what cannot be read now is met by who reads it later.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kudu_core.errors import Closed, Corruption, NotSupported, StoreError
from kudu_core.rowset.disk.deltastore import DeltaStore

if TYPE_CHECKING:
    from kudu_core.cfile.files.rows_file import RowsFile
    from kudu_core.rowset.disk.diskrowset import DiskRowSet

NEWEST = (1 << 64) - 1


def warm(old: DiskRowSet | None, new: DiskRowSet | None) -> None:
    """``old``: the version that ``new`` has replaced; None: there is none, or none any more."""
    if old is None or new is None:
        return
    with suppress(OSError, StoreError, MemoryError, Corruption, Closed, NotSupported):
        known = old.base.opened
        if known is None:
            return  # nobody has read it
        if new.base is not old.base:
            _read_columns(known, new)
        _grow_patches(new)


def _read_columns(known: RowsFile, new: DiskRowSet) -> None:
    """The columns that were written anew last, as far as their pages were in the cache."""
    file = new.base.open()
    for column_id in new.meta.replaced[-1].column_ids:
        if not known.has(column_id):
            continue
        before, after = known.columns[column_id], file.columns[column_id]
        cached = [page is not None for page in before.file.cached(before.places())]
        if before.page_bits == after.page_bits and len(cached) == after.page_count:
            after.payloads([number for number, was_there in enumerate(cached) if was_there])
        elif 2 * sum(cached) > len(cached):
            after.payloads(range(after.page_count))


def _grow_patches(new: DiskRowSet) -> None:
    changed = {i for store in new.redo if isinstance(store, DeltaStore) for i in store.ref.updates}
    at = new.at(NEWEST)
    for column_id in sorted(changed) if at is not None else ():
        assert at is not None
        if at.has(column_id) and at.patches.is_known(column_id):
            at.patches.of(column_id, new.meta.rows)


__all__ = ["warm"]
