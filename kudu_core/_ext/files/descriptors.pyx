"""Descriptors of open files: closed when their last user goes, read and written by compiled code.

A call that waits goes on after a signal whose handler raises nothing, as Python's own calls do.
"""
cimport cython

import os

from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EAGAIN, EINTR, EIO, EOPNOTSUPP, errno

cdef extern from "unistd.h" nogil:
    int close(int fd)
    Py_ssize_t pread(int fd, void* data, size_t size, long long offset)
    Py_ssize_t pwrite(int fd, const void* data, size_t size, long long offset)

cdef extern from "sys/uio.h" nogil:
    ctypedef struct ReadPiece "struct iovec":
        void* iov_base
        size_t iov_len
    Py_ssize_t preadv(int fd, const ReadPiece* into, int pieces, long long offset)

cdef extern from "fcntl.h" nogil:
    int openat(int folder, const char* name, int flags, ...)
    int AT_FDCWD

cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <sys/uio.h>
    #include <unistd.h>
    #if defined(__linux__)
    #include <sys/syscall.h>
    #ifndef RWF_NOWAIT
    #define RWF_NOWAIT 8
    #endif
    /* As preadv2, which is not in every C library that runs on such a kernel: glibc before 2.26, musl before
       1.2.5.  With words of 64 bits the whole offset is in the first of its two. */
    static ssize_t kc_read_at_once(int fd, const struct iovec *into, long long offset) {
        return syscall(SYS_preadv2, (long)fd, into, 1L, (long)offset, 0L, (long)RWF_NOWAIT);
    }
    static void kc_ask(int fd, long long offset, long long size) {
        (void)!posix_fadvise(fd, offset, size, POSIX_FADV_WILLNEED);
    }
    #else
    static ssize_t kc_read_at_once(int fd, const struct iovec *into, long long offset) {
        (void)fd; (void)into; (void)offset;
        errno = EOPNOTSUPP;
        return -1;
    }
    static void kc_ask(int fd, long long offset, long long size) { (void)fd; (void)offset; (void)size; }
    #endif
    """
    Py_ssize_t kc_read_at_once(int fd, const ReadPiece* into, long long offset) nogil
    void kc_ask(int fd, long long offset, long long size) nogil

# What only names a folder, where a system has that.
cdef int FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@cython.final
cdef class Descriptor:
    """The file descriptor that ``opened(...)`` returns, closed when the last user drops this object.

    A call holds the object while it is in the system, so ``close`` in another thread cannot give the number
    to another file under its feet.  What closing says is not told: what had to be durable was synced before.
    """
    def __cinit__(self, opened, *args, **keywords):
        self.fd = -1
        self.fd = opened(*args, **keywords)

    def __dealloc__(self):
        if self.fd >= 0:
            with nogil:
                close(self.fd)

    cdef Py_ssize_t read(
        self, char* head, Py_ssize_t head_bytes, char* rest, Py_ssize_t rest_bytes, long long offset
    ) except -1:
        """Bytes from ``offset`` of the file into two places, one after the other; fewer where it ends.

        As ``os.pread`` it goes on after a signal whose handler raises nothing, and after a short read.
        """
        cdef:
            Py_ssize_t got, have = 0
            int failed, pieces
            ReadPiece into[2]
        while have < head_bytes + rest_bytes:
            pieces = 0
            if have < head_bytes:
                into[0].iov_base, into[0].iov_len = head + have, <size_t>(head_bytes - have)
                pieces = 1
            got = max(have - head_bytes, 0)
            into[pieces].iov_base, into[pieces].iov_len = rest + got, <size_t>(rest_bytes - got)
            with nogil:
                if pieces:
                    got = preadv(self.fd, into, pieces + 1, offset + have)
                else:           # a third of a microsecond less
                    got = pread(self.fd, into[0].iov_base, into[0].iov_len, offset + have)
                failed = errno if got < 0 else 0
            if got == 0:
                break
            if got > 0:
                have += got
            elif failed == EINTR:
                PyErr_CheckSignals()
            else:
                raise OSError(failed, os.strerror(failed))
        return have

    cdef int write(self, const char* data, Py_ssize_t size, long long offset) except -1:
        """All these bytes at ``offset`` of the file; after an error a part of them may be there.

        As ``os.pwrite`` it goes on after a signal whose handler raises nothing, and after a short write.
        """
        cdef:
            Py_ssize_t put
            int failed
        while size > 0:
            with nogil:
                put = pwrite(self.fd, data, <size_t>size, offset)
                failed = errno if put < 0 else 0
            if put > 0:
                data, size, offset = data + put, size - put, offset + put
            elif failed == EINTR:
                PyErr_CheckSignals()
            else:
                # That nothing is written happens to no regular file; it is not to be a loop for ever.
                raise OSError(failed or EIO, os.strerror(failed or EIO))
        return 0

    cdef bint waits(self, long long offset) noexcept:
        """Whether a read there would wait for the disk, or the file system cannot tell."""
        cdef:
            char byte
            int failed
            Py_ssize_t got
            ReadPiece into
        into.iov_base, into.iov_len = &byte, 1
        with nogil:
            got = kc_read_at_once(self.fd, &into, offset)
            failed = errno
        return got < 0 and failed in (EAGAIN, EOPNOTSUPP)

    cdef void ask(self, long long offset, long long size) noexcept:
        """Have the system begin to read these bytes; nobody waits for it, and it need not succeed."""
        with nogil:
            kc_ask(self.fd, offset, size)


@cython.auto_pickle(False)
cdef class PlainFile:
    """A file of the system that is open: compiled code may write to it by its descriptor.

    Whatever stands in front of such a file, to look at its calls or to let them fail, is none.
    """


def folder_beneath(str path not None, list names not None):
    """The folder to which ``names`` lead from ``path``, open (O_PATH): the number of its descriptor.

    Each is opened in the one before it, and none is followed where it is a link, nor is the last name of
    ``path``.  ``OSError`` names the folder that could not be opened.
    """
    cdef:
        int fd = AT_FDCWD
        int below
        int failed
        const char* name
    cdef list encoded = [os.fsencode(path)]
    for given in names:
        encoded.append(os.fsencode(given))
    for index, piece in enumerate(encoded):
        if b"\0" in piece:
            if fd != AT_FDCWD:
                close(fd)
            raise ValueError(f"a name with a zero byte: {piece!r}")
        name = piece
        while True:
            with nogil:
                below = openat(fd, name, FOLDER)
                failed = errno if below < 0 else 0
            if failed != EINTR:
                break
            try:
                PyErr_CheckSignals()
            except BaseException:
                if fd != AT_FDCWD:
                    close(fd)
                raise
        if fd != AT_FDCWD:
            close(fd)
        if failed:
            raise OSError(failed, os.strerror(failed), "/".join([path, *names[:index]]))
        fd = below
    return fd
