"""The writer lease: an open-file-description lock on a file that is never deleted; and readers' locks on it.

An OFD lock (``fcntl(F_OFD_SETLK)``, Linux) belongs to the open file, not to the process: closing some
other descriptor of the file does not drop it, a second opening in the same process conflicts with it,
the kernel drops it when the last descriptor goes, however the process dies, and anybody who may read
the file can ask for it.  The file's text (pid and host) is only a hint for error messages.

The lease is a range of the file that no file reaches, from its beginning; behind it lies one byte, on which
every reader has a shared lock while it lives.  The holder of the lease asks whether somebody has, before it
deletes files that no reader to come will want (protocol E4).  No reader waits for another, or for the writer.

Where a system has no such locks (macOS, which is for development), ``flock`` stands in for them.  It belongs
to the open file too, but it is of whole files and no question: so there is no reader's lock, as where it
cannot be had, and whoever asks for a holder takes the lock for a moment, in which another is refused.

A child made by fork shares the open file, so the lock lasts until the child has closed its copy too.
That is this module's to see to, whatever the owner knows of its lease by then, and without a lock: in the
child, every lease that was being taken or was held is abandoned, and a thread that takes one while another
forks gives it back and takes it anew, with an open file that no child can have a copy of.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import sys
import weakref
from _thread import allocate_lock
from contextlib import suppress
from typing import TYPE_CHECKING

from kudu_core.errors import KuduError, Locked, NotSupported
from kudu_core.fs.api import LeaseHolder
from kudu_core.fs.base import no_file, of_opening
from kudu_core.fs.descriptors import Descriptor, opened

if TYPE_CHECKING:
    from collections.abc import Callable

    from kudu_core.fs.api import Lease, ReaderLock, Sleep

# Linux's numbers, for a Python built against headers without them.
_OFD_GETLK = getattr(fcntl, "F_OFD_GETLK", 36)
_OFD_SETLK = getattr(fcntl, "F_OFD_SETLK", 37)

_WHOLE_FILES = sys.platform != "linux" and not hasattr(fcntl, "F_OFD_SETLK")
"""Whether ``flock`` stands in for locks of ranges."""

# struct flock, native alignment: l_type, l_whence, l_start, l_len (0: the whole file), l_pid (must be 0).
_FLOCK = struct.Struct("@hhqqi0q")

_LEASE = 0, 1 << 62
_READERS = 1 << 62, 1
"""First byte and length of what is locked."""

_HINT_BYTES = 512
_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.05


def acquire_within(attempt: Callable[[], bool], wait_s: float, sleep: Sleep | None) -> bool:
    """Repeat ``attempt`` with growing pauses for ``wait_s`` seconds; whether it succeeded.

    The time is the sum of the pauses asked for: nothing here reads a clock.
    """
    pause = sleep if sleep is not None else _pause
    waited, pause_s = 0.0, _FIRST_PAUSE_S
    while not attempt():
        if waited >= wait_s:
            return False
        step = min(pause_s, wait_s - waited)
        pause(step)
        waited += step
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    return True


def _pause(seconds: float) -> None:
    """Nobody waits at this lock but the one caller; a signal handler may cut the pause short."""
    gate = allocate_lock()
    gate.acquire()
    gate.acquire(timeout=seconds)


def format_hint(pid: int, host: str) -> bytes:
    return f"pid {pid}\nhost {host}\n".encode()


def parse_hint(text: bytes) -> LeaseHolder:
    """Read what a holder wrote; anything may stand there, and nothing of it is trusted."""
    pid: int | None = None
    host: str | None = None
    for line in text.decode("utf-8", "replace").splitlines():
        key, _, value = line.partition(" ")
        if key == "pid" and value.isascii() and value.isdigit() and len(value) < 20:
            pid = int(value)
        elif key == "host" and value:
            host = value
    return LeaseHolder(pid, host)


_leases: weakref.WeakSet[PosixLease] = weakref.WeakSet()
"""Of this process: those that somebody takes, or has."""


class _Forks:
    """How far the forks of this process are: another number before one and after it."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def note(self) -> None:
        self.count += 1


_forks = _Forks()


def _abandon_all() -> None:
    """In the child of a fork."""
    for lease in list(_leases):
        lease.abandon()


os.register_at_fork(before=_forks.note, after_in_parent=_forks.note, after_in_child=_abandon_all)


