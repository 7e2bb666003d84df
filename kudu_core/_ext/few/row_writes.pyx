"""Writes of single rows: the walk of ``kudu_core/table/write/one_row.py``, compiled.

What it knows of a table is what it asks here: the engine's ``schema``, ``tablets`` and ``refusal``, of a
tablet its ``mutex`` and ``view``, of a store what takes one row.  An insert is laid within the log's mutex,
between the write of its record and the watermarks: the room is there and the work shorter than to take the
mutex twice, and nothing of it is in Python, so no interrupt comes between.  A change, and every record that
does not lie in the plain place (``log_state.pyx``), is in flight meanwhile, as records of other walks are.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject_GenericSetAttr
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from kudu_core._ext.base.hashes cimport murmur3_bytes
from kudu_core._ext.files.descriptors cimport Descriptor
from kudu_core._ext.few.log_state cimport LogState
from kudu_core._ext.few.memory_counts cimport MemoryCounts
from kudu_core._ext.row.row_writer cimport RowWriter
from kudu_core._ext.row.view cimport MemoryPoints, PointView
from kudu_core._ext.rules.decide cimport CALL_DELETE, CALL_UPSERT

from kudu_core._ext.base.holding import poison, poison_if_owed
from kudu_core._ext.base.status import NeedsGeneralPath, PageError

cdef tuple COUNTED = (None, "updated", "deleted", "inserted")


@cython.auto_pickle(False)
cdef class RowWrites:
    """Writes of single rows into an open table.

    ``ingest_bytes``, ``ingest_rows``: calls of so much go to files.  ``limit_bytes``: of memory.  ``result``:
    the class of what is answered.  ``no_memory(nbytes)``: the error where there is none.  ``checks``: assert
    that rows take what was reserved for them, and no more.
    """

    def __init__(
        self, engine, LogState log not None, MemoryCounts memory not None, *, ingest_bytes, ingest_rows,
        limit_bytes, result, no_memory, checks,
    ):
        self.engine, self.log, self.memory = engine, log, memory
        self.ingest_bytes, self.ingest_rows = ingest_bytes, ingest_rows
        self.limit_bytes = limit_bytes
        self.result, self.checks = result, checks
        self.no_memory = no_memory

    def write(self, int call, bint ignores, dict row not None, bint wait=True):
        """Apply one operation, a ``CALL_``, to one row; None: nothing was done, take the general path.

        ``ignores``: a row that the operation refuses is passed over.  ``wait``: until the answer's timestamp
        is visible.
        """
        cdef:
            object engine = self.engine, schema = engine.schema, tablets = engine.tablets
            object tablet, mutex, result
            RowWriter writer
            int version
            tuple prepared, known = self.known
            bytes key
            list cells
            uint64_t ts = 0
        if engine.refusal is not None or self.ingest_rows <= 1:
            return None             # refused
        if known is None or known[0] is not schema or known[1] is not tablets:
            known = self.learn(schema, tablets)
        writer, version, tablet = <RowWriter>known[2], known[3], known[4]
        prepared = writer.prepare(row, call, self.ingest_bytes)
        if prepared is None:
            return None
        key, cells = <bytes>prepared[0], <list>prepared[1]
        if tablet is None:
            tablet = _routed(known[5], tablets, key)
            if tablet is None:
                return None
        if self.memory.estimate() > self.memory.slow_bytes:
            engine.memory.admit()
        mutex = tablet.mutex
        mutex.acquire()
        try:
            if engine.refusal is not None or engine.schema is not schema or engine.tablets is not tablets:
                return None
            if self.log.failure is not None:
                self.log.raise_if_poisoned()
            result = self._decided(tablet, writer, version, call, ignores, key, cells, &ts)
        finally:
            mutex.release()
        if wait:
            self.wait(ts)
        return result

    cdef wait(self, uint64_t ts):
        """Return when the record of ``ts`` is visible (protocol W7)."""
        if (self.log.committed_ts if self.log.syncs else self.log.applied_ts) < ts:
            self.log.wait_visible(ts)

    cdef tuple learn(self, schema, tablets):
        """What is asked of a schema and of tablets, for the next rows as well."""
        cdef RowWriter writer = schema.row_codec.writer
        cdef int version = schema.version
        known = (schema, tablets, writer, version, tablets.only, tablets.partitions.router)
        self.known = known
        return known

    cdef _decided(
        self, tablet, RowWriter writer, int version, int call, bint ignores, bytes key, list cells,
        uint64_t* ts
    ):
        """Under the tablet's mutex: what is answered, and in ``ts`` when it is visible; None as ``write``."""
        cdef:
            object view = tablet.view, found = None
            PointView points = view.points
            MemoryPoints active = points.memories[0]
            uint64_t key_hash = murmur3_bytes(
                <const uint8_t*>PyBytes_AS_STRING(key), <size_t>PyBytes_GET_SIZE(key)
            )
            Py_ssize_t place = -1
            bint ghost = False
            int op
        if active.version != version:
            return None
        try:
            for index, row in points.find(key, key_hash):
                if view.stores[index].lives(row):
                    place, found = index, row
                    break
                ghost = ghost or index == 0
        except (NeedsGeneralPath, PageError):
            return None
        if place < 0 and ghost:
            return None             # a dead entry of the active MemRowSet has to be revived
        if place < 0 and call <= CALL_UPSERT:
            if call == CALL_UPSERT and not writer.complete(cells):
                return None
            op = INSERT
            ts[0] = self._insert(tablet, active, writer, version, key, key_hash, cells)
        elif place >= 0 and call >= CALL_UPSERT:
            op = DELETE if call == CALL_DELETE else UPDATE
            ts[0] = self._change(tablet.home_of(place), tablet, writer, version, op, found, cells)
        elif ignores:
            # Protocol W4: nothing to log; the answer may rest on records that are not visible yet.
            ts[0] = tablet.newest_applied
            return self.result(max(ts[0], self.log.visible_ts), ignored=1)
        else:
            return None             # refused
        return None if ts[0] == 0 else self._counted(ts[0], op)

    cdef _counted(self, uint64_t ts, int op):
        """The answer to one row.  What a frozen dataclass is made with is a call for each field, 0.5 us."""
        made = new_object(self.result, (), NULL)
        PyObject_GenericSetAttr(made, "timestamp", ts)
        PyObject_GenericSetAttr(made, COUNTED[op], 1)
        return made

    cdef uint64_t _insert(
        self, tablet, MemoryPoints active, RowWriter writer, int version, bytes key, uint64_t key_hash,
        list cells
    ) except? 0:
        """Room, a record, and the row in the active MemRowSet; its timestamp, 0: nothing was done."""
        cdef:
            LogState log = self.log
            Descriptor file
            Py_ssize_t given = 0, size = writer.measure(cells, &given)
            uint32_t tablet_id = tablet.id
            uint64_t ts = 0
        store = tablet.view.active if self.checks else None
        if size > self.limit_bytes:
            self.memory.check_batch(size)
        try:
            active.reserve_one(key, cells)
        except OverflowError:
            return 0                # a column fills up: the general path counts exactly
        except MemoryError:
            raise self.no_memory(size) from None
        self.note(size)
        allocated = store.allocated if self.checks else None
        log.mutex.acquire()
        try:
            file = log.plain(size)
            if file is not None:
                ts = log.next_ts()
            if ts:
                writer.write_payload(log.payload_room(), INSERT, tablet_id, cells, given)
                log.write(file, ts, RECORD_KIND_WRITE, <uint32_t>version, size)
                try:
                    active.insert_one(ts, key, key_hash, cells)
                    self._check(store, allocated)
                    tablet.newest_applied = ts
                except BaseException as error:
                    log.begin_flight(ts)
                    poison(log, error)
                    raise
                log.advance()
        finally:
            log.mutex.release()
        if ts:
            if log.groups:
                log.ask_log_thread()
            return ts
        try:
            ts = log.append(RECORD_KIND_WRITE, version, (writer.payload(INSERT, tablet_id, cells),))
            active.insert_one(ts, key, key_hash, cells)
            self._check(store, allocated)
            tablet.newest_applied = ts
            log.applied(ts)
        except BaseException as error:
            poison_if_owed(log, error)
            raise
        return ts

    cdef uint64_t _change(
        self, home, tablet, RowWriter writer, int version, int op, row, list cells
    ) except? 0:
        """The same for a change of a row that is there."""
        cdef:
            LogState log = self.log
            bytes payload = writer.payload(op, tablet.id, cells)
            uint64_t ts
        if len(payload) > self.limit_bytes:
            self.memory.check_batch(len(payload))
        try:
            home.reserve_change_one(op, writer.value_ids, writer.widths, cells)
        except OverflowError:
            return 0
        except MemoryError:
            raise self.no_memory(len(payload)) from None
        self.note(len(payload))
        allocated = home.allocated if self.checks else None
        try:
            ts = log.append(RECORD_KIND_WRITE, version, (payload,))
            home.change_one(ts, op, row, writer.value_ids, cells)
            self._check(home, allocated)
            tablet.newest_applied = ts
            log.applied(ts)
        except BaseException as error:
            poison_if_owed(log, error)
            raise
        return ts

    cdef note(self, Py_ssize_t size):
        """Count what memory takes in."""
        if self.memory.count_bytes(2 * size, size):
            self.memory.grown()

    cdef _check(self, store, allocated):
        if self.checks and store.allocated != allocated:
            raise AssertionError("a row took more than was reserved for it")


cdef _routed(router, tablets, bytes key):
    """The tablet of a key; None: there is none, or the general path must say."""
    if router is None:
        return None
    cdef int64_t ordinal = router.route(key)
    return None if ordinal < 0 else tablets.of_ordinal(ordinal)
