"""Strings of many rows: a page that nobody holds is read once, and unpacked as far as it is needed.

To hold a page and to put it into the cache takes as long as to read a cell of it, and most pages of a table
that is larger than the cache are not asked for again before they would go.  So a page is held when it is met
again (``row.column``, ``CachedPages.pass_by``).  What is read here are the cells that are asked
for; pages that lie close together come by one read.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy, memset

from kudu_core._ext.base.arrow_array cimport ArrowArray
from kudu_core._ext.base.loads cimport kc_fetch
from kudu_core._ext.files.descriptors cimport Descriptor
from kudu_core._ext.files.page_fetcher cimport BriefPage, PageFetcher, brief_cell
from kudu_core._ext.ordered.arrow_batch cimport put_null
from kudu_core._ext.ordered.packed cimport FoundRow, fetch_ahead
from kudu_core._ext.pages.cell cimport Strings, plain_cell
from kudu_core._ext.pages.head cimport Page
from kudu_core._ext.pages.holder cimport PageHolder
from kudu_core._ext.row.cells cimport Span, open_string, page_of, read_string, row_in_page
from kudu_core._ext.row.column cimport PointColumn
from kudu_core._ext.row.scattered cimport refuse
from kudu_core._ext.search.cells cimport Cells

cdef enum:
    NULL_CELL = -1              # the size of one, until it is known of all cells of the page
    GAP_BYTES = 8 << 10         # that are read rather than passed over by another call
    RUN_BYTES = 256 << 10       # of a read, at most


@cython.final
@cython.auto_pickle(False)
cdef class FarStrings:
    """Reads for one column of a batch.  What spans point into stays as long as this object."""

    def __cinit__(self):
        self.kept = []

    def __dealloc__(self):
        PyMem_RawFree(self._brief)

    cdef int find(
        self, PageHolder file, PointColumn column, const FoundRow* found, Py_ssize_t first, Py_ssize_t end,
        Span* spans, Cells* cells, ArrowArray* out,
    ) except -1:
        """Where the strings of rows of one file lie, whose pages stay: their holder counts this look-up."""
        cdef:
            const Page* page = NULL
            Span* span
            Strings part
            int64_t number = -1, index = -1, at = 0
            Py_ssize_t last
            int status
        while first < end:
            fetch_ahead(&column.c, found, first, end)
            if page_of(&column.c, found[first].row) != number:
                number, index = page_of(&column.c, found[first].row), -1
                if column.lacks(found[first].row):
                    last, first = first, self.read(file, column, found, first, end, spans, out)
                    if first > last:
                        number = -1
                        continue
                page = column.page(file, number)
            span = &spans[found[first].key]
            status = read_string(
                &column.c, page, found[first].row, cells, &part, &index, &span.start, &span.size, &at
            )
            if status < 0:
                refuse(status, at)
            if status:
                put_null(out, found[first].key)
            else:
                kc_fetch(span.start)
            first += 1
        return 0

    cdef Py_ssize_t read(
        self, PageHolder file, PointColumn column, const FoundRow* found, Py_ssize_t k, Py_ssize_t end,
        Span* spans, ArrowArray* out,
    ) except -1:
        """Find the cells of row ``k`` and of those behind it that lie in its page, which is not held.

        Return the first row that is left: ``k`` where the page is to be held.
        """
        cdef:
            int64_t number = page_of(&column.c, found[k].row)
            Py_ssize_t last = k + 1
            PageFetcher fetcher
            PageHolder holder = file if column._holder is None else column._holder
        if column.c.width or column._loader is None or holder.closed:
            return k
        if column is not self._column:
            self._column, self._run = column, None
        while last < end and page_of(&column.c, found[last].row) == number:
            last += 1
        place = column._loader.place(number)
        if place is None:
            return k
        payload = column._loader.look(place)
        if payload is None:
            fetcher = column._loader.passing(number, place, True)
            if fetcher is not None and self._of_file(fetcher, number, found, k, last, end, spans, out):
                return last
            payload = column._loader.fetched(number)
        elif not column._met_once[number]:
            column._met_once[number] = 1
            if self._of_page(payload, found, k, last, spans, out):
                return last
        column._hold(holder, number, place, payload)
        return k

    cdef bint _of_page(
        self, object payload, const FoundRow* found, Py_ssize_t k, Py_ssize_t last, Span* spans,
        ArrowArray* out,
    ) except -1:
        """Where cells of a page that the cache has lie; False where the page is not as such pages are."""
        cdef:
            Page page
            Strings part
            int64_t index = -1, i = 0, at = 0
            Py_ssize_t row
            Span* span
            int status
        if type(payload) is not bytes:
            return False
        self._column._open(payload, &page)
        memset(&part, 0, sizeof(part))
        self.kept.append(payload)
        for row in range(k, last):
            span = &spans[found[row].key]
            status = open_string(&page, row_in_page(&self._column.c, found[row].row), &index, &part, &i, &at)
            if status == 0:
                status = plain_cell(&part, i, &span.start, &span.size, &at)
            if status < 0:
                return False
            if status:
                span.size = NULL_CELL
        _put_nulls(found, k, last, spans, out)
        return True

    cdef bint _of_file(
        self, PageFetcher fetcher, int64_t number, const FoundRow* found, Py_ssize_t k, Py_ssize_t last,
        Py_ssize_t end, Span* spans, ArrowArray* out,
    ) except -1:
        """Read a page for these cells alone; False: it is to be read as a whole."""
        cdef:
            bytes text = self._fetched(fetcher, number, found, last, end), cells
            Py_ssize_t row
            int64_t total = 0
            Span* span
            char* to
            int status
        if text is None:
            return False
        for row in range(k, last):
            span = &spans[found[row].key]
            status = brief_cell(
                self._brief, row_in_page(&self._column.c, found[row].row), &span.start, &span.size
            )
            if status < 0:
                return False
            if status:
                span.size = NULL_CELL
            else:
                total += span.size
        cells = PyBytes_FromStringAndSize(NULL, total)
        self.kept.append(cells)
        to = PyBytes_AS_STRING(cells)
        for row in range(k, last):
            span = &spans[found[row].key]
            if span.size > 0:
                memcpy(to, span.start, <size_t>span.size)
                span.start = <const uint8_t*>to
                to += span.size
        _put_nulls(found, k, last, spans, out)
        return True

    cdef bytes _fetched(
        self, PageFetcher fetcher, int64_t number, const FoundRow* found, Py_ssize_t last, Py_ssize_t end
    ):
        """Have the page in ``_brief``, as ``PageFetcher.brief``; it may have been read with one before it."""
        cdef:
            int64_t begin = fetcher._offset[number], stop = begin + fetcher._size[number]
            int64_t before = number, page
            const uint8_t* data
        if self._brief == NULL:
            self._brief = <BriefPage*>PyMem_RawMalloc(sizeof(BriefPage))
            if self._brief == NULL:
                raise MemoryError
        if self._run is not None:
            if self._begin <= begin and stop <= self._begin + PyBytes_GET_SIZE(self._run):
                data = <const uint8_t*>PyBytes_AS_STRING(self._run) + (begin - self._begin)
                return fetcher.open_brief(number, data, self._brief)
        # Of the pages that come next, those that lie close behind this one.
        while last < end:
            page = page_of(&self._column.c, found[last].row)
            last += 1
            if page == before or self._column.c.pages[page].data != NULL:
                continue
            if page < before or page >= fetcher._size.shape[0]:
                break
            if fetcher._offset[page] > stop + GAP_BYTES:
                break
            if fetcher._offset[page] + fetcher._size[page] > begin + RUN_BYTES:
                break
            before, stop = page, fetcher._offset[page] + fetcher._size[page]
        descriptor = fetcher._file.descriptor
        if before == number or descriptor is None:
            return fetcher.brief(number, self._brief)
        self._run = PyBytes_FromStringAndSize(NULL, stop - begin)
        self._begin = begin
        if (<Descriptor?>descriptor).read(
            NULL, 0, PyBytes_AS_STRING(self._run), stop - begin, begin
        ) != stop - begin:
            self._run = None
            return None
        return fetcher.open_brief(number, <const uint8_t*>PyBytes_AS_STRING(self._run), self._brief)


cdef int _put_nulls(
    const FoundRow* found, Py_ssize_t k, Py_ssize_t last, Span* spans, ArrowArray* out
) except -1:
    """Of all cells of a page at once, since it may turn out that the page must be read in another way."""
    cdef Py_ssize_t row
    for row in range(k, last):
        if spans[found[row].key].size == NULL_CELL:
            spans[found[row].key].size = 0
            put_null(out, found[row].key)
    return 0
