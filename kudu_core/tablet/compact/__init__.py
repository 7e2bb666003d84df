"""From files to fewer files.

**Deltas** (``deltas``).  A minor compaction merges a rowset's first REDO files.  A major one folds the
updates of some columns into a file of rewritten columns, and what they replaced into an UNDO file.  Row ids
stay.  **History** (``history_gc``).  The floor is raised first, then UNDO files that lie below it are
dropped whole, and rowsets in which every row is dead.

**Merges** (``merge``, ``merge_task``, ``merge_past``, ``merge_output``).  Rowsets become others that overlap
nowhere, of the target size.

1. Under the mutex the inputs are claimed and a cut is taken.  From there on nothing is locked.
2. The keys are cut into ranges of about one output each, by the inputs' key indexes, so that memory holds
   one range.  In a range the keys are merged, and column after column is gathered in that order while the
   file is written, past the page cache.  For rows without a past that is all.
3. For other rows the image is the newest at the cut.  An update above the horizon leaves an UNDO record of
   what it replaced.  A deletion stays a REDO entry, or, at or below the horizon, takes the row with it.
   Copies of one key become one history (``rowset/history/joining.py``).
4. What is written meanwhile goes to the inputs, and is carried over in rounds into REDO files of the
   outputs, through a map from each row of an input to its row in an output.  The last round runs under the
   flush lane (``docs/decisions/0002-merges-and-the-flush-lane.md`` says why).
5. Under the mutex the last changes move from memory to memory, and one edit exchanges the rowsets.  Before
   that edit the tablet is what it was; a merge that is interrupted removes its files.

Who writes the outputs is one step, so other processes can (``merge_remote``).  They get an order with the
rowsets, their files, the cut, the horizon and the ranges of keys.  A task that sees exactly these builds the
outputs in ``staging/``; one that sees others answers nothing, and the merge builds them itself.
"""
