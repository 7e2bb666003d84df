"""Cells of one stored column, read where they lie in cached pages, and who holds the pages.

``PointColumn`` has the pages of a column that point reads have asked for, as the page cache keeps them,
and raw pointers into them.  ``PageHolder`` is what the cache asks before it drops one.

What cannot be read cell by cell raises ``NeedsGeneralPath``, stored bytes that break their format raise
``PageError``; in both cases the general path must answer.

Memory: a page is kept while the cache keeps it.  When the cache is about to drop one, it calls ``forget``,
which says whether the page was used since the last time (then it stays) or lets go of it.  All that
changes what is held happens with the GIL; a look-up that runs without it is counted in
``_busy``, and pages dropped meanwhile are let go of when the last such look-up ends.
"""
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kudu_core._ext.base.bitmap cimport kc_bit
from kudu_core._ext.pages.cell cimport Strings, fixed_cell, strings_open
from kudu_core._ext.pages.head cimport (
    BLOCK_ROWS,
    CLASS_BINARY,
    CLASS_FIXED,
    DELTA,
    PAGE_ROWS,
    STRING_PLAIN,
    Page,
    load32,
    page_open,
    page_values,
)
from kudu_core._ext.pages.rows cimport stored_part
from kudu_core._ext.search.cells cimport (
    NEEDS_GENERAL_PATH,
    NEED_PAGE,
    Cells,
    kc_point_fetch,
    plain_cell,
    step_value,
)
from kudu_core._ext.row.codec cimport value_of
from kudu_core._ext.search.sorted_strings cimport sorted_strings
from kudu_core._ext.base.status cimport BAD_VALUE, raise_status

import numpy as np

from kudu_core._ext.base.status import NeedsGeneralPath

cdef enum:
    AHEAD = 6                   # rows of a gather whose mini-blocks are fetched early
    KEPT_TEXTS = 1 << 16        # dictionaries up to so many words keep theirs as Python values
    MAX_DATA_BYTES = 0x7FFFFFFF


# ---------------------------------------------------------------------------------- cells of a column

cdef int _read_fixed(
    const Column* column, const Page* page, int64_t rowid, Cells* cells, int64_t* index, uint8_t* out,
    int64_t* at,
) noexcept nogil:
    """Write the cell of a row, which lies in the page, as stored; 1 where it is null, or a status.

    ``index``: the mini-block that ``cells`` holds, -1 for none; kept for the next cell.
    """
    cdef:
        int64_t row = rowid & (PAGE_ROWS - 1), i = rowid & (BLOCK_ROWS - 1)
        int status, width = column.width
        uint64_t high, word
    if row >= page.rows:
        return BAD_VALUE
    if page.bits != NULL:
        if not kc_bit(page.bits, row):
            memset(out, 0, <size_t>width)
            return 1
        i = page_values(page, row - i, i)
    if rowid >> 10 != index[0]:
        index[0] = -1
        status = open_known(column, page, rowid >> 10, cells, at)
        if status < 0:
            return status
        index[0] = rowid >> 10
    if cells.block.kind == DELTA and cells.steps:
        word = step_value(cells, i)
        memcpy(out, &word, <size_t>width)
    elif cells.block.kind == DELTA:
        if not cells.decoded:
            status = stored_part(
                &cells.block, &cells.layout, 0, cells.block.count, cells.values, cells.values, at
            )
            if status < 0:
                return status
            cells.decoded = True
        memcpy(out, cells.values + i * cells.layout.width, <size_t>cells.layout.width)
    else:
        status = fixed_cell(&cells.block, &cells.layout, i, out)
        if status < 0:
            return status
    if cells.layout.width != width:
        high = ~<uint64_t>0 if out[7] & 0x80 else 0
        memcpy(out + 8, &high, 8)
    return 0


cdef inline void _fetch_ahead(const Column* column, const int64_t[::1] rows, int64_t k) noexcept nogil:
    """Ask for what the next rows need: where a mini-block lies, and when that has come, the cell."""
    cdef:
        const Page* page
        const Opened* opened
        int64_t row
    if k + 2 * AHEAD < rows.shape[0]:
        row = rows[k + 2 * AHEAD]
        page = &column.pages[row >> 14]
        if page.data != NULL and ((row >> 10) & 15) < page.blocks:
            if column.width:
                kc_point_fetch(&column.opened[row >> 10])
                kc_point_fetch(<const uint8_t*>&column.opened[row >> 10] + 64)
            else:
                kc_point_fetch(page.directory + 4 * ((row >> 10) & 15))
            if page.bits != NULL:
                kc_point_fetch(page.bits + ((row & (PAGE_ROWS - 1)) >> 3))
    if k + AHEAD < rows.shape[0]:
        row = rows[k + AHEAD]
        page = &column.pages[row >> 14]
        if page.data == NULL or ((row >> 10) & 15) >= page.blocks:
            return
        if column.width:
            opened = &column.opened[row >> 10]
            if kc_is_known(&opened.known) and page.bits == NULL:
                row &= BLOCK_ROWS - 1
                row = row * (opened.block.bits if opened.block.bits else 8 * column.width) >> 3
                if row < opened.block.size:
                    kc_point_fetch(opened.layout.packed + row)
        else:
            row = load32(page.directory + 4 * ((row >> 10) & 15))
            if row < page.size:
                kc_point_fetch(page.data + row)


