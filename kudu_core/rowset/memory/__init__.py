"""Rows and changes in memory."""
