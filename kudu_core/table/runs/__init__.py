"""Rows in order of keys: in memory, in files, staged, cut into ranges."""
