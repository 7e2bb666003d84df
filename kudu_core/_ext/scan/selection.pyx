"""Which rows of a file a scan reads, and which of them its predicate leaves: tests on what is stored.

A ``Selection`` is a list of ranges of rows of one file, cut into *pieces* that lie in one mini-block
each.  ``test`` narrows it by a set of values of one column, decided in this order: by the state of the page
(a zone map, known to the caller), by the head of the mini-block (a constant, a frame of reference, runs),
by the values unpacked, never by decoded strings where there is a dictionary.  ``scanread`` reads columns of
the rows that are left.

A set of values is a list of closed intervals on a line of unsigned integers on which the order of the cells
is that of the numbers (``CellSet``), so one comparison of unsigned words decides all types; NULLs are told
apart.  The pages of a file are held as the page cache keeps them (``ScanFile``).  What is read is hostile: a
broken page raises ``PageError``, a form that is not tested here ``NeedsGeneralPath``; the caller then asks
the general path, whose answer or error stands.  A test that fails half way has removed only rows that
it was right to remove.
"""
cimport cython
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from kudu_core._ext.base.bitmap cimport kc_bit
from kudu_core._ext.pages.cell cimport Layout, Strings, fixed_layout, strings_open
from kudu_core._ext.pages.head cimport (
    BLOCK_ROWS,
    CLASS_BINARY,
    CLASS_FIXED,
    CONSTANT,
    FOR,
    NO_SCALE,
    PAGE_ROWS,
    RLE,
    STRING_PLAIN,
    Block,
    Page,
    block_open,
    load16,
    page_open,
    page_values,
)
from kudu_core._ext.pages.rows cimport (
    WORK_BYTES,
    check_exceptions,
    kc_unpack_part,
    load_cell,
    run_of,
    stored_part,
    string_ends,
    values_part,
)
from kudu_core._ext.pages.work cimport kc_mask, kc_to_floats
from kudu_core._ext.base.status cimport BAD_VALUE, TRUNCATED, raise_status

import numpy as np

from kudu_core._ext.base.status import NeedsGeneralPath

cdef extern from *:
    """
    #include <string.h>
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
    /* Two words, the high one last, in the order of unsigned numbers. */
    KC_INLINE int kc_wide_below(const uint64_t *a, const uint64_t *b) {
        return a[1] < b[1] || (a[1] == b[1] && a[0] < b[0]);
    }
    /* Which bits of a byte are set, one after the other. */
    static uint16_t kc_set_bits[256][8];
    static uint8_t kc_set_count[256];
    static void kc_fill_set_bits(void) {
        for (int byte = 0; byte < 256; byte++) {
            int count = 0;
            for (int bit = 0; bit < 8; bit++) if (byte >> bit & 1) kc_set_bits[byte][count++] = (uint16_t)bit;
            kc_set_count[byte] = (uint8_t)count;
        }
    }
    /* Positions of the rows that a mask of bytes 0 and 1 chooses, plus `first`; up to 7 numbers more are
       written than there are. */
    static void kc_positions(uint16_t *out, const uint8_t *mask, int64_t n, int first) {
        int64_t i = 0;
        for (; i + 8 <= n; i += 8) {
            uint64_t word;
            memcpy(&word, mask + i, 8);
            if (word == 0) continue;
            const int byte = (int)((word * 0x0102040810204080ULL) >> 56);
            const uint16_t *bits = kc_set_bits[byte], at = (uint16_t)(first + i);
            for (int k = 0; k < 8; k++) out[k] = (uint16_t)(bits[k] + at);
            out += kc_set_count[byte];
        }
        for (; i < n; i++) if (mask[i]) *out++ = (uint16_t)(first + i);
    }
    KC_CLONES static int64_t kc_mask_sum(const uint8_t *mask, int64_t n) {
        int64_t total = 0;
        for (int64_t i = 0; i < n; i++) total += mask[i];
        return total;
    }
    KC_CLONES static void kc_mask_and(uint8_t *restrict mask, const uint8_t *restrict other, int64_t n) {
        for (int64_t i = 0; i < n; i++) mask[i] &= other[i];
    }
    KC_CLONES static void kc_to_mask(uint8_t *restrict out, const uint8_t *restrict in, int64_t n) {
        for (int64_t i = 0; i < n; i++) out[i] = in[i] != 0;
    }
    """
    void kc_within(
        uint8_t* out, const uint8_t* values, int64_t n, int width, uint64_t low, uint64_t span, int more
    ) noexcept nogil
    uint64_t kc_float_key(uint64_t bits, int width) noexcept nogil
    void kc_float_keys(uint8_t* values, int64_t n, int width) noexcept nogil
    uint64_t kc_largest(const uint8_t* values, int64_t n, int width) noexcept nogil
    bint kc_wide_below(const uint64_t* a, const uint64_t* b) noexcept nogil
    void kc_fill_set_bits() noexcept nogil
    void kc_positions(uint16_t* out, const uint8_t* mask, int64_t n, int first) noexcept nogil
    int64_t kc_mask_sum(const uint8_t* mask, int64_t n) noexcept nogil
    void kc_mask_and(uint8_t* mask, const uint8_t* other, int64_t n) noexcept nogil
    void kc_to_mask(uint8_t* out, const uint8_t* bytes_, int64_t n) noexcept nogil

