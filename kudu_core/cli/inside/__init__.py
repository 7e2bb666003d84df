"""``inspect``: stored files, byte for byte."""
