"""Writes of a few rows on the row path: the loops over the rows and cells of one call.

``few_rows`` finds where the keys live and lays the rows into stores in memory, and ``payload`` makes the
record.  The rows come as cells from ``row.row_writer``.
"""
