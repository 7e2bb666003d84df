"""Ways to read a file: by key, by point, by scan."""
