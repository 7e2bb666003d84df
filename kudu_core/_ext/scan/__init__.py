"""Scans: which rows of pages are selected, and their cells decoded."""
