"""Columns of the chosen rows of a file, decoded straight into the buffers that leave.

``read`` takes a ``Selection`` and any number of columns: with the GIL it collects the pages that have a
chosen row and the buffers, without it all columns are decoded, page after page, mini-block after
mini-block.  Cells of fixed width are written at once (``fixed.pxd``).  Strings are measured in a first pass
and copied in a second one, so that their bytes get one buffer of the right size (``words.pxd`` with a
dictionary, ``strings.pxd`` without).

What is read is hostile.  A column that cannot be read here comes back as None, whether its form is not
known here or its bytes break their format; the caller asks the general path, whose answer or error stands.
"""
cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t
from libc.string cimport memset

from kudu_core._ext.base.bitmap cimport kc_bits_count
from kudu_core._ext.changes.patch cimport Patch
from kudu_core._ext.pages.head cimport BLOCK_ROWS, PAGE_BITS, Page
from kudu_core._ext.scan.column cimport ScanColumn
from kudu_core._ext.scan.fixed cimport read_fixed
from kudu_core._ext.scan.output cimport (
    FORM_BITS,
    FORM_CODES,
    Output,
    OutputScratch,
    is_variable,
    write_validity,
)
from kudu_core._ext.scan.parts cimport PageMap, next_part, want_pages
from kudu_core._ext.scan.pieces cimport NONE, Piece
from kudu_core._ext.scan.selection cimport Selection
from kudu_core._ext.scan.strings cimport copy_strings, measure_strings
from kudu_core._ext.scan.words cimport copy_words, measure_words
from kudu_core._ext.base.status cimport BAD_VALUE

from kudu_core._ext.base.status import PageError

cdef enum:
    TOO_LARGE = -103

cdef int64_t MAX_DATA_BYTES = 0x7FFFFFFF


class TooLarge(Exception):
    """The strings of a column take more bytes than allowed: read fewer rows at once."""


cdef void _first_pass(
    Output* o, const Piece* pieces, int64_t n, const uint16_t* picked, int64_t most_bytes, OutputScratch* s
) noexcept nogil:
    """Write all of a fixed column; of strings, validity and offsets."""
    cdef:
        int64_t k, at = 0, total = 0
        Piece part
        int status = 0
        const uint16_t* all_of_it = NULL
        const uint16_t* own = NULL
    if is_variable(o):
        o.offsets[0] = 0
    for k in range(n):
        if pieces[k].state == NONE:
            continue
        if picked != NULL:
            all_of_it = picked + pieces[k].out
        part.rows = -1
        while next_part(&pieces[k], o.page_bits, o.map.firsts[k], all_of_it, &part):
            if part.chosen == 0:
                continue
            if picked != NULL:
                own = picked + part.out
            if o.nullable:
                write_validity(&o.pages[part.page], &part, own, o.bits)
            if not is_variable(o):
                status = read_fixed(o, &part, <int64_t>pieces[k].block * BLOCK_ROWS, own, s, &at)
            else:
                if o.width:
                    total = measure_words(o, &part, own, total, s, &at)
                else:
                    total = measure_strings(o, &part, own, total, s, &at)
                status = <int>total if total < 0 else TOO_LARGE if total > most_bytes else 0
            if status < 0:
                o.status = status
                return
    o.bytes = total


cdef void _second_pass(
    const Output* o, const Piece* pieces, int64_t n, const uint16_t* picked, OutputScratch* s
) noexcept nogil:
    """Write the bytes of strings."""
    cdef:
        int64_t k
        Piece part
        uint8_t* out = o.values
        const uint8_t* end = o.values + o.bytes
        const uint16_t* all_of_it = NULL
        const uint16_t* own = NULL
    for k in range(n):
        if pieces[k].state == NONE:
            continue
        if picked != NULL:
            all_of_it = picked + pieces[k].out
        part.rows = -1
        while next_part(&pieces[k], o.page_bits, o.map.firsts[k], all_of_it, &part):
            if part.chosen == 0:
                continue
            if picked != NULL:
                own = picked + part.out
            if o.width:
                out = copy_words(o, &part, own, out, end, s)
            else:
                out = copy_strings(o, &part, own, out, s)


