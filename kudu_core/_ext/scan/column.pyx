"""One stored column of a file as scans read it: the pages that are held, and its dictionary.

A ``ScanColumn`` keeps raw pointers into its pages for as long as the page cache keeps these; its file's
``PageHolder`` is what the cache asks before it drops a page.  A scan *pins* the pages that it reads: it
copies their heads and takes references of its own, and then reads them without the GIL.

Pages are hostile: the head of each is checked when it is loaded, and what breaks the format raises
``PageError``.  What lies in the mini-blocks is checked by those who read them.
"""
cimport cython
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from kudu_core._ext.pages.head cimport BLOCK_BITS, CLASS_BINARY, CLASS_FIXED, PAGE_BITS, Page, page_open
from kudu_core._ext.base.status cimport BAD_VALUE, raise_status

import numpy as np

cdef enum:
    SLOT = 16                   # bytes of a short word


@cython.final
@cython.auto_pickle(False)
cdef class ScanColumn(Held):
    """One stored column of a file: its dictionary, and the pages that are held.

    ``load(numbers)`` gives a list of (checked payload, place in the cache or None: not kept) for ascending
    page numbers; ``stored_width``: of the values or codes in the pages, 0 for strings; ``words``: (offsets
    int32, data); ``remember(place, payload)`` puts a page, when it is held, back into a cache that has
    dropped it meanwhile; a page has ``1 << page_bits`` rows.  Raises ValueError for a width, a number of rows
    or a dictionary that is none.
    """

    def __init__(
        self, PageHolder file not None, load, int64_t rows, int stored_width, words=None, remember=None,
        int page_bits=PAGE_BITS,
    ):
        if stored_width not in (0, 1, 2, 4, 8, 16) or rows < 0:
            raise ValueError(f"{rows} cells of {stored_width} bytes")
        if not (BLOCK_BITS if stored_width else 0) <= page_bits <= PAGE_BITS:
            raise ValueError(f"pages of 1 << {page_bits} cells of {stored_width} bytes")
        self.file = file
        self.load = load
        self.remember = remember
        self.rows = rows
        self.width = stored_width
        self.page_bits = page_bits
        self.page_count = (rows + ((<int64_t>1) << page_bits) - 1) >> page_bits
        self.pages = <Page*>PyMem_RawCalloc(self.page_count + 1, sizeof(Page))
        self.touched = <uint8_t*>PyMem_RawCalloc(self.page_count + 1, 1)
        if self.pages == NULL or self.touched == NULL:
            raise MemoryError
        self.payloads = [None] * self.page_count
        if words is not None:
            self.take_words(words)

    cdef int take_words(self, words) except -1:
        """Check the dictionary of the column and keep it."""
        cdef:
            const int32_t[::1] ends
            const uint8_t[::1] data
            const uint32_t[::1] sizes
            uint8_t[::1] slots
            int64_t i, longest = 0
        if self.width not in (1, 2):
            raise ValueError(f"codes of {self.width} bytes")
        ends, data = words
        self.words.count = ends.shape[0] - 1
        if not 1 <= self.words.count <= MANY_WORDS or ends[0] < 0 or ends[self.words.count] > data.shape[0]:
            raise ValueError("offsets of words leave the data")
        for i in range(self.words.count):
            if ends[i + 1] < ends[i]:
                raise ValueError("offsets of words descend")
            longest = max(longest, ends[i + 1] - ends[i])
        self.words.ends = &ends[0]
        self.words.data = &data[0] if data.shape[0] else <const uint8_t*>&ends[0]
        kept_sizes = np.diff(np.asarray(ends)).astype(np.uint32)
        sizes = kept_sizes
        self.words.sizes = &sizes[0]
        kept_slots = None
        if longest <= SLOT:
            kept_slots = np.zeros(SLOT * self.words.count, np.uint8)
            slots = kept_slots
            for i in range(self.words.count):
                if ends[i + 1] > ends[i]:
                    memcpy(&slots[SLOT * i], self.words.data + ends[i], <size_t>(ends[i + 1] - ends[i]))
            self.words.slots = &slots[0]
        self.kept = (words, kept_sizes, kept_slots)
        return 0

    cdef int used(self, Py_ssize_t number) except -1:
        if self.touched[number]:
            self.touched[number] = 0
            return 1
        return 0

    cdef int let_go(self, Py_ssize_t number) except -1:
        self.pages[number].data = NULL
        self.payloads[number] = None
        return 0

    def __dealloc__(self):
        PyMem_RawFree(self.pages)
        PyMem_RawFree(self.touched)

    cdef int pin(
        self, const int64_t* numbers, const uint8_t* wanted, int64_t n, Page* pages, list held
    ) except -1:
        """Copy the heads of the wanted pages to ``pages``, and references to them to ``held``."""
        cdef:
            int64_t k
            list missing = None
            list places = None
        for k in range(n):
            pages[k].data = NULL
            if not wanted[k]:
                continue
            if numbers[k] >= self.page_count:
                raise IndexError(f"page {numbers[k]} of {self.page_count}")
            if self.pages[numbers[k]].data != NULL:
                self.touched[numbers[k]] = 1
                pages[k] = self.pages[numbers[k]]
                held.append(self.payloads[numbers[k]])
            elif missing is None:
                missing, places = [numbers[k]], [k]
            else:
                missing.append(numbers[k])
                places.append(k)
        if missing is not None:
            for k, (payload, place) in zip(places, self.load(missing), strict=True):
                held.append(payload)
                self.hold(numbers[k], payload, place, &pages[k])
        return 0

    cdef int hold(self, int64_t number, payload, place, Page* page) except -1:
        """Check a page that was loaded, set ``page`` to it, and hold it where the cache keeps it."""
        cdef:
            const uint8_t[::1] view = payload
            int64_t at = 0, rows = self.rows - (number << self.page_bits), full = <int64_t>1 << self.page_bits
            int status = page_open(
                page, &view[0] if view.shape[0] else NULL, view.shape[0],
                CLASS_FIXED if self.width else CLASS_BINARY, self.width, &at,
            )
        if status == 0 and page.rows != (full if rows > full else rows):
            status = BAD_VALUE
        if status < 0:
            return raise_status(status, at)
        if place is not None and self.pages[number].data == NULL and not self.file.closed:
            self.payloads[number] = payload
            self.file.hold(place, self, number)
            self.pages[number] = page[0]
            self.touched[number] = 0
            if self.remember is not None:
                kept = False
                try:
                    kept = self.remember(place, payload)
                finally:
                    if not kept:                # else it would be held until the file closes
                        self.file.give_up(place, self, number)
        return 0
