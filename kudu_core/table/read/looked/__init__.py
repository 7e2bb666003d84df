"""What becomes of rows that were looked up by their keys."""
