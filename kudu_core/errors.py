"""Every exception that the package raises on purpose.

    KuduError
    |- InvalidArgument   the caller broke a documented rule          (ValueError)
    |  |- SchemaMismatch data does not fit the table's schema
    |  |- TokenMismatch  a write names itself as one that was applied, and is another one
    |- TableNotFound     no table at that path                       (FileNotFoundError)
    |- TableExists       create over an existing table               (FileExistsError)
    |- RowErrors         rows of a write call were refused; nothing of the call was applied
    |- Cancelled         a listener, or who shows progress, asked a long work to end; it did nothing
    |- Conflict          rows that a batch has read were changed before it ended
    |- SnapshotTooOld    the history of that time is gone
    |  |- ChangesLost    changes since that time are gone
    |- SnapshotInFuture  that time has not come, or is not visible here yet
    |- Locked            another writer holds the table
    |- Fenced            another writer took the table over
    |- ReadOnly          a write through a handle opened for reading
    |- Closed            the handle was closed, or belongs to the parent of a fork
    |- Poisoned          an fsync failed: reopen the table to write again
    |- NotSupported      well-formed, but not by this version
    |- Corruption        stored bytes break their format
    |- StoreError        an object store refused a request
    |  |- StoreDenied    credentials are absent, wrong or expired, or lack a right
    |  |- StoreUnavailable  the store gave no answer in time
    |- MemoryLimit       one batch cannot fit into the memory limit
    |- ColumnTooLarge    cells of one column at once are more than Arrow takes (OverflowError)
    |- InternalError     a rule of the package's own does not hold  (AssertionError)

The operating system's ``OSError`` passes through.  Every exception pickles.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


class KuduError(Exception):
    """Base of every exception that the package raises on purpose."""


class InvalidArgument(KuduError, ValueError):
    """The caller broke a documented rule; nothing has changed."""


class SchemaMismatch(InvalidArgument):
    """Data or a token does not fit the table's schema; nothing has changed."""


class TokenMismatch(InvalidArgument):
    """A write names itself (``txn``) as one that was applied, and is not proven to be the same.

    Nothing of it was applied.  ``stored_rows`` and ``given_rows`` count the rows of that write and of this
    one; None: not known.
    """

    def __init__(
        self,
        message: str,
        app_id: str | None = None,
        version: int | None = None,
        stored_rows: int | None = None,
        given_rows: int | None = None,
    ) -> None:
        super().__init__(message, app_id, version, stored_rows, given_rows)
        self.app_id = app_id
        self.version = version
        self.stored_rows = stored_rows
        self.given_rows = given_rows

    def __str__(self) -> str:
        return str(self.args[0])


class TableNotFound(KuduError, FileNotFoundError):
    """There is no table at the path."""


class TableExists(KuduError, FileExistsError):
    """``create_table`` found a table, or something else, at the path."""


class RowErrors(KuduError):
    """Rows of a write call were refused; nothing of the call was applied.

    ``errors`` is a table with the columns ``row`` (int64, the row's place in the call),
    ``code`` (string) and ``key`` (a struct of the key columns).
    """

    def __init__(self, message: str, errors: pa.Table) -> None:
        super().__init__(message, errors)
        self.errors = errors

    def __str__(self) -> str:
        return str(self.args[0])


class Cancelled(KuduError):
    """A listener, or who shows progress, has asked a long work to end (``WorkEvent.cancel``).

    A load, a backup, a restore or a repair has not happened; of a compaction, what was done stays done.
    """


class Conflict(KuduError):
    """Rows that a batch has read were changed before it ended; nothing of it was applied.  Run it again."""


class SnapshotTooOld(KuduError):
    """The history at that timestamp has been collected."""


class ChangesLost(SnapshotTooOld):
    """Changes since that timestamp have been collected."""


class SnapshotInFuture(KuduError):
    """The timestamp lies after what this handle can see."""


class Locked(KuduError):
    """Another writer holds the table.  ``pid`` and ``host`` are what it wrote into LOCK."""

    def __init__(self, path: str, pid: int | None, host: str | None) -> None:
        super().__init__(path, pid, host)
        self.path = path
        self.pid = pid
        self.host = host

    def __str__(self) -> str:
        who = f"process {self.pid} on {self.host}" if self.pid is not None else "another process"
        return f"{self.path} is open for writing by {who}; close it there, or wait with timeout_s="


class Fenced(KuduError):
    """Another writer took the table over; nothing was acknowledged after that."""


class ReadOnly(KuduError):
    """A write through a handle that was opened for reading."""


class Closed(KuduError):
    """The handle was closed, or it writes, was opened before a fork and is used in the child."""


class Poisoned(KuduError):
    """An fsync or an apply failed.  Committed data stays readable; reopen to write again."""


class NotSupported(KuduError):
    """Well-formed, but not by this version."""


class Corruption(KuduError):
    """Stored bytes break the rules of their format.

    Raised once, where the bytes are first read, and never retried.
    """

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(path, offset, reason)
        self.path = path
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path} at byte {self.offset}: {self.reason}"


class StoreError(KuduError):
    """An object store refused a request.

    ``unknown``: whether what was to be put or deleted may be so, or may yet be: an earlier request for the
    same thing had no answer.  Else nothing has changed.
    """

    def __init__(self, message: str, unknown: bool = False) -> None:
        super().__init__(message, unknown)
        self.unknown = unknown

    def __str__(self) -> str:
        tail = "; what was asked for may or may not have been done" if self.unknown else ""
        return f"{self.args[0]}{tail}"


class StoreDenied(StoreError):
    """Credentials of an object store are absent, wrong or expired, or lack a right."""


class StoreUnavailable(StoreError):
    """An object store gave no answer until the deadline, or asked for patience until then."""


class MemoryLimit(KuduError):
    """One batch cannot fit into ``memory_limit_bytes``, or memory ended; nothing was applied."""


class ColumnTooLarge(KuduError, OverflowError):
    """The cells of one column that are asked for at once come to more than 2 GiB, which Arrow's offsets
    cannot address; nothing was changed.  Reads of many rows go on in smaller pieces instead of raising it."""

    def __str__(self) -> str:
        return (
            f"{self.args[0]}; ask for fewer rows at a time (fewer keys, a smaller window, batch_rows=), or "
            "leave the column out"
        )


class UnreplayedWarning(UserWarning):
    """A table was opened for reading at the state before a record of its log that cannot be replayed.

    ``Table.unreplayed`` says which record.
    """


class InternalError(KuduError, AssertionError):
    """A rule of ours does not hold: a defect of this package, met before it could do harm.

    Raised where going on could lose data, so that ``python -O`` does not take it away.
    """


def without_frames(error: BaseException) -> BaseException:
    """The same error, to be kept for long: without the frames that it came through and what they hold."""
    try:
        kept = copy.copy(error)
    except Exception:  # noqa: BLE001  an exception of somebody else's, which takes its arguments its own way
        return error
    return kept if type(kept) is type(error) else error


def shown(value: object, characters: int = 60) -> str:
    """A value for a message: its ``repr``, cut.  Python writes no whole number of thousands of digits, and no
    time of Arrow's that its own cannot hold."""
    try:
        text = repr(value)
    except (ValueError, OverflowError):
        return f"a {type(value).__name__} that cannot be written out"
    return text if len(text) <= characters else f"{text[:characters]}..."
