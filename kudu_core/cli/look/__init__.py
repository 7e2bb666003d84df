"""Commands that read: rows, changes, and what a table is made of."""
