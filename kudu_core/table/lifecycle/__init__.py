"""A table is made, opened, altered, tidied."""
