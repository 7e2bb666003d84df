"""What runs the engine: time, threads, locks, memory, the collector."""