cdef int64_t _gather_fixed(
    const Column* column, const int64_t[::1] rows, uint8_t* out, uint8_t* bits, int64_t k, Cells* cells,
    Need* need, int64_t* nulls, int64_t* status, int64_t* at,
) noexcept nogil:
    """Write the cells of rows[k:], stored width; stop where a page lacks.  Return how far it came."""
    cdef:
        int64_t number = -1, index = -1
        int width = column.width, found
        const Page* page = NULL
    status[0] = 0
    for k in range(k, rows.shape[0]):
        _fetch_ahead(column, rows, k)
        if rows[k] >> 14 != number:
            number = rows[k] >> 14
            page = &column.pages[number]
            need.page = number
            if page.data == NULL:
                status[0] = NEED_PAGE
                return k
            column.touched[number] = 1
        found = _read_fixed(column, page, rows[k], cells, &index, out + k * width, at)
        if found < 0:
            status[0] = found
            return k
        if found:
            bits[k >> 3] &= <uint8_t>~(1 << (k & 7))
            nulls[0] += 1
    return rows.shape[0]


cdef struct Span:
    const uint8_t* start
    int64_t size


cdef int64_t _gather_strings(
    const Column* column, const int64_t[::1] rows, Span* out, uint8_t* bits, int64_t k,
    Need* need, int64_t* nulls, int64_t* status, int64_t* at,
) noexcept nogil:
    """Write where the cells of rows[k:] lie; as ``_gather_fixed``."""
    cdef:
        int64_t number = -1, index = -1, row, i
        const Page* page = NULL
        Strings part
        int found
    status[0] = 0
    memset(&part, 0, sizeof(part))
    for k in range(k, rows.shape[0]):
        _fetch_ahead(column, rows, k)
        if rows[k] >> 14 != number:
            number = rows[k] >> 14
            index = -1
            page = &column.pages[number]
            need.page = number
            if page.data == NULL:
                status[0] = NEED_PAGE
                return k
            column.touched[number] = 1
        row = rows[k] & 16383
        if row >= page.rows:
            status[0] = BAD_VALUE
            return k
        out[k].size = 0
        i = row & (BLOCK_ROWS - 1)
        if page.bits != NULL:
            if not kc_bit(page.bits, row):
                bits[k >> 3] &= <uint8_t>~(1 << (k & 7))
                nulls[0] += 1
                continue
            i = page_values(page, row - i, i)
        if row >> 10 != index:
            index = row >> 10
            found = strings_open(page, index, &part, at)
            if found == 0 and part.kind != STRING_PLAIN:
                found = NEEDS_GENERAL_PATH
            if found < 0:
                status[0] = found
                return k
        found = plain_cell(&part, i, &out[k].start, &out[k].size, at)
        if found < 0:
            status[0] = found
            return k
    return rows.shape[0]


cdef int64_t _place(
    const Column* column, const uint8_t* codes, const uint8_t* bits, Span* spans, int64_t n, int32_t* offsets
) noexcept nogil:
    """Offsets of the words of codes (``codes`` NULL: of the spans as they are); the bytes, or a status."""
    cdef:
        int64_t k, total = 0
        uint32_t code
    offsets[0] = 0
    for k in range(n):
        if codes != NULL:
            spans[k].size = 0
            if kc_bit(bits, k):
                code = 0
                memcpy(&code, codes + k * column.width, <size_t>column.width)
                if code >= column.words.count:
                    return BAD_VALUE
                spans[k].start = column.words.data + column.words.ends[code]
                spans[k].size = column.words.ends[code + 1] - column.words.ends[code]
        total += spans[k].size
        if total > MAX_DATA_BYTES:
            return NEEDS_GENERAL_PATH
        offsets[k + 1] = <int32_t>total
    return total


cdef void _copy(const Span* spans, int64_t n, uint8_t* out) noexcept nogil:
    cdef int64_t k
    for k in range(n):
        if spans[k].size:
            memcpy(out, spans[k].start, <size_t>spans[k].size)
            out += spans[k].size


# ----------------------------------------------------------------------------------------- the classes

