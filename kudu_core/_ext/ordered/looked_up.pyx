"""Rows that are looked up by their keys, for an Arrow batch (``row_batch``).

What reads of many keys do for each rowset (order, bounds and bloom of all its keys, arrays for each column)
costs more than the keys where these are few in each of many rowsets or tablets.  Here each key is looked for
as ``get`` does (``view``), and nothing is made for a rowset.

``NeedsGeneralPath`` and ``PageError`` mean that the general path must answer.
"""
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kudu_core._ext.base.keybytes cimport key_bytes, key_count
from kudu_core._ext.ordered.row_batch cimport RowBatch
from kudu_core._ext.ordered.row_source cimport Source
from kudu_core._ext.row.view cimport MemoryPoints, PointView, RowsetPoints

import numpy as np

cdef enum:
    CANDIDATES = 16             # rowsets whose blooms are fetched together


@cython.final
@cython.auto_pickle(False)
cdef class LookedUp(RowBatch):
    """The rows of keys at a snapshot, of the views that are asked one after the other."""

    def look_up(
        self,
        PointView view not None,
        const uint8_t[::1] data not None,
        const int64_t[::1] offsets not None,
        const uint64_t[::1] hashes not None,
        const int64_t[::1] wanted not None,
    ):
        """Take in the rows of some keys of a batch: (n,) int64, which of the ``wanted`` ones are there.

        ``data``, ``offsets``: all encoded keys of the batch; ``hashes``: theirs; ``wanted``: which of them.

        Raises ``NeedsGeneralPath``, ``PageError``, and ValueError for keys that are not in the batch.
        """
        cdef:
            int64_t i, key, n = wanted.shape[0], count = key_count(data, offsets)
            const uint8_t* bytes_ = key_bytes(data)
            int64_t[::1] out
            Py_ssize_t found = 0
            list sources = [None] * (len(view.memories) + len(view.rowsets))
        if hashes.shape[0] != count:
            raise ValueError(f"{hashes.shape[0]} hashes of {count} keys")
        for i in range(n):
            if wanted[i] < 0 or wanted[i] >= count:
                raise ValueError(f"key {wanted[i]} of {count}")
        self.make_room(n)
        result = np.empty(n, np.int64)
        out = result
        for i in range(n):
            key = wanted[i]
            if self._look_up(
                view, sources, bytes_ + offsets[key], offsets[key + 1] - offsets[key], hashes[key]
            ):
                out[found] = key
                found += 1
        return result[:found]

    cdef bint _look_up(
        self, PointView view, list sources, const uint8_t* key, int64_t size, uint64_t hash
    ) except -1:
        """Take in the row of a key; False: it is in no rowset of the view."""
        cdef:
            MemoryPoints memory
            RowsetPoints rowset
            Source source
            int64_t row, begun, ended, place = 0
            int64_t found[CANDIDATES]
            int i, count
            Py_ssize_t memories = len(view.memories)
        for i in range(<int>memories):
            memory = view.memories[i]
            if memory.inserted._count:
                row = memory.find(key, size, hash, self.snapshot)
                if row >= 0:
                    source = sources[i]
                    if source is None:
                        source = sources[i] = Source.__new__(Source)
                        source.memory = memory
                    if self.look(source, row):
                        return True
        begun, ended = view.bounds.begun(key, size), view.bounds.ended(key, size)
        while place >= 0:
            count = view._candidates(&place, begun, ended, found)
            if count > 1:
                for i in range(count):
                    (<RowsetPoints>view.rowsets[found[i]]).file().fetch_bloom(hash)
            for i in range(count):
                rowset = view.rowsets[found[i]]
                if rowset.insert_ts > self.snapshot:
                    continue
                source = sources[memories + found[i]]
                if source is None:
                    source = sources[memories + found[i]] = Source.__new__(Source)
                    source.rowset = rowset
                    source.file = rowset.file()
                row = source.file.find_row(key, size, hash)
                if row >= 0 and self.look(source, row):
                    return True
        return False
