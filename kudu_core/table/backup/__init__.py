"""A folder of backups: written, chosen, read back."""
