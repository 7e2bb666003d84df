"""The state of one open table, shared by the walks of this room.

``Table`` is the face that users hold; an ``Engine`` is what stands behind it until ``close()`` or,
for a reader, until ``refresh()`` puts a newer one in its place.  It is made whole, by
``table/lifecycle``.  Its parts have files of their own: ``TableFile``, ``Tablets``, ``Writers`` and
``StoreMemory``; what is here is what they share, the time, and the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kudu_core.cfile.pages.page_cache import PageCache
from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.run.clock import Clock, hybrid
from kudu_core.common.run.gates import Slots
from kudu_core.common.run.locks import Turns, mutex
from kudu_core.common.run.measure.call_times import CallTimes
from kudu_core.common.run.pool import Pool
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import Closed, KuduError, ReadOnly
from kudu_core.events import Event, EventListener, TokensDropped, tell
from kudu_core.fs.machine import memory_bytes
from kudu_core.options import Options
from kudu_core.table.opened import debug
from kudu_core.table.opened.closing import Closing
from kudu_core.table.opened.journal import Journal
from kudu_core.table.opened.kept_plans import KeptPlans
from kudu_core.table.opened.pins import Pins, Purged, SchemaPins
from kudu_core.table.opened.store_memory import StoreMemory
from kudu_core.table.opened.tablets import Tablets
from kudu_core.table.opened.writers import Writers
from kudu_core.table.stored.table_state import TableState, TabletEntry, replace, tablet_directory
from kudu_core.tablet.maintain.compaction_lane import CompactionLane
from kudu_core.tablet.maintain.flush_lane import FlushLane
from kudu_core.tablet.store.tablet import Tablet, TabletContext

if TYPE_CHECKING:
    from kudu_core._ext.batch.batch_writes import BatchWrites
    from kudu_core.fs.api import FileSystem
    from kudu_core.table.opened.read_end import ReadEnd
    from kudu_core.table.opened.table_file import StoredTable
    from kudu_core.table.stored.home import Home, Writing
    from kudu_core.tablet.replay.replay_log import Unreplayed
    from kudu_core.tablet.store.edits import TabletState
    from kudu_core.tablet.store.manifest import OpenManifest
    from kudu_core.wal.appending import AppendingLog

STORE_THREADS = 8
"""Of scans and other work on several files of a table in an object store: most of the time they wait."""
TURN_S = 0.002
"""One writer of short calls may keep another one waiting so long."""


class Engine:
    """One table, opened once.  Safe for any number of threads."""

    row_writes: BatchWrites | None = None  # made by the first write of one row, or a few

    def __init__(
        self,
        table_file: StoredTable,
        state: TableState,
        contents: Mapping[int, TabletState],
        *,
        path: str,
        fs: FileSystem,
        options: Options,
        clock: Clock,
        listener: EventListener | None,
        writing: Writing | None = None,
        read_end: ReadEnd | None = None,
    ) -> None:
        """Nothing is read or written, and no thread is started.

        ``state``: the table as TABLE and the log say it is.  ``contents``: by tablet, what its manifest says.
        ``writing`` of a table that is open for writing, ``read_end`` of one that is open for reading.
        """
        self.path = path
        self.fs = fs
        self.asked_options, self.options = options, options.in_force(memory_bytes())
        """As the table and who opened it say, in which None follows the machine; and in numbers."""
        self.clock = clock
        self.listener = listener
        self.writer = writing is not None
        self.table_file = table_file
        self.uuid, self.in_store = state.uuid, state.place is not None
        self.schema: Schema = state.schema
        self.read_end = read_end
        """None in a table that is open for writing: it sees all that there is."""
        self.swept_s = self.lost_swept_s = 0.0
        """When staging, and when ``lost/``, was last looked through, on the monotonic clock."""
        self.cache = PageCache(self.options.cache_bytes)
        self.pool = Pool(options.scan_threads or (STORE_THREADS if self.in_store else None))
        self.journal = Journal(clock)  # what maintenance has done
        self.call_times = CallTimes(path, options)
        turns = Turns(TURN_S, clock.monotonic_s)
        self.short_writes = mutex() if options.durability == "sync" else turns
        """Held by a short write from encoding to the release of its mutexes: to hand these and the GIL over
        costs more than its work.  It waits for the fsync after, so that writers share that."""
        self.altering = mutex()
        """One change of columns, ranges or the list of tablets at a time; taken before nearly every lock."""
        horizons = state.horizon, *(content.horizon for content in contents.values())
        self.pins = Pins(max(horizons), state.tags.values())
        self.schema_pins = SchemaPins()
        self.purged: list[Purged] = []
        """Tablets no longer the table's, whose files somebody may be reading.  Under ``altering``."""

        self._home = None if writing is None else writing.home(self)
        self._log = None if writing is None else writing.log
        self.end: AppendingLog | ReadEnd = self.log if read_end is None else read_end  # what a read may see
        self.lease = writing.lease if writing is not None else None if read_end is None else read_end.lock
        self.writers = Writers(fs, path, table_file, self._log, clock, options.token_retention_s, self.tell)
        self.tablet_context = self._context(writing)
        self.tablets = self._tablets(state, contents, {} if writing is None else writing.manifests)
        """Those that are there, and those that have ended until they are purged."""
        work = self.tablet_context.work
        self.memory = StoreMemory(self.options, clock, self.cache, work, self.tablets, self.tell)
        self.maintenance = None if writing is None else self._flush_lane(writing.log)
        self.compactions = None if writing is None else self._compaction_lane(writing)
        self.memory.flush_lane = self.maintenance

        self.plans: KeptPlans[Any] = KeptPlans(self.schema)  # the first scan of another schema replaces it
        self.refusal: str | None = None
        """Why every call is refused: set when a close begins."""
        self.closing = Closing()

    # ---- putting together ----

    def _context(self, writing: Writing | None) -> TabletContext:
        return TabletContext(
            fs=self.fs,
            options=self.options,
            clock=self.clock,
            cache=self.cache,
            table_uuid=self.uuid,
            epoch=self.table_file.state.epoch,
            log=self._log,
            schema=lambda: self.schema,
            stored=lambda: self.schema_pins.stored(self.schema),
            types=lambda: self.schema_pins.types(self.schema),
            pool=self.pool,
            check=debug.install_check(),
            fence=self.table_file.fence,
            has_readers=writing.lease.has_readers if writing is not None else lambda: True,
            building=Slots(self.options.maintenance_threads),
            placed=None if self._home is None or not self._home.in_place else {},
        )

    def _tablets(
        self, state: TableState, contents: Mapping[int, TabletState], manifests: Mapping[int, OpenManifest]
    ) -> Tablets:
        made = [
            self._tablet(state.partitions, entry, contents[entry.id], manifests.get(entry.id))
            for entry in state.tablets
        ]
        return Tablets(made, state.partitions)

    def _tablet(
        self,
        partitions: PartitionSchema,
        entry: TabletEntry,
        content: TabletState,
        manifest: OpenManifest | None,
    ) -> Tablet:
        return Tablet(
            self.tablet_context,
            entry.id,
            partitions.partition_of(entry.partition),
            tablet_directory(self.path, entry.id),
            content if manifest is None else manifest.state,
            manifest,
            created_ts=entry.created_ts,
            dropped_ts=entry.dropped_ts,
        )

    def _flush_lane(self, log: AppendingLog) -> FlushLane:
        return FlushLane(
            self.tablets,
            self.memory,
            log,
            self.clock,
            self.tell,
            lambda applied_ts: self.writers.save(applied_ts),
        )

    def _compaction_lane(self, writing: Writing) -> CompactionLane:
        return CompactionLane(
            self.tablets,
            self.clock,
            self.tell,
            lambda drop: self.horizon(drop=drop),
            self.options.maintenance_threads,
            newest=lambda: self.visible_ts,
            purge=self.home.purge,
            delete_purged=self.home.delete_gone,
        )

    @property
    def partitions(self) -> PartitionSchema:
        """Those of the tablets that there are: one look gives both, of the same moment."""
        return self.tablets.partitions

    def replace_tablets(self, tablets: Tablets) -> None:
        """From now on the table has these tablets; maintenance knows first, and looks after all of them."""
        self.memory.tablets = tablets
        for lane in (self.maintenance, self.compactions):
            if lane is not None:
                lane.tablets = tablets
        self.tablets = tablets

    # ---- checks ----

    @property
    def log(self) -> AppendingLog:
        """Of a table that is open for writing."""
        assert self._log is not None
        return self._log

    @property
    def home(self) -> Home:
        """Of a table that is open for writing."""
        assert self._home is not None
        return self._home

    def check_open(self) -> None:
        if self.refusal is not None:
            raise Closed(self.refusal)

    def check_writable(self) -> None:
        if self.refusal is not None:
            raise Closed(self.refusal)
        if not self.writer:
            raise ReadOnly(f'{self.path} is open for reading; open it with mode="rw" to write')
        if self.log.failure is not None:
            self.log.raise_if_poisoned()

    @property
    def poisoned(self) -> BaseException | None:
        return None if self._log is None else self._log.poisoned

    # ---- time ----

    def plans_of(self, newest: Schema) -> KeptPlans[Any]:
        """Where plans of reads of the newest schema are kept."""
        plans = self.plans
        if plans.schema is not newest:
            self.plans = plans = KeptPlans(newest)
        return plans

    @property
    def visible_ts(self) -> int:
        """V: the newest snapshot that a read of this handle may use."""
        return self.end.visible_ts

    @property
    def committed_ts(self) -> int:
        """W: what a crash cannot take back."""
        return self.log.committed_ts if self.read_end is None else self.read_end.visible_ts

    @property
    def oldest_ts(self) -> int:
        """The oldest snapshot that may be read."""
        return self.pins.floor

    @property
    def unreplayed(self) -> Unreplayed | None:
        """A reader's: the record of the log before which it ends, as it cannot be replayed."""
        return None if self.read_end is None else self.read_end.unreplayed

    def horizon(self, *, drop: bool = False) -> int:
        """How far back history may be dropped now (protocol H2).

        ``drop``: it will be, so nothing up to there is readable from now on.
        """
        retention = self.options.history_retention_s
        oldest = 0
        if retention is not None:
            oldest = hybrid(max(0, self.clock.now_us() - int(retention * 1e6)))
        return self.pins.horizon(min(self.log.committed_ts, oldest), drop=drop)

    def is_newest(self) -> bool:
        """Of a reader: nobody writes, nor has since it was opened: a writer's life begins with an epoch."""
        assert self.read_end is not None
        return self.read_end.settled and self.table_file.is_unwritten()

    def wait_visible(self, ts: int) -> None:
        self.log.wait_visible(ts)

    # ---- the end ----

    def tell(self, event: Event) -> None:
        self.journal.note(event)
        self.call_times.hear(event)
        tell(self.listener, event)

    def close(self) -> None:
        """Stop the threads, make the log durable, let go of files and lease.  Idempotent.

        A clean close writes the end of the log into TABLE; when that fails the handle is closed all the
        same and the error passes through.  One that is interrupted, or has no memory, leaves the table
        closing, with its lease: another call goes on.  Others wait for it; not those for which it waits.
        """
        self.closing.run(self._close, self._is_awaited)

    def _is_awaited(self) -> bool:
        """Whether a close waits for what this thread has under way: then a listener closes the table."""
        return self.compactions is not None and self.compactions.is_at_work()

    def _close(self) -> None:
        if self.refusal is None:
            self.refusal = f"{self.path} was closed"
        if self.compactions is not None:
            self.compactions.close()
        if self.maintenance is not None:
            self.maintenance.close()
        self._await_calls()
        # From here on no thread of this process writes to the table but this one.
        try:
            if self._home is not None:
                self._home.before_close()
            self._end_log()
        except (OSError, KuduError):
            self._let_go()
            raise
        self._let_go()

    def _end_log(self) -> None:
        end = None if self._log is None else self._log.close()
        if self._log is None or end is None:
            return
        self.table_file.fence()
        for tablet in self.tablets:
            if tablet.manifest is not None:
                tablet.manifest.sync()  # TABLE will say how far they go
        gone, tokens = self.writers.drop_outdated(self._log.durable_ts)
        state = self.table_file.state
        applied_ts = max(self._log.durable_ts, state.applied_ts)
        self.table_file.install(replace(state, tokens=tokens, applied_ts=applied_ts, clean_end=end))
        if gone:
            self.tell(TokensDropped(tokens=len(gone)))

    def _let_go(self) -> None:
        """Of files and threads, and last of the lease."""
        self.pool.close()
        for tablet in self.tablets:
            tablet.close()
        if self.lease is not None:
            self.lease.release()
        self.closing.ended = True

    def _await_calls(self) -> None:
        """Let calls of other threads that write come to their end; those after them find it closed.

        Nothing may be appended behind the log's last fsync, nor a file written without the lease.
        """
        with self.altering:
            for tablet in self.tablets:
                with tablet.flush_lane, tablet.mutex:
                    tablet.is_closed = True
        self.writers.close()

    def retire(self) -> None:
        """A reader's engine after ``refresh``: scans that hold its files read on, nothing else does."""
        self.refusal = f"{self.path} was refreshed"
        self.closing.ended = True

    def discard(self) -> None:
        """After an open that failed: close what it has opened, write nothing."""
        self.refusal = f"{self.path} could not be opened"
        if self.compactions is not None:
            self.compactions.close()
        if self.maintenance is not None:
            self.maintenance.close()
        self.pool.close()
        if self._log is not None:
            self._log.abandon()
        for tablet in self.tablets:
            tablet.close(discard=True)
        self.closing.ended = True

    def abandon(self) -> None:
        """In the child of a fork: let go of the parent's files without touching anything (protocol P1).

        What is in memory, such as the schema, still answers.  Data files close with the objects that read
        them: the cache of pages has a lock, which a thread of the parent may have held.
        """
        self.refusal = (
            f"{self.path} was opened for writing before a fork; open it for reading in the child process, "
            "or send the table there by pickle, which makes a reader of it"
        )
        self.closing.ended = True
        if self._log is not None:
            self._log.abandon()
        for tablet in self.tablets:
            if tablet.manifest is not None:
                tablet.manifest.abandon()
        if self.lease is not None:
            self.lease.abandon()
