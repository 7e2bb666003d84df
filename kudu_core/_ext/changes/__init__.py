"""Changes of rows, laid over columns."""
