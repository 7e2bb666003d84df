"""The only place that touches files."""

from kudu_core.fs.api import FileStat, FileSystem, Lease, LeaseHolder, ReadFile, WriteFile
from kudu_core.fs.base import is_temporary
from kudu_core.fs.posix import PosixFileSystem

__all__ = [
    "FileStat",
    "FileSystem",
    "Lease",
    "LeaseHolder",
    "PosixFileSystem",
    "ReadFile",
    "WriteFile",
    "is_temporary",
]
