"""Predicates: a tree of expressions, what it says of single columns, sets of values, bounds of keys."""
