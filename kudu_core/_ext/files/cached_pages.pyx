"""The pages that a cache has, in which order they go, and who reads the files that they are of.

What the cache promises is said in ``cfile/pages/page_cache.py``, whose class this is.  It takes no lock: all
of it runs with the GIL, and a step is made at once between two places at which code of others may run.  These
are: where memory is taken for an object that the collector counts, where the size of a page or a holder is
asked, and where the last reference to a page or a holder goes.  At each of them every sum and every queue is
right, whoever calls the cache there, and what was known before is looked at anew behind it.  So an interrupt,
an error of a holder, a finalizer or a child of a fork finds no step that is half made.

A page is in the dict of its file and in one of three queues, linked by pointers that own nothing: *new*,
*kept* and *gone*, of which only names are left.
"""
cimport cython
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_DelItem, PyDict_GetItem, PyDict_SetItem, PyDict_Values
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.weakref cimport PyWeakref_GetObject, PyWeakref_NewRef
from libc.stdint cimport int64_t

from kudu_core._ext.pages.holder cimport PageHolder

cdef enum:
    ENTRY_BYTES = 256           # roughly what a page costs beyond its bytes
    NEW_PART = 5                # new pages have a fifth of the limit for themselves
    MEETINGS = 4                # of a page whose cells are read one by one, until it comes in
    WITH_ROOM = 2               # the same while the cache is not full
    LARGE_PART = 4              # a page larger than a quarter of it is not kept

STATES = ("out", "new", "kept", "gone")


@cython.final
@cython.no_gc                    # no cycle leads through one: pages are buffers
@cython.freelist(1024)
@cython.auto_pickle(False)
cdef class CachedPage:
    """A page that the cache has, or the name of one that went."""


@cython.final
@cython.no_gc                    # likewise
@cython.auto_pickle(False)
cdef class CachedFile:
    """A file that somebody reads."""


@cython.final
@cython.no_gc_clear              # it leaves when it goes, and needs its file for that
@cython.auto_pickle(False)
cdef class Reader:
    """A reader of a file, counted as long as this object lives, or until ``CachedPages.detach``.

    ``token``: by which the pages of its file are found; ``holders``: those who watch the cache on this
    reader's account.
    """

    cdef object look(self, object place):
        """As ``CachedPages.get``."""
        return self._cache.look(self._file, place) if self._counted else None

    cdef bint keep(self, object place, object page) except -1:
        """As ``CachedPages.put``."""
        return self._counted and self._cache.keep(self._file, place, page)

    cdef bint pass_by(self, object place, int64_t size, bint at_once) except -1:
        """As ``CachedPages.pass_by``."""
        return self._counted and self._cache.pass_by(self._file, place, size, at_once)

    def __dealloc__(self):
        if self._counted:
            self._cache.uncount(self)


cdef inline int _check_place(object place) except -1:
    # Of exact integers only: comparing them runs nobody's code.
    if not PyLong_CheckExact(place):
        raise TypeError(f"a place in a file is an int, not {type(place).__name__}")
    return 0


