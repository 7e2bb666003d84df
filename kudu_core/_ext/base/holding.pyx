"""Locks, claims, turns and records that an interrupt cannot leave half taken, and failures that none can make
unknown.

CPython runs signal handlers between the bytecodes of the main thread, and in a C function that waits, before
it has what it waits for.  A method here is one C function, without bytecodes: whatever it takes is recorded
before a handler can run, and given back by ``__exit__``, which has none either, or when the object goes,
should the handler have run after ``__enter__`` and before the body of its ``with`` (CPython 3.14 does that).

This is no arithmetic: it is compiled because only compiled code cannot be interrupted.
"""
cimport cython

from _thread import allocate_lock

from cpython.pythread cimport PyThread_get_thread_ident


@cython.final
@cython.no_gc_clear
cdef class HeldLocks:
    """``with HeldLocks(locks)``: all of them, taken in order; what has ``acquire`` and ``release`` is one."""
    cdef:
        tuple _locks
        Py_ssize_t _taken

    def __init__(self, locks):
        self._locks = tuple(locks)

    def __enter__(self):
        try:
            while self._taken < len(self._locks):
                self._locks[self._taken].acquire()
                self._taken += 1
        except BaseException:
            self._release()
            raise

    def __exit__(self, *_):
        self._release()

    def __dealloc__(self):
        self._release()

    cdef _release(self):
        while self._taken:
            self._taken -= 1
            self._locks[self._taken].release()


@cython.final
@cython.no_gc_clear
cdef class Claim:
    """Entries of a set for as long as this object lives, or until ``release``, or the end of its ``with``.

    ``emptied``, a C function, is called when the set has become empty by that.
    """
    cdef:
        set _claimed
        list _taken
        object _emptied

    def __init__(self, set claimed not None, *entries, emptied=None):
        self._claimed = claimed
        self._taken = []
        self._emptied = emptied
        self.take(entries)

    def take(self, entries):
        """Claim further entries: those that are not in the set."""
        for entry in entries:
            if entry in self._claimed:
                continue
            self._taken.append(entry)
            self._claimed.add(entry)

    @property
    def held(self):
        """Whether anything is claimed."""
        return len(self._taken) > 0

    def release(self):
        """Give the entries back; more than once does nothing."""
        if not self._taken:
            return
        for entry in self._taken:
            self._claimed.discard(entry)
        self._taken.clear()
        if self._emptied is not None and not self._claimed:
            self._emptied()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()

    def __dealloc__(self):
        if self._taken is not None:
            self.release()


def poison(log, error):
    """Stop all writing for good.  What is visible stays readable.

    The first failure is kept.  It is kept before anything else happens, and no handler can run before that:
    not between an fsync that fails and the ``except`` that calls this, and not in here before the store.
    """
    if log.failure is None:
        log.failure = error
    log.tell_failure()


def poison_if_owed(log, error):
    """``poison``, if this thread has appended a record that is not applied yet.

    It is asked of the log itself: what ``append`` returned does not tell, since an interrupt may have come
    before it returned.
    """
    if PyThread_get_thread_ident() in list(log.in_flight.values()):
        poison(log, error)


@cython.final
@cython.no_gc_clear
cdef class InFlight:
    """``with InFlight(log, kind, schema_version, parts, note) as ts``: a record that the body applies.

    ``__enter__`` appends it and gives its timestamp.  When the body has ended, ``note(ts)`` is called, unless
    it is None, and ``log.applied(ts)``.  Where the body or one of these fails, the log is poisoned if this
    thread still owes it the record.  ``kudu_core/table/opened/record.py`` says why an interrupt at no place
    leaves a record that is neither applied nor poisoned.
    """
    cdef:
        object _log
        object _kind
        object _schema_version
        object _parts
        object _note
        object _ts

    def __init__(self, log, kind, schema_version, parts, note=None):
        self._log = log
        self._kind = kind
        self._schema_version = schema_version
        self._parts = parts
        self._note = note
        # None: not appended, or nothing is owed any more.
        self._ts = None

    def __enter__(self):
        try:
            self._ts = self._log.append(self._kind, self._schema_version, self._parts)
        except BaseException as error:
            self._fail(error)
            raise
        return self._ts

    def __exit__(self, _kind, error, _trace):
        if error is not None:
            self._fail(error)
            return
        try:
            if self._note is not None:
                self._note(self._ts)
            self._log.applied(self._ts)
            self._ts = None
        except BaseException as failed:
            self._fail(failed)
            raise

    def __dealloc__(self):
        # Only where a handler has run after ``__enter__`` and before the body.
        if self._ts is not None and self._log is not None:
            self._log.poison(RuntimeError("interrupted between the append of a record and its application"))

    cdef _fail(self, error):
        # Asked of the log, since ``append`` or ``applied`` may have done its work and not have returned.
        self._log.poison_if_owed(error)
        self._ts = None


@cython.final
@cython.no_gc_clear
cdef class Turns:
    """A mutex, for ``with`` or ``HeldLocks``, that changes hands seldom; not reentrant.

    While others wait, one thread may take it again and again for ``turn_s``; then it is given to the one that
    has waited longest.  Whoever waits looks again after ``turn_s``: the holder may not have come back.
    ``now`` gives seconds; what it raises passes through, the mutex free.
    """
    cdef:
        object _now
        object _mutex
        list _waiting
        double _turn_s
        double _since

    def __init__(self, double turn_s, now):
        self._turn_s = turn_s
        self._now = now
        self._mutex = allocate_lock()
        # A locked gate for each thread that waits: opened, it has been given the mutex.
        self._waiting = []
        # When the turn began during which they wait.
        self._since = 0.0

    def acquire(self):
        if not self._mutex.acquire(False):
            self._wait()

    def release(self):
        cdef double now_s
        if not self._waiting:
            self._mutex.release()
            return
        try:
            now_s = self._now()
        except BaseException:
            self._mutex.release()
            raise
        if self._waiting and now_s - self._since >= self._turn_s:
            # The mutex stays locked, so that nobody is faster than the one it is given to.
            self._since = now_s
            self._waiting.pop(0).release()
        else:
            self._mutex.release()

    @property
    def waiting(self):
        """How many threads wait."""
        return len(self._waiting)

    def locked(self):
        return self._mutex.locked()

    def __enter__(self):
        self.acquire()

    def __exit__(self, *_):
        self.release()

    cdef _wait(self):
        cdef double now_s = self._now()
        gate = allocate_lock()
        gate.acquire()
        if not self._waiting:
            self._since = now_s
        self._waiting.append(gate)
        try:
            while not gate.acquire(True, self._turn_s):
                if self._mutex.acquire(False):
                    self._waiting.remove(gate)
                    self._since = now_s
                    return
        except BaseException:  # an interrupt
            if gate in self._waiting:
                self._waiting.remove(gate)
            else:
                self.release()
            raise
