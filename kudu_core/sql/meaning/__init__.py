"""What the parts of SQL text mean, as expressions of Arrow whose types are known."""
