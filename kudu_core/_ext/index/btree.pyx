"""``BTree``: the order of encoded keys that lie elsewhere unordered.

It holds ordinals of keys in a key arena (see ``hash_index``), takes ascending runs of them, never
deletes, and is filled by whoever needs the order, under the lock it carries.  Its nodes and the
search in them: ``key_tree.pxd``; how keys enter: ``key_tree_insert.pxd``.

Source: Graefe, "Modern B-Tree Techniques" (fence keys, prefix truncation); Kudu
tablet/concurrent_btree.h (no deletes, lives as long as the store).
"""
from threading import RLock

import numpy as np

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from kudu_core._ext.base.loads cimport kc_fetch
from kudu_core._ext.index.key_tree cimport (
    Arena,
    Inner,
    Key,
    Node,
    Tree,
    key_of,
    search_node,
    seek,
    set_common,
    shared_bytes,
)
from kudu_core._ext.index.key_tree_insert cimport insert_run
from kudu_core._ext.index.nodes cimport NO_NODE, Nodes


cdef void _lower_common(Tree* t, const Arena* a, uint32_t common) noexcept nogil:
    """All keys share less than they did: so do the nodes that lack a fence, those of the two spines."""
    cdef:
        uint32_t left = t.root
        uint32_t right = t.root
        int level = t.height
        Inner* inner
    t.common = common
    while level > 0:
        inner = &t.inners[left]
        left = inner.child[0]
        if inner.node.common > common:
            set_common(a, &inner.node, common)
        inner = &t.inners[right]
        right = inner.child[inner.node.count - 1]
        if inner.node.common > common:
            set_common(a, &inner.node, common)
        level -= 1
    if t.leaves[left].common > common:
        set_common(a, &t.leaves[left], common)
    if t.leaves[right].common > common:
        set_common(a, &t.leaves[right], common)


cdef void _share_with(Tree* t, const Arena* a, uint32_t first, uint32_t last) noexcept nogil:
    """Make ``common`` hold for the tree's keys and those of a run too."""
    cdef:
        uint32_t common = shared_bytes(key_of(a, first), key_of(a, last))
        Key smallest
    if t.leaves[0].count == 0:
        t.common = t.leaves[0].common = common
        return
    smallest = key_of(a, t.leaves[0].ordinal[0])
    common = min(
        t.common, min(shared_bytes(smallest, key_of(a, first)), shared_bytes(smallest, key_of(a, last)))
    )
    if common < t.common:
        _lower_common(t, a, common)


cdef void _bound(Tree* t, const Arena* a, Key key, uint32_t* leaf, uint32_t* at) noexcept nogil:
    """Set the place of the first key that is not below ``key``.  The tree is not empty."""
    cdef:
        Key smallest = key_of(a, t.leaves[0].ordinal[0])
        Py_ssize_t size = min(<Py_ssize_t>t.common, key.size)
        int order = 0
    if size > 0:
        order = memcmp(key.at, smallest.at, size)
    if order < 0 or (order == 0 and key.size < <Py_ssize_t>t.common):
        leaf[0] = 0
        at[0] = 0
    elif order > 0:
        leaf[0] = t.last_leaf
        at[0] = t.leaves[t.last_leaf].count
    else:
        leaf[0] = seek(t, a, key)
        at[0] = search_node(a, &t.leaves[leaf[0]], 0, key, False)


cdef Py_ssize_t _collect(
    const Tree* t, uint32_t leaf, uint32_t at,
    uint32_t last_leaf, uint32_t last_at, uint64_t limit, Py_ssize_t most, uint32_t* out
) noexcept nogil:
    """Write (``out`` not NULL) and count the first ``most`` ordinals below ``limit`` between two places."""
    cdef:
        const Node* node
        Py_ssize_t found = 0
        uint32_t i, end
    while True:
        node = &t.leaves[leaf]
        if node.next != NO_NODE:
            kc_fetch(&t.leaves[node.next])
            for i in range(4):
                kc_fetch(&t.leaves[node.next].ordinal[i * 16])
        end = last_at if leaf == last_leaf else node.count
        for i in range(at, end):
            if node.ordinal[i] < limit:
                if found == most:
                    return found
                if out != NULL:
                    out[found] = node.ordinal[i]
                found += 1
        if leaf == last_leaf or node.next == NO_NODE:
            return found
        leaf = node.next
        at = 0


