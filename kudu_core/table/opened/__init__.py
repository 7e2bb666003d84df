"""An open table: its tablets, memory, log, pins and lanes."""