cdef enum:
    NUMBER = 0                  # how the cells of a CellSet lie on the line of unsigned integers
    SIGNED = 1
    FLOAT = 2
    CODE = 3
    STRING = 4

    SLOT = 16                   # bytes of a short word
    MANY_WORDS = 1 << 16
    FEW_INTERVALS = 4           # tested one after the other
    MOST_ROWS = 1 << 28
    NEEDS_GENERAL_PATH = -102

cdef:
    uint64_t SIGN = <uint64_t>1 << 63

kc_fill_set_bits()


# ------------------------------------------------------------------------------------ pages of a file

@cython.final
@cython.auto_pickle(False)
cdef class ScanFile:
    """Which pages of a file its ``ScanColumn``s hold: those that the page cache keeps.

    The cache calls ``forget`` before it drops one.  All of this happens with the GIL; a call that
    reads pages without it has its own references.
    """

    def __init__(self):
        self.places = {}

    @property
    def pages(self):
        """How many are held."""
        return len(self.places)

    @property
    def held(self):
        """Their places in the cache."""
        return tuple(self.places)

    def forget(self, place):
        """The cache is about to drop a page: False where it was used since it was last asked."""
        cdef:
            ScanColumn column
            int64_t number
        held = self.places.get(place)
        if held is None:
            return True
        column, number = held
        if column.touched[number]:
            column.touched[number] = 0
            return False
        del self.places[place]
        column.pages[number].data = NULL
        column.payloads[number] = None
        return True

    def close(self):
        """Let go of every page; nothing is held from now on."""
        cdef:
            ScanColumn column
            int64_t number
        self.closed = True
        places, self.places = self.places, {}
        for column, number in places.values():
            column.pages[number].data = NULL
            column.payloads[number] = None


@cython.final
@cython.auto_pickle(False)
cdef class ScanColumn:
    """One stored column of a file: its dictionary, and the pages that are held.

    ``load(numbers)`` gives a list of (checked payload, place in the cache or None: not kept) for ascending
    page numbers; ``stored_width``: of the values or codes in the pages, 0 for strings; ``words``: (offsets
    int32, data); ``remember(place, payload)`` puts a page, when it is held, back into a cache that has
    dropped it meanwhile.  Raises ValueError for a width or a dictionary that is none.
    """

    def __init__(
        self, ScanFile file not None, load, int64_t rows, int stored_width, words=None, remember=None
    ):
        cdef:
            const int32_t[::1] ends
            const uint8_t[::1] data
            const uint32_t[::1] sizes
            uint8_t[::1] slots
            int64_t i, longest = 0
        if stored_width not in (0, 1, 2, 4, 8, 16) or rows < 0:
            raise ValueError(f"{rows} cells of {stored_width} bytes")
        self.file = file
        self.load = load
        self.remember = remember
        self.rows = rows
        self.width = stored_width
        self.page_count = (rows + PAGE_ROWS - 1) // PAGE_ROWS
        self.pages = <Page*>PyMem_RawCalloc(self.page_count + 1, sizeof(Page))
        self.touched = <uint8_t*>PyMem_RawCalloc(self.page_count + 1, 1)
        if self.pages == NULL or self.touched == NULL:
            raise MemoryError
        self.payloads = [None] * self.page_count
        if words is None:
            return
        if stored_width not in (1, 2):
            raise ValueError(f"codes of {stored_width} bytes")
        ends, data = words
        self.words.count = ends.shape[0] - 1
        if not 1 <= self.words.count <= MANY_WORDS or ends[0] < 0 or ends[self.words.count] > data.shape[0]:
            raise ValueError("offsets of words leave the data")
        for i in range(self.words.count):
            if ends[i + 1] < ends[i]:
                raise ValueError("offsets of words descend")
            longest = max(longest, ends[i + 1] - ends[i])
        self.words.ends = &ends[0]
        self.words.data = &data[0] if data.shape[0] else <const uint8_t*>&ends[0]
        kept_sizes = np.diff(np.asarray(ends)).astype(np.uint32)
        sizes = kept_sizes
        self.words.sizes = &sizes[0]
        kept_slots = None
        if longest <= SLOT:
            kept_slots = np.zeros(SLOT * self.words.count, np.uint8)
            slots = kept_slots
            for i in range(self.words.count):
                if ends[i + 1] > ends[i]:
                    memcpy(&slots[SLOT * i], self.words.data + ends[i], <size_t>(ends[i + 1] - ends[i]))
            self.words.slots = &slots[0]
        self.kept = (words, kept_sizes, kept_slots)

    def __dealloc__(self):
        PyMem_RawFree(self.pages)
        PyMem_RawFree(self.touched)

    cdef int pin(
        self, const int64_t* numbers, const uint8_t* wanted, int64_t n, Page* pages, list held
    ) except -1:
        """Copy the heads of the wanted pages to ``pages``, and references to them to ``held``."""
        cdef:
            int64_t k
            list missing = None
            list places = None
        for k in range(n):
            pages[k].data = NULL
            if not wanted[k]:
                continue
            if numbers[k] >= self.page_count:
                raise IndexError(f"page {numbers[k]} of {self.page_count}")
            if self.pages[numbers[k]].data != NULL:
                self.touched[numbers[k]] = 1
                pages[k] = self.pages[numbers[k]]
                held.append(self.payloads[numbers[k]])
            elif missing is None:
                missing, places = [numbers[k]], [k]
            else:
                missing.append(numbers[k])
                places.append(k)
        if missing is not None:
            for k, (payload, place) in zip(places, self.load(missing), strict=True):
                held.append(payload)
                self.hold(numbers[k], payload, place, &pages[k])
        return 0

    cdef int hold(self, int64_t number, payload, place, Page* page) except -1:
        cdef:
            const uint8_t[::1] view = payload
            int64_t at = 0, rows = self.rows - number * PAGE_ROWS
            int status = page_open(
                page, &view[0] if view.shape[0] else NULL, view.shape[0],
                CLASS_FIXED if self.width else CLASS_BINARY, self.width, &at,
            )
        if status == 0 and page.rows != (PAGE_ROWS if rows > PAGE_ROWS else rows):
            status = BAD_VALUE
        if status < 0:
            return raise_status(status, at)
        if place is not None and self.pages[number].data == NULL and not self.file.closed:
            self.payloads[number] = payload
            self.file.places[place] = (self, number)
            self.pages[number] = page[0]
            self.touched[number] = 0
            if self.remember is not None:
                self.remember(place, payload)   # the cache may have dropped it before it was held
        return 0


