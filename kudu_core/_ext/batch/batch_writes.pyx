"""Writes of some hundred or thousand rows of Arrow: the walk of ``table/write/log_walk.py``, compiled.

For the plain case: columns of the table's own types, keys of which none repeats, rows that the
rules accept or ignore.  Everything else gives None, with nothing done, and the general path answers.
"""
cimport cython
from cpython.object cimport PyObject_GenericSetAttr
from libc.stdint cimport int64_t, uint64_t

from kudu_core._ext.batch.given_batch cimport GivenBatch, cell_bytes, rows_of
from kudu_core._ext.few.few_writes cimport FewWrites
from kudu_core._ext.few.log_state cimport LogState
from kudu_core._ext.few.row_writes cimport DELETE, INSERT, RECORD_KIND_WRITE, UPDATE, new_object
from kudu_core._ext.row.row_writer cimport RowWriter
from kudu_core._ext.row.view cimport PointView
from kudu_core._ext.rules.decide cimport CALL_DELETE, CALL_INSERT, CALL_UPSERT

from kudu_core._ext.base.holding import HeldLocks, poison_if_owed
from kudu_core._ext.batch.batch_payload import payload_of_batch
from kudu_core._ext.batch.batch_stores import locate_in_memory, parted

import numpy as np

cdef enum:
    ROOM_BYTES = 32 << 20       # of a column: more goes to files, or row by row into what is too large
    NOWHERE = -1
    NEW_ROW_BYTES = 48          # beside its cells: ``tablet/store/apply.py``, ``ROW_BYTES``
    CHANGE_BYTES = 40


