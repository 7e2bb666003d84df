"""Searches in sorted cells and pages where they lie."""
