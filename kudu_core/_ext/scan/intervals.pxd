# Numbers tested against the intervals of a set: one number, the bounds of many, and arrays of them.
#
# A ``Line`` is a set as the stored values of one mini-block meet it: these may be narrower than the cells
# of the column.  Every function here is given the values; none reads what is stored.
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from kudu_core._ext.base.bitpack cimport kc_mask    # its C text comes first: types, KC_CLONES
from kudu_core._ext.base.loads cimport load64
from kudu_core._ext.pages.rows cimport load_cell
from kudu_core._ext.scan.cell_set cimport (
    FLOAT,
    SIGNED,
    TOP_BIT,
    Set,
    kc_filter_bit,
    kc_wide_below,
)
from kudu_core._ext.scan.pieces cimport ALL, NONE, SOME

cdef extern from *:
    """
    /* out[i]: whether v[i] - low <= span, or (more) that or what it was. */
    #define KC_TESTS(T) \\
    KC_CLONES static void kc_within_##T(uint8_t *restrict out, const kc_##T *restrict v, int64_t n, \\
        kc_##T low, kc_##T span, int more) { \\
        if (more) for (int64_t i = 0; i < n; i++) out[i] |= (kc_##T)(v[i] - low) <= span; \\
        else for (int64_t i = 0; i < n; i++) out[i] = (kc_##T)(v[i] - low) <= span; \\
    }
    KC_TESTS(u8)
    KC_TESTS(u16)
    KC_TESTS(u32)
    KC_TESTS(u64)
    #undef KC_TESTS

    static void kc_within(uint8_t *out, const uint8_t *v, int64_t n, int width, uint64_t low, uint64_t span,
        int more) {
        switch (width) {
            case 1: kc_within_u8(out, v, n, (kc_u8)low, (kc_u8)span, more); break;
            case 2: kc_within_u16(out, (const kc_u16 *)v, n, (kc_u16)low, (kc_u16)span, more); break;
            case 4: kc_within_u32(out, (const kc_u32 *)v, n, (kc_u32)low, (kc_u32)span, more); break;
            default: kc_within_u64(out, (const kc_u64 *)v, n, low, span, more); break;
        }
    }

    /* out[i]: whether the filter has v[i] ^ flip. */
    #define KC_FILTER(T) { \\
            const kc_##T *v = (const kc_##T *)in; \\
            for (int64_t i = 0; i < n; i++) \\
                out[i] = (uint8_t)kc_filter_has(filter, kc_filter_bit(v[i] ^ flip, shift)); \\
            break; }
    static void kc_filtered(uint8_t *restrict out, const uint8_t *restrict in, int64_t n, int width,
        uint64_t flip, const uint64_t *restrict filter, int shift) {
        switch (width) {
            case 1: KC_FILTER(u8)
            case 2: KC_FILTER(u16)
            case 4: KC_FILTER(u32)
            default: KC_FILTER(u64)
        }
    }
    #undef KC_FILTER

    /* Bits of floats to unsigned numbers in their order: -NaN, -inf .. -0, 0 .. inf, NaN. */
    KC_INLINE uint64_t kc_float_key(uint64_t bits, int width) {
        if (width == 4) {
            const uint32_t b = (uint32_t)bits;
            return b ^ ((uint32_t)((int32_t)b >> 31) | 0x80000000U);
        }
        return bits ^ ((uint64_t)((int64_t)bits >> 63) | ((uint64_t)1 << 63));
    }
    KC_CLONES static void kc_float_keys(uint8_t *v, int64_t n, int width) {
        if (width == 4) {
            kc_u32 *words = (kc_u32 *)v;
            for (int64_t i = 0; i < n; i++) words[i] ^= (uint32_t)((int32_t)words[i] >> 31) | 0x80000000U;
        } else {
            kc_u64 *words = (kc_u64 *)v;
            for (int64_t i = 0; i < n; i++)
                words[i] ^= (uint64_t)((int64_t)words[i] >> 63) | ((uint64_t)1 << 63);
        }
    }
    KC_CLONES static uint64_t kc_largest(const uint8_t *v, int64_t n, int width) {
        if (width == 1) {
            kc_u8 most = 0;
            for (int64_t i = 0; i < n; i++) most = v[i] > most ? v[i] : most;
            return most;
        }
        kc_u16 most = 0;
        for (int64_t i = 0; i < n; i++) most = ((const kc_u16 *)v)[i] > most ? ((const kc_u16 *)v)[i] : most;
        return most;
    }
    """
    void kc_within(
        uint8_t* out, const uint8_t* values, int64_t n, int width, uint64_t low, uint64_t span, int more
    ) noexcept nogil
    void kc_filtered(
        uint8_t* out, const uint8_t* values, int64_t n, int width, uint64_t flip, const uint64_t* filter,
        int shift,
    ) noexcept nogil
    uint64_t kc_float_key(uint64_t bits, int width) noexcept nogil
    void kc_float_keys(uint8_t* values, int64_t n, int width) noexcept nogil
    uint64_t kc_largest(const uint8_t* values, int64_t n, int width) noexcept nogil

