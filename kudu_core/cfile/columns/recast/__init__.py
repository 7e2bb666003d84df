"""Columns of a file that are read as another type than they are stored as."""
