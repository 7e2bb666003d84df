"""Pages of a column of strings, from its cells to the bytes of the file in one call.

What a page, its frame and its entry of the page index are is said by docs/format.md, and by the general path
of ``cfile.columns.writer``, which makes them one by one: the bytes are the same.  Here LZ4 with the
dictionary of the column packs them, two at a time (``codec.lz4``), and no Python runs in between.
"""
cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kudu_core._ext.base.bitmap cimport kc_bits_copy
from kudu_core._ext.base.crc32c cimport crc32c_of
from kudu_core._ext.codec.lz4 cimport SIDE_BY_SIDE, Lz4Packer, Packing, packed_bound
from kudu_core._ext.pages.head cimport MOST_PAGE_ROWS
from kudu_core._ext.pages.strings_encode cimport bad_offset, encode_strings, strings_bound
from kudu_core._ext.pages.zones cimport string_order, zone_of_strings

cdef extern from "Python.h":
    PyObject* made_bytes "PyBytes_FromStringAndSize"(const char* data, Py_ssize_t size) except NULL
    char* PyBytes_AS_STRING(PyObject* made)
    int _PyBytes_Resize(PyObject** made, Py_ssize_t size) except -1

cdef enum:
    FRAME = 16                  # crc, payload bytes, raw bytes, encoding, codec, flags
    ENTRY = 24                  # offset, size, null count, NaN count, flags; two bounds follow
    BOUND = 32                  # the most bytes of a bound, which a byte of length precedes
    WHOLE_ENTRY = ENTRY + 2 * (BOUND + 1)
    PRESENT = 1                 # flags of a page's zone
    LOW_CUT = 2
    HIGH_CUT = 4
    HIGH_OPEN = 8


cdef struct Bound:
    uint8_t size
    uint8_t data[BOUND]
    bint exact


cdef struct Written:
    uint8_t* out                # behind the pages
    uint8_t* entry              # behind the entries of the page index
    int64_t offset              # of the next page in the file
    int64_t nulls
    bint found                  # some cell is not null: the bounds hold
    bint unbounded              # some page has no upper bound
    bint bounded                # some page has one
    Bound low
    Bound high


cdef struct PageForm:
    # What all pages of the call have in common.
    uint32_t id_crc
    uint16_t kind
    uint8_t encoding
    uint8_t codec
    int64_t least_bytes         # a codec is tried on payloads of so many bytes,
    int64_t most_bytes          # and of no more,
    double kept_below           # and stays where it takes no more than so much of them


cdef struct Room:
    uint8_t* raw                # of a payload
    uint8_t* packed
    uint8_t bits[(MOST_PAGE_ROWS >> 3) + 8]


cdef int _cut_low(Bound* bound, const uint8_t* cell, int64_t size) noexcept nogil:
    """A lower bound: the first bytes of a long one; return the flags."""
    bound.exact = size <= BOUND
    bound.size = <uint8_t>(size if bound.exact else BOUND)
    memcpy(bound.data, cell, bound.size)
    return 0 if bound.exact else LOW_CUT


cdef int _cut_high(Bound* bound, const uint8_t* cell, int64_t size) noexcept nogil:
    """An upper bound: of a long one the first bytes, raised; return the flags."""
    bound.exact = size <= BOUND
    bound.size = <uint8_t>(size if bound.exact else BOUND)
    memcpy(bound.data, cell, bound.size)
    if bound.exact:
        return 0
    while bound.size and bound.data[bound.size - 1] == 255:
        bound.size -= 1
    if bound.size == 0:
        return HIGH_OPEN
    bound.data[bound.size - 1] += 1
    return HIGH_CUT


cdef uint32_t _zone(
    Written* w, uint8_t* entry, const int32_t* offsets, const uint8_t* data, int64_t low, int64_t high
) noexcept nogil:
    """Write the bounds of a page, and take them into those of the column; return the page's flags."""
    cdef:
        Bound least, greatest
        int flags
    memset(entry + ENTRY, 0, WHOLE_ENTRY - ENTRY)
    if low < 0:
        return 0
    flags = PRESENT | _cut_low(&least, data + offsets[low], offsets[low + 1] - offsets[low])
    flags |= _cut_high(&greatest, data + offsets[high], offsets[high + 1] - offsets[high])
    entry[ENTRY] = least.size
    memcpy(entry + ENTRY + 1, least.data, least.size)
    entry[ENTRY + BOUND + 1] = greatest.size
    memcpy(entry + ENTRY + BOUND + 2, greatest.data, greatest.size)
    if not w.found or string_order(least.data, least.size, w.low.data, w.low.size) < 0:
        w.low = least
    w.found = True
    if flags & HIGH_OPEN:
        w.unbounded = True
    elif not w.bounded or string_order(greatest.data, greatest.size, w.high.data, w.high.size) > 0:
        w.high = greatest
        w.bounded = True
    return <uint32_t>flags


