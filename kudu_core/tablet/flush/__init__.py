"""From memory to files."""
