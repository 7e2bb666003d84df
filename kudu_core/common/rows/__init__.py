"""Blocks of rows, made of what callers give, and their encoded keys.

``arrow_in`` makes record batches of whatever a caller gives and reads none of their memory.  ``conform``
brings their columns into the table's types.  Foreign memory is read by two functions only, and each checks
it first: ``ColumnBuffers.from_arrow`` takes over an array of a column's own type, and ``casts.cast`` has
pyarrow convert an array of any other type.  So offsets that descend or leave the data, buffers that are too
short, text that is not UTF-8 and decimals with too many digits are refused, by column and row, before
anything is staged or logged.  A record that is in the log can be applied.

Two things cannot be seen: the sizes of buffers that come through Arrow's C interface, which does not say
them; and a list with a broken layout inside a ``pyarrow.compute`` expression, which crashes pyarrow itself.

A column in memory holds at most 2 GiB of strings, because Arrow's offsets have 32 bits.  Whatever would put
more together raises ``ColumnTooLarge``.  Scans, merges, ingests and ``changes`` then go on with half of the
rows; ``get_many``, and a call that changes too much of one rowset, pass an error on.
"""