@cython.final
@cython.auto_pickle(False)
cdef class BatchWrites(FewWrites):
    """Writes into an open table: of single rows, of a few, and of batches.

    ``locate(view, batch, rows)``: as ``batch_stores.locate_in_memory``, of a view with rowsets on disk.
    """

    cdef object locate

    def __init__(self, engine, log, memory, *, locate, **rest):
        FewWrites.__init__(self, engine, log, memory, **rest)
        self.locate = locate

    def write_batch(self, int call, bint ignores, given, bint wait=True):
        """Apply one operation to the rows of a record batch, all or nothing; None as ``write``."""
        cdef:
            object engine = self.engine, schema = engine.schema, tablets = engine.tablets, result
            tuple known = self.known
            int64_t room = min(self.ingest_bytes, <int64_t>ROOM_BYTES)
            GivenBatch batch
            list shares
            uint64_t ts = 0
        if engine.refusal is not None or len(given) >= self.ingest_rows:
            return None             # refused, or they go to files
        if known is None or known[0] is not schema or known[1] is not tablets:
            known = self.learn(schema, tablets)
        batch = schema.row_codec.batch(given, call, room)
        if batch is None:
            return None
        shares = _shares(known, batch)
        if shares is None:
            return None
        if self.memory.estimate() > self.memory.slow_bytes:
            engine.memory.admit()
        locks = HeldLocks((engine.short_writes, *[(<Share>share).tablet.mutex for share in shares]))
        locks.__enter__()
        try:
            if engine.refusal is not None or engine.schema is not schema or engine.tablets is not tablets:
                return None
            if self.log.failure is not None:
                self.log.raise_if_poisoned()
            result = self._decided_batch(shares, batch, known[3], call, ignores, room, &ts)
        finally:
            locks.__exit__(None, None, None)
        if wait:
            self.wait(ts)
        return result

    cdef _decided_batch(
        self, list shares, GivenBatch batch, int version, int call, bint ignores, int64_t room, uint64_t* ts
    ):
        """Under the locks: what is answered, and in ``ts`` when it is visible; None as ``write``."""
        cdef:
            Share share
            Py_ssize_t absent = 0, inserted = 0, changed = 0
            bint ghosts = False
        for share in shares:
            view = share.tablet.view
            if view.active.schema.version != version:
                return None
            ghosts |= share.locate(view, batch, self.locate)
            absent += share.absent
        if not ignores and ((absent and call > CALL_UPSERT) or (absent < batch.rows and call == CALL_INSERT)):
            return None             # refused
        if absent and call <= CALL_UPSERT:
            if ghosts or (call == CALL_UPSERT and not batch.complete(room)):
                return None         # a dead entry has to be revived, or a column has no default
            inserted = absent
        if call >= CALL_UPSERT:
            changed = batch.rows - absent
        if not inserted and not changed:
            # Protocol W4: nothing to log; the answer may rest on records that are not visible yet.
            for share in shares:
                ts[0] = max(ts[0], <uint64_t>share.tablet.newest_applied)
            return self.result(max(ts[0], self.log.visible_ts), ignored=batch.rows)
        ts[0] = self._log_batch(
            shares, batch, version, DELETE if call == CALL_DELETE else UPDATE, inserted > 0, changed > 0
        )
        if ts[0] == 0:
            return None
        made = new_object(self.result, (), NULL)
        PyObject_GenericSetAttr(made, "timestamp", ts[0])
        PyObject_GenericSetAttr(made, "inserted", inserted)
        PyObject_GenericSetAttr(made, "deleted" if call == CALL_DELETE else "updated", changed)
        PyObject_GenericSetAttr(made, "ignored", batch.rows - inserted - changed)
        return made

    cdef uint64_t _log_batch(
        self, list shares, GivenBatch batch, int version, int op, bint inserts, bint changes
    ) except? 0:
        """Room, one record, and what it says in the stores; its timestamp, 0: nothing was done."""
        cdef:
            LogState log = self.log
            Share share
            int64_t size, store_bytes = 0
            uint64_t ts = 0
            list sections = []
            bytes payload
        if changes:
            rows = _joined([rows for share in shares for rows in share.homes.values()])
            sections.append((op, rows))
            store_bytes += _store_bytes(batch, op, rows)
        if inserts:
            rows = _joined([share.fresh for share in shares if share.absent])
            sections.append((INSERT, rows))
            store_bytes += _store_bytes(batch, INSERT, rows)
        tablet_ids = tuple([(<Share>share).tablet.id for share in shares])
        payload = payload_of_batch(batch, tablet_ids, _places(shares, batch.rows), sections)
        size = len(payload)
        if size >= self.ingest_bytes:
            return 0                # the rows may have to go to files
        if max(size, store_bytes) > self.limit_bytes:
            self.memory.check_batch(max(size, store_bytes))
        try:
            for share in shares:
                share.reserve(batch, op, inserts, changes)
        except OverflowError:
            return 0                # a column fills up: the general path counts exactly
        except MemoryError:
            raise self.no_memory(size) from None
        if self.memory.count_bytes(max(2 * size, store_bytes), size):
            self.memory.grown()
        allocated = [(<Share>share).allocated() for share in shares] if self.checks else None
        try:
            ts = log.append(RECORD_KIND_WRITE, version, (payload,))
            for share in shares:
                share.lay(ts, batch, op)
            if self.checks and [(<Share>share).allocated() for share in shares] != allocated:
                raise AssertionError("rows took more than was reserved for them")
            log.applied(ts)
        except BaseException as error:
            poison_if_owed(log, error)
            raise
        return ts


