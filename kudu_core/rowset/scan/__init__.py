"""Scans of rowsets: which rows are touched, which of them pass, and their columns.

1. Rowsets are ruled out by bounds of keys and by statistics of columns.  Those of a narrow rowset are in the
   manifest, those of a wide one in its file (``docs/decisions/0003-manifests-of-many-rowsets.md``), read when
   a predicate first names a column, and kept.  Delta files whose times or statistics have nothing for the
   snapshot and the columns of a read are not opened.
2. ``row_ranges`` says which rows of a rowset are touched.  A search in the key columns finds exactly those
   that meet what the predicate says of keys, also of a later key column alone, by walking the values of the
   columns before it while these are few.  Zone maps rule out pages.
3. A unit of work is a list of ranges of rows.  Units run on the pool's threads, a bounded number ahead.
4. ``filescan`` tests the conditions of the predicate, sets of values of one column, on what is stored: zone
   maps, heads of mini-blocks, dictionary codes, packed integers.  pyarrow evaluates the rest of the predicate
   on the rows that are left, and one kernel call decodes all columns of those that pass.
5. Changes of fixed-width columns are laid over meanwhile.  A scan of an eighth of a rowset or more takes
   what all delta files say of a column as one patch (``disk/patches.py``), kept in the page cache and laid
   over each mini-block when it is decoded.  Otherwise, and for changes in memory, each change is written to
   its row's position afterwards: changes from delta files are decoded in pieces of 16,384 and cached, those
   in memory are read from the log's runs, and only the part that covers the scanned rows is read.

A scan in the order of keys begins otherwise: ``first_rows`` finds some hundred rows one by one, by a heap of
places in the rowsets (``_ext.ordered.in_order``), and gathers their cells.  ``ordered`` goes on behind them
with a merge of blocks, which grow, of rowsets that are begun when their first possible key is near.

Strings and bools that changed, rows in memory, conditions on columns that changed, and whatever a kernel
refuses take the general path: decoded, patched by row id, evaluated by pyarrow.

An expression that fails on some rows, such as a division by zero, fails the query exactly if one of them is
in the snapshot, meets the conditions and is ruled out by no term, whatever the layout is.  An evaluation that
fails over more rows than these is done again over these alone (``Filter.mask``).
"""
