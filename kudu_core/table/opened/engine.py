"""The state of one open table, shared by the walks of this room.

``Table`` is the face that users hold; an ``Engine`` is what stands behind it until ``close()`` or,
for a reader, until ``refresh()`` puts a newer one in its place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from kudu_core._ext.columns.growing import data_limit
from kudu_core.cfile.pages.page_cache import PageCache
from kudu_core.common.idempotence.writers import MAX_TOKENS, YOUNG_S, AppliedWrite, Counts, Txn, outdated
from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.run.clock import Clock, hybrid
from kudu_core.common.run.gates import Gates, Slots
from kudu_core.common.run.locks import Claim, Reentrant, Turns, mutex, reentrant
from kudu_core.common.run.pool import Pool
from kudu_core.common.run.workers import is_worker
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import Closed, Fenced, InvalidArgument, KuduError, ReadOnly, SnapshotTooOld
from kudu_core.events import Event, EventListener, TokensDropped, WritersThrottled, tell
from kudu_core.fs.copies import keep_copy
from kudu_core.options import Options
from kudu_core.rowset.memory.growing import StoreFull
from kudu_core.table.calls.decision import default_bytes
from kudu_core.table.opened import debug
from kudu_core.table.opened.job_marks import leave_marks
from kudu_core.table.opened.journal import Journal
from kudu_core.table.opened.memory_errors import no_memory, no_store, too_much
from kudu_core.table.opened.pins import Pins, Purged, SchemaPins
from kudu_core.table.opened.throttle import STOP_FRACTION, Throttle
from kudu_core.table.stored.table_file import TableState, read_state, replace
from kudu_core.tablet.flush.memory import work_bytes
from kudu_core.tablet.maintain.compaction_lane import Compactions
from kudu_core.tablet.maintain.flush_lane import Maintenance
from kudu_core.tablet.maintain.scoring import MEMORY_FRACTION, Pressure
from kudu_core.tablet.store.tablet import Tablet, TabletContext

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem, Lease
    from kudu_core.table.calls.decision import Call
    from kudu_core.tablet.compact.merge import MergeBuilder
    from kudu_core.tablet.replay.bootstrap import Unreplayed
    from kudu_core.tablet.store.apply import Laying
    from kudu_core.wal import Log

NEWEST = 2**64 - 1
"""A snapshot that sees everything that is applied."""

TOKEN_LOCKS = 256
"""So many locks serve all writers that name their writes."""

TURN_S = 0.002
"""One writer of short calls may keep another one waiting so long."""


CACHE_DIVISOR = 8
"""What the page cache keeps of the memory limit, divided by this, when memory stores grow."""

WORK_DIVISOR = 4
"""What is counted of the memory that flushes and merges work with, at most: the limit of the memory stores
divided by this."""


def check_budget(budget_s: object) -> None:
    if budget_s is not None and (
        isinstance(budget_s, bool) or not isinstance(budget_s, int | float) or not budget_s >= 0
    ):
        raise InvalidArgument(f"budget_s is a number of seconds from 0 or None, not {budget_s!r}")


class Engine:
    """One table, opened once.  Safe for any number of threads."""

    def __init__(
        self,
        path: str,
        fs: FileSystem,
        state: TableState,
        options: Options,
        clock: Clock,
        listener: EventListener | None,
        *,
        writer: bool,
    ) -> None:
        self.path = path
        self.fs = fs
        self.options = options
        self.clock = clock
        self.listener = listener
        self.writer = writer
        self.state = state
        self.schema: Schema = state.schema
        self.partitions: PartitionSchema = state.partitions
        self.applied_writes: dict[str, AppliedWrite] = dict(state.tokens)
        self.applied_jobs: dict[str, AppliedWrite] = {}
        """Distributed writes whose record this handle has seen and whose mark may not be there yet."""
        self.committing: set[str] = set()
        """Those, and the merges built elsewhere, that this process is at work on."""
        self._job_locks: WeakValueDictionary[str, Reentrant] = WeakValueDictionary()
        self.swept_s = 0.0
        """When staging was last looked through, on the monotonic clock."""
        self.lost_swept_s = 0.0
        """The same of ``lost/``."""
        self.cache = PageCache(options.page_cache_bytes)
        self.pool = Pool(options.scan_threads)
        self.journal = Journal(clock)
        """What maintenance has done."""
        self.throttle = Throttle(clock)
        turns = Turns(TURN_S, clock.monotonic_s)
        self.short_writes = mutex() if options.durability == "sync" else turns
        """Held by a short write from encoding to the release of its mutexes.  Its kernels are too short to
        share the GIL and the mutexes with another writer's: handing these over costs more than the work.
        Waiting for the fsync comes after, so that writers share it: there the next one begins at once."""
        self.tablets: list[Tablet] = []
        """In the order of their ids, the order in which mutexes are taken; dropped ones until they are
        purged.  Another list for each change."""
        self.pins = Pins(0)
        self.lease: Lease | None = None
        self.maintenance: Maintenance | None = None
        self.compactions: Compactions | None = None
        self._log: Log | None = None
        self.read_visible_ts = 0
        """A reader's W_r."""
        self.read_oldest_ts = 0
        self.read_settled = False
        """A reader's: nobody held the table for writing when it read the end of the log, and it sees all."""
        self.unreplayed: Unreplayed | None = None
        """A reader's: the record of the log before which it ends, as it cannot be replayed."""
        self._by_ordinal: dict[int, Tablet] = {}
        """The newest tablet of each partition."""
        self.altering = mutex()
        """One change of columns, ranges or the list of tablets at a time; taken before every other lock."""
        self.schema_pins = SchemaPins()
        self.tablet_context: TabletContext
        self.purged: list[Purged] = []
        """Tablets no longer the table's, whose files somebody may be reading.  Under ``altering``."""
        self._ranges_since = 0
        """Timestamp of the last change of the ranges that snapshots may look behind."""
        self._partitions_at: dict[int, PartitionSchema] = {}
        self._table_mutex = mutex()
        """Guards the replacement of TABLE and ``_table_identity``."""
        self._table_identity: Any = None
        self._replacing: tuple[TableState, bytes] | None = None
        """What TABLE is being replaced by: an interrupt may leave it replaced, and nobody knowing."""
        self._token_mutex = mutex()
        """Guards changes of ``applied_writes``."""
        self.tokens_dropped = 0
        self._saving_tokens = mutex()
        """One writes them into TABLE at a time; taken before ``_token_mutex`` and ``_table_mutex``."""
        self._token_locks = [reentrant() for _ in range(TOKEN_LOCKS)]
        self._memory_mutex = mutex()
        self._memory_known = 0
        self._memory_added = 0
        self._memory_unseen = 0
        """Added since the flush lane was last woken."""
        self._closed: str | None = None
        """Why every call is refused: set when a close begins."""
        self._ended = False
        """Nothing is held any more: a close has come to its end."""
        self._closing: set[int] = set()
        """The thread that closes it, by number.  Added to under ``_close_mutex``."""
        self._close_mutex = mutex()
        self._close_ended = Gates()

    # ---- putting together ----

    def context(self, log: Log | None) -> TabletContext:
        self._log = log
        self.tablet_context = TabletContext(
            fs=self.fs,
            options=self.options,
            clock=self.clock,
            cache=self.cache,
            table_uuid=self.state.uuid,
            epoch=self.state.epoch,
            log=log,
            schema=lambda: self.schema,
            stored=lambda: self.schema_pins.stored(self.schema),
            pool=self.pool,
            check=debug.install_check(),
            fence=self.fence,
            building=Slots(self.options.maintenance_threads),
        )
        return self.tablet_context

    def adopt(self, state: TableState) -> None:
        """What the log says beyond TABLE, before there are tablets."""
        self.state, self.schema, self.partitions = state, state.schema, state.partitions

    def set_tablets(self, tablets: Sequence[Tablet]) -> None:
        self.tablets = sorted(tablets, key=lambda t: t.id)
        self._by_ordinal = {t.partition.ordinal: t for t in self.tablets}
        self._ranges_since = max((t.dropped_ts or t.created_ts for t in tablets), default=0)
        self._partitions_at = {}

    def tablet_of(self, ordinal: int, snapshot: int = NEWEST) -> Tablet:
        """The tablet of a partition that was one of the table's at that time.

        ``SnapshotTooOld``: it was dropped, and purged while the caller looked for it.
        """
        found = self._by_ordinal.get(ordinal)
        if found is not None and snapshot < found.created_ts:  # the table was overwritten since
            older = (t for t in self.tablets if t.partition.ordinal == ordinal and t.is_there(snapshot))
            found = next(older, None)
        if found is None:
            raise SnapshotTooOld(f"the tablet of partition {ordinal} was dropped, and its history is gone")
        return found

    def partitions_at(self, snapshot: int) -> PartitionSchema:
        """The partitions as they were at that time."""
        if snapshot >= self._ranges_since:
            return self.partitions
        cache = self._partitions_at
        tablets, partitions = self.tablets, self.partitions
        stamps = {ts for t in tablets for ts in (t.created_ts, t.dropped_ts) if ts is not None}
        since = max((ts for ts in stamps if ts <= snapshot), default=0)
        known = cache.get(since)
        if known is None:
            ordinals = {t.partition.ordinal for t in tablets if t.is_there(since)}
            known = partitions.with_live([first in ordinals for first in partitions.first_ordinals])
            cache[since] = known
        return known

    @property
    def log(self) -> Log:
        assert self._log is not None
        return self._log

    # ---- checks ----

    def check_open(self) -> None:
        if self._closed is not None:
            raise Closed(self._closed)

    def check_writable(self) -> None:
        self.check_open()
        if not self.writer:
            raise ReadOnly(f'{self.path} is open for reading; open it with mode="rw" to write')
        self.log.raise_if_poisoned()

    @property
    def poisoned(self) -> BaseException | None:
        return None if self._log is None else self._log.poisoned

    def poison(self, error: BaseException) -> None:
        self.log.poison(error)

    def poison_if_owing(self, error: BaseException) -> None:
        """Poison if this thread's record is in the log and not applied.

        Asked of the log and not of what ``append`` returned: an interrupt may come between the two.
        """
        if threading.get_ident() in list(self.log._in_flight.values()):
            self.log.poison(error)

    def check_poisoned(self) -> None:
        self.log.raise_if_poisoned()

    def fence(self) -> None:
        """TABLE must still be the file that this writer installed (protocol P2)."""
        with self._table_mutex:
            if self._table_identity is None:
                return
            self._settle_replacement()
            try:
                now = self.fs.identity(f"{self.path}/TABLE")
            except FileNotFoundError:
                now = None
            if now != self._table_identity:
                raise Fenced(
                    f"{self.path}/TABLE was replaced by another writer; nothing was acknowledged after that"
                )

    # ---- TABLE ----

    def install_state(self, state: TableState) -> None:
        """Replace TABLE, durably."""
        with self._table_mutex:
            self._install_state(state)

    def _settle_replacement(self) -> None:
        """After a replacement that was interrupted: TABLE is what it was, or what it was to be."""
        if self._replacing is None:
            return
        state, data = self._replacing
        path = f"{self.path}/TABLE"
        with suppress(FileNotFoundError):
            identity = self.fs.identity(path)
            if self.fs.stat(path).size == len(data) and self.fs.read_bytes(path, len(data)) == data:
                self.fs.sync_dir(self.path)  # its name may not be durable yet
                self._table_identity, self.state = identity, state
        self._replacing = None

    def _install_state(self, state: TableState) -> None:
        # What is known to be on disk of the manifests costs nothing to say here.
        proven = {t.id: t.manifest.proven_number for t in self.tablets if t.manifest is not None}
        edits = {i: max(number, state.edits.get(i, 0)) for i, number in proven.items()}
        state = replace(state, edits={**state.edits, **edits})
        data = state.to_bytes()
        self._replacing = state, data
        try:
            self.fs.replace_file(f"{self.path}/TABLE", data)
        except OSError:
            self._replacing = None  # final: what was not durable once may not be at a second try
            raise
        self._table_identity = self.fs.identity(f"{self.path}/TABLE")
        self.state = state
        self._replacing = None
        keep_copy(self.fs, f"{self.path}/TABLE", data)

    def change_state(self, change: Callable[[TableState], TableState]) -> None:
        """Replace TABLE by what ``change`` makes of it; a failure poisons (protocol W8)."""
        self.fence()
        try:
            with self._table_mutex:
                self._settle_replacement()
                self._install_state(change(self.state))
        except OSError as exc:
            self.log.poison(exc)
            raise

    def save_tokens(self, applied_ts: int, more: int = 0) -> int:
        """Write ``applied_writes`` into TABLE, and the marks of jobs into staging: the log up to
        ``applied_ts``, at most W, is not needed for them then.

        Those that are out of date go, and room is made for ``more``; how many went.
        """
        leave_marks(self.fs, self.path, self.applied_jobs, applied_ts)
        with self._saving_tokens:
            gone, tokens = self._drop_tokens(applied_ts, more)
            if tokens == self.state.tokens and self.state.applied_ts >= applied_ts:
                return 0
            if tokens:
                # What TABLE says was applied must be in the log for good (protocol K3).
                self.log.wait_durable(max(token.ts for token in tokens.values()))

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

            self.change_state(saved)
            return len(gone)

    def _drop_tokens(
        self, through: int, more: int = 0
    ) -> tuple[dict[str, AppliedWrite], dict[str, AppliedWrite]]:
        """(the tokens that went, those that stay)."""
        retention_s = self.options.token_retention_s
        with self._token_mutex:
            gone = outdated(self.applied_writes, through, self.clock.now_us(), retention_s, more=more)
            for app_id in gone:
                del self.applied_writes[app_id]
            self.tokens_dropped += len(gone)
            return gone, dict(self.applied_writes)

    def note_token(self, txn: Txn, ts: int, counts: Counts) -> None:
        """A write that names itself was logged and applied."""
        with self._token_mutex:
            self.applied_writes[txn.app_id] = txn.applied(self.applied_writes.get(txn.app_id), ts, counts)

    def make_room_for_token(self) -> None:
        """Before a write of a writer that is not known: not more than ``MAX_TOKENS`` are."""
        if len(self.applied_writes) < MAX_TOKENS:
            return
        dropped = self.save_tokens(self.committed_ts, more=1)
        if dropped:
            self.tell(TokensDropped(tokens=dropped))
        if len(self.applied_writes) >= MAX_TOKENS:
            raise InvalidArgument(
                f"{self.path} knows {MAX_TOKENS:,} writers by their txn, and too few of them are older than "
                f"{YOUNG_S:,} s to be forgotten: use one app_id for many writes, with ascending versions"
            )

    def token_lock(self, app_id: str) -> Reentrant:
        """``with`` it: one write of an idempotent writer at a time (protocol W1).  Writers share locks."""
        return self._token_locks[hash(app_id) % TOKEN_LOCKS]

    def job_lock(self, job_id: str) -> Reentrant:
        """Held over a commit: of two of one job, the second is told what came of the first.

        Taken before a token's lock.  It lives as long as somebody has it.
        """
        with self._token_mutex:
            return self._job_locks.setdefault(job_id, reentrant())

    # ---- time ----

    @property
    def visible_ts(self) -> int:
        """V: the newest snapshot that a read of this handle may use."""
        return self.log.visible_ts if self.writer else self.read_visible_ts

    def horizon(self, *, drop: bool = False) -> int:
        """How far back history may be dropped now (protocol H2).

        ``drop``: it will be, so nothing up to there is readable from now on.
        """
        retention = self.options.history_retention_s
        oldest = 0
        if retention is not None:
            oldest = hybrid(max(0, self.clock.now_us() - int(retention * 1e6)))
        return self.pins.horizon(min(self.log.committed_ts, oldest), drop=drop)

    @property
    def committed_ts(self) -> int:
        """W: what a crash cannot take back."""
        return self.log.committed_ts if self.writer else self.read_visible_ts

    @property
    def oldest_ts(self) -> int:
        return max(self.pins.floor, self.read_oldest_ts)

    def is_newest(self) -> bool:
        """Of a reader: nobody writes, nor has since it was opened: a writer's life begins with an epoch."""
        if not self.read_settled or self.fs.lease(f"{self.path}/LOCK").holder() is not None:
            return False
        try:
            return read_state(self.fs, f"{self.path}/TABLE").epoch == self.state.epoch
        except FileNotFoundError:
            return False

    def wait_visible(self, ts: int) -> None:
        self.log.wait_visible(ts)

    # ---- memory ----

    def wants_ingest(self, calls: Sequence[Call]) -> bool:
        """Whether a batch goes straight to files: also one that would fill a column in memory by itself."""
        rows = sum(call.rows for call in calls)
        if rows >= self.options.ingest_threshold_rows:
            return True
        most = min(self.options.ingest_threshold_bytes, data_limit() // 2)
        return sum(call.block.nbytes for call in calls) + default_bytes(self.schema, calls) >= most

    @property
    def store_limit_bytes(self) -> int:
        """What memory stores may take: the limit without what the page cache keeps in any case."""
        limit = self.options.memory_limit_bytes
        return limit - min(self.options.page_cache_bytes, limit // CACHE_DIVISOR)

    def admit(self) -> None:
        """Before a write: slower the fuller memory stores are, so that flushes keep up; near the limit, wait
        for a flush, doing it if nobody else does."""
        limit = self.store_limit_bytes
        if self._memory_estimate() <= limit * MEMORY_FRACTION:
            return
        used = self.measure_memory() if self._memory_is_stale() else self._memory_estimate()
        if self.maintenance is not None and self.options.maintenance == "background":
            self.throttle.slow_down(used / limit, self.maintenance.flush_pace_s)
        if used <= limit * STOP_FRACTION:
            return
        self.tell(WritersThrottled(memory_bytes=used, limit_bytes=limit))
        started = self.clock.monotonic_s()
        while self.measure_memory() > limit * STOP_FRACTION:
            if self.maintenance is None or not self.maintenance.relieve():
                break
        self.throttle.note(self.clock.monotonic_s() - started)

    def reserve(self, layings: Sequence[Laying], record_bytes: int) -> None:
        """Under the mutexes, before the log record: make room for what it says, or refuse it (protocol W5).

        ``MemoryLimit``: nothing happened.  ``Moved``: nor then, but the keys have other homes.
        """
        self.check_batch(max(record_bytes, sum(laying.nbytes for laying in layings)))
        try:
            closed = [laying.reserve() for laying in layings]
        except StoreFull as full:
            raise no_store(full) from full
        except MemoryError:
            raise no_memory(record_bytes) from None
        if any(closed):
            self.wake_flushes()
        self.count_layings(layings, record_bytes)

    def check_batch(self, batch_bytes: int) -> None:
        """``MemoryLimit`` for a batch that does not fit whatever is flushed."""
        limit = self.options.memory_limit_bytes
        if batch_bytes > limit:
            raise too_much(batch_bytes, limit)

    def count_layings(self, layings: Sequence[Laying], record_bytes: int) -> None:
        """Count what is about to be laid into memory."""
        self.note_memory(record_bytes, sum(laying.nbytes for laying in layings))

    def wake_flushes(self) -> None:
        """Have the flush lane look what there is to do."""
        if self.maintenance is not None:
            self.maintenance.kick()

    def note_memory(self, batch_bytes: int, store_bytes: int = 0) -> None:
        """Count a batch that memory takes in; a large sum wakes the flush lane.

        ``store_bytes``: what the rows take there, which of small ones is many times their bytes.
        """
        step = min(self.options.flush_threshold_bytes // 4, self.store_limit_bytes // 16)
        self.throttle.owe(batch_bytes)
        added = max(2 * batch_bytes, store_bytes)
        with self._memory_mutex:
            self._memory_added += added
            self._memory_unseen += added
            # Not at every write from there on: each call costs a switch to the flush lane.
            if self._memory_unseen < step:
                return
            self._memory_unseen = 0
        self._make_room_in_cache(self._memory_estimate())
        self.wake_flushes()

    def _memory_estimate(self) -> int:
        with self._memory_mutex:
            return self._memory_known + self._memory_added

    def _memory_is_stale(self) -> bool:
        """Whether so much was written since the last measurement that another one is worth its cost."""
        with self._memory_mutex:
            return self._memory_added > self.store_limit_bytes // 32

    def measure_memory(self) -> int:
        """Bytes of all memory stores, and of what flushes and merges hold while they run."""
        with self._memory_mutex:
            self._memory_added = 0
        used = sum(tablet.memory_bytes for tablet in self.tablets)
        # Not all: were it more, writers would flush every batch for itself and gain nothing.
        used += min(self.tablet_context.work.held_bytes, self.store_limit_bytes // WORK_DIVISOR)
        with self._memory_mutex:
            self._memory_known = used
        self._make_room_in_cache(used)
        return used

    def _make_room_in_cache(self, store_bytes: int) -> None:
        """The page cache takes what memory stores leave of the limit, and its own share in any case."""
        options = self.options
        least = options.memory_limit_bytes - self.store_limit_bytes
        left = options.memory_limit_bytes - store_bytes
        self.cache.set_limit(min(options.page_cache_bytes, max(least, left)))

    def pressure(self) -> Pressure:
        """What maintenance is to relieve.  The flush that would do it needs memory of its own."""
        next_bytes = max((work_bytes(tablet.view.active) for tablet in self.tablets), default=0)
        used = self.measure_memory() + min(next_bytes, self.store_limit_bytes // WORK_DIVISOR)
        return Pressure(used, self.store_limit_bytes, self.log.bytes_retained)

    # ---- maintenance ----

    def maintain(self, budget_s: float | None, builder: MergeBuilder | None = None, threads: int = 1) -> int:
        """What background maintenance would do now; how many operations it was.

        ``builder``: who is asked to build the outputs of merges; ``threads``: compactions at a time, of 1
        on the caller's thread.
        """
        check_budget(budget_s)
        assert self.maintenance is not None and self.compactions is not None
        started = self.clock.monotonic_s()

        def may_go_on() -> bool:
            self.check_open()
            return budget_s is None or self.clock.monotonic_s() - started < budget_s

        done = self.maintenance.run_due(may_go_on, patient=False)
        with self.compactions.pause():
            self.compactions.await_others(budget_s)  # what the background is at would be left out
            done += self.compactions.run_all(may_go_on, builder, threads)
        self.compactions.collect_garbage()
        return done

    # ---- the end ----

    def tell(self, event: Event) -> None:
        self.journal.note(event)
        tell(self.listener, event)

    def close(self) -> None:
        """Stop the threads, make the log durable, let go of files and lease.  Idempotent.

        A clean close writes the end of the log into TABLE; when that fails the handle is closed all
        the same and the error passes through: the next open recovers from the log.  One that is interrupted,
        or has no memory, leaves the table closing, refused to every call and with its lease: another
        call goes on with it.  Other threads wait for the one that closes; not those for which it waits.
        """
        me = threading.get_ident()
        with Claim(self._closing) as mine:
            while not self._ended:
                with self._close_mutex:
                    if not self._closing:
                        mine.take((me,))
                if mine.held:
                    self._close()
                elif me in self._closing or is_worker() or self._is_awaited():
                    return
                else:
                    self._close_ended.wait(lambda: bool(self._closing))
        self._close_ended.open()

    def _is_awaited(self) -> bool:
        """Whether a close waits for what this thread has under way: then a listener closes the table."""
        return self.compactions is not None and self.compactions.is_at_work()

    def _close(self) -> None:
        if self._closed is None:
            self._closed = f"{self.path} was closed"
        if self.compactions is not None:
            self.compactions.close()
        if self.maintenance is not None:
            self.maintenance.close()
        self._await_calls()
        # From here on no thread of this process writes to the table but this one.
        try:
            self._end_log()
        except (OSError, KuduError):
            self._let_go()
            raise
        self._let_go()

    def _end_log(self) -> None:
        end = None if self._log is None else self._log.close()
        if self._log is None or end is None:
            return
        self.fence()
        for tablet in self.tablets:
            if tablet.manifest is not None:
                tablet.manifest.sync()  # TABLE will say how far they go
        gone, tokens = self._drop_tokens(self._log.durable_ts)
        self.install_state(
            replace(
                self.state,
                tokens=tokens,
                applied_ts=max(self._log.durable_ts, self.state.applied_ts),
                clean_end=end,
            )
        )
        if gone:
            self.tell(TokensDropped(tokens=len(gone)))

    def _let_go(self) -> None:
        """Of files and threads, and last of the lease."""
        self.pool.close()
        for tablet in self.tablets:
            tablet.close()
        if self.lease is not None:
            self.lease.release()
        self._ended = True

    def _await_calls(self) -> None:
        """Let calls of other threads that write come to their end; those after them find it closed.

        Nothing may be appended behind the log's last fsync, nor a file written without the lease.
        """
        with self.altering:
            for tablet in self.tablets:
                with tablet.flush_lane, tablet.mutex:
                    tablet.is_closed = True

    def retire(self) -> None:
        """A reader's engine after ``refresh``: scans that hold its files read on, nothing else does."""
        self._closed = f"{self.path} was refreshed"
        self._ended = True

    def discard(self) -> None:
        """After an open that failed: close what it has opened, write nothing."""
        self._closed = f"{self.path} could not be opened"
        if self.compactions is not None:
            self.compactions.close()
        if self.maintenance is not None:
            self.maintenance.close()
        self.pool.close()
        if self._log is not None:
            self._log.abandon()
        for tablet in self.tablets:
            tablet.close(discard=True)
        self._ended = True

    def abandon(self) -> None:
        """In the child of a fork: let go of the parent's files without touching anything (protocol P1)."""
        self._closed = (
            f"{self.path} was opened before a fork; open it again in the child process, "
            "or send a ScanToken instead of the table"
        )
        self._ended = True
        if self._log is not None:
            self._log.abandon()
        if self.lease is not None:
            self.lease.abandon()
