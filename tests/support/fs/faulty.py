"""A file system that lets chosen calls fail; for tests.

Every call on the file system and on its open files is counted, then the rules are asked in turn: the
first that fires decides.  ``replace_file``, ``read_bytes`` and ``rmtree`` are taken apart, so that a
fault may hit each of their steps.  Closing files and giving back leases is never counted and never
fails: the system does that for a dead process too.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import random
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from kudu_core.fs import base

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kudu_core.fs.api import (
        Data,
        FileStat,
        FileSystem,
        Identity,
        ReaderLock,
        Sleep,
    )
from tests.support.fs.faulty_files import FaultyLease, FaultyReadFile, FaultyWriteFile, drop_unsynced

Fault: TypeAlias = int | Literal["crash", "torn", "torn-error", "short", "short write", "flip"]

CHANGES = frozenset(
    {
        "create",
        "append",
        "pwrite",
        "truncate",
        "sync",
        "mkdir",
        "sync_dir",
        "rename",
        "link",
        "unlink",
        "rmdir",
    }
)
"""Operations that change files or make changes durable."""

LOOKS = frozenset(
    {
        "open_read",
        "open_write",
        "pread",
        "preadv",
        "size",
        "listdir",
        "exists",
        "is_dir",
        "stat",
        "identity",
        "lease",
        "holder",
    }
)
"""Operations that change nothing."""


class SimulatedCrash(Exception):
    """The machine, or the process, stopped: this call did not happen, and no later one does, in any thread.

    An ``Exception``, so that thread pools carry it like any other, but no ``OSError``, so that no
    handling of I/O errors takes it for one.  Who swallows it gains nothing: the next call raises it too.
    """


class Call(NamedTuple):
    """The ``number``-th call (from 1): ``op`` on ``path``."""

    number: int
    op: str
    path: str


@dataclass(slots=True)
class Rule:
    """Which calls fail, and how.  A rule counts its own matches; use it with one file system.

    ``ops``: names of operations (the methods'), None for all.  ``path_glob``: matched against the whole
    path, ``*`` also covers ``/``.  ``nth``: fires at the n-th matching call, from 1.  ``probability``:
    fires at each matching call with these odds.  With neither the first match fires.  ``sticky``: once it
    has fired, every later match fires as well.

    ``error``:

    * a number of ``errno``: the call does nothing and raises that ``OSError``.  A ``sync`` or ``sync_dir``
      drops what it should have saved, if the inner file system can (fsync-gate).
    * "crash": raises ``SimulatedCrash``, now and ever after.
    * "torn": a write puts a random part of its beginning into the file, then as "crash".
    * "torn-error": a write puts a random part of its beginning into the file, then EIO.
    * "short": a write does the same, then ENOSPC; a read returns a random part of its beginning, as if
      the file ended there.
    * "short write": of a write "short", else EIO.  Where threads work, the call that a rule meets need not be
      the one for which it was made.
    * "flip": a read returns its bytes with one bit turned over.

    The last five are as "crash" or EIO where the operation neither writes nor reads.
    """

    ops: set[str] | frozenset[str] | None = None
    path_glob: str | None = None
    nth: int | None = None
    probability: float | None = None
    error: Fault = errno.EIO
    sticky: bool = False
    matches: int = 0
    fired: int = 0

    def fires(self, op: str, path: str, rng: random.Random) -> bool:
        if self.ops is not None and op not in self.ops:
            return False
        if self.path_glob is not None and not fnmatch.fnmatchcase(path, self.path_glob):
            return False
        self.matches += 1
        if self.fired and self.sticky:
            fires = True
        elif self.nth is not None:
            fires = self.matches == self.nth
        elif self.probability is not None:
            fires = rng.random() < self.probability
        else:
            fires = not self.fired
        self.fired += fires
        return fires


class FaultyFileSystem:
    """See the module.  ``calls`` counts all calls, ``counts`` those of each operation.

    ``log`` has every call when ``keep_log``, else stays empty.  ``before(call)``, when given, runs ahead of
    each call, in its thread and outside the lock.
    """

    def __init__(
        self,
        inner: FileSystem,
        rules: Iterable[Rule] = (),
        *,
        seed: int | None = None,
        keep_log: bool = False,
        before: Callable[[Call], object] | None = None,
    ) -> None:
        self.inner = inner
        self.rules = list(rules)
        self.before = before
        self.calls = 0
        self.counts: Counter[str] = Counter()
        self.log: list[Call] = []
        self.crashed = False
        self._keep_log = keep_log
        self._rng = random.Random(seed)
        self._lock = threading.Lock()

    def crash(self) -> None:
        """Stop the machine now: every later call raises ``SimulatedCrash``."""
        with self._lock:
            self.crashed = True

    @property
    def fired(self) -> int:
        """How often any rule has fired."""
        return sum(rule.fired for rule in self.rules)

    def _enter(self, op: str, path: str) -> Fault | None:
        """Count a call; raise its fault, or return the one that its operation has to act out."""
        with self._lock:
            if self.crashed:
                raise SimulatedCrash(f"{op} {path}: the machine has stopped")
            self.calls += 1
            self.counts[op] += 1
            call = Call(self.calls, op, path)
            if self._keep_log:
                self.log.append(call)
            fault: Fault | None = None
            for rule in self.rules:
                if rule.fires(op, path, self._rng):
                    fault = rule.error
                    break
            if fault == "crash":
                self.crashed = True
                raise SimulatedCrash(f"{op} {path}, call {self.calls}: the machine stops")
        if self.before is not None:
            self.before(call)
        return fault

    def _fail(self, fault: Fault, op: str, path: str) -> Exception:
        """The exception in which a fault ends; "torn" stops the machine."""
        if fault == "torn":
            self.crash()
            return SimulatedCrash(f"{op} {path}: the machine stops")
        if fault in ("short", "short write") and op in ("append", "pwrite"):
            return base.os_error(errno.ENOSPC, path)
        return base.os_error(fault if isinstance(fault, int) else errno.EIO, path)

    def _part(self, total: int) -> int:
        """A random number in [0, total], less than total unless that is 0."""
        with self._lock:
            return self._rng.randrange(total) if total else 0

    def _call(self, op: str, path: str) -> None:
        fault = self._enter(op, path)
        if fault is not None:
            raise self._fail(fault, op, path)

    # The file system ---------------------------------------------------------------------------

    @property
    def local(self) -> FaultyFileSystem:
        return self

    @property
    def remote(self) -> bool:
        return False

    def open_read(self, path: str, size: int | None = None) -> FaultyReadFile:
        self._call("open_read", path)
        return FaultyReadFile(self, self.inner.open_read(path))

    def will_open(self, path: str, size: int, tail: int = 0) -> None:
        """It is near."""

    def create(self, path: str) -> FaultyWriteFile:
        self._call("create", path)
        return FaultyWriteFile(self, self.inner.create(path))

    def open_write(self, path: str) -> FaultyWriteFile:
        self._call("open_write", path)
        return FaultyWriteFile(self, self.inner.open_write(path))

    def read_bytes(self, path: str, limit: int) -> bytes:
        return base.read_bytes(self, path, limit)

    def replace_file(self, path: str, data: Data) -> None:
        base.replace_file(self, path, data, os.urandom(6).hex())

    def mkdir(self, path: str, exist_ok: bool = False) -> None:
        self._call("mkdir", path)
        self.inner.mkdir(path, exist_ok)

    def sync_dir(self, path: str) -> None:
        fault = self._enter("sync_dir", path)
        if fault is not None:
            if fault != "torn":
                drop_unsynced(self.inner, path)
            raise self._fail(fault, "sync_dir", path)
        self.inner.sync_dir(path)

    def rename(self, source: str, target: str) -> None:
        self._call("rename", target)
        self.inner.rename(source, target)

    def link(self, source: str, target: str) -> None:
        self._call("link", target)
        self.inner.link(source, target)

    def unlink(self, path: str, missing_ok: bool = False) -> None:
        self._call("unlink", path)
        self.inner.unlink(path, missing_ok)

    def rmdir(self, path: str) -> None:
        self._call("rmdir", path)
        self.inner.rmdir(path)

    def rmtree(self, path: str) -> None:
        base.rmtree(self.rooted(base.parent(path)), path)

    def listdir(self, path: str) -> list[str]:
        self._call("listdir", path)
        return self.inner.listdir(path)

    def exists(self, path: str) -> bool:
        self._call("exists", path)
        return self.inner.exists(path)

    def is_dir(self, path: str) -> bool:
        self._call("is_dir", path)
        return self.inner.is_dir(path)

    def stat(self, path: str) -> FileStat:
        self._call("stat", path)
        return self.inner.stat(path)

    def identity(self, path: str) -> Identity:
        self._call("identity", path)
        return self.inner.identity(path)

    def lease(self, path: str, *, sleep: Sleep | None = None) -> FaultyLease:
        return FaultyLease(self, self.inner.lease(path, sleep=sleep))

    def reader_lock(self, path: str) -> ReaderLock:
        return self.inner.reader_lock(path)

    def rooted(self, path: str) -> FaultyFileSystem:
        return _Rooted(self, self.inner.rooted(path))

    @property
    def whole(self) -> FaultyFileSystem:
        return self


class _Rooted(FaultyFileSystem):
    """A part of the file system.  Rules, counts and the state of the machine are the whole one's."""

    def __init__(self, whole: FaultyFileSystem, inner: FileSystem) -> None:
        self.inner = inner
        self._whole = whole

    def rooted(self, path: str) -> FaultyFileSystem:
        return self._whole.rooted(path)

    @property
    def whole(self) -> FaultyFileSystem:
        return self._whole

    def _enter(self, op: str, path: str) -> Fault | None:
        return self._whole._enter(op, path)

    def _fail(self, fault: Fault, op: str, path: str) -> Exception:
        return self._whole._fail(fault, op, path)

    def _part(self, total: int) -> int:
        return self._whole._part(total)

    def rmtree(self, path: str) -> None:
        base.rmtree(self, path)


if TYPE_CHECKING:

    def _checked(inner: FileSystem) -> FileSystem:
        return FaultyFileSystem(inner)
