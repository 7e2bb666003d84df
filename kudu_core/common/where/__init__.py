"""Predicates: taken apart into terms, sets of values, ranges of keys."""
