"""What changed between two times.

Rowsets whose manifest entry rules the window out are not opened.  In the others every insert, UNDO entry and
REDO entry in the window is an event; what several files say of one change is one event.  The image of a row
around an event is what its store has, where that sets the column (``rowset/history/straight``).  Where UNDO
tells of the window it is found column by column: what a later UNDO entry says that it was, else what an
earlier REDO entry says that it became, else its value at the end or the start of the window.  Images are made
for some stretch of time at once (``stretch``); net changes (``net``) by key over the stores of a tablet, a
range of keys at a time.
Where keys are asked for (``keyed``), only their rows in each store have events, and the rest is the same.
Without ``since`` the rows of the oldest readable state come first, as inserts.

Shares of changes travel as ``ChangeToken`` (``tokens``).  One is of the tablets that one partition has had,
or for net changes of all tablets in which one key may have been (``lineage``), and of a part of the time.
How far a number of changes reaches is read off the manifests, and off the times in files that may lie before
that point (``counts``).
"""
