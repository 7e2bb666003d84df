"""The partition of one encoded key: what ``common.partition.partitions`` computes for columns, for a key at a
time.

A key is cut into its cells (docs/format.md, "Encoded keys"); hash dimensions chain XXH64 over some of them
as Spark does, the range dimension encodes some of them anew and looks between which cuts they lie.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from kudu_core._ext.base.hashes cimport xxh64_big, xxh64_bytes, xxh64_int, xxh64_long
from kudu_core._ext.base.keybytes cimport key_bytes, key_count

import numpy as np

cdef enum:
    TYPE_UNSIGNED = 0
    TYPE_SIGNED = 1
    TYPE_BINARY = 3
    TYPE_DECIMAL = 4

    MOST_COLUMNS = 32
    MOST_DIMENSIONS = 32
    KEY_ROOM = 16 * 1024        # the longest key that a table takes

    NONE = -1                   # no range takes the key
    BAD_KEY = -2


cdef struct RouteColumn:
    int kind
    int width                   # 0: strings
    bint long_decimal           # more than 18 digits


cdef struct RouteCell:
    const uint8_t* start        # as encoded; of strings without the escapes
    int64_t size


cdef int _cut(
    const RouteColumn* columns, int count, const uint8_t* key, int64_t size, RouteCell* cells, uint8_t* room
) noexcept nogil:
    """Find the cells of a key of at most KEY_ROOM bytes; strings with escapes go to ``room``."""
    cdef:
        int k
        int64_t at = 0, end
        bint escaped
    for k in range(count):
        cells[k].start = key + at
        if columns[k].width:
            if size - at < columns[k].width:
                return BAD_KEY
            cells[k].size = columns[k].width
            at += columns[k].width
            continue
        if k == count - 1:
            cells[k].size = size - at
            at = size
            continue
        end = at
        escaped = False
        while True:
            while end < size and key[end]:
                end += 1
            if end + 1 >= size or key[end + 1] > 1:
                return BAD_KEY
            if key[end + 1] == 0:
                break
            escaped = True
            end += 2
        cells[k].size = end - at
        if escaped:
            cells[k].start = room
            cells[k].size = 0
            while at < end:
                room[cells[k].size] = key[at]
                cells[k].size += 1
                at += 1 if key[at] else 2
            room += cells[k].size
        at = end + 2
    return 0 if at == size else BAD_KEY


cdef inline uint64_t _big_endian(const uint8_t* p, int width) noexcept nogil:
    cdef:
        uint64_t word = 0
        int i
    for i in range(width):
        word = word << 8 | p[i]
    return word


cdef uint64_t _hash(const RouteColumn* column, const RouteCell* cell, uint64_t seed) noexcept nogil:
    """XXH64 of the cell's value as Spark widens it: docs of ``hashing.xxh64_column``."""
    cdef:
        uint64_t word, high
        int width = column.width
    if width == 0:
        return xxh64_bytes(cell.start, <size_t>cell.size, seed)
    if width == 16:
        high = _big_endian(cell.start, 8) ^ <uint64_t>1 << 63
        word = _big_endian(cell.start + 8, 8)
        return xxh64_big(word, <int64_t>high, seed) if column.long_decimal else xxh64_long(word, seed)
    word = _big_endian(cell.start, width)
    if column.kind == TYPE_SIGNED:
        word ^= <uint64_t>1 << (8 * width - 1)
        if width == 8:
            return xxh64_long(word, seed)
        return xxh64_int(<uint32_t>((<int64_t>(word << (64 - 8 * width))) >> (64 - 8 * width)), seed)
    if width == 8:
        return xxh64_big(word, 0, seed)
    return xxh64_long(word, seed) if width == 4 else xxh64_int(<uint32_t>word, seed)


cdef struct Hashed:
    int columns[MOST_COLUMNS]
    int count
    int64_t buckets
    uint64_t seed