cdef void _run_pass(
    Output* outputs, int64_t count, bint second, const Piece* pieces, int64_t n, const uint16_t* picked,
    int64_t most_bytes,
) noexcept nogil:
    """One pass over all columns that can be read here."""
    cdef:
        OutputScratch s
        int64_t k
    for k in range(count):
        if outputs[k].status < 0:
            continue
        if not second:
            _first_pass(&outputs[k], pieces, n, picked, most_bytes, &s)
        elif is_variable(&outputs[k]) and outputs[k].bytes:
            _second_pass(&outputs[k], pieces, n, picked, &s)


@cython.final
@cython.auto_pickle(False)
cdef class _Room:
    """Writable memory from the caller's pool, as long as it is written to."""

    cdef:
        Py_buffer view
        bint held

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)

    cdef uint8_t* take(self, buffer, int64_t size) except NULL:
        PyObject_GetBuffer(buffer, &self.view, PyBUF_WRITABLE)
        self.held = True
        if self.view.len < size:
            raise ValueError(f"{self.view.len} bytes allocated where {size} were asked for")
        return <uint8_t*>self.view.buf


@cython.final
@cython.auto_pickle(False)
cdef class _Reading:
    """One call of ``read``: its columns, the pages that they need, the buffers that they are written to."""

    cdef:
        Selection selection
        object allocate
        Py_ssize_t count
        Output* outputs
        uint8_t* wanted[PAGE_BITS + 1]  # pages of each map of the selection that have a chosen row
        list held               # what keeps the pages
        list rooms              # what keeps the buffers writable
        list buffers            # of each column: validity or None, offsets, values

    def __cinit__(self, Selection selection, Py_ssize_t count, allocate):
        self.selection = selection
        self.allocate = allocate
        self.count = count
        self.held, self.rooms, self.buffers = [], [], []
        self.outputs = <Output*>PyMem_RawCalloc(count + 1, sizeof(Output))
        if self.outputs == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef:
            Py_ssize_t k
            int page_bits
        if self.outputs != NULL:
            for k in range(self.count):
                PyMem_RawFree(self.outputs[k].pages)
        PyMem_RawFree(self.outputs)
        for page_bits in range(PAGE_BITS + 1):
            PyMem_RawFree(self.wanted[page_bits])

    cdef int want(self, int page_bits) except -1:
        """Which pages of so many rows have a chosen one."""
        cdef:
            Selection selection = self.selection
            const PageMap* map = selection.map_of(page_bits)
        if self.wanted[page_bits] == NULL:
            self.wanted[page_bits] = <uint8_t*>PyMem_RawCalloc(map.count + 1, 1)
            if self.wanted[page_bits] == NULL:
                raise MemoryError
            with nogil:
                want_pages(
                    selection.pieces, selection.piece_count, selection.mask, map, page_bits, NULL,
                    self.wanted[page_bits],
                )
        return 0

    cdef int take(self, Py_ssize_t k, ScanColumn column, int form, Patch patch) except -1:
        """Set column ``k`` up: pin its pages and make room for what is known of its size."""
        cdef:
            Output* o = &self.outputs[k]
            int64_t p
        o.width = column.width
        o.form = form
        o.words = &column.words
        o.page_bits = column.page_bits
        if column.rows != self.selection.file_rows:
            raise ValueError(f"a column of {column.rows} rows, a selection of {self.selection.file_rows}")
        if o.form > FORM_CODES or (o.form == FORM_BITS and (o.width != 1 or o.words.count)) or (
            o.form == FORM_CODES and not o.words.count
        ):
            raise ValueError(f"form {o.form} of cells of {o.width} bytes")
        if patch is not None:
            if patch.rows != column.rows or patch.width != o.width or o.words.count:
                raise ValueError(f"a patch of {patch.rows} cells of {patch.width} bytes")
            self.held.append(patch)
            o.patch = patch.view
            o.nullable = patch.view.valid != NULL
        self.buffers.append([])
        self.want(o.page_bits)
        o.map = self.selection.map_of(o.page_bits)
        o.pages = <Page*>PyMem_RawCalloc(o.map.count + 1, sizeof(Page))
        if o.pages == NULL:
            raise MemoryError
        try:
            column.pin(o.map.numbers, self.wanted[o.page_bits], o.map.count, o.pages, self.held)
        except PageError:
            o.status = BAD_VALUE
            return 0
        for p in range(o.map.count):
            o.nullable |= o.pages[p].data != NULL and o.pages[p].bits != NULL
        return self.make_room(k)

    cdef int make_room(self, Py_ssize_t k) except -1:
        """Buffers of a column; that of strings' bytes comes when they are measured."""
        cdef:
            Output* o = &self.outputs[k]
            int64_t n = self.selection.chosen_rows
        if o.nullable:
            o.bits = self.room(k, (n + 7) >> 3)
            memset(o.bits, 0, <size_t>((n + 7) >> 3))
        else:
            self.buffers[k].append(None)
        if is_variable(o):
            o.offsets = <int32_t*>self.room(k, 4 * (n + 1))
        elif o.form == FORM_BITS:
            o.values = self.room(k, (n + 7) >> 3)
            memset(o.values, 0, <size_t>((n + 7) >> 3))
        else:
            o.values = self.room(k, n * (4 if o.form == FORM_CODES else o.width))
        return 0

    cdef uint8_t* room(self, Py_ssize_t k, int64_t size) except NULL:
        """One more buffer of column ``k``."""
        cdef _Room room = _Room.__new__(_Room)
        buffer = self.allocate(size if size else 1)
        self.rooms.append(room)
        self.buffers[k].append(buffer)
        return room.take(buffer, size)

    cdef int run(self, bint second, int64_t most_bytes) except -1:
        with nogil:
            _run_pass(
                self.outputs, self.count, second, self.selection.pieces, self.selection.piece_count,
                self.selection.picked, most_bytes,
            )
        return 0

    cdef int make_room_for_strings(self) except -1:
        """Buffers for the bytes of strings that have been measured; return how many."""
        cdef:
            Output* o
            Py_ssize_t k
            int made = 0
        for k in range(self.count):
            o = &self.outputs[k]
            if o.status == TOO_LARGE and self.selection.chosen_rows > 1:
                raise TooLarge
            if o.status == 0 and is_variable(o):
                o.values = self.room(k, o.bytes)
                made += 1
        return made

    cdef object result(self, Py_ssize_t k):
        """(values, offsets or None, validity or None, null count) of a column, None for the general path."""
        cdef:
            Output* o = &self.outputs[k]
            int64_t n = self.selection.chosen_rows, nulls = 0
            list made = self.buffers[k]
        if o.status < 0:
            return None
        if o.nullable:
            nulls = n - kc_bits_count(o.bits, 0, n)
        offsets = made[1] if is_variable(o) else None
        return made[len(made) - 1], offsets, made[0] if nulls else None, nulls


