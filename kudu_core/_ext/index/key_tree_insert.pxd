# How keys enter the tree of key_tree.pxd: ascending runs of them, merged in with a finger.
#
# A full node whose new key comes last is left full and the key opens the next node, so ascending
# keys pack the tree; other splits are in halves.  Nobody deletes.
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from kudu_core._ext.base.loads cimport kc_fetch
from kudu_core._ext.index.key_tree cimport (
    Arena,
    Inner,
    Key,
    Node,
    Tree,
    fence_common,
    is_below_upper,
    key_of,
    prefix_of,
    refine,
    search_node,
    seek,
    seek_on,
    set_common,
)
from kudu_core._ext.index.nodes cimport HALF, NO_NODE, SLOTS

cdef enum:
    AHEAD = 8               # keys of a run whose bytes are fetched before their turn


cdef inline void _put(Node* node, uint32_t at, uint64_t prefix, uint32_t ordinal) noexcept nogil:
    memmove(&node.prefix[at + 1], &node.prefix[at], (node.count - at) * sizeof(uint64_t))
    memmove(&node.ordinal[at + 1], &node.ordinal[at], (node.count - at) * sizeof(uint32_t))
    node.prefix[at] = prefix
    node.ordinal[at] = ordinal
    node.count += 1


cdef inline void _put_child(
    const Arena* a, Inner* inner, uint32_t at, uint32_t ordinal, uint32_t child
) noexcept nogil:
    memmove(&inner.child[at + 1], &inner.child[at], (inner.node.count - at) * sizeof(uint32_t))
    inner.child[at] = child
    _put(&inner.node, at, prefix_of(key_of(a, ordinal), inner.node.common), ordinal)


cdef inline bint has_room(const Tree* t) noexcept nogil:
    # One split may split every level and put a root on top.
    return t.leaf_count < t.leaf_room and t.inner_count + <uint32_t>t.height + 1 <= t.inner_room


cdef inline void _set_root(Tree* t, const Arena* a, uint32_t lower, uint32_t child) noexcept nogil:
    """A new root over the old one and the new node, whose keys begin at ``lower``."""
    cdef:
        uint32_t new = t.inner_count
        Inner* inner = &t.inners[new]
    t.inner_count += 1
    inner.node.count = 2
    inner.node.lower = inner.node.upper = inner.node.next = NO_NODE
    inner.node.ordinal[0] = NO_NODE
    inner.node.ordinal[1] = lower
    inner.child[0] = t.root
    inner.child[1] = child
    set_common(a, &inner.node, t.common)
    t.root = new
    t.height += 1


cdef inline void _link(Tree* t, const Arena* a, uint32_t lower, uint32_t child) noexcept nogil:
    """Enter a new node, whose keys begin at ``lower``, to the right of the path's."""
    cdef:
        int level = 1
        uint32_t at, new
        Inner* inner
        Inner* right
    while True:
        if level > t.height:
            _set_root(t, a, lower, child)
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
        right.node.next = NO_NODE
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
        set_common(a, &inner.node, fence_common(t, a, inner.node.lower, inner.node.upper))
        set_common(a, &right.node, fence_common(t, a, right.node.lower, right.node.upper))
        lower = right.node.lower
        child = new
        level += 1


cdef inline Node* _open_right(Tree* t, Node* leaf, uint32_t lower) noexcept nogil:
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
    if right.upper == NO_NODE:
        t.last_leaf = new
    return right


cdef inline void _split(Tree* t, const Arena* a, uint32_t at, uint32_t ordinal) noexcept nogil:
    """Split the path's full leaf, into which ``ordinal`` is to go at slot ``at``."""
    cdef:
        Node* leaf = &t.leaves[t.path[0]]
        Node* right
    if at == SLOTS:
        right = _open_right(t, leaf, ordinal)
        right.common = fence_common(t, a, right.lower, right.upper)
    else:
        right = _open_right(t, leaf, leaf.ordinal[HALF])
        right.count = leaf.count = HALF
        memcpy(right.prefix, &leaf.prefix[HALF], HALF * sizeof(uint64_t))
        memcpy(right.ordinal, &leaf.ordinal[HALF], HALF * sizeof(uint32_t))
        refine(t, a, right)
    refine(t, a, leaf)
    _link(t, a, right.lower, leaf.next)


cdef inline void _fetch_ahead(
    const Arena* a, const uint32_t* ordinals, Py_ssize_t i, Py_ssize_t n
) noexcept nogil:
    if i + 2 * AHEAD < n:
        kc_fetch(a.offsets + ordinals[i + 2 * AHEAD])
    if i + AHEAD < n:
        kc_fetch(a.data + a.offsets[ordinals[i + AHEAD]])


cdef inline Py_ssize_t _append(
    Tree* t, const Arena* a, const uint32_t* ordinals, Py_ssize_t i, Py_ssize_t n
) noexcept nogil:
    """Append keys above all others: no searching, nodes packed full."""
    cdef:
        Node* leaf
        Py_ssize_t end, j
        uint32_t common
        bint closes
    # The right spine is the path, also for the leaves to come.
    seek(t, a, key_of(a, ordinals[i]))
    while i < n:
        leaf = &t.leaves[t.last_leaf]
        end = min(n, i + SLOTS - <Py_ssize_t>leaf.count)
        closes = end < n
        if closes and not has_room(t):
            return i
        if closes and leaf.count == 0:
            leaf.common = fence_common(t, a, leaf.lower, ordinals[end])
        common = leaf.common
        for j in range(i, end):
            _fetch_ahead(a, ordinals, j, n)
            leaf.prefix[leaf.count] = prefix_of(key_of(a, ordinals[j]), common)
            leaf.ordinal[leaf.count] = ordinals[j]
            leaf.count += 1
        i = end
        if closes:
            _open_right(t, leaf, ordinals[i]).common = t.common
            refine(t, a, leaf)
            _link(t, a, ordinals[i], leaf.next)
            seek(t, a, key_of(a, ordinals[i]))
    return i


cdef inline Py_ssize_t insert_run(
    Tree* t, const Arena* a, const uint32_t* ordinals, Py_ssize_t i, Py_ssize_t n
) noexcept nogil:
    """Insert from ``ordinals[i]`` on; return how far it came: less than n when it wants more room."""
    cdef:
        Node* leaf = NULL
        uint32_t at = 0
        Key key
    while i < n:
        _fetch_ahead(a, ordinals, i, n)
        key = key_of(a, ordinals[i])
        if leaf == NULL:
            leaf = &t.leaves[seek(t, a, key)]
            at = 0
        elif not is_below_upper(t, a, key, leaf):
            leaf = &t.leaves[seek_on(t, a, key)]
            at = 0
        at = search_node(a, leaf, at, key, True)
        if leaf.upper == NO_NODE and at == leaf.count:
            return _append(t, a, ordinals, i, n)
        if leaf.count == SLOTS:
            if not has_room(t):
                return i
            _split(t, a, at, ordinals[i])
            leaf = NULL
            continue
        _put(leaf, at, prefix_of(key, leaf.common), ordinals[i])
        at += 1
        i += 1
    return i
