"""Writes that change a table as a whole, or what is kept of it."""
