"""Minor and major delta compaction, merging compaction.  Steps of a writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model import history
from tests.model.rules import Violation
from tests.model.stores import FOREVER, Change, DeltaFile, DeltaMemStore, Job, RowSet, Tablet, Undo, updated

if TYPE_CHECKING:
    from tests.model.protocol import Writer

JOBS = 2  # at once in one tablet


def step(writer: Writer) -> None:
    """Begin a compaction or take one further."""
    candidates = [t for t in writer.free_tablets() if t.rowsets]
    if not candidates:
        return
    tablet = writer.rng.choice(candidates)
    if tablet.jobs and (len(tablet.jobs) == JOBS or writer.rng.random() < 0.6):
        job = writer.rng.choice(tablet.jobs)
        if job.kind == "merge":
            continue_merge(writer, tablet, job)
        else:
            install_deltas(writer, tablet, job)
    elif writer.rng.random() < 0.5:
        begin_merge(writer, tablet)
    else:
        begin_deltas(writer, tablet)


def free_rowsets(tablet: Tablet) -> list[RowSet]:
    claimed = tablet.claimed()
    return [rowset for rowset in tablet.rowsets if rowset.id not in claimed]


# -- minor and major -----------------------------------------------------------------------------------------


def begin_deltas(writer: Writer, tablet: Tablet) -> None:
    """Protocol M1, M2: a prefix of the REDO files is merged, or folded into new base columns."""
    candidates = [rowset for rowset in free_rowsets(tablet) if rowset.leading_files()]
    if not candidates:
        return
    rowset = writer.rng.choice(candidates)
    count = writer.rng.randint(1, rowset.leading_files())
    changes = sorted((c for s in rowset.deltas[:count] for c in s.changes), key=lambda c: (c.rowid, c.ts))
    if writer.rng.random() < 0.3:
        tablet.jobs.append(Job("minor", [rowset], 0, left=tuple(changes), count=count))
        return
    columns = writer.rng.choice(({0}, {1}, {0, 1}))
    horizon = writer.horizon_of(tablet)
    rows = list(rowset.rows)
    left = []
    for change in changes:
        if change.value is None:
            left.append(change)
            continue
        folded = {c: v for c, v in change.value.items() if c in columns}
        other = {c: v for c, v in change.value.items() if c not in columns}
        if folded:
            row = rows[change.rowid]
            before = Undo(change.ts, "update", {c: row.image[c] for c in folded})
            undo = tuple(sorted((before, *row.undo), key=lambda u: -u.ts))
            rows[change.rowid] = row._replace(image=updated(row.image, folded), undo=undo)
        if other:
            left.append(change._replace(value=other))
    rows = [row._replace(undo=tuple(u for u in row.undo if u.ts > horizon)) for row in rows]
    tablet.jobs.append(Job("major", [rowset], horizon, tuple(rows), tuple(left), count))
    writer.note("major: written", tablet.id, rowset.id, columns, "horizon", horizon)


def install_deltas(writer: Writer, tablet: Tablet, job: Job) -> None:
    tablet.jobs.remove(job)
    old = job.inputs[0]
    gone = [store.file for store in old.deltas[: job.count] if isinstance(store, DeltaFile)]
    deltas = old.deltas[job.count :]
    if job.left:
        deltas.insert(0, DeltaFile(writer.disk.new_file(job.left), job.left))
    base, base_ts, rows = old.base, old.base_ts, old.rows
    if job.kind == "major":
        gone.append(base)
        base, base_ts, rows = writer.disk.new_file(job.rows), None, job.rows
    new = RowSet(old.id, base, base_ts, rows, deltas, old.d)
    tablet.rowsets[tablet.rowsets.index(old)] = new
    writer.note(f"{job.kind}: install", tablet.id, old.id)
    writer.edit(tablet, [new], h=job.horizon)
    writer.drop_later(tablet, gone)


# -- merging -------------------------------------------------------------------------------------------------


def begin_merge(writer: Writer, tablet: Tablet) -> None:
    """Protocol C1, C2."""
    free = free_rowsets(tablet)
    if not free:
        return
    inputs = writer.rng.sample(free, writer.rng.randint(1, min(3, len(free))))
    p = writer.cut()
    horizon = min(writer.horizon_of(tablet), p)
    by_key: dict[int, list[history.Events]] = {}
    for rowset in inputs:
        for rowid, row in enumerate(rowset.rows):
            by_key.setdefault(row.key, []).append(history.of_rowset(rowset, rowid, p))
    histories = [(key, history.join(by_key[key], horizon, writer.rules)) for key in sorted(by_key)]
    rows, deletes, rowids = history.build(histories, horizon)
    tablet.jobs.append(Job("merge", inputs, horizon, rows, deletes, rowids=rowids, q=p))
    writer.note("merge: written", tablet.id, [r.id for r in inputs], p, "horizon", horizon)


def missed(job: Job, above: int, through: int) -> tuple[Change, ...]:
    """The inputs' changes in (above, through], through the map."""
    found = []
    for rowset in job.inputs:
        for change in rowset.changes(above, through):
            key = rowset.rows[change.rowid].key
            if key not in job.rowids:
                raise Violation(f"C4: change of the dropped key {key} at {change.ts}")
            found.append(change._replace(rowid=job.rowids[key]))
    return tuple(sorted(found, key=lambda change: change.ts))


def continue_merge(writer: Writer, tablet: Tablet, job: Job) -> None:
    """Protocol C3: a round; protocol C4: the install."""
    how = writer.rules.merge_catch_up
    again = max(rowset.d for rowset in job.inputs) > job.q or writer.rng.random() < 0.2
    if how != "memory" and (not job.rounds or (how == "rounds" and again)):
        q = max(writer.cut(), job.q)
        changes = missed(job, job.q, q)
        if changes:
            job.caught.append(changes)
        job.rounds, job.q = job.rounds + 1, q
        writer.note("merge: round", tablet.id, q)
        return
    d = writer.cut() if writer.rules.merge_stamp == "install" else job.q
    if not writer.durable_through(d):
        return
    tablet.jobs.remove(job)
    added = []
    disk = writer.disk
    if job.rows:
        files = [changes for changes in (job.left, *job.caught) if changes]
        deltas: list[DeltaFile | DeltaMemStore] = [DeltaFile(disk.new_file(c), c) for c in files]
        added.append(RowSet(disk.new_id(), disk.new_file(job.rows), None, job.rows, deltas, d))
    for change in missed(job, job.q, FOREVER):
        added[0].active().changes.append(change)
    if writer.environment.invariants and any(rowset.d > d for rowset in job.inputs):
        raise Violation(f"N6: the outputs' D {d} lies below an input's")
    for rowset in job.inputs:
        tablet.rowsets.remove(rowset)
    tablet.rowsets += added
    writer.note("merge: install", tablet.id, [r.id for r in job.inputs], [r.id for r in added], d)
    writer.edit(tablet, added, remove=tuple(r.id for r in job.inputs), h=job.horizon, mark=d)
    writer.drop_later(tablet, [file for rowset in job.inputs for file in rowset.files()])
