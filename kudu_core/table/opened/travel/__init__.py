"""What of an open table goes to another process, and what stands for it there until it is opened."""
