"""Cells of one stored column, read where they lie in cached pages.

``PointColumn`` has the pages of a column that look-ups of single rows have asked for, as the page cache keeps
them, and raw pointers into them; ``holder`` says until when.  ``value`` makes a Python value of one cell,
``cells`` gathers those of many rows (``cells.pxd``).

What cannot be read cell by cell raises ``NeedsGeneralPath``, stored bytes that break their format raise
``PageError``; in both cases the general path must answer.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from kudu_core._ext.files.page_fetcher cimport BriefPage, PageFetcher, brief_cell
from kudu_core._ext.files.page_loader cimport PageLoader
from kudu_core._ext.pages.cell cimport Strings, plain_cell
from kudu_core._ext.pages.head cimport BLOCK_BITS, CLASS_BINARY, CLASS_FIXED, PAGE_BITS, Page, page_open
from kudu_core._ext.row.cells cimport (
    Need,
    Opened,
    Span,
    copy_cells,
    gather_fixed,
    gather_strings,
    open_string,
    page_of,
    place_cells,
    read_fixed,
    row_in_page,
)
from kudu_core._ext.pages.holder cimport Held, PageHolder
from kudu_core._ext.row.shape cimport RAW, value_of
from kudu_core._ext.search.cells cimport Cells
from kudu_core._ext.search.outcomes cimport NEED_PAGE, NEEDS_GENERAL_PATH
from kudu_core._ext.search.sorted_strings cimport sorted_strings
from kudu_core._ext.base.status cimport BAD_VALUE, raise_needs_general_path, raise_status

import numpy as np

cdef object NOT_BRIEF = object()

cdef enum:
    KEPT_TEXTS = 1 << 16        # dictionaries up to so many words keep theirs as Python values


@cython.final
@cython.auto_pickle(False)
cdef class PointColumn(Held):
    """One stored column: its dictionary, and the pages that are held.

    ``load(number)`` gives the checked payload of a page, and its place in the cache (None: may not be held).
    ``remember(place, payload)`` puts a page, once it is held, into the cache, and says whether that has it:
    only then it stays held.  A ``PageLoader`` in the place of ``load`` is both.  ``stored_width``: of the
    values or codes in the pages; ``words``: (offsets int32, data), checked.  ``holder``: who holds its pages,
    where that is not the file that it is read with.  ``page_bits``: a page has ``1 << page_bits`` rows.
    """

    def __init__(
        self, load, Py_ssize_t page_count, int stored_width, words=None, PageHolder holder=None,
        remember=None, int page_bits=PAGE_BITS,
    ):
        cdef:
            uint8_t[::1] room
        if stored_width not in (0, 1, 2, 4, 8, 16) or page_count < 0:
            raise ValueError(f"{page_count} pages of values of {stored_width} bytes")
        if not (BLOCK_BITS if stored_width else 0) <= page_bits <= PAGE_BITS:
            raise ValueError(f"pages of 1 << {page_bits} values of {stored_width} bytes")
        self.samples = {}
        if isinstance(load, PageLoader):
            self._loader = load
        self._load = load
        self._remember = remember
        self._holder = holder
        self._room = np.zeros((page_count + 1) * sizeof(Page), np.uint8)
        room = self._room
        self.c.pages = <Page*>&room[0]
        self.c.page_bits = page_bits
        if stored_width:
            self._opened = np.zeros(((page_count << (page_bits - BLOCK_BITS)) + 1) * sizeof(Opened), np.uint8)
            room = self._opened
            self.c.opened = <Opened*>&room[0]
        self._touched = np.zeros(page_count + 1, np.uint8)
        room = self._touched
        self.c.touched = &room[0]
        self._met = np.zeros(page_count + 1, np.uint8)
        room = self._met
        self._met_once = &room[0]
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
        """A page of the column, loaded if it is not held.

        One that the cache does not keep is there until the look-ups end that the holder counts (``_busy``);
        where it counts none, ``NeedsGeneralPath`` is raised.
        """
        if self.c.pages[number].data != NULL:
            self.c.touched[number] = 1
            return &self.c.pages[number]
        return self._loaded(holder if self._holder is None else self._holder, number)

    cdef bint lacks(self, int64_t row) noexcept:
        """Whether the page of a row's cell is not held."""
        return self.c.pages[page_of(&self.c, row)].data == NULL

    cdef PyObject** known_place(self, int64_t row) noexcept:
        """As ``PageLoader.known_place``, of the page of a row's cell."""
        return NULL if self._loader is None else self._loader.known_place(page_of(&self.c, row))

    cdef object ask(self, int64_t row, bint if_cold):
        """As ``PageLoader.ask``, of the page of a row's cell."""
        return None if self._loader is None else self._loader.ask(page_of(&self.c, row), if_cold)

    cdef const Page* _loaded(self, PageHolder holder, int64_t number) except NULL:
        """The same of a page that is not held."""
        if self._loader is not None:
            place = self._loader.place(number)
            payload = None if place is None else self._loader.payload(number, place)
        else:
            payload, place = self._load(number)
        return self._hold(holder, number, place, payload)

    cdef const Page* _hold(
        self, PageHolder holder, int64_t number, object place, object payload
    ) except NULL:
        """Hold a page from now on."""
        cdef Page page
        if place is None:
            raise_needs_general_path()
        self._open(payload, &page)
        if self.c.pages[number].data == NULL:       # nobody was faster
            if holder.closed:
                raise_needs_general_path()
            self._payloads[number] = payload
            holder.hold(place, self, number)
            self.c.touched[number] = 1
            self._publish(number, &page)
            kept = self._loader is None and self._remember is None
            try:
                if self._loader is not None:
                    kept = self._loader.remember(place, payload)
                elif self._remember is not None:
                    kept = self._remember(place, payload)
            finally:
                if not kept:                    # else it would be held until the file closes
                    holder.give_up(place, self, number)
            if self.c.pages[number].data == NULL:
                raise_needs_general_path()
        return &self.c.pages[number]

    cdef int _open(self, object payload, Page* page) except -1:
        """Set ``page`` to what a checked payload says, which is to stay where it is."""
        cdef:
            const uint8_t[::1] view
            const uint8_t* data = NULL
            int64_t at = 0
            Py_ssize_t size
            int status
        if PyBytes_CheckExact(payload):
            data, size = <const uint8_t*>PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload)
        else:
            view = payload
            size = view.shape[0]
            if size:
                data = &view[0]
        memset(page, 0, sizeof(Page))
        status = page_open(page, data, size, CLASS_FIXED if self.c.width else CLASS_BINARY, self.c.width, &at)
        if status < 0:
            raise_status(status, at)
        return 0

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
        cdef int64_t number = page_of(&self.c, row)
        if self.c.pages[number].data != NULL:
            return self._cell(self.page(holder, number), row, tag, decode)
        if self._holder is not None:
            holder = self._holder
        # A page that the cache does not keep stays while this is counted, and is read but once.
        holder._busy += 1
        try:
            if not self.c.width and self._loader is not None:
                return self._string_of(holder, number, row, tag, decode)
            return self._cell(self.page(holder, number), row, tag, decode)
        finally:
            holder.idle()

    cdef object _string_of(
        self, PageHolder holder, int64_t number, int64_t row, int tag, object decode
    ):
        """The Python value of a string, whose page is not held.

        To hold a page takes longer than to read a cell, and to unpack it is most of what a cell costs that
        the cache does not have.  So a page is held, and put into the cache, when it is met again.
        """
        cdef Page page
        place = self._loader.place(number)
        if place is None:
            raise_needs_general_path()
        payload = self._loader.look(place)
        if payload is None:
            found = self._brief(number, place, row, tag, decode)
            if found is not NOT_BRIEF:
                return found
            payload = self._loader.fetched(number)
        elif not self._met_once[number]:
            self._met_once[number] = 1
            if holder.closed:
                raise_needs_general_path()
            self._open(payload, &page)
            return self._string(&page, row_in_page(&self.c, row), tag, decode)
        return self._cell(self._hold(holder, number, place, payload), row, tag, decode)

    cdef object _brief(self, int64_t number, object place, int64_t row, int tag, object decode):
        """The same of a page that is read for this cell alone; ``NOT_BRIEF``: it is to be read as a whole."""
        cdef:
            BriefPage brief
            const uint8_t* start = NULL
            int64_t size = 0
            int status
            PageFetcher fetcher = self._loader.passing(number, place, False)
        if fetcher is None:
            return NOT_BRIEF
        text = fetcher.brief(number, &brief)        # unpacking needs it until the end
        if text is None:
            return NOT_BRIEF
        status = brief_cell(&brief, row_in_page(&self.c, row), &start, &size)
        if status < 0:
            return NOT_BRIEF
        return None if status else value_of(tag, start, size, decode)

    cdef object _cell(self, const Page* page, int64_t row, int tag, object decode):
        """The Python value of one row's cell, in its page."""
        cdef:
            Cells cells
            uint8_t cell[16]
            int64_t index = -1, at = 0
            int status
        if not self.c.width:
            return self._string(page, row_in_page(&self.c, row), tag, decode)
        status = read_fixed(&self.c, page, row, &cells, &index, cell, &at)
        if status < 0:
            raise_status(status, at)
        if status:
            return None
        if self.c.words.count:
            return self._word(cell, tag, decode)
        return value_of(tag, cell, self.c.width, decode)

    cdef object _word(self, const uint8_t* cell, int tag, object decode):
        """The Python value of a word of the dictionary, whose code ``cell`` is."""
        cdef uint32_t code = 0
        memcpy(&code, cell, <size_t>self.c.width)
        if code >= self.c.words.count:
            raise_status(BAD_VALUE, 0)
        if self._texts is not None and tag != RAW:
            found = self._texts[code]
            if found is not None:
                return found
        found = value_of(
            tag, self.c.words.data + self.c.words.ends[code],
            self.c.words.ends[code + 1] - self.c.words.ends[code], decode,
        )
        if self._texts is not None and tag != RAW:
            self._texts[code] = found
        return found

    cdef object _string(self, const Page* page, int64_t row, int tag, object decode):
        """The Python value of a row of a page of strings."""
        cdef:
            Strings part
            int64_t index = -1, i = 0, at = 0, size = 0
            int status
            const uint8_t* start = NULL
        memset(&part, 0, sizeof(part))
        status = open_string(page, row, &index, &part, &i, &at)
        if status == 1:
            return None
        if status == NEEDS_GENERAL_PATH:
            raise_needs_general_path()
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
        cdef Py_ssize_t i
        self._met_once[number] = 0
        self.c.pages[number].data = NULL
        if self.c.opened != NULL:
            for i in range(number << (self.c.page_bits - BLOCK_BITS),
                           (number + 1) << (self.c.page_bits - BLOCK_BITS)):
                self.c.opened[i].known = 0
                if self.samples:
                    self.samples.pop(i, None)
        self._payloads[number] = None
        return 0

    cdef tuple cells(self, PageHolder holder, const int64_t[::1] rows):
        """The cells of rows that the column has: (values, offsets or None, validity or None)."""
        cdef:
            int64_t n = rows.shape[0], nulls, total
            uint8_t[::1] values, bits, span_room
            int32_t[::1] ends
            uint8_t* to
            Span* spans = NULL
        if self._holder is not None:
            holder = self._holder
        result = np.empty(n * self.c.width + 16, np.uint8)
        validity = np.full(((n + 7) >> 3) + 1, 255, np.uint8)
        values = result
        bits = validity
        to = &values[0]
        if self.c.words.count or not self.c.width:
            span_room = np.empty((n + 1) * sizeof(Span), np.uint8)
            spans = <Span*>&span_room[0]
        holder._busy += 1
        try:
            nulls = self._gather(holder, rows, to, spans, &bits[0])
            validity = validity[:(n + 7) >> 3] if nulls else None
            if spans == NULL:
                return result[:n * self.c.width], None, validity
            offsets = np.empty(n + 1, np.int32)
            ends = offsets
            total = place_cells(&self.c, to if self.c.width else NULL, &bits[0], spans, n, &ends[0])
            if total == NEEDS_GENERAL_PATH:
                raise_needs_general_path()
            if total < 0:
                raise_status(total, 0)
            result = np.empty(total + 1, np.uint8)
            values = result
            to = &values[0]
            with nogil:
                copy_cells(spans, n, to)
            return result[:total], offsets, validity
        finally:
            holder.idle()

    cdef int64_t _gather(
        self, PageHolder holder, const int64_t[::1] rows, uint8_t* out, Span* spans, uint8_t* bits
    ) except -1:
        """Write the cells of the rows, or where they lie, loading the pages that lack; return the nulls."""
        cdef:
            Cells cells
            Need need
            int64_t at = 0, status = 0, k = 0, nulls = 0
        need.column = 0
        need.page = 0
        while True:
            with nogil:
                if self.c.width:
                    k = gather_fixed(&self.c, rows, out, bits, k, &cells, &need, &nulls, &status, &at)
                else:
                    k = gather_strings(&self.c, rows, spans, bits, k, &need, &nulls, &status, &at)
            if status == NEED_PAGE:
                self.page(holder, need.page)
            elif status == NEEDS_GENERAL_PATH:
                raise_needs_general_path()
            elif status:
                raise_status(status, at)
            else:
                return nulls
