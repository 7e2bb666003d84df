"""B-trees that give the order of what lies elsewhere unordered: of encoded keys, and of u64.

``BTree`` holds ordinals of keys in a key arena (see ``hash_index``), ``BTreeU64`` plain integers.
Both take ascending runs, merge them in with a finger, never delete, and are filled by whoever
needs the order, under the lock they carry.

A slot of ``BTree`` is (prefix, ordinal): eight bytes of the key, as a big-endian integer, that
follow the bytes common to all keys of the node.  Without leaving those out, keys such as
``host-00017`` would have one and the same prefix and every compare would go to memory.  What is
common to a node follows from its *fences*: it holds exactly the keys between two keys of the
tree, ``lower <= key < upper``, so what those two share is shared by whatever a search brings to
this node and need not be compared.  A node without one of the fences uses what all keys of the
tree share.  Equal prefixes are decided by the whole keys in the arena.

Slots are 64 a node.  A full node whose new key comes last is left full and the key opens the
next node, so ascending keys pack the tree; other splits are in halves.

Source: Graefe, "Modern B-Tree Techniques" (fence keys, prefix truncation); Kudu
tablet/concurrent_btree.h (no deletes, lives as long as the store).
"""
from threading import RLock

import numpy as np

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memmove

cdef extern from *:
    """
    #include <string.h>
    static inline unsigned long long kc_load_be64(const void *p) {
        unsigned long long v;
        memcpy(&v, p, 8);
        return __builtin_bswap64(v);
    }
    static inline void kc_tree_fetch(const void *p) { __builtin_prefetch(p, 0, 3); }
    """
    uint64_t kc_load_be64(const void *p) noexcept nogil
    void kc_tree_fetch(const void *p) noexcept nogil

cdef enum:
    SLOTS = 64
    HALF = 32
    CACHE_LINE = 64
    MAX_HEIGHT = 16         # 2**32 keys need 7 levels when every node is half full
    AHEAD = 8               # keys of a run whose bytes are fetched before their turn

cdef uint32_t NONE = 0xFFFFFFFF


cdef struct Node:
    # A leaf, and the beginning of an inner node.
    uint32_t count
    uint32_t common             # bytes that every key between the fences begins with
    uint32_t next               # leaves: the one to the right, or NONE
    uint32_t lower              # ordinal of the first key that may be here; NONE: no such fence
    uint32_t upper              # ordinal of the first key that belongs further right, or NONE
    uint32_t unused[3]
    uint64_t prefix[SLOTS]
    uint32_t ordinal[SLOTS]
    uint64_t padding[4]         # 832 bytes: whole cache lines


cdef struct Inner:
    # Slot i leads to the keys from its own key on; slot 0's key is the fence and never compared.
    Node node
    uint32_t child[SLOTS]


cdef struct Tree:
    Node* leaves
    Inner* inners
    uint32_t leaf_count
    uint32_t leaf_room
    uint32_t inner_count
    uint32_t inner_room
    uint32_t root
    int height                  # 0: the root is a leaf
    uint32_t common             # bytes that every key of the tree begins with
    uint32_t last_leaf          # the first is always leaf 0
    uint32_t path[MAX_HEIGHT]   # of the last descent: node and slot by level, leaves being level 0
    uint32_t slot[MAX_HEIGHT]


cdef struct Arena:
    const uint8_t* data
    const int64_t* offsets


cdef struct Key:
    const uint8_t* at
    Py_ssize_t size


cdef inline Key _key(const Arena* a, uint32_t ordinal) noexcept nogil:
    cdef Key key
    key.at = a.data + a.offsets[ordinal]
    key.size = a.offsets[ordinal + 1] - a.offsets[ordinal]
    return key


cdef inline uint64_t _prefix(Key key, uint32_t common) noexcept nogil:
    cdef:
        Py_ssize_t size = key.size - <Py_ssize_t>common
        Py_ssize_t i
        uint64_t prefix = 0
    if size >= 8:
        return kc_load_be64(key.at + common)
    for i in range(size):
        prefix |= <uint64_t>key.at[common + i] << (56 - 8 * i)
    return prefix


