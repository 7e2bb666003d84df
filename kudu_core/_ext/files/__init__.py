"""Pages of files, from their place on disk to checked payloads."""