class PosixLease:
    """See ``api.Lease``.  One owner: calls come from one thread at a time."""

    _range = _LEASE

    def __init__(self, path: str, *, sleep: Sleep | None = None) -> None:
        self.path = path
        self._sleep = sleep
        self._descriptor: Descriptor | None = None
        """Of the locked file.  Not in a variable of a function, which a traceback may keep."""
        self._owner_pid = os.getpid()

    @property
    def held(self) -> bool:
        return self._descriptor is not None and self._owner_pid == os.getpid()

    def try_acquire(self, wait_s: float = 0.0) -> None:
        assert self._descriptor is None, "a lease is taken once"
        self._owner_pid = os.getpid()
        _leases.add(self)  # before there is an open file that a child may have a copy of
        if not acquire_within(self._attempt_alone, wait_s, self._sleep):
            pid, host = self._read_hint() or LeaseHolder(None, None)
            raise Locked(self.path, pid, host)

    def _attempt_alone(self) -> bool:
        """Take the lock, if it is free, with an open file that no child of a fork has.

        A fork between the opening of the file and the first moment at which this object knows of it leaves
        a copy in the child that nobody there can close.
        """
        while True:
            forks = _forks.count
            taken = self._attempt()
            if not taken or _forks.count == forks:
                return taken
            self.release()  # unlocked by hand, for the child's copy too

    def _attempt(self) -> bool:
        self._descriptor = self._opened(os.O_RDWR | os.O_CREAT)
        try:
            fd = self._descriptor.fd
            if not _lock(fd) or not self._is_current(fd):
                self._descriptor = None
                return False
            if os.fstat(fd).st_nlink > 1:
                return True  # a file that has another name too may be anybody's: nothing is written to it
            # A full disk must not keep anybody from opening a table in order to delete from it.
            with suppress(OSError):
                hint = format_hint(self._owner_pid, os.uname().nodename)
                os.pwrite(fd, hint, 0)
                os.ftruncate(fd, len(hint))
        except BaseException:
            self._descriptor = None
            raise
        return True

    def _opened(self, flags: int) -> Descriptor:
        """The file, open; ``Corruption`` when it is a link or no regular file."""
        try:
            descriptor = opened(self.path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as exc:
            raise of_opening(exc, self.path) from None
        if not stat.S_ISREG(os.fstat(descriptor.fd).st_mode):
            raise no_file(self.path)
        return descriptor

    def _is_current(self, fd: int) -> bool:
        """Whether the locked file is still the one with the name: a stranger may have replaced it."""
        try:
            return os.path.samestat(os.fstat(fd), os.lstat(self.path))
        except FileNotFoundError:
            return False

    def _read_hint(self) -> LeaseHolder | None:
        try:
            descriptor = self._opened(os.O_RDONLY)
        except FileNotFoundError:
            return None
        return parse_hint(os.pread(descriptor.fd, _HINT_BYTES, 0))

    def holder(self) -> LeaseHolder | None:
        try:
            descriptor = self._opened(os.O_RDONLY)
        except FileNotFoundError:
            return None
        if not _is_locked(descriptor.fd):
            return None
        return parse_hint(os.pread(descriptor.fd, _HINT_BYTES, 0))

    def has_readers(self) -> bool:
        if self._descriptor is None:
            return True
        try:
            return _is_locked(self._descriptor.fd, _READERS)
        except (OSError, NotSupported):
            return True  # who cannot ask must take it that somebody reads

    def release(self) -> None:
        if self._descriptor is None:
            return
        if self._owner_pid == os.getpid():
            # Unlocked by hand: a child that still has the descriptor must not keep the lock alive.
            with suppress(OSError):
                _unlock(self._descriptor.fd, self._range)
        self.abandon()

    def abandon(self) -> None:
        self._descriptor = None


class PosixReaderLock(PosixLease):
    """See ``api.ReaderLock``: a shared lock, of which there may be many."""

    _range = _READERS

    def take(self) -> bool:
        assert self._descriptor is None, "a lock is taken once"
        self._owner_pid = os.getpid()
        _leases.add(self)
        try:
            return self._attempt_alone()
        except (OSError, KuduError):
            return False  # no file, or no locks there: what it reads may be gone, and then it looks again

    def _attempt(self) -> bool:
        self._descriptor = self._opened(os.O_RDONLY)
        try:
            taken = _lock(self._descriptor.fd, fcntl.F_RDLCK, self._range)
        except BaseException:
            self._descriptor = None
            raise
        if not taken:
            self._descriptor = None
        return taken


def _flock(kind: int, span: tuple[int, int]) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, *span, 0)


def _lock(fd: int, kind: int = fcntl.F_WRLCK, span: tuple[int, int] = _LEASE) -> bool:
    """Take the lock; False when another open file has it."""
    if _WHOLE_FILES:
        return span == _LEASE and _lock_whole(fd, fcntl.LOCK_EX)
    try:
        fcntl.fcntl(fd, _OFD_SETLK, _flock(kind, span))
    except OSError as exc:
        if exc.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise _explained(exc) from exc
    return True


def _lock_whole(fd: int, kind: int) -> bool:
    """Take ``flock``'s lock; False when another open file has it."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unlock(fd: int, span: tuple[int, int]) -> None:
    if _WHOLE_FILES:
        fcntl.flock(fd, fcntl.LOCK_UN)
    else:
        fcntl.fcntl(fd, _OFD_SETLK, _flock(fcntl.F_UNLCK, span))


def _is_locked(fd: int, span: tuple[int, int] = _LEASE) -> bool:
    """Whether another open file has a lock."""
    if _WHOLE_FILES:
        if span == _READERS or not _lock_whole(fd, fcntl.LOCK_SH):
            return True  # nobody can ask for readers, so there may be some
        _unlock(fd, span)
        return False
    try:
        answer = fcntl.fcntl(fd, _OFD_GETLK, _flock(fcntl.F_WRLCK, span))
    except OSError as exc:
        raise _explained(exc) from exc
    assert isinstance(answer, bytes)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def _explained(exc: OSError) -> Exception:
    """EINVAL is a kernel without OFD locks (before Linux 3.15): no lease can be kept there."""
    if exc.errno == errno.EINVAL:
        return NotSupported("this system has no open-file-description locks (F_OFD_SETLK)")
    return exc


if TYPE_CHECKING:
    _checked: Lease = PosixLease("")
    _checked_too: ReaderLock = PosixReaderLock("")
