"""Rows of many files, or of all stores of many views, in the order of their keys, some at a time.

``in_order`` finds them: a heap of places, each a ``row_source``.  ``file_keys`` reads keys of one file where
their cells lie and searches among them, with the ``sampled`` values of deltas.  ``row_batch`` makes an Arrow
batch of rows of views, with what changes make of them, of the first ones in the order of keys
(``few_in_order``).  ``rows_of_keys`` makes one of the rows of keys, in their order, which ``looked_up``
finds.  All of it runs with the GIL, and knows no paths.
"""
