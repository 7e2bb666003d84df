"""``BTreeU64``: plain integers of 64 bits in ascending order.

The tree of ``key_tree.pxd`` over integers.  They are their own prefixes, so it needs neither arena
nor common bytes; a fence is a key, and 0 as an upper fence stands for none.  It takes ascending runs,
never deletes, and is filled by whoever needs the order, under the lock it carries.
"""
from threading import RLock

import numpy as np

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from kudu_core._ext.index.nodes cimport HALF, MAX_HEIGHT, NO_NODE, SLOTS, Nodes, fetch_node


cdef struct Leaf:
    uint32_t count
    uint32_t next
    uint64_t upper
    uint64_t unused[6]
    uint64_t key[SLOTS]


cdef struct U64Inner:
    uint32_t count
    uint32_t unused
    uint64_t upper
    uint64_t key[SLOTS]         # key[0] is the lower fence
    uint32_t child[SLOTS]
    uint64_t padding[6]


cdef struct U64Tree:
    Leaf* leaves
    U64Inner* inners
    uint32_t leaf_count
    uint32_t leaf_room
    uint32_t inner_count
    uint32_t inner_room
    uint32_t root
    int height
    uint32_t path[MAX_HEIGHT]
    uint32_t slot[MAX_HEIGHT]


cdef inline uint32_t _search(
    const uint64_t* keys, uint32_t at, uint32_t end, uint64_t key
) noexcept nogil:
    """Return the first slot of [at, end) whose key is ``key`` or more."""
    cdef:
        uint32_t size = end - at
        uint32_t half
    if size == 0:
        return at
    while size > 1:
        half = size >> 1
        at += half if keys[at + half - 1] < key else 0
        size -= half
    return at + (keys[at] < key)


cdef uint32_t _descend(U64Tree* t, int level, uint64_t key) noexcept nogil:
    cdef:
        uint32_t at
        U64Inner* inner
    while level > 0:
        inner = &t.inners[t.path[level]]
        at = _search(inner.key, 1, inner.count, key)
        if at == inner.count or inner.key[at] != key:
            at -= 1
        t.slot[level] = at
        level -= 1
        t.path[level] = inner.child[at]
        if level == 0:
            fetch_node(&t.leaves[inner.child[at]])
        else:
            fetch_node(&t.inners[inner.child[at]])
    return t.path[0]


cdef inline uint32_t _seek(U64Tree* t, uint64_t key) noexcept nogil:
    t.path[t.height] = t.root
    return _descend(t, t.height, key)


cdef uint32_t _seek_on(U64Tree* t, uint64_t key) noexcept nogil:
    cdef int level = 1
    if t.height == 0:
        return t.root
    while level < t.height and t.inners[t.path[level]].upper != 0 and key >= t.inners[t.path[level]].upper:
        level += 1
    return _descend(t, level, key)


cdef inline bint _has_room(const U64Tree* t) noexcept nogil:
    return t.leaf_count < t.leaf_room and t.inner_count + <uint32_t>t.height + 1 <= t.inner_room


cdef void _put_child(U64Inner* inner, uint32_t at, uint64_t key, uint32_t child) noexcept nogil:
    memmove(&inner.key[at + 1], &inner.key[at], (inner.count - at) * sizeof(uint64_t))
    memmove(&inner.child[at + 1], &inner.child[at], (inner.count - at) * sizeof(uint32_t))
    inner.key[at] = key
    inner.child[at] = child
    inner.count += 1


cdef void _link(U64Tree* t, uint64_t lower, uint32_t child) noexcept nogil:
    cdef:
        int level = 1
        uint32_t at, new
        U64Inner* inner
        U64Inner* right
    while True:
        if level <= t.height and t.inners[t.path[level]].count < SLOTS:
            _put_child(&t.inners[t.path[level]], t.slot[level] + 1, lower, child)
            return
        new = t.inner_count
        t.inner_count += 1
        right = &t.inners[new]
        if level > t.height:
            right.count = 2
            right.upper = 0
            right.key[0] = 0
            right.key[1] = lower
            right.child[0] = t.root
            right.child[1] = child
            t.root = new
            t.height += 1
            return
        inner = &t.inners[t.path[level]]
        at = t.slot[level] + 1
        right.count = 0
        right.upper = inner.upper
        if at < SLOTS:
            right.count = inner.count = HALF
            memcpy(right.key, &inner.key[HALF], HALF * sizeof(uint64_t))
            memcpy(right.child, &inner.child[HALF], HALF * sizeof(uint32_t))
        if at < SLOTS and at <= HALF:
            _put_child(inner, at, lower, child)
        else:
            _put_child(right, at - (HALF if at < SLOTS else SLOTS), lower, child)
        inner.upper = lower = right.key[0]
        child = new
        level += 1


