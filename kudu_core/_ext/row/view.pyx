"""One row of a tablet at one snapshot, by its key, through every rowset that may hold it.

``PointView`` goes through the rowsets of one view: those in memory by their hash index, those on disk whose
bounds (``index.rowset_tree``) and blooms admit the key.  A row that is found is read from the base in
place, and the stores of its rowset say what changed of it (``row.overlay``).

It is the fast path beside ``rowset.rows.rows_at``: ``NeedsGeneralPath`` and ``PageError`` mean that the
general path must answer.  Everything here runs with the GIL.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Copy, PyDict_SetItem
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from kudu_core._ext.columns.flags cimport AppendFlags
from kudu_core._ext.columns.growing cimport AppendColumn
from kudu_core._ext.index.hash_index cimport KeyTable
from kudu_core._ext.base.hashes cimport murmur3_bytes
from kudu_core._ext.row.change_log cimport ChangePoints
from kudu_core._ext.row.column cimport PointColumn
from kudu_core._ext.row.file cimport PointFile
from kudu_core._ext.row.overlay cimport (
    NO_CHANGE,
    Overlay,
    Store,
    memory_cell,
    overlay_of,
    visible_rows,
)
from kudu_core._ext.row.shape cimport UNSIGNED, RowShape
from kudu_core._ext.index.rowset_tree cimport POINT_NS, BoundsTree

cdef enum:
    CANDIDATES = 16             # rowsets whose blooms are fetched together

cdef object _absent = object()


@cython.final
@cython.auto_pickle(False)
cdef class MemoryPoints:
    """A MemRowSet, one key at a time.

    ``keys``: encoded keys by ordinal; ``inserted``: their insert times, ascending; ``columns``: {id:
    AppendColumn}; ``changes``: of its rows; ``live``: which of them live; ``version``: of the schema.
    """

    def __init__(
        self, KeyTable keys not None, AppendColumn inserted not None, dict columns not None,
        ChangePoints changes not None, AppendFlags live not None, int version,
    ):
        cdef AppendColumn column
        if inserted.width != 8:
            raise ValueError(f"insert times of {inserted.width} bytes")
        for column in columns.values():
            if column is None:              # any other type is refused where it is assigned
                raise TypeError("a column is missing")
        self.keys, self.inserted, self.columns, self.changes = keys, inserted, columns, changes
        self._all = list(columns.values())
        self.live, self.version = live, version

    def continue_in(self, ChangePoints changes not None):
        """Changes to come go there; what says which of them came first stays."""
        older = [self.changes] if self._older is None else [self.changes, *self._older]
        self._older = older     # first: a reader between the two meets a log twice, and never misses one
        self.changes = changes

    cpdef reserve_one(self, bytes key, list cells):
        """Make room for ``insert_one`` of this row, which then allocates nothing.

        OverflowError: a column is more than half full.
        """
        cdef:
            AppendColumn column
            Py_ssize_t i
        if len(cells) != len(self._all):
            raise ValueError(f"{len(cells)} cells of {len(self._all)} columns")
        self.live.reserve(1)
        self.keys.reserve_key(len(key))
        for i in range(len(cells)):
            column = self._all[i]
            column.reserve_cell(cells[i])
        self.inserted.reserve_rows(1)

    cpdef begin_insert(self, uint64_t ts):
        """Rows of that time come now: whoever sees one of them sees this too."""
        self.last_insert_ts = ts

    cpdef insert_one(self, uint64_t ts, bytes key, uint64_t hash, list cells):
        """Append a row whose key is in no entry yet; ``cells``: bytes or None, by column."""
        cdef:
            AppendColumn column
            Py_ssize_t i
        if len(cells) != len(self._all):
            raise ValueError(f"{len(cells)} cells of {len(self._all)} columns")
        self.last_insert_ts = ts            # first: see ``begin_insert``
        self.live.append(1, True)
        self.keys.put_key(key, hash)
        for i in range(len(cells)):
            column = self._all[i]
            column.put_cell(cells[i])
        self.inserted.put_number(ts)        # last: from here on the row exists

    cdef int64_t find(
        self, const uint8_t* key, int64_t size, uint64_t hash, uint64_t snapshot
    ) noexcept:
        cdef int64_t rows = visible_rows(self.inserted, snapshot)
        return self.keys.find_key(key, size, hash, <uint64_t>rows) if rows else -1

    cdef list columns_of(self, RowShape shape):
        if self._shape is not shape:
            columns = [self.columns.get(i) for i in shape.ids]
            self._shape = None
            self._shape_columns = columns
            self._shape = shape
            return columns
        return self._shape_columns

    cdef Overlay overlaid(self, int64_t ordinal, uint64_t snapshot, RowShape shape):
        """What was changed of a row; None: nothing."""
        cdef Overlay overlay
        if self._older is not None:
            overlay = overlay_of(shape, snapshot)
            for store in (self.changes, *self._older):
                (<ChangePoints>store).collect(ordinal, overlay)
                if overlay.settled():
                    break
            return overlay
        if self.changes.timestamps._count == 0 or self.changes.last.last_of(<uint32_t>ordinal) == NO_CHANGE:
            return None
        overlay = overlay_of(shape, snapshot)
        self.changes.collect(ordinal, overlay)
        return overlay

    cdef object row(
        self, const uint8_t* key, int64_t size, uint64_t hash, uint64_t snapshot, RowShape shape
    ):
        """The row as a dict, ``_absent`` where this rowset does not hold it live."""
        cdef:
            int64_t ordinal = self.find(key, size, hash, snapshot)
            Overlay overlay
            Py_ssize_t i
            dict out
            list columns
        if ordinal < 0:
            return _absent
        overlay = self.overlaid(ordinal, snapshot, shape)
        if overlay is not None and overlay.lives == 0:
            return _absent
        columns = self.columns_of(shape)
        out = PyDict_Copy(shape.empty)
        for i in range(shape.count):
            if overlay is not None and overlay.has(i):
                value = overlay.values[i]
            elif columns[i] is None:
                value = shape.defaults[i]
            else:
                value = memory_cell(<AppendColumn>columns[i], ordinal, shape, i)
            PyDict_SetItem(out, shape.names[i], value)
        return out


@cython.final
@cython.auto_pickle(False)
cdef class RowsetPoints:
    """A rowset on disk, one key at a time.

    Parameters
    ----------
    open : () -> PointFile
    stores : [ChangePoints or ChangeFile]
        Newest first: the one whose word counts comes before the others.
    insert_ts : int or None
        The one insert time of all rows.
    max_insert_ts : int
    times : (id)
        Column id of the rows' insert times in the file.
    """

    def __init__(self, open, stores, insert_ts, uint64_t max_insert_ts, times):
        cdef Store store
        self._open = open
        for store in stores:
            if store is None:
                raise TypeError("a store is missing")
        self.stores = list(stores)
        self.insert_ts = 0 if insert_ts is None else insert_ts
        self.max_insert_ts = max_insert_ts
        self._times = times

    def let_go(self):
        """Hold no file any longer; the next read opens them again."""
        self._file = None
        for store in self.stores:
            store.let_go()

    cdef PointFile file(self):
        cdef PointFile file = self._file
        if file is None or file.closed:
            file = self._file = self._open()
        return file

    cdef Overlay overlaid(self, PointFile file, int64_t row, uint64_t snapshot, RowShape shape):
        """What was changed of a row; None: nothing.  A row that is inserted later does not live."""
        cdef:
            Store store
            Overlay overlay = None
        if self.stores:
            overlay = overlay_of(shape, snapshot)
            for store in self.stores:
                store.collect(row, overlay)
                if overlay.settled():
                    break
        if self.max_insert_ts > snapshot and (overlay is None or overlay.lives != 0):
            times = file._column(self._times)
            if times is not None and (<PointColumn>times).value(file, row, UNSIGNED, None) > snapshot:
                overlay = overlay_of(shape, snapshot)
                overlay.lives = 0
        return overlay

    cdef object row(
        self, const uint8_t* key, int64_t size, uint64_t hash, uint64_t snapshot, RowShape shape
    ):
        cdef:
            PointFile file
            Overlay overlay
            int64_t row
        if self.insert_ts > snapshot:
            return _absent
        file = self.file()
        row = file.find_row(key, size, hash, shape)
        if row < 0:
            return _absent
        overlay = self.overlaid(file, row, snapshot, shape)
        if overlay is not None and overlay.lives == 0:
            return _absent
        if overlay is None or overlay.left == shape.count:
            return file.row_of(row, shape)
        return _laid_over(file, row, overlay)


cdef dict _laid_over(PointFile file, int64_t row, Overlay overlay):
    """The row of the base with what the stores said."""
    cdef:
        RowShape shape = overlay.shape
        list columns = file.columns_of(shape)
        Py_ssize_t i
        dict out = PyDict_Copy(shape.empty)
    for i in range(shape.count):
        if overlay.has(i):
            value = overlay.values[i]
        elif columns[i] is None:
            value = shape.defaults[i]
        else:
            value = (<PointColumn>columns[i]).value(file, row, shape.tags[i], shape.decoders[i])
        PyDict_SetItem(out, shape.names[i], value)
    return out


@cython.final
@cython.auto_pickle(False)
cdef class PointView:
    """All rowsets of a view: ``memories`` in any order, ``rowsets`` on disk as ``bounds`` numbers them."""

    def __init__(self, memories, rowsets, BoundsTree bounds not None):
        cdef:
            MemoryPoints memory
            RowsetPoints rowset
        for memory in memories:
            if memory is None:
                raise TypeError("a rowset is missing")
        for rowset in rowsets:
            if rowset is None:
                raise TypeError("a rowset is missing")
        self.memories = list(memories)
        self.rowsets = list(rowsets)
        self.bounds = bounds
        if len(self.rowsets) != bounds.count:
            raise ValueError(f"bounds of {bounds.count} rowsets, and {len(self.rowsets)} rowsets")

    def replaced(self, dict rowsets not None):
        """The same view but for some rowsets on disk: {place: its new version}."""
        cdef:
            PointView other = PointView.__new__(PointView)
            RowsetPoints rowset
        other.memories, other.bounds = self.memories, self.bounds
        other.rowsets = list(self.rowsets)
        for place, rowset in rowsets.items():
            if rowset is None or not 0 <= place < len(other.rowsets):
                raise ValueError(f"no rowset {place}")
            other.rowsets[place] = rowset
        return other

    def get(self, bytes key not None, uint64_t snapshot, RowShape shape not None):
        """The row of an encoded key at a snapshot as a dict, None where it is not there.

        Raises ``NeedsGeneralPath`` or ``PageError``: ask the general path.
        """
        cdef:
            const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(key)
            int64_t size = PyBytes_GET_SIZE(key)
            uint64_t hash = murmur3_bytes(at, <size_t>size)
            MemoryPoints memory
            int64_t begun, ended, place = 0
            int i, count
            int64_t found[CANDIDATES]
        for memory in self.memories:
            if memory.inserted._count:
                row = memory.row(at, size, hash, snapshot, shape)
                if row is not _absent:
                    return row
        begun, ended = self.bounds.begun(at, size), self.bounds.ended(at, size)
        while place >= 0:
            count = self._candidates(&place, begun, ended, found)
            if count > 1:
                self.bounds.overlap_ns += POINT_NS * (count - 1)
                for i in range(count):
                    (<RowsetPoints>self.rowsets[found[i]]).file().fetch_bloom(hash)
            for i in range(count):
                row = (<RowsetPoints>self.rowsets[found[i]]).row(at, size, hash, snapshot, shape)
                if row is not _absent:
                    return row
        return None

    cdef int _candidates(self, int64_t* place, int64_t begun, int64_t ended, int64_t* found) noexcept:
        """Rowsets from ``place`` on whose bounds admit the key, some at a time; ``place``: -1 at the end."""
        cdef:
            int count = 0
            int64_t i = place[0]
        while i >= 0 and count < CANDIDATES:
            i = self.bounds.next(i, begun, ended)
            if i >= 0:
                found[count] = i
                count += 1
                i += 1
        place[0] = i
        return count

    cpdef list find(self, bytes key, uint64_t hash):
        """Where a key has an entry, live or dead: [(store, row)], stores in memory first.

        Raises as ``get``.
        """
        cdef:
            const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(key)
            int64_t size = PyBytes_GET_SIZE(key), row
            MemoryPoints memory
            int64_t begun, ended, place = 0
            int i, count
            int64_t found[CANDIDATES]
            list out = []
        for i in range(<int>len(self.memories)):
            memory = self.memories[i]
            row = memory.find(at, size, hash, ~<uint64_t>0)
            if row >= 0:
                out.append((i, row))
        begun, ended = self.bounds.begun(at, size), self.bounds.ended(at, size)
        while place >= 0:
            count = self._candidates(&place, begun, ended, found)
            if count > 1:
                self.bounds.overlap_ns += POINT_NS * (count - 1)
                for i in range(count):
                    (<RowsetPoints>self.rowsets[found[i]]).file().fetch_bloom(hash)
            for i in range(count):
                row = (<RowsetPoints>self.rowsets[found[i]]).file().find_row(at, size, hash, None)
                if row >= 0:
                    out.append((len(self.memories) + found[i], row))
        return out