cdef class BTree:
    """Ordinals of a key arena in the order of their keys."""

    cdef Tree _tree
    cdef Nodes _nodes
    cdef uint32_t _largest
    cdef readonly Py_ssize_t count
    """How many ordinals it holds."""
    cdef readonly object lock
    """Guards the nodes; ``insert_sorted`` and ``range`` take it by themselves.  Re-entrant: who
    fills the tree up to some ordinal holds it from reading ``count`` until the run is in, or
    two threads enter the same keys.  No other lock may be taken while it is held."""

    def __init__(self):
        self.lock = RLock()
        self.count = 0
        self._largest = 0
        self._nodes = Nodes(sizeof(Node), sizeof(Inner))
        self._point()
        self._tree.leaf_count = 1
        self._tree.inner_count = 0
        self._tree.root = self._tree.last_leaf = 0
        self._tree.height = 0
        self._tree.common = 0
        self._tree.leaves[0].count = self._tree.leaves[0].common = 0
        self._tree.leaves[0].next = self._tree.leaves[0].lower = self._tree.leaves[0].upper = NO_NODE

    cdef void _point(self) noexcept:
        self._tree.leaves, self._tree.inners = <Node*>self._nodes.leaves, <Inner*>self._nodes.inners
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

    def insert_sorted(
        self,
        const uint8_t[::1] arena_data not None,
        const int64_t[::1] arena_offsets not None,
        const uint32_t[::1] ordinals not None,
    ):
        """Insert ordinals that are not in the tree yet, given in ascending order of their keys.

        Parameters
        ----------
        arena_data, arena_offsets : (any,) uint8, (n + 1,) int64
            All keys by ordinal, as of ``KeyTable.keys()``; offsets are trusted.  Every call may
            bring other arrays, if they say the same of the ordinals that are in.
        ordinals : (m,) uint32, each below n

        Raises
        ------
        ValueError
            An ordinal lies outside the arena; nothing has changed.
        MemoryError
            The first keys of the run are in (see ``count``), the others are not.
        """
        cdef:
            Arena arena
            const uint32_t* run
            Py_ssize_t done = 0
            Py_ssize_t n = ordinals.shape[0]
            uint32_t largest = 0
            Py_ssize_t i, reached
        if n == 0:
            return
        for i in range(n):
            largest = max(largest, ordinals[i])
        with self.lock:
            largest = max(largest, self._largest)
            _take_arena(&arena, arena_data, arena_offsets, largest)
            self._largest = largest
            run = &ordinals[0]
            with nogil:
                _share_with(&self._tree, &arena, run[0], run[n - 1])
            while True:
                with nogil:
                    reached = insert_run(&self._tree, &arena, run, done, n)
                self.count += reached - done
                done = reached
                if done == n:
                    break
                self._make_room()

    def range(
        self,
        const uint8_t[::1] arena_data not None,
        const int64_t[::1] arena_offsets not None,
        bytes lower,
        bytes upper,
        limit,
        most=None,
    ):
        """Return the ordinals below ``limit`` with lower <= key < upper, in key order: (m,) uint32.

        ``None`` is an open end.  ``most``: only so many, the first; None: all of them.  ValueError when the
        arena does not hold every ordinal of the tree, or a number is negative.
        """
        cdef:
            Arena arena
            uint64_t below
            Py_ssize_t wanted = self.count
            Key low, high
            uint32_t leaf = 0
            uint32_t at = 0
            uint32_t last_leaf, last_at
            bint has_lower = lower is not None
            bint has_upper = upper is not None
            Py_ssize_t found
            uint32_t[::1] view
        if limit < 0:
            raise ValueError(f"limit {limit} is negative")
        below = min(limit, 1 << 32)
        if most is not None:
            if most < 0:
                raise ValueError(f"at most {most} ordinals")
            wanted = min(most, wanted)
        if has_lower:
            low.at = lower
            low.size = len(lower)
        if has_upper:
            high.at = upper
            high.size = len(upper)
        with self.lock:
            if self.count == 0 or (has_lower and has_upper and lower >= upper):
                return np.empty(0, np.uint32)
            _take_arena(&arena, arena_data, arena_offsets, self._largest)
            with nogil:
                last_leaf = self._tree.last_leaf
                last_at = self._tree.leaves[last_leaf].count
                if has_lower:
                    _bound(&self._tree, &arena, low, &leaf, &at)
                if has_upper:
                    _bound(&self._tree, &arena, high, &last_leaf, &last_at)
                found = _collect(&self._tree, leaf, at, last_leaf, last_at, below, wanted, NULL)
            out = np.empty(found, np.uint32)
            if found > 0:
                view = out
                with nogil:
                    _collect(&self._tree, leaf, at, last_leaf, last_at, below, wanted, &view[0])
            return out


cdef int _take_arena(
    Arena* arena, const uint8_t[::1] data, const int64_t[::1] offsets, uint32_t largest
) except -1:
    if <Py_ssize_t>largest + 1 >= offsets.shape[0]:
        raise ValueError(f"the arena holds {offsets.shape[0] - 1} keys, the tree ordinal {largest}")
    arena.data = &data[0] if data.shape[0] > 0 else NULL
    arena.offsets = &offsets[0]
    return 0
