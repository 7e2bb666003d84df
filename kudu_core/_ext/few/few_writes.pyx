"""Writes of a few rows: the walk of ``kudu_core/table/write/few_rows.py``, compiled.

As a single row's (``row_writes.pyx``) the rows are laid within the log's mutex, between the write of their
record and the watermarks.  Where that runs code in Python, in a store that takes changes, an interrupt may
come, and poisons as it does between the append and the end of every other record.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.object cimport PyObject_GenericSetAttr
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

from kudu_core._ext.files.descriptors cimport Descriptor
from kudu_core._ext.few.log_state cimport LogState
from kudu_core._ext.few.row_writes cimport (
    DELETE,
    INSERT,
    RECORD_KIND_WRITE,
    UPDATE,
    RowWrites,
    new_object,
)
from kudu_core._ext.row.row_writer cimport RowWriter
from kudu_core._ext.rules.decide cimport CALL_DELETE, CALL_INSERT, CALL_UPSERT

from kudu_core._ext.base.holding import HeldLocks, poison, poison_if_owed
from kudu_core._ext.base.status import NeedsGeneralPath, PageError
from kudu_core._ext.few.call_rows import FewRows
from kudu_core._ext.few.few_rows import grouped, picked


@cython.auto_pickle(False)
cdef class FewWrites(RowWrites):
    """Writes of single rows, and of a few, into an open table."""

    def write_few(self, int call, bint ignores, given, bint wait=True):
        """Apply one operation to a few rows, dicts or a record batch, all or nothing; None as ``write``."""
        cdef:
            object engine = self.engine, schema = engine.schema, tablets = engine.tablets, rows, result
            tuple prepared, known = self.known
            RowWriter writer
            uint64_t ts = 0
        if engine.refusal is not None or len(given) >= self.ingest_rows:
            return None             # refused, or they go to files
        if known is None or known[0] is not schema or known[1] is not tablets:
            known = self.learn(schema, tablets)
        writer = known[2]
        if type(given) is list:
            prepared = writer.prepare_rows(given, call, self.ingest_bytes)
        else:
            prepared = schema.row_codec.prepare_batch(given, call, self.ingest_bytes)
        if prepared is None:
            return None
        rows = _by_tablet(known, prepared[0], prepared[1])
        if rows is None:
            return None
        if self.memory.estimate() > self.memory.slow_bytes:
            engine.memory.admit()
        touched = rows.tablets
        mutex = touched[0].mutex if len(touched) == 1 else HeldLocks([tablet.mutex for tablet in touched])
        mutex.__enter__()
        try:
            if engine.refusal is not None or engine.schema is not schema or engine.tablets is not tablets:
                return None
            if self.log.failure is not None:
                self.log.raise_if_poisoned()
            result = self._decided_few(rows, writer, known[3], call, ignores, &ts)
        finally:
            mutex.__exit__(None, None, None)
        if wait:
            self.wait(ts)
        return result

    cdef _decided_few(self, rows, RowWriter writer, int version, int call, bint ignores, uint64_t* ts):
        """``_decided`` for a few rows, under the mutexes of their tablets."""
        cdef list absent, present, ignored, inserts, changes
        try:
            if not rows.locate(version):
                return None
        except (NeedsGeneralPath, PageError):
            return None
        absent, present = rows.absent, rows.present
        ignored = absent if call > CALL_UPSERT else present if call == CALL_INSERT else []
        if ignored and not ignores:
            return None             # refused
        if call == CALL_UPSERT:
            for cells in picked(rows.cells, absent):
                if not writer.complete(cells):
                    return None
        inserts = absent if call <= CALL_UPSERT else []
        changes = present if call >= CALL_UPSERT else []
        if not inserts and not changes:
            # Protocol W4: nothing to log; the answer may rest on records that are not visible yet.
            for tablet in rows.tablets:
                ts[0] = max(ts[0], <uint64_t>tablet.newest_applied)
            return self.result(max(ts[0], self.log.visible_ts), ignored=len(ignored))
        ts[0] = self._log_few(rows, writer, version, call, inserts, changes)
        if ts[0] == 0:
            return None
        made = new_object(self.result, (), NULL)
        PyObject_GenericSetAttr(made, "timestamp", ts[0])
        PyObject_GenericSetAttr(made, "inserted", len(inserts))
        PyObject_GenericSetAttr(made, "deleted" if call == CALL_DELETE else "updated", len(changes))
        PyObject_GenericSetAttr(made, "ignored", len(ignored))
        return made

    cdef uint64_t _log_few(
        self, rows, RowWriter writer, int version, int call, list inserts, list changes
    ) except? 0:
        """Room, one record, and what it says in the stores; its timestamp, 0: nothing was done."""
        cdef:
            LogState log = self.log
            Descriptor file
            int op = DELETE if call == CALL_DELETE else UPDATE
            bytes payload = rows.payload(writer.ids, writer.widths, [(op, changes), (INSERT, inserts)])
            Py_ssize_t size = len(payload)
            uint64_t ts = 0
        if size >= self.ingest_bytes:
            return 0                # the rows may have to go to files
        if size > self.limit_bytes:
            self.memory.check_batch(size)
        try:
            rows.reserve(op, writer.value_ids, writer.widths, bool(inserts), bool(changes))
        except OverflowError:
            return 0                # a column fills up: the general path counts exactly
        except MemoryError:
            raise self.no_memory(size) from None
        self.note(size)
        allocated = [store.allocated for store in rows.stores] if self.checks else None
        log.mutex.acquire()
        try:
            file = log.plain(size)
            if file is not None:
                ts = log.next_ts()
            if ts:
                memcpy(log.payload_room(), PyBytes_AS_STRING(payload), <size_t>size)
                log.write(file, ts, RECORD_KIND_WRITE, <uint32_t>version, size)
                try:
                    rows.put(ts, op, writer.value_ids)
                    self._check_few(rows, allocated)
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
            ts = log.append(RECORD_KIND_WRITE, version, (payload,))
            rows.put(ts, op, writer.value_ids)
            self._check_few(rows, allocated)
            log.applied(ts)
        except BaseException as error:
            poison_if_owed(log, error)
            raise
        return ts

    cdef _check_few(self, rows, allocated):
        if self.checks and [store.allocated for store in rows.stores] != allocated:
            raise AssertionError("rows took more than was reserved for them")


cdef _by_tablet(tuple known, list keys, list cells):
    """The rows by their tablets, in the order in which the general path takes these.

    None: a key has no tablet, so its row is refused, or there are too many columns to route by.
    """
    tablets, only, router = known[1], known[4], known[5]
    if only is not None:
        return FewRows(keys, cells, [only], None)
    if router is None:
        return None
    places = grouped(router.route_many(keys))
    ordinals = sorted(places)
    if ordinals[0] < 0:
        return None
    found = [tablets.of_ordinal(ordinal) for ordinal in ordinals]
    return FewRows(keys, cells, found, [places[i] for i in ordinals] if len(ordinals) > 1 else None)
