"""Writes of one row, and of a few, on the row path.

``row_writes`` is the whole walk of one row, and ``few_writes`` of a few.  ``few_rows`` finds where their keys
live and lays the rows into stores in memory, and ``payload`` makes the record.  The rows come as cells from
``row.row_writer``.  ``log_state`` appends small records, ``memory_counts`` counts what memory takes in.
"""
