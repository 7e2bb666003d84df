"""The compiled path of one row: classes that hold Python objects, with the interpreter's lock.

``get`` and the write of a single dict go from key to row without Arrow objects.  ``codec`` encodes and
decodes the row, and ``route`` finds the tablet of an encoded key.  ``view`` goes through the stores of a
view: MemRowSets by their hash index, rowsets on disk by the rowset tree and the bloom filter.  ``file``
searches the key columns in cached pages where they lie, ``column`` reads single cells there, and ``changes``
asks the stores of changes, newest first.  Of a delta file the row ids, times and ordinals of its entries are
kept decoded in the page cache, so that a row without changes costs one search.  ``scattered`` makes columns
of cells of rows that lie in many files.

Only common cases are answered here.  For all others an exception says that the general path is needed, and
that path defines what is right; ``tests/table/write/test_row_path.py`` compares the two.  Writes of
a few rows are in ``_ext/few``.
"""