cdef void _frame(
    Written* w, const PageForm* form, const uint8_t* stored, int64_t size, int64_t raw_bytes, int codec
) noexcept nogil:
    """Write a page with its frame."""
    cdef:
        uint8_t place[10]
        uint8_t* out = w.out
        uint64_t offset = <uint64_t>w.offset
        uint32_t word
    memcpy(place, &offset, 8)
    memcpy(place + 8, &form.kind, 2)
    word = <uint32_t>size
    memcpy(out + 4, &word, 4)
    word = <uint32_t>raw_bytes
    memcpy(out + 8, &word, 4)
    out[12] = form.encoding
    out[13] = <uint8_t>codec
    out[14] = out[15] = 0
    memcpy(out + FRAME, stored, <size_t>size)
    word = crc32c_of(crc32c_of(form.id_crc, place, 10), out + 4, <size_t>(size + FRAME - 4))
    memcpy(out, &word, 4)
    w.out += FRAME + size
    w.offset += FRAME + size


cdef int64_t _encode(
    Written* w, uint8_t* entry, const int32_t* offsets, int64_t rows, const uint8_t* data, int64_t data_bytes,
    const uint8_t* bits, int64_t first_bit, Room* room
) noexcept nogil:
    """Encode a page, and write what its entry says of its cells; return its size, or -1 for bad offsets."""
    cdef:
        int64_t low = -1, high = -1, nulls
        uint32_t word
        const uint8_t* found = NULL
    if bits != NULL:
        memset(room.bits, 0, <size_t>((rows + 7) >> 3))
        kc_bits_copy(room.bits, 0, bits, first_bit, rows)
        found = room.bits
    nulls = zone_of_strings(offsets, rows, data, data_bytes, found, &low, &high)
    if nulls < 0:
        return -1
    word = <uint32_t>nulls
    memcpy(entry + 12, &word, 4)
    memset(entry + 16, 0, 4)
    word = _zone(w, entry, offsets, data, low, high)
    memcpy(entry + 20, &word, 4)
    w.nulls += nulls
    return encode_strings(room.raw, offsets, rows, data, found if nulls else NULL, False)


cdef int _write(
    Written* w, const PageForm* form, const int32_t* offsets, int64_t rows, const uint8_t* data,
    int64_t data_bytes, const uint8_t* bits, int64_t first_bit, int page_bits, Room* rooms, Lz4Packer packer
) noexcept nogil:
    """Write the pages of some rows: 0, or -1 for bad offsets.  ``bits``: NULL where no cell is null."""
    cdef:
        int64_t at = 0, count, size
        int64_t sizes[SIDE_BY_SIDE]
        uint64_t offset
        uint32_t word
        Packing blocks[SIDE_BY_SIDE]
        int fits[SIDE_BY_SIDE]      # which of the blocks a page is, -1: none
        int k, pages, packing
    while at < rows:
        pages = packing = 0
        while pages < SIDE_BY_SIDE and at < rows:
            count = min(<int64_t>1 << page_bits, rows - at)
            size = _encode(
                w, w.entry + pages * WHOLE_ENTRY, offsets + at, count, data, data_bytes, bits, first_bit + at,
                &rooms[pages],
            )
            if size < 0:
                return -1
            sizes[pages], fits[pages] = size, -1
            if form.least_bytes <= size <= form.most_bytes:
                blocks[packing].page, blocks[packing].size = rooms[pages].raw, size
                blocks[packing].out = rooms[pages].packed
                fits[pages] = packing
                packing += 1
            at += count
            pages += 1
        packer.pack_blocks(blocks, packing)
        for k in range(pages):
            offset = <uint64_t>w.offset
            memcpy(w.entry, &offset, 8)
            size = blocks[fits[k]].out - rooms[k].packed if fits[k] >= 0 else 0
            if fits[k] >= 0 and <double>size <= form.kept_below * <double>sizes[k]:
                _frame(w, form, rooms[k].packed, size, sizes[k], form.codec)
            else:
                _frame(w, form, rooms[k].raw, sizes[k], sizes[k], 0)
            word = <uint32_t>(w.offset - <int64_t>offset)
            memcpy(w.entry + 8, &word, 4)
            w.entry += WHOLE_ENTRY
    return 0


