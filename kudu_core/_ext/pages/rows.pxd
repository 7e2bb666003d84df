# Consecutive values of fixed mini-blocks, whole or in part: docs/format.md, "Page payload".
#
# For kernels that read ranges of rows of many pages.  A few values of a block cost what they are, not what
# the block is; only deltas and planes of bits are decoded from their start.  What is read is hostile:
# ``fixed_layout`` has checked sizes, positions of exceptions and ends of runs are checked here.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kudu_core._ext.base.bitpack cimport kc_unpack
from kudu_core._ext.pages.cell cimport END_WIDTH, Layout, Strings
from kudu_core._ext.base.loads cimport load16, load32, load64
from kudu_core._ext.pages.head cimport (
    BITSHUFFLE,
    BLOCK_HEAD_BYTES,
    CONSTANT,
    DELTA,
    FOR,
    NO_SCALE,
    PLAIN,
    RLE,
    Block,
)
from kudu_core._ext.base.decimals cimport kc_to_floats
from kudu_core._ext.base.integers cimport kc_fill, kc_sign_extend, kc_sum
from kudu_core._ext.base.planes cimport kc_unshuffle
from kudu_core._ext.base.status cimport BAD_VALUE, TRUNCATED

cdef enum:
    WORK_BYTES = 16384          # the widest block: 1,024 values of 16 bytes
    FEW_STEPS = 8               # exceptions of a DELTA block whose values are computed one by one

