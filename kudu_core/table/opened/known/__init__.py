"""What an open table has made once, for all of its reads."""
