"""Blocks of rows, made of what callers give, and their encoded keys."""
