"""One tablet: its view, its mutex, its manifest and its counters.

The walks (write, flush, delta flush, ingest, scan, replay) are files beside this one and work on
a ``Tablet``; this file holds the state that they share and the one door by which the view changes.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kudu_core.cfile.pages.page_cache import PageCache
from kudu_core.common.format.names import root_of
from kudu_core.common.partition.told_partitions import Partition
from kudu_core.common.run.clock import Clock
from kudu_core.common.run.gates import Slots
from kudu_core.common.run.held_memory import WorkingMemory
from kudu_core.common.run.locks import mutex, reentrant
from kudu_core.common.run.pool import Pool
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import Closed, InternalError, SchemaMismatch
from kudu_core.options import Options
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.rowset.rows.meta import RowSetMeta
from kudu_core.tablet.store.edits import Edit, TabletState, file_name
from kudu_core.tablet.store.garbage import Garbage
from kudu_core.tablet.store.manifest import OpenManifest
from kudu_core.tablet.view.view import View

if TYPE_CHECKING:
    from kudu_core.common.types.types import ColumnType
    from kudu_core.fs.api import FileSystem
    from kudu_core.wal.appending import AppendingLog


def _no_cut() -> int:
    raise AssertionError("a table open for reading freezes nothing once it is laid out")


_ROWSETS_PER_EPOCH_BITS = 32


@dataclass(slots=True)
class TabletContext:
    """What the tablets of one open table share."""

    fs: FileSystem
    options: Options
    clock: Clock
    cache: PageCache
    table_uuid: bytes
    epoch: int
    log: AppendingLog | None
    """None in a table that is open for reading."""
    schema: Callable[[], Schema]
    """The table's newest schema."""
    stored: Callable[[], Schema]
    """The columns that new files hold: those of the newest schema, and dropped ones that a scan which was
    made before may still ask for."""
    types: Callable[[], Mapping[int, ColumnType]]
    """By id, of those columns that may lie in files as others."""
    pool: Pool
    """For work on several files at once; never from a task of the pool itself."""
    cut: Callable[[], int] = _no_cut
    """Under a tablet's mutex: a timestamp such that every record at or below it is applied there and
    every later record has a larger one.  The log's last record; in replay, the last one replayed."""
    check: Callable[[Tablet], None] | None = None
    """Asserts the invariants of docs/protocol.md after each install (the debug switch)."""
    fence: Callable[[], None] = lambda: None
    """Raises ``Fenced`` when another writer has the table (protocol P2)."""
    has_readers: Callable[[], bool] = lambda: True
    """Whether somebody else may have the table open for reading."""
    work: WorkingMemory = field(default_factory=WorkingMemory)
    """What flushes and merges hold while they run."""
    building: Slots = field(default_factory=lambda: Slots(1))
    """Taken by a merge that writes its outputs in this process: each takes its share of the memory limit."""
    placed: dict[str, list[str]] | None = None
    """By the folder of an ingest: paths of the files that it has written under their names in a tablet,
    installed or not.  None: ingests write to their folders, and link."""


