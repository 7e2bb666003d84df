"""The rows of a batch and the stores in memory: where their keys live, and how they are laid.

As in ``few/few_rows.pyx``: what the ``reserve`` functions have taken, the ``put`` functions lay without
allocating and without refusing, and the last thing written is what says that the rows exist.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kudu_core._ext.base.copy_cells cimport kc_take
from kudu_core._ext.batch.given_batch cimport GivenBatch, BatchColumn, cell_bytes, rows_of
from kudu_core._ext.columns.growing cimport AppendColumn
from kudu_core._ext.index.hash_index cimport Buffers, KeyTable
from kudu_core._ext.index.key_slots cimport GivenKeys, append_batch, look_up_batch
from kudu_core._ext.row.change_log cimport ChangePoints
from kudu_core._ext.row.view cimport MemoryPoints

from kudu_core._ext.columns.growing import data_limit

import numpy as np

cdef enum:
    ABSENT = -1


cdef int _keys_of(GivenBatch batch, const int64_t* rows, int64_t n, GivenKeys* keys) except -1:
    cdef:
        const uint8_t[::1] data = batch.data
        const int64_t[::1] offsets = batch.offsets
        const uint64_t[::1] hashes = batch.hashes
    keys.data = &data[0] if data.shape[0] else NULL
    keys.offsets, keys.hashes = &offsets[0], &hashes[0]
    keys.rows, keys.count = rows, n
    return 0


def locate_in_memory(list memories not None, GivenBatch batch not None, chosen):
    """Where keys of rows live in their newest state, under the tablet's mutex, among stores in memory.

    ``chosen``: the rows, (n,) int64, None: all.

    Returns ``(store, row, ghost)``: (n,) int32 place in ``memories``, -1: in none; (n,) int64 ordinal there;
    (n,) int64 ordinal of a dead entry of the first of them, -1: none.
    """
    cdef:
        Py_ssize_t index
        int64_t i, n
        const int64_t* rows = rows_of(batch, chosen, &n)
        GivenKeys keys
        MemoryPoints memory
        Buffers buffers
        uint64_t limit
        int32_t[::1] store
        int64_t[::1] row, ghost, found
        const uint8_t* live
        bint first
    stores = np.full(n, ABSENT, np.int32)
    ordinals, ghosts = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    store, row, ghost = stores, ordinals, ghosts
    _keys_of(batch, rows, n, &keys)
    for index in range(len(memories)):
        memory = memories[index]
        limit = <uint64_t>memory.inserted._count
        if limit == 0:
            continue
        found = np.empty(n, np.int64)
        buffers = memory.keys._buffers
        live = memory.live._at
        first = index == 0
        with nogil:
            look_up_batch(&buffers.at, &keys, limit, &found[0])
            for i in range(n):
                if found[i] >= 0:
                    if live[found[i]]:
                        store[i], row[i] = <int32_t>index, found[i]
                    elif first:
                        ghost[i] = found[i]
    return stores, ordinals, ghosts


def parted(const int32_t[::1] store not None, const int64_t[::1] ghost not None):
    """What ``locate_in_memory`` says, by store: ({store: rows (n,) int64, ascending, None: all}, whether a
    key that lives nowhere has a dead entry).  Keys that live nowhere are under -1."""
    cdef:
        int64_t i, n = store.shape[0]
        int32_t one
        bint ghosts = False, same = True
        dict out = {}
    if ghost.shape[0] != n:
        raise ValueError(f"{n} stores and {ghost.shape[0]} dead entries")
    for i in range(n):
        ghosts |= store[i] < 0 and ghost[i] >= 0
        same &= store[i] == store[0]
    if n == 0 or same:
        return ({store[0]: None} if n else {}), ghosts
    array = np.asarray(store)
    for one in (np.flatnonzero(np.bincount(array + 1)) - 1).tolist():  # -1: nowhere
        out[one] = np.flatnonzero(array == one)
    return out, ghosts


# ---- columns ----


cdef int _reserve_column(
    AppendColumn column, const BatchColumn* given, const int64_t* rows, int64_t n, int64_t most
) except -1:
    """Room for cells; OverflowError: the column would hold more than ``most`` bytes of them."""
    cdef int64_t size = 0
    if column.width != given.width:
        raise ValueError(f"cells of {given.width} bytes for a column of width {column.width}")
    if column.width == 0:
        size = cell_bytes(given, rows, n)
        if column._end + size > most:
            raise OverflowError(f"{column._end} bytes and {size} more exceed {most}")
    if column._count + n > column._rows_capacity or (
        column.width == 0 and column._end + size > column._data_capacity
    ):
        column._reserve(n, size)
    return 0


cdef void _put_column(
    AppendColumn column, const BatchColumn* given, const int64_t* rows, int64_t n
) noexcept nogil:
    """Cells to the end of a column that has room for them."""
    cdef:
        int64_t i, row, size, first_null = -1, end = column._end
        int32_t* ends
        uint8_t* at
    if column.width:
        at = column._values_at + column._count * column.width
        if rows == NULL:
            memcpy(at, given.values, <size_t>(n * column.width))
        else:
            kc_take(at, given.values, <uint64_t>-1, rows, n, column.width)
    else:
        ends = column._offsets_at + column._count + 1
        if rows == NULL:
            size = given.offsets[n] - <int64_t>given.offsets[0]
            if size:
                memcpy(column._values_at + end, given.values + given.offsets[0], <size_t>size)
            for i in range(n):
                ends[i] = <int32_t>(end + (given.offsets[i + 1] - given.offsets[0]))
            end += size
        else:
            for i in range(n):
                row = rows[i]
                size = given.offsets[row + 1] - given.offsets[row]
                if size:
                    memcpy(column._values_at + end, given.values + given.offsets[row], <size_t>size)
                end += size
                ends[i] = <int32_t>end
    if given.bits != NULL:
        first_null = column._append_validity(given.bits, rows, n)
    if first_null >= 0 and column._first_null < 0:
        column._first_null = column._count + first_null
    column._end = end
    column._count += n              # last: from here on the cells exist


# ---- new rows ----


def reserve_insert_batch(
    KeyTable table not None, AppendColumn inserted not None, list columns not None, GivenBatch batch not None,
    chosen,
):
    """Make room for ``put_insert_batch`` of these rows, in keys, insert times and columns of a MemRowSet.

    OverflowError: a column would be more than half full.
    """
    cdef:
        int64_t i, n, size = 0, most = data_limit() // 2
        const int64_t* rows = rows_of(batch, chosen, &n)
        const int64_t[::1] offsets = batch.offsets
    if len(columns) != batch.writer.count:
        raise ValueError(f"{len(columns)} columns of {batch.writer.count}")
    if rows == NULL:
        size = offsets[n]
    else:
        for i in range(n):
            size += offsets[rows[i] + 1] - offsets[rows[i]]
    table.reserve(n, size)
    for i in range(len(columns)):
        if not batch.columns[i].there:
            raise ValueError(f"column {i} of an insert is missing")
        _reserve_column(<AppendColumn?>columns[i], &batch.columns[i], rows, n, most)
    inserted.reserve_rows(n)


def put_insert_batch(
    KeyTable table not None, AppendColumn inserted not None, list columns not None, uint64_t ts,
    GivenBatch batch not None, chosen,
):
    """Append rows for which room was made, and whose keys are in no entry yet."""
    cdef:
        int64_t i, n
        const int64_t* rows = rows_of(batch, chosen, &n)
        GivenKeys keys
        Buffers buffers
        Py_ssize_t first = table.count
        AppendColumn column
    # It is there already; else memory would be written that is nobody's.
    reserve_insert_batch(table, inserted, columns, batch, chosen)
    buffers = table._buffers
    _keys_of(batch, rows, n, &keys)
    with nogil:
        append_batch(&buffers.at, &keys, <uint64_t>first)
    table.count = first + n
    for i in range(len(columns)):
        column = <AppendColumn?>columns[i]
        with nogil:
            _put_column(column, &batch.columns[i], rows, n)
    inserted._put_numbers(ts, 0, n)     # last: from here on the rows exist


# ---- changes ----


def reserve_change_batch(ChangePoints points not None, tuple ids not None, GivenBatch batch not None, chosen):
    """Make room for ``put_change_batch``.  ``ids``: of the schema's columns, None where none is set.

    Returns -1, or the position of a column that has no log yet.  OverflowError: a column would be more than
    half full.
    """
    cdef:
        int64_t i, n, most = data_limit() // 2
        const int64_t* rows = rows_of(batch, chosen, &n)
        AppendColumn numbers, rowids, values
    if len(ids) != batch.writer.count:
        raise ValueError(f"{len(ids)} columns of {batch.writer.count}")
    for i in range(len(ids)):
        if ids[i] is None or not batch.columns[i].given:
            continue
        log = points.by_id.get(ids[i])
        if log is None:
            return i
        _, numbers, rowids, values = <tuple>log
        _reserve_column(values, &batch.columns[i], rows, n, most)
        rowids.reserve_rows(n)
        numbers.reserve_rows(n)
    points.reserve(n)
    return -1


def put_change_batch(
    ChangePoints points not None, uint64_t ts, uint8_t op, const uint32_t[::1] rowids not None,
    tuple ids not None, GivenBatch batch not None, chosen,
):
    """Append changes of one operation at one time, for which room was made; of no row twice."""
    cdef:
        int64_t i, n
        const int64_t* rows = rows_of(batch, chosen, &n)
        uint64_t number = <uint64_t>points.timestamps._count
        AppendColumn numbers, places, values
    if rowids.shape[0] != n or len(ids) != batch.writer.count:
        raise ValueError(f"{rowids.shape[0]} rowids of {n} rows, {len(ids)} columns")
    if reserve_change_batch(points, ids, batch, chosen) >= 0:   # as of ``put_insert_batch``
        raise ValueError("a column has no log")
    for i in range(len(ids)):
        if ids[i] is None or not batch.columns[i].given:
            continue
        _, numbers, places, values = <tuple>points.by_id[ids[i]]
        with nogil:
            _put_column(values, &batch.columns[i], rows, n)
            memcpy(places._values_at + 4 * places._count, &rowids[0], <size_t>(4 * n))
            places._count += n
            numbers._put_numbers(number, 1, n)
    points.append_rows(ts, op, rowids)  # last: a reader finds a change by its timestamp