cdef enum:
    FEW_INTERVALS = 4           # tested one after the other


cdef struct Line:
    # The intervals that a mini-block is tested with.
    const uint64_t* lows
    const uint64_t* highs
    int64_t n
    int width                   # of its stored values
    uint64_t mask
    uint64_t flip
    int kind
    const Set* filtered         # the set, where it has a filter of these values; NULL: none


cdef inline int64_t first_reaching(const Line* line, uint64_t key) noexcept nogil:
    """The first interval that does not end below the key."""
    cdef int64_t lower = 0, upper = line.n, middle
    while lower < upper:
        middle = (lower + upper) >> 1
        if line.highs[middle] < key:
            lower = middle + 1
        else:
            upper = middle
    return lower


cdef inline int decide(const Line* line, uint64_t least, uint64_t most) noexcept nogil:
    """Whether all, none or some of the numbers least .. most may belong."""
    cdef int64_t i = first_reaching(line, least)
    if i == line.n or line.lows[i] > most:
        return NONE
    return ALL if line.lows[i] <= least and most <= line.highs[i] else SOME


cdef inline uint64_t line_key(const Line* line, uint64_t raw) noexcept nogil:
    """Where a stored value lies on the line."""
    if line.kind == FLOAT:
        return kc_float_key(raw, line.width)
    return (raw & line.mask) ^ line.flip


cdef inline bint belongs(const Line* line, uint64_t raw) noexcept nogil:
    cdef uint64_t key = line_key(line, raw)
    return decide(line, key, key) == ALL


cdef inline void _test_single(const Set* test, const Line* line, const uint8_t* values, int64_t n,
                              uint8_t* out) noexcept nogil:
    """Test decoded values with the filter, and those that it lets pass with the table."""
    cdef:
        int64_t i = 0, end
        uint64_t key, place, last = ~<uint64_t>0 >> test.table_shift
    kc_filtered(out, values, n, line.width, line.flip, test.filter, test.filter_shift)
    while i < n:
        if i + 8 <= n and load64(out + i) == 0:
            i += 8
            continue
        end = min(i + 8, n)
        while i < end:
            if out[i]:
                key = load_cell(values + i * line.width, line.width) ^ line.flip
                place = kc_filter_bit(key, test.table_shift)
                while test.table[place] != key and test.table[place] != test.filler:
                    place = (place + 1) & last
                out[i] = test.table[place] == key and key != test.filler
            i += 1


cdef inline void test_numbers(const Line* line, uint8_t* values, int64_t n, uint8_t* out) noexcept nogil:
    """Test decoded values; they are overwritten."""
    cdef:
        int64_t i
        uint64_t low, span
        int width = line.width
    if line.kind == FLOAT:
        kc_float_keys(values, n, width)
    if line.n <= FEW_INTERVALS:
        for i in range(line.n):
            # Flipping the sign bit is adding it: differences stay.
            low = line.lows[i] ^ line.flip
            span = line.highs[i] - line.lows[i]
            kc_within(out, values, n, width, low, span, i > 0)
        if line.n == 0:
            memset(out, 0, <size_t>n)
        return
    if line.filtered != NULL:
        _test_single(line.filtered, line, values, n, out)
        return
    for i in range(n):
        low = load_cell(values + i * width, width) ^ line.flip
        out[i] = decide(line, low, low) == ALL


cdef inline void test_wide(const Set* test, const uint8_t* values, int64_t n, uint8_t* out) noexcept nogil:
    """Test cells of 16 bytes."""
    cdef:
        int64_t i, k
        uint64_t[2] word
    for i in range(n):
        memcpy(word, values + 16 * i, 16)
        if test.kind == SIGNED:
            word[1] ^= TOP_BIT
        out[i] = 0
        for k in range(test.n):
            if not kc_wide_below(test.highs + 2 * k, word):
                out[i] = not kc_wide_below(word, test.lows + 2 * k)
                break
