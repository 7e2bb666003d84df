"""Who has written to an open table: writers that name their writes, and distributed writes.

The last write of each named writer is kept, in memory and now and then in TABLE, until it is out of date.
A distributed write is kept until its mark is in ``staging/``.  What a repetition is, and when a token is out
of date, is in ``common/idempotence/writers.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from kudu_core.common.idempotence.writers import MAX_TOKENS, YOUNG_S, AppliedWrite, Counts, Txn, outdated
from kudu_core.common.run.locks import Reentrant, mutex, reentrant
from kudu_core.errors import Closed, InvalidArgument
from kudu_core.events import Event, TokensDropped
from kudu_core.table.opened.job_marks import leave_mark, leave_marks
from kudu_core.table.stored.table_state import TableState, replace

if TYPE_CHECKING:
    from kudu_core.common.run.clock import Clock
    from kudu_core.fs.api import FileSystem
    from kudu_core.table.opened.table_file import StoredTable
    from kudu_core.wal.appending import AppendingLog

TOKEN_LOCKS = 256
"""So many locks serve all writers that name their writes."""


class Writers:
    """The writers that one open table knows.  Thread safe.

    Three kinds of locks, in the order in which they are taken: those of jobs, those of writers, which a walk
    holds over a whole write; ``_saving_mutex``, held by the one thread that writes the tokens into TABLE; and
    ``_mutex``, for moments.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        table_file: StoredTable,
        log: AppendingLog | None,
        clock: Clock,
        retention_s: float | None,
        tell: Callable[[Event], None],
    ) -> None:
        """Those that TABLE knows.  ``log``: None in a table that is open for reading.  ``retention_s``: older
        tokens are forgotten; None: none is for its age."""
        self.applied_writes: dict[str, AppliedWrite] = dict(table_file.state.tokens)
        """The last write of each writer, by its app_id."""
        self.applied_jobs: dict[str, AppliedWrite] = {}
        """Distributed writes whose record this handle has seen and whose mark may not be there yet."""
        self.committing: set[str] = set()
        """Those, and the merges built elsewhere, that this process is at work on."""
        self.dropped = 0
        """Tokens that were forgotten since the table was opened."""
        self._fs = fs
        self._path = path
        self._table_file = table_file
        self._log = log
        self._clock = clock
        self._retention_s = retention_s
        self._tell = tell
        self._mutex = mutex()
        """Guards changes of ``applied_writes``, and the job locks."""
        self._saving_mutex = mutex()
        """One thread writes the tokens into TABLE, or the mark of a job, at a time; taken before ``_mutex``
        and TABLE's mutex, and never with a tablet's mutex held."""
        self._closed = False
        """Set under ``_saving_mutex``: the end of the table is written by its close, and by nobody else."""
        self._token_locks = [reentrant() for _ in range(TOKEN_LOCKS)]
        self._job_locks: WeakValueDictionary[str, Reentrant] = WeakValueDictionary()

    # ---- one write of each at a time ----

    def lock_of(self, app_id: str) -> Reentrant:
        """``with`` it: one write of an idempotent writer at a time (protocol W1).  Writers share locks."""
        return self._token_locks[hash(app_id) % TOKEN_LOCKS]

    def job_lock(self, job_id: str) -> Reentrant:
        """Held over a commit: of two of one job, the second is told what came of the first.

        Taken before a token's lock.  It lives as long as somebody has it.
        """
        with self._mutex:
            return self._job_locks.setdefault(job_id, reentrant())

    # ---- what is known ----

    def note(self, txn: Txn, ts: int, counts: Counts) -> None:
        """A write that names itself was logged and applied."""
        with self._mutex:
            self.applied_writes[txn.app_id] = txn.applied(self.applied_writes.get(txn.app_id), ts, counts)

    def learn(self, writes: dict[str, AppliedWrite], jobs: dict[str, AppliedWrite]) -> None:
        """While the table is opened: what TABLE and the log say together, in place of what TABLE says."""
        self.applied_writes, self.applied_jobs = writes, jobs

    def set_retention(self, retention_s: float | None) -> None:
        """From now on tokens older than so many seconds are forgotten; None: none is for its age."""
        self._retention_s = retention_s

    def make_room(self) -> None:
        """Before a write of a writer that is not known: not more than ``MAX_TOKENS`` are."""
        if len(self.applied_writes) < MAX_TOKENS:
            return
        assert self._log is not None
        dropped = self.save(self._log.committed_ts, more=1)
        if dropped:
            self._tell(TokensDropped(tokens=dropped))
        if len(self.applied_writes) >= MAX_TOKENS:
            raise InvalidArgument(
                f"{self._path} knows {MAX_TOKENS:,} writers by their txn, and too few of them are older than "
                f"{YOUNG_S:,} s to be forgotten: use one app_id for many writes, with ascending versions"
            )

    def drop_outdated(
        self, through: int, more: int = 0
    ) -> tuple[dict[str, AppliedWrite], dict[str, AppliedWrite]]:
        """Forget tokens that are out of date: (those that went, those that stay).

        ``through``: no later one goes.  ``more``: room is made for so many.
        """
        with self._mutex:
            now_us = self._clock.now_us()
            gone = outdated(self.applied_writes, through, now_us, self._retention_s, more=more)
            for app_id in gone:
                del self.applied_writes[app_id]
            self.dropped += len(gone)
            return gone, dict(self.applied_writes)

    def save(self, applied_ts: int, more: int = 0) -> int:
        """Write ``applied_writes`` into TABLE, and the marks of jobs into staging: the log up to
        ``applied_ts``, at most W, is not needed for them then.

        Those that are out of date go, and room is made for ``more``; how many went.  ``Closed``: nothing was
        written.
        """
        assert self._log is not None
        with self._saving_mutex:
            if self._closed:
                raise Closed(f"{self._path} was closed")
            leave_marks(self._fs, self._path, self.applied_jobs, applied_ts)
            gone, tokens = self.drop_outdated(applied_ts, more)
            known = self._table_file.state
            if tokens == known.tokens and known.applied_ts >= applied_ts:
                return 0
            if tokens:
                # What TABLE says was applied must be in the log for good (protocol K3).
                self._log.wait_durable(max(token.ts for token in tokens.values()))

            def saved(state: TableState) -> TableState:
                # An ALTER may have written newer ones meanwhile.
                newer = {
                    app_id: token
                    for app_id, token in state.tokens.items()
                    if app_id not in gone and (app_id not in tokens or token.ts > tokens[app_id].ts)
                }
                return replace(
                    state, tokens={**tokens, **newer}, applied_ts=max(applied_ts, state.applied_ts)
                )

            self._table_file.change(saved)
            return len(gone)

    def mark(self, job_id: str, known: AppliedWrite) -> None:
        """The record of a job is durable: leave its mark.  ``Closed``: nothing was written, as another
        process may have the table by now; the next open for writing does it."""
        with self._saving_mutex:
            if self._closed:
                raise Closed(f"{self._path} was closed")
            leave_mark(self._fs, self._path, job_id, known)

    def close(self) -> None:
        """Wait for the thread that writes tokens or a mark; after that none does.  May be called again.

        Such a thread may hold no lock but its token's or its job's, for which a close does not wait.
        """
        with self._saving_mutex:
            self._closed = True


__all__ = ["Writers"]
