"""A table made for merges: what was written is known, every readable state of it can be checked."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import kudu_core as kc
from kudu_core.common.run.locks import Claim
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.table.jobs.merge_job import RemoteMergeTask, build_task, builder_of
from kudu_core.tablet.compact.merge import Merged, merge_rowsets
from kudu_core.tablet.maintain.delta_policy import MAJOR, MINOR
from kudu_core.tablet.store.tablet import Tablet
from tests.support.faults import drop
from tests.support.inside import engine_of, flush_lane_of, handle_of, tablet_of
from tests.support.models.changes import check_changes
from tests.support.models.history import SCHEMA, Batch, History

OPTIONS = {"maintenance": "manual", "durability": "none", "file_grace_s": 0, "ingest_threshold_rows": 60}

Hook = Callable[[str], None]


class Merging:
    """One tablet, with its history."""

    def __init__(self, path: Path, requests: object = None, **options: Any) -> None:
        """``requests``: of the object store that the path, a URL, leads to."""
        self.path = path
        self.history = History()
        told = {**OPTIONS, **options}
        self.table = kc.create_table(path, SCHEMA, "k", options=told, _requests=requests)

    @property
    def tablet(self) -> Tablet:
        return tablet_of(self.table)

    @property
    def rowsets(self) -> tuple[DiskRowSet, ...]:
        return self.tablet.view.rowsets

    @property
    def ids(self) -> list[int]:
        return [rowset.id for rowset in self.rowsets]

    # ---- writes ----

    def write(self, *calls: tuple[str, list[dict[str, Any]]]) -> int:
        """One batch of several calls; its time."""
        batch: Batch = list(calls)
        self.history.write(self.table, batch)
        return self.history.writes[-1] if self.history.writes else 0

    def put(self, *keys: int, a: int, op: str = "insert") -> int:
        return self.write((op, [{"k": k, "a": a, "b": f"b{a}", "c": a / 2} for k in keys]))

    def set(self, *keys: int, **values: Any) -> int:
        return self.write(("update", [{"k": k, **values} for k in keys]))

    def delete(self, *keys: int) -> int:
        return self.write(("delete", [{"k": k} for k in keys]))

    def flush(self) -> None:
        """MemRowSets only: changes of rowsets stay in memory."""
        flush_lane_of(self.table).flush(self.tablet)

    def flush_all(self) -> None:
        self.table.flush()

    # ---- the merge ----

    def merge(self, ids: Sequence[int] | None = None, at_step: Hook | None = None, **more: Any) -> Merged:
        engine = engine_of(self.table)
        done = merge_rowsets(
            self.tablet,
            self.ids if ids is None else ids,
            horizon=lambda drop: engine.horizon(drop=drop),
            at_step=at_step or (lambda step: None),
            **more,
        )
        assert done is not None
        return done

    def once(self, step: str, what: Callable[[], object]) -> Hook:
        """A hook that does something at the first of these steps."""
        left = [what]

        def hook(at: str) -> None:
            if at == step and left:
                left.pop()()

        return hook

    # ---- checks ----

    def check(self, *, changes: bool = True) -> None:
        """Every readable state, by scan and by key, and the changes from a few of them on."""
        engine = engine_of(self.table)
        engine.log.wait_durable(engine.log.cut())
        times = [t for t in self.history.writes if t >= engine.oldest_ts]
        if self.history.writes and not times:
            times = [engine.visible_ts]
        for time in times:
            wanted = self.history.past.at(time)
            found = {(r["k"],): (r["a"], r["b"], r["c"]) for r in self.table.scan(at=time).to_pylist()}
            assert found == wanted, f"the state at {time}"
            for key in list(self.history.past.at(times[-1]))[:5] + list(wanted)[:5]:
                row = self.table.get(key[0], at=time)
                assert (None if row is None else (row["a"], row["b"], row["c"])) == wanted.get(key)
        assert self.table.count() == len(self.history.model.state())
        if changes:
            for since in times[:: max(1, len(times) // 5)]:
                check_changes(self.table, self.history, since, times[-1])
        self.table.verify()

    def crash(self) -> None:
        """The process dies; the table is opened again."""
        engine = engine_of(self.table)
        engine.log.wait_durable(engine.log.cut())
        drop(self.table)
        engine.lease.release()  # type: ignore[union-attr]
        self.table = kc.open_table(self.path, "rw")

    def reopen(self) -> None:
        self.table.close()
        self.table = kc.open_table(self.path, "rw")

    def files(self) -> set[str]:
        """Files in the tablet's folder that its manifest does not name."""
        folder = self.path / "tablets/00000001"
        named = {file.name for meta in self.tablet.rowset_metas for file in meta.files}
        return {p.name for p in folder.iterdir()} - named - {"MANIFEST", "MANIFEST.copy"}


def undo_of(rowset: DiskRowSet, row: int) -> list[tuple[int, int]]:
    """(timestamp, operation) of a row's UNDO records, newest first."""
    found = []
    for store in rowset.undo:
        rowids, timestamps, ops = store.open().entries()
        assert timestamps is not None
        mine = rowids == row
        found += list(zip(timestamps[mine].tolist(), ops[mine].tolist(), strict=True))
    return found


def random_compaction(table: kc.Table, rng: random.Random) -> bool:
    """One compaction of one rowset, of a random kind and of random columns."""
    engine = engine_of(table)
    rowsets = [(t, r) for t in engine.tablets for r in t.view.rowsets if r.meta.redo]
    if not rowsets:
        return False
    tablet, rowset = rng.choice(rowsets)
    columns = [c.id for c in engine.schema.value_columns if rng.random() < 0.6]
    assert engine.compactions is not None
    return engine.compactions.compact(tablet, rowset.id, rng.choice((MINOR, MAJOR, MAJOR)), columns)


class Builder:
    """Tasks that are run here, on a table that is open for reading as in a worker."""

    def __init__(self, table: kc.Table) -> None:
        self.table = table
        self.claim = Claim(engine_of(table).writers.committing)
        self.reader: kc.Table | None = None
        """Kept open from task to task."""
        self.tasks: list[RemoteMergeTask] = []
        self.answers: list[bytes] = []
        self.between: Callable[[], object] = lambda: None
        """Called before each task and after the last."""

    def run(self, tasks: Sequence[RemoteMergeTask]) -> list[bytes]:
        self.tasks, self.answers = list(tasks), []
        for number, task in enumerate(tasks):
            self.between()
            if self.reader is None:
                self.reader = kc.open_table(task.table_path, options={"scan_threads": 1})
            self.answers += build_task(handle_of(self.reader), pickle.loads(pickle.dumps(task)), f"a{number}")
        self.between()
        self.answers.reverse()
        return self.answers

    def __call__(self, *arguments: Any) -> Any:
        return builder_of(engine_of(self.table), self.run, self.claim)(*arguments)
