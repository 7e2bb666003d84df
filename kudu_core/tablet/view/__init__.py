"""What a tablet is made of at one moment, and where keys live in it.

A ``View`` is an immutable value: the active MemRowSet, frozen ones, and rowsets on disk in the order of their
first keys.  A ``DiskRowSet`` is a value too: the base file, which is shared and opened on first use, UNDO
files newest first, and an ordered list of REDO stores: files, frozen DeltaMemStores and at most one active
one.  Whatever changes the list makes a new value, and who holds the old one reads on.

The rowset tree belongs to a view: the bounds of its rowsets in sorted arrays, with a binary tree of maxima
over the last keys.  To find the rowsets that may hold a key costs the logarithm of their number, and as much
for each one found.  A sorted batch of keys is looked for in one pass, a small one key by key.  The tree is
made anew (0.3 ms for 6,800 rowsets) when rowsets come or go; views that differ only in changes share it.
"""
