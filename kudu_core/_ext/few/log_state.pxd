# What a log's watermarks are, and its append of a small record.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from kudu_core._ext.files.descriptors cimport Descriptor

cdef enum:
    RECORD_HEAD_BYTES = 40      # docs/format-log.md, "Log"
    SMALL_RECORD_BYTES = 16 << 10
    LARGE_RECORD_BYTES = 256 << 10


cdef class SegmentRoom:
    cdef:
        public bytes salt
        """What the CRC of each record covers beside the record."""
        public uint64_t end
        """Where its records end."""
        public uint64_t filled
        """Below it the file's bytes have been written."""
        public uint64_t capacity
        public uint64_t last_ts
        """Of its last record, or of the last one before it, as ``last_lsn``."""
        public uint64_t last_lsn
        public object file
        public object following


cdef class LogState:
    cdef:
        public uint64_t last_ts
        """The largest timestamp assigned, or reserved by ``raise_last_ts``."""
        public uint64_t last_record_ts
        public uint64_t last_lsn
        public uint64_t durable_ts
        """The last record that a finished fsync covers."""
        public uint64_t durable_lsn
        public uint64_t applied_ts
        """A: every record <= A is applied, and none will be added."""
        public uint64_t committed_ts
        """W, as the other processes can read it."""
        public uint64_t committed_lsn
        public uint64_t records
        public uint64_t bytes_appended
        readonly dict in_flight
        """Timestamps appended and not yet applied, in the order of the log, and whose they are."""
        public object failure
        """What stopped all writing; it is set once and never taken back."""
        public bint closed
        readonly bint syncs
        """A call returns when its record is durable."""
        readonly bint groups
        """The log's thread makes records durable, soon."""
        public object mutex
        public object clock
        readonly object advancing
        object _waiting
        public SegmentRoom active
        uint8_t* _room          # of one record; under the mutex
        Py_ssize_t _room_bytes  # of its payload
    cdef Descriptor plain(self, Py_ssize_t size)
    cdef bint _more_room(self, Py_ssize_t size)
    cdef uint64_t next_ts(self) except? 0
    cdef uint8_t* payload_room(self) noexcept
    cdef int write(
        self, Descriptor file, uint64_t ts, int kind, uint32_t schema_version, Py_ssize_t size
    ) except -1
    cdef _undo(self, uint64_t ts, error)
    cdef int begin_flight(self, uint64_t ts) except -1
    cpdef uint64_t append_plain(self, int kind, uint32_t schema_version, bytes payload) except? 0
    cpdef applied(self, uint64_t ts)
    cpdef advance(self)
