"""Merges of a table whose outputs other processes build (protocol C2).

Everything else of a merge, the choice, what is written meanwhile and the install, is the lease holder's.

A task reads the table and writes into the merge's folder in ``staging/``, under names of its own, so it may
fail, be repeated, run twice at once or outlive its merge: only what the merge links counts.

In an object store, where nothing can be linked, the folder is that of a job without JOB and mark: the tablets
take in its files where they are, and what they do not name is left to the sweep (protocol B13).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kudu_core.common.format.names import JOB
from kudu_core.common.run.locks import Claim
from kudu_core.common.run.ordering import distinct
from kudu_core.table.lifecycle.staging_folders import remove
from kudu_core.table.opened.job_marks import files_directory
from kudu_core.tablet.compact.merge import MergeBuilder
from kudu_core.tablet.compact.merge_remote import BuiltRange, Order, adopt, build_ranges, newest_in_memory
from kudu_core.tablet.compact.merge_task import MergeOutput, MergeTask

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.opened.handle import Handle
    from kudu_core.tablet.store.tablet import Tablet

SMALL_BYTES = 32 << 20
"""Of the files that a merge reads: with less it is built by the lease holder.  To send it costs some 0.3 s,
in which about 10 MiB are merged, and is to be a small part of the work."""

TASK_BYTES = 64 << 20
"""Of the files that one task of a merge reads, about: its neighbouring ranges, each of about one output."""

LOOKS = 20
LOOK_PAUSE_S = 0.05
"""How often, and how long apart, a task looks whether it sees the table as the merge does."""


@dataclass(frozen=True, slots=True)
class RemoteMergeTask:
    """A part of one merge task, for another process.  Picklable."""

    table_path: str
    table_uuid: str
    order: Order
    rows: int
    """Of the inputs."""
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    """Of a table in an object store: what its client was given."""


TaskRunner = Callable[[Sequence[RemoteMergeTask]], Sequence[bytes]]
"""Has ``build_task`` done with all tasks, somewhere: what it answered."""


def builder_of(engine: Engine, run: TaskRunner, claim: Claim) -> MergeBuilder:
    """What a merge of the table asks first to write its outputs; those of small merges it leaves to it.

    ``claim``, of ``engine.writers.committing``, is to end after the merges: in an object store it keeps the
    sweep from files that tasks have put and no tablet names yet.
    """

    def build(tablet: Tablet, task: MergeTask, edges: np.ndarray) -> list[MergeOutput] | None:
        if sum(source.rowset.meta.size_bytes for source in task.sources) < SMALL_BYTES:
            return None
        engine.log.wait_committed(newest_in_memory(task))  # else no other process sees it
        if engine.in_store:
            job = f"{JOB}{uuid.uuid4().hex}"
            claim.take([job])
            return taken(tablet, task, edges, files_directory(engine.path, job))
        name = f"merge-{uuid.uuid4().hex}"
        directory = f"{engine.path}/staging/{name}"
        engine.fs.mkdir(f"{engine.path}/staging", exist_ok=True)
        with Claim(engine.writers.committing, name):
            try:
                engine.fs.mkdir(directory)
                return taken(tablet, task, edges, directory)
            finally:
                remove(engine.fs, directory)

    def taken(
        tablet: Tablet, task: MergeTask, edges: np.ndarray, directory: str
    ) -> list[MergeOutput] | None:
        told = run(_tasks(engine, tablet, task, edges, directory))
        built = [BuiltRange.from_bytes(one) for one in told]
        task.check()
        if sorted(one.number for one in built) != list(range(len(edges) - 1)):
            return None  # some task did not see the rowsets as they are
        return adopt(tablet, task, edges, directory, built)

    return build


def _tasks(
    engine: Engine, tablet: Tablet, task: MergeTask, edges: np.ndarray, directory: str
) -> list[RemoteMergeTask]:
    each = np.array([source.rowset.meta.size_bytes / source.rows for source in task.sources])
    # By the middle of a range among all bytes.
    middles = ((edges[:-1] + edges[1:]) / 2 * each).sum(axis=1) // TASK_BYTES
    known = engine.table_file.storage_options
    tasks = []
    for place in distinct(middles).tolist():
        numbers = np.flatnonzero(middles == place).tolist()
        order = Order.of(tablet, task, edges, numbers, directory)
        rows = int((edges[numbers[-1] + 1] - edges[numbers[0]]).sum())
        tasks.append(RemoteMergeTask(engine.path, engine.uuid.hex(), order, rows, known))
    return tasks


def build_task(handle: Handle, task: RemoteMergeTask, name: str) -> list[bytes]:
    """What a task does, with the table open for reading.  ``name``: the attempt's, as no other's.

    It answers for all of its ranges, or for none where the table is not as the merge has it.
    """
    order = task.order
    for look in range(LOOKS):
        if look:
            handle.engine.clock.sleep(LOOK_PAUSE_S)
            handle.refresh()
        engine = handle.opened()
        if engine.uuid.hex() != task.table_uuid:
            break
        tablet = next((t for t in engine.tablets if t.id == order.tablet_id), None)
        if tablet is None or engine.visible_ts < order.seen:
            continue
        built = build_ranges(tablet, order, name)
        if built is not None:
            return [one.to_bytes() for one in built]
    return []


__all__ = ["RemoteMergeTask", "TaskRunner", "build_task", "builder_of"]
