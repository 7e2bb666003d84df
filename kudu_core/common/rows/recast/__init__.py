"""Columns in memory of one type as those of another."""
