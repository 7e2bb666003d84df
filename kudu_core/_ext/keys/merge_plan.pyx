"""Merge of several sorted inputs of encoded keys, as a plan: which key of which input comes next.

A tree of losers holds the inputs: each inner node the input that lost there, so that the next key costs
one compare a level.  Each input keeps the first 8 bytes of its current key that follow what all keys
share, as an integer that decides nearly every compare.  An input that keeps winning is searched for the
first key that does not: inputs that hardly overlap are copied in stretches.

Source: Knuth, The Art of Computer Programming 3, 5.4.1 (tree of losers); Python's listsort
(galloping).
"""
import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kudu_core._ext.base.keybytes cimport kc_compare, kc_word, key_bytes, key_count

cdef enum:
    STREAK = 6      # wins in a row after which an input is searched


cdef struct Input:
    const uint8_t* data
    const uint8_t* end
    const int64_t* offsets
    int64_t at              # the current key; count when the input is used up
    int64_t count
    uint64_t word           # of the current key


cdef struct Merge:
    Input* inputs
    int32_t* tree           # [0] the winner, [1:] losers; input i enters at node (i + count) // 2
    int32_t count
    int64_t shared          # bytes that all keys begin with


cdef inline void _load(const Merge* m, Input* one) noexcept nogil:
    if one.at < one.count:
        one.word = kc_word(
            one.data + one.offsets[one.at] + m.shared,
            one.offsets[one.at + 1] - one.offsets[one.at] - m.shared,
            one.end,
        )


cdef inline int _compare(const Merge* m, const Input* x, int64_t i, const Input* y, int64_t j) noexcept nogil:
    return kc_compare(
        x.data + x.offsets[i] + m.shared, x.offsets[i + 1] - x.offsets[i] - m.shared,
        y.data + y.offsets[j] + m.shared, y.offsets[j + 1] - y.offsets[j] - m.shared,
    )


cdef inline bint _before(const Merge* m, int32_t a, int32_t b) noexcept nogil:
    """Whether the key of input a comes before that of b; equal keys by input, one that is used up last."""
    cdef:
        const Input* x = &m.inputs[a]
        const Input* y = &m.inputs[b]
        int sign
    if x.at == x.count or y.at == y.count:
        return x.at < x.count if y.at == y.count else False
    if x.word != y.word:
        return x.word < y.word
    sign = _compare(m, x, x.at, y, y.at)
    return sign < 0 or (sign == 0 and a < b)


cdef void _find_shared(Merge* m) noexcept nogil:
    """What the smallest and the greatest key share, all do.  Inputs that are not in order do no harm."""
    cdef:
        int32_t r
        int32_t first = -1
        int32_t last = -1
        Input* x
        Input* y
        int64_t i = 0
        int64_t x_size, y_size
    m.shared = 0
    for r in range(m.count):
        if m.inputs[r].count == 0:
            continue
        if first < 0 or _compare(m, &m.inputs[r], 0, &m.inputs[first], 0) < 0:
            first = r
        if last < 0 or _compare(
            m, &m.inputs[r], m.inputs[r].count - 1, &m.inputs[last], m.inputs[last].count - 1
        ) > 0:
            last = r
    x = &m.inputs[first]
    y = &m.inputs[last]
    x_size = x.offsets[1] - x.offsets[0]
    y_size = y.offsets[y.count] - y.offsets[y.count - 1]
    while i < x_size and i < y_size and x.data[x.offsets[0] + i] == y.data[y.offsets[y.count - 1] + i]:
        i += 1
    m.shared = i


cdef int32_t _play(const Merge* m, int32_t node) noexcept nogil:
    """The winner below a node; the losers stay in the nodes."""
    cdef int32_t left, right
    if node >= m.count:
        return node - m.count
    left = _play(m, 2 * node)
    right = _play(m, 2 * node + 1)
    if _before(m, right, left):
        m.tree[node] = left
        return right
    m.tree[node] = right
    return left


cdef int64_t _end_of_stretch(const Merge* m, int32_t winner, int32_t second) noexcept nogil:
    """The first key of the winner, behind its current one, that does not come before the second's."""
    cdef:
        const Input* x = &m.inputs[winner]
        const Input* y = &m.inputs[second]
        int most = 0 if winner < second else -1     # signs that are "before"
        int64_t low = x.at + 1
        int64_t high = x.count
        int64_t step = 1
        int64_t middle
    if y.at == y.count:
        return x.count
    while low + step - 1 < x.count:
        if _compare(m, x, low + step - 1, y, y.at) > most:
            high = low + step - 1
            break
        low += step
        step *= 2
    while low < high:
        middle = (low + high) >> 1
        if _compare(m, x, middle, y, y.at) > most:
            high = middle
        else:
            low = middle + 1
    return low


cdef void _merge(Merge* m, int64_t total, int32_t* source, int64_t* position) noexcept nogil:
    cdef:
        int64_t out = 0
        int64_t stop
        int streak = 0
        int32_t winner, contender, node, second
        Input* one
    _find_shared(m)
    for node in range(m.count):
        _load(m, &m.inputs[node])
    m.tree[0] = _play(m, 1)
    while out < total:
        winner = m.tree[0]
        one = &m.inputs[winner]
        stop = one.at + 1
        if streak >= STREAK:
            streak = 0
            second = -1
            node = (winner + m.count) >> 1
            while node > 0:
                if second < 0 or _before(m, m.tree[node], second):
                    second = m.tree[node]
                node >>= 1
            stop = one.count if second < 0 else _end_of_stretch(m, winner, second)
        while one.at < stop:
            source[out] = winner
            position[out] = one.at
            out += 1
            one.at += 1
        _load(m, one)
        contender = winner
        node = (winner + m.count) >> 1
        while node > 0:
            if _before(m, m.tree[node], contender):
                m.tree[node], contender = contender, m.tree[node]
            node >>= 1
        streak = streak + 1 if contender == winner else 0
        m.tree[0] = contender


def merge(parts not None):
    """Plan the merge of sorted inputs, each ``(data, offsets)``: ``(source, position)`` of each key.

    ``source`` is int32, ``position`` int64; equal keys come in the order of their inputs.  ValueError
    for offsets that descend or lie outside their data.  Inputs that are not in order give each key
    once, in no order.
    """
    cdef:
        const uint8_t[::1] data
        const int64_t[::1] offsets
        uint8_t[::1] scratch
        int32_t[::1] tree
        int32_t[::1] source
        int64_t[::1] position
        int64_t total = 0
        Merge m
    parts = [(memoryview(input_data), memoryview(input_offsets)) for input_data, input_offsets in parts]
    m.count = len(parts)
    m.shared = 0
    scratch = np.zeros(max(m.count, 1) * sizeof(Input), np.uint8)
    tree = np.zeros(max(m.count, 1), np.int32)
    m.inputs = <Input*>&scratch[0]
    m.tree = &tree[0]
    for i, (data, offsets) in enumerate(parts):
        m.inputs[<Py_ssize_t>i].count = key_count(data, offsets)
        m.inputs[<Py_ssize_t>i].data = key_bytes(data)
        m.inputs[<Py_ssize_t>i].end = m.inputs[<Py_ssize_t>i].data + data.shape[0]
        m.inputs[<Py_ssize_t>i].offsets = &offsets[0]
        total += offsets.shape[0] - 1
    sources = np.empty(total, np.int32)
    positions = np.empty(total, np.int64)
    if total:
        source = sources
        position = positions
        with nogil:
            _merge(&m, total, &source[0], &position[0])
    return sources, positions
