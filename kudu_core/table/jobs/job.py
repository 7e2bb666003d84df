"""What a distributed write is, in plain values, and its file JOB in staging.  Layout: docs/format.md."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kudu_core.common.format.members import BROKEN, flag, parsed, text
from kudu_core.common.idempotence.writers import CHECK, Txn, check_txn
from kudu_core.common.run.cycles import cycles_left
from kudu_core.errors import Corruption, InvalidArgument, NotSupported
from kudu_core.objects.urls import is_url
from kudu_core.table.calls.conform import OPERATIONS
from kudu_core.table.jobs.stager import APPLY, Form
from kudu_core.table.lifecycle.staging_folders import MAX_SEALED_BYTES, SEALED
from kudu_core.table.opened.job_marks import files_directory, job_directory
from kudu_core.table.runs.staged import StagedRun

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

JOB_OPERATIONS = (*OPERATIONS, APPLY)
OVERWRITING = ("insert", "upsert")
"""Operations of a job that overwrites the table: in new tablets, both insert."""
ON_DUPLICATE = ("error", "last", "any")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One distributed write, in plain values.  Picklable."""

    id: str
    table_path: str
    table_uuid: str
    form: str
    """JSON: columns, partitions and options of the table when the job began."""
    operation: str
    """One of ``JOB_OPERATIONS``; with "apply" each row names its own in the column ``_op``."""
    columns: tuple[tuple[str, str], ...]
    """Name and canonical type of every column that attempts are given."""
    txn: Txn | None
    on_duplicate: str
    """"error": rows that repeat a key are refused.  "last": the one counts whose ``sequence`` is the largest,
    and rows that share that are refused.  "any": they are applied one after another, in no order that
    anybody promises."""
    lock_timeout_s: float
    """How long the commit waits for another writer to let go of the table."""
    overwrite: bool = False
    """The rows take the place of all that are there."""
    storage_options: Mapping[str, Any] | None = dataclasses.field(default=None, repr=False)
    """Of a table in an object store: what its client was given.  It travels, and is stored nowhere."""

    @property
    def directory(self) -> str:
        """Where its attempts write."""
        return files_directory(self.table_path, self.id)


def check_job(
    operation: object,
    txn: object,
    on_duplicate: object,
    sequence_by: object = None,
    ignore_null: object = False,
    *,
    overwrite: bool = False,
    on_repeat: object = CHECK,
) -> Txn | None:
    """Check what a job is asked to do, before anything is looked at; what it says of its token."""
    if operation not in JOB_OPERATIONS:
        raise InvalidArgument(f"operation {operation!r} is none of {', '.join(JOB_OPERATIONS)}")
    if overwrite and operation not in OVERWRITING:
        raise InvalidArgument(
            f'mode "overwrite" puts new rows in the place of all that are there: operation is "insert" or '
            f'"upsert", not {operation!r}; mode "append" takes every operation'
        )
    if on_duplicate not in ON_DUPLICATE:
        raise InvalidArgument(
            f'on_duplicate is "error" (rows that repeat a key are refused), "last" (the one with the largest '
            f'sequence_by wins) or "any" (one of them wins), not {on_duplicate!r}'
        )
    if (on_duplicate == "last") != (sequence_by is not None):
        raise InvalidArgument(
            'on_duplicate="last" and sequence_by go together: the name of the column whose largest value '
            "makes a row the last of its key"
        )
    if sequence_by is not None and not isinstance(sequence_by, str):
        raise InvalidArgument(f"sequence_by is the name of a column, not {sequence_by!r}")
    if not isinstance(ignore_null, bool):
        raise InvalidArgument(f"ignore_null is True or False, not {ignore_null!r}")
    if ignore_null and on_duplicate == "any":
        raise InvalidArgument(
            'ignore_null needs on_duplicate="error" or "last": of rows applied one after another the cells '
            "that are not NULL would mix"
        )
    return check_txn(txn, on_repeat)


def form_of(job: Job) -> Form:
    """How the job's rows are stored."""
    return _form(job.form)


@lru_cache(16)
def _form(text: str) -> Form:
    return Form.from_json(json.loads(text))


def sealed(job: Job, runs: Sequence[StagedRun] | None) -> bytes:
    """The contents of JOB; ``NotSupported`` for more than ``unsealed`` reads.  ``runs``: None as long as no
    commit has begun."""
    with cycles_left(len(runs or ())):
        txn = None
        if job.txn is not None:
            txn = [job.txn.app_id, job.txn.version, job.txn.source, job.txn.on_repeat]
        listed = None if runs is None else [run.to_json() for run in runs]
        told = {**dataclasses.asdict(job), "txn": txn, "runs": listed}
        del told["storage_options"]
        data = json.dumps(told).encode()
    if len(data) > MAX_SEALED_BYTES:
        raise NotSupported(
            f"a job of {len(runs or ()):,} staged files is {len(data):,} bytes to describe, and may be "
            f"{MAX_SEALED_BYTES:,}: nothing was written; write it in several jobs, or in fewer tasks"
        )
    return data


def is_sealed(fs: FileSystem, path: str, job_id: str) -> bool:
    """Whether a commit of the job has begun."""
    file = f"{job_directory(path, job_id)}/{SEALED}"
    if not is_url(path):
        return fs.exists(file)
    try:
        data = fs.read_bytes(file, MAX_SEALED_BYTES)
    except FileNotFoundError:
        return False
    try:
        return parsed(data)["runs"] is not None
    except BROKEN as exc:
        raise Corruption(file, 0, f"{exc!r:.200}") from exc


def unsealed(
    fs: FileSystem, path: str, job_id: str, storage_options: Mapping[str, Any] | None = None
) -> tuple[Job, list[StagedRun]]:
    """What the folder of a job says that is to be committed; ``Corruption`` where it is no such job."""
    file = f"{job_directory(path, job_id)}/{SEALED}"
    try:
        stored = parsed(fs.read_bytes(file, MAX_SEALED_BYTES))
        runs = [StagedRun.from_json(run) for run in stored.pop("runs")]
        if stored["id"] != job_id:
            raise ValueError(f"it is of a job {stored['id']!r:.80}, its folder is of {job_id!r}")
        for member in ("table_path", "table_uuid", "form"):
            text(stored[member])
        for member, choices in (("operation", JOB_OPERATIONS), ("on_duplicate", ON_DUPLICATE)):
            if stored[member] not in choices:
                raise ValueError(f"{member} is {stored[member]!r:.80}")
        if type(stored["lock_timeout_s"]) not in (int, float):
            raise ValueError(f"lock_timeout_s is {stored['lock_timeout_s']!r:.80}")
        stored["columns"] = tuple((text(name), text(type_)) for name, type_ in stored["columns"])
        stored["txn"] = None if stored["txn"] is None else _stored_txn(*stored["txn"])
        stored["overwrite"] = flag(stored.get("overwrite", False))
        # The directory may have been moved with its table.
        job = Job(**{**stored, "table_path": path, "storage_options": storage_options})
        form_of(job)
    except (*BROKEN, InvalidArgument) as exc:
        raise Corruption(file, 0, f"{exc!r:.200}") from exc
    return job, runs


def _stored_txn(app_id: object, version: object, source: object, on_repeat: object) -> Txn | None:
    return check_txn((app_id, version, source), on_repeat)


__all__ = [
    "JOB_OPERATIONS",
    "OVERWRITING",
    "Job",
    "check_job",
    "form_of",
    "is_sealed",
    "sealed",
    "unsealed",
]
