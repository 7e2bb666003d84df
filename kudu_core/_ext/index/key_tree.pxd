# The tree that gives encoded keys their order: its nodes, and how a key finds its leaf.
#
# A slot is (prefix, ordinal): eight bytes of the key, as a big-endian integer, that follow the bytes
# common to all keys of the node.  Without leaving those out, keys such as ``host-00017`` would have
# one and the same prefix and every compare would go to memory.  What is common to a node follows
# from its *fences*: it holds exactly the keys between two keys of the tree, ``lower <= key < upper``,
# so what those two share is shared by whatever a search brings to this node and need not be
# compared.  A node without one of the fences uses what all keys of the tree share.  Equal prefixes
# are decided by the whole keys in the arena.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from kudu_core._ext.base.loads cimport kc_fetch
from kudu_core._ext.base.keybytes cimport kc_be64
from kudu_core._ext.index.nodes cimport MAX_HEIGHT, NO_NODE, SLOTS, fetch_node


cdef struct Node:
    # A leaf, and the beginning of an inner node.
    uint32_t count
    uint32_t common             # bytes that every key between the fences begins with
    uint32_t next               # leaves: the one to the right, or NO_NODE
    uint32_t lower              # ordinal of the first key that may be here; NO_NODE: no such fence
    uint32_t upper              # ordinal of the first key that belongs further right, or NO_NODE
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


cdef inline Key key_of(const Arena* a, uint32_t ordinal) noexcept nogil:
    cdef Key key
    key.at = a.data + a.offsets[ordinal]
    key.size = a.offsets[ordinal + 1] - a.offsets[ordinal]
    return key


cdef inline uint64_t prefix_of(Key key, uint32_t common) noexcept nogil:
    cdef:
        Py_ssize_t size = key.size - <Py_ssize_t>common
        Py_ssize_t i
        uint64_t prefix = 0
    if size >= 8:
        return kc_be64(key.at + common)
    for i in range(size):
        prefix |= <uint64_t>key.at[common + i] << (56 - 8 * i)
    return prefix


cdef inline int compare_keys(Key a, Key b, Py_ssize_t skip) noexcept nogil:
    cdef:
        Py_ssize_t size = min(a.size, b.size)
        int order = 0
    if size > skip:
        order = memcmp(a.at + skip, b.at + skip, size - skip)
    if order == 0:
        order = (a.size > b.size) - (a.size < b.size)
    return order


cdef inline uint32_t shared_bytes(Key a, Key b) noexcept nogil:
    cdef:
        Py_ssize_t size = min(a.size, b.size)
        Py_ssize_t i = 0
    size = min(size, <Py_ssize_t>0x7FFFFFFF)
    while i < size and a.at[i] == b.at[i]:
        i += 1
    return <uint32_t>i


cdef inline uint32_t fence_common(
    const Tree* t, const Arena* a, uint32_t lower, uint32_t upper
) noexcept nogil:
    if lower == NO_NODE or upper == NO_NODE:
        return t.common
    return max(t.common, shared_bytes(key_of(a, lower), key_of(a, upper)))


cdef inline void set_common(const Arena* a, Node* node, uint32_t common) noexcept nogil:
    """Take all prefixes anew."""
    cdef:
        uint32_t i
    node.common = common
    for i in range(node.count):
        if node.ordinal[i] != NO_NODE:
            kc_fetch(a.offsets + node.ordinal[i])
    for i in range(node.count):
        if node.ordinal[i] != NO_NODE:
            kc_fetch(a.data + a.offsets[node.ordinal[i]] + common)
    for i in range(node.count):
        if node.ordinal[i] != NO_NODE:
            node.prefix[i] = prefix_of(key_of(a, node.ordinal[i]), common)


cdef inline bint has_ties(const Node* node) noexcept nogil:
    cdef:
        uint32_t i
    for i in range(1, node.count):
        if node.prefix[i] == node.prefix[i - 1]:
            return True
    return False


cdef inline void refine(const Tree* t, const Arena* a, Node* leaf) noexcept nogil:
    """Move the prefixes of a leaf on, if its fences allow it and they are not all different."""
    cdef uint32_t common = fence_common(t, a, leaf.lower, leaf.upper)
    if common > leaf.common and has_ties(leaf):
        set_common(a, leaf, common)


cdef inline uint32_t search_node(
    const Arena* a, const Node* node, uint32_t begin, Key key, bint after_equal
) noexcept nogil:
    """Return the first slot from ``begin`` on whose key is not below (or, is above) ``key``."""
    cdef:
        uint64_t prefix = prefix_of(key, node.common)
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
        order = compare_keys(key_of(a, node.ordinal[half]), key, node.common)
        if order < 0 or (after_equal and order == 0):
            at = half + 1
        else:
            end = half
    return at


cdef inline uint32_t descend(Tree* t, const Arena* a, int level, Key key) noexcept nogil:
    """Return the leaf for ``key``, from ``path[level]`` down, and note the path."""
    cdef:
        uint32_t at
        Inner* inner
    while level > 0:
        inner = &t.inners[t.path[level]]
        at = search_node(a, &inner.node, 1, key, True) - 1
        t.slot[level] = at
        level -= 1
        t.path[level] = inner.child[at]
        fetch_node(&t.leaves[inner.child[at]] if level == 0 else &t.inners[inner.child[at]].node)
    return t.path[0]


cdef inline uint32_t seek(Tree* t, const Arena* a, Key key) noexcept nogil:
    t.path[t.height] = t.root
    return descend(t, a, t.height, key)


cdef inline bint is_below_upper(const Tree* t, const Arena* a, Key key, const Node* node) noexcept nogil:
    return node.upper == NO_NODE or compare_keys(key, key_of(a, node.upper), t.common) < 0


cdef inline uint32_t seek_on(Tree* t, const Arena* a, Key key) noexcept nogil:
    """As ``seek``, for a key not below that of the last descent: climb only as far as need be."""
    cdef int level = 1
    if t.height == 0:
        return t.root
    while level < t.height and not is_below_upper(t, a, key, &t.inners[t.path[level]].node):
        level += 1
    return descend(t, a, level, key)
