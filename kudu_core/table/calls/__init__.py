"""One write call: what is asked, what is decided, what is answered.  Knows no open table."""