cdef inline int _compare(Key a, Key b, Py_ssize_t skip) noexcept nogil:
    cdef:
        Py_ssize_t size = min(a.size, b.size)
        int order = 0
    if size > skip:
        order = memcmp(a.at + skip, b.at + skip, size - skip)
    if order == 0:
        order = (a.size > b.size) - (a.size < b.size)
    return order


cdef uint32_t _shared(Key a, Key b) noexcept nogil:
    cdef:
        Py_ssize_t size = min(a.size, b.size)
        Py_ssize_t i = 0
    size = min(size, <Py_ssize_t>0x7FFFFFFF)
    while i < size and a.at[i] == b.at[i]:
        i += 1
    return <uint32_t>i


cdef inline uint32_t _fence_common(
    const Tree* t, const Arena* a, uint32_t lower, uint32_t upper
) noexcept nogil:
    if lower == NONE or upper == NONE:
        return t.common
    return max(t.common, _shared(_key(a, lower), _key(a, upper)))


cdef void _set_common(const Arena* a, Node* node, uint32_t common) noexcept nogil:
    """Take all prefixes anew."""
    cdef:
        uint32_t i
    node.common = common
    for i in range(node.count):
        if node.ordinal[i] != NONE:
            kc_tree_fetch(a.offsets + node.ordinal[i])
    for i in range(node.count):
        if node.ordinal[i] != NONE:
            kc_tree_fetch(a.data + a.offsets[node.ordinal[i]] + common)
    for i in range(node.count):
        if node.ordinal[i] != NONE:
            node.prefix[i] = _prefix(_key(a, node.ordinal[i]), common)


cdef bint _has_ties(const Node* node) noexcept nogil:
    cdef:
        uint32_t i
    for i in range(1, node.count):
        if node.prefix[i] == node.prefix[i - 1]:
            return True
    return False


cdef void _refine(const Tree* t, const Arena* a, Node* leaf) noexcept nogil:
    """Move the prefixes of a leaf on, if its fences allow it and they are not all different."""
    cdef uint32_t common = _fence_common(t, a, leaf.lower, leaf.upper)
    if common > leaf.common and _has_ties(leaf):
        _set_common(a, leaf, common)


cdef uint32_t _search(
    const Arena* a, const Node* node, uint32_t begin, Key key, bint after_equal
) noexcept nogil:
    """Return the first slot from ``begin`` on whose key is not below (or, is above) ``key``."""
    cdef:
        uint64_t prefix = _prefix(key, node.common)
        uint32_t at = begin
        uint32_t size = node.count - begin
        uint32_t end, half
        int order
    if size == 0:
        return begin
    while size > 1:
        half = size >> 1
        at += half if node.prefix[at + half - 1] < prefix else 0
        size -= half
    if node.prefix[at] < prefix:
        at += 1
    if at == node.count or node.prefix[at] != prefix:
        return at
    end = at + 1
    while end < node.count and node.prefix[end] == prefix:
        end += 1
    while at < end:
        half = (at + end) >> 1
        order = _compare(_key(a, node.ordinal[half]), key, node.common)
        if order < 0 or (after_equal and order == 0):
            at = half + 1
        else:
            end = half
    return at


cdef inline void _fetch_node(const Node* node) noexcept nogil:
    cdef:
        const uint8_t* line = <const uint8_t*>node
        int i
    for i in range(9):      # the head and the prefixes; of the ordinals a search needs one line at most
        kc_tree_fetch(line + i * CACHE_LINE)


cdef uint32_t _descend(Tree* t, const Arena* a, int level, Key key) noexcept nogil:
    """Return the leaf for ``key``, from ``path[level]`` down, and note the path."""
    cdef:
        uint32_t at
        Inner* inner
    while level > 0:
        inner = &t.inners[t.path[level]]
        at = _search(a, &inner.node, 1, key, True) - 1
        t.slot[level] = at
        level -= 1
        t.path[level] = inner.child[at]
        _fetch_node(&t.leaves[inner.child[at]] if level == 0 else &t.inners[inner.child[at]].node)
    return t.path[0]


cdef inline uint32_t _seek(Tree* t, const Arena* a, Key key) noexcept nogil:
    t.path[t.height] = t.root
    return _descend(t, a, t.height, key)


cdef inline bint _is_below_upper(const Tree* t, const Arena* a, Key key, const Node* node) noexcept nogil:
    return node.upper == NONE or _compare(key, _key(a, node.upper), t.common) < 0