@cython.no_gc                    # of a page nothing leads here, and of a reader only a weak reference
@cython.auto_pickle(False)
cdef class CachedPages:
    """Pages of files, bounded by their bytes.  Thread safe, see above."""

    def __cinit__(self, *_):
        self._files, self._by_id = {}, {}

    def __init__(self, limit_bytes):
        self.limit_bytes = checked_limit(limit_bytes)

    # ------------------------------------------------------------------ readers

    def attach(self, bytes file_id not None, int64_t size=0):
        """Register a reader of the file, which has so many bytes."""
        cdef:
            Reader reader = Reader.__new__(Reader)
            CachedFile file, fresh = CachedFile.__new__(CachedFile)
            tuple before, after
        fresh.file_id, fresh.size, fresh.token = file_id, size, self._next_token
        fresh.pages, fresh.readers = {}, ()
        self._next_token += 1
        reader._cache, reader.holders = self, ()
        weak = PyWeakref_NewRef(reader, None)
        while True:
            found = self._by_id.get(file_id)
            file = fresh if found is None else <CachedFile>found
            before = file.readers
            after = tuple([other for other in before if alive(other)]) + (weak,)
            # Others may have come and gone while memory was taken.
            if self._by_id.get(file_id) is found and file.readers is before:
                break
        if file is fresh:
            PyDict_SetItem(self._by_id, file_id, file)
            try:
                PyDict_SetItem(self._files, file.token, file)
            except MemoryError:
                PyDict_DelItem(self._by_id, file_id)
                raise
            self._file_bytes += size
        file.readers = after
        file.count += 1
        reader._file, reader.token, reader._counted = file, file.token, True
        return reader

    def detach(self, Reader reader not None):
        """Count the reader no longer; with the last one the file's pages go.  Idempotent.

        Finalizers call this, so the collector may in the middle of a step of this class.
        """
        if reader._cache is not self:
            raise ValueError("a reader of another cache")
        if reader._counted:
            self.uncount(reader)
        reader.holders = ()

    cdef int uncount(self, Reader reader) except -1:
        cdef CachedFile file = reader._file
        reader._counted = False
        file.count -= 1
        if file.count == 0:
            self._drop(file)
        return 0

    cdef int _drop(self, CachedFile file) except -1:
        """Forget a file that nobody reads, with its pages."""
        cdef:
            dict pages = file.pages
            CachedPage entry
        file.pages = None
        self._file_bytes -= file.size
        for entry in pages.values():
            self._leave(entry)
        PyDict_DelItem(self._files, file.token)
        PyDict_DelItem(self._by_id, file.file_id)
        return 0                # the pages themselves go with ``pages``, here

    def watch(self, Reader reader not None, holder):
        """Ask ``holder`` too before a page of the file is dropped; False where the reader has left."""
        cdef tuple before, after
        if reader._cache is not self:
            raise ValueError("a reader of another cache")
        while reader._counted:
            before = reader.holders
            after = tuple([other for other in before if not other.closed]) + (holder,)
            if reader._counted and reader.holders is before:
                reader.holders = after
                return True
        return False

    # ------------------------------------------------------------------ pages

    def get(self, token, place):
        """The page at ``place``, None where it is missing."""
        _check_place(token)
        _check_place(place)
        return self.look(<CachedFile>self._files.get(token), place)

    def get_many(self, token, places):
        """The pages at ``places``, None where missing."""
        found = []
        _check_place(token)
        for place in places:
            _check_place(place)
            # The file is asked for again: it may have gone while ``found`` grew.
            found.append(self.look(<CachedFile>self._files.get(token), place))
        return found

    def put(self, token, place, page):
        """Add a page; it may push out others, or be too large to be kept.  Returns whether the cache has it:
        False also where it has another copy of that page."""
        _check_place(token)
        _check_place(place)
        return self.keep(<CachedFile>self._files.get(token), place, page)

    def replace(self, token, place, page):
        """``put``, in the place of what is there: of what is made of pages, and made anew."""
        cdef CachedFile file
        old = self.get(token, place)        # goes when this returns
        if old is not None:
            file = <CachedFile>self._files[token]
            self._leave(<CachedPage>file.pages[place])
            PyDict_DelItem(file.pages, place)
        return self.put(token, place, page)

    cdef object look(self, CachedFile file, object place):
        cdef PyObject* found = NULL
        if file is not None and file.pages is not None:
            found = PyDict_GetItem(file.pages, place)
        if found == NULL or (<CachedPage>found).state == GONE:
            self._misses += 1
            return None
        self._hits += 1
        (<CachedPage>found).used = True
        return (<CachedPage>found).page

    cdef bint keep(self, CachedFile file, object place, object page) except -1:
        cdef:
            Py_ssize_t size = PyBytes_GET_SIZE(page) if PyBytes_CheckExact(page) else len(page)
            CachedPage entry
            PyObject* found
        if file is None or file.pages is None:
            return False        # closed meanwhile
        found = PyDict_GetItem(file.pages, place)
        if found != NULL:
            entry = <CachedPage>found
            if entry.state != GONE:
                return entry.page is page   # read twice at once
        if size > self.limit_bytes // LARGE_PART - ENTRY_BYTES:
            return False
        if found == NULL:
            entry = CachedPage.__new__(CachedPage)
            entry.place, entry.file = place, <void*>file
            PyDict_SetItem(file.pages, place, entry)
        entry.page, entry.size, entry.used = page, size + ENTRY_BYTES, False
        if found == NULL:
            self._enter(entry, NEW)
        else:                   # it comes back soon after it went
            self._leave(entry)
            entry.file = <void*>file
            self._enter(entry, KEPT)
        if self._bytes > self.limit_bytes:
            self._shrink()
        return entry.page is page and entry.state != OUT

    cdef bint pass_by(self, CachedFile file, object place, int64_t size, bint at_once) except -1:
        """Whether a page that is not there, of about ``size`` bytes, is better not put: it was not met often
        enough while its name was there, which it is from now on.

        While there is room it comes ``at_once``, or where all files fit, taken for twice their bytes as those
        of text have in memory; else when it is met again."""
        cdef:
            CachedPage entry
            PyObject* found
            int64_t room = self.limit_bytes - self._bytes, meetings = MEETINGS
        if file is None or file.pages is None:
            return False
        if size + ENTRY_BYTES <= room:
            if at_once or 2 * self._file_bytes <= self.limit_bytes:
                return False
            meetings = WITH_ROOM
        found = PyDict_GetItem(file.pages, place)
        if found == NULL:
            entry = CachedPage.__new__(CachedPage)
            entry.place, entry.size = place, 0
            PyDict_SetItem(file.pages, place, entry)
        else:
            entry = <CachedPage>found
            if entry.state != GONE or entry.size + 1 >= meetings:
                return False
            self._leave(entry)
        entry.file, entry.size = <void*>file, entry.size + 1
        self._enter(entry, GONE)
        self._let_names_go(max(room, 0) // (size + ENTRY_BYTES))
        return True

    def set_limit(self, limit_bytes):
        """Another limit from now on."""
        self.limit_bytes = checked_limit(limit_bytes)
        self._shrink()

    # ------------------------------------------------------------------ what goes

    cdef int _shrink(self) except -1:
        cdef:
            CachedPage entry
            Queue* queue
            int state
        while self._bytes > self.limit_bytes:
            state = KEPT
            if self._new.count and (
                (self._bytes - self._kept_bytes) * NEW_PART > self.limit_bytes or not self._kept.count
            ):
                state = NEW
            queue = queue_of(self, state)
            entry = <CachedPage>queue.first
            if not self._was_used(entry):
                if entry.state == state:
                    self._evict(entry)
            elif entry.state == state:
                self._leave(entry)
                self._enter(entry, KEPT)
        return 0

    cdef bint _was_used(self, CachedPage entry) except -1:
        """Also by who holds it without the cache's knowledge; who has not used it lets go of it."""
        cdef:
            CachedFile file = <CachedFile>entry.file
            PyObject* found
            Reader reader
            bint used = entry.used
        entry.used = False
        # Each is asked, and lets go only if nobody else needs the page: in the next turn, then.
        for weak in file.readers:
            found = PyWeakref_GetObject(weak)
            if found == NULL or <object>found is None:
                continue
            reader = <Reader>found
            for holder in reader.holders:
                if isinstance(holder, PageHolder):
                    used |= not (<PageHolder>holder).forget(entry.place)
                else:
                    used |= not holder.forget(entry.place)
        return used or entry.used

    cdef int _evict(self, CachedPage entry) except -1:
        """Keep no more than the name of a page, and of that only if it was new."""
        cdef:
            CachedFile file = <CachedFile>entry.file
            int state = entry.state
            object _page = entry.page   # it goes when this returns
        self._leave(entry)
        entry.page = None
        self._evicted += 1
        if state == NEW:
            entry.file, entry.size = <void*>file, 1
            self._enter(entry, GONE)
        else:
            PyDict_DelItem(file.pages, entry.place)
        return self._let_names_go(0)

    cdef int _let_names_go(self, int64_t more) except -1:
        """Names of no more pages than there are, and of ``more`` that would find room."""
        cdef:
            CachedPage entry
            CachedFile file
        while self._gone.count > self._new.count + self._kept.count + more:
            entry = <CachedPage>self._gone.first
            file = <CachedFile>entry.file
            self._leave(entry)
            PyDict_DelItem(file.pages, entry.place)
        return 0

    cdef void _leave(self, CachedPage entry) noexcept:
        """Out of its queue, and of the sums."""
        unlinked(queue_of(self, entry.state), entry)
        if entry.state != GONE:
            self._bytes -= entry.size
        if entry.state == KEPT:
            self._kept_bytes -= entry.size
        entry.state = OUT

    cdef void _enter(self, CachedPage entry, int state) noexcept:
        """The last of a queue, and in the sums."""
        entry.state = state
        linked(queue_of(self, state), entry)
        if state != GONE:
            self._bytes += entry.size
        if state == KEPT:
            self._kept_bytes += entry.size

    # ------------------------------------------------------------------ what is there

    def counts(self):
        """(hits, misses, evicted, pages, bytes, bytes of kept pages, limit)."""
        asked = self._hits, self._misses, self._evicted
        return *asked, self._new.count + self._kept.count, self._bytes, self._kept_bytes, self.limit_bytes

    def contents(self):
        """[(token, place, page, "new", "kept" or "gone", whether it was used)], in no order."""
        cdef:
            CachedFile file
            CachedPage entry
            list found = []
        for file in PyDict_Values(self._files):
            if file.pages is not None:
                for entry in PyDict_Values(file.pages):
                    if entry.state != OUT:
                        found.append((file.token, entry.place, entry.page, STATES[entry.state], entry.used))
        return found

    def readers(self):
        """The readers that are counted, by file id."""
        cdef:
            CachedFile file
            dict found = {}
        for file in PyDict_Values(self._files):
            found[file.file_id] = [<object>PyWeakref_GetObject(weak) for weak in file.readers if alive(weak)]
        return found
