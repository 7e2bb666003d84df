"""Columns as buffers: checked, taken, joined, grown, hashed by row."""
