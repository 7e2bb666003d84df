"""Histories of rows: in a window of time, joined and merged."""
