"""What waits in a table's staging, and the marks of committed jobs."""

from __future__ import annotations

import os

from kudu_core.common.format.names import job_of_mark


def waiting(path: str | os.PathLike[str]) -> list[str]:
    """Names in ``staging/``, without the marks of jobs that are committed."""
    return [name for name in _names(path) if job_of_mark(name) is None]


def marks(path: str | os.PathLike[str]) -> list[str]:
    """Ids of the jobs that are known to be committed."""
    return [job for name in _names(path) if (job := job_of_mark(name)) is not None]


def _names(path: str | os.PathLike[str]) -> list[str]:
    return sorted(os.listdir(f"{os.fspath(path)}/staging"))


__all__ = ["marks", "waiting"]