cdef uint32_t _seek_on(Tree* t, const Arena* a, Key key) noexcept nogil:
    """As ``_seek``, for a key not below that of the last descent: climb only as far as need be."""
    cdef int level = 1
    if t.height == 0:
        return t.root
    while level < t.height and not _is_below_upper(t, a, key, &t.inners[t.path[level]].node):
        level += 1
    return _descend(t, a, level, key)


cdef void _put(Node* node, uint32_t at, uint64_t prefix, uint32_t ordinal) noexcept nogil:
    memmove(&node.prefix[at + 1], &node.prefix[at], (node.count - at) * sizeof(uint64_t))
    memmove(&node.ordinal[at + 1], &node.ordinal[at], (node.count - at) * sizeof(uint32_t))
    node.prefix[at] = prefix
    node.ordinal[at] = ordinal
    node.count += 1


cdef void _put_child(
    const Arena* a, Inner* inner, uint32_t at, uint32_t ordinal, uint32_t child
) noexcept nogil:
    memmove(&inner.child[at + 1], &inner.child[at], (inner.node.count - at) * sizeof(uint32_t))
    inner.child[at] = child
    _put(&inner.node, at, _prefix(_key(a, ordinal), inner.node.common), ordinal)


cdef inline bint _has_room(const Tree* t) noexcept nogil:
    # One split may split every level and put a root on top.
    return t.leaf_count < t.leaf_room and t.inner_count + <uint32_t>t.height + 1 <= t.inner_room


cdef void _link(Tree* t, const Arena* a, uint32_t lower, uint32_t child) noexcept nogil:
    """Enter a new node, whose keys begin at ``lower``, to the right of the path's."""
    cdef:
        int level = 1
        uint32_t at, new
        Inner* inner
        Inner* right
    while True:
        if level > t.height:
            new = t.inner_count
            t.inner_count += 1
            inner = &t.inners[new]
            inner.node.count = 2
            inner.node.lower = inner.node.upper = inner.node.next = NONE
            inner.node.ordinal[0] = NONE
            inner.node.ordinal[1] = lower
            inner.child[0] = t.root
            inner.child[1] = child
            _set_common(a, &inner.node, t.common)
            t.root = new
            t.height += 1
            return
        inner = &t.inners[t.path[level]]
        at = t.slot[level] + 1
        if inner.node.count < SLOTS:
            _put_child(a, inner, at, lower, child)
            return
        new = t.inner_count
        t.inner_count += 1
        right = &t.inners[new]
        right.node.count = 0
        right.node.common = inner.node.common
        right.node.next = NONE
        right.node.upper = inner.node.upper
        if at < SLOTS:
            right.node.count = inner.node.count = HALF
            memcpy(right.node.prefix, &inner.node.prefix[HALF], HALF * sizeof(uint64_t))
            memcpy(right.node.ordinal, &inner.node.ordinal[HALF], HALF * sizeof(uint32_t))
            memcpy(right.child, &inner.child[HALF], HALF * sizeof(uint32_t))
        if at < SLOTS and at <= HALF:
            _put_child(a, inner, at, lower, child)
        else:
            _put_child(a, right, at - (HALF if at < SLOTS else SLOTS), lower, child)
        right.node.lower = inner.node.upper = right.node.ordinal[0]
        # Inner nodes split seldom: their prefixes always move on.
        _set_common(a, &inner.node, _fence_common(t, a, inner.node.lower, inner.node.upper))
        _set_common(a, &right.node, _fence_common(t, a, right.node.lower, right.node.upper))
        lower = right.node.lower
        child = new
        level += 1


cdef Node* _open_right(Tree* t, Node* leaf, uint32_t lower) noexcept nogil:
    """Return a new, empty leaf to the right of ``leaf``, for its keys from ``lower`` on."""
    cdef:
        uint32_t new = t.leaf_count
        Node* right = &t.leaves[new]
    t.leaf_count += 1
    right.count = 0
    right.common = leaf.common
    right.next = leaf.next
    right.lower = lower
    right.upper = leaf.upper
    leaf.next = new
    leaf.upper = lower
    if right.upper == NONE:
        t.last_leaf = new
    return right


