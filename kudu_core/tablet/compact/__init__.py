"""From files to fewer files."""
