"""Many write calls as one record: ``with table.batch() as b``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kudu_core.common.idempotence.writers import check_txn
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.errors import Closed, InvalidArgument, NotSupported
from kudu_core.table.calls.call import fitted
from kudu_core.table.calls.conform import apply_calls, conform_calls, with_policy
from kudu_core.table.calls.fingerprints import named
from kudu_core.table.calls.refused import check_on_error
from kudu_core.table.calls.result import WriteResult
from kudu_core.table.write.batch_reads import ReadSet, touched_by
from kudu_core.table.write.door import write_calls, write_collected
from kudu_core.table.write.expired_rows import clear_keys
from kudu_core.table.write.ticket import WriteTicket, ticket_of

if TYPE_CHECKING:
    import pyarrow as pa

    from kudu_core.table.calls.arguments import OnConflict, OnMissing, Rows
    from kudu_core.table.calls.call import Call
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.opened.handle import Handle
    from kudu_core.table.write.door import TxnLike
    from kudu_core.tablet.store.tablet import Tablet


class Batch:
    """Calls collected for one atomic write.  Data is checked and copied when a call is made.

    What it reads (``get``, ``get_many``) has the calls of before laid over it, and must still be so when the
    block ends: else ``Conflict``, and nothing is applied.  So batches are serialisable.

    >>> with stock.batch() as b:
    ...     b.upsert([{"id": 4, "name": "cap"}])
    >>> b.result.inserted
    1
    """

    def __init__(
        self, handle: Handle, on_error: str, txn: TxnLike | None, on_repeat: str, wait: bool
    ) -> None:
        check_on_error(on_error)
        self._handle = handle
        self._on_error = on_error
        self._txn = check_txn(txn, on_repeat)
        self._calls: list[Call] = []
        self._reads: ReadSet | None = None
        self._done = False
        self._wait = wait
        self._result: WriteResult | None = None
        self._ticket: WriteTicket | None = None

    @property
    def result(self) -> WriteResult:
        """Sums over all calls, from the end of the block on.

        Raises
        ------
        InvalidArgument
            The block has not ended, or by an exception; or with ``wait=False``: ask the ticket.
        """
        if self._result is None:
            raise InvalidArgument(f"the batch has no result: {self._said(waited=False)}")
        return self._result

    @property
    def ticket(self) -> WriteTicket:
        """With ``wait=False``, from the end of the block on; ``InvalidArgument`` as of ``result``."""
        if self._ticket is None:
            raise InvalidArgument(f"the batch has no ticket: {self._said(waited=True)}")
        return self._ticket

    def _said(self, *, waited: bool) -> str:
        """Why there is no answer of one kind.  ``waited``: of the kind that is for ``wait=False``."""
        if not self._done:
            return "it is applied at the end of its block"
        if self._result is None and self._ticket is None:
            return "its block ended with an error, and nothing was applied"
        return "ask for its result" if waited else "with wait=False ask its ticket"

    def insert(self, data: Rows, *, on_conflict: OnConflict = "error") -> None:
        self._add(with_policy("on_conflict", on_conflict, "insert"), data)

    def upsert(self, data: Rows) -> None:
        self._add("upsert", data)

    def update(
        self, data: Rows | None = None, *, on_missing: OnMissing = "error", where: Any = None, set: Any = None
    ) -> None:
        if where is not None or set is not None:
            raise NotSupported("where= inside a batch: call table.update(where=..., set=...) by itself")
        self._add(with_policy("on_missing", on_missing, "update"), data)

    def delete(self, keys: Any = None, *, on_missing: OnMissing = "error", where: Any = None) -> None:
        if where is not None:
            raise NotSupported("where= inside a batch: call table.delete(where=...) by itself")
        self._add(with_policy("on_missing", on_missing, "delete"), keys)

    def apply(self, data: Rows, op_column: str = "_op") -> None:
        self._check()
        calls = apply_calls(self._handle.for_writing().schema, data, op_column)
        self._calls += map(_kept, calls)

    def get(self, key: Any, columns: Sequence[str] | None = None) -> dict[str, Any] | None:
        """The row of a key as this batch has it so far, as ``Table.get``; None where there is none.

        >>> with stock.batch() as b:
        ...     b.upsert([{"id": 1, "price": b.get(1)["price"] + 1}])
        >>> stock.get(1, ["price"])
        {'price': 2.5}
        """
        [(is_there, row)] = read_rows(self, [key], columns)
        return row if is_there else None

    def get_many(self, keys: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows of keys as this batch has them so far, as ``Table.get_many``.

        >>> with stock.batch() as b:
        ...     b.delete([3])
        ...     found = b.get_many([1, 3])["_found"].to_pylist()
        >>> found
        [True, False]
        """
        return self._reading().rows(keys, columns, self._calls)

    def _reading(self) -> ReadSet:
        self._check()
        if self._reads is None:
            engine = self._handle.for_writing()
            self._reads = ReadSet(engine, partial(clear_keys, engine))
        return self._reads

    def _add(self, operation: str, data: Any) -> None:
        self._check()
        calls = conform_calls(self._handle.for_writing().schema, operation, data)
        self._calls += map(_kept, calls)

    def _check(self) -> None:
        if self._done:
            raise Closed("the batch was applied; begin another one")

    def __enter__(self) -> Batch:
        self._check()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._done = True
        if kind is not None:
            return
        engine = self._handle.for_writing()
        if self._reads is None:
            done = write_calls(engine, self._calls, on_error=self._on_error, txn=self._txn, wait=self._wait)
        else:
            done = self._write_read(engine, self._reads)
        if self._wait:
            self._result = done
        else:
            self._ticket = ticket_of(engine, done)

    def _write_read(self, engine: Engine, reads: ReadSet) -> WriteResult:
        """Apply the calls if all that was read is still so."""

        def calls() -> Sequence[Call]:
            reads.check()
            return fitted(engine.schema, self._calls)

        def touched() -> Sequence[Tablet]:
            keys = engine.schema.key_ids
            blocks = [*reads.tablets(), *(call.block.select(keys) for call in self._calls)]
            return touched_by(engine.tablets, blocks)

        token = named(self._txn, self._calls, engine.pool)
        clear_keys(engine, (*reads.tablets(), *(call.block for call in self._calls)))
        return write_collected(
            engine, touched, calls, on_error=self._on_error, txn=token, wait=self._wait
        )


def read_rows(
    batch: Batch, keys: Any, columns: Sequence[str] | None = None
) -> list[tuple[bool, dict[str, Any]]]:
    """Rows of keys as ``Batch.get`` has them: whether each is there, and values, NULLs where it is not."""
    return batch._reading().values(keys, columns, batch._calls)


def _kept(call: Call) -> Call:
    """The call with memory of its own: what the caller gave may change before the batch ends."""
    columns = {i: _copy(column) for i, column in call.block.columns.items()}
    return replace(call, block=RowBlock(columns, call.rows))


def _copy(column: ColumnBuffers) -> ColumnBuffers:
    validity = None if column.validity is None else column.validity.copy()
    offsets = None if column.offsets is None else column.offsets - column.offsets[0]
    return ColumnBuffers(column.width, column.length, column.data.copy(), offsets, validity)
