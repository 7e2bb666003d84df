"""Encoded keys: made, ordered, merged, searched, hashed."""
