cdef object room_of(allocate, Py_ssize_t size)
