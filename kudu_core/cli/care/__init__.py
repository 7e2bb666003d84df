"""Commands that look after a table: maintenance, checks, backups, what goes on in it."""