# ------------------------------------------------------------------------------------- sets of values

cdef struct Set:
    int kind
    int width
    bint nulls
    uint64_t flip
    int64_t n
    uint64_t* lows              # n, or 2 n words
    uint64_t* highs
    int64_t narrow_n            # of 16-byte cells: what of the set fits into 8 bytes
    uint64_t* narrow_lows
    uint64_t* narrow_highs
    int64_t words               # of codes
    const uint8_t* data         # of strings: the ends of the half-open intervals
    const int64_t* offsets      # low 0, high 0, low 1, ..
    bint open_end               # the last one has no upper end


@cython.final
@cython.auto_pickle(False)
cdef class CellSet:
    """A set of values of one column, for ``Selection.test``.

    Parameters
    ----------
    kind
        How cells become unsigned numbers in the order of the cells: 0 as they are, 1 with the sign bit
        flipped, 2 floats (-NaN, -inf .. -0.0, 0.0 .. inf, NaN), 3 codes of a dictionary.
    width
        Bytes of a cell as stored.
    lows, highs : (n,) uint64; (n, 2) of 16-byte cells, the low word first
        Closed intervals, ascending and apart.
    nulls
        Whether NULL belongs to the set.
    words
        Of codes: how many there are.

    Of strings without a dictionary: ``CellSet.of_strings``.  ValueError for intervals that are none.
    """

    cdef:
        Set c
        tuple kept

    def __init__(self, int kind, int width, lows, highs, bint nulls, int64_t words=0):
        cdef:
            const uint64_t[::1] low = np.ascontiguousarray(lows, np.uint64).reshape(-1)
            const uint64_t[::1] high = np.ascontiguousarray(highs, np.uint64).reshape(-1)
            int64_t i, step = 2 if width == 16 else 1
        if not 0 <= kind <= CODE or width not in (1, 2, 4, 8, 16) or (kind == FLOAT and width not in (4, 8)):
            raise ValueError(f"kind {kind} of cells of {width} bytes")
        if width == 16 and kind != SIGNED:
            raise ValueError("cells of 16 bytes are signed")
        if kind == CODE and (width > 2 or not 1 <= words <= MANY_WORDS):
            raise ValueError(f"{words} words with codes of {width} bytes")
        if low.shape[0] != high.shape[0] or low.shape[0] % step:
            raise ValueError(f"{low.shape[0]} lower and {high.shape[0]} upper ends")
        self.c.kind = kind
        self.c.width = width
        self.c.nulls = nulls
        self.c.words = words
        self.c.n = low.shape[0] // step
        self.c.flip = SIGN >> (64 - 8 * min(width, 8)) if kind == SIGNED else 0
        self.c.lows = <uint64_t*>PyMem_RawCalloc(2 * low.shape[0] + 1, 8)
        self.c.narrow_lows = <uint64_t*>PyMem_RawCalloc(2 * self.c.n + 1, 8)
        if self.c.lows == NULL or self.c.narrow_lows == NULL:
            raise MemoryError
        self.c.highs = self.c.lows + low.shape[0]
        self.c.narrow_highs = self.c.narrow_lows + self.c.n
        for i in range(low.shape[0]):
            self.c.lows[i] = low[i]
            self.c.highs[i] = high[i]
            if width < 8 and (high[i] >> (8 * width) or low[i] >> (8 * width)):
                raise ValueError(f"an end is wider than {width} bytes")
        for i in range(self.c.n):
            if not self._ascends(i, step):
                raise ValueError("intervals are not ascending and apart")
            if width == 16:
                self._narrow(i)

    @staticmethod
    def of_strings(const uint8_t[::1] data not None, const int64_t[::1] offsets not None, bint open_end,
                   bint nulls):
        """A set of strings: half-open intervals, ascending and apart.

        ``offsets`` (2 n + 1,) into ``data``: lower end, upper end of each; with ``open_end`` the last
        one has no upper end (an empty one is given).
        """
        cdef:
            CellSet self = CellSet.__new__(CellSet)
            int64_t i
        if offsets.shape[0] % 2 == 0 or offsets[0] < 0 or offsets[offsets.shape[0] - 1] > data.shape[0]:
            raise ValueError("ends of intervals leave the data")
        for i in range(offsets.shape[0] - 1):
            if offsets[i + 1] < offsets[i]:
                raise ValueError("offsets descend")
        self.c.kind = STRING
        self.c.nulls = nulls
        self.c.n = offsets.shape[0] // 2
        self.c.open_end = open_end and self.c.n
        self.c.offsets = &offsets[0]
        self.c.data = &data[0] if data.shape[0] else <const uint8_t*>&offsets[0]
        self.kept = (data, offsets)
        return self

    def __dealloc__(self):
        PyMem_RawFree(self.c.lows)
        PyMem_RawFree(self.c.narrow_lows)

    cdef bint _ascends(self, int64_t i, int64_t step):
        if step == 2:
            return not kc_wide_below(self.c.highs + 2 * i, self.c.lows + 2 * i) and (
                i == 0 or kc_wide_below(self.c.highs + 2 * i - 2, self.c.lows + 2 * i)
            )
        return self.c.lows[i] <= self.c.highs[i] and (i == 0 or self.c.highs[i - 1] < self.c.lows[i])

    cdef void _narrow(self, int64_t i):
        """What of a wide interval are sign-extended 8-byte numbers, their sign bit flipped."""
        cdef:
            uint64_t[2] least
            uint64_t[2] most
            uint64_t low, high
        # On the line with the flipped sign these are -2**63 and 2**63 - 1.
        least[0] = SIGN
        least[1] = SIGN - 1
        most[0] = SIGN - 1
        most[1] = SIGN
        if kc_wide_below(self.c.highs + 2 * i, least) or kc_wide_below(most, self.c.lows + 2 * i):
            return
        low = least[0] if kc_wide_below(self.c.lows + 2 * i, least) else self.c.lows[2 * i]
        high = most[0] if kc_wide_below(most, self.c.highs + 2 * i) else self.c.highs[2 * i]
        self.c.narrow_lows[self.c.narrow_n] = low ^ SIGN
        self.c.narrow_highs[self.c.narrow_n] = high ^ SIGN
        self.c.narrow_n += 1


