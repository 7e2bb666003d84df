"""The clients of single kinds of stores, and what they need; ``objects.client`` chooses one."""
