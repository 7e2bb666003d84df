"""Scans of rowsets."""