cdef struct Line:
    # The intervals that a mini-block is tested with.
    const uint64_t* lows
    const uint64_t* highs
    int64_t n
    int width                   # of its stored values
    uint64_t mask
    uint64_t flip
    int kind


cdef inline int64_t _first_reaching(const Line* line, uint64_t key) noexcept nogil:
    """The first interval that does not end below the key."""
    cdef int64_t lower = 0, upper = line.n, middle
    while lower < upper:
        middle = (lower + upper) >> 1
        if line.highs[middle] < key:
            lower = middle + 1
        else:
            upper = middle
    return lower


cdef inline int _decide(const Line* line, uint64_t least, uint64_t most) noexcept nogil:
    """Whether all, none or some of the numbers least .. most may belong."""
    cdef int64_t i = _first_reaching(line, least)
    if i == line.n or line.lows[i] > most:
        return NONE
    return ALL if line.lows[i] <= least and most <= line.highs[i] else SOME


cdef inline uint64_t _key(const Line* line, uint64_t raw) noexcept nogil:
    if line.kind == FLOAT:
        return kc_float_key(raw, line.width)
    return (raw & line.mask) ^ line.flip


cdef inline bint _belongs(const Line* line, uint64_t raw) noexcept nogil:
    cdef uint64_t key = _key(line, raw)
    return _decide(line, key, key) == ALL


cdef void _test_numbers(const Line* line, uint8_t* values, int64_t n, uint8_t* out) noexcept nogil:
    """Test decoded values, which are lost."""
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
    for i in range(n):
        low = load_cell(values + i * width, width) ^ line.flip
        out[i] = _decide(line, low, low) == ALL


cdef void _test_wide(const Set* test, const uint8_t* values, int64_t n, uint8_t* out) noexcept nogil:
    cdef:
        int64_t i, k
        uint64_t[2] word
    for i in range(n):
        memcpy(word, values + 16 * i, 16)
        if test.kind == SIGNED:
            word[1] ^= SIGN
        out[i] = 0
        for k in range(test.n):
            if not kc_wide_below(test.highs + 2 * k, word):
                out[i] = not kc_wide_below(word, test.lows + 2 * k)
                break


# -------------------------------------------------------------------------- testing a fixed mini-block

cdef struct Scratch:
    uint8_t cells[WORK_BYTES]
    uint8_t work[WORK_BYTES]
    uint8_t passed[1024]        # of the values
    uint8_t rows[1024]          # of the rows
    uint32_t begins[1024]
    uint32_t sizes[1024]


cdef inline uint64_t _decimal_key(int64_t integer, int width, int scale) noexcept nogil:
    cdef uint64_t word = <uint64_t>integer
    kc_to_floats(<uint8_t*>&word, 1, width, scale, 0)
    return kc_float_key(word, width)


