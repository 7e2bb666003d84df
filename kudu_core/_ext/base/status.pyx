"""The one place where a kernel's failure becomes an exception, and its refusal another one."""


class PageError(ValueError):
    """Stored bytes break their format.

    ``reason`` says how, ``offset`` where, counted from the first byte of the buffer that the
    kernel was given.  The floor that owns the file turns it into ``Corruption``.
    """

    def __init__(self, reason, offset):
        super().__init__(reason, offset)
        self.reason = reason
        self.offset = offset

    def __str__(self):
        return f"{self.reason} (offset {self.offset})"


class NeedsGeneralPath(Exception):
    """The general path must answer; nothing is wrong."""


cdef int raise_needs_general_path() except -1:
    raise NeedsGeneralPath


cdef int raise_status(Py_ssize_t status, Py_ssize_t offset) except -1:
    if status == TRUNCATED:
        raise PageError("bytes end inside a value", offset)
    if status == OVERRUN:
        raise PageError("more values than promised", offset)
    if status == BAD_VALUE:
        raise PageError("field outside its domain", offset)
    raise PageError(f"unknown status {status}", offset)
