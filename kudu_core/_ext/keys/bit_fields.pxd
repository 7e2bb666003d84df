# The bits in which keys differ, gathered into one integer a key, 64 bits at most.
#
# What all keys share (``host-000``, the high bytes of times) costs nothing, and the gathered bits are
# order-preserving because the ones left out are the same everywhere.  Neighbouring bits that differ
# are a field.
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kudu_core._ext.base.keybytes cimport kc_word
from kudu_core._ext.keys.compare cimport Keys, size_of

cdef extern from *:
    """
    #define KC_ALL (~(uint64_t)0)
    static inline int kc_bits_of(unsigned long long v) { return v ? 64 - __builtin_clzll(v) : 0; }
    """
    const uint64_t ALL "KC_ALL"
    int kc_bits_of(uint64_t v) noexcept nogil       # position of the highest 1, from 1

cdef enum:
    WINDOW = 8              # words looked at for bits that differ


cdef struct Element:
    uint64_t bits
    int64_t row


cdef struct BitField:
    # Neighbouring bits that differ, in one word of the window.
    int word
    int shift
    int width


cdef struct Plan:
    int words               # of the window that are loaded
    int fields
    int bits                # in all of them
    bint complete           # keys with equal bits are equal
    int64_t depth           # bytes in which keys with equal bits agree
    BitField field[WINDOW * 64]


cdef inline void find_differing(
    const Keys* keys, const Element* a, int64_t n, int64_t depth, int words, uint64_t* differing
) noexcept nogil:
    """Which bits of the words behind ``depth`` are not the same in all keys."""
    cdef:
        uint64_t first[WINDOW]
        const uint8_t* key
        int64_t i, size
        int w
    key = keys.data + keys.offsets[a[0].row] + depth
    size = size_of(keys, a[0].row) - depth
    for w in range(words):
        first[w] = kc_word(key + 8 * w, size - 8 * w, keys.end)
        differing[w] = 0
    for i in range(1, n):
        key = keys.data + keys.offsets[a[i].row] + depth
        size = size_of(keys, a[i].row) - depth
        for w in range(words):
            differing[w] |= kc_word(key + 8 * w, size - 8 * w, keys.end) ^ first[w]


cdef inline uint64_t _whole_bytes(uint64_t mask) noexcept nogil:
    """All bits of each byte that has one."""
    mask |= (mask >> 4) & <uint64_t>0x0F0F0F0F0F0F0F0F
    mask |= (mask >> 2) & <uint64_t>0x0303030303030303
    mask |= (mask >> 1) & <uint64_t>0x0101010101010101
    return (mask & <uint64_t>0x0101010101010101) * 255


cdef inline void choose_fields(Plan* plan, uint64_t* differing, int words, bint whole_bytes) noexcept nogil:
    """The fields of differing bits from the highest on, until 64 bits are gathered."""
    cdef:
        int w, high, low, width
        uint64_t rest
    plan.fields = 0
    plan.bits = 0
    plan.words = 0
    for w in range(words):
        rest = _whole_bytes(differing[w]) if whole_bytes else differing[w]
        while rest:
            high = kc_bits_of(rest)
            low = kc_bits_of(~(rest << (64 - high)))       # the field's bits are 1s at the top
            width = 64 - low
            if width > high:
                width = high
            if plan.bits + width > 64:
                width = 64 - plan.bits
            if width == 0:
                plan.depth += 8 * w + (64 - high) // 8
                plan.complete = False
                return
            plan.field[plan.fields].word = w
            plan.field[plan.fields].shift = high - width
            plan.field[plan.fields].width = width
            plan.fields += 1
            plan.bits += width
            plan.words = w + 1
            rest &= ~((ALL >> (64 - width)) << (high - width))
    plan.depth += 8 * words


cdef inline uint64_t gather(
    const Keys* keys, int64_t row, int64_t depth, const Plan* plan
) noexcept nogil:
    cdef:
        const uint8_t* key = keys.data + keys.offsets[row] + depth
        int64_t size = size_of(keys, row) - depth
        uint64_t bits = 0
        uint64_t word = 0
        int loaded = -1
        int f
        const BitField* field
    for f in range(plan.fields):
        field = &plan.field[f]
        if field.word != loaded:
            loaded = field.word
            word = kc_word(key + 8 * loaded, size - 8 * loaded, keys.end)
        if field.width == 64:
            return word
        bits = (bits << field.width) | ((word >> field.shift) & (ALL >> (64 - field.width)))
    return bits