@cython.auto_pickle(False)
cdef class Held:
    """Something that has pieces in memory as long as the cache keeps them."""

    cdef int used(self, Py_ssize_t number) except -1:
        """Whether the piece was used since it was last asked."""
        raise NotImplementedError

    cdef int let_go(self, Py_ssize_t number) except -1:
        raise NotImplementedError


@cython.auto_pickle(False)
cdef class PageHolder:
    """Which pieces of one open file are held: what the page cache asks and tells."""

    def __cinit__(self, *_):
        self._places = {}
        self._leaving = []

    @property
    def pages(self):
        """How many pages are held."""
        return len(self._places)

    @property
    def held(self):
        """Their places in the cache."""
        return tuple(self._places)

    cdef int hold(self, object place, Held who, Py_ssize_t number) except -1:
        self._places[place] = (who, number)
        return 0

    cdef int idle(self) except -1:
        """A look-up without the GIL has ended."""
        self._busy -= 1
        if self._busy == 0 and self._leaving:
            leaving, self._leaving = self._leaving, []
            for who, number in leaving:
                self.drop(who, number)
        return 0

    def forget(self, place):
        """The cache is about to drop a page: False where it was used since it was last asked."""
        cdef:
            Held who
            Py_ssize_t number
        held = self._places.get(place)
        if held is None:
            return True
        who, number = held
        if who.used(number):
            return False
        del self._places[place]
        self.drop(who, number)
        return True

    cdef int drop(self, Held who, Py_ssize_t number) except -1:
        # A look-up without the GIL may be reading the page: it stays until the last of them ends.
        if self._busy:
            self._leaving.append((who, number))
            return 0
        who.let_go(number)
        return 0

    def close(self):
        """Let go of every page; look-ups raise ``NeedsGeneralPath`` from now on."""
        self.closed = True
        places, self._places = self._places, {}
        for who, number in places.values():
            self.drop(who, number)


