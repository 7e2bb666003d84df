"""Partitions: which tablet a key belongs to."""
