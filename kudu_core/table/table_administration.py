"""What of ``Table`` is done to it as a whole: docs/administration.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kudu_core.table.lifecycle.manage.truncate import truncate
from kudu_core.table.opened.handle import HandleOwner
from kudu_core.table.write.restore_to import restore_to

if TYPE_CHECKING:
    from kudu_core.table.calls.result import WriteResult
    from kudu_core.table.read.moment import At


class TableAdministration(HandleOwner):
    """Changes of all rows at once: every method of it is one of ``Table``'s."""

    def truncate(self) -> int:
        """Delete all rows, as one change, at the cost of its files and not of its rows.

        Columns, ranges, options and ``txn`` tokens stay.  Snapshots of before read the rows for as long as
        history is kept, ``changes`` tells that they were deleted, and ``restore_to`` brings them back.  Their
        files go when history has left them behind.

        >>> stock.truncate() > 0, stock.count()
        (True, 0)

        Returns
        -------
        The timestamp of the change.

        Raises
        ------
        Poisoned, Fenced, OSError
            It may or may not have happened, wholly or not at all.
        """
        return truncate(self._handle.for_writing())

    def restore_to(self, at: At) -> WriteResult:
        """Make the rows of a past time those of now, as one change.

        History stays: what was since can be read as before, and another ``restore_to`` undoes this one.  The
        cost follows the rows that differ; other writers wait meanwhile.

        >>> before = stock.timestamp
        >>> stock.delete([1, 2]).deleted, stock.insert([{"id": 9}]).inserted
        (2, 1)
        >>> result = stock.restore_to(before)
        >>> result.inserted, result.deleted, stock.count()
        (2, 1, 3)

        Columns and ranges are those of today.  A column that was added since has its default in rows of then;
        what a column that was dropped since had does not come back.  A range that was added since is empty.

        Parameters
        ----------
        at
            As of ``scan``.

        Returns
        -------
        What was inserted, updated and deleted; where nothing differs, nothing was written.

        Raises
        ------
        InvalidArgument
            Rows of that time lie in ranges that were dropped since: add these first.  Nothing was changed.
        SnapshotTooOld, SnapshotInFuture
            As ``scan``.
        Poisoned, Fenced, OSError
            It may or may not have happened, wholly or not at all.
        """
        return restore_to(self._handle, at)


__all__ = ["TableAdministration"]
