"""The only place that touches files, and where tests inject faults."""

from kudu_core.fs.api import FileStat, FileSystem, Holder, Lease, ReadFile, WriteFile
from kudu_core.fs.base import is_temporary
from kudu_core.fs.faulty import CHANGES, LOOKS, Call, FaultyFileSystem, Rule, SimulatedCrash
from kudu_core.fs.lease import same_file
from kudu_core.fs.memory import MemoryFileSystem
from kudu_core.fs.posix import PosixFileSystem

__all__ = [
    "CHANGES",
    "LOOKS",
    "Call",
    "FaultyFileSystem",
    "FileStat",
    "FileSystem",
    "Holder",
    "Lease",
    "MemoryFileSystem",
    "PosixFileSystem",
    "ReadFile",
    "Rule",
    "SimulatedCrash",
    "WriteFile",
    "is_temporary",
    "same_file",
]
