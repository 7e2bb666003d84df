"""What of ``Table`` is done to it as a whole: docs/administration.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kudu_core.table.lifecycle.manage.truncate import truncate
from kudu_core.table.opened.handle import HandleOwner
from kudu_core.table.write.restore_to import restore_to
from kudu_core.table.write.tagging import tag, untag

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

    def tag(self, name: str, at: At = None) -> int:
        """Give a moment of the table a name, and keep its history for ever, whoever writes.

        The name stands wherever ``at`` does: ``scan(at="audit")``, ``snapshot("audit")``.  What came after
        the oldest tag is kept too, whatever ``history_retention_s`` is: docs/administration.md has the cost.

        >>> at = stock.tag("audit")
        >>> stock.truncate() > at, stock.count(), stock.count(at="audit")
        (True, 0, 3)

        Parameters
        ----------
        at
            As of ``scan``; None: now.

        Returns
        -------
        The timestamp that the name stands for, that of the last change in it.

        Raises
        ------
        InvalidArgument
            A tag of that name is of another moment, or it is no name.
        SnapshotTooOld, SnapshotInFuture
            As ``scan``.
        """
        return tag(self._handle.for_writing(), name, at)

    def untag(self, name: str) -> int:
        """Take a tag away; its history goes as that of other times.  The timestamp that it was of.

        >>> stock.tag("audit") == stock.untag("audit"), stock.tags()
        (True, {})
        """
        return untag(self._handle.for_writing(), name)

    def tags(self) -> dict[str, int]:
        """The tags by name, the oldest moment first.  Of a reader, those that it has seen.

        >>> list(stock.tags())
        []
        """
        known = self._handle.current().opened().table_file.state.tags
        return dict(sorted(known.items(), key=lambda item: item[1]))


__all__ = ["TableAdministration"]
