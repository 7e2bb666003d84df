"""Marks that committed distributed writes leave in ``staging/``, beside the folders of jobs.

What the record of such a write says, its time and counts, is in its mark as well, so that the log may forget
the record.  Knows names and files of jobs, not the open table.  Who writes and removes them:
``table/lifecycle/staging_folders.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kudu_core.common.format import names
from kudu_core.common.format.members import BROKEN, integer, parsed
from kudu_core.common.idempotence.writers import AppliedWrite, stored_counts
from kudu_core.errors import Corruption
from kudu_core.fs.base import NoFolder

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

MAX_MARK_BYTES = 4096
"""Of the mark that a committed job leaves."""


def job_directory(path: str, job_id: str) -> str:
    return f"{path}/staging/{job_id}"


def read_mark(fs: FileSystem, path: str, job_id: str) -> AppliedWrite | None:
    """What a table knows of a job that was committed."""
    mark = f"{path}/staging/{names.mark_of_job(job_id)}"
    try:
        data = fs.read_bytes(mark, MAX_MARK_BYTES)
    except (FileNotFoundError, NoFolder):
        return None
    try:
        ts, *counts = parsed(b'{"is":' + data + b"}")["is"]
        return AppliedWrite(0, integer(ts), stored_counts(counts))
    except BROKEN as exc:
        raise Corruption(mark, 0, f"{exc!r:.200}") from exc


def leave_mark(fs: FileSystem, path: str, job_id: str, known: AppliedWrite) -> None:
    """The record of ``known`` is durable: leave the mark, unless it is there."""
    mark = f"{path}/staging/{names.mark_of_job(job_id)}"
    if not fs.exists(mark):
        fs.replace_file(mark, json.dumps([known.ts, *known.counts]).encode())


def leave_marks(fs: FileSystem, path: str, jobs: Mapping[str, AppliedWrite], through: int) -> None:
    """Before the log forgets the records up to ``through``: what they say of jobs is marked in staging
    (protocol J3).

    Not of those whose folder is gone: they had their mark, and its grace is over.
    """
    for job_id, known in list(jobs.items()):
        if known.ts <= through and fs.is_dir(job_directory(path, job_id)):
            leave_mark(fs, path, job_id, known)


__all__ = ["MAX_MARK_BYTES", "job_directory", "leave_mark", "leave_marks", "read_mark"]
