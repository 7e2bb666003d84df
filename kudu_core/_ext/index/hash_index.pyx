"""A growing set of encoded keys, each known by its ordinal: key arena and hash index of a MemRowSet.

Keys are appended, never removed; the n-th key appended has ordinal n.  The slots of the index, and
how a key is found in them: ``key_slots.pxd``.

One writer at a time (the caller's mutex), any number of readers, none of which needs the GIL
while it works.  Nothing a reader may hold is ever resized: growth copies into new buffers and
swaps the reference to all of them.  A key's bytes, offset and hash are written before its slot
is published (release store), and a reader looks only at ordinals below the count it saw when it
took the buffers, so it meets finished keys only.
"""
import numpy as np

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kudu_core._ext.index.key_slots cimport (
    GivenKeys,
    Memory,
    append_batch,
    find_key_in,
    index_ordinals,
    kc_slot,
    look_up_batch,
    mix,
    publish,
)

cdef enum:
    SMALLEST_BITS = 6       # log2 of the smallest slot table
    SMALLEST_ROWS = 32
    SMALLEST_BYTES = 1024

cdef uint64_t MOST_KEYS = 0xFFFFFFFE    # ordinal + 1 is 32 bits, and 0 is "empty"


cdef class Buffers:
    """One generation of the memory: its arrays keep their size and live while somebody holds it."""

    def __cinit__(self, data, offsets, hashes, slots, seed, multiplier):
        cdef:
            uint8_t[::1] data_view = data
            int64_t[::1] offsets_view = offsets
            uint64_t[::1] hashes_view = hashes
            kc_slot[::1] slots_view = slots
        assert len(data) and len(hashes) and len(offsets) == len(hashes) + 1
        self.data, self.offsets, self.hashes, self.slots = data, offsets, hashes, slots
        self.byte_room, self.row_room, self.slot_room = len(data), len(hashes), len(slots)
        self.at.data = &data_view[0]
        self.at.offsets = &offsets_view[0]
        self.at.hashes = &hashes_view[0]
        self.at.slots = &slots_view[0]
        self.at.mask = <uint64_t>self.slot_room - 1
        self.at.shift = 64 - (int(self.slot_room).bit_length() - 1)
        self.at.seed = seed
        self.at.multiplier = multiplier


cdef int64_t _measure(const GivenKeys* b, int64_t data_size, Py_ssize_t keys, Py_ssize_t* bad) noexcept nogil:
    """Return how many bytes the keys have together, or -1 with ``bad`` set to the faulty entry."""
    cdef:
        Py_ssize_t i, row
        int64_t total = 0
    for i in range(b.count):
        row = i if b.rows == NULL else b.rows[i]
        bad[0] = i
        if row < 0 or row >= keys:
            return -1
        if b.offsets[row] < 0 or b.offsets[row + 1] < b.offsets[row] or b.offsets[row + 1] > data_size:
            return -1
        total += b.offsets[row + 1] - b.offsets[row]
    return total


cdef int64_t _take_batch(
    GivenKeys* b,
    const uint8_t[::1] data,
    const int64_t[::1] offsets,
    const uint64_t[::1] hashes,
    const int64_t[::1] rows,
) except -1:
    """Check the caller's arrays, point ``b`` at them, and return the bytes of the chosen keys."""
    cdef:
        Py_ssize_t keys = offsets.shape[0] - 1
        Py_ssize_t bad = 0
        int64_t total, data_size = data.shape[0]
    if keys < 0 or hashes.shape[0] != keys:
        raise ValueError(f"{offsets.shape[0]} offsets and {hashes.shape[0]} hashes: want n + 1 and n")
    b.data = &data[0] if data_size > 0 else NULL
    b.offsets = &offsets[0]
    b.hashes = &hashes[0] if keys > 0 else NULL
    b.rows = NULL
    b.count = keys
    if rows is not None:
        b.count = rows.shape[0]
        if b.count > 0:
            b.rows = &rows[0]
    with nogil:
        total = _measure(b, data_size, keys, &bad)
    if total < 0:
        raise ValueError(f"entry {bad} of the batch is no key of it: row or offset out of range")
    return total