@cython.final
@cython.auto_pickle(False)
cdef class PointColumn(Held):
    """One stored column: its dictionary, and the pages that are held.

    ``load(number)`` gives the checked payload of a page, and its place in the cache (None: not kept);
    ``stored_width``: of the values or codes in the pages; ``words``: (offsets int32, data), checked.
    ``holder``: who holds its pages, where that is not the file that it is read with.  ``remember(place,
    payload)`` puts a page, when it is held, back into a cache that has dropped it meanwhile.
    """

    def __init__(
        self, load, Py_ssize_t page_count, int stored_width, words=None, PageHolder holder=None,
        remember=None,
    ):
        cdef:
            uint8_t[::1] room
        if stored_width not in (0, 1, 2, 4, 8, 16) or page_count < 0:
            raise ValueError(f"{page_count} pages of values of {stored_width} bytes")
        self._load = load
        self._remember = remember
        self._holder = holder
        self._room = np.zeros((page_count + 1) * sizeof(Page), np.uint8)
        room = self._room
        self.c.pages = <Page*>&room[0]
        self._opened = np.zeros((16 * page_count + 1) * sizeof(Opened), np.uint8)
        room = self._opened
        self.c.opened = <Opened*>&room[0]
        self._touched = np.zeros(page_count + 1, np.uint8)
        room = self._touched
        self.c.touched = &room[0]
        self._payloads = [None] * page_count
        self.c.page_count = page_count
        self.c.width = stored_width
        if words is not None:
            if stored_width not in (1, 2, 4):
                raise ValueError(f"codes of {stored_width} bytes")
            self._words = sorted_strings(&self.c.words, words[1], words[0])
            if self.c.words.count < 1:
                raise ValueError("a dictionary without words")
            self._texts = [None] * self.c.words.count if self.c.words.count <= KEPT_TEXTS else None

    cdef const Page* page(self, PageHolder holder, int64_t number) except NULL:
        """A page of the column, loaded if it is not held."""
        cdef:
            Page page
            const uint8_t[::1] view
            int64_t at = 0
            int status
        if self.c.pages[number].data != NULL:
            self.c.touched[number] = 1
            return &self.c.pages[number]
        if self._holder is not None:
            holder = self._holder
        payload, place = self._load(number)
        if place is None:
            raise NeedsGeneralPath
        view = payload
        memset(&page, 0, sizeof(page))
        status = page_open(
            &page, &view[0] if view.shape[0] else NULL, view.shape[0],
            CLASS_FIXED if self.c.width else CLASS_BINARY, self.c.width, &at,
        )
        if status < 0:
            raise_status(status, at)
        if self.c.pages[number].data == NULL:       # nobody was faster
            if holder.closed:
                raise NeedsGeneralPath
            self._payloads[number] = payload
            holder.hold(place, self, number)
            self.c.touched[number] = 1
            self._publish(number, &page)
            if self._remember is not None:
                self._remember(place, payload)      # else it would be held until the file closes
                if self.c.pages[number].data == NULL:
                    raise NeedsGeneralPath  # dropped again at once
        return &self.c.pages[number]

    cdef void _publish(self, int64_t number, const Page* page) noexcept:
        # The address last: a look-up without the GIL takes the page when it sees it.
        cdef Page* slot = &self.c.pages[number]
        slot.size = page.size
        slot.rows = page.rows
        slot.blocks = page.blocks
        slot.start = page.start
        slot.directory = page.directory
        slot.bits = page.bits
        slot.data = page.data

    cdef object value(self, PageHolder holder, int64_t row, int tag, object decode):
        """The Python value of one row's cell."""
        cdef:
            const Page* page = self.page(holder, row >> 14)
            Cells cells
            Strings part
            uint8_t cell[16]
            int64_t index = -1, i, at = 0, size = 0
            int status
            uint32_t code = 0
            const uint8_t* start = NULL
        memset(&part, 0, sizeof(part))
        if self.c.width:
            status = _read_fixed(&self.c, page, row, &cells, &index, cell, &at)
            if status < 0:
                raise_status(status, at)
            if status:
                return None
            if not self.c.words.count:
                return value_of(tag, cell, self.c.width, decode)
            memcpy(&code, cell, <size_t>self.c.width)
            if code >= self.c.words.count:
                raise_status(BAD_VALUE, 0)
            if self._texts is not None:
                found = self._texts[code]
                if found is not None:
                    return found
            found = value_of(
                tag, self.c.words.data + self.c.words.ends[code],
                self.c.words.ends[code + 1] - self.c.words.ends[code], decode,
            )
            if self._texts is not None:
                self._texts[code] = found
            return found
        row &= 16383
        if row >= page.rows:
            raise_status(BAD_VALUE, 0)
        i = row & (BLOCK_ROWS - 1)
        if page.bits != NULL:
            if not kc_bit(page.bits, row):
                return None
            i = page_values(page, row - i, i)
        status = strings_open(page, row >> 10, &part, &at)
        if status == 0 and part.kind != STRING_PLAIN:
            raise NeedsGeneralPath
        if status == 0:
            status = plain_cell(&part, i, &start, &size, &at)
        if status < 0:
            raise_status(status, at)
        return value_of(tag, start, size, decode)

    cdef int used(self, Py_ssize_t number) except -1:
        cdef bint was = self.c.touched[number]
        self.c.touched[number] = 0
        return was

    cdef int let_go(self, Py_ssize_t number) except -1:
        cdef int i
        self.c.pages[number].data = NULL
        for i in range(16):
            self.c.opened[16 * number + i].known = 0
        self._payloads[number] = None
        return 0

    cdef tuple cells(self, PageHolder holder, const int64_t[::1] rows):
        """The cells of rows that the column has: (values, offsets or None, validity or None)."""
        cdef:
            Cells cells
            Need need
            int64_t at = 0, status = 0, k = 0, n = rows.shape[0], nulls = 0, total
            uint8_t[::1] values, bits, span_room
            int32_t[::1] ends
            uint8_t* to
            uint8_t* codes = NULL
            Span* spans = NULL
        if self._holder is not None:
            holder = self._holder
        result = np.empty(n * self.c.width + 16, np.uint8)
        validity = np.full(((n + 7) >> 3) + 1, 255, np.uint8)
        values = result
        bits = validity
        to = &values[0]
        need.column = 0
        need.page = 0
        if self.c.words.count or not self.c.width:
            span_room = np.empty((n + 1) * sizeof(Span), np.uint8)
            spans = <Span*>&span_room[0]
        holder._busy += 1
        try:
            k = 0
            while True:
                with nogil:
                    if self.c.width:
                        k = _gather_fixed(
                            &self.c, rows, to, &bits[0], k, &cells, &need, &nulls, &status, &at
                        )
                    else:
                        k = _gather_strings(&self.c, rows, spans, &bits[0], k, &need, &nulls, &status, &at)
                if status == NEED_PAGE:
                    self.page(holder, need.page)
                elif status == NEEDS_GENERAL_PATH:
                    raise NeedsGeneralPath
                elif status:
                    raise_status(status, at)
                else:
                    break
            validity = validity[:(n + 7) >> 3] if nulls else None
            if spans == NULL:
                return result[:n * self.c.width], None, validity
            if self.c.width:
                codes = to
            offsets = np.empty(n + 1, np.int32)
            ends = offsets
            total = _place(&self.c, codes, &bits[0], spans, n, &ends[0])
            if total == NEEDS_GENERAL_PATH:
                raise NeedsGeneralPath
            if total < 0:
                raise_status(total, 0)
            result = np.empty(total + 1, np.uint8)
            values = result
            to = &values[0]
            with nogil:
                _copy(spans, n, to)
            return result[:total], offsets, validity
        finally:
            holder.idle()
