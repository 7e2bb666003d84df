"""A few rows at once on the row path: where their keys live, and how they are laid into stores in memory.

The loops of ``table/write/few_rows.py`` over its rows.  What one row takes is the same as on the path of a
single row, and so is the order in which readers come to see it: all of it is done with the interpreter's
lock, and the last thing written is what says that the rows exist.

What the ``reserve`` functions have taken, the ``put`` functions lay without allocating and without refusing.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from kudu_core._ext.base.hashes cimport murmur3_bytes
from kudu_core._ext.columns.growing cimport AppendColumn
from kudu_core._ext.index.hash_index cimport KeyTable
from kudu_core._ext.row.change_log cimport ChangePoints

from kudu_core._ext.columns.growing import data_limit

cdef object MISSING = Ellipsis  # as in ``row.shape``


def grouped(list numbers not None):
    """``{number: the places where it is, ascending}``, in the order in which the numbers first appear."""
    cdef:
        dict out = {}
        Py_ssize_t i
    for i in range(len(numbers)):
        places = out.get(numbers[i])
        if places is None:
            out[numbers[i]] = [i]
        else:
            (<list>places).append(i)
    return out


def picked(list given not None, list places not None):
    """The entries at these places; the list itself where they are as many as it has."""
    cdef Py_ssize_t i
    if len(places) == len(given):
        return given
    out = []
    for i in places:
        if i < 0 or i >= len(given):
            raise IndexError(f"no entry {i} of {len(given)}")
        out.append(given[i])
    return out


def locate(points, tuple stores not None, list keys not None, list places, list rowids not None):
    """Where keys live in their newest state: (places of keys that live nowhere, {store: places of others}).

    ``points`` and ``stores`` are of the tablet's view, ``places`` those of its keys, None: all.  ``rowids``
    gets the row of each key that lives, at the key's place.  None: a dead entry of the active MemRowSet
    would have to be revived, which the general path does.  Raises as ``PointView.find``.
    """
    cdef:
        list absent = []
        dict present = {}
        Py_ssize_t at, i, count = len(keys) if places is None else len(places)
        bytes key
        bint ghost
    if len(rowids) != len(keys):
        raise ValueError(f"room for {len(rowids)} rows of {len(keys)} keys")
    for at in range(count):
        i = at if places is None else places[at]
        if i < 0 or i >= len(keys):
            raise IndexError(f"no key {i} of {len(keys)}")
        key = keys[i]
        if key is None:
            raise TypeError("a key is missing")
        found = points.find(key, murmur3_bytes(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)))
        home = None
        ghost = False
        for index, row in found:
            if stores[index].lives(row):
                home = index
                break
            ghost = ghost or index == 0
        if home is None:
            if ghost:
                return None
            absent.append(i)
            continue
        rowids[i] = row
        mine = present.get(home)
        if mine is None:
            present[home] = [i]
        else:
            (<list>mine).append(i)
    return absent, present


cdef int _reserve_cells(AppendColumn column, list rows, Py_ssize_t place, int64_t most) except -1:
    """Make room for one cell of each row; OverflowError: the column would hold more than ``most`` bytes."""
    cdef:
        int64_t total = 0, size
        list cells
    for cells in rows:
        if cells is None or place >= len(cells):
            raise ValueError("a row has too few cells")
        cell = cells[place]
        if cell is None:
            continue
        size = len(<bytes?>cell)
        if column.width and size != column.width:
            raise ValueError(f"a cell of {size} bytes in a column of width {column.width}")
        total += size
    if column.width == 0 and column._end + total > most:
        raise OverflowError(f"{column._end} bytes and {total} more exceed {most}")
    if column._count + len(rows) > column._rows_capacity or (
        column.width == 0 and column._end + total > column._data_capacity
    ):
        column._reserve(len(rows), total)
    return 0


def reserve_inserts(
    KeyTable table not None, AppendColumn inserted not None, list columns not None, list keys not None,
    list rows not None,
):
    """Make room for ``put_inserts`` of these rows in a MemRowSet: its keys, insert times and columns.

    OverflowError: a column would be more than half full.
    """
    cdef:
        int64_t size = 0, most = data_limit() // 2
        Py_ssize_t i
        bytes key
        AppendColumn column
    if len(keys) != len(rows):
        raise ValueError(f"{len(keys)} keys of {len(rows)} rows")
    for key in keys:
        size += len(key)
    for cells in rows:
        if len(cells) != len(columns):
            raise ValueError(f"{len(cells)} cells of {len(columns)} columns")
    table.reserve(len(keys), size)
    for i in range(len(columns)):
        column = columns[i]
        if column is None:
            raise TypeError("a column is missing")
        _reserve_cells(column, rows, i, most)
    inserted.reserve_rows(len(keys))


def put_inserts(
    KeyTable table not None, AppendColumn inserted not None, list columns not None, uint64_t ts,
    list keys not None, list rows not None,
):
    """Append rows for which room was made, and whose keys are in no entry yet."""
    cdef:
        Py_ssize_t i, j, count = len(keys)
        bytes key
        list cells
        AppendColumn column
    if count != len(rows):
        raise ValueError(f"{count} keys of {len(rows)} rows")
    for i in range(count):
        key = keys[i]
        table.put_key(key, murmur3_bytes(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)))
    for j in range(len(columns)):
        column = columns[j]
        for i in range(count):
            cells = rows[i]
            column.put_cell(cells[j])
    inserted._put_numbers(ts, 0, count)     # last: from here on the rows exist


def reserve_changes(ChangePoints points not None, tuple ids not None, list rows not None):
    """Make room for ``put_changes`` of these rows, which all set the columns that the first one sets.

    Returns -1, or the position of a column that has no log yet.  OverflowError: a column would be more than
    half full.
    """
    cdef:
        Py_ssize_t i, n = len(ids), count = len(rows)
        int64_t most = data_limit() // 2
        list first, cells
        AppendColumn numbers, rowids, values
    if count == 0:
        return -1
    first = rows[0]
    for cells in rows:
        if len(cells) != n:
            raise ValueError(f"{len(cells)} cells of {n} columns")
    for i in range(n):
        if ids[i] is None or first[i] is MISSING:
            continue
        log = points.by_id.get(ids[i])
        if log is None:
            return i
        _, numbers, rowids, values = <tuple>log
        _reserve_cells(values, rows, i, most)
        rowids.reserve_rows(count)
        numbers.reserve_rows(count)
    points.reserve(count)
    return -1


def put_changes(
    ChangePoints points not None, uint64_t ts, uint8_t op, list rowids not None, tuple ids not None,
    list rows not None,
):
    """Append changes of one operation at one time, for which room was made; of no row twice."""
    cdef:
        Py_ssize_t i
    if len(rowids) != len(rows):
        raise ValueError(f"{len(rowids)} rowids of {len(rows)} rows")
    for i in range(len(rows)):
        points.append_one(ts, op, <uint32_t>rowids[i], ids, rows[i])
