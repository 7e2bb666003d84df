"""All changes of one column of a rowset, netted: which rows have one, and the last value of each.

A ``Patch`` is a bit a row and, in the order of rows, the cells that stand there; beside each 64 rows stands
how many changes lie before them.  So a page's changes are found at once, and are laid over its cells while
these are in the nearest cache (``_ext.scan.read``).  It is made of ``Updates`` and of an older patch, in the
order in which they apply, in a time that follows their number.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cimport cython

from kudu_core._ext.base.bitpack cimport kc_mask    # its C text comes first: KC_CLONES  # no-cython-lint
from kudu_core._ext.changes.replay cimport Updates

import numpy as np

cdef int64_t MAX_ROWS = 0xFFFFFFFF

cdef extern from *:
    """
    static void kc_mark(uint64_t *restrict rows, const uint32_t *restrict rowids, int64_t n, int64_t most) {
        for (int64_t i = 0; i < n; i++)
            if (rowids[i] < most) rows[rowids[i] >> 6] |= (uint64_t)1 << (rowids[i] & 63);
    }
    KC_CLONES static int64_t kc_count_before(uint32_t *restrict before, const uint64_t *restrict rows,
        int64_t words) {
        int64_t total = 0;
        for (int64_t w = 0; w < words; w++) {
            before[w] = (uint32_t)total;
            total += __builtin_popcountll(rows[w]);
        }
        return total;
    }
    static inline int64_t kc_place(const uint64_t *rows, const uint32_t *before, int64_t row) {
        return before[row >> 6] + __builtin_popcountll(rows[row >> 6] & (((uint64_t)1 << (row & 63)) - 1));
    }
    static inline void kc_put_bit(uint8_t *bits, int64_t at, int bit) {
        bits[at >> 3] = (uint8_t)((bits[at >> 3] & ~(1u << (at & 7))) | (unsigned)bit << (at & 7));
    }
    /* Always inlined with a constant width. */
    static inline __attribute__((always_inline)) void kc_put_w(const uint64_t *rows, const uint32_t *before,
        int64_t most, uint8_t *values, uint8_t *valid, const uint32_t *rowids, const uint8_t *cells,
        const uint8_t *bits, int64_t n, size_t width) {
        for (int64_t i = 0; i < n; i++) {
            if (rowids[i] >= most) continue;
            const int64_t at = kc_place(rows, before, rowids[i]);
            memcpy(values + at * (int64_t)width, cells + i * (int64_t)width, width);
            if (valid) kc_put_bit(valid, at, bits ? bits[i >> 3] >> (i & 7) & 1 : 1);
        }
    }
    static inline __attribute__((always_inline)) void kc_copy_w(const uint64_t *rows, const uint32_t *before,
        int64_t words, uint8_t *values, uint8_t *valid, const kc_patch_view *old, int is_first,
        size_t width) {
        for (int64_t w = 0; is_first && !valid && w < words; w++) {
            /* What is written where the old patch has nothing is written again by what comes after it. */
            const uint64_t word = old->rows[w];
            const uint8_t *from = old->values + old->before[w] * (int64_t)width;
            uint8_t *to = values + before[w] * (int64_t)width;
            if (!word) continue;
            for (uint64_t left = rows[w]; left; left &= left - 1, to += width) {
                memcpy(to, from, width);
                from += word >> __builtin_ctzll(left) & 1 ? width : 0;
            }
        }
        for (int64_t w = 0; !(is_first && !valid) && w < words; w++) {
            uint64_t word = old->rows[w];
            int64_t from = old->before[w], at = before[w];
            for (; word; word &= word - 1, from++) {
                at = before[w] + __builtin_popcountll(rows[w] & ((word & -word) - 1));
                memcpy(values + at * (int64_t)width, old->values + from * (int64_t)width, width);
                if (valid) kc_put_bit(valid, at, old->valid ? old->valid[from >> 3] >> (from & 7) & 1 : 1);
            }
        }
    }
    #define KC_BY_WIDTH(name, ...) \\
        switch (width) { \\
            case 1: name(__VA_ARGS__, 1); break; \\
            case 2: name(__VA_ARGS__, 2); break; \\
            case 4: name(__VA_ARGS__, 4); break; \\
            case 8: name(__VA_ARGS__, 8); break; \\
            default: name(__VA_ARGS__, 16); \\
        }
    KC_CLONES static void kc_put(const uint64_t *rows, const uint32_t *before, int64_t most, uint8_t *values,
        uint8_t *valid, const uint32_t *rowids, const uint8_t *cells, const uint8_t *bits, int64_t n,
        int width) {
        KC_BY_WIDTH(kc_put_w, rows, before, most, values, valid, rowids, cells, bits, n)
    }
    KC_CLONES static void kc_copy(const uint64_t *rows, const uint32_t *before, int64_t words,
        uint8_t *values, uint8_t *valid, const kc_patch_view *old, int is_first, int width) {
        KC_BY_WIDTH(kc_copy_w, rows, before, words, values, valid, old, is_first)
    }
    #undef KC_BY_WIDTH
    """
    void kc_mark(uint64_t* rows, const uint32_t* rowids, int64_t n, int64_t most) noexcept nogil
    int64_t kc_count_before(uint32_t* before, const uint64_t* rows, int64_t words) noexcept nogil
    void kc_put(
        const uint64_t* rows, const uint32_t* before, int64_t most, uint8_t* values, uint8_t* valid,
        const uint32_t* rowids, const uint8_t* cells, const uint8_t* bits, int64_t n, int width
    ) noexcept nogil
    void kc_copy(
        const uint64_t* rows, const uint32_t* before, int64_t words, uint8_t* values, uint8_t* valid,
        const kc_patch_view* old, int is_first, int width
    ) noexcept nogil


cdef uint64_t[::1] _marked(list parts, int64_t rows):
    """Which rows the parts change."""
    cdef:
        uint64_t[::1] bits = np.zeros(((rows + 63) >> 6) + 1, np.uint64)    # one more: it has an address
        int64_t w, words = bits.shape[0]
        Updates updates
        Patch patch
    for part in parts:
        if isinstance(part, Patch):
            patch = part
            with nogil:
                for w in range(words):
                    bits[w] |= patch.view.rows[w]
        else:
            updates = part
            if updates.count:
                with nogil:
                    kc_mark(&bits[0], &updates.rowids[0], updates.count, rows)
    return bits


@cython.final
@cython.auto_pickle(False)
cdef class Patch:
    """What ``parts`` (``Updates``, or an older ``Patch`` of the same rows) change of rows 0 .. rows - 1 of a
    column of ``width`` bytes, the last one of each row.  Never changes.

    ``source`` is the caller's: a name of what the parts are.  Raises ValueError where something does not fit.
    """

    def __init__(self, list parts not None, int width, int64_t rows, source=None):
        cdef:
            Updates updates
            Patch patch
            uint64_t[::1] bits
            uint32_t[::1] before
            uint8_t[::1] values, valid
            uint8_t* valid_at = NULL
            const uint8_t* flags
            bint nullable = False, first
        if width not in (1, 2, 4, 8, 16) or not 0 <= rows <= MAX_ROWS:
            raise ValueError(f"a patch of {rows} cells of {width} bytes")
        for part in parts:
            if isinstance(part, Patch):
                patch = part
                if patch.width != width or patch.rows != rows:
                    raise ValueError(f"a patch of {patch.rows} cells of {patch.width} bytes")
                nullable |= patch.view.valid != NULL
            elif isinstance(part, Updates):
                updates = part
                if updates.width != width:
                    raise ValueError(f"updates of another width than {width}")
                nullable |= updates.bits is not None
            else:
                raise TypeError(f"a patch is made of Updates, not of {type(part).__name__}")
        bits = _marked(parts, rows)
        before = np.empty(bits.shape[0], np.uint32)
        with nogil:
            self.count = kc_count_before(&before[0], &bits[0], bits.shape[0])
        values = np.empty(self.count * width + width, np.uint8)     # one more: it is looked at, and not used
        if nullable:
            valid = np.zeros((self.count >> 3) + 1, np.uint8)
            valid_at = &valid[0]
        for part in parts if self.count else ():
            if isinstance(part, Patch):
                patch = part
                first = part is parts[0]
                with nogil:
                    kc_copy(
                        &bits[0], &before[0], bits.shape[0], &values[0], valid_at, &patch.view, first, width
                    )
            else:
                updates = part
                if updates.count:
                    flags = NULL
                    if updates.bits is not None:
                        flags = &updates.bits[0]
                    with nogil:
                        kc_put(
                            &bits[0], &before[0], rows, &values[0], valid_at, &updates.rowids[0],
                            &updates.values[0], flags, updates.count, width,
                        )
        self.width, self.rows, self.source = width, rows, source
        self.kept = (bits.base, before.base, values.base, valid.base if nullable else None)
        self.view.rows = &bits[0]
        self.view.before = &before[0]
        self.view.values = &values[0]
        self.view.valid = valid_at
        self.size = 12 * bits.shape[0] + self.count * width + (self.count >> 3 if nullable else 0)

    @property
    def nullable(self):
        """Whether some value may be null."""
        return self.view.valid != NULL

    def __len__(self):
        """Memory that it takes, in bytes, as the page cache counts."""
        return self.size

    def lay(self, uint8_t[::1] out not None, int64_t first_row, int64_t rows, uint8_t[::1] validity=None):
        """Lay the patch over the cells of rows ``first_row .. first_row + rows - 1``, in place.

        ``validity``: their bitmap, changed alike; it must be given where the patch is nullable.
        Raises ValueError when something does not fit (nothing is written).
        """
        cdef uint8_t* bits = NULL
        if first_row < 0 or rows < 0 or rows > self.rows or first_row > self.rows - rows:
            raise ValueError(f"rows from {first_row}, {rows} of {self.rows}")
        if out.shape[0] < rows * self.width:
            raise ValueError(f"{rows} cells of {self.width} bytes do not fit into {out.shape[0]}")
        if validity is not None:
            if validity.shape[0] < (rows + 7) >> 3:
                raise ValueError(f"a bitmap of {validity.shape[0]} bytes has no {rows} bits")
            if rows:
                bits = &validity[0]
        elif self.view.valid != NULL:
            raise ValueError("a patch to null, and no bitmap to say so")
        if rows and self.count:
            with nogil:
                kc_lay(&self.view, &out[0], first_row, NULL, rows, bits, 0, self.width)
