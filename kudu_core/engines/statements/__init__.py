"""SQL statements over a table: ``Table.sql``.  Queries run in DuckDB, writes by the table's own calls."""