cdef void _split(Tree* t, const Arena* a, uint32_t at, uint32_t ordinal) noexcept nogil:
    """Split the path's full leaf, into which ``ordinal`` is to go at slot ``at``."""
    cdef:
        Node* leaf = &t.leaves[t.path[0]]
        Node* right
    if at == SLOTS:
        right = _open_right(t, leaf, ordinal)
        right.common = _fence_common(t, a, right.lower, right.upper)
    else:
        right = _open_right(t, leaf, leaf.ordinal[HALF])
        right.count = leaf.count = HALF
        memcpy(right.prefix, &leaf.prefix[HALF], HALF * sizeof(uint64_t))
        memcpy(right.ordinal, &leaf.ordinal[HALF], HALF * sizeof(uint32_t))
        _refine(t, a, right)
    _refine(t, a, leaf)
    _link(t, a, right.lower, leaf.next)


cdef inline void _fetch_ahead(
    const Arena* a, const uint32_t* ordinals, Py_ssize_t i, Py_ssize_t n
) noexcept nogil:
    if i + 2 * AHEAD < n:
        kc_tree_fetch(a.offsets + ordinals[i + 2 * AHEAD])
    if i + AHEAD < n:
        kc_tree_fetch(a.data + a.offsets[ordinals[i + AHEAD]])


cdef Py_ssize_t _append(
    Tree* t, const Arena* a, const uint32_t* ordinals, Py_ssize_t i, Py_ssize_t n
) noexcept nogil:
    """Append keys above all others: no searching, nodes packed full."""
    cdef:
        Node* leaf
        Py_ssize_t end, j
        uint32_t common
        bint closes
    # The right spine is the path, also for the leaves to come.
    _seek(t, a, _key(a, ordinals[i]))
    while i < n:
        leaf = &t.leaves[t.last_leaf]
        end = min(n, i + SLOTS - <Py_ssize_t>leaf.count)
        closes = end < n
        if closes and not _has_room(t):
            return i
        if closes and leaf.count == 0:
            leaf.common = _fence_common(t, a, leaf.lower, ordinals[end])
        common = leaf.common
        for j in range(i, end):
            _fetch_ahead(a, ordinals, j, n)
            leaf.prefix[leaf.count] = _prefix(_key(a, ordinals[j]), common)
            leaf.ordinal[leaf.count] = ordinals[j]
            leaf.count += 1
        i = end
        if closes:
            _open_right(t, leaf, ordinals[i]).common = t.common
            _refine(t, a, leaf)
            _link(t, a, ordinals[i], leaf.next)
            _seek(t, a, _key(a, ordinals[i]))
    return i


cdef Py_ssize_t _insert(
    Tree* t, const Arena* a, const uint32_t* ordinals, Py_ssize_t i, Py_ssize_t n
) noexcept nogil:
    """Insert from ``ordinals[i]`` on; return how far it came: less than n when it wants more room."""
    cdef:
        Node* leaf = NULL
        uint32_t at = 0
        Key key
    while i < n:
        _fetch_ahead(a, ordinals, i, n)
        key = _key(a, ordinals[i])
        if leaf == NULL:
            leaf = &t.leaves[_seek(t, a, key)]
            at = 0
        elif not _is_below_upper(t, a, key, leaf):
            leaf = &t.leaves[_seek_on(t, a, key)]
            at = 0
        at = _search(a, leaf, at, key, True)
        if leaf.upper == NONE and at == leaf.count:
            return _append(t, a, ordinals, i, n)
        if leaf.count == SLOTS:
            if not _has_room(t):
                return i
            _split(t, a, at, ordinals[i])
            leaf = NULL
            continue
        _put(leaf, at, _prefix(key, leaf.common), ordinals[i])
        at += 1
        i += 1
    return i


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
            _set_common(a, &inner.node, common)
        inner = &t.inners[right]
        right = inner.child[inner.node.count - 1]
        if inner.node.common > common:
            _set_common(a, &inner.node, common)
        level -= 1
    if t.leaves[left].common > common:
        _set_common(a, &t.leaves[left], common)
    if t.leaves[right].common > common:
        _set_common(a, &t.leaves[right], common)


