"""Sets of rows and their changes: in memory, on disk, and how a snapshot of them is read."""
