"""Rows at one snapshot."""
