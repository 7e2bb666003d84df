"""The row rules: what each row of a write does, and what a batch of writes comes to.

Rows are decided one after the other against what the store holds and what the rows before them
did; rows of one batch may repeat keys.  A key is a *group* (``gid``), numbered in the order of
first appearance over all calls of a batch; five arrays carry its state from call to call:

    was_live  uint8[g]        the key was in the store before the batch
    live      uint8[g]        it is live now; starts as a copy of was_live
    touched   uint8[g]        some row changed it; starts as 0
    source    int64[g*ncols]  where each column's new value lies: a row of the batch (>= 0), the
                              default (-2), or nowhere, the old one stays (-1, the start)
    key_row   int64[g]        a row of the batch that holds the key's columns; starts as -1

Rows of the batch are counted through its calls: row i of a call is ``base + i``.  The kernel knows
no values, types or stores; whether a value may be stored is checked before, row by row
(``row_status``).  INSERT replaces every column, UPSERT and UPDATE those that the call gives.

Source: Kudu tablet/tablet.cc (ApplyRowOperation), tserver/tserver.proto.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

import numpy as np

cdef enum Code:
    CODE_OK = 0
    CODE_ALREADY_PRESENT = 1
    CODE_NOT_FOUND = 2
    CODE_NULL_IN_REQUIRED = 3
    CODE_IGNORED = 7

cpdef enum:
    NET_NOTHING = 0
    NET_INSERT = 1
    NET_UPDATE = 2
    NET_DELETE = 3

cdef enum RowSource:
    KEEP = -1
    DEFAULT = -2

OK = CODE_OK
ALREADY_PRESENT = CODE_ALREADY_PRESENT
NOT_FOUND = CODE_NOT_FOUND
NULL_IN_REQUIRED = CODE_NULL_IN_REQUIRED
IGNORED = CODE_IGNORED
SOURCE_KEEP = KEEP
SOURCE_DEFAULT = DEFAULT

cdef struct Counts:
    int64_t inserted
    int64_t updated
    int64_t deleted
    int64_t ignored
    int64_t errors

cdef struct CallRows:
    # One call of a batch, as plain pointers; NULL where an array has no entries.
    const int32_t* gid
    const uint8_t* ops          # NULL: all rows do `op`
    const uint8_t* row_status   # NULL: all rows are fine
    const uint8_t* given        # one byte a column
    const int32_t* given_columns
    int64_t n
    int64_t base
    int64_t ncols
    int64_t given_count
    int op
    bint required_missing

cdef struct GroupStates:
    uint8_t* live
    uint8_t* touched
    int64_t* source
    int64_t* key_row


cdef inline void _insert(const CallRows* call, GroupStates* state, int64_t group, int64_t row) noexcept nogil:
    cdef:
        int64_t* source = state.source + group * call.ncols
        int64_t column, mask
    for column in range(call.ncols):
        mask = -<int64_t>call.given[column]         # given is 0 or 1 here
        source[column] = (row & mask) | (<int64_t>DEFAULT & ~mask)
    state.live[group] = 1
    state.touched[group] = 1
    if state.key_row[group] < 0:
        state.key_row[group] = row


cdef inline void _update(const CallRows* call, GroupStates* state, int64_t group, int64_t row) noexcept nogil:
    cdef:
        int64_t* source = state.source + group * call.ncols
        int64_t k
    if call.given_count == 0:
        return
    for k in range(call.given_count):
        source[call.given_columns[k]] = row
    state.touched[group] = 1
    if state.key_row[group] < 0:
        state.key_row[group] = row


cdef inline void _delete(const CallRows* call, GroupStates* state, int64_t group, int64_t row) noexcept nogil:
    cdef:
        int64_t* source = state.source + group * call.ncols
        int64_t column
    for column in range(call.ncols):
        source[column] = KEEP
    state.live[group] = 0
    state.touched[group] = 1
    if state.key_row[group] < 0:
        state.key_row[group] = row


cdef void _decide(const CallRows* call, GroupStates* state, uint8_t* out_code, Counts* counts) noexcept nogil:
    cdef:
        int64_t i, group, row
        int op = call.op
        int code
        bint ignore
    for i in range(call.n):
        if call.row_status != NULL and call.row_status[i]:
            out_code[i] = call.row_status[i]
            continue
        if call.ops != NULL:
            op = call.ops[i]
        group = call.gid[i]
        row = call.base + i
        code = CODE_OK
        ignore = op & 1         # odd operations ignore; UPSERT_IGNORE never comes to it
        if state.live[group]:
            if op <= CALL_INSERT_IGNORE:
                code = CODE_ALREADY_PRESENT
            elif op <= CALL_UPDATE_IGNORE:
                _update(call, state, group, row)
                counts.updated += 1
            else:
                _delete(call, state, group, row)
                counts.deleted += 1
        elif op >= CALL_UPDATE:
            code = CODE_NOT_FOUND
        elif call.required_missing:
            code = CODE_NULL_IN_REQUIRED
            ignore = False      # only the presence of a row is ever ignored
        else:
            _insert(call, state, group, row)
            counts.inserted += 1
        if code != CODE_OK:
            if ignore:
                code = CODE_IGNORED
                counts.ignored += 1
            else:
                counts.errors += 1
        out_code[i] = <uint8_t>code


cdef bint _within(const int32_t[::1] gid, int64_t groups) noexcept nogil:
    cdef:
        Py_ssize_t i
        int32_t lowest = 0, highest = -1
    for i in range(gid.shape[0]):
        lowest = gid[i] if gid[i] < lowest else lowest
        highest = gid[i] if gid[i] > highest else highest
    return lowest >= 0 and highest < groups


cdef bint _all_below(const uint8_t[::1] data, uint8_t limit) noexcept nogil:
    cdef:
        Py_ssize_t i
        uint8_t highest = 0
    for i in range(data.shape[0]):
        highest = data[i] if data[i] > highest else highest
    return highest < limit


cdef int _check_state(Py_ssize_t groups, Py_ssize_t ncols, Py_ssize_t live, Py_ssize_t touched,
                      Py_ssize_t source) except -1:
    if live != groups or touched != groups or source != groups * ncols:
        raise ValueError(
            f"state of {groups} groups and {ncols} columns: live {live}, touched {touched}, source {source}"
        )
    return 0


cdef int _take_operations(CallRows* call, op, Py_ssize_t n) except -1:
    """Point the call at what its ``n`` rows do: one operation, or one each, whose array the caller holds."""
    cdef const uint8_t[::1] ops
    call.ops = NULL
    call.op = 0
    if isinstance(op, int):
        if not 0 <= op <= CALL_DELETE_IGNORE:
            raise ValueError(f"no operation {op}")
        call.op = op
        return 0
    ops = op
    if ops.shape[0] != n:
        raise ValueError(f"{n} rows, {ops.shape[0]} operations")
    if not _all_below(ops, CALL_DELETE_IGNORE + 1):
        raise ValueError("an operation outside 0..7")
    if n:
        call.ops = &ops[0]
    return 0


cdef void _take_given(
    CallRows* call, const uint8_t[::1] given, uint8_t[::1] flags, int32_t[::1] columns
) noexcept:
    """Point the call at the columns that it gives, as flags and as numbers; both hold zeros before."""
    cdef Py_ssize_t column
    call.given_count = 0
    for column in range(given.shape[0]):
        if given[column]:
            flags[column] = 1
            columns[call.given_count] = <int32_t>column
            call.given_count += 1
    call.given = &flags[0]
    call.given_columns = &columns[0]


def decide(
    const int32_t[::1] gid not None,
    op,
    const uint8_t[::1] row_status,
    const uint8_t[::1] given not None,
    bint required_missing,
    int64_t base,
    uint8_t[::1] live not None,
    uint8_t[::1] touched not None,
    int64_t[::1] source not None,
    int64_t[::1] key_row not None,
    uint8_t[::1] out_code not None,
):
    """Decide the rows of one call, in order; write the state arrays and ``out_code`` in place.

    Parameters
    ----------
    gid : (n,) int32, the key group of each row
    op : int for all rows, or (n,) uint8; UPSERT_IGNORE is UPSERT
    row_status : (n,) uint8 or None
        0, or why the row was refused before; such a row does nothing, keeps its code, and is in
        none of the counts.
    given : (ncols,) uint8, which columns beside the key the call supplies
    required_missing : the call lacks a column that is NOT NULL and has no default, so that a row
        that would become an INSERT is an error (of the IGNORE kinds too)
    base : the batch's row number of row 0
    live, touched, source, key_row : the state, see the module; ``was_live`` is not needed here
    out_code : (n,) uint8, written: OK, ALREADY_PRESENT, NOT_FOUND, NULL_IN_REQUIRED, IGNORED, or
        the row's status

    Returns ``(inserted, updated, deleted, ignored, errors)`` of this call.  An UPSERT or UPDATE
    that gives no column succeeds and touches nothing.  Raises ValueError for shapes, groups or
    operations that do not fit; nothing is written then.
    """
    cdef:
        Py_ssize_t n = gid.shape[0], ncols = given.shape[0], groups = live.shape[0]
        uint8_t[::1] flags
        int32_t[::1] columns
        CallRows call
        GroupStates state
        Counts counts
    _check_state(groups, ncols, live.shape[0], touched.shape[0], source.shape[0])
    if key_row.shape[0] != groups:
        raise ValueError(f"{groups} groups, {key_row.shape[0]} key rows")
    if out_code.shape[0] != n or (row_status is not None and row_status.shape[0] != n):
        raise ValueError(f"{n} rows, and codes or status of another number")
    _take_operations(&call, op, n)
    if base < 0:
        raise ValueError(f"base {base} is negative")
    if not _within(gid, groups):
        raise ValueError(f"a group outside 0..{groups - 1}")
    if n == 0:
        return 0, 0, 0, 0, 0
    # One spare byte and entry, so that a table of key columns only has addresses too.
    flags = np.zeros(ncols + 1, np.uint8)
    columns = np.zeros(ncols + 1, np.int32)
    _take_given(&call, given, flags, columns)
    call.gid = &gid[0]
    call.row_status = NULL
    if row_status is not None:
        call.row_status = &row_status[0]
    call.n = n
    call.base = base
    call.ncols = ncols
    call.required_missing = required_missing
    state.live = &live[0]               # n > 0 and every group exists: none of these is empty
    state.touched = &touched[0]
    state.key_row = &key_row[0]
    state.source = NULL
    if ncols:
        state.source = &source[0]
    counts = Counts(0, 0, 0, 0, 0)
    with nogil:
        _decide(&call, &state, &out_code[0], &counts)
    return counts.inserted, counts.updated, counts.deleted, counts.ignored, counts.errors


cdef void _net(
    const uint8_t[::1] was_live,
    const uint8_t[::1] live,
    const uint8_t[::1] touched,
    const int64_t[::1] source,
    Py_ssize_t ncols,
    uint8_t[::1] kind,
) noexcept nogil:
    cdef:
        Py_ssize_t group, column
        int64_t kept
    for group in range(kind.shape[0]):
        if not was_live[group]:
            kind[group] = NET_INSERT if live[group] else NET_NOTHING
        elif not live[group]:
            kind[group] = NET_DELETE
        else:
            kept = -1
            if touched[group]:
                for column in range(ncols):
                    kept &= source[group * ncols + column]      # stays -1 only if all are KEEP
            kind[group] = NET_NOTHING if kept == -1 else NET_UPDATE


def net(
    const uint8_t[::1] was_live not None,
    const uint8_t[::1] live not None,
    const uint8_t[::1] touched not None,
    const int64_t[::1] source not None,
    Py_ssize_t g,
    Py_ssize_t ncols,
):
    """What the batch comes to for each group (uint8): the one change that is logged for its key.

    NET_NOTHING, NET_INSERT (was absent, is live), NET_UPDATE (was live, is live, some source is
    not KEEP; after a delete and an insert all are), NET_DELETE (was live, is not).  Inserted and
    deleted again is nothing.  Raises ValueError for shapes that do not fit.
    """
    cdef uint8_t[::1] kind
    _check_state(g, ncols, live.shape[0], touched.shape[0], source.shape[0])
    if was_live.shape[0] != g:
        raise ValueError(f"{g} groups, {was_live.shape[0]} was_live")
    result = np.empty(g, np.uint8)
    kind = result
    with nogil:
        _net(was_live, live, touched, source, ncols, kind)
    return result


cdef void _patterns(
    const uint8_t[::1] kind, const int64_t[::1] source, Py_ssize_t ncols, uint64_t[:, ::1] words
) noexcept nogil:
    cdef:
        Py_ssize_t group, word, column, last
        uint64_t bits
    for group in range(kind.shape[0]):
        for word in range(words.shape[1]):
            bits = 0
            if kind[group] == NET_UPDATE:
                last = min(ncols, 64 * word + 64)
                for column in range(64 * word, last):
                    bits |= <uint64_t>(source[group * ncols + column] != KEEP) << (column & 63)
            words[group, word] = bits


def patterns(
    const uint8_t[::1] kind not None, const int64_t[::1] source not None, Py_ssize_t g, Py_ssize_t ncols
):
    """Which columns each UPDATE changes: uint64 (g, ceil(ncols / 64)), bit c % 64 of word c // 64.

    Groups that are no UPDATE have zeros.  Raises ValueError for shapes that do not fit.
    """
    cdef uint64_t[:, ::1] words
    if kind.shape[0] != g or source.shape[0] != g * ncols:
        raise ValueError(f"{g} groups of {ncols} columns: kind {kind.shape[0]}, source {source.shape[0]}")
    result = np.zeros((g, (ncols + 63) // 64), np.uint64)
    words = result
    with nogil:
        _patterns(kind, source, ncols, words)
    return result
