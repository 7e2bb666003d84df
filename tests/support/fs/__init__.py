"""File systems for tests: in memory, with faults, cut from power."""
