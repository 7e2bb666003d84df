# The pages of open files that are in memory, for compiled code that reads through them.
from cpython.object cimport PyObject
from cpython.weakref cimport PyWeakref_GetObject
from libc.stdint cimport int64_t

cdef enum:
    OUT = 0                     # of no queue
    NEW = 1
    KEPT = 2
    GONE = 3                    # only the name is left


cdef struct Queue:
    void* first                 # the ``CachedPage`` that goes first
    void* last
    int64_t count


cdef class CachedPage:
    cdef:
        object page             # None of one that went
        object place
        int64_t size            # with the cache's own bytes; of a name, how often it was met
        int state
        bint used               # since it came, or since its turn to go last came
        void* file              # the ``CachedFile`` whose ``pages`` has this
        void* before            # in its queue
        void* behind


cdef inline void linked(Queue* queue, CachedPage entry) noexcept:
    """The last of a queue."""
    entry.before, entry.behind = queue.last, NULL
    if queue.last == NULL:
        queue.first = <void*>entry
    else:
        (<CachedPage>queue.last).behind = <void*>entry
    queue.last = <void*>entry
    queue.count += 1


cdef inline void unlinked(Queue* queue, CachedPage entry) noexcept:
    """Of no queue any more."""
    if entry.before == NULL:
        queue.first = entry.behind
    else:
        (<CachedPage>entry.before).behind = entry.behind
    if entry.behind == NULL:
        queue.last = entry.before
    else:
        (<CachedPage>entry.behind).before = entry.before
    queue.count -= 1
    entry.before = entry.behind = NULL


cdef class CachedFile:
    cdef:
        bytes file_id
        int64_t size            # of the file itself
        object token
        dict pages              # place: CachedPage; None once nobody reads the file
        tuple readers           # weak references, some of readers that have left
        Py_ssize_t count        # of readers that have not


cdef class Reader:
    cdef:
        object __weakref__
        CachedPages _cache
        CachedFile _file
        bint _counted
        readonly object token
        readonly tuple holders
    cdef object look(self, object place)
    cdef bint keep(self, object place, object page) except -1
    cdef bint pass_by(self, object place, int64_t size, bint at_once) except -1


cdef class CachedPages:
    cdef:
        readonly int64_t limit_bytes
        dict _files             # token: CachedFile
        dict _by_id             # file id: CachedFile
        Queue _new
        Queue _kept
        Queue _gone
        int64_t _next_token, _bytes, _kept_bytes, _file_bytes, _hits, _misses, _evicted
    cdef object look(self, CachedFile file, object place)
    cdef bint keep(self, CachedFile file, object place, object page) except -1
    cdef bint pass_by(self, CachedFile file, object place, int64_t size, bint at_once) except -1
    cdef int uncount(self, Reader reader) except -1
    cdef int _drop(self, CachedFile file) except -1
    cdef int _shrink(self) except -1
    cdef bint _was_used(self, CachedPage entry) except -1
    cdef int _evict(self, CachedPage entry) except -1
    cdef int _let_names_go(self, int64_t more) except -1
    cdef void _leave(self, CachedPage entry) noexcept
    cdef void _enter(self, CachedPage entry, int state) noexcept


cdef inline Queue* queue_of(CachedPages cache, int state) noexcept:
    if state == NEW:
        return &cache._new
    return &cache._kept if state == KEPT else &cache._gone


cdef inline bint alive(object weak) except -1:
    """Whether a reader is there, and counted."""
    cdef PyObject* found = PyWeakref_GetObject(weak)
    return found != NULL and <object>found is not None and (<Reader>found)._counted


cdef inline int64_t checked_limit(limit_bytes) except -1:
    if not 0 <= limit_bytes <= <int64_t>1 << 60:
        raise ValueError(f"a limit of {limit_bytes} bytes")
    return limit_bytes
