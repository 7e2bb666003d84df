"""One partition of a table: its rowsets, how they are written, flushed, read and recovered."""
