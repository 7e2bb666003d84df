# Single values of a mini-block of deltas: from the nearest of its values that are known.
#
# A delta says how far its value lies from the one before, so a value costs all those before it.  Of a block
# that is searched again and again, every 16th value is kept while its page is held: then a value costs 15
# deltas at most, and a search as many.  For kernels that run with the GIL.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kudu_core._ext.base.bitpack cimport kc_mask, kc_packed_cell
from kudu_core._ext.base.loads cimport load16
from kudu_core._ext.pages.head cimport BLOCK_BITS, BLOCK_ROWS, DELTA, NO_SCALE, Page
from kudu_core._ext.pages.rows cimport stored_part
from kudu_core._ext.row.cells cimport open_known, read_fixed, row_in_page
from kudu_core._ext.row.column cimport PointColumn
from kudu_core._ext.search.cells cimport Cells

cdef enum:
    SAMPLE_BITS = 4             # of every 16th value


cdef inline bint is_sampled(PointColumn column, const Page* page, const Cells* cells) noexcept:
    """Whether single values of an open mini-block are found by samples."""
    return (
        cells.block.kind == DELTA and not cells.steps and not cells.decoded and page.bits == NULL
        and cells.block.scale == NO_SCALE and column.c.width <= 8 and cells.layout.width == column.c.width
    )


cdef inline const uint64_t* samples_of(
    PointColumn column, int64_t block, Cells* cells, int* status, int64_t* at
) except? NULL:
    """Every 16th value of an open mini-block; NULL with ``status`` set where its bytes break their format."""
    cdef:
        object number = block
        PyObject* found = PyDict_GetItem(column.samples, number)
        int64_t i, count = cells.block.count
        int width = cells.layout.width
        uint64_t* out
    if found != NULL:
        return <const uint64_t*>PyBytes_AS_STRING(<object>found)
    status[0] = stored_part(&cells.block, &cells.layout, 0, count, cells.values, cells.values, at)
    if status[0] < 0:
        return NULL
    kept = PyBytes_FromStringAndSize(NULL, ((count >> SAMPLE_BITS) + 1) * <Py_ssize_t>sizeof(uint64_t))
    out = <uint64_t*>PyBytes_AS_STRING(kept)
    for i in range((count >> SAMPLE_BITS) + 1):
        out[i] = 0
        if i << SAMPLE_BITS < count:
            memcpy(&out[i], cells.values + (i << SAMPLE_BITS) * width, <size_t>width)
    column.samples[number] = kept
    return out


cdef inline int64_t next_exception(const Cells* cells, int64_t i) noexcept:
    """The first exception behind value i; their positions ascend, which was checked with the samples."""
    cdef int64_t lower = 0, upper = cells.block.exceptions, middle
    while lower < upper:
        middle = (lower + upper) >> 1
        if <int64_t>load16(cells.layout.positions + 2 * middle) <= i:
            lower = middle + 1
        else:
            upper = middle
    return lower


cdef inline uint64_t delta_of(const Cells* cells, int64_t i, int64_t* exception) noexcept:
    """How far value i lies from the one before it; ``exception``: the first one that is not passed."""
    cdef:
        uint64_t word = 0
        int64_t k = exception[0]
        int width = cells.layout.width
    if k < cells.block.exceptions and <int64_t>load16(cells.layout.positions + 2 * k) == i:
        memcpy(&word, cells.layout.raws + k * width, <size_t>width)
        exception[0] = k + 1
        return word
    return cells.layout.least + kc_packed_cell(
        cells.layout.packed, cells.block.count, width, cells.block.bits, i
    )


cdef inline uint64_t sampled_value(const uint64_t* samples, const Cells* cells, int64_t i) noexcept:
    """Value i, with anything above its width."""
    cdef:
        int64_t at = i >> SAMPLE_BITS << SAMPLE_BITS
        int64_t exception = next_exception(cells, at)
        uint64_t word = samples[i >> SAMPLE_BITS]
    while at < i:
        at += 1
        word += delta_of(cells, at, &exception)
    return word


cdef inline int64_t sampled_bound(
    const uint64_t* samples, const Cells* cells, int64_t lower, int64_t upper, uint64_t want, bint above
) noexcept:
    """The first value of [lower, upper), in which they ascend, that is not below ``want`` (``above``: that is
    above it), as ``cells_bound``."""
    cdef:
        int64_t first = (lower + (1 << SAMPLE_BITS) - 1) >> SAMPLE_BITS
        int64_t last = (upper + (1 << SAMPLE_BITS) - 1) >> SAMPLE_BITS
        int64_t middle, exception
        uint64_t word, number
    while first < last:
        middle = (first + last) >> 1
        number = (samples[middle] & cells.mask) ^ cells.flip
        if number < want or (above and number == want):
            first = middle + 1
        else:
            last = middle
    lower = max(lower, (first - 1) << SAMPLE_BITS)
    upper = min(upper, first << SAMPLE_BITS)
    if lower >= upper:
        return upper
    word = sampled_value(samples, cells, lower)
    exception = next_exception(cells, lower)
    while True:
        number = (word & cells.mask) ^ cells.flip
        if not (number < want or (above and number == want)):
            return lower
        lower += 1
        if lower == upper:
            return upper
        word += delta_of(cells, lower, &exception)


cdef inline int read_sampled(
    PointColumn column, const Page* page, int64_t row, Cells* cells, int64_t* index, uint8_t* out,
    int64_t* at,
) except? -100:
    """As ``read_fixed``."""
    cdef:
        int64_t block = row >> BLOCK_BITS
        const uint64_t* samples
        uint64_t word
        int status = 0
    if row_in_page(&column.c, row) < page.rows and page.bits == NULL:
        if block != index[0]:
            index[0] = -1
            status = open_known(&column.c, page, block, cells, at)
            if status < 0:
                return status
            index[0] = block
        if is_sampled(column, page, cells) and row & (BLOCK_ROWS - 1) < cells.block.count:
            samples = samples_of(column, block, cells, &status, at)
            if status < 0:
                return status
            word = sampled_value(samples, cells, row & (BLOCK_ROWS - 1))
            memcpy(out, &word, <size_t>column.c.width)
            return 0
    return read_fixed(&column.c, page, row, cells, index, out, at)
