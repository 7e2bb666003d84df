"""Stored columns: what is known of them, written and read."""
