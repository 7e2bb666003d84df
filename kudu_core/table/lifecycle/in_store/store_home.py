"""The home of a table in an object store: its checkpoints, and what it deletes (protocol B8, B12, B13)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kudu_core._ext.base.crc32c import crc32c
from kudu_core.common.format.names import epoch_of_file, file_path, tablet_of_folder
from kudu_core.common.run.locks import mutex
from kudu_core.errors import NotSupported
from kudu_core.fs.scratch import scratch_folder
from kudu_core.table.lifecycle.in_store.job_sweep import JobSweep
from kudu_core.table.lifecycle.in_store.table_object import place_of
from kudu_core.table.lifecycle.purge import purge
from kudu_core.table.opened.job_marks import leave_marks
from kudu_core.table.stored.store_place import MAX_SNAPSHOT_BYTES, SnapshotRef
from kudu_core.table.stored.table_state import tablet_directory
from kudu_core.tablet.store.edits import TabletState, file_name
from kudu_core.tablet.store.logged_manifest import LoggedManifest
from kudu_core.tablet.store.manifest import snapshot_bytes
from kudu_core.wal.objects.log_object import FOLDER, OBJECT_HEADER, LogPlace, parse_log_name

if TYPE_CHECKING:
    from kudu_core.common.run.pool import Pool
    from kudu_core.fs.api import FileSystem
    from kudu_core.objects.api import ObjectStore
    from kudu_core.table.lifecycle.in_store.table_object import TableObject
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.stored.home import Home
    from kudu_core.table.stored.table_state import TableState
    from kudu_core.tablet.store.tablet import Tablet

CLOSE_OBJECTS: Final = 64
"""A clean close makes a checkpoint where the log has more objects."""
REQUEST_LIFE_S: Final = 30 * 86_400.0
"""So long after it was sent a request may yet be applied (protocol B5)."""


class StoreHome:
    """See ``Home``.  ``put_checkpoint`` is the log's; everything else is the engine's to call."""

    in_place = True

    def __init__(
        self,
        engine: Engine,
        store: ObjectStore,
        table: TableObject,
        files: FileSystem,
        pool: Pool,
        inherited: Mapping[int, frozenset[str]],
    ) -> None:
        """``inherited``: by tablet, files that durable edits of earlier writers have dropped."""
        self._engine = engine
        self._store = store
        self._table = table
        self._files = files
        self._pool = pool
        self._next_snapshot = 1
        self._mutex = mutex()
        """Guards ``_retired``; held for a moment."""
        self._retired: list[tuple[float, str]] = []
        """When they may be deleted, and names of objects that nobody will name again."""
        self._inherited = inherited
        self._swept = False
        """Whether it was looked for what earlier writers have left."""
        self._closing = False
        self._jobs = JobSweep(engine, store, table, REQUEST_LIFE_S)

    # ---- tablets and ingests ----

    def make_tablets(self, tablets: Sequence[Tablet]) -> None:
        """A tablet is a name; its edits are in the log."""
        for tablet in tablets:
            log, epoch = self._engine.log, self._table.state.epoch
            tablet.manifest = LoggedManifest(log, tablet.id, epoch, tablet.state)

    def remove_tablets(self, tablets: Sequence[Tablet]) -> None:
        """Nothing of them is there but files, of which the ingest knows."""

    def begin_staging(self) -> str:
        """Of runs that are spilled; files of tablets get their names at once."""
        return scratch_folder()

    def end_staging(self, folder: str) -> None:
        try:
            self._delete_unnamed(folder)
        finally:
            self._files.local.rmtree(folder)

    def _delete_unnamed(self, folder: str) -> None:
        """What an ingest that failed has written.  Where the store does not answer, the next opener does."""
        placed = self._engine.tablet_context.placed
        written = [] if placed is None else placed.pop(folder, [])
        if written and self._engine.poisoned is None:
            named = {
                f"{tablet.directory}/{name}"
                for tablet in self._engine.tablets
                if any(path.startswith(f"{tablet.directory}/") for path in written)
                for name in tablet.state.files | tablet.state.retired
            }
            self._delete(self._name_of(path) for path in written if path not in named)

    # ---- checkpoints ----

    def put_checkpoint(self, place: LogPlace) -> None:
        """Snapshots of the tablets with new edits, then TABLE, by which the log begins at ``place``."""
        known = place_of(self._table.state).snapshots
        made = {tablet.id: tablet.manifest.state for tablet in self._engine.tablets if tablet.manifest}
        for tablet in self._engine.tablets:
            if tablet.manifest is not None:
                tablet.manifest.sync()  # after the look: what it says is durable
        new = {i: state for i, state in made.items() if state.number > (known[i].number if i in known else 0)}
        refs = dict(zip(new, self._pool.map(lambda i: self._put_snapshot(i, new[i]), new), strict=True))

        def after(state: TableState) -> TableState:
            snapshots = {**place_of(state).snapshots, **refs}
            listed = {entry.id for entry in state.tablets}
            kept = {i: ref for i, ref in snapshots.items() if i in listed}
            told = replace(
                place_of(state),
                log_first=place.first,
                log_prev=place.prev,
                through=place.through,
                snapshots=kept,
            )
            return replace(state, place=told)

        if self._closing:
            self._table.change(after)  # the close puts it
            return
        self._table.put(after)
        self._retire(f"{_folder(i)}/{ref.name}" for i, ref in known.items() if i in refs)

    def _put_snapshot(self, tablet_id: int, state: TabletState) -> SnapshotRef:
        with self._mutex:
            number, self._next_snapshot = self._next_snapshot, self._next_snapshot + 1
        name = file_name(self._table.state.epoch, number, "manifest")
        data = snapshot_bytes(state, self._engine.uuid, tablet_id)
        if len(data) > MAX_SNAPSHOT_BYTES:
            raise NotSupported(f"the snapshot of tablet {tablet_id} would have {len(data):,} bytes")
        self._store.put(f"{_folder(tablet_id)}/{name}", data)
        return SnapshotRef(name, len(data), crc32c(data), state.number)

    def before_close(self) -> None:
        """A checkpoint, where an open would have to read much of the log."""
        engine, log = self._engine, self._engine.log
        if engine.poisoned is not None or len(log.segments) <= CLOSE_OBJECTS:
            return
        log.wait_durable(log.cut())
        oldest = [tablet.first_ts for tablet in engine.tablets]
        through = min([log.committed_ts, *(ts - 1 for ts in oldest if ts is not None)])
        self._closing = True
        leave_marks(engine.fs, engine.path, engine.writers.applied_jobs, through)
        log.checkpoint(through, {})

    # ---- deletion ----

    def purge(self) -> bool:
        return purge(self._engine)

    def delete_gone(self) -> int:
        """Log objects, snapshots, files of purged tablets, and what earlier writers have left, each when its
        grace is over."""
        if not self._swept:
            self._sweep()
            self._swept = True
        self._retire(self._jobs.due())
        log = self._engine.log
        deleted = int(log.drop_spares() > 0)
        now_s = self._engine.clock.monotonic_s()
        with self._mutex:
            ready = [name for ready_s, name in self._retired if ready_s <= now_s]
        if ready:
            log.raise_if_poisoned()
            self._delete(ready)
            gone = set(ready)
            with self._mutex:
                self._retired = [each for each in self._retired if each[1] not in gone]
        return deleted + len(ready) + self._delete_purged(now_s)

    def _delete_purged(self, now_s: float) -> int:
        engine, deleted = self._engine, 0
        ready = [p for p in engine.purged if p.ready_s <= now_s and all(h() is None for h in p.holders)]
        if not ready:
            return 0
        with engine.altering:
            engine.check_writable()
            listed = {tablet_directory(engine.path, entry.id) for entry in self._table.put_state.tablets}
            if any(purged.directory in listed for purged in ready):
                self._table.put(lambda state: state)  # no TABLE names them any more
            for purged in ready:
                self._files.rmtree(purged.directory)
                engine.purged.remove(purged)
                deleted += 1
        return deleted

    def _sweep(self) -> None:
        """Retire what is of an earlier epoch and what nobody names (protocol B13)."""
        engine, epoch = self._engine, self._table.state.epoch
        named = {f"{_folder(i)}/{ref.name}" for i, ref in place_of(self._table.put_state).snapshots.items()}
        for tablet in engine.tablets:
            state = tablet.state
            own = state.retired - self._inherited.get(tablet.id, frozenset())
            named.update(f"{_folder(tablet.id)}/{name}" for name in state.files | own)
        orphans = [
            self._name_of(file_path(tablet_directory(engine.path, i), name))
            for i, names in self._inherited.items()
            for name in names
        ]
        for entry in self._store.entries("tablets"):
            _, folder, name = entry.name.split("/", 2) if entry.name.count("/") == 2 else ("", "", "")
            of = epoch_of_file(name)
            if of is not None and of < epoch and tablet_of_folder(folder) and entry.name not in named:
                orphans.append(entry.name)
        first = place_of(self._table.put_state).log_first
        oldest_s = engine.clock.now_us() / 1e6 - REQUEST_LIFE_S
        for entry in self._store.entries(FOLDER):
            n = parse_log_name(entry.name)
            is_fence = entry.size == OBJECT_HEADER.size
            if n is not None and n < first and (not is_fence or entry.mtime_s < oldest_s):
                orphans.append(entry.name)
        self._retire(dict.fromkeys(orphans))
        for tablet in engine.tablets:
            tablet.forget(self._inherited.get(tablet.id, frozenset()))

    def _retire(self, names: Iterable[str]) -> None:
        ready_s = self._engine.clock.monotonic_s() + self._engine.options.file_grace_s
        with self._mutex:
            known = {name for _, name in self._retired}  # a sweep finds them again, until they are deleted
            self._retired += [(ready_s, name) for name in names if name not in known]

    def _delete(self, names: Iterable[str]) -> None:
        gone = list(names)
        if gone:
            self._store.delete_many(gone)

    def _name_of(self, path: str) -> str:
        return path[len(self._engine.path) + 1 :]


def _folder(tablet_id: int) -> str:
    return tablet_directory("", tablet_id)[1:]


if TYPE_CHECKING:

    def _checked(home: StoreHome) -> Home:
        return home


__all__ = ["StoreHome"]
