"""Names of files and folders that a table gives, and no others.

A name that is read from a file is one of these, or the file is broken: so no name leads out of its folder,
nor to a file of another kind.  A name that is found in a folder is one of these, or it is left alone: only
what we have named is ever swept.  None has a NUL, a line break or a leading dot, and all are ASCII; only the
paths of files of jobs have separators.  Ids that are read from files are compared with the folders in which
they are found, and ``Table.verify`` names what does not belong to the table.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

TABLET: Final = "tablet"
"""In ``lost/``: the folder of a tablet."""
LOG: Final = "log"
"""In ``lost/``: what the name of a log segment begins with."""
INGEST: Final = "ingest-"
JOB: Final = "job-"
MERGE: Final = "merge-"
MARK: Final = ".committed"
BACKUP: Final = "BACKUP"
"""In the folder of a backup: its manifest."""
DROPPED: Final = "DROPPED"
"""In a table's folder: the table was dropped, and what lies beside is to be removed."""
MAX_TABLET: Final = 1 << 32
"""Ids of tablets lie below."""

_DATA_FILE = re.compile(r"[0-9]{6,10}-[0-9]{8,20}\.(?:rows|delta)")
_SNAPSHOT = re.compile(r"[0-9]{6,10}-[0-9]{8,20}\.manifest")
_STAGED_FILE = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,199}")
_JOB_FILE = re.compile(rf"files/job-[0-9a-f]{{32}}/(?:{_STAGED_FILE.pattern}/)?{_STAGED_FILE.pattern}")
_STAGING = re.compile(r"(?:ingest|job|merge)-[0-9a-f]{32}")
_TABLET = re.compile(r"[0-9]{8,10}")
_LOST = re.compile(r"([0-9]{10,12})-([0-9]{8,10})-(.+)")
_SEGMENT = re.compile(r"log-[0-9]{8,20}-[0-9]{10,20}\.log")
_BACKUP = re.compile(r"[0-9]{8}")


def data_file(value: Any) -> str:
    """``<epoch>-<n>.rows`` or ``.delta``, of a tablet's folder, or a file of a job (``file_path``);
    ``ValueError`` for anything else."""
    if not is_data_file(value) and not is_job_file(value):
        raise ValueError(f"{value!r:.80} is no file name of a tablet")
    name: str = value
    return name


def is_data_file(value: object) -> bool:
    return isinstance(value, str) and _DATA_FILE.fullmatch(value) is not None


def is_job_file(value: object) -> bool:
    """Whether it is the path of a file that a tablet, in an object store, has taken in where a job's task has
    put it."""
    return isinstance(value, str) and _JOB_FILE.fullmatch(value) is not None


def file_path(directory: str, name: str) -> str:
    """Where a data file of the tablet in ``directory`` is: there, or, where its name has a separator, in the
    table's folder by that path."""
    return f"{root_of(directory)}/{name}" if "/" in name else f"{directory}/{name}"


def root_of(directory: str) -> str:
    """The table of a tablet's folder."""
    return directory.rsplit("/", 2)[0]


def job_files(root: str) -> str:
    """Of a table in an object store: where the files of jobs are, by job (protocol B13)."""
    return f"{root}/files"


def snapshot_file(value: Any) -> str:
    """``<epoch>-<n>.manifest``, in an object store; ``ValueError`` for anything else."""
    if not isinstance(value, str) or _SNAPSHOT.fullmatch(value) is None:
        raise ValueError(f"{value!r:.80} is no snapshot of a tablet")
    return value


def epoch_of_file(name: str) -> int | None:
    """The epoch that the name of a data file or a snapshot begins with; None: it is neither."""
    if is_data_file(name) or _SNAPSHOT.fullmatch(name) is not None:
        return int(name.partition("-")[0])
    return None


def staged_file(value: Any) -> str:
    """The name of a file or a folder in a job's folder, or of a backup's run, which its writer chose;
    ``ValueError`` for what leads elsewhere."""
    if not isinstance(value, str) or _STAGED_FILE.fullmatch(value) is None:
        raise ValueError(f"{value!r:.80} is no file name of staged rows")
    return value


def staged_path(value: Any) -> str:
    """A file of a job's folder, or of a folder in it; ``ValueError`` for what leads elsewhere."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.80} is no path of staged rows")
    folder, separator, name = value.rpartition("/")
    if separator:
        staged_file(folder)
    staged_file(name)
    return value


def is_staging(value: object) -> bool:
    """Whether a folder of ``staging/`` has the name of an ingest, a job or a merge."""
    return isinstance(value, str) and _STAGING.fullmatch(value) is not None


def is_job(value: object) -> bool:
    return is_staging(value) and str(value).startswith(JOB)


def mark_of_job(job: str) -> str:
    """The file of ``staging/`` that says when a job was committed."""
    return job_id(job) + MARK


def job_of_mark(name: str) -> str | None:
    job = name.removesuffix(MARK)
    return job if job != name and is_job(job) else None


def job_id(value: Any) -> str:
    """The id of a distributed write, which is its folder's name; ``ValueError`` for anything else."""
    if not is_job(value):
        raise ValueError(f"{value!r:.80} is no id of a distributed write")
    return str(value)


def tablet_folder(tablet_id: int) -> str:
    return f"{tablet_id:08d}"


def tablet_of_folder(name: str) -> int | None:
    """The id of the tablet whose folder has this name; None: it is no tablet's."""
    if _TABLET.fullmatch(name) is None or not 0 < int(name) < MAX_TABLET:
        return None
    return int(name) if tablet_folder(int(name)) == name else None


class Lost(NamedTuple):
    """What the name of something in ``lost/`` says."""

    moved_s: int
    """When, in seconds since 1970."""
    tablet_id: int
    """0: it was no tablet's."""
    name: str
    """A data file's, ``TABLET``, or ``LOG`` and a segment's."""


def lost_name(moved_s: int, tablet_id: int, name: str) -> str:
    return f"{moved_s:010d}-{tablet_id:08d}-{name}"


def parse_lost(name: str) -> Lost | None:
    """What a name in ``lost/`` says; None: it is not ours."""
    found = _LOST.fullmatch(name)
    if found is None:
        return None
    moved_s, tablet_id, kept = int(found[1]), int(found[2]), found[3]
    known = is_data_file(kept) or kept == TABLET or _SEGMENT.fullmatch(kept) is not None
    return Lost(moved_s, tablet_id, kept) if known else None


def backup_of_folder(name: str) -> int | None:
    """The number of the backup whose folder has this name; None: it is none."""
    return int(name) if _BACKUP.fullmatch(name) is not None and int(name) else None


__all__ = [
    "BACKUP",
    "DROPPED",
    "INGEST",
    "JOB",
    "LOG",
    "MAX_TABLET",
    "MERGE",
    "TABLET",
    "Lost",
    "backup_of_folder",
    "data_file",
    "epoch_of_file",
    "file_path",
    "is_data_file",
    "is_job",
    "is_job_file",
    "is_staging",
    "job_files",
    "job_id",
    "job_of_mark",
    "lost_name",
    "mark_of_job",
    "parse_lost",
    "root_of",
    "snapshot_file",
    "staged_file",
    "staged_path",
    "tablet_folder",
    "tablet_of_folder",
]
