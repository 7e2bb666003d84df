"""Pages of a stored column for those who hold them: from the cache, else by ``PageFetcher``, in one call.

A look-up of one row beyond the cache misses a page of each column, so that what lies between it and the
system's call is paid for each of them.
"""
cimport cython
from cpython.dict cimport PyDict_GetItem
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from kudu_core._ext.files.cached_pages cimport Reader
from kudu_core._ext.files.page_fetcher cimport PageFetcher

cdef extern from "Python.h":
    PyObject** PySequence_Fast_ITEMS(object listed)


@cython.final
@cython.auto_pickle(False)
cdef class PageLoader:
    """The pages of ``column``, as ``reader`` finds them in the cache.

    ``column`` has ``places()``, where its pages lie; ``fetcher``, a ``PageFetcher`` or None;
    ``fetched(number)``, the general path, whose answer or error stands; and ``ask(number)``, which has a page
    be fetched where there is no fetcher: True, or None: it cannot.  ``holds.watched``: whether the cache
    asks before it drops a page, without which none may be held; so too where ``reader`` is None.
    """

    def __init__(self, column, holds, Reader reader):
        self._column, self._holds, self._reader = column, holds, reader

    def load(self, int64_t number):
        """(The checked payload of a page, its place in the cache); (None, None): no page may be held."""
        place = self.place(number)
        return (None, None) if place is None else (self.payload(number, place), place)

    cdef object place(self, int64_t number):
        """Where a page lies, in the file and in the cache; None: no page may be held.

        Raises IndexError for a page that is not there.
        """
        if self._places is None:
            if self._reader is None or not self._holds.watched:
                return None
            self._places = self._column.places()
        if number < 0 or number >= len(self._places):
            raise IndexError(f"no page {number} of {len(self._places)}")
        return self._places[number]

    cdef PyObject** known_place(self, int64_t number) noexcept:
        """Where the place of a page is kept; NULL: it is not known yet."""
        if self._places is None or number >= PyList_GET_SIZE(self._places) or not self._reader._counted:
            return NULL
        return PySequence_Fast_ITEMS(self._places) + number

    cdef PyObject* entry(self, PyObject** place) noexcept:
        """What the cache has at a known place, a ``CachedPage`` as long as nothing else runs; or NULL."""
        return PyDict_GetItem(self._reader._file.pages, <object>place[0])

    cdef object payload(self, int64_t number, object place):
        """The checked payload of a page; one that is not in the cache is left to ``remember``."""
        found = self._reader.look(place)
        return self.fetched(number) if found is None else found

    cdef object look(self, object place):
        """The payload of a page that the cache has, else None."""
        return self._reader.look(place)

    cdef object fetched(self, int64_t number):
        """The checked payload of a page, from the file."""
        fetcher = self._column.fetcher
        if fetcher is not None:
            found = fetcher.fetch(number)
            if found is not None:
                return found
        return self._column.fetched(number)

    cdef PageFetcher passing(self, int64_t number, object place, bint many):
        """By whom a page is read for single cells, since the cache shall not have it yet; None: it shall.

        ``many``: cells of other rows are asked for in the same call.
        """
        cdef PageFetcher fetcher
        found = self._column.fetcher
        if type(found) is not PageFetcher:
            return None
        fetcher = <PageFetcher>found
        if number >= fetcher._size.shape[0]:
            return None
        if not self._reader.pass_by(place, 2 * fetcher._size[number], many or fetcher._page_bits == 0):
            return None
        return fetcher

    cdef object ask(self, int64_t number, bint if_cold):
        """Have the system begin to read a page that ``payload`` would fetch; None: it would fetch none.

        Else whether the system was asked: ``if_cold`` only where the fetch would wait for the disk.
        """
        place = self.place(number)
        if place is None or self._reader.look(place) is not None:
            return None
        fetcher = self._column.fetcher
        return self._column.ask(number) if fetcher is None else fetcher.ask(number, if_cold)

    cdef bint remember(self, object place, object payload) except -1:
        """Put a page into the cache; whether that has it."""
        return self._reader.keep(place, payload)