cdef extern from *:
    """
    #ifndef KUDU_CORE_BLOCKROWS
    #define KUDU_CORE_BLOCKROWS

    /* Rows lower .. lower + n - 1 of lane-packed values; `out` gets whole rows of lanes, from the one
       that holds `lower` on.  Returns where in `out` value `lower` is. */
    #define KC_WINDOW(T) \\
    static int64_t kc_window_##T(kc_##T *restrict out, const kc_##T *restrict in, int64_t lower, int64_t n, \\
        int bits, uint64_t base64) { \\
        enum { WORD = 8 * sizeof(kc_##T), LANES = KC_BLOCK / WORD }; \\
        const kc_##T mask = (kc_##T)kc_mask(bits), base = (kc_##T)base64; \\
        const int first = (int)(lower / LANES), last = (int)((lower + n - 1) / LANES); \\
        for (int row = first; row <= last; row++) { \\
            const int at = row * bits, shift = at % WORD; \\
            const kc_##T *low = in + at / WORD * LANES; \\
            kc_##T *to = out + (row - first) * LANES; \\
            if (shift + bits <= WORD) { \\
                for (int lane = 0; lane < LANES; lane++) \\
                    to[lane] = (kc_##T)(((kc_##T)(low[lane] >> shift) & mask) + base); \\
            } else { \\
                for (int lane = 0; lane < LANES; lane++) \\
                    to[lane] = (kc_##T)((((kc_##T)(low[lane] >> shift) \\
                        | (kc_##T)(low[lane + LANES] << (WORD - shift))) & mask) + base); \\
            } \\
        } \\
        return lower - (int64_t)first * LANES; \\
    }
    KC_WINDOW(u8)
    KC_WINDOW(u16)
    KC_WINDOW(u32)
    KC_WINDOW(u64)
    #undef KC_WINDOW

    #define KC_SEQUENCE(T) \\
        for (int64_t i = 0; i < n; i++) \\
            ((kc_##T *)out)[i] = (kc_##T)(kc_packed_at((const kc_u64 *)in, lower + i, bits) + base);

    /* Values lower .. lower + n - 1 of `count` packed ones, as kc_unpack gives them; n > 0. */
    static void kc_unpack_part(uint8_t *out, const uint8_t *in, int64_t count, int width, int bits,
        uint64_t base, int64_t lower, int64_t n, uint8_t *work) {
        int64_t skip;
        if (lower == 0 && n == count) {
            kc_unpack(out, in, count, width, bits, base);
            return;
        }
        if (count != KC_BLOCK) {
            switch (width) {
                case 1: KC_SEQUENCE(u8) break;
                case 2: KC_SEQUENCE(u16) break;
                case 4: KC_SEQUENCE(u32) break;
                default: KC_SEQUENCE(u64) break;
            }
            return;
        }
        switch (width) {
            case 1: skip = kc_window_u8((kc_u8 *)work, (const kc_u8 *)in, lower, n, bits, base); break;
            case 2: skip = kc_window_u16((kc_u16 *)work, (const kc_u16 *)in, lower, n, bits, base); break;
            case 4: skip = kc_window_u32((kc_u32 *)work, (const kc_u32 *)in, lower, n, bits, base); break;
            default: skip = kc_window_u64((kc_u64 *)work, (const kc_u64 *)in, lower, n, bits, base); break;
        }
        memcpy(out, work + skip * width, (size_t)(n * width));
    }
    #undef KC_SEQUENCE

    #define KC_RISE(T) { \
            kc_##T *to = (kc_##T *)out; \
            for (int64_t i = 0; i < n; i++) to[i] = (kc_##T)(first + (uint64_t)i * step); \
            break; }
    /* first, first + step, .. */
    KC_CLONES static void kc_rise(uint8_t *out, int64_t n, int width, uint64_t first, uint64_t step) {
        switch (width) {
            case 1: KC_RISE(u8)
            case 2: KC_RISE(u16)
            case 4: KC_RISE(u32)
            default: KC_RISE(u64)
        }
    }
    #undef KC_RISE

    #define KC_PATCH(T) \\
        for (int64_t k = 0; k < count; k++) { \\
            const int64_t position = at[k]; \\
            if (position <= last || position >= n) return k; \\
            last = position; \\
            if ((uint64_t)(position - lower) < (uint64_t)part) \\
                ((T *)out)[position - lower] = ((const T *)raws)[k]; \\
        } \\
        break;
    typedef struct __attribute__((packed, may_alias)) { uint64_t low, high; } kc_wide;
    /* Put those of `count` exceptions of n values that are among values lower .. lower + part - 1 in their
       places.  Returns the first whose position does not ascend or lies outside the block, or -1. */
    static int64_t kc_patch(uint8_t *out, int64_t lower, int64_t part, const uint8_t *positions,
        const uint8_t *raws, int64_t count, int64_t n, int width) {
        const kc_u16 *at = (const kc_u16 *)positions;
        int64_t last = -1;
        switch (width) {
            case 1: KC_PATCH(kc_u8)
            case 2: KC_PATCH(kc_u16)
            case 4: KC_PATCH(kc_u32)
            case 8: KC_PATCH(kc_u64)
            default: KC_PATCH(kc_wide)
        }
        return -1;
    }
    #undef KC_PATCH
    #endif
    """
    int64_t kc_patch(
        uint8_t* out, int64_t lower, int64_t part, const uint8_t* positions, const uint8_t* raws,
        int64_t count, int64_t n, int width,
    ) noexcept nogil
    void kc_rise(uint8_t* out, int64_t n, int width, uint64_t first, uint64_t step) noexcept nogil
    void kc_unpack_part(
        uint8_t* out, const uint8_t* data, int64_t count, int width, int bits, uint64_t base,
        int64_t lower, int64_t n, uint8_t* work,
    ) noexcept nogil


cdef inline bint fits_fast_floats(const Block* block) noexcept nogil:
    """Whether base .. base + 2**bits - 1 lies within +-2**51."""
    return block.bits <= 50 and block.base + (<uint64_t>1 << 50) < <uint64_t>1 << 51


cdef inline uint64_t load_cell(const uint8_t* p, int width) noexcept nogil:
    if width == 8:
        return load64(p)
    if width == 4:
        return load32(p)
    return load16(p) if width == 2 else p[0]


cdef inline int check_exceptions(const Block* block, const Layout* layout, int64_t* at) noexcept nogil:
    """Positions ascend and lie in the block."""
    cdef int64_t k, position, last = -1
    for k in range(block.exceptions):
        position = load16(layout.positions + 2 * k)
        if position <= last or position >= block.count:
            at[0] = layout.positions - block.body + block.offset + BLOCK_HEAD_BYTES + 2 * k
            return BAD_VALUE
        last = position
    return 0


