"""From sorted rows to files and one record."""
