"""What the commands have in common: tables to open, text to read, rows to show, errors to tell."""
