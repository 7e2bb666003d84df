"""The first rows of views in the order of keys, for an Arrow batch (``row_batch``)."""
cimport cython
from libc.stdint cimport int32_t, int64_t

from kudu_core._ext.ordered.row_batch cimport RowBatch
from kudu_core._ext.ordered.in_order cimport RowsInOrder
from kudu_core._ext.ordered.row_source cimport Source
from kudu_core._ext.row.shape cimport RowShape


@cython.final
@cython.auto_pickle(False)
cdef class RowsOfViews(RowBatch):
    """Rows that live at the snapshot of ``order``, which is one of views.

    ``shape``: their columns, whose cells it makes raw bytes; ``widths``: of a cell of each, 0 for strings;
    ``bits``: whether Arrow has a column as bits, where the table has bytes.
    """

    cdef:
        RowsInOrder _order
        readonly Py_ssize_t taken
        """How many rows were looked at, dead ones too."""
        readonly bint at_end

    def __init__(self, RowsInOrder order not None, RowShape shape not None, tuple widths, tuple bits):
        if order._views is None:
            raise ValueError("rows of views")
        RowBatch.__init__(self, order.snapshot, shape, widths, bits)
        self._order = order

    def take(self, Py_ssize_t count, Py_ssize_t most):
        """Have ``count`` rows; fewer at the end, or where more than ``most`` would have to be looked at.

        Raises what ``RowsInOrder.take`` raises.
        """
        cdef:
            const int32_t[::1] numbers
            const int64_t[::1] rows
            Py_ssize_t i, wanted
        while self.count < count and not self.at_end and self.taken < most:
            wanted = min(count - self.count, most - self.taken)
            found, places = self._order.take(wanted)
            numbers, rows = found, places
            self.taken += numbers.shape[0]
            self.at_end = numbers.shape[0] < wanted
            self.make_room(numbers.shape[0])
            for i in range(numbers.shape[0]):
                self.look(<Source>self._order.sources[numbers[i]], rows[i])
        return self.count
