"""SQL text as what the rest of the package takes: expressions of Arrow, and statements in plain values.

sqlglot reads the text, in DuckDB's dialect, and is imported when there is some.  What these expressions mean
is what they mean in DuckDB, but where docs/sql.md says otherwise.  This room knows columns by names and Arrow
types; it knows no table, reads no rows, and runs no statement.
"""