cdef uint64_t _splitmix(uint64_t x) noexcept nogil:
    x = (x ^ (x >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * <uint64_t>0x94D049BB133111EB
    return x ^ (x >> 31)


cdef object _view(array, Py_ssize_t lower, Py_ssize_t upper):
    view = array[lower:upper]
    view.flags.writeable = False
    return view


cdef class KeyTable:
    """Encoded keys by ordinal, and ordinals by encoded key.

    ``append``, ``append_one`` and ``reserve`` want the caller's mutex; all else may run beside
    them in any thread.

    Parameters
    ----------
    seed : int
        Mixed into the place of a key in the index; choose it at random per process where
        others choose the keys.  It changes no answer.
    capacity : int
        How many keys to make room for at once; more may follow.
    """

    def __init__(self, seed=0, capacity=0):
        cdef:
            uint64_t s = int(seed) & 0xFFFFFFFFFFFFFFFF
            Py_ssize_t rows = capacity
        if rows < 0 or <uint64_t>rows > MOST_KEYS:
            raise ValueError(f"capacity of {rows} keys")
        rows = max(rows, <Py_ssize_t>SMALLEST_ROWS)
        offsets = np.empty(rows + 1, np.int64)
        offsets[0] = 0
        self.count = 0
        self._buffers = Buffers(
            np.empty(max(rows * 16, <Py_ssize_t>SMALLEST_BYTES), np.uint8),
            offsets,
            np.empty(rows, np.uint64),
            np.zeros(_slots_for(rows), np.ulonglong),
            _splitmix(s + <uint64_t>0x9E3779B97F4A7C15),
            _splitmix(s + <uint64_t>0x3C6EF372FE94F82A) | 1,
        )

    def __len__(self):
        return self.count

    @property
    def nbytes(self):
        """Memory of arena and index, room for growth included."""
        cdef Buffers b = self._buffers
        return b.data.nbytes + b.offsets.nbytes + b.hashes.nbytes + b.slots.nbytes

    @property
    def key_bytes(self):
        """How many bytes all keys have together."""
        return self._buffers.at.offsets[self.count]

    def reserve(self, rows, key_bytes):
        """Make room for ``rows`` more keys of ``key_bytes`` together: appending them cannot fail then.

        Raises
        ------
        ValueError
            The table would hold 2**32 - 1 keys or more.  As after MemoryError, nothing has changed.
        """
        cdef:
            Buffers old = self._buffers
            Buffers new
            Py_ssize_t count = self.count
            Py_ssize_t want_rows = count + <Py_ssize_t>rows
            Py_ssize_t used = old.at.offsets[count]
            Py_ssize_t want_bytes = used + <Py_ssize_t>key_bytes
            Py_ssize_t want_slots
        if want_rows < count or want_bytes < used or <uint64_t>want_rows > MOST_KEYS:
            raise ValueError(
                f"no room for {rows} keys of {key_bytes} bytes: a table takes fewer than 2**32 - 1 keys"
            )
        want_slots = _slots_for(want_rows)
        if want_rows <= old.row_room and want_bytes <= old.byte_room and want_slots <= old.slot_room:
            return
        data, offsets, hashes, slots = old.data, old.offsets, old.hashes, old.slots
        if want_bytes > old.byte_room:
            data = np.empty(max(want_bytes, 2 * old.byte_room), np.uint8)
            data[:used] = old.data[:used]
        if want_rows > old.row_room:
            offsets = np.empty(max(want_rows, 2 * old.row_room) + 1, np.int64)
            offsets[: count + 1] = old.offsets[: count + 1]
            hashes = np.empty(len(offsets) - 1, np.uint64)
            hashes[:count] = old.hashes[:count]
        if want_slots > old.slot_room:
            slots = np.zeros(want_slots, np.ulonglong)
        new = Buffers(data, offsets, hashes, slots, old.at.seed, old.at.multiplier)
        if slots is not old.slots:
            with nogil:
                index_ordinals(&new.at, 0, count)
        self._buffers = new

    def append(
        self,
        const uint8_t[::1] data not None,
        const int64_t[::1] offsets not None,
        const uint64_t[::1] hashes not None,
        const int64_t[::1] rows=None,
    ):
        """Append keys that are not in the table yet; return the ordinal of the first.

        Parameters
        ----------
        data, offsets : (any,) uint8, (n + 1,) int64
            The batch's encoded keys; offsets may start above 0.
        hashes : (n,) uint64
            Hash of each key; must be the same function for all keys of a table.
        rows : (m,) int64, optional
            Which keys of the batch to append, in which order; all by default.

        Raises
        ------
        ValueError
            Lengths differ, an offset or a row is out of range, or the table would hold
            2**32 - 1 keys.  As after MemoryError, nothing has changed.
        """
        cdef:
            GivenKeys batch
            int64_t total = _take_batch(&batch, data, offsets, hashes, rows)
            Py_ssize_t first = self.count
            Buffers buffers
        if batch.count > 0:
            self.reserve(batch.count, total)
            buffers = self._buffers
            with nogil:
                append_batch(&buffers.at, &batch, first)
            self.count = first + batch.count
        return first

    def append_one(self, bytes key not None, hash):
        """Append one key that is not in the table yet; return its ordinal."""
        cdef:
            uint64_t key_hash = hash
        return self.put_key(key, key_hash)

    cdef int reserve_key(self, Py_ssize_t size) except -1:
        """``reserve`` of one key."""
        cdef Buffers room = self._buffers
        if (
            self.count >= room.row_room
            or room.at.offsets[self.count] + size > room.byte_room
            or (self.count + 1) * 5 > room.slot_room * 3
        ):
            self.reserve(1, size)
        return 0

    cdef Py_ssize_t put_key(self, bytes key, uint64_t key_hash) except -1:
        cdef:
            const uint8_t* at = key
            int64_t size = len(key)
            Py_ssize_t ordinal = self.count
            Memory* m
        self.reserve_key(size)
        m = &self._buffers.at
        if size > 0:
            memcpy(m.data + m.offsets[ordinal], at, size)
        m.offsets[ordinal + 1] = m.offsets[ordinal] + size
        m.hashes[ordinal] = key_hash
        publish(m, mix(m, key_hash), ordinal)
        self.count = ordinal + 1
        return ordinal

    def lookup(
        self,
        const uint8_t[::1] data not None,
        const int64_t[::1] offsets not None,
        const uint64_t[::1] hashes not None,
        limit,
        const int64_t[::1] rows=None,
    ):
        """Return the ordinal of each key, (n,) or with ``rows`` (m,) int64, -1 where absent.

        Parameters
        ----------
        data, offsets, hashes, rows
            As in ``append``.
        limit : int
            Only ordinals below it are seen (and below ``count`` as of the call).

        Raises
        ------
        ValueError
            Lengths differ, an offset or a row is out of range, or the limit is negative.
        """
        cdef:
            GivenKeys batch
            uint64_t most
            int64_t[::1] out_view
            Buffers buffers
        _take_batch(&batch, data, offsets, hashes, rows)
        out = np.empty(batch.count, np.int64)
        if batch.count > 0:
            out_view = out
            # In this order: buffers taken after the count hold at least that many keys.
            most = _limit(limit, self.count)
            buffers = self._buffers
            with nogil:
                look_up_batch(&buffers.at, &batch, most, &out_view[0])
        return out

    def find(self, bytes key not None, hash, limit):
        """Return the ordinal of one key if it is below ``limit``, else -1."""
        cdef:
            uint64_t key_hash = hash
            const uint8_t* at = key
        return self.find_key(at, len(key), key_hash, _limit(limit, self.count))

    cdef int64_t find_key(self, const uint8_t* key, int64_t size, uint64_t hash, uint64_t limit) noexcept:
        """The ordinal of a key below ``limit``, which is at most ``count``; -1 for none."""
        return find_key_in(&self._buffers.at, key, size, hash, limit)

    def keys(self, lower=0, upper=None):
        """Return ``(data, offsets)`` of ordinals [lower, upper), read-only views without a copy.

        ``data`` is the arena from its beginning, uint8; ``offsets`` are (upper - lower + 1,)
        int64 into it.  Both stay as they are while the table grows.  ``upper=None`` means all.
        """
        cdef:
            Buffers buffers
            Py_ssize_t first, end
        first, end = _range(lower, upper, self.count)
        buffers = self._buffers
        return _view(buffers.data, 0, buffers.at.offsets[end]), _view(buffers.offsets, first, end + 1)

    def hashes(self, lower=0, upper=None):
        """Return the hashes of ordinals [lower, upper), a read-only (upper - lower,) uint64 view."""
        cdef:
            Buffers buffers
            Py_ssize_t first, end
        first, end = _range(lower, upper, self.count)
        buffers = self._buffers
        return _view(buffers.hashes, first, end)

    def key(self, ordinal):
        """Return one key as bytes; IndexError when there is no such ordinal."""
        cdef:
            Memory* m = &self._buffers.at
            Py_ssize_t at = ordinal
        if at < 0 or at >= self.count:
            raise IndexError(f"ordinal {at} of {self.count} keys")
        return m.data[m.offsets[at]:m.offsets[at + 1]]


cdef uint64_t _limit(limit, Py_ssize_t count) except? 0xFFFFFFFFFFFFFFFF:
    if limit < 0:
        raise ValueError(f"limit {limit} is negative")
    return <uint64_t>(count if limit > count else limit)


cdef tuple _range(lower, upper, Py_ssize_t count):
    if upper is None:
        upper = count
    if not 0 <= lower <= upper <= count:
        raise ValueError(f"ordinals [{lower}, {upper}) of {count} keys")
    return lower, upper


cdef Py_ssize_t _slots_for(Py_ssize_t rows):
    # A power of two of which the keys fill at most 60%: beyond, linear probing gets long chains.
    cdef Py_ssize_t slots = <Py_ssize_t>1 << SMALLEST_BITS
    while rows * 5 > slots * 3:
        slots *= 2
    return slots
