# Arrow's C data interface: what is handed over, and who frees it.
#
# A batch is an array of structs whose children are the columns.  Each has three buffers of its own (validity,
# values or offsets, bytes of strings), and the batch one piece of memory in which the children lie: a child
# that somebody moves away lives on without the others.
from libc.stdint cimport int64_t

cdef extern from *:
    """
    #ifndef ARROW_C_DATA_INTERFACE
    #define ARROW_C_DATA_INTERFACE
    struct ArrowArray {
        int64_t length, null_count, offset, n_buffers, n_children;
        const void **buffers;
        struct ArrowArray **children;
        struct ArrowArray *dictionary;
        void (*release)(struct ArrowArray *);
        void *private_data;
    };
    #endif
    /* Whoever takes an array over calls its release, in any thread, with or without the GIL. */
    static void kc_release_column(struct ArrowArray *array) {
        for (int i = 0; i < 3; i++) PyMem_RawFree((void *)array->buffers[i]);
        PyMem_RawFree((void *)array->buffers);
        array->release = NULL;
    }
    static void kc_release_batch(struct ArrowArray *array) {
        for (int64_t i = 0; i < array->n_children; i++)
            if (array->children[i]->release) array->children[i]->release(array->children[i]);
        PyMem_RawFree(array->private_data);
        array->release = NULL;
    }
    """
    cdef struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t n_buffers
        int64_t n_children
        const void** buffers
        ArrowArray** children
        void (*release)(ArrowArray*) noexcept nogil
        void* private_data
    void kc_release_column(ArrowArray*) noexcept nogil
    void kc_release_batch(ArrowArray*) noexcept nogil
