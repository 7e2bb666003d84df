# Arrow's C data interface, of what somebody else hands over.
from libc.stdint cimport int64_t

cdef extern from *:
    """
    #ifndef KUDU_CORE_GIVEN_ARRAYS
    #define KUDU_CORE_GIVEN_ARRAYS
    #include <stdint.h>
    struct ArrowSchema {
        const char *format, *name, *metadata;
        int64_t flags, n_children;
        struct ArrowSchema **children, *dictionary;
        void (*release)(struct ArrowSchema *);
        void *private_data;
    };
    struct ArrowArray {
        int64_t length, null_count, offset, n_buffers, n_children;
        const void **buffers;
        struct ArrowArray **children, *dictionary;
        void (*release)(struct ArrowArray *);
        void *private_data;
    };
    #endif
    """
    struct ArrowSchema:
        const char* format
        const char* name
        const char* metadata
        int64_t n_children
        ArrowSchema** children
        ArrowSchema* dictionary

    struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void** buffers
        ArrowArray** children
        ArrowArray* dictionary
