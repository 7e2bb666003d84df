"""``repair``: what can be read of a damaged table, as a new one beside it (docs/repair.md)."""
