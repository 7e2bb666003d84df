"""What stored things have in common: names of files, members of JSON."""
