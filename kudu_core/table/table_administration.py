"""What of ``Table`` is done to it as a whole: docs/administration.md."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kudu_core.objects.urls import is_url
from kudu_core.table.backup.clone import clone_folder
from kudu_core.table.backup.clone_rows import clone_rows
from kudu_core.table.lifecycle.locations import location_of
from kudu_core.table.lifecycle.manage.truncate import truncate
from kudu_core.table.opened.handle import HandleOwner
from kudu_core.table.write.whole.indexing import Index, create_index, drop_index, indexes
from kudu_core.table.write.whole.repartition import repartition
from kudu_core.table.write.whole.restore_to import restore_to
from kudu_core.table.write.whole.tagging import tag, untag

if TYPE_CHECKING:
    from kudu_core.objects.api import Requests
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

    def repartition(
        self, partition_by: Any = (), *, progress: Callable[[int, int], object] | None = None
    ) -> int:
        """Give the table other partitions, while others read and write; one change, at the end.

        Rows, columns, options, tags and ``txn`` tokens stay; ``changes`` tells nothing of it, and snapshots
        of before stay readable for as long as history is kept.  As long as that, the table has its rows
        twice on disk.  docs/repartition.md has the rules.

        >>> at = stock.repartition(kc.HashPartition("id", 4))
        >>> len(stock.partitions.partitions), stock.count(), stock.changes(at - 1).to_table().num_rows
        (4, 3, 0)

        Parameters
        ----------
        partition_by
            As of ``create_table``; nothing: one partition of all rows.
        progress
            Called with how many rows were read, and of how many, while they are copied.  What it raises ends
            the call, and nothing has changed.

        Returns
        -------
        The timestamp of the change.

        Raises
        ------
        InvalidArgument
            Rows lie in none of the ranges, of which one is named, or the table has these partitions already.
            Nothing has changed.
        Conflict
            Others have changed columns or ranges again and again meanwhile.  Nothing has changed.
        NotSupported
            The table is in an object store.
        Poisoned, Fenced, OSError
            It may or may not have happened, wholly or not at all.
        """
        return repartition(self._handle, partition_by, progress)

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

    def clone(
        self,
        path: str | os.PathLike[str],
        at: At = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
        _requests: Requests | None = None,
    ) -> None:
        """Make another table with the same rows at another path, whole or not at all, while others write.

        In a folder it costs the number of files: they are linked, not copied, where the file system is the
        same.  It has the columns, partitions, options, history, tags and ``txn`` tokens of this one, a uuid
        of its own, and neither table ever touches a file of the other.  From or to an object store the rows
        are read and written: the clone has those of one moment, and neither history, tags nor tokens.

        >>> stock.clone(path)
        >>> with kc.open_table(path, "rw") as clone:
        ...     clone.delete([1]).deleted, clone.count(), stock.count()
        (1, 2, 3)

        Parameters
        ----------
        at
            As of ``scan``: the rows of the clone are those of then.  None: now; in a folder, of a handle for
            reading too.
        storage_options
            As of ``open_table``, for a URL in ``path``.

        Raises
        ------
        TableExists
            There is something at ``path``; nothing was changed.
        SnapshotTooOld, SnapshotInFuture
            As ``scan``.
        InvalidArgument
            Rows of ``at`` lie in ranges that were dropped since: add these first.
        Corruption, OSError
            There is no clone then.
        StoreError
            There is no clone then, but what only ``drop_table`` sees.
        """
        handle = self._handle
        engine = handle.opened()
        fs, clock = engine.fs.local.whole, engine.clock
        target = location_of(path, storage_options=storage_options, fs=fs, clock=clock, requests=_requests)
        if engine.in_store or is_url(target.root):
            clone_rows(handle, fs, target, at, clock)
        else:
            clone_folder(handle, fs, target.root, at)

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

    def create_index(self, name: str, columns: str | Sequence[str]) -> None:
        """Let scans find rows by the values of other columns than the key's: docs/indexes.md.

        Every scan whose predicate compares the first of the columns with constants (``==``, ``<``, ``isin``,
        ``LIKE 'a%'``) may use it from then on, at any snapshot, and ``explain()`` says where it does.  No
        write becomes slower: the order of a rowset's rows is made here, or for later rowsets when a scan
        first asks for it, and kept in the page cache.  It excludes nothing: rows may have equal values.

        >>> stock.create_index("by_price", "price")
        >>> stock.indexes["by_price"].columns
        ('price',)

        Parameters
        ----------
        name
            An index of this name and these columns may be there already.
        columns
            A name, or up to 8 of them; a column counts where those before it are fixed to one value.  They
            may be renamed, but not dropped, while the index is there.

        Raises
        ------
        InvalidArgument
            The name is another index's, or is none; a column is unknown, twice there, or nested.
        """
        create_index(self._handle.for_writing(), name, columns)

    def drop_index(self, name: str) -> None:
        """Take an index away.

        >>> stock.create_index("by_price", ["price"])
        >>> stock.drop_index("by_price")
        >>> stock.indexes
        {}
        """
        drop_index(self._handle.for_writing(), name)

    @property
    def indexes(self) -> dict[str, Index]:
        """The indexes by name.  Of a reader, those that it has seen.

        >>> len(stock.indexes)
        0
        """
        return indexes(self._handle.current().opened())


__all__ = ["TableAdministration"]
