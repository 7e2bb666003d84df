"""Rows and changes in files."""
