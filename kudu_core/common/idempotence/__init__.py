"""Writes that name themselves, and the fingerprints of their rows."""
