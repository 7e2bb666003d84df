"""Rows that are looked up by their keys, for an Arrow batch (``rows_of_keys``).

What reads of many keys would do for each rowset and tablet (bounds and bloom of all its keys, arrays for each
column) is done once for a call: here keys are looked for in one view after the other, in each rowset those
that lie within its bounds, some together, so that what they wait for in memory comes at the same time.

``NeedsGeneralPath`` and ``PageError`` mean that the general path must answer.
"""
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kudu_core._ext.base.bitpack cimport kc_mask
from kudu_core._ext.base.keybytes cimport key_bytes, key_count
from kudu_core._ext.base.status cimport BAD_VALUE, raise_needs_general_path
from kudu_core._ext.index.rowset_tree cimport BoundsTree
from kudu_core._ext.ordered.rows_of_keys cimport RowsOfKeys
from kudu_core._ext.ordered.row_source cimport Source
from kudu_core._ext.ordered.sampled cimport is_sampled, sampled_bound, sampled_value, samples_of
from kudu_core._ext.ordered.wanted cimport Wanted, ascend, key_of, passed
from kudu_core._ext.pages.head cimport BLOCK_BITS, BLOCK_ROWS, Page
from kudu_core._ext.row.cells cimport Need, open_known
from kudu_core._ext.row.column cimport PointColumn
from kudu_core._ext.row.file cimport PointFile
from kudu_core._ext.row.find cimport (
    STRING,
    Finder,
    cell_want,
    fetch_block,
    fetch_bloom_block,
    find_in_block,
    kc_in_bloom,
)
from kudu_core._ext.row.scattered cimport refuse
from kudu_core._ext.row.view cimport MemoryPoints, PointView, RowsetPoints
from kudu_core._ext.search.cells cimport cell_number, cells_bound, order_cells
from kudu_core._ext.search.outcomes cimport ABSENT
from kudu_core._ext.search.sorted_strings cimport count_below

cdef enum:
    GROUP = 16                  # keys whose memory is fetched together
    ASKED = 32                  # likewise, their blooms
    ROWSETS_OF_A_KEY = 8        # where there are more, rowsets are asked for by each key
    HELD_KEYS = 2048            # pages that the cache does not keep stay for so many, or those of one rowset


cdef struct Probe:
    # A key that is looked for in a file.
    Py_ssize_t file             # its number
    const Finder* finder
    int64_t at                  # which of those that are wanted
    int64_t block               # which mini-block may have it