cdef inline int _patch_part(
    const Block* block, const Layout* layout, int64_t lower, int64_t n, uint8_t* out, int64_t* at
) noexcept nogil:
    """Put the exceptions among values lower .. lower + n - 1 in their places; positions ascend."""
    cdef int64_t bad = kc_patch(
        out, lower, n, layout.positions, layout.raws, block.exceptions, block.count, layout.width
    )
    if bad < 0:
        return 0
    at[0] = layout.positions - block.body + block.offset + BLOCK_HEAD_BYTES + 2 * bad
    return BAD_VALUE


cdef inline int64_t run_of(const Block* block, const Layout* layout, int64_t i) noexcept nogil:
    """How many runs end at or before value i."""
    cdef int64_t first = 0, end = <int64_t>block.base, middle
    while first < end:
        middle = (first + end) >> 1
        if load16(layout.packed + 2 * middle) <= i:
            first = middle + 1
        else:
            end = middle
    return first


cdef inline int _runs_part(
    const Block* block, const Layout* layout, int64_t lower, int64_t n, uint8_t* out, int64_t* at
) noexcept nogil:
    cdef:
        int64_t run = run_of(block, layout, lower) if lower else 0
        int64_t begin = lower, end = lower, upper = lower + n, i
        int width = layout.width
    at[0] = block.offset + BLOCK_HEAD_BYTES
    while begin < upper:
        if run >= <int64_t>block.base:
            return TRUNCATED
        end = load16(layout.packed + 2 * run)
        if end <= begin:
            return BAD_VALUE
        if end > upper:
            end = upper
        if width == 16:
            for i in range(begin - lower, end - lower):
                memcpy(out + 16 * i, layout.raws + 16 * run, 16)
        else:
            kc_fill(
                out + (begin - lower) * width, end - begin, width,
                load_cell(layout.raws + run * width, width),
            )
        begin = end
        run += 1
    # A block that is decoded whole is checked whole.
    if n == block.count and (run != <int64_t>block.base or load16(layout.packed + 2 * (run - 1)) != n):
        return BAD_VALUE
    return 0


cdef inline void _steps_part(
    const Block* block, const Layout* layout, int64_t lower, int64_t n, uint8_t* out
) noexcept nogil:
    """Values of a DELTA block whose deltas are all equal but for a few checked exceptions."""
    cdef:
        uint64_t word = block.base + layout.least * <uint64_t>lower, raw
        int64_t k = 0, i = 0, position = 0, stop
        int width = layout.width
    # The delta of value 0 means nothing, be it an exception or not.
    while k < block.exceptions:
        position = load16(layout.positions + 2 * k)
        if position > lower:
            break
        if position:
            raw = 0
            memcpy(&raw, layout.raws + k * width, <size_t>width)
            word += raw - layout.least
        k += 1
    while i < n:
        stop = n
        if k < block.exceptions:
            position = load16(layout.positions + 2 * k) - lower
            if position < n:
                stop = position
        kc_rise(out + i * width, stop - i, width, word, layout.least)
        word += <uint64_t>(stop - i) * layout.least
        i = stop
        if i < n:
            raw = 0
            memcpy(&raw, layout.raws + k * width, <size_t>width)
            word += raw - layout.least
            k += 1


cdef inline int deltas_of(
    const Block* block, const Layout* layout, int64_t n, uint8_t* out, int64_t* at
) noexcept nogil:
    """Write the deltas of values 0 .. n - 1 of a DELTA block, or of more; the first means nothing."""
    cdef int width = layout.width
    if block.bits:
        n = block.count         # unpacked whole
        kc_unpack(out, layout.packed, n, width, block.bits, layout.least)
    else:
        kc_fill(out, n, width, layout.least)
    return _patch_part(block, layout, 0, n, out, at) if block.exceptions else 0


