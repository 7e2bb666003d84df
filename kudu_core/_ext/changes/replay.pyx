"""Changes of one column of fixed width, laid over decoded cells by direct addressing.

An ``Updates`` is a piece of a store of changes: rowids, new values, which of them are null, in the order in
which they apply.  A range of rows finds its own by binary search where rowids ascend (files), by buckets of
16,384 rows where a ``ChangePositions`` has counted them (logs in time order), else by looking at all.
``replay`` lays a list of them over consecutive rows, ``replay_at`` over any ascending rows; of several
changes of one row the last wins.  Rowids that are not asked for are passed over, so a store may hold any.

Source: Kudu docs/design-docs/tablet.md (patching blocks by direct addressing).
"""
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t

cimport cython

from kudu_core._ext.changes.positions cimport SHIFT, ChangePositions

cdef:
    int64_t MAX_ROWS = 0xFFFFFFFF
    int64_t MAX_SPAN = 1 << 30

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    typedef struct {
        const uint32_t *rowids;     /* NULL where there are buckets */
        const uint8_t *values;
        const uint8_t *bits;        /* NULL: no value is null */
        int64_t lower, upper;       /* which of them, or which buckets */
        const uint32_t *starts;     /* bucket b: places starts[b] .. starts[b + 1] of low and order */
        const uint16_t *low, *order;    /* see ChangePositions */
        uint32_t base;              /* the bucket of starts[0] */
    } kc_changes;

    /* Always inlined with a constant width, and with rowids or order, and place, NULL or not.  The row wraps
       when it lies below the range, and is passed over with those above it. */
    static inline __attribute__((always_inline)) void kc_replay_w(uint8_t *out, uint32_t first, uint32_t rows,
        const int32_t *place, const uint32_t *rowids, const uint16_t *low, const uint16_t *order,
        const uint8_t *values, int64_t lower, int64_t upper, size_t width) {
        for (int64_t i = lower; i < upper; i++) {
            const int64_t k = order ? order[i] : i;
            const uint32_t row = (order ? low[i] : rowids[i]) - first;
            if (row >= rows) continue;
            if (place) {
                if (place[row] < 0) continue;
                memcpy(out + place[row] * (int64_t)width, values + k * (int64_t)width, width);
            } else {
                memcpy(out + row * (int64_t)width, values + k * (int64_t)width, width);
            }
        }
    }
    static inline __attribute__((always_inline)) void kc_replay_all(uint8_t *out, uint32_t first,
        uint32_t rows, const int32_t *place, const kc_changes *c, size_t width) {
        if (!c->order) {
            kc_replay_w(out, first, rows, place, c->rowids, NULL, NULL, c->values, c->lower, c->upper, width);
            return;
        }
        for (int64_t b = c->lower; b < c->upper; b++)
            kc_replay_w(out, first - ((c->base + (uint32_t)b) << KC_SHIFT), rows, place, NULL, c->low,
                c->order, c->values, c->starts[b], c->starts[b + 1], width);
    }
    static void kc_replay(uint8_t *out, uint32_t first, uint32_t rows, const int32_t *place,
        const kc_changes *c, int width) {
    #define KC_CALL(w) \\
        if (place) kc_replay_all(out, first, rows, place, c, w); \\
        else kc_replay_all(out, first, rows, NULL, c, w); \\
        break;
        switch (width) {
            case 1: KC_CALL(1)
            case 2: KC_CALL(2)
            case 4: KC_CALL(4)
            case 8: KC_CALL(8)
            default: KC_CALL(16)
        }
    #undef KC_CALL
    }
    static void kc_replay_bits_of(uint8_t *out, uint32_t first, uint32_t rows, const int32_t *place,
        const kc_changes *c, int64_t lower, int64_t upper) {
        for (int64_t i = lower; i < upper; i++) {
            const int64_t k = c->order ? c->order[i] : i;
            uint32_t row = (c->order ? c->low[i] : c->rowids[i]) - first;
            if (row >= rows) continue;
            if (place) {
                if (place[row] < 0) continue;
                row = (uint32_t)place[row];
            }
            const uint8_t bit = c->bits ? c->bits[k >> 3] >> (k & 7) & 1 : 1;
            out[row >> 3] = (uint8_t)((out[row >> 3] & ~(1u << (row & 7))) | (unsigned)bit << (row & 7));
        }
    }
    static void kc_replay_bits(uint8_t *out, uint32_t first, uint32_t rows, const int32_t *place,
        const kc_changes *c) {
        if (!c->order) {
            kc_replay_bits_of(out, first, rows, place, c, c->lower, c->upper);
            return;
        }
        for (int64_t b = c->lower; b < c->upper; b++)
            kc_replay_bits_of(out, first - ((c->base + (uint32_t)b) << KC_SHIFT), rows, place, c,
                c->starts[b], c->starts[b + 1]);
    }
    """
    ctypedef struct kc_changes:
        const uint32_t* rowids
        const uint8_t* values
        const uint8_t* bits
        int64_t lower
        int64_t upper
        const uint32_t* starts
        const uint16_t* low
        const uint16_t* order
        uint32_t base
    void kc_replay(
        uint8_t* out, uint32_t first, uint32_t rows, const int32_t* place, const kc_changes* changes,
        int width,
    ) noexcept nogil
    void kc_replay_bits(
        uint8_t* out, uint32_t first, uint32_t rows, const int32_t* place, const kc_changes* changes
    ) noexcept nogil


# ------------------------------------------------------------------------------------- updates

cdef int64_t _below(const uint32_t[::1] rowids, int64_t row) noexcept nogil:
    """How many of ascending rowids are below ``row``."""
    cdef int64_t lower = 0, upper = rowids.shape[0], middle
    while lower < upper:
        middle = (lower + upper) >> 1
        if rowids[middle] < row:
            lower = middle + 1
        else:
            upper = middle
    return lower


@cython.final
cdef class Updates:
    """Changes of one column: ``width`` bytes each, in the order in which they apply.  Never changes."""

    def __init__(
        self,
        const uint32_t[::1] rowids not None,
        const uint8_t[::1] values not None,
        int width,
        const uint8_t[::1] validity=None,
        *,
        ChangePositions positions=None,
        bint ascending=False,
    ):
        """``positions``: of these rowids; ``ascending`` says that they never descend, which is checked.

        Raises ValueError where something does not fit, or rowids descend.
        """
        cdef:
            Py_ssize_t i, n = rowids.shape[0]
            bint descends = False
        if width not in (1, 2, 4, 8, 16):
            raise ValueError(f"width {width} is not 1, 2, 4, 8 or 16")
        if values.shape[0] != n * width:
            raise ValueError(f"{n} rowids, {values.shape[0]} bytes of new values")
        if validity is not None and validity.shape[0] < (n + 7) >> 3:
            raise ValueError(f"a bitmap of {validity.shape[0]} bytes has no {n} bits")
        if positions is not None and (ascending or positions.count != n):
            raise ValueError(f"positions of {positions.count} of {n} changes")
        if ascending:
            with nogil:
                for i in range(1, n):
                    descends |= rowids[i] < rowids[i - 1]
            if descends:
                raise ValueError("rowids descend")
        self.rowids = rowids
        self.values = values
        self.bits = validity
        self.positions = positions
        self.ascending = ascending
        self.width = width
        self.count = n

    @property
    def nullable(self):
        """Whether some value may be null."""
        return self.bits is not None

    def __len__(self):
        """Memory that it refers to, in bytes, as the page cache counts."""
        return (4 + self.width) * self.count + (0 if self.bits is None else self.bits.shape[0])


cdef void _cut_one(Updates updates, int64_t first, int64_t rows, kc_changes* changes) noexcept:
    """The changes of rows first .. first + rows - 1, and perhaps others; there is at least one row."""
    cdef int64_t bucket, buckets
    changes.lower = 0
    changes.upper = updates.count
    if updates.count == 0:
        return
    changes.rowids = &updates.rowids[0]
    changes.values = &updates.values[0]
    changes.bits = NULL
    if updates.bits is not None:
        changes.bits = &updates.bits[0]
    changes.order = NULL
    if updates.ascending:
        changes.lower = _below(updates.rowids, first)
        changes.upper = _below(updates.rowids, first + rows)
    elif updates.positions is not None:
        changes.starts = &updates.positions.starts[0]
        changes.low = &updates.positions.low[0]
        changes.order = &updates.positions.order[0]
        changes.base = <uint32_t>updates.positions.base
        buckets = updates.positions.starts.shape[0] - 2
        bucket = (first >> SHIFT) - updates.positions.base
        changes.lower = 0 if bucket < 0 else buckets if bucket > buckets else bucket
        bucket = ((first + rows - 1) >> SHIFT) - updates.positions.base + 1
        changes.upper = 0 if bucket < 0 else buckets if bucket > buckets else bucket


cdef void _replay(
    const kc_changes* changes, int64_t n, uint8_t* out, int width, int64_t first, int64_t rows,
    const int32_t* place, uint8_t* bits,
) noexcept nogil:
    cdef int64_t k
    for k in range(n):
        if changes[k].lower < changes[k].upper:
            kc_replay(out, <uint32_t>first, <uint32_t>rows, place, &changes[k], width)
            if bits != NULL:
                kc_replay_bits(bits, <uint32_t>first, <uint32_t>rows, place, &changes[k])


cdef kc_changes* _cut(list updates, int width, int64_t first, int64_t rows, bint bits) except NULL:
    """The changes of a range, of each of the updates; to be freed."""
    cdef:
        Py_ssize_t k, n = len(updates)
        Updates one
        kc_changes* changes
    for k in range(n):
        one = updates[k]
        if one is None or one.width != width:
            raise ValueError(f"updates of another width than {width}")
        if one.bits is not None and not bits:
            raise ValueError("updates to null, and no bitmap to say so")
    changes = <kc_changes*>PyMem_RawMalloc((n + 1) * sizeof(kc_changes))
    if changes == NULL:
        raise MemoryError
    for k in range(n):
        one = updates[k]
        _cut_one(one, first, rows, &changes[k])
    return changes


def replay(
    list updates not None,
    uint8_t[::1] out not None,
    int width,
    int64_t first_row,
    int64_t rows,
    uint8_t[::1] validity=None,
):
    """Lay ``Updates`` over the cells of rows ``first_row .. first_row + rows - 1``, in place.

    ``validity``: their bitmap, changed alike; it must be given where updates are nullable.

    Raises ValueError when something does not fit (nothing is written).
    """
    cdef:
        kc_changes* changes
        uint8_t* bits = NULL
        Py_ssize_t n = len(updates)
    if rows < 0 or first_row < 0 or rows > MAX_ROWS or first_row > MAX_ROWS + 1 - rows:
        raise ValueError(f"no block of {rows} rows from rowid {first_row}")
    if out.shape[0] < rows * width:
        raise ValueError(f"{rows} cells of {width} bytes do not fit into {out.shape[0]}")
    if validity is not None and validity.shape[0] < (rows + 7) >> 3:
        raise ValueError(f"a bitmap of {validity.shape[0]} bytes has no {rows} bits")
    changes = _cut(updates, width, first_row, rows if rows else 1, validity is not None)
    if rows and n:
        if validity is not None:
            bits = &validity[0]
        with nogil:
            _replay(changes, n, &out[0], width, first_row, rows, NULL, bits)
    PyMem_RawFree(changes)


cdef bint _places(const int64_t[::1] rows, int32_t* place) noexcept nogil:
    """Where each row is among those picked; False where these do not ascend."""
    cdef:
        int64_t i, first = rows[0], n = rows.shape[0], span = rows[n - 1] - first + 1, last = first - 1
    for i in range(span):
        place[i] = -1
    for i in range(n):
        if rows[i] <= last or rows[i] - first >= span:
            return False
        last = rows[i]
        place[last - first] = <int32_t>i
    return True


def replay_at(
    list updates not None,
    uint8_t[::1] out not None,
    int width,
    const int64_t[::1] rows not None,
    uint8_t[::1] validity=None,
):
    """The same over the cells of single ``rows``, strictly ascending and at most 2**30 apart.

    The time is that of the span of the rows, and of the changes in it.
    """
    cdef:
        kc_changes* changes = NULL
        int32_t* place = NULL
        uint8_t* bits = NULL
        int64_t n = rows.shape[0], first, span
        bint ascend = False
        Py_ssize_t count = len(updates)
    if n == 0:
        return
    first = rows[0]
    span = rows[n - 1] - first + 1
    if first < 0 or span < n or span > MAX_SPAN or rows[n - 1] > MAX_ROWS or n > 0x7FFFFFFF:
        raise ValueError(f"rows {first} .. {rows[n - 1]} do not ascend, or are too far apart")
    if out.shape[0] < n * width:
        raise ValueError(f"{n} cells of {width} bytes do not fit into {out.shape[0]}")
    if validity is not None:
        if validity.shape[0] < (n + 7) >> 3:
            raise ValueError(f"a bitmap of {validity.shape[0]} bytes has no {n} bits")
        bits = &validity[0]
    changes = _cut(updates, width, first, span, bits != NULL)
    try:
        place = <int32_t*>PyMem_RawMalloc(span * sizeof(int32_t))
        if place == NULL:
            raise MemoryError
        with nogil:
            ascend = _places(rows, place)
            if ascend:
                _replay(changes, count, &out[0], width, first, span, place, bits)
        if not ascend:
            raise ValueError("rows do not ascend")
    finally:
        PyMem_RawFree(place)
        PyMem_RawFree(changes)