@cython.final
@cython.auto_pickle(False)
cdef class LookedUp(RowsOfKeys):
    """The rows of keys at a snapshot, of some views."""

    cdef:
        Wanted _wanted
        list _rowsets           # whose files are asked
        list _files
        list _numbers           # of each file, which source it is; None: no row of it was found
        Probe _asked[ASKED]     # whose blooms are fetched
        int _asked_count
        Probe _probes[GROUP]    # whose mini-blocks are fetched
        int _probe_count
        int64_t _held           # keys for which the files hold pages

    def look_up(
        self,
        list views not None,
        const uint8_t[::1] data not None,
        const int64_t[::1] offsets not None,
        const uint64_t[::1] hashes not None,
        const int64_t[::1] wanted not None,
        const int64_t[::1] ends not None,
    ):
        """Take in the rows of some keys of the batch that have none yet.

        ``views``: ``PointView``s; ``data``, ``offsets``: all encoded keys of the batch; ``hashes``: theirs;
        ``wanted``: which of them each view may have, one view's after the other's and best in the order of
        keys; ``ends``: where those of each view end.

        Raises ``NeedsGeneralPath``, ``PageError``, and ValueError for keys that are not in the batch.
        """
        cdef:
            int64_t i, start = 0, n = wanted.shape[0], count = key_count(data, offsets)
            PointView view
        if hashes.shape[0] != count or self._keys != count:
            raise ValueError(f"{hashes.shape[0]} hashes of {count} keys in a batch of {self._keys}")
        for i in range(n):
            if wanted[i] < 0 or wanted[i] >= count:
                raise ValueError(f"key {wanted[i]} of {count}")
        if ends.shape[0] != len(views):
            raise ValueError(f"{ends.shape[0]} ends of {len(views)} views")
        for i in range(ends.shape[0]):
            if ends[i] < start or ends[i] > n:
                raise ValueError(f"view {i} ends at {ends[i]} of {n} keys")
            start = ends[i]
        if n == 0:
            return
        self.make_room(n)
        self._wanted.data, self._wanted.offsets = key_bytes(data), &offsets[0]
        self._wanted.hashes, self._wanted.keys = &hashes[0], &wanted[0]
        self._rowsets, self._files, self._numbers = [], [], []
        self._asked_count = self._probe_count = 0
        self._held = start = 0
        try:
            for i, view in enumerate(views):
                if view is None:
                    raise TypeError("a view is missing")
                if start < ends[i]:
                    self._in_view(view, start, ends[i])
                start = ends[i]
            self._test_all()
            self._find_all()
        finally:
            self._let_go()

    cdef int _let_go(self) except -1:
        """No page of the files is needed any more."""
        files, self._files, self._rowsets, self._numbers = self._files, [], [], []
        self._held = 0
        for file in files:
            (<PointFile>file).idle()
        return 0

    cdef int _in_view(self, PointView view, int64_t start, int64_t end) except -1:
        """Look for the keys from ``start`` to ``end``."""
        cdef:
            BoundsTree bounds = view.bounds
            int64_t place, size = 0, lower = start, upper = end, looks = 0
            const uint8_t* bound
            bint ordered
        for memory in view.memories:
            if (<MemoryPoints>memory).inserted._count:
                self._in_memory(memory, start, end)
        if bounds.count > ROWSETS_OF_A_KEY * (end - start):
            return self._key_by_key(view, start, end)
        ordered = bounds.count > 1 and ascend(&self._wanted, start, end)
        for place in range(bounds.count):
            if ordered:         # first keys ascend
                bound = bounds.first(place, &size)
                lower = passed(&self._wanted, lower, end, bound, size, False)
                bound = bounds.last(place, &size)
                upper = passed(&self._wanted, lower, end, bound, size, True)
            if lower < upper:
                looks += upper - lower
                self._in_rowset(view.rowsets[place], lower, upper)
        bounds.note_looks(looks, end - start)
        return 0

    cdef int _in_memory(self, MemoryPoints memory, int64_t start, int64_t end) except -1:
        """Look for keys among rows in memory."""
        cdef:
            int64_t i, key, row, size = 0
            const uint8_t* at
            Source source
            int32_t number = -1
        for i in range(start, end):
            key = self._wanted.keys[i]
            if self._marks[key]:
                continue
            at = key_of(&self._wanted, i, &size)
            row = memory.find(at, size, self._wanted.hashes[key], self.snapshot)
            if row >= 0:
                if number < 0:
                    source = Source.__new__(Source)
                    source.memory = memory
                    number = self.add_source(source)
                self.take(number, key, row)
        return 0

    cdef int _key_by_key(self, PointView view, int64_t start, int64_t end) except -1:
        """Look for each key in the rowsets that have it within their bounds."""
        cdef:
            int64_t i, begun, ended, place, size = 0, looks = 0
            const uint8_t* key
        for i in range(start, end):
            key = key_of(&self._wanted, i, &size)
            begun, ended = view.bounds.begun(key, size), view.bounds.ended(key, size)
            place = view.bounds.next(0, begun, ended)
            while place >= 0:
                looks += 1
                self._in_rowset(view.rowsets[place], i, i + 1)
                place = view.bounds.next(place + 1, begun, ended)
        view.bounds.note_looks(looks, end - start)
        return 0

    cdef int _in_rowset(self, RowsetPoints rowset, int64_t lower, int64_t upper) except -1:
        """Look in a rowset for the keys of [lower, upper)."""
        cdef:
            PointFile file
            int64_t i, key
            int k
            Probe probe
        if rowset.insert_ts > self.snapshot:
            return 0
        file = rowset.file()
        if file.closed or not file.can_find:
            raise_needs_general_path()
        if self._held + upper - lower > HELD_KEYS:
            self._test_all()
            self._find_all()
            self._let_go()
        self._held += upper - lower
        self._rowsets.append(rowset)
        self._numbers.append(None)
        self._files.append(file)
        file._busy += 1         # pages that the cache does not keep stay while this is counted
        probe.file, probe.finder, probe.block = len(self._files) - 1, &file.f, -1
        for i in range(lower, upper):
            key = self._wanted.keys[i]
            if self._marks[key]:
                continue
            probe.at = i
            if upper - lower < GROUP:       # with those of other files
                if file.f.bloom != NULL:
                    fetch_bloom_block(file.f.bloom, file.f.bloom_blocks, self._wanted.hashes[key])
                self._asked[self._asked_count] = probe
                self._asked_count += 1
                if self._asked_count == ASKED:
                    self._test_all()
                continue
            if file.f.bloom != NULL:
                if (i - lower) % GROUP == 0:
                    for k in range(<int>min(upper - i, <int64_t>GROUP)):
                        fetch_bloom_block(
                            file.f.bloom, file.f.bloom_blocks, self._wanted.hashes[self._wanted.keys[i + k]]
                        )
                if not kc_in_bloom(file.f.bloom, file.f.bloom_blocks, self._wanted.hashes[key]):
                    continue
            self._find_later(&probe)
        return 0

    cdef int _test_all(self) except -1:
        """Ask the blooms of the keys that wait for that."""
        cdef:
            int k, count = self._asked_count
            const Finder* finder
            uint64_t hash
        self._asked_count = 0
        for k in range(count):
            finder = self._asked[k].finder
            hash = self._wanted.hashes[self._wanted.keys[self._asked[k].at]]
            if finder.bloom == NULL or kc_in_bloom(finder.bloom, finder.bloom_blocks, hash):
                self._find_later(&self._asked[k])
        return 0

    cdef int _find_later(self, const Probe* probe) except -1:
        """A key may be in a file: have what says where its mini-block lies fetched."""
        cdef:
            int64_t size = 0
            const uint8_t* key = key_of(&self._wanted, probe.at, &size)
            int64_t block = count_below(&probe.finder.index, key, size, True) - 1
        if block < 0:
            return 0
        fetch_block(probe.finder, block, True)
        self._probes[self._probe_count] = probe[0]
        self._probes[self._probe_count].block = block
        self._probe_count += 1
        if self._probe_count == GROUP:
            self._find_all()
        return 0

    cdef int _find_all(self) except -1:
        """Look for the keys whose mini-blocks were asked for."""
        cdef:
            int k, count = self._probe_count
            int64_t row, size = 0
            const uint8_t* key
            Probe* probe
            PointFile file
            Source source
        self._probe_count = 0
        for k in range(count):
            fetch_block(self._probes[k].finder, self._probes[k].block, False)
        for k in range(count):
            probe = &self._probes[k]
            file = <PointFile>self._files[probe.file]
            key = key_of(&self._wanted, probe.at, &size)
            row = self._find(file, probe.block, key, size)
            if row < 0 or self._marks[self._wanted.keys[probe.at]]:
                continue
            number = self._numbers[probe.file]
            if number is None:
                source = Source.__new__(Source)
                source.rowset, source.file = <RowsetPoints>self._rowsets[probe.file], file
                number = self._numbers[probe.file] = self.add_source(source)
            self.take(number, self._wanted.keys[probe.at], row)
        return 0

    cdef int64_t _find(self, PointFile file, int64_t block, const uint8_t* key, int64_t size) except -2:
        """The row of a key in a mini-block, or ``ABSENT``: as ``find_in_block``, with samples of deltas."""
        cdef:
            PointColumn column
            const Page* page
            const uint64_t* samples
            Need need
            int64_t at = 0, lower = 0, upper, pos = 0, found
            uint64_t want = 0, word = 0
            int k, status
            bint last
        if file.f.keys == 0 or file.f.columns[0].order == STRING:
            need.column = 0
            need.page = 0
            found = find_in_block(&file.f, block, key, size, &self._cells, &need, &at)
            while found < ABSENT:
                file._resolve(found, &need, at)
                found = find_in_block(&file.f, block, key, size, &self._cells, &need, &at)
            return found
        upper = min(file.f.rows - block * BLOCK_ROWS, <int64_t>BLOCK_ROWS)
        for k in range(file.f.keys):
            last = k + 1 == file.f.keys
            column = <PointColumn>file._keys[k]
            found = cell_want(&column.c, key, size, last, &pos, &want)
            if found == ABSENT:
                return ABSENT
            if found < 0:
                refuse(found, at)
            page = column.page(file, block >> (column.c.page_bits - BLOCK_BITS))
            status = open_known(&column.c, page, block, &self._cells, &at)
            samples = NULL
            if status == 0 and self._cells.block.count < upper:
                status = BAD_VALUE
            if status == 0 and is_sampled(column, page, &self._cells):
                samples = samples_of(column, block, &self._cells, &status, &at)
                self._cells.width = column.c.width
                self._cells.mask, self._cells.flip = kc_mask(8 * column.c.width), column.c.flip
            elif status == 0:
                status = order_cells(page, column.c.width, column.c.flip, &self._cells, &at)
            if status < 0:
                refuse(status, at)
            lower = self._bound(samples, lower, upper, want, False)
            if lower == upper:
                return ABSENT
            if not last:
                upper = self._bound(samples, lower, upper, want, True)
                if lower == upper:
                    return ABSENT
                continue
            if samples != NULL:
                word = (sampled_value(samples, &self._cells, lower) & self._cells.mask) ^ self._cells.flip
            else:
                status = cell_number(&self._cells, lower, &word)
                if status < 0:
                    refuse(status, at)
            if word != want:
                return ABSENT
        return block * BLOCK_ROWS + lower if pos == size else ABSENT

    cdef int64_t _bound(
        self, const uint64_t* samples, int64_t lower, int64_t upper, uint64_t want, bint above
    ) except -1:
        cdef int64_t found
        if samples != NULL:
            return sampled_bound(samples, &self._cells, lower, upper, want, above)
        found = cells_bound(&self._cells, lower, upper, want, above)
        if found < 0:
            refuse(found, 0)
        return found