def write_string_pages(
    const int32_t[::1] offsets not None, const uint8_t[::1] data not None, const uint8_t[::1] validity,
    int64_t first_row, int page_bits, Lz4Packer packer not None, int64_t offset, uint32_t id_crc,
    int kind, int encoding, int codec, tuple tried not None,
):
    """Write the pages of ``offsets.shape[0] - 1`` strings, each of ``1 << page_bits`` rows.

    Parameters
    ----------
    offsets, data : the cells, as Arrow has them
    validity : bitmap or None
        1: not null; the first of the cells is its bit ``first_row``.
    packer : Lz4Packer
        With the text that comes before each page.
    offset, id_crc, kind : int
        Where the first page will lie in the file; CRC-32C of the file's id; of sections, that of a page.
    encoding, codec : int
        What frames say, of pages that the packer has packed.
    tried : (least bytes, most bytes, kept below)
        Of payloads that are packed, and which part of a payload the packed one may be to stay.

    Returns
    -------
    (bytes, bytes, tuple)
        The pages; their entries of the page index; what is known of all of them: (lower bound or None,
        whether it is exact, upper bound or None, whether it is exact, count of nulls).

    Raises ValueError for offsets that descend or leave the data, a bitmap that is too short, or a page of
    another number of rows than pages have.
    """
    cdef:
        Py_ssize_t rows = offsets.shape[0] - 1
        const uint8_t* bits = NULL
        const uint8_t* first = b""
        PageForm form
        Written w
        Rooms room
        int status
    if rows < 1 or not 0 <= page_bits <= 14 or first_row < 0 or offset < 0:
        raise ValueError(f"{rows} rows from row {first_row} on, in pages of 1 << {page_bits}, at {offset}")
    if validity is not None:
        if validity.shape[0] < (first_row + rows + 7) >> 3:
            raise ValueError(f"a bitmap of {validity.shape[0]} bytes has no {first_row + rows} bits")
        bits = &validity[0]
    if bad_offset(offsets, data.shape[0]) >= 0:
        raise ValueError("offsets descend or lie outside the data")
    if data.shape[0]:
        first = &data[0]
    form.id_crc, form.kind = id_crc, <uint16_t>kind
    form.encoding, form.codec = <uint8_t>encoding, <uint8_t>codec
    form.least_bytes, form.most_bytes, form.kept_below = tried
    memset(&w, 0, sizeof(w))
    w.offset = offset
    room = Rooms.__new__(Rooms)
    room.make(offsets, page_bits, bits != NULL)
    w.out, w.entry = <uint8_t*>PyBytes_AS_STRING(room.pages), <uint8_t*>PyBytes_AS_STRING(room.index)
    with nogil:
        status = _write(
            &w, &form, &offsets[0], rows, first, data.shape[0], bits, first_row, page_bits, room.rooms, packer
        )
    if status < 0:
        raise ValueError("offsets descend or lie outside the data")
    _PyBytes_Resize(&room.pages, w.out - <uint8_t*>PyBytes_AS_STRING(room.pages))
    return <object>room.pages, <object>room.index, (
        _bytes_of(&w.low) if w.found else None,
        w.low.exact if w.found else True,
        _bytes_of(&w.high) if w.bounded and not w.unbounded else None,
        (w.high.exact if w.bounded else True) and not w.unbounded,
        w.nulls,
    )


@cython.final
@cython.auto_pickle(False)
cdef class Rooms:
    """Memory for a call: that of the answer, and of the pages that are packed side by side."""

    cdef:
        PyObject* pages
        PyObject* index
        Room rooms[SIDE_BY_SIDE]

    def __dealloc__(self):
        cdef int k
        Py_XDECREF(self.pages)
        Py_XDECREF(self.index)
        for k in range(SIDE_BY_SIDE):
            PyMem_RawFree(self.rooms[k].raw)

    cdef int make(self, const int32_t[::1] offsets, int page_bits, bint nulls) except -1:
        """As much as pages of ``1 << page_bits`` of these cells can need."""
        cdef:
            int64_t at, count, rows = offsets.shape[0] - 1, most = 0, bound = 0, pages = 0
            int k
        for at in range(0, rows, <int64_t>1 << page_bits):
            count = min(<int64_t>1 << page_bits, rows - at)
            count = strings_bound(count, offsets[at + count] - offsets[at], nulls)
            most = max(most, count)
            bound += count + FRAME
            pages += 1
        for k in range(SIDE_BY_SIDE):
            self.rooms[k].raw = <uint8_t*>PyMem_RawMalloc(<size_t>(most + packed_bound(most)))
            if self.rooms[k].raw == NULL:
                raise MemoryError
            self.rooms[k].packed = self.rooms[k].raw + most
        self.pages = made_bytes(NULL, bound)
        self.index = made_bytes(NULL, pages * WHOLE_ENTRY)
        return 0


cdef bytes _bytes_of(const Bound* bound):
    return PyBytes_FromStringAndSize(<const char*>bound.data, bound.size)
