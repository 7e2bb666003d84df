"""What changed between two times."""