cdef void _share_with(Tree* t, const Arena* a, uint32_t first, uint32_t last) noexcept nogil:
    """Make ``common`` hold for the tree's keys and those of a run too."""
    cdef:
        uint32_t common = _shared(_key(a, first), _key(a, last))
        Key smallest
    if t.leaves[0].count == 0:
        t.common = t.leaves[0].common = common
        return
    smallest = _key(a, t.leaves[0].ordinal[0])
    common = min(t.common, min(_shared(smallest, _key(a, first)), _shared(smallest, _key(a, last))))
    if common < t.common:
        _lower_common(t, a, common)


cdef void _bound(Tree* t, const Arena* a, Key key, uint32_t* leaf, uint32_t* at) noexcept nogil:
    """Set the place of the first key that is not below ``key``.  The tree is not empty."""
    cdef:
        Key smallest = _key(a, t.leaves[0].ordinal[0])
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
        leaf[0] = _seek(t, a, key)
        at[0] = _search(a, &t.leaves[leaf[0]], 0, key, False)


cdef Py_ssize_t _collect(
    const Tree* t, uint32_t leaf, uint32_t at,
    uint32_t last_leaf, uint32_t last_at, uint64_t limit, uint32_t* out
) noexcept nogil:
    """Write (``out`` not NULL) and count the ordinals below ``limit`` between two places."""
    cdef:
        const Node* node
        Py_ssize_t found = 0
        uint32_t i, end
    while True:
        node = &t.leaves[leaf]
        if node.next != NONE:
            kc_tree_fetch(&t.leaves[node.next])
            for i in range(4):
                kc_tree_fetch(&t.leaves[node.next].ordinal[i * 16])
        end = last_at if leaf == last_leaf else node.count
        for i in range(at, end):
            if node.ordinal[i] < limit:
                if out != NULL:
                    out[found] = node.ordinal[i]
                found += 1
        if leaf == last_leaf or node.next == NONE:
            return found
        leaf = node.next
        at = 0


cdef class _Nodes:
    """An array of nodes on cache lines.  Growing moves them: under the tree's lock only."""

    cdef object _memory
    cdef readonly Py_ssize_t nbytes
    cdef uint8_t* at

    def __cinit__(self, Py_ssize_t nbytes):
        cdef uint8_t[::1] view
        self._memory = np.empty(nbytes + CACHE_LINE, np.uint8)
        self.nbytes = nbytes
        view = self._memory
        self.at = &view[0]
        self.at += -<Py_ssize_t><size_t>self.at & (CACHE_LINE - 1)


cdef _Nodes _grown(_Nodes old, Py_ssize_t used, Py_ssize_t nbytes):
    cdef _Nodes new = _Nodes(nbytes)
    memcpy(new.at, old.at, used)
    return new


