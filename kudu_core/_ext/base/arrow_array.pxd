# Arrow's C data interface: what is handed over, and who frees it.
#
# A batch is an array of structs whose children are the columns.  It lies in one piece of memory, with its
# children, their lists of buffers, and small buffers: a child that somebody moves away holds on to all of it,
# and lives on without the others.  Other buffers are a piece of memory each.
from libc.stdint cimport int64_t, uint8_t

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
    /* The head of the piece in which a batch lies. */
    typedef struct { int64_t holders; uint8_t *next, *end; } kc_batch_room;
    static void kc_let_go(kc_batch_room *room) {
        if (__atomic_sub_fetch(&room->holders, 1, __ATOMIC_ACQ_REL) == 0) PyMem_RawFree(room);
    }
    /* Whoever takes an array over calls its release, in any thread, with or without the GIL. */
    static void kc_release_column(struct ArrowArray *array) {
        kc_batch_room *room = (kc_batch_room *)array->private_data;
        for (int i = 0; i < 3; i++) {
            uint8_t *buffer = (uint8_t *)array->buffers[i];
            if (buffer < (uint8_t *)room || buffer >= room->end) PyMem_RawFree(buffer);
        }
        array->release = NULL;
        kc_let_go(room);
    }
    static void kc_release_batch(struct ArrowArray *array) {
        for (int64_t i = 0; i < array->n_children; i++)
            if (array->children[i]->release) array->children[i]->release(array->children[i]);
        array->release = NULL;
        kc_let_go((kc_batch_room *)array->private_data);
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
    ctypedef struct kc_batch_room:
        int64_t holders         # the batch, and each of its children
        uint8_t* next           # from there on it is free
        uint8_t* end
    void kc_release_column(ArrowArray*) noexcept nogil
    void kc_release_batch(ArrowArray*) noexcept nogil
