"""Pages that readers of a file hold by raw pointers, and when they are let go of.

A page is kept while the page cache keeps it: when the cache is about to drop one, it calls
``PageHolder.forget``, which says whether the page was used since the last time (then it stays) or lets go
of it.  All that changes what is held happens with the GIL.  A look-up of single rows that runs without it is
counted in ``_busy``, and pages dropped meanwhile are let go of when the last such look-up ends.  Scans need
no such count: they take references of their own to the pages that they read.
"""
cimport cython


@cython.auto_pickle(False)
cdef class Held:
    """Something that has pieces in memory as long as the cache keeps them."""

    cdef int used(self, Py_ssize_t number) except -1:
        """Whether the piece was used since it was last asked."""
        raise NotImplementedError

    cdef int let_go(self, Py_ssize_t number) except -1:
        """Forget the piece: its memory may go."""
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
        """``who`` has a piece from now on, which the cache calls ``place``."""
        self._places[place] = (who, number)
        return 0

    cdef int give_up(self, object place, Held who, Py_ssize_t number) except -1:
        """Hold the piece no longer, of which the cache does not know: it may be in use until the last look-up
        without the GIL has ended."""
        if self._places.pop(place, None) is not None:
            self.drop(who, number)
        return 0

    cdef int idle(self) except -1:
        """A look-up without the GIL has ended."""
        self._busy -= 1
        if self._busy == 0 and self._leaving:
            leaving, self._leaving = self._leaving, []
            for who, number in leaving:
                self.drop(who, number)
        return 0

    cpdef bint forget(self, object place) except -1:
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
        """Let go of a piece, now or when the last look-up without the GIL, which may read it, has ended."""
        if self._busy:
            self._leaving.append((who, number))
            return 0
        who.let_go(number)
        return 0

    def close(self):
        """Let go of every page; none is held from now on, and look-ups raise ``NeedsGeneralPath``."""
        self.closed = True
        places, self._places = self._places, {}
        for who, number in places.values():
            self.drop(who, number)