@cython.final
@cython.auto_pickle(False)
cdef class KeyRouter:
    """Ordinals of partitions by encoded key.

    Parameters
    ----------
    columns : [(kind, width, long_decimal)]
        The key columns, in key order.
    hashes : [(positions, buckets, seed)]
        The hash dimensions, each over the columns at these positions.
    ranged : [position]
        The columns of the range dimension, empty for none.
    cuts : [bytes]
        All bounds of ranges, ascending, as encoded values of those columns.
    owners : [int]
        Number of the range before, between and after the cuts, -1 for none; len(cuts) + 1.
    """

    cdef:
        RouteColumn _columns[MOST_COLUMNS]
        int _count
        Hashed _hashes[MOST_DIMENSIONS]
        int _dimensions
        int _ranged[MOST_COLUMNS]
        int _ranges
        int64_t _buckets
        list _cuts
        int32_t[::1] _owners

    def __init__(self, columns, hashes, ranged, cuts, owners):
        cdef int k, i
        self._count, self._dimensions, self._ranges = len(columns), len(hashes), len(ranged)
        if not 0 < self._count <= MOST_COLUMNS or self._dimensions > MOST_DIMENSIONS:
            raise ValueError(f"{len(columns)} key columns, {len(hashes)} hash dimensions")
        if self._ranges > self._count or len(owners) != len(cuts) + 1:
            raise ValueError(f"{len(cuts)} cuts, {len(owners)} owners")
        for k, (kind, width, long_decimal) in enumerate(columns):
            if width not in (0, 1, 2, 4, 8, 16) or (width == 0) != (kind == TYPE_BINARY):
                raise ValueError(f"a key column of kind {kind} and width {width}")
            if (width == 16) != (kind == TYPE_DECIMAL):
                raise ValueError(f"a key column of kind {kind} and width {width}")
            self._columns[k].kind, self._columns[k].width = kind, width
            self._columns[k].long_decimal = long_decimal
        self._buckets = 1
        for k, (positions, buckets, seed) in enumerate(hashes):
            if not 0 < len(positions) <= MOST_COLUMNS or buckets < 1:
                raise ValueError(f"a hash dimension of {len(positions)} columns and {buckets} buckets")
            for i, position in enumerate(positions):
                self._hashes[k].columns[i] = self._checked(position)
            self._hashes[k].count = len(positions)
            self._hashes[k].buckets = buckets
            self._hashes[k].seed = seed
            self._buckets *= buckets
        for k, position in enumerate(ranged):
            self._ranged[k] = self._checked(position)
        self._cuts = [bytes(cut) for cut in cuts]
        if any(a >= b for a, b in zip(self._cuts, self._cuts[1:], strict=False)):
            raise ValueError("the cuts of ranges do not ascend")
        self._owners = np.array(owners, np.int32)

    cdef int _checked(self, position) except -1:
        if not 0 <= position < self._count:
            raise ValueError(f"no key column {position}")
        return position

    def route_many(self, list keys not None):
        """``route`` of each key, as a list."""
        return [self.route(key) for key in keys]

    def route(self, bytes key not None):
        """The ordinal of the key's partition, -1 where no range takes it.

        ValueError for bytes that are no key.
        """
        return self._ordinal(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))

    def route_keys(self, const uint8_t[::1] data not None, const int64_t[::1] offsets not None):
        """``route`` of each of n encoded keys, (n,) int32.  ValueError also for offsets outside ``data``."""
        cdef:
            Py_ssize_t i, n = key_count(data, offsets)
            const uint8_t* first = key_bytes(data)
            int32_t[::1] out
        result = np.empty(n, np.int32)
        out = result
        for i in range(n):
            out[i] = <int32_t>self._ordinal(first + offsets[i], offsets[i + 1] - offsets[i])
        return result

    cdef int64_t _ordinal(self, const uint8_t* key, int64_t size) except -2:
        cdef:
            RouteCell cells[MOST_COLUMNS]
            uint8_t room[KEY_ROOM]
            int64_t ordinal = 0, rest
            uint64_t seed
            int k, i
            const Hashed* hashed
        if self._dimensions == 0 and self._ranges == 0:
            return 0
        if size > KEY_ROOM or _cut(self._columns, self._count, key, size, cells, room) < 0:
            raise ValueError(f"{size} bytes are no key")
        for k in range(self._dimensions):
            hashed = &self._hashes[k]
            seed = hashed.seed
            for i in range(hashed.count):
                seed = _hash(&self._columns[hashed.columns[i]], &cells[hashed.columns[i]], seed)
            rest = <int64_t>seed % hashed.buckets
            ordinal = ordinal * hashed.buckets + (rest + hashed.buckets if rest < 0 else rest)
        if self._ranges:
            i = self._owner(cells)
            if i < 0:
                return NONE
            ordinal += i * self._buckets
        return ordinal

    cdef int _owner(self, const RouteCell* cells) except -2:
        """The range that owns the cells: how many cuts are not above their encoding says which."""
        cdef:
            uint8_t room[2 * KEY_ROOM + 2 * MOST_COLUMNS]
            int64_t size = 0, i
            int k
            const RouteCell* cell
            Py_ssize_t lower = 0, upper = len(self._cuts), middle
        for k in range(self._ranges):
            cell = &cells[self._ranged[k]]
            if self._columns[self._ranged[k]].width or k == self._ranges - 1:
                if cell.size:
                    memcpy(room + size, cell.start, <size_t>cell.size)
                size += cell.size
                continue
            for i in range(cell.size):
                room[size] = cell.start[i]
                size += 1
                if cell.start[i] == 0:
                    room[size] = 1
                    size += 1
            room[size] = room[size + 1] = 0
            size += 2
        while lower < upper:
            middle = (lower + upper) >> 1
            if _above(<bytes>self._cuts[middle], room, size):
                upper = middle
            else:
                lower = middle + 1
        return self._owners[lower]


cdef bint _above(bytes cut, const uint8_t* other, int64_t size) noexcept:
    cdef:
        int64_t cut_size = PyBytes_GET_SIZE(cut)
        int order = memcmp(PyBytes_AS_STRING(cut), other, <size_t>min(cut_size, size))
    return order > 0 or (order == 0 and cut_size > size)