cdef class BTree:
    """Ordinals of a key arena in the order of their keys."""

    cdef Tree _tree
    cdef _Nodes _leaves, _inners
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
        self._leaves = _Nodes(2 * sizeof(Node))
        self._inners = _Nodes(4 * sizeof(Inner))
        self._point()
        self._tree.leaf_count = 1
        self._tree.inner_count = 0
        self._tree.root = self._tree.last_leaf = 0
        self._tree.height = 0
        self._tree.common = 0
        self._tree.leaves[0].count = self._tree.leaves[0].common = 0
        self._tree.leaves[0].next = self._tree.leaves[0].lower = self._tree.leaves[0].upper = NONE

    cdef void _point(self) noexcept:
        self._tree.leaves = <Node*>self._leaves.at
        self._tree.inners = <Inner*>self._inners.at
        self._tree.leaf_room = <uint32_t>(self._leaves.nbytes // sizeof(Node))
        self._tree.inner_room = <uint32_t>(self._inners.nbytes // sizeof(Inner))

    cdef int _make_room(self) except -1:
        cdef Tree* t = &self._tree
        if t.leaf_count == t.leaf_room:
            self._leaves = _grown(self._leaves, t.leaf_count * sizeof(Node), 2 * self._leaves.nbytes)
        if t.inner_count + <uint32_t>t.height + 1 > t.inner_room:
            self._inners = _grown(
                self._inners, t.inner_count * sizeof(Inner), 2 * self._inners.nbytes + 4 * sizeof(Inner)
            )
        self._point()
        return 0

    def __len__(self):
        return self.count

    @property
    def nbytes(self):
        """Memory of the nodes, room for growth included."""
        return self._leaves.nbytes + self._inners.nbytes

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
                    reached = _insert(&self._tree, &arena, run, done, n)
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
    ):
        """Return the ordinals below ``limit`` with lower <= key < upper, in key order: (m,) uint32.

        ``None`` is an open end.  ValueError when the arena does not hold every ordinal of the
        tree, or the limit is negative.
        """
        cdef:
            Arena arena
            uint64_t most
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
        most = min(limit, 1 << 32)
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
                found = _collect(&self._tree, leaf, at, last_leaf, last_at, most, NULL)
            out = np.empty(found, np.uint32)
            if found > 0:
                view = out
                with nogil:
                    _collect(&self._tree, leaf, at, last_leaf, last_at, most, &view[0])
            return out


cdef int _take_arena(
    Arena* arena, const uint8_t[::1] data, const int64_t[::1] offsets, uint32_t largest
) except -1:
    if <Py_ssize_t>largest + 1 >= offsets.shape[0]:
        raise ValueError(f"the arena holds {offsets.shape[0] - 1} keys, the tree ordinal {largest}")
    arena.data = &data[0] if data.shape[0] > 0 else NULL
    arena.offsets = &offsets[0]
    return 0


# The same tree over integers.  Its keys are their own prefixes, so it needs neither arena nor
# common bytes; a fence is a key, and 0 as an upper fence stands for none.

cdef struct LeafU64:
    uint32_t count
    uint32_t next
    uint64_t upper
    uint64_t unused[6]
    uint64_t key[SLOTS]


cdef struct InnerU64:
    uint32_t count
    uint32_t unused
    uint64_t upper
    uint64_t key[SLOTS]         # key[0] is the lower fence
    uint32_t child[SLOTS]
    uint64_t padding[6]


cdef struct TreeU64:
    LeafU64* leaves
    InnerU64* inners
    uint32_t leaf_count
    uint32_t leaf_room
    uint32_t inner_count
    uint32_t inner_room
    uint32_t root
    int height
    uint32_t path[MAX_HEIGHT]
    uint32_t slot[MAX_HEIGHT]


cdef inline uint32_t _search_u64(
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


cdef uint32_t _descend_u64(TreeU64* t, int level, uint64_t key) noexcept nogil:
    cdef:
        uint32_t at
        InnerU64* inner
        const uint8_t* line
        int i
    while level > 0:
        inner = &t.inners[t.path[level]]
        at = _search_u64(inner.key, 1, inner.count, key)
        if at == inner.count or inner.key[at] != key:
            at -= 1
        t.slot[level] = at
        level -= 1
        t.path[level] = inner.child[at]
        if level == 0:
            line = <const uint8_t*>&t.leaves[inner.child[at]]
        else:
            line = <const uint8_t*>&t.inners[inner.child[at]]
        for i in range(9):
            kc_tree_fetch(line + i * CACHE_LINE)
    return t.path[0]


cdef inline uint32_t _seek_u64(TreeU64* t, uint64_t key) noexcept nogil:
    t.path[t.height] = t.root
    return _descend_u64(t, t.height, key)


cdef uint32_t _seek_on_u64(TreeU64* t, uint64_t key) noexcept nogil:
    cdef int level = 1
    if t.height == 0:
        return t.root
    while level < t.height and t.inners[t.path[level]].upper != 0 and key >= t.inners[t.path[level]].upper:
        level += 1
    return _descend_u64(t, level, key)


cdef inline bint _has_room_u64(const TreeU64* t) noexcept nogil:
    return t.leaf_count < t.leaf_room and t.inner_count + <uint32_t>t.height + 1 <= t.inner_room


cdef void _put_child_u64(InnerU64* inner, uint32_t at, uint64_t key, uint32_t child) noexcept nogil:
    memmove(&inner.key[at + 1], &inner.key[at], (inner.count - at) * sizeof(uint64_t))
    memmove(&inner.child[at + 1], &inner.child[at], (inner.count - at) * sizeof(uint32_t))
    inner.key[at] = key
    inner.child[at] = child
    inner.count += 1


cdef void _link_u64(TreeU64* t, uint64_t lower, uint32_t child) noexcept nogil:
    cdef:
        int level = 1
        uint32_t at, new
        InnerU64* inner
        InnerU64* right
    while True:
        if level <= t.height and t.inners[t.path[level]].count < SLOTS:
            _put_child_u64(&t.inners[t.path[level]], t.slot[level] + 1, lower, child)
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
            _put_child_u64(inner, at, lower, child)
        else:
            _put_child_u64(right, at - (HALF if at < SLOTS else SLOTS), lower, child)
        inner.upper = lower = right.key[0]
        child = new
        level += 1


cdef Py_ssize_t _insert_u64(TreeU64* t, const uint64_t* keys, Py_ssize_t i, Py_ssize_t n) noexcept nogil:
    cdef:
        LeafU64* leaf = NULL
        LeafU64* right
        uint32_t at = 0
        uint32_t keep
        Py_ssize_t run
    while i < n:
        if leaf == NULL:
            leaf = &t.leaves[_seek_u64(t, keys[i])]
            at = 0
        elif leaf.upper != 0 and keys[i] >= leaf.upper:
            leaf = &t.leaves[_seek_on_u64(t, keys[i])]
            at = 0
        at = _search_u64(leaf.key, at, leaf.count, keys[i])
        if leaf.count == SLOTS:
            if not _has_room_u64(t):
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
            _link_u64(t, leaf.upper, leaf.next)
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


cdef Py_ssize_t _collect_u64(TreeU64* t, uint64_t lower, uint64_t last, uint64_t* out) noexcept nogil:
    """Write (``out`` not NULL) and count the keys of [lower, last]."""
    cdef:
        uint32_t leaf = _seek_u64(t, lower)
        uint32_t at = _search_u64(t.leaves[leaf].key, 0, t.leaves[leaf].count, lower)
        uint32_t end
        Py_ssize_t found = 0
        const LeafU64* node
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
        if end < node.count or node.next == NONE:
            return found
        leaf = node.next
        at = 0


cdef class BTreeU64:
    """Integers in ascending order; a DeltaMemStore's are ``rowid << 32 | number of the change``."""

    cdef TreeU64 _tree
    cdef _Nodes _leaves, _inners
    cdef readonly Py_ssize_t count
    """How many keys it holds."""
    cdef readonly object lock
    """As ``BTree.lock``."""

    def __init__(self):
        self.lock = RLock()
        self.count = 0
        self._leaves = _Nodes(2 * sizeof(LeafU64))
        self._inners = _Nodes(4 * sizeof(InnerU64))
        self._point()
        self._tree.leaf_count = 1
        self._tree.inner_count = 0
        self._tree.root = 0
        self._tree.height = 0
        self._tree.leaves[0].count = 0
        self._tree.leaves[0].next = NONE
        self._tree.leaves[0].upper = 0

    cdef void _point(self) noexcept:
        self._tree.leaves = <LeafU64*>self._leaves.at
        self._tree.inners = <InnerU64*>self._inners.at
        self._tree.leaf_room = <uint32_t>(self._leaves.nbytes // sizeof(LeafU64))
        self._tree.inner_room = <uint32_t>(self._inners.nbytes // sizeof(InnerU64))

    cdef int _make_room(self) except -1:
        cdef TreeU64* t = &self._tree
        if t.leaf_count == t.leaf_room:
            self._leaves = _grown(self._leaves, t.leaf_count * sizeof(LeafU64), 2 * self._leaves.nbytes)
        if t.inner_count + <uint32_t>t.height + 1 > t.inner_room:
            self._inners = _grown(
                self._inners, t.inner_count * sizeof(InnerU64), 2 * self._inners.nbytes + 4 * sizeof(InnerU64)
            )
        self._point()
        return 0

    def __len__(self):
        return self.count

    @property
    def nbytes(self):
        """Memory of the nodes, room for growth included."""
        return self._leaves.nbytes + self._inners.nbytes

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
                    reached = _insert_u64(&self._tree, &keys[0], done, n)
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
                found = _collect_u64(&self._tree, first, last, NULL)
            out = np.empty(found, np.uint64)
            if found > 0:
                view = out
                with nogil:
                    _collect_u64(&self._tree, first, last, &view[0])
            return out
