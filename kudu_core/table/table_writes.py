"""How a ``Table`` is written: rows by key, rows that a predicate selects, and many calls as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from kudu_core.errors import InvalidArgument
from kudu_core.table.calls.conform import with_policy
from kudu_core.table.merge import conditional
from kudu_core.table.merge.conditional import Manner
from kudu_core.table.merge.merge_rows import Merge
from kudu_core.table.opened.handle import HandleOwner
from kudu_core.table.write import door
from kudu_core.table.write.batch import Batch
from kudu_core.table.write.modify import TRIES, modify
from kudu_core.table.write.ticket import WriteTicket, ticket_of
from kudu_core.table.write.watched import watched

if TYPE_CHECKING:
    from kudu_core.table.calls.arguments import (
        OnConflict,
        OnDuplicate,
        OnError,
        OnMissing,
        OnRepeat,
        ProgressLike,
        Rows,
        Where,
    )
    from kudu_core.table.calls.result import WriteResult
    from kudu_core.table.write.door import TxnLike


class TableWrites(HandleOwner):
    """The writing half of ``Table``: every method of it is one of ``Table``'s."""

    @overload
    def insert(
        self,
        data: Rows,
        *,
        if_: Where | None = ...,
        on_conflict: OnConflict = ...,
        on_error: OnError = ...,
        txn: TxnLike | None = ...,
        on_repeat: OnRepeat = ...,
        progress: ProgressLike = ...,
        wait: Literal[True] = ...,
    ) -> WriteResult: ...
    @overload
    def insert(
        self,
        data: Rows,
        *,
        if_: Where | None = ...,
        on_conflict: OnConflict = ...,
        on_error: OnError = ...,
        txn: TxnLike | None = ...,
        on_repeat: OnRepeat = ...,
        progress: ProgressLike = ...,
        wait: Literal[False],
    ) -> WriteTicket: ...
    def insert(
        self,
        data: Rows,
        *,
        if_: Where | None = None,
        on_conflict: OnConflict = "error",
        on_error: OnError = "raise",
        txn: TxnLike | None = None,
        on_repeat: OnRepeat = "check",
        progress: ProgressLike = None,
        wait: bool = True,
    ) -> WriteResult | WriteTicket:
        """Add rows with new keys.

        Columns that are missing take their default.  A row whose key is there is refused
        (``on_conflict="error"``) or skipped (``"ignore"``).

        ``txn``, of every write: ``(app_id, version)``, or with the id of what the rows come from as a third
        member, names the write, so that it is applied once however often it is repeated.  An application's
        versions ascend.  A repetition, known by the fingerprint of its rows, does nothing; its answer is
        ``deduplicated`` and has, of the last version, the timestamp and counts of the first time, and in
        ``refused`` how many rows were refused then, but not which (``WriteResult``).  A version that was
        applied with other rows, or by another source, or that lies too far back to tell, is refused.
        ``on_repeat="skip"`` takes every version up to the last one for done, whatever its rows: for sources
        whose rows differ from run to run.  What is new among them is then not written.

        ``wait=False``, of every write: do not wait for the disk.  The call is decided, logged, applied, and
        returns a ``WriteTicket`` (``.result()``, ``.done()``, ``await``), done when the call would have
        returned.  So one caller's calls share an fsync with those after them.  What is refused is raised by
        the call itself, and so is what fails before the log has taken it.

        ``progress``, as of ``backup``, of loads that take a while: nothing was applied if it cancels.

        >>> stock.insert([{"id": 4, "name": "cap", "price": 0.5}], txn=("till", 1)).inserted
        1

        Raises
        ------
        RowErrors
            Rows were refused and ``on_error`` is "raise": nothing of the call was applied.
        SchemaMismatch
            A column is unknown or does not fit; nothing was applied.
        TokenMismatch
            ``txn`` names a write that was applied, and this is another one; nothing was applied.
        Poisoned, Fenced, OSError
            The call may or may not have been applied, wholly or not at all.
        """
        engine = self._handle.engine
        if progress is not None:
            named = {"if_": if_, "on_conflict": on_conflict, "txn": txn, "on_repeat": on_repeat, "wait": wait}
            return watched(engine, progress, self.insert, data, on_error=on_error, **named)
        if if_ is None:
            operation = with_policy("on_conflict", on_conflict, "insert")
            done = door.write_rows(engine, operation, data, on_error, txn, on_repeat, wait)
        else:
            done = conditional.insert(engine, data, if_, on_conflict, Manner(on_error, txn, on_repeat, wait))
        return done if wait else ticket_of(engine, done)

    @overload
    def upsert(
        self,
        data: Rows,
        *,
        set: Mapping[str, Any] | None = ...,
        if_: Where | None = ...,
        on_error: OnError = ...,
        txn: TxnLike | None = ...,
        on_repeat: OnRepeat = ...,
        progress: ProgressLike = ...,
        wait: Literal[True] = ...,
    ) -> WriteResult: ...
    @overload
    def upsert(
        self,
        data: Rows,
        *,
        set: Mapping[str, Any] | None = ...,
        if_: Where | None = ...,
        on_error: OnError = ...,
        txn: TxnLike | None = ...,
        on_repeat: OnRepeat = ...,
        progress: ProgressLike = ...,
        wait: Literal[False],
    ) -> WriteTicket: ...
    def upsert(
        self,
        data: Rows,
        *,
        set: Mapping[str, Any] | None = None,
        if_: Where | None = None,
        on_error: OnError = "raise",
        txn: TxnLike | None = None,
        on_repeat: OnRepeat = "check",
        progress: ProgressLike = None,
        wait: bool = True,
    ) -> WriteResult | WriteTicket:
        """Add rows, or change the given columns of those whose keys are there.

        >>> stock.upsert([{"id": 1, "price": 2.0}, {"id": 4, "price": 0.5}]).counts
        (1, 1, 0, 0)
        """
        engine = self._handle.engine
        if progress is not None:
            named = {"if_": if_, "set": set, "txn": txn, "on_repeat": on_repeat, "wait": wait}
            return watched(engine, progress, self.upsert, data, on_error=on_error, **named)
        if if_ is None and set is None:
            done = door.write_rows(engine, "upsert", data, on_error, txn, on_repeat, wait)
        else:
            done = conditional.upsert(engine, data, set, if_, Manner(on_error, txn, on_repeat, wait))
        return done if wait else ticket_of(engine, done)

    @overload
    def update(
        self,
        data: Rows | None = ...,
        *,
        if_: Where | None = ...,
        where: Where | None = ...,
        set: Mapping[str, Any] | None = ...,
        on_missing: OnMissing = ...,
        on_error: OnError = ...,
        txn: TxnLike | None = ...,
        on_repeat: OnRepeat = ...,
        wait: Literal[True] = ...,
    ) -> WriteResult: ...
    @overload
    def update(
        self,
        data: Rows | None = ...,
        *,
        if_: Where | None = ...,
        where: Where | None = ...,
        set: Mapping[str, Any] | None = ...,
        on_missing: OnMissing = ...,
        on_error: OnError = ...,
        txn: TxnLike | None = ...,
        on_repeat: OnRepeat = ...,
        wait: Literal[False],
    ) -> WriteTicket: ...
    def update(
        self,
        data: Rows | None = None,
        *,
        if_: Where | None = None,
        where: Where | None = None,
        set: Mapping[str, Any] | None = None,
        on_missing: OnMissing = "error",
        on_error: OnError = "raise",
        txn: TxnLike | None = None,
        on_repeat: OnRepeat = "check",
        wait: bool = True,
    ) -> WriteResult | WriteTicket:
        """Change the given columns of rows by key, or of all rows that match ``where``.

        ``set`` maps column names to literals, or to pyarrow expressions or ``kudu_core.expr`` over the old
        row: plain text in it is a value.

        >>> stock.update(where=pc.field("price") > 2, set={"price": pc.field("price") * 2}).updated
        2
        """
        engine = self._handle.engine
        if (if_ is None and set is None) or data is None or where is not None:
            if if_ is not None:
                raise InvalidArgument("if_ is a condition for rows by key; beside where= it is part of that")
            done = door.update(engine, data, where, set, on_missing, on_error, txn, on_repeat, wait)
        else:
            manner = Manner(on_error, txn, on_repeat, wait)
            done = conditional.update(engine, data, set, if_, on_missing, manner)
        return done if wait else ticket_of(engine, done)

    @overload
    def delete(
        self,
        keys: Any = ...,
        *,
        if_: Where | None = ...,
        where: Where | None = ...,
        on_missing: OnMissing = ...,
        on_error: OnError = ...,
        txn: TxnLike | None = ...,
        on_repeat: OnRepeat = ...,
        wait: Literal[True] = ...,
    ) -> WriteResult: ...
    @overload
    def delete(
        self,
        keys: Any = ...,
        *,
        if_: Where | None = ...,
        where: Where | None = ...,
        on_missing: OnMissing = ...,
        on_error: OnError = ...,
        txn: TxnLike | None = ...,
        on_repeat: OnRepeat = ...,
        wait: Literal[False],
    ) -> WriteTicket: ...
    def delete(
        self,
        keys: Any = None,
        *,
        if_: Where | None = None,
        where: Where | None = None,
        on_missing: OnMissing = "error",
        on_error: OnError = "raise",
        txn: TxnLike | None = None,
        on_repeat: OnRepeat = "check",
        wait: bool = True,
    ) -> WriteResult | WriteTicket:
        """Remove rows by key, or all rows that match ``where``.

        >>> stock.delete([{"id": 1}]).deleted, stock.delete([2, 3]).deleted  # keys of one column, bare
        (1, 2)
        """
        engine = self._handle.engine
        if if_ is None:
            done = door.delete(engine, keys, where, on_missing, on_error, txn, on_repeat, wait)
        elif keys is None or where is not None:
            raise InvalidArgument("if_ is a condition for rows by key; beside where= it is part of that")
        else:
            done = conditional.delete(engine, keys, if_, on_missing, Manner(on_error, txn, on_repeat, wait))
        return done if wait else ticket_of(engine, done)

    @overload
    def apply(
        self,
        data: Rows,
        op_column: str = ...,
        *,
        on_error: OnError = ...,
        txn: TxnLike | None = ...,
        on_repeat: OnRepeat = ...,
        wait: Literal[True] = ...,
    ) -> WriteResult: ...
    @overload
    def apply(
        self,
        data: Rows,
        op_column: str = ...,
        *,
        on_error: OnError = ...,
        txn: TxnLike | None = ...,
        on_repeat: OnRepeat = ...,
        wait: Literal[False],
    ) -> WriteTicket: ...
    def apply(
        self,
        data: Rows,
        op_column: str = "_op",
        *,
        on_error: OnError = "raise",
        txn: TxnLike | None = None,
        on_repeat: OnRepeat = "check",
        wait: bool = True,
    ) -> WriteResult | WriteTicket:
        """Mixed operations, in order: the column ``op_column`` names the operation of each row.

        Operations: insert, insert_ignore, upsert, update, update_ignore, delete, delete_ignore.

        >>> stock.apply({"_op": ["update", "delete"], "id": [1, 2], "price": [2.0, None]}).counts
        (0, 1, 1, 0)
        """
        engine = self._handle.engine
        done = door.write_mixed(engine, data, op_column, on_error, txn, on_repeat, wait)
        return done if wait else ticket_of(engine, done)

    def merge(
        self,
        source: Rows,
        on: Any = None,
        *,
        on_duplicate: OnDuplicate = "error",
        sequence_by: str | None = None,
    ) -> Merge:
        """Begin a merge of rows into the table: clauses say what becomes of them, ``execute()`` does it.

        >>> new = stock.merge([{"id": 1, "sold": 2}, {"id": 8, "sold": 0}])
        >>> new.when_matched({"price": kc.old("price") - kc.new("sold")}).execute().updated
        1

        Parameters
        ----------
        source
            Rows as of every write; beside the table's columns they may have others, for expressions.
        on
            The primary key: None, its names, or a mapping from its columns to columns of the source.
        on_duplicate
            "error": several rows of one key that count are refused; "last": that counts which is largest in
            the column ``sequence_by``, which the table need not have.
        """
        return Merge(self._handle, source, on, on_duplicate=on_duplicate, sequence_by=sequence_by)

    def modify(
        self,
        keys: Any,
        function: Callable[[dict[str, Any] | None], Mapping[str, Any] | None],
        *,
        tries: int = TRIES,
    ) -> Any:
        """Read the row of a key, or of each key of a list, and write what ``function`` makes of it.

        It is called with the row as a dict, or None where there is none, and gives columns to change, a whole
        new row, or None to delete.  If a row that was read has changed before all is written, it is called
        again with what is there then.  The answer is what it has given, one row or a list of them.

        >>> stock.modify(1, lambda row: {"price": row["price"] + 1})
        {'id': 1, 'price': 2.5}

        Raises
        ------
        Conflict
            Others have changed a row during each of ``tries`` tries; nothing was applied.
        """
        return modify(self._handle, keys, function, tries)

    def batch(
        self,
        *,
        on_error: OnError = "raise",
        txn: TxnLike | None = None,
        on_repeat: OnRepeat = "check",
        wait: bool = True,
    ) -> Batch:
        """Many calls as one: ``with table.batch() as b: b.insert(...); b.delete(...)``.

        Decided and applied at exit, all or nothing, at one timestamp; each call sees those before it.
        An exception inside the block applies nothing.  ``b.result`` has the sums, or with ``wait=False``
        ``b.ticket.result()``.

        >>> with stock.batch() as b:
        ...     b.delete([{"id": 1}])
        ...     b.insert([{"id": 4}])
        """
        return Batch(self._handle, on_error, txn, on_repeat, wait)


__all__ = ["TableWrites"]