cdef int _test_decimals(
    const Line* line, const Block* block, const Layout* layout, int64_t lower, int64_t n, Scratch* s
) noexcept nogil:
    """Floats stored as integers: the ends become integers.  NEEDS_GENERAL_PATH: decode them.

    A quotient grows with its dividend, so the integers of an interval are neighbours.
    """
    cdef:
        int64_t base = <int64_t>block.base, i, low, high, middle
        int64_t most = <int64_t>kc_mask(block.bits)
        int width = line.width, state
        uint64_t first
    if width == 4:
        base = <int64_t><int32_t><uint32_t>block.base
    if block.bits > 53 or base > (<int64_t>1 << 53) or base < -(<int64_t>1 << 53):
        return NEEDS_GENERAL_PATH
    if width == 4 and base + most > 0x7FFFFFFF:
        return NEEDS_GENERAL_PATH
    first = _decimal_key(base, width, block.scale)
    state = _decide(line, first, _decimal_key(base + most, width, block.scale))
    if state != SOME:
        return state
    i = _first_reaching(line, first)
    if i + 1 < line.n and line.lows[i + 1] <= _decimal_key(base + most, width, block.scale):
        return NEEDS_GENERAL_PATH  # more than one interval: compare floats
    low = 0
    high = most + 1
    while low < high:           # the first integer that is not below
        middle = (low + high) >> 1
        if _decimal_key(base + middle, width, block.scale) < line.lows[i]:
            low = middle + 1
        else:
            high = middle
    first = <uint64_t>low
    high = most + 1
    while low < high:           # the first that is above
        middle = (low + high) >> 1
        if _decimal_key(base + middle, width, block.scale) <= line.highs[i]:
            low = middle + 1
        else:
            high = middle
    if <uint64_t>low == first:
        return NONE
    kc_unpack_part(s.cells, layout.packed, block.count, width, block.bits, 0, lower, n, s.work)
    kc_within(s.passed, s.cells, n, width, first, <uint64_t>low - 1 - first, 0)
    return SOME


cdef int _test_frame(
    const Line* line, const Block* block, const Layout* layout, int64_t lower, int64_t n, Scratch* s
) noexcept nogil:
    """By the head, else by the packed values.  NEEDS_GENERAL_PATH: decode them."""
    cdef:
        uint64_t least, most, low
        int64_t i
        int state
    if block.scale != NO_SCALE and block.kind == FOR:
        return _test_decimals(line, block, layout, lower, n, s)
    if block.kind == CONSTANT:
        low = block.base
        if block.scale != NO_SCALE:
            kc_to_floats(<uint8_t*>&low, 1, line.width, block.scale, 0)
        return ALL if _belongs(line, low) else NONE
    if line.kind == FLOAT:
        return NEEDS_GENERAL_PATH
    least = (block.base & line.mask) ^ line.flip
    most = least + kc_mask(block.bits)
    if most < least or most > line.mask:
        return NEEDS_GENERAL_PATH  # wraps around
    state = _decide(line, least, most)
    if state != SOME:
        return state
    i = _first_reaching(line, least)
    if i + 1 < line.n and line.lows[i + 1] <= most:
        return NEEDS_GENERAL_PATH
    low = line.lows[i] ^ line.flip
    kc_unpack_part(
        s.cells, layout.packed, block.count, line.width, block.bits, block.base - low, lower, n, s.work
    )
    kc_within(s.passed, s.cells, n, line.width, 0, line.highs[i] - line.lows[i], 0)
    return SOME


cdef int _test_runs(
    const Line* line, const Block* block, const Layout* layout, int64_t lower, int64_t n, Scratch* s,
    int64_t* at,
) noexcept nogil:
    cdef:
        int64_t run = run_of(block, layout, lower), begin = lower, end, upper = lower + n
        int width = line.width
        bint some = False, every = True, found
    at[0] = block.offset
    while begin < upper:
        if run >= <int64_t>block.base:
            return TRUNCATED
        end = load16(layout.packed + 2 * run)
        if end <= begin:
            return BAD_VALUE
        if end > upper:
            end = upper
        found = _belongs(line, load_cell(layout.raws + run * width, width))
        some |= found
        every &= found
        memset(s.passed + begin - lower, found, <size_t>(end - begin))
        begin = end
        run += 1
    return ALL if every else SOME if some else NONE


cdef int _test_exceptions(
    const Line* line, const Block* block, const Layout* layout, int64_t lower, int64_t n, int state,
    Scratch* s, int64_t* at,
) noexcept nogil:
    """What the packing leaves out, among values lower .. lower + n - 1."""
    cdef:
        int64_t k, position
        int width = line.width
        int status = check_exceptions(block, layout, at)
    if status < 0:
        return status
    for k in range(block.exceptions):
        position = load16(layout.positions + 2 * k) - lower
        if 0 <= position < n:
            if state != SOME:
                memset(s.passed, state == ALL, <size_t>n)
                state = SOME
            s.passed[position] = _belongs(line, load_cell(layout.raws + k * width, width))
    return state


