"""Pages of files, from their place on disk to checked payloads, and which of them are in memory."""
