"""Merge of several sorted runs of keys, as a plan: which key of which run comes next."""
import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

cdef extern from *:
    """
    #define KC_MERGE_BSWAP64 __builtin_bswap64
    """
    uint64_t KC_MERGE_BSWAP64(uint64_t) noexcept nogil


cdef struct Run:
    const uint8_t* data
    const int64_t* offsets
    int64_t at
    int64_t count
    uint64_t word       # first eight bytes of the current key, big-endian


cdef inline void _load(Run* run) noexcept nogil:
    cdef:
        int64_t size = run.offsets[run.at + 1] - run.offsets[run.at]
        uint64_t word = 0
    if size >= 8:
        memcpy(&word, run.data + run.offsets[run.at], 8)
    elif size > 0:
        memcpy(&word, run.data + run.offsets[run.at], <size_t>size)
    run.word = KC_MERGE_BSWAP64(word)


cdef inline bint _before(const Run* runs, int32_t a, int32_t b) noexcept nogil:
    """Whether run a's key comes first; equal keys go by the number of the run."""
    cdef:
        const Run* x = &runs[a]
        const Run* y = &runs[b]
        int64_t x_size, y_size, shared
        int step
    if x.word != y.word:
        return x.word < y.word
    x_size = x.offsets[x.at + 1] - x.offsets[x.at]
    y_size = y.offsets[y.at + 1] - y.offsets[y.at]
    shared = x_size if x_size < y_size else y_size
    step = memcmp(x.data + x.offsets[x.at], y.data + y.offsets[y.at], <size_t>shared) if shared else 0
    if step != 0:
        return step < 0
    if x_size != y_size:
        return x_size < y_size
    return a < b


cdef void _sift(Run* runs, int32_t* heap, Py_ssize_t size, Py_ssize_t at) noexcept nogil:
    cdef:
        Py_ssize_t child
        int32_t moving = heap[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _before(runs, heap[child + 1], heap[child]):
            child += 1
        if not _before(runs, heap[child], moving):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = moving


cdef void _merge(
    Run* runs, int32_t* heap, Py_ssize_t size, int32_t[::1] source, int64_t[::1] position
) noexcept nogil:
    cdef:
        Py_ssize_t i, out = 0
        int32_t top
        Run* run
    for i in range(size // 2 - 1, -1, -1):
        _sift(runs, heap, size, i)
    while size > 0:
        top = heap[0]
        run = &runs[top]
        # While one run stays ahead of all others its keys are taken without touching the heap.
        while True:
            source[out] = top
            position[out] = run.at
            out += 1
            run.at += 1
            if run.at == run.count:
                size -= 1
                heap[0] = heap[size]
                break
            _load(run)
            if size > 1 and _before(runs, heap[1], top):
                break
            if size > 2 and _before(runs, heap[2], top):
                break
        if size > 0:
            _sift(runs, heap, size, 0)


def merge(parts not None):
    """Plan the merge of sorted runs.

    Parameters
    ----------
    parts : sequence of (data uint8, offsets (n + 1,) int64), each in ascending order

    Returns
    -------
    (source (total,) int32, position (total,) int64)
        Equal keys come in the order of their runs.

    Raises
    ------
    ValueError
        Offsets do not ascend inside their data.
    """
    cdef:
        Py_ssize_t count = len(parts), i, j, size = 0
        int64_t total = 0
        const uint8_t[::1] data
        const int64_t[::1] offsets
        int32_t[::1] source
        int64_t[::1] position
        Run* runs
        int32_t* heap
    kept = []
    for data, offsets in parts:
        if offsets.shape[0] == 0 or offsets[0] < 0 or offsets[offsets.shape[0] - 1] > data.shape[0]:
            raise ValueError("offsets do not ascend inside the data")
        for j in range(offsets.shape[0] - 1):
            if offsets[j] > offsets[j + 1]:
                raise ValueError("offsets do not ascend inside the data")
        total += offsets.shape[0] - 1
        kept.append((data, offsets))        # keeps the buffers alive while the pointers are used
    out_source = np.empty(total, np.int32)
    out_position = np.empty(total, np.int64)
    if total == 0:
        return out_source, out_position
    source = out_source
    position = out_position
    runs = <Run*>malloc(count * sizeof(Run))
    heap = <int32_t*>malloc(count * sizeof(int32_t))
    try:
        if runs == NULL or heap == NULL:
            raise MemoryError()
        for i in range(count):
            data, offsets = kept[i]
            runs[i].data = &data[0] if data.shape[0] else NULL
            runs[i].offsets = &offsets[0]
            runs[i].at = 0
            runs[i].count = offsets.shape[0] - 1
            if runs[i].count:
                _load(&runs[i])
                heap[size] = <int32_t>i
                size += 1
        with nogil:
            _merge(runs, heap, size, source, position)
    finally:
        free(runs)
        free(heap)
    return out_source, out_position