class Tablet:
    """One horizontal partition of a table."""

    def __init__(
        self,
        context: TabletContext,
        tablet_id: int,
        partition: Partition,
        directory: str,
        state: TabletState,
        manifest: OpenManifest | None,
        *,
        created_ts: int = 0,
        dropped_ts: int | None = None,
    ) -> None:
        self.context = context
        self.id = tablet_id
        self.partition = partition
        self.created_ts = created_ts
        self.dropped_ts = dropped_ts
        """When its range was dropped, or the table overwritten: snapshots from then on do not see it
        (protocol A3, G7)."""
        self.directory = directory
        self.manifest = manifest
        self.mutex = reentrant()
        """Guards writes of this tablet and installs into its view.  Taken in tablet order, before
        the log's mutex, never after it."""
        self.flush_lane = mutex()
        """One flush of this tablet at a time, so that installs follow the freeze order (protocol F3)."""
        self.compacting: set[int] = set()
        """Rowsets on which a compaction works (protocol M3).  Under the mutex."""
        self.garbage = Garbage(context.fs, directory)
        self.state = state
        self._syncing_mutex = mutex()
        self._numbers = mutex()
        self._next_file = state.next_file
        # Ids begin anew in each epoch: an ingest that is only in the log names some of the epoch before,
        # and a flush between two replayed records must not take them.
        self._next_rowset = max(state.next_rowset, context.epoch << _ROWSETS_PER_EPOCH_BITS)
        rowsets = tuple(self.rowset(meta) for meta in state.rowsets.values())
        schema = context.schema()
        self.view = View(MemRowSet(schema), types_version=schema.cells).with_rowsets(rowsets)
        self.is_closed = False
        """Set under the flush lane and the mutex: nothing is flushed or installed any more."""
        self.newest_applied = 0
        """Timestamp of the newest record applied here; writers that have nothing to log wait for it."""

    def is_there(self, snapshot: int) -> bool:
        """Whether it was one of the table's at that time."""
        return self.created_ts <= snapshot and (self.dropped_ts is None or snapshot < self.dropped_ts)

    def rowset(self, meta: RowSetMeta) -> DiskRowSet:
        """A rowset of the tablet, in no view yet, whose columns are of the types of today."""
        context = self.context
        return DiskRowSet.make(context.fs, self.directory, meta, context.cache, context.types())

    def home_of(self, place: int) -> MemRowSet | DiskRowSet:
        """Under the mutex: the store that takes changes of rows of the view's store there."""
        home = self.view.stores[place]
        if isinstance(home, DiskRowSet) and home.active is None:
            home = home.with_active()
            self.view = self.view.with_rowset(home)
        return home

    def view_of(self, schema: Schema) -> View:
        """The view, as one whose stores give columns of the types that they have in ``schema``: of a read at
        a time of that.  Where a change of types is under way, once it is over."""
        view, version = self.view, schema.cells
        if view.types_version < version:
            with self.mutex:
                view = self.view
        if view.types_version == version:
            return view
        if self.context.log is None and view.memory_bytes:
            raise SchemaMismatch(
                f"types of columns of {self.directory} have changed since the read was made, and its files "
                "were replaced; make it again"
            )
        return view.typed(schema, self.context.schema())

    # ---- numbers ----

    def new_file(self, kind: str) -> str:
        """A file name never used before in this tablet."""
        with self._numbers:
            number = self._next_file
            self._next_file += 1
        return file_name(self.context.epoch, number, kind)

    def taken_in(self, path: str, kind: str) -> tuple[str, tuple[str, str] | None]:
        """The name in the tablet of a file of a task, and what is to be linked, (path, name).  In
        a store nothing is: the file stays where it is, and has a name that says so."""
        if self.context.placed is not None:
            return path.removeprefix(f"{root_of(self.directory)}/"), None
        name = self.new_file(kind)
        return name, (path, name)

    def new_rowset_id(self) -> int:
        with self._numbers:
            number = self._next_rowset
            self._next_rowset += 1
        return number

    def claim_rowset_id(self, rowset_id: int) -> None:
        """A replayed record uses this id: give it to nobody else."""
        with self._numbers:
            self._next_rowset = max(self._next_rowset, rowset_id + 1)

    # ---- the one door ----

    def install(self, view: View, edit: Edit, ingest_ts: int | None = None) -> None:
        """Replace the view and append the edit that says so; durable after ``manifest.sync()``.

        Under the mutex.  The log must be durable through every timestamp that the edit names (protocol E1).
        ``ingest_ts``: of the INGEST record that the edit installs, which says it where edits are in the log.
        """
        assert self.manifest is not None and self.context.log is not None
        self.check_open()
        if edit.newest_ts > self.context.log.durable_ts:
            raise InternalError(
                f"tablet {self.id}: an edit names {edit.newest_ts}, and the log is on disk up to "
                f"{self.context.log.durable_ts}; nothing was written"
            )
        numbered = self.numbered(edit)
        try:
            if ingest_ts is None:
                self.manifest.append(numbered)
            else:
                self.manifest.take(numbered, ingest_ts)
            self.state = self.manifest.state
            self.view = view
        except BaseException as exc:
            if self.manifest.state is not self.state:  # an interrupt: the edit is there, the view is not
                self.context.log.poison(exc)
            raise
        if self.context.check is not None:
            self.context.check(self)

    def numbered(self, edit: Edit) -> Edit:
        """The edit, which says from where on numbers are free."""
        with self._numbers:
            return replace(edit, next_file=self._next_file, next_rowset=self._next_rowset)

    # ---- files that no edit names any more ----

    def retire(self, names: Iterable[str], holders: Iterable[object]) -> None:
        """Under the mutex, after the install that dropped the files."""
        ready_s = self.context.clock.monotonic_s() + self.context.options.file_grace_s
        self.garbage.retire(names, holders, ready_s, self.state.number)

    def collect_garbage(self) -> tuple[int, int]:
        """Delete retired files that nobody can read any more: (files, bytes).

        ``Poisoned`` and ``Fenced`` pass through.
        """
        manifest, log = self.manifest, self.context.log
        assert manifest is not None and log is not None

        def check() -> None:
            log.raise_if_poisoned()
            self.context.fence()

        now_s = self.context.clock.monotonic_s()
        gone, files, freed = self.garbage.collect(
            now_s, manifest.durable_number, self.context.has_readers, check
        )
        if gone:
            self.forget(gone)
        return files, freed

    def forget(self, names: Iterable[str]) -> None:
        """Retired files that are deleted: no manifest need tell of them any more."""
        with self.mutex:
            if self.manifest is not None:
                self.manifest.forget(names)
                self.state = self.manifest.state

    def check_open(self) -> None:
        """Under the flush lane or the mutex: ``Closed`` once the table was closed."""
        if self.is_closed:
            raise Closed(f"the table of {self.directory} was closed")

    def sync_directory(self) -> None:
        """Make the names of new files durable.  A failed fsync is final (protocol W8): a second one may
        succeed without the names that the first one lost.

        One at a time, so that no other thread's begins between a failure and the poison that tells of it.
        """
        with self._syncing_mutex:
            try:
                self.context.fs.sync_dir(self.directory)
            except OSError as exc:
                if self.context.log is not None and exc.errno not in (errno.EMFILE, errno.ENFILE):
                    self.context.log.poison(exc)
                raise

    # ---- what maintenance and the log ask ----

    @property
    def first_ts(self) -> int | None:
        """The oldest insert or change that only memory holds, None when there is none."""
        view = self.view
        stamps = [m.first_ts for m in (view.active, *view.frozen)]
        stamps += [log.first_ts for r in view.changed for log in r.memory_stores]
        known = [ts for ts in stamps if ts is not None]
        return min(known) if known else None

    @property
    def memory_bytes(self) -> int:
        return self.view.memory_bytes

    @property
    def rowset_metas(self) -> tuple[RowSetMeta, ...]:
        return tuple(r.meta for r in self.view.rowsets)

    def close(self, *, discard: bool = False) -> None:
        """Let go of the files.  ``discard``: nobody has read from this tablet, so they are closed at once."""
        for rowset in self.view.rowsets:
            rowset.let_go(close=discard)
        if self.manifest is not None:
            self.manifest.close()


def newest_of(tablets: Sequence[Tablet]) -> int:
    """Timestamp of the newest record applied to any of the tablets."""
    return max((t.newest_applied for t in tablets), default=0)


def freeze_memrowset(tablet: Tablet) -> bool:
    """Close the active MemRowSet for inserts; False when there is nothing to flush (protocol F1)."""
    with tablet.mutex:
        active = tablet.view.active
        if not len(active):
            return False
        cut = tablet.context.cut()
        view = replace(
            tablet.view,
            active=MemRowSet(tablet.context.schema()),
            frozen=(*tablet.view.frozen, active),
        )
        # Two plain stores: an interrupt comes before both or after both.
        active.frozen_at = cut
        tablet.view = view
        return True
