"""What a table knows of its distributed writes beside the records in its log: marks.

What the record of such a write says, its time and counts, is in its mark as well, a file in ``staging/``, so
that the log may forget the record.  Knows names and files of jobs, not the open table.  Who writes and
removes them: ``table/lifecycle/staging_folders.py``, in object stores ``lifecycle/in_store/job_sweep.py``.

In a folder a job has one folder, for everything.  In an object store what its tasks write is in ``files/``,
where tablets take it in without moving it, and ``staging/`` has the rest (protocol B13).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kudu_core.common.format import names
from kudu_core.common.format.members import BROKEN, integer, parsed
from kudu_core.common.idempotence.writers import GIVEN_UP, AppliedWrite, stored_counts
from kudu_core.errors import Corruption
from kudu_core.fs.base import NoFolder
from kudu_core.objects.urls import is_url

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

MAX_MARK_BYTES = 4096
"""Of the mark that a committed job leaves."""
_GIVEN_UP = b'"given up"'


def job_directory(path: str, job_id: str) -> str:
    """Where its file JOB is."""
    return f"{path}/staging/{job_id}"


def files_directory(path: str, job_id: str) -> str:
    """Where its tasks write."""
    return f"{names.job_files(path)}/{job_id}" if is_url(path) else job_directory(path, job_id)


def read_mark(fs: FileSystem, path: str, job_id: str) -> AppliedWrite | None:
    """What a table knows of a job that was committed, or given up."""
    mark = f"{path}/staging/{names.mark_of_job(job_id)}"
    try:
        data = fs.read_bytes(mark, MAX_MARK_BYTES)
    except (FileNotFoundError, NoFolder):
        return None
    if data == _GIVEN_UP:
        return AppliedWrite(GIVEN_UP, 0, (0, 0, 0, 0))
    try:
        ts, *counts = parsed(b'{"is":' + data + b"}")["is"]
        return AppliedWrite(0, integer(ts), stored_counts(counts))
    except BROKEN as exc:
        raise Corruption(mark, 0, f"{exc!r:.200}") from exc


def leave_mark(fs: FileSystem, path: str, job_id: str, known: AppliedWrite) -> None:
    """The record of ``known`` is durable: leave the mark, unless it is there."""
    mark = f"{path}/staging/{names.mark_of_job(job_id)}"
    if is_url(path) or not fs.exists(mark):  # in a store to ask costs as much, and says less
        data = json.dumps([known.ts, *known.counts]).encode()
        fs.replace_file(mark, _GIVEN_UP if known.version == GIVEN_UP else data)


def leave_marks(fs: FileSystem, path: str, jobs: Mapping[str, AppliedWrite], through: int) -> None:
    """Before the log forgets the records up to ``through``: what they say of jobs is marked in staging
    (protocol J3).

    In a folder not of those whose folder is gone: they had their mark, and its grace is over.  In a store
    nobody can tell that (protocol B8).
    """
    for job_id, known in list(jobs.items()):
        if known.ts <= through and (is_url(path) or fs.is_dir(job_directory(path, job_id))):
            leave_mark(fs, path, job_id, known)


__all__ = ["MAX_MARK_BYTES", "files_directory", "job_directory", "leave_mark", "leave_marks", "read_mark"]