cdef Py_ssize_t _insert(U64Tree* t, const uint64_t* keys, Py_ssize_t i, Py_ssize_t n) noexcept nogil:
    cdef:
        Leaf* leaf = NULL
        Leaf* right
        uint32_t at = 0
        uint32_t keep
        Py_ssize_t run
    while i < n:
        if leaf == NULL:
            leaf = &t.leaves[_seek(t, keys[i])]
            at = 0
        elif leaf.upper != 0 and keys[i] >= leaf.upper:
            leaf = &t.leaves[_seek_on(t, keys[i])]
            at = 0
        at = _search(leaf.key, at, leaf.count, keys[i])
        if leaf.count == SLOTS:
            if not _has_room(t):
                return i
            right = &t.leaves[t.leaf_count]
            keep = SLOTS if at == SLOTS else HALF
            right.count = SLOTS - keep
            right.upper = leaf.upper
            right.next = leaf.next
            if keep == HALF:
                memcpy(right.key, &leaf.key[HALF], HALF * sizeof(uint64_t))
            leaf.count = keep
            leaf.next = t.leaf_count
            leaf.upper = keys[i] if keep == SLOTS else right.key[0]
            t.leaf_count += 1
            _link(t, leaf.upper, leaf.next)
            leaf = NULL
            continue
        run = 1
        if at == leaf.count:
            # Behind the last key: as many as belong here and fit, without searching again.
            while i + run < n and at + run < SLOTS and (leaf.upper == 0 or keys[i + run] < leaf.upper):
                run += 1
        else:
            memmove(&leaf.key[at + 1], &leaf.key[at], (leaf.count - at) * sizeof(uint64_t))
        memcpy(&leaf.key[at], &keys[i], run * sizeof(uint64_t))
        leaf.count += <uint32_t>run
        at += <uint32_t>run
        i += run
    return i


cdef Py_ssize_t _collect(U64Tree* t, uint64_t lower, uint64_t last, uint64_t* out) noexcept nogil:
    """Write (``out`` not NULL) and count the keys of [lower, last]."""
    cdef:
        uint32_t leaf = _seek(t, lower)
        uint32_t at = _search(t.leaves[leaf].key, 0, t.leaves[leaf].count, lower)
        uint32_t end
        Py_ssize_t found = 0
        const Leaf* node
    while True:
        node = &t.leaves[leaf]
        end = node.count
        if end > at and node.key[end - 1] > last:
            end = at
            while node.key[end] <= last:
                end += 1
        if out != NULL and end > at:
            memcpy(out + found, &node.key[at], (end - at) * sizeof(uint64_t))
        found += end - at
        if end < node.count or node.next == NO_NODE:
            return found
        leaf = node.next
        at = 0


cdef class BTreeU64:
    """Integers in ascending order; a DeltaMemStore's are ``rowid << 32 | number of the change``."""

    cdef U64Tree _tree
    cdef Nodes _nodes
    cdef readonly Py_ssize_t count
    """How many keys it holds."""
    cdef readonly object lock
    """As ``BTree.lock``."""

    def __init__(self):
        self.lock = RLock()
        self.count = 0
        self._nodes = Nodes(sizeof(Leaf), sizeof(U64Inner))
        self._point()
        self._tree.leaf_count = 1
        self._tree.inner_count = 0
        self._tree.root = 0
        self._tree.height = 0
        self._tree.leaves[0].count = 0
        self._tree.leaves[0].next = NO_NODE
        self._tree.leaves[0].upper = 0

    cdef void _point(self) noexcept:
        self._tree.leaves, self._tree.inners = <Leaf*>self._nodes.leaves, <U64Inner*>self._nodes.inners
        self._tree.leaf_room, self._tree.inner_room = self._nodes.leaf_room, self._nodes.inner_room

    cdef int _make_room(self) except -1:
        self._nodes.make_room(self._tree.leaf_count, self._tree.inner_count, self._tree.height)
        self._point()
        return 0

    def __len__(self):
        return self.count

    @property
    def nbytes(self):
        """Memory of the nodes, room for growth included."""
        return self._nodes.nbytes()

    def insert_sorted(self, const uint64_t[::1] keys not None):
        """Insert (n,) uint64, strictly ascending and none of them in the tree yet.

        Raises
        ------
        ValueError
            The keys do not ascend; nothing has changed.
        MemoryError
            The first keys are in (see ``count``), the others are not.
        """
        cdef:
            Py_ssize_t n = keys.shape[0]
            Py_ssize_t done = 0
            Py_ssize_t i, reached
        if n == 0:
            return
        for i in range(1, n):
            if keys[i] <= keys[i - 1]:
                raise ValueError(f"key {i} is not above the one before it")
        with self.lock:
            while True:
                with nogil:
                    reached = _insert(&self._tree, &keys[0], done, n)
                self.count += reached - done
                done = reached
                if done == n:
                    break
                self._make_room()

    def range(self, lower, upper):
        """Return the keys with lower <= key < upper in ascending order: (m,) uint64.

        ``upper`` may be 2**64.  ValueError when a bound is negative or above that.
        """
        cdef:
            uint64_t first, last
            Py_ssize_t found
            uint64_t[::1] view
        if not (0 <= lower <= 1 << 64 and 0 <= upper <= 1 << 64):
            raise ValueError(f"[{lower}, {upper}) is not within [0, 2**64)")
        if lower >= upper:
            return np.empty(0, np.uint64)
        first = lower
        last = upper - 1
        with self.lock:
            with nogil:
                found = _collect(&self._tree, first, last, NULL)
            out = np.empty(found, np.uint64)
            if found > 0:
                view = out
                with nogil:
                    _collect(&self._tree, first, last, &view[0])
            return out
