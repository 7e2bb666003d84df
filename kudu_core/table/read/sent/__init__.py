"""What of a read goes to another process, in plain values, and what it comes to there."""