cdef inline int _deltas_part(
    const Block* block, const Layout* layout, int64_t lower, int64_t n, uint8_t* out, uint8_t* work,
    int64_t* at,
) noexcept nogil:
    cdef:
        int64_t upper = lower + n
        int width = layout.width, status = 0
        uint8_t* to = work if lower else out
    if block.bits == 0 and block.exceptions <= FEW_STEPS:
        status = check_exceptions(block, layout, at)
        if status == 0:
            _steps_part(block, layout, lower, n, out)
        return status
    if upper < block.count:
        to = work               # unpacked whole
        upper = block.count
    status = deltas_of(block, layout, upper, to, at)
    kc_sum(to, lower + n, width, block.base)
    if to == work:
        memcpy(out, work + lower * width, <size_t>(n * width))
    return status


cdef inline int stored_part(
    const Block* block, const Layout* layout, int64_t lower, int64_t n, uint8_t* out, uint8_t* work,
    int64_t* at,
) noexcept nogil:
    """Write values lower .. lower + n - 1 <= count, ``layout.width`` bytes each; 0 or a status.

    ``work`` has WORK_BYTES, and is not ``out``; for the whole block it is not used and may be.
    """
    cdef int width = layout.width
    if n == 0:
        return 0
    if block.kind == PLAIN:
        memcpy(out, layout.packed + lower * width, <size_t>(n * width))
        return 0
    if block.kind == RLE:
        return _runs_part(block, layout, lower, n, out, at)
    if block.kind == BITSHUFFLE:
        if n == block.count:
            kc_unshuffle(out, layout.packed, n, width)
        else:
            kc_unshuffle(work, layout.packed, block.count, width)
            memcpy(out, work + lower * width, <size_t>(n * width))
        return 0
    if block.kind == DELTA:
        return _deltas_part(block, layout, lower, n, out, work, at)
    if block.kind == FOR:
        kc_unpack_part(out, layout.packed, block.count, width, block.bits, block.base, lower, n, work)
    else:
        kc_fill(out, n, width, block.base)
    if block.scale != NO_SCALE:
        kc_to_floats(out, n, width, block.scale, fits_fast_floats(block))
    if block.exceptions:
        return _patch_part(block, layout, lower, n, out, at)
    return 0


cdef inline int values_part(
    const Block* block, const Layout* layout, int width, int64_t lower, int64_t n, uint8_t* out,
    uint8_t* work, int64_t* at,
) noexcept nogil:
    """The same, ``width`` bytes each: narrow values become 16 bytes."""
    cdef:
        uint8_t narrow[8 * 1024]
        int status
    if layout.width == width:
        return stored_part(block, layout, lower, n, out, work, at)
    status = stored_part(block, layout, lower, n, narrow, work, at)
    if status == 0:
        kc_sign_extend(out, narrow, n)
    return status


cdef inline int string_ends(
    const Strings* part, int64_t lower, int64_t n, uint32_t* begins, uint32_t* sizes, uint8_t* work,
    int64_t* at,
) noexcept nogil:
    """Where in ``part.data`` values lower .. lower + n - 1 of a STRING_PLAIN block begin, and their sizes."""
    cdef:
        uint32_t ends[1024]
        int64_t first = lower - 1 if lower else 0, i
        uint32_t begin = 0, end
        const uint32_t* own = ends
    if n == 0:
        return 0
    if part.bits == 0:
        for i in range(n):
            begins[i] = <uint32_t>((lower + i) * part.length)
            sizes[i] = <uint32_t>part.length
        return 0
    at[0] = part.ends - part.data + part.offset
    kc_unpack_part(
        <uint8_t*>ends, part.ends, part.count, END_WIDTH, part.bits, 0, first, lower + n - first, work
    )
    if lower:
        begin = ends[0]
        own += 1
    for i in range(n):
        end = own[i]
        if end < begin or end > <uint64_t>part.size:
            return BAD_VALUE
        begins[i] = begin
        sizes[i] = end - begin
        begin = end
    return 0
