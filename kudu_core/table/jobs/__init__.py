"""Writes and merges whose files other processes make."""
