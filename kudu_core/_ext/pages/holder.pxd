# Who holds pieces of files in memory, and when they are let go of.


cdef class Held:
    cdef int used(self, Py_ssize_t number) except -1
    cdef int let_go(self, Py_ssize_t number) except -1


cdef class PageHolder:
    cdef:
        dict _places            # place in the cache: (Held, number)
        readonly bint closed
        int _busy
        list _leaving           # pages dropped while a look-up runs without the GIL
    cdef int hold(self, object place, Held who, Py_ssize_t number) except -1
    cdef int give_up(self, object place, Held who, Py_ssize_t number) except -1
    cpdef bint forget(self, object place) except -1
    cdef int idle(self) except -1
    cdef int drop(self, Held who, Py_ssize_t number) except -1