cdef int _test_values(
    const Set* test, const Block* block, const Layout* layout, int64_t lower, int64_t n, Scratch* s,
    int64_t* at,
) noexcept nogil:
    """State of values lower .. lower + n - 1, in ``s.passed`` where it is SOME; or a status."""
    cdef:
        Line line
        int state = NEEDS_GENERAL_PATH, status
    line.kind = test.kind
    line.width = layout.width
    line.mask = kc_mask(8 * layout.width) if layout.width < 16 else 0
    line.lows, line.highs, line.n, line.flip = test.lows, test.highs, test.n, test.flip
    if test.width == 16:
        if layout.width == 16:
            status = values_part(block, layout, 16, lower, n, s.cells, s.work, at)
            if status == 0:
                _test_wide(test, s.cells, n, s.passed)
            return SOME if status == 0 else status
        line.lows, line.highs, line.n = test.narrow_lows, test.narrow_highs, test.narrow_n
        line.kind, line.flip = SIGNED, SIGN
    if block.kind == RLE:
        return _test_runs(&line, block, layout, lower, n, s, at)
    if block.kind == FOR or block.kind == CONSTANT:
        state = _test_frame(&line, block, layout, lower, n, s)
        if state != NEEDS_GENERAL_PATH:
            if block.exceptions:
                state = _test_exceptions(&line, block, layout, lower, n, state, s, at)
            return state
    status = stored_part(block, layout, lower, n, s.cells, s.work, at)
    if status < 0:
        return status
    if test.kind == CODE and kc_largest(s.cells, n, layout.width) >= <uint64_t>test.words:
        at[0] = block.offset
        return BAD_VALUE
    _test_numbers(&line, s.cells, n, s.passed)
    return SOME


cdef int _spread(
    const Page* page, int64_t row, int64_t n, int state, bint nulls, Scratch* s
) noexcept nogil:
    """From values to rows: ``s.rows`` where the state is SOME."""
    cdef:
        int64_t i, v = 0, values = page_values(page, row, n)
    if values == n:
        if state == SOME:
            memcpy(s.rows, s.passed, <size_t>n)
        return state
    if values == 0:
        return ALL if nulls else NONE
    if (state == ALL and nulls) or (state == NONE and not nulls):
        return state
    if state != SOME:
        memset(s.passed, state == ALL, <size_t>values)
    for i in range(n):
        if kc_bit(page.bits, row + i):
            s.rows[i] = s.passed[v]
            v += 1
        else:
            s.rows[i] = nulls
    return SOME


cdef int _test_fixed(
    const Set* test, const Page* page, const Piece* piece, int width, Scratch* s, int64_t* at
) noexcept nogil:
    cdef:
        Block block
        Layout layout
        int64_t begin = piece.block * BLOCK_ROWS, row = begin + piece.first, lower, values
        int status = block_open(page, piece.block, &block, at)
    if status == 0:
        status = fixed_layout(&block, width, &layout, at)
    if status < 0:
        return status
    lower = page_values(page, begin, piece.first)
    values = page_values(page, row, piece.rows)
    status = NONE
    if values:
        status = _test_values(test, &block, &layout, lower, values, s, at)
    return status if status < 0 else _spread(page, row, piece.rows, status, test.nulls, s)


# --------------------------------------------------------------------------- testing a block of strings

cdef inline int _order(const uint8_t* a, int64_t a_size, const uint8_t* b, int64_t b_size) noexcept nogil:
    cdef int order = memcmp(a, b, <size_t>(a_size if a_size < b_size else b_size))
    if order:
        return order
    return (a_size > b_size) - (a_size < b_size)


cdef inline bint _has_string(const Set* test, const uint8_t* cell, int64_t size) noexcept nogil:
    cdef:
        int64_t lower = 0, upper = test.n, middle
        const int64_t* ends = test.offsets
    while lower < upper:            # the last interval that does not begin above
        middle = (lower + upper) >> 1
        if _order(
            test.data + ends[2 * middle], ends[2 * middle + 1] - ends[2 * middle], cell, size
        ) <= 0:
            lower = middle + 1
        else:
            upper = middle
    if lower == 0:
        return False
    lower -= 1
    if test.open_end and lower == test.n - 1:
        return True
    return _order(
        cell, size, test.data + ends[2 * lower + 1], ends[2 * lower + 2] - ends[2 * lower + 1]
    ) < 0


cdef int _test_strings(
    const Set* test, const Page* page, const Piece* piece, const uint8_t* mask, Scratch* s, int64_t* at
) noexcept nogil:
    """``mask``: of the rows of the piece where it is SOME, else NULL; others are not looked at."""
    cdef:
        Strings part
        int64_t begin = piece.block * BLOCK_ROWS, row = begin + piece.first, i, v, lower, values
        int status = strings_open(page, piece.block, &part, at)
    if status == 0 and part.kind != STRING_PLAIN:
        status = NEEDS_GENERAL_PATH
    if status < 0:
        return status
    lower = page_values(page, begin, piece.first)
    values = page_values(page, row, piece.rows)
    status = string_ends(&part, lower, values, s.begins, s.sizes, s.work, at)
    if status < 0:
        return status
    v = 0
    for i in range(piece.rows):
        if page.bits != NULL and not kc_bit(page.bits, row + i):
            s.rows[i] = test.nulls
            continue
        if mask == NULL or mask[i]:
            s.rows[i] = _has_string(test, part.data + s.begins[v], s.sizes[v])
        v += 1
    return SOME


# -------------------------------------------------------------------------------------- the selection

cdef void _narrow_piece(Piece* piece, uint8_t* mask, const uint8_t* passed, int state) noexcept nogil:
    """Keep of a piece what also passed; ``mask`` is that of its rows."""
    if state == ALL:
        return
    if state == NONE:
        piece.state = NONE
    elif piece.state == ALL:
        memcpy(mask, passed, piece.rows)
        piece.state = SOME
    else:
        kc_mask_and(mask, passed, piece.rows)