def read(
    Selection selection not None,
    list columns not None,
    const uint8_t[::1] forms not None,
    allocate not None,
    Py_ssize_t most_bytes=0x7FFFFFFF,
    list patches=None,
):
    """Read columns (``ScanColumn``s of the selection's file) of the chosen rows.

    ``forms``, one a column: 0 cells as stored, strings and words of a dictionary as offsets and bytes; 1
    bools as bits; 2 codes of the dictionary as int32.  ``allocate(size)`` gives writable buffers; what
    they hold past ``size`` is not looked at.  ``patches``: of each column what is laid over its cells, or
    None; not of strings.

    Returns a list of (values, offsets or None, validity or None, null count), in the buffers that
    ``allocate`` gave; offsets are int32 from 0 on; validity is a bitmap, None where no cell is null.  An
    entry is None where the general path must be asked.

    Raises ``TooLarge`` where the strings of one column take more than ``most_bytes`` and there is more than
    one row (a single row may take what int32 offsets can address), and what loading pages does.
    """
    cdef:
        Py_ssize_t k, count = len(columns)
        _Reading reading
    if forms.shape[0] != count or most_bytes < 0 or (patches is not None and len(patches) != count):
        raise ValueError(f"{forms.shape[0]} forms of {count} columns")
    selection.settle()
    if selection.chosen_rows <= 1 or most_bytes > MAX_DATA_BYTES:
        most_bytes = MAX_DATA_BYTES
    reading = _Reading.__new__(_Reading, selection, count, allocate)
    for k in range(count):
        reading.take(k, columns[k], forms[k], None if patches is None else patches[k])
    reading.run(False, most_bytes)
    if reading.make_room_for_strings():
        reading.run(True, most_bytes)
    return [reading.result(k) for k in range(count)]
