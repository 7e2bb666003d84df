"""Indexes: of keys, of rowids, of the bounds of rowsets."""
