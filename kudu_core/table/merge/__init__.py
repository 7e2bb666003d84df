"""Writes that look at the row that is there: merges, conditions, values of expressions over both rows."""
