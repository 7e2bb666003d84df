"""A restore whose rows are read, put in order and into files by many processes.

    shares -> (tasks: stage_shares -> StagedRun) -> (tasks: resolve -> Resolution) -> one commit

It is a distributed write (``commit.py``) into the table that the restore makes beside its place: each
backup's rows are runs of a job, and of one key those of a later backup come later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from kudu_core.common.run.clock import Clock
from kudu_core.common.schema.column_names import OP_COLUMN
from kudu_core.table.backup.backup_file import BackupFile
from kudu_core.table.backup.backup_manifest import read_manifest
from kudu_core.table.backup.backup_place import place_at
from kudu_core.table.backup.restore import Chain, Fill, batches_of
from kudu_core.table.jobs import commit
from kudu_core.table.jobs.apply_job import files_of
from kudu_core.table.jobs.commit import Job
from kudu_core.table.jobs.stager import APPLY, JobStager
from kudu_core.table.runs.resolution import Resolution
from kudu_core.table.runs.staged import StagedRun

if TYPE_CHECKING:
    from kudu_core.table.opened.handle import Handle


@dataclass(frozen=True, slots=True)
class RunShare:
    """One run of a backup, to be staged.  Picklable."""

    folder: str
    place: int
    """Of its backup in the chain; 0: the full one."""
    number: int
    """The backup's."""
    run: BackupFile

    @property
    def rows(self) -> int:
        return self.run.rows


Staged = tuple[int, StagedRun]
"""A staged run, behind the place of its backup."""
Stage = Callable[[Job, Sequence[RunShare]], Sequence[Staged]]
"""Has ``stage_shares`` done with all shares, somewhere."""
Resolve = Callable[[Job, Sequence[StagedRun]], Sequence[Resolution]]
"""Has ``resolve`` done with the runs of all tablets, somewhere."""


def filling(stage: Stage, resolve: Resolve | None) -> Fill:
    """What ``restore`` takes to have the rows written so; ``resolve``: None, the commit does it."""

    def fill(handle: Handle, chain: Chain) -> None:
        columns = [(OP_COLUMN, "string"), *((c.name, c.type.name) for c in handle.engine.schema.columns)]
        # Rows of a key are applied in the order of the runs, as calls of one batch would be.
        job = commit.begin(handle, APPLY, columns, on_duplicate="any")
        staged = sorted(stage(job, shares_of(chain)), key=lambda found: found[0])
        runs = [run for _, run in staged if run.ordinal >= 0 or not chain.has_moved]
        found = () if resolve is None or _is_small(job, runs) else resolve(job, runs)
        commit.commit_job(job, runs, handle, found)

    return fill


def _is_small(job: Job, runs: Sequence[StagedRun]) -> bool:
    return commit.is_small(commit.form_of(job).options, runs)


def shares_of(chain: Chain) -> list[RunShare]:
    """All runs, oldest backup first."""
    return [
        RunShare(chain.folder, place, manifest.number, run)
        for place, manifest in enumerate(chain.manifests)
        for run in manifest.runs
    ]


def stage_shares(
    job: Job, shares: Sequence[RunShare], name: str, storage_options: Mapping[str, Any] | None = None
) -> list[Staged]:
    """Stage the rows of runs, neighbours together; ``name``: what the names of the files begin with;
    ``storage_options``: of the backups."""
    form = commit.form_of(job)
    staged: list[Staged] = []
    for place, of_backup in groupby(shares, key=lambda share: share.place):
        some = list(of_backup)
        fs = place_at(some[0].folder, storage_options, Clock()).fs
        manifest = read_manifest(fs, some[0].folder, some[0].number)
        is_full = manifest.since is None
        # Rows of a full backup are new ones: what is staged of them may be a rowset as it is.
        own = replace(form, operation="insert") if is_full else form
        stager = JobStager(files_of(job), job.directory, own, f"{name}-b{place}")
        for share in some:
            for batch in batches_of(fs, share.folder, manifest, share.run, form.schema):
                stager.append(batch.drop_columns([OP_COLUMN]) if is_full else batch)
        staged += ((place, run) for run in stager.finish())
    return staged


__all__ = ["RunShare", "Staged", "filling", "shares_of", "stage_shares"]