cdef int _test(
    Piece* pieces, int64_t n, uint8_t* mask, const Page* pages, const int64_t* numbers,
    const uint8_t* states, const Set* test, int width, int64_t* at,
) noexcept nogil:
    cdef:
        Scratch s
        int64_t k
        Piece* piece
        int state
    for k in range(n):
        piece = &pieces[k]
        if piece.state == NONE:
            continue
        state = SOME if states == NULL else states[numbers[piece.page]]
        if state == SOME:
            if test.kind == STRING:
                state = _test_strings(
                    test, &pages[piece.page], piece, mask + piece.at if piece.state == SOME else NULL, &s, at
                )
            else:
                state = _test_fixed(test, &pages[piece.page], piece, width, &s, at)
            if state < 0:
                return state
        _narrow_piece(piece, mask + piece.at, s.rows, state)
    return 0


cdef int64_t _count_pieces(const int64_t[:, ::1] ranges, int64_t rows, int64_t* total) noexcept nogil:
    """How many mini-blocks the ranges touch; -1 where they are none of a file of so many rows."""
    cdef int64_t k, pieces = 0, last = 0
    for k in range(ranges.shape[0]):
        if ranges[k, 0] < last or ranges[k, 1] < ranges[k, 0] or ranges[k, 1] > rows:
            return -1
        last = ranges[k, 1]
        total[0] += last - ranges[k, 0]
        if last > ranges[k, 0]:
            pieces += (last - 1) / BLOCK_ROWS - ranges[k, 0] / BLOCK_ROWS + 1
    return pieces


cdef int64_t _cut(
    const int64_t[:, ::1] ranges, Piece* pieces, int64_t* numbers, const uint8_t* mask
) noexcept nogil:
    """Write pieces and page numbers; return how many pages there are."""
    cdef:
        int64_t k, row, stop, at = 0, pages = 0
        Piece* piece = pieces
    for k in range(ranges.shape[0]):
        row = ranges[k, 0]
        while row < ranges[k, 1]:
            stop = (row / BLOCK_ROWS + 1) * BLOCK_ROWS
            if stop > ranges[k, 1]:
                stop = ranges[k, 1]
            if pages == 0 or numbers[pages - 1] != row / PAGE_ROWS:
                numbers[pages] = row / PAGE_ROWS
                pages += 1
            piece.page = <int32_t>(pages - 1)
            piece.block = <int32_t>(row / BLOCK_ROWS % (PAGE_ROWS / BLOCK_ROWS))
            piece.first = <int32_t>(row % BLOCK_ROWS)
            piece.rows = <int32_t>(stop - row)
            piece.at = at
            piece.state = ALL if mask == NULL else SOME
            at += stop - row
            row = stop
            piece += 1
    return pages


cdef int64_t _count_chosen(Piece* pieces, int64_t n, const uint8_t* mask) noexcept nogil:
    cdef int64_t k, total = 0, chosen
    for k in range(n):
        chosen = 0
        if pieces[k].state == SOME:
            chosen = kc_mask_sum(mask + pieces[k].at, pieces[k].rows)
            if chosen == pieces[k].rows:
                pieces[k].state = ALL
            elif chosen == 0:
                pieces[k].state = NONE
        if pieces[k].state == ALL:
            chosen = pieces[k].rows
        pieces[k].chosen = <int32_t>chosen
        pieces[k].out = total
        total += chosen
    return total


cdef void _pick(const Piece* pieces, int64_t n, const uint8_t* mask, uint16_t* picked) noexcept nogil:
    cdef int64_t k
    for k in range(n):
        if pieces[k].state == SOME:
            kc_positions(picked + pieces[k].out, mask + pieces[k].at, pieces[k].rows, pieces[k].first)


cdef void _keep(Piece* pieces, int64_t n, uint8_t* mask, const uint8_t* passed) noexcept nogil:
    """``passed``: of the chosen rows, which are counted."""
    cdef:
        int64_t k, i
        const uint8_t* some
        uint8_t* own
    for k in range(n):
        some = passed + pieces[k].out
        own = mask + pieces[k].at
        if pieces[k].state == ALL:
            kc_to_mask(own, some, pieces[k].rows)
            pieces[k].state = SOME
        elif pieces[k].state == SOME:
            for i in range(pieces[k].rows):
                if own[i]:
                    own[i] = some[0] != 0
                    some += 1


cdef void _rowids(
    const Piece* pieces, int64_t n, const int64_t* numbers, const uint16_t* picked, int64_t* out
) noexcept nogil:
    cdef int64_t k, j, base
    for k in range(n):
        base = numbers[pieces[k].page] * PAGE_ROWS + pieces[k].block * BLOCK_ROWS
        if pieces[k].state == ALL:
            for j in range(pieces[k].rows):
                out[pieces[k].out + j] = base + pieces[k].first + j
        elif pieces[k].state == SOME:
            for j in range(pieces[k].chosen):
                out[pieces[k].out + j] = base + picked[pieces[k].out + j]


