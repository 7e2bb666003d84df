"""The rows of one write call, by the tablets to which they belong: found, made room for, and laid.

What ``table/write/few_rows.py`` would else do tablet by tablet in Python.  Knows of a tablet what is asked
here: its ``view`` with ``points``, ``stores`` and ``active``, its ``home_of`` and ``newest_applied``; of a
store the functions that take a few rows.  All of it runs under the mutexes of the tablets.
"""
cimport cython

from kudu_core._ext.few.few_rows import locate, picked
from kudu_core._ext.few.payload import payload_of_rows


@cython.final
@cython.auto_pickle(False)
cdef class FewRows:
    """``keys`` and ``cells`` have an entry for each row.

    ``tablets``: in the order in which the record names them; ``places``: by tablet, which rows are its; None
    where there is one tablet, which has them all.
    """
    cdef:
        readonly list keys
        readonly list cells
        readonly list tablets
        readonly list absent
        """Rows whose keys live nowhere, in the order of the call."""
        readonly list present
        """The others."""
        list _places
        list _rowids            # of each row in its store; 0 if it lives nowhere
        list _absent            # by tablet
        list _present           # by tablet, of those by place of the store in its view
        list _new               # (MemRowSet, keys, cells) for which there is room
        list _changed           # (store, rowids, cells)

    def __init__(self, list keys not None, list cells not None, list tablets not None, list places):
        if len(cells) != len(keys):
            raise ValueError(f"{len(keys)} keys and cells of {len(cells)} rows")
        if len(tablets) != (1 if places is None else len(places)):
            raise ValueError(f"{len(tablets)} tablets, which are not those of the rows")
        self.keys, self.cells, self.tablets, self._places = keys, cells, tablets, places

    def locate(self, version):
        """Find where the keys live; False: the general path must, as a MemRowSet has the columns of another
        version than ``version``, or a dead entry of one would have to be revived.

        Raises as ``few_rows.locate``.
        """
        cdef:
            Py_ssize_t i
            list absent = [], present = []
        self._rowids = [0] * len(self.keys)
        self._absent, self._present = [], []
        for i in range(len(self.tablets)):
            view = self.tablets[i].view
            if view.active.schema.version != version:
                return False
            places = None if self._places is None else self._places[i]
            found = locate(view.points, view.stores, self.keys, places, self._rowids)
            if found is None:
                return False
            mine, others = found
            self._absent.append(mine)
            self._present.append(others)
            absent += <list>mine
            for places in (<dict>others).values():
                present += <list>places
        if len(self.tablets) > 1:
            absent.sort()
        if len(self.tablets) > 1 or len(self._present[0]) > 1:
            present.sort()
        self.absent, self.present = absent, present
        return True

    def payload(self, tuple ids not None, tuple widths not None, list sections not None):
        """Of the record: ``sections`` of (operation, rows), those without rows left out."""
        cdef:
            Py_ssize_t i
            list numbers = [0] * len(self.keys), made = []
        if self._places is not None:
            for i in range(len(self._places)):
                for place in self._places[i]:
                    numbers[place] = i
        for op, rows in sections:
            if rows:
                made.append((op, picked(self.cells, rows), picked(numbers, rows)))
        return payload_of_rows(ids, widths, tuple([tablet.id for tablet in self.tablets]), made)

    def reserve(self, int op, tuple ids not None, tuple widths not None, bint inserts, bint changes):
        """Make room for ``put``: of new rows if ``inserts``, of changes by ``op`` if ``changes``.

        Raises as the stores.
        """
        cdef Py_ssize_t i
        self._new, self._changed = [], []
        for i in range(len(self.tablets)):
            tablet = self.tablets[i]
            if inserts and self._absent[i]:
                active = tablet.view.active
                keys, cells = picked(self.keys, self._absent[i]), picked(self.cells, self._absent[i])
                active.reserve_insert_few(keys, cells)
                self._new.append((active, keys, cells))
            if not changes:
                continue
            for index, places in (<dict>self._present[i]).items():
                home = tablet.home_of(index)
                cells = picked(self.cells, places)
                home.reserve_change_few(op, ids, widths, cells)
                self._changed.append((home, picked(self._rowids, places), cells))

    @property
    def stores(self):
        """Those in which there is room for the rows."""
        return [taken[0] for taken in (*self._new, *self._changed)]

    def put(self, ts, op, tuple ids not None):
        """Lay the rows into the room, and say so to the tablets."""
        for active, keys, cells in self._new:
            active.insert_few(ts, keys, cells)
        for home, rowids, cells in self._changed:
            home.change_few(ts, op, rowids, ids, cells)
        for tablet in self.tablets:
            tablet.newest_applied = ts