@cython.final
@cython.auto_pickle(False)
cdef class Share:
    """The rows of a batch that belong to one tablet."""
    cdef:
        object tablet
        object rows             # (n,) int64, ascending; None: all of the batch
        object fresh            # of these, those whose keys live nowhere; None: all of the batch
        Py_ssize_t absent       # how many these are
        dict homes              # place of a store in the view: the rows that live there
        dict rowids             # and where in it, (n,) uint32
        list _laid              # (store, rowids, rows) for which there is room
        object _active          # MemRowSet that has room for the new rows; None: there are none

    def __init__(self, tablet, rows):
        self.tablet, self.rows = tablet, rows

    cdef bint locate(self, view, GivenBatch batch, locate) except -1:
        """Find where the keys live; whether one that lives nowhere has a dead entry in the MemRowSet."""
        cdef:
            PointView points = view.points
            dict homes
            bint ghosts
        if view.rowsets:
            stores, rows, dead = locate(view, batch, self.rows)
        else:
            stores, rows, dead = locate_in_memory(points.memories, batch, self.rows)
        homes, ghosts = parted(stores, dead)
        self.absent, self.homes, self.rowids = 0, {}, {}
        for place, mine in homes.items():
            chosen = self.rows if mine is None else mine if self.rows is None else self.rows[mine]
            if place == NOWHERE:
                self.fresh = chosen
                self.absent = batch.rows if chosen is None else len(chosen)
            else:
                self.homes[place] = chosen
                self.rowids[place] = (rows if mine is None else rows[mine]).astype("u4")
        return ghosts

    cdef int reserve(self, GivenBatch batch, int op, bint inserts, bint changes) except -1:
        """Make room for ``lay``: of new rows if ``inserts``, of changes by ``op`` if ``changes``."""
        cdef RowWriter writer = batch.writer
        self._active, self._laid = None, []
        if inserts and self.absent:
            self._active = self.tablet.view.active
            self._active.reserve_insert_batch(batch, self.fresh)
        if changes:
            for place, rows in self.homes.items():
                home = self.tablet.home_of(place)
                home.reserve_change_batch(op, writer.value_ids, writer.widths, batch, rows)
                self._laid.append((home, self.rowids[place], rows))
        return 0

    cdef list allocated(self):
        """Bytes of the buffers of the stores concerned, room included."""
        stores = [home for home, _, _ in self._laid]
        return [store.allocated for store in (stores if self._active is None else [self._active, *stores])]

    cdef int lay(self, ts, GivenBatch batch, int op) except -1:
        """Put the rows into the room, and say so to the tablet."""
        if self._active is not None:
            self._active.insert_batch(ts, batch, self.fresh)
        for home, rowids, rows in self._laid:
            home.change_batch(ts, op, rowids, batch.writer.value_ids, batch, rows)
        self.tablet.newest_applied = ts
        return 0


cdef list _shares(tuple known, GivenBatch batch):
    """The rows by their tablets, in the order in which the general path takes these.

    None: a key has no tablet, so its row is refused, or there are too many columns to route by.
    """
    tablets, only, router = known[1], known[4], known[5]
    if only is not None:
        return [Share(only, None)]
    if router is None:
        return None
    ordinals = router.route_keys(batch.data, batch.offsets)
    found = (np.flatnonzero(np.bincount(ordinals + 1)) - 1).tolist()  # -1: no tablet
    if found[0] < 0:
        return None
    if len(found) == 1:
        return [Share(tablets.of_ordinal(found[0]), None)]
    return [Share(tablets.of_ordinal(ordinal), np.flatnonzero(ordinals == ordinal)) for ordinal in found]


cdef _places(list shares, Py_ssize_t count):
    """For each row the position of its tablet, (count,) int32; None where there is one tablet."""
    cdef Share share
    if len(shares) == 1:
        return None
    out = np.empty(count, np.int32)
    for i, share in enumerate(shares):
        out[share.rows] = i
    return out


cdef _joined(list parts):
    """Rows of several parts, ascending; None: all of the batch."""
    return parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))


cdef int64_t _store_bytes(GivenBatch batch, int op, chosen) except -1:
    """About what rows take in memory, as ``Laying.nbytes`` counts it."""
    cdef:
        int64_t n, total = 0
        const int64_t* rows = rows_of(batch, chosen, &n)
        Py_ssize_t i
    for i in range(batch.writer.count):
        if op == INSERT or (op == UPDATE and batch.columns[i].given and i not in batch.writer.keys):
            total += cell_bytes(&batch.columns[i], rows, n)
            if batch.columns[i].width == 0:
                total += 4 * (n + 1)
            if batch.columns[i].bits != NULL:
                total += (n + 7) >> 3
            if op == UPDATE:
                total += 8 * n
    return total + n * (NEW_ROW_BYTES + len(batch.data) // batch.rows + 8 if op == INSERT else CHANGE_BYTES)