@cython.final
@cython.auto_pickle(False)
cdef class Selection:
    """Rows of a file of ``file_rows`` rows: those of the ranges, then those that tests leave of them.

    ``ranges`` (m, 2) int64: half-open, ascending, without overlap; ``live`` (rows of the ranges,) uint8: 0
    for rows that are not there, or None.  One thread at a time.  Raises ValueError for other ranges.
    """

    def __init__(
        self, const int64_t[:, ::1] ranges not None, int64_t file_rows, const uint8_t[::1] live=None
    ):
        cdef:
            int64_t pieces, rows = 0
        if ranges.shape[1] != 2:
            raise ValueError("ranges are (m, 2)")
        with nogil:
            pieces = _count_pieces(ranges, file_rows, &rows)
        if pieces < 0 or rows > MOST_ROWS:
            raise ValueError(f"ranges that are none of a file of {file_rows} rows")
        if live is not None and live.shape[0] != rows:
            raise ValueError(f"{live.shape[0]} flags of {rows} rows")
        self.file_rows = file_rows
        self.rows = rows
        self.piece_count = pieces
        self.chosen_rows = -1
        self.pieces = <Piece*>PyMem_RawMalloc((pieces + 1) * sizeof(Piece))
        self.numbers = <int64_t*>PyMem_RawMalloc((pieces + 1) * sizeof(int64_t))
        if self.pieces == NULL or self.numbers == NULL:
            raise MemoryError
        if live is not None and rows:
            self.need_mask()
            with nogil:
                kc_to_mask(self.mask, &live[0], rows)
        with nogil:
            self.page_count = _cut(ranges, self.pieces, self.numbers, self.mask)

    def __dealloc__(self):
        PyMem_RawFree(self.pieces)
        PyMem_RawFree(self.numbers)
        PyMem_RawFree(self.mask)
        PyMem_RawFree(self.picked)

    cdef int need_mask(self) except -1:
        if self.mask == NULL:
            self.mask = <uint8_t*>PyMem_RawMalloc(self.rows + 16)
            if self.mask == NULL:
                raise MemoryError
        return 0

    cdef int count(self) except -1:
        """Count the chosen rows."""
        if self.chosen_rows < 0:
            with nogil:
                self.chosen_rows = _count_chosen(self.pieces, self.piece_count, self.mask)
            PyMem_RawFree(self.picked)
            self.picked = NULL
        return 0

    cdef int settle(self) except -1:
        """Count the chosen rows and list their places."""
        self.count()
        if self.mask != NULL and self.picked == NULL:
            self.picked = <uint16_t*>PyMem_RawMalloc((self.chosen_rows + 8) * sizeof(uint16_t))
            if self.picked == NULL:
                raise MemoryError
            with nogil:
                _pick(self.pieces, self.piece_count, self.mask, self.picked)
        return 0

    @property
    def chosen(self):
        """How many rows are left."""
        self.count()
        return self.chosen_rows

    def test(self, ScanColumn column not None, CellSet test not None, const uint8_t[::1] states=None):
        """Leave the rows whose cell belongs to the set.

        ``states``: for each page of the column what its zone map says, 0: no row of it belongs, 1: every row
        does, 2: look; only such pages are read.  Raises ``PageError``, ``NeedsGeneralPath``, and what
        ``load`` does; rows that are gone by then do not belong.
        """
        cdef:
            uint8_t* wanted
            Page* pages = NULL
            const uint8_t* by_page = NULL
            int64_t k, at = 0
            int status
            list held = []
        if column.rows != self.file_rows:
            raise ValueError(f"a column of {column.rows} rows, a selection of {self.file_rows}")
        if (
            (test.c.kind == STRING) != (column.width == 0)
            or (test.c.kind == CODE) != (column.words.count > 0)
            or (column.width and test.c.width != column.width)
            or (test.c.kind == CODE and test.c.words != column.words.count)
        ):
            raise ValueError("a test of other cells than the column has")
        if states is not None:
            if states.shape[0] != column.page_count:
                raise ValueError(f"{states.shape[0]} states of {column.page_count} pages")
            if column.page_count:
                by_page = &states[0]
        self.chosen_rows = -1
        self.need_mask()
        wanted = <uint8_t*>PyMem_RawCalloc(self.page_count + 1, 1)
        pages = <Page*>PyMem_RawMalloc((self.page_count + 1) * sizeof(Page))
        try:
            if wanted == NULL or pages == NULL:
                raise MemoryError
            for k in range(self.piece_count):
                if self.pieces[k].state != NONE:
                    wanted[self.pieces[k].page] = (
                        by_page == NULL or by_page[self.numbers[self.pieces[k].page]] == SOME
                    )
            column.pin(self.numbers, wanted, self.page_count, pages, held)
            with nogil:
                status = _test(
                    self.pieces, self.piece_count, self.mask, pages, self.numbers, by_page, &test.c,
                    column.width, &at,
                )
            if status == NEEDS_GENERAL_PATH:
                raise NeedsGeneralPath
            if status < 0:
                raise_status(status, at)
        finally:
            PyMem_RawFree(wanted)
            PyMem_RawFree(pages)

    def keep(self, const uint8_t[::1] passed not None):
        """Leave of the chosen rows those whose byte is not 0."""
        self.count()
        if passed.shape[0] != self.chosen_rows:
            raise ValueError(f"{passed.shape[0]} flags of {self.chosen_rows} rows")
        self.need_mask()
        self.chosen_rows = -1
        if passed.shape[0]:
            with nogil:
                _keep(self.pieces, self.piece_count, self.mask, &passed[0])

    def rowids(self):
        """The rows that are left, (chosen,) int64, ascending."""
        cdef int64_t[::1] out
        self.settle()
        result = np.empty(self.chosen_rows, np.int64)
        out = result
        if self.chosen_rows:
            with nogil:
                _rowids(self.pieces, self.piece_count, self.numbers, self.picked, &out[0])
        return result
