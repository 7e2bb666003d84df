"""Rows and changes in memory.

A ``ChangeLog`` is a DeltaMemStore, and also what a MemRowSet keeps for the changes of its own rows.  For each
column it is a log of (row id, change number, value) in the order of timestamps.  A hash map leads from a row
id to its last change, and each change names the one before it of the same row.  Why logs, and no tree of row
changes as in Kudu:

* What a snapshot sees is a prefix.  A scan replays it by writing each value to its row's position.  For that
  each 65,536 updates of a column are counted once by pages of rows, two bytes an update.
* A narrow range of rows goes through a B-tree keyed (row id, change number), made when it is first needed.
* A point read walks the chain of one row.  A chain of more than 16 changes is indexed by column when it is
  first walked, so that a row that changes all the time costs a search.  Entries of a delta file lie by row
  and time, where it is a search anyway.
"""
