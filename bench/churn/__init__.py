"""Rounds of upserts, and what they cost who reads: beside a clean copy of the rows, and beside DuckDB."""
