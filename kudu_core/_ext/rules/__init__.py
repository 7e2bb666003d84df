"""Decisions: the row rules, and what a merge takes."""
