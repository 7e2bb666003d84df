"""The watermarks of a log as numbers of C, and the append of a small record where nothing stands in its way.

The same steps as ``kudu_core/wal/log.py`` and the same bytes, for the plain case: the log is sound, the
record fits into the segment, and lies where zeros have been written ahead, in a file of the system.  Else
nothing is done, and the caller takes the long way: a new segment, zeros ahead, a clock beyond all timestamps,
a log that refuses, and a file before which something else stands, such as a test that lets writes fail.

It is compiled for its speed: a small record is 0.9 us in place of 2.5, of which write(2) is 0.6.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kudu_core._ext.base.crc32c cimport crc32c_of
from kudu_core._ext.files.descriptors cimport Descriptor, PlainFile

from kudu_core._ext.base.holding import poison_if_owed

# As ``common.format.members``: numbers that are counted on from lie below.
cdef uint64_t LIMIT = <uint64_t>0xFFFFFFFF << 32


@cython.auto_pickle(False)
cdef class SegmentRoom:
    """Where the records of the segment that takes them end, and what room there is."""


@cython.auto_pickle(False)
cdef class LogState:
    """The positions of a log and its failure.

    ``mutex`` guards all of them, but for ``failure`` and ``closed``, which may be set without it.
    """

    def __cinit__(self, *args, **keywords):
        self._room = <uint8_t*>PyMem_Malloc(RECORD_HEAD_BYTES + SMALL_RECORD_BYTES + 8)
        if self._room == NULL:
            raise MemoryError
        self._room_bytes = SMALL_RECORD_BYTES
        self.in_flight = {}

    def __init__(self, mutex, clock, advancing, str durability not None):
        """``advancing``: ``Gates`` that open when the log has got further."""
        self.mutex, self.clock = mutex, clock
        self.advancing, self._waiting = advancing, advancing.closed
        self.syncs, self.groups = durability == "sync", durability == "group"

    def __dealloc__(self):
        PyMem_Free(self._room)

    @property
    def visible_ts(self):
        """V: what a read in this process may see."""
        return self.committed_ts if self.syncs else self.applied_ts

    cdef Descriptor plain(self, Py_ssize_t size):
        """Under the mutex: the file for a record with ``size`` bytes of payload; None: the long way."""
        cdef SegmentRoom active = self.active
        cdef Py_ssize_t whole = (RECORD_HEAD_BYTES + size + 7) & ~<Py_ssize_t>7
        if self.failure is not None or self.closed or active is None or active.following is not None:
            return None
        if size > LARGE_RECORD_BYTES or active.end + <uint64_t>whole > min(active.filled, active.capacity):
            return None
        if not isinstance(active.file, PlainFile):
            return None
        if size > self._room_bytes and not self._more_room(size):
            return None
        return (<PlainFile>active.file).descriptor

    cdef bint _more_room(self, Py_ssize_t size):
        """Under the mutex: for a payload of that size.  The room stays: whoever writes one writes more."""
        cdef uint8_t* room
        size = max(size, min(2 * self._room_bytes, <Py_ssize_t>LARGE_RECORD_BYTES))
        room = <uint8_t*>PyMem_Realloc(self._room, <size_t>(RECORD_HEAD_BYTES + size + 8))
        if room == NULL:
            return False
        self._room, self._room_bytes = room, size
        return True

    cdef uint64_t next_ts(self) except? 0:
        """Under the mutex: the timestamp of the next record; 0: the long way says why there is none."""
        cdef uint64_t ts
        try:
            ts = self.clock.now_hybrid()
        except OverflowError:
            return 0
        ts = max(ts, self.last_ts + 1)
        return ts if ts < LIMIT else 0

    cdef uint8_t* payload_room(self) noexcept:
        """Where the payload of the record is put that ``write`` writes."""
        return self._room + RECORD_HEAD_BYTES

    cdef int write(
        self, Descriptor file, uint64_t ts, int kind, uint32_t schema_version, Py_ssize_t size
    ) except -1:
        """Under the mutex: write the record whose payload lies in its room.

        One that fails is cut back; if that fails too, the log is poisoned.
        """
        cdef:
            SegmentRoom active = self.active
            uint8_t* at = self._room
            uint32_t crc, length = <uint32_t>(RECORD_HEAD_BYTES + size)
            Py_ssize_t whole = (RECORD_HEAD_BYTES + size + 7) & ~<Py_ssize_t>7
            uint64_t lsn = self.last_lsn + 1
        memset(at, 0, RECORD_HEAD_BYTES)
        memset(at + RECORD_HEAD_BYTES + size, 0, <size_t>(whole - RECORD_HEAD_BYTES - size))
        memcpy(at, &length, 4)
        memcpy(at + 8, &lsn, 8)
        memcpy(at + 16, &ts, 8)
        memcpy(at + 24, &self.durable_lsn, 8)
        memcpy(at + 32, &schema_version, 4)
        at[36] = <uint8_t>kind
        crc = crc32c_of(0, at + RECORD_HEAD_BYTES, <size_t>(whole - RECORD_HEAD_BYTES))
        crc = crc32c_of(
            crc, <const uint8_t*>PyBytes_AS_STRING(active.salt), <size_t>PyBytes_GET_SIZE(active.salt)
        )
        crc = crc32c_of(crc, at, RECORD_HEAD_BYTES)
        memcpy(at + 4, &crc, 4)
        try:
            file.write(<const char*>at, whole, <long long>active.end)
        except BaseException as error:
            self._undo(ts, error)
            raise
        # From here on there is a record; no signal can come between the stores.
        active.end += <uint64_t>whole
        active.last_ts = self.last_ts = self.last_record_ts = ts
        active.last_lsn = self.last_lsn = lsn
        self.records += 1
        self.bytes_appended += length
        return 0

    cdef _undo(self, uint64_t ts, error):
        try:
            # An interrupt of what follows finds the record owed.
            self.begin_flight(ts)
            self.cut_back(self.active, ts, error)
        except BaseException as second:
            poison_if_owed(self, second)
            raise

    cdef int begin_flight(self, uint64_t ts) except -1:
        self.in_flight[ts] = PyThread_get_thread_ident()
        return 0

    cpdef uint64_t append_plain(self, int kind, uint32_t schema_version, bytes payload) except? 0:
        """Append a record, which is in flight; its timestamp, or 0: nothing was done, take the long way.

        An exception: nothing was appended, or the log is poisoned.
        """
        cdef:
            Descriptor file
            uint64_t ts = 0
            Py_ssize_t size = len(payload)
        self.mutex.acquire()
        try:
            file = self.plain(size)
            if file is not None:
                ts = self.next_ts()
            if ts:
                self.begin_flight(ts)
                memcpy(self.payload_room(), PyBytes_AS_STRING(payload), <size_t>size)
                self.write(file, ts, kind, schema_version, size)
        finally:
            self.mutex.release()
        return ts

    cpdef applied(self, uint64_t ts):
        """The stores hold the record of ``ts``: it is no longer in flight."""
        self.mutex.acquire()
        try:
            del self.in_flight[ts]
            self.advance()
        finally:
            self.mutex.release()

    cpdef advance(self):
        """Under the mutex: A and W follow what is in flight and what is durable."""
        cdef uint64_t applied = self.last_ts, watermark
        for ts in self.in_flight:
            applied = <uint64_t>ts - 1
            break
        if applied > self.applied_ts:
            self.applied_ts = applied
        watermark = min(self.applied_ts, self.durable_ts)
        if watermark > self.committed_ts or self.durable_lsn > self.committed_lsn:
            self.publish(watermark)
        if self._waiting:
            self.advancing.open()
